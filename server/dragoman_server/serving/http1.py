"""HTTP/1.1 on one connection: hypercorn's protocol, with what it lacks against clients that leave, attack, or send what
can be read in two ways.

Strategy: bytes that come go into a buffer. A head is checked whole (`request_head`) before h11 sees it, a body is h11's
as it comes, and what lies behind a request waits here until the request is answered. So whoever reads the socket never
waits for an answer, and sees at once that the client has left. Each request has an h11 of its own, so nothing of one
can become part of another. What is refused here is answered as the application refuses (`refusals`).
"""

from enum import Enum, auto
from typing import TYPE_CHECKING, Any

import anyio
import h11
from hypercorn.events import Closed, Event, RawData, Updated
from hypercorn.protocol.events import Body, Data, EndBody, Response
from hypercorn.protocol.events import Event as StreamEvent
from hypercorn.protocol.h11 import STREAM_ID, H11Protocol

from dragoman import RemoteProtocolError

from ..exchange import encode_headers
from .refusals import refused_scope
from .request_head import MAX_HEAD_BYTES, check_head, check_part, salvage, split_absolute

if TYPE_CHECKING:
    from .connection import Connection

__all__ = ["HTTP1", "READ_AHEAD_BYTES"]

# What is held of bytes that a client sends behind a request before that one is answered. With more, they are dropped
# and the connection ends with the answer: "a client that pipelines requests SHOULD retry unanswered requests if the
# connection closes" (RFC 9112, 9.3.2). Not to read instead would be not to see the client leave.
READ_AHEAD_BYTES = 64 * 1024

_EMPTY_LINE = b"\r\n"


class _Reading(Enum):
    """What the next bytes are."""

    HEAD = auto()
    BODY = auto()
    AHEAD = auto()  # behind the request that is being answered
    NOTHING = auto()  # the connection ends with the answer


class HTTP1(H11Protocol):
    """transport: the connection; `connection` is h11's."""

    def __init__(self, transport: "Connection") -> None:
        super().__init__(*transport.protocol_arguments)
        self.transport = transport
        self.connection = self._new_h11()
        self._reading = _Reading.HEAD
        self._buffer = bytearray()
        self._checked = 0  # bytes of an incomplete head that were looked at
        # Both the reader and the end of an answer, with bytes behind its request, go on parsing.
        self._parsing = anyio.Lock(fast_acquire=True)

    # Called by the connection.

    async def handle(self, event: Event) -> None:
        if isinstance(event, RawData):
            if self._reading is not _Reading.NOTHING:
                self._buffer += event.data
                await self._handle_events()
        else:
            if isinstance(event, Closed):
                self._read_nothing_more()
            await super().handle(event)

    async def timed_out(self) -> None:
        """The deadline of reading has passed (see Connection.read_within). The connection ends after this."""
        async with self._parsing:
            if self._reading is _Reading.HEAD and self._buffer:
                within = f"{self.transport.settings.header_timeout_s:g} seconds"
                late = f"the request's head was not complete within {within}"
                await self._refuse(RemoteProtocolError(late, status_hint=408), bytes(self._buffer))

    async def stop(self) -> None:
        """The worker is being stopped, and this connection is not idle."""

    # Called by the stream.

    async def stream_send(self, event: StreamEvent) -> None:
        if isinstance(event, Body):  # the piece of a stream: the first to be looked for
            await self._send_h11_event(h11.Data(data=event.data))
            return
        if isinstance(event, Response) and self._is_last:
            event = Response(event.stream_id, [*event.headers, (b"connection", b"close")], event.status_code)
        await super().stream_send(event)

    @property
    def _is_last(self) -> bool:
        """Whether the connection ends with this answer; hypercorn 0.18 protocol/h11.py:279 does not say so.

        "A server that intends to close the connection ... SHOULD send a Connection header field" -- RFC 9112, 9.6
        """
        return self._reading in (_Reading.BODY, _Reading.NOTHING) or self.context.terminated.is_set()

    async def _maybe_recycle(self) -> None:
        if self._reading is not _Reading.AHEAD:
            self._read_nothing_more()
            await self._close_stream()
            await self.send(Closed())
            return
        await super()._maybe_recycle()
        if self.connection.our_state is h11.IDLE:
            self.connection = self._new_h11()
            self._reading = _Reading.HEAD
            if self._buffer:
                self.task_group.spawn(self._handle_events)

    # Parsing.

    async def _handle_events(self) -> None:
        async with self._parsing:
            if self._reading is _Reading.HEAD:
                await self._read_head()
            if self._reading is _Reading.BODY:
                await self._read_body()
            # hypercorn 0.18 protocol/h11.py:173 waits from the first byte behind a request on, so that nobody reads the
            # socket and nobody sees the client leave.
            if self._reading is _Reading.AHEAD and len(self._buffer) > READ_AHEAD_BYTES:
                self._read_nothing_more()

    async def _read_head(self) -> None:
        # "a server ... SHOULD ignore at least one empty line (CRLF) received prior to the request-line"
        # -- RFC 9112, 2.2
        while self._buffer.startswith(_EMPTY_LINE):
            del self._buffer[:2]
        if len(self._buffer) < 2 and b"\r".startswith(self._buffer):
            return
        end = self._buffer.find(_EMPTY_LINE * 2, max(0, self._checked - 3)) + 4
        head = bytes(self._buffer[:end] if end > 3 else self._buffer)
        try:
            if end < 4:
                check_part(head, self._checked)
                if not self._checked:
                    # hypercorn 0.18 protocol/h11.py:153 has no time limit for a head but that of an idle connection.
                    self.transport.read_within(self.transport.settings.header_timeout_s)
                self._checked = len(head)
                return
            check_head(head)
            del self._buffer[:end]
            self._checked = 0
            self.connection.receive_data(head)
            request = self.connection.next_event()
        except h11.RemoteProtocolError as error:
            # h11 has no rule that check_head() lacks; should it get one, it counts.
            await self._refuse(RemoteProtocolError(str(error), status_hint=error.error_status_hint), head)
            return
        except RemoteProtocolError as error:
            await self._refuse(error, head)
            return
        assert isinstance(request, h11.Request)
        self._reading = _Reading.BODY
        await self.send(Updated(idle=False))
        # hypercorn 0.18 protocol/h11.py:292 changes to HTTP/2 here whatever `http2` says. Prior knowledge is seen by
        # the connection, where HTTP/2 is wanted; "Upgrade: h2c" is deprecated (RFC 9113, 3.1) and ignored, as RFC 9110,
        # 7.8 allows, since clients that want HTTP/2 in clear text have prior knowledge.
        usual = request.target.startswith(b"/") and b"\nupgrade:" not in head.lower()
        await self._create_stream(request if usual else _as_served(request))

    async def _read_body(self) -> None:
        # In place of hypercorn 0.18 protocol/h11.py:147, which answers a broken body itself, with nothing in it, and
        # tells the application that the client has left.
        if self._buffer:
            self.connection.receive_data(bytes(self._buffer))
            self._buffer.clear()
        while self.stream is not None:
            if self.connection.they_are_waiting_for_100_continue:
                headers = self.config.response_headers("h11")
                await self._send_h11_event(h11.InformationalResponse(status_code=100, headers=headers))
            try:
                event = self.connection.next_event()
            except h11.RemoteProtocolError as error:
                self._reading = _Reading.NOTHING
                broken = RemoteProtocolError(f"the request's body cannot be read: {error}")
                put: Any = self.stream.app_put
                await put({"type": "http.disconnect", "error": broken})
                return
            if isinstance(event, h11.Data):
                await self.stream.handle(Body(STREAM_ID, bytes(event.data)))
            elif isinstance(event, Data):
                # hypercorn 0.18 protocol/ws_stream.py:235 answers bytes behind the handshake of a WebSocket with a 400
                # of its own, beside the application's answer. No WebSocket is accepted here, so nobody reads them.
                continue
            elif isinstance(event, h11.EndOfMessage):
                self._buffer += self.connection.trailing_data[0]
                self._reading = _Reading.AHEAD
                await self.stream.handle(EndBody(STREAM_ID))
                return
            else:
                return

    async def _refuse(self, error: RemoteProtocolError, head: bytes) -> None:
        """Answer what is no request, and end the connection."""
        self._read_nothing_more()
        method, target, fields = salvage(head)
        await self.send(Updated(idle=False))
        reply = self.transport.worker.refusal(refused_scope(method.decode(), target, fields), error)
        # h11 gets a request of ours in place of the one that it has not seen, or that broke it: it frames the answer.
        self.connection = self._new_h11()
        self.connection.receive_data(method + b" / HTTP/1.1\r\nhost: -\r\nconnection: close\r\n\r\n")
        self.connection.next_event()
        headers = encode_headers([*reply.headers, ("content-length", str(len(reply.body)))])
        await self.stream_send(Response(STREAM_ID, headers, reply.status))
        if method != b"HEAD":
            await self.stream_send(Body(STREAM_ID, reply.body))
        await self.send(Closed())

    def _new_h11(self) -> h11.Connection:
        return h11.Connection(h11.SERVER, MAX_HEAD_BYTES)

    def _read_nothing_more(self) -> None:
        self._reading = _Reading.NOTHING
        self._buffer.clear()


def _as_served(request: h11.Request) -> h11.Request:
    """The request with a path for a URL, and without an upgrade that is none."""
    target, headers = request.target, list(request.headers)
    if (parts := split_absolute(target)) is not None:
        # "the origin server MUST ignore the received Host header field (if any) and instead replace it with the host
        # information of the request-target" -- RFC 9112, 3.2.2
        authority, target = parts
        headers = [(b"host", authority), *(each for each in headers if each[0] != b"host")]
    fields = dict(headers)
    if b"upgrade" in fields and not (
        b"sec-websocket-key" in fields and fields.get(b"sec-websocket-version") == b"13"
    ):
        # hypercorn 0.18 protocol/ws_stream.py:217 answers the handshake of a WebSocket that is none (RFC 6455, 4.2.1)
        # with a bare 400. "A server MAY ignore a received Upgrade header field" -- RFC 9110, 7.8
        headers = [each for each in headers if each[0] != b"upgrade"]
    if target == request.target and headers == list(request.headers):
        return request
    return h11.Request(
        method=request.method, target=target, headers=headers, http_version=request.http_version
    )
