"""Messages of AWS event streams: read as botocore reads them, however they are cut; broken ones are no messages."""

import random
import struct
from zlib import crc32

import pytest

from dragoman import RemoteProtocolError
from dragoman._wire.aws_event_stream import MAX_HEADER_BYTES
from dragoman._wire.limits import EVENT_HEADERS
from dragoman.codec import AwsMessage, AwsMessageReader

# Read back by botocore 1.44.5.
CHUNK = bytes.fromhex(
    "0000007b0000004b0a2e96af0b3a6576656e742d747970650700056368756e6b0d3a636f6e74656e742d747970650700106170706c69636174"
    "696f6e2f6a736f6e0d3a6d6573736167652d747970650700056576656e747b226279746573223a2265794a306558426c496a6f6963476c755a"
    "794a39227da01f56c4"
)
EXCEPTION = bytes.fromhex(
    "00000090000000618e91a9b70f3a657863657074696f6e2d747970650700137468726f74746c696e67457863657074696f6e0d3a636f6e7465"
    "6e742d747970650700106170706c69636174696f6e2f6a736f6e0d3a6d6573736167652d74797065070009657863657074696f6e7b226d6573"
    "73616765223a22546f6f206d616e79207265717565737473227de67f8005"
)
JSON = {":content-type": "application/json"}
MESSAGES = [
    AwsMessage(
        {":event-type": "chunk", **JSON, ":message-type": "event"}, b'{"bytes":"eyJ0eXBlIjoicGluZyJ9"}'
    ),
    AwsMessage(
        {":exception-type": "throttlingException", **JSON, ":message-type": "exception"},
        b'{"message":"Too many requests"}',
    ),
]


def message(
    headers: bytes, payload: bytes = b"", *, length: int | None = None, of_headers: int | None = None
) -> bytes:
    """Return a message with right checksums."""
    total = 16 + len(headers) + len(payload) if length is None else length
    prelude = struct.pack("!II", total, len(headers) if of_headers is None else of_headers)
    head = prelude + struct.pack("!I", crc32(prelude)) + headers + payload
    return head + struct.pack("!I", crc32(head))


def header(name: bytes, kind: int, value: bytes) -> bytes:
    return bytes([len(name)]) + name + bytes([kind]) + value


@pytest.mark.parametrize("size", [1, 2, 11, 12, 13, 122, 123, 124, 1000])
def test_messages_however_they_are_cut(size: int) -> None:
    reader, stream = AwsMessageReader(), CHUNK + EXCEPTION + CHUNK[:-1]
    found = [
        each for at in range(0, len(stream), size) for each in reader.receive_data(stream[at : at + size])
    ]
    assert found == MESSAGES
    assert reader.held_bytes == len(CHUNK) - 1
    assert list(reader.receive_data(CHUNK[-1:])) == MESSAGES[:1]
    assert reader.held_bytes == 0


def test_messages_are_written_as_they_are_read() -> None:
    assert [each.encode() for each in MESSAGES] == [CHUNK, EXCEPTION]


EVERY_KIND = b"".join(
    header(b"h%d" % kind, kind, value)
    for kind, value in enumerate(
        (b"", b"", b"1", b"12", b"1234", b"12345678", b"\0\2ab", b"\0\2cd", b"12345678", b"1" * 16)
    )
)
STRING = header(b"a", 7, b"\0\1b")


def test_headers_that_are_no_strings_are_skipped() -> None:
    expected = [AwsMessage({"h7": "cd"}, b"p")]
    assert list(AwsMessageReader().receive_data(message(EVERY_KIND, b"p"))) == expected


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (CHUNK[:4] + b"\xff" + CHUNK[5:], "the checksum of its beginning"),
        (CHUNK[:50] + b"\xff" + CHUNK[51:], "its checksum"),
        (CHUNK[:-1] + b"\xff", "its checksum"),
        (message(b"", length=15), "longer than itself"),
        (message(b"", of_headers=1), "longer than itself"),
        (message(b"", length=MAX_HEADER_BYTES * 2, of_headers=MAX_HEADER_BYTES + 1), "bytes of headers"),
        (message(b"", length=1001), "1001 altogether"),
        (message(STRING * 2), "comes twice"),
        (message(header(b"a", 10, b"")), "cannot be read"),
        (message(header(b"a", 7, b"\0\1\xff")), "cannot be read"),
        (message(header(b"\xff", 7, b"\0\0")), "cannot be read"),
        (message(STRING[:-1]), "is cut"),
        (message(header(b"a", 4, b"123"), b"4" * 9), "is cut"),
        (message(b"\x09a"), "cannot be read"),
        (message(b"\x0aa"), "cannot be read"),
        (
            message(b"".join(header(b"%d" % n, 0, b"") for n in range(EVENT_HEADERS.most + 1))),
            f"more than {EVENT_HEADERS.most} headers",
        ),
    ],
)  # fmt: skip
def test_what_is_no_message(data: bytes, reason: str) -> None:
    """What came before it is given all the same, and nothing behind it."""
    reader = AwsMessageReader(max_message_bytes=1000 if "1001" in reason else MAX_HEADER_BYTES * 4)
    messages = reader.receive_data(CHUNK + data + CHUNK)
    assert next(messages) == MESSAGES[0]
    with pytest.raises(RemoteProtocolError, match=reason) as error:
        next(messages)
    assert error.value.status == 502


def test_as_many_headers_as_are_accepted() -> None:
    many = message(b"".join(header(b"%d" % n, 0, b"") for n in range(EVENT_HEADERS.most)))
    assert list(AwsMessageReader().receive_data(many)) == [AwsMessage({}, b"")]


@pytest.mark.fuzz
def test_botocore_reads_the_same() -> None:
    """Of random messages with random damage, in random pieces."""
    eventstream = pytest.importorskip("botocore.eventstream", reason="botocore is the judge here")
    random_ = random.Random(7)
    for _ in range(3000):
        headers = b"".join(
            header(bytes(random_.choices(b"ab:", k=random_.randint(1, 2))), kind, _value(random_, kind))
            for kind in random_.choices(range(10), k=random_.randint(0, 3))
        )
        garbage = random_.random() < 0.3
        if garbage:
            headers = bytes(random_.choices(headers or b"\0", k=random_.randint(1, 12)))
        stream = bytearray(message(headers, random_.randbytes(random_.randint(0, 40))) + CHUNK)
        if random_.random() < 0.3:
            stream[random_.randrange(len(stream))] ^= 1 << random_.randrange(8)
        ours = _ours(bytes(stream), random_.randint(1, 50))
        theirs = _botocores(eventstream, bytes(stream))
        if garbage and ours[-1] == BROKEN:  # botocore takes headers that are cut
            assert theirs[: len(ours) - 1] == ours[:-1]
        else:
            assert ours == theirs


BROKEN = AwsMessage({}, b"broken")


def _value(random_: random.Random, kind: int) -> bytes:
    if kind in (6, 7):
        text = random_.randbytes(2) if kind == 6 else "é".encode()
        return struct.pack("!H", len(text)) + text
    return random_.randbytes({0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}[kind])


def _ours(stream: bytes, size: int) -> list[AwsMessage]:
    reader, found = AwsMessageReader(), list[AwsMessage]()
    try:
        for at in range(0, len(stream), size):
            for each in reader.receive_data(stream[at : at + size]):
                found.append(each)
    except RemoteProtocolError:
        found.append(BROKEN)
    return found


def _botocores(eventstream: object, stream: bytes) -> list[AwsMessage]:
    buffer, found = eventstream.EventStreamBuffer(), list[AwsMessage]()  # type: ignore[attr-defined]
    buffer.add_data(stream)
    try:
        for each in buffer:
            strings = {name: value for name, value in each.headers.items() if type(value) is str}
            found.append(AwsMessage(strings, each.payload))
    except Exception:  # it raises several kinds
        found.append(BROKEN)
    return found
