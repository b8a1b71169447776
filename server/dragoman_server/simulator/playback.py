"""Plays the pieces of a reply at their times."""

from collections.abc import Iterator

import anyio
import anyio.lowlevel

from dragoman_server.simulator.reply import Piece
from dragoman_server.upstream.client import UpstreamBroken, UpstreamTimeout, UpstreamTimeoutPhase

# What one read of a socket gives at most.
READ_BYTES = 64 * 1024

WHERE = "the simulator"


class Playback:
    """The body of one reply, as a connection would give it. Made when the head is sent: times count from there.

    read_s: the longest silence that the reader takes; None waits for ever.
    """

    __slots__ = ("_begun", "_broken", "_next", "_pieces", "_read_s", "ended")

    def __init__(self, pieces: Iterator[Piece], read_s: float | None = None) -> None:
        self._pieces = pieces
        self._next = next(pieces, None)
        self._begun = anyio.current_time()
        self._broken = False
        self._read_s = read_s
        self.ended = False  # the reader has seen the end, good or bad

    async def receive(self) -> bytes:
        """What is due by now, and if that is nothing, what is due next; b"" at the end.

        Raises UpstreamBroken where the script breaks the connection, UpstreamTimeout after `read_s`.
        """
        await anyio.lowlevel.checkpoint()
        first = self._next
        if self._broken:
            self.ended = True
            raise UpstreamBroken(f"{WHERE}: the connection broke inside the body, as the model's script says")
        if first is None:
            self.ended = True
            return b""
        await self._until(self._begun + first.due_s)
        now = max(anyio.current_time(), self._begun + first.due_s)
        data: list[bytes] = []
        size = 0
        while (piece := self._next) is not None and self._begun + piece.due_s <= now and size < READ_BYTES:
            data.append(piece.data)
            size += len(piece.data)
            self._broken = piece.breaks
            self._next = next(self._pieces, None)
        return b"".join(data)

    async def _until(self, due: float) -> None:
        now = anyio.current_time()
        if self._read_s is not None and due - now > self._read_s:
            await anyio.sleep(self._read_s)
            raise UpstreamTimeout(f"{WHERE}: nothing came for {self._read_s:g} s", UpstreamTimeoutPhase.READ)
        if due > now:
            await anyio.sleep_until(due)
