"""The fast lane: deltas that look like the one before are read without decoding the frame.

Strategy: nearly all frames of a stream differ from the frame before in one JSON string, and maybe in a counter
and a padding string. When a reader has read a frame as exactly one delta, the bytes around that string are
learned as a shape. A later frame with equal bytes around it, whose middle is one JSON string, is by that the
same JSON but for the string, and means the same delta with another text. Any other frame goes the general way,
and the shape is forgotten, for the reader's state may have changed.

What the reader keeps of each text (arguments, for instance, to know when they are complete) it still gets.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

import msgspec

from ._events import ArgumentsDelta, ReasoningDelta, TextDelta

Delta = TextDelta | ReasoningDelta | ArgumentsDelta

# A stream whose frames never look alike (a server that puts its clock into each) is not worth learning.
_MAX_MISSES = 16

_decode_text = msgspec.json.Decoder(str).decode
_STRING = rb'("(?:[^"\\]|\\.)*")'


class LaneHint(msgspec.Struct, frozen=True):
    """What a reader says of the delta that it has just given.

    key: the member that held the text, e.g. b"content".
    note: what the reader wants to do with each text, None for nothing.
    number: a member that counts frames, b"" for none. The reader does not look at it.
    padding: a member that holds random characters at the end of the frame, b"" for none.
    """

    key: bytes
    note: Callable[[str], None] | None = None
    number: bytes = b""
    padding: bytes = b""


class Shape:
    """The bytes around the text of the frames of one block."""

    __slots__ = ("_close", "_head", "_middle", "_spaced", "_tail")

    def __init__(self, head: bytes, middle: bytes, tail: bytes, close: bytes) -> None:
        self._head = head
        self._middle = middle  # what stands between the counter and the text; b"" without a counter
        self._tail = tail
        self._close = close  # what follows the padding; b"" without padding
        # Without a string in it, a tail may be spaced in any way: Anthropic pads its frames with blanks.
        self._spaced = not close and b'"' not in tail

    def text(self, piece: bytes) -> str | None:
        """The text of a frame that has this shape, None for any other frame and for an empty text."""
        head = self._head
        if not piece.startswith(head):
            return None
        start = len(head)
        if self._middle:
            comma = piece.find(b",", start)
            if not piece[start:comma].isdigit() or not piece.startswith(self._middle, comma):
                return None
            start = comma + len(self._middle)
        tail = self._tail
        if self._spaced:
            end = piece.rfind(b'"') + 1
            rest = piece[end:]
            if rest != tail and rest.replace(b" ", b"") != tail:
                return None
        elif self._close:
            end = piece.rfind(tail)
            if end < 0 or not piece.endswith(self._close):
                return None
            padding = piece[end + len(tail) : -len(self._close)]
            if padding and not padding.isalnum():
                return None
        elif piece.endswith(tail):
            end = len(piece) - len(tail)
        else:
            return None
        try:
            return _decode_text(piece[start:end]) or None
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None  # not one JSON string: something else differs, too


def learn(piece: bytes, hint: LaneHint, text: str) -> Shape | None:
    """The shape of a frame that was read as one delta with this text, None when it is not that simple."""
    member, number, padding = _patterns(hint.key, hint.number, hint.padding)
    found = list(member.finditer(piece))
    if len(found) != 1:
        return None  # the text, or what looks like it, stands there twice
    start, end = found[0].span(1)
    try:
        if _decode_text(piece[start:end]) != text:
            return None
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    head, middle, tail, close = piece[:start], b"", piece[end:], b""
    counter = None if number is None else number.search(head)
    if counter is not None:
        head, middle = head[: counter.start(1)], head[counter.end(1) :]
    random = None if padding is None else padding.search(tail)
    if random is not None:
        tail, close = tail[: random.start(1)], tail[random.end(1) :]
    return Shape(head, middle, tail if close or b'"' in tail else tail.replace(b" ", b""), close)


@lru_cache(maxsize=64)
def _patterns(
    key: bytes, number: bytes, padding: bytes
) -> tuple[re.Pattern[bytes], re.Pattern[bytes] | None, re.Pattern[bytes] | None]:
    return (
        re.compile(rb'"' + key + rb'":[ ]?' + _STRING, re.DOTALL),
        re.compile(rb'"' + number + rb'":[ ]?([0-9]+),') if number else None,
        re.compile(rb'"' + padding + rb'":[ ]?"([A-Za-z0-9]*)"[ }\]]*\Z') if padding else None,
    )


class Lane:
    """What is known of the frames of one stream: at most one shape at a time.

    Ask take() for each frame. For one that it does not take: forget(), have it read, and if that gave one
    delta, offer it with keep().
    """

    __slots__ = ("_delta", "_misses", "_note", "_read")

    def __init__(self) -> None:
        self._read: Callable[[bytes], str | None] | None = None
        self._note: Callable[[str], None] | None = None
        self._delta: Delta | None = None
        self._misses = 0

    def take(self, piece: bytes) -> Delta | None:
        """The delta that a frame stands for, if it has the known shape."""
        read = self._read
        if read is None:
            return None
        text = read(piece)
        if text is None:
            return None
        if self._note is not None:
            self._note(text)
        self._misses = 0
        like = self._delta
        if type(like) is TextDelta:
            return TextDelta(like.block, text)
        if type(like) is ArgumentsDelta:
            return ArgumentsDelta(like.block, text)
        assert type(like) is ReasoningDelta
        return ReasoningDelta(like.block, text, like.part, like.form)

    def forget(self) -> None:
        self._read = None

    def wants(self) -> bool:
        """Whether it is worth to offer a frame."""
        return self._misses < _MAX_MISSES

    def keep(self, piece: bytes, delta: Delta, hint: LaneHint) -> None:
        """Learn from a frame that was read as this delta."""
        self._misses += 1
        shape = learn(piece, hint, delta.text)
        if shape is not None:
            self._read = shape.text
            self._note = hint.note
            self._delta = delta
