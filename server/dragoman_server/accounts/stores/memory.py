"""Accounts in the memory of one process. What is known of them is gone when it ends."""

from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

from dragoman_server.accounts.error_actions import Verdict
from dragoman_server.accounts.health import Health, Rest
from dragoman_server.accounts.stores.base import Candidate, NoRoom, Rate, Taken
from dragoman_server.accounts.stores.rate_limits import (
    CONVERSATION_S,
    LEASE_S,
    MAX_CONVERSATIONS,
    NEVER,
    coarse,
    counted,
    fits_at,
    opens_at,
    preferred,
    used_at,
)

_FRESH = Health()


class MemoryAccounts:
    """See AccountStore. Never raises AccountStoreError.

    It grows with the accounts, rates and counters that there are; conversations are bounded.
    """

    def __init__(self, *, max_conversations: int = MAX_CONVERSATIONS) -> None:
        self._max_conversations = max_conversations
        self._health: dict[str, Health] = {}
        self._filled: dict[str, float] = {}  # by the rate's key, see fits_at()
        self._leases: dict[str, dict[str, float]] = {}  # by account: when each of them expires
        # The account and when it expires, the one unused for longest first.
        self._conversations: OrderedDict[str, tuple[str, float]] = OrderedDict()
        self._counters: dict[str, tuple[float, float]] = {}  # the sum, and when it expires

    def health(self) -> Mapping[str, Health]:
        return self._health

    async def take(
        self, candidates: Sequence[Candidate], conversation: str | None, lease: str, now: float
    ) -> Taken | NoRoom:
        opens = NEVER
        for candidate in preferred(candidates, self._account_of(conversation, now)):
            health = self._health.get(candidate.account, _FRESH)
            leases = self._leases_of(candidate.account, now)
            at = opens_at(candidate, health, self._filled, len(leases), now)
            if not at:
                self.note(candidate, conversation, lease, now)
                return Taken(candidate.account, lease)
            opens = min(opens, at)
        return NoRoom(opens)

    def note(self, candidate: Candidate, conversation: str | None, lease: str, now: float) -> None:
        """A request is on its way with this account, whoever decided that."""
        account = candidate.account
        if candidate.requests is not None:
            self._count(candidate.requests, 1.0, now)
        if candidate.most_at_once is not None:
            self._leases.setdefault(account, {})[lease] = now + LEASE_S
        self._health[account] = used_at(self._health.get(account, _FRESH), now)
        if conversation is not None:
            self._conversations[conversation] = account, now + CONVERSATION_S
            self._conversations.move_to_end(conversation)
            if len(self._conversations) > self._max_conversations:
                self._conversations.popitem(last=False)

    async def give_back(self, taken: Taken, candidate: Candidate, tokens: float, now: float) -> None:
        self._leases.get(taken.account, {}).pop(taken.lease, None)
        if candidate.tokens is not None and tokens:
            self._count(candidate.tokens, tokens, now)

    async def failed(
        self,
        account: str,
        verdict: Verdict,
        cause: str,
        now: float,
        *,
        after: float | None,
        draw: float,
        rest: Rest,
    ) -> None:
        before = self._health.get(account, _FRESH)
        health = before.after_failure(verdict, cause, now, after=after, draw=draw, rest=rest)
        if health is not before:
            self._health[account] = health

    async def succeeded(self, account: str, *, remaining: float | None) -> None:
        before = self._health.get(account, _FRESH)
        health = before.after_success(remaining=coarse(remaining))
        if health is not before:
            self._health[account] = health

    async def disable(self, account: str, cause: str) -> None:
        before = self._health.get(account, _FRESH)
        self._health[account] = before.after_failure(Verdict.DISABLE, cause, 0.0)

    async def reset(self, account: str) -> None:
        self._health[account] = self._health.get(account, _FRESH).after_reset()

    def learn(self, account: str, health: Health | None) -> None:
        """What somebody else knows of an account, in the place of what was known here. None for nothing."""
        if health is None:
            self._health.pop(account, None)
        else:
            self._health[account] = health

    async def spend(self, rates: Sequence[tuple[Rate, float]], now: float, *, at_once: bool) -> float:
        if at_once:
            opens = self._fit_at(rates, now)
            if opens:
                return opens
        for rate, amount in rates:
            self._count(rate, amount, now)
        return 0.0 if at_once else self._fit_at([(rate, 0.0) for rate, _ in rates], now)

    def _fit_at(self, rates: Sequence[tuple[Rate, float]], now: float) -> float:
        ends = (fits_at(rate, self._filled.get(rate.key, 0.0), amount, now) for rate, amount in rates)
        return max(ends, default=0.0)

    async def add(self, counter: str, amount: float, expires: float | None) -> None:
        known, _ = self._counters.get(counter, (0.0, NEVER))
        self._counters[counter] = known + amount, NEVER if expires is None else expires

    async def total(self, counter: str, now: float) -> float:
        for each in [each for each, (_, expires) in self._counters.items() if expires <= now]:
            del self._counters[each]
        return self._counters.get(counter, (0.0, NEVER))[0]

    def learn_total(self, counter: str, amount: float) -> None:
        """What somebody else has counted, in the place of what was counted here."""
        _, expires = self._counters.get(counter, (0.0, NEVER))
        self._counters[counter] = amount, expires

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        yield

    def _count(self, rate: Rate, amount: float, now: float) -> None:
        self._filled[rate.key] = counted(rate, self._filled.get(rate.key, 0.0), amount, now)

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
