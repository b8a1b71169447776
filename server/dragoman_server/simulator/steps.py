"""What a script is made of: events of the core, waits, and ends that no protocol knows.

Strategy: a script is a plain generator. The helpers here turn text into the events of one block, one delta a
word, and number nothing: the script chooses the block's number.
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
    Seal,
    SealDelta,
    TextDelta,
    ToolHead,
)

# Arguments have few blanks, so they are cut at a fixed length: small enough to fall inside words and escapes.
_ARGUMENTS_PIECE = 7

_WORD = re.compile(r"\s*\S+|\s+\Z")


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing comes for so many seconds."""

    seconds: float


class Cut(enum.Enum):
    """The connection ends too early. A whole answer is cut in the middle of its body in both cases."""

    MID_FRAME = "mid_frame"  # broken, inside the frame of the next event
    NO_END = "no_end"  # closed properly between two frames


Step: TypeAlias = Event | Wait | Cut


def words_of(text: str) -> Iterator[str]:
    """The text in pieces that join to it again: each word with the white space before it."""
    return (match.group() for match in _WORD.finditer(text))


def say(block: int, pieces: Iterable[str], kind: BlockKind = BlockKind.TEXT) -> Iterator[Step]:
    """A block of text or refusal, a delta for each piece. No pieces, no block."""
    started = False
    for piece in pieces:
        if not started:
            started = True
            yield BlockStarted(block, kind)
        yield TextDelta(block, piece)
    if started:
        yield BlockEnded(block)


def call(block: int, head: ToolHead, tool_input: str, *, complete: bool = True) -> Iterator[Step]:
    """A tool call. tool_input: JSON text for a function, free text for a custom tool."""
    yield BlockStarted(block, BlockKind.TOOL_CALL, tool=head)
    for start in range(0, len(tool_input), _ARGUMENTS_PIECE):
        yield ArgumentsDelta(block, tool_input[start : start + _ARGUMENTS_PIECE])
    yield BlockEnded(block, complete)


def think(
    block: int, parts: Iterable[str], form: ReasoningForm, seal: Seal, item_id: str | None = None
) -> Iterator[Step]:
    """A block of reasoning with its seal."""
    yield BlockStarted(block, BlockKind.REASONING, item_id=item_id)
    for number, part in enumerate(parts):
        for piece in words_of(part):
            yield ReasoningDelta(block, piece, number, form)
    yield SealDelta(block, seal)
    yield BlockEnded(block)
