"""Responses: the order of a stream, and what holds for each response.

created and in_progress; then the items, one after the other, each added, filled by deltas, and done; last one of
completed, incomplete and failed, whose output repeats the items. A done event repeats the sum of its deltas.
"""

from __future__ import annotations

import msgspec

from dragoman._wire.json import JSON, JSONObject
from dragoman.lint.framing import PlacedFrame
from dragoman.lint.report import Report, add_mismatches, arguments_problem, count, members, objects, string
from dragoman.lint.responses_shapes import SHAPES

_ENDS = {
    "response.completed": "completed",
    "response.incomplete": "incomplete",
    "response.failed": "failed",
}
_OPENING = ("response.created", "response.in_progress")
# The member with the text of a call.
_CALLS = {"function_call": "arguments", "custom_tool_call": "input"}
# Family of events -> where the part is, the member with the text in the done event, the type of the part.
_TEXTS = {
    "response.output_text": ("content", "text", "output_text"),
    "response.refusal": ("content", "refusal", "refusal"),
    "response.reasoning_text": ("content", "text", "reasoning_text"),
    "response.reasoning_summary_text": ("summary", "text", "summary_text"),
    "response.function_call_arguments": ("call", "arguments", "function_call"),
    "response.custom_tool_call_input": ("call", "input", "custom_tool_call"),
}
_PARTS = {"response.content_part": "content", "response.reasoning_summary_part": "summary"}
_INDEXES = {"content": "content_index", "summary": "summary_index", "call": ""}


class _StreamPart(msgspec.Struct):
    kind: str
    text: str = ""
    annotations: list[JSON] = []
    text_done: bool = False
    closed: JSONObject | None = None


class _Item(msgspec.Struct):
    added: JSONObject
    parts: dict[tuple[str, int], _StreamPart] = {}
    counts: dict[str, int] = {}  # of the parts in each place
    open_parts: set[tuple[str, int]] = set()
    call: _StreamPart | None = None


class ResponsesStream:
    """Checks a stream: call read() with each event, and close() at the end."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._count = 0
        self._opening: list[str] = []  # created and in_progress, in the order in which they came
        self._errored = self._ended = False
        self._response_id: JSON = None
        self._item: _Item | None = None  # the open one
        self._done: list[JSONObject] = []
        self._added = 0
        self._ids: set[str] = set()

    def read(self, frame: PlacedFrame) -> None:
        """Check one event."""
        report = self._report
        if frame.data == "[DONE]":
            report.add("responses-done", "[DONE] does not belong here")
            return
        event = report.read_object()
        if event is None:
            return
        kind = string(event.get("type"))
        if frame.event != kind:
            detail = "no `event:` line" if frame.event is None else "`event:` is not the data's type"
            report.add("responses-event-line", detail, "/type")
        add_mismatches(report, "responses", SHAPES.check("Event", event))
        if event.get("sequence_number", self._count) != self._count:
            detail = f"sequence_number is not {self._count}"
            report.add("responses-sequence", detail, "/sequence_number")
        self._count += 1
        if self._ended:  # whatever else is wrong with it
            report.add("responses-after-end", "something follows the end of the stream")
            return
        self._check_place(kind)
        if "response" in event:
            self._snapshot(kind, members(event["response"]))
        elif kind == "response.output_item.added":
            self._item_added(event)
        elif kind == "response.output_item.done":
            self._item_done(event)
        elif kind == "error":
            _check_nested_error(event, report)
        elif kind in SHAPES.tags_of("Event"):
            self._inside(kind, event)

    def close(self) -> None:
        """Check the end of the stream."""
        if self._errored and not self._ended:  # clients fail at the error, as they have to
            self._report.add("responses-after-error", "no response.failed follows the error event")
        elif not self._ended:
            self._report.add("responses-end", "the stream ends without completed, incomplete or failed")

    def _check_place(self, kind: str) -> None:
        report = self._report
        if self._errored and kind != "response.failed":
            report.add("responses-after-error", "only response.failed may follow an error event")
        expected = _OPENING[len(self._opening)] if len(self._opening) < len(_OPENING) else None
        # A failure may come before in_progress, never before created.
        failing = kind in ("error", "response.failed") and self._opening
        if kind in self._opening:
            report.add("responses-in-progress", f"{kind} has already come")
        elif expected and kind not in (expected, "response.queued") and not failing:
            rule = "responses-in-progress" if self._opening else "responses-start"
            report.add(rule, f"expected {expected}")
            self._opening.append(expected)
        if kind in _OPENING and kind not in self._opening:
            self._opening.append(kind)
        self._errored = self._errored or kind == "error"
        self._ended = self._ended or kind in _ENDS

    def _snapshot(self, kind: str, response: JSONObject) -> None:
        report, response_id = self._report, response.get("id")
        if self._response_id is None:
            self._response_id = response_id
        if not response_id or response_id != self._response_id:
            report.add("responses-id", "the response's id is empty or changed", "/response/id")
        status = _ENDS.get(kind)
        if status is None:
            expected = ("queued",) if kind == "response.queued" else ("in_progress", "queued")
            if response.get("status") not in expected or response.get("usage"):
                detail = "a response in progress has no usage, and status in_progress"
                report.add("responses-snapshot", detail, "/response")
            if response.get("output"):
                report.add("responses-output", "output before the end of the response", "/response/output")
            return
        if response.get("status") != status:
            report.add("responses-status", f"the status is not {status}", "/response/status")
        output = response.get("output")
        self._final_output(kind, output if type(output) is list else [])
        check_response(response, report, "/response")

    def _final_output(self, kind: str, output: list[JSON]) -> None:
        report = self._report
        if kind == "response.failed" and not output:
            return  # a failed response may leave out what it had
        if [_without_ciphertext(item) for item in output[: len(self._done)]] != self._done:
            report.add(
                "responses-output", "the final output is not the done items in order", "/response/output"
            )
        open_item = {} if self._item is None else self._item.added
        # An item that was cut may stay open: after a call's `done` the client would run half of it.
        cut_call = kind == "response.incomplete" and string(open_item.get("type")) in _CALLS
        if self._item is not None and kind != "response.failed" and not cut_call:
            report.add("responses-item", "an item is still open")
        for number in range(len(self._done), len(output)):
            item, place = members(output[number]), f"/response/output/{number}"
            if self._item is None or item.get("id") != open_item.get("id"):
                report.add("responses-output", "the final output has an item that was never done", place)
            elif item.get("status") != "incomplete":
                report.add("responses-output", "an item that was never done has status incomplete", place)

    def _item_added(self, event: JSONObject) -> None:
        report, item = self._report, members(event.get("item"))
        if self._item is not None:
            report.add("responses-item", "the item before is still open")
        if event.get("output_index") != self._added:
            report.add("responses-output-index", "output indexes are not contiguous from 0", "/output_index")
        item_id, call_id, kind = string(item.get("id")), string(item.get("call_id")), string(item.get("type"))
        if not item_id or item_id in self._ids:
            report.add("responses-item-id", "the item's id is empty or used twice", "/item/id")
        if kind in _CALLS and (not call_id or call_id in self._ids):
            report.add("responses-item-id", "the call_id is empty or used twice", "/item/call_id")
        self._ids |= {item_id, call_id}
        if item.get("status") not in (None, "in_progress"):
            report.add("responses-item-added", "added with another status than in_progress", "/item/status")
        for name in ("content", "summary", "arguments", "input"):
            if kind in (*_CALLS, "message", "reasoning") and item.get(name):
                report.add("responses-item-empty", f"added with {name} already there", f"/item/{name}")
        self._added += 1
        self._item = _Item(item, call=_StreamPart(kind) if kind in _CALLS else None)

    def _inside(self, kind: str, event: JSONObject) -> None:
        report, item = self._report, self._item
        if item is None:
            report.add("responses-item", "no item is open")
            return
        if event.get("output_index") != self._added - 1:
            detail = "output_index is not that of the open item"
            report.add("responses-output-index", detail, "/output_index")
        if "item_id" in event and event["item_id"] != item.added.get("id"):
            report.add("responses-item", "item_id is not that of the open item", "/item_id")
        family, _, action = kind.rpartition(".")
        if family in _PARTS:
            self._part(item, _PARTS[family], action, event)
        elif family in _TEXTS:
            self._text(item, family, action, event)
        elif kind == "response.output_text.annotation.added":
            part = item.parts.get(("content", _index(event, "content_index")))
            if part is None:
                report.add("responses-part", "an annotation of no open part", "/content_index")
                return
            if event.get("annotation_index") != len(part.annotations):
                report.add("responses-annotation", "annotations are not numbered from 0", "/annotation_index")
            part.annotations.append(event.get("annotation"))

    def _part(self, item: _Item, slot: str, action: str, event: JSONObject) -> None:
        report, index = self._report, _index(event, _INDEXES[slot])
        reported = members(event.get("part"))
        kind = string(reported.get("type"))
        text = reported.get("refusal" if kind == "refusal" else "text")
        part = item.parts.get((slot, index))
        if action == "added":
            if index != item.counts.get(slot, 0):
                report.add(
                    "responses-part-index", "part indexes are not contiguous from 0", f"/{_INDEXES[slot]}"
                )
            if item.open_parts:
                report.add("responses-part", "the part before is still open")
            if text != "" or reported.get("annotations"):
                report.add("responses-part-empty", "the part is not added empty", "/part")
            item.counts[slot] = item.counts.get(slot, 0) + ((slot, index) not in item.parts)
            item.open_parts.add((slot, index))
            item.parts[slot, index] = _StreamPart(kind)
        elif part is None or part.closed is not None:
            report.add("responses-part", "no such part is open")
        else:
            part.closed = reported
            item.open_parts.discard((slot, index))
            if not part.text_done:
                report.add("responses-text-done", "the part is done before its text is")
            if (kind, text) != (part.kind, part.text):
                report.add("responses-sum", "the part is not the sum of its deltas", "/part")
            if kind == "output_text" and reported.get("annotations") != part.annotations:
                detail = "the part's annotations are not those that were added"
                report.add("responses-annotation", detail, "/part/annotations")

    def _text(self, item: _Item, family: str, action: str, event: JSONObject) -> None:
        report = self._report
        slot, name, expected = _TEXTS[family]
        part = item.call if slot == "call" else item.parts.get((slot, _index(event, _INDEXES[slot])))
        if part is None or part.kind != expected:
            report.add("responses-part", f"no {expected} is open there")
        elif part.text_done:
            report.add("responses-text-done", "the text is already done")
        elif action == "delta":
            part.text += string(event.get("delta"))
        else:
            part.text_done = True
            if event.get(name) != part.text:
                report.add("responses-sum", f"{name} is not the sum of the deltas", f"/{name}")

    def _item_done(self, event: JSONObject) -> None:
        report, item, reported = self._report, self._item, members(event.get("item"))
        if item is None or event.get("output_index") != self._added - 1:
            report.add("responses-item", "no such item is open", "/output_index")
            return
        self._item = None
        self._done.append(_without_ciphertext(reported))
        for name in ("id", "type", "call_id", "name"):
            if reported.get(name) != item.added.get(name):
                report.add("responses-item-changed", f"the item's {name} changed", f"/item/{name}")
        if reported.get("status") not in (None, "completed", "incomplete", "failed"):
            report.add("responses-item-status", "done with a status that is not final", "/item/status")
        for slot in ("content", "summary"):
            built = [part.closed for (kind, _), part in item.parts.items() if kind == slot]
            if (reported.get(slot) or []) != built and reported.get("type") in ("message", "reasoning"):
                report.add("responses-sum", f"the item's {slot} is not its done parts", f"/item/{slot}")
        if item.call is not None:
            member = _CALLS[item.call.kind]
            if not item.call.text_done:
                report.add("responses-text-done", "the call is done before its text is")
            if reported.get(member) != item.call.text:
                report.add("responses-sum", "the call's text is not the sum of its deltas", f"/item/{member}")


def check_whole(body: JSONObject, report: Report) -> None:
    """Check a whole response."""
    add_mismatches(report, "responses", SHAPES.check("Response", body))
    check_response(body, report, "")


def check_response(response: JSONObject, report: Report, place: str) -> None:
    """Check what holds for each response that has ended. place: of the object."""
    status = response.get("status")
    if status not in ("completed", "incomplete", "failed"):
        report.add("responses-status", "the status is not a final one", f"{place}/status")
    if (status == "failed") != (response.get("error") is not None):
        report.add("responses-error", "error is set if and only if the status is failed", f"{place}/error")
    if (status == "incomplete") != (response.get("incomplete_details") is not None):
        detail = "incomplete_details is set if and only if the status is incomplete"
        report.add("responses-incomplete", detail, f"{place}/incomplete_details")
    if status != "failed" and response.get("usage") is None:
        report.add("responses-usage", "no usage", f"{place}/usage")
    items = objects(response.get("output"))
    ids = [string(item.get("id")) for _, item in items]
    calls = [string(item.get("call_id")) for _, item in items if string(item.get("type")) in _CALLS]
    if not all(ids) or len(set(ids)) != len(ids) or not all(calls) or len(set(calls)) != len(calls):
        report.add("responses-item-id", "item ids or call_ids are empty or used twice", f"{place}/output")
    for number, item in items:
        _check_item(item, status == "completed", report, f"{place}/output/{number}")
    if response.get("usage") is not None:
        _check_sums(members(response["usage"]), report, f"{place}/usage")


def _check_item(item: JSONObject, completed: bool, report: Report, place: str) -> None:
    if completed and item.get("status") in ("in_progress", "incomplete"):
        detail = f"an item with status {item['status']} in a completed response"
        report.add("responses-item-status", detail, f"{place}/status")
    if item.get("type") == "message":
        if not item.get("content") and completed:
            report.add("responses-content", "a message without content", place)
        for number, part in objects(item.get("content")):
            if part.get("refusal") == "" or (part.get("text") == "" and not part.get("annotations")):
                report.add("responses-content", "an empty part", f"{place}/content/{number}")
    arguments = item.get("arguments")
    is_call = item.get("type") == "function_call" and type(arguments) is str and completed
    if is_call and (problem := arguments_problem(string(arguments))):
        report.add("responses-arguments", f"a call's arguments are {problem}", f"{place}/arguments")


def _check_sums(usage: JSONObject, report: Report, place: str) -> None:
    received, written = count(usage.get("input_tokens")), count(usage.get("output_tokens"))
    if count(usage.get("total_tokens")) != received + written:
        detail = "total_tokens is not the sum of input and output tokens"
        report.add("responses-usage-sum", detail, f"{place}/total_tokens")
    cached = count(members(usage.get("input_tokens_details")).get("cached_tokens"))
    reasoning = count(members(usage.get("output_tokens_details")).get("reasoning_tokens"))
    if cached > received or reasoning > written:
        report.add("responses-usage-sum", "a part is more than its whole", place)


def _check_nested_error(event: JSONObject, report: Report) -> None:
    """Check that a nested error, which the server sends, repeats the flat one, which the documents have."""
    nested = members(event.get("error"))
    if nested and any(nested.get(name) != event.get(name) for name in ("code", "message", "param")):
        detail = "the nested error does not repeat code, message and param"
        report.add("responses-nested-error", detail, "/error")


def _without_ciphertext(item: JSON) -> JSON:
    """Return an item without its encrypted reasoning: the server encrypts that again for the final output."""
    return {name: value for name, value in members(item).items() if name != "encrypted_content"}


def _index(event: JSONObject, name: str) -> int:
    value = event.get(name)
    return value if type(value) is int else -1
