"""Functions that one task calls at their times. Time is virtual."""

import anyio
import pytest
from virtual_time import VIRTUAL_BACKENDS

from dragoman_server.platform.timers import Timers

pytestmark = [pytest.mark.anyio, pytest.mark.backends(*VIRTUAL_BACKENDS)]


async def test_functions_are_called_at_their_times() -> None:
    timers, begun, called = Timers(), anyio.current_time(), list[tuple[str, float]]()

    def note(name: str) -> None:
        called.append((name, round(anyio.current_time() - begun, 3)))
        if name == "second":
            timers.call_at(begun + 6, lambda: note("later"))

    timers.call_at(begun + 3, lambda: note("second"))
    cancelled = timers.call_at(begun + 2, lambda: note("cancelled"))
    async with timers.running():
        await anyio.sleep(1)
        timers.cancel(cancelled)
        timers.call_at(begun + 2, lambda: note("first"))  # before what the task waits for
        timers.call_at(begun, lambda: note("late"))
        timers.call_at(begun + 99, lambda: note("never"))
        await anyio.sleep(9)
    assert called == [("late", 1), ("first", 2), ("second", 3), ("later", 6)]
    timers.cancel(cancelled)
