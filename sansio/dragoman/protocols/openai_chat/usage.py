"""Read the token counts of the official and of compatible servers, and write them in the official form."""

from __future__ import annotations

from dragoman._ir.events import Usage
from dragoman._ir.losses import Ledger, child
from dragoman._wire.json import JSONObject, object_or_empty
from dragoman.protocols._openai.usage import UsageFields, read_counts
from dragoman.protocols.openai_chat.tables import NATIVE_COUNTERS

_DETAILS = ("prompt_tokens_details", "completion_tokens_details")

_COUNTERS: UsageFields = {
    "prompt_tokens": "input",
    "completion_tokens": "output",
    "prompt_tokens_details": {"cached_tokens": "cached", "cache_write_tokens": "cache_write"},
    "completion_tokens_details": {"reasoning_tokens": "reasoning"},
    "server_tool_use_details": {"web_search_requests": "searches"},
}
# Where compatible servers have them, the first of a field before the others, all after the official ones.
_OTHER_COUNTERS: UsageFields = {
    **dict.fromkeys(
        ("prompt_cache_hit_tokens", "cache_read_input_tokens", "num_cached_tokens", "cached_tokens"), "cached"
    ),
    "cache_creation_input_tokens": "cache_write",
    "reasoning_tokens": "reasoning",
}


def reported_usage(value: JSONObject) -> JSONObject | None:
    """Return the usage object of a response, chunk or choice, None without one. Groq's streams have it in `x_groq`."""
    usage = value.get("usage")
    if usage is None and "x_groq" in value:
        usage = object_or_empty(value["x_groq"]).get("usage")
    return usage if type(usage) is dict else None


def read_usage(value: JSONObject) -> Usage:
    """Read a `usage` object with the official names or the names of compatible servers."""
    counts = read_counts(value, _COUNTERS)
    if not value.keys().isdisjoint(_OTHER_COUNTERS):
        others = {name: value[name] for name in _OTHER_COUNTERS if name in value}
        counts = read_counts(others, _OTHER_COUNTERS) | counts
    reasoning = counts.get("reasoning")
    if reasoning and "input" in counts and "output" in counts:
        output = counts["output"] + reasoning
        # xAI does not include reasoning in completion_tokens, but in the total, and Vercel's router that of Gemini in
        # neither, as its prices show (seen in recorded responses, November 2026).
        if value.get("total_tokens") == counts["input"] + output or (
            reasoning > counts["output"] and "market_cost" in value
        ):
            counts["output"] = output
    extra: JSONObject = {}
    for name in _DETAILS:
        details = value.get(name)
        for key, count in details.items() if type(details) is dict else ():
            if key in NATIVE_COUNTERS and type(count) is int and count:
                extra.setdefault(name, {})[key] = count
    return Usage(**counts, extra=extra or None)


def write_usage(usage: Usage, ledger: Ledger) -> JSONObject:
    """Return the official object, with 0 for unknown counts, because they are required.

    It has no member for searches: they go where OpenRouter has them.
    """
    for name in usage.extra or ():
        if name not in _DETAILS:
            ledger.dropped(child("/usage", name), "Chat Completions has no such counter")
    input_tokens = usage.input or 0
    output_tokens = usage.output or 0
    extra = usage.extra or {}
    prompt: JSONObject = {"cached_tokens": usage.cached or 0}
    if usage.cache_write is not None:
        prompt["cache_write_tokens"] = usage.cache_write
    body: JSONObject = {
        "prompt_tokens": input_tokens,
        "completion_tokens": output_tokens,
        "total_tokens": input_tokens + output_tokens,
        "prompt_tokens_details": {**prompt, **object_or_empty(extra.get("prompt_tokens_details"))},
        "completion_tokens_details": {
            "reasoning_tokens": usage.reasoning or 0,
            **object_or_empty(extra.get("completion_tokens_details")),
        },
    }
    if usage.searches:
        body["server_tool_use_details"] = {"web_search_requests": usage.searches}
    return body
