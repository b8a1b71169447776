"""The bytes that a machine holds: callers translate what is large elsewhere than in their event loop."""

import pytest

from dragoman import Relay, RequestTranslator, ResponseTranslator
from dragoman._engine.response_machine import ResponseMachine

BODY = b'{"model":"m","messages":[{"role":"user","content":"Hi"}],"stream":true}'


def relay(streams: bool) -> ResponseMachine:
    translated = RequestTranslator(client="openai_chat", upstream="openai_chat").translate(BODY)
    context = translated.response_context(id="a", now=0)
    return Relay(protocol="openai_chat", context=context, streams=streams, large_bytes=100_000)


def translator(streams: bool) -> ResponseMachine:
    pair = {"client": "openai_chat", "upstream": "anthropic_messages"}
    context = RequestTranslator(**pair).translate(BODY).response_context(id="a", now=0)
    return ResponseTranslator(**pair, context=context, upstream_streams=streams)


@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.parametrize("make", [relay, translator])
def test_what_is_not_complete_is_held(make, streams: bool) -> None:  # type: ignore[no-untyped-def]
    machine = make(streams)
    assert machine.held_bytes == 0
    machine.receive_data(b'data: {"id')
    assert machine.held_bytes == 10


def test_blocks_that_wait_for_another_are_held() -> None:
    pair = {"client": "anthropic_messages", "upstream": "openai_chat"}
    body = BODY.replace(b"{", b'{"max_tokens":9,', 1)
    context = RequestTranslator(**pair).translate(body).response_context(id="a", now=0)
    machine = ResponseTranslator(**pair, context=context)

    def receive(index: int, name: str) -> int:
        call = (
            f'{{"index":{index},"id":"c{index}","function":{{"name":"{name}","arguments":"{"x" * 1000}"}}}}'
        )
        machine.receive_data(
            f'data: {{"choices":[{{"index":0,"delta":{{"tool_calls":[{call}]}}}}]}}\n\n'.encode()
        )
        return machine.held_bytes

    first, second, third = receive(0, "a"), receive(1, "b"), receive(2, "c")
    assert first < 400
    assert 1000 < second - first < 1500
    assert 1000 < third - second < 1500


@pytest.mark.parametrize(
    ("kind", "most"),
    [
        ('{"type":"text","text":"x"}', 100),  # a block that is open
        ('{"type":"redacted_thinking","data":"' + "x" * 1000 + '"}', 1300),  # it starts when it ends
    ],
)
def test_what_the_end_of_a_response_ends_is_held(kind: str, most: int) -> None:
    machine = translator(True)
    machine.receive_data(b'data: {"type":"message_start","message":{"model":"m","content":[]}}\n\n')
    before = machine.held_bytes
    for index in range(3):
        start = f'{{"type":"content_block_start","index":{index},"content_block":{kind}}}'
        machine.receive_data(f"data: {start}\n\n".encode())
        before, added = machine.held_bytes, machine.held_bytes - before
        assert most / 2 < added < most


@pytest.mark.parametrize("learned", [1, 100])
def test_texts_that_the_end_repeats_are_held_by_what_that_costs(learned: int) -> None:
    """Else it would be written in the event loop, however long they are."""
    pair = {"client": "openai_responses", "upstream": "openai_chat"}
    body = b'{"model":"m","input":"Hi","stream":true}'
    context = RequestTranslator(**pair).translate(body).response_context(id="a", now=0)
    machine = ResponseTranslator(**pair, context=context)
    for _ in range(learned):
        text = "x" * (100_000 // learned - 16)
        machine.receive_data(
            f'data: {{"choices":[{{"index":0,"delta":{{"content":"{text}"}}}}]}}\n\n'.encode()
        )
    assert 100_000 / 24 <= machine.held_bytes < 100_000 / 24 + 200


def test_what_else_the_end_repeats_is_held_by_what_that_costs() -> None:
    """Else each read of a long stream with log probabilities would go to a thread, which takes longer."""
    pair = {"client": "openai_responses", "upstream": "openai_chat"}
    context = (
        RequestTranslator(**pair).translate(b'{"model":"m","input":"Hi"}').response_context(id="a", now=0)
    )
    machine = ResponseTranslator(**pair, context=context)
    token = b'{"token":"x","logprob":-1}'
    for _ in range(100):
        machine.receive_data(
            b'data: {"choices":[{"delta":{"content":"x"},"logprobs":{"content":[%b]}}]}\n\n'
            % b",".join([token] * 40)
        )
    assert 100_000 / 8 < machine.held_bytes < 150_000 / 8


def test_a_relay_observes_a_large_frame_in_its_own_read() -> None:
    machine = relay(True)
    usage = b'"usage":{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3}'
    content = b'"choices":[{"index":0,"delta":{"content":"'
    machine.receive_data(b'data: {"model":"m",' + content + b'x"}}]}\n\n')
    machine.receive_data(b"data: {" + usage + b',"model":"m",' + content + b"x" * 200_000 + b'"}}]}\n\n')
    assert machine.usage.output == 2


def test_a_machine_that_holds_nothing() -> None:
    assert ResponseMachine.__dict__["held_bytes"].fget(object()) == 0
