"""Streams of a Responses upstream, and the events that a reader gives for them."""

from __future__ import annotations

from typing import Any

from dragoman._ir.request import Request
from dragoman.codec import ResponseContext

CONTEXT = ResponseContext(Request("openai_chat", "alias", ()), "x1", 7, "alias")
HEAD = {"id": "resp_1", "model": "gpt", "created_at": 5, "status": "in_progress", "output": []}
USAGE = {"input_tokens": 3, "output_tokens": 2, "total_tokens": 5}


def created(kind: str = "created") -> dict[str, Any]:
    return {"type": f"response.{kind}", "response": HEAD}


def ended(*output: Any, status: str = "completed", **fields: Any) -> dict[str, Any]:
    response = {**HEAD, "status": status, "output": list(output), "usage": USAGE, **fields}
    return {"type": f"response.{status}", "response": response}


def event(kind: str, index: int = 0, **fields: Any) -> dict[str, Any]:
    return {"type": f"response.{kind}", "output_index": index, **fields}


MESSAGE = {"id": "msg_1", "type": "message", "role": "assistant", "status": "in_progress", "content": []}
ADDED = event("output_item.added", item=MESSAGE)


def delta(text: str, **fields: Any) -> dict[str, Any]:
    return event("output_text.delta", item_id="msg_1", content_index=0, delta=text, logprobs=[], **fields)


def text_part(text: str, **fields: Any) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], **fields}


def message(*parts: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {**MESSAGE, "status": "completed", "content": list(parts), **fields}


CALL = {
    "id": "fc_1",
    "type": "function_call",
    "call_id": "c1",
    "name": "f",
    "arguments": "",
    "status": "in_progress",
}
CALL_ADDED = event("output_item.added", item=CALL)


def arguments(text: str) -> dict[str, Any]:
    return event("function_call_arguments.delta", item_id="fc_1", delta=text)


REASONING = {"id": "rs_1", "type": "reasoning", "summary": []}
REASONING_ADDED = event("output_item.added", item=REASONING)


def summary(text: str, part: int = 0) -> dict[str, Any]:
    return event("reasoning_summary_text.delta", item_id="rs_1", summary_index=part, delta=text)
