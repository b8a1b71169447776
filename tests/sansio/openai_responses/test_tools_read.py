"""Tools and tool choices in a Responses request."""

from typing import Any

import pytest
from core.same_protocol import read_same_protocol

from dragoman._ir.losses import Ledger
from dragoman.protocols.openai_responses import SPEC
from dragoman.protocols.openai_responses.capabilities import ResponsesCapabilities as Capabilities

FUNCTION = {"type": "function", "name": "f"}


MCP = {"type": "mcp", "server_label": "s", "server_url": "https://s", "require_approval": "never"}


@pytest.mark.parametrize(
    "choice",
    [
        {"type": "mcp", "server_label": "s"},
        {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "mcp", "server_label": "s"}, FUNCTION]},
    ],
)
def test_choices_of_hosted_tools_return_whole_to_the_same_protocol(choice: dict[str, Any]) -> None:
    body = {"model": "m", "input": "hi", "tools": [MCP, FUNCTION], "tool_choice": choice}
    assert SPEC.write_request(read_same_protocol(SPEC, body), Capabilities(), Ledger()) == body
