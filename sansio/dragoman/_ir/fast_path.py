"""The fast path: deltas that look like the one before are read without decoding the frame.

Nearly all frames of a stream differ from the frame before in one JSON string, which may be there twice, and maybe in a
counter and a padding string. When a reader has read a frame as exactly one delta, the bytes around that string are
learned as a shape. A later frame with equal bytes around it, whose middle is one JSON string, is therefore the same
JSON but for the string, and is the same delta with another text. Any other frame is decoded, and the shape is dropped,
because the reader's state may have changed. A reader that collects each text (arguments, for instance, until they are
complete) still gets it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from operator import itemgetter

import msgspec

from dragoman._ir.events import ArgumentsDelta, ReasoningDelta, TextDelta

Delta = TextDelta | ReasoningDelta | ArgumentsDelta

# What a delta counts besides the characters of its text: a short string takes 50 bytes more in memory.
DELTA_CHARS = 16

# A stream whose frames never look alike (a server that puts its clock into each) is not worth learning.
_MAX_MISSES = 16

_FRAME_END = b"\n\n"
_QUOTE = ord('"')
# A counter without leading zeros, as JSON has it.
_NUMBER = re.compile(rb"0|[1-9][0-9]{0,15}")
_KINDS = {"number": _NUMBER, "padding": re.compile(rb"[A-Za-z0-9]*+")}

# An object with at most one more level, no string of which has a brace or an escape, and the numbers of its members.
_FLAT = rb'[^{}"]++|"[^"\\{}]*"'
_OBJECT = re.compile(rb"[ ]?\{(?:" + _FLAT + rb"|\{(?:" + _FLAT + rb")*+\})*+\}")
_COUNT = re.compile(rb'(?:(?<=":)|(?<=": ))(?:0|[1-9][0-9]{0,15})(?=[,} ])')

_decode_text = msgspec.json.Decoder(str).decode
# Possessive, so that a string of many megabytes costs no memory.
_STRING = rb'("[^"\\]*+(?:\\.[^"\\]*+)*+")'


class DeltaTemplate(msgspec.Struct, frozen=True):
    """How to read later frames of the same shape without decoding their JSON.

    Attributes:
        key: The member that held the text, e.g. b"content".
        on_texts: Called with the texts of each run of such frames, None for nothing. What it takes out is not sent.
        number: A member that counts frames, b"" for none. The reader does not use it.
        padding: A member behind the text with random characters, b"" for none.
        counts: A member behind the text whose numbers may differ, b"" for none. The last frame of each run is left to
            the reader, which gets the counts of all of them from it, because they are cumulative.
        repeats: Other members that have the same text if they are there. The reader reads them alike, or not at all.
    """

    key: bytes
    on_texts: Callable[[list[str]], object] | None = None
    number: bytes = b""
    padding: bytes = b""
    counts: bytes = b""
    repeats: tuple[bytes, ...] = ()


# Takes the bytes of whole frames and the place where one begins. Returns the texts of the frames from there on that
# have the shape, up to one with an empty text, and where the first other begins.
Extractor = Callable[[bytes, int], tuple[list[str], int]]


def build_extractor(raw_event: bytes, template: DeltaTemplate, text: str) -> Extractor | None:
    """Return an extractor for frames like this one, which was read as one delta of `text`. None if none is safe."""
    keys = b"|".join((template.key, *template.repeats))
    name, member, number, varying = _patterns(keys, template.number, template.padding)
    found = list(member.finditer(raw_event))
    if not found or (len(found) > 1 and not template.repeats) or len({each[1] for each in found}) > 1:
        return None  # another text, or what looks like it, occurs as well
    start, end = found[0].span(1)
    try:
        if _decode_text(raw_event[start:end]) != text:
            return None
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    # The quotes are part of head and tail, because a line end next to them would make another frame.
    head, middle, tail = raw_event[: start + 1], b"", raw_event[end - 1 :]
    around = member.sub(b"", raw_event)
    if name.search(around) is not None or b"\\u" in around:
        return None  # the member may occur in another spelling too, with the text that the reader takes
    counter = None if number is None else number.search(head)
    if counter is not None:
        head, middle = head[: counter.start(1)], head[counter.end(1) :]
    pieces = _around_counts(tail, template.counts) if template.counts else []
    if len(pieces) > 1:
        return _without_last(_extractor(head, middle, tail, _varied_end(pieces, [_NUMBER] * len(pieces))))
    pieces, kinds = _around_values(raw_event, end - 1, found[1:], varying)
    if kinds:
        tail = b"" if len(found) > 1 else tail
        end_of = _varied_end(pieces, kinds)
    else:
        end_of = _fixed_end(tail) if tail.strip(b'"}] ') else _spaced_end(tail.replace(b" ", b""))
    return _extractor(head, middle, tail, end_of)


# Returns where the text ends in the rest of a frame that begins with it, -1 when the frame has another shape.
_EndFinder = Callable[[bytes], int]


def _fixed_end(tail: bytes) -> _EndFinder:
    size = len(tail)
    return lambda rest: len(rest) - size if rest.endswith(tail) else -1


def _spaced_end(tail: bytes) -> _EndFinder:
    """Match a tail of brackets with any spaces, because Anthropic pads its frames with blanks, as recorded in 2026."""

    def end_of(rest: bytes) -> int:
        end = rest.rfind(b'"')
        after = rest[end:]
        return end if after == tail or after.replace(b" ", b"") == tail else -1

    return end_of


def _around_counts(tail: bytes, member: bytes) -> list[bytes]:
    """Return the bytes before and after the numbers in a member."""
    at = tail.find(b'"' + member + b'":')
    found = _OBJECT.match(tail, at + len(member) + 3) if at >= 0 else None
    if found is None:
        return []
    pieces = _COUNT.split(found.group())
    return [tail[: found.start()] + pieces[0], *pieces[1:-1], pieces[-1] + tail[found.end() :]]


# The values that may differ behind the text: a pattern, or None for the text again.
_Kind = re.Pattern[bytes] | None


def _around_values(
    raw_event: bytes, at: int, repeats: list[re.Match[bytes]], varying: re.Pattern[bytes] | None
) -> tuple[list[bytes], list[_Kind]]:
    """Return the bytes from the end of the text on, without the values that may differ, and the kinds of these.

    OpenAI's Responses have counter and padding behind the text, since January 2026. OpenRouter, vLLM and Together have
    the text twice (all recorded).
    """
    values: list[tuple[int, int, _Kind]] = [(each.start(1) + 1, each.end(1) - 1, None) for each in repeats]
    for value in () if varying is None else varying.finditer(raw_event, at):
        kind = str(value.lastgroup)
        values.append((*value.span(kind), _KINDS[kind]))
    values.sort(key=itemgetter(0))
    pieces: list[bytes] = []
    for start, stop, _ in values:
        pieces.append(raw_event[at:start])
        at = stop
    return [*pieces, raw_event[at:]], [kind for _, _, kind in values]


def _varied_end(pieces: list[bytes], kinds: Sequence[_Kind]) -> _EndFinder:
    """Match a tail of these pieces, with a value of each kind between two."""
    first, *others = pieces
    following = list(zip(kinds, others, strict=False))

    def end_of(rest: bytes) -> int:
        end = rest.find(first)
        at = end + len(first)
        for kind, piece in following:
            if kind is None:
                stop = at + end
                fits = rest[at:stop] == rest[:end] and rest.startswith(piece, stop)
            else:
                stop = rest.find(piece, at)
                fits = stop >= 0 and kind.fullmatch(rest, at, stop) is not None
            if not fits:
                return -1
            at = stop + len(piece)
        return end if at == len(rest) else -1

    return end_of


def _without_last(extract: Extractor) -> Extractor:
    """Leave the last frame of each run."""

    def extract_others(frames: bytes, position: int) -> tuple[list[str], int]:
        texts, end = extract(frames, position)
        if texts:
            texts.pop()
            end = frames.rfind(_FRAME_END, position, end - 1) + len(_FRAME_END) if texts else position
        return texts, end

    return extract_others


def _extractor(head: bytes, middle: bytes, tail: bytes, end_of: _EndFinder) -> Extractor:
    """Return an extractor for frames with these bytes around the text.

    middle: what follows the counter behind the head, b"" if there is none. tail: b"" if it has the text again. end_of:
    finds the end of a text with quotes in it, or with another tail.
    """
    numbered = head.replace(b"%", b"%%") + b"%d" + middle.replace(b"%", b"%%")
    number = -1  # of the last frame
    end = tail + _FRAME_END if tail else ()  # with which nothing begins
    size, less = len(head), len(end)

    def number_of(frames: bytes, position: int) -> int:
        """Return the number of the frame at this place, -1 if it has another shape."""
        if not frames.startswith(head, position):
            return -1
        comma = frames.find(b",", position + size)
        digits = frames[position + size : comma]
        fits = _NUMBER.fullmatch(digits) is not None and frames.startswith(middle, comma)
        return int(digits) if fits else -1

    def extract(frames: bytes, position: int) -> tuple[list[str], int]:
        # One loop over the bytes, without a copy of each frame, because nearly every event comes here.
        nonlocal number
        texts: list[str] = []
        before, last = head, len(frames)
        while position < last:
            if middle:
                number += 1  # as it nearly always is, from one call to the next too
                before = numbered % number
            if not frames.startswith(before, position):
                number = number_of(frames, position) if middle else -1
                if number < 0:
                    break
                before = numbered % number
            start = position + len(before)
            close = frames.find(_QUOTE, start)
            if frames.startswith(end, close):
                stop = close + less
            else:
                stop = frames.find(_FRAME_END, start)
                close = start + end_of(frames[start:stop])
                stop += len(_FRAME_END)
            try:
                # Without an end nothing is left, which is no JSON string either: then more than the text differs.
                text = _decode_text(frames[start - 1 : close + 1])
            except (msgspec.DecodeError, UnicodeDecodeError):
                break
            if not text:
                break
            texts.append(text)
            position = stop
        return texts, position

    return extract


@lru_cache(maxsize=64)
def _patterns(
    keys: bytes, number: bytes, padding: bytes
) -> tuple[re.Pattern[bytes], re.Pattern[bytes], re.Pattern[bytes] | None, re.Pattern[bytes] | None]:
    """Return the patterns of the members' names, of the members, of the counter, and of what varies behind the text."""
    counter = rb'"' + number + rb'":[ ]?(?P<number>[0-9]+)'
    random = rb'"' + padding + rb'":[ ]?"(?P<padding>[A-Za-z0-9]*)"'
    varying = [counter + rb"(?=[ ]?[,}])"] * bool(number) + [random] * bool(padding)
    return (
        # Neither as a value nor with one that is no string.
        re.compile(rb'"(?:' + keys + rb')"(?!:?[,{}\[\]a-z0-9])'),
        re.compile(rb'"(?:' + keys + rb')":[ ]?' + _STRING, re.DOTALL),
        re.compile(counter + b",") if number else None,
        re.compile(b"|".join(varying)) if varying else None,
    )


class FastPath:
    """The shape of a stream's frames, at most one at a time.

    Call take() for the frames of each read, if something is learned. If it does not reach their end, call reset() and
    have the next one read, and if that gave one delta and should_learn() is true, call learn_from(); then take() again.

    learned: there is a shape.
    chars: of all texts that were sent.
    size: the same with DELTA_CHARS for each, and what the caller adds for others.
    """

    __slots__ = ("_extract", "_misses", "_on_texts", "_send", "chars", "learned", "size")

    def __init__(self) -> None:
        self.learned = False
        self.chars = self.size = 0
        self._extract: Extractor | None = None
        self._on_texts: Callable[[list[str]], object] | None = None
        self._send: Callable[[list[str]], object]
        self._misses = 0

    def take(self, frames: bytes, position: int) -> int:
        """Send the deltas from this place on that look like the learned one, and return where another frame begins."""
        if self._extract is None:
            return position
        texts, position = self._extract(frames, position)
        if texts:
            self._misses = 0  # a frame like it came, so learning is worthwhile
            if self._on_texts is not None:
                self._on_texts(texts)
            chars = len("".join(texts))
            self.chars += chars
            self.size += chars + DELTA_CHARS * len(texts)
            if texts:
                self._send(texts)
        return position

    def reset(self) -> None:
        self._extract, self.learned = None, False

    def should_learn(self) -> bool:
        """True if learning from the next frame is worthwhile."""
        return self._misses < _MAX_MISSES

    def learn_from(
        self, raw_event: bytes, text: str, template: DeltaTemplate, send: Callable[[list[str]], object]
    ) -> None:
        """Learn from a frame that was read as one delta of this text. send: called with the texts of those like it."""
        self._misses += 1
        self._extract = build_extractor(raw_event, template, text)
        self.learned = self._extract is not None
        self._on_texts, self._send = template.on_texts, send


def with_texts(delta: Delta, texts: list[str]) -> list[Delta]:
    """Return deltas like this one with other texts."""
    block = delta.block
    if isinstance(delta, ReasoningDelta):
        part, form = delta.part, delta.form
        return [ReasoningDelta(block, text, part, form) for text in texts]
    kind = type(delta)
    return [kind(block, text) for text in texts]
