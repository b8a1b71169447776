"""The short ways for the commonest blocks give what the general way gives.

Each block is read twice: as it is, and with an unknown key in it, which only the general way can read.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dragoman._ir.losses import Ledger
from dragoman._ir.request import Message, Part, Request, Text, ToolCall, ToolResult
from dragoman._ir.signatures import Sealer
from dragoman._wire.exceptions import RemoteProtocolError
from dragoman._wire.json import decode, encode
from dragoman.codec import Target
from dragoman.protocols.anthropic_messages import SPEC

ODD = {"x_odd": 1}
USE = {"type": "tool_use", "id": "c", "name": "f", "input": {"a": 1}}
RESULT = {"type": "tool_result", "tool_use_id": "c", "content": "a"}


def read(*messages: Any) -> tuple[Message, ...]:
    return SPEC.read_request({"model": "m", "max_tokens": 1, "messages": [*messages]}, Sealer()).messages


def block(value: Any) -> Any:
    ((part,),) = [message.parts for message in read({"role": "user", "content": [value]})]
    return part


@pytest.mark.parametrize(
    "common",
    [
        {"type": "text", "text": "a"},
        USE,
        {**USE, "input": {}},
        RESULT,
        {**RESULT, "content": ""},
        {**RESULT, "content": []},
        {**RESULT, "content": [{"type": "text", "text": "a"}]},
        {**RESULT, "is_error": True},
    ],
)
def test_the_short_ways_read_what_the_general_way_reads(common: Any) -> None:
    short, long = block(common), block({**common, **ODD})
    assert short.extra is None
    assert long.extra == ODD
    assert short == msgspec.structs.replace(long, extra=None)


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({**USE, "id": 1}, "id"),
        ({**USE, "name": None}, "name"),
        ({**USE, "input": "x"}, "input"),
        ({**RESULT, "tool_use_id": 1}, "tool_use_id"),
        ({"type": 1}, "type"),
    ],
)
def test_what_is_wrong_in_a_short_way_is_named_all_the_same(wrong: Any, field: str) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        block(wrong)
    assert caught.value.path == f"/messages/0/content/0/{field}"


def test_paths_go_on_beyond_those_made_beforehand() -> None:
    messages = read(*[{"role": "user", "content": "a"}] * 600)
    assert [message.path for message in messages] == [f"/messages/{n}" for n in range(600)]


def turns(protocol: str, *parts: Part) -> Any:
    """The turns for a call and a message of these parts."""
    call = Message("assistant", (ToolCall("c", "f", "{}"),), "/a")
    request = Request(protocol, "m", (call, Message("user", parts, "/u")), {})
    return decode(encode(SPEC.write_request(request, Target(), Ledger())))["messages"][1:]


@pytest.mark.parametrize("inner", [(Text("a"),), (Text(" "),), (Text("a"), Text("b")), (Text(""),), ()])
def test_the_short_way_writes_the_result_that_the_general_way_writes(inner: Any) -> None:
    result = ToolResult("c", inner)
    [short], [long] = turns("other", result), turns("other", msgspec.structs.replace(result, is_error=False))
    assert long["content"] == [{**short["content"][0], "is_error": False}]


def test_a_request_of_this_protocol_takes_the_general_way() -> None:
    result = ToolResult("c", (Text("a"),))
    assert turns("other", result) == turns("anthropic_messages", result)


def test_a_call_in_a_users_message_stays_there() -> None:
    assert turns("anthropic_messages", ToolCall("d", "f", "{}")) == [
        {"role": "user", "content": [{"type": "tool_use", "id": "d", "name": "f", "input": {}}]}
    ]
