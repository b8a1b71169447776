"""Read sockets where they become readable, in one task for all of an event loop on trio, as asyncio does.

A task that waits for its own socket takes a turn of trio's scheduler for each read, which resumes each coroutine above
the wait: twenty for an event of a stream. Only a set of sockets that can itself be waited for allows this, which is
epoll's.
"""

import select
from collections.abc import Callable

import trio

# Sockets that are read before other tasks run.
_MANY = 64


class TrioReaders:
    """The sockets of one event loop, each with the function that reads it without waiting, and raises nothing."""

    def __init__(self) -> None:
        self._ready = select.epoll()
        self._reads: dict[int, Callable[[], None]] = {}

    def add(self, descriptor: int, read: Callable[[], None]) -> None:
        self._ready.register(descriptor, select.EPOLLIN)
        self._reads[descriptor] = read

    def remove(self, descriptor: int) -> None:
        """Do not call it any more. Before the socket is closed."""
        if self._reads.pop(descriptor, None) is not None:
            self._ready.unregister(descriptor)

    async def run(self) -> None:
        with self._ready:
            poll, find, ready = self._ready.poll, self._reads.get, self._ready.fileno()
            while True:
                await trio.lowlevel.wait_readable(ready)
                # Once for each wait: to look again takes as long as it saves.
                for descriptor, _ in poll(0, _MANY):
                    find(descriptor, _nothing)()


def _nothing() -> None:
    """Stands for the read of a socket that another one has closed."""


_READERS = trio.lowlevel.RunVar[TrioReaders]("dragoman readers")


def readers_of_loop() -> TrioReaders | None:
    """Return those of the running event loop, None where there is no epoll. Their task ends with the event loop."""
    try:
        return _READERS.get()
    except LookupError:
        if not hasattr(select, "epoll"):
            return None
        readers = TrioReaders()
        _READERS.set(readers)
        trio.lowlevel.spawn_system_task(readers.run)
        return readers
