"""Stop sequences that the upstream does not support: text in, and the text up to the first of them out."""

from typing import Any

import pytest
from core.events import STARTED, start_of
from core.passes import through
from hypothesis import given
from hypothesis import strategies as st

from dragoman._ir.event_order import EventOrderChecker, ResponseState
from dragoman._ir.events import ENDED, BlockEnded, BlockKind, Event, Stopped, StopReason, TextDelta
from dragoman._ir.losses import Ledger, LossCode
from dragoman._transforms.stop_sequences import MAX_STOP_CHARS, StopSequenceStage, split_stop_sequences

TEXT, TOOL = BlockKind.TEXT, BlockKind.TOOL_CALL
END = Stopped(StopReason.END)


def staged(stops: list[str], events: list[Event], *, single_choice: bool = True) -> list[Event]:
    stage = StopSequenceStage(stops, single_choice=single_choice)
    checker = EventOrderChecker()
    out = through(stage, events)
    for event in out:
        checker.check(event)
    assert checker.state in (ResponseState.ENDED, ResponseState.FAILED)
    assert stage.ended is (
        single_choice
        and any(each.reason is StopReason.STOP_SEQUENCE for each in out if isinstance(each, Stopped))
    )
    return out


def response(*texts: str) -> list[Event]:
    return [STARTED, start_of(TEXT), *[TextDelta(0, each) for each in texts], BlockEnded(0), END, ENDED]


def texts(events: list[Event]) -> list[str]:
    return [each.text for each in events if isinstance(each, TextDelta)]


@given(
    st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=3),
    st.lists(st.text("abc", max_size=5), max_size=8),
)
def test_any_cut_gives_what_the_whole_text_gives(stops: list[str], deltas: list[str]) -> None:
    """The sequence that is complete first ends the text, of those that end at the same character the longest."""
    text = "".join(deltas)
    first = min(
        ((text.find(each) + len(each), -len(each), each) for each in stops if each in text), default=None
    )
    out = staged(stops, response(*[each for each in deltas if each]))
    shown = "".join(texts(out))
    if first is None:
        assert shown == text
        return
    end, _, stop = first
    assert shown == text[: end - len(stop)]
    assert next(each for each in out if isinstance(each, Stopped)).sequence == stop


@pytest.mark.parametrize(
    ("value", "limit", "theirs", "ours", "lost"),
    [
        ("X", None, "X", (), []),
        (["X"], 1, ["X"], (), []),
        ("X", 0, None, ("X",), []),
        (["X", "Y"], 0, None, ("X", "Y"), []),
        (["a", "b", "c", "d", "e"], 4, ["a", "b", "c", "d"], ("e",), []),
        (["X", ""], 0, None, ("X",), ["/stop/1"]),
        ("x" * (MAX_STOP_CHARS + 1), 0, None, (), ["/stop"]),
        # not for us to judge: the writer does
        ({"x": 1}, 0, {"x": 1}, (), []),
        ([1], 0, [1], (), []),
    ],
)
def test_which_stop_sequences_are_sent(
    value: Any, limit: int | None, theirs: Any, ours: tuple[str, ...], lost: list[str]
) -> None:
    ledger = Ledger()
    assert split_stop_sequences(value, limit, "/stop", ledger) == (theirs, ours)
    assert [(loss.code, loss.path) for loss in ledger] == [(LossCode.DROPPED, path) for path in lost]
