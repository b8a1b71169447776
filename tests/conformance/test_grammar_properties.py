"""Random responses through complete translations.

For any legal events of an upstream's reader, each client must get a stream that its vendor could have sent, with the
same meaning.
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from laws.clients import spec_of
from laws.events import ANY, CALLS, legal, scripted
from laws.pairs import requested
from oracle import (
    CHAT,
    PROTOCOL_NAMES,
    Kind,
    Stop,
    check_stream,
    check_whole,
    compare,
    meaning_of_stream,
    meaning_of_whole,
)
from oracle.meaning import meaning_of_events

from dragoman import ResponseTranslator
from dragoman.events import Event

# Derandomised, so that each run has the same result; fuzzers try random inputs.
PROPERTY = settings(deadline=None, derandomize=True, database=None, max_examples=40)


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
    assert compare(meaning_of_events(events), meaning_of_stream(client, sent), client) == []


@pytest.mark.parametrize("client", PROTOCOL_NAMES)
@PROPERTY
@given(st.data())
def test_legal_responses(client: str, data: st.DataObject) -> None:
    """Of one choice or of two; blocks open together, but not for Chat Completions, where they cannot be told apart."""
    check(data.draw(legal(together=CALLS if client == CHAT else ANY) | legal(choices=2)), client)


@pytest.mark.parametrize("client", PROTOCOL_NAMES)
@PROPERTY
@given(events=legal(fails=True))
def test_responses_that_fail_at_any_point(client: str, events: list[Event]) -> None:
    sent = reported(events, client)
    if sent:
        assert check_stream(client, sent, include_usage=True) == []
    expected, received = meaning_of_events(events), meaning_of_stream(client, sent)
    assert received.stop is Stop.ERROR
    assert received.failure is not None
    assert expected.failure in received.failure
    # What waited for its turn when the response broke was never shown; nothing else is missing or added.
    for kinds in ((Kind.TEXT, Kind.REFUSAL), (Kind.REASONING,)):
        assert "".join(expected.text(*kinds).split()).startswith("".join(received.text(*kinds).split()))


@pytest.mark.parametrize("client", PROTOCOL_NAMES)
@PROPERTY
@given(events=legal(together=ANY))
def test_legal_whole_responses(client: str, events: list[Event]) -> None:
    sent = reported(events, client, streams=False)
    assert check_whole(client, sent) == []
    expected = meaning_of_events(events)
    if client == CHAT:  # a whole message has one place for text and one for a refusal
        expected.blocks.sort(key=lambda block: block.kind is Kind.REFUSAL)
    assert compare(expected, meaning_of_whole(client, sent), client) == []
