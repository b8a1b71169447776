"""Real processes tell clients nothing of where their upstreams are, and write one object a line, whatever comes.

All ways out and all secrets: tests/server/gateway/test_secrets.py.
"""

import contextlib
import json
import socket
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from edge import (
    CHAT_STREAM,
    LOOPS,
    STREAM_HEAD,
    Conversation,
    EdgeGateway,
    Upstream,
    chat,
    post,
    read_response,
)
from gateway.scripted import CHAT, PROTOCOL_NAMES
from laws.clients import path_of
from translation import client_request

pytestmark = pytest.mark.process

KEY = "sk-canary-0123456789-0123456789"
TEAM = "canary-of-the-team"
PROXY = "canary-of-the-proxy"


@dataclass
class Running:
    upstream: Upstream
    gateway: EdgeGateway

    def request(self, client: str, model: str, *, stream: bool = True) -> bytes:
        body = {**client_request(client, "", None, stream=stream), "model": model}
        with self.gateway.connect() as connection:
            connection.sendall(post(path_of(client, model, stream=stream), body, {"connection": "close"}))
            return read_response(connection)


@pytest.fixture(scope="module", params=LOOPS)
def running(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One process for all cases: it has one upstream, and others that cannot be reached."""
    directory = tmp_path_factory.mktemp("secrets")
    upstream_lines = f'api_key = "{KEY}"\nheaders = {{ x-team = "{TEAM}" }}\n'
    with Upstream() as upstream:
        unreachable = {
            "closed": ("http://127.0.0.1:9/v1", ""),
            "tls": (upstream.url.replace("http:", "https:"), ""),
            "proxied": ("http://corp.test/v1", f'proxy = "http://me:{PROXY}@127.0.0.1:9"'),
            "unknown": ("http://no-such-host.invalid/v1", ""),
        }
        more = "".join(
            f'[[upstreams]]\nname = "{name}"\nprotocol = "{CHAT}"\nbase_url = "{url}"\n'
            f"model_list = false\n{upstream_lines}{extra}\n"
            for name, (url, extra) in unreachable.items()
        )
        gateway = EdgeGateway(
            directory, upstream, backend=request.param, upstream_lines=upstream_lines, more=more
        )
        with gateway.ready():
            yield Running(upstream, gateway)
        assert "canary" not in "\n".join(gateway.output)


# The upstream, what it sends before it closes, and a part of the response.
FAILURES = [
    ("closed", b"", b" 502 "),
    ("tls", b"HTTP/1.1 400 no TLS here\r\n\r\n", b" 502 "),
    ("proxied", b"", b" 502 "),
    ("unknown", b"", b" 502 "),
    ("up", b"", b" 502 "),
    ("up", b"HTTP/1.1 200", b" 502 "),
    ("up", b"no HTTP\r\n\r\n", b" 502 "),
    ("up", STREAM_HEAD + CHAT_STREAM[:200], b" 200 "),
]


@pytest.mark.promise("S18")
@pytest.mark.parametrize(("name", "sent", "status"), FAILURES, ids=range(len(FAILURES)))
def test_an_upstream_that_fails_is_reported_by_its_name(
    running: Running, name: str, sent: bytes, status: bytes
) -> None:
    def script(conversation: Conversation) -> None:
        if name == "tls" or conversation.read() is not None:
            conversation.send(sent)

    running.upstream.script = script
    for client in PROTOCOL_NAMES:
        response = running.request(client, f"{name}/m")
        assert status in response.partition(b"\r\n")[0] + b" "
        text = f'upstream \\"{name}\\"'.encode() if status == b" 502 " else b" ended "
        assert text in response
        port = str(running.upstream.port).encode()
        for secret in (b"127.0.0.1", b"corp.test", b"no-such-host", PROXY.encode(), KEY.encode(), port):
            assert secret not in response


@pytest.mark.promise("S12")
def test_each_line_after_the_banner_is_one_object(running: Running) -> None:
    """Whatever clients send, at the level of HTTP and below it."""
    for data in (
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(100),
        b"GET /\x1b[2J\r\n\r\n",
        b"GET /%0a%1b[31m\xe2\x80\xa8 HTTP/1.1\r\nhost: x\r\n\r\n",
        post("/v1/chat/completions", chat('m\n{"forged": 1}\u2028\x1b[2J\ud800'), {"connection": "close"}),
        post("/v1/chat/completions", b"{" * 5000, {"connection": "close"}),
    ):
        with running.gateway.connect() as client:
            client.sendall(data)
            client.shutdown(socket.SHUT_WR)
            with contextlib.suppress(ConnectionError):
                while client.recv(65536):
                    pass
    running.request(CHAT, "up/m")
    output = running.gateway.output
    begin = next(number for number, line in enumerate(output) if "listens on" in line) + 1
    lines = [json.loads(line) for line in output[begin:]]
    assert all(line["message"] and line["level"] and line["logger"] for line in lines)
    assert not any("forged" in line for line in lines)
