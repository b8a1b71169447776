"""Frames of a WebSocket, in and out: any cut gives the same messages, wsproto agrees, and nothing is unbounded."""

import tracemalloc
import zlib
from collections.abc import Sequence

import pytest
from fuzz import chunks, cut_places, fuzz
from hypothesis import strategies as st
from websocket_client import COMPRESSED, close, frame
from wsproto import ConnectionType, events
from wsproto.connection import Connection
from wsproto.extensions import PerMessageDeflate

from dragoman_server.serving.frame_rate import CONTROL_FRAMES, SMALL_DATA
from dragoman_server.serving.websocket_frames import (
    BINARY,
    CONTINUATION,
    MAX_FRAME,
    PING,
    PONG,
    TEXT,
    Close,
    DataMessage,
    FrameError,
    Ping,
    WebSocketReader,
    close_frame,
    control_frame,
    data_frames,
)

LIMIT = 1000


def data_message(content: str | bytes) -> DataMessage:
    return DataMessage(TEXT, content.encode()) if isinstance(content, str) else DataMessage(BINARY, content)


def read(*parts: bytes, limit: int = LIMIT, inflates: bool = True) -> list[object]:
    """What comes of the parts, and at last the code of an error."""
    reader = WebSocketReader(limit, inflates=inflates, now=0.0)
    found: list[object] = []
    try:
        for part in parts:
            for event in reader.receive(part, 0.0):
                if event is not None:
                    found.append(event)
                if isinstance(event, Close):
                    return found
    except FrameError as error:
        found.append(error.code)
    return found


def deflated(data: bytes, flush: int = zlib.Z_SYNC_FLUSH) -> bytes:
    compressor = zlib.compressobj(wbits=-15)
    return compressor.compress(data) + compressor.flush(flush)


SOUND: dict[str, tuple[bytes, list[object]]] = {
    "a text": (frame(TEXT, "é".encode()), [DataMessage(TEXT, "é".encode())]),
    "bytes": (frame(BINARY, b"\xff"), [DataMessage(BINARY, b"\xff")]),
    "nothing": (frame(TEXT) + frame(BINARY), [DataMessage(TEXT, b""), DataMessage(BINARY, b"")]),
    "a character in two fragments": (
        frame(TEXT, b"a\xc3", fin=0) + frame(PING, b"x") + frame(CONTINUATION, b"\xa9"),
        [Ping(b"x"), DataMessage(TEXT, "aé".encode())],
    ),
    "lines stay as they are": (frame(TEXT, b"a\r\nb\rc\n"), [DataMessage(TEXT, b"a\r\nb\rc\n")]),
    "a pong": (frame(PONG, b"x") + frame(TEXT, b"a"), [DataMessage(TEXT, b"a")]),
    "a close": (close(4000, "é".encode()) + b"\0\0", [Close(4000, "é")]),
    "a close without a code": (close(), [Close(1005, "")]),
    "deflated": (frame(COMPRESSED | TEXT, deflated(b"Hello")[:-4]), [DataMessage(TEXT, b"Hello")]),
    "deflated, in fragments, then plain": (
        frame(COMPRESSED | TEXT, deflated(b"Hello")[:3], fin=0)
        + frame(CONTINUATION, deflated(b"Hello")[3:-4])
        + frame(TEXT, b"x"),
        [DataMessage(TEXT, b"Hello"), DataMessage(TEXT, b"x")],
    ),
    # RFC 7692, 7.2.3.4 and 7.2.3.5.
    "deflated with a final block": (
        frame(COMPRESSED | TEXT, deflated(b"Hello", zlib.Z_FINISH) + deflated(b"!")[:-4]),
        [DataMessage(TEXT, b"Hello!")],
    ),
    "as long as is allowed": (frame(TEXT, b"x" * LIMIT), [DataMessage(TEXT, b"x" * LIMIT)]),
    "as long as is allowed, deflated": (
        frame(COMPRESSED | BINARY, deflated(b"x" * LIMIT)[:-4]),
        [DataMessage(BINARY, b"x" * LIMIT)],
    ),
}
BROKEN: dict[str, tuple[bytes, int]] = {
    "not masked": (frame(TEXT, b"x", mask=None), 1002),
    "an unknown opcode": (frame(3), 1002),
    "an unknown control opcode": (frame(11), 1002),
    "a reserved bit": (frame(0x10 | TEXT), 1002),
    "compressed ping": (frame(COMPRESSED | PING), 1002),
    "compressed continuation": (frame(TEXT, fin=0) + frame(COMPRESSED | CONTINUATION), 1002),
    "a ping in fragments": (frame(PING, fin=0), 1002),
    "a long ping": (frame(PING, b"x" * 126), 1002),
    "a continuation of nothing": (frame(CONTINUATION), 1002),
    "a text within a text": (frame(TEXT, fin=0) + frame(TEXT), 1002),
    "a length of two bytes for one": (bytes([0x81, 0xFE, 0, 125]) + bytes(129), 1002),
    "a length of eight bytes for two": (bytes([0x81, 0xFF]) + (2**16 - 1).to_bytes(8) + bytes(4), 1002),
    "a length of 64 bits": (bytes([0x82, 0xFF]) + (2**63).to_bytes(8) + bytes(4), 1002),
    "half a code": (frame(8, b"\3"), 1002),
    "a reason that is not UTF-8": (close(1000, b"\xff"), 1007),
    "a text that is not UTF-8": (frame(TEXT, b"a\xff" + b"x" * 10, fin=0), 1007),
    "a surrogate": (frame(TEXT, b"\xed\xa0\x80"), 1007),
    "half a character": (frame(TEXT, b"a\xc3"), 1007),
    "not DEFLATE": (frame(COMPRESSED | TEXT, b"\xff\xff"), 1007),
    "too long": (frame(TEXT, b"x" * (LIMIT + 1))[:8], 1009),
    "too long in fragments": (frame(TEXT, b"x" * LIMIT, fin=0) + frame(CONTINUATION, b"x")[:6], 1009),
    "too long inflated": (frame(COMPRESSED | TEXT, deflated(b"x" * (LIMIT + 1))[:-4]), 1009),
    "more characters than bytes": (frame(TEXT, "é".encode() * (LIMIT // 2 + 1)), 1009),
    **{
        f"the code {code}": (close(code), 1002)
        for code in (0, 999, 1004, 1005, 1006, 1015, 1016, 2999, 5000, 65535)
    },
}


@pytest.mark.parametrize("name", SOUND)
def test_sound_frames(name: str) -> None:
    data, expected = SOUND[name]
    assert read(data) == expected
    assert read(*(data[at : at + 1] for at in range(len(data)))) == expected


@pytest.mark.parametrize("name", BROKEN)
def test_broken_frames(name: str) -> None:
    data, code = BROKEN[name]
    assert read(data) == [code]
    assert read(*(data[at : at + 1] for at in range(len(data)))) == [code]


@pytest.mark.parametrize("code", [1000, 1003, 1007, 1014, 3000, 4999])
def test_codes_that_a_close_may_have(code: int) -> None:
    assert read(close(code)) == [Close(code, "")]
    assert close_frame(code) == b"\x88\2" + code.to_bytes(2)


def test_what_was_not_negotiated_is_not_inflated() -> None:
    assert read(frame(COMPRESSED | TEXT, deflated(b"x")), inflates=False) == [1002]


@pytest.mark.promise("S7")
@pytest.mark.parametrize("opcode", [BINARY, TEXT])
def test_a_bomb_costs_little_more_than_the_limit(opcode: int) -> None:
    """64 KiB that inflate to 64 MiB, in one read: as much as the limit is inflated, in pieces."""
    limit = 2**20
    reader = WebSocketReader(limit, inflates=True, now=0.0)
    bomb = frame(COMPRESSED | opcode, deflated(bytes(2**26)))
    pieces: list[object] = []
    tracemalloc.start()
    try:
        with pytest.raises(FrameError, match="1048576"):
            pieces.extend(reader.receive(bomb, 0.0))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(pieces) == limit // (64 * 1024)
    assert peak < 3 * limit


@pytest.mark.promise("S7")
@pytest.mark.parametrize(
    ("first", "each"),
    [
        (b"", frame(PING)),
        (b"", frame(PONG)),
        (frame(TEXT, fin=0), frame(CONTINUATION, b"x" * (SMALL_DATA - 1), fin=0)),
    ],
)
def test_frames_that_cost_more_than_their_bytes_are_counted(first: bytes, each: bytes) -> None:
    reader = WebSocketReader(2**20, inflates=False, now=0.0)
    list(reader.receive(first + each * (CONTROL_FRAMES.burst - 1), 0.0))
    list(reader.receive(each * CONTROL_FRAMES.per_second, 1.0))
    with pytest.raises(FrameError) as raised:
        list(reader.receive(each * 2, 1.0))
    assert raised.value.code == 1008


def test_larger_fragments_and_small_messages_are_not_counted() -> None:
    reader = WebSocketReader(2**20, inflates=False, now=0.0)
    fragments = frame(TEXT, fin=0) + frame(CONTINUATION, bytes(SMALL_DATA), fin=0) * 2000
    list(reader.receive(fragments + frame(CONTINUATION), 0.0))
    assert len(list(reader.receive(frame(TEXT, b"x") * 2000, 0.0))) == 2000


# What is written.


@pytest.mark.parametrize("size", [0, 125, 126, 65535, 65536, MAX_FRAME, MAX_FRAME + 1, 2 * MAX_FRAME + 5])
@pytest.mark.parametrize("char", ["x", "é", None])
def test_wsproto_reads_what_is_written(size: int, char: str | None) -> None:
    content = bytes(size) if char is None else char * (size // len(char.encode())) + "x" * (size % 2)
    client = Connection(ConnectionType.CLIENT)
    frames = list(data_frames(data_message(content)))
    assert max(map(len, frames)) <= MAX_FRAME + 10
    found: list[events.Event] = []
    for each in [*frames, control_frame(PING, b"p"), close_frame(4000, "é" * 100)]:
        client.receive_data(each)
        found.extend(client.events())
    *messages, ping, last = found
    whole = [each.data for each in messages if isinstance(each, events.Message)]
    assert (b"" if char is None else "").join(whole) == content  # type: ignore[attr-defined]
    assert ping == events.Ping(b"p")
    assert last == events.CloseConnection(4000, "é" * 61)


@pytest.mark.parametrize("code", [1004, 1006, 1015, 5000])
def test_a_code_that_no_close_may_have_is_not_written(code: int) -> None:
    with pytest.raises(ValueError, match=str(code)):
        close_frame(code)


# wsproto as the client, and any cuts.

_contents = st.one_of(st.text(max_size=300), st.binary(max_size=300))
_sent = st.lists(st.tuples(_contents, st.integers(1, 100), st.binary(max_size=125)), max_size=5)


@fuzz(_sent, cut_places, st.booleans(), examples=100)
def test_any_cut_gives_the_messages_that_wsproto_has_sent(
    sent: Sequence[tuple[str | bytes, int, bytes]], places: list[int], deflates: bool
) -> None:
    extension = PerMessageDeflate(client_no_context_takeover=True)
    if deflates:
        extension.finalize("permessage-deflate; client_no_context_takeover")
    client = Connection(ConnectionType.CLIENT, [extension])
    expected: list[object] = []
    data = b""
    for content, size, ping in sent:
        parts = [content[at : at + size] for at in range(0, len(content), size)] or [content]
        for number, part in enumerate(parts, 1):
            data += client.send(events.Message(part, message_finished=number == len(parts)))
            data += client.send(events.Ping(ping))
            expected.append(Ping(ping))
        expected.append(data_message(content))
        expected[-2:] = reversed(expected[-2:])
    data += client.send(events.CloseConnection(1000, "bye"))
    expected.append(Close(1000, "bye"))
    assert read(*chunks(data, places), limit=2000) == expected
