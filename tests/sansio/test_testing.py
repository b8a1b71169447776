"""The public test helpers: every way of cutting is whole again, a stream has its events, a pair passes responses."""

import pytest

from dragoman import (
    PROTOCOLS,
    ErrorKind,
    LossPolicy,
    Outcome,
    RemoteProtocolError,
    RequestRefused,
    Signer,
    WireError,
)
from dragoman._wire.json import decode
from dragoman.protocols.openai_chat.capabilities import ChatCapabilities
from dragoman.testing import PLACES, Pair, chop, read_events

CHAT, MESSAGES = PROTOCOLS["openai_chat"], PROTOCOLS["anthropic_messages"]
STREAM = (
    b'data: {"id":"1","model":"big","choices":[{"index":0,"delta":{"content":"Hello"}}]}\n\n'
    b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
    b"data: [DONE]\n\n"
)
WHOLE = (
    b'{"id":"1","model":"big","choices":[{"index":0,"finish_reason":"stop",'
    b'"message":{"role":"assistant","content":"Hello"}}]}'
)
BODY = {"model": "m", "max_tokens": 9, "stream": True, "messages": [{"role": "user", "content": "Hi"}]}
NAMES = ["Started", "BlockStarted", "TextDelta", "BlockEnded", "Stopped", "Ended"]


@pytest.mark.parametrize("data", [b"", b"a", b"abcdefg", STREAM * 20])
def test_every_chopping_is_the_whole_again(data: bytes) -> None:
    ways = list(chop(data))
    assert all(b"".join(way) == data for way in ways)
    assert [data] in ways
    assert [data[at : at + 1] for at in range(len(data))] in ways
    assert [b"", data] in ways
    assert len(ways) <= 2 * PLACES + 8
    assert list(chop(data)) == ways


def test_short_data_is_cut_in_two_at_every_place() -> None:
    ways = list(chop(STREAM[:20]))
    assert all([STREAM[:at], STREAM[at:20]] in ways for at in range(21))
    assert len(list(chop(STREAM, places=0))) == 7 + 2


@pytest.mark.parametrize("stream", [STREAM, list(chop(STREAM))[1]])
def test_the_events_of_a_stream(stream: bytes | list[bytes]) -> None:
    assert [type(event).__name__ for event in read_events(CHAT, stream)] == NAMES


def test_a_stream_that_ends_too_early_has_no_events() -> None:
    with pytest.raises(RemoteProtocolError):
        read_events(CHAT, STREAM[:90])


def test_a_pair_translates_both_ways() -> None:
    capabilities = ChatCapabilities(max_tokens_field="max_tokens")
    pair = Pair(client=MESSAGES, upstream=CHAT, capabilities=capabilities, model="big")
    requested = decode(pair.translate_request(BODY))
    assert (requested["model"], requested["max_tokens"]) == ("big", 9)
    whole = pair.translate_response(STREAM)
    assert (pair.outcome, pair.error, len(pair.losses)) == (Outcome.COMPLETED, None, 1)
    assert {pair.translate_response(chunks) for chunks in chop(STREAM)} == {whole}
    assert "TextDelta" in [type(event).__name__ for event in read_events(MESSAGES, whole)]


def test_a_pair_accepts_whole_responses_and_mixtures() -> None:
    pair = Pair(client=MESSAGES, upstream=CHAT)
    pair.translate_request({**BODY, "stream": False})
    assert decode(pair.translate_response(WHOLE))["content"][0]["text"] == "Hello"
    assert decode(pair.translate_response(STREAM, streams=True))["content"][0]["text"] == "Hello"
    pair.translate_request(
        b'{"model":"m","max_tokens":9,"stream":true,"messages":[{"role":"user","content":"Hi"}]}'
    )
    assert b"message_stop" in pair.translate_response(WHOLE, streams=False)


def test_a_pair_of_one_protocol_relays() -> None:
    pair = Pair(client=CHAT, upstream=CHAT)
    pair.translate_request({"model": "m", "stream": True, "messages": []})
    assert pair.translate_response(STREAM) == STREAM
    assert b"chatcmpl-test" in pair.translate_response(WHOLE, streams=False)


def test_a_pair_reports_how_a_response_broke_off() -> None:
    pair = Pair(client=MESSAGES, upstream=CHAT)
    pair.translate_request(BODY)
    assert b"event: error" in pair.translate_response(STREAM[:90])
    assert pair.error.kind is ErrorKind.TRUNCATED
    gone = WireError(ErrorKind.UNREACHABLE, "gone")
    assert b"gone" in pair.translate_response(STREAM[:90], error=gone)
    assert (pair.outcome, pair.error) == (Outcome.FAILED, gone)


def test_a_pair_without_a_request_has_no_response() -> None:
    pair = Pair(client=MESSAGES, upstream=CHAT, signer=Signer(b"secret"), policy=LossPolicy.REFUSE)
    with pytest.raises(ValueError, match="translate_request"):
        pair.translate_response(STREAM)
    with pytest.raises(RequestRefused, match="strict"):
        pair.translate_request({**BODY, "x": 1})
