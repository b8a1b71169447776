"""Tools and tool choice of other protocols, written for an upstream."""

from __future__ import annotations

from typing import Any

import pytest
from core.passes import fit_and_write

from dragoman._ir.losses import Ledger
from dragoman._ir.request import Message, Request, Text
from dragoman._ir.tools import (
    CacheMark,
    CodeExecution,
    CustomTool,
    FunctionTool,
    HostedTool,
    McpServer,
    Tool,
    ToolChoice,
    WebSearch,
)
from dragoman._wire.json import decode, encode
from dragoman.protocols.anthropic_messages import SPEC
from dragoman.protocols.anthropic_messages.capabilities import MessagesCapabilities as Capabilities

USER = Message("user", (Text("Hi"),), "/m/0")
F = FunctionTool("f", "d", {"type": "object", "properties": {}}, path="/tools/0")
G = FunctionTool("g", parameters={"type": "object"}, path="/g")
ALL_HOSTED = Capabilities(hosted_tools=frozenset({"web_search", "code_execution", "mcp"}))


def write(*tools: Tool, capabilities: Capabilities = Capabilities(), **fields: Any) -> tuple[Any, Any]:
    """The body, and the ledger as a list of (code, path)."""
    ledger = Ledger()
    request = Request("other", "m", (USER,), tools=tools, **fields)
    body = decode(encode(fit_and_write(SPEC, request, capabilities, ledger)))
    return body, [(loss.code.value, loss.path) for loss in ledger]


@pytest.mark.parametrize(
    ("tool", "written", "losses"),
    [
        (FunctionTool("f"), {"name": "f", "input_schema": {"type": "object", "properties": {}}}, []),
        (
            FunctionTool("f", "d", {"properties": {}}, False, cache=CacheMark("/c"), native={"odd": 1}),
            {
                "name": "f",
                "description": "d",
                "input_schema": {"type": "object", "properties": {}},
                "strict": False,
                "cache_control": {"type": "ephemeral"},
            },
            [],
        ),
        # Schemas without strictness are accepted unchanged.
        (
            FunctionTool(
                "f", None, {"type": "object", "properties": {"a": {"type": "string", "minLength": 2}}}
            ),
            {
                "name": "f",
                "input_schema": {
                    "type": "object",
                    "properties": {"a": {"type": "string", "minLength": 2}},
                },
            },
            [],
        ),
        (
            FunctionTool(
                "f", None, {"type": "object", "properties": {"a": {"minLength": 2}}}, True, path="/t"
            ),
            {
                "name": "f",
                "input_schema": {
                    "type": "object",
                    "properties": {"a": {"description": "(minLength: 2)"}},
                    "additionalProperties": False,
                },
                "strict": True,
            },
            [("altered", "/t")],
        ),
        (
            FunctionTool("f", deferred=True, path="/t"),
            {"name": "f", "input_schema": {"type": "object", "properties": {}}},
            [("dropped", "/t/defer_loading")],
        ),
        (
            FunctionTool("f", deferred=False, path="/t"),
            {"name": "f", "input_schema": {"type": "object", "properties": {}}},
            [],
        ),
        (CustomTool("c", path="/t"), None, [("unknown_kind", "/t")]),
        (HostedTool("other", "file_search", {}, "/t"), None, [("unknown_kind", "/t")]),
        (HostedTool("other", "web_search", {}, "/t", WebSearch()), None, [("dropped", "/t")]),
    ],
)
def test_tools(tool: Tool, written: Any, losses: Any) -> None:
    body, recorded = write(tool)
    assert body.get("tools") == (None if written is None else [written])
    assert recorded == losses


@pytest.mark.parametrize(
    ("use", "native", "written", "losses"),
    [
        (WebSearch(), {}, {"type": "web_search_20250305", "name": "web_search"}, []),
        (
            WebSearch(("a.com",), None, 3, {"type": "approximate", "city": "Bonn"}, "high"),
            {},
            {
                "type": "web_search_20250305",
                "name": "web_search",
                "max_uses": 3,
                "allowed_domains": ["a.com"],
                "user_location": {"type": "approximate", "city": "Bonn"},
            },
            [("dropped", "/t/search_context_size")],
        ),
        (
            WebSearch(None, ("b.com",), location={"country": "DE"}),
            {},
            {
                "type": "web_search_20250305",
                "name": "web_search",
                "blocked_domains": ["b.com"],
                "user_location": {"type": "approximate", "country": "DE"},
            },
            [],
        ),
        (
            WebSearch(("a.com",), ("b.com",)),
            {},
            {"type": "web_search_20250305", "name": "web_search", "allowed_domains": ["a.com"]},
            [("dropped", "/t")],
        ),
        (
            WebSearch(("a.com",), context_size="low"),
            {
                "type": "kind",
                "filters": {"allowed_domains": ["a.com"]},
                "search_context_size": "low",
                "external_web_access": None,
            },
            {"type": "web_search_20250305", "name": "web_search", "allowed_domains": ["a.com"]},
            [("dropped", "/t/search_context_size")],
        ),
        (
            WebSearch(),
            {"type": "kind", "external_web_access": False},
            {"type": "web_search_20250305", "name": "web_search"},
            [("altered", "/t")],
        ),
        (
            McpServer("deep", "https://mcp"),
            {
                "server_label": "deep",
                "server_url": "https://mcp",
                "require_approval": "never",
                "headers": {"a": "b"},
            },
            {"type": "mcp_toolset", "mcp_server_name": "deep"},
            [("altered", "/t")],
        ),
        (CodeExecution(), {}, {"type": "code_execution_20250825", "name": "code_execution"}, []),
        (
            McpServer("deep", "https://mcp"),
            {"require_approval": "never"},
            {"type": "mcp_toolset", "mcp_server_name": "deep"},
            [],
        ),
        (
            McpServer("deep", "https://mcp", "key", ("ask",)),
            {},
            {
                "type": "mcp_toolset",
                "mcp_server_name": "deep",
                "default_config": {"enabled": False},
                "configs": {"ask": {"enabled": True}},
            },
            [],
        ),
    ],
)
def test_hosted_tools(use: Any, native: Any, written: Any, losses: Any) -> None:
    body, recorded = write(HostedTool("other", "kind", native, "/t", use), capabilities=ALL_HOSTED)
    assert body["tools"] == [written]
    assert recorded == losses


def test_an_mcp_server_and_its_toolset_belong_together() -> None:
    tool = HostedTool(
        "other", "mcp", {"require_approval": "never"}, "/t", McpServer("deep", "https://mcp", "key")
    )
    body, losses = write(tool, capabilities=ALL_HOSTED)
    assert body["mcp_servers"] == [
        {"type": "url", "name": "deep", "url": "https://mcp", "authorization_token": "key"}
    ]
    assert losses == []


SEARCH = HostedTool("other", "web_search_preview", {}, "/s", WebSearch(max_uses=9))


@pytest.mark.parametrize(
    ("tools", "limit", "written", "losses"),
    [
        ((SEARCH,), 3, [3], [("altered", "/max_tool_calls")]),
        ((SEARCH,), 20, [9], [("altered", "/max_tool_calls")]),
        ((HostedTool("other", "c", {}, "/c", CodeExecution()),), 3, [None], [("dropped", "/max_tool_calls")]),
        ((), 3, [], [("dropped", "/max_tool_calls")]),
    ],
)
def test_a_limit_of_calls_is_one_of_each_tool(tools: Any, limit: int, written: Any, losses: Any) -> None:
    body, recorded = write(*tools, capabilities=ALL_HOSTED, params={"max_tool_calls": limit})
    assert [tool.get("max_uses") for tool in body.get("tools", ())] == written
    assert recorded == losses


@pytest.mark.parametrize(
    ("choice", "parallel", "written", "names", "losses"),
    [
        (None, None, None, ["f", "g"], []),
        (None, True, None, ["f", "g"], []),
        pytest.param(
            None,
            False,
            {"type": "auto", "disable_parallel_tool_use": True},
            ["f", "g"],
            [],
            id="I17 auto carries the flag",
        ),
        (ToolChoice("auto"), None, {"type": "auto"}, ["f", "g"], []),
        pytest.param(ToolChoice("none"), False, {"type": "none"}, ["f", "g"], [], id="I18 none is none"),
        pytest.param(
            ToolChoice("required"),
            False,
            {"type": "any", "disable_parallel_tool_use": True},
            ["f", "g"],
            [],
            id="I16 one call at a time",
        ),
        (ToolChoice("named", "g"), None, {"type": "tool", "name": "g"}, ["f", "g"], []),
        (ToolChoice("named", "h", path="/tc"), None, {"type": "any"}, ["f", "g"], [("altered", "/tc")]),
        (
            ToolChoice("named", hosted="file_search", path="/tc"),
            None,
            {"type": "any"},
            ["f", "g"],
            [("altered", "/tc")],
        ),
    ],
)
def test_tool_choice(
    choice: ToolChoice | None, parallel: bool | None, written: Any, names: list[str] | None, losses: Any
) -> None:
    body, recorded = write(F, G, tool_choice=choice, parallel_tool_calls=parallel)
    assert body.get("tool_choice") == written
    assert (names is None and "tools" not in body) or [tool["name"] for tool in body["tools"]] == names
    assert recorded == losses


def test_a_choice_of_a_hosted_tool() -> None:
    choice = ToolChoice("named", hosted="web_search_preview")
    body, recorded = write(F, SEARCH, capabilities=ALL_HOSTED, tool_choice=choice)
    assert body["tool_choice"] == {"type": "tool", "name": "web_search"}
    assert [tool["name"] for tool in body["tools"]] == ["f", "web_search"]
    assert recorded == []


@pytest.mark.parametrize("mode", ["auto", "none"])
def test_auto_and_none_need_no_tools(mode: Any) -> None:
    body, losses = write(tool_choice=ToolChoice(mode), parallel_tool_calls=False)
    assert ("tool_choice" in body, losses) == (False, [])


def test_a_required_tool_without_tools_is_dropped() -> None:
    body, losses = write(tool_choice=ToolChoice("required"))
    assert ("tool_choice" in body, losses) == (False, [("dropped", "/tool_choice")])
