"""Which stages an answer goes through, and that each sees what the one before it gives."""

from collections.abc import Sequence

import msgspec
import pytest
from core_events import STARTED, start_of
from core_toy import exchange_of, toy

from dragoman._ir.events import BlockKind, Event, TextDelta
from dragoman._ir.losses import Ledger
from dragoman._ir.request import ResponseFormat, ToolChoice
from dragoman._ir.undo import Book
from dragoman._transforms.compaction import CompactStage
from dragoman._transforms.json_output import BareJsonStage, JsonToolStage
from dragoman._transforms.pipeline import Pipeline, pipeline
from dragoman._transforms.reasoning_cache import Keeper
from dragoman._transforms.response_checks import CheckStage
from dragoman._transforms.signatures import SealStage
from dragoman._transforms.stop_sequences import StopStage
from dragoman._transforms.tool_calls import CallStage
from dragoman.codec import ToolRule

ALWAYS = [SealStage, CallStage]


@pytest.mark.parametrize(
    ("book", "forgets", "stages", "text"),
    [
        (Book(), False, [], False),
        (Book(), True, [Keeper], False),
        (Book(json_tool="t"), False, [JsonToolStage], True),
        (Book(bare_json=True), False, [BareJsonStage], True),
        (Book(stops=("x",)), False, [StopStage], True),
        (Book(compacts=True), False, [CompactStage], True),
        (Book(form=ResponseFormat()), False, [CheckStage], True),
        (Book(choice=ToolChoice("required")), False, [CheckStage], False),
        (
            Book(json_tool="t", stops=("x",), form=ResponseFormat()),
            False,
            [JsonToolStage, StopStage, CheckStage],
            True,
        ),
        (Book(json_tool="t", stops=("x",)), True, [JsonToolStage, StopStage, Keeper], True),
    ],
)
def test_the_stages(book: Book, forgets: bool, stages: list[type[object]], text: bool) -> None:
    exchange = msgspec.structs.replace(exchange_of(), book=book)
    line = pipeline(toy(forgets_seals=forgets), exchange, Ledger(), None)
    assert [type(stage) for stage in line._stages] == [*ALWAYS, *stages]
    assert (line.text, line.keeper is not None) == (text, forgets)


@pytest.mark.parametrize(("n", "ended"), [(None, True), (1, True), (2, False)])
def test_a_stop_ends_the_answer_when_it_has_one_choice(n: int | None, ended: bool) -> None:
    request = msgspec.structs.replace(exchange_of().request, params={} if n is None else {"n": n})
    exchange = msgspec.structs.replace(exchange_of(), book=Book(stops=("x",)), request=request)
    line = pipeline(toy(), exchange, Ledger(), None)
    out = [
        each for event in (STARTED, start_of(BlockKind.TEXT), TextDelta(0, "x")) for each in line.send(event)
    ]
    assert (type(out[-1]).__name__ == "Ended") is ended


CALLS = CallStage(Book(), ToolRule(), "x", Ledger())


class Twice:
    text = True

    def send(self, event: Event) -> Sequence[Event]:
        return (event, event)


class Never:
    text = False

    def send(self, event: Event) -> Sequence[Event]:
        return ()


def test_each_stage_gets_what_the_one_before_gives() -> None:
    assert Pipeline(CALLS, []).send(STARTED) == (STARTED,)
    assert list(Pipeline(CALLS, [Twice(), Twice()]).send(STARTED)) == [STARTED] * 4
    assert list(Pipeline(CALLS, [Twice(), Never(), Twice()]).send(STARTED)) == []
    assert Pipeline(CALLS, [Twice(), Never()]).text
    assert not Pipeline(CALLS, [Never()]).text
