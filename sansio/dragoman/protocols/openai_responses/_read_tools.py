"""A client's tools and tool choice -> the IR.

Strategy: functions and custom tools are typed, namespaces are taken apart, and everything that the provider
runs or whose schema it implies stays whole.
"""

from __future__ import annotations

from ..._events import ToolKind
from ..._json import JSON, JSONObject
from ..._request import CustomTool, FunctionTool, Grammar, HostedTool, Tool, ToolChoice
from . import _wire as wire
from ._common import extra_of, invalid, missing, required, wrong_type
from ._wire import ORIGIN

_CALLABLE = {"function": ToolKind.FUNCTION, "custom": ToolKind.CUSTOM}


def read_tools(tools: list[JSON], path: str, namespace: str | None = None) -> list[Tool]:
    """The tools of a list, those of namespaces in place."""
    if type(tools) is not list:
        raise wrong_type(path, "an array", tools)
    found: list[Tool] = []
    for index, tool in enumerate(tools):
        where = f"{path}/{index}"
        if type(tool) is not dict:
            raise wrong_type(where, "an object", tool)
        kind = required(tool, where, "type")
        if kind == "function":
            found.append(_read_function(tool, where, namespace))
        elif kind == "custom":
            found.append(_read_custom(tool, where, namespace))
        elif kind == "namespace" and _holds_only_callables(tool):
            found += read_tools(tool["tools"], f"{where}/tools", required(tool, where, "name"))
        else:
            found.append(HostedTool(ORIGIN, kind, tool, where))
    return found


def _holds_only_callables(tool: JSONObject) -> bool:
    """An empty namespace, or one that holds what only the provider knows, has no form but its own."""
    inner = tool.get("tools")
    return (
        bool(inner)
        and type(inner) is list
        and all(type(t) is dict and t.get("type") in _CALLABLE for t in inner)
    )


def _read_function(tool: JSONObject, path: str, namespace: str | None) -> FunctionTool:
    return FunctionTool(
        required(tool, path, "name"),
        tool.get("description"),
        tool.get("parameters"),
        tool.get("strict"),
        namespace,
        extra=extra_of(tool, wire.FUNCTION_TOOL),
        path=path,
    )


def _read_custom(tool: JSONObject, path: str, namespace: str | None) -> CustomTool:
    form = tool.get("format")
    grammar = None
    if type(form) is dict and form.get("type") == "grammar":
        where = f"{path}/format"
        grammar = Grammar(required(form, where, "syntax"), required(form, where, "definition"))
    return CustomTool(
        required(tool, path, "name"),
        tool.get("description"),
        grammar,
        namespace,
        extra=extra_of(tool, wire.CUSTOM_TOOL),
        path=path,
    )


def read_choice(value: JSON, extra: JSONObject) -> ToolChoice | None:
    """The tool choice.

    A choice of a tool that the provider runs has no form in the IR: it goes into `extra`, the request's unknown
    fields, where the same protocol prints it again and everybody else enters it in the ledger.
    """
    path = "/tool_choice"
    if value is None:
        return None
    if value in ("auto", "none", "required"):
        return ToolChoice(value, path=path)
    if type(value) is not dict:
        raise invalid(path, "auto, none, required or an object")
    kind = required(value, path, "type")
    if kind in _CALLABLE:
        name = required(value, path, "name")
        return ToolChoice("named", name, _CALLABLE[kind], value.get("namespace"), path=path)
    if kind != "allowed_tools":
        extra["tool_choice"] = value
        return None
    refs = value.get("tools")
    if type(refs) is not list:
        raise missing(f"{path}/tools") if refs is None else wrong_type(f"{path}/tools", "an array", refs)
    names = [
        ref["name"] for ref in refs if type(ref) is dict and ref.get("type") in _CALLABLE and ref.get("name")
    ]
    if len(names) < len(refs):
        extra["tool_choice"] = value
    return ToolChoice("allowed", allowed=tuple(names), required=value.get("mode") == "required", path=path)
