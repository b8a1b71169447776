"""C. Reasoning as clients request it and receive it: efforts, budgets, blocks and their events."""

from __future__ import annotations

from typing import Any

import pytest
from failures.responses import Reasoning, Text, stream
from failures.translate import each, pairs, receive, translate_request
from failures.turns import User, request
from oracle import CHAT, MESSAGES, RESPONSES
from oracle import samples as s

from dragoman import Outcome
from dragoman.protocols.anthropic_messages.capabilities import MessagesCapabilities
from dragoman.protocols.openai_chat.capabilities import ChatCapabilities

pytestmark = pytest.mark.each_protocol

Json = dict[str, Any]
OTHERS = (MESSAGES, RESPONSES)

# The settings of a Messages client -> the effort, and whether something was not heeded, which is told.
ADAPTIVE: Json = {"thinking": {"type": "adaptive"}}
ENABLED: Json = {"thinking": {"type": "enabled", "budget_tokens": 2000}}
OFF: Json = {"thinking": {"type": "disabled"}}
EXPECTED: dict[str, tuple[Json, str | None, bool]] = {
    "C10 nothing": ({}, None, False),
    "C10 only an effort": ({"output_config": {"effort": "low"}}, "low", False),
    "C10 only a budget": (ENABLED, "low", True),
    "C10 only adaptive": (ADAPTIVE, "high", False),
    "C10 adaptive and an effort": ({**ADAPTIVE, "output_config": {"effort": "max"}}, "max", False),
    "C10 a budget and an effort": ({**ENABLED, "output_config": {"effort": "xhigh"}}, "xhigh", True),
    "C5 C10 off": (OFF, "none", False),
    "C5 C10 off and an effort": ({**OFF, "output_config": {"effort": "high"}}, "none", True),
}
# The setting of a Chat upstream -> the field that disables thinking.
SWITCHED_OFF: dict[Any, Json] = {
    "reasoning_effort": {"reasoning_effort": "none"},
    "reasoning": {"reasoning": {"effort": "none"}},
    "thinking": {"thinking": {"type": "disabled"}},
    "enable_thinking": {"enable_thinking": False},
}
SETTINGS = ("reasoning_effort", "reasoning", "thinking", "enable_thinking", "thinking_budget")


def settings_of(body: Json) -> Json:
    """Return the reasoning settings of a Chat request."""
    return {key: body[key] for key in SETTINGS if key in body}


@pytest.mark.parametrize("row", EXPECTED)
def test_effort_overrides_budget_and_disabled_overrides_effort(row: str) -> None:
    """ "thinking options type cannot be disabled when reasoning_effort is set"."""
    settings, expected, told = EXPECTED[row]
    body = request(MESSAGES, User("Hi"), **settings)
    chat = translate_request(MESSAGES, CHAT, body)
    assert settings_of(chat.body) == ({} if expected is None else {"reasoning_effort": expected})
    responses = translate_request(MESSAGES, RESPONSES, body)
    assert responses.body.get("reasoning", {}).get("effort") == expected
    assert "reasoning" in responses.body or expected is None
    assert [bool(chat.losses), bool(responses.losses)] == [told, told]
    for setting, written in SWITCHED_OFF.items() if expected == "none" else ():
        for efforts in (None, ("none", "high", "max")):
            capabilities = ChatCapabilities(reasoning_setting=setting, efforts=efforts)
            sent = translate_request(MESSAGES, CHAT, body, capabilities=capabilities)
            assert (settings_of(sent.body), bool(sent.losses)) == (written, told)


@each("client", (CHAT, RESPONSES))
@pytest.mark.parametrize("thinking", ["adaptive", "budget"])
def test_C5_disabled_thinking_for_messages(client: str, thinking: Any) -> None:
    """The effort "none" becomes no thinking at all."""
    body = request(client, User("Hi"), **effort(client, "none"))
    sent = translate_request(
        client, MESSAGES, body, capabilities=MessagesCapabilities(thinking=thinking)
    ).body
    assert sent.get("thinking", OFF["thinking"]) == OFF["thinking"]
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
def test_C6_C7_reasoning_comes_before_the_text_with_all_its_events(field: str) -> None:
    """ "reasoning part not found": a strict client requires every event, with one id."""
    data, gist = thinking_stream(field), [("reasoning", "Hmm."), ("text", "Yes.")]
    received = receive(CHAT, MESSAGES, data)
    assert received.gist == gist
    deltas = [event["delta"]["type"] for event in received.of("content_block_delta")]
    assert deltas == [*["thinking_delta"] * 2, "signature_delta", *["text_delta"] * 2]
    received = receive(CHAT, RESPONSES, data)
    assert received.gist == gist
    events = [event for event in received.events if event.get("output_index") == 0]
    assert [event["type"].removeprefix("response.") for event in events] == LIFE
    assert len({event.get("item_id") or event["item"]["id"] for event in events}) == 1
    assert {event.get("summary_index", 0) for event in events} == {0}
    done = events[-1]["item"]
    assert done["summary"] == [{"type": "summary_text", "text": "Hmm."}]
    assert received.of("completed")[0]["response"]["output"][0] == done


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


EFFORTS = ("minimal", "low", "medium", "high", "xhigh", "max")
LIMIT_NAMES = {CHAT: "max_completion_tokens", RESPONSES: "max_output_tokens"}


@each("client", (CHAT, RESPONSES))
def test_C8_a_budget_lies_between_1024_and_the_limit(client: str) -> None:
    """More effort is never less. Where even the smallest does not fit, the limit is raised, and that is reported."""
    for limit in (1, 100, 1024, 1025, 2000, 4096, 64_000):
        budgets = []
        for word in EFFORTS:
            body = request(client, User("Hi"), **effort(client, word), **{LIMIT_NAMES[client]: limit})
            requested = translate_request(
                client, MESSAGES, body, capabilities=MessagesCapabilities(thinking="budget")
            )
            sent = requested.body
            assert sent["thinking"]["type"] == "enabled"
            budgets.append(sent["thinking"]["budget_tokens"])
            assert 1024 <= budgets[-1] < sent["max_tokens"]
            raised = limit <= 1024
            assert (sent["max_tokens"] > limit) is raised
            assert (f"/{LIMIT_NAMES[client]}" in requested.losses) is raised
            assert raised or sent["max_tokens"] == limit
        assert budgets == sorted(budgets)
    assert len(set(budgets)) == len(EFFORTS), "within a large limit each is different"


@each("client", (CHAT, RESPONSES))
def test_C8_adaptive_models_get_the_effort(client: str) -> None:
    for word in EFFORTS[1:]:
        body = request(client, User("Hi"), **effort(client, word), **{LIMIT_NAMES[client]: 100})
        sent = translate_request(client, MESSAGES, body).body
        assert (sent["output_config"], sent["max_tokens"]) == ({"effort": word}, 100)
        assert sent["thinking"]["type"] == "adaptive"
        assert "budget_tokens" not in sent["thinking"]


# Settings of sampling -> those that are sent to a model that thinks, and the losses.
SAMPLING: list[tuple[Json, Json, set[str]]] = [
    ({"temperature": 0}, {}, {"/temperature"}),
    ({"temperature": 0.5}, {}, {"/temperature"}),
    ({"temperature": 1.5}, {"temperature": 1}, {"/temperature"}),
    ({"temperature": 1}, {"temperature": 1}, set()),
    ({"top_k": 40, "top_p": 0.5}, {}, {"/top_k", "/top_p"}),
    ({"top_k": 40, "top_p": 0.95}, {"top_p": 0.95}, {"/top_k"}),
]


@pytest.mark.parametrize("thinking", ["adaptive", "budget"])
def test_C9_sampling_settings_that_thinking_forbids_are_dropped(thinking: Any) -> None:
    """ "`temperature` may only be set to 1 when thinking is enabled": it is dropped, and the ledger has it."""
    capabilities = MessagesCapabilities(thinking=thinking)
    for settings, kept, lost in SAMPLING:
        for client in (CHAT,) if "top_k" in settings else (CHAT, RESPONSES):
            body = request(client, User("Hi"), **effort(client, "high"), **settings)
            requested = translate_request(client, MESSAGES, body, capabilities=capabilities)
            assert requested.body["thinking"]["type"] in ("adaptive", "enabled")
            assert {name: requested.body[name] for name in settings if name in requested.body} == kept
            assert {path for path in requested.losses if path.strip("/") in settings} == lost


@each("client", (CHAT, RESPONSES))
@pytest.mark.parametrize("word", [None, "none"])
def test_C9_without_thinking_sampling_settings_are_sent(client: str, word: str | None) -> None:
    settings = effort(client, word) if word else {}
    body = request(client, User("Hi"), **settings, temperature=0.5, top_p=0.5)
    sent = translate_request(client, MESSAGES, body).body
    assert (sent["temperature"], sent["top_p"]) == (0.5, 0.5)


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
