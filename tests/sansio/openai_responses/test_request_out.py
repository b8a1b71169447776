"""Settings, instructions, reasoning and text formats of other protocols, written for a Responses upstream."""

from __future__ import annotations

from typing import Any

import pytest
from responses_requests import message, write

from dragoman._ir.losses import Ledger, LossCode
from dragoman._ir.request import Media, Message, ReasoningConfig, Request, ResponseFormat, Text, ToolResult
from dragoman._ir.tools import CacheMark
from dragoman.protocols.openai_responses import SPEC
from dragoman.protocols.openai_responses.capabilities import ResponsesCapabilities as Capabilities

CHAT, MESSAGES = "openai_chat", "anthropic_messages"


USER = Message("user", (Text("hi"),), "/messages/9")
USER_ITEM = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}


def test_nothing_is_stored_for_clients_of_other_protocols() -> None:
    assert write(USER, stream=True) == (
        {"model": "m", "input": [USER_ITEM], "stream": True, "store": False},
        [],
    )


def test_a_client_with_reasoning_settings_gets_encrypted_reasoning() -> None:
    body, _ = write(USER, reasoning=ReasoningConfig(effort="high"))
    assert body["include"] == ["reasoning.encrypted_content"]


def test_reasoning_of_a_model_that_is_known_to_reason_is_requested() -> None:
    capabilities = Capabilities(encrypted_reasoning=True)
    body, _ = write(USER, capabilities=capabilities)
    assert body["include"] == ["reasoning.encrypted_content"]
    body, _ = write(USER, reasoning=ReasoningConfig(effort="high"), capabilities=capabilities)
    assert body["include"] == ["reasoning.encrypted_content"]


def text_item(role: str, text: str) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": [{"type": "input_text", "text": text}]}


def test_one_plain_system_text_is_instructions() -> None:
    body, _ = write(message("system", Text("be brief")), USER)
    assert (body["instructions"], body["input"]) == ("be brief", [USER_ITEM])
    body, _ = write(message("system", Text("be brief")))
    assert (body["instructions"], body["input"]) == ("be brief", [])


def test_a_cache_mark_does_not_move_the_system_text() -> None:
    plain, marked = Text("a"), Text("a", CacheMark("/s/0/cache_control"))
    body, losses = write(message("system", marked), USER)
    assert body == write(message("system", plain), USER)[0]
    assert (body["instructions"], losses) == ("a", [(LossCode.DROPPED, "/s/0/cache_control")])
    taking = Capabilities(cache_marks="breakpoint")
    for text, mark in ((plain, {}), (marked, {"prompt_cache_breakpoint": {"mode": "explicit"}})):
        body, losses = write(message("system", text), USER, capabilities=taking)
        assert "instructions" not in body
        assert body["input"][0]["content"] == [{"type": "input_text", "text": "a", **mark}]
        assert losses == []


@pytest.mark.parametrize(
    "leading",
    [
        [message("system", Text("a")), message("system", Text("b"))],
        [message("system", Text("a")), message("developer", Text("b"))],
        [message("developer", Text("a"))],
    ],
)
def test_other_system_texts_stay_items_with_their_roles(leading: list[Message]) -> None:
    body, losses = write(*leading, USER)
    assert "instructions" not in body
    assert body["input"] == [*(text_item(m.role, m.parts[0].text) for m in leading), USER_ITEM]  # type: ignore[union-attr]
    assert losses == []


@pytest.mark.parametrize(
    ("message", "loss"),
    [
        (message("system", Text("a", citations=[1], path="/s/0")), [(LossCode.DROPPED, "/s/0/citations")]),
        (message("system", Media("image", "url", "u")), []),
    ],
)
def test_a_system_message_with_more_than_text_is_an_item(message: Message, loss: list[Any]) -> None:
    body, losses = write(message, USER)
    assert "instructions" not in body
    assert losses == loss
    assert body["input"][0]["role"] == "system"


def test_a_system_message_of_two_blocks_keeps_them_apart() -> None:
    body, _ = write(message("system", Text("a"), Text("b")), USER)
    assert body["input"][0]["content"] == [
        {"type": "input_text", "text": "a"},
        {"type": "input_text", "text": "b"},
    ]


Losses = list[tuple[LossCode, str]]
CLOSED = {
    "type": "object",
    "properties": {"a": {"type": "string"}},
    "required": ["a"],
    "additionalProperties": False,
}
OPEN = {**CLOSED, "required": []}


C, M = CHAT, MESSAGES
REASONING: list[tuple[str, ReasoningConfig, Any]] = [
    (C, ReasoningConfig(effort="low"), {"effort": "low"}),
    (C, ReasoningConfig(effort="none"), {"effort": "none"}),
    (C, ReasoningConfig(), None),
    (M, ReasoningConfig("disabled", "high"), {"effort": "none"}),
    (M, ReasoningConfig("adaptive"), {"effort": "high"}),
    (M, ReasoningConfig("adaptive", "medium", display="omitted"), {"effort": "medium"}),
    (M, ReasoningConfig("adaptive", "max", display="summarized"), {"effort": "max", "summary": "auto"}),
    (M, ReasoningConfig(effort="high"), {"effort": "high"}),
    (M, ReasoningConfig("enabled", "low", 30000), {"effort": "low"}),
    (M, ReasoningConfig("enabled", budget=1024), {"effort": "minimal"}),
    (M, ReasoningConfig("enabled", budget=4096), {"effort": "low"}),
    (M, ReasoningConfig("enabled", budget=12288), {"effort": "medium"}),
    (M, ReasoningConfig("enabled", budget=24576), {"effort": "high"}),
    (M, ReasoningConfig("enabled", budget=31999, display="omitted"), {"effort": "xhigh"}),
    (M, ReasoningConfig("enabled", budget=60000), {"effort": "max"}),
]


def test_reasoning(subtests: pytest.Subtests) -> None:
    for protocol, config, expected in REASONING:
        with subtests.test(protocol=protocol):
            body, _ = write(USER, protocol=protocol, reasoning=config)
            assert body.get("reasoning") == expected


@pytest.mark.parametrize(
    ("protocol", "config", "requesting"),
    [
        (C, ReasoningConfig(effort="low"), {"auto"}),
        (C, ReasoningConfig(effort="none"), set()),
        (C, ReasoningConfig(effort="low", display="summarized"), {"auto", "requested"}),
        (C, ReasoningConfig(effort="low", display="omitted"), set()),
        (M, ReasoningConfig(effort="low"), set()),
        (M, ReasoningConfig("adaptive"), {"auto"}),
        (M, ReasoningConfig("enabled", budget=1024, display="summarized"), {"auto", "requested"}),
        (M, ReasoningConfig("disabled", display="summarized"), set()),
    ],
)
def test_summaries_are_requested_as_the_capabilities_allow(
    protocol: str, config: ReasoningConfig, requesting: set[str]
) -> None:
    for summaries in ("auto", "requested", "never"):
        capabilities = Capabilities(summaries=summaries)
        body, _ = write(USER, capabilities=capabilities, protocol=protocol, reasoning=config)
        assert ("summary" in body["reasoning"]) is (summaries in requesting), summaries


def test_a_summary_that_is_never_requested_is_a_loss() -> None:
    config = ReasoningConfig(
        "adaptive", display="summarized", path="/thinking", display_path="/thinking/display"
    )
    _, losses = write(USER, capabilities=Capabilities(summaries="never"), protocol=M, reasoning=config)
    assert losses == [(LossCode.DROPPED, "/thinking/display")]


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        (ResponseFormat(), {"type": "json_object"}),
        (
            ResponseFormat({"type": "object"}),
            {"type": "json_schema", "name": "response", "schema": {"type": "object"}, "strict": False},
        ),
        (
            ResponseFormat(CLOSED, "n", "d", True),
            {
                "type": "json_schema",
                "name": "n",
                "schema": CLOSED,
                "description": "d",
                "strict": True,
            },
        ),
    ],
)
def test_response_format(form: ResponseFormat, expected: Any) -> None:
    body, _ = write(USER, response_format=form)
    assert body["text"] == {"format": expected}


PARAMS: list[tuple[dict[str, Any], dict[str, Any], list[Any]]] = [
    (
        {"max_output_tokens": 16, "temperature": 0, "top_p": 1},
        {"max_output_tokens": 16, "temperature": 0, "top_p": 1},
        [],
    ),
    ({"max_output_tokens": 1}, {"max_output_tokens": 16}, [(LossCode.ALTERED, "/max_output_tokens")]),
    (
        {"metadata": {"a": "b"}, "user": "u", "safety_identifier": "s"},
        {"metadata": {"a": "b"}, "user": "u", "safety_identifier": "s"},
        [],
    ),
    ({"prompt_cache_key": "k"}, {"prompt_cache_key": "k"}, []),
    ({"service_tier": "flex"}, {"service_tier": "flex"}, []),
    (
        {"service_tier": "standard_only"},
        {"service_tier": "default"},
        [(LossCode.ALTERED, "/service_tier")],
    ),
    ({"service_tier": "odd"}, {}, [(LossCode.DROPPED, "/service_tier")]),
    ({"verbosity": "low"}, {"text": {"verbosity": "low"}}, []),
    (
        {"logprobs": True, "top_logprobs": 3},
        {"include": ["message.output_text.logprobs"], "top_logprobs": 3},
        [],
    ),
    ({"logprobs": False}, {}, []),
    ({"modalities": ["text"]}, {}, []),
    ({"modalities": ["text", "audio"]}, {}, [(LossCode.DROPPED, "/modalities")]),
    ({"store": True}, {"store": True}, []),
    ({"store": False}, {}, []),
    (
        {"speed": "fast", "service_tier": "auto"},
        {"service_tier": "fast"},
        [(LossCode.DROPPED, "/service_tier")],
    ),
    ({"speed": "standard"}, {}, []),
    ({"speed": "odd"}, {}, [(LossCode.DROPPED, "/speed")]),
    (
        {"context_management": [{"type": "compaction", "compact_threshold": 9}]},
        {"context_management": [{"type": "compaction", "compact_threshold": 9}]},
        [],
    ),
    ({"prompt_cache_options": {"mode": "implicit"}}, {"prompt_cache_options": {"mode": "implicit"}}, []),
    (
        {"user": "u" * 64, "safety_identifier": "s" * 128},
        {"user": "u" * 64, "safety_identifier": "s" * 128},
        [],
    ),
    (
        {"user": "u" * 65, "safety_identifier": "s" * 129},
        {
            "user": "f20e249d15fa4b9f44ba21d154f62e1efa76ddfdce5d25139a33a4787cee5a8b",
            "safety_identifier": "e31d927ebc008be8d5cb8676e02f5b311fdb37fc1ad8c88d188a55ada7847dcc",
        },
        [(LossCode.ALTERED, "/user"), (LossCode.ALTERED, "/safety_identifier")],
    ),
    ({"mcp_servers": [{"name": "s"}]}, {}, [(LossCode.DROPPED, "/mcp_servers/0")]),
    ({"seed": 1}, {}, [(LossCode.DROPPED, "/seed")]),
    (
        {"presence_penalty": 1, "frequency_penalty": 1, "logit_bias": {}, "top_k": 3},
        {},
        [
            (LossCode.DROPPED, "/presence_penalty"),
            (LossCode.DROPPED, "/frequency_penalty"),
            (LossCode.DROPPED, "/logit_bias"),
            (LossCode.DROPPED, "/top_k"),
        ],
    ),
]


def test_settings(subtests: pytest.Subtests) -> None:
    for params, expected, losses in PARAMS:
        with subtests.test(params=params):
            plain, _ = write(USER)
            assert write(USER, params=params) == ({**plain, **expected}, losses)


DROPPED, ALTERED, UNKNOWN_KIND = LossCode.DROPPED, LossCode.ALTERED, LossCode.UNKNOWN_KIND


@pytest.mark.parametrize("protocol", [CHAT, MESSAGES])
@pytest.mark.parametrize(
    ("schema", "requested", "sent", "losses"),
    [
        (CLOSED, True, True, []),
        (CLOSED, None, False, []),
        (OPEN, True, False, [(ALTERED, "/output_config/format")]),
        (OPEN, None, False, []),
    ],
)
def test_a_response_schema_is_strict_if_it_can_be(
    protocol: str, schema: Any, requested: Any, sent: bool, losses: Losses
) -> None:
    form = ResponseFormat(schema, strict=requested, path="/output_config/format")
    body, lost = write(USER, protocol=protocol, response_format=form)
    assert (body["text"]["format"]["strict"], lost) == (sent, losses)


INSTRUCTION = {"type": "input_text", "text": "Answer with one JSON object."}


@pytest.mark.parametrize(
    ("message", "added"),
    [
        (Message("user", (Text("hi"),)), True),
        (Message("user", (Text("Give me Json, please"),)), False),
        (Message("user", (ToolResult("c", (Text("json"),)),)), True),
    ],
)
def test_the_word_json_is_in_the_input_of_requests_for_any_object(message: Message, added: bool) -> None:
    body, losses = write(message, response_format=ResponseFormat(path="/response_format"))
    last = {"type": "message", "role": "system", "content": [INSTRUCTION]}
    assert (body["input"][-1] == last) is added
    assert losses == ([(LossCode.REPAIRED, "/response_format")] if added else [])


def test_a_schema_needs_no_mention_of_json() -> None:
    assert len(write(USER, response_format=ResponseFormat(CLOSED))[0]["input"]) == 1


@pytest.mark.parametrize(
    ("config", "efforts", "sent", "losses"),
    [
        (ReasoningConfig(effort="xhigh", effort_path="/e"), ("low", "high"), "high", [(ALTERED, "/e")]),
        (ReasoningConfig(effort="low", path="/r"), ("low", "high"), "low", []),
        (ReasoningConfig("disabled", path="/r"), ("minimal", "high"), "minimal", [(ALTERED, "/r")]),
    ],
)
def test_an_effort_that_the_model_refuses_becomes_the_nearest(
    config: ReasoningConfig, efforts: Any, sent: str, losses: Losses
) -> None:
    body, lost = write(USER, protocol=MESSAGES, reasoning=config, capabilities=Capabilities(efforts=efforts))
    assert (body["reasoning"]["effort"], lost) == (sent, losses)


@pytest.mark.parametrize(
    ("config", "losses"),
    [
        (ReasoningConfig(effort="low", path="/reasoning_effort"), ["/reasoning_effort"]),
        (
            ReasoningConfig("adaptive", "low", path="/thinking", effort_path="/output_config/effort"),
            ["/thinking", "/output_config/effort"],
        ),
        (ReasoningConfig(display="summarized"), ["/reasoning"]),
        # Nothing is lost.
        (ReasoningConfig("disabled", path="/thinking"), []),
        (ReasoningConfig(effort="none"), []),
    ],
)
def test_a_model_without_reasoning_gets_no_reasoning_settings(
    config: ReasoningConfig, losses: list[str]
) -> None:
    body, lost = write(USER, reasoning=config, capabilities=Capabilities(efforts=()))
    assert not body.keys() & {"reasoning", "include"}
    assert lost == [(DROPPED, path) for path in losses]


def test_a_fast_speed_is_a_loss_if_service_tiers_are_refused() -> None:
    body, lost = write(
        USER, params={"speed": "fast"}, capabilities=Capabilities(refuses=frozenset({"service_tier"}))
    )
    assert ("service_tier" in body, lost) == (False, [(DROPPED, "/speed")])


def test_refused_defaults_are_not_sent() -> None:
    config = ReasoningConfig(effort="low")
    body, lost = write(
        USER, reasoning=config, capabilities=Capabilities(refuses=frozenset({"store", "include"}))
    )
    assert (body.keys() & {"store", "include"}, lost) == (set(), [])
    body, lost = write(
        USER, params={"logprobs": True}, capabilities=Capabilities(refuses=frozenset({"include"}))
    )
    assert ("include" in body, lost) == (False, [(DROPPED, "/logprobs")])


@pytest.mark.parametrize(
    "config",
    [
        ReasoningConfig("enabled", budget=2000, path="/thinking"),
        ReasoningConfig("disabled", "high", path="/thinking"),
    ],
)
def test_altered_reasoning_settings(config: ReasoningConfig) -> None:
    ledger = Ledger()
    message = (Message("user", (Text("hi"),), "/m"),)
    SPEC.write_request(Request("openai_chat", "m", message, reasoning=config), Capabilities(), ledger)
    assert [(loss.code.value, loss.path) for loss in ledger] == [("altered", "/thinking")]
