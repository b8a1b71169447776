"""The public test helpers: every way of cutting is whole again, a stream has its events, a pair passes answers."""

import pytest

from dragoman import (
    REGISTRY,
    Fault,
    FaultKind,
    Outcome,
    Policy,
    RemoteProtocolError,
    Sealer,
    Target,
)
from dragoman._wire.json import decode
from dragoman.testing import PLACES, Pair, chop, events_of

CHAT, MESSAGES = REGISTRY["openai_chat"], REGISTRY["anthropic_messages"]
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
    assert [type(event).__name__ for event in events_of(CHAT, stream)] == NAMES


def test_a_stream_that_ends_too_early_has_no_events() -> None:
    with pytest.raises(RemoteProtocolError):
        events_of(CHAT, STREAM[:90])


def test_a_pair_translates_both_ways() -> None:
    pair = Pair(MESSAGES, CHAT, target=Target(max_tokens_field="max_tokens"), model="big")
    asked = decode(pair.ask(BODY))
    assert (asked["model"], asked["max_tokens"]) == ("big", 9)
    whole = pair.answer(STREAM)
    assert (pair.outcome, pair.fault, len(pair.losses)) == (Outcome.COMPLETED, None, 1)
    assert {pair.answer(pieces) for pieces in chop(STREAM)} == {whole}
    assert "TextDelta" in [type(event).__name__ for event in events_of(MESSAGES, whole)]


def test_a_pair_takes_whole_answers_and_mixtures() -> None:
    pair = Pair(MESSAGES, CHAT)
    pair.ask({**BODY, "stream": False})
    assert decode(pair.answer(WHOLE))["content"][0]["text"] == "Hello"
    assert decode(pair.answer(STREAM, streams=True))["content"][0]["text"] == "Hello"
    pair.ask(b'{"model":"m","max_tokens":9,"stream":true,"messages":[{"role":"user","content":"Hi"}]}')
    assert b"message_stop" in pair.answer(WHOLE, streams=False)


def test_a_pair_of_one_protocol_relays() -> None:
    pair = Pair(CHAT, CHAT)
    pair.ask({"model": "m", "stream": True, "messages": []})
    assert pair.answer(STREAM) == STREAM
    assert b"chatcmpl-test" in pair.answer(WHOLE, streams=False)


def test_a_pair_tells_how_an_answer_broke_off() -> None:
    pair = Pair(MESSAGES, CHAT)
    pair.ask(BODY)
    assert b"event: error" in pair.answer(STREAM[:90])
    assert pair.fault is not None
    assert pair.fault.kind is FaultKind.TRUNCATED
    gone = Fault(FaultKind.UNREACHABLE, "gone")
    assert b"gone" in pair.answer(STREAM[:90], fault=gone)
    assert (pair.outcome, pair.fault) == (Outcome.FAILED, gone)


def test_a_pair_that_was_not_asked_has_no_answer() -> None:
    pair = Pair(MESSAGES, CHAT, sealer=Sealer(b"secret"), policy=Policy.REFUSE)
    with pytest.raises(ValueError, match="ask"):
        pair.answer(STREAM)
    with pytest.raises(RemoteProtocolError, match="strict"):
        pair.ask({**BODY, "x": 1})
