"""The ASGI application: endpoints, errors in the right dialect, CORS, lifespan.

Strategy: plain ASGI, so hypercorn, uvicorn and granian can all serve it and any framework can mount it.
Starlette routes and answers preflights; the endpoints themselves talk ASGI, for a stream needs `receive` and
`send` and nothing in between. One upstream client lives as long as the application.
"""

import logging
import time
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import anyio
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from dragoman import REGISTRY, Fault, FaultKind, ProtocolSpec, RemoteProtocolError, fault_of

from .catalog import model_list, one_model
from .exchange import ClientExchange, Door, send_reply
from .headers import request_ids
from .log import RequestRecord, log_request
from .plan import make_plan
from .replies import Reply, dialect_of, fault_reply
from .request_body import ClientLeft, read_body
from .settings import SIMULATOR, Settings
from .simulator import SimulatedUpstream
from .upstream import UpstreamClient

ERRORS = logging.getLogger("dragoman.errors")

# Seconds for the answer that an internal error still gets, when everything else was cancelled.
_LAST_WORDS_S = 5.0


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
        request_id = uuid.uuid4().hex
        record = RequestRecord(id=request_id, protocol=self._protocol.name, path=scope["path"])
        begun = anyio.current_time()
        started = Started(send)
        try:
            await self._answer(scope, receive, started.send, record)
        except ClientLeft:
            record.outcome = "client_left"
        except RemoteProtocolError as error:
            record.outcome, record.error = "refused", error.message
            reply = fault_reply(self._protocol, fault_of(error), request_id, request_ids((), request_id))
            record.status = reply.status
            await send_reply(started.send, reply)
        except Exception:
            record.outcome, record.error = "failed", "internal error"
            ERRORS.exception("request %s failed", request_id)
            if started.yes:
                raise  # the server then closes the connection without a proper end, which is the honest signal
            await self._apologise(send, request_id)
        finally:
            record.duration_s = anyio.current_time() - begun
            if record.outcome == "open":
                record.outcome = "cancelled"
            log_request(record)

    async def _answer(self, scope: Scope, receive: Receive, send: Send, record: RequestRecord) -> None:
        settings = self._gateway.settings
        headers = Headers(scope=scope)
        body = await read_body(
            receive,
            headers.get("content-encoding", ""),
            headers.get("content-length", ""),
            settings.server.max_body_bytes,
        )
        query = scope.get("query_string", b"").decode("latin-1")
        plan = make_plan(
            settings, self._protocol, _flat(headers), query, body, id=record.id, now=int(time.time())
        )
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

    async def _apologise(self, send: Send, request_id: str) -> None:
        fault = Fault(
            FaultKind.SERVER,
            f"internal error of the gateway; its log has more under {request_id}",
            status=500,
        )
        with anyio.move_on_after(_LAST_WORDS_S, shield=True):
            await send_reply(
                send, fault_reply(self._protocol, fault, request_id, request_ids((), request_id))
            )


class Started:
    """Knows whether a response has begun."""

    __slots__ = ("_send", "yes")

    def __init__(self, send: Send) -> None:
        self._send = send
        self.yes = False

    @property
    def send(self) -> Send:
        async def first(message: object) -> None:
            self.yes = True
            await self._send(message)  # type: ignore[arg-type]

        return first


def create_app(settings: Settings, *, client: UpstreamClient | None = None) -> ASGIApp:
    """The gateway as an ASGI application.

    Args:
        settings: from `load_settings`, or made by hand.
        client: how upstreams are reached; by default one of the application's own. Either way the application
            opens it at startup and closes it at shutdown, so it needs a server that speaks lifespan.
    """
    gateway = Gateway(settings, client)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with gateway.client:
            gateway.ready = True
            try:
                yield
            finally:
                gateway.ready = False

    app = Starlette(
        routes=_routes(gateway),
        exception_handlers={HTTPException: _http_error},
        lifespan=lifespan,
    )
    app.add_middleware(
        CORSMiddleware,
        allow_origins=settings.server.cors_origins,
        allow_methods=["GET", "POST", "PUT", "DELETE", "OPTIONS"],
        # "*" covers all headers but Authorization, so the request's own list is echoed.
        allow_headers=["*"],
        expose_headers=["*"],
        max_age=86_400,
    )
    return WebSocketRefusal(app)


def _routes(gateway: Gateway) -> list[BaseRoute]:
    async def models(request: Request) -> Response:
        return JSONResponse(model_list(gateway.settings, _wants_anthropic(request.headers)))

    async def model(request: Request) -> Response:
        name = request.path_params["model"]
        found = one_model(gateway.settings, name, _wants_anthropic(request.headers))
        if found is None:
            raise HTTPException(404, f"the model {name[:100]!a} is not listed here")
        return JSONResponse(found)

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
    ]


async def _http_error(request: Request, error: Exception) -> Response:
    """404 and 405 and their kin, in the dialect of the path that was asked."""
    assert isinstance(error, HTTPException)
    path = request.scope["path"]
    request_id = uuid.uuid4().hex
    if _wants_anthropic(request.headers):
        spec = REGISTRY["anthropic_messages"]
    else:
        spec = dialect_of(path)
    message = error.detail
    if error.status_code == 404 and message == "Not Found":
        known = ", ".join(f"POST {each.client_path}" for each in REGISTRY.values())
        message = f"there is nothing at this path; this gateway serves {known} and GET /v1/models"
    elif error.status_code == 405:
        message = (
            f"{request.method} is not allowed here; allowed: {(error.headers or {}).get('Allow', 'POST')}"
        )
    fault = fault_of(RemoteProtocolError(message, status_hint=error.status_code))
    reply = fault_reply(spec, fault, request_id, request_ids((), request_id))
    return _response(reply, error.headers)


def _response(reply: Reply, headers: Mapping[str, str] | None) -> Response:
    return Response(reply.body, reply.status, {**dict(reply.headers), **(headers or {})})


def _wants_anthropic(headers: Mapping[str, str]) -> bool:
    """Anthropic's clients always send their version; others never do."""
    return "anthropic-version" in headers


def _flat(headers: Headers) -> dict[str, str]:
    """Lower-case names; of a repeated header the values joined, as HTTP allows."""
    flat: dict[str, str] = {}
    for name, value in headers.items():
        flat[name] = f"{flat[name]}, {value}" if name in flat else value
    return flat


class WebSocketRefusal:
    """Answers a WebSocket handshake with 426, which makes Codex fall back to plain HTTP at once."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "websocket":
            await self._app(scope, receive, send)
            return
        await receive()  # websocket.connect
        if "websocket.http.response" not in scope.get("extensions", {}):
            await send({"type": "websocket.close", "code": 1008})
            return
        request_id = uuid.uuid4().hex
        fault = Fault(
            FaultKind.INVALID_REQUEST, "this gateway does not speak WebSocket; use HTTP POST", status=426
        )
        reply = fault_reply(dialect_of(scope["path"]), fault, request_id, request_ids((), request_id))
        headers = [*reply.headers, ("content-length", str(len(reply.body)))]
        start = {"status": 426, "headers": [(name.encode(), value.encode()) for name, value in headers]}
        await send({"type": "websocket.http.response.start", **start})
        await send({"type": "websocket.http.response.body", "body": reply.body, "more_body": False})
