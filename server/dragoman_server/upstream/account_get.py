"""Send a GET to an upstream for one of its accounts: for its list of models, or its balance."""

from dragoman.codec import UpstreamSpec
from dragoman_server.headers import upstream_request_headers
from dragoman_server.settings import AccountSettings, UpstreamSettings
from dragoman_server.upstream.client import UpstreamTimeouts
from dragoman_server.upstream.errors import UpstreamIdleClosed
from dragoman_server.upstream.sender import UpstreamSender


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
