"""A client's body -> the request document.

Strategy: one function a block type, found in a table; a type without one becomes an opaque part that keeps
the whole block. What cannot be read is refused in the words of the vendor's own validator, `path: what was
expected`. A message of plain text, by far the commonest, takes the short way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import cast

from dragoman._errors import RemoteProtocolError
from dragoman._events import Seal, ToolKind
from dragoman._json import JSON, JSONObject, encode_text
from dragoman._params import read_params
from dragoman._request import (
    CacheMark,
    FunctionTool,
    HostedTool,
    Media,
    Message,
    OpaquePart,
    Part,
    ReasoningConfig,
    Request,
    ResponseFormat,
    Text,
    Thought,
    Tool,
    ToolCall,
    ToolChoice,
    ToolResult,
)
from dragoman._seal import Sealer

from ._plain import plain_text
from ._tables import CACHE_READ, NAME, PARAM_PATHS, PARAM_TYPES, PARAMS_READ, SOURCES, TIER_READ
from ._wire import (
    KNOWN_BODY,
    KNOWN_CACHE,
    KNOWN_CHOICE,
    KNOWN_CONFIG,
    KNOWN_DOCUMENT,
    KNOWN_FORMAT,
    KNOWN_IMAGE,
    KNOWN_MESSAGE_PARAM,
    KNOWN_METADATA,
    KNOWN_SOURCE,
    KNOWN_TEXT,
    KNOWN_THINKING,
    KNOWN_THOUGHT,
    KNOWN_TOOL,
    KNOWN_TOOL_RESULT,
    KNOWN_TOOL_USE,
    extra_of,
)

_ROLES = ("user", "assistant", "system")

_FUNCTION = ToolKind.FUNCTION  # an Enum's member is slow to look up

# The paths of the first messages, made once: to print a number costs as much as to build a message.
_PATHS = tuple([f"/messages/{index}" for index in range(512)])


def read_request(body: JSONObject, sealer: Sealer) -> Request:
    """The request that a body stands for. Raises RemoteProtocolError (400) with the path of what is wrong."""
    model = _required(body, "model", "", str, "string")
    _required(body, "max_tokens", "", int, "integer")
    messages = _required(body, "messages", "", list, "list")
    read: list[Message] = []
    system = body.get("system")
    if system is not None:
        parts = _content(system, "/system", sealer, _BLOCKS)
        if parts:
            read.append(Message("system", parts, "/system"))
    for index, message in enumerate(messages):
        path = _PATHS[index] if index < len(_PATHS) else f"/messages/{index}"
        if type(message) is not dict:
            raise _invalid(path, "Input should be an object")
        role = message.get("role")
        if role not in _ROLES:
            raise _invalid(f"{path}/role", "Input should be 'user', 'assistant' or 'system'")
        content = message.get("content")
        if content is None:
            raise _invalid(f"{path}/content", "Field required")
        parts = (
            (Text(content, None, None, None, path + "/content"),)  # the short way
            if type(content) is str and content
            else _content(content, f"{path}/content", sealer, _BLOCKS)
        )
        if len(message) == 2:
            read.append(Message(role, parts, path))
        else:
            read.append(Message(role, parts, path, extra=extra_of(message, KNOWN_MESSAGE_PARAM)))
    left: JSONObject = extra_of(body, KNOWN_BODY) or {}
    for name, kinds, word in PARAM_TYPES:
        if body.get(name) is not None and type(body[name]) not in kinds:
            raise _invalid(f"/{name}", f"Input should be a valid {word}")
    params = read_params(body, PARAMS_READ)
    if "service_tier" in params:
        params["service_tier"] = TIER_READ.get(params["service_tier"], params["service_tier"])
    for index, text in enumerate(params.get("stop", ())):
        if type(text) is not str:
            raise _invalid(f"/stop_sequences/{index}", "Input should be a valid string")
    metadata = _object(body, "metadata", "")
    user = _optional(metadata, "user_id", "/metadata", str, "string")
    if user is not None:
        params["user"] = user
    _keep(left, "metadata", extra_of(metadata, KNOWN_METADATA))
    choice, parallel = _tool_choice(_object(body, "tool_choice", ""), left)
    return Request(
        protocol=NAME,
        model=model,
        messages=tuple(read),
        raw=body,
        tools=_tools(body),
        tool_choice=choice,
        parallel_tool_calls=parallel,
        stream=body.get("stream") is True,
        params=params,
        param_paths=PARAM_PATHS,
        reasoning=_reasoning(body),
        response_format=_response_format(body, left),
        extra=left or None,
    )


# --- content ----------------------------------------------------------------------------------------------

BlockReader = Callable[[JSONObject, str, Sealer], Part]


def _content(
    content: JSON, path: str, sealer: Sealer, readers: Mapping[str, BlockReader]
) -> tuple[Part, ...]:
    if type(content) is str:
        return (Text(content, path=path),) if content else ()
    if type(content) is not list:
        raise _invalid(path, "Input should be a valid string or list")
    parts: list[Part] = []
    for index, block in enumerate(content):
        place = f"{path}/{index}"
        if type(block) is not dict:
            raise _invalid(place, "Input should be an object")
        kind = block.get("type")
        if kind == "text" and len(block) == 2 and type(block.get("text")) is str:
            parts.append(Text(block["text"], None, None, None, place))
            continue
        if type(kind) is not str:
            kind = _required(block, "type", place, str, "string")
        reader = readers.get(kind)
        parts.append(
            OpaquePart(NAME, kind, block, place, plain_text(block))
            if reader is None
            else reader(block, place, sealer)
        )
    return tuple(parts)


def _text(block: JSONObject, path: str, sealer: Sealer) -> Part:
    text = _required(block, "text", path, str, "string")
    cache, extra = _cache(block, path, extra_of(block, KNOWN_TEXT))
    return Text(text, cache, block.get("citations") or None, extra, path)


def _image(block: JSONObject, path: str, sealer: Sealer) -> Part:
    return _media(block, path, KNOWN_IMAGE)


def _document(block: JSONObject, path: str, sealer: Sealer) -> Part:
    return _media(block, path, KNOWN_DOCUMENT)


def _media(block: JSONObject, path: str, known: frozenset[str]) -> Part:
    source = _object(block, "source", path)
    if not source:
        raise _invalid(f"{path}/source", "Field required")
    field, neutral = SOURCES.get(_word(source.get("type")), ("", None))
    data = source.get(field)
    if neutral is None or type(data) is not str:
        return OpaquePart(NAME, block["type"], block, path, plain_text(block))
    cache, extra = _cache(block, path, extra_of(block, known))
    left = extra_of(source, KNOWN_SOURCE)
    if left:
        extra = {**(extra or {}), "source": left}
    image = known is KNOWN_IMAGE
    return Media(
        kind="image" if image else "file",
        source=neutral,
        data=data,
        media_type=_optional(source, "media_type", f"{path}/source", str, "string"),
        filename=None if image else _optional(block, "title", path, str, "string"),
        context=None if image else _optional(block, "context", path, str, "string"),
        citations=None if image else block.get("citations"),
        cache=cache,
        extra=extra,
        path=path,
    )


def _thinking(block: JSONObject, path: str, sealer: Sealer) -> Part:
    text = _required(block, "thinking", path, str, "string")
    return _thought(block, path, sealer, text, block.get("signature"))


def _redacted_thinking(block: JSONObject, path: str, sealer: Sealer) -> Part:
    return _thought(block, path, sealer, "", _required(block, "data", path, str, "string"))


def _thought(block: JSONObject, path: str, sealer: Sealer, text: str, carrier: JSON) -> Part:
    extra: JSONObject | None = None
    if "cache_control" in block:
        # "cache_control cannot be set on thinking blocks": it is no part of what was signed.
        extra = {"cache_control": block["cache_control"]}
        block = {key: value for key, value in block.items() if key != "cache_control"}
    seal: Seal | None = None
    if type(carrier) is str and carrier and not sealer.is_wrapped(carrier):
        seal = Seal(NAME, block)  # it holds the whole block
    else:
        seal = sealer.unwrap(carrier) if type(carrier) is str else None
        left = extra_of(block, KNOWN_THOUGHT)
        if left:
            extra = {**(extra or {}), **left}
    return Thought(text, seal, extra=extra, path=path)


def _tool_use(block: JSONObject, path: str, sealer: Sealer) -> Part:
    given = block.get("input")
    if len(block) == 4 and type(given) is dict:
        # The short way: type, id, name and input alone.
        call_id, name = block.get("id"), block.get("name")
        if type(call_id) is str and type(name) is str:
            text = encode_text(given) if given else "{}"
            return ToolCall(call_id, name, text, _FUNCTION, None, None, None, None, path)
    call_id = _required(block, "id", path, str, "string")
    name = _required(block, "name", path, str, "string")
    # Clients rebuild calls without arguments as null or leave the field out.
    if given is not None and type(given) is not dict:
        raise _invalid(f"{path}/input", "Input should be a valid dictionary")
    cache, extra = _cache(block, path, extra_of(block, KNOWN_TOOL_USE))
    if extra is not None and extra.get("caller") == {"type": "direct"}:
        del extra["caller"]  # says what is so without it
    text = encode_text(given) if given else "{}"
    return ToolCall(call_id, name, text, cache=cache, extra=extra or None, path=path)


def _tool_result(block: JSONObject, path: str, sealer: Sealer) -> Part:
    call_id = _required(block, "tool_use_id", path, str, "string")
    content = block.get("content")
    found: tuple[Part, ...]
    if type(content) is str and content:
        found = (Text(content, None, None, None, path + "/content"),)
    else:
        found = () if content is None else _content(content, f"{path}/content", sealer, _RESULT_BLOCKS)
    parts = cast("tuple[Text | Media | OpaquePart, ...]", found)
    if len(block) == 3 and content is not None:
        # The short way: type, id and content alone.
        return ToolResult(call_id, parts, _FUNCTION, None, None, None, None, path)
    cache, extra = _cache(block, path, extra_of(block, KNOWN_TOOL_RESULT))
    return ToolResult(
        call_id,
        parts,
        is_error=_optional(block, "is_error", path, bool, "boolean"),
        cache=cache,
        extra=extra,
        path=path,
    )


_RESULT_BLOCKS: dict[str, BlockReader] = {"text": _text, "image": _image, "document": _document}
_BLOCKS: dict[str, BlockReader] = {
    **_RESULT_BLOCKS,
    "thinking": _thinking,
    "redacted_thinking": _redacted_thinking,
    "tool_use": _tool_use,
    "tool_result": _tool_result,
}


def _cache(
    block: JSONObject, path: str, extra: JSONObject | None
) -> tuple[CacheMark | None, JSONObject | None]:
    """The cache mark of a block. What a mark says beyond its ttl goes into the block's extra fields."""
    mark = _object(block, "cache_control", path) if "cache_control" in block else None
    if not mark:
        return None, extra
    left = extra_of(mark, KNOWN_CACHE) or {}
    ttl = mark.get("ttl")
    known = CACHE_READ.get(_word(ttl))
    if ttl is not None and known is None:
        left["ttl"] = ttl
    if mark.get("type") not in (None, "ephemeral"):
        left["type"] = mark["type"]
    if left:
        extra = {**(extra or {}), "cache_control": left}
    return CacheMark(f"{path}/cache_control", known), extra


# --- tools and settings -----------------------------------------------------------------------------------


def _tools(body: JSONObject) -> tuple[Tool, ...]:
    tools = body.get("tools")
    if not tools:
        return ()
    if type(tools) is not list:
        raise _invalid("/tools", "Input should be a valid list")
    read: list[Tool] = []
    for index, tool in enumerate(tools):
        path = f"/tools/{index}"
        if type(tool) is not dict:
            raise _invalid(path, "Input should be an object")
        kind = _optional(tool, "type", path, str, "string")
        if kind is not None and kind != "custom":
            read.append(HostedTool(NAME, kind, tool, path))
            continue
        name = _required(tool, "name", path, str, "string")
        cache, extra = _cache(tool, path, extra_of(tool, KNOWN_TOOL))
        read.append(
            FunctionTool(
                name,
                _optional(tool, "description", path, str, "string"),
                _optional(tool, "input_schema", path, dict, "dictionary"),
                _optional(tool, "strict", path, bool, "boolean"),
                cache=cache,
                extra=extra,
                path=path,
            )
        )
    return tuple(read)


def _tool_choice(choice: JSONObject, left: JSONObject) -> tuple[ToolChoice | None, bool | None]:
    """The choice, and whether the model may call several tools at once: Messages says both in one object."""
    if not choice:
        return None, None
    single = _optional(choice, "disable_parallel_tool_use", "/tool_choice", bool, "boolean")
    parallel = None if single is None else not single
    _keep(left, "tool_choice", extra_of(choice, KNOWN_CHOICE))
    kind = choice.get("type")
    path = "/tool_choice"
    if kind == "auto":
        return ToolChoice("auto", path=path), parallel
    if kind == "any":
        return ToolChoice("required", path=path), parallel
    if kind == "none":
        return ToolChoice("none", path=path), parallel
    if kind == "tool":
        return ToolChoice("named", _required(choice, "name", path, str, "string"), path=path), parallel
    raise _invalid(f"{path}/type", "Input should be 'auto', 'any', 'tool' or 'none'")


def _reasoning(body: JSONObject) -> ReasoningConfig | None:
    thinking = _object(body, "thinking", "")
    config = _object(body, "output_config", "")
    effort = _optional(config, "effort", "/output_config", str, "string")
    if not thinking:
        return None if effort is None else ReasoningConfig(effort=effort, path="/output_config/effort")
    extra = extra_of(thinking, KNOWN_THINKING) or {}
    kind: JSON = thinking.get("type")
    show = thinking.get("display")
    budget = _optional(thinking, "budget_tokens", "/thinking", int, "integer")
    if kind == "between_tools":
        extra["type"] = kind
        kind = "disabled"  # the nearest: no reasoning before the answer
    elif kind not in ("adaptive", "enabled", "disabled"):
        raise _invalid(
            "/thinking/type", "Input should be 'adaptive', 'enabled', 'disabled' or 'between_tools'"
        )
    if show not in (None, "summarized", "omitted"):
        extra["display"] = show
        show = None
    return ReasoningConfig(kind, effort, budget, show, extra or None, "/thinking")


def _response_format(body: JSONObject, left: JSONObject) -> ResponseFormat | None:
    config = _object(body, "output_config", "")
    _keep(left, "output_config", extra_of(config, KNOWN_CONFIG))
    path = "/output_config/format" if config.get("format") is not None else "/output_format"
    found = _object(config, "format", "/output_config") or _object(body, "output_format", "")
    if not found:
        return None
    if found.get("type") != "json_schema":
        raise _invalid(f"{path}/type", "Input should be 'json_schema'")
    schema = _required(found, "schema", path, dict, "dictionary")
    return ResponseFormat(schema, extra=extra_of(found, KNOWN_FORMAT), path=path)


# --- helpers ----------------------------------------------------------------------------------------------


def _invalid(path: str, message: str) -> RemoteProtocolError:
    """An error in the form of the vendor's validator: `messages.0.content: Field required`."""
    return RemoteProtocolError(
        f"{path[1:].replace('/', '.')}: {message}", status_hint=400, path=path, code="invalid_request"
    )


def _required(value: JSONObject, name: str, path: str, kind: type, word: str) -> JSON:
    found = value.get(name)
    if type(found) is kind:
        return found
    raise _invalid(f"{path}/{name}", "Field required" if found is None else f"Input should be a valid {word}")


def _optional(value: JSONObject, name: str, path: str, kind: type, word: str) -> JSON:
    found = value.get(name)
    if found is None or type(found) is kind:
        return found
    raise _invalid(f"{path}/{name}", f"Input should be a valid {word}")


def _word(value: JSON) -> str:
    """A value to look up in a table: what is no string is in none of them."""
    return value if type(value) is str else ""


def _object(value: JSONObject, name: str, path: str) -> JSONObject:
    """An optional object; {} when it is absent."""
    found = value.get(name)
    if found is None:
        return {}
    if type(found) is not dict:
        raise _invalid(f"{path}/{name}", "Input should be an object")
    return found


def _keep(left: JSONObject, name: str, extra: JSONObject | None) -> None:
    """Unknown fields of an object that has no place of its own in the document: kept under its name."""
    if extra:
        left[name] = extra
