"""Request -> the body for a Chat Completions upstream.

Strategy: the conversation is cut into assistant runs and everything between them, because Chat is the strictest
about turns: one assistant message holds all calls of a turn, its results follow it at once, and only then may
the user speak. Requests that came as Chat keep their own message boundaries and fields. Settings go through
the tables; what has no place goes into the ledger.
"""

from __future__ import annotations

from collections.abc import Sequence

from dragoman._errors import RemoteProtocolError, dotted
from dragoman._events import ToolKind
from dragoman._json import JSON, JSONObject
from dragoman._loss import Ledger, LossCode, child
from dragoman._params import Converter, write_params
from dragoman._request import (
    CustomTool,
    FunctionTool,
    HostedTool,
    Param,
    Request,
    ResponseFormat,
    Tool,
    ToolChoice,
)
from dragoman._spec import Target

from ._tables import (
    EFFORT_ABOVE,
    EFFORT_ADAPTIVE,
    EFFORT_BY_BUDGET,
    FOREIGN_TIERS,
    MAX_STOPS,
    NAME,
    PARAM_NAMES,
    REASONING_SETTINGS,
    SERVICE_TIERS,
    STATEFUL,
)
from ._write_messages import MessageWriter, cache_control, merge


def write_request(request: Request, target: Target, ledger: Ledger) -> JSONObject:
    """The body to send. What it cannot carry is entered in `ledger`.

    Raises RemoteProtocolError (400) for settings without which the request would mean something else.
    """
    for param in STATEFUL:
        if request.params.get(param):
            path = request.param_paths.get(param, f"/{param}")
            raise RemoteProtocolError(
                f"{dotted(path)} needs a server that stores conversations; this upstream speaks Chat Completions:"
                " send the whole conversation instead",
                path=path,
                code="unsupported_value",
            )
    own = request.protocol == NAME
    out: JSONObject = {"model": request.model, "messages": _messages(request, own, target, ledger)}
    if request.stream:
        # Usage is always asked for; whoever writes to the client leaves it out when the client did not ask.
        out["stream"] = True
        out["stream_options"] = {"include_usage": True}
    _write_tools(request, own, out, ledger)
    if request.response_format is not None:
        out["response_format"] = _response_format(request.response_format, own)
    _write_reasoning(request, own, out, ledger)
    write_params(
        request, PARAM_NAMES[target.max_tokens_field], _OWN_CONVERTERS if own else _CONVERTERS, out, ledger
    )
    if own:
        for key, value in (request.extra or {}).items():
            out[key] = merge(out.get(key), value)
        return out
    _finish_params(request, out)
    return out


def _messages(request: Request, own: bool, target: Target, ledger: Ledger) -> list[JSONObject]:
    writer = MessageWriter(request, own, target, ledger)
    messages = request.messages
    count = len(messages)
    index = 0
    while index < count:
        end = index + 1
        if messages[index].role == "assistant":
            while not own and end < count and messages[end].role == "assistant":
                end += 1
            writer.assistant(messages[index:end])
        else:
            while end < count and messages[end].role != "assistant":
                end += 1
            writer.others(messages[index:end])
        index = end
    return writer.out


def _write_tools(request: Request, own: bool, out: JSONObject, ledger: Ledger) -> None:
    tools = [body for tool in request.tools if (body := _tool(tool, own, ledger)) is not None]
    choice = request.tool_choice
    if not tools:
        # "tool_choice is only allowed when tools are specified"
        if choice is not None and choice.mode not in ("auto", "none"):
            ledger.dropped(choice.path, "no tool is left to choose from")
        return
    out["tools"] = tools
    if choice is not None:
        out["tool_choice"] = _choice(choice, request.tools)
    if request.parallel_tool_calls is not None:
        out["parallel_tool_calls"] = request.parallel_tool_calls


def _tool(tool: Tool, own: bool, ledger: Ledger) -> JSONObject | None:
    if isinstance(tool, HostedTool):
        if tool.origin == NAME:
            body: JSONObject = tool.native
            return body
        ledger.add(LossCode.UNKNOWN_KIND, tool.path, f"a {tool.kind} tool is run by its own provider")
        return None
    return _tool_body(tool, own, ledger)


def _tool_body(tool: FunctionTool | CustomTool, own: bool, ledger: Ledger) -> JSONObject:
    inner: JSONObject = {"name": tool.name}
    if tool.description is not None:
        inner["description"] = tool.description
    if isinstance(tool, CustomTool):
        kind = "custom"
        if tool.grammar is not None:
            grammar = {"definition": tool.grammar.definition, "syntax": tool.grammar.syntax}
            inner["format"] = {"type": "grammar", "grammar": grammar}
    else:
        kind = "function"
        if tool.parameters is not None:
            inner["parameters"] = tool.parameters
        elif not own:
            inner["parameters"] = {"type": "object", "properties": {}}
        if tool.strict is not None:
            inner["strict"] = tool.strict
    body: JSONObject = {"type": kind, kind: inner}
    mark = tool.cache
    if mark is not None:
        if own:
            body["cache_control"] = cache_control(mark)
        else:
            ledger.dropped(mark.path, "tools take no cache marks here")
    return merge(body, tool.extra) if own and tool.extra else body


def _choice(choice: ToolChoice, tools: Sequence[Tool]) -> JSON:
    if choice.mode == "named":
        return _reference(choice.name, choice.kind)
    if choice.mode != "allowed":
        return choice.mode
    kinds = {
        tool.name: ToolKind.FUNCTION if isinstance(tool, FunctionTool) else ToolKind.CUSTOM
        for tool in tools
        if not isinstance(tool, HostedTool)
    }
    return {
        "type": "allowed_tools",
        "allowed_tools": {
            "mode": "required" if choice.required else "auto",
            "tools": [_reference(name, kinds.get(name, ToolKind.FUNCTION)) for name in choice.allowed],
        },
    }


def _reference(name: str | None, kind: ToolKind) -> JSONObject:
    return {"type": kind.value, kind.value: {"name": name}}


def _response_format(form: ResponseFormat, own: bool) -> JSONObject:
    if form.schema is None:
        return {"type": "json_object"}
    schema: JSONObject = {"name": form.name or "response"}  # the name is required
    if form.description is not None:
        schema["description"] = form.description
    schema["schema"] = form.schema
    if form.strict is not None:
        schema["strict"] = form.strict
    if own and form.extra:
        schema.update(form.extra)
    return {"type": "json_schema", "json_schema": schema}


def _write_reasoning(request: Request, own: bool, out: JSONObject, ledger: Ledger) -> None:
    config = request.reasoning
    if config is None:
        return
    if own:
        out.update({key: request.raw[key] for key in REASONING_SETTINGS if request.raw.get(key) is not None})
        return
    path = config.path or "/reasoning"
    if config.mode == "disabled":
        # Servers that can switch thinking off refuse an effort beside it, and there is no common switch.
        if config.effort == "none":
            out["reasoning_effort"] = "none"
        else:
            ledger.dropped(path, "Chat Completions has no switch for thinking")
    elif config.effort is not None:
        out["reasoning_effort"] = config.effort
        if config.budget is not None:
            ledger.altered(path, "sent as reasoning_effort; the budget in tokens is lost")
    elif config.budget is not None:
        out["reasoning_effort"] = next(
            (effort for limit, effort in EFFORT_BY_BUDGET if config.budget <= limit), EFFORT_ABOVE
        )
        ledger.altered(path, "the budget in tokens is sent as reasoning_effort")
    elif config.mode == "adaptive":
        out["reasoning_effort"] = EFFORT_ADAPTIVE
    if config.show is not None:
        ledger.dropped(path, "whether reasoning is shown is up to the upstream")


def _finish_params(request: Request, out: JSONObject) -> None:
    """Settings that become another one than their name says."""
    metadata = out.get("metadata")
    if type(metadata) is dict and metadata.keys() == {"user_id"}:
        # In Messages this is the whole of metadata, and it is what `user` is here.
        del out["metadata"]
        out.setdefault("user", metadata["user_id"])
    include = request.params.get("include") or ()
    if _LOGPROBS in include or "top_logprobs" in out:
        out["logprobs"] = True  # "must be set to true if top_logprobs is used"


_LOGPROBS = "message.output_text.logprobs"
# Encrypted reasoning travels inside the conversation anyway.
_SERVED_INCLUDES = frozenset({_LOGPROBS, "reasoning.encrypted_content"})


def _stop(value: JSON, path: str, ledger: Ledger) -> JSON:
    if type(value) is list and len(value) > MAX_STOPS:
        for index in range(MAX_STOPS, len(value)):
            ledger.dropped(child(path, index), f"at most {MAX_STOPS} stop sequences are allowed")
        return value[:MAX_STOPS]
    return value


def _service_tier(value: JSON, path: str, ledger: Ledger) -> JSON:
    if value in SERVICE_TIERS:
        return value
    tier = FOREIGN_TIERS.get(str(value))
    if tier is None:
        ledger.dropped(path, "the target protocol has no such service tier")
    else:
        ledger.altered(path, f"sent as {tier}")
    return tier


def _speed(value: JSON, path: str, ledger: Ledger) -> JSON:
    """Messages' `speed: fast` is a service tier here; any other speed is the ordinary one."""
    if value not in ("fast", "standard"):
        ledger.dropped(path, "the target protocol has no such speed")
    return value if value == "fast" else None


def _include(value: JSON, path: str, ledger: Ledger) -> JSON:
    for index, item in enumerate(value if type(value) is list else ()):
        if type(item) is not str or item not in _SERVED_INCLUDES:
            ledger.dropped(child(path, index), "the target protocol has nothing of the kind to include")
    return None


_OWN_CONVERTERS: dict[Param, Converter] = {}
_CONVERTERS: dict[Param, Converter] = {
    "stop": _stop,
    "service_tier": _service_tier,
    "speed": _speed,
    "include": _include,
    "background": lambda value, path, ledger: None,  # false, or it would have been refused
}
