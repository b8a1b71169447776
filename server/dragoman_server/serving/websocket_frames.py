"""The frames of a WebSocket as a server reads and writes them (RFC 6455, 5; RFC 7692), without I/O.

wsproto, with which tests compare this, has no limits where they are needed: it inflates a whole read in one call, which
is a thousand times as much, keeps what follows a final block of DEFLATE, and does not count frames.
"""

import codecs
import zlib
from collections.abc import Iterator
from io import BytesIO

import msgspec

from dragoman_server.serving.frame_rate import CONTROL_FRAMES, SMALL_DATA, TokenBucket

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
_OPCODES = frozenset({CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG})

# Close codes (RFC 6455, 7.4.1, and IANA's registry of them).
PROTOCOL_ERROR = 1002
NO_STATUS = 1005
ABNORMAL = 1006
INVALID_PAYLOAD = 1007
POLICY_VIOLATION = 1008
TOO_BIG = 1009
INTERNAL_ERROR = 1011
SERVICE_RESTART = 1012
TRY_AGAIN_LATER = 1013

_FIN, _COMPRESSED, _RESERVED, _MASKED = 0x80, 0x40, 0x30, 0x80
# "All control frames MUST have a payload length of 125 bytes or less" -- RFC 6455, 5.5
_MAX_CONTROL = 125
_MAX_REASON = _MAX_CONTROL - 2

# A longer message is sent in frames of this size, so that pings and pongs can go in between. Clients limit frames and
# messages alike, often to 1 MiB; only who makes the messages can keep them small.
MAX_FRAME = 1024 * 1024

# Bytes that are inflated before other tasks run.
_PIECE = 64 * 1024
# "the receiver appends 4 octets of 0x00 0x00 0xff 0xff to the tail end of the payload" -- RFC 7692, 7.2.2
_DEFLATE_TAIL = b"\x00\x00\xff\xff"


class FrameError(Exception):
    """The WebSocket has to be closed because of what the client has sent.

    Attributes:
        code, reason: of the Close frame.
    """

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


class DataMessage(msgspec.Struct, frozen=True):
    """A whole message. opcode: TEXT or BINARY. content: in UTF-8 if it is a text."""

    opcode: int
    content: bytes


class Ping(msgspec.Struct, frozen=True):
    """A Ping, which wants a Pong with the same payload."""

    payload: bytes


class Close(msgspec.Struct, frozen=True):
    """A Close. code: 1005 if the frame has none."""

    code: int
    reason: str


class _Frame(msgspec.Struct):
    """A frame whose head was read. left: bytes of its payload that are missing."""

    opcode: int
    fin: bool
    left: int
    mask: bytes


class WebSocketReader:
    """Reads the frames of one client.

    Args:
        max_bytes: of a message, as it comes and inflated.
        inflates: permessage-deflate without context takeover was negotiated.
        now: see receive().
    """

    __slots__ = ("_buffer", "_control", "_frame", "_inflates", "_max_bytes", "_message", "_small")

    def __init__(self, max_bytes: int, *, inflates: bool, now: float) -> None:
        self._max_bytes = max_bytes
        self._inflates = inflates
        self._buffer = bytearray()
        self._frame: _Frame | None = None
        self._message: _IncompleteMessage | None = None
        self._control = TokenBucket(CONTROL_FRAMES, now)
        self._small = TokenBucket(CONTROL_FRAMES, now)  # fragments, see SMALL_DATA

    def receive(self, data: bytes, now: float) -> Iterator[DataMessage | Ping | Close | None]:
        """Yield what the bytes complete, and None where other tasks may run, because much was inflated.

        now: seconds of a monotonic clock. Nothing is to be read after a Close. Raises FrameError.
        """
        buffer = self._buffer
        buffer += data
        while True:
            frame = self._frame = self._frame or self._read_head(now)
            if frame is None:
                return
            if frame.opcode < CLOSE:
                message = self._message
                assert message is not None  # _read_head() has begun it
                for _ in message.add(self._take(frame)):
                    yield None
                if frame.left:
                    return
                if frame.fin:
                    for _ in message.end():
                        yield None
                    self._message = None
                    yield message.message()
            elif len(buffer) < frame.left:
                return
            else:
                payload = self._take(frame)
                if frame.opcode == PING:
                    yield Ping(payload)
                elif frame.opcode == CLOSE:
                    yield _read_close(payload)
            self._frame = None

    def _read_head(self, now: float) -> _Frame | None:
        """Remove a head from the buffer; None if it is not complete."""
        buffer = self._buffer
        if len(buffer) < 2:
            return None
        first, second = buffer[0], buffer[1]
        opcode, length = first & 0x0F, second & 0x7F
        self._check(first, second)
        extended = {126: 2, 127: 8}.get(length, 0)
        if len(buffer) < 2 + extended + 4:
            return None
        if extended:
            length = int.from_bytes(buffer[2 : 2 + extended])
            if length < (126 if extended == 2 else 2**16) or length >= 2**63:
                raise FrameError(PROTOCOL_ERROR, "a length is not in its shortest form")
        mask = bytes(buffer[2 + extended : 6 + extended])
        del buffer[: 6 + extended]
        frame = _Frame(opcode, first >= _FIN, length, mask)
        if opcode >= CLOSE:
            if not self._control.take(now):
                raise FrameError(POLICY_VIOLATION, "too many control frames")
            return frame
        if length < SMALL_DATA and not frame.fin and not self._small.take(now):
            raise FrameError(POLICY_VIOLATION, "too many small fragments")
        if self._message is None:
            self._message = _IncompleteMessage(opcode, first & _COMPRESSED, self._max_bytes)
        self._message.expect(length)
        return frame

    def _check(self, first: int, second: int) -> None:
        """Check the first two bytes of a head."""
        opcode = first & 0x0F
        if opcode not in _OPCODES:
            raise FrameError(PROTOCOL_ERROR, "an opcode is unknown")
        may_be_compressed = self._inflates and opcode in (TEXT, BINARY)
        if first & _RESERVED or (first & _COMPRESSED and not may_be_compressed):
            raise FrameError(PROTOCOL_ERROR, "a reserved bit is set")
        if second < _MASKED:
            raise FrameError(PROTOCOL_ERROR, "a frame is not masked")
        if opcode >= CLOSE:
            if first < _FIN or second & 0x7F > _MAX_CONTROL:
                raise FrameError(PROTOCOL_ERROR, "a control frame is fragmented or too long")
        elif (opcode == CONTINUATION) != (self._message is not None):
            raise FrameError(PROTOCOL_ERROR, "a continuation was expected, or none")

    def _take(self, frame: _Frame) -> bytes:
        """Remove the received part of a frame's payload from the buffer, and unmask it."""
        data = bytes(memoryview(self._buffer)[: frame.left])
        size = len(data)
        del self._buffer[:size]
        frame.left -= size
        mask = (frame.mask * (size // 4 + 1))[:size]
        turn = size % 4
        frame.mask = frame.mask[turn:] + frame.mask[:turn]
        return (int.from_bytes(data) ^ int.from_bytes(mask)).to_bytes(size)


class _IncompleteMessage:
    """The part of a message that has come."""

    __slots__ = ("_content", "_decoder", "_expected", "_inflater", "_max_bytes", "_opcode", "_size")

    def __init__(self, opcode: int, is_compressed: int, max_bytes: int) -> None:
        self._opcode = opcode
        self._content = BytesIO()
        # Only to check it: to make a str of 64 MiB takes from a tenth of a second to a second, in one step.
        self._decoder = codecs.getincrementaldecoder("utf-8")() if opcode == TEXT else None
        self._inflater = zlib.decompressobj(-zlib.MAX_WBITS) if is_compressed else None
        self._max_bytes = max_bytes
        self._expected = 0  # bytes of the frames so far
        self._size = 0  # of the content, inflated

    def expect(self, size: int) -> None:
        """Note the size of the next frame, before it has come."""
        self._expected += size
        if self._expected > self._max_bytes:
            raise self._too_big()

    def add(self, data: bytes) -> Iterator[None]:
        if self._inflater is None:
            self._add(data)
        else:
            yield from self._inflate(data)

    def end(self) -> Iterator[None]:
        if self._inflater is not None:
            yield from self._inflate(_DEFLATE_TAIL)
        self._add(b"", final=True)

    def message(self) -> DataMessage:
        return DataMessage(self._opcode, self._content.getvalue())

    def _inflate(self, data: bytes) -> Iterator[None]:
        assert self._inflater is not None
        while data:
            try:
                piece = self._inflater.decompress(data, _PIECE)
            except zlib.error:
                raise FrameError(INVALID_PAYLOAD, "a message cannot be inflated") from None
            self._add(piece)
            data = self._inflater.unconsumed_tail
            if self._inflater.eof:
                # Blocks may follow a final one (RFC 7692, 7.2.3.5).
                data = self._inflater.unused_data
                self._inflater = zlib.decompressobj(-zlib.MAX_WBITS)
            yield

    def _add(self, data: bytes, *, final: bool = False) -> None:
        self._size += len(data)
        if self._size > self._max_bytes:
            raise self._too_big()
        try:
            if self._decoder is not None:
                self._decoder.decode(data, final)
        except UnicodeDecodeError:
            raise FrameError(INVALID_PAYLOAD, "a text is not UTF-8") from None
        self._content.write(data)

    def _too_big(self) -> FrameError:
        return FrameError(TOO_BIG, f"a message has more than {self._max_bytes} bytes")


def _read_close(payload: bytes) -> Close:
    if not payload:
        return Close(NO_STATUS, "")
    code = int.from_bytes(payload[:2])
    if len(payload) == 1 or not is_close_code(code):
        raise FrameError(PROTOCOL_ERROR, "a close code is invalid")
    try:
        return Close(code, payload[2:].decode())
    except UnicodeDecodeError:
        raise FrameError(INVALID_PAYLOAD, "the reason of a Close is not UTF-8") from None


def is_close_code(code: int) -> bool:
    """True if a Close frame may have this code."""
    return 1000 <= code <= 1003 or 1007 <= code <= 1014 or 3000 <= code <= 4999


def control_frame(opcode: int, payload: bytes = b"") -> bytes:
    return bytes([_FIN | opcode, len(payload)]) + payload


def close_frame(code: int, reason: str = "") -> bytes:
    """Return a Close, without a code if it is 1005. The reason is cut where it is too long."""
    if code == NO_STATUS:
        return control_frame(CLOSE)
    if not is_close_code(code):
        raise ValueError(f"{code} is not a code of a Close frame")
    cut = reason.encode()[:_MAX_REASON].decode(errors="ignore")
    return control_frame(CLOSE, code.to_bytes(2) + cut.encode())


def data_frames(message: DataMessage) -> Iterator[bytes]:
    """Return the frames of a message, of at most MAX_FRAME bytes each."""
    opcode, content = message.opcode, message.content
    for start in range(0, len(content) or 1, MAX_FRAME):
        part = content[start : start + MAX_FRAME]
        size = len(part)
        fin = _FIN if start + size == len(content) else 0
        if size <= _MAX_CONTROL:
            head = bytes([fin | opcode, size])
        elif size < 2**16:
            head = bytes([fin | opcode, 126]) + size.to_bytes(2)
        else:
            head = bytes([fin | opcode, 127]) + size.to_bytes(8)
        yield head + part
        opcode = CONTINUATION
