"""What commands read from the stores without a gateway, and change in them. It takes a while to import."""

import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import anyio
import msgspec

from dragoman_server.accounts.limits import ClientLimits
from dragoman_server.accounts.stored_keys import KeyClash, StoredKeys, UnknownKey, all_keys
from dragoman_server.accounts.stores.base import AccountStore, AccountStoreError
from dragoman_server.cli.options import FAILURE, exit_with
from dragoman_server.gateway import make_account_store, make_usage_store
from dragoman_server.http.admin.keys import keys_json
from dragoman_server.http.usage import limits_of
from dragoman_server.settings import ClientKey, ServerSettings, Settings
from dragoman_server.usage.stores.base import UsageStore, UsageStoreError

_T = TypeVar("_T")


class UsageUnavailable(Exception):
    """There is no usage that could be read. The text says why."""


# A store does not work, or is the memory of the gateway.
STORE_ERRORS = (AccountStoreError, UsageStoreError, UsageUnavailable, OSError)
# A change of a key that is not possible.
REFUSALS = (KeyClash, UnknownKey)


def change_stored(settings: Settings, change: Callable[[StoredKeys], Awaitable[_T]]) -> _T:
    """Return what a change of the keys in the store returns. Raises STORE_ERRORS and what the change raises."""
    return _with_store(settings, lambda store: change(StoredKeys(store)))


def read_keys(settings: Settings) -> list[ClientKey]:
    """Return all keys: those of the configuration, and those in the store. Raises STORE_ERRORS."""
    if not settings.server.stored_keys:
        return [*settings.client_keys]

    async def read(store: AccountStore) -> list[ClientKey]:
        stored = StoredKeys(store)
        await stored.refresh()
        return all_keys(settings, stored)

    return _with_store(settings, read)


def keys_or_exit(settings: Settings) -> list[ClientKey]:
    """Return all keys, or print why those in the store are not known and exit."""
    try:
        return read_keys(settings)
    except STORE_ERRORS as error:
        exit_with(FAILURE, f"the keys in the account store are not known: {error}")


def stored_usage(server: ServerSettings) -> UsageStore:
    """Return the store of usage, to read it without a gateway. server: with the file of usage.with_usage_file().

    Raises UsageUnavailable if there is none.
    """
    if server.usage_store in (None, "memory"):
        raise UsageUnavailable("usage is in the memory of the gateway")
    path = server.usage_store_path
    if server.usage_store == "sqlite" and path is not None and not Path(path).exists():
        raise UsageUnavailable(f"nothing was counted yet: there is no file {path}")
    return make_usage_store(server)


def read_used(settings: Settings, keys: list[ClientKey]) -> dict[str, list[dict[str, Any]]]:
    """Return what /admin/keys does for these keys. Raises STORE_ERRORS."""
    usage = stored_usage(settings.server)

    async def read(store: AccountStore) -> dict[str, list[dict[str, Any]]]:
        async with usage.running():
            limits = ClientLimits(settings, store)
            found = await keys_json(settings, keys, usage, limits, time.time())
        rows = [msgspec.structs.asdict(key) for key in found]
        return {"keys": rows, "groups": await limits_of(settings.groups, limits)}

    used = _with_store(settings, read)
    if settings.server.account_store == "memory":  # of the gateway, which counts budgets there
        unknown = {"budget_spent": None, "budget_left": None}
        used = {name: [{**row, **unknown} for row in rows] for name, rows in used.items()}
    return used


def _with_store(settings: Settings, use: Callable[[AccountStore], Awaitable[_T]]) -> _T:
    async def run() -> _T:
        store = make_account_store(settings.server)
        async with store.running():
            return await use(store)

    return anyio.run(run)
