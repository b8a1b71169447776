"""Requests in a form that is not this protocol's, though it is plain what they mean."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman._ir.losses import Ledger, LossCode
from dragoman._ir.request import FunctionTool, Request, ToolCall, ToolChoice, ToolRef, ToolResult
from dragoman._ir.signatures import Sealer
from dragoman._transforms.extensions import leave_protocol
from dragoman._wire.exceptions import RemoteProtocolError
from dragoman.codec import Target
from dragoman.protocols.openai_responses import SPEC

SCHEMA = {"type": "object", "properties": {}}
FLAT = {"type": "function", "name": "f", "parameters": SCHEMA}
NESTED = {"type": "function", "function": {"name": "g", "description": "d", "parameters": SCHEMA}}
REF = {"type": "function", "function": {"name": "g"}}


def read(**body: Any) -> Request:
    return SPEC.read_request({"model": "m", "input": "hi", **body}, Sealer())


def entered(request: Request) -> list[str]:
    ledger = Ledger()
    leave_protocol(request, ledger)
    assert {loss.code for loss in ledger} <= {LossCode.REPAIRED}
    return [loss.path for loss in ledger]


def test_functions_in_the_form_of_chat_completions() -> None:
    request = read(tools=[FLAT, NESTED, {"type": "function", "function": {"name": "h", "strict": True}}])
    assert request.tools == (
        FunctionTool("f", None, SCHEMA, path="/tools/0"),
        FunctionTool("g", "d", SCHEMA, False, path="/tools/1"),  # the default of that form
        FunctionTool("h", None, None, True, path="/tools/2"),
    )
    assert entered(request) == ["/tools/1", "/tools/2"]
    printed = SPEC.write_request(request, Target(), Ledger())["tools"]
    assert printed[0] == FLAT
    assert printed[1] == {"type": "function", "strict": False, **NESTED["function"]}  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (REF, ToolChoice("named", "g", path="/tool_choice")),
        (
            {
                "type": "allowed_tools",
                "allowed_tools": {"mode": "required", "tools": [REF, {"type": "function", "name": "f"}]},
            },
            ToolChoice("allowed", allowed=(ToolRef("g"), ToolRef("f")), required=True, path="/tool_choice"),
        ),
    ],
)
def test_choices_in_the_form_of_chat_completions(choice: Any, expected: ToolChoice) -> None:
    request = read(tools=[FLAT], tool_choice=choice)
    assert request.tool_choice == expected
    assert entered(request) == ["/tool_choice"]


@pytest.mark.parametrize(
    ("kind", "text"), [("function_call", {"arguments": "{}"}), ("custom_tool_call", {"input": "x"})]
)
def test_a_call_whose_output_names_its_id(kind: str, text: Any) -> None:
    request = read(
        input=[
            {"type": kind, "id": "call_1", "call_id": None, "name": "f", **text},
            {"type": kind, "id": "fc_2", "call_id": "call_2", "name": "f", **text},
            {"type": f"{kind}_output", "call_id": "call_1", "output": "1"},
            {"type": f"{kind}_output", "call_id": "call_2", "output": "2"},
        ]
    )
    parts = [message.parts[0] for message in request.messages]
    assert [part.call_id for part in parts if isinstance(part, (ToolCall, ToolResult))] == [
        "call_1",
        "call_2",
        "call_1",
        "call_2",
    ]
    assert [part.item_id for part in parts if isinstance(part, ToolCall)] == [None, "fc_2"]
    assert entered(request) == ["/input/0"]


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"tools": [{"type": "function", "function": "g"}]}, "/tools/0/name"),
        ({"tools": [{"type": "function", "function": {}}]}, "/tools/0/name"),
        ({"tools": "f"}, "/tools"),
        ({"tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto"}}}, "/tool_choice/tools"),
        # no output names it
        (
            {"input": [{"type": "function_call", "id": "call_1", "name": "f", "arguments": "{}"}]},
            "/input/0/call_id",
        ),
        (
            {
                "input": [
                    {"type": "function_call", "id": "call_1", "name": "f", "arguments": "{}"},
                    {"type": "function_call_output", "call_id": ["call_1"], "output": "1"},
                    "odd",
                ]
            },
            "/input/0/call_id",
        ),
        ({"input": [{"type": ["function_call"], "id": "call_1"}]}, "/input/0/type"),
    ],
)
def test_what_is_not_plain_is_refused(body: Any, path: str) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        read(**body)
    assert caught.value.path == path
