"""Content blocks of responses, read into events."""

from __future__ import annotations

from typing import Any

import pytest
from messages_upstream import (
    NAME,
    START,
    TEXT,
    USE,
    body_of,
    call,
    closed,
    delta,
    opened,
    reasoning,
    signature,
    started,
    stopped,
    text,
)

from dragoman._ir.events import (
    Annotation,
    ArgumentsDelta,
    BlockEnded,
    BlockKind,
    Event,
    Opaque,
    ReasoningDelta,
    Search,
    Source,
    TextDelta,
    ToolHead,
)
from dragoman._ir.losses import Ledger, LossCode
from dragoman._ir.request import Request
from dragoman.codec import ResponseContext
from dragoman.protocols.anthropic_messages import SPEC

CITATIONS = "/content/0/citations"
CITATION = {"type": "web_search_result_location", "url": "https://x", "title": "T", "cited_text": "c"}
CITATION_OF_CLIENT = {"type": "search_result_location", "source": "https://y", "title": "O"}
CITATION_PAGE = {"type": "page_location", "document_title": "D", "url": 7}
THINKING = {"type": "thinking", "thinking": "", "signature": ""}
REDACTED = {"type": "redacted_thinking", "data": "d"}
RESULTS = [
    {"type": "web_search_result", "url": "https://x", "title": "T", "encrypted_content": "e"},
    {"url": "https://y", "title": None},
    {"url": 7},
    "odd",
]
SEARCH_USE = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}
SEARCH_RESULT = {"type": "web_search_tool_result", "tool_use_id": "s", "content": RESULTS}
FETCH_USE = {"type": "server_tool_use", "id": "s", "name": "web_fetch", "input": {"query": "q"}}
FAILED_SEARCH = {"type": "web_search_tool_result", "tool_use_id": "s", "content": {"error": 1}}
HALF_USE = {"type": "server_tool_use", "id": "t", "name": "web_search", "input": "half"}
COMPACTION = {"type": "compaction", "content": "ab", "encrypted_content": "e"}


def texts(*values: str | None) -> list[Any]:
    return [delta("text_delta", text=value) for value in values]


def inputs(*values: str | None) -> list[Any]:
    return [delta("input_json_delta", partial_json=value) for value in values]


def opaque(native: dict[str, Any], index: int = 0, **fields: Any) -> Opaque:
    return Opaque(NAME, native["type"], native, f"/content/{index}", **fields)


# Frames between the start and the end of a stream, and their events.
BLOCKS: dict[str, tuple[list[Any], list[Event]]] = {
    "text": (
        [TEXT, *texts("a"), {"type": "ping"}, *texts("b"), closed()],
        text(TextDelta(0, "a"), TextDelta(0, "b")),
    ),
    "an empty text block never shows": ([TEXT, *texts("", None), closed()], []),
    "an empty delta is nothing": ([TEXT, *texts("a", ""), closed()], text(TextDelta(0, "a"))),
    "a text block that starts full": (
        [opened({"type": "text", "text": "ab", "citations": [CITATION]}), closed()],
        text(TextDelta(0, "ab"), Annotation(0, NAME, CITATION, url="https://x", title="T", path=CITATIONS)),
    ),
    "a search result of the client": (
        [opened({"type": "text", "text": "a", "citations": [CITATION_OF_CLIENT]}), closed()],
        text(
            TextDelta(0, "a"),
            Annotation(0, NAME, CITATION_OF_CLIENT, url="https://y", title="O", path=CITATIONS),
        ),
    ),
    "a citation before the text": (
        [
            TEXT,
            delta("citations_delta", citation=CITATION_PAGE),
            delta("citations_delta", citation=None),
            *texts("a"),
            closed(),
        ],
        text(Annotation(0, NAME, CITATION_PAGE, title="D", path=CITATIONS), TextDelta(0, "a")),
    ),
    "thinking": (
        [
            opened(THINKING),
            delta("thinking_delta", thinking="a", estimated_tokens=3),
            delta("thinking_delta", thinking=""),
            delta("thinking_delta", thinking="b"),
            delta("signature_delta", signature="sig"),
            closed(),
        ],
        reasoning(
            ReasoningDelta(0, "a"),
            ReasoningDelta(0, "b"),
            signature({"type": "thinking", "thinking": "ab", "signature": "sig"}),
        ),
    ),
    "C2 thinking with only a signature": (
        [opened(THINKING), delta("signature_delta", signature="sig"), closed()],
        reasoning(signature({**THINKING, "signature": "sig"})),
    ),
    "thinking with nothing": ([opened(THINKING), closed()], []),
    "thinking of a server that signs nothing": (
        [opened({"type": "thinking", "thinking": "a"}), closed()],
        reasoning(ReasoningDelta(0, "a"), signature({"type": "thinking", "thinking": "a"})),
    ),
    "redacted thinking": ([opened(REDACTED), closed()], reasoning(signature(REDACTED))),
    "a tool call": (
        [opened(USE), *inputs("", '{"a":', " 1}"), closed()],
        call(ArgumentsDelta(0, '{"a":'), ArgumentsDelta(0, " 1}")),
    ),
    "a tool call without arguments": ([opened(USE), closed()], call()),
    "a tool call that starts full": (
        [opened({**USE, "input": {"a": 1}}), closed()],
        call(ArgumentsDelta(0, '{"a":1}')),
    ),
    "a tool call without an id": (
        [opened({"type": "tool_use", "name": "f"}), closed()],
        [started(0, BlockKind.TOOL_CALL, tool=ToolHead("toolu_x1_0", "f")), BlockEnded(0)],
    ),
    "bad JSON, but the model went on": (
        [opened(USE), *inputs("{oops"), closed(), opened({"type": "text", "text": "a"}, 1), closed(1)],
        [
            *call(ArgumentsDelta(0, "{oops")),
            started(1, BlockKind.TEXT),
            TextDelta(1, "a"),
            BlockEnded(1),
        ],
    ),
    "a web search": (
        [
            opened(SEARCH_USE),
            *inputs('{"query":', '"q"}', None),
            closed(),
            opened(SEARCH_RESULT, 1),
            closed(1),
        ],
        [
            opaque({**SEARCH_USE, "input": {"query": "q"}}),
            opaque(SEARCH_RESULT, 1, search=Search(("q",), (Source("https://x", "T"), Source("https://y")))),
        ],
    ),
    "other tools, and a search that failed": (
        [
            *(opened(FETCH_USE), closed()),
            *(opened(FAILED_SEARCH, 1), closed(1)),
            *(opened(HALF_USE, 2), closed(2)),
        ],
        [opaque(FETCH_USE), opaque(FAILED_SEARCH, 1, search=Search(())), opaque(HALF_USE, 2)],
    ),
    "a server tool with half an input": (
        [opened({"type": "mcp_tool_use"}), *inputs("{oops"), closed()],
        [opaque({"type": "mcp_tool_use", "input": "{oops"})],
    ),
    "compaction": (
        [
            opened({"type": "compaction", "content": None}),
            delta("compaction_delta", content="a", encrypted_content=None),
            delta("compaction_delta", content="b", encrypted_content="e"),
            closed(),
        ],
        [opaque(COMPACTION)],
    ),
    "an index that is used again, and a stop of nothing": (
        [opened({"type": "text", "text": "a"}), opened({"type": "text", "text": "b"}), closed(), closed(9)],
        [*text(TextDelta(0, "a")), started(1, BlockKind.TEXT, 0), TextDelta(1, "b"), BlockEnded(1)],
    ),
    "message_start again": (
        [START, opened({"type": "text", "text": "a"}), START, closed()],
        text(TextDelta(0, "a")),
    ),
}


@pytest.mark.parametrize(("frames", "events"), BLOCKS.values(), ids=BLOCKS)
def test_blocks(frames: list[Any], events: list[Event]) -> None:
    assert body_of(*frames) == events


def test_unknown_fields_of_citations_are_recorded_with_their_paths() -> None:
    """Those that a block starts with and those that come later are one list."""
    ledger = Ledger()
    block = opened({"type": "text", "text": "a", "citations": [CITATION]})
    body_of(block, delta("citations_delta", citation={**CITATION, "x": {}}), closed(), ledger=ledger)
    assert [(loss.code, loss.path) for loss in ledger] == [(LossCode.UNKNOWN_FIELD, f"{CITATIONS}/1/x")]


PARTIAL = '{"a": "b'
WHOLE_THINKING = {"type": "thinking", "thinking": "a", "signature": "s"}
UNSIGNED_THINKING = {"type": "thinking", "thinking": "a"}


@pytest.mark.parametrize(
    ("frames", "reason", "ends"),
    [
        ([opened(USE), *inputs(PARTIAL)], "max_tokens", [BlockEnded(0, False)]),
        ([opened(USE), *inputs(PARTIAL), closed()], "max_tokens", [BlockEnded(0, False)]),
        ([opened(USE), *inputs(PARTIAL), closed()], "tool_use", [BlockEnded(0)]),
        ([opened(USE), *inputs("{}")], "max_tokens", [BlockEnded(0)]),
        ([opened(USE)], "max_tokens", [BlockEnded(0, False)]),
        ([opened(USE), closed()], "max_tokens", [BlockEnded(0)]),
        ([TEXT, *texts("a")], "model_context_window_exceeded", [BlockEnded(0, False)]),
        ([opened(THINKING), delta("thinking_delta", thinking="a")], "max_tokens", [BlockEnded(0, False)]),
        ([opened(WHOLE_THINKING)], "max_tokens", [signature(WHOLE_THINKING), BlockEnded(0, False)]),
        ([opened(UNSIGNED_THINKING)], "end_turn", [signature(UNSIGNED_THINKING), BlockEnded(0)]),
    ],
)
def test_blocks_that_the_end_of_the_response_closes(
    frames: list[Any], reason: str, ends: list[Event]
) -> None:
    events = body_of(*frames, stop=stopped(reason))
    assert events[-len(ends) :] == ends


def test_the_default_caller_is_no_loss() -> None:
    ledger = Ledger()
    body_of(opened({**USE, "caller": {"type": "direct"}}), closed(), ledger=ledger)
    assert len(ledger) == 0


def test_a_content_block_stop_without_a_number() -> None:
    odd = {"type": "content_block_stop", "index": [0]}
    assert body_of(TEXT, *texts("a"), odd)[-1] == BlockEnded(0)


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
