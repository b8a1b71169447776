"""Chat requests that a pass has changed, written for a Chat upstream: all else stays."""

import msgspec
import pytest
from core.passes import fit_and_write, pass_context
from core.same_protocol import read_same_protocol

from dragoman._ir.events import Signature
from dragoman._ir.losses import Ledger
from dragoman._ir.native import changed
from dragoman._ir.request import Message, Reasoning, Text, ToolResult
from dragoman._ir.tools import CacheMark
from dragoman._transforms.reasoning_cache import restore_reasoning
from dragoman.protocols.openai_chat import SPEC
from dragoman.protocols.openai_chat.capabilities import ChatCapabilities as Capabilities

HI = {"role": "user", "content": "Hi"}
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
CALLS = {"role": "assistant", "content": None, "tool_calls": [CALL]}
FUNCTION = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
BARE_MARK = {"type": "ephemeral"}


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_cached_reasoning_replaces_the_clients(field: str) -> None:
    """Some clients send it back under another name. The upstream gets it once, as it sent it."""
    turn = {**CALLS, "reasoning_content": "so"}
    body = {"model": "m", "messages": [HI, turn, {"role": "tool", "tool_call_id": "c1", "content": "r"}]}
    cached = Reasoning("", Signature("openai_chat", {field: "so"}))
    request = read_same_protocol(SPEC, body)
    request = restore_reasoning(
        request, pass_context(request, client=SPEC, reasoning_lookup=lambda calls: (cached,))
    )
    out = fit_and_write(SPEC, request, Capabilities(relay="rewrite", reasoning_field=field), Ledger())
    assert out["messages"][1] == {**CALLS, field: "so"}


def test_a_message_that_a_pass_has_added_gets_no_members_of_the_clients() -> None:
    """Its path is that of the part that it replaces."""
    ledger = Ledger()
    annotated = {**CALLS, "annotations": [{"type": "odd"}]}
    request = read_same_protocol(SPEC, {"model": "m", "messages": [HI, annotated]})
    call = request.messages[1].parts[0]
    result = ToolResult("c1", (Text("none"),), path=call.path)
    messages = (*request.messages, Message("user", (result,), call.path))
    changed = msgspec.structs.replace(request, messages=messages)
    out = fit_and_write(SPEC, changed, Capabilities(relay="rewrite"), ledger)
    assert out["messages"][2] == {"role": "tool", "tool_call_id": "c1", "content": "none"}


def test_what_a_pass_has_changed_keeps_all_else() -> None:
    request = read_same_protocol(SPEC, {"model": "m", "messages": [HI], "tools": [{**FUNCTION, "new": 1}]})
    marked = changed(request.tools[0], name="g", cache=CacheMark("/tools/0/cache_control"))  # type: ignore[type-var]
    request = msgspec.structs.replace(request, tools=(marked,))
    body = fit_and_write(SPEC, request, Capabilities(cache_marks="cache_control"), Ledger())
    function = {**FUNCTION["function"], "name": "g"}  # type: ignore[dict-item]
    assert body["tools"] == [{"type": "function", "function": function, "new": 1, "cache_control": BARE_MARK}]
    result = {"role": "tool", "tool_call_id": "c1", "content": "x", "new": 1}
    request = read_same_protocol(SPEC, {"model": "m", "messages": [HI, CALLS, result]})
    message = request.messages[2]
    message = changed(message, content=(changed(message.parts[0], call_id="c9"),))  # type: ignore[type-var]
    request = msgspec.structs.replace(request, messages=(*request.messages[:2], message))
    body = fit_and_write(SPEC, request, Capabilities(), Ledger())
    assert body["messages"][2] == {**result, "tool_call_id": "c9"}
