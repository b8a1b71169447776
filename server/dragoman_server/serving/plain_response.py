"""Write plain HTTP/1.1 responses: those with a body, on a connection that goes on.

They are nearly all, and h11 costs as much as the translation of a short one. The bytes are those that h11 writes;
what it would refuse or change is left to it. Without I/O.
"""

import re
from collections.abc import Sequence
from typing import Self

import h11

from dragoman_server.streams.http1_head import are_plain

_LENGTH = re.compile(rb"[0-9]{1,20}")

# h11 reads or moves these.
_UNUSUAL = frozenset({b"host", b"transfer-encoding"})

Headers = Sequence[tuple[bytes, bytes]]


def may_be_plain(version: str, method: str, headers: Headers) -> bool:
    """True if the response to a request with this head may be plain. headers: with lower-case names."""
    names = [name for name, _ in headers]
    return (
        version == "1.1"
        and method != "HEAD"
        and b"upgrade" not in names
        and b"expect" not in names
        and (b"connection" not in names or _keeps_alive(headers))
    )


def _keeps_alive(headers: Headers) -> bool:
    return all(value.lower() == b"keep-alive" for name, value in headers if name == b"connection")


class PlainResponse:
    """One response. begin() returns its head, data() and end() the rest.

    chunked: the body is chunked.
    """

    __slots__ = ("_left", "chunked")

    def __init__(self, length: int | None) -> None:
        self.chunked = length is None
        self._left = length or 0

    @classmethod
    def begin(cls, status: int, headers: Headers) -> tuple[Self, bytes] | None:
        """Return a response and its head, None if h11 has to write it."""
        names, values = [name.lower() for name, _ in headers], [value for _, value in headers]
        lengths = [value for name, value in zip(names, values, strict=True) if name == b"content-length"]
        if (
            not 200 <= status < 600
            or status in (204, 304)
            or len(lengths) > 1
            or not all(map(_LENGTH.fullmatch, lengths))
            or not _UNUSUAL.isdisjoint(names)
            or (b"connection" in names and not _keeps_alive(list(zip(names, values, strict=True))))
            or not are_plain(names, values)
        ):
            return None
        lines = b"".join([b"%b: %b\r\n" % header for header in headers])
        framing = b"" if lengths else b"Transfer-Encoding: chunked\r\n"
        response = cls(int(lengths[0]) if lengths else None)
        return response, b"HTTP/1.1 %d \r\n%b%b\r\n" % (status, lines, framing)

    def data(self, data: bytes) -> bytes:
        """Return the bytes of a part of the body. Raises h11.LocalProtocolError if it is longer than its length."""
        if self.chunked:
            return b"%x\r\n%b\r\n" % (len(data), data) if data else b""
        self._left -= len(data)
        if self._left < 0:
            raise h11.LocalProtocolError("Too much data for declared Content-Length")
        return data

    def end(self) -> bytes:
        """Return the last bytes. Raises h11.LocalProtocolError if the body is shorter than its length."""
        if self._left:
            raise h11.LocalProtocolError("Too little data for declared Content-Length")
        return b"0\r\n\r\n" if self.chunked else b""
