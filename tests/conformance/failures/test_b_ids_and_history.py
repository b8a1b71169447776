"""B. Ids, history and turn order: conversations that one protocol allows and another refuses."""

from __future__ import annotations

import re
from typing import Any

import pytest
from failures.responses import Call, Reasoning, Text, stream
from failures.rules import refused
from failures.translate import WIDE, each, pairs, receive, sent_back, translate_request
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
from oracle import CHAT, MESSAGES, PROTOCOL_NAMES, RESPONSES
from translation import MODEL

from dragoman import Capabilities
from dragoman.protocols.openai_chat.capabilities import ChatCapabilities

pytestmark = pytest.mark.each_protocol

Json = dict[str, Any]
MISTRAL = Capabilities(call_ids="alnum9")
LONG = (f"call_{'a' * 70}", f"call_{'b' * 70}", f"call_{'a' * 69}c", "c" * 64)
# As servers make them: one with dots and a colon, one with a pipe, and some that differ from others by a character.
ODD = (
    "functions.write_todos:0",
    "call_1|fc_2",
    "functions_write_todos:0",
    "call\n1",
    "functions.write_todos.0",
    "call_1-B",
)
# The upstream, what it can, the client's ids, and the form that the upstream takes.
IDS: dict[str, tuple[str, Capabilities, tuple[str, ...], str]] = {
    "B1 odd characters": (MESSAGES, WIDE, ODD, r"[a-zA-Z0-9_-]+"),
    "B2 too long for Chat": (CHAT, WIDE, LONG, r".{1,64}"),
    "B2 too long for Responses": (RESPONSES, WIDE, LONG, r".{1,64}"),
    "B17 nine letters and digits": (
        CHAT, MISTRAL, ("call_abcdefghijklmnop", "toolu_01ABC", "call_0", "gSIMJiOkT"), r"[a-zA-Z0-9]{9}"),
}  # fmt: skip


@pytest.mark.parametrize("row", IDS)
def test_ids_have_the_upstreams_form(row: str) -> None:
    """The same on call and result and in each turn; two never become one, and those that fit are kept."""
    upstream, capabilities, ids, form = IDS[row]
    turns = [turn for call_id in ids for turn in (model(Call(call_id)), Result(call_id, f"for {call_id}"))]
    for client in PROTOCOL_NAMES:
        if client == upstream:
            continue
        body = request(client, User("Hi"), *turns)
        sent = translate_request(client, upstream, body, capabilities=capabilities).body
        assert refused(upstream, sent) == []
        there = [call[0] for call in calls_of(upstream, sent)]
        assert len(set(there)) == len(ids)
        assert all(re.fullmatch(form, call_id) for call_id in there)
        assert [new == old for new, old in zip(there, ids, strict=True)] == [
            bool(re.fullmatch(form, call_id)) for call_id in ids
        ]
        assert results_of(upstream, sent) == [
            (new, f"for {old}") for new, old in zip(there, ids, strict=True)
        ]
        body = request(client, User("Hi"), *turns, User("Go on"))
        longer = translate_request(client, upstream, body, capabilities=capabilities).body
        assert calls_of(upstream, longer) == calls_of(upstream, sent)


@each("client", (MESSAGES, RESPONSES))
@pytest.mark.parametrize(("call_id", "capabilities"), [(ODD[0], WIDE), ("gSIMJiOkT", MISTRAL)])
def test_B1_B17_the_upstream_gets_its_own_id_back(
    client: str, call_id: str, capabilities: Capabilities
) -> None:
    sent = sent_back(CHAT, client, stream(CHAT, Call(call_id)), capabilities=capabilities).body
    assert [call[0] for call in calls_of(CHAT, sent)] == [call_id]
    assert refused(CHAT, sent) == []


@pairs()
def test_B2_responses_have_the_clients_own_ids(client: str, upstream: str) -> None:
    """A response's new call is not mistaken for an earlier one whose id was shortened on the way."""
    body = request(client, User("Hi"), model(Call(LONG[0])), Result(LONG[0]), stream=True)
    received = receive(upstream, client, stream(upstream, Call("call_new")), body, include_usage=False)
    assert [call.id for call in received.meaning.calls] == ["call_new"]


# --- order --------------------------------------------------------------------------------------------------------

TWO_CALLS = (User("Hi"), model(Text("Let me see."), Call("call_a"), Call("call_b")))
IMAGE_URL = f"data:image/png;base64,{PIXEL}"
# An image in each protocol.
IMAGES: dict[str, Json] = {
    CHAT: {"type": "image_url", "image_url": {"url": IMAGE_URL}},
    MESSAGES: {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}},
    RESPONSES: {"type": "input_image", "image_url": IMAGE_URL, "detail": "auto"},
}


def text(value: str) -> Json:
    return {"type": "text", "text": value}


def result(call_id: str, content: Any) -> Json:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content}


A, B, SEE = result("call_a", "1"), result("call_b", "2"), text("See:")
# Two calls, and the user's next turn in a Messages request.
MIXED: dict[str, tuple[Json, ...]] = {
    "B4 text first": (SEE, A, B),
    "B5 text between": (A, SEE, B),
    "B4 B7 text last": (A, B, SEE),
    "B5 the other order": (B, SEE, A),
}
ENDS = {
    CHAT: ["user", "assistant", "tool", "tool", "user"],
    RESPONSES: ["user", "assistant", *["function_call"] * 2, *["function_call_output"] * 2, "user"],
}


@pytest.mark.parametrize("row", MIXED)
def test_results_come_together_and_before_the_rest_of_their_turn(row: str) -> None:
    body = request(MESSAGES, *TWO_CALLS)
    body["messages"].append({"role": "user", "content": list(MIXED[row])})
    for upstream, expected in ENDS.items():
        sent = translate_request(MESSAGES, upstream, body).body
        assert refused(upstream, sent) == []
        assert outline(upstream, sent) == expected
        assert sorted(results_of(upstream, sent)) == [("call_a", "1"), ("call_b", "2")]
        assert text_in((sent["messages"] if upstream == CHAT else sent["input"])[-1]["content"]) == "See:"


@each("upstream", (CHAT, MESSAGES))
def test_B7_text_between_results_is_a_separate_message(upstream: str) -> None:
    """A user's text between two outputs, and an output of several parts."""
    body = request(RESPONSES, *TWO_CALLS, Result("call_a", "1"), User("See:"), Result("call_b", "2"))
    body["input"][-1]["output"] = [{"type": "input_text", "text": part} for part in ("2a", "2b")]
    sent = translate_request(RESPONSES, upstream, body).body
    assert refused(upstream, sent) == []
    both = "2a\n\n2b" if upstream == CHAT else "2a2b"
    assert results_of(upstream, sent) == [("call_a", "1"), ("call_b", both)]
    assert text_in(sent["messages"][-1]["content"]).endswith("See:")


@each("client", (CHAT, RESPONSES))
def test_B3_B6_all_results_of_a_turn_and_their_images_are_in_one_message(client: str) -> None:
    for pictures in (False, True):
        body = with_pictures(client) if pictures else request(client, *TWO_CALLS, *RESULTS, User("And?"))
        sent = translate_request(client, MESSAGES, body).body
        assert refused(MESSAGES, sent) == []
        assert outline(MESSAGES, sent)[2].startswith("user tool_result tool_result")
        assert results_of(MESSAGES, sent) == [("call_a", "1"), ("call_b", "2")]
        if pictures:
            for block, number in zip(sent["messages"][2]["content"], "12", strict=True):
                assert block["content"] == [text(number), IMAGES[MESSAGES]]
        else:
            assert text_in(sent["messages"][-1]["content"]).endswith("And?")


RESULTS = (Result("call_a", "1"), Result("call_b", "2"))


def with_pictures(client: str) -> Json:
    """Two results, each with text and an image, in each client's form."""
    body = request(client, *TWO_CALLS, *RESULTS)
    key = "output" if client == RESPONSES else "content"
    holders = body["input"][-2:] if client == RESPONSES else body["messages"][-2:]
    for holder in body["messages"][-1]["content"] if client == MESSAGES else holders:
        part = {"type": "input_text" if client == RESPONSES else "text", "text": holder[key]}
        holder[key] = [part, IMAGES[client]]
    return body


@each("client", (MESSAGES, RESPONSES))
def test_B6_for_chat_images_follow_all_results(client: str) -> None:
    """Tool messages only have text there, except at upstreams that take images in them."""
    sent = translate_request(client, CHAT, with_pictures(client)).body
    assert refused(CHAT, sent) == []
    assert outline(CHAT, sent) == ["user", "assistant", "tool", "tool", "user"]
    images = [part for part in sent["messages"][-1]["content"] if part["type"] == "image_url"]
    assert [part["image_url"]["url"] for part in images] == [IMAGE_URL] * 2
    there = ChatCapabilities(tool_images=True)
    sent = translate_request(client, CHAT, with_pictures(client), capabilities=there).body
    assert outline(CHAT, sent) == ["user", "assistant", "tool", "tool"]
    for message in sent["messages"][-2:]:
        assert [part["type"] for part in message["content"]] == ["text", "image_url"]


@each("client", (CHAT, RESPONSES))
def test_B12_a_round_trip_through_the_client_keeps_the_order_of_blocks(client: str) -> None:
    """Text, thinking, text, thinking, call: the vendor checks its thinking at its place."""
    signed = [Text("One."), Reasoning("Hm.", "c2lnMQ=="), Text("Two."), Reasoning("Ah.", "c2lnMg==")]
    sent = sent_back(MESSAGES, client, stream(MESSAGES, *signed, Call("call_a"))).body
    assert refused(MESSAGES, sent) == []
    turn = [block for message in sent["messages"][1:-1] for block in message["content"]]
    assert [block.get("signature") or block.get("text") or block["type"] for block in turn] == [
        "One.",
        "c2lnMQ==",
        "Two.",
        "c2lnMg==",
        "tool_use",
    ]


# --- what is missing or empty -------------------------------------------------------------------------------------

# The turns of a conversation -> the calls whose result is a placeholder.
WITHOUT_RESULT = {
    "one of two": ((*TWO_CALLS, Result("call_a"), User("Go on")), {"call_b"}),
    "all": ((*TWO_CALLS, User("Go on")), {"call_a", "call_b"}),
    "at the end": (TWO_CALLS, {"call_a", "call_b"}),
    "twice": (
        (*TWO_CALLS, User("Go on"), model(Call("call_c")), User("Stop")),
        {"call_a", "call_b", "call_c"},
    ),
}


@pairs()
@pytest.mark.parametrize("case", WITHOUT_RESULT)
def test_B8_calls_without_a_result_get_a_placeholder_result(client: str, upstream: str, case: str) -> None:
    """An interrupted turn does not poison every later request."""
    turns, open_calls = WITHOUT_RESULT[case]
    requested = translate_request(client, upstream, request(client, *turns))
    assert refused(upstream, requested.body) == []
    results = results_of(upstream, requested.body)
    assert {call_id for call_id, _ in results} == {call[0] for call in calls_of(upstream, requested.body)}
    assert {call_id for call_id, value in results if "no result" in value.lower()} == open_calls
    assert "repaired" in requested.losses.values()
    if upstream == MESSAGES:
        marked = {block["tool_use_id"] for block in all_blocks(requested.body) if block.get("is_error")}
        assert marked == open_calls


@pairs()
def test_B8_a_result_without_a_call_is_left_out(client: str, upstream: str) -> None:
    body = request(client, User("Hi"), model(Text("Hello")), Result("call_z", "lost"), User("Go on"))
    requested = translate_request(client, upstream, body)
    assert refused(upstream, requested.body) == []
    assert results_of(upstream, requested.body) == []
    assert "repaired" in requested.losses.values()


@each("client", (CHAT, MESSAGES))
def test_B9_items_for_a_responses_upstream_have_no_ids_of_stored_items(client: str) -> None:
    """ "Item with id 'rs_...' not found. Items are not persisted when store is false": content is sent, not ids."""
    data = stream(RESPONSES, Reasoning("Hm.", "c2VhbGVk"), Text("Let me see."), Call("call_a"))
    sent = sent_back(RESPONSES, client, data).body
    assert sent["store"] is False
    held = [item for item in sent["input"] if item.get("type") == "reasoning"]
    assert [item["encrypted_content"] for item in held] == ["c2VhbGVk"]
    assert [item for item in sent["input"] if item.get("type") != "reasoning" and "id" in item] == []
    # A server that was not asked for encrypted content gives reasoning with an id and a summary.
    sent = sent_back(RESPONSES, client, stream(RESPONSES, Reasoning("Hm.", ""), Call("call_a"))).body
    assert outline(RESPONSES, sent) == ["user", "function_call", "function_call_output"]


def test_B9_a_relay_changes_nothing_of_a_conversation() -> None:
    """Between equal protocols ids are the upstream's own, and the bytes are the client's."""
    body = request(RESPONSES, *TWO_CALLS, *RESULTS, store=False)
    for item in body["input"][1:4]:
        item["id"] = f"item_68f0_{item.get('call_id', '')}"
    assert translate_request(RESPONSES, RESPONSES, body).body == body


@each("upstream", (CHAT, MESSAGES))
@pytest.mark.parametrize("found", [{}, {"id": ""}, {"id": None}, {"id": "rs_1"}], ids=str)
def test_B10_reasoning_is_accepted_with_and_without_an_id(upstream: str, found: Json) -> None:
    body = request(RESPONSES, User("Hi"), model(Reasoning("Hm."), Text("Yes.")), User("Go on"))
    body["input"][1] |= found
    sent = translate_request(RESPONSES, upstream, body).body
    assert refused(upstream, sent) == []
    assert "Yes." in str(sent)


@each("client", (CHAT, MESSAGES))
def test_B10_an_empty_id_is_never_sent(client: str) -> None:
    """The server's own reasoning had none, so it gets none back."""
    data = stream(RESPONSES, Reasoning("Hm."), Call("call_a")).replace(b'"rs_0"', b'""')
    sent = sent_back(RESPONSES, client, data).body
    assert refused(RESPONSES, sent) == []
    assert [item.get("id") for item in sent["input"] if item.get("type") == "reasoning"] in ([None], [])


def test_B11_reasoning_is_sent_with_its_following_item_or_not_at_all() -> None:
    """The turn was interrupted after the reasoning."""
    data = stream(RESPONSES, Reasoning("Hm."), Call("call_a"))
    reasoning = receive(RESPONSES, MESSAGES, data).turn[0]
    for after in ([], [text("")]):
        body = request(MESSAGES, User("Hi"), model(), User("Go on"), model=MODEL)
        body["messages"][1]["content"] = [reasoning, *after]
        requested = translate_request(MESSAGES, RESPONSES, body)
        assert refused(RESPONSES, requested.body) == []
        assert outline(RESPONSES, requested.body) == ["user", "user"]
        assert "repaired" in requested.losses.values()
    sent = sent_back(RESPONSES, MESSAGES, data).body
    assert refused(RESPONSES, sent) == []
    assert outline(RESPONSES, sent)[1:3] == ["reasoning", "function_call"]


@pairs()
def test_B14_empty_texts_are_left_out(client: str, upstream: str) -> None:
    """Empty parts beside others, an empty response, and a user's turn of nothing."""
    turns = (User("Hi"), model(Text("Yes.")), User(""), model(Text("")), User("Go on"))
    body = request(client, *turns, tools=())
    first = body["input" if client == RESPONSES else "messages"][0]
    kind = "input_text" if client == RESPONSES else "text"
    first["content"] = [{"type": kind, "text": each_text} for each_text in ("", "Hi", "")]
    requested = translate_request(client, upstream, body)
    assert refused(upstream, requested.body) == []
    sent = requested.body["input" if upstream == RESPONSES else "messages"]
    assert [text_in(turn["content"]) for turn in sent] == ["Hi", "Yes.", "Go on"]
    assert list(requested.losses.values()).count("repaired") >= 3


# --- ids that repeat ----------------------------------------------------------------------------------------------


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
    assert [value for _, value in results_of(CHAT, sent)] == ["1", "2"]


@pairs()
def test_B15_calls_and_results_of_repeated_ids_pair_by_position(client: str, upstream: str) -> None:
    """A history from elsewhere, whose turns have the same ids."""
    turns = [
        turn
        for letter in "ab"
        for turn in (
            model(Call("call_0"), Call("call_1")),
            Result("call_0", f"{letter}0"),
            Result("call_1", f"{letter}1"),
        )
    ]
    sent = translate_request(client, upstream, request(client, User("Hi"), *turns)).body
    assert refused(upstream, sent) == []
    ids = [call[0] for call in calls_of(upstream, sent)]
    assert ids[:2] == ["call_0", "call_1"], "the first turn keeps its ids, and the prompt cache"
    assert len(set(ids)) == 4
    assert results_of(upstream, sent) == list(zip(ids, ["a0", "a1", "b0", "b1"], strict=True))
