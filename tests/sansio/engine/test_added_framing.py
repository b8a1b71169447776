"""A framing that no protocol has, before the readers of any server and behind the writers of any client."""

import json

import msgspec
import pytest
from core.chop import all_ways
from core.toy_framing import END, LENGTHS, LengthReader, LengthWriter, frames_in, in_lengths
from core.toy_protocol import context_of, stream_of, toy
from failures.responses import Text, frames
from failures.responses import stream as stream_of_upstream
from laws.clients import endpoint_of
from translation import client_request

from dragoman import PROTOCOLS, UPSTREAMS, ErrorKind, Outcome, Relay, ResponseTranslator, WireError
from dragoman._wire.frame_cutter import MAX_IDLE_BYTES
from dragoman.codec import JSON_ARRAY, Endpoint, ProtocolSpec
from dragoman.events import (
    BlockEnded,
    BlockKind,
    BlockStarted,
    Ended,
    Started,
    Stopped,
    StopReason,
    TextDelta,
)
from dragoman.sse import Frame, FrameDecoder, SSEParser
from dragoman.testing import Pair

CHAT = "openai_chat"
TEXT = 'Hello,\n "world" \U0001f600 '
GONE = WireError(ErrorKind.TIMEOUT, "too late")
TOY = [
    Started("t", "m"),
    BlockStarted(0, BlockKind.TEXT),
    TextDelta(0, TEXT),
    TextDelta(0, TEXT),
    BlockEnded(0),
    Stopped(StopReason.END),
    Ended(),
]


def cut(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


def decoded(pieces: list[bytes]) -> list[bytes]:
    decoder = FrameDecoder(LengthReader())
    events = [decoder.receive_data(piece) for piece in pieces]
    assert decoder.error is None
    return events


def events_of(stream: bytes) -> list[Frame]:
    return SSEParser().receive_data(stream)


@pytest.mark.parametrize("upstream", UPSTREAMS)
def test_every_client_gets_what_it_gets_of_server_sent_events(
    upstream: str, subtests: pytest.Subtests
) -> None:
    stream = b"".join(frames(stream_of_upstream(upstream, Text(TEXT))))
    for client in UPSTREAMS:
        pair = Pair(client=client, upstream=upstream, endpoint=endpoint_of(client))
        pair.translate_request(client_request(client, "", None, stream=True))
        expected = events_of(pair.translate_response(stream))
        for size in (1, 2, 3, 5, 64, len(stream) * 2):
            with subtests.test(client=client, size=size):
                sent = pair.translate_response(decoded(cut(in_lengths(stream), size)))
                assert events_of(sent) == expected
                assert pair.outcome is Outcome.COMPLETED
        pair.translate_response(decoded([in_lengths(stream)[: len(stream) // 2]]))
        assert pair.error.kind is ErrorKind.TRUNCATED


def test_data_with_line_breaks_is_one_event() -> None:
    data = b'{\r\n "a": 1,\r "b": 2\n}'
    [event] = decoded([LengthWriter().send(Frame(b"x", data))])
    assert events_of(event) == [Frame(b"x", b'{\n "a": 1,\n "b": 2\n}')]


def test_frames_before_a_broken_one_are_read_and_none_after_it() -> None:
    decoder = FrameDecoder(LengthReader())
    good, bad = LengthWriter().send(Frame(b"", b"1")), b"\0\0\0\x01?"
    assert decoder.receive_data(good + bad + good) == b"data: 1\n\n"
    assert str(decoder.error) == "a message without a name"
    assert decoder.receive_data(good) == b""


def test_a_frame_with_too_many_bytes_is_not_held() -> None:
    decoder = FrameDecoder(LengthReader(), max_frame_bytes=100)
    assert decoder.receive_data(b"\0\0\0\xff" + b"x" * 96) == b""
    assert decoder.error is None
    assert decoder.receive_data(b"x") == b""
    assert decoder.error.code == "event_too_large"


def test_a_frame_with_too_many_lines_is_not_read() -> None:
    decoder, good = FrameDecoder(LengthReader()), Frame(b"", b"1")
    frames = [good, Frame(b"", b"\n" * 100_001), good]
    assert decoder.receive_data(b"".join(map(LengthWriter().send, frames))) == b"data: 1\n\n"
    assert str(decoder.error) == "one frame has 100001 lines; at most 100000 are accepted"
    assert decoder.error is not None
    assert (decoder.error.status, decoder.error.code) == (502, "event_too_large")


def test_bytes_without_a_frame_have_a_limit_of_their_own() -> None:
    decoder = FrameDecoder(LengthReader())
    frame = LengthWriter().send(Frame(b"", bytes(MAX_IDLE_BYTES * 2)))
    for at in range(0, len(frame), 65_536):  # they belong to a frame
        decoder.receive_data(frame[at : at + 65_536])
    decoder.receive_data(bytes(MAX_IDLE_BYTES))  # empty messages
    assert decoder.error is None
    decoder.receive_data(bytes(4))
    assert str(decoder.error) == f"more than {MAX_IDLE_BYTES} bytes without a frame"


def test_the_elements_of_an_array_are_read_wherever_it_is_cut() -> None:
    elements = [{"a\\": '"]}[{\\'}, [2, {"b": "\u00e9"}], {}]
    data = json.dumps([*elements, "s"], ensure_ascii=False, indent=1).encode()
    for chunks in all_ways(data):
        reader = JSON_ARRAY.reader()
        frames = [frame for chunk in chunks for frame in reader.receive_data(chunk)]
        assert [json.loads(frame.data) for frame in frames] == elements
        assert reader.held_bytes == 0


def test_what_is_wrong_between_the_elements_of_an_array_is_no_element() -> None:
    frames = JSON_ARRAY.reader().receive_data(b'[{"a":1} \\" {"b":2}]')
    assert [frame.data for frame in frames] == [b'{"a":1}', b'{"b":2}']


# Behind writers


def is_bare(frame: Frame, events: list[Frame]) -> bool:
    """True for an error that repeats an event outside of the standard."""
    return Frame(b"", frame.data) in events


BINARY = Endpoint("/binary", framing=LENGTHS)
EVENTS = Endpoint("/events")


def machine_for(client: ProtocolSpec, endpoint: Endpoint) -> ResponseTranslator | Relay:
    """Return a relay for toy clients, else a translator."""
    context = msgspec.structs.replace(context_of(protocol=client.name), endpoint=endpoint)
    if client.name == "toy":
        return Relay(protocol=toy(), context=context)
    return ResponseTranslator(client=client, upstream=toy(), context=context)


def sent_by(machine: ResponseTranslator | Relay, size: int, *, ends: bool) -> bytes:
    stream, sent = stream_of(TOY), b""
    for piece in cut(stream if ends else stream[: len(stream) // 2], size):
        machine.receive_data(piece)
        sent += machine.data_to_send()
    if not ends:
        machine.fail(GONE)
    sent += machine.data_to_send()
    assert machine.outcome is (Outcome.COMPLETED if ends else Outcome.FAILED)
    assert machine.data_to_send() == b""
    return sent


@pytest.mark.parametrize("ends", [True, False])
@pytest.mark.parametrize("size", [10, 10_000])
def test_a_client_gets_the_frames_of_its_protocol(size: int, ends: bool) -> None:
    for client in (*PROTOCOLS.values(), toy()):
        sent = sent_by(machine_for(client, BINARY), size, ends=ends)
        events = events_of(sent_by(machine_for(client, EVENTS), size, ends=ends))
        # An error may have a second form that is no event.
        found = frames_in(sent)
        assert found == [frame for frame in events if frame.event != b"error" or not is_bare(frame, events)]
        assert sent.count(END) == 1


def test_frames_are_made_where_bytes_are_received(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gateway calls receive_data() in a thread if the bytes are many, and data_to_send() in its event loop."""
    for client in (*PROTOCOLS.values(), toy()):
        machine = machine_for(client, BINARY)
        machine.receive_data(stream_of(TOY))
        with monkeypatch.context() as patch:
            patch.setattr(LengthWriter, "send", None)
            assert machine.data_to_send().count(END) == 1


def test_a_whole_response_has_no_frames() -> None:
    client = PROTOCOLS[CHAT]
    context = msgspec.structs.replace(context_of(protocol=CHAT), endpoint=BINARY)
    machine = ResponseTranslator(client=client, upstream=toy(), context=context, client_streams=False)
    assert sent_by(machine, 10, ends=True)[:1] == b"{"
    context = msgspec.structs.replace(context_of(), endpoint=BINARY)
    relay = Relay(protocol=toy(), context=context, streams=False)
    relay.receive_data(b'{"blocks": []}')
    relay.receive_eof()
    assert relay.data_to_send() == b'{"blocks": []}'
