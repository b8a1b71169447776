"""Tools and tool choice -> what a Responses upstream takes."""

from __future__ import annotations

from collections.abc import Sequence

from ..._events import ToolKind
from ..._json import JSON, JSONObject
from ..._loss import Ledger, LossCode
from ..._request import CustomTool, FunctionTool, HostedTool, Request, Tool, ToolChoice
from ._wire import ORIGIN

_KIND_NAMES = {ToolKind.FUNCTION: "function", ToolKind.CUSTOM: "custom"}
# Fields whose null or default value the IR does not keep.
_UNSAID = ("description", "parameters", "strict", "format")


def write_tools(tools: Sequence[Tool], request: Request, own: bool, ledger: Ledger) -> list[JSON]:
    """The tools, those of one namespace together as they came."""
    out: list[JSON] = []
    home: tuple[str, list[JSON]] | None = None  # the namespace being filled: its path and its tools
    for tool in tools:
        if isinstance(tool, HostedTool):
            if own and tool.origin == ORIGIN:
                out.append(tool.native)
            else:
                ledger.add(
                    LossCode.UNKNOWN_KIND, tool.path, f"no counterpart for the tool {tool.kind} in Responses"
                )
            continue
        written = _write_function(tool, own) if isinstance(tool, FunctionTool) else _write_custom(tool)
        if own:
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


def _write_function(tool: FunctionTool, own: bool) -> JSONObject:
    out: JSONObject = {"type": "function", "name": tool.name}
    if tool.description is not None:
        out["description"] = tool.description
    if tool.parameters is not None:
        out["parameters"] = tool.parameters
    if tool.strict is not None:
        out["strict"] = tool.strict
    if not own:
        if tool.parameters is None:
            out["parameters"] = {"type": "object", "properties": {}}
        # The server's default is true here and false elsewhere, so it is always said.
        out["strict"] = tool.strict or False
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


def write_choice(choice: ToolChoice, tools: Sequence[Tool]) -> JSON:
    """The choice in its flat form."""
    if choice.mode == "named":
        named: JSONObject = {"type": _KIND_NAMES[choice.kind], "name": choice.name}
        if choice.namespace is not None:
            named["namespace"] = choice.namespace
        return named
    if choice.mode == "allowed":
        custom = {tool.name for tool in tools if isinstance(tool, CustomTool)}
        refs = [{"type": "custom" if name in custom else "function", "name": name} for name in choice.allowed]
        return {"type": "allowed_tools", "mode": "required" if choice.required else "auto", "tools": refs}
    return choice.mode
