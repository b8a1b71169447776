"""Time that passes only when everything waits, on both backends: an hour of silence takes no time to test.

Tests run on asyncio with such a clock (the fixture `anyio_backend` of conftest.py). Tests of task groups run on both
backends, `pytest.mark.backends(*VIRTUAL_BACKENDS)`. Tests with real sockets, threads or processes need real time,
because their clock would jump past: `pytest.mark.backends(*REAL_BACKENDS)`.
"""

import asyncio
import selectors
from typing import Any

import trio.testing

AnyioBackend = tuple[str, dict[str, Any]]

VIRTUAL_BACKENDS = ("asyncio", "trio")
REAL_BACKENDS = ("real-asyncio", "real-trio")
UVLOOP = "uvloop"


class _JumpSelector(selectors.DefaultSelector):
    """Instead of waiting, adds the wait to a clock."""

    jumped = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        events = super().select(None if timeout is None else 0)
        if not events and timeout is not None and timeout > 0:
            self.jumped += timeout
        return events


class JumpLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock starts at 0 and jumps to the next timer when nothing is ready."""

    def __init__(self) -> None:
        self._jumping = _JumpSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.jumped

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        # Python 3.12 and newer wait five minutes for the threads, which pass at once here. The vendors' SDKs use one.
        await super().shutdown_default_executor()


def backend(name: str) -> AnyioBackend:
    """Return the value of an `anyio_backend` fixture. Virtual time starts at 0 for each test."""
    match name:
        case "asyncio":
            return "asyncio", {"loop_factory": JumpLoop}
        case "trio":
            return "trio", {"clock": trio.testing.MockClock(autojump_threshold=0)}
        case "uvloop":
            return "asyncio", {"use_uvloop": True}
    return name.removeprefix("real-"), {}
