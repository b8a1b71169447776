"""Change the code at random places, one at a time, and count which changes the tests catch: `make mutants`.

    make mutants                                    60 mutants of the core and 60 of the server, as --seed chooses them
    make mutants ARGS='--compare before.json'       the same mutants again; fails if one that was caught survives now
    make mutants ARGS='--core 6 --server 0 --tests tests/sansio'        a few, by a part of the tests
    make mutants ARGS='--processes --jobs 1'        survivors meet the tests that start processes, too
    Results are a table and a JSON file in --state; a run that was stopped goes on when it is started again.

All happens in copies of the tree with their own environment, so that processes which a test starts see the
mutant as well. First all tests run once under coverage, which notes for each line the tests that come by, and how
long they take. Then each mutant meets the tests of its lines, those of the cheapest files first, until one fails; a
test that fails without the mutant, too, does not count. What no test comes by is "not covered". A hang is caught.
"""

import argparse
import hashlib
import json
import os
import queue
import signal
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
import venv
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from importlib.util import cache_from_source
from pathlib import Path
from typing import Any, TypeAlias

import coverage
import pytest
from mutant_tests import function_of
from mutations import IDENTITY, Mutation, choose, differs, mutations, same

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {"core": "sansio", "server": "server"}
STATE = Path(tempfile.gettempdir()) / "dragoman-mutants"
# What a file costs beside its tests, and what a run of pytest may take beside them, on a busy machine.
FILE_S = 0.2
START_S = 60.0
Json: TypeAlias = dict[str, Any]

# -- a copy of the tree ------------------------------------------------------------------------------------


class Tree:
    """A copy of the checkout's files with an environment in which the copy's packages come first."""

    def __init__(self, place: Path) -> None:
        self.place = place
        listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        for name in (
            subprocess.run(listed, cwd=ROOT, check=True, capture_output=True).stdout.decode().split("\0")
        ):
            if name and (ROOT / name).is_file():
                (place / name).parent.mkdir(parents=True, exist_ok=True)
                (place / name).write_bytes((ROOT / name).read_bytes())
        venv.create(place / ".venv", symlinks=True)
        self.python = place / ".venv/bin/python"
        # The packages of this environment, but not its *.pth: they lead to the checkout.
        installed = Path(sysconfig.get_path("purelib"))
        paths = [*(place / source for source in PACKAGES.values()), installed]
        site = place / ".venv" / installed.relative_to(sys.prefix)
        (site / "tree.pth").write_text("\n".join(map(str, paths)), "utf-8")
        code = "import dragoman, dragoman_server as s; print(dragoman.__file__, s.__file__, sep='\\n')"
        found = subprocess.run([self.python, "-c", code], check=True, capture_output=True, text=True).stdout
        assert all(Path(each).is_relative_to(place) for each in found.split("\n")[:2]), found

    def digest(self, more: Sequence[str]) -> str:
        """Return a name of the code and the tests: what is kept is of these only."""
        digest = hashlib.sha256(repr(more).encode())
        for path in sorted(self.place.rglob("*.py")):
            if not {".venv", "tools"} & set(path.parts):
                digest.update(path.relative_to(self.place).as_posix().encode() + path.read_bytes())
        return digest.hexdigest()[:12]

    def write(self, path: str, text: bytes) -> None:
        """Two texts of one size in one second have one *.pyc, so it is removed."""
        (self.place / path).write_bytes(text)
        Path(cache_from_source(str(self.place / path))).unlink(missing_ok=True)

    def start(self, *arguments: str, log: Any = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [self.python, "tests/tools/mutant_tests.py", *arguments],
            cwd=self.place,
            env={**os.environ, "COVERAGE_CORE": "ctrace"},  # which has contexts on every version of Python
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def run(self, tests: Sequence[str], rate_limit_s: float) -> tuple[str, str]:
        """Run tests until one fails. Return how that ended ("" if all passed) and the last test."""
        with tempfile.TemporaryDirectory() as place:
            order = Path(place) / "order.json"
            order.write_text(json.dumps(tests), "utf-8")
            process = self.start("run", str(order))
            try:
                code: int | None = process.wait(rate_limit_s)
            except subprocess.TimeoutExpired:
                code = None
            finally:
                self.end(process)
            notes = order.with_suffix(".notes")
            lines = (
                [json.loads(each) for each in notes.read_text("utf-8").splitlines()] if notes.exists() else []
            )
        failed = [test for what, test in lines if what == "failed"]
        last = lines[-1][1] if lines else ""
        if code in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            return "", ""
        if failed:
            return "failed", failed[0]
        return ("hang" if code is None else f"exit {code}"), last

    def end(self, process: subprocess.Popen[bytes]) -> None:
        """Give pytest the time to end what it has started, then end what is left of this tree."""
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        for each in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):
                if bytes(self.place) in each.read_bytes():
                    os.kill(int(each.parent.name), signal.SIGKILL)


# -- which tests come by a line ----------------------------------------------------------------------------


class Contexts:
    """The tests, how long they take, and the lines that each comes by: of one run, kept in a folder of the state."""

    def __init__(self, place: Path) -> None:
        self.tests: dict[str, Json] = {}
        self._lines = []
        for share in sorted(place.iterdir()):
            self.tests |= json.loads((share / "tests.json").read_text("utf-8"))
            self._lines.append(coverage.CoverageData(str(share / "lines")))
            self._lines[-1].read()

    def of(self, found: Iterable[Mutation]) -> dict[Mutation, list[str]]:
        """Return the tests that come by each and passed, those of the cheapest files first."""
        covering: dict[Mutation, list[str]] = {}
        by_path: dict[str, list[Mutation]] = {}
        for each in found:
            by_path.setdefault(each.path, []).append(each)
        for path, those in by_path.items():
            tables = [data.contexts_by_lineno(path) for data in self._lines]
            for each in those:
                statement, first, last = each.lines
                names = self._at(tables, first, last) or self._at(tables, statement, last)
                covering[each] = self.in_order(names)
        return covering

    def in_order(self, names: Collection[str]) -> list[str]:
        files: Counter[str] = Counter()
        for name in names:
            files[name.partition("::")[0]] += self.tests[name]["seconds"]
        return sorted(names, key=lambda name: (files[name.partition("::")[0]], name))

    def processes(self) -> list[str]:
        """Return one case of each test that starts a process, because coverage does not see into those."""
        cases = {
            function_of(name): name for name, test in self.tests.items() if test["process"] and test["passed"]
        }
        return self.in_order(cases.values())

    def _at(self, tables: Sequence[Mapping[int, list[str]]], first: int, last: int) -> set[str]:
        names = {name for table in tables for line in range(first, last + 1) for name in table.get(line, ())}
        return {name for name in names if name in self.tests and self.tests[name]["passed"]}


def recorded(state: Path, trees: Sequence[Tree], digest: str, paths: Sequence[str]) -> Contexts:
    place = state / f"contexts-{digest}"
    if not place.exists():
        files = test_files(trees[0], paths)
        shares = shared(files, len(trees))
        print(f"contexts: {len(files)} test files under coverage, {len(shares)} at a time", flush=True)
        began = time.monotonic()
        with tempfile.TemporaryDirectory(dir=state) as made, ExitStack() as stack:
            running = []
            for number, (tree, share) in enumerate(zip(trees, shares, strict=False)):
                out = Path(made) / "contexts" / str(number)
                out.mkdir(parents=True)
                log = stack.enter_context((state / f"contexts-{number}.log").open("wb"))
                process = tree.start("record", str(out), *share, log=log)
                stack.callback(tree.end, process)
                running.append(process)
            codes = [process.wait() for process in running]
            if not all(code in (0, 1) for code in codes):
                raise SystemExit(f"pytest ended with {codes}: see {state}/contexts-*.log")
            (Path(made) / "contexts").rename(place)
        print(f"contexts: {time.monotonic() - began:.0f} s", flush=True)
    contexts = Contexts(place)
    failed = sum(not test["passed"] for test in contexts.tests.values())
    print(
        f"contexts: {len(contexts.tests)} tests; {failed} did not pass in the copy and judge nothing: {place}"
    )
    return contexts


def test_files(tree: Tree, paths: Sequence[str]) -> dict[str, int]:
    """The test files below these paths and their sizes; not those of the recordings, which are no part of the suite."""
    below = [file for path in paths for file in ([tree.place / path, *(tree.place / path).rglob("*.py")])]
    files = [file.relative_to(tree.place) for file in below if file.match("test_*.py")]
    return {str(file): (tree.place / file).stat().st_size for file in files if "recordings" not in file.parts}


def shared(sizes: Mapping[str, int], count: int) -> list[list[str]]:
    shares: list[list[str]] = [[] for _ in range(count)]
    weights = [0] * count
    for name in sorted(sizes, key=lambda name: (-sizes[name], name)):
        least = weights.index(min(weights))
        shares[least].append(name)
        weights[least] += sizes[name]
    return [sorted(share) for share in shares if share]


# -- the result of a mutant -------------------------------------------------------------------------------


@dataclass(slots=True)
class MutantRunner:
    """Runs tests against mutants. budget_s: limits the tests of one mutant by the time that they took before."""

    contexts: Contexts
    budget_s: float
    flaky: set[str] = field(default_factory=set)

    def run(self, tree: Tree, mutation: Mutation, covering: Sequence[str], more: Sequence[str]) -> Json:
        """Return how it went: "caught", "survived" or "not covered". more: tests for those that survive."""
        original = (tree.place / mutation.path).read_bytes()
        began = time.monotonic()
        tried = 0
        try:
            for tests in (covering, [test for test in more if test not in set(covering)]):
                for batch in self._batches(tests):
                    tried += len(batch)
                    if by := self._caught(tree, mutation, original, batch):
                        return self._row("caught", by, covering, tried, began)
        finally:
            tree.write(mutation.path, original)
        return self._row("survived" if tried else "not covered", "", covering, tried, began)

    def _row(self, status: str, by: str, covering: Sequence[str], tried: int, began: float) -> Json:
        seconds = round(time.monotonic() - began, 1)
        return {"status": status, "by": by, "covering": len(covering), "tried": tried, "seconds": seconds}

    def _batches(self, tests: Sequence[str]) -> Iterator[list[str]]:
        """A few tests first: most mutants are caught by any."""
        batch: list[str] = []
        size, spent, full = 3.0, 0.0, 0.0
        files: set[str] = set()
        for test in tests:
            file = test.partition("::")[0]
            cost = float(self.contexts.tests[test]["seconds"]) + (0.0 if file in files else FILE_S)
            files.add(file)
            spent += cost
            full += cost
            if spent > self.budget_s:
                break
            batch.append(test)
            if full > size:
                yield batch
                batch, size, full = [], size * 4, 0.0
        if batch:
            yield batch

    def _caught(self, tree: Tree, mutation: Mutation, original: bytes, batch: list[str]) -> str:
        """Return the test that fails because of the mutant, "" if none does."""
        while batch := [test for test in batch if test not in self.flaky]:
            tree.write(mutation.path, mutation.apply(original))
            how, test = tree.run(batch, self._limit(batch))
            if not how:
                return ""
            if test not in self.contexts.tests:
                return f"{how}: {test or 'while tests were collected'}"
            tree.write(mutation.path, original)
            if not tree.run([test], self._limit([test]))[0]:
                return test if how == "failed" else f"{how}: {test}"
            self.flaky.add(test)
        return ""

    def _limit(self, tests: Sequence[str]) -> float:
        return START_S + 4 * sum(float(self.contexts.tests[test]["seconds"]) for test in tests)


# -- the run -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Mutant:
    """A change and its package. old: how it went in the run that this one is compared with."""

    mutation: Mutation
    package: str
    old: Json | None = None


def selected(tree: Tree, options: argparse.Namespace, before: Json | None) -> tuple[list[Mutant], list[Json]]:
    """Return the mutants to try, and those of the other run that are not in this code."""
    mutants: list[Mutant] = []
    lost: list[Json] = []
    for package, folder in PACKAGES.items():
        files = sorted((tree.place / folder).rglob("*.py"))
        texts = {path.relative_to(tree.place).as_posix(): path.read_bytes() for path in files}
        found = [each for path, text in texts.items() for each in mutations(path, text)]
        if before is None:
            chosen = choose(found, texts, options.seed, getattr(options, package))
            mutants += [Mutant(each, package) for each in chosen]
            continue
        for old in (row for row in before["mutants"] if row["package"] == package):
            each = same(old, found)
            if each is None or not differs(texts[each.path], each):
                lost.append(old)
                continue
            mutants.append(Mutant(each, package, old))
    return mutants, lost


@dataclass(slots=True)
class Results:
    """The rows of the JSON file: those of an earlier run on the same code and tests are not made again."""

    out: Path
    seed: int
    processes: bool
    rows: dict[str, Json] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        if self.out.exists():
            known = json.loads(self.out.read_text("utf-8"))["mutants"]
            self.rows = {self._key(row): row for row in known}

    def row(self, mutant: Mutant, run: Callable[[], Json]) -> Json:
        row = {"package": mutant.package, **mutant.mutation.as_dict(), "processes": self.processes}
        known = self.rows.get(self._key(row))
        if known is not None and (known["status"] == "caught" or known["processes"] or not self.processes):
            return known
        row |= run()
        with self._lock:
            self.rows[self._key(row)] = row
            part = self.out.with_suffix(".part")
            part.write_text(
                json.dumps({"seed": self.seed, "mutants": [*self.rows.values()]}, indent=1), "utf-8"
            )
            part.replace(self.out)
        return row

    def _key(self, row: Json) -> str:
        return json.dumps([row["path"], *(row[name] for name in IDENTITY)])


def run_all(
    mutants: Sequence[Mutant], trees: Sequence[Tree], contexts: Contexts, budget_s: float, results: Results
) -> list[Json]:
    """Judge each mutant, in as many trees at a time as there are, and print a line for each."""
    covering = contexts.of([each.mutation for each in mutants])
    more = contexts.processes() if results.processes else []
    runner = MutantRunner(contexts, budget_s)
    free: queue.SimpleQueue[Tree] = queue.SimpleQueue()
    for tree in trees:
        free.put(tree)

    def one(mutant: Mutant) -> Json:
        tree = free.get()
        try:
            each = mutant.mutation
            return results.row(mutant, lambda: runner.run(tree, each, covering[each], more))
        finally:
            free.put(tree)

    rows = []
    pool = ThreadPoolExecutor(len(trees))
    try:
        for row in pool.map(one, mutants):
            rows.append(row)
            print(line_of(row), flush=True)
    finally:
        pool.shutdown(cancel_futures=True)
    if runner.flaky:
        print(f"failed without a mutant, too: {', '.join(sorted(runner.flaky))}")
    return rows


def line_of(row: Json) -> str:
    by = f" by {row['by']}" if row["by"] else ""
    tests = f"{row['covering']} tests come by, {row['tried']} were given, {row['seconds']} s"
    place = f"{row['path']}:{row['lines'][1]} {row['qualname']} [{row['operator']}]"
    return f"{row['status']:11} {place}: {row['before']} -> {row['after']}{by} ({tests})"


def report(mutants: Sequence[Mutant], rows: Sequence[Json], lost: Sequence[Json]) -> int:
    """Print the counts, and what the other run caught and this one did not. Return the exit code."""
    for package in PACKAGES:
        counts = Counter(row["status"] for row in rows if row["package"] == package)
        print(
            f"{package}: {counts.total()} mutants: {counts['caught']} caught, {counts['survived']} survived,",
            end=" ",
        )
        print(f"{counts['not covered']} not covered")
    compared = [
        (mutant.old, row) for mutant, row in zip(mutants, rows, strict=True) if mutant.old is not None
    ]
    caught = [(old, row) for old, row in compared if old["status"] == "caught"]
    worse = [(old, row) for old, row in caught if row["status"] != "caught"]
    for old, row in worse:
        print(f"no longer caught: {line_of(row)}; it was by {old['by']}")
    for old in lost:
        print(f"not in this code: {line_of(old)}")
    if compared or lost:
        print(f"{len(caught)} of these were caught before, {len(worse)} of them are not now; ", end="")
        print(f"{len(lost)} mutants of the other run are not in this code")
    return 1 if worse else 0


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--core", type=int, default=60, metavar="N", help="mutants of the core")
    parser.add_argument("--server", type=int, default=60, metavar="N", help="mutants of the server")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="how many at a time")
    parser.add_argument(
        "--budget", type=float, default=120, metavar="S", help="seconds of tests for one mutant"
    )
    parser.add_argument(
        "--processes", action="store_true", help="run tests that start processes against survivors"
    )
    parser.add_argument(
        "--tests", nargs="+", default=["tests"], metavar="PATH", help="folders or files of tests"
    )
    parser.add_argument(
        "--compare", type=Path, metavar="JSON", help="results of another run: the same mutants again"
    )
    parser.add_argument("--state", type=Path, default=STATE, help=f"folder of results and contexts: {STATE}")
    options = parser.parse_args(arguments)
    before = json.loads(options.compare.read_text("utf-8")) if options.compare else None
    options.state.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="mutants-") as place:
        trees = [Tree(Path(place) / str(number)) for number in range(options.jobs)]
        digest = trees[0].digest(options.tests)
        mutants, lost = selected(trees[0], options, before)
        contexts = recorded(options.state, trees, digest, options.tests)
        seed = options.seed if before is None else before["seed"]
        results = Results(options.state / f"mutants-{digest}.json", seed, options.processes)
        rows = run_all(mutants, trees, contexts, options.budget, results)
    print(f"seed {seed}, results: {results.out}")
    return report(mutants, rows, lost)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
