"""Tools that the client runs: the functions in their place, the items of their calls, and a whole conversation."""

from __future__ import annotations

from typing import Any

from core.passes import pass_context
from responses_client import FOREIGN, call, output, response_payloads

from dragoman._ir.events import (
    ArgumentsDelta,
    BlockEnded,
    BlockKind,
    BlockStarted,
    Stopped,
    StopReason,
    ToolHead,
    ToolKind,
)
from dragoman._ir.losses import Ledger
from dragoman._ir.request import ToolCall
from dragoman._ir.signatures import Signer
from dragoman._ir.tools import FunctionTool
from dragoman._transforms.tool_calls import ToolCallStage
from dragoman._transforms.tools import fit_tools
from dragoman._wire.json import encode_text
from dragoman.codec import ToolLimits
from dragoman.protocols.openai_responses import SPEC


def read(*items: dict[str, Any], **body: Any) -> Any:
    return SPEC.read_request({"model": "m", "input": [*items], **body}, Signer())


# --- functions in their place -----------------------------------------------------------------------------------

SEARCHES = {"type": "object", "properties": {"q": {"type": "string"}}}


# --- calls in responses -----------------------------------------------------------------------------------------


def hosted_call(kind: str, arguments: str, number: int = 0, *, complete: bool = True) -> list[Any]:
    name = "computer" if kind.startswith("computer") else kind
    head = ToolHead(f"c{number}", name, hosted=kind)
    return [
        BlockStarted(number, BlockKind.TOOL_CALL, tool=head),
        *(
            [ArgumentsDelta(number, arguments[:3]), ArgumentsDelta(number, arguments[3:])]
            if arguments
            else []
        ),
        BlockEnded(number, complete),
    ]


CLICK = {"type": "click", "button": "left", "x": 1, "y": 2}
KEYS: dict[str, Any] = {"keys": ["CTRL"]}
ACTIONS: list[dict[str, Any]] = [
    {**CLICK, **KEYS},
    {"type": "double_click", "x": 1, "y": 2, "keys": None},
    {"type": "drag", "path": [{"x": 1, "y": 2}, {"x": 3, "y": 4}]},
    {"type": "keypress", "keys": ["A"]},
    {"type": "move", "x": 1, "y": 2},
    {"type": "screenshot"},
    {"type": "scroll", "scroll_x": 0, "scroll_y": 9, "x": 1, "y": 2},
    {"type": "type", "text": "hi"},
    {"type": "wait"},
]
LOCAL = {"environment": {"type": "local"}}
CHECKED: dict[str, Any] = {"pending_safety_checks": []}
PATCH = {"type": "update_file", "path": "a", "diff": "@@\n-a\n+b"}
DELETE = {"type": "delete_file", "path": "a"}
FULL_COMMAND = {"command": ["ls"], "env": {"A": "b"}, "timeout_ms": 5, "user": "u", "working_directory": "/"}

# kind, arguments, type and prefix of the item, its fields, its fields as announced.
CALLS: list[tuple[str, Any, str, str, dict[str, Any], dict[str, Any]]] = [
    (
        "shell",
        {"commands": ["ls", "pwd"], "timeout_ms": 5, "max_output_length": 9},
        "shell_call",
        "sh",
        {"action": {"commands": ["ls", "pwd"], "timeout_ms": 5, "max_output_length": 9}, **LOCAL},
        {"action": {"commands": [], "timeout_ms": 5, "max_output_length": 9}, **LOCAL},
    ),
    (
        "local_shell",
        FULL_COMMAND,
        "local_shell_call",
        "lsh",
        {"action": {"type": "exec", **FULL_COMMAND}},
        {"action": {"type": "exec", **FULL_COMMAND, "command": []}},
    ),
    (
        "local_shell",
        {"command": ["ls"]},
        "local_shell_call",
        "lsh",
        {"action": {"type": "exec", "env": {}, "command": ["ls"]}},
        {"action": {"type": "exec", "env": {}, "command": []}},
    ),
    (
        "apply_patch",
        PATCH,
        "apply_patch_call",
        "apc",
        {"operation": PATCH},
        {"operation": {**PATCH, "diff": ""}},
    ),
    ("apply_patch", DELETE, "apply_patch_call", "apc", {"operation": DELETE}, {"operation": DELETE}),
    (
        "tool_search",
        {"query": "w", "limit": 8},
        "tool_search_call",
        "tsc",
        {"arguments": {"query": "w", "limit": 8}, "execution": "client"},
        {"arguments": {}, "execution": "client"},
    ),
    *(
        (
            "computer",
            {"actions": [action]},
            "computer_call",
            "cu",
            {"actions": [action], **CHECKED},
            {"actions": [action], **CHECKED},
        )
        for action in ACTIONS
    ),
    (
        "computer",
        {"action": CLICK},
        "computer_call",
        "cu",
        {"actions": [CLICK], **CHECKED},
        {"actions": [CLICK], **CHECKED},
    ),
    (
        "computer_use_preview",
        {"action": CLICK},
        "computer_call",
        "cu",
        {"action": CLICK, **CHECKED},
        {"action": CLICK, **CHECKED},
    ),
]


# --- a conversation as Codex has it -----------------------------------------------------------------------------

SPAWN = {"type": "function", "name": "spawn_agent", "parameters": {"type": "object"}, "strict": False}
CODEX = {
    "model": "m",
    "input": [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "go"}]},
        {
            "type": "function_call",
            "call_id": "c0",
            "name": "spawn_agent",
            "namespace": "multi_agent_v1",
            "arguments": "{}",
        },
        {"type": "function_call_output", "call_id": "c0", "output": "ok"},
    ],
    "tools": [
        {"type": "namespace", "name": "multi_agent_v1", "description": "d", "tools": [SPAWN]},
        {"type": "tool_search", "execution": "client", "description": "d", "parameters": SEARCHES},
        {"type": "local_shell"},
    ],
}


def test_namespaces_and_searches_come_back_as_they_were_offered() -> None:
    request = SPEC.read_request(CODEX, Signer())
    context = pass_context(request, limits=ToolLimits())
    fitted = fit_tools(request, context)
    undo = context.undo
    names = [tool.name for tool in fitted.tools if isinstance(tool, FunctionTool)]
    assert names == ["multi_agent_v1__spawn_agent", "tool_search", "local_shell"]
    [earlier] = fitted.messages[1].parts
    assert isinstance(earlier, ToolCall)
    assert earlier.name == "multi_agent_v1__spawn_agent"
    stage = ToolCallStage(undo, SPEC.tool_limits, "x1", Ledger())
    events = [
        each
        for event in (
            *call(0, "{}", call_id="u0", name="multi_agent_v1__spawn_agent"),
            *call(1, '{"q":"w"}', call_id="u1", name="tool_search"),
            *call(2, '{"command":["ls"]}', call_id="u2", name="local_shell"),
        )
        for each in stage.send(event)
    ]
    payloads = response_payloads(*events, stop=Stopped(StopReason.TOOL_USE), context=FOREIGN)
    assert output(payloads) == [
        {
            "id": "fc_x1_0",
            "type": "function_call",
            "call_id": "u0",
            "name": "spawn_agent",
            "namespace": "multi_agent_v1",
            "arguments": "{}",
            "status": "completed",
        },
        {
            "id": "tsc_x1_1",
            "type": "tool_search_call",
            "call_id": "u1",
            "arguments": {"q": "w"},
            "execution": "client",
            "status": "completed",
        },
        {
            "id": "lsh_x1_2",
            "type": "local_shell_call",
            "call_id": "u2",
            "action": {"type": "exec", "env": {}, "command": ["ls"]},
            "status": "completed",
        },
    ]


def test_a_written_call_is_read_again_as_the_same_call() -> None:
    for kind, arguments, *_ in CALLS:
        [item] = output(response_payloads(*hosted_call(kind, encode_text(arguments))))
        [found] = read(item).messages[0].parts
        assert isinstance(found, ToolCall)
        assert (found.call_id, found.hosted, found.kind) == ("c0", kind, ToolKind.FUNCTION)
