"""Count what requests use, and write it to the usage store.

No request waits for that: it is counted in memory, and written twice a second. So if the process is killed, at most
what the last second has added is lost. A store that does not work costs no request: what it could not take is kept for
the next attempt, and one line in the log says so.
"""

import logging
import os
from bisect import bisect_left
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TypeVar

import anyio

from dragoman_server.log import ERROR_OUTCOMES, RequestRecord
from dragoman_server.platform.changes import Changes, Lock
from dragoman_server.platform.task_group import BackgroundTaskGroup
from dragoman_server.telemetry.metrics import OTHER
from dragoman_server.usage.stores.base import (
    FIRST_BYTE_BOUNDS,
    HOUR_S,
    KeyUse,
    UsageBatch,
    UsageCounts,
    UsageGroup,
    UsageLabels,
    UsageQuery,
    UsageStore,
    UsageStoreError,
)
from dragoman_server.usage.stores.sqlite import SQLiteUsageStore

_log = logging.getLogger("dragoman.usage")

# Seconds between writes while requests come. A request that comes during a write waits for it, this time, and its own
# write, which together have to be less than a second.
WRITE_INTERVAL_S = 0.5
# For a write or a read. A file or server that takes longer does not work.
_STORE_S = 5.0

# Rows that wait to be written, a few hundred bytes each. While the store does not work, further ones are not counted.
MAX_WAITING = 10_000

# Models of an hour that no configuration and no upstream's list names, but that an upstream has accepted: local servers
# accept any name, and it comes from the client.
MAX_UNLISTED = 200
_MAX_NAME_LENGTH = 200

_T = TypeVar("_T")


class UsageRecorder(BackgroundTaskGroup):
    """What requests have used: in the store, and not yet there.

    Args:
        label: returns the name of an upstream's model if it is known, OTHER if not, "" for none.
        max_age_s: age at which rows are dropped.
    """

    def __init__(
        self, store: UsageStore, label: Callable[[str | None, str | None], str], max_age_s: float
    ) -> None:
        self._store = store
        self._label = label
        self._max_age_hours = int(max_age_s // HOUR_S)
        self._counted: dict[UsageLabels, UsageCounts] = {}
        self._last_used: dict[str, float] = {}  # by client key
        self._unlisted: set[tuple[str | None, str]] = set()
        self._unlisted_hour = 0
        self._batch: UsageBatch | None = None  # that the store has not confirmed
        self._changes = Changes()
        self._writing = Lock()
        self._failed = False

    def count(self, record: RequestRecord, now: float) -> None:
        """Count a request that has ended. Its record is complete. now: seconds since the epoch."""
        hour, key = int(now) // HOUR_S, record.client_key or ""
        model = self._label(record.upstream, record.upstream_model)
        if model == OTHER:
            model = self._accepted(record, hour)
        labels = UsageLabels(hour, key, record.upstream or "", record.account or "", model)
        counts = self._counted.get(labels)
        if counts is None:
            counts = UsageCounts()
            if len(self._counted) < MAX_WAITING:
                self._counted[labels] = counts
                self._changes.note()
        counts.requests += 1
        if record.outcome in ERROR_OUTCOMES:
            counts.errors += 1
        counts.input_tokens += record.input_tokens or 0
        counts.output_tokens += record.output_tokens or 0
        if record.cached_tokens:
            counts.cached_tokens += record.cached_tokens
        if record.cache_write_tokens:
            counts.cache_write_tokens += record.cache_write_tokens
        if record.reasoning_tokens:
            counts.reasoning_tokens += record.reasoning_tokens
        if record.cost_usd is not None:
            counts.cost_usd += record.cost_usd
        elif record.input_tokens or record.output_tokens:
            counts.unpriced += 1
        first = record.first_content_s or record.first_byte_s
        if first is not None and record.outcome == "completed":
            counts.first_byte[bisect_left(FIRST_BYTE_BOUNDS, first)] += 1
        self._last_used[key] = now

    def _accepted(self, record: RequestRecord, hour: int) -> str:
        """Return the name of a model that is not known, if the upstream has accepted it and there are not too many."""
        name = record.upstream_model or ""
        # Not printable is half a surrogate pair, too, which is no text for a store.
        if record.status != 200 or len(name) > _MAX_NAME_LENGTH or not name.isprintable():
            return OTHER
        if hour != self._unlisted_hour:
            self._unlisted, self._unlisted_hour = set(), hour
        if len(self._unlisted) < MAX_UNLISTED:
            self._unlisted.add((record.upstream, name))
        return name if (record.upstream, name) in self._unlisted else OTHER

    async def read(self, query: UsageQuery) -> list[UsageGroup]:
        """Return the groups of a query: see UsageStore. Raises UsageStoreError."""
        return await self._read(lambda: self._store.read(query))

    async def key_uses(self, keys: Sequence[str]) -> list[KeyUse]:
        """Return what these client keys have used in all. Raises UsageStoreError."""
        return await self._read(lambda: self._store.key_uses(keys))

    async def _read(self, read: Callable[[], Awaitable[_T]]) -> _T:
        """Return what the store returns, with all that was counted so far."""
        try:
            with anyio.fail_after(_STORE_S):
                await self._write()
                return await read()
        except TimeoutError:
            raise UsageStoreError(f"the usage store did not respond within {_STORE_S:g} s") from None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Write to the store inside of this block, and the rest at its end. A store that cannot be used is replaced."""
        async with AsyncExitStack() as stack:
            try:
                await stack.enter_async_context(self._store.running())
            except UsageStoreError as error:
                _log.warning("usage is counted in memory only, and lost when the gateway ends: %s", error)
                self._store = SQLiteUsageStore(None)
                await stack.enter_async_context(self._store.running())
            await stack.enter_async_context(super().running())
            self.tasks.start_soon(self._write_often)
            try:
                yield
            finally:
                with anyio.move_on_after(_STORE_S, shield=True):
                    await self._write()
                    await self._write()  # what was counted while the last batch was not confirmed

    async def _write_often(self) -> None:
        while True:
            while not (self._counted or self._batch):
                await self._changes.wait()
            await anyio.sleep(WRITE_INTERVAL_S)
            await self._write()

    async def _write(self) -> None:
        """Write what was counted, or the batch that was not confirmed."""
        async with self._writing:
            batch = self._batch = self._batch or self._next_batch()
            if batch is None:
                return
            try:
                with anyio.fail_after(_STORE_S):
                    await self._store.add(batch)
            except (UsageStoreError, TimeoutError) as error:
                if not self._failed:
                    reason = str(error) or "no response in time"
                    _log.warning("usage is not written, and tried again: %s", reason)
                self._failed = True
                return
            except (
                Exception
            ):  # of a value that no store can write: the task of all requests must not end with it
                _log.exception("usage could not be written, and is left out")
            self._batch = None
            if self._failed:
                self._failed = False
                _log.info("usage is written again")

    def _next_batch(self) -> UsageBatch | None:
        rows, self._counted = self._counted, {}
        last_used, self._last_used = self._last_used, {}
        if not rows:
            return None
        keys: dict[str, KeyUse] = {}
        for labels, counts in rows.items():
            if labels.key:
                tokens = counts.input_tokens + counts.output_tokens
                use = KeyUse(counts.requests, tokens, counts.cost_usd, last_used[labels.key])
                keys[labels.key] = keys.get(labels.key, KeyUse()).plus(use)
        newest = max(labels.hour for labels in rows)
        return UsageBatch(os.urandom(8).hex(), rows, keys, newest - self._max_age_hours)
