"""Tools and tool choice of clients."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman._ir.request import Request
from dragoman._ir.signatures import Signer
from dragoman._ir.tools import (
    CacheMark,
    CodeExecution,
    FunctionTool,
    HostedTool,
    McpServer,
    ToolChoice,
    WebSearch,
)
from dragoman._wire.exceptions import RemoteProtocolError
from dragoman.protocols.anthropic_messages import SPEC

NAME = "anthropic_messages"
HELLO = {"role": "user", "content": "Hello"}
AT = "/tools/0"


def read(*messages: Any, **fields: Any) -> Request:
    return SPEC.read_request(
        {"model": "m", "max_tokens": 9, "messages": [HELLO, *messages], **fields}, Signer()
    )


F = {"name": "f", "description": "d", "input_schema": {"type": "object"}, "strict": True}


@pytest.mark.parametrize(
    ("tool", "read_as"),
    [
        (F, FunctionTool("f", "d", {"type": "object"}, True, path=AT)),
        (
            {
                "type": "custom",
                "name": "f",
                "defer_loading": True,
                "input_examples": [{"a": 1}],
                "cache_control": {"type": "ephemeral"},
                "eager_input_streaming": True,
            },
            FunctionTool(
                "f",
                cache=CacheMark(f"{AT}/cache_control"),
                extra={"eager_input_streaming": True},
                path=AT,
                deferred=True,
                examples=[{"a": 1}],
            ),
        ),
    ],
)
def test_functions(tool: Any, read_as: FunctionTool) -> None:
    assert read(tools=[tool]).tools == (read_as,)


@pytest.mark.parametrize("tools", [[], None])
def test_no_tools(tools: Any) -> None:
    assert read(tools=tools).tools == ()


@pytest.mark.parametrize(
    ("tool", "use"),
    [
        ({"type": "web_search_20250305", "name": "web_search"}, WebSearch()),
        (
            {
                "type": "web_search_20260318",
                "name": "web_search",
                "allowed_domains": ["a.com"],
                "blocked_domains": None,
                "max_uses": 3,
                "user_location": {"type": "approximate", "city": "Bonn", "region": None},
                "response_inclusion": "full",
            },
            WebSearch(("a.com",), None, 3, {"type": "approximate", "city": "Bonn"}),
        ),
        (
            {"type": "web_search_20260209", "name": "web_search", "blocked_domains": ["b.com"]},
            WebSearch(None, ("b.com",)),
        ),
        ({"type": "code_execution_20250825", "name": "code_execution"}, CodeExecution()),
        ({"type": "web_fetch_20260318", "name": "web_fetch"}, None),
        ({"type": "advisor_20260301", "name": "advisor", "model": "m"}, None),
        ({"type": "tool_search_tool_bm25", "name": "tool_search_tool_bm25"}, None),
        ({"type": "browser_toolset_20260801"}, None),
        ({"type": "computer_toolset_20260801"}, None),
        ({"type": "mcp_toolset", "mcp_server_name": "gone"}, None),
    ],
)
def test_tools_that_the_vendor_runs(tool: Any, use: Any) -> None:
    assert read(tools=[tool]).tools == (HostedTool(NAME, tool["type"], tool, AT, use),)


SERVER = {"type": "url", "name": "deep", "url": "https://mcp", "authorization_token": "secret"}


def server(allowed: tuple[str, ...] | None = None) -> McpServer:
    return McpServer("deep", "https://mcp", "secret", allowed)


@pytest.mark.parametrize(
    ("toolset", "more", "use"),
    [
        ({}, {}, server()),
        (
            {"default_config": {"enabled": False}, "configs": {"ask": {"enabled": True}, "tell": {}}},
            {},
            server(("ask",)),
        ),
        ({"default_config": {"enabled": True}, "configs": {"ask": {"enabled": True}}}, {}, server()),
        pytest.param({"configs": {"ask": {"enabled": False}}}, {}, None, id="a forbidden tool"),
        ({"default_config": 7, "configs": {"ask": 7}}, {}, server()),
        ({"configs": 7}, {"tool_configuration": {}}, server()),
        ({}, {"tool_configuration": {"allowed_tools": ["ask"]}}, server(("ask",))),
        (
            {"default_config": {"enabled": False}},
            {"tool_configuration": {"allowed_tools": ["ask"]}},
            server(()),
        ),
        ({}, {"tool_configuration": {"enabled": False}}, None),
    ],
)
def test_mcp_toolsets(toolset: Any, more: Any, use: Any) -> None:
    tool = {"type": "mcp_toolset", "mcp_server_name": "deep", **toolset}
    request = read(tools=[tool], mcp_servers=[{**SERVER, **more}])
    assert request.tools == (HostedTool(NAME, "mcp_toolset", tool, AT, use),)
    assert request.params["mcp_servers"] == [{**SERVER, **more}]


def test_an_mcp_server_without_a_toolset() -> None:
    request = read(tools=[F], mcp_servers=[{**SERVER, "odd": 1}])
    assert request.tools[1] == HostedTool(
        NAME,
        "mcp_server",
        {"type": "url", "name": "deep", "url": "https://mcp", "odd": 1},
        "/mcp_servers/0",
        McpServer("deep", "https://mcp", "secret"),
    )
    assert request.extra == {"mcp_servers": [{"odd": 1}]}
    assert "secret" not in repr(request.tools)


@pytest.mark.parametrize(
    ("choice", "read_as", "parallel"),
    [
        (None, None, None),
        ({"type": "auto"}, ToolChoice("auto", path="/tool_choice"), None),
        (
            {"type": "any", "disable_parallel_tool_use": True},
            ToolChoice("required", path="/tool_choice"),
            False,
        ),
        ({"type": "none"}, ToolChoice("none", path="/tool_choice"), None),
        (
            {"type": "tool", "name": "f", "disable_parallel_tool_use": False},
            ToolChoice("named", "f", path="/tool_choice"),
            True,
        ),
        (
            {"type": "tool", "name": "bash"},
            ToolChoice("named", "bash", path="/tool_choice", hosted="bash_20250124"),
            None,
        ),
    ],
)
def test_tool_choice(choice: Any, read_as: ToolChoice | None, parallel: bool | None) -> None:
    request = read(tools=[F, {"type": "bash_20250124", "name": "bash"}], tool_choice=choice)
    assert (request.tool_choice, request.parallel_tool_calls) == (read_as, parallel)


ERRORS: list[tuple[Any, str]] = [
    ({"tools": {"a": 1}}, "tools: Input should be a valid list"),
    ({"tools": ["f"]}, "tools.0: Input should be an object"),
    ({"tools": [{"input_schema": {}}]}, "tools.0.name: Field required"),
    ({"tools": [{**F, "defer_loading": 1}]}, "tools.0.defer_loading: Input should be a valid boolean"),
    ({"tools": [{"type": "bash_20250124"}]}, "tools.0.name: Field required"),
    ({"tools": [{"type": "mcp_toolset"}]}, "tools.0.mcp_server_name: Field required"),
    (
        {"tools": [{"type": "web_search_20250305", "max_uses": "3"}]},
        "tools.0.max_uses: Input should be a valid integer",
    ),
    ({"mcp_servers": [{"name": "a"}]}, "mcp_servers.0.url: Field required"),
    ({"mcp_servers": [{"url": "a"}]}, "mcp_servers.0.name: Field required"),
    ({"tool_choice": {"type": "tool"}}, "tool_choice.name: Field required"),
    (
        {"tool_choice": {"type": "required"}},
        "tool_choice.type: Input should be 'auto', 'any', 'tool' or 'none'",
    ),
]


def test_errors_name_the_path(subtests: pytest.Subtests) -> None:
    for fields, error in ERRORS:
        with subtests.test(error=error):
            with pytest.raises(RemoteProtocolError) as caught:
                read(**fields)
            assert caught.value.message == error
            assert caught.value.path == "/" + error.split(":")[0].replace(".", "/")
