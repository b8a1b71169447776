"""Which Python functions a request runs through, and how many for a steady event and a request: the guard of both.

Calls are counted, not timed, so that the machine does not matter. Coroutines that are resumed count as calls, too. The
bounds are a few above what is needed today; docs/performance.md says where the time goes. A change that exceeds one
has put something into the path of every event or request: move it out, or argue for the new bound.
"""

import functools
import importlib
import inspect
import json
import logging
import math
import re
import socket
import ssl
import sys
import threading
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any

import anyio
import anyio.from_thread
import anyio.to_thread
import pytest

from dragoman_server.app import create_app
from dragoman_server.platform.clock import event_loop
from dragoman_server.serving.run import _Worker
from dragoman_server.serving.signals import SignalMeanings
from dragoman_server.settings import ClientKey, ServerSettings, Settings, UpstreamSettings
from dragoman_server.settings.client_keys import hash_client_key
from dragoman_server.settings.secret import Secret

if TYPE_CHECKING:
    from http_certificate import Certificate

EVENTS = 200
REQUESTS = 50

CHUNK = (
    b'data: {"id":"c","object":"chat.completion.chunk","model":"m","choices":[{"index":0,"delta":%b}]}\n\n'
)
STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
WHOLE = json.dumps(
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

# Calls per steady event that comes alone, and per request without a stream. Metrics add calls to a request only.
WITH_METRICS = 49
BOUNDS = {"asyncio": (30, 404), "trio": (32, 425)}
# What TLS of the upstream adds.
WITH_TLS = {"asyncio": (12, 22), "trio": (8, 22)}
# Calls that a request adds if somebody reads the feed.
READ = {"asyncio": 36, "trio": 45}


class Peer:
    """One end of a connection, with blocking reads."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self.socket.settimeout(20)
        self._buffer = b""

    def read_until(self, mark: bytes) -> bytes:
        while mark not in self._buffer:
            data = self.socket.recv(65536)
            assert data, self._buffer
            self._buffer += data
        end = self._buffer.index(mark) + len(mark)
        read, self._buffer = self._buffer[:end], self._buffer[end:]
        return read

    def read(self, size: int) -> bytes:
        while len(self._buffer) < size:
            self._buffer += self.socket.recv(65536)
        read, self._buffer = self._buffer[:size], self._buffer[size:]
        return read

    def read_message(self) -> bytes:
        head = self.read_until(b"\r\n\r\n").lower()
        return self.read(int(head.split(b"content-length: ")[1].split(b"\r\n")[0]))


def request(*, stream: bool, path: str = "/v1/messages", key: str = "") -> bytes:
    messages = [{"role": "user", "content": "Hi"}]
    body = json.dumps({"model": "m", "max_tokens": 9, "stream": stream, "messages": messages}).encode()
    authorization = f"authorization: Bearer {key}\r\n" if key else ""
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\n{authorization}content-length: {len(body)}\r\n\r\n"
    return head.encode() + body


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


class Counter:
    """Counts the Python calls of the event loop's thread, between start() and stop()."""

    def __init__(self) -> None:
        self.calls = 0

    def start(self) -> None:
        self.calls = 0
        sys.setprofile(self._count)

    def stop(self) -> int:
        sys.setprofile(None)
        return self.calls

    def _count(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            self.calls += 1


class Walk(Counter):
    """Notes which of some functions are called, in the order of their first calls. names: by their code."""

    def __init__(self, names: dict[CodeType, str]) -> None:
        super().__init__()
        self._names = names
        self.called: dict[str, None] = {}

    def _count(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and frame.f_code in self._names:
            self.called[self._names[frame.f_code]] = None


def drive(counter: Counter, address: tuple[str, int], listener: socket.socket) -> tuple[float, float]:
    """Be the client and the upstream, in a thread. Return the calls of an event and of a request."""
    run: Callable[..., Any] = anyio.from_thread.run_sync
    with socket.create_connection(address) as client_socket:
        client = Peer(client_socket)
        client.socket.sendall(request(stream=True))
        upstream = Peer(listener.accept()[0])
        upstream.read_message()
        upstream.socket.sendall(STREAM_HEAD)
        word = chunk(CHUNK % b'{"content":"word"}')
        for number in range(EVENTS + 20):
            if number == 20:
                run(counter.start)
            upstream.socket.sendall(word)
            client.read_until(b'"text":"word"}}\n\n')
        of_events = run(counter.stop)
        upstream.socket.sendall(chunk(CHUNK % b"{}") + chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n")
        client.read_until(b"\r\n0\r\n\r\n")
        for number in range(REQUESTS + 5):
            if number == 5:
                run(counter.start)
            client.socket.sendall(request(stream=False))
            upstream.read_message()
            head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
            upstream.socket.sendall(head % len(WHOLE) + WHOLE)
            client.read_message()
        of_requests = run(counter.stop)
        upstream.socket.close()
    return of_events / EVENTS, of_requests / REQUESTS


def walk(
    walk: Walk, path: str, streams: bool, key: str, address: tuple[str, int], listener: socket.socket
) -> None:
    """Send one request and its response."""
    run: Callable[..., Any] = anyio.from_thread.run_sync
    run(walk.start)
    with socket.create_connection(address) as client_socket:
        client = Peer(client_socket)
        client.socket.sendall(request(stream=streams, path=path, key=key))
        upstream = Peer(listener.accept()[0])
        upstream.read_message()
        if streams:
            upstream.socket.sendall(STREAM_HEAD)
            for word in (b"one", b"two", b"three"):
                upstream.socket.sendall(chunk(CHUNK % b'{"content":"%b"}' % word))
                client.read_until(word)
        else:
            head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
            upstream.socket.sendall(head % len(WHOLE) + WHOLE)
            client.read_message()
    run(walk.stop)
    upstream.socket.close()


async def serve(
    backend: str, work: Callable[..., Any], more: Mapping[str, Any], keys: Any = (), scheme: str = "http"
) -> Any:
    """Run a gateway, and the work in a thread, with the addresses of both sides. more: settings of the server.

    scheme: of the upstream.
    """
    with (
        socket.create_server(("127.0.0.1", 0)) as gateway_listener,
        socket.create_server(("127.0.0.1", 0)) as upstream_listener,
    ):
        gateway_listener.setblocking(False)
        upstream_listener.settimeout(20)
        url = f"{scheme}://127.0.0.1:{upstream_listener.getsockname()[1]}/v1"
        server = ServerSettings(backend=backend, simulator=False, **more)
        settings = Settings(
            server=server,
            client_keys=keys,
            upstreams=(
                UpstreamSettings(
                    name="up", protocol="openai_chat", base_url=url, models=("m",), model_list=False
                ),
            ),
        )
        ready = anyio.Event()
        signals = SignalMeanings(())
        worker = _Worker(settings, create_app(settings), gateway_listener, ready.set, signals, lambda _: None)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(worker.run)
            await ready.wait()
            done = await anyio.to_thread.run_sync(work, gateway_listener.getsockname(), upstream_listener)
            worker.stopping.set()
    return done


METRICS = {"metrics_key": Secret("a-key-of-some-length-0123456789-0123")}


def drive_over_tls(
    counter: Counter, tls: ssl.SSLContext, address: tuple[str, int], listener: socket.socket
) -> tuple[float, float]:
    with tls.wrap_socket(listener.dup(), server_side=True) as encrypted:
        return drive(counter, address, encrypted)


@pytest.mark.parametrize("case", ["plain", "metrics", "tls"])
@pytest.mark.parametrize("backend", BOUNDS)
def test_calls_of_an_event_and_of_a_request(
    backend: str,
    case: str,
    certificate: "Certificate",
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Not the calls of a log that another test has switched on.
    for name in ("dragoman", "dragoman.requests"):
        caplog.set_level(logging.WARNING, name)
    # Not in the event loop of pytest's plugin, because that is trio's guest mode, which adds calls.
    assert threading.current_thread() is threading.main_thread()
    of_event, of_request = BOUNDS[backend]
    work, scheme = partial(drive, Counter()), "http"
    if case == "metrics":
        of_request += WITH_METRICS
    elif case == "tls":
        of_event += WITH_TLS[backend][0]
        of_request += WITH_TLS[backend][1]
        work, scheme = partial(drive_over_tls, Counter(), certificate.server()), "https"
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate.cert))
    more = METRICS if case == "metrics" else {}
    event = whole = math.inf
    # A busy machine has the event loop look at its timers more often, so the fewest of some count.
    for _ in range(3):
        calls = anyio.run(serve, backend, work, more, (), scheme, **event_loop(backend))
        event, whole = min(event, calls[0]), min(whole, calls[1])
        if event <= of_event and whole <= of_request:
            break
    assert event <= of_event, f"{event:.1f} calls for each event"
    assert whole <= of_request, f"{whole:.0f} calls for each request"


class FeedCalls(Counter):
    """Counts the calls of the feed's functions only."""

    def _count(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and "/dragoman_server/feed/" in frame.f_code.co_filename:
            self.calls += 1


@pytest.mark.parametrize("more", [{}, METRICS], ids=["plain", "metrics"])
@pytest.mark.parametrize("backend", BOUNDS)
def test_nobody_reads_the_feed_so_it_takes_no_call(backend: str, more: dict[str, Any]) -> None:
    calls = anyio.run(serve, backend, partial(drive, FeedCalls()), more, **event_loop(backend))
    assert calls == (0, 0)


def drive_with_reader(
    counter: Counter, address: tuple[str, int], listener: socket.socket
) -> tuple[float, float]:
    with socket.create_connection(address) as connection:
        reader = Peer(connection)
        reader.socket.sendall(b"GET /admin/events HTTP/1.1\r\nhost: localhost\r\n\r\n")
        reader.read_until(b"event: hello")
        return drive(counter, address, listener)


@pytest.mark.parametrize("backend", BOUNDS)
def test_a_reader_of_the_feed_adds_few_calls_to_a_request(
    backend: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("dragoman", "dragoman.requests"):
        caplog.set_level(logging.WARNING, name)
    # A reader is woken some times a second: how many times in a request depends on the machine, so here it is not.
    monkeypatch.setattr("dragoman_server.feed.feed.GATHER_S", 60.0)
    # The fewest of some, because a busy machine has the event loop look at its timers more often.
    without, with_one = [
        min(
            anyio.run(serve, backend, partial(work, Counter()), {}, **event_loop(backend))[1]
            for _ in range(3)
        )
        for work in (drive, drive_with_reader)
    ]
    assert without < with_one <= without + READ[backend]


SECRET, KEY = Secret("a-secret-of-some-length-0123456789ab"), "drk_0123456789"
STEP = re.compile(r"^\| \d+ \| `(\S+)\.py` `(\S+)` \| ([a-z ]*)\|", re.MULTILINE)


@pytest.mark.parametrize("backend", BOUNDS)
@pytest.mark.parametrize(
    ("path", "only"),
    [
        ("/v1/messages", {"", "stream"}),
        ("/v1/chat/completions", {"", "stream", "keys"}),  # a relay
        ("/v1/messages", {"", "keys"}),
        ("/v1/chat/completions", {""}),
    ],
)
def test_a_request_takes_the_steps_that_the_page_names_in_their_order(
    path: str, only: set[str], backend: str
) -> None:
    page = (Path(__file__).parents[3] / "docs/architecture.md").read_text()
    steps = [(file, name) for file, name, of in STEP.findall(page) if of.strip() in only]
    names = {}
    for file, name, _ in STEP.findall(page):
        module = importlib.import_module(f"dragoman_server.{file.replace('/', '.')}")
        function = functools.reduce(getattr, name.split("."), module)
        names[inspect.unwrap(function).__code__] = name
    keys = (ClientKey(name="red", hash=hash_client_key(KEY, SECRET)),) if "keys" in only else ()
    walked, key = Walk(names), KEY if keys else ""
    work = partial(walk, walked, path, "stream" in only, key)
    anyio.run(serve, backend, work, {"secret": SECRET}, keys, **event_loop(backend))
    assert list(walked.called) == [name for _, name in steps]
