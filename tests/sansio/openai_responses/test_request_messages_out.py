"""Shortcuts that write the same input items as the general way."""

from typing import Any

import pytest
from core.passes import fit_and_write

from dragoman._ir.events import ToolKind
from dragoman._ir.losses import Ledger
from dragoman._ir.request import Message, Request, Text, ToolCall, ToolResult
from dragoman.protocols.openai_responses import SPEC


def items(*messages: Message) -> Any:
    request = Request("openai_chat", "m", messages)
    return fit_and_write(SPEC, request, SPEC.capabilities(), Ledger())["input"]


@pytest.mark.parametrize("kind", [ToolKind.FUNCTION, ToolKind.CUSTOM])
@pytest.mark.parametrize("text", ["a", ""])
def test_common_results_are_written_as_by_the_general_code(kind: ToolKind, text: str) -> None:
    # Only the general code drops citations.
    short, long = ToolResult("c", (Text(text),), kind), ToolResult("c", (Text(text, citations=[{}]),), kind)
    assert items(Message("user", (short,), "/m")) == items(Message("user", (long,), "/m"))


def test_a_single_call_is_written_as_among_other_parts() -> None:
    call, message = ToolCall("c", "f", "{}"), Text("a")
    single = items(Message("assistant", (message,), "/m"), Message("assistant", (call,), "/n"))
    assert single == items(Message("assistant", (message, call), "/m"))
