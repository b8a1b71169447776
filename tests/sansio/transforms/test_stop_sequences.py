"""Stop sequences that the upstream does not support: text in, and the text up to the first of them out."""

from typing import Any

import pytest
from core.events import ERROR, STARTED, start_of
from hypothesis import given
from hypothesis import strategies as st

from dragoman._ir.event_order import EventOrderChecker, ResponseState
from dragoman._ir.events import (
    ENDED,
    Annotation,
    ArgumentsDelta,
    BlockEnded,
    BlockKind,
    Event,
    Failed,
    Logprobs,
    Opaque,
    Stopped,
    StopReason,
    TextDelta,
    Usage,
)
from dragoman._ir.losses import Ledger, LossCode
from dragoman._transforms.stop_sequences import MAX_STOP_CHARS, StopSequenceStage, split_stop_sequences

TEXT, TOOL = BlockKind.TEXT, BlockKind.TOOL_CALL
END = Stopped(StopReason.END)


def hit(stop: str, choice: int = 0) -> Stopped:
    return Stopped(StopReason.STOP_SEQUENCE, choice=choice, sequence=stop)


def staged(stops: list[str], events: list[Event], *, single_choice: bool = True) -> list[Event]:
    stage = StopSequenceStage(stops, single_choice=single_choice)
    checker = EventOrderChecker()
    out = [each for event in events for each in stage.send(event)]
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


@pytest.mark.parametrize(
    ("stops", "deltas", "shown", "found"),
    [
        (["X"], ["abc"], ["abc"], None),
        (["X"], ["abXc"], ["ab"], "X"),
        (["X"], ["X"], [], "X"),
        (["STOP"], ["abST", "OPc"], ["ab"], "STOP"),
        (["STOP"], ["abS", "T", "O", "Pc"], ["ab"], "STOP"),
        (["STOP"], ["abST", "Ac"], ["ab", "STAc"], None),
        (["STOP"], ["abSTO"], ["ab", "STO"], None),
        (["aab"], ["aaa", "b"], ["a"], "aab"),
        (["\n\n"], ["a\n", "\nb"], ["a"], "\n\n"),
        # the one that is complete first, of those that end at one place the longest
        (["aXXXXb", "XX"], ["say aXXXXb"], ["say a"], "XX"),
        (["aXXXXb", "XX"], ["say a", "X", "X", "XXb"], ["say ", "a"], "XX"),
        (["bc", "c"], ["abc"], ["a"], "bc"),
        (["cd", "b"], ["abcd"], ["a"], "b"),
        (["bc", "b"], ["abcd"], ["a"], "b"),
        (["bcd", "c"], ["ab", "x", "cd"], ["a", "bx"], "c"),
        (["é"], ["caf", "é!"], ["caf"], "é"),
    ],
)
def test_text_up_to_the_first_sequence(
    stops: list[str], deltas: list[str], shown: list[str], found: str | None
) -> None:
    out = staged(stops, response(*deltas))
    assert texts(out) == shown
    assert [each for each in out if isinstance(each, Stopped)] == [END if found is None else hit(found)]
    assert out[-1] == ENDED


def test_nothing_follows_the_end() -> None:
    events = [
        *response("aXb")[:-2],
        start_of(TEXT, 1),
        TextDelta(1, "more"),
        BlockEnded(1),
        END,
        Usage(1, 2),
        ENDED,
    ]
    assert staged(["X"], events) == [
        STARTED,
        start_of(TEXT),
        TextDelta(0, "a"),
        BlockEnded(0),
        hit("X"),
        ENDED,
    ]


def test_blocks_that_are_open_are_closed() -> None:
    events: list[Event] = [
        STARTED,
        start_of(TOOL, 1),
        ArgumentsDelta(1, "{X}"),
        start_of(TEXT, 2),
        TextDelta(2, "b"),
        start_of(TEXT, 0),
        TextDelta(0, "aXX"),
    ]
    out = staged(["bXX", "XX"], events)
    assert texts(out) == ["a", "b"]
    assert {each.block for each in out if isinstance(each, BlockEnded)} == {0, 1, 2}


def test_arguments_are_not_looked_at() -> None:
    events: list[Event] = [STARTED, start_of(TOOL), ArgumentsDelta(0, "X"), BlockEnded(0), END, ENDED]
    assert staged(["X"], events) == events


def test_refusals_are_not_looked_at() -> None:
    refusal = [start_of(BlockKind.REFUSAL), TextDelta(0, "X"), BlockEnded(0)]
    assert staged(["X"], [STARTED, *refusal, END, ENDED]) == [STARTED, *refusal, END, ENDED]


def test_annotations_follow_their_text() -> None:
    cite = Annotation(0, "o", {})
    logprobs = Logprobs(0, [{"token": "c"}])
    events = [
        STARTED,
        start_of(TEXT),
        cite,
        TextDelta(0, "aX"),
        logprobs,
        TextDelta(0, "c"),
        logprobs,
        BlockEnded(0),
        END,
        ENDED,
    ]
    out = staged(["XX"], events)
    assert out == [
        STARTED, start_of(TEXT), cite, TextDelta(0, "a"), TextDelta(0, "X"), logprobs, TextDelta(0, "c"), logprobs,
        BlockEnded(0), END, ENDED,
    ]  # fmt: skip


def test_one_of_several_choices_is_ended_and_the_others_go_on() -> None:
    opaque = Opaque("o", "k", {}, choice=0)
    events: list[Event] = [
        STARTED,
        start_of(TEXT, 0, 0),
        start_of(TEXT, 1, 1),
        TextDelta(0, "aXb"),
        TextDelta(0, "more"),
        Annotation(0, "o", {}),
        TextDelta(1, "c"),
        BlockEnded(0),
        opaque,
        start_of(TEXT, 2, 0),
        TextDelta(2, "late"),
        END,
        BlockEnded(1),
        Stopped(StopReason.END, choice=1),
        ENDED,
    ]
    assert staged(["X"], events, single_choice=False) == [
        STARTED,
        start_of(TEXT, 0, 0),
        start_of(TEXT, 1, 1),
        TextDelta(0, "a"),
        BlockEnded(0),
        hit("X"),
        TextDelta(1, "c"),
        BlockEnded(1),
        Stopped(StopReason.END, choice=1),
        ENDED,
    ]


def test_a_failure_sends_waiting_blocks_first() -> None:
    events: list[Event] = [STARTED, start_of(TEXT), TextDelta(0, "aX"), start_of(TOOL, 1), Failed(ERROR)]
    assert staged(["XX"], events)[2:] == [
        TextDelta(0, "a"),
        start_of(TOOL, 1),
        TextDelta(0, "X"),
        Failed(ERROR),
    ]


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
