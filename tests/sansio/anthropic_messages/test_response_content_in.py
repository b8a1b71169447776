"""Content blocks of responses, read into events."""

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
    Opaque,
    ReasoningDelta,
    Search,
    Signature,
    SignatureDelta,
    Source,
    Started,
    TextDelta,
    ToolHead,
)
from dragoman._ir.losses import Ledger, LossCode
from dragoman._ir.request import Request
from dragoman._wire.json import encode
from dragoman._wire.sse import Frame
from dragoman.codec import ResponseContext
from dragoman.protocols.anthropic_messages import SPEC

NAME = "anthropic_messages"
CONTEXT = ResponseContext(Request("other", "m", ()), "x1", 1, "alias")
START = {
    "type": "message_start",
    "message": {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-x", "content": []},
}


def opened(block: Any, index: int = 0) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": block}


def delta(kind: str, index: int = 0, **fields: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **fields}}


def closed(index: int = 0) -> dict[str, Any]:
    return {"type": "content_block_stop", "index": index}


def search_result(use_id: str, *results: Any) -> dict[str, Any]:
    return {"type": "web_search_tool_result", "tool_use_id": use_id, "content": list(results)}


def started(block: int, kind: BlockKind, at: int | None = None, **fields: Any) -> BlockStarted:
    """Return the start of a block. at: its index in the upstream's response, by default its number."""
    return BlockStarted(block, kind, path=f"/content/{block if at is None else at}", **fields)


def read(*values: Any, reason: str = "end_turn", ledger: Ledger | None = None) -> list[Event]:
    """Return the events between the start and the end of a stream, after their order is checked."""
    reader = SPEC.stream_reader(CONTEXT, Ledger() if ledger is None else ledger)
    checker = EventOrderChecker()
    end = {"type": "message_delta", "delta": {"stop_reason": reason}}
    events: list[Event] = []
    for value in (START, *values, end, {"type": "message_stop"}):
        events += reader.read(Frame(b"", encode(value)))
    for event in events:
        checker.check(event)
    assert events[0] == Started("msg_1", "claude-x")
    assert events[-1] == ENDED
    return events[1:-2]


TEXT = opened({"type": "text", "text": ""})
USE = {"type": "tool_use", "id": "t1", "name": "f", "input": {}}
CALL = started(0, BlockKind.TOOL_CALL, tool=ToolHead("t1", "f"))
CITATIONS = "/content/0/citations"
CITATION = {"type": "web_search_result_location", "url": "https://x", "title": "T", "cited_text": "c"}
CITATION_OF_CLIENT = {"type": "search_result_location", "source": "https://y", "title": "O"}
CITATION_PAGE = {"type": "page_location", "document_title": "D", "url": 7}
THINKING = {"type": "thinking", "thinking": "", "signature": ""}
RESULT = {"type": "web_search_result", "url": "https://x", "title": "T", "encrypted_content": "e"}
TEXT_STARTED = started(0, BlockKind.TEXT)
REASONING_STARTED = started(0, BlockKind.REASONING)


def signature(native: Any, block: int = 0) -> SignatureDelta:
    return SignatureDelta(block, Signature(NAME, native, "claude-x"))


@pytest.mark.parametrize(
    ("frames", "events"),
    [
        pytest.param(
            [TEXT, delta("text_delta", text="a"), {"type": "ping"}, delta("text_delta", text="b"), closed()],
            [TEXT_STARTED, TextDelta(0, "a"), TextDelta(0, "b"), BlockEnded(0)],
            id="text",
        ),
        pytest.param(
            [TEXT, delta("text_delta", text=""), delta("text_delta", text=None), closed()],
            [],
            id="an empty text block never shows",
        ),
        pytest.param(
            [TEXT, delta("text_delta", text="a"), delta("text_delta", text=""), closed()],
            [TEXT_STARTED, TextDelta(0, "a"), BlockEnded(0)],
            id="an empty delta is nothing",
        ),
        pytest.param(
            [opened({"type": "text", "text": "ab", "citations": [CITATION]}), closed()],
            [
                TEXT_STARTED,
                TextDelta(0, "ab"),
                Annotation(0, NAME, CITATION, url="https://x", title="T", path=CITATIONS),
                BlockEnded(0),
            ],
            id="a text block that starts full",
        ),
        pytest.param(
            [opened({"type": "text", "text": "a", "citations": [CITATION_OF_CLIENT]}), closed()],
            [
                TEXT_STARTED,
                TextDelta(0, "a"),
                Annotation(0, NAME, CITATION_OF_CLIENT, url="https://y", title="O", path=CITATIONS),
                BlockEnded(0),
            ],
            id="a search result of the client",
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
                TEXT_STARTED,
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
                REASONING_STARTED,
                ReasoningDelta(0, "a"),
                ReasoningDelta(0, "b"),
                signature({"type": "thinking", "thinking": "ab", "signature": "sig"}),
                BlockEnded(0),
            ],
            id="thinking",
        ),
        pytest.param(
            [opened(THINKING), delta("signature_delta", signature="sig"), closed()],
            [
                REASONING_STARTED,
                signature({"type": "thinking", "thinking": "", "signature": "sig"}),
                BlockEnded(0),
            ],
            id="C2 thinking with only a signature",
        ),
        pytest.param([opened(THINKING), closed()], [], id="thinking with nothing"),
        pytest.param(
            [opened({"type": "thinking", "thinking": "a"}), closed()],
            [
                REASONING_STARTED,
                ReasoningDelta(0, "a"),
                signature({"type": "thinking", "thinking": "a"}),
                BlockEnded(0),
            ],
            id="thinking of a server that signs nothing",
        ),
        pytest.param(
            [opened({"type": "redacted_thinking", "data": "d"}), closed()],
            [REASONING_STARTED, signature({"type": "redacted_thinking", "data": "d"}), BlockEnded(0)],
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
            [started(0, BlockKind.TOOL_CALL, tool=ToolHead("toolu_x1_0", "f")), BlockEnded(0)],
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
                started(1, BlockKind.TEXT),
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
                opened(search_result("s", RESULT, {"url": "https://y", "title": None}, {"url": 7}, "odd"), 1),
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
                    search_result("s", RESULT, {"url": "https://y", "title": None}, {"url": 7}, "odd"),
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
                TEXT_STARTED,
                TextDelta(0, "a"),
                BlockEnded(0),
                started(1, BlockKind.TEXT, 0),
                TextDelta(1, "b"),
                BlockEnded(1),
            ],
            id="an index that is used again, and a stop of nothing",
        ),
        pytest.param(
            [START, opened({"type": "text", "text": "a"}), START, closed()],
            [TEXT_STARTED, TextDelta(0, "a"), BlockEnded(0)],
            id="message_start again",
        ),
    ],
)
def test_blocks(frames: list[Any], events: list[Event]) -> None:
    assert read(*frames) == events


def test_unknown_fields_of_citations_are_recorded_with_their_paths() -> None:
    """Those that a block starts with and those that come later are one list."""
    ledger = Ledger()
    block = opened({"type": "text", "text": "a", "citations": [CITATION]})
    read(block, delta("citations_delta", citation={**CITATION, "x": {}}), closed(), ledger=ledger)
    assert [(loss.code, loss.path) for loss in ledger] == [(LossCode.UNKNOWN_FIELD, f"{CITATIONS}/1/x")]


PARTIAL = '{"a": "b'


@pytest.mark.parametrize(
    ("frames", "reason", "ends"),
    [
        (
            [opened(USE), delta("input_json_delta", partial_json=PARTIAL)],
            "max_tokens",
            [BlockEnded(0, False)],
        ),
        (
            [opened(USE), delta("input_json_delta", partial_json=PARTIAL), closed()],
            "max_tokens",
            [BlockEnded(0, False)],
        ),
        (
            [opened(USE), delta("input_json_delta", partial_json=PARTIAL), closed()],
            "tool_use",
            [BlockEnded(0)],
        ),
        ([opened(USE), delta("input_json_delta", partial_json="{}")], "max_tokens", [BlockEnded(0)]),
        ([opened(USE)], "max_tokens", [BlockEnded(0, False)]),
        ([opened(USE), closed()], "max_tokens", [BlockEnded(0)]),
        ([TEXT, delta("text_delta", text="a")], "model_context_window_exceeded", [BlockEnded(0, False)]),
        ([opened(THINKING), delta("thinking_delta", thinking="a")], "max_tokens", [BlockEnded(0, False)]),
        (
            [opened({"type": "thinking", "thinking": "a", "signature": "s"})],
            "max_tokens",
            [signature({"type": "thinking", "thinking": "a", "signature": "s"}), BlockEnded(0, False)],
        ),
        (
            [opened({"type": "thinking", "thinking": "a"})],
            "end_turn",
            [signature({"type": "thinking", "thinking": "a"}), BlockEnded(0)],
        ),
    ],
)
def test_blocks_that_the_end_of_the_response_closes(
    frames: list[Any], reason: str, ends: list[Event]
) -> None:
    events = read(*frames, reason=reason)
    assert events[-len(ends) :] == ends


def test_the_default_caller_is_no_loss() -> None:
    ledger = Ledger()
    read(opened({**USE, "caller": {"type": "direct"}}), closed(), ledger=ledger)
    assert len(ledger) == 0


def test_a_content_block_stop_without_a_number() -> None:
    odd = {"type": "content_block_stop", "index": [0]}
    assert read(TEXT, delta("text_delta", text="a"), odd)[-1] == BlockEnded(0)


MESSAGE = {"id": "i", "type": "message", "role": "assistant", "model": "m", "content": []}


@pytest.mark.parametrize(
    ("client", "losses"),
    [
        ("anthropic_messages", [("unknown_field", "/content/0/x")]),
        ("another", []),  # the signature holds it
    ],
)
def test_unknown_fields_of_thinking_by_the_protocol_of_the_client(client: str, losses: Any) -> None:
    ledger = Ledger()
    context = ResponseContext(Request(client, "m", ()), "x1", 1, "alias")
    thinking = {"type": "thinking", "thinking": "so", "signature": "s", "x": 1}
    SPEC.read_whole({**MESSAGE, "content": [thinking], "stop_reason": "end_turn"}, context, ledger)
    assert [(loss.code.value, loss.path) for loss in ledger] == losses
