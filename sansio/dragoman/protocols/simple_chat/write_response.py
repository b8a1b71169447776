"""Events -> a simple answer: streamed as lines or as server-sent events, or whole.

Strategy: the model's words go out as they come, in numbered chunks that differ in two values alone. Both forms of
a stream are one writer with two sets of constant bytes. Whatever else an answer says is entered in the ledger, by
the same functions for streams and for whole answers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from dragoman._ir.assembly import AssembledBlock, AssembledResponse
from dragoman._ir.events import (
    Annotation,
    BlockKind,
    BlockStarted,
    Ended,
    Event,
    Failed,
    Logprobs,
    Started,
    Stopped,
    StopReason,
    TextDelta,
    Usage,
)
from dragoman._ir.losses import Ledger, child
from dragoman._wire.errors import WireError
from dragoman._wire.json import JSONObject, encode
from dragoman.codec import ResponseContext
from dragoman.protocols.simple_chat.errors import DONE, error_frame, error_line
from dragoman.protocols.simple_chat.tables import (
    AS_TEXT,
    LOST_BLOCKS,
    NO_ANNOTATIONS,
    NO_EXPLANATION,
    NO_LOGPROBS,
    NO_PHASE,
    NO_SERVICE_TIER,
    NO_STOP_DETAILS,
    NO_STOP_REASON,
    NO_USAGE,
    TEXT_KINDS,
)

_CHUNK = b'{"message":{"role":"assistant","content":'
# "The last chunk has done: true". The text before it went out when it came, instead of waiting until it was known
# to be the last, so there is none left for this one.
_LAST_LINE = _CHUNK + b'""},"done":true,"index":%d}\n'


class _Framing(NamedTuple):
    """One form of a stream."""

    before: bytes  # of a chunk, up to its text
    after: bytes  # with the chunk's number
    last: Callable[[int], bytes]  # what ends the stream, by the number of chunks
    fail: Callable[[WireError], bytes]  # what ends it otherwise


_LINES = _Framing(_CHUNK, b'},"done":false,"index":%d}\n', lambda index: _LAST_LINE % index, error_line)
# Here every chunk has done: false, and the end is an event of its own.
_EVENTS = _Framing(b"data: " + _CHUNK, b'},"done":false,"index":%d}\n\n', lambda index: DONE, error_frame)


class SimpleWriter:
    """Writes one stream, in the form of the endpoint that was asked."""

    __slots__ = ("_form", "_index", "_ledger")

    def __init__(self, context: ResponseContext, ledger: Ledger) -> None:
        endpoint = context.endpoint
        self._form = _LINES if endpoint is not None and endpoint.framing == "ndjson" else _EVENTS
        self._index = 0
        self._ledger = ledger

    def send(self, event: Event) -> bytes:
        if type(event) is TextDelta:
            return self._chunk(event.text)
        if type(event) is Stopped:
            text = _note_stop(event, self._index > 0, self._ledger)
            return self._chunk(text) if text else b""
        if type(event) is Ended:
            return self._form.last(self._index)
        if type(event) is Failed:
            return self._form.fail(event.error)
        note = _NOTES.get(type(event))
        if note is not None:
            note(event, self._ledger)
        return b""

    def _chunk(self, text: str) -> bytes:
        index = self._index
        self._index = index + 1
        form = self._form
        return form.before + encode(text) + form.after % index


def write_whole(answer: AssembledResponse, context: ResponseContext, ledger: Ledger) -> JSONObject:
    """The body of a whole answer."""
    texts: list[str] = []
    _note_start(answer.started, ledger)
    for block in answer.blocks:
        assert isinstance(block, AssembledBlock)  # nothing else is for us: see SPEC
        _note_block(block, ledger)
        if block.kind in TEXT_KINDS:
            texts.append(block.text)
        for annotation in block.annotations:
            _note_annotation(annotation, ledger)
        if block.logprobs:
            ledger.dropped("/logprobs", NO_LOGPROBS)
    _note_usage(answer.usage, ledger)
    for stopped in answer.stops:
        texts.append(_note_stop(stopped, any(texts), ledger))
    return {
        "id": f"cmpl-{context.id}",
        "model": context.model,
        "created": context.now,
        "message": {"role": "assistant", "content": "".join(texts)},
        "done": True,
    }


def _note_start(event: Started, ledger: Ledger) -> None:
    if event.service_tier is not None:
        ledger.dropped("/service_tier", NO_SERVICE_TIER)


def _note_block(block: BlockStarted | AssembledBlock, ledger: Ledger) -> None:
    lost = LOST_BLOCKS.get(block.kind)
    if lost is not None:
        path, detail = lost
        ledger.dropped(path if block.tool is None else child(path, block.tool.call_id), detail)
    if block.kind is BlockKind.REFUSAL:
        ledger.altered("/refusal", AS_TEXT)
    if block.phase is not None:
        ledger.dropped("/phase", NO_PHASE)


def _note_annotation(event: Annotation, ledger: Ledger) -> None:
    ledger.dropped(event.path or "/annotations", NO_ANNOTATIONS)


def _note_usage(usage: Usage, ledger: Ledger) -> None:
    if usage != Usage():
        ledger.dropped("/usage", NO_USAGE)


def _note_stop(stopped: Stopped, spoke: bool, ledger: Ledger) -> str:
    """What is left to say at the end: the upstream's explanation, where the model itself said nothing."""
    if stopped.reason is not StopReason.END:
        ledger.dropped("/stop_reason", NO_STOP_REASON)
    if stopped.sequence is not None:
        ledger.dropped("/stop_sequence", NO_STOP_DETAILS)
    if stopped.details is not None:
        ledger.dropped("/stop_details", NO_STOP_DETAILS)
    if not stopped.explanation:
        return ""
    if spoke:
        ledger.dropped("/stop_details/explanation", NO_EXPLANATION)
        return ""
    ledger.altered("/stop_details/explanation", AS_TEXT)
    return stopped.explanation


_NOTES: dict[type[Event], Callable[..., None]] = {
    Started: _note_start,
    BlockStarted: _note_block,
    Annotation: _note_annotation,
    Logprobs: lambda _, ledger: ledger.dropped("/logprobs", NO_LOGPROBS),
    Usage: _note_usage,
}
