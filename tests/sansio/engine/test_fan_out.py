"""Several responses put together as the choices of one."""

from typing import Any

import msgspec
import pytest
from core.chop import one_by_one
from core.events import ERROR, SIGNATURE, STARTED, start_of
from core.toy_protocol import HEARTBEAT, context_of, events_of, stream_of, toy

from dragoman._engine.fan_out import FanOut
from dragoman._engine.response_machine import Outcome
from dragoman._ir.events import (
    ENDED,
    ArgumentsDelta,
    BlockEnded,
    BlockKind,
    BlockStarted,
    Compacted,
    Event,
    Failed,
    Opaque,
    SignatureDelta,
    Started,
    Stopped,
    StopReason,
    TextDelta,
    Usage,
)
from dragoman._ir.losses import LossCode
from dragoman._wire.errors import ErrorKind, WireError
from dragoman._wire.json import decode, encode

UPSTREAM = toy("upstream", choices=False)
CLIENT = toy("client")
STOP = Stopped(StopReason.END)


USED = Usage(3, 1)


def upstream_response(text: str, *more: Event, usage: Usage = USED) -> list[Event]:
    block_events = [start_of(BlockKind.TEXT), TextDelta(0, text), BlockEnded(0)]
    return [Started(f"up-{text}", "big"), *block_events, *more, STOP, usage, ENDED]


def fan(count: int = 2, client: Any = CLIENT, **options: Any) -> FanOut:
    return FanOut(client=client, upstream=UPSTREAM, context=context_of(), count=count, **options)


def feed(machine: FanOut, number: int, events: list[Event], *, streams: bool = True) -> list[Event]:
    branch = machine.start(number, upstream_streams=streams)
    for chunk in one_by_one(stream_of(events)):
        branch.receive_data(chunk)
    branch.receive_eof()
    machine.merge()
    return events_of(machine.data_to_send())


def test_two_responses_are_two_choices() -> None:
    machine = fan()
    assert feed(machine, 1, upstream_response("b", usage=Usage(3, 2, cached=1))) == [
        Started("up-b", "big"),
        BlockStarted(1, BlockKind.TEXT, 1),
        TextDelta(1, "b"),
        BlockEnded(1),
        Stopped(StopReason.END, choice=1),
    ]
    assert (machine.outcome, machine.committed, machine.heartbeat()) == (Outcome.OPEN, True, HEARTBEAT)
    assert feed(machine, 0, upstream_response("a")) == [
        BlockStarted(0, BlockKind.TEXT, 0),
        TextDelta(0, "a"),
        BlockEnded(0),
        STOP,
        Usage(6, 3, cached=1),
        ENDED,
    ]
    assert (machine.outcome, machine.usage) == (Outcome.COMPLETED, Usage(6, 3, cached=1))
    assert (machine.upstream_model, machine.upstream_id) == ("big", "up-b")
    assert (machine.stop_reason, machine.heartbeat()) == (StopReason.END, b"")


def test_f9_events_before_the_content_commit_nothing() -> None:
    machine = fan()
    out = feed(machine, 0, [Started("up", "big"), Usage(3), Failed(WireError(ErrorKind.SERVER, "broken"))])
    assert [type(each) for each in out] == [Started, Failed]
    assert (machine.outcome, machine.committed) == (Outcome.FAILED, False)


def test_blocks_of_branches_never_share_an_index() -> None:
    blocks: list[Event] = [start_of(BlockKind.TEXT, 1), TextDelta(1, "x"), BlockEnded(1)]
    machine = fan(3)
    numbers: list[int] = []
    for number in range(3):
        out = feed(machine, number, upstream_response("t", *blocks))
        numbers += [each.block for each in out if isinstance(each, BlockStarted)]
    assert sorted(numbers) == [0, 1, 2, 3, 4, 5]


def test_opaque_blocks_stay_with_their_choice() -> None:
    opaque = Opaque("client", "thing", {"x": 1})
    out = feed(fan(), 1, upstream_response("b", opaque))
    assert msgspec.structs.replace(opaque, choice=1) in out


def test_a_summary_stays_as_it_is() -> None:
    machine = fan()
    assert Compacted("so far") in feed(machine, 0, upstream_response("a", Compacted("so far")))


def test_losses_of_each_choice_are_recorded() -> None:
    machine = fan()
    foreign = Opaque("upstream", "thing", {"x": 1}, "/blocks/1")
    feed(machine, 0, upstream_response("a"))
    feed(machine, 1, upstream_response("b", foreign))
    found = [(loss.code, loss.path) for loss in machine.losses]
    assert found == [(LossCode.UNKNOWN_KIND, "/choices/1/blocks/1")]


def test_calls_of_two_branches_have_distinct_ids() -> None:
    """Both responses may number their calls from 0; each branch makes them distinct with its own token."""
    call: list[Event] = [start_of(BlockKind.TOOL_CALL, 1), ArgumentsDelta(1, "{}"), BlockEnded(1)]
    machine = fan(client=toy("client", clients_drop_signatures=True))
    reasoning: list[Event] = [start_of(BlockKind.REASONING, 2), SignatureDelta(2, SIGNATURE), BlockEnded(2)]
    assert machine.cached_reasoning() is None
    feed(machine, 0, upstream_response("a", *call, *reasoning))
    assert machine.cached_reasoning()[0] == ("call-1",)


def test_a_whole_response() -> None:
    machine = fan(client_streams=False)
    for number in range(2):
        branch = machine.start(number, upstream_streams=True)
        branch.receive_data(stream_of(upstream_response("ab"[number])))
        branch.receive_eof()
        assert machine.whole_body() is None
        machine.merge()
    body = decode(machine.data_to_send())
    found = [(each["block"]["choice"], each["block"]["text"]) for each in body["blocks"]]
    assert found == [(0, "a"), (1, "b")]
    assert decode(encode(machine.whole_body())) == body


def test_the_whole_body_of_a_stream() -> None:
    machine = fan(store_response=True)
    feed(machine, 0, upstream_response("a"))
    feed(machine, 1, upstream_response("b"))
    assert len(machine.whole_body()["blocks"]) == 2
    assert fan().whole_body() is None


def test_one_failure_fails_all() -> None:
    machine = fan()
    feed(machine, 0, upstream_response("a"))
    assert feed(machine, 1, [STARTED, Failed(ERROR)]) == [Failed(ERROR)]
    assert (machine.outcome, machine.error) == (Outcome.FAILED, ERROR)
    machine.fail(ERROR)
    machine.receive_eof()
    assert machine.data_to_send() == b""


def test_a_branch_that_breaks_off() -> None:
    machine = fan()
    assert isinstance(feed(machine, 0, upstream_response("a")[:3])[-1], Failed)
    assert machine.error.kind is ErrorKind.TRUNCATED


def test_a_branch_that_never_started() -> None:
    machine = fan()
    feed(machine, 0, upstream_response("a"))
    machine.receive_eof()
    assert [type(each) for each in events_of(machine.data_to_send())] == [Failed]
    assert machine.error.kind is ErrorKind.TRUNCATED


@pytest.mark.parametrize("count", [1, 2, 5])
def test_any_number(count: int) -> None:
    machine = fan(count)
    out = [each for number in range(count) for each in feed(machine, number, upstream_response("a"))]
    assert out[-1] == ENDED
    assert [each.choice for each in out if isinstance(each, Stopped)] == list(range(count))
    assert machine.usage == Usage(3 * count, count)


def test_nothing_is_accepted_after_a_failure() -> None:
    machine = fan()
    for number, events in enumerate(([STARTED, Failed(ERROR)], upstream_response("b"))):
        machine.start(number, upstream_streams=True).receive_data(stream_of(events))
    machine.merge()
    assert events_of(machine.data_to_send()) == [STARTED, Failed(ERROR)]
