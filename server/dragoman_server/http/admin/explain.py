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
from dragoman_server.http.explanation import NoEndpoint, RequestExplainer
from dragoman_server.http.operations import VENDORS_OBJECT, AdminRoute, ApiOperation
from dragoman_server.proxying.client_request import path_below_mount
from dragoman_server.proxying.explanation import as_builtins
from dragoman_server.relayed.table import SENDING


class ExplainedPath(msgspec.Struct):
    """What the gateway would send: the upstreams in the order in which they are tried, and what may differ."""

    model: str
    protocol: str
    upstreams: list[dict[str, Any]]
    notes: list[str]


def explain_routes(gateway: Gateway) -> Sequence[BaseRoute]:
    """Return the route below /admin/explain."""
    explainer = RequestExplainer(gateway)

    async def explain_request(request: Request) -> Response:
        scope = request.scope
        path = path_below_mount(scope).removeprefix(EXPLAIN_PATH)
        method = "GET" if request.method == "HEAD" else request.method
        scope = {**scope, "path": scope.get("root_path", "") + path, "path_params": {}, "method": method}
        try:
            found = await explainer.explain(scope, request.receive)
        except NoEndpoint as error:
            raise HTTPException(404, str(error)) from None
        return respond(gateway, request, ExplainedPath(**as_builtins(found)))

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
