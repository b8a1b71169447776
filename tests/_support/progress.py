"""One line of progress for the workers of pytest-xdist, in place of their dots.

It says how many tests are left, how many failed, and which files are running. A terminal shows one line that changes.
A log gets a line every ten seconds, and one for each test that fails.
"""

import shutil
import time
from collections.abc import Generator, Sequence

import pytest

TERMINAL_S = 0.2
LOG_S = 10.0


class Progress:
    """A plugin of the process that controls the workers."""

    def __init__(self, terminal: pytest.TerminalReporter) -> None:
        self._terminal = terminal
        self._in_place = terminal.isatty()
        self._every_s = TERMINAL_S if self._in_place else LOG_S
        self._began = self._shown = time.monotonic()
        self._running: set[str] = set()
        self._total = self._done = self._failed = 0

    def pytest_xdist_node_collection_finished(self, ids: Sequence[str]) -> None:
        self._total = len(ids)

    @pytest.hookimpl(wrapper=True)
    def pytest_report_teststatus(self) -> Generator[None, tuple[str, str, str], tuple[str, str, str]]:
        """Leave out the dot, which is the letter of the three values."""
        category, _, word = yield
        return category, "", word

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._failed += 1
            self._write_line(f"FAILED {report.nodeid}")

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._running.add(nodeid)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._done += 1
        now = time.monotonic()
        if now - self._shown >= self._every_s or self._done == self._total:
            self._shown = now
            self._show(int(now - self._began))
        self._running.discard(nodeid)

    def _show(self, seconds: int) -> None:
        left = self._total - self._done
        files = " ".join(sorted({nodeid.partition("::")[0] for nodeid in self._running}))
        line = f"{seconds // 60}:{seconds % 60:02}  {left} left, {self._failed} failed  {files}"
        if self._in_place and left:
            self._terminal.rewrite(line[: shutil.get_terminal_size().columns - 1], erase=True)
        else:
            self._write_line(line)

    def _write_line(self, line: str) -> None:
        if self._in_place:
            self._terminal.rewrite("", erase=True)
            self._terminal.rewrite("")
        self._terminal.write_line(line)
