"""What tools, choices and settings of a Responses request mean."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman._ir.events import ToolKind
from dragoman._ir.request import (
    CustomTool,
    FunctionTool,
    Grammar,
    HostedTool,
    ReasoningConfig,
    Request,
    ResponseFormat,
    ToolChoice,
    ToolRef,
)
from dragoman._ir.signatures import Sealer
from dragoman.protocols.openai_responses import SPEC

ORIGIN = "openai_responses"


def read(sealer: Sealer = Sealer(), **body: Any) -> Request:
    return SPEC.read_request({"model": "m", "input": "hi", **body}, sealer)


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


@pytest.mark.parametrize(("value", "expected"), CHOICES)
def test_tool_choice(value: Any, expected: ToolChoice) -> None:
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
def test_a_choice_that_says_more_is_kept_beside_its_form(value: dict[str, Any]) -> None:
    assert read(tool_choice=value).extra == {"tool_choice": value}


def test_reasoning_settings() -> None:
    place = {"path": "/reasoning", "effort_path": "/reasoning/effort"}
    assert read(reasoning={"effort": "low"}).reasoning == ReasoningConfig(effort="low", **place)
    assert read(reasoning={"summary": "detailed", "mode": "pro"}).reasoning == ReasoningConfig(
        show="summarized",
        show_path="/reasoning/summary",
        extra={"mode": "pro", "summary": "detailed"},
        **place,
    )
    assert read(reasoning={"generate_summary": "concise"}).reasoning == ReasoningConfig(
        show="summarized",
        show_path="/reasoning/generate_summary",
        extra={"generate_summary": "concise"},
        **place,
    )
    assert read(reasoning={"generate_summary": "auto"}).reasoning == ReasoningConfig(
        show="summarized",
        show_path="/reasoning/generate_summary",
        **place,
    )


FORMAT = "/text/format"
FORMATS: list[tuple[Any, ResponseFormat | None]] = [
    (None, None),
    ({"type": "text"}, None),
    ({"type": "json_object"}, ResponseFormat(path=FORMAT)),
    (
        {
            "type": "json_schema",
            "name": "n",
            "schema": {"type": "object"},
            "strict": True,
            "description": "d",
            "odd": 1,
        },
        ResponseFormat({"type": "object"}, "n", "d", True, {"odd": 1}, FORMAT),
    ),
]


@pytest.mark.parametrize(("value", "expected"), FORMATS)
def test_text_format(value: Any, expected: ResponseFormat | None) -> None:
    request = read(text={"format": value, "verbosity": "low", "odd": 1})
    assert request.response_format == expected
    assert request.params == {"verbosity": "low"}
    assert request.param_paths["verbosity"] == "/text/verbosity"
    assert request.extra == {"text": {"odd": 1}}


def test_settings_keep_their_values_and_null_is_absent() -> None:
    request = read(
        temperature=0,
        top_p=0.5,
        max_output_tokens=9,
        metadata={"a": "b"},
        store=True,
        service_tier="flex",
        client_metadata={"session_id": "s"},
        user=None,
        parallel_tool_calls=False,
        access_programs={"cyber": "standard"},
    )
    assert request.params == {
        "temperature": 0,
        "top_p": 0.5,
        "max_output_tokens": 9,
        "metadata": {"a": "b"},
        "store": True,
        "service_tier": "flex",
        "client_metadata": {"session_id": "s"},
    }
    assert request.parallel_tool_calls is False
    assert request.extra == {"access_programs": {"cyber": "standard"}}


def test_values_that_ask_for_nothing_are_no_settings() -> None:
    assert (
        read(store=False, background=False, truncation="disabled", metadata={}, top_logprobs=0).params == {}
    )
    assert read(background=True, truncation="auto", top_logprobs=2).params == {
        "background": True,
        "truncation": "auto",
        "top_logprobs": 2,
    }


@pytest.mark.parametrize(
    ("include", "params"),
    [
        ([], {}),
        (["reasoning.encrypted_content"], {}),
        (["message.output_text.logprobs"], {"logprobs": True}),
        (["web_search_call.action.sources"], {}),
        (
            ["reasoning.encrypted_content", "file_search_call.results"],
            {"include": ["reasoning.encrypted_content", "file_search_call.results"]},
        ),
    ],
)
def test_include(include: list[str], params: dict[str, Any]) -> None:
    assert read(include=include).params == params


@pytest.mark.parametrize(
    ("options", "extra"),
    [
        (None, None),
        ({}, None),
        ({"include_obfuscation": False}, None),
        ({"include_obfuscation": True}, {"stream_options": {"include_obfuscation": True}}),
        ("odd", {"stream_options": "odd"}),
    ],
)
def test_stream_options(options: Any, extra: Any) -> None:
    assert read(stream_options=options).extra == extra
