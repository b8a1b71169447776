"""Tools and the choice among them, for an upstream.

Strategy: functions are printed as they are. Of the tools that another vendor runs, those with the same use are
asked of this one, if the upstream runs it; all others go into the ledger.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from dragoman._ir.losses import Ledger, LossCode
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
from dragoman._wire.json import JSON, JSONObject
from dragoman.codec import Target
from dragoman.protocols.anthropic_messages.cache import Marks
from dragoman.protocols.anthropic_messages.conversation import merge
from dragoman.protocols.anthropic_messages.schema import fit_schema
from dragoman.protocols.anthropic_messages.tables import NAME


def write_tools(request: Request, target: Target, marks: Marks, ledger: Ledger) -> JSONObject:
    """The fields about tools: `tools`, `tool_choice`, `mcp_servers`."""
    if not request.tools and request.tool_choice is None and "max_tool_calls" not in request.params:
        return {}
    return _Writer(request, target, marks, ledger).write()


# Calls of an MCP server's tools that nobody is asked about first, as they are in this protocol.
_NEVER = "never"

# Where a request of this protocol names tools that are printed there again.
_ELSEWHERE = ("/messages/", "/mcp_servers/")

# Mode of a choice -> its type. There is no list of allowed tools, see ToolRule.
_CHOICES = {"auto": "auto", "none": "none", "required": "any", "named": "tool"}


class _Writer:
    __slots__ = ("_hosted", "_ledger", "_marks", "_own", "_request", "_servers", "_target")

    def __init__(self, request: Request, target: Target, marks: Marks, ledger: Ledger) -> None:
        self._request = request
        self._own = request.protocol == NAME
        self._target = target
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
                self._ledger.dropped(_path(choice), "there is no tool that the upstream knows")
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
            self._ledger.altered(_path(choice), "the demanded tool is not among those sent")
            return {"type": "any"}
        return {"type": "tool", "name": name}

    # --- tools --------------------------------------------------------------------------------------------

    def _tool(self, tool: Tool) -> JSONObject | None:
        if self._own and tool.path.startswith(_ELSEWHERE):
            return None
        if isinstance(tool, FunctionTool):
            return self._function(tool)
        if self._own and isinstance(tool, HostedTool):
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
            if tool.use is not None and isinstance(tool.use, kind) and need in self._target.hosted:
                block = write(self, tool, tool.use)
                if "name" in block:
                    self._hosted[tool.kind] = block
                told = [block, self._servers[-1:], msgspec.structs.asdict(tool.use)]
                if _says_more(tool, told):
                    self._ledger.altered(tool.path, "only what the tools have in common was carried")
                return block
        self._ledger.add(tool.loss, tool.path, f"the upstream does not run the tool {tool.kind}")
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
        if self._own:
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
        if self._own:
            merge(block, tool.extra)
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


_USES: tuple[tuple[type, str, Callable[[_Writer, HostedTool, Any], JSONObject]], ...] = (
    (WebSearch, "web_search", _Writer._web_search),
    (CodeExecution, "code_execution", _Writer._code_execution),
    (McpServer, "mcp", _Writer._mcp),
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


def _path(choice: ToolChoice) -> str:
    return choice.path or "/tool_choice"
