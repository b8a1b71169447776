"""C. Reasoning that has to come back: signed, encrypted, or in the field that its upstream requires."""

from __future__ import annotations

import json
from typing import Any

import pytest
from failures.responses import Block, Call, Reasoning, Text, stream
from failures.rules import refused
from failures.translate import each, pairs, receive, receive_whole, translate_request
from failures.turns import Result, User, all_blocks, calls_of, model, outline, request
from failures.whole import after_rounds, conversation, turn_of_client
from laws.clients import spec_of
from laws.turns import WHOLE
from oracle import CHAT, MESSAGES, RESPONSES, check_error
from oracle import samples as s
from translation import MODEL

from dragoman import UPSTREAMS, RequestTranslator, Signer, translate_error
from dragoman.protocols.openai_chat.capabilities import ChatCapabilities

pytestmark = pytest.mark.each_protocol

Json = dict[str, Any]
OTHERS = (MESSAGES, RESPONSES)

streamed = pytest.mark.parametrize("streams", [True, False], ids=["stream", "whole"])

FIRST: tuple[Block, ...] = (Reasoning("One.", "c2lnMQ=="), Text("Let me see."), Call("call_a"))
SECOND: tuple[Block, ...] = (Reasoning("Two.", "c2lnMg=="), Call("call_b"), Call("call_c", "now", ("{}",)))


def turns_of(body: Json) -> list[list[Json]]:
    """The content of each of the assistant's turns in a Messages request."""
    return [message["content"] for message in body["messages"] if message["role"] == "assistant"]


def thinking(text: str, signature: str) -> Json:
    return {"type": "thinking", "thinking": text, "signature": signature}


@each("client", (CHAT, RESPONSES))
@streamed
def test_C1_signed_thinking_comes_back_in_place_in_each_round(client: str, streams: bool) -> None:
    """ "Expected `thinking` or `redacted_thinking`, but found `tool_use`"."""
    sent = after_rounds(MESSAGES, client, FIRST, SECOND, streams=streams).body
    assert refused(MESSAGES, sent) == []
    first, second = turns_of(sent)
    assert [block["type"] for block in first] == ["thinking", "text", "tool_use"]
    assert [block["type"] for block in second] == ["thinking", "tool_use", "tool_use"]
    assert first[0] == thinking("One.", "c2lnMQ==")
    assert second[0] == thinking("Two.", "c2lnMg==")


@each("client", (CHAT, RESPONSES))
def test_C1_redacted_thinking_comes_back_in_each_round(client: str) -> None:
    redacted = {"type": "redacted_thinking", "data": "cmVkYWN0ZWQ="}
    data = stream(MESSAGES, Reasoning("Hm.", "c2ln"), Call("call_a"))
    (opened,) = [frame for frame in data.split(b"\n\n") if b'"thinking", "thinking"' in frame]
    start = f"event: content_block_start\ndata: {json.dumps(s.start(0, **redacted))}".encode()
    frames = [
        start if frame == opened else frame
        for frame in data.split(b"\n\n")
        if b"thinking_delta" not in frame and b"signature_delta" not in frame
    ]
    received = receive(MESSAGES, client, b"\n\n".join(frames))
    sent = translate_request(client, MESSAGES, conversation(client, received.turn)).body
    (turn,) = turns_of(sent)
    assert turn[0] == redacted
    assert [block["type"] for block in turn] == ["redacted_thinking", "tool_use"]


def test_C1_a_relay_leaves_signed_thinking_unchanged() -> None:
    """Between equal protocols not a byte of question or response changes."""
    data = stream(MESSAGES, *FIRST)
    received = receive(MESSAGES, MESSAGES, data)
    assert received.data == data
    body = conversation(MESSAGES, received.turn)
    assert translate_request(MESSAGES, MESSAGES, body).body == body
    assert thinking("One.", "c2lnMQ==") in all_blocks(body)


@each("upstream", OTHERS)
def test_C1_reasoning_that_a_chat_client_dropped_is_restored(upstream: str) -> None:
    """Most Chat clients drop these fields; the gateway can cache them."""
    received = receive(upstream, CHAT, stream(upstream, *FIRST))
    cached = received.machine.cached_reasoning()  # type: ignore[union-attr]
    assert cached is not None
    calls, reasoning_parts = cached
    assert calls == ("call_a",)
    known = {key: value for key, value in received.turn.items() if not key.startswith("reasoning")}
    body = conversation(CHAT, known)
    translator = RequestTranslator(client=spec_of(CHAT), upstream=UPSTREAMS[upstream])
    data = json.dumps(body).encode()
    sent = json.loads(translator.translate(data, reasoning_lookup={calls: reasoning_parts}.get).body)
    assert refused(upstream, sent) == []
    if upstream == MESSAGES:
        assert turns_of(sent)[0][0] == thinking("One.", "c2lnMQ==")
    else:
        assert outline(RESPONSES, sent)[1] == "reasoning"
        assert sent["input"][1]["encrypted_content"] == "c2lnMQ=="


@each("client", (CHAT, RESPONSES))
@streamed
def test_C2_a_signature_without_text_is_kept(client: str, streams: bool) -> None:
    """The text is omitted on request (`display: omitted`); the signature counts."""
    sent = after_rounds(MESSAGES, client, (Reasoning("", "c2lnMQ=="), Call("call_a")), streams=streams).body
    assert refused(MESSAGES, sent) == []
    ((first, _),) = turns_of(sent)
    assert first == thinking("", "c2lnMQ==")


@streamed
def test_C2_a_messages_client_gets_the_empty_block(streams: bool) -> None:
    """Translated again, not relayed; and a relay changes nothing anyway."""
    blocks = (Reasoning("", "c2lnMQ=="), Call("call_a"))
    turn = turn_of_client(MESSAGES, MESSAGES, *blocks, streams=streams)
    assert turn[0] == thinking("", "c2lnMQ==")
    body = conversation(MESSAGES, turn)
    assert translate_request(MESSAGES, MESSAGES, body).body == body


@each("client", (CHAT, MESSAGES))
@streamed
@pytest.mark.parametrize("text", ["Hm.", ""], ids=["summary", "no-summary"])
def test_C3_encrypted_reasoning_comes_back(client: str, streams: bool, text: str) -> None:
    """Through the client's own opaque field: `signature` or `data` there, `encrypted_content` here."""
    turn = turn_of_client(RESPONSES, client, Reasoning(text, "Z0FBQUE="), Call("call_a"), streams=streams)
    if client == MESSAGES:
        wrapped_markers = [
            block.get("signature") or block.get("data") for block in turn if block["type"] != "tool_use"
        ]
        assert len(wrapped_markers) == 1
        assert wrapped_markers[0]
    sent = translate_request(client, RESPONSES, conversation(client, turn)).body
    assert refused(RESPONSES, sent) == []
    assert outline(RESPONSES, sent)[1:3] == ["reasoning", "function_call"]
    item = sent["input"][1]
    assert item["encrypted_content"] == "Z0FBQUE="
    assert [part["text"] for part in item["summary"]] == ([text] if text else [])


WISHES: dict[str, Json] = {CHAT: {"reasoning_effort": "high"}, MESSAGES: {"thinking": {"type": "adaptive"}}}


@each("client", (CHAT, MESSAGES))
def test_C3_encrypted_reasoning_is_requested(client: str) -> None:
    """A server that stores nothing gives it only on request."""
    sent = translate_request(client, RESPONSES, request(client, User("Hi"), **WISHES[client])).body
    assert sent["store"] is False
    assert sent["include"] == ["reasoning.encrypted_content"]


@each("client", (CHAT, MESSAGES))
@streamed
def test_C3_encrypted_reasoning_keeps_its_place_in_each_round(client: str, streams: bool) -> None:
    sent = after_rounds(RESPONSES, client, FIRST, SECOND, streams=streams).body
    assert refused(RESPONSES, sent) == []
    items = [item for item in sent["input"] if item.get("type") in ("reasoning", "function_call")]
    assert [item.get("encrypted_content") or item.get("call_id") for item in items] == [
        "c2lnMQ==",
        "call_a",
        "c2lnMg==",
        "call_b",
        "call_c",
    ]


@each("client", OTHERS)
@streamed
def test_C4_reasoning_content_is_sent_back(client: str, streams: bool) -> None:
    """ "The `reasoning_content` in the thinking mode must be passed back to the API"."""
    sent = after_rounds(CHAT, client, FIRST, SECOND, streams=streams).body
    assert refused(CHAT, sent) == []
    turns = [message for message in sent["messages"] if message["role"] == "assistant"]
    assert [message["reasoning_content"] for message in turns] == ["One.", "Two."]
    assert [[call["id"] for call in message["tool_calls"]] for message in turns] == [
        ["call_a"],
        ["call_b", "call_c"],
    ]


@each("client", OTHERS)
def test_C4_thinking_that_another_vendor_signed_is_sent_as_text(client: str) -> None:
    """The signature is a loss there; the upstream gets the text."""
    body = request(client, User("Hi"), model(Reasoning("Hm.", "c2ln"), Call("call_a")), Result("call_a"))
    requested = translate_request(client, CHAT, body)
    (turns,) = [message for message in requested.body["messages"] if message["role"] == "assistant"]
    assert turns["reasoning_content"] == "Hm."
    assert "c2ln" not in json.dumps(requested.body)
    assert "foreign_signature" in requested.losses.values()


@each("client", OTHERS)
def test_C4_reasoning_is_sent_in_the_upstreams_field_or_dropped(client: str) -> None:
    body = request(client, User("Hi"), model(Reasoning("Hm.", "c2ln"), Call("call_a")), Result("call_a"))
    named = translate_request(
        client, CHAT, body, capabilities=ChatCapabilities(reasoning_field="reasoning")
    ).body["messages"][1]
    assert named["reasoning"] == "Hm."
    assert "reasoning_content" not in named
    none = translate_request(client, CHAT, body, capabilities=ChatCapabilities(reasoning_field=None))
    assert "Hm." not in json.dumps(none.body)
    assert none.losses


def test_C4_a_chat_client_sends_reasoning_content_back() -> None:
    body = conversation(CHAT, receive(CHAT, CHAT, stream(CHAT, *FIRST)).turn)
    assert body["messages"][1]["reasoning_content"] == "One."
    assert translate_request(CHAT, CHAT, body).body == body


UNREADABLE = "The encrypted content gAAA...Zw== could not be verified. Reason: it could not be decrypted."


def unreadable(code: str | None) -> bytes:
    """The error of an upstream for reasoning that another account encrypted, or that is invalid."""
    error = {"message": UNREADABLE, "type": "invalid_request_error", "param": None, "code": code}
    return json.dumps({"error": error}).encode()


@each("client")
@pytest.mark.parametrize("code", ["invalid_encrypted_content", None])
def test_C11_C12_what_another_account_encrypted_is_a_bad_request(client: str, code: str | None) -> None:
    """By its code or its message. The client receives the upstream's own, so that it can drop the turn."""
    specs = {"upstream": UPSTREAMS[RESPONSES], "client": spec_of(client)}
    status, body, error = translate_error(400, unreadable(code), **specs)  # type: ignore[arg-type]
    assert (status, error.status, error.code) == (400, 400, code)
    assert check_error(client, status, body) == []
    reported = json.loads(body)["error"]
    assert reported["message"] == UNREADABLE
    if client == CHAT:
        assert reported["code"] == code
    elif client == MESSAGES:
        assert reported["type"] == "invalid_request_error"


@pairs(upstreams=OTHERS)
@streamed
def test_C13_no_signature_is_sent_to_another_vendor(client: str, upstream: str, streams: bool) -> None:
    """A conversation that changes vendors: one server's signature is never shown to another one."""
    makers = [maker for maker in (CHAT, MESSAGES, RESPONSES) if maker != upstream]
    for maker in makers:
        requested = after_rounds(maker, client, FIRST, SECOND, streams=streams, back_to=upstream)
        assert refused(upstream, requested.body) == []
        text = json.dumps(requested.body)
        assert "c2lnMQ" not in text
        assert "drg1." not in text, "nor is our own wrapping"
        kinds = [block["type"] for block in all_blocks(requested.body)] if upstream == MESSAGES else []
        assert "thinking" not in kinds
        if client != maker:
            assert "foreign_signature" in requested.losses.values()


@pairs(clients=OTHERS)
def test_C13_nor_in_a_relay(client: str, upstream: str) -> None:
    """A turn came from elsewhere through this client; now its own kind of server gets the conversation."""
    requested = after_rounds(upstream, client, FIRST, streams=True, back_to=client)
    assert "drg1." not in json.dumps(requested.body), "the server refuses a signature that it did not make"
    assert refused(client, requested.body) == []
    assert [call[:2] for call in calls_of(client, requested.body)] == [("call_a", "add")]


@each("client", (CHAT, RESPONSES))
@streamed
def test_C13_a_signature_of_another_model_is_dropped(client: str, streams: bool) -> None:
    cached = after_rounds(MESSAGES, client, FIRST, streams=streams)
    assert [block["type"] for block in turns_of(cached.body)[0]] == ["thinking", "text", "tool_use"]
    requested = after_rounds(MESSAGES, client, FIRST, streams=streams, model="another-model")
    assert [block["type"] for block in turns_of(requested.body)[0]] == ["text", "tool_use"]
    assert refused(MESSAGES, requested.body) == []
    assert "foreign_signature" in [loss.code.value for loss in requested.translated.losses]


@each("client", (CHAT, RESPONSES))
def test_C13_a_signature_that_the_client_made_is_dropped(client: str) -> None:
    """With a secret, only what this gateway has wrapped is unwrapped."""
    turn = turn_of_client(MESSAGES, client, *FIRST, streams=True)  # wrapped without a secret
    data = json.dumps(conversation(client, turn)).encode()
    translated = RequestTranslator(
        client=spec_of(client), upstream=UPSTREAMS[MESSAGES], signer=Signer(b"secret")
    ).translate(data, model=MODEL)
    assert [block["type"] for block in turns_of(json.loads(translated.body))[0]] == ["text", "tool_use"]


SIGNED = {"google": {"thought_signature": "RXVhYw=="}}


def gemini(*, whole: bool) -> bytes:
    """Two calls, the first of which is signed, as Google's compatible server sends them."""
    first = s.call(0, "call_a", "add", '{"a":1}')
    first["tool_calls"][0]["extra_content"] = SIGNED
    second = s.call(1, "call_b", "now", "{}")
    if not whole:
        return s.render(CHAT, [s.chunk(first), s.chunk(second), s.chunk({}, "tool_calls"), "[DONE]"])
    calls = [first["tool_calls"][0], second["tool_calls"][0]]
    message = {"role": "assistant", "content": None, "tool_calls": calls}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls", "logprobs": None}
    return json.dumps({**s.chunk(), "object": "chat.completion", "choices": [choice]}).encode()


@each("client", OTHERS)
@streamed
def test_C14_a_calls_signature_comes_back_with_the_call(client: str, streams: bool) -> None:
    """ "Function call is missing a thought_signature": it is neither shown nor lost, and sent to no other vendor."""
    if streams:
        received = receive(CHAT, client, gemini(whole=False))
        assert [call.id for call in received.meaning.calls] == ["call_a", "call_b"]
        turn = received.turn
    else:
        turn = WHOLE[client](receive_whole(CHAT, client, gemini(whole=True)))
    sent = translate_request(client, CHAT, conversation(client, turn)).body
    assert refused(CHAT, sent) == []
    calls = sent["messages"][1]["tool_calls"]
    assert [(call["id"], call.get("extra_content")) for call in calls] == [
        ("call_a", SIGNED),
        ("call_b", None),
    ]
    other = MESSAGES if client == RESPONSES else RESPONSES
    sent = translate_request(client, other, conversation(client, turn)).body
    assert "RXVhYw" not in json.dumps(sent)
    assert refused(other, sent) == []


def test_C14_a_chat_client_gets_the_signature_unchanged() -> None:
    assert receive(CHAT, CHAT, gemini(whole=False)).data == gemini(whole=False)
