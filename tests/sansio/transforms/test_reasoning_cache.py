"""The reasoning cache: what it keeps of a response, and where it restores it when the turn comes back without it."""

from collections.abc import Sequence

from core.events import SIGNATURE, STARTED, start_of
from core.passes import pass_context, through
from core.toy_protocol import toy

from dragoman._ir.events import (
    ENDED,
    BlockEnded,
    BlockKind,
    Event,
    ReasoningDelta,
    Signature,
    SignatureDelta,
    Stopped,
    StopReason,
)
from dragoman._ir.request import Message, Reasoning, Request, Text, ToolCall
from dragoman._transforms.reasoning_cache import ReasoningCacheStage, restore_reasoning

CALL = ToolCall("c1", "look", "{}")
OTHER = ToolCall("c2", "look", "{}")
CACHED = (Reasoning("", SIGNATURE), Reasoning("", None))


def recalled(
    *messages: Message, known: tuple[str, ...] = ("c1", "c2")
) -> tuple[tuple[Message, ...], list[tuple[str, ...]]]:
    requested: list[tuple[str, ...]] = []

    def look_up(calls: tuple[str, ...]) -> Sequence[Reasoning] | None:
        requested.append(calls)
        return CACHED if calls == known else None

    request = Request("toy", "m", messages)
    client = toy(clients_drop_signatures=True)
    out = restore_reasoning(request, pass_context(request, client=client, reasoning_lookup=look_up))
    assert (out is request) is (out.messages == messages)
    return out.messages, requested


def test_a_turn_with_calls_gets_its_reasoning_back() -> None:
    user = Message("user", (Text("hi"),))
    turn = Message("assistant", (Text("well"), CALL, OTHER), "/1")
    messages, requested = recalled(user, turn)
    assert requested == [("c1", "c2")]
    reasoning_parts = (Reasoning("", SIGNATURE, path="/1"), Reasoning("", None, path="/1"))
    assert messages == (user, Message("assistant", (*reasoning_parts, Text("well"), CALL, OTHER), "/1"))


def test_readable_reasoning_is_replaced_by_the_signed_one() -> None:
    turn = Message("assistant", (Reasoning("hm"), CALL))
    messages, _ = recalled(turn, known=("c1",))
    assert messages[0].parts == (*CACHED, CALL)


def test_unsigned_reasoning_of_the_clients_protocol_is_replaced() -> None:
    turn = Message("assistant", (Reasoning("hm", Signature("toy", {"reasoning_content": "hm"})), CALL))
    messages, _ = recalled(turn, known=("c1",))
    assert messages[0].parts == (*CACHED, CALL)
    assert recalled(turn)[0] == (turn,)  # nothing was kept


def test_complete_turns_are_not_looked_up() -> None:
    for turn in (
        Message("assistant", (Text("no calls"),)),
        Message("assistant", (Reasoning("hm", SIGNATURE), CALL)),
        Message("user", (CALL,)),
    ):
        assert recalled(turn) == ((turn,), [])


def test_a_turn_that_is_not_cached_is_unchanged() -> None:
    turn = Message("assistant", (CALL,))
    assert recalled(turn) == ((turn,), [("c1",)])


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
