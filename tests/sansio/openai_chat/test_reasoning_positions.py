"""Blocks of reasoning come back at their positions between the texts and calls of a turn."""

from typing import Any

import pytest
from chat_requests import wire_call
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
from dragoman._ir.request import Citation, Part, Reasoning, Request, Text, ToolCall
from dragoman._ir.tools import CacheMark
from dragoman._ir.wrapped_signatures import Signer
from dragoman._wire.json import decode
from dragoman._wire.sse import SSEParser
from dragoman.codec import ResponseContext
from dragoman.protocols.openai_chat import SPEC

CHAT = "openai_chat"
MESSAGES = "anthropic_messages"
AT = "/messages/0"


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


@pytest.mark.parametrize(
    ("content", "place", "expected"),
    [
        ("abc", "drg-9-9", ["abc", "c1", "s1"]),
        ("abc", "rs_1", ["s1", "abc", "c1"]),
        ("abc", 5, ["s1", "abc", "c1"]),
        (None, "drg-2-1", ["c1", "s1"]),
        ([{"type": "text", "text": "ab"}, {"type": "text", "text": "c"}], "drg-2-0", ["ab", "s1", "c", "c1"]),
        # Other parts have no characters to count.
        ([{"type": "refusal", "refusal": "no"}], "drg-2-0", ["s1", "no", "c1"]),
    ],
)
def test_positions_that_do_not_fit_are_approximated(content: Any, place: Any, expected: Any) -> None:
    message = {
        "role": "assistant",
        "content": content,
        "tool_calls": [wire_call("c1")],
        "reasoning_details": [entry(place)],
    }
    assert shape(read(message)) == expected


def test_a_split_text_keeps_its_mark_and_citations_at_its_end() -> None:
    cites = [{"type": "url_citation", "url_citation": {"url": "https://a", "start_index": 0, "end_index": 1}}]
    message = {
        "role": "assistant",
        "content": "abcd",
        "annotations": cites,
        "cache_control": {"type": "ephemeral"},
        "reasoning_details": [entry("drg-2-0")],
    }
    path = f"{AT}/content"
    assert read(message) == (
        Text("ab", path=path),
        Reasoning("", signature(1), path=f"{AT}/reasoning_details/0/data"),
        Text("cd", CacheMark(f"{AT}/cache_control"), cites, path, (Citation("https://a"),)),
    )
