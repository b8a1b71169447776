"""Looking into a client's body: what is there, if it has the type that the protocol wants.

Strategy: one small function a question; what is wrong is told in the words of the vendor's own validator,
`messages.0.content: Field required`, with the place.
"""

from __future__ import annotations

from dragoman._ir.request import (
    CacheMark,
    Citation,
)
from dragoman._wire.exceptions import RemoteProtocolError
from dragoman._wire.json import JSON, JSONObject
from dragoman.protocols.anthropic_messages.tables import CACHE_TTLS

KNOWN_CACHE_CONTROL = frozenset({"type", "ttl"})
KNOWN_TEXT = frozenset({"type", "text", "citations", "cache_control"})
# The source of an image or a document; its `type` says which of the others is there.
KNOWN_SOURCE = frozenset({"type", "media_type", "data", "url", "file_id"})
KNOWN_IMAGE = frozenset({"type", "source", "cache_control"})
KNOWN_DOCUMENT = frozenset({"type", "source", "title", "context", "citations", "cache_control"})
KNOWN_TOOL_USE = frozenset({"type", "id", "name", "input", "cache_control"})
KNOWN_TOOL_RESULT = frozenset({"type", "tool_use_id", "content", "is_error", "cache_control"})
# Both kinds: a readable one has thinking and signature, a redacted one has data.
KNOWN_THINKING_BLOCK = frozenset({"type", "thinking", "signature", "data"})
KNOWN_MESSAGE = frozenset({"role", "content"})
# A tool with a schema; `type` is absent or "custom".
KNOWN_TOOL = frozenset(
    {
        "type",
        "name",
        "description",
        "input_schema",
        "strict",
        "defer_loading",
        "input_examples",
        "cache_control",
    }
)
KNOWN_MCP_SERVER = frozenset({"type", "name", "url", "authorization_token", "tool_configuration"})
KNOWN_TOOL_CHOICE = frozenset({"type", "name", "disable_parallel_tool_use"})
KNOWN_THINKING = frozenset({"type", "budget_tokens", "display"})
KNOWN_OUTPUT_FORMAT = frozenset({"type", "schema"})
KNOWN_OUTPUT_CONFIG = frozenset({"effort", "format"})
KNOWN_METADATA = frozenset({"user_id"})
KNOWN_CONTEXT_MANAGEMENT = frozenset({"edits"})
KNOWN_COMPACT_EDIT = frozenset({"type", "trigger"})
KNOWN_TRIGGER = frozenset({"type", "value"})
KNOWN_COMPACTION = frozenset({"type", "instructions"})
# A request. `output_format` is the older, beta place of `output_config.format`.
KNOWN_BODY = frozenset(
    {
        "model",
        "max_tokens",
        "messages",
        "system",
        "stream",
        "tools",
        "tool_choice",
        "thinking",
        "output_config",
        "output_format",
        "metadata",
        "temperature",
        "top_p",
        "top_k",
        "stop_sequences",
        "service_tier",
        "speed",
        "container",
        "context_management",
        "compaction",
        "mcp_servers",
        "inference_geo",
        "cache_control",
        "thread",
        "diagnostics",
        "fallbacks",
        "fallback_credit_token",
        "billing_policy",
        "user_profile_id",
        "workspace_id",
        "betas",
    }
)
# Of an answer. input_tokens counts neither the cached tokens nor those written to a cache.
KNOWN_USAGE = frozenset(
    {
        "input_tokens",
        "output_tokens",
        "cache_read_input_tokens",
        "cache_creation_input_tokens",
        "output_tokens_details",
        "server_tool_use",
        "service_tier",
    }
)
# A whole answer, and the start of a streamed one.
KNOWN_RESPONSE = frozenset(
    {"id", "type", "role", "model", "content", "stop_reason", "stop_sequence", "stop_details", "usage"}
)


def invalid_request(path: str, message: str) -> RemoteProtocolError:
    """An error in the form of the vendor's validator."""
    return RemoteProtocolError(
        f"{path[1:].replace('/', '.')}: {message}", status_hint=400, path=path, code="invalid_request"
    )


def required_field(value: JSONObject, name: str, path: str, kind: type, word: str) -> JSON:
    """A field that must be there. word: what the validator calls its type."""
    found = value.get(name)
    if type(found) is kind:
        return found
    raise invalid_request(
        f"{path}/{name}", "Field required" if found is None else f"Input should be a valid {word}"
    )


def optional_field(value: JSONObject, name: str, path: str, kind: type, word: str) -> JSON:
    """A field that may be absent or null: None then."""
    found = value.get(name)
    if found is None or type(found) is kind:
        return found
    raise invalid_request(f"{path}/{name}", f"Input should be a valid {word}")


def object_list(value: JSONObject, name: str, path: str) -> list[JSONObject]:
    """A list of objects; [] when it is absent."""
    found = value.get(name)
    if found is None:
        return []
    if type(found) is not list:
        raise invalid_request(f"{path}/{name}", "Input should be a valid list")
    for index, item in enumerate(found):
        if type(item) is not dict:
            raise invalid_request(f"{path}/{name}/{index}", "Input should be an object")
    return found


def optional_object(value: JSONObject, name: str, path: str) -> JSONObject:
    """An optional object; {} when it is absent."""
    found = value.get(name)
    if found is None:
        return {}
    if type(found) is not dict:
        raise invalid_request(f"{path}/{name}", "Input should be an object")
    return found


def text_or_empty(value: JSON) -> str:
    """A value to look up in a table: what is no string is in none of them."""
    return value if type(value) is str else ""


def collect_extra(left: JSONObject, name: str, extra: JSONObject | None) -> None:
    """Unknown fields of an object that has no place of its own in the document: kept under its name."""
    if extra:
        left[name] = {**left.get(name, {}), **extra}


def extra_fields(value: dict[str, JSON], known: frozenset[str]) -> dict[str, JSON] | None:
    """The fields of an object that are not in `known`; null means absent. None when there are none."""
    return {key: item for key, item in value.items() if key not in known and item is not None} or None


def read_cache_mark(
    block: JSONObject, path: str, extra: JSONObject | None
) -> tuple[CacheMark | None, JSONObject | None]:
    """The cache mark of a block or tool. What a mark says beyond its ttl goes into the extra fields."""
    mark = optional_object(block, "cache_control", path) if "cache_control" in block else None
    if not mark:
        return None, extra
    left = extra_fields(mark, KNOWN_CACHE_CONTROL) or {}
    ttl = mark.get("ttl")
    known = CACHE_TTLS.get(text_or_empty(ttl))
    if ttl is not None and known is None:
        left["ttl"] = ttl
    if mark.get("type") not in (None, "ephemeral"):
        left["type"] = mark["type"]
    if left:
        extra = {**(extra or {}), "cache_control": left}
    return CacheMark(f"{path}/cache_control", known), extra


def cited_url(citation: JSONObject) -> str | None:
    """The web page that a citation is of: a search result of the client's own may have one, too."""
    url = citation.get("url")
    if type(url) is str:
        return url
    source = citation.get("source")
    return source if type(source) is str and source.startswith(("https://", "http://")) else None


def cited_title(citation: JSONObject) -> str | None:
    """The title of what is cited."""
    title = citation.get("title", citation.get("document_title"))
    return title if type(title) is str else None


def read_citations(citations: JSON) -> tuple[Citation, ...]:
    """Those of a text's citations that are web pages. They are about the whole block."""
    found: list[Citation] = []
    for citation in citations if type(citations) is list else ():
        if type(citation) is dict:
            url = cited_url(citation)
            if url is not None:
                found.append(Citation(url, cited_title(citation)))
    return tuple(found)


def unreadable_response(message: str) -> RemoteProtocolError:
    """For an answer that cannot be read."""
    return RemoteProtocolError(message, status_hint=502)


def text_or_none(value: JSON) -> str | None:
    return value if type(value) is str else None
