"""Responses from the upstream's bytes to the client's, between toy protocols of different habits."""

from functools import partial
from typing import Any

import msgspec
import pytest
from core.chop import PROPERTY, all_ways, cut_at, one_by_one, places
from core.events import ERROR, SIGNATURE, STARTED, responses, start_of
from core.toy_protocol import HEARTBEAT, ToyReader, context_of, events_of, frame_of, plain, stream_of, toy
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
    ArgumentsDelta,
    BlockEnded,
    BlockKind,
    BlockStarted,
    Compacted,
    Event,
    Failed,
    Opaque,
    ReasoningDelta,
    SignatureDelta,
    Stopped,
    StopReason,
    TextDelta,
    ToolHead,
    ToolKind,
    Usage,
)
from dragoman._ir.losses import Ledger, LossCode
from dragoman._ir.request import Reasoning
from dragoman._ir.tools import Grammar
from dragoman._ir.undo import ToolOrigin, Undo
from dragoman._wire import sse as _sse
from dragoman._wire.errors import ErrorKind, WireError
from dragoman._wire.json import decode, encode
from dragoman.codec import ProtocolSpec

UPSTREAM = toy("upstream")
CLIENT = toy("client")  # has choices and parallel blocks
NARROW = toy("narrow", sequential=True, choices=False)  # has neither

STOP = Stopped(StopReason.END)
TEXT: list[Event] = [start_of(BlockKind.TEXT), TextDelta(0, "hé"), TextDelta(0, "llo"), BlockEnded(0)]
HELLO: list[Event] = [STARTED, *TEXT, STOP, Usage(input=3, output=4), ENDED]


def losses_of(ledger: Ledger) -> list[tuple[LossCode, str]]:
    return [(loss.code, loss.path) for loss in ledger]


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


def test_a_stream() -> None:
    for chunks in all_ways(stream_of(HELLO)):
        translator = machine()
        assert events_of(run(translator, chunks)) == HELLO
        assert (translator.outcome, translator.error) == (Outcome.COMPLETED, None)
        assert (translator.stop_reason, translator.usage) == (StopReason.END, Usage(input=3, output=4))
        assert (translator.upstream_model, translator.upstream_id) == (STARTED.model, STARTED.id)
        assert translator.committed
        assert len(translator.losses) == 0


def test_frames_of_no_events_and_of_several() -> None:
    several = b"data: [" + b",".join(encode(plain(event)) for event in HELLO[1:4]) + b"]\n\n"
    data = frame_of(STARTED) + b": ping\n\ndata: []\n\n" + several + b"id: 7\n\n" + stream_of(HELLO[4:])
    for chunks in ([data], one_by_one(data)):
        assert events_of(run(machine(), chunks)) == HELLO


@pytest.mark.parametrize("blank", [b"\n", b"\n\n", b"\n\n\n"], ids=len)
def test_more_blank_lines_than_one_behind_each_frame(blank: bytes) -> None:
    frames = [frame_of(event) + blank for event in HELLO]
    for chunks in (frames, [b"".join(frames)], one_by_one(b"".join(frames))):
        assert events_of(run(machine(), chunks)) == HELLO


def test_a_reader_without_a_fast_path() -> None:
    class Slow(ToyReader):
        def template_for(self, delta: object) -> None:
            return None

    upstream = msgspec.structs.replace(UPSTREAM, stream_reader=lambda response_context, ledger: Slow())
    assert events_of(run(machine(upstream=upstream), [stream_of(HELLO)])) == HELLO


def test_events_go_out_one_by_one() -> None:
    translator = machine()
    for event in HELLO:
        assert translator.data_to_send() == b""
        translator.receive_data(frame_of(event))
        assert translator.data_to_send() == frame_of(event)


def test_e7_committed_with_the_first_content() -> None:
    translator = machine()
    translator.receive_data(frame_of(STARTED) + frame_of(Usage(input=1)))
    assert not translator.committed
    translator.receive_data(frame_of(TEXT[0]))
    assert translator.committed


def test_a_failure_is_no_content() -> None:
    translator = machine()
    translator.receive_data(stream_of([STARTED, Failed(ERROR)]))
    assert not translator.committed


def test_an_unknown_field_of_the_first_event_is_not_content() -> None:
    translator = machine()
    events = [STARTED, Opaque("toy", "message", {"new": 1}, "/new", round_trip=False)]
    translator.receive_data(stream_of(events))
    assert not translator.committed
    translator.receive_data(frame_of(Opaque("toy", "item", {"new": 1}, "/items/0")))
    assert translator.committed


def test_usage_is_complete_and_consistent() -> None:
    translator = machine()
    events = [STARTED, Usage(input=3), Usage(output=2, reasoning=9), STOP, ENDED]
    out = events_of(run(translator, [stream_of(events)]))
    found = [event for event in out if isinstance(event, Usage)]
    assert found == [Usage(input=3), Usage(input=3, output=2, reasoning=2)]
    assert [(loss.code, loss.path) for loss in translator.losses] == [(LossCode.ALTERED, "/usage")]


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


def test_a_whole_response_for_the_client_is_sent_at_the_end() -> None:
    translator = machine(client_streams=False)
    translator.receive_data(stream_of(HELLO[:-1]))
    assert (translator.data_to_send(), translator.heartbeat()) == (b"", b"")
    translator.receive_data(frame_of(ENDED))
    assert decode(translator.data_to_send())["blocks"][0]["block"]["text"] == "héllo"
    assert translator.data_to_send() == b""


def test_the_request_decides_whether_the_client_streams() -> None:
    as_requested = ResponseTranslator(client=CLIENT, upstream=UPSTREAM, context=context_of(stream=False))
    assert run(as_requested, [stream_of(HELLO)]).startswith(b"{")
    reported = ResponseTranslator(
        client=CLIENT, upstream=UPSTREAM, context=context_of(stream=False), client_streams=True
    )
    assert run(reported, [stream_of(HELLO)]).startswith(b"data: ")


def test_heartbeats_while_it_is_open() -> None:
    translator = machine()
    assert translator.heartbeat() == HEARTBEAT
    translator.receive_data(stream_of(HELLO[:-1]) + b"data: ha")
    assert translator.heartbeat() == HEARTBEAT
    translator.receive_data(b"lf\n\n")
    assert translator.outcome is Outcome.FAILED
    assert translator.heartbeat() == b""


# The end, and nothing after it


@pytest.mark.parametrize("end", [ENDED, Failed(ERROR)])
def test_a19_nothing_comes_after_the_end(end: Event) -> None:
    data = stream_of([STARTED, STOP, end, end, STARTED]) + b"data: no json\n\n"
    for chunks in ([data], one_by_one(data)):
        translator = machine()
        out = run(translator, chunks)
        translator.receive_data(b"data: {}\n\n")
        translator.fail(WireError(ErrorKind.TIMEOUT, "late"))
        translator.receive_eof()
        assert out + translator.data_to_send() == stream_of([STARTED, STOP, end])
        assert translator.outcome is (Outcome.COMPLETED if end is ENDED else Outcome.FAILED)
        assert translator.error == (None if end is ENDED else ERROR)


def test_a_last_frame_without_its_blank_line() -> None:
    for tail in (b"", b"\n"):
        translator = machine()
        data = stream_of(HELLO).removesuffix(b"\n\n") + tail
        assert events_of(run(translator, [data])) == HELLO
        assert translator.outcome is Outcome.COMPLETED


def test_the_reader_may_end_the_response_at_eof() -> None:
    translator = machine()
    assert events_of(run(translator, [stream_of(HELLO[:-1])])) == HELLO
    assert translator.outcome is Outcome.COMPLETED


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


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (b"data: no json\n\n", "the upstream's response cannot be read: JSON is malformed"),
        (b'data: {"e":"?"}\n\n', "the upstream's response cannot be read: no toy event"),
        (
            frame_of(TextDelta(9, "a")),
            "the upstream's response cannot be read: TextDelta for block 9, which is not open",
        ),
        (
            frame_of(STARTED),
            "the upstream's response cannot be read: Started is not allowed while the response is active",
        ),
    ],
)
def test_complete_events_come_before_the_error(bad: bytes, message: str) -> None:
    data = stream_of(HELLO[:3]) + bad + stream_of(HELLO[3:])
    for chunks in ([data], one_by_one(data)):
        translator = machine()
        error = failed(translator, run(translator, chunks), *HELLO[:3])
        assert error.message.startswith(message)
        assert error.kind is ErrorKind.UNREADABLE


def test_a_last_frame_that_breaks_the_order() -> None:
    translator = machine()
    out = run(translator, [frame_of(STARTED) + frame_of(ENDED).strip()])
    assert "choice 0 has not stopped" in failed(translator, out, STARTED).message


def test_the_server_reports_a_failure_before_and_after_the_start() -> None:
    for before in ([], HELLO[:1], HELLO[:3]):
        translator = machine()
        translator.receive_data(stream_of(before))
        translator.fail(WireError(ErrorKind.TIMEOUT, "no bytes for a minute"))
        assert failed(translator, translator.data_to_send(), *before).kind is ErrorKind.TIMEOUT


def test_blocks_that_wait_are_dropped_by_a_failure() -> None:
    events: list[Event] = [STARTED, TEXT[0], start_of(BlockKind.TEXT, 1), TextDelta(1, "b"), Failed(ERROR)]
    translator = machine(NARROW)
    assert failed(translator, run(translator, [stream_of(events)]), STARTED, TEXT[0]) == ERROR


@pytest.mark.parametrize("tail", [b"", b"\n\n"])
def test_an_event_that_is_too_large(tail: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upstream_events, "SSEParser", partial(_sse.SSEParser, max_event_bytes=600))
    data = frame_of(STARTED) + b"data: " + b"x" * 595 + tail
    for chunks in (*all_ways(data),) if tail else ([data], one_by_one(data)):
        translator = machine()
        error = failed(translator, run(translator, chunks), STARTED)
        assert "one server-sent event has more than 600 bytes" in error.message


def test_a_failed_response_sends_nothing_to_a_client_that_does_not_stream() -> None:
    translator = machine(client_streams=False)
    assert run(translator, [stream_of(HELLO[:3])]) == b""
    assert (translator.outcome, translator.error.kind) == (Outcome.FAILED, ErrorKind.TRUNCATED)


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


def test_a_whole_response() -> None:
    for chunks in all_ways(whole_of(HELLO)):
        translator = machine(upstream_streams=False)
        assert folded(events_of(run(translator, chunks))) == folded(HELLO)
        assert translator.outcome is Outcome.COMPLETED


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "it is not valid JSON"),
        (b"<html>", "it is not valid JSON"),
        (b"[]", "it must be a JSON object, not an array"),
        (b"{}", "no toy answer"),
        (whole_of(HELLO)[:-9], "it is not valid JSON"),
    ],
)
def test_an_invalid_whole_response(body: bytes, message: str) -> None:
    for streams in (True, False):
        translator = machine(upstream_streams=False, client_streams=streams)
        assert bool(run(translator, [body])) is streams
        assert (translator.outcome, translator.error.kind) == (Outcome.FAILED, ErrorKind.UNREADABLE)
        assert translator.error.message.startswith(f"the upstream's response cannot be read: {message}")


def test_a_whole_response_without_its_end() -> None:
    translator = machine(upstream_streams=False)
    error = failed(translator, run(translator, [encode({"started": {"id": "i", "model": "m"}})]))
    assert error == WireError(ErrorKind.TRUNCATED, "the upstream's response is not complete")


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


# Stages


def test_choices_that_the_client_does_not_support() -> None:
    other: list[Event] = [
        start_of(BlockKind.TEXT, 1, 1),
        start_of(BlockKind.REASONING, 2, 1),
        start_of(BlockKind.TOOL_CALL, 3, 2),
        Opaque("narrow", "thing", {}, choice=1),
        TextDelta(1, "x"),
        ReasoningDelta(2, "x"),
        ArgumentsDelta(3, "x"),
        BlockEnded(1),
        BlockEnded(2),
        BlockEnded(3),
        Stopped(StopReason.MAX_TOKENS, choice=1),
        Stopped(StopReason.END, choice=2),
    ]
    mine: list[Event] = [*TEXT[:2], Opaque("narrow", "mine", {}), *TEXT[2:]]
    translator = machine(msgspec.structs.replace(NARROW, sequential=False))
    events: list[Event] = [STARTED, mine[0], *other, *mine[1:], STOP, ENDED]
    assert events_of(run(translator, [stream_of(events)])) == [STARTED, *mine, STOP, ENDED]
    assert translator.stop_reason is StopReason.END
    found = losses_of(translator.losses)
    assert found == [(LossCode.DROPPED, "/choices/1"), (LossCode.DROPPED, "/choices/2")]


def test_choices_that_the_client_supports() -> None:
    events: list[Event] = [
        STARTED,
        start_of(BlockKind.TEXT, 1, 1),
        TextDelta(1, "x"),
        BlockEnded(1),
        Stopped(StopReason.MAX_TOKENS, choice=1),
        STOP,
        ENDED,
    ]
    translator = machine()
    assert events_of(run(translator, [stream_of(events)])) == events
    assert translator.stop_reason is StopReason.END


def test_opaque_blocks_of_foreign_origin_are_losses() -> None:
    foreign = Opaque("upstream", "web_search", {"x": 1}, "/content/2")
    opaque = Opaque("client", "web_search", {"x": 1}, "/content/3")
    translator = machine()
    events: list[Event] = [STARTED, foreign, opaque, foreign, STOP, ENDED]
    assert events_of(run(translator, [stream_of(events)])) == [STARTED, opaque, STOP, ENDED]
    assert losses_of(translator.losses) == [(LossCode.UNKNOWN_KIND, "/content/2")]


def test_tool_calls_have_the_clients_names() -> None:
    undo = Undo({"p_1": ToolOrigin("pa.tch", None, ToolKind.CUSTOM, wrapped=True)}, frozenset({"c"}))
    events: list[Event] = [
        STARTED,
        BlockStarted(0, BlockKind.TOOL_CALL, tool=ToolHead("c", "p_1")),
        ArgumentsDelta(0, '{"input":"a'),
        ArgumentsDelta(0, '\\n"}'),
        BlockEnded(0),
        Stopped(StopReason.TOOL_USE),
        ENDED,
    ]
    out = events_of(run(machine(undo=undo), [stream_of(events)]))
    assert out == [
        STARTED,
        BlockStarted(0, BlockKind.TOOL_CALL, tool=ToolHead("c_abc123", "pa.tch", ToolKind.CUSTOM)),
        ArgumentsDelta(0, "a"),
        ArgumentsDelta(0, "\n"),
        BlockEnded(0),
        Stopped(StopReason.TOOL_USE),
        ENDED,
    ]


# What a file asks of a model


def with_undo(undo: Undo, events: list[Event], **options: Any) -> tuple[list[Event], ResponseTranslator]:
    """Return the bytes for a streaming client; check that chunks of all sizes give the same."""
    response_context = msgspec.structs.replace(
        context_of(), undo=undo, upstream_model="asked", prompt_tokens=7
    )
    outs = []
    for chunks in all_ways(stream_of(events)):
        translator = ResponseTranslator(client=CLIENT, upstream=UPSTREAM, context=response_context, **options)
        outs.append(events_of(run(translator, chunks)))
    assert all(out == outs[0] for out in outs)
    return outs[0], translator


LETTERS: list[Event] = [
    start_of(BlockKind.TEXT),
    *[TextDelta(0, each) for each in ("a", "b", "c", "d", "X", "Y", "e")],
]


def test_a_stop_sequence_ends_the_response() -> None:
    out, translator = with_undo(Undo(stop_sequences=("XY",)), [STARTED, *LETTERS, BlockEnded(0), STOP, ENDED])
    expected = [STARTED, *LETTERS[:5], BlockEnded(0), Stopped(StopReason.STOP_SEQUENCE, sequence="XY"), ENDED]
    assert out == expected
    assert (translator.outcome, translator.stop_reason) == (Outcome.COMPLETED, StopReason.STOP_SEQUENCE)


def test_usage_of_a_whole_response_counts_when_a_stop_sequence_ends_it() -> None:
    usage = Usage(input=3, output=4)
    translator = machine(undo=Undo(stop_sequences=("XY",)), upstream_streams=False)
    out = events_of(run(translator, [whole_of([STARTED, *LETTERS, BlockEnded(0), STOP, usage, ENDED])]))
    assert (out[1], out[-1]) == (usage, ENDED)
    assert translator.usage == usage
    assert losses_of(translator.losses) == []


def test_text_becomes_a_summary() -> None:
    out, translator = with_undo(Undo(compacts=True), [STARTED, *LETTERS, BlockEnded(0), STOP, ENDED])
    assert out == [STARTED, Compacted("abcdXYe"), Stopped(StopReason.COMPACTION), ENDED]
    assert translator.stop_reason is StopReason.COMPACTION


def test_a_grammar_violation_is_recorded() -> None:
    grammar = Grammar("lark", "start: X")
    undo = Undo({"look": ToolOrigin("look", None, ToolKind.CUSTOM, wrapped=True, grammar=grammar)})
    call = [
        start_of(BlockKind.TOOL_CALL),
        ArgumentsDelta(0, '{"input":"no'),
        ArgumentsDelta(0, 'pe"}'),
        BlockEnded(0),
    ]
    requested: list[tuple[Grammar, str]] = []

    def check(grammar: Grammar, text: str) -> str | None:
        requested.append((grammar, text))
        return "line 1, column 1"

    out, translator = with_undo(undo, [STARTED, *call, STOP, ENDED], check_input=check)
    assert "".join(each.text for each in out if isinstance(each, ArgumentsDelta)) == "nope"
    assert set(map(str, requested)) == {str((grammar, "nope"))}
    found = [(loss.code, loss.path) for loss in translator.losses]
    assert found == [(LossCode.BREACH, "/tool_calls/call-0/input")]


# What is wanted beside the bytes


def test_the_whole_body_of_a_stream() -> None:
    translator = ResponseTranslator(
        client=CLIENT, upstream=UPSTREAM, context=context_of(), store_response=True
    )
    assert events_of(run(translator, one_by_one(stream_of([STARTED, *LETTERS, BlockEnded(0), STOP, ENDED])))) == [
        STARTED, *LETTERS, BlockEnded(0), STOP, ENDED,
    ]  # fmt: skip
    body = translator.whole_body()
    assert [each["block"]["text"] for each in body["blocks"]] == ["abcdXYe"]


def test_the_whole_body_is_kept_only_on_request() -> None:
    translator = machine()
    run(translator, [stream_of(HELLO)])
    assert translator.whole_body() is None
    whole = machine(client_streams=False)
    assert run(whole, [stream_of(HELLO)]) == encode(whole.whole_body())


@pytest.mark.parametrize("forgets", [True, False])
def test_signatures_are_cached_for_clients_that_drop_them(forgets: bool) -> None:
    translator = machine(toy("client", clients_drop_signatures=forgets))
    thinking_block: list[Event] = [start_of(BlockKind.REASONING), SignatureDelta(0, SIGNATURE), BlockEnded(0)]
    call: list[Event] = [start_of(BlockKind.TOOL_CALL, 1), ArgumentsDelta(1, "{}"), BlockEnded(1)]
    run(translator, [stream_of([STARTED, *thinking_block, *call, STOP, ENDED])])
    assert translator.cached_reasoning() == ((("call-1",), (Reasoning("", SIGNATURE),)) if forgets else None)


# Missing usage

COUNTS = toy("counts", needs_usage=True)
ESTIMATED = [(LossCode.ESTIMATED, "/usage")]


@pytest.mark.parametrize(
    ("reported", "shown", "losses"),
    [
        ([Usage(3, 4)], [Usage(3, 4)], []),
        ([], [Usage(7, 2)], ESTIMATED),
        ([Usage(input=3)], [Usage(input=3), Usage(3, 2)], ESTIMATED),
        ([Usage(output=3)], [Usage(output=3), Usage(7, 3)], ESTIMATED),
        ([Usage(0, 0)], [Usage(0, 0)], []),  # it is the upstream's text
    ],
)
def test_estimates(reported: list[Event], shown: list[Event], losses: list[Any]) -> None:
    response_context = msgspec.structs.replace(context_of(), prompt_tokens=7)
    for chunks in all_ways(stream_of([STARTED, *LETTERS, BlockEnded(0), STOP, *reported, ENDED])):
        translator = ResponseTranslator(client=COUNTS, upstream=UPSTREAM, context=response_context)
        out = events_of(run(translator, chunks))
        assert [each for each in out if isinstance(each, Usage)] == shown
        assert translator.usage == shown[-1]
        assert [(loss.code, loss.path) for loss in translator.losses] == losses


def test_an_empty_response_has_no_output() -> None:
    response_context = msgspec.structs.replace(context_of(), prompt_tokens=7)
    translator = ResponseTranslator(client=COUNTS, upstream=UPSTREAM, context=response_context)
    run(translator, [stream_of([STARTED, STOP, ENDED])])
    assert translator.usage == Usage(7, 0)


def test_clients_without_usage_get_no_estimate() -> None:
    requested = msgspec.structs.replace(context_of().request, include_usage=True)
    for client, request, shown in (
        (CLIENT, context_of().request, Usage()),
        (CLIENT, requested, Usage(0, 2)),
        (COUNTS, context_of().request, Usage(0, 2)),
    ):
        response_context = msgspec.structs.replace(context_of(), request=request)
        translator = ResponseTranslator(client=client, upstream=UPSTREAM, context=response_context)
        run(translator, [stream_of([STARTED, *LETTERS, BlockEnded(0), STOP, ENDED])])
        assert translator.usage == shown


def test_arguments_and_reasoning_count_as_output() -> None:
    thinking_block = [start_of(BlockKind.REASONING), ReasoningDelta(0, "abcd"), BlockEnded(0)]
    call = [start_of(BlockKind.TOOL_CALL, 1), ArgumentsDelta(1, '{"a":"bc"}'), BlockEnded(1)]
    translator = machine(COUNTS)
    run(translator, [stream_of([STARTED, *thinking_block, *call, STOP, ENDED])])
    assert translator.usage.output == 4


def test_choices_that_the_client_does_not_support_are_no_output() -> None:
    other = [
        start_of(BlockKind.TEXT, 1, 1),
        TextDelta(1, "abcdefgh"),
        BlockEnded(1),
        Stopped(StopReason.END, choice=1),
    ]
    stream = stream_of([STARTED, *LETTERS, BlockEnded(0), *other, STOP, ENDED])
    for chunks in all_ways(stream):
        translator = machine(toy("counts", needs_usage=True, choices=False))
        run(translator, chunks)
        assert translator.usage.output == 2


def test_an_error_of_the_upstream_is_sent_without_its_secrets() -> None:
    reported = WireError(ErrorKind.SERVER, "no: a secret", code="secret")
    shown = WireError(ErrorKind.SERVER, "no: a ****", code="****")
    response_context = msgspec.structs.replace(context_of(), mask=lambda text: text.replace("secret", "****"))
    translator = ResponseTranslator(client=CLIENT, upstream=UPSTREAM, context=response_context)
    out = run(translator, [stream_of([STARTED, TEXT[0], TextDelta(0, "a secret"), Failed(reported)])])
    assert failed(translator, out, STARTED, TEXT[0], TextDelta(0, "a secret")) == shown
