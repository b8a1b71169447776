"""Messages of other protocols, written as input items for a Responses upstream."""

from __future__ import annotations

from typing import Any

import pytest
from responses_requests import message, write

from dragoman._ir.events import Signature, ToolKind
from dragoman._ir.losses import LossCode
from dragoman._ir.request import (
    Citation,
    Media,
    Message,
    OpaquePart,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
)
from dragoman._ir.tools import CacheMark, FunctionTool
from dragoman._wire.exceptions import RequestRefused

ORIGIN = "openai_responses"
CHAT, MESSAGES = "openai_chat", "anthropic_messages"


def items(*messages: Message, **fields: Any) -> tuple[list[Any], list[tuple[LossCode, str]]]:
    body, losses = write(*messages, **fields)
    return body["input"], losses


def text_item(role: str, text: str) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": [{"type": "input_text", "text": text}]}


USER = Message("user", (Text("hi"),), "/messages/9")
USER_ITEM = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}


CONTENT: list[tuple[Any, dict[str, Any]]] = [
    (
        Media("image", "base64", "QUJD", "image/png"),
        {"type": "input_image", "detail": "auto", "image_url": "data:image/png;base64,QUJD"},
    ),
    (
        Media("image", "base64", "QUJD"),
        {"type": "input_image", "detail": "auto", "image_url": "data:image/png;base64,QUJD"},
    ),
    (
        Media("image", "url", "https://x", detail="low"),
        {"type": "input_image", "detail": "low", "image_url": "https://x"},
    ),
    (Media("image", "file_id", "f"), {"type": "input_image", "detail": "auto", "file_id": "f"}),
    (
        Media("file", "base64", "QUJD", "application/pdf"),
        {"type": "input_file", "filename": "document.pdf", "file_data": "data:application/pdf;base64,QUJD"},
    ),
    (
        Media("file", "base64", "QUJD", filename="a.pdf"),
        {"type": "input_file", "filename": "a.pdf", "file_data": "QUJD"},
    ),
    (
        Media("file", "text", "ABC"),
        {"type": "input_file", "filename": "document.txt", "file_data": "data:text/plain;base64,QUJD"},
    ),
    (
        Media("file", "url", "https://x", detail="high"),
        {"type": "input_file", "detail": "high", "file_url": "https://x"},
    ),
    (Media("file", "file_id", "f"), {"type": "input_file", "file_id": "f"}),
    (Refusal("no"), {"type": "input_text", "text": "no"}),
]


@pytest.mark.parametrize(("part", "expected"), CONTENT)
def test_user_content(part: Any, expected: dict[str, Any]) -> None:
    assert items(message("user", part)) == ([{"type": "message", "role": "user", "content": [expected]}], [])


LOST_PARTS: list[tuple[str, str, Any, list[Any]]] = [
    (CHAT, "assistant", Media("image", "url", "u", path="/p"), [(LossCode.DROPPED, "/p")]),
    (MESSAGES, "user", OpaquePart(MESSAGES, "container_upload", {}, "/p"), [(LossCode.UNKNOWN_KIND, "/p")]),
    (
        MESSAGES,
        "assistant",
        OpaquePart(MESSAGES, "compaction", {}, "/messages/0"),
        [(LossCode.UNKNOWN_KIND, "/messages/0")],
    ),
    (MESSAGES, "assistant", Reasoning("t", path="/p"), [(LossCode.DROPPED, "/p")]),
    (
        MESSAGES,
        "assistant",
        Reasoning("t", Signature(MESSAGES, {}), path="/p"),
        [(LossCode.FOREIGN_SIGNATURE, "/p")],
    ),
    (
        CHAT,
        "assistant",
        Reasoning("t", Signature(ORIGIN, {"type": "reasoning", "id": "rs_1"}), path="/p"),
        [(LossCode.DROPPED, "/p")],
    ),
]


@pytest.mark.parametrize(("protocol", "role", "part", "losses"), LOST_PARTS)
def test_content_without_a_place_is_a_loss(protocol: str, role: str, part: Any, losses: list[Any]) -> None:
    assert items(message(role, part), USER, protocol=protocol) == ([USER_ITEM], losses)


def test_the_context_of_a_document_is_text_before_it() -> None:
    part = Media("file", "url", "u", context="c", citations={"enabled": True}, path="/p")
    file = {"type": "input_file", "file_url": "u"}
    reported = [{"type": "input_text", "text": "c"}, file]
    losses = [(LossCode.ALTERED, "/p/context"), (LossCode.DROPPED, "/p/citations")]
    assert items(message("user", part), protocol=MESSAGES) == (
        [{"type": "message", "role": "user", "content": reported}],
        losses,
    )
    result = ToolResult("c", (part,))
    assert items(message("user", result), protocol=MESSAGES)[0][0]["output"] == reported


WEB = {"type": "web_search_result_location", "url": "https://x", "title": "X"}
CITED: list[tuple[Text, list[Any], list[Any]]] = [
    (
        Text("Hello", citations=[WEB], sources=(Citation("https://x", "X"),), path="/p"),
        [{"type": "url_citation", "url": "https://x", "title": "X", "start_index": 0, "end_index": 5}],
        [],
    ),
    (
        Text("Hello", sources=(Citation("https://x", None, 1, 3),), path="/p"),
        [
            {
                "type": "url_citation",
                "url": "https://x",
                "title": "https://x",
                "start_index": 1,
                "end_index": 3,
            }
        ],
        [],
    ),
    (
        Text(
            "Hello", citations=[{**WEB, "cited_text": "H"}], sources=(Citation("https://x", "X"),), path="/p"
        ),
        [{"type": "url_citation", "url": "https://x", "title": "X", "start_index": 0, "end_index": 5}],
        [(LossCode.ALTERED, "/p/citations")],
    ),
    (
        Text("Hello", citations=[{"type": "char_location"}], path="/p"),
        [],
        [(LossCode.DROPPED, "/p/citations")],
    ),
]


@pytest.mark.parametrize(("text", "annotations", "losses"), CITED)
@pytest.mark.parametrize("single", [True, False])
def test_citations_of_the_assistants_are_annotations(
    text: Text, annotations: list[Any], losses: list[Any], single: bool
) -> None:
    parts = (text,) if single else (text, Text("b"))
    found, lost = items(message("assistant", *parts), protocol=MESSAGES)
    assert found[0]["content"][0] == {"type": "output_text", "text": "Hello", "annotations": annotations}
    assert lost == losses


@pytest.mark.parametrize("part", [ToolResult("c", (CITED[0][0],)), CITED[0][0]])
def test_texts_of_the_client_have_no_citations(part: Any) -> None:
    assert items(message("user", part), protocol=MESSAGES)[1] == [(LossCode.DROPPED, "/p/citations")]


def test_audio_is_refused() -> None:
    with pytest.raises(RequestRefused) as caught:
        write(message("user", Media("audio", "base64", "QUJD", path="/p")))
    assert (caught.value.status, caught.value.path, caught.value.code) == (
        400,
        "/p",
        "unsupported_value",
    )


ENCRYPTED = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA", "status": None}
# An item without a form in the client's protocol.
SEARCHED = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": None, "created_by": "x"}
SEARCH_ITEM = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": None}
REASONING_ITEM = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"}


def test_an_assistant_turn_becomes_items_in_the_order_of_its_parts() -> None:
    turn = message(
        "assistant",
        Reasoning("hm", Signature(ORIGIN, ENCRYPTED)),
        Text("first"),
        ToolCall(
            "c1",
            "f",
            '{"a":1}',
        ),
        Text("then"),
        ToolCall("c2", "g", "", ToolKind.FUNCTION, "ns"),
        ToolCall("c3", "h", "free", ToolKind.CUSTOM),
    )
    results = message(
        "user",
        ToolResult("c1", (Text("one"),)),
        ToolResult("c3", (Text("three"),), ToolKind.CUSTOM),
        Text("go on"),
        ToolResult("c2", ()),
    )
    assert items(turn, results) == (
        [
            REASONING_ITEM,
            {
                "type": "message",
                "role": "assistant",
                "content": [{"type": "output_text", "text": "first", "annotations": []}],
            },
            {"type": "function_call", "call_id": "c1", "name": "f", "arguments": '{"a":1}'},
            {
                "type": "message",
                "role": "assistant",
                "content": [{"type": "output_text", "text": "then", "annotations": []}],
            },
            {"type": "function_call", "call_id": "c2", "name": "g", "arguments": "{}", "namespace": "ns"},
            {"type": "custom_tool_call", "call_id": "c3", "name": "h", "input": "free"},
            {"type": "function_call_output", "call_id": "c1", "output": "one"},
            {"type": "custom_tool_call_output", "call_id": "c3", "output": "three"},
            text_item("user", "go on"),
            {"type": "function_call_output", "call_id": "c2", "output": ""},
        ],
        [],
    )


def test_a_plain_assistant_text_and_a_refusal() -> None:
    found, _ = items(
        message("assistant", Text("yes")),
        message("assistant", Refusal("no")),
        message("assistant", Text("x"), phase="commentary"),
    )
    assert [item["content"][0] for item in found] == [
        {"type": "output_text", "text": "yes", "annotations": []},
        {"type": "refusal", "refusal": "no"},
        {"type": "output_text", "text": "x", "annotations": []},
    ]


def test_a_phase_is_written() -> None:
    for texts in ([Text("x")], [Text("x"), Text("y")]):
        found, _ = items(message("assistant", *texts, phase="commentary"))
        assert [item["phase"] for item in found] == ["commentary"]


@pytest.mark.parametrize(
    ("after", "is_sent"),
    [
        ([], False),
        ([USER], False),
        ([Message("assistant", (Text("so"),), "/a")], True),
        ([Message("assistant", (Text("so"), Text("yes")), "/a")], True),
        ([Message("assistant", (ToolCall("c", "f", "{}"),), "/a")], True),
        ([Message("assistant", (ToolCall("c", "f", "x", ToolKind.CUSTOM),), "/a")], True),
    ],
)
def test_b11_reasoning_that_nothing_follows_is_left_out(after: list[Message], is_sent: bool) -> None:
    reasoning = message("assistant", Reasoning("hm", Signature(ORIGIN, ENCRYPTED), path="/p"))
    found, losses = items(USER, reasoning, *after)
    assert (REASONING_ITEM in found) is is_sent
    assert losses == ([] if is_sent else [(LossCode.REPAIRED, "/p")])


def test_every_item_of_this_vendor_comes_back_in_its_place() -> None:
    turn = message(
        "assistant",
        Reasoning("hm", Signature(ORIGIN, ENCRYPTED)),
        Reasoning("", Signature(ORIGIN, SEARCHED)),
        Text("so"),
    )
    found, losses = items(turn)
    assert found[:2] == [REASONING_ITEM, SEARCH_ITEM]
    assert losses == []
    # It follows its reasoning even if nothing else does.
    assert items(message("assistant", *turn.parts[:2])) == ([REASONING_ITEM, SEARCH_ITEM], [])


@pytest.mark.parametrize(
    "native", [None, "x", [], {}, {"type": 1}, {"type": "message", "content": "x"}, {"type": "function_call"}]
)
def test_items_that_were_not_signed_here_are_left_out(native: Any) -> None:
    reasoning = Reasoning("", Signature(ORIGIN, native), path="/p")
    assert items(message("assistant", reasoning), USER) == ([USER_ITEM], [(LossCode.FOREIGN_SIGNATURE, "/p")])


def test_two_reasoning_items_in_a_row_stay_when_something_follows() -> None:
    reasoning = message(
        "assistant",
        Reasoning("", Signature(ORIGIN, ENCRYPTED)),
        Reasoning("", Signature(ORIGIN, dict(ENCRYPTED, id="rs_2"))),
        Text("a"),
    )
    found, losses = items(reasoning)
    assert [item["type"] for item in found] == ["reasoning", "reasoning", "message"]
    assert losses == []


OUTPUTS: list[tuple[ToolResult, Any, list[Any]]] = [
    (
        ToolResult("c", (Text("a"), Text("b"))),
        [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}],
        [],
    ),
    (
        ToolResult("c", (Text("see"), Media("image", "url", "u"))),
        [{"type": "input_text", "text": "see"}, {"type": "input_image", "detail": "auto", "image_url": "u"}],
        [],
    ),
    (
        ToolResult("c", (Text("bad"),), is_error=True, path="/p"),
        "Error: bad",
        [(LossCode.ALTERED, "/p/is_error")],
    ),
    (ToolResult("c", (), is_error=True, path="/p"), "Error: ", [(LossCode.ALTERED, "/p/is_error")]),
    (
        ToolResult("c", (Media("image", "url", "u"),), is_error=True, path="/p"),
        [
            {"type": "input_text", "text": "Error: "},
            {"type": "input_image", "detail": "auto", "image_url": "u"},
        ],
        [(LossCode.ALTERED, "/p/is_error")],
    ),
    (
        ToolResult(
            "c",
            (OpaquePart(MESSAGES, "tool_reference", {}, "/p/0"), Text("a")),
            cache=CacheMark("/p/cache_control"),
        ),
        "a",
        [(LossCode.DROPPED, "/p/cache_control"), (LossCode.UNKNOWN_KIND, "/p/0")],
    ),
]


@pytest.mark.parametrize(("result", "output", "losses"), OUTPUTS)
def test_tool_outputs(result: ToolResult, output: Any, losses: list[Any]) -> None:
    found, lost = items(message("user", result), protocol=MESSAGES)
    assert found == [{"type": "function_call_output", "call_id": "c", "output": output}]
    assert lost == losses


def test_marks_without_a_place_are_losses() -> None:
    _, losses = items(
        message("user", Text("a")),
        message("assistant", ToolCall("c", "f", "{}", cache=CacheMark("/call/cache_control"))),
        tools=(FunctionTool("f", cache=CacheMark("/tools/0/cache_control")),),
    )
    assert losses == [
        (LossCode.DROPPED, "/tools/0/cache_control"),
        (LossCode.DROPPED, "/call/cache_control"),
    ]


@pytest.mark.parametrize("kind", [ToolKind.FUNCTION, ToolKind.CUSTOM])
@pytest.mark.parametrize("text", ["a", ""])
def test_common_results_are_written_as_by_the_general_code(kind: ToolKind, text: str) -> None:
    # Only the general code drops citations.
    short, long = ToolResult("c", (Text(text),), kind), ToolResult("c", (Text(text, citations=[{}]),), kind)
    assert items(Message("user", (short,), "/m"))[0] == items(Message("user", (long,), "/m"))[0]


def test_a_single_call_is_written_as_among_other_parts() -> None:
    call, message = ToolCall("c", "f", "{}"), Text("a")
    single = items(Message("assistant", (message,), "/m"), Message("assistant", (call,), "/n"))
    assert single == items(Message("assistant", (message, call), "/m"))
