"""/admin/explain/..., with a client's method, path, headers and body: what the gateway would do with that request."""

from collections.abc import Sequence
from typing import Any

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from dragoman_server.gateway import Gateway
from dragoman_server.http.admin.replies import respond
from dragoman_server.http.auth import EXPLAIN_PATH
from dragoman_server.http.explanation import ClientCall, NoEndpoint, RequestExplainer
from dragoman_server.http.operations import VENDORS_OBJECT, AdminRoute, ApiOperation
from dragoman_server.http.request import BodyReader, path_below_mount
from dragoman_server.platform.off_loop import off_loop
from dragoman_server.proxying.affinity import referred_ids
from dragoman_server.proxying.explanation import as_builtins
from dragoman_server.relayed.body import ids_in_path
from dragoman_server.relayed.table import SENDING


class ExplainedPath(msgspec.Struct):
    """What the gateway would send: the upstreams in the order in which they are tried, and what may differ."""

    model: str
    protocol: str
    upstreams: list[dict[str, Any]]
    notes: list[str]


def explain_routes(gateway: Gateway) -> Sequence[BaseRoute]:
    """Return the route below /admin/explain."""
    settings = gateway.settings
    server = settings.server
    explainer = RequestExplainer(settings=settings, protocols=gateway.protocols, upstreams=gateway.upstreams)

    def explanation(call: ClientCall, account: str) -> ExplainedPath:
        return ExplainedPath(**as_builtins(explainer.explain(call, account)))

    async def explain_request(request: Request) -> Response:
        headers = dict(request.headers)
        reader = BodyReader(request.receive, headers, server.max_body_bytes, server.body_timeout_s)
        body = await reader.read_all()
        path = path_below_mount(request.scope).removeprefix(EXPLAIN_PATH)
        try:
            method = "GET" if request.method == "HEAD" else request.method
            call = ClientCall(method, path, request.url.query, headers, body)
            ids = [*ids_in_path(path), *await off_loop(len(body), referred_ids, body)]
            account = await gateway.pool.account_of(ids)
            found = await off_loop(len(body), explanation, call, account)
        except NoEndpoint as error:
            raise HTTPException(404, str(error)) from None
        return respond(gateway, request, found)

    def operation(body: type | None) -> ApiOperation:
        return ApiOperation(
            summary="What the gateway would do with a request",
            answers={200: (ExplainedPath,)},
            errors=(404,),
            body=body,
            parameters=None,
            place="the path of the client's request, such as v1/messages",
        )

    operations = {
        method: operation(VENDORS_OBJECT if method in SENDING else None)
        for method in (*SENDING, "GET", "DELETE")
    }
    return [AdminRoute(f"{EXPLAIN_PATH}/{{path:path}}", explain_request, **operations)]
