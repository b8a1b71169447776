"""Messages of application/vnd.amazon.eventstream, in which Bedrock streams what its models write.

A message is its length and that of its headers (4 bytes each, all numbers big-endian), the CRC-32 of these eight bytes,
the headers, the payload, and the CRC-32 of all before it. A header is its name with a length of one byte, a byte for
the type, and the value (botocore 1.44.5, eventstream.py, which the tests compare it with).
"""

from __future__ import annotations

from binascii import crc32
from collections.abc import Iterator

import msgspec

from dragoman._wire.exceptions import RemoteProtocolError
from dragoman._wire.frame_cutter import MAX_EVENT_BYTES
from dragoman._wire.limits import EVENT_HEADERS

# "The payload ... at most 24 MB, the headers 128 KB" (botocore 1.44.5, eventstream.py).
MAX_HEADER_BYTES = 128 * 1024

_PRELUDE = 12
_CRC = 4
# The type of a header -> the bytes of its value: true, false, byte, short, integer, long, timestamp, uuid.
_SIZES = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}
# Those with a length of two bytes before them.
_BYTES, _STRING = 6, 7


class AwsMessage(msgspec.Struct, frozen=True):
    """One message.

    Attributes:
        headers: Those that are strings.
    """

    headers: dict[str, str]
    payload: bytes

    def encode(self) -> bytes:
        """Return its bytes."""
        headers = b"".join(
            b"%c%b%c%b%b" % (len(name), name.encode(), _STRING, len(value).to_bytes(2, "big"), value)
            for name, value in ((name, value.encode()) for name, value in self.headers.items())
        )
        length = _PRELUDE + len(headers) + len(self.payload) + _CRC
        prelude = length.to_bytes(4, "big") + len(headers).to_bytes(4, "big")
        message = b"".join((prelude, crc32(prelude).to_bytes(4, "big"), headers, self.payload))
        return message + crc32(message).to_bytes(4, "big")


class AwsMessageReader:
    """Bytes in, the messages that they complete out."""

    __slots__ = ("_held", "_length", "_limit")

    def __init__(self, max_message_bytes: int = MAX_EVENT_BYTES) -> None:
        self._held = bytearray()
        self._length = 0  # of the unfinished message, 0 while its prelude is incomplete
        self._limit = max_message_bytes

    @property
    def held_bytes(self) -> int:
        """The number of bytes that are held of an unfinished message."""
        return len(self._held)

    def receive_data(self, data: bytes) -> Iterator[AwsMessage]:
        """Give the messages that these bytes complete. Raises RemoteProtocolError behind the last good one."""
        self._held += data
        start = 0
        try:
            while len(self._held) - start >= (self._length or _PRELUDE):
                if not self._length:
                    self._length = self._checked_length(start)
                    continue
                end = start + self._length
                with memoryview(self._held)[start:end] as message:
                    read = _read(bytes(message))
                start, self._length = end, 0
                yield read
        finally:
            del self._held[:start]

    def _checked_length(self, start: int) -> int:
        """Return the length of the message that begins there, which the CRC of its prelude vouches for."""
        prelude = bytes(self._held[start : start + _PRELUDE])
        length, of_headers = _integer(prelude, 0), _integer(prelude, 4)
        if crc32(prelude[:8]) != _integer(prelude, 8):
            raise _broken("the checksum of its beginning is wrong")
        if of_headers > MAX_HEADER_BYTES or length > self._limit:
            raise _broken(f"it has {of_headers} bytes of headers, and {length} altogether")
        if _PRELUDE + of_headers + _CRC > length:
            raise _broken("its headers are longer than itself")
        return length


def _read(message: bytes) -> AwsMessage:
    """Return one whole message."""
    if crc32(message[:-_CRC]) != _integer(message, len(message) - _CRC):
        raise _broken("its checksum is wrong")
    end = _PRELUDE + _integer(message, 4)
    headers: dict[str, str] = {}
    names: set[str] = set()
    place = _PRELUDE
    try:
        while place < end:
            named = place + 1 + message[place]
            name, kind, place = message[place + 1 : named].decode(), message[named], named + 1
            if kind in (_BYTES, _STRING):
                size = int.from_bytes(message[place : place + 2], "big")
                place += 2
            else:
                size = _SIZES[kind]
            value, place = message[place : place + size], place + size
            if place > end or name in names:
                raise _broken("a header is cut, or comes twice")
            names.add(name)
            if len(names) > EVENT_HEADERS.most:
                raise _broken(EVENT_HEADERS.message(f"more than {EVENT_HEADERS.most}", "it"))
            if kind == _STRING:
                headers[name] = value.decode()
    except (IndexError, KeyError, UnicodeDecodeError):
        raise _broken("a header cannot be read") from None
    return AwsMessage(headers, message[end:-_CRC])


def _integer(data: bytes, place: int) -> int:
    return int.from_bytes(data[place : place + 4], "big")


def _broken(reason: str) -> RemoteProtocolError:
    return RemoteProtocolError(f"a message of the event stream is broken: {reason}", status=502)
