"""Events to a whole response, so that streamed and whole responses cannot differ.

A whole response is never translated by its own rules. Readers of whole bodies return the same events as readers of
streams, Fold collects them, and writers of whole bodies write the result. Stream writers use the same Fold for what a
protocol repeats at the end.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from dragoman._ir.events import (
    Annotation,
    ArgumentsDelta,
    BlockEnded,
    BlockKind,
    BlockStarted,
    Compacted,
    Ended,
    Event,
    Failed,
    Logprobs,
    Opaque,
    ReasoningDelta,
    ReasoningForm,
    Signature,
    SignatureDelta,
    Started,
    Stopped,
    TextDelta,
    ToolHead,
    Usage,
)
from dragoman._wire.errors import WireError
from dragoman._wire.exceptions import LocalProtocolError
from dragoman._wire.json import JSON, LONG_TEXT


class ReasoningPart(msgspec.Struct, frozen=True, gc=False):
    """One paragraph or summary part of a reasoning block.

    Attributes:
        form: The reasoning itself, or a summary.
        text: The characters.
    """

    form: ReasoningForm
    text: str


class AssembledBlock(msgspec.Struct, frozen=True, gc=False):
    """One finished block. It has the fields of its events. is_long: to write it takes encode_long().

    Attributes:
        number: BlockStarted.block.
        kind: The kind of its content.
        text: The text of TEXT and REFUSAL, the arguments or free input of TOOL_CALL, "" for REASONING.
        choice: The choice that it belongs to.
        tool: Set for TOOL_CALL, else None.
        item_id: The id of the item or block in its protocol, if it has one.
        phase: Responses' `phase` of a message, or None.
        reasoning: The parts of a REASONING block.
        signature: The signature of a REASONING block, or None.
        annotations: The citations of a TEXT block.
        logprobs: Log probabilities of its tokens.
        complete: False if the model was cut off inside the block.
        path: A JSON Pointer to its place in the upstream's response, "" if unknown.
    """

    number: int
    kind: BlockKind
    text: str
    choice: int = 0
    tool: ToolHead | None = None
    item_id: str | None = None
    phase: str | None = None
    reasoning: tuple[ReasoningPart, ...] = ()
    signature: Signature | None = None
    annotations: tuple[Annotation, ...] = ()
    logprobs: tuple[JSON, ...] = ()
    complete: bool = True
    path: str = ""

    @property
    def is_long(self) -> bool:
        return len(self.text) > LONG_TEXT or any(len(part.text) > LONG_TEXT for part in self.reasoning)


class AssembledResponse(msgspec.Struct, frozen=True, gc=False):
    """A whole response.

    Attributes:
        started: The first event.
        blocks: The blocks of all choices, in the order in which they started, opaque ones in place.
        stops: The ends of the choices.
        usage: The final token counts.
        error: Why the response broke off, None if it is complete.
    """

    started: Started
    blocks: tuple[AssembledBlock | Opaque | Compacted, ...]
    stops: tuple[Stopped, ...]
    usage: Usage
    error: WireError | None = None

    @property
    def service_tier(self) -> str | None:
        """The tier that was reported last, or None."""
        return self.usage.service_tier or self.started.service_tier


class OpenBlock(msgspec.Struct):
    """A block that is being filled."""

    start: BlockStarted
    text: list[str] = []
    parts: dict[tuple[int, ReasoningForm], list[str]] = {}
    signature: Signature | None = None
    annotations: list[Annotation] = []
    logprobs: list[JSON] = []

    def finish(self, complete: bool) -> AssembledBlock:
        start = self.start
        return AssembledBlock(
            number=start.block,
            kind=start.kind,
            text="".join(self.text),
            choice=start.choice,
            tool=start.tool,
            item_id=start.item_id,
            phase=start.phase,
            reasoning=()
            if not self.parts
            else tuple([ReasoningPart(form, "".join(text)) for (_, form), text in self.parts.items()]),
            signature=self.signature,
            annotations=tuple(self.annotations) if self.annotations else (),
            logprobs=tuple(self.logprobs) if self.logprobs else (),
            complete=complete,
            path=start.path,
        )


class Fold(msgspec.Struct, kw_only=True):
    """Collects legal events: finished() returns a block as soon as it has ended, response() everything at the end.

    usage: the token counts so far.
    """

    usage: Usage = Usage()
    _started: Started | None = None
    _open: dict[int, OpenBlock] = {}
    _order: dict[int, AssembledBlock | Opaque | Compacted | None] = {}
    _stops: list[Stopped] = []
    _error: WireError | None = None

    @property
    def started(self) -> bool:
        return self._started is not None

    def send(self, *following: Event) -> None:
        """Add events."""
        for event in following:
            _ADDERS[type(event)](self, event)

    def _fill(self, event: TextDelta | ArgumentsDelta) -> None:
        self._open[event.block].text.append(event.text)

    def _reason(self, event: ReasoningDelta) -> None:
        self._open[event.block].parts.setdefault((event.part, event.form), []).append(event.text)

    def _start_block(self, event: BlockStarted) -> None:
        self._open[event.block] = OpenBlock(event)
        self._order[event.block] = None

    def _end_block(self, event: BlockEnded) -> None:
        self._order[event.block] = self._open.pop(event.block).finish(event.complete)

    def _annotate(self, event: Annotation) -> None:
        self._open[event.block].annotations.append(event)

    def _add_logprobs(self, event: Logprobs) -> None:
        self._open[event.block].logprobs.extend(event.tokens)

    def _sign(self, event: SignatureDelta) -> None:
        self._open[event.block].signature = event.signature

    def _add_whole(self, event: Opaque | Compacted) -> None:
        self._order[-1 - len(self._order)] = event

    def _count(self, event: Usage) -> None:
        self.usage = self.usage.updated(event)

    def _stop(self, event: Stopped) -> None:
        self._stops.append(event)

    def _start(self, event: Started) -> None:
        self._started = event

    def _fail(self, event: Failed) -> None:
        self._error = event.error

    def end(self, event: Ended) -> None:
        """Is called when the response is complete."""

    def send_texts(self, delta: TextDelta | ReasoningDelta | ArgumentsDelta, texts: list[str]) -> None:
        """Add deltas like this one with other texts."""
        block = self._open[delta.block]
        if isinstance(delta, ReasoningDelta):
            block.parts.setdefault((delta.part, delta.form), []).extend(texts)
        else:
            block.text += texts

    def finished(self, block: int) -> AssembledBlock:
        """Return a block that has ended. Raises LocalProtocolError if it has not."""
        found = self._order.get(block)
        if not isinstance(found, AssembledBlock):
            raise LocalProtocolError(f"block {block} has not ended")
        return found

    def response(self) -> AssembledResponse:
        """Return everything so far. Blocks that are still open (after a failure) are incomplete."""
        if self._started is None:
            raise LocalProtocolError("the response has not started")
        blocks = tuple(
            [
                self._open[number].finish(False) if entry is None else entry
                for number, entry in self._order.items()
            ]
        )
        return AssembledResponse(self._started, blocks, tuple(self._stops), self.usage, self._error)


_ADDERS: dict[type[Event], Callable[[Fold, JSON], None]] = {
    TextDelta: Fold._fill,
    ArgumentsDelta: Fold._fill,
    ReasoningDelta: Fold._reason,
    BlockStarted: Fold._start_block,
    BlockEnded: Fold._end_block,
    Annotation: Fold._annotate,
    Logprobs: Fold._add_logprobs,
    SignatureDelta: Fold._sign,
    Opaque: Fold._add_whole,
    Compacted: Fold._add_whole,
    Usage: Fold._count,
    Stopped: Fold._stop,
    Started: Fold._start,
    Failed: Fold._fail,
    Ended: lambda fold, event: fold.end(event),
}
