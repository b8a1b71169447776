"""For the operator: the accounts of upstreams and their state, what client keys have used, and reloads.

This application is separate from the one for clients. All paths below /admin need the admin key, also those that are
added later; without `server.admin_key` every path is a 404. /metrics accepts the metrics key as well. Client keys are
not accepted here. Browsers get no CORS headers, so no page of another origin can read a response. Responses have the
names and the state of accounts, and no part of a key.
"""

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from typing import Any

import anyio
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

from dragoman.jsontext import JSONObject
from dragoman_server.accounts.key_usage import KeyUsage
from dragoman_server.accounts.limits import ClientLimits
from dragoman_server.accounts.stores.base import AccountStoreError, KeyUse
from dragoman_server.accounts.stores.operations import Change
from dragoman_server.config.reload import ReloadResult
from dragoman_server.gateway import Gateway
from dragoman_server.http.auth import ADMIN_PATH, METRICS_PATH, AdminKeyMiddleware, Refuse
from dragoman_server.http.metrics import metrics_endpoint
from dragoman_server.log import log_request
from dragoman_server.policy.health import INITIAL_HEALTH, Health
from dragoman_server.settings import AccountSettings, ClientKey, Settings
from dragoman_server.wire.headers import OPERATOR_HEADERS

# The store has its own deadline. This one is for a store that does not meet it.
_STORE_S = 5.0

# Reason shown for an account that the operator disabled.
_DISABLED_BY_OPERATOR = "disabled by the operator"

# What POST /admin/accounts/{id}/NAME does to an account. One that is only cooling down is not enabled: it stays so.
_CHANGES: dict[str, Callable[[Health], Health]] = {
    "enable": lambda health: health if health.disabled is None else health.after_reset(),
    "disable": lambda health: health.after_disabling(_DISABLED_BY_OPERATOR),
    "reset": Health.after_reset,
}

_LAST_TIME = datetime(9999, 12, 31, tzinfo=UTC).timestamp()


def is_admin_path(path: str) -> bool:
    """True if the operator's application serves this path. path: see path_below_mount()."""
    return path in (ADMIN_PATH, METRICS_PATH) or path.startswith(ADMIN_PATH + "/")


def admin_app(
    gateway: Gateway,
    reload: Callable[[], Awaitable[ReloadResult | None]],
    refuse: Refuse,
    exception_handlers: Mapping[Any, Any],
) -> ASGIApp:
    """Return the application for /metrics and all paths below /admin. It checks the keys for them.

    reload: loads the configuration again; None is returned if there is nothing to load it from.
    """
    routes = [
        Route(METRICS_PATH, metrics_endpoint(gateway), methods=["GET"]),
        *admin_routes(gateway, reload),
    ]
    app = Starlette(routes=routes, exception_handlers=exception_handlers)
    app.router.redirect_slashes = False  # a redirect would be built from the Host header
    server = gateway.settings.server
    return AdminKeyMiddleware(app, server.admin_key, server.metrics_key, refuse)


def admin_routes(gateway: Gateway, reload: Callable[[], Awaitable[ReloadResult | None]]) -> list[BaseRoute]:
    """Return the routes below /admin."""
    settings, store = gateway.settings, gateway.accounts

    async def list_accounts(request: Request) -> Response:
        now, health = time.time(), store.health()
        found = [
            account_json(account, health.get(account.id, INITIAL_HEALTH), now)
            for account in settings.all_accounts()
        ]
        return _respond(gateway, request, {"accounts": found})

    async def change_account(request: Request, change: Callable[[Health], Health]) -> Response:
        id = request.path_params["id"]
        account = next((account for account in settings.all_accounts() if account.id == id), None)
        if account is None:
            raise HTTPException(
                404, f"there is no account {id[:100]!a}; GET {ADMIN_PATH}/accounts lists them"
            )
        try:
            with anyio.fail_after(_STORE_S):
                await store.apply(Change(account.id, change))
        except (AccountStoreError, TimeoutError):
            raise HTTPException(
                503, "the account store does not respond; the change may not have been made"
            ) from None
        health = store.health().get(account.id, INITIAL_HEALTH)
        return _respond(gateway, request, account_json(account, health, time.time()))

    async def list_keys(request: Request) -> Response:
        found = await keys_json(settings, gateway.key_usage, gateway.limits, time.time())
        if found is None:
            raise HTTPException(503, "the account store does not respond")
        return _respond(gateway, request, {"keys": found})

    async def reload_configuration(request: Request) -> Response:
        result = await reload()
        if result is None:
            raise HTTPException(
                404, "this gateway was made without a configuration that could be loaded again"
            )
        status = "refused" if result.errors else "reloaded"
        return _respond(gateway, request, {"status": status, **asdict(result)}, 422 if result.errors else 200)

    routes: list[BaseRoute] = [
        Route(f"{ADMIN_PATH}/accounts", list_accounts, methods=["GET"]),
        Route(f"{ADMIN_PATH}/keys", list_keys, methods=["GET"]),
        Route(f"{ADMIN_PATH}/reload", reload_configuration, methods=["POST"]),
    ]
    for name, change in _CHANGES.items():
        # An account's name has a slash in it: upstream/account.
        endpoint = partial(change_account, change=change)
        routes.append(Route(f"{ADMIN_PATH}/accounts/{{id:path}}/{name}", endpoint, methods=["POST"]))
    return routes


async def keys_json(
    settings: Settings, usage: KeyUsage, limits: ClientLimits, now: float
) -> list[JSONObject] | None:
    """Return the state of all client keys, None if the account store does not respond."""
    keys = settings.client_keys
    uses = await usage.totals([key.name for key in keys])
    if uses is None:
        return None
    return [key_json(key, use, await limits.spent(key), now) for key, use in zip(keys, uses, strict=True)]


def key_json(key: ClientKey, use: KeyUse, spent: float | None, now: float) -> JSONObject:
    """Return the state of a client key, and what it has used. Times are RFC 3339, in UTC.

    spent: of its budget in this period, None if it has none or that is unknown.
    """
    return {
        "name": key.name,
        "state": key.state(now),
        "expires": None if key.expires is None else _time(key.expires.timestamp()),
        "previous_expires": None if key.previous_expires is None else _time(key.previous_expires.timestamp()),
        "requests": round(use.requests),
        "tokens": round(use.tokens),
        "cost_usd": round(use.cost_usd, 6),
        "last_used": _time(use.last_used) if use.last_used else None,
        "budget": key.budget,
        "budget_period": None if key.budget is None else key.budget_period,
        "budget_spent": None if spent is None else round(spent, 6),
    }


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


def _respond(gateway: Gateway, request: Request, value: JSONObject, status: int = 200) -> Response:
    record = gateway.request_began(request.scope, "admin")
    record.status, record.outcome = status, "completed"
    log_request(record)
    return JSONResponse(value, status, headers=dict(OPERATOR_HEADERS))
