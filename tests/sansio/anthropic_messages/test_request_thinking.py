"""Thinking and effort for an upstream, and the settings that thinking forbids."""

from __future__ import annotations

from typing import Any

import pytest
from core.same_protocol import read_same_protocol

from dragoman._ir.events import Signature
from dragoman._ir.losses import Ledger
from dragoman._ir.request import (
    Message,
    Part,
    Reasoning,
    ReasoningConfig,
    Request,
    Text,
    ToolCall,
    ToolResult,
)
from dragoman._ir.tools import FunctionTool
from dragoman._wire.json import decode, encode
from dragoman.protocols.anthropic_messages import SPEC
from dragoman.protocols.anthropic_messages.capabilities import MessagesCapabilities as Capabilities

NAME = "anthropic_messages"
USER = Message("user", (Text("Hi"),), "/m/0")
TOOL = FunctionTool("f", "d", {"type": "object", "properties": {}}, path="/tools/0")
ADAPTIVE = Capabilities(thinking="adaptive")
BUDGET = Capabilities(thinking="budget", max_tokens=40000)
NO_THINKING = Capabilities(thinking="none")
TWO_EFFORTS = Capabilities(efforts=("low", "high"))
FOUR_EFFORTS = Capabilities(efforts=("none", "minimal", "low", "max"))


def write(*messages: Message, capabilities: Capabilities, **fields: Any) -> tuple[Any, Any]:
    ledger = Ledger()
    request = Request("other", "m", messages or (USER,), **fields)
    body = decode(encode(SPEC.write_request(request, capabilities, ledger)))
    return body, [(loss.code.value, loss.path) for loss in ledger]


def effort(word: str, **fields: Any) -> ReasoningConfig:
    return ReasoningConfig(effort=word, path="/r", effort_path="/e", **fields)


def on(budget: int, **fields: Any) -> dict[str, Any]:
    return {"type": "enabled", "budget_tokens": budget, **fields}


LOOP = [
    {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {}}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "r"}]},
]


@pytest.mark.parametrize(("messages", "has_thinking"), [(LOOP, False), (LOOP[:1], True)])
def test_a_budget_is_dropped_in_a_tool_loop_whose_reasoning_is_missing(
    messages: list[Any], has_thinking: bool
) -> None:
    """This applies to requests of this protocol, too, from which an earlier pass drops foreign signatures."""
    thinking = {"type": "enabled", "budget_tokens": 2000}
    body = {"model": "m", "max_tokens": 9000, "thinking": thinking, "messages": messages}
    ledger = Ledger()
    budget = Capabilities(thinking="budget")
    written = SPEC.write_request(read_same_protocol(SPEC, body), budget, ledger)
    assert ("thinking" in written) is has_thinking
    assert [loss.path for loss in ledger] == ([] if has_thinking else ["/thinking"])


THINKING_EFFORT: list[tuple[Capabilities, Any, Any, Any, Any]] = [
    (ADAPTIVE, None, None, None, []),
    (ADAPTIVE, effort("none"), {"type": "disabled"}, None, []),
    (ADAPTIVE, effort("minimal"), {"type": "adaptive"}, "low", [("altered", "/e")]),
    (ADAPTIVE, effort("low"), {"type": "adaptive"}, "low", []),
    (ADAPTIVE, effort("medium"), {"type": "adaptive"}, "medium", []),
    (ADAPTIVE, effort("high"), {"type": "adaptive"}, "high", []),
    (ADAPTIVE, effort("xhigh"), {"type": "adaptive"}, "xhigh", []),
    (
        ADAPTIVE,
        effort("max", display="summarized"),
        {"type": "adaptive", "display": "summarized"},
        "max",
        [],
    ),
    # a future effort
    (ADAPTIVE, effort("ultra"), {"type": "adaptive"}, "ultra", []),
    (ADAPTIVE, ReasoningConfig("adaptive"), {"type": "adaptive"}, None, []),
    (ADAPTIVE, ReasoningConfig(display="omitted"), {"type": "adaptive", "display": "omitted"}, None, []),
    (ADAPTIVE, ReasoningConfig("disabled"), {"type": "disabled"}, None, []),
    # C5 off, so no effort
    (
        ADAPTIVE,
        ReasoningConfig("disabled", "high", path="/r"),
        {"type": "disabled"},
        None,
        [("altered", "/r")],
    ),
    # C5 off, so no budget
    (
        ADAPTIVE,
        ReasoningConfig("disabled", budget=2048),
        {"type": "disabled"},
        None,
        [("altered", "/reasoning")],
    ),
    # C10 effort wins over budget
    (
        ADAPTIVE,
        ReasoningConfig("enabled", "low", 9, path="/r"),
        {"type": "adaptive"},
        "low",
        [("altered", "/r")],
    ),
    *[
        # C8 a budget in tokens is an effort
        (
            ADAPTIVE,
            ReasoningConfig("enabled", budget=budget),
            {"type": "adaptive"},
            word,
            [("altered", "/reasoning")],
        )
        for budget, word in (
            (1024, "low"),
            (4096, "low"),
            (12288, "medium"),
            (24576, "high"),
            (49152, "xhigh"),
            (49153, "max"),
        )
    ],
    (TWO_EFFORTS, effort("max"), {"type": "adaptive"}, "high", [("altered", "/e")]),
    (TWO_EFFORTS, effort("none"), None, "low", [("altered", "/e")]),
    (FOUR_EFFORTS, effort("none"), {"type": "disabled"}, None, []),
    (FOUR_EFFORTS, effort("minimal"), {"type": "adaptive"}, "low", [("altered", "/e")]),
    (Capabilities(efforts=()), effort("max"), {"type": "adaptive"}, "max", []),
    (BUDGET, effort("none"), None, None, []),
    (BUDGET, effort("minimal"), on(1024), None, []),
    (BUDGET, effort("low"), on(2048), None, []),
    (BUDGET, effort("medium"), on(8192), None, []),
    (BUDGET, effort("high"), on(16384), None, []),
    # C8 below max_tokens
    # with room for the answer, unless all is requested
    (BUDGET, effort("xhigh"), on(30000), None, [("altered", "/e")]),
    (BUDGET, effort("max"), on(39999), None, []),
    (BUDGET, ReasoningConfig(budget=50000, path="/r"), on(39999), None, [("altered", "/r")]),
    (BUDGET, effort("ultra"), on(16384), None, [("altered", "/e")]),
    # C8 not under 1024
    (BUDGET, ReasoningConfig(budget=100, path="/r"), on(1024), None, [("altered", "/r")]),
    (BUDGET, ReasoningConfig(budget=5000), on(5000), None, []),
    # C10 effort wins over budget, again
    (BUDGET, ReasoningConfig("enabled", "low", 9, path="/r"), on(2048), None, [("altered", "/r")]),
    (BUDGET, ReasoningConfig("adaptive"), on(16384), None, []),
    (BUDGET, ReasoningConfig(display="summarized"), None, None, [("dropped", "/reasoning")]),
    (NO_THINKING, effort("none"), None, None, []),
    (NO_THINKING, effort("high"), None, None, [("dropped", "/r")]),
]


def test_thinking_and_effort(subtests: pytest.Subtests) -> None:
    for capabilities, config, thinking, written_effort, losses in THINKING_EFFORT:
        with subtests.test(capabilities=capabilities, config=config):
            body, recorded = write(capabilities=capabilities, reasoning=config)
            assert body.get("thinking") == thinking
            assert body.get("output_config", {}).get("effort") == written_effort
            assert recorded == losses
            if thinking is not None and "budget_tokens" in thinking:
                assert 1024 <= thinking["budget_tokens"] < body["max_tokens"]


@pytest.mark.parametrize(
    ("limit", "budget", "max_tokens", "losses"),
    [
        (4000, 3000, 4000, [("altered", "/e")]),
        (2000, 1500, 2000, [("altered", "/e")]),
        (1025, 1024, 1025, [("altered", "/e")]),
        (500, 1024, 1524, [("altered", "/limit"), ("altered", "/e")]),
    ],
)
def test_a_budget_with_a_limit(limit: int, budget: int, max_tokens: int, losses: Any) -> None:
    body, recorded = write(
        capabilities=BUDGET,
        reasoning=effort("high", display="omitted"),
        params={"max_output_tokens": limit},
        param_paths={"max_output_tokens": "/limit"},
    )
    assert body["thinking"] == on(budget, display="omitted")
    assert body["max_tokens"] == max_tokens
    assert recorded == losses


REASONING = Reasoning("hm", Signature(NAME, {"type": "thinking", "thinking": "hm", "signature": "s"}))
CALL = ToolCall("1", "f", "{}", path="/a/1")
RESULT = Message("user", (ToolResult("1", (Text("ok"),)),), "/r")


def assistant(*parts: Part) -> Message:
    return Message("assistant", parts, "/a")


@pytest.mark.parametrize(
    ("messages", "has_thinking"),
    [
        pytest.param([USER, assistant(REASONING, CALL), RESULT], True, id="C1 its reasoning came back"),
        pytest.param([USER, assistant(CALL), RESULT], False, id="C1 its reasoning did not come back"),
        ([USER, assistant(CALL), RESULT, assistant(Text("So.")), USER], True),
        ([USER, assistant(Text("So.")), USER], True),
        ([USER, assistant(Text("So."))], True),
    ],
)
def test_a_tool_loop_that_began_without_thinking_continues_without_it(
    messages: Any, has_thinking: bool
) -> None:
    body, losses = write(*messages, capabilities=BUDGET, tools=(TOOL,), reasoning=effort("low"))
    assert ("thinking" in body) is has_thinking
    assert losses == ([] if has_thinking else [("altered", "/r")])


@pytest.mark.parametrize(
    ("params", "capabilities", "config", "left", "losses"),
    [
        ({"temperature": 1, "top_k": 3}, Capabilities(sampling=False), None, {}, ["/temperature", "/top_k"]),
        pytest.param(
            {"temperature": 0.5, "top_p": 0.5, "top_k": 3},
            ADAPTIVE,
            effort("low"),
            {},
            ["/temperature", "/top_p", "/top_k"],
            id="C9 values that thinking forbids",
        ),
        pytest.param(
            {"temperature": 1, "top_p": 0.95},
            BUDGET,
            effort("low"),
            {"temperature": 1, "top_p": 0.95},
            [],
            id="C9 values that thinking takes",
        ),
        ({"temperature": 0.5}, ADAPTIVE, effort("none"), {"temperature": 0.5}, []),
    ],
)
def test_sampling_beside_thinking(
    params: Any, capabilities: Capabilities, config: Any, left: Any, losses: list[str]
) -> None:
    body, recorded = write(capabilities=capabilities, params=params, reasoning=config)
    assert {key: body[key] for key in ("temperature", "top_p", "top_k") if key in body} == left
    assert recorded == [("dropped", path) for path in losses]
