"""A loop that does not run is noticed, named once, and counted."""

import sys
import time
from collections.abc import Callable
from types import FrameType

import anyio
import pytest

from dragoman_server.telemetry.watchdog import _LINE_EACH, Watchdog, watching


class Loop:
    """Answers when it may. stalls: how many were counted."""

    def __init__(self) -> None:
        self.runs = True
        self.stalls = 0
        self._calls: list[Callable[[], object]] = []
        self.watchdog = Watchdog(self.call, self.frame, self.count)

    def call(self, function: Callable[[], object]) -> None:
        self._calls.append(function)

    def frame(self) -> FrameType:
        return sys._getframe()

    def count(self) -> None:
        self.stalls += 1

    def seconds(self, count: int) -> None:
        for _ in range(count):
            self.watchdog.ask()
            if self.runs:
                for function in self._calls:
                    function()
                self._calls.clear()


def test_a_loop_that_runs_is_not_mentioned(caplog: pytest.LogCaptureFixture) -> None:
    loop = Loop()
    loop.seconds(100)
    assert (loop.stalls, caplog.messages) == (0, [])


def test_a_stall_has_one_line_with_its_place(caplog: pytest.LogCaptureFixture) -> None:
    loop = Loop()
    loop.seconds(3)
    loop.runs = False
    loop.seconds(1)
    assert loop.stalls == 0
    loop.seconds(10)
    assert loop.stalls == 1
    [line] = caplog.messages
    assert line.startswith("the event loop has not run for 1 s")
    called_by = "called by dragoman_server.telemetry.watchdog line "
    assert f"{__name__} line " in line
    assert called_by in line


def test_further_stalls_are_counted_and_written_once_in_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    loop = Loop()
    for _ in range(_LINE_EACH // 6 + 2):
        loop.runs = False
        loop.seconds(3)
        loop.runs = True
        loop.seconds(3)
    assert loop.stalls == _LINE_EACH // 6 + 2
    assert len(caplog.messages) == 2


def test_a_loop_that_has_ended_is_asked_in_vain() -> None:
    def ended(function: Callable[[], object]) -> None:
        raise RuntimeError("Event loop is closed")

    Watchdog(ended, lambda: None, lambda: None).ask()


@pytest.mark.anyio
@pytest.mark.backends("real-asyncio", "real-trio", "uvloop")
async def test_a_real_loop_that_stands_is_noticed(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dragoman_server.telemetry.watchdog.STALL_S", 0.1)
    monkeypatch.setattr("dragoman_server.telemetry.watchdog._LINE_EACH", 0)
    stalls: list[None] = []
    with watching(lambda: stalls.append(None)):
        # On a busy machine the start of the thread is a stall, too, or one is noticed before the loop below begins.
        # Each is over when the loop runs again, and the next one is noticed here.
        for _ in range(30):
            await anyio.sleep(0.1)
            lines, until = len(caplog.messages), time.monotonic() + 1
            records = caplog.records
            while len(records) == lines and time.monotonic() < until:  # no frame but this one
                pass
            if f"{__name__} line " in caplog.text:
                break
    assert stalls
    assert f"{__name__} line " in caplog.text
