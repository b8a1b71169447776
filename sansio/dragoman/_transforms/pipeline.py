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
from dragoman._transforms.compaction import CompactStage
from dragoman._transforms.json_output import BareJsonStage, JsonToolStage
from dragoman._transforms.reasoning_cache import Keeper
from dragoman._transforms.response_checks import CheckStage
from dragoman._transforms.signatures import SealStage
from dragoman._transforms.stop_sequences import StopStage
from dragoman._transforms.tool_calls import CallStage
from dragoman.codec import CheckInput, Exchange, ProtocolSpec


class Stage(Protocol):
    """text: it must see TextDelta and ReasoningDelta. Those that need not are not asked."""

    text: bool

    def send(self, event: Event) -> Sequence[Event]:
        """The events that take the place of a legal event."""


class Pipeline:
    """The stages of one answer.

    text: TextDelta and ReasoningDelta must go through it, too. Where they need not, `calls` is the only stage that
        does anything about an ArgumentsDelta.
    """

    __slots__ = ("_stages", "calls", "keeper", "text")

    def __init__(self, calls: CallStage, stages: Sequence[Stage], keeper: Keeper | None = None) -> None:
        self._stages = tuple(stages)
        self.calls = calls
        self.keeper = keeper
        self.text = any(stage.text for stage in stages)

    def send(self, event: Event) -> Sequence[Event]:
        events: Sequence[Event] = (event,)
        for stage in self._stages:
            if len(events) == 1:
                events = stage.send(events[0])
            else:
                events = [out for each in events for out in stage.send(each)]
        return events


def pipeline(
    client: ProtocolSpec, exchange: Exchange, ledger: Ledger, check_input: CheckInput | None
) -> Pipeline:
    """The stages that this answer needs."""
    book = exchange.book
    calls = CallStage(book, client.tools, exchange.id, ledger, check_input)
    stages: list[Stage] = [SealStage(client, exchange.upstream_model, ledger), calls]
    if book.json_tool is not None:
        stages.append(JsonToolStage(book.json_tool, ledger))
    if book.bare_json:
        stages.append(BareJsonStage())
    if book.stops:
        stages.append(StopStage(book.stops, alone=exchange.request.params.get("n") in (None, 1)))
    if book.form is not None or book.choice is not None:
        stages.append(CheckStage(book.form, book.choice, ledger))
    if book.compacts:
        stages.append(CompactStage())
    keeper = Keeper() if client.forgets_seals else None
    if keeper is not None:
        stages.append(keeper)
    return Pipeline(calls, stages, keeper)
