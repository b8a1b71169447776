"""Token counts: Messages counts what came fresh, the others count everything.

Strategy: the wire figures are kept as one set in which later ones replace earlier ones field by field, and
the total is computed anew from the set each time, so nothing is ever counted twice.
"""

from __future__ import annotations

from dragoman._events import Usage
from dragoman._json import JSON, JSONObject
from dragoman._loss import Ledger, child

from ._tables import TIER_ANSWER_WRITE
from ._wire import KNOWN_USAGE

# Counters that only this protocol has: they pass through `Usage.extra`.
_OWN_COUNTERS = frozenset(
    {"cache_creation", "server_tool_use", "iterations", "inference_geo", "speed", "fallback_credit"}
)


class UsageReader:
    """Collects the usage objects of one answer."""

    __slots__ = ("_figures",)

    def __init__(self) -> None:
        self._figures: JSONObject = {}

    def read(self, usage: JSONObject) -> Usage:
        """Take one more usage object; the figures so far."""
        figures = self._figures
        for key, value in usage.items():
            if value is not None:  # null or absent keeps the figure of message_start
                figures[key] = value
        fresh = _count(figures.get("input_tokens"))
        cached = _count(figures.get("cache_read_input_tokens"))
        written = _count(figures.get("cache_creation_input_tokens"))
        details = figures.get("output_tokens_details")
        return Usage(
            # "Total input tokens is the summation of input_tokens, cache_creation_input_tokens, and
            # cache_read_input_tokens."
            input=None if fresh is None else fresh + (cached or 0) + (written or 0),
            output=_count(figures.get("output_tokens")),
            cached=cached,
            cache_write=written,
            reasoning=_count(details.get("thinking_tokens")) if type(details) is dict else None,
            extra={key: value for key, value in figures.items() if key not in KNOWN_USAGE} or None,
        )


def start_usage(prompt_tokens: int, service_tier: str | None, ledger: Ledger) -> JSONObject:
    """The usage of message_start, where only an estimate of the prompt is known. Every field is there."""
    if service_tier is not None and tier_word(service_tier) is None:
        ledger.dropped("/service_tier", "Messages has no such service tier")
    return {
        "input_tokens": prompt_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "cache_creation": None,
        "output_tokens": 0,
        "output_tokens_details": None,
        "server_tool_use": None,
        "service_tier": tier_word(service_tier),
        "inference_geo": None,
        "speed": None,
    }


def final_usage(usage: Usage, prompt_tokens: int, ledger: Ledger) -> JSONObject:
    """The cumulative usage of message_delta. `prompt_tokens` stands in where the upstream told nothing."""
    if usage.input is None or usage.output is None:
        ledger.altered(
            "/usage", "the upstream gave no token counts: the prompt is estimated, the output is 0"
        )
    cached = usage.cached or 0
    written = usage.cache_write or 0
    out: JSONObject = {
        "input_tokens": prompt_tokens if usage.input is None else max(usage.input - cached - written, 0),
        "cache_creation_input_tokens": written,
        "cache_read_input_tokens": cached,
        "output_tokens": usage.output or 0,
        "output_tokens_details": None if usage.reasoning is None else {"thinking_tokens": usage.reasoning},
        "server_tool_use": None,
    }
    for key, value in (usage.extra or {}).items():
        if key in _OWN_COUNTERS:
            out[key] = value
        else:
            ledger.dropped(child("/usage", key), "Messages has no such counter")
    return out


def tier_word(service_tier: str | None) -> str | None:
    """The tier of an answer in the words of this protocol, None for one that it does not have."""
    return None if service_tier is None else TIER_ANSWER_WRITE.get(service_tier)


def _count(value: JSON) -> int | None:
    return value if type(value) is int and value >= 0 else None
