"""The ASGI application: endpoints, errors in the right dialect, CORS, lifespan.

Strategy: plain ASGI, so hypercorn, uvicorn and granian can all serve it and any framework can mount it.
Starlette routes and answers preflights; the endpoints themselves talk ASGI, for a stream needs `receive` and
`send` and nothing in between. One upstream client lives as long as the application.
"""

import uuid
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from dragoman import PROTOCOLS, RemoteProtocolError, RequestRefused
from dragoman.codec import ProtocolSpec
from dragoman.jsontext import JSONObject, encode
from dragoman_server import __version__
from dragoman_server.gateway import Gateway
from dragoman_server.headers import BROWSER_HEADERS, JSON_HEADERS, request_id_headers
from dragoman_server.http.admin import admin_app, is_admin_path
from dragoman_server.http.browsers import LOOPBACK_ORIGIN_PATTERN, BrowserProtection, refuse_form_content_type
from dragoman_server.http.count_tokens import counting_routes
from dragoman_server.http.endpoint import INTERNAL_ERROR, ProtocolEndpoint
from dragoman_server.http.models import models_routes
from dragoman_server.http.responses import ResponsesEndpoint, responses_routes
from dragoman_server.keys import SCOPE_KEY, Keyring
from dragoman_server.log import RequestRecord, log_request
from dragoman_server.replies import (
    MODELS_PATH,
    Reply,
    error_reply,
    protocol_for_path,
    send_reply,
    suggest_base_url,
)
from dragoman_server.settings import LOOPBACK_ORIGINS, Settings
from dragoman_server.upstream.client import UpstreamClient


class Application:
    """The gateway as an ASGI application.

    An application that it is mounted in must enter `lifespan()` in its own lifespan, for servers tell only the
    outermost one of startup and shutdown.
    """

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._elsewhere = FallbackErrors(gateway.protocols)
        handlers = {HTTPException: self._elsewhere.http_error, Exception: self._elsewhere.internal_error}
        app = Starlette(
            routes=_routes(gateway), exception_handlers=handlers, lifespan=lambda app: self.lifespan()
        )
        # Beside all that is for clients: no CORS headers, and another key.
        self._admin = admin_app(gateway.settings, gateway.accounts, self._elsewhere.refuse, handlers)
        # A redirect would be built from the Host header, which is the client's word.
        app.router.redirect_slashes = False
        # Around all of Starlette, so that the answer to an internal error can be read by a browser as well.
        # Preflights cannot carry a key, and are answered before anybody asks for one.
        server = gateway.settings.server
        origins = set(server.cors_origins)
        self._app = CORSMiddleware(
            KeyAuthMiddleware(app, gateway.keyring, self._elsewhere),
            allow_origins=origins - {LOOPBACK_ORIGINS},
            allow_origin_regex=LOOPBACK_ORIGIN_PATTERN if LOOPBACK_ORIGINS in origins else None,
            # Whether a page is allowed does not depend on the network that it was loaded from.
            allow_private_network=True,
            allow_methods=_METHODS,
            # "*" covers all headers but Authorization, so the request's own list is echoed.
            allow_headers=["*"],
            expose_headers=["*"],
            max_age=86_400,
        )
        self._browsers = BrowserProtection(
            server, keyless=not gateway.keyring, allows_origin=self._app.is_allowed_origin
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] == "websocket":
            await receive()  # websocket.connect
        try:
            self._browsers.check(scope["headers"])
            if scope["type"] == "websocket":
                # By this status Codex falls back to plain HTTP at once.
                raise RemoteProtocolError("this gateway does not speak WebSocket; use HTTP POST", status=426)
        except (RemoteProtocolError, RequestRefused) as error:
            await self._elsewhere.refuse(scope, error, send)
            return
        await (self._admin if is_admin_path(_path(scope)) else self._app)(scope, receive, send)

    def refusal(self, scope: Scope, error: RemoteProtocolError | RequestRefused) -> Reply:
        """Log a request that the server itself refuses, and make the answer. See serving/refusals.py."""
        return self._elsewhere.refusal(scope, error)

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """The time in which requests can be served: upstream connections live as long as this block."""
        async with self._gateway.running():
            yield


def create_app(
    settings: Settings,
    *,
    client: UpstreamClient | None = None,
    protocols: Mapping[str, ProtocolSpec] = PROTOCOLS,
) -> Application:
    """The gateway as an ASGI application.

    Args:
        settings: from `config.loader.load`, or made by hand.
        client: how upstreams are reached; by default one of the application's own. Either way the application
            opens it at startup and closes it at shutdown, so it needs a server that speaks lifespan.
        protocols: those that are served, by name. A protocol of your own goes in here beside the REGISTRY's, and into
            `config.loader.load` as well if the file names it. Errors at paths of no protocol have the form of the
            first one.

    Raises ValueError for an upstream that speaks none of them.
    """
    return Application(Gateway(settings, client, protocols))


class KeyAuthMiddleware:
    """Lets requests with a client key pass, where keys are configured, and says in the scope whose key it is."""

    def __init__(self, app: ASGIApp, keyring: Keyring, elsewhere: "FallbackErrors") -> None:
        self._app = app
        self._keyring = keyring
        self._elsewhere = elsewhere

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "OPTIONS":
            # Clients and monitors look with it whether somebody is there. It tells nothing, so it needs no key.
            await send_reply(send, Reply(200, [("allow", ", ".join(_METHODS))], b""))
            return
        if scope["type"] == "http" and _path(scope) not in _OPEN_PATHS:
            try:
                if not self._keyring:
                    refuse_form_content_type(scope["headers"])
                key = self._keyring.authenticate(scope["headers"])
            except (RemoteProtocolError, RequestRefused) as error:
                await self._elsewhere.refuse(scope, error, send)
                return
            scope = {**scope, SCOPE_KEY: key}
        await self._app(scope, receive, send)


# What tells nothing but that the gateway lives. Everything else needs a key, whatever is added later.
_OPEN_PATHS = frozenset({"/healthz", "/readyz", "/api/hello"})

_METHODS = ("GET", "POST", "PUT", "DELETE", "OPTIONS")


def _routes(gateway: Gateway) -> list[BaseRoute]:
    async def root(request: Request) -> Response:
        # Claude Code asks for this before its first request, to see whether somebody is there.
        endpoints = list(_endpoints(gateway.protocols))
        return _json({"name": "dragoman", "version": __version__, "endpoints": endpoints})

    async def healthz(request: Request) -> Response:
        return _json({"status": "ok"})

    async def hello(request: Request) -> Response:
        # Claude Code opens its connection with this, and tests with it whether the network lets it through.
        return _json({"message": "hello"})

    async def readyz(request: Request) -> Response:
        settings = gateway.settings
        usable = gateway.ready and bool(settings.upstreams or settings.server.offers_simulator)
        return _json({"status": "ready" if usable else "not ready"}, 200 if usable else 503)

    endpoints: list[BaseRoute] = [
        Route(
            endpoint.path,
            (ResponsesEndpoint if spec.stored_responses else ProtocolEndpoint)(gateway, spec, endpoint),
            methods=["POST"],
        )
        for spec in gateway.protocols.values()
        for endpoint in spec.endpoints
    ]
    return [
        *endpoints,
        *counting_routes(gateway),
        *responses_routes(gateway),
        *models_routes(gateway),
        Route("/healthz", healthz),
        Route("/readyz", readyz),
        Route("/api/hello", hello),
        Route("/", root),
    ]


def _endpoints(protocols: Mapping[str, ProtocolSpec]) -> Iterator[str]:
    """Where requests may go, for people."""
    return (f"POST {endpoint.path}" for spec in protocols.values() for endpoint in spec.endpoints)


class FallbackErrors:
    """Errors where no endpoint answers, in the dialect of the path that was asked."""

    def __init__(self, protocols: Mapping[str, ProtocolSpec]) -> None:
        self._protocols = protocols

    async def http_error(self, request: Request, error: Exception) -> Response:
        """404 and 405 and their kin."""
        assert isinstance(error, HTTPException)
        headers = error.headers or {}
        message, code = error.detail, None
        if error.status_code == 404 and message == "Not Found":
            message, code = f"there is nothing at this path; {self._elsewhere(request)}", "unknown_url"
        elif error.status_code == 405:
            message = f"{request.method[:20]} is not allowed here; allowed: {headers.get('Allow', 'POST')}"
        refusal = RemoteProtocolError(message, status=error.status_code, code=code)
        reply = self.refusal(request.scope, refusal)
        return _response(reply, headers)

    def _elsewhere(self, request: Request) -> str:
        """Where a request to a wrong path should have gone."""
        meant = suggest_base_url(_path(request.scope), self._protocols)
        if meant is None:
            return f"this gateway serves {', '.join(_endpoints(self._protocols))} and GET {MODELS_PATH}"
        base, rest = meant
        url = request.base_url  # from the Host header: it is what the client calls us
        root = f"{url.scheme}://{url.netloc}{request.scope.get('root_path', '')}"
        return f"the base URL for a client that adds {rest} is {ascii(root)[1:-1][:200]}{base}"

    async def internal_error(self, request: Request, error: Exception) -> Response:
        """What a bug outside of the endpoints gives. The server logs the error itself, for it is raised again."""
        request_id = uuid.uuid4().hex
        spec = protocol_for_path(_path(request.scope), request.headers, self._protocols)
        return _response(
            error_reply(spec, INTERNAL_ERROR, request_id, request_id_headers((), request_id)), {}
        )

    async def refuse(self, scope: Scope, error: RemoteProtocolError | RequestRefused, send: Send) -> None:
        """Answer a request that comes no further than the gate."""
        reply = self.refusal(scope, error)
        if error.status == 401:
            # "The server generating a 401 response MUST send a WWW-Authenticate header field" -- RFC 9110, 15.5.2
            reply = replace(reply, headers=[*reply.headers, ("www-authenticate", "Bearer")])
        if scope["type"] != "websocket":
            await send_reply(send, reply)
        elif "websocket.http.response" in scope.get("extensions", {}):
            await send_reply(send, reply, message="websocket.http.response")
        else:
            await send({"type": "websocket.close", "code": 1008})  # before an accept: the server answers 403

    def refusal(self, scope: Scope, error: RemoteProtocolError | RequestRefused) -> Reply:
        """Log the refused request, and make the answer."""
        status = error.status
        spec = protocol_for_path(_path(scope), Headers(scope=scope), self._protocols)
        record = RequestRecord(id=uuid.uuid4().hex, protocol=spec.name, path=scope["path"], outcome="refused")
        reply = error_reply(spec, error.as_wire_error(), record.id, request_id_headers((), record.id))
        record.status, record.error = status, error.message
        log_request(record)
        # The status speaks of HTTP itself here, so a protocol's own table of them does not count.
        return replace(reply, status=status)


def _response(reply: Reply, headers: Mapping[str, str]) -> Response:
    return Response(reply.body, reply.status, {**dict(reply.headers), **dict(BROWSER_HEADERS), **headers})


def _json(value: JSONObject, status: int = 200) -> Response:
    return _response(Reply(status, JSON_HEADERS, encode(value)), {})


def _path(scope: Scope) -> str:
    """The path without what the application is mounted under."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", ""))
