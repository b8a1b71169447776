"""Events, and what the Messages writers make of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dragoman._ir.assembly import Fold
from dragoman._ir.events import (
    ArgumentsDelta,
    BlockEnded,
    BlockKind,
    BlockStarted,
    Event,
    ReasoningDelta,
    Signature,
    SignatureDelta,
    Started,
    TextDelta,
    ToolHead,
    Usage,
)
from dragoman._ir.losses import Ledger
from dragoman._ir.request import Request
from dragoman._ir.wrapped_signatures import Signer
from dragoman._wire.json import decode, encode
from dragoman.codec import ResponseContext
from dragoman.protocols.anthropic_messages import SPEC

NAME = "anthropic_messages"
SIGNER = Signer(b"key")
CONTEXT = ResponseContext(Request("other", "m", ()), "x1", 1, "alias", signer=SIGNER, prompt_tokens=11)
STARTED = Started("up_1", "gpt", service_tier="default")
COUNTED = Usage(input=20, output=5, cached=4, cache_write=6, reasoning=2)
FOREIGN = Signature("openai_responses", {"type": "reasoning", "id": "rs"}, "gpt")
REDACTED = Signature(NAME, {"type": "redacted_thinking", "data": "d"})
SEARCH = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"q": "é"}}


def text(block: int, *values: str, kind: BlockKind = BlockKind.TEXT) -> list[Event]:
    return [BlockStarted(block, kind), *(TextDelta(block, value) for value in values), BlockEnded(block)]


HEAD = ToolHead("t1", "f")


def tool(block: int, *texts: str, head: ToolHead = HEAD) -> list[Event]:
    deltas = [ArgumentsDelta(block, value) for value in texts]
    return [BlockStarted(block, BlockKind.TOOL_CALL, tool=head), *deltas, BlockEnded(block)]


def reasoning(block: int, signature: Signature | None, *texts: str) -> list[Event]:
    deltas = [ReasoningDelta(block, value, part) for part, value in enumerate(texts)]
    signatures = [] if signature is None else [SignatureDelta(block, signature)]
    return [BlockStarted(block, BlockKind.REASONING), *deltas, *signatures, BlockEnded(block)]


def stream_of(events: Iterable[Event], ledger: Ledger | None = None) -> bytes:
    writer = SPEC.stream_writer(CONTEXT, Ledger() if ledger is None else ledger)
    return b"".join(writer.send(event) for event in events)


def whole_of(*events: Event, ledger: Ledger | None = None) -> Any:
    fold = Fold()
    for event in events:
        fold.send(event)
    return decode(encode(SPEC.write_whole(fold.response(), CONTEXT, Ledger() if ledger is None else ledger)))
