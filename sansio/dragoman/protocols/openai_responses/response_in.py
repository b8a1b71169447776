"""Read Responses responses as events, streamed and whole.

Each output item takes its text from deltas, from its `done` events, from `output_item.done` and from the final
response, in any selection that the server sends; each source adds only what the earlier ones lacked. A whole response
is a final response without earlier events.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Sequence

import msgspec

from dragoman._ir import events
from dragoman._ir.events import Event, StopReason, Usage
from dragoman._ir.fast_path import Delta, DeltaTemplate
from dragoman._ir.losses import Ledger
from dragoman._ir.shape import note_unread, response_shape
from dragoman._wire.errors import ErrorKind, WireError
from dragoman._wire.exceptions import RemoteProtocolError, unreadable_response
from dragoman._wire.json import JSON, JSONObject, decode_object, object_or_empty, text_or_none
from dragoman._wire.sse import Frame
from dragoman.codec import ResponseContext
from dragoman.protocols._openai.errors import parse_error
from dragoman.protocols.openai_responses.errors import has_error
from dragoman.protocols.openai_responses.response_content_in import (
    CallItem,
    MessageItem,
    OutputItem,
    ReasoningItem,
    new_item,
)
from dragoman.protocols.openai_responses.shapes import EVENT_SHAPE, ITEM_SHAPE, RESPONSE_SHAPE
from dragoman.protocols.openai_responses.tables import AUTO_TIER, LOST_EVENTS, PROGRESS_EVENTS, STOP_REASONS
from dragoman.protocols.openai_responses.usage import read_usage

_EVENT, _ITEM, _RESPONSE = map(response_shape, (EVENT_SHAPE, ITEM_SHAPE, RESPONSE_SHAPE))

_DONE = b"[DONE]"
# So many items, the newest, are looked through for the block of a delta. Later ones are hardly ever filled in turns.
_RECENT = 8
_EVENT_MEMBERS = EVENT_SHAPE.keys()


class ResponsesReader:
    """Reads one stream. See StreamReader."""

    def __init__(self, context: ResponseContext, ledger: Ledger) -> None:
        self._ledger = ledger
        self._limit = context.request.params.get("max_output_tokens")
        self._items: dict[int, OutputItem] = {}  # by output index
        self._all: list[OutputItem] = []  # in the order of arrival
        # The first item with an id, by the id's name, its value, and the item's type or None for any.
        self._by_id: dict[tuple[str, str, str | None], OutputItem] = {}
        # By type: the last one of which only deltas have come, without an index and an id.
        self._unplaced: dict[str, OutputItem] = {}
        self._number = itertools.count().__next__  # of the next block
        self._id = self._model = ""
        self._start_tier: str | None = None  # service tier of the first event
        self._started = False
        self._ended = False
        self._unexplained: JSONObject | None = None  # the response that failed without an error
        self._has_calls = False  # True once the model has called a function or custom tool

    def read(self, frame: Frame) -> Sequence[Event]:
        """Return the events of one frame. Raises RemoteProtocolError (502) for a frame that is no JSON object."""
        if self._ended or frame.data.strip() == _DONE:
            return ()
        try:
            value = decode_object(frame.data, "an event of the stream")
        except RemoteProtocolError as error:
            raise RemoteProtocolError(error.message, status=502, code=error.code) from None
        kind = value.get("type")
        if type(kind) is not str:
            kind = value["type"] = frame.event.decode("utf-8", "replace")
        out: list[Event] = []
        if kind == "error" or frame.event == b"error" or (not kind and value.get("error") is not None):
            self._ended = True
            return (events.Failed(parse_error(value)),)
        handle = _HANDLERS.get(kind)
        if handle is not None:
            if not value.keys() <= _EVENT_MEMBERS:
                note_unread(value, _EVENT, _item_path(value), self._ledger)
            handle(self, value, out)
        elif kind in LOST_EVENTS:
            name, detail = LOST_EVENTS[kind]
            self._ledger.dropped(f"{_item_path(value)}/{name}", detail)
        elif kind and kind not in PROGRESS_EVENTS:
            self._ledger.unknown_kind(_item_path(value), "an event of an unknown type")
        return out

    def eof(self) -> Sequence[Event]:
        """Raises RemoteProtocolError (502) unless the terminal event has come."""
        out: list[Event] = []
        if self._unexplained is not None and not self._ended:
            self._finish(self._unexplained, "failed", out)
        if not self._ended:
            raise RemoteProtocolError(
                "the upstream's stream ended without response.completed, response.incomplete or response.failed",
                status=502,
            )
        return out

    def template_for(self, delta: Delta) -> DeltaTemplate | None:
        """Return how later deltas of the open part differ: in text, sequence number and padding."""
        for item in itertools.islice(reversed(self._items.values()), _RECENT):
            pieces = item.open_pieces(delta.block)
            if pieces is not None:
                return DeltaTemplate(b"delta", pieces.extend, b"sequence_number", b"obfuscation")
        return None

    def whole(self, response: JSONObject) -> list[Event]:
        """Return all events of a finished response. One without a status is complete: if it was cut it is no JSON."""
        out: list[Event] = []
        status = ""
        if response.get("status") is None and type(response.get("output")) is list:
            status = "incomplete" if response.get("incomplete_details") else "completed"
            status = "failed" if has_error(response) else status
            self._ledger.altered("/status", f"the upstream did not report one: read as {status}")
        self._finish(response, status, out)
        return out

    # Events that carry the response.

    def _start(self, response: JSONObject, out: list[Event]) -> None:
        if self._started:
            return
        self._started = True
        self._model = text_or_none(response.get("model")) or ""
        self._id = text_or_none(response.get("id")) or ""
        tier = text_or_none(response.get("service_tier"))
        self._start_tier = None if tier == AUTO_TIER else tier
        created = response.get("created_at")
        out.append(
            events.Started(
                self._id,
                self._model,
                int(created) if isinstance(created, (int, float)) else None,
                self._start_tier,
            )
        )

    def on_opening(self, event: JSONObject, out: list[Event]) -> None:
        response = _required_object(event, "response")
        is_new = event["type"] == "response.created" and text_or_none(response.get("id")) not in (
            None,
            self._id,
        )
        if is_new and self._id and self._all:
            # A proxy whose upstream has broken off begins anew: what has been sent cannot be taken back.
            raise unreadable_response("another response begins before it has ended")
        self._start(response, out)

    def on_terminal(self, event: JSONObject, out: list[Event]) -> None:
        response, status = _required_object(event, "response"), event["type"].removeprefix("response.")
        if status == "failed" and not has_error(response):
            # Azure sends the error behind it (maximhq/bifrost#6419, read 2026-12-01).
            self._unexplained = response
        else:
            self._finish(response, status, out)

    def _finish(self, response: JSONObject, event_status: str, out: list[Event]) -> None:
        status = text_or_none(response.get("status")) or ""
        if status not in _END_STATUSES and event_status:
            status = event_status
        if status not in _END_STATUSES:
            raise unreadable_response(f"the response has status {status!r}, which is not a final status")
        if status == "completed" and has_error(response):
            # "An error object returned when the model fails to generate a Response." (openai-python, response.py)
            status = "failed"
        self._start(response, out)
        note_unread(response, _RESPONSE, "", self._ledger)
        self._ended = True
        if status == "failed" or status == "cancelled":
            cancelled = WireError(ErrorKind.CANCELLED, "the response was cancelled at the upstream")
            out.append(
                events.Failed(cancelled if status == "cancelled" else parse_error(response.get("error")))
            )
            return
        usage, tier = read_usage(response), text_or_none(response.get("service_tier"))
        complete = status == "completed" and _cut_reason(response) is None
        if (
            complete
            and "incomplete_details" not in response
            and usage
            and usage.output
            and usage.output == self._limit
        ):
            # llama-server (b11434, measured) says "completed" of everything, and has no such member.
            complete = False
            self._ledger.altered("/status", "it ended at the output limit, which the upstream never reports")
        output = response.get("output")
        self._finish_items(output if type(output) is list else [], out)
        for item in self._all:
            item.close(out, complete)
        if tier not in (None, AUTO_TIER, self._start_tier):
            usage = msgspec.structs.replace(usage or Usage(), service_tier=tier)
        if usage is not None:
            out.append(usage)
        out.append(self._stop_of(response, complete))
        out.append(events.ENDED)

    def _finish_items(self, output: list[JSON], out: list[Event]) -> None:
        """Emit what the items of the final response have beyond earlier events. An item of unknown ids and index is the
        next of its type, because some servers change ids and indexes here.
        """
        items = [(item, index) for index, item in enumerate(output) if type(item) is dict]
        found = [self._find_item(item, index) for item, index in items]
        taken = set(map(id, found))
        left: dict[str, deque[OutputItem]] = {}
        for each in self._all:
            if id(each) not in taken:
                left.setdefault(each.kind, deque()).append(each)
        for (item, index), known in zip(items, found, strict=True):
            if known is None and (others := left.get(text_or_none(item.get("type")) or "")):
                known = others.popleft()
            self._finish_item(item, index, known, out)

    def _stop_of(self, response: JSONObject, complete: bool) -> events.Stopped:
        if complete:
            return events.Stopped(events.TOOL_USE if self._has_calls else events.END, "completed")
        reason = _cut_reason(response)
        if reason is not None and reason not in STOP_REASONS:
            self._ledger.altered(
                "/incomplete_details/reason", "an unknown reason was read as the output limit"
            )
        return events.Stopped(STOP_REASONS.get(reason or "", StopReason.MAX_TOKENS), reason)

    # Events that carry an item.

    def on_item(self, event: JSONObject, out: list[Event]) -> None:
        self._start({}, out)
        item, index = event.get("item"), event.get("output_index")
        if type(item) is not dict:
            return
        if type(index) is not int:
            index = len(self._items)
        unplaced = self._unplaced.pop(text_or_none(item.get("type")) or "", None)
        known = self._find_item(item, index) or unplaced
        if event["type"] != "response.output_item.added":
            self._finish_item(item, index, known, out)
        elif known is None or known.announced:
            self._add(item, index, out)
        else:
            known.announced = True

    def _add(self, item: JSONObject, index: int, out: list[Event]) -> OutputItem:
        made = new_item(item, index, self._number, self._model, self._ledger)
        if isinstance(made, CallItem):
            self._has_calls = True
        before = self._items.get(index)
        if before is not None:
            before.close(out, True)  # another item has its index, so it has ended
        self._items[index] = made
        self._all.append(made)
        for name, value in made.ids.items():
            if value is not None:
                self._by_id.setdefault((name, value, made.kind), made)
                self._by_id.setdefault((name, value, None), made)
        made.open(item, out)
        return made

    def _finish_item(self, item: JSONObject, index: int, known: OutputItem | None, out: list[Event]) -> None:
        """Emit what a finished item has beyond earlier events. `known` is the same item in those."""
        note_unread(item, _ITEM, f"/output/{index}", self._ledger)
        if known is None:
            known = self._add(item, index, out)
        known.done(item, out)

    def _find_item(self, item: JSONObject, index: int) -> OutputItem | None:
        """Return the earlier item of the same id or call id, else the one at the same index with the same type.

        Some servers change an item's id in each event (braintrustdata/lingua#397, read in November 2026).
        """
        if not self._all:
            return None
        kind = text_or_none(item.get("type")) or ""
        for name in ("id", "call_id"):
            known = self._by_id.get((name, text_or_none(item.get(name)) or "", kind))
            if known is not None:
                return known
        found = self._items.get(index)
        return found if found is not None and found.kind == kind else None

    # Events that carry a piece of an item.

    def _item_of(self, event: JSONObject) -> OutputItem | None:
        index = event.get("output_index")
        found = self._items.get(index) if type(index) is int else None
        if found is not None:
            return found
        known = self._by_id.get(("id", text_or_none(event.get("item_id")) or "", None))
        if known is not None:
            return known
        return self._all[-1] if index is None and self._all else None  # without an index it is the last one

    def _item_of_delta(self, event: JSONObject, kind: str, out: list[Event]) -> OutputItem:
        """Return the item of a delta. If it is unknown it is the open one of this kind, or a new one.

        It is a new one if no item of this kind is announced, and only the indexes tell which one is meant.
        """
        item, index = self._item_of(event), event.get("output_index")
        if item is not None and (item.kind == kind or index is not None):
            return item
        for last in self._all[-1:]:
            if last.kind == kind and not last.finished and (last.announced or type(index) is not int):
                return last
        return self._add_unannounced(event, kind, out)

    def _add_unannounced(self, event: JSONObject, kind: str, out: list[Event]) -> OutputItem:
        self._start({}, out)
        index, item_id = event.get("output_index"), event.get("item_id")
        number = index if type(index) is int else len(self._items)
        made = self._add({"type": kind, "id": item_id}, number, out)
        made.announced = False
        if type(index) is not int and item_id is None:
            self._unplaced[kind] = made
        return made

    def on_part_added(self, event: JSONObject, out: list[Event]) -> None:
        item, part, index = self._item_of(event), event.get("part"), event.get("output_index")
        if item is None and type(part) is dict and part.get("type") in _TEXT_PARTS and type(index) is int:
            # Older versions of vLLM announce the message after reasoning under the index of the reasoning.
            item = self._add_unannounced(event, "message", out)
        if item is not None:
            item.announce(_index(event))

    def on_text(self, event: JSONObject, out: list[Event]) -> None:
        item = self._item_of_delta(event, "message", out)
        if isinstance(item, MessageItem):
            refusal = "refusal" in event["type"]
            index = item.parts.resolve_index(_index(event))
            item.add_text(index, event.get("delta"), out, refusal, event.get("logprobs"))

    def on_text_done(self, event: JSONObject, out: list[Event]) -> None:
        item = self._item_of(event)
        if isinstance(item, MessageItem):
            refusal = "refusal" in event["type"]
            text = event.get("refusal" if refusal else "text")
            index = item.parts.resolve_index(_index(event))
            item.text_done(index, text, out, refusal, event.get("logprobs"))

    def on_part_done(self, event: JSONObject, out: list[Event]) -> None:
        item, part = self._item_of(event), event.get("part")
        if type(part) is not dict:
            return
        if isinstance(item, MessageItem):
            index = item.parts.resolve_index(_index(event))
            item.note_part(index, part)
            item.part_done(index, part, out)
        elif isinstance(item, ReasoningItem):
            item.add_missing_text(item.texts.resolve_index(_index(event)), part.get("text"), out, False)

    def on_annotation(self, event: JSONObject, out: list[Event]) -> None:
        item, annotation = self._item_of(event), event.get("annotation")
        if isinstance(item, MessageItem) and type(annotation) is dict:
            item.add_annotation(item.parts.resolve_index(_index(event)), annotation, out)

    def on_reasoning(self, event: JSONObject, out: list[Event]) -> None:
        item = self._item_of_delta(event, "reasoning", out)
        if isinstance(item, ReasoningItem):
            summary = "summary" in event["type"]
            item.add_text(_reasoning_index(event, item, summary), event.get("delta"), out, summary)

    def on_reasoning_done(self, event: JSONObject, out: list[Event]) -> None:
        item = self._item_of(event)
        if isinstance(item, ReasoningItem):
            summary = "summary" in event["type"]
            item.add_missing_text(_reasoning_index(event, item, summary), event.get("text"), out, summary)

    def on_arguments(self, event: JSONObject, out: list[Event]) -> None:
        item = self._item_of(event)
        if isinstance(item, CallItem):
            item.add_text(event.get("delta"), out)

    def on_arguments_done(self, event: JSONObject, out: list[Event]) -> None:
        item = self._item_of(event)
        if isinstance(item, CallItem):
            item.add_missing_text(event.get("arguments", event.get("input")), out)


_TEXT_PARTS = ("output_text", "refusal")
_END_STATUSES = frozenset(("completed", "incomplete", "failed", "cancelled"))

_HANDLERS: dict[str, Callable[[ResponsesReader, JSONObject, list[Event]], None]] = {
    "response.created": ResponsesReader.on_opening,
    "response.queued": ResponsesReader.on_opening,
    "response.in_progress": ResponsesReader.on_opening,
    "response.output_item.added": ResponsesReader.on_item,
    "response.output_item.done": ResponsesReader.on_item,
    "response.output_text.delta": ResponsesReader.on_text,
    "response.refusal.delta": ResponsesReader.on_text,
    "response.output_text.done": ResponsesReader.on_text_done,
    "response.refusal.done": ResponsesReader.on_text_done,
    "response.content_part.added": ResponsesReader.on_part_added,
    "response.content_part.done": ResponsesReader.on_part_done,
    "response.reasoning_part.added": ResponsesReader.on_part_added,  # these two: vLLM
    "response.reasoning_part.done": ResponsesReader.on_part_done,
    "response.output_text.annotation.added": ResponsesReader.on_annotation,
    "response.reasoning_summary_text.delta": ResponsesReader.on_reasoning,
    "response.reasoning_text.delta": ResponsesReader.on_reasoning,
    "response.reasoning_summary_text.done": ResponsesReader.on_reasoning_done,
    "response.reasoning_text.done": ResponsesReader.on_reasoning_done,
    "response.function_call_arguments.delta": ResponsesReader.on_arguments,
    "response.custom_tool_call_input.delta": ResponsesReader.on_arguments,
    "response.function_call_arguments.done": ResponsesReader.on_arguments_done,
    "response.custom_tool_call_input.done": ResponsesReader.on_arguments_done,
    "response.completed": ResponsesReader.on_terminal,
    "response.incomplete": ResponsesReader.on_terminal,
    "response.failed": ResponsesReader.on_terminal,
    "response.cancelled": ResponsesReader.on_terminal,
}


def read_whole(body: JSONObject, context: ResponseContext, ledger: Ledger) -> Sequence[Event]:
    """Return the events of a whole response. Raises RemoteProtocolError (502) if it is none, or is not finished."""
    if "output" not in body and body.get("error") is not None:
        return (events.Failed(parse_error(body)),)
    return ResponsesReader(context, ledger).whole(body)


def _cut_reason(response: JSONObject) -> str | None:
    """Return why a response was cut off, None if it does not say that it was."""
    return text_or_none(object_or_empty(response.get("incomplete_details")).get("reason"))


def _required_object(event: JSONObject, name: str) -> JSONObject:
    value = event.get(name)
    if type(value) is not dict:
        raise unreadable_response(f"{event['type']} has no {name}")
    return value


def _item_path(event: JSONObject) -> str:
    index = event.get("output_index")
    return f"/output/{index}" if type(index) is int else ""


def _index(event: JSONObject, name: str = "content_index") -> int:
    value = event.get(name)
    return value if type(value) is int else 0


def _reasoning_index(event: JSONObject, item: ReasoningItem, summary: bool) -> int:
    return item.parts(summary).resolve_index(_index(event, "summary_index" if summary else "content_index"))
