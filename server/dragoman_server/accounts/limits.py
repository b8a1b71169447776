"""What a client key may use: which models, how fast, and for how much money.

Strategy: one look before a request is planned, one report when it has ended, nothing in between. A request counts at
once. Its tokens are known when it has ended, so they become a debt: a key that has used too much has no room until
that is paid off, and requests that are under way together may go over a limit by what they take. Of a budget, the
price that a request is likely to have is reserved while it is under way; the true one counts in the end.

The counters are in the store of accounts, so that all gateways which share it count together, and a budget outlives a
restart wherever the store does. A store that cannot be asked refuses nobody: the limits are there to share upstreams
fairly, and an upstream that works is worth more than its bookkeeping.
"""

import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import TypeVar

import anyio

from dragoman import RemoteProtocolError, Usage
from dragoman.codec import ProtocolSpec
from dragoman_server.accounts.pricing import cost, names_of, price_of
from dragoman_server.accounts.stores.base import AccountStore, AccountStoreError, Rate
from dragoman_server.headers import HeaderList, limit_headers
from dragoman_server.keys import may_use
from dragoman_server.models.routes import (
    NO_LISTED_MODELS,
    ListedModels,
    ModelRoute,
    UnknownModel,
    resolve_chain,
)
from dragoman_server.settings import ClientKey, Price, Settings

ERRORS = logging.getLogger("dragoman.errors")

# The store has a deadline of its own. This one is for a store that does not keep it.
_STORE_S = 1.0
_MINUTE_S = 60.0

# Model names in a message: a few are a help, a hundred are not.
_MOST_NAMES = 10
_LONGEST_NAME = 100

# The estimate that is reserved of a budget: a prompt of as many tokens as its bytes suggest, at most what models take
# (pictures are large and cost little), and an answer of a usual length.
_BYTES_PER_TOKEN = 4
_MOST_PROMPT_TOKENS = 200_000
_USUAL_ANSWER_TOKENS = 1000

# Dollars. Sums of floats are not exact.
_SLACK = 1e-9

_Answer = TypeVar("_Answer")


class Limit(Enum):
    """What is counted by the minute. The values are the words in the vendors' headers."""

    REQUESTS = "requests"
    TOKENS = "tokens"


class ClientRefused(RemoteProtocolError):
    """A request that this key may not send, or not now."""

    def headers(self, protocol: ProtocolSpec) -> HeaderList:
        """What the client's library reads of it. protocol: the client's."""
        return []


class LimitReached(ClientRefused):
    """Too fast: 429. until: when there is room again; now, until: seconds since the epoch."""

    def __init__(self, key: str, limit: Limit, most: int, now: float, until: float) -> None:
        seconds = max(0.0, until - now)
        super().__init__(
            f"the client key {key} may use {most} {limit.value} a minute; try again in {seconds:.3f}s",
            status=429,
            code="rate_limit_exceeded",
        )
        self.limit, self.most, self.now, self.until = limit, most, now, until

    def headers(self, protocol: ProtocolSpec) -> HeaderList:
        return limit_headers(
            protocol.rate_limit_headers, self.limit.value, self.most, now=self.now, until=self.until
        )


class BudgetSpent(ClientRefused):
    """No money left: the status that the client's protocol has for it. Waiting for seconds does not help."""

    def __init__(self, key: ClientKey, ends: datetime | None) -> None:
        again = "" if ends is None else f"; it starts again at {ends:%Y-%m-%dT%H:%M:%SZ}"
        words = {"total": "in all"}.get(key.budget_period, f"a {key.budget_period}")
        super().__init__(
            f"the budget of the client key {key.name} is spent: {key.budget:g} US dollars {words}{again}",
            status=402,
            code="insufficient_quota",
        )


@dataclass(frozen=True, slots=True)
class BudgetReservation:
    """Dollars of a budget that are reserved until the request ends. counter, expires: where they are counted."""

    counter: str
    expires: float | None
    dollars: float


class ClientLimits:
    """The limits of all client keys. clock: seconds since the epoch."""

    def __init__(
        self, settings: Settings, store: AccountStore, clock: Callable[[], float] = time.time
    ) -> None:
        self._settings = settings
        self._store = store
        self._clock = clock
        self._down = False
        self._budgets: dict[str, anyio.Lock] = {}  # by key, so that looking and reserving is one step

    def check_model(
        self, key: ClientKey, protocol: str, model: str, listed: ListedModels = NO_LISTED_MODELS
    ) -> None:
        """Whether the key may use the model. protocol: the client's. model: as the client names it.

        listed: the models that upstreams list. Raises RemoteProtocolError (403).
        """
        if not may_use(key, model):
            more = ", ..." if len(key.models) > _MOST_NAMES else ""
            raise _forbidden(
                f"the client key {key.name} may not use the model {_shown(model)}; it may use "
                f"{', '.join(key.models[:_MOST_NAMES])}{more}"
            )
        if key.budget is None:
            return
        chain = resolve_chain(self._settings, protocol, model, listed)
        if isinstance(chain, UnknownModel):
            return  # which is told when the request is planned
        for route in chain:
            if self._price(model, route) is None:
                raise _forbidden(
                    f"the client key {key.name} has a budget, and the model {_shown(model)} has no price here: "
                    f"{_shown(f'{route.upstream}/{route.upstream_model}')} needs a table in [[prices]]"
                )

    def estimate(
        self, protocol: str, model: str, body_bytes: int, listed: ListedModels = NO_LISTED_MODELS
    ) -> float:
        """Estimate the cost of a request in US dollars. protocol, model, listed: see check_model()."""
        chain = resolve_chain(self._settings, protocol, model, listed)
        tokens = min(body_bytes // _BYTES_PER_TOKEN, _MOST_PROMPT_TOKENS)
        usage = Usage(input=tokens, output=_USUAL_ANSWER_TOKENS)
        prices = [] if isinstance(chain, UnknownModel) else [self._price(model, route) for route in chain]
        return max((cost(price, usage) for price in prices if price is not None), default=0.0)

    async def admit(self, key: ClientKey, dollars: float = 0.0) -> BudgetReservation | None:
        """Count a request and reserve its estimated cost, if there is a budget. Pass the result to settle().

        dollars: from estimate(). Raises RemoteProtocolError: LimitReached, BudgetSpent.
        """
        now = self._clock()
        reserved = await self._reserve(key, dollars, now)
        try:
            await self._count(key, now)
        except BaseException:  # it is too fast, or was cancelled meanwhile
            with anyio.CancelScope(shield=True):  # bounded by _STORE_S
                await self._charge(reserved, None, 0.0)
            raise
        return reserved

    async def _reserve(self, key: ClientKey, dollars: float, now: float) -> BudgetReservation | None:
        if key.budget is None:
            return None
        counter, ends = _counter(key, now)
        expires = None if ends is None else ends.timestamp()
        async with self._budgets.setdefault(key.name, anyio.Lock(fast_acquire=True)):
            spent = await self._ask(self._store.total(counter, now))
            if spent is not None and spent > key.budget - _SLACK:
                raise BudgetSpent(key, ends)
            with anyio.CancelScope(
                shield=True
            ):  # bounded by _STORE_S; a cancelled call would leave the sum unknown
                await self._ask(self._store.add(counter, dollars, expires))
        return BudgetReservation(counter, expires, dollars)

    async def _charge(
        self, reserved: BudgetReservation | None, key: ClientKey | None, dollars: float
    ) -> None:
        """Replace what was reserved by the true cost. key: None if the request cost nothing."""
        owed: dict[tuple[str, float | None], float] = {}
        if reserved is not None:
            owed[reserved.counter, reserved.expires] = -reserved.dollars
        if key is not None and key.budget is not None:
            counter, ends = _counter(key, self._clock())
            place = counter, None if ends is None else ends.timestamp()
            owed[place] = owed.get(place, 0.0) + dollars
        for (counter, expires), amount in owed.items():
            if amount:
                await self._ask(self._store.add(counter, amount, expires))

    async def _count(self, key: ClientKey, now: float) -> None:
        rates = _rates(key)
        if not rates:
            return
        asked = [(rate, 1.0 if limit is Limit.REQUESTS else 0.0) for limit, rate in rates.items()]
        until = await self._ask(self._store.spend(asked, now, at_once=True))
        if not until:
            return
        limit = next(iter(rates))
        if len(rates) > 1:
            # The store says when there is room for both. Which one it waits for is asked where it matters.
            owes = await self._ask(self._store.spend([(rates[Limit.TOKENS], 0.0)], now, at_once=True))
            limit = Limit.TOKENS if owes else Limit.REQUESTS
        raise LimitReached(key.name, limit, round(rates[limit].limit), now, until)

    def wants_usage(self, key: ClientKey | None) -> bool:
        """Whether anybody wants to know what a request took."""
        return bool(self._settings.prices) or (key is not None and key.tokens_per_minute is not None)

    def cost(
        self, model: str | None, upstream: str | None, upstream_model: str | None, usage: Usage
    ) -> float | None:
        """US dollars, None for a model without a price. model: as the client named it."""
        price = price_of(self._settings.prices, names_of(model, upstream, upstream_model))
        return None if price is None else cost(price, usage)

    async def settle(
        self, key: ClientKey, usage: Usage, dollars: float | None, reserved: BudgetReservation | None = None
    ) -> None:
        """Count what a request has used. dollars: its cost(). reserved: what admit() gave.

        Never raises for a store that does not work.
        """
        tokens = (usage.input or 0) + (usage.output or 0)
        rate = _rates(key).get(Limit.TOKENS)
        if rate is not None and tokens:
            await self._ask(self._store.spend([(rate, float(tokens))], self._clock(), at_once=False))
        await self._charge(reserved, key, dollars or 0.0)

    def _price(self, model: str, route: ModelRoute) -> Price | None:
        return price_of(self._settings.prices, names_of(model, route.upstream, route.upstream_model))

    async def _ask(self, answer: Awaitable[_Answer]) -> _Answer | None:
        """What the store says, None when it says nothing in time."""
        try:
            with anyio.fail_after(_STORE_S):
                found = await answer
        except (AccountStoreError, TimeoutError) as error:
            if not self._down:  # one line each time that it fails, not one for each request
                ERRORS.warning("the limits of client keys are not counted: %s", error or "no answer in time")
            self._down = True
            return None
        self._down = False
        return found


def _rates(key: ClientKey) -> dict[Limit, Rate]:
    most = {Limit.REQUESTS: key.requests_per_minute, Limit.TOKENS: key.tokens_per_minute}
    return {
        limit: Rate(f"client:{key.name}:{limit.value}", float(each), _MINUTE_S)
        for limit, each in most.items()
        if each is not None
    }


def _counter(key: ClientKey, now: float) -> tuple[str, datetime | None]:
    """Where the money of this period is counted, and when the period ends. Days and months are those of UTC."""
    today = datetime.fromtimestamp(now, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    name, ends = "total", None
    if key.budget_period == "day":
        name, ends = f"{today:%Y-%m-%d}", today + timedelta(days=1)
    elif key.budget_period == "month":
        # The 1st and 31 days lie in the next month, whichever it is.
        name, ends = f"{today:%Y-%m}", (today.replace(day=1) + timedelta(days=31)).replace(day=1)
    return f"budget:{key.name}:{name}", ends


def _forbidden(message: str) -> RemoteProtocolError:
    return ClientRefused(message, status=403, path="/model", code="model_not_allowed")


def _shown(name: str) -> str:
    return repr(name if len(name) <= _LONGEST_NAME else name[:_LONGEST_NAME] + "...")
