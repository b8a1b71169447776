"""Messages requests for Messages upstreams that are mended: what the protocol defines stays, the target is obeyed."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dragoman._ir.losses import Ledger
from dragoman._ir.request import FunctionTool, Message, Request, ResponseFormat, Text, ToolChoice
from dragoman._ir.signatures import Sealer
from dragoman._wire.json import decode, encode
from dragoman.codec import Target
from dragoman.protocols.anthropic_messages import SPEC

HI = {"role": "user", "content": "Hi"}
MARK = {"type": "ephemeral"}
SCHEMA = {"type": "object", "properties": {}}
TOOL = {"name": "f", "input_schema": SCHEMA}


def read(**body: Any) -> Request:
    return SPEC.read_request({"model": "m", "max_tokens": 5000, "messages": [HI], **body}, Sealer())


def written(request: Request, **target: Any) -> tuple[dict[str, Any], list[str]]:
    """The body for the upstream, but for what all bodies have, and the places in the ledger."""
    ledger = Ledger()
    out = decode(encode(SPEC.write_request(request, Target(relay="mend", **target), ledger)))
    return (
        {name: value for name, value in out.items() if name not in ("model", "max_tokens")},
        [loss.path for loss in ledger],
    )


@pytest.mark.parametrize(
    ("target", "before", "after", "losses"),
    [
        # Thinking, in the target's way.
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
        ({}, {"temperature": 0.5, "top_k": 7}, {"temperature": 0.5, "top_k": 7}, []),
        # Everything else of the protocol.
        ({}, {"metadata": {"user_id": "u", "new": 1}}, {"metadata": {"user_id": "u", "new": 1}}, []),
        (
            {},
            {"context_management": {"edits": [{"type": "odd"}]}},
            {"context_management": {"edits": [{"type": "odd"}]}},
            [],
        ),
        ({}, {"service_tier": "standard_only", "new": 1}, {"service_tier": "standard_only", "new": 1}, []),
        (
            {},
            {"system": [{"type": "text", "text": "S", "new": 1}]},
            {"system": [{"type": "text", "text": "S", "new": 1}]},
            [],
        ),
        ({}, {"stop_sequences": ["a", "b"]}, {"stop_sequences": ["a", "b"]}, []),
        (
            {},
            {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}},
            {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}},
            [],
        ),
        # Tools.
        (
            {},
            {
                "tools": [{**TOOL, "defer_loading": True, "input_examples": [{}], "new": 1}],
                "tool_choice": {"type": "any", "new": 1},
            },
            {
                "tools": [{**TOOL, "defer_loading": True, "input_examples": [{}], "new": 1}],
                "tool_choice": {"type": "any", "new": 1},
            },
            [],
        ),
        (
            {},
            {
                "tools": [{"type": "web_search_20250305", "name": "web_search"}],
                "tool_choice": {"type": "tool", "name": "web_search"},
            },
            {
                "tools": [{"type": "web_search_20250305", "name": "web_search"}],
                "tool_choice": {"type": "tool", "name": "web_search"},
            },
            [],
        ),
        (
            {},
            {"tools": [{"type": "mcp_toolset", "mcp_server_name": "s"}]},
            {"tools": [{"type": "mcp_toolset", "mcp_server_name": "s"}]},
            [],
        ),
        (
            {},
            {"mcp_servers": [{"type": "url", "name": "s", "url": "https://s.test"}]},
            {"mcp_servers": [{"type": "url", "name": "s", "url": "https://s.test"}]},
            [],
        ),
        ({}, {"tool_choice": {"type": "auto", "new": 1}}, {}, ["/tool_choice/new"]),
    ],
)
def test_settings_and_tools(
    target: dict[str, Any], before: dict[str, Any], after: dict[str, Any], losses: list[str]
) -> None:
    out, lost = written(read(**before), **target)
    del out["messages"]
    assert out == after
    assert lost == losses


CALL = {"type": "tool_use", "id": "t1", "name": "f", "input": {}}


@pytest.mark.parametrize(
    ("target", "before", "after", "losses"),
    [
        ({}, [{"role": "user", "content": [{"type": "text", "text": "a", "cache_control": MARK}]}], None, []),
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
        # Reasoning that a server did not sign is good for that server.
        (
            {},
            [
                HI,
                {
                    "role": "assistant",
                    "content": [{"type": "thinking", "thinking": "so", "signature": ""}, CALL],
                },
            ],
            None,
            [],
        ),
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
        ({}, [{"role": "user", "content": [{"type": "odd", "odd": 1}]}], None, []),
    ],
)
def test_the_conversation(
    target: dict[str, Any],
    before: list[dict[str, Any]],
    after: list[dict[str, Any]] | None,
    losses: list[str],
) -> None:
    """after: None when it stays as it came."""
    out, lost = written(read(messages=before), **target)
    assert out["messages"] == (before if after is None else after)
    assert lost == losses


def test_only_so_many_marks() -> None:
    texts = [{"type": "text", "text": "a", "cache_control": MARK} for _ in range(6)]
    out, lost = written(read(messages=[{"role": "user", "content": texts}]))
    assert ["cache_control" in block for block in out["messages"][0]["content"]] == [False] * 2 + [True] * 4
    assert lost == ["/messages/0/content/0/cache_control", "/messages/0/content/1/cache_control"]


def test_an_effort_in_mid_conversation_stays_there() -> None:
    later = {"role": "system", "content": "S", "output_config": {"effort": "max"}}
    out, lost = written(read(messages=[HI, later]), mid_system=True, efforts=("low",))
    assert (out["messages"], lost) == ([HI, later], [])
    assert "output_config" not in out


def test_a_limit_is_there_whoever_took_it_out() -> None:
    asked = msgspec.structs.replace(read(), params={})
    out = SPEC.write_request(asked, Target(relay="mend", max_tokens=99), Ledger())
    assert out["max_tokens"] == 99


def test_what_passes_took_out_is_out() -> None:
    asked = read(
        metadata={"user_id": "u"},
        cache_control=MARK,
        stop_sequences=["a", "b"],
        temperature=0.5,
        output_config={"format": {"type": "json_schema", "schema": SCHEMA}, "effort": "low"},
        output_format=None,
    )
    out, _ = written(
        msgspec.structs.replace(
            asked, params={"max_output_tokens": 5000, "stop": ["a"]}, response_format=None
        )
    )
    del out["messages"]
    assert out == {
        "stop_sequences": ["a"],
        "output_config": {"effort": "low"},
        "thinking": {"type": "adaptive"},
    }


def test_a_tool_that_a_pass_has_put_in() -> None:
    asked = read(tools=[{**TOOL, "new": 1}])
    asked = msgspec.structs.replace(
        asked,
        tools=(*asked.tools, FunctionTool("json", parameters=SCHEMA)),
        tool_choice=ToolChoice("named", "json"),
    )
    out, _ = written(asked)
    assert out["tools"] == [{**TOOL, "new": 1}, {"name": "json", "input_schema": SCHEMA}]
    assert out["tool_choice"] == {"type": "tool", "name": "json"}


def test_a_schema_that_a_pass_asks_for_in_words() -> None:
    """There is no setting for any JSON object, and the words are the system's."""
    asked = read(
        system=[{"type": "text", "text": "S", "cache_control": MARK}],
        output_config={"format": {"type": "json_schema", "schema": SCHEMA}},
    )
    words = Message("system", (Text("Answer in JSON."),), "/output_config/format")
    asked = msgspec.structs.replace(
        asked, messages=(words, *asked.messages), response_format=ResponseFormat(path="/output_config/format")
    )
    system = [
        {"type": "text", "text": "Answer in JSON."},
        {"type": "text", "text": "S", "cache_control": MARK},
    ]
    assert written(asked) == ({"system": system, "messages": [HI]}, [])
