"""The order a Responses stream must keep.

created, in_progress, then items one after the other, each added, filled by deltas, closed by its `done`
events and by `output_item.done`; last exactly one of completed, incomplete and failed, whose output repeats
the done items. What a `done` event says must be the sum of the deltas before it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from oracle.frames import Frame, as_object

TERMINAL = {
    "response.completed": "completed",
    "response.incomplete": "incomplete",
    "response.failed": "failed",
}
OPENING = ("response.created", "response.in_progress")
CALLS = {"function_call": "arguments", "custom_tool_call": "input"}
# Delta event -> (slot of the sum, name of the text in the done event, event that must have opened the part).
STREAMS = {
    "response.output_text": ("content", "text", "output_text"),
    "response.refusal": ("content", "refusal", "refusal"),
    "response.reasoning_text": ("content", "text", "reasoning_text"),
    "response.reasoning_summary_text": ("summary", "text", "summary_text"),
    "response.function_call_arguments": ("call", "arguments", "function_call"),
    "response.custom_tool_call_input": ("call", "input", "custom_tool_call"),
}
PARTS = {"response.content_part": "content", "response.reasoning_summary_part": "summary"}


@dataclass(slots=True)
class Part:
    kind: str
    text: str = ""
    annotations: list[Any] = field(default_factory=list)
    text_done: bool = False
    closed: dict[str, Any] | None = None


@dataclass(slots=True)
class Item:
    added: dict[str, Any]
    parts: dict[tuple[str, int], Part] = field(default_factory=dict)
    call: Part | None = None


class ResponsesOrder:
    """Feed frames in order, then ask `close()` for all problems."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.count = 0
        self.opening: list[str] = []  # created and in_progress, in the order they came
        self.errored = self.ended = False
        self.response_id: str | None = None
        self.current: Item | None = None
        self.done: list[dict[str, Any]] = []
        self.added = 0
        self.ids: set[str] = set()
        self.where = ""

    def feed(self, number: int, frame: Frame) -> None:
        event = as_object(frame.data)
        kind = event.get("type") if event else frame.data
        self.where = f"frame {number} ({kind})"
        if frame.data == "[DONE]":
            self._report("[DONE] does not belong here")
            return
        if event is None or not isinstance(kind, str):
            return
        if frame.event != kind:
            self._report(f"`event: {frame.event}` is not the data's type")
        if event.get("sequence_number") != self.count:
            self._report(f"sequence_number {event.get('sequence_number')}, expected {self.count}")
        self.count += 1
        self._place(kind)
        if "response" in event:
            self._snapshot(kind, event["response"])
        elif kind == "response.output_item.added":
            self._added(event)
        elif kind == "response.output_item.done":
            self._item_done(event)
        elif kind != "error":
            self._inside(kind, event)

    def _report(self, what: str) -> None:
        self.problems.append(f"{self.where}: order: {what}")

    def _place(self, kind: str) -> None:
        if self.ended:
            self._report("something follows the end of the stream")
        elif self.errored and kind != "response.failed":
            self._report("only response.failed may follow an error event")
        expected = OPENING[len(self.opening)] if len(self.opening) < len(OPENING) else None
        # A failure may come before in_progress, never before created.
        failing = kind in ("error", "response.failed") and self.opening
        if expected and kind not in (expected, "response.queued") and not failing:
            self._report(f"expected {expected}")
        if kind in OPENING:
            if kind in self.opening:
                self._report("it came already")
            self.opening.append(kind)
        self.errored |= kind == "error"
        self.ended |= kind in TERMINAL

    def _snapshot(self, kind: str, response: Any) -> None:
        if not isinstance(response, dict):
            return
        if self.response_id is None:
            self.response_id = response.get("id")
        if not response.get("id") or response.get("id") != self.response_id:
            self._report("the response's id is empty or changed")
        status = TERMINAL.get(kind)
        if status is None:
            expected = {"queued"} if kind == "response.queued" else {"in_progress", "queued"}
            if response.get("status") not in expected or response.get("output") or response.get("usage"):
                self._report("a response in progress has no output, no usage and status in_progress")
            return
        if response.get("status") != status:
            self._report(f"status {response.get('status')!r}")
        output = response.get("output")
        self._final_output(kind, output if isinstance(output, list) else [])
        self.problems += [f"{self.where}: {problem}" for problem in whole_problems(response)]

    def _final_output(self, kind: str, output: list[Any]) -> None:
        if kind == "response.failed" and not output:
            return  # a failed response may leave out what it had
        if output[: len(self.done)] != self.done:
            self._report("the final output is not the done items in order")
        remaining = output[len(self.done) :]
        current = self.current.added if self.current else {}
        # An item that was cut may stay open: after a call's `done` the client would run half of it.
        cut_call = kind == "response.incomplete" and current.get("type") in CALLS
        if self.current is not None and kind != "response.failed" and not cut_call:
            self._report("an item is still open")
        for item in remaining:
            if not (
                isinstance(item, dict) and item.get("id") == current.get("id") and self.current is not None
            ):
                self._report("the final output has an item that was never done")
            elif item.get("status") != "incomplete":
                self._report("an item that was never done must have status incomplete")

    def _added(self, event: dict[str, Any]) -> None:
        item = event.get("item") or {}
        if self.current is not None:
            self._report("the item before is still open")
        if event.get("output_index") != self.added:
            self._report("output indexes are not contiguous from 0")
        if not item.get("id") or str(item["id"]) in self.ids:
            self._report("the item's id is empty or used twice")
        call_id = item.get("call_id")
        kind = str(item.get("type"))
        if kind in CALLS and (not call_id or str(call_id) in self.ids):
            self._report("the call_id is empty or used twice")
        self.ids |= {str(item.get("id")), str(call_id)} - {"None"}
        if item.get("status") not in (None, "in_progress"):
            self._report(f"added with status {item.get('status')!r}")
        for name in ("content", "summary", "arguments", "input"):
            if kind in (*CALLS, "message", "reasoning") and item.get(name):
                self._report(f"added with {name} already there")
        self.added += 1
        self.current = Item(item)
        if kind in CALLS:
            self.current.call = Part(kind)

    def _inside(self, kind: str, event: dict[str, Any]) -> None:
        item = self.current
        if item is None:
            self._report("no item is open")
            return
        if event.get("output_index") != self.added - 1:
            self._report("output_index is not that of the open item")
        if "item_id" in event and event["item_id"] != item.added.get("id"):
            self._report("item_id is not that of the open item")
        family, _, action = kind.rpartition(".")
        if family in PARTS:
            self._part(PARTS[family], action, event)
        elif family in STREAMS:
            self._text(family, action, event)
        elif kind == "response.output_text.annotation.added":
            part = item.parts.get(("content", event.get("content_index", -1)))
            if part is None or event.get("annotation_index") != len(part.annotations):
                self._report("annotation of no open part, or with a wrong annotation_index")
            else:
                part.annotations.append(event.get("annotation"))

    def _part(self, slot: str, action: str, event: dict[str, Any]) -> None:
        assert self.current is not None
        index = event.get("content_index" if slot == "content" else "summary_index", -1)
        parts = self.current.parts
        reported = event.get("part") or {}
        text = reported.get("refusal" if reported.get("type") == "refusal" else "text")
        part = parts.get((slot, index))
        if action == "added":
            if index != sum(1 for kind, _ in parts if kind == slot):
                self._report("part indexes are not contiguous from 0")
            if any(open_part.closed is None for open_part in parts.values()):
                self._report("the part before is still open")
            if text != "" or reported.get("annotations"):
                self._report("the part is not added empty")
            parts[slot, index] = Part(reported.get("type", ""))
        elif part is None or part.closed is not None:
            self._report("no such part is open")
        else:
            part.closed = reported
            if not part.text_done:
                self._report("the part is done before its text is")
            if (reported.get("type"), text) != (part.kind, part.text):
                self._report("the part is not the sum of its deltas")
            if part.kind == "output_text" and reported.get("annotations") != part.annotations:
                self._report("the part's annotations are not those that were added")

    def _text(self, family: str, action: str, event: dict[str, Any]) -> None:
        assert self.current is not None
        slot, name, expected = STREAMS[family]
        index = event.get("summary_index" if slot == "summary" else "content_index", -1)
        part = self.current.call if slot == "call" else self.current.parts.get((slot, index))
        if part is None or part.kind != expected:
            self._report(f"no {expected} is open there")
        elif part.text_done:
            self._report("the text is already done")
        elif action == "delta":
            part.text += event.get("delta") or ""
        else:
            part.text_done = True
            if event.get(name) != part.text:
                self._report(f"{name} is not the sum of the deltas")

    def _item_done(self, event: dict[str, Any]) -> None:
        item, reported = self.current, event.get("item") or {}
        if item is None or event.get("output_index") != self.added - 1:
            self._report("no such item is open")
            return
        self.current = None
        self.done.append(reported)
        for name in ("id", "type", "call_id", "name"):
            if reported.get(name) != item.added.get(name):
                self._report(f"the item's {name} changed")
        if reported.get("status") not in (None, "completed", "incomplete", "failed"):
            self._report(f"done with status {reported.get('status')!r}")
        for slot in ("content", "summary"):
            built = [part.closed for (kind, _), part in item.parts.items() if kind == slot]
            if (reported.get(slot) or []) != built and reported.get("type") in ("message", "reasoning"):
                self._report(f"the item's {slot} is not its done parts")
        if item.call is not None:
            if not item.call.text_done:
                self._report("the call is done before its text is")
            if reported.get(CALLS[item.call.kind]) != item.call.text:
                self._report("the call's text is not the sum of its deltas")

    def close(self) -> list[str]:
        if not self.ended:
            self.problems.append("order: the stream ends without completed, incomplete or failed")
        return self.problems


def whole_problems(response: dict[str, Any]) -> list[str]:
    """The rules for a final Response, streamed or not."""
    problems: list[str] = []
    status = response.get("status")
    if status not in ("completed", "incomplete", "failed"):
        problems.append(f"status {status!r} is no end")
    if (status == "failed") != (response.get("error") is not None):
        problems.append("error is set if and only if the status is failed")
    if (status == "incomplete") != (response.get("incomplete_details") is not None):
        problems.append("incomplete_details is set if and only if the status is incomplete")
    if status != "failed" and response.get("usage") is None:
        problems.append("no usage")
    items = [item for item in response.get("output") or [] if isinstance(item, dict)]
    ids = [item.get("id") for item in items]
    calls = [item.get("call_id") for item in items if str(item.get("type")) in CALLS]
    if not all(ids) or len(set(ids)) != len(ids) or not all(calls) or len(set(calls)) != len(calls):
        problems.append("item ids or call_ids are empty or used twice")
    for number, item in enumerate(items):
        problems += [f"output.{number}: {problem}" for problem in _item_problems(item, status)]
    usage = response.get("usage")
    if isinstance(usage, dict):
        if usage.get("total_tokens") != usage.get("input_tokens", 0) + usage.get("output_tokens", 0):
            problems.append("usage.total_tokens: not the sum of input and output tokens")
        cached = (usage.get("input_tokens_details") or {}).get("cached_tokens") or 0
        reasoning = (usage.get("output_tokens_details") or {}).get("reasoning_tokens") or 0
        if cached > usage.get("input_tokens", 0) or reasoning > usage.get("output_tokens", 0):
            problems.append("usage: a part is more than its whole")
    return [f"order: {problem}" for problem in problems]


def _item_problems(item: dict[str, Any], status: str | None) -> list[str]:
    problems = []
    if status == "completed" and item.get("status") in ("in_progress", "incomplete"):
        problems.append(f"an item with status {item['status']} in a completed response")
    if item.get("type") == "message":
        if not item.get("content") and status == "completed":
            problems.append("a message without content")
        for part in item.get("content") or []:
            if part.get("text") == "" or part.get("refusal") == "":
                problems.append("an empty part")
    if item.get("type") == "function_call" and item.get("arguments") == "" and status == "completed":
        problems.append("a call's arguments are empty text, not even {}")
    return problems
