"""Requests for models of well-known families: a client's request in, the upstream's out.

Each case is a request that the vendor is known to refuse unchanged; the row of the family makes it valid.
"""

# ruff: noqa: E501 -- the tables are read by row

import json
from typing import Any

import pytest

from dragoman import UPSTREAMS, RequestTranslator
from dragoman_server.capabilities.resolve import capabilities_for
from dragoman_server.settings import Settings, UpstreamSettings

CHAT, MESSAGES, RESPONSES = "openai_chat", "anthropic_messages", "openai_responses"
HOSTS = {
    CHAT: "https://api.openai.com/v1",
    MESSAGES: "https://api.anthropic.com",
    RESPONSES: "https://api.openai.com/v1",
}
HI = {"role": "user", "content": "Hi"}
SCHEMA = {"type": "object", "properties": {}}
CHAT_TOOLS = {"tools": [{"type": "function", "function": {"name": "f", "parameters": SCHEMA}}]}
FORCED = {**CHAT_TOOLS, "tool_choice": "required"}
TOOLS = {"tools": [{"name": "f", "input_schema": SCHEMA}]}
ANY, OFF = {"type": "any"}, {"type": "disabled"}


def translated(
    client: str, upstream: str, model: str, body: dict[str, Any]
) -> tuple[Any, list[tuple[str, str]]]:
    settings = UpstreamSettings(name="up", protocol=upstream, base_url=HOSTS[upstream])
    capabilities = capabilities_for(Settings(), settings, model)
    translator = RequestTranslator(
        client=UPSTREAMS[client], upstream=UPSTREAMS[upstream], capabilities=capabilities
    )
    whole = {"model": model, "messages": [HI], "max_tokens": 4000, **body}
    request = translator.translate(json.dumps(whole).encode())
    return json.loads(request.body), [(loss.code.value, loss.path) for loss in request.losses]


CLAUDE: list[tuple[str, dict[str, Any], dict[str, Any], list[tuple[str, str]]]] = [
    # "`temperature` and `top_p` cannot both be specified for this model."
    *[
        (
            model,
            {"temperature": 0.2, "top_p": 0.9},
            {"temperature": 0.2, "top_p": None},
            [("dropped", "/top_p")],
        )
        for model in (
            "claude-opus-4-1-20250805",
            "claude-opus-4-5",
            "claude-sonnet-4-5-20250929",
            "claude-haiku-4-5",
            "claude-opus-4-6",
            "claude-sonnet-4-6",
        )
    ],
    ("claude-sonnet-4-0", {"temperature": 0.2, "top_p": 0.9}, {"temperature": 0.2, "top_p": 0.9}, []),
    # "Thinking may not be enabled when tool_choice forces tool use." Left out, adaptive thinking is on.
    ("claude-opus-5-5", FORCED, {"tool_choice": ANY, "thinking": OFF}, []),
    ("claude-opus-4-7", {**FORCED, "reasoning_effort": "high"}, {"tool_choice": ANY, "thinking": OFF, "output_config": None}, [("altered", "/reasoning_effort")]),
    ("claude-sonnet-4-6", {**FORCED, "reasoning_effort": "high"}, {"tool_choice": ANY, "thinking": OFF, "output_config": None}, [("altered", "/reasoning_effort")]),
    ("claude-haiku-4-5", {**FORCED, "reasoning_effort": "high"}, {"tool_choice": ANY, "thinking": None}, [("altered", "/reasoning_effort")]),
    (
        "claude-fable-5-1",
        {**FORCED, "reasoning_effort": "high"},
        {"tool_choice": None, "thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}},
        [("altered", "/tool_choice")],
    ),
    ("claude-opus-5-5", CHAT_TOOLS, {"tool_choice": None, "thinking": None}, []),
]  # fmt: skip


def test_the_request_for_a_claude_model() -> None:
    for model, requested, sent, lost in CLAUDE:
        body, losses = translated(CHAT, MESSAGES, model, requested)
        assert {name: body.get(name) for name in sent} == sent, (model, requested)
        assert losses == lost, (model, requested)


@pytest.mark.parametrize(
    ("model", "continues"),
    [("claude-opus-5", False), ("claude-sonnet-4-6", False), ("claude-sonnet-4-5", True)],
)
def test_a_prefill_becomes_a_question_if_the_model_accepts_none(model: str, continues: bool) -> None:
    body, losses = translated(
        CHAT, MESSAGES, model, {"messages": [HI, {"role": "assistant", "content": "{"}]}
    )
    assert [each["role"] for each in body["messages"]] == ["user", "assistant", "user"][
        : 2 if continues else 3
    ]
    assert losses == ([] if continues else [("altered", "/messages/1")])


SAMPLING = {"temperature": 0.2, "top_p": 0.9}
NO_SAMPLING = {"temperature": None, "top_p": None}
DROPPED = [("dropped", "/temperature"), ("dropped", "/top_p")]
LOW = {"output_config": {"effort": "low"}}
GPT: list[tuple[str, str, dict[str, Any], dict[str, Any], list[tuple[str, str]]]] = [
    # "'temperature' does not support 0.8 with this model. Only the default (1) value is supported."
    *[(RESPONSES, model, SAMPLING, NO_SAMPLING, DROPPED) for model in ("gpt-6", "gpt-6-sol", "gpt-5.6-luna")],
    (RESPONSES, "gpt-5.2", SAMPLING, SAMPLING, []),
    (RESPONSES, "gpt-5.1", {**SAMPLING, "thinking": OFF}, {**SAMPLING, "reasoning": {"effort": "none"}}, []),
    (RESPONSES, "gpt-5.2", {**SAMPLING, **LOW}, NO_SAMPLING, DROPPED),
    (RESPONSES, "gpt-5.1-codex", SAMPLING, NO_SAMPLING, DROPPED),
    # "Function tools with reasoning_effort are not supported for gpt-5.6-luna in /v1/chat/completions."
    (CHAT, "gpt-5.6-luna", {**TOOLS, **LOW}, {"reasoning_effort": "none"}, [("altered", "/output_config/effort")]),
    (CHAT, "gpt-6", {**TOOLS, **LOW}, {"reasoning_effort": None}, [("altered", "/output_config/effort")]),
    (CHAT, "gpt-5.6-luna", LOW, {"reasoning_effort": "low"}, []),
    (CHAT, "gpt-5.2", {**TOOLS, **LOW}, {"reasoning_effort": "low"}, []),
    (RESPONSES, "gpt-5.6-luna", {**TOOLS, **LOW}, {"reasoning": {"effort": "low"}}, []),
]  # fmt: skip


def test_the_request_for_a_gpt_model() -> None:
    for upstream, model, requested, sent, lost in GPT:
        body, losses = translated(MESSAGES, upstream, model, requested)
        assert {name: body.get(name) for name in sent} == sent, (upstream, model, requested)
        assert sorted(losses) == sorted(lost), (upstream, model, requested)
