"""A server in this process, thousands of clients that leave it, and what they have left behind.

What is counted: tasks, objects, descriptors, connections of both sides, leases of accounts, reservations of budgets,
the server's own registers, and memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import logging
import os
import random
import resource
import socket
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from types import MethodType
from typing import Any

import anyio
import anyio.to_thread
import trio
from edge import (
    CHAT_PATH,
    CHAT_STREAM,
    MESSAGES_PATH,
    RESPONSES_PATH,
    STREAM_HEAD,
    Conversation,
    Upstream,
    post,
    reset_at_close,
)
from h2_client import Peer, data, headers, reset
from leaving import PHASES, SERVER, body_of, deaf_port, play, ways
from msgspec.structs import replace
from trio._core._run import GLOBAL_RUN_CONTEXT

from dragoman_server.accounts.stores.memory import MemoryAccountStore
from dragoman_server.app import Application
from dragoman_server.config.loader import load
from dragoman_server.gateway import Gateway
from dragoman_server.proxying.attempt import Attempt
from dragoman_server.proxying.client_request import ClientRequest
from dragoman_server.proxying.plan import Plan
from dragoman_server.proxying.request_handler import RequestHandler
from dragoman_server.serving.connection import WorkerContext
from dragoman_server.serving.run import _Worker
from dragoman_server.serving.signals import SignalMeanings
from dragoman_server.settings import ClientKey, Price, Settings
from dragoman_server.settings.client_keys import hash_client_key

# Where a request is when its client leaves, if it gets there: some leave before. Besides PHASES:
_MODELS = PHASES | {"after the response": "up/m", "sending the head": "up/m"}
_KEY = "drk_census"
# What gets faster by and by (caches, specialized code) has come to its size.
_WARM = 100
# asyncio holds a hundred timers that were cancelled before it looks for such.
_SOME = 150
_SETTLING_S = 30.0


def _is_of_coverage(value: object) -> bool:
    """Whether it is of coverage's, which holds three methods for each thread that there was."""
    # Not isinstance(), which reads the class of a value: proxies of the SDKs import their module then.
    return type(value) is MethodType and type(value.__self__).__module__.startswith("coverage.")


@dataclass
class Census:
    """What there is. open: by name, what must be there no more than before."""

    open: dict[str, float]
    objects: Counter[str]
    resident_mb: float

    def more_than(self, before: Census, of: int) -> list[str]:
        """What there is more of. of: how many clients were there meanwhile."""
        grown = {kind: count - before.objects[kind] for kind, count in self.objects.items()}
        found = [f"{count} objects {kind}" for kind, count in grown.items() if count > _SOME + of / 100]
        more = {name: round(count - before.open[name], 9) for name, count in self.open.items()}
        return found + [f"{count} {name}" for name, count in more.items() if count > 0]


@dataclass
class Behind:
    """What is left behind. Memory in MB.

    collected: objects in cycles, which only the collector has found.
    uncollected: requests that wait for it, with all that was read of them. Few are expected: attempts side by side end
    cancelled, and anyio's task_done() on asyncio then refers to itself.
    """

    found: list[str]
    clients: int
    collected: int
    uncollected: list[str]
    growth_mb: float
    outcomes: Counter[str] = field(default_factory=Counter)

    def line(self) -> str:
        return (
            f"{self.clients} clients left behind: {', '.join(self.found) or 'nothing'}; "
            f"{self.collected / self.clients:.1f} objects each waited for the collector"
            f"{''.join(f', {each}' for each in self.uncollected)}, "
            f"memory has grown by {self.growth_mb:.1f} MB; "
            + ", ".join(f"{count} {what}" for what, count in self.outcomes.most_common())
        )


def left_behind(backend: str, clients: int, directory: Path) -> Behind:
    """What so many clients that leave have left behind in a server of this process."""
    options: dict[str, Any] = {"use_uvloop": backend == "uvloop"} if backend != "trio" else {}
    name = "trio" if backend == "trio" else "asyncio"
    playing: set[Conversation] = set()

    def played(conversation: Conversation) -> None:
        playing.add(conversation)
        try:
            _play(conversation)
        finally:
            playing.discard(conversation)

    with Upstream(played) as upstream, deaf_port() as (deaf, _):
        file = directory / "census.toml"
        file.write_text(
            f"[server]\nsimulator = false\ndrain_s = 0\n{SERVER}\nsecret = '{'s' * 32}'\n"
            f'[[upstreams]]\nname = "up"\nprotocol = "openai_chat"\nbase_url = "{upstream.url}"\n'
            f'models = ["m"]\nmodel_list = false\n{ways(upstream.url, deaf)}\n'
            '[[accounts]]\nupstream = "up"\nname = "limited"\napi_key = "limited-0123"\n'
            "max_concurrent_requests = 100000\n"
        )
        run = _Run(backend, clients, upstream, playing, load(environ={}, path=str(file)).settings)
        return anyio.run(run, backend=name, backend_options=options)


def _play(conversation: Conversation) -> None:
    with contextlib.suppress(AssertionError):  # it got no whole request
        play(conversation, {"after the response": STREAM_HEAD + CHAT_STREAM})


class _Run(logging.Handler):
    """One server and its clients. As a handler of the log it learns what requests have cost."""

    def __init__(
        self, backend: str, clients: int, upstream: Upstream, playing: set[Conversation], settings: Settings
    ) -> None:
        super().__init__()
        secret = settings.server.secret
        assert secret is not None
        key = ClientKey(name="key", hash=hash_client_key(_KEY, secret), budget=1e6, requests_per_minute=10**6)
        self._settings = replace(
            settings,
            server=replace(settings.server, backend=backend),
            client_keys=(key,),
            prices=(Price(model="*", input=1.0, output=2.0),),
        )
        self._backend = backend
        self._clients = clients
        self._upstream = upstream
        self._playing = playing
        self._cost = 0.0
        self._outcomes: Counter[str] = Counter()

    def emit(self, record: logging.LogRecord) -> None:
        line = getattr(record, "dragoman", {})
        self._cost += line.get("cost_usd") or 0.0
        self._outcomes[line.get("outcome", record.getMessage())] += 1

    async def __call__(self) -> Behind:
        gateway = Gateway(self._settings)
        self._gateway = gateway
        ready = anyio.Event()
        log = logging.getLogger("dragoman.requests")
        before_log = log.level, log.propagate
        log.addHandler(self)
        log.setLevel(logging.INFO)
        log.propagate = False
        try:
            with socket.create_server(("127.0.0.1", 0), backlog=256) as listener:
                listener.setblocking(False)
                app = Application(gateway)
                worker = _Worker(self._settings, app, listener, ready.set, SignalMeanings(()), lambda _: None)
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(worker.run)
                    await ready.wait()
                    return await self._abort(listener.getsockname(), worker)
        finally:
            log.removeHandler(self)
            log.level, log.propagate = before_log

    async def _abort(self, address: tuple[str, int], worker: _Worker) -> Behind:
        idle = self._tasks()
        self._worker = next(each for each in gc.get_objects() if isinstance(each, WorkerContext))
        await anyio.to_thread.run_sync(_leave, address, range(_WARM), self._upstream)
        before = await self._settled(idle)
        self._outcomes.clear()
        collected = _collected()
        await anyio.to_thread.run_sync(_leave, address, range(_WARM, _WARM + self._clients), self._upstream)
        after = await self._settled(idle)
        collected = _collected() - collected
        uncollected = await self._uncollected(address, idle)
        worker.stopping.set()
        return Behind(
            after.more_than(before, self._clients),
            self._clients,
            collected,
            uncollected,
            after.resident_mb - before.resident_mb,
            self._outcomes,
        )

    def _tasks(self) -> int:
        if self._backend == "trio":
            return trio.lowlevel.current_statistics().tasks_living
        return len(asyncio.all_tasks())

    async def _settled(self, idle: int) -> Census:
        """The census, once there are no more tasks than in a server without clients and nothing changes."""
        await self._settle(idle)
        if self._backend == "trio":
            # It holds up to a thousand scopes that have ended, for their deadlines, before it looks for such.
            GLOBAL_RUN_CONTEXT.runner.deadlines._prune()
        gc.collect()
        kinds = (type(each) for each in gc.get_objects() if not _is_of_coverage(each))
        objects = Counter(f"{kind.__module__}.{kind.__qualname__}" for kind in kinds)
        return Census(await self._open(), objects, _resident_mb())

    async def _settle(self, idle: int) -> None:
        with anyio.move_on_after(_SETTLING_S):
            last = await self._open()
            while True:
                await anyio.sleep(0.1)
                last, before = await self._open(), last
                if last == before and last["tasks"] <= idle:
                    break

    async def _uncollected(self, address: tuple[str, int], idle: int) -> list[str]:
        """What waits for the collector of some clients more."""
        gc.collect()
        # Exceptions that other tests hold have some in their tracebacks.
        before = Counter(map(type, gc.get_objects()))
        gc.disable()
        try:
            await anyio.to_thread.run_sync(_leave, address, range(_WARM), self._upstream)
            await self._settle(idle)
            kinds = Counter(map(type, gc.get_objects())) - before
        finally:
            gc.enable()
        found = {kind.__name__: kinds[kind] for kind in (Attempt, ClientRequest, RequestHandler, Plan)}
        return [f"{count} objects {name}" for name, count in found.items() if count > _WARM / 2]

    async def _open(self) -> dict[str, float]:
        accounts, transport = self._gateway.accounts, self._gateway.client._direct
        assert isinstance(accounts, MemoryAccountStore)
        counters = accounts._counters.items()
        spent = sum(amount for name, (amount, _) in counters if not name.startswith("use:"))
        return {
            "tasks": self._tasks(),
            "descriptors": len(os.listdir("/proc/self/fd")),
            "connections of clients": len(self._worker.connections),
            "idle connections of clients": len(self._worker.idle),
            "scopes of requests": len(self._worker.requests),
            "leases of upstream connections": transport.pool.busy,  # type: ignore[union-attr]
            "conversations with upstreams": len(self._playing),
            "leases of accounts": sum(map(len, accounts._expiries.values())),
            "dollars reserved": round(spent - self._cost, 9),
        }


def _resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


def _collected() -> int:
    return sum(each["collected"] for each in gc.get_stats())


def _leave(address: tuple[str, int], numbers: range, upstream: Upstream) -> None:
    """Clients, one after the other, with some of them at the same time."""
    draw = random.Random(numbers.start)
    with contextlib.ExitStack() as staying:
        for number in numbers:
            if number % 20 == 0:
                staying.close()
                upstream.conversations.clear()
            client = staying.enter_context(socket.socket())
            client.settimeout(_SETTLING_S)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
            client.connect(address)
            with contextlib.suppress(TimeoutError, BlockingIOError, ConnectionError):
                (_send_http2 if draw.random() < 0.4 else _send_http1)(client, number, draw)
            if draw.random() < 0.5:
                reset_at_close(client)
            if draw.random() < 0.7:
                client.close()


def _drawn(number: int, draw: random.Random) -> tuple[str, str, bytes]:
    """A phase, and a request to get there: its path and body."""
    phase = draw.choice(list(_MODELS))
    path = draw.choice((CHAT_PATH, MESSAGES_PATH, RESPONSES_PATH))
    stream = phase == "after the response" or draw.random() < 0.7
    body = body_of(path, _MODELS[phase], f"phase {phase} number {number}", stream)
    return phase, path, json.dumps(body).encode()


def _send_http1(client: socket.socket, number: int, draw: random.Random) -> None:
    phase, path, body = _drawn(number, draw)
    request = post(path, body, {"x-api-key": _KEY})
    if phase == "sending the head":
        request = request[:40]
    elif phase == "sending the body":
        request = request[:-5]
    else:
        request += draw.choice((b"", b"", b"\r\n", request))
    client.sendall(request)
    _look(client, phase, draw)


def _send_http2(client: socket.socket, number: int, draw: random.Random) -> None:
    peer = Peer(client)
    peer.begin()
    phase = ""
    for stream in range(1, 2 * draw.randint(1, 3), 2):
        phase, path, body = _drawn(number, draw)
        fields = headers(("x-api-key", _KEY), ("content-type", "application/json"), method="POST", path=path)
        head = peer.request(stream, fields, end=False)
        if phase == "sending the head":
            peer.send(head.serialize()[:20])
            break
        whole = phase != "sending the body"
        peer.send(head, data(stream, body if whole else body[:-5], end=whole))
        if draw.random() < 0.3:
            _look(client, phase, draw)
            peer.send(reset(stream))
    _look(client, phase, draw)


def _look(client: socket.socket, phase: str, draw: random.Random) -> None:
    """Wait for a while, if at all, and read little: it may get that far."""
    if phase == "after the response" or draw.random() < 0.5:
        client.settimeout(0.05 if phase == "after the response" else draw.choice((0.0001, 0.005)))
        with contextlib.suppress(TimeoutError, BlockingIOError):
            client.recv(100)
        client.settimeout(_SETTLING_S)
