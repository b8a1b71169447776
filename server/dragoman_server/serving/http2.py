"""HTTP/2 on one connection, between h2's frames and an ASGI stream or a WebSocket for each request.

Requests arrive as h2's events. Responses go out through one task, `send_task`, which frames the buffered bytes, one
DATA frame of each stream in turn, and writes it. Nothing else writes, so the task that reads never waits for a client
that does not read: it handles the client's frames, and its leaving, immediately.

Buffers are bounded in both directions: bodies of requests by the windows of `http2_connection`, which grow by what the
application has read; responses by STREAM_BUFFER, above which the application waits.
"""

import logging
import re
from functools import partial
from typing import Any

import anyio
import anyio.lowlevel
from h2 import events
from h2.errors import ErrorCodes
from h2.events import Event as FrameEvent
from h2.exceptions import DenialOfServiceError, ProtocolError
from starlette.types import Message, Receive, Scope, Send

from dragoman import RequestRefused
from dragoman_server.platform.changes import Changes, Flag
from dragoman_server.serving.asgi_stream import HTTPStream
from dragoman_server.serving.connection import Connection
from dragoman_server.serving.http1_response import date_header
from dragoman_server.serving.http2_connection import HTTP2Connection
from dragoman_server.serving.refusals import refusal
from dragoman_server.serving.request_head import HOST, MAX_HEAD_BYTES, StreamRequest, check_fields
from dragoman_server.serving.tasks import AppEvents
from dragoman_server.serving.websocket import WebSocket
from dragoman_server.serving.websocket_handshake import Handshake, read_connect
from dragoman_server.streams.http1_head import Headers
from dragoman_server.wire.replies import Reply, send_reply

_log = logging.getLogger("dragoman.http")

# Requests at a time. A client process seldom has more; further ones wait instead of being refused.
MAX_STREAMS = 128

# Bytes to buffer of one response whose client has no window, two frames of the usual size. When all streams of the
# connection together have CONNECTION_BUFFER, each may have only MIN_STREAM_BUFFER, so that stalled streams do not stop
# the others, and a connection has 1.5 MiB at most (128 streams).
STREAM_BUFFER = 32 * 1024
CONNECTION_BUFFER = 1024 * 1024
MIN_STREAM_BUFFER = 4 * 1024

# The largest DATA frame, whatever the client allows: streams take turns by frames.
MAX_FRAME = 16 * 1024
# Bytes framed before one write.
_WRITE_SIZE = 64 * 1024

# Seconds for a client to read the last frames of a connection that we end.
_LAST_FRAMES_S = 1.0

_METHOD = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
# "the path and query parts of the target URI", which begins with a slash (RFC 9113, 8.3.1)
_PATH = re.compile(rb"/[!\"$-~]*")
# A value with one of these would be more than one line in HTTP/1.1.
_CONTROL = re.compile(rb"[\0\r\n]")


class _Stream:
    """One request: its ASGI side, and the buffers of both bodies."""

    def __init__(
        self, protocol: "HTTP2", stream_id: int, length: int | None, handshake: Handshake | None
    ) -> None:
        app, connection = partial(protocol.run_app, self), protocol.connection
        self.asgi: HTTPStream | WebSocket = (
            HTTPStream(app, connection, protocol, stream_id, AppEvents())
            if handshake is None
            else WebSocket(handshake, app, connection, protocol, stream_id)
        )
        self.stream_id = stream_id
        self.reply: Reply | None = None  # sent instead of calling the application
        self.length = length  # content-length
        self.received = 0
        self.unread = 0  # bytes received that the application has not read
        self.buffer = bytearray()
        self.complete = False  # nothing more comes into `buffer`
        self.ended = False  # END_STREAM is framed
        self.progress = Changes()  # a part of `buffer` has been framed, or the stream has been closed


class HTTP2:
    """HTTP/2 on one connection. It writes its settings, and starts the task that writes."""

    take = None  # nothing is parsed where it arrives
    is_behind = False

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.h2 = HTTP2Connection(MAX_STREAMS, MAX_HEAD_BYTES, anyio.current_time())
        self._streams: dict[int, _Stream] = {}
        self._running = 0  # applications; one may need a while to end after its stream is closed
        # Streams that have something to send, in the order of their turns. A client's priorities are ignored: RFC 9113,
        # 5.3.2 has deprecated them.
        self._ready: dict[int, None] = {}
        self._buffered = 0  # bytes in the buffers of all streams
        self._has_work = Flag()
        self._stopping = False  # new requests are refused, open ones are finished
        self._ending = False  # nothing more is read; framed bytes are written, then the connection ends
        self._closed = False  # it has ended
        connection.tasks.start_soon(self._write_task)

    @property
    def idle(self) -> bool:
        return not (self._running or self._streams)

    # Called by the connection.

    async def data_received(self, data: bytes) -> None:
        while not (self._closed or self._ending):
            await self._receive(data)
            if not self.h2.has_more:
                return
            data = b""
            await anyio.lowlevel.checkpoint()

    async def connection_lost(self) -> None:
        self._closed = True
        self._close_all()
        self.h2.clear_outbound_data_buffer()
        self._has_work.set()

    async def timed_out(self) -> None:
        """End an idle connection with GOAWAY; end one whose client does not read our last frames without it."""
        if self._ending:
            self.connection.end()
        else:
            self.h2.announce_end()
            await self._end()

    async def stop(self) -> None:
        """Refuse new requests, and end the connection after the open ones."""
        if not (self._stopping or self._ending or self._closed):
            self._stopping = True
            self.h2.announce_end()
            self._has_work.set()
            if self.idle:
                await self._end()

    # What the client sends.

    async def _receive(self, data: bytes) -> None:
        try:
            for event in self.h2.receive(data, anyio.current_time()):
                await self._handle_event(event)
                if self._closed or self._ending:
                    return
        except ProtocolError as error:
            # The text of h2's own errors may contain header values.
            reason = error if isinstance(error, DenialOfServiceError) else ErrorCodes(error.error_code).name
            _log.warning("an HTTP/2 connection was ended: %s", reason)
            await self._end()
            return
        if self.h2.peer_has_ended:
            self._end_if_done()
        self._has_work.set()

    async def _handle_event(self, event: FrameEvent) -> None:
        if isinstance(event, events.RequestReceived):
            # A later frame of the same read may have reset it.
            if self.h2.is_open(event.stream_id):
                await self._begin_request(event)
        elif isinstance(event, events.DataReceived):
            await self._receive_body(event)
        elif isinstance(event, events.StreamEnded):
            if (stream := self._streams.get(event.stream_id)) is not None:
                if stream.length not in (None, stream.received):  # RFC 9113, 8.1.1
                    self._close_stream(event.stream_id)
                    self.h2.refuse(event.stream_id, ErrorCodes.PROTOCOL_ERROR)
                else:
                    await stream.asgi.receive_end()
        elif isinstance(event, events.StreamReset):
            if not event.remote_reset:
                _log.warning("an HTTP/2 request was refused: %s", ErrorCodes(event.error_code or 0).name)
            self._close_stream(event.stream_id)
        elif isinstance(event, events.WindowUpdated) and event.stream_id:
            if event.stream_id in self._streams:
                self._ready[event.stream_id] = None
        elif isinstance(event, events.WindowUpdated | events.RemoteSettingsChanged):
            self._ready.update(dict.fromkeys(self._streams))
        elif isinstance(event, events.ConnectionTerminated):
            await self._end()

    async def _begin_request(self, event: events.RequestReceived) -> None:
        """Start the application for a request, or refuse it."""
        stream_id, headers = event.stream_id, event.headers
        fields = dict(headers)
        method, path = fields[b":method"], fields.get(b":path", b"")
        host = fields.get(b":authority", fields.get(b"host", b""))
        length = fields.get(b"content-length")
        protocol = fields.get(b":protocol")  # of an extended CONNECT (RFC 8441)
        if not _is_usable(b"GET" if protocol is not None else method, path, host):
            _log.warning("an HTTP/2 request was refused: its method, path or host cannot be used")
            self.h2.refuse(stream_id, ErrorCodes.PROTOCOL_ERROR)
            return
        if self._stopping or self._running >= MAX_STREAMS:
            # The code allows the client to send the request again (RFC 9113, 8.7). Applications count, not streams,
            # because a cancelled one may still be closing its upstream.
            self.h2.refuse(stream_id, ErrorCodes.REFUSED_STREAM)
            return
        handshake = reply = None
        try:
            check_fields(path, headers)
            if protocol is not None:
                handshake = read_connect(protocol, headers)
        except RequestRefused as error:
            reply = refusal(self.connection.worker.app, method, path, headers, self.connection.client, error)
        stream = _Stream(self, stream_id, None if length is None else int(length), handshake)
        stream.reply = reply
        self._streams[stream_id] = stream
        if handshake is not None:
            self.h2.websockets.add(stream_id)
        self._running += 1
        self.connection.set_idle(False)
        request = StreamRequest(_as_http1(headers, host), "2", method.decode("ascii"), path)
        asgi = stream.asgi
        if isinstance(asgi, HTTPStream):
            asgi.begin(request, partial(self._write_now, stream, asgi))
        else:
            asgi.begin(request)

    async def _receive_body(self, event: events.DataReceived) -> None:
        size = len(event.data)
        stream = self._streams.get(event.stream_id)
        if stream is None or stream.asgi.closed:  # its response has ended
            self._acknowledge(event.flow_controlled_length, event.stream_id)
            return
        self._acknowledge(event.flow_controlled_length - size, event.stream_id)
        stream.received += size
        if size:
            # The window is opened again when the application has read this: its queue never has more than the stream's
            # window, and handle() does not wait. A WebSocket has its own limits, so that a Close is never held up.
            if isinstance(stream.asgi, WebSocket):
                self._acknowledge(size, event.stream_id)
            else:
                stream.unread += size
            await stream.asgi.receive_data(event.data)

    def _acknowledge(self, size: int, stream_id: int) -> None:
        if size and not (self._ending or self._closed):
            self.h2.acknowledge_received_data(size, stream_id)
            self._has_work.set()

    # The applications.

    async def run_app(self, stream: _Stream, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the application for one request, and open the window by what it reads of the body."""
        app: Any = self.connection.worker.app

        async def read() -> Message:
            message = await receive()
            if size := len(message.get("body", b"")):
                stream.unread -= size
                if stream.stream_id in self._streams:  # else _close_stream() has done it
                    self._acknowledge(size, stream.stream_id)
            return message

        try:
            if stream.reply is None:
                await app(scope, read, send)
            else:
                await send_reply(send, stream.reply)
        finally:
            self._running -= 1
            stream.asgi.app = app  # because the old value refers to the stream
            if stream.stream_id not in self._streams:
                self._update()

    async def send_head(self, stream_id: int, status: int, headers: Headers) -> None:
        if (stream := self._streams.get(stream_id)) is not None:  # else reset, or the connection has ended
            # Some applications have blanks around values.
            fields = [(name.strip(), value.strip()) for name, value in headers]
            await self._send_headers(stream, [(b":status", b"%d" % status), *fields, date_header()])

    async def send_data(self, stream_id: int, data: bytes, *, is_last: bool = False) -> None:
        if data and (stream := self._streams.get(stream_id)) is not None:
            await self._push(stream, data)
        if is_last and (stream := self._streams.get(stream_id)) is not None:
            stream.complete = True
            self._ready[stream_id] = None
            self._has_work.set()
            while not stream.ended and await self._wait(stream):
                pass

    async def close_stream(self, stream_id: int) -> None:
        stream = self._streams.get(stream_id)
        if stream is not None and stream.ended:
            self._close_stream(stream_id)
        elif stream is not None:
            while self._frame(stream):
                pass
            self._reset(stream_id, ErrorCodes.INTERNAL_ERROR)

    async def _send_headers(self, stream: _Stream, headers: list[tuple[bytes, bytes]]) -> None:
        try:
            if any(_CONTROL.search(value) for _, value in headers):
                # h2 4.4 utilities.py:685 checks received headers, not sent ones (RFC 9113, 8.2.1).
                raise ProtocolError("a header has a control character")
            self.h2.send_headers(stream.stream_id, headers)
        except ProtocolError as error:
            _log.warning("an HTTP/2 response cannot be sent: %s", error)
            self._reset(stream.stream_id, ErrorCodes.INTERNAL_ERROR)
        self._has_work.set()

    async def _push(self, stream: _Stream, data: bytes) -> None:
        """Buffer the bytes, waiting while too much is buffered."""
        rest = memoryview(data)
        while True:
            part = rest[: self._room(stream)]
            if part:
                self._buffer(stream, part)
                rest = rest[len(part) :]
            if not rest or not await self._wait(stream):
                return

    def _write_now(self, stream: _Stream, asgi: HTTPStream, data: bytes) -> bool:
        """Buffer a piece of a response's body if there is room for it. See WriteNow."""
        if asgi.closed or not asgi.takes_body or len(data) > self._room(stream):
            return False
        if data:
            self._buffer(stream, data)
        return True

    def _room(self, stream: _Stream) -> int:
        limit = STREAM_BUFFER if self._buffered < CONNECTION_BUFFER else MIN_STREAM_BUFFER
        return max(0, limit - len(stream.buffer))

    def _buffer(self, stream: _Stream, data: bytes | memoryview) -> None:
        stream.buffer += data
        self._buffered += len(data)
        self._ready[stream.stream_id] = None
        self._has_work.set()

    async def _wait(self, stream: _Stream) -> bool:
        """Wait until a frame of this stream has been written, at most send_timeout_s. Return False if none will be."""
        timeout = self.connection.settings.send_timeout_s
        with anyio.move_on_after(timeout) as scope:
            await stream.progress.wait()
        if scope.cancelled_caught and stream.stream_id in self._streams:
            text = "an HTTP/2 client read nothing of a response for %g seconds; its request is cancelled"
            _log.warning(text, timeout)
            self._reset(stream.stream_id, ErrorCodes.CANCEL)
        return stream.stream_id in self._streams

    # Closing.

    def _reset(self, stream_id: int, error_code: ErrorCodes) -> None:
        if self.h2.is_open(stream_id) and not self._ending:
            self.h2.reset_stream(stream_id, error_code)
            self._has_work.set()
        self._close_stream(stream_id)

    def _close_stream(self, stream_id: int) -> None:
        stream = self._streams.pop(stream_id, None)
        if stream is None:
            return
        self._ready.pop(stream_id, None)
        self.h2.websockets.discard(stream_id)
        self._buffered -= len(stream.buffer)
        stream.buffer.clear()
        self._acknowledge(stream.unread, stream_id)
        stream.asgi.close()
        stream.progress.note()
        self._update()

    def _close_all(self) -> None:
        for stream_id in tuple(self._streams):
            self._close_stream(stream_id)

    def _update(self) -> None:
        if not (self._closed or self._ending):
            self.connection.set_idle(self.idle)
        self._end_if_done()

    def _end_if_done(self) -> None:
        if (self._stopping or self.h2.peer_has_ended) and self.idle:
            self._ending = True
            self._has_work.set()

    async def _end(self) -> None:
        """End the connection. Frames that are ready are still written, if the client reads them soon."""
        self._ending = True
        self._has_work.set()
        self._close_all()
        self.connection.read_within(_LAST_FRAMES_S)

    # Writing.

    async def _write_task(self) -> None:
        """Write until the connection ends."""
        while not self._closed:
            if data := self._next_frames():
                await self.connection.write(data)
            elif self._ending:
                self.connection.end()
                return
            else:
                await self._has_work.wait()
                self._has_work.is_set = False

    def _next_frames(self) -> bytes:
        room = _WRITE_SIZE
        while self._ready and room > 0:
            stream_id = next(iter(self._ready))
            del self._ready[stream_id]
            if (stream := self._streams.get(stream_id)) is not None:
                room -= self._frame(stream)
        return self.h2.data_to_send()

    def _frame(self, stream: _Stream) -> int:
        """Frame at most one DATA frame of a stream, and return the bytes of its content."""
        h2, stream_id = self.h2, stream.stream_id
        if stream.ended or not h2.is_open(stream_id):
            return 0
        window = min(h2.local_flow_control_window(stream_id), h2.max_outbound_frame_size, MAX_FRAME)
        size = min(len(stream.buffer), max(window, 0))
        is_last = stream.complete and size == len(stream.buffer)
        if not size and not is_last:
            return 0
        data = bytes(stream.buffer[:size])
        if is_last:
            h2.send_data(stream_id, data, end_stream=True)
        else:
            h2.send_part(stream_id, data)
        h2.note_data_sent()
        del stream.buffer[:size]
        self._buffered -= size
        if is_last:
            stream.ended = True
            if h2.is_open(stream_id):
                # The client is still sending a body that is not needed: "a server MAY request that the client abort
                # transmission of a request without error" (RFC 9113, 8.1)
                h2.reset_stream(stream_id, ErrorCodes.NO_ERROR)
        elif stream.buffer:
            self._ready[stream_id] = None
        stream.progress.note()
        return size


def _as_http1(headers: Headers, host: bytes) -> list[tuple[bytes, bytes]]:
    """Return the fields of a request, with its host in the place of `:authority`."""
    return [(b"host", host), *[field for field in headers if field[0] != b"host" and field[0][:1] != b":"]]


def _is_usable(method: bytes, path: bytes, host: bytes) -> bool:
    # `:authority` "MUST NOT include the deprecated userinfo subcomponent" (RFC 9113, 8.3.1)
    if _METHOD.fullmatch(method) is None or method == b"CONNECT" or HOST.fullmatch(host) is None:
        return False
    return _PATH.fullmatch(path) is not None or (path == b"*" and method == b"OPTIONS")
