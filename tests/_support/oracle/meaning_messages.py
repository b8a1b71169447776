"""Meaning of Messages responses.

`message_start` and `message_delta` usage are one set of cumulative figures, the later replacing the earlier
field by field; everything after `message_stop` is nothing; a missing `message_stop` is forgiven once a
stop_reason came.
"""

import json
from typing import Any

from oracle.frames import as_object, lenient_frames
from oracle.meaning import Block, Failure, Kind, Meaning, Stop, Usage, whole_number

STOPS = {
    "end_turn": Stop.END,
    "tool_use": Stop.TOOL,
    "max_tokens": Stop.LENGTH,
    "model_context_window_exceeded": Stop.LENGTH,
    "stop_sequence": Stop.SEQUENCE,
    "pause_turn": Stop.PAUSE,
    "refusal": Stop.FILTER,
    "compaction": Stop.COMPACTION,
}
KINDS = {
    "text": Kind.TEXT,
    "thinking": Kind.REASONING,
    "redacted_thinking": Kind.REASONING,
    "tool_use": Kind.CALL,
}
TEXTS = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "partial_json"}


class MessagesReader:
    def __init__(self) -> None:
        self.meaning = Meaning()
        self.slots: dict[int, Block] = {}
        self.inputs: dict[int, Any] = {}
        self.usage: dict[str, Any] = {}
        self.reason: str | None = None
        self.started = False

    def event(self, event: dict[str, Any]) -> bool:
        """Take one event; True when nothing after it counts."""
        kind = event.get("type")
        if kind == "message_start" and not self.started:
            self.started = True
            self._usage(event.get("message", {}).get("usage"))
        elif kind == "content_block_start":
            self.block(event.get("index", len(self.slots)), event.get("content_block") or {})
        elif kind == "content_block_delta":
            delta = event.get("delta") or {}
            block = self.slots.get(event.get("index", -1))
            if block is not None:
                block.text += delta.get(TEXTS.get(delta.get("type"), ""), "") or ""
        elif kind == "message_delta":
            self._usage(event.get("usage"))
            self.end(event.get("delta") or {})
        elif kind == "error":
            self.meaning.failure = failure_of(event)
        return kind in ("message_stop", "error")

    def block(self, index: int, start: dict[str, Any]) -> None:
        kind = KINDS.get(start.get("type", ""), Kind.HOSTED)
        block = Block(kind, id=start.get("id") or "", name=start.get("name") or start.get("type") or "")
        block.text = start.get("text") or start.get("thinking") or ""
        if not isinstance(block.text, str) or kind is Kind.HOSTED:
            block.text = ""
        self.inputs[index] = start.get("input")
        self.slots[index] = block
        self.meaning.blocks.append(block)

    def end(self, holder: dict[str, Any]) -> None:
        self.reason = holder.get("stop_reason") or self.reason
        self.meaning.stop_sequence = holder.get("stop_sequence") or self.meaning.stop_sequence
        self.meaning.explanation = (holder.get("stop_details") or {}).get("explanation") or ""

    def _usage(self, usage: Any) -> None:
        if isinstance(usage, dict):
            self.usage |= {name: value for name, value in usage.items() if value is not None}

    def close(self) -> Meaning:
        meaning = self.meaning
        for index, block in self.slots.items():
            # A call whose input came whole, or with no delta at all.
            if block.kind is Kind.CALL and not block.text and meaning.failure is None and self.reason:
                block.text = json.dumps(self.inputs[index] or {})
        meaning.choices[0] = [b for b in meaning.blocks if b.text or b.kind in (Kind.CALL, Kind.HOSTED)]
        if self.usage and self.reason:
            meaning.usages = usages_of(self.usage)
        if meaning.failure is not None:
            meaning.stop = Stop.ERROR
        elif self.reason is not None:
            meaning.stop = STOPS.get(self.reason, Stop.END)
        return meaning.settle()


def usages_of(usage: dict[str, Any]) -> list[Usage]:
    """The top-level figures and, where a turn took several iterations, their sum, which is the bill."""
    readings = [_usage_of(usage)]
    steps = [_usage_of(step) for step in usage.get("iterations") or []]
    if steps:
        names = ("input", "cached", "cache_write", "output")
        sums = {name: sum(getattr(step, name) or 0 for step in steps) for name in names}
        readings.append(Usage(**sums, reasoning=readings[0].reasoning))
    return readings


def _usage_of(usage: dict[str, Any]) -> Usage:
    fresh = whole_number(usage.get("input_tokens"))
    cached = whole_number(usage.get("cache_read_input_tokens"))
    written = whole_number(usage.get("cache_creation_input_tokens"))
    return Usage(
        input=None if fresh is None else fresh + (cached or 0) + (written or 0),
        cached=cached,
        cache_write=written,
        output=whole_number(usage.get("output_tokens")),
        reasoning=whole_number((usage.get("output_tokens_details") or {}).get("thinking_tokens")),
    )


def failure_of(body: dict[str, Any]) -> Failure:
    error = body.get("error")
    if not isinstance(error, dict):
        return Failure("", str(error or body.get("message") or ""))
    return Failure(str(error.get("type") or ""), str(error.get("message") or ""))


def read_stream(stream: bytes) -> Meaning:
    reader = MessagesReader()
    for frame in lenient_frames(stream):
        event = as_object(frame.data)
        if event is not None and reader.event(event):
            break
    return reader.close()


def read_whole(body: dict[str, Any]) -> Meaning:
    reader = MessagesReader()
    for index, block in enumerate(body.get("content") or []):
        reader.block(index, block)
    reader.usage = {name: value for name, value in (body.get("usage") or {}).items() if value is not None}
    reader.end(body)
    return reader.close()
