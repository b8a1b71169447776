"""The tools of a request, and the settings that are more than a name and a value."""

from __future__ import annotations

from dragoman._errors import RemoteProtocolError, dotted
from dragoman._events import ToolKind
from dragoman._json import JSON, JSONObject
from dragoman._request import (
    CustomTool,
    FunctionTool,
    Grammar,
    HostedTool,
    ReasoningConfig,
    ResponseFormat,
    Tool,
    ToolChoice,
)

from . import _wire as wire
from ._checks import marked, nested, text_of, wrong
from ._tables import NAME

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
    choice = _tool_choice(body.get("tool_choice"), "/tool_choice")
    if type(body.get("tool_choice")) is dict and not _is_plain_choice(body["tool_choice"]):
        extra["tool_choice"] = body["tool_choice"]
    legacy_choice = body.get("function_call")
    if legacy_choice is not None:
        if type(legacy_choice) is dict:
            called = {"type": "function", "function": legacy_choice}
        if choice is not None or (type(legacy_choice) is dict and not _is_plain_choice(called)):
            extra["function_call"] = legacy_choice  # it says more, or the newer name wins
        if choice is None:
            choice = _tool_choice(called if type(legacy_choice) is dict else legacy_choice, "/function_call")
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
        function.get("description"),
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
        function.get("description"),
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
        custom.get("description"),
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


def _is_plain_format(form: JSON) -> bool:
    """Whether a format says nothing but `text`, or a grammar with its syntax."""
    if type(form) is dict and form.get("type") == "grammar" and type(form.get("grammar")) is dict:
        return form.keys() <= {"type", "grammar"} and form["grammar"].keys() <= {"syntax", "definition"}
    return bool(form == {"type": "text"})


def _tool_choice(choice: JSON, path: str) -> ToolChoice | None:
    if choice is None:
        return None
    word = choice.get("type") if type(choice) is dict else choice
    mode = _CHOICES.get(word) if type(word) is str else None
    if mode is not None:
        return ToolChoice(mode, path=path)  # type: ignore[arg-type]  # the values of _CHOICES are modes
    if type(choice) is dict:
        if word == "allowed_tools" and type(allowed := choice.get("allowed_tools")) is dict:
            names = tuple(filter(None, map(_reference, allowed.get("tools") or ())))
            return ToolChoice("allowed", allowed=names, required=allowed.get("mode") == "required", path=path)
        name = _reference(choice)
        if name:
            kind = ToolKind.CUSTOM if word == "custom" else ToolKind.FUNCTION
            return ToolChoice("named", name, kind, path=path)
    raise RemoteProtocolError(
        f"{dotted(path)} must be auto, none, required, a named tool or allowed_tools",
        path=path,
        code="invalid_value",
    )


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


def read_reasoning(body: JSONObject, extra: JSONObject) -> ReasoningConfig | None:
    """`reasoning_effort`, or the objects `reasoning` and `thinking` by which compatible servers say more.

    What they say beyond the configuration goes into `extra`.
    """
    effort = body.get("reasoning_effort")
    settings = body.get("reasoning")
    thinking = body.get("thinking")
    if effort is None and settings is None and thinking is None:
        return None
    mode: JSON = None
    budget = show = None
    path = effort_path = "/reasoning_effort"
    if type(settings) is dict:
        path = "/reasoning"
        left = wire.unknown(settings, wire.KNOWN_REASONING) or {}
        if effort is None:
            effort, effort_path = settings.get("effort"), path
        elif settings.get("effort") not in (None, effort):
            left["effort"] = settings["effort"]
        budget = settings.get("max_tokens")
        switch = settings.get("enabled")
        if switch is False:
            mode = "disabled"
        elif budget is not None:
            mode = "enabled"
        elif switch is True:
            mode = "adaptive"
        show = "omitted" if settings.get("exclude") is True else None
        if left:
            extra["reasoning"] = left
    elif settings is not None:
        extra["reasoning"] = settings
    if type(thinking) is dict:
        path = "/thinking"
        left = wire.unknown(thinking, wire.KNOWN_THINKING) or {}
        named = _THINKING.get(str(thinking.get("type")))
        if named is None and thinking.get("type") is not None:
            left["type"] = thinking["type"]
        mode = named or mode
        budget = thinking.get("budget_tokens", budget)
        if left:
            extra["thinking"] = left
    elif thinking is not None:
        extra["thinking"] = thinking
    if effort is not None:
        text_of(effort, effort_path if effort_path == "/reasoning_effort" else f"{effort_path}/effort")
    if budget is not None and type(budget) is not int:
        raise wrong(
            f"{path}/{'budget_tokens' if path == '/thinking' else 'max_tokens'}", "an integer", budget
        )
    if effort is None or effort_path == path:
        effort_path = ""
    return ReasoningConfig(mode, effort, budget, show, path=path, effort_path=effort_path)  # type: ignore[arg-type]  # see above


_THINKING = {"enabled": "enabled", "disabled": "disabled", "adaptive": "adaptive"}


def read_response_format(value: JSON, extra: JSONObject) -> ResponseFormat | None:
    if value is None:
        return None
    if type(value) is not dict:
        raise wrong("/response_format", "an object", value)
    kind = value.get("type")
    left = wire.unknown(value, wire.KNOWN_RESPONSE_FORMAT)
    if left:
        extra["response_format"] = left if kind != "text" else value
    if kind == "json_schema":
        path = "/response_format/json_schema"
        schema = value.get("json_schema")
        if type(schema) is not dict:
            raise wrong(path, "an object", schema)
        return ResponseFormat(
            schema.get("schema") or {},
            schema.get("name"),
            schema.get("description"),
            schema.get("strict"),
            wire.unknown(schema, wire.KNOWN_JSON_SCHEMA),
            path,
        )
    if kind == "json_object":
        return ResponseFormat(path="/response_format")
    if kind != "text":
        extra["response_format"] = value  # a server's own kind, such as a grammar
    return None
