"""The short ways for the commonest items give what the general way gives.

Each shape is read twice: as it is, and with an unknown key in it, which only the general way can read.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dragoman._ir.events import ToolKind
from dragoman._ir.losses import Ledger
from dragoman._ir.request import Message, Request, Text, ToolCall, ToolResult
from dragoman._ir.signatures import Sealer
from dragoman._wire.exceptions import RemoteProtocolError
from dragoman.codec import Target
from dragoman.protocols.openai_responses import SPEC

ODD = {"x_odd": 1}
TEXT = {"type": "input_text", "text": "a"}
SAID = {"type": "output_text", "text": "a", "annotations": []}
CALL = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
CUSTOM = {"type": "custom_tool_call", "call_id": "c", "name": "f", "input": "x"}
OUTPUT = {"type": "function_call_output", "call_id": "c", "output": "a"}


def read(*items: Any) -> tuple[Message, ...]:
    return SPEC.read_request({"model": "m", "input": [*items]}, Sealer()).messages


def bare(part: Any) -> Any:
    """A message or part without its unknown fields."""
    inner = {"parts": tuple(map(bare, part.parts))} if hasattr(part, "parts") else {}
    return msgspec.structs.replace(part, extra=None, **inner)


@pytest.mark.parametrize(
    ("common", "odd"),
    [
        (each, {**each, **ODD})
        for each in (
            {"role": "user", "content": "a"},
            {"type": "message", "role": "user", "content": [TEXT]},
            CALL,
            CUSTOM,
            OUTPUT,
            {**OUTPUT, "type": "custom_tool_call_output"},
            {**OUTPUT, "output": [TEXT]},
            {**OUTPUT, "output": [TEXT, TEXT]},
        )
    ]
    + [
        ({"role": "assistant", "content": [part]}, {"role": "assistant", "content": [{**part, **ODD}]})
        for part in (TEXT, SAID, {**SAID, "annotations": [{"type": "url_citation"}]})
    ],
)
def test_the_short_ways_read_what_the_general_way_reads(common: Any, odd: Any) -> None:
    short, long = read(common), read(odd)
    assert short != long
    assert short == tuple(map(bare, long))


@pytest.mark.parametrize("item", [{**CALL, "name": ""}, {**CALL, "name": 1}, {**CUSTOM, "name": None}])
def test_what_is_wrong_in_a_short_way_is_named_all_the_same(item: Any) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        read(item)
    assert caught.value.path == "/input/0/name"


def test_paths_go_on_beyond_those_made_beforehand() -> None:
    messages = read(*[{"role": "user", "content": "a"}] * 600)
    assert [message.path for message in messages] == [f"/input/{n}" for n in range(600)]


def items(*messages: Message) -> Any:
    return SPEC.write_request(Request("other", "m", messages, {}), Target(), Ledger())["input"]


@pytest.mark.parametrize("kind", [ToolKind.FUNCTION, ToolKind.CUSTOM])
@pytest.mark.parametrize("text", ["a", ""])
def test_the_short_way_writes_the_result_that_the_general_way_writes(kind: ToolKind, text: str) -> None:
    # Citations are refused by the general way alone.
    short, long = ToolResult("c", (Text(text),), kind), ToolResult("c", (Text(text, citations=[{}]),), kind)
    assert items(Message("user", (short,), "/m")) == items(Message("user", (long,), "/m"))


def test_a_call_alone_is_written_as_among_other_parts() -> None:
    call, said = ToolCall("c", "f", "{}"), Text("a")
    alone = items(Message("assistant", (said,), "/m"), Message("assistant", (call,), "/n"))
    assert alone == items(Message("assistant", (said, call), "/m"))
