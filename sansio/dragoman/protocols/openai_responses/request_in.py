"""Read a client's Responses request.

Settings are read by tables, items and tools by their own modules. Input items may also change settings and declare
tools; the last ones count. A body in a form of other APIs whose meaning is plain is repaired first, so that readers
have one form: functions in their own object, as in Chat Completions, and calls with an `id` and no `call_id`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from dragoman._ir.losses import Loss, LossCode
from dragoman._ir.request import Message, Param, ReasoningConfig, Request, ResponseFormat, Text
from dragoman._ir.shape import OBJECT, STRING, extra_members, read_members
from dragoman._ir.tools import Namespace
from dragoman._ir.wrapped_signatures import Signer
from dragoman._wire.json import JSON, JSONObject, invalid_value, wrong_type
from dragoman.protocols._openai.settings import INCLUDE_LOGPROBS
from dragoman.protocols.openai_responses.checks import CHECKS, missing_field
from dragoman.protocols.openai_responses.request_messages_in import InputReader
from dragoman.protocols.openai_responses.shapes import (
    DEFINED_MEMBERS,
    FORMAT_SHAPE,
    REASONING_SHAPE,
    REQUEST_SHAPE,
    SETTING_PATHS,
)
from dragoman.protocols.openai_responses.tables import (
    CALL_ITEMS,
    IMPLIED_INCLUDES,
    NAME,
    NO_OP_VALUES,
    SUMMARY_NAMES,
)
from dragoman.protocols.openai_responses.tools import read_tool_choice, read_tools

# Members that are no plain settings, and that few requests have.
_SPECIAL = frozenset(("parallel_tool_calls", "reasoning", "text", "tool_choice"))


def read_request(body: JSONObject, signer: Signer) -> Request:
    """Read a decoded body.

    Raises RemoteProtocolError (400) with the path of the wrong value.
    """
    model: str = CHECKS.required(body, "model", "", STRING)
    if not model:
        raise wrong_type("/model", STRING.name, model)
    repairs = _repair_request(body)
    params, extra = read_members(body, REQUEST_SHAPE, CHECKS.wrong_type)
    namespaces: list[Namespace] = []
    tools = read_tools(body["tools"], "/tools", namespaces) if body.get("tools") else []
    reader = InputReader(signer, tools, namespaces)
    instructions = body.get("instructions")
    if instructions:
        text = Text(instructions, path="/instructions")
        reader.messages.append(Message("system", (text,), "/instructions"))
    _read_input(body, reader)
    if "include" in body:
        _read_include(body["include"], params)
    for name in filter(params.__contains__, NO_OP_VALUES):
        if params[name] == NO_OP_VALUES[name]:
            del params[name]
    paths = SETTING_PATHS
    if reader.reference is not None and "previous_response_id" not in params:
        # A reference means the same: part of the conversation is only in the vendor's store.
        params["previous_response_id"], place = reader.reference
        paths = {**paths, "previous_response_id": place}
    fields: dict[str, Any] = {}
    if reader.effort is not None or reader.format is not None or not _SPECIAL.isdisjoint(body):
        fields = {
            "tool_choice": read_tool_choice(body.get("tool_choice"), reader.tools, extra),
            "parallel_tool_calls": body.get("parallel_tool_calls"),
            "reasoning": _read_reasoning(body.get("reasoning"), reader.effort),
            "response_format": _latest_format(body, reader.format, extra),
        }
    return Request(
        protocol=NAME,
        model=model,
        messages=tuple(reader.messages),
        tools=tuple(reader.tools),
        namespaces=tuple(namespaces),
        stream=body.get("stream") is True,
        params=params,
        param_paths=paths,
        extra=extra or None,
        compact=reader.compact,
        repairs=(*repairs, *reader.repairs),
        defined=DEFINED_MEMBERS,
        **fields,
    )


def _read_input(body: JSONObject, reader: InputReader) -> None:
    value = body.get("input")
    if type(value) is list:
        reader.read(value)
    elif type(value) is str:
        reader.messages.append(Message("user", (Text(value, path="/input"),), "/input"))
    elif value is not None:
        raise wrong_type("/input", "a string or an array", value)
    elif not any(body.get(name) for name in ("previous_response_id", "conversation", "prompt")):
        raise missing_field("/input")


def _read_include(include: list[JSON] | None, params: dict[Param, JSON]) -> None:
    for index, name in enumerate(include or ()):
        if type(name) is not str:
            raise wrong_type(f"/include/{index}", STRING.name, name)
    if include:
        if INCLUDE_LOGPROBS in include:
            params["logprobs"] = True
        if not IMPLIED_INCLUDES.issuperset(include):
            params["include"] = include


def _latest_format(
    body: JSONObject, later: tuple[JSON, str] | None, extra: JSONObject
) -> ResponseFormat | None:
    """Return the text format in force, which an input item may have changed. A first one that differs goes into
    `extra`.
    """
    first = (body.get("text") or {}).get("format")
    if type(first) is dict and first.get("type") == "text" and len(first) > 1:
        extra.setdefault("text", {})["format"] = first
    if later is None:
        return _read_format(first, "/text/format")
    read = _read_format(*later)
    if first in (None, later[0], {"type": "text"}):
        return read
    if read is None or type(first) is not dict:
        extra.setdefault("text", {})["format"] = first
        return read
    return msgspec.structs.replace(read, path="/text/format", extra={**(read.extra or {}), **first})


def _read_format(value: JSON, path: str) -> ResponseFormat | None:
    if value is None:
        return None
    if type(value) is not dict:
        raise wrong_type(path, OBJECT.name, value)
    kind = value.get("type")
    if kind == "text":
        return None
    extra = extra_members(value, FORMAT_SHAPE)
    if kind == "json_object":
        return ResponseFormat(extra=extra, path=path)
    if kind != "json_schema":
        raise invalid_value(f"{path}/type", "text, json_schema or json_object")
    return ResponseFormat(
        schema=CHECKS.required(value, "schema", path, OBJECT),
        name=CHECKS.optional(value, "name", path, STRING) or None,
        description=CHECKS.optional(value, "description", path, STRING) or None,
        strict=value.get("strict"),
        extra=extra,
        path=path,
    )


def _read_reasoning(value: JSONObject | None, later: tuple[str, str] | None) -> ReasoningConfig | None:
    """Return the reasoning settings. `later` is an effort that an input item has set, and its path."""
    if value is None:
        if later is None:
            return None
        return ReasoningConfig(effort=later[0], path="/reasoning", effort_path=later[1])
    summary_name = next((name for name in SUMMARY_NAMES if value.get(name) is not None), None)
    extra = extra_members(value, REASONING_SHAPE) or {}
    effort = CHECKS.optional(value, "effort", "/reasoning", STRING) or None
    effort_path = "/reasoning/effort"
    if later is not None:
        if effort not in (None, later[0]):
            extra["effort"] = effort  # replaced by the later one
        effort, effort_path = later
    return ReasoningConfig(
        effort=effort,
        display=None if summary_name is None else "summarized",
        extra=extra or None,
        path="/reasoning",
        effort_path=effort_path,
        display_path="" if summary_name is None else f"/reasoning/{summary_name}",
    )


_NESTED = "in the form of Chat Completions: it was converted"


def _repair_request(body: JSONObject) -> tuple[Loss, ...]:
    """Repair known mistakes in the body. Return the repairs."""
    repairs: list[Loss] = []
    for name in filter(body.__contains__, _REPAIRS):
        body[name] = _REPAIRS[name](body[name], repairs)
    return tuple(repairs)


def _flat_tools(tools: JSON, repairs: list[Loss]) -> JSON:
    if type(tools) is not list or not any(map(_is_nested, tools)):
        return tools
    flat: list[JSON] = []
    for index, tool in enumerate(tools):
        if _is_nested(tool):
            repairs.append(Loss(LossCode.REPAIRED, f"/tools/{index}", _NESTED))
            tool = {"strict": False, **_flat(tool)}  # the default in Chat Completions, see tools.py
        flat.append(tool)
    return flat


def _is_nested(tool: JSON) -> bool:
    return (
        type(tool) is dict
        and tool.get("type") == "function"
        and "name" not in tool
        and type(tool.get("function")) is dict
    )


def _flat(tool: JSONObject) -> JSONObject:
    around = {name: value for name, value in tool.items() if name != "function"}
    return {**tool["function"], **around}


def _flat_choice(choice: JSON, repairs: list[Loss]) -> JSON:
    if _is_nested(choice):
        repairs.append(Loss(LossCode.REPAIRED, "/tool_choice", _NESTED))
        return _flat(choice)
    if type(choice) is dict and choice.get("type") == "allowed_tools":
        inner = choice.get("allowed_tools")
        if "tools" not in choice and type(inner) is dict and type(inner.get("tools")) is list:
            repairs.append(Loss(LossCode.REPAIRED, "/tool_choice", _NESTED))
            return {
                "type": "allowed_tools",
                **inner,
                "tools": [_flat(ref) if _is_nested(ref) else ref for ref in inner["tools"]],
            }
    return choice


def _calls_with_ids(items: JSON, repairs: list[Loss]) -> JSON:
    """Return the items, where a call without `call_id` gets its `id` as such if a result names it."""
    if type(items) is not list:
        return items
    # Nearly all items have no id, or a call_id, or are messages.
    others = [
        item
        for item in items
        if type(item) is dict
        and "id" in item
        and item.get("call_id") is None
        and item.get("type") != "message"
    ]
    if not any(map(_lacks_call_id, others)):
        return items
    result_ids = {
        item.get("call_id")
        for item in items
        if type(item) is dict and not _is_call(item) and type(item.get("call_id")) is str
    }
    named: list[JSON] = []
    for index, item in enumerate(items):
        if _lacks_call_id(item) and item["id"] in result_ids:
            repairs.append(Loss(LossCode.REPAIRED, f"/input/{index}", "its id was read as its call_id"))
            item = {
                "call_id" if name == "id" else name: value
                for name, value in item.items()
                if name != "call_id"
            }
        named.append(item)
    return named


def _lacks_call_id(item: JSON) -> bool:
    return (
        type(item) is dict and item.get("call_id") is None and _is_call(item) and type(item.get("id")) is str
    )


def _is_call(item: JSONObject) -> bool:
    kind = item.get("type")
    return type(kind) is str and kind in CALL_ITEMS


_REPAIRS: dict[str, Callable[[JSON, list[Loss]], JSON]] = {
    "tools": _flat_tools,
    "tool_choice": _flat_choice,
    "input": _calls_with_ids,
}
