"""Several open blocks in, one at a time out."""

import pytest
from core.chop import PROPERTY
from core.events import ERROR, STARTED, responses, start_of
from hypothesis import given

from dragoman._engine.linearizer import Linearizer
from dragoman._ir.event_order import EventOrderChecker, ResponseState
from dragoman._ir.events import (
    ENDED,
    BlockEnded,
    BlockKind,
    BlockStarted,
    Event,
    Failed,
    Opaque,
    Stopped,
    StopReason,
    TextDelta,
    Usage,
)

A, B, C = (start_of(BlockKind.TEXT, block) for block in range(3))
TOOL = start_of(BlockKind.TOOL_CALL, 3)


def opaque(number: int) -> Opaque:
    return Opaque("other", "thing", number, f"/{number}")


def sent(linear: Linearizer, *events: Event) -> list[Event]:
    return [each for event in events for each in linear.send(event)]


CASES: dict[str, tuple[list[Event], list[Event]]] = {
    "one block": ([A, TextDelta(0, "a"), BlockEnded(0)], [A, TextDelta(0, "a"), BlockEnded(0)]),
    "two in turns": (
        [A, B, TextDelta(0, "a"), TextDelta(1, "b"), TextDelta(0, "c"), BlockEnded(0), BlockEnded(1)],
        [A, TextDelta(0, "a"), TextDelta(0, "c"), BlockEnded(0), B, TextDelta(1, "b"), BlockEnded(1)],
    ),
    "the second ends first": (
        [A, B, TextDelta(1, "b"), BlockEnded(1), TextDelta(0, "a"), BlockEnded(0)],
        [A, TextDelta(0, "a"), BlockEnded(0), B, TextDelta(1, "b"), BlockEnded(1)],
    ),
    "the next one passes at once after the first": (
        [A, B, C, TextDelta(2, "c"), BlockEnded(2), BlockEnded(0), TextDelta(1, "b")],
        [A, BlockEnded(0), B, TextDelta(1, "b")],
    ),
    "the order of the starts holds": (
        [C, B, A, BlockEnded(0), BlockEnded(1), BlockEnded(2)],
        [C, BlockEnded(2), B, BlockEnded(1), A, BlockEnded(0)],
    ),
    "only an opaque block": ([opaque(1)], [opaque(1)]),
    "an opaque block waits in its place": (
        [A, opaque(1), B, opaque(2), BlockEnded(1), BlockEnded(0)],
        [A, BlockEnded(0), opaque(1), B, BlockEnded(1), opaque(2)],
    ),
    "many opaque blocks, none lost": (
        [A, opaque(1), B, opaque(2), BlockEnded(0), opaque(3), opaque(4), opaque(5), BlockEnded(1)],
        [A, BlockEnded(0), opaque(1), B, BlockEnded(1), opaque(2), opaque(3), opaque(4), opaque(5)],
    ),
    "usage passes": ([A, Usage(input=1)], [A, Usage(input=1)]),
    "a stop waits for the blocks of its choice": (
        [start_of(BlockKind.TEXT, 0, 1), B, BlockEnded(1), Stopped(StopReason.END), BlockEnded(0)],
        [start_of(BlockKind.TEXT, 0, 1), BlockEnded(0), B, BlockEnded(1), Stopped(StopReason.END)],
    ),
    "a failure drops what waits": (
        [A, B, TextDelta(1, "b"), opaque(1), TextDelta(0, "a"), Failed(ERROR)],
        [A, TextDelta(0, "a"), Failed(ERROR)],
    ),
}


@pytest.mark.parametrize(("events", "expected"), CASES.values(), ids=CASES)
def test_order(events: list[Event], expected: list[Event]) -> None:
    assert sent(Linearizer(), *events) == expected


def of_block(events: list[Event], block: int) -> list[Event]:
    return [event for event in events if getattr(event, "block", None) == block]


@PROPERTY
@given(responses(choices=2, parallel=5))
def test_laws(events: list[Event]) -> None:
    linear, checker = Linearizer(), EventOrderChecker()
    out: list[Event] = []
    for event in events:
        sent = linear.send(event)
        for each in sent:
            checker.check(each)
            assert len(checker.open_blocks) <= 1
        out += sent

    assert checker.state is ResponseState.ENDED
    assert sorted(map(repr, out)) == sorted(map(repr, events))  # nothing lost, nothing twice
    starts = [event.block for event in events if isinstance(event, BlockStarted)]
    assert [event.block for event in out if isinstance(event, BlockStarted)] == starts
    for block in starts:
        assert of_block(out, block) == of_block(events, block)
    places = (BlockStarted, Opaque)
    assert [each for each in out if isinstance(each, places)] == [
        each for each in events if isinstance(each, places)
    ]


@PROPERTY
@given(responses(parallel=1))
def test_sequential_blocks_pass_unchanged(events: list[Event]) -> None:
    waits = (Opaque, Usage)  # an opaque block inside of another comes after it
    out = sent(Linearizer(), *events)
    assert [each for each in out if not isinstance(each, waits)] == [
        each for each in events if not isinstance(each, waits)
    ]


def test_the_end_passes() -> None:
    assert sent(Linearizer(), STARTED, Stopped(StopReason.END), ENDED) == [
        STARTED,
        Stopped(StopReason.END),
        ENDED,
    ]
