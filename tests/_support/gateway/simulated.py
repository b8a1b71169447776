"""An application whose upstreams are all the simulator, and which remembers what it sent to them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from gateway.fakes import FakeClient, FakeUpstream, FakeUpstreams, Script, http_scope
from gateway.scripted import Sent

from dragoman_server.app import Application, create_app
from dragoman_server.hosts import UpstreamCall
from dragoman_server.settings import ClientKey, ServerSettings, Settings, UpstreamSettings
from dragoman_server.settings.secret import Secret
from dragoman_server.simulator import SimulatedUpstream

KEY = "sk-upstream-0123456789"

# Name -> the protocol that an upstream of this name speaks, and what it does itself.
UPSTREAMS: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": ("openai_chat", {}),
    "messages": ("anthropic_messages", {}),
    "stateless": ("openai_responses", {}),
    "anthropic": ("anthropic_messages", {"counts_tokens": True}),
    "openai": ("openai_responses", {"counts_tokens": True, "stores_responses": True}),
}


class RecordingUpstreams(FakeUpstreams):
    """Stands in for the application's client.

    scripts: responses of URLs that end so, instead of the simulator's. raw: the bodies that it was given.
    """

    def __init__(self, scripts: dict[str, Script] | None = None) -> None:
        self.sent: list[Sent] = []
        self.raw: list[bytes] = []
        self.fakes: list[FakeUpstream] = []
        self._scripts = scripts or {}
        self._simulator = SimulatedUpstream()

    def open(self, call: UpstreamCall, **way: Any) -> Any:
        self.raw.append(call.content or b"")
        self.sent.append(Sent.of(call))
        for end, script in self._scripts.items():
            if call.url.endswith(end):
                self.fakes.append(FakeUpstream(script))
                return self.fakes[-1].open(call)
        return self._simulator.open(call, **way)


@dataclass
class Gateway:
    """A running application."""

    app: Application
    upstreams: RecordingUpstreams

    async def call(
        self,
        path: str,
        body: Any = None,
        method: str = "POST",
        headers: dict[str, str] | None = None,
        client: FakeClient | None = None,
    ) -> FakeClient:
        path, _, query = path.partition("?")
        client = client or FakeClient(body if isinstance(body, bytes) else json.dumps(body).encode())
        scope = http_scope(path, method, headers, query_string=quote(query, safe="=&").encode())
        await self.app(scope, client.receive, client.send)
        return client

    async def json(self, path: str, body: Any = None, method: str = "POST", status: int = 200) -> Any:
        """Return the JSON of a response, which must have this status."""
        client = await self.call(path, body, method)
        assert client.status == status, client.body
        assert client.finished
        return json.loads(client.body)

    async def get(self, path: str, status: int = 200) -> Any:
        return await self.json(path, method="GET", status=status)

    @property
    def last(self) -> Sent:
        """The request that went to an upstream last."""
        return self.upstreams.sent[-1]


@asynccontextmanager
async def gateway(
    scripts: dict[str, Script] | None = None, *, keys: tuple[ClientKey, ...] = (), **server: Any
) -> AsyncIterator[Gateway]:
    """server: settings."""
    upstreams = RecordingUpstreams(scripts)
    base = {"anthropic_messages": "http://up.test"}
    settings = Settings(
        server=ServerSettings(**server),
        client_keys=keys,
        upstreams=tuple(
            UpstreamSettings.of(
                name=name,
                protocol=protocol,
                base_url=base.get(protocol, "http://up.test/v1"),
                api_key=Secret(KEY),
                **more,
            )
            for name, (protocol, more) in UPSTREAMS.items()
        ),
    )
    app = create_app(settings, client=upstreams)
    async with app.lifespan():
        yield Gateway(app, upstreams)


def frames(data: bytes) -> list[dict[str, Any]]:
    """The events of a stream of Responses."""
    return [json.loads(line[6:]) for line in data.decode().splitlines() if line.startswith("data: ")]
