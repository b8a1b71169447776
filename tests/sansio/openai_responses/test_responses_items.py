"""Input items that are no messages, calls or results: what they mean to other protocols, and that they come back
whole to their own.
"""

from __future__ import annotations

from typing import Any

import pytest

from dragoman._ir.events import Seal
from dragoman._ir.losses import Ledger
from dragoman._ir.request import (
    CodeExecution,
    CustomTool,
    FunctionTool,
    HostedTool,
    McpServer,
    Message,
    OpaquePart,
    ReasoningConfig,
    Request,
    ResponseFormat,
    Text,
    Thought,
    ToolResult,
    WebSearch,
)
from dragoman._ir.signatures import PREFIX, Sealer
from dragoman._transforms.extensions import leave_protocol
from dragoman._wire.exceptions import RemoteProtocolError
from dragoman.codec import Target
from dragoman.protocols.openai_responses import SPEC

ORIGIN, MESSAGES = "openai_responses", "anthropic_messages"
SEALER = Sealer(b"secret")
USER = {"type": "message", "role": "user", "content": "hi"}


def read(*items: Any, **body: Any) -> Request:
    return SPEC.read_request({"model": "m", "input": [*items], **body}, SEALER)


def own(*items: Any, **body: Any) -> list[Any]:
    """The items as an upstream of the same protocol gets them, without any loss."""
    ledger = Ledger()
    written: list[Any] = SPEC.write_request(read(*items, **body), Target(), ledger)["input"]
    assert list(ledger) == []
    return written


def lost(request: Request) -> list[tuple[str, str]]:
    ledger = Ledger()
    leave_protocol(request, ledger)
    return [(loss.code.value, loss.path) for loss in ledger]


# --- what the provider did, in words ----------------------------------------------------------------------------

SERVER = {"server_label": "files"}
WORDS: list[tuple[dict[str, Any], str]] = [
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
    ({"type": "program", "code": "x"}, "Ran this program:\nx"),
    ({"type": "program_output", "result": "y"}, "The program gave:\ny"),
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


@pytest.mark.parametrize(("item", "words"), WORDS)
def test_what_the_provider_did_is_told_in_words(item: dict[str, Any], words: str) -> None:
    request = read(item)
    [message] = request.messages
    assert message.parts == (OpaquePart(ORIGIN, item["type"], item, "/input/0", words),)
    by_user = item["type"] in ("mcp_approval_response", "function_call_output", "custom_tool_call_output")
    assert message.role == ("user" if by_user else "assistant")
    assert lost(request) == [("altered", "/input/0")]
    assert own(item) == [item]


# --- items about something else ---------------------------------------------------------------------------------


def tool_names(request: Request) -> list[str]:
    return [getattr(tool, "name", getattr(tool, "kind", "")) for tool in request.tools]


FUNCTION = {"type": "function", "name": "f"}


def test_h7_additional_tools_are_tools() -> None:
    items = [
        USER,
        {"type": "additional_tools", "role": "developer", "tools": [{"type": "custom", "name": "b"}]},
        {"type": "additional_tools", "role": "developer"},
    ]
    request = read(*items, tools=[{"type": "function", "name": "a"}])
    assert request.tools == (FunctionTool("a", path="/tools/0"), CustomTool("b", path="/input/1/tools/0"))
    assert [message.path for message in request.messages] == ["/input/0"]
    assert lost(request) == []
    assert own(*items) == items


FOUND: dict[str, Any] = {"type": "tool_search_output", "call_id": "c", "execution": "client"}


def test_tools_that_a_search_found_can_be_called() -> None:
    items = [
        {"type": "tool_search_call", "call_id": "c", "arguments": {}, "execution": "client"},
        {**FOUND, "tools": [{**FUNCTION, "defer_loading": True}, {"type": "apply_patch"}]},
    ]
    request = read(*items)
    assert request.tools[0] == FunctionTool("f", path="/input/1/tools/0")
    assert tool_names(request) == ["f", "apply_patch"]
    assert isinstance(request.messages[1].parts[0], ToolResult)
    assert own(*items) == items


def test_a_tool_is_declared_once() -> None:
    old, new = {**FUNCTION, "description": "old"}, {**FUNCTION, "description": "new"}
    twice = read({**FOUND, "tools": [old, {"type": "shell"}]}, {**FOUND, "tools": [new, {"type": "shell"}]})
    assert [(tool.path, getattr(tool, "description", None)) for tool in twice.tools] == [
        ("/input/1/tools/0", "new"),
        ("/input/1/tools/1", None),
    ]


@pytest.mark.parametrize(("kind", "deferred"), [("tool_search_output", None), ("additional_tools", True)])
def test_what_was_declared_at_first_stays_and_is_seen_once_it_was_found(kind: str, deferred: Any) -> None:
    hidden = {**FUNCTION, "defer_loading": True}
    request = read({"type": kind, "call_id": "c", "tools": [hidden]}, tools=[hidden])
    assert request.tools == (FunctionTool("f", path="/tools/0", deferred=deferred),)


def test_own_requests_keep_what_was_declared_twice() -> None:
    hidden = {**FUNCTION, "defer_loading": True}
    body = {"model": "m", "input": [{**FOUND, "tools": [hidden]}], "tools": [hidden]}
    assert SPEC.write_request(SPEC.read_request(body, SEALER), Target(), Ledger()) == body


SCHEMA = {"type": "json_schema", "name": "n", "schema": {"type": "object"}}
UPDATE = {"type": "configuration_update", "reasoning": {"effort": "low"}, "text": {"format": SCHEMA}}


def test_the_last_settings_count() -> None:
    first = {"type": "configuration_update", "reasoning": {"effort": "high"}}
    request = read(first, USER, UPDATE)
    assert request.reasoning == ReasoningConfig(
        effort="low", path="/reasoning", effort_path="/input/2/reasoning/effort"
    )
    assert request.response_format == ResponseFormat({"type": "object"}, "n", path="/input/2/text/format")
    assert [message.path for message in request.messages] == ["/input/1"]
    assert lost(request) == []
    assert own(first, USER, UPDATE, reasoning={"effort": "max"}) == [first, USER, UPDATE]


@pytest.mark.parametrize(
    ("body", "item", "losses"),
    [
        ({"reasoning": {"effort": "low"}}, UPDATE, []),
        ({"reasoning": {"effort": "high"}}, UPDATE, ["/reasoning/effort"]),
        ({"reasoning": {"summary": "auto"}}, UPDATE, []),
        ({"text": {"format": SCHEMA}}, UPDATE, []),
        ({"text": {"format": {"type": "text"}}}, UPDATE, []),
        (
            {"text": {"format": {"type": "json_object", "x": 1}}},
            UPDATE,
            ["/text/format/type", "/text/format/x"],
        ),
        ({"text": {"format": SCHEMA}}, {**UPDATE, "text": {"format": {"type": "text"}}}, ["/text"]),
        ({}, {**UPDATE, "x": 1}, ["/input/0/x"]),
        ({}, {**UPDATE, "reasoning": {"effort": "low", "x": 1}}, ["/input/0/reasoning"]),
        ({}, {**UPDATE, "text": "odd"}, ["/input/0/text"]),
        ({}, {"type": "configuration_update", "reasoning": None, "text": {}}, []),
    ],
)
def test_settings_that_no_longer_count_are_named(body: Any, item: Any, losses: list[str]) -> None:
    assert [path for _, path in lost(read(item, **body))] == losses


def test_settings_of_a_wrong_form_are_named_by_their_place() -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        read({"type": "configuration_update", "text": {"format": {"type": "xml"}}})
    assert caught.value.path == "/input/0/text/format/type"


TRIGGER = {"type": "compaction_trigger"}


def test_a_trigger_at_the_end_asks_for_compaction() -> None:
    request = read(USER, TRIGGER)
    assert request.compact
    assert len(request.messages) == 1
    assert lost(request) == []
    assert own(USER, TRIGGER) == [USER, TRIGGER]


def test_a_trigger_elsewhere_is_history() -> None:
    request = read(TRIGGER, USER)
    assert not request.compact
    assert request.messages[0] == Message(
        "user", (OpaquePart(ORIGIN, "compaction_trigger", TRIGGER, "/input/0"),), "/input/0"
    )
    assert lost(read({**TRIGGER, "x": 1})) == [("unknown_field", "/input/0/x")]


def compaction(text: str) -> dict[str, Any]:
    return {"type": "compaction", "id": "cmp_1", "encrypted_content": text}


def test_a_summary_that_was_made_here_takes_the_place_of_the_conversation() -> None:
    item = compaction(SEALER.wrap(Seal("dragoman", {"summary": "all of it"})))
    place = "/input/0/encrypted_content"
    text = Text("Summary of the conversation so far:\nall of it", path=place)
    assert read(item).messages == (Message("user", (text,), "/input/0"),)
    assert own(item) == [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text.text}]}
    ]


@pytest.mark.parametrize(
    "text",
    [
        "gAAAA",
        PREFIX + "AAAA.mac",
        SEALER.wrap(Seal("dragoman", {"summary": ""})),
        SEALER.wrap(Seal("dragoman", "x")),
        SEALER.wrap(Seal(MESSAGES, {"summary": "x"})),
    ],
)
def test_any_other_compaction_is_read_by_its_maker_alone(text: str) -> None:
    item = compaction(text)
    assert read(item).messages[0].parts == (OpaquePart(ORIGIN, "compaction", item, "/input/0"),)
    assert own(item) == [item]


REFERENCE = {"type": "item_reference", "id": "msg_9"}


@pytest.mark.parametrize("item", [REFERENCE, {"id": "msg_9"}])
def test_a_reference_to_the_vendors_store_is_a_wish_that_others_refuse(item: dict[str, Any]) -> None:
    request = read(USER, item, REFERENCE)
    assert request.params == {"previous_response_id": "msg_9"}
    assert request.param_paths["previous_response_id"] == "/input/1/id"
    assert own(USER, item) == [USER, item]
    body = {"model": "m", "input": [item]}
    assert SPEC.write_request(SPEC.read_request(body, SEALER), Target(), Ledger()) == body


def test_a_response_that_is_referred_to_counts_more_than_an_item() -> None:
    request = read(REFERENCE, previous_response_id="resp_1")
    assert request.params == {"previous_response_id": "resp_1"}
    assert request.param_paths["previous_response_id"] == "/previous_response_id"


# --- searches of another vendor, which were told twice ------------------------------------------------------------

SEARCH = {"type": "web_search_call", "id": "ws_x_1", "action": {"type": "search", "query": "cats"}}
RESULT = Seal(MESSAGES, {"type": "web_search_tool_result"}, "c")
SEALED = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": SEALER.wrap(RESULT)}


def test_a_search_that_its_maker_gets_back_is_not_told_again() -> None:
    request = read(SEALED, SEARCH)
    thought = Thought('Searched the web for "cats"', RESULT, "rs_1", path="/input/0")
    assert request.messages == (Message("assistant", (thought,), "/input/0"),)
    assert lost(request) == []


@pytest.mark.parametrize(
    "before",
    [
        USER,
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"},
        {**SEALED, "summary": [{"type": "summary_text", "text": "hm"}]},
        {**SEALED, "encrypted_content": PREFIX + "AAAA.mac"},
    ],
)
def test_any_other_search_is(before: dict[str, Any]) -> None:
    assert len(read(before, SEARCH).messages) == 2
    assert len(read(SEARCH).messages) == 1


# --- tools that the provider runs -------------------------------------------------------------------------------

MCP = {"type": "mcp", "server_label": "s", "server_url": "https://s", "require_approval": "never"}
PLACE = {"type": "approximate", "city": "Oslo"}
USES: list[tuple[dict[str, Any], Any]] = [
    *(
        ({"type": kind}, WebSearch())
        for kind in (
            "web_search",
            "web_search_2025_08_26",
            "web_search_preview",
            "web_search_preview_2025_03_11",
        )
    ),
    (
        {
            "type": "web_search",
            "filters": {"allowed_domains": ["a"]},
            "user_location": PLACE,
            "search_context_size": "low",
            "external_web_access": True,
        },
        WebSearch(("a",), location=PLACE, context_size="low"),
    ),
    ({"type": "web_search", "filters": None, "user_location": None}, WebSearch()),
    ({"type": "web_search", "filters": {"allowed_domains": None}}, WebSearch()),
    ({"type": "code_interpreter", "container": {"type": "auto"}}, CodeExecution()),
    (MCP, McpServer("s", "https://s")),
    ({**MCP, "authorization": "k", "allowed_tools": ["a"]}, McpServer("s", "https://s", "k", ("a",))),
    ({**MCP, "allowed_tools": {"tool_names": ["a"]}}, McpServer("s", "https://s", None, ("a",))),
    ({**MCP, "allowed_tools": {"read_only": True}}, None),
    ({**MCP, "headers": {"x-key": "k"}}, None),
    ({**MCP, "require_approval": "always"}, None),
    ({**MCP, "require_approval": None}, None),
    ({**MCP, "server_url": None, "connector_id": "connector_gmail"}, None),
    ({**MCP, "server_label": ""}, None),
    ({"type": "file_search", "vector_store_ids": ["v"]}, None),
    ({"type": "image_generation"}, None),
    ({"type": "programmatic_tool_calling"}, None),
    ({"type": "tool_search"}, None),
]


@pytest.mark.parametrize(("tool", "use"), USES)
def test_what_hosted_tools_are_for(tool: dict[str, Any], use: Any) -> None:
    request = read(USER, tools=[tool])
    assert request.tools == (HostedTool(ORIGIN, tool["type"], tool, "/tools/0", use),)
    assert "https://s" not in repr(use)


@pytest.mark.parametrize(
    "choice",
    [
        {"type": "mcp", "server_label": "s"},
        {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "mcp", "server_label": "s"}, FUNCTION]},
    ],
)
def test_own_choices_of_hosted_tools_come_back_whole(choice: dict[str, Any]) -> None:
    body = {"model": "m", "input": [USER], "tools": [MCP, FUNCTION], "tool_choice": choice}
    assert SPEC.write_request(SPEC.read_request(body, SEALER), Target(), Ledger()) == body
