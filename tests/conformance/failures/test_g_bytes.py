"""G. Bytes and framing: ends of lines, split characters, and bytes that must not change."""

from __future__ import annotations

import json
from typing import Any

import pytest
from failures.responses import Call, Reasoning, Text, stream
from failures.translate import each, every_pair, pairs, receive, receive_whole, translate_request
from failures.turns import Result, Turn, User, all_blocks, calls_of, model, request
from laws.clients import spec_of
from oracle import CHAT, MESSAGES, PROTOCOL_NAMES, RESPONSES, SIMPLE, meaning_of_whole
from oracle import samples as s
from oracle.meaning import Kind
from translation import MODEL

from dragoman import UPSTREAMS, RequestTranslator, ResponseTranslator
from dragoman.codec import ResponseContext

pytestmark = pytest.mark.each_protocol

Json = dict[str, Any]

# Characters of one to four bytes, one that is a cluster of several, one that is cut by every step.
TEXT = "naïve \u2013 日本語 👩‍👩‍👧 e\u0301 \U0010ffff"
ARGUMENTS = json.dumps({"a": TEXT, "ключ": ["ß"]}, ensure_ascii=False)


def gist_of(client: str, *blocks: tuple[str, str]) -> list[tuple[str, str]]:
    """Return the blocks that the client's protocol can express."""
    return [block for block in blocks if client not in SIMPLE or block[0] == "text"]


@every_pair()
def test_G1_a_character_cut_by_the_network_stays_whole(client: str, upstream: str) -> None:
    """In text, in reasoning, in the arguments of calls: `receive` cuts the stream everywhere."""
    call = Call("call_a", "add", (ARGUMENTS[:9], ARGUMENTS[9:]))
    received = receive(upstream, client, stream(upstream, Reasoning(TEXT), Text(TEXT), call), translates=True)
    reported = gist_of(client, ("reasoning", TEXT), ("text", TEXT), ("call", f"add({ARGUMENTS})"))
    assert received.gist == reported
    assert "\ufffd" not in received.data.decode()


@each("client")
def test_G1_a_relay_keeps_split_characters_whole(client: str) -> None:
    data = stream(client, Reasoning(TEXT), Text(TEXT), Call("call_a", "add", (ARGUMENTS,)))
    assert receive(client, client, data).data == data


def whole_response(upstream: str) -> Json:
    """Return a whole response with the same text everywhere."""
    arguments = {"name": "add", "arguments": ARGUMENTS}
    if upstream == CHAT:
        response: Json = json.loads(json.dumps(s.WHOLE[CHAT]))
        message = response["choices"][0]["message"]
        message |= {"content": TEXT, "tool_calls": [{"id": "c", "type": "function", "function": arguments}]}
        return response
    if upstream == MESSAGES:
        call = {"type": "tool_use", "id": "c", "name": "add", "input": json.loads(ARGUMENTS), "caller": None}
        return {**s.WHOLE[MESSAGES], "content": [{**s.TEXT_BLOCK, "text": TEXT}, call]}
    part = {"type": "output_text", "text": TEXT, "annotations": [], "logprobs": []}
    with_text = {"id": "m", "type": "message", "role": "assistant", "status": "completed", "content": [part]}
    return {**s.WHOLE[RESPONSES], "output": [with_text, {**s.CALL_ITEM, **arguments, "status": "completed"}]}


@every_pair(PROTOCOL_NAMES)
def test_G1_a_whole_response_keeps_split_characters_whole(client: str, upstream: str) -> None:
    body = json.dumps(whole_response(upstream), ensure_ascii=False).encode()
    machine = ResponseTranslator(
        client=spec_of(client),
        upstream=UPSTREAMS[upstream],
        context=context_of(client, upstream),
        upstream_streams=False,
        client_streams=False,
    )
    for at in range(len(body)):
        machine.receive_data(body[at : at + 1])
    machine.receive_eof()
    reported = meaning_of_whole(client, machine.data_to_send())
    assert reported.text(Kind.TEXT) == TEXT
    assert [json.loads(call.text) for call in reported.calls] == [json.loads(ARGUMENTS)]


def context_of(client: str, upstream: str) -> ResponseContext:
    return translate_request(client, upstream, request(client, User("Hi"))).response_context()


# Ends of lines for `str.splitlines`, but not for a stream of events. Those below a blank are
# escaped in JSON, the other three are not.
BREAKS = "\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"
BROKEN = "".join(f"{number}{mark}" for number, mark in enumerate(BREAKS)) + "end"


def test_the_marks_are_those_of_splitlines() -> None:
    assert len(BROKEN.splitlines()) == len(BREAKS) + 1


@every_pair()
def test_G7_only_cr_and_lf_end_a_line(client: str, upstream: str) -> None:
    """The other line ends of Unicode are characters like any other."""
    arguments = json.dumps({"a": BROKEN}, ensure_ascii=False)
    call = Call("call_a", "add", (arguments,))
    data = stream(upstream, Reasoning(BROKEN), Text(BROKEN), call)
    assert all(mark.encode() in data for mark in "\x85\u2028\u2029")
    received = receive(upstream, client, data, translates=True)
    assert received.gist == gist_of(
        client, ("reasoning", BROKEN), ("text", BROKEN), ("call", f"add({arguments})")
    )


@every_pair()
@pytest.mark.parametrize("mark", BREAKS, ids=lambda mark: f"U+{ord(mark):04X}")
def test_G7_other_line_separators_do_not_end_a_comment(client: str, upstream: str, mark: str) -> None:
    """Texts that would be an error, an end or a delta if the comment were two lines."""
    data = stream(upstream, Text("Hello"))
    late = f': hm{mark}event: error{mark}data: {{"type":"error","error":{{"message":"no"}}}}{mark}{mark}\n'
    done = f": hm{mark}data: [DONE]{mark}{mark}\n"
    received = receive(
        upstream, client, data.replace(b"\n\n", b"\n\n" + late.encode() + done.encode()), translates=True
    )
    assert received.data == receive(upstream, client, data, translates=True).data


@every_pair()
@pytest.mark.parametrize("end", ["\r", "\r\n"], ids=["CR", "CRLF"])
def test_G7_cr_and_crlf_end_a_line(client: str, upstream: str, end: str) -> None:
    data = stream(upstream, Reasoning("Hm."), Text("Hello"))
    received = receive(upstream, client, data.replace(b"\n", end.encode()), translates=True)
    assert received.data == receive(upstream, client, data, translates=True).data


# Keys in no order, numbers that a double cannot hold, that are whole or no number of their own, letters that could
# be escaped. As text, for it is the text that a prompt cache compares.
SCHEMA = (
    '{"type":"object","properties":{"z":{"type":"integer","maximum":12345678901234567890123},'
    '"é":{"const":"ü/\u2028"},"a":{"default":1.0,"minimum":-0.0,"maximum":9007199254740993}},"required":["z","a"],'
    '"additionalProperties":false}'
)
ODD_ARGUMENTS = '{"z": 1.10,  "a":12345678901234567890123, "\\u00e9":"\\/\\u2028", "b":1E2,"list":[ ]}'


def ordered(text: str) -> str:
    """The value with the order of its keys and the kinds of its numbers: 1 is not 1.0."""
    return repr(json.loads(text, object_pairs_hook=list))


def odd_request(client: str) -> bytes:
    """A request with SCHEMA and ODD_ARGUMENTS in it, in its own spelling."""
    body = request(client, User("h\u00e9"), model(Call("call_a", "add", ("{}",))), Result("call_a"))
    text = json.dumps(body, ensure_ascii=False, separators=(" ,", ":  "))
    schema = next(
        found for found in (body["tools"][0].get("function") or body["tools"][0]).values() if "type" in found
    )
    text = text.replace(json.dumps(schema, separators=(" ,", ":  ")), SCHEMA)
    arguments = ODD_ARGUMENTS if client == MESSAGES else json.dumps(ODD_ARGUMENTS)
    return text.replace("{}" if client == MESSAGES else '"{}"', arguments).encode()


def translated(client: str, upstream: str, data: bytes) -> bytes:
    """By its own translator: nothing is left of an earlier request."""
    return RequestTranslator(client=spec_of(client), upstream=UPSTREAMS[upstream]).translate(data).body


@pairs()
def test_G8_keys_characters_and_numbers_are_unchanged(client: str, upstream: str) -> None:
    sent = translated(client, upstream, odd_request(client)).decode()
    assert sent == translated(client, upstream, odd_request(client)).decode(), (
        "the same request, the same bytes"
    )
    assert '"content":"hé"' in sent or '"text":"hé"' in sent, "letters are not escaped"
    tool = json.loads(sent, object_pairs_hook=list)
    assert ordered(SCHEMA) in repr(tool)
    ((_, _, arguments),) = calls_of(upstream, json.loads(sent))
    if client == MESSAGES:  # has no text of them, only their values
        assert ordered(arguments) == ordered(ODD_ARGUMENTS)
    elif upstream == MESSAGES:
        assert f'"input":{ODD_ARGUMENTS}' in sent
    else:
        assert arguments == ODD_ARGUMENTS


@every_pair(PROTOCOL_NAMES)
def test_G8_each_turn_begins_with_the_bytes_of_the_last(client: str, upstream: str) -> None:
    """A prompt cache is valid as long as nothing changes before the new messages."""
    turns: list[Turn] = [
        User("Hi"),
        model(Text("Let me see."), Call("functions.add:0")),
        Result("functions.add:0"),
    ]
    more: list[Turn] = [model(Text("There.")), User("And?")]
    field = "input" if upstream == RESPONSES else "messages"
    before, after = (
        translate_request(client, upstream, request(client, *each_)).body for each_ in (turns, turns + more)
    )
    assert after[field][: len(before[field])] == before[field]
    assert {**after, field: None} == {**before, field: None}


@pytest.mark.promise("R12")
@each("client")
def test_G8_a_relay_changes_nothing_but_the_model(client: str) -> None:
    """Any spelling, and also unknown fields."""
    data = odd_request(client).replace(b'"model":  "m"', b'"new":{ "b":1.00,"a":[]} ,"model":  "m"')
    sent = (
        RequestTranslator(client=spec_of(client), upstream=UPSTREAMS[client])
        .translate(data, model="other")
        .body
    )
    assert b'"new":{ "b":1.00' in sent
    assert sent == data.replace(b'"model":  "m"', b'"model":  "other"')


@pairs()
def test_G8_arguments_of_a_whole_response_keep_their_text(client: str, upstream: str) -> None:
    data = stream(upstream, Call("call_a", "add", (ODD_ARGUMENTS,)))
    whole = receive_whole(upstream, client, data, streams=True)
    if client == MESSAGES:
        found = json.dumps(whole["content"][0]["input"])
    elif client == CHAT:
        found = whole["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"]
    else:
        found = whole["output"][0]["arguments"]
    assert ordered(found) == ordered(ODD_ARGUMENTS)
    if client != MESSAGES:
        assert found == ODD_ARGUMENTS


@each("client", (CHAT, RESPONSES))
def test_G8_a_signed_block_comes_back_unchanged(client: str) -> None:
    """Through a client that cannot read it, with unknown members."""
    block = {"type": "thinking", "z": 1.0, "thinking": TEXT, "signature": "c2ln", "a": [10**22]}
    response = {**s.WHOLE[MESSAGES], "content": [block, s.WHOLE[MESSAGES]["content"][2]]}
    whole = receive_whole(MESSAGES, client, response)
    turn = [whole["choices"][0]["message"]] if client == CHAT else whole["output"]
    call = turn[-1]["tool_calls"][0]["id"] if client == CHAT else turn[-1]["call_id"]
    body = request(client, User("Hi"), Result(call), model=MODEL)
    history = body["messages" if client == CHAT else "input"]
    history[1:1] = turn
    sent = translate_request(client, MESSAGES, body).body
    assert ordered(json.dumps(all_blocks(sent)[0])) == ordered(json.dumps(block))
