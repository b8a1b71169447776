"""Find the servers of models that run on this machine, on their usual ports.

All are requested in parallel, directly and not by a proxy, and each has a short time to respond.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import anyio
from msgspec import structs

from dragoman import UPSTREAMS, RemoteProtocolError
from dragoman_server.capabilities.local_servers import LOCAL_SERVERS, LocalServer
from dragoman_server.capabilities.provider import CHAT
from dragoman_server.capabilities.providers import address_of
from dragoman_server.cli.listeners import is_dragoman
from dragoman_server.models.info import ModelInfo, read_models
from dragoman_server.models.listing import MAX_BYTES, AccountRefused, ModelListError, fetch_models
from dragoman_server.settings import UpstreamSettings
from dragoman_server.settings.secret import Secret
from dragoman_server.upstream.account_request import account_get
from dragoman_server.upstream.client import UpstreamClient, origin_of
from dragoman_server.upstream.errors import UpstreamError
from dragoman_server.upstream.sender import UpstreamSender
from dragoman_server.upstream.transport import Http1Transport

# A server of this machine responds within milliseconds, except while it loads a model.
_TIMEOUT_S = 2.0


# Ports that many programs use: there only the owner of the models shows which one it is.
_COMMON_PORTS = frozenset({8000, 8080})


@dataclass(frozen=True, slots=True)
class FoundServer:
    """A server that responds.

    Attributes:
        server: The server, with the address at which it was found.
        models: None if it requires a key, and the variable has none or a wrong one.
    """

    server: LocalServer
    models: tuple[ModelInfo, ...] | None


async def find_local_servers(
    environ: Mapping[str, str], servers: Sequence[LocalServer] = LOCAL_SERVERS
) -> list[FoundServer]:
    """Return the servers that respond, in the order of `servers`. Another Dragoman is none of them."""

    async def find(client: UpstreamClient, server: LocalServer) -> FoundServer | None:
        with anyio.move_on_after(_TIMEOUT_S):
            if await is_dragoman(origin_of(server.base_url)[0]):
                return None
            try:
                models = await _models_of(client, server, environ)
                return FoundServer(_identified(server, models), models)
            except AccountRefused:
                return FoundServer(server, None)
            except ModelListError:
                return None
        return None

    async with UpstreamClient(transport=Http1Transport()) as client, anyio.create_task_group() as tasks:
        looks = [tasks.start_soon(find, client, server) for server in servers]
    in_order = [found for look in looks if (found := look.return_value) is not None]
    # Two ports may have the same program; the names of upstreams differ.
    names = Counter(found_server.server.name for found_server in in_order)
    return [
        replace(found_server, server=structs.replace(found_server.server, name=_by_port(found_server.server)))
        if names[found_server.server.name] > 1
        else found_server
        for found_server in in_order
    ]


async def _models_of(
    sender: UpstreamSender, server: LocalServer, environ: Mapping[str, str]
) -> tuple[ModelInfo, ...]:
    """Return its models, with their context windows if it has a list with those. Raises ModelListError."""
    key = environ.get(server.key)
    upstream = UpstreamSettings(
        name=server.name, protocol=CHAT, base_url=server.base_url, api_key=Secret(key) if key else None
    )
    account = upstream.default_account
    models = await fetch_models(sender, upstream, [account])
    if not server.details or not models:
        return models
    url = origin_of(server.base_url)[0] + server.details
    try:
        status, body = await account_get(sender, upstream, UPSTREAMS[CHAT], account, url, MAX_BYTES)
        detailed = {model.id: model for model in read_models(body).models} if status == 200 else {}
    except (UpstreamError, RemoteProtocolError):
        return models
    return tuple(
        structs.replace(model, context=model.context or detailed[model.id].context)
        if model.id in detailed
        else model
        for model in models
    )


def _identified(server: LocalServer, models: Sequence[ModelInfo]) -> LocalServer:
    """Return which server it is, by the owner of its models, else by its port."""
    owners = {model.owned_by for model in models} - {None}
    for known in LOCAL_SERVERS:
        if known.owner and known.owner in owners:
            return structs.replace(known, base_url=server.base_url)
    _, port = address_of(server.base_url)
    if port in _COMMON_PORTS:
        return structs.replace(server, name=_by_port(server), title="A server")
    return server


def _by_port(server: LocalServer) -> str:
    return f"local-{address_of(server.base_url)[1]}"
