"""URLs in requests are passed on, never fetched: whatever a request has, and whatever its upstream sends, the gateway
connects to its upstreams only.

The interpreter itself reports each address that is looked up and each connection that is opened (PEP 578), so nothing
below or beside the gateway's own client is left out.
"""

import json
import sys
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from edge import Conversation, Upstream, whole
from failures.responses import Text
from failures.whole import whole as document
from gateway.fakes import FakeClient, http_scope
from laws.clients import path_of
from laws.fixtures import REQUESTS
from oracle import PROTOCOL_NAMES

from dragoman import UPSTREAMS
from dragoman_server.app import create_app
from dragoman_server.settings import ServerSettings, Settings, UpstreamSettings

pytestmark = pytest.mark.anyio

_watched: list[tuple[str, Any]] | None = None


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if _watched is not None and event in ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname"):
        address = arguments[1] if event == "socket.connect" else arguments[0]
        _watched.append((event, address.decode() if isinstance(address, bytes) else address))


sys.addaudithook(_hook)  # for the whole process: there is no way to take one back


@pytest.fixture
def watched() -> Iterator[list[tuple[str, Any]]]:
    global _watched
    _watched = []
    yield _watched
    _watched = None


def responses(protocol: str, conversation: Conversation) -> None:
    while conversation.read() is not None:
        conversation.send(whole(document(protocol, Text("Hello"))))


def redirects(conversation: Conversation) -> None:
    while conversation.read() is not None:
        conversation.send(whole({}, "307 Temporary Redirect", "location: http://canary.test/moved\r\n"))


# Fields by which other proxies and gateways let a client choose where its request goes.
HEADERS = {
    "content-type": "application/json",
    "forwarded": "host=canary.test;proto=http",
    "x-forwarded-host": "canary.test",
    "x-original-url": "http://canary.test/v1",
    "x-base-url": "http://canary.test/v1",
    "helicone-target-url": "http://canary.test",
    "x-portkey-custom-host": "http://canary.test/v1",
}


def requested(client: str) -> list[dict[str, Any]]:
    """Return all requests of the laws, without streams, and one with URLs where they are the most tempting; one that is
    redirected, and one for a model that is a URL.
    """
    more = {
        "metadata": {"user_id": "http://canary.test/metadata"},
        "tools": [
            {"type": "mcp", "server_label": "x", "server_url": "http://canary.test/mcp"},
            {"type": "web_search", "filters": {"allowed_domains": ["canary.test"]}},
        ],
        "mcp_servers": [{"type": "url", "name": "x", "url": "http://canary.test/mcp"}],
        "webhook_url": "http://canary.test/webhook",
        "api_base": "http://canary.test/v1",
        "base_url": "http://canary.test/v1",
    }
    found = [{**body, "model": "up/m", "stream": False} for body in REQUESTS[client].values()]
    models = ("moved/m", "http://canary.test/v1/m")
    return [*found, {**found[0], **more}, *({**found[0], "model": model} for model in models)]


@pytest.mark.promise("S6")
@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
async def test_only_the_upstream_is_connected(
    protocol: str, anyio_backend: str, watched: list[tuple[str, Any]]
) -> None:
    with Upstream(partial(responses, protocol)) as upstream, Upstream(redirects) as moved:
        ports = {"up": upstream.port, "moved": moved.port}
        path = UPSTREAMS[protocol].base_path
        named = [
            UpstreamSettings(
                name=name, protocol=protocol, base_url=f"http://127.0.0.1:{port}{path}", model_list=False
            )
            for name, port in ports.items()
        ]
        # A request of a fixture may name stored responses; nothing is stored here.
        settings = Settings(server=ServerSettings(response_store="memory"), upstreams=tuple(named))
        app = create_app(settings)
        statuses = []
        async with app.lifespan():
            for client in PROTOCOL_NAMES:
                for body in requested(client):
                    fake = FakeClient(json.dumps(body).encode())
                    scope = http_scope(path_of(client, body["model"], stream=False), headers=HEADERS)
                    await app(scope, fake.receive, fake.send)
                    statuses.append(fake.status)
        sent = b"".join(request for each in upstream.conversations for request in each.requests)
        allowed = {("socket.connect", ("127.0.0.1", port)) for port in ports.values()}
        assert set(watched) == allowed
    assert statuses.count(200) > len(statuses) / 2
    assert b"https://example.com/" in sent, "the upstream got the URLs"
