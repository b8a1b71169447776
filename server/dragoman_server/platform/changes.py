"""Wait for the next change of something, or for one's turn, at no cost where no task waits."""

import asyncio
from collections.abc import Awaitable, Callable, Generator
from functools import partial
from typing import Any, TypeAlias

# Waits that are kept, even if all were cancelled.
_MANY = 8


class TrioFuture:
    """What a future is to one task of trio, which waits for it once. An event takes twenty calls more."""

    __slots__ = ("_done", "_error", "_task")

    def __init__(self) -> None:
        self._done = False
        self._error: BaseException | None = None
        self._task: Any = None

    def done(self) -> bool:
        return self._done

    def set_result(self, result: None) -> None:
        import trio  # not at the top, because asyncio does not need it

        self._done = True
        if self._task is not None:
            trio.lowlevel.reschedule(self._task)

    def set_exception(self, error: BaseException) -> None:
        import outcome  # trio's
        import trio

        self._done = True
        if self._task is None:
            self._error = error
        else:
            trio.lowlevel.reschedule(self._task, outcome.Error(error))

    def __await__(self) -> Generator[Any, Any, None]:
        import trio

        if self._error is not None:
            raise self._error
        if self._done:
            return _no_wait()
        self._task = trio.lowlevel.current_task()
        # The iterator of trio's coroutine: a generator around it takes a quarter of a KiB in each open stream.
        return trio.lowlevel.wait_task_rescheduled(self.cancelled).__await__()  # noqa: ASYNC105

    def cancelled(self, raise_cancel: object) -> Any:
        """Do nothing when it is set, because its task is cancelled. What trio calls then."""
        import trio

        self._done, self._task = True, None
        return trio.lowlevel.Abort.SUCCEEDED


def _no_wait() -> Generator[Any, Any, None]:
    yield from ()


Future: TypeAlias = asyncio.Future[None] | TrioFuture


class Changes:
    """The changes of one object. Wait in a loop that looks at what has changed."""

    __slots__ = ("_futures",)

    def __init__(self) -> None:
        self._futures: list[Future] | None = None

    def wait(self, new_future: Callable[[], Future] | None = None) -> Awaitable[None]:
        """Return an awaitable for the next change. Await it immediately.

        new_future: from futures_of_task(), for who waits often: to find the event loop takes longer than the rest.
        """
        # An anyio.Event takes eighteen calls and a KiB on asyncio.
        future, waiting = (new_future or futures_of_task())(), self._futures or []
        count = len(waiting)
        if count >= _MANY and not count & (count - 1):  # seldom, so a wait costs the same
            waiting = [each for each in waiting if not each.done()]  # without those that were cancelled
        self._futures = waiting
        waiting.append(future)
        return future

    def note(self) -> None:
        if self._futures is None:
            return
        futures, self._futures = self._futures, None
        for future in futures:
            if not future.done():  # cancelled
                future.set_result(None)


class Flag:
    """An event, for what is asked much more often than awaited.

    Attributes:
        is_set: set() was called.
    """

    __slots__ = ("_changes", "is_set")

    def __init__(self, changes: Changes | None = None) -> None:
        """changes: what wakes those that wait, if others note changes there, too."""
        self.is_set = False
        self._changes = Changes() if changes is None else changes

    def set(self) -> None:
        self.is_set = True
        self._changes.note()

    async def wait(self) -> None:
        while not self.is_set:
            await self._changes.wait()


class Lock(Changes):
    """A lock of a few tasks, in no order. An anyio.Lock is a queue of 0.8 KiB, and each open stream would hold two.

    Attributes:
        locked: One of the tasks has it.
    """

    __slots__ = ("locked",)

    def __init__(self) -> None:
        super().__init__()
        self.locked = False

    async def __aenter__(self) -> None:
        while self.locked:
            await self.wait()
        self.locked = True

    async def __aexit__(self, *exc: object) -> None:
        self.locked = False
        self.note()


def futures_of_task() -> Callable[[], Future]:
    """Return what makes futures for the event loop of the running task."""
    loop = loop_of_task()
    return TrioFuture if loop is None else partial(asyncio.Future, loop=loop)


def loop_of_task() -> asyncio.AbstractEventLoop | None:
    """Return asyncio's loop of the running task, None for a task of trio, also where asyncio is the host of trio."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return None
    return None if asyncio.current_task(loop) is None else loop
