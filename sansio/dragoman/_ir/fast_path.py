"""The fast path: deltas that look like the one before are read without decoding the frame.

Nearly all frames of a stream differ from the frame before in one JSON string, and maybe in a counter and a padding
string. When a reader has read a frame as exactly one delta, the bytes around that string are learned as a shape. A
later frame with equal bytes around it, whose middle is one JSON string, is therefore the same JSON but for the
string, and is the same delta with another text. Any other frame is decoded, and the shape is dropped, because the
reader's state may have changed. A reader that collects each text (arguments, for instance, until they are complete)
still gets it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

import msgspec

from dragoman._ir.events import ArgumentsDelta, ReasoningDelta, TextDelta

Delta = TextDelta | ReasoningDelta | ArgumentsDelta

# A stream whose frames never look alike (a server that puts its clock into each) is not worth learning.
_MAX_MISSES = 16

_ZERO = ord("0")

_decode_text = msgspec.json.Decoder(str).decode
# Possessive, so that a string of many megabytes costs no memory.
_STRING = rb'("[^"\\]*+(?:\\.[^"\\]*+)*+")'


class DeltaTemplate(msgspec.Struct, frozen=True):
    """How to read later frames of the same shape without decoding their JSON.

    Attributes:
        key: The member that held the text, e.g. b"content".
        on_text: Called with each text, None for nothing.
        number: A member that counts frames, b"" for none. The reader does not use it.
        padding: A member with random characters at the end of the frame, b"" for none.
    """

    key: bytes
    on_text: Callable[[str], None] | None = None
    number: bytes = b""
    padding: bytes = b""


# Returns the text of a frame that has the shape, None for any other frame and for an empty text.
TextExtractor = Callable[[bytes], str | None]


def build_extractor(raw_event: bytes, template: DeltaTemplate, text: str) -> TextExtractor | None:
    """Return an extractor for frames like this one, which was read as one delta of `text`. None if none is safe."""
    member, number, padding = _patterns(template.key, template.number, template.padding)
    found = list(member.finditer(raw_event))
    if len(found) != 1:
        return None  # the text, or what looks like it, occurs twice
    start, end = found[0].span(1)
    if _text(raw_event[start:end]) != text:
        return None
    # The quotes are part of head and tail, because a line end next to them would make another frame.
    head, middle, tail = raw_event[: start + 1], b"", raw_event[end - 1 :]
    counter = None if number is None else number.search(head)
    if counter is not None:
        head, middle = head[: counter.start(1)], head[counter.end(1) :]
    random = None if padding is None else padding.search(tail)
    if random is not None:
        ends = _padded_end(tail[: random.start(1)], tail[random.end(1) :])
    elif tail.strip(b'"}] '):
        ends = _fixed_end(tail)
    else:
        ends = _spaced_end(tail.replace(b" ", b""))
    return _plain_extractor(head, ends) if counter is None else _counted_extractor(head, middle, ends)


# Where the text of a frame ends, -1 when the frame has another shape.
_EndFinder = Callable[[bytes], int]


def _fixed_end(tail: bytes) -> _EndFinder:
    size = len(tail)
    return lambda raw_event: len(raw_event) - size if raw_event.endswith(tail) else -1


def _spaced_end(tail: bytes) -> _EndFinder:
    """Match a tail of brackets with any spaces, because Anthropic pads its frames with blanks, as recorded in 2026."""

    def end_of(raw_event: bytes) -> int:
        end = raw_event.rfind(b'"')
        rest = raw_event[end:]
        return end if rest == tail or rest.replace(b" ", b"") == tail else -1

    return end_of


def _padded_end(tail: bytes, close: bytes) -> _EndFinder:
    def end_of(raw_event: bytes) -> int:
        end = raw_event.rfind(tail)
        start, stop = end + len(tail), len(raw_event) - len(close)
        fits = start == stop or raw_event[start:stop].isalnum()
        return end if fits and raw_event.endswith(close) else -1

    return end_of


def _plain_extractor(head: bytes, end_of: _EndFinder) -> TextExtractor:
    size = len(head)

    def read(raw_event: bytes) -> str | None:
        # Without an end, at -1, nothing is left, which is no JSON string either.
        return _text(raw_event[size - 1 : end_of(raw_event) + 1]) if raw_event.startswith(head) else None

    return read


def _counted_extractor(head: bytes, middle: bytes, end_of: _EndFinder) -> TextExtractor:
    """Read frames with a counter between head and middle."""
    size, more = len(head), len(middle)

    def read(raw_event: bytes) -> str | None:
        comma = raw_event.find(b",", size)
        if not raw_event.startswith(head) or not raw_event.startswith(middle, comma):
            return None
        count = raw_event[size:comma]
        if not count.isdigit() or (count[0] == _ZERO and len(count) > 1):
            return None
        return _text(raw_event[comma + more - 1 : end_of(raw_event) + 1])

    return read


def _text(literal: bytes) -> str | None:
    """Return the text of one JSON string. None for anything else: then more than the text differs."""
    try:
        return _decode_text(literal) or None
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


@lru_cache(maxsize=64)
def _patterns(
    key: bytes, number: bytes, padding: bytes
) -> tuple[re.Pattern[bytes], re.Pattern[bytes] | None, re.Pattern[bytes] | None]:
    return (
        re.compile(rb'"' + key + rb'":[ ]?' + _STRING, re.DOTALL),
        re.compile(rb'"' + number + rb'":[ ]?([0-9]+),') if number else None,
        re.compile(rb'"' + padding + rb'":[ ]?"([A-Za-z0-9]*)"[ }\]]*\Z') if padding else None,
    )


class FastPath:
    """The shape of a stream's frames, at most one at a time.

    For each frame call `extract_text`, if there is one. If it returns no text, call reset() and have the frame read,
    and if that gave one delta and should_learn() is true, call learn_from().
    """

    __slots__ = ("_misses", "emit", "extract_text")

    def __init__(self) -> None:
        self.extract_text: TextExtractor | None = None
        self.emit: Callable[[str], None] = _nothing_learned
        self._misses = 0

    def reset(self) -> None:
        self.extract_text = None

    def should_learn(self) -> bool:
        """True if learning from the next frame is worthwhile."""
        return self._misses < _MAX_MISSES

    def learn_from(
        self, raw_event: bytes, delta: Delta, template: DeltaTemplate, put: Callable[[Delta], object]
    ) -> None:
        """Learn from a frame that was read as this delta. put: called by `emit` with each delta like it."""
        self._misses += 1
        self.extract_text = build_extractor(raw_event, template, delta.text)
        if self.extract_text is None:
            return
        emit = _emitter(delta, template.on_text, put)

        def first(text: str) -> None:
            self._misses = 0  # a frame like it came, so learning is worthwhile; later ones need not count
            self.emit = emit
            emit(text)

        self.emit = first


def _nothing_learned(text: str) -> None:
    raise AssertionError("nothing was learned")


def _emitter(
    like: Delta, on_text: Callable[[str], None] | None, put: Callable[[Delta], object]
) -> Callable[[str], None]:
    """Return a function that makes deltas like this one of their texts and passes them to `put`."""
    block = like.block
    if isinstance(like, ReasoningDelta):
        part, form = like.part, like.form

        def emit(text: str) -> None:
            if on_text is not None:
                on_text(text)
            put(ReasoningDelta(block, text, part, form))

        return emit
    kind = TextDelta if isinstance(like, TextDelta) else ArgumentsDelta

    def emit_text(text: str) -> None:
        if on_text is not None:
            on_text(text)
        put(kind(block, text))

    return emit_text
