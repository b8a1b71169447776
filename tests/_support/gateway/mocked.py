"""A running gateway whose upstreams are a function of their requests."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx2

from dragoman_server.app import Application, create_app
from dragoman_server.settings import Settings
from dragoman_server.upstream.client import UpstreamClient


@asynccontextmanager
async def mocked(
    settings: Settings, respond: Callable[[httpx2.Request], httpx2.Response], **more: Any
) -> AsyncIterator[Application]:
    client = UpstreamClient(transport=httpx2.MockTransport(respond))
    app = create_app(settings, client=client, **more)
    async with app.lifespan():
        yield app
