"""The operator's application: /metrics, the page at /ui, and all paths below /admin.

It is separate from the one for clients. All paths below /admin need the admin key, also those that are added later;
without `server.admin_key` every path is a 404, unless no keys are needed at all: see AdminKeyMiddleware. /metrics
accepts the metrics key as well. Client keys are not accepted here. Browsers get no CORS headers, so no page of another
origin can read a response. Responses have the names and the state of accounts, and no part of a key but of one that was
just made. A new path is an AdminRoute in the module of its subject.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from starlette.applications import Starlette
from starlette.routing import BaseRoute
from starlette.types import ASGIApp

from dragoman_server.config.reload import ReloadResult
from dragoman_server.gateway import Gateway
from dragoman_server.http.admin.accounts import account_routes
from dragoman_server.http.admin.configuration import configuration_routes
from dragoman_server.http.admin.events import events_route
from dragoman_server.http.admin.explain import explain_routes
from dragoman_server.http.admin.keys import key_routes
from dragoman_server.http.admin.metrics import metrics_route
from dragoman_server.http.admin.page import page_routes
from dragoman_server.http.admin.recordings import recording_routes
from dragoman_server.http.admin.usage import usage_routes
from dragoman_server.http.auth import AdminKeyMiddleware, Refuse


def admin_app(
    gateway: Gateway, routes: list[BaseRoute], refuse: Refuse, exception_handlers: Mapping[Any, Any]
) -> ASGIApp:
    """Return the application for these routes, see operator_routes(). It checks the keys for them."""
    app = Starlette(routes=routes, exception_handlers=exception_handlers)
    app.router.redirect_slashes = False  # a redirect would be built from the Host header
    settings = gateway.settings
    return AdminKeyMiddleware(app, settings.server, refuse, keyless=not settings.needs_keys)


def operator_routes(
    gateway: Gateway, reload: Callable[[], Awaitable[ReloadResult | None]], refuse: Refuse
) -> list[BaseRoute]:
    """Return the routes of /metrics and the page, and those below /admin.

    reload: loads the configuration again; None is returned if there is nothing to load it from.
    """
    return [
        metrics_route(gateway),
        *admin_routes(gateway, reload),
        *page_routes(),
        events_route(gateway, refuse),
    ]


def admin_routes(gateway: Gateway, reload: Callable[[], Awaitable[ReloadResult | None]]) -> list[BaseRoute]:
    """Return the routes below /admin whose responses end by themselves. reload: see operator_routes()."""
    return [
        *account_routes(gateway),
        *key_routes(gateway),
        *usage_routes(gateway),
        *configuration_routes(gateway, reload),
        *explain_routes(gateway),
        *recording_routes(gateway),
    ]
