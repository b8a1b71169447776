"""Bodies of Responses requests: their settings, their repairs and their errors."""

from typing import Any

import pytest
from core.natives import with_unknown_members
from core.passes import pass_context
from core.same_protocol import read_same_protocol

from dragoman._ir.losses import Ledger, LossCode
from dragoman._ir.request import Request, ToolCall, ToolResult
from dragoman._ir.tools import FunctionTool, ToolChoice, ToolRef
from dragoman._ir.wrapped_signatures import Signer
from dragoman._transforms.extensions import strip_extensions
from dragoman.protocols.openai_responses import SPEC
from dragoman.protocols.openai_responses.capabilities import ResponsesCapabilities as Capabilities


def read(signer: Signer = Signer(), **body: Any) -> Request:
    return with_unknown_members(SPEC, read_same_protocol(SPEC, {"model": "m", "input": "hi", **body}, signer))


SCHEMA = {"type": "object", "properties": {}}
FLAT = {"type": "function", "name": "f", "parameters": SCHEMA}
NESTED = {"type": "function", "function": {"name": "g", "description": "d", "parameters": SCHEMA}}
REF = {"type": "function", "function": {"name": "g"}}


def repaired(request: Request) -> list[str]:
    ledger = Ledger()
    strip_extensions(request, pass_context(request, ledger))
    assert {loss.code for loss in ledger} <= {LossCode.REPAIRED}
    return [loss.path for loss in ledger]


def test_functions_in_the_form_of_chat_completions() -> None:
    request = read(tools=[FLAT, NESTED, {"type": "function", "function": {"name": "h", "strict": True}}])
    assert request.tools == (
        FunctionTool("f", None, SCHEMA, path="/tools/0"),
        FunctionTool("g", "d", SCHEMA, False, path="/tools/1"),  # the default of Chat Completions
        FunctionTool("h", None, None, True, path="/tools/2"),
    )
    assert repaired(request) == ["/tools/1", "/tools/2"]
    written = SPEC.write_request(request, Capabilities(), Ledger())["tools"]
    assert written[0] == FLAT
    assert written[1] == {"type": "function", "strict": False, **NESTED["function"]}  # type: ignore[dict-item]


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
    assert repaired(request) == ["/tool_choice"]


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
    found = [part.call_id for part in parts if isinstance(part, (ToolCall, ToolResult))]
    assert found == ["call_1", "call_2", "call_1", "call_2"]
    assert repaired(request) == ["/input/0"]
