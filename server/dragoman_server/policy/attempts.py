"""Decide which account a request is sent with, and what follows when that fails.

`Attempts` is a machine for one request: its driver calls next(), does what that returns, and reports the outcome. The
health of the accounts, the time and a random number are arguments of each call, so the same history gives the same
steps. The driver has the accounts' health, and finds which of the offered accounts has room.

Rules: an account at most once per request, except for a resend, which counts; never one that is disabled or cools down;
at most `max_attempts` attempts; none after content was sent; the upstreams in the order of the chain.

The driver decides on parallel attempts (`RequestHandler._hedged`) and on resends (`Attempt.can_resend`).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from itertools import repeat
from operator import attrgetter
from typing import TypeAlias

import msgspec

from dragoman import ErrorKind, LocalProtocolError, WireError
from dragoman_server.policy.error_actions import ErrorAction, ErrorRule, classify
from dragoman_server.policy.health import INITIAL_HEALTH, Health

MAX_ATTEMPTS = 10

# Of unusable().
TRIED = "tried"

_ID: Callable[["Account"], str] = attrgetter("id")

# After these a retry with the same account fails again.
_NOT_RETRYABLE = frozenset({ErrorAction.TRY_NEXT, ErrorAction.DISABLE})


class Selection(Enum):
    """The order in which accounts are offered."""

    LEAST_RECENTLY_USED = "least_recently_used"
    WEIGHTED = "weighted"  # at random, in proportion to the weights
    MOST_REMAINING = "most_remaining"  # by the share of the rate limit that is left; unknown counts as all


class Account(msgspec.Struct, frozen=True):
    """One account, as the machine needs it.

    Attributes:
        weight: More than 0.
    """

    id: str
    weight: float = 1.0


class UpstreamAccounts(msgspec.Struct, frozen=True):
    """One upstream of the chain, with its accounts and its own rules."""

    accounts: tuple[Account, ...]
    selection: Selection = Selection.LEAST_RECENTLY_USED
    rules: tuple[ErrorRule, ...] = ()


class Offer(msgspec.Struct, frozen=True):
    """Send the request with the first of these accounts that has room: call accepted(), or declined() if none has."""

    upstream_index: int
    accounts: tuple[str, ...]


class Wait(msgspec.Struct, frozen=True):
    """Call next() again at that time: an account is usable again soon enough to wait for it."""

    until: float


class GiveUp(msgspec.Struct, frozen=True):
    """Send the client an error.

    Attributes:
        error: The error of the last attempt, or of the last one whose account is usable again later, if there was one,
            because clients retry after such an error. None if there was no attempt to make.
        retry_at: When the first account is usable again, None if none will be without a reset or if that would not
            help.
        failing: Each of those accounts cools down after failures, so that none is at a rate limit.
    """

    error: WireError | None
    retry_at: float | None
    failing: bool = False


AttemptStep: TypeAlias = Offer | Wait | GiveUp


class AttemptState(Enum):
    """The states of a request."""

    CHOOSING = "choosing"
    OFFERED = "offered"
    TRYING = "trying"
    DONE = "done"  # content was sent, or the client gets an error


# CPython 3.11 takes as long to look up a member as for several calls.
CHOOSING, OFFERED, TRYING, DONE = AttemptState


class Attempts:
    """The attempts of one request.

    Call next() and do what it returns. After an Offer call accepted() or declined(); after accepted() call failed(),
    cancelled() or committed(), and before these resend() if the same account gets the request again. While an attempt
    runs, hedge() may return another one that runs in parallel; before that offer is accepted or declined, the first one
    may still fail or be committed, and the offer may be void then: see `state`. LocalProtocolError for calls in another
    order. In outline::

        attempts = Attempts([UpstreamAccounts((Account("up/a"), Account("up/b")))])
        while isinstance(step := attempts.next(health, now), Offer):
            attempts.accepted(step.accounts[0])
            error = send(step.accounts[0])
            if error is None:
                attempts.committed()
                break
            attempts.failed(step.accounts[0], error)

    Args:
        upstreams: the chain, preferred upstream first.
        max_attempts: resends included.
        max_wait: seconds that may be waited in all for an account to be usable again, 0 for none.
    """

    # What few requests need.
    _give_up_at: float | None = None  # the end of max_wait, once a wait was needed
    _last_error: WireError | None = None
    _retryable = False  # the last error is temporary

    def __init__(
        self,
        upstreams: Sequence[UpstreamAccounts],
        max_attempts: int = MAX_ATTEMPTS,
        max_wait: float = 0.0,
    ) -> None:
        self.state = CHOOSING
        self.made = 0
        self._upstreams = tuple(upstreams)
        self._max_attempts = max_attempts
        self._max_wait = max_wait
        self._tried: dict[tuple[int, str], None] = {}
        self._full: dict[tuple[int, str], float] = {}  # had no room: until when
        self._offered: Offer | None = None
        self._running: dict[str, int] = {}  # account of a running attempt -> index of its upstream
        self._final = False  # the last failure is for the client

    def next(self, health: Mapping[str, Health], now: float, random: float = 0.0) -> AttemptStep:
        """Return what to do. health: by account id, a missing one is unused. random: 0 <= random < 1."""
        if self.state is not CHOOSING:
            raise self._wrong_state(CHOOSING)
        if not self._final and self.made < self._max_attempts:
            step = self._offer(health, now, random) or self._wait(health, now)
            if step is not None:
                return step
        self.state = DONE
        if self._final or not (later := self._usable_later(health, now, tried=True)):
            return GiveUp(self._last_error, None)
        times, failing = zip(*later, strict=True)
        return GiveUp(self._last_error, min(times), all(failing))

    def hedge(self, health: Mapping[str, Health], now: float, random: float = 0.0) -> Offer | None:
        """Return an attempt parallel to the running one, None if there is no account for it. Arguments: see next()."""
        if self.state is not TRYING:
            raise self._wrong_state(TRYING)
        return self._offer(health, now, random) if self.made < self._max_attempts else None

    def unusable(self, health: Mapping[str, Health], now: float, before: int | None = None) -> dict[str, str]:
        """Return why this request cannot be sent with an account now, by the account's id, for the log.

        before: only of the upstreams before this one of the chain.
        """
        reasons = {}
        for number, upstream in enumerate(self._upstreams[:before]):
            for account in upstream.accounts:
                state, place = health.get(account.id, INITIAL_HEALTH), (number, account.id)
                if place in self._tried:
                    reasons[account.id] = TRIED
                elif state.disabled is not None:
                    reasons[account.id] = f"disabled: {state.disabled}"
                elif state.cooldown_until > now:
                    reasons[account.id] = (
                        f"cooling down for {state.cooldown_until - now:.0f} s: {state.cause}"
                    )
                elif (until := self._full.get(place, 0.0)) > now:
                    reasons[account.id] = "no room" if until < math.inf else "cannot take this request"
        return reasons

    def accepted(self, account: str) -> None:
        """Record that the request is sent with this account, one of those that were offered."""
        offer = self._take_offer()
        if account not in offer.accounts:
            raise LocalProtocolError("this account was not offered")
        self._tried[offer.upstream_index, account] = None
        self._running[account] = offer.upstream_index
        self.made += 1
        self.state = TRYING

    def resend(self, account: str) -> bool:
        """Count one more attempt with this account, which is being tried. False: no attempt is left for it.

        Only where its server has not worked on the request: call failed() otherwise.
        """
        if self.state is DONE or self._final or self.made >= self._max_attempts:
            return False
        self._expect_running()
        if account not in self._running:
            raise LocalProtocolError("this account is not being tried")
        self.made += 1
        return True

    def declined(self, until: float) -> None:
        """Record that none of the offered accounts has room before `until`; infinity for never."""
        offer = self._take_offer()
        self._full.update({(offer.upstream_index, account): until for account in offer.accounts})
        self.state = TRYING if self._running else CHOOSING

    def failed(
        self, account: str, error: WireError, *, final: bool = False, elsewhere: bool = False
    ) -> ErrorAction:
        """Record that the attempt failed before content was sent. Return what that means for the account.

        final: the request must not be sent again, whatever that is. elsewhere: another account may have what is asked
        for.
        """
        self._expect_running()
        action = classify(error, self._upstreams[self._running.pop(account)].rules)
        if elsewhere and error.kind is ErrorKind.NOT_FOUND:
            action = ErrorAction.TRY_NEXT
        retryable = action not in _NOT_RETRYABLE
        if not self._final and (retryable or not self._retryable):
            self._last_error, self._retryable = error, retryable
        self._final = self._final or final or action is ErrorAction.RETURN_TO_CLIENT
        self._update_state()
        return action

    def cancelled(self, account: str) -> None:
        """Record that the attempt was cancelled because another one won."""
        self._expect_running()
        del self._running[account]
        self._update_state()

    def committed(self) -> None:
        """Record that content was sent or the response is complete, so there is no other attempt."""
        self._expect_running()
        self.state = DONE
        self._tried, self._running, self._offered = {}, {}, None  # a stream may stay open for hours

    def _update_state(self) -> None:
        """Set the state after an attempt. An open offer stays, unless no further attempt may be made."""
        if self.state is TRYING or self._final:
            self.state = TRYING if self._running else CHOOSING

    def _wrong_state(self, state: AttemptState) -> LocalProtocolError:
        return LocalProtocolError(f"the attempts are {self.state.value}, not {state.value}")

    def _expect_running(self) -> None:
        if self.state is TRYING:
            return
        if not (self.state is OFFERED and self._running):
            raise self._wrong_state(TRYING)

    def _take_offer(self) -> Offer:
        """Return the open offer, because it is accepted or declined now."""
        if self.state is not OFFERED or self._offered is None:
            raise self._wrong_state(OFFERED)
        return self._offered

    def _offer(self, health: Mapping[str, Health], now: float, random: float) -> Offer | None:
        for number, upstream in enumerate(self._upstreams):
            usable = [
                account
                for account, state in zip(upstream.accounts, _states(upstream.accounts, health))  # noqa: B905
                if state.cooldown_until <= now and state.disabled is None
            ]
            if self._tried or self._running or self._full:
                usable = [
                    account
                    for account in usable
                    if (number, account.id) not in self._tried and account.id not in self._running
                    if self._full.get((number, account.id), 0.0) <= now
                ]
            if usable:
                ids = (
                    [usable[0].id] if len(usable) == 1 else order(usable, health, upstream.selection, random)
                )
                self._offered = Offer(number, tuple(ids))
                self.state = OFFERED
                return self._offered
        return None

    def _wait(self, health: Mapping[str, Health], now: float) -> Wait | None:
        later = self._usable_later(health, now, tried=False)
        if not later:
            return None
        if self._give_up_at is None:
            self._give_up_at = now + self._max_wait
        retry_at = min(later)[0]
        return Wait(retry_at) if retry_at <= self._give_up_at else None

    def _usable_later(
        self, health: Mapping[str, Health], now: float, *, tried: bool
    ) -> list[tuple[float, bool]]:
        """Return of each account that cools down when it is usable again, and whether that is after failures.

        tried: include those tried by this request.
        """
        later = []
        for number, upstream in enumerate(self._upstreams):
            for account, state in zip(upstream.accounts, _states(upstream.accounts, health), strict=True):
                place = number, account.id
                if state.disabled is None and (tried or place not in self._tried):
                    full_until = self._full.get(place, 0.0)
                    until = max(state.cooldown_until, full_until)
                    if now < until < math.inf:
                        later.append((until, state.failing and full_until <= now))
        return later


def order(
    accounts: Sequence[Account], health: Mapping[str, Health], selection: Selection, random: float
) -> list[str]:
    """Return the accounts' ids, best first. Ties stay in the order of the list."""
    states = _states(accounts, health)
    uses: list[float] | list[tuple[float, float]] = [state.last_used for state in states]
    if selection is Selection.MOST_REMAINING:
        uses = [(-1.0 if state.remaining is None else -state.remaining, state.last_used) for state in states]
    ids = [accounts[place].id for place in sorted(range(len(uses)), key=uses.__getitem__)]
    if selection is Selection.WEIGHTED:
        first = _choose_weighted(accounts, random)
        ids.remove(first)
        ids.insert(0, first)
    return ids


def _states(accounts: Sequence[Account], health: Mapping[str, Health]) -> list[Health]:
    # Each request needs them all, so there is no call of Python for each.
    return list(map(health.get, map(_ID, accounts), repeat(INITIAL_HEALTH)))


def _choose_weighted(accounts: Sequence[Account], random: float) -> str:
    left = random * sum([account.weight for account in accounts])
    for account in accounts:
        left -= account.weight
        if left < 0:
            return account.id
    return accounts[-1].id
