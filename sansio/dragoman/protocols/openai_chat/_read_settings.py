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
from ._checks import mark_of, nested, text_of, wrong
from ._tables import NAME

# Modes of tool_choice, with the words of other protocols that clients use here.
_CHOICES = {"auto": "auto", "none": "none", "required": "required", "any": "required"}


def read_tools(body: JSONObject) -> tuple[tuple[Tool, ...], ToolChoice | None]:
    tools: list[Tool] = []
    for field, legacy in (("tools", False), ("functions", True)):
        items = body.get(field)
        if items is not None and type(items) is not list:
            raise wrong(f"/{field}", "an array", items)
        for index, item in enumerate(items or ()):
            path = f"/{field}/{index}"
            if type(item) is not dict:
                raise wrong(path, "an object", item)
            tools.append(_function_tool({"function": item}, path) if legacy else _tool(item, path))
    choice = _tool_choice(body.get("tool_choice"), "/tool_choice")
    legacy_choice = body.get("function_call")
    if choice is None and legacy_choice is not None:
        if type(legacy_choice) is dict:
            legacy_choice = {"type": "function", "function": legacy_choice}
        choice = _tool_choice(legacy_choice, "/function_call")
    return tuple(tools), choice


def _tool(tool: JSONObject, path: str) -> Tool:
    kind = tool.get("type", "function")
    if kind == "function":
        return _function_tool(tool, path)
    if kind == "custom":
        return _custom_tool(tool, path)
    return HostedTool(NAME, str(kind), tool, path)


def _function_tool(tool: JSONObject, path: str) -> FunctionTool:
    function = tool.get("function")
    if type(function) is not dict:
        raise wrong(f"{path}/function", "an object", function)
    unknown = wire.unknown(function, wire.KNOWN_FUNCTION_DEFINITION)
    return FunctionTool(
        text_of(function.get("name"), f"{path}/function/name"),
        function.get("description"),
        function.get("parameters"),
        function.get("strict"),
        cache=mark_of(tool, path),
        extra=nested(wire.unknown(tool, wire.KNOWN_TOOL), "function", unknown),
        path=path,
    )


def _custom_tool(tool: JSONObject, path: str) -> CustomTool:
    custom = tool.get("custom")
    if type(custom) is not dict:
        raise wrong(f"{path}/custom", "an object", custom)
    # A grammar is nested one deeper than in Responses: {type: grammar, grammar: {definition, syntax}}.
    form = custom.get("format")
    grammar = form.get("grammar") if type(form) is dict else None
    at = f"{path}/custom/format/grammar"
    return CustomTool(
        text_of(custom.get("name"), f"{path}/custom/name"),
        custom.get("description"),
        Grammar(
            text_of(grammar.get("syntax"), f"{at}/syntax"),
            text_of(grammar.get("definition"), f"{at}/definition"),
        )
        if type(grammar) is dict
        else None,
        cache=mark_of(tool, path),
        extra=nested(
            wire.unknown(tool, wire.KNOWN_TOOL), "custom", wire.unknown(custom, wire.KNOWN_CUSTOM_DEFINITION)
        ),
        path=path,
    )


def _tool_choice(choice: JSON, path: str) -> ToolChoice | None:
    if choice is None:
        return None
    word = choice.get("type") if type(choice) is dict else choice
    mode = _CHOICES.get(word) if type(word) is str else None
    if mode is not None:
        return ToolChoice(mode, path=path)  # type: ignore[arg-type]  # the values of _CHOICES are modes
    if type(choice) is dict:
        if word == "allowed_tools" and type(allowed := choice.get("allowed_tools")) is dict:
            names = tuple(map(_reference, allowed.get("tools") or ()))
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
    inner = tool.get(tool.get("type")) if type(tool) is dict else None
    name = inner.get("name") if type(inner) is dict else None
    return name if type(name) is str else ""


def read_reasoning(body: JSONObject) -> ReasoningConfig | None:
    """`reasoning_effort`, or the objects `reasoning` and `thinking` by which compatible servers say more."""
    effort = body.get("reasoning_effort")
    settings = body.get("reasoning")
    thinking = body.get("thinking")
    if effort is None and settings is None and thinking is None:
        return None
    mode: JSON = None
    budget = show = None
    path = "/reasoning_effort"
    if type(settings) is dict:
        path = "/reasoning"
        effort = settings.get("effort") if effort is None else effort
        budget = settings.get("max_tokens")
        mode = "enabled" if budget is not None else "disabled" if settings.get("enabled") is False else None
        show = "omitted" if settings.get("exclude") is True else None
    if type(thinking) is dict:
        path = "/thinking"
        mode = _THINKING.get(str(thinking.get("type")), mode)
        budget = thinking.get("budget_tokens", budget)
    return ReasoningConfig(mode, effort, budget, show, path=path)  # type: ignore[arg-type]  # see above


_THINKING = {"enabled": "enabled", "disabled": "disabled", "adaptive": "adaptive"}


def read_response_format(value: JSON, extra: JSONObject) -> ResponseFormat | None:
    if value is None:
        return None
    if type(value) is not dict:
        raise wrong("/response_format", "an object", value)
    kind = value.get("type")
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
