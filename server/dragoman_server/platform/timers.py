"""Call functions at their times, in one task for all of them.

A cancel scope with a deadline takes a KiB on asyncio, and a task that waits in it four more.
"""

import heapq
import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import count

import anyio

from dragoman_server.platform.changes import Changes
from dragoman_server.platform.clock import event_loop_clock
from dragoman_server.platform.task_group import BackgroundTaskGroup


class Timers(BackgroundTaskGroup):
    """Functions and when to call them, in seconds of the event loop's clock. They are called inside of running()."""

    def __init__(self) -> None:
        self._calls: dict[int, Callable[[], object]] = {}
        self._times: list[tuple[float, int]] = []  # a heap, also of those that were cancelled
        self._numbers = count()
        self._changes = Changes()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with super().running():
            assert self._tasks is not None
            self._tasks.start_soon(self._run)
            yield

    def call_at(self, time: float, call: Callable[[], object]) -> int:
        """Call a function at this time. It may not wait, nor raise. Return a number for cancel()."""
        number = next(self._numbers)
        self._calls[number] = call
        heapq.heappush(self._times, (time, number))
        if self._times[0][1] == number:
            self._changes.note()
        return number

    def cancel(self, number: int) -> None:
        """Do not call it, if it was not called yet."""
        self._calls.pop(number, None)

    async def _run(self) -> None:
        time = event_loop_clock()
        while True:
            while self._times and self._times[0][0] <= time():
                call = self._calls.pop(heapq.heappop(self._times)[1], None)
                if call is not None:
                    call()
                del call  # it may refer to a request
            seconds = self._times[0][0] - time() if self._times else math.inf
            with anyio.move_on_after(seconds):
                await self._changes.wait()
