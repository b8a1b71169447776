"""Shortcuts that write the same turns as the general way."""

from typing import Any

import msgspec
import pytest
from core.passes import fit_and_write

from dragoman._ir.losses import Ledger
from dragoman._ir.request import Message, Part, Request, Text, ToolCall, ToolResult
from dragoman._wire.json import decode, encode
from dragoman.protocols.anthropic_messages import SPEC
from dragoman.protocols.anthropic_messages.capabilities import MessagesCapabilities as Capabilities


def after_call(protocol: str, *parts: Part) -> Any:
    """What is written behind a call for a message of these parts."""
    call = Message("assistant", (ToolCall("c", "f", "{}"),), "/a")
    request = Request(protocol, "m", (call, Message("user", parts, "/u")))
    return decode(encode(fit_and_write(SPEC, request, Capabilities(), Ledger())))["messages"][1:]


@pytest.mark.parametrize("inner", [(Text("a"),), (Text(" "),), (Text("a"), Text("b")), (Text(""),), ()])
def test_the_shortcut_for_results_writes_the_same_as_the_general_way(inner: Any) -> None:
    result = ToolResult("c", inner)
    [short], [long] = (
        after_call("other", result),
        after_call("other", msgspec.structs.replace(result, is_error=False)),
    )
    assert long["content"] == [{**short["content"][0], "is_error": False}]


def test_results_in_a_request_of_this_protocol() -> None:
    result = ToolResult("c", (Text("a"),))
    assert after_call("other", result) == after_call("anthropic_messages", result)
