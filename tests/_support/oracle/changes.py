"""Changes of good streams, and variants of them that are good as well: what tests of the judges break, and must not.

A change is an operation on the list of payloads, so a row of a table is a change and the problem to be reported.
"""

# ruff: noqa: E501 -- the tables are read by row

import copy
from collections.abc import Callable
from typing import Any

from oracle import samples as s
from oracle.types import CHAT, GEMINI, MESSAGES, RESPONSES

Payloads = list[Any]
Change = Callable[[Payloads], None]
GOOD: dict[str, Callable[[], Payloads]] = {
    CHAT: s.chat,
    MESSAGES: s.messages,
    RESPONSES: s.responses,
    GEMINI: s.gemini,
}


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
GEMINI_ERROR = {"error": {"code": 503, "message": "gone", "status": "UNAVAILABLE", "details": []}}
RESPONSES_FAILED = {
    "type": "response.failed",
    "response": s.response("failed", error={"code": "server_error", "message": "gone"}),
}
DONE = "[DONE]"
_USAGE = {**s.chunk(), "usage": dict(s.CHAT_USAGE)}
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
        ("custom call", both(cut(1, s.chunk({"tool_calls": [CUSTOM]}), s.chunk({}, "tool_calls"), _USAGE, DONE))),
        ("calls interleave", swap(5, 6)),
        ("first delta opens a call", cut(0, s.chunk({"role": "assistant", "content": None, **s.call(0, "c", "f", "{}")}), s.chunk({}, "tool_calls"), _USAGE, DONE)),
        ("matched stop string", both(cut(4, s.chunk({}, "stop"), _USAGE, DONE), put(4, "choices.0.stop_reason", "X"))),
    ],
    MESSAGES: [
        ("as it is", lambda payloads: None),
        ("ends with an error", cut(8, MESSAGES_ERROR)),
        ("ping first", insert(0, {"type": "ping"})),
        ("cut in a call by the limit", both(put(15, "delta.partial_json", '{"a'), put(17, "delta.stop_reason", "max_tokens"))),
        ("cut call left open", both(remove(15, 16), put(15, "delta.stop_reason", "max_tokens"))),
        ("redacted thinking comes whole", both(put(2, "content_block", {"type": "redacted_thinking", "data": "x"}), remove(3, 4))),
        ("a call that code made comes whole", both(put(10, "content_block.input", {"a": 1}), put(10, "content_block.caller", {"type": "code_execution_20250825", "tool_id": "s"}), remove(11, 12))),
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
    GEMINI: [
        ("as it is", lambda payloads: None),
        ("a heartbeat", insert(2, {})),
        ("ends with an error", cut(3, GEMINI_ERROR)),
        ("cut by the limit", cut(2, s.parts({"text": "a"}, finish="MAX_TOKENS"))),
        ("a blocked prompt", cut(0, {"promptFeedback": {"blockReason": "SAFETY"}, "modelVersion": "m", "responseId": "r1"})),
        ("a call in pieces", both(put(3, "candidates.0.content.parts.0.functionCall", {"name": "add", "id": "c", "willContinue": True}), insert(4, s.parts({"functionCall": {"id": "d", "partialArgs": [{"jsonPath": "$.a", "numberValue": 1}]}})))),
    ],
}  # fmt: skip
