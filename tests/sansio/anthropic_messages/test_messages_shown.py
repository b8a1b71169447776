"""What this protocol has blocks for and other upstreams tell in their own way: web searches, and summaries."""

from __future__ import annotations

from typing import Any

import pytest
from anthropic.lib.streaming._beta_messages import accumulate_event
from anthropic.types.beta import BetaMessage, BetaRawMessageStreamEvent
from pydantic import TypeAdapter

from dragoman._ir.assembly import Fold
from dragoman._ir.events import (
    ENDED,
    BlockEnded,
    BlockKind,
    BlockStarted,
    Compacted,
    Event,
    Opaque,
    Seal,
    SealDelta,
    Search,
    Source,
    Started,
    Stopped,
    StopReason,
    TextDelta,
    Usage,
)
from dragoman._ir.losses import Ledger
from dragoman._ir.request import Message, OpaquePart, Request, Text, Thought
from dragoman._ir.signatures import Sealer
from dragoman._wire.json import decode, encode
from dragoman._wire.sse import SSEParser
from dragoman.codec import Exchange, Target
from dragoman.protocols.anthropic_messages import SPEC

SEALER = Sealer(b"key")
EXCHANGE = Exchange(Request("anthropic_messages", "m", (), {}), "x1", 1, "alias", SEALER)
EVENT: Any = TypeAdapter(BetaRawMessageStreamEvent)
STARTED = Started("up", "gpt")
END = [Stopped(StopReason.END), Usage(3, 4, searches=1), ENDED]


def streamed(*events: Event) -> dict[str, Any]:
    """The message that the vendor's SDK makes of the stream."""
    writer = SPEC.stream_writer(EXCHANGE, Ledger())
    data = b"".join(writer.send(event) for event in events)
    message: Any = None
    for frame in SSEParser().receive_data(data):
        value = decode(frame.data)
        if value["type"] != "ping":
            event = EVENT.validate_python(value, strict=True)
            message = accumulate_event(
                event=event, current_snapshot=message, request_headers={}, json_bufs={}
            )
    return dict(message.to_dict())


def whole(*events: Event) -> dict[str, Any]:
    fold = Fold()
    for event in events:
        fold.send(event)
    body = decode(encode(SPEC.write_whole(fold.answer(), EXCHANGE, Ledger())))
    return dict(BetaMessage.model_validate(body, strict=True).to_dict())


FOUND = Opaque(
    "openai_responses",
    "web_search_call",
    {"type": "web_search_call"},
    "/output/0",
    search=Search(("cats", "dogs"), (Source("https://x", "T"), Source("https://y"))),
)
SEAL = Seal("openai_responses", {"type": "web_search_call"}, "gpt")
SEARCHED: list[Event] = [
    STARTED,
    BlockStarted(0, BlockKind.REASONING),
    SealDelta(0, SEAL),
    BlockEnded(0),
    FOUND,
    BlockStarted(1, BlockKind.TEXT),
    TextDelta(1, "So."),
    BlockEnded(1),
    *END,
]


@pytest.mark.parametrize("written", [streamed, whole])
def test_a_search_is_shown_in_the_form_of_the_vendor(written: Any) -> None:
    message = written(*SEARCHED)
    use, result = message["content"][1:3]
    assert (use["type"], use["name"], use["input"]) == (
        "server_tool_use",
        "web_search",
        {"query": "cats\ndogs"},
    )
    assert result["tool_use_id"] == use["id"]
    assert [(item["url"], item["title"]) for item in result["content"]] == [
        ("https://x", "T"),
        ("https://y", "https://y"),
    ]
    assert all(item["encrypted_content"] for item in result["content"])
    assert message["usage"]["server_tool_use"] == {"web_search_requests": 1, "web_fetch_requests": 0}
    assert [block["type"] for block in message["content"]] == [
        "thinking",
        "server_tool_use",
        "web_search_tool_result",
        "text",
    ]


def test_two_searches_have_ids_of_their_own() -> None:
    content = whole(STARTED, FOUND, FOUND, *END)["content"]
    assert content[0]["id"] == content[1]["tool_use_id"] != content[2]["id"]


def test_a_search_without_words_or_finds() -> None:
    event = Opaque("other", "search", {}, search=Search(()))
    use, result = whole(STARTED, event, *END)["content"]
    assert (use["input"], result["content"]) == ({"query": ""}, [])


def read(*messages: Any) -> tuple[Message, ...]:
    return SPEC.read_request({"model": "m", "max_tokens": 9, "messages": list(messages)}, SEALER).messages


def test_what_comes_back_of_a_shown_search_is_dropped_and_the_search_itself_stays() -> None:
    content = whole(*SEARCHED)["content"]
    (message,) = read({"role": "assistant", "content": content})
    assert message.parts == (
        Thought("", SEAL, path="/messages/0/content/0"),
        Text("So.", path="/messages/0/content/3"),
    )


def test_the_vendor_never_gets_what_was_made_here() -> None:
    """It would refuse it: a body that carries any of it is read and written anew."""
    content = whole(*SEARCHED)["content"]
    for block in content[:3]:
        assert any(carrier in encode(block) for carrier in SPEC.carriers), block
    request = SPEC.read_request(
        {"model": "m", "max_tokens": 9, "messages": [{"role": "assistant", "content": content}]}, SEALER
    )
    sent = encode(SPEC.write_request(request, Target(), Ledger()))
    assert not any(carrier in sent for carrier in SPEC.carriers)


def test_a_search_of_the_vendor_stays() -> None:
    use = {"type": "server_tool_use", "id": "srvtoolu_01", "name": "web_search", "input": {}}
    (message,) = read({"role": "assistant", "content": [use]})
    assert isinstance(message.parts[0], OpaquePart)


# --- summaries


@pytest.mark.parametrize("written", [streamed, whole])
def test_a_summary_is_one_compaction_block(written: Any) -> None:
    message = written(STARTED, Compacted("All is well."), Stopped(StopReason.COMPACTION), Usage(3, 4), ENDED)
    (block,) = message["content"]
    assert (block["type"], block["content"]) == ("compaction", "All is well.")
    assert SEALER.unwrap(block["encrypted_content"]) == Seal("dragoman", {"summary": "All is well."})
    assert message["stop_reason"] == "compaction"


def test_a_summary_of_the_vendor_streams_and_stays_whole() -> None:
    native = {"type": "compaction", "content": "So.", "encrypted_content": "theirs"}
    event = Opaque("anthropic_messages", "compaction", native)
    for written in (streamed, whole):
        (block,) = written(STARTED, event, *END)["content"]
        assert {key: block[key] for key in native} == native


CARRIER = SEALER.wrap(Seal("dragoman", {"summary": "All is well."}))
SUMMARY = {"type": "compaction", "content": "All is well.", "encrypted_content": CARRIER}
SAID = "Summary of the conversation so far:\nAll is well."


def roles(*messages: Any, **fields: Any) -> list[tuple[str, list[str]]]:
    body = {"model": "m", "max_tokens": 9, "messages": list(messages), **fields}
    request = SPEC.read_request(body, SEALER)
    return [(message.role, [part.text for part in message.parts]) for message in request.messages]  # type: ignore[union-attr, misc]


HELLO = {"role": "user", "content": "Hello"}


@pytest.mark.parametrize(
    ("messages", "read_as"),
    [
        (
            [HELLO, {"role": "assistant", "content": [SUMMARY]}, HELLO],
            [("user", [SAID]), ("user", ["Hello"])],
        ),
        (
            [
                HELLO,
                {
                    "role": "assistant",
                    "content": [{"type": "text", "text": "a"}, SUMMARY, {"type": "text", "text": "b"}],
                },
            ],
            [("user", [SAID]), ("assistant", ["b"])],
        ),
        (
            [{"role": "assistant", "content": [SUMMARY]}, HELLO, {"role": "assistant", "content": [SUMMARY]}],
            [("user", [SAID])],
        ),
        (
            [HELLO, {"role": "assistant", "content": [{**SUMMARY, "encrypted_content": CARRIER + "x"}]}],
            [("user", ["Hello"]), ("assistant", ["All is well."])],
        ),
    ],
)
def test_a_summary_takes_the_place_of_what_was_before(messages: Any, read_as: Any) -> None:
    assert roles(*messages, system="Be brief.") == [("system", ["Be brief."]), *read_as]


def test_a_summary_keeps_its_mark() -> None:
    block = {**SUMMARY, "cache_control": {"type": "ephemeral"}}
    (message,) = read({"role": "assistant", "content": [block]})
    assert message.parts[0].cache is not None  # type: ignore[union-attr]
