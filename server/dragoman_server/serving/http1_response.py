"""Write HTTP/1.1 responses, without I/O.

The bytes are those that h11 writes, and fuzz tests compare the two. h11 costs as much as the translation of a short
response.
"""

import time
from email.utils import formatdate
from functools import lru_cache

from dragoman_server.streams.http1_head import Headers, PlainHeaders, plain_headers

# The application does not decide about it, because only the server knows what the client understands.
_OURS = frozenset({b"transfer-encoding"})
# "... terminated by the first empty line after the header fields ..., and thus cannot contain a message body"
# -- RFC 9112, 6.3
WITHOUT_BODY = (204, 304)
_MAX_LENGTH_DIGITS = 20  # as in h11


class ResponseError(Exception):
    """The response cannot be written, or its body is longer or shorter than its head says."""


class Http1Response:
    """One response. begin() returns its head, around() what is around a part of its body; both raise ResponseError.

    Args:
        version, method: of the request.
        connection: its header of that name, b"" without one.

    Attributes:
        has_begun: begin() was called.
        is_chunked: The next bytes are in a chunked body.
        is_kept: It is complete, and the connection may serve another request.
    """

    __slots__ = ("_has_body", "_keeps", "_knows_chunks", "_left", "has_begun", "is_chunked", "is_kept")

    def __init__(self, version: str, method: str, connection: bytes) -> None:
        self._has_body = method != "HEAD"
        self._knows_chunks = version >= "1.1"
        self._keeps = self._knows_chunks and not (connection and b"close" in _options(connection))
        self._left: int | None = 0  # bytes of the body; None: it ends with the connection
        self.has_begun = self.is_chunked = self.is_kept = False

    def begin(self, status: int, headers: Headers) -> bytes:
        """Return the head. It says how the body ends, and if the connection does."""
        self.has_begun = True
        if not 200 <= status < 1000:
            raise ResponseError("its status is not that of a final response")
        headers, plain = _plain(headers)
        options: set[bytes] = set()
        if b"connection" in plain.names:
            options = _options(b",".join([value for name, value in headers if name.lower() == b"connection"]))
        if not self._keeps:
            _, plain = _plain([field for field in headers if field[0].lower() != b"connection"])
        has_body = self._has_body and status not in WITHOUT_BODY
        lines = plain.lines
        if plain.length is not None:
            if not plain.length.isdigit() or len(plain.length) > _MAX_LENGTH_DIGITS:
                raise ResponseError("its Content-Length is not a number")
            self._left = int(plain.length) if has_body else 0
        elif self._knows_chunks and status not in WITHOUT_BODY:
            lines += b"Transfer-Encoding: chunked\r\n"
            self.is_chunked = has_body
        elif has_body:
            self._left = None
        if not self._keeps:
            options = {*options, b"close"} - {b"keep-alive"}
            lines += b"".join([b"Connection: %b\r\n" % option for option in sorted(options)])
        self._keeps = b"close" not in options
        return b"HTTP/1.1 %d \r\n%b\r\n" % (status, lines)

    def around(self, size: int, *, is_last: bool = False) -> tuple[bytes, bytes]:
        """Return what is before and after a part of the body with so many bytes."""
        before = after = b""
        if self.is_chunked:
            if size:
                before, after = b"%x\r\n" % size, b"\r\n"
        elif self._left is not None:
            self._left -= size
            if self._left < 0:
                raise ResponseError("its body is longer than its Content-Length")
        if is_last:
            if self._left:
                raise ResponseError("its body is shorter than its Content-Length")
            if self.is_chunked:
                after += b"0\r\n\r\n"
            self.is_chunked, self.is_kept = False, self._keeps
        return before, after


def date_header() -> tuple[bytes, bytes]:
    """Return the header with the time of a response (RFC 9110, 6.6.1)."""
    return _date_header(int(time.time()))


@lru_cache(maxsize=1)
def _date_header(second: int) -> tuple[bytes, bytes]:
    return b"date", formatdate(second, usegmt=True).encode()


def interim_response(status: int, headers: Headers) -> bytes:
    """Return an interim response (1xx), which precedes the final one."""
    return b"HTTP/1.1 %d \r\n%b\r\n" % (status, _plain(headers)[1].lines)


def _plain(headers: Headers) -> tuple[Headers, PlainHeaders]:
    """Return the headers without blanks around names and values, which some applications have, and their lines."""
    plain = plain_headers(headers, _OURS)
    if plain is None:
        headers = [(name.strip(), value.strip()) for name, value in headers]
        plain = plain_headers(headers, _OURS)
    if plain is None:
        raise ResponseError("its headers cannot be written as HTTP/1.1")
    return headers, plain


def _options(connection: bytes) -> set[bytes]:
    return {option.strip(b" \t") for option in connection.lower().split(b",")} - {b""}
