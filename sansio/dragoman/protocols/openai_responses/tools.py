"""Tools and tool choice: read from a client's request, and written for a Responses upstream.

Functions and custom tools have typed forms, and namespaces are taken apart. A tool that the provider runs, or whose
schema it defines, stays whole, with its use if other providers have an equivalent, or with a function to replace it.
Towards an upstream it is written if that has an equivalent, else it is left out and recorded as a loss.
"""

from __future__ import annotations

from collections.abc import Sequence

from dragoman._ir.events import ToolKind
from dragoman._ir.losses import Ledger, child
from dragoman._ir.native import written
from dragoman._ir.request import Request
from dragoman._ir.shape import ARRAY, OBJECT, STRING, extra_members
from dragoman._ir.tools import (
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
from dragoman._wire.json import JSON, JSONObject, invalid_value, text_or_none, wrong_type
from dragoman.codec import Capabilities, HostedUse
from dragoman.protocols.openai_responses.checks import CHECKS, leaf_values, required_text
from dragoman.protocols.openai_responses.client_tools import COMPUTERS, function_fallback
from dragoman.protocols.openai_responses.shapes import (
    CHOICE_SHAPE,
    FUNCTION_MEMBERS,
    HOSTED_REFERENCE_SHAPE,
    REFERENCE_SHAPE,
    TOOL_SHAPES,
)
from dragoman.protocols.openai_responses.tables import NAME, WEB_SEARCH_TYPES

_CALLABLE: dict[str, ToolKind] = {"function": ToolKind.FUNCTION, "custom": ToolKind.CUSTOM}
_TOOL_FAMILIES = (WEB_SEARCH_TYPES, COMPUTERS | {"computer_use"})
_TYPE_NAMES = {kind: name for name, kind in _CALLABLE.items()}
_USES: dict[type, HostedUse] = {WebSearch: "web_search", CodeExecution: "code_execution", McpServer: "mcp"}


def read_tools(
    tools: list[JSON], path: str, namespaces: list[Namespace], namespace: str | None = None
) -> list[Tool]:
    """Read a list of tools, tools of namespaces in place. The namespaces are appended to `namespaces`."""
    if type(tools) is not list:
        raise wrong_type(path, ARRAY.name, tools)
    found: list[Tool] = []
    for index, tool in enumerate(tools):
        where = f"{path}/{index}"
        if type(tool) is not dict:
            raise wrong_type(where, OBJECT.name, tool)
        kind = required_text(tool, "type", where)
        if kind == "function":
            found.append(_read_function(tool, where, namespace))
        elif kind == "custom":
            found.append(_read_custom(tool, where, namespace))
        elif kind == "namespace" and _holds_only_callables(tool):
            name = required_text(tool, "name", where)
            description = CHECKS.optional(tool, "description", where, STRING) or None
            namespaces.append(Namespace(description, where, native=tool, shape=TOOL_SHAPES[kind]))
            found += read_tools(tool["tools"], f"{where}/tools", namespaces, name)
        else:
            found.append(
                HostedTool(NAME, kind, tool, where, _use_of(kind, tool), function_fallback(kind, tool, where))
            )
    return found


def _use_of(kind: str, tool: JSONObject) -> WebSearch | CodeExecution | McpServer | None:
    """Return the use of a tool that the provider runs, None if other providers have no equivalent."""
    if kind in WEB_SEARCH_TYPES:
        return _web_search(tool)
    if kind == "code_interpreter":
        return CodeExecution()
    return _mcp_server(tool) if kind == "mcp" else None


def _web_search(tool: JSONObject) -> WebSearch:
    filters, location = tool.get("filters"), tool.get("user_location")
    domains = _text_tuple(filters.get("allowed_domains")) if type(filters) is dict else None
    return WebSearch(
        allowed_domains=domains,
        location=location if type(location) is dict else None,
        context_size=text_or_none(tool.get("search_context_size")),
    )


def _mcp_server(tool: JSONObject) -> McpServer | None:
    """Return the server, None if other providers would do more with it than the client allows, or cannot reach it."""
    label, url = text_or_none(tool.get("server_label")), text_or_none(tool.get("server_url"))
    allowed = tool.get("allowed_tools")
    if type(allowed) is dict and allowed.keys() == {"tool_names"}:
        allowed = allowed["tool_names"]
    names = _text_tuple(allowed)
    if label is None or url is None or (allowed is not None and names is None):
        return None
    # Without the setting the vendor requests approval before each call, as with "always", and no other vendor does.
    if tool.get("require_approval") != "never" or tool.get("headers"):
        return None
    return McpServer(label, url, text_or_none(tool.get("authorization")), names)


def _text_tuple(value: JSON) -> tuple[str, ...] | None:
    return tuple(value) if type(value) is list and all(type(each) is str for each in value) else None


def _holds_only_callables(tool: JSONObject) -> bool:
    """True if a namespace can be taken apart. One that is empty or has hosted tools stays whole."""
    inner = tool.get("tools")
    return (
        bool(inner)
        and type(inner) is list
        and all(type(each) is dict and text_or_none(each.get("type")) in _CALLABLE for each in inner)
    )


def _read_function(tool: JSONObject, path: str, namespace: str | None) -> FunctionTool:
    deferred = tool.get("defer_loading")
    return FunctionTool(
        required_text(tool, "name", path),
        CHECKS.optional(tool, "description", path, STRING) or None,
        tool.get("parameters"),
        tool.get("strict"),
        namespace,
        path=path,
        deferred=deferred if type(deferred) is bool else None,
        native=tool,
        shape=None if tool.keys() <= FUNCTION_MEMBERS.keys() else TOOL_SHAPES["function"],
    )


def _read_custom(tool: JSONObject, path: str, namespace: str | None) -> CustomTool:
    form = tool.get("format")
    grammar = None
    if type(form) is dict and form.get("type") == "grammar":
        where = f"{path}/format"
        grammar = Grammar(required_text(form, "syntax", where), required_text(form, "definition", where))
    return CustomTool(
        required_text(tool, "name", path),
        CHECKS.optional(tool, "description", path, STRING) or None,
        grammar,
        namespace,
        path=path,
        native=tool,
        shape=TOOL_SHAPES["custom"],
    )


def read_tool_choice(value: JSON, tools: list[Tool], extra: JSONObject) -> ToolChoice | None:
    """Read the tool choice. One with further members is also put into `extra`, whole."""
    path = "/tool_choice"
    if value is None:
        return None
    if value in ("auto", "none", "required"):
        return ToolChoice(value, path=path)
    if type(value) is not dict:
        raise invalid_value(path, "auto, none, required or an object")
    kind = required_text(value, "type", path)
    if kind != "allowed_tools":
        ref = _read_ref(value, path, tools, extra)
        return ToolChoice("named", ref.name or None, ref.kind, ref.namespace, path=path, hosted=ref.hosted)
    refs: list[JSON] = CHECKS.required(value, "tools", path, ARRAY)
    left: JSONObject = {}
    allowed = [_read_ref(ref, f"{path}/tools/{index}", tools, left) for index, ref in enumerate(refs)]
    if left or extra_members(value, CHOICE_SHAPE) or value.get("mode") not in (None, "auto", "required"):
        extra["tool_choice"] = value
    return ToolChoice("allowed", allowed=tuple(allowed), required=value.get("mode") == "required", path=path)


def _read_ref(ref: JSON, path: str, tools: list[Tool], extra: JSONObject) -> ToolRef:
    """Read a reference to one tool. One with further members is put into `extra`."""
    if type(ref) is not dict:
        raise wrong_type(path, OBJECT.name, ref)
    kind = required_text(ref, "type", path)
    if kind in _CALLABLE:
        if extra_members(ref, REFERENCE_SHAPE):
            extra["tool_choice"] = ref
        return ToolRef(
            required_text(ref, "name", path),
            CHECKS.optional(ref, "namespace", path, STRING) or None,
            _CALLABLE[kind],
        )
    if extra_members(ref, HOSTED_REFERENCE_SHAPE):
        extra["tool_choice"] = ref
    # A tool may have several names: `computer_use`, and the dated ones of the web search.
    family = next((each for each in _TOOL_FAMILIES if kind in each), frozenset((kind,)))
    declared = [tool.kind for tool in tools if isinstance(tool, HostedTool) and tool.kind in family]
    hosted = kind if kind in declared or not declared else declared[0]
    return ToolRef(text_or_none(ref.get("server_label")) or "", hosted=hosted)


def write_tools(
    tools: Sequence[Tool], request: Request, capabilities: Capabilities, ledger: Ledger
) -> list[JSON]:
    """Write the tools, each namespace's together as they came."""
    native = bool(request.native)

    def write(tool: FunctionTool | CustomTool) -> JSONObject:
        if type(tool) is CustomTool:
            return _write_custom(tool)
        return _write_function(tool, native, ledger)

    namespaces = {namespace.path: namespace.native or {} for namespace in request.namespaces}
    out: list[JSON] = []
    open_namespace: tuple[str, list[JSON]] | None = None  # path and tools of the namespace being filled
    for tool in tools:
        if type(tool) is HostedTool:
            kept = native and capabilities.custom_tools is not False
            hosted = tool.native if kept else _write_hosted(tool, capabilities, ledger)
            if hosted is not None:
                out.append(hosted)
            continue
        body = written(tool, write) if native else write(tool)
        if tool.namespace is None:
            out.append(body)
            continue
        path = tool.path.rpartition("/tools/")[0]
        if open_namespace is None or open_namespace[0] != path:
            open_namespace = (path, [])
            # A description is required (openai-python 3.54.0, `NamespaceToolParam`); the client's own is in its body.
            head = {
                "type": "namespace",
                "name": tool.namespace,
                "description": "",
                **(namespaces[path] if native else {}),
            }
            out.append({**head, "tools": open_namespace[1]})
        open_namespace[1].append(body)
    return out


def note_unsent_servers(request: Request, capabilities: Capabilities, ledger: Ledger) -> None:
    """Record the MCP servers of Messages of which no tool was sent. Those without a toolset are tools themselves."""
    sent = {
        tool.use.label
        for tool in request.tools
        if type(tool) is HostedTool
        and isinstance(tool.use, McpServer)
        and _has_equivalent(tool, capabilities)
    }
    mapped = {tool.path for tool in request.tools}
    servers: JSON = request.params.get("mcp_servers") or []
    for index, server in enumerate(servers):
        path = child(request.path_of("mcp_servers"), index)
        if server.get("name") not in sent and path not in mapped:
            ledger.dropped(path, "none of the server's tools was sent")


def _has_equivalent(tool: HostedTool, capabilities: Capabilities) -> bool:
    """True if the upstream runs an equivalent of a tool of another protocol."""
    return tool.use is not None and _USES[type(tool.use)] in capabilities.hosted_tools


def _write_hosted(tool: HostedTool, capabilities: Capabilities, ledger: Ledger) -> JSONObject | None:
    use = tool.use
    if use is None or not _has_equivalent(tool, capabilities):
        ledger.add(tool.loss_code, tool.path, f"the upstream does not run the tool {tool.kind}")
        return None
    mapped: list[JSON] = []
    if isinstance(use, WebSearch):
        out: JSONObject = {"type": "web_search"}
        if use.allowed_domains is not None:
            out["filters"] = {"allowed_domains": list(use.allowed_domains)}
        if use.location is not None:
            out["user_location"] = {"type": "approximate", **use.location}
        if use.context_size is not None:
            out["search_context_size"] = use.context_size
        if use.blocked_domains:
            ledger.dropped(f"{tool.path}/blocked_domains", "Responses has a field only for allowed domains")
        mapped = [list(use.blocked_domains or ()), use.max_uses]
    elif isinstance(use, McpServer):
        out = {"type": "mcp", "server_label": use.label, "server_url": use.url}
        if use.authorization is not None:
            out["authorization"] = use.authorization
        if use.allowed_tools is not None:
            out["allowed_tools"] = list(use.allowed_tools)
        # No other protocol has a form for the approval of a call, which is the default here.
        out["require_approval"] = "never"
        mapped = [use.bearer]
    else:
        out = {"type": "code_interpreter", "container": {"type": "auto"}}
    native = {name: value for name, value in (tool.native or {}).items() if name not in ("type", "name")}
    if not leaf_values(native) <= leaf_values([out, *mapped]):
        ledger.altered(tool.path, f"only what the tools have in common was kept in {out['type']}")
    return out


def sum_max_uses(tools: Sequence[Tool], capabilities: Capabilities, ledger: Ledger) -> int | None:
    """Return the limit of calls of all hosted tools together. Only a single tool's own limit is the same."""
    hosted = [tool for tool in tools if type(tool) is HostedTool and _has_equivalent(tool, capabilities)]
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


def _write_function(tool: FunctionTool, native: bool, ledger: Ledger) -> JSONObject:
    out: JSONObject = {"type": "function", "name": tool.name}
    if tool.description:
        out["description"] = tool.description
    if tool.parameters is not None:
        out["parameters"] = tool.parameters
    if tool.strict is not None:
        out["strict"] = tool.strict
    if native:
        return out
    if tool.parameters is None:
        out["parameters"] = {"type": "object", "properties": {}}
    # The default is true here and false in other protocols (langchain-ai/langchain#39309, read 2026-11-22), so it is
    # always written.
    out["strict"] = bool(tool.strict)
    if tool.deferred:
        ledger.dropped(
            f"{tool.path}/defer_loading",
            "the tool is sent immediately: without a tool search it would never be found",
        )
    if tool.examples:
        out["description"] = tool.described(ledger)
    return out


def _write_custom(tool: CustomTool) -> JSONObject:
    out: JSONObject = {"type": "custom", "name": tool.name}
    if tool.description:
        out["description"] = tool.description
    if tool.grammar is not None:
        out["format"] = _write_grammar(tool.grammar)
    return out


def _write_grammar(grammar: Grammar) -> JSONObject:
    return {"type": "grammar", "syntax": grammar.syntax, "definition": grammar.definition}


def write_tool_choice(
    choice: ToolChoice, tools: Sequence[Tool], request: Request, capabilities: Capabilities, ledger: Ledger
) -> JSON:
    """Write the choice in its flat form, None if the tool that it names was not sent."""
    if choice.mode not in ("named", "allowed"):
        return choice.mode
    if choice.mode == "named":
        named = _write_ref(
            ToolRef(choice.name or "", choice.namespace, choice.kind, choice.hosted), tools, capabilities
        )
        if named is None:
            ledger.dropped(choice.path, "the forced tool is not among those sent")
        return named
    written = [_write_ref(ref, tools, capabilities) for ref in choice.allowed]
    refs = [ref for ref in written if ref is not None]
    if len(refs) < len(written):
        ledger.altered(choice.path, "some of the allowed tools are not among those sent")
    if not refs:
        return "none"  # no tool that was sent is allowed
    return {"type": "allowed_tools", "mode": "required" if choice.required else "auto", "tools": refs}


def _write_ref(ref: ToolRef, tools: Sequence[Tool], capabilities: Capabilities) -> JSONObject | None:
    """Write a reference to one tool, None if the tool is another vendor's without an equivalent here."""
    if ref.hosted is None:
        out: JSONObject = {"type": _TYPE_NAMES[ref.kind], "name": ref.name}
        if ref.namespace is not None:
            out["namespace"] = ref.namespace
        return out
    for tool in tools:
        if isinstance(tool, HostedTool) and tool.kind == ref.hosted and _has_equivalent(tool, capabilities):
            if isinstance(tool.use, McpServer):
                return {"type": "mcp", "server_label": tool.use.label}
            return {"type": "web_search_preview" if isinstance(tool.use, WebSearch) else "code_interpreter"}
    return None
