"""Reasoning and structured output: the dialects of clients, and what each kind of upstream is asked."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman._ir.losses import Ledger
from dragoman._ir.request import (
    FunctionTool,
    Message,
    ReasoningConfig,
    Request,
    ResponseFormat,
    Text,
)
from dragoman._ir.signatures import Sealer
from dragoman.codec import Target
from dragoman.protocols.openai_chat import SPEC


def read(**body: Any) -> Request:
    return SPEC.read_request({"model": "m", "messages": [], **body}, Sealer())


def write(*messages: Message, target: Target = Target(), **fields: Any) -> tuple[dict[str, Any], list[Any]]:
    """The body for a request of another protocol, and the losses as (code, path)."""
    ledger = Ledger()
    body = SPEC.write_request(Request("other", "m", messages, {}, **fields), target, ledger)
    return body, [(loss.code.value, loss.path) for loss in ledger]


# -- what clients say of reasoning -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "expected", "extra"),
    [
        # Of two that say the same there is one; of two that do not, the first counts and the other is told.
        ({"enable_thinking": False, "thinking": {"type": "disabled"}}, ("disabled", None, None), None),
        ({"enable_thinking": True, "thinking": {"type": "enabled"}}, ("enabled", None, None), None),
        (
            {"enable_thinking": True, "thinking": {"type": "disabled"}},
            ("disabled", None, None),
            {"enable_thinking": True},
        ),
        (
            {"thinking": {"type": "enabled", "budget_tokens": 5}, "thinking_budget": 6},
            ("enabled", None, 5),
            {"thinking_budget": 6},
        ),
        (
            {"chat_template_kwargs": {"enable_thinking": True, "thinking": False, "custom": 1}},
            ("adaptive", None, None),
            {"chat_template_kwargs": {"custom": 1, "thinking": False}},
        ),
        ({"chat_template_kwargs": {"custom": 1}}, None, {"chat_template_kwargs": {"custom": 1}}),
        ({"enable_thinking": "yes"}, None, {"enable_thinking": "yes"}),
        ({"include_reasoning": "yes"}, None, {"include_reasoning": "yes"}),
        ({"reasoning": {"exclude": "yes"}}, None, {"reasoning": {"exclude": "yes"}}),
        ({"reasoning_effort": "low", "enable_thinking": True}, ("adaptive", "low", None), None),
    ],
)
def test_dialects_of_reasoning_are_read_in_one_order(body: Any, expected: Any, extra: Any) -> None:
    request = read(**body)
    config = request.reasoning
    assert (config and (config.mode, config.effort, config.budget)) == expected
    assert request.extra == extra


def test_reasoning_in_any_dialect_is_printed_again() -> None:
    body = {
        "enable_thinking": True,
        "thinking_budget": 5,
        "chat_template_kwargs": {"thinking": True, "custom": 1},
        "include_reasoning": False,
        "reasoning": {"exclude": True},
        "response_format": {"type": "json_object"},
    }
    ledger = Ledger()
    out = SPEC.write_request(read(**body), Target(), ledger)
    assert {key: out[key] for key in body} == body
    assert len(ledger) == 0


# -- what upstreams are asked ------------------------------------------------------------------------------

EFFORT = ReasoningConfig(effort="xhigh", path="/reasoning", effort_path="/reasoning/effort")
BUDGET = ReasoningConfig("enabled", None, 9000, path="/thinking")
BOTH = ReasoningConfig("enabled", "low", 9000, path="/thinking", effort_path="/output_config/effort")
ADAPTIVE = ReasoningConfig("adaptive", path="/thinking")
OFF = ReasoningConfig("disabled", path="/thinking")
NONE = ReasoningConfig(effort="none", path="/reasoning_effort")


@pytest.mark.parametrize(
    ("setting", "config", "expected", "losses"),
    [
        ("reasoning_effort", EFFORT, {"reasoning_effort": "xhigh"}, []),
        ("reasoning_effort", BUDGET, {"reasoning_effort": "medium"}, [("altered", "/thinking")]),
        ("reasoning_effort", BOTH, {"reasoning_effort": "low"}, [("altered", "/thinking")]),
        ("reasoning_effort", ADAPTIVE, {"reasoning_effort": "high"}, []),
        ("reasoning_effort", OFF, {"reasoning_effort": "none"}, []),
        ("reasoning_effort", NONE, {"reasoning_effort": "none"}, []),
        ("reasoning", EFFORT, {"reasoning": {"effort": "xhigh"}}, []),
        ("reasoning", BUDGET, {"reasoning": {"max_tokens": 9000}}, []),
        ("reasoning", BOTH, {"reasoning": {"effort": "low"}}, [("altered", "/thinking")]),
        ("reasoning", OFF, {"reasoning": {"effort": "none"}}, []),
        ("thinking", EFFORT, {"thinking": {"type": "enabled"}}, [("altered", "/reasoning/effort")]),
        ("thinking", BUDGET, {"thinking": {"type": "enabled"}}, [("altered", "/thinking")]),
        ("thinking", ADAPTIVE, {"thinking": {"type": "enabled"}}, []),
        ("thinking", OFF, {"thinking": {"type": "disabled"}}, []),
        ("enable_thinking", ADAPTIVE, {"enable_thinking": True}, []),
        ("enable_thinking", NONE, {"enable_thinking": False}, []),
        (None, EFFORT, {}, [("dropped", "/reasoning/effort")]),
        (None, OFF, {}, [("dropped", "/thinking")]),
        (None, BOTH, {}, [("dropped", "/output_config/effort"), ("dropped", "/thinking")]),
    ],
)
def test_reasoning_is_asked_for_in_the_upstreams_way(
    setting: Any, config: ReasoningConfig, expected: Any, losses: Any
) -> None:
    body, found = write(reasoning=config, target=Target(reasoning_setting=setting))
    assert body == {"model": "m", "messages": [], **expected}
    assert found == losses


def test_the_word_for_thinking_is_the_upstreams() -> None:
    # "invalid thinking.type: "enabled" (allowed: adaptive, disabled) (2013)"
    target = Target(reasoning_setting="thinking", thinking_word="adaptive")
    assert write(reasoning=ADAPTIVE, target=target)[0]["thinking"] == {"type": "adaptive"}
    assert write(reasoning=OFF, target=target)[0]["thinking"] == {"type": "disabled"}


@pytest.mark.parametrize(
    ("tools", "efforts", "config", "expected", "losses"),
    [
        ((FunctionTool("f"),), None, EFFORT, "none", [("altered", "/reasoning/effort")]),
        ((FunctionTool("f"),), ("none", "low"), BUDGET, "none", [("altered", "/thinking")]),
        pytest.param(
            (FunctionTool("f"),),
            ("low", "high"),
            EFFORT,
            None,
            [("altered", "/reasoning/effort")],
            id="a model without none",
        ),
        ((FunctionTool("f"),), None, NONE, "none", []),
        ((FunctionTool("f"),), None, None, None, []),
        ((), None, EFFORT, "xhigh", []),
    ],
)
def test_an_effort_beside_tools(tools: Any, efforts: Any, config: Any, expected: Any, losses: Any) -> None:
    target = Target(tools_with_effort=False, efforts=efforts)
    body, found = write(tools=tools, reasoning=config, target=target)
    assert body.get("reasoning_effort") == expected
    assert found == losses


@pytest.mark.parametrize("setting", ["thinking", "enable_thinking"])
def test_c5_no_effort_goes_beside_thinking_that_is_off(setting: Any) -> None:
    config = ReasoningConfig("disabled", "high", path="/thinking", effort_path="/output_config/effort")
    body, losses = write(reasoning=config, target=Target(reasoning_setting=setting, efforts=("high", "max")))
    assert body == {
        "model": "m",
        "messages": [],
        setting: {"type": "disabled"} if setting == "thinking" else False,
    }
    assert losses == [("dropped", "/output_config/effort")]


@pytest.mark.parametrize(
    ("setting", "config", "expected", "losses"),
    [
        ("reasoning_effort", EFFORT, {"reasoning_effort": "high"}, [("altered", "/reasoning/effort")]),
        ("reasoning_effort", OFF, {"reasoning_effort": "low"}, [("altered", "/thinking")]),
        ("reasoning", ADAPTIVE, {"reasoning": {"effort": "high"}}, []),
        # A switch beside which the model takes efforts, too.
        (
            "thinking",
            ReasoningConfig(effort="low", path="/e"),
            {"thinking": {"type": "enabled"}, "reasoning_effort": "low"},
            [],
        ),
    ],
)
def test_efforts_are_fitted_to_the_model(setting: Any, config: Any, expected: Any, losses: Any) -> None:
    target = Target(reasoning_setting=setting, efforts=("low", "medium", "high"))
    body, found = write(reasoning=config, target=target)
    assert body == {"model": "m", "messages": [], **expected}
    assert found == losses


def test_c10_effort_wins_over_a_budget() -> None:
    assert write(reasoning=BOTH)[0]["reasoning_effort"] == "low"


@pytest.mark.parametrize("show", ["summarized", "omitted"])
def test_whether_reasoning_is_shown_is_up_to_the_upstream(show: Any) -> None:
    body, losses = write(reasoning=ReasoningConfig(show=show, path="/reasoning"))
    assert body == {"model": "m", "messages": []}
    assert losses == [("dropped", "/reasoning")]
    _, losses = write(reasoning=ReasoningConfig(show=show, path="/reasoning", show_path="/reasoning/summary"))
    assert losses == [("dropped", "/reasoning/summary")]


# -- structured output -------------------------------------------------------------------------------------

CLOSED = {
    "type": "object",
    "properties": {"a": {"type": "string"}},
    "required": ["a"],
    "additionalProperties": False,
}
OPEN = {"type": "object"}


@pytest.mark.parametrize(
    ("form", "expected", "losses"),
    [
        (
            ResponseFormat(CLOSED, path="/output_config/format"),
            {"name": "response", "schema": CLOSED},
            [],
        ),
        (
            ResponseFormat(CLOSED, "n", "d", True, path="/text/format"),
            {"name": "n", "description": "d", "schema": CLOSED, "strict": True},
            [],
        ),
        (ResponseFormat(OPEN, "n", strict=False), {"name": "n", "schema": OPEN, "strict": False}, []),
        # The server would refuse the request for the sake of `strict`.
        (
            ResponseFormat(OPEN, "n", strict=True, path="/text/format"),
            {"name": "n", "schema": OPEN, "strict": False},
            [("altered", "/text/format")],
        ),
    ],
)
def test_schemas_are_strict_where_the_server_takes_them_so(form: Any, expected: Any, losses: Any) -> None:
    body, found = write(response_format=form)
    assert body["response_format"] == {"type": "json_schema", "json_schema": expected}
    assert found == losses


INSTRUCTION = "Answer with one JSON object."
TOLD = [("altered", "/text/format")]


@pytest.mark.parametrize(
    ("messages", "expected", "losses"),
    [
        ((Message("user", (Text("As json, please"),)),), None, []),
        ((Message("user", (Text("a"), Text("As JSON"))),), None, []),
        (
            (Message("user", (Text("Go"),)),),
            [{"role": "system", "content": INSTRUCTION}, {"role": "user", "content": "Go"}],
            TOLD,
        ),
        ((), [{"role": "system", "content": INSTRUCTION}], TOLD),
        (
            (Message("system", (Text("Be terse"),)),),
            [{"role": "system", "content": f"Be terse\n\n{INSTRUCTION}"}],
            TOLD,
        ),
        (
            (Message("system", (Text("a"), Text("b"))),),
            [{"role": "system", "content": f"a\n\nb\n\n{INSTRUCTION}"}],
            TOLD,
        ),
    ],
)
def test_the_word_json_stands_in_the_messages(messages: Any, expected: Any, losses: Any) -> None:
    body, found = write(*messages, response_format=ResponseFormat(path="/text/format"))
    assert body["response_format"] == {"type": "json_object"}
    assert expected is None or body["messages"] == expected
    assert found == losses


def test_the_word_json_stands_in_a_part_of_its_own_beside_other_parts() -> None:
    message = Message("system", (Text("a"), Text("b")))
    body, _ = write(message, target=Target(text_content="parts"), response_format=ResponseFormat())
    assert body["messages"][0]["content"] == [
        {"type": "text", "text": text} for text in ("a", "b", INSTRUCTION)
    ]


def test_a_fast_speed_is_a_service_tier_where_one_is_taken() -> None:
    target = Target(refuses=frozenset({"service_tier"}))
    for speed, expected in (("fast", [("dropped", "/speed")]), ("standard", [])):
        body, losses = write(params={"speed": speed}, target=target)
        assert ("service_tier" in body, losses) == (False, expected)


def test_logprobs_that_are_refused_are_not_included() -> None:
    # "a 400 error will be returned"
    target = Target(refuses=frozenset({"logprobs", "top_logprobs"}))
    body, losses = write(params={"include": ["message.output_text.logprobs"]}, target=target)
    assert ("logprobs" in body, losses) == (False, [("dropped", "/include")])
