"""Meaning of Responses responses.

Items are built from their deltas; `done` events and the final response fill what had none. The terminal
event decides how the turn ended.
"""

from typing import Any

from oracle.frames import as_object, lenient_frames
from oracle.meaning import Block, Failure, Kind, Meaning, Stop, Usage, whole_number

INCOMPLETE = {
    "max_output_tokens": Stop.LENGTH,
    "max_messages": Stop.LENGTH,
    "content_filter": Stop.FILTER,
    "steered": Stop.PAUSE,
}
DELTAS = {
    "response.output_text.delta": Kind.TEXT,
    "response.refusal.delta": Kind.REFUSAL,
    "response.reasoning_summary_text.delta": Kind.REASONING,
    "response.reasoning_text.delta": Kind.REASONING,
    "response.function_call_arguments.delta": Kind.CALL,
    "response.custom_tool_call_input.delta": Kind.CALL,
}
TERMINAL = {"response.completed", "response.incomplete", "response.failed", "response.cancelled"}


class ResponsesReader:
    def __init__(self) -> None:
        self.meaning = Meaning()
        self.items: dict[int, list[Block]] = {}
        self.parts: dict[tuple[int, str, int], Block] = {}

    def event(self, event: dict[str, Any]) -> bool:
        """Take one event; True when nothing after it counts."""
        kind = event.get("type", "")
        index = event.get("output_index", len(self.items) - 1)
        if kind in ("response.output_item.added", "response.output_item.done"):
            self.items[index] = _blocks_of(event.get("item") or {})
        elif kind in DELTAS:
            self._delta(index, kind, event)
        elif kind == "error":
            self.meaning.failure = failure_of(event)
        elif kind in TERMINAL:
            self.end(event.get("response") or {}, kind.rpartition(".")[2])
        return kind in TERMINAL

    def _delta(self, index: int, kind: str, event: dict[str, Any]) -> None:
        blocks = self.items.setdefault(index, [])
        expected = DELTAS[kind]
        if expected is Kind.CALL:
            for call in blocks:
                call.text += event.get("delta") or ""
            return
        slot = "summary" if "summary" in kind else "content"
        key = (index, slot, event.get(f"{slot}_index", 0))
        if key not in self.parts or all(block is not self.parts[key] for block in blocks):
            self.parts[key] = Block(expected)
            blocks.append(self.parts[key])
        self.parts[key].text += event.get("delta") or ""

    def end(self, response: dict[str, Any], kind: str) -> None:
        meaning = self.meaning
        status = response.get("status") or kind
        output = response.get("output")
        for index, item in enumerate(output if isinstance(output, list) else []):
            if not self.items.get(index):
                self.items[index] = _blocks_of(item)
        if isinstance(response.get("usage"), dict):
            meaning.usages = [usage_of(response["usage"])]
        reason = (response.get("incomplete_details") or {}).get("reason", "")
        if status in ("failed", "cancelled"):
            meaning.failure = meaning.failure or failure_of(response)
        elif status == "incomplete":
            meaning.stop = INCOMPLETE.get(reason, Stop.LENGTH)
        else:
            meaning.stop = Stop.END

    def close(self) -> Meaning:
        meaning = self.meaning
        blocks = [block for index in sorted(self.items) for block in self.items[index]]
        meaning.choices[0] = [b for b in blocks if b.text or b.kind in (Kind.CALL, Kind.HOSTED)]
        if meaning.failure is not None:
            meaning.stop = Stop.ERROR
        return meaning.settle()


def _blocks_of(item: dict[str, Any]) -> list[Block]:
    kind = item.get("type")
    if kind == "message":
        return [
            Block(Kind.REFUSAL, part.get("refusal") or "")
            if part.get("type") == "refusal"
            else Block(Kind.TEXT, part.get("text") or "")
            for part in item.get("content") or []
        ]
    if kind == "reasoning":
        parts = [*(item.get("summary") or []), *(item.get("content") or [])]
        return [Block(Kind.REASONING, part.get("text") or "") for part in parts]
    if kind in ("function_call", "custom_tool_call"):
        custom = kind == "custom_tool_call"
        text = item.get("input" if custom else "arguments") or ""
        return [Block(Kind.CALL, text, item.get("name") or "", item.get("call_id") or "", custom)]
    return [Block(Kind.HOSTED, name=item.get("name") or str(kind), id=item.get("call_id") or "")]


def usage_of(usage: dict[str, Any]) -> Usage:
    before = usage.get("input_tokens_details") or {}
    after = usage.get("output_tokens_details") or {}
    return Usage(
        input=whole_number(usage.get("input_tokens")),
        cached=whole_number(before.get("cached_tokens")),
        cache_write=whole_number(before.get("cache_write_tokens")),
        output=whole_number(usage.get("output_tokens")),
        reasoning=whole_number(after.get("reasoning_tokens")),
    )


def failure_of(body: dict[str, Any]) -> Failure:
    """From an error event (flat or nested), a failed response, or an HTTP body."""
    error = body.get("error")
    holder = error if isinstance(error, dict) else body
    message = holder.get("message") or (error if isinstance(error, str) else "")
    return Failure(str(holder.get("code") or holder.get("type") or ""), str(message or ""))


def read_stream(stream: bytes) -> Meaning:
    reader = ResponsesReader()
    for frame in lenient_frames(stream):
        event = as_object(frame.data)
        if event is not None and reader.event(event):
            break
    return reader.close()


def read_whole(body: dict[str, Any]) -> Meaning:
    reader = ResponsesReader()
    reader.end(body, body.get("status") or "completed")
    return reader.close()
