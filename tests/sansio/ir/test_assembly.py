"""Events to a whole response: many deltas give the same as one."""

import msgspec
import pytest
from core.chop import PROPERTY
from core.events import ERROR, SIGNATURE, STARTED, responses, start_of
from core.toy_protocol import events_of_block
from hypothesis import given

from dragoman._ir.assembly import AssembledBlock, AssembledResponse, Fold, ReasoningPart
from dragoman._ir.events import (
    ENDED,
    Annotation,
    ArgumentsDelta,
    BlockEnded,
    BlockKind,
    BlockStarted,
    Event,
    Failed,
    Logprobs,
    Opaque,
    ReasoningDelta,
    ReasoningForm,
    SignatureDelta,
    Started,
    Stopped,
    StopReason,
    TextDelta,
    ToolHead,
    Usage,
)
from dragoman._wire.exceptions import LocalProtocolError

STOP = Stopped(StopReason.END, "stop")
CITE = Annotation(0, "other", {"n": 1})
HEAD = ToolHead("c1", "look", namespace="n")


def folded(*events: Event) -> AssembledResponse:
    fold = Fold()
    for event in events:
        fold.send(event)
    return fold.response()


def test_started() -> None:
    fold = Fold()
    assert not fold.started
    fold.send(STARTED)
    assert fold.started


BLOCKS: dict[str, tuple[list[Event], AssembledBlock]] = {
    "text": (
        [
            BlockStarted(0, BlockKind.TEXT, item_id="i", phase="final_answer"),
            TextDelta(0, "a"),
            CITE,
            TextDelta(0, "b"),
            Logprobs(0, [{"token": "a"}]),
            Logprobs(0, [{"token": "b"}, {"token": "c"}]),
            BlockEnded(0),
        ],
        AssembledBlock(
            0,
            BlockKind.TEXT,
            "ab",
            item_id="i",
            phase="final_answer",
            annotations=(CITE,),
            logprobs=({"token": "a"}, {"token": "b"}, {"token": "c"}),
        ),
    ),
    "refusal": (
        [start_of(BlockKind.REFUSAL, 4), TextDelta(4, "no"), BlockEnded(4)],
        AssembledBlock(4, BlockKind.REFUSAL, "no"),
    ),
    "tool call": (
        [
            BlockStarted(0, BlockKind.TOOL_CALL, tool=HEAD),
            ArgumentsDelta(0, '{"a"'),
            ArgumentsDelta(0, ":1"),
            BlockEnded(0, complete=False),
        ],
        AssembledBlock(0, BlockKind.TOOL_CALL, '{"a":1', tool=HEAD, complete=False),
    ),
    "reasoning": (
        [
            start_of(BlockKind.REASONING),
            ReasoningDelta(0, "a"),
            ReasoningDelta(0, "s", 0, ReasoningForm.SUMMARY),
            ReasoningDelta(0, "b", 1),
            ReasoningDelta(0, "c"),
            SignatureDelta(0, SIGNATURE),
            BlockEnded(0),
        ],
        AssembledBlock(
            0,
            BlockKind.REASONING,
            "",
            reasoning=(
                ReasoningPart(ReasoningForm.FULL, "ac"),
                ReasoningPart(ReasoningForm.SUMMARY, "s"),
                ReasoningPart(ReasoningForm.FULL, "b"),
            ),
            signature=SIGNATURE,
        ),
    ),
}


@pytest.mark.parametrize(("events", "block"), BLOCKS.values(), ids=BLOCKS)
def test_block(events: list[Event], block: AssembledBlock) -> None:
    assert folded(STARTED, *events, STOP, ENDED) == AssembledResponse(STARTED, (block,), (STOP,), Usage())


def test_blocks_are_in_the_order_of_their_starts() -> None:
    aside, other = Opaque("other", "thing", 1), Opaque("other", "thing", 2)
    assembled = folded(
        STARTED,
        start_of(BlockKind.TEXT, 7),
        aside,
        start_of(BlockKind.TEXT, 2),
        other,
        BlockEnded(2),
        BlockEnded(7),
        STOP,
        ENDED,
    )
    expected = (AssembledBlock(7, BlockKind.TEXT, ""), aside, AssembledBlock(2, BlockKind.TEXT, ""), other)
    assert assembled.blocks == expected


def test_usage_is_cumulative() -> None:
    fold = Fold()
    fold.send(Usage(input=5, output=1, extra={"a": 1}))
    fold.send(Usage(output=9, extra={"b": 2}))
    assert fold.usage == Usage(input=5, output=9, extra={"a": 1, "b": 2})


def test_choices_stop_each() -> None:
    second = Stopped(StopReason.MAX_TOKENS, choice=1)
    assert folded(STARTED, second, STOP, ENDED).stops == (second, STOP)


def test_after_a_failure_open_blocks_are_incomplete() -> None:
    assembled = folded(STARTED, start_of(BlockKind.TEXT), TextDelta(0, "a"), Failed(ERROR))
    blocks = (AssembledBlock(0, BlockKind.TEXT, "a", complete=False),)
    assert assembled == AssembledResponse(STARTED, blocks, (), Usage(), ERROR)


def test_finished() -> None:
    fold = Fold()
    fold.send(start_of(BlockKind.TEXT))
    for block in (0, 1):
        with pytest.raises(LocalProtocolError, match=f"block {block} has not ended"):
            fold.finished(block)
    fold.send(BlockEnded(0))
    assert fold.finished(0) == AssembledBlock(0, BlockKind.TEXT, "")


@pytest.mark.parametrize(
    ("kind", "delta"),
    [
        (BlockKind.TEXT, TextDelta(0, "a")),
        (BlockKind.REASONING, ReasoningDelta(0, "a", 1, ReasoningForm.SUMMARY)),
    ],
)
def test_texts_of_a_run_are_as_if_each_was_sent(kind: BlockKind, delta: TextDelta | ReasoningDelta) -> None:
    fold = Fold()
    for event in (STARTED, start_of(kind), delta):
        fold.send(event)
    fold.send_texts(delta, ["b", "c"])
    each = [msgspec.structs.replace(delta, text=text) for text in "abc"]
    assert fold.response() == folded(STARTED, start_of(kind), *each)


def test_no_response_before_the_start() -> None:
    with pytest.raises(LocalProtocolError, match="has not started"):
        Fold().response()


@pytest.mark.parametrize(
    ("first", "later", "tier"), [("auto", "flex", "flex"), ("auto", None, "auto"), (None, "flex", "flex")]
)
def test_the_last_service_tier_counts(first: str | None, later: str | None, tier: str) -> None:
    assembled = folded(Started("i", "m", service_tier=first), Usage(service_tier=later), ENDED)
    assert assembled.service_tier == tier


@PROPERTY
@given(responses(choices=2))
def test_deltas_fold_like_the_whole(events: list[Event]) -> None:
    """The shortest events for the folded response fold to it again, whatever the deltas were."""
    assembled = folded(*events)
    short: list[Event] = [assembled.started]
    for block in assembled.blocks:
        short += [block] if isinstance(block, Opaque) else events_of_block(block)
    again = folded(*short, *assembled.stops, assembled.usage, ENDED)
    assert _unnumbered(again) == _unnumbered(assembled)
    assert (again.usage, again.stops) == (assembled.usage, assembled.stops)


def _unnumbered(assembled: AssembledResponse) -> list[tuple[object, ...]]:
    """The blocks without the numbers of reasoning parts, which the fold does not keep."""
    return [
        (block,)
        if isinstance(block, Opaque)
        else (
            block.number,
            block.kind,
            block.text,
            block.reasoning,
            block.signature,
            block.annotations,
            block.logprobs,
        )
        for block in assembled.blocks
    ]
