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
from collections.abc import Callable, Iterator
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
        on_texts: Called with the texts of each run of such frames, None for nothing.
        number: A member that counts frames, b"" for none. The reader does not use it.
        padding: A member with random characters at the end of the frame, b"" for none.
    """

    key: bytes
    on_texts: Callable[[list[str]], object] | None = None
    number: bytes = b""
    padding: bytes = b""


# Takes raw events until one does not have the shape, or has an empty text. Returns the texts of those before it, and
# that one, None if there is none.
Extractor = Callable[[Iterator[bytes]], tuple[list[str], bytes | None]]


def build_extractor(raw_event: bytes, template: DeltaTemplate, text: str) -> Extractor | None:
    """Return an extractor for frames like this one, which was read as one delta of `text`. None if none is safe."""
    member, number, padding = _patterns(template.key, template.number, template.padding)
    found = list(member.finditer(raw_event))
    if len(found) != 1:
        return None  # the text, or what looks like it, occurs twice
    start, end = found[0].span(1)
    try:
        if _decode_text(raw_event[start:end]) != text:
            return None
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    # The quotes are part of head and tail, because a line end next to them would make another frame.
    head, middle, tail = raw_event[: start + 1], b"", raw_event[end - 1 :]
    counter = None if number is None else number.search(head)
    if counter is not None:
        head, middle = head[: counter.start(1)], head[counter.end(1) :]
    random = None if padding is None else padding.search(tail)
    if random is not None:
        return _extractor(head, middle, _padded_end(tail[: random.start(1)], tail[random.end(1) :]))
    if tail.strip(b'"}] '):
        return _extractor(head, middle, tail)
    return _extractor(head, middle, _spaced_end(tail.replace(b" ", b"")))


# Returns where the text of a frame ends, -1 if the frame has another shape.
_EndFinder = Callable[[bytes], int]


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


def _extractor(head: bytes, middle: bytes, tail: bytes | _EndFinder) -> Extractor:
    """Read frames with a counter between head and middle, unless there is no middle."""
    end_of = None if isinstance(tail, bytes) else tail
    end = tail if isinstance(tail, bytes) else b""
    size, more, less = len(head), len(middle), len(end) - 1

    def extract(raw_events: Iterator[bytes]) -> tuple[list[str], bytes | None]:
        # One loop without functions of its parts, because it runs for nearly every event.
        texts: list[str] = []
        start, comma = size - 1, 0
        for raw_event in raw_events:
            if not raw_event.startswith(head):
                return texts, raw_event
            if middle:
                if not raw_event.startswith(middle, comma):  # the number has more digits than the one before
                    comma = raw_event.find(b",", size)
                    if not raw_event.startswith(middle, comma):
                        return texts, raw_event
                count = raw_event[size:comma]
                if not count.isdigit() or (count[0] == _ZERO and len(count) > 1):
                    return texts, raw_event
                start = comma + more - 1
            if end_of is None:
                stop = len(raw_event) - less if raw_event.endswith(end) else 0
            else:
                stop = end_of(raw_event) + 1
            try:
                # Without an end nothing is left, which is no JSON string either: then more than the text differs.
                text = _decode_text(raw_event[start:stop])
            except (msgspec.DecodeError, UnicodeDecodeError):
                return texts, raw_event
            if not text:
                return texts, raw_event
            texts.append(text)
        return texts, None

    return extract


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

    Call take() for the raw events of each read. For each one that it returns, call reset() and have the frame read, and
    if that gave one delta and should_learn() is true, call learn_from().
    """

    __slots__ = ("_extract", "_misses", "_on_texts", "_send")

    def __init__(self) -> None:
        self._extract: Extractor | None = None
        self._on_texts: Callable[[list[str]], object] | None = None
        self._send: Callable[[list[str]], object]
        self._misses = 0

    def take(self, raw_events: Iterator[bytes]) -> bytes | None:
        """Send the deltas that look like the learned one, and return the first other raw event, None at the end."""
        if self._extract is None:
            return next(raw_events, None)
        texts, raw_event = self._extract(raw_events)
        if texts:
            self._misses = 0  # a frame like it came, so learning is worthwhile
            if self._on_texts is not None:
                self._on_texts(texts)
            self._send(texts)
        return raw_event

    def reset(self) -> None:
        self._extract = None

    def should_learn(self) -> bool:
        """True if learning from the next frame is worthwhile."""
        return self._misses < _MAX_MISSES

    def learn_from(
        self, raw_event: bytes, text: str, template: DeltaTemplate, send: Callable[[list[str]], object]
    ) -> None:
        """Learn from a frame that was read as one delta of this text. send: called with the texts of those like it."""
        self._misses += 1
        self._extract = build_extractor(raw_event, template, text)
        self._on_texts, self._send = template.on_texts, send


def with_texts(delta: Delta, texts: list[str]) -> list[Delta]:
    """Return deltas like this one with other texts."""
    block = delta.block
    if isinstance(delta, ReasoningDelta):
        part, form = delta.part, delta.form
        return [ReasoningDelta(block, text, part, form) for text in texts]
    kind = type(delta)
    return [kind(block, text) for text in texts]
