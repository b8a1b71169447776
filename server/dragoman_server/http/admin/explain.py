"""POST /admin/explain/..., with a client's path, headers and body: what the gateway would do with that request."""

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
from dragoman_server.http.operations import VENDORS_OBJECT, AdminRoute, ApiOperation
from dragoman_server.http.request import path_below_mount, read_body
from dragoman_server.platform.off_loop import off_loop
from dragoman_server.proxying.explanation import NoEndpoint, as_builtins, explain


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

    def explanation(path: str, query: str, headers: dict[str, str], body: bytes) -> ExplainedPath:
        return ExplainedPath(**as_builtins(explain(settings, path, query, headers, body, gateway.protocols)))

    async def explain_request(request: Request) -> Response:
        headers = dict(request.headers)
        coding, length = headers.get("content-encoding", ""), headers.get("content-length", "")
        body = await read_body(request.receive, coding, length, server.max_body_bytes, server.body_timeout_s)
        path = path_below_mount(request.scope).removeprefix(EXPLAIN_PATH)
        try:
            found = await off_loop(len(body), explanation, path, request.url.query, headers, body)
        except NoEndpoint as error:
            raise HTTPException(404, str(error)) from None
        return respond(gateway, request, found)

    operation = ApiOperation(
        summary="What the gateway would do with a request",
        answers={200: (ExplainedPath,)},
        errors=(404,),
        body=VENDORS_OBJECT,
        parameters=None,
        place="the path of the client's request, such as v1/messages",
    )
    return [AdminRoute(f"{EXPLAIN_PATH}/{{path:path}}", explain_request, POST=operation)]
