"""Events to a whole response, so that streamed and whole responses cannot differ.

A whole response is never translated by its own rules. Readers of whole bodies return the same events as readers of
streams, Fold collects them, and writers of whole bodies write the result. Stream writers use the same Fold for what a
protocol repeats at the end.
"""

from __future__ import annotations

import msgspec

from dragoman._ir.events import (
    Annotation,
    ArgumentsDelta,
    BlockEnded,
    BlockKind,
    BlockStarted,
    Compacted,
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
from dragoman._wire.json import JSON


class ReasoningPart(msgspec.Struct, frozen=True, gc=False):
    """One paragraph or summary part of a reasoning block.

    Attributes:
        form: The reasoning itself, or a summary.
        text: The characters.
    """

    form: ReasoningForm
    text: str


class AssembledBlock(msgspec.Struct, frozen=True, gc=False):
    """One finished block. It has the fields of its events.

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
            annotations=tuple(self.annotations),
            logprobs=tuple(self.logprobs),
            complete=complete,
            path=start.path,
        )


class Fold:
    """Collects legal events: finished() returns a block as soon as it has ended, response() everything at the end."""

    __slots__ = ("_error", "_open", "_order", "_started", "_stops", "_usage")

    def __init__(self) -> None:
        self._started: Started | None = None
        self._open: dict[int, OpenBlock] = {}
        self._order: dict[int, AssembledBlock | Opaque | Compacted | None] = {}
        self._stops: list[Stopped] = []
        self._usage = Usage()
        self._error: WireError | None = None

    @property
    def started(self) -> bool:
        return self._started is not None

    @property
    def usage(self) -> Usage:
        """The token counts so far."""
        return self._usage

    def send(self, *following: Event) -> None:
        """Add events."""
        for event in following:
            # isinstance() of a struct takes ten times as long as this to say no.
            if type(event) is TextDelta or type(event) is ArgumentsDelta:
                self._open[event.block].text.append(event.text)
            elif type(event) is ReasoningDelta:
                self._open[event.block].parts.setdefault((event.part, event.form), []).append(event.text)
            elif type(event) is BlockStarted:
                self._open[event.block] = OpenBlock(event)
                self._order[event.block] = None
            elif type(event) is BlockEnded:
                self._order[event.block] = self._open.pop(event.block).finish(event.complete)
            elif type(event) is Annotation:
                self._open[event.block].annotations.append(event)
            elif type(event) is Logprobs:
                self._open[event.block].logprobs.extend(event.tokens)
            elif type(event) is SignatureDelta:
                self._open[event.block].signature = event.signature
            elif type(event) is Opaque or type(event) is Compacted:
                self._order[-1 - len(self._order)] = event
            elif type(event) is Usage:
                self._usage = self._usage.updated(event)
            elif type(event) is Stopped:
                self._stops.append(event)
            elif type(event) is Started:
                self._started = event
            elif type(event) is Failed:
                self._error = event.error
            else:  # Ended
                self.end()

    def end(self) -> None:
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
        return AssembledResponse(self._started, blocks, tuple(self._stops), self._usage, self._error)
