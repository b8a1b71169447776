"""Cut a stream of server-sent events into whole frames without changing a byte.

A frame ends with a blank line. FrameCutter holds the bytes of an unfinished frame until its end comes; split_frames()
splits the bytes of whole frames further. Nothing is decoded here. Other streams are cut by the readers of `framing`.
"""

from __future__ import annotations

import re
from itertools import pairwise

from dragoman._wire.limits import LINES, count_bytes

_EVENT = "one server-sent event"

# One event. Images travel inside one event as base64, some megabytes each; Responses repeats the whole response
# in its last event.
MAX_EVENT_BYTES = 32 * 1024 * 1024

# Comments and blank lines without an event between them. Servers send some dozen bytes every few seconds.
MAX_IDLE_BYTES = 1024 * 1024

# A line ending and the ending of an empty line, LF, CRLF and CR in any mixture. (CRLF after CR begins as
# CR CR; that its LF comes one read later does no harm.)
_BLANK_LINES = (b"\n\n", b"\n\r\n", b"\n\r", b"\r\r")
_EDGE = 2  # one byte less than the longest of them
# Atomic: one CRLF is not a CR and an LF.
_BLANK_LINE = re.compile(rb"(?>\r\n|\n|\r){2}")


class FrameCutter:
    """Returns whole frames of one stream, and holds the bytes after the last blank line.

    Attributes:
        held_bytes: The number of bytes that are held.
        error: Why the stream cannot be read on, None while it can.
    """

    __slots__ = ("_edge", "_held", "_held_lines", "_idle_bytes", "_limit", "error", "held_bytes")

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._limit = max_event_bytes
        self._edge = b""  # the last bytes that came, for a blank line that is cut in two
        self._held: list[bytes] = []
        self._held_lines = 0  # while something is held
        self._idle_bytes = 0  # without an event
        self.held_bytes = 0
        self.error: str | None = None

    @property
    def too_long(self) -> str:
        """The error for an event with too many bytes."""
        return f"{_EVENT} has more than {self._limit} bytes"

    def receive_data(self, data: bytes) -> bytes:
        """Take bytes. Return everything up to the last blank line, and hold the rest. Check `error` after each call."""
        whole = b""
        if data.endswith((b"\n\n", b"\n\r\n")):  # as most reads do
            end, self._edge = len(data), data[-_EDGE:]
        else:
            joined = self._edge + data
            blanks = _BLANK_LINES if b"\r" in joined else _BLANK_LINES[:1]
            end = max(joined.rfind(blank) + len(blank) if blank in joined else 0 for blank in blanks)
            end = max(end - len(self._edge), 0)
            self._edge = joined[-_EDGE:]
        if end:
            whole = data[:end]
            if self._held:
                whole = b"".join([*self._held, whole])
                self._held, self.held_bytes, self._held_lines = [], 0, 0
        if end < len(data):
            self._held.append(data[end:])
            self.held_bytes += len(data) - end
            self._held_lines += count_lines(self._held[-1])
            # The first line ending of the blank line may be held already.
            if self.held_bytes > self._limit + 1:
                self.error = self.too_long
            elif self._held_lines > LINES.most:
                self.error = LINES.message(f"more than {LINES.most}", _EVENT)
        if whole.find(b"data") >= 0:  # every event has this in it, near its beginning
            self._idle_bytes = 0
        else:
            self._idle_bytes += len(whole)
            if self._idle_bytes > MAX_IDLE_BYTES:
                self.error = f"more than {MAX_IDLE_BYTES} bytes without a server-sent event"
                return b""
        return whole if len(whole) <= LINES.most else self._with_few_lines(whole)

    def _with_few_lines(self, whole: bytes) -> bytes:
        """Return the frames before the first that has too many lines, which is the error. Each line is split off."""
        position = 0
        for frame in split_frames(whole) if count_lines(whole) > LINES.most else ():
            lines = count_lines(frame)
            if lines > LINES.most:
                self.error = LINES.message(lines, _EVENT)
                return whole[:position]
            position += len(frame)
        return whole

    @property
    def is_between_events(self) -> bool:
        """Nothing is held, and the bytes that came last had an event."""
        return not (self._held or self._idle_bytes or self.error)

    def hold(self, data: bytes) -> None:
        """Hold these bytes. Nothing else is held."""
        self._held, self.held_bytes = [data], len(data)

    def take_held(self) -> bytes:
        """Return the held bytes, and hold them no longer."""
        held = b"".join(self._held)
        self._held.clear()
        self.held_bytes = 0
        return held


def count_lines(data: bytes) -> int:
    """Return the number of line ends. CRLF counts for two."""
    return count_bytes(data, b"\n\r")


def split_frames(frames: bytes) -> list[bytes]:
    """Split into frames, each with its blank line; the last one may lack it."""
    if b"\r" in frames:
        places = [0, *[blank.end() for blank in _BLANK_LINE.finditer(frames)], len(frames)]
        return [frames[start:end] for start, end in pairwise(places) if start < end]
    *whole, rest = frames.split(b"\n\n")
    return [frame + b"\n\n" for frame in whole] + ([rest] if rest else [])
