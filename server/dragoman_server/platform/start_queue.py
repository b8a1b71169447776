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


class StartTurn(Flag):
    """The turn of a task, set when it may begin."""

    __slots__ = ("connection",)

    def __init__(self, connection: object, changes: Changes | None) -> None:
        super().__init__(changes)
        self.connection = connection


class StartQueue:
    """The order in which tasks begin, each with the turn that `enter` has returned for it.

    A task that begins makes room for the next one, which is woken then and so runs in the next turn of the event loop.
    Connections take turns, so that the many requests of one do not delay the next one of another.
    """

    __slots__ = ("_called", "_waiting")

    def __init__(self) -> None:
        self._called = 0  # they may begin, and have not yet
        self._waiting: OrderedDict[object, dict[StartTurn, None]] = OrderedDict()  # by connection

    def enter(self, connection: object, changes: Changes | None = None) -> StartTurn | None:
        """Return what a task has to wait for before it begins, None if it may begin at once. begin() has to follow.

        changes: in which its turn is noted, if it waits for others there, too.
        """
        if self._called < MANY:
            self._called += 1
            return None
        turn = StartTurn(connection, changes)
        self._waiting.setdefault(connection, {})[turn] = None
        return turn

    async def wait(self, turn: StartTurn) -> None:
        """Wait until the task may begin."""
        if turn.is_set:  # in the turn of the event loop that runs now
            await anyio.lowlevel.checkpoint()
        else:
            await turn.wait()

    def begin(self, turn: StartTurn | None) -> None:
        """Note that the task begins, or that it never will, because it was cancelled."""
        if turn is not None and not turn.is_set:
            self._remove(turn)
        elif self._waiting:
            connection, turns = next(iter(self._waiting.items()))
            following = next(iter(turns))
            self._waiting.move_to_end(connection)
            self._remove(following)
            following.set()
        else:
            self._called -= 1

    def _remove(self, turn: StartTurn) -> None:
        turns = self._waiting[turn.connection]
        del turns[turn]
        if not turns:
            del self._waiting[turn.connection]
