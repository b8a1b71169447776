"""Tools that the client runs: the items of their calls. How they are written is in response_out.txt."""

from __future__ import annotations

from typing import Any

from responses_client import output, response_payloads

from dragoman._ir.events import (
    ArgumentsDelta,
    BlockEnded,
    BlockKind,
    BlockStarted,
    ToolHead,
    ToolKind,
)
from dragoman._ir.request import ToolCall
from dragoman._ir.wrapped_signatures import Signer
from dragoman._wire.json import encode_text
from dragoman.protocols.openai_responses import SPEC

CLICK = {"type": "click", "button": "left", "x": 1, "y": 2}
ACTIONS: list[dict[str, Any]] = [
    {**CLICK, "keys": ["CTRL"]},
    {"type": "double_click", "x": 1, "y": 2, "keys": None},
    {"type": "drag", "path": [{"x": 1, "y": 2}, {"x": 3, "y": 4}]},
    {"type": "keypress", "keys": ["A"]},
    {"type": "move", "x": 1, "y": 2},
    {"type": "screenshot"},
    {"type": "scroll", "scroll_x": 0, "scroll_y": 9, "x": 1, "y": 2},
    {"type": "type", "text": "hi"},
    {"type": "wait"},
]
# Kind and arguments.
CALLS: list[tuple[str, dict[str, Any]]] = [
    ("shell", {"commands": ["ls", "pwd"], "timeout_ms": 5, "max_output_length": 9}),
    (
        "local_shell",
        {"command": ["ls"], "env": {"A": "b"}, "timeout_ms": 5, "user": "u", "working_directory": "/"},
    ),
    ("local_shell", {"command": ["ls"]}),
    ("apply_patch", {"type": "update_file", "path": "a", "diff": "@@\n-a\n+b"}),
    ("apply_patch", {"type": "delete_file", "path": "a"}),
    ("tool_search", {"query": "w", "limit": 8}),
    *(("computer", {"actions": [action]}) for action in ACTIONS),
    ("computer", {"action": CLICK}),
    ("computer_use_preview", {"action": CLICK}),
]


def test_a_written_call_is_read_again_as_the_same_call() -> None:
    for kind, arguments in CALLS:
        head = ToolHead("c0", "computer" if kind.startswith("computer") else kind, hosted=kind)
        [item] = output(
            response_payloads(
                BlockStarted(0, BlockKind.TOOL_CALL, tool=head),
                ArgumentsDelta(0, encode_text(arguments)),
                BlockEnded(0),
            )
        )
        [found] = SPEC.read_request({"model": "m", "input": [item]}, Signer()).messages[0].parts
        assert isinstance(found, ToolCall)
        assert (found.call_id, found.hosted, found.kind) == ("c0", kind, ToolKind.FUNCTION)
