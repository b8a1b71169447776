"""List the accounts of upstreams for the operator, and enable, disable or reset one.

This application is separate from the one for clients. All paths below /admin need the admin key, also those that are
added later; without `server.admin_key` every path is a 404. /metrics accepts the metrics key as well. Client keys are
not accepted here. Browsers get no CORS headers, so no page of another origin can read a response. Responses have the
names and the state of accounts, and no part of a key.
"""

import time
import uuid
from collections.abc import Awaitable, Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import anyio
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

from dragoman.jsontext import JSONObject
from dragoman_server.accounts.health import Health
from dragoman_server.accounts.stores.base import AccountStore, AccountStoreError
from dragoman_server.gateway import Gateway
from dragoman_server.headers import BROWSER_HEADERS
from dragoman_server.http.auth import ADMIN_PATH, METRICS_PATH, AdminKeyMiddleware, Refuse
from dragoman_server.http.metrics import metrics_endpoint
from dragoman_server.log import RequestRecord, log_request
from dragoman_server.settings import AccountSettings, Settings

# The store has its own deadline. This one is for a store that does not meet it.
_STORE_S = 5.0

# Reason shown for an account that the operator disabled.
DISABLED_BY_OPERATOR = "disabled by the operator"

# What POST /admin/accounts/{id}/NAME does to an account. One that is only cooling down is not enabled: it stays so.
_CHANGES: dict[str, Callable[[Health], Health]] = {
    "enable": lambda health: health if health.disabled is None else health.after_reset(),
    "disable": lambda health: health.after_disabling(DISABLED_BY_OPERATOR),
    "reset": Health.after_reset,
}

_LAST_TIME = datetime(9999, 12, 31, tzinfo=UTC).timestamp()


def is_admin_path(path: str) -> bool:
    """True if the operator's application serves this path. path: see path_below_mount()."""
    return path in (ADMIN_PATH, METRICS_PATH) or path.startswith(ADMIN_PATH + "/")


def admin_app(gateway: Gateway, refuse: Refuse, exception_handlers: Mapping[Any, Any]) -> ASGIApp:
    """Return the application for /metrics and all paths below /admin. It checks the keys for them."""
    routes = [
        Route(METRICS_PATH, metrics_endpoint(gateway), methods=["GET"]),
        *admin_routes(gateway.settings, gateway.accounts),
    ]
    app = Starlette(routes=routes, exception_handlers=exception_handlers)
    app.router.redirect_slashes = False  # a redirect would be built from the Host header
    server = gateway.settings.server
    return AdminKeyMiddleware(app, server.admin_key, server.metrics_key, refuse)


def admin_routes(settings: Settings, accounts: AccountStore) -> list[BaseRoute]:
    """Return the routes below /admin."""
    admin = _Accounts(settings, accounts)
    routes: list[BaseRoute] = [Route(f"{ADMIN_PATH}/accounts", admin.list_all, methods=["GET"])]
    for name, change in _CHANGES.items():
        # An account's name has a slash in it: upstream/account.
        routes.append(
            Route(f"{ADMIN_PATH}/accounts/{{id:path}}/{name}", admin.changer(change), methods=["POST"])
        )
    return routes


class _Accounts:
    def __init__(self, settings: Settings, store: AccountStore) -> None:
        self._settings = settings
        self._store = store

    async def list_all(self, request: Request) -> Response:
        now, health = time.time(), self._store.health()
        found = [account_json(account, health.get(account.id, Health()), now) for account in self._all()]
        return _respond(request, {"accounts": found})

    def changer(self, change: Callable[[Health], Health]) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            id = request.path_params["id"]
            account = next((account for account in self._all() if account.id == id), None)
            if account is None:
                raise HTTPException(
                    404, f"there is no account {id[:100]!a}; GET {ADMIN_PATH}/accounts lists them"
                )
            try:
                with anyio.fail_after(_STORE_S):
                    await self._store.change(account.id, change)
            except (AccountStoreError, TimeoutError):
                raise HTTPException(
                    503, "the account store does not respond; the change may not have been made"
                ) from None
            health = self._store.health().get(account.id, Health())
            return _respond(request, account_json(account, health, time.time()))

        return endpoint

    def _all(self) -> Iterator[AccountSettings]:
        for upstream in self._settings.upstreams:
            yield from self._settings.accounts_of(upstream)


def account_json(account: AccountSettings, health: Health, now: float) -> JSONObject:
    """Return the state of an account. Times are RFC 3339, in UTC."""
    cooling = health.cooldown_until > now
    return {
        "id": account.id,
        "upstream": account.upstream,
        "name": account.name,
        "state": health.state(now).value,
        "cause": health.disabled or (health.cause if cooling else None) or None,
        "cools_until": _time(health.cooldown_until) if cooling else None,
        "strikes": health.consecutive_cooldowns,
        "troubles": len(health.failures),
        "remaining": health.remaining,
        "last_used": _time(health.last_used) if health.last_used else None,
    }


def _time(seconds: float) -> str:
    # An upstream may send any number of seconds, and dates end.
    return (
        datetime.fromtimestamp(min(seconds, _LAST_TIME), UTC)
        .isoformat(timespec="milliseconds")
        .replace("+00:00", "Z")
    )


def _respond(request: Request, value: JSONObject) -> Response:
    record = RequestRecord(
        id=uuid.uuid4().hex, protocol="admin", path=request.scope["path"], status=200, outcome="completed"
    )
    log_request(record)
    return JSONResponse(value, headers={"cache-control": "no-store", **dict(BROWSER_HEADERS)})
