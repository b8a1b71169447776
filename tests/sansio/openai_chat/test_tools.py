"""Tools and the choice among them: read, and written for upstreams."""

from typing import Any

import pytest
from chat_requests import write_request
from core.same_protocol import read_same_protocol

from dragoman._ir.request import Request
from dragoman._ir.tools import HostedTool, ToolChoice, WebSearch
from dragoman.protocols.openai_chat import SPEC
from dragoman.protocols.openai_chat.capabilities import ChatCapabilities as Capabilities

CHAT = "openai_chat"


def read(**body: Any) -> Request:
    return read_same_protocol(SPEC, {"model": "m", "messages": [], **body})


# -- web searches and other tools of the provider ---------------------------------------------------------


OSLO = {"city": "Oslo", "country": "NO"}
LOCATION = {"type": "approximate", "approximate": OSLO}
OPTIONS = {"search_context_size": "low", "user_location": LOCATION}


@pytest.mark.parametrize(
    ("options", "use", "extra"),
    [
        ({}, WebSearch(), None),
        (OPTIONS, WebSearch(location={"type": "approximate", **OSLO}, context_size="low"), None),
        ({"user_location": None}, WebSearch(), None),
        ({"x": 1}, WebSearch(), {"x": 1}),
        (
            {"user_location": {**LOCATION, "x": 1, "approximate": {**OSLO, "y": 2}}},
            WebSearch(location={"type": "approximate", **OSLO}),
            {"user_location": {"x": 1, "approximate": {"y": 2}}},
        ),
        (
            {"user_location": {"type": "exact", "approximate": "here"}},
            WebSearch(),
            {"user_location": {"type": "exact", "approximate": "here"}},
        ),
        ({"user_location": {"type": "approximate"}}, WebSearch(), None),
        ({"user_location": "here"}, WebSearch(), {"user_location": "here"}),
    ],
)
def test_web_search_options_are_a_hosted_tool(options: Any, use: WebSearch, extra: Any) -> None:
    request = read(web_search_options=options)
    path = "/web_search_options"
    assert request.tools == (HostedTool(CHAT, "web_search_options", options, path, use),)
    assert request.extra == (extra and {"web_search_options": extra})
    body, losses = write_request(request, Capabilities())
    assert (body["web_search_options"], losses) == (options, [])


def test_a_choice_of_a_native_hosted_tool() -> None:
    body_in = {"tools": [{"type": "web_search"}], "tool_choice": {"type": "web_search"}}
    request = read(**body_in)
    assert request.tool_choice == ToolChoice("named", path="/tool_choice", hosted="web_search")
    body, losses = write_request(request, Capabilities())
    assert (body["tools"], body["tool_choice"], losses) == (*body_in.values(), [])
