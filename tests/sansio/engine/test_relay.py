"""The same protocol on both sides: the bytes pass, a tap watches, and a cut stream ends in good form."""

import msgspec
import pytest
from core.chop import PROPERTY, all_ways, cut_at, one_by_one, places, two_parts
from core.events import ERROR, STARTED, responses, start_of
from core.toy_protocol import HEARTBEAT, ToyTap, context_of, frame_of, stream_of, toy
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
from dragoman._wire.json import decode, encode
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
GONE = WireError(ErrorKind.UNREACHABLE, "the upstream went away")
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


def test_the_last_event_completes_the_response() -> None:
    """The outcome does not wait for the end of the connection."""
    machine = relay()
    machine.receive_data(stream_of(HELLO[:-1]))
    assert machine.outcome is Outcome.OPEN
    machine.receive_data(frame_of(ENDED))
    assert (machine.outcome, machine.usage) == (Outcome.COMPLETED, USAGE)


@pytest.mark.parametrize("ending", [b"\n", b"\r\n"])
def test_an_end_mark_that_the_model_wrote_is_text(ending: bytes) -> None:
    events = [*HELLO[:2], TextDelta(0, 'data: {"e":"end"}'), *HELLO[3:]]
    data = stream_of(events[:2]) + b'data: {"e":"text","block":0,"text":"x","y":{"e":"end"}}\n\n'
    before, after = data.replace(b"\n", ending), stream_of(events[2:]).replace(b"\n", ending)
    for chunks in ([before, after], [before[:-4], before[-4:] + after], [before + after]):
        out, machine = relayed(chunks)
        assert out == before + after
        assert machine.outcome is Outcome.COMPLETED


@pytest.mark.parametrize("before", [b"", b": hello\n\n"], ids=["alone", "behind a comment"])
def test_an_end_without_content_is_a_failure(before: bytes) -> None:
    out, machine = relayed([before + frame_of(ENDED)])
    assert (machine.outcome, machine.committed) == (Outcome.FAILED, False)
    assert machine.error.kind is ErrorKind.TRUNCATED
    assert frame_of(ENDED) not in out
    assert out == relayed([before, frame_of(ENDED)])[0], "what comes in one read with it passes as before it"
    assert out.startswith(before)


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


def test_an_error_in_the_stream_passes() -> None:
    data = stream_of([STARTED, USAGE, Failed(ERROR)])
    for chunks in all_ways(data):
        out, machine = relayed(chunks)
        assert out == data
        assert (machine.outcome, machine.error, machine.usage) == (Outcome.FAILED, ERROR, USAGE)


def test_f8_an_error_before_the_content_is_sent_and_commits_nothing() -> None:
    machine = relay()
    machine.receive_data(stream_of([STARTED, Failed(ERROR)]))
    machine.receive_eof()
    assert (machine.outcome, machine.error, machine.committed) == (Outcome.FAILED, ERROR, False)


def test_f9_an_error_before_the_content_is_reported_at_once() -> None:
    """Some servers send nothing after it and leave the connection open; other bytes are relayed."""
    machine = relay()
    data = stream_of([STARTED, Failed(ERROR)])
    machine.receive_data(data)
    assert (machine.outcome, machine.error, machine.committed) == (Outcome.OPEN, ERROR, False)
    machine.receive_data(b": more\n\n")
    assert machine.data_to_send() == data + b": more\n\n"


def test_committed_with_the_first_frame_of_content() -> None:
    machine = relay()
    machine.receive_data(b": hello\n\n" + frame_of(STARTED) + b"data: ")
    assert not machine.committed
    machine.receive_data(frame_of(start_of(BlockKind.TEXT)).removeprefix(b"data: "))
    assert machine.committed


def test_committed_however_many_frames_come_before_the_content() -> None:
    machine = relay()
    machine.receive_data(b": hello\n\n" * 20 + frame_of(STARTED) + frame_of(start_of(BlockKind.TEXT)))
    assert machine.committed


def test_committed_with_the_end_of_an_empty_response() -> None:
    machine = relay()
    machine.receive_data(frame_of(STARTED) + frame_of(ENDED))
    assert (machine.committed, machine.outcome) == (True, Outcome.COMPLETED)


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


def test_an_unfinished_frame_that_is_no_end_is_dropped() -> None:
    """The client does not get it, so nothing is committed by it and the tap does not count it."""
    _, machine = relayed([frame_of(STARTED)[:-2]])
    assert (machine.committed, machine.usage, machine.error) == (False, Usage(), TRUNCATED)
    _, machine = relayed([stream_of(HELLO[:2]) + frame_of(USAGE)[:-2]])
    assert (machine.committed, machine.usage, machine.error) == (True, Usage(), TRUNCATED)


def test_an_unfinished_frame_after_the_end_is_a_failure() -> None:
    """As of servers that end with a stop reason, and send no end event."""
    data = stream_of(HELLO[:-1])[:-2]
    out, machine = relayed([data])
    assert (out, machine.usage, machine.outcome) == (data, USAGE, Outcome.COMPLETED)


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


ERROR_LINE = b"error: " + frame_of(Failed(ERROR)).strip().removeprefix(b"data: ")
BARE_LINE = ERROR_LINE.removeprefix(b"error: ")


@pytest.mark.parametrize("tail", [b"\n\n", b"\n\n" + frame_of(ENDED), b"\r\n\r\n", b"\n", b""])
@pytest.mark.parametrize("before", [[], [STARTED, USAGE]])
@pytest.mark.parametrize("line", [ERROR_LINE, BARE_LINE, b"[" + BARE_LINE + b"]"])
def test_an_error_that_clients_skip_is_rewritten_in_their_form(
    line: bytes, before: list[Event], tail: bytes
) -> None:
    content_started = stream_of(before)
    for chunks in all_ways(content_started + line + tail):
        out, machine = relayed(chunks)
        assert out == content_started + frame_of(Failed(ERROR))
        assert (machine.outcome, machine.error) == (Outcome.FAILED, ERROR)


def test_an_error_after_the_end_is_ignored() -> None:
    out, machine = relayed([stream_of(HELLO[:-1]) + ERROR_LINE + b"\n\n"])
    assert (out, machine.outcome) == (stream_of(HELLO[:-1]), Outcome.COMPLETED)


def test_an_error_beside_data_is_another_field() -> None:
    data = stream_of(HELLO)
    data = data.replace(b"\n\n", b"\nerror: x\n\n", 1)
    for chunks in all_ways(data):
        out, machine = relayed(chunks)
        assert (out, machine.outcome) == (data, Outcome.COMPLETED)


def test_an_error_without_a_message_is_an_error() -> None:
    _, machine = relayed([b"error:\n\n"])
    assert machine.error.kind is ErrorKind.UNREADABLE


def test_the_server_reports_a_failure() -> None:
    machine = relay()
    machine.receive_data(frame_of(STARTED) + b"data: half")
    assert machine.data_to_send() == frame_of(STARTED)
    machine.fail(GONE)
    assert machine.data_to_send() == frame_of(Failed(GONE))
    assert (machine.outcome, machine.error) == (Outcome.FAILED, GONE)


def test_no_error_after_the_end() -> None:
    """The upstream resets the connection after everything but the end event."""
    data = stream_of(HELLO[:-1])
    machine = relay()
    machine.receive_data(data)
    machine.fail(GONE)
    assert machine.data_to_send() == data
    assert (machine.outcome, machine.error) == (Outcome.COMPLETED, None)
    machine.fail(GONE)
    assert machine.data_to_send() == b""


def test_no_second_error() -> None:
    data = stream_of([STARTED, Failed(ERROR)])
    machine = relay()
    machine.receive_data(data)
    machine.fail(GONE)
    assert machine.data_to_send() == data
    assert (machine.outcome, machine.error.kind) == (Outcome.FAILED, ErrorKind.SERVER)


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


def test_heartbeats_while_it_streams() -> None:
    machine = relay()
    assert machine.heartbeat() == HEARTBEAT
    machine.receive_data(frame_of(STARTED) + b"data: ha")
    assert machine.heartbeat() == HEARTBEAT
    machine.receive_data(b"lf\n\n" + stream_of(HELLO[1:]))
    assert machine.heartbeat() == b""  # the end is out: nothing may follow
    machine.receive_eof()
    assert machine.heartbeat() == b""


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


def test_a_whole_response_is_relayed_as_it_comes() -> None:
    data = whole_body()
    for chunks in all_ways(data):
        out, machine = relayed(chunks, streams=False)
        assert out == data
        assert (machine.outcome, machine.usage) == (Outcome.COMPLETED, USAGE)
        assert (machine.stop_reason, machine.upstream_model) == (StopReason.END, STARTED.model)
        assert machine.upstream_id == STARTED.id
        assert machine.committed


def test_only_the_first_choice_has_the_stop_reason() -> None:
    stops = [{"reason": "max_tokens", "choice": 1}]
    body = encode({"started": {"id": "i", "model": "m"}, "blocks": [], "stops": stops})
    _, machine = relayed([body], streams=False)
    assert (machine.stop_reason, machine.upstream_id) == (None, "i")


def test_an_unreadable_whole_response_is_relayed() -> None:
    out, machine = relayed([b'{"blocks":5}'], streams=False)
    assert (out, machine.outcome, machine.usage) == (b'{"blocks":5}', Outcome.COMPLETED, Usage())


@pytest.mark.parametrize("data", [b"{}", b'{"detail":"ok"}'])
def test_a_document_without_a_response_is_a_failure(data: bytes) -> None:
    _, machine = relayed([data], streams=False)
    assert machine.outcome is Outcome.FAILED
    expected = WireError(ErrorKind.UNREADABLE, "the upstream's response cannot be read: it has no blocks")
    assert machine.error == expected


def test_the_required_member_of_a_whole_response() -> None:
    """Not every document that is relayed is a response."""
    machine = Relay(protocol=toy(), context=context_of(), streams=False, member="tokens")
    machine.receive_data(b'{"tokens":5}')
    machine.receive_eof()
    assert machine.outcome is Outcome.COMPLETED


@pytest.mark.parametrize("data", [b"<html>", b'{"started":', b"[]", b""])
def test_a_whole_response_that_is_not_an_object_is_a_failure(data: bytes) -> None:
    """The bytes are there for a caller that had sent them already; one that held them back sends an error."""
    out, machine = relayed([data], streams=False)
    assert (out, machine.outcome) == (data, Outcome.FAILED)
    assert machine.error.kind is ErrorKind.UNREADABLE
    assert machine.error.message.startswith("the upstream's response cannot be read: it ")


def test_f9_a_whole_response_that_is_an_error_is_a_failure() -> None:
    data = encode({"failed": {"kind": "server", "message": "broken"}})
    out, machine = relayed([data], streams=False)
    assert (out, machine.outcome) == (data, Outcome.FAILED)
    assert machine.error == WireError(ErrorKind.SERVER, "broken")


def test_only_a_limited_part_of_a_whole_response_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    data = whole_body()
    monkeypatch.setattr(_relay, "MAX_DOCUMENT_BYTES", len(data) - 1)
    out, machine = relayed([data[:10], data[10:]], streams=False)
    assert (out, machine.usage) == (data, Usage())
    monkeypatch.setattr(_relay, "MAX_DOCUMENT_BYTES", len(data))
    assert relayed([data], streams=False)[1].usage == USAGE


def test_a_whole_response_has_no_heartbeat_and_no_error_event() -> None:
    machine = relay(streams=False)
    assert machine.heartbeat() == b""
    machine.receive_data(b'{"started":')
    machine.fail(GONE)
    assert machine.data_to_send() == b'{"started":'
    assert (machine.outcome, machine.error) == (Outcome.FAILED, GONE)
    machine.receive_eof()
    assert machine.outcome is Outcome.FAILED


def test_the_whole_body() -> None:
    data = whole_body()
    machine = relay(streams=False)
    machine.receive_data(data)
    assert machine.whole_body() is None
    machine.receive_eof()
    assert machine.whole_body() == decode(data)


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


REPORTED = WireError(ErrorKind.SERVER, "no: a secret", code="secret")
SHOWN = WireError(ErrorKind.SERVER, "no: a ****", code="****")
SENT_EVENTS: list[Event] = [STARTED, start_of(BlockKind.TEXT), TextDelta(0, 'a secret error, {"e":"fail"}')]


def masking(chunks: list[bytes], *, streams: bool = True) -> tuple[bytes, Relay]:
    response_context = msgspec.structs.replace(context_of(), mask=lambda text: text.replace("secret", "****"))
    machine = Relay(protocol=toy(), context=response_context, streams=streams)
    for chunk in chunks:
        machine.receive_data(chunk)
    machine.receive_eof()
    return machine.data_to_send(), machine


@pytest.mark.parametrize(
    "events", [[], [STARTED], SENT_EVENTS], ids=["alone", "before content", "after content"]
)
def test_an_error_is_masked_and_the_models_text_is_not(events: list[Event]) -> None:
    content = stream_of(events)
    data = content + frame_of(Failed(REPORTED))
    for chunks in (one_by_one(data), [data], [content, frame_of(Failed(REPORTED))]):
        out, machine = masking(chunks)
        assert out == content + frame_of(Failed(SHOWN))
        assert (machine.outcome, machine.error) == (Outcome.FAILED, SHOWN)


@pytest.mark.parametrize(
    ("frame", "shown"),
    [
        # Nothing to take out: not a byte is another.
        (b'data: {"fault" : {"kind":"server","message":"no"}, "e":"fail"}\r\n\r\n', None),
        # As it reads.
        (
            b'event:  x\r\nid: 1\rdata: {"fault" : {"kind":"server","message":"\\u0073ecret"}, "e":"fail"}\r\n\r\n',
            b'event:  x\ndata: {"fault":{"kind":"server","message":"****"},"e":"fail"}\n\n',
        ),
        (b"event: error\ndata: a secret\n\n", b"event: error\ndata: a ****\n\n"),
        (b"event: error\ndata: a secret\ndata: b\n\n", b"event: error\ndata: a ****\ndata: b\n\n"),
        (b": a secret error\n\n", None),
        # Neither content nor the protocol's own.
        (b"data: a secret error\n\n", b"data: a **** error\n\n"),
        (b'data: {"e":"error","x":"a secret"}\n\n', b'data: {"e":"error","x":"a ****"}\n\n'),
    ],
)
def test_frames_that_may_be_an_error(frame: bytes, shown: bytes | None) -> None:
    out, _ = masking([stream_of(SENT_EVENTS[:2]), frame])
    assert out.startswith(stream_of(SENT_EVENTS[:2]) + (frame if shown is None else shown))


def test_an_unfinished_error_or_one_in_an_error_line_is_masked() -> None:
    content_started = stream_of(SENT_EVENTS)
    out, machine = masking([content_started, frame_of(Failed(REPORTED)).rstrip(b"\n")])
    assert (out, machine.error) == (content_started + frame_of(Failed(SHOWN)), SHOWN)
    line = b"error: " + encode(decode(frame_of(Failed(REPORTED)).removeprefix(b"data: "))) + b"\n\n"
    out, machine = masking([content_started + line])
    assert (out, machine.error) == (content_started + frame_of(Failed(SHOWN)), SHOWN)


def test_an_error_before_an_error_line_is_masked_in_the_same_read() -> None:
    frame = frame_of(Failed(REPORTED))
    out, machine = masking([frame + b"error: " + frame.removeprefix(b"data: ")])
    assert b"secret" not in out
    assert (machine.outcome, machine.error) == (Outcome.FAILED, SHOWN)


def test_a_whole_response_that_is_an_error_has_no_secret() -> None:
    _, machine = masking([encode({"failed": msgspec.to_builtins(REPORTED)})], streams=False)
    assert machine.outcome is Outcome.FAILED
    assert "secret" not in repr(machine.error)


def test_the_callers_own_error_is_masked_too() -> None:
    response_context = msgspec.structs.replace(context_of(), mask=lambda text: text.replace("secret", "****"))
    machine = Relay(protocol=toy(), context=response_context)
    machine.fail(REPORTED)
    assert (machine.data_to_send(), machine.error) == (frame_of(Failed(SHOWN)), SHOWN)
