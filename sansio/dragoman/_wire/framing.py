"""How the frames of a stream stand in its bytes, where they are not server-sent events.

Readers, writers, observers and relays have server-sent events. Where a server or the clients of an endpoint have
something else (messages with a length, lines, one long array), a Framing stands between: FrameDecoder makes events of a
server's bytes before anything reads them, and `reframe` makes a client's bytes of events after they were written.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Protocol

import msgspec

from dragoman._wire.exceptions import RemoteProtocolError
from dragoman._wire.frame_cutter import MAX_EVENT_BYTES, MAX_IDLE_BYTES, count_lines
from dragoman._wire.limits import LINES
from dragoman._wire.sse import Frame, encode_frames, parse_frames


class FrameReader(Protocol):
    """A server's bytes in, the frames that they complete out. The work is linear, however the bytes were cut.

    Attributes:
        held_bytes: The number of bytes that are held of an unfinished frame.
    """

    @property
    def held_bytes(self) -> int: ...

    def receive_data(self, data: bytes) -> Iterable[Frame]:
        """Give the frames that these bytes complete. Raises RemoteProtocolError behind the last good one.

        A frame that the end of the stream cuts is never given: the protocol's reader reports the missing end.
        """


class FrameWriter(Protocol):
    """Frames in, a client's bytes out."""

    def send(self, frame: Frame) -> bytes:
        """Return the bytes of one frame, b"" for one that the framing has no place for."""

    def eof(self) -> bytes:
        """Return what follows the last frame of a response, complete or failed."""


class Framing(msgspec.Struct, frozen=True):
    """One way to put frames into a stream.

    Attributes:
        media_type: The media type of such a stream.
        reader: Makes the reader of one stream, None for server-sent events, or if no server is known to send it.
        writer: Makes the writer of one stream, None for server-sent events, or if no client is known to read it.
    """

    media_type: str
    reader: Callable[[], FrameReader] | None = None
    writer: Callable[[], FrameWriter] | None = None

    def error_body(self, body: bytes) -> bytes:
        """Return the body of an error response: as the only frame, if the stream is a JSON document as errors are.

        Some clients look for an error there only, and never at the status (simonw/llm-gemini, read 2026-11-29).
        """
        if self.writer is None or self.media_type != "application/json":
            return body
        frames = self.writer()
        return frames.send(Frame(b"", body)) + frames.eof()


class FrameDecoder:
    """Makes server-sent events of a server's stream in another framing.

    Attributes:
        error: Why the stream cannot be read on, None while it can.
    """

    def __init__(self, reader: FrameReader, *, max_frame_bytes: int = MAX_EVENT_BYTES) -> None:
        self._reader = reader
        self._limit = max_frame_bytes
        self._idle_bytes = 0  # without a frame
        self.error: RemoteProtocolError | None = None

    @property
    def held_bytes(self) -> int:
        """The number of bytes that are held of an unfinished frame."""
        return self._reader.held_bytes

    def receive_data(self, data: bytes) -> bytes:
        """Take bytes, and return the events of the frames that they complete. Check `error` after each call."""
        frames: list[Frame] = []  # also those before an error
        try:
            for frame in () if self.error is not None else self._reader.receive_data(data):
                lines = count_lines(frame.data)
                if lines > LINES.most:
                    self._give_up(LINES.message(lines, "one frame"))
                    break
                frames.append(frame)
        except RemoteProtocolError as error:
            self.error = error
        self._idle_bytes = 0 if frames else self._idle_bytes + len(data)
        if self.held_bytes > self._limit:
            self._give_up(f"one frame has more than {self._limit} bytes")
        elif self._idle_bytes - self.held_bytes > MAX_IDLE_BYTES:
            self._give_up(f"more than {MAX_IDLE_BYTES} bytes without a frame")
        return encode_frames(frames)

    def _give_up(self, reason: str) -> None:
        self.error = RemoteProtocolError(reason, status=502, code="event_too_large")


def reframe(writer: FrameWriter, events: bytes) -> bytes:
    """Return server-sent events, whole ones, in a client's framing."""
    return b"".join(map(writer.send, parse_frames(events)))


class _LineWriter:
    """Lines of JSON: the data of each frame, without its event's name. See FrameWriter."""

    def send(self, frame: Frame) -> bytes:
        return frame.data + b"\n"

    def eof(self) -> bytes:
        return b""


_MARK = re.compile(rb'\\[\s\S]|["\[\]{}]')


class _ArrayReader:
    """The elements of one JSON array, which are objects or arrays. See FrameReader."""

    __slots__ = ("_data", "_depth", "_in_string", "_read", "_start")

    def __init__(self) -> None:
        self._data = bytearray()  # from the element on that is not complete
        self._read = self._start = self._depth = 0
        self._in_string = False

    @property
    def held_bytes(self) -> int:
        return len(self._data)

    def receive_data(self, data: bytes) -> list[Frame]:
        frames = []
        self._data += data
        for mark in _MARK.finditer(self._data, self._read):
            self._read = mark.end()
            if mark[0] == b'"':
                self._in_string = not self._in_string
            elif self._in_string:
                continue
            elif mark[0] in b"[{":
                self._depth += 1
                if self._depth == 2:
                    self._start = mark.start()
            elif mark[0] in b"]}":
                self._depth -= 1
                if self._depth == 1:
                    frames.append(Frame(b"", bytes(self._data[self._start : self._read])))
        # What is at the end belongs to what follows: a backslash, and the beginning of an element.
        self._read = max(self._read, len(self._data) - self._data.endswith(b"\\"))
        done = self._start if self._depth > 1 else self._read
        del self._data[:done]
        self._read -= done
        self._start = 0
        return frames


class _ArrayWriter:
    """The elements of one JSON array: the data of each frame, without its event's name. See FrameWriter."""

    __slots__ = ("_before",)

    def __init__(self) -> None:
        self._before = b"["

    def send(self, frame: Frame) -> bytes:
        before, self._before = self._before, b",\r\n"
        return before + frame.data

    def eof(self) -> bytes:
        return b"[]" if self._before == b"[" else b"]"


class _SequenceWriter:
    """A JSON text sequence: a record separator and a line end around the data of each frame. See FrameWriter."""

    def send(self, frame: Frame) -> bytes:
        # Only an object is an event: some servers end a stream with `[DONE]`. No JSON text has the separator in it.
        data = frame.data.strip().replace(RECORD_SEPARATOR, b"")
        return RECORD_SEPARATOR + data + b"\n" if data.startswith(b"{") else b""

    def eof(self) -> bytes:
        return b""


# RFC 7464, 2.2.
RECORD_SEPARATOR = b"\x1e"

SSE = Framing("text/event-stream")
NDJSON = Framing("application/x-ndjson", writer=_LineWriter)
JSON_ARRAY = Framing("application/json", _ArrayReader, _ArrayWriter)
JSON_SEQUENCE = Framing("application/json-seq", writer=_SequenceWriter)
