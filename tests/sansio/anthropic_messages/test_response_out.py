"""Events, written as streams and complete responses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from messages_client import (
    COUNTED,
    FOREIGN,
    NAME,
    REDACTED,
    SEARCH,
    SIGNER,
    STARTED,
    reasoning,
    stream_of,
    text,
    tool,
    whole_of,
)

from dragoman._ir.event_order import EventOrderChecker
from dragoman._ir.events import (
    ENDED,
    Annotation,
    ArgumentsDelta,
    BlockEnded,
    BlockKind,
    BlockStarted,
    Event,
    Failed,
    Logprobs,
    Opaque,
    ReasoningDelta,
    Signature,
    SignatureDelta,
    Stopped,
    StopReason,
    TextDelta,
    ToolHead,
    Usage,
)
from dragoman._ir.losses import Ledger
from dragoman._wire.errors import ErrorKind, WireError
from dragoman._wire.json import decode
from dragoman._wire.sse import SSEParser
from dragoman.protocols.anthropic_messages import SPEC

END = Stopped(StopReason.END)


def frames_of(events: Sequence[Event], ledger: Ledger | None = None) -> list[tuple[str, Any]]:
    checker = EventOrderChecker()
    for event in events:
        checker.check(event)
    data = stream_of(events, ledger)
    assert data.endswith(b"\n\n")
    return [(frame.event.decode(), decode(frame.data)) for frame in SSEParser().receive_data(data)]


def body_of(*events: Event, ledger: Ledger | None = None) -> list[Any]:
    """The frames between message_start and message_delta, without their types and indexes."""
    frames = frames_of([STARTED, *events, END, COUNTED, ENDED], ledger)
    return [value.get("content_block") or value.get("delta") or "stop" for _, value in frames[2:-2]]


SIGNED = Signature(NAME, {"type": "thinking", "thinking": "a", "signature": "sig"})
UNSIGNED = Signature(NAME, {"type": "thinking", "thinking": "a"})
TEXT_BLOCK = {"type": "text", "text": "", "citations": None}
THINKING_BLOCK = {"type": "thinking", "thinking": "", "signature": ""}
TOOL_BLOCK = {"type": "tool_use", "id": "t1", "name": "f", "input": {}, "caller": {"type": "direct"}}


def test_start_and_end_of_a_stream() -> None:
    assert frames_of([STARTED, END, COUNTED, ENDED]) == [
        (
            "message_start",
            {
                "type": "message_start",
                "message": {
                    "id": "msg_x1",
                    "type": "message",
                    "role": "assistant",
                    "model": "alias",
                    "content": [],
                    "stop_reason": None,
                    "stop_sequence": None,
                    "stop_details": None,
                    "container": None,
                    "diagnostics": None,
                    "usage": {
                        "input_tokens": 11,
                        "cache_creation_input_tokens": 0,
                        "cache_read_input_tokens": 0,
                        "cache_creation": None,
                        "output_tokens": 0,
                        "output_tokens_details": None,
                        "server_tool_use": None,
                        "service_tier": "standard",
                        "inference_geo": None,
                        "speed": None,
                    },
                },
            },
        ),
        ("ping", {"type": "ping"}),
        (
            "message_delta",
            {
                "type": "message_delta",
                "delta": {
                    "stop_reason": "end_turn",
                    "stop_sequence": None,
                    "stop_details": None,
                    "container": None,
                },
                "usage": {
                    "input_tokens": 10,
                    "cache_creation_input_tokens": 6,
                    "cache_read_input_tokens": 4,
                    "output_tokens": 5,
                    "output_tokens_details": {"thinking_tokens": 2},
                    "server_tool_use": None,
                },
            },
        ),
        ("message_stop", {"type": "message_stop"}),
    ]


UPLOAD = {"type": "container_upload", "file_id": "f"}


def thinking(*texts: str, signature: str) -> tuple[list[Any], Any]:
    """Return the frames of a thinking block, and the block of a whole response."""
    deltas = [{"type": "thinking_delta", "thinking": text} for text in texts]
    frames = [THINKING_BLOCK, *deltas, {"type": "signature_delta", "signature": signature}, "stop"]
    return frames, {"type": "thinking", "thinking": "".join(texts), "signature": signature}


# Events, their frames and the block of a whole response.
BLOCKS: dict[str, tuple[list[Event], tuple[list[Any], Any]]] = {
    "text": (
        text(0, "é\n"),
        ([TEXT_BLOCK, {"type": "text_delta", "text": "é\n"}, "stop"], {"type": "text", "text": "é\n"}),
    ),
    "tool call": (
        tool(0, '{"a": ', "1.50}"),
        (
            [
                TOOL_BLOCK,
                {"type": "input_json_delta", "partial_json": '{"a": '},
                {"type": "input_json_delta", "partial_json": "1.50}"},
                "stop",
            ],
            {**TOOL_BLOCK, "input": {"a": 1.5}},
        ),
    ),
    "reasoning of another protocol, parts joined": (
        reasoning(0, FOREIGN, "a", "b"),
        thinking("a", "\n\nb", signature=SIGNER.wrap(FOREIGN)),
    ),
    "C3 a signature without text": (reasoning(0, FOREIGN), thinking(signature=SIGNER.wrap(FOREIGN))),
    "a native signature": (reasoning(0, SIGNED, "a"), thinking("a", signature="sig")),
    "never an empty signature": (reasoning(0, UNSIGNED), thinking(signature=SIGNER.wrap(UNSIGNED))),
    "redacted": (reasoning(0, REDACTED), ([REDACTED.native, "stop"], REDACTED.native)),
    "reasoning that was cut off": (
        reasoning(0, None, "a"),
        thinking("a", signature=SIGNER.wrap(Signature("", None))),
    ),
    "a server tool streams its input": (
        [Opaque(NAME, "server_tool_use", SEARCH)],
        (
            [{**SEARCH, "input": {}}, {"type": "input_json_delta", "partial_json": '{"q":"é"}'}, "stop"],
            SEARCH,
        ),
    ),
    "an opaque block is whole in its start": (
        [Opaque(NAME, "container_upload", UPLOAD)],
        ([UPLOAD, "stop"], UPLOAD),
    ),
}


@pytest.mark.parametrize(("events", "written"), BLOCKS.values(), ids=BLOCKS)
def test_blocks(events: list[Event], written: tuple[list[Any], Any]) -> None:
    frames, block = written
    assert body_of(*events) == frames
    assert whole_of(STARTED, *events, END, COUNTED, ENDED)["content"] == [block]


@pytest.mark.parametrize(
    ("counted", "shown"),
    [
        (Usage(30, 1, cached=10, cache_write=5, extra={"inference_geo": "eu"}), [15, 10, 5, 1, "eu"]),
        # Many servers count at the end: then the estimate stays.
        (Usage(0, 0), [11, 0, 0, 0, None]),
        (None, [11, 0, 0, 0, None]),
    ],
)
def test_the_start_of_a_stream_has_what_the_upstream_has_counted(
    counted: Usage | None, shown: list[Any]
) -> None:
    [(_, start), *_] = frames_of([msgspec.structs.replace(STARTED, usage=counted), END, COUNTED, ENDED])
    usage = start["message"]["usage"]
    names = (
        "input_tokens",
        "cache_read_input_tokens",
        "cache_creation_input_tokens",
        "output_tokens",
        "inference_geo",
    )
    assert [usage[name] for name in names] == shown


def test_empty_reasoning_takes_no_index() -> None:
    events = [*reasoning(0, None), *text(1, "a")]
    frames = frames_of([STARTED, *events, END, ENDED])
    assert [value["index"] for _, value in frames if "index" in value] == [0, 0, 0]
    assert len(whole_of(STARTED, *events, END, ENDED)["content"]) == 1


def test_deltas_of_one_part_are_one_text() -> None:
    events = [BlockStarted(0, BlockKind.REASONING), ReasoningDelta(0, "a", 3), ReasoningDelta(0, "b", 3)]
    frames = body_of(*events, SignatureDelta(0, SIGNED), BlockEnded(0))
    assert [frame["thinking"] for frame in frames if "thinking" in frame] == ["", "a", "b"]


def test_a_complete_response_has_no_empty_text_block() -> None:
    events = [BlockStarted(0, BlockKind.TEXT), BlockEnded(0)]
    assert whole_of(STARTED, *events, END, ENDED)["content"] == []


def test_indexes_are_contiguous() -> None:
    events = [*reasoning(7, FOREIGN, "a"), *text(3, "b"), Opaque(NAME, "x", {"type": "x"}), *tool(9, "{}")]
    frames = frames_of([STARTED, *events, END, ENDED])
    assert [value["index"] for _, value in frames if "index" in value] == [0, 0, 0, 0, 1, 1, 1, 2, 2, 3, 3, 3]
    assert all(name == value["type"] for name, value in frames)


def test_a_lone_surrogate_survives() -> None:
    assert body_of(*text(0, "\ud83d"))[1] == {"type": "text_delta", "text": "\ud83d"}


WEB = Annotation(0, "openai_chat", {}, url="https://x", title="T")
CITED = {
    "type": "web_search_result_location",
    "url": "https://x",
    "title": "T",
    "cited_text": "",
    "encrypted_index": "",
}
NATIVE_CITATION = {"type": "page_location", "cited_text": "c"}


@pytest.mark.parametrize(
    ("annotation", "citations", "losses"),
    [
        (WEB, [CITED], []),
        (
            Annotation(0, "openai_chat", {}, url="https://x", title="T", start=0, end=1),
            [CITED],
            [("altered", "/content/0/citations")],
        ),
        (
            Annotation(0, "openai_chat", {"more": "b"}, url="https://x", title="T"),
            [CITED],
            [("altered", "/content/0/citations")],
        ),
        (Annotation(0, NAME, NATIVE_CITATION), [NATIVE_CITATION], []),
        (Annotation(0, "openai_chat", {"file_id": "f"}), [], [("dropped", "/content/0/citations")]),
    ],
)
def test_citations(annotation: Annotation, citations: Any, losses: Any) -> None:
    events = [BlockStarted(0, BlockKind.TEXT), TextDelta(0, "a"), annotation, BlockEnded(0)]
    ledger, whole_ledger = Ledger(), Ledger()
    deltas = [frame for frame in body_of(*events, ledger=ledger) if "citation" in frame]
    assert deltas == [{"type": "citations_delta", "citation": citation} for citation in citations]
    whole = whole_of(STARTED, *events, END, COUNTED, ENDED, ledger=whole_ledger)
    assert whole["content"][0].get("citations", []) == citations
    for one in (ledger, whole_ledger):
        assert [(loss.code.value, loss.path) for loss in one] == losses


def test_logprobs_are_dropped() -> None:
    events = [
        BlockStarted(0, BlockKind.TEXT),
        TextDelta(0, "a"),
        Logprobs(0, [1]),
        BlockEnded(0),
    ]
    ledger, whole_ledger = Ledger(), Ledger()
    body_of(*events, ledger=ledger)
    whole_of(STARTED, *events, END, COUNTED, ENDED, ledger=whole_ledger)
    for one in (ledger, whole_ledger):
        assert [loss.path for loss in one] == ["/content/0/logprobs"]


def test_losses_have_paths_in_the_upstreams_response() -> None:
    events = [
        BlockStarted(0, BlockKind.TEXT, path="/output/3/content/1"),
        TextDelta(0, "a"),
        Logprobs(0, [1]),
        Annotation(0, "other", {"file_id": "f"}),
        BlockEnded(0),
        BlockStarted(1, BlockKind.TOOL_CALL, tool=ToolHead("t1", "f"), path="/output/4"),
        ArgumentsDelta(1, "{oops"),
        BlockEnded(1),
    ]
    ledger, whole_ledger = Ledger(), Ledger()
    body_of(*events, ledger=ledger)
    whole_of(STARTED, *events, END, COUNTED, ENDED, ledger=whole_ledger)
    places = [f"/output/3/content/1/{name}" for name in ("logprobs", "citations")]
    assert [loss.path for loss in ledger] == places
    assert [loss.path for loss in whole_ledger] == [*places, "/output/4/input"]


NO_DETAILS = {"type": "refusal", "category": None, "explanation": None}
NATIVE_DETAILS = {"type": "refusal", "category": "bio", "explanation": "No."}


STOP_REASONS: list[tuple[list[Event], Any, str, Any, Any]] = [
    ([], StopReason.END, "end_turn", None, None),
    ([], StopReason.TOOL_USE, "tool_use", None, None),
    (tool(0), StopReason.END, "tool_use", None, None),
    (tool(0), StopReason.MAX_TOKENS, "max_tokens", None, None),
    ([], StopReason.CONTEXT_WINDOW, "model_context_window_exceeded", None, None),
    ([], Stopped(StopReason.STOP_SEQUENCE, sequence="END"), "stop_sequence", "END", None),
    ([], StopReason.PAUSE, "pause_turn", None, None),
    ([], StopReason.COMPACTION, "compaction", None, None),
    ([], StopReason.CONTENT_FILTER, "refusal", None, NO_DETAILS),
    (
        [],
        Stopped(StopReason.CONTENT_FILTER, explanation="No.", details={"reason": "x"}),
        "refusal",
        None,
        {"type": "refusal", "category": None, "explanation": "No."},
    ),
    ([], Stopped(StopReason.CONTENT_FILTER, details=NATIVE_DETAILS), "refusal", None, NATIVE_DETAILS),
    (text(0, "I cannot.", kind=BlockKind.REFUSAL), StopReason.END, "refusal", None, NO_DETAILS),
]


def test_stop_reasons(subtests: pytest.Subtests) -> None:
    for events, stop, reason, sequence, details in STOP_REASONS:
        with subtests.test(reason=reason):
            end = stop if isinstance(stop, Stopped) else Stopped(stop)
            delta = frames_of([STARTED, *events, end, COUNTED, ENDED])[-2][1]["delta"]
            whole = whole_of(STARTED, *events, end, COUNTED, ENDED)
            for one in (delta, whole):
                assert (one["stop_reason"], one["stop_sequence"], one["stop_details"]) == (
                    reason,
                    sequence,
                    details,
                )


def test_a_service_tier_that_comes_after_the_start() -> None:
    ledger, late = Ledger(), Usage(service_tier="priority")
    (_, start), *_ = frames_of([STARTED, END, late, ENDED], ledger)
    assert start["message"]["usage"]["service_tier"] == "standard"
    assert [(loss.code.value, loss.path) for loss in ledger] == [("altered", "/service_tier")]
    assert whole_of(STARTED, END, late, ENDED)["usage"]["service_tier"] == "priority"


@pytest.mark.parametrize(
    ("tier", "written", "losses"), [("batch", "batch", []), ("flex", None, [("dropped", "/service_tier")])]
)
def test_a_tier_of_another_protocol_is_no_batch(tier: str, written: str | None, losses: Any) -> None:
    ledger = Ledger()
    (_, start), *_ = frames_of([msgspec.structs.replace(STARTED, service_tier=tier), END, ENDED], ledger)
    assert start["message"]["usage"]["service_tier"] == written
    assert [(loss.code.value, loss.path) for loss in ledger] == losses


def test_message_fields_of_this_protocol_are_written() -> None:
    fields = {"container": {"id": "c"}, "context_management": {"applied_edits": []}, "odd": 1}
    opaque = [Opaque(NAME, "message", {key: value}, f"/{key}") for key, value in fields.items()]
    ledger = Ledger()
    end = frames_of([STARTED, *opaque, END, COUNTED, ENDED], ledger)[-2][1]
    assert end["delta"]["container"] == {"id": "c"}
    assert end["context_management"] == {"applied_edits": []}
    assert [loss.path for loss in ledger] == ["/odd"]
    whole = whole_of(STARTED, *opaque, END, COUNTED, ENDED)
    assert {key: whole[key] for key in fields} == fields


@pytest.mark.parametrize(
    ("arguments", "written", "losses"),
    [("", {}, []), ('{"a', {"_raw": '{"a'}, [("altered", "/content/0/input")])],
)
def test_tool_input_in_a_complete_response(arguments: str, written: Any, losses: Any) -> None:
    ledger = Ledger()
    whole = whole_of(STARTED, *tool(0, arguments), END, COUNTED, ENDED, ledger=ledger)
    assert whole["content"][0]["input"] == written
    assert [(loss.code.value, loss.path) for loss in ledger] == losses


@pytest.mark.parametrize(
    "before", [[], [STARTED], [STARTED, BlockStarted(0, BlockKind.TEXT), TextDelta(0, "a")]]
)
def test_a_failure_is_one_error_event(before: list[Event]) -> None:
    frames = frames_of([*before, Failed(WireError(ErrorKind.OVERLOADED, "busy"))])
    assert frames[-1] == (
        "error",
        {"type": "error", "error": {"type": "overloaded_error", "message": "busy"}, "request_id": "x1"},
    )
    assert "message_stop" not in [name for name, _ in frames]


def test_a_response_without_a_stop_ends_the_turn() -> None:
    assert whole_of(STARTED)["stop_reason"] == "end_turn"


def test_the_heartbeat() -> None:
    assert SPEC.endpoints[0].heartbeat == b'event: ping\ndata: {"type":"ping"}\n\n'
