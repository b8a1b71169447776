"""Items of tools in a client's input: calls and results of tools that the client runs, and hosted tools as text."""

from __future__ import annotations

from typing import Any

import pytest
from core.passes import pass_context
from core.same_protocol import read_same_protocol

from dragoman._ir.losses import Ledger
from dragoman._ir.request import OpaquePart, Request
from dragoman._transforms.extensions import strip_extensions
from dragoman.protocols.openai_responses import SPEC
from dragoman.protocols.openai_responses.capabilities import ResponsesCapabilities as Capabilities

ORIGIN = "openai_responses"


def read(*items: dict[str, Any]) -> Any:
    return read_same_protocol(SPEC, {"model": "m", "input": [*items]})


# --- hosted calls as text ---------------------------------------------------------------------------------------

SERVER = {"server_label": "files"}


def lost(request: Request) -> list[tuple[str, str]]:
    ledger = Ledger()
    strip_extensions(request, pass_context(request, ledger, client=SPEC))
    return [(loss.code.value, loss.path) for loss in ledger]


RENDERED: list[tuple[dict[str, Any], str]] = [
    (
        {"type": "web_search_call", "action": {"type": "search", "query": "cats", "status": "completed"}},
        'Searched the web for "cats"',
    ),
    (
        {
            "type": "web_search_call",
            "action": {
                "type": "search",
                "query": "a",
                "queries": ["a", "b", 1],
                "sources": [{"type": "url", "url": "https://x"}, {"type": "api", "name": "news"}, {}],
            },
        },
        'Searched the web for "a", "b"\nFound: https://x\nFound: news',
    ),
    (
        {"type": "web_search_call", "action": {"queries": ["b"], "query": "a"}},
        'Searched the web for "a", "b"',
    ),
    ({"type": "web_search_call", "status": "failed"}, "Searched the web (failed)"),
    (
        {"type": "web_search_call", "action": {"type": "open_page", "url": "https://x"}},
        "Opened the web page https://x",
    ),
    ({"type": "web_search_call", "action": {"type": "open_page", "url": None}}, "Opened the web page"),
    (
        {"type": "web_search_call", "action": {"type": "find_in_page", "pattern": "p", "url": "https://x"}},
        'Looked for "p" on the web page https://x',
    ),
    (
        {
            "type": "file_search_call",
            "queries": ["a"],
            "results": [{"filename": "f.txt", "text": "t"}, {"file_id": "f1"}, {}],
        },
        'Searched files for "a"\nFound: f.txt: t\nFound: f1:\nFound: a file:',
    ),
    ({"type": "file_search_call", "queries": ["a"], "results": None}, 'Searched files for "a"'),
    (
        {
            "type": "code_interpreter_call",
            "code": "1+1",
            "outputs": [{"type": "logs", "logs": "2"}, {"type": "image", "url": "https://i"}, {}],
        },
        "Ran this code:\n1+1\nOutput:\n2\nOutput: the image https://i",
    ),
    (
        {"type": "code_interpreter_call", "code": None, "outputs": None, "status": "incomplete"},
        "Ran this code:\n (incomplete)",
    ),
    ({"type": "image_generation_call", "result": "aW1n"}, "Generated an image"),
    (
        {"type": "image_generation_call", "revised_prompt": "a cat", "error": {"code": "c", "message": "m"}},
        "Generated an image: a cat\nError: m",
    ),
    (
        {"type": "mcp_list_tools", **SERVER, "tools": [{"name": "a"}, {"name": "b"}]},
        "The tools of the MCP server files: a, b",
    ),
    ({"type": "mcp_list_tools", "tools": [], "error": "no"}, "The tools of the MCP server: \nError: no"),
    (
        {"type": "mcp_approval_request", **SERVER, "name": "a", "arguments": "{}"},
        "Asked whether a of the MCP server files may be called with {}",
    ),
    (
        {"type": "mcp_approval_request", "arguments": {"a": 1}},
        'Asked whether a tool of the MCP server may be called with {"a":1}',
    ),
    ({"type": "mcp_approval_response", "approve": True}, "The call is approved"),
    ({"type": "mcp_approval_response", "approve": False, "reason": "r"}, "The call is not approved: r"),
    (
        {"type": "mcp_call", **SERVER, "name": "a", "arguments": "{}", "output": "o"},
        "Called a of the MCP server files with {}\nOutput:\no",
    ),
    (
        {"type": "mcp_call", **SERVER, "name": "a", "arguments": "{}", "error": {"content": 1}},
        'Called a of the MCP server files with {}\nError: {"content":1}',
    ),
    ({"type": "mcp_call", **SERVER, "arguments": "{}"}, "Called a tool of the MCP server files with {}"),
    ({"type": "program", "code": "x"}, "Ran this program:\nx"),
    ({"type": "program"}, "Ran this program:\n"),
    ({"type": "program_output", "result": "y"}, "The program gave:\ny"),
    ({"type": "program_output"}, "The program gave:\n"),
    (
        {
            "type": "tool_search_output",
            "execution": "server",
            "tools": [{"type": "namespace", "name": "n", "tools": [{"type": "custom", "name": "a"}]}],
        },
        "Found the tools: n__a",
    ),
    ({"type": "function_call_output", "output": "o", "name": "f"}, "Output of f:\no"),
    (
        {"type": "custom_tool_call_output", "output": [{"type": "input_text", "text": "o"}], "call_id": None},
        'Output of a tool:\n[{"type":"input_text","text":"o"}]',
    ),
]


def test_hosted_calls_are_rendered_as_text(subtests: pytest.Subtests) -> None:
    for item, text in RENDERED:
        with subtests.test(text=text):
            request = read(item)
            [message] = request.messages
            assert message.parts == (OpaquePart(ORIGIN, item["type"], item, "/input/0", text),)
            by_user = item["type"] in (
                "mcp_approval_response",
                "function_call_output",
                "custom_tool_call_output",
            )
            assert message.role == ("user" if by_user else "assistant")
            assert lost(request) == [("altered", "/input/0")]


def test_hosted_calls_return_whole_to_the_same_protocol() -> None:
    items = [{"type": "message", "role": "user", "content": "hi"}, *(item for item, _ in RENDERED)]
    ledger = Ledger()
    assert SPEC.write_request(read(*items), Capabilities(), ledger)["input"] == items
    assert list(ledger) == []
