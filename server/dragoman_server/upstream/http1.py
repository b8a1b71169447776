"""One HTTP/1.1 request and its response, without I/O.

Requests are written here, and a plain response head, as nearly all are, is read here, because h11 costs as much as the
translation. Every other response head is up to h11: what it alone accepts, and every refusal. The body is read by a
decoder of `http1_body`; `_body_decoder` chooses which. Errors never quote a header line, because header values contain
the keys.
"""

import re
import sys
from collections.abc import Mapping

import h11
import msgspec

from dragoman_server.streams.http1_body import (
    BodyDecoder,
    ChunkedBody,
    FramingError,
    LengthBody,
    UntilCloseBody,
)
from dragoman_server.streams.http1_head import FIELD_LINE, TOKEN, Headers, plain_headers

# Bytes of a response head, with the interim ones before it. h11's default is 16 KiB; some providers' policy and tracing
# headers come close to that.
MAX_HEAD = 64 * 1024
# Interim (1xx) responses before the final one. A server needs one or two; there must be an end.
MAX_INTERIM = 16

_REQUEST_LINE = re.compile(rb"%b [!-~]+ HTTP/1\.1" % TOKEN)
# Heads that are read without h11. The pattern accepts less than h11's: no control characters.
_RESPONSE = re.compile(rb"HTTP/1\.1 ([2-5][0-9][0-9])(?: [\t -~\x80-\xff]*)?\r\n((?:%b\n)*)\r\n" % FIELD_LINE)
_MAX_LENGTH_DIGITS = 20  # as in h11
# Headers that change how a message is framed, or what follows it. The client drops those of requests.
_FRAMING = frozenset({b"connection", b"expect", b"transfer-encoding", b"upgrade"})
_RESPONSE_FRAMING = frozenset({b"connection", b"content-length", b"transfer-encoding"})


_CHUNKED = b"Transfer-Encoding: chunked\r\n"


def chunk(data: bytes) -> bytes:
    """Return bytes of a body as a chunk, b"" as its end."""
    return b"%x\r\n%b\r\n" % (len(data), data)


class RequestError(Exception):
    """The request cannot be written as HTTP/1.1. The text never quotes a header."""


class ResponseHead(msgspec.Struct, frozen=True):
    """The head of a response.

    Attributes:
        keep_alive: The connection may serve another request once the body is complete.
        body: The decoder of the body.
        leftover: The bytes of the body that came in the same read.
    """

    status: int
    headers: list[tuple[bytes, bytes]]
    keep_alive: bool
    body: BodyDecoder
    leftover: bytes


class Http1Exchange:
    """Write one request and read the head of its response. One object serves one exchange.

    Attributes:
        received: The number of bytes of the response so far.
    """

    __slots__ = ("_h11", "_interim", "_method", "received")

    def __init__(self, method: str) -> None:
        self._method = method
        self._h11: h11.Connection | None = None  # only for a response head that is not plain
        self._interim = 0
        self.received = 0

    def head(self, target: bytes, headers: Headers, length: int | None) -> bytes:
        """Return the bytes of the request's head. Raises RequestError.

        length: of its body, None for one in chunks, see chunk().
        """
        line, plain = b"%b %b HTTP/1.1" % (self._method.encode(), target), plain_headers(headers, _FRAMING)
        if (
            plain is None
            or _REQUEST_LINE.fullmatch(line) is None
            or plain.names[:1] != [b"host"]
            or plain.names.count(b"host") > 1
            or (plain.length if length is None else (plain.length or b"0") != b"%d" % length)
        ):
            raise RequestError(
                "method, target or a header of the request has characters that HTTP/1.1 forbids,"
                " or its length headers contradict each other or its content"
            )
        return b"%b\r\n%b%b\r\n" % (line, plain.lines, _CHUNKED if length is None else b"")

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
        return head

    def _receive_by_h11(self, data: bytes) -> ResponseHead | None:
        if self._h11 is None:
            # Its own limit counts only incomplete data, so what it accepts depends on the cuts: see receive_data().
            self._h11 = h11.Connection(our_role=h11.CLIENT, max_incomplete_event_size=sys.maxsize)
            self._h11.send(h11.Request(method=self._method, target="/", headers=[("Host", "-")]))
            self._h11.send(h11.EndOfMessage())
        try:
            self._h11.receive_data(data)
            event = self._h11.next_event()
            while isinstance(event, h11.InformationalResponse):
                self._interim += 1
                if self._interim > MAX_INTERIM:
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
        body = _body_decoder(self._method, event.status_code, dict(event.headers))
        return ResponseHead(
            status=event.status_code,
            headers=event.headers.raw_items(),
            # Else h11 has left this state: because of "connection: close" on either side, or of HTTP/1.0.
            keep_alive=self._h11.our_state is h11.DONE and not isinstance(body, UntilCloseBody),
            body=body,
            leftover=leftover,
        )

    @property
    def interim_responses(self) -> int:
        """The number of 1xx responses so far, each of which restarts the caller's read timeout."""
        return self._interim


def _read_plain(method: str, data: bytes) -> ResponseHead | None:
    """Return the head of a response, None if h11 has to read it: for example because it is incomplete."""
    match = _RESPONSE.match(data)
    if match is None:
        return None
    headers: list[tuple[bytes, bytes]] = []
    framing: list[tuple[bytes, bytes]] = []
    for line in match[2].split(b"\r\n")[:-1]:
        name, _, value = line.partition(b":")
        value = value.strip(b"\t ")
        headers.append((name, value))
        if name.lower() in _RESPONSE_FRAMING:
            framing.append((name.lower(), value))
    fields = dict(framing)
    connection, length = fields.get(b"connection", b"").lower(), fields.get(b"content-length", b"0")
    if (
        len(fields) < len(framing)
        or connection not in (b"", b"keep-alive", b"close")
        or not (length.isdigit() and len(length) <= _MAX_LENGTH_DIGITS)
        or fields.get(b"transfer-encoding", b"chunked") != b"chunked"
    ):
        return None
    status = int(match[1])
    body = _body_decoder(method, status, fields)
    keep_alive = connection != b"close" and type(body) is not UntilCloseBody
    return ResponseHead(status, headers, keep_alive, body, data[match.end() :])


def _body_decoder(method: str, status: int, headers: Mapping[bytes, bytes]) -> BodyDecoder:
    """Choose the decoder by the rules of https://www.rfc-editor.org/rfc/rfc9112#section-6.3 for a client.

    headers: by lower-case names. Those of the framing have come once.
    """
    coding, length = headers.get(b"transfer-encoding"), headers.get(b"content-length")
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


def _without_quote(error: h11.ProtocolError) -> str:
    # h11's text is the rule, followed by the repr of the offending bytes.
    return str(error).partition(": b")[0]
