"""Usage of a response, read and written.

`input_tokens` includes cached ones here as in the neutral usage, so counters are copied. Those that only this protocol
has are kept in `extra` under their own names, for clients of the same protocol.
"""

from __future__ import annotations

from dragoman._ir.events import Usage
from dragoman._ir.losses import Ledger, child
from dragoman._ir.shape import has_content
from dragoman._wire.json import JSON, JSONObject, object_or_empty, read_count
from dragoman.protocols._openai.usage import UsageFields, read_counts
from dragoman.protocols.openai_responses.tables import CACHE_WRITE_COUNTERS

_WRITES = "cache_write_tokens_details"

_COUNTERS: UsageFields = {
    "input_tokens": "input",
    "output_tokens": "output",
    "input_tokens_details": {"cached_tokens": "cached", "cache_write_tokens": "cache_write"},
    "output_tokens_details": {"reasoning_tokens": "reasoning"},
}


def read_usage(response: JSONObject) -> Usage | None:
    """Return the usage of a response, None if it has none."""
    usage = response.get("usage")
    searches = read_count(response, "tool_usage", "web_search", "num_requests")
    if type(usage) is not dict:
        return None if searches is None else Usage(searches=searches)
    writes = object_or_empty(usage.get("input_tokens_details")).get(_WRITES)
    return Usage(
        **read_counts(usage, _COUNTERS),
        extra={"input_tokens_details": {_WRITES: writes}} if has_content(writes) else None,
        searches=searches,
    )


def write_usage(usage: Usage, ledger: Ledger) -> JSONObject:
    """Return `usage` with its details, all of which are required."""
    details: JSONObject = {
        "cached_tokens": usage.cached or 0,
        "cache_write_tokens": usage.cache_write or 0,
    }
    for name, value in (usage.extra or {}).items():
        writes = _write_details(name, value)
        if writes is not None:
            details[_WRITES] = writes
        else:
            ledger.dropped(child("/usage", name), "Responses has no such counter")
    input_tokens, output_tokens = usage.input or 0, usage.output or 0
    return {
        "input_tokens": input_tokens,
        "input_tokens_details": details,
        "output_tokens": output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning or 0},
        "total_tokens": input_tokens + output_tokens,
    }


def _write_details(name: str, value: JSON) -> JSONObject | None:
    """Return the tokens written to caches of each lifetime, from this protocol's counters or another vendor's."""
    if type(value) is not dict:
        return None
    if name == "input_tokens_details" and type(value.get(_WRITES)) is dict:
        found: JSONObject = value[_WRITES]
        return found
    names = CACHE_WRITE_COUNTERS.get(name)
    if names is None or not value.keys() <= names.keys():
        return None
    return {name: read_count(value, other_name) or 0 for other_name, name in names.items()}


def write_tool_usage(usage: Usage) -> JSONObject | None:
    """Return `tool_usage`, None if none was reported. Both its members are required, though only one is known."""
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
