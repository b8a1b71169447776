"""Streams of a Chat upstream for the tests of its readers, and the events that are read from them."""

from __future__ import annotations

from typing import Any

from dragoman._ir.event_order import EventOrderChecker
from dragoman._ir.events import (
    ENDED,
    BlockKind,
    BlockStarted,
    Event,
    Signature,
    Started,
    Stopped,
    ToolHead,
    ToolKind,
    Usage,
)
from dragoman._ir.losses import Ledger
from dragoman._ir.request import Request
from dragoman._wire.json import encode
from dragoman._wire.sse import SSEParser
from dragoman.codec import ResponseContext
from dragoman.protocols.openai_chat import SPEC

CHAT = "openai_chat"
DONE = b"data: [DONE]\n\n"
STARTED = Started("c1", "gpt", 7)
TEXT, REASONING, CALL, REFUSAL = BlockKind.TEXT, BlockKind.REASONING, BlockKind.TOOL_CALL, BlockKind.REFUSAL
USAGE = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}


def context(**params: Any) -> ResponseContext:
    return ResponseContext(Request("other", "asked", (), {}, params=params), "X1", 1, "alias")


def chunk(*choices: Any, **fields: Any) -> bytes:
    body = {
        "id": "c1",
        "object": "chat.completion.chunk",
        "created": 7,
        "model": "gpt",
        "choices": list(choices),
    }
    return b"data: " + encode({**body, **fields}) + b"\n\n"


def delta(index: int = 0, /, finish: Any = None, **members: Any) -> dict[str, Any]:
    return {"index": index, "delta": members, "finish_reason": finish}


def stream_of(*deltas: dict[str, Any], done: bool = True) -> bytes:
    """Return a stream of one choice: one chunk for each delta, then the finish reason and [DONE]."""
    out = b"".join([chunk(delta(**members)) for members in deltas])
    return out + chunk(delta(finish="stop")) + (DONE if done else b"")


def events(
    stream: bytes, response_context: ResponseContext | None = None, ledger: Ledger | None = None, cut: int = 0
) -> list[Event]:
    """Return all events of a stream, checked for their order. cut: read it in chunks of so many bytes."""
    parser, checker = SSEParser(), EventOrderChecker()
    reader = SPEC.stream_reader(response_context or context(), Ledger() if ledger is None else ledger)
    out: list[Event] = []
    chunks = [stream] if not cut else [stream[at : at + cut] for at in range(0, len(stream), cut)]
    for data in chunks:
        for frame in parser.receive_data(data):
            out += reader.read(frame)
    for frame in parser.receive_eof():
        out += reader.read(frame)
    out += reader.eof()
    for event in out:
        checker.check(event)
    return out


def content(
    stream: bytes, response_context: ResponseContext | None = None, ledger: Ledger | None = None
) -> list[Event]:
    """Return the events between Started and Stopped. The stream is read byte by byte and with more behind it, too."""
    found = events(stream, response_context, ledger)
    assert events(stream, response_context, cut=1) == found
    if stream.endswith(DONE):
        assert events(stream + chunk(delta(content="late")), response_context) == found
    assert found[0] == STARTED
    return [event for event in found[1:] if type(event) not in (Stopped, Usage) and event is not ENDED]


def signature(**native: Any) -> Signature:
    return Signature(CHAT, native, "gpt")


def started(block: int, kind: BlockKind, choice: int = 0) -> BlockStarted:
    return BlockStarted(block, kind, choice)


def call(
    block: int, call_id: str, name: str, kind: ToolKind = ToolKind.FUNCTION, choice: int = 0
) -> BlockStarted:
    return BlockStarted(block, CALL, choice, ToolHead(call_id, name, kind))


def fragment(
    index: Any = None, call_id: Any = None, name: Any = None, arguments: Any = None
) -> dict[str, Any]:
    members = {"index": index, "id": call_id, "function": {"name": name, "arguments": arguments}}
    return {key: value for key, value in members.items() if value is not None}


def calls(*fragments: Any) -> dict[str, Any]:
    return {"tool_calls": list(fragments)}


SOME = chunk(delta(content="x"))
