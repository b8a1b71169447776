"""C. Reasoning as clients request it and receive it: efforts, budgets, blocks and their events."""

from __future__ import annotations

import json
from typing import Any

import pytest
from failures.responses import Call, Reasoning, Text, stream
from failures.translate import each, every_pair, pairs, receive, receive_whole, translate_request
from failures.turns import User, request
from failures.whole import whole
from oracle import CHAT, MESSAGES, RESPONSES
from oracle import samples as s

from dragoman import Capabilities, Outcome

pytestmark = pytest.mark.each_protocol

Json = dict[str, Any]
OTHERS = (MESSAGES, RESPONSES)

# Requests of each client that disable thinking and still have an effort.
OFF: dict[str, Json] = {
    "thinking off": {"thinking": {"type": "disabled"}},
    "and an effort": {"thinking": {"type": "disabled"}, "output_config": {"effort": "high"}},
}
# The setting of a Chat upstream -> the field that disables thinking.
SWITCHED_OFF: dict[str, Json] = {
    "reasoning_effort": {"reasoning_effort": "none"},
    "reasoning": {"reasoning": {"effort": "none"}},
    "thinking": {"thinking": {"type": "disabled"}},
    "enable_thinking": {"enable_thinking": False},
}
SETTINGS = ("reasoning_effort", "reasoning", "thinking", "enable_thinking", "thinking_budget")


def settings_of(body: Json) -> Json:
    """Return the reasoning settings of a Chat request."""
    return {key: body[key] for key in SETTINGS if key in body}


@pytest.mark.parametrize("requested", OFF)
@pytest.mark.parametrize("setting", SWITCHED_OFF)
@pytest.mark.parametrize("efforts", [None, ("none", "high", "max")], ids=["all-efforts", "some-efforts"])
def test_C5_disabled_thinking_sends_no_effort(
    requested: str, setting: Any, efforts: tuple[str, ...] | None
) -> None:
    """ "thinking options type cannot be disabled when reasoning_effort is set"."""
    capabilities = Capabilities(reasoning_setting=setting, efforts=efforts)
    sent = translate_request(
        MESSAGES, CHAT, request(MESSAGES, User("Hi"), **OFF[requested]), capabilities=capabilities
    )
    assert settings_of(sent.body) == SWITCHED_OFF[setting]
    assert bool(sent.losses) == (requested == "and an effort"), "an effort that was left out is told"


@pytest.mark.parametrize("requested", OFF)
def test_C5_disabled_thinking_for_responses(requested: str) -> None:
    sent = translate_request(MESSAGES, RESPONSES, request(MESSAGES, User("Hi"), **OFF[requested]))
    assert sent.body["reasoning"] == {"effort": "none"}


@each("client", (CHAT, RESPONSES))
@pytest.mark.parametrize("thinking", ["adaptive", "budget"])
def test_C5_disabled_thinking_for_messages(client: str, thinking: Any) -> None:
    """The effort "none" becomes no thinking at all."""
    body = request(client, User("Hi"), **effort(client, "none"))
    sent = translate_request(client, MESSAGES, body, capabilities=Capabilities(thinking=thinking)).body
    assert sent.get("thinking", {"type": "disabled"}) == {"type": "disabled"}
    assert "output_config" not in sent


def effort(client: str, word: str) -> Json:
    return {"reasoning_effort": word} if client == CHAT else {"reasoning": {"effort": word}}


# The fields in which servers of the Chat protocol stream reasoning.
FIELDS: dict[str, Any] = {
    "reasoning_content": lambda text: {"reasoning_content": text},
    "reasoning": lambda text: {"reasoning": text},
    "both": lambda text: {"reasoning_content": text, "reasoning": text},
    "reasoning_details": lambda text: {
        "reasoning_details": [{"type": "reasoning.text", "text": text, "index": 0, "format": None}]
    },
    "content parts": lambda text: {
        "content": [{"type": "thinking", "thinking": [{"type": "text", "text": text}]}]
    },
}


def thinking_stream(field: str) -> bytes:
    """Reasoning in two deltas, then text in two."""
    name = FIELDS[field]
    deltas = [name("Hm"), name("m."), {"content": "Yes"}, {"content": "."}]
    chunks = [s.chunk({"role": "assistant", "content": None}), *map(s.chunk, deltas), s.chunk({}, "stop")]
    return s.render(CHAT, [*chunks, "[DONE]"])


@each("client", OTHERS)
@pytest.mark.parametrize("field", FIELDS)
def test_C6_reasoning_comes_before_the_text(client: str, field: str) -> None:
    received = receive(CHAT, client, thinking_stream(field))
    assert received.gist == [("reasoning", "Hmm."), ("text", "Yes.")]
    if client == MESSAGES:
        deltas = [event["delta"] for event in received.of("content_block_delta")]
        assert [delta["type"] for delta in deltas] == [
            *["thinking_delta"] * 2,
            "signature_delta",
            *["text_delta"] * 2,
        ]
        starts = [event["content_block"]["type"] for event in received.of("content_block_start")]
        assert starts == ["thinking", "text"]


@pairs()
def test_C6_reasoning_of_every_upstream_streamed_and_whole(client: str, upstream: str) -> None:
    blocks = (Reasoning("Hmm."), Text("Yes."), Call("call_a"))
    received = receive(upstream, client, stream(upstream, *blocks))
    assert received.gist == [("reasoning", "Hmm."), ("text", "Yes."), ("call", 'add({"a": 1})')]
    document = receive_whole(upstream, client, whole(upstream, *blocks))
    if client == CHAT:
        assert document["choices"][0]["message"]["reasoning_content"] == "Hmm."
    elif client == MESSAGES:
        assert [block["type"] for block in document["content"]] == ["thinking", "text", "tool_use"]
        assert document["content"][0]["thinking"] == "Hmm."
    else:
        assert [item["type"] for item in document["output"]] == ["reasoning", "message", "function_call"]
        assert document["output"][0]["summary"] == [{"type": "summary_text", "text": "Hmm."}]


LIFE = [
    "output_item.added",
    "reasoning_summary_part.added",
    "reasoning_summary_text.delta",
    "reasoning_summary_text.delta",
    "reasoning_summary_text.done",
    "reasoning_summary_part.done",
    "output_item.done",
]


@pytest.mark.parametrize("field", FIELDS)
def test_C7_a_reasoning_item_has_all_its_events_with_one_id(field: str) -> None:
    """ "reasoning part not found": a strict client requires every event."""
    received = receive(CHAT, RESPONSES, thinking_stream(field))
    events = [event for event in received.events if event.get("output_index") == 0]
    assert [event["type"].removeprefix("response.") for event in events] == LIFE
    assert len({event.get("item_id") or event["item"]["id"] for event in events}) == 1
    assert {event.get("summary_index", 0) for event in events} == {0}
    done = events[-1]["item"]
    assert done["summary"] == [{"type": "summary_text", "text": "Hmm."}]
    (final,) = received.of("completed")
    assert final["response"]["output"][0] == done


def without_parts(new_ids: bool) -> bytes:
    """A Responses upstream's reasoning of only deltas; new_ids: with another id in each."""
    events = []
    for number, event in enumerate(s.responses()):
        assert isinstance(event, dict)
        if "summary_part" in event["type"] or event["type"].endswith("summary_text.done"):
            continue
        if new_ids and "summary" in event["type"]:
            event["item_id"] = f"rs_other_{number}"
        events.append(event)
    at = next(number for number, event in enumerate(events) if event["type"].endswith("summary_text.delta"))
    again = {**events[at], "delta": "Ah."}
    if new_ids:
        again["item_id"] = "rs_again"
    events.insert(at + 1, again)
    for event in events:
        if event.get("item", {}).get("summary"):
            event["item"]["summary"][0]["text"] = "Hmm.Ah."
    final = events[-1]["response"]["output"][0]
    final["summary"][0]["text"] = "Hmm.Ah."
    return s.render(RESPONSES, list(events))


@each("client")
@pytest.mark.parametrize("new_ids", [False, True], ids=["one-id", "an-id-each"])
def test_C7_missing_events_of_a_reasoning_item_are_added(client: str, new_ids: bool) -> None:
    received = receive(RESPONSES, client, without_parts(new_ids), translates=True)
    assert received.machine.outcome is Outcome.COMPLETED
    assert received.gist[0] == ("reasoning", "Hmm.Ah.")
    assert [kind for kind, _ in received.gist] == ["reasoning", "text", "call", "call"]


LIMITS = (1, 100, 1024, 1025, 2000, 4096, 64_000)
LIMIT_NAMES = {CHAT: "max_completion_tokens", RESPONSES: "max_output_tokens"}
BUDGET = Capabilities(thinking="budget")


@each("client", (CHAT, RESPONSES))
@pytest.mark.parametrize("word", ["minimal", "low", "medium", "high", "xhigh", "max"])
@pytest.mark.parametrize("limit", LIMITS)
def test_C8_a_budget_lies_between_1024_and_the_limit(client: str, word: str, limit: int) -> None:
    """Where even the smallest does not fit, the limit is raised, and that is reported."""
    body = request(client, User("Hi"), **effort(client, word), **{LIMIT_NAMES[client]: limit})
    requested = translate_request(client, MESSAGES, body, capabilities=BUDGET)
    sent = requested.body
    assert sent["thinking"]["type"] == "enabled"
    assert 1024 <= sent["thinking"]["budget_tokens"] < sent["max_tokens"]
    raised = limit <= 1024
    assert (sent["max_tokens"] > limit) is raised
    assert (f"/{LIMIT_NAMES[client]}" in requested.losses) is raised
    if not raised:
        assert sent["max_tokens"] == limit


@each("client", (CHAT, RESPONSES))
def test_C8_more_effort_is_never_a_smaller_budget(client: str) -> None:
    budgets = []
    for word in ("minimal", "low", "medium", "high", "xhigh", "max"):
        body = request(client, User("Hi"), **effort(client, word), **{LIMIT_NAMES[client]: 64_000})
        budgets.append(
            translate_request(client, MESSAGES, body, capabilities=BUDGET).body["thinking"]["budget_tokens"]
        )
    assert budgets == sorted(set(budgets))


@each("client", (CHAT, RESPONSES))
@pytest.mark.parametrize("word", ["low", "medium", "high", "xhigh", "max"])
def test_C8_adaptive_models_get_the_effort(client: str, word: str) -> None:
    body = request(client, User("Hi"), **effort(client, word), **{LIMIT_NAMES[client]: 100})
    sent = translate_request(client, MESSAGES, body).body
    assert sent["output_config"] == {"effort": word}
    assert sent["thinking"]["type"] == "adaptive"
    assert "budget_tokens" not in sent["thinking"]
    assert sent["max_tokens"] == 100


@each("client", (CHAT, RESPONSES))
@pytest.mark.parametrize("thinking", ["adaptive", "budget"])
@pytest.mark.parametrize("value", [0, 0.5, 1, 1.0, 1.5])
def test_C9_with_thinking_other_temperatures_are_dropped(client: str, thinking: Any, value: float) -> None:
    """ "`temperature` may only be set to 1 when thinking is enabled": it is dropped, and the ledger has it."""
    body = request(client, User("Hi"), **effort(client, "high"), temperature=value)
    requested = translate_request(client, MESSAGES, body, capabilities=Capabilities(thinking=thinking))
    assert requested.body["thinking"]["type"] in ("adaptive", "enabled")
    assert requested.body.get("temperature", 1) == 1
    assert ("/temperature" in requested.losses) == (value != 1)


@pytest.mark.parametrize("thinking", ["adaptive", "budget"])
def test_C9_with_thinking_top_k_and_low_top_p_are_dropped(thinking: Any) -> None:
    body = request(CHAT, User("Hi"), **effort(CHAT, "high"), top_k=40, top_p=0.5)
    requested = translate_request(CHAT, MESSAGES, body, capabilities=Capabilities(thinking=thinking))
    assert {"top_k", "top_p"} & requested.body.keys() == set()
    assert {"/top_k", "/top_p"} <= requested.losses.keys()
    high = translate_request(
        CHAT, MESSAGES, body | {"top_p": 0.95}, capabilities=Capabilities(thinking=thinking)
    ).body
    assert high["top_p"] == 0.95


@each("client", (CHAT, RESPONSES))
@pytest.mark.parametrize("requested", [{}, {"none": True}], ids=["unasked", "off"])
def test_C9_without_thinking_sampling_settings_are_sent(client: str, requested: Json) -> None:
    settings = effort(client, "none") if requested else {}
    sent = translate_request(
        client, MESSAGES, request(client, User("Hi"), **settings, temperature=0.5, top_p=0.5)
    ).body
    assert (sent["temperature"], sent["top_p"]) == (0.5, 0.5)


# The settings of a Messages client -> the effort; None: no effort.
ADAPTIVE: Json = {"thinking": {"type": "adaptive"}}
ENABLED: Json = {"thinking": {"type": "enabled", "budget_tokens": 2000}}
EXPECTED: dict[str, tuple[Json, str | None]] = {
    "nothing": ({}, None),
    "only effort": ({"output_config": {"effort": "low"}}, "low"),
    "only budget": (ENABLED, "low"),
    "only adaptive": (ADAPTIVE, "high"),
    "adaptive and effort": ({**ADAPTIVE, "output_config": {"effort": "max"}}, "max"),
    "budget and effort": ({**ENABLED, "output_config": {"effort": "xhigh"}}, "xhigh"),
    "off": ({"thinking": {"type": "disabled"}}, "none"),
    "off and effort": ({"thinking": {"type": "disabled"}, "output_config": {"effort": "high"}}, "none"),
}


@each("upstream", (CHAT, RESPONSES))
@pytest.mark.parametrize("name", EXPECTED)
def test_C10_effort_overrides_budget_and_disabled_overrides_effort(upstream: str, name: str) -> None:
    settings, expected = EXPECTED[name]
    requested = translate_request(MESSAGES, upstream, request(MESSAGES, User("Hi"), **settings))
    if upstream == CHAT:
        assert settings_of(requested.body) == ({} if expected is None else {"reasoning_effort": expected})
    elif expected is None:
        assert "reasoning" not in requested.body
    else:
        assert requested.body["reasoning"]["effort"] == expected
    both = len(settings) == 2 and "adaptive" not in name
    assert bool(requested.losses) == (both or name == "only budget"), "what was not heeded is told"


STOPS = {CHAT: "stop", MESSAGES: "stop_sequences"}


@pairs(clients=(CHAT, MESSAGES), upstreams=(CHAT, MESSAGES))
def test_C15_stop_sequences_are_passed_to_the_upstream(client: str, upstream: str) -> None:
    """They are passed on as they are, and the gateway looks for none in a response."""
    body = request(client, User("Hi"), **{STOPS[client]: ["END", "\n\nUser:"]}, stream=True)
    assert translate_request(client, upstream, body).body[STOPS[upstream]] == ["END", "\n\nUser:"]
    blocks = (Reasoning("The END of it."), Text("So END here."))
    received = receive(upstream, client, stream(upstream, *blocks), body, include_usage=False)
    assert received.gist == [("reasoning", "The END of it."), ("text", "So END here.")]


@each("client", (CHAT, MESSAGES))
def test_C15_without_upstream_support_only_text_is_cut(client: str) -> None:
    """Responses has no such setting. A sequence inside of reasoning stops nothing, and nothing leaks into text."""
    body = request(client, User("Hi"), **{STOPS[client]: ["END"]}, stream=True)
    blocks = (Reasoning("The END of it."), Text("So END here."))
    received = receive(RESPONSES, client, stream(RESPONSES, *blocks), body, include_usage=False)
    assert received.gist == [("reasoning", "The END of it."), ("text", "So ")]


@every_pair((CHAT, MESSAGES, RESPONSES))
def test_C15_reasoning_never_becomes_text(client: str, upstream: str) -> None:
    """Reasoning stays reasoning and text stays text, also with tags in them."""
    blocks = (Reasoning("a</think>b"), Text("<think>c</think>d"))
    received = receive(upstream, client, stream(upstream, *blocks), translates=True)
    assert received.gist == [("reasoning", "a</think>b"), ("text", "<think>c</think>d")]
    document = receive_whole(upstream, client, whole(upstream, *blocks))
    assert json.dumps(document).count("c</think>d") == 1
