"""Tools and tool choice, read and written.

A tool object may have several kinds of tools: function declarations, and tools that the provider runs, each under its
own name. The latter are kept whole, with their use where other protocols may have the same tool.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from dragoman._ir.losses import Ledger, Loss, LossCode, child
from dragoman._ir.native import written
from dragoman._ir.request import Request
from dragoman._ir.shape import ARRAY, OBJECT, STRING, read_members
from dragoman._ir.tools import (
    CodeExecution,
    FunctionTool,
    HostedTool,
    McpServer,
    Tool,
    ToolChoice,
    ToolRef,
    WebSearch,
    member_path,
)
from dragoman._wire.json import JSON, JSONObject, invalid_value, leaves, wrong_type
from dragoman.protocols.gemini.capabilities import GeminiCapabilities as Capabilities
from dragoman.protocols.gemini.checks import CHECKS, objects
from dragoman.protocols.gemini.schemas import json_schema, openapi_schema
from dragoman.protocols.gemini.shapes import FUNCTION_SHAPE, MCP_SHAPE, SEARCH_SHAPE
from dragoman.protocols.gemini.tables import MODE_NAMES, MODES, NAME

_CHOICE_PATH = "/toolConfig/functionCallingConfig"


def read_tools(body: JSONObject, repairs: list[Loss]) -> list[Tool]:
    """Return the tools of a body. repairs: collects what their schemas lose."""
    tools: list[Tool] = []
    value = body.get("tools")
    if value is not None and type(value) not in (list, dict):
        raise wrong_type("/tools", "an array of tools", value)
    for index, tool in enumerate(objects(value)):
        for kind, inner in tool.items():
            at = child(f"/tools/{index}", kind)
            listed = [(each, f"{at}/{number}") for number, each in enumerate(objects(inner))]
            if kind == "functionDeclarations":
                tools += [_read_function(each, path, repairs) for each, path in listed]
            elif kind == "mcpServers":
                tools += [_read_mcp_server(each, path) for each, path in listed]
            elif inner is not None:
                tools.append(HostedTool(NAME, kind, {kind: inner}, at, _read_use(kind, inner, at)))
    return tools


def _read_function(tool: JSONObject, path: str, repairs: list[Loss]) -> FunctionTool:
    name = "parametersJsonSchema" if tool.get("parametersJsonSchema") is not None else "parameters"
    return FunctionTool(
        CHECKS.required(tool, "name", path, STRING),
        CHECKS.optional(tool, "description", path, STRING),
        json_schema(CHECKS.optional(tool, name, path, OBJECT), f"{path}/{name}", repairs),
        path=path,
        native=tool,
        shape=FUNCTION_SHAPE,
    )


def _read_use(kind: str, tool: JSON, path: str) -> WebSearch | CodeExecution | None:
    if kind == "codeExecution":
        return CodeExecution()
    if kind != "googleSearch" or type(tool) is not dict:
        return None
    read_members(tool, SEARCH_SHAPE, wrong_type, path)  # checks the types
    blocked = tool.get("excludeDomains")
    return WebSearch(blocked_domains=None if blocked is None else tuple(blocked))


def _read_mcp_server(server: JSONObject, path: str) -> HostedTool:
    """Return the server as a tool. Its use is None if other providers cannot reach it, as with further headers."""
    read_members(server, MCP_SHAPE, wrong_type, path)  # checks the types
    transport = server.get("streamableHttpTransport") or {}
    headers = {name.lower(): value for name, value in (transport.get("headers") or {}).items()}
    scheme, _, token = str(headers.pop("authorization", "Bearer ")).partition(" ")
    name, url, use = server.get("name"), transport.get("url"), None
    if name and url and not headers and scheme.lower() == "bearer":
        use = McpServer(name, url, token or None)
    return HostedTool(NAME, "mcpServers", {"mcpServers": [server]}, path, use)


def read_tool_choice(body: JSONObject, tools: list[Tool]) -> tuple[ToolChoice | None, list[Tool]]:
    """Return the choice, and the tools, which are strict if calls are validated."""
    config = (body.get("toolConfig") or {}).get("functionCallingConfig")
    if not config:
        return None, tools
    name = CHECKS.optional(config, "mode", _CHOICE_PATH, STRING)
    allowed = CHECKS.optional(config, "allowedFunctionNames", _CHOICE_PATH, ARRAY) or []
    mode = MODES.get((name or "AUTO").upper())
    if mode is None:
        raise invalid_value(f"{_CHOICE_PATH}/mode", f"one of {', '.join(MODES)}")
    if name is not None and name.upper() == "VALIDATED":
        tools = [
            msgspec.structs.replace(tool, strict=True) if type(tool) is FunctionTool else tool
            for tool in tools
        ]
    if not allowed or mode == "none":
        return (None if name is None else ToolChoice(mode, path=_CHOICE_PATH)), tools
    for index, each in enumerate(allowed):
        if type(each) is not str:
            raise wrong_type(f"{_CHOICE_PATH}/allowedFunctionNames/{index}", STRING.name, each)
    if mode == "required" and len(allowed) == 1:
        return ToolChoice("named", allowed[0], path=_CHOICE_PATH), tools
    refs = tuple(map(ToolRef, allowed))
    return ToolChoice("allowed", allowed=refs, required=mode == "required", path=_CHOICE_PATH), tools


# Written.


def write_tools(request: Request, capabilities: Capabilities, out: JSONObject, ledger: Ledger) -> None:
    """Put `tools` and `toolConfig` into `out`."""
    if not request.tools and request.tool_choice is None:
        return
    native = bool(request.native)
    functions: list[JSONObject] = []
    hosted: list[JSONObject] = []

    mixes = capabilities.mixed_tools or not any(isinstance(tool, FunctionTool) for tool in request.tools)

    def write(tool: FunctionTool) -> JSONObject:
        return _write_function(tool, capabilities, ledger)

    for tool in request.tools:
        if isinstance(tool, FunctionTool):
            functions.append(written(tool, write) if native else write(tool))
        elif not isinstance(tool, HostedTool):
            ledger.add(LossCode.UNKNOWN_KIND, tool.path, "the upstream has no tools with free-text input")
        elif tool.origin == NAME:
            hosted.append(tool.native)
        elif not mixes:
            ledger.dropped(tool.path, "the model accepts functions only without tools that it runs itself")
        else:
            hosted += _write_hosted(tool, capabilities, ledger)
    choice = request.tool_choice
    if not functions and not native and choice is not None and choice.mode not in ("auto", "none"):
        ledger.dropped(choice.path, "only functions can be forced in Gemini, and there is none")
    if not functions and not hosted:
        return
    out["tools"] = [*([{"functionDeclarations": functions}] if functions else []), *hosted]
    config = _write_choice(request, choice, ledger) if functions else None
    if config is not None:
        out["toolConfig"] = {"functionCallingConfig": config}
    if not native:
        _note_strictness(request.tools, "" if config is None else config["mode"], ledger)
    if functions and hosted and not native:
        # "Please enable tool_config.include_server_side_tool_invocations to use Built-in tools with Function calling."
        # (harness-sdk#3639, read 2026-11-22)
        out.setdefault("toolConfig", {})["includeServerSideToolInvocations"] = True


def _write_function(tool: FunctionTool, capabilities: Capabilities, ledger: Ledger) -> JSONObject:
    body: JSONObject = {"name": tool.name}
    description = tool.described(ledger)
    if description:
        body["description"] = description
    if tool.deferred:
        ledger.altered(
            f"{tool.path}/defer_loading", "the tool is sent immediately: Gemini has no tool search"
        )
    schema = tool.parameters
    if not schema or schema == {"type": "object", "properties": {}}:
        return body
    if capabilities.schema_dialect == "json_schema":
        body["parametersJsonSchema"] = schema
    else:
        body["parameters"] = openapi_schema(schema, member_path(tool, "parameters"), ledger)
    return body


# What other protocols say of every MCP server: how it is named, and that its calls need no approval.
_IMPLIED = ("url", "never")


def _write_hosted(tool: HostedTool, capabilities: Capabilities, ledger: Ledger) -> list[JSONObject]:
    """Return the tool of this vendor with the same use, nothing if it has none."""
    use = tool.use
    tag = None if use is None else use.__struct_config__.tag
    if use is None or tag not in capabilities.hosted_tools:
        ledger.add(tool.loss_code, tool.path, f"the upstream does not run the tool {tool.kind}")
        return []
    block: JSONObject = {"codeExecution": {}}
    if isinstance(use, McpServer):
        if use.allowed_tools is not None:
            ledger.dropped(tool.path, "the upstream cannot restrict an MCP server to some of its tools")
            return []
        transport: JSONObject = {"url": use.url}
        if use.authorization is not None:
            transport["headers"] = {"Authorization": use.bearer}
        block = {"mcpServers": [{"name": use.label, "streamableHttpTransport": transport}]}
    elif isinstance(use, WebSearch):
        block = {"googleSearch": {}}
        if use.blocked_domains:
            block["googleSearch"]["excludeDomains"] = list(use.blocked_domains)
    known = {None, tool.kind, tag, *_IMPLIED, getattr(use, "authorization", None), *leaves(block)}
    for key, value in (tool.native or {}).items():
        if not known.issuperset(leaves(value)):
            ledger.dropped(child(tool.path, key), f"Gemini's {next(iter(block))} has no such setting")
    return [block]


def _note_strictness(tools: Sequence[Tool], mode: str, ledger: Ledger) -> None:
    """Record the tools whose `strict` is not what the mode makes of them: it is one for all."""
    enforced = mode in ("ANY", "VALIDATED")
    detail = "calls are always enforced here" if enforced else "not enforced: not all tools are strict"
    for tool in tools:
        if isinstance(tool, FunctionTool) and tool.strict is not None and tool.strict is not enforced:
            ledger.altered(member_path(tool, "strict"), detail)


def _write_choice(request: Request, choice: ToolChoice | None, ledger: Ledger) -> JSONObject | None:
    """Return the choice, None if it is the default."""
    was = request.received
    if was is not None and choice is was.tool_choice:
        config: JSONObject | None = (request.native.get("toolConfig") or {}).get("functionCallingConfig")
        return config
    if request.parallel_tool_calls is False:
        ledger.dropped(request.parallel_path, "Gemini has no setting for parallel calls")
    mode = "auto" if choice is None else choice.mode
    if mode == "auto":
        # Calls are constrained to the schemas: what `strict` of a tool requests.
        strict = [tool.strict for tool in request.tools if isinstance(tool, FunctionTool)]
        return {"mode": "VALIDATED"} if all(strict) else None
    assert choice is not None
    if mode == "named" and choice.name is not None and choice.hosted is None:
        return {"mode": "ANY", "allowedFunctionNames": [choice.name]}
    if mode == "allowed":
        names = [ref.name for ref in choice.allowed if ref.hosted is None]
        if len(names) < len(choice.allowed):
            ledger.altered(choice.path, "the choice cannot include tools that the provider runs")
        if not names:
            return {"mode": "NONE"}
        # "allowedFunctionNames" may be set with ANY and VALIDATED only.
        return {"mode": "ANY" if choice.required else "VALIDATED", "allowedFunctionNames": names}
    if mode == "named":
        ledger.dropped(choice.path, f"a {choice.hosted} tool cannot be forced in Gemini")
        return None
    return {"mode": MODE_NAMES[mode]}
