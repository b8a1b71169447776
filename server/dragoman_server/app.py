"""The ASGI application: endpoints, errors in the right dialect, CORS, lifespan.

Strategy: plain ASGI, so hypercorn, uvicorn and granian can all serve it and any framework can mount it.
Starlette routes and answers preflights; the endpoints themselves talk ASGI, for a stream needs `receive` and
`send` and nothing in between. One upstream client lives as long as the application.
"""

import logging
import time
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

import anyio
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import Message, Receive, Scope, Send

from dragoman import REGISTRY, Fault, FaultKind, ProtocolSpec, RemoteProtocolError, fault_of

from . import __version__
from .catalog import model_list, one_model
from .exchange import ClientExchange, Door, encode_headers, send_reply
from .headers import request_ids
from .log import RequestRecord, log_request
from .plan import make_plan
from .replies import Reply, dialect_of, fault_reply, wants_anthropic
from .request_body import ClientLeft, read_body
from .settings import SIMULATOR, Settings
from .simulator import SimulatedUpstream
from .upstream import UpstreamClient

ERRORS = logging.getLogger("dragoman.errors")

# Seconds for the answer that an internal error still gets, when everything else was cancelled.
_LAST_WORDS_S = 5.0

_INTERNAL_ERROR = Fault(FaultKind.SERVER, "internal error of the gateway; its log has more", status=500)


class Gateway:
    """What lives as long as the application."""

    def __init__(self, settings: Settings, client: UpstreamClient | None = None) -> None:
        self.settings = settings
        self.client = client or UpstreamClient()
        self.simulator = SimulatedUpstream()
        self.ready = False

    def door(self, upstream: str) -> Door:
        """Where requests to the upstream of this name go out."""
        return self.simulator if upstream == SIMULATOR else self.client


class Endpoint:
    """One protocol's endpoint: POST a request, get an answer in the same protocol."""

    def __init__(self, gateway: Gateway, protocol: ProtocolSpec) -> None:
        self._gateway = gateway
        self._protocol = protocol

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        record = RequestRecord(id=uuid.uuid4().hex, protocol=self._protocol.name, path=scope["path"])
        begun = anyio.current_time()
        out = Outgoing(send)
        try:
            await self._answer(scope, receive, out, record)
        except ClientLeft:
            record.outcome = "client_left"
        except Exception:  # alone, or in the group of the exchange's tasks
            if out.broken:
                record.outcome = "client_left"
                return
            record.outcome, record.error = "failed", "internal error"
            ERRORS.exception("request %s failed", record.id)
            if out.started:
                raise  # the server then closes the connection without a proper end, which is the honest signal
            with anyio.move_on_after(_LAST_WORDS_S, shield=True), suppress(OSError):
                await self._refuse(out, _INTERNAL_ERROR, record)
        finally:
            record.duration_s = anyio.current_time() - begun
            if record.outcome == "open":
                record.outcome = "cancelled"
            log_request(record)

    async def _answer(self, scope: Scope, receive: Receive, send: Send, record: RequestRecord) -> None:
        settings = self._gateway.settings
        headers = _flat(Headers(scope=scope))
        query = scope.get("query_string", b"").decode("latin-1")
        try:
            body = await read_body(
                receive,
                headers.get("content-encoding", ""),
                headers.get("content-length", ""),
                settings.server.max_body_bytes,
            )
            plan = make_plan(
                settings, self._protocol, headers, query, body, id=record.id, now=int(time.time())
            )
        except RemoteProtocolError as error:
            record.outcome, record.error = "refused", error.message
            await self._refuse(send, fault_of(error), record)
            return
        record.model = plan.translated.request.model
        record.stream = plan.streams
        record.upstream = plan.settings.name
        record.upstream_protocol = plan.upstream.name
        record.upstream_model = plan.upstream_model
        exchange = ClientExchange(
            plan,
            self._gateway.door(plan.settings.name),
            receive,
            send,
            record,
            keepalive_s=settings.server.keepalive_s,
            http1=scope.get("http_version", "1.1").startswith("1"),
        )
        await exchange.run()

    async def _refuse(self, send: Send, fault: Fault, record: RequestRecord) -> None:
        reply = fault_reply(self._protocol, fault, record.id, request_ids((), record.id))
        record.status = reply.status
        await send_reply(send, reply)


class Outgoing:
    """`send`, and what became of it.

    started: a response has begun, or is about to.
    broken: "the server SHOULD raise an OSError when send is called after the client has gone" -- ASGI 2.4
    """

    __slots__ = ("_send", "broken", "started")

    def __init__(self, send: Send) -> None:
        self._send = send
        self.started = False
        self.broken = False

    async def __call__(self, message: Message) -> None:
        self.started = True
        try:
            await self._send(message)
        except OSError:
            self.broken = True
            raise


class Application:
    """The gateway as an ASGI application.

    An application that it is mounted in must enter `lifespan()` in its own lifespan, for servers tell only the
    outermost one of startup and shutdown.
    """

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        app = Starlette(
            routes=_routes(gateway),
            exception_handlers={HTTPException: _http_error, Exception: _internal_error},
            lifespan=lambda app: self.lifespan(),
        )
        # A redirect would be built from the Host header, which is the client's word.
        app.router.redirect_slashes = False
        # Around all of Starlette, so that the answer to an internal error can be read by a browser as well.
        self._app = CORSMiddleware(
            app,
            allow_origins=gateway.settings.server.cors_origins,
            allow_methods=["GET", "POST", "PUT", "DELETE", "OPTIONS"],
            # "*" covers all headers but Authorization, so the request's own list is echoed.
            allow_headers=["*"],
            expose_headers=["*"],
            max_age=86_400,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await _refuse_websocket(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """The time in which requests can be served: upstream connections live as long as this block."""
        async with self._gateway.client:
            self._gateway.ready = True
            try:
                yield
            finally:
                self._gateway.ready = False


def create_app(settings: Settings, *, client: UpstreamClient | None = None) -> Application:
    """The gateway as an ASGI application.

    Args:
        settings: from `config.load`, or made by hand.
        client: how upstreams are reached; by default one of the application's own. Either way the application
            opens it at startup and closes it at shutdown, so it needs a server that speaks lifespan.
    """
    return Application(Gateway(settings, client))


def _routes(gateway: Gateway) -> list[BaseRoute]:
    async def models(request: Request) -> Response:
        return JSONResponse(model_list(gateway.settings, wants_anthropic(request.headers)))

    async def model(request: Request) -> Response:
        name = request.path_params["model"]
        found = one_model(gateway.settings, name, wants_anthropic(request.headers))
        if found is None:
            raise HTTPException(404, f"the model {name[:100]!a} is not listed here")
        return JSONResponse(found)

    async def root(request: Request) -> Response:
        # Claude Code asks for this before its first request, to see whether somebody is there.
        endpoints = [f"POST {spec.client_path}" for spec in REGISTRY.values()]
        return JSONResponse({"name": "dragoman", "version": __version__, "endpoints": endpoints})

    async def healthz(request: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def readyz(request: Request) -> Response:
        settings = gateway.settings
        usable = gateway.ready and bool(settings.upstreams or settings.server.simulator)
        return JSONResponse({"status": "ready" if usable else "not ready"}, 200 if usable else 503)

    endpoints: list[BaseRoute] = [
        Route(spec.client_path, Endpoint(gateway, spec), methods=["POST"]) for spec in REGISTRY.values()
    ]
    return [
        *endpoints,
        Route("/v1/models", models),
        Route("/v1/models/{model:path}", model),
        Route("/healthz", healthz),
        Route("/readyz", readyz),
        Route("/", root),
    ]


async def _http_error(request: Request, error: Exception) -> Response:
    """404 and 405 and their kin."""
    assert isinstance(error, HTTPException)
    headers = error.headers or {}
    message = error.detail
    if error.status_code == 404 and message == "Not Found":
        known = ", ".join(f"POST {each.client_path}" for each in REGISTRY.values())
        message = f"there is nothing at this path; this gateway serves {known} and GET /v1/models"
    elif error.status_code == 405:
        message = f"{request.method[:20]} is not allowed here; allowed: {headers.get('Allow', 'POST')}"
    return _response(_refusal(request.scope, request.headers, error.status_code, message), headers)


async def _internal_error(request: Request, error: Exception) -> Response:
    """What a bug outside of the endpoints gives. The server logs the error itself, for it is raised again."""
    request_id = uuid.uuid4().hex
    spec = dialect_of(_path(request.scope), request.headers)
    return _response(fault_reply(spec, _INTERNAL_ERROR, request_id, request_ids((), request_id)), {})


def _refusal(scope: Scope, headers: Mapping[str, str], status: int, message: str) -> Reply:
    """An error where no endpoint answers, in the dialect of the path that was asked, and its log line."""
    fault = fault_of(RemoteProtocolError(message, status_hint=status))
    spec = dialect_of(_path(scope), headers)
    record = RequestRecord(id=uuid.uuid4().hex, protocol=spec.name, path=scope["path"], outcome="refused")
    reply = fault_reply(spec, fault, record.id, request_ids((), record.id))
    record.status, record.error = status, message
    log_request(record)
    # The status speaks of HTTP itself here, so a protocol's own table of them does not count.
    return replace(reply, status=status)


def _response(reply: Reply, headers: Mapping[str, str]) -> Response:
    return Response(reply.body, reply.status, {**dict(reply.headers), **headers})


def _path(scope: Scope) -> str:
    """The path without what the application is mounted under."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", ""))


def _flat(headers: Headers) -> dict[str, str]:
    """Lower-case names; of a repeated header the values joined, as HTTP allows."""
    flat: dict[str, str] = {}
    for name, value in headers.items():
        flat[name] = f"{flat[name]}, {value}" if name in flat else value
    return flat


async def _refuse_websocket(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a WebSocket handshake with 426, which makes Codex fall back to plain HTTP at once."""
    await receive()  # websocket.connect
    message = "this gateway does not speak WebSocket; use HTTP POST"
    reply = _refusal(scope, Headers(scope=scope), 426, message)
    if "websocket.http.response" not in scope.get("extensions", {}):
        await send({"type": "websocket.close", "code": 1008})  # before an accept: the server answers 403
        return
    headers = encode_headers([*reply.headers, ("content-length", str(len(reply.body)))])
    await send({"type": "websocket.http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "websocket.http.response.body", "body": reply.body, "more_body": False})
