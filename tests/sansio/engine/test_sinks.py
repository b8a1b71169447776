"""Sinks: the same response as frames, as a document, as both, and as events."""

from typing import Any

import msgspec
import pytest
from core.events import ERROR, STARTED, start_of
from core.toy_protocol import HEARTBEAT, context_of, events_of, frame_of, toy

from dragoman._engine import sinks
from dragoman._engine.sinks import ClientSink, ListSink, WholeSink, client_sink
from dragoman._ir import assembly
from dragoman._ir.assembly import AssembledBlock, AssembledResponse
from dragoman._ir.events import ENDED, BlockEnded, BlockKind, Event, Failed, Stopped, StopReason, TextDelta
from dragoman._ir.losses import Ledger
from dragoman._wire.json import decode, encode
from dragoman.codec import Endpoint, ResponseContext

ANY = toy("any")
NARROW = toy("narrow", sequential=True)
HELLO: list[Event] = [
    STARTED,
    start_of(BlockKind.TEXT),
    TextDelta(0, "hi"),
    BlockEnded(0),
    Stopped(StopReason.END),
    ENDED,
]


def test_frames_come_as_events_go() -> None:
    sink = ClientSink(ANY, context_of(), Ledger())
    for event in HELLO:
        sink.send(event)
        assert events_of(sink.data_to_send()) == [event]
        assert sink.data_to_send() == b""


def test_one_block_at_a_time_where_it_is_required() -> None:
    events: list[Event] = [
        STARTED,
        start_of(BlockKind.TEXT),
        start_of(BlockKind.TEXT, 1),
        TextDelta(1, "b"),
        TextDelta(0, "a"),
        BlockEnded(0),
    ]
    for spec, order in ((ANY, [0, 1, 2, 3, 4, 5]), (NARROW, [0, 1, 4, 5, 2, 3])):
        sink = ClientSink(spec, context_of(), Ledger())
        for event in events:
            sink.send(event)
        assert events_of(sink.data_to_send()) == [events[at] for at in order]


@pytest.mark.parametrize("spec", [ANY, NARROW])
def test_the_fast_path_for_the_open_block(spec: object) -> None:
    sink = ClientSink(spec, context_of(), Ledger())  # type: ignore[arg-type]
    for event in HELLO[:2]:
        sink.send(event)
    sink.data_to_send()
    sink.text_sender(HELLO[2])(["hi"])
    assert events_of(sink.data_to_send()) == [HELLO[2]]


def test_a_waiting_block_has_no_fast_path() -> None:
    sink = ClientSink(NARROW, context_of(), Ledger())
    for event in [STARTED, start_of(BlockKind.TEXT), start_of(BlockKind.TEXT, 1)]:
        sink.send(event)
    sink.data_to_send()
    sink.text_sender(TextDelta(1, "b"))(["b", "c"])
    assert sink.data_to_send() == b""


def test_the_heartbeat_is_the_endpoints() -> None:
    context = context_of()
    assert ClientSink(ANY, context, Ledger()).heartbeat == HEARTBEAT
    context = msgspec.structs.replace(context, endpoint=Endpoint("/x", heartbeat=b"\n"))
    assert ClientSink(ANY, context, Ledger()).heartbeat == b"\n"


def test_what_is_large_is_joined_where_it_is_written() -> None:
    """A caller asks for it in its event loop."""
    sink, long = ClientSink(ANY, context_of(), Ledger()), TextDelta(0, "x" * 300_000)
    events: list[Event] = [*HELLO[:2], long, *HELLO[2:3]]
    for event in events:
        sink.send(event)
    assert list(map(len, sink._out))[1:] == [len(frame_of(HELLO[2]))]
    assert events_of(sink.data_to_send()) == events


def test_what_is_large_is_not_joined_again_with_each_large_event() -> None:
    sink, longs = ClientSink(ANY, context_of(), Ledger()), [TextDelta(0, "x" * 300_000)] * 64
    joins = 0
    for event in [*HELLO[:2], *longs, *HELLO[3:]]:
        pieces = len(sink._out)
        sink.send(event)
        joins += len(sink._out) <= pieces
    assert len(sink._out) == 1  # at the end
    assert joins < 10
    assert events_of(sink.data_to_send()) == [*HELLO[:2], *longs, *HELLO[3:]]


def test_a_document_comes_at_the_end() -> None:
    sink = WholeSink(ANY, context_of(), Ledger())
    for event in HELLO[:2]:
        sink.send(event)
    sink.text_sender(HELLO[2])(["hi"])
    for event in HELLO[3:]:
        assert (sink.data_to_send(), sink.body) == (b"", None)
        sink.send(event)
    out = sink.data_to_send()
    assert out == encode(sink.body)
    assert decode(out)["blocks"][0]["block"]["text"] == "hi"
    assert (sink.data_to_send(), sink.heartbeat) == (b"", b"")


def test_a_long_text_in_a_document_is_encoded_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    parts: list[object] = []
    monkeypatch.setattr(assembly, "LONG_TEXT", 1)
    monkeypatch.setattr(sinks, "encode_long", lambda value: parts.append(value) or encode(value))
    sink = WholeSink(ANY, context_of(), Ledger())
    for event in HELLO:
        sink.send(event)
    assert sink.data_to_send() == encode(sink.body)
    assert parts == [sink.body]


def test_a_failure_gives_no_document() -> None:
    sink = WholeSink(ANY, context_of(), Ledger())
    for event in [*HELLO[:3], Failed(ERROR)]:
        sink.send(event)
    assert (sink.data_to_send(), sink.body) == (b"", None)


def test_frames_and_a_document() -> None:
    sink = ClientSink(ANY, context_of(), Ledger(), store_response=True)
    for event in HELLO[:2]:
        sink.send(event)
    sink.text_sender(HELLO[2])(["hi"])
    for event in HELLO[3:]:
        sink.send(event)
    assert events_of(sink.data_to_send()) == HELLO
    assert (sink.body["blocks"][0]["block"]["text"], sink.heartbeat) == ("hi", HEARTBEAT)


def _recorded(response: AssembledResponse, context: ResponseContext, ledger: Ledger) -> dict[str, Any]:
    texts = [block.text for block in response.blocks if isinstance(block, AssembledBlock)]
    error = None if response.error is None else response.error.message
    return {"model": response.started.model, "texts": texts, "fault": error}


@pytest.mark.parametrize(
    ("events", "body"),
    [
        ([*HELLO[:3], Failed(ERROR)], {"model": "big-model", "texts": ["hi"], "fault": ERROR.message}),
        # Before it began, all that is known of the model is its name.
        ([Failed(ERROR)], {"model": "theirs", "texts": [], "fault": ERROR.message}),
    ],
)
@pytest.mark.parametrize("prints", [True, False])
def test_a_failed_stream_has_a_document_where_the_protocol_has_a_form_for_it(
    prints: bool, events: list[Event], body: dict[str, Any]
) -> None:
    spec = msgspec.structs.replace(ANY, write_whole=_recorded, failed_bodies=prints)
    context = msgspec.structs.replace(context_of(), upstream_model="theirs")
    sink = ClientSink(spec, context, Ledger(), store_response=True)
    for event in events:
        sink.send(event)
    assert sink.body == (body if prints else None)
    assert events_of(sink.data_to_send()) == events


def test_events_as_they_are() -> None:
    sink = ListSink()
    sink.send(STARTED)
    sink.text_sender(HELLO[2])(["hi"])
    assert (sink.events, sink.data_to_send(), sink.heartbeat) == ([STARTED, HELLO[2]], b"", b"")


def test_only_a_client_without_a_stream_gets_the_document(subtests: pytest.Subtests) -> None:
    for streams, store_response, has_body in (
        (True, False, False),
        (False, False, True),
        (False, True, True),
        (True, True, True),
    ):
        with subtests.test(streams=streams, store_response=store_response):
            sink = client_sink(ANY, context_of(), Ledger(), streams=streams, store_response=store_response)
            for event in HELLO:
                sink.send(event)
            assert (sink.body is not None) == has_body
            assert (sink.data_to_send() == encode(sink.body)) == (not streams)
