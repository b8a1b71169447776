"""Write HTTP/1.1 responses: plain ones here, all others by h11. Without I/O.

Plain are those with a body, on a connection that goes on. They are nearly all, and h11 costs as much as the translation
of a short one. The bytes are those that h11 writes; what it would refuse or change is left to it.
"""

import re
from typing import Self

import h11

from dragoman_server.serving.request_head import MAX_HEAD_BYTES
from dragoman_server.streams.http1_head import Headers, plain_headers

_LENGTH = re.compile(rb"[0-9]{1,20}")

# h11 reads or moves these.
_UNUSUAL = frozenset({b"host", b"transfer-encoding"})


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
    return all(value.lower() == b"keep-alive" for name, value in headers if name.lower() == b"connection")


class PlainResponse:
    """One response. begin() returns its head, data() and end() the rest.

    Attributes:
        is_chunked: The next bytes are in a chunked body.
        is_kept: It is complete, and the connection may serve another request.
    """

    __slots__ = ("_left", "is_chunked", "is_kept")

    def __init__(self, length: int | None) -> None:
        self.is_chunked = length is None
        self.is_kept = False
        self._left = length or 0

    @classmethod
    def begin(cls, status: int, headers: Headers) -> tuple[Self, bytes] | None:
        """Return a response and its head, None if h11 has to write it."""
        plain = plain_headers(headers, _UNUSUAL)
        if (
            plain is None
            or not 200 <= status < 600
            or status in (204, 304)
            or (plain.length is not None and _LENGTH.fullmatch(plain.length) is None)
            or (b"connection" in plain.names and not _keeps_alive(headers))
        ):
            return None
        framing = b"Transfer-Encoding: chunked\r\n" if plain.length is None else b""
        response = cls(None if plain.length is None else int(plain.length))
        return response, b"HTTP/1.1 %d \r\n%b%b\r\n" % (status, plain.lines, framing)

    def data(self, data: bytes) -> bytes:
        """Return the bytes of a part of the body. Raises h11.LocalProtocolError if it is longer than its length."""
        if self.is_chunked:
            return b"%x\r\n%b\r\n" % (len(data), data) if data else b""
        self._left -= len(data)
        if self._left < 0:
            raise h11.LocalProtocolError("Too much data for declared Content-Length")
        return data

    def end(self) -> bytes:
        """Return the last bytes. Raises h11.LocalProtocolError if the body is shorter than its length."""
        if self._left:
            raise h11.LocalProtocolError("Too little data for declared Content-Length")
        last, self.is_chunked, self.is_kept = b"0\r\n\r\n" if self.is_chunked else b"", False, True
        return last


class H11Response:
    """The same for a response that is not plain.

    Args:
        head: of its request.
    """

    __slots__ = ("_h11", "_may_chunk", "is_chunked")

    def __init__(self, head: bytes) -> None:
        self._h11 = h11.Connection(h11.SERVER, MAX_HEAD_BYTES)
        self._h11.receive_data(head)
        request = self._h11.next_event()
        assert isinstance(request, h11.Request)
        self._may_chunk = request.http_version >= b"1.1" and request.method != b"HEAD"
        self.is_chunked = False

    def interim(self, status: int, headers: Headers) -> bytes:
        """Return an interim response, before begin()."""
        return self._send(h11.InformationalResponse(status_code=status, headers=list(headers)))

    def begin(self, status: int, headers: Headers) -> bytes:
        """Return the head."""
        # As h11 0.16 decides it, _connection.py:602 (_clean_up_response_headers_for_sending).
        has_length = b"content-length" in [name.lower() for name, _ in headers]
        self.is_chunked = self._may_chunk and status not in (204, 304) and not has_length
        return self._send(h11.Response(status_code=status, headers=list(headers)))

    def data(self, data: bytes) -> bytes:
        return self._send(h11.Data(data=data))

    def end(self) -> bytes:
        self.is_chunked = False
        return self._send(h11.EndOfMessage())

    @property
    def is_kept(self) -> bool:
        return self._h11.our_state is h11.DONE

    def _send(self, event: h11.Event) -> bytes:
        return self._h11.send(event) or b""
