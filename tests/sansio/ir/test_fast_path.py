"""The fast path: the frames that it reads, those that it leaves to the reader, and that both give the same events."""

# ruff: noqa: E501 -- the tables are read by row

import json
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
import rows
from core.chop import PROPERTY, cut_at, places
from core.events import STARTED, start_of
from core.toy_protocol import ToyReader, context_of, frame_of, toy
from hypothesis import given
from hypothesis import strategies as st

from dragoman._engine.response import ResponseTranslator
from dragoman._ir.events import (
    ENDED,
    ArgumentsDelta,
    BlockEnded,
    BlockKind,
    Event,
    ReasoningDelta,
    ReasoningForm,
    Stopped,
    StopReason,
    TextDelta,
)
from dragoman._ir.fast_path import Delta, DeltaTemplate, FastPath, build_extractor, with_texts
from dragoman.codec import ProtocolSpec

HINT = DeltaTemplate(b"text", number=b"n", padding=b"pad")


def test_shapes() -> None:
    """Other frames come between those that have the shape, so that each is met in the middle of a run; and at the end of one."""
    learned = b""

    def output_of(lines: list[str]) -> list[str]:
        nonlocal learned
        [line] = lines
        written = line.replace("⏎", "\n").replace("␠", " ").removeprefix("nothing")
        other = written.encode().replace("␘".encode(), b"\xff")
        if line.startswith("learn "):
            learned = other.removeprefix(b"learn ")
            return ["learned" if build_extractor(learned, HINT, "a") else "none"]
        extract = build_extractor(learned, HINT, "a")
        assert extract is not None
        before, run = joined(learned), joined(learned, other, learned)
        [text] = extract(joined(other), 0)[0] or [None]
        found = extract(run, 0)
        assert found == ((["a"], len(before)) if text is None else (["a", text, "a"], len(run))), line
        found = extract(run, len(before))
        assert found == (([], len(before)) if text is None else ([text, "a"], len(run))), line
        return ["none"] if text is None else [json.dumps(text, ensure_ascii=False)]

    rows.check(Path(__file__).with_name("shapes.txt"), output_of)


def joined(*raw_events: bytes) -> bytes:
    return b"".join(raw_event + b"\n\n" for raw_event in raw_events)


@pytest.mark.parametrize(
    "frame",
    [
        b'data: {"x":"a"}',  # no such member
        b'data: {"text":"a","d":{"text":"a"}}',  # two of them: which one was it?
        b'data: {"text":"a","text" : "a"}',  # the same, with blanks
        b'data: {"text":"a","te\\u0078t":"a"}',  # the same, with an escape
        b'data: {"te\\u0078t":"a"}\n: "text":"a"',  # the member is not the one of the comment
        b'data: {"text":"a","text"\ndata: :"a"}',  # the second is on two lines
        b'data: {"text":"b","t":"a"}',  # another text than the reader found
        b'data: {"text":["a"]}',
        b'data: {"text": null,"subtext":"a"}',  # another member, whose name ends like it
        b'data: {"t\\u0065xt":"a"}',
        b'data: {"text":"\\ud83d"}',
        b'data: {"text":"\xff"}',
        b'data: {"text":"a',
    ],
)
def test_what_cannot_be_learned(frame: bytes) -> None:
    assert build_extractor(frame, HINT, "a") is None


def test_a_protocol_without_counter_and_padding() -> None:
    extract = build_extractor(b'data: {"n":1,"text":"a","pad":"x"}', DeltaTemplate(b"text"), "a")
    assert extract is not None
    like = b'data: {"n":1,"text":"b","pad":"x"}'
    for other in (b'data: {"n":2,"text":"b","pad":"x"}', b'data: {"n":1,"text":"b","pad":"y"}'):
        assert extract(joined(like, other), 0) == (["b"], len(joined(like)))


TWICE = b'data: {"text":"a","n":1,"d":[{"too":"a"}],"x":1}'


@pytest.mark.parametrize(
    ("frame", "is_like"),
    [
        (b'data: {"text":"b","n":2,"d":[{"too":"b"}],"x":1}', True),
        (b'data: {"text":"\\"b","n":2,"d":[{"too":"\\"b"}],"x":1}', True),
        (b'data: {"text":"b","n":1,"d":[{"too":"a"}],"x":1}', False),
        (b'data: {"text":"b","n":1,"d":[{"too":"bc"}],"x":1}', False),
        (b'data: {"text":"bc","n":1,"d":[{"too":"b"}],"x":1}', False),
        (b'data: {"text":"b","n":1,"d":[{"too":"b"}],"x":2}', False),
        (b'data: {"text":"b","n":1,"d":[{"too":"b"', False),
        (b'data: {"text":"b","n":1}', False),
    ],
)
def test_a_text_that_is_there_twice(frame: bytes, is_like: bool) -> None:
    extract = build_extractor(TWICE, DeltaTemplate(b"text", number=b"n", repeats=(b"too",)), "a")
    assert extract is not None
    like = [TWICE, frame, TWICE] if is_like else [TWICE]
    texts = [json.loads(each.removeprefix(b"data: "))["text"] for each in like]
    assert extract(joined(TWICE, frame, TWICE), 0) == (texts, len(joined(*like)))


@pytest.mark.parametrize(
    "frame",
    [
        b'data: {"text":"\xc3\xa9","too":"e"}',
        b'data: {"text":"\xc3\xa9","too":"\\u00e9"}',  # the same in another spelling
        b'data: {"text":"\xc3\xa9","too" :"\xc3\xa9"}',
        b'data: {"x":"\xc3\xa9"}',
    ],
)
def test_two_texts_that_cannot_be_learned(frame: bytes) -> None:
    assert build_extractor(frame, DeltaTemplate(b"text", repeats=(b"too",)), "\xe9") is None


def test_a_counter_of_any_number_of_digits() -> None:
    frames = [b'data: {"n":%d,"o":0,"text":"a"}' % number for number in (8, 9, 10, 10, 99, 100, 7, 1000, 0)]
    extract = build_extractor(frames[0], HINT, "a")
    assert extract(joined(*frames), 0) == (["a"] * len(frames), len(joined(*frames)))
    for frame in (*frames, b": ping", *frames):  # one in each read, between which it goes on counting
        assert extract(joined(frame), 0)[0] == ([] if frame == b": ping" else ["a"])


@pytest.mark.parametrize(
    ("tail", "is_like"),
    [
        (b'"x":1,"u":{"n":5,"m":[{"k":"T","n":7}]},"y":1', True),
        (b'"x":1,"u":{"n":1234,"m":[{"k":"T","n":0}]},"y":1', True),
        (b'"x":2,"u":{"n":5,"m":[{"k":"T","n":7}]},"y":1', False),
        (b'"x":1,"u":{"n":5,"m":[{"k":"T","n":7}]},"y":2', False),
        (b'"x":1,"u":{"n":5,"m":[{"k":"U","n":7}]},"y":1', False),
        (b'"x":1,"u":{"n":5,"o":6,"m":[{"k":"T","n":7}]},"y":1', False),
        (b'"x":1,"u":{"n":05,"m":[{"k":"T","n":7}]},"y":1', False),
        (b'"x":1,"u":{"n":-5,"m":[{"k":"T","n":7}]},"y":1', False),
        (b'"x":1,"u":{"n":5.5,"m":[{"k":"T","n":7}]},"y":1', False),
        (b'"x":1,"u":{"n":5,"m":[]},"y":1', False),
        (b'"x":1,"u":{"n":5,"m":[{"k":"T","n":7}]},"y":1,"z":1', False),
        (b'"x":1,"u":{"n":5,"m":[{"k":"T","n":7}]},"y":1}', False),
    ],
)
def test_counts_may_differ_but_the_last_frame_is_left(tail: bytes, is_like: bool) -> None:
    learned, other = [b'data: {"text":"a",%b}' % each for each in (_COUNTED, tail)]
    extract = build_extractor(learned, DeltaTemplate(b"text", counts=b"u"), "a")
    assert extract is not None
    frames = joined(other, learned)
    assert extract(frames, 0) == ((["a"], len(joined(other))) if is_like else ([], 0))
    assert extract(joined(learned, other, learned), len(joined(learned)))[0] == (["a"] if is_like else [])


_COUNTED = b'"x":1,"u":{"n":10,"m":[{"k":"T","n":10}]},"y":1'


DELTAS: list[Delta] = [
    TextDelta(3, "a"),
    ArgumentsDelta(3, "a"),
    ReasoningDelta(3, "a", 2, ReasoningForm.SUMMARY),
]


def taken(learned: FastPath, frame: bytes) -> bool:
    """Read one frame as the owner of the fast path does."""
    return learned.take(joined(frame), 0) > 0


@pytest.mark.parametrize("delta", DELTAS)
def test_a_delta_like_it_differs_in_its_text_only(delta: Delta) -> None:
    assert with_texts(delta, ["b", "c"]) == [msgspec.structs.replace(delta, text=text) for text in "bc"]


@pytest.mark.parametrize("noted", [True, False])
def test_the_reader_gets_the_texts_if_it_needs_them(noted: bool) -> None:
    learned = FastPath()
    notes: list[str] = []
    put: list[str] = []
    template = DeltaTemplate(b"text", notes.extend if noted else None)
    learned.learn_from(b'data: {"text":"a"}', "a", template, put.extend)
    assert taken(learned, b'data: {"text":"b"}')
    assert not taken(learned, b'data: {"t":"b"}')
    assert put == ["b"]
    assert notes == (put if noted else [])


def test_what_the_reader_takes_out_is_not_sent() -> None:
    learned = FastPath()
    put: list[list[str]] = []
    learned.learn_from(b'data: {"text":"a"}', "a", DeltaTemplate(b"text", list.clear), put.append)
    assert taken(learned, b'data: {"text":"b"}')
    assert (put, learned.chars) == ([], 0)


def test_nothing_is_cached_at_first_and_after_forget() -> None:
    learned = FastPath()
    put: list[str] = []
    frame = b'data: {"text":"a"}'
    assert not taken(learned, frame)
    learned.learn_from(frame, "a", DeltaTemplate(b"text"), put.extend)
    assert learned.learned
    assert taken(learned, frame)
    learned.reset()
    assert not learned.learned
    assert not taken(learned, frame)
    assert put == ["a"]


def test_a_run_of_frames_is_sent_at_once_up_to_the_next_other_frame() -> None:
    learned = FastPath()
    put: list[list[str]] = []
    learned.learn_from(b'data: {"text":"a"}', "a", DeltaTemplate(b"text"), put.append)
    like, other = b'data: {"text":"b"}', b'data: {"t":"b"}'
    frames = joined(like, like, other, like)
    assert learned.take(frames, 0) == len(joined(like, like))
    assert learned.take(frames, len(joined(like, like, other))) == len(frames)
    assert learned.take(frames, len(frames)) == len(frames)
    assert put == [["b", "b"], ["b"]]


def test_a_stream_that_cannot_be_learned_is_given_up() -> None:
    learned = FastPath()
    tries = 0
    while learned.should_learn():
        learned.learn_from(b'data: {"other":"a"}', "a", HINT, [].extend)
        assert not taken(learned, b'data: {"other":"a"}')
        tries += 1
        assert tries < 100
    assert tries > 3


def test_a_stream_of_shapes_that_never_come_again_is_given_up() -> None:
    """A clock in every frame: each can be learned, and none is like the next."""
    learned = FastPath()
    tries = 0
    while learned.should_learn():
        learned.learn_from(b'data: {"time":%d,"text":"a"}' % tries, "a", HINT, [].extend)
        tries += 1
        assert not taken(learned, b'data: {"time":%d,"text":"a"}' % tries)
        assert tries < 100
    assert tries > 3


def test_a_stream_that_can_be_learned_is_not_given_up() -> None:
    learned = FastPath()
    for _ in range(100):
        learned.learn_from(b'data: {"text":"a"}', "a", HINT, [].extend)
        assert taken(learned, b'data: {"text":"b"}')
        assert learned.should_learn()


def test_a_text_of_megabytes() -> None:
    frame = b'data: {"text":"' + b'a\\"' * 2_000_000 + b'"}'
    start = time.process_time()
    assert build_extractor(frame, HINT, 'a"' * 2_000_000) is not None
    assert time.process_time() - start < 2


# The reader and the fast path


READERS: list[ToyReader] = []


class Quick(ToyReader):
    def __init__(self) -> None:
        super().__init__()
        READERS.append(self)


class Slow(Quick):
    def template_for(self, delta: Delta) -> DeltaTemplate | None:
        return None


def with_reader(reader: type[ToyReader]) -> ProtocolSpec:
    return msgspec.structs.replace(toy("upstream"), stream_reader=lambda response_context, ledger: reader())


SLOW, QUICK = with_reader(Slow), with_reader(Quick)


def reported(
    upstream: ProtocolSpec, client: ProtocolSpec, chunks: list[bytes]
) -> tuple[bytes, Any, list[str]]:
    """Return the bytes for the client, the outcome, and the texts that the reader has kept."""
    machine = ResponseTranslator(client=client, upstream=upstream, context=context_of())
    reader = READERS.pop()
    out = b""
    for chunk in chunks:
        machine.receive_data(chunk)
        out += machine.data_to_send()
    machine.receive_eof()
    return out + machine.data_to_send(), (machine.outcome, machine.error), reader.texts


STARTS: list[Event] = [
    STARTED,
    start_of(BlockKind.TEXT, 0),
    start_of(BlockKind.REASONING, 1),
    start_of(BlockKind.TOOL_CALL, 2),
    start_of(BlockKind.TEXT, 3, 1),
]
NAMES = ["text", "think", "arguments", "text"]
ENDS: list[Event] = [
    *[BlockEnded(block) for block in range(4)],
    Stopped(StopReason.END),
    Stopped(StopReason.END, choice=1),
    ENDED,
]

texts = st.text(st.sampled_from('ab"\\é😀\u2028{}n,'), max_size=4)


@st.composite
def frames(draw: Any) -> bytes:
    """A delta in one of many spellings; now and then a comment, the end of a block, or a damaged frame."""
    kind = draw(st.sampled_from(["delta"] * 12 + ["comment", "end", "damaged"]))
    if kind == "comment":
        return b": ping\n\n"
    block = draw(st.sampled_from([0, 0, 0, 1, 2, 3]))
    if kind == "end":
        return frame_of(BlockEnded(block))
    text = json.dumps(draw(texts), ensure_ascii=draw(st.booleans()))
    number = draw(st.sampled_from(["", '"n":1,', '"n":2,', '"n":10,']))
    tail = draw(st.sampled_from(["}", "}", "} ", ' ,"x":1}', ',"pad":""}', ',"pad":"aZ9"}', ',"part":1}']))
    line = f'data: {{"e":"{NAMES[block]}",{number}"block":{block},"text":{text}{tail}\n\n'.encode()
    if kind == "delta":
        return line
    at = draw(st.integers(6, len(line) - 3))
    return (
        line[:at]
        + draw(st.sampled_from([b"", b'"', b"\\", b"\n", b" ", b"0", b"\xff", b","]))
        + line[at + 1 :]
    )


@PROPERTY
@given(st.lists(frames(), max_size=25), places, st.booleans())
def test_both_ways_agree(lines: list[bytes], cuts: list[int], narrow: bool) -> None:
    client = toy("client", sequential=narrow, choices=not narrow)
    data = b"".join([*map(frame_of, STARTS), *lines, *map(frame_of, ENDS)])
    slow = reported(SLOW, client, [data])
    assert reported(QUICK, client, [data]) == slow
    assert reported(QUICK, client, cut_at(data, cuts)) == slow


def test_the_fast_path_is_used() -> None:
    """Or the test above would prove nothing."""
    calls = 0

    class Counting(Quick):
        def read(self, frame: Any) -> Any:
            nonlocal calls
            calls += 1
            return super().read(frame)

    deltas: list[Event] = [TextDelta(0, str(number)) for number in range(100)]
    data = [frame_of(event) for event in [*STARTS, *deltas, *ENDS]]
    out, _, reported_items = reported(with_reader(Counting), toy("client"), data)
    added = frame_of(ArgumentsDelta(2, "{}"))  # for the call that had no arguments
    assert out == b"".join(data).replace(frame_of(BlockEnded(2)), added + frame_of(BlockEnded(2)))
    assert reported_items == [str(number) for number in range(100)]
    assert calls == len(STARTS) + 1 + len(ENDS)
