"""The oracle itself: good streams pass, and each rule has a broken stream that it must catch.

A broken stream is a good one with one change. The change is an operation on the list of payloads, so a row is a
change and the problem that the oracle must report.
"""

# ruff: noqa: E501 -- the tables are read by row

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from oracle import (
    CHAT,
    MESSAGES,
    PROTOCOL_NAMES,
    RESPONSES,
    check_models,
    check_stream,
    check_whole,
)
from oracle import samples as s

Payloads = list[Any]
Change = Callable[[Payloads], None]
GOOD: dict[str, Callable[[], Payloads]] = {CHAT: s.chat, MESSAGES: s.messages, RESPONSES: s.responses}


def _walk(payload: Any, path: str) -> tuple[Any, Any]:
    keys = [int(key) if key.lstrip("-").isdigit() else key for key in path.split(".")]
    for key in keys[:-1]:
        payload = payload[key]
    return payload, keys[-1]


def drop(at: int, path: str) -> Change:
    def change(payloads: Payloads) -> None:
        holder, key = _walk(payloads[at], path)
        del holder[key]

    return change


def put(at: int, path: str, value: Any) -> Change:
    def change(payloads: Payloads) -> None:
        holder, key = _walk(payloads[at], path)
        holder[key] = value

    return change


def remove(*at: int) -> Change:
    def change(payloads: Payloads) -> None:
        payloads[:] = [payload for number, payload in enumerate(payloads) if number not in at]

    return change


def insert(at: int, payload: Any) -> Change:
    return lambda payloads: payloads.insert(at, copy.deepcopy(payload))


def append(payload: Any) -> Change:
    return lambda payloads: payloads.append(copy.deepcopy(payload))


def repeat(at: int) -> Change:
    return lambda payloads: payloads.insert(at, copy.deepcopy(payloads[at]))


def swap(one: int, other: int) -> Change:
    def change(payloads: Payloads) -> None:
        payloads[one], payloads[other] = payloads[other], payloads[one]

    return change


def cut(length: int, *then: Any) -> Change:
    def change(payloads: Payloads) -> None:
        payloads[length:] = copy.deepcopy(list(then))

    return change


def both(*changes: Change) -> Change:
    def change(payloads: Payloads) -> None:
        for one in changes:
            one(payloads)

    return change


CHAT_ERROR = {"error": {"message": "gone", "type": "server_error", "param": None, "code": None}}
MESSAGES_ERROR = {"type": "error", "error": {"type": "api_error", "message": "gone"}, "request_id": None}
RESPONSES_ERROR = {
    "type": "error",
    "code": "server_error",
    "message": "gone",
    "param": None,
    "error": {"type": "server_error", "code": "server_error", "message": "gone", "param": None},
}
RESPONSES_FAILED = {
    "type": "response.failed",
    "response": s.response("failed", error={"code": "server_error", "message": "gone"}),
}
DONE = "[DONE]"
CUSTOM = {"index": 0, "id": "call_a", "type": "custom", "custom": {"name": "patch", "input": "*** Begin"}}


def _custom_item(events: Payloads) -> None:
    """Turns the first function call of the Responses sample into a custom tool call."""
    for number in (15, 18):
        old = events[number]["item"]
        text = old["arguments"] and "*** Begin"
        events[number]["item"] = {
            "id": "ctc_1",
            "type": "custom_tool_call",
            "call_id": "call_a",
            "name": "patch",
            "input": text,
        }
    events[16] = s.at("custom_tool_call_input.delta", 2, "ctc_1", delta="*** Begin")
    events[17] = s.at("custom_tool_call_input.done", 2, "ctc_1", input="*** Begin")
    events[-1]["response"]["output"][2] = events[18]["item"]


VARIANTS: dict[str, list[tuple[str, Change]]] = {
    CHAT: [
        ("as it is", lambda payloads: None),
        ("ends with an error", cut(3, CHAT_ERROR)),
        ("cut in a call by the limit", both(remove(6, 7), put(6, "choices.0.finish_reason", "length"))),
        ("custom call", both(cut(1, s.chunk({"tool_calls": [CUSTOM]}), s.chunk({}, "tool_calls"), DONE))),
        ("calls interleave", swap(5, 6)),
        ("first delta opens a call", cut(0, s.chunk({"role": "assistant", "content": None, **s.call(0, "c", "f", "{}")}), s.chunk({}, "tool_calls"), DONE)),
        ("matched stop string", both(cut(4, s.chunk({}, "stop"), DONE), put(4, "choices.0.stop_reason", "X"))),
    ],
    MESSAGES: [
        ("as it is", lambda payloads: None),
        ("ends with an error", cut(8, MESSAGES_ERROR)),
        ("ping first", insert(0, {"type": "ping"})),
        ("cut in a call by the limit", both(put(15, "delta.partial_json", '{"a'), put(17, "delta.stop_reason", "max_tokens"))),
        ("cut call left open", both(remove(15, 16), put(15, "delta.stop_reason", "max_tokens"))),
        ("redacted thinking comes whole", both(put(2, "content_block", {"type": "redacted_thinking", "data": "x"}), remove(3, 4))),
        ("a beta block", both(put(2, "content_block", {"type": "compaction", "content": None, "encrypted_content": None}), remove(3, 4))),
        ("empty response", both(cut(1, s.messages()[17], s.messages()[18]), put(1, "delta.stop_reason", "end_turn"))),
    ],
    RESPONSES: [
        ("as it is", lambda payloads: None),
        ("ends with an error", cut(12, RESPONSES_ERROR, RESPONSES_FAILED)),
        ("fails at once", cut(1, RESPONSES_FAILED)),
        ("custom call", _custom_item),
        ("incomplete, cut call left open", both(cut(21, {"type": "response.incomplete", "response": s.response("incomplete", incomplete_details={"reason": "max_output_tokens"}, usage=s.RESPONSES_USAGE)}), lambda events: events[-1]["response"].update(output=[events[n]["item"] for n in (7, 14, 18)]))),
        ("queued", insert(1, {"type": "response.queued", "response": s.response("queued")})),
    ],
}  # fmt: skip


@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
def test_good_streams_pass(protocol: str) -> None:
    for name, change in VARIANTS[protocol]:
        payloads = GOOD[protocol]()
        change(payloads)
        assert check_stream(protocol, s.render(protocol, payloads), include_usage=True) == [], name


SECOND_CHOICE = s.chunk({"role": "assistant", "content": "", "refusal": None}, index=2)
LATE = s.chunk({"content": "more"})
EMPTY_CALL = s.chunk(s.call(1, arguments=""))
TEXT_START = s.start(4, type="text", text="", citations=None)
BROKEN: dict[str, list[tuple[str, Change, str]]] = {
    CHAT: [
        ("no id", drop(2, "id"), "id: Field required"),
        ("no choices", drop(2, "choices"), "choices: Field required"),
        ("no delta", put(2, "choices.0.delta", None), "delta: Input should be an object"),
        ("wrong object", put(2, "object", "chunk"), "object: Input should be"),
        ("created is a text", put(2, "created", "1"), "created: Input should be a valid integer"),
        ("unknown field", put(2, "provider", "x"), "provider: unknown to"),
        ("unknown delta field", put(2, "choices.0.delta.thinking", "x"), "thinking: unknown to"),
        ("content is a list", put(2, "choices.0.delta.content", []), "content: Input should be a valid string"),
        ("reasoning is no text", put(1, "choices.0.delta.reasoning_content", 3), "reasoning_content: not a string"),
        ("odd reasoning detail", put(1, "choices.0.delta.reasoning_details", [{"type": "x"}]), "type: unknown 'x'"),
        ("odd finish_reason", put(8, "choices.0.finish_reason", "eos"), "finish_reason: Input should be"),
        ("odd service_tier", put(2, "service_tier", ""), "service_tier: Input should be"),
        ("odd custom fragment", put(4, "choices.0.delta.tool_calls", [{**CUSTOM, "custom": {"text": "x"}}]), "custom.text: Extra inputs"),
        ("error without param", cut(3, {"error": {"message": "gone", "type": "x", "code": None}}), "error.param: absent"),
        ("id changes", put(3, "id", "other"), "id, created or model changed"),
        ("empty id", put(0, "id", ""), "empty id"),
        ("no role", drop(0, "choices.0.delta.role"), "the first delta has no role"),
        ("role twice", put(2, "choices.0.delta.role", "assistant"), "role is repeated"),
        ("first content is not empty", put(0, "choices.0.delta.content", "Let"), "the first delta's content is not empty"),
        ("first content is absent", drop(0, "choices.0.delta.content"), "the first delta's content is not empty"),
        ("first refusal", put(0, "choices.0.delta.refusal", ""), "the first delta's refusal is not null"),
        ("choice index jumps", insert(3, SECOND_CHOICE), "choice indexes are not contiguous"),
        ("no tool index", drop(4, "choices.0.delta.tool_calls.0.index"), "index: Field required"),
        ("tool index jumps", put(6, "choices.0.delta.tool_calls.0.index", 2), "tool call indexes are not contiguous"),
        ("call without id", drop(4, "choices.0.delta.tool_calls.0.id"), "opened without an id"),
        ("call without name", drop(4, "choices.0.delta.tool_calls.0.function.name"), "opened without a name"),
        ("call without type", drop(4, "choices.0.delta.tool_calls.0.type"), "opened without a type"),
        ("id repeated", put(5, "choices.0.delta.tool_calls.0.id", "call_a"), "id is repeated"),
        ("name repeated", put(5, "choices.0.delta.tool_calls.0.function.name", "add"), "name is repeated"),
        ("one id for two calls", put(6, "choices.0.delta.tool_calls.0.id", "call_a"), "'call_a' is used twice"),
        ("empty tool_calls", put(2, "choices.0.delta.tool_calls", []), "empty tool_calls list"),
        ("empty arguments", remove(7), "not even {}"),
        ("stop after calls", put(8, "choices.0.finish_reason", "stop"), "although the turn ends with tool calls"),
        ("tool_calls without calls", remove(4, 5, 6, 7), "finish_reason tool_calls without a tool call"),
        ("no finish_reason", remove(8), "before choice 0 has a finish_reason"),
        ("two finish_reasons", repeat(8), "a second finish_reason"),
        ("text after the finish", insert(9, LATE), "a delta after finish_reason"),
        ("usage with choices", both(put(8, "usage", s.CHAT_USAGE), remove(9)), "usage in a chunk that has choices"),
        ("usage too early", swap(8, 9), "usage before the end of all choices"),
        ("usage twice", repeat(9), "a chunk follows the usage chunk"),
        ("chunk without choices", insert(0, s.chunk()), "a chunk without choices"),
        ("usage is null", put(9, "usage", None), "a chunk without choices"),
        ("usage does not add up", put(9, "usage.total_tokens", 12), "not the sum"),
        ("more cached than given", put(9, "usage.prompt_tokens_details", {"cached_tokens": 10}), "less than its part"),
        ("no [DONE]", remove(10), "ends with neither [DONE] nor an error"),
        ("two [DONE]", append(DONE), "something follows the done frame"),
        ("[DONE] after an error", cut(3, CHAT_ERROR, DONE), "something follows the error frame"),
        ("nothing but [DONE]", cut(0, DONE), "[DONE] without any choice"),
    ],
    MESSAGES: [
        ("unknown event", insert(3, {"type": "message_pause"}), "type: unknown event"),
        ("ping with fields", put(1, "time", 1), "ping: carries fields"),
        ("no container", drop(0, "message.container"), "message.container: absent"),
        ("no stop_reason key", drop(0, "message.stop_reason"), "message.stop_reason: absent"),
        ("no cache counts", drop(0, "message.usage.cache_read_input_tokens"), "cache_read_input_tokens: absent"),
        ("no input_tokens", drop(0, "message.usage.input_tokens"), "input_tokens: Field required"),
        ("no usage at the start", drop(0, "message.usage"), "message.usage: Field required"),
        ("nothing in message_start", drop(0, "message"), "message: Field required"),
        ("no model", drop(0, "message.model"), "message.model: Field required"),
        ("no caller", drop(10, "content_block.caller"), "content_block.caller: absent"),
        ("no input", drop(10, "content_block.input"), "content_block.input: Field required"),
        ("no tool id", drop(10, "content_block.id"), "content_block.id: Field required"),
        ("no signature at start", drop(2, "content_block.signature"), "content_block.signature: Field required"),
        ("no index", drop(6, "index"), "index: Field required"),
        ("no delta usage", drop(17, "usage"), "usage: Field required"),
        ("null delta counts absent", drop(17, "usage.input_tokens"), "usage.input_tokens: absent"),
        ("odd stop_reason", put(17, "delta.stop_reason", "stop"), "stop_reason: Input should be"),
        ("unknown field", put(7, "delta.citations", []), "citations: unknown to TextDelta"),
        ("odd error type", cut(8, {"type": "error", "error": {"type": "server_error", "message": "x"}}), "error.type: unknown"),
        ("error without message", cut(8, {"type": "error", "error": {"type": "api_error"}}), "error.message: must be"),
        ("[DONE]", append(DONE), "json:"),
        ("no message_start", remove(0), "message_start has not come yet"),
        ("two message_starts", repeat(0), "a second message_start"),
        ("starts with content", put(0, "message.content", [{"type": "text", "text": "x", "citations": None}]), "content is not empty"),
        ("starts with its end", put(0, "message.stop_reason", "end_turn"), "stop_reason is already set"),
        ("empty id", put(0, "message.id", ""), "empty id"),
        ("index gap", put(6, "index", 2), "block indexes are not contiguous"),
        ("two open blocks", remove(5), "the block before is still open"),
        ("delta of another block", put(7, "index", 0), "no such block is open"),
        ("no block start", remove(6), "no such block is open"),
        ("delta after its stop", swap(8, 9), "no such block is open"),
        ("stop of another block", put(9, "index", 0), "no such block is open"),
        ("delta of the wrong kind", put(7, "delta", {"type": "input_json_delta", "partial_json": "x"}), "input_json_delta in a text block"),
        ("text at the start", put(6, "content_block.text", "Let"), "a text block does not start empty"),
        ("input at the start", put(10, "content_block.input", {"a": 1}), "does not start with input {}"),
        ("empty text block", remove(7, 8), "a text block without text"),
        ("no signature", remove(4), "a thinking block without a signature"),
        ("empty signature", put(4, "delta.signature", ""), "an empty signature"),
        ("signature first", swap(3, 4), "a delta after the signature"),
        ("two signatures", repeat(4), "a delta after the signature"),
        ("input is no JSON", put(12, "delta.partial_json", "1"), "do not sum up to JSON"),
        ("input is no object", both(remove(11), put(11, "delta.partial_json", "[1]")), "the input is not a JSON object"),
        ("no input at all", remove(15), "do not sum up to JSON"),
        ("an earlier call is cut", both(put(12, "delta.partial_json", ""), put(17, "delta.stop_reason", "max_tokens")), "do not sum up to JSON"),
        ("one id for two calls", put(14, "content_block.id", "call_a"), "a tool id is used twice"),
        ("empty tool id", put(14, "content_block.id", ""), "a tool block without id or name"),
        ("open block at the end", remove(9, *range(10, 17)), "a block is still open"),
        ("end_turn after calls", put(17, "delta.stop_reason", "end_turn"), "although the turn ends with tool calls"),
        ("tool_use without calls", remove(*range(10, 17)), "stop_reason tool_use without a tool call"),
        ("stop_sequence without reason", put(17, "delta.stop_sequence", "X"), "if and only if"),
        ("no stop_reason", put(17, "delta.stop_reason", None), "no stop_reason"),
        ("two message_deltas", repeat(17), "the message_delta has already come"),
        ("block after message_delta", insert(18, TEXT_START), "the message_delta has already come"),
        ("no message_delta", remove(17), "no message_delta came before"),
        ("no message_stop", remove(18), "neither message_stop nor an error"),
        ("ping after the end", append({"type": "ping"}), "something follows the end"),
        ("delta after an error", cut(8, MESSAGES_ERROR, {"type": "message_stop"}), "something follows the end"),
    ],
    RESPONSES: [
        ("unknown event", insert(2, {"type": "keepalive"}), "type: unknown event 'keepalive'"),
        ("no logprobs", drop(10, "logprobs"), "logprobs: Field required"),
        ("no logprobs when done", drop(12, "logprobs"), "logprobs: Field required"),
        ("no summary", drop(2, "item.summary"), "item.summary: Field required"),
        ("no content", drop(8, "item.content"), "item.content: Field required"),
        ("no annotations", drop(9, "part.annotations"), "part.annotations: Field required"),
        ("no item_id", drop(10, "item_id"), "item_id: Field required"),
        ("no output_index", drop(10, "output_index"), "output_index: Field required"),
        ("no output_index of an item", drop(8, "output_index"), "output_index: Field required"),
        ("no item id", drop(14, "item.id"), "item.id: Field required"),
        ("no item status", drop(8, "item.status"), "item.status: Field required"),
        ("no call_id", drop(18, "item.call_id"), "item.call_id: Field required"),
        ("a status and no more", put(23, "response", {"status": "completed"}), "response.id: Field required"),
        ("no tools", drop(0, "response.tools"), "response.tools: Field required"),
        ("no error key", drop(0, "response.error"), "response.error: absent"),
        ("no access_programs", drop(0, "response.access_programs"), "access_programs: absent"),
        ("no cache write count", drop(23, "response.usage.input_tokens_details.cache_write_tokens"), "cache_write_tokens: Field required"),
        ("tool echo without strict", put(0, "response.tools", [{"type": "function", "name": "f", "parameters": None}]), "response.tools.0.strict: absent"),
        ("unknown field", put(10, "text", "x"), "text: unknown to"),
        ("odd error code", cut(12, RESPONSES_ERROR, {**RESPONSES_FAILED, "response": s.response("failed", error={"code": "x", "message": "m"})}), "response.error.code: Input should be"),
        ("error without param", cut(12, {k: v for k, v in RESPONSES_ERROR.items() if k != "param"}, RESPONSES_FAILED), "param: absent"),
        ("nested error differs", cut(12, {**RESPONSES_ERROR, "message": "x"}, RESPONSES_FAILED), "does not repeat"),
        ("sequence starts at 1", put(0, "sequence_number", 1), "sequence_number 1, expected 0"),
        ("sequence repeats", put(5, "sequence_number", 4), "sequence_number 4, expected 5"),
        ("no created", remove(0), "expected response.created"),
        ("no in_progress", remove(1), "expected response.in_progress"),
        ("created twice", repeat(1), "it came already"),
        ("output in created", put(0, "response.output", s.responses()[-1]["response"]["output"]), "no output, no usage"),  # type: ignore[index]
        ("usage in created", put(0, "response.usage", s.RESPONSES_USAGE), "no output, no usage"),
        ("completed at the start", put(1, "response.status", "completed"), "status in_progress"),
        ("response id changes", put(23, "response.id", "resp_2"), "id is empty or changed"),
        ("output index twice", put(8, "output_index", 0), "output indexes are not contiguous"),
        ("item id twice", put(8, "item.id", "rs_1"), "id is empty or used twice"),
        ("empty item id", put(8, "item.id", ""), "id is empty or used twice"),
        ("call id twice", put(19, "item.call_id", "call_a"), "call_id is empty or used twice"),
        ("two open items", remove(7), "the item before is still open"),
        ("added completed", put(8, "item.status", "completed"), "added with status 'completed'"),
        ("added with arguments", put(15, "item.arguments", "{"), "added with arguments already there"),
        ("delta of another item", put(10, "item_id", "rs_1"), "item_id is not that of the open item"),
        ("delta of another index", put(10, "output_index", 0), "output_index is not that of the open item"),
        ("delta without an item", insert(8, s.responses()[10]), "no item is open"),
        ("item never added", remove(8), "no item is open"),
        ("delta without a part", remove(9), "no output_text is open there"),
        ("part index gap", put(9, "content_index", 1), "part indexes are not contiguous"),
        ("part added with text", put(9, "part.text", "Let"), "the part is not added empty"),
        ("part never closed", remove(13), "content is not its done parts"),
        ("two open parts", insert(10, s.at("content_part.added", 1, "msg_1", content_index=1, part={"type": "refusal", "refusal": ""})), "the part before is still open"),
        ("part closed early", swap(12, 13), "the part is done before its text is"),
        ("part closed twice", repeat(13), "no such part is open"),
        ("text done differs", put(12, "text", "Let me"), "text is not the sum of the deltas"),
        ("text only when done", remove(10, 11), "text is not the sum of the deltas"),
        ("part done differs", put(13, "part.text", "Let me"), "the part is not the sum of its deltas"),
        ("delta after done", swap(11, 12), "the text is already done"),
        ("only annotation in the part", put(13, "part.annotations", [{"type": "file_path", "file_id": "f", "index": 0}]), "not those that were added"),
        ("annotation index jumps", insert(12, s.at("output_text.annotation.added", 1, "msg_1", content_index=0, annotation_index=1, annotation={"type": "file_path", "file_id": "f", "index": 0})), "wrong annotation_index"),
        ("summary done differs", put(5, "text", "Hm"), "text is not the sum of the deltas"),
        ("arguments done differs", put(17, "arguments", "{}"), "arguments is not the sum of the deltas"),
        ("no arguments done", remove(17), "the call is done before its text is"),
        ("done call differs", put(18, "item.arguments", "{}"), "the call's text is not the sum"),
        ("call id changes", put(18, "item.call_id", "call_z"), "the item's call_id changed"),
        ("item id changes", put(14, "item.id", "other"), "the item's id changed"),
        ("name changes", put(18, "item.name", "sub"), "the item's name changed"),
        ("done in progress", put(18, "item.status", "in_progress"), "done with status 'in_progress'"),
        ("done of another index", put(18, "output_index", 1), "no such item is open"),
        ("item never done", remove(22), "an item is still open"),
        ("final output lacks an item", drop(23, "response.output.3"), "not the done items in order"),
        ("final output in other order", lambda e: e[23]["response"]["output"].reverse(), "not the done items in order"),
        ("final output is empty", put(23, "response.output", []), "not the done items in order"),
        ("final output invents", lambda e: e[23]["response"]["output"].append({**e[18]["item"], "id": "fc_9", "call_id": "c9"}), "never done"),
        ("final status differs", put(23, "response.status", "in_progress"), "status 'in_progress'"),
        ("final status is another end's", put(23, "response.status", "incomplete"), "status 'incomplete'"),
        ("no final usage", put(23, "response.usage", None), "no usage"),
        ("usage does not add up", put(23, "response.usage.total_tokens", 12), "not the sum"),
        ("incomplete without reason", lambda e: e.__setitem__(23, {"type": "response.incomplete", "response": {**e[23]["response"], "status": "incomplete"}}), "incomplete_details is set if and only if"),
        ("completed with an error", put(23, "response.error", {"code": "server_error", "message": "x"}), "error is set if and only if"),
        ("no end", remove(23), "without completed, incomplete or failed"),
        ("two ends", repeat(23), "something follows the end"),
        ("error without failed", cut(12, RESPONSES_ERROR), "without completed, incomplete or failed"),
        ("completed after an error", cut(2, RESPONSES_ERROR, {"type": "response.completed", "response": s.response("completed", usage=s.RESPONSES_USAGE)}), "only response.failed may follow"),
        ("[DONE]", append(DONE), "[DONE] does not belong here"),
        ("empty message", both(remove(*range(9, 14)), put(9, "item.content", []), put(18, "response.output.1.content", [])), "a message without content"),
        ("empty text", both(remove(10, 11), put(10, "text", ""), put(11, "part.text", ""), put(12, "item.content.0.text", ""), put(21, "response.output.1.content.0.text", "")), "an empty part"),
        ("empty arguments", both(remove(20), put(20, "arguments", ""), put(21, "item.arguments", ""), put(22, "response.output.3.arguments", "")), "not even {}"),
    ],
}  # fmt: skip


@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
def test_broken_streams_are_caught(protocol: str) -> None:
    for name, change, problem in BROKEN[protocol]:
        payloads = GOOD[protocol]()
        change(payloads)
        found = check_stream(protocol, s.render(protocol, payloads), include_usage=True)
        assert [reported for reported in found if problem in reported], (name, found)


def test_usage_that_was_not_requested() -> None:
    stream = s.render(CHAT, s.chat())
    assert any("not asked for" in reported for reported in check_stream(CHAT, stream, include_usage=False))


FRAMING: list[tuple[str, Callable[[bytes], bytes], str]] = [
    ("bom", lambda stream: b"\xef\xbb\xbf" + stream, "byte order mark"),
    ("crlf", lambda stream: stream.replace(b"\n", b"\r\n"), "carriage return"),
    ("no last blank line", lambda stream: stream[:-1], "not closed by a blank line"),
    ("no space", lambda stream: stream.replace(b"data: ", b"data:", 1), "unexpected line"),
    (
        "two data lines",
        lambda stream: stream.replace(b"data: ", b"data: \ndata: ", 1),
        "more than one `data:`",
    ),
    ("an id line", lambda stream: b"id: 1\n" + stream, "unexpected line 'id: 1'"),
    ("stray blank line", lambda stream: stream.replace(b"\n\n", b"\n\n\n", 1), "stray blank line"),
    ("only event", lambda stream: b"event: ping\n\n" + stream, "no `data:` line"),
    ("not UTF-8", lambda stream: b": \xff\n\n" + stream, "not UTF-8"),
    ("NaN", lambda stream: stream.replace(b": 1", b": NaN", 1), "NaN is not JSON"),
    ("a name twice", lambda stream: stream.replace(b'{"', b'{"x":1,"x":1,"', 1), "given twice"),
    ("nothing", lambda stream: b"", "empty stream"),
]


@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
def test_broken_framing_is_caught(subtests: pytest.Subtests, protocol: str) -> None:
    for name, change, problem in FRAMING:
        with subtests.test(name=name):
            found = check_stream(protocol, change(s.render(protocol, GOOD[protocol]())), include_usage=True)
            assert [reported for reported in found if problem in reported], found


def test_event_lines() -> None:
    """Chat has none; the others' name the data's type."""
    named = s.render(MESSAGES, s.messages()).replace(b"event: message_stop", b"event: message_end")
    assert any("is not the data's type" in reported for reported in check_stream(MESSAGES, named))
    bare = re.sub(rb"event: [a-z_]+\n", b"", s.render(MESSAGES, s.messages()))
    assert any("no `event:` line" in reported for reported in check_stream(MESSAGES, bare))
    chat = s.render(CHAT, s.chat()).replace(b"data: [DONE]", b"event: end\ndata: [DONE]")
    assert any("no `event:` line" in reported for reported in check_stream(CHAT, chat, include_usage=True))


@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
def test_comments_are_heartbeats(protocol: str) -> None:
    stream = s.render(protocol, GOOD[protocol]()).replace(b"\n\n", b"\n\n: beat\n\n", 3)
    assert check_stream(protocol, stream, include_usage=True) == []


BROKEN_WHOLE: list[tuple[str, Change, str]] = [
    (CHAT, drop(0, "choices.0.logprobs"), "choices.0.logprobs: absent"),
    (CHAT, drop(0, "choices.0.message.refusal"), "choices.0.message.refusal: absent"),
    (CHAT, put(0, "choices.0.finish_reason", None), "finish_reason: Input should be"),
    (CHAT, put(0, "choices.0.finish_reason", "stop"), "although the turn ends with tool calls"),
    (CHAT, put(0, "choices.0.message.tool_calls", []), "empty tool_calls list"),
    (CHAT, put(0, "choices.0.message.tool_calls.0.id", ""), "empty or used twice"),
    (CHAT, put(0, "choices.0.message.tool_calls.0.function.arguments", ""), "not even {}"),
    (CHAT, put(0, "choices.0.message.reasoning_details", [{}]), "type: unknown"),
    (CHAT, put(0, "choices.0.index", 1), "not contiguous"),
    (CHAT, put(0, "choices", []), "no choices"),
    (CHAT, put(0, "usage.total_tokens", 1), "not the sum"),
    (MESSAGES, drop(0, "diagnostics"), "diagnostics: absent"),
    (MESSAGES, put(0, "content.0.signature", ""), "an empty signature"),
    (MESSAGES, put(0, "content.1.text", ""), "a text block without text"),
    (MESSAGES, put(0, "content.2.id", ""), "empty or used twice"),
    (MESSAGES, put(0, "stop_reason", None), "no stop_reason"),
    (MESSAGES, put(0, "stop_reason", "end_turn"), "although the turn ends with tool calls"),
    (RESPONSES, drop(0, "metadata"), "metadata: absent"),
    (RESPONSES, put(0, "created_at", None), "created_at: Input should be"),
    (RESPONSES, put(0, "status", "in_progress"), "is no end"),
    (RESPONSES, put(0, "usage", None), "no usage"),
    (RESPONSES, put(0, "output.0.call_id", ""), "empty or used twice"),
    (RESPONSES, put(0, "output.0.status", "incomplete"), "in a completed response"),
]


@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
def test_good_whole_responses_pass(protocol: str) -> None:
    assert check_whole(protocol, json.dumps(s.WHOLE[protocol]).encode()) == []


def test_broken_whole_responses_are_caught(subtests: pytest.Subtests) -> None:
    for protocol, change, problem in BROKEN_WHOLE:
        with subtests.test(protocol=protocol, problem=problem):
            payloads = [copy.deepcopy(s.WHOLE[protocol])]
            change(payloads)
            found = check_whole(protocol, json.dumps(payloads[0]).encode())
            assert [reported for reported in found if problem in reported], found


MODEL = {"id": "m", "object": "model", "created": 1, "owned_by": "o"}
MODEL_INFO = {
    "id": "m",
    "type": "model",
    "display_name": "M",
    "created_at": "2026-01-01T00:00:00Z",
    "lifecycle": "active",
}


def test_model_lists() -> None:
    assert check_models(CHAT, json.dumps({"object": "list", "data": [MODEL]}).encode()) == []
    page = {"data": [MODEL_INFO], "first_id": "m", "last_id": "m", "has_more": False}
    assert check_models(MESSAGES, json.dumps(page).encode()) == []
    assert check_models(CHAT, b'{"data": []}') == ["object: absent", "object: must be 'list'"]
    assert check_models(MESSAGES, json.dumps({**page, "data": [MODEL]}).encode()) != []


def test_the_oracle_shares_nothing_with_the_product() -> None:
    folder = Path(s.__file__).parent
    sources = {path.name: path.read_text() for path in folder.glob("*.py")}
    assert [name for name, text in sources.items() if re.search(r"(import|from) dragoman", text)] == []
    assert len(sources) > 10
