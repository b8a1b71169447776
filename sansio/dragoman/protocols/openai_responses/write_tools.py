"""Tools and tool choice -> what a Responses upstream takes.

Strategy: functions and custom tools are printed from their own fields; a tool that the provider runs is printed when
the upstream has the same, else it is left out and named. A choice can only speak of tools that are there.
"""

from __future__ import annotations

from collections.abc import Sequence

from dragoman._ir.events import ToolKind
from dragoman._ir.losses import Ledger, child
from dragoman._ir.request import (
    CodeExecution,
    CustomTool,
    FunctionTool,
    HostedTool,
    McpServer,
    Request,
    Tool,
    ToolChoice,
    ToolRef,
    WebSearch,
)
from dragoman._wire.json import JSON, JSONObject, encode_text
from dragoman._wire.json_schema import is_strict
from dragoman.codec import Capabilities, HostedUse
from dragoman.protocols.openai_responses.wire import NAME

_KIND_NAMES = {ToolKind.FUNCTION: "function", ToolKind.CUSTOM: "custom"}
# Fields whose null or default value the IR does not keep.
_UNSAID = ("description", "parameters", "strict", "format", "defer_loading", "allowed_callers")
_USES: dict[type, HostedUse] = {WebSearch: "web_search", CodeExecution: "code_execution", McpServer: "mcp"}


def write_tools(
    tools: Sequence[Tool], request: Request, capabilities: Capabilities, ledger: Ledger
) -> list[JSON]:
    """The tools, those of one namespace together as they came."""
    same_protocol = request.protocol == NAME
    out: list[JSON] = []
    home: tuple[str, list[JSON]] | None = None  # the namespace being filled: its path and its tools
    for tool in tools:
        if isinstance(tool, HostedTool):
            hosted = (
                tool.native
                if same_protocol and tool.origin == NAME
                else _write_hosted(tool, capabilities, ledger)
            )
            if hosted is not None:
                out.append(hosted)
            continue
        if isinstance(tool, FunctionTool):
            written = _write_function(tool, request, same_protocol, ledger)
        else:
            written = _write_custom(tool)
        if same_protocol:
            _restore(written, _at(request.raw, tool.path))
            written.update(tool.extra or {})
        if tool.cache is not None:
            ledger.dropped(tool.cache.path, "tools take no cache breakpoints in Responses")
        if tool.namespace is None:
            out.append(written)
            continue
        path = tool.path.rpartition("/tools/")[0]
        if home is None or home[0] != path:
            home = (path, [])
            # A namespace needs a description; the client's own stands in its body.
            head = {"type": "namespace", "name": tool.namespace, "description": "", **_at(request.raw, path)}
            out.append({**head, "tools": home[1]})
        home[1].append(written)
    return out


def note_unsent_servers(request: Request, capabilities: Capabilities, ledger: Ledger) -> None:
    """Enter the MCP servers of Messages that no tool stands for. Those without a toolset are tools themselves."""
    sent = {
        tool.use.label
        for tool in request.tools
        if isinstance(tool, HostedTool) and isinstance(tool.use, McpServer) and _is_native(tool, capabilities)
    }
    told = {tool.path for tool in request.tools}
    servers: JSON = request.params.get("mcp_servers") or []
    for index, server in enumerate(servers):
        path = child(request.param_paths.get("mcp_servers", "/mcp_servers"), index)
        if server.get("name") not in sent and path not in told:
            ledger.dropped(path, "none of the server's tools was sent")


def _is_native(tool: HostedTool, capabilities: Capabilities) -> bool:
    """Whether the upstream runs the same as a tool of another protocol."""
    return tool.use is not None and _USES[type(tool.use)] in capabilities.hosted_tools


def _write_hosted(tool: HostedTool, capabilities: Capabilities, ledger: Ledger) -> JSONObject | None:
    use = tool.use
    if use is None or not _is_native(tool, capabilities):
        ledger.add(tool.loss_code, tool.path, f"the upstream does not run the tool {tool.kind}")
        return None
    told: list[JSON] = []
    if isinstance(use, WebSearch):
        out: JSONObject = {"type": "web_search"}
        if use.allowed_domains is not None:
            out["filters"] = {"allowed_domains": list(use.allowed_domains)}
        if use.location is not None:
            out["user_location"] = {"type": "approximate", **use.location}
        if use.context_size is not None:
            out["search_context_size"] = use.context_size
        if use.blocked_domains:
            ledger.dropped(f"{tool.path}/blocked_domains", "Responses can only say which domains are allowed")
        told = [list(use.blocked_domains or ()), use.max_uses]
    elif isinstance(use, McpServer):
        out = {"type": "mcp", "server_label": use.label, "server_url": use.url}
        if use.authorization is not None:
            out["authorization"] = use.authorization
        if use.allowed_tools is not None:
            out["allowed_tools"] = list(use.allowed_tools)
        # The default asks the client before each call; no other protocol has a way to answer.
        out["require_approval"] = "never"
    else:
        out = {"type": "code_interpreter", "container": {"type": "auto"}}
    if _says_more(tool, [out, *told]):
        ledger.altered(tool.path, f"only what the tools have in common was carried to {out['type']}")
    return out


def _says_more(tool: HostedTool, told: list[JSON]) -> bool:
    """Whether the tool as it came says anything beyond what was told."""
    known: set[str] = set()
    _scalars(told, known)
    native: set[str] = set()
    if type(tool.native) is dict:
        _scalars([value for key, value in tool.native.items() if key not in _LABELS], native)
    return not native <= known


# They name the tool or its kind, which its twin has in its own way.
_LABELS = frozenset(("type", "name"))


def _scalars(value: JSON, found: set[str]) -> None:
    if type(value) is dict:
        for member in value.values():
            _scalars(member, found)
    elif type(value) is list:
        for member in value:
            _scalars(member, found)
    elif value is not None:
        found.add(encode_text(value))


def sum_max_uses(tools: Sequence[Tool], capabilities: Capabilities, ledger: Ledger) -> int | None:
    """How often the hosted tools may be called in all, where that says the same as their own limits: for one tool."""
    hosted = [tool for tool in tools if isinstance(tool, HostedTool) and _is_native(tool, capabilities)]
    limited = [
        (tool, tool.use.max_uses)
        for tool in hosted
        if isinstance(tool.use, WebSearch) and tool.use.max_uses is not None
    ]
    if len(hosted) == 1 and limited:
        return limited[0][1]
    for tool, _ in limited:
        ledger.dropped(f"{tool.path}/max_uses", "Responses limits the calls of all hosted tools together")
    return None


def _restore(written: JSONObject, raw: JSONObject) -> None:
    """Give a tool back what says no more than its absence does, as the client wrote it."""
    if raw.get("type") == written["type"]:
        for name in _UNSAID:
            if name in raw and name not in written:
                written[name] = raw[name]


def _at(raw: JSON, path: str) -> JSONObject:
    """The object at a path of the client's body that the reader has walked before."""
    for step in path.split("/")[1:]:
        raw = raw[int(step)] if step.isdigit() else raw[step]
    found: JSONObject = raw
    return found


def _write_function(tool: FunctionTool, request: Request, same_protocol: bool, ledger: Ledger) -> JSONObject:
    out: JSONObject = {"type": "function", "name": tool.name}
    if tool.description is not None:
        out["description"] = tool.description
    if tool.parameters is not None:
        out["parameters"] = tool.parameters
    if tool.strict is not None:
        out["strict"] = tool.strict
    if same_protocol:
        if tool.deferred is not None:
            out["defer_loading"] = tool.deferred
        return out
    if tool.parameters is None:
        out["parameters"] = {"type": "object", "properties": {}}
    # The server's default is true here and false elsewhere, so it is always said.
    out["strict"] = bool(tool.strict) and is_strict(tool.parameters)
    if tool.strict and not out["strict"]:
        ledger.altered(f"{tool.path}/strict", "the schema is outside of what the server takes as strict")
    if tool.deferred:
        ledger.dropped(f"{tool.path}/defer_loading", "without a search for tools all of them are shown")
    if tool.examples:
        lines = [out.get("description"), "Examples of its input:", *map(encode_text, tool.examples)]
        out["description"] = "\n".join([line for line in lines if line])
        ledger.altered(f"{tool.path}/input_examples", "told to the model in the description")
    return out


def _write_custom(tool: CustomTool) -> JSONObject:
    out: JSONObject = {"type": "custom", "name": tool.name}
    if tool.description is not None:
        out["description"] = tool.description
    if tool.grammar is not None:
        out["format"] = {
            "type": "grammar",
            "syntax": tool.grammar.syntax,
            "definition": tool.grammar.definition,
        }
    return out


def write_tool_choice(
    choice: ToolChoice, tools: Sequence[Tool], request: Request, capabilities: Capabilities, ledger: Ledger
) -> JSON:
    """The choice in its flat form, None when the tool that it names is not there."""
    if choice.mode not in ("named", "allowed"):
        return choice.mode
    if request.protocol == NAME and (choice.hosted or any(ref.hosted for ref in choice.allowed)):
        return request.raw["tool_choice"]
    if choice.mode == "named":
        named = _write_ref(
            ToolRef(choice.name or "", choice.namespace, choice.kind, choice.hosted), tools, capabilities
        )
        if named is None:
            ledger.dropped(choice.path, "the tool that must be called is not there")
        return named
    written = [_write_ref(ref, tools, capabilities) for ref in choice.allowed]
    refs = [ref for ref in written if ref is not None]
    if len(refs) < len(written):
        ledger.altered(choice.path, "some of the allowed tools are not there")
    if not refs:
        return "none"  # none of those that are there is allowed
    return {"type": "allowed_tools", "mode": "required" if choice.required else "auto", "tools": refs}


def _write_ref(ref: ToolRef, tools: Sequence[Tool], capabilities: Capabilities) -> JSONObject | None:
    """A reference to one tool, None when it is one of another vendor's that has no twin here."""
    if ref.hosted is None:
        out: JSONObject = {"type": _KIND_NAMES[ref.kind], "name": ref.name}
        if ref.namespace is not None:
            out["namespace"] = ref.namespace
        return out
    for tool in tools:
        if isinstance(tool, HostedTool) and tool.kind == ref.hosted and _is_native(tool, capabilities):
            if isinstance(tool.use, McpServer):
                return {"type": "mcp", "server_label": tool.use.label}
            return {"type": "web_search_preview" if isinstance(tool.use, WebSearch) else "code_interpreter"}
    return None
