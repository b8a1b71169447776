"""One HTTP/1.1 request and its response, without I/O.

h11 writes the request and reads the head of the response, where the grammar is subtle and the bytes are few. The body
is read by a decoder of `http1_body`, because it costs time with every token; `_body_decoder` chooses which. Errors
never quote a header line, because header values contain the keys.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import h11

from dragoman_server.streams.http1_body import (
    BodyDecoder,
    ChunkedBody,
    FramingError,
    LengthBody,
    UntilCloseBody,
)

# Bytes of a response head. h11's default is 16 KiB; some providers' policy and tracing headers come close to that.
MAX_HEAD = 64 * 1024
# Interim (1xx) responses before the final one. A server needs one or two; there must be an end.
MAX_INTERIM = 16

Headers = Sequence[tuple[bytes, bytes]]


class RequestError(Exception):
    """The request cannot be written as HTTP/1.1. The text never quotes a header."""


@dataclass(frozen=True, slots=True)
class ResponseHead:
    """The head of a response.

    keep_alive: the connection may serve another request once the body is complete.
    body: the decoder of the body. leftover: the bytes of the body that came in the same read.
    """

    status: int
    headers: list[tuple[bytes, bytes]]
    keep_alive: bool
    body: BodyDecoder
    leftover: bytes


class Http1Exchange:
    """Write one request and read the head of its response. One object serves one exchange."""

    __slots__ = ("_h11", "_interim", "_method")

    def __init__(self, method: str) -> None:
        self._method = method
        self._h11 = h11.Connection(our_role=h11.CLIENT, max_incomplete_event_size=MAX_HEAD)
        self._interim = 0

    def request(self, target: bytes, headers: Headers, content: bytes) -> tuple[bytes, bytes]:
        """Return the bytes of the request's head and of its body. Raises RequestError."""
        try:
            head = self._h11.send(h11.Request(method=self._method, target=target, headers=list(headers)))
            body = self._h11.send(h11.Data(data=content)) if content else b""
            end = self._h11.send(h11.EndOfMessage())
        except h11.LocalProtocolError:
            # Without the cause, because h11 quotes the header that it refuses.
            raise RequestError(
                "method, target or a header of the request has characters that HTTP/1.1 forbids,"
                " or its length headers contradict each other or its content"
            ) from None
        # The end has bytes only if the body is chunked, and the sum is no copy if it has none.
        return head or b"", (body or b"") + (end or b"")

    def receive_data(self, data: bytes) -> ResponseHead | None:
        """Take bytes of the response. Return the head, or None if it is not complete. Raises FramingError.

        After the head, give the bytes to its `body` decoder instead, `leftover` first.
        """
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
        return self._head(event, leftover)

    @property
    def interim_responses(self) -> int:
        """The number of 1xx responses so far, each of which restarts the caller's read timeout."""
        return self._interim

    def _head(self, response: h11.Response, leftover: bytes) -> ResponseHead:
        headers = list(response.headers)
        body = _body_decoder(self._method, response.status_code, headers)
        return ResponseHead(
            status=response.status_code,
            headers=response.headers.raw_items(),
            # Else h11 has left this state: because of "connection: close" on either side, or of HTTP/1.0.
            keep_alive=self._h11.our_state is h11.DONE and not isinstance(body, UntilCloseBody),
            body=body,
            leftover=leftover,
        )


def _body_decoder(method: str, status: int, headers: Headers) -> BodyDecoder:
    """Choose the decoder by the rules of https://www.rfc-editor.org/rfc/rfc9112#section-6.3 for a client."""
    coding = [value for name, value in headers if name == b"transfer-encoding"]
    length = [value for name, value in headers if name == b"content-length"]
    if coding and length:
        # "ought to be handled as an error" (RFC 9112, 6.3), because two readers may see two different messages.
        raise FramingError("the response has both content-length and transfer-encoding")
    if method == "HEAD" or status in (204, 304):
        return LengthBody(0)
    if coding:
        return ChunkedBody(padded=True)  # h11 has refused every other coding
    if length:
        return LengthBody(int(length[0]))  # h11 has checked that it is digits, and one value
    return UntilCloseBody()


def _without_quote(error: h11.ProtocolError) -> str:
    # h11's text is the rule, followed by the repr of the offending bytes.
    return str(error).partition(": b")[0]
