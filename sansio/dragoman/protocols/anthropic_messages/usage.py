"""Token counts: `input_tokens` of Messages does not include cached tokens, the neutral count does.

The reader keeps one set of wire figures, in which later ones replace earlier ones field by field, and computes the
totals from the set each time, so nothing is counted twice.
"""

from __future__ import annotations

import msgspec

from dragoman._ir.events import Usage
from dragoman._ir.losses import Ledger, child
from dragoman._ir.shape import extra_members, has_content, note_unread, response_shape
from dragoman._wire.json import JSONObject, objects_in, read_count
from dragoman.protocols.anthropic_messages.shapes import DETAILS_SHAPE, USAGE_SHAPE, WRITTEN_USAGE_SHAPE
from dragoman.protocols.anthropic_messages.tables import RESPONSE_TIER_NAMES

_USAGE, _DETAILS = response_shape(USAGE_SHAPE), response_shape(DETAILS_SHAPE)

_TOTALS = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens")

# Counters that only this protocol has: they are kept in `Usage.extra`, and with iterations the figures at the top.
_NATIVE_COUNTERS = frozenset(
    {"cache_creation", "server_tool_use", "iterations", "inference_geo", "speed", "fallback_credit", *_TOTALS}
)


class UsageReader(msgspec.Struct):
    """Collects the usage objects of one response.

    same_protocol: the client speaks this protocol and gets the figures unchanged.
    """

    ledger: Ledger
    same_protocol: bool = False
    _figures: JSONObject = {}

    def read(self, usage: JSONObject) -> Usage:
        """Add a usage object and return the usage so far."""
        if self.same_protocol:
            # All other figures reach the client unchanged.
            details = usage.get("output_tokens_details")
            note_unread(details, _DETAILS, "/usage/output_tokens_details", self.ledger)
        else:
            note_unread(usage, _USAGE, "/usage", self.ledger)
        figures = self._figures
        for key, value in usage.items():
            if value is not None:  # a null or absent figure leaves the one of message_start
                figures[key] = value
        has_iterations = type(figures.get("iterations")) is list
        uncached, cached, written, output = [
            self._total(name) if has_iterations else read_count(figures.get(name)) for name in _TOTALS
        ]
        return Usage(
            # "Total input tokens in a request is the summation of `input_tokens`, `cache_creation_input_tokens`, and
            # `cache_read_input_tokens`": anthropic 2.12.0, types/beta/beta_message.py.
            input=None if uncached is None else uncached + (cached or 0) + (written or 0),
            output=output,
            cached=cached,
            cache_write=written,
            reasoning=read_count(figures, "output_tokens_details", "thinking_tokens"),
            extra=self._extra(figures, has_iterations),
            searches=read_count(figures, "server_tool_use", "web_search_requests"),
        )

    def _total(self, name: str) -> int | None:
        """Return the sum of a figure over all iterations, of which the one at the top lacks some.

        "A `compaction` entry's tokens are not included in the top-level `usage` fields." (anthropic 2.12.0,
        types/beta/beta_usage.py)
        """
        last, iterations = read_count(self._figures.get(name)), self._figures["iterations"]
        if len(iterations) > 1 and not self.same_protocol:
            self.ledger.dropped("/usage/iterations", "other protocols have no figures for each iteration")
        counts = [read_count(each, name) for each in objects_in(iterations)]
        known = [count for count in counts if count is not None]
        total = sum(known) if known else last
        if total != last and not self.same_protocol:
            self.ledger.altered(f"/usage/{name}", "replaced by the sum over all iterations")
        return total

    def _extra(self, figures: JSONObject, has_iterations: bool) -> JSONObject | None:
        """Return the counters without a neutral form, for other protocols only the one that some of them have."""
        if self.same_protocol:
            extra = extra_members(figures, WRITTEN_USAGE_SHAPE)
            if has_iterations:  # the client gets the figures at the top, too
                counts = zip(_TOTALS, map(read_count, map(figures.get, _TOTALS)), strict=True)
                extra = {**(extra or {}), **{name: count for name, count in counts if count is not None}}
            return extra
        written = figures.get("cache_creation")
        return {"cache_creation": written} if has_content(written) else None


def write_start_usage(prompt_tokens: int, service_tier: str | None, ledger: Ledger) -> JSONObject:
    """Return the usage of message_start, with all fields. prompt_tokens: an estimate, because the count comes later."""
    if service_tier is not None and service_tier not in RESPONSE_TIER_NAMES:
        ledger.dropped("/service_tier", "Messages has no such service tier")
    return {
        "input_tokens": prompt_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "cache_creation": None,
        "output_tokens": 0,
        "output_tokens_details": None,
        "server_tool_use": None,
        "service_tier": RESPONSE_TIER_NAMES.get(service_tier or ""),
        "inference_geo": None,
        "speed": None,
    }


def write_usage(usage: Usage, ledger: Ledger) -> JSONObject:
    """Return the cumulative usage of message_delta."""
    cached = usage.cached or 0
    written = usage.cache_write or 0
    out: JSONObject = {
        "input_tokens": max((usage.input or 0) - cached - written, 0),
        "cache_creation_input_tokens": written,
        "cache_read_input_tokens": cached,
        "output_tokens": usage.output or 0,
        "output_tokens_details": None if usage.reasoning is None else {"thinking_tokens": usage.reasoning},
        "server_tool_use": None,
    }
    server: JSONObject = {}
    if usage.searches is not None:
        server["web_search_requests"] = usage.searches
    for key, value in (usage.extra or {}).items():
        if key == "server_tool_use":
            server.update(value)
        elif key in _NATIVE_COUNTERS:
            out[key] = value
        else:
            ledger.dropped(child("/usage", key), "Messages has no such counter")
    if server:
        # Both counters are required: anthropic 2.12.0, types/server_tool_usage.py.
        out["server_tool_use"] = {"web_search_requests": 0, "web_fetch_requests": 0, **server}
    return out
