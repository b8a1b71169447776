"""The request document -> a body for an upstream.

Strategy: leading system messages become `system`, the rest turns (`_conversation`); tools, settings and thinking
have modules of their own; what depends on several of them at once is settled at the end. A request that came in
this protocol keeps its settings as they were sent, and only its conversation is written anew; unless it is mended
(Target.relay): then so is all that passes and the target have a say in.
"""

from __future__ import annotations

import msgspec

from dragoman._ir.losses import Ledger
from dragoman._ir.parameters import write_params
from dragoman._ir.request import Message, Part, Request, ResponseFormat, Thought
from dragoman._wire.json import JSONObject
from dragoman.codec import Target
from dragoman.protocols.anthropic_messages.cache import Marks
from dragoman.protocols.anthropic_messages.conversation import Conversation, merge, plain_or_blocks
from dragoman.protocols.anthropic_messages.read_settings import read_settings
from dragoman.protocols.anthropic_messages.schema import fit_schema
from dragoman.protocols.anthropic_messages.tables import NAME, PARAM_PATHS, PARAMS_WRITE, SAMPLING
from dragoman.protocols.anthropic_messages.thinking import (
    settle_loop,
    settle_thinking,
    write_thinking,
)
from dragoman.protocols.anthropic_messages.write_settings import (
    CONVERTERS,
    max_tokens,
    write_account,
)
from dragoman.protocols.anthropic_messages.write_tools import write_tools

_JSON_SENTENCE = "Answer with one JSON object and nothing else."


def write_request(request: Request, target: Target, ledger: Ledger) -> JSONObject:
    """The body. Raises RemoteProtocolError (400) for what may not be left out."""
    if request.protocol == NAME:
        return _rewritten(request, target, ledger)
    out: JSONObject = {"model": request.model, "max_tokens": max_tokens(request, target.max_tokens)}
    write_params(request, PARAMS_WRITE, CONVERTERS, out, ledger)
    marks = Marks()
    tools = write_tools(request, target, marks, ledger)
    conversation = Conversation(ledger, marks, target.mid_system)
    system, rest = _lead(request, conversation, ledger)
    form = request.response_format
    if form is not None and form.schema is None:
        ledger.altered(form.path or "/response_format", "asked for with a sentence: there is no such setting")
        system.append({"type": "text", "text": _JSON_SENTENCE})
    if system:
        out["system"] = plain_or_blocks(system)
    for message in rest:
        conversation.add(message)
    out["messages"] = conversation.turns
    out.update(tools)
    write_account(request, out, ledger)
    write_thinking(request, target, out, ledger)
    settle_thinking(request, target, out, conversation.needs_thinking, ledger)
    if form is not None and form.schema is not None:
        out.setdefault("output_config", {})["format"] = _format(form, ledger)
    marks.settle(out.get("cache_control"), ledger)
    if request.stream:
        out["stream"] = True
    return out


def _lead(
    request: Request, conversation: Conversation, ledger: Ledger
) -> tuple[list[JSONObject], tuple[Message, ...]]:
    """The blocks of `system`, and the messages behind them."""
    messages = request.messages
    lead = 0
    while lead < len(messages) and messages[lead].role in ("system", "developer"):
        lead += 1
    if lead == len(messages) and lead:
        # "messages: at least one message is required": instructions alone become the question.
        lead -= 1
        conversation.no_system()
    system: list[JSONObject] = []
    for message in messages[:lead]:
        # system and developer are one here: there is one role for instructions.
        if message.name is not None:
            ledger.dropped(f"{message.path}/name", "Messages has no names on messages")
        system += conversation.system_blocks(message)
    return system, messages[lead:]


def _format(wanted: ResponseFormat, ledger: Ledger) -> JSONObject:
    """`output_config.format`. It is always strict; name and description go where a schema has them."""
    path = wanted.path or "/response_format"
    if wanted.strict is False:
        ledger.altered(f"{path}/strict", "the upstream always keeps to the schema")
    schema = fit_schema(wanted.schema, lambda place, detail: ledger.altered(f"{path}/schema{place}", detail))
    if type(schema) is dict:
        for key, value in (("title", wanted.name), ("description", wanted.description)):
            if value is not None and value != schema.setdefault(key, value):
                ledger.dropped(
                    f"{path}/{'name' if key == 'title' else key}", f"the schema has a {key} of its own"
                )
    return {"type": "json_schema", "schema": schema}


# --- requests of this protocol ----------------------------------------------------------------------------


def _rewritten(request: Request, target: Target, ledger: Ledger) -> JSONObject:
    """The client's own body with its conversation written anew: there it is where passes change a request."""
    out = dict(request.raw)
    out["model"] = request.model
    out.setdefault("max_tokens", target.max_tokens)
    reasoning = request.reasoning
    effort = None
    if reasoning is not None and reasoning.effort is not None:
        effort = (reasoning.effort_path or reasoning.path, reasoning.effort)
    mends = target.relay == "mend"
    marks = Marks()
    conversation = Conversation(ledger, marks, target.mid_system, own=True, effort=effort, unsigned=mends)
    out.pop("system", None)
    system: list[JSONObject] = []
    for message in request.messages:
        if mends and target.thinking == "none":
            message = _without_thoughts(message, ledger)
        leads = mends and message.role == "system" and not conversation.turns
        if message.path == "/system" or (leads and not message.path.startswith("/messages/")):
            # The client's own, and what a pass has put before it.
            system += conversation.system_blocks(message)
        elif message.path != "/compaction/instructions":
            conversation.add(message)
    if system:
        out["system"] = plain_or_blocks(system)
    out["messages"] = conversation.turns
    if mends:
        _mend_settings(request, target, out, marks, ledger)
        settle_thinking(request, target, out, conversation.needs_thinking, ledger)
        marks.settle(out.get("cache_control"), ledger)
    else:
        settle_loop(request, out, conversation.needs_thinking, ledger)
        for param in () if target.sampling else SAMPLING:
            if out.pop(param, None) is not None:
                ledger.dropped(f"/{param}", "the upstream's models take no sampling settings")
    return out


def _without_thoughts(message: Message, ledger: Ledger) -> Message:
    parts: list[Part] = []
    for part in message.parts:
        if isinstance(part, Thought):
            ledger.dropped(part.path, "the upstream's model does not think")
        else:
            parts.append(part)
    return (
        message if len(parts) == len(message.parts) else msgspec.structs.replace(message, parts=tuple(parts))
    )


def _mend_settings(request: Request, target: Target, out: JSONObject, marks: Marks, ledger: Ledger) -> None:
    """Write anew what passes may have changed in the client's body, and what the target takes in its own way."""
    params, extra = request.params, request.extra or {}
    for param in read_settings(request.raw, {}):
        if param not in params:
            _take_out(out, PARAM_PATHS[param])
    out.setdefault("max_tokens", target.max_tokens)  # required, whoever refuses it
    if "stop" in params:
        out["stop_sequences"] = params["stop"]
    for name in ("tools", "tool_choice"):
        out.pop(name, None)
    out.update(write_tools(request, target, marks, ledger))
    if "tool_choice" in out:
        merge(out["tool_choice"], extra.get("tool_choice"))
    else:
        ledger.unknown_fields("/tool_choice", extra.get("tool_choice"))
    form = request.response_format
    if form is None or form.schema is None:  # it is asked for in words, or by a tool
        _take_out(out, "/output_config/format")
        _take_out(out, "/output_format")
    config = request.reasoning
    if config is not None and (config.effort_path or config.path).startswith("/messages/"):
        return  # it is said there
    _take_out(out, "/thinking")
    _take_out(out, "/output_config/effort")
    fresh: JSONObject = {"max_tokens": out["max_tokens"]}
    write_thinking(request, target, fresh, ledger)
    if config is not None and "thinking" in fresh:
        merge(fresh["thinking"], config.extra)
    if "output_config" in fresh:
        fresh["output_config"] = {**(out.get("output_config") or {}), **fresh["output_config"]}
    out.update(fresh)


def _take_out(out: JSONObject, path: str) -> None:
    """Delete the member at a path of one or two steps, and its object with it when nothing else is there."""
    name, _, inner = path[1:].partition("/")
    if inner and type(out.get(name)) is dict:
        rest = {key: value for key, value in out[name].items() if key != inner}
        if rest:
            out[name] = rest
            return
    elif inner:
        return
    out.pop(name, None)
