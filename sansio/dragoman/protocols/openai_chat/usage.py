"""Read the token counts of the official and of compatible servers, and write them in the official form."""

from __future__ import annotations

from dragoman._ir.events import Usage
from dragoman._ir.losses import Ledger, child
from dragoman._wire.json import JSON, JSONObject
from dragoman.protocols.openai_chat.tables import NATIVE_COUNTERS

_DETAILS = ("prompt_tokens_details", "completion_tokens_details")


def read_usage(value: JSONObject) -> Usage:
    """Read a `usage` object with the official names or those of compatible servers."""
    prompt = _details(value, "prompt_tokens_details")
    completion = _details(value, "completion_tokens_details")
    input_tokens = _first_count(value.get("prompt_tokens"))
    output_tokens = _first_count(value.get("completion_tokens"))
    reasoning = _first_count(completion.get("reasoning_tokens"), value.get("reasoning_tokens"))
    if input_tokens is not None and output_tokens is not None and reasoning:
        # xAI does not include reasoning in completion_tokens, but in the total (seen in recorded responses, November
        # 2026).
        separate = value.get("total_tokens") == input_tokens + output_tokens + reasoning
        output_tokens += reasoning if separate else 0
    extra = {
        name: counts
        for name in _DETAILS
        if (
            counts := {
                key: count
                for key, count in _details(value, name).items()
                if key in NATIVE_COUNTERS and type(count) is int and count
            }
        )
    }
    searches = value.get("server_tool_use_details")
    return Usage(
        input=input_tokens,
        output=output_tokens,
        cached=_first_count(
            prompt.get("cached_tokens"),
            value.get("prompt_cache_hit_tokens"),
            value.get("cache_read_input_tokens"),
            value.get("cached_tokens"),
        ),
        cache_write=_first_count(prompt.get("cache_write_tokens"), value.get("cache_creation_input_tokens")),
        reasoning=reasoning,
        extra=extra or None,
        searches=_first_count(searches.get("web_search_requests")) if type(searches) is dict else None,
    )


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
        "prompt_tokens_details": {**prompt, **_details(extra, "prompt_tokens_details")},
        "completion_tokens_details": {
            "reasoning_tokens": usage.reasoning or 0,
            **_details(extra, "completion_tokens_details"),
        },
    }
    if usage.searches:
        body["server_tool_use_details"] = {"web_search_requests": usage.searches}
    return body


def _details(value: JSONObject, name: str) -> JSONObject:
    details = value.get(name)
    return details if type(details) is dict else {}


def _first_count(*values: JSON) -> int | None:
    """Return the first value that is a count: an integer from 0, or a float that equals one."""
    for count in values:
        if type(count) is int and count >= 0:
            return count
        if type(count) is float and count >= 0 and count.is_integer():
            return int(count)
    return None
