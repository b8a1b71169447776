"""Tools and tool choice, read and written, and the JSON Schemas of strict tools.

A tool with a schema is a function. Every other type is a tool of the vendor: it is kept whole, with its use where other
protocols may have the same tool, or with a function in its place if the client runs it. The writer sends tools of other
vendors as tools with the same use, if the upstream has them. MCP servers have their own list, and a toolset names
each.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec

from dragoman._ir.losses import Ledger, child
from dragoman._ir.native import written
from dragoman._ir.request import Request
from dragoman._ir.shape import ARRAY, BOOLEAN, OBJECT, STRING, extra_members, read_members
from dragoman._ir.tools import CodeExecution, FunctionTool, HostedTool, McpServer, Tool, ToolChoice, WebSearch
from dragoman._wire.json import JSON, JSONObject, encode_text, leaves
from dragoman.codec import Capabilities
from dragoman.protocols.anthropic_messages.checks import (
    CHECKS,
    invalid_request,
    read_cache_mark,
    text_or_empty,
    wrong_type,
)
from dragoman.protocols.anthropic_messages.client_tools import fallback_schema
from dragoman.protocols.anthropic_messages.request_messages_out import write_cache_mark
from dragoman.protocols.anthropic_messages.shapes import MCP_SERVER_SHAPE, TOOL_SHAPE, WEB_SEARCH_SHAPE
from dragoman.protocols.anthropic_messages.tables import NAME, TOOL_CHOICE_NAMES, TOOL_CHOICES


def read_tools(body: JSONObject, request_extra: JSONObject) -> list[Tool]:
    """Return the tools of a body. request_extra: collects the extra members of MCP servers."""
    tools = CHECKS.objects(body, "tools", "")
    servers = _read_mcp_servers(body, request_extra) if "mcp_servers" in body else {}
    read = [read_tool(tool, f"/tools/{index}", servers) for index, tool in enumerate(tools)]
    if not servers:
        return read
    with_toolset = {tool.get("mcp_server_name") for tool in tools if tool.get("type") == "mcp_toolset"}
    for index, server in enumerate(servers.values()):
        if server["name"] not in with_toolset:
            # The older form: a server without a toolset offers all its tools.
            native = {key: value for key, value in server.items() if key != "authorization_token"}
            use = _read_mcp_server({}, server)
            read.append(HostedTool(NAME, "mcp_server", native, f"/mcp_servers/{index}", use))
    return read


def read_tool(tool: JSONObject, path: str, servers: dict[str, JSONObject]) -> Tool:
    """Return one tool. servers: the MCP servers by name."""
    name, description, schema = tool.get("name"), tool.get("description"), tool.get("input_schema")
    if len(tool) == 3 and type(name) is type(description) is str and type(schema) is dict:
        # A shortcut for nearly all tools: only these three.
        return FunctionTool(name, description, schema, path=path, native=tool)
    kind = CHECKS.optional(tool, "type", path, STRING)
    if kind is None or kind == "custom":
        return _read_function(tool, path, tool)
    if kind.startswith("web_search_"):
        return HostedTool(NAME, kind, tool, path, _read_web_search(tool, path))
    if kind.startswith("code_execution_"):
        return HostedTool(NAME, kind, tool, path, CodeExecution())
    if kind == "mcp_toolset":
        server = servers.get(CHECKS.required(tool, "mcp_server_name", path, STRING))
        return HostedTool(NAME, kind, tool, path, None if server is None else _read_mcp_server(tool, server))
    fallback: FunctionTool | None = None
    described = fallback_schema(tool, kind)
    if described is not None:
        description, schema = described
        # Its cache mark is that of the tool itself, which may be dropped.
        replaced = {"description": description, "input_schema": schema, "strict": None, "cache_control": None}
        function = {**tool, **replaced}
        fallback = _read_function(function, path)
    return HostedTool(NAME, kind, tool, path, function_fallback=fallback)


def _read_function(tool: JSONObject, path: str, native: JSONObject | None = None) -> FunctionTool:
    return FunctionTool(
        CHECKS.required(tool, "name", path, STRING),
        CHECKS.optional(tool, "description", path, STRING),
        CHECKS.optional(tool, "input_schema", path, OBJECT),
        CHECKS.optional(tool, "strict", path, BOOLEAN),
        cache=read_cache_mark(tool, path),
        path=path,
        deferred=CHECKS.optional(tool, "defer_loading", path, BOOLEAN),
        examples=CHECKS.optional(tool, "input_examples", path, ARRAY),
        native=native,
        shape=TOOL_SHAPE,
    )


def _read_web_search(tool: JSONObject, path: str) -> WebSearch:
    read_members(tool, WEB_SEARCH_SHAPE, wrong_type, path)  # checks the types
    allowed, blocked = tool.get("allowed_domains"), tool.get("blocked_domains")
    location = tool.get("user_location") or {}
    return WebSearch(
        None if allowed is None else tuple(allowed),
        None if blocked is None else tuple(blocked),
        tool.get("max_uses"),
        {key: value for key, value in location.items() if value is not None} or None,
    )


def _read_mcp_servers(body: JSONObject, request_extra: JSONObject) -> dict[str, JSONObject]:
    """Return the MCP servers by name."""
    servers: dict[str, JSONObject] = {}
    extras: list[JSONObject] = []
    for index, server in enumerate(CHECKS.objects(body, "mcp_servers", "")):
        path = f"/mcp_servers/{index}"
        CHECKS.required(server, "url", path, STRING)
        CHECKS.optional(server, "authorization_token", path, STRING)
        servers[CHECKS.required(server, "name", path, STRING)] = server
        extra = extra_members(server, MCP_SERVER_SHAPE)
        if extra:
            extras.append(extra)
    if extras:
        request_extra["mcp_servers"] = extras
    return servers


def _read_mcp_server(toolset: JSONObject, server: JSONObject) -> McpServer | None:
    """Return the server with its allowed tools, None if other protocols have no counterpart of its settings."""
    allowed: tuple[str, ...] | None = None
    configs = toolset.get("configs")
    enabled = {
        name: config.get("enabled")
        for name, config in (configs.items() if type(configs) is dict else ())
        if type(config) is dict
    }
    default = toolset.get("default_config")
    if type(default) is dict and default.get("enabled") is False:
        allowed = tuple([name for name, is_enabled in enabled.items() if is_enabled])
    elif False in enabled.values():
        return None  # no other protocol has a list of forbidden tools
    older = server.get("tool_configuration")
    if type(older) is dict:
        if older.get("enabled") is False:
            return None
        if allowed is None and type(older.get("allowed_tools")) is list:
            allowed = tuple(older["allowed_tools"])
    return McpServer(server["name"], server["url"], server.get("authorization_token"), allowed)


def read_tool_choice(choice: JSONObject, tools: list[Tool]) -> tuple[ToolChoice, bool | None]:
    """Return the choice, and True if the model may call several tools in parallel: Messages has both in one object."""
    path = "/tool_choice"
    single = choice.get("disable_parallel_tool_use")
    parallel = None if single is None else not single
    mode = TOOL_CHOICES.get(text_or_empty(choice.get("type")))
    if mode is None:
        raise invalid_request(f"{path}/type", "Input should be 'auto', 'any', 'tool' or 'none'")
    if mode != "named":
        return ToolChoice(mode, path=path), parallel
    name = CHECKS.required(choice, "name", path, STRING)
    hosted = [tool.kind for tool in tools if isinstance(tool, HostedTool) and tool.native.get("name") == name]
    return ToolChoice(mode, name, path=path, hosted=hosted[0] if hosted else None), parallel


# Written.


def write_tools(request: Request, capabilities: Capabilities, ledger: Ledger) -> JSONObject:
    """Return the members `tools`, `tool_choice` and `mcp_servers`, if the request has them."""
    if not request.tools and request.tool_choice is None and "max_tool_calls" not in request.params:
        return {}
    return _ToolWriter(request, bool(request.native), capabilities, ledger).write()


# `require_approval` of MCP tools in other protocols with the meaning that this protocol always has.
_NO_APPROVAL = "never"

# Where a request of this protocol defines tools outside of `tools`: they are written again there.
_OTHER_PLACES = ("/messages/", "/mcp_servers/")


class _ToolWriter(msgspec.Struct):
    """Writes the tools of one request.

    servers: the MCP servers that tools were written with.
    hosted: the hosted tools with a name that were written, by their type in the request.
    """

    request: Request
    native: bool
    capabilities: Capabilities
    ledger: Ledger
    servers: list[JSONObject] = []
    hosted: dict[str, JSONObject] = {}

    def write(self) -> JSONObject:
        choice = self.request.tool_choice
        tools = [block for block in map(self._write_tool, self.request.tools) if block is not None]
        self._limit_calls()
        if not tools:
            if choice is not None and choice.mode not in ("auto", "none"):
                self.ledger.dropped(choice.path, "no tool can be called")
            return {}
        out: JSONObject = {"tools": tools}
        tool_choice = None if choice is None else self._write_choice(choice, tools)
        if self.request.parallel_tool_calls is False:
            # The flag is a member of the choice, and "auto" is the default. "none" does not have the flag (anthropic
            # 2.12.0, types/tool_choice_none_param.py).
            tool_choice = tool_choice or {"type": "auto"}
            if tool_choice["type"] != "none":
                tool_choice["disable_parallel_tool_use"] = True
        if tool_choice is not None:
            out["tool_choice"] = tool_choice
        if self.servers:
            out["mcp_servers"] = self.servers
        return out

    def _write_choice(self, choice: ToolChoice, written: list[JSONObject]) -> JSONObject:
        kind = TOOL_CHOICE_NAMES[choice.mode]
        if kind != "tool":
            return {"type": kind}
        name = choice.name
        if choice.hosted is not None:
            name = self.hosted.get(choice.hosted, {}).get("name")
        if name is None or all(tool.get("name") != name for tool in written):
            self.ledger.altered(choice.path, "the forced tool is not among those sent")
            return {"type": "any"}
        return {"type": "tool", "name": name}

    def _write_tool(self, tool: Tool) -> JSONObject | None:
        if self.native and tool.path.startswith(_OTHER_PLACES):
            return None
        if isinstance(tool, FunctionTool):
            return written(tool, self._write_function) if self.native else self._write_function(tool)
        if not isinstance(tool, HostedTool):
            self.ledger.unknown_kind(tool.path, "the upstream has no tools with free-text input")
            return None
        if self.native:
            block: JSONObject = tool.native
        else:
            need, write = _USES.get(type(tool.use), ("", None))
            if tool.use is None or write is None or need not in self.capabilities.hosted_tools:
                self.ledger.add(tool.loss_code, tool.path, f"the upstream does not run the tool {tool.kind}")
                return None
            block = write(self, tool, tool.use)
            use = [msgspec.structs.asdict(tool.use), getattr(tool.use, "bearer", None)]
            if _has_unmapped_fields(tool, [block, self.servers[-1:], *use]):
                self.ledger.altered(tool.path, "only what the tools have in common was kept")
        if "name" in block:
            self.hosted[tool.kind] = block
        return block

    def _write_function(self, tool: FunctionTool) -> JSONObject:
        schema: JSON = tool.parameters
        if schema is None:
            schema = {"type": "object", "properties": {}}
        elif type(schema) is dict and "type" not in schema:
            schema = {"type": "object", **schema}  # required (anthropic 2.12.0, types/tool_param.py)
        if tool.strict:
            # Strict tools have the limits of structured output.
            schema = fit_schema(schema, lambda place, detail: self.ledger.altered(tool.path, detail))
        block: JSONObject = {"name": tool.name}
        if tool.description:
            block["description"] = tool.description
        block["input_schema"] = schema
        if tool.strict is not None:
            block["strict"] = tool.strict
        if tool.deferred and not self.native:
            # Without a tool search of this vendor a deferred tool would never be found.
            self.ledger.dropped(
                f"{tool.path}/defer_loading",
                "the tool is sent immediately: without a tool search it would never be found",
            )
        if tool.cache is not None:
            block["cache_control"] = write_cache_mark(tool.cache)
        return block

    def _write_web_search(self, tool: HostedTool, use: WebSearch) -> JSONObject:
        block: JSONObject = {"type": "web_search_20250305", "name": "web_search"}
        if use.max_uses is not None:
            block["max_uses"] = use.max_uses
        if use.allowed_domains is not None:
            block["allowed_domains"] = list(use.allowed_domains)
        if use.blocked_domains is not None:
            if use.allowed_domains is not None:
                # "Cannot be used alongside `allowed_domains`" (anthropic 2.12.0, web_search_tool_20250305_param.py)
                self.ledger.dropped(
                    tool.path, "domains can be allowed or blocked, not both: the allowed ones were sent"
                )
            else:
                block["blocked_domains"] = list(use.blocked_domains)
        if use.location is not None:
            block["user_location"] = {"type": "approximate", **use.location}
        if use.context_size is not None:
            self.ledger.dropped(f"{tool.path}/search_context_size", "Messages has no such setting")
        return block

    def _write_code_execution(self, tool: HostedTool, use: CodeExecution) -> JSONObject:
        return {"type": "code_execution_20250825", "name": "code_execution"}

    def _write_mcp_toolset(self, tool: HostedTool, use: McpServer) -> JSONObject:
        server: JSONObject = {"type": "url", "name": use.label, "url": use.url}
        if use.authorization is not None:
            server["authorization_token"] = use.authorization
        self.servers.append(server)
        toolset: JSONObject = {"type": "mcp_toolset", "mcp_server_name": use.label}
        if use.allowed_tools is not None:
            toolset["default_config"] = {"enabled": False}
            toolset["configs"] = {name: {"enabled": True} for name in use.allowed_tools}
        return toolset

    def _limit_calls(self) -> None:
        """Write the limit for all calls of hosted tools as a limit of each tool that has one."""
        limit = self.request.params.get("max_tool_calls")
        if limit is None:
            return
        path = self.request.path_of("max_tool_calls")
        searches = [block for block in self.hosted.values() if block["name"] == "web_search"]
        for block in searches:
            block["max_uses"] = min(block.get("max_uses", limit), limit)
        if searches:
            self.ledger.altered(path, "sent as the limit of each tool that has one")
        else:
            self.ledger.dropped(path, "no tool that was sent has a limit")


# Use -> the capability that the upstream needs, and the writer.
_USES: dict[type, tuple[str, Callable[[_ToolWriter, HostedTool, Any], JSONObject]]] = {
    WebSearch: ("web_search", _ToolWriter._write_web_search),
    CodeExecution: ("code_execution", _ToolWriter._write_code_execution),
    McpServer: ("mcp", _ToolWriter._write_mcp_toolset),
}


def _has_unmapped_fields(tool: HostedTool, written: list[JSON]) -> bool:
    """Return True if the native tool has a value that is neither in `written` nor the default."""
    known = {"None", _NO_APPROVAL, tool.kind, *map(str, leaves(written))}
    return any(str(leaf) not in known for leaf in leaves(tool.native))


# Schemas.

# Receives each change of a schema: its JSON Pointer and a sentence.
SchemaNote = Callable[[str, str], None]

_KEYWORDS = frozenset(
    {
        "$schema",
        "$ref",
        "$defs",
        "definitions",
        "type",
        "title",
        "description",
        "default",
        "enum",
        "const",
        "anyOf",
        "allOf",
        "properties",
        "required",
        "additionalProperties",
        "items",
    }
)

# Formats of strings (anthropic 2.12.0, lib/_parse/_transform.py).
_FORMATS = frozenset(
    {"date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"}
)
# We do not send patterns with lookaround and the like, word boundaries, back references or large counts.
_UNSUPPORTED_PATTERN = r"\(\?|\\[bBpPk1-9]|\{\d{3,}|\{\d+,\d{3,}"
# Keywords that are sent with some values only.
_PARTIAL_KEYWORDS: dict[str, Callable[[JSON], bool]] = {
    "format": lambda value: type(value) is str and value in _FORMATS,
    "minItems": lambda value: value in (0, 1),
    "pattern": lambda value: type(value) is str and re.search(_UNSUPPORTED_PATTERN, value) is None,
    "enum": lambda value: type(value) is list and not any(type(item) in (dict, list) for item in value),
}

_SCHEMA_LISTS = ("anyOf", "allOf")
_SCHEMA_MAPS = ("properties", "$defs", "definitions")


def fit_schema(schema: JSON, note: SchemaNote, path: str = "") -> JSON:
    """Return a copy of a schema in the subset that structured output supports. note: receives every change.

    Unsupported keywords go into the description, where the model reads them. Nothing is validated.
    """
    if type(schema) is not dict:
        return schema
    out: JSONObject = {}
    described: list[str] = []
    for key, value in schema.items():
        if _PARTIAL_KEYWORDS[key](value) if key in _PARTIAL_KEYWORDS else key in _KEYWORDS:
            out[key] = value
        elif key == "oneOf" and "anyOf" not in schema:
            out["anyOf"] = value
            note(child(path, key), "sent as anyOf: the upstream's schemas have no oneOf")
        else:
            described.append(f"{key}: {encode_text(value)}")
            note(child(path, key), "added to the description: the upstream's schemas have no such keyword")
    if described:
        keywords = f"({'; '.join(described)})"
        description = out.get("description")
        out["description"] = (
            f"{description} {keywords}" if type(description) is str and description else keywords
        )
    _fit_subschemas(out, note, path)
    _close_object(out, note, path)
    return out


def _fit_subschemas(out: JSONObject, note: SchemaNote, path: str) -> None:
    if "items" in out:
        out["items"] = fit_schema(out["items"], note, f"{path}/items")
    for key in _SCHEMA_LISTS:
        if type(out.get(key)) is list:
            out[key] = [
                fit_schema(item, note, f"{path}/{key}/{index}") for index, item in enumerate(out[key])
            ]
    for key in _SCHEMA_MAPS:
        if type(out.get(key)) is dict:
            out[key] = {
                name: fit_schema(item, note, child(f"{path}/{key}", name)) for name, item in out[key].items()
            }


def _close_object(out: JSONObject, note: SchemaNote, path: str) -> None:
    """Set additionalProperties to false, as anthropic 2.12.0 does for every object (lib/_parse/_transform.py)."""
    kind = out.get("type")
    if not kind:
        is_object = "properties" in out
    else:
        is_object = kind == "object" or (type(kind) is list and "object" in kind)
    if not is_object or out.get("additionalProperties") is False:
        return
    at = f"{path}/additionalProperties" if "additionalProperties" in out else path
    out["additionalProperties"] = False
    note(at, "objects were closed (additionalProperties: false): the upstream requires it")
