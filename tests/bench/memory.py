"""What open streams and large responses cost the gateway in memory: `make memory`.

A table for each backend, of the gateway's process; this process is its clients and its upstream. A silent stream has
had its first event and gets no other. Exit code 1 when a bound is broken.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1] / "_support"))

from bench_core import conversation
from edge import (
    BACKENDS,
    CHAT_PATH,
    CHAT_STREAM,
    CHAT_WHOLE,
    MESSAGES_PATH,
    RESPONSES_PATH,
    STREAM_HEAD,
    EdgeGateway,
    chunk,
    post,
    whole,
)
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived
from leaving import body_of

from dragoman_server.serving.run import TRIM_S

_MIB = 2**20
# What is promised: MiB above the start for a thousand silent streams, how much more one of many may cost than one of
# the least thousands, and the size after large responses as a multiple of that at the start.
MAX_FOR_1000_MIB = 33.0
MAX_GROWTH = 1.2
MAX_AFTER = 1.5

_COUNTS = (100, 500, 1000, 5000)
_LARGE = 64
_LARGE_BYTES = 8 * _MIB
# Streams of one connection over HTTP/2.
_ON_HTTP2 = 50
# Clients that connect at the same time: more could have to wait for the listener.
_TOGETHER = 64
_LOOK_S = 0.05
# The gateway has done its work and returned its memory.
_SETTLED_S = 1.5 * TRIM_S

_TEXT = "x" * 1000
_LARGE_WHOLE = json.dumps(CHAT_WHOLE).replace("Hello", "x" * _LARGE_BYTES).encode()
# By the text that is requested. After "silent" the connection stays open.
_RESPONSES = {
    b"silent": STREAM_HEAD + chunk("Hello"),
    b"whole": whole(json.loads(_LARGE_WHOLE), headers="connection: close\r\n"),
    b"long": STREAM_HEAD + chunk(_TEXT) * (_LARGE_BYTES // len(_TEXT)) + CHAT_STREAM,
}
_PLAY = re.compile(rb"play (\w+)")

# As SDKs and providers send: fields with the cost of some forty bytes each.
_HEADERS = {f"x-stainless-{number}": f"a value of some length {number}" for number in range(16)}
_AGENTS_MESSAGES = 64
_PROTOCOLS = {
    MESSAGES_PATH: "anthropic_messages",
    CHAT_PATH: "openai_chat",
    RESPONSES_PATH: "openai_responses",
}


async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Respond to one request as the upstream, and wait until the gateway closes."""
    head = await reader.readuntil(b"\r\n\r\n")
    body = await reader.readexactly(_length(head))
    play = _PLAY.search(body)
    writer.write(_RESPONSES[play[1]])
    if play[1] == b"long":
        writer.write_eof()
    with contextlib.suppress(asyncio.CancelledError):  # by the end of the measurement
        await reader.read()
    writer.close()


class Client:
    """A connection to the gateway, with one request."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def send(cls, gateway: EdgeGateway, request: bytes) -> Client:
        client = cls(*await asyncio.open_connection("127.0.0.1", gateway.port))
        client._writer.write(request)
        return client

    async def until_begun(self) -> None:
        """Wait for the first event."""
        await self._reader.readuntil(b"Hello")

    async def until_complete(self) -> None:
        """Read the whole response and close."""
        head = await self._reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), head
        rest, end = _length(head), b""
        while rest > 0 if b"content-length" in head.lower() else not end.endswith(b"\r\n0\r\n\r\n"):
            data = await self._reader.read(_MIB)
            assert data, "the response was cut"
            rest -= len(data)
            end = (end + data)[-7:]
        self.close()

    def close(self) -> None:
        self._writer.close()


class Http2Client:
    """A connection to the gateway over HTTP/2, with several requests at the same time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._h2 = H2Connection(H2Configuration(client_side=True))

    @classmethod
    async def send(cls, gateway: EdgeGateway, path: str, bodies: Sequence[bytes]) -> Http2Client:
        """Send requests, and wait for the first event of each."""
        client = cls(*await asyncio.open_connection("127.0.0.1", gateway.port))
        client._h2.initiate_connection()
        head = [(":method", "POST"), (":scheme", "http"), (":authority", "127.0.0.1"), (":path", path)]
        for number, body in enumerate(bodies):
            client._h2.send_headers(1 + 2 * number, head)
            client._h2.send_data(1 + 2 * number, body, end_stream=True)
        client._writer.write(client._h2.data_to_send())
        waiting = {1 + 2 * number for number in range(len(bodies))}
        while waiting:
            for event in client._h2.receive_data(await client._reader.read(_MIB)):
                if isinstance(event, DataReceived) and b"Hello" in event.data:
                    waiting.discard(event.stream_id)
            client._writer.write(client._h2.data_to_send())
        return client

    def close(self) -> None:
        self._writer.close()


def _length(head: bytes) -> int:
    length = re.search(rb"content-length: *(\d+)", head.lower())
    return 0 if length is None else int(length[1])


class Measurement:
    """The table of one backend. broken: the promises that do not hold."""

    def __init__(self, gateway: EdgeGateway, path: str, prompt: int, *, agent: bool = False) -> None:
        self.broken: list[str] = []
        self._gateway = gateway
        self._path = path
        self._agent = agent
        self._prompt = "and then " * (prompt // 9)
        self._start = self._resident
        self._row("at the start", self._start)

    @property
    def _resident(self) -> float:
        return self._gateway.resident_bytes / _MIB

    async def silent_streams(self, counts: Sequence[int], *, http2: bool) -> None:
        """Open so many streams, one count after the other. http2: some on each connection."""
        clients: list[Client | Http2Client] = []
        on_each = _ON_HTTP2 if http2 else 1
        costs: dict[int, float] = {}  # MiB above the start
        for count in counts:
            while (missing := count - len(clients) * on_each) > 0:
                if http2:
                    bodies = [self._body("silent", stream=True)] * _ON_HTTP2
                    clients.append(await Http2Client.send(self._gateway, self._path, bodies))
                else:
                    begun = (self._begin() for _ in range(min(_TOGETHER, missing)))
                    clients += await asyncio.gather(*begun)
            await asyncio.sleep(_SETTLED_S)
            costs[count] = self._resident - self._start
            self._row(
                f"{count} silent streams",
                self._resident,
                f"{costs[count]:.1f} above the start, {costs[count] * 1024 / count:.1f} KiB each",
            )
        for client in clients:
            client.close()
        await asyncio.sleep(2 * _SETTLED_S)  # closing them takes a while too
        self._row("after them", self._resident, f"{self._resident / self._start:.2f} times the start")
        if costs.get(1000, 0.0) > MAX_FOR_1000_MIB:
            self.broken.append(f"1,000 silent streams cost more than {MAX_FOR_1000_MIB:g} MiB")
        least, most = min(counts), max(counts)
        if least >= 1000 and costs[most] / most > costs[least] / least * MAX_GROWTH:
            self.broken.append("a silent stream costs more where there are many")

    async def _begin(self) -> Client:
        client = await self._send("silent", stream=True)
        await client.until_begun()
        return client

    async def large_responses(self, play: str, after: str) -> None:
        """Request large responses, all at the same time."""

        async def one() -> None:
            client = await self._send(play, stream=play != "whole")
            await client.until_complete()

        most = 0.0
        requests = asyncio.gather(*(one() for _ in range(_LARGE)))
        while not requests.done():
            await asyncio.wait([requests], timeout=_LOOK_S)
            most = max(most, self._resident)
        await requests
        await asyncio.sleep(_SETTLED_S)
        ratio = self._resident / self._start
        self._row(f"after {after}", self._resident, f"{ratio:.2f} times the start; {most:.1f} at most")
        if ratio > MAX_AFTER:
            self.broken.append(f"after {after} it has more than {MAX_AFTER:g} times the start")

    async def _send(self, play: str, *, stream: bool) -> Client:
        request = post(self._path, self._body(play, stream=stream), _HEADERS if self._agent else None)
        return await Client.send(self._gateway, request)

    def _body(self, play: str, *, stream: bool) -> bytes:
        text = f"play {play} {self._prompt}"
        body: Any = body_of(self._path, "up/m", text, stream)
        if self._agent:
            body = json.loads(conversation(_PROTOCOLS[self._path], _AGENTS_MESSAGES))
            body |= {"model": "up/m", "stream": stream}
            body["input" if "input" in body else "messages"].append({"role": "user", "content": text})
        return json.dumps(body).encode()

    def _row(self, what: str, mib: float, more: str = "") -> None:
        print(f"  {what:36} {mib:7.1f} MiB  {more}", flush=True)


class _Upstream(NamedTuple):
    url: str


async def measure(
    directory: Path,
    backend: str,
    path: str,
    prompt: int,
    counts: Sequence[int],
    *,
    large: bool,
    agent: bool,
    http2: bool,
) -> list[str]:
    """Print the table of one backend, with large responses if wanted. Return the promises that do not hold."""
    server = await asyncio.start_server(respond, "127.0.0.1", 0, backlog=1024, limit=64 * _MIB)
    upstream = _Upstream(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1")
    lines = 'log_level = "warning"'
    print(f"[{backend}]", flush=True)
    broken = []
    with EdgeGateway(directory, upstream, backend=backend, server=lines).ready() as gateway:
        measurement = Measurement(gateway, path, prompt, agent=agent)
        await measurement.silent_streams(counts, http2=http2)
        broken += measurement.broken
    if not large:
        server.close()
        return [f"[{backend}] {each}" for each in broken]
    with EdgeGateway(directory, upstream, backend=backend, server=lines).ready() as gateway:
        measurement = Measurement(gateway, path, prompt)
        size = f"{_LARGE_BYTES // _MIB} MiB"
        await measurement.large_responses("whole", f"{_LARGE} responses of {size}")
        await measurement.large_responses("long", f"{_LARGE} streams of {size}")
        broken += measurement.broken
    server.close()
    return [f"[{backend}] {each}" for each in broken]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", choices=BACKENDS, help="by default all, one after the other")
    parser.add_argument("--path", choices=(MESSAGES_PATH, CHAT_PATH, RESPONSES_PATH), default=MESSAGES_PATH)
    parser.add_argument("--prompt", type=int, default=100, help="bytes of the prompt of each request")
    parser.add_argument("--streams", type=int, nargs="+", help="only silent streams, so many")
    parser.add_argument(
        "--agent",
        action="store_true",
        help=f"requests of {_AGENTS_MESSAGES} messages with tools and 20 headers",
    )
    parser.add_argument("--http2", action="store_true", help=f"clients have {_ON_HTTP2} streams each")
    arguments = parser.parse_args()
    broken = []
    for backend in [arguments.backend] if arguments.backend else BACKENDS:
        with tempfile.TemporaryDirectory(prefix="dragoman-memory-") as directory:
            broken += asyncio.run(
                measure(
                    Path(directory),
                    backend,
                    arguments.path,
                    arguments.prompt,
                    arguments.streams or _COUNTS,
                    large=not arguments.streams,
                    agent=arguments.agent,
                    http2=arguments.http2,
                )
            )
    print("\n".join(broken))
    return bool(broken)


if __name__ == "__main__":
    sys.exit(main())
