"""The accounts of upstreams: their state, and its changes by the operator."""

import time
from collections.abc import Callable, Sequence
from functools import partial

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from dragoman_server.accounts.stores.base import AccountStoreError, apply_in_time
from dragoman_server.accounts.stores.operations import Change
from dragoman_server.gateway import Gateway
from dragoman_server.http.admin.replies import audit_request, respond, time_text
from dragoman_server.http.auth import ADMIN_PATH
from dragoman_server.http.operations import AdminRoute, ApiOperation
from dragoman_server.policy.health import INITIAL_HEALTH, AccountState, Health
from dragoman_server.settings import AccountSettings

# Reason shown for an account that the operator disabled.
_DISABLED_BY_OPERATOR = "disabled by the operator"

# What POST /admin/accounts/{id}/NAME does to an account. One that is only cooling down is not enabled: it stays so.
_CHANGES: dict[str, Callable[[Health], Health]] = {
    "enable": lambda health: health if health.disabled is None else health.after_reset(),
    "disable": lambda health: health.after_disabling(_DISABLED_BY_OPERATOR),
    "reset": Health.after_reset,
}


class AccountReport(msgspec.Struct):
    """The state of an account. Times are RFC 3339, in UTC."""

    id: str
    upstream: str
    name: str
    state: AccountState
    cause: str | None
    cools_until: str | None
    consecutive_cooldowns: int
    recent_failures: int
    remaining: float | None
    last_used: str | None


class AccountList(msgspec.Struct):
    """All accounts of all upstreams."""

    accounts: list[AccountReport]


def account_routes(gateway: Gateway) -> Sequence[BaseRoute]:
    """Return the routes below /admin/accounts."""
    settings, store = gateway.settings, gateway.accounts

    async def list_accounts(request: Request) -> Response:
        now, health = time.time(), store.health()
        found = [
            account_json(account, health.get(account.id, INITIAL_HEALTH), now)
            for account in settings.all_accounts()
        ]
        return respond(gateway, request, AccountList(found))

    async def change_account(request: Request, name: str, change: Callable[[Health], Health]) -> Response:
        id = request.path_params["id"]
        account = next((account for account in settings.all_accounts() if account.id == id), None)
        if account is None:
            raise HTTPException(
                404, f"there is no account {id[:100]!a}; GET {ADMIN_PATH}/accounts lists them"
            )
        try:
            await apply_in_time(store, Change(account.id, change))
        except AccountStoreError:
            raise HTTPException(
                503, "the account store does not respond; the change may not have been made"
            ) from None
        await audit_request(gateway, request, f"account {name}", account.id)
        health = store.health().get(account.id, INITIAL_HEALTH)
        return respond(gateway, request, account_json(account, health, time.time()))

    listing = ApiOperation(summary="List all accounts", answers={200: (AccountList,)})
    routes: list[BaseRoute] = [AdminRoute(f"{ADMIN_PATH}/accounts", list_accounts, GET=listing)]
    for name, change in _CHANGES.items():
        operation = ApiOperation(
            summary=f"{name.capitalize()} an account",
            answers={200: (AccountReport,)},
            errors=(404, 503),
            place="the id of an account: upstream/account",  # so it has a slash in it
        )
        endpoint = partial(change_account, name=name, change=change)
        routes.append(AdminRoute(f"{ADMIN_PATH}/accounts/{{id:path}}/{name}", endpoint, POST=operation))
    return routes


def account_json(account: AccountSettings, health: Health, now: float) -> AccountReport:
    """Return the state of an account."""
    cooling = health.cooldown_until > now
    return AccountReport(
        id=account.id,
        upstream=account.upstream,
        name=account.name,
        state=health.state(now),
        cause=health.disabled or (health.cause if cooling else None) or None,
        cools_until=time_text(health.cooldown_until) if cooling else None,
        consecutive_cooldowns=health.consecutive_cooldowns,
        recent_failures=len(health.failures),
        remaining=health.remaining,
        last_used=time_text(health.last_used) if health.last_used else None,
    )
