"""What a response says, whatever protocol it came in.

A `Meaning` is read leniently from any provider's bytes or from what a client was sent, by the readers
beside this module. They share nothing with the product. `compare` in the module of that name judges one
against the other.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class Kind(StrEnum):
    TEXT = "text"
    REFUSAL = "refusal"
    REASONING = "reasoning"
    CALL = "call"
    HOSTED = "hosted"  # run by the provider, or opaque to every other protocol


class Stop(StrEnum):
    END = "end"
    TOOL = "tool"
    LENGTH = "length"
    FILTER = "filter"
    SEQUENCE = "stop_sequence"
    PAUSE = "pause"
    COMPACTION = "compaction"
    ERROR = "error"
    CUT = "cut"  # the bytes ended before the provider's terminal event


@dataclass(slots=True)
class Block:
    """One block in stream order. `text` is the text, or a call's raw arguments or free-form input."""

    kind: Kind
    text: str = ""
    name: str = ""
    id: str = ""
    custom: bool = False


@dataclass(slots=True)
class Usage:
    """Token counts; None is unknown. `input` includes both cache kinds, `output` includes reasoning."""

    input: int | None = None
    cached: int | None = None
    cache_write: int | None = None
    output: int | None = None
    reasoning: int | None = None


@dataclass(slots=True)
class Failure:
    """An in-band or HTTP error."""

    kind: str = ""
    message: str = ""


@dataclass(slots=True)
class Meaning:
    """A response: its blocks by choice, how it ended, what it cost."""

    choices: dict[int, list[Block]] = field(default_factory=dict)
    stop: Stop = Stop.CUT
    stop_sequence: str | None = None
    explanation: str = ""  # why the provider refused
    usages: list[Usage] = field(default_factory=list)  # every reading that is right; empty is unknown
    failure: Failure | None = None

    @property
    def blocks(self) -> list[Block]:
        return self.choices.setdefault(0, [])

    @property
    def calls(self) -> list[Block]:
        return [block for block in self.blocks if block.kind is Kind.CALL]

    @property
    def hosted(self) -> list[Block]:
        return [block for block in self.blocks if block.kind is Kind.HOSTED]

    def text(self, *kinds: Kind) -> str:
        """All text of these kinds, joined."""
        return "".join(block.text for block in self.blocks if block.kind in kinds)

    def settle(self) -> Meaning:
        """A turn that ended by itself with calls in it is a turn that waits for their results."""
        if self.stop is Stop.END and self.calls:
            self.stop = Stop.TOOL
        elif self.stop is Stop.TOOL and not self.calls:
            self.stop = Stop.END
        return self


def grow(blocks: list[Block], kind: Kind, text: str) -> None:
    """Append text to the last block if it is of this kind, else open a new one. Empty text is nothing."""
    if not text:
        return
    if not blocks or blocks[-1].kind is not kind:
        blocks.append(Block(kind))
    blocks[-1].text += text


def whole_number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
