"""Cases that bridges between protocols have failed at, as far as this protocol alone answers for them.

Each name begins with the id of the case: A tool calls in streams, B history, C reasoning, D usage, E ends,
I requests.
"""

from __future__ import annotations

from typing import Any

import pytest

from dragoman._ir.assembly import AssembledBlock, Fold
from dragoman._ir.event_order import EventOrderChecker
from dragoman._ir.events import (
    ENDED,
    ArgumentsDelta,
    BlockEnded,
    BlockKind,
    BlockStarted,
    Event,
    Failed,
    Started,
    Stopped,
    StopReason,
    ToolHead,
    Usage,
)
from dragoman._ir.losses import Ledger
from dragoman._ir.request import (
    FunctionTool,
    Message,
    Request,
    Text,
    ToolCall,
    ToolChoice,
    ToolResult,
)
from dragoman._wire.exceptions import RemoteProtocolError
from dragoman._wire.json import decode, encode
from dragoman._wire.sse import Frame, SSEParser
from dragoman.codec import Capabilities, ResponseContext
from dragoman.protocols.openai_chat import SPEC

EXCHANGE = ResponseContext(Request("other", "m", (), {}), "X1", 1, "alias")
USAGE = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}


def chunk(delta: Any = None, finish: Any = None, **fields: Any) -> dict[str, Any]:
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
    return {"id": "c", "model": "m", "choices": choices, **fields}


def piece(index: Any, call_id: Any, name: Any, arguments: Any) -> dict[str, Any]:
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    members = {"index": index, "id": call_id, "function": function}
    return {"tool_calls": [{key: value for key, value in members.items() if value is not None}]}


def events(*chunks: Any, done: bool = True, eof: bool = True) -> list[Event]:
    """The events of a stream, checked for their legal order."""
    reader, checker = SPEC.stream_reader(EXCHANGE, Ledger()), EventOrderChecker()
    out: list[Event] = []
    for each in chunks:
        out += reader.read(Frame(b"", encode(each)))
    if done:
        out += reader.read(Frame(b"", b"[DONE]"))
    if eof:
        out += reader.eof()
    for event in out:
        checker.check(event)
    return out


def blocks(found: list[Event]) -> list[tuple[str, str, str]]:
    """Kind, call id and text of each block."""
    fold = Fold()
    for event in found:
        fold.send(event)
    return [
        (
            block.kind.value,
            block.tool.call_id if block.tool else "",
            block.text or "".join([part.text for part in block.reasoning]),
        )
        for block in fold.response().blocks
        if isinstance(block, AssembledBlock)
    ]


def stop_of(found: list[Event]) -> StopReason:
    [stop] = [event for event in found if isinstance(event, Stopped)]
    return stop.reason


ONE, TWO = piece(0, "c1", "f", '{"a":1}'), piece(1, "c2", "g", '{"b":2}')
BOTH = [("tool_call", "c1", '{"a":1}'), ("tool_call", "c2", '{"b":2}')]


@pytest.mark.parametrize(
    "deltas",
    [
        pytest.param(
            [piece(0, "c1", "f", ""), piece(1, "c2", "g", ""),
             piece(0, None, None, '{"a":1}'), piece(1, None, None, '{"b":2}')],
            id="A1-interleaved",
        ),
        pytest.param([ONE, TWO], id="A3-back-to-back"),
        pytest.param([ONE, piece(0, "c2", "g", '{"b":2}')], id="A13-index-reused"),
        pytest.param([piece(None, "c1", "f", '{"a":1}'), piece(None, "c2", "g", '{"b":2}')], id="A14-no-index"),
        pytest.param([{"content": "", **ONE}, {"content": None, **TWO}], id="A10-no-empty-text"),
        pytest.param(
            [piece(0, "c1", "f", ""), piece(0, None, None, ""), piece(0, None, None, '{"a":1}'), TWO],
            id="A7-empty-delta",
        ),
    ],
)  # fmt: skip
def test_calls_are_told_apart(deltas: list[Any]) -> None:
    found = events(*[chunk(delta) for delta in deltas], chunk({}, "tool_calls"))
    assert blocks(found) == BOTH


def printed(*inner: Event, stop: StopReason = StopReason.END, include_usage: bool = False) -> list[Any]:
    """The chunks of a stream for a client."""
    request = Request("openai_chat", "m", (), {}, stream=True, include_usage=include_usage)
    writer = SPEC.stream_writer(ResponseContext(request, "X1", 1, "alias"), Ledger())
    events: list[Event] = [Started("i", "m"), *inner, Stopped(stop), ENDED]
    stream = b"".join([writer.send(event) for event in events])
    *frames, done = SSEParser().receive_data(stream)
    assert done.data == b"[DONE]"
    return [decode(frame.data) for frame in frames]


def call(block: int, call_id: str) -> list[Event]:
    head = ToolHead(call_id, "f")
    return [
        BlockStarted(block, BlockKind.TOOL_CALL, tool=head),
        ArgumentsDelta(block, "{}"),
        BlockEnded(block),
    ]


def test_a2_parallel_calls_are_counted_from_zero() -> None:
    text = [BlockStarted(0, BlockKind.TEXT), BlockEnded(0)]
    deltas = [each["choices"][0]["delta"] for each in printed(*text, *call(1, "c1"), *call(2, "c2"))]
    assert [each["index"] for delta in deltas for each in delta.get("tool_calls", [])] == [0, 0, 1, 1]


def test_a8_a_turn_that_ends_with_calls_stops_for_them() -> None:
    assert stop_of(events(chunk({"content": "so"}), chunk(ONE), chunk({}, "stop"))) is StopReason.TOOL_USE
    assert printed(*call(0, "c1"))[-1]["choices"][0]["finish_reason"] == "tool_calls"


def test_a9_an_empty_finish_reason_is_none() -> None:
    found = events(chunk({"role": "assistant"}, ""), chunk(ONE, ""), chunk({}, "tool_calls"), chunk({}, ""))
    assert stop_of(found) is StopReason.TOOL_USE


def test_a12_a_call_that_was_cut_off_is_not_complete() -> None:
    found = events(chunk(piece(0, "c1", "f", '{"a"')), chunk({}, "length"))
    assert [event.complete for event in found if isinstance(event, BlockEnded)] == [False]
    assert stop_of(found) is StopReason.MAX_TOKENS


def test_a15_usage_comes_in_a_last_chunk_of_its_own() -> None:
    *others, last = printed(Usage(5, 2), include_usage=True)
    assert (last["choices"], last["usage"]["total_tokens"]) == ([], 7)
    assert [each["usage"] for each in others] == [None] * len(others)
    assert others[-1]["choices"][0]["finish_reason"] == "stop"


@pytest.mark.parametrize(
    "chunks",
    [
        pytest.param([chunk({"content": "x"}, "stop", usage=USAGE)], id="A17-all-in-one"),
        pytest.param([chunk({"content": "x"}), chunk({}, "stop")], id="A17-no-usage"),
        pytest.param([chunk({"content": "x"}), chunk(usage=USAGE)], id="D6-no-finish-reason"),
        pytest.param([chunk({"content": "x"}, "stop"), chunk(usage=USAGE)], id="D5-no-choices"),
    ],
)
def test_every_way_to_end_well_ends_once(chunks: list[Any]) -> None:
    found = events(*chunks)
    assert [type(event) for event in found].count(Stopped) == 1
    assert found[-1] is ENDED
    assert blocks(found) == [("text", "", "x")]


def test_a18_c6_null_is_nothing_and_the_other_field_is_another_block() -> None:
    found = events(
        chunk({"content": None, "reasoning_content": "h"}),
        chunk({"content": None, "reasoning_content": "m"}),
        chunk({"content": "a", "reasoning_content": None}),
        chunk({"content": "b", "reasoning_content": None}, "stop"),
    )
    assert blocks(found) == [("reasoning", "", "hm"), ("text", "", "ab")]


@pytest.mark.parametrize(
    "chunks",
    [[], [chunk({"content": "x"})], [chunk(ONE)], [chunk({"content": "x"}, usage=USAGE)]],
)
def test_e1_an_early_end_is_never_a_success(chunks: list[Any]) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        events(*chunks, done=False)
    assert caught.value.status == 502


def test_e5_e11_an_error_in_a_stream_ends_it() -> None:
    found = events(chunk({"content": "x"}), {"error": {"message": "no", "code": "tool_use_failed"}})
    assert isinstance(found[-1], Failed)
    assert found[-1].error.code == "tool_use_failed"


def test_e10_reasoning_that_eats_the_limit_is_an_empty_answer_cut_short() -> None:
    found = events(chunk({"reasoning_content": "hm"}), chunk({"content": ""}, "length"))
    assert blocks(found) == [("reasoning", "", "hm")]
    assert stop_of(found) is StopReason.MAX_TOKENS


def write(*messages: Message, capabilities: Capabilities = Capabilities(), **fields: Any) -> Any:
    return SPEC.write_request(Request("other", "m", messages, {}, **fields), capabilities, Ledger())


def test_b5_results_of_a_turn_are_contiguous() -> None:
    said = Message("assistant", (ToolCall("c1", "f", "{}"), ToolCall("c2", "f", "{}")))
    turn = Message("user", (ToolResult("c1", (Text("a"),)), Text("and"), ToolResult("c2", (Text("b"),))))
    roles = [message["role"] for message in write(said, turn)["messages"]]
    assert roles == ["assistant", "tool", "tool", "user"]


def test_d7_usage_is_always_asked_for() -> None:
    assert write(stream=True, include_usage=False)["stream_options"] == {"include_usage": True}


@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens"])
def test_i7_the_limit_has_the_name_that_the_upstream_knows(field: Any) -> None:
    body = write(params={"max_output_tokens": 9}, capabilities=Capabilities(max_tokens_field=field))
    assert {key: body[key] for key in body if key.startswith("max")} == {field: 9}


@pytest.mark.parametrize(("knows", "role"), [(True, "developer"), (False, "system")])
def test_i8_the_role_developer_goes_where_it_is_known(knows: bool, role: str) -> None:
    body = write(Message("developer", (Text("a"),)), capabilities=Capabilities(developer_role=knows))
    assert body["messages"] == [{"role": role, "content": "a"}]


F = FunctionTool("f", parameters={})


def test_i16_one_call_at_a_time_is_asked_for() -> None:
    body = write(tools=(F,), parallel_tool_calls=False)
    assert body["parallel_tool_calls"] is False
    assert "tool_choice" not in body


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (ToolChoice("none"), "none"),
        (ToolChoice("required"), "required"),
        (ToolChoice("named", "f"), {"type": "function", "function": {"name": "f"}}),
    ],
)
def test_i18_i19_choices_are_said_in_the_words_of_this_protocol(choice: ToolChoice, expected: Any) -> None:
    assert write(tools=(F,), tool_choice=choice)["tool_choice"] == expected
