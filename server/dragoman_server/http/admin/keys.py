"""Client keys: their list, what they have used, and changes of those that are kept in the account store."""

import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import TypeAlias

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from dragoman import RemoteProtocolError, RequestRefused
from dragoman.jsontext import JSONObject, decode
from dragoman_server.accounts.limits import ClientLimits
from dragoman_server.accounts.stored_keys import KeyClash, StoredKeys, UnknownKey, all_keys
from dragoman_server.accounts.stores.base import AccountStoreError
from dragoman_server.gateway import Gateway
from dragoman_server.http.admin.replies import audit_request, respond, time_text
from dragoman_server.http.admin.usage import UNREADABLE
from dragoman_server.http.auth import ADMIN_PATH
from dragoman_server.http.request import read_body
from dragoman_server.http.usage import UsageSource, key_use_json
from dragoman_server.settings import ClientKey, LimitHolder, Settings
from dragoman_server.settings.client_keys import public_table
from dragoman_server.settings.values import InvalidValue
from dragoman_server.usage.stores.base import KeyUse, UsageStoreError

# A key with some thousand names of models.
MAX_BODY_BYTES = 64 * 1024

_KEYS_PATH = f"{ADMIN_PATH}/keys"
_NOT_STORED = (
    "keys are only changed in the file of the keys: to keep keys in the account store as well, set "
    "server.stored_keys = true, and account_store to sqlite or valkey"
)
# Of rotate.
_ROTATION = ("overlap", "expires")

# The plain key, if one was made, and the changed key, None if it is revoked.
_Changed: TypeAlias = tuple[str | None, ClientKey | None]


async def _make(stored: StoredKeys, settings: Settings, name: str, body: JSONObject) -> _Changed:
    return await stored.make(body, settings, datetime.now(UTC))


async def _rotate(stored: StoredKeys, settings: Settings, name: str, body: JSONObject) -> _Changed:
    for member in body:
        if member not in _ROTATION:
            raise InvalidValue(f"is unknown; there are {', '.join(_ROTATION)}", member)
    overlap, expires = body.get("overlap", "24h"), body.get("expires")
    return await stored.rotate(name, settings, datetime.now(UTC), overlap=overlap, expires=expires)


async def _disable(stored: StoredKeys, settings: Settings, name: str, body: JSONObject) -> _Changed:
    return None, await stored.disable(name, settings, True)


async def _enable(stored: StoredKeys, settings: Settings, name: str, body: JSONObject) -> _Changed:
    return None, await stored.disable(name, settings, False)


async def _revoke(stored: StoredKeys, settings: Settings, name: str, body: JSONObject) -> _Changed:
    await stored.revoke(name, settings)
    return None, None


# The requests that change keys: method, path, what was done, and what does it.
_CHANGES = (
    ("POST", "", "made", _make),
    ("POST", "/{name}/rotate", "rotated", _rotate),
    ("POST", "/{name}/disable", "disabled", _disable),
    ("POST", "/{name}/enable", "enabled", _enable),
    ("DELETE", "/{name}", "revoked", _revoke),
)
_ChangeFunction: TypeAlias = Callable[[StoredKeys, Settings, str, JSONObject], Awaitable[_Changed]]


def key_routes(gateway: Gateway) -> Sequence[BaseRoute]:
    """Return the routes below /admin/keys."""
    settings, stored_keys = gateway.settings, gateway.stored_keys

    async def states_of(keys: Sequence[ClientKey]) -> list[JSONObject]:
        try:
            return await keys_json(settings, keys, gateway.usage, gateway.limits, time.time())
        except UsageStoreError:
            raise HTTPException(503, UNREADABLE) from None

    async def list_keys(request: Request) -> Response:
        keys = await states_of(all_keys(settings, stored_keys))
        spent = await gateway.limits.spent(settings.groups)
        groups = [limits_json(group, each) for group, each in zip(settings.groups, spent, strict=True)]
        return respond(gateway, request, {"keys": keys, "groups": groups})

    async def show_key(request: Request) -> Response:
        name = request.path_params["name"]
        found = [key for key in all_keys(settings, stored_keys) if key.name == name]
        if not found:
            raise HTTPException(404, f"there is no client key {name[:100]!a}; GET {_KEYS_PATH} lists them")
        return respond(gateway, request, (await states_of(found))[0])

    async def change_key(request: Request, done: str, change: _ChangeFunction) -> Response:
        if stored_keys is None:
            raise HTTPException(409, _NOT_STORED)
        body = await _read_object(request, settings.server.body_timeout_s)
        name = request.path_params.get("name", "")
        try:
            plain, key = await change(stored_keys, settings, name, body)
        except InvalidValue as error:
            place = "".join(f"/{each}"[:100] for each in error.at)
            raise RequestRefused(f"{place[1:]} {error}", path=place, code="invalid_value") from None
        except UnknownKey as error:
            raise HTTPException(404, str(error)) from None
        except KeyClash as error:
            raise HTTPException(409, str(error)) from None
        except AccountStoreError as error:
            message = f"the account store does not respond; the change may not have been made: {error}"
            raise HTTPException(503, message) from None
        table = {} if key is None else public_table(key)
        name = table.pop("name", name)
        await audit_request(gateway, request, f"key {done}", name, **table)
        state = {"name": name, "state": "revoked"}
        if key is not None:
            # The change is made: its response does not depend on what is known about the use of the key.
            state = {**table, "name": name, "state": key.state(time.time())}
            with suppress(HTTPException):
                [state] = await states_of([key])
        shown = {} if plain is None else {"key": plain}  # the only time that it is
        return respond(gateway, request, {**shown, **state}, 201 if done == "made" else 200)

    return [
        Route(_KEYS_PATH, list_keys, methods=["GET"]),
        Route(f"{_KEYS_PATH}/{{name}}", show_key, methods=["GET"]),
        *(
            Route(_KEYS_PATH + path, partial(change_key, done=done, change=change), methods=[method])
            for method, path, done, change in _CHANGES
        ),
    ]


async def _read_object(request: Request, silence_s: float) -> JSONObject:
    """Return the object in a request's body, empty without a body."""
    headers = request.headers
    coding, length = headers.get("content-encoding", ""), headers.get("content-length", "")
    body = await read_body(request.receive, coding, length, MAX_BODY_BYTES, silence_s)
    try:
        value = decode(body) if body else {}
    except RemoteProtocolError as error:
        raise RemoteProtocolError(f"the body is no JSON: {error.message}", code="invalid_value") from None
    if not isinstance(value, dict):
        raise RemoteProtocolError("the body is not a JSON object", code="invalid_value")
    return value


async def keys_json(
    settings: Settings, keys: Sequence[ClientKey], usage: UsageSource, limits: ClientLimits, now: float
) -> list[JSONObject]:
    """Return the state of client keys. Raises UsageStoreError."""
    uses = await usage.key_uses([key.name for key in keys])
    in_file = {key.name for key in settings.client_keys}
    spent = await limits.spent(keys)
    return [
        {**key_json(key, use, each, now), "source": "file" if key.name in in_file else "store"}
        for key, use, each in zip(keys, uses, spent, strict=True)
    ]


def key_json(key: ClientKey, use: KeyUse, spent: float | None, now: float) -> JSONObject:
    """Return the state of a client key, and what it has used. Times are RFC 3339, in UTC. spent: see limits_json()."""
    ends = {"expires": key.expires, "previous_expires": key.previous_expires}
    return {
        "name": key.name,
        "group": key.group,
        "state": key.state(now),
        **{name: None if end is None else time_text(end.timestamp()) for name, end in ends.items()},
        **key_use_json(use),
        "last_used": time_text(use.last_used) if use.last_used else None,
        **limits_json(key, spent),
    }


def limits_json(holder: LimitHolder, spent: float | None) -> JSONObject:
    """Return the limits of a key or group. spent: of its budget in this period, None if it has none or is unknown."""
    return {
        "name": holder.name,
        "models": list(holder.models),
        "requests_per_minute": holder.requests_per_minute,
        "tokens_per_minute": holder.tokens_per_minute,
        "budget": holder.budget,
        "budget_period": None if holder.budget is None else holder.budget_period,
        "budget_spent": None if spent is None else round(spent, 6),
    }
