"""Requests of commands to the gateway that runs with the same configuration, by its paths below /admin."""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio

from dragoman_server.settings import ServerSettings

if TYPE_CHECKING:
    from dragoman_server.upstream.client import UpstreamResponse

# A list of accounts or keys. A reload has its own limits, see serving.link.
_TIMEOUT_S = 5.0
RELOAD_TIMEOUT_S = 45.0
_MAX_BYTES = 16 * 2**20


class AdminUnavailable(Exception):
    """The gateway cannot be asked. The text says why, and what to do.

    status: of its response, if there was one.
    """

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


def admin_request(server: ServerSettings, method: str, path: str, timeout_s: float = _TIMEOUT_S) -> Any:
    """Return the JSON of a response of the gateway that runs with these settings. path: below /admin.

    Raises AdminUnavailable if there is no such gateway, or if it does not accept the key.
    """
    if server.admin_key is None:
        raise AdminUnavailable("server.admin_key is not set")
    return anyio.run(request_admin, server, method, path, timeout_s)


async def request_admin(server: ServerSettings, method: str, path: str, timeout_s: float = _TIMEOUT_S) -> Any:
    """Do what admin_request() does, without a key as well: some gateways let this machine look without one."""
    from dragoman.jsontext import decode

    async with open_admin(server, method, path, timeout_s=timeout_s) as response:
        return decode(await response.read_all(_MAX_BYTES))


@asynccontextmanager
async def open_admin(
    server: ServerSettings,
    method: str,
    path: str,
    headers: list[tuple[str, str]] | None = None,
    *,
    timeout_s: float = _TIMEOUT_S,
    silence_s: float | None = None,
) -> "AsyncIterator[UpstreamResponse]":
    """Send a request, and yield its response, which is read in the block. Raises AdminUnavailable there as well.

    silence_s: the longest one in the response, by default the timeout.
    """
    # They take a while to import, and most commands do without.
    from dragoman import RemoteProtocolError
    from dragoman.jsontext import decode
    from dragoman_server.hosts import UpstreamCall
    from dragoman_server.http.auth import ADMIN_PATH
    from dragoman_server.serving.sockets import BoundAddress
    from dragoman_server.upstream.client import UpstreamClient
    from dragoman_server.upstream.errors import UpstreamError
    from dragoman_server.upstream.transport import Http1Transport, UpstreamTimeouts

    if not server.port:
        raise AdminUnavailable("server.port is 0, so the gateway's port is not known")
    url = BoundAddress.of(server, server.host, server.port).local_url
    tls = None
    if server.tls:
        # The gateway's own certificate is the one to trust, without its authority; it need not be for a loopback name.
        tls = ssl.create_default_context(cafile=server.certfile)
        tls.check_hostname = False
        tls.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    key = [] if server.admin_key is None else [("authorization", f"Bearer {server.admin_key.reveal()}")]
    try:
        async with (
            # Not by a proxy of the environment.
            UpstreamClient(transport=Http1Transport(tls=tls)) as client,
            client.open(
                UpstreamCall(method, f"{url}{ADMIN_PATH}/{path}", [*key, *(headers or ())]),
                timeouts=UpstreamTimeouts(timeout_s, silence_s or timeout_s, timeout_s, timeout_s),
            ) as response,
        ):
            if response.status in (200, 422):
                yield response
                return
            body = decode(await response.read_all(_MAX_BYTES))
    except UpstreamError as error:
        raise AdminUnavailable(f"no gateway responds: {error}") from None
    except RemoteProtocolError:
        raise AdminUnavailable(f"what responds at {url} is not a gateway") from None
    message = body.get("error", {}).get("message") if isinstance(body, dict) else None
    hint = (
        "; this configuration has no server.admin_key: DRAGOMAN_ADMIN_KEY may hold the gateway's"
        if response.status == 401 and not key
        else ""
    )
    raise AdminUnavailable(
        f"{url} returned {response.status}: {message or 'no reason'}{hint}", response.status
    )
