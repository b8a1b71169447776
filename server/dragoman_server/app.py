"""The ASGI application: its routes, CORS, and lifespan.

It is plain ASGI, so hypercorn, uvicorn and granian can all serve it and any framework can mount it. Starlette routes
requests and responds to preflights; the endpoints themselves use ASGI, because a stream needs `receive` and `send` with
nothing in between. One upstream client lives as long as the application. A reload is one assignment: the next request
finds another configuration, with its own routes and keys; those that are open go on with theirs.
"""

import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, Literal

import anyio
import msgspec
from anyio.abc import TaskStatus
from msgspec import UNSET, UnsetType
from msgspec.structs import replace
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dragoman import PROTOCOLS, RemoteProtocolError, RequestRefused
from dragoman.codec import MODEL_IN_PATH, Endpoint, ProtocolSpec
from dragoman.jsontext import encode
from dragoman_server import __version__
from dragoman_server.config.reload import Reload, ReloadResult
from dragoman_server.gateway import Gateway
from dragoman_server.http.admin.app import admin_app, operator_routes
from dragoman_server.http.auth import (
    HEALTHZ_PATH,
    HELLO_PATH,
    HTTP_METHODS,
    READYZ_PATH,
    KeyAuthMiddleware,
    Keyring,
    is_admin_path,
    key_places,
)
from dragoman_server.http.browsers import LOOPBACK_ORIGIN_PATTERN, BrowserProtection
from dragoman_server.http.cloud_paths import enter
from dragoman_server.http.count_tokens import counting_routes
from dragoman_server.http.endpoint import BaseEndpoint, ProtocolEndpoint, post_route, protocol_operation
from dragoman_server.http.errors import FallbackErrors, allowed_methods, as_starlette, endpoint_names
from dragoman_server.http.models import models_routes
from dragoman_server.http.openapi import description_routes
from dragoman_server.http.operations import ApiOperation, DescribedRoute
from dragoman_server.http.relayed import relayed_routes
from dragoman_server.http.responses import ResponsesEndpoint, responses_routes
from dragoman_server.http.usage import usage_routes
from dragoman_server.platform.task_group import BackgroundTaskGroup
from dragoman_server.proxying.client_request import (
    SCOPE_PAGE,
    SCOPE_TURN,
    ClientDisconnected,
    path_below_mount,
)
from dragoman_server.relayed.table import why_not_served
from dragoman_server.settings import Settings
from dragoman_server.settings.server import LOOPBACK_ORIGINS
from dragoman_server.upstream.client import UpstreamClient
from dragoman_server.wire.headers import JSON_HEADERS
from dragoman_server.wire.replies import Reply

_log = logging.getLogger("dragoman.accounts")


class _ConfiguredApp:
    """The application by one configuration: its gateway, its routes, and the checks before them.

    It never changes; a reload makes another one, for the requests that begin from then on.

    Attributes:
        gateway: What its endpoints use.
        app, admin: The applications for clients and for the operator.
        browsers: Checks requests for both.
        errors: The errors of paths without an endpoint.
        keyring: The client keys.
        requests: How many are open.
        replaced: Another one has taken its place.
        unused: Set then, once none of its requests is open.
    """

    __slots__ = ("admin", "app", "browsers", "errors", "gateway", "keyring", "replaced", "requests", "unused")

    def __init__(self, gateway: Gateway, parent: "Application") -> None:
        self.gateway = gateway
        self.errors = errors = FallbackErrors(gateway)
        self.requests = 0
        self.replaced = False
        self.unused = anyio.Event()
        server, client_keys = gateway.settings.server, gateway.settings.client_keys
        places = key_places(gateway.protocols.values())
        groups, aws_keys = gateway.settings.groups_by_name, gateway.settings.aws_keys
        self.keyring = keyring = Keyring(
            client_keys, server.secret, places, gateway.stored_keys, groups, aws_keys
        )
        handlers = {
            HTTPException: errors.http_error,
            RemoteProtocolError: errors.refused,
            RequestRefused: errors.refused,
            ClientDisconnected: errors.client_left,
            Exception: errors.internal_error,
        }
        # Beside everything that is for clients: no CORS headers, and another key.
        operator = operator_routes(gateway, parent.reload_configuration, errors.refuse)
        self.admin = admin_app(gateway, operator, errors.refuse, handlers)
        routes = _routes(gateway, parent.is_ready, operator)
        # Around all of Starlette, so that a browser can read the response to an internal error as well.
        # Preflights cannot carry a key, so they get their response before a key is required.
        origins = set(server.cors_origins)
        cors = _CORS(
            KeyAuthMiddleware(
                _recorded(_router(routes, handlers, parent, gateway), gateway),
                keyring,
                server,
                errors.refuse,
                partial(allowed_methods, routes),
            ),
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
        self.app = _for_pages(cors)
        self.browsers = BrowserProtection(server, keyless=not keyring, allows_origin=cors.is_allowed_origin)

    def protocol_of_handshake(self, scope: Scope) -> ProtocolSpec:
        """Return the protocol that is served over a WebSocket. Raises RequestRefused if there is none, or not for this
        client.
        """
        self.browsers.check(scope["headers"], scope["scheme"], handshake=True)
        path = path_below_mount(scope)
        found = [
            spec
            for spec in self.gateway.protocols.values()
            if spec.websocket is not None and spec.websocket.endpoint.match(path) is not None
        ]
        if (reason := why_not_served(path)) is not None:
            raise RequestRefused(reason, status=404, code="unknown_url")
        if not (found and self.gateway.settings.server.websocket):
            # With this status Codex falls back to plain HTTP immediately.
            raise RequestRefused("this gateway does not speak WebSocket here; use HTTP POST", status=426)
        self.keyring.authenticate(scope["headers"], time.time(), scope["query_string"])
        return found[0]


class _CORS(CORSMiddleware):
    def preflight_response(self, request_headers: Headers) -> Response:
        """Return headers alone, which the browser enforces. BrowserProtection has refused foreign origins."""
        headers = super().preflight_response(request_headers).headers
        return Response(
            status_code=204, headers={k: v for k, v in headers.items() if not k.startswith("content-")}
        )


def _for_pages(cors: CORSMiddleware) -> ASGIApp:
    """Return what does the same, but calls what is behind it directly for requests without Origin, as programs send
    them.
    """

    def call(scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope["type"] != "http" or scope.get(SCOPE_PAGE):
            return cors(scope, receive, send)
        return cors.app(scope, receive, partial(_send_varied, send))

    return call


def _send_varied(send: Send, message: Message) -> Awaitable[None]:
    """Send a message to a client that is no page: a cache must not give the response to a page."""
    if message["type"] == "http.response.start":
        headers = [*message.get("headers", ())]
        if vary := [value for name, value in headers if name == b"vary"]:
            others = [field for field in headers if field[0] != b"vary"]
            headers = [*others, (b"vary", b", ".join([*vary, b"Origin"]))]
        else:
            headers.append((b"vary", b"Origin"))
        message["headers"] = headers
    return send(message)


def _router(
    routes: list[BaseRoute], handlers: Mapping[Any, Any], parent: "Application", gateway: Gateway
) -> ASGIApp:
    """Return what passes a request on to its endpoint."""
    app = Starlette(routes=routes, exception_handlers=handlers, lifespan=lambda app: parent.lifespan())
    # A redirect would be built from the Host header, which the client chooses.
    app.router.redirect_slashes = False
    served = [
        (route.endpoint.endpoint, route.endpoint)
        for route in routes
        if isinstance(route, Route)
        and "POST" in (route.methods or ())
        and isinstance(route.endpoint, BaseEndpoint)
        and route.endpoint.endpoint is not None
    ]
    turns = {
        spec.websocket.endpoint.path: ResponsesEndpoint(gateway, spec, spec.websocket.endpoint)
        for spec in gateway.protocols.values()
        if spec.websocket is not None
    }
    with_query = {endpoint.path for endpoint, _ in served if endpoint.query}
    by_path: dict[str, ASGIApp] = {}
    # Those that are not found by the path alone.
    others: list[tuple[Endpoint, ASGIApp]] = []
    for endpoint, app_of_endpoint in served:
        if MODEL_IN_PATH in endpoint.path or endpoint.path in with_query:
            others.append((endpoint, app_of_endpoint))
        else:
            by_path.setdefault(endpoint.path, app_of_endpoint)

    def find(scope: Scope, path: str) -> ASGIApp:
        query = scope["query_string"].decode("latin-1")
        for endpoint, found in others:
            model = endpoint.match(path, query)
            if model is not None:
                scope["path_params"] = {"model": model}
                return found
        return app

    def route(scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        # Starlette does not look at the query, and calls endpoints through seven layers.
        if scope["type"] != "http" or scope["method"] != "POST":
            return app(scope, receive, send)
        path = path_below_mount(scope)
        if SCOPE_TURN in scope:
            return turns[path](scope, receive, send)
        return (by_path.get(path) or find(scope, path))(scope, receive, send)

    return route


def _recorded(app: ASGIApp, gateway: Gateway) -> ASGIApp:
    """Return the application with what records its requests around it, if the settings want that."""
    folder = gateway.settings.server.record
    if folder is None:
        return app
    from dragoman_server.recordings.recorder import Recorder  # most gateways record nothing

    return Recorder(app, gateway.settings, gateway.protocols, folder)


class Application(BackgroundTaskGroup):
    """The gateway as an ASGI application.

    An application that mounts it must enter `lifespan()` in its own lifespan, because servers send startup and shutdown
    to the outermost application only.

    Attributes:
        reloader: Loads the configuration again, and applies it in all processes of the gateway; see ConfigReloader.
            None where there is nothing to load it from.
        draining: A stop has begun.
    """

    def __init__(self, gateway: Gateway) -> None:
        self.reloader: Reload | None = None
        self._draining = False
        self._served = _ConfiguredApp(gateway, self)
        # The same, and those before it that have open requests.
        self._in_use: list[_ConfiguredApp] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        served = self._served
        if scope["type"] != "http":
            serve = self._serve_websocket if scope["type"] == "websocket" else served.app
            await serve(scope, receive, send)
            return
        path, scope, send = enter(scope, send)
        served.requests += 1
        try:
            for_operator = is_admin_path(path)
            try:
                scope[SCOPE_PAGE] = served.browsers.check(
                    scope["headers"], scope["scheme"], for_operator=for_operator
                )
            except (RemoteProtocolError, RequestRefused) as error:
                await served.errors.refuse(scope, error, send)
                return
            serving = (served.admin if for_operator else served.app)(scope, receive, send)
            del scope, receive, send  # a stream may stay open for hours
            await serving
        finally:
            served.requests -= 1
            if served.replaced and not served.requests:
                served.unused.set()

    async def _serve_websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a connection. Each of its requests is one of this application, with the configuration of its time."""
        await receive()  # websocket.connect
        served, (_, scope, _) = self._served, enter(scope, send)
        try:
            protocol = served.protocol_of_handshake(scope)
        except (RemoteProtocolError, RequestRefused) as error:
            with suppress(OSError):  # the client has left
                await served.errors.refuse(scope, error, send)
            return
        from dragoman_server.http.websocket import WebSocketConnection  # few clients open one

        await WebSocketConnection(protocol, self, scope, receive, send).run()

    async def reload(self, settings: Settings) -> None:
        """Use these settings for all requests that begin from now on. Open requests end with those they began with.

        The server's own settings, such as where it listens, have no effect, nor have the settings of stores: see
        with_settings_of_the_start(). Raises ValueError for settings that cannot be used; then nothing changes.
        """
        tasks, before = self.tasks, self._served
        gateway = Gateway(settings, protocols=before.gateway.protocols, previous=before.gateway)
        served = _ConfiguredApp(gateway, self)
        await tasks.start(self._run, served)
        before, self._served = self._served, served
        before.replaced = True
        # They may have come with a key that is none any more. Each goes on where it was if it has the right one.
        gateway.telemetry.feed.end_readers("reloaded")
        if not before.requests:
            before.unused.set()

    async def drained(self) -> None:
        """Return when nothing goes on for which no request is open."""
        await self._served.gateway.background.ended()

    async def reload_configuration(self) -> ReloadResult | None:
        """Load the configuration again and use it. None if there is nothing to load it from."""
        if self.reloader is None:
            return None
        result = await self.reloader()
        if result.errors:
            return result
        return replace(result, warnings=(*result.warnings, *self._served.gateway.key_warnings()))

    @property
    def draining(self) -> bool:
        return self._draining

    @draining.setter
    def draining(self, value: bool) -> None:
        self._draining = value
        if value:
            self._served.gateway.telemetry.feed.end_readers("stopping", stopping=True)

    def is_ready(self) -> "Readiness":
        """Return if requests can be served, as /readyz reports it."""
        if self.draining:
            return Readiness("draining")
        gateway = self._served.gateway
        if self._tasks is None or not (
            gateway.settings.upstreams or gateway.settings.server.offers_simulator
        ):
            return Readiness("not ready")
        unusable = gateway.unusable_upstreams()
        if not unusable or len(unusable) < len(gateway.settings.upstreams):
            return Readiness("ready")
        return Readiness("not ready", unusable)

    def refusal(self, scope: Scope, error: RemoteProtocolError | RequestRefused) -> Reply:
        """Return the response to a request that the server itself refuses, and log it. See serving/refusals.py."""
        return self._served.errors.refusal(scope, error)

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """Serve requests inside of this block: upstream connections live as long as it does."""
        async with self._served.gateway.open(), self.running():
            await self.tasks.start(self._run, self._served)
            yield

    async def _run(self, served: _ConfiguredApp, *, task_status: TaskStatus[None]) -> None:
        """Run what a configuration needs besides its requests, until none of them is open."""
        self._in_use.append(served)
        try:
            async with served.gateway.running():
                for warning in served.gateway.key_warnings():
                    _log.warning("%s", warning)
                task_status.started()
                await served.unused.wait()
                await served.gateway.background.ended(served.gateway)
        finally:
            self._in_use.remove(served)
        await self._served.gateway.close_unused_connections(served.gateway for served in self._in_use)


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
        protocols: the served ones, by name. Pass a protocol of your own here in addition to PROTOCOLS, and
            to `config.loader.load` as well if the file names it. Errors at paths of no protocol have the form of the
            first one.

    Raises ValueError for an upstream that speaks none of them, and for client keys without a secret.
    """
    return Application(Gateway(settings, client, protocols))


class Liveness(msgspec.Struct):
    """Says that the gateway runs."""

    status: Literal["ok"] = "ok"
    name: Literal["dragoman"] = "dragoman"


class Readiness(msgspec.Struct):
    """Says if requests can be served and, if no upstream can be used, why each of them cannot."""

    status: Literal["ready", "not ready", "draining"]
    upstreams: dict[str, str] | UnsetType = UNSET


class Hello(msgspec.Struct):
    """The response to coding agents that test if the server is up."""

    message: Literal["hello"] = "hello"


class Root(msgspec.Struct):
    """The version, and where requests may go."""

    endpoints: list[str]
    name: Literal["dragoman"] = "dragoman"
    version: str = __version__


def _routes(
    gateway: Gateway, is_ready: Callable[[], Readiness], operator: Sequence[BaseRoute] = ()
) -> list[BaseRoute]:
    """Return the routes for clients. operator: the others, which the API description has as well."""

    def constant(path: str, value: msgspec.Struct, summary: str) -> Route:
        async def endpoint(request: Request) -> Response:
            return _json(value)

        return DescribedRoute(
            path, endpoint, GET=ApiOperation(summary=summary, answers={200: (type(value),)})
        )

    async def readyz(request: Request) -> Response:
        readiness = is_ready()
        return _json(readiness, 200 if readiness.status == "ready" else 503)

    endpoints: list[BaseRoute] = [
        post_route(
            endpoint.path,
            (ResponsesEndpoint if spec.stored_responses is not None else ProtocolEndpoint)(
                gateway, spec, endpoint
            ),
            protocol_operation(spec, endpoint),
        )
        for spec in gateway.protocols.values()
        for endpoint in spec.endpoints
    ]

    async def root(request: Request) -> Response:
        return _json(Root(endpoint_names(request.app.routes)))

    ready = ApiOperation(summary="Can requests be served?", answers={200: (Readiness,), 503: (Readiness,)})
    listing = ApiOperation(summary="Where requests may go", answers={200: (Root,)})
    routes = [
        *endpoints,
        *counting_routes(gateway),
        *responses_routes(gateway),
        *relayed_routes(gateway),
        *models_routes(gateway),
        *usage_routes(gateway),
        constant(HEALTHZ_PATH, Liveness(), "Does the gateway run?"),
        DescribedRoute(READYZ_PATH, readyz, GET=ready),
        # Claude Code opens its connection with these, and tests with them if the server is up.
        constant(HELLO_PATH, Hello(), "Is there a server?"),
        DescribedRoute("/", root, GET=listing),
    ]
    routes += description_routes(gateway.settings, lambda: [*routes, *operator])
    return routes


def _json(value: msgspec.Struct, status: int = 200) -> Response:
    return as_starlette(Reply(status, JSON_HEADERS, encode(value)), {})
