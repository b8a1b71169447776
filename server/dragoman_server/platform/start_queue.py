"""Let only a few tasks begin in each turn of the event loop.

An event loop works breadth first: of a burst of requests it would translate and send all before it reads the first
answer, or an event of another stream.
"""

from collections import OrderedDict

import anyio.lowlevel

from dragoman_server.platform.changes import Changes, Flag

# Tasks that begin in one turn. With more, all responses of a burst begin later, but the last few; with two, a busy
# server has so many turns that a request takes three per cent more.
MANY = 4


class StartQueue:
    """The order in which tasks begin, each with the turn that `enter` has returned for it.

    A task that begins makes room for the next one, which is woken then and so runs in the next turn of the event loop.
    """

    __slots__ = ("_called", "_waiting")

    def __init__(self) -> None:
        self._called = 0  # they may begin, and have not yet
        self._waiting: OrderedDict[Flag, None] = OrderedDict()

    def enter(self, changes: Changes) -> Flag | None:
        """Return what a task has to wait for before it begins, None if it may begin at once. begin() has to follow.

        changes: in which its turn is noted.
        """
        if self._called < MANY:
            self._called += 1
            return None
        turn = Flag(changes)
        self._waiting[turn] = None
        return turn

    async def wait(self, turn: Flag) -> None:
        """Wait until the task may begin."""
        if turn.is_set:  # in the turn of the event loop that runs now
            await anyio.lowlevel.checkpoint()
        else:
            await turn.wait()

    def begin(self, turn: Flag | None) -> None:
        """Note that the task begins, or that it never will, because it was cancelled."""
        if turn is not None and not turn.is_set:
            del self._waiting[turn]
        elif self._waiting:
            self._waiting.popitem(last=False)[0].set()
        else:
            self._called -= 1
