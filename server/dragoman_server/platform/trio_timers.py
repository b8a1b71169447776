"""Timers for trio: one task watches all of an event loop's. See `timers`, which has those of asyncio."""

import logging
import math
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from itertools import count

import trio

_log = logging.getLogger("dragoman.errors")


class _Timer:
    __slots__ = ("call",)

    def __init__(self, call: Callable[[], object]) -> None:
        self.call: Callable[[], object] | None = call

    def cancel(self) -> None:
        self.call = None


class TrioTimers:
    """The timers of one event loop."""

    def __init__(self) -> None:
        # By time, then by number. The cancelled ones are left out when it has twice as many as after the last time.
        self._heap: list[tuple[float, int, _Timer]] = []
        self._numbers = count()
        self._kept = 0
        self._sleep = trio.CancelScope()

    def call_at(self, time: float, call: Callable[[], object]) -> _Timer:
        if len(self._heap) >= 2 * self._kept + 64:
            self._heap = [entry for entry in self._heap if entry[2].call is not None]
            self._kept = len(self._heap)
            heapify(self._heap)
        timer = _Timer(call)
        heappush(self._heap, (time, next(self._numbers), timer))
        if time < self._sleep.deadline:
            self._sleep.deadline = time
        return timer

    async def run(self) -> None:
        while True:
            with self._sleep:
                await trio.sleep_forever()
            now = trio.current_time()
            while self._heap and self._heap[0][0] <= now:
                timer = heappop(self._heap)[2]
                call, timer.call = timer.call, None
                if call is not None:
                    try:
                        call()
                    except Exception:  # it must not end the others, and the event loop with them
                        _log.exception("a timer failed")
                    del call  # it may refer to a request
            self._sleep = trio.CancelScope(deadline=self._heap[0][0] if self._heap else math.inf)


_TIMERS = trio.lowlevel.RunVar[TrioTimers]("dragoman timers")


def timers_of_loop() -> TrioTimers:
    """Return those of the running event loop. Their task is in trio's own task group, and ends with the event loop."""
    try:
        return _TIMERS.get()
    except LookupError:
        timers = TrioTimers()
        _TIMERS.set(timers)
        trio.lowlevel.spawn_system_task(timers.run)
        return timers
