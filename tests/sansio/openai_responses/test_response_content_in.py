"""The items of a Responses response: frames in, events out."""

from __future__ import annotations

from typing import Any

import pytest
from responses_upstream import (
    ADDED,
    BARE_FINAL,
    CALL,
    CALL_ADDED,
    CALL_START,
    CALL_TAIL,
    CONTEXT,
    CUT,
    FINAL,
    HELLO,
    ITEM_DONE,
    MESSAGE,
    ONCE,
    ORIGIN,
    PART_ADDED,
    REASONING,
    REASONING_ADDED,
    SEARCH,
    SIGNATURE_END,
    START,
    STARTED,
    THINKING,
    TWO,
    WRAPPED_DONE,
    arguments,
    call_done,
    created,
    delta,
    ended,
    event,
    events_of,
    message,
    reasoning_delta,
    summary,
    tail,
    text_part,
)

from dragoman._ir.events import (
    Annotation,
    ArgumentsDelta,
    BlockEnded,
    BlockKind,
    BlockStarted,
    Event,
    Logprobs,
    Opaque,
    ReasoningForm,
    Search,
    Signature,
    SignatureDelta,
    Stopped,
    StopReason,
    TextDelta,
    ToolHead,
    ToolKind,
)
from dragoman._ir.losses import Ledger, LossCode
from dragoman._wire.json import encode
from dragoman._wire.sse import SSEParser, encode_frame
from dragoman.protocols.openai_responses import SPEC


def test_text_as_the_vendor_streams_it() -> None:
    assert (
        events_of(
            created(),
            created("in_progress"),
            ADDED,
            PART_ADDED,
            delta("Hel", obfuscation="xx"),
            delta("lo"),
            event("output_text.done", content_index=0, text="Hello", logprobs=[]),
            event("content_part.done", content_index=0, part=text_part("Hello")),
            event("output_item.done", item=message(text_part("Hello"))),
            ended(message(text_part("Hello"))),
        )
        == HELLO
    )


SELECTIONS: list[tuple[list[dict[str, Any]], list[Event]]] = [
    ([created("queued"), ADDED, *TWO, BARE_FINAL], HELLO),
    ([created(), ADDED, *TWO, ITEM_DONE, FINAL], HELLO),
    ([created(), ADDED, *TWO, FINAL], HELLO),
    ([created(), ADDED, event("output_text.done", content_index=0, text="Hello"), BARE_FINAL], ONCE),
    (
        [created(), ADDED, event("content_part.done", content_index=0, part=text_part("Hello")), BARE_FINAL],
        ONCE,
    ),
    ([created(), ADDED, ITEM_DONE, BARE_FINAL], ONCE),
    ([created(), ITEM_DONE, FINAL], ONCE),
    ([created(), ADDED, FINAL], ONCE),
    ([FINAL], ONCE),
    # A part of the text came as deltas, the rest later.
    (
        [created(), ADDED, delta("Hel"), event("output_text.done", content_index=0, text="Hello"), FINAL],
        HELLO,
    ),
    ([created(), ADDED, delta("Hel"), ITEM_DONE, FINAL], HELLO),
    # Text that contradicts the deltas is not emitted.
    (
        [created(), ADDED, *TWO, event("output_item.done", item=message(text_part("Other"))), BARE_FINAL],
        HELLO,
    ),
    # Without an index, it is the item of that id, or the last one. Ids may change.
    (
        [
            created(),
            ADDED,
            {"type": "response.output_text.delta", "item_id": "msg_1", "delta": "Hello"},
            BARE_FINAL,
        ],
        ONCE,
    ),
    ([created(), ADDED, {"type": "response.output_text.delta", "delta": "Hello"}, BARE_FINAL], ONCE),
    (
        [
            created(),
            {"type": "response.output_item.added", "item": MESSAGE},
            *TWO,
            event("output_item.done", item=message(text_part("Hello"), id="msg_other")),
            ended(message(text_part("Hello"), id="msg_third")),
        ],
        HELLO,
    ),
    (
        [created(), {"type": "response.output_item.done", "item": message(text_part("Hello"))}, BARE_FINAL],
        ONCE,
    ),
]


@pytest.mark.parametrize(("payloads", "expected"), SELECTIONS)
def test_text_in_whatever_selection_the_server_sends(
    payloads: list[dict[str, Any]], expected: list[Event]
) -> None:
    assert events_of(*payloads) == expected


NOTHING: list[dict[str, Any]] = [
    {"type": "keepalive", "sequence_number": 3},
    {"type": "response.web_search_call.searching", "output_index": 0},
    {"type": "response.shell_call_command.delta", "output_index": 0, "delta": "ls"},
    {"type": "something.new"},
    {"odd": 1},
    event("output_item.added", item=None),
    event("output_item.done", item=None),
    event("output_text.delta", 9, delta="x"),
    event("output_text.done", 9, text="x"),
    event("content_part.added", 9, part={"type": "reasoning_text"}),
    event("content_part.added", 9, part=None),
    event("content_part.done", 9, part=text_part("x")),
    event("content_part.done", part="x"),
    event("output_text.annotation.added", annotation=None),
    event("output_text.annotation.added", 9, annotation={}),
    event("output_text.annotation.added", annotation={"type": "file_path"}),
    event("content_part.done", content_index=3, part=text_part("")),
    event("reasoning_summary_text.delta", delta="x"),
    event("reasoning_summary_text.done", text="x"),
    event("function_call_arguments.delta", delta="x"),
    event("function_call_arguments.done", arguments="x"),
    event("output_text.delta", delta=3),
    event("output_text.delta", "0", delta="x", item_id="nobody"),
]


def test_events_without_content_are_ignored(subtests: pytest.Subtests) -> None:
    for payload in NOTHING:
        with subtests.test(payload=payload):
            assert events_of(created(), ADDED, payload, *TWO, BARE_FINAL) == HELLO


def test_a_done_sentinel_is_tolerated() -> None:
    stream = b"".join(
        encode_frame(encode(payload)) for payload in (created(), ADDED, *TWO, FINAL)
    ) + encode_frame(b"[DONE]")
    reader = SPEC.stream_reader(CONTEXT, Ledger())
    assert [e for f in SSEParser().receive_data(stream) for e in reader.read(f)] == HELLO


def test_parts_of_one_message_are_blocks_of_their_own() -> None:
    refusal = {"type": "refusal", "refusal": "No."}
    assert events_of(
        created(),
        event("output_item.added", item={**MESSAGE, "phase": "final_answer"}),
        delta("A"),
        event("refusal.delta", content_index=1, delta="N"),
        event("refusal.delta", content_index=1, delta="o."),
        event("refusal.done", content_index=1, refusal="No."),
        event("content_part.done", content_index=1, part=refusal),
        event("output_item.done", item=message(text_part("A"), refusal, "odd", phase="final_answer")),  # type: ignore[arg-type]
        BARE_FINAL,
    ) == [
        STARTED,
        BlockStarted(0, BlockKind.TEXT, item_id="msg_1", phase="final_answer"),
        TextDelta(0, "A"),
        BlockEnded(0),
        BlockStarted(1, BlockKind.REFUSAL, item_id="msg_1", phase="final_answer"),
        TextDelta(1, "N"),
        TextDelta(1, "o."),
        BlockEnded(1),
        *tail(),
    ]


def test_text_after_the_end_of_its_item_is_a_new_block() -> None:
    assert events_of(created(), ADDED, *TWO, ITEM_DONE, delta("more"), BARE_FINAL)[5:] == [
        BlockStarted(1, BlockKind.TEXT, item_id="msg_1"),
        TextDelta(1, "more"),
        BlockEnded(1),
        *tail(),
    ]


URL = {"type": "url_citation", "url": "https://x", "title": "X", "start_index": 0, "end_index": 5}
ANNOTATIONS = "/output/0/content/0/annotations"
FILE = {"type": "file_citation", "file_id": "f", "filename": "f.txt", "index": 2}


@pytest.mark.parametrize("live", [True, False])
def test_annotations_come_once(live: bool) -> None:
    added = event("output_text.annotation.added", content_index=0, annotation_index=0, annotation=URL)
    done = event("content_part.done", content_index=0, part=text_part("Hello", annotations=[URL, FILE]))
    found = events_of(created(), ADDED, *TWO, *([added] if live else []), done, BARE_FINAL)
    assert found[4:6] == [
        Annotation(0, ORIGIN, URL, "https://x", "X", 0, 5, ANNOTATIONS),
        Annotation(0, ORIGIN, FILE, path=ANNOTATIONS),
    ]


def test_unknown_fields_of_annotations_have_a_path() -> None:
    ledger = Ledger()
    odd = {**URL, "x": {}, "y": None}
    done = event("content_part.done", content_index=0, part=text_part("Hello", annotations=[FILE, odd]))
    events_of(created(), ADDED, *TWO, done, BARE_FINAL, ledger=ledger)
    assert [(loss.code, loss.path) for loss in ledger] == [(LossCode.UNKNOWN_FIELD, f"{ANNOTATIONS}/1/x")]


TOKEN = {"token": "Hello", "logprob": -0.1, "bytes": [], "top_logprobs": []}


def test_log_probabilities_come_before_their_text() -> None:
    assert events_of(created(), ADDED, {**delta("Hello"), "logprobs": [TOKEN, "odd"]}, BARE_FINAL) == [
        STARTED,
        START,
        Logprobs(0, [TOKEN]),
        TextDelta(0, "Hello"),
        BlockEnded(0),
        *tail(),
    ]
    whole = SPEC.read_whole(
        ended(message(text_part("Hello", logprobs=[TOKEN])))["response"], CONTEXT, Ledger()
    )
    assert Logprobs(0, [TOKEN]) in whole


CALL_SELECTIONS: list[tuple[list[dict[str, Any]], list[Event]]] = [
    (
        [
            CALL_ADDED,
            arguments("{"),
            arguments("}"),
            event("function_call_arguments.done", arguments="{}"),
            call_done("{}"),
        ],
        [CALL_START, ArgumentsDelta(0, "{"), ArgumentsDelta(0, "}"), BlockEnded(0)],
    ),
    (
        [CALL_ADDED, arguments(""), event("function_call_arguments.done", arguments="{}"), call_done("{}")],
        [CALL_START, ArgumentsDelta(0, "{}"), BlockEnded(0)],
    ),
    ([CALL_ADDED, call_done("{}"), arguments("late")], [CALL_START, ArgumentsDelta(0, "{}"), BlockEnded(0)]),
    ([call_done("{}")], [CALL_START, ArgumentsDelta(0, "{}"), BlockEnded(0)]),
    ([CALL_ADDED, call_done("")], [CALL_START, BlockEnded(0)]),
    ([CALL_ADDED], [CALL_START, BlockEnded(0)]),
    # The name comes later than the arguments.
    (
        [
            event("output_item.added", item={**CALL, "name": ""}),
            arguments("{"),
            arguments("}"),
            call_done("{}"),
        ],
        [CALL_START, ArgumentsDelta(0, "{}"), BlockEnded(0)],
    ),
    # Without a name, and without an id.
    (
        [event("output_item.done", item={"type": "function_call", "id": "fc_9"})],
        [
            BlockStarted(
                0, BlockKind.TOOL_CALL, tool=ToolHead("fc_9", "unknown", item_id="fc_9"), item_id="fc_9"
            ),
            BlockEnded(0),
        ],
    ),
    (
        [event("output_item.added", item={"type": "function_call", "name": "f"})],
        [BlockStarted(0, BlockKind.TOOL_CALL, tool=ToolHead("call_0", "f")), BlockEnded(0)],
    ),
    (
        [event("output_item.added", item={**CALL, "namespace": "ns"})],
        [
            BlockStarted(
                0,
                BlockKind.TOOL_CALL,
                tool=ToolHead("c1", "f", namespace="ns", item_id="fc_1"),
                item_id="fc_1",
            ),
            BlockEnded(0),
        ],
    ),
]


@pytest.mark.parametrize(("payloads", "expected"), CALL_SELECTIONS)
def test_function_calls(payloads: list[dict[str, Any]], expected: list[Event]) -> None:
    assert events_of(created(), *payloads, BARE_FINAL) == [STARTED, *expected, *CALL_TAIL]


def test_a_call_without_a_name_is_ignored() -> None:
    nameless = event("output_item.added", item={"type": "function_call"})
    assert events_of(created(), nameless, BARE_FINAL) == [STARTED, *CALL_TAIL]


def test_custom_tool_calls() -> None:
    item = {"id": "ctc_1", "type": "custom_tool_call", "call_id": "c1", "name": "p", "input": ""}
    head = ToolHead("c1", "p", ToolKind.CUSTOM, item_id="ctc_1")
    assert events_of(
        created(),
        event("output_item.added", item=item),
        event("custom_tool_call_input.delta", delta="a"),
        event("custom_tool_call_input.delta", delta="b"),
        event("custom_tool_call_input.done", input="ab"),
        event("output_item.done", item={**item, "input": "ab"}),
        BARE_FINAL,
    ) == [
        STARTED,
        BlockStarted(0, BlockKind.TOOL_CALL, tool=head, item_id="ctc_1"),
        ArgumentsDelta(0, "a"),
        ArgumentsDelta(0, "b"),
        BlockEnded(0),
        *CALL_TAIL,
    ]


def test_parallel_calls_keep_their_own_text() -> None:
    other = {**CALL, "id": "fc_2", "call_id": "c2"}
    found = events_of(
        created(),
        CALL_ADDED,
        event("output_item.added", 1, item=other),
        arguments("{"),
        event("function_call_arguments.delta", 1, delta="[]"),
        arguments("}"),
        BARE_FINAL,
    )
    assert [(e.block, e.text) for e in found if isinstance(e, ArgumentsDelta)] == [
        (0, "{"),
        (1, "[]"),
        (0, "}"),
    ]


def test_a_caller_is_a_loss() -> None:
    ledger = Ledger()
    called = event("output_item.added", item={**CALL, "caller": {"type": "program", "caller_id": "p"}})
    direct = event("output_item.added", 1, item={**CALL, "call_id": "c2", "caller": {"type": "direct"}})
    events_of(created(), called, direct, BARE_FINAL, ledger=ledger)
    assert [loss.path for loss in ledger] == ["/output/0/caller"]


CUTS: list[tuple[list[dict[str, Any]], bool]] = [
    ([arguments('{"a')], False),
    ([arguments("{}")], True),
    ([arguments('{"a'), call_done('{"a', status="incomplete")], False),
    ([call_done("{}", status="incomplete")], True),
]


@pytest.mark.parametrize(("payloads", "complete"), CUTS)
def test_a_call_that_was_cut_is_not_complete(payloads: list[dict[str, Any]], complete: bool) -> None:
    found = events_of(created(), CALL_ADDED, *payloads, ended(status="incomplete", **CUT))
    assert BlockEnded(0, complete) in found
    assert found[-2] == Stopped(StopReason.MAX_TOKENS, "max_output_tokens")


def test_text_and_custom_calls_that_were_cut() -> None:
    item = {"type": "custom_tool_call", "call_id": "c", "name": "p"}
    found = events_of(
        created(), ADDED, *TWO, event("output_item.added", 1, item=item), ended(status="incomplete", **CUT)
    )
    assert [e for e in found if isinstance(e, BlockEnded)] == [BlockEnded(0, False), BlockEnded(1, False)]
    done = event("output_item.done", item=message(text_part("Hello"), status="incomplete"))
    assert BlockEnded(0, False) in events_of(created(), ADDED, *TWO, done, ended(status="incomplete", **CUT))


REASONING_CASES: list[tuple[list[dict[str, Any]], list[Event]]] = [
    (
        [
            REASONING_ADDED,
            event("reasoning_summary_part.added", summary_index=0, part={"type": "summary_text", "text": ""}),
            summary("a"),
            summary("b"),
            event("reasoning_summary_text.done", summary_index=0, text="ab"),
            summary("c", 1),
            WRAPPED_DONE,
        ],
        [THINKING, reasoning_delta("a"), reasoning_delta("b"), reasoning_delta("c", 1), *SIGNATURE_END],
    ),
    (
        [REASONING_ADDED, event("reasoning_summary_text.done", summary_index=0, text="ab"), WRAPPED_DONE],
        [THINKING, reasoning_delta("ab"), reasoning_delta("c", 1), *SIGNATURE_END],
    ),
    (
        [WRAPPED_DONE, summary("late")],
        [THINKING, reasoning_delta("ab"), reasoning_delta("c", 1), *SIGNATURE_END],
    ),
    (
        [event("output_item.done", item={**REASONING, "encrypted_content": "gA"})],
        [
            THINKING,
            SignatureDelta(0, Signature(ORIGIN, {**REASONING, "encrypted_content": "gA"}, "gpt")),
            BlockEnded(0),
        ],
    ),
    (
        [
            REASONING_ADDED,
            event("reasoning_text.delta", content_index=0, delta="de"),
            event("reasoning_text.delta", content_index=0, delta=""),
            event("reasoning_text.done", content_index=0, text="deep"),
            event("output_item.done", item={**REASONING, "content": [{"text": "deep"}, "odd"]}),
        ],
        [
            THINKING,
            reasoning_delta("de", 0, ReasoningForm.FULL),
            reasoning_delta("ep", 0, ReasoningForm.FULL),
            SignatureDelta(0, Signature(ORIGIN, {**REASONING, "content": [{"text": "deep"}, "odd"]}, "gpt")),
            BlockEnded(0),
        ],
    ),
    # Never finished, so without a signature.
    ([REASONING_ADDED, summary("a")], [THINKING, reasoning_delta("a"), BlockEnded(0, False)]),
    ([REASONING_ADDED], []),
]


@pytest.mark.parametrize(("payloads", "expected"), REASONING_CASES)
def test_reasoning(payloads: list[dict[str, Any]], expected: list[Event]) -> None:
    assert events_of(created(), *payloads, BARE_FINAL) == [STARTED, *expected, *tail()]


def test_other_items_are_emitted_whole_when_they_are_done() -> None:
    ledger = Ledger()
    found = events_of(
        created(),
        event("output_item.added", item={"id": "ws_1", "type": "web_search_call", "status": "in_progress"}),
        event("web_search_call.searching"),
        event("output_item.done", item=SEARCH),
        event("output_item.added", 1, item={"id": "ws_2", "type": "web_search_call"}),
        ended(SEARCH, {"id": "tomorrow_1", "type": "tomorrow"}, "odd"),
        ledger=ledger,
    )
    assert found == [
        STARTED,
        Opaque(ORIGIN, "web_search_call", SEARCH, "/output/0", search=Search(())),
        Opaque(ORIGIN, "tomorrow", {"id": "tomorrow_1", "type": "tomorrow"}, "/output/1"),
        *tail(),
    ]
    assert [loss.path for loss in ledger] == ["/output/1"]


def test_another_item_at_a_used_index_ends_the_first() -> None:
    found = events_of(created(), ADDED, delta("Hello"), CALL_ADDED, arguments("{}"), BARE_FINAL)
    assert found == [
        STARTED,
        START,
        TextDelta(0, "Hello"),
        BlockEnded(0),
        BlockStarted(1, BlockKind.TOOL_CALL, tool=CALL_START.tool, item_id="fc_1"),
        ArgumentsDelta(1, "{}"),
        BlockEnded(1),
        *CALL_TAIL,
    ]
