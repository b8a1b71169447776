"""Write a simple response, streamed or whole.

Text goes out as it comes, in numbered chunks that differ in two values only. Everything else in a response is recorded
as a loss, by the same functions for streams and for whole responses.
"""

from __future__ import annotations

from collections.abc import Callable

from dragoman._ir import events
from dragoman._ir.assembly import AssembledBlock, AssembledResponse
from dragoman._ir.events import BlockKind, Event, StopReason, Usage
from dragoman._ir.fast_path import Delta
from dragoman._ir.losses import Ledger, child
from dragoman._wire.json import JSONObject, encode
from dragoman.codec import NDJSON, ResponseContext
from dragoman.protocols.simple_chat.errors import DONE, error_frames
from dragoman.protocols.simple_chat.tables import (
    AS_TEXT,
    LOST_BLOCKS,
    NO_ANNOTATIONS,
    NO_EXPLANATION,
    NO_LOGPROBS,
    NO_SERVICE_TIER,
    NO_STOP_DETAILS,
    NO_STOP_REASON,
    NO_USAGE,
    TEXT_KINDS,
)

_CHUNK = b'data: {"message":{"role":"assistant","content":%b},"done":false,"index":%d}\n\n'
# The last line has done: true. Text goes out when it comes, before it is known to be the last, so this one is empty.
_LAST_LINE = b'data: {"message":{"role":"assistant","content":""},"done":true,"index":%d}\n\n'


class SimpleWriter:
    """Writes one stream. See StreamWriter.

    As lines it ends with a last chunk, as server-sent events with its own event.
    """

    __slots__ = ("_index", "_ledger", "_lines")

    def __init__(self, context: ResponseContext, ledger: Ledger) -> None:
        endpoint = context.endpoint
        self._lines = endpoint is not None and endpoint.framing is NDJSON
        self._index = 0
        self._ledger = ledger

    def send(self, event: Event) -> bytes:
        if type(event) is events.TextDelta:
            return self._chunk(event.text)
        if type(event) is events.Stopped:
            text = _note_stop(event, self._index > 0, self._ledger)
            return self._chunk(text) if text else b""
        if type(event) is events.Ended:
            return _LAST_LINE % self._index if self._lines else DONE
        if type(event) is events.Failed:
            return error_frames(event.error, lines=self._lines)
        note = _NOTES.get(type(event))
        if note is not None:
            note(event, self._ledger)
        return b""

    def send_texts(self, delta: Delta, texts: list[str]) -> bytes:
        return b"".join(map(self._chunk, texts)) if type(delta) is events.TextDelta else b""

    def _chunk(self, text: str) -> bytes:
        index = self._index
        self._index = index + 1
        return _CHUNK % (encode(text), index)


def write_whole(response: AssembledResponse, context: ResponseContext, ledger: Ledger) -> JSONObject:
    """Return the body of a whole response."""
    texts: list[str] = []
    _note_start(response.started, ledger)
    for block in response.blocks:
        assert isinstance(block, AssembledBlock)  # no other block reaches this protocol: see SPEC
        _note_block(block, ledger)
        if block.kind in TEXT_KINDS:
            texts.append(block.text)
        for annotation in block.annotations:
            _note_annotation(annotation, ledger)
        if block.logprobs:
            ledger.dropped("/logprobs", NO_LOGPROBS)
    _note_usage(response.usage, ledger)
    for stopped in response.stops:
        texts.append(_note_stop(stopped, any(texts), ledger))
    return {
        "id": f"cmpl-{context.id}",
        "model": context.model,
        "created": context.now,
        "message": {"role": "assistant", "content": "".join(texts)},
        "done": True,
    }


def _note_start(event: events.Started, ledger: Ledger) -> None:
    if event.service_tier is not None:
        ledger.dropped("/service_tier", NO_SERVICE_TIER)


def _note_block(block: events.BlockStarted | AssembledBlock, ledger: Ledger) -> None:
    lost = LOST_BLOCKS.get(block.kind)
    if lost is not None:
        path, detail = lost
        ledger.dropped(path if block.tool is None else child(path, block.tool.call_id), detail)
    if block.kind is BlockKind.REFUSAL:
        ledger.altered("/refusal", AS_TEXT)


def _note_annotation(event: events.Annotation, ledger: Ledger) -> None:
    ledger.dropped(event.path or "/annotations", NO_ANNOTATIONS)


def _note_usage(usage: Usage, ledger: Ledger) -> None:
    if usage != Usage():
        ledger.dropped("/usage", NO_USAGE)


def _note_stop(stopped: events.Stopped, has_text: bool, ledger: Ledger) -> str:
    """Return the text that is left to send at the end: the upstream's explanation, if the model wrote nothing."""
    if stopped.reason is not StopReason.END:
        ledger.dropped("/stop_reason", NO_STOP_REASON)
    if stopped.sequence is not None:
        ledger.dropped("/stop_sequence", NO_STOP_DETAILS)
    if stopped.details is not None:
        ledger.dropped("/stop_details", NO_STOP_DETAILS)
    if not stopped.explanation:
        return ""
    if has_text:
        ledger.dropped("/stop_details/explanation", NO_EXPLANATION)
        return ""
    ledger.altered("/stop_details/explanation", AS_TEXT)
    return stopped.explanation


_NOTES: dict[type[Event], Callable[..., None]] = {
    events.Started: _note_start,
    events.BlockStarted: _note_block,
    events.Annotation: _note_annotation,
    events.Logprobs: lambda _, ledger: ledger.dropped("/logprobs", NO_LOGPROBS),
    Usage: _note_usage,
}
