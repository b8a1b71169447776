"""A client's Responses request -> Request.

Strategy: one IR message per input item, in order, with the item's place as its path, so that losses can be
named and the writer of the same protocol can print the items again one by one. Items that have no form in the
IR ride along whole. The shapes that nearly every item has are tried first.
"""

from __future__ import annotations

from typing import cast

from ..._errors import RemoteProtocolError, dotted
from ..._events import Seal, ToolKind
from ..._json import JSON, JSONObject, encode_text
from ..._params import read_params
from ..._request import (
    CacheMark,
    Media,
    Message,
    Namespace,
    OpaquePart,
    Param,
    Part,
    ReasoningConfig,
    Refusal,
    Request,
    ResponseFormat,
    Role,
    Text,
    Thought,
    Tool,
    ToolCall,
    ToolResult,
)
from ..._seal import Sealer
from . import _tables as tables
from . import _wire as wire
from ._common import extra_of, invalid, missing, objects_of, optional, required, text_of, wrong_type
from ._read_tools import read_choice, read_tools
from ._wire import ORIGIN

_TEXT_PARTS = frozenset(("input_text", "output_text", "text"))

# Bound here, for an Enum's member is slow to look up.
_FUNCTION, _CUSTOM = ToolKind.FUNCTION, ToolKind.CUSTOM

# The paths of the first items, made once: to print a number costs as much as to build an item.
_PATHS = tuple([f"/input/{index}" for index in range(512)])


def read_request(body: JSONObject, sealer: Sealer) -> Request:
    """Read a decoded body.

    Raises RemoteProtocolError with the path of the value at fault.
    """
    model = body.get("model")
    if type(model) is not str or not model:
        raise missing("/model") if model is None else wrong_type("/model", "a string", model)
    _check_types(body)
    messages: list[Message] = []
    instructions = body.get("instructions")
    if instructions:
        text = Text(instructions, path="/instructions")
        messages.append(Message("system", (text,), "/instructions"))
    namespaces: list[Namespace] = []
    tools = read_tools(body.get("tools") or [], "/tools", namespaces)
    _read_input(body, sealer, messages, tools, namespaces)
    extra = extra_of(body, wire.BODY) or {}
    params, format_ = _read_params(body, extra)
    return Request(
        protocol=ORIGIN,
        model=model,
        messages=tuple(messages),
        raw=body,
        tools=tuple(tools),
        namespaces=tuple(namespaces),
        tool_choice=read_choice(body.get("tool_choice"), extra),
        parallel_tool_calls=body.get("parallel_tool_calls"),
        stream=body.get("stream") is True,
        params=params,
        param_paths=tables.PARAM_PATHS,
        reasoning=_read_reasoning(body.get("reasoning")),
        response_format=format_,
        extra=extra or None,
    )


def _check_types(body: JSONObject) -> None:
    for name, (types, words) in tables.PARAM_TYPES.items():
        value = body.get(name)
        # bool is an int in Python, and never one in JSON.
        if value is not None and (type(value) not in types):
            raise wrong_type(f"/{name}", words, value)


def _read_params(body: JSONObject, extra: JSONObject) -> tuple[dict[Param, JSON], ResponseFormat | None]:
    params = read_params(body, tables.PARAMS)
    for name, nothing in tables.NOTHING_ASKED.items():
        param = tables.PARAMS[name]
        if param in params and params[param] == nothing:
            del params[param]
    include = body.get("include")
    if include:
        if tables.INCLUDE_LOGPROBS in include:
            params["logprobs"] = True
        if any(name not in (tables.INCLUDE_REASONING, tables.INCLUDE_LOGPROBS) for name in include):
            params["include"] = include
    text: JSONObject = body.get("text") or {}
    if text.get("verbosity") is not None:
        params["verbosity"] = text["verbosity"]
    unknown = extra_of(text, wire.TEXT_CONFIG)
    if unknown:
        extra["text"] = unknown
    form = text.get("format")
    if type(form) is dict and form.get("type") == "text" and len(form) > 1:
        extra.setdefault("text", {})["format"] = form
    return params, _read_format(form)


def _read_format(value: JSON) -> ResponseFormat | None:
    path = "/text/format"
    if value is None:
        return None
    if type(value) is not dict:
        raise wrong_type(path, "an object", value)
    kind = value.get("type")
    if kind == "text":
        return None
    if kind == "json_object":
        return ResponseFormat(extra=extra_of(value, wire.FORMAT), path=path)
    if kind != "json_schema":
        raise invalid(f"{path}/type", "text, json_schema or json_object")
    if type(value.get("schema")) is not dict:
        raise wrong_type(f"{path}/schema", "an object", value.get("schema"))
    return ResponseFormat(
        schema=value["schema"],
        name=optional(value, path, "name"),
        description=optional(value, path, "description"),
        strict=value.get("strict"),
        extra=extra_of(value, wire.FORMAT),
        path=path,
    )


def _read_reasoning(value: JSONObject | None) -> ReasoningConfig | None:
    if value is None:
        return None
    # `generate_summary` is the old name of `summary`.
    summary = value.get("summary")
    shows = summary is not None or value.get("generate_summary") is not None
    extra = extra_of(value, wire.REASONING_CONFIG) or {}
    if summary not in (None, "auto"):
        extra["summary"] = summary  # how long the summary shall be
    return ReasoningConfig(
        effort=optional(value, "/reasoning", "effort"),
        show="summarized" if shows else None,
        extra=extra or None,
        path="/reasoning",
    )


def _read_input(
    body: JSONObject,
    sealer: Sealer,
    messages: list[Message],
    tools: list[Tool],
    namespaces: list[Namespace],
) -> None:
    value = body.get("input")
    if type(value) is str:
        messages.append(Message("user", (Text(value, path="/input"),), "/input"))
        return
    if value is None:
        if not any(body.get(name) for name in ("previous_response_id", "conversation", "prompt")):
            raise missing("/input")
        return
    if type(value) is not list:
        raise wrong_type("/input", "a string or an array", value)
    for index, item in enumerate(value):
        path = _PATHS[index] if index < len(_PATHS) else f"/input/{index}"
        if type(item) is not dict:
            raise wrong_type(path, "an object", item)
        kind = item.get("type")
        if kind == "message" or kind is None:
            messages.append(_read_message(item, path))
            continue
        if type(kind) is not str:
            raise wrong_type(f"{path}/type", "a string", kind)
        read = _ITEMS.get(kind)
        if read is not None:
            messages.append(read(item, path, sealer))
            continue
        if kind == "additional_tools":
            # "additional_tools" declares tools in mid-conversation; for everybody else they are tools.
            tools += read_tools(item.get("tools") or [], f"{path}/tools", namespaces)
            left = extra_of(item, wire.ADDITIONAL_TOOLS)
            if left:
                messages.append(Message("user", (), path, extra=left))
        else:
            messages.append(_opaque_item(kind, item, path))


def _read_message(item: JSONObject, path: str) -> Message:
    role = item.get("role")
    if type(role) is not str or role not in tables.ROLES:
        if role is None:
            raise missing(f"{path}/role")
        raise invalid(f"{path}/role", "user, assistant, system or developer")
    content = item.get("content")
    parts: tuple[Part, ...]
    if type(content) is str:
        parts = (Text(content, None, None, None, path + "/content"),)
    elif type(content) is list:
        parts = _read_parts(content, path + "/content")
    elif content is None:
        raise missing(f"{path}/content")
    else:
        raise wrong_type(f"{path}/content", "a string or an array", content)
    if len(item) == 2 or (len(item) == 3 and "type" in item):  # the commonest shape: role and content alone
        return Message(role, parts, path)
    return Message(
        role,
        parts,
        path,
        phase=optional(item, path, "phase"),
        item_id=optional(item, path, "id"),
        extra=extra_of(item, wire.MESSAGE),
    )


def _read_parts(content: list[JSON], path: str) -> tuple[Part, ...]:
    if len(content) == 1:  # as nearly always
        return (_read_part(content[0], path + "/0"),)
    return tuple([_read_part(part, f"{path}/{index}") for index, part in enumerate(content)])


def _read_part(part: JSON, path: str) -> Part:
    if type(part) is not dict:
        raise wrong_type(path, "an object", part)
    kind = part.get("type")
    if type(kind) is not str:
        raise missing(f"{path}/type") if kind is None else wrong_type(f"{path}/type", "a string", kind)
    if kind in _TEXT_PARTS:
        text = part.get("text")
        if type(text) is not str:
            at = f"{path}/text"
            raise missing(at) if text is None else wrong_type(at, "a string", text)
        if len(part) == 2:
            return Text(text, None, None, None, path)
        if len(part) == 3 and "annotations" in part:  # what servers answer and clients send back
            return Text(text, None, part["annotations"] or None, None, path)
        return _read_text(text, part, path)
    if kind == "input_image":
        return _read_image(part, path)
    if kind == "input_file":
        return _read_file(part, path)
    if kind == "refusal" and type(part.get("refusal")) is str:
        return Refusal(part["refusal"], extra_of(part, wire.REFUSAL), path)
    return OpaquePart(ORIGIN, kind, part, path)


def _read_text(text: str, part: JSONObject, path: str) -> Text:
    mark, extra = _read_mark(part, path, wire.OUTPUT_TEXT)
    if extra and not extra.get("logprobs", True):
        extra = {
            name: value for name, value in extra.items() if name != "logprobs"
        } or None  # empty: says nothing
    return Text(text, mark, part.get("annotations") or None, extra, path)


def _read_mark(
    part: JSONObject, path: str, known: frozenset[str]
) -> tuple[CacheMark | None, JSONObject | None]:
    """The cache mark, and the fields beside the known ones. A mark that says more is among those, whole."""
    extra = extra_of(part, known)
    mark = part.get("prompt_cache_breakpoint")
    if type(mark) is not dict:
        return None, extra
    ttl = text_of(mark.get("ttl")) or ""
    if mark not in tables.PLAIN_MARKS:
        extra = {**(extra or {}), "prompt_cache_breakpoint": mark}
    return CacheMark(f"{path}/prompt_cache_breakpoint", tables.CACHE_TTL.get(ttl)), extra


def _read_image(part: JSONObject, path: str) -> Media:
    url = part.get("image_url")
    detail = optional(part, path, "detail")
    mark, extra = _read_mark(part, path, wire.INPUT_IMAGE)
    if type(url) is str:
        media_type, data = split_data_uri(url)
        if data is not None:
            return Media(
                "image", "base64", data, media_type, detail=detail, cache=mark, extra=extra, path=path
            )
        return Media("image", "url", url, detail=detail, cache=mark, extra=extra, path=path)
    file_id = part.get("file_id")
    if type(file_id) is str:
        return Media("image", "file_id", file_id, detail=detail, cache=mark, extra=extra, path=path)
    raise RemoteProtocolError(
        f"{dotted(path)} needs image_url or file_id, a string", path=path, code="missing_required_parameter"
    )


def _read_file(part: JSONObject, path: str) -> Media:
    name = optional(part, path, "filename")
    detail = optional(part, path, "detail")
    mark, extra = _read_mark(part, path, wire.INPUT_FILE)
    data = part.get("file_data")
    if type(data) is str:
        media_type, encoded = split_data_uri(data)
        bare = data if encoded is None else encoded
        return Media("file", "base64", bare, media_type, name, detail, cache=mark, extra=extra, path=path)
    for field in ("file_url", "file_id"):
        value = part.get(field)
        if type(value) is str:
            source = "url" if field == "file_url" else "file_id"
            return Media(
                "file",
                source,  # type: ignore[arg-type]
                value,
                filename=name,
                detail=detail,
                cache=mark,
                extra=extra,
                path=path,
            )
    raise RemoteProtocolError(
        f"{dotted(path)} needs file_data, file_url or file_id, a string",
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


def _read_call(item: JSONObject, path: str, sealer: Sealer) -> Message:
    custom = item["type"] == "custom_tool_call"
    field = "input" if custom else "arguments"
    text = item.get(field)
    if len(item) == 4 and type(text) is str:
        # Nearly all of them: type, call_id, name and the text alone.
        call_id, name = item.get("call_id"), item.get("name")
        if type(call_id) is str and call_id and type(name) is str and name:
            kind = _CUSTOM if custom else _FUNCTION
            call = ToolCall(call_id, name, text, kind, None, None, None, None, path)
            return Message("assistant", (call,), path)
    if type(text) is not str:
        # Some clients send the arguments as an object, or none at all for a tool without parameters.
        text = "" if text is None else encode_text(text)
    call = ToolCall(
        required(item, path, "call_id"),
        required(item, path, "name"),
        text,
        _CUSTOM if custom else _FUNCTION,
        optional(item, path, "namespace"),
        optional(item, path, "id"),
        None,
        extra_of(item, wire.CUSTOM_CALL if custom else wire.FUNCTION_CALL),
        path,
    )
    return Message("assistant", (call,), path)


def _read_result(item: JSONObject, path: str, sealer: Sealer) -> Message:
    output = item.get("output")
    where = f"{path}/output"
    parts: tuple[Part, ...]
    if type(output) is str:
        parts = (Text(output, None, None, None, where),)
    elif type(output) is list:
        parts = tuple(
            [
                # No tool can refuse: such a part is kept as it is, and its words go on as text.
                OpaquePart(wire.ORIGIN, "refusal", raw, part.path, part.text)
                if type(part) is Refusal
                else part
                for part, raw in zip(_read_parts(output, where), output, strict=True)
            ]
        )
    elif output is None:
        raise missing(where)
    else:
        raise wrong_type(where, "a string or an array", output)
    plain = len(item) == 3  # type, call_id and output alone, as nearly all are
    result = ToolResult(
        required(item, path, "call_id"),
        cast("tuple[Text | Media | OpaquePart, ...]", parts),
        _CUSTOM if item["type"] == "custom_tool_call_output" else _FUNCTION,
        None,
        None if plain else optional(item, path, "id"),
        None,
        None if plain else extra_of(item, wire.CALL_OUTPUT),
        path,
    )
    return Message("user", (result,), path)


def _read_thought(item: JSONObject, path: str, sealer: Sealer) -> Message:
    parts = objects_of(item.get("summary")) or objects_of(item.get("content"))
    text = "\n\n".join([part["text"] for part in parts if type(part.get("text")) is str])
    sealed = item.get("encrypted_content")
    seal: Seal | None
    if type(sealed) is str and sealer.is_wrapped(sealed):
        seal = sealer.unwrap(sealed)  # None when it is forged or damaged: then it is only text
    else:
        seal = Seal(ORIGIN, item)
    thought = Thought(text, seal, optional(item, path, "id"), extra_of(item, wire.REASONING), path)
    return Message("assistant", (thought,), path)


def _opaque_item(kind: str, item: JSONObject, path: str) -> Message:
    role: Role = "user" if kind.endswith("_output") or kind in tables.USER_ITEMS else "assistant"
    return Message(role, (OpaquePart(ORIGIN, kind, item, path),), path)


_ITEMS = {
    "function_call": _read_call,
    "custom_tool_call": _read_call,
    "function_call_output": _read_result,
    "custom_tool_call_output": _read_result,
    "reasoning": _read_thought,
}
