"""What one event of an upstream stream costs in CPU: our transport beside httpx2's own, on loopback.

    python tests/bench/bench_transport.py [--seconds 1.0] [--rounds 3]

A server in a child process sends the same chunked SSE answers to both. "bulk": a whole answer as fast as it goes,
with many chunks in one read. "paced": 32 streams with 50 events a second each, so nearly every event comes alone.
The figure is this process's CPU time by event, the median of the rounds; both transports take turns within a round.
"""

import argparse
import asyncio
import multiprocessing
import multiprocessing.connection
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path

import anyio
import httpx2

sys.path.insert(0, str(Path(__file__).parents[1] / "_support"))

from transport_requests import request_to

from dragoman_server.upstream.transport import Http1Transport, ResponseBody

EVENT = b'data: {"id":"chatcmpl-1","choices":[{"index":0,"delta":{"content":" word"}}]}\n\n'
CHUNK = b"%x\r\n%b\r\n" % (len(EVENT), EVENT)
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
BULK_EVENTS = 4000
PACED_STREAMS = 32
PACED_HZ = 50
TIMEOUTS = {"connect": 10.0, "read": 300.0, "write": 30.0, "pool": 10.0}

BACKENDS: dict[str, tuple[str, dict[str, object]]] = {
    "asyncio": ("asyncio", {}),
    "uvloop": ("asyncio", {"use_uvloop": True}),
    "trio": ("trio", {}),
}
Transport = httpx2.AsyncBaseTransport | Http1Transport
TRANSPORTS: dict[str, Callable[[], Transport]] = {
    "httpx2": lambda: httpx2.AsyncHTTPTransport(limits=httpx2.Limits(max_connections=1000)),
    "ours": Http1Transport,
}


def serve(port_to: multiprocessing.connection.Connection) -> None:
    """The server: `GET /bulk` and `GET /paced/<events>`."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                line = (await reader.readuntil(b"\r\n\r\n")).split(b" ", 2)[1]
                writer.write(HEAD)
                if line == b"/bulk":
                    for _ in range(BULK_EVENTS // 100):
                        writer.write(CHUNK * 100)
                        await writer.drain()
                else:
                    for _ in range(int(line.rpartition(b"/")[2])):
                        await asyncio.sleep(1 / PACED_HZ)
                        writer.write(CHUNK)
                writer.write(b"0\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def main() -> None:
        server = await asyncio.start_server(handle, "127.0.0.1", 0)
        port_to.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(main())


async def fetch(transport: Transport, url: str) -> int:
    """Read one answer, return the number of its events."""
    size = 0
    stream: ResponseBody | httpx2.AsyncByteStream
    if isinstance(transport, Http1Transport):
        *_, stream = await transport.send(request_to(url, b"", method="GET", **TIMEOUTS))
        while data := await stream.receive():
            size += len(data)
    else:
        request = httpx2.Request("GET", url, extensions={"timeout": TIMEOUTS})
        response = await transport.handle_async_request(request)
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        stream = response.stream
        async for data in stream:
            size += len(data)
    await stream.aclose()
    return size // len(EVENT)


async def bulk(transport: Transport, base: str, seconds: float) -> float:
    await fetch(transport, base + "/bulk")
    events = 0
    started, until = time.process_time(), time.perf_counter() + seconds
    while time.perf_counter() < until:
        events += await fetch(transport, base + "/bulk")
    return (time.process_time() - started) / events * 1e6


async def paced(transport: Transport, base: str, seconds: float) -> float:
    events = max(1, int(seconds * PACED_HZ))

    async def one() -> None:
        assert await fetch(transport, f"{base}/paced/{events}") == events

    async def all_of_them() -> None:
        async with anyio.create_task_group() as tasks:
            for _ in range(PACED_STREAMS):
                tasks.start_soon(one)

    started = time.process_time()
    await all_of_them()
    return (time.process_time() - started) / (events * PACED_STREAMS) * 1e6


async def measure(
    name: str, base: str, seconds: float, load: Callable[[Transport, str, float], object]
) -> float:
    async with aclosing(TRANSPORTS[name]()) as transport:
        return await load(transport, base, seconds)  # type: ignore[misc]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("--seconds", type=float, default=1.0)
    options.add_argument("--rounds", type=int, default=3)
    arguments = options.parse_args()
    ours, theirs = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(theirs,), daemon=True)
    server.start()
    base = f"http://127.0.0.1:{ours.recv()}"
    print(f"{'CPU us per event':24}{'httpx2':>10}{'ours':>10}{'ratio':>10}")
    try:
        for backend, (library, backend_options) in BACKENDS.items():
            for load in (bulk, paced):
                taken: dict[str, list[float]] = {name: [] for name in TRANSPORTS}
                for _ in range(arguments.rounds):
                    for name, values in taken.items():
                        values.append(
                            anyio.run(
                                measure,
                                name,
                                base,
                                arguments.seconds,
                                load,
                                backend=library,
                                backend_options=backend_options,
                            )
                        )
                other, mine = (statistics.median(taken[name]) for name in ("httpx2", "ours"))
                print(f"{backend + ', ' + load.__name__:24}{other:10.2f}{mine:10.2f}{other / mine:9.1f}x")
    finally:
        server.terminate()


if __name__ == "__main__":
    main()
