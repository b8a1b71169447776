"""Input items other than messages, calls and results: their meaning for other protocols, and their way back."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman._ir.events import Signature
from dragoman._ir.losses import Ledger
from dragoman._ir.request import (
    CustomTool,
    FunctionTool,
    Message,
    OpaquePart,
    Reasoning,
    ReasoningConfig,
    Request,
    ResponseFormat,
    Text,
    ToolResult,
)
from dragoman._ir.signatures import WRAPPED_PREFIX, Signer
from dragoman._transforms.extensions import strip_extensions
from dragoman._wire.exceptions import RemoteProtocolError
from dragoman.codec import Capabilities
from dragoman.protocols.openai_responses import SPEC

ORIGIN, MESSAGES = "openai_responses", "anthropic_messages"
SEALER = Signer(b"secret")
USER = {"type": "message", "role": "user", "content": "hi"}


def read(*items: Any, **body: Any) -> Request:
    return SPEC.read_request({"model": "m", "input": [*items], **body}, SEALER)


def own(*items: Any, **body: Any) -> list[Any]:
    """The items as an upstream of the same protocol gets them, without any loss."""
    ledger = Ledger()
    written: list[Any] = SPEC.write_request(read(*items, **body), Capabilities(), ledger)["input"]
    assert list(ledger) == []
    return written


def lost(request: Request) -> list[tuple[str, str]]:
    ledger = Ledger()
    strip_extensions(request, ledger)
    return [(loss.code.value, loss.path) for loss in ledger]


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
    assert SPEC.write_request(SPEC.read_request(body, SEALER), Capabilities(), Ledger()) == body


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
    item = compaction(SEALER.wrap(Signature("dragoman", {"summary": "all of it"})))
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
        WRAPPED_PREFIX + "AAAA.mac",
        SEALER.wrap(Signature("dragoman", {"summary": ""})),
        SEALER.wrap(Signature("dragoman", "x")),
        SEALER.wrap(Signature(MESSAGES, {"summary": "x"})),
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
    assert SPEC.write_request(SPEC.read_request(body, SEALER), Capabilities(), Ledger()) == body


def test_a_response_that_is_referred_to_counts_more_than_an_item() -> None:
    request = read(REFERENCE, previous_response_id="resp_1")
    assert request.params == {"previous_response_id": "resp_1"}
    assert request.param_paths["previous_response_id"] == "/previous_response_id"


# --- searches of another vendor, which were told twice ------------------------------------------------------------

SEARCH = {"type": "web_search_call", "id": "ws_x_1", "action": {"type": "search", "query": "cats"}}
RESULT = Signature(MESSAGES, {"type": "web_search_tool_result"}, "c")
SEALED = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": SEALER.wrap(RESULT)}


def test_a_search_that_its_maker_gets_back_is_not_told_again() -> None:
    request = read(SEALED, SEARCH)
    thought = Reasoning('Searched the web for "cats"', RESULT, "rs_1", path="/input/0")
    assert request.messages == (Message("assistant", (thought,), "/input/0"),)
    assert lost(request) == []


@pytest.mark.parametrize(
    "before",
    [
        USER,
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"},
        {**SEALED, "summary": [{"type": "summary_text", "text": "hm"}]},
        {**SEALED, "encrypted_content": WRAPPED_PREFIX + "AAAA.mac"},
    ],
)
def test_any_other_search_is(before: dict[str, Any]) -> None:
    assert len(read(before, SEARCH).messages) == 2
    assert len(read(SEARCH).messages) == 1
