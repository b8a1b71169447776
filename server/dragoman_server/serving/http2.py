"""HTTP/2 on one connection.

Strategy: requests come in as h2's events; answers go out through one task, `send_task`, which frames what there is,
one DATA frame of each stream in turn, and writes it. Nothing else writes, so the task that reads never waits for a
client that does not: it sees its frames, and its leaving, at once.

What is held is bounded both ways. Of a request's body, the client may send what the application has taken (the windows
of `_http2_connection`). Of an answer, the application is made to wait as soon as STREAM_BUFFER bytes are held.
"""

import logging
import re
from functools import partial
from typing import TYPE_CHECKING

import anyio
import anyio.lowlevel
from h2.errors import ErrorCodes
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    RemoteSettingsChanged,
    RequestReceived,
    StreamEnded,
    StreamReset,
    WindowUpdated,
)
from h2.events import Event as FrameEvent
from h2.exceptions import DenialOfServiceError, ProtocolError
from hypercorn.events import Closed, Event, RawData, Updated
from hypercorn.protocol.events import (
    Body,
    EndBody,
    InformationalResponse,
    Request,
    Response,
    StreamClosed,
    Trailers,
)
from hypercorn.protocol.events import Event as StreamEvent
from hypercorn.protocol.h2 import H2Protocol
from hypercorn.protocol.http_stream import HTTPStream
from hypercorn.utils import filter_pseudo_headers
from starlette.types import Message, Receive, Scope, Send

from dragoman import RemoteProtocolError

from ..exchange import encode_headers
from ..replies import Reply
from ._http2_connection import HTTP2Connection
from ._limited_log import LimitedLog
from .refusals import refused_scope
from .request_head import check_fields

if TYPE_CHECKING:
    from .connection import Connection

__all__ = ["HTTP2"]

_refusals = LimitedLog(logging.getLogger("dragoman.http"), logging.WARNING)

# Bytes held of one answer that its client has no window for, two frames of the usual size. When all streams of the
# connection together hold CONNECTION_BUFFER, each waits from LEAST_BUFFER on, so that streams which stand still do not
# stop the others, and a connection holds 1.5 MiB at most (128 streams).
STREAM_BUFFER = 32 * 1024
CONNECTION_BUFFER = 1024 * 1024
LEAST_BUFFER = 4 * 1024

# The largest DATA frame, whatever the client allows: streams take turns by frames.
MAX_FRAME = 16 * 1024
# Bytes framed for one write.
_WRITE = 64 * 1024
# Bytes read before other tasks run again: some 1,000 of the smallest frames.
_SLICE = 16 * 1024

# How long a client may take the last frames of a connection that is ended.
_LAST_WRITE_S = 1.0

_METHOD = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
# "the path and query parts of the target URI", which begins with a slash (RFC 9113, 8.3.1)
_PATH = re.compile(rb"/[!\"$-~]*")
# What would be more than one line in HTTP/1.1.
_CONTROL = re.compile(rb"[\0\r\n]")


class _Stream(HTTPStream):
    """One request: hypercorn's ASGI side of it, and what is held of both bodies."""

    def __init__(self, protocol: "HTTP2", stream_id: int, length: int | None) -> None:
        super().__init__(
            protocol.app,
            protocol.config,
            protocol.context,
            protocol.task_group,
            protocol.ssl,
            protocol.client,
            protocol.server,
            protocol.stream_send,
            stream_id,
        )
        self.app = partial(protocol.run_app, self)
        self.refusal: Reply | None = None  # the answer, where the application does not see the request
        self.length = length  # what content-length says
        self.received = 0
        self.unread = 0  # bytes that the application has not taken
        self.out = bytearray()
        self.complete = False  # nothing more comes into `out`
        self.ended = False  # END_STREAM is framed
        self._moved: anyio.Event | None = None

    async def moved(self) -> None:
        """Wait until something of `out` was framed, or the stream was closed."""
        if self._moved is None:
            self._moved = anyio.Event()
        await self._moved.wait()

    def move(self) -> None:
        if self._moved is not None:
            self._moved.set()
            self._moved = None


class HTTP2(H2Protocol):
    """transport: the connection; `connection` is that of h2."""

    connection: HTTP2Connection

    def __init__(self, transport: "Connection") -> None:
        super().__init__(*transport.protocol_arguments)
        self.transport = transport
        config = self.config
        self.connection = HTTP2Connection(
            config.h2_max_concurrent_streams, config.h2_max_header_list_size, anyio.current_time()
        )
        self._streams: dict[int, _Stream] = {}
        self._running = 0  # applications: one may go on for a while after its stream is closed
        # Streams that have something to send, in the order of their turns. hypercorn 0.18 protocol/h2.py:122 keeps
        # a tree of priorities, which RFC 9113, 5.3.2 has deprecated, and which raises when a client makes it too large.
        self._ready: dict[int, None] = {}
        self._held = 0  # bytes in `out` of all streams
        self._work = anyio.Event()
        self._writing = False
        self._written = anyio.Event()  # all of it, and nothing will follow
        self._stopping = False  # new requests are refused, open ones are finished
        self._ending = False  # nothing more is read, what is framed is written, then the connection ends

    @property
    def idle(self) -> bool:
        return not (self._running or self._streams)

    # Called by the connection.

    async def initiate(
        self, headers: list[tuple[bytes, bytes]] | None = None, settings: bytes | None = None
    ) -> None:
        # Without the upgrade from HTTP/1.1, for which the arguments are (deprecated: RFC 9113, 3.1).
        self.connection.begin()
        self.task_group.spawn(self.send_task)

    async def handle(self, event: Event) -> None:
        if isinstance(event, RawData):
            data = memoryview(event.data)
            for start in range(0, len(data), _SLICE):
                if start:
                    await anyio.lowlevel.checkpoint()
                if self.closed or self._ending:
                    return
                await self._receive(data[start : start + _SLICE])
        elif isinstance(event, Closed):
            self.closed = True
            await self._close_all()
            # hypercorn 0.18 protocol/h2.py:191: what was buffered hangs in reference cycles until a collection.
            self.connection.clear_outbound_data_buffer()
            self._work.set()

    async def timed_out(self) -> None:
        self.connection.announce_end()
        if not self._writing:
            await self.send(RawData(self.connection.data_to_send()))

    async def stop(self) -> None:
        if not (self._stopping or self._ending or self.closed):
            # hypercorn 0.18 protocol/h2.py:228 tells nothing as long as a stream is open.
            self._stopping = True
            self.connection.announce_end()
            self._work.set()
            if self.idle:
                await self._end()  # the connection ends after this, with or without what was framed

    # What the client sends.

    async def _receive(self, data: memoryview) -> None:
        try:
            for event in self.connection.receive(data, anyio.current_time()):
                await self._handle_event(event)
        except ProtocolError as error:
            # h2's words may have header values in them.
            reason = error if isinstance(error, DenialOfServiceError) else ErrorCodes(error.error_code).name
            _refusals.log("an HTTP/2 connection was ended: %s", reason)
            await self._end()
            return
        if self.connection.peer_has_ended:
            self._end_if_done()
        self._work.set()

    async def _handle_event(self, event: FrameEvent) -> None:
        if isinstance(event, RequestReceived):
            # It may have been reset by what came with it.
            if self.connection.is_open(event.stream_id):
                await self._begin_request(event)
        elif isinstance(event, DataReceived):
            await self._receive_body(event)
        elif isinstance(event, StreamEnded):
            if (stream := self._streams.get(event.stream_id)) is not None:
                if stream.length not in (None, stream.received):  # RFC 9113, 8.1.1
                    await self._close_stream(event.stream_id)
                    self.connection.refuse(event.stream_id, ErrorCodes.PROTOCOL_ERROR)
                else:
                    await stream.handle(EndBody(stream_id=event.stream_id))
        elif isinstance(event, StreamReset):
            if not event.remote_reset:
                _refusals.log("an HTTP/2 request was refused: %s", ErrorCodes(event.error_code or 0).name)
            await self._close_stream(event.stream_id)
        elif isinstance(event, WindowUpdated) and event.stream_id:
            if event.stream_id in self._streams:
                self._ready[event.stream_id] = None
        elif isinstance(event, WindowUpdated | RemoteSettingsChanged):
            self._ready.update(dict.fromkeys(self._streams))
        elif isinstance(event, ConnectionTerminated):
            await self._end()

    async def _begin_request(self, event: RequestReceived) -> None:
        """hypercorn 0.18 protocol/h2.py:320: a request without method or path is an UnboundLocalError."""
        stream_id, headers = event.stream_id, event.headers
        fields = dict(headers)
        method, path = fields[b":method"], fields.get(b":path", b"")
        length = fields.get(b"content-length")
        if not _is_usable(method, path) or b":protocol" in fields:
            # CONNECT is none of a gateway's methods, and websockets are refused over HTTP/1.1 too, so that the extended
            # form (RFC 8441) is not offered.
            _refusals.log("an HTTP/2 request was refused: its method or path cannot be used")
            self.connection.refuse(stream_id, ErrorCodes.PROTOCOL_ERROR)
            return
        if self._stopping or self._running >= self.config.h2_max_concurrent_streams:
            # hypercorn 0.18 protocol/h2.py:248 does not say that the request may be sent again (RFC 9113, 8.7).
            # Applications count, not streams: one that was cancelled may still be closing its upstream.
            self.connection.refuse(stream_id, ErrorCodes.REFUSED_STREAM)
            return
        stream = _Stream(self, stream_id, None if length is None else int(length))
        try:
            check_fields(path, headers)
        except RemoteProtocolError as error:
            scope = refused_scope(method.decode("ascii"), path, headers)
            stream.refusal = self.transport.worker.refusal(scope, error)
        self._streams[stream_id] = stream
        self._running += 1
        await self.send(Updated(idle=False))
        await stream.handle(
            Request(
                stream_id=stream_id,
                headers=filter_pseudo_headers(headers),
                http_version="2",
                method=method.decode("ascii"),
                raw_path=path,
                state=self.connection_state,
            )
        )
        self.keep_alive_requests += 1
        if self.keep_alive_requests >= self.config.keep_alive_max_requests:
            await self.stop()  # hypercorn 0.18 protocol/h2.py:257 cuts the open streams

    async def _receive_body(self, event: DataReceived) -> None:
        size = len(event.data)
        stream = self._streams.get(event.stream_id)
        # hypercorn 0.18 protocol/h2.py:259 is a KeyError for a stream that is answered.
        if stream is None or stream.closed:
            self._give_back(event.flow_controlled_length, event.stream_id)
            return
        self._give_back(event.flow_controlled_length - size, event.stream_id)
        stream.received += size
        if size:
            # hypercorn 0.18 protocol/h2.py:262 gives the room back here, before anybody has read. As it is now, the
            # queue to the application never holds more than the stream's window, and this never waits.
            stream.unread += size
            await stream.handle(Body(stream_id=event.stream_id, data=event.data))

    def _give_back(self, size: int, stream_id: int) -> None:
        if size and not (self._ending or self.closed):
            self.connection.acknowledge_received_data(size, stream_id)
            self._work.set()

    # The applications.

    async def run_app(self, stream: _Stream, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the application for one request, and see what it takes of the body."""

        async def read() -> Message:
            message = await receive()
            if size := len(message.get("body", b"")):
                stream.unread -= size
                if stream.stream_id in self._streams:  # else _close_stream() has given it back
                    self._give_back(size, stream.stream_id)
            return message

        try:
            if stream.refusal is None:
                await self.transport.worker.app(scope, read, send)
            else:
                await _send_reply(stream.refusal, send)
        finally:
            self._running -= 1
            stream.app = self.app  # what it was refers to the stream
            if stream.stream_id not in self._streams:
                # hypercorn 0.18 protocol/h2.py:272: after a reset nobody says that the connection is idle.
                await self._update()

    async def stream_send(self, event: StreamEvent) -> None:
        stream = self._streams.get(event.stream_id)
        if stream is None:
            return  # reset, or the connection has ended
        if isinstance(event, Body):
            await self._push(stream, event.data)
        elif isinstance(event, Response | InformationalResponse):
            status = (b":status", b"%d" % event.status_code)
            await self._send_headers(stream, [status, *event.headers, *self.config.response_headers("h2")])
        elif isinstance(event, EndBody):
            stream.complete = True
            await self._drain(stream)
        elif isinstance(event, Trailers):
            await self._drain(stream)
            if not stream.ended:
                stream.complete = stream.ended = True
                await self._send_headers(stream, event.headers, end_stream=True)
        elif isinstance(event, StreamClosed):
            await self._close_stream(event.stream_id)

    async def _send_headers(
        self, stream: _Stream, headers: list[tuple[bytes, bytes]], *, end_stream: bool = False
    ) -> None:
        try:
            if any(_CONTROL.search(value) for _, value in headers):
                # h2 4.4 utilities.py:685 checks what comes in, not what goes out (RFC 9113, 8.2.1).
                raise ProtocolError("a header has a control character")
            self.connection.send_headers(stream.stream_id, headers, end_stream)
        except ProtocolError as error:
            # hypercorn 0.18 protocol/h2.py:234: the body follows without a head.
            _refusals.log("an HTTP/2 answer cannot be sent: %s", error)
            await self._reset(stream.stream_id, ErrorCodes.INTERNAL_ERROR)
        self._work.set()

    async def _push(self, stream: _Stream, data: bytes) -> None:
        """Hold the bytes, waiting as long as too much is held.

        hypercorn 0.18 protocol/h2.py:74 wakes the application when what was taken is small, not what is held, so that a
        client without a window never makes it wait; and :67 clears the event after the wait, not before.
        """
        rest = memoryview(data)
        while True:
            part = rest[: max(0, self._limit() - len(stream.out))]
            if part:
                stream.out += part
                self._held += len(part)
                self._ready[stream.stream_id] = None
                self._work.set()
                rest = rest[len(part) :]
            if not rest or not await self._wait(stream):
                return

    def _limit(self) -> int:
        return STREAM_BUFFER if self._held < CONNECTION_BUFFER else LEAST_BUFFER

    async def _drain(self, stream: _Stream) -> None:
        """Wait until all is framed, with the end of the stream if it is complete."""
        self._ready[stream.stream_id] = None
        self._work.set()
        while (stream.complete and not stream.ended) or stream.out:
            if not await self._wait(stream):
                return

    async def _wait(self, stream: _Stream) -> bool:
        """Wait for a frame of this stream. False when there will be none any more."""
        stall_s = self.transport.settings.send_timeout_s
        with anyio.move_on_after(stall_s) as scope:
            await stream.moved()
        if scope.cancelled_caught and stream.stream_id in self._streams:
            _refusals.log("an HTTP/2 client took nothing of an answer for %g seconds", stall_s)
            await self._reset(stream.stream_id, ErrorCodes.CANCEL)
        return stream.stream_id in self._streams

    # Closing.

    async def _reset(self, stream_id: int, error_code: ErrorCodes) -> None:
        if self.connection.is_open(stream_id) and not self._ending:
            self.connection.reset_stream(stream_id, error_code)
            self._work.set()
        await self._close_stream(stream_id)

    async def _close_stream(self, stream_id: int) -> None:
        stream = self._streams.pop(stream_id, None)
        if stream is None:
            return
        self._ready.pop(stream_id, None)
        self._held -= len(stream.out)
        stream.out.clear()
        self._give_back(stream.unread, stream_id)
        await stream.handle(StreamClosed(stream_id=stream_id))
        stream.move()
        await self._update()

    async def _close_all(self) -> None:
        for stream_id in tuple(self._streams):
            await self._close_stream(stream_id)

    async def _update(self) -> None:
        if not (self.closed or self._ending):
            await self.send(Updated(idle=self.idle))
        self._end_if_done()

    def _end_if_done(self) -> None:
        if (self._stopping or self.connection.peer_has_ended) and self.idle:
            self._ending = True
            self._work.set()

    async def _end(self) -> None:
        """End the connection; what is framed is still written, if the client takes it."""
        self._ending = True
        self._work.set()
        await self._close_all()
        with anyio.move_on_after(_LAST_WRITE_S):
            await self._written.wait()
        await self.send(Closed())

    # Writing.

    async def send_task(self) -> None:
        """Write until the connection ends."""
        while not self.closed:
            if data := self._next_frames():
                self._writing = True
                await self.send(RawData(data))
                self._writing = False
            elif self._ending:
                self._written.set()
                await self.send(Closed())
                return
            else:
                await self._work.wait()
                self._work = anyio.Event()

    def _next_frames(self) -> bytes:
        room = _WRITE
        while self._ready and room > 0:
            stream_id = next(iter(self._ready))
            del self._ready[stream_id]
            if (stream := self._streams.get(stream_id)) is not None:
                room -= self._frame(stream)
        return self.connection.data_to_send()

    def _frame(self, stream: _Stream) -> int:
        """Frame what one turn of a stream allows; its size."""
        connection, stream_id = self.connection, stream.stream_id
        if stream.ended or not connection.is_open(stream_id):
            return 0
        window = min(
            connection.local_flow_control_window(stream_id), connection.max_outbound_frame_size, MAX_FRAME
        )
        size = min(len(stream.out), max(window, 0))
        is_last = stream.complete and size == len(stream.out)
        if not size and not is_last:
            return 0
        connection.send_data(stream_id, bytes(stream.out[:size]), end_stream=is_last)
        connection.note_data_sent()
        del stream.out[:size]
        self._held -= size
        if is_last:
            stream.ended = True
            if connection.is_open(stream_id):
                # The client is still sending what nobody will read: "a server MAY request that the client abort
                # transmission of a request without error" (RFC 9113, 8.1)
                connection.reset_stream(stream_id, ErrorCodes.NO_ERROR)
        elif stream.out:
            self._ready[stream_id] = None
        stream.move()
        return size


async def _send_reply(reply: Reply, send: Send) -> None:
    headers = encode_headers([*reply.headers, ("content-length", str(len(reply.body)))])
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": reply.body})


def _is_usable(method: bytes, path: bytes) -> bool:
    if _METHOD.fullmatch(method) is None or method == b"CONNECT":
        return False
    return _PATH.fullmatch(path) is not None or (path == b"*" and method == b"OPTIONS")
