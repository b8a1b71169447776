"""Calls of tools that the client runs, and their results, in the conversation."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman._ir.request import Media, Message, OpaquePart, Text, ToolCall, ToolResult
from dragoman._ir.signatures import Signer
from dragoman._wire.exceptions import RemoteProtocolError
from dragoman._wire.json import decode
from dragoman.protocols.openai_responses import SPEC

ORIGIN = "openai_responses"
CLICK = {"type": "click", "button": "left", "x": 1, "y": 2}
LOCAL = {"environment": {"type": "local"}}
PATCH = {"type": "update_file", "path": "a", "diff": "@@\n-a\n+b"}


def read(*items: dict[str, Any]) -> Any:
    return SPEC.read_request({"model": "m", "input": [*items]}, Signer())


def said(item: dict[str, Any]) -> Message:
    [message] = read(item).messages
    return message


# item -> kind, name and input of the call, what else it says.
HISTORY: list[tuple[dict[str, Any], str, str, Any, Any]] = [
    (
        {"type": "shell_call", "action": {"commands": ["ls"], "timeout_ms": None}, "environment": None},
        "shell",
        "shell",
        {"commands": ["ls"]},
        None,
    ),
    (
        {
            "type": "shell_call",
            "action": {"commands": []},
            "caller": {"type": "program", "caller_id": "p"},
            "environment": {"type": "container_reference", "container_id": "k"},
        },
        "shell",
        "shell",
        {"commands": []},
        {
            "caller": {"type": "program", "caller_id": "p"},
            "environment": {"type": "container_reference", "container_id": "k"},
        },
    ),
    (
        {"type": "shell_call", "action": {"commands": []}, "caller": {"type": "direct"}, **LOCAL},
        "shell",
        "shell",
        {"commands": []},
        None,
    ),
    (
        {"type": "local_shell_call", "action": {"type": "exec", "command": ["ls"], "env": {}}},
        "local_shell",
        "local_shell",
        {"command": ["ls"]},
        None,
    ),
    (
        {"type": "local_shell_call", "action": {"type": "odd", "command": [], "env": {"A": "b"}}},
        "local_shell",
        "local_shell",
        {"type": "odd", "command": [], "env": {"A": "b"}},
        None,
    ),
    (
        {"type": "apply_patch_call", "operation": PATCH, "odd": 1},
        "apply_patch",
        "apply_patch",
        PATCH,
        {"odd": 1},
    ),
    (
        {"type": "tool_search_call", "arguments": {"query": "w"}, "execution": "client"},
        "tool_search",
        "tool_search",
        {"query": "w"},
        None,
    ),
    (
        {"type": "tool_search_call", "arguments": {}, "execution": "odd"},
        "tool_search",
        "tool_search",
        {},
        {"execution": "odd"},
    ),
    (
        {"type": "tool_search_call", "arguments": '{"query":"w"}'},
        "tool_search",
        "tool_search",
        {"query": "w"},
        None,
    ),
    ({"type": "tool_search_call", "arguments": "w"}, "tool_search", "tool_search", {"query": "w"}, None),
    (
        {"type": "computer_call", "actions": [CLICK], "pending_safety_checks": []},
        "computer",
        "computer",
        {"actions": [CLICK]},
        None,
    ),
    (
        {"type": "computer_call", "action": CLICK, "pending_safety_checks": [{"id": "sc"}]},
        "computer_use_preview",
        "computer",
        {"action": CLICK},
        {"pending_safety_checks": [{"id": "sc"}]},
    ),
]


@pytest.mark.parametrize(("item", "kind", "name", "arguments", "extra"), HISTORY)
def test_calls_are_calls_of_the_function_that_stands_in(
    item: dict[str, Any], kind: str, name: str, arguments: Any, extra: Any
) -> None:
    message = said({**item, "call_id": "c", "id": "i", "status": "completed"})
    [found] = message.parts
    assert isinstance(found, ToolCall)
    assert decode(found.input.encode()) == arguments
    plain = ToolCall("c", name, found.input, item_id="i", extra=extra, path="/input/0", hosted=kind)
    assert message == Message("assistant", (plain,), "/input/0")


SHELL_OUTPUT = {"stdout": "a\n", "stderr": "b\n", "outcome": {"type": "exit", "exit_code": 3}}
RESULTS: list[tuple[dict[str, Any], str, str, bool | None, Any]] = [
    (
        {"type": "shell_call_output", "output": [SHELL_OUTPUT]},
        "shell",
        "a\nstderr:\nb\nexit code: 3",
        None,
        None,
    ),
    (
        {
            "type": "shell_call_output",
            "output": [
                {"stdout": "", "stderr": "", "outcome": {"type": "timeout"}},
                {"stdout": "c", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}},
            ],
            "caller": {"type": "direct"},
        },
        "shell",
        "timed out\nc\nexit code: 0",
        None,
        None,
    ),
    (
        {"type": "shell_call_output", "output": [{"stdout": 1, "outcome": {"type": "odd"}, "x": 1}, "d"]},
        "shell",
        '1\n{"type":"odd"}\nd',
        None,
        {"output": [{"stdout": 1, "outcome": {"type": "odd"}, "x": 1}, "d"]},
    ),
    ({"type": "shell_call_output", "output": "all"}, "shell", "all", None, None),
    (
        {"type": "shell_call_output", "output": [], "max_output_length": 9},
        "shell",
        "",
        None,
        {"max_output_length": 9},
    ),
    (
        {"type": "local_shell_call_output", "output": '{"stdout":"a"}'},
        "local_shell",
        '{"stdout":"a"}',
        None,
        None,
    ),
    (
        {"type": "local_shell_call_output", "output": {"stdout": "a"}},
        "local_shell",
        '{"stdout":"a"}',
        None,
        None,
    ),
    (
        {"type": "apply_patch_call_output", "status": "completed", "output": "ok"},
        "apply_patch",
        "ok",
        False,
        None,
    ),
    ({"type": "apply_patch_call_output", "status": "failed"}, "apply_patch", "failed", True, None),
    (
        {"type": "tool_search_output", "execution": "client", "tools": [{"type": "custom", "name": "p"}]},
        "tool_search",
        "Found the tools: p",
        None,
        None,
    ),
    ({"type": "tool_search_output", "tools": []}, "tool_search", "Found no tools", None, None),
]


@pytest.mark.parametrize(("item", "kind", "words", "is_error", "extra"), RESULTS)
def test_results_are_words(
    item: dict[str, Any], kind: str, words: str, is_error: bool | None, extra: Any
) -> None:
    message = said({**item, "call_id": "c", "id": "i"})
    [found] = message.parts
    assert isinstance(found, ToolResult)
    assert (found.call_id, found.hosted, found.is_error, found.item_id) == ("c", kind, is_error, "i")
    assert [part.text for part in found.parts if isinstance(part, Text)] == [words]
    assert (message.role, found.extra) == ("user", extra)


@pytest.mark.parametrize(
    ("screen", "picture", "extra"),
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
def test_a_screenshot_is_a_picture(screen: dict[str, Any], picture: Media, extra: Any) -> None:
    item = {
        "type": "computer_call_output",
        "call_id": "c",
        "output": {"type": "computer_screenshot", **screen},
        "acknowledged_safety_checks": [],
        **(extra or {}),
    }
    [found] = said(item).parts
    assert isinstance(found, ToolResult)
    assert (found.parts, found.extra) == ((picture,), extra)


@pytest.mark.parametrize("named", ["c", "lsh_1"])
def test_the_result_of_a_local_shell_names_its_call_or_its_item(named: str) -> None:
    request = read(
        {"type": "local_shell_call", "call_id": "c", "id": "lsh_1", "action": {"command": []}},
        {"type": "local_shell_call_output", "id": named, "output": "a"},
    )
    [result] = request.messages[1].parts
    assert result.call_id == "c"


@pytest.mark.parametrize(
    ("item", "path"),
    [
        ({"type": "shell_call", "call_id": "c"}, "/input/0/action"),
        ({"type": "shell_call", "action": {}}, "/input/0/call_id"),
        ({"type": "apply_patch_call", "call_id": "c", "operation": "x"}, "/input/0/operation"),
        ({"type": "computer_call", "call_id": "c"}, "/input/0/action"),
        ({"type": "shell_call_output", "output": []}, "/input/0/call_id"),
        ({"type": "local_shell_call_output", "output": ""}, "/input/0/id"),
        ({"type": "computer_call_output", "call_id": "c", "output": "x"}, "/input/0/output"),
        ({"type": "computer_call_output", "call_id": "c", "output": {}}, "/input/0/output"),
    ],
)
def test_what_is_missing_is_named(item: dict[str, Any], path: str) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        read(item)
    assert (caught.value.path, caught.value.status) == (path, 400)


@pytest.mark.parametrize(
    ("item", "words"),
    [
        ({"type": "tool_search_call", "arguments": {"paths": ["w"]}}, 'Searched for tools: {"paths":["w"]}'),
        ({"type": "tool_search_output", "tools": [{"type": "shell"}]}, "Found the tools: shell"),
    ],
)
def test_a_search_that_the_provider_made_is_told_in_words(item: dict[str, Any], words: str) -> None:
    whole = {**item, "call_id": None, "execution": "server"}
    assert said(whole) == Message(
        "assistant", (OpaquePart(ORIGIN, item["type"], whole, "/input/0", words),), "/input/0"
    )
