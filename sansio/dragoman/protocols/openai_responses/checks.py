"""Sets of known fields, checks of JSON types, and the citations and images that several readers and writers share.

The fields are those of openai-python 3.52.0 (types.responses). A field outside of them goes into `extra`: it is written
again for another Responses server, and is a loss for any other protocol.
"""

from __future__ import annotations

from dragoman._ir.request import Citation, Media, Text
from dragoman._wire.exceptions import RemoteProtocolError, dotted_path
from dragoman._wire.json import JSON, JSONObject, text_or_none, wrong_type

# A request.
KNOWN_BODY = frozenset(
    (
        "model",
        "input",
        "instructions",
        "background",
        "client_metadata",
        "context_management",
        "conversation",
        "include",
        "max_output_tokens",
        "max_tool_calls",
        "metadata",
        "moderation",
        "parallel_tool_calls",
        "previous_response_id",
        "prompt",
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
        "reasoning",
        "safety_identifier",
        "service_tier",
        "store",
        "stream",
        "stream_options",
        "temperature",
        "text",
        "tool_choice",
        "tools",
        "top_logprobs",
        "top_p",
        "truncation",
        "user",
    )
)
# `reasoning` of a request.
KNOWN_REASONING = frozenset(("effort", "summary"))
# `text` of a request.
KNOWN_TEXT_CONFIG = frozenset(("format", "verbosity"))
# `text.format`: flat, unlike in Chat.
KNOWN_FORMAT = frozenset(("type", "name", "schema", "description", "strict"))
# A message; clients leave out `type`, and assistants' messages may come without id and status.
KNOWN_MESSAGE = frozenset(("type", "role", "content", "id", "status", "phase"))
# A function call. `id` names the item, `call_id` the call.
KNOWN_FUNCTION_CALL = frozenset(("type", "call_id", "name", "arguments", "id", "namespace", "status"))
# A call of a custom tool. It has no status.
KNOWN_CUSTOM_CALL = frozenset(("type", "call_id", "name", "input", "id", "namespace", "status"))
# The result of a function or a custom tool.
KNOWN_CALL_OUTPUT = frozenset(("type", "call_id", "output", "id", "name", "namespace", "status"))
# Reasoning: summaries for people, content where the server shows it, ciphertext for the model.
KNOWN_REASONING_ITEM = frozenset(("type", "id", "summary", "content", "encrypted_content", "status"))
# A call of a tool that the client runs and whose form the vendor defines, of any kind.
KNOWN_CLIENT_CALL = frozenset(
    ("type", "id", "call_id", "action", "actions", "arguments", "operation", "status")
)
# The result of such a tool.
KNOWN_CLIENT_OUTPUT = frozenset(("type", "id", "call_id", "output", "tools", "status"))
# The summary that replaces a conversation.
KNOWN_COMPACTION = frozenset(("type", "id", "encrypted_content"))
# Settings that change in mid-conversation.
KNOWN_CONFIGURATION = frozenset(("type", "id", "reasoning", "text"))
# Tools that are declared in mid-conversation.
KNOWN_ADDITIONAL_TOOLS = frozenset(("type", "role", "tools", "id"))
# Tools under a common name.
KNOWN_NAMESPACE = frozenset(("type", "name", "description", "tools"))
# `output_text` in an assistant's message.
KNOWN_OUTPUT_TEXT = frozenset(("type", "text", "annotations", "prompt_cache_breakpoint"))
# `refusal` in an assistant's message.
KNOWN_REFUSAL = frozenset(("type", "refusal"))
# `input_image`: image_url is a URL or a data URI.
KNOWN_INPUT_IMAGE = frozenset(("type", "image_url", "file_id", "detail", "prompt_cache_breakpoint"))
# `input_file`: file_data is a data URI or bare base64.
KNOWN_INPUT_FILE = frozenset(
    ("type", "file_data", "file_url", "file_id", "filename", "detail", "prompt_cache_breakpoint")
)
# A function tool: flat, unlike in Chat.
KNOWN_FUNCTION_TOOL = frozenset(("type", "name", "description", "parameters", "strict", "defer_loading"))
# A custom tool.
KNOWN_CUSTOM_TOOL = frozenset(("type", "name", "description", "format"))


def extra_fields(value: JSONObject, known: frozenset[str]) -> JSONObject | None:
    """Return the fields of `value` outside of `known`, None if there are none. Null fields count."""
    if value.keys() <= known:
        return None
    return {name: field for name, field in value.items() if name not in known}


def int_or_none(value: JSON) -> int | None:
    return value if type(value) is int else None


def object_or_empty(value: JSON) -> JSONObject:
    return value if type(value) is dict else {}


def objects_in(value: JSON) -> list[JSONObject]:
    """Return the objects of a list, [] for a value that is no list."""
    return [each for each in value if type(each) is dict] if type(value) is list else []


def required_text(value: JSONObject, name: str, path: str) -> str:
    """Return a string field that must not be empty. Raises RemoteProtocolError."""
    found = value.get(name)
    if type(found) is str and found:
        return found
    raise missing_field(f"{path}/{name}") if not found else wrong_type(f"{path}/{name}", "a string", found)


def optional_text(value: JSONObject, name: str, path: str) -> str | None:
    """Return a string field, None if it is absent, null or empty. Raises RemoteProtocolError for other types."""
    found = value.get(name)
    if found is None or type(found) is str:
        return found or None
    raise wrong_type(f"{path}/{name}", "a string", found)


def missing_field(path: str) -> RemoteProtocolError:
    return RemoteProtocolError(
        f"{dotted_path(path)} is required", path=path, code="missing_required_parameter"
    )


def invalid_value(path: str, expected: str) -> RemoteProtocolError:
    return RemoteProtocolError(f"{dotted_path(path)} must be {expected}", path=path, code="invalid_value")


def read_citations(annotations: JSON) -> tuple[Citation, ...]:
    """Return the web pages that annotations cite. Other kinds name files in the vendor's store."""
    found = []
    for each in objects_in(annotations):
        url = text_or_none(each.get("url"))
        if url is not None:
            start, end = int_or_none(each.get("start_index")), int_or_none(each.get("end_index"))
            found.append(Citation(url, text_or_none(each.get("title")), start, end))
    return tuple(found)


def write_url_citation(
    url: str, title: str | None, start: int | None, end: int | None, length: int
) -> JSONObject:
    """Return a `url_citation`. All its fields are required, so a span without an end runs to `length` of the text."""
    return {
        "type": "url_citation",
        "url": url,
        "title": title or url,
        "start_index": start or 0,
        "end_index": length if end is None else end,
    }


def write_citations(part: Text) -> list[JSON]:
    """Return annotations for the citations of another protocol."""
    return [
        write_url_citation(each.url, each.title, each.start, each.end, len(part.text))
        for each in part.sources
    ]


def has_unmapped_citations(part: Text) -> bool:
    """True if the citations have values that are not in the sources read from them."""
    mapped: set[JSON] = {None, *(value for each in part.sources for value in (each.url, each.title))}
    mapped.update(value for each in part.sources for value in (each.start, each.end))
    left: list[JSON] = [part.citations]
    while left:
        value = left.pop()
        if type(value) is dict:
            left += [member for key, member in value.items() if key != "type"]
        elif type(value) is list:
            left += value
        elif value not in mapped:
            return True
    return False


def read_image(value: JSONObject, path: str, **fields: JSON) -> Media:
    """Read an image from `image_url` (a URL or a data URI) or `file_id`. Raises RemoteProtocolError without one."""
    url = value.get("image_url")
    if type(url) is str:
        media_type, data = split_data_uri(url)
        if data is not None:
            return Media("image", "base64", data, media_type, path=path, **fields)
        return Media("image", "url", url, path=path, **fields)
    file_id = value.get("file_id")
    if type(file_id) is str:
        return Media("image", "file_id", file_id, path=path, **fields)
    raise RemoteProtocolError(
        f"{dotted_path(path)} needs image_url or file_id, a string",
        path=path,
        code="missing_required_parameter",
    )


def split_data_uri(text: str) -> tuple[str | None, str | None]:
    """Return media type and base64 text of a data URI, (None, None) for anything else."""
    if text[:5] != "data:":
        return None, None
    head, comma, data = text[5:].partition(",")
    if not comma or not head.endswith(";base64"):
        return None, None
    return head.removesuffix(";base64") or None, data
