"""Every input item, tool, output item and stream event of the vendor's SDK has a row with its translation.

A type that a later SDK adds fails these tests until it has a row.
"""

from typing import Any

import pytest
from core.passes import pass_context
from core.same_protocol import read_same_protocol
from openai.types.responses import ResponseInputItem, ResponseOutputItem, ResponseStreamEvent, Tool
from sdk_fields import literals

from dragoman._ir.events import BlockStarted, Opaque
from dragoman._ir.losses import Ledger
from dragoman._ir.request import Request
from dragoman._ir.tools import CustomTool, FunctionTool, HostedTool
from dragoman._transforms.extensions import strip_extensions
from dragoman._wire.json import encode
from dragoman._wire.sse import Frame
from dragoman.codec import ResponseContext
from dragoman.protocols.openai_responses import SPEC
from dragoman.protocols.openai_responses.capabilities import ResponsesCapabilities as Capabilities
from dragoman.protocols.openai_responses.response_in import _HANDLERS
from dragoman.protocols.openai_responses.tables import LOST_EVENTS, PROGRESS_EVENTS

TEXT = {"type": "input_text", "text": "a"}
CALL = {"call_id": "c", "status": "completed"}
EXEC = {"type": "exec", "command": ["ls"], "env": {}}
FUNCTION = {"type": "function", "name": "f", "parameters": {}, "strict": False}

# type -> an item, the part of the document that it becomes (None: no message), the losses for other protocols.
INPUT_ITEMS: list[tuple[dict[str, Any], str | None, list[str]]] = [
    ({"type": "message", "role": "user", "content": [TEXT]}, "Text", []),
    ({"type": "message", "role": "assistant", "content": "a", "phase": "commentary"}, "Text", []),
    ({"type": "file_search_call", "id": "i", "queries": ["q"]}, "OpaquePart", ["altered"]),
    ({"type": "computer_call", "id": "i", "actions": [], **CALL}, "ToolCall", []),
    ({"type": "computer_call_output", "call_id": "c", "output": {"image_url": "https://x"}}, "ToolResult", []),
    ({"type": "web_search_call", "id": "i", "action": {"type": "search"}}, "OpaquePart", ["altered"]),
    ({"type": "function_call", "name": "f", "arguments": "{}", "call_id": "c"}, "ToolCall", []),
    ({"type": "function_call_output", "output": "a", "call_id": "c"}, "ToolResult", []),
    ({"type": "tool_search_call", "arguments": {}, "execution": "client", **CALL}, "ToolCall", []),
    ({"type": "tool_search_output", "tools": [FUNCTION], **CALL}, "ToolResult", ["altered"]),
    ({"type": "additional_tools", "role": "developer", "tools": [FUNCTION]}, "OpaquePart", []),
    ({"type": "configuration_update", "reasoning": {"effort": "low"}}, "OpaquePart", []),
    ({"type": "reasoning", "id": "i", "summary": [], "encrypted_content": "g"}, "Reasoning", []),
    ({"type": "compaction", "encrypted_content": "g"}, "OpaquePart", []),
    ({"type": "image_generation_call", "id": "i", "result": "aW1n"}, "OpaquePart", ["altered"]),
    ({"type": "code_interpreter_call", "id": "i", "code": "1"}, "OpaquePart", ["altered"]),
    ({"type": "local_shell_call", "id": "i", "action": EXEC, **CALL}, "ToolCall", []),
    ({"type": "local_shell_call_output", "id": "c", "output": "a"}, "ToolResult", []),
    ({"type": "shell_call", "action": {"commands": ["ls"]}, **CALL}, "ToolCall", []),
    ({"type": "shell_call_output", "output": [], "call_id": "c"}, "ToolResult", []),
    ({"type": "apply_patch_call", "operation": {"type": "delete_file", "path": "a"}, **CALL}, "ToolCall", []),
    ({"type": "apply_patch_call_output", **CALL}, "ToolResult", []),
    ({"type": "mcp_list_tools", "id": "i", "server_label": "s", "tools": []}, "OpaquePart", ["altered"]),
    ({"type": "mcp_approval_request", "id": "i", "arguments": "{}", "name": "n"}, "OpaquePart", ["altered"]),
    ({"type": "mcp_approval_response", "approval_request_id": "i", "approve": True}, "OpaquePart", ["altered"]),
    ({"type": "mcp_call", "id": "i", "arguments": "{}", "name": "n"}, "OpaquePart", ["altered"]),
    ({"type": "custom_tool_call_output", "call_id": "c", "output": "a"}, "ToolResult", []),
    ({"type": "custom_tool_call", "call_id": "c", "input": "a", "name": "f"}, "ToolCall", []),
    ({"type": "compaction_trigger"}, "OpaquePart", []),
    ({"type": "item_reference", "id": "i"}, "OpaquePart", []),
    ({"type": "program", "id": "i", "call_id": "c", "code": "x"}, "OpaquePart", ["altered"]),
    ({"type": "program_output", "id": "i", "call_id": "c", "result": "y"}, "OpaquePart", ["altered"]),
]  # fmt: skip


def test_every_input_item_has_a_row() -> None:
    assert {item["type"] for item, _, _ in INPUT_ITEMS} == literals(ResponseInputItem)


def test_input_items(subtests: pytest.Subtests) -> None:
    for item, part, losses in INPUT_ITEMS:
        with subtests.test(item=item):
            body = {"model": "m", "input": [item]}
            request = read_same_protocol(SPEC, body)
            assert [type(each).__name__ for message in request.messages for each in message.parts] == [part]
            foreign, same_protocol = Ledger(), Ledger()
            strip_extensions(request, pass_context(request, foreign, client=SPEC))
            assert [loss.code.value for loss in foreign] == losses
            assert SPEC.write_request(request, Capabilities(), same_protocol) == body
            assert list(same_protocol) == []


# type -> its form in the document: typed, with a use, with a function in its place, or opaque.
TOOLS: dict[str, tuple[dict[str, Any], str]] = {
    "function": (FUNCTION, "typed"),
    "custom": ({"name": "c"}, "typed"),
    "namespace": ({"name": "n", "description": "d", "tools": [FUNCTION]}, "typed"),
    "file_search": ({"vector_store_ids": []}, "itself"),
    "computer": ({}, "stand-in"),
    "computer_use_preview": ({"display_width": 1, "display_height": 1, "environment": "mac"}, "stand-in"),
    "web_search": ({}, "use"),
    "web_search_2025_08_26": ({}, "use"),
    "web_search_preview": ({}, "use"),
    "web_search_preview_2025_03_11": ({}, "use"),
    "mcp": ({"server_label": "s", "server_url": "https://s", "require_approval": "never"}, "use"),
    "code_interpreter": ({"container": {"type": "auto"}}, "use"),
    "programmatic_tool_calling": ({}, "itself"),
    "image_generation": ({}, "itself"),
    "local_shell": ({}, "stand-in"),
    "shell": ({}, "stand-in"),
    "tool_search": ({"execution": "client"}, "stand-in"),
    "apply_patch": ({}, "stand-in"),
}


def test_every_tool_has_a_row() -> None:
    assert set(TOOLS) == literals(Tool)


def test_tools(subtests: pytest.Subtests) -> None:
    for kind in TOOLS:
        with subtests.test(kind=kind):
            fields, row = TOOLS[kind]
            body = {"model": "m", "input": "hi", "tools": [{"type": kind, **fields}]}
            request = read_same_protocol(SPEC, body)
            [tool] = request.tools
            if isinstance(tool, HostedTool):
                found = (
                    "use"
                    if tool.use is not None
                    else "stand-in"
                    if tool.function_fallback is not None
                    else "itself"
                )
            else:
                assert isinstance(tool, (FunctionTool, CustomTool))
                found = "typed"
            assert found == row
            assert SPEC.write_request(request, Capabilities(), Ledger()) == body


# Items that become blocks. All others stay whole, in a signature if the client's protocol has no form for them.
BLOCKS = {
    "message": {"content": [{"type": "output_text", "text": "a", "annotations": []}]},
    "function_call": {"call_id": "c", "name": "f", "arguments": "{}"},
    "custom_tool_call": {"call_id": "c", "name": "f", "input": "x"},
    "reasoning": {"summary": []},
}
CONTEXT = ResponseContext(Request("openai_chat", "m", ()), "x1", 7, "alias")


def test_output_items(subtests: pytest.Subtests) -> None:
    for kind in sorted(literals(ResponseOutputItem)):
        with subtests.test(kind=kind):
            item = {"id": "i", "type": kind, "status": "completed", **BLOCKS.get(kind, {})}
            body = {"id": "r", "model": "m", "status": "completed", "output": [item]}
            ledger = Ledger()
            events = SPEC.read_whole(body, CONTEXT, ledger)
            if kind in BLOCKS:
                assert any(isinstance(event, BlockStarted) for event in events)
            else:
                [opaque] = [event for event in events if isinstance(event, Opaque)]
                assert (opaque.kind, opaque.native, opaque.round_trip) == (kind, item, True)
            assert list(ledger) == []


def test_stream_events(subtests: pytest.Subtests) -> None:
    for kind in sorted(literals(ResponseStreamEvent)):
        with subtests.test(kind=kind):
            handled = kind in _HANDLERS or kind == "error"
            rows = [handled, kind in PROGRESS_EVENTS, kind in LOST_EVENTS]
            assert rows.count(True) == 1
            if handled:
                continue
            ledger = Ledger()
            reader = SPEC.stream_reader(CONTEXT, ledger)
            assert list(reader.read(Frame(kind.encode(), encode({"type": kind, "output_index": 0})))) == []
            assert bool(len(ledger)) is (kind in LOST_EVENTS)
