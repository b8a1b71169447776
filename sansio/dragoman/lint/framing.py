"""Cut a stream into server-sent events, and find what differs from the form that every client reads.

All events are read that the HTML standard (9.2.6) defines. Many clients read less: they split at two line feeds, take
one `data: ` line an event, and expect `event: ` before it. Anything outside of that form is a finding.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from dragoman._wire.framing import JSON_ARRAY
from dragoman._wire.sse import BOM
from dragoman.lint.report import Report

# The line ends of the standard besides a line feed.
_LINE_ENDS = (
    ("sse-line-end", re.compile(rb"\r\n"), "a carriage return: lines end with a line feed only"),
    ("sse-carriage-return", re.compile(rb"\r(?!\n)"), "a carriage return without a line feed"),
)
_LINES = re.compile(rb"([^\r\n]*)(\r\n|\n|\r|\Z)")


class PlacedFrame(msgspec.Struct, frozen=True):
    """One event with data.

    Attributes:
        number: Its number among the events with data, from 0.
        event: The value of its `event:` line, None without one.
        data: Its `data:` lines, joined by line feeds.
        data_offset: The position of the first byte of its data in the stream.
    """

    number: int
    event: str | None
    data: str
    data_offset: int


class _Event:
    """One event, line by line. Its attributes are PlacedFrame's; only_comments: no line was of another kind."""

    def __init__(self, offset: int, crlf: bool) -> None:
        self.crlf = crlf
        self.offset = offset
        self.data_offset = offset
        self.event: str | None = None
        self.data: list[str] = []
        self.only_comments = True

    def take(self, line: bytes, offset: int, report: Report) -> None:
        """Read one line that is not empty."""
        name, _, value = line.partition(b":")
        if not name:
            return
        self.only_comments = False
        if name not in (b"data", b"event"):
            if self.crlf and line.startswith(b'{"error"'):
                return  # the vendor's other form of an error
            shown = line[:40].decode("utf-8", "replace")
            report.at_byte("sse-field", offset, f"unexpected line {shown!a}")
            return
        if not value.startswith(b" "):
            report.at_byte("sse-space", offset, f"no space after `{name.decode()}:`")
        text = value.removeprefix(b" ").decode("utf-8", "replace")
        if name == b"event":
            if self.event is not None or self.data:
                report.at_byte("sse-event-line", offset, "`event:` must come once and before `data:`")
            self.event = text
            return
        if self.data:
            report.at_byte("sse-data", offset, "more than one `data:` line")
        else:
            self.data_offset = offset + len(line) - len(value.removeprefix(b" "))
        self.data.append(text)


def read_frames(stream: bytes, report: Report, *, crlf: bool = False) -> Iterator[PlacedFrame]:
    """Yield the events of a stream, also of one that leaves the narrow form.

    report: gets the findings. crlf: the protocol's own servers end lines so, and repeat an error in a separate line;
    or they send one JSON array.
    """
    if not stream:
        report.at_byte("sse-empty", 0, "an empty stream")
        return
    try:
        stream.decode("utf-8")
    except UnicodeDecodeError as error:
        report.at_byte("sse-utf-8", error.start, "not UTF-8")
    if crlf and in_array(stream):
        yield from _elements(stream, report)
        return
    start = len(BOM) if stream.startswith(BOM) else 0
    if start:
        report.at_byte("sse-bom", 0, "starts with a byte order mark")
    for rule, ending, detail in _LINE_ENDS:
        if (found := ending.search(stream)) is not None and not (crlf and rule == "sse-line-end"):
            report.at_byte(rule, found.start(), detail)
    number, event = 0, _Event(start, crlf)
    closed = True
    for match in _LINES.finditer(stream, start):
        line, offset = match[1], match.start()
        if line:
            closed = False
            event.take(line, offset, report)
        elif offset < len(stream):
            if closed:
                report.at_byte("sse-blank-line", offset, "a blank line that ends no event")
            frame = _frame(event, number, report)
            if frame is not None:
                number += 1
                yield frame
            event, closed = _Event(match.end(), crlf), True
    if not closed:
        if event.only_comments:
            report.at_byte("sse-blank-line", len(stream), "the last comment is not followed by a blank line")
        else:
            report.at_byte("sse-end", len(stream), "the last event is not closed by a blank line")
        frame = _frame(event, number, report)
        if frame is not None:
            yield frame


def in_array(stream: bytes) -> bool:
    """True for a stream that is one JSON array."""
    return stream.lstrip().startswith(b"[")


def _elements(stream: bytes, report: Report) -> Iterator[PlacedFrame]:
    assert JSON_ARRAY.reader is not None
    before, end = b"[", 0
    for number, frame in enumerate(JSON_ARRAY.reader().receive_data(stream)):
        at = stream.index(frame.data, end)
        if stream[end:at].strip() != before:
            report.at_byte("json-syntax", end, f"{before.decode()} is absent before an element")
        yield PlacedFrame(number, None, frame.data.decode("utf-8", "replace"), at)
        before, end = b",", at + len(frame.data)
    if stream[end:].strip() != b"]":
        report.at_byte("json-syntax", end, "the array is not closed here")


def _frame(event: _Event, number: int, report: Report) -> PlacedFrame | None:
    if event.data:
        return PlacedFrame(number, event.event, "\n".join(event.data), event.data_offset)
    if event.event is not None:
        report.at_byte("sse-no-data", event.offset, "an event without a `data:` line")
    return None
