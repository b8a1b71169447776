"""Server-sent events as bytes: frames in, frames out.

The bytes are cut at blank lines before anything is decoded, so a cut inside a character, a line or a line ending does
no harm. Line endings are made LF on arrival (LF, CRLF and CR all end a line). Then nearly every frame is one of two
shapes, `data: X` or `event: E` + `data: X`, which are parsed without a loop. Everything else goes line by line
through the rules of the HTML standard, 9.2.6.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import msgspec

from dragoman._wire.exceptions import RemoteProtocolError
from dragoman._wire.frame_cutter import MAX_EVENT_BYTES, FrameCutter
from dragoman._wire.json import decode_object, encode, object_or_none
from dragoman._wire.limits import LINES

BOM = b"\xef\xbb\xbf"

_BLANK_LINES = re.compile(rb"\n{3,}")
# Every event has this in it.
_DATA = b"data"
# For a parser whose data is limited already.
ANY_SIZE = 2**62
# What is larger is not split in one call, during which no other thread runs.
_LARGE_BYTES = 1024 * 1024
_CR, _LF = b"\r\n"  # as numbers: `in` finds one four times as fast as a byte


class Frame(msgspec.Struct, frozen=True, gc=False):
    """One event of the stream.

    Attributes:
        event: The value of its `event:` line, b"" without one.
        data: Its `data:` lines joined by LF. A line `error: X` without another is the event "error" with the data X,
            though the standard has no such field, because llama.cpp sent it before ggml-org/llama.cpp#16109 (read
            2026-11-22). If X is not a JSON object, it becomes the `error` of one. So is an object with an `error`
            that no line of the standard has, alone or in a list, as Google's servers have errors in arrays.
    """

    event: bytes
    data: bytes


class SSEParser:
    """Parses a byte stream into frames.

    Call receive_data() with bytes as they come and receive_eof() once at the end. Frames without data (comments, lone
    `event:` or `id:` lines) are dropped, as the standard requires.

    Attributes:
        error: Why the stream cannot be read on, None while it can.
    """

    __slots__ = ("_between_events", "_cutter", "_limit", "_skip_lf", "_starts", "_uncounted", "error")

    def __init__(self, *, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._limit = max_event_bytes
        self._uncounted = min(max_event_bytes, LINES.most)  # bytes in which nothing can be too much
        self._cutter = FrameCutter(max_event_bytes)
        self._skip_lf = False  # the last byte was CR: an LF that follows belongs to it
        self._starts = True  # the first frame has not come, which a BOM may lead
        self._between_events = False  # nothing of what came before matters for what comes
        self.error: RemoteProtocolError | None = None

    @property
    def held_bytes(self) -> int:
        """The number of bytes that are held of an unfinished frame."""
        return self._cutter.held_bytes

    def receive_data(self, data: bytes) -> list[Frame]:
        """Take bytes, and return the frames that they complete.

        Check `error` after each call, see receive_raw_events().
        """
        return [
            frame
            for raw_event in self.receive_raw_events(data)
            if (frame := parse_raw_event(raw_event)) is not None
        ]

    def receive_raw_events(self, data: bytes) -> list[bytes]:
        """Take bytes, and return the raw events between blank lines, as receive_frames()."""
        frames = self.receive_frames(data)
        return frames.split(b"\n\n")[:-1] if len(frames) < _LARGE_BYTES else list(_raw_events(frames))

    def receive_frames(self, data: bytes) -> bytes:
        """Take bytes, and return the whole frames among them, with LF endings. Each ends with a blank line.

        If an event grows over the limit, the frames before it are returned and `error` is set: check it after each
        call. The stream cannot be read on then, and later calls return nothing.
        """
        if (
            self._between_events
            and data[-2:] == b"\n\n"
            and _CR not in data
            and data.find(_DATA) >= 0
            and len(data) <= self._uncounted
            and data[-3] != _LF
        ):
            return data  # as in most reads
        if self.error is not None:
            return b""
        if self._skip_lf and data:
            self._skip_lf = False
            data = data.removeprefix(b"\n")
        if _CR in data:
            self._skip_lf = data.endswith(b"\r")
            data = with_lf(data)
        frames = self._cutter.receive_data(data)
        if frames.find(_DATA) < 0:
            frames = _BLANK_LINES.sub(b"\n\n", frames)
        if frames.endswith(b"\n\n\n") or frames == b"\n":
            # If the number of line endings is odd, the last is no end of a frame.
            frames = frames.rstrip(b"\n")
            frames += b"\n\n" if frames else b""
        if self._cutter.error is not None:
            self._give_up(self._cutter.error)
        if len(frames) > self._limit:
            position = 0
            for raw_event in _raw_events(frames):
                if len(raw_event.lstrip(b"\n")) > self._limit:
                    self._give_up(self._cutter.too_long)
                    frames = frames[:position]
                    break
                position += len(raw_event) + 2
        if self._starts and frames:
            self._starts = False
            frames = frames.removeprefix(BOM)
        self._between_events = self._cutter.is_between_events and not (
            self._starts or self._skip_lf or self.error
        )
        return frames

    def receive_eof(self) -> list[Frame]:
        """Return the unfinished last frame, if it has data, although no blank line ended it.

        The standard drops it. Real servers do end their last event that way, so the caller gets it and decides: a
        frame that was cut in the middle does not parse. Sets `error` as receive_data() does.
        """
        raw_event = self._cutter.take_held().removesuffix(b"\n")
        if len(raw_event) > self._limit:
            self._give_up(self._cutter.too_long)
            return []
        frame = parse_raw_event(raw_event.removeprefix(BOM) if self._starts else raw_event)
        return [] if frame is None else [frame]

    def _give_up(self, reason: str) -> None:
        self._cutter.take_held()
        self.error = RemoteProtocolError(reason, status=502, code="event_too_large")


def _raw_events(frames: bytes) -> Iterator[bytes]:
    """Split frames one by one: another thread runs in between, because each may have megabytes."""
    position = 0
    while (end := frames.find(b"\n\n", position)) >= 0:
        yield frames[position:end]
        position = end + 2


def with_lf(data: bytes) -> bytes:
    """Return the bytes with LF as the only line ending."""
    if _CR in data:
        data = b"\n\n".join(data.split(b"\r\n\r\n"))  # most of them; replace() takes three times as long
        if _CR in data:
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    return data


def parse_frames(data: bytes) -> Iterator[Frame]:
    """Give the frames, also a last one that no blank line ends, of any size."""
    parser = SSEParser(max_event_bytes=ANY_SIZE)
    for raw_event in parser.receive_raw_events(data):
        if (frame := parse_raw_event(raw_event)) is not None:
            yield frame
    yield from parser.receive_eof()


def parse_raw_event(raw_event: bytes) -> Frame | None:
    """Parse the bytes between two blank lines (LF endings only). None for a comment."""
    if raw_event[:6] == b"data: ":
        if _LF not in raw_event:
            return Frame(b"", raw_event[6:])
    elif raw_event[:7] == b"event: ":
        end = raw_event.find(b"\n")
        if raw_event[end + 1 : end + 7] == b"data: " and raw_event.find(b"\n", end + 1) < 0:
            return Frame(raw_event[7:end], raw_event[end + 7 :])
    return _frame_by_lines(raw_event)


def _frame_by_lines(raw_event: bytes) -> Frame | None:
    if raw_event.find(_DATA) < 0 and raw_event.find(b"error") < 0:
        return None
    event = b""
    data: list[bytes] = []
    error: bytes | None = None
    for line in raw_event.split(b"\n"):
        name, _, value = line.partition(b":")
        # "If value starts with a U+0020 SPACE character, remove it from value." (HTML standard, 9.2.6)
        value = value.removeprefix(b" ")
        if name == b"data":
            data.append(value)
        elif name == b"event":
            event = value
        elif name == b"error":
            error = value
    if data:
        return Frame(event, b"\n".join(data))
    if error is not None:
        return Frame(b"error", _error_object(error))
    text = raw_event.strip().removeprefix(b"[").removesuffix(b"]")
    return Frame(b"error", text) if "error" in (object_or_none(text) or {}) else None


def _error_object(text: bytes) -> bytes:
    try:
        decode_object(text, "an error")
    except RemoteProtocolError:
        return encode({"error": text.decode("utf-8", "replace")})
    return text


def encode_frame(data: bytes, event: bytes = b"") -> bytes:
    """Encode one frame. `data` has no line break, as compact JSON never does."""
    if event:
        return b"".join((b"event: ", event, b"\ndata: ", data, b"\n\n"))
    return b"data: " + data + b"\n\n"


def encode_frames(frames: Iterable[Frame]) -> bytes:
    """Encode frames with any data, which may have line breaks."""
    return b"".join(
        [encode_frame(with_lf(each.data).replace(b"\n", b"\ndata: "), each.event) for each in frames]
    )


def encode_comment(text: bytes) -> bytes:
    """Encode a comment: bytes that keep a connection alive and that every parser skips."""
    return b": " + text + b"\n\n"
