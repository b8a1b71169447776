"""B. Ids, history and turn order: conversations that one protocol allows and another refuses."""

from __future__ import annotations

import re
from typing import Any

import pytest
from failures.responses import Call, Reasoning, Text, stream
from failures.rules import refused
from failures.translate import each, pairs, receive, receive_whole, sent_back, translate_request
from failures.turns import (
    PIXEL,
    Result,
    User,
    all_blocks,
    calls_of,
    model,
    outline,
    request,
    results_of,
    text_in,
)
from oracle import CHAT, MESSAGES, RESPONSES
from translation import MODEL

from dragoman import Capabilities

pytestmark = pytest.mark.each_protocol

Json = dict[str, Any]
# As servers make them: one with dots and a colon, one with a pipe, one that differs from the first by a character.
ODD_IDS = (
    "functions.write_todos:0",
    "call_1|fc_2",
    "functions_write_todos:0",
    "call\n1",
    "functions.write_todos.0",
)


@pairs(upstreams=[MESSAGES])
def test_B1_odd_ids_are_mapped(client: str, upstream: str) -> None:
    """The same way on call and result; two ids never become one."""
    turns = [
        each for call_id in ODD_IDS for each in (model(Call(call_id)), Result(call_id, f"for {call_id}"))
    ]
    body = request(client, User("Hi"), *turns)
    sent = translate_request(client, upstream, body).body
    assert refused(upstream, sent) == []
    ids = [call[0] for call in calls_of(upstream, sent)]
    assert len(set(ids)) == len(ODD_IDS)
    assert results_of(upstream, sent) == [
        (call_id, f"for {odd}") for call_id, odd in zip(ids, ODD_IDS, strict=True)
    ]
    longer = translate_request(client, upstream, request(client, User("Hi"), *turns, User("Go on"))).body
    assert calls_of(upstream, longer) == calls_of(upstream, sent), "each turn gives the same ids"


@pairs(upstreams=[CHAT])
def test_B1_the_upstream_gets_its_own_id_back(client: str, upstream: str) -> None:
    """A client of any protocol receives the id, and the upstream that made it gets it back."""
    sent = sent_back(upstream, client, stream(upstream, Call("functions.write_todos:0"))).body
    assert [call[0] for call in calls_of(upstream, sent)] == ["functions.write_todos:0"]
    assert refused(upstream, sent) == []


LONG = (f"call_{'a' * 70}", f"call_{'b' * 70}", f"call_{'a' * 69}c")


@pairs(upstreams=[CHAT, RESPONSES])
def test_B2_long_ids_are_shortened(client: str, upstream: str) -> None:
    """To 64 characters at most, and still distinct."""
    turns = [each for call_id in LONG for each in (model(Call(call_id)), Result(call_id, call_id))]
    sent = translate_request(client, upstream, request(client, User("Hi"), *turns)).body
    assert refused(upstream, sent) == []
    ids = [call[0] for call in calls_of(upstream, sent)]
    assert len(set(ids)) == len(LONG)
    assert max(map(len, ids)) <= 64
    assert results_of(upstream, sent) == list(zip(ids, LONG, strict=True))
    short = "c" * 64
    requested = translate_request(
        client, upstream, request(client, User("Hi"), model(Call(short)), Result(short))
    ).body
    assert [call[0] for call in calls_of(upstream, requested)] == [short]


@pairs()
def test_B2_responses_have_the_clients_own_ids(client: str, upstream: str) -> None:
    """A response's new call is not mistaken for an earlier one whose id was shortened on the way."""
    body = request(client, User("Hi"), model(Call(LONG[0])), Result(LONG[0]), stream=True)
    received = receive(upstream, client, stream(upstream, Call("call_new")), body, include_usage=False)
    assert [call.id for call in received.meaning.calls] == ["call_new"]


TWO_CALLS = (User("Hi"), model(Text("Let me see."), Call("call_a"), Call("call_b")))


@pairs(upstreams=[MESSAGES])
def test_B3_all_results_of_a_turn_are_in_one_message(client: str, upstream: str) -> None:
    body = request(client, *TWO_CALLS, Result("call_a", "1"), Result("call_b", "2"), User("And?"))
    sent = translate_request(client, upstream, body).body
    assert refused(upstream, sent) == []
    response = sent["messages"][2]
    assert response["role"] == "user"
    assert [block["type"] for block in response["content"]][:2] == ["tool_result", "tool_result"]
    assert results_of(upstream, sent) == [("call_a", "1"), ("call_b", "2")]
    assert text_in(sent["messages"][-1]["content"]).endswith("And?")


def result(call_id: str, content: Any = "done", **fields: Any) -> Json:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, **fields}


def text(text_in: str) -> Json:
    return {"type": "text", "text": text_in}


def requested_in_messages(*content: Json) -> Json:
    """A Messages request whose last user turn has this content, behind a turn with two calls."""
    body = request(MESSAGES, *TWO_CALLS)
    return body | {"messages": [*body["messages"], {"role": "user", "content": list(content)}]}


# The content of the last user turn -> the roles after the calls.
MIXED: dict[str, tuple[Json, ...]] = {
    "text first": (text("See:"), result("call_a", "1"), result("call_b", "2")),
    "text between": (result("call_a", "1"), text("See:"), result("call_b", "2")),
    "text last": (result("call_a", "1"), result("call_b", "2"), text("See:")),
    "other order": (result("call_b", "2"), text("See:"), result("call_a", "1")),
}


@each("upstream", (CHAT, RESPONSES))
@pytest.mark.parametrize("mixed", ["text first", "text last"])
def test_B4_results_come_before_the_rest_of_a_turn(upstream: str, mixed: str) -> None:
    check_results_first(upstream, MIXED[mixed])


@each("upstream", (CHAT, RESPONSES))
@pytest.mark.parametrize("mixed", ["text between", "other order"])
def test_B5_results_stay_together(upstream: str, mixed: str) -> None:
    check_results_first(upstream, MIXED[mixed])


def check_results_first(upstream: str, content: tuple[Json, ...]) -> None:
    sent = translate_request(MESSAGES, upstream, requested_in_messages(*content)).body
    assert refused(upstream, sent) == []
    ends = {
        CHAT: ["user", "assistant", "tool", "tool", "user"],
        RESPONSES: [
            "user",
            "assistant",
            *["function_call"] * 2,
            *["function_call_output"] * 2,
            "user",
        ],
    }
    assert outline(upstream, sent) == ends[upstream]
    assert sorted(results_of(upstream, sent)) == [("call_a", "1"), ("call_b", "2")]
    last = (sent["messages"] if upstream == CHAT else sent["input"])[-1]
    assert text_in(last["content"]) == "See:"


IMAGE_URL = f"data:image/png;base64,{PIXEL}"


def with_pictures(client: str) -> Json:
    """Two results, each with text and an image, in each client's form."""
    body = request(client, *TWO_CALLS, Result("call_a", "1"), Result("call_b", "2"))
    if client == RESPONSES:
        for item in body["input"][-2:]:
            image = {"type": "input_image", "image_url": IMAGE_URL, "detail": "auto"}
            item["output"] = [{"type": "input_text", "text": item["output"]}, image]
    elif client == MESSAGES:
        source = {"type": "base64", "media_type": "image/png", "data": PIXEL}
        for block in body["messages"][-1]["content"]:
            block["content"] = [text(block["content"]), {"type": "image", "source": source}]
    else:
        for message in body["messages"][-2:]:
            image = {"type": "image_url", "image_url": {"url": IMAGE_URL}}
            message["content"] = [{"type": "text", "text": message["content"]}, image]
    return body


@each("client", (CHAT, RESPONSES))
def test_B6_images_stay_inside_their_result(client: str) -> None:
    sent = translate_request(client, MESSAGES, with_pictures(client)).body
    assert refused(MESSAGES, sent) == []
    assert outline(MESSAGES, sent)[2:] == ["user tool_result tool_result"]
    for block, texts_of in zip(sent["messages"][2]["content"], "12", strict=True):
        assert [part["type"] for part in block["content"]] == ["text", "image"]
        assert block["content"][0]["text"] == texts_of
        assert block["content"][1]["source"]["data"] == PIXEL


@each("client", (MESSAGES, RESPONSES))
def test_B6_for_chat_images_follow_all_results(client: str) -> None:
    """Tool messages only have text there."""
    sent = translate_request(client, CHAT, with_pictures(client)).body
    assert refused(CHAT, sent) == []
    assert outline(CHAT, sent) == ["user", "assistant", "tool", "tool", "user"]
    images = [part for part in sent["messages"][-1]["content"] if part["type"] == "image_url"]
    assert [part["image_url"]["url"] for part in images] == [IMAGE_URL] * 2


@each("client", (MESSAGES, RESPONSES))
def test_B6_chat_upstreams_that_accept_images_in_results_get_them_there(client: str) -> None:
    sent = translate_request(
        client, CHAT, with_pictures(client), capabilities=Capabilities(tool_images=True)
    ).body
    assert outline(CHAT, sent) == ["user", "assistant", "tool", "tool"]
    for message in sent["messages"][-2:]:
        assert [part["type"] for part in message["content"]] == ["text", "image_url"]


@each("upstream", (CHAT, MESSAGES))
def test_B7_text_between_results_is_a_separate_message(upstream: str) -> None:
    """A user's text between two outputs, and an output of several parts."""
    body = request(RESPONSES, *TWO_CALLS, Result("call_a", "1"), User("See:"), Result("call_b", "2"))
    parts = [{"type": "input_text", "text": "2a"}, {"type": "input_text", "text": "2b"}]
    body["input"][-1]["output"] = parts
    sent = translate_request(RESPONSES, upstream, body).body
    assert refused(upstream, sent) == []
    both = "2a\n\n2b" if upstream == CHAT else "2a2b"
    assert results_of(upstream, sent) == [("call_a", "1"), ("call_b", both)]
    assert text_in(sent["messages"][-1]["content"]).endswith("See:")


@each("upstream", (CHAT, RESPONSES))
def test_B7_a_turn_of_a_result_and_text(upstream: str) -> None:
    sent = translate_request(
        MESSAGES, upstream, requested_in_messages(result("call_a"), result("call_b"), text("See:"))
    ).body
    assert refused(upstream, sent) == []
    assert outline(upstream, sent)[-1] == "user"


WITHOUT_RESULT = {
    "one of two": (*TWO_CALLS, Result("call_a"), User("Go on")),
    "all": (*TWO_CALLS, User("Go on")),
    "at the end": TWO_CALLS,
    "twice": (*TWO_CALLS, User("Go on"), model(Call("call_c")), User("Stop")),
}


@pairs()
@pytest.mark.parametrize("case", WITHOUT_RESULT)
def test_B8_calls_without_a_result_get_a_placeholder_result(client: str, upstream: str, case: str) -> None:
    """An interrupted turn does not poison every later request."""
    requested = translate_request(client, upstream, request(client, *WITHOUT_RESULT[case]))
    assert refused(upstream, requested.body) == []
    results = dict(results_of(upstream, requested.body))
    assert set(results) == {call[0] for call in calls_of(upstream, requested.body)}
    assert "call_b" in results
    assert "no result" in results["call_b"].lower()
    assert "repaired" in requested.losses.values()
    if upstream == MESSAGES:
        marked = [block for block in all_blocks(requested.body) if block.get("tool_use_id") == "call_b"]
        assert [block["is_error"] for block in marked] == [True]


@pairs()
def test_B8_a_result_without_a_call_is_left_out(client: str, upstream: str) -> None:
    body = request(client, User("Hi"), model(Text("Hello")), Result("call_z", "lost"), User("Go on"))
    requested = translate_request(client, upstream, body)
    assert refused(upstream, requested.body) == []
    assert results_of(upstream, requested.body) == []
    assert "repaired" in requested.losses.values()


STORED = {"message": "msg_68f0", "reasoning": "rs_68f0", "function_call": "fc_68f0"}


def replayed(upstream: str) -> Json:
    """A Responses client sends back a whole turn as it got it, ids and all, and has nothing stored."""
    body = request(RESPONSES, *TWO_CALLS, Result("call_a"), Result("call_b"))
    for item in body["input"]:
        kind = item.get("type")
        if kind in STORED and item.get("role") != "user":
            item["id"] = f"{STORED[kind]}_{item.get('call_id', '')}"
    return body | {"store": False}


@each("client", (CHAT, MESSAGES))
def test_B9_items_for_a_responses_upstream_have_no_ids_of_stored_items(client: str) -> None:
    """ "Item with id 'rs_...' not found. Items are not persisted when store is false": content is sent, not ids."""
    data = stream(RESPONSES, Reasoning("Hm.", "c2VhbGVk"), Text("Let me see."), Call("call_a"))
    sent = sent_back(RESPONSES, client, data).body
    assert sent["store"] is False
    held = [item for item in sent["input"] if item.get("type") == "reasoning"]
    assert [item["encrypted_content"] for item in held] == ["c2VhbGVk"]
    others = [item for item in sent["input"] if item.get("type") != "reasoning"]
    assert [item for item in others if "id" in item] == []


@each("client", (CHAT, MESSAGES))
def test_B9_reasoning_without_content_is_not_sent_by_its_id(client: str) -> None:
    """A server that was not asked for encrypted content gives reasoning with an id and a summary."""
    data = stream(RESPONSES, Reasoning("Hm.", signature=""), Call("call_a"))
    sent = sent_back(RESPONSES, client, data).body
    assert [item for item in sent["input"] if item.get("type") == "reasoning"] == []
    assert [call[0] for call in calls_of(RESPONSES, sent)] == ["call_a"]


def test_B9_a_relay_changes_nothing_of_a_conversation() -> None:
    """Between equal protocols ids are the upstream's own, and the bytes are the client's."""
    body = replayed(RESPONSES)
    assert translate_request(RESPONSES, RESPONSES, body).body == body


@each("upstream")
@pytest.mark.parametrize(
    "results", [{}, {"id": ""}, {"id": None}, {"id": "rs_1"}], ids=["absent", "empty", "null", "id"]
)
def test_B10_reasoning_is_accepted_with_and_without_an_id(upstream: str, results: Json) -> None:
    body = request(RESPONSES, User("Hi"), model(Reasoning("Hm."), Text("Yes.")), User("Go on"))
    body["input"][1] |= results
    sent = translate_request(RESPONSES, upstream, body).body
    if upstream != RESPONSES:  # for its own protocol it is unchanged
        assert refused(upstream, sent) == []
        assert "Yes." in str(sent)


@each("client", (CHAT, MESSAGES))
def test_B10_an_empty_id_is_never_sent(client: str) -> None:
    """The server's own reasoning had none, so it gets none back."""
    data = stream(RESPONSES, Reasoning("Hm."), Call("call_a")).replace(b'"rs_0"', b'""')
    sent = sent_back(RESPONSES, client, data).body
    assert refused(RESPONSES, sent) == []
    assert [item.get("id") for item in sent["input"] if item.get("type") == "reasoning"] in ([None], [])


@pytest.mark.parametrize("after", [[], [text("")]], ids=["nothing", "empty text"])
def test_B11_reasoning_without_its_following_item_is_dropped(after: list[Json]) -> None:
    """The turn was interrupted after the reasoning."""
    received = receive(RESPONSES, MESSAGES, stream(RESPONSES, Reasoning("Hm."), Call("call_a")))
    reasoning = received.turn[0]
    messages = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": [reasoning, *after]},
        {"role": "user", "content": "Go on"},
    ]
    requested = translate_request(
        MESSAGES, RESPONSES, {"model": MODEL, "max_tokens": 9, "messages": messages}
    )
    assert refused(RESPONSES, requested.body) == []
    assert outline(RESPONSES, requested.body) == ["user", "user"]
    assert "repaired" in requested.losses.values()


def test_B11_reasoning_with_its_following_item_is_kept() -> None:
    sent = sent_back(RESPONSES, MESSAGES, stream(RESPONSES, Reasoning("Hm."), Call("call_a"))).body
    assert refused(RESPONSES, sent) == []
    assert outline(RESPONSES, sent)[1:3] == ["reasoning", "function_call"]


@each("client", (CHAT, RESPONSES))
def test_B12_a_round_trip_through_the_client_keeps_the_order_of_blocks(client: str) -> None:
    """Text, thinking, text, thinking, call: the vendor checks its thinking at its place."""
    blocks = [
        Text("One."),
        Reasoning("Hm.", "c2lnMQ=="),
        Text("Two."),
        Reasoning("Ah.", "c2lnMg=="),
        Call("call_a"),
    ]
    sent = sent_back(MESSAGES, client, stream(MESSAGES, *blocks)).body
    assert refused(MESSAGES, sent) == []
    turn = [
        block
        for message in sent["messages"]
        if message["role"] == "assistant"
        for block in message["content"]
    ]
    kinds = ["text", "thinking", "text", "thinking", "tool_use"]
    assert [block["type"] for block in turn] == kinds
    assert [block.get("text") for block in turn if block["type"] == "text"] == ["One.", "Two."]
    assert [block["signature"] for block in turn if block["type"] == "thinking"] == ["c2lnMQ==", "c2lnMg=="]


@pairs()
def test_B13_texts_around_a_call_are_separate_and_sent_once(client: str, upstream: str) -> None:
    data = stream(upstream, Text("Before."), Call("call_a"), Text("After."), stop="tool")
    received = receive(upstream, client, data)
    for text in ("Before.", "After."):
        assert received.meaning.text(*{block.kind for block in received.meaning.blocks}).count(text) == 1
    whole = receive_whole(upstream, client, data, streams=True)
    if client == CHAT:  # one string: the order is lost, the texts are not
        assert whole["choices"][0]["message"]["content"] == "Before.After."
        return
    assert [kind for kind, _ in received.gist] == ["text", "call", "text"]
    if client == MESSAGES:
        assert [block["type"] for block in whole["content"]] == ["text", "tool_use", "text"]
        return
    assert [item["type"] for item in whole["output"]] == ["message", "function_call", "message"]
    (final,) = received.of("completed")
    contents = [item["content"] for item in final["response"]["output"] if item["type"] == "message"]
    assert [[part["text"] for part in content] for content in contents] == [["Before."], ["After."]]


def with_empty_texts(client: str) -> Json:
    """Empty parts beside others, an empty response, and a user's turn of nothing."""
    body = request(client, User("Hi"), model(Text("Yes.")), User("Go on"))
    if client == RESPONSES:
        user, assistant = (
            {"type": "input_text", "text": ""},
            {"type": "output_text", "text": "", "annotations": []},
        )
        body["input"][0]["content"] = [user, {"type": "input_text", "text": "Hi"}]
        body["input"][2:2] = [
            {"role": "user", "content": [user]},
            {"type": "message", "role": "assistant", "content": [assistant]},
        ]
    else:
        body["messages"][0]["content"] = [text(""), text("Hi"), text("")]
        body["messages"][2:2] = [
            {"role": "user", "content": [text("")]},
            {"role": "assistant", "content": ""},
        ]
    return body


@pairs()
def test_B14_empty_texts_are_left_out(client: str, upstream: str) -> None:
    requested = translate_request(client, upstream, with_empty_texts(client))
    assert refused(upstream, requested.body) == []
    turns = requested.body["input" if upstream == RESPONSES else "messages"]
    assert [text_in(turn["content"]) for turn in turns] == ["Hi", "Yes.", "Go on"]
    assert list(requested.losses.values()).count("repaired") >= 3


@each("client", (MESSAGES, RESPONSES))
@pytest.mark.parametrize("numbered", ["call_0", "bash:0"])
def test_B15_an_id_used_earlier_in_the_conversation_is_replaced(client: str, numbered: str) -> None:
    """The upstream numbers its calls again in each turn."""
    fresh = receive(CHAT, client, stream(CHAT, Call(numbered)))
    assert [call.id for call in fresh.meaning.calls] == [numbered], "only when it must be"
    history = (User("Hi"), model(Call(numbered)), Result(numbered, "1"))
    body = request(client, *history, stream=True)
    (second,) = receive(CHAT, client, stream(CHAT, Call(numbered)), body).meaning.calls
    assert second.id != numbered
    back = request(client, *history, model(Call(second.id)), Result(second.id, "2"))
    sent = translate_request(client, CHAT, back).body
    assert refused(CHAT, sent) == []
    assert [results for _, results in results_of(CHAT, sent)] == ["1", "2"]


@pairs()
def test_B15_calls_and_results_of_repeated_ids_pair_by_position(client: str, upstream: str) -> None:
    """A history from elsewhere, whose turns have the same ids."""
    again = [model(Call("call_0"), Call("call_1")), Result("call_0", "{n}0"), Result("call_1", "{n}1")]
    turns = [User("Hi")]
    for number in "ab":
        turns += [
            Result(turn.id, turn.text.format(n=number)) if isinstance(turn, Result) else turn
            for turn in again
        ]
    sent = translate_request(client, upstream, request(client, *turns)).body
    assert refused(upstream, sent) == []
    ids = [call[0] for call in calls_of(upstream, sent)]
    assert ids[:2] == ["call_0", "call_1"], "the first turn keeps its ids, and the prompt cache"
    assert len(set(ids)) == 4
    assert results_of(upstream, sent) == list(zip(ids, ["a0", "a1", "b0", "b1"], strict=True))


@pairs()
def test_B16_two_calls_of_one_response_get_distinct_ids(client: str, upstream: str) -> None:
    data = stream(upstream, Call("call_0", "add"), Call("call_0", "now", ("{}",)))
    if upstream == CHAT:
        assert data.count(b'"call_0"') == 2
    received = receive(upstream, client, data)
    first, second = received.meaning.calls
    assert [(call.name, call.text) for call in (first, second)] == [("add", '{"a": 1}'), ("now", "{}")]
    assert first.id == "call_0"
    assert second.id not in ("", "call_0")


NINE = re.compile(r"[a-zA-Z0-9]{9}")
MISTRAL = Capabilities(call_ids="alnum9")


@each("client", (MESSAGES, RESPONSES))
def test_B17_ids_of_nine_letters_and_digits(client: str) -> None:
    """Where the upstream requires them, whoever made them."""
    ids = ("call_abcdefghijklmnop", "toolu_01ABC", "call_0", "gSIMJiOkT")
    turns = [each for call_id in ids for each in (model(Call(call_id)), Result(call_id, call_id))]
    sent = translate_request(client, CHAT, request(client, User("Hi"), *turns), capabilities=MISTRAL).body
    assert refused(CHAT, sent) == []
    there = [call[0] for call in calls_of(CHAT, sent)]
    assert all(NINE.fullmatch(call_id) for call_id in there)
    assert len(set(there)) == len(ids)
    assert there[-1] == "gSIMJiOkT", "the server's own"
    assert results_of(CHAT, sent) == list(zip(there, ids, strict=True))


@each("client", (MESSAGES, RESPONSES))
def test_B17_the_upstreams_own_ids_come_back(client: str) -> None:
    sent = sent_back(CHAT, client, stream(CHAT, Call("gSIMJiOkT")), capabilities=MISTRAL).body
    assert [call[0] for call in calls_of(CHAT, sent)] == ["gSIMJiOkT"]
