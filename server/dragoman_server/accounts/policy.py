"""Which account a request is sent with, and what follows when that fails.

Strategy: one small machine for one request. It is asked for the next step and told how it went; it knows the chain
of upstreams, which accounts were tried, and the table of verdicts. What is known of the accounts, the time and
chance come in with each question, so the same history gives the same steps. It sends nothing and remembers nothing
beyond its request: whoever drives it keeps the accounts' health, and says which of the offered accounts has room.

Rules: an account at most once a request, but for a resend, which counts; never one that is disabled or rests; at
most `most` attempts; none after content went out; the upstreams in the order of the chain.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import TypeAlias

import msgspec

from dragoman._wire.errors import WireError
from dragoman._wire.exceptions import LocalProtocolError
from dragoman_server.accounts.error_actions import ErrorAction, ErrorRule, classify
from dragoman_server.accounts.health import Health

MAX_ATTEMPTS = 10

_UNKNOWN = Health()

# After these the account is the same later, or out of use.
_LASTING = frozenset({ErrorAction.TRY_NEXT, ErrorAction.DISABLE})


class Selection(Enum):
    """In which order accounts are offered."""

    LEAST_RECENTLY_USED = "least_recently_used"
    WEIGHTED = "weighted"  # by chance, in proportion to the weights
    MOST_REMAINING = "most_remaining"  # by the share of the rate limit that is left; unknown counts as all


class Account(msgspec.Struct, frozen=True):
    """One account, as the machine needs to know it. weight: more than 0."""

    id: str
    weight: float = 1.0


class UpstreamAccounts(msgspec.Struct, frozen=True):
    """One upstream of the chain, with its accounts and its own rules."""

    accounts: tuple[Account, ...]
    selection: Selection = Selection.LEAST_RECENTLY_USED
    rules: tuple[ErrorRule, ...] = ()


class Offer(msgspec.Struct, frozen=True):
    """Send the request with the first of these accounts that has room: then call took(), or else full()."""

    upstream_index: int
    accounts: tuple[str, ...]


class Wait(msgspec.Struct, frozen=True):
    """Ask again then: an account comes back soon enough to be worth waiting for."""

    until: float


class GiveUp(msgspec.Struct, frozen=True):
    """Answer the client.

    fault: of the last attempt, or of the last one with an account that comes back by itself, if there was one: that
        is what clients try again after. None when there was no attempt to make.
    soonest: when the first account comes back, None when none will by itself or when that would not help.
    """

    error: WireError | None
    retry_at: float | None


AttemptStep: TypeAlias = Offer | Wait | GiveUp


class AttemptState(Enum):
    """Where a request stands."""

    CHOOSING = "choosing"
    OFFERED = "offered"
    TRYING = "trying"
    DONE = "done"  # content went out, or the client is to be answered


class Attempts:
    """The attempts of one request.

    Call next() and do what it says. After an Offer call took() or full(); after took() call failed(), dropped() or
    committed(), and before these resend() if the same account is to get the request again. While an attempt goes on,
    hedge() may give another one that runs beside it; until that offer is answered the first one may still fail or be
    committed, and the offer may be void then: see `state`. LocalProtocolError for calls in another order.

    Args:
        legs: the chain, preferred upstream first.
        most: attempts at most.
        patience: seconds that may be waited in all for an account to come back, 0 for none.
    """

    def __init__(
        self,
        upstreams: Sequence[UpstreamAccounts],
        *,
        max_attempts: int = MAX_ATTEMPTS,
        max_wait: float = 0.0,
    ) -> None:
        self.state = AttemptState.CHOOSING
        self.made = 0
        self._legs = tuple(upstreams)
        self._most = max_attempts
        self._patience = max_wait
        self._tried: set[tuple[int, str]] = set()
        self._full: dict[tuple[int, str], float] = {}  # had no room: until when
        self._offered: Offer | None = None
        self._running: dict[str, int] = {}  # account of an attempt that goes on -> its leg
        self._give_up_at: float | None = None  # when patience ends, once it was needed
        self._fault: WireError | None = None
        self._passes = False  # time heals what _fault is about
        self._final = False  # the last failure is for the client

    def next(self, health: Mapping[str, Health], now: float, random: float = 0.0) -> AttemptStep:
        """What to do. health: by account id, what is missing is unused. draw: 0 <= draw < 1, by chance."""
        self._expect(AttemptState.CHOOSING)
        if not self._final and self.made < self._most:
            step = self._offer(health, now, random) or self._wait(health, now)
            if step is not None:
                return step
        self.state = AttemptState.DONE
        return GiveUp(self._fault, None if self._final else self._soonest(health, now, tried=True))

    def hedge(self, health: Mapping[str, Health], now: float, random: float = 0.0) -> Offer | None:
        """Another attempt beside the one that goes on, None when there is no account for it. See next()."""
        self._expect(AttemptState.TRYING)
        return self._offer(health, now, random) if self.made < self._most else None

    def accepted(self, account: str) -> None:
        """The request is being sent with this account, one of those that were offered."""
        offer = self._answered()
        if account not in offer.accounts:
            raise LocalProtocolError("this account was not offered")
        self._tried.add((offer.upstream_index, account))
        self._running[account] = offer.upstream_index
        self.made += 1
        self.state = AttemptState.TRYING

    def resend(self, account: str) -> bool:
        """Count one more attempt with this account, which is being tried. False: no attempt is left for it.

        Only where its server has not worked on the request: call failed() otherwise.
        """
        if self.state is AttemptState.DONE or self._final or self.made >= self._most:
            return False
        self._expect_running()
        if account not in self._running:
            raise LocalProtocolError("this account is not being tried")
        self.made += 1
        return True

    def declined(self, until: float) -> None:
        """None of the offered accounts has room before `until`; infinity for never."""
        offer = self._answered()
        self._full.update({(offer.upstream_index, account): until for account in offer.accounts})
        self.state = AttemptState.TRYING if self._running else AttemptState.CHOOSING

    def failed(self, account: str, error: WireError) -> ErrorAction:
        """The attempt failed, and no content had gone out. Gives what that means for the account."""
        self._expect_running()
        action = classify(error, self._legs[self._running.pop(account)].rules)
        passes = action not in _LASTING
        if not self._final and (passes or not self._passes):
            self._fault, self._passes = error, passes
        self._final = self._final or action is ErrorAction.RETURN_TO_CLIENT
        self._settle()
        return action

    def cancelled(self, account: str) -> None:
        """The attempt was ended for another one's sake."""
        self._expect_running()
        del self._running[account]
        self._settle()

    def committed(self) -> None:
        """Content went out, or the answer was whole: there is no other attempt."""
        self._expect_running()
        self.state = AttemptState.DONE

    def _settle(self) -> None:
        """An attempt is over. An offer that is not answered yet stands, unless nobody shall be asked any more."""
        if self.state is AttemptState.TRYING or self._final:
            self.state = AttemptState.TRYING if self._running else AttemptState.CHOOSING

    def _expect(self, state: AttemptState) -> None:
        if self.state is not state:
            raise LocalProtocolError(f"the attempts are {self.state.value}, not {state.value}")

    def _expect_running(self) -> None:
        if not (self.state is AttemptState.OFFERED and self._running):
            self._expect(AttemptState.TRYING)

    def _answered(self) -> Offer:
        """The offer that is answered now."""
        self._expect(AttemptState.OFFERED)
        assert self._offered is not None
        return self._offered

    def _offer(self, health: Mapping[str, Health], now: float, random: float) -> Offer | None:
        for number, leg in enumerate(self._legs):
            usable = [
                account
                for account in leg.accounts
                if (number, account.id) not in self._tried and account.id not in self._running
                if self._back_at(number, account, health) <= now
                if health.get(account.id, _UNKNOWN).disabled is None
            ]
            if usable:
                self._offered = Offer(number, tuple(order(usable, health, leg.selection, random)))
                self.state = AttemptState.OFFERED
                return self._offered
        return None

    def _wait(self, health: Mapping[str, Health], now: float) -> Wait | None:
        retry_at = self._soonest(health, now, tried=False)
        if retry_at is None:
            return None
        if self._give_up_at is None:
            self._give_up_at = now + self._patience
        return Wait(retry_at) if retry_at <= self._give_up_at else None

    def _soonest(self, health: Mapping[str, Health], now: float, *, tried: bool) -> float | None:
        """When the first account that rests comes back. tried: those that this request has tried count too."""
        ends = [
            end
            for number, leg in enumerate(self._legs)
            for account in leg.accounts
            if tried or (number, account.id) not in self._tried
            if health.get(account.id, _UNKNOWN).disabled is None
            if now < (end := self._back_at(number, account, health)) < math.inf
        ]
        return min(ends, default=None)

    def _back_at(self, leg: int, account: Account, health: Mapping[str, Health]) -> float:
        return max(health.get(account.id, _UNKNOWN).cooldown_until, self._full.get((leg, account.id), 0.0))


def order(
    accounts: Sequence[Account], health: Mapping[str, Health], selection: Selection, random: float
) -> list[str]:
    """The accounts, best first. Ties stay in the order of the list."""

    def used(account: Account) -> float:
        return health.get(account.id, _UNKNOWN).last_used

    def spent(account: Account) -> tuple[float, float]:
        remaining = health.get(account.id, _UNKNOWN).remaining
        return -(1.0 if remaining is None else remaining), used(account)

    if selection is Selection.MOST_REMAINING:
        return [account.id for account in sorted(accounts, key=spent)]
    ids = [account.id for account in sorted(accounts, key=used)]
    if selection is Selection.WEIGHTED:
        first = _drawn(accounts, random)
        ids.remove(first)
        ids.insert(0, first)
    return ids


def _drawn(accounts: Sequence[Account], random: float) -> str:
    left = random * sum(account.weight for account in accounts)
    for account in accounts:
        left -= account.weight
        if left < 0:
            return account.id
    return accounts[-1].id
