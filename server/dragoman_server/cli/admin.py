"""Requests of commands to the gateway that runs with the same configuration, by its paths below /admin."""

import ssl
from typing import Any

import anyio

from dragoman_server.settings import ServerSettings

# A list of accounts or keys. A reload has its own limits, see serving.link.
_TIMEOUT_S = 5.0
RELOAD_TIMEOUT_S = 45.0
_MAX_BYTES = 16 * 2**20


class AdminUnavailable(Exception):
    """The gateway cannot be asked. The text says why, and what to do."""


def admin_request(server: ServerSettings, method: str, path: str, timeout_s: float = _TIMEOUT_S) -> Any:
    """Return the JSON of a response of the gateway that runs with these settings. path: below /admin.

    Raises AdminUnavailable if there is no such gateway, or if it does not accept the key.
    """
    if server.admin_key is None:
        raise AdminUnavailable("server.admin_key is not set")
    if not server.port:
        raise AdminUnavailable("server.port is 0, so the gateway's port is not known")
    return anyio.run(_request, server, method, path, timeout_s)


async def _request(server: ServerSettings, method: str, path: str, timeout_s: float) -> Any:
    # They take a while to import, and most commands do without.
    from dragoman import RemoteProtocolError
    from dragoman.jsontext import decode
    from dragoman_server.hosts import UpstreamCall
    from dragoman_server.http.auth import ADMIN_PATH
    from dragoman_server.serving.sockets import BoundAddress
    from dragoman_server.upstream.client import UpstreamClient
    from dragoman_server.upstream.errors import UpstreamError
    from dragoman_server.upstream.transport import Http1Transport, UpstreamTimeouts

    url = BoundAddress.of(server, server.host, server.port).local_url
    tls = None
    if server.tls:
        # The gateway's own certificate is the one to trust, without its authority; it need not be for a loopback name.
        tls = ssl.create_default_context(cafile=server.certfile)
        tls.check_hostname = False
        tls.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    key = "" if server.admin_key is None else server.admin_key.reveal()
    try:
        async with (
            # Not by a proxy of the environment.
            UpstreamClient(transport=Http1Transport(tls=tls)) as client,
            client.open(
                UpstreamCall(method, f"{url}{ADMIN_PATH}/{path}", [("authorization", f"Bearer {key}")]),
                timeouts=UpstreamTimeouts(*[timeout_s] * 4),
            ) as response,
        ):
            body = decode(await response.read_all(_MAX_BYTES))
    except UpstreamError as error:
        raise AdminUnavailable(f"no gateway responds: {error}") from None
    except RemoteProtocolError:
        raise AdminUnavailable(f"what responds at {url} is not a gateway") from None
    if response.status not in (200, 422):
        message = body.get("error", {}).get("message") if isinstance(body, dict) else None
        raise AdminUnavailable(f"{url} returned {response.status}: {message or 'no reason'}")
    return body
