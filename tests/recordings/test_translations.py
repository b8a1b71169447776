"""Every recorded response to every client protocol, checked by an oracle that shares no code with the product."""

from __future__ import annotations

import corpus
import pytest
from oracle import (
    CHAT,
    CLIENTS,
    Stop,
    check_error,
    check_stream,
    check_whole,
    compare,
    compare_error,
    meaning_of_client_stream,
    meaning_of_upstream,
    meaning_of_whole,
    read_error,
)
from translation import translate_error_of, translate_stream, translate_whole

STREAMS = [
    pytest.param(recording, client, id=f"{recording.name}-to-{client}")
    for recording in corpus.recordings()
    for client in CLIENTS
    if recording.protocol != client
]
RELAYED = [pytest.param(recording, id=recording.name) for recording in corpus.recordings()]
WHOLE = [
    pytest.param(response, client, id=f"{response.name}-to-{client}")
    for response in corpus.equivalents()
    for client in CLIENTS
    if response.status == 200
]
ERRORS = [
    pytest.param(response, client, id=f"{response.name}-to-{client}")
    for response in corpus.errors()
    for client in CLIENTS
]


@pytest.mark.parametrize(("recording", "client"), STREAMS)
def test_recorded_streams_cross(recording: corpus.Recording, client: str) -> None:
    stream = recording.read()
    sent = translate_stream(recording.protocol, client, stream, recording.request)
    assert check_stream(client, sent, include_usage=True) == []
    expected = meaning_of_upstream(recording.protocol, stream)
    assert compare(expected, meaning_of_client_stream(client, sent), client) == []


@pytest.mark.parametrize("recording", [row for row in RELAYED if row.values[0].protocol != CHAT])
def test_chat_clients_get_usage_only_on_request(recording: corpus.Recording) -> None:
    stream = recording.read()
    sent = translate_stream(recording.protocol, CHAT, stream, recording.request, include_usage=False)
    assert check_stream(CHAT, sent, include_usage=False) == []
    expected, received = meaning_of_upstream(recording.protocol, stream), meaning_of_client_stream(CHAT, sent)
    assert compare(expected, received, CHAT, include_usage=False) == []


@pytest.mark.parametrize("recording", RELAYED)
def test_same_protocol_is_byte_exact(recording: corpus.Recording) -> None:
    stream = recording.read()
    sent = translate_stream(recording.protocol, recording.protocol, stream, recording.request)
    expected = meaning_of_upstream(recording.protocol, stream)
    assert compare(expected, meaning_of_client_stream(recording.protocol, sent), recording.protocol) == []
    if expected.stop is Stop.CUT:
        # Whole frames as they came, then the protocol's own error.
        assert stream.startswith(sent[: stream.rindex(b"\n\n") + 2])
    else:
        # Up to the last event: what some servers send behind it does not pass.
        assert stream.startswith(sent)


@pytest.mark.parametrize(("response", "client"), WHOLE)
def test_recorded_whole_responses_translate(response: corpus.WholeResponse, client: str) -> None:
    sent = translate_whole(response.protocol, client, response.body, response.request)
    if response.protocol == client:
        assert sent == response.body
        return
    assert check_whole(client, sent) == []
    expected = meaning_of_whole(response.protocol, response.body)
    assert compare(expected, meaning_of_whole(client, sent), client) == []


@pytest.mark.parametrize(("response", "client"), ERRORS)
def test_recorded_errors_translate(response: corpus.WholeResponse, client: str) -> None:
    status, sent = translate_error_of(response.protocol, client, response.status, response.body)
    if response.protocol == client and sent == response.body:
        return  # a vendor's own words pass as they are to its own clients
    assert check_error(client, status, sent) == []
    expected = read_error(response.protocol, response.status, response.body)
    assert compare_error(expected, read_error(client, status, sent)) == []
