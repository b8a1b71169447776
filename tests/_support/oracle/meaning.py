"""What a response says, whatever protocol it came in.

A `Meaning` is made of the events that the protocol's reader returns for a provider's bytes, or for what a client was
sent. The rows of tests/sansio say what a reader makes of each frame. `compare` in the module of that name judges one
meaning against the other.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from dragoman import NEED_DATA, UPSTREAMS, EventReader, Ledger, RemoteProtocolError
from dragoman.codec import ResponseContext
from dragoman.document import Request
from dragoman.errors import ErrorKind, WireError
from dragoman.events import (
    ArgumentsDelta,
    BlockKind,
    BlockStarted,
    Event,
    Failed,
    Opaque,
    ReasoningDelta,
    Stopped,
    StopReason,
    TextDelta,
    ToolKind,
    Usage,
)


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
class Meaning:
    """A response: its blocks by choice, how it ended, what it cost."""

    choices: dict[int, list[Block]] = field(default_factory=dict)
    stop: Stop = Stop.CUT
    stop_sequence: str | None = None
    explanation: str = ""  # why the provider refused
    usage: Usage = field(default_factory=Usage)
    failure: str | None = None  # the message of an error

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


_KINDS = {
    BlockKind.TEXT: Kind.TEXT,
    BlockKind.REFUSAL: Kind.REFUSAL,
    BlockKind.REASONING: Kind.REASONING,
    BlockKind.TOOL_CALL: Kind.CALL,
}
_STOPS = {
    StopReason.END: Stop.END,
    StopReason.TOOL_USE: Stop.TOOL,
    StopReason.MAX_TOKENS: Stop.LENGTH,
    StopReason.CONTEXT_WINDOW: Stop.LENGTH,
    StopReason.STOP_SEQUENCE: Stop.SEQUENCE,
    StopReason.CONTENT_FILTER: Stop.FILTER,
    StopReason.PAUSE: Stop.PAUSE,
    StopReason.COMPACTION: Stop.COMPACTION,
}


def meaning_of_events(events: Iterable[Event]) -> Meaning:
    """What the events say."""
    meaning = Meaning()
    blocks: dict[int, Block] = {}
    part = 0
    for event in events:
        if isinstance(event, BlockStarted):
            head = event.tool
            block = Block(_KINDS[event.kind])
            if head is not None:
                block.name, block.id, block.custom = head.name, head.call_id, head.kind is ToolKind.CUSTOM
            blocks[event.block] = block
            meaning.choices.setdefault(event.choice, []).append(block)
        elif isinstance(event, Opaque):
            named = event.native.get("name") if isinstance(event.native, dict) else None
            meaning.blocks.append(Block(Kind.HOSTED, name=named or event.kind))
        elif isinstance(event, ReasoningDelta):
            block = blocks[event.block]
            block.text += "\n\n" * (block.text != "" and event.part != part) + event.text
            part = event.part
        elif isinstance(event, (TextDelta, ArgumentsDelta)):
            blocks[event.block].text += event.text
        elif isinstance(event, Usage):
            meaning.usage = meaning.usage.updated(event)
        elif isinstance(event, Stopped) and event.choice == 0:
            meaning.stop = _STOPS[event.reason]
            meaning.stop_sequence = event.sequence
            meaning.explanation = event.explanation or ""
        elif isinstance(event, Failed):
            meaning.stop = Stop.ERROR
            meaning.failure = event.error.message
    meaning.choices[0] = [b for b in meaning.blocks if b.text or b.kind in (Kind.CALL, Kind.HOSTED)]
    return meaning.settle()


def meaning_of_stream(protocol: str, stream: bytes) -> Meaning:
    """What a stream says, a provider's or one that a client was sent."""
    reader = EventReader(UPSTREAMS[protocol], _context(protocol))
    reader.receive_data(stream)
    came = _ready(reader)
    reader.receive_eof()
    rest = _ready(reader)
    # What fails only when nothing more comes is cut: then it says what it said before.
    is_cut = any(isinstance(event, Failed) for event in rest)
    return meaning_of_events(came if is_cut else [*came, *rest])


def _ready(reader: EventReader) -> list[Event]:
    """The events that the bytes so far have. One that breaks its protocol has failed."""
    found: list[Event] = []
    try:
        while (event := reader.next_event()) is not NEED_DATA:
            found.append(event)
    except RemoteProtocolError as error:
        found.append(Failed(WireError(ErrorKind.SERVER, error.message)))
    return found


def meaning_of_whole(protocol: str, body: bytes) -> Meaning:
    """What a whole response says, an upstream's or ours."""
    context = _context(protocol, stream=False)
    return meaning_of_events(UPSTREAMS[protocol].read_whole(json.loads(body), context, Ledger()))


def _context(protocol: str, *, stream: bool = True) -> ResponseContext:
    request = Request(protocol, "alias", (), params={"stop": ["STOP"]}, stream=stream)
    # The id of the laws' responses: ids of calls that have none are made of it.
    return ResponseContext(request=request, id="0123456789abcdef", now=1, model="alias")
