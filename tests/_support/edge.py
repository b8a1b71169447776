"""A real `dragoman serve` process between sockets that tests write to and a fake upstream that they script.

with Upstream(script) as upstream, EdgeGateway(tmp_path, upstream, backend="trio").ready() as gateway:
    client = gateway.connect()
    client.sendall(post("/v1/messages", {...}))

Scripts run in threads with plain sockets, so that nothing of the gateway's own I/O is on both sides of a test.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import canaries
from command.process import DEADLINE_S, GatewayProcess

BACKENDS = ("asyncio", "uvloop", "trio")
# For tests in which no transport matters: on uvloop the same code runs as on asyncio.
LOOPS = ("asyncio", "trio")

CHAT_PATH = "/v1/chat/completions"
MESSAGES_PATH = "/v1/messages"
RESPONSES_PATH = "/v1/responses"

_CHUNK = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m"}


def chunk(text: str | None = None, finish_reason: str | None = None) -> bytes:
    """One frame of a Chat stream."""
    delta = {} if text is None else {"content": text}
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    return f"data: {json.dumps({**_CHUNK, 'choices': [choice]})}\n\n".encode()


# A whole Chat stream, and the head that announces one of no certain length.
CHAT_STREAM = chunk("Hello") + chunk(finish_reason="stop") + b"data: [DONE]\n\n"
STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
CHAT_WHOLE = {
    "id": "c1",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hello"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
}


def whole(body: object, status: str = "200 OK", headers: str = "") -> bytes:
    """A JSON response with its head."""
    data = json.dumps(body).encode()
    head = (
        f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {len(data)}\r\n{headers}\r\n"
    )
    return head.encode() + data


def post(path: str, body: object, headers: Mapping[str, str] | None = None) -> bytes:
    """A request of HTTP/1.1. body: JSON, or the bytes themselves."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = {"host": "127.0.0.1", "content-type": "application/json", "content-length": str(len(data))}
    head = "".join(f"{name}: {value}\r\n" for name, value in {**lines, **(headers or {})}.items())
    return f"POST {path} HTTP/1.1\r\n{head}\r\n".encode() + data


def chat(model: str = "up/m", *, stream: bool = True, **more: Any) -> dict[str, Any]:
    """The body of a Chat request."""
    return {"model": model, "messages": [{"role": "user", "content": "Hi"}], "stream": stream, **more}


def wait_until(is_so: Callable[[], object], within_s: float = DEADLINE_S, what: str = "") -> float:
    """Wait until the condition holds. Returns its time.monotonic(). what: the condition as text, for the failure."""
    deadline = time.monotonic() + within_s
    while not is_so():
        assert time.monotonic() < deadline, f"not within {within_s} s: {what or is_so}"
        time.sleep(0.001)
    return time.monotonic()


def reset_at_close(connected: socket.socket) -> None:
    """Make close() send RST instead of FIN."""
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


class Conversation:
    """The upstream's side of one connection. requests: each with its head, as they came."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self.socket.settimeout(DEADLINE_S)
        self.requests: list[bytes] = []
        self.closed_at: float | None = None  # time.monotonic() when the gateway was seen to close
        self._buffer = b""

    def read(self) -> bytes | None:
        """The next request; None when the gateway has closed."""
        while b"\r\n\r\n" not in self._buffer:
            if not self._receive():
                return None
        head, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
        length = next(
            (
                int(line.partition(b":")[2])
                for line in head.lower().split(b"\r\n")
                if line.startswith(b"content-length:")
            ),
            0,
        )
        while len(self._buffer) < length:
            if not self._receive():
                return None
        body, self._buffer = self._buffer[:length], self._buffer[length:]
        self.requests.append(head + b"\r\n\r\n" + body)
        return self.requests[-1]

    @property
    def unread(self) -> bytes:
        """What has come and is no whole request."""
        return self._buffer

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def close(self) -> None:
        """End the connection from another thread than that of the script, which wakes and closes the socket.

        Closing it here could give its number to another socket while the script's thread waits for it.
        """
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)

    def until_closed(self) -> None:
        """Wait until the gateway has closed, and note when."""
        while self._receive():
            pass

    def _receive(self) -> bool:
        try:
            data = self.socket.recv(65536)
        except ConnectionError:
            data = b""
        self._buffer += data
        if not data and self.closed_at is None:
            self.closed_at = time.monotonic()
        return bool(data)


Script = Callable[[Conversation], None]


def streams(conversation: Conversation) -> None:
    """Respond to one request with a whole Chat stream."""
    if conversation.read() is not None:
        conversation.send(STREAM_HEAD + CHAT_STREAM)


def waits(conversation: Conversation) -> None:
    """Begin a stream and say nothing more until the gateway closes."""
    if conversation.read() is not None:
        conversation.send(STREAM_HEAD + chunk("Hello"))
        conversation.until_closed()


class Upstream:
    """Runs the script for each connection, in its own thread. conversations: all of them, in their order."""

    def __init__(self, script: Script = streams) -> None:
        self.script = script  # may be set again between requests
        self.conversations: list[Conversation] = []
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self.port: int = self._listener.getsockname()[1]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def wait_for(self, count: int) -> Conversation:
        """The count-th conversation, once it has a request. Fails after a while."""
        wait_until(lambda: len(self.with_request) >= count, what=f"{count} conversations with a request")
        return self.with_request[count - 1]

    @property
    def with_request(self) -> list[Conversation]:
        """The conversations that have a request."""
        return [each for each in self.conversations if each.requests]

    def wait_closed(self, conversation: Conversation, within_s: float = DEADLINE_S) -> float:
        """When the gateway closed this connection, in time.monotonic(). Its script must read until then."""
        wait_until(lambda: conversation.closed_at is not None, within_s, "the gateway closes this connection")
        assert conversation.closed_at is not None
        return conversation.closed_at

    def restart(self, script: Script) -> None:
        """Close what is open, forget it, and run this script from now on."""
        for conversation in self.conversations:
            conversation.close()
        self.conversations = []
        self.script = script

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            conversation = Conversation(connection)
            self.conversations.append(conversation)
            threading.Thread(target=self._play, args=(conversation,), daemon=True).start()

    def _play(self, conversation: Conversation) -> None:
        # The gateway may close while the script is sending.
        with conversation.socket, contextlib.suppress(OSError):
            self.script(conversation)

    def __enter__(self) -> Upstream:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for conversation in self.conversations:
            conversation.close()


class EdgeGateway(GatewayProcess):
    """A running `dragoman serve` with one upstream `up` that speaks Chat and is the given one.

    server: lines of [server]; upstream_lines: of the upstream; more: text behind it all.
    """

    def __init__(
        self,
        directory: Path,
        upstream: Upstream,
        *arguments: str,
        backend: str,
        server: str = "",
        protocol: str = "openai_chat",
        upstream_lines: str = "",
        more: str = "",
        env: Mapping[str, str] | None = None,
    ) -> None:
        file = directory / "dragoman.toml"
        url = upstream.url if protocol != "anthropic_messages" else upstream.url.removesuffix("/v1")
        file.write_text(
            f'[server]\nsimulator = false\nlog_format = "json"\n{server}\n'
            f'[[upstreams]]\nname = "up"\nprotocol = "{protocol}"\nbase_url = "{url}"\n'
            f'models = ["m"]\nmodel_list = false\n'
            f"{upstream_lines}\n{more}\n"
        )
        super().__init__("--config", str(file), "--backend", backend, *arguments, env=env)

    @property
    def descriptors(self) -> int:
        """Open file descriptors of the process."""
        return len(list(Path(f"/proc/{self.pid}/fd").iterdir()))

    @property
    def resident_bytes(self) -> int:
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * resource.getpagesize()

    @property
    def worked_s(self) -> float:
        """Seconds of a processor that its event loop has used so far."""
        return sum(map(int, self._status[11:13])) / os.sysconf("SC_CLK_TCK")  # utime and stime

    @property
    def sleeps(self) -> bool:
        """Whether its event loop waits for something to do: it does not run, and nobody has stopped it."""
        return self._status[0] == "S"

    @property
    def _status(self) -> list[str]:
        """What proc(5) has of the thread of the event loop, from its state on."""
        return Path(f"/proc/{self.pid}/task/{self.pid}/stat").read_text().rpartition(")")[2].split()

    @property
    def starved_s(self) -> float:
        """Seconds that its event loop has waited for a processor so far; 0 where the kernel does not count them."""
        file = Path(f"/proc/{self.pid}/schedstat")
        return int(file.read_text().split()[1]) / 1e9 if file.exists() else 0.0

    def log(self) -> list[dict[str, Any]]:
        """The lines of the log so far. Each must be one JSON object but for those before the first."""
        return [json.loads(line) for line in self.output if line.startswith("{")]


class Stopwatch:
    """Measures how long a gateway takes for something, without the time for which a busy machine did not run it."""

    def __init__(self, gateway: EdgeGateway) -> None:
        self._gateway = gateway
        self._worked = gateway.worked_s
        self._starved = gateway.starved_s
        self._begun = time.monotonic()

    def seconds(self, end: float | None = None) -> float:
        """end: in time.monotonic(), by default now."""
        end = time.monotonic() if end is None else end
        return end - self._begun - (self._gateway.starved_s - self._starved)

    def worked(self) -> float:
        """For how long its event loop has worked since: what another client may have had to wait.

        Nothing that this process or the machine does is in it, so it says the same on a busy machine.
        """
        return self._gateway.worked_s - self._worked


class Running(NamedTuple):
    upstream: Upstream
    gateway: EdgeGateway


class Gateways:
    """Gateways that tests share, because starting a process takes time: one for each backend and configuration.

    A test that ends its process, or measures its memory, starts another.
    """

    def __init__(self, make_directory: Callable[[], Path]) -> None:
        self._make_directory = make_directory
        self._running: dict[tuple[str, str, str], Running] = {}
        self._open = contextlib.ExitStack()

    @contextlib.contextmanager
    def lend(
        self, backend: str, script: Script = streams, *, server: str = "", more: str = ""
    ) -> Iterator[Running]:
        """Lend a running gateway, with an upstream that has forgotten the tests before.

        Fails at the end of the block if the gateway has logged its own error.
        """
        key = backend, server, more
        running = self._running.get(key)
        if running is None or running.gateway.has_ended:
            upstream = self._open.enter_context(Upstream())
            gateway = EdgeGateway(self._make_directory(), upstream, backend=backend, server=server, more=more)
            running = self._running[key] = Running(upstream, self._open.enter_context(gateway).ready())
        running.upstream.restart(script)
        known = len(running.gateway.output)
        yield running
        for line in running.gateway.output[known:]:
            assert "Traceback" not in line, line
            assert not line.startswith("{") or json.loads(line)["level"] in ("info", "warning"), line

    def __enter__(self) -> Gateways:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()


def read_response(client: socket.socket) -> bytes:
    """All that the server sends until it closes or the content-length of the first response is complete."""
    data = b""
    while True:
        head, found, body = data.partition(b"\r\n\r\n")
        if found:
            for line in head.lower().split(b"\r\n"):
                if line.startswith(b"content-length:") and len(body) >= int(line.partition(b":")[2]):
                    return data
            if head.lower().find(b"transfer-encoding: chunked") >= 0 and body.endswith(b"0\r\n\r\n"):
                return data
        more = client.recv(65536)
        canaries.look("response", data[-200:] + more)
        if not more:
            return data
        data += more
