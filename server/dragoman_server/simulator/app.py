"""The simulator as an ASGI application, for clients that need a socket.

Each request has a task group, in which a second task ends the script when the client leaves. A script that breaks the
connection returns without the last body event: servers then close the socket without the final chunk, so that the
client sees that the response was cut. GET /stats has the numbers of requests so far.
"""

from dataclasses import asdict, dataclass
from functools import partial

import anyio
from starlette.applications import Starlette
from starlette.requests import Request as HTTPRequest
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from dragoman import PROTOCOLS, ErrorKind, WireError
from dragoman_server.simulator.reply import SimulatedReply, reply_to
from dragoman_server.simulator.upstream import (
    COMPACT_PATH,
    COMPACT_PROTOCOL,
    MODELS_PATH,
    PATHS,
    Playback,
    model_list,
    not_found,
)
from dragoman_server.upstream.errors import UpstreamBroken

# The core reads no larger document.
MAX_BODY_BYTES = 64 * 1024 * 1024


class _ClientDisconnected(Exception):
    """The client left before the end of its request."""


@dataclass(slots=True)
class _Counts:
    """Requests so far, as SimulatedUpstream counts them. aborted: the client left before the end of the response."""

    opened: int = 0
    closed: int = 0
    aborted: int = 0


class _Endpoint:
    """Responds to POST requests of one protocol."""

    def __init__(self, protocol: str, counts: _Counts, *, compacts: bool = False) -> None:
        self._protocol = protocol
        self._compacts = compacts
        self._counts = counts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        ended = anyio.Event()
        self._counts.opened += 1
        try:
            await self._respond(scope, receive, send, ended)
        finally:
            self._counts.closed += 1
            self._counts.aborted += not ended.is_set()

    async def _respond(self, scope: Scope, receive: Receive, send: Send, ended: anyio.Event) -> None:
        try:
            body = await _read(receive)
        except _ClientDisconnected:
            return
        if body is None:
            error = WireError(
                ErrorKind.TOO_LARGE, f"the body has more than {MAX_BODY_BYTES} bytes", status=413
            )
            status, content = PROTOCOLS[self._protocol].write_error(error, None)
            ended.set()
            await Response(content, status, media_type="application/json")(scope, receive, send)
            return
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_watch, receive, tasks.cancel_scope)
            await _play(reply_to(self._protocol, body, compacts=self._compacts), send, ended)
            tasks.cancel_scope.cancel()


async def _read(receive: Receive) -> bytes | None:
    """Return the request's body, or None if it is too large. Raises _ClientDisconnected."""
    parts: list[bytes] = []
    size = 0
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise _ClientDisconnected
        size += len(message.get("body", b""))
        if size > MAX_BODY_BYTES:
            return None
        parts.append(message.get("body", b""))
        more = message.get("more_body", False)
    return b"".join(parts)


async def _watch(receive: Receive, scope: anyio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()


async def _play(reply: SimulatedReply, send: Send, ended: anyio.Event) -> None:
    await anyio.sleep(reply.delay_s)
    head = [(name.encode("ascii"), value.encode("ascii")) for name, value in reply.headers]
    await send({"type": "http.response.start", "status": reply.status, "headers": head})
    playback = Playback(reply.chunks)
    body = partial(_body_event, send)
    try:
        while data := await playback.receive():
            await body(data, more=True)
    except UpstreamBroken:
        ended.set()
        return
    # Before it is sent, because servers also report the end of the response as a disconnect.
    ended.set()
    await body(b"", more=False)


async def _body_event(send: Send, data: bytes, *, more: bool) -> None:
    event: Message = {"type": "http.response.body", "body": data, "more_body": more}
    await send(event)


async def _models(request: HTTPRequest) -> Response:
    return Response(
        model_list(anthropic="anthropic-version" in request.headers), media_type="application/json"
    )


async def _not_found(request: HTTPRequest, error: Exception) -> Response:
    status = getattr(error, "status_code", 404)
    return Response(not_found(request.method, request.url.path), status, media_type="application/json")


def create_simulator_app() -> Starlette:
    """Make the application: POST on each protocol's path and to compact a conversation, GET /models, all below /v1 or
    not; GET /stats.
    """
    counts = _Counts()

    async def stats(request: HTTPRequest) -> Response:
        return JSONResponse(asdict(counts))

    endpoints = {path: _Endpoint(protocol, counts) for protocol, path in PATHS.items()}
    endpoints[COMPACT_PATH] = _Endpoint(COMPACT_PROTOCOL, counts, compacts=True)
    routes = [
        Route(prefix + path, endpoint, methods=["POST"])
        for path, endpoint in endpoints.items()
        for prefix in ("", "/v1")
    ]
    routes += [Route(prefix + MODELS_PATH, _models, methods=["GET"]) for prefix in ("", "/v1")]
    routes.append(Route("/stats", stats, methods=["GET"]))
    return Starlette(routes=routes, exception_handlers={404: _not_found, 405: _not_found})
