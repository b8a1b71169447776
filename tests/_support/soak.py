"""A mixed load with errors on all sides of one gateway process, and what it costs: memory, descriptors, the patience of
others.

The upstream fails in all its ways, clients leave and misbehave in theirs, the stores stop; whoever requests something
whole must get it or an error, within a time, and afterwards nothing is left.
"""

import contextlib
import gzip
import random
import re
import socket
import sqlite3
import statistics
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import valkey_server
from edge import (
    CHAT_PATH,
    CHAT_STREAM,
    CHAT_WHOLE,
    MESSAGES_PATH,
    RESPONSES_PATH,
    STREAM_HEAD,
    Conversation,
    EdgeGateway,
    Upstream,
    chunk,
    post,
    reset_at_close,
    whole,
)
from h2_client import Peer, data, headers, is_end, over_tls, reset, window
from http_certificate import Certificate
from leaving import body_of

# Nobody who wants a response waits longer: the upstream's silence ends after READ_S.
TIMEOUT_S = 20.0
READ_S = 1.0
# What a run may cost. Its memory has a level that the largest responses bring it to; in minutes it does not grow.
MAX_RESIDENT_MB = 200.0
MAX_GROWTH_MB = 12.0
GROWTH_AFTER_S = 60.0
MAX_HEALTH_P99_MS = 1000.0
MAX_LEAVING_P50_MS = 250.0

_CLOSE = "connection: close\r\n"
_BOMB = gzip.compress(b"\n" * 3_000_000 + CHAT_STREAM, mtime=0)
_TOKEN = re.compile(rb"play (\w+) (\d+)")


def _whole(conversation: Conversation) -> None:
    conversation.send(whole(CHAT_WHOLE, headers=_CLOSE))


def _streams(conversation: Conversation) -> None:
    conversation.send(STREAM_HEAD + CHAT_STREAM)


def _is_slow(conversation: Conversation) -> None:
    conversation.send(STREAM_HEAD)
    for _ in range(10):
        conversation.send(chunk("word "))
        time.sleep(0.02)
    conversation.send(CHAT_STREAM)


def _floods(conversation: Conversation) -> None:
    conversation.send(STREAM_HEAD)
    for _ in range(3000):
        conversation.send(chunk("x" * 1000))
    conversation.send(CHAT_STREAM)


def _is_silent(conversation: Conversation) -> None:
    conversation.until_closed()


def _is_silent_in_the_middle(conversation: Conversation) -> None:
    conversation.send(STREAM_HEAD + chunk("Hello"))
    conversation.until_closed()


PLAYS: dict[str, Callable[[Conversation], None]] = {
    "whole": _whole,
    "streams": _streams,
    "slow": _is_slow,
    "floods": _floods,
    "silent": _is_silent,
    "stops": _is_silent_in_the_middle,
    "cut": lambda conversation: conversation.send(STREAM_HEAD + chunk("Hello") + b"data: {"),
    "resets": lambda conversation: reset_at_close(conversation.socket),
    "error": lambda conversation: conversation.send(
        whole({"error": {"message": "no"}}, "500 Internal Server Error", _CLOSE)
    ),
    "limit": lambda conversation: conversation.send(
        whole({"error": {"message": "slow down"}}, "429 Too Many Requests", f"retry-after: 0\r\n{_CLOSE}")
    ),
    "garbage": lambda conversation: conversation.send(b"\x00\xff SSH-2.0 nobody\r\n\r\n" * 10),
    "nonsense": lambda conversation: conversation.send(STREAM_HEAD + b"data: {]\n\n" * 3),
    "bomb": lambda conversation: conversation.send(
        STREAM_HEAD[:-2] + b"content-encoding: gzip\r\n\r\n" + _BOMB
    ),
}


@dataclass
class Figures:
    """What a run has cost. Times are milliseconds, sizes megabytes."""

    backend: str
    seconds: float = 0.0
    outcomes: Counter[str] = field(default_factory=Counter)
    memory: list[tuple[int, float]] = field(default_factory=list)  # requests so far, resident MB
    warm: int = 0  # where in `memory` the warm-up ends
    descriptors: tuple[int, int, int] = (0, 0, 0)  # before, most, after
    health: list[float] = field(default_factory=list)
    leaving: list[float] = field(default_factory=list)
    open_upstreams: int = 0
    tracebacks: int = 0

    @property
    def requests(self) -> int:
        return sum(self.outcomes.values())

    @property
    def growth(self) -> float:
        """From the warm-up to the end: medians, because a single look may fall into a flood."""
        after = [size for _, size in self.memory[self.warm :]]
        tenth = max(len(after) // 10, 1)
        return statistics.median(after[-tenth:]) - statistics.median(after[:tenth])

    def broken(self) -> list[str]:
        """The bounds that do not hold, whatever the machine does."""
        return _failing(
            (
                (f"{self.outcomes['stuck']} requests without an end", not self.outcomes["stuck"]),
                (f"{self.memory[-1][1]:.0f} MB resident", self.memory[-1][1] < MAX_RESIDENT_MB),
                (
                    f"memory has grown by {self.growth:.1f} MB",
                    self.growth < MAX_GROWTH_MB or self.seconds < GROWTH_AFTER_S,
                ),
                (f"descriptors {self.descriptors}", self.descriptors[2] <= self.descriptors[0] + 2),
                (f"{self.open_upstreams} upstream connections are open", not self.open_upstreams),
                (f"{self.tracebacks} tracebacks in the log", not self.tracebacks),
            )
        )

    def slow(self) -> list[str]:
        """The bounds on time that do not hold. In a short run a pause of the machine is enough for that."""
        return _failing(
            (
                (f"healthz p99 {_p(self.health, 99):.0f} ms", _p(self.health, 99) < MAX_HEALTH_P99_MS),
                (f"leaving p50 {_p(self.leaving, 50):.0f} ms", _p(self.leaving, 50) < MAX_LEAVING_P50_MS),
            )
        )

    def table(self) -> str:
        start, warm, end = self.memory[0][1], self.memory[self.warm][1], self.memory[-1][1]
        thousands = max(self.memory[-1][0] - self.memory[self.warm][0], 1) / 1000
        rows = {
            "seconds": f"{self.seconds:.0f}",
            "requests": f"{self.requests}: "
            + ", ".join(f"{n} {what}" for what, n in self.outcomes.most_common()),
            "resident MB": f"{start:.1f} at the start, {warm:.1f} warm, {end:.1f} at the end; "
            f"growth {self.growth:.2f}, {self.growth / thousands:.3f} per 1,000 requests",
            "descriptors": "{} before, {} at most, {} after".format(*self.descriptors),
            "open upstreams": str(self.open_upstreams),
            "healthz ms": f"p50 {_p(self.health, 50):.1f}, p99 {_p(self.health, 99):.1f}, of {len(self.health)}",
            "leaving ms": f"p50 {_p(self.leaving, 50):.1f}, p99 {_p(self.leaving, 99):.1f}, of {len(self.leaving)}",
            "broken": "; ".join(self.broken() + self.slow()) or "nothing",
        }
        return "\n".join([f"[{self.backend}]", *(f"  {name:15} {value}" for name, value in rows.items())])


def _failing(bounds: Iterable[tuple[str, bool]]) -> list[str]:
    return [what for what, holds in bounds if not holds]


def _p(values: list[float], percent: int) -> float:
    return sorted(values)[min(len(values) * percent // 100, len(values) - 1)] if values else 0.0


class Soak:
    """One run. clients: how many at once."""

    def __init__(
        self, directory: Path, backend: str, certificate: Certificate, *, clients: int = 8, seed: int = 1
    ) -> None:
        self.figures = Figures(backend)
        self._directory = directory
        self._certificate = certificate
        self._clients = clients
        self._seed = seed
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._numbers = 0
        self._left: dict[int, float] = {}  # when a client left, by the number of its request
        self._playing: set[Conversation] = set()
        self.upstream = Upstream(self._play)

    def run(self, seconds: float) -> Figures:
        figures = self.figures
        with contextlib.ExitStack() as world:
            world.enter_context(self.upstream)
            plain, tls = self._gateways(world)
            figures.memory.append((0, plain.resident_bytes / 1e6))
            before = plain.descriptors
            tasks: list[Callable[[], None]] = [
                *(lambda n=n: self._client(n, plain, tls) for n in range(self._clients)),  # type: ignore[misc]
                lambda: self._health(plain),
                lambda: self._trickle(plain),
                self._lock_store,
            ]
            if valkey_server.BINARY is not None:
                tasks.append(self._stop_store)
            threads = [threading.Thread(target=self._guarded, args=(task,), daemon=True) for task in tasks]
            for thread in threads:
                thread.start()
            maximum = self._watch(plain, seconds, before)
            self._over.set()
            for thread in threads:
                thread.join(TIMEOUT_S * 2)
            figures.descriptors = (before, maximum, self._settled(plain, before))
            figures.memory.append((figures.requests, plain.resident_bytes / 1e6))
            figures.open_upstreams = len(self._playing)
            log = [*plain.output, *tls.output]
            figures.tracebacks = sum("Traceback" in line for line in log)
            (self._directory / "log").write_text("\n".join(log))
        figures.seconds = seconds
        return figures

    def _gateways(self, world: contextlib.ExitStack) -> tuple[EdgeGateway, EdgeGateway]:
        store = self._directory / "responses.db"
        lines = f'keepalive_s = 1\nresponse_store = "sqlite"\nresponse_store_path = "{store}"\n'
        if valkey_server.BINARY is not None:
            self._valkey = world.enter_context(valkey_server.valkey_server())
            lines += f'account_store = "valkey"\naccount_store_url = "{self._valkey.url}"\n'
        found = []
        for name, more in (
            ("plain", ""),
            ("tls", f'certfile = "{self._certificate.cert}"\nkeyfile = "{self._certificate.key}"\n'),
        ):
            directory = self._directory / name
            directory.mkdir()
            gateway = EdgeGateway(
                directory,
                self.upstream,
                backend=self.figures.backend,
                server=lines + more,
                upstream_lines=f"read_s = {READ_S}",
            )
            found.append(world.enter_context(gateway).ready())
        plain, tls = found
        assert isinstance(plain, EdgeGateway)
        assert isinstance(tls, EdgeGateway)
        return plain, tls

    def _watch(self, gateway: EdgeGateway, seconds: float, before: int) -> int:
        """Look at the process until the time is up. The most descriptors."""
        begun, maximum = time.monotonic(), before
        while (passed := time.monotonic() - begun) < seconds:
            time.sleep(min(0.25, seconds / 20))
            self.figures.memory.append((self.figures.requests, gateway.resident_bytes / 1e6))
            maximum = max(maximum, gateway.descriptors)
            if passed < seconds * 0.4:
                self.figures.warm = len(self.figures.memory) - 1
        return maximum

    def _settled(self, gateway: EdgeGateway, before: int) -> int:
        """The descriptors, once what has ended has been let go of."""
        deadline = time.monotonic() + TIMEOUT_S
        while (gateway.descriptors > before or self._playing) and time.monotonic() < deadline:
            time.sleep(0.05)
        return gateway.descriptors

    def _guarded(self, task: Callable[[], None]) -> None:
        try:
            task()
        except Exception as error:
            self._count(f"stuck: {error!r}"[:100])
            self._count("stuck")

    def _count(self, outcome: str) -> None:
        with self._lock:
            self.figures.outcomes[outcome] += 1

    # The upstream.

    def _play(self, conversation: Conversation) -> None:
        with self._lock:
            self._playing.add(conversation)
        number = None
        try:
            request = conversation.read()
            token = _TOKEN.search(request or b"")
            if token is not None:
                number = int(token[2])
                PLAYS[token[1].decode()](conversation)
        finally:
            with self._lock:
                self._playing.discard(conversation)
                left = self._left.pop(number, None) if number is not None else None
                if left is not None and conversation.closed_at is not None:
                    self.figures.leaving.append((conversation.closed_at - left) * 1000)
                with contextlib.suppress(ValueError):
                    self.upstream.conversations.remove(conversation)

    # The stores.

    def _lock_store(self) -> None:
        """Somebody else writes to the database for longer than anybody waits."""
        with contextlib.closing(sqlite3.connect(self._directory / "responses.db", timeout=5)) as other:
            other.isolation_level = None
            while not self._over.wait(1.5):
                with contextlib.suppress(sqlite3.OperationalError):
                    other.execute("BEGIN EXCLUSIVE")
                    self._over.wait(0.4)
                    other.execute("COMMIT")

    def _stop_store(self) -> None:
        """It sends nothing for a while, or is gone and comes back empty."""
        draw = random.Random(self._seed)
        while not self._over.wait(1.0):
            if draw.random() < 0.5:
                self._valkey.pause()
                self._over.wait(0.5)
                self._valkey.resume()
            else:
                self._valkey.kill()
                self._over.wait(0.5)
                self._valkey.start()

    # Those who watch.

    def _health(self, gateway: EdgeGateway) -> None:
        while not self._over.wait(0.05):
            begun = time.monotonic()
            assert b"ok" in gateway.get("/healthz")
            self.figures.health.append((time.monotonic() - begun) * 1000)

    def _trickle(self, gateway: EdgeGateway) -> None:
        """Reads an endless response at a byte a second."""
        with gateway.connect() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.sendall(self._request(CHAT_PATH, "floods", True)[1])
            while not self._over.wait(1.0):
                client.recv(1)
        self._count("read a byte a second")

    # The clients.

    def _request(self, path: str, play: str, stream: bool) -> tuple[int, bytes]:
        with self._lock:
            self._numbers += 1
            number = self._numbers
        return number, post(path, body_of(path, "up/m", f"play {play} {number}", stream))

    def _client(self, number: int, plain: EdgeGateway, tls: EdgeGateway) -> None:
        draw = random.Random(f"{self._seed} {number}")
        ways = (
            [self._whole_response] * 6
            + [self._leaves] * 4
            + [self._does_not_read, self._pipelines, self._closes_its_half, self._sends_slowly]
        )
        while not self._over.is_set():
            if draw.random() < 0.2:
                self._over_http2(tls, draw)
            else:
                with plain.connect() as client:
                    client.settimeout(TIMEOUT_S)
                    draw.choice(ways)(client, draw)

    def _drawn(self, draw: random.Random) -> tuple[int, bytes, str]:
        path = draw.choice((CHAT_PATH, MESSAGES_PATH, RESPONSES_PATH))
        play = draw.choice(("whole", "streams", "streams", "slow", *PLAYS))
        number, request = self._request(path, play, play != "whole")
        return number, request, play

    def _whole_response(self, client: socket.socket, draw: random.Random) -> None:
        _, request, play = self._drawn(draw)
        client.sendall(request)
        self._read(client, play)

    def _read(self, client: socket.socket, play: str, responses: int = 1) -> None:
        """Read until the responses are there, or the gateway has ended."""
        found = b""
        try:
            while found.count(b"\r\n0\r\n\r\n") + _whole_ones(found) < responses:
                more = client.recv(65536)
                found = found[-100_000:] + more
                if not more:
                    break
        except TimeoutError:
            self._count("stuck")
            return
        except ConnectionError:
            found = b""
        status = found[9:12].decode("latin-1") if found.startswith(b"HTTP/1.1 ") else "cut"
        self._count(
            f"status {status}" if play in ("whole", "streams", "slow") else f"failing upstream, {status}"
        )

    def _leaves(self, client: socket.socket, draw: random.Random) -> None:
        number, request, play = self._drawn(draw)
        client.sendall(request)
        client.settimeout(draw.choice((0.001, 0.02, 0.1)))
        with contextlib.suppress(TimeoutError, ConnectionError):
            while client.recv(65536):
                pass
        with self._lock:
            if play in ("silent", "stops"):
                self._left[number] = time.monotonic()
        self._leave(client, draw)
        self._count("left")

    def _leave(self, client: socket.socket, draw: random.Random) -> None:
        if draw.random() < 0.5:
            reset_at_close(client)

    def _does_not_read(self, client: socket.socket, draw: random.Random) -> None:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.sendall(self._request(CHAT_PATH, "floods", True)[1])
        self._over.wait(draw.choice((0.1, 1.0)))
        self._leave(client, draw)
        self._count("did not read")

    def _pipelines(self, client: socket.socket, draw: random.Random) -> None:
        _, request, _ = self._drawn(draw)
        client.sendall(request + b"\r\n" + b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
        self._over.wait(0.05)
        self._leave(client, draw)
        self._count("left with a request behind")

    def _closes_its_half(self, client: socket.socket, draw: random.Random) -> None:
        _, request, _ = self._drawn(draw)
        client.sendall(request)
        client.shutdown(socket.SHUT_WR)
        self._read(client, "half")

    def _sends_slowly(self, client: socket.socket, draw: random.Random) -> None:
        _, request, play = self._drawn(draw)
        for at in range(0, len(request), 60):
            client.sendall(request[at : at + 60])
            time.sleep(0.02)
            if draw.random() < 0.05:
                self._count("left while sending")
                return
        self._read(client, play)

    def _over_http2(self, gateway: EdgeGateway, draw: random.Random) -> None:
        with gateway.connect() as client, over_tls(client, self._certificate.client()) as secure:
            secure.settimeout(TIMEOUT_S)
            peer = Peer(secure)
            peer.begin()
            peer.send(window(0, 2**30))  # the streams that it resets shall not take it all
            fields = headers(
                ("content-type", "application/json"), method="POST", scheme="https", path=CHAT_PATH
            )
            for stream in range(1, 2 * draw.randint(1, 4), 2):
                play = draw.choice(("streams", "slow", "floods", "silent", "stops", "cut", "error"))
                _, request = self._request(CHAT_PATH, play, True)
                peer.send(
                    peer.request(stream, fields, end=False),
                    data(stream, request.partition(b"\r\n\r\n")[2], end=True),
                )
                if play in ("floods", "silent", "stops") or draw.random() < 0.3:
                    self._over.wait(draw.choice((0.0, 0.05)))
                    peer.send(reset(stream))
                    self._count("reset a stream")
                elif draw.random() < 0.2:
                    self._count("left with HTTP/2")
                    return
                else:
                    peer.until(lambda frame, stream=stream: is_end(frame, stream))  # type: ignore[misc]
                    self._count("HTTP/2")


def _whole_ones(found: bytes) -> int:
    """Return True if the one response with a length is there."""
    head, end, body = found.partition(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", head)
    return int(bool(end) and length is not None and len(body) >= int(length[1]))
