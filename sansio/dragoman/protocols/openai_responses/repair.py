"""What clients send in a form that is not this protocol's, though it is plain what they mean.

Strategy: the body is put right before it is read, so that readers know one form. Functions stand in an object of
their own, as in Chat Completions; a call has an `id` and no `call_id`, and its output names that. Each repair is
told to the ledger.
"""

from __future__ import annotations

from dragoman._ir.losses import Loss, LossCode
from dragoman._wire.json import JSON, JSONObject

_CALLS = frozenset(("function_call", "custom_tool_call"))
_NESTED = "in the form of Chat Completions: it was read as what it means"


def repaired(body: JSONObject) -> tuple[JSONObject, tuple[Loss, ...]]:
    """The body, itself if nothing is wrong with it, and what was put right."""
    repairs: list[Loss] = []
    tools = _flat_tools(body.get("tools"), repairs)
    choice = _flat_choice(body.get("tool_choice"), repairs)
    items = _named_calls(body.get("input"), repairs)
    if not repairs:
        return body, ()
    fields = {"tools": tools, "tool_choice": choice, "input": items}
    return {**body, **{name: value for name, value in fields.items() if name in body}}, tuple(repairs)


def _flat_tools(tools: JSON, repairs: list[Loss]) -> JSON:
    if type(tools) is not list or not any(map(_is_nested, tools)):
        return tools
    flat: list[JSON] = []
    for index, tool in enumerate(tools):
        if _is_nested(tool):
            repairs.append(Loss(LossCode.REPAIRED, f"/tools/{index}", _NESTED))
            tool = {"strict": False, **_flat(tool)}  # its default there; here it is true
        flat.append(tool)
    return flat


def _is_nested(tool: JSON) -> bool:
    return (
        type(tool) is dict
        and tool.get("type") == "function"
        and "name" not in tool
        and type(tool.get("function")) is dict
    )


def _flat(tool: JSONObject) -> JSONObject:
    around = {name: value for name, value in tool.items() if name != "function"}
    return {**tool["function"], **around}


def _flat_choice(choice: JSON, repairs: list[Loss]) -> JSON:
    if _is_nested(choice):
        repairs.append(Loss(LossCode.REPAIRED, "/tool_choice", _NESTED))
        return _flat(choice)
    if type(choice) is dict and choice.get("type") == "allowed_tools":
        inner = choice.get("allowed_tools")
        if "tools" not in choice and type(inner) is dict and type(inner.get("tools")) is list:
            repairs.append(Loss(LossCode.REPAIRED, "/tool_choice", _NESTED))
            return {
                "type": "allowed_tools",
                **inner,
                "tools": [_flat(ref) if _is_nested(ref) else ref for ref in inner["tools"]],
            }
    return choice


def _named_calls(items: JSON, repairs: list[Loss]) -> JSON:
    """The items, with a `call_id` for calls that have none and whose `id` an output names."""
    if type(items) is not list or not any(map(_is_nameless, items)):
        return items
    answered = {
        item.get("call_id")
        for item in items
        if type(item) is dict and not _is_call(item) and type(item.get("call_id")) is str
    }
    named: list[JSON] = []
    for index, item in enumerate(items):
        if _is_nameless(item) and item["id"] in answered:
            repairs.append(Loss(LossCode.REPAIRED, f"/input/{index}", "its id was read as its call_id"))
            item = {
                "call_id" if name == "id" else name: value
                for name, value in item.items()
                if name != "call_id"
            }
        named.append(item)
    return named


def _is_nameless(item: JSON) -> bool:
    return (
        type(item) is dict and item.get("call_id") is None and _is_call(item) and type(item.get("id")) is str
    )


def _is_call(item: JSONObject) -> bool:
    kind = item.get("type")
    return type(kind) is str and kind in _CALLS
