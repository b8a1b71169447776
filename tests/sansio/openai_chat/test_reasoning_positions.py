"""Blocks of reasoning come back at their positions between the texts and calls of a turn."""

from typing import Any

import pytest
from core.natives import with_unknown_members

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
    Stopped,
    StopReason,
    TextDelta,
    ToolHead,
)
from dragoman._ir.losses import Ledger
from dragoman._ir.request import Part, Reasoning, Request, ToolCall
from dragoman._ir.wrapped_signatures import Signer
from dragoman._wire.json import decode
from dragoman._wire.sse import SSEParser
from dragoman.codec import ResponseContext
from dragoman.protocols.openai_chat import SPEC

CHAT = "openai_chat"
MESSAGES = "anthropic_messages"


def read(message: Any) -> tuple[Part, ...]:
    request = SPEC.read_request({"model": "m", "messages": [message]}, Signer())
    parts: tuple[Part, ...] = with_unknown_members(SPEC, request.messages[0].parts)
    return parts


def signature(n: int) -> Signature:
    return Signature(MESSAGES, {"type": "thinking", "thinking": f"t{n}", "signature": f"s{n}"}, "claude")


def thinking(block: int, n: int) -> list[Event]:
    return [
        BlockStarted(block, BlockKind.REASONING),
        ReasoningDelta(block, f"t{n}"),
        SignatureDelta(block, signature(n)),
        BlockEnded(block),
    ]


def text(block: int, *texts: str) -> list[Event]:
    deltas = [TextDelta(block, each) for each in texts]
    return [BlockStarted(block, BlockKind.TEXT), *deltas, BlockEnded(block)]


def call(block: int, call_id: str) -> list[Event]:
    started = BlockStarted(block, BlockKind.TOOL_CALL, tool=ToolHead(call_id, "f"))
    return [started, ArgumentsDelta(block, "{}"), BlockEnded(block)]


INTERLEAVED: list[list[Event]] = [
    [*thinking(0, 1), *text(1, "a")],
    [*text(0, "one"), *thinking(1, 1), *text(2, "t", "wo"), *thinking(3, 2)],
    [*thinking(0, 1), *text(1, "one"), *call(2, "c1"), *thinking(3, 2), *call(4, "c2")],
    [*call(0, "c1"), *thinking(1, 1), *call(2, "c2"), *thinking(3, 2)],
]


def shape(parts: Any) -> list[str]:
    """Return the signature, call id or text of each part."""
    return [
        part.signature and part.signature.native["signature"]
        if isinstance(part, Reasoning)
        else part.call_id
        if isinstance(part, ToolCall)
        else part.text
        for part in parts
    ]


def client_messages(events: list[Event]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the message of the whole response, and the one that a client builds from the stream."""
    response_context = ResponseContext(Request(CHAT, "m", (), stream=True), "x1", 1, "alias")
    writer, fold = SPEC.stream_writer(response_context, Ledger()), Fold()
    stream = b""
    for event in [Started("i", "m"), *events, Stopped(StopReason.END)]:
        stream += writer.send(event)
        fold.send(event)
    whole = SPEC.write_whole(fold.response(), response_context, Ledger())["choices"][0]["message"]
    built: dict[str, Any] = {"role": "assistant", "content": "", "tool_calls": [], "reasoning_details": []}
    for frame in SSEParser().receive_data(stream):
        delta = decode(frame.data)["choices"][0]["delta"]
        built["content"] += delta.get("content") or ""
        built["reasoning_details"] += delta.get("reasoning_details") or []
        for fragment in delta.get("tool_calls") or []:
            if "id" in fragment:
                built["tool_calls"].append({key: fragment[key] for key in ("id", "type", "function")})
            else:
                built["tool_calls"][fragment["index"]]["function"]["arguments"] += fragment["function"][
                    "arguments"
                ]
    return whole, {**built, "content": built["content"] or None}


@pytest.mark.parametrize("events", INTERLEAVED)
def test_b12_blocks_of_reasoning_keep_their_positions(events: list[Event]) -> None:
    expected = []
    for event in events:
        if isinstance(event, SignatureDelta):
            expected.append(event.signature.native["signature"])
        elif isinstance(event, BlockStarted) and event.tool is not None:
            expected.append(event.tool.call_id)
        elif isinstance(event, BlockStarted) and event.kind is BlockKind.TEXT:
            texts = [e.text for e in events if isinstance(e, TextDelta) and e.block == event.block]
            expected.append("".join(texts))
    for message in client_messages(events):
        assert shape(read(message)) == expected


def test_the_first_position_needs_no_id() -> None:
    whole, _ = client_messages(INTERLEAVED[0])
    assert whole["reasoning_details"][0].keys() == {"type", "data", "format", "index"}
    whole, _ = client_messages(INTERLEAVED[1])
    assert [entry["id"] for entry in whole["reasoning_details"]] == ["drg-3-0", "drg-6-0"]


def entry(place: Any, n: int = 1) -> dict[str, Any]:
    return {"type": "reasoning.encrypted", "data": Signer().wrap(signature(n)), "index": n, "id": place}
