"""Wait for the next change of something, or for one's turn, at no cost where no task waits."""

from collections.abc import Awaitable

import anyio


class Changes:
    """The changes of one object. Wait in a loop that looks at what has changed."""

    __slots__ = ("_next",)

    def __init__(self) -> None:
        self._next: anyio.Event | None = None

    def wait(self) -> Awaitable[None]:
        """Return an awaitable for the next change. Await it immediately."""
        if self._next is None:
            self._next = anyio.Event()
        return self._next.wait()

    def note(self) -> None:
        if self._next is not None:
            self._next.set()
            self._next = None


class Lock:
    """A lock of a few tasks, in no order. An anyio.Lock is a queue of 0.8 KiB, and each open stream would hold two.

    Attributes:
        locked: One of the tasks has it.
    """

    __slots__ = ("_changes", "locked")

    def __init__(self) -> None:
        self.locked = False
        self._changes = Changes()

    async def __aenter__(self) -> None:
        while self.locked:
            await self._changes.wait()
        self.locked = True

    async def __aexit__(self, *exc: object) -> None:
        self.locked = False
        self._changes.note()
