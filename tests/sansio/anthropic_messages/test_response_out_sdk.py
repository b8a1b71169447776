"""Responses as the vendor's own SDK reads them."""

from __future__ import annotations

from typing import Any

import pytest
from anthropic.lib.streaming._beta_messages import accumulate_event as accumulate_beta_event
from anthropic.lib.streaming._messages import accumulate_event
from anthropic.types import Message as SdkMessage
from anthropic.types import RawMessageStreamEvent
from anthropic.types.beta import BetaMessage, BetaRawMessageStreamEvent
from core.natives import with_unknown_members
from messages_client import (
    COUNTED,
    FOREIGN,
    NAME,
    REDACTED,
    SEARCH,
    SIGNER,
    STARTED,
    reasoning,
    stream_of,
    text,
    tool,
    whole_of,
)
from pydantic import TypeAdapter

from dragoman._ir.events import (
    ENDED,
    Annotation,
    BlockEnded,
    Compacted,
    Event,
    Opaque,
    Search,
    Signature,
    Source,
    Stopped,
    StopReason,
    ToolHead,
    Usage,
)
from dragoman._ir.losses import Ledger
from dragoman._ir.request import Message, Reasoning, Text
from dragoman._ir.wrapped_signatures import WRAPPED_MARKER
from dragoman._wire.json import decode, encode
from dragoman._wire.sse import SSEParser
from dragoman.protocols.anthropic_messages import SPEC
from dragoman.protocols.anthropic_messages.capabilities import MessagesCapabilities as Capabilities

EVENT: TypeAdapter[Any] = TypeAdapter(RawMessageStreamEvent)


EVERYTHING: list[Event] = [
    STARTED,
    *reasoning(0, FOREIGN, "a", "b"),
    *reasoning(1, REDACTED),
    *text(2, "Hello ", "world")[:-1],
    Annotation(2, "openai_chat", {}, url="https://x", title="T"),
    BlockEnded(2),
    Opaque(NAME, "server_tool_use", SEARCH),
    Opaque(
        NAME, "web_search_tool_result", {"type": "web_search_tool_result", "tool_use_id": "s", "content": []}
    ),
    *tool(4, '{"a": [1, ', "2]}"),
    *tool(5, "{}", head=ToolHead("t2", "g")),
    Stopped(StopReason.TOOL_USE),
    COUNTED,
    ENDED,
]


def test_the_sdk_reads_stream_and_complete_response_alike() -> None:
    snapshot: Any = None
    buffers: dict[int, bytes] = {}
    for frame in SSEParser().receive_data(stream_of(EVERYTHING)):
        value = decode(frame.data)
        if value["type"] != "ping":
            event = EVENT.validate_python(value, strict=True)
            snapshot = accumulate_event(event=event, current_snapshot=snapshot, json_bufs=buffers)
    whole = SdkMessage.model_validate(whole_of(*EVERYTHING), strict=True)
    assert snapshot.to_dict()["content"] == whole.to_dict()["content"]
    assert snapshot.stop_reason == whole.stop_reason == "tool_use"
    assert snapshot.usage.to_dict() == whole.usage.to_dict()
    assert [block.type for block in whole.content] == [
        "thinking",
        "redacted_thinking",
        "text",
        "server_tool_use",
        "web_search_tool_result",
        "tool_use",
        "tool_use",
    ]
    assert whole.content[5].to_dict()["input"] == {"a": [1, 2]}


BETA_EVENT: Any = TypeAdapter(BetaRawMessageStreamEvent)
END: list[Event] = [Stopped(StopReason.END), Usage(3, 4, searches=1), ENDED]


def streamed(*events: Event) -> dict[str, Any]:
    """Return the message that the vendor's SDK reads from the stream."""
    message: Any = None
    for frame in SSEParser().receive_data(stream_of(events)):
        value = decode(frame.data)
        if value["type"] != "ping":
            event = BETA_EVENT.validate_python(value, strict=True)
            message = accumulate_beta_event(
                event=event, current_snapshot=message, request_headers={}, json_bufs={}
            )
    return dict(message.to_dict())


def whole(*events: Event) -> dict[str, Any]:
    """Return the message that the vendor's SDK reads from the complete response."""
    return dict(BetaMessage.model_validate(whole_of(*events), strict=True).to_dict())


FOREIGN_SEARCH = Opaque(
    "openai_responses",
    "web_search_call",
    {"type": "web_search_call"},
    "/output/0",
    search=Search(("cats", "dogs"), (Source("https://x", "T"), Source("https://y"))),
)
SEARCH_SIGNATURE = Signature("openai_responses", {"type": "web_search_call"}, "gpt")
SEARCHED: list[Event] = [STARTED, *reasoning(0, SEARCH_SIGNATURE), FOREIGN_SEARCH, *text(1, "So."), *END]


def read(*messages: Any) -> tuple[Message, ...]:
    return with_unknown_members(
        SPEC, SPEC.read_request({"model": "m", "max_tokens": 9, "messages": list(messages)}, SIGNER).messages
    )


def test_search_blocks_that_come_back_are_dropped_and_the_signature_is_unwrapped() -> None:
    content = whole(*SEARCHED)["content"]
    (message,) = read({"role": "assistant", "content": content})
    assert message.parts == (
        Reasoning("", SEARCH_SIGNATURE, path="/messages/0/content/0"),
        Text("So.", path="/messages/0/content/3"),
    )


def test_no_upstream_gets_wrapped_signatures_or_search_blocks() -> None:
    """It would refuse it: a body that carries any of it is read and written again."""
    content = whole(*SEARCHED)["content"]
    for block in content[:3]:
        assert WRAPPED_MARKER.search(encode(block)), block
    request = SPEC.read_request(
        {"model": "m", "max_tokens": 9, "messages": [{"role": "assistant", "content": content}]}, SIGNER
    )
    sent = encode(SPEC.write_request(request, Capabilities(), Ledger()))
    assert not WRAPPED_MARKER.search(sent)


@pytest.mark.parametrize("written", [streamed, whole])
def test_a_summary_is_one_compaction_block(written: Any) -> None:
    message = written(STARTED, Compacted("All is well."), Stopped(StopReason.COMPACTION), Usage(3, 4), ENDED)
    (block,) = message["content"]
    assert (block["type"], block["content"]) == ("compaction", "All is well.")
    assert SIGNER.unwrap(block["encrypted_content"]) == Signature("dragoman", {"summary": "All is well."})
    assert message["stop_reason"] == "compaction"


def test_g4_the_heartbeat() -> None:
    assert SPEC.endpoints[0].heartbeat == b'event: ping\ndata: {"type":"ping"}\n\n'
