"""Call functions at their times. Of all timers of an event loop, one waits, for the earliest time.

A timer of uvloop takes 0.6 KiB, one of these 0.2. A cancel scope with a deadline takes a KiB on asyncio and 30 us on
trio, and a task that waits in it four KiB more.
"""

import logging
import math
import threading
from abc import ABC, abstractmethod
from asyncio import AbstractEventLoop, TimerHandle
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context
from heapq import heapify, heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, TypeAlias

import anyio

from dragoman_server.platform.changes import loop_of_task

if TYPE_CHECKING:
    from trio.lowlevel import TrioToken

_log = logging.getLogger("dragoman.errors")

# Cancelled timers that are kept until their time.
_MANY = 64

# A process that was stopped comes to its timers before it sees the bytes that have arrived meanwhile, because
# epoll_wait() ends with EINTR then (signal(7)). So timers that are later than this let the event loop read first.
_LATE_S = 0.1
_A_PASS_S = 0.001


class Timer:
    """A function that waits for its time."""

    __slots__ = ("_timers", "call")

    def __init__(self, timers: "Timers", call: Callable[[], object]) -> None:
        self._timers = timers
        self.call: Callable[[], object] | None = call

    def cancel(self) -> None:
        """Do not call it, if it was not called yet."""
        if self.call is not None:
            self.call = None
            self._timers.forget_one()


# Call a function at this time of event_loop_clock(). It may not wait, nor raise.
CallAt: TypeAlias = Callable[[float, Callable[[], object]], Timer]


class Timers(ABC):
    """The timers of one event loop."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Timer]] = []  # by time, then by number
        self._numbers = count()
        self._cancelled = 0  # so many of them
        self._next = math.inf  # the earliest time

    def call_at(self, time: float, call: Callable[[], object]) -> Timer:
        timer = Timer(self, call)
        heappush(self._heap, (time, next(self._numbers), timer))
        if time < self._next:
            self._next = time
            self._wait()
        return timer

    def forget_one(self) -> None:
        """Note that one was cancelled. If most are, leave them out: they would keep the memory around them."""
        self._cancelled += 1
        if self._cancelled > _MANY and 2 * self._cancelled > len(self._heap):
            self._heap = [entry for entry in self._heap if entry[2].call is not None]
            self._cancelled = 0
            heapify(self._heap)

    @abstractmethod
    def _wait(self) -> None:
        """Wait for the earliest time, and for no later one."""

    def _call_due(self, now: float) -> None:
        """Call those whose time has come."""
        while self._heap and self._heap[0][0] <= now:
            timer = heappop(self._heap)[2]
            call, timer.call = timer.call, None
            if call is None:
                self._cancelled -= 1
            else:
                try:
                    call()
                except Exception:  # it must not end the others, and the event loop with them
                    _log.exception("a timer failed")
                del call  # it may refer to a request
        self._next = self._heap[0][0] if self._heap else math.inf


class AsyncioTimers(Timers):
    """Timers on asyncio or uvloop."""

    def __init__(self, loop: AbstractEventLoop) -> None:
        super().__init__()
        self.loop = loop
        self._handle: TimerHandle | None = None
        self._has_waited = False  # because the timers are late
        # In it anyio knows that it is on asyncio: there is no task to ask for that.
        self._context = Context()
        with suppress(ImportError):  # then anyio knows it anyway
            import sniffio

            self._context.run(sniffio.current_async_library_cvar.set, "asyncio")

    def _wait(self) -> None:
        self._wait_until(self._next)

    def _wait_until(self, time: float) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._handle = self.loop.call_at(time, self._run, context=self._context)

    def _run(self) -> None:
        now = self.loop.time()
        self._has_waited = not self._has_waited and now - self._next > _LATE_S
        if not self._has_waited:
            self._call_due(now)
        if self._next < math.inf:
            # uvloop rounds to milliseconds. A timer that is early would wait for none until its time.
            self._wait_until(max(self._next, now + _A_PASS_S))


class TrioTimers(Timers):
    """Timers on trio, which has none: a task waits. It is in trio's own task group, and ends with the event loop."""

    def __init__(self, token: "TrioToken") -> None:
        super().__init__()
        self.token = token
        self._sleep = anyio.CancelScope()

    def _wait(self) -> None:
        self._sleep.deadline = self._next

    async def run(self) -> None:
        while True:
            with self._sleep:
                await anyio.sleep_forever()
            if anyio.current_time() - self._next > _LATE_S:
                await anyio.sleep(_A_PASS_S)
            self._call_due(anyio.current_time())
            self._sleep = anyio.CancelScope(deadline=self._next)


class _OfThread(threading.local):
    """Those of its last event loop. With trio as the guest of asyncio there are both."""

    on_asyncio: AsyncioTimers | None = None
    on_trio: TrioTimers | None = None


_of_thread = _OfThread()


def event_loop_timers() -> CallAt:
    """Return how to call functions later in the event loop of the running task."""
    loop = loop_of_task()
    if loop is not None:
        timers = _of_thread.on_asyncio
        if timers is None or timers.loop is not loop:
            timers = _of_thread.on_asyncio = AsyncioTimers(loop)
        return timers.call_at
    import trio  # not at the top, because asyncio does not need it

    token, on_trio = trio.lowlevel.current_trio_token(), _of_thread.on_trio
    if on_trio is None or on_trio.token is not token:
        on_trio = _of_thread.on_trio = TrioTimers(token)
        trio.lowlevel.spawn_system_task(on_trio.run)
    return on_trio.call_at
