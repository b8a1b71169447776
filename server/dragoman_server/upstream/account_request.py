"""Send requests to an upstream with the key and the proxy of one of its accounts."""

from contextlib import AbstractAsyncContextManager

from dragoman.codec import UpstreamSpec
from dragoman_server.headers import HeaderList, upstream_request_headers, with_key
from dragoman_server.settings import AccountSettings, UpstreamSettings
from dragoman_server.upstream.client import UpstreamTimeouts
from dragoman_server.upstream.errors import UpstreamIdleClosed
from dragoman_server.upstream.sender import UpstreamResponseLike, UpstreamSender


def account_request(
    sender: UpstreamSender,
    upstream: UpstreamSettings,
    protocol: UpstreamSpec,
    account: AccountSettings,
    url: str,
    headers: HeaderList,
    content: bytes | None,
) -> AbstractAsyncContextManager[UpstreamResponseLike]:
    """Send a POST, or a GET without content, and give its response: see UpstreamSender.open().

    protocol: for the header of the key. headers: without the key.
    """
    proxy = account.proxy or upstream.proxy
    return sender.open(
        "GET" if content is None else "POST",
        url,
        with_key(headers, upstream, protocol, account.api_key),
        content,
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
        async with account_request(sender, upstream, protocol, account, url, headers, None) as response:
            body = await response.read_all(max_bytes) if response.status == 200 else b""
            return response.status, body

    try:
        return await once()
    except UpstreamIdleClosed:
        return await once()  # GET is idempotent -- RFC 9110, 9.2.2
