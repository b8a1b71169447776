"""Messages, calls, results and reasoning in the input of a Responses request."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dragoman._ir.events import Signature, ToolKind
from dragoman._ir.request import (
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
from dragoman._ir.tools import CacheMark
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


def test_messages_with_and_without_type(subtests: pytest.Subtests) -> None:
    for role in ["user", "assistant", "system", "developer"]:
        for typed in [{}, {"type": "message"}]:
            with subtests.test(role=role, typed=typed):
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


def test_content_parts(subtests: pytest.Subtests) -> None:
    for part, expected in PARTS:
        with subtests.test(part=part):
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


def test_reasoning_has_the_whole_item_as_its_signature() -> None:
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


def test_a_wrapped_signature_is_unwrapped() -> None:
    signer = Signer(b"secret")
    signature = Signature("anthropic_messages", {"type": "thinking", "thinking": "t", "signature": "s"}, "c")
    value = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": signer.wrap(signature)}
    assert item(value, signer).parts == (Reasoning("", signature, "rs_1", path="/input/0"),)


def test_forged_reasoning_is_only_text() -> None:
    value = {
        "type": "reasoning",
        "summary": [{"text": "t"}],
        "encrypted_content": WRAPPED_PREFIX + "AAAA.mac",
    }
    assert item(value, Signer(b"secret")).parts == (Reasoning("t", None, path="/input/0", forged=True),)


@pytest.mark.parametrize("kind", ["something_of_tomorrow", "compaction"])
def test_items_without_a_neutral_form_stay_whole(kind: str) -> None:
    value = {"type": kind, "id": "x"}
    assert item(value) == Message("assistant", (OpaquePart(ORIGIN, kind, value, "/input/0"),), "/input/0")


def test_a_refusal_in_a_tool_result_is_kept_with_its_text() -> None:
    refusal = {"type": "refusal", "refusal": "no"}
    item = {"type": "function_call_output", "call_id": "c", "output": [refusal]}
    [message] = read(input=[item]).messages
    [result] = message.parts
    assert isinstance(result, ToolResult)
    assert result.parts == (OpaquePart("openai_responses", "refusal", refusal, "/input/0/output/0", "no"),)


FUNCTION = {"type": "function", "name": "f"}


def test_unknown_fields_of_an_item_of_tools() -> None:
    item = {"type": "additional_tools", "role": "developer", "tools": [FUNCTION]}
    assert read(input=[item]).messages == ()
    assert read(input=[{**item, "x": 1}]).messages == (Message("user", (), "/input/0", extra={"x": 1}),)


def test_a_cache_mark_with_further_members() -> None:
    mark = {"mode": "explicit", "ttl": "12h", "x": 1}
    part = {"type": "input_text", "text": "a", "prompt_cache_breakpoint": mark}
    [found] = read(input=[{"role": "user", "content": [part]}]).messages[0].parts
    at = "/input/0/content/0"
    assert found == Text(
        "a", CacheMark(f"{at}/prompt_cache_breakpoint", "long"), None, {"prompt_cache_breakpoint": mark}, at
    )


# The commonest shapes are read by short code; with an unknown field in them, by the general code.


ODD = {"x_odd": 1}
TEXT = {"type": "input_text", "text": "a"}
OUTPUT_TEXT = {"type": "output_text", "text": "a", "annotations": []}
CALL = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
CUSTOM = {"type": "custom_tool_call", "call_id": "c", "name": "f", "input": "x"}
OUTPUT = {"type": "function_call_output", "call_id": "c", "output": "a"}


def bare(part: Any) -> Any:
    """Return a message or part without its unknown fields."""
    inner = {"parts": tuple(map(bare, part.parts))} if hasattr(part, "parts") else {}
    return msgspec.structs.replace(part, extra=None, **inner)


# Common shapes, and each with a member more, so that the general code reads it.
COMMON_SHAPES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    *[
        (each, {**each, **ODD})
        for each in (
            {"role": "user", "content": "a"},
            {"type": "message", "role": "user", "content": [TEXT]},
            CALL,
            CUSTOM,
            OUTPUT,
            {**OUTPUT, "type": "custom_tool_call_output"},
            {**OUTPUT, "output": [TEXT]},
            {**OUTPUT, "output": [TEXT, TEXT]},
        )
    ],
    *[
        ({"role": "assistant", "content": [part]}, {"role": "assistant", "content": [{**part, **ODD}]})
        for part in (TEXT, OUTPUT_TEXT, {**OUTPUT_TEXT, "annotations": [{"type": "url_citation"}]})
    ],
]


def test_common_shapes_are_read_as_by_the_general_code(subtests: pytest.Subtests) -> None:
    for common, odd in COMMON_SHAPES:
        with subtests.test(common=common):
            short, long = read(input=[common]).messages, read(input=[odd]).messages
            assert short != long
            assert short == tuple(map(bare, long))


@pytest.mark.parametrize("item", [{**CALL, "name": ""}, {**CALL, "name": 1}, {**CUSTOM, "name": None}])
def test_errors_in_common_shapes_have_a_path(item: Any) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        read(input=[item])
    assert caught.value.path == "/input/0/name"


def test_paths_go_on_beyond_those_made_beforehand() -> None:
    messages = read(input=[{"role": "user", "content": "a"}] * 600).messages
    assert [message.path for message in messages] == [f"/input/{n}" for n in range(600)]
