"""Messages requests that a pass has changed, written for a Messages upstream: all else stays."""

from typing import Any

import msgspec
from core.passes import fit_and_write
from core.same_protocol import read_same_protocol

from dragoman._ir.losses import Ledger
from dragoman._ir.native import changed
from dragoman._ir.request import Message, Request, ResponseFormat, Text
from dragoman._ir.tools import FunctionTool, ToolChoice
from dragoman._wire.json import decode, encode
from dragoman.protocols.anthropic_messages import SPEC
from dragoman.protocols.anthropic_messages.capabilities import MessagesCapabilities as Capabilities

HI = {"role": "user", "content": "Hi"}
MARK = {"type": "ephemeral"}
SCHEMA = {"type": "object", "properties": {}}
TOOL = {"name": "f", "input_schema": SCHEMA}
CALL = {"type": "tool_use", "id": "t1", "name": "f", "input": {}}
UNSIGNED = {"type": "thinking", "thinking": "so", "signature": ""}


def read(**body: Any) -> Request:
    return read_same_protocol(SPEC, {"model": "m", "max_tokens": 5000, "messages": [HI], **body})


def rewrite(request: Request, **capabilities: Any) -> tuple[dict[str, Any], list[str]]:
    """Return the body without `model` and `max_tokens`, and the paths in the ledger."""
    ledger = Ledger()
    out = decode(encode(fit_and_write(SPEC, request, Capabilities(relay="rewrite", **capabilities), ledger)))
    return (
        {name: value for name, value in out.items() if name not in ("model", "max_tokens")},
        [loss.path for loss in ledger],
    )


def test_the_limit_that_a_pass_removed_is_written() -> None:
    request = msgspec.structs.replace(read(), params={})
    out = fit_and_write(SPEC, request, Capabilities(relay="rewrite", max_tokens=99), Ledger())
    assert out["max_tokens"] == 99


def test_settings_that_a_pass_removed_are_removed() -> None:
    request = read(
        metadata={"user_id": "u"},
        cache_control=MARK,
        stop_sequences=["a", "b"],
        temperature=0.5,
        output_config={"format": {"type": "json_schema", "schema": SCHEMA}, "effort": "low"},
        output_format=None,
    )
    params = {"max_output_tokens": 5000, "stop": ["a"]}
    out, _ = rewrite(msgspec.structs.replace(request, params=params, response_format=None))
    del out["messages"]
    expected = {"stop_sequences": ["a"], "output_config": {"effort": "low"}, "thinking": {"type": "adaptive"}}
    assert out == expected


def test_a_tool_that_a_pass_added() -> None:
    request = read(tools=[{**TOOL, "new": 1}])
    tools = (*request.tools, FunctionTool("json", parameters=SCHEMA))
    request = msgspec.structs.replace(request, tools=tools, tool_choice=ToolChoice("named", "json"))
    out, _ = rewrite(request)
    assert out["tools"] == [{**TOOL, "new": 1}, {"name": "json", "input_schema": SCHEMA}]
    assert out["tool_choice"] == {"type": "tool", "name": "json"}


def test_a_schema_that_a_pass_replaced_by_system_text() -> None:
    """There is no setting for any JSON object, and the instruction is system text."""
    output_config = {"format": {"type": "json_schema", "schema": SCHEMA}}
    request = read(system=[{"type": "text", "text": "S", "cache_control": MARK}], output_config=output_config)
    instruction = Message("system", (Text("Answer in JSON."),), "/output_config/format")
    messages = (instruction, *request.messages)
    response_format = ResponseFormat(path="/output_config/format")
    request = msgspec.structs.replace(request, messages=messages, response_format=response_format)
    system = [
        {"type": "text", "text": "Answer in JSON."},
        {"type": "text", "text": "S", "cache_control": MARK},
    ]
    assert rewrite(request) == ({"system": system, "messages": [HI]}, [])


def test_a_call_that_a_pass_has_changed_keeps_all_else() -> None:
    request = read(messages=[HI, {"role": "assistant", "content": [{**CALL, "toolset_name": "s"}, UNSIGNED]}])
    turn = request.messages[1]
    call = changed(turn.parts[0], call_id="t9")  # type: ignore[type-var]
    turn = changed(turn, content=(call, turn.parts[1]))
    out, _ = rewrite(msgspec.structs.replace(request, messages=(request.messages[0], turn)))
    assert out["messages"][1]["content"] == [{**CALL, "id": "t9", "toolset_name": "s"}, UNSIGNED]
