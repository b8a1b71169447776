"""The bodies of HTTP/1.1 messages, decoded without I/O: of requests from clients and of responses from upstreams.

Coded bytes go in, body bytes come out. All chunks that one call completes are joined into one `bytes`, so their number
does not matter to the consumer. The usual chunk, whole in one read, takes no further call.

The decoder of chunks is strict, because two readers that disagree about framing can take one peer's data for another's
headers: lines end only in CRLF, sizes are plain hex, and every line has a limit. h11 0.16 accepts bare LF behind
trailers, sizes of 80 bits, and anything in an extension, CR too. A decoder never raises. An error is kept in `error`,
and the valid bytes before it are returned, so the result does not depend on how the input was cut.
"""

import enum
import re
from abc import ABC, abstractmethod

from dragoman_server.streams.http1_head import FIELD_LINE

# Bytes of a size and its extensions. Servers send a few; signed uploads have about a hundred.
MAX_CHUNK_LINE = 1024
# Bytes of all trailer fields together, about as many as servers allow for a head.
MAX_TRAILERS = 16 * 1024

# "chunk-size = 1*HEXDIG", and recipients "MUST anticipate potentially large hexadecimal numerals"
# -- https://www.rfc-editor.org/rfc/rfc9112#section-7.1. Sixteen digits are 64 bits; some readers cut off more.
_SIZE = rb"([0-9A-Fa-f]{1,16})"
_BLANKS = rb"[ \t]{0,32}"
_EXTENSION = rb";[\t -~\x80-\xff]{0,%d}" % MAX_CHUNK_LINE
_SIZE_LINE = re.compile(rb"%b(?:%b%b)?\r\n" % (_SIZE, _BLANKS, _EXTENSION))
_PADDED_SIZE_LINE = re.compile(rb"%b%b(?:%b)?\r\n" % (_SIZE, _BLANKS, _EXTENSION))
_SIZE_LINE_START = re.compile(rb"%b%b(?:%b)?\r?" % (_SIZE, _BLANKS, _EXTENSION))
_TRAILER_LINE = re.compile(FIELD_LINE)
# Digits of a size that is taken without a pattern: 64 bits.
_MAX_DIGITS = 16
# Sizes that are kept by their digits.
_MAX_SIZES = 256
# Bytes of a read that is tried as one chunk. A larger one has many, and the try would copy all of it.
_SMALL_READ = 4 * 1024
_LINE_END = b"\r\n"
_CR = _LINE_END[0]  # as a number: `in` finds one four times as fast as a byte
_HEX_DIGITS = b"0123456789abcdefABCDEF"


class FramingError(Exception):
    """The peer's bytes are not HTTP/1.1 framing. The text names the rule and never quotes the bytes."""


class BodyDecoder(ABC):
    """Bytes in, body bytes out. It never raises: check `error` and `complete` after each call.

    Attributes:
        unused: The bytes that followed the body, which belong to no request.
    """

    __slots__ = ("complete", "error", "unused")

    def __init__(self) -> None:
        self.complete = False
        self.error: FramingError | None = None
        self.unused = b""

    @abstractmethod
    def receive_data(self, data: bytes) -> bytes:
        """Take coded bytes, and return the body bytes that they complete, perhaps none."""

    @abstractmethod
    def receive_eof(self) -> None:
        """Call this when the peer has closed. An error, if that is not the end of the body."""


class LengthBody(BodyDecoder):
    """A body of a known number of bytes; zero for a message without a body."""

    __slots__ = ("_length", "_remaining")

    def __init__(self, length: int) -> None:
        # Without a call of the base, because each message has such a body.
        self.error, self.unused = None, b""
        self._length = self._remaining = length
        self.complete = length == 0

    def receive_data(self, data: bytes) -> bytes:
        left = self._remaining - len(data)
        if left < 0:
            self.unused += data[left:]
            data, left = data[:left], 0
        self._remaining = left
        self.complete = left == 0
        return data

    def receive_eof(self) -> None:
        if not self.complete:
            received = self._length - self._remaining
            self.error = FramingError(f"the connection ended after {received} of {self._length} body bytes")


class UntilCloseBody(BodyDecoder):
    """A body that ends where the connection ends."""

    __slots__ = ()

    def receive_data(self, data: bytes) -> bytes:
        return data

    def receive_eof(self) -> None:
        self.complete = True


class _State(enum.Enum):
    SIZE = enum.auto()
    PAYLOAD = enum.auto()
    PAYLOAD_END = enum.auto()
    TRAILERS = enum.auto()
    DONE = enum.auto()


# CPython 3.11 takes as long to look up a member of an enum as for several calls.
_AT_SIZE = _State.SIZE


class _PlainSizes(dict[bytes, int]):
    """The size of a chunk by its digits, -1 for what is none and for the last one. A stream has few different ones."""

    def __missing__(self, digits: bytes) -> int:
        if not 0 < len(digits) <= _MAX_DIGITS or digits.strip(_HEX_DIGITS):
            return -1
        if len(self) >= _MAX_SIZES:
            self.clear()
        size = self[digits] = int(digits, 16) or -1
        return size


_SIZES = _PlainSizes()


def _take_plain_chunks(data: bytes, position: int, parts: list[bytes]) -> int:
    """Take the next whole chunks that have only digits on their size lines, and no CRLF. Return where they end.

    This takes half as long as one after another.
    """
    lines = data[position:].split(_LINE_END)
    count = 0
    # Nothing says that the last line has ended.
    for digits, size in zip(lines[::2], map(len, lines[1:-1:2])):  # noqa: B905
        if _SIZES[digits] != size:
            break
        count += 2
    parts += lines[1:count:2]
    return len(data) - len(_LINE_END.join(lines[count:]))


class ChunkedBody(BodyDecoder):
    """A chunked body. After an error or the end nothing more comes out.

    Args:
        padded: accept blanks after a size, because some servers pad it; in a request they are an error.
    """

    __slots__ = ("_pending", "_remaining", "_size_line", "_state", "_trailer_bytes")

    def __init__(self, *, padded: bool) -> None:
        super().__init__()
        self._size_line = _PADDED_SIZE_LINE if padded else _SIZE_LINE
        self._state = _AT_SIZE
        self._pending = b""
        self._remaining = 0
        self._trailer_bytes = 0

    def receive_data(self, data: bytes) -> bytes:
        if self.error is not None:
            return b""
        if self._pending:
            data = self._pending + data
            self._pending = b""
        if self._state is _AT_SIZE and len(data) <= _SMALL_READ:
            # An event that comes alone is one chunk.
            digits, _, rest = data.partition(_LINE_END)
            if _SIZES[digits] == len(rest) - 2 and rest.endswith(_LINE_END):
                return rest[:-2]
        parts: list[bytes] = []
        position, end = 0, len(data)
        is_first = True
        try:
            while position < end:
                if self._state is _AT_SIZE:
                    # Most chunks are whole, and have only digits on their size line.
                    digits, line_end, _ = data[position : position + _MAX_DIGITS + 2].partition(_LINE_END)
                    start = position + len(digits) + 2
                    stop = start + _SIZES[digits]
                    if stop > start and line_end and data[stop : stop + 2] == _LINE_END:
                        parts.append(data[start:stop])
                        position = stop + 2
                        if is_first and position < end and _CR not in parts[-1]:
                            position = _take_plain_chunks(data, position, parts)
                        is_first = False
                        continue
                position = self._decode(data, position, parts)
        except FramingError as error:
            self.error = error.with_traceback(None)  # whose frames have this decoder: a reference cycle
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def receive_eof(self) -> None:
        if not self.complete and self.error is None:
            self.error = FramingError("the connection ended without the last chunk of the body")

    def _decode(self, data: bytes, position: int, parts: list[bytes]) -> int:
        """Take the next line, or the bytes of a payload. Return where they end."""
        if self._state is _AT_SIZE:
            line = self._size_line.match(data, position)
            if line is None or line.end() - position > MAX_CHUNK_LINE:
                self._keep_size_line(data[position:])
                return len(data)
            self._remaining = int(line[1], 16)
            self._state = _State.PAYLOAD if self._remaining else _State.TRAILERS
            return line.end()
        if self._state is _State.PAYLOAD:
            part = data[position : position + self._remaining]
            parts.append(part)
            self._remaining -= len(part)
            if self._remaining == 0:
                self._state = _State.PAYLOAD_END
            return position + len(part)
        if self._state is _State.PAYLOAD_END:
            return self._end_payload(data, position)
        if self._state is _State.TRAILERS:
            return self._trailer(data, position)
        self.unused += data[position:]
        return len(data)

    def _keep_size_line(self, data: bytes) -> None:
        # A line that could still become valid waits for more; anything else is an error.
        line = data[: data.find(b"\n") + 1] or data
        if _SIZE_LINE_START.fullmatch(line[:MAX_CHUNK_LINE]) is None:
            raise FramingError("a chunk-size line is not hex digits, an optional extension and CRLF")
        if len(line) > MAX_CHUNK_LINE:
            raise FramingError(f"a chunk-size line is longer than {MAX_CHUNK_LINE} bytes")
        self._pending = line

    def _end_payload(self, data: bytes, position: int) -> int:
        found = data[position : position + 2]
        if found == b"\r\n":
            self._state = _AT_SIZE
        elif found == b"\r":
            self._pending = found
        else:
            raise FramingError("a chunk's payload is not followed by CRLF")
        return position + len(found)

    def _trailer(self, data: bytes, position: int) -> int:
        """Check and drop one trailer line, because trailers have no meaning here."""
        stop = data.find(b"\n", position)
        line = data[position:] if stop < 0 else data[position:stop]
        if self._trailer_bytes + len(line.removesuffix(b"\r")) > MAX_TRAILERS:
            raise FramingError(f"trailers are longer than {MAX_TRAILERS} bytes")
        if stop < 0:
            self._pending = line
            return len(data)
        if not line.endswith(b"\r"):
            raise FramingError("a trailer line does not end in CRLF")
        if line == b"\r":
            self._state = _State.DONE
            self.complete = True
        elif _TRAILER_LINE.fullmatch(line) is None:
            raise FramingError("a trailer line is not a header field")
        self._trailer_bytes += len(line) + 1
        return stop + 1
