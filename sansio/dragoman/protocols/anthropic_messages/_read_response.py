"""Frames of an upstream's stream, or a whole answer -> events.

Strategy: blocks come one after another under an index. Each open block is a small object that knows what to
do with its deltas and its end; text and reasoning blocks show themselves at their first content, tool calls
at once, everything else as one opaque event when it is whole. A whole answer is read as a stream whose
blocks start full, so both give the same events.
"""

from __future__ import annotations

from collections.abc import Sequence

from dragoman._errors import RemoteProtocolError
from dragoman._events import (
    ENDED,
    Annotation,
    ArgumentsDelta,
    BlockEnded,
    BlockKind,
    BlockStarted,
    Event,
    Failed,
    Opaque,
    ReasoningDelta,
    Seal,
    SealDelta,
    Started,
    Stopped,
    StopReason,
    TextDelta,
    ToolHead,
)
from dragoman._json import JSON, JSONObject, decode, encode_text, is_object_text
from dragoman._lane import LaneHint
from dragoman._loss import Ledger, LossCode, child
from dragoman._shape import note_unread
from dragoman._spec import Exchange
from dragoman._sse import Frame

from ._errors import fault_of
from ._tables import (
    BLOCK_SHAPE,
    CUT_SHORT,
    DELTA_FIELDS,
    EVENT_FIELDS,
    NAME,
    STOP_DETAILS_SHAPE,
    STOP_READ,
    TIER_ANSWER_READ,
    USAGE_DETAILS_SHAPE,
)
from ._usage import UsageReader
from ._wire import KNOWN_MESSAGE, KNOWN_TOOL_USE, extra_of


class _Block:
    """An open block.

    number: its number in the events, -1 while it has not shown itself.
    native: the block as it started; texts: what its deltas brought.
    """

    __slots__ = ("index", "kind", "native", "number", "texts")

    def __init__(self, index: int, kind: str, native: JSONObject) -> None:
        self.index = index
        self.kind = kind
        self.native = native
        self.number = -1
        self.texts: list[str] = []


_LANE_KEYS: dict[type[Event], bytes] = {
    TextDelta: b"text",
    ReasoningDelta: b"thinking",
    ArgumentsDelta: b"partial_json",
}


class MessagesReader:
    """Reads one stream."""

    __slots__ = (
        "_blocks",
        "_called",
        "_cut",
        "_ended",
        "_exchange",
        "_ledger",
        "_model",
        "_next",
        "_started",
        "_stop",
        "_usage",
    )

    def __init__(self, exchange: Exchange, ledger: Ledger) -> None:
        self._exchange = exchange
        self._ledger = ledger
        self._blocks: dict[JSON, _Block] = {}  # the open ones, by wire index
        self._next = 0  # the number of the next block
        self._called = False  # the answer has a tool call
        self._cut = -1  # a tool call that ended with half a JSON text: was it the limit?
        self._model = ""
        self._started = False
        self._ended = False
        self._stop: Stopped | None = None
        self._usage = UsageReader()

    def read(self, frame: Frame) -> Sequence[Event]:
        """The events of one frame."""
        if self._ended or frame.data == b"[DONE]":  # not of this protocol, but compatible servers send it
            return ()
        value = decode(frame.data)
        if type(value) is not dict:
            raise _broken("an event is no JSON object")
        kind = value.get("type")
        if kind == "content_block_delta":  # the hot path
            delta = value.get("delta")
            index = value.get("index", 0)
            block = self._blocks.get(index) if type(index) is int else None
            if block is None or type(delta) is not dict:
                raise _broken("a delta came for a block that is not open")
            if not (value.keys() <= EVENT_FIELDS and delta.keys() <= DELTA_FIELDS):
                self._note_fields(block, value, delta)
            what = delta.get("type")
            if what == "text_delta" and block.kind == "text":
                text = delta.get("text")
                if block.number >= 0 and type(text) is str and text:
                    return (TextDelta(block.number, text),)
            elif what == "input_json_delta" and block.number >= 0:
                text = delta.get("partial_json")
                if type(text) is str and text:
                    block.texts.append(text)
                    return (ArgumentsDelta(block.number, text),)
                return ()
            elif what == "thinking_delta" and block.number >= 0 and block.kind == "thinking":
                text = delta.get("thinking")
                if type(text) is str and text:
                    block.texts.append(text)
                    return (ReasoningDelta(block.number, text),)
            return self._delta(block, what, delta)
        if type(kind) is not str:
            if "error" in value:
                kind = "error"
            else:
                raise _broken("an event has no type")
        handler = _HANDLERS.get(kind)
        if handler is None:
            self._ledger.add(LossCode.UNKNOWN_KIND, "", "the stream has events of a type that is not known")
            return ()
        if not self._started and kind in _INSIDE:
            raise _broken(f"{kind} came before message_start")
        return handler(self, value)

    def eof(self) -> Sequence[Event]:
        """The stream ended. Compatible servers leave out message_stop: a stop reason is as good."""
        if self._ended:
            return ()
        if self._stop is None:
            raise RemoteProtocolError(
                "the upstream's answer ended before its stop reason", status_hint=502, code="truncated"
            )
        return self.finish()

    def lane(self, delta: TextDelta | ReasoningDelta | ArgumentsDelta) -> LaneHint | None:
        """Deltas of an open block differ in their text alone."""
        block = next(block for block in self._blocks.values() if block.number == delta.block)
        note = None if type(delta) is TextDelta else block.texts.append
        return LaneHint(_LANE_KEYS[type(delta)], note)

    # --- events of the stream -----------------------------------------------------------------------------

    def _message_start(self, value: JSONObject) -> Sequence[Event]:
        if self._started:  # some proxies repeat it
            return ()
        message = value.get("message")
        if type(message) is not dict:
            raise _broken("message_start has no message")
        self._ledger.unknown_fields("", extra_of(value, EVENT_FIELDS))
        return self.start(message)

    def start(self, message: JSONObject) -> list[Event]:
        """The events for a message object, with the blocks that it already holds."""
        self._started = True
        usage = message.get("usage")
        if type(usage) is not dict:
            usage = {}
        model = message.get("model")
        self._model = model if type(model) is str else ""
        tier = usage.get("service_tier")
        if tier is not None and (type(tier) is not str or tier not in TIER_ANSWER_READ):
            self._ledger.dropped("/usage/service_tier", "not a service tier of this protocol")
        message_id = message.get("id")
        events: list[Event] = [
            Started(
                id=message_id if type(message_id) is str else "",
                model=self._model,
                service_tier=TIER_ANSWER_READ.get(tier) if type(tier) is str else None,
            )
        ]
        if usage:
            self._note_usage(usage)
            events.append(self._usage.read(usage))
        content = message.get("content", [])
        if type(content) is not list:
            raise _broken("the content of the answer is no list")
        for index, native in enumerate(content):
            events += self._open(index, native)
            events += self._close(self._blocks.pop(index))
        events += self._envelope(message)
        self._note_stop(message)
        return events

    def _block_start(self, value: JSONObject) -> Sequence[Event]:
        events = self._settle(cut=False)
        index = value.get("index", 0)
        if type(index) is not int:
            raise _broken("a block has no index")
        self._ledger.unknown_fields(f"/content/{index}", extra_of(value, EVENT_FIELDS))
        left = self._blocks.pop(index, None)
        if left is not None:
            events += self._close(left)
        events += self._open(index, value.get("content_block"))
        return events

    def _block_stop(self, value: JSONObject) -> Sequence[Event]:
        index = value.get("index", 0)
        block = self._blocks.pop(index, None) if type(index) is int else None
        return () if block is None else self._close(block)

    def _message_delta(self, value: JSONObject) -> Sequence[Event]:
        events: list[Event] = []
        usage = value.get("usage")
        if type(usage) is dict:
            self._note_usage(usage)
            events.append(self._usage.read(usage))
        delta = value.get("delta")
        if type(delta) is dict:
            self._note_stop(delta)
            events += self._envelope(delta)
        events += self._envelope({key: item for key, item in value.items() if key not in _DELTA_FIELDS})
        return events

    def _message_stop(self, value: JSONObject) -> Sequence[Event]:
        return self.finish()

    def _error(self, value: JSONObject) -> Sequence[Event]:
        self._ended = True
        return (Failed(fault_of(value, None)),)

    def _nothing(self, value: JSONObject) -> Sequence[Event]:
        return ()

    def finish(self) -> list[Event]:
        """Close what is open and end the answer."""
        self._ended = True
        stop = self._stop
        if stop is None:
            # The end event came without a reason: what came last says what it must have been.
            stop = Stopped(StopReason.TOOL_USE if self._called else StopReason.END)
        cut = stop.reason in CUT_SHORT
        events = self._settle(cut)
        for block in self._blocks.values():
            events += self._close(block, cut)
            events += self._settle(cut)
        self._blocks.clear()
        events.append(stop)
        events.append(ENDED)
        return events

    def _note_stop(self, value: JSONObject) -> None:
        native = value.get("stop_reason")
        if type(native) is not str or not native:
            return
        reason = STOP_READ.get(native)
        if reason is None:
            self._ledger.altered("/stop_reason", "an unknown stop reason was taken for the end of the turn")
            reason = StopReason.END
        details = value.get("stop_details")
        note_unread(details, STOP_DETAILS_SHAPE, "/stop_details", self._ledger)
        explanation = details.get("explanation") if type(details) is dict else None
        sequence = value.get("stop_sequence")
        self._stop = Stopped(
            reason,
            native,
            sequence=sequence if type(sequence) is str else None,
            explanation=explanation if type(explanation) is str else None,
            details=details,
        )

    def _envelope(self, value: JSONObject) -> list[Event]:
        """Fields of the message that have no form of their own, e.g. its container."""
        left = extra_of(value, KNOWN_MESSAGE) or {}
        return [Opaque(NAME, "message", {key: item}, child("", key)) for key, item in left.items()]

    # --- blocks -------------------------------------------------------------------------------------------

    def _open(self, index: int, native: JSON) -> list[Event]:
        """Open a block, with what it holds already."""
        if type(native) is not dict or type(native.get("type")) is not str:
            raise _broken("a content block has no type")
        note_unread(native, BLOCK_SHAPE, f"/content/{index}", self._ledger)
        block = self._blocks[index] = _Block(index, native["type"], native)
        kind = block.kind
        if kind == "text":
            events = self._text(block, native.get("text"))
            citations = native.get("citations")
            for citation in citations if type(citations) is list else ():
                events += self._cite(block, citation)
            return events
        if kind == "thinking":
            return self._think(block, native.get("thinking"))
        if kind == "tool_use":
            return [self._call(block)]
        return []

    def _show(self, block: _Block, kind: BlockKind, tool: ToolHead | None = None) -> BlockStarted:
        block.number = self._next
        self._next += 1
        return BlockStarted(block.number, kind, tool=tool)

    def _call(self, block: _Block) -> BlockStarted:
        native = block.native
        call_id, name = native.get("id"), native.get("name")
        if type(name) is not str or not name:
            raise _broken("a tool call has no name")
        if type(call_id) is not str or not call_id:
            call_id = f"toolu_{self._exchange.id}_{self._next}"
        left = extra_of(native, KNOWN_TOOL_USE) or {}
        for key, value in left.items():
            if value != {"type": "direct"}:  # the caller that every call has when it says nothing
                path = child(f"/content/{block.index}", key)
                self._ledger.dropped(path, "a field of the tool call that has no counterpart")
        self._called = True
        return self._show(block, BlockKind.TOOL_CALL, ToolHead(call_id, name))

    def _text(self, block: _Block, text: JSON) -> list[Event]:
        """The first text of a block: read() gives the rest."""
        if type(text) is not str or not text:
            return []
        return [self._show(block, BlockKind.TEXT), TextDelta(block.number, text)]

    def _think(self, block: _Block, text: JSON) -> list[Event]:
        """The first text of a block: read() gives the rest."""
        if type(text) is not str or not text:
            return []
        block.texts.append(text)
        return [self._show(block, BlockKind.REASONING), ReasoningDelta(block.number, text)]

    def _cite(self, block: _Block, citation: JSON) -> list[Event]:
        if type(citation) is not dict:
            return []
        events: list[Event] = []
        if block.number < 0:
            events.append(self._show(block, BlockKind.TEXT))
        url = citation.get("url")
        title = citation.get("title", citation.get("document_title"))
        events.append(
            Annotation(
                block.number,
                NAME,
                citation,
                url=url if type(url) is str else None,
                title=title if type(title) is str else None,
            )
        )
        return events

    def _delta(self, block: _Block, what: JSON, delta: JSONObject) -> Sequence[Event]:
        """Every delta but the commonest."""
        kind = block.kind
        if kind == "text":
            if what == "text_delta":
                return self._text(block, delta.get("text"))
            if what == "citations_delta":
                return self._cite(block, delta.get("citation"))
        elif kind == "thinking":
            if what == "thinking_delta":
                return self._think(block, delta.get("thinking"))
            if what == "signature_delta":
                block.native = {**block.native, "signature": delta.get("signature")}
                return ()
        elif kind != "tool_use":
            self._fill(block, what, delta)
            return ()
        self._ledger.add(
            LossCode.UNKNOWN_KIND,
            f"/content/{block.index}",
            "a delta of a type that does not belong to the block",
        )
        return ()

    def _note_usage(self, usage: JSONObject) -> None:
        details = usage.get("output_tokens_details")
        note_unread(details, USAGE_DETAILS_SHAPE, "/usage/output_tokens_details", self._ledger)

    def _note_fields(self, block: _Block, event: JSONObject, delta: JSONObject) -> None:
        """Enter what a delta brings beside its text. Opaque blocks keep it."""
        self._ledger.unknown_fields(f"/content/{block.index}", extra_of(event, EVENT_FIELDS))
        if block.kind in ("text", "thinking", "tool_use"):
            self._ledger.unknown_fields(f"/content/{block.index}", extra_of(delta, DELTA_FIELDS))

    def _fill(self, block: _Block, what: JSON, delta: JSONObject) -> None:
        """More of an opaque block: its input as JSON text, or texts that grow."""
        if what == "input_json_delta":
            text = delta.get("partial_json")
            if type(text) is str:
                block.texts.append(text)
            return
        block.native = dict(block.native)
        for key, value in delta.items():
            if key == "type" or value is None:
                continue
            held = block.native.get(key)
            block.native[key] = held + value if type(held) is str and type(value) is str else value

    def _close(self, block: _Block, cut: bool = False) -> list[Event]:
        """The end of a block. `cut`: it was not ended by the upstream, and the output limit was reached."""
        kind = block.kind
        if kind == "text":
            return [BlockEnded(block.number, not cut)] if block.number >= 0 else []
        if kind == "thinking":
            return self._close_thinking(block, cut)
        if kind == "redacted_thinking":
            start = self._show(block, BlockKind.REASONING)
            return [start, self._seal(block, block.native), BlockEnded(block.number)]
        if kind == "tool_use":
            return self._close_call(block, cut)
        native = block.native
        if block.texts:
            native = {**native, "input": _parsed("".join(block.texts))}
        return [Opaque(NAME, kind, native, f"/content/{block.index}")]

    def _close_thinking(self, block: _Block, cut: bool) -> list[Event]:
        events: list[Event] = []
        if block.number < 0:
            # "display: omitted": only the signature comes, and it must go back.
            if not block.native.get("signature"):
                return []
            events.append(self._show(block, BlockKind.REASONING))
        if not cut or block.native.get("signature"):
            events.append(self._seal(block, {**block.native, "thinking": "".join(block.texts)}))
        events.append(BlockEnded(block.number, not cut))
        return events

    def _close_call(self, block: _Block, cut: bool) -> list[Event]:
        events: list[Event] = []
        text = "".join(block.texts)
        given = block.native.get("input")
        if not text and given:
            # Calls made from inside a container come whole in their start.
            text = encode_text(given)
            events.append(ArgumentsDelta(block.number, text))
        if text and not is_object_text(text):
            self._cut = block.number
        else:
            events.append(BlockEnded(block.number, bool(text) or not cut))
        return events

    def _settle(self, cut: bool) -> list[Event]:
        """End the tool call that stopped in the middle of its arguments, now that the reason is known."""
        if self._cut < 0:
            return []
        number, self._cut = self._cut, -1
        return [BlockEnded(number, not cut)]

    def _seal(self, block: _Block, native: JSONObject) -> SealDelta:
        return SealDelta(block.number, Seal(NAME, native, self._model))


_HANDLERS = {
    "message_start": MessagesReader._message_start,
    "content_block_start": MessagesReader._block_start,
    "content_block_stop": MessagesReader._block_stop,
    "message_delta": MessagesReader._message_delta,
    "message_stop": MessagesReader._message_stop,
    "error": MessagesReader._error,
    "ping": MessagesReader._nothing,
}
_INSIDE = frozenset({"content_block_start", "content_block_stop", "message_delta", "message_stop"})
_DELTA_FIELDS = frozenset({"type", "delta", "usage"})


def read_whole(body: JSONObject, exchange: Exchange, ledger: Ledger) -> list[Event]:
    """The events of a whole answer. Raises RemoteProtocolError (502) when it is none."""
    if body.get("type") == "error" or ("error" in body and "content" not in body):
        return [Failed(fault_of(body, None))]
    if type(body.get("content")) is not list:
        raise _broken("the answer has no content")
    reader = MessagesReader(exchange, ledger)
    return reader.start(body) + reader.finish()


def _parsed(text: str) -> JSON:
    """The input of a server tool as an object; what is no JSON stays text."""
    try:
        return decode(text.encode("utf-8", "surrogatepass"))
    except RemoteProtocolError:
        return text


def _broken(message: str) -> RemoteProtocolError:
    return RemoteProtocolError(f"the upstream's answer cannot be read: {message}", status_hint=502)
