"""Choose the account that a request is sent with, and record what its outcome means for that account.

The pure machine `Attempts` decides, an `AccountStore` has the state of the accounts, and the code here connects them,
with the clock and a random number. With one account to choose from, no failure is recorded against it, and its errors
reach the client unchanged. If a proxy cannot connect, the proxy cools down, and with it the accounts behind it; their
own health does not change.

A store takes time, and other attempts go on meanwhile, so each result is checked against the state that the
machine is in by then.
"""

import hashlib
import logging
import math
import random
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING

import anyio
import msgspec

from dragoman import ErrorKind, RemoteProtocolError, RequestRefused, WireError
from dragoman_server.accounts.stores.base import AccountStore, Candidate, Rate, Reservation
from dragoman_server.accounts.stores.operations import Change, FindAccount, Release, Reserve
from dragoman_server.log import DECISIONS, log_decision
from dragoman_server.policy import attempts
from dragoman_server.policy.error_actions import ErrorAction, ErrorRule, classify
from dragoman_server.policy.health import INITIAL_HEALTH, Health
from dragoman_server.proxying.attempt import Attempt, PooledAccount
from dragoman_server.proxying.destinations import Destination
from dragoman_server.proxying.plan import Plan
from dragoman_server.proxying.upstream_errors import AttemptFailure
from dragoman_server.settings import AccountSettings, RuleSettings, Settings, UpstreamSettings
from dragoman_server.wire.headers import remaining_share

if TYPE_CHECKING:
    from dragoman_server.accounts.balances import Balances

# Leases are given back also when the client has left. That is one call to a store that responds within 50 ms or not at
# all, and the lease expires by itself.
_GIVE_BACK_S = 1.0

_MINUTE = 60.0

# Accounts in the line of a request, which there may be hundreds of.
_MAX_SKIPPED = 5

_log = logging.getLogger("dragoman.accounts")

# Of a destination. Each request needs them, so there is no call of Python for each.
_NAMES: Callable[[Destination], tuple[str, str]] = attrgetter("settings.name", "only_account")


class AccountChain(msgspec.Struct, frozen=True):
    """The accounts of a chain of upstreams.

    Attributes:
        upstreams: The upstreams, as the machine needs them.
        accounts: The accounts by id.
        records_health: There is more than one account. A single one is used whatever its state; but its limits apply.
        has_proxies: A proxy's cooldown may apply to an account.
        by_money: The money that the accounts have left decides between them.
    """

    upstreams: tuple[attempts.UpstreamAccounts, ...]
    accounts: Mapping[str, PooledAccount]
    records_health: bool
    has_proxies: bool
    by_money: bool


class AccountPool:
    """All accounts.

    Attributes:
        store: Has their state.
        clock: Returns the seconds since the epoch.
        random: Returns a random number from 0 to 1.
        balances: The money that they have left, None where it is not read.
    """

    def __init__(
        self,
        settings: Settings,
        store: AccountStore,
        *,
        clock: Callable[[], float] = time.time,
        random: Callable[[], float] = random.random,
        balances: "Balances | None" = None,
    ) -> None:
        self.store = store
        self.balances = balances
        self.clock = clock
        self.random = random
        self._ids = {account.id for account in settings.all_accounts()}
        self.max_attempts = settings.server.max_attempts
        self.account_wait_s = settings.server.account_wait_s
        self._rules = [(rule.upstream, _rule(rule)) for rule in settings.rules]
        # By the names of their upstreams, and of an only account: as many as the settings have.
        self._chains: dict[tuple[tuple[str, str], ...], AccountChain] = {}

    async def account_of(self, ids: Sequence[str]) -> str:
        """Return the id of the account that made the first known one of these vendor's ids, "" if none is known."""
        found = await self.store.apply(FindAccount(ids, self.clock())) if ids else ""
        return found if found in self._ids else ""

    def attempts(self, plan: Plan) -> "RequestAttempts":
        """Return the attempts of one planned request."""
        destinations = (plan.destination, *plan.fallbacks)
        names = tuple(map(_NAMES, destinations))
        chain = self._chains.get(names)
        if chain is None:
            chain = self._chains[names] = self._chain(destinations)
        if chain.by_money and self.balances is not None:
            for destination in destinations:
                self.balances.refresh(destination.settings)
        return RequestAttempts(self, plan, chain)

    def _chain(self, destinations: tuple[Destination, ...]) -> AccountChain:
        upstreams, by_id = [], {}
        for to in destinations:
            rules = tuple([rule for only, rule in self._rules if only in (None, to.settings.name)])
            accounts = tuple([_pooled(account, to.settings, rules) for account in to.accounts])
            upstreams.append(
                attempts.UpstreamAccounts(accounts, attempts.Selection(to.settings.selection), rules)
            )
            by_id.update({account.id: account for account in accounts})
        return AccountChain(
            tuple(upstreams),
            by_id,
            records_health=len(by_id) > 1,
            has_proxies=any(account.proxy for account in by_id.values()),
            by_money=any(each.selection is attempts.Selection.MOST_REMAINING for each in upstreams),
        )


class RequestAttempts:
    """The accounts side of one request: which were tried, and with which one it is sent now.

    next() and hedge() return an attempt to make. Call failed(), ended() or cancelled() for each, and close() at the
    end.

    Attributes:
        machine: Decides what is tried.
        skipped: If the request goes to a fallback or nowhere: the first accounts that could not be tried, and why.

    Attributes, after next() has returned None:
        error: What to report to the client: the error of an attempt, or why there was none to make.
        unsuitable: The upstream of the chain that cannot take the request, if `error` is about that.
        retry_at: The seconds until the first account is usable again, None if none will be.
    """

    # What few requests need.
    skipped: dict[str, str] | None = None
    retry_at: float | None = None
    error: WireError | None = None
    unsuitable: Destination | None = None
    _unsuitable_error: WireError | None = None
    _disabling: Sequence[WireError] = ()  # errors that disabled an account

    def __init__(self, pool: AccountPool, plan: Plan, chain: AccountChain) -> None:
        self._pool = pool
        self._plans: dict[int, Plan] = {0: plan}
        self._chain = chain
        self.machine = attempts.Attempts(chain.upstreams, pool.max_attempts, pool.account_wait_s)
        self._attempts: list[Attempt] = []  # until their plans are released
        self._reserved: dict[str, Attempt] = {}  # by account, those whose reservation has to be ended
        self._reservations = 0

    async def close(self) -> None:
        """Give back the reservations of the attempts that are open."""
        self._attempts.clear()  # they refer to what refers to this
        if self._reserved:
            with anyio.move_on_after(_GIVE_BACK_S, shield=True):
                for attempt in list(self._reserved.values()):
                    await self._release(attempt, used=False)

    async def next(self) -> Attempt | None:
        """Return what to try now, None if the client gets an error. Waits for an account where that is worth it."""
        while True:
            now = self._pool.clock()
            step = self.machine.next(self._health(), now, self._pool.random())
            if isinstance(step, attempts.Offer):
                attempt = await self._reserve(step)
                if attempt is not None:
                    return attempt
            elif isinstance(step, attempts.Wait):
                await anyio.sleep(max(step.until - now, 0.0))
            else:
                if DECISIONS.isEnabledFor(logging.DEBUG):
                    self._log_choice("none", ())
                self._note_skipped(now)
                self._give_up(step, now)
                return None

    async def hedge(self) -> Attempt | None:
        """Return another account to try while one has not responded yet, None if there is none."""
        if self.machine.state is not attempts.TRYING:
            return None
        offer = self.machine.hedge(self._health(), self._pool.clock(), self._pool.random())
        return None if offer is None else await self._reserve(offer)

    def resend(self, attempt: Attempt) -> bool:
        """Count one more attempt with the same account. False: no attempt is left for it."""
        return self.machine.resend(attempt.account.id)

    async def failed(self, attempt: Attempt, failure: AttemptFailure) -> ErrorAction:
        """Record that the attempt failed before anything of its response was sent. Return what that means."""
        error, account = failure.error, attempt.account
        if self.machine.state is attempts.DONE:
            action = classify(error, account.rules)
        else:
            elsewhere = attempt.plan.may_be_elsewhere
            action = self.machine.failed(account.id, error, final=failure.final, elsewhere=elsewhere)
        if self._chain.records_health and action is ErrorAction.DISABLE:
            self._disabling = (*self._disabling, error)
        text = "attempt: %s failed: %s, so %s%s"
        after = "" if failure.retry_after is None else f" after {failure.retry_after:g} s"
        log_decision(attempt.plan.id, text, account.id, error.kind.value, action.value, after)
        if not failure.of_gateway:
            await self._report(attempt, action, error, failure.retry_after, connecting=failure.connecting)
        await self._release(attempt, used=False)
        return action

    def release_plans(self) -> None:
        """Let go of what the plans send, because nothing is sent again."""
        for attempt in self._attempts:
            attempt.plan = attempt.plan.released()
        self._attempts.clear()
        self._plans.clear()

    async def ended(self, attempt: Attempt) -> None:
        """Record that the attempt whose response was sent has ended."""
        machine = attempt.machine
        if machine is not None and machine.error is not None:
            await self._report(attempt, classify_stream_error(machine.error), machine.error, None)
        elif self._chain.records_health:
            store, proxy = self._pool.store, attempt.account.proxy
            share = remaining_share(attempt.headers, attempt.plan.destination.upstream)
            await store.apply(
                Change(attempt.account.id, lambda health: health.after_success(remaining=share))
            )
            if proxy in store.health():
                await store.apply(Change(proxy, Health.after_success))
        if self._reserved:
            await self._release(attempt)

    async def cancelled(self, attempt: Attempt) -> None:
        """Record that the attempt was cancelled because another one won."""
        if self.machine.state is not attempts.DONE:
            self.machine.cancelled(attempt.account.id)
        await self._release(attempt)

    # Between the machine and the store.

    def _health(self) -> Mapping[str, Health]:
        known = self._pool.store.health()
        if not (self._chain.by_money or self._chain.has_proxies):
            return known
        shares = {} if self._pool.balances is None else self._pool.balances.shares
        changed, accounts = {}, self._chain.accounts
        for id in [id for id, account in accounts.items() if account.proxy in known or id in shares]:
            health, proxy = known.get(id, INITIAL_HEALTH), accounts[id].proxy
            if proxy in known:  # it cools down while its proxy does
                longer = max(health, known[proxy], key=attrgetter("cooldown_until"))
                health = msgspec.structs.replace(
                    health, cooldown_until=longer.cooldown_until, failing=longer.failing
                )
            if id in shares:  # its share of the money is one of its limits
                remaining = shares[id] if health.remaining is None else min(shares[id], health.remaining)
                health = msgspec.structs.replace(health, remaining=remaining)
            changed[id] = health
        return {**known, **changed}

    async def _reserve(self, offer: attempts.Offer) -> Attempt | None:
        plan = self._plans.get(offer.upstream_index) or await self._plan(offer.upstream_index)
        if plan is None:
            if self.machine.state is attempts.OFFERED:
                self.machine.declined(math.inf)
            return None
        accounts = self._chain.accounts
        conversation = plan.conversation if plan.destination.settings.sticky else None
        now = self._pool.clock()
        candidates = [accounts[account].candidate for account in offer.accounts]
        self._reservations += 1  # a store that was late may still end an earlier one
        lease = f"{plan.id}-{self._reservations}"
        reservation = await self._pool.store.apply(Reserve(candidates, conversation, lease, now))
        # Another attempt may have ended the offer meanwhile.
        if self.machine.state is not attempts.OFFERED:
            if isinstance(reservation, Reservation):
                await self._pool.store.apply(Release(reservation, 0.0, now))
            return None
        if not isinstance(reservation, Reservation):
            self.machine.declined(reservation.until)
            return None
        account = accounts[reservation.candidate.account]
        self.machine.accepted(account.id)
        attempt = Attempt(plan, account, reservation, now)
        self._attempts.append(attempt)
        if reservation.candidate.is_limited:
            self._reserved[account.id] = attempt
        if DECISIONS.isEnabledFor(logging.DEBUG):
            self._log_choice(account.id, offer.accounts)
        if offer.upstream_index:
            self._note_skipped(now, offer.upstream_index)
        return attempt

    def _note_skipped(self, now: float, before: int | None = None) -> None:
        reasons = self.machine.unusable(self._health(), now, before).items()
        self.skipped = (
            dict(islice((each for each in reasons if each[1] != attempts.TRIED), _MAX_SKIPPED)) or None
        )

    def _log_choice(self, chosen: str, offered: tuple[str, ...]) -> None:
        """Log which account was chosen, and why no other one. offered: as in Offer."""
        reasons = self.machine.unusable(self._health(), self._pool.clock())
        first = offered.index(chosen) if chosen in offered else 0
        for place, id in enumerate(offered):
            reasons.setdefault(
                id, "no room, or another one has the conversation" if place < first else "next"
            )
        others = [f"{id} ({reasons.get(id, 'fallback')})" for id in self._chain.accounts if id != chosen]
        text = "account: %s; not %s" if others else "account: %s%s"
        log_decision(self._plans[0].id, text, chosen, ", ".join(others))

    async def _plan(self, upstream_index: int) -> Plan | None:
        """Return the plan for an upstream of the chain, None if the request cannot be sent there."""
        if upstream_index not in self._plans:
            first = self._plans[0]
            planner = first.planner
            assert planner is not None  # it has fallbacks
            destination = first.fallbacks[upstream_index - 1]
            try:
                plan = await planner.plan_off_loop(destination)
                if self._plans:  # they may have been released
                    self._plans[upstream_index] = plan
            except (RemoteProtocolError, RequestRefused) as error:
                log_decision(first.id, "plan: %s cannot take it: %s", destination.target, error)
                if self._unsuitable_error is None:
                    self.unsuitable, self._unsuitable_error = destination, error.as_wire_error()
        return self._plans.get(upstream_index)

    def _give_up(self, step: attempts.GiveUp, now: float) -> None:
        self.retry_at = None if step.retry_at is None else max(step.retry_at - now, 0.0)
        # That one upstream cannot take the request is not the reason if another one soon can.
        unsuitable = self._unsuitable_error if self.retry_at is None else None
        no_account = _no_account_error(self.retry_at, step.failing)
        self.error = step.error or unsuitable or no_account
        if self.error is not unsuitable:
            self.unsuitable = None
        if any(self.error is error for error in self._disabling):
            # The error is about an account, which is the operator's: the client gets what it means for its request.
            others_left = self.machine.made >= self._pool.max_attempts and self.retry_at is None
            self.error = _TRIED_ACCOUNTS_DISABLED if others_left else no_account

    async def _report(
        self,
        attempt: Attempt,
        action: ErrorAction,
        error: WireError,
        retry_after: float | None,
        *,
        connecting: bool = False,
    ) -> None:
        if not self._chain.records_health:
            return
        pool, account, proxy = self._pool, attempt.account.id, attempt.account.proxy
        if proxy and (connecting or (error.kind is ErrorKind.UNREACHABLE and error.status is None)):
            account, action = proxy, ErrorAction.RETRY_LATER
        failure = partial(
            Health.after_failure,
            action=action,
            cause=f"{error.kind.value}{'' if error.status is None else f' ({error.status})'}",
            now=(now := pool.clock()),
            retry_after=retry_after,
            random=pool.random(),
        )
        before = pool.store.health().get(account, INITIAL_HEALTH)
        _log_change(attempt, account, before, failure(before), now)
        # Temporary failures are counted, so one that is recorded twice would be two.
        await pool.store.apply(Change(account, failure, repeatable=action is not ErrorAction.RETRY_LATER))

    async def _release(self, attempt: Attempt, *, used: bool = True) -> None:
        """End the reservation of an attempt, and count the tokens that it has used."""
        if attempt.account.id in self._reserved:
            tokens = attempt.tokens if used else 0.0
            await self._pool.store.apply(Release(attempt.reservation, tokens, self._pool.clock()))
            self._reserved.pop(attempt.account.id, None)


def _log_change(attempt: Attempt, account: str, before: Health, after: Health, now: float) -> None:
    """Write a line, with the id of the request that failed, if that takes an account or its proxy out of use."""
    name = account if account == attempt.account.id else f"the proxy of {attempt.account.id}"
    of_request = {"dragoman": {"id": attempt.plan.id}}
    if after.disabled is not None and before.disabled is None:
        _log.warning("%s is disabled until it is reset: %s", name, after.disabled, extra=of_request)
    elif after.consecutive_cooldowns > before.consecutive_cooldowns:
        seconds = after.cooldown_until - now
        _log.info("%s cools down for %.0f s: %s", name, seconds, after.cause, extra=of_request)


def classify_stream_error(error: WireError) -> ErrorAction:
    """Return what an error after the first content means. It is never the request's, whatever its kind is."""
    action = classify(error)
    return (
        ErrorAction.RETRY_LATER if action in (ErrorAction.RETURN_TO_CLIENT, ErrorAction.TRY_NEXT) else action
    )


_TRIED_ACCOUNTS_DISABLED = WireError(
    ErrorKind.OVERLOADED,
    "the accounts that were tried are disabled; other accounts may serve the next request",
    status=503,
)


def _no_account_error(retry_at: float | None, failing: bool) -> WireError:
    """Return the error for a request that no account could be tried for. See GiveUp."""
    if retry_at is None:
        message = (
            "every account of this model's upstreams is disabled; the gateway's operator finds the causes in its "
            "log or at /admin/accounts, and has to reset them there"
        )
        return WireError(ErrorKind.MISCONFIGURED, message)
    message = (
        f"every account of this model's upstreams is cooling down{' after failures' if failing else ''}; "
        f"the first is available in {math.ceil(retry_at)} s"
    )
    if failing:
        return WireError(ErrorKind.OVERLOADED, message, status=503)
    return WireError(ErrorKind.RATE_LIMIT, message, status=429)


def _pooled(
    account: AccountSettings, upstream: UpstreamSettings, rules: tuple[ErrorRule, ...]
) -> PooledAccount:
    id, requests, tokens = account.id, account.requests_per_minute, account.tokens_per_minute
    return PooledAccount(
        id,
        float(account.weight),
        settings=account,
        candidate=Candidate(
            id,
            None if requests is None else Rate(f"{id} requests", requests, _MINUTE),
            None if tokens is None else Rate(f"{id} tokens", tokens, _MINUTE, has_debts=True),
            account.max_concurrent_requests,
        ),
        proxy=proxy_id(account, upstream),
        rules=rules,
    )


def proxy_id(account: AccountSettings, upstream: UpstreamSettings) -> str:
    """Return the id under which the store has the state of an account's proxy, "" if it has none."""
    proxy = account.proxy or upstream.proxy
    # A hash, because the URL may hold a password.
    return "" if proxy is None else f"proxy:{hashlib.sha256(proxy.reveal().encode()).hexdigest()[:16]}"


def _rule(rule: RuleSettings) -> ErrorRule:
    return ErrorRule(
        ErrorAction(rule.action),
        statuses=frozenset(rule.statuses),
        codes=frozenset(rule.codes),
        words=tuple([word.lower() for word in rule.words]),
    )
