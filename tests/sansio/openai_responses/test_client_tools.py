"""Tools that the client runs: the functions in their place, the items of their calls, and a whole conversation."""

from __future__ import annotations

from typing import Any

import pytest
from core.passes import pass_context
from responses_client import FOREIGN, STARTED, call, kinds, output, response_payloads, stream, text

from dragoman._ir.events import (
    ENDED,
    ArgumentsDelta,
    BlockEnded,
    BlockKind,
    BlockStarted,
    Stopped,
    StopReason,
    ToolHead,
    ToolKind,
    Usage,
)
from dragoman._ir.losses import Ledger, LossCode
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


@pytest.mark.parametrize(("kind", "arguments", "item_type", "prefix", "fields", "begun"), CALLS)
def test_a_call_comes_back_as_its_own_item(
    kind: str, arguments: Any, item_type: str, prefix: str, fields: dict[str, Any], begun: dict[str, Any]
) -> None:
    payloads = response_payloads(
        *hosted_call(kind, encode_text(arguments)), stop=Stopped(StopReason.TOOL_USE)
    )
    head = {"id": f"{prefix}_x1_0", "type": item_type, "call_id": "c0"}
    assert output(payloads) == [{**head, **fields, "status": "completed"}]
    assert payloads[2]["item"] == {**head, **begun, "status": "in_progress"}
    names = [name for name in kinds(payloads)[2:-1] if not name.startswith("shell_call_command")]
    assert names == ["output_item.added", "output_item.done"]


def test_the_commands_of_a_shell_have_events_of_their_own() -> None:
    payloads = response_payloads(*hosted_call("shell", '{"commands":["ls","pwd"]}'))
    reported = [
        {key: value for key, value in payload.items() if key != "sequence_number"}
        for payload in payloads
        if "command_index" in payload
    ]
    kind = "response.shell_call_command"
    assert reported == [
        {"type": f"{kind}.{state}", "output_index": 0, "command_index": number, field: value}
        for number, command in enumerate(("ls", "pwd"))
        for state, field, value in (
            ("added", "command", ""),
            ("delta", "delta", command),
            ("done", "command", command),
        )
    ]


def test_a_call_among_other_items() -> None:
    payloads = response_payloads(
        *text(0), *hosted_call("apply_patch", encode_text(DELETE), 1), *call(2, "{}"), *text(3)
    )
    assert [(each["type"], each["id"]) for each in output(payloads)] == [
        ("message", "msg_x1_0"),
        ("apply_patch_call", "apc_x1_1"),
        ("function_call", "fc_x1_2"),
        ("message", "msg_x1_3"),
    ]


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        ("shell", {"commands": ["ls"], "why": "to see"}),
        ("shell", {"commands": ["ls"], "timeout_ms": "5"}),
        ("local_shell", {"command": ["ls"], "env": {"A": 1}}),
        ("apply_patch", {**DELETE, "diff": "+a"}),
        ("computer", {"actions": [{**CLICK, "why": "so"}]}),
    ],
)
def test_arguments_without_a_place_in_the_item_are_a_loss(kind: str, arguments: Any) -> None:
    response_payloads(*hosted_call(kind, encode_text(arguments)), lost=("/output/0/arguments",))


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        ("tool_search", {"a": {"b": [{"c": None, "d": [1, "x"]}, 2]}, "e": {}, "f": []}),
        ("local_shell", {"command": ["ls"], "env": {}, "user": None}),
    ],
)
def test_arguments_with_a_place_in_the_item_are_no_loss(kind: str, arguments: Any) -> None:
    response_payloads(*hosted_call(kind, encode_text(arguments)))


BREACHES: list[tuple[str, str]] = [
    ("shell", "{}"),
    ("shell", '{"commands":"ls"}'),
    ("shell", '{"commands":[1]}'),
    ("shell", "not json"),
    ("shell", "[]"),
    ("shell", '{"commands":["ls"'),
    ("local_shell", '{"command":"ls"}'),
    ("apply_patch", '{"type":"move_file","path":"a"}'),
    ("apply_patch", '{"type":["delete_file"],"path":"a"}'),
    ("apply_patch", '{"type":"create_file","path":"a"}'),
    ("tool_search", '"weather"'),
    ("computer", '{"actions":[]}'),
    ("computer", "{}"),
    ("computer", '{"actions":["click"]}'),
    ("computer", '{"actions":[{"type":"click","button":"lft","x":1,"y":2}]}'),
    ("computer", '{"actions":[{"type":"drag","path":[{"x":1}]}]}'),
    ("computer", '{"actions":[{"type":"move","x":1.5,"y":2}]}'),
    ("computer_use_preview", '{"actions":[{"type":"wait"},{"type":"wait"}]}'),
    ("computer_use_preview", "{}"),
]


def test_arguments_of_another_form_stay_a_call_of_the_function(subtests: pytest.Subtests) -> None:
    for kind, arguments in BREACHES:
        with subtests.test(kind=kind, arguments=arguments):
            ledger = Ledger()
            payloads = stream(
                STARTED,
                *hosted_call(kind, arguments),
                Usage(1, 1),
                Stopped(StopReason.TOOL_USE),
                ENDED,
                ledger=ledger,
            )
            assert output(payloads) == [
                {
                    "id": "fc_x1_0",
                    "type": "function_call",
                    "call_id": "c0",
                    "name": "computer" if kind.startswith("computer") else kind,
                    "arguments": arguments,
                    "status": "completed",
                }
            ]
            assert [(loss.code, loss.path) for loss in ledger] == [(LossCode.BREACH, "/output/0/arguments")]
            response_payloads(
                *hosted_call(kind, arguments),
                stop=Stopped(StopReason.TOOL_USE),
                lost=("/output/0/arguments",),
            )


@pytest.mark.parametrize("arguments", ['{"commands":["rm', ""])
def test_a12_a_call_that_was_cut_is_never_done(arguments: str) -> None:
    events = hosted_call("shell", arguments, complete=False)
    payloads = response_payloads(*events, stop=Stopped(StopReason.MAX_TOKENS))
    deltas = ["function_call_arguments.delta"] if arguments else []
    assert kinds(payloads)[2:] == ["output_item.added", *deltas, "incomplete"]
    assert [(each["arguments"], each["status"]) for each in output(payloads)] == [(arguments, "incomplete")]


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
