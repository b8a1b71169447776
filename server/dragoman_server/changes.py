"""Wait for the next change of something, at no cost where no task waits."""

import anyio


class Changes:
    """The changes of one object. Wait in a loop that looks at what has changed."""

    __slots__ = ("_next",)

    def __init__(self) -> None:
        self._next: anyio.Event | None = None

    async def wait(self) -> None:
        if self._next is None:
            self._next = anyio.Event()
        await self._next.wait()

    def note(self) -> None:
        if self._next is not None:
            self._next.set()
            self._next = None
