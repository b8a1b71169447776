"""A client's tools and tool choice -> the IR.

Strategy: functions and custom tools are typed, namespaces are taken apart, and everything that the provider
runs or whose schema it implies stays whole.
"""

from __future__ import annotations

from ..._events import ToolKind
from ..._json import JSON, JSONObject
from ..._request import CustomTool, FunctionTool, Grammar, HostedTool, Namespace, Tool, ToolChoice
from . import _wire as wire
from ._common import extra_of, invalid, missing, optional, required, text_of, wrong_type
from ._wire import ORIGIN

_CALLABLE: dict[str | None, ToolKind] = {"function": ToolKind.FUNCTION, "custom": ToolKind.CUSTOM}


def read_tools(
    tools: list[JSON], path: str, namespaces: list[Namespace], namespace: str | None = None
) -> list[Tool]:
    """The tools of a list, those of namespaces in place. What namespaces say is appended to `namespaces`."""
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
            name = required(tool, where, "name")
            description = optional(tool, where, "description")
            namespaces.append(Namespace(description, extra_of(tool, wire.NAMESPACE), where))
            found += read_tools(tool["tools"], f"{where}/tools", namespaces, name)
        else:
            found.append(HostedTool(ORIGIN, kind, tool, where))
    return found


def _holds_only_callables(tool: JSONObject) -> bool:
    """An empty namespace, or one that holds what only the provider knows, has no form but its own."""
    inner = tool.get("tools")
    return bool(inner) and type(inner) is list and all(map(_is_callable, inner))


def _is_callable(tool: JSON) -> bool:
    return type(tool) is dict and text_of(tool.get("type")) in _CALLABLE


def _read_function(tool: JSONObject, path: str, namespace: str | None) -> FunctionTool:
    return FunctionTool(
        required(tool, path, "name"),
        optional(tool, path, "description"),
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
    extra = extra_of(tool, wire.CUSTOM_TOOL)
    plain = {"type"} if grammar is None else {"type", "syntax", "definition"}
    if form is not None and not (type(form) is dict and form.keys() == plain and form["type"] in _FORMATS):
        extra = {**(extra or {}), "format": form}
    return CustomTool(
        required(tool, path, "name"),
        optional(tool, path, "description"),
        grammar,
        namespace,
        extra=extra,
        path=path,
    )


_FORMATS = ("text", "grammar")


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
        if not value.keys() <= _REFERENCE:
            extra["tool_choice"] = value
        return ToolChoice("named", name, _CALLABLE[kind], optional(value, path, "namespace"), path=path)
    if kind != "allowed_tools":
        extra["tool_choice"] = value
        return None
    refs = value.get("tools")
    if type(refs) is not list:
        raise missing(f"{path}/tools") if refs is None else wrong_type(f"{path}/tools", "an array", refs)
    names = [ref["name"] for ref in refs if _is_callable(ref) and text_of(ref.get("name"))]
    plain = value.keys() <= {"type", "mode", "tools"} and value.get("mode", "auto") in ("auto", "required")
    if len(names) < len(refs) or not plain or any(not ref.keys() <= _REFERENCE for ref in refs):
        extra["tool_choice"] = value
    return ToolChoice("allowed", allowed=tuple(names), required=value.get("mode") == "required", path=path)


# What a choice of one tool says; an allowed one has no namespace of its own.
_REFERENCE = frozenset(("type", "name", "namespace"))
