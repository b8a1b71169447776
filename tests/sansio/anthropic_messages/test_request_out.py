"""Requests of other protocols, written as bodies and headers for an upstream."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import pytest
from core.passes import fit_and_write

from dragoman._ir.losses import Ledger
from dragoman._ir.request import Message, ReasoningConfig, Request, ResponseFormat, Text
from dragoman._ir.tools import CacheMark
from dragoman._wire.exceptions import RequestRefused
from dragoman._wire.json import decode, encode
from dragoman.protocols.anthropic_messages import SPEC
from dragoman.protocols.anthropic_messages.capabilities import MessagesCapabilities as Capabilities

USER = Message("user", (Text("Hi"),), "/m/0")


def write(
    *messages: Message, capabilities: Capabilities = Capabilities(), protocol: str = "other", **fields: Any
) -> tuple[Any, Any]:
    """The body, and the ledger as a list of (code, path)."""
    ledger = Ledger()
    request = Request(protocol, "m", messages or (USER,), **fields)
    body = decode(encode(fit_and_write(SPEC, request, capabilities, ledger)))
    return body, [(loss.code.value, loss.path) for loss in ledger]


def test_the_smallest_request() -> None:
    assert write() == (
        {"model": "m", "max_tokens": 32000, "messages": [{"role": "user", "content": "Hi"}]},
        [],
    )


SYSTEM = Message("system", (Text("One."),), "/s/0")
DEVELOPER = Message("developer", (Text("Two.", CacheMark("/c", "long")),), "/s/1")


def test_leading_system_messages_keep_their_blocks_and_marks() -> None:
    body, losses = write(SYSTEM, DEVELOPER, USER)
    assert body["system"] == [
        {"type": "text", "text": "One."},
        {"type": "text", "text": "Two.", "cache_control": {"type": "ephemeral", "ttl": "1h"}},
    ]
    assert losses == []


def test_one_plain_system_text_is_a_string() -> None:
    assert write(SYSTEM, USER)[0]["system"] == "One."


def edits(*values: int) -> dict[str, Any]:
    return {
        "context_management": {
            "edits": [
                {"type": "compact_20260112", "trigger": {"type": "input_tokens", "value": value}}
                for value in values
            ]
        }
    }


HASH = sha256(b"ann@example.com").hexdigest()


SETTINGS: list[tuple[Any, Any, Any]] = [
    ({"max_output_tokens": 0}, {"max_tokens": 0}, []),
    ({"temperature": 0}, {"temperature": 0}, []),
    ({"temperature": 1.7}, {"temperature": 1}, [("altered", "/temperature")]),
    ({"temperature": "hot"}, {"temperature": "hot"}, []),
    ({"top_p": 0.5, "top_k": 3}, {"top_p": 0.5, "top_k": 3}, []),
    ({"stop": "END"}, {"stop_sequences": ["END"]}, []),
    ({"stop": ["END", "\n"]}, {"stop_sequences": ["END"]}, [("dropped", "/stop")]),
    ({"stop": ["\n"]}, {}, [("dropped", "/stop")]),
    ({"user": "u"}, {"metadata": {"user_id": "u"}}, []),
    ({"safety_identifier": "s"}, {"metadata": {"user_id": "s"}}, []),
    ({"user": "s", "safety_identifier": "s"}, {"metadata": {"user_id": "s"}}, []),
    ({"user": "u", "safety_identifier": "s"}, {"metadata": {"user_id": "s"}}, [("dropped", "/user")]),
    ({"user": "ann@example.com"}, {"metadata": {"user_id": HASH}}, [("altered", "/user")]),
    ({"user": 7}, {"metadata": {"user_id": 7}}, []),
    ({"metadata": {"a": "b"}}, {}, [("dropped", "/metadata")]),
    ({"metadata": {}, "store": False, "background": False, "frequency_penalty": 0.0}, {}, []),
    ({"store": True, "seed": 7}, {}, [("dropped", "/store"), ("dropped", "/seed")]),
    ({"include": ["reasoning.encrypted_content", "web_search_call.action.sources"]}, {}, []),
    ({"include": ["message.output_text.logprobs"]}, {}, [("dropped", "/include")]),
    ({"include": "odd"}, {}, [("dropped", "/include")]),
    ({"service_tier": "auto"}, {"service_tier": "auto"}, []),
    ({"service_tier": "default"}, {"service_tier": "standard_only"}, []),
    ({"service_tier": "priority"}, {"service_tier": "auto"}, []),
    ({"service_tier": "fast"}, {"speed": "fast"}, []),
    ({"service_tier": "flex"}, {}, [("dropped", "/service_tier")]),
    ({"context_management": [{"type": "compaction", "compact_threshold": 9000}]}, edits(9000), []),
    ({"context_management": [{"type": "compaction"}]}, edits(150_000), []),
    (
        {"context_management": [{"type": "compaction", "compact_threshold": None, "odd": 1}]},
        edits(150_000),
        [("dropped", "/context_management/0/odd")],
    ),
    (
        {"context_management": [{"type": "odd"}, 7]},
        {},
        [
            ("dropped", "/context_management/0"),
            ("dropped", "/context_management/1"),
        ],
    ),
    ({"context_management": {"type": "odd"}}, {}, [("dropped", "/context_management/0")]),
    ({"prompt_cache_options": {"mode": "implicit"}}, {"cache_control": {"type": "ephemeral"}}, []),
    (
        {"prompt_cache_options": {"mode": "implicit", "ttl": "12h", "prewarm": True}},
        {"cache_control": {"type": "ephemeral", "ttl": "1h"}},
        [("dropped", "/prompt_cache_options/prewarm")],
    ),
    (
        {"prompt_cache_options": {"mode": "implicit", "ttl": "9d"}},
        {"cache_control": {"type": "ephemeral"}},
        [("dropped", "/prompt_cache_options/ttl")],
    ),
    ({"prompt_cache_options": {"mode": "explicit", "ttl": None}}, {}, []),
    (
        {"prompt_cache_options": {"ttl": "30m"}},
        {},
        [("dropped", "/prompt_cache_options/ttl")],
    ),
    ({"prompt_cache_options": {"mode": "odd"}}, {}, [("dropped", "/prompt_cache_options")]),
    ({"prompt_cache_options": 7}, {}, [("dropped", "/prompt_cache_options")]),
]


def test_settings(subtests: pytest.Subtests) -> None:
    for params, written, losses in SETTINGS:
        with subtests.test(params=params):
            body, recorded = write(params=params)
            plain = write()[0]
            assert body == {**plain, **written}
            assert recorded == losses


@pytest.mark.parametrize(
    "params",
    [
        {"previous_response_id": "resp_1"},
        {"conversation": "conv_1"},
        {"prompt": {"id": "p"}},
        {"background": True},
        {"modalities": ["text", "audio"]},
    ],
)
def test_settings_that_may_not_be_dropped_are_refused(params: Any) -> None:
    with pytest.raises(RequestRefused, match="cannot be sent to this upstream") as caught:
        write(params=params)
    assert caught.value.code == "unsupported_parameter"
    assert caught.value.path == f"/{next(iter(params))}"


def test_the_limit_is_an_integer() -> None:
    with pytest.raises(RequestRefused, match="max_tokens must be an integer"):
        write(params={"max_output_tokens": "many"})


def test_stream() -> None:
    assert write(stream=True)[0]["stream"] is True


CLOSED = {"type": "object", "additionalProperties": False}


def test_losses_of_a_schema_have_paths_in_the_schema() -> None:
    schema = {**CLOSED, "properties": {"a": {"type": "string", "minLength": 2}}}
    form = ResponseFormat(schema, "name", "words", False, path="/rf")
    body, losses = write(response_format=form, reasoning=ReasoningConfig(effort="low"))
    assert body["output_config"] == {
        "effort": "low",
        "format": {
            "type": "json_schema",
            "schema": {
                **CLOSED,
                "properties": {"a": {"type": "string", "description": "(minLength: 2)"}},
                "title": "name",
                "description": "words",
            },
        },
    }
    assert losses == [("altered", "/rf/strict"), ("altered", "/rf/schema/properties/a/minLength")]


@pytest.mark.parametrize(
    ("schema", "written", "losses"),
    [
        (
            {"type": "string", "title": "mine", "description": "so"},
            {"type": "string", "title": "mine", "description": "so"},
            [("dropped", "/response_format/name"), ("dropped", "/response_format/description")],
        ),
        (True, True, []),
    ],
)
def test_a_schema_keeps_its_own_name_and_description(schema: Any, written: Any, losses: Any) -> None:
    body, recorded = write(response_format=ResponseFormat(schema, "name", "words", True))
    assert body["output_config"]["format"]["schema"] == written
    assert recorded == losses


def test_any_json_object_is_requested_in_the_system_text() -> None:
    body, losses = write(SYSTEM, USER, response_format=ResponseFormat())
    assert [block["text"] for block in body["system"]] == [
        "One.",
        "Answer with one JSON object and nothing else.",
    ]
    assert losses == [("altered", "/response_format")]


NEWEST = ("anthropic-version", "2026-10-21")
MCP = "mcp-client-2025-11-20"


BETAS: list[tuple[Any, str | None]] = [
    ({}, None),
    ({"tools": [{"name": "bash", "input_schema": {}}]}, None),
    ({"mcp_servers": [{"type": "url"}]}, MCP),
    ({"mcp_servers": None}, None),
    ({"tools": [{"name": "a"}, {"type": "mcp_toolset", "mcp_server_name": "s"}]}, MCP),
    ({"mcp_servers": [{}], "tools": [{"type": "mcp_toolset"}]}, MCP),
    ({"tools": [{"type": "computer_20251124"}]}, "computer-use-2025-11-24"),
    ({"tools": [{"type": "advisor_20260301"}]}, "advisor-tool-2026-03-01"),
    ({"tools": [{"type": "web_search_20260318"}, {"type": "code_execution_20260521"}]}, None),
    ({"context_management": {"edits": [{"type": "compact_20260112"}]}}, "compact-2026-01-12"),
    (
        {"context_management": {"edits": [{"type": "clear_tool_uses_20250919"}] * 2}},
        "context-management-2025-06-27",
    ),
    ({"context_management": None}, None),
    ({"context_management": {"edits": None}, "tools": None}, None),
    ({"compaction": {"type": "summarize"}}, "compact-2026-09-04"),
    ({"fallbacks": "default"}, "server-side-fallback-2026-07-01"),
    ({"speed": "fast", "mcp_servers": []}, f"{MCP},fast-mode-2026-02-01"),
    ({"output_config": {"effort": "low"}}, None),
    ({"output_config": {"task_budget": {"type": "tokens", "total": 1}}}, "task-budgets-2026-03-13"),
    # Content and schemas that only resemble such members.
    ({"messages": [{"role": "user", "content": '{"mcp_servers":[1]}'}]}, None),
    ({"tools": [{"name": "a", "input_schema": {"properties": {"x": {"type": "mcp_toolset"}}}}]}, None),
    ({"messages": [{"role": "assistant", "content": [{"input": {"compaction": 1}}]}]}, None),
    ({"context_management": {"edits": [{"type": ["odd"]}]}}, None),
]  # fmt: skip


def test_betas(subtests: pytest.Subtests) -> None:
    for body, betas in BETAS:
        with subtests.test(body=body):
            expected = (NEWEST,) if betas is None else (NEWEST, ("anthropic-beta", betas))
            assert SPEC.request_headers({"model": "m", **body}) == expected


@pytest.mark.parametrize("name", ["temperature", "top_p", "top_k"])
def test_sampling_settings_need_the_older_version(name: str) -> None:
    assert SPEC.request_headers({"model": "m", name: 1}) == (("anthropic-version", "2023-06-01"),)
