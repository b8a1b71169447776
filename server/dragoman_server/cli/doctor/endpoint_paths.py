"""Find out which protocols an upstream serves, and at which paths, without a request that costs tokens.

The body is none that a server could take for a request. A server that has the path refuses it, and one that has not
says so.
"""

import re
from collections.abc import Sequence
from contextlib import suppress

import anyio
import msgspec

from dragoman import UPSTREAMS
from dragoman_server.capabilities.cloud_apis import cloud_api_of
from dragoman_server.hosts import UpstreamCall
from dragoman_server.settings import AccountSettings, UpstreamSettings
from dragoman_server.settings.values import API_VERSION
from dragoman_server.upstream.account_request import account_request
from dragoman_server.upstream.errors import UpstreamError
from dragoman_server.upstream.sender import UpstreamSender
from dragoman_server.wire.headers import upstream_request_headers

# Base URLs of OpenAI's protocols end with this, Anthropic's do not.
_VERSION = "/v1"
_BODY = b"{"
_NOT_THERE = (404, 405)


class EndpointPath(msgspec.Struct, frozen=True):
    """Where a protocol may be served.

    Attributes:
        base_url: The base URL as the upstream's would be written if that were its protocol.
    """

    protocol: str
    base_url: str

    @property
    def path(self) -> str:
        """The path for people, without what may be private before it."""
        spec = UPSTREAMS[self.protocol]
        return spec.base_path + spec.path


def other_base(base_url: str) -> str:
    """Return a base URL with /v1 at the end if it is without a version, and without if it is with one."""
    without = re.sub(f"{API_VERSION}$", "", base_url)
    return without if without != base_url else base_url + _VERSION


def configured_paths(upstream: UpstreamSettings) -> list[EndpointPath]:
    """Return where the configuration says that the upstream serves its protocols, the preferred one first.

    None for a cloud whose paths a table has, because they may depend on the request.
    """
    api = cloud_api_of(upstream)
    if api is not None and api.routes:
        return []
    names = sorted(upstream.protocols, key=lambda name: name != upstream.protocol)
    return [EndpointPath(name, upstream.base_url_for(name)) for name in names]


def other_paths(upstream: UpstreamSettings) -> list[EndpointPath]:
    """Return where else it may serve a protocol: its own ones come first."""
    configured = configured_paths(upstream)
    names = dict.fromkeys([*(endpoint.protocol for endpoint in configured), *UPSTREAMS])
    found = []
    for name in names:
        base = upstream.base_url_for(name)
        found += [EndpointPath(name, base), EndpointPath(name, other_base(base))]
    return [endpoint for endpoint in found if endpoint not in configured]


async def status_at(
    sender: UpstreamSender, upstream: UpstreamSettings, account: AccountSettings, endpoint: EndpointPath
) -> int:
    """Return the status of the response to a body that is no request. Raises UpstreamError."""
    spec = UPSTREAMS[endpoint.protocol]
    headers = upstream_request_headers(upstream, spec, None, {}, stream=False)
    path = spec.path_for("model", stream=False)
    call = UpstreamCall("POST", endpoint.base_url + path, headers, _BODY)
    async with await account_request(sender, upstream, spec, account, call) as response:
        return response.status


def is_missing(status: int) -> bool:
    """True if there is nothing at the path."""
    return status in _NOT_THERE


async def served_paths(
    sender: UpstreamSender,
    upstream: UpstreamSettings,
    account: AccountSettings,
    endpoints: Sequence[EndpointPath],
) -> list[EndpointPath]:
    """Return the endpoints at which a server refuses a body that is no request, in their order."""

    async def is_there(endpoint: EndpointPath) -> bool:
        with suppress(UpstreamError):
            status = await status_at(sender, upstream, account, endpoint)
            return 400 <= status < 500 and not is_missing(status)
        return False

    async with anyio.create_task_group() as tasks:
        looks = [tasks.start_soon(is_there, endpoint) for endpoint in endpoints]
    return [endpoint for endpoint, look in zip(endpoints, looks, strict=True) if look.return_value]
