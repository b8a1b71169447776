"""The steps of scripts: events of the core, delays, and cut connections.

A script is a plain generator. The functions turn text into the events of one block, with one delta for each word; the
script chooses the number of the block.
"""

import enum
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from dragoman.events import (
    ArgumentsDelta,
    BlockEnded,
    BlockKind,
    BlockStarted,
    Event,
    ReasoningDelta,
    ReasoningForm,
    Signature,
    SignatureDelta,
    TextDelta,
    ToolHead,
)

# Arguments have few blanks, so they are cut at a fixed length, small enough to cut within words and escapes.
_ARGUMENTS_LENGTH = 7

_WORD = re.compile(r"\s*\S+|\s+\Z")


@dataclass(frozen=True, slots=True)
class Delay:
    """Nothing is sent for `seconds`."""

    seconds: float


class ConnectionCut(enum.Enum):
    """The connection ends too early. A response that is not streamed is cut in the middle of its body in both cases."""

    MID_FRAME = "mid_frame"  # broken, inside the frame of the next event
    NO_END = "no_end"  # closed properly between two frames


Step: TypeAlias = Event | Delay | ConnectionCut


def split_words(text: str) -> Iterator[str]:
    """Yield each word of the text with the white space before it; joined, they are the text."""
    return (match.group() for match in _WORD.finditer(text))


def say(block: int, pieces: Iterable[str], kind: BlockKind = BlockKind.TEXT) -> Iterator[Step]:
    """Yield a block of text or refusal, with a delta for each piece; nothing without pieces."""
    started = False
    for piece in pieces:
        if not started:
            started = True
            yield BlockStarted(block, kind)
        yield TextDelta(block, piece)
    if started:
        yield BlockEnded(block)


def call(block: int, head: ToolHead, tool_input: str, *, complete: bool = True) -> Iterator[Step]:
    """Yield a tool call. tool_input: JSON text for a function, free text for a custom tool."""
    yield BlockStarted(block, BlockKind.TOOL_CALL, tool=head)
    for start in range(0, len(tool_input), _ARGUMENTS_LENGTH):
        yield ArgumentsDelta(block, tool_input[start : start + _ARGUMENTS_LENGTH])
    yield BlockEnded(block, complete)


def think(
    block: int, parts: Iterable[str], form: ReasoningForm, signature: Signature, item_id: str | None = None
) -> Iterator[Step]:
    """Yield a block of reasoning with its signature."""
    yield BlockStarted(block, BlockKind.REASONING, item_id=item_id)
    for number, part in enumerate(parts):
        for piece in split_words(part):
            yield ReasoningDelta(block, piece, number, form)
    yield SignatureDelta(block, signature)
    yield BlockEnded(block)
