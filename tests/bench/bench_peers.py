"""The other processes of the gateway's benchmark: an upstream, a relay of bytes, and a load client.

    python tests/bench/bench_peers.py upstream
    python tests/bench/bench_peers.py relay PORT
    python tests/bench/bench_peers.py load PORT PROTOCOL SCENARIO CONNECTIONS WARM SECONDS MODEL

Upstream and relay print their port, the load client prints "begin" and "end" around its measured seconds and then one
JSON object. All are bare asyncio protocols, so that they cost less than what they measure.
"""

import asyncio
import json
import re
import sys
import time
from collections.abc import Callable
from typing import ClassVar

from bench_core import DELTA_TEXTS, context

from dragoman import UPSTREAMS, Ledger, ResponseTranslator, StopReason, Usage
from dragoman._wire.frame_cutter import split_frames
from dragoman.codec import ResponseContext
from dragoman.document import Request
from dragoman.events import BlockEnded, BlockKind, BlockStarted, Ended, Event, Started, Stopped, TextDelta

DELTAS = 200
# A paced stream outlasts its measurement, so that no request begins in it.
PACED_DELTAS = 2000
# Seconds between the events of a paced stream: 50 tokens a second.
PACE_S = 0.02
PATHS = {
    "openai_chat": "/v1/chat/completions",
    "anthropic_messages": "/v1/messages",
    "openai_responses": "/v1/responses",
    "gemini": "/v1beta/models/{model}:{method}",
}
# Of Gemini: whether the response is a stream is in the path.
_METHODS = {True: "streamGenerateContent?alt=sse", False: "generateContent"}
STREAM_ENDS = {
    "openai_chat": b"data: [DONE]\n\n",
    "anthropic_messages": b"event: message_stop\n",
    "openai_responses": b"event: response.completed\n",
    "gemini": b'"finishReason"',
}
# In a response to "forwarded": when the upstream had the request, by the clock that all processes of a machine have.
_RECEIVED = re.compile(rb"received ([0-9]{19})")
_LAST_CHUNK = b"0\r\n\r\n"
_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\n"
# Bytes of a bulk stream in one write: about what a fast server puts into one packet.
_WRITE = 16 * 1024


def frames_of(protocol: str, deltas: int) -> list[bytes]:
    """Return the events of an upstream's stream, each as one chunk of HTTP/1.1."""
    return _frames(protocol, [DELTA_TEXTS[n % len(DELTA_TEXTS)] for n in range(deltas)])


def _frames(protocol: str, texts: list[str]) -> list[bytes]:
    writer = UPSTREAMS[protocol].stream_writer(context(protocol), Ledger())
    events = _events([TextDelta(0, text) for text in texts])
    body = b"".join(writer.send(event) for event in events)
    return [_chunk(frame) for frame in split_frames(body)]


def whole_of(protocol: str) -> bytes:
    """Return an upstream's response without a stream, translated from the stream of another protocol."""
    other = next(name for name in UPSTREAMS if name != protocol)
    request = Request(protocol=protocol, model="m", messages=(), stream=False)
    translator = ResponseTranslator(
        client=UPSTREAMS[protocol],
        upstream=UPSTREAMS[other],
        context=ResponseContext(request=request, id="0123456789abcdef", now=1_700_000_000, model="m"),
    )
    writer = UPSTREAMS[other].stream_writer(context(other), Ledger())
    for event in _events([TextDelta(0, "".join(DELTA_TEXTS) * 4)]):
        translator.receive_data(writer.send(event))
    translator.receive_eof()
    return translator.data_to_send()


def _events(deltas: list[TextDelta]) -> list[Event]:
    return [
        Started("up_1", "m", 1_700_000_000),
        BlockStarted(0, BlockKind.TEXT),
        *deltas,
        BlockEnded(0),
        Usage(input=10, output=len(deltas)),
        Stopped(StopReason.END),
        Ended(),
    ]


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


class _Http(asyncio.Protocol):
    """One end of a connection, with what it has received of a message."""

    def __init__(self) -> None:
        self.buffer = bytearray()
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport


class Upstream(_Http):
    """Serves canned responses. The text of the request names the scenario."""

    bulk: ClassVar[dict[str, bytes]] = {}
    paced: ClassVar[dict[str, list[bytes]]] = {}
    forwarded: ClassVar[dict[str, bytes]] = {}
    wholes: ClassVar[dict[str, bytes]] = {}

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        end = self.buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        head = bytes(self.buffer[:end]).lower()
        at = head.find(b"content-length:")
        length = int(head[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
        if len(self.buffer) < end + 4 + length:
            return
        body = bytes(self.buffer[end + 4 : end + 4 + length])
        del self.buffer[: end + 4 + length]
        path = head.split(b" ", 2)[1].decode()
        protocol = next((name for name, own in PATHS.items() if own == path), "gemini")
        if b'"stream":true' not in body.replace(b" ", b"") and "alt=sse" not in path:
            whole = self.wholes[protocol]
            self.transport.write(
                _HEAD % b"application/json" + b"content-length: %d\r\n\r\n" % len(whole) + whole
            )
            return
        self.transport.write(_HEAD % b"text/event-stream" + b"transfer-encoding: chunked\r\n\r\n")
        if b"paced" in body:
            self._pace(self.paced[protocol], 0)
            return
        if b"forwarded" in body or b"burst" in body:
            response = self.forwarded[protocol]
            self.transport.write(_RECEIVED.sub(b"received %019d" % time.perf_counter_ns(), response))
            return
        bulk = self.bulk[protocol]
        for start in range(0, len(bulk), _WRITE):
            self.transport.write(bulk[start : start + _WRITE])

    def _pace(self, frames: list[bytes], at: int) -> None:
        if self.transport.is_closing():
            return
        self.transport.write(frames[at])
        if at + 1 == len(frames):
            self.transport.write(_LAST_CHUNK)
        else:
            asyncio.get_running_loop().call_later(PACE_S, self._pace, frames, at + 1)


class Relay(asyncio.BufferedProtocol):
    """One side of a connection that passes every byte on.

    It reads at most as much at a time as the upstream writes. With larger reads, an event of a bulk stream would cost
    the less the longer the relay waits for its core.
    """

    def __init__(self, port: int | None) -> None:
        self._port = port
        self._other: Relay | None = None
        self._early = bytearray()
        self._space = memoryview(bytearray(_WRITE))
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        if self._port is not None:
            self._task = asyncio.get_running_loop().create_task(self._connect(self._port))

    async def _connect(self, port: int) -> None:
        loop = asyncio.get_running_loop()
        _, other = await loop.create_connection(lambda: Relay(None), "127.0.0.1", port)
        self._other, other._other = other, self
        other._transport.write(self._early)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._space

    def buffer_updated(self, nbytes: int) -> None:
        if self._other is None:
            self._early += self._space[:nbytes]
        else:
            self._other._transport.write(bytes(self._space[:nbytes]))

    def connection_lost(self, exc: Exception | None) -> None:
        if self._other is not None:
            self._other._transport.close()


class Client(_Http):
    """Sends one request after the other on one connection. The process ends at the first that fails."""

    def __init__(self, load: "Load") -> None:
        super().__init__()
        self._load = load

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._load.idle(self)

    def begin(self) -> None:
        self.begun, self.first = time.perf_counter(), 0.0
        self.transport.write(self._load.request)

    def data_received(self, data: bytes) -> None:
        if not self.first:
            self.first = time.perf_counter()
        self._load.received(data)
        self.buffer += data
        if not self.buffer.startswith(b"HTTP/1.1 200"):
            raise SystemExit(f"not a success: {bytes(self.buffer[:400])!r}")
        if not self._load.complete(self.buffer):
            return
        received = _RECEIVED.search(self.buffer)
        forwarded = 0.0 if received is None else int(received[1]) / 1e9 - self.begun
        self._load.ended(forwarded, self.first - self.begun, time.perf_counter() - self.begun)
        self.buffer.clear()
        self._load.idle(self)

    def connection_lost(self, exc: Exception | None) -> None:
        raise SystemExit(f"the connection was closed: {bytes(self.buffer[:400])!r}")


class Load:
    """Keeps `connections` requests open at a time. In a burst they all begin at once, when all before have ended."""

    def __init__(self, port: int, protocol: str, scenario: str, connections: int, model: str) -> None:
        self._connections = connections
        self._together = connections if scenario == "burst" else 1
        self._idle: list[Client] = []
        self._stream_end = STREAM_ENDS[protocol] if scenario != "whole" else None
        self._event_end = b"}\r\n\r\n" if protocol == "gemini" else b"\n\n"
        text = f"{scenario} " + "and then tell me what it does. " * 4
        body: dict[str, object] = {"model": model, "stream": scenario != "whole", "max_tokens": 1000}
        path = PATHS[protocol].format(model=model, method=_METHODS[scenario != "whole"])
        if protocol == "gemini":
            body = {"contents": [{"role": "user", "parts": [{"text": text}]}]}
        elif protocol == "openai_responses":
            del body["max_tokens"]
            body["input"] = text
        else:
            body["messages"] = [{"role": "user", "content": text}]
        encoded = json.dumps(body).encode()
        self.request = (
            f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\ncontent-type: application/json\r\n"
            f"anthropic-version: 2023-06-01\r\ncontent-length: {len(encoded)}\r\n\r\n"
        ).encode() + encoded
        self.measuring = False
        self.events = 0
        self.forwarded: list[float] = []
        self.firsts: list[float] = []
        self.latencies: list[float] = []

    def idle(self, client: Client) -> None:
        """Let the client begin its next request, as soon as all that begin together can."""
        self._idle.append(client)
        if len(self._idle) == self._together:
            clients, self._idle = self._idle, []
            for each in clients:
                each.begin()

    def complete(self, received: bytearray) -> bool:
        if self._stream_end is not None:
            return received.endswith(_LAST_CHUNK) and self._stream_end in received
        head, _, body = received.partition(b"\r\n\r\n")
        at = head.lower().find(b"content-length:")
        return at >= 0 and len(body) == int(head[at + 15 :].split(b"\r\n", 1)[0])

    def received(self, data: bytes) -> None:
        if self.measuring:
            self.events += data.count(self._event_end)

    def ended(self, forwarded: float, first: float, latency: float) -> None:
        if self.measuring:
            self.forwarded.append(forwarded)
            self.firsts.append(first)
            self.latencies.append(latency)

    async def run(self, port: int, warm: float, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(self._connections):
            await loop.create_connection(lambda: Client(self), "127.0.0.1", port)
            await asyncio.sleep(PACE_S / self._connections)  # so that paced events do not come in step
        await asyncio.sleep(warm)
        self.measuring = True
        print("begin", flush=True)
        await asyncio.sleep(seconds)
        self.measuring = False
        print("end", flush=True)
        self.forwarded.sort()
        self.firsts.sort()
        self.latencies.sort()
        figures = {
            "requests": len(self.latencies),
            "events": self.events,
            "forwarded": _percentile(self.forwarded, 50),
            "first": _percentile(self.firsts, 50),
            "p99": _percentile(self.latencies, 99),
        }
        print(json.dumps(figures), flush=True)


def _percentile(ordered: list[float], percent: int) -> float:
    return ordered[len(ordered) * percent // 100] if ordered else 0.0


async def _serve(factory: Callable[[], asyncio.BaseProtocol]) -> None:
    server = await asyncio.get_running_loop().create_server(factory, "127.0.0.1", 0, backlog=1000)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def main(role: str, *arguments: str) -> None:
    if role == "upstream":
        Upstream.bulk = {protocol: b"".join(frames_of(protocol, DELTAS)) + _LAST_CHUNK for protocol in PATHS}
        Upstream.paced = {protocol: frames_of(protocol, PACED_DELTAS) for protocol in PATHS}
        at = f"received {0:019}"
        Upstream.forwarded = {
            protocol: b"".join(_frames(protocol, [at, " and the end"])) + _LAST_CHUNK for protocol in PATHS
        }
        Upstream.wholes = {protocol: whole_of(protocol) for protocol in PATHS}
        asyncio.run(_serve(Upstream))
    elif role == "relay":
        asyncio.run(_serve(lambda: Relay(int(arguments[0]))))
    else:
        port, protocol, scenario, connections, warm, seconds, model = arguments
        load = Load(int(port), protocol, scenario, int(connections), model)
        asyncio.run(load.run(int(port), float(warm), float(seconds)))


if __name__ == "__main__":
    main(*sys.argv[1:])
