"""An application whose upstreams are all the simulator, and which remembers what it sent to them."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from gateway.fakes import FakeClient, FakeUpstreams, Script, Sent, http_scope

from dragoman import UPSTREAMS as SPECS
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
    "google": ("gemini", {"counts_tokens": True}),
}


class SimulatedUpstreams(FakeUpstreams):
    """by_end: responses of URLs that end so, instead of the simulator's."""

    def __init__(self, by_end: dict[str, Script]) -> None:
        super().__init__()
        self._by_end = by_end
        self._simulator = SimulatedUpstream()

    def script_for(self, url: str, headers: Mapping[str, str], content: bytes) -> Script | None:
        return next((script for end, script in self._by_end.items() if url.endswith(end)), None)

    def open(self, call: UpstreamCall, **way: Any) -> Any:
        response = super().open(call, **way)
        return self._simulator.open(call, **way) if response.script is None else response


@dataclass
class Gateway:
    """A running application."""

    app: Application
    upstreams: SimulatedUpstreams

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
    upstreams = SimulatedUpstreams(scripts or {})
    settings = Settings(
        server=ServerSettings(**server),
        client_keys=keys,
        upstreams=tuple(
            UpstreamSettings.of(
                name=name,
                protocol=protocol,
                base_url="http://up.test" + SPECS[protocol].base_path,
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
