"""The SDKs' own calls of the other endpoints, by way of a gateway to a scripted upstream; leaving, and memory."""

# ruff: noqa: E501 -- the tables are read by row

from __future__ import annotations

import json
import re
import select
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import anthropic
import openai
import pytest
from command.process import DEADLINE_S, GatewayProcess
from sdk_clients.processes import each_backend

MIB = 2**20
FILE = {
    "id": "file-abc123",
    "object": "file",
    "bytes": 1,
    "created_at": 1,
    "filename": "f",
    "purpose": "batch",
}
BATCH = {
    "id": "batch_123",
    "object": "batch",
    "endpoint": "/v1/embeddings",
    "input_file_id": "file-abc123",
    "completion_window": "24h",
    "status": "validating",
    "created_at": 1,
}
UPLOAD = {
    "id": "upload_123",
    "object": "upload",
    "bytes": 1,
    "created_at": 1,
    "filename": "f",
    "purpose": "batch",
}
MESSAGE_BATCH = {
    "id": "msgbatch_0123",
    "type": "message_batch",
    "processing_status": "in_progress",
    "request_counts": dict.fromkeys(("processing", "succeeded", "errored", "canceled", "expired"), 0),
    "created_at": "2026-01-01T00:00:00Z",
    "expires_at": "2026-01-02T00:00:00Z",
}
COMPLETION = {"id": "c", "object": "text_completion", "created": 1, "model": "m"}
CHOICE = {"index": 0, "text": "hi", "finish_reason": "stop", "logprobs": None}
IMAGES = {"created": 1, "data": [{"b64_json": "aGk="}], "usage": {"input_tokens": 5, "output_tokens": 7}}
# Path -> its answer, as JSON or as bytes of a type.
ANSWERS: dict[str, Any] = {
    "/v1/embeddings": {"object": "list", "data": [{"object": "embedding", "index": 0, "embedding": "AACAPwAAAEA="}], "model": "m"},
    "/v1/completions": ("text/event-stream", f"data: {json.dumps({**COMPLETION, 'choices': [CHOICE]})}\n\ndata: [DONE]\n\n".encode()),
    "/v1/moderations": {"id": "modr-1", "model": "m", "results": []},
    "/v1/audio/speech": ("audio/mpeg", b"ID3" + bytes(50_000)),
    "/v1/audio/transcriptions": {"text": "hello"},
    "/v1/images/generations": IMAGES,
    "/v1/images/edits": IMAGES,
    "/v1/files": FILE,
    "/v1/files/file-abc123": {**FILE, "deleted": True},
    "/v1/files/file-abc123/content": ("application/octet-stream", b"content!"),
    "/v1/batches": BATCH,
    "/v1/batches/batch_123": BATCH,
    "/v1/batches/batch_123/cancel": {**BATCH, "status": "cancelling"},
    "/v1/uploads": UPLOAD,
    "/v1/uploads/upload_123/parts": {"id": "part_123", "object": "upload.part", "created_at": 1, "upload_id": "upload_123"},
    "/v1/uploads/upload_123/complete": {**UPLOAD, "status": "completed"},
    "/v1/conversations": {"id": "conv_123", "object": "conversation", "created_at": 1},
    "/v1/messages/batches": MESSAGE_BATCH,
    "/v1/messages/batches/msgbatch_0123": MESSAGE_BATCH,
}  # fmt: skip


class Upstream(BaseHTTPRequestHandler):
    """Answers by the path. What it was asked last is in `seen`: the start of its body, its length and its bytes."""

    protocol_version = "HTTP/1.1"
    seen: ClassVar[dict[str, Any]] = {}
    left: ClassVar[threading.Event] = threading.Event()
    began: ClassVar[threading.Event] = threading.Event()

    def handle(self) -> None:
        try:
            super().handle()
        except ConnectionError:
            self.left.set()

    def respond(self) -> None:
        length = int(self.headers.get("content-length", 0))
        body, read = b"", 0
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
            body = (body + data)[: 2 * MIB]
        type(self).seen = {"body": body, "length": self.headers.get("content-length"), "read": read}
        path, _, query = self.path.partition("?")
        found = ANSWERS[path]
        media_type, answer = (
            found if isinstance(found, tuple) else ("application/json", json.dumps(found).encode())
        )
        pieces = int(query.removeprefix("pieces=") or 0)
        self.send_response(200)
        self.send_header("content-type", media_type)
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
[[upstreams]]
name = "claude"
protocol = "anthropic_messages"
base_url = "http://127.0.0.1:PORT"
model_list = false
[models]
alias = "up/real-name"
opus = "claude/claude-opus-5"
[endpoints]
"/v1/files" = "up"
"/v1/batches" = "up"
"/v1/uploads" = "up"
"/v1/conversations" = "up"
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


@each_backend
def test_openais_sdk(running: GatewayProcess) -> None:
    with openai.OpenAI(base_url=f"http://127.0.0.1:{running.port}/v1", api_key="x", max_retries=0) as client:
        assert client.embeddings.create(model="alias", input="x").data[0].embedding == [1.0, 2.0]
        assert json.loads(Upstream.seen["body"])["model"] == "real-name"
        assert len(client.audio.speech.create(model="alias", input="x", voice="alloy").content) == 50_003
        for file in (b"ID3", bytes(3 * MIB)):
            assert client.audio.transcriptions.create(model="alias", file=("a.mp3", file)).text == "hello"
            assert b'name="model"\r\n\r\nreal-name\r\n' in Upstream.seen["body"]
            assert int(Upstream.seen["length"]) == Upstream.seen["read"] > len(file)
        assert client.images.generate(model="alias", prompt="x").data[0].b64_json == "aGk="  # type: ignore[index]
        assert client.images.edit(model="alias", image=("a.png", bytes(2 * MIB)), prompt="p").created == 1
        chunks = client.completions.create(model="alias", prompt="x", stream=True)
        assert [chunk.choices[0].text for chunk in chunks] == ["hi"]
        assert client.moderations.create(input="x").id == "modr-1"
        made = client.files.create(file=("f.jsonl", bytes(2 * MIB)), purpose="batch")
        assert client.files.content(made.id).content == b"content!"
        assert client.files.delete(made.id).deleted
        batch = client.batches.create(
            input_file_id=made.id, endpoint="/v1/embeddings", completion_window="24h"
        )
        assert client.batches.retrieve(batch.id).status == "validating"
        assert client.batches.cancel(batch.id).status == "cancelling"
        upload = client.uploads.create(bytes=3, filename="f", mime_type="text/plain", purpose="batch")
        part = client.uploads.parts.create(upload.id, data=b"abc")
        assert client.uploads.complete(upload.id, part_ids=[part.id]).status == "completed"
        assert client.conversations.create().id == "conv_123"
        with pytest.raises(openai.NotFoundError, match=re.escape('"/v1/vector_stores" = "up"')):
            client.vector_stores.create()


@each_backend
def test_anthropics_sdk(running: GatewayProcess) -> None:
    with anthropic.Anthropic(
        base_url=f"http://127.0.0.1:{running.port}", api_key="x", max_retries=0
    ) as client:
        params: Any = {"model": "opus", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}
        made = client.messages.batches.create(requests=[{"custom_id": "a", "params": params}])
        assert json.loads(Upstream.seen["body"])["requests"][0]["params"] == {
            **params,
            "model": "claude-opus-5",
        }
        assert client.messages.batches.retrieve(made.id).processing_status == "in_progress"


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
    assert found is not None
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
        assert Upstream.seen["read"] == 96 * MIB
    with running.connect() as client:
        client.sendall(head("GET", "/v1/files/file-abc123/content?pieces=96", 0))
        received = 0
        while received < 96 * MIB:
            received += len(client.recv(MIB))
            largest = max(largest, resident(running.pid))
    assert largest - before < 32 * MIB
