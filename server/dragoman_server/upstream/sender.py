"""The interface for sending requests to upstreams, which `UpstreamClient` and the simulator have; GETs through it."""

from contextlib import AbstractAsyncContextManager
from typing import Protocol

from dragoman.codec import UpstreamSpec
from dragoman_server.headers import upstream_request_headers
from dragoman_server.settings import AccountSettings, UpstreamSettings
from dragoman_server.upstream.client import UpstreamTimeouts
from dragoman_server.upstream.errors import UpstreamIdleClosed


class UpstreamResponseLike(Protocol):
    """The part of UpstreamResponse that its readers use."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> list[tuple[str, str]]: ...

    async def receive(self) -> bytes: ...

    async def read_all(self, limit: int) -> bytes: ...


class UpstreamSender(Protocol):
    """Send one request per `open()`; the response is readable inside of its `async with` block."""

    def open(
        self,
        method: str,
        url: str,
        headers: list[tuple[str, str]],
        content: bytes | None,
        *,
        timeouts: UpstreamTimeouts | None = None,
        proxy: str | None = None,
    ) -> AbstractAsyncContextManager[UpstreamResponseLike]: ...


async def account_get(
    sender: UpstreamSender,
    upstream: UpstreamSettings,
    protocol: UpstreamSpec,
    account: AccountSettings,
    url: str,
    max_bytes: int,
) -> tuple[int, bytes]:
    """Send a GET with the key and the proxy of the account. Return status and body, b"" for another status than 200.

    protocol: the upstream's preferred one, for the headers. max_bytes: of the body.

    Raises UpstreamError.
    """
    headers = upstream_request_headers(upstream, protocol, None, {}, stream=False, api_key=account.api_key)
    headers = [(name, value) for name, value in headers if name != "content-type"]  # there is no content
    proxy = account.proxy or upstream.proxy
    timeouts = UpstreamTimeouts(upstream.connect_s, upstream.read_s, upstream.write_s, upstream.pool_s)

    async def once() -> tuple[int, bytes]:
        opening = sender.open(
            "GET", url, headers, None, timeouts=timeouts, proxy=None if proxy is None else proxy.reveal()
        )
        async with opening as response:
            body = await response.read_all(max_bytes) if response.status == 200 else b""
            return response.status, body

    try:
        return await once()
    except UpstreamIdleClosed:
        return await once()  # GET is idempotent -- RFC 9110, 9.2.2
