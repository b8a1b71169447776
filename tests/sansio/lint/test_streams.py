"""Each rule about order, framing and sums has a stream that breaks it, and good streams break none.

A broken stream is a good one with one change, so a row is a change, the rule, and part of what is reported.
"""

# ruff: noqa: E501 -- the tables are read by row

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterator
from itertools import cycle
from typing import Any

import pytest
from oracle import CHAT, MESSAGES, PROTOCOL_NAMES, RESPONSES
from oracle import samples as s
from oracle.changes import (
    CHAT_ERROR,
    DONE,
    GOOD,
    MESSAGES_ERROR,
    RESPONSES_ERROR,
    RESPONSES_FAILED,
    VARIANTS,
    Change,
    append,
    both,
    cut,
    drop,
    insert,
    put,
    remove,
    repeat,
    swap,
)

from dragoman import lint


def found(
    protocol: str, change: Change, *, usage_requested: bool | None = True, call_forced: bool = False
) -> list[lint.LintFinding]:
    payloads = GOOD[protocol]()
    change(payloads)
    stream = s.render(protocol, payloads)
    return lint.check_stream(
        protocol, stream, usage_requested=usage_requested, call_forced=call_forced
    ).findings


@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
def test_good_streams_have_no_findings(protocol: str) -> None:
    for name, change in VARIANTS[protocol]:
        assert found(protocol, change, usage_requested=None) == [], name


SECOND_CHOICE = s.chunk({"role": "assistant", "content": "", "refusal": None}, index=2)
LATE = s.chunk({"content": "more"})
EMPTY_CALL = s.chunk(s.call(1, arguments=""))
TEXT_START = s.start(4, type="text", text="", citations=None)
FILE = {"type": "file_path", "file_id": "f", "index": 0}
BROKEN: dict[str, list[tuple[str, Change, str, str]]] = {
    CHAT: [
        ("id changes", put(3, "id", "other"), "chat-identity", "id, created or model changed"),
        ("empty id", put(0, "id", ""), "chat-identity", "empty id"),
        ("no role", drop(0, "choices.0.delta.role"), "chat-role", "the first delta has no role"),
        ("role twice", put(2, "choices.0.delta.role", "assistant"), "chat-role-again", "role is repeated"),
        ("first content is not empty", put(0, "choices.0.delta.content", "Let"), "chat-first-delta", "the first delta's content is not empty"),
        ("first content is absent", drop(0, "choices.0.delta.content"), "chat-first-delta", "the first delta's content is not empty"),
        ("first refusal", put(0, "choices.0.delta.refusal", ""), "chat-first-delta", "the first delta's refusal is not null"),
        ("choice index jumps", insert(3, SECOND_CHOICE), "chat-choice-index", "choice indexes are not contiguous"),
        ("tool index jumps", put(6, "choices.0.delta.tool_calls.0.index", 2), "chat-tool-index", "tool call indexes are not contiguous"),
        ("call without id", drop(4, "choices.0.delta.tool_calls.0.id"), "chat-call-head", "opened without an id"),
        ("call without name", drop(4, "choices.0.delta.tool_calls.0.function.name"), "chat-call-head", "opened without a name"),
        ("call without type", drop(4, "choices.0.delta.tool_calls.0.type"), "chat-call-head", "opened without a type"),
        ("id repeated", put(5, "choices.0.delta.tool_calls.0.id", "call_a"), "chat-call-again", "id is repeated"),
        ("name repeated", put(5, "choices.0.delta.tool_calls.0.function.name", "add"), "chat-call-again", "name is repeated"),
        ("one id for two calls", put(6, "choices.0.delta.tool_calls.0.id", "call_a"), "chat-call-id", "'call_a' is used twice"),
        ("empty tool_calls", put(2, "choices.0.delta.tool_calls", []), "chat-tool-calls", "empty tool_calls list"),
        ("empty arguments", remove(7), "chat-arguments", "not even {}"),
        ("arguments cut", both(remove(7), insert(7, s.chunk(s.call(1, arguments='{"a": 1')))), "chat-arguments", "not JSON"),
        ("arguments are a list", both(remove(7), insert(7, s.chunk(s.call(1, arguments="[]")))), "chat-arguments", "not a JSON object"),
        ("call without index", both(drop(4, "choices.0.delta.tool_calls.0.index"), remove(5, 6, 7)), "chat-required", "index is absent"),
        ("no usage", remove(9), "chat-usage-missing", "the usage that was requested has not come"),
        ("no usage and no [DONE]", remove(9, 10), "chat-usage-missing", "the usage that was requested has not come"),
        ("stop after calls", put(8, "choices.0.finish_reason", "stop"), "chat-finish-stop", "although the turn ends with tool calls"),
        ("unknown finish_reason", put(8, "choices.0.finish_reason", "done"), "chat-finish", "an unknown finish_reason 'done'"),
        ("tool_calls without calls", remove(4, 5, 6, 7), "chat-finish-calls", "finish_reason tool_calls without a tool call"),
        ("no finish_reason", remove(8), "chat-finish", "before choice 0 has a finish_reason"),
        ("two finish_reasons", repeat(8), "chat-finish-again", "a second finish_reason"),
        ("text after the finish", insert(9, LATE), "chat-after-finish", "a delta after finish_reason"),
        ("usage with choices", both(put(8, "usage", s.CHAT_USAGE), remove(9)), "chat-usage-choices", "usage in a chunk that has choices"),
        ("usage too early", swap(8, 9), "chat-usage-place", "usage before the end of all choices"),
        ("usage twice", repeat(9), "chat-usage-place", "a chunk follows the usage chunk"),
        ("chunk without choices", insert(0, s.chunk()), "chat-no-choices", "a chunk without choices"),
        ("usage is null", put(9, "usage", None), "chat-no-choices", "a chunk without choices"),
        ("usage does not add up", put(9, "usage.total_tokens", 12), "chat-usage-sum", "not the sum"),
        ("more cached than given", put(9, "usage.prompt_tokens_details", {"cached_tokens": 10}), "chat-usage-sum", "less than its part"),
        ("no [DONE]", remove(10), "chat-done", "ends without [DONE]"),
        ("no end", remove(8, 9, 10), "chat-end", "without a finish_reason, [DONE] or an error"),
        ("no end of the second choice", both(insert(3, {**SECOND_CHOICE, "choices": [{**SECOND_CHOICE["choices"][0], "index": 1}]}), remove(10, 11)), "chat-end", "without a finish_reason, [DONE] or an error"),
        ("only comments and usage", both(remove(*range(9)), remove(1)), "chat-end", "without a finish_reason, [DONE] or an error"),
        ("two [DONE]", append(DONE), "chat-after-end", "something follows the [DONE]"),
        ("[DONE] after an error", cut(3, CHAT_ERROR, DONE), "chat-after-end", "something follows the error"),
        ("nothing but [DONE]", cut(0, DONE), "chat-empty", "[DONE] without any choice"),
    ],
    MESSAGES: [
        ("[DONE]", append(DONE), "messages-done", "[DONE] does not belong here"),
        ("ping with members", put(1, "time", 1), "messages-ping", "a ping with other members"),
        ("no message_start", remove(0), "messages-start", "message_start has not come yet"),
        ("two message_starts", repeat(0), "messages-start", "a second message_start"),
        ("starts with content", put(0, "message.content", [{"type": "text", "text": "x", "citations": None}]), "messages-start-empty", "content is not empty"),
        ("starts with its end", put(0, "message.stop_reason", "end_turn"), "messages-start-empty", "stop_reason is already set"),
        ("empty id", put(0, "message.id", ""), "messages-start-empty", "empty id"),
        ("index gap", put(6, "index", 2), "messages-block-index", "block indexes are not contiguous"),
        ("two open blocks", remove(5), "messages-block", "the block before is still open"),
        ("delta of another block", put(7, "index", 0), "messages-block", "no such block is open"),
        ("no block start", remove(6), "messages-block", "no such block is open"),
        ("delta after its stop", swap(8, 9), "messages-block", "no such block is open"),
        ("stop of another block", put(9, "index", 0), "messages-block", "no such block is open"),
        ("delta of the wrong kind", put(7, "delta", {"type": "input_json_delta", "partial_json": "x"}), "messages-delta", "input_json_delta in a text block"),
        ("text at the start", put(6, "content_block.text", "Let"), "messages-block-empty", "a text block does not start empty"),
        ("input at the start", put(10, "content_block.input", {"a": 1}), "messages-input-start", "does not start with input {}"),
        ("empty text block", remove(7, 8), "messages-text", "a text block without text"),
        ("no signature", remove(4), "messages-signature", "a thinking block without a signature"),
        ("empty signature", put(4, "delta.signature", ""), "messages-signature", "an empty signature"),
        ("signature first", swap(3, 4), "messages-signature", "a delta after the signature"),
        ("two signatures", repeat(4), "messages-signature", "a delta after the signature"),
        ("input is no JSON", put(12, "delta.partial_json", "1"), "messages-input", "not JSON"),
        ("input is no object", both(remove(11), put(11, "delta.partial_json", "[1]")), "messages-input", "is not a JSON object"),
        ("no input at all", remove(15), "messages-input-empty", "a tool block without input"),
        ("an earlier call is cut", both(put(12, "delta.partial_json", ""), put(17, "delta.stop_reason", "max_tokens")), "messages-input", "not JSON"),
        ("one id for two calls", put(14, "content_block.id", "call_a"), "messages-tool-id", "a tool id is used twice"),
        ("empty tool id", put(14, "content_block.id", ""), "messages-tool-id", "a tool block without id or name"),
        ("open block at the end", remove(9, *range(10, 17)), "messages-block", "a block is still open"),
        ("end_turn after calls", put(17, "delta.stop_reason", "end_turn"), "messages-stop-reason", "although the turn ends with tool calls"),
        ("tool_use without calls", remove(*range(10, 17)), "messages-stop-reason", "tool_use without a tool call"),
        ("stop_sequence without reason", put(17, "delta.stop_sequence", "X"), "messages-stop-sequence", "if and only if"),
        ("no stop_reason", put(17, "delta.stop_reason", None), "messages-stop-reason", "no stop_reason"),
        ("unknown stop_reason", put(17, "delta.stop_reason", "done"), "messages-stop-reason", "an unknown stop_reason 'done'"),
        ("two message_deltas", repeat(17), "messages-message-delta-again", "a second message_delta"),
        ("last message_delta without a reason", both(repeat(17), put(18, "delta.stop_reason", None)), "messages-stop-reason", "no stop_reason"),
        ("block after message_delta", insert(18, TEXT_START), "messages-message-delta", "the message_delta has already come"),
        ("no message_delta", remove(17), "messages-message-delta", "no message_delta came before"),
        ("no message_stop", remove(18), "messages-end", "neither message_stop nor an error"),
        ("ping after the end", append({"type": "ping"}), "messages-ping", "something follows the end"),
        ("delta after an error", cut(8, MESSAGES_ERROR, {"type": "message_stop"}), "messages-after-end", "something follows the end"),
    ],
    RESPONSES: [
        ("nested error differs", cut(12, {**RESPONSES_ERROR, "message": "x"}, RESPONSES_FAILED), "responses-nested-error", "does not repeat"),
        ("sequence starts at 1", put(0, "sequence_number", 1), "responses-sequence", "sequence_number is not 0"),
        ("sequence repeats", put(5, "sequence_number", 4), "responses-sequence", "sequence_number is not 5"),
        ("no created", remove(0), "responses-start", "expected response.created"),
        ("no in_progress", remove(1), "responses-in-progress", "expected response.in_progress"),
        ("in_progress twice", repeat(1), "responses-in-progress", "response.in_progress has already come"),
        ("created twice", repeat(0), "responses-in-progress", "response.created has already come"),
        ("output in created", put(0, "response.output", s.responses()[-1]["response"]["output"]), "responses-output", "output before the end"),  # type: ignore[index]
        ("usage in created", put(0, "response.usage", s.RESPONSES_USAGE), "responses-snapshot", "has no usage"),
        ("completed at the start", put(1, "response.status", "completed"), "responses-snapshot", "status in_progress"),
        ("response id changes", put(23, "response.id", "resp_2"), "responses-id", "id is empty or changed"),
        ("output index twice", put(8, "output_index", 0), "responses-output-index", "output indexes are not contiguous"),
        ("item id twice", put(8, "item.id", "rs_1"), "responses-item-id", "id is empty or used twice"),
        ("empty item id", put(8, "item.id", ""), "responses-item-id", "id is empty or used twice"),
        ("call id twice", put(19, "item.call_id", "call_a"), "responses-item-id", "call_id is empty or used twice"),
        ("two open items", remove(7), "responses-item", "the item before is still open"),
        ("added completed", put(8, "item.status", "completed"), "responses-item-added", "added with another status than in_progress"),
        ("added with arguments", put(15, "item.arguments", "{"), "responses-item-empty", "added with arguments already there"),
        ("delta of another item", put(10, "item_id", "rs_1"), "responses-item", "item_id is not that of the open item"),
        ("delta of another index", put(10, "output_index", 0), "responses-output-index", "output_index is not that of the open item"),
        ("delta without an item", insert(8, s.responses()[10]), "responses-item", "no item is open"),
        ("item never added", remove(8), "responses-item", "no item is open"),
        ("delta without a part", remove(9), "responses-part", "no output_text is open there"),
        ("part index gap", put(9, "content_index", 1), "responses-part-index", "part indexes are not contiguous"),
        ("part added with text", put(9, "part.text", "Let"), "responses-part-empty", "the part is not added empty"),
        ("part never closed", remove(13), "responses-sum", "content is not its done parts"),
        ("two open parts", insert(10, s.at("content_part.added", 1, "msg_1", content_index=1, part={"type": "refusal", "refusal": ""})), "responses-part", "the part before is still open"),
        ("part closed early", swap(12, 13), "responses-text-done", "the part is done before its text is"),
        ("part closed twice", repeat(13), "responses-part", "no such part is open"),
        ("text done differs", put(12, "text", "Let me"), "responses-sum", "text is not the sum of the deltas"),
        ("text only when done", remove(10, 11), "responses-sum", "text is not the sum of the deltas"),
        ("part done differs", put(13, "part.text", "Let me"), "responses-sum", "the part is not the sum of its deltas"),
        ("delta after done", swap(11, 12), "responses-text-done", "the text is already done"),
        ("only annotation in the part", put(13, "part.annotations", [{"type": "file_path", "file_id": "f", "index": 0}]), "responses-annotation", "not those that were added"),
        ("annotation of a part that is not there", insert(13, s.at("output_text.annotation.added", 1, "msg_1", content_index=4, annotation_index=0, annotation=FILE)), "responses-part", "an annotation of no open part"),
        ("final output completes an open item", lambda e: e.pop(22), "responses-output", "has status incomplete"),
        ("annotation index jumps", insert(12, s.at("output_text.annotation.added", 1, "msg_1", content_index=0, annotation_index=1, annotation={"type": "file_path", "file_id": "f", "index": 0})), "responses-annotation", "annotations are not numbered from 0"),
        ("summary done differs", put(5, "text", "Hm"), "responses-sum", "text is not the sum of the deltas"),
        ("arguments done differs", put(17, "arguments", "{}"), "responses-sum", "arguments is not the sum of the deltas"),
        ("no arguments done", remove(17), "responses-text-done", "the call is done before its text is"),
        ("done call differs", put(18, "item.arguments", "{}"), "responses-sum", "the call's text is not the sum"),
        ("call id changes", put(18, "item.call_id", "call_z"), "responses-item-changed", "the item's call_id changed"),
        ("item id changes", put(14, "item.id", "other"), "responses-item-changed", "the item's id changed"),
        ("name changes", put(18, "item.name", "sub"), "responses-item-changed", "the item's name changed"),
        ("done in progress", put(18, "item.status", "in_progress"), "responses-item-status", "done with a status that is not final"),
        ("done of another index", put(18, "output_index", 1), "responses-item", "no such item is open"),
        ("item never done", remove(22), "responses-item", "an item is still open"),
        ("final output lacks an item", drop(23, "response.output.3"), "responses-output", "not the done items in order"),
        ("final output in other order", lambda e: e[23]["response"]["output"].reverse(), "responses-output", "not the done items in order"),
        ("final output is empty", put(23, "response.output", []), "responses-output", "not the done items in order"),
        ("final output invents", lambda e: e[23]["response"]["output"].append({**e[18]["item"], "id": "fc_9", "call_id": "c9"}), "responses-output", "never done"),
        ("final status differs", put(23, "response.status", "in_progress"), "responses-status", "the status is not completed"),
        ("final status is another end's", put(23, "response.status", "incomplete"), "responses-status", "the status is not completed"),
        ("no final usage", put(23, "response.usage", None), "responses-usage", "no usage"),
        ("usage does not add up", put(23, "response.usage.total_tokens", 12), "responses-usage-sum", "not the sum"),
        ("incomplete without reason", lambda e: e.__setitem__(23, {"type": "response.incomplete", "response": {**e[23]["response"], "status": "incomplete"}}), "responses-incomplete", "incomplete_details is set if and only if"),
        ("completed with an error", put(23, "response.error", {"code": "server_error", "message": "x"}), "responses-error", "error is set if and only if"),
        ("no end", remove(23), "responses-end", "without completed, incomplete or failed"),
        ("two ends", repeat(23), "responses-after-end", "something follows the end"),
        ("error without failed", cut(12, RESPONSES_ERROR), "responses-after-error", "no response.failed follows"),
        ("completed after an error", cut(2, RESPONSES_ERROR, {"type": "response.completed", "response": s.response("completed", usage=s.RESPONSES_USAGE)}), "responses-after-error", "only response.failed may follow"),
        ("[DONE]", append(DONE), "responses-done", "[DONE] does not belong here"),
        ("empty message", both(remove(*range(9, 14)), put(9, "item.content", []), put(18, "response.output.1.content", [])), "responses-content", "a message without content"),
        ("empty text", both(remove(10, 11), put(10, "text", ""), put(11, "part.text", ""), put(12, "item.content.0.text", ""), put(21, "response.output.1.content.0.text", "")), "responses-content", "an empty part"),
        *(
            (f"arguments {text}", both(remove(20), put(20, "arguments", text), put(21, "item.arguments", text), put(22, "response.output.3.arguments", text)), "responses-arguments", detail)
            for text, detail in (('{"a": 1', "not JSON"), ("[]", "not a JSON object"))
        ),
        ("empty arguments", both(remove(20), put(20, "arguments", ""), put(21, "item.arguments", ""), put(22, "response.output.3.arguments", "")), "responses-arguments", "not even {}"),
    ],
}  # fmt: skip


@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
def test_broken_streams_have_a_finding(protocol: str) -> None:
    for name, change, rule, detail in BROKEN[protocol]:
        findings = found(protocol, change)
        assert [each for each in findings if each.rule.id == rule and detail in each.detail], (name, findings)


FRAMING: list[tuple[str, Callable[[bytes], bytes], str]] = [
    ("bom", lambda stream: b"\xef\xbb\xbf" + stream, "sse-bom"),
    ("crlf", lambda stream: stream.replace(b"\n", b"\r\n"), "sse-line-end"),
    ("no last blank line", lambda stream: stream[:-1], "sse-end"),
    ("cut in the last line", lambda stream: stream[:-2], "sse-end"),
    ("cut in a field", lambda stream: stream + b"da", "sse-end"),
    ("cut after a comment", lambda stream: stream + b": beat", "sse-blank-line"),
    ("a carriage return alone", lambda stream: stream.replace(b"\n\n", b"\r\r", 1), "sse-carriage-return"),
    ("no space", lambda stream: stream.replace(b"data: ", b"data:", 1), "sse-space"),
    ("two data lines", lambda stream: stream.replace(b"data: ", b"data: \ndata: ", 1), "sse-data"),
    ("an id line", lambda stream: b"id: 1\n" + stream, "sse-field"),
    ("a line without a colon", lambda stream: b"ping\n" + stream, "sse-field"),
    ("stray blank line", lambda stream: stream.replace(b"\n\n", b"\n\n\n", 1), "sse-blank-line"),
    ("only event", lambda stream: b"event: ping\n\n" + stream, "sse-no-data"),
    ("event twice", lambda stream: b"event: ping\nevent: ping\n" + stream, "sse-event-line"),
    ("not UTF-8", lambda stream: b": \xff\n\n" + stream, "sse-utf-8"),
    ("NaN", lambda stream: stream.replace(b": 1", b": NaN", 1), "json-syntax"),
    ("a name twice", lambda stream: stream.replace(b'{"', b'{"x":1,"x":1,"', 1), "json-duplicate"),
    ("no JSON", lambda stream: b"event: ping\ndata: {\n\n" + stream, "json-syntax"),
    ("no object", lambda stream: b"event: ping\ndata: 1\n\n" + stream, "json-object"),
    ("too deep", lambda stream: b"event: ping\ndata: " + b"[" * 100_000 + b"\n\n" + stream, "json-syntax"),
    ("nothing", lambda stream: b"", "sse-empty"),
]


@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
def test_broken_framing_has_a_finding(subtests: pytest.Subtests, protocol: str) -> None:
    for name, change, rule in FRAMING:
        with subtests.test(name=name):
            stream = change(s.render(protocol, GOOD[protocol]()))
            findings = lint.check_stream(protocol, stream).findings
            assert rule in {each.rule.id for each in findings}, findings


@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
def test_comments_are_heartbeats(protocol: str) -> None:
    stream = s.render(protocol, GOOD[protocol]()).replace(b"\n\n", b"\n\n: beat\n\n", 3)
    assert lint.check_stream(protocol, stream).findings == []


@pytest.mark.parametrize(
    ("ending", "rules"), [(b"\n", []), (b"\r\n", ["sse-line-end"]), (b"\r", ["sse-carriage-return"])]
)
@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
def test_every_line_ending_of_the_standard_is_read(protocol: str, ending: bytes, rules: list[str]) -> None:
    stream = s.render(protocol, GOOD[protocol]()).replace(b"\n", ending)
    assert [each.rule.id for each in lint.check_stream(protocol, stream).findings] == rules


def test_event_lines() -> None:
    """Chat has none; the others' name the type of the data."""
    named = s.render(MESSAGES, s.messages()).replace(b"event: message_stop", b"event: message_end")
    bare = re.sub(rb"event: [a-z_.]+\n", b"", s.render(MESSAGES, s.messages()))
    chat = s.render(CHAT, s.chat()).replace(b"data: [DONE]", b"event: end\ndata: [DONE]")
    responses = re.sub(rb"event: [a-z_.]+\n", b"", s.render(RESPONSES, s.responses()))
    for protocol, stream, rule in (
        (MESSAGES, named, "messages-event-line"),
        (MESSAGES, bare, "messages-event-line"),
        (CHAT, chat, "chat-event-line"),
        (RESPONSES, responses, "responses-event-line"),
    ):
        assert {each.rule.id for each in lint.check_stream(protocol, stream).findings} == {rule}


@pytest.mark.parametrize(
    ("requested", "rules"), [(None, set()), (True, set()), (False, {"chat-usage-requested"})]
)
def test_usage_that_was_not_requested(requested: bool | None, rules: set[str]) -> None:
    stream = s.render(CHAT, s.chat())
    assert {
        each.rule.id for each in lint.check_stream(CHAT, stream, usage_requested=requested).findings
    } == rules


def test_a_call_that_was_forced_may_finish_with_stop() -> None:
    assert found(CHAT, put(8, "choices.0.finish_reason", "stop"), call_forced=True) == []


def test_a_call_without_an_index_is_a_call() -> None:
    """Mistral's are whole, and have none."""
    whole = put(6, "choices.0.delta.tool_calls.0.function.arguments", "{}")
    change = both(whole, both(drop(6, "choices.0.delta.tool_calls.0.index"), remove(7)))
    assert [each.rule.id for each in found(CHAT, change)] == ["chat-required"]


def test_the_last_of_several_message_deltas_has_the_stop_reason() -> None:
    first = both(repeat(17), put(17, "delta.stop_reason", None))
    assert [each.rule.id for each in found(MESSAGES, first)] == ["messages-message-delta-again"]


@pytest.mark.parametrize(
    ("change", "rules"),
    [
        (remove(0), ["responses-start"]),
        (remove(1), ["responses-in-progress"]),
        (remove(0, 1), ["responses-start", "responses-in-progress"]),
        (both(repeat(0), remove(2)), ["responses-in-progress"] * 2),
    ],
)
def test_what_is_missing_at_the_start_of_a_response_is_found_once(change: Change, rules: list[str]) -> None:
    assert [each.rule.id for each in found(RESPONSES, change)] == rules


def test_one_finding_an_event_after_the_end_of_a_response() -> None:
    """Not also what each event of a second response lacks in the first."""
    stream = s.render(RESPONSES, GOOD[RESPONSES]())
    second = s.render(RESPONSES, GOOD[RESPONSES]()[:3])
    rules = [each.rule.id for each in lint.check_stream(RESPONSES, stream + second).findings]
    assert rules == ["responses-sequence", "responses-after-end"] * 3


# What real clients do with a stream that breaks the rule: "error" where one of them fails, hangs, or loses content.
SEVERITIES = {
    "error": (
        "sse-bom sse-carriage-return sse-no-data sse-end json-duplicate chat-end chat-finish chat-finish-calls chat-role "
        "chat-role-again chat-required chat-usage-missing messages-after-end messages-input-start messages-stop-reason "
        "messages-message-delta responses-start responses-output responses-part responses-item-empty responses-usage "
        "responses-error responses-end responses-after-end"
    ),
    "warning": (
        "sse-line-end sse-blank-line chat-done chat-finish-again chat-finish-stop chat-usage-place chat-after-finish "
        "chat-tolerated messages-done messages-signature messages-message-delta-again messages-error-type "
        "messages-tolerated responses-in-progress responses-item-added responses-after-error responses-tolerated"
    ),
}  # fmt: skip


def test_the_severity_of_a_rule_is_what_clients_do() -> None:
    wrong = [
        rule
        for severity, rules in SEVERITIES.items()
        for rule in rules.split()
        if lint.RULES[rule].severity.value != severity
    ]
    assert wrong == []


def test_a_moderation_chunk_may_follow_the_usage() -> None:
    moderation = {**s.chunk(), "moderation": {}}
    assert found(CHAT, insert(10, moderation)) == []


def test_what_follows_the_end_of_a_message_is_an_error() -> None:
    stream = s.render(MESSAGES, GOOD[MESSAGES]())
    delta = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "x"}}
    for after in (s.render(MESSAGES, [delta]), stream):
        findings = lint.check_stream(MESSAGES, stream + after).findings
        [rule] = {each.rule for each in findings if each.rule.id != "messages-ping"}
        assert (rule.id, rule.severity) == ("messages-after-end", lint.RuleSeverity.ERROR)


def test_a_finding_has_the_byte_the_event_and_the_member() -> None:
    stream = s.render(CHAT, s.chat()).replace(b'"index": 0', b'"index": "0"', 1)
    [first, *_] = lint.check_stream(CHAT, stream).findings
    assert (first.frame, first.pointer, first.rule.severity) == (
        0,
        "/choices/0/index",
        lint.RuleSeverity.ERROR,
    )
    assert stream[first.offset :].startswith(b'"0"')
    assert first.rule.source.startswith("https://")
    assert (
        str(first)
        == f"byte {first.offset}, event 0 /choices/0/index: error chat-type: a string, expected an integer"
    )


def test_findings_of_the_end_are_at_the_end() -> None:
    stream = s.render(CHAT, s.chat()[:-1])
    [finding] = lint.check_stream(CHAT, stream).findings
    assert (finding.rule.id, finding.offset, finding.frame) == ("chat-done", len(stream), None)


def test_the_findings_of_a_report_are_bounded() -> None:
    report = lint.check_stream(CHAT, b"data: {}\n\n" * 1000)
    assert len(report.findings) == lint.MAX_FINDINGS
    assert report.overflow > 0


def test_annotations_are_repeated_in_the_part() -> None:
    def annotate(payloads: list[Any]) -> None:
        added = s.at(
            "output_text.annotation.added", 1, "msg_1", content_index=0, annotation_index=0, annotation=FILE
        )
        payloads[13]["part"]["annotations"] = [FILE]
        payloads[14]["item"]["content"][0]["annotations"] = [FILE]
        payloads[-1]["response"]["output"][1]["content"][0]["annotations"] = [FILE]
        payloads.insert(12, added)

    assert found(RESPONSES, annotate) == []


def test_progress_of_a_search_is_about_the_open_item() -> None:
    event = s.at("web_search_call.searching", 1, "msg_1")
    assert found(RESPONSES, insert(9, event)) == []
    assert [each.rule.id for each in found(RESPONSES, insert(8, event))] == ["responses-item"]


def test_an_open_item_may_be_incomplete_in_a_failed_response() -> None:
    def fail(payloads: list[Any]) -> None:
        item = {**payloads[8]["item"], "status": "incomplete"}
        failed = s.response(
            "failed", error={"code": "server_error", "message": "gone"}, output=[payloads[7]["item"], item]
        )
        payloads[9:] = [{"type": "response.failed", "response": failed}]

    assert found(RESPONSES, fail) == []


def test_an_encrypted_item_may_be_encrypted_again_at_the_end() -> None:
    def again(payloads: list[Any]) -> None:
        for item in payloads[-1]["response"]["output"]:
            if item["type"] == "reasoning":
                item["encrypted_content"] = "other"

    assert found(RESPONSES, again) == []


HOSTILE: list[Any] = [
    None,
    True,
    -1,
    1.5,
    "",
    "x",
    [],
    [None],
    [[]],
    {},
    {"type": "x"},
    {"type": None},
    [{}],
    [{"type": "message"}],
]


@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
def test_no_value_of_any_member_breaks_the_judge(protocol: str) -> None:
    """Each member of each event, and each member inside, is left out, and replaced by a value of another type."""
    good = GOOD[protocol]()
    values = cycle(HOSTILE)
    for number, payload in enumerate(good):
        for path in _paths(payload):
            for change in (
                drop(number, path),
                put(number, path, next(values)),
                put(number, path, next(values)),
            ):
                payloads = copy.deepcopy(good)
                change(payloads)
                stream = "".join(f"event: x\ndata: {json.dumps(each)}\n\n" for each in payloads)
                assert lint.check_stream(protocol, stream.encode()).findings


def _paths(payload: Any) -> Iterator[str]:
    inner = (
        payload.items()
        if isinstance(payload, dict)
        else enumerate(payload)
        if isinstance(payload, list)
        else ()
    )
    for key, value in inner:
        yield str(key)
        yield from (f"{key}.{path}" for path in _paths(value))
