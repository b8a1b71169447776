"""C. Reasoning that has to come back: signed, encrypted, or in the field in which its server wants it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from crossing import MODEL
from failures.answers import Block, Call, Say, Think, stream
from failures.cross import ask, each, hear, hear_whole, pairs
from failures.rules import refused
from failures.turns import Result, User, all_blocks, calls_of, model, outline, request
from failures.whole import after_rounds, conversation, turn_of_client
from laws.clients import spec_of
from laws.turns import WHOLE
from oracle import CHAT, MESSAGES, RESPONSES, check_error
from oracle import samples as s

from dragoman import UPSTREAMS, Capabilities, RequestTranslator, Signer, translate_error

pytestmark = pytest.mark.each_choice

Json = dict[str, Any]
OTHERS = (MESSAGES, RESPONSES)

streamed = pytest.mark.parametrize("streams", [True, False], ids=["stream", "whole"])

FIRST: tuple[Block, ...] = (Think("One.", "c2lnMQ=="), Say("Let me see."), Call("call_a"))
SECOND: tuple[Block, ...] = (Think("Two.", "c2lnMg=="), Call("call_b"), Call("call_c", "now", ("{}",)))


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
def test_C1_redacted_thinking_does_too(client: str) -> None:
    redacted = {"type": "redacted_thinking", "data": "cmVkYWN0ZWQ="}
    data = stream(MESSAGES, Think("Hm.", "c2ln"), Call("call_a"))
    (opened,) = [frame for frame in data.split(b"\n\n") if b'"thinking", "thinking"' in frame]
    start = f"event: content_block_start\ndata: {json.dumps(s.start(0, **redacted))}".encode()
    frames = [
        start if frame == opened else frame
        for frame in data.split(b"\n\n")
        if b"thinking_delta" not in frame and b"signature_delta" not in frame
    ]
    heard = hear(MESSAGES, client, b"\n\n".join(frames))
    sent = ask(client, MESSAGES, conversation(client, heard.turn)).body
    (turn,) = turns_of(sent)
    assert turn[0] == redacted
    assert [block["type"] for block in turn] == ["redacted_thinking", "tool_use"]


def test_C1_a_relay_leaves_signed_thinking_as_it_is() -> None:
    """Between equal protocols not a byte of question or answer changes."""
    data = stream(MESSAGES, *FIRST)
    heard = hear(MESSAGES, MESSAGES, data)
    assert heard.data == data
    body = conversation(MESSAGES, heard.turn)
    assert ask(MESSAGES, MESSAGES, body).body == body
    assert thinking("One.", "c2lnMQ==") in all_blocks(body)


@each("upstream", OTHERS)
def test_C1_a_chat_client_that_drops_reasoning_gets_it_put_back(upstream: str) -> None:
    """Most Chat clients do not know the fields; whoever embeds the core may keep what they drop."""
    heard = hear(upstream, CHAT, stream(upstream, *FIRST))
    kept = heard.machine.cached_reasoning()  # type: ignore[union-attr]
    assert kept is not None
    calls, thoughts = kept
    assert calls == ("call_a",)
    known = {key: value for key, value in heard.turn.items() if not key.startswith("reasoning")}
    body = conversation(CHAT, known)
    translator = RequestTranslator(client=spec_of(CHAT), upstream=UPSTREAMS[upstream])
    data = json.dumps(body).encode()
    sent = json.loads(translator.translate(data, reasoning_lookup={calls: thoughts}.get).body)
    assert refused(upstream, sent) == []
    if upstream == MESSAGES:
        assert turns_of(sent)[0][0] == thinking("One.", "c2lnMQ==")
    else:
        assert outline(RESPONSES, sent)[1] == "reasoning"
        assert sent["input"][1]["encrypted_content"] == "c2lnMQ=="


@each("client", (CHAT, RESPONSES))
@streamed
def test_C2_a_signature_without_text_is_kept(client: str, streams: bool) -> None:
    """The text is left out on demand (`display: omitted`); the signature is what counts."""
    sent = after_rounds(MESSAGES, client, (Think("", "c2lnMQ=="), Call("call_a")), streams=streams).body
    assert refused(MESSAGES, sent) == []
    ((first, _),) = turns_of(sent)
    assert first == thinking("", "c2lnMQ==")


@streamed
def test_C2_a_messages_client_hears_the_empty_block(streams: bool) -> None:
    """Translated anew, not relayed; and a relay changes nothing anyway."""
    blocks = (Think("", "c2lnMQ=="), Call("call_a"))
    turn = turn_of_client(MESSAGES, MESSAGES, *blocks, streams=streams)
    assert turn[0] == thinking("", "c2lnMQ==")
    body = conversation(MESSAGES, turn)
    assert ask(MESSAGES, MESSAGES, body).body == body


@each("client", (CHAT, MESSAGES))
@streamed
@pytest.mark.parametrize("text", ["Hm.", ""], ids=["summary", "no-summary"])
def test_C3_encrypted_reasoning_comes_back(client: str, streams: bool, text: str) -> None:
    """Through the client's own opaque field: `signature` or `data` there, `encrypted_content` here."""
    turn = turn_of_client(RESPONSES, client, Think(text, "Z0FBQUE="), Call("call_a"), streams=streams)
    if client == MESSAGES:
        wrapped_markers = [
            block.get("signature") or block.get("data") for block in turn if block["type"] != "tool_use"
        ]
        assert len(wrapped_markers) == 1
        assert wrapped_markers[0]
    sent = ask(client, RESPONSES, conversation(client, turn)).body
    assert refused(RESPONSES, sent) == []
    assert outline(RESPONSES, sent)[1:3] == ["reasoning", "function_call"]
    item = sent["input"][1]
    assert item["encrypted_content"] == "Z0FBQUE="
    assert [part["text"] for part in item["summary"]] == ([text] if text else [])


WISHES: dict[str, Json] = {
    CHAT: {"reasoning_effort": "high"},
    MESSAGES: {"thinking": {"type": "adaptive"}},
}


@each("client", (CHAT, MESSAGES))
def test_C3_it_is_asked_for(client: str) -> None:
    """A server that stores nothing gives it on demand alone."""
    sent = ask(client, RESPONSES, request(client, User("Hi"), **WISHES[client])).body
    assert sent["store"] is False
    assert sent["include"] == ["reasoning.encrypted_content"]


@each("client", (CHAT, MESSAGES))
@streamed
def test_C3_in_each_round_at_its_place(client: str, streams: bool) -> None:
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
def test_C4_reasoning_content_is_passed_back(client: str, streams: bool) -> None:
    """ "The `reasoning_content` in the thinking mode must be passed back to the API"."""
    sent = after_rounds(CHAT, client, FIRST, SECOND, streams=streams).body
    assert refused(CHAT, sent) == []
    said = [message for message in sent["messages"] if message["role"] == "assistant"]
    assert [message["reasoning_content"] for message in said] == ["One.", "Two."]
    assert [[call["id"] for call in message["tool_calls"]] for message in said] == [
        ["call_a"],
        ["call_b", "call_c"],
    ]


@each("client", OTHERS)
def test_C4_thinking_that_another_vendor_signed_goes_as_text(client: str) -> None:
    """The signature means nothing there and is told as lost; the words are what the server wants."""
    body = request(client, User("Hi"), model(Think("Hm.", "c2ln"), Call("call_a")), Result("call_a"))
    asked = ask(client, CHAT, body)
    (said,) = [message for message in asked.body["messages"] if message["role"] == "assistant"]
    assert said["reasoning_content"] == "Hm."
    assert "c2ln" not in json.dumps(asked.body)
    assert "foreign_signature" in asked.losses.values()


@each("client", OTHERS)
def test_C4_or_in_the_field_that_the_server_reads_or_not_at_all(client: str) -> None:
    body = request(client, User("Hi"), model(Think("Hm.", "c2ln"), Call("call_a")), Result("call_a"))
    named = ask(client, CHAT, body, capabilities=Capabilities(reasoning_field="reasoning")).body["messages"][
        1
    ]
    assert named["reasoning"] == "Hm."
    assert "reasoning_content" not in named
    none = ask(client, CHAT, body, capabilities=Capabilities(reasoning_field=None))
    assert "Hm." not in json.dumps(none.body)
    assert none.losses


def test_C4_a_chat_client_passes_its_own_back() -> None:
    body = conversation(CHAT, hear(CHAT, CHAT, stream(CHAT, *FIRST)).turn)
    assert body["messages"][1]["reasoning_content"] == "One."
    assert ask(CHAT, CHAT, body).body == body


UNREADABLE = "The encrypted content gAAA...Zw== could not be verified. Reason: it could not be decrypted."


def unreadable(code: str | None) -> bytes:
    """What a server says of reasoning that another account, or nobody, has encrypted."""
    error = {"message": UNREADABLE, "type": "invalid_request_error", "param": None, "code": code}
    return json.dumps({"error": error}).encode()


def check_told_as_bad_request(client: str, code: str | None) -> None:
    specs = {"upstream": UPSTREAMS[RESPONSES], "client": spec_of(client)}
    status, body, error = translate_error(400, unreadable(code), **specs)  # type: ignore[arg-type]
    assert status == 400
    assert check_error(client, status, body) == []
    assert json.loads(body)["error"]["message"] == UNREADABLE
    assert (error.status, error.code) == (400, code)
    if client == CHAT:
        assert json.loads(body)["error"]["code"] == code
    elif client == MESSAGES:
        assert json.loads(body)["error"]["type"] == "invalid_request_error"


@each("client")
def test_C11_what_another_account_encrypted_is_a_bad_request(client: str) -> None:
    """The client hears the server's own class and words, not that of a broken gateway: it can drop the turn."""
    check_told_as_bad_request(client, "invalid_encrypted_content")


@each("client")
def test_C12_also_where_only_the_words_say_so(client: str) -> None:
    check_told_as_bad_request(client, None)


@pairs(upstreams=OTHERS)
@streamed
def test_C13_no_seal_goes_to_another_maker(client: str, upstream: str, streams: bool) -> None:
    """A conversation that changes vendors: one server's signature is never shown to another one."""
    makers = [maker for maker in (CHAT, MESSAGES, RESPONSES) if maker != upstream]
    for maker in makers:
        asked = after_rounds(maker, client, FIRST, SECOND, streams=streams, back_to=upstream)
        assert refused(upstream, asked.body) == []
        text = json.dumps(asked.body)
        assert "c2lnMQ" not in text
        assert "drg1." not in text, "nor is our own wrapping"
        kinds = [block["type"] for block in all_blocks(asked.body)] if upstream == MESSAGES else []
        assert "thinking" not in kinds
        if client != maker:
            assert "foreign_signature" in asked.losses.values()


@pairs(clients=OTHERS)
def test_C13_not_even_where_the_client_speaks_the_servers_protocol(client: str, upstream: str) -> None:
    """A turn came from elsewhere through this client; now its own kind of server gets the conversation."""
    asked = after_rounds(upstream, client, FIRST, streams=True, back_to=client)
    assert "drg1." not in json.dumps(asked.body), "the server refuses a signature that it did not make"
    assert refused(client, asked.body) == []
    assert [call[:2] for call in calls_of(client, asked.body)] == [("call_a", "add")]


@each("client", (CHAT, RESPONSES))
@streamed
def test_C13_a_signature_of_another_model_is_left_out(client: str, streams: bool) -> None:
    kept = after_rounds(MESSAGES, client, FIRST, streams=streams)
    assert [block["type"] for block in turns_of(kept.body)[0]] == ["thinking", "text", "tool_use"]
    asked = after_rounds(MESSAGES, client, FIRST, streams=streams, model="another-model")
    assert [block["type"] for block in turns_of(asked.body)[0]] == ["text", "tool_use"]
    assert refused(MESSAGES, asked.body) == []
    assert "foreign_signature" in [loss.code.value for loss in asked.translated.losses]


@each("client", (CHAT, RESPONSES))
def test_C13_a_seal_that_the_client_made_is_left_out(client: str) -> None:
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
def test_C14_a_calls_signature_comes_back_with_the_call(client: str) -> None:
    """ "Function call is missing a thought_signature": it is neither shown nor lost."""
    heard = hear(CHAT, client, gemini(whole=False))
    assert [call.id for call in heard.meaning.calls] == ["call_a", "call_b"]
    sent = ask(client, CHAT, conversation(client, heard.turn)).body
    assert refused(CHAT, sent) == []
    first, second = sent["messages"][1]["tool_calls"]
    assert (first["id"], first["extra_content"]) == ("call_a", SIGNED)
    assert (second["id"], second.get("extra_content")) == ("call_b", None)


@each("client", OTHERS)
def test_C14_and_to_no_other_server(client: str) -> None:
    heard = hear(CHAT, client, gemini(whole=False))
    for upstream in OTHERS:
        if upstream != client:
            sent = ask(client, upstream, conversation(client, heard.turn)).body
            assert "RXVhYw" not in json.dumps(sent)
            assert refused(upstream, sent) == []


@each("client", OTHERS)
def test_C14_of_a_whole_answer_too(client: str) -> None:
    turn = WHOLE[client](hear_whole(CHAT, client, gemini(whole=True)))
    sent = ask(client, CHAT, conversation(client, turn)).body
    assert [call.get("extra_content") for call in sent["messages"][1]["tool_calls"]] == [SIGNED, None]


def test_C14_a_chat_client_gets_it_as_it_is() -> None:
    assert hear(CHAT, CHAT, gemini(whole=False)).data == gemini(whole=False)
