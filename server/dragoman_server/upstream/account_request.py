"""Send requests to an upstream with the credentials and the proxy of one of its accounts."""

import time
from contextlib import AbstractAsyncContextManager

from dragoman.codec import UpstreamSpec
from dragoman_server.hosts import HostError, UpstreamCall, host_of
from dragoman_server.platform.off_loop import off_loop
from dragoman_server.settings import AccountSettings, UpstreamSettings
from dragoman_server.upstream.errors import UpstreamIdleClosed, UpstreamUnreachable
from dragoman_server.upstream.sender import UpstreamResponseLike, UpstreamSender
from dragoman_server.upstream.transport import UpstreamTimeouts
from dragoman_server.wire.headers import upstream_request_headers


async def account_request(
    sender: UpstreamSender,
    upstream: UpstreamSettings,
    protocol: UpstreamSpec,
    account: AccountSettings,
    call: UpstreamCall,
) -> AbstractAsyncContextManager[UpstreamResponseLike]:
    """Return what sends a call and gives its response: see UpstreamSender.open().

    protocol: that the call is in. call: as its protocol has it, without credentials.

    Raises UpstreamError if the host cannot authorize it.
    """
    host, proxy = host_of(upstream), account.proxy or upstream.proxy
    try:
        if host.fit is not None:
            call = await off_loop(len(call.held), host.fit, call, upstream)
        call = await host.authorize(call, upstream, protocol, account, time.time())
    except HostError as error:
        raise UpstreamUnreachable(str(error)) from None
    return sender.open(
        call,
        timeouts=UpstreamTimeouts(
            upstream.connect_s, max(upstream.read_s, call.least_read_s), upstream.write_s, upstream.pool_s
        ),
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
    # There is no content.
    call = UpstreamCall("GET", url, [(name, value) for name, value in headers if name != "content-type"])

    async def once() -> tuple[int, bytes]:
        async with await account_request(sender, upstream, protocol, account, call) as response:
            body = await response.read_all(max_bytes) if response.status == 200 else b""
            return response.status, body

    try:
        return await once()
    except UpstreamIdleClosed:
        return await once()  # GET is idempotent -- RFC 9110, 9.2.2
