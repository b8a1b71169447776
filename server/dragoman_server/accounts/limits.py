"""Enforce the limits of client keys and their groups: which models they may use, how fast, and for how much money.

A key and its group are both holders of limits: a request needs room with each of them, and counts for each.
A request is checked before it is planned, and counted immediately. Its tokens are known when it has ended, so they
become a debt: a holder that has used too many may send no request until the debt is paid off, and requests that run
concurrently may exceed a limit together. The estimated price of a request is reserved from a budget until the true one
is known. It is reserved in a counter that expires, because the gateway may be killed before: a budget without an end
would lose it for ever, although what the request has cost is unknown and may be nothing. So of a request that takes
longer than LEASE_S the reservation may end before it does.

The counters are in the account store, so that all gateways which share it count together, and a budget outlives a
restart if the store does. While the store does not work, no request is refused: the limits share upstreams fairly,
and serving requests is more important than counting them.
"""

import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import Enum
from itertools import product
from typing import TypeVar

import anyio
import msgspec

from dragoman import RequestRefused, Usage
from dragoman.codec import ProtocolSpec
from dragoman_server.accounts.budget_alerts import BudgetAlerts, BudgetUse
from dragoman_server.accounts.prices import Prices, cost
from dragoman_server.accounts.stores.base import (
    AccountStore,
    AccountStoreError,
    Counter,
    Operation,
    Rate,
    apply_in_time,
    in_order,
)
from dragoman_server.accounts.stores.operations import Add, Spend
from dragoman_server.accounts.stores.tables import LEASE_S
from dragoman_server.accounts.usage import BYTES_PER_TOKEN
from dragoman_server.models.routes import (
    NO_LISTED_MODELS,
    ListedModels,
    ModelRoute,
    UnknownModel,
    model_ids,
    resolve_chain,
)
from dragoman_server.platform.clock import utc_text
from dragoman_server.settings import ClientKey, Group, LimitHolder, Price, Settings
from dragoman_server.settings.clients import amount_text
from dragoman_server.settings.patterns import WILDCARD
from dragoman_server.wire.headers import HeaderList, limit_headers

ERRORS = logging.getLogger("dragoman.errors")

# For one call of the store, see STORE_S: requests wait for it.
_STORE_S = 1.0
_MINUTE_S = 60.0

# Model names in a message: a few help, a hundred do not.
_MAX_NAMES = 10
_MAX_NAME_LENGTH = 100

# The estimate that is reserved from a budget: a prompt of as many tokens as its bytes suggest, at most what models
# accept (images are large and cost little), and a response of a usual length.
_MAX_PROMPT_TOKENS = 200_000
_USUAL_RESPONSE_TOKENS = 1000

# Budgets that are read together.
_AT_ONCE = 100

# Dollars. Sums of floats are not exact.
_ROUNDING_TOLERANCE = 1e-9

_T = TypeVar("_T")


class Limit(Enum):
    """Units that are limited per minute. The values are the words in the vendors' headers."""

    REQUESTS = "requests"
    TOKENS = "tokens"


class ClientRefused(RequestRefused):
    """A request that this key may not send, or not now.

    Attributes:
        reached: The limit that is reached, its amount per minute, now, and when there is room again (seconds since the
            epoch); None for another reason, for which a retry does not help.
    """

    reached: tuple[Limit, int, float, float] | None = None

    def headers(self, protocol: ProtocolSpec) -> HeaderList:
        """Return the headers by which the client's SDK waits. protocol: the client's."""
        if self.reached is None:
            return []
        limit, per_minute, now, until = self.reached
        return limit_headers(protocol.rate_limit_headers, limit.value, per_minute, now=now, until=until)


class BudgetReservation(msgspec.Struct, frozen=True):
    """Dollars of a budget, reserved until the request ends.

    Attributes:
        counter: The store's counter that they are in.
        expires: When that counter ends.
        lease: See Add.
    """

    counter: str
    expires: float
    dollars: float
    lease: str


class ClientLimits:
    """The limits of all client keys and groups.

    Args:
        clock: returns the seconds since the epoch.
        alerts: get what was spent of each budget.
    """

    def __init__(
        self,
        settings: Settings,
        store: AccountStore,
        clock: Callable[[], float] = time.time,
        alerts: BudgetAlerts | None = None,
    ) -> None:
        self._alerts = alerts
        self._settings = settings
        self._prices = Prices(settings.prices, settings.upstreams)
        self._has_prices = bool(self._prices)
        self._store = store
        self._clock = clock
        self._store_failed = False

    def check_model(
        self,
        key: ClientKey,
        protocol: str,
        model: str,
        listed: ListedModels = NO_LISTED_MODELS,
        others: Sequence[str] = (),
    ) -> list[Price]:
        """Return the prices of the models that a request may go to, none if no budget bears it.

        protocol: the client's. model: as the client names it, "" for none. listed: the models that upstreams list.
        others: the models that it names besides, from other_models().

        Raises RequestRefused (403) if the key may not use one of the models.
        """
        for holder in key.holders if model else ():
            if not holder.allows(model):
                raise _not_allowed(holder, model)
        with_budget = next(_with_budget(key), None)
        found: Sequence[ModelRoute] | UnknownModel = ()
        if model and (with_budget is not None or others):
            found = resolve_chain(self._settings, protocol, model, listed)
        if isinstance(found, UnknownModel):
            return []  # the plan of the request raises the error
        for name, holder in product(others, key.holders):
            allows = holder.allows
            if not (allows(name) or (found and all(allows(f"{to.upstream}/{name}") for to in found))):
                raise _not_allowed(holder, name)
        if others and not found:
            self.refuse_unknown_cost(key)
        prices = []
        for to, other in product(found, (None, *others)) if with_budget is not None else ():
            name = to.upstream_model if other is None else other
            price = self._prices.find(model if other is None else None, to.upstream, name)
            if price is None:
                assert with_budget is not None
                raise _forbidden(
                    f"the {with_budget.label} has a budget, and the model {_quote(other or model)} has no price here: "
                    f"{_quote(f'{to.upstream}/{name}')} needs a table in [[prices]]"
                )
            prices.append(price)
        return prices

    @staticmethod
    def refuse_unknown_cost(key: ClientKey) -> None:
        """Raise RequestRefused (403) for a request whose cost nobody knows, if a budget would have to bear it."""
        if (holder := next(_with_budget(key), None)) is not None:
            raise _forbidden(f"the {holder.label} has a budget, and what this request costs is not known")

    def check_upstream(self, key: ClientKey, upstream: str, listed: ListedModels = NO_LISTED_MODELS) -> None:
        """Check a request that names no model, and goes to this upstream.

        Raises RequestRefused (403) if none of the models that the key may use is one of the upstream's.
        """
        for holder in key.holders:
            if holder.models and not any(self._leads_to(holder, upstream, listed)):
                raise _forbidden(f"the {holder.label} may use no model of the upstream {_quote(upstream)}")

    def _leads_to(self, holder: LimitHolder, upstream: str, listed: ListedModels) -> Iterator[bool]:
        """Yield for each of the holder's models whether it is one of the upstream's."""
        for name in (*holder.models, *model_ids(self._settings), *listed.get(upstream, ())):
            if name.startswith(f"{upstream}/") and name in holder.models:
                yield True
            elif WILDCARD not in name and holder.allows(name):
                chain = resolve_chain(self._settings, None, name, listed)
                yield not isinstance(chain, UnknownModel) and any(to.upstream == upstream for to in chain)

    @staticmethod
    def estimate(prices: Sequence[Price], body_bytes: int) -> float:
        """Estimate the cost of a request in US dollars. prices: from check_model()."""
        tokens = min(body_bytes // BYTES_PER_TOKEN, _MAX_PROMPT_TOKENS)
        usage = Usage(input=tokens, output=_USUAL_RESPONSE_TOKENS)
        return max((cost(price, usage) for price in prices), default=0.0)

    async def admit(self, key: ClientKey, dollars: float = 0.0) -> Sequence[BudgetReservation]:
        """Count a request and reserve its estimated cost from each budget. Pass the result to settle().

        dollars: from estimate(). Raises ClientRefused.
        """
        now = self._clock()
        reserved = await self._reserve(key, dollars, now)
        try:
            await self._count(key, now)
        except BaseException:  # it is too fast, or was cancelled meanwhile
            await self._release(reserved)
            raise
        return reserved

    async def reserve_more(
        self, key: ClientKey, reserved: Sequence[BudgetReservation], dollars: float
    ) -> Sequence[BudgetReservation]:
        """Reserve what a request costs by a higher estimate than that of admit(), which has made the reservations.

        dollars: all of it. Raises ClientRefused.
        """
        own = max([each.dollars for each in reserved], default=0.0)
        more = await self._reserve(key, dollars - own, self._clock(), own) if dollars > own else ()
        return [*reserved, *more]

    async def _reserve(
        self, key: ClientKey, dollars: float, now: float, own: float = 0.0
    ) -> Sequence[BudgetReservation]:
        """Reserve from each budget. own: what the request has of it, which leaves no less for the rest of it."""
        reserved: list[BudgetReservation] = []
        try:
            for holder in _with_budget(key):
                reserved.append(await self._reserve_from(holder, dollars, now, own))
        except BaseException:  # one of them is spent
            await self._release(reserved)
            raise
        return reserved

    async def _reserve_from(
        self, holder: LimitHolder, dollars: float, now: float, own: float
    ) -> BudgetReservation:
        assert holder.budget is not None
        limit = holder.budget + own - _ROUNDING_TOLERANCE
        counters, lease = _counters(holder, now), os.urandom(12).hex()
        # A cancelled call would leave the sum unknown. The wait is bounded by _STORE_S.
        with anyio.CancelScope(shield=True):
            before = await self._run(Add(counters, dollars, now, limit, lease))
        if before is not None and before[-1] <= limit < in_order(before):
            raise ClientRefused(
                f"what is left of the budget of the {holder.label} is reserved for its requests that are under way; "
                "try again when one of them has ended",
                status=429,
                code="rate_limit_exceeded",
            )
        if before is not None and in_order(before) > limit:
            _, ends = _counter(holder, now)
            again = "" if ends is None else f"; it starts again at {utc_text(ends)}"
            period = {"total": "in all"}.get(holder.budget_period, f"a {holder.budget_period}")
            # 402, or what the client's protocol has for it.
            raise ClientRefused(
                f"the budget of the {holder.label} is spent: {amount_text(holder.budget)} US dollars {period}{again}; "
                "only the operator of the gateway can raise it",
                status=402,
                code="insufficient_quota",
            )
        counter, expires = counters[0]
        assert expires is not None
        return BudgetReservation(counter, expires, dollars, lease)

    async def _release(self, reserved: Sequence[BudgetReservation]) -> None:
        with anyio.CancelScope(shield=True):  # bounded by _STORE_S
            for each in reserved:
                if each.dollars:
                    counter = each.counter, each.expires
                    await self._run(Add([counter], -each.dollars, self._clock(), lease=each.lease))

    async def _count(self, key: ClientKey, now: float) -> None:
        rates = _rates(key)
        if not rates:
            return
        amounts = [(rate, 1.0 if limit is Limit.REQUESTS else 0.0) for _, limit, rate in rates]
        available_at = await self._run(Spend(amounts, now, at_once=True))
        if not available_at or not any(available_at):
            return
        until, (holder, limit, rate) = max(zip(available_at, rates, strict=True), key=lambda each: each[0])
        per_minute = round(rate.limit)
        refused = ClientRefused(
            f"the {holder.label} may use {per_minute} {limit.value} a minute; "
            f"try again in {max(0.0, until - now):.3f}s",
            status=429,
            code="rate_limit_exceeded",
        )
        refused.reached = limit, per_minute, now, until
        raise refused

    async def spent(self, holders: Sequence[LimitHolder]) -> list[float | None]:
        """Return what was spent or reserved of each budget in this period, None if it has none or that is unknown."""
        now, found = self._clock(), dict[str, float]()
        with_budget = [holder for holder in holders if holder.budget is not None]
        for first in range(0, len(with_budget), _AT_ONCE):
            some = with_budget[first : first + _AT_ONCE]
            counters = [counter for holder in some for counter in _counters(holder, now)]
            amounts = await self._run(Add(counters, 0.0, now)) or ()
            for index, holder in enumerate(some if amounts else ()):
                of_one = len(counters) // len(some)
                found[holder.label] = in_order(amounts[index * of_one : (index + 1) * of_one])
        return [found.get(holder.label) for holder in holders]

    def period_ends(self, holder: LimitHolder) -> datetime | None:
        """Return when a budget starts again, None for never."""
        return _counter(holder, self._clock())[1]

    def needs_usage(self, key: ClientKey | None) -> bool:
        """True if the usage of a request with this key is needed."""
        if self._has_prices or key is None:
            return self._has_prices
        return any(each.tokens_per_minute is not None for each in key.holders)

    def cost(
        self,
        model: str | None,
        upstream: str | None,
        upstream_model: str | None,
        usage: Usage,
        written_1h: int | None = None,
        units: Mapping[str, float] | None = None,
    ) -> float | None:
        """Return the cost in US dollars, None for a model without a price.

        model: as the client named it. written_1h, units: see accounts.usage.cost().
        """
        price = self._prices.find(model, upstream, upstream_model)
        return None if price is None else cost(price, usage, written_1h, units)

    async def settle(
        self,
        key: ClientKey,
        usage: Usage,
        dollars: float | None,
        reserved: Sequence[BudgetReservation] = (),
    ) -> None:
        """Count the usage of a request that has ended. dollars: from cost(). reserved: from admit().

        A store that does not work raises nothing here.
        """
        now, tokens = self._clock(), float((usage.input or 0) + (usage.output or 0))
        amounts = [(rate, tokens) for _, limit, rate in _rates(key) if limit is Limit.TOKENS]
        if amounts and tokens:
            await self._run(Spend(amounts, now, at_once=False))
        for holder in _with_budget(key) if dollars else ():
            counter = _counters(holder, now)[-1]
            before = await self._run(Add([counter], dollars or 0.0, now))
            if before and self._alerts is not None:
                use = BudgetUse(holder, counter, before[0] + (dollars or 0.0))
                self._alerts.note(use, self._settings.server.budget_webhook, now)
        await self._release(reserved)

    async def _run(self, operation: Operation[_T]) -> _T | None:
        """Return the store's result, None if it fails or does not respond in time."""
        try:
            result = await apply_in_time(self._store, operation, _STORE_S)
        except AccountStoreError as error:
            if not self._store_failed:  # one line each time that it fails, not one for each request
                ERRORS.warning("the limits of client keys are not counted: %s", error)
            self._store_failed = True
            return None
        self._store_failed = False
        return result


def _with_budget(key: ClientKey) -> Iterator[LimitHolder]:
    return (holder for holder in key.holders if holder.budget is not None)


def _rates(key: ClientKey) -> list[tuple[LimitHolder, Limit, Rate]]:
    """Return the rates that a request counts for: tokens first, whose wait is reported if both are as long."""
    found: list[tuple[LimitHolder, Limit, Rate]] = []
    for holder in key.holders:
        per_minute = (Limit.TOKENS, holder.tokens_per_minute), (Limit.REQUESTS, holder.requests_per_minute)
        for limit, amount in per_minute:
            if amount is not None:
                name = f"{_counter_prefix(holder) or 'client:'}{holder.name}:{limit.value}"
                found.append((holder, limit, Rate(name, float(amount), _MINUTE_S, limit is Limit.TOKENS)))
    return found


def _counter_prefix(holder: LimitHolder) -> str:
    # A name has no colon.
    return "group:" if isinstance(holder, Group) else ""


def _counter(holder: LimitHolder, now: float) -> tuple[str, datetime | None]:
    """Return the counter for the money of this period, and when the period ends. Days and months follow UTC."""
    today = datetime.fromtimestamp(now, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    name, ends = "total", None
    if holder.budget_period == "day":
        name, ends = f"{today:%Y-%m-%d}", today + timedelta(days=1)
    elif holder.budget_period == "month":
        # 31 days after the 1st is in the next month, whichever it is.
        name, ends = f"{today:%Y-%m}", (today.replace(day=1) + timedelta(days=31)).replace(day=1)
    return f"budget:{_counter_prefix(holder)}{holder.name}:{name}", ends


def _counters(holder: LimitHolder, now: float) -> list[Counter]:
    """Return what counts for a budget: amounts reserved from now on, reserved before, and spent."""
    counter, ends = _counter(holder, now)
    slot = int(now // LEASE_S)
    reserved = [(f"{counter}:reserved:{begun}", (begun + 2) * LEASE_S) for begun in (slot, slot - 1)]
    return [*reserved, (counter, None if ends is None else ends.timestamp())]


def _not_allowed(holder: LimitHolder, model: str) -> RequestRefused:
    more = ", ..." if len(holder.models) > _MAX_NAMES else ""
    return _forbidden(
        f"the {holder.label} may not use the model {_quote(model)}; it may use "
        f"{', '.join(holder.models[:_MAX_NAMES])}{more}"
    )


def _forbidden(message: str) -> RequestRefused:
    return ClientRefused(message, status=403, path="/model", code="model_not_allowed")


def _quote(name: str) -> str:
    return repr(name if len(name) <= _MAX_NAME_LENGTH else name[:_MAX_NAME_LENGTH] + "...")
