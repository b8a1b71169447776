"""A framing that no protocol has: length, name of the event, and data of each message; an empty one at the end."""

from collections.abc import Iterator

from dragoman import RemoteProtocolError
from dragoman.codec import Framing
from dragoman.sse import Frame, SSEParser

END = bytes(4)


class LengthReader:
    """See dragoman.codec.FrameReader."""

    def __init__(self) -> None:
        self._held = bytearray()

    @property
    def held_bytes(self) -> int:
        return len(self._held)

    def receive_data(self, data: bytes) -> Iterator[Frame]:
        held = self._held
        held += data
        while len(held) >= 4 and len(held) >= 4 + (size := int.from_bytes(held[:4])):
            message = bytes(held[4 : 4 + size])
            del held[: 4 + size]
            name, colon, value = message.partition(b":")
            if not colon and size:
                raise RemoteProtocolError("a message without a name", status=502)
            if size:
                yield Frame(name, value)


class LengthWriter:
    """See dragoman.codec.FrameWriter."""

    def send(self, frame: Frame) -> bytes:
        message = frame.event + b":" + frame.data
        return len(message).to_bytes(4) + message

    def eof(self) -> bytes:
        return END


LENGTHS = Framing("application/x-lengths", LengthReader, LengthWriter)


def in_lengths(events: bytes) -> bytes:
    """Return a stream of server-sent events in the toy framing."""
    parser = SSEParser()
    frames = [*parser.receive_data(events), *parser.receive_eof()]
    return b"".join(map(LengthWriter().send, frames)) + END


def frames_in(stream: bytes) -> list[Frame]:
    """Return the frames of a whole stream in the toy framing."""
    reader = LengthReader()
    frames = list(reader.receive_data(stream))
    assert stream.endswith(END)
    assert not reader.held_bytes
    return frames
