"""The tools of a client's request, and which of them the model may call.

Strategy: a tool with a schema is a function. Every other type is a tool that the provider runs or knows by heart:
it is kept whole, with what it does where other protocols may have the same, or with a function that can stand in
for it. MCP servers stand in a list of their own and are told by the toolset that names them.
"""

from __future__ import annotations

from dragoman._ir.request import (
    CacheMark,
    CodeExecution,
    FunctionTool,
    HostedTool,
    McpServer,
    Tool,
    ToolChoice,
    WebSearch,
)
from dragoman._wire.json import JSON, JSONObject
from dragoman.protocols.anthropic_messages.stand_ins import DESCRIBED, described
from dragoman.protocols.anthropic_messages.tables import CACHE_READ, NAME
from dragoman.protocols.anthropic_messages.values import (
    invalid,
    keep,
    object_of,
    objects,
    optional,
    required,
    word,
)
from dragoman.protocols.anthropic_messages.wire import (
    KNOWN_CACHE,
    KNOWN_CHOICE,
    KNOWN_SERVER,
    KNOWN_TOOL,
    extra_of,
)


def read_tools(body: JSONObject, left: JSONObject) -> list[Tool]:
    """The tools of a body. left: takes unknown fields of MCP servers."""
    tools = objects(body, "tools", "") if body.get("tools") else []
    servers = _servers(body, left)
    read = [read_tool(tool, f"/tools/{index}", servers) for index, tool in enumerate(tools)]
    named = {tool.get("mcp_server_name") for tool in tools if tool.get("type") == "mcp_toolset"}
    for index, server in enumerate(servers.values()):
        if server["name"] not in named:
            # The older way: a server without a toolset offers all its tools.
            native = {key: value for key, value in server.items() if key != "authorization_token"}
            use = _mcp_server({}, server)
            read.append(HostedTool(NAME, "mcp_server", native, f"/mcp_servers/{index}", use))
    return read


def read_tool(tool: JSONObject, path: str, servers: dict[str, JSONObject]) -> Tool:
    """One tool. servers: the MCP servers by name."""
    kind = optional(tool, "type", path, str, "string")
    if kind is not None and kind != "custom":
        return _hosted(tool, kind, path, servers)
    name = required(tool, "name", path, str, "string")
    cache, extra = cache_of(tool, path, extra_of(tool, KNOWN_TOOL))
    return FunctionTool(
        name,
        optional(tool, "description", path, str, "string"),
        optional(tool, "input_schema", path, dict, "dictionary"),
        optional(tool, "strict", path, bool, "boolean"),
        cache=cache,
        extra=extra,
        path=path,
        deferred=optional(tool, "defer_loading", path, bool, "boolean"),
        examples=optional(tool, "input_examples", path, list, "list"),
    )


def cache_of(
    block: JSONObject, path: str, extra: JSONObject | None
) -> tuple[CacheMark | None, JSONObject | None]:
    """The cache mark of a block or tool. What a mark says beyond its ttl goes into the extra fields."""
    mark = object_of(block, "cache_control", path) if "cache_control" in block else None
    if not mark:
        return None, extra
    left = extra_of(mark, KNOWN_CACHE) or {}
    ttl = mark.get("ttl")
    known = CACHE_READ.get(word(ttl))
    if ttl is not None and known is None:
        left["ttl"] = ttl
    if mark.get("type") not in (None, "ephemeral"):
        left["type"] = mark["type"]
    if left:
        extra = {**(extra or {}), "cache_control": left}
    return CacheMark(f"{path}/cache_control", known), extra


# --- tools without a schema -------------------------------------------------------------------------------


def _hosted(tool: JSONObject, kind: str, path: str, servers: dict[str, JSONObject]) -> HostedTool:
    if kind.startswith("web_search_"):
        return HostedTool(NAME, kind, tool, path, _web_search(tool, path))
    if kind.startswith("code_execution_"):
        return HostedTool(NAME, kind, tool, path, CodeExecution())
    if kind == "mcp_toolset":
        server = servers.get(required(tool, "mcp_server_name", path, str, "string"))
        return HostedTool(NAME, kind, tool, path, None if server is None else _mcp_server(tool, server))
    return HostedTool(NAME, kind, tool, path, stand_in=_stand_in(tool, kind, path))


def _web_search(tool: JSONObject, path: str) -> WebSearch:
    allowed = optional(tool, "allowed_domains", path, list, "list")
    blocked = optional(tool, "blocked_domains", path, list, "list")
    location = object_of(tool, "user_location", path)
    return WebSearch(
        None if allowed is None else tuple(allowed),
        None if blocked is None else tuple(blocked),
        optional(tool, "max_uses", path, int, "integer"),
        {key: value for key, value in location.items() if value is not None} or None,
    )


def _stand_in(tool: JSONObject, kind: str, path: str) -> FunctionTool | None:
    """The same tool as a function, for one that the client runs."""
    found = described(tool, kind)
    if found is None:
        return None
    cache, extra = cache_of(tool, path, extra_of(tool, KNOWN_TOOL | DESCRIBED))
    description, schema = found
    return FunctionTool(
        required(tool, "name", path, str, "string"),
        description,
        schema,
        cache=cache,
        extra=extra,
        path=path,
        deferred=optional(tool, "defer_loading", path, bool, "boolean"),
        examples=optional(tool, "input_examples", path, list, "list"),
    )


# --- MCP servers ------------------------------------------------------------------------------------------


def _servers(body: JSONObject, left: JSONObject) -> dict[str, JSONObject]:
    """The servers by name."""
    servers: dict[str, JSONObject] = {}
    unknown: list[JSONObject] = []
    for index, server in enumerate(objects(body, "mcp_servers", "")):
        path = f"/mcp_servers/{index}"
        required(server, "url", path, str, "string")
        servers[required(server, "name", path, str, "string")] = server
        extra = extra_of(server, KNOWN_SERVER)
        if extra:
            unknown.append(extra)
    if unknown:
        left["mcp_servers"] = unknown
    return servers


def _mcp_server(toolset: JSONObject, server: JSONObject) -> McpServer | None:
    """The server with the tools that may be called, None when that cannot be said in general terms."""
    allowed: tuple[str, ...] | None = None
    configs = toolset.get("configs")
    enabled = {
        name: config.get("enabled")
        for name, config in (configs.items() if type(configs) is dict else ())
        if type(config) is dict
    }
    default = toolset.get("default_config")
    if type(default) is dict and default.get("enabled") is False:
        allowed = tuple([name for name, may in enabled.items() if may])
    elif False in enabled.values():
        return None  # no other protocol has a list of what may not be called
    older = server.get("tool_configuration")
    if type(older) is dict:
        if older.get("enabled") is False:
            return None
        if allowed is None and type(older.get("allowed_tools")) is list:
            allowed = tuple(older["allowed_tools"])
    return McpServer(server["name"], server["url"], server.get("authorization_token"), allowed)


# --- the choice -------------------------------------------------------------------------------------------


def read_tool_choice(
    body: JSONObject, tools: list[Tool], left: JSONObject
) -> tuple[ToolChoice | None, bool | None]:
    """The choice, and whether the model may call several tools at once: Messages says both in one object."""
    path = "/tool_choice"
    choice = object_of(body, "tool_choice", "")
    if not choice:
        return None, None
    single = optional(choice, "disable_parallel_tool_use", path, bool, "boolean")
    parallel = None if single is None else not single
    keep(left, "tool_choice", extra_of(choice, KNOWN_CHOICE))
    kind: JSON = choice.get("type")
    if kind == "auto":
        return ToolChoice("auto", path=path), parallel
    if kind == "any":
        return ToolChoice("required", path=path), parallel
    if kind == "none":
        return ToolChoice("none", path=path), parallel
    if kind == "tool":
        name = required(choice, "name", path, str, "string")
        return ToolChoice("named", name, path=path, hosted=_hosted_kind(name, tools)), parallel
    raise invalid(f"{path}/type", "Input should be 'auto', 'any', 'tool' or 'none'")


def _hosted_kind(name: str, tools: list[Tool]) -> str | None:
    """The type of the tool of that name, if it is one without a schema."""
    for tool in tools:
        if isinstance(tool, HostedTool) and tool.native.get("name") == name:
            return tool.kind
    return None
