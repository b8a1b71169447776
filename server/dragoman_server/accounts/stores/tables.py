"""What account stores in memory and in a file have in common: when an account has room, and what each call changes.

The scripts of the store on a server do the same sums in the same order, so that all results are equal to the last bit.

A rate is stored as one number, the time at which it will have filled again (the "theoretical arrival time" of the
generic cell rate algorithm): it has room as long as that is not further ahead than the rate's period.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

import msgspec

from dragoman_server.accounts.health import INITIAL_HEALTH, Health
from dragoman_server.accounts.stores.base import (
    Candidate,
    Counter,
    KeyUse,
    NoRoom,
    Rate,
    Reservation,
    in_order,
)

# A lease, or money of a budget, that was not given back is free after this time, because its gateway has died. Longer
# than nearly all responses, and no longer than an operator would wait.
LEASE_S = 900.0

# A conversation stays with its account for this time after its last request: as long as providers hold prompt caches.
CONVERSATION_S = 3600.0

# Clients decide how many conversations there are. An entry takes some hundred bytes; the least recently used goes
# first.
MAX_CONVERSATIONS = 100_000

# An account with too many requests at once has room again when one of them ends, and that time is unknown.
LEASE_RETRY_S = 1.0

# Seconds since the epoch are exact to a quarter of a microsecond in a float, and a burst adds that up.
TOLERANCE_S = 1e-3

NEVER = math.inf

_T = TypeVar("_T")


def with_last_use(health: Health, now: float) -> Health:
    """Return the state of an account that is chosen now."""
    return msgspec.structs.replace(health, last_used=now)


class TableStore(ABC):
    """The methods of AccountStore that read and write. Subclasses have the tables."""

    async def reserve(
        self, candidates: Sequence[Candidate], conversation: str | None, lease: str, now: float
    ) -> Reservation | NoRoom:
        return await self._call(partial(self._reserve, candidates, conversation, lease, now))

    async def release(self, reservation: Reservation, tokens: float, now: float) -> None:
        await self._call(partial(self._release, reservation, tokens, now))

    async def change(
        self, account: str, change: Callable[[Health], Health], *, repeatable: bool = True
    ) -> None:
        before = self._health_of(account)
        if change(before) is not before:
            await self._call(partial(self._change, account, change))

    async def spend(self, rates: Sequence[tuple[Rate, float]], now: float, *, at_once: bool) -> float:
        return await self._call(partial(self._spend, rates, now, at_once))

    async def add(self, counter: str, amount: float, expires: float | None) -> None:
        await self._call(partial(self._add, counter, amount, NEVER if expires is None else expires))

    async def add_within(
        self, counters: Sequence[Counter], amount: float, limit: float, now: float
    ) -> list[float]:
        return await self._call(partial(self._add_within, counters, amount, limit, now))

    async def total(self, counter: str, now: float) -> float:
        return await self._call(partial(self._total, counter, now))

    async def add_key_use(self, key: str, use: KeyUse) -> None:
        await self._call(partial(self._add_key_use, key, use))

    async def key_uses(self, keys: Sequence[str]) -> list[KeyUse]:
        return await self._call(lambda: [self._key_use(key) for key in keys])

    def _reserve(
        self, candidates: Sequence[Candidate], conversation: str | None, lease: str, now: float
    ) -> Reservation | NoRoom:
        if conversation is not None and (account := self._account_of(conversation, now)) is not None:
            candidates = [*[each for each in candidates if each.account == account], *candidates]
        available_at = NEVER
        for candidate in candidates:
            at = self._available_at(candidate, now)
            if not at:
                self.record_use(candidate, conversation, lease, now)
                return Reservation(candidate, lease)
            available_at = min(available_at, at)
        return NoRoom(available_at)

    def _available_at(self, candidate: Candidate, now: float) -> float:
        """Return 0 if the account has room now, otherwise the time at which it does, which may be NEVER."""
        health = self._health_of(candidate.account)
        if health.disabled is not None:
            return NEVER
        at = health.cooldown_until if health.cooldown_until > now else 0.0
        # The number of tokens is not known yet, so it is enough that there is no debt.
        for rate, amount in ((candidate.requests, 1.0), (candidate.tokens, 0.0)):
            if rate is not None:
                at = max(at, self._rate_available_at(rate, amount, now))
        most = candidate.max_concurrent_requests
        if most is not None and self._leases(candidate.account, now) >= most:
            at = max(at, now + LEASE_RETRY_S)
        return at

    def record_use(self, candidate: Candidate, conversation: str | None, lease: str, now: float) -> None:
        """Record that a request is sent with this account, also if another store has decided that."""
        account = candidate.account
        if candidate.requests is not None:
            self._count(candidate.requests, 1.0, now)
        if candidate.max_concurrent_requests is not None:
            self._put_lease(account, lease, now + LEASE_S)
        if conversation is not None:
            self._put_conversation(conversation, account, now)
        self._put_health(account, with_last_use(self._health_of(account), now))

    def _release(self, reservation: Reservation, tokens: float, now: float) -> None:
        candidate = reservation.candidate
        if candidate.max_concurrent_requests is not None:
            self._drop_lease(candidate.account, reservation.lease)
        if candidate.tokens is not None and tokens:
            self._count(candidate.tokens, tokens, now)

    def _change(self, account: str, change: Callable[[Health], Health]) -> None:
        before = self._health_of(account)
        health = change(before)
        if health is not before:
            self._put_health(account, health)

    def _spend(self, rates: Sequence[tuple[Rate, float]], now: float, at_once: bool) -> float:
        if at_once:
            available_at = max((self._rate_available_at(*each, now) for each in rates), default=0.0)
            if available_at:
                return available_at
        for rate, amount in rates:
            self._count(rate, amount, now)
        if at_once:
            return 0.0
        return max((self._rate_available_at(rate, 0.0, now) for rate, _ in rates), default=0.0)

    def _add_within(
        self, counters: Sequence[Counter], amount: float, limit: float, now: float
    ) -> list[float]:
        before = [self._total(counter, now) for counter, _ in counters]
        if in_order(before) <= limit:
            counter, expires = counters[0]
            self._add(counter, amount, NEVER if expires is None else expires)
        return before

    def _add_key_use(self, key: str, use: KeyUse) -> None:
        # As counters, so that files of earlier versions stay valid.
        before = self._key_use(key)
        amounts = msgspec.structs.asdict(use)
        amounts["last_used"] = max(use.last_used - before.last_used, 0.0)
        for name, amount in amounts.items():
            if amount:
                self._add(f"use:{key}:{name}", amount, NEVER)

    def _key_use(self, key: str) -> KeyUse:
        return KeyUse(*[self._total(f"use:{key}:{name}", 0.0) for name in KeyUse.__struct_fields__])

    def _rate_available_at(self, rate: Rate, amount: float, now: float) -> float:
        """Return 0 if the amount fits now, otherwise the time at which it does. A full rate fits any amount."""
        filled = max(self._filled(rate.key), now)
        at = filled + min(amount, rate.limit) * rate.period_s / rate.limit - rate.period_s
        return 0.0 if at <= now + TOLERANCE_S else at

    def _count(self, rate: Rate, amount: float, now: float) -> None:
        filled = max(self._filled(rate.key), now)
        self._put_filled(rate.key, filled + amount * rate.period_s / rate.limit)

    def _health_of(self, account: str) -> Health:
        return self.health().get(account, INITIAL_HEALTH)

    # The tables.

    @abstractmethod
    async def _call(self, function: Callable[[], _T]) -> _T:
        """Call a function that reads and writes, as one step."""

    @abstractmethod
    def health(self) -> Mapping[str, Health]:
        """See AccountStore."""

    @abstractmethod
    def _put_health(self, account: str, health: Health) -> None: ...

    @abstractmethod
    def _filled(self, rate: str) -> float:
        """Return when a rate will have filled again, 0 for one that was never used."""

    @abstractmethod
    def _put_filled(self, rate: str, filled: float) -> None: ...

    @abstractmethod
    def _leases(self, account: str, now: float) -> int:
        """Return the number of requests that run with the account."""

    @abstractmethod
    def _put_lease(self, account: str, lease: str, expires: float) -> None: ...

    @abstractmethod
    def _drop_lease(self, account: str, lease: str) -> None: ...

    @abstractmethod
    def _account_of(self, conversation: str, now: float) -> str | None: ...

    @abstractmethod
    def _put_conversation(self, conversation: str, account: str, now: float) -> None:
        """Record the account of a conversation. The least recently used ones are dropped if there are too many."""

    @abstractmethod
    def _add(self, counter: str, amount: float, expires: float) -> None: ...

    @abstractmethod
    def _total(self, counter: str, now: float) -> float: ...
