"""Explain a request as it would be served at its path: those of protocols and clouds, and of the other endpoints.

Its endpoint does with it what it does with any request, up to the point where it would be planned.
"""

from collections.abc import Mapping
from urllib.parse import unquote

import anyio
from starlette.routing import Match
from starlette.types import Message, Receive, Scope

from dragoman import RemoteProtocolError, RequestRefused
from dragoman_server.accounts.stores.memory import MemoryAccountStore
from dragoman_server.gateway import Gateway
from dragoman_server.http.cloud_paths import CloudRequest, enter
from dragoman_server.http.count_tokens import CountEndpoint, counting_routes
from dragoman_server.http.endpoint import BaseEndpoint, ByProtocol, Explained, ProtocolEndpoint
from dragoman_server.http.relayed import relayed_routes
from dragoman_server.log import RequestRecord
from dragoman_server.platform.off_loop import off_loop
from dragoman_server.proxying.client_request import SCOPE_CLOUD, SCOPE_KEY, ClientRequest
from dragoman_server.proxying.explanation import (
    EXPLAINED_AT,
    EXPLAINED_ID,
    Explanation,
    explain_chain,
    refusal,
)
from dragoman_server.proxying.plan import Planner
from dragoman_server.proxying.relayed_plan import RelayedPlanner
from dragoman_server.relayed.body import ids_in_path
from dragoman_server.settings import ClientKey, Settings


class NoEndpoint(ValueError):
    """No model is requested at a path."""


class RequestExplainer:
    """Explains requests to a gateway, which need not be open."""

    def __init__(self, gateway: Gateway) -> None:
        specs = gateway.protocols.values()
        self._endpoints = [ProtocolEndpoint(gateway, spec, each) for spec in specs for each in spec.endpoints]
        self._routes = [*counting_routes(gateway), *relayed_routes(gateway)]
        others = [each.endpoint for each in self._routes if "POST" in (each.methods or ())]
        self._posts: list[BaseEndpoint] = [
            *self._endpoints,
            *(each for each in others if isinstance(each, BaseEndpoint)),
        ]

    async def explain(self, scope: Scope, receive: Receive) -> Explanation:
        """Explain one request. Raises NoEndpoint if no model is requested at its path, and nothing relayed.

        It may do everything if its scope has no key.
        """
        path, scope, _ = enter(scope, _send_nothing)
        endpoint, cloud, notes = self._endpoint(path, scope), scope.get(SCOPE_CLOUD), list[str]()
        if isinstance(cloud, CloudRequest):
            notes.append(f"it comes at a path of a cloud ({cloud.row.cloud}), and is served as {path}")
        record = RequestRecord(EXPLAINED_ID, endpoint.protocol.name, path)
        request = ClientRequest(scope, receive, _send_nothing, record)
        request.explains, request.now = True, EXPLAINED_AT
        try:
            await endpoint.serve(request)
        except (RemoteProtocolError, RequestRefused) as error:
            model = record.model or request.model_in_path
            return Explanation(model, record.protocol, (refusal("", error),), tuple(notes))
        except Explained as explained:
            planner = explained.planner
        else:
            target = endpoint.destinations(record.model or "")[0].target
            notes.append(f"the gateway estimates the tokens, because {target} does not count them")
            return Explanation(record.model or "", record.protocol, (), tuple(notes))
        only = 1 if isinstance(endpoint, CountEndpoint) else None
        return await off_loop(len(planner.body), _explanation, planner, only, notes)

    def _endpoint(self, path: str, scope: Scope) -> BaseEndpoint:
        """Return what serves a request, and put the model that its path names into its scope. Raises NoEndpoint."""
        query = scope["query_string"].decode("latin-1")
        for each in self._posts if scope["method"] == "POST" else ():
            if each.endpoint is not None and (model := each.endpoint.match(path, query)) is not None:
                if model:
                    scope["path_params"] = {"model": model}
                return each
        for route in self._routes:
            match, found = route.matches(scope)
            if match is Match.FULL:
                scope.update(found)
                endpoint: BaseEndpoint | ByProtocol = found["endpoint"]
                return endpoint.endpoint_for(scope) if isinstance(endpoint, ByProtocol) else endpoint
        paths = dict.fromkeys(each.endpoint.path for each in self._endpoints)
        raise NoEndpoint(
            f"no model is requested at {path[:100]!a}: write one of {', '.join(paths)}, or that of another endpoint, "
            "with its method"
        )


def explained(
    settings: Settings,
    method: str,
    target: str,
    headers: Mapping[str, str],
    body: bytes,
    key: ClientKey | None = None,
) -> Explanation:
    """Explain a request to a gateway with these settings, which opens none of its stores. Raises as explain().

    target: path and query. headers: with lower-case names.
    """
    path, _, query = target.partition("?")
    scope = {
        "type": "http",
        "method": method,
        "path": unquote(path),
        "query_string": query.encode(),
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        SCOPE_KEY: key,
    }
    gateway = Gateway(settings, accounts=MemoryAccountStore())
    sending, incoming = anyio.create_memory_object_stream[Message](1)
    sending.send_nowait({"type": "http.request", "body": body})
    with sending, incoming:  # a client that waits
        return anyio.run(RequestExplainer(gateway).explain, scope, incoming.receive)


def _explanation(planner: Planner, only: int | None, notes: list[str]) -> Explanation:
    """Explain where a request goes. only: so many of the upstreams to which it may go."""
    try:
        planner.first()
    except (RemoteProtocolError, RequestRefused) as error:
        if not planner.chain:
            return Explanation(
                planner.request_head.model, planner.client.name, (refusal("", error),), tuple(notes)
            )
    if isinstance(planner, RelayedPlanner):
        if not planner.models and not planner.account and planner.row.has_ids and ids_in_path(planner.path):
            notes.append("it goes to the account that has made the id, if that is known")
        if planner.upload is not None:
            notes.append("a large body is sent while it arrives, and to one account only")
    return explain_chain(planner, planner.chain[:only], *notes)


async def _send_nothing(message: Message) -> None:
    """Take what a client would get that is told an estimate."""
