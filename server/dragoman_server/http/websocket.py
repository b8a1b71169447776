"""Serve requests over a WebSocket: each `response.create` is a request like POST, and its response comes as messages.

A connection is a task group. One task reads what the client sends, all the time, because a client cancels by leaving;
one makes requests of the messages; one waits for the end of the connection's time; and each lane in use has one. A
request goes the way of those over HTTP, from the check of its client key on, with headers of the handshake: so limits,
budgets, the log and recordings are the same, and a reload is effective from the next request on.
"""

from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Protocol

import anyio
import anyio.lowlevel
from starlette.types import Message, Receive, Scope, Send

from dragoman import RemoteProtocolError, RequestRefused
from dragoman.codec import ProtocolSpec, WebSocketWriter
from dragoman_server.http.client_messages import (
    Create,
    EventReply,
    RefusedMessage,
    binary_refusal,
    read_message,
    with_lane,
)
from dragoman_server.http.errors import INTERNAL_ERROR
from dragoman_server.platform.cancellation import return_if_cancelled
from dragoman_server.platform.changes import Changes
from dragoman_server.platform.off_loop import INLINE_BYTES, off_loop
from dragoman_server.proxying.client_request import SCOPE_TURN
from dragoman_server.responses.recent import RecentResponses, Turn
from dragoman_server.settings.server import MAX_BODY_BYTES
from dragoman_server.streams.byte_stream import DRAINING, NOW, UTF8
from dragoman_server.wire.headers import BROWSER_HEADERS, retry_headers
from dragoman_server.wire.replies import Reply

# The limit of OpenAI's server and of the Open Responses specification (2026-04-24), in whose words clients are told.
LIFETIME_S = 3600.0

# Lanes that work at a time, as at OpenAI's server, and requests that wait behind the one of a lane.
MAX_LANES = 16
MAX_WAITING = 4
# Of all that wait, in bytes. One of them may have the size of the largest body.
MAX_WAITING_BYTES = MAX_BODY_BYTES
# Messages that nobody has read yet: more are a flood.
_MAX_UNREAD = 64
# Seconds after which a request that had no room is sent again.
_RETRY_S = 1.0
# Seconds in which a client can close the connection after the gateway has.
_CLOSE_S = 1.0

_NORMAL, _POLICY, _SERVICE_RESTART = 1000, 1008, 1012  # RFC 6455, 7.4.1, and IANA's registry

_LIMIT_REACHED = RequestRefused(
    "Responses websocket connection limit reached (60 minutes). Create a new websocket connection to continue.",
    code="websocket_connection_limit_reached",
)
_STOPPING = RequestRefused("the gateway is stopping; connect again", status=503)
_NO_ROOM = RequestRefused(
    "too many requests wait on this connection; send the request again after a response has ended",
    status=429,
    code="rate_limit_exceeded",
)

# Headers of a handshake that are not those of its requests.
_OF_HANDSHAKE = frozenset((b"content-type", b"content-length", b"content-encoding"))
# Headers of a response that mean nothing in an event.
_OF_HTTP = {"content-type", "content-length", "cache-control", "vary", *dict(BROWSER_HEADERS)}


class App(Protocol):
    """The application that serves the requests."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None: ...

    def refusal(self, scope: Scope, error: RemoteProtocolError | RequestRefused) -> Reply:
        """Return the response to a request that the application does not get, and log it."""


class WebSocketConnection:
    """One connection. Call run() once, before anything was sent.

    Attributes:
        protocol: The one that is served.
        spec: How it is served.
        scope: Of the handshake.
        app: Serves its requests.
        left: Set when the client has gone.
    """

    def __init__(self, protocol: ProtocolSpec, app: App, scope: Scope, receive: Receive, send: Send) -> None:
        assert protocol.websocket is not None
        self.protocol = protocol
        self.spec = protocol.websocket
        self.app = app
        self.scope = scope
        self.left = anyio.Event()
        self._receive = receive
        self._asgi_send = send
        self._sending = anyio.Lock(fast_acquire=True)
        self._closed = False
        self._recent = RecentResponses()
        extensions = scope.get("extensions", {})
        self._utf8 = UTF8 in extensions
        self._send_now: Callable[[Iterable[bytes]], bool] | None = extensions.get(NOW, {}).get("send")
        self._unread: deque[bytes | None] = deque()  # messages, None stands for a binary one
        self._lanes: dict[str | None, deque[Create]] = {}  # those at work, with what waits in them
        self._waiting_bytes = 0
        self._running: dict[str | None, WebSocketWriter] = {}  # the response that each of them sends
        self._changes = Changes()
        self._ends_with: RequestRefused | None = None  # no request begins any more

    async def run(self) -> None:
        """Serve the client until it leaves, or its time is over."""
        with suppress(OSError):  # the client has left, as _read() will find
            await self._asgi_send({"type": "websocket.accept", "headers": [], "utf8": self._utf8})
        try:
            async with anyio.create_task_group() as self._lane_tasks:
                async with anyio.create_task_group() as helpers:
                    self._helpers = helpers
                    helpers.start_soon(return_if_cancelled, self._take_messages)
                    helpers.start_soon(return_if_cancelled, self._end_in_time)
                    await self._read()
                    helpers.cancel_scope.cancel()
                self.left.set()
        except anyio.get_cancelled_exc_class():
            with anyio.move_on_after(_CLOSE_S, shield=True):
                await self._close(_SERVICE_RESTART)
            raise

    async def send(self, event: bytes, lane: str | None) -> None:
        """Send an event of a lane. Raises OSError if the client has left."""
        data = with_lane(event, lane)
        text = data if self._utf8 else data.decode("utf-8", "replace")
        await self._send({"type": "websocket.send", "text": text})

    def send_now(self, events: Iterable[bytes], lane: str | None) -> bool:
        """Send events of a lane if that is possible without waiting. Return false if none was sent."""
        if self._send_now is None or self._sending.locked() or self._closed:
            return False
        return self._send_now([with_lane(event, lane) for event in events])

    async def _send(self, message: Message) -> None:
        async with self._sending:
            if self._closed:
                raise OSError("the connection is closed")
            await self._asgi_send(message)

    async def _close(self, code: int) -> None:
        with suppress(OSError):
            await self._send({"type": "websocket.close", "code": code})
        self._closed = True

    # What the client sends.

    async def _read(self) -> None:
        """Read messages until the client leaves. Nothing here waits for anything else."""
        while (message := await self._receive())["type"] != "websocket.disconnect":
            text = message.get("text")
            self._unread.append(text.encode() if isinstance(text, str) else text)
            size = sum([len(each or "") for each in self._unread])
            if len(self._unread) > _MAX_UNREAD or size > 2 * MAX_WAITING_BYTES:
                with anyio.move_on_after(_CLOSE_S):
                    await self._close(_POLICY)
                return
            self._changes.note()
            await anyio.lowlevel.checkpoint()  # many may have come together, and each is taken now

    async def _take_messages(self) -> None:
        try:
            while True:
                while not self._unread:
                    await self._changes.wait()
                text = self._unread[0]
                found = binary_refusal() if text is None else await off_loop(len(text), read_message, text)
                del text
                self._unread.popleft()
                await self._take(found)
                del found
        except OSError:
            return  # the client has left, as _read() will find

    async def _take(self, found: Create | EventReply | RefusedMessage | None) -> None:
        if isinstance(found, Create):
            await self._begin(found)
        elif isinstance(found, EventReply):
            running = (lane for lane, each in self._running.items() if each.response_id == found.response)
            await self.send(found.data, next(running, self._recent.lane_of(found.response)))
        elif found is not None:
            await self._refuse(found)

    async def _refuse(self, refusal: RefusedMessage) -> None:
        reply = self.app.refusal(self._request_scope(), refusal.error)
        headers = [*reply.headers, *(retry_headers(_RETRY_S) if refusal.error is _NO_ROOM else ())]
        await self.send(self.error_event(reply.status, reply.body, headers), refusal.lane)

    def error_event(self, status: int, body: bytes, headers: Iterable[tuple[str, str]]) -> bytes:
        """Return the event in the place of an error response."""
        shown = {
            name: value
            for name, value in headers
            if name not in _OF_HTTP and not name.startswith("access-control-")
        }
        return self.spec.write_error(status, body, shown)

    # Lanes: each is a queue, whose requests are served in order.

    async def _begin(self, create: Create) -> None:
        """Begin a request, or let it wait for those before it in its lane."""
        waiting = self._lanes.get(create.lane)
        if self._ends_with is not None:
            await self._refuse(RefusedMessage(self._ends_with, create.lane))
        elif waiting is None and len(self._lanes) < MAX_LANES:
            self._lanes[create.lane] = deque()
            self._lane_tasks.start_soon(self._serve_lane, create)
        elif (
            waiting is None
            or len(waiting) >= MAX_WAITING
            or self._waiting_bytes + len(create.body) > MAX_WAITING_BYTES
        ):
            await self._refuse(RefusedMessage(_NO_ROOM, create.lane))
        else:
            waiting.append(create)
            self._waiting_bytes += len(create.body)

    async def _serve_lane(self, create: Create) -> None:
        """Serve a request, and what waits behind it in its lane."""
        lane, waiting = create.lane, self._lanes[create.lane]
        try:
            await self._serve(create)
            while waiting and not self.left.is_set():
                create = waiting.popleft()
                self._waiting_bytes -= len(create.body)
                if self._ends_with is None:
                    await self._serve(create)
                else:
                    await self._refuse(RefusedMessage(self._ends_with, lane))
        except OSError:
            return
        finally:
            del self._lanes[lane], self._running[lane]
            self._changes.note()

    async def _serve(self, create: Create) -> None:
        turn = Turn(self._recent, create.generates, create.lane)
        channel = _TurnChannel(self, create)
        self._running[create.lane] = channel.writer
        extensions = {NOW: {"write": channel.write_now}}
        scope = {**self._request_scope(), SCOPE_TURN: turn, "extensions": extensions}
        try:
            await self.app(scope, channel.receive, channel.send)
        except Exception:  # the application has logged it
            status, body = self.protocol.write_error(INTERNAL_ERROR, None)
            await self.send(self.error_event(status, body, ()), create.lane)
        # The Open Responses specification requires it: the client is to send the whole conversation again.
        if create.previous is not None and not turn.completed:
            self._recent.forget(create.previous, create.lane)

    def _request_scope(self) -> Scope:
        """Return the scope of a request."""
        headers = [
            (name, value)
            for name, value in self.scope["headers"]
            if name not in _OF_HANDSHAKE
            # Codex's name of this way to speak: no upstream is spoken to in it.
            and not (name == b"openai-beta" and value.startswith(b"responses_websockets="))
        ]
        return {**self.scope, "type": "http", "method": "POST", "headers": headers, "extensions": {}}

    # The end.

    async def _end_in_time(self) -> None:
        """Wait for the end of the connection's time, or for a stop. Then let running requests end, and close."""
        draining = self.scope.get("extensions", {}).get(DRAINING)
        with anyio.move_on_after(LIFETIME_S) as lifetime:
            await (anyio.sleep_forever() if draining is None else draining.wait())
        over = lifetime.cancelled_caught
        self._ends_with = _LIMIT_REACHED if over else _STOPPING
        while self._lanes:
            await self._changes.wait()
        try:
            if over:
                await self._refuse(RefusedMessage(_LIMIT_REACHED))
        except OSError:
            return
        await self._close(_NORMAL if over else _SERVICE_RESTART)
        await anyio.sleep(_CLOSE_S)
        self._helpers.cancel_scope.cancel()


class _TurnChannel:
    """The ASGI messages of one request. Its response becomes messages of the connection."""

    def __init__(self, connection: WebSocketConnection, create: Create) -> None:
        self._connection = connection
        self._lane = create.lane
        self._body: bytes | None = create.body
        create.body = b""  # a response may take hours
        self.writer = connection.spec.writer()
        self._status = 0
        self._headers: list[tuple[bytes, bytes]] = []
        self._read = 0  # bytes that write_now() has read and not sent
        self._unsent: list[bytes] = []  # their events

    async def receive(self) -> Message:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self._connection.left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status, self._headers = message["status"], message["headers"]
            return
        body, last = message.get("body", b""), not message.get("more_body", False)
        if self._status < 400:
            body, self._read = body[self._read :], 0
            events, self._unsent = self._unsent, []
            events += await off_loop(len(body), self.writer.send, body)
            events += self.writer.end() if last else ()
        else:
            headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in self._headers]
            events = [self._connection.error_event(self._status, body, headers)]
        for event in events:
            await self._connection.send(event, self._lane)

    def write_now(self, data: bytes) -> bool:
        """See WriteNow. What was not written comes again, as the beginning of the next message."""
        if len(data) > INLINE_BYTES:
            return False
        events = self.writer.send(data)
        if self._connection.send_now(events, self._lane):
            return True
        self._read, self._unsent = len(data), events
        return False
