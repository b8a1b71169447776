"""Fakes around one request: an upstream that plays a script, and a client that receives what ASGI sends."""

from __future__ import annotations

import json
import re
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Mapping,
    MutableMapping,
    Sequence,
)
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Self, TypeVar
from urllib.parse import parse_qsl, urlsplit

import anyio
import canaries
from msgspec.structs import replace

from dragoman_server.accounts.stores.base import AccountStore
from dragoman_server.accounts.usage import Meter
from dragoman_server.gateway import Gateway
from dragoman_server.hosts import StreamedContent, UpstreamCall
from dragoman_server.log import RequestRecord
from dragoman_server.proxying.client_request import ClientRequest
from dragoman_server.proxying.plan import Plan
from dragoman_server.proxying.request_handler import RequestHandler
from dragoman_server.settings import ServerSettings, Settings
from dragoman_server.streams.byte_stream import NOW
from dragoman_server.upstream.client import UpstreamClient, read_bounded
from dragoman_server.upstream.errors import UpstreamError


@dataclass(frozen=True)
class Sleep:
    """A step of a script: so many seconds of silence."""

    seconds: float


@dataclass(frozen=True)
class Late:
    """A step of a body: bytes after so many seconds, without a scheduling point in between."""

    seconds: float
    data: bytes


Step = bytes | Sleep | Late | UpstreamError


@dataclass
class Script:
    """One response of the fake upstream. Steps before the head: `connect`; then status, headers, body steps."""

    body: Sequence[Step] = ()
    status: int = 200
    headers: list[tuple[str, str]] = field(default_factory=list)
    connect: Sequence[Step] = ()


class FakeResponse:
    ended = False

    def __init__(self, script: Script, upstream: FakeUpstream) -> None:
        self.status = script.status
        self.headers = script.headers
        self._steps = list(script.body)
        self._upstream = upstream

    async def receive_each(self, take: Callable[[bytes], bool]) -> None:
        while data := await self.receive():
            if not take(data):
                return

    async def receive(self) -> bytes:
        while self._steps:
            step = self._steps.pop(0)
            if isinstance(step, bytes):
                await anyio.lowlevel.checkpoint()
                self._upstream.reads += 1
                return step
            await play(step)
            if isinstance(step, Late):
                return step.data
        self._upstream.read_to_end = True
        return b""

    async def read_all(self, limit: int) -> bytes:
        return await read_bounded(self.receive, limit, "http://127.0.0.1:9")


async def play(step: Step) -> None:
    if isinstance(step, UpstreamError):
        raise step
    assert isinstance(step, Sleep | Late)
    await anyio.sleep(step.seconds)


class FakeUpstream:
    """One request to an upstream, answered by a script: keeps what was sent, and whether the response was closed."""

    def __init__(self, script: Script | None) -> None:
        self.script = script
        self.open_count = 0
        self.closed_at: float | None = None
        self.reads = 0
        self.read_to_end = False
        self.url = ""
        self.sent_headers: list[tuple[str, str]] = []
        self.content = b""
        self.length: int | None = None
        self._streamed: StreamedContent | None = None

    def open(self, call: UpstreamCall, **way: Any) -> FakeUpstream:
        assert (call.method in ("POST", "PATCH")) is (call.content is not None)
        self.url, self.sent_headers, self.content = call.url, list(call.headers), call.held
        self._streamed = None if isinstance(call.content, bytes) else call.content
        self.length = len(call.held) if self._streamed is None else self._streamed.length
        return self

    async def __aenter__(self) -> FakeResponse:
        self.open_count += 1
        try:
            while self._streamed is not None and (data := await self._streamed.receive()):
                self.content += data
            for step in self.script.connect:
                await play(step)
        except BaseException:
            self._close()
            raise
        return FakeResponse(self.script, self)

    async def __aexit__(self, *error: object) -> None:
        self._close()

    def _close(self) -> None:
        self.open_count -= 1
        self.closed_at = anyio.current_time()


def key_of(account: str) -> str:
    """The key that an account's requests come with."""
    return f"canary-of-{account}"


def account_of(headers: Mapping[str, str]) -> str:
    """The account that a request comes from; without a key it is `nobody`."""
    names = ("x-api-key", "x-goog-api-key", "authorization")
    key = next((headers[name] for name in names if name in headers), "").removeprefix("Bearer ")
    return key.removeprefix(key_of("")) or "nobody"


@dataclass
class Sent:
    """One request to an upstream. at: seconds of the loop's clock. fake: its response."""

    url: str
    headers: dict[str, str]
    proxy: str | None
    at: float
    fake: FakeUpstream

    @property
    def content(self) -> bytes:
        return self.fake.content

    @property
    def body(self) -> Any:
        return json.loads(self.content or b"{}")

    @property
    def model(self) -> Any:
        """That of the body, or of the URL where a protocol has it there."""
        in_path = re.search("/models/(.*):", self.url)
        return in_path[1] if in_path else self.body["model"]

    @property
    def account(self) -> str:
        return account_of(self.headers)

    @property
    def closed_at(self) -> float | None:
        return self.fake.closed_at

    @property
    def host(self) -> str | None:
        return urlsplit(self.url).hostname

    @property
    def query(self) -> dict[str, str]:
        return dict(parse_qsl(urlsplit(self.url).query))


class FakeUpstreams(UpstreamClient):
    """Stands in for the application's client, and connects to nothing.

    scripts: the responses, one after the other; the last one again and again. Subclasses choose by the request.
    entered: 1 while it is open. kept: the URLs and proxies that it was told to keep connections to last.
    """

    entered = 0
    kept: tuple[set[str], set[str]] | None = None

    def __init__(self, *scripts: Script) -> None:
        self.scripts = list(scripts)
        self.sent: list[Sent] = []

    def script_for(self, url: str, headers: Mapping[str, str], content: bytes) -> Script | None:
        """Return the response of a request; None if the subclass responds itself."""
        return next_of(self.scripts)

    def open(self, call: UpstreamCall, *, proxy: str | None = None, **way: Any) -> Any:
        named = dict(call.headers)
        fake = FakeUpstream(self.script_for(call.url, named, call.held))
        self.sent.append(Sent(call.url, named, proxy, anyio.current_time(), fake))
        return fake.open(call)

    @property
    def open_now(self) -> int:
        return sum(each.fake.open_count for each in self.sent)

    async def __aenter__(self) -> Self:
        self.entered += 1
        return self

    async def __aexit__(self, *error: object) -> None:
        self.entered -= 1

    async def keep_only(self, urls: Iterable[str], proxies: Collection[str]) -> None:
        self.kept = set(urls), set(proxies)


@asynccontextmanager
async def other_turns() -> AsyncIterator[Callable[[], int]]:
    """Run another task meanwhile. The function returns how many turns that has had."""
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(others)
        yield lambda: turns
        tasks.cancel_scope.cancel()


Each = TypeVar("Each")


def next_of(rest: list[Each]) -> Each:
    """Return the first one, and leave the last one for ever."""
    return rest.pop(0) if len(rest) > 1 else rest[0]


class OneResponse(FakeUpstreams):
    """All requests get one fake response."""

    def __init__(self, script: Script) -> None:
        super().__init__(script)
        self.fake = FakeUpstream(script)

    def open(self, call: UpstreamCall, **way: Any) -> Any:
        return self.fake.open(call)


class FakeClient:
    """The client's side of ASGI. Leaves after `leaves_after` seconds, or at once when it has read `leaves_at`.

    Reads a message in `pace` seconds. body: bytes, or the pieces in which they come. tells_now: its server has the
    extension NOW.
    """

    def __init__(
        self,
        body: bytes | Sequence[bytes | Sleep] = b"",
        leaves_after: float | None = None,
        pace: float = 0,
        leaves_at: bytes | None = None,
        tells_now: bool = False,
    ) -> None:
        now = {"receive": self.receive_now, "on_disconnect": self.on_disconnect}
        self.extensions = {NOW: now} if tells_now else {}
        self._body: list[bytes | Sleep] = [body] if isinstance(body, bytes) else list(body)
        self._leaves_after = leaves_after
        self._leaves_at = leaves_at
        self._has_read = anyio.Event()
        self._call: Callable[[], None] | None = None
        self._pace = pace
        self.messages: list[tuple[float, MutableMapping[str, Any]]] = []
        self.sending = 0

    async def receive(self) -> MutableMapping[str, Any]:
        while self._body:
            piece = self._body.pop(0)
            if isinstance(piece, bytes):
                return {"type": "http.request", "body": piece, "more_body": bool(self._body)}
            await play(piece)
        if self._leaves_at is not None:
            await self._has_read.wait()
            return {"type": "http.disconnect"}
        if self._leaves_after is None:
            await anyio.sleep_forever()
        if self._leaves_after:  # else the message is there, and nothing yields
            await anyio.sleep_until(self._leaves_after)
        return {"type": "http.disconnect"}

    def receive_now(self) -> MutableMapping[str, Any] | None:
        left = self._leaves_after is not None and anyio.current_time() >= self._leaves_after
        return {"type": "http.disconnect"} if left or self._has_read.is_set() else None

    def on_disconnect(self, call: Callable[[], None] | None) -> bool:
        left = self.receive_now() is not None
        self._call = None if left else call
        if left and call is not None:
            call()
        return left

    async def leave(self) -> None:
        """Tell that it has left, once it has."""
        assert (await self.receive())["type"] == "http.disconnect"
        if self._call is not None:
            self._call()

    async def send(self, message: MutableMapping[str, Any]) -> None:
        self.sending += 1
        assert self.sending == 1, "two tasks call send at once"
        try:
            await anyio.sleep(self._pace)
            self.messages.append((anyio.current_time(), message))
            canaries.look_at_message(message)
            if self._leaves_at is not None and self._leaves_at in message.get("body", b""):
                self._has_read.set()
        finally:
            self.sending -= 1

    @property
    def status(self) -> int | None:
        return next((m["status"] for _, m in self.messages if m["type"] == "http.response.start"), None)

    @property
    def headers(self) -> dict[str, str]:
        start = next(m for _, m in self.messages if m["type"] == "http.response.start")
        return {name.decode(): value.decode() for name, value in start["headers"]}

    @property
    def body(self) -> bytes:
        return b"".join(m.get("body", b"") for _, m in self.messages if m["type"] == "http.response.body")

    @property
    def error(self) -> dict[str, Any]:
        """The error of the body, in any protocol; a stream that is an array has it as its only element."""
        body = json.loads(self.body)
        error: dict[str, Any] = (body[0] if isinstance(body, list) else body)["error"]
        return error

    @property
    def finished(self) -> bool:
        last = self.messages[-1][1] if self.messages else {}
        return last.get("type") == "http.response.body" and not last.get("more_body")


class FakeWebSocketClient:
    """The client's side of a WebSocket: sends what say() gets, and keeps the events that it receives.

    pace: seconds in which it reads a message.
    """

    def __init__(self, pace: float = 0) -> None:
        self.messages: list[tuple[float, MutableMapping[str, Any]]] = []
        self.events: list[tuple[float, dict[str, Any]]] = []
        self._pace = pace
        self._said: list[MutableMapping[str, Any]] = [{"type": "websocket.connect"}]
        self._changed = anyio.Event()
        self._read = 0  # events that next_event() has returned
        self._sending = 0
        self._takes_now = False

    def say(self, message: object) -> None:
        """Send a message: text, bytes, or a value as JSON."""
        text = message if isinstance(message, str | bytes) else json.dumps(message)
        kind = "bytes" if isinstance(text, bytes) else "text"
        self._put({"type": "websocket.receive", "text": None, "bytes": None, kind: text})

    def create(self, **members: Any) -> None:
        """Send a request of a short text."""
        self.say({"type": "response.create", "model": "up/m", "input": "Hi", **members})

    def leave(self) -> None:
        self._put({"type": "websocket.disconnect", "code": 1006})

    def _put(self, message: MutableMapping[str, Any]) -> None:
        self._said.append(message)
        self._note()

    def _note(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    async def receive(self) -> MutableMapping[str, Any]:
        while not self._said:
            await self._changed.wait()
        return self._said[0] if self._said[0]["type"] == "websocket.disconnect" else self._said.pop(0)

    async def send(self, message: MutableMapping[str, Any]) -> None:
        self._sending += 1
        assert self._sending == 1, "two tasks call send at once"
        try:
            await anyio.sleep(self._pace)
            if self._said and self._said[0]["type"] == "websocket.disconnect":
                raise OSError("the peer has gone")
        finally:
            self._sending -= 1
        self._take(message)

    def send_now(self, texts: Iterable[bytes]) -> bool:
        """Take them at every second call, if it need not wait."""
        self._takes_now = not self._takes_now and not self._pace
        if self._takes_now:
            assert not self._sending
            for text in texts:
                self._take({"type": "websocket.send", "text": text})
        return self._takes_now

    def _take(self, message: MutableMapping[str, Any]) -> None:
        canaries.look_at_message(message)
        self.messages.append((anyio.current_time(), message))
        if message["type"] == "websocket.send":
            self.events.append((anyio.current_time(), json.loads(message["text"])))
        self._note()

    async def next_event(self) -> dict[str, Any]:
        """Wait for the next event, and return it."""
        with anyio.fail_after(10_000):
            while self._read == len(self.events):
                await self._changed.wait()
        self._read += 1
        return self.events[self._read - 1][1]

    async def turn(self, lane: str | None = None) -> list[dict[str, Any]]:
        """Wait for the end of a response, and return its events, those of its lane."""
        events: list[dict[str, Any]] = []
        while not events or events[-1]["type"] not in TURN_ENDS:
            event = await self.next_event()
            if event.get("stream_id") == lane:
                events.append(event)
        return events

    async def closed(self) -> int:
        """Wait until the server has closed the connection, and return its code."""
        with anyio.fail_after(10_000):
            while self.messages[-1][1]["type"] != "websocket.close":
                await self._changed.wait()
        code: int = self.messages[-1][1]["code"]
        return code

    @property
    def refused(self) -> tuple[int, Any]:
        """Status and body of the response in the place of a connection."""
        start, body = [message for _, message in self.messages]
        assert start["type"] == "websocket.http.response.start"
        return start["status"], json.loads(body["body"])


# The events with which a response ends.
TURN_ENDS = ("response.completed", "response.incomplete", "response.failed", "error")


class Draining:
    """The extension by which a server says that it stops."""

    def __init__(self) -> None:
        self.begins = anyio.Event()

    async def wait(self) -> None:
        await self.begins.wait()


@asynccontextmanager
async def websocket(
    app: App,
    path: str = "/v1/responses",
    headers: dict[str, str] | None = None,
    *,
    client: FakeWebSocketClient | None = None,
    draining: Draining | None = None,
) -> AsyncIterator[FakeWebSocketClient]:
    """A client that is connected to the application, or was refused, and leaves at the end."""
    client = client or FakeWebSocketClient()
    extensions: dict[str, Any] = {"websocket.http.response": {}, NOW: {"send": client.send_now}}
    if draining is not None:
        extensions["dragoman.draining"] = draining
    of_websocket = {"type": "websocket", "scheme": "ws", "subprotocols": [], "extensions": extensions}
    scope = {**http_scope(path, headers=headers), **of_websocket}
    del scope["method"]
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(app, scope, client.receive, client.send)
        try:
            with anyio.fail_after(10_000):
                while not client.messages or client.messages[-1][1]["type"].endswith(".start"):
                    await client._changed.wait()
            yield client
        finally:
            client.leave()


App = Callable[
    [
        MutableMapping[str, Any],
        Callable[[], Awaitable[MutableMapping[str, Any]]],
        Callable[[MutableMapping[str, Any]], Awaitable[None]],
    ],
    Awaitable[None],
]


def http_scope(
    path: str, method: str = "POST", headers: dict[str, str] | None = None, **more: Any
) -> dict[str, Any]:
    """An ASGI scope as hypercorn makes it. path: may have a query."""
    path, _, query = path.partition("?")
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.1"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [
            (name.lower().encode(), value.encode())
            for name, value in {"host": "127.0.0.1:8080", **(headers or {})}.items()
        ],
        "client": ("127.0.0.1", 50000),
        "server": ("127.0.0.1", 8080),
        "state": {},
        "extensions": {},
        **more,
    }


async def call(
    app: App,
    path: str,
    body: object = b"",
    method: str = "POST",
    headers: dict[str, str] | None = None,
    **scope: Any,
) -> FakeClient:
    """Return a client that has received the whole response. path: see http_scope. body: bytes, or a JSON value."""
    client = FakeClient(body if isinstance(body, bytes) else json.dumps(body).encode())
    await app(http_scope(path, method, headers, **scope), client.receive, client.send)
    assert client.finished
    return client


async def carry_out(
    plan: Plan,
    upstream: Any,
    client: FakeClient,
    *,
    keepalive_s: float = 10,
    measured: bool = False,
    settings: Settings | None = None,
    accounts: AccountStore | None = None,
) -> ClientRequest:
    """Carry out a plan, as an endpoint does that has read the request. upstream: an UpstreamClient."""
    client._body.clear()
    record = RequestRecord(id=plan.id, protocol=plan.client.name, path="/")
    request = ClientRequest(
        http_scope("/", extensions=client.extensions), client.receive, client.send, record
    )
    request.response.meter = Meter() if measured else None
    settings = replace(settings or Settings(), server=ServerSettings(keepalive_s=keepalive_s))
    handling = RequestHandler(request, plan, Gateway(settings, upstream, accounts=accounts)).run()
    del plan  # an endpoint does not keep it either
    async with anyio.create_task_group() as tasks:
        if client.extensions:
            tasks.start_soon(client.leave)
        await handling
        tasks.cancel_scope.cancel()
    return request
