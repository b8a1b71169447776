"""The legal order of events: every pair of the tables, and random sequences against an independent model."""

# ruff: noqa: E501 -- the tables are read by row

from typing import Any

import pytest
from core.chop import PROPERTY
from core.events import ERROR, HEAD, SAMPLES, SIGNATURE, STARTED, arbitrary, responses, start_of
from hypothesis import given
from hypothesis import strategies as st

from dragoman._ir.event_order import TRANSITIONS, EventOrderChecker, ResponseState
from dragoman._ir.events import (
    ENDED,
    Annotation,
    ArgumentsDelta,
    BlockEnded,
    BlockKind,
    BlockStarted,
    Ended,
    Event,
    Failed,
    Logprobs,
    Opaque,
    ReasoningDelta,
    SignatureDelta,
    Started,
    Stopped,
    StopReason,
    TextDelta,
    Usage,
)
from dragoman._wire.exceptions import LocalProtocolError

STOP = Stopped(StopReason.END)


def checked(*events: Event) -> EventOrderChecker:
    checker = EventOrderChecker()
    for event in events:
        checker.check(event)
    return checker


def refused(checker: EventOrderChecker, event: Event, message: str) -> None:
    """The event is refused, with this message, and the checker stays where it was."""
    before = checker.state, checker.open_blocks
    with pytest.raises(LocalProtocolError, match=message):
        checker.check(event)
    assert (checker.state, checker.open_blocks) == before


# The tables


IN_PHASE: dict[ResponseState, tuple[Event, ...]] = {
    ResponseState.IDLE: (),
    ResponseState.ACTIVE: (STARTED,),
    ResponseState.ENDED: (STARTED, STOP, ENDED),
    ResponseState.FAILED: (STARTED, Failed(ERROR)),
}
# What has to come before an event so that nothing but the phase can forbid it.
BEFORE: dict[type[Event], tuple[Event, ...]] = {
    TextDelta: (start_of(BlockKind.TEXT),),
    Annotation: (start_of(BlockKind.TEXT),),
    Logprobs: (start_of(BlockKind.TEXT),),
    ReasoningDelta: (start_of(BlockKind.REASONING),),
    SignatureDelta: (start_of(BlockKind.REASONING),),
    ArgumentsDelta: (start_of(BlockKind.TOOL_CALL),),
    BlockEnded: (start_of(BlockKind.TEXT),),
    Ended: (STOP,),
}


def test_every_event_type_has_a_sample() -> None:
    assert set(SAMPLES) == {kind for row in TRANSITIONS.values() for kind in row}
    assert set(TRANSITIONS) == set(IN_PHASE) == set(ResponseState)


def test_every_phase_with_every_event(subtests: pytest.Subtests) -> None:
    for phase in ResponseState:
        for kind in SAMPLES:
            with subtests.test(phase=phase, kind=kind):
                before = IN_PHASE[phase] + (BEFORE.get(kind, ()) if phase is ResponseState.ACTIVE else ())
                checker = checked(*before)
                assert checker.state is phase
                after = TRANSITIONS[phase].get(kind)
                if after is None:
                    message = f"{kind.__name__} is not allowed while the response is {phase.value}"
                    refused(checker, SAMPLES[kind], message)
                else:
                    checker.check(SAMPLES[kind])
                    assert checker.state is after


def test_the_transitions_are_those_of_the_design() -> None:
    """Started once and first; Ended or Failed once and last; everything else between."""
    between = set(SAMPLES) - {Started, Ended, Failed}
    assert TRANSITIONS[ResponseState.IDLE] == {Started: ResponseState.ACTIVE, Failed: ResponseState.FAILED}
    assert TRANSITIONS[ResponseState.ACTIVE] == {
        **dict.fromkeys(between, ResponseState.ACTIVE),
        Ended: ResponseState.ENDED,
        Failed: ResponseState.FAILED,
    }
    assert TRANSITIONS[ResponseState.ENDED] == TRANSITIONS[ResponseState.FAILED] == {}


# The rules of blocks and choices


TEXT = start_of(BlockKind.TEXT)

REFUSED: dict[str, tuple[tuple[Event, ...], Event, str]] = {
    "a number twice": ((TEXT,), TEXT, "block 0 has been started already"),
    "a number again": ((TEXT, BlockEnded(0)), TEXT, "block 0 has been started already"),
    "a block in a stopped choice": ((STOP,), TEXT, "choice 0 has stopped: block 0 cannot start in it"),
    "a tool call without a head": ((), BlockStarted(0, BlockKind.TOOL_CALL), "a tool call must have a tool head"),
    "a text with a head": ((), BlockStarted(0, BlockKind.TEXT, tool=HEAD), "no other block may have one"),
    "a second seal": ((start_of(BlockKind.REASONING), SignatureDelta(0, SIGNATURE)), SignatureDelta(0, SIGNATURE), "block 0 has its signature already"),
    "a delta of no block": ((), TextDelta(0, "a"), "TextDelta for block 0, which is not open"),
    "a delta of another kind": ((TEXT,), ArgumentsDelta(0, "{}"), "ArgumentsDelta does not fit the kind of block 0"),
    "the end of no block": ((), BlockEnded(0), "block 0 ends but is not open"),
    "the second end of a block": ((TEXT, BlockEnded(0)), BlockEnded(0), "block 0 ends but is not open"),
    "two stops": ((STOP,), STOP, "choice 0 stops twice"),
    "a stop with open blocks": ((TEXT, start_of(BlockKind.TEXT, 1, 1), start_of(BlockKind.TEXT, 2)), STOP, r"choice 0 stops with open blocks \[0, 2\]"),
    "the end without a stop": ((), ENDED, "choice 0 has not stopped"),
    "the end without the stop of choice 0": ((Stopped(StopReason.END, choice=1),), ENDED, "choice 0 has not stopped"),
    "the end with an open block": ((STOP, start_of(BlockKind.TEXT, 3, 1)), ENDED, r"the response ends with open blocks \[3\]"),
}  # fmt: skip


@pytest.mark.parametrize(("before", "event", "message"), REFUSED.values(), ids=REFUSED)
def test_refused(before: tuple[Event, ...], event: Event, message: str) -> None:
    refused(checked(STARTED, *before), event, message)


def test_choices_stop_on_their_own() -> None:
    checker = checked(
        STARTED,
        TEXT,
        start_of(BlockKind.TEXT, 1, 1),
        BlockEnded(0),
        STOP,
        TextDelta(1, "a"),
        BlockEnded(1),
        Stopped(StopReason.END, choice=1),
        Usage(),
        SAMPLES[Opaque],
        ENDED,
    )
    assert checker.state is ResponseState.ENDED


def test_open_blocks_are_given_oldest_first() -> None:
    checker = checked(STARTED, start_of(BlockKind.TEXT, 5), start_of(BlockKind.TEXT, 2), TextDelta(5, "a"))
    assert checker.open_blocks == [5, 2]
    checker.check(BlockEnded(5))
    assert checker.open_blocks == [2]


# The gateway's own model


class Model:
    """The same grammar in another form: which events a sequence allows next, only from its history."""

    def __init__(self) -> None:
        self.history: list[Event] = []

    def _of(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.history if type(event) is kind]

    def allows(self, event: Event) -> bool:
        started, over = bool(self._of(Started)), bool(self._of(Ended) or self._of(Failed))
        if over:
            return False
        if isinstance(event, Failed):
            return True
        if isinstance(event, Started) or not started:
            return isinstance(event, Started) and not started
        blocks = {each.block: each for each in self._of(BlockStarted)}
        closed = {each.block for each in self._of(BlockEnded)}
        running = {number: each for number, each in blocks.items() if number not in closed}
        stopped = {each.choice for each in self._of(Stopped)}
        match event:
            case BlockStarted(block=number, choice=choice, kind=kind, tool=tool):
                return (
                    number not in blocks
                    and choice not in stopped
                    and (kind.value == "tool_call") == bool(tool)
                )
            case BlockEnded(block=number):
                return number in running
            case Stopped(choice=choice):
                busy = {each.choice for each in running.values()}
                return choice not in stopped and choice not in busy
            case Ended():
                return not running and 0 in stopped
            case Usage() | Opaque():
                return True
        if event.block not in running:  # type: ignore[union-attr]
            return False
        kind = running[event.block].kind.value  # type: ignore[union-attr]
        match event:
            case TextDelta() | Logprobs():
                return kind in ("text", "refusal")
            case Annotation():
                return kind == "text"
            case ArgumentsDelta():
                return kind == "tool_call"
            case ReasoningDelta():
                return kind == "reasoning"
            case SignatureDelta(block=number):
                return kind == "reasoning" and all(each.block != number for each in self._of(SignatureDelta))
        raise AssertionError(event)


def agree(events: list[Event]) -> None:
    """EventOrderChecker and model accept and refuse the same events; a refused event changes nothing."""
    checker, model = EventOrderChecker(), Model()
    for event in events:
        allowed = model.allows(event)
        try:
            checker.check(event)
        except LocalProtocolError:
            assert not allowed
        else:
            assert allowed
            model.history.append(event)


@PROPERTY
@given(st.lists(arbitrary, max_size=30))
def test_arbitrary_sequences(events: list[Event]) -> None:
    agree(events)
    agree([STARTED, *events])


@PROPERTY
@given(responses(choices=2))
def test_generated_responses_are_legal(events: list[Event]) -> None:
    assert checked(*events).state is ResponseState.ENDED
    agree(events)


@PROPERTY
@given(responses(choices=2), st.data())
def test_responses_with_an_illegal_event(events: list[Event], data: st.DataObject) -> None:
    for event in data.draw(st.lists(arbitrary, min_size=1, max_size=4)):
        events.insert(data.draw(st.integers(0, len(events))), event)
    agree(events)
