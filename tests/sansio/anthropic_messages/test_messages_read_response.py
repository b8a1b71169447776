"""Streams and whole answers of upstreams -> events."""

from __future__ import annotations

from typing import Any

import pytest

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
    Opaque,
    ReasoningDelta,
    Search,
    Signature,
    SignatureDelta,
    Source,
    Started,
    Stopped,
    StopReason,
    TextDelta,
    ToolHead,
    Usage,
)
from dragoman._ir.losses import Ledger, LossCode
from dragoman._ir.request import Request
from dragoman._wire.errors import ErrorKind
from dragoman._wire.exceptions import RemoteProtocolError
from dragoman._wire.json import encode
from dragoman._wire.sse import Frame, SSEParser, encode_frame
from dragoman.codec import ResponseContext
from dragoman.protocols.anthropic_messages import SPEC

NAME = "anthropic_messages"
EXCHANGE = ResponseContext(Request("other", "m", (), {}), "x1", 1, "alias")

START = {
    "type": "message_start",
    "message": {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-x", "content": []},
}
STARTED = Started("msg_1", "claude-x")
STOP = {"type": "message_stop"}


def opened(block: Any, index: int = 0) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": block}


def delta(kind: str, index: int = 0, **fields: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **fields}}


def closed(index: int = 0) -> dict[str, Any]:
    return {"type": "content_block_stop", "index": index}


def found(use_id: str, *results: Any) -> dict[str, Any]:
    return {"type": "web_search_tool_result", "tool_use_id": use_id, "content": list(results)}


def shown(block: int, kind: BlockKind, at: int | None = None, **fields: Any) -> BlockStarted:
    """A block that is opened. at: its index in the upstream's answer, by default its number."""
    return BlockStarted(block, kind, path=f"/content/{block if at is None else at}", **fields)


def stopped(reason: str | None = "end_turn", usage: Any = None, **fields: Any) -> dict[str, Any]:
    body = {"type": "message_delta", "delta": {"stop_reason": reason, **fields}}
    return body if usage is None else {**body, "usage": usage}


def data_of(*values: Any) -> bytes:
    return b"".join(encode_frame(encode(value), value["type"].encode()) for value in values)


def events_of(data: bytes, ledger: Ledger | None = None, *, size: int = 0) -> list[Event]:
    """The events of a stream, checked, with the bytes cut into pieces of `size` (0: whole)."""
    parser = SSEParser()
    reader = SPEC.stream_reader(EXCHANGE, Ledger() if ledger is None else ledger)
    checker = EventOrderChecker()
    events: list[Event] = []
    size = size or max(len(data), 1)
    for at in range(0, len(data), size):
        for one in parser.receive_data(data[at : at + size]):
            events += reader.read(one)
    for one in parser.receive_eof():
        events += reader.read(one)
    events += reader.eof()
    assert list(reader.eof()) == []
    for event in events:
        checker.check(event)
    return events


def body_of(*values: Any, stop: Any = None, ledger: Ledger | None = None) -> list[Event]:
    """The events between the start and the end of an answer with these frames."""
    events = events_of(data_of(START, *values, stop or stopped(), STOP), ledger)
    assert events[0] == STARTED
    assert events[-1] == ENDED
    return events[1:-2]


TEXT = opened({"type": "text", "text": ""})
USE = {"type": "tool_use", "id": "t1", "name": "f", "input": {}}
CALL = shown(0, BlockKind.TOOL_CALL, tool=ToolHead("t1", "f"))
CITATIONS = "/content/0/citations"
CITATION = {"type": "web_search_result_location", "url": "https://x", "title": "T", "cited_text": "c"}
CITATION_OWN = {"type": "search_result_location", "source": "https://y", "title": "O"}
CITATION_PAGE = {"type": "page_location", "document_title": "D", "url": 7}
THINKING = {"type": "thinking", "thinking": "", "signature": ""}
FOUND = {"type": "web_search_result", "url": "https://x", "title": "T", "encrypted_content": "e"}
TEXT_SHOWN = shown(0, BlockKind.TEXT)
REASONING_SHOWN = shown(0, BlockKind.REASONING)


def seal(native: Any, block: int = 0) -> SignatureDelta:
    return SignatureDelta(block, Signature(NAME, native, "claude-x"))


@pytest.mark.parametrize(
    ("frames", "events"),
    [
        pytest.param(
            [TEXT, delta("text_delta", text="a"), {"type": "ping"}, delta("text_delta", text="b"), closed()],
            [TEXT_SHOWN, TextDelta(0, "a"), TextDelta(0, "b"), BlockEnded(0)],
            id="text",
        ),
        pytest.param(
            [TEXT, delta("text_delta", text=""), delta("text_delta", text=None), closed()],
            [],
            id="an empty text block never shows",
        ),
        pytest.param(
            [TEXT, delta("text_delta", text="a"), delta("text_delta", text=""), closed()],
            [TEXT_SHOWN, TextDelta(0, "a"), BlockEnded(0)],
            id="an empty delta is nothing",
        ),
        pytest.param(
            [opened({"type": "text", "text": "ab", "citations": [CITATION]}), closed()],
            [
                TEXT_SHOWN,
                TextDelta(0, "ab"),
                Annotation(0, NAME, CITATION, url="https://x", title="T", path=CITATIONS),
                BlockEnded(0),
            ],
            id="a text block that starts full",
        ),
        pytest.param(
            [opened({"type": "text", "text": "a", "citations": [CITATION_OWN]}), closed()],
            [
                TEXT_SHOWN,
                TextDelta(0, "a"),
                Annotation(0, NAME, CITATION_OWN, url="https://y", title="O", path=CITATIONS),
                BlockEnded(0),
            ],
            id="a search result of the client's own",
        ),
        pytest.param(
            [
                TEXT,
                delta("citations_delta", citation=CITATION_PAGE),
                delta("citations_delta", citation=None),
                delta("text_delta", text="a"),
                closed(),
            ],
            [
                TEXT_SHOWN,
                Annotation(0, NAME, CITATION_PAGE, title="D", path=CITATIONS),
                TextDelta(0, "a"),
                BlockEnded(0),
            ],
            id="a citation before the text",
        ),
        pytest.param(
            [
                opened(THINKING),
                delta("thinking_delta", thinking="a", estimated_tokens=3),
                delta("thinking_delta", thinking=""),
                delta("thinking_delta", thinking="b"),
                delta("signature_delta", signature="sig"),
                closed(),
            ],
            [
                REASONING_SHOWN,
                ReasoningDelta(0, "a"),
                ReasoningDelta(0, "b"),
                seal({"type": "thinking", "thinking": "ab", "signature": "sig"}),
                BlockEnded(0),
            ],
            id="thinking",
        ),
        pytest.param(
            [opened(THINKING), delta("signature_delta", signature="sig"), closed()],
            [REASONING_SHOWN, seal({"type": "thinking", "thinking": "", "signature": "sig"}), BlockEnded(0)],
            id="C2 thinking with a signature alone",
        ),
        pytest.param([opened(THINKING), closed()], [], id="thinking with nothing"),
        pytest.param(
            [opened({"type": "thinking", "thinking": "a"}), closed()],
            [
                REASONING_SHOWN,
                ReasoningDelta(0, "a"),
                seal({"type": "thinking", "thinking": "a"}),
                BlockEnded(0),
            ],
            id="thinking of a server that signs nothing",
        ),
        pytest.param(
            [opened({"type": "redacted_thinking", "data": "d"}), closed()],
            [REASONING_SHOWN, seal({"type": "redacted_thinking", "data": "d"}), BlockEnded(0)],
            id="redacted thinking",
        ),
        pytest.param(
            [
                opened(USE),
                delta("input_json_delta", partial_json=""),
                delta("input_json_delta", partial_json='{"a":'),
                delta("input_json_delta", partial_json=" 1}"),
                closed(),
            ],
            [CALL, ArgumentsDelta(0, '{"a":'), ArgumentsDelta(0, " 1}"), BlockEnded(0)],
            id="a tool call",
        ),
        pytest.param([opened(USE), closed()], [CALL, BlockEnded(0)], id="a tool call without arguments"),
        pytest.param(
            [opened({**USE, "input": {"a": 1}}), closed()],
            [CALL, ArgumentsDelta(0, '{"a":1}'), BlockEnded(0)],
            id="a tool call that starts full",
        ),
        pytest.param(
            [opened({"type": "tool_use", "name": "f"}), closed()],
            [shown(0, BlockKind.TOOL_CALL, tool=ToolHead("toolu_x1_0", "f")), BlockEnded(0)],
            id="a tool call without an id",
        ),
        pytest.param(
            [
                opened(USE),
                delta("input_json_delta", partial_json="{oops"),
                closed(),
                opened({"type": "text", "text": "a"}, 1),
                closed(1),
            ],
            [
                CALL,
                ArgumentsDelta(0, "{oops"),
                BlockEnded(0),
                shown(1, BlockKind.TEXT),
                TextDelta(1, "a"),
                BlockEnded(1),
            ],
            id="bad JSON, but the model went on",
        ),
        pytest.param(
            [
                opened({"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}),
                delta("input_json_delta", partial_json='{"query":'),
                delta("input_json_delta", partial_json='"q"}'),
                delta("input_json_delta", partial_json=None),
                closed(),
                opened(found("s", FOUND, {"url": "https://y", "title": None}, {"url": 7}, "odd"), 1),
                closed(1),
            ],
            [
                Opaque(
                    NAME,
                    "server_tool_use",
                    {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "q"}},
                    "/content/0",
                ),
                Opaque(
                    NAME,
                    "web_search_tool_result",
                    found("s", FOUND, {"url": "https://y", "title": None}, {"url": 7}, "odd"),
                    "/content/1",
                    search=Search(("q",), (Source("https://x", "T"), Source("https://y"))),
                ),
            ],
            id="a web search",
        ),
        pytest.param(
            [
                opened({"type": "server_tool_use", "id": "s", "name": "web_fetch", "input": {"query": "q"}}),
                closed(),
                opened({"type": "web_search_tool_result", "tool_use_id": "s", "content": {"error": 1}}, 1),
                closed(1),
                opened({"type": "server_tool_use", "id": "t", "name": "web_search", "input": "half"}, 2),
                closed(2),
            ],
            [
                Opaque(
                    NAME,
                    "server_tool_use",
                    {"type": "server_tool_use", "id": "s", "name": "web_fetch", "input": {"query": "q"}},
                    "/content/0",
                ),
                Opaque(
                    NAME,
                    "web_search_tool_result",
                    {"type": "web_search_tool_result", "tool_use_id": "s", "content": {"error": 1}},
                    "/content/1",
                    search=Search(()),
                ),
                Opaque(
                    NAME,
                    "server_tool_use",
                    {"type": "server_tool_use", "id": "t", "name": "web_search", "input": "half"},
                    "/content/2",
                ),
            ],
            id="other tools, and a search that failed",
        ),
        pytest.param(
            [opened({"type": "mcp_tool_use"}), delta("input_json_delta", partial_json="{oops"), closed()],
            [Opaque(NAME, "mcp_tool_use", {"type": "mcp_tool_use", "input": "{oops"}, "/content/0")],
            id="a server tool with half an input",
        ),
        pytest.param(
            [
                opened({"type": "compaction", "content": None}),
                delta("compaction_delta", content="a", encrypted_content=None),
                delta("compaction_delta", content="b", encrypted_content="e"),
                closed(),
            ],
            [
                Opaque(
                    NAME,
                    "compaction",
                    {"type": "compaction", "content": "ab", "encrypted_content": "e"},
                    "/content/0",
                )
            ],
            id="compaction",
        ),
        pytest.param(
            [
                opened({"type": "text", "text": "a"}),
                opened({"type": "text", "text": "b"}),
                closed(),
                closed(9),
            ],
            [
                TEXT_SHOWN,
                TextDelta(0, "a"),
                BlockEnded(0),
                shown(1, BlockKind.TEXT, 0),
                TextDelta(1, "b"),
                BlockEnded(1),
            ],
            id="an index that is used again, and a stop of nothing",
        ),
        pytest.param(
            [START, opened({"type": "text", "text": "a"}), START, closed()],
            [TEXT_SHOWN, TextDelta(0, "a"), BlockEnded(0)],
            id="message_start again",
        ),
    ],
)
def test_blocks(frames: list[Any], events: list[Event]) -> None:
    assert body_of(*frames) == events


def test_unknown_fields_of_citations_are_told_by_their_places() -> None:
    """Those that a block starts with and those that come later are one list."""
    ledger = Ledger()
    block = opened({"type": "text", "text": "a", "citations": [CITATION]})
    body_of(block, delta("citations_delta", citation={**CITATION, "x": {}}), closed(), ledger=ledger)
    assert [(loss.code, loss.path) for loss in ledger] == [(LossCode.UNKNOWN_FIELD, f"{CITATIONS}/1/x")]


@pytest.mark.parametrize(
    ("fields", "stop"),
    [
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
    ],
)
def test_stop_reasons(fields: Any, stop: Stopped) -> None:
    assert events_of(data_of(START, stopped(**fields), STOP)) == [STARTED, stop, ENDED]


def test_an_unknown_stop_reason_ends_the_turn_and_is_told() -> None:
    ledger = Ledger()
    assert events_of(data_of(START, stopped("length"), STOP), ledger)[1] == Stopped(StopReason.END, "length")
    assert [(loss.code.value, loss.path) for loss in ledger] == [("altered", "/stop_reason")]


@pytest.mark.parametrize(
    ("frames", "reason"),
    [([], StopReason.END), ([opened(USE), closed()], StopReason.TOOL_USE)],
)
def test_an_end_without_a_reason(frames: list[Any], reason: StopReason) -> None:
    assert events_of(data_of(START, *frames, stopped(None), STOP))[-2:] == [Stopped(reason), ENDED]


CUT = '{"a": "b'


@pytest.mark.parametrize(
    ("frames", "reason", "ends"),
    [
        ([opened(USE), delta("input_json_delta", partial_json=CUT)], "max_tokens", [BlockEnded(0, False)]),
        (
            [opened(USE), delta("input_json_delta", partial_json=CUT), closed()],
            "max_tokens",
            [BlockEnded(0, False)],
        ),
        ([opened(USE), delta("input_json_delta", partial_json=CUT), closed()], "tool_use", [BlockEnded(0)]),
        ([opened(USE), delta("input_json_delta", partial_json="{}")], "max_tokens", [BlockEnded(0)]),
        ([opened(USE)], "max_tokens", [BlockEnded(0, False)]),
        ([opened(USE), closed()], "max_tokens", [BlockEnded(0)]),
        ([TEXT, delta("text_delta", text="a")], "model_context_window_exceeded", [BlockEnded(0, False)]),
        ([opened(THINKING), delta("thinking_delta", thinking="a")], "max_tokens", [BlockEnded(0, False)]),
        (
            [opened({"type": "thinking", "thinking": "a", "signature": "s"})],
            "max_tokens",
            [seal({"type": "thinking", "thinking": "a", "signature": "s"}), BlockEnded(0, False)],
        ),
        (
            [opened({"type": "thinking", "thinking": "a"})],
            "end_turn",
            [seal({"type": "thinking", "thinking": "a"}), BlockEnded(0)],
        ),
    ],
)
def test_blocks_that_the_end_closes(frames: list[Any], reason: str, ends: list[Event]) -> None:
    events = body_of(*frames, stop=stopped(reason))
    assert events[-len(ends) :] == ends


def usage_start(**usage: Any) -> dict[str, Any]:
    return {"type": "message_start", "message": {**START["message"], "usage": usage}}  # type: ignore[dict-item]


ITERATIONS = [
    {"type": "compaction", "input_tokens": 100, "output_tokens": 30, "cache_read_input_tokens": 4},
    {"type": "message", "input_tokens": 10, "output_tokens": 3, "cache_read_input_tokens": 1},
    "odd",
]


@pytest.mark.parametrize(
    ("start", "later", "usages"),
    [
        pytest.param(
            {
                "input_tokens": 3,
                "cache_read_input_tokens": 5,
                "cache_creation_input_tokens": 7,
                "output_tokens": 1,
            },
            {"output_tokens": 9},
            [Usage(15, 1, 5, 7), Usage(15, 9, 5, 7)],
            id="cache counts in",
        ),
        pytest.param(
            {"input_tokens": 1000, "output_tokens": 0},
            {
                "input_tokens": 100,
                "cache_read_input_tokens": 900,
                "cache_creation_input_tokens": None,
                "output_tokens": 4,
            },
            [Usage(1000, 0), Usage(1000, 4, 900)],
            id="D3 later figures replace",
        ),
        pytest.param(
            {"input_tokens": None, "output_tokens": -1},
            {
                "output_tokens": 2,
                "output_tokens_details": {"thinking_tokens": 1},
                "server_tool_use": {"web_search_requests": 1},
            },
            [Usage(), Usage(output=2, reasoning=1, searches=1)],
            id="unknown figures, reasoning, searches",
        ),
        pytest.param(
            {
                "input_tokens": 1,
                "cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 0},
                "inference_geo": "eu",
                "speed": "standard",
                "server_tool_use": {"web_search_requests": 0, "web_fetch_requests": 0},
            },
            {
                "output_tokens": 2,
                "cache_creation": {"ephemeral_5m_input_tokens": 3, "ephemeral_1h_input_tokens": 0},
                "server_tool_use": {"web_search_requests": 2, "web_fetch_requests": 1},
            },
            [
                Usage(1, searches=0),
                Usage(
                    1,
                    2,
                    extra={
                        "cache_creation": {"ephemeral_5m_input_tokens": 3, "ephemeral_1h_input_tokens": 0},
                    },
                    searches=2,
                ),
            ],
            id="what was written to caches, when it counts something",
        ),
        pytest.param(
            {"input_tokens": 9, "output_tokens": 0},
            {"input_tokens": 2, "output_tokens": 3, "cache_read_input_tokens": 1, "iterations": ITERATIONS},
            [Usage(9, 0), Usage(115, 33, 5)],
            id="what all iterations took",
        ),
        pytest.param(
            {"input_tokens": 9, "output_tokens": 0},
            {"output_tokens": 3, "iterations": "odd"},
            [Usage(9, 0), Usage(9, 3)],
            id="iterations that cannot be read",
        ),
    ],
)
def test_usage(start: Any, later: Any, usages: list[Usage]) -> None:
    events = events_of(data_of(usage_start(**start), stopped("end_turn", later), STOP))
    assert [event for event in events if isinstance(event, Usage)] == usages


@pytest.mark.parametrize(
    ("tier", "told"), [("standard", "default"), ("batch", "flex"), ("odd", None), (None, None)]
)
def test_the_tier_of_the_answer(tier: str | None, told: str | None) -> None:
    started = events_of(data_of(usage_start(service_tier=tier), stopped(), STOP))[0]
    assert started == Started("msg_1", "claude-x", service_tier=told)


CONTAINER = Opaque(NAME, "message", {"container": {"id": "c"}}, "/container", round_trip=False)


def test_fields_of_the_message_that_have_no_form_of_their_own() -> None:
    """Clients of this protocol get them, others are told."""
    end = {**stopped("end_turn", container={"id": "c"}), "context_management": {"applied_edits": []}}
    ledger = Ledger()
    assert body_of(stop=end, ledger=ledger) == []
    assert [(loss.code.value, loss.path) for loss in ledger] == [("dropped", "/container")]
    ledger = Ledger()
    own = ResponseContext(Request(NAME, "m", (), {}), "x1", 1, "alias")
    reader = SPEC.stream_reader(own, ledger)
    given = [reader.read(Frame(b"", encode(value))) for value in (START, end)]
    edits = Opaque(
        NAME,
        "message",
        {"context_management": {"applied_edits": []}},
        "/context_management",
        round_trip=False,
    )
    assert given == [[STARTED], [CONTAINER, edits]]
    assert list(ledger) == []


@pytest.mark.parametrize(
    ("protocol", "usage", "tier", "extra", "figures", "losses"),
    [
        ("other", {"service_tier": "batch"}, "flex", None, None, []),
        ("other", {"service_tier": ["odd"]}, None, None, None, [("dropped", "/usage/service_tier")]),
        ("other", {"service_tier": "standard", "speed": "fast"}, "priority", None, None, []),
        ("other", {"speed": ["odd"]}, None, None, None, [("dropped", "/usage/speed")]),
        (NAME, {"service_tier": "standard", "speed": "fast"}, "default", {"speed": "fast"}, None, []),
        (
            NAME,
            {"cache_creation": {}, "input_tokens": 1, "iterations": [{"input_tokens": 9}]},
            None,
            {
                "cache_creation": {},
                "iterations": [{"input_tokens": 9}],
            },
            1,
            [],
        ),
    ],
)
def test_tiers_and_figures_for_clients_of_this_protocol_and_others(
    protocol: str, usage: Any, tier: str | None, extra: Any, figures: int | None, losses: Any
) -> None:
    ledger = Ledger()
    context = ResponseContext(Request(protocol, "m", (), {}), "x1", 1, "alias")
    body = {**START["message"], "usage": usage, "stop_reason": "end_turn"}  # type: ignore[dict-item]
    started, counted, *_ = SPEC.read_whole(body, context, ledger)
    assert isinstance(started, Started)
    assert isinstance(counted, Usage)
    assert started.service_tier == tier
    assert (counted.extra, counted.input) == (extra, figures)
    assert [(loss.code.value, loss.path) for loss in ledger] == losses


@pytest.mark.parametrize(("protocol", "losses"), [("other", ["/stop_details/category"]), (NAME, [])])
def test_details_of_a_stop_reach_clients_of_this_protocol(protocol: str, losses: list[str]) -> None:
    ledger = Ledger()
    context = ResponseContext(Request(protocol, "m", (), {}), "x1", 1, "alias")
    details = {"type": "refusal", "category": "bio", "explanation": "No."}
    body = {**START["message"], "stop_reason": "refusal", "stop_details": details}  # type: ignore[dict-item]
    events = SPEC.read_whole(body, context, ledger)
    assert events[-2] == Stopped(StopReason.CONTENT_FILTER, "refusal", explanation="No.", details=details)
    assert [loss.path for loss in ledger] == losses


def test_an_answer_that_is_whole_in_its_start() -> None:
    message = {"content": [{**USE, "caller": {"type": "code_execution_20250825"}}], "stop_reason": "tool_use"}
    ledger = Ledger()
    assert events_of(data_of({"type": "message_start", "message": message}, STOP), ledger) == [
        Started("", ""),
        CALL,
        BlockEnded(0),
        Stopped(StopReason.TOOL_USE, "tool_use"),
        ENDED,
    ]
    assert [(loss.code.value, loss.path) for loss in ledger] == [("dropped", "/content/0/caller")]


def test_a_direct_caller_says_nothing() -> None:
    ledger = Ledger()
    body_of(opened({**USE, "caller": {"type": "direct"}}), closed(), ledger=ledger)
    assert len(ledger) == 0


@pytest.mark.parametrize(
    ("frames", "path"),
    [
        ([TEXT, delta("odd_delta"), closed()], "/content/0"),
        ([opened(THINKING), delta("text_delta", text="a"), closed()], "/content/0"),
        ([opened(USE), delta("text_delta", text="a"), closed()], "/content/0"),
        ([{"type": "odd_event"}], ""),
    ],
)
def test_what_is_not_known_is_told(frames: list[Any], path: str) -> None:
    ledger = Ledger()
    body_of(*frames, ledger=ledger)
    assert [(loss.code.value, loss.path) for loss in ledger] == [("unknown_kind", path)]


# --- the end

GOOD = data_of(START, TEXT, delta("text_delta", text="é"), closed(), stopped(), STOP)
EVENTS = [STARTED, TEXT_SHOWN, TextDelta(0, "é"), BlockEnded(0), Stopped(StopReason.END, "end_turn"), ENDED]


@pytest.mark.parametrize("size", [0, 1, 7])
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


@pytest.mark.parametrize(
    ("frames", "words"),
    [
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
        ([{"type": "message_start", "message": {"content": {}}}], "is no list"),
        ([START, opened(None)], "a content block has no type"),
        ([START, opened({"type": "text"}, index="0")], "a block has no index"),  # type: ignore[arg-type]
        ([START, opened({"type": "tool_use", "id": "t1"})], "a tool call has no name"),
    ],
)
def test_what_cannot_be_read(frames: list[Any], words: str) -> None:
    with pytest.raises(RemoteProtocolError, match=words) as caught:
        events_of(data_of(*frames))
    assert caught.value.status == 502


@pytest.mark.parametrize(
    ("data", "words"),
    [(b"[]", "an event is no JSON object"), (b"{}", "an event has no type"), (b"{", "truncated")],
)
def test_frames_that_are_no_events(data: bytes, words: str) -> None:
    with pytest.raises(RemoteProtocolError, match=words):
        SPEC.stream_reader(EXCHANGE, Ledger()).read(Frame(b"", data))


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


def test_a_stop_whose_index_is_no_number_stops_nothing() -> None:
    odd = {"type": "content_block_stop", "index": [0]}
    assert body_of(TEXT, delta("text_delta", text="a"), odd, stop=stopped())[-1] == BlockEnded(0)


def test_a_delta_without_its_delta() -> None:
    assert body_of({"type": "message_delta"}) == []


# --- whole answers

WHOLE = {
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


def test_a_whole_answer_gives_the_events_of_a_stream() -> None:
    events = SPEC.read_whole(WHOLE, EXCHANGE, Ledger())
    checker = EventOrderChecker()
    for event in events:
        checker.check(event)
    assert list(events) == [
        STARTED,
        Usage(3, 4),
        REASONING_SHOWN,
        ReasoningDelta(0, "hm"),
        seal({"type": "thinking", "thinking": "hm", "signature": "s"}),
        BlockEnded(0),
        shown(1, BlockKind.REASONING),
        seal({"type": "redacted_thinking", "data": "d"}, 1),
        BlockEnded(1),
        shown(2, BlockKind.TEXT),
        TextDelta(2, "a"),
        BlockEnded(2),
        Opaque(NAME, "fallback", {"type": "fallback", "from": {"model": "a"}}, "/content/4"),
        shown(3, BlockKind.TOOL_CALL, 5, tool=ToolHead("t1", "f")),
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
    (failed,) = SPEC.read_whole(body, EXCHANGE, Ledger())
    assert isinstance(failed, Failed)
    assert failed.error.message == "no"


def test_a_body_that_is_no_answer() -> None:
    with pytest.raises(RemoteProtocolError, match="the answer has no content"):
        SPEC.read_whole({"choices": []}, EXCHANGE, Ledger())
