"""Responses from the upstream's bytes to the client's, between toy protocols of different habits: laws, and limits."""

from functools import partial
from typing import Any

import msgspec
import pytest
from core.chop import PROPERTY, all_ways, cut_at, one_by_one, places
from core.events import STARTED, responses, start_of
from core.toy_protocol import ToyReader, context_of, events_of, frame_of, stream_of, toy
from hypothesis import given
from hypothesis import strategies as st

from dragoman import UPSTREAMS
from dragoman._engine import upstream_events
from dragoman._engine.response import ResponseTranslator
from dragoman._engine.response_machine import Outcome
from dragoman._ir.assembly import AssembledResponse, Fold
from dragoman._ir.event_order import EventOrderChecker, ResponseState
from dragoman._ir.events import (
    ENDED,
    BlockEnded,
    BlockKind,
    Event,
    Failed,
    Opaque,
    Stopped,
    StopReason,
    TextDelta,
    Usage,
)
from dragoman._ir.losses import Ledger
from dragoman._ir.undo import Undo
from dragoman._wire import sse as _sse
from dragoman._wire.errors import ErrorKind, WireError
from dragoman._wire.json import encode
from dragoman.codec import ProtocolSpec

UPSTREAM = toy("upstream")
CLIENT = toy("client")  # has choices and parallel blocks
NARROW = toy("narrow", sequential=True, choices=False)  # has neither

STOP = Stopped(StopReason.END)
TEXT: list[Event] = [start_of(BlockKind.TEXT), TextDelta(0, "hé"), TextDelta(0, "llo"), BlockEnded(0)]
HELLO: list[Event] = [STARTED, *TEXT, STOP, Usage(input=3, output=4), ENDED]


def machine(
    client: ProtocolSpec = CLIENT,
    *,
    upstream: ProtocolSpec = UPSTREAM,
    upstream_streams: bool = True,
    client_streams: bool = True,
    undo: Undo = Undo(),
) -> ResponseTranslator:
    return ResponseTranslator(
        client=client,
        upstream=upstream,
        context=msgspec.structs.replace(context_of(stream=client_streams), undo=undo),
        upstream_streams=upstream_streams,
    )


def run(translator: ResponseTranslator, chunks: list[bytes]) -> bytes:
    """Return the bytes for the client, read after every chunk and after the end."""
    out = b""
    for chunk in chunks:
        translator.receive_data(chunk)
        out += translator.data_to_send()
    translator.receive_eof()
    return out + translator.data_to_send()


def folded(events: list[Event]) -> AssembledResponse:
    fold = Fold()
    for event in events:
        fold.send(event)
    return fold.response()


def whole_of(events: list[Event]) -> bytes:
    return encode(UPSTREAM.write_whole(folded(events), context_of(), Ledger()))


@PROPERTY
@given(responses(choices=2, origin="client"), places)
def test_any_chunks_give_the_same_bytes(upstream_response: list[Event], cuts: list[int]) -> None:
    data = stream_of(upstream_response)
    whole = run(machine(), [data])
    assert run(machine(), cut_at(data, cuts)) == whole
    assert run(machine(), one_by_one(data)) == whole
    narrow = run(machine(NARROW), [data])
    assert run(machine(NARROW), cut_at(data, cuts)) == narrow


@PROPERTY
@given(responses(choices=3, origin="client"), st.sampled_from([CLIENT, NARROW]))
def test_the_client_gets_a_legal_stream(upstream_response: list[Event], client: ProtocolSpec) -> None:
    translator = machine(client)
    checker = EventOrderChecker()
    for event in events_of(run(translator, [stream_of(upstream_response)])):
        checker.check(event)
        assert not client.sequential or len(checker.open_blocks) <= 1
        assert client.choices or getattr(event, "choice", 0) == 0
    assert checker.state is ResponseState.ENDED
    assert translator.outcome is Outcome.COMPLETED


@PROPERTY
@given(responses(choices=2, origin="client"), st.sampled_from([CLIENT, NARROW]))
def test_streamed_and_whole_are_the_same(upstream_response: list[Event], client: ProtocolSpec) -> None:
    """All four mixtures of a streaming and a whole upstream and client give the same response."""
    stream, whole = stream_of(upstream_response), whole_of(upstream_response)
    as_whole = run(machine(client, client_streams=False), [stream])
    assert run(machine(client, client_streams=False, upstream_streams=False), [whole]) == as_whole
    for data, streams in ((stream, True), (whole, False)):
        events = events_of(run(machine(client, upstream_streams=streams), [data]))
        assert encode(client.write_whole(folded(events), context_of(), Ledger())) == as_whole


# Failures


def failed(translator: ResponseTranslator, out: bytes, *before: Event) -> WireError:
    """The client got these events and then the error, and no success was reported."""
    assert translator.outcome is Outcome.FAILED
    assert translator.error is not None
    assert events_of(out) == [*before, Failed(translator.error)]
    return translator.error


def test_cut_at_every_place_before_the_stop() -> None:
    data = stream_of(HELLO)
    for at in range(data.index(frame_of(STOP)) + 1):
        translator = machine()
        out = run(translator, [data[:at]])
        events_before = HELLO[: len(events_of(out)) - 1]
        assert failed(translator, out, *events_before).kind is ErrorKind.TRUNCATED


def test_a_reader_without_events_at_the_end() -> None:
    class Mute(ToyReader):
        def eof(self) -> list[Event]:
            return []

    upstream = msgspec.structs.replace(UPSTREAM, stream_reader=lambda response_context, ledger: Mute())
    translator = machine(upstream=upstream)
    error = failed(translator, run(translator, [frame_of(STARTED)]), STARTED)
    assert error == WireError(ErrorKind.TRUNCATED, "the upstream's response ended without being complete")


@pytest.mark.parametrize("tail", [b"", b"\n\n"])
def test_an_event_that_is_too_large(tail: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upstream_events, "SSEParser", partial(_sse.SSEParser, max_event_bytes=600))
    data = frame_of(STARTED) + b"data: " + b"x" * 595 + tail
    for chunks in (*all_ways(data),) if tail else ([data], one_by_one(data)):
        translator = machine()
        error = failed(translator, run(translator, chunks), STARTED)
        assert "one server-sent event has more than 600 bytes" in error.message


def exhausted(*arguments: object) -> Any:
    """As encoding does with a value that is nested deeper than the stack allows."""
    raise RecursionError


def test_a_response_that_is_nested_too_deep() -> None:
    class Deep(ToyReader):
        def read(self, frame: _sse.Frame) -> Any:
            return exhausted() if b"deep" in frame.data else super().read(frame)

    upstream = msgspec.structs.replace(UPSTREAM, stream_reader=lambda response_context, ledger: Deep())
    for end in (b"", b"\n\n"):
        translator = machine(upstream=upstream)
        out = run(translator, [frame_of(STARTED) + b'data: "deep"' + end])
        assert "nested too deep" in failed(translator, out, STARTED).message


# Whole responses of the upstream


def test_a_whole_response_in_a_wrong_order() -> None:
    upstream = msgspec.structs.replace(UPSTREAM, read_whole=lambda *_: [STARTED, ENDED])
    translator = machine(upstream=upstream, upstream_streams=False)
    assert "choice 0 has not stopped" in failed(translator, run(translator, [b"{}"])).message


def test_a_whole_response_that_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    data = whole_of(HELLO)
    monkeypatch.setattr(upstream_events, "MAX_DOCUMENT_BYTES", len(data) - 1)
    for chunks in ([data], one_by_one(data)):
        translator = machine(upstream_streams=False)
        error = failed(translator, run(translator, chunks))
        assert f"more than {len(data) - 1} bytes" in error.message
        assert isinstance(translator._upstream_events, upstream_events.WholeEvents)
        assert translator._upstream_events._body == []
    monkeypatch.setattr(upstream_events, "MAX_DOCUMENT_BYTES", len(data))
    translator = machine(upstream_streams=False)
    run(translator, [data])
    assert translator.outcome is Outcome.COMPLETED


PIECES: list[Event] = [TextDelta(0, "abcd")] * 10
OPAQUE: list[Event] = [Opaque("client", "thing", {})] * 10
KEPT = sum(len(frame_of(event)) - 2 for event in (start_of(BlockKind.TEXT), *OPAQUE))


@pytest.mark.parametrize(
    ("name", "limit", "filling", "message"),
    [
        ("MAX_TEXT", 200, PIECES, "200 characters, of which each piece counts 16 more than it has"),
        ("MAX_KEPT_BYTES", KEPT, OPAQUE, f"{KEPT} bytes besides its texts"),
    ],
)
@pytest.mark.parametrize("learns", [True, False])
def test_a_stream_with_too_much(
    name: str, limit: int, filling: list[Event], message: str, learns: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upstream_events, name, limit)
    if not learns:
        monkeypatch.setattr(ToyReader, "template_for", lambda *_: None)
    start: list[Event] = [STARTED, start_of(BlockKind.TEXT), *filling]
    end: list[Event] = [BlockEnded(0), STOP, ENDED]
    first, last = [frame_of(event) for event in start], stream_of(end)
    translator = machine()
    assert events_of(run(translator, [*first, last])) == [*start, *end]
    for chunks in ([*first, first[-1], last], [*first, first[-1] + last]):
        translator = machine()
        out = run(translator, chunks)
        error = failed(translator, out, *events_of(out)[:-1])
        assert error.message == f"the upstream's response cannot be read: it has more than {message}"


@pytest.mark.parametrize("client", UPSTREAMS)
def test_no_client_gets_the_end_of_a_stream_with_too_much(
    client: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upstream_events, "MAX_TEXT", 200)
    outcomes = {}
    for pieces in (10, 11):
        translator = ResponseTranslator(client=client, upstream=UPSTREAM, context=context_of())
        texts: list[Event] = [TextDelta(0, "abcd")] * pieces
        events: list[Event] = [STARTED, start_of(BlockKind.TEXT), *texts, BlockEnded(0), STOP, ENDED]
        out = run(translator, list(map(frame_of, events)))
        outcomes[translator.outcome] = b"it has more than 200 characters" in out
        ends = [b'"stop"', b'"end_turn"', b'"status":"completed"', b'"finishReason":"STOP"', b'"done":true']
        assert any(end in out for end in ends) is (translator.outcome is Outcome.COMPLETED)
    assert outcomes == {Outcome.COMPLETED: False, Outcome.FAILED: True}
