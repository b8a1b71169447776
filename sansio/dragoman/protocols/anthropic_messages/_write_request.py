"""The request document -> a body for an upstream.

Strategy: leading system messages become `system`, the rest turns (`_conversation`); tools, settings and thinking
have modules of their own; what depends on several of them at once is settled at the end. A request that came in
this protocol keeps its settings as they were sent, and only its conversation is written anew.
"""

from __future__ import annotations

from dragoman._json import JSONObject
from dragoman._loss import Ledger
from dragoman._params import write_params
from dragoman._request import Message, Request, ResponseFormat
from dragoman._spec import Target

from ._cache import Marks
from ._conversation import Conversation, plain_or_blocks
from ._schema import fit_schema
from ._tables import NAME, PARAMS_WRITE, SAMPLING
from ._thinking import settle_loop, settle_thinking, write_thinking
from ._write_settings import CONVERTERS, max_tokens, write_account
from ._write_tools import write_tools

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
    conversation = Conversation(ledger, Marks(), target.mid_system, own=True, effort=effort)
    out.pop("system", None)
    for message in request.messages:
        if message.path == "/system":
            out["system"] = plain_or_blocks(conversation.system_blocks(message))
        elif message.path != "/compaction/instructions":
            conversation.add(message)
    out["messages"] = conversation.turns
    settle_loop(request, out, conversation.needs_thinking, ledger)
    if not target.sampling:
        for param in SAMPLING:
            if out.pop(param, None) is not None:
                ledger.dropped(f"/{param}", "the upstream's models take no sampling settings")
    return out
