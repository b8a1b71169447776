"""One HTTP/1.1 request and its response, without I/O.

h11 writes the request and reads the response head: there the grammar is subtle and the bytes are few. The
body is read by one of four small decoders of our own, because it is the part that is paid for with every
token. All four have one shape (`BodyDecoder`), and which of them a response gets is decided in one place,
`_body_decoder`.

Messages of errors that leave this module never quote a header line: header values are where the keys are.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import h11

from dragoman_server.upstream.chunked import ChunkedBody, FramingError

__all__ = ["MAX_HEAD", "BodyDecoder", "Exchange", "FramingError", "RequestError", "ResponseHead"]

# A response head. h11's own default is 16 KiB; some providers' policy and tracing headers come close to
# that.
MAX_HEAD = 64 * 1024
# Interim (1xx) responses before the real one. A server needs one or two; an endless row must not hold us.
MAX_INTERIM = 16

Headers = Sequence[tuple[bytes, bytes]]


class RequestError(Exception):
    """The request cannot be written as HTTP/1.1. The text never quotes a header."""


class BodyDecoder(Protocol):
    """Bytes in, body bytes out. Never raises: look at `fault` and `complete` after each call.

    `unused` holds what followed the body: bytes that no request has asked for.
    """

    complete: bool
    fault: FramingError | None
    unused: bytes

    def receive_data(self, data: bytes) -> bytes: ...

    def receive_eof(self) -> None: ...


class LengthBody:
    """A body of a known number of bytes. Zero of them is also how a response without a body is read."""

    __slots__ = ("_length", "_remaining", "complete", "fault", "unused")

    def __init__(self, length: int) -> None:
        self._length = self._remaining = length
        self.complete = length == 0
        self.fault: FramingError | None = None
        self.unused = b""

    def receive_data(self, data: bytes) -> bytes:
        if len(data) > self._remaining:
            self.unused += data[self._remaining :]
            data = data[: self._remaining]
        self._remaining -= len(data)
        self.complete = self._remaining == 0
        return data

    def receive_eof(self) -> None:
        if not self.complete:
            received = self._length - self._remaining
            self.fault = FramingError(f"the connection ended after {received} of {self._length} body bytes")


class UntilCloseBody:
    """A body that ends where the connection ends."""

    __slots__ = ("complete", "fault", "unused")

    def __init__(self) -> None:
        self.complete = False
        self.fault: FramingError | None = None
        self.unused = b""

    def receive_data(self, data: bytes) -> bytes:
        return data

    def receive_eof(self) -> None:
        self.complete = True


@dataclass(frozen=True, slots=True)
class ResponseHead:
    """A response head, the decoder of the body that follows it, and the body bytes that came in the same
    read.

    `keep_alive` says whether the connection may serve another request once the body is complete.
    """

    http_version: bytes
    status: int
    reason: bytes
    headers: list[tuple[bytes, bytes]]
    keep_alive: bool
    body: BodyDecoder
    leftover: bytes


class Exchange:
    """Writes one request and reads the head of its response. One object serves one exchange."""

    __slots__ = ("_h11", "_interim", "_method", "_request_closes")

    def __init__(self, method: str) -> None:
        self._method = method
        self._h11 = h11.Connection(our_role=h11.CLIENT, max_incomplete_event_size=MAX_HEAD)
        self._interim = 0
        self._request_closes = False

    def request_head(self, target: bytes, headers: Headers) -> bytes:
        """The bytes of the request head. Raises RequestError; the caller goes on with `request_body`."""
        self._request_closes = b"close" in _tokens(headers, b"connection")
        try:
            request = h11.Request(method=self._method, target=target, headers=list(headers))
            return self._h11.send(request) or b""
        except h11.LocalProtocolError:
            # The cause is dropped on purpose: h11 quotes the header that it refuses.
            raise RequestError(
                "method, target or a header of the request has characters that HTTP/1.1 forbids,"
                " or its length headers contradict each other"
            ) from None

    def request_body(self, data: bytes, *, last: bool) -> bytes:
        """The wire bytes of a piece of the body, with the end of the message if it is the last piece."""
        try:
            coded = self._h11.send(h11.Data(data=data)) if data else b""
            end = self._h11.send(h11.EndOfMessage()) if last else b""
        except h11.LocalProtocolError:
            raise RequestError("the request body does not have the length that content-length says") from None
        return (coded or b"") + end if end else coded or b""

    def receive_data(self, data: bytes) -> ResponseHead | None:
        """Take bytes of the response; None means that the head is not complete. Raises FramingError.

        After a head has been returned, feed its `body` decoder instead, first with `leftover`.
        """
        try:
            self._h11.receive_data(data)
            event = self._h11.next_event()
            while isinstance(event, h11.InformationalResponse):
                self._interim += 1
                if self._interim > MAX_INTERIM:
                    raise FramingError(f"more than {MAX_INTERIM} interim responses before the real one")
                event = self._h11.next_event()
        except h11.RemoteProtocolError as error:
            raise FramingError(f"the response head is not HTTP/1.1: {_without_quote(error)}") from None
        if event is h11.NEED_DATA:
            return None
        if not isinstance(event, h11.Response):
            raise FramingError("the server answered with something else than a response head")
        leftover, _ = self._h11.trailing_data
        return self._head(event, leftover)

    @property
    def interim_responses(self) -> int:
        """How many 1xx responses have been skipped: a sign of life for the caller's read timeout."""
        return self._interim

    def _head(self, response: h11.Response, leftover: bytes) -> ResponseHead:
        headers = list(response.headers)
        body = _body_decoder(self._method, response.status_code, headers)
        return ResponseHead(
            http_version=b"HTTP/" + response.http_version,
            status=response.status_code,
            reason=response.reason,
            headers=response.headers.raw_items(),
            keep_alive=(
                # "A client that has sent close MUST NOT send further requests on that connection", and
                # HTTP/1.0 persistence is an extension that gains us nothing.
                response.http_version >= b"1.1"
                and not self._request_closes
                and b"close" not in _tokens(headers, b"connection")
                and not isinstance(body, UntilCloseBody)
            ),
            body=body,
            leftover=leftover,
        )


def _body_decoder(method: str, status: int, headers: Headers) -> BodyDecoder:
    """The message body length rules of https://www.rfc-editor.org/rfc/rfc9112#section-6.3, for a client."""
    coding = [value for name, value in headers if name == b"transfer-encoding"]
    length = [value for name, value in headers if name == b"content-length"]
    if coding and length:
        # "ought to be handled as an error": two readers who disagree here see two different messages.
        raise FramingError("the response has both content-length and transfer-encoding")
    if method == "HEAD" or status in (204, 304):
        return LengthBody(0)
    if coding:
        return ChunkedBody()  # h11 has refused every other coding
    if length:
        return LengthBody(int(length[0]))  # h11 has checked that it is digits, and one value
    return UntilCloseBody()


def _tokens(headers: Headers, wanted: bytes) -> set[bytes]:
    return {
        token.strip().lower()
        for name, value in headers
        if name.lower() == wanted
        for token in value.split(b",")
    }


def _without_quote(error: h11.ProtocolError) -> str:
    # h11 puts the rule first and the repr of the offending bytes behind it.
    return str(error).partition(": b")[0]
