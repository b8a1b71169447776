"""Secrets of the configuration and of clients, against real processes: an upstream repeats what it got, and
headers of either side try to get to the other. All ways out and all secrets: tests/server/gateway/test_secrets.py.
"""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass

import httpx2
import pytest
from edge import (
    CHAT_STREAM,
    CHAT_WHOLE,
    LOOPS,
    STREAM_HEAD,
    Conversation,
    EdgeGateway,
    Upstream,
    chat,
    post,
    read_response,
    whole,
)
from gateway.scripted import CHAT, MESSAGES, PATHS, PROTOCOL_NAMES, RESPONSES
from http_certificate import Certificate
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
            connection.sendall(post(PATHS[client], body, {"connection": "close"}))
            return read_response(connection)


@pytest.fixture(scope="module", params=LOOPS)
def running(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One process for all cases: its upstreams are called by their protocols, and some cannot be reached."""
    directory = tmp_path_factory.mktemp("secrets")
    upstream_lines = f'api_key = "{KEY}"\nheaders = {{ x-team = "{TEAM}" }}\n'
    with Upstream() as upstream:
        base = upstream.url.removesuffix("/v1")
        tables = [
            ("messages", MESSAGES, base, ""),
            ("responses", RESPONSES, upstream.url, ""),
            ("closed", CHAT, "http://127.0.0.1:9/v1", ""),
            ("tls", CHAT, upstream.url.replace("http:", "https:"), ""),
            ("proxied", CHAT, "http://corp.test/v1", f'proxy = "http://me:{PROXY}@127.0.0.1:9"'),
            ("unknown", CHAT, "http://no-such-host.invalid/v1", ""),
        ]
        more = "".join(
            f'[[upstreams]]\nname = "{name}"\nprotocol = "{protocol}"\nbase_url = "{url}"\n'
            f"model_list = false\n{upstream_lines}{extra}\n"
            for name, protocol, url, extra in tables
        )
        gateway = EdgeGateway(
            directory, upstream, backend=request.param, upstream_lines=upstream_lines, more=more
        )
        with gateway.ready():
            yield Running(upstream, gateway)
        assert "canary" not in "\n".join(gateway.output)


@pytest.mark.promise("S18")
@pytest.mark.parametrize("name", ["closed", "tls", "proxied", "unknown"])
def test_an_unreachable_upstream_is_reported_by_its_name(running: Running, name: str) -> None:
    running.upstream.script = lambda conversation: conversation.send(b"HTTP/1.1 400 no TLS here\r\n\r\n")
    for client in PROTOCOL_NAMES:
        head, _, body = running.request(client, f"{name}/m").partition(b"\r\n\r\n")
        assert b" 502 " in head
        assert f'upstream \\"{name}\\"'.encode() in body
        for secret in (b"127.0.0.1", b"corp.test", b"no-such-host", PROXY.encode(), KEY.encode()):
            assert secret not in body + head


@pytest.mark.promise("S18")
@pytest.mark.parametrize("sent", [b"", b"HTTP/1.1 200", b"no HTTP\r\n\r\n", STREAM_HEAD], ids=range(4))
def test_an_upstream_that_breaks_off_is_reported_by_its_name(running: Running, sent: bytes) -> None:
    def script(conversation: Conversation) -> None:
        if conversation.read() is not None:
            conversation.send(sent + (CHAT_STREAM[:200] if sent == STREAM_HEAD else b""))

    for client in PROTOCOL_NAMES:
        running.upstream.script = script
        response = running.request(client, "up/m")
        assert b"error" in response
        assert b"127.0.0.1" not in response
        assert str(running.upstream.port).encode() not in response


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


# Headers, over both versions of HTTP.


OF_CLIENT = {
    "authorization": "Bearer sk-canary-of-the-client-0123456789",
    "x-api-key": "sk-canary-of-the-client-0123456789",
    "cookie": "session=canary-of-the-cookie",
    "proxy-authorization": "Basic canary-of-the-clients-proxy",
    "x-forwarded-for": "canary-of-the-address",
    "x-goog-api-key": "canary-of-google",
    "openai-organization": "canary-of-the-org",
}
# RFC 9110, 7.6.1: they belong to this connection, and so do the headers that the first one names. HTTP/2 has none.
HOP_BY_HOP = {
    "connection": "close, x-nominated",
    "x-nominated": "canary-nominated",
    "keep-alive": "timeout=canary-of-keep-alive",
    "te": "trailers",
    "upgrade": "canary-of-the-upgrade",
}
OF_UPSTREAM = (
    "set-cookie: canary-of-the-upstreams-cookie\r\nserver: canary-of-the-server\r\nvia: 1.1 canary-of-via\r\n"
    "connection: close, x-internal\r\nx-internal: canary-of-the-inside\r\nkeep-alive: timeout=5\r\n"
    "x-served-by: canary-of-a-host\r\nproxy-authenticate: Basic realm=canary\r\nalt-svc: h3=canary\r\n"
    "openai-organization: canary-of-the-org\r\nanthropic-organization-id: canary-of-the-org\r\n"
    "access-control-allow-origin: https://canary.test\r\nwww-authenticate: canary\r\nx-request-id: req_1\r\n"
)


def with_headers(conversation: Conversation) -> None:
    request = conversation.read()
    if request is None:
        return
    if b'"stream":true' in request.replace(b" ", b""):
        head = STREAM_HEAD.replace(b"connection: close\r\n", OF_UPSTREAM.encode())
        conversation.send(head + CHAT_STREAM)
    else:
        conversation.send(whole(CHAT_WHOLE, headers=OF_UPSTREAM))


@pytest.fixture(scope="module", params=LOOPS)
def over_tls(
    request: pytest.FixtureRequest, tls: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running]:
    directory = tmp_path_factory.mktemp("headers")
    with Upstream(with_headers) as upstream:
        gateway = EdgeGateway(
            directory, upstream, backend=request.param, server=tls, upstream_lines=f'api_key = "{KEY}"'
        )
        with gateway.ready():
            yield Running(upstream, gateway)
        assert "canary" not in "\n".join(gateway.output)


@pytest.mark.promise("S4")
@pytest.mark.parametrize("version", ["1.1", "2"])
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_headers_stay_on_their_side(
    over_tls: Running, certificate: Certificate, version: str, stream: bool
) -> None:
    gateway, known = over_tls.gateway, len(over_tls.upstream.conversations)
    context: ssl.SSLContext = certificate.client()
    sent = {**OF_CLIENT, **(HOP_BY_HOP if version == "1.1" else {})}
    with httpx2.Client(verify=context, http2=version == "2") as client:
        response = client.post(
            f"https://127.0.0.1:{gateway.port}/v1/chat/completions", json=chat(stream=stream), headers=sent
        )
    assert (response.status_code, response.http_version) == (200, f"HTTP/{version}")
    assert response.headers["x-request-id"] == "req_1"
    assert "canary" not in repr(response.headers)
    (conversation,) = over_tls.upstream.conversations[known:]
    head = conversation.requests[0].partition(b"\r\n\r\n")[0].lower()
    assert f"authorization: bearer {KEY}".encode() in head
    assert b"canary" not in head.replace(KEY.encode(), b"")
    assert b"x-nominated" not in head
    assert b"\r\nte:" not in head
