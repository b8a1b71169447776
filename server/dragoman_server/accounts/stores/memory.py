"""An account store in the memory of one process. Its state is lost when the process ends."""

from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

from dragoman_server.accounts.health import INITIAL_HEALTH, Health
from dragoman_server.accounts.stores.base import Candidate, NoRoom, Rate, Reservation
from dragoman_server.accounts.stores.rate_limits import (
    CONVERSATION_S,
    LEASE_S,
    MAX_CONVERSATIONS,
    NEVER,
    account_available_at,
    consume,
    put_first,
    rate_available_at,
    with_last_use,
)


class MemoryAccountStore:
    """See AccountStore. Never raises AccountStoreError.

    It grows with the accounts, rates and counters that there are; conversations are bounded.
    """

    def __init__(self, *, max_conversations: int = MAX_CONVERSATIONS) -> None:
        self._max_conversations = max_conversations
        self._health: dict[str, Health] = {}
        self._filled: dict[str, float] = {}  # by the rate's key, see rate_available_at()
        self._leases: dict[str, dict[str, float]] = {}  # by account: when each of them expires
        # The account and when it expires, the least recently used first.
        self._conversations: OrderedDict[str, tuple[str, float]] = OrderedDict()
        self._counters: dict[str, tuple[float, float]] = {}  # the sum, and when it expires

    def health(self) -> Mapping[str, Health]:
        return self._health

    async def reserve(
        self, candidates: Sequence[Candidate], conversation: str | None, lease: str, now: float
    ) -> Reservation | NoRoom:
        available_at = NEVER
        for candidate in put_first(candidates, self._account_of(conversation, now)):
            health = self._health.get(candidate.account, INITIAL_HEALTH)
            leases = self._leases_of(candidate.account, now)
            at = account_available_at(candidate, health, self._filled, len(leases), now)
            if not at:
                self.record_use(candidate, conversation, lease, now)
                return Reservation(candidate.account, lease)
            available_at = min(available_at, at)
        return NoRoom(available_at)

    def record_use(self, candidate: Candidate, conversation: str | None, lease: str, now: float) -> None:
        """Record that a request is sent with this account, also if another store has decided that."""
        account = candidate.account
        if candidate.requests is not None:
            self._count(candidate.requests, 1.0, now)
        if candidate.max_concurrent_requests is not None:
            self._leases.setdefault(account, {})[lease] = now + LEASE_S
        self._health[account] = with_last_use(self._health.get(account, INITIAL_HEALTH), now)
        if conversation is not None:
            self._conversations[conversation] = account, now + CONVERSATION_S
            self._conversations.move_to_end(conversation)
            if len(self._conversations) > self._max_conversations:
                self._conversations.popitem(last=False)

    async def release(
        self, reservation: Reservation, candidate: Candidate, tokens: float, now: float
    ) -> None:
        self._leases.get(reservation.account, {}).pop(reservation.lease, None)
        if candidate.tokens is not None and tokens:
            self._count(candidate.tokens, tokens, now)

    async def change(
        self, account: str, change: Callable[[Health], Health], *, repeatable: bool = True
    ) -> None:
        before = self._health.get(account, INITIAL_HEALTH)
        health = change(before)
        if health is not before:
            self._health[account] = health

    def replace_health(self, account: str, health: Health | None) -> None:
        """Take over another store's state of an account. None for an unused one."""
        if health is None:
            self._health.pop(account, None)
        else:
            self._health[account] = health

    async def spend(self, rates: Sequence[tuple[Rate, float]], now: float, *, at_once: bool) -> float:
        if at_once:
            available_at = self._available_at(rates, now)
            if available_at:
                return available_at
        for rate, amount in rates:
            self._count(rate, amount, now)
        return 0.0 if at_once else self._available_at([(rate, 0.0) for rate, _ in rates], now)

    def _available_at(self, rates: Sequence[tuple[Rate, float]], now: float) -> float:
        ends = (
            rate_available_at(rate, self._filled.get(rate.key, 0.0), amount, now) for rate, amount in rates
        )
        return max(ends, default=0.0)

    async def add(self, counter: str, amount: float, expires: float | None) -> None:
        known, _ = self._counters.get(counter, (0.0, NEVER))
        self._counters[counter] = known + amount, NEVER if expires is None else expires

    async def total(self, counter: str, now: float) -> float:
        for each in [each for each, (_, expires) in self._counters.items() if expires <= now]:
            del self._counters[each]
        return self._counters.get(counter, (0.0, NEVER))[0]

    def replace_total(self, counter: str, amount: float) -> None:
        """Take over another store's sum of a counter."""
        _, expires = self._counters.get(counter, (0.0, NEVER))
        self._counters[counter] = amount, expires

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        yield

    def _count(self, rate: Rate, amount: float, now: float) -> None:
        self._filled[rate.key] = consume(rate, self._filled.get(rate.key, 0.0), amount, now)

    def _leases_of(self, account: str, now: float) -> Mapping[str, float]:
        leases = self._leases.get(account, {})
        for lease in [lease for lease, expires in leases.items() if expires <= now]:
            del leases[lease]
        return leases

    def _account_of(self, conversation: str | None, now: float) -> str | None:
        if conversation is None or conversation not in self._conversations:
            return None
        account, expires = self._conversations[conversation]
        return account if expires > now else None
