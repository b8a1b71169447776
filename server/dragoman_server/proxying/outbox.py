"""The bytes of one stream on their way to its client.

The upstream's reader puts them in, and so do heartbeats, which never waits, so the order is the one in which they were
taken from the translator. Once the response has begun, a piece goes to the connection directly if that takes it without
waiting. A writer sends the others: at the beginning and at the end the reader itself, in between a task that is there
only while it has something to send, because an open stream would hold four KiB for it. Pieces that come meanwhile
gather, and go out together; a reader that is ahead of a slow client waits for room, and so pauses its upstream.
"""

import msgspec

from dragoman_server.platform.changes import Changes
from dragoman_server.proxying.client_request import ResponseChannel
from dragoman_server.streams.byte_stream import WriteNow

# A reader waits while more than this is unsent. One piece is what one read of the upstream gave, which is one event of
# a slow upstream, and many of a fast one.
_MAX_PIECES = 4
_MAX_BYTES = 64 * 1024


class Chunk(msgspec.Struct, frozen=True):
    """Bytes of the client's stream.

    Attributes:
        last: Nothing follows.
    """

    data: bytes
    last: bool


class Outbox:
    """The pieces to send to one client. Only room() and sent() wait.

    Where wants_writer() is true, the caller starts the writer, which sends what take() returns until it is None.

    Args:
        channel: whose write_now is used between the first and the last chunk.

    Attributes:
        closed: Nothing more is added.
    """

    __slots__ = (
        *("_changes", "_channel", "_complete", "_pieces", "_size", "_write_now", "_writing"),
        "closed",
    )

    def __init__(self, channel: ResponseChannel) -> None:
        self._channel = channel
        # Once the response has begun, while there is no writer.
        self._write_now: WriteNow | None = None
        self._pieces: list[bytes] = []
        self._size = 0
        self.closed = self._complete = False
        self._writing = False  # there is a writer, or somebody is about to be it
        self._changes = Changes()

    @property
    def unsent(self) -> bool:
        """True if something is here, or with the writer."""
        return self._writing or bool(self._pieces)

    def put(self, data: bytes) -> bool:
        """Add a piece of the stream. Return true if the client's connection has it already."""
        if self._write_now is not None and not self._pieces and self._write_now(data):
            return True
        self._pieces.append(data)
        self._size += len(data)
        return False

    def end(self, last: bytes) -> None:
        """Add the last piece."""
        self._pieces.append(last)
        self._complete = self.closed = True

    def close(self) -> None:
        """Note that nothing more comes."""
        self.closed = True

    @property
    def has_room(self) -> bool:
        """False if a reader has to wait, or to call wants_writer()."""
        pieces = len(self._pieces)
        return not pieces or (self._writing and pieces < _MAX_PIECES and self._size <= _MAX_BYTES)

    async def room(self) -> None:
        """Wait until the writer has taken enough."""
        while not self.has_room:
            await self._changes.wait()

    async def sent(self) -> None:
        """Wait until the writer has sent everything."""
        while self.unsent:
            await self._changes.wait()

    def wants_writer(self) -> bool:
        """True if there is something to send and no writer, which then has to follow."""
        if self._writing or not self._pieces:
            return False
        self._writing = True
        self._write_now = None
        return True

    def take(self) -> Chunk | None:
        """Return the next chunk to send, None if there is none: then there is no writer any more."""
        self._changes.note()
        if not self._pieces:
            self._writing = False
            self._write_now = self._channel.write_now
            return None
        data = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self._pieces.clear()
        self._size = 0
        return Chunk(data, self._complete)
