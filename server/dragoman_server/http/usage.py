"""GET /v1/usage: what a client key has used; and what GET /admin/usage has in common with it (`admin.usage`)."""

import re
import time
from collections.abc import Awaitable, Collection, Sequence
from datetime import UTC, datetime
from typing import Any, Protocol

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace
from starlette.routing import BaseRoute

from dragoman import RequestRefused
from dragoman_server.accounts.limits import ClientLimits
from dragoman_server.gateway import Gateway
from dragoman_server.http.auth import KEY_PLACES
from dragoman_server.http.endpoint import BaseEndpoint
from dragoman_server.http.operations import ApiOperation, DescribedRoute
from dragoman_server.http.request import Parameter, Query, invalid_parameter
from dragoman_server.platform.clock import utc_text
from dragoman_server.proxying.client_request import ClientRequest
from dragoman_server.settings import ClientKey, LimitHolder
from dragoman_server.usage.stores.base import (
    DAY_HOURS,
    FILTERS,
    FIRST_BYTE_BOUNDS,
    GROUPS,
    HOUR_S,
    KeyUse,
    UsageCounts,
    UsageGroup,
    UsageQuery,
    UsageStoreError,
)

USAGE_PATH = "/v1/usage"

_DEFAULT_SINCE = "7d"
_DEFAULT_LIMIT, _MAX_LIMIT = 1000, 10_000

_UNITS = {"h": 1, "d": DAY_HOURS, "w": 7 * DAY_HOURS}
_AGO = re.compile(r"(\d{1,5})([hdw])")
_A_TIME = "24h, 7d, 2w (ago), a date, or a time such as 2026-11-29T18:00:00Z"

_BY = Parameter(
    "by",
    "what the rows are grouped by, each once; also with commas",
    choices=tuple(GROUPS),
    repeats=True,
)
_SINCE = Parameter("since", f"where it begins: {_A_TIME}; {_DEFAULT_SINCE} by default")
_UNTIL = Parameter("until", "where it ends, as since; now by default")
_LIMIT = Parameter("limit", f"how many rows; {_DEFAULT_LIMIT} by default", (1, _MAX_LIMIT))
USAGE_PARAMETERS = (
    _BY,
    _SINCE,
    _UNTIL,
    _LIMIT,
    *(Parameter(name, f"usage of this {name} only") for name in FILTERS),
)


class UsageFigures(msgspec.Struct, kw_only=True):
    """What requests have used. A row has what it is grouped by, too.

    The cost is null if none of the models has a price. first_byte: a histogram, see first_byte_bounds_s.
    """

    key: str | UnsetType = UNSET
    group: str | UnsetType = UNSET
    model: str | UnsetType = UNSET
    upstream: str | UnsetType = UNSET
    account: str | UnsetType = UNSET
    day: str | UnsetType = UNSET
    hour: str | UnsetType = UNSET
    requests: int
    errors: int
    unpriced: int
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    cache_write_tokens: int
    reasoning_tokens: int
    cost_usd: float | None
    first_byte: list[int]


class UsageReport(msgspec.Struct):
    """What was used from one hour to another, in rows and in all. truncated: there are more rows than the limit."""

    since: str
    until: str
    by: tuple[str, ...]
    first_byte_bounds_s: tuple[float, ...]
    rows: list[UsageFigures]
    total: UsageFigures
    truncated: bool


class Limits(msgspec.Struct, kw_only=True):
    """The limits of a client key or a group, and what is spent of the budget in this period. null: there is none."""

    name: str
    models: tuple[str, ...] | None
    requests_per_minute: int | None
    tokens_per_minute: int | None
    budget: float | None
    budget_period: str | None
    budget_spent: float | None
    budget_left: float | None
    budget_starts_again: str | None


class KeyTotal(msgspec.Struct, kw_only=True):
    """What a client key has used in all."""

    requests: int
    tokens: int
    cost_usd: float


class OwnUsage(Limits, kw_only=True):
    """What a client key has used, and its limits. null: there is none."""

    expires: str | None
    group: Limits | None
    total: KeyTotal
    today: UsageFigures
    last_7d: UsageFigures
    last_30d: UsageFigures


class UsageSource(Protocol):
    """What reads usage: a UsageRecorder, or a UsageStore."""

    def read(self, query: UsageQuery) -> Awaitable[list[UsageGroup]]: ...

    def key_uses(self, keys: Sequence[str]) -> Awaitable[list[KeyUse]]: ...


def usage_query(text: str, now: float) -> UsageQuery:
    """Return what a query string asks for. now: seconds since the epoch. Raises RemoteProtocolError."""
    query = Query(text)
    by = tuple(filter(None, ",".join(query.all(_BY.name)).split(",")))
    if len(set(by)) < len(by) or not set(by) <= set(_BY.choices):
        raise invalid_parameter(_BY.name, f"some of {', '.join(_BY.choices)}, each once")
    since = _hour(_SINCE.name, query.get(_SINCE.name) or _DEFAULT_SINCE, now)
    # Its hour has begun, so it counts.
    until = _hour(_UNTIL.name, query.get(_UNTIL.name) or "0h", now, end=True)
    if since >= until:
        raise invalid_parameter(_SINCE.name, "before until")
    filters = {name: value for name in FILTERS if (value := query.get(name)) is not None}
    limit = query.integer(_LIMIT) or _DEFAULT_LIMIT
    return UsageQuery(since, until, by, filters, limit)


def _hour(name: str, text: str, now: float, *, end: bool = False) -> int:
    """Return the hour in which a time is, since the epoch; the next one if it is an end."""
    if (ago := _AGO.fullmatch(text)) is not None:
        return max(0, int(now // HOUR_S) - int(ago[1]) * _UNITS[ago[2]] + end)
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise invalid_parameter(name, _A_TIME) from None
    if when.tzinfo is None:
        if ":" in text:
            raise invalid_parameter(name, f"{_A_TIME}; {text[:40]} has no offset from UTC")
        when = when.replace(tzinfo=UTC)
    seconds = when.timestamp()
    return max(0, int(-(-seconds // HOUR_S) if end else seconds // HOUR_S))


async def usage_json(usage: UsageSource, query: UsageQuery, keys: Collection[ClientKey]) -> UsageReport:
    """Return the rows of a query and their sum. keys: all that there are.

    Raises UsageStoreError, and RemoteProtocolError for a key that there never was.
    """
    key = query.filters.get("key")
    if key is not None and key not in {each.name for each in keys}:
        (use,) = await usage.key_uses([key])
        if not use.requests:
            raise invalid_parameter("key", "the name of a client key; dragoman keys list has them")
    group_of = {each.name: each.group or "" for each in keys}
    groups = await usage.read(replace(query, limit=query.limit + 1, group_of=group_of))
    total = groups if not query.by else await usage.read(replace(query, by=()))
    shown = groups[: query.limit] if query.by else []
    return UsageReport(
        since=utc_text(query.since * HOUR_S),
        until=utc_text(query.until * HOUR_S),
        by=query.by,
        first_byte_bounds_s=tuple(FIRST_BYTE_BOUNDS),
        rows=[UsageFigures(**_labels(query.by, values), **_figures(counts)) for values, counts in shown],
        total=UsageFigures(**_figures(total[0][1] if total else UsageCounts())),
        truncated=len(groups) > query.limit,
    )


def _figures(counts: UsageCounts) -> dict[str, Any]:
    """Return the other fields of UsageFigures."""
    unknown = counts.unpriced and not counts.cost_usd
    cost = None if unknown else round(counts.cost_usd, 8)
    return {**msgspec.structs.asdict(counts), "cost_usd": cost}


def _labels(by: Sequence[str], values: Sequence[str | int]) -> dict[str, Any]:
    """Return the fields of UsageFigures that say what a row is about."""
    row = dict[str, Any](zip(by, values, strict=True))
    if "day" in row:
        row["day"] = utc_text(row["day"] * DAY_HOURS * HOUR_S)[:10]
    if "hour" in row:
        row["hour"] = utc_text(row["hour"] * HOUR_S)
    return row


def usage_routes(gateway: Gateway) -> list[BaseRoute]:
    """Return the route by which a client key reads its own figures."""
    spec = next(iter(gateway.protocols.values()))
    operation = ApiOperation(
        summary="What the client key has used, and its limits", answers={200: (OwnUsage,)}, errors=(404, 503)
    )
    return [DescribedRoute(USAGE_PATH, OwnUsageEndpoint(gateway, spec), GET=operation)]


class OwnUsageEndpoint(BaseEndpoint):
    """GET /v1/usage: what the client key has used, its limits and its group's, and what is left of their budgets."""

    async def serve(self, request: ClientRequest) -> None:
        key, limits = request.key, self.gateway.limits
        Query(request.query, keeps_empty=True).check_names(KEY_PLACES.parameters)
        if key is None:
            raise RequestRefused(
                "this gateway has no client keys, so no usage belongs to a client; the operator sees all of it with "
                "dragoman usage",
                status=404,
                code="no_client_keys",
            )
        usage, now = self.gateway.usage, time.time()
        this_hour = int(now // HOUR_S)
        today = this_hour - this_hour % DAY_HOURS
        try:
            (all_of_it,) = await usage.key_uses([key.name])
            periods: dict[str, Any] = {}
            for name, since in (
                ("today", today),
                ("last_7d", this_hour - 7 * DAY_HOURS),
                ("last_30d", this_hour - 30 * DAY_HOURS),
            ):
                groups = await usage.read(UsageQuery(since, this_hour + 1, filters={"key": key.name}))
                periods[name] = UsageFigures(**_figures(groups[0][1] if groups else UsageCounts()))
        except UsageStoreError:
            raise RequestRefused("the usage store does not respond", status=503) from None
        own, *of_group = await limits_of(key.holders, limits)
        await request.respond_json(
            OwnUsage(
                **own,
                **periods,
                expires=None if key.expires is None else utc_text(key.expires),
                group=Limits(**of_group[0]) if of_group else None,
                total=key_total(all_of_it),
            )
        )


async def limits_of(holders: Sequence[LimitHolder], limits: ClientLimits) -> list[dict[str, Any]]:
    """Return the fields of Limits, of keys or groups. What is spent is null if that is unknown."""
    found = []
    for holder, spent in zip(holders, await limits.spent(holders), strict=True):
        budget = holder.budget
        ends = None if budget is None else limits.period_ends(holder)
        left = None if spent is None or budget is None else max(0.0, round(budget - spent, 6))
        found.append(
            {
                "name": holder.name,
                "models": holder.models or None,
                "requests_per_minute": holder.requests_per_minute,
                "tokens_per_minute": holder.tokens_per_minute,
                "budget": budget,
                "budget_period": None if budget is None else holder.budget_period,
                "budget_spent": None if spent is None else round(spent, 6),
                "budget_left": left,
                "budget_starts_again": None if ends is None else utc_text(ends),
            }
        )
    return found


def key_total(use: KeyUse) -> KeyTotal:
    """Return what a client key has used in all."""
    return KeyTotal(requests=round(use.requests), tokens=round(use.tokens), cost_usd=round(use.cost_usd, 6))
