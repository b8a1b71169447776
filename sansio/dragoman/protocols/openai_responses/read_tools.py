"""A client's tools and tool choice -> the IR.

Strategy: functions and custom tools are typed, namespaces are taken apart, and everything that the provider
runs or whose schema it implies stays whole, with what it is for where others may have the same, or with a function
that can stand in for it.
"""

from __future__ import annotations

from dragoman._ir.events import ToolKind
from dragoman._ir.request import (
    CodeExecution,
    CustomTool,
    FunctionTool,
    Grammar,
    HostedTool,
    McpServer,
    Namespace,
    Tool,
    ToolChoice,
    ToolRef,
    WebSearch,
)
from dragoman._wire.json import JSON, JSONObject
from dragoman.protocols.openai_responses import tables, wire
from dragoman.protocols.openai_responses.client_tools import COMPUTERS, stand_in
from dragoman.protocols.openai_responses.common import (
    extra_of,
    invalid,
    missing,
    optional,
    required,
    text_of,
    wrong_type,
)
from dragoman.protocols.openai_responses.wire import ORIGIN

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
            found.append(HostedTool(ORIGIN, kind, tool, where, _use(kind, tool), stand_in(kind, tool, where)))
    return found


def _use(kind: str, tool: JSONObject) -> WebSearch | CodeExecution | McpServer | None:
    """What a tool that the provider runs is for, where others may have the same."""
    if kind in tables.WEB_SEARCHES:
        return _web_search(tool)
    if kind == "code_interpreter":
        return CodeExecution()
    return _mcp_server(tool) if kind == "mcp" else None


def _web_search(tool: JSONObject) -> WebSearch:
    filters, location = tool.get("filters"), tool.get("user_location")
    domains = _names(filters.get("allowed_domains")) if type(filters) is dict else None
    return WebSearch(
        allowed_domains=domains,
        location=location if type(location) is dict else None,
        context_size=text_of(tool.get("search_context_size")),
    )


def _mcp_server(tool: JSONObject) -> McpServer | None:
    """The server, None where others would do more with it than the client allows, or cannot reach it."""
    label, url = text_of(tool.get("server_label")), text_of(tool.get("server_url"))
    allowed = tool.get("allowed_tools")
    if type(allowed) is dict and allowed.keys() == {"tool_names"}:
        allowed = allowed["tool_names"]
    names = _names(allowed)
    if label is None or url is None or (allowed is not None and names is None):
        return None
    # "require_approval: always" is the default, and only this vendor asks before it calls.
    if tool.get("require_approval") != "never" or tool.get("headers"):
        return None
    return McpServer(label, url, text_of(tool.get("authorization")), names)


def _names(value: JSON) -> tuple[str, ...] | None:
    return tuple(value) if type(value) is list and all(type(each) is str for each in value) else None


def _holds_only_callables(tool: JSONObject) -> bool:
    """An empty namespace, or one that holds what only the provider knows, has no form but its own."""
    inner = tool.get("tools")
    return bool(inner) and type(inner) is list and all(map(_is_callable, inner))


def _is_callable(tool: JSON) -> bool:
    return type(tool) is dict and text_of(tool.get("type")) in _CALLABLE


def _read_function(tool: JSONObject, path: str, namespace: str | None) -> FunctionTool:
    deferred = tool.get("defer_loading")
    return FunctionTool(
        required(tool, path, "name"),
        optional(tool, path, "description"),
        tool.get("parameters"),
        tool.get("strict"),
        namespace,
        extra=_extra(tool, wire.FUNCTION_TOOL),
        path=path,
        deferred=deferred if type(deferred) is bool else None,
    )


def _extra(tool: JSONObject, known: frozenset[str]) -> JSONObject | None:
    """What a tool says beyond the known. That the model itself may call it goes without saying."""
    extra = extra_of(tool, known)
    if extra and extra.get("allowed_callers", False) in (None, ["direct"]):
        del extra["allowed_callers"]
    return extra or None


def _read_custom(tool: JSONObject, path: str, namespace: str | None) -> CustomTool:
    form = tool.get("format")
    grammar = None
    if type(form) is dict and form.get("type") == "grammar":
        where = f"{path}/format"
        grammar = Grammar(required(form, where, "syntax"), required(form, where, "definition"))
    extra = _extra(tool, wire.CUSTOM_TOOL)
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


def read_choice(value: JSON, tools: list[Tool], extra: JSONObject) -> ToolChoice | None:
    """The tool choice. One that says more than its form has room for is also put into `extra`, whole."""
    path = "/tool_choice"
    if value is None:
        return None
    if value in ("auto", "none", "required"):
        return ToolChoice(value, path=path)
    if type(value) is not dict:
        raise invalid(path, "auto, none, required or an object")
    kind = required(value, path, "type")
    if kind != "allowed_tools":
        ref = _read_ref(value, path, tools, extra)
        return ToolChoice("named", ref.name or None, ref.kind, ref.namespace, path=path, hosted=ref.hosted)
    refs = value.get("tools")
    if type(refs) is not list:
        raise missing(f"{path}/tools") if refs is None else wrong_type(f"{path}/tools", "an array", refs)
    left: JSONObject = {}
    allowed = [_read_ref(ref, f"{path}/tools/{index}", tools, left) for index, ref in enumerate(refs)]
    plain = value.keys() <= {"type", "mode", "tools"} and value.get("mode", "auto") in ("auto", "required")
    if left or not plain:
        extra["tool_choice"] = value
    return ToolChoice("allowed", allowed=tuple(allowed), required=value.get("mode") == "required", path=path)


def _read_ref(ref: JSON, path: str, tools: list[Tool], extra: JSONObject) -> ToolRef:
    """A reference to one tool. One that says more is put into `extra`."""
    if type(ref) is not dict:
        raise wrong_type(path, "an object", ref)
    kind = required(ref, path, "type")
    if kind in _CALLABLE:
        if not ref.keys() <= _REFERENCE:
            extra["tool_choice"] = ref
        return ToolRef(required(ref, path, "name"), optional(ref, path, "namespace"), _CALLABLE[kind])
    if not ref.keys() <= {"type", "server_label"}:
        extra["tool_choice"] = ref
    # Several names may stand for the same tool: `computer_use`, and the dated ones of the web search.
    family = next((each for each in _FAMILIES if kind in each), frozenset((kind,)))
    declared = [tool.kind for tool in tools if isinstance(tool, HostedTool) and tool.kind in family]
    hosted = kind if kind in declared or not declared else declared[0]
    return ToolRef(text_of(ref.get("server_label")) or "", hosted=hosted)


_FAMILIES = (tables.WEB_SEARCHES, COMPUTERS | {"computer_use"})

# What a choice of one tool says; an allowed one has no namespace of its own.
_REFERENCE = frozenset(("type", "name", "namespace"))
