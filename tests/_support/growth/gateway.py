"""Dimensions of the gateway: requests with everything that a configuration, or other clients, may have many of."""

# ruff: noqa: E501 -- the tables are read by row

import json
import logging
import math
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any, cast

import anyio
import anyio.lowlevel
from account_stores import total
from gateway.fakes import FakeUpstreams, OneResponse, Script, Sleep, call

from dragoman_server.accounts.stores.memory import MemoryAccountStore
from dragoman_server.accounts.stores.operations import Add
from dragoman_server.app import create_app
from dragoman_server.log import JSONFormatter
from dragoman_server.models.routes import resolve_chain
from dragoman_server.serving.run import _Worker
from dragoman_server.serving.signals import SignalMeanings
from dragoman_server.settings import (
    AccountSettings,
    ClientKey,
    Price,
    ServerSettings,
    Settings,
    UpstreamSettings,
)
from dragoman_server.settings.client_keys import hash_client_key
from dragoman_server.settings.secret import Mask, Secret
from dragoman_server.streams.byte_stream import ByteStream
from dragoman_server.upstream.pool import ConnectionPool, Origin, PoolLimits
from growth.core import stream
from growth.cost import Dimension, Work

_REQUESTS = 20
_LEASES = 1000
_LINES = 100

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
    base_url = f"http://10.0.0.1:{number + 1}/v1"
    return UpstreamSettings(name=f"up{number}", protocol="openai_chat", base_url=base_url, **more)


def _body(model: str) -> bytes:
    messages = [{"role": "user", "content": "Hi"}]
    return json.dumps({"model": model, "max_tokens": 9, "messages": messages}).encode()


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
        super().__init__()
        self._silent = silent

    def script_for(self, *request: Any) -> Script:
        return Script([Sleep(math.inf)] if len(self.sent) < self._silent else [_RESPONSE])


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
        while len(upstreams.sent) < requests:
            await anyio.lowlevel.checkpoint()
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
        worker = _Worker(settings, app, listener, ready.set, SignalMeanings(()), lambda _: None)
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
    script = Script(stream("openai_chat", deltas), headers=[("content-type", "text/event-stream")])
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
            await store.apply(Add([(f"budget:key{number % budgets}", 2e9)], 1.0, 1e9))
            await total(store, f"budget:key{number % budgets}", 1e9)

    return work, _LEASES


def _with_secrets(secrets: int) -> Work:
    formatter = JSONFormatter(Mask([f"{number:08}-key-of-an-account" for number in range(secrets)]))
    path = "/v1/chat/completions"
    known = {"id": "0123456789abcdef", "protocol": "openai_chat", "path": path, "status": 200}
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
    Dimension("event, through the gateway", "the length of the response", (10, 100, 1000, 5000), _streamed),
    Dimension("request", "accounts", _ONE_TO_500, _with_accounts),
    Dimension("request", "accounts, weighted", _ONE_TO_500, partial(_with_accounts, selection="weighted")),
    Dimension("request", "accounts, most_remaining", _ONE_TO_500, partial(_with_accounts, selection="most_remaining")),
    Dimension("request", "accounts with limits", _ONE_TO_500, partial(_with_accounts, limits=10**6)),
    Dimension("request", "client keys", (1, 10, 100, 1000, 10_000), _with_keys),
    Dimension("request", "upstreams, upstream/model", _ONE_TO_200, partial(_with_upstreams, model="up{}/m")),
    Dimension("request", "upstreams, listed model", _ONE_TO_200, partial(_with_upstreams, model="m{}")),
    Dimension("request", "models of an upstream", _ONE_TO_5000, _with_models),
    Dimension("request", "aliases", _ONE_TO_5000, partial(_with_aliases, alias="m{}", model="m{}")),
    Dimension("request", "aliases, none of which fits", _ONE_TO_5000, partial(_with_aliases, alias="m{}", model="up0/m")),
    Dimension("request", "aliases with *", _ONE_TO_5000, partial(_with_aliases, alias="m{}-*", model="m{}-x")),
    Dimension("request", "prices", _ONE_TO_5000, _with_prices),
    Dimension("request", "models of a client key", _ONE_TO_5000, _with_models_of_a_key),
    Dimension("request", "open requests", _ONE_TO_500, _with_open_requests),
    Dimension("request", "open connections", _ONE_TO_200, _with_connections),
    Dimension("connection", "idle connections to upstreams", _ONE_TO_200, _with_idle_connections),
    Dimension("budget", "budgets", (1, 10, 100, 1000), _with_budgets),
    Dimension("log line", "secrets", (10, 100, 1000, 4000), _with_secrets),
    Dimension("route of an agent's model", "models that upstreams list", (2, 20, 100, 1000, 5000), _with_listed_models),
)  # fmt: skip
