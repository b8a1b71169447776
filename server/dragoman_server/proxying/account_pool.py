"""The accounts of upstreams: which one a request is sent with, and what its outcome does to it.

Strategy: the core's machine decides (`Attempts`), a store knows the accounts (`AccountStore`), and the code here
carries questions and answers between them, with the clock and chance. It is the same for every endpoint, streaming or
not. A request with one account to choose from is no pool: nothing is counted against that account, and its errors pass
to the client as they come. A proxy that does not connect rests by itself, and its accounts with it: they are not at
fault.

An answer from the store takes time, and attempts that run side by side go on meanwhile: whatever it says is looked at
in the light of what the machine says then.
"""

import hashlib
import math
import random
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import TracebackType
from typing import TYPE_CHECKING, Self

import anyio
import msgspec

from dragoman import ErrorKind, RemoteProtocolError, RequestRefused, WireError
from dragoman_server.accounts.error_actions import ErrorAction, ErrorRule, classify
from dragoman_server.accounts.health import Backoff, Health
from dragoman_server.accounts.policy import (
    Account,
    Attempts,
    AttemptState,
    GiveUp,
    Offer,
    Selection,
    UpstreamAccounts,
    Wait,
)
from dragoman_server.accounts.stores.base import AccountGrant, AccountStore, Candidate, Rate
from dragoman_server.proxying.plan import Plan
from dragoman_server.settings import AccountSettings, RuleSettings, Settings
from dragoman_server.settings.secret import Secret

if TYPE_CHECKING:
    from dragoman_server.accounts.balances import Balances

# Leases are given back when the client has left, too. It takes one call to a store that answers within 50 ms or not
# at all, and the lease expires by itself.
_GIVE_BACK_S = 1.0

_MINUTE = 60.0
_FRESH = Health()


@dataclass(frozen=True, slots=True)
class AccountLease:
    """One attempt's account: its plan, and its room in the store."""

    plan: Plan
    candidate: Candidate
    grant: AccountGrant | None

    @property
    def account(self) -> str:
        return self.candidate.account


class AccountPool:
    """All accounts. clock: seconds since the epoch. draw: a number from 0 to 1, by chance.

    balances: the money that they have left, None where nobody asks.
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
        self.max_attempts = settings.server.max_attempts
        self.account_wait_s = settings.server.account_wait_s
        self.backoff = Backoff()
        self._rules = [(rule.upstream, _rule(rule)) for rule in settings.rules]

    def attempts(self, plan: Plan) -> "RequestAttempts":
        """The attempts of one planned request."""
        if self.balances is not None:
            for upstream in (plan.settings, *(each.settings for each in plan.fallbacks)):
                self.balances.refresh(upstream)
        return RequestAttempts(self, plan)

    def upstream_accounts(self, accounts: tuple[AccountSettings, ...], selection: str) -> UpstreamAccounts:
        """One upstream of a chain."""
        upstream = accounts[0].upstream
        return UpstreamAccounts(
            tuple([Account(account.id, float(account.weight)) for account in accounts]),
            Selection(selection),
            tuple([rule for only, rule in self._rules if only in (None, upstream)]),
        )


class RequestAttempts:
    """The attempts of one request: an asynchronous context manager, which gives back what is still taken at its end.

    next() and hedge() give a lease with the plan to carry out; then comes failed(), ended() or dropped() for each
    lease.

    When next() gives None:
    fault: what to tell the client: that of an attempt, or why there was none to make.
    soonest: the seconds until the first account comes back, None when none will.
    """

    def __init__(self, pool: AccountPool, plan: Plan) -> None:
        self.retry_at: float | None = None
        self.error: WireError | None = None
        self._unfit: WireError | None = None  # what an upstream of the chain cannot do for this request
        self._pool = pool
        self._plans: dict[int, Plan] = {0: plan}
        self._later = plan.fallbacks
        chain = [(plan.settings, plan.accounts), *((each.settings, each.accounts) for each in plan.fallbacks)]
        upstreams = [pool.upstream_accounts(accounts, upstream.selection) for upstream, accounts in chain]
        self._settings = {account.id: account for _, accounts in chain for account in accounts}
        self._rules = {account.id: leg.rules for leg in upstreams for account in leg.accounts}
        # With one account there is nobody to turn to, whatever is known of it; but its limits are limits.
        self._counts = len(self._settings) > 1
        self._takes = self._counts or any(map(_is_limited, self._settings.values()))
        self._proxies = {
            account.id: _proxy_id(account.proxy or upstream.proxy)
            for upstream, accounts in chain
            for account in accounts
        }
        self._machine = Attempts(upstreams, max_attempts=pool.max_attempts, max_wait=pool.account_wait_s)
        self._conversation = plan.conversation
        self._open: dict[str, AccountLease] = {}
        self._disabling: list[WireError] = []  # that took an account out of use

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with anyio.move_on_after(_GIVE_BACK_S, shield=True):
            for lease in list(self._open.values()):
                await self._give_back(lease, 0.0)

    async def next(self) -> AccountLease | None:
        """What to try now, None when the client is to be answered. Waits where that is worth it."""
        while True:
            now = self._pool.clock()
            step = self._machine.next(self._health(), now, self._pool.random())
            if isinstance(step, Offer):
                lease = await self._take(step)
                if lease is not None:
                    return lease
            elif isinstance(step, Wait):
                await anyio.sleep(max(step.until - now, 0.0))
            else:
                self._note(step, now)
                return None

    async def hedge(self) -> AccountLease | None:
        """Another account to try beside the one that has not answered yet, None when there is none."""
        if self._machine.state is not AttemptState.TRYING:
            return None
        offer = self._machine.hedge(self._health(), self._pool.clock(), self._pool.random())
        return None if offer is None else await self._take(offer)

    def resend(self, lease: AccountLease) -> bool:
        """Count one more attempt with the same account. False: no attempt is left for it."""
        return self._machine.resend(lease.account)

    @property
    def made(self) -> int:
        """How many attempts were made, resends included."""
        return self._machine.made

    async def failed(
        self, lease: AccountLease, error: WireError, retry_after: float | None, *, connecting: bool = False
    ) -> ErrorAction:
        """The attempt failed before anything of its answer went out.

        after: seconds that the upstream asked for. connecting: no connection came about.
        """
        if self._machine.state is AttemptState.DONE:
            action = classify(error, self._rules[lease.account])
        else:
            action = self._machine.failed(lease.account, error)
        if self._counts and action is ErrorAction.DISABLE:
            self._disabling.append(error)
        await self._report(lease, action, error, retry_after, connecting=connecting)
        await self._give_back(lease, 0.0)
        return action

    def committed(self) -> None:
        """Content of an attempt is going out: no other follows."""
        self._machine.committed()

    async def ended(
        self, lease: AccountLease, error: WireError | None, tokens: float, remaining: float | None
    ) -> None:
        """The attempt that went out has ended, with a fault or well. tokens: what it used."""
        if error is not None:
            await self._report(lease, classify_stream_error(error), error, None)
        elif self._counts:
            await self._pool.store.succeeded(lease.account, remaining=remaining)
            proxy = self._proxies[lease.account]
            if proxy in self._pool.store.health():
                await self._pool.store.succeeded(proxy, remaining=None)
        await self._give_back(lease, tokens)

    async def cancelled(self, lease: AccountLease, tokens: float) -> None:
        """The attempt was ended for another one's sake. tokens: what it used, as far as that is known."""
        if self._machine.state is not AttemptState.DONE:
            self._machine.cancelled(lease.account)
        await self._give_back(lease, tokens)

    # What the machine and the store say to each other.

    def _health(self) -> Mapping[str, Health]:
        known = self._pool.store.health()
        behind = {
            account: _resting(known.get(account, _FRESH), known[proxy])
            for account, proxy in self._proxies.items()
            if proxy in known
        }
        shares = {} if self._pool.balances is None else self._pool.balances.shares
        poorer = {
            account: _with_share(behind.get(account) or known.get(account, _FRESH), shares[account])
            for account in self._settings
            if account in shares
        }
        return {**known, **behind, **poorer} if behind or poorer else known

    async def _take(self, offer: Offer) -> AccountLease | None:
        plan = self._plan(offer.upstream_index)
        if plan is None:
            self._machine.declined(math.inf)
            return None
        candidates = {account: _candidate(self._settings[account]) for account in offer.accounts}
        taken = None
        account = offer.accounts[0]
        if self._takes:
            conversation = self._conversation if plan.settings.sticky else None
            now = self._pool.clock()
            found = await self._pool.store.take(
                list(candidates.values()), conversation, uuid.uuid4().hex, now
            )
            if self._machine.state is not AttemptState.OFFERED:  # another attempt has decided it meanwhile
                if isinstance(found, AccountGrant):
                    await self._pool.store.give_back(found, candidates[found.account], 0.0, now)
                return None
            if not isinstance(found, AccountGrant):
                self._machine.declined(found.until)
                return None
            taken, account = found, found.account
        self._machine.accepted(account)
        lease = AccountLease(plan.with_account(self._settings[account]), candidates[account], taken)
        self._open[account] = lease
        return lease

    def _plan(self, leg: int) -> Plan | None:
        """The plan for a place in the chain, None where the request cannot be sent there."""
        plan = self._plans.get(leg)
        if plan is None:
            try:
                plan = self._plans[leg] = self._later[leg - 1].make()
            except (RemoteProtocolError, RequestRefused) as error:
                self._unfit = self._unfit or error.as_wire_error()
        return plan

    def _note(self, step: GiveUp, now: float) -> None:
        self.retry_at = None if step.retry_at is None else max(step.retry_at - now, 0.0)
        # That some upstream cannot take the request is no reason to give up where another one soon can.
        untried = self._unfit if self.retry_at is None else None
        self.error = step.error or untried or _nobody(self.retry_at)
        if any(self.error is error for error in self._disabling):
            # It is about an account, which is not the client's: what counts for the client is which ones are left.
            others = self._machine.made >= self._pool.max_attempts and self.retry_at is None
            self.error = _OTHERS_LEFT if others else _nobody(self.retry_at)

    async def _report(
        self,
        lease: AccountLease,
        action: ErrorAction,
        error: WireError,
        retry_after: float | None,
        *,
        connecting: bool = False,
    ) -> None:
        if not self._counts:
            return
        pool, account = self._pool, lease.account
        proxy = self._proxies[account]
        if proxy and (connecting or (error.kind is ErrorKind.UNREACHABLE and error.status is None)):
            account, action = proxy, ErrorAction.RETRY_LATER
        await pool.store.failed(
            account,
            action,
            f"{error.kind.value}{'' if error.status is None else f' ({error.status})'}",
            pool.clock(),
            retry_after=retry_after,
            random=pool.random(),
            backoff=pool.backoff,
        )

    async def _give_back(self, lease: AccountLease, tokens: float) -> None:
        if lease.grant is not None:
            await self._pool.store.give_back(lease.grant, lease.candidate, tokens, self._pool.clock())
        self._open.pop(lease.account, None)


def _resting(account: Health, proxy: Health) -> Health:
    """The account as it is while it can only be reached by the proxy."""
    if proxy.cooldown_until <= account.cooldown_until:
        return account
    return msgspec.structs.replace(account, cooldown_until=proxy.cooldown_until)


def _with_share(account: Health, share: float) -> Health:
    """The account with its money as one of its limits."""
    remaining = share if account.remaining is None else min(share, account.remaining)
    return msgspec.structs.replace(account, remaining=remaining)


@lru_cache(maxsize=1024)  # each request asks for those of its chain
def _proxy_id(proxy: Secret | None) -> str:
    """What the store calls a proxy, "" for none. Its URL may hold a password."""
    if proxy is None:
        return ""
    return "proxy:" + hashlib.sha256(proxy.reveal().encode()).hexdigest()[:16]


def classify_stream_error(error: WireError) -> ErrorAction:
    """What a failure after the first content means: it is no request's fault, whatever it is called."""
    action = classify(error)
    return (
        ErrorAction.RETRY_LATER if action in (ErrorAction.RETURN_TO_CLIENT, ErrorAction.TRY_NEXT) else action
    )


_OTHERS_LEFT = WireError(
    ErrorKind.OVERLOADED,
    "the accounts that were tried are out of use; others may take the next request",
    status=503,
)


def _nobody(retry_at: float | None) -> WireError:
    """There was no account to try."""
    if retry_at is None:
        message = (
            "every account of this model's upstreams is out of use; the gateway's operator finds the causes in its "
            "log or at /admin/accounts, and has to reset them there"
        )
        return WireError(ErrorKind.MISCONFIGURED, message)
    message = f"every account of this model's upstreams rests; the first is back in {math.ceil(retry_at)} s"
    return WireError(ErrorKind.RATE_LIMIT, message, status=429)


def _is_limited(account: AccountSettings) -> bool:
    return any((account.requests_per_minute, account.tokens_per_minute, account.max_concurrent_requests))


def _candidate(account: AccountSettings) -> Candidate:
    requests, tokens = account.requests_per_minute, account.tokens_per_minute
    return Candidate(
        account.id,
        None if requests is None else Rate(f"{account.id} requests", requests, _MINUTE),
        None if tokens is None else Rate(f"{account.id} tokens", tokens, _MINUTE),
        account.max_concurrent_requests,
    )


def _rule(rule: RuleSettings) -> ErrorRule:
    return ErrorRule(
        ErrorAction(rule.action),
        statuses=frozenset(rule.statuses),
        codes=frozenset(rule.codes),
        words=tuple([word.lower() for word in rule.words]),
    )
