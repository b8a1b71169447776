"""HTTP/1.1 on one connection: hypercorn's protocol, hardened against clients that leave, attack, or send ambiguous
bytes.

Received bytes go into a buffer. A whole head is checked by `request_head` before h11 parses it; a body goes to h11 as
it arrives; what follows a request stays in the buffer until the response has ended. So the task that reads the socket
never waits for a response, and reacts at once when the client leaves. Each request has its own h11 connection, so no
bytes of one can become part of another.
"""

from enum import Enum, auto
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
import h11
from h11._receivebuffer import ReceiveBuffer
from hypercorn.events import Closed, Event, RawData, Updated
from hypercorn.protocol.events import Body, Data, EndBody, Response
from hypercorn.protocol.events import Event as StreamEvent
from hypercorn.protocol.h11 import STREAM_ID, H11Protocol

from dragoman import RemoteProtocolError, RequestRefused
from dragoman_server.serving.refusals import refused_scope
from dragoman_server.serving.request_head import (
    MAX_HEAD_BYTES,
    check_head,
    check_partial_head,
    is_chunk_line,
    is_trailer_section,
    parse_broken,
    split_absolute_form,
)

if TYPE_CHECKING:
    from dragoman_server.serving.connection import Connection

__all__ = ["HTTP1", "READ_AHEAD_BYTES"]

# Bytes to buffer that a client sends after a request and before the end of its response. If there are more, they are
# dropped and the connection ends with the response: "a client that pipelines requests SHOULD retry unanswered requests
# if the connection closes" (RFC 9112, 9.3.2). If we stopped reading instead, a client that leaves would
# not be noticed.
READ_AHEAD_BYTES = 64 * 1024

# Bytes of a body that are read before other tasks run: some 2,700 chunks of one byte.
_SLICE = 16 * 1024

_EMPTY_LINE = b"\r\n"


if not hasattr(h11.Connection(h11.SERVER), "_receive_buffer"):
    # hypercorn allows any version of h11. Without this attribute _BodyBuffer would silently not be used.
    raise ImportError("this version of h11 has no Connection._receive_buffer")


class _Reading(Enum):
    """The meaning of the next bytes."""

    HEAD = auto()
    BODY = auto()
    AHEAD = auto()  # after the request whose response is not complete
    NOTHING = auto()  # the connection ends with the response


class HTTP1(H11Protocol):
    """HTTP/1.1 on one connection. transport: our Connection; hypercorn's name `connection` is h11's."""

    def __init__(self, transport: "Connection") -> None:
        super().__init__(*transport.protocol_arguments)
        self.transport = transport
        self.connection = self._new_h11()
        self._reading = _Reading.HEAD
        self._buffer = bytearray()
        self._checked = 0  # bytes of an incomplete head that are checked
        # The reader parses, and so does the end of a response if bytes follow its request.
        self._parsing = anyio.Lock(fast_acquire=True)

    # Called by the connection.

    async def handle(self, event: Event) -> None:
        if isinstance(event, RawData):
            if self._reading is not _Reading.NOTHING:
                self._buffer += event.data
                await self._handle_events()
        else:
            if isinstance(event, Closed):
                self._stop_reading()
            await super().handle(event)

    async def timed_out(self) -> None:
        """Refuse a head that is not complete in time."""
        async with self._parsing:
            if self._reading is _Reading.HEAD and self._buffer:
                within = f"{self.transport.settings.header_timeout_s:g} seconds"
                late = f"the request's head was not complete within {within}"
                await self._refuse(RequestRefused(late, status=408), bytes(self._buffer))

    async def stop(self) -> None:
        """Do nothing: _maybe_recycle() ends the connection with the open response."""

    # Called by the stream.

    async def stream_send(self, event: StreamEvent) -> None:
        if isinstance(event, Body):  # first, because most events are parts of streams
            await self._send_h11_event(h11.Data(data=event.data))
            return
        if isinstance(event, Response) and self._is_last:
            event = Response(event.stream_id, [*event.headers, (b"connection", b"close")], event.status_code)
        await super().stream_send(event)

    @property
    def _is_last(self) -> bool:
        """True if the connection ends with this response; hypercorn 0.18 protocol/h11.py:289 sends no `close`.

        "A server that intends to close the connection ... SHOULD send a Connection header field" -- RFC 9112, 9.6
        """
        return self._reading in (_Reading.BODY, _Reading.NOTHING) or self.context.terminated.is_set()

    async def _maybe_recycle(self) -> None:
        if self._reading is not _Reading.AHEAD:
            self._stop_reading()
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
            # hypercorn 0.18 protocol/h11.py:176 waits from the first byte after a request on: the socket is not read,
            # and a client that leaves is not noticed.
            if self._reading is _Reading.AHEAD and len(self._buffer) > READ_AHEAD_BYTES:
                self._stop_reading()

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
                check_partial_head(head, self._checked)
                if not self._checked:
                    # hypercorn 0.18 protocol/h11.py:171 ends the idle time with the whole head: no other limit.
                    self.transport.read_within(self.transport.settings.header_timeout_s)
                self._checked = len(head)
                return
            check_head(head)
            del self._buffer[:end]
            self._checked = 0
            self.connection.receive_data(head)
            request = self.connection.next_event()
        except h11.RemoteProtocolError as error:
            # Not reached with h11 0.16, which has no rule that check_head() lacks.
            await self._refuse(RemoteProtocolError(str(error), status=error.error_status_hint), head)
            return
        except (RemoteProtocolError, RequestRefused) as error:
            await self._refuse(error, head)
            return
        assert isinstance(request, h11.Request)
        assert isinstance(self.connection, h11.Connection)
        self.connection._receive_buffer = _BodyBuffer()
        self._reading = _Reading.BODY
        await self.send(Updated(idle=False))
        # hypercorn 0.18 protocol/h11.py:311 switches to HTTP/2 here, whatever `http2` is. Connection recognizes prior
        # knowledge; "Upgrade: h2c" is deprecated (RFC 9113, 3.1) and ignored, as RFC 9110, 7.8 allows.
        usual = request.target.startswith(b"/") and b"\nupgrade:" not in head.lower()
        await self._create_stream(request if usual else _as_served(request))

    async def _read_body(self) -> None:
        # One read of the socket may have 40,000 chunks of one byte, so other tasks run in between.
        await self._read_part_of_body()
        while self._buffer and self._reading is _Reading.BODY:
            await anyio.lowlevel.checkpoint()
            await self._read_part_of_body()

    async def _read_part_of_body(self) -> None:
        # Instead of hypercorn 0.18 protocol/h11.py:164, which responds to a broken body with an empty 400, and passes
        # the application a disconnect, as if the client had left, and each chunk by itself, however small.
        if self._buffer:
            self.connection.receive_data(bytes(self._buffer[:_SLICE]))
            del self._buffer[:_SLICE]
        if self.connection.they_are_waiting_for_100_continue:
            headers = self.config.response_headers("h11")
            await self._send_h11_event(h11.InformationalResponse(status_code=100, headers=headers))
        body, end, broken = bytearray(), False, None
        try:
            while isinstance(event := self.connection.next_event(), h11.Data | Data):
                # hypercorn 0.18 protocol/ws_stream.py:239 sends a 400 for bytes after the handshake of a WebSocket (its
                # Data), beside the application's response. They are dropped, because no WebSocket is accepted here.
                if isinstance(event, h11.Data):
                    body += event.data
            end = isinstance(event, h11.EndOfMessage)
        except h11.RemoteProtocolError as error:
            broken = RemoteProtocolError(f"the request's body cannot be read: {error}")
        if end:
            self._buffer[:0] = self.connection.trailing_data[0]
            self._reading = _Reading.AHEAD
        elif broken is not None:
            self._reading = _Reading.NOTHING
        stream = self.stream
        if stream is None:
            return
        if body:
            await stream.handle(Body(STREAM_ID, bytes(body)))
        if end:
            await stream.handle(EndBody(STREAM_ID))
        elif broken is not None:
            put: Any = stream.app_put
            await put({"type": "http.disconnect", "error": broken})

    async def _refuse(self, error: RemoteProtocolError | RequestRefused, head: bytes) -> None:
        """Respond to a head that cannot be served, and end the connection."""
        self._stop_reading()
        method, target, fields = parse_broken(head)
        await self.send(Updated(idle=False))
        reply = self.transport.worker.refusal(refused_scope(method.decode(), target, fields), error)
        # h11 frames the response, for which it needs a request. It gets this one, because it has not parsed the
        # client's.
        self.connection = self._new_h11()
        self.connection.receive_data(method + b" / HTTP/1.1\r\nhost: -\r\nconnection: close\r\n\r\n")
        self.connection.next_event()
        await self.stream_send(Response(STREAM_ID, reply.encoded_headers(), reply.status))
        if method != b"HEAD":
            await self.stream_send(Body(STREAM_ID, reply.body))
        await self.send(Closed())

    def _new_h11(self) -> h11.Connection:
        return h11.Connection(h11.SERVER, MAX_HEAD_BYTES)

    def _stop_reading(self) -> None:
        self._reading = _Reading.NOTHING
        self._buffer.clear()


class _BodyBuffer(ReceiveBuffer):
    """The bytes of a body, from which h11 takes lines when it is chunked.

    h11 0.16 _receivebuffer.py:104 ends a trailer section at bare LF; _abnf.py:118 takes a size of 80 bits, and anything
    in an extension, CR too.
    """

    def maybe_extract_next_line(self) -> bytearray | None:
        line = super().maybe_extract_next_line()
        if line is not None and not is_chunk_line(line):
            raise h11.RemoteProtocolError("a chunk does not begin with its size and CRLF")
        return line

    def maybe_extract_lines(self) -> list[bytearray] | None:
        before = bytes(self)
        lines = super().maybe_extract_lines()
        if lines is not None and not is_trailer_section(before[: len(before) - len(self)]):
            raise h11.RemoteProtocolError("a line after the last chunk is not `name: value` and CRLF")
        return lines


def _as_served(request: h11.Request) -> h11.Request:
    """Replace a URL as the target by its path, and drop an upgrade that is not a valid WebSocket handshake."""
    target, headers = request.target, list(request.headers)
    if (parts := split_absolute_form(target)) is not None:
        # "the origin server MUST ignore the received Host header field (if any) and instead replace it with the host
        # information of the request-target" -- RFC 9112, 3.2.2
        authority, target = parts
        headers = [(b"host", authority), *(each for each in headers if each[0] != b"host")]
    fields = dict(headers)
    if b"upgrade" in fields and not (
        b"sec-websocket-key" in fields and fields.get(b"sec-websocket-version") == b"13"
    ):
        # hypercorn 0.18 protocol/ws_stream.py:231 sends an empty 400 for an invalid handshake (RFC 6455, 4.2.1).
        # "A server MAY ignore a received Upgrade header field" -- RFC 9110, 7.8
        headers = [each for each in headers if each[0] != b"upgrade"]
    if target == request.target and headers == list(request.headers):
        return request
    return h11.Request(
        method=request.method, target=target, headers=headers, http_version=request.http_version
    )
