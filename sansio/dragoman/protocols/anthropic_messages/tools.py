"""Tools and the choice among them, for an upstream.

Strategy: functions are printed as they are. Of the tools that another vendor runs, those with the same use are
asked of this one, if the upstream runs it; all others go into the ledger.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from dragoman._ir.losses import Ledger, LossCode, child
from dragoman._ir.request import (
    CodeExecution,
    FunctionTool,
    HostedTool,
    McpServer,
    Request,
    Tool,
    ToolChoice,
    WebSearch,
)
from dragoman._wire.json import JSON, JSONObject, encode_text
from dragoman.codec import Capabilities
from dragoman.protocols.anthropic_messages.checks import (
    KNOWN_MCP_SERVER,
    KNOWN_TOOL,
    KNOWN_TOOL_CHOICE,
    collect_extra,
    extra_fields,
    invalid_request,
    object_list,
    optional_field,
    optional_object,
    read_cache_mark,
    required_field,
)
from dragoman.protocols.anthropic_messages.client_tools import DESCRIBED_FIELDS, fallback_schema
from dragoman.protocols.anthropic_messages.messages_out import CacheControlWriter, merge_extra
from dragoman.protocols.anthropic_messages.tables import NAME


def read_tools(body: JSONObject, left: JSONObject) -> list[Tool]:
    """The tools of a body. left: takes unknown fields of MCP servers."""
    tools = object_list(body, "tools", "") if body.get("tools") else []
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
    kind = optional_field(tool, "type", path, str, "string")
    if kind is not None and kind != "custom":
        return _hosted(tool, kind, path, servers)
    name = required_field(tool, "name", path, str, "string")
    cache, extra = read_cache_mark(tool, path, extra_fields(tool, KNOWN_TOOL))
    return FunctionTool(
        name,
        optional_field(tool, "description", path, str, "string"),
        optional_field(tool, "input_schema", path, dict, "dictionary"),
        optional_field(tool, "strict", path, bool, "boolean"),
        cache=cache,
        extra=extra,
        path=path,
        deferred=optional_field(tool, "defer_loading", path, bool, "boolean"),
        examples=optional_field(tool, "input_examples", path, list, "list"),
    )


# --- tools without a schema -------------------------------------------------------------------------------


def _hosted(tool: JSONObject, kind: str, path: str, servers: dict[str, JSONObject]) -> HostedTool:
    if kind.startswith("web_search_"):
        return HostedTool(NAME, kind, tool, path, _web_search(tool, path))
    if kind.startswith("code_execution_"):
        return HostedTool(NAME, kind, tool, path, CodeExecution())
    if kind == "mcp_toolset":
        server = servers.get(required_field(tool, "mcp_server_name", path, str, "string"))
        return HostedTool(NAME, kind, tool, path, None if server is None else _mcp_server(tool, server))
    return HostedTool(NAME, kind, tool, path, function_fallback=_stand_in(tool, kind, path))


def _web_search(tool: JSONObject, path: str) -> WebSearch:
    allowed = optional_field(tool, "allowed_domains", path, list, "list")
    blocked = optional_field(tool, "blocked_domains", path, list, "list")
    location = optional_object(tool, "user_location", path)
    return WebSearch(
        None if allowed is None else tuple(allowed),
        None if blocked is None else tuple(blocked),
        optional_field(tool, "max_uses", path, int, "integer"),
        {key: value for key, value in location.items() if value is not None} or None,
    )


def _stand_in(tool: JSONObject, kind: str, path: str) -> FunctionTool | None:
    """The same tool as a function, for one that the client runs."""
    found = fallback_schema(tool, kind)
    if found is None:
        return None
    cache, extra = read_cache_mark(tool, path, extra_fields(tool, KNOWN_TOOL | DESCRIBED_FIELDS))
    description, schema = found
    return FunctionTool(
        required_field(tool, "name", path, str, "string"),
        description,
        schema,
        cache=cache,
        extra=extra,
        path=path,
        deferred=optional_field(tool, "defer_loading", path, bool, "boolean"),
        examples=optional_field(tool, "input_examples", path, list, "list"),
    )


# --- MCP servers ------------------------------------------------------------------------------------------


def _servers(body: JSONObject, left: JSONObject) -> dict[str, JSONObject]:
    """The servers by name."""
    servers: dict[str, JSONObject] = {}
    unknown: list[JSONObject] = []
    for index, server in enumerate(object_list(body, "mcp_servers", "")):
        path = f"/mcp_servers/{index}"
        required_field(server, "url", path, str, "string")
        servers[required_field(server, "name", path, str, "string")] = server
        extra = extra_fields(server, KNOWN_MCP_SERVER)
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
    choice = optional_object(body, "tool_choice", "")
    if not choice:
        return None, None
    single = optional_field(choice, "disable_parallel_tool_use", path, bool, "boolean")
    parallel = None if single is None else not single
    collect_extra(left, "tool_choice", extra_fields(choice, KNOWN_TOOL_CHOICE))
    kind: JSON = choice.get("type")
    if kind == "auto":
        return ToolChoice("auto", path=path), parallel
    if kind == "any":
        return ToolChoice("required", path=path), parallel
    if kind == "none":
        return ToolChoice("none", path=path), parallel
    if kind == "tool":
        name = required_field(choice, "name", path, str, "string")
        return ToolChoice("named", name, path=path, hosted=_hosted_kind(name, tools)), parallel
    raise invalid_request(f"{path}/type", "Input should be 'auto', 'any', 'tool' or 'none'")


def _hosted_kind(name: str, tools: list[Tool]) -> str | None:
    """The type of the tool of that name, if it is one without a schema."""
    for tool in tools:
        if isinstance(tool, HostedTool) and tool.native.get("name") == name:
            return tool.kind
    return None


def write_tools(
    request: Request, capabilities: Capabilities, marks: CacheControlWriter, ledger: Ledger
) -> JSONObject:
    """The fields about tools: `tools`, `tool_choice`, `mcp_servers`."""
    if not request.tools and request.tool_choice is None and "max_tool_calls" not in request.params:
        return {}
    return _ToolWriter(request, capabilities, marks, ledger).write()


# Calls of an MCP server's tools that nobody is asked about first, as they are in this protocol.
_NEVER = "never"

# Where a request of this protocol names tools that are printed there again.
_ELSEWHERE = ("/messages/", "/mcp_servers/")

# Mode of a choice -> its type. There is no list of allowed tools, see ToolLimits.
_CHOICES = {"auto": "auto", "none": "none", "required": "any", "named": "tool"}


class _ToolWriter:
    __slots__ = ("_hosted", "_ledger", "_marks", "_request", "_same_protocol", "_servers", "_target")

    def __init__(
        self, request: Request, capabilities: Capabilities, marks: CacheControlWriter, ledger: Ledger
    ) -> None:
        self._request = request
        self._same_protocol = request.protocol == NAME
        self._target = capabilities
        self._marks = marks
        self._ledger = ledger
        self._servers: list[JSONObject] = []
        self._hosted: dict[str, JSONObject] = {}  # the written ones that have a name, by their foreign type

    def write(self) -> JSONObject:
        choice = self._request.tool_choice
        written = [block for block in map(self._tool, self._request.tools) if block is not None]
        self._limit_calls()
        if not written:
            if choice is not None and choice.mode not in ("auto", "none"):
                self._ledger.dropped(_choice_path(choice), "there is no tool that the upstream knows")
            return {}
        out: JSONObject = {"tools": written}
        chosen = None if choice is None else self._choice(choice, written)
        if self._request.parallel_tool_calls is False:
            # The flag needs a choice to sit on; "auto" asks for nothing. "none" has no flag, and needs none.
            chosen = chosen or {"type": "auto"}
            if chosen["type"] != "none":
                chosen["disable_parallel_tool_use"] = True
        if chosen is not None:
            out["tool_choice"] = chosen
        if self._servers:
            out["mcp_servers"] = self._servers
        return out

    # --- the choice ---------------------------------------------------------------------------------------

    def _choice(self, choice: ToolChoice, written: list[JSONObject]) -> JSONObject:
        kind = _CHOICES[choice.mode]
        if kind != "tool":
            return {"type": kind}
        name = choice.name
        if choice.hosted is not None:
            name = self._hosted.get(choice.hosted, {}).get("name")
        if name is None or all(tool.get("name") != name for tool in written):
            self._ledger.altered(_choice_path(choice), "the demanded tool is not among those sent")
            return {"type": "any"}
        return {"type": "tool", "name": name}

    # --- tools --------------------------------------------------------------------------------------------

    def _tool(self, tool: Tool) -> JSONObject | None:
        if self._same_protocol and tool.path.startswith(_ELSEWHERE):
            return None
        if isinstance(tool, FunctionTool):
            return self._function(tool)
        if self._same_protocol and isinstance(tool, HostedTool):
            if "name" in tool.native:
                self._hosted[tool.kind] = tool.native
            native: JSONObject = tool.native
            return native
        if not isinstance(tool, HostedTool):
            self._ledger.add(
                LossCode.UNKNOWN_KIND, tool.path, "the upstream has no tools that take free text"
            )
            return None
        for kind, need, write in _USES:
            if tool.use is not None and isinstance(tool.use, kind) and need in self._target.hosted_tools:
                block = write(self, tool, tool.use)
                if "name" in block:
                    self._hosted[tool.kind] = block
                told = [block, self._servers[-1:], msgspec.structs.asdict(tool.use)]
                if _says_more(tool, told):
                    self._ledger.altered(tool.path, "only what the tools have in common was carried")
                return block
        self._ledger.add(tool.loss_code, tool.path, f"the upstream does not run the tool {tool.kind}")
        return None

    def _function(self, tool: FunctionTool) -> JSONObject:
        schema: JSON = tool.parameters
        if schema is None:
            schema = {"type": "object", "properties": {}}
        elif type(schema) is dict and "type" not in schema:
            schema = {"type": "object", **schema}  # "input_schema.type: Field required"
        if tool.strict:
            # A tool with strict inputs takes what structured output takes.
            schema = fit_schema(schema, lambda place, detail: self._ledger.altered(tool.path, detail))
        block: JSONObject = {"name": tool.name}
        if tool.description is not None:
            block["description"] = tool.description
        block["input_schema"] = schema
        if tool.strict is not None:
            block["strict"] = tool.strict
        if self._same_protocol:
            if tool.deferred is not None:
                block["defer_loading"] = tool.deferred
            if tool.examples is not None:
                block["input_examples"] = tool.examples
        elif tool.deferred:
            # Without a tool search of this vendor a deferred tool would never be found.
            self._ledger.dropped(
                f"{tool.path}/defer_loading", "the tool is shown at once: nothing could find it"
            )
        if tool.cache is not None:
            self._marks.put(block, tool.cache)
        if self._same_protocol:
            merge_extra(block, tool.extra)
        return block

    def _web_search(self, tool: HostedTool, use: WebSearch) -> JSONObject:
        block: JSONObject = {"type": "web_search_20250305", "name": "web_search"}
        if use.max_uses is not None:
            block["max_uses"] = use.max_uses
        if use.allowed_domains is not None:
            block["allowed_domains"] = list(use.allowed_domains)
        if use.blocked_domains is not None:
            if use.allowed_domains is not None:
                # "Cannot specify both allowed_domains and blocked_domains".
                self._ledger.dropped(tool.path, "domains are blocked, or allowed: the allowed ones were sent")
            else:
                block["blocked_domains"] = list(use.blocked_domains)
        if use.location is not None:
            block["user_location"] = {"type": "approximate", **use.location}
        if use.context_size is not None:
            self._ledger.dropped(f"{tool.path}/search_context_size", "Messages has no such setting")
        return block

    def _code_execution(self, tool: HostedTool, use: CodeExecution) -> JSONObject:
        return {"type": "code_execution_20250825", "name": "code_execution"}

    def _mcp(self, tool: HostedTool, use: McpServer) -> JSONObject:
        server: JSONObject = {"type": "url", "name": use.label, "url": use.url}
        if use.authorization is not None:
            server["authorization_token"] = use.authorization
        self._servers.append(server)
        toolset: JSONObject = {"type": "mcp_toolset", "mcp_server_name": use.label}
        if use.allowed_tools is not None:
            toolset["default_config"] = {"enabled": False}
            toolset["configs"] = {name: {"enabled": True} for name in use.allowed_tools}
        return toolset

    def _limit_calls(self) -> None:
        """A limit for all calls of the provider's tools becomes one for each tool that has a limit."""
        most = self._request.params.get("max_tool_calls")
        if most is None:
            return
        path = self._request.param_paths.get("max_tool_calls", "/max_tool_calls")
        searches = [block for block in self._hosted.values() if block["name"] == "web_search"]
        for block in searches:
            block["max_uses"] = min(block.get("max_uses", most), most)
        if searches:
            self._ledger.altered(path, "sent as the limit of each tool that has one")
        else:
            self._ledger.dropped(path, "no tool that was sent has a limit")


_USES: tuple[tuple[type, str, Callable[[_ToolWriter, HostedTool, Any], JSONObject]], ...] = (
    (WebSearch, "web_search", _ToolWriter._web_search),
    (CodeExecution, "code_execution", _ToolWriter._code_execution),
    (McpServer, "mcp", _ToolWriter._mcp),
)


def _says_more(tool: HostedTool, told: list[JSON]) -> bool:
    """Whether the tool as it came says anything beyond what was told, or entered in the ledger by itself."""
    known = {"None", _NEVER, tool.kind, *map(str, _leaves(told))}
    return any(str(leaf) not in known for leaf in _leaves(tool.native))


def _leaves(value: JSON) -> Iterator[JSON]:
    if isinstance(value, dict):
        for member in value.values():
            yield from _leaves(member)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _leaves(item)
    else:
        yield value


def _choice_path(choice: ToolChoice) -> str:
    return choice.path or "/tool_choice"


# Takes the place in the schema (a JSON Pointer) and a sentence.
SchemaNote = Callable[[str, str], None]

_KEPT = frozenset(
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

# Keywords that are known with some values only.
_FORMATS = frozenset(
    {"date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"}
)

# Lookaround and its like, word boundaries, back references, and large counts are not known in patterns.
_HARD_PATTERN = re.compile(r"\(\?|\\[bBpPk1-9]|\{\d{3,}|\{\d+,\d{3,}")

_SOMETIMES: dict[str, Callable[[JSON], bool]] = {
    "format": lambda value: value in _FORMATS,
    "minItems": lambda value: value in (0, 1),
    "pattern": lambda value: type(value) is str and _HARD_PATTERN.search(value) is None,
    "enum": lambda value: type(value) is list and not any(type(item) in (dict, list) for item in value),
}

_LISTS = ("anyOf", "allOf")

_MAPS = ("properties", "$defs", "definitions")


def fit_schema(schema: JSON, note: SchemaNote, path: str = "") -> JSON:
    """The schema as the upstream takes it. note: is told of every change."""
    if type(schema) is not dict:
        return schema
    out: JSONObject = {}
    told: list[str] = []
    for key, value in schema.items():
        if key in _SOMETIMES:
            known = _SOMETIMES[key](value)
        else:
            known = key in _KEPT
        if known:
            out[key] = value
        elif key == "oneOf" and "anyOf" not in schema:
            out["anyOf"] = value
            note(child(path, key), "sent as anyOf: the upstream's schemas have no oneOf")
        else:
            told.append(f"{key}: {encode_text(value)}")
            note(child(path, key), "told in the description: the upstream's schemas have no such keyword")
    if told:
        words = f"({'; '.join(told)})"
        given = out.get("description")
        out["description"] = f"{given} {words}" if type(given) is str and given else words
    _fit_inner(out, note, path)
    if _is_object(out):
        _close(out, note, path)
    return out


def _fit_inner(out: JSONObject, note: SchemaNote, path: str) -> None:
    if "items" in out:
        out["items"] = fit_schema(out["items"], note, f"{path}/items")
    for key in _LISTS:
        if type(out.get(key)) is list:
            out[key] = [
                fit_schema(item, note, f"{path}/{key}/{index}") for index, item in enumerate(out[key])
            ]
    for key in _MAPS:
        if type(out.get(key)) is dict:
            at = f"{path}/{key}"
            out[key] = {name: fit_schema(item, note, child(at, name)) for name, item in out[key].items()}


def _is_object(schema: JSONObject) -> bool:
    kind = schema.get("type")
    return (
        kind == "object" or (type(kind) is list and "object" in kind) or (not kind and "properties" in schema)
    )


def _close(out: JSONObject, note: SchemaNote, path: str) -> None:
    """Allow no other members."""
    if out.get("additionalProperties") is False:
        return
    at = f"{path}/additionalProperties" if "additionalProperties" in out else path
    out["additionalProperties"] = False
    note(at, "objects were closed (additionalProperties: false): the upstream demands it")
