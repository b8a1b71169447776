"""Use an account store that may be slow or down, with the memory of this process as the fallback.

Every call has a deadline. When the store fails, this gateway decides from its own memory, which has the same
requests. After a few consecutive failures the store is no longer called (the circuit breaker is open): a task probes
it from time to time, so that no request waits for that, and writes what the store has missed before it is used again.

A call that timed out may have taken effect, so it is retried only if that does no harm: a cooldown or a lease that is
given back, never tokens or money.
"""

import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

import anyio

from dragoman_server.accounts.health import INITIAL_HEALTH, Health
from dragoman_server.accounts.stores.base import (
    AccountStore,
    AccountStoreError,
    Candidate,
    Counter,
    KeyUse,
    NoRoom,
    Rate,
    Reservation,
    in_order,
)
from dragoman_server.accounts.stores.memory import MemoryAccountStore

LOG = logging.getLogger("dragoman.accounts")

_T = TypeVar("_T")
_Call: TypeAlias = Callable[[AccountStore], Awaitable[_T]]

# A request waits no longer than this for a store, because a worse choice of account costs less.
DEADLINE_S = 0.05
# Consecutive failures that open the circuit breaker.
_MAX_FAILURES = 3
# Seconds between probes while the store does not respond.
_PROBE_S = 0.25
# Writes that the store has missed. The oldest are dropped, because they are out of date.
_MAX_PENDING = 1000
# Tries of one write, so that one which never works does not block all others.
_MAX_TRIES = 3


class StoreUnavailable(Exception):
    """The store did not respond. sent: the call may have taken effect."""

    def __init__(self, *, sent: bool) -> None:
        self.sent = sent


@dataclass(slots=True)
class PendingWrite:
    """A write that the store has missed. retry: the call to make after `call` had no result, None for none."""

    call: _Call[object]
    retry: _Call[object] | None
    tries: int = 0


class ResilientStore:
    """See AccountStore. Never raises AccountStoreError.

    store: the one that may fail. local: the fallback. deadline_s: for each call.
    local_decisions: how often a decision was made without the store.
    """

    def __init__(
        self, store: AccountStore, local: MemoryAccountStore, deadline_s: float = DEADLINE_S
    ) -> None:
        self.local_decisions = 0
        self._store = store
        self._local = local
        self._deadline_s = deadline_s
        self._failures = 0  # consecutive
        self._open = False
        self._pending: deque[PendingWrite] = deque(maxlen=_MAX_PENDING)
        # Accounts whose state in the local memory is newer than in the store's view.
        self._changed: set[str] = set()
        self._needs_catch_up = anyio.Event()  # set: the store has missed a write

    @property
    def is_open(self) -> bool:
        """True while the store is not called."""
        return self._open

    def health(self) -> Mapping[str, Health]:
        view = self._store.health()
        if not self._changed:
            return view
        known = self._local.health()
        return {**view, **{account: known[account] for account in self._changed if account in known}}

    async def reserve(
        self, candidates: Sequence[Candidate], conversation: str | None, lease: str, now: float
    ) -> Reservation | NoRoom:
        async def release(store: AccountStore) -> None:
            for each in candidates:
                if each.max_concurrent_requests is not None:
                    await store.release(Reservation(each, lease), 0.0, now)

        try:
            result = await self._call(
                lambda store: store.reserve(candidates, conversation, lease, now), release
            )
        except StoreUnavailable:
            self.local_decisions += 1
            self._copy_view(each.account for each in candidates)
            result = await self._local.reserve(candidates, conversation, lease, now)
            if isinstance(result, Reservation):
                self._changed.add(result.candidate.account)
            return result
        if isinstance(result, Reservation):
            self._local.record_use(result.candidate, conversation, lease, now)
        return result

    async def release(self, reservation: Reservation, tokens: float, now: float) -> None:
        candidate = reservation.candidate
        await self._local.release(reservation, tokens, now)
        if candidate.max_concurrent_requests is None and (candidate.tokens is None or not tokens):
            return
        await self._write(
            lambda store: store.release(reservation, tokens, now),
            lambda store: store.release(reservation, 0.0, now),
        )

    async def change(
        self, account: str, change: Callable[[Health], Health], *, repeatable: bool = True
    ) -> None:
        """See AccountStore. Until the store has the change, the local memory counts."""

        def call(store: AccountStore) -> Awaitable[None]:
            return store.change(account, change)

        known = self.health().get(account, INITIAL_HEALTH)
        if change(known) is not known and not await self._write(call, call if repeatable else None):
            self._copy_view([account])
            await call(self._local)
            self._changed.add(account)

    async def spend(self, rates: Sequence[tuple[Rate, float]], now: float, *, at_once: bool) -> float:
        def call(store: AccountStore) -> Awaitable[float]:
            return store.spend(rates, now, at_once=at_once)

        try:
            available_at = await self._call(call)
        except StoreUnavailable as error:
            self.local_decisions += 1
            if not at_once and not error.sent:
                self._queue(PendingWrite(call, None))
            return await self._local.spend(rates, now, at_once=at_once)
        if not (at_once and available_at):
            await self._local.spend(rates, now, at_once=False)
        return available_at

    async def add(self, counter: str, amount: float, expires: float | None) -> None:
        await self._local.add(counter, amount, expires)
        await self._write(lambda store: store.add(counter, amount, expires))

    async def add_within(
        self, counters: Sequence[Counter], amount: float, limit: float, now: float
    ) -> list[float]:
        def call(store: AccountStore) -> Awaitable[list[float]]:
            return store.add_within(counters, amount, limit, now)

        first, expires = counters[0]
        if self._pending:  # writes that the store has missed are not in its sums
            before = [await self._local.total(counter, now) for counter, _ in counters]
            if in_order(before) > limit:
                return before
        try:
            before = await self._call(call)
        except StoreUnavailable as error:
            self.local_decisions += 1
            before = await call(self._local)
            if in_order(before) <= limit and not error.sent:
                self._queue(PendingWrite(lambda store: store.add(first, amount, expires), None))
            return before
        for (counter, until), total in zip(counters, before, strict=True):
            self._local.replace_total(counter, total, until)
        if in_order(before) <= limit:
            await self._local.add(first, amount, expires)
        return before

    async def total(self, counter: str, now: float) -> float:
        try:
            amount = await self._call(lambda store: store.total(counter, now))
        except StoreUnavailable:
            self.local_decisions += 1
            return await self._local.total(counter, now)
        if self._pending:
            return max(amount, await self._local.total(counter, now))
        self._local.replace_total(counter, amount)
        return amount

    async def add_key_use(self, key: str, use: KeyUse) -> None:
        await self._local.add_key_use(key, use)
        await self._write(lambda store: store.add_key_use(key, use))

    async def key_uses(self, keys: Sequence[str]) -> list[KeyUse]:
        try:
            return await self._call(lambda store: store.key_uses(keys))
        except StoreUnavailable:
            return await self._local.key_uses(keys)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """See AccountStore. Raises what the wrapped store raises."""
        async with self._store.running(), anyio.create_task_group() as tasks:
            self._needs_catch_up.set()  # a store that is down from the start is detected at once
            tasks.start_soon(self._catch_up_loop)
            try:
                yield
            finally:
                tasks.cancel_scope.cancel()

    # Calls.

    async def _call(self, call: _Call[_T], retry: _Call[object] | None = None) -> _T:
        """Return the store's result. Raises StoreUnavailable. retry: made later if this call may have taken effect."""
        if self._open:
            raise StoreUnavailable(sent=False)
        try:
            result = await self._with_deadline(call)
        except (AccountStoreError, TimeoutError) as error:
            self._failed(error)
            self._queue(PendingWrite(retry, retry, 1) if retry else None)
            raise StoreUnavailable(sent=True) from error
        except anyio.get_cancelled_exc_class():
            self._queue(PendingWrite(retry, retry, 1) if retry else None)
            raise
        self._failures = 0
        return result

    async def _write(self, call: _Call[object], retry: _Call[object] | None = None) -> bool:
        """Make a write, or queue it as far as a retry does no harm. Return true if the store has it."""
        if self._open or self._pending:  # writes stay in their order
            self._queue(PendingWrite(call, retry))
            return False
        try:
            await self._call(call, retry)
        except StoreUnavailable:
            return False
        return True

    async def _with_deadline(self, call: _Call[_T]) -> _T:
        with anyio.fail_after(self._deadline_s):
            return await call(self._store)

    def _copy_view(self, accounts: Iterable[str]) -> None:
        """Copy the state of these accounts from the store's view to the local memory."""
        view = self._store.health()
        for account in accounts:
            if account not in self._changed:
                self._local.replace_health(account, view.get(account))

    # While the store is down.

    def _failed(self, error: Exception) -> None:
        self._failures += 1
        if self._failures >= _MAX_FAILURES and not self._open:
            self._open = True
            reason = str(error) or f"no response within {self._deadline_s * 1000:g} ms"
            LOG.warning(
                "the account store does not work; this gateway decides from its own memory: %s", reason
            )
        self._queue(None)

    def _queue(self, write: PendingWrite | None) -> None:
        if write is not None:
            self._pending.append(write)
        self._needs_catch_up.set()

    async def _catch_up_loop(self) -> None:
        while True:
            await self._needs_catch_up.wait()
            if not await self._catch_up():
                await anyio.sleep(_PROBE_S)
                continue
            self._changed.clear()
            self._failures = 0
            self._needs_catch_up = anyio.Event()
            if self._open:
                self._open = False
                LOG.info(
                    "the account store works again, after %d local decisions in all", self.local_decisions
                )

    async def _catch_up(self) -> bool:
        """Make all writes that the store has missed. Return false if it does not respond."""
        write: PendingWrite | None = None
        try:
            await self._with_deadline(_probe)
            while self._pending:
                write = self._pending.popleft()
                await self._with_deadline(write.call)
        except (AccountStoreError, TimeoutError) as error:
            retry = None if write is None or write.tries + 1 == _MAX_TRIES else write.retry
            # If newer ones have taken its place, it is out of date.
            if write is not None and retry is not None and len(self._pending) < _MAX_PENDING:
                self._pending.appendleft(PendingWrite(retry, retry, write.tries + 1))
            self._failed(error)
            return False
        return True


async def _probe(store: AccountStore) -> None:
    await store.reserve((), None, "", 0.0)
