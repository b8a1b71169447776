"""Requests that a browser sends for a page, over both versions of HTTP: no upstream is called for pages that are
not allowed, whatever their headers are.
"""

from __future__ import annotations

import json
import socket
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import h2.config
import h2.connection
import h2.events
import pytest
from command.process import DEADLINE_S
from edge import CHAT_PATH, CHAT_WHOLE, LOOPS, Conversation, EdgeGateway, Gateways, Upstream, chat, whole
from http_certificate import Certificate

pytestmark = [pytest.mark.process, pytest.mark.promise("S1", "S15")]

EVIL = "https://evil.example"
PAGE = "http://localhost:3000"
REBOUND = "rebind.evil.example"
BODY = json.dumps(chat(stream=False)).encode()
JSON = "application/json"


def responses(conversation: Conversation) -> None:
    while conversation.read() is not None:
        conversation.send(whole(CHAT_WHOLE))


@dataclass(frozen=True)
class Site:
    """A gateway behind TLS that offers both versions of HTTP."""

    gateway: EdgeGateway
    upstream: Upstream
    certificate: Certificate

    def connect(self, version: str) -> ssl.SSLSocket:
        context = self.certificate.client()
        context.set_alpn_protocols([version])
        raw = socket.create_connection(("127.0.0.1", self.gateway.port), timeout=DEADLINE_S)
        return context.wrap_socket(raw, server_hostname="127.0.0.1")

    @property
    def spent(self) -> int:
        """Requests that have reached the upstream."""
        return sum(len(each.requests) for each in self.upstream.conversations)


@pytest.fixture(scope="module", params=LOOPS)
def site(
    request: pytest.FixtureRequest, gateways: Gateways, certificate: Certificate, tls: str
) -> Iterator[Site]:
    with gateways.lend(request.param, responses, server=tls) as (upstream, gateway):
        yield Site(gateway, upstream, certificate)


def http1(site: Site, head: bytes, body: bytes = b"") -> tuple[int, bytes]:
    """Return the status and the head of the response. The body is sent only if it is given."""
    with site.connect("http/1.1") as client:
        client.sendall(head + body)
        data = b""
        while b"\r\n\r\n" not in data and (more := client.recv(65536)):
            data += more
    return int(data.split(b" ")[1]), data.partition(b"\r\n\r\n")[0].lower()


def http2(site: Site, headers: Mapping[str, str], body: bytes | None, method: str) -> tuple[int, bytes]:
    """As http1; 0 where the server ends the stream or the connection. Without a body the stream stays open, and the
    server has to respond before it comes.
    """
    with site.connect("h2") as client:
        connection = h2.connection.H2Connection(
            h2.config.H2Configuration(header_encoding="utf-8", validate_outbound_headers=False)
        )
        connection.initiate_connection()
        pseudo = {":method": method, ":path": headers[":path"], ":scheme": "https"}
        connection.send_headers(1, list({**pseudo, **headers}.items()))
        if body is not None:
            connection.send_data(1, body, end_stream=True)
        client.sendall(connection.data_to_send())
        while data := client.recv(65536):
            for event in connection.receive_data(data):
                if isinstance(event, h2.events.ResponseReceived):
                    found = {str(name): str(value) for name, value in event.headers}
                    return int(found[":status"]), repr(found).encode()
                if isinstance(event, h2.events.StreamReset | h2.events.ConnectionTerminated):
                    return 0, b""
            client.sendall(connection.data_to_send())
    return 0, b""


# Headers of a page's request, and the status; 200: the upstream was called.
REQUESTS: dict[str, tuple[dict[str, str], int]] = {
    "no page": ({}, 200),
    "a page of this machine": ({"origin": PAGE}, 200),
    "another page": ({"origin": EVIL}, 403),
    "another page, without a preflight": ({"origin": EVIL, "content-type": "text/plain"}, 403),
    "no origin sent": ({"origin": "null"}, 403),
    "a form of this machine": ({"origin": PAGE, "content-type": "text/plain"}, 415),
    "a rebound name": ({"host": REBOUND}, 421),
    "a rebound name and its page": ({"host": REBOUND, "origin": f"https://{REBOUND}"}, 421),
    "a rebound name and ours": ({"host": REBOUND, "origin": PAGE}, 421),
    "another origin with a key": ({"origin": EVIL, "x-api-key": "any"}, 403),
    "an image": ({"sec-fetch-site": "cross-site"}, 403),
}


@pytest.mark.parametrize("version", ["HTTP/1.1", "HTTP/2"])
@pytest.mark.parametrize("name", REQUESTS)
@pytest.mark.each_choice
def test_only_pages_that_are_listed_may_send_requests(site: Site, version: str, name: str) -> None:
    headers, status = REQUESTS[name]
    headers = {"host": "localhost", "content-type": JSON, "content-length": str(len(BODY)), **headers}
    before = site.spent
    # A refusal does not wait for the body.
    body = BODY if status == 200 else None
    if version == "HTTP/1.1":
        lines = "".join(f"{key}: {value}\r\n" for key, value in headers.items())
        found, head = http1(site, f"POST {CHAT_PATH} HTTP/1.1\r\n{lines}\r\n".encode(), body or b"")
    else:
        host = headers.pop("host")
        found, head = http2(site, {":path": CHAT_PATH, ":authority": host, **headers}, body, "POST")
    assert found == status
    assert site.spent - before == (1 if status == 200 else 0)
    assert (b"access-control-allow-origin" in head) == (headers.get("origin") == PAGE and status != 421)
    assert b"access-control-allow-credentials" not in head


# Heads of HTTP/1.1 whose host or origin is missing, repeated or another site's. None of them may be 200.
HEADS: dict[str, tuple[str, int]] = {
    "no host": (f"POST {CHAT_PATH} HTTP/1.0\r\n", 421),
    "an empty host": (f"POST {CHAT_PATH} HTTP/1.1\r\nhost:\r\n", 421),
    "two hosts": (f"POST {CHAT_PATH} HTTP/1.1\r\nhost: localhost\r\nhost: {REBOUND}\r\n", 400),
    "two in one": (f"POST {CHAT_PATH} HTTP/1.1\r\nhost: localhost, {REBOUND}\r\n", 400),
    "another in the target": (f"POST https://{REBOUND}{CHAT_PATH} HTTP/1.1\r\nhost: localhost\r\n", 0),
    "ours in the target": (f"POST https://localhost{CHAT_PATH} HTTP/1.1\r\nhost: {REBOUND}\r\n", 0),
    "behind a proxy": (
        f"POST {CHAT_PATH} HTTP/1.1\r\nhost: {REBOUND}\r\nx-forwarded-host: localhost\r\n",
        421,
    ),
    "an origin twice": (
        f"POST {CHAT_PATH} HTTP/1.1\r\nhost: localhost\r\norigin: {PAGE}\r\norigin: {EVIL}\r\n",
        403,
    ),
    "a preflight": (
        f"OPTIONS {CHAT_PATH} HTTP/1.1\r\nhost: localhost\r\norigin: {EVIL}\r\n"
        "access-control-request-method: POST\r\naccess-control-request-private-network: true\r\n",
        403,
    ),
    "a WebSocket": (
        f"GET /v1/responses HTTP/1.1\r\nhost: localhost\r\norigin: {EVIL}\r\nconnection: upgrade\r\n"
        "upgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n",
        403,
    ),
    "the operator's pages": (f"GET /admin/accounts HTTP/1.1\r\nhost: localhost\r\norigin: {EVIL}\r\n", 403),
}


@pytest.mark.parametrize("name", HEADS)
@pytest.mark.each_choice
def test_an_ambiguous_head_is_refused(site: Site, name: str) -> None:
    head, status = HEADS[name]
    before = site.spent
    found, response = http1(site, f"{head}content-type: {JSON}\r\ncontent-length: 0\r\n\r\n".encode())
    assert found == status or (status == 0 and 400 <= found < 500)
    assert b"access-control-" not in response
    assert site.spent == before


def test_the_two_names_of_http2_are_one(site: Site) -> None:
    """ "A server SHOULD treat a request as malformed if it contains a Host header field that identifies an entity that
    differs from the entity in the ":authority" pseudo-header field." -- RFC 9113, 8.3.1
    """
    before = site.spent
    for one, other in ((REBOUND, "localhost"), ("localhost", REBOUND)):
        names = {":path": CHAT_PATH, ":authority": one, "host": other, "content-type": JSON}
        status, _ = http2(site, names, BODY, "POST")
        assert status == 0 or 400 <= status < 500
    assert site.spent == before
