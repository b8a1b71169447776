"""Streams for clients, written from events."""

import pytest
from core.events import STARTED, start_of

from dragoman import PROTOCOLS, UPSTREAMS, EventReader, EventWriter, LocalProtocolError, ResponseTranslator
from dragoman._ir.events import (
    ENDED,
    BlockEnded,
    BlockKind,
    Event,
    Failed,
    Stopped,
    StopReason,
    TextDelta,
    Usage,
)
from dragoman._ir.request import Request
from dragoman._wire.errors import ErrorKind, WireError
from dragoman.codec import ResponseContext
from dragoman.testing import read_events

STREAM = (
    b'data: {"id":"1","model":"m","choices":[{"index":0,"delta":{"role":"assistant","reasoning_content":"so"}}]}\n\n'
    b'data: {"choices":[{"index":0,"delta":{"content":"Hello"}}]}\n\n'
    b'data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"call 1","type":"function",'
    b'"function":{"name":"look","arguments":"{\\"at\\":1}"}}]}}]}\n\n'
    b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}\n\n'
    b'data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":5,"total_tokens":8}}\n\n'
    b"data: [DONE]\n\n"
)
TEXT: list[Event] = [STARTED, start_of(BlockKind.TEXT), TextDelta(0, "Hello"), BlockEnded(0)]


def writer(protocol: str) -> EventWriter:
    return EventWriter(protocol, id="x1", now=1, model="m")


@pytest.mark.parametrize("client", PROTOCOLS)
def test_it_writes_what_a_translator_writes(client: str) -> None:
    request = Request(protocol=client, model="m", messages=(), stream=True)
    context = ResponseContext(request=request, id="x1", now=1, model="m")
    machine = ResponseTranslator(client=client, upstream="openai_chat", context=context)
    machine.receive_data(STREAM)
    machine.receive_eof()
    events = writer(client)
    assert b"".join(map(events.send, read_events("openai_chat", STREAM))) == machine.data_to_send()
    assert list(events.losses) == [*machine.losses]


@pytest.mark.parametrize(("include_usage", "chunks"), [(True, 1), (False, 0)])
def test_the_request_decides_whether_the_stream_has_usage(include_usage: bool, chunks: int) -> None:
    request = Request("openai_chat", "m", (), stream=True, include_usage=include_usage)
    out = EventWriter("openai_chat", id="x1", now=1, model="m", request=request)
    events = [*TEXT, Stopped(StopReason.END), Usage(3), Usage(output=5), ENDED]
    assert b"".join(map(out.send, events)).count(b'"completion_tokens":5') == chunks


@pytest.mark.parametrize("protocol", UPSTREAMS)
def test_a_reader_reads_what_it_writes(protocol: str) -> None:
    out, back = writer(protocol), EventReader(protocol)
    for event in [*TEXT, Stopped(StopReason.END), Usage(3), Usage(output=5), ENDED]:
        back.receive_data(out.send(event))
    back.receive_eof()
    seen = {type(event := back.next_event()): event for _ in range(20)}
    assert (seen[TextDelta], seen[type(ENDED)]) == (TextDelta(0, "Hello"), ENDED)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_an_illegal_event_is_refused_and_changes_nothing(protocol: str) -> None:
    events, same = writer(protocol), writer(protocol)
    for event in TEXT:
        assert events.send(event) == same.send(event)
        with pytest.raises(LocalProtocolError, match="the response ends"):
            events.send(ENDED)
    assert events.send(Stopped(StopReason.END)) == same.send(Stopped(StopReason.END))
    assert events.send(ENDED) == same.send(ENDED)
    with pytest.raises(LocalProtocolError, match="is not allowed while the response is ended"):
        events.send(Failed(WireError(ErrorKind.SERVER, "late")))


def test_a_second_choice_where_there_is_one() -> None:
    second = start_of(BlockKind.TEXT, 1, choice=1)
    with pytest.raises(LocalProtocolError, match="anthropic_messages allows only one choice per response"):
        writer("anthropic_messages").send(second)
    chat = writer("openai_chat")
    chat.send(STARTED)
    chat.send(second)
    assert b'"index":1' in chat.send(TextDelta(1, "Hi"))
