"""An upstream that compresses: a body that decompresses to gigabytes delays no other request and ends with an error."""

import signal
import socket
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from functools import cache

import pytest
from edge import (
    CHAT_PATH,
    LOOPS,
    MESSAGES_PATH,
    Conversation,
    EdgeGateway,
    Script,
    Stopwatch,
    Upstream,
    chat,
    chunk,
    post,
)

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

pytestmark = [pytest.mark.process, pytest.mark.promise("S8", "R10")]

MIB = 1024 * 1024
# The longest time of a healthz while the gateway decompresses a bomb, on a machine with other work.
TIMEOUT_S = 0.5


def gzipped(first: bytes, filler: bytes) -> bytes:
    packer = zlib.compressobj(9, wbits=31)
    return packer.compress(first) + b"".join(packer.compress(filler) for _ in range(256)) + packer.flush()


def zstandard(first: bytes, filler: bytes) -> bytes:
    packer = zstd.ZstdCompressor()
    return packer.compress(first) + b"".join(packer.compress(filler) for _ in range(512)) + packer.flush()


PACKERS: dict[str, Callable[[bytes, bytes], bytes]] = {"gzip": gzipped, "zstd": zstandard}
# Repeated up to 256 MiB (gzip) or 512 MiB (zstd) after the first event.
FILLERS = {
    "comments": b": x\n\n" * (MIB // 5),
    "blank lines": b"\n" * MIB,
    "events": b"data: {}\n\n" * (MIB // 10),
    "one line": b"x" * MIB,
}


@cache
def bomb(coding: str, what: str) -> bytes:
    return PACKERS[coding](chunk("Hello"), FILLERS[what])


@pytest.fixture(scope="module", params=LOOPS)
def running(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Upstream, EdgeGateway]]:
    directory = tmp_path_factory.mktemp("bombs")
    with Upstream() as upstream, EdgeGateway(directory, upstream, backend=request.param) as gateway:
        yield upstream, gateway.ready()


def answering(coding: str, body: bytes, media_type: str) -> Script:
    """Return a script for one request a connection: a kept one would go on with the script of an earlier test."""
    head = f"HTTP/1.1 200 OK\r\ncontent-type: {media_type}\r\ncontent-encoding: {coding}\r\nconnection: close\r\n\r\n"

    def script(conversation: Conversation) -> None:
        if conversation.read() is not None:
            conversation.send(head.encode() + body)

    return script


def watched(gateway: EdgeGateway, call: Callable[[], bytes]) -> tuple[bytes, float]:
    """Return the result of the call, and the longest time for which the gateway delayed a healthz meanwhile."""
    ended, longest = threading.Event(), 0.0

    def watch() -> None:
        nonlocal longest
        while not ended.is_set():
            stopwatch = Stopwatch(gateway)
            gateway.get("/healthz")
            longest = max(longest, stopwatch.worked())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        return call(), longest
    finally:
        ended.set()
        watcher.join()


def drained(client: socket.socket) -> bytes:
    """Return the beginning and the end of a stream, which may be long."""
    begin = tail = b""
    while data := client.recv(MIB):
        begin = begin if len(begin) > 2000 else begin + data
        tail = (tail + data)[-2000:]
        if tail.endswith(b"0\r\n\r\n"):
            break
    return begin[:2000] + tail


TOO_MUCH = (b"times its size", b"without a server-sent event", b"one server-sent event has more than")


@pytest.mark.parametrize(
    ("path", "coding", "what"),
    [
        *((CHAT_PATH, "zstd", each) for each in FILLERS),
        (CHAT_PATH, "gzip", "comments"),
        (MESSAGES_PATH, "zstd", "comments"),
        (MESSAGES_PATH, "zstd", "one line"),
    ],
)
def test_a_stream_that_decompresses_without_end_ends_with_an_error(
    running: tuple[Upstream, EdgeGateway], path: str, coding: str, what: str
) -> None:
    upstream, gateway = running
    upstream.script = answering(coding, bomb(coding, what), "text/event-stream")
    before = gateway.resident_bytes

    def call() -> bytes:
        with gateway.connect() as client:
            client.sendall(post(path, {**chat(), "max_tokens": 10}))
            return drained(client)

    response, waited = watched(gateway, call)
    assert b"Hello" in response
    assert any(text in response for text in TOO_MUCH), response
    assert waited < TIMEOUT_S
    assert gateway.resident_bytes - before < 100 * MIB


def test_the_process_stops_while_it_decompresses(running: tuple[Upstream, EdgeGateway]) -> None:
    """The last test of this process."""
    upstream, gateway = running
    upstream.script = answering("zstd", bomb("zstd", "one line"), "text/event-stream")
    with gateway.connect() as client:
        client.sendall(post(CHAT_PATH, chat()))
        begun = time.monotonic()
        gateway.signal(signal.SIGTERM)
        gateway.read_to_end(client)
        gateway.wait()
        assert time.monotonic() - begun < 25, "it has waited for all of drain_s"
