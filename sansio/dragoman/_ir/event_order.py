"""The legal order of events: one table, one checker, applied to readers and writers alike.

There are three small state machines. The response is IDLE, ACTIVE, ENDED or FAILED; a choice is open or stopped; a
block is open or closed, and its kind decides which deltas it takes. A pair of state and event that is not in the
tables is illegal, whatever made the event.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import get_args

import msgspec

from dragoman._ir import events
from dragoman._ir.events import TOOL_CALL, BlockKind, Event, IdentityEnum
from dragoman._ir.fast_path import Delta
from dragoman._wire.exceptions import LocalProtocolError, ProtocolError
from dragoman._wire.limits import ANNOTATIONS, BLOCKS, OPAQUE_VALUES, CountLimit


class ResponseState(IdentityEnum):
    """The state of a response."""

    IDLE = "idle"
    ACTIVE = "active"
    ENDED = "ended"
    FAILED = "failed"


TRANSITIONS: dict[ResponseState, dict[type[Event], ResponseState]] = {
    ResponseState.IDLE: {events.Started: ResponseState.ACTIVE, events.Failed: ResponseState.FAILED},
    ResponseState.ACTIVE: {
        **{kind: ResponseState.ACTIVE for kind in get_args(Event) if kind is not events.Started},
        events.Ended: ResponseState.ENDED,
        events.Failed: ResponseState.FAILED,
    },
    ResponseState.ENDED: {},
    ResponseState.FAILED: {},
}

# Nothing follows in these.
OVER = (ResponseState.ENDED, ResponseState.FAILED)

# Which deltas may fill a block of each kind.
DELTAS: dict[BlockKind, frozenset[type[Event]]] = {
    BlockKind.TEXT: frozenset({events.TextDelta, events.Annotation, events.Logprobs}),
    BlockKind.REFUSAL: frozenset({events.TextDelta, events.Logprobs}),
    BlockKind.REASONING: frozenset({events.ReasoningDelta, events.SignatureDelta}),
    BlockKind.TOOL_CALL: frozenset({events.ArgumentsDelta}),
}


class EventOrderChecker(msgspec.Struct):
    """Follows one response and refuses an event that may not come now.

    Attributes:
        error: Makes the exception: LocalProtocolError where the caller makes the events, else the peer's.
        state: The state of the response.
    """

    error: Callable[[str], ProtocolError] = LocalProtocolError
    state: ResponseState = ResponseState.IDLE
    _open: dict[int, tuple[frozenset[type[Event]], int]] = {}  # block -> (its deltas, its choice)
    _used: set[int] = set()
    # Dicts for sets: most responses have none of these while they are open, and an empty set takes 150 bytes more.
    _signed: dict[int, None] = {}
    _choices: dict[int, None] = {}  # the stopped ones
    _annotations: int = 0  # so many so far
    _opaque: int = 0

    @property
    def open_blocks(self) -> list[int]:
        """The open blocks, oldest first. None after a failure: blocks that were open then stay unfinished."""
        return list(self._open)

    def check(self, *following: Event) -> None:
        """Accept events in their order, or raise the exception for one, which changes nothing."""
        for event in following:
            try:
                rule = _RULES[self.state][type(event)]
            except KeyError:
                kind, state = type(event).__name__, self.state.value
                raise self.error(f"{kind} is not allowed while the response is {state}") from None
            if rule is not None:
                rule(self, event)

    def _enter(self, event: Event) -> None:
        """Enter the state that follows."""
        self.state = TRANSITIONS[self.state][type(event)]

    def _start_block(self, event: events.BlockStarted) -> None:
        if event.block in self._used:
            raise self.error(f"block {event.block} has been started already")
        if event.choice in self._choices:
            raise self.error(f"choice {event.choice} has stopped: block {event.block} cannot start in it")
        if (event.kind is TOOL_CALL) is not (event.tool is not None):
            raise self.error("a tool call must have a tool head, and no other block may have one")
        if len(self._used) >= BLOCKS.most:
            raise self._too_many(BLOCKS)
        self._used.add(event.block)
        self._open[event.block] = (DELTAS[event.kind], event.choice)

    def _fill(self, event: Delta | events.SignatureDelta | events.Annotation | events.Logprobs) -> None:
        entry = self._open.get(event.block)
        if entry is None:
            raise self.error(f"{type(event).__name__} for block {event.block}, which is not open")
        if type(event) not in entry[0]:
            raise self.error(f"{type(event).__name__} does not fit the kind of block {event.block}")

    def _annotate(self, event: events.Annotation) -> None:
        if self._annotations >= ANNOTATIONS.most:
            raise self._too_many(ANNOTATIONS)
        self._fill(event)
        self._annotations += 1

    def _sign(self, event: events.SignatureDelta) -> None:
        if event.block in self._signed:
            raise self.error(f"block {event.block} has its signature already")
        self._fill(event)
        self._signed[event.block] = None

    def _count_opaque(self, event: events.Opaque) -> None:
        if self._opaque >= OPAQUE_VALUES.most:
            raise self._too_many(OPAQUE_VALUES)
        self._opaque += 1

    def _too_many(self, limit: CountLimit) -> ProtocolError:
        return self.error(limit.message(f"more than {limit.most}", "the response"))

    def _end_block(self, event: events.BlockEnded) -> None:
        if self._open.pop(event.block, None) is None:
            raise self.error(f"block {event.block} ends but is not open")

    def _stop(self, event: events.Stopped) -> None:
        if event.choice in self._choices:
            raise self.error(f"choice {event.choice} stops twice")
        if self._open:
            unfinished = [block for block, (_, choice) in self._open.items() if choice == event.choice]
            if unfinished:
                raise self.error(f"choice {event.choice} stops with open blocks {unfinished}")
        self._choices[event.choice] = None

    def _end(self, event: events.Ended) -> None:
        if self._open:
            raise self.error(f"the response ends with open blocks {list(self._open)}")
        if 0 not in self._choices:
            raise self.error("the response ends but choice 0 has not stopped")
        self._enter(event)

    def _fail(self, event: events.Failed) -> None:
        self._open.clear()
        self._enter(event)


_RULE_OF: dict[type[Event], Callable[..., None]] = {
    events.Started: EventOrderChecker._enter,
    events.BlockStarted: EventOrderChecker._start_block,
    events.TextDelta: EventOrderChecker._fill,
    events.ReasoningDelta: EventOrderChecker._fill,
    events.ArgumentsDelta: EventOrderChecker._fill,
    events.SignatureDelta: EventOrderChecker._sign,
    events.Annotation: EventOrderChecker._annotate,
    events.Logprobs: EventOrderChecker._fill,
    events.Opaque: EventOrderChecker._count_opaque,
    events.BlockEnded: EventOrderChecker._end_block,
    events.Stopped: EventOrderChecker._stop,
    events.Ended: EventOrderChecker._end,
    events.Failed: EventOrderChecker._fail,
}
# None: it may come then, and has no further rule.
_RULES: dict[ResponseState, dict[type[Event], Callable[..., None] | None]] = {
    state: {kind: _RULE_OF.get(kind) for kind in row} for state, row in TRANSITIONS.items()
}
