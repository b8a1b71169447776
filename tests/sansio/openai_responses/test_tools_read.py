"""Tools and tool choices in a Responses request."""

from __future__ import annotations

from typing import Any

import pytest
from core.same_protocol import read_same_protocol

from dragoman._ir.events import ToolKind
from dragoman._ir.losses import Ledger
from dragoman._ir.request import Request
from dragoman._ir.signatures import Signer
from dragoman._ir.tools import (
    CodeExecution,
    CustomTool,
    FunctionTool,
    Grammar,
    HostedTool,
    McpServer,
    Namespace,
    ToolChoice,
    ToolRef,
    WebSearch,
)
from dragoman.protocols.openai_responses import SPEC
from dragoman.protocols.openai_responses.capabilities import ResponsesCapabilities as Capabilities

ORIGIN = "openai_responses"


def read(signer: Signer = Signer(), **body: Any) -> Request:
    return read_same_protocol(SPEC, {"model": "m", "input": "hi", **body}, signer)


TOOLS: list[tuple[dict[str, Any], Any]] = [
    (
        {
            "type": "function",
            "name": "f",
            "description": "d",
            "parameters": {"type": "object"},
            "strict": True,
        },
        FunctionTool("f", "d", {"type": "object"}, True, path="/tools/0"),
    ),
    (
        {"type": "function", "name": "f", "parameters": None, "strict": None, "defer_loading": True},
        FunctionTool("f", path="/tools/0", deferred=True),
    ),
    (
        {"type": "function", "name": "f", "allowed_callers": ["direct"], "async": True},
        FunctionTool("f", extra={"async": True}, path="/tools/0"),
    ),
    (
        {"type": "custom", "name": "c", "allowed_callers": ["programmatic"]},
        CustomTool("c", extra={"allowed_callers": ["programmatic"]}, path="/tools/0"),
    ),
    ({"type": "custom", "name": "c", "format": {"type": "text"}}, CustomTool("c", path="/tools/0")),
    (
        {
            "type": "custom",
            "name": "c",
            "format": {"type": "grammar", "syntax": "lark", "definition": "start: X"},
        },
        CustomTool("c", grammar=Grammar("lark", "start: X"), path="/tools/0"),
    ),
    (
        {"type": "namespace", "name": "ns", "description": "d", "tools": []},
        HostedTool(
            ORIGIN,
            "namespace",
            {"type": "namespace", "name": "ns", "description": "d", "tools": []},
            "/tools/0",
        ),
    ),
]


@pytest.mark.parametrize(("tool", "expected"), TOOLS)
def test_tools(tool: dict[str, Any], expected: Any) -> None:
    assert read(tools=[tool]).tools == (expected,)


def test_a_namespace_gives_its_name_to_its_tools() -> None:
    tools = [
        {
            "type": "namespace",
            "name": "ns",
            "tools": [{"type": "function", "name": "f"}, {"type": "custom", "name": "c"}],
        },
        {"type": "function", "name": "g"},
    ]
    assert read(tools=tools).tools == (
        FunctionTool("f", namespace="ns", path="/tools/0/tools/0"),
        CustomTool("c", namespace="ns", path="/tools/0/tools/1"),
        FunctionTool("g", path="/tools/1"),
    )


CHOICE = "/tool_choice"
CHOICES: list[tuple[Any, ToolChoice]] = [
    ("auto", ToolChoice("auto", path=CHOICE)),
    ("none", ToolChoice("none", path=CHOICE)),
    ("required", ToolChoice("required", path=CHOICE)),
    ({"type": "function", "name": "f"}, ToolChoice("named", "f", path=CHOICE)),
    ({"type": "custom", "name": "c"}, ToolChoice("named", "c", ToolKind.CUSTOM, path=CHOICE)),
    (
        {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "f"}]},
        ToolChoice("allowed", allowed=(ToolRef("f"),), required=True, path=CHOICE),
    ),
    (
        {
            "type": "allowed_tools",
            "mode": "auto",
            "tools": [
                {"type": "custom", "name": "c"},
                {"type": "function", "name": "f", "namespace": "ns"},
                {"type": "shell"},
                {"type": "mcp", "server_label": "s"},
            ],
        },
        ToolChoice(
            "allowed",
            allowed=(
                ToolRef("c", kind=ToolKind.CUSTOM),
                ToolRef("f", "ns"),
                ToolRef("", hosted="shell"),
                ToolRef("s", hosted="mcp"),
            ),
            path=CHOICE,
        ),
    ),
    ({"type": "mcp", "server_label": "s"}, ToolChoice("named", "s", path=CHOICE, hosted="mcp")),
    ({"type": "apply_patch"}, ToolChoice("named", path=CHOICE, hosted="apply_patch")),
    ({"type": "web_search_preview"}, ToolChoice("named", path=CHOICE, hosted="web_search_preview")),
]


def test_tool_choice(subtests: pytest.Subtests) -> None:
    for value, expected in CHOICES:
        with subtests.test(value=value):
            request = read(tool_choice=value)
            assert request.tool_choice == expected
            assert request.extra is None


@pytest.mark.parametrize(
    ("chosen", "declared", "hosted"),
    [
        ("web_search_preview", "web_search", "web_search"),
        ("web_search_preview", "web_search_preview", "web_search_preview"),
        ("computer_use", "computer_use_preview", "computer_use_preview"),
        ("computer_use", "computer", "computer"),
        ("computer_use", "shell", "computer_use"),
    ],
)
def test_a_choice_means_the_declared_tool_of_its_family(chosen: str, declared: str, hosted: str) -> None:
    request = read(tool_choice={"type": chosen}, tools=[{"type": declared}])
    assert request.tool_choice == ToolChoice("named", path=CHOICE, hosted=hosted)


@pytest.mark.parametrize(
    "value",
    [
        {"type": "mcp", "server_label": "s", "name": "n"},
        {
            "type": "allowed_tools",
            "mode": "auto",
            "tools": [{"type": "mcp", "server_label": "s", "name": "n"}],
        },
    ],
)
def test_a_choice_with_further_members_is_kept_in_extra(value: dict[str, Any]) -> None:
    assert read(tool_choice=value).extra == {"tool_choice": value}


FUNCTION = {"type": "function", "name": "f"}


GRAMMAR = {"type": "grammar", "syntax": "lark", "definition": "d"}


@pytest.mark.parametrize(
    ("form", "extra"),
    [
        (None, None),
        ({"type": "text"}, None),
        (GRAMMAR, None),
        ({**GRAMMAR, "x": 1}, {"format": {**GRAMMAR, "x": 1}}),
        ({"type": "odd"}, {"format": {"type": "odd"}}),
        ("odd", {"format": "odd"}),
    ],
)
def test_formats_with_further_members(form: Any, extra: Any) -> None:
    [tool] = read(tools=[{"type": "custom", "name": "c", "format": form}]).tools
    assert getattr(tool, "extra", None) == extra


def test_fields_of_a_namespace() -> None:
    space = {"type": "namespace", "name": "n", "description": "d", "x": 1, "tools": [FUNCTION]}
    assert read(tools=[space]).namespaces == (Namespace("d", {"x": 1}, "/tools/0"),)


# --- tools that the provider runs -------------------------------------------------------------------------------

MCP = {"type": "mcp", "server_label": "s", "server_url": "https://s", "require_approval": "never"}
PLACE = {"type": "approximate", "city": "Oslo"}
USES: list[tuple[dict[str, Any], Any]] = [
    *(
        ({"type": kind}, WebSearch())
        for kind in (
            "web_search",
            "web_search_2025_08_26",
            "web_search_preview",
            "web_search_preview_2025_03_11",
        )
    ),
    (
        {
            "type": "web_search",
            "filters": {"allowed_domains": ["a"]},
            "user_location": PLACE,
            "search_context_size": "low",
            "external_web_access": True,
        },
        WebSearch(("a",), location=PLACE, context_size="low"),
    ),
    ({"type": "web_search", "filters": None, "user_location": None}, WebSearch()),
    ({"type": "web_search", "filters": {"allowed_domains": None}}, WebSearch()),
    ({"type": "code_interpreter", "container": {"type": "auto"}}, CodeExecution()),
    (MCP, McpServer("s", "https://s")),
    ({**MCP, "authorization": "k", "allowed_tools": ["a"]}, McpServer("s", "https://s", "k", ("a",))),
    ({**MCP, "allowed_tools": {"tool_names": ["a"]}}, McpServer("s", "https://s", None, ("a",))),
    ({**MCP, "allowed_tools": {"read_only": True}}, None),
    ({**MCP, "headers": {"x-key": "k"}}, None),
    ({**MCP, "require_approval": "always"}, None),
    ({**MCP, "require_approval": None}, None),
    ({**MCP, "server_url": None, "connector_id": "connector_gmail"}, None),
    ({**MCP, "server_label": ""}, None),
    ({"type": "file_search", "vector_store_ids": ["v"]}, None),
    ({"type": "image_generation"}, None),
    ({"type": "programmatic_tool_calling"}, None),
    ({"type": "tool_search"}, None),
]


def test_uses_of_hosted_tools(subtests: pytest.Subtests) -> None:
    for tool, use in USES:
        with subtests.test(tool=tool):
            request = read(tools=[tool])
            assert request.tools == (HostedTool(ORIGIN, tool["type"], tool, "/tools/0", use),)
            assert "https://s" not in repr(use)


@pytest.mark.parametrize(
    "choice",
    [
        {"type": "mcp", "server_label": "s"},
        {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "mcp", "server_label": "s"}, FUNCTION]},
    ],
)
def test_choices_of_hosted_tools_return_whole_to_the_same_protocol(choice: dict[str, Any]) -> None:
    body = {"model": "m", "input": "hi", "tools": [MCP, FUNCTION], "tool_choice": choice}
    assert SPEC.write_request(read_same_protocol(SPEC, body), Capabilities(), Ledger()) == body
