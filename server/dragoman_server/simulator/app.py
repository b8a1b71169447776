"""The simulator as an ASGI application, for clients that need a socket.

Each request has a task group, in which a second task ends the script when the client leaves. A script that breaks the
connection returns without the last body event: servers then close the socket without the final chunk, so that the
client sees that the response was cut. GET /stats has the numbers of requests so far.
"""

from contextlib import suppress

import anyio
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from dragoman.jsontext import MAX_DOCUMENT_BYTES
from dragoman_server.hosts import UpstreamCall
from dragoman_server.simulator.upstream import SimulatedUpstream
from dragoman_server.upstream.errors import UpstreamBroken


def create_simulator_app() -> Starlette:
    """Make the application: everything that SimulatedUpstream serves, and GET /stats."""
    upstream = SimulatedUpstream()

    async def stats(request: Request) -> Response:
        return JSONResponse(vars(upstream))

    return Starlette(routes=[Route("/stats", stats), Route("/{path:path}", _Responder(upstream))])


class _Responder:
    """The ASGI application of all other paths."""

    def __init__(self, upstream: SimulatedUpstream) -> None:
        self._upstream = upstream

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request, upstream = Request(scope, receive), self._upstream
        try:
            body = await _read(request)
        except ClientDisconnect:
            # The upstream counts only requests that are complete.
            upstream.opened += 1
            upstream.closed += 1
            upstream.aborted += 1
            return
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_cancel_on_disconnect, receive, tasks.cancel_scope)
            url = f"{scope['path']}?{scope['query_string'].decode('latin-1')}"
            call = UpstreamCall(request.method, url, request.headers.items(), body)
            async with upstream.open(call) as response:
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
