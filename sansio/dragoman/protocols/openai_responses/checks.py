"""Small helpers of the readers: what is extra, what is a text, and the commonest complaints."""

from __future__ import annotations

from dragoman._ir.request import Citation, Media, Text
from dragoman._wire.exceptions import RemoteProtocolError, dotted_path
from dragoman._wire.json import JSON, JSONObject, kind_of

# The request.
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
# The result of a function or of a custom tool.
KNOWN_CALL_OUTPUT = frozenset(("type", "call_id", "output", "id", "name", "namespace", "status"))
# Reasoning: summaries for people, content where it is open, ciphertext for the model.
KNOWN_REASONING_ITEM = frozenset(("type", "id", "summary", "content", "encrypted_content", "status"))
# A call of a tool that the client runs and whose form the vendor implies, of any kind.
KNOWN_CLIENT_CALL = frozenset(
    ("type", "id", "call_id", "action", "actions", "arguments", "operation", "status")
)
# What such a tool gave back.
KNOWN_CLIENT_OUTPUT = frozenset(("type", "id", "call_id", "output", "tools", "status"))
# What takes the place of a conversation.
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
    """The fields of `value` that are not known, None when there are none."""
    if value.keys() <= known:
        return None
    return {name: field for name, field in value.items() if name not in known}


def text_or_none(value: JSON) -> str | None:
    """A text that is not empty, None for everything else: servers send null, "" and worse."""
    return value if type(value) is str and value else None


def objects_in(value: JSON) -> list[JSONObject]:
    """The objects of a list; nothing when it is none."""
    return [each for each in value if type(each) is dict] if type(value) is list else []


def required_text(item: JSONObject, path: str, name: str) -> str:
    """A text that must be there and not be empty. Raises RemoteProtocolError."""
    value = item.get(name)
    if type(value) is str and value:
        return value
    raise missing_field(f"{path}/{name}") if not value else wrong_type(f"{path}/{name}", "a string", value)


def optional_text(item: JSONObject, path: str, name: str) -> str | None:
    """A text that may be absent, null or empty: None then. Raises RemoteProtocolError for other types."""
    value = item.get(name)
    if value is None or type(value) is str:
        return value or None
    raise wrong_type(f"{path}/{name}", "a string", value)


def missing_field(path: str) -> RemoteProtocolError:
    return RemoteProtocolError(
        f"{dotted_path(path)} is required", path=path, code="missing_required_parameter"
    )


def wrong_type(path: str, words: str, value: object) -> RemoteProtocolError:
    return RemoteProtocolError(
        f"{dotted_path(path)} must be {words}, not {kind_of(value)}", path=path, code="invalid_type"
    )


def invalid_value(path: str, words: str) -> RemoteProtocolError:
    """`words` says what the value must be."""
    return RemoteProtocolError(f"{dotted_path(path)} must be {words}", path=path, code="invalid_value")


def read_citations(annotations: JSON) -> tuple[Citation, ...]:
    """The web pages that annotations cite."""
    found = []
    for each in objects_in(annotations):
        url = text_or_none(each.get("url"))
        if url is not None:
            start, end = each.get("start_index"), each.get("end_index")
            found.append(
                Citation(
                    url,
                    text_or_none(each.get("title")),
                    start if type(start) is int else None,
                    end if type(end) is int else None,
                )
            )
    return tuple(found)


def write_url_citation(
    url: str, title: str | None, start: int | None, end: int | None, length: int
) -> JSONObject:
    """An annotation. All its fields are required; `length` of the text ends a span that is not told."""
    return {
        "type": "url_citation",
        "url": url,
        "title": title or url,
        "start_index": start or 0,
        "end_index": length if end is None else end,
    }


def write_citations(part: Text) -> list[JSON]:
    """The annotations of a text of another protocol."""
    return [
        write_url_citation(each.url, each.title, each.start, each.end, len(part.text))
        for each in part.sources
    ]


def has_unmapped_citations(part: Text) -> bool:
    """Whether the citations that the text came with say anything beside its sources."""
    told: set[JSON] = {None, *(value for each in part.sources for value in (each.url, each.title))}
    told.update(value for each in part.sources for value in (each.start, each.end))
    left: list[JSON] = [part.citations]
    while left:
        value = left.pop()
        if type(value) is dict:
            left += [member for key, member in value.items() if key != "type"]
        elif type(value) is list:
            left += value
        elif value not in told:
            return True
    return False


def read_image(value: JSONObject, path: str, **fields: JSON) -> Media:
    """An image that is named by `image_url` (a URL or a data URI) or by `file_id`. Raises when it is not."""
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
    """Media type and base64 text of a data URI, (None, None) for anything else."""
    if text[:5] != "data:":
        return None, None
    head, comma, data = text[5:].partition(",")
    if not comma or not head.endswith(";base64"):
        return None, None
    return head.removesuffix(";base64") or None, data
