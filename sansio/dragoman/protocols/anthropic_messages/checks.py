"""Known fields of each object, and checks that the readers share.

Checks raise errors in the form of the vendor's validator: `messages.0.content: Field required`. Every field that is not
in the set of its object is kept as an extra field.
"""

from __future__ import annotations

from dragoman._ir.request import Citation
from dragoman._ir.tools import CacheMark
from dragoman._wire.exceptions import RemoteProtocolError
from dragoman._wire.json import JSON, JSONObject
from dragoman.protocols.anthropic_messages.tables import CACHE_TTLS, PARAMS

KNOWN_CACHE_CONTROL = frozenset({"type", "ttl"})
KNOWN_TEXT = frozenset({"type", "text", "citations", "cache_control"})
# The source of an image or a document; its `type` says which of the other fields it has.
KNOWN_SOURCE = frozenset({"type", "media_type", "data", "url", "file_id"})
KNOWN_IMAGE = frozenset({"type", "source", "cache_control"})
KNOWN_DOCUMENT = frozenset({"type", "source", "title", "context", "citations", "cache_control"})
KNOWN_TOOL_USE = frozenset({"type", "id", "name", "input", "cache_control"})
KNOWN_TOOL_RESULT = frozenset({"type", "tool_use_id", "content", "is_error", "cache_control"})
# Of both types: thinking has thinking and signature, redacted_thinking has data.
KNOWN_THINKING_BLOCK = frozenset({"type", "thinking", "signature", "data"})
KNOWN_MESSAGE = frozenset({"role", "content"})
# A tool with a schema: its `type` is absent or "custom".
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
# A request. `output_format` is the older place of `output_config.format`, deprecated in anthropic 2.12.0.
KNOWN_BODY = frozenset(
    {
        *PARAMS,
        "model",
        "messages",
        "system",
        "stream",
        "tools",
        "tool_choice",
        "thinking",
        "output_config",
        "output_format",
        "metadata",
        "context_management",
        "compaction",
        "cache_control",
    }
)
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
# A response, or the message that message_start holds.
KNOWN_RESPONSE = frozenset(
    {"id", "type", "role", "model", "content", "stop_reason", "stop_sequence", "stop_details", "usage"}
)


def invalid_request(path: str, message: str) -> RemoteProtocolError:
    """Return an error (400) in the form of the vendor's validator."""
    return RemoteProtocolError(
        f"{path[1:].replace('/', '.')}: {message}", status=400, path=path, code="invalid_request"
    )


def required_field(value: JSONObject, name: str, path: str, kind: type, type_name: str) -> JSON:
    """Return a required field of type `kind`. type_name: as the error names the type."""
    field = value.get(name)
    if type(field) is kind:
        return field
    raise invalid_request(
        f"{path}/{name}", "Field required" if field is None else f"Input should be a valid {type_name}"
    )


def optional_field(value: JSONObject, name: str, path: str, kind: type, type_name: str) -> JSON:
    """Return a field of type `kind`, None if it is absent or null."""
    field = value.get(name)
    if field is None or type(field) is kind:
        return field
    raise invalid_request(f"{path}/{name}", f"Input should be a valid {type_name}")


def object_list(value: JSONObject, name: str, path: str) -> list[JSONObject]:
    """Return a list of objects, [] if it is absent."""
    field = value.get(name)
    if field is None:
        return []
    if type(field) is not list:
        raise invalid_request(f"{path}/{name}", "Input should be a valid list")
    for index, item in enumerate(field):
        if type(item) is not dict:
            raise invalid_request(f"{path}/{name}/{index}", "Input should be an object")
    return field


def optional_object(value: JSONObject, name: str, path: str) -> JSONObject:
    """Return an object, {} if it is absent."""
    field = value.get(name)
    if field is None:
        return {}
    if type(field) is not dict:
        raise invalid_request(f"{path}/{name}", "Input should be an object")
    return field


def string_or_none(value: JSON) -> str | None:
    """Return a string, even an empty one, None for any other value."""
    return value if type(value) is str else None


def text_or_empty(value: JSON) -> str:
    """Return a text as a key of a table: "" for everything else."""
    return value if type(value) is str else ""


def extra_fields(value: JSONObject, known: frozenset[str]) -> JSONObject | None:
    """Return the fields that are not in `known` and not null, None if there are none."""
    return {key: item for key, item in value.items() if key not in known and item is not None} or None


def collect_extra(collected: JSONObject, name: str, extra: JSONObject | None) -> None:
    """Add the extra fields of the object `name`, which has no place in the neutral request, to `collected`."""
    if extra:
        collected[name] = {**collected.get(name, {}), **extra}


def read_cache_mark(
    block: JSONObject, path: str, extra: JSONObject | None
) -> tuple[CacheMark | None, JSONObject | None]:
    """Return the cache mark of a block or tool, and its extra fields with what the mark has beside its ttl."""
    mark = optional_object(block, "cache_control", path) if "cache_control" in block else None
    if not mark:
        return None, extra
    mark_extra = extra_fields(mark, KNOWN_CACHE_CONTROL) or {}
    ttl = mark.get("ttl")
    neutral_ttl = CACHE_TTLS.get(text_or_empty(ttl))
    if ttl is not None and neutral_ttl is None:
        mark_extra["ttl"] = ttl
    if mark.get("type") not in (None, "ephemeral"):
        mark_extra["type"] = mark["type"]
    if mark_extra:
        extra = {**(extra or {}), "cache_control": mark_extra}
    return CacheMark(f"{path}/cache_control", neutral_ttl), extra


def cited_url(citation: JSONObject) -> str | None:
    """Return the URL of the cited web page, None if it is none. A search result of the client may have one as well."""
    url = citation.get("url")
    if type(url) is str:
        return url
    source = citation.get("source")
    return source if type(source) is str and source.startswith(("https://", "http://")) else None


def cited_title(citation: JSONObject) -> str | None:
    return string_or_none(citation.get("title", citation.get("document_title")))


def read_citations(citations: JSON) -> tuple[Citation, ...]:
    """Return the citations of web pages. They are about the whole text block."""
    cited: list[Citation] = []
    for citation in citations if type(citations) is list else ():
        if type(citation) is dict:
            url = cited_url(citation)
            if url is not None:
                cited.append(Citation(url, cited_title(citation)))
    return tuple(cited)
