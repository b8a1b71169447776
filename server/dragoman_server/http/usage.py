"""What was used: GET /admin/usage for the operator, and GET /v1/usage for each client key about itself."""

import re
import time
from collections.abc import Awaitable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from starlette.routing import BaseRoute, Route

from dragoman import RemoteProtocolError, RequestRefused
from dragoman.jsontext import JSONObject
from dragoman_server.gateway import Gateway
from dragoman_server.http.endpoint import BaseEndpoint
from dragoman_server.http.request import Query, invalid_parameter
from dragoman_server.proxying.client_request import ClientRequest
from dragoman_server.settings import LimitHolder
from dragoman_server.usage.stores.base import (
    DAY_HOURS,
    FILTERS,
    FIRST_BYTE_BOUNDS,
    GROUPS,
    HOUR_S,
    SUMS,
    KeyUse,
    UsageCounts,
    UsageGroup,
    UsageQuery,
    UsageStoreError,
)

USAGE_PATH = "/v1/usage"

_DEFAULT_SINCE = "7d"
_DEFAULT_LIMIT, _MAX_LIMIT = 1000, 10_000

_PARAMETERS = ("by", "since", "until", "limit", *FILTERS)
_UNITS = {"h": 1, "d": DAY_HOURS, "w": 7 * DAY_HOURS}
_AGO = re.compile(r"(\d{1,5})([hdw])")
_A_TIME = "24h, 7d, 2w (ago), a date, or a time such as 2026-11-29T18:00:00Z"


class UsageSource(Protocol):
    """What reads usage: a UsageRecorder, or a UsageStore."""

    def read(self, query: UsageQuery) -> Awaitable[list[UsageGroup]]: ...

    def key_uses(self, keys: Sequence[str]) -> Awaitable[list[KeyUse]]: ...


def usage_query(text: str, now: float) -> UsageQuery:
    """Return what a query string asks for. now: seconds since the epoch. Raises RemoteProtocolError."""
    query = Query(text)
    for name in query.names():
        if name not in _PARAMETERS:
            message = f"unknown parameter {name[:100]!a}; there are {', '.join(_PARAMETERS)}"
            raise RemoteProtocolError(message, path=f"/{name[:100]}", code="unknown_parameter")
    by = tuple(filter(None, ",".join(query.all("by")).split(",")))
    if len(set(by)) < len(by) or not set(by) <= set(GROUPS):
        raise invalid_parameter("by", f"some of {', '.join(GROUPS)}, each once")
    since = _hour("since", query.get("since") or _DEFAULT_SINCE, now)
    # Its hour has begun, so it counts.
    until = _hour("until", query.get("until") or "0h", now, end=True)
    if since >= until:
        raise invalid_parameter("since", "before until")
    filters = {name: value for name in FILTERS if (value := query.get(name)) is not None}
    limit = query.integer("limit", 1, _MAX_LIMIT) or _DEFAULT_LIMIT
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
    seconds = (when - datetime(1970, 1, 1, tzinfo=UTC)) / timedelta(seconds=1)
    return max(0, int(-(-seconds // HOUR_S) if end else seconds // HOUR_S))


async def usage_json(usage: UsageSource, query: UsageQuery) -> JSONObject:
    """Return the rows of a query and their sum. Raises UsageStoreError."""
    groups = await usage.read(query._replace(limit=query.limit + 1))
    total = groups if not query.by else await usage.read(query._replace(by=()))
    rows = [{**_group_json(query.by, values), **counts_json(counts)} for values, counts in groups]
    return {
        "since": _time_text(query.since),
        "until": _time_text(query.until),
        "by": list(query.by),
        "first_byte_bounds_s": list(FIRST_BYTE_BOUNDS),
        "rows": rows[: query.limit] if query.by else [],
        "total": counts_json(total[0][1] if total else UsageCounts()),
        "truncated": len(rows) > query.limit,
    }


def counts_json(counts: UsageCounts) -> JSONObject:
    """Return sums. The cost is null if none of the models has a price."""
    found: JSONObject = {name: getattr(counts, name) for name in SUMS}
    unknown = counts.unpriced and not counts.cost_usd
    return {
        **found,
        "cost_usd": None if unknown else round(counts.cost_usd, 8),
        "first_byte": counts.first_byte,
    }


def _group_json(by: Sequence[str], values: Sequence[str | int]) -> JSONObject:
    row: JSONObject = dict(zip(by, values, strict=True))
    if "day" in row:
        row["day"] = _time_text(row["day"] * DAY_HOURS)[:10]
    if "hour" in row:
        row["hour"] = _time_text(row["hour"])
    return row


def _time_text(hour: int) -> str:
    return f"{datetime(1970, 1, 1, tzinfo=UTC) + timedelta(hours=hour):%Y-%m-%dT%H:%M:%SZ}"


def usage_routes(gateway: Gateway) -> list[BaseRoute]:
    """Return the route by which a client key reads its own figures."""
    spec = next(iter(gateway.protocols.values()))
    return [Route(USAGE_PATH, OwnUsageEndpoint(gateway, spec), methods=["GET"])]


class OwnUsageEndpoint(BaseEndpoint):
    """GET /v1/usage: what the client key has used, its limits and its group's, and what is left of their budgets."""

    async def serve(self, request: ClientRequest) -> None:
        key, limits = request.key, self.gateway.limits
        if key is None:
            raise RequestRefused(
                "this gateway has no client keys, so nobody has usage of their own; the operator sees all of it with "
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
                periods[name] = counts_json(groups[0][1] if groups else UsageCounts())
        except UsageStoreError:
            raise RequestRefused("the usage store does not respond", status=503) from None
        own, *of_group = [
            _limits_json(holder, each, limits.period_ends(holder))
            for holder, each in zip(key.holders, await limits.spent(key.holders), strict=True)
        ]
        await request.respond_json(
            {
                "key": key.name,
                "expires": None if key.expires is None else f"{key.expires:%Y-%m-%dT%H:%M:%SZ}",
                **own,
                "group": {"name": key.group, **of_group[0]} if of_group else None,
                "total": key_use_json(all_of_it),
                **periods,
            }
        )


def _limits_json(holder: LimitHolder, spent: float | None, ends: datetime | None) -> JSONObject:
    """Return the limits of a key or group. spent, ends: of its budget, see ClientLimits."""
    budget: JSONObject | None = None
    if holder.budget is not None:
        budget = {
            "usd": holder.budget,
            "period": holder.budget_period,
            "spent": None if spent is None else round(spent, 6),
            "left": None if spent is None else max(0.0, round(holder.budget - spent, 6)),
            "starts_again": None if ends is None else f"{ends:%Y-%m-%dT%H:%M:%SZ}",
        }
    return {
        "models": list(holder.models) or None,
        "requests_per_minute": holder.requests_per_minute,
        "tokens_per_minute": holder.tokens_per_minute,
        "budget": budget,
    }


def key_use_json(use: KeyUse) -> JSONObject:
    """Return what a client key has used in all."""
    return {
        "requests": round(use.requests),
        "tokens": round(use.tokens),
        "cost_usd": round(use.cost_usd, 6),
    }
