"""Streams and complete responses of upstreams, read into events."""

from __future__ import annotations

import json
from typing import Any

import pytest
from core.fast_path import both_ways
from messages_upstream import (
    CONTEXT,
    START,
    STARTED,
    STOP,
    TEXT,
    closed,
    data_of,
    delta,
    events_of,
    started,
    stopped,
)

from dragoman._ir.events import ENDED, BlockEnded, BlockKind, Stopped, StopReason, TextDelta
from dragoman._ir.losses import Ledger
from dragoman._wire.exceptions import RemoteProtocolError
from dragoman._wire.sse import Frame
from dragoman.protocols.anthropic_messages import SPEC

TEXT_STARTED = started(0, BlockKind.TEXT)


GOOD = data_of(START, TEXT, delta("text_delta", text="é"), closed(), stopped(), STOP)
EVENTS = [STARTED, TEXT_STARTED, TextDelta(0, "é"), BlockEnded(0), Stopped(StopReason.END, "end_turn"), ENDED]


@pytest.mark.parametrize("size", [0, 1])
@pytest.mark.parametrize(
    "data",
    [
        pytest.param(GOOD, id="as it should be"),
        pytest.param(GOOD.rstrip(b"\n"), id="no blank line at the end"),
        pytest.param(GOOD.replace(b"\n", b"\r\n"), id="CRLF"),
        pytest.param(
            b"".join(line + b"\n" for line in GOOD.split(b"\n") if b"event:" not in line), id="no event names"
        ),
        pytest.param(GOOD + GOOD, id="A19 a second message"),
        pytest.param(GOOD + b"data: [DONE]\n\n", id="a [DONE] after the end"),
        pytest.param(
            GOOD.replace(b"event: message_stop", b"data: [DONE]\n\nevent: message_stop"), id="a [DONE] before"
        ),
        pytest.param(GOOD[: GOOD.index(b"event: message_stop")], id="E6 no message_stop"),
    ],
)
def test_framing(data: bytes, size: int) -> None:
    assert events_of(data, size=size) == EVENTS


@pytest.mark.parametrize(
    ("data", "message"),
    [(b"[]", "an event is not a JSON object"), (b"{}", "an event has no type"), (b"{", "truncated")],
)
def test_unreadable_frames(data: bytes, message: str) -> None:
    with pytest.raises(RemoteProtocolError, match=message):
        SPEC.stream_reader(CONTEXT, Ledger()).read(Frame(b"", data))


def stream(*blocks: tuple[dict[str, Any], list[dict[str, Any]]]) -> bytes:
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {"id": "x", "model": "m", "usage": {}}}
    ]
    for index, (block, deltas) in enumerate(blocks):
        events.append({"type": "content_block_start", "index": index, "content_block": block})
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": index})
    events.append(
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 1}}
    )
    events.append({"type": "message_stop"})
    return b"".join(
        b"event: %b\ndata: %b%b}\n\n"
        % (event["type"].encode(), json.dumps(event).encode()[:-1], b" " * (number % 5))
        for number, event in enumerate(events)
    )


def deltas(kind: str, key: str, *texts: str) -> list[dict[str, Any]]:
    return [{"type": kind, key: text} for text in texts]


TEXT_BLOCK = ({"type": "text", "text": ""}, deltas("text_delta", "text", "a", "b", "c", "ü\n", "", "d"))
THINKING_BLOCK = (
    {"type": "thinking", "thinking": "", "signature": ""},
    [*deltas("thinking_delta", "thinking", "a", "b", "c"), {"type": "signature_delta", "signature": "s"}],
)
CALL_BLOCK = (
    {"type": "tool_use", "id": "t", "name": "f", "input": {}},
    deltas("input_json_delta", "partial_json", "", '{"a"', ":", "1", "}"),
)


@pytest.mark.parametrize(
    ("blocks", "at_least"),
    [
        ([TEXT_BLOCK], 2),
        ([THINKING_BLOCK, TEXT_BLOCK], 3),
        ([CALL_BLOCK], 2),
        ([TEXT_BLOCK, CALL_BLOCK, CALL_BLOCK], 4),
    ],
)
def test_the_fast_path_writes_the_same_bytes(
    blocks: list[Any], at_least: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert both_ways("anthropic_messages", "openai_chat", stream(*blocks), monkeypatch) >= at_least
