"""Cut a stream of server-sent events into whole frames without changing a byte, for relays.

A frame ends with a blank line. FrameCutter holds the bytes of an unfinished frame until its end comes; the functions
split the bytes of whole frames further. Nothing is decoded here but by parse_frames().
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

from dragoman._wire.sse import Frame, SSEParser, parse_raw_event

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
    """

    __slots__ = ("_edge", "_held", "held_bytes")

    def __init__(self) -> None:
        self._edge = b""  # the last bytes that came, for a blank line that is cut in two
        self._held: list[bytes] = []
        self.held_bytes = 0

    def receive_data(self, data: bytes) -> bytes:
        """Take bytes. Return everything up to the last blank line, and hold the rest."""
        if data.endswith(b"\n\n"):  # as most reads do
            whole = b"".join([*self._held, data]) if self._held else data
            self._edge, self._held, self.held_bytes = b"\n\n", [], 0
            return whole
        joined = self._edge + data
        if b"\r" in joined:
            end = max(joined.rfind(blank) + len(blank) if blank in joined else 0 for blank in _BLANK_LINES)
        else:
            end = joined.rfind(b"\n\n") + 2 if b"\n\n" in joined else 0
        end -= len(self._edge)
        self._edge = joined[-_EDGE:]
        if end <= 0:
            self._held.append(data)
            self.held_bytes += len(data)
            return b""
        whole = b"".join([*self._held, data[:end]]) if self._held else data[:end]
        self._held = [data[end:]] if end < len(data) else []
        self.held_bytes = len(data) - end
        return whole

    def hold(self, data: bytes) -> None:
        """Hold these bytes. Nothing else is held."""
        self._held, self.held_bytes = [data], len(data)

    def take_held(self) -> bytes:
        """Return the held bytes, and hold them no longer."""
        held = b"".join(self._held)
        self._held.clear()
        self.held_bytes = 0
        return held


def split_frames(frames: bytes) -> list[bytes]:
    """Split into frames, each with its blank line; the last one may lack it."""
    if b"\r" in frames:
        places = [0, *[blank.end() for blank in _BLANK_LINE.finditer(frames)], len(frames)]
        return [frames[start:end] for start, end in pairwise(places) if start < end]
    *whole, rest = frames.split(b"\n\n")
    return [frame + b"\n\n" for frame in whole] + ([rest] if rest else [])


def parse_frames(data: bytes) -> Iterator[Frame]:
    """Give the frames, also a last one that no blank line ends."""
    parser = SSEParser()
    for raw_event in parser.receive_raw_events(data):
        if (frame := parse_raw_event(raw_event)) is not None:
            yield frame
    yield from parser.receive_eof()
