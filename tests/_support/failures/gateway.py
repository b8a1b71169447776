"""The whole gateway for the tests of failures: an ASGI application whose upstream is a scripted network.

The upstream client is the real one, down to what it hands to the network: so codings, headers and timeouts are
tested as a server gets them. Time is virtual.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import anyio
import httpx2
from gateway.fakes import FakeClient, Sleep, call
from laws.clients import endpoint_of
from oracle import CHAT, MESSAGES, RESPONSES
from translation import client_request

from dragoman_server.app import Application, create_app
from dragoman_server.settings import ClientKey, ServerSettings, Settings, UpstreamSettings
from dragoman_server.settings.secret import Secret
from dragoman_server.upstream.client import UpstreamClient

Json = dict[str, Any]
KEY = "sk-upstream-0123456789"
BASES = {CHAT: "http://up.test/v1", MESSAGES: "http://up.test", RESPONSES: "http://up.test/v1"}


@dataclass(frozen=True)
class UpstreamResponse:
    """What the scripted network sends. delay_s: until its head comes; parts: of its body."""

    parts: Sequence[bytes | Sleep | httpx2.HTTPError] = ()
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    delay_s: float = 0


class _Body(httpx2.AsyncByteStream):
    """Bytes and silences, which end by the request's own read timeout."""

    def __init__(self, parts: Sequence[bytes | Sleep | httpx2.HTTPError], read_s: float | None) -> None:
        self._parts = list(parts)
        self._read_s = read_s

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        while self._parts:
            part = self._parts.pop(0)
            if isinstance(part, bytes):
                await anyio.lowlevel.checkpoint()
                return part
            if isinstance(part, httpx2.HTTPError):
                raise part
            await silence(part.seconds, self._read_s)
        raise StopAsyncIteration

    async def aclose(self) -> None:
        pass


async def silence(seconds: float, read_s: float | None) -> None:
    """Nothing is to be read for so long. Raises ReadTimeout like a transport."""
    with anyio.move_on_after(read_s):
        await anyio.sleep(seconds)
        return
    raise httpx2.ReadTimeout("")


class Network(httpx2.AsyncBaseTransport):
    """Sends one response to every request, and keeps the requests."""

    def __init__(self, response: UpstreamResponse) -> None:
        self._response = response
        self.requests: list[httpx2.Request] = []

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        self.requests.append(request)
        response, read_s = self._response, request.extensions["timeout"]["read"]
        if response.delay_s:
            await silence(response.delay_s, read_s)
        return httpx2.Response(
            response.status,
            headers=list(response.headers),
            stream=_Body(response.parts, read_s),
            request=request,
        )


@dataclass
class Gateway:
    app: Application
    network: Network

    async def call(
        self,
        path: str,
        body: Json | bytes | None = None,
        *,
        method: str = "POST",
        headers: dict[str, str] | None = None,
    ) -> FakeClient:
        """The bytes that a client receives. `path` may have a query."""
        return await call(self.app, path, b"" if body is None else body, method, headers)

    @property
    def sent(self) -> Json:
        """The body of the request that went out last."""
        found: Json = json.loads(self.network.requests[-1].content)
        return found


@asynccontextmanager
async def gateway(
    protocol: str,
    response: UpstreamResponse | None = None,
    *,
    upstream: Json | None = None,
    client_keys: Sequence[ClientKey] = (),
    **server: Any,
) -> AsyncIterator[Gateway]:
    """An application with one upstream, `up`. upstream, server: settings of theirs."""
    network = Network(response or UpstreamResponse())
    fields: Json = {"base_url": BASES[protocol], **(upstream or {})}
    upstream_settings = UpstreamSettings.of(name="up", protocol=protocol, api_key=Secret(KEY), **fields)
    settings = Settings(
        server=ServerSettings(**server), upstreams=(upstream_settings,), client_keys=tuple(client_keys)
    )
    app = create_app(settings, client=UpstreamClient(transport=network))
    async with app.lifespan():
        yield Gateway(app, network)


def path_of(client: str) -> str:
    return endpoint_of(client).path


def request_for(client: str, upstream: str, *, stream: bool = True, **fields: Any) -> Json:
    """A plain request for a model of `up`."""
    return {**client_request(client, upstream, None, stream=stream), "model": "up/m", **fields}


def received_at(client: FakeClient, found: Callable[[bytes], bool]) -> float | None:
    """When the client had got the bytes for which `found` is true for the first time."""
    data = b""
    for when, message in client.messages:
        data += message.get("body", b"")
        if found(data):
            return when
    return None
