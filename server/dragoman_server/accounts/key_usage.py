"""Count what the requests of each client key have used, for the operator.

No request waits for that: it is counted in memory, and written to the account store soon after. So what the last
second has added is lost if the process is killed.
"""

import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import anyio

from dragoman_server.accounts.stores.base import AccountStore, AccountStoreError, KeyUse
from dragoman_server.accounts.stores.operations import KeyUses
from dragoman_server.platform.changes import Changes
from dragoman_server.upstream.background import BackgroundTaskGroup

_log = logging.getLogger("dragoman.accounts")

# Seconds between writes while requests come.
WRITE_INTERVAL_S = 1.0
# The store has its own deadline. This one is for a store that does not meet it.
_STORE_S = 5.0


class KeyUsage(BackgroundTaskGroup):
    """What each client key has used, in the account store and not yet there."""

    def __init__(self, store: AccountStore) -> None:
        self._store = store
        self._counted: defaultdict[str, KeyUse] = defaultdict(KeyUse)
        self._changes = Changes()

    def count(self, key: str, tokens: int, cost_usd: float, now: float) -> None:
        """Count a request that has ended. now: seconds since the epoch."""
        self._counted[key] = self._counted[key].plus(KeyUse(1, tokens, cost_usd, now))
        self._changes.note()

    async def totals(self, keys: Sequence[str]) -> list[KeyUse] | None:
        """Return what these keys have used, None if the store does not work."""
        await self._write()
        try:
            with anyio.fail_after(_STORE_S):
                return await self._store.apply(KeyUses(keys))
        except (AccountStoreError, TimeoutError):
            return None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Write to the store inside of this block, and the rest at its end."""
        async with super().running():
            assert self._tasks is not None
            self._tasks.start_soon(self._write_often)
            try:
                yield
            finally:
                with anyio.CancelScope(shield=True):  # bounded by _STORE_S
                    await self._write()

    async def _write_often(self) -> None:
        while True:
            while not self._counted:
                await self._changes.wait()
            await anyio.sleep(WRITE_INTERVAL_S)
            await self._write()

    async def _write(self) -> None:
        with anyio.move_on_after(_STORE_S) as scope:
            while self._counted:
                # What has failed is not written again, because it may have been counted.
                key, use = self._counted.popitem()
                try:
                    await self._store.apply(KeyUses([key], use))
                except AccountStoreError as error:
                    _log.warning("what a client key has used is not counted: %s", error)
        if scope.cancelled_caught:
            _log.warning("what a client key has used is not counted: no response in time")
