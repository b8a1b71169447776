"""Every module of the core reaches 100 % branch coverage from its own tests alone.

A line that is covered only by the way, from the test of something else, is a line that nobody thought about.
Which tests are a module's own is a rule of names:

    dragoman/_wire/*.py            tests/sansio/wire/test_*.py
    dragoman/testing.py            tests/sansio/test_testing.py
    dragoman/__init__.py           tests/sansio/test_exports.py
    dragoman/protocols/NAME/*.py   tests/sansio/NAME/test_*.py

One pytest run does it all: the recorder is told whose tests are running whenever the file changes. What runs
while a module of ours is first imported belongs to everybody.

    python tests/module_coverage.py            # all of them
    python tests/module_coverage.py sse lane   # these alone; folders go by their name
"""

import importlib
import io
import os
import pkgutil
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryFile

import coverage
import pytest

ROOT = Path(__file__).resolve().parents[1]
CORE = ROOT / "sansio" / "dragoman"
TESTS = ROOT / "tests" / "sansio"
IMPORTS = "imports"


def owner_of(module: Path) -> Path:
    """The test file or folder that is a module's own."""
    folder = module.parent.relative_to(CORE)
    if folder.parts[:1] == ("protocols",) and len(folder.parts) > 1:
        return TESTS / folder.parts[1]
    if folder.parts:
        return TESTS / folder.parts[0].lstrip("_")
    if module.stem == "__init__":
        return TESTS / "test_exports.py"
    return TESTS / f"test_{module.stem.lstrip('_')}.py"


class Contexts:
    """A pytest plugin that names the recorder's context after the owner of each test."""

    def __init__(self, recorder: coverage.Coverage, owners: set[Path]) -> None:
        self._recorder = recorder
        self._owners = owners
        self._now = IMPORTS

    def _switch(self, path: Path) -> None:
        name = next((str(each) for each in (path, *path.parents) if each in self._owners), "nobody")
        if name != self._now:
            self._now = name
            self._recorder.switch_context(name)

    def pytest_collectstart(self, collector: pytest.Collector) -> None:
        self._switch(collector.path)  # cases of a table may be computed while its file is imported

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._switch(item.path)
        return (yield)  # type: ignore[return-value]


def import_everything() -> None:
    package = importlib.import_module("dragoman")
    for found in pkgutil.walk_packages(package.__path__, "dragoman."):
        importlib.import_module(found.name)


def measure(owned: dict[Path, Path]) -> int:
    """Run the owners' tests and report each module. Gives the exit code."""
    recorder = coverage.Coverage(
        data_file=None, branch=True, source=[str(CORE)], config_file=str(ROOT / "pyproject.toml")
    )
    owners = sorted(set(owned.values()))
    recorder.set_option("run:source_pkgs", [])
    recorder.start()
    recorder.switch_context(IMPORTS)
    import_everything()
    code = pytest.main(
        ["-q", "--no-header", "-p", "no:cacheprovider", *map(str, owners)],
        plugins=[Contexts(recorder, set(owners))],
    )
    recorder.stop()
    if code != 0:
        print("the tests failed; coverage was not judged")
        return int(code)

    poor = []
    for module, owner in sorted(owned.items()):
        out = io.StringIO()
        contexts = [f"^{re.escape(name)}$" for name in (IMPORTS, str(owner))]
        percent = recorder.report(
            morfs=[str(module)], contexts=contexts, show_missing=True, skip_covered=False, file=out
        )
        if percent < 100:
            row = next(each for each in out.getvalue().splitlines() if module.name in each)
            lines = row.partition("%")[2].strip()
            poor.append(f"{module.relative_to(ROOT)} {lines} (by {owner.relative_to(ROOT)})")
    print(f"{len(owned) - len(poor)} of {len(owned)} modules fully covered by their own tests")
    if poor:
        print(f"not covered: {'; '.join(poor)}")
    return 1 if poor else 0


def in_shares(owners: set[Path], count: int) -> int:
    """Run this script once for each share of the owners, side by side. Gives the worst exit code.

    What failed is printed last: it is what one looks for.
    """
    shares: list[list[str]] = [[] for _ in range(count)]
    sizes = [0] * count
    for owner in sorted(owners, key=weight, reverse=True):
        least = sizes.index(min(sizes))
        shares[least].append(owner.stem.removeprefix("test_"))
        sizes[least] += weight(owner)
    with ExitStack() as stack:
        outs = [stack.enter_context(TemporaryFile("w+")) for _ in shares]
        running = [
            subprocess.Popen([sys.executable, __file__, *share], stdout=out)
            for share, out in zip(shares, outs, strict=True)
        ]
        codes = [process.wait() for process in running]
        for _, out in sorted(zip(codes, outs, strict=True), key=lambda each: each[0]):
            out.seek(0)
            sys.stdout.write(out.read())
    return max(codes)


def weight(owner: Path) -> int:
    """A guess at how long its tests take: the length of their text."""
    return sum(path.stat().st_size for path in (owner.glob("*.py") if owner.is_dir() else [owner]))


def main(names: list[str]) -> int:
    os.chdir(ROOT)
    # The recorder that can tell contexts apart on every Python version.
    os.environ["COVERAGE_CORE"] = "ctrace"
    owned = {module: owner_of(module) for module in CORE.rglob("*.py")}
    if names:
        wanted = {TESTS / name for name in names} | {TESTS / f"test_{name}.py" for name in names}
        owned = {module: owner for module, owner in owned.items() if owner in wanted}
    owners = set(owned.values())
    missing = sorted({str(owner.relative_to(ROOT)) for owner in owners if not owner.exists()})
    if missing or not owned:
        print(f"no such tests: {', '.join(missing) or ' '.join(names)}", file=sys.stderr)
        return 2
    if names:
        return measure(owned)
    return in_shares(owners, min(4, os.cpu_count() or 1, len(owners)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
