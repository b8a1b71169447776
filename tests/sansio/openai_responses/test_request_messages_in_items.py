"""Input items other than messages, calls and results: their meaning for other protocols, and their way back."""

from typing import Any

import pytest
from core.natives import with_unknown_members
from core.passes import pass_context
from core.same_protocol import read_same_protocol

from dragoman._ir.events import Signature
from dragoman._ir.losses import Ledger
from dragoman._ir.request import (
    Message,
    OpaquePart,
    ReasoningConfig,
    Request,
    ResponseFormat,
    Text,
    ToolResult,
)
from dragoman._ir.tools import CustomTool, FunctionTool
from dragoman._ir.wrapped_signatures import WRAPPED_PREFIX, Signer
from dragoman._transforms.extensions import strip_extensions
from dragoman.protocols.openai_responses import SPEC
from dragoman.protocols.openai_responses.capabilities import ResponsesCapabilities as Capabilities

ORIGIN, MESSAGES = "openai_responses", "anthropic_messages"
SIGNER = Signer(b"secret")
USER = {"type": "message", "role": "user", "content": "hi"}


def read(*items: Any, **body: Any) -> Request:
    return read_same_protocol(SPEC, {"model": "m", "input": [*items], **body}, SIGNER)


def same_protocol_items(*items: Any, **body: Any) -> list[Any]:
    """Return the items as an upstream of the same protocol gets them, without any loss."""
    ledger = Ledger()
    written: list[Any] = SPEC.write_request(read(*items, **body), Capabilities(), ledger)["input"]
    assert list(ledger) == []
    return written


def is_read(message: Message) -> bool:
    """True for an item without a message, which is kept for the same protocol only."""
    return any(isinstance(part, OpaquePart) and part.shape is not None for part in message.parts)


def lost(request: Request) -> list[tuple[str, str]]:
    ledger = Ledger()
    strip_extensions(request, pass_context(request, ledger, client=SPEC))
    return [(loss.code.value, loss.path) for loss in ledger]


# --- what clients add to items ---------------------------------------------------------------------------------


CALL = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}", "id": "fc_1"}
OUTPUT = {"type": "function_call_output", "call_id": "c", "output": "r"}
ANSWER = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "{}"}]}
METADATA = {"internal_chat_message_metadata_passthrough": {"turn_id": "t"}}


def test_what_the_parser_of_openais_sdk_adds_is_no_unknown_field() -> None:
    # As `model_dump()` of what `client.responses.parse()` returned leaves them (openai-python 3.54.0).
    call = {**CALL, "async_": None, "caller": None, "namespace": None, "parsed_arguments": {"a": 1}}
    part = {**ANSWER["content"][0], "logprobs": None, "annotations": [], "parsed": {"a": 1}}  # type: ignore[index]
    request = read(USER, call, OUTPUT, {**ANSWER, "phase": None, "content": [part]})
    assert lost(request) == []


def test_what_a_client_notes_on_each_item_is_its_own() -> None:
    items = [{**item, **METADATA} for item in (USER, CALL, OUTPUT)]
    assert lost(read(*items)) == []
    assert same_protocol_items(*items) == items


# --- tools, settings, references and summaries ------------------------------------------------------------------


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
    found = with_unknown_members(SPEC, request.tools)
    assert found == (FunctionTool("a", path="/tools/0"), CustomTool("b", path="/input/1/tools/0"))
    assert [is_read(message) for message in request.messages] == [False, True, True]
    assert lost(request) == []
    assert same_protocol_items(*items) == items


FOUND: dict[str, Any] = {"type": "tool_search_output", "call_id": "c", "execution": "client"}


def test_tools_that_a_search_found_can_be_called() -> None:
    items = [
        {"type": "tool_search_call", "call_id": "c", "arguments": {}, "execution": "client"},
        {**FOUND, "tools": [{**FUNCTION, "defer_loading": True}, {"type": "apply_patch"}]},
    ]
    request = read(*items)
    assert with_unknown_members(SPEC, request.tools[0]) == FunctionTool("f", path="/input/1/tools/0")
    assert tool_names(request) == ["f", "apply_patch"]
    assert isinstance(request.messages[1].parts[0], ToolResult)
    assert same_protocol_items(*items) == items


def test_tools_declared_twice_return_to_the_same_protocol() -> None:
    hidden = {**FUNCTION, "defer_loading": True}
    body = {"model": "m", "input": [{**FOUND, "tools": [hidden]}], "tools": [hidden]}
    assert SPEC.write_request(read_same_protocol(SPEC, body, SIGNER), Capabilities(), Ledger()) == body


SCHEMA = {"type": "json_schema", "name": "n", "schema": {"type": "object"}}
UPDATE = {"type": "configuration_update", "reasoning": {"effort": "low"}, "text": {"format": SCHEMA}}


def test_the_last_settings_count() -> None:
    first = {"type": "configuration_update", "reasoning": {"effort": "high"}}
    request = read(first, USER, UPDATE)
    expected = ReasoningConfig(effort="low", path="/reasoning", effort_path="/input/2/reasoning/effort")
    assert request.reasoning == expected
    assert request.response_format == ResponseFormat({"type": "object"}, "n", path="/input/2/text/format")
    assert [is_read(message) for message in request.messages] == [True, False, True]
    assert lost(request) == []
    assert same_protocol_items(first, USER, UPDATE, reasoning={"effort": "max"}) == [first, USER, UPDATE]


@pytest.mark.parametrize(
    ("body", "item", "losses"),
    [
        ({"reasoning": {"effort": "low"}}, UPDATE, []),
        ({"reasoning": {"effort": "high"}}, UPDATE, ["/reasoning/effort"]),
        ({"reasoning": {"summary": "auto"}}, UPDATE, []),
        ({"text": {"format": SCHEMA}}, UPDATE, []),
        ({"text": {"format": {"type": "text"}}}, UPDATE, []),
        ({"text": {"format": {"type": "json_object", "x": 1}}}, UPDATE, ["/text/format/type", "/text/format/x"]),
        ({"text": {"format": SCHEMA}}, {**UPDATE, "text": {"format": {"type": "text"}}}, ["/text"]),
        ({}, {**UPDATE, "x": 1}, ["/input/0/x"]),
        ({}, {**UPDATE, "reasoning": {"effort": "low", "x": 1}}, ["/input/0/reasoning"]),
        ({}, {**UPDATE, "text": "odd"}, ["/input/0/text"]),
        ({}, {"type": "configuration_update", "reasoning": None, "text": {}}, []),
    ],
)  # fmt: skip
def test_replaced_settings_are_losses(body: Any, item: Any, losses: list[str]) -> None:
    assert [path for _, path in lost(read(item, **body))] == losses


TRIGGER = {"type": "compaction_trigger"}


def test_a_trigger_at_the_end_requests_compaction() -> None:
    request = read(USER, TRIGGER)
    assert request.compact
    assert [is_read(message) for message in request.messages] == [False, True]
    assert lost(request) == []
    assert same_protocol_items(USER, TRIGGER) == [USER, TRIGGER]


def test_a_trigger_elsewhere_is_an_opaque_part() -> None:
    request = read(TRIGGER, USER)
    assert not request.compact
    expected = Message("user", (OpaquePart(ORIGIN, "compaction_trigger", TRIGGER, "/input/0"),), "/input/0")
    assert request.messages[0] == expected
    assert lost(read({**TRIGGER, "x": 1})) == [("unknown_field", "/input/0/x")]


def compaction(text: str) -> dict[str, Any]:
    return {"type": "compaction", "id": "cmp_1", "encrypted_content": text}


def test_a_summary_made_here_is_a_text() -> None:
    item = compaction(SIGNER.wrap(Signature("dragoman", {"summary": "all of it"})))
    place = "/input/0/encrypted_content"
    text = Text("Summary of the conversation so far:\nall of it", path=place)
    assert with_unknown_members(SPEC, read(item).messages) == (Message("user", (text,), "/input/0"),)
    expected = [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": text.text}]}]
    assert same_protocol_items(item) == expected


@pytest.mark.parametrize(
    "text",
    [
        "gAAAA",
        WRAPPED_PREFIX + "AAAA.mac",
        SIGNER.wrap(Signature("dragoman", {"summary": ""})),
        SIGNER.wrap(Signature("dragoman", "x")),
        SIGNER.wrap(Signature(MESSAGES, {"summary": "x"})),
    ],
)
def test_any_other_compaction_is_an_opaque_part(text: str) -> None:
    item = compaction(text)
    assert read(item).messages[0].parts == (OpaquePart(ORIGIN, "compaction", item, "/input/0"),)
    assert same_protocol_items(item) == [item]


REFERENCE = {"type": "item_reference", "id": "msg_9"}


@pytest.mark.parametrize("item", [REFERENCE, {"id": "msg_9"}])
def test_a_reference_to_the_vendors_store_is_a_previous_response_id(item: dict[str, Any]) -> None:
    request = read(USER, item, REFERENCE)
    assert request.params == {"previous_response_id": "msg_9"}
    assert request.param_paths["previous_response_id"] == "/input/1/id"
    assert same_protocol_items(USER, item) == [USER, item]
    body = {"model": "m", "input": [item]}
    assert SPEC.write_request(read_same_protocol(SPEC, body, SIGNER), Capabilities(), Ledger()) == body
