"""Server-sent events, read twice: strictly as our own output, leniently as anybody's input.

`strict_frames` holds a writer to the narrow form every client takes: UTF-8, LF, one `data:` line, an
`event:` line only before it, each frame closed by one blank line. `lenient_frames` follows the WHATWG rules
and forgives a last frame without its blank line if its data is whole JSON, as several servers end that way.
"""

import json
import re
from dataclasses import dataclass
from typing import Any

from dragoman import lint
from dragoman.lint.framing import read_frames

BOM = b"\xef\xbb\xbf"
# Only these three end a line; U+2028 and friends are ordinary characters inside JSON.
LINE_END = re.compile(r"\r\n|\n|\r")


@dataclass(frozen=True, slots=True)
class Frame:
    """One dispatched event. `event` is None where no `event:` line came."""

    event: str | None
    data: str


def strict_frames(stream: bytes) -> tuple[list[Frame], list[str]]:
    """Frames of a stream that we wrote, and every way in which it leaves the narrow form."""
    report = lint.Report()
    frames = [Frame(frame.event, frame.data) for frame in read_frames(stream, report)]
    return frames, [str(finding) for finding in report.findings]


def lenient_frames(stream: bytes) -> list[Frame]:
    """Frames of any stream. An unfinished tail counts only if its data is a whole JSON value or [DONE]."""
    text = stream.removeprefix(BOM).decode("utf-8", "replace")
    frames: list[Frame] = []
    event: str | None = None
    data: list[str] = []
    for line in LINE_END.split(text):
        if not line:
            if data:
                frames.append(Frame(event, "\n".join(data)))
            event, data = None, []
            continue
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "event":
            event = value
        elif name == "data":
            data.append(value)
    if data:
        tail = Frame(event, "\n".join(data))
        if tail.data == "[DONE]" or as_object(tail.data) is not None:
            frames.append(tail)
    return frames


def as_object(text: str | bytes) -> dict[str, Any] | None:
    """A JSON object, or None for anything else."""
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def strict_json(text: str | bytes) -> Any:
    """JSON as RFC 8259 has it: no NaN, no duplicate names. Raises ValueError."""

    def no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        value = dict(pairs)
        if len(value) != len(pairs):
            raise ValueError("a name is given twice in one object")
        return value

    def no_constant(name: str) -> Any:
        raise ValueError(f"{name} is not JSON")

    return json.loads(text, object_pairs_hook=no_duplicates, parse_constant=no_constant)
