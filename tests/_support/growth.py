"""What a unit of work costs at several sizes of something that it should not depend on.

A dimension has its sizes and makes the work for one of them; `measure` counts the calls of Python and C functions in it
and takes its CPU time. Counts are the same on every machine and in every run; a walk that makes no call is only in the
time.
"""

from __future__ import annotations

import gc
import inspect
import json
import logging
import math
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from types import FrameType
from typing import Any, cast

import anyio
from gateway.fakes import FakeUpstreams, OneResponse, Script, Sleep, call

from dragoman import UPSTREAMS, Ledger, Relay, RequestTranslator, ResponseTranslator, StopReason, Usage
from dragoman.codec import ResponseContext
from dragoman.document import Request
from dragoman.events import BlockEnded, BlockKind, BlockStarted, Ended, Started, Stopped, TextDelta
from dragoman_server.accounts.stores.memory import MemoryAccountStore
from dragoman_server.app import create_app
from dragoman_server.keys import hash_client_key
from dragoman_server.log import JSONFormatter
from dragoman_server.models.routes import resolve_chain
from dragoman_server.serving.run import _Worker
from dragoman_server.settings import (
    AccountSettings,
    ClientKey,
    Price,
    ServerSettings,
    Settings,
    UpstreamSettings,
)
from dragoman_server.settings.secret import Mask, Secret
from dragoman_server.streams.byte_stream import ByteStream
from dragoman_server.upstream.pool import ConnectionPool, Origin, PoolLimits

# The work is a function, which may be a coroutine function; it is called several times. With it, how many units it has.
Work = tuple[Callable[[], Any], int]

_REQUESTS = 20
_LEASES = 1000
_LINES = 100
_ROUNDS = 5


@dataclass(frozen=True)
class Dimension:
    """Something that the cost of a unit of work should not depend on.

    unit: of the work. of: what there is 'sizes' of.
    make: returns the work for a size, or a context in which it may be called.
    """

    unit: str
    of: str
    sizes: tuple[int, ...]
    make: Callable[[int], Work | AbstractAsyncContextManager[Work]]

    def __str__(self) -> str:
        return f"{self.unit} by {self.of}"


@dataclass(frozen=True)
class Cost:
    """The cost of one unit. calls: of Python and C functions. us: of CPU time, of the fastest of some rounds."""

    calls: float
    us: float


def measure(dimension: Dimension, size: int, rounds: int = _ROUNDS) -> Cost:
    return anyio.run(_measure, dimension, size, rounds)


async def _measure(dimension: Dimension, size: int, rounds: int) -> Cost:
    made = dimension.make(size)
    async with nullcontext(made) if isinstance(made, tuple) else made as (work, units):
        return await _cost(work, units, rounds)


async def _cost(work: Callable[[], Any], units: int, rounds: int) -> Cost:
    async def run() -> None:
        result = work()
        if inspect.isawaitable(result):
            await result

    await run()
    gc.collect()
    gc.disable()
    calls = 0

    def count(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal calls
        if event in ("call", "c_call"):
            calls += 1

    sys.setprofile(count)
    try:
        await run()
    finally:
        sys.setprofile(None)
        gc.enable()
    times = []
    for _ in range(rounds):
        begun = time.process_time()
        await run()
        times.append(time.process_time() - begun)
    return Cost(calls / units, min(times, default=math.nan) / units * 1e6)


def slope(sizes: Sequence[int], costs: Sequence[float]) -> float:
    """Return the exponent of size by which the cost grows: the slope of the line through both logarithms."""
    xs, ys = [math.log(size) for size in sizes], [math.log(cost) for cost in costs]
    x, y = sum(xs) / len(xs), sum(ys) / len(ys)
    return sum((a - x) * (b - y) for a, b in zip(xs, ys, strict=True)) / sum((a - x) ** 2 for a in xs)


# The core.


def _context(protocol: str) -> ResponseContext:
    request = Request(protocol=protocol, model="m", messages=(), stream=True)
    return ResponseContext(request=request, id="0123456789abcdef", now=1_700_000_000, model="m")


def stream(protocol: str, deltas: int) -> list[bytes]:
    """The frames of an upstream's response with so many deltas of text."""
    writer = UPSTREAMS[protocol].stream_writer(_context(protocol), Ledger())
    events = [
        Started("up_1", "m", 1_700_000_000),
        BlockStarted(0, BlockKind.TEXT),
        *[TextDelta(0, f" word{n % 10}") for n in range(deltas)],
        BlockEnded(0),
        Usage(input=10, output=deltas),
        Stopped(StopReason.END),
        Ended(),
    ]
    return [frame for event in events if (frame := writer.send(event))]


def _events(client: str, upstream: str, deltas: int) -> Work:
    frames = stream(upstream, deltas)

    def translate() -> None:
        machine: Relay | ResponseTranslator
        if client == upstream:
            machine = Relay(protocol=UPSTREAMS[client], context=_context(client))
        else:
            machine = ResponseTranslator(
                client=UPSTREAMS[client], upstream=UPSTREAMS[upstream], context=_context(client)
            )
        for frame in frames:
            machine.receive_data(frame)
            machine.data_to_send()
        machine.receive_eof()
        assert machine.error is None
        machine.data_to_send()

    return translate, deltas


def conversation(messages: int) -> bytes:
    """An agent's request in Chat Completions: user, call, result and response in turn."""
    chat: list[dict[str, object]] = []
    for n in range(messages // 4):
        function = {"name": "read", "arguments": f'{{"path":"src/{n}.py"}}'}
        called = {"id": f"call_{n}", "type": "function", "function": function}
        chat += [
            {"role": "user", "content": f"Look at file {n}."},
            {"role": "assistant", "content": "Let me look.", "tool_calls": [called]},
            {"role": "tool", "tool_call_id": f"call_{n}", "content": "def f(x):\n    return x\n"},
            {"role": "assistant", "content": "It returns its argument."},
        ]
    schema = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
    tool = {"type": "function", "function": {"name": "read", "parameters": schema}}
    return json.dumps({"model": "m", "stream": True, "messages": chat, "tools": [tool]}).encode()


def _messages(client: str, upstream: str, messages: int) -> Work:
    body = conversation(messages)
    if client != "openai_chat":
        translator = RequestTranslator(client=UPSTREAMS["openai_chat"], upstream=UPSTREAMS[client])
        body = translator.translate(body).body
    translator = RequestTranslator(client=UPSTREAMS[client], upstream=UPSTREAMS[upstream])
    # Another name, so that a relay is a rewrite.
    return partial(translator.translate, body, model="other"), messages


# The gateway.

_SECRET = Secret("a-secret-of-some-length-0123456789")
_KEY = "drk_" + "k" * 43
_RESPONSE = json.dumps(
    {
        "id": "c",
        "object": "chat.completion",
        "model": "m",
        "choices": [
            {"index": 0, "message": {"role": "assistant", "content": "Hello"}, "finish_reason": "stop"}
        ],
        "usage": {"prompt_tokens": 5, "completion_tokens": 1, "total_tokens": 6},
    }
).encode()


def _upstream(number: int = 0, **more: Any) -> UpstreamSettings:
    return UpstreamSettings(
        name=f"up{number}", protocol="openai_chat", base_url=f"http://10.0.0.1:{number + 1}/v1", **more
    )


def _body(model: str) -> bytes:
    return json.dumps(
        {"model": model, "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}
    ).encode()


def _requests(settings: Settings, model: str = "up0/m") -> Work:
    return _calls(create_app(settings, client=OneResponse(Script([_RESPONSE]))), model)


def _calls(app: Any, model: str = "up0/m") -> Work:
    headers = {"x-api-key": _KEY}

    async def work() -> None:
        for _ in range(_REQUESTS):
            client = await call(app, "/v1/messages", _body(model), headers=headers)
            assert client.status == 200, client.body

    return work, _REQUESTS


def _key(number: int = 0, **more: Any) -> ClientKey:
    key = _KEY if number == 0 else f"drk_{number:043}"
    return ClientKey(name=f"key{number}", hash=hash_client_key(key, _SECRET), **more)


_SERVER = ServerSettings(secret=_SECRET)


def _with_keys(keys: int, **more: Any) -> Work:
    # The one that is used is the last one.
    client_keys = tuple(_key(number, **more) for number in reversed(range(keys)))
    prices = (Price(model="*", input=1.0, output=1.0),) if more else ()
    return _requests(
        Settings(server=_SERVER, upstreams=(_upstream(),), client_keys=client_keys, prices=prices)
    )


def _with_accounts(accounts: int, *, limits: int | None = None, **upstream: Any) -> Work:
    return _requests(
        Settings(
            upstreams=(_upstream(**upstream),),
            accounts=tuple(
                AccountSettings(
                    upstream="up0",
                    name=f"a{number}",
                    api_key=Secret(f"key-of-an-account-{number:04}"),
                    max_concurrent_requests=limits,
                    requests_per_minute=None if limits is None else 10**6,
                )
                for number in range(accounts)
            ),
        )
    )


def _with_upstreams(upstreams: int, model: str) -> Work:
    each = [_upstream(number, models=(f"m{number}",)) for number in range(upstreams)]
    return _requests(Settings(upstreams=tuple(each)), model.format(upstreams - 1))


def _with_models(models: int) -> Work:
    names = tuple(f"m{number}" for number in range(models))
    return _requests(Settings(upstreams=(_upstream(models=names),)), names[-1])


def _with_aliases(aliases: int, alias: str, model: str) -> Work:
    names = {alias.format(number): "up0/m" for number in range(aliases)}
    return _requests(Settings(upstreams=(_upstream(), _upstream(1)), models=names), model.format(aliases - 1))


def _with_prices(prices: int) -> Work:
    return _requests(
        Settings(
            server=_SERVER,
            upstreams=(_upstream(),),
            client_keys=(_key(budget=10**6),),
            prices=tuple(Price(model=f"up0/m{number}", input=1.0, output=1.0) for number in range(prices)),
        ),
        f"up0/m{prices - 1}",
    )


def _with_models_of_a_key(models: int) -> Work:
    names = tuple(f"up0/m{number}" for number in range(models))
    settings = Settings(server=_SERVER, upstreams=(_upstream(),), client_keys=(_key(models=names),))
    return _requests(settings, names[-1])


class _Upstreams(FakeUpstreams):
    """The first requests get no response, all others a whole one."""

    def __init__(self, silent: int) -> None:
        self._silent = silent
        self.opened = 0

    def open(self, *arguments: Any, **more: Any) -> Any:
        self.opened += 1
        script = Script([Sleep(math.inf)] if self.opened <= self._silent else [_RESPONSE])
        return OneResponse(script).open(*arguments, **more)


@asynccontextmanager
async def _with_open_requests(requests: int) -> AsyncIterator[Work]:
    upstreams = _Upstreams(requests)
    accounts = tuple(
        AccountSettings(upstream="up0", name=name, max_concurrent_requests=10**6) for name in ("a", "b")
    )
    app = create_app(Settings(upstreams=(_upstream(),), accounts=accounts), client=upstreams)
    async with anyio.create_task_group() as tasks:
        for _ in range(requests):
            tasks.start_soon(call, app, "/v1/messages", _body("up0/m"))
        while upstreams.opened < requests:
            await anyio.wait_all_tasks_blocked()
        yield _calls(app)
        tasks.cancel_scope.cancel()


@asynccontextmanager
async def _with_connections(connections: int) -> AsyncIterator[Work]:
    settings = Settings(server=ServerSettings(max_connections=10**4), upstreams=(_upstream(),))
    app = create_app(settings, client=OneResponse(Script([_RESPONSE])))
    body = _body("up0/m")
    request = b"POST /v1/messages HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n%b" % (
        len(body),
        body,
    )
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        ready = anyio.Event()
        worker = _Worker(settings, app, listener, ready.set, ())
        async with anyio.create_task_group() as tasks, AsyncExitStack() as clients:
            tasks.start_soon(worker.run)
            await ready.wait()
            for _ in range(connections):
                client = await clients.enter_async_context(await anyio.connect_tcp(*listener.getsockname()))

            async def work() -> None:
                for _ in range(_REQUESTS):
                    await client.send(request)
                    read = b""
                    while not read.endswith(b"}"):
                        read += await client.receive()
                    assert read.startswith(b"HTTP/1.1 200 "), read

            yield work, _REQUESTS
            worker.stopping.set()


def _streamed(deltas: int) -> Work:
    frames = stream("openai_chat", deltas)
    script = Script(frames, headers=[("content-type", "text/event-stream")])
    app = create_app(Settings(upstreams=(_upstream(),)), client=OneResponse(script))
    body = json.dumps({**json.loads(_body("up0/m")), "stream": True}).encode()

    async def work() -> None:
        client = await call(app, "/v1/messages", body)
        assert client.status == 200, client.body

    return work, deltas


class _Stream:
    """An idle connection to an upstream."""

    def is_reusable(self) -> bool:
        return True

    def abort(self) -> None:
        pass


async def _lease(pool: ConnectionPool, origin: Origin) -> None:
    lease = await pool.lease(origin, None)
    lease.stream = lease.reuse() or cast(ByteStream, _Stream())
    lease.release(keep=True)


def _with_idle_connections(origins: int) -> Work:
    pool = ConnectionPool(PoolLimits(idle_connections=origins))
    each = [Origin("https", f"host{number}", 443) for number in range(origins)]

    async def work() -> None:
        for number in range(_LEASES):
            await _lease(pool, each[number % origins])  # the one that has been idle for longest

    return work, _LEASES


def _with_budgets(budgets: int) -> Work:
    store = MemoryAccountStore()

    async def work() -> None:
        for number in range(_LEASES):
            await store.add(f"budget:key{number % budgets}", 1.0, 2e9)
            await store.total(f"budget:key{number % budgets}", 1e9)

    return work, _LEASES


def _with_secrets(secrets: int) -> Work:
    formatter = JSONFormatter(Mask([f"{number:08}-key-of-an-account" for number in range(secrets)]))
    known = {
        "id": "0123456789abcdef",
        "protocol": "openai_chat",
        "path": "/v1/chat/completions",
        "status": 200,
    }
    record = logging.makeLogRecord({"msg": "request", "dragoman": known})

    def work() -> None:
        for _ in range(_LINES):
            formatter.format(record)

    return work, _LINES


def _with_listed_models(models: int) -> Work:
    settings = Settings(upstreams=(_upstream(),))
    listed = {"up0": dict.fromkeys(f"m{number}" for number in range(models))}

    def work() -> None:
        for _ in range(_LINES):
            resolve_chain(settings, "anthropic_messages", "claude-opus", listed)

    return work, _LINES


_ONE_TO_500 = (1, 5, 20, 100, 500)
_ONE_TO_200 = (1, 5, 20, 100, 200)
_ONE_TO_5000 = (1, 20, 100, 1000, 5000)

DIMENSIONS = (
    *(
        Dimension(f"event, {upstream} > {client}", "the length of the response", (100, 1000, 10_000), make)
        for upstream in UPSTREAMS
        for client in UPSTREAMS
        for make in (partial(_events, client, upstream),)
    ),
    Dimension("event, through the gateway", "the length of the response", (100, 1000, 5000), _streamed),
    *(
        Dimension(
            f"message, {client} > {upstream}", "the length of the history", (8, 32, 128, 512, 2048), make
        )
        for client in UPSTREAMS
        for upstream in UPSTREAMS
        for make in (partial(_messages, client, upstream),)
    ),
    Dimension("request", "accounts", _ONE_TO_500, _with_accounts),
    *(
        Dimension(
            "request", f"accounts, {selection}", _ONE_TO_500, partial(_with_accounts, selection=selection)
        )
        for selection in ("weighted", "most_remaining")
    ),
    Dimension("request", "accounts with limits", _ONE_TO_500, partial(_with_accounts, limits=10**6)),
    Dimension("request", "client keys", (1, 10, 100, 1000, 10_000), _with_keys),
    Dimension("request", "upstreams, upstream/model", _ONE_TO_200, partial(_with_upstreams, model="up{}/m")),
    Dimension("request", "upstreams, listed model", _ONE_TO_200, partial(_with_upstreams, model="m{}")),
    Dimension("request", "models of an upstream", _ONE_TO_5000, _with_models),
    Dimension("request", "aliases", _ONE_TO_5000, partial(_with_aliases, alias="m{}", model="m{}")),
    Dimension(
        "request",
        "aliases, none of which fits",
        _ONE_TO_5000,
        partial(_with_aliases, alias="m{}", model="up0/m"),
    ),
    Dimension(
        "request", "aliases with *", _ONE_TO_5000, partial(_with_aliases, alias="m{}-*", model="m{}-x")
    ),
    Dimension("request", "prices", _ONE_TO_5000, _with_prices),
    Dimension("request", "models of a client key", _ONE_TO_5000, _with_models_of_a_key),
    Dimension("request", "open requests", _ONE_TO_500, _with_open_requests),
    Dimension("request", "open connections", _ONE_TO_200, _with_connections),
    Dimension("connection", "idle connections to upstreams", _ONE_TO_200, _with_idle_connections),
    Dimension("budget", "budgets", (1, 10, 100, 1000), _with_budgets),
    Dimension("log line", "secrets", (10, 100, 1000, 4000), _with_secrets),
    Dimension(
        "route of an agent's model",
        "models that upstreams list",
        (2, 20, 100, 1000, 5000),
        _with_listed_models,
    ),
)
