"""What a Responses request means: bodies in, requests out."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman._ir.events import Signature, ToolKind
from dragoman._ir.request import (
    CacheMark,
    Citation,
    Media,
    Message,
    OpaquePart,
    Reasoning,
    Refusal,
    Request,
    Text,
    ToolCall,
    ToolResult,
)
from dragoman._ir.signatures import WRAPPED_PREFIX, Signer
from dragoman._wire.exceptions import RemoteProtocolError
from dragoman.protocols.openai_responses import SPEC

ORIGIN = "openai_responses"


def read(signer: Signer = Signer(), **body: Any) -> Request:
    return SPEC.read_request({"model": "m", "input": "hi", **body}, signer)


def item(value: dict[str, Any], signer: Signer = Signer()) -> Message:
    (message,) = read(signer, input=[value]).messages
    return message


def content(part: dict[str, Any]) -> Any:
    (found,) = item({"role": "user", "content": [part]}).parts
    return found


def test_a_string_is_one_user_message() -> None:
    request = read()
    assert request.messages == (Message("user", (Text("hi", path="/input"),), "/input"),)
    assert (request.protocol, request.model, request.stream, request.extra) == (ORIGIN, "m", False, None)
    assert request.raw == {"model": "m", "input": "hi"}


def test_instructions_lead_and_say_where_they_stood() -> None:
    request = read(instructions="be brief", stream=True)
    assert request.messages[0] == Message(
        "system", (Text("be brief", path="/instructions"),), "/instructions"
    )
    assert request.messages[1].role == "user"
    assert request.stream


def test_input_may_be_absent_when_something_else_holds_the_conversation() -> None:
    request = SPEC.read_request({"model": "m", "previous_response_id": "resp_1"}, Signer())
    assert request.messages == ()
    assert request.params == {"previous_response_id": "resp_1"}


@pytest.mark.parametrize("role", ["user", "assistant", "system", "developer"])
@pytest.mark.parametrize("typed", [{}, {"type": "message"}])
def test_messages_with_and_without_type(role: Any, typed: dict[str, Any]) -> None:
    assert item({**typed, "role": role, "content": "x"}) == Message(
        role, (Text("x", path="/input/0/content"),), "/input/0"
    )


def test_a_message_keeps_id_phase_and_unknown_fields() -> None:
    message = item(
        {
            "type": "message",
            "role": "assistant",
            "id": "msg_1",
            "status": "completed",
            "phase": "commentary",
            "odd": 1,
            "content": [{"type": "output_text", "text": "x", "annotations": []}],
        }
    )
    assert message == Message(
        "assistant",
        (Text("x", path="/input/0/content/0"),),
        "/input/0",
        phase="commentary",
        item_id="msg_1",
        extra={"odd": 1},
    )


PART = "/input/0/content/0"
MARK = {"mode": "explicit", "ttl": "12h"}
URL = {"type": "url_citation", "url": "https://x", "title": "X", "start_index": 0, "end_index": 1}
PARTS: list[tuple[dict[str, Any], Any]] = [
    ({"type": "input_text", "text": "a"}, Text("a", path=PART)),
    ({"type": "text", "text": "a"}, Text("a", path=PART)),
    (
        {"type": "input_text", "text": "a", "prompt_cache_breakpoint": MARK},
        Text("a", CacheMark(f"{PART}/prompt_cache_breakpoint", "long"), path=PART),
    ),
    (
        {"type": "input_text", "text": "a", "prompt_cache_breakpoint": {"mode": "explicit"}},
        Text("a", CacheMark(f"{PART}/prompt_cache_breakpoint"), path=PART),
    ),
    (
        {"type": "output_text", "text": "a", "annotations": [{"type": "file_path"}], "logprobs": []},
        Text("a", citations=[{"type": "file_path"}], path=PART),
    ),
    (
        {"type": "output_text", "text": "a", "annotations": [URL, {**URL, "title": None}, "odd"]},
        Text(
            "a",
            citations=[URL, {**URL, "title": None}, "odd"],
            path=PART,
            sources=(Citation("https://x", "X", 0, 1), Citation("https://x", None, 0, 1)),
        ),
    ),
    (
        {"type": "output_text", "text": "a", "annotations": [{"url": "u", "start_index": "0"}]},
        Text("a", citations=[{"url": "u", "start_index": "0"}], path=PART, sources=(Citation("u"),)),
    ),
    (
        {"type": "output_text", "text": "a", "logprobs": [{"token": "a"}]},
        Text("a", extra={"logprobs": [{"token": "a"}]}, path=PART),
    ),
    ({"type": "input_text", "text": "a", "odd": 1}, Text("a", extra={"odd": 1}, path=PART)),
    ({"type": "refusal", "refusal": "no"}, Refusal("no", path=PART)),
    (
        {"type": "input_image", "image_url": "data:image/png;base64,QUJD", "detail": "low"},
        Media("image", "base64", "QUJD", "image/png", detail="low", path=PART),
    ),
    (
        {"type": "input_image", "image_url": "data:;base64,QUJD"},
        Media("image", "base64", "QUJD", path=PART),
    ),
    (
        {"type": "input_image", "image_url": "https://x/y.png"},
        Media("image", "url", "https://x/y.png", path=PART),
    ),
    (
        {"type": "input_image", "image_url": "data:image/svg+xml,%3Csvg/%3E"},
        Media("image", "url", "data:image/svg+xml,%3Csvg/%3E", path=PART),
    ),
    (
        {"type": "input_image", "file_id": "file_1", "odd": 1},
        Media("image", "file_id", "file_1", extra={"odd": 1}, path=PART),
    ),
    (
        {"type": "input_file", "file_data": "data:application/pdf;base64,QUJD", "filename": "a.pdf"},
        Media("file", "base64", "QUJD", "application/pdf", "a.pdf", path=PART),
    ),
    ({"type": "input_file", "file_data": "QUJD"}, Media("file", "base64", "QUJD", path=PART)),
    (
        {"type": "input_file", "file_url": "https://x/y.pdf", "detail": "high"},
        Media("file", "url", "https://x/y.pdf", detail="high", path=PART),
    ),
    ({"type": "input_file", "file_id": "file_1"}, Media("file", "file_id", "file_1", path=PART)),
    (
        {"type": "input_audio", "input_audio": {}},
        OpaquePart(ORIGIN, "input_audio", {"type": "input_audio", "input_audio": {}}, PART),
    ),
]


@pytest.mark.parametrize(("part", "expected"), PARTS)
def test_content_parts(part: dict[str, Any], expected: Any) -> None:
    assert content(part) == expected


CALLS: list[tuple[dict[str, Any], ToolCall]] = [
    (
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        ToolCall("c", "f", "{}", path="/input/0"),
    ),
    (
        {
            "type": "function_call",
            "call_id": "c",
            "name": "f",
            "arguments": "",
            "id": "fc_1",
            "namespace": "ns",
            "status": "completed",
            "caller": {"type": "program", "caller_id": "p"},
        },
        ToolCall(
            "c",
            "f",
            "",
            namespace="ns",
            item_id="fc_1",
            extra={"caller": {"type": "program", "caller_id": "p"}},
            path="/input/0",
        ),
    ),
    (
        {"type": "function_call", "call_id": "c", "name": "f", "id": ""},
        ToolCall("c", "f", "", path="/input/0"),
    ),
    (
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": {"a": 1}},
        ToolCall("c", "f", '{"a":1}', path="/input/0"),
    ),
    (
        {"type": "custom_tool_call", "call_id": "c", "name": "f", "input": "free text"},
        ToolCall("c", "f", "free text", ToolKind.CUSTOM, path="/input/0"),
    ),
]


@pytest.mark.parametrize(("value", "expected"), CALLS)
def test_calls(value: dict[str, Any], expected: ToolCall) -> None:
    assert item(value) == Message("assistant", (expected,), "/input/0")


RESULTS: list[tuple[dict[str, Any], ToolResult]] = [
    (
        {"type": "function_call_output", "call_id": "c", "output": "done"},
        ToolResult("c", (Text("done", path="/input/0/output"),), path="/input/0"),
    ),
    (
        {"type": "custom_tool_call_output", "call_id": "c", "output": "done", "id": "o_1", "odd": 1},
        ToolResult(
            "c",
            (Text("done", path="/input/0/output"),),
            ToolKind.CUSTOM,
            item_id="o_1",
            extra={"odd": 1},
            path="/input/0",
        ),
    ),
    (
        {
            "type": "function_call_output",
            "call_id": "c",
            "name": "f",
            "namespace": None,
            "status": "completed",
            "output": [
                {"type": "input_text", "text": "see"},
                {"type": "input_image", "image_url": "https://x/y.png", "detail": "auto"},
            ],
        },
        ToolResult(
            "c",
            (
                Text("see", path="/input/0/output/0"),
                Media("image", "url", "https://x/y.png", detail="auto", path="/input/0/output/1"),
            ),
            path="/input/0",
        ),
    ),
]


@pytest.mark.parametrize(("value", "expected"), RESULTS)
def test_results(value: dict[str, Any], expected: ToolResult) -> None:
    assert item(value) == Message("user", (expected,), "/input/0")


def test_reasoning_keeps_the_whole_item_as_its_seal() -> None:
    value = {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [{"type": "summary_text", "text": "one"}, {"type": "summary_text", "text": "two"}, "odd"],
        "encrypted_content": "gAAA",
        "odd": 1,
    }
    assert item(value).parts == (
        Reasoning("one\n\ntwo", Signature(ORIGIN, value), "rs_1", {"odd": 1}, "/input/0"),
    )


def test_reasoning_content_is_its_text_when_there_is_no_summary() -> None:
    value = {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "deep"}]}
    assert item(value).parts == (Reasoning("deep", Signature(ORIGIN, value), path="/input/0"),)


def test_reasoning_that_we_sealed_is_unwrapped() -> None:
    signer = Signer(b"secret")
    seal = Signature("anthropic_messages", {"type": "thinking", "thinking": "t", "signature": "s"}, "c")
    value = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": signer.wrap(seal)}
    assert item(value, signer).parts == (Reasoning("", seal, "rs_1", path="/input/0"),)


def test_forged_reasoning_is_only_text() -> None:
    value = {
        "type": "reasoning",
        "summary": [{"text": "t"}],
        "encrypted_content": WRAPPED_PREFIX + "AAAA.mac",
    }
    assert item(value, Signer(b"secret")).parts == (Reasoning("t", None, path="/input/0", forged=True),)


@pytest.mark.parametrize("kind", ["something_of_tomorrow", "compaction"])
def test_items_that_say_nothing_to_others_ride_along_whole(kind: str) -> None:
    value = {"type": kind, "id": "x"}
    assert item(value) == Message("assistant", (OpaquePart(ORIGIN, kind, value, "/input/0"),), "/input/0")


ERRORS: list[tuple[dict[str, Any], str, str]] = [
    ({"model": None}, "/model", "missing_required_parameter"),
    ({"model": 1}, "/model", "invalid_type"),
    ({"model": ""}, "/model", "invalid_type"),
    ({"input": None}, "/input", "missing_required_parameter"),
    ({"input": 1}, "/input", "invalid_type"),
    ({"input": ["x"]}, "/input/0", "invalid_type"),
    ({"input": [{"type": 1}]}, "/input/0/type", "invalid_type"),
    ({"input": [{"type": "message", "content": "x"}]}, "/input/0/role", "missing_required_parameter"),
    ({"input": [{"role": "tool", "content": "x"}]}, "/input/0/role", "invalid_value"),
    ({"input": [{"role": ["user"], "content": "x"}]}, "/input/0/role", "invalid_value"),
    ({"input": [{"role": "user", "phase": 1, "content": "x"}]}, "/input/0/phase", "invalid_type"),
    ({"input": [{"role": "user", "content": [{"type": []}]}]}, "/input/0/content/0/type", "invalid_type"),
    (
        {"tools": [{"type": "function", "name": "f", "description": 1}]},
        "/tools/0/description",
        "invalid_type",
    ),
    ({"reasoning": {"effort": 3}}, "/reasoning/effort", "invalid_type"),
    ({"input": [{"role": "user"}]}, "/input/0/content", "missing_required_parameter"),
    ({"input": [{"role": "user", "content": 1}]}, "/input/0/content", "invalid_type"),
    ({"input": [{"role": "user", "content": ["x"]}]}, "/input/0/content/0", "invalid_type"),
    ({"input": [{"role": "user", "content": [{}]}]}, "/input/0/content/0/type", "missing_required_parameter"),
    (
        {"input": [{"role": "user", "content": [{"type": "input_text"}]}]},
        "/input/0/content/0/text",
        "missing_required_parameter",
    ),
    (
        {"input": [{"role": "user", "content": [{"type": "input_text", "text": 1}]}]},
        "/input/0/content/0/text",
        "invalid_type",
    ),
    (
        {"input": [{"role": "user", "content": [{"type": "input_image"}]}]},
        "/input/0/content/0",
        "missing_required_parameter",
    ),
    (
        {"input": [{"role": "user", "content": [{"type": "input_file", "filename": "x"}]}]},
        "/input/0/content/0",
        "missing_required_parameter",
    ),
    ({"input": [{"type": "function_call", "name": "f"}]}, "/input/0/call_id", "missing_required_parameter"),
    ({"input": [{"type": "function_call", "call_id": "c", "name": 1}]}, "/input/0/name", "invalid_type"),
    (
        {"input": [{"type": "function_call_output", "call_id": "c"}]},
        "/input/0/output",
        "missing_required_parameter",
    ),
    (
        {"input": [{"type": "function_call_output", "call_id": "c", "output": 1}]},
        "/input/0/output",
        "invalid_type",
    ),
    ({"instructions": ["x"]}, "/instructions", "invalid_type"),
    ({"temperature": "warm"}, "/temperature", "invalid_type"),
    ({"max_output_tokens": True}, "/max_output_tokens", "invalid_type"),
    ({"stream": "yes"}, "/stream", "invalid_type"),
    ({"tools": {}}, "/tools", "invalid_type"),
    ({"tools": ["x"]}, "/tools/0", "invalid_type"),
    ({"tools": [{"name": "x"}]}, "/tools/0/type", "missing_required_parameter"),
    ({"tools": [{"type": "function"}]}, "/tools/0/name", "missing_required_parameter"),
    (
        {"tools": [{"type": "custom", "name": "c", "format": {"type": "grammar"}}]},
        "/tools/0/format/syntax",
        "missing_required_parameter",
    ),
    ({"input": [{"type": "additional_tools", "tools": "x"}]}, "/input/0/tools", "invalid_type"),
    ({"tool_choice": "any"}, "/tool_choice", "invalid_value"),
    ({"tool_choice": {}}, "/tool_choice/type", "missing_required_parameter"),
    ({"tool_choice": {"type": "function"}}, "/tool_choice/name", "missing_required_parameter"),
    ({"tool_choice": {"type": "allowed_tools"}}, "/tool_choice/tools", "missing_required_parameter"),
    ({"tool_choice": {"type": "allowed_tools", "tools": "x"}}, "/tool_choice/tools", "invalid_type"),
    ({"tool_choice": {"type": "allowed_tools", "tools": ["x"]}}, "/tool_choice/tools/0", "invalid_type"),
    ({"text": {"format": "json"}}, "/text/format", "invalid_type"),
    ({"text": {"format": {"type": "xml"}}}, "/text/format/type", "invalid_value"),
    ({"text": {"format": {"type": "json_schema", "name": "n"}}}, "/text/format/schema", "invalid_type"),
    ({"include": ["x", {}]}, "/include/1", "invalid_type"),
    ({"input": [{"type": {}, "id": "fc_1"}]}, "/input/0/type", "invalid_type"),
]


@pytest.mark.parametrize(("change", "path", "code"), ERRORS)
def test_bad_requests_name_the_place(change: dict[str, Any], path: str, code: str) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        read(**change)
    assert (caught.value.path, caught.value.code, caught.value.status) == (path, code, 400)
    assert caught.value.param is not None
    assert caught.value.param in caught.value.message


def test_a_refusal_in_a_tool_result_is_kept_with_its_words() -> None:
    refusal = {"type": "refusal", "refusal": "no"}
    item = {"type": "function_call_output", "call_id": "c", "output": [refusal]}
    [message] = read(input=[item]).messages
    [result] = message.parts
    assert isinstance(result, ToolResult)
    assert result.parts == (OpaquePart("openai_responses", "refusal", refusal, "/input/0/output/0", "no"),)
