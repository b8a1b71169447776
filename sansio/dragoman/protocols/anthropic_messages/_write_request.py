"""The request document -> a body for an upstream.

Strategy: leading system messages become `system`, the rest turns (`_conversation`); plain settings go by
table; what depends on several settings at once (thinking, sampling, forced tools) is settled at the end, in
one place each. What has no place is entered in the ledger; what would make the answer one to another
question is refused.
"""

from __future__ import annotations

from collections.abc import Callable

from dragoman._errors import RemoteProtocolError, dotted
from dragoman._json import JSON, JSONObject
from dragoman._loss import Ledger, LossCode
from dragoman._params import Converter, write_params
from dragoman._request import (
    FunctionTool,
    HostedTool,
    Message,
    Param,
    Request,
    ResponseFormat,
    Tool,
    ToolChoice,
)
from dragoman._spec import Target

from ._conversation import Conversation, cache_control, merge, plain_or_blocks, system_blocks
from ._reasoning import path_of, write_reasoning
from ._tables import (
    ASKS_NOTHING,
    MIN_TOP_P,
    MUST_CARRY,
    NAME,
    PARAMS_WRITE,
    SAMPLING,
    TIER_WRITE,
)

_JSON_SENTENCE = "Answer with one JSON object and nothing else."


def write_request(request: Request, target: Target, ledger: Ledger) -> JSONObject:
    """The body. Raises RemoteProtocolError (400) for what may not be left out."""
    own = request.protocol == NAME
    limit = request.params.get("max_output_tokens")
    if limit is not None and type(limit) is not int:
        path = request.param_paths.get("max_output_tokens", "/max_tokens")
        raise RemoteProtocolError(
            f"{dotted(path)} must be an integer", status_hint=400, path=path, code="invalid_type"
        )
    out: JSONObject = {"model": request.model, "max_tokens": target.max_tokens if limit is None else limit}
    write_params(request, PARAMS_WRITE, _CONVERTERS, out, ledger)
    system, conversation = _messages(request, target, ledger, own)
    _ask_for_json(request.response_format, system, ledger)
    if system:
        out["system"] = plain_or_blocks(system)
    out["messages"] = conversation.finish()
    _tools(request, out, ledger, own)
    _account(request, out, ledger)
    write_reasoning(request, target, out, ledger, own)
    if out.get("thinking") and not own:
        _settle_thinking(request, conversation, out, ledger)
    _sampling(request, target, out, ledger)
    if request.response_format is not None and request.response_format.schema is not None:
        out.setdefault("output_config", {})["format"] = _format(request.response_format, ledger, own)
    if request.stream:
        out["stream"] = True
    if own:
        merge(out, request.extra)
    return out


# --- messages ---------------------------------------------------------------------------------------------


def _messages(
    request: Request, target: Target, ledger: Ledger, own: bool
) -> tuple[list[JSONObject], Conversation]:
    """The blocks of `system`, and the turns."""
    messages = request.messages
    lead = 0
    while lead < len(messages) and messages[lead].role in ("system", "developer"):
        lead += 1
    mid_system = target.mid_system
    if lead == len(messages) and lead and not own:
        # "messages: at least one message is required": instructions alone become the question.
        lead -= 1
        mid_system = False
    system: list[JSONObject] = []
    for message in messages[:lead]:
        system += _lead_blocks(message, ledger, own)
    conversation = Conversation(ledger, own, mid_system)
    for message in messages[lead:]:
        conversation.add(message)
    return system, conversation


def _lead_blocks(message: Message, ledger: Ledger, own: bool) -> list[JSONObject]:
    # system and developer are one here: there is one role for instructions.
    if message.name is not None:
        ledger.dropped(f"{message.path}/name", "Messages has no names on messages")
    if own:
        ledger.unknown_fields(message.path, message.extra)
    return system_blocks(message, own, ledger)


def _ask_for_json(wanted: ResponseFormat | None, system: list[JSONObject], ledger: Ledger) -> None:
    """Any JSON object will do: there is no setting for that."""
    if wanted is not None and wanted.schema is None:
        ledger.altered(
            wanted.path or "/response_format", "asked for with a sentence: there is no such setting"
        )
        system.append({"type": "text", "text": _JSON_SENTENCE})


def _format(wanted: ResponseFormat, ledger: Ledger, own: bool) -> JSONObject:
    """`output_config.format`. It is always strict; name and description go where a schema has them."""
    schema = wanted.schema
    if own:
        form: JSONObject = {"type": "json_schema", "schema": schema}
        merge(form, wanted.extra)
        return form
    if wanted.strict is False:
        ledger.altered(f"{wanted.path}/strict", "the upstream always keeps to the schema")
    closed = closed_schema(schema)
    if closed != schema:
        ledger.altered(
            wanted.path or "/response_format",
            "additionalProperties: false was added, the upstream demands it",
        )
    for key, value in (("title", wanted.name), ("description", wanted.description)):
        if value is not None and type(closed) is dict:
            closed.setdefault(key, value)
    return {"type": "json_schema", "schema": closed}


_ONE_SCHEMA = ("items", "not", "if", "then", "else", "additionalItems", "contains")
_SCHEMA_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_SCHEMA_MAPS = ("properties", "$defs", "definitions", "patternProperties")


def closed_schema(schema: JSON) -> JSON:
    """A copy in which every object schema says `additionalProperties`: false where it says nothing.

    "For 'object' type, 'additionalProperties' must be explicitly set to false."
    """
    if type(schema) is not dict:
        return schema
    out = dict(schema)
    for key in _ONE_SCHEMA:
        if key in out:
            out[key] = closed_schema(out[key])
    for key in _SCHEMA_LISTS:
        if type(out.get(key)) is list:
            out[key] = [closed_schema(item) for item in out[key]]
    for key in _SCHEMA_MAPS:
        if type(out.get(key)) is dict:
            out[key] = {name: closed_schema(item) for name, item in out[key].items()}
    kind = out.get("type")
    if (
        kind == "object"
        or (type(kind) is list and "object" in kind)
        or (kind is None and "properties" in out)
    ):
        out.setdefault("additionalProperties", False)
    return out


# --- tools ------------------------------------------------------------------------------------------------


def _tools(request: Request, out: JSONObject, ledger: Ledger, own: bool) -> None:
    choice = request.tool_choice
    tools = request.tools
    if choice is not None and choice.mode == "allowed":
        # There is no list of allowed tools: the others are not offered at all, which restricts as much.
        tools = tuple([tool for tool in tools if _is_allowed(tool, choice, ledger)])
        if not set(choice.allowed) <= {getattr(tool, "name", None) for tool in tools}:
            ledger.dropped(choice.path or "/tool_choice", "an allowed tool is not among those declared")
    written = [block for block in (_tool(tool, ledger, own) for tool in tools) if block is not None]
    if not written:
        if choice is not None and choice.mode not in ("auto", "none"):
            ledger.dropped(choice.path or "/tool_choice", "there is no tool that the upstream knows")
        return
    out["tools"] = written
    chosen: JSONObject | None = None
    if choice is not None:
        chosen = {"type": _CHOICES[choice.required if choice.mode == "allowed" else choice.mode]}
        if choice.mode == "named":
            chosen["name"] = choice.name
            if all(tool.get("name") != choice.name for tool in written):
                ledger.altered(choice.path or "/tool_choice", "the demanded tool is not among those sent")
                chosen = {"type": "any"}
    if request.parallel_tool_calls is False:
        # The flag needs a choice to sit on; "auto" asks for nothing. "none" has no flag, and needs none.
        chosen = chosen or {"type": "auto"}
        if chosen["type"] != "none":
            chosen["disable_parallel_tool_use"] = True
    elif own and request.parallel_tool_calls and chosen is not None:
        chosen["disable_parallel_tool_use"] = False
    if chosen is not None:
        out["tool_choice"] = chosen


def _is_allowed(tool: Tool, choice: ToolChoice, ledger: Ledger) -> bool:
    if isinstance(tool, HostedTool) or tool.name in choice.allowed:
        return True
    ledger.dropped(tool.path, "not offered: it is not among the allowed tools")
    return False


# Mode of a choice -> its type; True and False stand for the two modes of an allowed list.
_CHOICES: dict[str | bool, str] = {
    "auto": "auto",
    "none": "none",
    "required": "any",
    "named": "tool",
    True: "any",
    False: "auto",
}


def _tool(tool: Tool, ledger: Ledger, own: bool) -> JSONObject | None:
    if not isinstance(tool, FunctionTool):
        if isinstance(tool, HostedTool):
            if tool.origin == NAME:
                return tool.native  # type: ignore[no-any-return]
            ledger.add(LossCode.UNKNOWN_KIND, tool.path, f"the upstream has no tool {tool.kind}")
        else:
            ledger.add(LossCode.UNKNOWN_KIND, tool.path, "the upstream has no tools that take free text")
        return None
    schema = tool.parameters
    if schema is None:
        schema = {"type": "object", "properties": {}}
    elif type(schema) is dict and "type" not in schema and not own:
        schema = {"type": "object", **schema}  # "input_schema.type: Field required"
    block: JSONObject = {"name": tool.name}
    if tool.description is not None:
        block["description"] = tool.description
    block["input_schema"] = schema
    if tool.strict is not None:
        block["strict"] = tool.strict
    if tool.cache is not None:
        block["cache_control"] = cache_control(tool.cache)
    if own:
        merge(block, tool.extra)
    return block


# --- settings ---------------------------------------------------------------------------------------------


def _unless_default(defaults: tuple[JSON, ...]) -> Converter:
    def convert(value: JSON, path: str, ledger: Ledger) -> JSON:
        if value not in defaults:
            ledger.dropped(path, "Messages has no such setting")

    return convert


def _refuse(defaults: tuple[JSON, ...], advice: str) -> Converter:
    def convert(value: JSON, path: str, ledger: Ledger) -> JSON:
        if value not in defaults:
            raise RemoteProtocolError(
                f"{dotted(path)} cannot be carried to this upstream: {advice}",
                status_hint=400,
                path=path,
                code="unsupported_parameter",
            )

    return convert


def _elsewhere(value: JSON, path: str, ledger: Ledger) -> JSON:
    """Written by a function that needs more than the value."""
    return None


def _temperature(value: JSON, path: str, ledger: Ledger) -> JSON:
    if type(value) in (int, float) and value > 1:
        ledger.altered(path, "lowered to 1, the highest temperature of Messages")
        return 1
    return value


def _stop(value: JSON, path: str, ledger: Ledger) -> JSON:
    given = value if type(value) is list else [value]
    kept = [text for text in given if not str(text).isspace()]
    if len(kept) < len(given):
        ledger.dropped(path, "each stop sequence must contain non-whitespace")
    return kept or None


def _context_management(value: JSON, path: str, ledger: Ledger) -> JSON:
    if type(value) is dict:
        return value
    ledger.dropped(path, "context management of another protocol")
    return None


def _prompt_cache_options(value: JSON, path: str, ledger: Ledger) -> JSON:
    """`mode: implicit` is what a mark at the top level asks for."""
    if value == {"mode": "implicit"}:
        return {"type": "ephemeral"}
    ledger.dropped(path, "Messages has no such options for the prompt cache")
    return None


_CONVERTERS: dict[Param, Converter] = {
    **{param: _unless_default(defaults) for param, defaults in ASKS_NOTHING.items()},
    **{param: _refuse(ASKS_NOTHING.get(param, ()), advice) for param, advice in MUST_CARRY.items()},
    "context_management": _context_management,
    "max_output_tokens": _elsewhere,
    "prompt_cache_options": _prompt_cache_options,
    "safety_identifier": _elsewhere,
    "service_tier": _elsewhere,
    "stop": _stop,
    "temperature": _temperature,
    "user": _elsewhere,
}


def _account(request: Request, out: JSONObject, ledger: Ledger) -> None:
    """Who asks, and at which tier."""
    params = request.params
    paths = request.param_paths
    user = params.get("user")
    identifier = params.get("safety_identifier")
    if identifier is not None and user not in (None, identifier):
        ledger.dropped(
            paths.get("user", "/user"), "Messages takes one identifier: safety_identifier was sent"
        )
    if identifier is not None or user is not None:
        out["metadata"] = {"user_id": user if identifier is None else identifier}
    tier = params.get("service_tier")
    if tier == "fast":
        out["speed"] = "fast"
    elif type(tier) is str and tier in TIER_WRITE:
        out["service_tier"] = TIER_WRITE[tier]
    elif tier is not None:
        ledger.dropped(paths.get("service_tier", "/service_tier"), "Messages has no such service tier")


def _settle_thinking(request: Request, conversation: Conversation, out: JSONObject, ledger: Ledger) -> None:
    """A budget of thinking is refused beside two things: then the answer goes without thinking."""
    if out["thinking"]["type"] != "enabled":
        return
    why = ""
    if out.get("tool_choice", {}).get("type") in ("any", "tool"):
        # "Thinking may not be enabled when tool_choice forces tool use."
        why = "thinking was left out: the model may not think when a tool is demanded"
    elif conversation.needs_thinking():
        why = "thinking was left out: the reasoning before the last tool calls did not come back"
    if why:
        assert request.reasoning is not None
        ledger.altered(path_of(request.reasoning), why)
        del out["thinking"]


def _sampling(request: Request, target: Target, out: JSONObject, ledger: Ledger) -> None:
    """Drop what the model or thinking forbids."""
    thinking = out.get("thinking", {}).get("type") in ("enabled", "adaptive")
    for param in SAMPLING:
        value = out.get(param)
        if value is None:
            continue
        why = ""
        if not target.sampling:
            why = "the upstream's models take no sampling settings"
        elif thinking and _FORBIDDEN[param](value):
            why = "may not be set like this while the model thinks"
        if why:
            ledger.dropped(request.param_paths.get(param, f"/{param}"), why)
            del out[param]


# Values that thinking forbids: "thinking isn't compatible with temperature or top_k modifications".
_FORBIDDEN: dict[str, Callable[[JSON], bool]] = {
    "temperature": lambda value: value != 1,
    "top_k": lambda value: True,
    "top_p": lambda value: type(value) in (int, float) and value < MIN_TOP_P,
}
