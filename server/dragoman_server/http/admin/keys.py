"""Client keys: their list, what they have used, and changes of those that are kept in the account store."""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any, Literal, TypeAlias

import anyio.lowlevel
import msgspec
from msgspec import UNSET, Meta, UnsetType
from msgspec.structs import replace
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from dragoman import RemoteProtocolError, RequestRefused
from dragoman.jsontext import JSONObject, decode
from dragoman_server.accounts.limits import ClientLimits
from dragoman_server.accounts.stored_keys import KeyClash, StoredKeys, UnknownKey, all_keys
from dragoman_server.accounts.stores.base import AccountStoreError
from dragoman_server.gateway import Gateway
from dragoman_server.http.admin.replies import audit_request, respond, time_text
from dragoman_server.http.admin.usage import UNREADABLE
from dragoman_server.http.auth import ADMIN_PATH
from dragoman_server.http.operations import AdminRoute, ApiOperation
from dragoman_server.http.request import BodyReader
from dragoman_server.http.usage import Limits, UsageSource, key_total, limits_of
from dragoman_server.settings import ClientKey, Settings
from dragoman_server.settings.client_keys import NOT_CHOSEN, SETTINGS, WHEN, public_table, rotated_key
from dragoman_server.settings.fields import SettingKind, SettingSpec
from dragoman_server.settings.values import NAME, InvalidValue
from dragoman_server.usage.stores.base import UsageStoreError

# A key with some thousand names of models.
MAX_BODY_BYTES = 64 * 1024

_KEYS_PATH = f"{ADMIN_PATH}/keys"
_NOT_STORED = (
    "keys are only changed in the file of the keys: to keep keys in the account store as well, set "
    "server.stored_keys = true, and account_store to sqlite or valkey"
)
_PLACE = "the name of a client key"

# Keys whose state is read and written together, some 5 ms: a file has thousands, and the store more.
_AT_ONCE = 50

# The plain key, if one was made, and the changed key, None if it is revoked.
_Changed: TypeAlias = tuple[str | None, ClientKey | None]
_ChangeFunction: TypeAlias = Callable[[ClientKey, Settings, JSONObject], _Changed]


def _rotate(old: ClientKey, settings: Settings, body: JSONObject) -> tuple[str, ClientKey]:
    names = Rotation.__struct_fields__
    for member in body:
        if member not in names:
            raise InvalidValue(f"is unknown; there are {', '.join(names)}", member)
    overlap, expires = body.get("overlap", "24h"), body.get("expires")
    return rotated_key(old, settings, datetime.now(UTC), overlap=overlap, expires=expires)


class KeyState(Limits, kw_only=True):
    """The state of a client key, and what it has used. Times are RFC 3339, in UTC."""

    group: str | None
    state: str
    expires: str | None
    previous_expires: str | None
    requests: int
    tokens: int
    cost_usd: float
    last_used: str | None
    source: Literal["file", "store"]


class KeyList(msgspec.Struct):
    """All client keys, and their groups."""

    keys: list[KeyState]
    groups: list[Limits]


class ChangedKey(msgspec.Struct):
    """A key that was made or changed, with its settings or, if the usage store responds, all members of KeyState."""

    name: str
    state: Literal["active", "disabled", "expired", "no group", "revoked"]
    key: Annotated[str, Meta(description="the key itself; this is the only response with it")] | UnsetType = (
        UNSET
    )


class Rotation(msgspec.Struct, forbid_unknown_fields=True):
    """How a key is rotated."""

    overlap: Annotated[str | Literal[0], Meta(description="how long the old key stays valid")] = "24h"
    expires: Annotated[str | None, Meta(description=f"when the new key expires: never, or {WHEN}")] = None


def _type_of(spec: SettingSpec) -> Any:
    """Return the type of a setting in JSON."""
    kinds: dict[SettingKind, Any] = {
        SettingKind.NAME: Annotated[str, Meta(pattern=f"^{NAME}$")],
        SettingKind.TIME: Annotated[str, Meta(examples=["90d"])],
    }
    one = Literal[spec.choices] if spec.choices else kinds.get(spec.kind, spec.type)
    return Annotated[list[one] if spec.many else one, Meta(description=spec.help)]  # type: ignore[valid-type]


NewKey = msgspec.defstruct(
    "NewKey",
    [
        (spec.name, _type_of(spec)) if spec.required else (spec.name, _type_of(spec) | None, None)
        for spec in SETTINGS.values()
        if spec.name not in NOT_CHOSEN
    ],
    namespace={"__doc__": "The settings of a client key that is made."},
    forbid_unknown_fields=True,
)


def _change(summary: str, status: int = 200, body: Any = None) -> ApiOperation:
    return ApiOperation(
        summary=summary,
        answers={status: (ChangedKey,)},
        errors=(404, 408, 409, 413, 503),
        body=body,
        requires_body=body is NewKey,
        place=_PLACE,
    )


_LIST = ApiOperation(summary="List all client keys", answers={200: (KeyList,)}, errors=(503,))
_SHOW = ApiOperation(summary="Show a client key", answers={200: (KeyState,)}, errors=(404, 503), place=_PLACE)

# The requests that change keys: method, path, what was done, what does it (None: a key is made), and what they do for
# the API description.
_CHANGES: tuple[tuple[str, str, str, _ChangeFunction | None, ApiOperation], ...] = (
    ("POST", "", "made", None, _change("Make a client key", 201, NewKey)),
    ("POST", "/{name}/rotate", "rotated", _rotate, _change("Make a new key in its place", body=Rotation)),
    (
        "POST",
        "/{name}/disable",
        "disabled",
        lambda old, *_: (None, replace(old, disabled=True)),
        _change("Refuse requests with a key"),
    ),
    (
        "POST",
        "/{name}/enable",
        "enabled",
        lambda old, *_: (None, replace(old, disabled=False)),
        _change("Accept requests with a key again"),
    ),
    ("DELETE", "/{name}", "revoked", lambda *_: (None, None), _change("Revoke a key")),
)


def key_routes(gateway: Gateway) -> Sequence[BaseRoute]:
    """Return the routes below /admin/keys."""
    settings, stored_keys = gateway.settings, gateway.stored_keys

    async def states_of(keys: Sequence[ClientKey]) -> list[KeyState]:
        try:
            return await keys_json(settings, keys, gateway.usage, gateway.limits, time.time())
        except UsageStoreError:
            raise HTTPException(503, UNREADABLE) from None

    async def list_keys(request: Request) -> Response:
        keys = await states_of(all_keys(settings, stored_keys))
        groups = [Limits(**each) for each in await limits_of(settings.groups, gateway.limits)]
        return respond(gateway, request, KeyList(keys, groups))

    async def show_key(request: Request) -> Response:
        name = request.path_params["name"]
        found = [key for key in all_keys(settings, stored_keys) if key.name == name]
        if not found:
            raise HTTPException(404, f"there is no client key {name[:100]!a}; GET {_KEYS_PATH} lists them")
        return respond(gateway, request, (await states_of(found))[0])

    async def change_key(request: Request, done: str, change: _ChangeFunction | None) -> Response:
        if stored_keys is None:
            raise HTTPException(409, _NOT_STORED)
        body = await _read_object(request, settings.server.body_timeout_s)
        name = request.path_params.get("name", "")
        plain, key = await _changed(change, stored_keys, settings, name, body)
        table = {} if key is None else public_table(key)
        name = table.pop("name", name)
        await audit_request(gateway, request, f"key {done}", name, **table)
        state: JSONObject = {"name": name, "state": "revoked"}
        if key is not None:
            # The change is made: its response does not depend on the key's usage.
            state = {**table, "name": name, "state": key.state(time.time(), settings.groups_by_name)}
            with suppress(HTTPException):
                [known] = await states_of([key])
                state = msgspec.structs.asdict(known)
        shown = {} if plain is None else {"key": plain}  # the only time that it is
        return respond(gateway, request, {**shown, **state}, 201 if done == "made" else 200)

    return [
        AdminRoute(_KEYS_PATH, list_keys, GET=_LIST),
        AdminRoute(f"{_KEYS_PATH}/{{name}}", show_key, GET=_SHOW),
        *(
            AdminRoute(
                _KEYS_PATH + path, partial(change_key, done=done, change=change), **{method: operation}
            )
            for method, path, done, change, operation in _CHANGES
        ),
    ]


async def _changed(
    change: _ChangeFunction | None, stored: StoredKeys, settings: Settings, name: str, body: JSONObject
) -> _Changed:
    """Make a change. What is wrong with it is raised as the response to it."""
    try:
        if change is None:
            return await stored.make(body, settings, datetime.now(UTC))
        return await stored.change(name, settings, lambda old, _: change(old, settings, body))
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


async def _read_object(request: Request, silence_s: float) -> JSONObject:
    """Return the object in a request's body, empty without a body."""
    body = await BodyReader(request.receive, request.headers, MAX_BODY_BYTES, silence_s).read_all()
    try:
        value = decode(body) if body else {}
    except RemoteProtocolError as error:
        raise RemoteProtocolError(f"the body is no JSON: {error.message}", code="invalid_value") from None
    if not isinstance(value, dict):
        raise RemoteProtocolError("the body is not a JSON object", code="invalid_value")
    return value


async def keys_json(
    settings: Settings, keys: Sequence[ClientKey], usage: UsageSource, limits: ClientLimits, now: float
) -> list[KeyState]:
    """Return the state of client keys. Raises UsageStoreError."""
    in_file, states = {key.name for key in settings.client_keys}, list[KeyState]()
    for first in range(0, len(keys), _AT_ONCE):
        some = keys[first : first + _AT_ONCE]
        uses = await usage.key_uses([key.name for key in some])
        states += [
            KeyState(
                **each,
                **msgspec.structs.asdict(key_total(use)),
                group=key.group,
                state=key.state(now, settings.groups_by_name),
                expires=_end_text(key.expires),
                previous_expires=_end_text(key.previous_expires),
                last_used=time_text(use.last_used) if use.last_used else None,
                source="file" if key.name in in_file else "store",
            )
            for key, use, each in zip(some, uses, await limits_of(some, limits), strict=True)
        ]
        await anyio.lowlevel.checkpoint()
    return states


def _end_text(end: datetime | None) -> str | None:
    return None if end is None else time_text(end.timestamp())
