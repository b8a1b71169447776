"""Frames of a Messages upstream, and the events that are read from them."""

from __future__ import annotations

from typing import Any

from dragoman._ir.event_order import EventOrderChecker
from dragoman._ir.events import BlockKind, BlockStarted, Event, Started
from dragoman._ir.losses import Ledger
from dragoman._ir.request import Request
from dragoman._wire.json import encode
from dragoman._wire.sse import SSEParser, encode_frame
from dragoman.codec import ResponseContext
from dragoman.protocols.anthropic_messages import SPEC

CONTEXT = ResponseContext(Request("other", "m", ()), "x1", 1, "alias")
START: dict[str, Any] = {
    "type": "message_start",
    "message": {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-x", "content": []},
}
STARTED = Started("msg_1", "claude-x")
STOP = {"type": "message_stop"}


def opened(block: Any, index: int = 0) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": block}


def delta(kind: str, index: int = 0, **fields: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **fields}}


def closed(index: int = 0) -> dict[str, Any]:
    return {"type": "content_block_stop", "index": index}


def stopped(reason: str | None = "end_turn", usage: Any = None, **fields: Any) -> dict[str, Any]:
    body = {"type": "message_delta", "delta": {"stop_reason": reason, **fields}}
    return body if usage is None else {**body, "usage": usage}


TEXT = opened({"type": "text", "text": ""})


def started(block: int, kind: BlockKind, at: int | None = None, **fields: Any) -> BlockStarted:
    """Return the start of a block. at: its index in the upstream's response, by default its number."""
    return BlockStarted(block, kind, path=f"/content/{block if at is None else at}", **fields)


def data_of(*values: Any) -> bytes:
    return b"".join(encode_frame(encode(value), value["type"].encode()) for value in values)


def events_of(data: bytes, ledger: Ledger | None = None, *, size: int = 0) -> list[Event]:
    """Return the events of a stream, after their order is checked. size: of the chunks of the data, 0 for one chunk."""
    parser = SSEParser()
    reader = SPEC.stream_reader(CONTEXT, Ledger() if ledger is None else ledger)
    checker = EventOrderChecker()
    events: list[Event] = []
    size = size or max(len(data), 1)
    for at in range(0, len(data), size):
        for one in parser.receive_data(data[at : at + size]):
            events += reader.read(one)
    for one in parser.receive_eof():
        events += reader.read(one)
    events += reader.eof()
    assert list(reader.eof()) == []
    for event in events:
        checker.check(event)
    return events
