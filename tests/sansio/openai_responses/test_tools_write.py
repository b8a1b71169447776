"""Tools and tool choices of other protocols, written for a Responses upstream."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman._ir.events import ToolKind
from dragoman._ir.losses import Ledger, LossCode
from dragoman._ir.request import Message, Request, Text
from dragoman._ir.tools import (
    CacheMark,
    CodeExecution,
    CustomTool,
    FunctionTool,
    Grammar,
    HostedTool,
    McpServer,
    ToolChoice,
    ToolRef,
    WebSearch,
)
from dragoman.protocols.openai_responses import SPEC
from dragoman.protocols.openai_responses.capabilities import ResponsesCapabilities as Capabilities

CHAT, MESSAGES = "openai_chat", "anthropic_messages"
USER = Message("user", (Text("hi"),), "/messages/9")
Losses = list[tuple[LossCode, str]]
CLOSED = {
    "type": "object",
    "properties": {"a": {"type": "string"}},
    "required": ["a"],
    "additionalProperties": False,
}
OPEN = {**CLOSED, "required": []}


def write(
    *messages: Message, protocol: str = CHAT, capabilities: Capabilities = Capabilities(), **fields: Any
) -> tuple[dict[str, Any], Losses]:
    ledger = Ledger()
    body = SPEC.write_request(Request(protocol, "m", messages, **fields), capabilities, ledger)
    return body, [(loss.code, loss.path) for loss in ledger]


def test_tools_are_flat_and_have_parameters_and_strict() -> None:
    body, losses = write(
        USER,
        tools=(
            FunctionTool("f", "d", CLOSED, True),
            FunctionTool("g"),
            CustomTool("c", "free"),
            CustomTool("x", grammar=Grammar("regex", "a+")),
            HostedTool(MESSAGES, "web_search_20250305", {}, "/tools/4"),
        ),
    )
    assert body["tools"] == [
        {
            "type": "function",
            "name": "f",
            "description": "d",
            "parameters": CLOSED,
            "strict": True,
        },
        {
            "type": "function",
            "name": "g",
            "parameters": {"type": "object", "properties": {}},
            "strict": False,
        },
        {"type": "custom", "name": "c", "description": "free"},
        {"type": "custom", "name": "x", "format": {"type": "grammar", "syntax": "regex", "definition": "a+"}},
    ]
    assert losses == [(LossCode.UNKNOWN_KIND, "/tools/4")]


def test_no_tools_field_when_none_is_left() -> None:
    body, _ = write(USER, tools=(HostedTool(MESSAGES, "web_search_20250305", {}, "/tools/0"),))
    assert "tools" not in body


CHOICES: list[tuple[ToolChoice, Any]] = [
    (ToolChoice("auto"), "auto"),
    (ToolChoice("none"), "none"),
    (ToolChoice("required"), "required"),
    (ToolChoice("named", "f"), {"type": "function", "name": "f"}),
    (ToolChoice("named", "f", namespace="ns"), {"type": "function", "name": "f", "namespace": "ns"}),
    (ToolChoice("named", "c", ToolKind.CUSTOM), {"type": "custom", "name": "c"}),
    (
        ToolChoice("allowed", allowed=(ToolRef("f"), ToolRef("c", kind=ToolKind.CUSTOM)), required=True),
        {
            "type": "allowed_tools",
            "mode": "required",
            "tools": [{"type": "function", "name": "f"}, {"type": "custom", "name": "c"}],
        },
    ),
    (
        ToolChoice("allowed", allowed=(ToolRef("f"),)),
        {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}]},
    ),
]


@pytest.mark.parametrize(("choice", "expected"), CHOICES)
def test_tool_choice(choice: ToolChoice, expected: Any) -> None:
    body, _ = write(
        USER, tools=(FunctionTool("f"), CustomTool("c")), tool_choice=choice, parallel_tool_calls=False
    )
    assert body["tool_choice"] == expected
    assert body["parallel_tool_calls"] is False


# --- tools that the provider runs -----------------------------------------------------------------------------

RUNS_ALL = Capabilities(hosted_tools=frozenset(("web_search", "code_execution", "mcp")))
PLACE = {"type": "approximate", "city": "Oslo"}
DROPPED, ALTERED, UNKNOWN_KIND = LossCode.DROPPED, LossCode.ALTERED, LossCode.UNKNOWN_KIND


def hosted(native: Any, use: Any, kind: str = "web_search_20260318") -> HostedTool:
    return HostedTool(MESSAGES, kind, native, "/tools/0", use)


HOSTED: list[tuple[HostedTool, dict[str, Any], Losses]] = [
    (
        hosted({"type": "web_search_20260318", "name": "web_search"}, WebSearch()),
        {"type": "web_search"},
        [],
    ),
    (
        hosted(
            {"allowed_domains": ["a"], "user_location": {"city": "Oslo"}, "max_uses": 3},
            WebSearch(("a",), None, 3, {"city": "Oslo"}, "low"),
        ),
        {
            "type": "web_search",
            "filters": {"allowed_domains": ["a"]},
            "user_location": PLACE,
            "search_context_size": "low",
        },
        [],
    ),
    (
        hosted({"blocked_domains": ["b"]}, WebSearch(blocked_domains=("b",))),
        {"type": "web_search"},
        [(DROPPED, "/tools/0/blocked_domains")],
    ),
    (
        hosted({"response_inclusion": "full"}, WebSearch()),
        {"type": "web_search"},
        [(ALTERED, "/tools/0")],
    ),
    (hosted(None, WebSearch()), {"type": "web_search"}, []),
    (
        hosted({"name": "code_execution"}, CodeExecution(), "code_execution_20260521"),
        {"type": "code_interpreter", "container": {"type": "auto"}},
        [],
    ),
    (
        hosted({"mcp_server_name": "s"}, McpServer("s", "https://s", "key", ("a",)), "mcp_toolset"),
        {
            "type": "mcp",
            "server_label": "s",
            "server_url": "https://s",
            "authorization": "key",
            "allowed_tools": ["a"],
            "require_approval": "never",
        },
        [],
    ),
    (
        hosted({"mcp_server_name": "s"}, McpServer("s", "https://s"), "mcp_toolset"),
        {"type": "mcp", "server_label": "s", "server_url": "https://s", "require_approval": "never"},
        [],
    ),
]


@pytest.mark.parametrize(("tool", "expected", "losses"), HOSTED)
def test_tools_that_the_upstream_runs_too_are_its_own(
    tool: HostedTool, expected: dict[str, Any], losses: Losses
) -> None:
    body, lost = write(USER, protocol=MESSAGES, tools=(tool,), capabilities=RUNS_ALL)
    assert body["tools"] == [expected]
    assert lost == losses


@pytest.mark.parametrize(("use", "code"), [(None, UNKNOWN_KIND), (CodeExecution(), DROPPED)])
def test_tools_that_it_does_not_run_are_left_out(use: Any, code: LossCode) -> None:
    capabilities = Capabilities(hosted_tools=frozenset(("web_search",)))
    body, losses = write(USER, protocol=MESSAGES, tools=(hosted({}, use),), capabilities=capabilities)
    assert "tools" not in body
    assert losses == [(code, "/tools/0")]


SERVED = {"mcp_servers": [{"name": "a"}, {"name": "b"}, {"name": "c"}]}


@pytest.mark.parametrize(
    ("capabilities", "losses"),
    [
        (RUNS_ALL, [(UNKNOWN_KIND, "/mcp_servers/1"), (DROPPED, "/mcp_servers/2")]),
        (
            Capabilities(),
            [
                (DROPPED, "/tools/0"),
                (UNKNOWN_KIND, "/mcp_servers/1"),
                (DROPPED, "/mcp_servers/0"),
                (DROPPED, "/mcp_servers/2"),
            ],
        ),
    ],
)
def test_a_server_of_which_no_tool_was_sent_is_a_loss(capabilities: Capabilities, losses: Losses) -> None:
    sent = hosted({"mcp_server_name": "a"}, McpServer("a", "https://a"), "mcp_toolset")
    unsent = HostedTool(MESSAGES, "mcp_server", {"name": "b"}, "/mcp_servers/1", None)
    _, lost = write(USER, protocol=MESSAGES, tools=(sent, unsent), capabilities=capabilities, params=SERVED)
    assert lost == losses


LIMITED = hosted({"max_uses": 3}, WebSearch(max_uses=3))


@pytest.mark.promise("R13")
@pytest.mark.parametrize(
    ("tools", "limit", "losses"),
    [
        ((LIMITED,), 3, []),
        ((LIMITED, FunctionTool("f")), 3, []),
        ((LIMITED, hosted({}, CodeExecution())), None, [(DROPPED, "/tools/0/max_uses")]),
        ((hosted({}, CodeExecution()),), None, []),
    ],
)
def test_the_limit_of_the_only_hosted_tool_is_that_of_all(tools: Any, limit: Any, losses: Losses) -> None:
    body, lost = write(USER, protocol=MESSAGES, tools=tools, capabilities=RUNS_ALL)
    assert (body.get("max_tool_calls"), lost) == (limit, losses)


SEARCH, CODE = hosted({}, WebSearch(), "web"), hosted({}, CodeExecution(), "code")
SERVER = hosted({}, McpServer("s", "u"), "mcp_toolset")
UNSENT = hosted({}, None, "advisor")
TOOLS = (FunctionTool("f"), SEARCH, CODE, SERVER, UNSENT)
HOSTED_CHOICES: list[tuple[ToolChoice, Any, Losses]] = [
    (ToolChoice("named", hosted="web"), {"type": "web_search_preview"}, []),
    (ToolChoice("named", hosted="code"), {"type": "code_interpreter"}, []),
    (ToolChoice("named", hosted="mcp_toolset"), {"type": "mcp", "server_label": "s"}, []),
    (ToolChoice("named", hosted="advisor", path="/c"), None, [(DROPPED, "/c")]),
    (
        ToolChoice("allowed", allowed=(ToolRef("f"), ToolRef("", hosted="web"))),
        {
            "type": "allowed_tools",
            "mode": "auto",
            "tools": [{"type": "function", "name": "f"}, {"type": "web_search_preview"}],
        },
        [],
    ),
    (
        ToolChoice("allowed", allowed=(ToolRef("f"), ToolRef("", hosted="advisor")), path="/c"),
        {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}]},
        [(ALTERED, "/c")],
    ),
    (
        ToolChoice("allowed", allowed=(ToolRef("", hosted="advisor"),), path="/c"),
        "none",
        [(ALTERED, "/c")],
    ),
]


@pytest.mark.parametrize(("choice", "expected", "losses"), HOSTED_CHOICES)
def test_a_choice_names_only_tools_that_were_sent(choice: ToolChoice, expected: Any, losses: Losses) -> None:
    body, lost = write(USER, protocol=MESSAGES, tools=TOOLS, tool_choice=choice, capabilities=RUNS_ALL)
    assert body.get("tool_choice") == expected
    assert lost == [(UNKNOWN_KIND, "/tools/0"), *losses]


def test_no_call_is_required_if_no_tool_is_left() -> None:
    choice = ToolChoice("required", path="/c")
    body, losses = write(USER, protocol=MESSAGES, tools=(UNSENT,), tool_choice=choice)
    assert "tool_choice" not in body
    assert losses == [(UNKNOWN_KIND, "/tools/0"), (DROPPED, "/c")]


# --- strict schemas, deferred tools, examples ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("protocol", "schema", "requested", "sent", "losses"),
    [
        (CHAT, CLOSED, True, True, []),
        (CHAT, OPEN, True, False, [(ALTERED, "/tools/0/strict")]),
        (CHAT, OPEN, None, False, []),
        (MESSAGES, CLOSED, True, True, []),
        (MESSAGES, CLOSED, None, False, []),
        (MESSAGES, OPEN, True, False, [(ALTERED, "/tools/0/strict")]),
        (MESSAGES, None, True, False, [(ALTERED, "/tools/0/strict")]),
    ],
)
def test_a_tool_is_strict_if_its_schema_can_be(
    protocol: str, schema: Any, requested: Any, sent: bool, losses: Losses
) -> None:
    tool = FunctionTool("f", parameters=schema, strict=requested, path="/tools/0")
    body, lost = write(USER, protocol=protocol, tools=(tool,))
    assert (body["tools"][0]["strict"], lost) == (sent, losses)


def test_deferred_tools_are_visible_and_examples_are_in_the_description() -> None:
    tool = FunctionTool("f", "does", path="/t", deferred=True, examples=[{"a": 1}, {"a": 2}])
    body, losses = write(
        USER, protocol=MESSAGES, tools=(tool, FunctionTool("g", deferred=False, examples=[{}]))
    )
    assert [each.get("description") for each in body["tools"]] == [
        'does\nExamples of its input:\n{"a":1}\n{"a":2}',
        "Examples of its input:\n{}",
    ]
    assert losses == [
        (DROPPED, "/t/defer_loading"),
        (ALTERED, "/t/input_examples"),
        (ALTERED, "/input_examples"),
    ]


def test_marks_on_tools_are_losses() -> None:
    tool = FunctionTool("f", cache=CacheMark("/tools/0/cache_control"))
    _, losses = write(USER, tools=(tool,), capabilities=Capabilities(cache_marks="breakpoint"))
    assert losses == [(DROPPED, "/tools/0/cache_control")]
