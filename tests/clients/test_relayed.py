"""The other endpoints, by way of a gateway to a scripted upstream: clients that leave, and memory."""

import re
import select
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest
from command.process import DEADLINE_S, GatewayProcess
from sdk_clients.processes import each_backend

MIB = 2**20
# Path -> its answer.
ANSWERS = {"/v1/files": b'{"id":"file-abc123"}', "/v1/files/file-abc123/content": b"content!"}


class Upstream(BaseHTTPRequestHandler):
    """Answers by the path. read: the bytes of the last request's body."""

    protocol_version = "HTTP/1.1"
    read: ClassVar[int] = 0
    left: ClassVar[threading.Event] = threading.Event()
    began: ClassVar[threading.Event] = threading.Event()

    def handle(self) -> None:
        try:
            super().handle()
        except ConnectionError:
            self.left.set()

    def respond(self) -> None:
        length = int(self.headers.get("content-length", 0))
        read = 0
        if self.path.endswith("?takes=nothing"):
            self.began.set()
            end = select.poll()
            end.register(self.connection, select.POLLRDHUP)
            end.poll(DEADLINE_S * 1000)
            self.left.set()
            return
        while read < length:
            data = self.rfile.read1(min(length - read, MIB))
            if not data:
                self.left.set()
                return
            self.began.set()
            read += len(data)
        type(self).read = read
        path, _, query = self.path.partition("?")
        answer = ANSWERS[path]
        pieces = int(query.removeprefix("pieces=") or 0)
        self.send_response(200)
        self.send_header("content-type", "application/json" if path == "/v1/files" else "video/mp4")
        self.send_header("content-length", str(pieces * MIB if pieces else len(answer)))
        self.end_headers()
        for piece in [bytes(MIB)] * pieces or [answer]:
            self.wfile.write(piece)
            self.began.set()

    do_GET = do_POST = do_DELETE = respond

    def log_message(self, *arguments: object) -> None:
        """Write nothing."""


@pytest.fixture(scope="module")
def upstream() -> Iterator[ThreadingHTTPServer]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Upstream) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


CONFIG = """
[[upstreams]]
name = "up"
protocol = "openai_chat"
base_url = "http://127.0.0.1:PORT/v1"
model_list = false
[endpoints]
"/v1/files" = "up"
"""


@pytest.fixture
def running(upstream: ThreadingHTTPServer, backend: str, tmp_path: Path) -> Iterator[GatewayProcess]:
    file = tmp_path / "dragoman.toml"
    file.write_text(CONFIG.replace("PORT", str(upstream.server_port)))
    with GatewayProcess("--config", str(file), "--backend", backend) as gateway:
        gateway.ready()
        Upstream.left.clear()
        Upstream.began.clear()
        yield gateway
    assert "Traceback" not in "\n".join(gateway.output)


def head(method: str, path: str, length: int) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "host: localhost", f"content-length: {length}"]
    return "\r\n".join([*lines, "content-type: multipart/form-data; boundary=b", "", ""]).encode()


@each_backend
@pytest.mark.parametrize("sends", [True, False], ids=["sending", "reading"])
def test_a_client_that_leaves_ends_the_call(sends: bool, running: GatewayProcess) -> None:
    with running.connect() as client:
        if sends:
            client.sendall(head("POST", "/v1/files", 100 * MIB) + bytes(2 * MIB))
        else:
            client.sendall(head("GET", "/v1/files/file-abc123/content?pieces=500", 0))
        assert Upstream.began.wait(DEADLINE_S)
        time.sleep(0.1)  # so that everything is under way
        left = time.monotonic()
    assert Upstream.left.wait(DEADLINE_S)
    assert time.monotonic() - left < 1


def unread(client: socket.socket) -> int:
    """The bytes that the gateway's end of a connection has received, and its process has not read."""
    ports = [f"{side()[1]:04X}" for side in (client.getpeername, client.getsockname)]
    for line in Path("/proc/net/tcp").read_text().splitlines():
        fields = line.split()
        if [each.rpartition(":")[2] for each in fields[1:3]] == ports:
            return int(fields[4].partition(":")[2], 16)
    raise AssertionError("there is no such connection")


def is_stuck(client: socket.socket) -> bool:
    """True if the gateway reads nothing for a while."""
    deadline = time.monotonic() + 0.2
    while unread(client):
        if time.monotonic() > deadline:
            return True
    return False


@each_backend
def test_a_client_that_leaves_ends_a_call_whose_upstream_takes_nothing(running: GatewayProcess) -> None:
    with running.connect() as client:
        client.sendall(head("POST", "/v1/files?takes=nothing", 500 * MIB))
        while not is_stuck(client):
            client.sendall(bytes(2**16))
        left = time.monotonic()
    assert Upstream.left.wait(DEADLINE_S)
    assert time.monotonic() - left < 1


def resident(pid: int) -> int:
    """The bytes of memory that a process has."""
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) * 1024


@each_backend
def test_a_body_is_never_held(running: GatewayProcess) -> None:
    before = largest = resident(running.pid)
    with running.connect() as client:
        client.sendall(head("POST", "/v1/files", 96 * MIB))
        for _ in range(96):
            client.sendall(bytes(MIB))
            largest = max(largest, resident(running.pid))
        assert client.recv(MIB).startswith(b"HTTP/1.1 200")
        assert Upstream.read == 96 * MIB
    with running.connect() as client:
        client.sendall(head("GET", "/v1/files/file-abc123/content?pieces=96", 0))
        received = 0
        while received < 96 * MIB:
            received += len(client.recv(MIB))
            largest = max(largest, resident(running.pid))
    assert largest - before < 32 * MIB
