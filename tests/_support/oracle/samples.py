"""Good streams and responses, written by hand from the protocols' rules, for the oracle's own tests to break.

Each function gives fresh payloads (dicts, or a bare string such as [DONE]); `render` makes the bytes.
"""

import json
from typing import Any

from oracle.types import CHAT, GEMINI, MESSAGES, RESPONSES

Payload = dict[str, Any] | str


def render(protocol: str, payloads: list[Payload]) -> bytes:
    """The bytes of a stream. Responses events without a sequence_number get the next one."""
    frames = []
    for number, payload in enumerate(payloads):
        if isinstance(payload, dict) and protocol == RESPONSES:
            payload.setdefault("sequence_number", number)
        text = payload if isinstance(payload, str) else json.dumps(payload, ensure_ascii=False)
        named = protocol not in (CHAT, GEMINI) and isinstance(payload, dict)
        head = f"event: {payload['type']}\n" if named and isinstance(payload, dict) else ""
        frames.append(f"{head}data: {text}\n\n")
    return "".join(frames).encode()


def chunk(delta: dict[str, Any] | None = None, finish: str | None = None, index: int = 0) -> dict[str, Any]:
    """One chunk with one choice; without a delta, one without choices."""
    choices = []
    if delta is not None:
        choices = [{"index": index, "delta": delta, "finish_reason": finish, "logprobs": None}]
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m",
        "choices": choices,
    }


def call(index: int, call_id: str | None = None, name: str = "", arguments: str = "") -> dict[str, Any]:
    """A delta with one fragment of a function call; with an id it is the opening one."""
    fragment: dict[str, Any] = {"index": index, "function": {"arguments": arguments}}
    if call_id is not None:
        fragment |= {"id": call_id, "type": "function"}
        fragment["function"]["name"] = name
    return {"tool_calls": [fragment]}


CHAT_USAGE = {"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13}


def chat() -> list[Payload]:
    """Reasoning, text, two calls, usage."""
    return [
        chunk({"role": "assistant", "content": "", "refusal": None}),
        chunk({"reasoning_content": "Hmm."}),
        chunk({"content": "Let me "}),
        chunk({"content": "see."}),
        chunk(call(0, "call_a", "add")),
        chunk(call(0, arguments='{"a": 1}')),
        chunk(call(1, "call_b", "now")),
        chunk(call(1, arguments="{}")),
        chunk({}, "tool_calls"),
        {**chunk(), "usage": dict(CHAT_USAGE)},
        "[DONE]",
    ]


def start(index: int, **block: Any) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": block}


def delta(index: int, kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **fields}}


def stop(index: int) -> dict[str, Any]:
    return {"type": "content_block_stop", "index": index}


MESSAGES_USAGE = {
    "input_tokens": 9,
    "output_tokens": 1,
    "cache_creation": None,
    "cache_creation_input_tokens": 0,
    "cache_read_input_tokens": 0,
    "inference_geo": None,
}


def message(**fields: Any) -> dict[str, Any]:
    """A Messages response with nothing in it yet."""
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [],
        "container": None,
        "diagnostics": None,
        "stop_details": None,
        "stop_reason": None,
        "stop_sequence": None,
        "usage": dict(MESSAGES_USAGE),
        **fields,
    }


def messages() -> list[Payload]:
    """Thinking, text, two calls."""
    return [
        {"type": "message_start", "message": message()},
        {"type": "ping"},
        start(0, type="thinking", thinking="", signature=""),
        delta(0, "thinking_delta", thinking="Hmm."),
        delta(0, "signature_delta", signature="sig"),
        stop(0),
        start(1, type="text", text="", citations=None),
        delta(1, "text_delta", text="Let me "),
        delta(1, "text_delta", text="see."),
        stop(1),
        start(2, type="tool_use", id="call_a", name="add", input={}, caller=None),
        delta(2, "input_json_delta", partial_json='{"a": '),
        delta(2, "input_json_delta", partial_json="1}"),
        stop(2),
        start(3, type="tool_use", id="call_b", name="now", input={}, caller=None),
        delta(3, "input_json_delta", partial_json="{}"),
        stop(3),
        {
            "type": "message_delta",
            "delta": {
                "container": None,
                "stop_details": None,
                "stop_reason": "tool_use",
                "stop_sequence": None,
            },
            "usage": {
                "input_tokens": 9,
                "output_tokens": 4,
                "cache_creation_input_tokens": 0,
                "cache_read_input_tokens": 0,
            },
        },
        {"type": "message_stop"},
    ]


def response(status: str = "in_progress", **fields: Any) -> dict[str, Any]:
    """A Response object."""
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "model": "m",
        "status": status,
        "output": [],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "access_programs": None,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": None,
        "temperature": None,
        "top_p": None,
        "usage": None,
        **fields,
    }


RESPONSES_USAGE = {
    "input_tokens": 9,
    "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
    "output_tokens": 4,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 13,
}


def at(kind: str, output: int, item: str, **fields: Any) -> dict[str, Any]:
    return {"type": f"response.{kind}", "output_index": output, "item_id": item, **fields}


def item(kind: str, output: int, **fields: Any) -> dict[str, Any]:
    return {"type": f"response.output_item.{kind}", "output_index": output, "item": fields}


def responses() -> list[Payload]:
    """Reasoning, a message, two calls."""
    thinking_block = {"type": "summary_text", "text": "Hmm."}
    part = {"type": "output_text", "text": "Let me see.", "annotations": [], "logprobs": []}
    reasoning = {"id": "rs_1", "type": "reasoning", "summary": [thinking_block]}
    with_text = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [part],
    }
    first = {"id": "fc_1", "type": "function_call", "call_id": "call_a", "name": "add"}
    second = {"id": "fc_2", "type": "function_call", "call_id": "call_b", "name": "now"}
    opened = {"status": "in_progress", "arguments": ""}
    closed = [
        {**first, "status": "completed", "arguments": '{"a": 1}'},
        {**second, "status": "completed", "arguments": "{}"},
    ]
    final = response("completed", output=[reasoning, with_text, *closed], usage=dict(RESPONSES_USAGE))
    text = {"content_index": 0}
    events: list[Payload] = [
        {"type": "response.created", "response": response()},
        {"type": "response.in_progress", "response": response()},
        item("added", 0, id="rs_1", type="reasoning", summary=[]),
        at("reasoning_summary_part.added", 0, "rs_1", summary_index=0, part={**thinking_block, "text": ""}),
        at("reasoning_summary_text.delta", 0, "rs_1", summary_index=0, delta="Hmm."),
        at("reasoning_summary_text.done", 0, "rs_1", summary_index=0, text="Hmm."),
        at("reasoning_summary_part.done", 0, "rs_1", summary_index=0, part=thinking_block),
        item("done", 0, **reasoning),
        item("added", 1, **{**with_text, "status": "in_progress", "content": []}),
        at("content_part.added", 1, "msg_1", **text, part={**part, "text": ""}),
        at("output_text.delta", 1, "msg_1", **text, delta="Let me ", logprobs=[]),
        at("output_text.delta", 1, "msg_1", **text, delta="see.", logprobs=[]),
        at("output_text.done", 1, "msg_1", **text, text="Let me see.", logprobs=[]),
        at("content_part.done", 1, "msg_1", **text, part=part),
        item("done", 1, **with_text),
        item("added", 2, **first, **opened),
        at("function_call_arguments.delta", 2, "fc_1", delta='{"a": 1}'),
        at("function_call_arguments.done", 2, "fc_1", arguments='{"a": 1}'),
        item("done", 2, **closed[0]),
        item("added", 3, **second, **opened),
        at("function_call_arguments.delta", 3, "fc_2", delta="{}"),
        at("function_call_arguments.done", 3, "fc_2", arguments="{}"),
        item("done", 3, **closed[1]),
        {"type": "response.completed", "response": final},
    ]
    # Each payload has its own objects, so that a test can break only one.
    return [json.loads(json.dumps(event)) for event in events]


GEMINI_USAGE = {"promptTokenCount": 9, "candidatesTokenCount": 4, "totalTokenCount": 13}


def parts(*listed: dict[str, Any], finish: str = "", usage: dict[str, Any] | None = None) -> dict[str, Any]:
    """One chunk with parts of the first candidate."""
    candidate: dict[str, Any] = {"content": {"parts": list(listed), "role": "model"}, "index": 0}
    if finish:
        candidate["finishReason"] = finish
    return {
        "candidates": [candidate],
        "usageMetadata": {"promptTokenCount": 9, "totalTokenCount": 9} if usage is None else usage,
        "modelVersion": "m",
        "responseId": "r1",
    }


def function_call(call_id: str, name: str, args: dict[str, Any], signature: str = "") -> dict[str, Any]:
    signed = {"thoughtSignature": signature} if signature else {}
    return {"functionCall": {"id": call_id, "name": name, "args": args}, **signed}


def gemini() -> list[Payload]:
    """Thoughts, text, two calls of which the first is signed, and the end, as gemini-3 sends it."""
    return [
        parts({"text": "Hmm.", "thought": True}),
        parts({"text": "Let me "}),
        parts({"text": "see."}),
        parts(function_call("call_a", "add", {"a": 1}, "c2lnbmVk")),
        parts(function_call("call_b", "now", {})),
        parts({"text": ""}, finish="STOP", usage=dict(GEMINI_USAGE)),
    ]


TEXT_BLOCK = {"type": "text", "text": "Hi", "citations": None}
CALL_ITEM = {"id": "fc_1", "type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
WHOLE: dict[str, dict[str, Any]] = {
    CHAT: {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [
            {
                "index": 0,
                "finish_reason": "tool_calls",
                "logprobs": None,
                "message": {
                    "role": "assistant",
                    "content": "Hi",
                    "refusal": None,
                    "tool_calls": [
                        {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
                    ],
                },
            }
        ],
        "usage": CHAT_USAGE,
    },
    MESSAGES: message(
        content=[
            {"type": "thinking", "thinking": "Hmm", "signature": "sig"},
            TEXT_BLOCK,
            {"type": "tool_use", "id": "c", "name": "f", "input": {}, "caller": None},
        ],
        stop_reason="tool_use",
    ),
    RESPONSES: response("completed", output=[{**CALL_ITEM, "status": "completed"}], usage=RESPONSES_USAGE),
    GEMINI: parts({"text": "Hi"}, function_call("c", "f", {}, "c2ln"), finish="STOP", usage=GEMINI_USAGE),
}
