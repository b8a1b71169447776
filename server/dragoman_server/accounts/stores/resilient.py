"""A store of accounts that may be slow or dead, and a gateway that goes on all the same.

Strategy: every call has a deadline. Who decides what to send with gets an answer from the memory of this process when
the store has none; it knows the same requests, so it starts from what this gateway knew. After a few failures in a row
nobody asks any more (the breaker is open): a task of its own tries from time to time, so that no request waits for
that, and tells the store what it has missed before it is believed again.

What has been tried and not answered may have been done. So it is said again only if that does no harm: a cool-down or
a lease that is given back, never tokens or money.
"""

import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

import anyio

from dragoman_server.accounts.error_actions import Verdict
from dragoman_server.accounts.health import Health, Rest
from dragoman_server.accounts.stores.base import (
    AccountStore,
    AccountStoreError,
    Candidate,
    NoRoom,
    Rate,
    Taken,
)
from dragoman_server.accounts.stores.memory import MemoryAccounts
from dragoman_server.accounts.stores.rate_limits import coarse

LOG = logging.getLogger("dragoman.accounts")

_T = TypeVar("_T")
_Call: TypeAlias = Callable[[AccountStore], Awaitable[_T]]

# A request waits for a store no longer than that: an account that another one would not have chosen costs less.
DEADLINE_S = 0.05
# Failures in a row after which nobody waits any more.
_MOST_FAILURES = 3
# How often the store is tried while it does not answer.
_PROBE_S = 0.25
# What the store has missed: the oldest are forgotten, which are of no use any more.
_MOST_UNTOLD = 1000
# To say one thing. One that never works must not stand in the way of all others.
_MOST_TRIES = 3

_FRESH = Health()
_HARMLESS_AGAIN = {Verdict.COOL, Verdict.DISABLE}


class _NoAnswer(Exception):
    """asked: whether the store may have done it."""

    def __init__(self, *, asked: bool) -> None:
        self.asked = asked


@dataclass(slots=True)
class _Untold:
    """Something that the store is to be told. again: what to say when that was tried without an answer, if anything."""

    call: _Call[object]
    again: _Call[object] | None
    tries: int = 0


class Careful:
    """See AccountStore. Never raises AccountStoreError.

    local_decisions: how often the store had no answer for somebody who had to decide.
    """

    def __init__(self, store: AccountStore, local: MemoryAccounts, deadline_s: float = DEADLINE_S) -> None:
        self.local_decisions = 0
        self._store = store
        self._local = local
        self._deadline_s = deadline_s
        self._failures = 0  # in a row
        self._open = False
        self._untold: deque[_Untold] = deque(maxlen=_MOST_UNTOLD)
        # Accounts of which the local memory knows something that the store's view may lack.
        self._changed: set[str] = set()
        self._behind = anyio.Event()  # set: the store has missed something

    @property
    def is_open(self) -> bool:
        """Whether the store is not asked at present."""
        return self._open

    def health(self) -> Mapping[str, Health]:
        view = self._store.health()
        if not self._changed:
            return view
        known = self._local.health()
        return {**view, **{account: known[account] for account in self._changed if account in known}}

    async def take(
        self, candidates: Sequence[Candidate], conversation: str | None, lease: str, now: float
    ) -> Taken | NoRoom:
        async def release(store: AccountStore) -> None:
            for each in candidates:
                if each.most_at_once is not None:
                    await store.give_back(Taken(each.account, lease), each, 0.0, now)

        try:
            answer = await self._ask(lambda store: store.take(candidates, conversation, lease, now), release)
        except _NoAnswer:
            self.local_decisions += 1
            self._know(each.account for each in candidates)
            answer = await self._local.take(candidates, conversation, lease, now)
            if isinstance(answer, Taken):
                self._changed.add(answer.account)
            return answer
        if isinstance(answer, Taken):
            taken = next(each for each in candidates if each.account == answer.account)
            self._local.note(taken, conversation, lease, now)
        return answer

    async def give_back(self, taken: Taken, candidate: Candidate, tokens: float, now: float) -> None:
        await self._local.give_back(taken, candidate, tokens, now)
        if candidate.most_at_once is None and (candidate.tokens is None or not tokens):
            return
        await self._tell(
            lambda store: store.give_back(taken, candidate, tokens, now),
            lambda store: store.give_back(taken, candidate, 0.0, now),
        )

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
        def call(store: AccountStore) -> Awaitable[None]:
            return store.failed(account, verdict, cause, now, after=after, draw=draw, rest=rest)

        await self._change(account, call, again=verdict in _HARMLESS_AGAIN)

    async def succeeded(self, account: str, *, remaining: float | None) -> None:
        known = self.health().get(account, _FRESH)
        if known.after_success(remaining=coarse(remaining)) is not known:
            await self._change(
                account, lambda store: store.succeeded(account, remaining=remaining), again=True
            )

    async def disable(self, account: str, cause: str) -> None:
        await self._change(account, lambda store: store.disable(account, cause), again=True)

    async def reset(self, account: str) -> None:
        await self._change(account, lambda store: store.reset(account), again=True)

    async def spend(self, rates: Sequence[tuple[Rate, float]], now: float, *, at_once: bool) -> float:
        def call(store: AccountStore) -> Awaitable[float]:
            return store.spend(rates, now, at_once=at_once)

        try:
            opens = await self._ask(call)
        except _NoAnswer as no_answer:
            self.local_decisions += 1
            if not at_once and not no_answer.asked:
                self._later(_Untold(call, None))
            return await self._local.spend(rates, now, at_once=at_once)
        if not (at_once and opens):
            await self._local.spend(rates, now, at_once=False)
        return opens

    async def add(self, counter: str, amount: float, expires: float | None) -> None:
        await self._local.add(counter, amount, expires)
        await self._tell(lambda store: store.add(counter, amount, expires))

    async def total(self, counter: str, now: float) -> float:
        try:
            amount = await self._ask(lambda store: store.total(counter, now))
        except _NoAnswer:
            self.local_decisions += 1
            return await self._local.total(counter, now)
        if self._untold:
            return max(amount, await self._local.total(counter, now))
        self._local.learn_total(counter, amount)
        return amount

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """See AccountStore. Raises what the store's own does."""
        async with self._store.running(), anyio.create_task_group() as tasks:
            self._behind.set()  # a store that is dead from the start is found out at once
            tasks.start_soon(self._catch_up_always)
            try:
                yield
            finally:
                tasks.cancel_scope.cancel()

    # Asking.

    async def _ask(self, call: _Call[_T], again: _Call[object] | None = None) -> _T:
        """What the store says. Raises _NoAnswer. again: to be said later if it may have done what was asked."""
        if self._open:
            raise _NoAnswer(asked=False)
        try:
            result = await self._in_time(call)
        except (AccountStoreError, TimeoutError) as error:
            self._failed(error)
            self._later(_Untold(again, again, 1) if again else None)
            raise _NoAnswer(asked=True) from error
        except anyio.get_cancelled_exc_class():
            self._later(_Untold(again, again, 1) if again else None)
            raise
        self._failures = 0
        return result

    async def _tell(self, call: _Call[object], again: _Call[object] | None = None) -> bool:
        """Whether the store has heard it; if not, it will, as far as that does no harm."""
        if self._open or self._untold:  # what came first is said first
            self._later(_Untold(call, again))
            return False
        try:
            await self._ask(call, again)
        except _NoAnswer:
            return False
        return True

    async def _change(self, account: str, call: _Call[object], *, again: bool) -> None:
        """A change of an account's health. Until the store has heard it, it counts here."""
        if not await self._tell(call, call if again else None):
            self._know([account])
            await call(self._local)
            self._changed.add(account)

    async def _in_time(self, call: _Call[_T]) -> _T:
        with anyio.fail_after(self._deadline_s):
            return await call(self._store)

    def _know(self, accounts: Iterable[str]) -> None:
        """Let the local memory know of these accounts what the store's view says."""
        view = self._store.health()
        for account in accounts:
            if account not in self._changed:
                self._local.learn(account, view.get(account))

    # When it does not answer.

    def _failed(self, error: Exception) -> None:
        self._failures += 1
        if self._failures >= _MOST_FAILURES and not self._open:
            self._open = True
            why = str(error) or f"no answer within {self._deadline_s * 1000:g} ms"
            LOG.warning("the account store does not work, this gateway decides alone: %s", why)
        self._later(None)

    def _later(self, untold: _Untold | None) -> None:
        if untold is not None:
            self._untold.append(untold)
        self._behind.set()

    async def _catch_up_always(self) -> None:
        while True:
            await self._behind.wait()
            if not await self._catch_up():
                await anyio.sleep(_PROBE_S)
                continue
            self._changed.clear()
            self._failures = 0
            self._behind = anyio.Event()
            if self._open:
                self._open = False
                LOG.info(
                    "the account store works again, after %d local decisions in all", self.local_decisions
                )

    async def _catch_up(self) -> bool:
        """Tell the store all that it has missed. False when it does not answer."""
        told: _Untold | None = None
        try:
            await self._in_time(_does_it_answer)
            while self._untold:
                told = self._untold.popleft()
                await self._in_time(told.call)
        except (AccountStoreError, TimeoutError) as error:
            again = None if told is None or told.tries + 1 == _MOST_TRIES else told.again
            # When newer ones have taken its place, it is of no use any more.
            if told is not None and again is not None and len(self._untold) < _MOST_UNTOLD:
                self._untold.appendleft(_Untold(again, again, told.tries + 1))
            self._failed(error)
            return False
        return True


async def _does_it_answer(store: AccountStore) -> None:
    await store.take((), None, "", 0.0)
