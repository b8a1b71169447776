"""The lanes for the commonest messages give what the general way gives.

Each shape is read twice: as it is, and with an unknown key in it, which only the general way can read. Each
message is written twice: as it is, and with a phase, which only the general way can refuse.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dragoman._ir.events import ToolKind
from dragoman._ir.losses import Ledger
from dragoman._ir.request import CacheMark, Message, Part, Request, Text, ToolCall, ToolResult
from dragoman._ir.signatures import Sealer
from dragoman._wire.exceptions import RemoteProtocolError
from dragoman.codec import Target
from dragoman.protocols.openai_chat import SPEC

ODD = {"x_odd": 1}
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
TURN = {"role": "assistant", "content": "so", "tool_calls": [CALL]}


def read(*messages: Any) -> tuple[Message, ...]:
    return SPEC.read_request({"model": "m", "messages": [*messages]}, Sealer()).messages


def bare(part: Any) -> Any:
    """A message or part without its unknown fields."""
    inner = {"parts": tuple(map(bare, part.parts))} if hasattr(part, "parts") else {}
    return msgspec.structs.replace(part, extra=None, **inner)


@pytest.mark.parametrize(
    ("common", "odd"),
    [
        (each, {**each, **ODD})
        for each in (
            {"role": "system", "content": "a"},
            {"role": "user", "content": ""},
            {"role": "assistant", "content": "a"},
            TURN,
            {**TURN, "content": None},
            {**TURN, "content": [{"type": "text", "text": "a"}]},
            {**TURN, "tool_calls": []},
            {"role": "tool", "tool_call_id": "c", "content": "a"},
        )
    ]
    + [
        (TURN, {**TURN, "tool_calls": [{**CALL, **ODD}]}),
        (TURN, {**TURN, "tool_calls": [{**CALL, "function": {**CALL["function"], **ODD}}]}),  # type: ignore[dict-item]
    ],
)
def test_the_lanes_read_what_the_general_way_reads(common: Any, odd: Any) -> None:
    short, long = read(common), read(odd)
    assert short != long
    assert short == tuple(map(bare, long))


def test_results_of_custom_calls_know_their_kind_in_the_lane() -> None:
    custom = {"id": "c", "type": "custom", "custom": {"name": "f", "input": "x"}}
    given = ({**TURN, "tool_calls": [custom]}, {"role": "tool", "tool_call_id": "c", "content": "a"})
    turn, result = read(*given)
    assert [part.kind for part in (turn.parts[1], result.parts[0])] == [ToolKind.CUSTOM] * 2  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("call", "path"),
    [
        ({**CALL, "id": 1}, "/messages/0/tool_calls/0/id"),
        ({**CALL, "function": {"name": None, "arguments": ""}}, "/messages/0/tool_calls/0/function/name"),
    ],
)
def test_what_is_wrong_in_a_lane_is_named_all_the_same(call: Any, path: str) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        read({**TURN, "tool_calls": [call]})
    assert caught.value.path == path


@pytest.mark.parametrize("role", [None, 1, [], {}])
def test_a_role_that_is_no_string_is_refused(role: Any) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        read({"role": role, "content": "a"})
    assert caught.value.path == "/messages/0/role"


def test_paths_go_on_beyond_those_made_beforehand() -> None:
    messages = read(*[{"role": "user", "content": "a"}] * 600)
    assert [message.path for message in messages] == [f"/messages/{n}" for n in range(600)]


def written(*messages: Message) -> tuple[Any, list[str]]:
    ledger = Ledger()
    body = SPEC.write_request(Request("other", "m", messages, {}), Target(), ledger)
    return body["messages"], [loss.path for loss in ledger if not loss.path.endswith("/phase")]


MARK = CacheMark("/mark")


@pytest.mark.parametrize("role", ["user", "assistant"])
@pytest.mark.parametrize(
    "parts",
    [
        (Text("a"),),
        (Text(""),),
        (Text("a", cache=MARK),),
        (Text("a", citations=[{}]),),
        (Text("a"), Text("b")),
        (ToolCall("c", "f", ""),),
        (Text("a"), ToolCall("c", "f", "{}"), ToolCall("d", "f", "x", ToolKind.CUSTOM)),
        (ToolCall("c", "f", "{}"), Text("a")),
        (ToolCall("c", "f", "{}", cache=MARK),),
        (ToolResult("c", (Text("a"),)),),
        (ToolResult("c", (Text(""),)),),
        (ToolResult("c", ()),),
        (ToolResult("c", (Text("a"),), is_error=True),),
        (ToolResult("c", (Text("a"),), cache=MARK),),
        (ToolResult("c", (Text("a", cache=MARK),)),),
        (),
    ],
)
def test_the_lanes_write_what_the_general_way_writes(role: Any, parts: tuple[Part, ...]) -> None:
    message = Message(role, parts, "/m")
    assert written(message) == written(msgspec.structs.replace(message, phase="p"))


def test_several_messages_between_two_turns_take_the_lane_one_by_one() -> None:
    result = Message("user", (ToolResult("c", (Text("a"),)),), "/m")
    said = Message("user", (Text("b"),), "/n")
    assert written(said, result) == (
        [{"role": "tool", "tool_call_id": "c", "content": "a"}, {"role": "user", "content": "b"}],
        [],
    )
