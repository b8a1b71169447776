"""Helpers of the readers: the known members of each object of a request, checks of JSON types, cache marks, citations.

What an object holds beyond its known members is its `extra`: sent on to an upstream of the same protocol, recorded as
a loss for any other. Members of widespread compatible servers (earlier reasoning, cache marks) count as known, because
they are translated.
"""

from __future__ import annotations

from dragoman._ir.request import CacheMark, Citation
from dragoman._wire.exceptions import RemoteProtocolError, dotted_path
from dragoman._wire.json import JSON, JSONObject, kind_of
from dragoman.protocols.openai_chat.tables import (
    BREAKPOINT_TTL_NAMES,
    CACHE_CONTROL_TTL_NAMES,
    CACHE_TTLS,
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
# The members of a request that are more than plain settings, which are rows of `tables.PARAMS`.
STRUCTURED_FIELDS = frozenset(
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


def extra_fields(value: JSONObject, known: frozenset[str]) -> JSONObject | None:
    """The members of an object that its type does not name; null is the same as absent."""
    if value.keys() <= known:
        return None
    return {key: member for key, member in value.items() if key not in known and member is not None} or None


def read_cache_mark(
    value: JSONObject, path: str, known: frozenset[str]
) -> tuple[CacheMark | None, JSONObject | None]:
    """The cache mark of a part, message or tool, in the official form or in the one for Claude models, and the
    members beside the known ones. A mark that says more than its ttl is among those, as it came.
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


# What each form of mark says beside its ttl, and the ttls that it has.
_PLAIN_MARKS: dict[str, JSONObject] = {
    "prompt_cache_breakpoint": {"mode": "explicit", "ttl": None},
    "cache_control": {"type": "ephemeral", "ttl": None},
}

_TTLS: dict[str, tuple[str | None, ...]] = {
    "prompt_cache_breakpoint": (None, *BREAKPOINT_TTL_NAMES.values()),
    "cache_control": (None, *CACHE_CONTROL_TTL_NAMES.values()),
}


def with_nested_extra(extra: JSONObject | None, member: str, unknown: JSONObject | None) -> JSONObject | None:
    """Unknown fields of an object and of its one member, in the shape in which they stood."""
    return extra if unknown is None else {**(extra or {}), member: unknown}


def require_text(value: JSON, path: str) -> str:
    if type(value) is str:
        return value
    raise wrong_type(path, "a string", value)


def optional_text(value: JSONObject, name: str, path: str) -> str | None:
    """A text that may be absent or null."""
    found = value.get(name)
    return None if found is None else require_text(found, f"{path}/{name}")


def wrong_type(path: str, expected: str, value: JSON) -> RemoteProtocolError:
    return RemoteProtocolError(
        f"{dotted_path(path)} must be {expected}, not {kind_of(value) if value != '' else 'empty'}",
        path=path,
        code="invalid_type",
    )


def read_url_citation(native: JSONObject) -> tuple[str | None, str | None, int | None, int | None]:
    """URL, title and span of an annotation, None for what it does not say."""
    cite = native.get("url_citation")
    if type(cite) is not dict:
        return None, None, None, None
    start, end = cite.get("start_index"), cite.get("end_index")
    if type(start) is not int or type(end) is not int or end <= start:
        start = end = None  # 0 to 0 is what servers send that have no span
    return text_or_none(cite.get("url")), text_or_none(cite.get("title")), start, end


def read_citations(annotations: list[JSON], *, spans: bool) -> tuple[Citation, ...]:
    """The web pages among the annotations of a message. spans: they are counted in the text at hand."""
    found: list[Citation] = []
    for native in annotations:
        url, title, start, end = (
            read_url_citation(native) if type(native) is dict else (None, None, None, None)
        )
        if url is not None:
            found.append(Citation(url, title, start, end) if spans else Citation(url, title))
    return tuple(found)


def text_or_none(value: JSON) -> str | None:
    return value if type(value) is str and value else None
