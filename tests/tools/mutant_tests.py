"""The tests' side of mutants.py: pytest with a plugin, in a copy of the tree.

python mutant_tests.py record FOLDER TESTS...   all tests of these files under coverage, with a context for each
python mutant_tests.py run ORDER                those that a JSON file names, until one fails
"""

import json
import resource
import signal
import sys
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import coverage
import pytest

# A mutant may allocate without end.
MAX_BYTES = 6 * 1024**3


class Recorder:
    """Names the coverage context after each test, and notes how long it took and whether it may judge mutants."""

    def __init__(self, recorder: coverage.Coverage) -> None:
        self._recorder = recorder
        self.tests: dict[str, dict[str, Any]] = {}

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        process = item.get_closest_marker("process") is not None
        self.tests[item.nodeid] = {"seconds": 0.0, "passed": False, "process": process}
        try:
            return (yield)
        finally:
            self._recorder.switch_context("between tests")

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Comes after tests/conftest.py, which has its own contexts, and before the fixtures."""
        self._recorder.switch_context(item.nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if isinstance(report, pytest.SubtestReport):
            return  # a part of its test, whose report comes after it
        test = self.tests[report.nodeid]
        test["seconds"] = round(test["seconds"] + report.duration, 4)
        if report.when == "call":
            test["passed"] = report.passed
        elif report.failed:
            test["passed"] = False


def record(out: Path, paths: list[str]) -> int:
    recorder = coverage.Coverage(data_file=str(out / "lines"), source=["sansio", "server"], config_file=False)
    recorder.set_option("run:relative_files", True)
    plugin = Recorder(recorder)
    recorder.start()
    code = pytest.main(["-q", "--no-header", "--tb=line", "-p", "no:cacheprovider", *paths], plugins=[plugin])
    recorder.stop()
    recorder.save()
    (out / "tests.json").write_text(json.dumps(plugin.tests), "utf-8")
    return int(code)


class Chosen:
    """Runs the chosen tests only and notes where they are.

    A mutant may change the ids of the cases of a test: then all that have a new one are run.
    """

    def __init__(self, tests: Collection[str], out: Path) -> None:
        self._tests = set(tests)
        self._out = out

    def note(self, what: str, test: str) -> None:
        with self._out.open("a", encoding="utf-8") as out:
            out.write(json.dumps([what, test]) + "\n")

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        gone = {function_of(each) for each in self._tests - {item.nodeid for item in items}}
        chosen = [item for item in items if item.nodeid in self._tests or function_of(item.nodeid) in gone]
        config.hook.pytest_deselected(items=[item for item in items if item not in set(chosen)])
        items[:] = chosen

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.note("started", nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.note("failed", report.nodeid)


def run_chosen(order: Path) -> int:
    resource.setrlimit(resource.RLIMIT_DATA, (MAX_BYTES, MAX_BYTES))
    tests = json.loads(order.read_text("utf-8"))
    files = list(dict.fromkeys(test.partition("::")[0] for test in tests))
    options = ["-x", "-q", "--no-header", "--tb=line", "-p", "no:cacheprovider"]
    return int(pytest.main([*options, *files], plugins=[Chosen(tests, order.with_suffix(".notes"))]))


def function_of(test: str) -> str:
    return test.partition("[")[0]


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's jobs in the background ignore it
    command, place, *rest = sys.argv[1:]
    sys.exit(record(Path(place), rest) if command == "record" else run_chosen(Path(place)))
