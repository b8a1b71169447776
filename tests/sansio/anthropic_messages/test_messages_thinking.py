"""Reasoning settings: how clients of this protocol say them, and what upstreams are told."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman._ir.events import Seal
from dragoman._ir.losses import Ledger
from dragoman._ir.request import (
    FunctionTool,
    Message,
    Part,
    ReasoningConfig,
    Request,
    Text,
    Thought,
    ToolCall,
    ToolResult,
)
from dragoman._ir.signatures import Sealer
from dragoman._wire.json import decode, encode
from dragoman.codec import Target
from dragoman.protocols.anthropic_messages import SPEC

NAME = "anthropic_messages"
USER = Message("user", (Text("Hi"),), "/m/0")
TOOL = FunctionTool("f", "d", {"type": "object", "properties": {}}, path="/tools/0")
ADAPTIVE = Target(thinking="adaptive")
BUDGET = Target(thinking="budget", max_tokens=20000)
NONE = Target(thinking="none")
FEW = Target(efforts=("low", "high"))
FIVE = Target(efforts=("none", "minimal", "low", "max"))


def write(*messages: Message, target: Target, **fields: Any) -> tuple[Any, Any]:
    ledger = Ledger()
    request = Request("other", "m", messages or (USER,), {}, **fields)
    body = decode(encode(SPEC.write_request(request, target, ledger)))
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


@pytest.mark.parametrize(
    ("thinking", "messages", "kept"),
    [
        ({"type": "enabled", "budget_tokens": 2000}, LOOP, False),
        ({"type": "enabled", "budget_tokens": 2000}, LOOP[:1], True),
        ({"type": "adaptive"}, LOOP, True),
        (None, LOOP, True),
    ],
)
def test_a_tool_loop_that_has_lost_its_reasoning_goes_on_without_a_budget(
    thinking: Any, messages: list[Any], kept: bool
) -> None:
    """Of the protocol's own requests too: what another organization made was taken out of them."""
    body = {
        "model": "m",
        "max_tokens": 9000,
        "thinking": thinking,
        "output_config": {"effort": "low"},
        "messages": messages,
    }
    ledger = Ledger()
    written = SPEC.write_request(SPEC.read_request(body, Sealer()), ADAPTIVE, ledger)
    assert ("thinking" in written) is kept
    assert [loss.path for loss in ledger] == ([] if kept else ["/thinking"])


@pytest.mark.parametrize(
    ("target", "config", "thinking", "written_effort", "losses"),
    [
        (ADAPTIVE, None, None, None, []),
        (ADAPTIVE, effort("none"), {"type": "disabled"}, None, []),
        (ADAPTIVE, effort("minimal"), {"type": "adaptive"}, "low", [("altered", "/e")]),
        (ADAPTIVE, effort("low"), {"type": "adaptive"}, "low", []),
        (ADAPTIVE, effort("medium"), {"type": "adaptive"}, "medium", []),
        (ADAPTIVE, effort("high"), {"type": "adaptive"}, "high", []),
        (ADAPTIVE, effort("xhigh"), {"type": "adaptive"}, "xhigh", []),
        (
            ADAPTIVE,
            effort("max", show="summarized"),
            {"type": "adaptive", "display": "summarized"},
            "max",
            [],
        ),
        pytest.param(ADAPTIVE, effort("ultra"), {"type": "adaptive"}, "ultra", [], id="a word to come"),
        (ADAPTIVE, ReasoningConfig("adaptive"), {"type": "adaptive"}, None, []),
        (ADAPTIVE, ReasoningConfig(show="omitted"), {"type": "adaptive", "display": "omitted"}, None, []),
        (ADAPTIVE, ReasoningConfig("disabled"), {"type": "disabled"}, None, []),
        pytest.param(
            ADAPTIVE,
            ReasoningConfig("disabled", "high", path="/r"),
            {"type": "disabled"},
            None,
            [("altered", "/r")],
            id="C5 off, so no effort",
        ),
        pytest.param(
            ADAPTIVE,
            ReasoningConfig("disabled", budget=2048),
            {"type": "disabled"},
            None,
            [("altered", "/reasoning")],
            id="C5 off, so no budget",
        ),
        pytest.param(
            ADAPTIVE,
            ReasoningConfig("enabled", "low", 9, path="/r"),
            {"type": "adaptive"},
            "low",
            [("altered", "/r")],
            id="C10 effort wins over budget",
        ),
        *[
            pytest.param(
                ADAPTIVE,
                ReasoningConfig("enabled", budget=budget),
                {"type": "adaptive"},
                word,
                [("altered", "/reasoning")],
                id=f"C8 {budget} tokens are {word}",
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
        (FEW, effort("max"), {"type": "adaptive"}, "high", [("altered", "/e")]),
        (FEW, effort("none"), None, "low", [("altered", "/e")]),
        (FIVE, effort("none"), {"type": "disabled"}, None, []),
        (FIVE, effort("minimal"), {"type": "adaptive"}, "low", [("altered", "/e")]),
        (Target(efforts=()), effort("max"), {"type": "adaptive"}, "max", []),
        (BUDGET, effort("none"), None, None, []),
        (BUDGET, effort("minimal"), on(1024), None, []),
        (BUDGET, effort("low"), on(2048), None, []),
        (BUDGET, effort("medium"), on(8192), None, []),
        (BUDGET, effort("high"), on(16384), None, []),
        pytest.param(BUDGET, effort("xhigh"), on(19999), None, [("altered", "/e")], id="C8 below max_tokens"),
        (BUDGET, effort("max"), on(19999), None, []),
        (BUDGET, effort("ultra"), on(16384), None, [("altered", "/e")]),
        pytest.param(
            BUDGET,
            ReasoningConfig(budget=100, path="/r"),
            on(1024),
            None,
            [("altered", "/r")],
            id="C8 not under 1024",
        ),
        (BUDGET, ReasoningConfig(budget=5000), on(5000), None, []),
        pytest.param(
            BUDGET,
            ReasoningConfig("enabled", "low", 9, path="/r"),
            on(2048),
            None,
            [("altered", "/r")],
            id="C10 effort wins over budget, again",
        ),
        (BUDGET, ReasoningConfig("adaptive"), on(16384), None, []),
        (BUDGET, ReasoningConfig(show="summarized"), None, None, [("dropped", "/reasoning")]),
        (NONE, effort("none"), None, None, []),
        (NONE, effort("high"), None, None, [("dropped", "/r")]),
    ],
)
def test_upstreams(target: Target, config: Any, thinking: Any, written_effort: Any, losses: Any) -> None:
    body, entered = write(target=target, reasoning=config)
    assert body.get("thinking") == thinking
    assert body.get("output_config", {}).get("effort") == written_effort
    assert entered == losses
    if thinking is not None and "budget_tokens" in thinking:
        assert 1024 <= thinking["budget_tokens"] < body["max_tokens"]


@pytest.mark.parametrize(
    ("limit", "budget", "most", "losses"),
    [
        (4000, 3999, 4000, [("altered", "/e")]),
        (1025, 1024, 1025, [("altered", "/e")]),
        (500, 1523, 1524, [("altered", "/limit"), ("altered", "/e")]),
    ],
)
def test_a_budget_beside_a_limit(limit: int, budget: int, most: int, losses: Any) -> None:
    body, entered = write(
        target=BUDGET,
        reasoning=effort("high", show="omitted"),
        params={"max_output_tokens": limit},
        param_paths={"max_output_tokens": "/limit"},
    )
    assert body["thinking"] == on(budget, display="omitted")
    assert body["max_tokens"] == most
    assert entered == losses


THOUGHT = Thought("hm", Seal(NAME, {"type": "thinking", "thinking": "hm", "signature": "s"}))
CALL = ToolCall("1", "f", "{}", path="/a/1")
ANSWER = Message("user", (ToolResult("1", (Text("ok"),)),), "/r")


def said(*parts: Part) -> Message:
    return Message("assistant", parts, "/a")


@pytest.mark.parametrize(
    ("messages", "kept"),
    [
        pytest.param([USER, said(THOUGHT, CALL), ANSWER], True, id="C1 its reasoning came back"),
        pytest.param([USER, said(CALL), ANSWER], False, id="C1 its reasoning did not come back"),
        ([USER, said(CALL), ANSWER, said(Text("So.")), USER], True),
        ([USER, said(Text("So.")), USER], True),
        ([USER, said(Text("So."))], True),
    ],
)
def test_a_tool_loop_without_its_reasoning_goes_on_without_thinking(messages: Any, kept: bool) -> None:
    body, losses = write(*messages, target=BUDGET, tools=(TOOL,), reasoning=effort("low"))
    assert ("thinking" in body) is kept
    assert losses == ([] if kept else [("altered", "/r")])


@pytest.mark.parametrize(
    ("params", "target", "config", "left", "losses"),
    [
        ({"temperature": 1, "top_k": 3}, Target(sampling=False), None, {}, ["/temperature", "/top_k"]),
        pytest.param(
            {"temperature": 0.5, "top_p": 0.5, "top_k": 3},
            ADAPTIVE,
            effort("low"),
            {},
            ["/temperature", "/top_p", "/top_k"],
            id="C9 what thinking forbids",
        ),
        pytest.param(
            {"temperature": 1, "top_p": 0.95},
            BUDGET,
            effort("low"),
            {"temperature": 1, "top_p": 0.95},
            [],
            id="C9 what thinking takes",
        ),
        ({"temperature": 0.5}, ADAPTIVE, effort("none"), {"temperature": 0.5}, []),
    ],
)
def test_sampling_beside_thinking(
    params: Any, target: Target, config: Any, left: Any, losses: list[str]
) -> None:
    body, entered = write(target=target, params=params, reasoning=config)
    assert {key: body[key] for key in ("temperature", "top_p", "top_k") if key in body} == left
    assert entered == [("dropped", path) for path in losses]


# --- as clients say it


@pytest.mark.parametrize(
    ("fields", "config"),
    [
        ({}, None),
        ({"output_config": {"effort": "high"}}, ReasoningConfig(effort="high", path="/output_config/effort")),
        pytest.param(
            {"thinking": {"type": "adaptive", "display": "omitted"}, "output_config": {"effort": "max"}},
            ReasoningConfig(
                "adaptive",
                "max",
                None,
                "omitted",
                path="/thinking",
                effort_path="/output_config/effort",
                show_path="/thinking/display",
            ),
            id="C10 adaptive with an effort",
        ),
        pytest.param(
            {"thinking": {"type": "enabled", "budget_tokens": 2048}, "output_config": {"effort": "low"}},
            ReasoningConfig("enabled", "low", 2048, path="/thinking", effort_path="/output_config/effort"),
            id="C10 a budget and an effort",
        ),
        (
            {"thinking": {"type": "enabled", "budget_tokens": 2048, "display": "updates"}},
            ReasoningConfig(
                "enabled",
                None,
                2048,
                "summarized",
                extra={"display": "updates"},
                path="/thinking",
                show_path="/thinking/display",
            ),
        ),
        (
            {"thinking": {"type": "adaptive", "display": "odd"}},
            ReasoningConfig("adaptive", extra={"display": "odd"}, path="/thinking"),
        ),
        ({"thinking": {"type": "disabled"}}, ReasoningConfig("disabled", path="/thinking")),
        (
            {"thinking": {"type": "between_tools"}},
            ReasoningConfig("disabled", extra={"type": "between_tools"}, path="/thinking"),
        ),
        (
            {"thinking": {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "error"}}},
            ReasoningConfig(
                "adaptive",
                extra={"block_binding": {"prefix_mismatch_behavior": "error"}},
                path="/thinking",
            ),
        ),
    ],
)
def test_clients(fields: Any, config: ReasoningConfig | None) -> None:
    assert read(**fields).reasoning == config


def read(*messages: Any, **fields: Any) -> Request:
    body = {
        "model": "m",
        "max_tokens": 9,
        "messages": [{"role": "user", "content": "Hi"}, *messages],
        **fields,
    }
    return SPEC.read_request(body, Sealer())


def turn(effort: str | None, **fields: Any) -> dict[str, Any]:
    return {"role": "system", "content": "Now.", "output_config": {"effort": effort}, **fields}


def test_an_effort_in_mid_conversation_counts_and_the_one_before_is_kept_beside() -> None:
    request = read(turn("low"), turn("max", clear_at="never"), turn(None), output_config={"effort": "high"})
    place = "/messages/2/output_config/effort"
    assert request.reasoning == ReasoningConfig(effort="max", path=place)
    assert [message.extra for message in request.messages[1:]] == [
        {"output_config": {"effort": "low"}},
        {"clear_at": "never"},
        {"output_config": {"effort": None}},
    ]
    assert request.extra == {"output_config": {"effort": "high"}}


def test_an_effort_in_mid_conversation_beside_thinking() -> None:
    request = read(
        turn("max"),
        thinking={"type": "adaptive"},
        output_config={"effort": "max", "task_budget": {"total": 1}},
    )
    place = "/messages/1/output_config/effort"
    assert request.reasoning == ReasoningConfig("adaptive", "max", path="/thinking", effort_path=place)
    assert request.extra == {"output_config": {"task_budget": {"total": 1}}}


def test_a_message_may_change_the_effort_and_say_nothing() -> None:
    message = {"role": "system", "output_config": {"effort": "low", "odd": 1}}
    request = read(message)
    assert request.messages[1] == Message("system", (), "/messages/1", extra={"output_config": {"odd": 1}})
    assert request.reasoning == ReasoningConfig(effort="low", path="/messages/1/output_config/effort")
