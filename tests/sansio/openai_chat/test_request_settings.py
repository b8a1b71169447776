"""Settings: the dialects in which clients request reasoning, and what each kind of upstream gets."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import pytest
from chat_requests import write

from dragoman._ir.request import ReasoningConfig
from dragoman._ir.tools import FunctionTool
from dragoman.protocols.openai_chat.capabilities import ChatCapabilities as Capabilities

# -- reasoning for upstreams ------------------------------------------------------------------------------


EFFORT = ReasoningConfig(effort="xhigh", path="/reasoning", effort_path="/reasoning/effort")
BUDGET = ReasoningConfig("enabled", None, 9000, path="/thinking")
BOTH = ReasoningConfig("enabled", "low", 9000, path="/thinking", effort_path="/output_config/effort")
ADAPTIVE = ReasoningConfig("adaptive", path="/thinking")
OFF = ReasoningConfig("disabled", path="/thinking")
NONE = ReasoningConfig(effort="none", path="/reasoning_effort")


WRITE_REASONING: list[tuple[Any, ReasoningConfig, Any, Any]] = [
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
]


def test_write_reasoning(subtests: pytest.Subtests) -> None:
    for setting, config, expected, losses in WRITE_REASONING:
        with subtests.test(setting=setting):
            body, found = write(reasoning=config, capabilities=Capabilities(reasoning_setting=setting))
            assert body == {"model": "m", "messages": [], **expected}
            assert found == losses


def test_the_thinking_type_is_the_upstreams() -> None:
    # "invalid thinking.type: "enabled" (allowed: adaptive, disabled) (2013)"
    capabilities = Capabilities(reasoning_setting="thinking", thinking_type="adaptive")
    assert write(reasoning=ADAPTIVE, capabilities=capabilities)[0]["thinking"] == {"type": "adaptive"}
    assert write(reasoning=OFF, capabilities=capabilities)[0]["thinking"] == {"type": "disabled"}


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
    capabilities = Capabilities(tools_with_effort=False, efforts=efforts)
    body, found = write(tools=tools, reasoning=config, capabilities=capabilities)
    assert body.get("reasoning_effort") == expected
    assert found == losses


@pytest.mark.parametrize("setting", ["thinking", "enable_thinking"])
def test_c5_no_effort_is_sent_beside_disabled_thinking(setting: Any) -> None:
    config = ReasoningConfig("disabled", "high", path="/thinking", effort_path="/output_config/effort")
    body, losses = write(
        reasoning=config, capabilities=Capabilities(reasoning_setting=setting, efforts=("high", "max"))
    )
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
        # The model accepts efforts beside the switch.
        (
            "thinking",
            ReasoningConfig(effort="low", path="/e"),
            {"thinking": {"type": "enabled"}, "reasoning_effort": "low"},
            [],
        ),
    ],
)
def test_efforts_are_fitted_to_the_model(setting: Any, config: Any, expected: Any, losses: Any) -> None:
    capabilities = Capabilities(reasoning_setting=setting, efforts=("low", "medium", "high"))
    body, found = write(reasoning=config, capabilities=capabilities)
    assert body == {"model": "m", "messages": [], **expected}
    assert found == losses


@pytest.mark.parametrize("show", ["summarized", "omitted"])
def test_the_display_of_reasoning_is_a_loss(show: Any) -> None:
    body, losses = write(reasoning=ReasoningConfig(display=show, path="/reasoning"))
    assert body == {"model": "m", "messages": []}
    assert losses == [("dropped", "/reasoning")]
    _, losses = write(
        reasoning=ReasoningConfig(display=show, path="/reasoning", display_path="/reasoning/summary")
    )
    assert losses == [("dropped", "/reasoning/summary")]


# -- plain settings ---------------------------------------------------------------------------------------


WRITE_SETTINGS: list[tuple[Any, Any, Any]] = [
    ({"temperature": 0, "top_k": 5, "seed": 1}, {"temperature": 0, "top_k": 5, "seed": 1}, []),
    ({"max_output_tokens": 9}, {"max_completion_tokens": 9}, []),
    ({"stop": "a"}, {"stop": "a"}, []),
    ({"user": "u" * 64}, {"user": "u" * 64}, []),
    # Claude Code's has device, account and session; OpenAI's limit is 64.
    ({"user": "u" * 65}, {"user": sha256(b"u" * 65).hexdigest()}, [("altered", "/user")]),
    ({"safety_identifier": "u" * 128}, {"safety_identifier": "u" * 128}, []),
    (
        {"safety_identifier": "u" * 129},
        {"safety_identifier": sha256(b"u" * 129).hexdigest()},
        [("altered", "/safety_identifier")],
    ),
    ({"metadata": {"user_id": "u"}}, {"metadata": {"user_id": "u"}}, []),
    ({"metadata": {"k": "v"}}, {"metadata": {"k": "v"}}, []),
    ({"service_tier": "flex"}, {"service_tier": "flex"}, []),
    ({"service_tier": "standard_only"}, {"service_tier": "default"}, [("altered", "/service_tier")]),
    ({"service_tier": "odd"}, {}, [("dropped", "/service_tier")]),
    ({"speed": "fast"}, {"service_tier": "fast"}, []),
    ({"speed": "standard"}, {}, []),
    ({"speed": "slow"}, {}, [("dropped", "/speed")]),
    ({"speed": "fast", "service_tier": "auto"}, {"service_tier": "fast"}, [("dropped", "/service_tier")]),
    ({"service_tier": "auto", "speed": "fast"}, {"service_tier": "fast"}, [("dropped", "/service_tier")]),
    ({"prompt_cache_options": {"mode": "implicit"}}, {}, [("dropped", "/prompt_cache_options")]),
    ({"top_logprobs": 2}, {"top_logprobs": 2, "logprobs": True}, []),
    (
        {"include": ["message.output_text.logprobs", "reasoning.encrypted_content", "x"]},
        {"logprobs": True},
        [("dropped", "/include/2")],
    ),
    ({"include": "x"}, {}, []),
    ({"background": False}, {}, []),
    ({"truncation": "auto"}, {}, [("dropped", "/truncation")]),
]


def test_write_settings(subtests: pytest.Subtests) -> None:
    for params, expected, losses in WRITE_SETTINGS:
        with subtests.test(params=params):
            body, found = write(params=params)
            assert body == {"model": "m", "messages": [], **expected}
            assert found == losses


def test_i7_the_limit_has_the_upstreams_name() -> None:
    body, _ = write(params={"max_output_tokens": 9}, capabilities=Capabilities(max_tokens_field="max_tokens"))
    assert body["max_tokens"] == 9


def test_a_fast_speed_is_dropped_where_service_tiers_are_refused() -> None:
    capabilities = Capabilities(refuses=frozenset({"service_tier"}))
    for speed, expected in (("fast", [("dropped", "/speed")]), ("standard", [])):
        body, losses = write(params={"speed": speed}, capabilities=capabilities)
        assert ("service_tier" in body, losses) == (False, expected)


def test_logprobs_that_are_refused_are_not_included() -> None:
    # "a 400 error will be returned"
    capabilities = Capabilities(refuses=frozenset({"logprobs", "top_logprobs"}))
    body, losses = write(params={"include": ["message.output_text.logprobs"]}, capabilities=capabilities)
    assert ("logprobs" in body, losses) == (False, [("dropped", "/include")])
