"""Bytes to frames: tables, every way to cut them, and a reference written from the HTML standard."""

import pytest
from core.chop import PROPERTY, all_ways, cut_at, one_by_one, places
from hypothesis import given
from hypothesis import strategies as st

from dragoman._wire import sse as _sse
from dragoman._wire.exceptions import RemoteProtocolError
from dragoman._wire.frame_cutter import MAX_EVENT_BYTES, MAX_IDLE_BYTES
from dragoman._wire.sse import Frame, SSEParser, encode_comment, encode_frame, parse_frames

BOM = b"\xef\xbb\xbf"

# Bytes -> frames. All of them end in a blank line; CASES_CUT below have a tail.
CASES: dict[str, tuple[bytes, list[tuple[bytes, bytes]]]] = {
    "nothing": (b"", []),
    "data": (b"data: a\n\n", [(b"", b"a")]),
    "two events": (b"data: a\n\ndata: b\n\n", [(b"", b"a"), (b"", b"b")]),
    "event and data": (b"event: e\ndata: a\n\n", [(b"e", b"a")]),
    "event after data": (b"data: a\nevent: e\n\n", [(b"e", b"a")]),
    "event between data": (b"data: a\nevent: e\ndata: b\n\n", [(b"e", b"a\nb")]),
    "the last event line counts": (b"event: e\nevent: f\ndata: a\n\n", [(b"f", b"a")]),
    "an empty event line resets": (b"event: e\nevent:\ndata: a\n\n", [(b"", b"a")]),
    "the event name does not last": (b"event: e\ndata: a\n\ndata: b\n\n", [(b"e", b"a"), (b"", b"b")]),
    "no space": (b"event:e\ndata:a\n\n", [(b"e", b"a")]),
    "only data without a space": (b"data:a\n\n", [(b"", b"a")]),
    "only one space goes": (b"data:  a \n\n", [(b"", b" a ")]),
    "a tab stays": (b"data:\ta\n\n", [(b"", b"\ta")]),
    "several data lines": (b"data: a\ndata: b\ndata: c\n\n", [(b"", b"a\nb\nc")]),
    "event and several data lines": (b"event: e\ndata: a\ndata: b\n\n", [(b"e", b"a\nb")]),
    "empty data line": (b"data:\n\n", [(b"", b"")]),
    "empty data line with its space": (b"data: \n\n", [(b"", b"")]),
    "two empty data lines": (b"data\ndata\n\n", [(b"", b"\n")]),
    "data without a colon": (b"data\n\n", [(b"", b"")]),
    "event without data": (b"event: e\n\n", []),
    "event without data, then data": (b"event: e\n\ndata: a\n\n", [(b"", b"a")]),
    "id and retry": (b"id: 7\nretry: 10\ndata: a\nid\n\n", [(b"", b"a")]),
    "only id": (b"id: 7\n\n", []),
    "unknown field": (b"datum: x\nDATA: y\n data: z\ndata: a\n\n", [(b"", b"a")]),
    "an error in its own line": (b'error: {"code": 500}\n\n', [(b"error", b'{"code": 500}')]),
    "an error without a space": (b"error:{}\n\ndata: b\n\n", [(b"error", b"{}"), (b"", b"b")]),
    "an error beside data is another field": (b"error: a\ndata: b\n\n", [(b"", b"b")]),
    "an error with a name": (b"event: e\nerror: {}\n\n", [(b"error", b"{}")]),
    "an error in plain words": (b"error: too long\n\n", [(b"error", b'{"error":"too long"}')]),
    "an error without a line of the standard": (
        b'{\n "error": {"code": 500}\n}\n\n',
        [(b"error", b'{\n "error": {"code": 500}\n}')],
    ),
    "such an error in a list": (b'[{"error": {}}]\n\ndata: b\n\n', [(b"error", b'{"error": {}}'), (b"", b"b")]),
    "an object without an error is no line": (b'{"errors": 1}\n\n', []),
    "neither is one beside data": (b'{"error": 1}\ndata: a\n\n', [(b"", b"a")]),
    "line without a colon": (b"hello\ndata: a\n\n", [(b"", b"a")]),
    "comment": (b": ping\n\ndata: a\n\n", [(b"", b"a")]),
    "comment inside": (b"event: e\n: ping\ndata: a\n:\n\n", [(b"e", b"a")]),
    "empty comment": (b":\n\n", []),
    "colons in data": (b"data: a: b: c\n\n", [(b"", b"a: b: c")]),
    "blank lines before": (b"\n\n\ndata: a\n\n", [(b"", b"a")]),
    "one blank line before": (b"\ndata: a\n\n", [(b"", b"a")]),
    "three line ends": (b"data: a\n\n\ndata: b\n\n\n\n\n", [(b"", b"a"), (b"", b"b")]),
    "CRLF": (b"event: e\r\ndata: a\r\n\r\ndata: b\r\n\r\n", [(b"e", b"a"), (b"", b"b")]),
    "CR": (b"event: e\rdata: a\r\rdata: b\r\r", [(b"e", b"a"), (b"", b"b")]),
    "LF then CRLF": (b"data: a\n\r\ndata: b\n\n", [(b"", b"a"), (b"", b"b")]),
    "CRLF then LF": (b"data: a\r\n\ndata: b\n\n", [(b"", b"a"), (b"", b"b")]),
    "CR then CRLF": (b"data: a\r\r\ndata: b\n\n", [(b"", b"a"), (b"", b"b")]),
    "LF then CR": (b"data: a\n\rdata: b\n\n", [(b"", b"a"), (b"", b"b")]),
    "CRLF then CR": (b"data: a\r\n\rdata: b\r\n\r", [(b"", b"a"), (b"", b"b")]),
    "lines of every kind": (b"event: e\rdata: a\ndata: b\r\ndata: c\r\n\n", [(b"e", b"a\nb\nc")]),
    "BOM": (BOM + b"data: a\n\n", [(b"", b"a")]),
    "BOM and nothing": (BOM, []),
    "BOM before an event": (BOM + b"event: e\ndata: a\n\n", [(b"e", b"a")]),
    "two BOMs": (BOM + BOM + b"data: a\n\ndata: b\n\n", [(b"", b"b")]),
    "a BOM later is data": (b"data: a\n\n" + BOM + b"data: b\n\n", [(b"", b"a")]),
    "half a BOM is a field name": (b"\xef\xbbdata: a\n\ndata: b\n\n", [(b"", b"b")]),
    "no line ends in Unicode": (
        "data: a\u2028b\u2029c\u0085d\x0be\x0cf\x1cg\n\n".encode(),
        [(b"", "a\u2028b\u2029c\u0085d\x0be\x0cf\x1cg".encode())],
    ),
    "bytes that are no UTF-8": (b"data: \xff\xfe\xc3\n\n", [(b"", b"\xff\xfe\xc3")]),
    "characters of two to four bytes": ("data: é€😀\n\n".encode(), [(b"", "é€😀".encode())]),
    "NUL": (b"data: a\0b\n\n", [(b"", b"a\0b")]),
    "event name like data": (b"event: data: x\ndata: a\n\n", [(b"data: x", b"a")]),
    "event then a line of another name": (b"event: e\nid: 1\ndata: a\n\n", [(b"e", b"a")]),
}  # fmt: skip

# Bytes without a blank line at the end -> frames before the end, frames at the end.
TAILS: dict[str, tuple[bytes, list[tuple[bytes, bytes]], list[tuple[bytes, bytes]]]] = {
    "no line end": (b"data: a\n\ndata: b", [(b"", b"a")], [(b"", b"b")]),
    "one line end": (b"data: a\n\nevent: e\ndata: b\n", [(b"", b"a")], [(b"e", b"b")]),
    "one CRLF": (b"event: e\r\ndata: b\r\n", [], [(b"e", b"b")]),
    "one CR": (b"data: b\r", [], [(b"", b"b")]),
    "cut in a name": (b"data: a\n\ndat", [(b"", b"a")], []),
    "cut after the event line": (b"event: e\n", [], []),
    "cut in a comment": (b": pi", [], []),
    "cut in a BOM": (BOM[:2], [], []),
    "a lone line end": (b"data: a\n\n\n", [(b"", b"a")], []),
}


Pairs = list[tuple[bytes, bytes]]


def frames_of(chunks: list[bytes], *, limit: int = MAX_EVENT_BYTES) -> tuple[Pairs, Pairs, bool]:
    """The names and data of the frames before the end and at the end, and whether an event was too large."""
    parser = SSEParser(max_event_bytes=limit)
    frames = [(each.event, each.data) for chunk in chunks for each in parser.receive_data(chunk)]
    last = [(each.event, each.data) for each in parser.receive_eof()]
    return frames, last, parser.error is not None


@pytest.mark.promise("R4")
def test_frames(subtests: pytest.Subtests) -> None:
    for case, (data, expected) in CASES.items():
        with subtests.test(case=case):
            for chunks in all_ways(data):
                assert frames_of(chunks) == (expected, [], False)


def test_frames_with_trailing_data(subtests: pytest.Subtests) -> None:
    for case, (data, expected) in CASES.items():
        with subtests.test(case=case):
            for chunks in all_ways(data + b"data: tail"):
                assert frames_of(chunks) == (expected, [(b"", b"tail")], False)


def test_unfinished_tail(subtests: pytest.Subtests) -> None:
    for case, (data, expected, tail) in TAILS.items():
        with subtests.test(case=case):
            for chunks in all_ways(data):
                assert frames_of(chunks) == (expected, tail, False)


def test_eof_gives_the_tail_once() -> None:
    parser = SSEParser()
    parser.receive_data(b"data: a")
    assert parser.held_bytes == 7
    assert parser.receive_eof() == [Frame(b"", b"a")]
    assert parser.held_bytes == 0
    assert parser.receive_eof() == []


# Limits


AT = b"x" * 14  # with `data: ` exactly 20 bytes

LIMITS: dict[str, tuple[bytes, list[bytes], list[bytes], bool]] = {
    "at": (b"data: " + AT + b"\n\n", [AT], [], False),
    "over": (b"data: " + AT + b"y\n\n", [], [], True),
    "at, two lines": (b"data: abc\ndata: defg\n\n", [b"abc\ndefg"], [], False),
    "over, two lines": (b"data: abc\ndata: defgh\n\n", [], [], True),
    "at, CRLF": (b"data: " + AT + b"\r\n\r\n", [AT], [], False),
    "over, CRLF": (b"data: " + AT + b"y\r\n\r\n", [], [], True),
    "two at": ((b"data: " + AT + b"\n\n") * 2, [AT, AT], [], False),
    "good, over, good": (b"data: a\n\ndata: " + AT + b"y\n\ndata: b\n\n", [b"a"], [], True),
    "good, over without an end": (b"data: a\n\ndata: " + AT + b"yyyy", [b"a"], [], True),
    "a comment over": (b": " + AT * 2 + b"\n\ndata: a\n\n", [], [], True),
    "the tail at": (b"data: " + AT, [], [AT], False),
    "the tail at, with a line end": (b"data: " + AT + b"\n", [], [AT], False),
    "the tail over by one": (b"data: " + AT + b"y", [], [], True),
    "the tail over by one, with a line end": (b"data: " + AT + b"y\n", [], [], True),
    "the tail over by two": (b"data: " + AT + b"yy", [], [], True),
}


@pytest.mark.promise("S7")
def test_limit(subtests: pytest.Subtests) -> None:
    for case, (data, expected, tail, error) in LIMITS.items():
        with subtests.test(case=case):
            for chunks in all_ways(data):
                frames, last, failed = frames_of(chunks, limit=20)
                found = ([data for _, data in frames], [data for _, data in last], failed)
                assert found == (expected, tail, error)


@pytest.mark.promise("R9")
def test_nothing_is_read_or_held_after_the_limit() -> None:
    parser = SSEParser(max_event_bytes=8)
    assert parser.receive_data(b"data: abcd") == []
    assert isinstance(parser.error, RemoteProtocolError)
    assert (parser.error.status, parser.error.code) == (502, "event_too_large")
    assert "8 bytes" in parser.error.message
    assert parser.receive_data(b"\n\ndata: b\n\ndata: c") == [], "an event that would fit"
    assert parser.held_bytes == 0
    assert parser.receive_eof() == []


def test_many_small_chunks_are_not_copied_again_and_again() -> None:
    parser = SSEParser()
    parser.receive_data(b"data: ")
    for _ in range(100_000):
        parser.receive_data(b"x" * 10)
    assert parser.held_bytes == 1_000_006
    [only] = parser.receive_data(b"\n\n")
    assert len(only.data) == 1_000_000


# The standard, line by line


def reference(data: bytes) -> Pairs:
    """HTML standard, 9.2.6, without its shortcuts: the stream as characters, one line after the other."""
    text = data.decode("latin-1").removeprefix(BOM.decode("latin-1"))
    lines, line, at = [], "", 0
    while at < len(text):
        if text[at] in "\r\n":
            at += 2 if text[at : at + 2] == "\r\n" else 1
            lines.append(line)
            line = ""
        else:
            line += text[at]
            at += 1
    out: Pairs = []
    buffer = event = ""
    for line in lines:
        if line == "":
            # "If the data buffer is an empty string, set the event type buffer to an empty string and return."
            if buffer:
                out.append((event.encode("latin-1"), buffer[:-1].encode("latin-1")))
            buffer = event = ""
            continue
        if line.startswith(":"):
            continue
        name, colon, value = line.partition(":")
        if colon and value.startswith(" "):
            value = value[1:]
        if name == "event":
            event = value
        elif name == "data":
            buffer += value + "\n"
    return out


_fragments = st.sampled_from(
    [b"data", b"event", b"id", b":", b" ", b"\n", b"\r", b"\r\n", b"\n\n", b"a", b"data: x\n\n", BOM, b"\xc3"]
)
streams = st.lists(_fragments | st.binary(max_size=3), max_size=30).map(b"".join)


@pytest.mark.promise("R4")
@PROPERTY
@given(streams)
def test_frames_agree_with_a_reference_parser(data: bytes) -> None:
    assert frames_of([data])[0] == reference(data)


@pytest.mark.promise("R4")
@PROPERTY
@given(streams, places, st.integers(1, 30))
def test_chunks_do_not_matter(data: bytes, cuts: list[int], limit: int) -> None:
    whole = frames_of([data], limit=limit)
    assert frames_of(cut_at(data, cuts), limit=limit) == whole
    assert frames_of(one_by_one(data), limit=limit) == whole


# Frames to bytes


def test_frame_and_comment() -> None:
    assert encode_frame(b'{"a":1}') == b'data: {"a":1}\n\n'
    assert encode_frame(b"{}", b"ping") == b"event: ping\ndata: {}\n\n"
    assert encode_comment(b"ping") == b": ping\n\n"


@PROPERTY
@given(
    st.binary().filter(lambda data: not {10, 13} & set(data)), st.text("abc._", max_size=5).map(str.encode)
)
def test_written_requests_are_read_again(data: bytes, event: bytes) -> None:
    assert frames_of([encode_comment(b"c") + encode_frame(data, event)]) == ([(event, data)], [], False)


IDLE = {"comments": b": x\n\n", "blank lines": b"\n" * 5, "CR": b"\r" * 5, "only names": b"event: e\n\n"}


@pytest.mark.promise("S7")
@pytest.mark.parametrize("chunk", IDLE.values(), ids=IDLE)
def test_too_many_bytes_without_an_event_are_not_a_stream(chunk: bytes) -> None:
    many = chunk * (MAX_IDLE_BYTES // len(chunk) // 2)
    parser = SSEParser()
    for _ in range(3):
        assert parser.receive_data(many) == []
        assert parser.error is None
        assert parser.receive_data(b"data: a\n\n") == [Frame(b"", b"a")]
    for _ in range(3):
        assert parser.receive_data(many) == []
    assert parser.error.message == f"more than {MAX_IDLE_BYTES} bytes without a server-sent event"


def test_blank_lines_in_a_row_are_one() -> None:
    parser = SSEParser()
    assert len(parser.receive_raw_events(b"\n" * 100_000)) <= 2
    assert parser.receive_data(b"data: a\n\n") == [Frame(b"", b"a")]


@pytest.mark.promise("R4")
@pytest.mark.parametrize("blank", [b"\n" * count for count in range(1, 7)], ids=len)
@pytest.mark.parametrize(
    "ended", [b"data: a\n\n", b": ping\n\n", b"\n\n", b""], ids=["data", "comment", "blank", "none"]
)
def test_what_is_cut_into_frames_ends_with_the_last_of_them(ended: bytes, blank: bytes) -> None:
    """A reader that goes from one blank line to the next would never come to the end of more bytes."""
    for cut in range(len(ended + blank) + 1):
        parser = SSEParser()
        for chunk in ((ended + blank)[:cut], (ended + blank)[cut:]):
            *frames, rest = parser.receive_frames(chunk).split(b"\n\n")
            assert rest == b""
            assert b"\n" not in frames


def test_an_event_of_ours_may_be_larger_than_those_that_are_received() -> None:
    data = b"x" * (MAX_EVENT_BYTES + 1)
    assert list(parse_frames(encode_frame(data) * 2)) == [Frame(b"", data)] * 2


def test_large_reads_are_split_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    data = b"\n: x\n\ndata: 1\n\n\ndata: 2\n\nda"
    expected = SSEParser().receive_raw_events(data)
    monkeypatch.setattr(_sse, "_LARGE_BYTES", 1)
    assert SSEParser().receive_raw_events(data) == expected


def test_an_event_with_too_many_lines_is_not_read_however_it_was_cut() -> None:
    good, event = b"data: 1\n\n", b"data\n" * 100_001 + b"\n"
    for chunks in ([good + event], [good, event], [good, event[:9], event[9:]]):
        parser = SSEParser()
        assert b"".join(map(parser.receive_frames, chunks)) == good
        assert "lines; at most 100000 are accepted" in str(parser.error)
