"""Responses of the Chat writers, checked by the types of the official SDK."""

from __future__ import annotations

from typing import Any

import msgspec
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from dragoman._ir.assembly import Fold
from dragoman._ir.event_order import EventOrderChecker
from dragoman._ir.events import (
    ENDED,
    ArgumentsDelta,
    BlockEnded,
    BlockKind,
    BlockStarted,
    Event,
    Started,
    Stopped,
    StopReason,
    TextDelta,
    ToolHead,
    ToolKind,
)
from dragoman._ir.losses import Ledger
from dragoman._ir.request import Request
from dragoman._wire.sse import SSEParser
from dragoman.codec import ResponseContext
from dragoman.protocols.openai_chat import SPEC

CHAT = "openai_chat"
STARTED = Started("upstream-id", "upstream-model")
TEXT, REASONING, CALL, REFUSAL = BlockKind.TEXT, BlockKind.REASONING, BlockKind.TOOL_CALL, BlockKind.REFUSAL


def context(*, include_usage: bool = False, **echo: Any) -> ResponseContext:
    request = Request(CHAT, "alias", (), stream=True, include_usage=include_usage)
    return ResponseContext(request, "X1", 7, "alias", echo=echo)


def write_stream(events: list[Event], response_context: ResponseContext, ledger: Ledger) -> bytes:
    writer, checker = SPEC.stream_writer(response_context, ledger), EventOrderChecker()
    out = b""
    for event in events:
        checker.check(event)
        out += writer.send(event)
    return out


def frames(stream: bytes) -> list[bytes]:
    parser = SSEParser()
    found = parser.receive_data(stream)
    assert parser.receive_eof() == []
    assert all(frame.event == b"" for frame in found)
    return [frame.data for frame in found]


def chunks(stream: bytes) -> list[Any]:
    *bodies, done = frames(stream)
    assert done == b"[DONE]"
    for body in bodies:
        ChatCompletionChunk.model_validate_json(body, strict=True)
    return [msgspec.json.decode(body) for body in bodies]


def deltas(
    events: list[Event], response_context: ResponseContext | None = None, ledger: Ledger | None = None
) -> list[Any]:
    """Return the deltas between the first one and the finish reason of a response with these events."""
    found = chunks(
        write_stream(response(*events), response_context or context(), Ledger() if ledger is None else ledger)
    )
    assert found[0]["choices"][0]["delta"] == {"role": "assistant", "content": "", "refusal": None}
    return [chunk["choices"][0]["delta"] for chunk in found[1:-1]]


def response(*events: Event, stop: StopReason = StopReason.END, **fields: Any) -> list[Event]:
    return [STARTED, *events, Stopped(stop, **fields), ENDED]


def whole(
    events: list[Event], response_context: ResponseContext | None = None, ledger: Ledger | None = None
) -> Any:
    fold = Fold()
    for event in events:
        fold.send(event)
    body = SPEC.write_whole(
        fold.response(), response_context or context(), Ledger() if ledger is None else ledger
    )
    ChatCompletion.model_validate(body, strict=True)
    return body


def text(block: int, *texts: str, choice: int = 0, kind: BlockKind = TEXT) -> list[Event]:
    return [BlockStarted(block, kind, choice), *[TextDelta(block, each) for each in texts], BlockEnded(block)]


def call(
    block: int, call_id: str, name: str, *fragments: str, kind: ToolKind = ToolKind.FUNCTION
) -> list[Event]:
    return [
        BlockStarted(block, CALL, 0, ToolHead(call_id, name, kind)),
        *[ArgumentsDelta(block, each) for each in fragments],
        BlockEnded(block),
    ]
