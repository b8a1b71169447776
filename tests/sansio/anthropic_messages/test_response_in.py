"""Streams and complete responses of upstreams, read into events."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from core.fast_path import both_ways
from messages_upstream import (
    CONTEXT,
    NAME,
    START,
    STARTED,
    STOP,
    TEXT,
    USE,
    body_of,
    call,
    closed,
    data_of,
    delta,
    events_of,
    opened,
    signature,
    started,
    stopped,
)

from dragoman._ir.event_order import EventOrderChecker
from dragoman._ir.events import (
    ENDED,
    ArgumentsDelta,
    BlockEnded,
    BlockKind,
    Failed,
    Opaque,
    ReasoningDelta,
    Started,
    Stopped,
    StopReason,
    TextDelta,
    ToolHead,
    Usage,
)
from dragoman._ir.losses import Ledger
from dragoman._ir.request import Request
from dragoman._wire.errors import ErrorKind, WireError
from dragoman._wire.exceptions import RemoteProtocolError
from dragoman._wire.json import encode
from dragoman._wire.sse import Frame, encode_frame
from dragoman.codec import ResponseContext
from dragoman.protocols.anthropic_messages import SPEC

TEXT_STARTED = started(0, BlockKind.TEXT)


STOP_REASONS: list[tuple[Any, Stopped]] = [
    ({"reason": "end_turn"}, Stopped(StopReason.END, "end_turn")),
    ({"reason": "tool_use"}, Stopped(StopReason.TOOL_USE, "tool_use")),
    ({"reason": "max_tokens"}, Stopped(StopReason.MAX_TOKENS, "max_tokens")),
    (
        {"reason": "model_context_window_exceeded"},
        Stopped(StopReason.CONTEXT_WINDOW, "model_context_window_exceeded"),
    ),
    (
        {"reason": "stop_sequence", "stop_sequence": "END"},
        Stopped(StopReason.STOP_SEQUENCE, "stop_sequence", sequence="END"),
    ),
    ({"reason": "pause_turn"}, Stopped(StopReason.PAUSE, "pause_turn")),
    ({"reason": "compaction"}, Stopped(StopReason.COMPACTION, "compaction")),
    ({"reason": "refusal", "stop_details": None}, Stopped(StopReason.CONTENT_FILTER, "refusal")),
    (
        {"reason": "refusal", "stop_details": {"type": "refusal", "explanation": "No."}},
        Stopped(
            StopReason.CONTENT_FILTER,
            "refusal",
            explanation="No.",
            details={"type": "refusal", "explanation": "No."},
        ),
    ),
]


def test_stop_reasons(subtests: pytest.Subtests) -> None:
    for fields, stop in STOP_REASONS:
        with subtests.test(fields=fields):
            assert events_of(data_of(START, stopped(**fields), STOP)) == [STARTED, stop, ENDED]


def test_an_unknown_stop_reason_ends_the_turn_and_is_recorded() -> None:
    ledger = Ledger()
    assert events_of(data_of(START, stopped("length"), STOP), ledger)[1] == Stopped(StopReason.END, "length")
    assert [(loss.code.value, loss.path) for loss in ledger] == [("altered", "/stop_reason")]


@pytest.mark.parametrize(
    ("frames", "reason"),
    [([], StopReason.END), ([opened(USE), closed()], StopReason.TOOL_USE)],
)
def test_an_end_without_a_stop_reason(frames: list[Any], reason: StopReason) -> None:
    assert events_of(data_of(START, *frames, stopped(None), STOP))[-2:] == [Stopped(reason), ENDED]


CONTAINER = Opaque(NAME, "message", {"container": {"id": "c"}}, "/container", round_trip=False)


def test_message_fields_without_a_neutral_form() -> None:
    """Clients of this protocol get them, others are neutral."""
    end = {**stopped("end_turn", container={"id": "c"}), "context_management": {"applied_edits": []}}
    ledger = Ledger()
    assert body_of(stop=end, ledger=ledger) == []
    assert [(loss.code.value, loss.path) for loss in ledger] == [("dropped", "/container")]
    ledger = Ledger()
    context = ResponseContext(Request(NAME, "m", ()), "x1", 1, "alias")
    reader = SPEC.stream_reader(context, ledger)
    events = [reader.read(Frame(b"", encode(value))) for value in (START, end)]
    edits = Opaque(
        NAME,
        "message",
        {"context_management": {"applied_edits": []}},
        "/context_management",
        round_trip=False,
    )
    assert events == [[STARTED], [CONTAINER, edits]]
    assert list(ledger) == []


@pytest.mark.parametrize(("protocol", "losses"), [("other", ["/stop_details/category"]), (NAME, [])])
def test_stop_details_by_the_protocol_of_the_client(protocol: str, losses: list[str]) -> None:
    ledger = Ledger()
    context = ResponseContext(Request(protocol, "m", ()), "x1", 1, "alias")
    details = {"type": "refusal", "category": "bio", "explanation": "No."}
    body = {**START["message"], "stop_reason": "refusal", "stop_details": details}
    events = SPEC.read_whole(body, context, ledger)
    assert events[-2] == Stopped(StopReason.CONTENT_FILTER, "refusal", explanation="No.", details=details)
    assert [loss.path for loss in ledger] == losses


def test_a_response_that_is_complete_in_its_start() -> None:
    message = {"content": [{**USE, "caller": {"type": "code_execution_20250825"}}], "stop_reason": "tool_use"}
    ledger = Ledger()
    assert events_of(data_of({"type": "message_start", "message": message}, STOP), ledger) == [
        Started("", ""),
        *call(),
        Stopped(StopReason.TOOL_USE, "tool_use"),
        ENDED,
    ]
    assert [(loss.code.value, loss.path) for loss in ledger] == [("dropped", "/content/0/caller")]


@pytest.mark.parametrize(
    ("frames", "path"),
    [
        ([TEXT, delta("odd_delta"), closed()], "/content/0"),
        (
            [opened({"type": "thinking", "thinking": ""}), delta("text_delta", text="a"), closed()],
            "/content/0",
        ),
        ([opened(USE), delta("text_delta", text="a"), closed()], "/content/0"),
        (
            [TEXT, delta("text_delta", text="a"), delta("input_json_delta", partial_json="{"), closed()],
            "/content/0",
        ),
        ([{"type": "odd_event"}], ""),
    ],
)
def test_unknown_events_and_deltas_are_recorded(frames: list[Any], path: str) -> None:
    ledger = Ledger()
    body_of(*frames, ledger=ledger)
    assert [(loss.code.value, loss.path) for loss in ledger] == [("unknown_kind", path)]


GOOD = data_of(START, TEXT, delta("text_delta", text="é"), closed(), stopped(), STOP)
EVENTS = [STARTED, TEXT_STARTED, TextDelta(0, "é"), BlockEnded(0), Stopped(StopReason.END, "end_turn"), ENDED]


@pytest.mark.parametrize("size", [0, 1])
@pytest.mark.parametrize(
    "data",
    [
        pytest.param(GOOD, id="as it should be"),
        pytest.param(GOOD.rstrip(b"\n"), id="no blank line at the end"),
        pytest.param(GOOD.replace(b"\n", b"\r\n"), id="CRLF"),
        pytest.param(
            b"".join(line + b"\n" for line in GOOD.split(b"\n") if b"event:" not in line), id="no event names"
        ),
        pytest.param(GOOD + GOOD, id="A19 a second message"),
        pytest.param(GOOD + b"data: [DONE]\n\n", id="a [DONE] after the end"),
        pytest.param(
            GOOD.replace(b"event: message_stop", b"data: [DONE]\n\nevent: message_stop"), id="a [DONE] before"
        ),
        pytest.param(GOOD[: GOOD.index(b"event: message_stop")], id="E6 no message_stop"),
    ],
)
def test_framing(data: bytes, size: int) -> None:
    assert events_of(data, size=size) == EVENTS


UNREADABLE_STREAMS: list[tuple[list[Any], str]] = [
    ([], "ended before its stop reason"),
    ([START, TEXT, delta("text_delta", text="a"), closed()], "ended before its stop reason"),
    ([TEXT], "content_block_start came before message_start"),
    ([STOP], "message_stop came before message_start"),
    ([START, delta("text_delta", text="a")], "for a block that is not open"),
    (
        [START, TEXT, {"type": "content_block_delta", "index": [0], "delta": {}}],
        "for a block that is not open",
    ),
    ([START, TEXT, {"type": "content_block_delta", "index": 0}], "for a block that is not open"),
    ([START, TEXT, closed(), delta("text_delta", text="a")], "for a block that is not open"),
    ([{"type": "message_start"}], "message_start has no message"),
    ([{"type": "message_start", "message": {"content": {}}}], "is not a list"),
    ([START, opened(None)], "a content block has no type"),
    ([START, opened({"type": "text"}, index="0")], "a block has no index"),  # type: ignore[arg-type]
    ([START, opened({"type": "tool_use", "id": "t1"})], "a tool call has no name"),
]


def test_unreadable_streams(subtests: pytest.Subtests) -> None:
    for frames, message in UNREADABLE_STREAMS:
        with subtests.test(message=message):
            with pytest.raises(RemoteProtocolError, match=message) as caught:
                events_of(data_of(*frames))
            assert caught.value.status == 502


@pytest.mark.parametrize(
    ("data", "message"),
    [(b"[]", "an event is not a JSON object"), (b"{}", "an event has no type"), (b"{", "truncated")],
)
def test_unreadable_frames(data: bytes, message: str) -> None:
    with pytest.raises(RemoteProtocolError, match=message):
        SPEC.stream_reader(CONTEXT, Ledger()).read(Frame(b"", data))


@pytest.mark.parametrize(
    "error",
    [
        {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
        {"error": {"type": "overloaded_error", "message": "Overloaded"}},
    ],
)
def test_an_error_in_the_stream_ends_it(error: Any) -> None:
    data = (
        data_of(START, TEXT, delta("text_delta", text="a"))
        + encode_frame(encode(error), b"error")
        + data_of(STOP)
    )
    failed = events_of(data)[-1]
    assert isinstance(failed, Failed)
    assert failed.error.kind is ErrorKind.OVERLOADED
    assert failed.error.message == "Overloaded"


def test_an_error_that_only_its_member_names() -> None:
    frame = Frame(b"", b'{"error":{"message":"oops"}}')
    events = SPEC.stream_reader(CONTEXT, Ledger()).read(frame)
    assert list(events) == [Failed(WireError(ErrorKind.SERVER, "oops"))]


def test_usage_of_a_stream() -> None:
    message = {**START["message"], "usage": {"input_tokens": 3}}
    data = data_of({**START, "message": message}, stopped(usage={"output_tokens": 2}), STOP)
    assert [event for event in events_of(data) if isinstance(event, Usage)] == [Usage(3), Usage(3, 2)]


def test_a_message_delta_without_a_delta() -> None:
    assert body_of({"type": "message_delta"}) == []


@pytest.mark.parametrize(
    ("events", "losses"),
    [
        ([{**START, "x": 1}], [("unknown_field", "/x")]),
        (
            [{**START, "message": {**START["message"], "usage": {"service_tier": "odd"}}}],
            [("dropped", "/usage/service_tier")],
        ),
        (
            [START, {**opened({"type": "text", "text": "", "x": 1}), "y": 1}],
            [("unknown_field", "/content/0/y"), ("unknown_field", "/content/0/x")],
        ),
        (
            [START, TEXT, delta("text_delta", text="a"), {**delta("text_delta", text="a", x=1), "y": 1}],
            [("unknown_field", "/content/0/y"), ("unknown_field", "/content/0/x")],
        ),
        (
            [START, TEXT, {**closed(), "x": 1}],
            [("unknown_field", "/content/0/x")],
        ),
        ([START, stopped(), {**STOP, "x": 1}], [("unknown_field", "/x")]),
        (
            [START, stopped(usage={"iterations": [{"x": 1, "y": 0}]})],
            [("unknown_field", "/usage/iterations/0/x")],
        ),
        # An opaque block keeps the fields of its deltas.
        ([START, opened({"type": "odd"}), delta("odd_delta", x=1)], []),
        (
            [START, stopped(stop_details={"type": "refusal", "category": "bio"})],
            [("dropped", "/stop_details/category")],
        ),
        (
            [START, stopped(usage={"output_tokens_details": {"thinking_tokens": 1, "x": 1}})],
            [("unknown_field", "/usage/output_tokens_details/x")],
        ),
    ],
)
def test_unknown_fields_are_recorded_with_their_paths(events: Any, losses: Any) -> None:
    ledger = Ledger()
    reader = SPEC.stream_reader(CONTEXT, ledger)
    for event in events:
        reader.read(Frame(b"", encode(event)))
    assert [(loss.code.value, loss.path) for loss in ledger] == losses


def stream(*blocks: tuple[dict[str, Any], list[dict[str, Any]]]) -> bytes:
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {"id": "x", "model": "m", "usage": {}}}
    ]
    for index, (block, deltas) in enumerate(blocks):
        events.append({"type": "content_block_start", "index": index, "content_block": block})
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": index})
    events.append(
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 1}}
    )
    events.append({"type": "message_stop"})
    return b"".join(
        b"event: %b\ndata: %b%b}\n\n"
        % (event["type"].encode(), json.dumps(event).encode()[:-1], b" " * (number % 5))
        for number, event in enumerate(events)
    )


def deltas(kind: str, key: str, *texts: str) -> list[dict[str, Any]]:
    return [{"type": kind, key: text} for text in texts]


TEXT_BLOCK = ({"type": "text", "text": ""}, deltas("text_delta", "text", "a", "b", "c", "ü\n", "", "d"))
THINKING_BLOCK = (
    {"type": "thinking", "thinking": "", "signature": ""},
    [*deltas("thinking_delta", "thinking", "a", "b", "c"), {"type": "signature_delta", "signature": "s"}],
)
CALL_BLOCK = (
    {"type": "tool_use", "id": "t", "name": "f", "input": {}},
    deltas("input_json_delta", "partial_json", "", '{"a"', ":", "1", "}"),
)


@pytest.mark.parametrize(
    ("blocks", "at_least"),
    [
        ([TEXT_BLOCK], 2),
        ([THINKING_BLOCK, TEXT_BLOCK], 3),
        ([CALL_BLOCK], 2),
        ([TEXT_BLOCK, CALL_BLOCK, CALL_BLOCK], 4),
    ],
)
def test_the_fast_path_writes_the_same_bytes(
    blocks: list[Any], at_least: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert both_ways("anthropic_messages", "openai_chat", stream(*blocks), monkeypatch) >= at_least


BODY = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-x",
    "content": [
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "redacted_thinking", "data": "d"},
        {"type": "text", "text": "a", "citations": None},
        {"type": "text", "text": ""},
        {"type": "fallback", "from": {"model": "a"}},
        {**USE, "input": {"a": 1}},
    ],
    "container": {"id": "c"},
    "stop_reason": "tool_use",
    "stop_sequence": None,
    "usage": {"input_tokens": 3, "output_tokens": 4},
}


def test_a_complete_response_gives_the_events_of_a_stream() -> None:
    events = SPEC.read_whole(BODY, CONTEXT, Ledger())
    checker = EventOrderChecker()
    for event in events:
        checker.check(event)
    assert list(events) == [
        msgspec.structs.replace(STARTED, usage=Usage(3, 4)),
        Usage(3, 4),
        started(0, BlockKind.REASONING),
        ReasoningDelta(0, "hm"),
        signature({"type": "thinking", "thinking": "hm", "signature": "s"}),
        BlockEnded(0),
        started(1, BlockKind.REASONING),
        signature({"type": "redacted_thinking", "data": "d"}, 1),
        BlockEnded(1),
        started(2, BlockKind.TEXT),
        TextDelta(2, "a"),
        BlockEnded(2),
        Opaque(NAME, "fallback", {"type": "fallback", "from": {"model": "a"}}, "/content/4"),
        started(3, BlockKind.TOOL_CALL, 5, tool=ToolHead("t1", "f")),
        ArgumentsDelta(3, '{"a":1}'),
        BlockEnded(3),
        Stopped(StopReason.TOOL_USE, "tool_use"),
        ENDED,
    ]


@pytest.mark.parametrize(
    "body",
    [{"type": "error", "error": {"message": "no"}}, {"error": "no"}],
)
def test_an_error_with_status_200(body: Any) -> None:
    (failed,) = SPEC.read_whole(body, CONTEXT, Ledger())
    assert isinstance(failed, Failed)
    assert failed.error.message == "no"


def test_a_body_without_content() -> None:
    with pytest.raises(RemoteProtocolError, match="the response has no content"):
        SPEC.read_whole({"choices": []}, CONTEXT, Ledger())
