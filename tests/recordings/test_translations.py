"""Recorded whole responses and errors to every client protocol, checked by the oracle.

Streams go through the laws, test_laws.py.
"""

import corpus
import pytest
from oracle import (
    CHAT,
    PROTOCOL_NAMES,
    check_error,
    check_stream,
    check_whole,
    compare,
    compare_error,
    meaning_of_stream,
    meaning_of_whole,
    read_error,
)
from translation import translate_error_of, translate_stream, translate_whole

WHOLE = [
    pytest.param(response, client, id=f"{response.name}-to-{client}")
    for response in corpus.equivalents()
    for client in PROTOCOL_NAMES
    if response.status == 200
]
ERRORS = [
    pytest.param(response, client, id=f"{response.name}-to-{client}")
    for response in corpus.errors()
    for client in PROTOCOL_NAMES
]


@pytest.mark.parametrize(
    "recording", [pytest.param(each, id=each.name) for each in corpus.recordings() if each.protocol != CHAT]
)
def test_chat_clients_get_usage_only_on_request(recording: corpus.Recording) -> None:
    stream = recording.read()
    sent = translate_stream(recording.protocol, CHAT, stream, recording.request, include_usage=False)
    assert check_stream(CHAT, sent, include_usage=False) == []
    expected, received = meaning_of_stream(recording.protocol, stream), meaning_of_stream(CHAT, sent)
    assert compare(expected, received, CHAT, include_usage=False) == []


@pytest.mark.parametrize(("response", "client"), WHOLE)
def test_recorded_whole_responses_translate(response: corpus.WholeResponse, client: str) -> None:
    if response.name in corpus.FAILURES:
        with pytest.raises(AssertionError, match="unexpected_tool_call"):
            translate_whole(response.protocol, client, response.body, response.request)
        return
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
