"""What client keys have used."""

import time
from collections.abc import Sequence

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from dragoman.jsontext import JSONObject
from dragoman_server.accounts.key_usage import KeyUsage
from dragoman_server.accounts.limits import ClientLimits
from dragoman_server.accounts.stores.base import KeyUse
from dragoman_server.gateway import Gateway
from dragoman_server.http.admin.replies import respond, time_text
from dragoman_server.http.auth import ADMIN_PATH
from dragoman_server.settings import ClientKey, Settings


def key_routes(gateway: Gateway) -> Sequence[BaseRoute]:
    """Return the routes below /admin/keys."""

    async def list_keys(request: Request) -> Response:
        found = await keys_json(gateway.settings, gateway.key_usage, gateway.limits, time.time())
        if found is None:
            raise HTTPException(503, "the account store does not respond")
        return respond(gateway, request, {"keys": found})

    return [Route(f"{ADMIN_PATH}/keys", list_keys, methods=["GET"])]


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
        "expires": None if key.expires is None else time_text(key.expires.timestamp()),
        "previous_expires": None
        if key.previous_expires is None
        else time_text(key.previous_expires.timestamp()),
        "requests": round(use.requests),
        "tokens": round(use.tokens),
        "cost_usd": round(use.cost_usd, 6),
        "last_used": time_text(use.last_used) if use.last_used else None,
        "budget": key.budget,
        "budget_period": None if key.budget is None else key.budget_period,
        "budget_spent": None if spent is None else round(spent, 6),
    }
