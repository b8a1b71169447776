"""Clients that leave a request in each of its phases, and how long the gateway keeps its upstream then.

with World(directory, "trio", certificate) as world:
    seconds = world.leaves("mid-stream", "fin", MESSAGES_PATH)
"""

from __future__ import annotations

import contextlib
import json
import re
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import count
from pathlib import Path
from types import MappingProxyType
from typing import Any

from edge import (
    CHAT_PATH,
    MESSAGES_PATH,
    RESPONSES_PATH,
    STREAM_HEAD,
    Conversation,
    EdgeGateway,
    Stopwatch,
    Upstream,
    chunk,
    post,
    reset_at_close,
    wait_until,
    whole,
)
from h2.errors import ErrorCodes
from h2_client import Peer, data, goaway, headers, over_tls, reset
from http_certificate import Certificate

# What is never reached is a failure after this time.
TIMEOUT_S = 30.0
# Of [server].
SERVER = "account_wait_s = 3600"
# Where a request can be when its client leaves, and the model that it requests for that.
PHASES = {
    "connecting": "deaf/m",
    "in the TLS handshake": "secure/m",
    "before the first byte": "up/m",
    "mid-stream": "up/m",
    "in a whole response": "up/m",
    "waiting for an account": "cooling/m",
    "in a fallback": "spare",
    "in a hedged attempt": "hedged/m",
    "with an empty line behind": "up/m",
    "with a request behind": "up/m",
    "not reading": "up/m",
    "sending the body": "up/m",
}
_WHOLE = {"in a whole response", "with a request behind"}
_TOKEN = re.compile(rb"phase (\w[\w -]*\w) number (\d+)")
_HELLO = b"\x16\x03"  # a record of TLS's handshake
_CLOSE = "connection: close\r\n"
_UNFINISHED_RESPONSE = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 9999\r\n\r\n{"


def play(conversation: Conversation, responses: Mapping[str, bytes] = MappingProxyType({})) -> None:
    """The upstream's side of all phases, one request a connection. responses: whole ones, in phases beside PHASES."""
    request = conversation.read()
    if request is None:
        return
    token = _TOKEN.search(request)
    assert token is not None, request
    phase = token[1].decode()
    if phase == "waiting for an account":
        error = {"message": "slow down"}
        conversation.send(whole({"error": error}, "429 Slow", f"retry-after: 3000\r\n{_CLOSE}"))
        return
    if phase == "in a fallback" and b'"first"' in request:
        conversation.send(whole({"error": {"message": "broken"}}, "503 No", _CLOSE))
        return
    if phase in responses:
        conversation.send(responses[phase])
        return
    if phase == "in a whole response":
        conversation.send(_UNFINISHED_RESPONSE)
    elif phase == "mid-stream" or phase.startswith("with an empty line"):
        conversation.send(STREAM_HEAD + chunk("Hello"))
    elif phase == "not reading":
        conversation.send(STREAM_HEAD)
        try:
            while True:
                conversation.send(chunk("x" * 1000) * 20)
        except OSError:
            conversation.closed_at = time.monotonic()
            raise
    conversation.until_closed()


def body_of(path: str, model: str, text: str, stream: bool) -> dict[str, Any]:
    if path == RESPONSES_PATH:
        return {"model": model, "input": text, "stream": stream, "store": False}
    body: dict[str, Any] = {"model": model, "messages": [{"role": "user", "content": text}], "stream": stream}
    return body | {"max_tokens": 9} if path == MESSAGES_PATH else body


@contextlib.contextmanager
def deaf_port() -> Iterator[tuple[int, set[int]]]:
    """A port that neither accepts nor refuses, and the ports of those who wait there to make it so."""
    with socket.socket() as listener, contextlib.ExitStack() as waiting:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        ports = set()
        for _ in range(4):
            client = waiting.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex(listener.getsockname())
            ports.add(client.getsockname()[1])
        yield listener.getsockname()[1], ports


def ways(url: str, deaf: int) -> str:
    """The rest of a configuration with the upstream `up`: what the models of PHASES lead to."""
    table = (
        '[[upstreams]]\nname = "{}"\nprotocol = "openai_chat"\nmodels = ["m", "first"]\nmodel_list = false\n'
    )
    lines = ""
    for name, base_url, line in (
        ("deaf", f"http://127.0.0.1:{deaf}/v1", ""),
        ("cooling", url, ""),
        ("hedged", url, "hedge_s = 0.01"),
        ("secure", url.replace("http:", "https:"), ""),
    ):
        lines += table.format(name) + f'base_url = "{base_url}"\n{line}\n'
    for name in ("hedged", "cooling"):
        for account in ("one", "two"):
            lines += (
                f'[[accounts]]\nupstream = "{name}"\nname = "{account}"\napi_key = "{name}-{account}-0123"\n'
            )
            lines += "max_concurrent_requests = 100000\n"
    return lines + '[models]\nspare = ["cooling/first", "up/m"]\n'


class World:
    """Two gateways of one backend, with TLS and without, and their upstream."""

    def __init__(self, directory: Path, backend: str, certificate: Certificate) -> None:
        self._open = contextlib.ExitStack()
        self._directory = directory
        self._backend = backend
        self._certificate = certificate
        self._numbers = count()
        self._cooling_down: list[EdgeGateway] = []

    def __enter__(self) -> World:
        with contextlib.ExitStack() as started:
            self.upstream = started.enter_context(Upstream(play))
            self._deaf, self._waiting = started.enter_context(deaf_port())
            tls = f'certfile = "{self._certificate.cert}"\nkeyfile = "{self._certificate.key}"\n'
            self.plain = started.enter_context(self._gateway("plain", ""))
            self.tls = started.enter_context(self._gateway("tls", tls))
            self.plain.ready()
            self.tls.ready()
            self._open = started.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def _gateway(self, name: str, server: str) -> EdgeGateway:
        directory = self._directory / name
        directory.mkdir()
        return EdgeGateway(
            directory,
            self.upstream,
            backend=self._backend,
            server=f"{server}{SERVER}",
            more=ways(self.upstream.url, self._deaf),
        )

    def leaves(self, phase: str, way: str, path: str = CHAT_PATH) -> float:
        """Be a client that gets to this phase and leaves. The seconds from then until nothing is kept any more.

        way: "fin" and "rst" end a connection of HTTP/1.1; "close" and "goaway" one of HTTP/2, of which "reset" ends
            one stream.
        """
        gateway = self.plain if way in ("fin", "rst") else self.tls
        if phase == "waiting for an account":
            self._start_cooldown(gateway)
        lines = len(gateway.output)
        with contextlib.ExitStack() as to_close:
            connected = to_close.enter_context(gateway.connect())
            port = connected.getsockname()[1]
            text, leave = self._comes(phase, way, path, connected, to_close)
            gone = self._reached(phase, text, gateway, lines, port)
            watch = Stopwatch(gateway)
            leave()
            seconds = watch.seconds(gone())
            if phase == "connecting":
                assert not self._connecting()
        # Else it could be taken for that of the next one.
        _logged(gateway, lines)
        return seconds

    def _comes(
        self, phase: str, way: str, path: str, client: socket.socket, to_close: contextlib.ExitStack
    ) -> tuple[bytes, Callable[[], None]]:
        """Send a request. What it says, and what makes its client leave."""
        text = f"phase {phase} number {next(self._numbers)}"
        body = json.dumps(body_of(path, PHASES[phase], text, phase not in _WHOLE)).encode()
        if way in ("fin", "rst"):
            return text.encode(), self._send_http1(client, way, phase, path, body)
        client = to_close.enter_context(over_tls(client, self._certificate.client()))
        return text.encode(), self._send_http2(client, way, phase, path, body)

    def _start_cooldown(self, gateway: EdgeGateway) -> None:
        """Send a request that starts the cooldown of the account; it lasts during the next ones."""
        if gateway not in self._cooling_down:
            self._cooling_down.append(gateway)
            with contextlib.ExitStack() as to_close:
                client = to_close.enter_context(gateway.connect())
                if gateway is self.tls:
                    client = to_close.enter_context(
                        self._certificate.client().wrap_socket(client, server_hostname="127.0.0.1")
                    )
                text = "phase waiting for an account number 0"
                client.sendall(post(CHAT_PATH, body_of(CHAT_PATH, "cooling/m", text, False)))
                assert b"429" in client.recv(65536)

    def _send_http1(
        self, client: socket.socket, way: str, phase: str, path: str, body: bytes
    ) -> Callable[[], None]:
        request = post(path, body)
        if phase == "sending the body":
            request = request[:-5]
        elif phase == "with an empty line behind":
            request += b"\r\n"
        elif phase == "with a request behind":
            request += b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"
        client.sendall(request)

        def leave() -> None:
            if way == "rst":
                reset_at_close(client)
                client.close()
            else:
                client.shutdown(socket.SHUT_WR)

        return leave

    def _send_http2(
        self, client: socket.socket, way: str, phase: str, path: str, body: bytes
    ) -> Callable[[], None]:
        peer = Peer(client)
        peer.begin()
        fields = headers(("content-type", "application/json"), method="POST", scheme="https", path=path)
        peer.send(peer.request(1, fields, end=False))
        peer.send(
            data(1, body[:-5] if phase == "sending the body" else body, end=phase != "sending the body")
        )
        return {
            "close": peer.close,
            "goaway": lambda: peer.send(goaway(ErrorCodes.CANCEL)),
            "reset": lambda: peer.send(reset(1)),
        }[way]

    def _reached(
        self, phase: str, text: bytes, gateway: EdgeGateway, lines: int, port: int
    ) -> Callable[[], float]:
        """Wait until the client has got there. What tells, when it has left, since when nothing is kept."""
        if phase in ("connecting", "sending the body", "waiting for an account"):
            if phase == "connecting":
                wait_until(lambda: self._connecting() == 1, TIMEOUT_S)
            else:
                # Nobody but the gateway sees it there. What leaves before it was read has never been a request.
                wait_until(lambda: _is_read(port), TIMEOUT_S)
                time.sleep(0.05)
            return partial(_logged, gateway, lines)
        if phase == "in the TLS handshake":
            wait_until(lambda: len(self._shaking_hands()) == 1, TIMEOUT_S)
            return partial(_closed, self._shaking_hands())
        # Of a hedged request both attempts wait; of one with a fallback the second one does.
        attempts = 2 if phase == "in a hedged attempt" else 1
        found: list[Conversation] = []

        def is_there() -> bool:
            found[:] = [each for each in self.upstream.conversations[-100:] if _waits(each, text)]
            return len(found) >= attempts

        wait_until(is_there, TIMEOUT_S)
        time.sleep(0.1 if phase == "not reading" else 0.02)  # what the upstream sends at once has come
        return partial(_closed, found)

    def _shaking_hands(self) -> list[Conversation]:
        return [
            each
            for each in self.upstream.conversations[-100:]
            if each.unread.startswith(_HELLO) and each.closed_at is None
        ]

    def _connecting(self) -> int:
        """How many but those of the test try to connect to the deaf port."""
        trying = {
            _port(local)
            for _, local, remote, state, *_ in _sockets()
            if (_port(remote), state) == (self._deaf, "02")
        }
        return len(trying - self._waiting)


def _sockets() -> list[list[str]]:
    return [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]


def _is_read(port: int) -> bool:
    """Whether the other end of the connection from this port has taken all that came."""
    return any(
        _port(remote) == port and queues.endswith(":00000000") for _, _, remote, _, queues, *_ in _sockets()
    )


def _port(address: str) -> int:
    return int(address.partition(":")[2], 16)


def _waits(conversation: Conversation, text: bytes) -> bool:
    """Whether an attempt at this request waits here for the rest of its response."""
    last = conversation.requests[-1] if conversation.requests else b""
    return text in last and b'"first"' not in last


def _logged(gateway: EdgeGateway, start: int) -> float:
    """When the log said that the client has left."""
    return wait_until(lambda: any('"client_left"' in line for line in gateway.output[start:]), TIMEOUT_S)


def _closed(conversations: list[Conversation]) -> float:
    """When all of them were closed."""
    wait_until(lambda: all(each.closed_at is not None for each in conversations), TIMEOUT_S)
    return max(each.closed_at for each in conversations if each.closed_at is not None)
