"""Blocks without a neutral form: each is kept whole, with its text for other protocols.

The table has each block type of the protocol that no other test has.
"""

from __future__ import annotations

from typing import Any

from core.same_protocol import read_same_protocol

from dragoman._ir.losses import Ledger
from dragoman._ir.request import Request
from dragoman._wire.json import decode, encode
from dragoman.protocols.anthropic_messages import SPEC
from dragoman.protocols.anthropic_messages.capabilities import MessagesCapabilities as Capabilities


def text(rendered: str) -> dict[str, Any]:
    return {"type": "text", "text": rendered}


BLOCKS: list[tuple[dict[str, Any], str | None]] = [
    ({"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "q"}}, None),
    (
        {
            "type": "web_search_tool_result",
            "tool_use_id": "s",
            "content": [
                {"type": "web_search_result", "url": "https://x", "title": "T"},
                {"url": "https://y"},
            ],
        },
        "Found by a web search:\n\nT\nhttps://x\n\nhttps://y",
    ),
    ({"type": "web_search_tool_result", "tool_use_id": "s", "content": []}, None),
    ({"type": "web_search_tool_result", "content": {"error_code": "unavailable"}}, None),
    (
        {
            "type": "web_fetch_tool_result",
            "content": {
                "type": "web_fetch_result",
                "url": "https://x",
                "content": {
                    "type": "document",
                    "title": "T",
                    "source": {"type": "text", "media_type": "text/plain", "data": "All of it."},
                },
            },
        },
        "Fetched from https://x:\n\nT\n\nAll of it.",
    ),
    ({"type": "web_fetch_tool_result", "content": {"error_code": "url_too_long"}}, None),
    (
        {
            "type": "code_execution_tool_result",
            "content": {"type": "code_execution_result", "stdout": "1", "stderr": "", "return_code": 0},
        },
        "Code was run, with exit code 0:\n1",
    ),
    (
        {
            "type": "bash_code_execution_tool_result",
            "content": {"type": "bash_code_execution_result", "stdout": "1", "stderr": "2", "return_code": 3},
        },
        "Code was run, with exit code 3:\n1\n2",
    ),
    ({"type": "code_execution_tool_result", "content": {"type": "x", "encrypted_stdout": "e"}}, None),
    (
        {
            "type": "text_editor_code_execution_tool_result",
            "content": {"type": "text_editor_code_execution_view_result", "content": "1: a"},
        },
        "A file in the sandbox:\n1: a",
    ),
    (
        {
            "type": "text_editor_code_execution_tool_result",
            "content": {"type": "text_editor_code_execution_create_result", "is_file_update": False},
        },
        None,
    ),
    ({"type": "mcp_tool_use", "id": "m", "name": "ask", "server_name": "deep", "input": {}}, None),
    ({"type": "mcp_tool_result", "tool_use_id": "m", "content": [text("A.")]}, "A tool returned:\nA."),
    ({"type": "mcp_tool_result", "content": "No.", "is_error": True}, "A tool failed:\nNo."),
    ({"type": "mcp_tool_result", "content": []}, None),
    ({"type": "mcp_tool_listing", "mcp_server_name": "deep", "tools": []}, None),
    ({"type": "advisor_tool_result", "content": {"type": "advisor_result", "text": "Do."}}, "Advice:\nDo."),
    ({"type": "advisor_tool_result", "content": {"type": "x", "encrypted_content": "e"}}, None),
    (
        {
            "type": "tool_search_tool_result",
            "content": {"tool_references": [{"type": "tool_reference", "tool_name": "Zap"}]},
        },
        "The tool Zap can be called now.",
    ),
    ({"type": "tool_search_tool_result", "content": {"error_code": "unavailable"}}, None),
    ({"type": "tool_reference", "tool_name": "Zap"}, "The tool Zap can be called now."),
    ({"type": "tool_reference"}, None),
    (
        {"type": "tool_addition", "tool": {"type": "tool_reference", "name": "Zap"}},
        "The tool Zap can be called now.",
    ),
    (
        {
            "type": "tool_addition",
            "tool": {"type": "mcp_tool_reference", "name": "ask", "server_name": "deep"},
        },
        "The tool ask of the MCP server deep can be called now.",
    ),
    (
        {"type": "tool_removal", "tool": {"type": "mcp_toolset_reference", "server_name": "deep"}},
        "Each tool of the MCP server deep can no longer be called.",
    ),
    ({"type": "tool_removal", "tool": {}}, None),
    (
        {
            "type": "search_result",
            "title": "T",
            "source": "https://x",
            "content": [text("One."), text("Two.")],
        },
        "T\n\nhttps://x\n\nOne.\n\nTwo.",
    ),
    ({"type": "document", "source": {"type": "content", "content": "Inline."}}, "Inline."),
    (
        {
            "type": "document",
            "title": "T",
            "context": "C",
            "source": {"type": "content", "content": [text("Inline."), 7]},
        },
        "T\n\nC\n\nInline.",
    ),
    ({"type": "document", "title": "T", "source": {"type": "odd"}}, None),
    ({"type": "image", "source": {"type": "base64", "data": None}}, None),
    ({"type": "image", "source": {"type": ["odd"]}}, None),
    ({"type": "container_upload", "file_id": "f"}, None),
    ({"type": "compaction", "content": "So far: all is well."}, "So far: all is well."),
    ({"type": "compaction", "content": None, "encrypted_content": "theirs"}, None),
    ({"type": "fallback", "from": {"model": "a"}, "to": {"model": "b"}}, None),
    (
        {
            "type": "browser_state",
            "tabs": [
                {"tab_id": "1", "title": "T", "url": "https://x", "active": True},
                {"tab_id": "2", "title": "", "url": "https://y"},
            ],
            "state_changes": [
                {"type": "tab_opened", "tab_id": "2"},
                {"type": "download_completed", "download_id": "d", "url": "https://z", "path": "/a"},
                {"type": "download_failed", "download_id": "e", "url": "https://z", "error": "gone"},
            ],
        },
        "Tab 1 (active): T https://x\nTab 2: https://y\ntab opened: 2\n"
        "download completed: https://z /a\ndownload failed: https://z gone",
    ),
    ({"type": "odd"}, None),
]


def read(role: str, *blocks: Any) -> Request:
    body = {"model": "m", "max_tokens": 9, "messages": [{"role": role, "content": list(blocks)}]}
    return read_same_protocol(SPEC, body)


def test_opaque_parts_are_written_unchanged() -> None:
    blocks = [block for block, _ in BLOCKS]
    ledger = Ledger()
    written = decode(encode(SPEC.write_request(read("assistant", *blocks), Capabilities(), ledger)))
    assert written["messages"] == [{"role": "assistant", "content": blocks}]
    assert len(ledger) == 0
