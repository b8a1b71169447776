"""The ASGI application: its routes, CORS, and lifespan.

It is plain ASGI, so hypercorn, uvicorn and granian can all serve it and any framework can mount it. Starlette routes
requests and responds to preflights; the endpoints themselves use ASGI, because a stream needs `receive` and `send` with
nothing in between. One upstream client lives as long as the application.
"""

from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import asynccontextmanager

from starlette.applications import Starlette
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
from dragoman_server.headers import JSON_HEADERS
from dragoman_server.http.admin import admin_app, is_admin_path
from dragoman_server.http.auth import HTTP_METHODS, KeyAuthMiddleware, Keyring, key_headers
from dragoman_server.http.browsers import LOOPBACK_ORIGIN_PATTERN, BrowserProtection
from dragoman_server.http.count_tokens import counting_routes
from dragoman_server.http.endpoint import ProtocolEndpoint
from dragoman_server.http.errors import FallbackErrors, as_starlette, endpoint_names
from dragoman_server.http.models import models_routes
from dragoman_server.http.request import path_below_mount
from dragoman_server.http.responses import ResponsesEndpoint, responses_routes
from dragoman_server.recordings.recorder import Recorder
from dragoman_server.replies import Reply
from dragoman_server.settings import Settings
from dragoman_server.settings.server import LOOPBACK_ORIGINS
from dragoman_server.upstream.client import UpstreamClient


class Application:
    """The gateway as an ASGI application.

    An application that mounts it must enter `lifespan()` in its own lifespan, because servers send startup and shutdown
    to the outermost application only.
    """

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._errors = FallbackErrors(gateway.protocols, gateway.client_addresses)
        handlers = {HTTPException: self._errors.http_error, Exception: self._errors.internal_error}
        routes = _routes(gateway)
        app = Starlette(routes=routes, exception_handlers=handlers, lifespan=lambda app: self.lifespan())
        endpoints: dict[str, ProtocolEndpoint] = {
            each.path: each.endpoint
            for each in reversed(routes)
            if isinstance(each, Route) and isinstance(each.endpoint, ProtocolEndpoint)
        }

        def route(scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
            # Starlette finds the same endpoints, but calls them through seven layers.
            is_post = scope["type"] == "http" and scope["method"] == "POST"
            return (endpoints.get(path_below_mount(scope), app) if is_post else app)(scope, receive, send)

        recorded: ASGIApp = route
        if gateway.settings.server.record is not None:
            paths = {path: each.protocol.name for path, each in endpoints.items()}
            recorded = Recorder(route, gateway.settings, paths, gateway.settings.server.record)

        # Beside everything that is for clients: no CORS headers, and another key.
        self._admin = admin_app(gateway.settings, gateway.accounts, self._errors.refuse, handlers)
        # A redirect would be built from the Host header, which the client chooses.
        app.router.redirect_slashes = False
        keyring = Keyring(
            gateway.settings.client_keys,
            gateway.settings.server.secret,
            key_headers(gateway.protocols.values()),
        )
        # Around all of Starlette, so that a browser can read the response to an internal error as well.
        # Preflights cannot carry a key, so they get their response before a key is required.
        server = gateway.settings.server
        origins = set(server.cors_origins)
        self._app = CORSMiddleware(
            KeyAuthMiddleware(recorded, keyring, self._errors.refuse),
            allow_origins=origins - {LOOPBACK_ORIGINS},
            allow_origin_regex=LOOPBACK_ORIGIN_PATTERN if LOOPBACK_ORIGINS in origins else None,
            # The network that a page was loaded from does not decide if the page is allowed.
            allow_private_network=True,
            allow_methods=HTTP_METHODS,
            # "*" covers all headers but Authorization, so the request's own list is echoed.
            allow_headers=["*"],
            expose_headers=["*"],
            max_age=86_400,
        )
        self._browsers = BrowserProtection(
            server, keyless=not keyring, allows_origin=self._app.is_allowed_origin
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
                # With this status Codex falls back to plain HTTP at once.
                raise RequestRefused("this gateway does not speak WebSocket; use HTTP POST", status=426)
        except (RemoteProtocolError, RequestRefused) as error:
            await self._errors.refuse(scope, error, send)
            return
        await (self._admin if is_admin_path(path_below_mount(scope)) else self._app)(scope, receive, send)

    def refusal(self, scope: Scope, error: RemoteProtocolError | RequestRefused) -> Reply:
        """Return the response to a request that the server itself refuses, and log it. See serving/refusals.py."""
        return self._errors.refusal(scope, error)

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """Serve requests inside of this block: upstream connections live as long as it does."""
        async with self._gateway.running():
            yield


def create_app(
    settings: Settings,
    *,
    client: UpstreamClient | None = None,
    protocols: Mapping[str, ProtocolSpec] = PROTOCOLS,
) -> Application:
    """Return the gateway as an ASGI application.

    Args:
        settings: from `config.loader.load`, or made by hand.
        client: how upstreams are reached; by default one of the application's own. Either way the application
            opens it at startup and closes it at shutdown, so it needs a server that speaks lifespan.
        protocols: those that are served, by name. Pass a protocol of your own here beside those of PROTOCOLS, and
            to `config.loader.load` as well if the file names it. Errors at paths of no protocol have the form of the
            first one.

    Raises ValueError for an upstream that speaks none of them, and for client keys without a secret.
    """
    return Application(Gateway(settings, client, protocols))


def _routes(gateway: Gateway) -> list[BaseRoute]:
    def constant(path: str, value: JSONObject) -> Route:
        async def endpoint(request: Request) -> Response:
            return _json(value)

        return Route(path, endpoint)

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
    names = list(endpoint_names(gateway.protocols))
    return [
        *endpoints,
        *counting_routes(gateway),
        *responses_routes(gateway),
        *models_routes(gateway),
        constant("/healthz", {"status": "ok", "name": "dragoman"}),
        Route("/readyz", readyz),
        # Claude Code opens its connection with these, and tests with them if the server is up.
        constant("/api/hello", {"message": "hello"}),
        constant("/", {"name": "dragoman", "version": __version__, "endpoints": names}),
    ]


def _json(value: JSONObject, status: int = 200) -> Response:
    return as_starlette(Reply(status, JSON_HEADERS, encode(value)), {})
