"""Events of one stream, pulled one at a time."""

from collections.abc import Iterable
from functools import partial

import msgspec
import pytest
from core.chop import PROPERTY, all_ways, cut_at, places
from core.events import ERROR, STARTED, responses, start_of
from core.toy_protocol import context_of, frame_of, stream_of, toy
from hypothesis import given

from dragoman._engine import upstream_events
from dragoman._engine.event_reader import NEED_DATA, EventReader
from dragoman._ir.events import (
    ENDED,
    BlockEnded,
    BlockKind,
    Event,
    Failed,
    Logprobs,
    ReasoningDelta,
    Stopped,
    StopReason,
    TextDelta,
)
from dragoman._wire import sse as _sse
from dragoman._wire.exceptions import RemoteProtocolError
from dragoman._wire.frame_cutter import MAX_IDLE_BYTES
from dragoman.codec import ProtocolSpec

STOP = Stopped(StopReason.END)
HELLO: list[Event] = [STARTED, start_of(BlockKind.TEXT), TextDelta(0, "a"), BlockEnded(0), STOP, ENDED]


TOY = toy()


def reader(spec: ProtocolSpec = TOY) -> EventReader:
    return EventReader(spec, context_of())


def test_a_name_is_enough() -> None:
    events = EventReader("openai_chat")
    events.receive_data(b'data: {"choices":[{"index":0,"delta":{"content":"Hello"}}]}\n\n')
    assert [type(event).__name__ for event in pulled(events)] == ["Started", "BlockStarted", "TextDelta"]


def pulled(events: EventReader) -> list[Event]:
    out = []
    while (event := events.next_event()) is not NEED_DATA:
        out.append(event)
    return out


def read_in(chunks: Iterable[bytes]) -> list[Event]:
    events = reader()
    out = []
    for chunk in chunks:
        events.receive_data(chunk)
        out += pulled(events)
    events.receive_eof()
    return out + pulled(events)


def test_no_events_yet() -> None:
    assert reader().next_event() is NEED_DATA


@pytest.mark.promise("R4")
def test_in_any_chunks() -> None:
    for chunks in all_ways(stream_of(HELLO)):
        assert read_in(chunks) == HELLO


@PROPERTY
@given(responses(choices=2), places)
def test_any_response(response: list[Event], cuts: list[int]) -> None:
    events = reader()
    for chunk in cut_at(stream_of(response), cuts):
        events.receive_data(chunk)
    events.receive_eof()
    assert pulled(events) == response


HIGH, LOW = "\ud83d", "\ude00"
TEXT: list[Event] = [STARTED, start_of(BlockKind.TEXT)]
REASONING: list[Event] = [STARTED, start_of(BlockKind.REASONING)]
CLOSED: list[Event] = [BlockEnded(0), STOP, ENDED]


@pytest.mark.parametrize(
    ("sent", "got"),
    [
        (
            [*TEXT, TextDelta(0, "a" + HIGH), TextDelta(0, LOW + "b"), *CLOSED],
            [*TEXT, TextDelta(0, "a"), TextDelta(0, "😀b"), *CLOSED],
        ),
        (
            [*TEXT, TextDelta(0, HIGH), TextDelta(0, LOW + HIGH), TextDelta(0, LOW), *CLOSED],
            [*TEXT, TextDelta(0, "😀"), TextDelta(0, "😀"), *CLOSED],
        ),
        (
            [*TEXT, TextDelta(0, HIGH), Logprobs(0, []), TextDelta(0, LOW), *CLOSED],
            [*TEXT, Logprobs(0, []), TextDelta(0, "😀"), *CLOSED],
        ),
        # Half a pair that stays alone is passed on as it is.
        ([*TEXT, TextDelta(0, HIGH), *CLOSED], [*TEXT, TextDelta(0, HIGH), *CLOSED]),
        ([*TEXT, TextDelta(0, HIGH), TextDelta(0, "a"), *CLOSED], [*TEXT, TextDelta(0, HIGH + "a"), *CLOSED]),
        ([*TEXT, TextDelta(0, HIGH), Failed(ERROR)], [*TEXT, TextDelta(0, HIGH), Failed(ERROR)]),
        (
            [*REASONING, ReasoningDelta(0, HIGH), ReasoningDelta(0, LOW, part=1), *CLOSED],
            [*REASONING, ReasoningDelta(0, HIGH), ReasoningDelta(0, LOW, part=1), *CLOSED],
        ),
    ],
)
def test_halves_of_a_surrogate_pair_in_two_deltas_are_joined(sent: list[Event], got: list[Event]) -> None:
    for chunks in all_ways(stream_of(sent)):
        assert read_in(chunks) == got


@pytest.mark.parametrize("end", [ENDED, Failed(ERROR)])
def test_nothing_comes_after_the_end(end: Event) -> None:
    events = reader()
    events.receive_data(stream_of([STARTED, STOP, end, end]) + b"data: no json\n\n")
    assert pulled(events) == [STARTED, STOP, end]
    events.receive_data(b"data: no json\n\n")
    events.receive_eof()
    assert events.next_event() is NEED_DATA


def test_the_reader_may_end_the_response_at_eof() -> None:
    events = reader()
    events.receive_data(stream_of([STARTED, STOP]))
    assert pulled(events) == [STARTED, STOP]
    events.receive_eof()
    assert pulled(events) == [ENDED]


def broken(events: EventReader, message: str) -> None:
    """The error stays."""
    for _ in range(2):
        with pytest.raises(RemoteProtocolError, match=message) as caught:
            events.next_event()
        assert caught.value.status in (400, 502)


@pytest.mark.parametrize(("sent", "message"), [
    (b"data: no json\n\n" + frame_of(STOP), "malformed"),
    (stream_of([TextDelta(0, "a"), STOP]), "TextDelta for block 0, which is not open"),
    (b"", "ended before its end event"),
    (b"data: {", "ended before its end event"),
    (b'data: {"e":', "ended before its end event"),
])  # fmt: skip
def test_complete_events_come_before_the_error(sent: bytes, message: str) -> None:
    events = reader()
    events.receive_data(frame_of(STARTED) + sent)
    events.receive_eof()
    assert events.next_event() == STARTED
    broken(events, message)


def test_what_broke_the_stream_comes_after_all_events_before_it() -> None:
    events = reader()
    for data in (stream_of(HELLO[:2]), stream_of(HELLO[2:3]), b": x\n\n" * (MAX_IDLE_BYTES // 4)):
        events.receive_data(data)
    assert [events.next_event() for _ in range(3)] == HELLO[:3]
    with pytest.raises(RemoteProtocolError, match="without a server-sent event"):
        events.next_event()


def test_an_early_end_of_which_the_protocol_says_nothing() -> None:
    class Mute:
        def read(self, frame: _sse.Frame) -> list[Event]:
            return []

        def eof(self) -> list[Event]:
            return [STARTED]

    events = reader(msgspec.structs.replace(toy(), stream_reader=lambda context, ledger: Mute()))
    events.receive_eof()
    assert events.next_event() == STARTED
    broken(events, "ended without being complete")


def test_an_event_that_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upstream_events, "SSEParser", partial(_sse.SSEParser, max_event_bytes=1000))
    events = reader()
    events.receive_data(frame_of(STARTED) + b"data: " + b"x" * 1000)
    assert events.next_event() == STARTED
    broken(events, "more than 1000 bytes")


def test_a_frame_that_is_nested_too_deep() -> None:
    class Deep:
        def read(self, frame: _sse.Frame) -> list[Event]:
            raise RecursionError

    events = reader(msgspec.structs.replace(toy(), stream_reader=lambda context, ledger: Deep()))
    events.receive_data(b"data: {}\n\n")
    broken(events, "nested too deep")
