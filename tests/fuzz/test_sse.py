"""Invariant: however bytes are cut, the parser gives the frames that the standard's rules give, none lost, none more,
and holds no more of an unfinished one than its limit.
"""

from fuzz import change_frames, chunks, cut_places, cuts, damage, frame_steps, frames_of, fuzz, streams
from hypothesis import strategies as st
from oracle.frames import LINE_END, lenient_frames

from dragoman.sse import Frame, SSEParser

STREAMS = [each for found in streams().values() for each in found]
LIMIT = 4096
# Lines of every kind, in any order.
_LINES = st.sampled_from(b"data: x|data:y|data|data: {}|event: e|event:|: c|:|id: 1|retry: 1|z||".split(b"|"))
_ENDS = st.sampled_from([b"\n", b"\n", b"\r\n", b"\r"])
made = st.lists(st.tuples(_LINES, _ENDS).map(b"".join), max_size=20).map(b"".join)
taken = st.tuples(
    st.sampled_from(STREAMS), st.lists(frame_steps, max_size=4), st.lists(cuts, max_size=3)
).map(lambda drawn: damage(change_frames(frames_of(drawn[0]), drawn[1]), drawn[2]))


def check(stream: bytes, places: list[int]) -> None:
    parser = SSEParser(max_event_bytes=LIMIT)
    frames = []
    for chunk in chunks(stream, places):
        frames += parser.receive_data(chunk)
        assert parser.held_bytes <= LIMIT + 1
    at_once = SSEParser(max_event_bytes=LIMIT)
    whole = at_once.receive_data(stream)
    assert frames == whole, "the cut shows"
    assert (parser.error is None) == (at_once.error is None)
    if parser.error is not None:
        return
    assert checked_elsewhere(stream) or reported(whole) == by_other_code(stream)
    assert len(parser.receive_eof()) <= 1


def reported(frames: list[Frame]) -> list[tuple[str, str]]:
    return [(each.event.decode("utf-8", "replace"), each.data.decode("utf-8", "replace")) for each in frames]


def checked_elsewhere(stream: bytes) -> bool:
    """Lines `error:` are an extension of ours to the standard."""
    return b"error" in stream


def by_other_code(stream: bytes) -> list[tuple[str, str]]:
    """The frames that a blank line ends. What stands behind the last one is for the caller of receive_eof()."""
    lines = LINE_END.split(stream.decode("utf-8", "replace"))
    blank = [number for number, line in enumerate(lines[:-1]) if not line]
    ended = "".join(line + "\n" for line in lines[: blank[-1] + 1]) if blank else ""
    return [(each.event or "", each.data) for each in lenient_frames(ended.encode())]


@fuzz(st.one_of(made, taken), cut_places, examples=200)
def test_frames_are_those_of_the_standard(stream: bytes, places: list[int]) -> None:
    check(stream, places)
