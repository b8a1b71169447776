"""Figures of an answer, in and out.

Strategy: `input_tokens` includes cached ones here as in the document, so the figures are copied. Counters that only
this protocol has travel in `extra` under their own names, where the same protocol finds them again.
"""

from __future__ import annotations

from dragoman._ir.events import Usage
from dragoman._ir.losses import Ledger, child
from dragoman._ir.shape import has_content
from dragoman._wire.json import JSON, JSONObject
from dragoman.protocols.openai_responses.tables import CACHE_WRITE_COUNTERS

_WRITES = "cache_write_tokens_details"


def read_usage(response: JSONObject) -> Usage | None:
    """The figures of a response, None when it has none."""
    usage, searches = response.get("usage"), _searches(response)
    if type(usage) is not dict:
        return None if searches is None else Usage(searches=searches)
    before, after = _object(usage, "input_tokens_details"), _object(usage, "output_tokens_details")
    writes = before.get(_WRITES)
    return Usage(
        input=_count(usage.get("input_tokens")),
        output=_count(usage.get("output_tokens")),
        cached=_count(before.get("cached_tokens")),
        cache_write=_count(before.get("cache_write_tokens")),
        reasoning=_count(after.get("reasoning_tokens")),
        extra={"input_tokens_details": {_WRITES: writes}} if has_content(writes) else None,
        searches=searches,
    )


def _searches(response: JSONObject) -> int | None:
    return _count(_object(_object(response, "tool_usage"), "web_search").get("num_requests"))


def write_usage(usage: Usage, ledger: Ledger) -> JSONObject:
    """The figures with their details, all of which are required."""
    details: JSONObject = {
        "cached_tokens": usage.cached or 0,
        "cache_write_tokens": usage.cache_write or 0,
    }
    for name, value in (usage.extra or {}).items():
        writes = _writes(name, value)
        if writes is not None:
            details[_WRITES] = writes
        else:
            ledger.dropped(child("/usage", name), "Responses has no such counter")
    before, after = usage.input or 0, usage.output or 0
    return {
        "input_tokens": before,
        "input_tokens_details": details,
        "output_tokens": after,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning or 0},
        "total_tokens": before + after,
    }


def _writes(name: str, value: JSON) -> JSONObject | None:
    """What was written to caches of which lifetime: as this protocol says it, or as another vendor does."""
    if type(value) is not dict:
        return None
    if name == "input_tokens_details" and type(value.get(_WRITES)) is dict:
        found: JSONObject = value[_WRITES]
        return found
    names = CACHE_WRITE_COUNTERS.get(name)
    if names is None or not value.keys() <= names.keys():
        return None
    return {ours: _count(value.get(theirs)) or 0 for theirs, ours in names.items()}


def write_tool_usage(usage: Usage) -> JSONObject | None:
    """What the provider's tools have used, None when nothing was told: both families are required, one is known."""
    if usage.searches is None:
        return None
    nothing = {"image_tokens": 0, "text_tokens": 0}
    image_gen = {
        "input_tokens": 0,
        "input_tokens_details": nothing,
        "output_tokens": 0,
        "output_tokens_details": nothing,
        "total_tokens": 0,
    }
    return {"image_gen": image_gen, "web_search": {"num_requests": usage.searches}}


def _object(value: JSONObject, name: str) -> JSONObject:
    found = value.get(name)
    return found if type(found) is dict else {}


def _count(value: JSON) -> int | None:
    return value if type(value) is int else None
