"""The vendors' SDKs call the other endpoints: what reaches the upstream, and what the SDK makes of the answer.

Those that are no development tools are in .clients; a missing one is skipped, with the line that installs it.
"""

import email
import email.policy
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
from command.process import DEADLINE_S, GatewayProcess
from sdk_clients.calls import ANSWERS, SDKS, Sdk

pytestmark = pytest.mark.process

PLACE = Path(__file__).parents[2] / ".clients"

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
[[upstreams]]
name = "google"
protocol = "gemini"
base_url = "http://127.0.0.1:PORT"
model_list = false
[models]
g = "google/real-name"
alias = "up/real-name"
opus = "claude/claude-opus-5"
[endpoints]
"/v1/files" = ["up", "claude"]
"/v1/skills" = "claude"
"""
# What needs nothing but a rule.
CONFIG += "".join(
    f'"/{path}" = "up"\n'
    for path in (
        *("v1/batches", "v1/uploads", "v1/conversations", "v1/chat/completions", "v1/videos", "v2/batches"),
        *("v1/datasets", "v1/embed-jobs"),
    )
)


class Upstream(BaseHTTPRequestHandler):
    """Answers by the path. What it was asked is in `seen`, a line for each request."""

    protocol_version = "HTTP/1.1"
    seen: ClassVar[list[str]] = []

    def respond(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        type(self).seen.append(
            f"{self.command} {self.path} {shown(self.headers['content-type'], body)}".rstrip()
        )
        found = ANSWERS[self.path.partition("?")[0]]
        media_type, answer = (
            found if isinstance(found, tuple) else ("application/json", json.dumps(found).encode())
        )
        self.send_response(200)
        self.send_header("content-type", media_type)
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    do_GET = do_POST = do_DELETE = do_PATCH = respond

    def log_message(self, *arguments: object) -> None:
        """Write nothing."""


def shown(content_type: str | None, body: bytes) -> str:
    """A body of JSON, or the fields of a form in their order, with a file's name and size for its bytes."""
    if content_type is None or not content_type.startswith("multipart/"):
        return json.dumps(json.loads(body)) if body else ""
    head = f"content-type: {content_type}\r\n\r\n".encode()
    fields = []
    for part in email.message_from_bytes(head + body, policy=email.policy.HTTP).iter_parts():
        name, file = part.get_param("name", header="content-disposition"), part.get_filename()
        content = part.get_payload(decode=True)
        fields.append(f"{name}={content.decode() if file is None else f'{file}[{len(content)}]'}")
    return " ".join(fields)


@pytest.fixture(scope="module")
def gateway_at(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], GatewayProcess]]:
    """Starts a gateway on a backend, once."""
    with ExitStack() as stack:
        upstream = stack.enter_context(ThreadingHTTPServer(("127.0.0.1", 0), Upstream))
        stack.callback(upstream.shutdown)
        threading.Thread(target=upstream.serve_forever, daemon=True).start()
        file = tmp_path_factory.mktemp("gateway") / "dragoman.toml"
        file.write_text(CONFIG.replace("PORT", str(upstream.server_port)))
        yield cache(
            lambda backend: stack.enter_context(
                GatewayProcess("--config", str(file), "--backend", backend)
            ).ready()
        )


def run(sdk: Sdk, url: str) -> list[Any]:
    """What the calls return, each in a text of JSON, or their errors."""
    done = subprocess.run(
        [sys.executable, "-c", sdk.program],
        env={"PATH": os.environ["PATH"], "URL": url, "PYTHONPATH": str(PLACE / "python")},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize(("name", "backend"), [*((name, "asyncio") for name in SDKS), ("openai", "trio")])
def test_what_an_sdk_sends_and_reads(
    name: str, backend: str, gateway_at: Callable[[str], GatewayProcess]
) -> None:
    sdk = SDKS[name]
    if not sdk.is_installed(PLACE):
        pytest.skip(f"{sdk.package} is not installed: {sdk.install}")
    Upstream.seen.clear()
    answers = run(sdk, f"http://127.0.0.1:{gateway_at(backend).port}")
    assert answers == [answer for _, _, answer in sdk.calls]
    assert Upstream.seen == [line for _, requests, _ in sdk.calls for line in requests.splitlines()]
