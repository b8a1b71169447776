"""One HTTP/1.1 request and its response, without I/O.

Requests are written here, and a plain response head, as nearly all are, is read here, because h11 costs as much as the
translation. Every other response head is up to h11: what it alone accepts, and every refusal. The body is read by a
decoder of `http1_body`; `_body_decoder` chooses which. Errors never quote a header line, because header values contain
the keys.
"""

import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import repeat
from typing import TYPE_CHECKING

import msgspec

from dragoman_server.streams.http1_body import (
    BodyDecoder,
    ChunkedBody,
    FramingError,
    LengthBody,
    UntilCloseBody,
)
from dragoman_server.streams.http1_head import FIELD_LINE, TOKEN, plain_headers

if TYPE_CHECKING:
    import h11  # when the first head comes that is not plain

# Bytes of a response head, with the interim ones before it. h11's default is 16 KiB; some providers' policy and tracing
# headers come close to that.
MAX_HEAD = 64 * 1024
# Its header lines. Servers send up to 60, with those of the CDN in front.
MAX_FIELDS = 1000
# Interim (1xx) responses before the final one. A server needs one or two; there must be an end.
MAX_INTERIM = 16

_REQUEST_LINE = re.compile(rb"%b [!-~]+ HTTP/1\.1" % TOKEN)
# Heads that are read without h11. The pattern accepts less than h11's: no control characters.
_RESPONSE = re.compile(rb"HTTP/1\.1 ([2-5][0-9][0-9])(?: [\t -~\x80-\xff]*)?\r\n((?:%b\n)*)\r\n" % FIELD_LINE)
_MAX_LENGTH_DIGITS = 20  # as in h11
# These belong to one connection, so they are written here, and the caller's are left out
# -- https://www.rfc-editor.org/rfc/rfc9110#section-7.6.1. accept-encoding is what the gateway can decode.
_CONNECTION_HEADERS = frozenset(
    {
        "accept-encoding",
        "connection",
        "content-length",
        "expect",
        "host",
        "keep-alive",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
_ACCEPT_ENCODING = b"accept-encoding: identity\r\n"
# Lines of requests that are kept, because most requests have the same ones. Each has at most MAX_HEAD bytes, as a
# client's head has.
_KEPT_LINES = 128
_RESPONSE_FRAMING = frozenset({"connection", "content-length", "transfer-encoding"})


def chunk(data: bytes) -> bytes:
    """Return bytes of a body as a chunk, b"" as its end."""
    return b"%x\r\n%b\r\n" % (len(data), data)


class RequestError(Exception):
    """The request cannot be written as HTTP/1.1. The text never quotes a header."""


class ResponseHead(msgspec.Struct, frozen=True):
    """The head of a response.

    Attributes:
        headers: With lower-case names.
        keep_alive: The connection may serve another request once the body is complete.
        body: The decoder of the body.
        leftover: The bytes of the body that came in the same read.
    """

    status: int
    headers: list[tuple[str, str]]
    keep_alive: bool
    body: BodyDecoder
    leftover: bytes


def request_head(
    method: str, target: bytes, host: bytes, headers: Sequence[tuple[str, str]], length: int | None
) -> bytes:
    """Return the bytes of a request's head. Raises RequestError.

    headers: without those of the connection, which are added. length: of the body, None for one in chunks, see chunk().
    """
    if length is None:
        framing = b"Transfer-Encoding: chunked\r\n"
    else:
        framing = b"Content-Length: %d\r\n" % length if length or method == "POST" else b""
    lines = map(_header_line, headers)
    return b"".join([_first_lines(method, target, host), *lines, _ACCEPT_ENCODING, framing, b"\r\n"])


@lru_cache(maxsize=_KEPT_LINES)
def _first_lines(method: str, target: bytes, host: bytes) -> bytes:
    line = b"%b %b HTTP/1.1" % (method.encode(), target)
    named = plain_headers([(b"Host", host)], frozenset())
    if named is None or _REQUEST_LINE.fullmatch(line) is None:
        raise RequestError("method or target of the request has characters that HTTP/1.1 forbids")
    return b"%b\r\n%b" % (line, named.lines)


@lru_cache(maxsize=_KEPT_LINES)
def _header_line(header: tuple[str, str]) -> bytes:
    """Return a header as it is written, b"" if it is left out."""
    name, value = header
    if name.lower() in _CONNECTION_HEADERS:
        return b""
    plain = None
    with suppress(UnicodeEncodeError):
        plain = plain_headers([(name.encode("ascii"), value.encode("latin-1"))], frozenset())
    if plain is None:
        raise RequestError(f"header {ascii(name)[:80]} has characters that HTTP/1.1 forbids")
    return plain.lines


class Http1Exchange(msgspec.Struct, eq=False):
    """Read the head of the response to one request.

    Attributes:
        received: The number of bytes of the response so far.
        interim_responses: The number of 1xx responses so far, each of which restarts the caller's read timeout.
    """

    _method: str
    _h11: "h11.Connection | None" = None  # only for a response head that is not plain
    interim_responses: int = 0
    received: int = 0

    def receive_data(self, data: bytes) -> ResponseHead | None:
        """Take bytes of the response. Return the head, or None if it is not complete. Raises FramingError.

        After the head, give the bytes to its `body` decoder instead, `leftover` first.
        """
        self.received += len(data)
        head = _read_plain(self._method, data) if self._h11 is None else None
        if head is None:
            head = self._receive_by_h11(data)
        if self.received - (0 if head is None else len(head.leftover)) > MAX_HEAD:
            raise FramingError(f"the response head is larger than {MAX_HEAD // 1024} KiB")
        if head is not None and len(head.headers) > MAX_FIELDS:
            raise FramingError(f"the response head has more than {MAX_FIELDS} header lines")
        return head

    def _receive_by_h11(self, data: bytes) -> ResponseHead | None:
        import h11

        if self._h11 is None:
            # Its own limit counts only incomplete data, so what it accepts depends on the cuts: see receive_data().
            self._h11 = h11.Connection(our_role=h11.CLIENT, max_incomplete_event_size=sys.maxsize)
            self._h11.send(h11.Request(method=self._method, target="/", headers=[("Host", "-")]))
            self._h11.send(h11.EndOfMessage())
        try:
            self._h11.receive_data(data)
            event = self._h11.next_event()
            while isinstance(event, h11.InformationalResponse):
                self.interim_responses += 1
                if self.interim_responses > MAX_INTERIM:
                    raise FramingError(f"more than {MAX_INTERIM} interim responses before the final one")
                event = self._h11.next_event()
        except h11.RemoteProtocolError as error:
            error.__traceback__ = None  # a reference cycle: a frame of h11 in it has the error
            raise FramingError(f"the response head is not HTTP/1.1: {_without_quote(error)}") from None
        if event is h11.NEED_DATA:
            return None
        if not isinstance(event, h11.Response):
            raise FramingError("the server sent something other than a response head")
        leftover, _ = self._h11.trailing_data
        headers = [(name.decode("ascii"), value.decode("latin-1")) for name, value in event.headers]
        body = _body_decoder(self._method, event.status_code, dict(headers))
        return ResponseHead(
            status=event.status_code,
            headers=headers,
            # Else h11 has left this state: because of "connection: close" on either side, or of HTTP/1.0.
            keep_alive=self._h11.our_state is h11.DONE and not isinstance(body, UntilCloseBody),
            body=body,
            leftover=leftover,
        )


def _read_plain(method: str, data: bytes) -> ResponseHead | None:
    """Return the head of a response, None if h11 has to read it: for example because it is incomplete."""
    match = _RESPONSE.match(data)
    if match is None:
        return None
    lines = match[2].decode("latin-1").split("\r\n")[:-1]
    fields = map(str.partition, lines, repeat(":"))
    headers = [(name.lower(), value.strip("\t ")) for name, _, value in fields]
    named = dict(headers)
    if len(named) < len(headers):
        names = [name for name, _ in headers]
        if any(names.count(name) > 1 for name in _RESPONSE_FRAMING):
            return None
    connection, length = named.get("connection", "").lower(), named.get("content-length", "0")
    if (
        connection not in ("", "keep-alive", "close")
        or not (length.isdecimal() and len(length) <= _MAX_LENGTH_DIGITS)
        or named.get("transfer-encoding", "chunked") != "chunked"
    ):
        return None
    status = int(match[1])
    body = _body_decoder(method, status, named)
    keep_alive = connection != "close" and type(body) is not UntilCloseBody
    return ResponseHead(status, headers, keep_alive, body, data[match.end() :])


def _body_decoder(method: str, status: int, headers: Mapping[str, str]) -> BodyDecoder:
    """Choose the decoder by the rules of https://www.rfc-editor.org/rfc/rfc9112#section-6.3 for a client.

    headers: by lower-case names. Those of the framing have come once.
    """
    coding, length = headers.get("transfer-encoding"), headers.get("content-length")
    if coding is not None and length is not None:
        # "ought to be handled as an error" (RFC 9112, 6.3), because two readers may see two different messages.
        raise FramingError("the response has both content-length and transfer-encoding")
    if method == "HEAD" or status in (204, 304):
        return LengthBody(0)
    if coding is not None:
        return ChunkedBody(padded=True)  # h11 has refused every other coding
    if length is not None:
        return LengthBody(int(length))  # h11 has checked that it is digits
    return UntilCloseBody()


def _without_quote(error: "h11.ProtocolError") -> str:
    # h11's text is the rule, followed by the repr of the offending bytes.
    return str(error).partition(": b")[0]
