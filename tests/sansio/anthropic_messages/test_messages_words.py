"""Blocks without a form of their own: each is kept whole, with what it says in plain words for other targets.

The table has every block type of the protocol that has no other test, so that none is forgotten.
"""

from __future__ import annotations

from typing import Any

import pytest

from dragoman._ir.losses import Ledger
from dragoman._ir.request import Message, OpaquePart, Request, Text
from dragoman._ir.signatures import Sealer
from dragoman._wire.json import decode, encode
from dragoman.codec import Target
from dragoman.protocols.anthropic_messages import SPEC

NAME = "anthropic_messages"
AT = "/messages/0/content/0"


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


WORDS: list[tuple[dict[str, Any], str | None]] = [
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
    ({"type": "mcp_tool_result", "tool_use_id": "m", "content": [text("A.")]}, "A tool gave back:\nA."),
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


def read(block: Any, role: str) -> Request:
    body = {"model": "m", "max_tokens": 9, "messages": [{"role": role, "content": [block]}]}
    return SPEC.read_request(body, Sealer())


@pytest.mark.parametrize(("block", "words"), WORDS, ids=lambda value: str(value)[:60])
def test_words(block: Any, words: str | None) -> None:
    assert read(block, "assistant").messages == (
        Message("assistant", (OpaquePart(NAME, block["type"], block, AT, words),), "/messages/0"),
    )


@pytest.mark.parametrize("block", [block for block, _ in WORDS], ids=lambda value: str(value)[:60])
def test_they_come_back_whole(block: Any) -> None:
    ledger = Ledger()
    written = decode(encode(SPEC.write_request(read(block, "assistant"), Target(), ledger)))
    assert written["messages"] == [{"role": "assistant", "content": [block]}]
    assert len(ledger) == 0


@pytest.mark.parametrize("kind", ["search_result", "tool_reference", "browser_state"])
def test_in_a_result(kind: str) -> None:
    block, words = next(row for row in WORDS if row[0]["type"] == kind)
    result = {"type": "tool_result", "tool_use_id": "t", "content": [block]}
    (part,) = read(result, "user").messages[0].parts
    assert part.parts == (OpaquePart(NAME, kind, block, f"{AT}/content/0", words),)  # type: ignore[union-attr]


# --- in mid-conversation


def told(mid_system: bool, protocol: str, *parts: Any) -> tuple[Any, list[tuple[str, str]]]:
    hello = Message("user", (Text("Hi"),), "/m")
    ledger = Ledger()
    request = Request(protocol, "m", (hello, Message("system", parts, "/s")), {})
    body = decode(encode(SPEC.write_request(request, Target(mid_system=mid_system), ledger)))
    return body["messages"][-1], [(loss.code.value, loss.path) for loss in ledger]


ADDED = OpaquePart(
    NAME,
    "tool_addition",
    {"type": "tool_addition", "tool": {"type": "tool_reference", "name": "Zap"}},
    "/z",
    "The tool Zap can be called now.",
)


def test_a_change_of_tools_stays_in_its_place() -> None:
    turn, losses = told(True, NAME, Text("Now."), ADDED)
    assert turn == {"role": "system", "content": [text("Now."), ADDED.native]}
    assert losses == []


def test_a_change_of_tools_for_a_model_without_system_messages_is_told_in_words() -> None:
    silent = OpaquePart(NAME, "odd", {"type": "odd"}, "/o")
    turn, losses = told(False, NAME, ADDED, silent)
    words = "<system>\nThe tool Zap can be called now.\n</system>"
    assert turn["content"] == [text("Hi"), text(words)]
    assert losses == [("altered", "/s"), ("dropped", "/o")]


def test_a_change_that_says_nothing_is_left_out() -> None:
    silent = OpaquePart("other", "odd", {"type": "odd"}, "/o")
    assert told(False, "other", silent)[1] == [("altered", "/s"), ("dropped", "/o")]
    turn, losses = told(True, "other", silent)
    assert (turn, losses) == ({"role": "user", "content": "Hi"}, [("unknown_kind", "/o")])
