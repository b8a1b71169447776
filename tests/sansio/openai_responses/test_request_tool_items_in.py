"""Items of tools in a client's input: calls and results of tools that the client runs, and hosted tools as text."""

from __future__ import annotations

from typing import Any

import pytest
from core.passes import pass_context
from core.same_protocol import read_same_protocol

from dragoman._ir.losses import Ledger
from dragoman._ir.request import Media, Message, OpaquePart, Request, Text, ToolCall, ToolResult
from dragoman._transforms.extensions import strip_extensions
from dragoman._wire.exceptions import RemoteProtocolError
from dragoman._wire.json import decode
from dragoman.protocols.openai_responses import SPEC
from dragoman.protocols.openai_responses.capabilities import ResponsesCapabilities as Capabilities

ORIGIN = "openai_responses"
CLICK = {"type": "click", "button": "left", "x": 1, "y": 2}
LOCAL = {"environment": {"type": "local"}}
PATCH = {"type": "update_file", "path": "a", "diff": "@@\n-a\n+b"}


def read(*items: dict[str, Any]) -> Any:
    return read_same_protocol(SPEC, {"model": "m", "input": [*items]})


def only_message(item: dict[str, Any]) -> Message:
    [message] = read(item).messages
    return message


PROGRAM = {"caller": {"type": "program", "caller_id": "p"}}
CONTAINER = {"environment": {"type": "container_reference", "container_id": "k"}}
CHECKS = {"pending_safety_checks": [{"id": "sc"}]}

# An item without the ids of the call, the input of the call, and its extra fields.
HISTORY: list[tuple[dict[str, Any], Any, Any]] = [
    (
        {"type": "shell_call", "action": {"commands": ["ls"], "timeout_ms": None}, "environment": None},
        {"commands": ["ls"]},
        None,
    ),
    (
        {"type": "shell_call", "action": {"commands": []}, **PROGRAM, **CONTAINER},
        {"commands": []},
        {**PROGRAM, **CONTAINER},
    ),
    (
        {"type": "shell_call", "action": {"commands": []}, "caller": {"type": "direct"}, **LOCAL},
        {"commands": []},
        None,
    ),
    (
        {"type": "local_shell_call", "action": {"type": "exec", "command": ["ls"], "env": {}}},
        {"command": ["ls"]},
        None,
    ),
    (
        {"type": "local_shell_call", "action": {"type": "odd", "command": [], "env": {"A": "b"}}},
        {"type": "odd", "command": [], "env": {"A": "b"}},
        None,
    ),
    ({"type": "apply_patch_call", "operation": PATCH, "odd": 1}, PATCH, {"odd": 1}),
    (
        {"type": "tool_search_call", "arguments": {"query": "w"}, "execution": "client"},
        {"query": "w"},
        None,
    ),
    ({"type": "tool_search_call", "arguments": {}, "execution": "odd"}, {}, {"execution": "odd"}),
    ({"type": "tool_search_call", "arguments": '{"query":"w"}'}, {"query": "w"}, None),
    ({"type": "tool_search_call", "arguments": "w"}, {"query": "w"}, None),
    (
        {"type": "computer_call", "actions": [CLICK], "pending_safety_checks": []},
        {"actions": [CLICK]},
        None,
    ),
    ({"type": "computer_call", "action": CLICK, **CHECKS}, {"action": CLICK}, CHECKS),
]


@pytest.mark.parametrize(("item", "arguments", "extra"), HISTORY)
def test_calls_are_calls_of_the_function_in_place_of_the_tool(
    item: dict[str, Any], arguments: Any, extra: Any
) -> None:
    message = only_message({**item, "call_id": "c", "id": "i", "status": "completed"})
    [found] = message.parts
    assert isinstance(found, ToolCall)
    assert decode(found.input.encode()) == arguments
    name = item["type"].removesuffix("_call")
    kind = "computer_use_preview" if name == "computer" and "action" in item else name
    plain = ToolCall("c", name, found.input, item_id="i", extra=extra, path="/input/0", hosted=kind)
    assert message == Message("assistant", (plain,), "/input/0")


SHELL_OUTPUT = {"stdout": "a\n", "stderr": "b\n", "outcome": {"type": "exit", "exit_code": 3}}
ODD_OUTPUT = [{"stdout": 1, "outcome": {"type": "odd"}, "x": 1}, "d"]
TIMEOUT_OUTPUT = {"stdout": "", "stderr": "", "outcome": {"type": "timeout"}}
GOOD_OUTPUT = {"stdout": "c", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}
# An item without its ids, its text, and fields of the result that are not as usual.
RESULTS: list[tuple[dict[str, Any], str, dict[str, Any]]] = [
    ({"type": "shell_call_output", "output": [SHELL_OUTPUT]}, "a\nstderr:\nb\nexit code: 3", {}),
    (
        {
            "type": "shell_call_output",
            "output": [TIMEOUT_OUTPUT, GOOD_OUTPUT],
            "caller": {"type": "direct"},
        },
        "timed out\nc\nexit code: 0",
        {},
    ),
    (
        {"type": "shell_call_output", "output": ODD_OUTPUT},
        '1\n{"type":"odd"}\nd',
        {"extra": {"output": ODD_OUTPUT}},
    ),
    ({"type": "shell_call_output", "output": "all"}, "all", {}),
    (
        {"type": "shell_call_output", "output": [], "max_output_length": 9},
        "",
        {"extra": {"max_output_length": 9}},
    ),
    ({"type": "local_shell_call_output", "output": '{"stdout":"a"}'}, '{"stdout":"a"}', {}),
    ({"type": "local_shell_call_output", "output": {"stdout": "a"}}, '{"stdout":"a"}', {}),
    (
        {"type": "apply_patch_call_output", "status": "completed", "output": "ok"},
        "ok",
        {"is_error": False},
    ),
    ({"type": "apply_patch_call_output", "status": "failed"}, "failed", {"is_error": True}),
    (
        {"type": "tool_search_output", "execution": "client", "tools": [{"type": "custom", "name": "p"}]},
        "Found the tools: p",
        {},
    ),
    ({"type": "tool_search_output", "tools": []}, "Found no tools", {}),
]


def test_results_are_text(subtests: pytest.Subtests) -> None:
    for item, text, fields in RESULTS:
        with subtests.test(type=item["type"], text=text):
            message = only_message({**item, "call_id": "c", "id": "i"})
            [found] = message.parts
            assert isinstance(found, ToolResult)
            kind = item["type"].removesuffix("_output").removesuffix("_call")
            assert (found.call_id, found.hosted, found.item_id) == ("c", kind, "i")
            assert [part.text for part in found.parts if isinstance(part, Text)] == [text]
            assert (found.is_error, found.extra) == (fields.get("is_error"), fields.get("extra"))
            assert message.role == "user"


@pytest.mark.parametrize(
    ("screen", "image", "extra"),
    [
        (
            {"image_url": "data:image/png;base64,QUJD"},
            Media("image", "base64", "QUJD", "image/png", path="/input/0/output"),
            None,
        ),
        ({"file_id": "f"}, Media("image", "file_id", "f", path="/input/0/output"), None),
        (
            {"image_url": "https://x", "odd": 1},
            Media("image", "url", "https://x", extra={"odd": 1}, path="/input/0/output"),
            {"acknowledged_safety_checks": [{"id": "sc"}]},
        ),
    ],
)
def test_a_screenshot_is_an_image(screen: dict[str, Any], image: Media, extra: Any) -> None:
    item = {
        "type": "computer_call_output",
        "call_id": "c",
        "output": {"type": "computer_screenshot", **screen},
        "acknowledged_safety_checks": [],
        **(extra or {}),
    }
    [found] = only_message(item).parts
    assert isinstance(found, ToolResult)
    assert (found.parts, found.extra) == ((image,), extra)


@pytest.mark.parametrize("named", ["c", "lsh_1"])
def test_the_result_of_a_local_shell_names_its_call_or_its_item(named: str) -> None:
    request = read(
        {"type": "local_shell_call", "call_id": "c", "id": "lsh_1", "action": {"command": []}},
        {"type": "local_shell_call_output", "id": named, "output": "a"},
    )
    [result] = request.messages[1].parts
    assert result.call_id == "c"


MISSING_FIELDS: list[tuple[dict[str, Any], str]] = [
    ({"type": "shell_call", "call_id": "c"}, "/input/0/action"),
    ({"type": "shell_call", "action": {}}, "/input/0/call_id"),
    ({"type": "apply_patch_call", "call_id": "c", "operation": "x"}, "/input/0/operation"),
    ({"type": "computer_call", "call_id": "c"}, "/input/0/action"),
    ({"type": "shell_call_output", "output": []}, "/input/0/call_id"),
    ({"type": "local_shell_call_output", "output": ""}, "/input/0/id"),
    ({"type": "computer_call_output", "call_id": "c", "output": "x"}, "/input/0/output"),
    ({"type": "computer_call_output", "call_id": "c", "output": {}}, "/input/0/output"),
]


def test_missing_fields_have_a_path(subtests: pytest.Subtests) -> None:
    for item, path in MISSING_FIELDS:
        with subtests.test(path=path):
            with pytest.raises(RemoteProtocolError) as caught:
                read(item)
            assert (caught.value.path, caught.value.status) == (path, 400)


@pytest.mark.parametrize(
    ("item", "text"),
    [
        ({"type": "tool_search_call", "arguments": {"paths": ["w"]}}, 'Searched for tools: {"paths":["w"]}'),
        ({"type": "tool_search_output", "tools": [{"type": "shell"}]}, "Found the tools: shell"),
    ],
)
def test_a_tool_search_of_the_provider_is_rendered_as_text(item: dict[str, Any], text: str) -> None:
    whole = {**item, "call_id": None, "execution": "server"}
    assert only_message(whole) == Message(
        "assistant", (OpaquePart(ORIGIN, item["type"], whole, "/input/0", text),), "/input/0"
    )


# --- hosted calls as text ---------------------------------------------------------------------------------------

SERVER = {"server_label": "files"}


def lost(request: Request) -> list[tuple[str, str]]:
    ledger = Ledger()
    strip_extensions(request, pass_context(request, ledger))
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
