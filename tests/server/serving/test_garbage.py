"""A request leaves nothing to the garbage collector, whose runs stop all streams: its objects end with its references.

Each path is taken by a few requests in a running server, with the collector off; then the collector finds nothing.
"""

import asyncio
import gc
import itertools
import json
import logging
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest
import trio
from edge import (
    CHAT_PATH,
    CHAT_STREAM,
    CHAT_WHOLE,
    MESSAGES_PATH,
    RESPONSES_PATH,
    Conversation,
    Upstream,
    chat,
    chunk,
    read_response,
    wait_until,
    whole,
)
from h2_client import Peer, data, headers, is_end, reset
from virtual_time import REAL_BACKENDS

from dragoman_server.app import create_app
from dragoman_server.config.loader import load
from dragoman_server.http import count_tokens
from dragoman_server.platform.timers import event_loop_timers
from dragoman_server.serving.run import _Worker
from dragoman_server.serving.signals import SignalMeanings
from dragoman_server.serving.sockets import bind
from dragoman_server.settings import Settings
from dragoman_server.settings.client_keys import hash_client_key
from dragoman_server.settings.secret import Secret

REQUESTS = 5
KEY = "drk_garbage"
SECRET = "s" * 32

# Objects that anyio's task group on asyncio leaves if it is cancelled from outside: its task_done() refers to an
# exception, whose traceback refers to task_done() and to the request. return_if_cancelled() avoids that where clients
# cause it at will. Here that would cost each request ten calls, for counts that are not there after ten seconds.
KNOWN = {("asyncio", "a count that takes too long"): 170}

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"

Play = Callable[[Conversation], object]


def coded(content: bytes) -> bytes:
    """A chunk of HTTP/1.1."""
    return b"%x\r\n%b\r\n" % (len(content), content)


def sends(content: bytes) -> Play:
    return lambda conversation: conversation.send(content)


def breaks(content: bytes) -> Play:
    """Send that, and close."""

    def play(conversation: Conversation) -> None:
        conversation.send(content)
        conversation.socket.shutdown(socket.SHUT_RDWR)

    return play


def waits(conversation: Conversation) -> None:
    conversation.until_closed()


def begins(conversation: Conversation) -> None:
    conversation.send(BEGIN)
    conversation.until_closed()


def first_of_two(content: bytes) -> tuple[Play, Play]:
    """The first request gets its response when the second one has come, which gets none."""
    second_came = threading.Semaphore(0)

    def first(conversation: Conversation) -> None:
        second_came.acquire(timeout=20)
        conversation.send(content)

    def second(conversation: Conversation) -> None:
        second_came.release()
        conversation.until_closed()

    return first, second


MESSAGE_EVENTS: list[dict[str, Any]] = [
    {"type": "message_start", "message": {"id": "m", "type": "message", "role": "assistant", "model": "m",
     "content": [], "usage": {"input_tokens": 5, "output_tokens": 1}}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hello"}},
    {"type": "content_block_stop", "index": 0},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 3}},
    {"type": "message_stop"},
]  # fmt: skip
MESSAGE = [f"event: {each['type']}\ndata: {json.dumps(each)}\n\n".encode() for each in MESSAGE_EVENTS]

BEGIN = HEAD + coded(chunk("Hello"))
STREAM = HEAD + coded(CHAT_STREAM) + coded(b"")
MESSAGE_STREAM = HEAD + coded(b"".join(MESSAGE)) + coded(b"")
WHOLE = whole(CHAT_WHOLE)
ERROR = whole({"error": {"message": "no"}}, "400 No")
NEXT = whole({"error": {"message": "try the next one"}}, "418 No")
COUNT = whole({"input_tokens": 5})


def messages(model: str = "up/m", *, stream: bool = True) -> dict[str, Any]:
    return {
        "model": model,
        "max_tokens": 9,
        "stream": stream,
        "messages": [{"role": "user", "content": "Hi"}],
    }


def count(model: str) -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": "Hi"}]}


class Case(NamedTuple):
    """A request, and what it goes through.

    plays: of the upstream, one for each request that it gets for one of the client's.
    status: of the response, None if the client leaves: once it has read `leaves_after`, or if that is empty, once the
        upstream has the request.
    """

    plays: tuple[Play, ...]
    path: str
    body: object
    status: int | None = 200
    leaves_after: bytes = b""
    key: str = KEY


def left(plays: tuple[Play, ...], body: object, after: bytes = b"", path: str = MESSAGES_PATH) -> Case:
    return Case(plays, path, body, None, after)


def cases() -> dict[str, Case]:
    streamed, fan_out = messages(), chat("messages/m", n=2)
    return {
        "streamed": Case((sends(STREAM),), MESSAGES_PATH, streamed),
        "whole": Case((sends(WHOLE),), MESSAGES_PATH, messages(stream=False)),
        "relayed": Case((sends(STREAM),), CHAT_PATH, chat()),
        # An upstream's failure.
        "an error": Case((sends(ERROR),), MESSAGES_PATH, streamed, 400),
        "not HTTP": Case((breaks(b"?\r\n\r\n"),), MESSAGES_PATH, streamed, 502),
        "broken in the head": Case((breaks(HEAD[:20]),), MESSAGES_PATH, streamed, 502),
        "broken in the middle": Case((breaks(BEGIN),), MESSAGES_PATH, streamed),
        "broken in a whole response": Case((breaks(WHOLE[:-1]),), MESSAGES_PATH, messages(stream=False), 502),
        "a chunk without a size": Case((breaks(BEGIN + b"?\r\n"),), MESSAGES_PATH, streamed),
        "nothing listens": Case((), MESSAGES_PATH, messages("gone/m"), 502),
        # Several attempts.
        "retried on a second account": Case((sends(NEXT), sends(STREAM)), MESSAGES_PATH, messages("two/m")),
        "hedged, and the first wins": Case(first_of_two(STREAM), MESSAGES_PATH, messages("hedged/m")),
        "hedged, and the second wins": Case((waits, sends(STREAM)), MESSAGES_PATH, messages("hedged/m")),
        "fan-out": Case((sends(MESSAGE_STREAM),) * 2, CHAT_PATH, fan_out),
        "fan-out of which one fails": Case(first_of_two(ERROR), CHAT_PATH, fan_out, 400),
        # A client that leaves.
        "left before the first byte": left((waits,), streamed),
        "left in the middle": left((begins,), streamed, b"Hello"),
        "left in a whole response": left((waits,), messages(stream=False)),
        "left while hedged": left((waits, waits), messages("hedged/m")),
        "left in a fan-out": left((waits, waits), fan_out, path=CHAT_PATH),
        # A refused request.
        "400": Case((), MESSAGES_PATH, b"{", 400),
        "401": Case((), MESSAGES_PATH, streamed, 401, key="drk_wrong"),
        "404": Case((), "/v2/messages", streamed, 404),
        "404 of a model": Case((), MESSAGES_PATH, messages("none/m"), 404),
        # Other endpoints.
        "a count": Case((sends(COUNT),), f"{MESSAGES_PATH}/count_tokens", count("messages/m")),
        "an estimated count": Case((), f"{MESSAGES_PATH}/count_tokens", count("up/m")),
        "a count that takes too long": Case((waits,), f"{MESSAGES_PATH}/count_tokens", count("messages/m")),
        STORED: Case(
            (sends(WHOLE),), RESPONSES_PATH, {"model": "up/m", "input": "Hi", "store": True, "stream": False}
        ),
    }


STORED = "a stored response, which is read and deleted"


class Http1Client:
    """Sends one request at a time. A client that has left comes again on a new connection."""

    tasks = 2  # of the server, for a connection: one reads, one waits for the next request

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address
        self._socket = socket.create_connection(address, 20)

    def send(self, method: str, path: str, content: bytes, key: str) -> None:
        self._received = b""
        head = f"{method} {path} HTTP/1.1\r\nhost: localhost\r\nx-api-key: {key}\r\n"
        self._socket.sendall(f"{head}content-length: {len(content)}\r\n\r\n".encode() + content)

    def response(self) -> tuple[int, bytes]:
        head, _, content = read_response(self._socket).partition(b"\r\n\r\n")
        return int(head.split()[1]), content

    def read_until(self, mark: bytes) -> None:
        while mark not in self._received:
            self._received += self._socket.recv(65536)

    def leave(self) -> None:
        self._socket.close()
        self._socket = socket.create_connection(self._address, 20)

    def close(self) -> None:
        self._socket.close()


class Http2Client:
    """The same over HTTP/2. It leaves a request by resetting its stream."""

    tasks = 3  # one also writes

    def __init__(self, address: tuple[str, int]) -> None:
        self._peer = Peer(socket.create_connection(address, 20))
        self._peer.begin()
        self._stream = -1

    def send(self, method: str, path: str, content: bytes, key: str) -> None:
        self._stream += 2
        fields = headers(("x-api-key", key), method=method, path=path)
        self._peer.send(
            self._peer.request(self._stream, fields, end=False), data(self._stream, content, end=True)
        )

    def response(self) -> tuple[int, bytes]:
        while (frame := self._peer.receive()) is None or not is_end(frame, self._stream):
            assert frame is not None
        return int(self._peer.responses[self._stream][":status"]), bytes(self._peer.contents[self._stream])

    def read_until(self, mark: bytes) -> None:
        while mark not in self._peer.contents.get(self._stream, b""):
            assert self._peer.receive()

    def leave(self) -> None:
        self._peer.send(reset(self._stream))

    def close(self) -> None:
        self._peer.socket.close()


Client = Http1Client | Http2Client


class Script:
    """The upstream's side of a case: its plays in turn, whatever the connection. came: the requests so far."""

    def __init__(self, plays: tuple[Play, ...]) -> None:
        self._plays = itertools.cycle(plays)
        self._turn = threading.Lock()
        self.came = 0

    def __call__(self, conversation: Conversation) -> None:
        while conversation.read() is not None:
            with self._turn:
                play = next(self._plays)
                self.came += 1
            play(conversation)


def take(case: Case, client: Client, script: Script, requests: int) -> None:
    """Be the client, in a thread."""
    content = case.body if isinstance(case.body, bytes) else json.dumps(case.body).encode()
    before = script.came
    for number in range(1, requests + 1):
        client.send("POST", case.path, content, case.key)
        if case.status is None:
            client.read_until(case.leaves_after)
            wait_until(lambda: script.came == before + number * len(case.plays))  # noqa: B023
            client.leave()
            continue
        status, response = client.response()
        assert status == case.status, response
        if case.path == RESPONSES_PATH:
            for method in ("GET", "DELETE"):
                client.send(method, f"{case.path}/{json.loads(response)['id']}", b"", case.key)
                assert client.response()[0] == 200
    # The upstream may read the last one behind the client's response, if the gateway did not wait for it.
    wait_until(lambda: script.came == before + requests * len(case.plays))


def settings_of(backend: str, upstream: Upstream, directory: Path) -> Settings:
    lines = [
        f'[server]\nsimulator = false\nport = 0\nbackend = "{backend}"\nsecret = "{SECRET}"\nresponse_store = "memory"',
        f'[[client_keys]]\nname = "key"\nhash = "{hash_client_key(KEY, Secret(SECRET))}"',
        '[[rules]]\naction = "try_next"\nstatuses = [418]',
    ]
    with socket.create_server(("127.0.0.1", 0)) as closed:
        gone = f"http://127.0.0.1:{closed.getsockname()[1]}"
    for name, protocol, url, more in (
        ("up", "openai_chat", upstream.url, ""),
        ("gone", "openai_chat", gone, ""),
        ("two", "openai_chat", upstream.url, ""),
        ("hedged", "openai_chat", upstream.url, "hedge_s = 0.01"),
        ("messages", "anthropic_messages", upstream.url.removesuffix("/v1"), "counts_tokens = true"),
    ):
        lines += [
            f'[[upstreams]]\nname = "{name}"\nprotocol = "{protocol}"\nbase_url = "{url}"',
            f'models = ["m"]\nmodel_list = false\n{more}',
        ]
    lines += [
        f'[[accounts]]\nupstream = "{upstream}"\nname = "{name}"\napi_key = "{upstream}-{name}-0123"'
        for upstream in ("two", "hedged")
        for name in ("a", "b")
    ]
    file = directory / "dragoman.toml"
    file.write_text("\n".join(lines))
    return load(environ={}, path=str(file)).settings


@contextmanager
def collected() -> Iterator[list[str]]:
    """The types of what only the collector has found after the block."""
    garbage: list[str] = []
    gc.collect()
    gc.freeze()  # else each collection walks over all that the tests before have left: a second, some eighty times
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        yield garbage
        gc.collect()
        garbage += [type(each).__name__ for each in gc.garbage]
    finally:
        gc.garbage.clear()
        gc.set_debug(0)
        gc.enable()


async def left_by_a_transport() -> int:
    """The objects that asyncio's transport of any connection leaves, because it refers to itself."""
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname()),
        collected() as garbage,
    ):
        accepted, _ = listener.accept()
        accepted.setblocking(False)
        loop = asyncio.get_running_loop()
        transport, _ = await loop.connect_accepted_socket(asyncio.Protocol, accepted)
        transport.abort()
        del transport, accepted
        await anyio.lowlevel.checkpoint()
        await anyio.lowlevel.checkpoint()
    return len(garbage)


class Server:
    """The gateway in this event loop."""

    def __init__(self, worker: _Worker, backend: str) -> None:
        self._worker = worker
        self._backend = backend
        if backend == "trio":
            event_loop_timers()  # whose task begins when they are first used
        self.idle = self.tasks()

    def tasks(self) -> int:
        if self._backend == "trio":
            return trio.lowlevel.current_statistics().tasks_living
        return len(asyncio.all_tasks())

    async def settled(self, tasks: int) -> None:
        """Wait until there are no more tasks than without clients, and so many."""
        with anyio.fail_after(20):
            while self.tasks() > self.idle + tasks or self._worker.requests:
                await anyio.lowlevel.checkpoint()
            for _ in range(20):  # what the event loop still has to call
                await anyio.lowlevel.checkpoint()

    async def garbage_of(self, case: Case, client: Client, upstream: Upstream) -> Counter[str]:
        script = Script(case.plays)
        upstream.restart(script)
        await anyio.to_thread.run_sync(take, case, client, script, 1)
        await self.settled(client.tasks)
        with collected() as garbage:
            await anyio.to_thread.run_sync(take, case, client, script, REQUESTS)
            await self.settled(client.tasks)
        return Counter(garbage)


@pytest.mark.anyio
@pytest.mark.backends(*REAL_BACKENDS)
@pytest.mark.all_combinations
@pytest.mark.parametrize("client_class", [Http1Client, Http2Client])
@pytest.mark.no_cover
async def test_a_request_leaves_nothing_to_the_collector(
    anyio_backend_name: str,
    client_class: type[Client],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    of_a_transport = await left_by_a_transport() if anyio_backend_name == "asyncio" else 0
    found = {}
    with Upstream() as upstream:
        settings = settings_of(anyio_backend_name, upstream, tmp_path)
        listener = bind(settings.server)  # which the worker closes
        ready = anyio.Event()
        signals = SignalMeanings(())
        worker = _Worker(settings, create_app(settings), listener, ready.set, signals, lambda _: None)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(worker.run)
            await ready.wait()
            server = Server(worker, anyio_backend_name)
            for name, case in cases().items():
                # A busy machine may take long for the others.
                monkeypatch.setattr(count_tokens, "COUNT_TIMEOUT_S", 0.05 if "too long" in name else 60.0)
                with closing(client_class(listener.getsockname())) as client:
                    garbage = await server.garbage_of(case, client, upstream)
                await server.settled(0)
                rest = garbage.total() - of_a_transport * garbage["_SelectorSocketTransport"]
                if rest > KNOWN.get((anyio_backend_name, name), 0) * REQUESTS:
                    found[name] = garbage
            worker.stopping.set()
    assert found == {}
    assert [line for line in caplog.records if line.levelno >= logging.ERROR] == []
