"""Streams of a Responses upstream, and the events that a reader gives for them."""

from __future__ import annotations

from typing import Any

from dragoman._ir.event_order import EventOrderChecker
from dragoman._ir.events import (
    ENDED,
    BlockEnded,
    BlockKind,
    BlockStarted,
    Event,
    ReasoningDelta,
    ReasoningForm,
    Signature,
    SignatureDelta,
    Started,
    Stopped,
    StopReason,
    TextDelta,
    ToolHead,
    Usage,
)
from dragoman._ir.losses import Ledger
from dragoman._ir.request import Request
from dragoman._wire.json import encode
from dragoman._wire.sse import Frame
from dragoman.codec import ResponseContext
from dragoman.protocols.openai_responses import SPEC

ORIGIN = "openai_responses"
CONTEXT = ResponseContext(Request("openai_chat", "alias", (), {}), "x1", 7, "alias")
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
    reader = SPEC.stream_reader(CONTEXT, Ledger() if ledger is None else ledger)
    found: list[Event] = []
    for payload in payloads:
        name = str(payload.get("type", "")).encode() if named else b""
        found += reader.read(Frame(name, encode(payload)))
    assert list(reader.eof()) == []
    checker = EventOrderChecker()
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


# Every way of saying less, or of saying it later (an empty delta is no event).
TWO = (delta("Hel"), delta(""), delta("lo"))
ITEM_DONE = event("output_item.done", item=message(text_part("Hello")))
FINAL = ended(message(text_part("Hello")))
BARE_FINAL = ended()
ONCE: list[Event] = [STARTED, START, TextDelta(0, "Hello"), BlockEnded(0), *tail()]
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


CUT = {"incomplete_details": {"reason": "max_output_tokens"}}
REASONING = {"id": "rs_1", "type": "reasoning", "summary": []}
REASONING_ADDED = event("output_item.added", item=REASONING)
ENCRYPTED = {
    **REASONING,
    "summary": [{"type": "summary_text", "text": "ab"}, {"type": "summary_text", "text": "c"}],
    "encrypted_content": "gA",
}
THINKING = BlockStarted(0, BlockKind.REASONING, item_id="rs_1")


def summary(text: str, part: int = 0) -> dict[str, Any]:
    return event("reasoning_summary_text.delta", item_id="rs_1", summary_index=part, delta=text)


def reasoning_delta(text: str, part: int = 0, form: ReasoningForm = ReasoningForm.SUMMARY) -> ReasoningDelta:
    return ReasoningDelta(0, text, part, form)


SIGNATURE_END: list[Event] = [SignatureDelta(0, Signature(ORIGIN, ENCRYPTED, "gpt")), BlockEnded(0)]
WRAPPED_DONE = event("output_item.done", item=ENCRYPTED)
SEARCH = {"id": "ws_1", "type": "web_search_call", "status": "completed", "action": {"type": "search"}}
