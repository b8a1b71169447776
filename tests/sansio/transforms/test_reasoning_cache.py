"""The reasoning cache: what it keeps of a response, and where it restores it when the turn comes back without it."""

from core.events import SIGNATURE, STARTED, start_of
from core.passes import through

from dragoman._ir.events import (
    ENDED,
    BlockEnded,
    BlockKind,
    Event,
    ReasoningDelta,
    SignatureDelta,
    Stopped,
    StopReason,
)
from dragoman._ir.request import Reasoning
from dragoman._transforms.reasoning_cache import ReasoningCacheStage


def cached(*events: Event) -> object:
    reasoning_cache = ReasoningCacheStage()
    assert through(reasoning_cache, events) == [*events]
    return reasoning_cache.cached_reasoning()


REASONING: list[Event] = [
    start_of(BlockKind.REASONING),
    ReasoningDelta(0, "hm"),
    SignatureDelta(0, SIGNATURE),
    BlockEnded(0),
]
CALLS: list[Event] = [start_of(BlockKind.TOOL_CALL, 1), BlockEnded(1)]
END: list[Event] = [Stopped(StopReason.TOOL_USE), ENDED]


def test_calls_and_signatures_are_kept() -> None:
    assert cached(STARTED, *REASONING, *CALLS, *END) == (("call-1",), (Reasoning("", SIGNATURE),))


def test_without_calls_or_signatures_nothing_is_kept() -> None:
    assert cached(STARTED, *REASONING, *END) is None
    assert cached(STARTED, *CALLS, *END) is None


def test_other_choices_are_not_kept() -> None:
    others = [
        start_of(BlockKind.REASONING, 2, 1),
        SignatureDelta(2, SIGNATURE),
        BlockEnded(2),
        start_of(BlockKind.TOOL_CALL, 3, 1),
    ]
    assert cached(STARTED, *others) is None
