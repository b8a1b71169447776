"""Tools and the choice among them: read, and written for upstreams."""

from __future__ import annotations

from typing import Any

import pytest
from chat_requests import write, write_request
from core.same_protocol import read_same_protocol

from dragoman._ir.events import ToolKind
from dragoman._ir.request import Request
from dragoman._ir.tools import (
    CacheMark,
    CustomTool,
    FunctionTool,
    Grammar,
    HostedTool,
    ToolChoice,
    ToolRef,
    WebSearch,
)
from dragoman.protocols.openai_chat import SPEC
from dragoman.protocols.openai_chat.capabilities import ChatCapabilities as Capabilities

CHAT = "openai_chat"
CLOSED = {"type": "object", "properties": {}, "additionalProperties": False}
F = FunctionTool("f", parameters={"type": "object"}, path="/tools/0")


def read(**body: Any) -> Request:
    return read_same_protocol(SPEC, {"model": "m", "messages": [], **body})


# -- tools that clients send ------------------------------------------------------------------------------


def tool(**fields: Any) -> dict[str, Any]:
    return {"tools": [{"type": "function", "function": {"name": "f"}, **fields}]}


# -- tools for upstreams ----------------------------------------------------------------------------------


def test_defaults_of_tools_are_left_out() -> None:
    # "400 for parallel_tool_calls"; "Thinking mode does not support this tool_choice"
    body, losses = write(tools=(F,), tool_choice=ToolChoice("auto"), parallel_tool_calls=True)
    assert body.keys() == {"model", "messages", "tools"}
    assert losses == []
    body, _ = write(tools=(F,), tool_choice=ToolChoice("none"), parallel_tool_calls=False)
    assert (body["tool_choice"], body["parallel_tool_calls"]) == ("none", False)


def test_write_tools() -> None:
    body, losses = write(
        tools=(
            FunctionTool("f", "d", CLOSED, True, cache=CacheMark("/tools/0/cache_control")),
            FunctionTool("g"),
            CustomTool("p", "d"),
            CustomTool("q", grammar=Grammar("regex", "a+")),
            HostedTool("other", "web_search_20250305", {}, "/tools/4"),
        ),
        tool_choice=ToolChoice(
            "allowed", allowed=(ToolRef("f"), ToolRef("p", kind=ToolKind.CUSTOM)), required=True
        ),
        parallel_tool_calls=False,
    )
    assert body["tools"] == [
        {
            "type": "function",
            "function": {"name": "f", "description": "d", "parameters": CLOSED, "strict": True},
        },
        {"type": "function", "function": {"name": "g", "parameters": {"type": "object", "properties": {}}}},
        {"type": "custom", "custom": {"name": "p", "description": "d"}},
        {
            "type": "custom",
            "custom": {
                "name": "q",
                "format": {"type": "grammar", "grammar": {"definition": "a+", "syntax": "regex"}},
            },
        },
    ]
    assert body["tool_choice"] == {
        "type": "allowed_tools",
        "allowed_tools": {
            "mode": "required",
            "tools": [
                {"type": "function", "function": {"name": "f"}},
                {"type": "custom", "custom": {"name": "p"}},
            ],
        },
    }
    assert body["parallel_tool_calls"] is False
    assert losses == [("dropped", "/tools/0/cache_control"), ("unknown_kind", "/tools/4")]


@pytest.mark.parametrize(("description", "expected"), [("Does it.", "Does it.\n\n"), (None, "")])
def test_examples_of_input_go_into_the_description(description: Any, expected: str) -> None:
    tool = FunctionTool("f", description, {}, path="/tools/0", examples=[{"a": 1}, {"b": "x"}])
    body, losses = write(tools=(tool,))
    description = body["tools"][0]["function"]["description"]
    assert description == expected + 'Examples of its input:\n{"a":1}\n{"b":"x"}'
    assert losses == [("altered", "/tools/0/input_examples")]


@pytest.mark.parametrize(
    ("deferred", "losses"), [(True, [("altered", "/tools/0/defer_loading")]), (False, [])]
)
def test_deferred_tools_are_sent_at_once(deferred: bool, losses: Any) -> None:
    body, found = write(tools=(FunctionTool("f", None, {}, path="/tools/0", deferred=deferred),))
    assert [tool["function"]["name"] for tool in body["tools"]] == ["f"]
    assert found == losses


@pytest.mark.parametrize(
    ("strict", "parameters", "expected", "losses"),
    [
        (True, CLOSED, True, []),
        (True, {"type": "object"}, False, [("altered", "/tools/0/strict")]),
        (False, CLOSED, False, []),
        (None, CLOSED, None, []),
    ],
)
def test_tools_are_strict_only_where_the_server_accepts_that(
    strict: Any, parameters: Any, expected: Any, losses: Any
) -> None:
    body, found = write(tools=(FunctionTool("f", None, parameters, strict, path="/tools/0"),))
    assert body["tools"][0]["function"].get("strict") == expected
    assert found == losses


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (ToolChoice("none"), "none"),
        (ToolChoice("required"), "required"),
        (ToolChoice("named", "f"), {"type": "function", "function": {"name": "f"}}),
        (ToolChoice("named", "p", ToolKind.CUSTOM), {"type": "custom", "custom": {"name": "p"}}),
        (ToolChoice("allowed"), {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": []}}),
    ],
)
def test_write_tool_choice(choice: ToolChoice, expected: Any) -> None:
    assert write(tools=(F,), tool_choice=choice)[0]["tool_choice"] == expected


@pytest.mark.parametrize(("mode", "losses"), [("auto", []), ("required", [("dropped", "/tool_choice")])])
def test_no_choice_without_tools(mode: Any, losses: Any) -> None:
    body, found = write(tool_choice=ToolChoice(mode, path="/tool_choice"), parallel_tool_calls=True)
    assert body == {"model": "m", "messages": []}
    assert found == losses


# -- web searches and other tools of the provider ---------------------------------------------------------


OSLO = {"city": "Oslo", "country": "NO"}
LOCATION = {"type": "approximate", "approximate": OSLO}
OPTIONS = {"search_context_size": "low", "user_location": LOCATION}


@pytest.mark.parametrize(
    ("options", "use", "extra"),
    [
        ({}, WebSearch(), None),
        (OPTIONS, WebSearch(location={"type": "approximate", **OSLO}, context_size="low"), None),
        ({"user_location": None}, WebSearch(), None),
        ({"x": 1}, WebSearch(), {"x": 1}),
        (
            {"user_location": {**LOCATION, "x": 1, "approximate": {**OSLO, "y": 2}}},
            WebSearch(location={"type": "approximate", **OSLO}),
            {"user_location": {"x": 1, "approximate": {"y": 2}}},
        ),
        (
            {"user_location": {"type": "exact", "approximate": "here"}},
            WebSearch(),
            {"user_location": {"type": "exact", "approximate": "here"}},
        ),
        ({"user_location": {"type": "approximate"}}, WebSearch(), None),
        ({"user_location": "here"}, WebSearch(), {"user_location": "here"}),
    ],
)
def test_web_search_options_are_a_hosted_tool(options: Any, use: WebSearch, extra: Any) -> None:
    request = read(web_search_options=options)
    path = "/web_search_options"
    assert request.tools == (HostedTool(CHAT, "web_search_options", options, path, use),)
    assert request.extra == (extra and {"web_search_options": extra})
    body, losses = write_request(request, Capabilities())
    assert (body["web_search_options"], losses) == (options, [])


SEARCHES = Capabilities(hosted_tools=frozenset({"web_search"}))

NATIVE = {
    "type": "web_search_20250305",
    "name": "web_search",
    "allowed_domains": ["a.example"],
    "max_uses": 4,
    "user_location": {"type": "approximate", "city": "Oslo", "region": None},
    "cache_control": {"type": "ephemeral"},
    "nothing": {},
}

USE = WebSearch(
    allowed_domains=("a.example",),
    max_uses=4,
    location={"type": "approximate", "city": "Oslo", "region": None},
)

TOOL = HostedTool("anthropic_messages", "web_search_20250305", NATIVE, "/tools/0", USE)
FUNCTION = FunctionTool("f", parameters={}, path="/tools/1")


def request_with(*tools: Any, **fields: Any) -> Request:
    return Request("other", "m", (), tools=tools, **fields)


def test_a_web_search_of_another_protocol_becomes_web_search_options() -> None:
    body, losses = write_request(request_with(TOOL), SEARCHES)
    assert body == {
        "model": "m",
        "messages": [],
        "web_search_options": {"user_location": {"type": "approximate", "approximate": {"city": "Oslo"}}},
    }
    # Domains, uses and cache marks have no counterpart.
    assert losses == [
        ("dropped", "/tools/0/allowed_domains"),
        ("dropped", "/tools/0/max_uses"),
        ("dropped", "/tools/0/cache_control"),
        ("dropped", "/tools/0/nothing"),
    ]


def test_a_web_search_with_all_its_settings_is_no_loss() -> None:
    native = {"type": "web_search", "search_context_size": "high", "filters": None}
    tool = HostedTool("openai_responses", "web_search", native, "/tools/0", WebSearch(context_size="high"))
    body, losses = write_request(request_with(tool), SEARCHES)
    assert body["web_search_options"] == {"search_context_size": "high"}
    assert losses == []


def test_there_is_one_web_search() -> None:
    bare = HostedTool("x", "web_search", None, "/tools/1", WebSearch())
    body, losses = write_request(request_with(bare, TOOL), SEARCHES)
    assert body["web_search_options"] == {}
    assert losses == [("dropped", "/tools/0")]


@pytest.mark.parametrize(
    "tool", [TOOL, HostedTool("x", "code_execution", {}, "/tools/0")], ids=lambda tool: tool.kind
)
def test_h6_hosted_tools_that_the_upstream_does_not_run_are_dropped(tool: HostedTool) -> None:
    capabilities = SEARCHES if tool is not TOOL else Capabilities()
    body, losses = write_request(request_with(tool, FUNCTION), capabilities)
    assert [each["type"] for each in body["tools"]] == ["function"]
    assert losses == [("dropped" if tool is TOOL else "unknown_kind", "/tools/0")]


F_REF = {"type": "function", "function": {"name": "f"}}


@pytest.mark.parametrize(
    ("choice", "expected", "losses"),
    [
        (ToolChoice("named", path="/c", hosted="web_search"), None, [("dropped", "/c")]),
        (ToolChoice("named", "server", path="/c", hosted="mcp"), None, [("dropped", "/c")]),
        (
            ToolChoice("allowed", allowed=(ToolRef("f"), ToolRef("", hosted="web_search")), path="/c"),
            {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [F_REF]}},
            [("altered", "/c")],
        ),
        (
            ToolChoice("allowed", allowed=(ToolRef("", hosted="web_search"),), path="/c"),
            "none",
            [("altered", "/c")],
        ),
    ],
)
def test_hosted_tools_cannot_be_chosen(choice: ToolChoice, expected: Any, losses: Any) -> None:
    body, found = write_request(request_with(FUNCTION, tool_choice=choice), Capabilities())
    assert body.get("tool_choice") == expected
    assert found == losses


def test_a_choice_of_a_native_hosted_tool() -> None:
    body_in = {"tools": [{"type": "web_search"}], "tool_choice": {"type": "web_search"}}
    request = read(**body_in)
    assert request.tool_choice == ToolChoice("named", path="/tool_choice", hosted="web_search")
    body, losses = write_request(request, Capabilities())
    assert (body["tools"], losses) == (body_in["tools"], [("dropped", "/tool_choice")])
