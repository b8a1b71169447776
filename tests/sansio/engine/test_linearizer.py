"""Several open blocks in, one at a time out: what holds for all. Single cases are rows of transforms/stages.txt."""

from core.chop import PROPERTY
from core.events import responses
from hypothesis import given

from dragoman._engine.linearizer import Linearizer
from dragoman._ir.event_order import EventOrderChecker, ResponseState
from dragoman._ir.events import BlockStarted, Event, Opaque, Usage


def sent(linear: Linearizer, *events: Event) -> list[Event]:
    return [each for event in events for each in linear.send(event)]


def of_block(events: list[Event], block: int) -> list[Event]:
    return [event for event in events if getattr(event, "block", None) == block]


@PROPERTY
@given(responses(choices=2, parallel=5))
def test_laws(events: list[Event]) -> None:
    linear, checker = Linearizer(), EventOrderChecker()
    out: list[Event] = []
    for number, event in enumerate(events, 1):
        sent = linear.send(event)
        for each in sent:
            checker.check(each)
            assert len(checker.open_blocks) <= 1
        out += sent
        waiting = number - len(out)
        assert linear.held_bytes >= 64 * waiting
        assert (linear.held_bytes > 0) == (waiting > 0)

    assert checker.state is ResponseState.ENDED
    assert sorted(map(repr, out)) == sorted(map(repr, events))  # nothing lost, nothing twice
    starts = [event.block for event in events if isinstance(event, BlockStarted)]
    assert [event.block for event in out if isinstance(event, BlockStarted)] == starts
    for block in starts:
        assert of_block(out, block) == of_block(events, block)
    places = (BlockStarted, Opaque)
    found = [each for each in out if isinstance(each, places)]
    assert found == [each for each in events if isinstance(each, places)]


@PROPERTY
@given(responses(parallel=1))
def test_sequential_blocks_pass_unchanged(events: list[Event]) -> None:
    waits = (Opaque, Usage)  # an opaque block inside of another comes after it
    out = sent(Linearizer(), *events)
    found = [each for each in out if not isinstance(each, waits)]
    assert found == [each for each in events if not isinstance(each, waits)]
