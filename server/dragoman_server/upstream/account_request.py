"""Send requests to an upstream with the credentials and the proxy of one of its accounts."""

import time
from contextlib import AbstractAsyncContextManager

from dragoman.codec import UpstreamSpec
from dragoman_server.headers import HeaderList, upstream_request_headers
from dragoman_server.hosts import HOSTS, UpstreamCall
from dragoman_server.settings import AccountSettings, UpstreamSettings
from dragoman_server.upstream.client import UpstreamTimeouts
from dragoman_server.upstream.errors import UpstreamIdleClosed
from dragoman_server.upstream.sender import UpstreamResponseLike, UpstreamSender


async def account_request(
    sender: UpstreamSender,
    upstream: UpstreamSettings,
    protocol: UpstreamSpec,
    account: AccountSettings,
    url: str,
    headers: HeaderList,
    content: bytes | None,
) -> AbstractAsyncContextManager[UpstreamResponseLike]:
    """Return what sends a POST, or a GET without content, and gives its response: see UpstreamSender.open().

    protocol: that the request is in. headers: without credentials.

    Raises UpstreamError if the host cannot authorize it.
    """
    host, proxy = HOSTS[upstream.host], account.proxy or upstream.proxy
    call = host.fit(UpstreamCall("GET" if content is None else "POST", url, headers, content), upstream)
    return sender.open(
        *await host.authorize(call, upstream, protocol, account, time.time()),
        timeouts=UpstreamTimeouts(upstream.connect_s, upstream.read_s, upstream.write_s, upstream.pool_s),
        proxy=None if proxy is None else proxy.reveal(),
    )


async def account_get(
    sender: UpstreamSender,
    upstream: UpstreamSettings,
    protocol: UpstreamSpec,
    account: AccountSettings,
    url: str,
    max_bytes: int,
) -> tuple[int, bytes]:
    """Send a GET. Return status and body, b"" for another status than 200.

    protocol: the upstream's preferred one, for the headers. max_bytes: of the body.

    Raises UpstreamError.
    """
    headers = upstream_request_headers(upstream, protocol, None, {}, stream=False)
    headers = [(name, value) for name, value in headers if name != "content-type"]  # there is no content

    async def once() -> tuple[int, bytes]:
        request = await account_request(sender, upstream, protocol, account, url, headers, None)
        async with request as response:
            body = await response.read_all(max_bytes) if response.status == 200 else b""
            return response.status, body

    try:
        return await once()
    except UpstreamIdleClosed:
        return await once()  # GET is idempotent -- RFC 9110, 9.2.2
