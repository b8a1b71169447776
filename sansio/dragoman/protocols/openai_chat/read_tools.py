"""The tools of a request, and which of them the model may or must call.

Strategy: official tools have types of ours; the setting that stands for a web search is a tool like any other, and
tools of unknown types are kept as they came. What says more than its type has room for stays beside it as `extra`.
"""

from __future__ import annotations

from collections.abc import Sequence

from dragoman._ir.events import ToolKind
from dragoman._ir.request import (
    CustomTool,
    FunctionTool,
    Grammar,
    HostedTool,
    Tool,
    ToolChoice,
    ToolRef,
    WebSearch,
)
from dragoman._wire.exceptions import RemoteProtocolError, dotted
from dragoman._wire.json import JSON, JSONObject
from dragoman.protocols.openai_chat import wire
from dragoman.protocols.openai_chat.checks import marked, nested, optional_text, text_of, wrong
from dragoman.protocols.openai_chat.tables import NAME, WEB_SEARCH

_PLACE = tuple(wire.Place.__annotations__)

# Modes of tool_choice, with the words of other protocols that clients use here.
_CHOICES = {"auto": "auto", "none": "none", "required": "required", "any": "required"}


def read_tools(body: JSONObject, extra: JSONObject) -> tuple[tuple[Tool, ...], ToolChoice | None]:
    """The tools and the choice. A choice that says more than its form has room for goes into `extra`, too."""
    tools: list[Tool] = []
    for field, legacy in (("tools", False), ("functions", True)):
        items = body.get(field)
        if items is not None and type(items) is not list:
            raise wrong(f"/{field}", "an array", items)
        for index, item in enumerate(items or ()):
            path = f"/{field}/{index}"
            if type(item) is not dict:
                raise wrong(path, "an object", item)
            tools.append(_legacy_tool(item, path) if legacy else _tool(item, path))
    if body.get(WEB_SEARCH) is not None:
        tools.append(_web_search(body[WEB_SEARCH], extra))
    choice = _tool_choice(body.get("tool_choice"), "/tool_choice", tools)
    if type(body.get("tool_choice")) is dict and not _is_plain_choice(body["tool_choice"]):
        extra["tool_choice"] = body["tool_choice"]
    legacy_choice = body.get("function_call")
    if legacy_choice is not None:
        if type(legacy_choice) is dict:
            called = {"type": "function", "function": legacy_choice}
        if choice is not None or (type(legacy_choice) is dict and not _is_plain_choice(called)):
            extra["function_call"] = legacy_choice  # it says more, or the newer name wins
        if choice is None:
            said = called if type(legacy_choice) is dict else legacy_choice
            choice = _tool_choice(said, "/function_call", tools)
    return tuple(tools), choice


def _tool(tool: JSONObject, path: str) -> Tool:
    kind = tool.get("type", "function")
    if kind == "function":
        return _function_tool(tool, path)
    if kind == "custom":
        return _custom_tool(tool, path)
    return HostedTool(NAME, str(kind), tool, path)


def _legacy_tool(function: JSONObject, path: str) -> FunctionTool:
    return FunctionTool(
        text_of(function.get("name"), f"{path}/name"),
        optional_text(function, "description", path),
        function.get("parameters"),
        function.get("strict"),
        extra=wire.unknown(function, wire.KNOWN_FUNCTION_DEFINITION),
        path=path,
    )


def _function_tool(tool: JSONObject, path: str) -> FunctionTool:
    function = tool.get("function")
    if type(function) is not dict:
        raise wrong(f"{path}/function", "an object", function)
    cache, extra = marked(tool, path, wire.KNOWN_TOOL)
    return FunctionTool(
        text_of(function.get("name"), f"{path}/function/name"),
        optional_text(function, "description", f"{path}/function"),
        function.get("parameters"),
        function.get("strict"),
        cache=cache,
        extra=nested(extra, "function", wire.unknown(function, wire.KNOWN_FUNCTION_DEFINITION)),
        path=path,
    )


def _custom_tool(tool: JSONObject, path: str) -> CustomTool:
    custom = tool.get("custom")
    if type(custom) is not dict:
        raise wrong(f"{path}/custom", "an object", custom)
    # A grammar is nested one deeper than in Responses: {type: grammar, grammar: {definition, syntax}}.
    form = custom.get("format")
    grammar = form.get("grammar") if type(form) is dict and form.get("type") == "grammar" else None
    at = f"{path}/custom/format/grammar"
    cache, extra = marked(tool, path, wire.KNOWN_TOOL)
    unknown = wire.unknown(custom, wire.KNOWN_CUSTOM_DEFINITION)
    if form is not None and not _is_plain_format(form):
        unknown = {**(unknown or {}), "format": form}
    return CustomTool(
        text_of(custom.get("name"), f"{path}/custom/name"),
        optional_text(custom, "description", f"{path}/custom"),
        Grammar(
            text_of(grammar.get("syntax"), f"{at}/syntax"),
            text_of(grammar.get("definition"), f"{at}/definition"),
        )
        if type(grammar) is dict
        else None,
        cache=cache,
        extra=nested(extra, "custom", unknown),
        path=path,
    )


def _web_search(options: JSON, extra: JSONObject) -> HostedTool:
    """`web_search_options`: the server searches the web. The location is nested one deeper than elsewhere."""
    path = f"/{WEB_SEARCH}"
    if type(options) is not dict:
        raise wrong(path, "an object", options)
    left = wire.unknown(options, wire.KNOWN_WEB_SEARCH)
    location = options.get("user_location")
    place: JSONObject | None = None
    if type(location) is dict:
        unknown = wire.unknown(location, wire.KNOWN_LOCATION) or {}
        if location.get("type") != "approximate":
            unknown["type"] = location.get("type")
        given: JSON = location.get("approximate")
        if type(given) is dict:
            unknown.update(nested(None, "approximate", wire.unknown(given, wire.KNOWN_PLACE)) or {})
            place = {"type": "approximate", **{key: given[key] for key in _PLACE if key in given}}
        elif given is not None:
            unknown["approximate"] = given
        left = nested(left, "user_location", unknown or None)
    elif location is not None:
        left = {**(left or {}), "user_location": location}
    if left is not None:
        extra[WEB_SEARCH] = left
    use = WebSearch(location=place, context_size=options.get("search_context_size"))
    return HostedTool(NAME, WEB_SEARCH, options, path, use)


def _is_plain_format(form: JSON) -> bool:
    """Whether a format says nothing but `text`, or a grammar with its syntax."""
    if type(form) is dict and form.get("type") == "grammar" and type(form.get("grammar")) is dict:
        return form.keys() <= {"type", "grammar"} and form["grammar"].keys() <= {"syntax", "definition"}
    return bool(form == {"type": "text"})


def _tool_choice(choice: JSON, path: str, tools: Sequence[Tool]) -> ToolChoice | None:
    if choice is None:
        return None
    word = choice.get("type") if type(choice) is dict else choice
    mode = _CHOICES.get(word) if type(word) is str else None
    if mode is not None:
        return ToolChoice(mode, path=path)  # type: ignore[arg-type]  # the values of _CHOICES are modes
    if type(choice) is dict:
        if word == "allowed_tools" and type(allowed := choice.get("allowed_tools")) is dict:
            named = allowed.get("tools") or []
            if type(named) is not list:
                raise wrong(f"{path}/allowed_tools/tools", "an array", named)
            refs = tuple(filter(None, map(_ref, named)))
            return ToolChoice("allowed", allowed=refs, required=allowed.get("mode") == "required", path=path)
        ref = _ref(choice)
        if ref is not None:
            return ToolChoice("named", ref.name, ref.kind, path=path)
        if any(isinstance(tool, HostedTool) and tool.kind == word for tool in tools):
            return ToolChoice("named", path=path, hosted=str(word))
    raise RemoteProtocolError(
        f"{dotted(path)} must be auto, none, required, a named tool or allowed_tools",
        path=path,
        code="invalid_value",
    )


def _ref(tool: JSON) -> ToolRef | None:
    name = _reference(tool)
    return ToolRef(name, kind=ToolKind.CUSTOM if "custom" in tool else ToolKind.FUNCTION) if name else None


def _reference(tool: JSON) -> str:
    """The name in a reference to a tool: {type: T, T: {name}}."""
    kind = tool.get("type") if type(tool) is dict else None
    inner = tool.get(kind) if type(kind) is str else None
    name = inner.get("name") if type(inner) is dict else None
    return name if type(name) is str else ""


def _is_plain_choice(choice: JSONObject) -> bool:
    """Whether a choice says no more than ToolChoice holds."""
    if choice.get("type") == "allowed_tools":
        allowed = choice.get("allowed_tools")
        return (
            type(allowed) is dict
            and len(choice) == 2
            and allowed.keys() <= {"mode", "tools"}
            and allowed.get("mode", "auto") in ("auto", "required")
            and all(map(_is_plain_reference, allowed.get("tools") or ()))
        )
    return choice.keys() == {"type"} or _is_plain_reference(choice)


def _is_plain_reference(tool: JSON) -> bool:
    name = _reference(tool)
    return bool(name) and tool in ({"type": kind, kind: {"name": name}} for kind in ("function", "custom"))
