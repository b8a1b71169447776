"""Time that passes only when everything waits, on both backends: an hour of silence takes no time to test.

    @pytest.fixture(params=VIRTUAL_BACKENDS)
    def anyio_backend(request: pytest.FixtureRequest) -> AnyioBackend:
        return virtual_backend(request.param)

Not for tests with real sockets, threads or processes: their answers need real time, and the clock jumps past.
"""

import asyncio
import selectors
from typing import Any

import trio.testing

AnyioBackend = tuple[str, dict[str, Any]]

VIRTUAL_BACKENDS = ("asyncio", "trio")


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


def virtual_backend(name: str) -> AnyioBackend:
    """The value of an `anyio_backend` fixture. A fresh clock each time: it counts from 0."""
    if name == "asyncio":
        return "asyncio", {"loop_factory": JumpLoop}
    return "trio", {"clock": trio.testing.MockClock(autojump_threshold=0)}
