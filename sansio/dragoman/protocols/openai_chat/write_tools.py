"""The tools of a request and the choice among them, printed for a Chat Completions upstream.

Strategy: functions and custom tools have their forms; a web search is a setting of its own here, `web_search_options`.
What a tool says that has no member goes into its description if the model can make use of it, else into the ledger.
"""

from __future__ import annotations

from dragoman._ir.losses import Ledger, child
from dragoman._ir.request import (
    CustomTool,
    FunctionTool,
    HostedTool,
    Request,
    ToolChoice,
    ToolRef,
    WebSearch,
)
from dragoman._wire.json import JSON, JSONObject, encode_text
from dragoman._wire.json_schema import is_strict
from dragoman.codec import Capabilities
from dragoman.protocols.openai_chat.tables import WEB_SEARCH_OPTIONS
from dragoman.protocols.openai_chat.write_parts import deep_merge, write_cache_control


def write_tools(
    request: Request, same_protocol: bool, capabilities: Capabilities, out: JSONObject, ledger: Ledger
) -> None:
    """Put tools, choice and web search into `out`. own: the request came as Chat Completions."""
    tools: list[JSONObject] = []
    for tool in request.tools:
        if not isinstance(tool, HostedTool):
            body = _foreign_tool(tool, same_protocol and capabilities.cache_marks == "cache_control", ledger)
            tools.append(deep_merge(body, tool.extra) if same_protocol and tool.extra else body)
        elif not same_protocol:
            _hosted(tool, capabilities, out, ledger)
        elif tool.kind == WEB_SEARCH_OPTIONS:
            out[WEB_SEARCH_OPTIONS] = tool.native
        else:
            tools.append(tool.native)
    choice = request.tool_choice
    if not tools:
        # "tool_choice is only allowed when tools are specified"
        if choice is not None and choice.mode not in ("auto", "none"):
            ledger.dropped(choice.path, "no tool is left to choose from")
        return
    out["tools"] = tools
    if choice is not None:
        printed = _choice(choice, ledger)
        if printed is not None:
            out["tool_choice"] = printed
    if request.parallel_tool_calls is False:  # true is the default, and some servers refuse the member
        out["parallel_tool_calls"] = False


def write_native_tools(request: Request, out: JSONObject) -> None:
    """The same for a request that came as Chat Completions: in its own words, the legacy ones too."""
    for tool in request.tools:
        if isinstance(tool, HostedTool):
            if tool.kind == WEB_SEARCH_OPTIONS:
                out[WEB_SEARCH_OPTIONS] = tool.native
            else:
                out.setdefault("tools", []).append(tool.native)
        elif tool.path.startswith("/functions/"):
            out.setdefault("functions", []).append(deep_merge(_own_tool(tool)["function"], tool.extra or {}))
        else:
            out.setdefault("tools", []).append(deep_merge(_own_tool(tool), tool.extra or {}))
    for key in ("tool_choice", "function_call", "parallel_tool_calls"):
        if request.raw.get(key) is not None:
            out[key] = request.raw[key]


def _own_tool(tool: FunctionTool | CustomTool) -> JSONObject:
    body = _body(tool)
    if isinstance(tool, FunctionTool):
        if tool.parameters is not None:
            body["function"]["parameters"] = tool.parameters
        if tool.strict is not None:
            body["function"]["strict"] = tool.strict
    if tool.cache is not None:
        body["cache_control"] = write_cache_control(tool.cache)
    return body


def _body(tool: FunctionTool | CustomTool) -> JSONObject:
    """What both kinds of tool have."""
    inner: JSONObject = {"name": tool.name}
    if tool.description is not None:
        inner["description"] = tool.description
    kind = "function"
    if isinstance(tool, CustomTool):
        kind = "custom"
        if tool.grammar is not None:
            grammar = {"definition": tool.grammar.definition, "syntax": tool.grammar.syntax}
            inner["format"] = {"type": "grammar", "grammar": grammar}
    return {"type": kind, kind: inner}


def _foreign_tool(tool: FunctionTool | CustomTool, marks: bool, ledger: Ledger) -> JSONObject:
    body = _body(tool)
    if tool.cache is not None and marks:
        body["cache_control"] = write_cache_control(tool.cache)
    elif tool.cache is not None:
        ledger.dropped(tool.cache.path, "tools take no cache marks here")
    if isinstance(tool, CustomTool):
        return body
    inner = body["function"]
    if tool.examples:
        shown = "\n".join(["Examples of its input:", *[encode_text(each) for each in tool.examples]])
        inner["description"] = f"{tool.description}\n\n{shown}" if tool.description else shown
        ledger.altered(f"{tool.path}/input_examples", "told to the model in the description")
    if tool.deferred:
        ledger.altered(f"{tool.path}/defer_loading", "the tool is sent at once: there is no tool search here")
    parameters = tool.parameters
    inner["parameters"] = {"type": "object", "properties": {}} if parameters is None else parameters
    if tool.strict is not None:
        inner["strict"] = tool.strict and is_strict(parameters)
        if tool.strict and not inner["strict"]:
            ledger.altered(f"{tool.path}/strict", "the schema is outside of what the server takes as strict")
    return body


def _hosted(tool: HostedTool, capabilities: Capabilities, out: JSONObject, ledger: Ledger) -> None:
    use = tool.use
    if not isinstance(use, WebSearch) or "web_search" not in capabilities.hosted_tools:
        ledger.add(tool.loss_code, tool.path, f"a {tool.kind} tool is run by its own provider")
    elif WEB_SEARCH_OPTIONS in out:
        ledger.dropped(tool.path, "there is one web search already, and no place for another")
    else:
        out[WEB_SEARCH_OPTIONS] = _search_options(use)
        _note_untold(tool.native, out[WEB_SEARCH_OPTIONS], tool, ledger)


def _search_options(use: WebSearch) -> JSONObject:
    options: JSONObject = {}
    if use.context_size is not None:
        options["search_context_size"] = use.context_size
    if use.location is not None:
        place = {key: value for key, value in use.location.items() if key != "type" and value is not None}
        options["user_location"] = {"type": "approximate", "approximate": place}
    return options


def _note_untold(native: JSON, options: JSONObject, tool: HostedTool, ledger: Ledger) -> None:
    """Enter what a web search tool says that `options` do not: domains, the number of uses, and the like."""
    told = {tool.kind, "web_search", *map(str, _leaves(options))}
    for key, value in native.items() if type(native) is dict else ():
        leaves = [str(leaf) for leaf in _leaves(value) if leaf is not None]
        if not set(leaves) <= told or (type(value) is dict and not leaves):
            ledger.dropped(child(tool.path, key), f"{WEB_SEARCH_OPTIONS} has no place for it")


def _leaves(value: JSON) -> list[JSON]:
    """The strings, numbers and booleans in a value."""
    if type(value) is dict:
        return [leaf for member in value.values() for leaf in _leaves(member)]
    if type(value) is list:
        return [leaf for member in value for leaf in _leaves(member)]
    return [value]


def _choice(choice: ToolChoice, ledger: Ledger) -> JSON:
    """The choice, None when it cannot be said or need not be."""
    if choice.mode == "allowed":
        refs = [ref for ref in choice.allowed if ref.hosted is None]
        if len(refs) < len(choice.allowed):
            ledger.altered(choice.path, "tools that the provider runs are no part of the choice here")
            if not refs:
                return "none"
        allowed = {
            "mode": "required" if choice.required else "auto",
            "tools": [_reference(ref) for ref in refs],
        }
        return {"type": "allowed_tools", "allowed_tools": allowed}
    if choice.mode == "auto":
        return None  # the default, and servers of models that think refuse it
    if choice.mode != "named":
        return choice.mode
    if choice.name is None or choice.hosted is not None:  # a hosted one's name is a server's
        ledger.dropped(choice.path, f"a {choice.hosted} tool cannot be demanded here")
        return None
    return _reference(ToolRef(choice.name, kind=choice.kind))


def _reference(ref: ToolRef) -> JSONObject:
    return {"type": ref.kind.value, ref.kind.value: {"name": ref.name}}
