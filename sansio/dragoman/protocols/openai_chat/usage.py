"""Read the token counts of the official and of compatible servers, and write them in the official form."""

from __future__ import annotations

from dragoman._ir.events import Usage
from dragoman._ir.losses import Ledger, child
from dragoman._wire.json import JSON, JSONObject
from dragoman.protocols.openai_chat.tables import NATIVE_COUNTERS

_DETAILS = ("prompt_tokens_details", "completion_tokens_details")


def read_usage(value: JSONObject) -> Usage:
    """The figures of a `usage` object, under the official names or those of compatible servers."""
    prompt = _details(value, "prompt_tokens_details")
    completion = _details(value, "completion_tokens_details")
    given = _first(value.get("prompt_tokens"))
    output = _first(value.get("completion_tokens"))
    reasoning = _first(completion.get("reasoning_tokens"), value.get("reasoning_tokens"))
    if given is not None and output is not None and reasoning:
        # Some servers count reasoning beside completion_tokens; their total shows it.
        beside = value.get("total_tokens") == given + output + reasoning
        output += reasoning if beside else 0
    extra = {
        name: kept
        for name in _DETAILS
        if (
            kept := {
                key: figure
                for key, figure in _details(value, name).items()
                if key in NATIVE_COUNTERS and type(figure) is int and figure
            }
        )
    }
    searches = value.get("server_tool_use_details")
    return Usage(
        input=given,
        output=output,
        cached=_first(
            prompt.get("cached_tokens"),
            value.get("prompt_cache_hit_tokens"),
            value.get("cache_read_input_tokens"),
            value.get("cached_tokens"),
        ),
        cache_write=_first(prompt.get("cache_write_tokens"), value.get("cache_creation_input_tokens")),
        reasoning=reasoning,
        extra=extra or None,
        searches=_first(searches.get("web_search_requests")) if type(searches) is dict else None,
    )


def write_usage(usage: Usage, ledger: Ledger) -> JSONObject:
    """The official object, in which figures are required: 0 for those that nobody knows. Searches have no place in it;
    they stand where OpenRouter has them.
    """
    for name in usage.extra or ():
        if name not in _DETAILS:
            ledger.dropped(child("/usage", name), "Chat Completions has no such counter")
    given = usage.input or 0
    output = usage.output or 0
    extra = usage.extra or {}
    prompt: JSONObject = {"cached_tokens": usage.cached or 0}
    if usage.cache_write is not None:
        prompt["cache_write_tokens"] = usage.cache_write
    body: JSONObject = {
        "prompt_tokens": given,
        "completion_tokens": output,
        "total_tokens": given + output,
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


def _first(*figures: JSON) -> int | None:
    """The first figure that is a count: an integer from 0, or a float that is one."""
    for figure in figures:
        if type(figure) is int and figure >= 0:
            return figure
        if type(figure) is float and figure >= 0 and figure.is_integer():
            return int(figure)
    return None
