"""The stages between an upstream's reader and a client's writer, in their order.

Each stage undoes one thing that a pass over the request did, or does one thing that the client's protocol needs. It
takes an event and returns any number. A pipeline has only the stages that its response needs; nearly all need no
stage over text, so deltas bypass the pipeline.
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
    """One stage.

    Attributes:
        needs_text: It needs TextDelta and ReasoningDelta. They bypass a pipeline of stages that do not.
    """

    needs_text: bool

    def send(self, event: Event) -> Sequence[Event]:
        """Return the events that take the place of a legal event."""


class Pipeline:
    """The stages of one response.

    Attributes:
        needs_text: A stage needs TextDelta and ReasoningDelta. If none does, `calls` is the only stage that changes an
            ArgumentsDelta.
        calls: The stage of tool calls.
        reasoning_cache: The stage that collects reasoning for the cache, or None.
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
    """Return the stages that this response needs."""
    undo = context.undo
    calls = ToolCallStage(undo, client.tool_limits, context.id, ledger, check_input)
    stages: list[Stage] = [SignatureStage(client, context.upstream_model, ledger), calls]
    if undo.json_tool is not None:
        stages.append(JsonToolStage(undo.json_tool, ledger))
    if undo.strip_code_fence:
        stages.append(CodeFenceStage())
    if undo.stop_sequences:
        stages.append(
            StopSequenceStage(undo.stop_sequences, single_choice=context.request.params.get("n") in (None, 1))
        )
    if undo.unenforced_format is not None or undo.unenforced_choice is not None:
        stages.append(OutputCheckStage(undo.unenforced_format, undo.unenforced_choice, ledger))
    if undo.compacts:
        stages.append(CompactionStage())
    reasoning_cache = ReasoningCacheStage() if client.clients_drop_signatures else None
    if reasoning_cache is not None:
        stages.append(reasoning_cache)
    return Pipeline(calls, stages, reasoning_cache)
