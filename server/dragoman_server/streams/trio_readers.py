"""Read sockets where they become readable, for all tasks of an event loop on trio, as asyncio does.

A task that waits for its own socket takes a turn of trio's scheduler for each read, which resumes each coroutine above
the wait: twenty for an event of a stream. Trio has no callbacks for sockets. But a set of sockets can itself be waited
for if it is epoll's, and an instrument is called after each wait. So ours is in trio's set, and takes no task.
"""

import select
from collections.abc import Callable

import trio

# Sockets that are read before tasks run.
_MANY = 64


class TrioReaders(trio.abc.Instrument):
    """The sockets of one event loop, each with the function that reads it without waiting, and raises nothing."""

    def __init__(self, trio_epoll: select.epoll) -> None:
        self._ready = select.epoll()
        self._reads: dict[int, Callable[[], None]] = {}
        trio_epoll.register(self._ready, select.EPOLLIN)

    def add(self, descriptor: int, read: Callable[[], None]) -> None:
        self._ready.register(descriptor, select.EPOLLIN)
        self._reads[descriptor] = read

    def remove(self, descriptor: int) -> None:
        """Do not call it any more. Before the socket is closed."""
        if self._reads.pop(descriptor, None) is not None:
            self._ready.unregister(descriptor)

    # Called by trio.

    def after_io_wait(self, timeout: float) -> None:
        find = self._reads.get
        try:
            # Once for each wait: to look again takes as long as it saves.
            for descriptor, _ in self._ready.poll(0, _MANY):
                find(descriptor, _nothing)()
        except BaseException as error:  # trio would only log it and go on, with nothing read any more
            trio.lowlevel.remove_instrument(self)
            trio.lowlevel.spawn_system_task(_end_event_loop, error)

    def after_run(self) -> None:
        self._ready.close()


def _nothing() -> None:
    """Stands for the read of a socket that another one has closed."""


async def _end_event_loop(error: BaseException) -> None:
    raise error


_READERS = trio.lowlevel.RunVar[TrioReaders | None]("dragoman readers")


def readers_of_loop() -> TrioReaders | None:
    """Return those of the running event loop, which end with it. None where trio does not use epoll."""
    try:
        return _READERS.get()
    except LookupError:
        readers = None
        try:
            # Only kqueue has a public name: trio.lowlevel.current_kqueue().
            readers = TrioReaders(trio.lowlevel.current_task()._runner.io_manager._epoll)
        except AttributeError:
            pass
        else:
            trio.lowlevel.add_instrument(readers)
        _READERS.set(readers)
        return readers
