"""The stages between an upstream's reader and a client's writer, in their order.

Strategy: each stage undoes one thing that a pass over the request did, or does one thing that the client's
protocol needs; it takes an event and gives any number. Only what this answer needs is put in, and nearly all
answers need no stage that looks at text: their text goes past all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from dragoman._ir.events import Event
from dragoman._ir.losses import Ledger
from dragoman._transforms.compaction import CompactionStage
from dragoman._transforms.json_output import CodeFenceStage, JsonToolStage
from dragoman._transforms.reasoning_cache import ReasoningCacheStage
from dragoman._transforms.response_checks import OutputCheckStage
from dragoman._transforms.signatures import SignatureStage
from dragoman._transforms.stop_sequences import StopSequenceStage
from dragoman._transforms.tool_calls import ToolCallStage
from dragoman.codec import CheckInput, ProtocolSpec, ResponseContext


class Stage(Protocol):
    """text: it must see TextDelta and ReasoningDelta. Those that need not are not asked."""

    needs_text: bool

    def send(self, event: Event) -> Sequence[Event]:
        """The events that take the place of a legal event."""


class Pipeline:
    """The stages of one answer.

    text: TextDelta and ReasoningDelta must go through it, too. Where they need not, `calls` is the only stage that
        does anything about an ArgumentsDelta.
    """

    __slots__ = ("_stages", "calls", "needs_text", "reasoning_cache")

    def __init__(
        self,
        calls: ToolCallStage,
        stages: Sequence[Stage],
        reasoning_cache: ReasoningCacheStage | None = None,
    ) -> None:
        self._stages = tuple(stages)
        self.calls = calls
        self.reasoning_cache = reasoning_cache
        self.needs_text = any(stage.needs_text for stage in stages)

    def send(self, event: Event) -> Sequence[Event]:
        events: Sequence[Event] = (event,)
        for stage in self._stages:
            if len(events) == 1:
                events = stage.send(events[0])
            else:
                events = [out for each in events for out in stage.send(each)]
        return events


def build_pipeline(
    client: ProtocolSpec, context: ResponseContext, ledger: Ledger, check_input: CheckInput | None
) -> Pipeline:
    """The stages that this answer needs."""
    undo = context.undo
    calls = ToolCallStage(undo, client.tool_limits, context.id, ledger, check_input)
    stages: list[Stage] = [SignatureStage(client, context.upstream_model, ledger), calls]
    if undo.json_tool is not None:
        stages.append(JsonToolStage(undo.json_tool, ledger))
    if undo.strip_code_fence:
        stages.append(CodeFenceStage())
    if undo.stop_sequences:
        stages.append(
            StopSequenceStage(undo.stop_sequences, alone=context.request.params.get("n") in (None, 1))
        )
    if undo.unenforced_format is not None or undo.unenforced_choice is not None:
        stages.append(OutputCheckStage(undo.unenforced_format, undo.unenforced_choice, ledger))
    if undo.compacts:
        stages.append(CompactionStage())
    reasoning_cache = ReasoningCacheStage() if client.clients_drop_signatures else None
    if reasoning_cache is not None:
        stages.append(reasoning_cache)
    return Pipeline(calls, stages, reasoning_cache)
