"""The simulator as an ASGI application, for clients that need a socket.

Each request has a task group, in which a second task ends the script when the client leaves. A script that breaks the
connection returns without the last body event: servers then close the socket without the final chunk, so that the
client sees that the response was cut. GET /stats has the numbers of requests so far.
"""

from contextlib import suppress
from functools import partial

import anyio
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from dragoman.jsontext import MAX_DOCUMENT_BYTES
from dragoman_server.simulator.upstream import (
    ENDPOINTS,
    MODELS_PATH,
    SimulatedUpstream,
    model_list,
    not_found,
)
from dragoman_server.upstream.errors import UpstreamBroken


def create_simulator_app() -> Starlette:
    """Make the application: POST on each protocol's path and to compact a conversation, GET /models, all below /v1 or
    not; GET /stats.
    """
    upstream = SimulatedUpstream()

    async def respond(request: Request) -> ASGIApp:
        return partial(_respond, upstream)

    async def stats(request: Request) -> Response:
        return JSONResponse(vars(upstream))

    routes = [Route("/stats", stats)]
    for prefix in ("", "/v1"):
        routes += [Route(prefix + path, respond, methods=["POST"]) for path in ENDPOINTS]
        routes.append(Route(prefix + MODELS_PATH, _models))
    return Starlette(routes=routes, exception_handlers={404: _not_found, 405: _not_found})


async def _respond(upstream: SimulatedUpstream, scope: Scope, receive: Receive, send: Send) -> None:
    try:
        body = await _read(Request(scope, receive))
    except ClientDisconnect:
        # The upstream counts only requests that are complete.
        upstream.opened += 1
        upstream.closed += 1
        upstream.aborted += 1
        return
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_cancel_on_disconnect, receive, tasks.cancel_scope)
        async with upstream.open("POST", scope["path"], content=body) as response:
            head = [(name.encode("ascii"), value.encode("ascii")) for name, value in response.headers]
            await send({"type": "http.response.start", "status": response.status, "headers": head})
            with suppress(UpstreamBroken):
                while data := await response.receive():
                    await send({"type": "http.response.body", "body": data, "more_body": True})
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        tasks.cancel_scope.cancel()


async def _read(request: Request) -> bytes:
    """Return the body; of one that the core refuses as too large only so much that it does so."""
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > MAX_DOCUMENT_BYTES:
            break
    return bytes(body)


async def _cancel_on_disconnect(receive: Receive, scope: anyio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()


async def _models(request: Request) -> Response:
    body = model_list(anthropic="anthropic-version" in request.headers)
    return Response(body, media_type="application/json")


async def _not_found(request: Request, error: Exception) -> Response:
    status = getattr(error, "status_code", 404)
    return Response(not_found(request.method, request.url.path), status, media_type="application/json")
