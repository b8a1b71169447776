"""HTTP/1.1 on one connection, hardened against clients that leave, attack, or send ambiguous bytes.

Received bytes go into a buffer. A whole head is checked and read by `request_head`, a body by a decoder of
`http1_body`; what follows a request stays in the buffer until the response has ended. So the task that reads the socket
never waits for a response, and reacts immediately when the client leaves. Each response is written by its own object,
of `http1_response`, so no bytes of one can become part of another. Between both and the application is an HTTPStream
or a WebSocket.
"""

from collections.abc import Awaitable, Callable, Mapping
from enum import Enum, auto
from functools import partial
from typing import TYPE_CHECKING

import anyio
import anyio.lowlevel
from starlette.types import Message

from dragoman import RemoteProtocolError, RequestRefused
from dragoman_server.platform.changes import Lock
from dragoman_server.serving import request_head
from dragoman_server.serving.asgi_stream import HTTPStream
from dragoman_server.serving.connection import Connection
from dragoman_server.serving.http1_response import Http1Response, date_header, interim_response
from dragoman_server.serving.refusals import refusal
from dragoman_server.serving.request_head import StreamRequest
from dragoman_server.serving.tasks import AppEvents
from dragoman_server.serving.websocket_handshake import is_handshake, read_upgrade
from dragoman_server.streams.http1_body import BodyDecoder, ChunkedBody, LengthBody
from dragoman_server.streams.http1_head import Headers

if TYPE_CHECKING:
    from dragoman_server.serving.websocket import WebSocket

# Bytes to buffer that a client sends after a request and before the end of its response. If there are more, they are
# dropped and the connection ends with the response: "a client that pipelines requests SHOULD retry unanswered requests
# if the connection closes" (RFC 9112, 9.3.2). If we stopped reading instead, a client that leaves would
# not be noticed.
READ_AHEAD_BYTES = 64 * 1024

# Bytes of a chunked body, or of frames, that are read before other tasks run: some 2,700 chunks of one byte.
_SLICE = 16 * 1024

# Larger parts of a response are not copied for the bytes around them.
_LARGE_BYTES = 64 * 1024

_Wait = Callable[[], Awaitable[None]]

_EMPTY_LINE = b"\r\n"
_END = _EMPTY_LINE * 2  # of a head

_STREAM_ID = 1  # a connection has one request at a time


class _Reading(Enum):
    """The meaning of the next bytes."""

    HEAD = auto()
    BODY = auto()
    AHEAD = auto()  # after the request whose response is not complete
    FRAMES = auto()  # of a WebSocket
    NOTHING = auto()  # the connection ends with the response


# CPython 3.11 takes as long to look up a member of an enum as for several calls.
_HEAD, _BODY, _AHEAD, _FRAMES, _NOTHING = _Reading


class HTTP1:
    """HTTP/1.1 on one connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._stream: HTTPStream | WebSocket | None = None
        self.is_behind = False
        self._response: Http1Response  # of the open request
        self._begun = b""  # the head of the response, until more of it can be written
        self._body: BodyDecoder = LengthBody(0)
        self._reading = _HEAD
        self._buffer = bytearray()
        self._checked = 0  # bytes of an incomplete head that are checked
        # The reader parses, and so does the end of a response if bytes follow its request.
        self._parsing = Lock()
        self._waiting: _Wait | None = None  # what to await before more is parsed

    # Called by the connection.

    def take(self, data: bytes) -> bool:
        if self._reading is not _NOTHING:
            self._buffer += data
            if not self._parsing.locked:
                self._waiting = self._parse_now()
            self.is_behind = self._parsing.locked or self._waiting is not None
        return not self.is_behind

    async def data_received(self, data: bytes) -> None:
        self.is_behind = False
        if self._reading is not _NOTHING:
            self._buffer += data
            await self._parse()

    async def connection_lost(self) -> None:
        self._stop_reading()
        self._close_stream()

    async def timed_out(self) -> None:
        """End the connection; refuse a head that is not complete in time."""
        async with self._parsing:
            if self._reading is _HEAD and self._buffer:
                within = f"{self._connection.settings.header_timeout_s:g} seconds"
                late = f"the request's head was not complete within {within}"
                await self._refuse(RequestRefused(late, status=408), bytes(self._buffer))
            self._connection.end()

    async def stop(self) -> None:
        """End the connection if it is idle, else close_stream() does it."""
        if self._reading is _HEAD:
            self._connection.end()

    # Called by the stream.

    async def send_head(self, stream_id: int, status: int, headers: Headers) -> None:
        if status == 101:
            await self._write(interim_response(status, [*headers, date_header()]))
            return
        # "A server that intends to close the connection ... SHOULD send a Connection header field" -- RFC 9112, 9.6
        is_last = self._reading is not _AHEAD or self._connection.worker.terminated.is_set
        close = [(b"connection", b"close")] if is_last else []
        self._begun = self._response.begin(status, [*headers, *close, date_header()])

    def send_data(self, stream_id: int, data: bytes, *, is_last: bool = False) -> Awaitable[None]:
        before = after = b""
        if self._response.has_begun:  # else these are frames, behind a 101
            before, after = self._response.around(len(data), is_last=is_last)
        if len(data) > _LARGE_BYTES:
            return self._write(before, data, after)
        return self._write(before + data + after)

    async def close_stream(self, stream_id: int) -> None:
        if self._begun:
            await self._write(b"")
        self._close_stream()
        is_stopping = self._connection.worker.terminated.is_set
        if self._reading is _AHEAD and self._response.is_kept and not is_stopping:
            self._reading = _HEAD
            self._connection.set_idle(True)
            if self._buffer:
                self._connection.tasks.start_soon(self._parse)
        else:
            self._stop_reading()
            self._connection.end()

    async def invite_body(self) -> None:
        """Send a 100 (Continue): the application waits for the body, so it has not refused the request by its head."""
        if self._reading is _BODY and not self._response.has_begun:
            await self._write(interim_response(100, [date_header()]))

    def write_now(self, data: bytes) -> bool:
        """Write a piece of the response's body if that is possible without waiting. See WriteNow.

        The stream is not asked: a part of a chunked body changes nothing in its state.
        """
        if not self._response.is_chunked or self._begun:
            return False
        if not data:
            return True  # a chunk without data would be the last one
        return self._connection.write_now(b"%x\r\n%b\r\n" % (len(data), data))

    async def _write(self, data: bytes, *more: bytes) -> None:
        """Write bytes of the response, after the head, which waits for them: so a short one needs one write."""
        data, self._begun = self._begun + data, b""
        if data or more:
            await self._connection.write(data, *more)

    def _close_stream(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()

    # Parsing.

    async def _parse(self) -> None:
        async with self._parsing:
            waiting, self._waiting = self._waiting or self._parse_now(), None
            while waiting is not None:
                await waiting()
                waiting = self._parse_now()

    def _parse_now(self) -> _Wait | None:
        """Parse what has arrived. Return what to await before more can be parsed, None if there is nothing more."""
        waiting = self._read_head() if self._reading is _HEAD else None
        if self._reading is _BODY and waiting is None:
            waiting = self._read_body()
        if self._reading is _AHEAD:
            if len(self._buffer) > READ_AHEAD_BYTES:
                self._stop_reading()
        elif self._reading is _FRAMES and self._buffer and self._stream is not None:
            return self._read_frames
        return waiting

    def _read_head(self) -> _Wait | None:
        buffer = self._buffer
        # "a server ... SHOULD ignore at least one empty line (CRLF) received prior to the request-line"
        # -- RFC 9112, 2.2
        while buffer.startswith(_EMPTY_LINE):
            del buffer[:2]
        end = buffer.find(_END, max(0, self._checked - 3)) + 4
        head = bytes(buffer[:end] if end > 3 else buffer)
        try:
            if end < 4:
                if b"\r".startswith(head):  # nothing of it yet, or the first half of an empty line
                    return None
                request_head.check_partial_head(head, self._checked)
                if not self._checked:
                    self._connection.read_within(self._connection.settings.header_timeout_s)
                self._checked = len(head)
                return None
            request, fields = request_head.read_head(head)
            del buffer[:end]
            self._checked = 0
            self._begin_request(request, fields)
        except (RemoteProtocolError, RequestRefused) as error:
            return partial(self._refuse, error, head)
        return None

    def _begin_request(self, request: StreamRequest, fields: Mapping[bytes, bytes]) -> None:
        connection, version = self._connection, request.http_version
        handshake = None
        if b"upgrade" in fields and is_handshake(request.method, version, fields):
            handshake = read_upgrade(request.headers)
        self._response = Http1Response(version, request.method, fields.get(b"connection", b""))
        connection.set_idle(False)
        if handshake is not None:
            from dragoman_server.serving.websocket import WebSocket  # few clients open one

            self._reading = _FRAMES
            self._stream = WebSocket(handshake, connection.worker.app, connection, self, _STREAM_ID)
            self._stream.begin(request)
            return
        self._reading = _BODY
        # request_head has refused every other framing (RFC 9112, 6.3).
        if b"transfer-encoding" in fields:
            self._body = ChunkedBody(padded=False)
        else:
            self._body = LengthBody(int(fields.get(b"content-length", 0)))
        invites_body = b"expect" in fields and version >= "1.1"
        events = connection.request_events = AppEvents(self.invite_body if invites_body else None)
        self._stream = HTTPStream(connection.worker.app, connection, self, _STREAM_ID, events)
        self._stream.begin(request, self.write_now)

    async def _read_frames(self) -> None:
        while self._buffer and self._stream is not None:
            data = bytes(self._buffer[:_SLICE])
            del self._buffer[: len(data)]
            await self._stream.receive_data(data)
            await anyio.lowlevel.checkpoint()

    def _read_body(self) -> _Wait | None:
        body, buffer, stream = self._body, self._buffer, self._stream
        part = bytes(buffer[:_SLICE] if type(body) is ChunkedBody else buffer)
        del buffer[: len(part)]
        data = body.receive_data(part)
        if body.complete:
            if body.unused:
                buffer[:0] = body.unused
            self._reading = _AHEAD
        elif body.error is not None:
            self._reading = _NOTHING
        waiting: _Wait | None = None
        if isinstance(stream, HTTPStream):  # else the response has ended
            if data or body.complete:
                event: Message = {"type": "http.request", "body": data, "more_body": not body.complete}
                if not stream.events.offer(event):
                    waiting = partial(self._connection.put, stream.events, event)
            if body.error is not None:
                broken = RemoteProtocolError(f"the request's body cannot be read: {body.error}")
                end: Message = {"type": "http.disconnect", "error": broken}
                stream.events.offer(end)
        if waiting is None and buffer and self._reading is _BODY:
            # One read of the socket may have 40,000 chunks of one byte, so other tasks run in between.
            waiting = anyio.lowlevel.checkpoint
        return waiting

    async def _refuse(self, error: RemoteProtocolError | RequestRefused, head: bytes) -> None:
        """Respond to a head that cannot be served, and end the connection."""
        self._stop_reading()
        method, target, fields = request_head.parse_broken(head)
        self._connection.set_idle(False)
        reply = refusal(self._connection.worker.app, method, target, fields, self._connection.client, error)
        self._response = Http1Response("1.1", method.decode(), b"close")
        await self.send_head(_STREAM_ID, reply.status, reply.encoded_headers())
        if method != b"HEAD":
            await self.send_data(_STREAM_ID, reply.body)
        await self._write(b"")
        self._connection.end()

    def _stop_reading(self) -> None:
        self._reading = _NOTHING
        self._buffer.clear()
