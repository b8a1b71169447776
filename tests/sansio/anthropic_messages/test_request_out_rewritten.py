"""Messages requests fitted to a Messages upstream: fields of the protocol stay, and capabilities are obeyed."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from core.same_protocol import read_same_protocol

from dragoman._ir.losses import Ledger
from dragoman._ir.request import Message, Request, ResponseFormat, Text
from dragoman._ir.tools import FunctionTool, ToolChoice
from dragoman._wire.json import decode, encode
from dragoman.protocols.anthropic_messages import SPEC
from dragoman.protocols.anthropic_messages.capabilities import MessagesCapabilities as Capabilities

HI = {"role": "user", "content": "Hi"}
SCOPED_MARK = {"type": "ephemeral", "ttl": "1h", "scope": "global"}
BODY: dict[str, Any] = {
    "model": "m",
    "max_tokens": 100,
    "system": [
        {"type": "text", "text": "One."},
        {"type": "text", "text": "Two.", "cache_control": SCOPED_MARK},
    ],
    "messages": [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "a", "citations": [{"type": "x"}], "new": 1},
                {
                    "type": "image",
                    "source": {"type": "file", "file_id": "f", "odd": 1},
                    "transformations": {"a": 1},
                },
                {"type": "search_result", "title": "t", "source": "s", "content": []},
            ],
        },
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "sig"},
                {"type": "redacted_thinking", "data": "d"},
                {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"q": 1}},
                {"type": "text", "text": "b"},
                {"type": "image", "source": {"type": "url", "url": "https://x"}},
                {
                    "type": "tool_use",
                    "id": "t1",
                    "name": "f",
                    "input": {"z": 1, "a": [True]},
                    "caller": {"type": "code_execution_20260120", "tool_id": "s1"},
                    "cache_control": {"type": "ephemeral"},
                },
            ],
            "odd": "assistant",
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "t1",
                    "content": [{"type": "tool_reference", "tool_name": "x"}],
                    "is_error": False,
                    "toolset_name": "ts",
                }
            ],
            "odd": "user",
        },
        {
            "role": "system",
            "content": [
                {"type": "text", "text": "Now.", "cache_control": {"type": "ephemeral", "ttl": "5m"}}
            ],
            "output_config": {"effort": "low"},
        },
        {"role": "assistant", "content": "prefill"},
    ],
    "tools": [
        {
            "name": "f",
            "description": "d",
            "input_schema": {"type": "object", "anyOf": []},
            "defer_loading": True,
        },
        {"type": "web_search_20250305", "name": "web_search", "max_uses": 3},
    ],
    "tool_choice": {"type": "auto", "disable_parallel_tool_use": True, "odd": 1},
    "thinking": {"type": "enabled", "budget_tokens": 2048, "display": "omitted", "block_binding": {"a": 1}},
    "output_config": {
        "effort": "high",
        "format": {"type": "json_schema", "schema": {"type": "object"}, "odd": 1},
        "task_budget": {"total": 1},
    },
    "metadata": {"user_id": "u", "odd": 1},
    "stop_sequences": ["END"],
    "service_tier": "standard_only",
    "speed": "fast",
    "container": "c",
    "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
    "mcp_servers": [{"type": "url", "name": "n", "url": "https://x"}],
    "inference_geo": "eu",
    "cache_control": {"type": "ephemeral"},
    "diagnostics": {"previous_message_id": "m1"},
    "compaction": {"type": "summarize", "instructions": "Short."},
    "thread": {"type": "continue", "previous_message_id": "m0"},
    "stream": True,
    "nothing": None,
}


def round_trip(
    body: dict[str, Any], capabilities: Capabilities = Capabilities(mid_system=True)
) -> tuple[Any, Ledger]:
    ledger = Ledger()
    request = read_same_protocol(SPEC, body)
    return decode(encode(SPEC.write_request(request, capabilities, ledger))), ledger


def test_a_body_is_written_unchanged() -> None:
    body, ledger = round_trip(BODY)
    assert body == BODY
    assert len(ledger) == 0


def test_efforts_in_mid_conversation_are_written_unchanged() -> None:
    body = {
        "model": "m",
        "max_tokens": 1,
        "messages": [
            {"role": "user", "content": "a"},
            {"role": "system", "content": "Now.", "output_config": {"effort": "low"}},
            {"role": "user", "content": " "},
            {"role": "system", "output_config": {"effort": "max", "odd": 1}},
            {"role": "system", "content": "So."},
        ],
        "output_config": {"effort": "high"},
    }
    written, ledger = round_trip(body)
    assert written == body
    assert len(ledger) == 0


def test_sampling_settings_for_a_model_that_takes_none() -> None:
    body = {"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": "a"}], "temperature": 1}
    written, ledger = round_trip(body, Capabilities(sampling=False))
    assert "temperature" not in written
    assert [loss.path for loss in ledger] == ["/temperature"]


@pytest.mark.parametrize("kind", ["adaptive", "disabled", "between_tools"])
def test_thinking_is_written_unchanged(kind: str) -> None:
    body = {"model": "m", "max_tokens": 1, "messages": [HI], "thinking": {"type": kind}}
    assert round_trip(body)[0] == body


def test_turns_that_the_api_would_refuse_are_joined() -> None:
    body: dict[str, Any] = {
        "model": "m",
        "max_tokens": 1,
        "messages": [
            {"role": "system", "content": "First.", "odd": 1},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "gone", "content": "kept"}]},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "t", "signature": "s", "cache_control": SCOPED_MARK}
                ],
            },
            {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "f", "input": {}}]},
        ],
    }
    written, ledger = round_trip(body)
    assert "system" not in written
    assert written["messages"] == [
        {"role": "system", "content": "First.", "odd": 1},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "gone", "content": "kept"}]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "t", "signature": "s"},
                {"type": "tool_use", "id": "t1", "name": "f", "input": {}},
            ],
        },
    ]
    assert [loss.path for loss in ledger] == ["/messages/2/content/0/cache_control"]


def test_a_request_without_messages() -> None:
    body = {"model": "m", "max_tokens": 1, "system": "Be brief.", "messages": []}
    assert round_trip(body)[0] == body


MARK = {"type": "ephemeral"}
SCHEMA = {"type": "object", "properties": {}}
TOOL = {"name": "f", "input_schema": SCHEMA}
CALL = {"type": "tool_use", "id": "t1", "name": "f", "input": {}}
UNSIGNED = {"type": "thinking", "thinking": "so", "signature": ""}


def read(**body: Any) -> Request:
    return read_same_protocol(SPEC, {"model": "m", "max_tokens": 5000, "messages": [HI], **body})


def rewrite(request: Request, **capabilities: Any) -> tuple[dict[str, Any], list[str]]:
    """Return the body without `model` and `max_tokens`, and the paths in the ledger."""
    ledger = Ledger()
    out = decode(encode(SPEC.write_request(request, Capabilities(relay="rewrite", **capabilities), ledger)))
    return (
        {name: value for name, value in out.items() if name not in ("model", "max_tokens")},
        [loss.path for loss in ledger],
    )


@pytest.mark.parametrize(
    ("capabilities", "before", "after", "losses"),
    [
        # Thinking, as the capabilities have it.
        (
            {},
            {"thinking": {"type": "enabled", "budget_tokens": 2000}},
            {"thinking": {"type": "adaptive"}, "output_config": {"effort": "low"}},
            ["/thinking"],
        ),
        (
            {"thinking": "budget"},
            {"thinking": {"type": "enabled", "budget_tokens": 2000, "new": 1}},
            {"thinking": {"type": "enabled", "budget_tokens": 2000, "new": 1}},
            [],
        ),
        (
            {"thinking": "budget"},
            {"thinking": {"type": "adaptive"}, "output_config": {"effort": "low", "task_budget": {"a": 1}}},
            {
                "thinking": {"type": "enabled", "budget_tokens": 2048},
                "output_config": {"task_budget": {"a": 1}},
            },
            [],
        ),
        ({"thinking": "none"}, {"thinking": {"type": "adaptive"}}, {}, ["/thinking"]),
        (
            {"efforts": ("low", "high")},
            {"thinking": {"type": "adaptive"}, "output_config": {"effort": "max", "task_budget": {"a": 1}}},
            {"thinking": {"type": "adaptive"}, "output_config": {"effort": "high", "task_budget": {"a": 1}}},
            ["/output_config/effort"],
        ),
        (
            {},
            {"temperature": 0.5, "thinking": {"type": "adaptive"}},
            {"thinking": {"type": "adaptive"}},
            ["/temperature"],
        ),
        ({"sampling": False}, {"temperature": 0.5}, {}, ["/temperature"]),
        ({}, {"tool_choice": {"type": "auto", "new": 1}}, {}, ["/tool_choice/new"]),
    ],
)
def test_rewritten_settings_and_tools(
    capabilities: dict[str, Any], before: dict[str, Any], after: dict[str, Any], losses: list[str]
) -> None:
    out, lost = rewrite(read(**before), **capabilities)
    del out["messages"]
    assert out == after
    assert lost == losses


@pytest.mark.parametrize(
    "fields",
    [
        {"temperature": 0.5, "top_k": 7},
        {"metadata": {"user_id": "u", "new": 1}},
        {"context_management": {"edits": [{"type": "odd"}]}},
        {"service_tier": "standard_only", "new": 1},
        {"system": [{"type": "text", "text": "S", "new": 1}]},
        {"stop_sequences": ["a", "b"]},
        {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}},
        {
            "tools": [{**TOOL, "defer_loading": True, "input_examples": [{}], "new": 1}],
            "tool_choice": {"type": "any", "new": 1},
        },
        {
            "tools": [{"type": "web_search_20250305", "name": "web_search"}],
            "tool_choice": {"type": "tool", "name": "web_search"},
        },
        {"tools": [{"type": "mcp_toolset", "mcp_server_name": "s"}]},
        {"mcp_servers": [{"type": "url", "name": "s", "url": "https://s.test"}]},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "a", "cache_control": MARK}]}]},
        {"messages": [{"role": "user", "content": [{"type": "odd", "odd": 1}]}]},
        # Reasoning that a server did not sign is good for that server.
        {"messages": [HI, {"role": "assistant", "content": [UNSIGNED, CALL]}]},
    ],
)
def test_everything_else_of_the_protocol_stays(fields: dict[str, Any]) -> None:
    assert rewrite(read(**fields)) == ({"messages": [HI], **fields}, [])


@pytest.mark.parametrize(
    ("capabilities", "before", "after", "losses"),
    [
        (
            {},
            [HI, {"role": "system", "content": "S"}],
            [
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": "Hi"},
                        {"type": "text", "text": "<system>\nS\n</system>"},
                    ],
                }
            ],
            ["/messages/1"],
        ),
        ({"mid_system": True}, [HI, {"role": "system", "content": "S"}], None, []),
        (
            {"thinking": "none"},
            [
                HI,
                {
                    "role": "assistant",
                    "content": [
                        {"type": "thinking", "thinking": "so", "signature": "s"},
                        {"type": "text", "text": "a"},
                    ],
                },
            ],
            [HI, {"role": "assistant", "content": "a"}],
            ["/messages/1/content/0"],
        ),
    ],
)
def test_rewritten_conversations(
    capabilities: dict[str, Any],
    before: list[dict[str, Any]],
    after: list[dict[str, Any]] | None,
    losses: list[str],
) -> None:
    """after: None when it stays as it came."""
    out, lost = rewrite(read(messages=before), **capabilities)
    assert out["messages"] == (before if after is None else after)
    assert lost == losses


def test_excess_cache_marks_are_dropped() -> None:
    texts = [{"type": "text", "text": "a", "cache_control": MARK} for _ in range(6)]
    out, lost = rewrite(read(messages=[{"role": "user", "content": texts}]))
    assert ["cache_control" in block for block in out["messages"][0]["content"]] == [False] * 2 + [True] * 4
    assert lost == ["/messages/0/content/0/cache_control", "/messages/0/content/1/cache_control"]


def test_an_effort_in_mid_conversation_without_system_messages_is_that_of_the_request() -> None:
    later = {"role": "system", "content": "S", "output_config": {"effort": "low"}}
    for first, also_lost in ({}, []), ({"output_config": {"effort": "max"}}, ["/output_config/effort"]):
        out, lost = rewrite(read(messages=[HI, later, HI], **first), mid_system=False)
        assert out["output_config"] == {"effort": "low"}
        assert [turn["role"] for turn in out["messages"]] == ["user"]
        assert lost == ["/messages/1", *also_lost]


def test_a_rewritten_effort_in_mid_conversation_stays_there() -> None:
    later = {"role": "system", "content": "S", "output_config": {"effort": "max"}}
    out, lost = rewrite(read(messages=[HI, later]), mid_system=True, efforts=("low",))
    assert (out["messages"], lost) == ([HI, later], [])
    assert "output_config" not in out


def test_the_limit_that_a_pass_removed_is_written() -> None:
    request = msgspec.structs.replace(read(), params={})
    out = SPEC.write_request(request, Capabilities(relay="rewrite", max_tokens=99), Ledger())
    assert out["max_tokens"] == 99


def test_settings_that_a_pass_removed_are_removed() -> None:
    request = read(
        metadata={"user_id": "u"},
        cache_control=MARK,
        stop_sequences=["a", "b"],
        temperature=0.5,
        output_config={"format": {"type": "json_schema", "schema": SCHEMA}, "effort": "low"},
        output_format=None,
    )
    out, _ = rewrite(
        msgspec.structs.replace(
            request, params={"max_output_tokens": 5000, "stop": ["a"]}, response_format=None
        )
    )
    del out["messages"]
    assert out == {
        "stop_sequences": ["a"],
        "output_config": {"effort": "low"},
        "thinking": {"type": "adaptive"},
    }


def test_a_tool_that_a_pass_added() -> None:
    request = read(tools=[{**TOOL, "new": 1}])
    request = msgspec.structs.replace(
        request,
        tools=(*request.tools, FunctionTool("json", parameters=SCHEMA)),
        tool_choice=ToolChoice("named", "json"),
    )
    out, _ = rewrite(request)
    assert out["tools"] == [{**TOOL, "new": 1}, {"name": "json", "input_schema": SCHEMA}]
    assert out["tool_choice"] == {"type": "tool", "name": "json"}


def test_a_schema_that_a_pass_replaced_by_system_text() -> None:
    """There is no setting for any JSON object, and the instruction is system text."""
    request = read(
        system=[{"type": "text", "text": "S", "cache_control": MARK}],
        output_config={"format": {"type": "json_schema", "schema": SCHEMA}},
    )
    instruction = Message("system", (Text("Answer in JSON."),), "/output_config/format")
    request = msgspec.structs.replace(
        request,
        messages=(instruction, *request.messages),
        response_format=ResponseFormat(path="/output_config/format"),
    )
    system = [
        {"type": "text", "text": "Answer in JSON."},
        {"type": "text", "text": "S", "cache_control": MARK},
    ]
    assert rewrite(request) == ({"system": system, "messages": [HI]}, [])
