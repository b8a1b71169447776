"""The client keys that are kept in the account store, in addition to the configuration's.

Each process has a view of them, which is REFRESH_S old at most; no request waits for the store. While the store does
not respond the view stays as it is, and a process that has had no response yet knows that it has none. A change is made
in the store alone: if that fails, nothing has changed, or the next refresh shows that it has.
"""

import logging
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import datetime

import anyio
import msgspec

from dragoman_server.accounts.prices import Prices
from dragoman_server.accounts.stores.base import AccountStore, AccountStoreError, apply_in_time
from dragoman_server.accounts.stores.operations import ReadKeyTables, WriteKeyTable
from dragoman_server.platform.task_group import BackgroundTaskGroup
from dragoman_server.settings import ClientKey, Settings
from dragoman_server.settings.checks import limit_problems
from dragoman_server.settings.client_keys import Changed, KeyChange, checked_table, make_key, table_of
from dragoman_server.settings.values import InvalidValue

_log = logging.getLogger("dragoman.accounts")

# Seconds between two looks at what others have changed: a revoked key is refused that soon.
REFRESH_S = 0.5
# Keys, so that a look at all of them never takes long.
MAX_STORED_KEYS = 5000
# Each failure means that another process has changed the same key at the same moment.
_MAX_TRIES = 5


class KeyClash(Exception):
    """The change does not fit the keys that are there."""


class UnknownKey(LookupError):
    """There is no key of this name."""


class StoredKeys(BackgroundTaskGroup):
    """The client keys in the account store.

    Attributes:
        keys: By name. Replaced as a whole when one has changed.
        is_known: The store has responded once.
    """

    def __init__(self, store: AccountStore) -> None:
        self.keys: Mapping[str, ClientKey] = {}
        self.is_known = False
        self._store = store
        self._tables: Mapping[str, str] = {"": "unknown"}
        self._fails = False

    async def refresh(self) -> None:
        """Look at the store. Raises AccountStoreError."""
        found = await apply_in_time(self._store, ReadKeyTables(self._tables[""]))
        if found is not None:
            keys = dict[str, ClientKey]()
            for name, table in found.items():
                known = self.keys.get(name) if table == self._tables.get(name) else _key_of(name, table)
                if known is not None:
                    keys[name] = known
            if self.keys and not keys:
                _log.warning("the account store has no client key any more; it had %d", len(self.keys))
            self._tables, self.keys = found, keys
        self.is_known = True

    # Changes. Each raises AccountStoreError, InvalidValue, and KeyClash for a key of the configuration.

    async def make(
        self, values: Mapping[str, object], settings: Settings, now: datetime
    ) -> tuple[str, ClientKey]:
        """Make a key, and return it with its settings. values: see make_key()."""
        plain, made = make_key(values, settings, now)
        groups = list(settings.groups_by_name)
        prices = bool(Prices(settings.prices, settings.upstreams))
        for path, text in limit_problems([((), made)], groups, with_prices=prices):
            raise InvalidValue(text, *path)

        def add(old: ClientKey | None) -> tuple[str, ClientKey]:
            if old is not None:
                raise KeyClash(f"there is already a client key named {made.name}")
            if len(self.keys) >= MAX_STORED_KEYS:
                raise KeyClash(f"there are {MAX_STORED_KEYS} client keys: revoke some first")
            return plain, made

        return await self._change(made.name, settings, add)

    async def change(self, name: str, settings: Settings, change: KeyChange[Changed]) -> Changed:
        """Change the key of this name. Raises UnknownKey as well."""

        def change_known(old: ClientKey | None) -> Changed:
            if old is None:
                raise UnknownKey(f"the account store has no client key {name[:100]!a}")
            return change(old, settings)

        return await self._change(name, settings, change_known)

    async def _change(
        self, name: str, settings: Settings, change: Callable[[ClientKey | None], Changed]
    ) -> Changed:
        if any(key.name == name for key in settings.client_keys):
            raise KeyClash(f"the client key {name} is in the configuration: change it there")
        for _ in range(_MAX_TRIES):
            await self.refresh()
            changed = change(self.keys.get(name))
            after = "" if changed[1] is None else msgspec.json.encode(table_of(changed[1])).decode()
            write = WriteKeyTable(name, self._tables.get(name, ""), after, uuid.uuid4().hex)
            if await apply_in_time(self._store, write):
                await self._refresh_or_log()  # it is made: whoever waits for a new key gets that
                return changed
        raise AccountStoreError(f"other processes kept changing the client key {name}")

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Follow the changes of others inside of this block."""
        await self._refresh_or_log()
        async with super().running():
            self.tasks.start_soon(self._refresh_often)
            yield

    async def _refresh_often(self) -> None:
        while True:
            await anyio.sleep(REFRESH_S)
            await self._refresh_or_log()

    async def _refresh_or_log(self) -> None:
        try:
            await self.refresh()
            self._fails = False
        except AccountStoreError as error:
            if not self._fails:  # one line each time that it fails
                _log.warning("changes of the client keys in the account store are not seen: %s", error)
            self._fails = True


def all_keys(settings: Settings, stored: StoredKeys | None) -> list[ClientKey]:
    """Return the keys of the configuration, and those of the store whose names it does not have."""
    names = {key.name for key in settings.client_keys}
    more = () if stored is None else stored.keys.values()
    return [*settings.client_keys, *(key for key in more if key.name not in names)]


def _key_of(name: str, table: str) -> ClientKey | None:
    """Return the key that a table in the store has, None for the version and for what this gateway cannot read."""
    try:
        return (
            ClientKey(**checked_table(msgspec.json.decode(table, type=dict[str, object]))) if name else None
        )
    except (InvalidValue, msgspec.DecodeError, TypeError) as error:
        _log.error("the client key %s in the account store is refused: %s", name, error)
        return None
