"""Events written as a Responses stream and as a body. See `responses_client` for the judges."""

from __future__ import annotations

import pytest
from responses_client import (
    FOREIGN,
    MESSAGES_SIGNATURE,
    ORIGIN,
    SIGNER,
    STARTED,
    USAGE,
    call,
    kinds,
    message_item,
    output,
    reasoning_block,
    response_payloads,
    stream,
    text,
    whole,
)

from dragoman._ir.events import (
    ENDED,
    Annotation,
    BlockEnded,
    BlockKind,
    BlockStarted,
    Failed,
    Logprobs,
    Opaque,
    ReasoningDelta,
    ReasoningForm,
    Signature,
    SignatureDelta,
    Started,
    Stopped,
    StopReason,
    TextDelta,
    ToolKind,
    Usage,
)
from dragoman._ir.losses import Ledger
from dragoman._wire.errors import ErrorKind, WireError
from dragoman.protocols.openai_responses import SPEC


def test_text_event_by_event() -> None:
    payloads = response_payloads(*text())
    place = {"item_id": "msg_x1_0", "output_index": 0, "content_index": 0}
    part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
    item = message_item("msg_x1_0", "Hello")
    assert [payload["sequence_number"] for payload in payloads] == list(range(10))
    bare = [{k: v for k, v in p.items() if k != "sequence_number"} for p in payloads[2:-1]]
    assert bare == [
        {
            "type": "response.output_item.added",
            "output_index": 0,
            "item": {**item, "status": "in_progress", "content": []},
        },
        {"type": "response.content_part.added", **place, "part": part},
        {"type": "response.output_text.delta", **place, "delta": "Hel", "logprobs": []},
        {"type": "response.output_text.delta", **place, "delta": "lo", "logprobs": []},
        {"type": "response.output_text.done", **place, "text": "Hello", "logprobs": []},
        {"type": "response.content_part.done", **place, "part": item["content"][0]},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
    ]
    assert kinds(payloads)[:2] == ["created", "in_progress"]
    assert output(payloads) == [item]


def test_items_follow_one_another_with_ids_of_their_own() -> None:
    payloads = response_payloads(
        *reasoning_block(ReasoningDelta(0, "hm"), SignatureDelta(0, Signature("openai_chat", {}))),
        *text(1, "a"),
        *call(2, '{"a"', ":1}", call_id="c2"),
        *call(3, "x", kind=ToolKind.CUSTOM, name="p", namespace="ns"),
        *text(4, "b"),
        stop=Stopped(StopReason.TOOL_USE),
    )
    assert output(payloads)[1:] == [
        message_item("msg_x1_1", "a"),
        {
            "id": "fc_x1_2",
            "type": "function_call",
            "call_id": "c2",
            "name": "f",
            "arguments": '{"a":1}',
            "status": "completed",
        },
        {
            "id": "ctc_x1_3",
            "type": "custom_tool_call",
            "call_id": "c3",
            "name": "p",
            "input": "x",
            "namespace": "ns",
        },
        message_item("msg_x1_4", "b"),
    ]
    assert kinds(payloads)[12:24] == [
        "content_part.done",
        "output_item.done",
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
        "output_item.added",
        "custom_tool_call_input.delta",
        "custom_tool_call_input.done",
        "output_item.done",
        "output_item.added",
    ]


def test_ids_of_a_responses_upstream_are_kept_and_never_used_twice() -> None:
    payloads = response_payloads(
        *text(0, "a", item_id="msg_up", phase="final_answer"),
        *text(1, "b", item_id="msg_up", phase="final_answer"),
        *call(2, "{}", item_id="fc_up"),
    )
    assert [item["id"] for item in output(payloads)] == ["msg_up", "msg_x1_1", "fc_up"]
    assert output(payloads)[0]["phase"] == "final_answer"


FULL, SUMMARY = ReasoningForm.FULL, ReasoningForm.SUMMARY


def test_reasoning_of_another_vendor_becomes_summaries_and_a_wrapped_signature() -> None:
    payloads = response_payloads(
        *reasoning_block(
            ReasoningDelta(0, "h"),
            ReasoningDelta(0, "m"),
            ReasoningDelta(0, "so", 1),
            SignatureDelta(0, MESSAGES_SIGNATURE),
        )
    )
    assert output(payloads) == [
        {
            "id": "rs_x1_0",
            "type": "reasoning",
            "summary": [{"type": "summary_text", "text": "hm"}, {"type": "summary_text", "text": "so"}],
            "encrypted_content": SIGNER.wrap(MESSAGES_SIGNATURE),
            "status": "completed",
        }
    ]
    assert kinds(payloads)[2:-1] == [
        "output_item.added",
        "reasoning_summary_part.added",
        "reasoning_summary_text.delta",
        "reasoning_summary_text.delta",
        "reasoning_summary_text.done",
        "reasoning_summary_part.done",
        "reasoning_summary_part.added",
        "reasoning_summary_text.delta",
        "reasoning_summary_text.done",
        "reasoning_summary_part.done",
        "output_item.done",
    ]


def test_reasoning_without_text_is_only_a_signature() -> None:
    payloads = response_payloads(*reasoning_block(SignatureDelta(0, MESSAGES_SIGNATURE)))
    assert kinds(payloads)[2:-1] == ["output_item.added", "output_item.done"]
    assert output(payloads)[0]["summary"] == []


def test_reasoning_of_the_same_protocol_is_unchanged() -> None:
    native = {
        "id": "rs_up",
        "type": "reasoning",
        "summary": [{"type": "summary_text", "text": "s"}],
        "encrypted_content": "gA",
    }
    open_text = [{"type": "reasoning_text", "text": "deep"}]
    payloads = response_payloads(
        *reasoning_block(
            ReasoningDelta(0, "s", 0, SUMMARY),
            ReasoningDelta(0, "deep", 0, FULL),
            SignatureDelta(0, Signature(ORIGIN, {**native, "content": open_text})),
            item_id="rs_up",
        )
    )
    assert output(payloads) == [{**native, "content": open_text, "status": "completed"}]
    assert kinds(payloads)[7:11] == [
        "content_part.added",
        "reasoning_text.delta",
        "reasoning_text.done",
        "content_part.done",
    ]


def test_e10_reasoning_without_a_signature_is_unfinished() -> None:
    payloads = response_payloads(
        *reasoning_block(ReasoningDelta(0, "h"), complete=False), stop=Stopped(StopReason.MAX_TOKENS)
    )
    assert output(payloads) == [
        {
            "id": "rs_x1_0",
            "type": "reasoning",
            "summary": [{"type": "summary_text", "text": "h"}],
            "status": "incomplete",
        }
    ]
    assert payloads[-1]["type"] == "response.incomplete"


def test_a_refusal_is_a_part_of_a_message() -> None:
    payloads = response_payloads(
        BlockStarted(0, BlockKind.REFUSAL),
        TextDelta(0, "No."),
        Logprobs(0, [TOKEN]),
        BlockEnded(0),
        lost=("/logprobs/0",),
    )
    assert output(payloads)[0]["content"] == [{"type": "refusal", "refusal": "No."}]
    assert kinds(payloads)[4:6] == ["refusal.delta", "refusal.done"]


TOKEN = {
    "token": "a",
    "logprob": -0.5,
    "bytes": [97],
    "top_logprobs": [{"token": "b", "logprob": -1.5, "bytes": None}],
}
SLIM = {"token": "a", "logprob": -0.5, "top_logprobs": [{"token": "b", "logprob": -1.5}]}


def test_log_probabilities_go_with_the_next_delta_and_with_the_whole() -> None:
    payloads = response_payloads(
        BlockStarted(0, BlockKind.TEXT),
        Logprobs(0, [TOKEN]),
        TextDelta(0, "a"),
        TextDelta(0, "b"),
        Logprobs(0, [{"token": "c", "logprob": 0}]),
        BlockEnded(0),
    )
    last = {"token": "c", "logprob": 0, "top_logprobs": []}
    assert [p["logprobs"] for p in payloads if "logprobs" in p] == [[SLIM], [], [SLIM, last]]
    assert output(payloads)[0]["content"][0]["logprobs"] == [
        {**TOKEN, "top_logprobs": [{"token": "b", "logprob": -1.5, "bytes": []}]},
        {**last, "bytes": []},
    ]


def test_citations_of_web_pages_are_annotations() -> None:
    native = {"type": "file_citation", "file_id": "f", "filename": "f.txt", "index": 0}
    payloads = response_payloads(
        BlockStarted(0, BlockKind.TEXT),
        Annotation(0, "anthropic_messages", {}, "https://x", "X"),
        TextDelta(0, "Hello"),
        Annotation(0, "openai_chat", {}, "https://y", None, 1, 3),
        Annotation(0, "anthropic_messages", {"type": "char_location"}),
        Annotation(0, ORIGIN, native),
        BlockEnded(0),
        lost=("/annotations/0",),
    )
    expected = [
        {"type": "url_citation", "url": "https://x", "title": "X", "start_index": 0, "end_index": 5},
        {"type": "url_citation", "url": "https://y", "title": "https://y", "start_index": 1, "end_index": 3},
        native,
    ]
    assert output(payloads)[0]["content"][0]["annotations"] == expected
    added = [p for p in payloads if p["type"] == "response.output_text.annotation.added"]
    assert [(p["annotation_index"], p["annotation"]) for p in added] == list(enumerate(expected))


def test_items_of_the_same_protocol_come_back_whole() -> None:
    call_item = {
        "id": "ls_1",
        "type": "local_shell_call",
        "call_id": "c",
        "status": "completed",
        "action": {"type": "exec", "command": ["ls"], "env": {}},
    }
    result = {"id": "po_1", "type": "compaction", "encrypted_content": "gA"}
    payloads = response_payloads(
        Opaque(ORIGIN, "local_shell_call", call_item, "/output/0"),
        Opaque(ORIGIN, "compaction", result, "/output/1"),
    )
    assert output(payloads) == [call_item, result]
    assert payloads[2]["item"] == {**call_item, "status": "in_progress"}


STOPS: list[tuple[Stopped, str, str | None, tuple[str, ...]]] = [
    (Stopped(StopReason.END), "completed", None, ()),
    (Stopped(StopReason.TOOL_USE), "completed", None, ()),
    (Stopped(StopReason.STOP_SEQUENCE, sequence="\n"), "completed", None, ("/stop_sequence",)),
    (Stopped(StopReason.PAUSE, "pause_turn"), "completed", None, ("/status",)),
    (Stopped(StopReason.COMPACTION, "compaction"), "completed", None, ("/status",)),
    (Stopped(StopReason.COMPACTION), "completed", None, ()),
    (Stopped(StopReason.MAX_TOKENS, "length"), "incomplete", "max_output_tokens", ()),
    (Stopped(StopReason.MAX_TOKENS, "max_messages"), "incomplete", "max_messages", ()),
    (Stopped(StopReason.CONTEXT_WINDOW), "incomplete", "max_output_tokens", ()),
    (Stopped(StopReason.CONTENT_FILTER), "incomplete", "content_filter", ()),
    (
        Stopped(StopReason.CONTENT_FILTER, explanation="why"),
        "incomplete",
        "content_filter",
        ("/stop_details/explanation",),
    ),
    (Stopped(StopReason.PAUSE, "steered"), "incomplete", "steered", ()),
]


@pytest.mark.parametrize(("stop", "status", "reason", "lost"), STOPS)
def test_ends(stop: Stopped, status: str, reason: str | None, lost: tuple[str, ...]) -> None:
    payloads = response_payloads(*text(), stop=stop, lost=lost)
    assert payloads[-1]["type"] == f"response.{status}"
    details = payloads[-1]["response"]["incomplete_details"]
    assert details == (None if reason is None else {"reason": reason})


def test_the_explanation_is_the_text_of_a_refused_response_without_text() -> None:
    payloads = response_payloads(stop=Stopped(StopReason.CONTENT_FILTER, explanation="why"))
    assert output(payloads)[0]["content"] == [{"type": "refusal", "refusal": "why"}]
    assert payloads[-1]["type"] == "response.incomplete"


def test_text_that_was_cut_is_an_incomplete_item() -> None:
    events = [BlockStarted(0, BlockKind.TEXT), TextDelta(0, "Hel"), BlockEnded(0, False)]
    payloads = response_payloads(*events, stop=Stopped(StopReason.MAX_TOKENS))
    assert output(payloads)[0]["status"] == "incomplete"


def test_a12_a_call_that_was_cut_is_never_done() -> None:
    payloads = response_payloads(*call(0, '{"a', complete=False), stop=Stopped(StopReason.MAX_TOKENS))
    assert kinds(payloads)[2:] == ["output_item.added", "function_call_arguments.delta", "incomplete"]
    assert [(item["arguments"], item["status"]) for item in output(payloads)] == [('{"a', "incomplete")]


def test_a_custom_call_that_was_cut_is_left_out_of_the_final_output() -> None:
    events = call(0, "half", complete=False, kind=ToolKind.CUSTOM)
    payloads = response_payloads(*events, stop=Stopped(StopReason.MAX_TOKENS), lost=("/output/0",))
    assert kinds(payloads)[2:] == ["output_item.added", "custom_tool_call_input.delta", "incomplete"]
    assert output(payloads) == []


def test_lone_surrogates_are_escaped() -> None:
    writer = SPEC.stream_writer(FOREIGN, Ledger())
    events = [STARTED, *text(0, "\ud83d"), USAGE, Stopped(StopReason.END), ENDED]
    data = b"".join(writer.send(event) for event in events)
    assert data.count(b"\\ud83d") == 5  # delta, text done, part done, item done, final output


FAILURE = WireError(ErrorKind.RATE_LIMIT, "slow down")
ERROR = {"code": "rate_limit_exceeded", "message": "slow down", "param": None}


def test_e3_a_failure_in_the_middle() -> None:
    payloads = stream(
        STARTED, *text(0, "a"), USAGE, BlockStarted(1, BlockKind.TEXT), TextDelta(1, "b"), Failed(FAILURE)
    )
    error, failed = payloads[-2:]
    assert error == {
        "type": "error",
        "sequence_number": len(payloads) - 2,
        **ERROR,
        "error": {**ERROR, "type": "rate_limit_error"},
    }
    assert failed["type"] == "response.failed"
    assert failed["response"]["status"] == "failed"
    assert failed["response"]["error"] == {"code": "rate_limit_exceeded", "message": "slow down"}
    assert failed["response"]["output"] == [
        message_item("msg_x1_0", "a"),
        message_item("msg_x1_1", "b", status="incomplete"),
    ]
    assert failed["response"]["usage"]["total_tokens"] == 15


@pytest.mark.parametrize("whole_body", [False, True])
def test_a_failed_response_has_a_message_that_has_only_citations_so_far(whole_body: bool) -> None:
    native = {"type": "url_citation", "url": "https://x", "title": "X", "start_index": 0, "end_index": 0}
    cited = Annotation(0, ORIGIN, native, "https://x")
    events = (STARTED, BlockStarted(0, BlockKind.TEXT), cited, Failed(FAILURE))
    failed = whole(*events) if whole_body else stream(*events)[-1]["response"]
    [item] = failed["output"]
    assert (item["status"], item["content"][0]["annotations"]) == ("incomplete", [cited.native])


def test_an_empty_answer_has_no_items() -> None:
    # An empty message would be refused by Messages servers when it comes back with the conversation.
    events = (STARTED, Stopped(StopReason.END), ENDED)
    assert stream(*events)[-1]["response"]["output"] == whole(*events)["output"] == []


def test_a_failure_before_anything_was_sent() -> None:
    payloads = stream(Failed(FAILURE))
    assert kinds(payloads) == ["created", "error", "failed"]
    assert [payload["sequence_number"] for payload in payloads] == [0, 1, 2]
    assert payloads[-1]["response"]["usage"] is None


def test_a_whole_response_that_failed() -> None:
    body = whole(STARTED, *text(0, "a"), Usage(output=1), Failed(FAILURE))
    assert (body["status"], body["error"]) == (
        "failed",
        {"code": "rate_limit_exceeded", "message": "slow down"},
    )
    assert body["usage"]["total_tokens"] == 1


def test_fields_of_events_without_a_counterpart_are_losses() -> None:
    ledger = Ledger()
    writer = SPEC.stream_writer(FOREIGN, ledger)
    for event in (
        Started("i", "m"),
        BlockStarted(0, BlockKind.TEXT),
        TextDelta(0, "a"),
        Annotation(0, "other", {"url": "u", "cited_text": "a"}, "u"),
        BlockEnded(0),
        BlockStarted(1, BlockKind.REFUSAL),
        Logprobs(1, [{"token": "n", "logprob": -1}]),
        TextDelta(1, "no"),
        BlockEnded(1),
        Usage(1, 2, extra={"iterations": []}),
        Stopped(StopReason.END),
        ENDED,
    ):
        writer.send(event)
    assert {loss.path for loss in ledger} == {"/annotations/0", "/logprobs/1", "/usage/iterations"}
