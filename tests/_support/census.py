"""A server in this process, thousands of clients that leave it, and what they have left behind: tasks, objects,
descriptors.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import random
import socket
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import trio
from edge import (
    CHAT_PATH,
    MESSAGES_PATH,
    RESPONSES_PATH,
    Upstream,
    post,
    reset_at_close,
)
from leaving import PHASES, body_of, play

from dragoman_server.app import create_app
from dragoman_server.serve import _Requests, _Worker
from dragoman_server.settings import OPENAI_CHAT, ServerSettings, Settings, UpstreamSettings

# Where a request is when its client leaves, if it gets there: some leave before.
_PHASES = [phase for phase, model in PHASES.items() if model == "up/m"]
# What gets faster by and by (caches, specialized code) has come to its size.
_WARM = 100
# asyncio holds a hundred timers that were cancelled before it looks for such.
_SOME = 150
_SETTLING_S = 10.0


@dataclass
class Census:
    """What there is."""

    tasks: int
    descriptors: int
    objects: Counter[str]

    def more_than(self, before: Census, of: int) -> list[str]:
        """What there is more of. of: how many clients were there meanwhile."""
        grown = {kind: count - before.objects[kind] for kind, count in self.objects.items()}
        found = [f"{count} objects {kind}" for kind, count in grown.items() if count > _SOME + of / 100]
        if self.tasks > before.tasks:
            found.append(f"{self.tasks - before.tasks} tasks")
        if self.descriptors > before.descriptors:
            found.append(f"{self.descriptors - before.descriptors} descriptors")
        return found


def _open(backend: str) -> tuple[int, int]:
    """Tasks and descriptors."""
    tasks = trio.lowlevel.current_statistics().tasks_living if backend == "trio" else len(asyncio.all_tasks())
    return tasks, len(list(Path("/proc/self/fd").iterdir()))


def _objects() -> Counter[str]:
    gc.collect()
    kinds = (type(each) for each in gc.get_objects())
    return Counter(f"{kind.__module__}.{kind.__qualname__}" for kind in kinds)


def left_behind(backend: str, clients: int) -> list[str]:
    """What so many clients that leave have left behind in a server of this process."""
    options: dict[str, Any] = {"use_uvloop": backend == "uvloop"} if backend != "trio" else {}
    name = "trio" if backend == "trio" else "asyncio"
    with Upstream(play) as upstream:
        return anyio.run(_run, backend, clients, upstream, backend=name, backend_options=options)


async def _run(backend: str, clients: int, upstream: Upstream) -> list[str]:
    settings = Settings(
        server=replace(ServerSettings(), backend=backend, simulator=False, drain_s=0.0),
        upstreams=(
            UpstreamSettings(
                name="up", protocol=OPENAI_CHAT, base_url=upstream.url, models=("m",), model_list=False
            ),
        ),
    )
    ready = anyio.Event()
    with socket.create_server(("127.0.0.1", 0), backlog=256) as listener:
        listener.setblocking(False)
        worker = _Worker(settings, _Requests(create_app(settings)), listener, ready.set, ())
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(worker.run)
            await ready.wait()
            idle, _ = _open(backend)
            address = listener.getsockname()
            await anyio.to_thread.run_sync(_leave, address, range(_WARM), upstream)
            before = await _settled(backend, idle)
            await anyio.to_thread.run_sync(_leave, address, range(_WARM, _WARM + clients), upstream)
            after = await _settled(backend, idle)
            worker.stopping.set()
    return after.more_than(before, clients)


async def _settled(backend: str, idle: int) -> Census:
    """The census, once there are no more tasks than in a server without clients and nothing changes."""
    with anyio.move_on_after(_SETTLING_S):
        last = _open(backend)
        while True:
            await anyio.sleep(0.1)
            last, before = _open(backend), last
            if last == before and last[0] <= idle:
                break
    return Census(*_open(backend), _objects())


def _leave(address: tuple[str, int], numbers: range, upstream: Upstream) -> None:
    """Clients, one after the other, with some of them at the same time."""
    draw = random.Random(numbers.start)
    with contextlib.ExitStack() as staying:
        for number in numbers:
            if number % 20 == 0:
                staying.close()
                upstream.conversations.clear()
            client = staying.enter_context(socket.create_connection(address, timeout=10))
            phase = draw.choice(_PHASES)
            path = draw.choice((CHAT_PATH, MESSAGES_PATH, RESPONSES_PATH))
            body = body_of(path, "up/m", f"phase {phase} number {number}", draw.random() < 0.7)
            request = post(path, body)
            client.sendall(
                request[:-5]
                if phase == "sending the body"
                else request + draw.choice((b"", b"\r\n", request))
            )
            if draw.random() < 0.5:
                client.settimeout(draw.choice((0.0001, 0.005)))
                with contextlib.suppress(TimeoutError, BlockingIOError, ConnectionError):
                    client.recv(100)
            if draw.random() < 0.5:
                reset_at_close(client)
            if draw.random() < 0.7:
                client.close()
