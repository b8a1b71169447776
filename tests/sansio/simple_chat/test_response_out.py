"""Events as simple responses: lines, server-sent events and whole bodies, and their losses."""

from __future__ import annotations

from typing import Any

import pytest
from core.toy_protocol import context_of

from dragoman._engine.sinks import ClientSink
from dragoman._ir.assembly import Fold
from dragoman._ir.events import (
    ENDED,
    Annotation,
    ArgumentsDelta,
    BlockEnded,
    BlockKind,
    BlockStarted,
    Event,
    Failed,
    Logprobs,
    ReasoningDelta,
    Started,
    Stopped,
    StopReason,
    TextDelta,
    ToolHead,
    Usage,
)
from dragoman._ir.losses import Ledger, LossCode
from dragoman._wire.errors import ErrorKind, WireError
from dragoman._wire.json import encode
from dragoman.codec import NDJSON, SSE, Endpoint
from dragoman.protocols.simple_chat import SPEC

JSON, LINES, EVENTS = SPEC.endpoints
START = Started("up-1", "big", 5)
END: list[Event] = [Stopped(StopReason.END), ENDED]
HELLO: list[Event] = [
    BlockStarted(0, BlockKind.TEXT),
    TextDelta(0, "I'm "),
    TextDelta(0, "doing well"),
    TextDelta(0, ", thank you!"),
    BlockEnded(0),
]


def streamed(events: list[Event], endpoint: Endpoint | None) -> tuple[bytes, Ledger]:
    ledger = Ledger()
    context = context_of(protocol="simple_chat")
    if endpoint is not None:
        context = type(context)(context.request, "abc123", 1_678_048_938, "model-name", endpoint=endpoint)
    sink = ClientSink(SPEC, context, ledger)
    for event in events:
        sink.send(event)
    return sink.data_to_send(), ledger


def whole(events: list[Event]) -> tuple[dict[str, Any], Ledger]:
    fold = Fold()
    for event in events:
        fold.send(event)
    ledger = Ledger()
    context = context_of(protocol="simple_chat")
    context = type(context)(context.request, "abc123", 1_678_048_938, "model-name", endpoint=JSON)
    return SPEC.write_whole(fold.response(), context, ledger), ledger


def content(events: list[Event]) -> str:
    text: str = whole(events)[0]["message"]["content"]
    return text


def losses(ledger: Ledger) -> set[tuple[str, str]]:
    return {(loss.code.value, loss.path) for loss in ledger}


# --- the three endpoints ---------------------------------------------------------------------------------------


def test_the_endpoints() -> None:
    assert [(each.path, each.streams, each.framing, each.media_type) for each in (LINES, EVENTS)] == [
        ("/chat/stream", "always", NDJSON, "application/json"),
        ("/chat/sse", "always", SSE, "text/event-stream"),
    ]
    assert (JSON.path, JSON.streams) == ("/chat/json", "never")


def test_a_whole_response() -> None:
    body, ledger = whole([START, *HELLO, *END])
    assert encode(body) == (
        b'{"id":"cmpl-abc123","model":"model-name","created":1678048938,'
        b'"message":{"role":"assistant","content":"I\'m doing well, thank you!"},"done":true}'
    )
    assert not len(ledger)


def test_lines() -> None:
    sent, ledger = streamed([START, *HELLO, *END], LINES)
    assert sent == (
        b'{"message":{"role":"assistant","content":"I\'m "},"done":false,"index":0}\n'
        b'{"message":{"role":"assistant","content":"doing well"},"done":false,"index":1}\n'
        b'{"message":{"role":"assistant","content":", thank you!"},"done":false,"index":2}\n'
        b'{"message":{"role":"assistant","content":""},"done":true,"index":3}\n'
    )
    assert not len(ledger)


@pytest.mark.parametrize("endpoint", [EVENTS, None], ids=["sse", "nowhere"])
def test_events(endpoint: Endpoint | None) -> None:
    """Also the form without an endpoint."""
    sent, ledger = streamed([START, *HELLO, *END], endpoint)
    assert sent == (
        b'data: {"message":{"role":"assistant","content":"I\'m "},"done":false,"index":0}\n\n'
        b'data: {"message":{"role":"assistant","content":"doing well"},"done":false,"index":1}\n\n'
        b'data: {"message":{"role":"assistant","content":", thank you!"},"done":false,"index":2}\n\n'
        b"data: [DONE]\n\n"
    )
    assert not len(ledger)


def test_an_empty_response() -> None:
    assert content([START, *END]) == ""
    assert (
        streamed([START, *END], LINES)[0]
        == b'{"message":{"role":"assistant","content":""},"done":true,"index":0}\n'
    )
    assert streamed([START, *END], EVENTS)[0] == b"data: [DONE]\n\n"


def test_text_of_any_kind_stays_on_its_line() -> None:
    text = 'a\n\n"b"\u2028\U0001f600 100%d'
    events = [START, BlockStarted(0, BlockKind.TEXT), TextDelta(0, text), BlockEnded(0), *END]
    assert streamed(events, LINES)[0].count(b"\n") == 2
    assert streamed(events, EVENTS)[0].count(b"\n") == 4
    assert encode(text) in streamed(events, LINES)[0]


def test_texts_of_several_blocks_are_one_text() -> None:
    more: list[Event] = [BlockStarted(7, BlockKind.TEXT), TextDelta(7, " And you?"), BlockEnded(7)]
    assert content([START, *HELLO, *more, *END]) == "I'm doing well, thank you! And you?"
    assert b'" And you?"},"done":false,"index":3}' in streamed([START, *HELLO, *more, *END], LINES)[0]


ERROR = WireError(ErrorKind.OVERLOADED, "too busy", code="busy")


@pytest.mark.parametrize("before", [[], [START], [START, *HELLO[:2]]])
def test_an_error_in_lines(before: list[Event]) -> None:
    sent = streamed([*before, Failed(ERROR)], LINES)[0]
    assert sent.splitlines(keepends=True)[-1] == (
        b'{"error":{"message":"too busy","type":"overloaded_error","code":"busy"},"done":true}\n'
    )
    assert sent.count(b'"done":true') == 1


@pytest.mark.parametrize("before", [[], [START], [START, *HELLO[:2]]])
def test_an_error_in_events(before: list[Event]) -> None:
    sent = streamed([*before, Failed(ERROR)], EVENTS)[0]
    assert sent.endswith(
        b'event: error\ndata: {"message":"too busy","type":"overloaded_error","code":"busy"}\n\ndata: [DONE]\n\n'
    )


# --- losses ----------------------------------------------------------------------------------------------------

CALL = BlockStarted(1, BlockKind.TOOL_CALL, tool=ToolHead("call/1", "look"))
TOKENS = [{"token": "He", "logprob": -0.5}]
CITE = Annotation(0, "openai_chat", {"url": "u"}, "u")

LOST: dict[str, tuple[list[Event], set[tuple[str, str]]]] = {
    "reasoning": (
        [START, BlockStarted(1, BlockKind.REASONING), ReasoningDelta(1, "Hm."), BlockEnded(1), *END],
        {("dropped", "/reasoning")},
    ),
    "a call that nobody offered": (
        [START, CALL, ArgumentsDelta(1, "{}"), BlockEnded(1), Stopped(StopReason.TOOL_USE), ENDED],
        {("dropped", "/tool_calls/call~11"), ("dropped", "/stop_reason")},
    ),
    "annotations and log probabilities": (
        [START, HELLO[0], Logprobs(0, TOKENS), *HELLO[1:4], CITE, CITE, HELLO[4], *END],
        {("dropped", "/annotations"), ("dropped", "/logprobs")},
    ),
    "a service tier": ([Started("up-1", "big", 5, "priority"), *END], {("dropped", "/service_tier")}),
    "usage": ([START, Usage(5, 7), Usage(5, 9), *END], {("dropped", "/usage")}),
    "no usage": ([START, Usage(), *END], set()),
    "an early end": (
        [START, *HELLO, Stopped(StopReason.MAX_TOKENS, "length"), ENDED],
        {("dropped", "/stop_reason")},
    ),
    "a stop sequence": (
        [START, *HELLO, Stopped(StopReason.STOP_SEQUENCE, sequence="STOP"), ENDED],
        {("dropped", "/stop_reason"), ("dropped", "/stop_sequence")},
    ),
    "details": (
        [START, *HELLO, Stopped(StopReason.END, details={"type": "x"}), ENDED],
        {("dropped", "/stop_details")},
    ),
}


@pytest.mark.parametrize("name", LOST)
def test_events_without_a_place_are_losses(name: str) -> None:
    events, expected = LOST[name]
    assert losses(whole(events)[1]) == expected
    for endpoint in (LINES, EVENTS):
        assert losses(streamed(events, endpoint)[1]) == expected


REFUSAL: list[Event] = [
    BlockStarted(0, BlockKind.REFUSAL),
    TextDelta(0, "I will "),
    TextDelta(0, "not."),
    BlockEnded(0),
]


def test_a_refusal_is_text() -> None:
    events = [START, *REFUSAL, *END]
    assert content(events) == "I will not."
    assert b'"content":"I will "' in streamed(events, LINES)[0]
    for ledger in (whole(events)[1], streamed(events, LINES)[1]):
        assert losses(ledger) == {("altered", "/refusal")}


def test_an_explanation_replaces_missing_text() -> None:
    stop: list[Event] = [Stopped(StopReason.CONTENT_FILTER, explanation="Not that."), ENDED]
    assert content([START, *stop]) == "Not that."
    assert streamed([START, *stop], EVENTS)[0] == (
        b'data: {"message":{"role":"assistant","content":"Not that."},"done":false,"index":0}\n\ndata: [DONE]\n\n'
    )
    reported = {(LossCode.ALTERED.value, "/stop_details/explanation"), ("dropped", "/stop_reason")}
    assert losses(whole([START, *stop])[1]) == losses(streamed([START, *stop], LINES)[1]) == reported

    assert content([START, *HELLO, *stop]) == "I'm doing well, thank you!"
    lost = {("dropped", "/stop_details/explanation"), ("dropped", "/stop_reason")}
    ledgers = whole([START, *HELLO, *stop])[1], streamed([START, *HELLO, *stop], LINES)[1]
    assert [losses(ledger) for ledger in ledgers] == [lost, lost]
