"""Read and write the tools of a request, and the choice among them.

Functions and custom tools have their own types. The setting `web_search_options` is read as a hosted tool, and
written from one. Tools of unknown types are kept as they came. What a tool has beyond the members here
goes into the description if the model can use it, and into the ledger otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence

from dragoman._ir.events import ToolKind
from dragoman._ir.losses import Ledger, child
from dragoman._ir.native import extra_of, written
from dragoman._ir.request import Request
from dragoman._ir.shape import OBJECT, STRING, extra_members
from dragoman._ir.tools import (
    CustomTool,
    FunctionTool,
    Grammar,
    HostedTool,
    Tool,
    ToolChoice,
    ToolRef,
    WebSearch,
)
from dragoman._wire.json import JSON, JSONObject, invalid_value, leaves, wrong_type
from dragoman.protocols.openai_chat.capabilities import ChatCapabilities as Capabilities
from dragoman.protocols.openai_chat.checks import CHECKS, read_cache_mark, write_cache_mark
from dragoman.protocols.openai_chat.shapes import FUNCTION_SHAPE, LOCATION_SHAPE, TOOL_SHAPE, WEB_SEARCH_SHAPE
from dragoman.protocols.openai_chat.tables import NAME, WEB_SEARCH_OPTIONS

# Modes of tool_choice, with words of other protocols that clients send here.
_CHOICES = {"auto": "auto", "none": "none", "required": "required", "any": "required"}


def read_tools(body: JSONObject, extra: JSONObject) -> tuple[tuple[Tool, ...], ToolChoice | None]:
    """Read the tools and the choice. A choice with members that `ToolChoice` lacks goes into `extra` as well."""
    tools: list[Tool] = []
    for field, read in (("tools", _read_tool), ("functions", _read_legacy_function)):
        for index, item in enumerate(CHECKS.objects(body, field, "")):
            tools.append(read(item, f"/{field}/{index}"))
    if body.get(WEB_SEARCH_OPTIONS) is not None:
        tools.append(_read_web_search(body[WEB_SEARCH_OPTIONS], extra))
    choice: ToolChoice | None = None
    for field in ("tool_choice", "function_call"):
        received = body.get(field)
        if received is None:
            continue
        if choice is not None:
            extra[field] = received  # the newer name wins
            continue
        form = received
        if field == "function_call" and type(received) is dict:
            form = {"type": "function", "function": received}
        choice = _read_choice(form, f"/{field}", tools)
        if type(form) is dict and not _is_plain_choice(form, choice):
            extra[field] = received
    return tuple(tools), choice


def _read_tool(tool: JSONObject, path: str) -> Tool:
    function = tool.get("function")
    if len(tool) == 2 and tool.get("type") == "function" and type(function) is dict and len(function) == 3:
        # A shortcut for nearly all tools: only a name, a description and parameters.
        name, description, parameters = map(function.get, ("name", "description", "parameters"))
        if type(name) is type(description) is str and parameters is not None:
            return FunctionTool(name, description, parameters, path=path, native=tool)
    kind = tool.get("type") or "function"
    if kind not in ("function", "custom"):
        return HostedTool(NAME, str(kind), tool, path)
    inner = CHECKS.required(tool, kind, path, OBJECT)
    at = f"{path}/{kind}"
    name = CHECKS.required(inner, "name", at, STRING)
    description = CHECKS.optional(inner, "description", at, STRING)
    cache = read_cache_mark(tool, path)
    if kind == "function":
        parameters, strict = inner.get("parameters"), inner.get("strict")
        return FunctionTool(
            name, description, parameters, strict, cache=cache, path=path, native=tool, shape=TOOL_SHAPE
        )
    # A grammar is nested one deeper than in Responses: {type: grammar, grammar: {definition, syntax}}.
    form, grammar = inner.get("format"), None
    if type(form) is dict and form.get("type") == "grammar" and type(form.get("grammar")) is dict:
        at = f"{at}/format/grammar"
        syntax = CHECKS.required(form["grammar"], "syntax", at, STRING)
        grammar = Grammar(syntax, CHECKS.required(form["grammar"], "definition", at, STRING))
    return CustomTool(name, description, grammar, cache=cache, path=path, native=tool, shape=TOOL_SHAPE)


def _read_legacy_function(function: JSONObject, path: str) -> FunctionTool:
    return FunctionTool(
        CHECKS.required(function, "name", path, STRING),
        CHECKS.optional(function, "description", path, STRING),
        function.get("parameters"),
        function.get("strict"),
        path=path,
        **extra_of(function, FUNCTION_SHAPE),
    )


def _read_web_search(options: JSONObject, extra: JSONObject) -> HostedTool:
    """Read `web_search_options`. The location is nested one deeper than in other protocols."""
    unread = extra_members(options, WEB_SEARCH_SHAPE) or {}
    location = options.get("user_location")
    received = location.get("approximate") if type(location) is dict else location
    approximate: JSONObject | None = None
    if type(received) is dict:
        known = {key: received[key] for key in LOCATION_SHAPE if key in received}
        approximate = {"type": "approximate", **known}
    elif received is not None:
        unread["user_location"] = location
    if type(location) is dict and location.get("type") != "approximate":
        unread["user_location"] = location
    if unread:
        extra[WEB_SEARCH_OPTIONS] = unread
    use = WebSearch(location=approximate, context_size=options.get("search_context_size"))
    return HostedTool(NAME, WEB_SEARCH_OPTIONS, options, f"/{WEB_SEARCH_OPTIONS}", use)


def _read_choice(choice: JSON, path: str, tools: Sequence[Tool]) -> ToolChoice:
    kind = choice.get("type") if type(choice) is dict else choice
    mode = _CHOICES.get(kind) if type(kind) is str else None
    if mode is not None:
        return ToolChoice(mode, path=path)  # type: ignore[arg-type]  # the values of _CHOICES are modes
    if type(choice) is dict:
        if kind == "allowed_tools" and type(allowed := choice.get("allowed_tools")) is dict:
            named = allowed.get("tools") or []
            if type(named) is not list:
                raise wrong_type(f"{path}/allowed_tools/tools", "an array", named)
            refs = tuple(filter(None, map(_read_reference, named)))
            return ToolChoice("allowed", allowed=refs, required=allowed.get("mode") == "required", path=path)
        ref = _read_reference(choice)
        if ref is not None:
            return ToolChoice("named", ref.name, ref.kind, path=path)
        if any(isinstance(tool, HostedTool) and tool.kind == kind for tool in tools):
            return ToolChoice("named", path=path, hosted=str(kind))
    raise invalid_value(path, "auto, none, required, a named tool or allowed_tools")


def _read_reference(tool: JSON) -> ToolRef | None:
    """Read a reference to a tool: {type: T, T: {name}}. The client of Hugging Face sends no type of a function."""
    kind = tool.get("type", "function") if type(tool) is dict else None
    inner = tool.get(kind) if type(kind) is str else None
    name = inner.get("name") if type(inner) is dict else None
    if type(name) is not str or not name:
        return None
    return ToolRef(name, kind=ToolKind.CUSTOM if "custom" in tool else ToolKind.FUNCTION)


def _is_plain_choice(received: JSONObject, choice: ToolChoice) -> bool:
    """True if a choice has no members that `ToolChoice` lacks: written again, it is the same."""
    if choice.mode == "allowed":
        defaults = {"mode": "auto", "tools": []}
        received = {**received, "allowed_tools": {**defaults, **received["allowed_tools"]}}
    return len(received) == 1 or received == _write_choice(choice, Ledger())


def write_tools(request: Request, capabilities: Capabilities, out: JSONObject, ledger: Ledger) -> None:
    """Put tools, choice and web search into `out`."""
    tools: list[JSONObject] = []
    native, was = bool(request.native), request.received
    for tool in request.tools:
        if type(tool) is not HostedTool:
            tools.append(
                written(tool, lambda each: _write_tool(each, ledger)) if native else _write_tool(tool, ledger)
            )
        elif not native:
            _write_hosted(tool, capabilities, out, ledger)
        elif tool.kind == WEB_SEARCH_OPTIONS:
            out[WEB_SEARCH_OPTIONS] = tool.native
        else:
            tools.append(tool.native)
    choice = request.tool_choice
    if not tools:
        # "'tool_choice' is only allowed when 'tools' are specified." (OpenAI-DotNet#479, read 2026-11-22)
        if choice is not None and choice.mode not in ("auto", "none"):
            ledger.dropped(choice.path, "no tool can be called")
        return
    out["tools"] = tools
    if was is not None and choice is was.tool_choice and type(request.native.get("tool_choice")) is dict:
        out["tool_choice"] = request.native["tool_choice"]
    elif choice is not None:
        body = _write_choice(choice, ledger)
        if body is not None:
            out["tool_choice"] = body
    # True is the default, and Cerebras refuses the member (req_llm's guide, read 2026-11-22).
    if request.parallel_tool_calls is False:
        out["parallel_tool_calls"] = False


def _write_tool(tool: FunctionTool | CustomTool, ledger: Ledger) -> JSONObject:
    """Return a tool in the form of the protocol."""
    kind = "custom" if type(tool) is CustomTool else "function"
    inner: JSONObject = {"name": tool.name}
    body: JSONObject = {"type": kind, kind: inner}
    if tool.description:
        inner["description"] = tool.description
    if tool.cache is not None:
        body["cache_control"] = write_cache_mark(tool.cache, "cache_control")
    if type(tool) is CustomTool:
        if tool.grammar is not None:
            grammar = {"definition": tool.grammar.definition, "syntax": tool.grammar.syntax}
            inner["format"] = {"type": "grammar", "grammar": grammar}
        return body
    if tool.examples:
        inner["description"] = tool.described(ledger)
    if tool.deferred:
        ledger.altered(
            f"{tool.path}/defer_loading", "the tool is sent immediately: Chat Completions has no tool search"
        )
    parameters = tool.parameters
    inner["parameters"] = {"type": "object", "properties": {}} if parameters is None else parameters
    if tool.strict is not None:
        inner["strict"] = tool.strict
    return body


def _write_hosted(tool: HostedTool, capabilities: Capabilities, out: JSONObject, ledger: Ledger) -> None:
    use = tool.use
    if not isinstance(use, WebSearch) or "web_search" not in capabilities.hosted_tools:
        ledger.add(tool.loss_code, tool.path, f"the upstream does not run the tool {tool.kind}")
    elif WEB_SEARCH_OPTIONS in out:
        ledger.dropped(tool.path, "a request can have only one web search")
    else:
        options = out[WEB_SEARCH_OPTIONS] = {}
        if use.context_size is not None:
            options["search_context_size"] = use.context_size
        if use.location is not None:
            approximate = {
                key: value for key, value in use.location.items() if key != "type" and value is not None
            }
            options["user_location"] = {"type": "approximate", "approximate": approximate}
        _note_lost_settings(tool.native, options, tool, ledger)


def _note_lost_settings(native: JSON, options: JSONObject, tool: HostedTool, ledger: Ledger) -> None:
    """Record the settings of a web search tool that `options` lack: domains, the number of uses and others."""
    written = {tool.kind, "web_search", *map(str, leaves(options))}
    for key, value in native.items() if type(native) is dict else ():
        found = {str(leaf) for leaf in leaves(value) if leaf is not None}
        if not found <= written or (type(value) is dict and not found):
            ledger.dropped(child(tool.path, key), f"{WEB_SEARCH_OPTIONS} has no field for it")


def _write_choice(choice: ToolChoice, ledger: Ledger) -> JSON:
    """Return the choice, None if it has no form here or is the default."""
    if choice.mode == "allowed":
        refs = [ref for ref in choice.allowed if ref.hosted is None]
        if len(refs) < len(choice.allowed):
            ledger.altered(choice.path, "the choice cannot include tools that the provider runs")
            if not refs:
                return "none"
        allowed = {
            "mode": "required" if choice.required else "auto",
            "tools": [_tool_reference(ref) for ref in refs],
        }
        return {"type": "allowed_tools", "allowed_tools": allowed}
    if choice.mode == "auto":
        return None  # the default, and DeepSeek may refuse it while reasoning (any-llm#1384, read 2026-11-22)
    if choice.mode != "named":
        return choice.mode
    if choice.name is None or choice.hosted is not None:  # a hosted tool has the name of a server
        ledger.dropped(choice.path, f"a {choice.hosted} tool cannot be forced in Chat Completions")
        return None
    return _tool_reference(ToolRef(choice.name, kind=choice.kind))


def _tool_reference(ref: ToolRef) -> JSONObject:
    return {"type": ref.kind.value, ref.kind.value: {"name": ref.name}}


def deep_merge(base: JSON, extra: JSON) -> JSON:
    """Return `base` with the members of `extra` put over it, in nested objects as well."""
    if type(base) is not dict or type(extra) is not dict:
        return extra
    return {**base, **{key: deep_merge(base.get(key), value) for key, value in extra.items()}}
