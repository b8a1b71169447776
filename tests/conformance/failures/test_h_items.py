"""H. Responses clients: complete events of each item, roles in mid-conversation, and other endpoints."""

from __future__ import annotations

import json
from typing import Any

import pytest
from failures.gateway import BASES, UpstreamResponse, gateway
from failures.responses import Block, Call, Reasoning, Text, stream
from failures.translate import Received, each, every_pair, pairs, receive, receive_whole, translate_request
from failures.turns import Result, User, model, outline, request, text_in
from oracle import (
    CHAT,
    MESSAGES,
    PROTOCOL_NAMES,
    RESPONSES,
    check_error,
    check_models,
    compare,
    meaning_of_whole,
)
from oracle import samples as s

pytestmark = pytest.mark.each_protocol

Json = dict[str, Any]
BLOCKS: tuple[Block, ...] = (
    Reasoning("Hm."),
    Text("Before."),
    Call("call_a", "add", ('{"a": ', "1}")),
    Text("After."),
    Call("call_b", "now", ("{}",)),
)


def rich(upstream: str) -> Received:
    """A response with items of all kinds, as a Responses client receives it."""
    return receive(upstream, RESPONSES, stream(upstream, *BLOCKS), translates=True)


def by_index(received: Received) -> list[list[Json]]:
    """The events of each item, in order."""
    reported = [event for event in received.events if "output_index" in event]
    return [
        [event for event in reported if event["output_index"] == index]
        for index in range(1 + max(event["output_index"] for event in reported))
    ]


@each("upstream")
def test_H8_an_item_begins_with_its_empty_arrays(upstream: str) -> None:
    """Codex drops the text of a message that had no `content`, and reasoning without a `summary`."""
    added = [event["item"] for event in rich(upstream).of("output_item.added")]
    empty = {
        item["type"]: {key: item[key] for key in item if key in ("content", "summary", "arguments")}
        for item in added
    }
    assert empty == {
        "reasoning": {"summary": []},
        "message": {"content": []},
        "function_call": {"arguments": ""},
    }
    assert {item["status"] for item in added} == {"in_progress"}


@each("upstream")
def test_H9_a_part_begins_with_its_empty_text(upstream: str) -> None:
    received = rich(upstream)
    parts = [event["part"] for event in received.of("content_part.added", "reasoning_summary_part.added")]
    assert [part["type"] for part in parts] == ["summary_text", "output_text", "output_text"]
    for part in parts:
        assert part["text"] == ""
    for part in parts[1:]:
        assert (part["annotations"], part["logprobs"]) == ([], [])


@each("upstream")
def test_H10_an_item_keeps_its_id_and_its_index(upstream: str) -> None:
    """From added to done, in every event between, and in the final output."""
    received = rich(upstream)
    output = received.of("completed")[0]["response"]["output"]
    lives = by_index(received)
    assert len(lives) == len(output) == len(BLOCKS)
    for events, item in zip(lives, output, strict=True):
        kinds = [event["type"].removeprefix("response.") for event in events]
        assert (kinds[0], kinds[-1]) == ("output_item.added", "output_item.done")
        assert {event.get("item_id") or event["item"]["id"] for event in events} == {item["id"]}
        assert all(event["item_id"] for event in events[1:-1])
        assert events[-1]["item"] == item
    assert len({item["id"] for item in output}) == len(output)


@each("upstream")
def test_H11_deltas_and_final_output_are_equal(upstream: str) -> None:
    received = rich(upstream)
    output = received.of("completed")[0]["response"]["output"]
    for events, item in zip(by_index(received), output, strict=True):
        text = "".join(event["delta"] for event in events if event["type"].endswith(".delta"))
        holder = item.get("content") or item.get("summary")
        assert text == (holder[0]["text"] if holder else item["arguments"])
        assert text
    assert [item["type"] for item in output] == [
        {Reasoning: "reasoning", Text: "message", Call: "function_call"}[type(block)] for block in BLOCKS
    ]


def with_output(payloads: list[s.Payload], output: list[Json] | None) -> bytes:
    """A Responses stream whose final object has this output instead of its own, None for none at all."""
    last = payloads[-1]
    assert isinstance(last, dict)
    if output is None:
        del last["response"]["output"]
    else:
        last["response"]["output"] = output
    return s.render(RESPONSES, payloads)


@each("client")
@pytest.mark.parametrize("output", [[], None], ids=["empty", "absent"])
def test_H11_an_upstream_whose_final_output_is_empty(client: str, output: list[Json] | None) -> None:
    """The deltas count."""
    received = receive(RESPONSES, client, with_output(s.responses(), output), translates=True)
    right = receive(RESPONSES, client, s.render(RESPONSES, s.responses()), translates=True)
    assert received.gist == right.gist
    assert received.finish == right.finish
    if client == RESPONSES:
        finals = [each.of("completed")[0]["response"]["output"] for each in (received, right)]
        assert [item["type"] for item in finals[0]] == [item["type"] for item in finals[1]]
        assert len(finals[0]) == 4


# Which events an upstream sends before its final object.
SENT_EVENTS: dict[str, tuple[str, ...]] = {
    "only the end": ("response.created", "response.completed"),
    "only what is done": ("response.created", "response.output_item.done", "response.completed"),
    "items without deltas": (
        "response.created",
        "response.output_item.added",
        "response.output_item.done",
        "response.completed",
    ),
}


@each("client")
@pytest.mark.parametrize("has_content", SENT_EVENTS)
def test_H11_an_upstream_that_sends_no_deltas(client: str, has_content: str) -> None:
    """Content of the final object or of finished items is sent to the client as deltas."""
    payloads: list[s.Payload] = [
        each for each in s.responses() if isinstance(each, dict) and each["type"] in SENT_EVENTS[has_content]
    ]
    received = receive(RESPONSES, client, s.render(RESPONSES, payloads), translates=True)
    assert received.gist == [
        ("reasoning", "Hmm."),
        ("text", "Let me see."),
        ("call", 'add({"a": 1})'),
        ("call", "now({})"),
    ]
    if client == RESPONSES:
        assert len(received.of("completed")[0]["response"]["output"]) == 4
        deltas = received.of("output_text.delta")
        assert "".join(event["delta"] for event in deltas) == "Let me see."


@each("upstream")
def test_H11_a_whole_response_has_the_same_items(upstream: str) -> None:
    whole = receive_whole(upstream, RESPONSES, stream(upstream, *BLOCKS), streams=True)
    assert (
        compare(rich(upstream).meaning, meaning_of_whole(RESPONSES, json.dumps(whole).encode()), RESPONSES)
        == []
    )


# --- endpoints --------------------------------------------------------------------------------------------------

COMPACTED = {
    "id": "resp_c",
    "object": "response.compaction",
    "created_at": 5,
    "output": [{"type": "compaction", "id": "cmp_1", "encrypted_content": "x"}],
    "usage": s.RESPONSES_USAGE,
}


def summary(upstream: str) -> Json:
    """A whole response with content. A Responses upstream makes its own summary."""
    if upstream == CHAT:
        response: Json = json.loads(json.dumps(s.WHOLE[CHAT]))
        response["choices"][0] |= {
            "finish_reason": "stop",
            "message": {"role": "assistant", "content": "They met."},
        }
        return response
    if upstream == MESSAGES:
        return {
            **s.WHOLE[MESSAGES],
            "content": [{**s.TEXT_BLOCK, "text": "They met."}],
            "stop_reason": "end_turn",
        }
    return COMPACTED


@pytest.mark.anyio
@each("upstream")
async def test_H12_compact_is_served_whatever_the_upstream(upstream: str) -> None:
    """Codex gets a list of items with one compaction item after the user's text, not a 404."""
    play = UpstreamResponse(
        [json.dumps(summary(upstream)).encode()], headers=(("content-type", "application/json"),)
    )
    story = [{"role": "user", "content": "Hello"}, {"type": "message", "role": "assistant", "content": "Hi"}]
    async with gateway(upstream, play) as up:
        received = await up.call("/v1/responses/compact", {"model": "up/m", "input": story})
        assert received.status == 200, received.body
        response = json.loads(received.body)
        assert response["object"] == "response.compaction"
        assert response["output"][-1]["type"] == "compaction"
        assert response["output"][-1]["encrypted_content"]
        assert up.network.requests[-1].url.path.endswith("/compact") is (upstream == RESPONSES)
        again = {"model": "up/m", "input": [*response["output"], {"role": "user", "content": "And?"}]}
        await up.call("/v1/responses", again)
        sent = json.dumps(up.sent)
    assert ("They met." in sent) is (upstream != RESPONSES)
    assert "And?" in sent


@pytest.mark.anyio
@each("upstream")
@pytest.mark.parametrize("query", ["", "?client_version=0.99.0", "?limit=1000"])
async def test_H12_models_are_listed_whatever_the_upstream(upstream: str, query: str) -> None:
    forms = {RESPONSES: {}, MESSAGES: {"anthropic-version": "2023-06-01"}}
    async with gateway(upstream, upstream={"models": ("m",)}) as up:
        for protocol, headers in forms.items():
            received = await up.call(f"/v1/models{query}", method="GET", headers=headers)
            assert received.status == 200
            assert check_models(protocol, received.body) == []
            assert "up/m" in [entry["id"] for entry in json.loads(received.body)["data"]]


@pytest.mark.anyio
@pytest.mark.parametrize("path", ["/v1/responses/resp_1/other", "/v1/models/none"])
async def test_H12_unsupported_endpoints_are_refused_in_the_right_form(path: str) -> None:
    async with gateway(CHAT) as up:
        received = await up.call(path, method="GET")
    assert received.status == 404
    assert check_error(RESPONSES, 404, received.body) == []
    assert BASES[CHAT] not in received.body.decode()


# --- system text in mid-conversation ----------------------------------------------------------------------------

LATER = ("Speak English.", "Be brief.")


def with_system(client: str, role: str) -> Json:
    """Two system texts at the head, one in mid-conversation and one at its end."""
    body = request(client, User("Hi"), model(Text("Hello.")), User("Go on"), tools=())
    history = body["input" if client == RESPONSES else "messages"]
    history.insert(2, {"role": role, "content": LATER[0]})
    history.append({"role": role, "content": LATER[1]})
    if client == MESSAGES:
        body["system"] = [{"type": "text", "text": "First."}, {"type": "text", "text": "Second."}]
    else:
        history[:0] = [{"role": "system", "content": "First."}, {"role": role, "content": "Second."}]
    return body


@pairs(PROTOCOL_NAMES, [CHAT])
@pytest.mark.parametrize("role", ["system", "developer"])
def test_H13_system_text_is_only_at_the_beginning(client: str, upstream: str, role: str) -> None:
    """Later system messages keep their place as marked text of the user."""
    if client == MESSAGES and role == "developer":
        role = "system"  # the only one there
    sent = translate_request(client, upstream, with_system(client, role))
    messages = [(message["role"], text_in(message["content"])) for message in sent.body["messages"]]
    roles = [role for role, _ in messages]
    assert roles[0] == "system"
    assert "system" not in roles[1:]
    assert "developer" not in roles
    assert "".join(messages[0][1].split()) == "First.Second."
    text = "\n".join(text for _, text in messages)
    order = ["First.", "Second.", "Hi", "Hello.", LATER[0], "Go on", LATER[1]]
    assert [text.index(each) for each in order] == sorted(text.index(each) for each in order)
    for later in LATER:
        assert text.count(later) == 1
        assert f"<system>\n{later}\n</system>" in text


@every_pair((CHAT, MESSAGES, RESPONSES))
def test_H13_turns_stay_in_order_and_lose_nothing(client: str, upstream: str) -> None:
    """The same conversation to every kind of upstream."""
    sent = translate_request(client, upstream, with_system(client, "system")).body
    text = json.dumps(sent)
    for each_text in ("First.", "Second.", "Hi", "Hello.", *LATER, "Go on"):
        assert text.count(each_text) == 1, each_text
    assert text.index("Hello.") < text.index(LATER[0]) < text.index("Go on") < text.index(LATER[1])


@pairs((RESPONSES, CHAT, MESSAGES), [CHAT])
def test_H13_no_system_message_between_a_call_and_its_result(client: str, upstream: str) -> None:
    """A developer message that comes there is moved behind the results."""
    body = request(client, User("Hi"), model(Call("call_a")), Result("call_a"))
    history = body["input" if client == RESPONSES else "messages"]
    history.insert(2, {"role": "system", "content": LATER[0]})
    sent = translate_request(client, upstream, body).body
    assert outline(upstream, sent) == ["user", "assistant", "tool", "user"]
