"""Random responses, drawn from the tables of the event order, through complete translations.

For any legal events of an upstream's reader, each client must get a stream that its vendor could have sent, with the
same meaning; illegal events never pass the checker.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from laws.clients import endpoint_of, spec_of
from laws.events import ANY, EVENTS, illegal, legal, meaning_of_events, scripted
from oracle import (
    CHAT,
    CLIENTS,
    MESSAGES,
    PROTOCOL_NAMES,
    RESPONSES,
    SIMPLE,
    Kind,
    Stop,
    check_stream,
    check_whole,
    compare,
    meaning_of_client_stream,
    meaning_of_whole,
)

from dragoman import UPSTREAMS, LocalProtocolError, ResponseTranslator
from dragoman.codec import ResponseContext
from dragoman.document import Request
from dragoman.events import Event
from dragoman.testing import EventOrderChecker, read_events

# Derandomised, so that each run has the same result; fuzzers try random inputs.
PROPERTY = settings(deadline=None, derandomize=True, database=None, max_examples=60)


def requested(client: str) -> ResponseContext:
    request = Request(
        protocol=spec_of(client).name, model="alias", messages=(), raw={}, params={"stop": ["STOP"]}
    )
    return ResponseContext(
        request=request,
        id="0123456789abcdef",
        now=1,
        model="alias",
        prompt_tokens=7,
        endpoint=endpoint_of(client),
    )


def reported(events: list[Event], client: str, *, streams: bool = True) -> bytes:
    """Return the bytes that a client gets for these events."""
    upstream, stream = scripted(events)
    translator = ResponseTranslator(
        client=spec_of(client), upstream=upstream, context=requested(client), client_streams=streams
    )
    translator.receive_data(stream)
    translator.receive_eof()
    return translator.data_to_send()


def check(events: list[Event], client: str) -> None:
    sent = reported(events, client)
    assert check_stream(client, sent, include_usage=True) == []
    assert compare(meaning_of_events(events), meaning_of_client_stream(client, sent), client) == []


def test_fixed_responses(subtests: pytest.Subtests) -> None:
    for name in EVENTS:
        with subtests.test(name=name):
            for client in CLIENTS:
                check(EVENTS[name], client)


@pytest.mark.parametrize("client", CLIENTS)
@PROPERTY
@given(events=legal())
def test_legal_responses(client: str, events: list[Event]) -> None:
    check(events, client)


@pytest.mark.parametrize("client", CLIENTS)
@PROPERTY
@given(events=legal(choices=2))
def test_legal_responses_of_several_choices(client: str, events: list[Event]) -> None:
    check(events, client)


@pytest.mark.parametrize("client", [MESSAGES, RESPONSES, *SIMPLE])
@PROPERTY
@given(events=legal(together=ANY))
def test_any_blocks_open_together(client: str, events: list[Event]) -> None:
    check(events, client)


@pytest.mark.parametrize("client", CLIENTS)
@PROPERTY
@given(events=legal(fails=True))
def test_responses_that_fail_at_any_point(client: str, events: list[Event]) -> None:
    sent = reported(events, client)
    if sent:
        assert check_stream(client, sent, include_usage=True) == []
    expected, received = meaning_of_events(events), meaning_of_client_stream(client, sent)
    assert received.stop is Stop.ERROR
    assert received.failure is not None
    assert expected.failure is not None
    assert expected.failure.message in received.failure.message
    # What waited for its turn when the response broke was never shown; nothing else is missing or added.
    for kinds in ((Kind.TEXT, Kind.REFUSAL), (Kind.REASONING,)):
        assert "".join(expected.text(*kinds).split()).startswith("".join(received.text(*kinds).split()))


@pytest.mark.parametrize("client", CLIENTS)
@PROPERTY
@given(events=legal(together=ANY))
def test_legal_whole_responses(client: str, events: list[Event]) -> None:
    sent = reported(events, client, streams=False)
    assert check_whole(client, sent) == []
    expected = meaning_of_events(events)
    if client == CHAT:  # a whole message has one place for text and one for a refusal
        expected.blocks.sort(key=lambda block: block.kind is Kind.REFUSAL)
    assert compare(expected, meaning_of_whole(client, sent), client) == []


@pytest.mark.parametrize("client", PROTOCOL_NAMES)
@PROPERTY
@given(events=legal())
def test_every_writer_passes_its_own_reader(client: str, events: list[Event]) -> None:
    read = read_events(UPSTREAMS[client], reported(events, client))
    assert type(read[-1]).__name__ == "Ended"


@PROPERTY
@given(events=legal(choices=2, together=ANY) | legal(choices=2, fails=True))
def test_the_checker_accepts_legal_events(events: list[Event]) -> None:
    checker = EventOrderChecker()
    for event in events:
        checker.check(event)


@settings(PROPERTY, max_examples=200)
@given(events=illegal())
def test_the_checker_refuses_illegal_events(events: list[Event]) -> None:
    checker = EventOrderChecker()
    *before, last = events
    for event in before:
        checker.check(event)
    with pytest.raises(LocalProtocolError):
        checker.check(last)
