"""The same protocol on both sides: the bytes pass, a tap watches, and a cut stream ends in good form."""

import msgspec
import pytest
from core.chop import PROPERTY, all_ways, cut_at, one_by_one, places, two_parts
from core.events import ERROR, STARTED, responses, start_of
from core.toy_protocol import ToyTap, context_of, frame_of, stream_of, toy
from hypothesis import given

from dragoman._engine import relay as _relay
from dragoman._engine.relay import Relay
from dragoman._engine.response_machine import Outcome
from dragoman._ir.assembly import Fold
from dragoman._ir.events import (
    ENDED,
    BlockEnded,
    BlockKind,
    Event,
    Failed,
    Stopped,
    StopReason,
    TextDelta,
    Usage,
)
from dragoman._ir.losses import Ledger
from dragoman._wire.errors import ErrorKind, WireError
from dragoman._wire.frame_cutter import MAX_IDLE_BYTES
from dragoman._wire.json import encode
from dragoman._wire.sse import Frame, SSEParser

STOP = Stopped(StopReason.END)
USAGE = Usage(input=3, output=4)
HELLO: list[Event] = [
    STARTED,
    start_of(BlockKind.TEXT),
    TextDelta(0, "é\u2028"),
    BlockEnded(0),
    STOP,
    USAGE,
    ENDED,
]
TRUNCATED = WireError(ErrorKind.TRUNCATED, "the upstream's response ended without being complete")


def relay(*, streams: bool = True) -> Relay:
    return Relay(protocol=toy(), context=context_of(), streams=streams)


def relayed(chunks: list[bytes], *, streams: bool = True) -> tuple[bytes, Relay]:
    """Return the bytes for the client, read after every chunk, and the relay after the end."""
    machine = relay(streams=streams)
    out = b""
    for chunk in chunks:
        machine.receive_data(chunk)
        out += machine.data_to_send()
    machine.receive_eof()
    return out + machine.data_to_send(), machine


# Byte for byte


def lines(ending: bytes) -> bytes:
    """The stream with comments, event names and other lines between, in one kind of line ending."""
    text = b": hello\n\n" + stream_of(HELLO[:3]) + b"\nid: 7\nevent: x\n" + stream_of(HELLO[3:])
    return text.replace(b"\n", ending)


STREAMS = {
    "LF": lines(b"\n"),
    "CRLF": lines(b"\r\n"),
    "CR": lines(b"\r"),
    "LF CR": lines(b"\n").replace(b"\n\n", b"\n\r"),
    "LF CRLF": lines(b"\n").replace(b"\n\n", b"\n\r\n"),
    "CRLF LF": lines(b"\n").replace(b"\n\n", b"\r\n\n"),
    "CRLF CR": lines(b"\n").replace(b"\n\n", b"\r\n\r"),
    "CR CRLF": lines(b"\n").replace(b"\n\n", b"\r\r\n"),
    "mixed": b"".join(
        frame_of(event).replace(b"\n\n", ending)
        for event, ending in zip(
            HELLO, [b"\n\n", b"\r\n\r\n", b"\r\r", b"\n\r\n", b"\r\n\r", b"\r\r\n", b"\n\r"], strict=True
        )
    ),
    "BOM": b"\xef\xbb\xbf" + lines(b"\n"),
    "more blank lines": lines(b"\n").replace(b"\n\n", b"\n\n\n\n\n"),
    "no blank line at the end": lines(b"\n")[:-2],
    "no end event": stream_of(HELLO[:-1]),
    "half a comment instead of one": stream_of(HELLO[:-1]) + b": bye",
}


@pytest.mark.parametrize("data", STREAMS.values(), ids=STREAMS)
@pytest.mark.promise("R12")
def test_the_bytes_pass(data: bytes) -> None:
    for chunks in all_ways(data):
        out, machine = relayed(chunks)
        # The response may end before the LF of its last CRLF has come.
        assert out.rstrip(b"\r\n") == data.rstrip(b"\r\n")
        assert (machine.outcome, machine.error, machine.usage) == (Outcome.COMPLETED, None, USAGE)


TAILS = {
    "a comment": b": bye\n\n",
    "an event": frame_of(TextDelta(0, "more")),
    "another end": frame_of(ENDED),
    "an error": frame_of(Failed(ERROR)),
    "half a frame": b"data: left ov",
    "blank lines": b"\n\n\n",
}


@pytest.mark.parametrize("tail", TAILS.values(), ids=TAILS)
def test_nothing_is_relayed_after_the_end(tail: bytes) -> None:
    data = stream_of(HELLO)
    for chunks in all_ways(data + tail):
        out, machine = relayed(chunks)
        assert out == data
        assert (machine.outcome, machine.error, machine.usage) == (Outcome.COMPLETED, None, USAGE)


STREAM_ERROR = WireError(ErrorKind.SERVER, "an error")
# What an upstream sends behind an error, and whether it passes.
BEHIND = {
    "nothing": (b"", True),
    "figures": (frame_of(USAGE), True),
    "the error again": (frame_of(Failed(STREAM_ERROR)), True),
    "an end mark": (frame_of(ENDED), True),
    "content": (frame_of(TextDelta(0, "more")), False),
    "a good end": (frame_of(STOP), False),
}


@pytest.mark.promise("R3")
@pytest.mark.parametrize(("tail", "passes"), BEHIND.values(), ids=BEHIND)
def test_no_content_and_no_other_end_is_relayed_after_an_error(tail: bytes, passes: bool) -> None:
    data = stream_of([*HELLO[:3], Failed(STREAM_ERROR)])
    for chunks in all_ways(data + tail):
        out, machine = relayed(chunks)
        assert out == (data + tail if passes else data)
        assert (machine.outcome, machine.error) == (Outcome.FAILED, STREAM_ERROR)


@pytest.mark.promise("R3")
def test_the_last_frame_ends_a_failed_response() -> None:
    machine = relay()
    machine.receive_data(stream_of([*HELLO[:3], Failed(STREAM_ERROR)]))
    assert machine.outcome is Outcome.OPEN
    machine.receive_data(stream_of([USAGE, ENDED, TextDelta(0, "more")]))
    assert machine.outcome is Outcome.FAILED
    assert machine.data_to_send() == stream_of([*HELLO[:3], Failed(STREAM_ERROR), USAGE, ENDED])


@pytest.mark.parametrize("ending", [b"\n", b"\r\n"])
def test_an_end_mark_that_the_model_wrote_is_text(ending: bytes) -> None:
    events = [*HELLO[:2], TextDelta(0, 'data: {"e":"end"}'), *HELLO[3:]]
    data = stream_of(events[:2]) + b'data: {"e":"text","block":0,"text":"x","y":{"e":"end"}}\n\n'
    before, after = data.replace(b"\n", ending), stream_of(events[2:]).replace(b"\n", ending)
    for chunks in ([before, after], [before[:-4], before[-4:] + after], [before + after]):
        out, machine = relayed(chunks)
        assert out == before + after
        assert machine.outcome is Outcome.COMPLETED


@pytest.mark.parametrize("data", STREAMS.values(), ids=STREAMS)
def test_frames_go_out_as_soon_as_they_are_whole(data: bytes) -> None:
    """At any time the sent bytes are all complete frames of the received ones."""
    machine, sent, received = relay(), b"", b""
    for chunk in one_by_one(data):
        machine.receive_data(chunk)
        received += chunk
        sent += machine.data_to_send()
        ours, theirs = SSEParser(), SSEParser()
        assert ours.receive_data(sent) == theirs.receive_data(received)
        assert ours.held_bytes <= 1  # no part of a frame; perhaps one more line end
        assert ours.receive_eof() == []


@PROPERTY
@given(responses(choices=2), places)
def test_any_response(upstream_response: list[Event], cuts: list[int]) -> None:
    data = stream_of(upstream_response)
    out, machine = relayed(cut_at(data, cuts))
    assert out == data
    assert machine.outcome is Outcome.COMPLETED


def test_events_before_the_content_are_not_held_for_ever() -> None:
    machine = relay()
    announced = frame_of(STARTED)
    count = _relay._MAX_OPENING_BYTES // len(announced)
    machine.receive_data(announced * count)
    assert not machine.committed
    machine.receive_data(announced)
    assert machine.committed


@pytest.mark.promise("S7")
def test_too_many_bytes_without_an_event_are_not_a_stream() -> None:
    comments = b": x\n\n" * (MAX_IDLE_BYTES // 10)
    machine = relay()
    for _ in range(3):
        machine.receive_data(comments + comments)
        assert machine.outcome is Outcome.OPEN
        machine.receive_data(b"data: " + comments[:2] + b"\n\n")
    for _ in range(3):
        machine.receive_data(comments)
    assert machine.outcome is Outcome.FAILED
    assert machine.error.message.endswith("bytes without a server-sent event")


LONG: list[Event] = [*HELLO[:2], *[TextDelta(0, f"word {number}") for number in range(700)], *HELLO[3:]]


@pytest.mark.parametrize("ending", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("size", [50, 5_000, 20_000, 10**9])
@pytest.mark.promise("R9")
def test_only_the_end_of_a_long_stream_is_buffered(size: int, ending: bytes) -> None:
    data = stream_of(LONG).replace(b"\n", ending)
    machine, out = relay(), b""
    for at in range(0, len(data), size):
        machine.receive_data(data[at : at + size])
        out += machine.data_to_send()
        assert sum(map(len, machine._recent)) < 20_000 + size
    machine.receive_eof()
    assert out + machine.data_to_send() == data
    assert (machine.outcome, machine.usage) == (Outcome.COMPLETED, USAGE)


@pytest.mark.parametrize("size", [50, 5_000, 10**9])
def test_a_long_stream_that_fails(size: int) -> None:
    data = stream_of([*LONG[:-2], Failed(ERROR)])
    out, machine = relayed([data[at : at + size] for at in range(0, len(data), size)])
    assert out == data
    assert machine.outcome is Outcome.FAILED


# Cut


@pytest.mark.parametrize("data", [lines(b"\n"), lines(b"\r\n"), lines(b"\r")], ids=["LF", "CRLF", "CR"])
def test_a_cut_stream_ends_with_whole_frames_and_an_error(data: bytes) -> None:
    """At every place before the stop reason: the unfinished frame is dropped, and an error follows."""
    end = data.index(b'{"e":"stop"')
    for head, _ in two_parts(data[:end]):
        out, machine = relayed([head])
        assert (machine.outcome, machine.error) == (Outcome.FAILED, TRUNCATED)
        whole = out.removesuffix(frame_of(Failed(TRUNCATED)))
        assert whole != out
        assert head.startswith(whole)
        parser, whole_parser = SSEParser(), SSEParser()
        assert whole_parser.receive_data(whole) == parser.receive_data(head)
        assert whole_parser.receive_eof() == []


def test_an_event_that_never_ends() -> None:
    """The buffer for one event has a limit. A whole event is relayed whatever its size, because it is not buffered."""
    machine = Relay(protocol=toy(), context=context_of(), max_event_bytes=400)
    machine.receive_data(frame_of(STARTED) + b"data: " + b"x" * 300)
    assert machine.outcome is Outcome.OPEN
    machine.receive_data(b"x" * 200)
    assert machine.outcome is Outcome.FAILED
    assert "more than 400 bytes" in machine.error.message
    assert machine.data_to_send() == frame_of(STARTED) + frame_of(Failed(machine.error))
    machine.receive_data(b"\n\n")
    assert machine.data_to_send() == b""


@pytest.mark.promise("R8")
@pytest.mark.parametrize("end", [ENDED, Failed(ERROR)])
def test_no_heartbeat_after_the_last_event(end: Event) -> None:
    machine = relay()
    machine.receive_data(frame_of(end))
    assert machine.heartbeat() == b""


@pytest.mark.parametrize("data", [lines(b"\n"), lines(b"\r\n"), lines(b"\r"), STREAMS["mixed"]])
def test_heartbeats_between_any_two_chunks_change_nothing(data: bytes) -> None:
    machine, out = relay(), b""
    for chunk in one_by_one(data):
        machine.receive_data(chunk)
        out += machine.data_to_send() + machine.heartbeat()
    machine.receive_eof()
    out += machine.data_to_send()
    assert SSEParser().receive_data(out) == SSEParser().receive_data(data)


# Whole responses


def whole_body() -> bytes:
    fold = Fold()
    for event in [*HELLO[:3], BlockEnded(0), USAGE, STOP]:
        fold.send(event)
    return b" " + encode(toy().write_whole(fold.response(), context_of(), Ledger())) + b"\n"


def test_only_a_limited_part_of_a_whole_response_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    data = whole_body()
    monkeypatch.setattr(_relay, "MAX_DOCUMENT_BYTES", len(data) - 1)
    out, machine = relayed([data[:10], data[10:]], streams=False)
    assert (out, machine.usage) == (data, Usage())
    monkeypatch.setattr(_relay, "MAX_DOCUMENT_BYTES", len(data))
    assert relayed([data], streams=False)[1].usage == USAGE


def test_the_whole_body_of_a_stream_is_what_its_protocol_repeats() -> None:
    class Repeats(ToyTap):
        def observe(self, frame: Frame) -> None:
            super().observe(frame)
            self.whole_body = {"seen": True} if self.stream_finished else None

    spec = msgspec.structs.replace(toy(), observer=lambda response_context: Repeats())
    machine = Relay(protocol=spec, context=context_of())
    machine.receive_data(stream_of(HELLO[:-1]))
    assert machine.whole_body() is None
    machine.receive_data(stream_of(HELLO[-1:]))
    assert machine.whole_body() == {"seen": True}
    assert relayed([stream_of(HELLO)])[1].whole_body() is None


# What the client may not see
