"""The client's side of one request: what it sent, and the channel by which it gets its response.

`ResponseChannel` is the only way for bytes to a client. The rest of a request does not know what the client's
connection is: `HttpChannel` makes ASGI messages of them, in any ASGI server.
"""

import copy
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Protocol, TypeVar, overload

import anyio
import anyio.lowlevel
import msgspec
from msgspec.structs import replace
from starlette.types import Message, Receive, Scope, Send

from dragoman import RemoteProtocolError, RequestRefused
from dragoman.codec import SSE, Framing
from dragoman.jsontext import JSON, encode
from dragoman_server.accounts.limits import BudgetReservation
from dragoman_server.accounts.usage import Meter
from dragoman_server.log import RequestRecord
from dragoman_server.platform.cancellation import Arguments, RestOfTask, return_if_cancelled
from dragoman_server.platform.clock import event_loop_clock
from dragoman_server.platform.off_loop import INLINE_BYTES, off_loop
from dragoman_server.proxying.plan import Plan
from dragoman_server.proxying.upload import Upload
from dragoman_server.settings import ClientKey
from dragoman_server.streams.byte_stream import NOW, OnDisconnect, WriteNow
from dragoman_server.streams.http1_head import joined
from dragoman_server.telemetry.requests import RequestTelemetry
from dragoman_server.wire.headers import JSON_HEADERS, HeaderList, request_id_headers
from dragoman_server.wire.replies import Reply

Result = TypeVar("Result")
Default = TypeVar("Default")

# See NOW.
ReceiveNow = Callable[[], Message | None]

# Entries of a request's scope. The ClientKey that it came with:
SCOPE_KEY = "dragoman.client_key"
# True if it names the origin of a page that has sent it:
SCOPE_PAGE = "dragoman.page"
# A function that is called with its plan and record. It returns one that is called for each attempt, with its
# destination, the id of its account and the sender, and returns what the attempt uses instead:
SCOPE_SENDERS = "dragoman.senders"
# A function that is called when the request goes on without this call of the application, and returns what to await
# when it has ended:
SCOPE_GOES_ON = "dragoman.goes_on"
# The Turn that it is, if it came over a WebSocket:
SCOPE_TURN = "dragoman.turn"
# The CloudRequest that it is, if it came at the path of a cloud:
SCOPE_CLOUD = "dragoman.cloud"
# The path of a request that is served at another one:
SCOPE_PATH = "dragoman.path"


def path_below_mount(scope: Scope) -> str:
    """Return the path of a request without what the application is mounted under."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", ""))


class ClientDisconnected(Exception):
    """The client closed the connection before its request was complete, so no response can be sent."""


class ResponseChannel(Protocol):
    """One response on its way to a client: start() once, write() and write_now() for each piece, end() once.

    Attributes:
        meter: Measures what the client gets, None where nothing needs it.
        watch: Is called with the bytes that the client gets, None where nothing needs them.
        started: The response has begun, or is about to.
        broken: Writing raised OSError, because the client has gone.
    """

    meter: Meter | None
    watch: Callable[[bytes], None] | None
    started: bool
    broken: bool

    def start(self, status: int, headers: list[tuple[bytes, bytes]]) -> Awaitable[None]: ...

    def write(self, data: bytes) -> Awaitable[None]: ...

    @property
    def write_now(self) -> WriteNow:
        """Returns a function for the pieces behind the first one. Ask when that is written."""

    def end(self, data: bytes) -> Awaitable[None]:
        """Write the last piece, or the whole body."""


class HttpChannel(msgspec.Struct, eq=False):
    """The response to an HTTP request. See ResponseChannel. write_now: see NOW."""

    _send: Send
    _write_now: WriteNow | None
    meter: Meter | None = None
    watch: Callable[[bytes], None] | None = None
    started: bool = False
    broken: bool = False

    def start(self, status: int, headers: list[tuple[bytes, bytes]]) -> Awaitable[None]:
        self.started = True
        return self._pass_on({"type": "http.response.start", "status": status, "headers": headers})

    def write(self, data: bytes) -> Awaitable[None]:
        return self._pass_on({"type": "http.response.body", "body": data, "more_body": True})

    @property
    def write_now(self) -> WriteNow:
        if self._write_now is None or self.meter is not None or self.watch is not None:
            return self._write_watched
        return self._write_now

    def _write_watched(self, data: bytes) -> bool:
        if self._write_now is None or not self._write_now(data):
            return False
        if self.meter is not None:
            self.meter.add(data)
        if self.watch is not None:
            self.watch(data)
        return True

    def end(self, data: bytes) -> Awaitable[None]:
        return self._pass_on({"type": "http.response.body", "body": data, "more_body": False})

    async def _pass_on(self, message: Message) -> None:
        if self.meter is not None:
            self.meter.add(message.get("body", b""))
        if self.watch is not None and message.get("body"):
            self.watch(message["body"])
        try:
            await self._send(message)
        except OSError:  # "when send is called after the client has gone" -- ASGI 2.4
            self.broken = True
            raise


class JoinedHeaders(Mapping[str, str]):
    """The headers of a request, from its ASGI scope, with the values of a repeated one joined.

    They are decoded when they are asked for, because most never are.
    """

    __slots__ = ("_values",)

    def __init__(self, headers: Sequence[tuple[bytes, bytes]]) -> None:
        self._values = joined(headers)

    def __getitem__(self, name: str) -> str:
        return self._values[name.encode("latin-1")].decode("latin-1")

    @overload
    def get(self, name: str, /) -> str | None: ...
    @overload
    def get(self, name: str, /, default: str | Default) -> str | Default: ...
    def get(self, name: str, /, default: str | Default | None = None) -> str | Default | None:
        value = self._values.get(name.encode("latin-1"))
        return default if value is None else value.decode("latin-1")

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name.encode("latin-1") in self._values

    def __iter__(self) -> Iterator[str]:
        return (name.decode("latin-1") for name in self._values)

    def __len__(self) -> int:
        return len(self._values)


class ClientRequest:
    """The client's side of one request: what the client sent, its log record, and its response.

    Attributes:
        receive_now, on_disconnect, rest_of_task: See NOW; None where the server has none.
        headers: By lower-case names; the values of a repeated header are joined, as HTTP allows.
        model_in_path: The model that the path names, "" if it names none.
        query: The query string, without the question mark.
        framing: Of streams and errors where it came in.
        now: When it arrived, in seconds since the epoch.
        time: The clock of the event loop.
        started: Its time when the request arrived.
        key: The client key that it came with, None where none is needed.
        response: See ResponseChannel.
        explains: It is not to be sent, see Explained.
        admitted: Its key may send it, see BaseEndpoint.read().
        counted: It counts for its key's limits and usage.
        reserved: The parts of budgets that are reserved for it.
        plan: The plan of the attempt that was made last, or won. None until the request is planned.
        reasoning_key: The key under which reasoning is kept, "" for protocols whose clients send it back.
        telemetry: Its part in metrics, traces and the feed, None where there are none.
        handed_over: It goes on with another client, see hand_over(), and is counted there.
        announced: A heartbeat has told the client the gateway's own id of the response.
        upload: Its body, if that is sent while it arrives.
    """

    # What is there later, or in few requests.
    explains = admitted = counted = announced = False
    reserved: Sequence[BudgetReservation] = ()
    plan: Plan | None = None
    telemetry: RequestTelemetry | None = None

    def __init__(
        self, scope: Scope, receive: Receive, send: Send, record: RequestRecord, framing: Framing = SSE
    ) -> None:
        self.scope = scope
        self.receive = receive
        now = scope.get("extensions", {}).get(NOW, {})
        self.receive_now: ReceiveNow | None = now.get("receive")
        self.on_disconnect: OnDisconnect | None = now.get("on_disconnect")
        self.rest_of_task: Callable[[], RestOfTask] | None = now.get("rest")
        self.record = record
        self.framing = framing
        self.headers: Mapping[str, str] = JoinedHeaders(scope["headers"])
        self.model_in_path: str = scope.get("path_params", {}).get("model", "")
        self.query: str = scope.get("query_string", b"").decode("latin-1")
        self.now, self.time = int(time.time()), now.get("time") or event_loop_clock()
        self.key: ClientKey | None = scope.get(SCOPE_KEY)
        if self.key is not None:
            record.client_key, record.group = self.key.name, self.key.group
        self.response: ResponseChannel = HttpChannel(send, now.get("write"))
        self.reasoning_key = ""
        self.started = self.time()
        self.handed_over = False
        self.upload: Upload | None = None

    @property
    def owner(self) -> str:
        """The owner of anything stored for it: the key's name, or "" without keys."""
        return "" if self.key is None else self.key.name

    def release(self) -> None:
        """Let go of what the client sent, when nothing is sent upstream any more: a stream may stay open for hours."""
        self.scope, self.headers = {}, {}
        self.receive_now = self.rest_of_task = None

    def hand_over(self, response: ResponseChannel, receive: Receive) -> "ClientRequest":
        """Return the request as it goes on with another channel. What is left has this client, and is not counted."""
        other = copy.copy(self)
        other.response, other.receive = response, receive
        other.receive_now = other.on_disconnect = other.rest_of_task = None
        response.meter, response.watch = self.response.meter, self.response.watch
        self.response.meter = self.response.watch = None
        self.record = replace(self.record)
        self.handed_over = True
        return other

    async def off_loop(
        self, size: int, function: Callable[[*Arguments], Result], *arguments: *Arguments
    ) -> Result:
        """Call off_loop() before a response begins. A client that leaves ends the wait for a thread.

        size: of the input, in bytes. Raises ClientDisconnected, and what the function raises.
        """
        if size <= INLINE_BYTES:
            return function(*arguments)
        return await self.while_connected(off_loop, size, function, *arguments)

    async def while_connected(
        self, function: Callable[[*Arguments], Awaitable[Result]], *arguments: *Arguments
    ) -> Result:
        """Call what takes long, before a response begins, and cancel it if the client leaves.

        Raises ClientDisconnected, and the errors for clients that the function raises.
        """
        results: list[Result] = []
        refused: RemoteProtocolError | RequestRefused | None = None

        async def finish() -> None:
            nonlocal refused
            try:
                results.append(await function(*arguments))
            except (RemoteProtocolError, RequestRefused) as error:
                refused = error  # outside of the group of watch(), which would wrap it

        with anyio.CancelScope() as scope:
            try:
                await self.watch(finish, scope.cancel)
            finally:
                self.unwatch()
        if refused is not None:
            raise refused
        if not results:
            raise ClientDisconnected
        return results[0]

    def watch(self, work: Callable[[], Awaitable[None]], left: Callable[[], None]) -> Awaitable[None]:
        """Return what awaits what `work` returns. `left` is called if the client leaves before unwatch() is.

        A client that has left already costs no work, if `left` cancels it.
        """
        on_disconnect = self.on_disconnect
        if on_disconnect is None or self.upload is not None:
            return self._watch_in_task(work, left)
        return _at_next_turn(work) if on_disconnect(left) else work()

    def unwatch(self) -> None:
        """Call nothing any more if the client leaves."""
        if self.on_disconnect is not None:
            self.on_disconnect(None)

    async def _watch_in_task(self, work: Callable[[], Awaitable[None]], left: Callable[[], None]) -> None:
        """Do what watch() does with a task, which reads the body that is sent while it arrives."""
        on_disconnect, upload = self.on_disconnect, self.upload

        async def watcher() -> None:
            if upload is not None:
                with suppress(ClientDisconnected):
                    await upload.pump()
            if on_disconnect is None:
                while (await self.receive())["type"] != "http.disconnect":
                    pass
                left()

        if on_disconnect is not None and on_disconnect(left):
            await anyio.lowlevel.checkpoint()
        async with anyio.create_task_group() as tasks:
            watching = tasks.start_soon(return_if_cancelled, watcher)
            # In trio tasks that become ready together run in any order.
            for _ in range(2):
                await anyio.lowlevel.checkpoint()
            await work()
            watching.cancel()

    async def respond(self, reply: Reply) -> None:
        """Send a whole response."""
        if reply.status >= 400:
            reply = replace(reply, body=self.framing.error_body(reply.body))
        self.record.status = reply.status
        await self.response.start(reply.status, reply.encoded_headers())
        await self.response.end(reply.body)

    async def respond_json(self, value: JSON, headers: HeaderList | None = None) -> None:
        """Send a JSON value with status 200."""
        record = self.record
        record.outcome = "completed"
        await self.respond(
            Reply(200, [*JSON_HEADERS, *request_id_headers(record.id), *(headers or ())], encode(value))
        )


async def _at_next_turn(work: Callable[[], Awaitable[None]]) -> None:
    await anyio.lowlevel.checkpoint()
    await work()


def unix_time() -> int:
    """Return the seconds since the epoch."""
    return int(time.time())
