"""Whole frames of a stream come out with the bytes that went in, however the stream was cut."""

import itertools

import msgspec
import pytest

from dragoman._wire import frame_cutter
from dragoman._wire.frame_cutter import FrameCutter, split_frames
from dragoman._wire.limits import LINES
from dragoman._wire.sse import Frame, parse_frames
from dragoman.testing import chop

ENDINGS = (b"\n", b"\r\n", b"\r")


def frames_of(*endings: bytes) -> list[bytes]:
    """Three frames whose lines end in turn with one of these."""
    ending = itertools.cycle(endings)
    return [
        b"event: e" + next(ending) + b"data: %d" % number + next(ending) + next(ending) for number in range(3)
    ]


@pytest.mark.parametrize("endings", [*((each,) for each in ENDINGS), (b"\n", b"\r\n"), (b"\r\n", b"\n")])
def test_whole_frames_are_passed_on_unchanged(endings: tuple[bytes, ...]) -> None:
    frames = frames_of(*endings)
    unfinished = b"data: 3"
    data = b"".join(frames) + unfinished
    for chunks in chop(data):
        cutter = FrameCutter()
        whole = [cutter.receive_data(chunk) for chunk in chunks]
        assert cutter.held_bytes == len(unfinished), chunks
        assert b"".join(whole) + cutter.take_held() == data, chunks
        assert cutter.held_bytes == 0
    assert list(split_frames(data)) == [*frames, unfinished]


def test_held_bytes_can_be_replaced() -> None:
    cutter = FrameCutter()
    assert cutter.receive_data(b"data: 1\n\ndata: se") == b"data: 1\n\n"
    assert cutter.take_held() == b"data: se"
    cutter.hold(b"data: **")
    assert (cutter.held_bytes, cutter.take_held(), cutter.take_held()) == (8, b"data: **", b"")


def test_frames_without_a_last_blank_line_are_parsed_too() -> None:
    frames = parse_frames(b": x\n\ndata: 1\n\nevent: e\ndata: 2")
    assert list(frames) == [Frame(b"", b"1"), Frame(b"e", b"2")]


@pytest.mark.parametrize("ending", [b"\n", b"\r"])
def test_an_event_with_too_many_lines(ending: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frame_cutter, "LINES", msgspec.structs.replace(LINES, most=10))
    good, blank = b"data: 1" + ending, ending * 2
    data = good * 7 + blank + b"data" + ending * 2
    for chunks in chop(data * 3):
        cutter = FrameCutter()
        assert b"".join(map(cutter.receive_data, chunks)) == data * 3, chunks
        assert cutter.error is None
    for chunks in chop(data + good * 13 + blank):
        cutter, out = FrameCutter(), b""
        for chunk in chunks:
            out += cutter.receive_data(chunk)
            if cutter.error is not None:
                break
        assert out == data, chunks
        assert cutter.error is not None
        assert "lines; at most 10 are accepted" in cutter.error
