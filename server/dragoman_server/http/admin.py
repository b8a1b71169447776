"""The accounts of upstreams, for the operator: who rests, who is out of use, and how to change that.

Strategy: an application of its own beside the one for clients. Everything below /admin is behind one gate, whatever
is added here later: without `server.admin_key` nothing is there, with it nothing is told without it. Client keys open
nothing here. Browsers get no CORS headers, so no page of another origin can read an answer. Answers name accounts and
say how they are; they hold nothing of a key.
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
from starlette.types import ASGIApp, Receive, Scope, Send

from dragoman import RemoteProtocolError, RequestRefused
from dragoman.jsontext import JSONObject
from dragoman_server.accounts.health import Health
from dragoman_server.accounts.stores.base import AccountStore, AccountStoreError
from dragoman_server.headers import BROWSER_HEADERS
from dragoman_server.keys import presented_key, same_key
from dragoman_server.log import RequestRecord, log_request
from dragoman_server.settings import AccountSettings, Settings
from dragoman_server.settings.secret import Secret

ADMIN_PATH = "/admin"

# The store has a deadline of its own. This one is for a store that does not keep it.
_STORE_S = 5.0

# Why an account is out of use that nobody but the operator wanted out of use.
DISABLED_BY_OPERATOR = "disabled by the operator"

_LAST_MOMENT = datetime(9999, 12, 31, tzinfo=UTC).timestamp()

# Answers an error in the form of the other paths: see FallbackErrors.
Refuse = Callable[[Scope, RemoteProtocolError | RequestRefused, Send], Awaitable[None]]


def is_admin_path(path: str) -> bool:
    """path: without what the application is mounted under."""
    return path == ADMIN_PATH or path.startswith(ADMIN_PATH + "/")


class AdminKeyMiddleware:
    """Lets requests with the admin key pass, and no others."""

    def __init__(self, app: ASGIApp, key: Secret | None, refuse: Refuse) -> None:
        self._app = app
        self._key = key
        self._refuse = refuse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._key is None:
            await self._refuse(scope, RemoteProtocolError("there is nothing at this path", status=404), send)
            return
        presented = presented_key(scope["headers"])
        if presented is None or not same_key(presented, self._key):
            what = "needs the admin key" if presented is None else "is closed to this key"
            error = RemoteProtocolError(
                f"what is below {ADMIN_PATH} {what}", status=401, code="invalid_api_key"
            )
            await self._refuse(scope, error, send)
            return
        await self._app(scope, receive, send)


def admin_app(
    settings: Settings, accounts: AccountStore, refuse: Refuse, exception_handlers: Mapping[Any, Any]
) -> ASGIApp:
    """All that is below /admin, behind its gate."""
    app = Starlette(routes=admin_routes(settings, accounts), exception_handlers=exception_handlers)
    app.router.redirect_slashes = False  # a redirect would be built from the Host header
    return AdminKeyMiddleware(app, settings.server.admin_key, refuse)


def admin_routes(settings: Settings, accounts: AccountStore) -> list[BaseRoute]:
    admin = _Accounts(settings, accounts)
    routes: list[BaseRoute] = [Route(f"{ADMIN_PATH}/accounts", admin.list_all, methods=["GET"])]
    for name, change in admin.changes.items():
        # An account's name has a slash in it: upstream/account.
        routes.append(
            Route(f"{ADMIN_PATH}/accounts/{{id:path}}/{name}", admin.changer(change), methods=["POST"])
        )
    return routes


class _Accounts:
    def __init__(self, settings: Settings, store: AccountStore) -> None:
        self._settings = settings
        self._store = store
        self.changes: dict[str, Callable[[str], Awaitable[None]]] = {
            "enable": self._enable,
            "disable": self._disable,
            "reset": store.reset,
        }

    async def list_all(self, request: Request) -> Response:
        now, health = time.time(), self._store.health()
        found = [account_json(account, health.get(account.id, Health()), now) for account in self._all()]
        return _answer(request, {"accounts": found})

    def changer(self, change: Callable[[str], Awaitable[None]]) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            id = request.path_params["id"]
            account = next((account for account in self._all() if account.id == id), None)
            if account is None:
                raise HTTPException(
                    404, f"there is no account {id[:100]!a}; GET {ADMIN_PATH}/accounts lists them"
                )
            try:
                with anyio.fail_after(_STORE_S):
                    await change(account.id)
            except (AccountStoreError, TimeoutError):
                raise HTTPException(
                    503, "the store of accounts does not answer; nothing may have changed"
                ) from None
            health = self._store.health().get(account.id, Health())
            return _answer(request, account_json(account, health, time.time()))

        return endpoint

    async def _enable(self, account: str) -> None:
        """Undo `disable`: an account that only rests goes on resting."""
        if self._store.health().get(account, Health()).disabled is not None:
            await self._store.reset(account)

    async def _disable(self, account: str) -> None:
        await self._store.disable(account, DISABLED_BY_OPERATOR)

    def _all(self) -> Iterator[AccountSettings]:
        for upstream in self._settings.upstreams:
            yield from self._settings.accounts_of(upstream)


def account_json(account: AccountSettings, health: Health, now: float) -> JSONObject:
    """What is told of an account. Times are RFC 3339, in UTC."""
    rests = health.cooldown_until > now
    return {
        "id": account.id,
        "upstream": account.upstream,
        "name": account.name,
        "state": "disabled" if health.disabled is not None else "cooling" if rests else "ready",
        "cause": health.disabled or (health.cause if rests else None) or None,
        "cools_until": _time(health.cooldown_until) if rests else None,
        "strikes": health.consecutive_cooldowns,
        "troubles": len(health.failures),
        "remaining": health.remaining,
        "last_used": _time(health.last_used) if health.last_used else None,
    }


def _time(seconds: float) -> str:
    # An upstream may ask for any number of seconds, and dates end.
    return (
        datetime.fromtimestamp(min(seconds, _LAST_MOMENT), UTC)
        .isoformat(timespec="milliseconds")
        .replace("+00:00", "Z")
    )


def _answer(request: Request, value: JSONObject) -> Response:
    record = RequestRecord(
        id=uuid.uuid4().hex, protocol="admin", path=request.scope["path"], status=200, outcome="completed"
    )
    log_request(record)
    return JSONResponse(value, headers={"cache-control": "no-store", **dict(BROWSER_HEADERS)})
