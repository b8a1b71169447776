"""Read frames of an upstream's stream, or a complete response, into events.

Each event type of the stream has a method in a table; content blocks are read in `response_content_in`. A complete
response is read as a stream whose message_start holds everything, so both give the same events.
"""

from __future__ import annotations

from collections.abc import Sequence

from dragoman._ir import events
from dragoman._ir.events import TRUNCATING_STOP_REASONS, Event, StopReason
from dragoman._ir.fast_path import Delta, DeltaTemplate
from dragoman._ir.losses import Ledger, child
from dragoman._ir.shape import extra_members, note_unread, response_shape
from dragoman._wire.exceptions import RemoteProtocolError, unreadable_response
from dragoman._wire.json import JSONObject, decode, object_or_empty
from dragoman._wire.sse import Frame
from dragoman.codec import ResponseContext
from dragoman.protocols.anthropic_messages.checks import string_or_none, text_or_empty
from dragoman.protocols.anthropic_messages.errors import parse_error
from dragoman.protocols.anthropic_messages.response_content_in import ContentBlockReader
from dragoman.protocols.anthropic_messages.shapes import (
    DELTA_SHAPE,
    EVENT_SHAPE,
    RESPONSE_SHAPE,
    WRITTEN_RESPONSE_SHAPE,
)
from dragoman.protocols.anthropic_messages.tables import FAST_TIER, NAME, RESPONSE_TIERS, STOP_REASONS
from dragoman.protocols.anthropic_messages.usage import UsageReader

_EVENT, _DELTA, _RESPONSE = map(response_shape, (EVENT_SHAPE, DELTA_SHAPE, RESPONSE_SHAPE))
# Kept, because each delta is compared with them.
_EVENT_MEMBERS, _DELTA_MEMBERS = EVENT_SHAPE.keys(), DELTA_SHAPE.keys()


class MessagesReader:
    """Reads one stream."""

    def __init__(self, context: ResponseContext, ledger: Ledger) -> None:
        self._ledger = ledger
        self._blocks = ContentBlockReader(context, ledger)
        self._same_protocol = context.request.protocol == NAME
        self._started = False
        self._ended = False
        self._id = ""
        self._stop: events.Stopped | None = None
        self._usage = UsageReader(ledger, self._same_protocol)

    def read(self, frame: Frame) -> Sequence[Event]:
        """Return the events of one frame. Raises RemoteProtocolError (502)."""
        if self._ended or frame.data == b"[DONE]":  # not in this protocol, but compatible servers send it
            return ()
        value = decode(frame.data)
        if type(value) is not dict:
            raise unreadable_response("an event is not a JSON object")
        kind = value.get("type")
        if frame.event == b"error":
            kind = "error"
        elif type(kind) is not str:
            if "error" in value:
                kind = "error"
            else:
                raise unreadable_response("an event has no type")
        handler = _HANDLERS.get(kind)
        if handler is None:
            self._ledger.unknown_kind("", "the stream has events of an unknown type")
            return ()
        if not self._started and kind in _AFTER_START:
            raise unreadable_response(f"{kind} came before message_start")
        return handler(self, value)

    def eof(self) -> Sequence[Event]:
        """Return the last events. Compatible servers leave out message_stop, so a stop reason is enough.

        Raises RemoteProtocolError (502) if the stream has no stop reason.
        """
        if self._ended:
            return ()
        if self._stop is None:
            raise RemoteProtocolError(
                "the upstream's response ended without its stop reason", status=502, code="truncated"
            )
        return self.finish()

    def template_for(self, delta: Delta) -> DeltaTemplate | None:
        """Return a template for the next deltas of the block, because they differ only in their text."""
        block = next((block for block in self._blocks.open.values() if block.number == delta.block), None)
        if block is None:
            return None  # the input of a call at its end
        note = None if type(delta) is events.TextDelta else block.texts.extend
        assert block.content is not None  # because it has deltas
        return DeltaTemplate(block.content.member.encode("ascii"), note)

    # --- events of the stream -----------------------------------------------------------------------------

    def _message_start(self, value: JSONObject) -> Sequence[Event]:
        message = value.get("message")
        if self._started:
            # Some proxies repeat it. Others begin anew when their upstream has broken off (vercel/ai's fixture
            # spliced-message-start, read in November 2026): what has been sent cannot be taken back.
            if self._blocks.has_begun and text_or_empty(object_or_empty(message).get("id")) != self._id:
                raise unreadable_response("another response begins before it has ended")
            return ()
        if type(message) is not dict:
            raise unreadable_response("message_start has no message")
        note_unread(value, _EVENT, "", self._ledger)
        return self.start(message)

    def start(self, message: JSONObject) -> list[Event]:
        """Return the events for a message object and the blocks that it holds already."""
        self._started = True
        usage = object_or_empty(message.get("usage"))
        model = self._blocks.model = text_or_empty(message.get("model"))
        counted = self._usage.read(usage) if usage else None
        self._id = text_or_empty(message.get("id"))
        started = events.Started(self._id, model, service_tier=self._tier(usage), usage=counted)
        out: list[Event] = [started] if counted is None else [started, counted]
        content = message.get("content", [])
        if type(content) is not list:
            raise unreadable_response("the content of the response is not a list")
        for index, native in enumerate(content):
            out += self._blocks.start(index, native)
            out += self._blocks.close(self._blocks.open.pop(index))
        out += self._message_fields(message)
        self._note_stop(message)
        return out

    def _tier(self, usage: JSONObject) -> str | None:
        """Return the neutral tier, in which the faster speed is a tier."""
        tier = usage.get("service_tier")
        if tier is not None and text_or_empty(tier) not in RESPONSE_TIERS:
            self._ledger.dropped("/usage/service_tier", "not a service tier of Messages")
        if usage.get("speed") == "fast" and not self._same_protocol:
            return FAST_TIER
        return RESPONSE_TIERS.get(text_or_empty(tier))

    def _block_start(self, value: JSONObject) -> Sequence[Event]:
        blocks = self._blocks
        out = blocks.end_pending_call(cut=False)
        index = value.get("index", 0)
        if type(index) is not int:
            raise unreadable_response("a block has no index")
        note_unread(value, _EVENT, f"/content/{index}", self._ledger)
        unclosed = blocks.open.pop(index, None)
        if unclosed is not None:
            out += blocks.close(unclosed)
        out += blocks.start(index, value.get("content_block"))
        return out

    def _block_delta(self, value: JSONObject) -> Sequence[Event]:
        index = value.get("index", 0)
        block = self._blocks.open.get(index) if type(index) is int else None
        delta = value.get("delta")
        if block is None or type(delta) is not dict:
            raise unreadable_response("a delta came for a block that is not open")
        if not (value.keys() <= _EVENT_MEMBERS and delta.keys() <= _DELTA_MEMBERS):
            note_unread(value, _EVENT, f"/content/{index}", self._ledger)
            if block.content is not None:  # opaque blocks keep them
                note_unread(delta, _DELTA, f"/content/{index}", self._ledger)
        return self._blocks.delta(block, delta)

    def _block_stop(self, value: JSONObject) -> Sequence[Event]:
        index = value.get("index", 0)
        block = self._blocks.open.pop(index, None) if type(index) is int else None
        if block is None:
            return ()
        note_unread(value, _EVENT, f"/content/{index}", self._ledger)
        return self._blocks.close(block)

    def _message_delta(self, value: JSONObject) -> Sequence[Event]:
        out: list[Event] = []
        usage = value.get("usage")
        if type(usage) is dict:
            out.append(self._usage.read(usage))
        delta = value.get("delta")
        if type(delta) is dict:
            self._note_stop(delta)
            out += self._message_fields(delta)
        return out + self._message_fields(value)

    def _message_stop(self, value: JSONObject) -> Sequence[Event]:
        note_unread(value, _EVENT, "", self._ledger)
        return self.finish()

    def _error(self, value: JSONObject) -> Sequence[Event]:
        self._ended = True
        return (events.Failed(parse_error(value, None)),)

    def _ping(self, value: JSONObject) -> Sequence[Event]:
        return ()

    def finish(self) -> list[Event]:
        """Return the ends of the open blocks and of the response."""
        self._ended = True
        stop = self._stop
        if stop is None:
            # message_stop came without a stop reason.
            stop = events.Stopped(StopReason.TOOL_USE if self._blocks.called else StopReason.END)
        cut = stop.reason in TRUNCATING_STOP_REASONS
        blocks = self._blocks
        out = blocks.end_pending_call(cut)
        for block in blocks.open.values():
            out += blocks.close(block, cut)
            out += blocks.end_pending_call(cut)
        blocks.open.clear()
        out.append(stop)
        out.append(events.ENDED)
        return out

    def _note_stop(self, value: JSONObject) -> None:
        native = value.get("stop_reason")
        if type(native) is not str or not native:
            return
        reason = STOP_REASONS.get(native)
        if reason is None:
            self._ledger.altered("/stop_reason", "an unknown stop reason was read as the end of the turn")
            reason = StopReason.END
        details = value.get("stop_details")
        self._stop = events.Stopped(
            reason,
            native,
            sequence=string_or_none(value.get("stop_sequence")),
            explanation=string_or_none(object_or_empty(details).get("explanation")),
            details=details,
        )

    def _message_fields(self, value: JSONObject) -> list[Event]:
        """Return the fields without a neutral form (e.g. the container) for clients of this protocol.

        For other clients they are recorded as losses.
        """
        if not self._same_protocol:
            note_unread(value, _RESPONSE, "", self._ledger)
            return []
        extra = extra_members(value, WRITTEN_RESPONSE_SHAPE) or {}
        return [
            events.Opaque(NAME, "message", {key: item}, child("", key), round_trip=False)
            for key, item in extra.items()
        ]


_HANDLERS = {
    "message_start": MessagesReader._message_start,
    "content_block_start": MessagesReader._block_start,
    "content_block_delta": MessagesReader._block_delta,
    "content_block_stop": MessagesReader._block_stop,
    "message_delta": MessagesReader._message_delta,
    "message_stop": MessagesReader._message_stop,
    "error": MessagesReader._error,
    "ping": MessagesReader._ping,
}
_AFTER_START = frozenset({"content_block_start", "content_block_stop", "message_delta", "message_stop"})


def read_whole(body: JSONObject, context: ResponseContext, ledger: Ledger) -> list[Event]:
    """Return the events of a complete response. Raises RemoteProtocolError (502) if it is none."""
    if body.get("type") == "error" or ("error" in body and "content" not in body):
        return [events.Failed(parse_error(body, None))]
    if type(body.get("content")) is not list:
        raise unreadable_response("the response has no content")
    reader = MessagesReader(context, ledger)
    return reader.start(body) + reader.finish()
