"""Tools that the client runs, with a function for other vendors' models."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman._ir.request import Request
from dragoman._ir.signatures import Signer
from dragoman._ir.tools import CacheMark, HostedTool
from dragoman.protocols.anthropic_messages import SPEC

AT = "/tools/0"
HELLO = {"role": "user", "content": "Hello"}


def read(*messages: Any, **fields: Any) -> Request:
    return SPEC.read_request(
        {"model": "m", "max_tokens": 9, "messages": [HELLO, *messages], **fields}, Signer()
    )


@pytest.mark.parametrize(
    ("tool", "text", "properties"),
    [
        ({"type": "bash_20241022", "name": "bash"}, "bash shell", "command restart"),
        ({"type": "bash_20250124", "name": "bash"}, "bash shell", "command restart"),
        (
            {"type": "text_editor_20241022", "name": "str_replace_editor"},
            "undo_edit",
            "command path view_range file_text old_str new_str insert_line",
        ),
        (
            {"type": "text_editor_20250124", "name": "str_replace_editor"},
            "undo_edit",
            "command path view_range file_text old_str new_str insert_line",
        ),
        (
            {"type": "text_editor_20250429", "name": "str_replace_based_edit_tool"},
            "insert.",
            "command path view_range file_text old_str new_str insert_line insert_text",
        ),
        (
            {"type": "text_editor_20250728", "name": "str_replace_based_edit_tool", "max_characters": 99},
            "at most 99 characters",
            "command path view_range file_text old_str new_str insert_line insert_text",
        ),
        (
            {"type": "memory_20250818", "name": "memory"},
            "/memories",
            "command path view_range file_text old_str new_str insert_line insert_text old_path new_path",
        ),
        (
            {"type": "computer_20241022", "name": "computer", "display_width_px": 9, "display_height_px": 8},
            "9 by 8 pixels",
            "action coordinate text",
        ),
        (
            {
                "type": "computer_20250124",
                "name": "computer",
                "display_width_px": 9,
                "display_height_px": 8,
                "display_number": 1,
            },
            "X11 display is :1",
            "action coordinate text start_coordinate scroll_direction scroll_amount duration",
        ),
        (
            {
                "type": "computer_20251124",
                "name": "computer",
                "display_width_px": 9,
                "display_height_px": 8,
                "enable_zoom": True,
            },
            "screenshot",
            "action coordinate text start_coordinate scroll_direction scroll_amount duration region",
        ),
    ],
)
def test_the_function_has_the_tools_name_and_input(tool: Any, text: str, properties: str) -> None:
    (read_as,) = read(tools=[tool]).tools
    assert isinstance(read_as, HostedTool)
    assert (read_as.kind, read_as.native, read_as.use) == (tool["type"], tool, None)
    function = read_as.function_fallback
    assert function is not None
    assert (function.name, function.path, function.extra) == (tool["name"], AT, None)
    assert text in (function.description or "")
    schema = function.parameters
    assert schema["type"] == "object"
    assert " ".join(schema["properties"]) == properties
    assert set(schema["required"]) <= set(schema["properties"])
    zoom = "zoom" in schema["properties"].get("action", {}).get("enum", ())
    assert zoom is bool(tool.get("enable_zoom"))


def test_the_function_keeps_the_tools_other_fields() -> None:
    tool = {
        "type": "bash_20250124",
        "name": "bash",
        "strict": True,
        "defer_loading": True,
        "input_examples": [{"command": "ls"}],
        "cache_control": {"type": "ephemeral", "ttl": "1h"},
        "allowed_callers": ["direct"],
    }
    (read_as,) = read(tools=[tool]).tools
    function = read_as.function_fallback  # type: ignore[union-attr]
    assert function is not None
    assert function.strict is None  # its schema is not one that others take strictly
    assert (function.deferred, function.examples) == (True, [{"command": "ls"}])
    assert function.cache == CacheMark(f"{AT}/cache_control", "long")
    assert function.extra == {"allowed_callers": ["direct"]}
