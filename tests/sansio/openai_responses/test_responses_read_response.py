"""What a Responses answer means: frames or a body in, events out."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman._errors import RemoteProtocolError
from dragoman._events import (
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
    ReasoningForm,
    Seal,
    SealDelta,
    Started,
    Stopped,
    StopReason,
    TextDelta,
    ToolHead,
    ToolKind,
    Usage,
)
from dragoman._fault import Fault, FaultKind
from dragoman._grammar import Checker
from dragoman._json import encode
from dragoman._loss import Ledger
from dragoman._request import Request
from dragoman._spec import Exchange
from dragoman._sse import Frame, SSEParser, frame
from dragoman.protocols.openai_responses import SPEC

ORIGIN = "openai_responses"
EXCHANGE = Exchange(Request("openai_chat", "alias", (), {}), "x1", 7, "alias")
HEAD = {"id": "resp_1", "model": "gpt", "created_at": 5, "status": "in_progress", "output": []}
USAGE = {"input_tokens": 3, "output_tokens": 2, "total_tokens": 5}
STARTED = Started("resp_1", "gpt", 5)
COUNTED = Usage(3, 2)


def created(kind: str = "created") -> dict[str, Any]:
    return {"type": f"response.{kind}", "response": HEAD}


def ended(*output: Any, status: str = "completed", **fields: Any) -> dict[str, Any]:
    response = {**HEAD, "status": status, "output": list(output), "usage": USAGE, **fields}
    return {"type": f"response.{status}", "response": response}


def event(kind: str, index: int = 0, **fields: Any) -> dict[str, Any]:
    return {"type": f"response.{kind}", "output_index": index, **fields}


def events_of(*payloads: dict[str, Any], named: bool = True, ledger: Ledger | None = None) -> list[Event]:
    """The events of a stream; legal ones, and the same when the stream has no event lines."""
    reader = SPEC.stream_reader(EXCHANGE, Ledger() if ledger is None else ledger)
    found: list[Event] = []
    for payload in payloads:
        name = str(payload.get("type", "")).encode() if named else b""
        found += reader.read(Frame(name, encode(payload)))
    assert list(reader.eof()) == []
    checker = Checker()
    for each in found:
        checker.check(each)
    if named:
        assert events_of(*payloads, named=False, ledger=Ledger()) == found
    return found


def tail(reason: StopReason = StopReason.END, native: str | None = "completed") -> list[Event]:
    return [COUNTED, Stopped(reason, native), ENDED]


MESSAGE = {"id": "msg_1", "type": "message", "role": "assistant", "status": "in_progress", "content": []}
ADDED = event("output_item.added", item=MESSAGE)
PART_ADDED = event(
    "content_part.added", content_index=0, part={"type": "output_text", "text": "", "annotations": []}
)


def delta(text: str, **fields: Any) -> dict[str, Any]:
    return event("output_text.delta", item_id="msg_1", content_index=0, delta=text, logprobs=[], **fields)


def text_part(text: str, **fields: Any) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], **fields}


def message(*parts: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {**MESSAGE, "status": "completed", "content": list(parts), **fields}


START = BlockStarted(0, BlockKind.TEXT, item_id="msg_1")
HELLO: list[Event] = [STARTED, START, TextDelta(0, "Hel"), TextDelta(0, "lo"), BlockEnded(0), *tail()]


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


# Every way of saying less, or of saying it later (an empty delta is no event).
TWO = (delta("Hel"), delta(""), delta("lo"))
ITEM_DONE = event("output_item.done", item=message(text_part("Hello")))
FINAL = ended(message(text_part("Hello")))
BARE_FINAL = ended()
ONCE: list[Event] = [STARTED, START, TextDelta(0, "Hello"), BlockEnded(0), *tail()]
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
    # What contradicts the deltas is not said again.
    (
        [created(), ADDED, *TWO, event("output_item.done", item=message(text_part("Other"))), BARE_FINAL],
        HELLO,
    ),
    # Without indexes, the item's id or the last item is meant; ids may even change.
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


@pytest.mark.parametrize("payload", NOTHING)
def test_what_says_nothing_is_passed_over(payload: dict[str, Any]) -> None:
    assert events_of(created(), ADDED, payload, *TWO, BARE_FINAL) == HELLO


def test_a_done_sentinel_is_tolerated() -> None:
    stream = b"".join(frame(encode(payload)) for payload in (created(), ADDED, *TWO, FINAL)) + frame(
        b"[DONE]"
    )
    reader = SPEC.stream_reader(EXCHANGE, Ledger())
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
FILE = {"type": "file_citation", "file_id": "f", "filename": "f.txt", "index": 2}


@pytest.mark.parametrize("live", [True, False])
def test_annotations_come_once(live: bool) -> None:
    added = event("output_text.annotation.added", content_index=0, annotation_index=0, annotation=URL)
    done = event("content_part.done", content_index=0, part=text_part("Hello", annotations=[URL, FILE]))
    found = events_of(created(), ADDED, *TWO, *([added] if live else []), done, BARE_FINAL)
    assert found[4:6] == [
        Annotation(0, ORIGIN, URL, "https://x", "X", 0, 5),
        Annotation(0, ORIGIN, FILE),
    ]


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
        ended(message(text_part("Hello", logprobs=[TOKEN])))["response"], EXCHANGE, Ledger()
    )
    assert Logprobs(0, [TOKEN]) in whole


CALL = {
    "id": "fc_1",
    "type": "function_call",
    "call_id": "c1",
    "name": "f",
    "arguments": "",
    "status": "in_progress",
}
CALL_ADDED = event("output_item.added", item=CALL)
CALL_START = BlockStarted(0, BlockKind.TOOL_CALL, tool=ToolHead("c1", "f", item_id="fc_1"), item_id="fc_1")
CALL_TAIL = tail(StopReason.TOOL_USE)


def arguments(text: str) -> dict[str, Any]:
    return event("function_call_arguments.delta", item_id="fc_1", delta=text)


def call_done(text: str, **fields: Any) -> dict[str, Any]:
    return event("output_item.done", item={**CALL, "arguments": text, "status": "completed", **fields})


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
    # A name that never comes, an id that is not there.
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


def test_a_call_that_never_got_its_name_is_nothing() -> None:
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


def test_a_caller_is_named_as_lost() -> None:
    ledger = Ledger()
    called = event("output_item.added", item={**CALL, "caller": {"type": "program", "caller_id": "p"}})
    direct = event("output_item.added", 1, item={**CALL, "call_id": "c2", "caller": {"type": "direct"}})
    events_of(created(), called, direct, BARE_FINAL, ledger=ledger)
    assert [loss.path for loss in ledger] == ["/output/0/caller"]


CUT = {"incomplete_details": {"reason": "max_output_tokens"}}
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


REASONING = {"id": "rs_1", "type": "reasoning", "summary": []}
REASONING_ADDED = event("output_item.added", item=REASONING)
SEALED = {
    **REASONING,
    "summary": [{"type": "summary_text", "text": "ab"}, {"type": "summary_text", "text": "c"}],
    "encrypted_content": "gA",
}
THINKING = BlockStarted(0, BlockKind.REASONING, item_id="rs_1")


def summary(text: str, part: int = 0) -> dict[str, Any]:
    return event("reasoning_summary_text.delta", item_id="rs_1", summary_index=part, delta=text)


def thought(text: str, part: int = 0, form: ReasoningForm = ReasoningForm.SUMMARY) -> ReasoningDelta:
    return ReasoningDelta(0, text, part, form)


SEAL_END: list[Event] = [SealDelta(0, Seal(ORIGIN, SEALED, "gpt")), BlockEnded(0)]
SEALED_DONE = event("output_item.done", item=SEALED)
THOUGHTS: list[tuple[list[dict[str, Any]], list[Event]]] = [
    (
        [
            REASONING_ADDED,
            event("reasoning_summary_part.added", summary_index=0, part={"type": "summary_text", "text": ""}),
            summary("a"),
            summary("b"),
            event("reasoning_summary_text.done", summary_index=0, text="ab"),
            summary("c", 1),
            SEALED_DONE,
        ],
        [THINKING, thought("a"), thought("b"), thought("c", 1), *SEAL_END],
    ),
    (
        [REASONING_ADDED, event("reasoning_summary_text.done", summary_index=0, text="ab"), SEALED_DONE],
        [THINKING, thought("ab"), thought("c", 1), *SEAL_END],
    ),
    ([SEALED_DONE, summary("late")], [THINKING, thought("ab"), thought("c", 1), *SEAL_END]),
    (
        [event("output_item.done", item={**REASONING, "encrypted_content": "gA"})],
        [
            THINKING,
            SealDelta(0, Seal(ORIGIN, {**REASONING, "encrypted_content": "gA"}, "gpt")),
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
            thought("de", 0, ReasoningForm.FULL),
            thought("ep", 0, ReasoningForm.FULL),
            SealDelta(0, Seal(ORIGIN, {**REASONING, "content": [{"text": "deep"}, "odd"]}, "gpt")),
            BlockEnded(0),
        ],
    ),
    # Never finished: there is nothing to seal.
    ([REASONING_ADDED, summary("a")], [THINKING, thought("a"), BlockEnded(0, False)]),
    ([REASONING_ADDED], []),
]


@pytest.mark.parametrize(("payloads", "expected"), THOUGHTS)
def test_reasoning(payloads: list[dict[str, Any]], expected: list[Event]) -> None:
    assert events_of(created(), *payloads, BARE_FINAL) == [STARTED, *expected, *tail()]


SEARCH = {"id": "ws_1", "type": "web_search_call", "status": "completed", "action": {"type": "search"}}


def test_other_items_are_given_whole_when_they_are_done() -> None:
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
        Opaque(ORIGIN, "web_search_call", SEARCH, "/output/0"),
        Opaque(ORIGIN, "tomorrow", {"id": "tomorrow_1", "type": "tomorrow"}, "/output/1"),
        *tail(),
    ]
    assert [loss.path for loss in ledger] == ["/output/1"]


def test_another_item_under_a_taken_index_ends_the_first() -> None:
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


STOPS: list[tuple[dict[str, Any], Stopped]] = [
    (CUT, Stopped(StopReason.MAX_TOKENS, "max_output_tokens")),
    ({"incomplete_details": {"reason": "max_messages"}}, Stopped(StopReason.MAX_TOKENS, "max_messages")),
    (
        {"incomplete_details": {"reason": "content_filter"}},
        Stopped(StopReason.CONTENT_FILTER, "content_filter"),
    ),
    ({"incomplete_details": {"reason": "steered"}}, Stopped(StopReason.PAUSE, "steered")),
    ({"incomplete_details": {"reason": "odd"}}, Stopped(StopReason.MAX_TOKENS, "odd")),
    ({"incomplete_details": None}, Stopped(StopReason.MAX_TOKENS)),
]


@pytest.mark.parametrize(("fields", "stop"), STOPS)
def test_incomplete_answers(fields: dict[str, Any], stop: Stopped) -> None:
    assert events_of(created(), ended(status="incomplete", **fields)) == [STARTED, COUNTED, stop, ENDED]


def test_the_status_counts_more_than_the_events_name() -> None:
    payload = {**ended(status="incomplete", **CUT), "type": "response.completed"}
    assert events_of(created(), payload)[-2] == Stopped(StopReason.MAX_TOKENS, "max_output_tokens")
    assert events_of(created(), {**ended(status="odd"), "type": "response.completed"}) == [STARTED, *tail()]


USAGES: list[tuple[Any, list[Usage]]] = [
    (None, []),
    (
        {
            "input_tokens": 10,
            "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 2},
            "output_tokens": 5,
            "output_tokens_details": {"reasoning_tokens": 3},
            "total_tokens": 15,
            "cost": 0.1,
        },
        [Usage(10, 5, 4, 2, 3, {"cost": 0.1})],
    ),
    ({"input_tokens": "many", "output_tokens": 1, "input_tokens_details": None}, [Usage(None, 1)]),
]


@pytest.mark.parametrize(("usage", "expected"), USAGES)
def test_usage(usage: Any, expected: list[Usage]) -> None:
    assert events_of(created(), ended(usage=usage))[1:-2] == expected


SERVER = FaultKind.SERVER
FAILURES: list[tuple[dict[str, Any], Fault]] = [
    (
        ended(status="failed", error={"code": "rate_limit_exceeded", "message": "slow"}),
        Fault(FaultKind.RATE_LIMIT, "slow", code="rate_limit_exceeded"),
    ),
    (ended(status="failed"), Fault(SERVER, "the upstream failed without a reason")),
    (ended(status="cancelled"), Fault(FaultKind.CANCELLED, "the response was cancelled at the upstream")),
    (
        {"type": "error", "code": "context_length_exceeded", "message": "too long", "param": "input"},
        Fault(FaultKind.CONTEXT_LENGTH, "too long", code="context_length_exceeded", param="input"),
    ),
    (
        {"type": "error", "error": {"type": "server_error", "code": None, "message": "oops", "param": None}},
        Fault(SERVER, "oops", type="server_error"),
    ),
    ({"error": {"message": "oops", "code": 500}}, Fault(SERVER, "oops", code="500")),
]


@pytest.mark.parametrize(("payload", "fault"), FAILURES)
def test_failures(payload: dict[str, Any], fault: Fault) -> None:
    assert events_of(created(), payload) == [STARTED, Failed(fault)]
    assert events_of(created(), payload, delta("late")) == [STARTED, Failed(fault)]


def test_an_error_named_by_the_event_line_alone() -> None:
    reader = SPEC.stream_reader(EXCHANGE, Ledger())
    assert reader.read(Frame(b"error", b'{"message":"oops"}')) == (Failed(Fault(SERVER, "oops")),)


def test_the_end_of_the_stream_before_the_end_of_the_answer_is_an_error() -> None:
    reader = SPEC.stream_reader(EXCHANGE, Ledger())
    reader.read(Frame(b"", encode(created())))
    with pytest.raises(RemoteProtocolError) as caught:
        reader.eof()
    assert caught.value.status_hint == 502


@pytest.mark.parametrize(
    "data",
    [
        b"{",
        b"[]",
        b'{"type":"response.created"}',
        b'{"type":"response.completed","response":[]}',
        b"\xff",
    ],
)
@pytest.mark.parametrize("name", [b"", b"response.output_text.delta"])
def test_frames_that_cannot_be_read(data: bytes, name: bytes) -> None:
    reader = SPEC.stream_reader(EXCHANGE, Ledger())
    with pytest.raises(RemoteProtocolError) as caught:
        reader.read(Frame(name, data))
    assert caught.value.status_hint == 502


def test_a_head_of_odd_types_is_still_a_head() -> None:
    payload = {"type": "response.created", "response": {"id": 1, "model": None, "created_at": "now"}}
    assert events_of(payload, BARE_FINAL)[0] == Started("", "")
    assert events_of(ADDED, BARE_FINAL)[0] == Started("", "")


def test_service_tier_and_fractions_of_seconds() -> None:
    payload = {"type": "response.created", "response": {**HEAD, "created_at": 5.5, "service_tier": "flex"}}
    assert events_of(payload, BARE_FINAL)[0] == Started("resp_1", "gpt", 5, "flex")


# Whole answers.


def test_a_whole_answer_is_read_like_the_end_of_a_stream() -> None:
    body = ended(SEALED, message(text_part("Hello")), {**CALL, "arguments": "{}"}, SEARCH)["response"]
    assert SPEC.read_whole(body, EXCHANGE, Ledger()) == [
        STARTED,
        THINKING,
        thought("ab"),
        thought("c", 1),
        *SEAL_END,
        BlockStarted(1, BlockKind.TEXT, item_id="msg_1"),
        TextDelta(1, "Hello"),
        BlockEnded(1),
        BlockStarted(2, BlockKind.TOOL_CALL, tool=CALL_START.tool, item_id="fc_1"),
        ArgumentsDelta(2, "{}"),
        BlockEnded(2),
        Opaque(ORIGIN, "web_search_call", SEARCH, "/output/3"),
        *CALL_TAIL,
    ]


def test_whole_answers_that_failed() -> None:
    failed = ended(status="failed", error={"code": "server_error", "message": "oops"})["response"]
    fault = Fault(SERVER, "oops", code="server_error")
    assert SPEC.read_whole(failed, EXCHANGE, Ledger()) == [STARTED, Failed(fault)]
    assert list(
        SPEC.read_whole({"error": {"code": "server_error", "message": "oops"}}, EXCHANGE, Ledger())
    ) == [Failed(fault)]


@pytest.mark.parametrize("body", [{}, {"status": "in_progress", "output": []}, {"status": ["completed"]}])
def test_a_body_that_is_no_finished_answer(body: dict[str, Any]) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        SPEC.read_whole(body, EXCHANGE, Ledger())
    assert caught.value.status_hint == 502


# The fast lane: which deltas it may read, and where their text goes.

LANES: list[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = [
    (ADDED, delta("Hel"), ended(message(text_part("Hello")))),
    (CALL_ADDED, arguments("Hel"), ended({**CALL, "arguments": "Hello"})),
    (REASONING_ADDED, summary("Hel"), ended({**REASONING, "summary": [{"text": "Hello"}]})),
]


@pytest.mark.parametrize(("added", "first", "last"), LANES)
def test_text_that_came_through_the_fast_lane_is_not_given_again(
    added: dict[str, Any], first: dict[str, Any], last: dict[str, Any]
) -> None:
    reader = SPEC.stream_reader(EXCHANGE, Ledger())
    for payload in (
        created(),
        event("output_item.added", 7, item={"id": "ws_1", "type": "web_search_call"}),
        added,
    ):
        reader.read(Frame(b"", encode(payload)))
    found = reader.read(Frame(b"", encode(first)))[-1]
    assert isinstance(found, (TextDelta, ArgumentsDelta, ReasoningDelta))
    hint = reader.lane(found)
    assert hint is not None
    assert (hint.key, hint.number, hint.padding) == (b"delta", b"sequence_number", b"obfuscation")
    assert hint.note is not None
    hint.note("lo")
    after = reader.read(Frame(b"", encode(last)))
    assert [each for each in after if type(each) is type(found)] == []
    assert reader.lane(found) is None


def test_reasoning_of_several_parts_has_no_fast_lane() -> None:
    reader = SPEC.stream_reader(EXCHANGE, Ledger())
    for payload in (created(), REASONING_ADDED, summary("a"), summary("b", 1)):
        reader.read(Frame(b"", encode(payload)))
    assert reader.lane(ReasoningDelta(0, "b", 1, ReasoningForm.SUMMARY)) is None


def test_a_delta_for_an_item_of_another_kind_is_nothing() -> None:
    odd = event("output_text.delta", 1, content_index=0, delta="x")
    search = event("output_item.added", 1, item=SEARCH)
    assert events_of(created(), search, odd, event("output_item.done", 1, item=SEARCH), BARE_FINAL) == [
        STARTED,
        Opaque(ORIGIN, "web_search_call", SEARCH, "/output/1"),
        *tail(),
    ]
