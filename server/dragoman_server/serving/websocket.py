"""One WebSocket, between frames and ASGI.

HTTP1 and HTTP2 use it like an HTTPStream. The task that reads the connection never writes and never waits for the
application: it parses, queues messages, and notes what is to be written. A task of each open WebSocket writes that:
pings, pongs and the Close, after which it ends the stream.
"""

from collections.abc import Iterable
from contextlib import suppress
from enum import Enum, auto
from typing import Any

import anyio
import anyio.lowlevel

from dragoman import RequestRefused
from dragoman_server.platform.changes import Changes, Lock
from dragoman_server.serving.asgi_stream import asgi_scope
from dragoman_server.serving.connection import Connection, HTTPProtocol
from dragoman_server.serving.refusals import refusal
from dragoman_server.serving.request_head import StreamRequest
from dragoman_server.serving.tasks import AppEvents, ClientLeft
from dragoman_server.serving.websocket_frames import (
    ABNORMAL,
    BINARY,
    INTERNAL_ERROR,
    PING,
    PONG,
    SERVICE_RESTART,
    TEXT,
    TRY_AGAIN_LATER,
    Close,
    DataMessage,
    FrameError,
    Ping,
    WebSocketReader,
    close_frame,
    control_frame,
    data_frames,
)
from dragoman_server.serving.websocket_handshake import Handshake
from dragoman_server.streams.byte_stream import DRAINING, NOW, UTF8

# Seconds of silence before a ping: below the shortest idle timeouts of proxies (30 to 60 s).
PING_S = 20.0
# So many pings in a row without an answer, and any bytes are one, and the client is gone.
MAX_UNANSWERED = 2
# Seconds to wait for the client's Close after ours.
CLOSE_S = 2.0
# Bytes of pongs that wait for a client that does not read. With more, only the last ping is answered, which is enough
# (RFC 6455, 5.5.3).
MAX_PONGS = 2048
# Bytes that a client may send before its handshake is answered, which it should wait for (RFC 6455, 4.1).
MAX_EARLY = 64 * 1024


class _Phase(Enum):
    HANDSHAKE = auto()  # not answered
    REFUSING = auto()  # an HTTP response has begun
    OPEN = auto()
    CLOSING = auto()  # nothing but a Close is written any more


class WebSocket:
    """One WebSocket, with the methods of HTTPStream.

    Attributes:
        closed: The protocol has closed the stream.
    """

    def __init__(
        self,
        handshake: Handshake,
        app: Any,
        connection: Connection,
        writer: HTTPProtocol,
        stream_id: int,
    ) -> None:
        self.app = app
        self.closed = False
        self._worker = connection.worker
        self._connection = connection
        self._writer = writer
        self._stream_id = stream_id
        self._handshake = handshake
        self._request: StreamRequest
        self._events = AppEvents()
        self._phase = _Phase.HANDSHAKE
        self._early = b""  # received before the accept
        self._refusal: Any = None  # the application's http.response.start
        self._reader: WebSocketReader
        self._utf8 = False  # see UTF8
        self._reading = Lock()
        self._left = False  # the client has left, or said that it does
        self._unanswered = 0  # pings
        self._pongs = b""  # to be written
        self._close: bytes | None = None  # to be written
        self._changes = Changes()  # of what is to be written, and of `_left`
        self._writing = Lock()  # one message at a time
        self._is_whole = True  # the last frame is, so another one may follow it

    # Called by the protocol.

    def begin(self, request: StreamRequest) -> None:
        """Start the application."""
        self._request = request
        scope: Any = {
            **asgi_scope(request, self._connection, "websocket", "2.4"),
            "scheme": "wss" if self._connection.tls else "ws",
            "subprotocols": list(self._handshake.subprotocols),
            "extensions": {"websocket.http.response": {}, DRAINING: self._worker.terminated, UTF8: {}},
        }
        if request.http_version != "2":
            scope["extensions"][NOW] = {"send": self.send_now}
        # Not the connection's request, which has a second to end: who ends its side without a Close is gone.
        self._connection.apps.start(self.app, scope, self._events, self.app_send)
        self._events.offer({"type": "websocket.connect"})

    async def receive_end(self) -> None:
        """End without a Close: "TCP-level closures are represented as END_STREAM flags" -- RFC 8441, 5."""
        if not self.closed:
            self._end_without_close()

    def close(self) -> None:
        """Note that nothing more is received or sent."""
        if not self.closed:
            self.closed = True
            self._disconnect(ABNORMAL)

    def _disconnect(self, code: int, reason: str = "") -> None:
        """Tell the application that the client has left. Only the first call counts."""
        self._left = True
        disconnect: Any = {"type": "websocket.disconnect", "code": code, "reason": reason}
        self._events.offer(disconnect)
        self._changes.note()

    def _end_without_close(self) -> None:
        """End without a Close, because the client is gone."""
        if self._phase is _Phase.OPEN:
            self._phase = _Phase.CLOSING
        self._disconnect(ABNORMAL)

    # What the client sends.

    async def receive_data(self, data: bytes) -> None:
        """Read frames."""
        if self.closed:
            return
        if self._phase is _Phase.HANDSHAKE:
            self._early += data
            if len(self._early) > MAX_EARLY:
                self._phase, self._left = _Phase.CLOSING, True
                self._connection.tasks.start_soon(self._refuse_early_data)
            return
        async with self._reading:
            data, self._early = self._early + data, b""
            self._unanswered = 0
            if self._left or self._phase is _Phase.REFUSING:
                return
            try:
                for event in self._reader.receive(data, self._worker.time()):
                    await self._handle_frame(event)
            except FrameError as error:
                self._begin_close(error.code, error.reason)
                self._disconnect(error.code, error.reason)

    async def _handle_frame(self, event: DataMessage | Ping | Close | None) -> None:
        if isinstance(event, Ping) and self._phase is _Phase.OPEN:
            pong = control_frame(PONG, event.payload)
            self._pongs = self._pongs + pong if len(self._pongs) < MAX_PONGS else pong
            self._changes.note()
        elif isinstance(event, Close):
            self._begin_close(event.code, event.reason)
            self._disconnect(event.code, event.reason)
        elif isinstance(event, DataMessage) and self._phase is _Phase.OPEN:
            received: Any = {"type": "websocket.receive", "text": None, "bytes": None}
            if event.opcode == TEXT:
                received["text"] = event.content if self._utf8 else event.content.decode()
            else:
                received["bytes"] = event.content
            if not self._events.offer(received):
                # The messages are in order, so the client may send them again, unlike after a 1008.
                raise FrameError(TRY_AGAIN_LATER, "messages come faster than they are processed")
            await anyio.lowlevel.checkpoint()  # for the application to receive it
        elif event is None:
            await anyio.lowlevel.checkpoint()

    async def _refuse_early_data(self) -> None:
        error = RequestRefused("too much was sent before the handshake was answered", status=400)
        request = self._request
        path, headers = request.target, request.headers
        reply = refusal(self._worker.app, b"GET", path, headers, self._connection.client, error)
        await self._respond(reply.status, reply.encoded_headers(), reply.body)
        await self._writer.close_stream(self._stream_id)

    # What the application sends.

    async def app_send(self, message: Any) -> None:
        """Send an ASGI message; None: the application has ended. Raises OSError if the client has left."""
        if message is None:
            await self._app_ended()
            return
        if self._left or self._phase is _Phase.CLOSING:
            raise ClientLeft("the WebSocket is closed")
        match self._phase, message["type"]:
            case _Phase.OPEN, "websocket.send":
                opcode, data = BINARY, message.get("bytes")
                if data is None:
                    opcode, data = TEXT, message["text"]
                data = data.encode() if isinstance(data, str) else data
                await self._write(data_frames(DataMessage(opcode, data)))
            case _Phase.HANDSHAKE, "websocket.accept":
                await self._accept(message)
            case _Phase.OPEN, "websocket.close":
                self._begin_close(message.get("code", 1000), message.get("reason") or "")
            case _Phase.HANDSHAKE, "websocket.close":
                self._phase = _Phase.REFUSING
                await self._respond(403)
            case _Phase.HANDSHAKE, "websocket.http.response.start":
                self._refusal = message
            case ((_Phase.HANDSHAKE | _Phase.REFUSING), "websocket.http.response.body"):
                if self._phase is _Phase.HANDSHAKE:
                    self._phase = _Phase.REFUSING
                    refused = self._refusal
                    await self._writer.send_head(self._stream_id, refused["status"], refused["headers"])
                body, is_last = message.get("body", b""), not message.get("more_body", False)
                await self._writer.send_data(self._stream_id, body, is_last=is_last)
            case phase, kind:
                raise RuntimeError(f"{kind} cannot be sent in the phase {phase.name}")

    def send_now(self, texts: Iterable[bytes]) -> bool:
        """Send texts as messages if that is possible without waiting. See NOW."""
        if self._phase is not _Phase.OPEN or not self._is_whole:
            return False
        frames = [frame for text in texts for frame in data_frames(DataMessage(TEXT, text))]
        return self._connection.write_now(b"".join(frames))

    async def _accept(self, message: Any) -> None:
        status, headers = self._handshake.accept(message.get("subprotocol"), message.get("headers", ()))
        limit = self._connection.settings.max_body_bytes
        inflates = self._handshake.extensions is not None
        self._utf8 = bool(message.get("utf8"))
        self._reader = WebSocketReader(limit, inflates=inflates, now=self._worker.time())
        await self._writer.send_head(self._stream_id, status, headers)
        self._phase = _Phase.OPEN
        self._connection.tasks.start_soon(self._attend, name="websocket")

    async def _app_ended(self) -> None:
        if self._phase is _Phase.OPEN:
            # It was cancelled by a stop, or has forgotten the Close, or failed.
            stopping = self._worker.terminated.is_set
            self._begin_close(SERVICE_RESTART if stopping else INTERNAL_ERROR, "")
        elif not self.closed and self._phase is not _Phase.CLOSING:
            if self._phase is _Phase.HANDSHAKE:
                await self._respond(500)
            await self._writer.close_stream(self._stream_id)

    async def _respond(self, status: int, headers: Any = (), body: bytes = b"") -> None:
        """Send a whole HTTP response instead of opening the WebSocket."""
        await self._writer.send_head(self._stream_id, status, headers or [(b"content-length", b"0")])
        await self._writer.send_data(self._stream_id, body, is_last=True)

    # Writing.

    def _begin_close(self, code: int, reason: str) -> None:
        """Have a Close written, unless there is one."""
        if self._phase is _Phase.OPEN:
            self._close = close_frame(code, reason)
            self._phase = _Phase.CLOSING
            self._changes.note()

    async def _write(self, frames: Iterable[bytes]) -> None:
        """Write the frames of a message, and the pongs that wait. Raises OSError if nothing may be written any more."""
        async with self._writing:
            for frame in frames:
                if not self._is_whole or (self._phase is _Phase.CLOSING and frame is not self._close):
                    raise ClientLeft("the WebSocket is closed")
                pongs, self._pongs = self._pongs, b""
                self._is_whole = False  # so it stays, if this is cancelled in the middle of the frame
                await self._writer.send_data(self._stream_id, pongs + frame)
                self._is_whole = True

    async def _attend(self) -> None:
        """Write what the application does not, until the Close, and end the stream."""
        await self.receive_data(b"")  # what came before the accept
        while self._phase is _Phase.OPEN and not self.closed:
            if self._pongs and self._is_whole:
                with suppress(OSError):
                    await self._write([b""])
                continue
            with anyio.move_on_after(PING_S) as silence:
                await self._changes.wait()
            if silence.cancelled_caught:
                if self._unanswered == MAX_UNANSWERED:
                    self._end_without_close()
                    break
                self._unanswered += 1
                with suppress(OSError):
                    await self._write([control_frame(PING)])
        with suppress(OSError):  # a frame was cut, so this is no orderly end
            if self._close is not None:
                await self._write([self._close])
                with anyio.move_on_after(CLOSE_S):
                    while not self._left:
                        await self._changes.wait()
            await self._writer.send_data(self._stream_id, b"", is_last=True)
        await self._writer.close_stream(self._stream_id)
