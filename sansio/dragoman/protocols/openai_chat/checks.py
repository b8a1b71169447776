"""Helpers of the readers: the known members of each object of a request, checks of JSON types, cache marks, citations.

The members of an object that are not known are its `extra`: sent on to an upstream of the same protocol, recorded as a
loss for any other. Known are the members in the types of openai-python 3.54.0 and those of widespread compatible
servers that are translated (earlier reasoning, cache marks).
"""

from __future__ import annotations

from dragoman._ir.request import Citation
from dragoman._ir.tools import CacheMark
from dragoman._wire.json import JSON, JSONObject, encode_text, text_or_none, wrong_type
from dragoman.protocols.openai_chat.tables import (
    BREAKPOINT_TTL_NAMES,
    CACHE_CONTROL_TTL_NAMES,
    CACHE_TTLS,
    PARAMS,
)

KNOWN_TEXT = frozenset({"type", "text", "prompt_cache_breakpoint", "cache_control"})
KNOWN_IMAGE = frozenset({"type", "image_url", "prompt_cache_breakpoint", "cache_control"})
KNOWN_IMAGE_URL = frozenset({"url", "detail"})
KNOWN_AUDIO_PART = frozenset({"type", "input_audio", "prompt_cache_breakpoint", "cache_control"})
KNOWN_AUDIO = frozenset({"data", "format"})
KNOWN_FILE_PART = frozenset({"type", "file", "prompt_cache_breakpoint", "cache_control"})
KNOWN_FILE = frozenset({"file_data", "file_id", "filename"})
KNOWN_REFUSAL = frozenset({"type", "refusal"})
# A message of any role but assistant. `cache_control` is what agents send for Claude models.
KNOWN_MESSAGE = frozenset({"role", "content", "name", "cache_control"})
KNOWN_TOOL_MESSAGE = frozenset({"role", "content", "name", "cache_control", "tool_call_id"})
KNOWN_ASSISTANT = frozenset(
    {
        "role",
        "content",
        "name",
        "cache_control",
        "refusal",
        "audio",
        "function_call",
        "tool_calls",
        "annotations",
        "reasoning_content",
        "reasoning",
        "reasoning_details",
        "thinking_blocks",
    }
)
# A tool call of the history, and the object in it. A legacy `function_call` is such a function.
KNOWN_CALL = frozenset({"id", "type", "function", "custom", "cache_control"})
KNOWN_FUNCTION = frozenset({"name", "arguments"})
KNOWN_CUSTOM = frozenset({"name", "input"})
# An entry of `reasoning_details` or `thinking_blocks`.
KNOWN_REASONING_ENTRY = frozenset(
    {"type", "text", "summary", "thinking", "signature", "data", "format", "id", "index"}
)
KNOWN_TOOL = frozenset({"type", "function", "custom", "cache_control"})
KNOWN_FUNCTION_DEFINITION = frozenset({"name", "description", "parameters", "strict"})
KNOWN_CUSTOM_DEFINITION = frozenset({"name", "description", "format"})
KNOWN_JSON_SCHEMA = frozenset({"name", "description", "schema", "strict"})
KNOWN_RESPONSE_FORMAT = frozenset({"type", "json_schema"})
# OpenRouter's `reasoning`.
KNOWN_REASONING = frozenset({"effort", "max_tokens", "enabled", "exclude"})
# `thinking` of Z.ai and of servers of Claude models.
KNOWN_THINKING = frozenset({"type", "budget_tokens"})
# `chat_template_kwargs` of open servers, as far as it is about reasoning.
KNOWN_TEMPLATE_KWARGS = frozenset({"enable_thinking", "thinking"})
KNOWN_WEB_SEARCH = frozenset({"search_context_size", "user_location"})
KNOWN_LOCATION = frozenset({"type", "approximate"})
KNOWN_APPROXIMATE_LOCATION = frozenset({"city", "country", "region", "timezone"})
# A request: the members that are more than plain settings, and those settings.
KNOWN_BODY = (
    frozenset(
        {
            "model",
            "messages",
            "tools",
            "functions",
            "tool_choice",
            "function_call",
            "parallel_tool_calls",
            "response_format",
            "reasoning_effort",
            "reasoning",
            "thinking",
            "enable_thinking",
            "thinking_budget",
            "chat_template_kwargs",
            "include_reasoning",
            "web_search_options",
            "stream",
            "stream_options",
        }
    )
    | PARAMS.keys()
)


def extra_fields(value: JSONObject, known: frozenset[str]) -> JSONObject | None:
    """Return the members of `value` that are not known, None without any. A member that is null counts as absent."""
    if value.keys() <= known:
        return None
    return {key: member for key, member in value.items() if key not in known and member is not None} or None


def read_cache_mark(
    value: JSONObject, path: str, known: frozenset[str]
) -> tuple[CacheMark | None, JSONObject | None]:
    """Return the cache mark of a part, message or tool, and its extra members.

    The mark has the official form or the one for Claude models. One with more than a ttl is an extra member as well.
    """
    found: CacheMark | None = None
    extra = extra_fields(value, known)
    if "cache_control" not in value and "prompt_cache_breakpoint" not in value:
        return None, extra  # as nearly always
    for key, plain in _PLAIN_MARKS.items():
        mark = value.get(key)
        if type(mark) is not dict:
            continue
        if found is not None or {**plain, **mark, "ttl": None} != plain or mark.get("ttl") not in _TTLS[key]:
            extra = {**(extra or {}), key: mark}
        if found is None:
            found = CacheMark(f"{path}/{key}", CACHE_TTLS.get(str(mark.get("ttl"))))
    return found, extra


# The members of each form of mark beside its ttl, and the values of the ttl.
_PLAIN_MARKS: dict[str, JSONObject] = {
    "prompt_cache_breakpoint": {"mode": "explicit", "ttl": None},
    "cache_control": {"type": "ephemeral", "ttl": None},
}
_TTLS: dict[str, tuple[str | None, ...]] = {
    "prompt_cache_breakpoint": (None, *BREAKPOINT_TTL_NAMES.values()),
    "cache_control": (None, *CACHE_CONTROL_TTL_NAMES.values()),
}


def with_nested_extra(extra: JSONObject | None, member: str, unknown: JSONObject | None) -> JSONObject | None:
    """Add the extra members of an object's member to those of the object, nested as they came."""
    return extra if unknown is None else {**(extra or {}), member: unknown}


def arguments_text(value: JSON) -> str:
    """Return a call's arguments as text. Some clients and servers send the object itself, or null for no arguments."""
    if type(value) is str:
        return value
    return "" if value is None else encode_text(value)


def require_text(value: JSON, path: str) -> str:
    """Return a text. Raises RemoteProtocolError (400) for any other type."""
    if type(value) is str:
        return value
    raise wrong_type(path, "a string", value)


def required_text(value: JSONObject, name: str, path: str) -> str:
    """Return a member that must be a text. Raises RemoteProtocolError (400)."""
    found = value.get(name)
    if type(found) is str:
        return found
    raise wrong_type(f"{path}/{name}", "a string", found)


def optional_text(value: JSONObject, name: str, path: str) -> str | None:
    """Return a text that may be absent or null. Raises RemoteProtocolError (400) for other types."""
    found = value.get(name)
    return None if found is None else require_text(found, f"{path}/{name}")


def read_url_citation(native: JSONObject) -> tuple[str | None, str | None, int | None, int | None]:
    """Return URL, title, start and end of an annotation, None for each that it lacks."""
    cite = native.get("url_citation")
    if type(cite) is not dict:
        return None, None, None, None
    start, end = cite.get("start_index"), cite.get("end_index")
    if type(start) is not int or type(end) is not int or end <= start:
        start = end = None  # servers without spans send 0 to 0
    return text_or_none(cite.get("url")), text_or_none(cite.get("title")), start, end


def read_citations(annotations: list[JSON], *, spans: bool) -> tuple[Citation, ...]:
    """Return the web pages among the annotations of a message.

    spans: keep the spans, which count characters of the message's text.
    """
    found: list[Citation] = []
    for native in annotations:
        url, title, start, end = (
            read_url_citation(native) if type(native) is dict else (None, None, None, None)
        )
        if url is not None:
            found.append(Citation(url, title, start, end) if spans else Citation(url, title))
    return tuple(found)
