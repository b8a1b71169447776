"""What a Responses upstream is sent: requests in, bodies and losses out."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dragoman._errors import RemoteProtocolError
from dragoman._events import Seal, ToolKind
from dragoman._json import decode, encode
from dragoman._loss import Ledger, LossCode
from dragoman._request import (
    CacheMark,
    CustomTool,
    FunctionTool,
    Grammar,
    HostedTool,
    Media,
    Message,
    OpaquePart,
    ReasoningConfig,
    Refusal,
    Request,
    ResponseFormat,
    Text,
    Thought,
    ToolCall,
    ToolChoice,
    ToolResult,
)
from dragoman._seal import Sealer
from dragoman._spec import Target
from dragoman.protocols.openai_responses import SPEC

ORIGIN = "openai_responses"
CHAT, MESSAGES = "openai_chat", "anthropic_messages"


def write(
    *messages: Message, protocol: str = CHAT, target: Target = Target(), **fields: Any
) -> tuple[dict[str, Any], list[tuple[LossCode, str]]]:
    request = Request(protocol, "m", messages, {}, **fields)
    ledger = Ledger()
    body = SPEC.write_request(request, target, ledger)
    assert decode(encode(body)) == body
    return body, [(loss.code, loss.path) for loss in ledger]


def items(*messages: Message, **fields: Any) -> tuple[list[Any], list[tuple[LossCode, str]]]:
    body, losses = write(*messages, **fields)
    return body["input"], losses


def said(role: Any, *parts: Any, **fields: Any) -> Message:
    return Message(role, parts, "/messages/0", **fields)


USER = Message("user", (Text("hi"),), "/messages/9")
USER_ITEM = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}


def test_a_foreign_client_is_not_stored() -> None:
    assert write(USER, stream=True) == (
        {"model": "m", "input": [USER_ITEM], "stream": True, "store": False},
        [],
    )


def test_a_foreign_client_that_asks_for_reasoning_gets_it_back() -> None:
    body, _ = write(USER, reasoning=ReasoningConfig(effort="high"))
    assert body["include"] == ["reasoning.encrypted_content"]


def text_item(role: str, text: str) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": [{"type": "input_text", "text": text}]}


def test_one_plain_system_text_is_instructions() -> None:
    body, _ = write(said("system", Text("be brief")), USER)
    assert (body["instructions"], body["input"]) == ("be brief", [USER_ITEM])
    body, _ = write(said("system", Text("be brief")))
    assert (body["instructions"], body["input"]) == ("be brief", [])


@pytest.mark.parametrize(
    "leading",
    [
        [said("system", Text("a")), said("system", Text("b"))],
        [said("system", Text("a")), said("developer", Text("b"))],
        [said("developer", Text("a"))],
    ],
)
def test_other_system_texts_stay_items_with_their_roles(leading: list[Message]) -> None:
    body, losses = write(*leading, USER)
    assert "instructions" not in body
    assert body["input"] == [*(text_item(m.role, m.parts[0].text) for m in leading), USER_ITEM]  # type: ignore[union-attr]
    assert losses == []


@pytest.mark.parametrize(
    ("message", "loss"),
    [
        (
            said("system", Text("a", CacheMark("/s/0/cache_control"))),
            [(LossCode.DROPPED, "/s/0/cache_control")],
        ),
        (said("system", Text("a", citations=[1], path="/s/0")), [(LossCode.DROPPED, "/s/0/citations")]),
        (said("system", Text("a"), name="n"), [(LossCode.DROPPED, "/messages/0/name")]),
        (said("system", Media("image", "url", "u")), []),
    ],
)
def test_a_system_message_with_more_than_text_is_an_item(message: Message, loss: list[Any]) -> None:
    body, losses = write(message, USER)
    assert "instructions" not in body
    assert losses == loss
    assert body["input"][0]["role"] == "system"


def test_a_system_message_of_two_blocks_keeps_them_apart() -> None:
    body, _ = write(said("system", Text("a"), Text("b")), USER)
    assert body["input"][0]["content"] == [
        {"type": "input_text", "text": "a"},
        {"type": "input_text", "text": "b"},
    ]


def test_cache_marks_go_where_the_upstream_takes_them() -> None:
    message = said("user", Text("a", CacheMark("/c", "short")), Text("b", CacheMark("/c")))
    found, losses = items(message, target=Target(cache_marks=True))
    assert found[0]["content"] == [
        {"type": "input_text", "text": "a", "prompt_cache_breakpoint": {"mode": "explicit", "ttl": "30m"}},
        {"type": "input_text", "text": "b", "prompt_cache_breakpoint": {"mode": "explicit"}},
    ]
    assert losses == []


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
    assert items(said("user", part)) == ([{"type": "message", "role": "user", "content": [expected]}], [])


LOST_PARTS: list[tuple[str, str, Any, list[Any]]] = [
    (MESSAGES, "user", Media("image", "file_id", "f", path="/p"), [(LossCode.DROPPED, "/p")]),
    (CHAT, "assistant", Media("image", "url", "u", path="/p"), [(LossCode.DROPPED, "/p")]),
    (MESSAGES, "user", OpaquePart(MESSAGES, "container_upload", {}, "/p"), [(LossCode.UNKNOWN_KIND, "/p")]),
    (
        MESSAGES,
        "assistant",
        OpaquePart(MESSAGES, "compaction", {}, "/messages/0"),
        [(LossCode.UNKNOWN_KIND, "/messages/0")],
    ),
    (MESSAGES, "assistant", Thought("t", path="/p"), [(LossCode.DROPPED, "/p")]),
    (MESSAGES, "assistant", Thought("t", Seal(MESSAGES, {}), path="/p"), [(LossCode.FOREIGN_SEAL, "/p")]),
    (
        CHAT,
        "assistant",
        Thought("t", Seal(ORIGIN, {"type": "reasoning", "id": "rs_1"}), path="/p"),
        [(LossCode.DROPPED, "/p")],
    ),
]


@pytest.mark.parametrize(("protocol", "role", "part", "losses"), LOST_PARTS)
def test_what_has_no_place_is_left_out_and_named(
    protocol: str, role: str, part: Any, losses: list[Any]
) -> None:
    assert items(said(role, part), USER, protocol=protocol) == ([USER_ITEM], losses)


def test_document_fields_of_messages_are_named() -> None:
    part = Media("file", "url", "u", context="c", citations={"enabled": True}, path="/p")
    _, losses = items(said("user", part), protocol=MESSAGES)
    assert losses == [(LossCode.DROPPED, "/p/context"), (LossCode.DROPPED, "/p/citations")]


def test_audio_is_refused() -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        write(said("user", Media("audio", "base64", "QUJD", path="/p")))
    assert (caught.value.status_hint, caught.value.path, caught.value.code) == (
        400,
        "/p",
        "unsupported_value",
    )


SEALED = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA", "status": None}
REASONING_ITEM = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"}


def test_an_assistant_turn_becomes_items_in_the_order_of_its_parts() -> None:
    turn = said(
        "assistant",
        Thought("hm", Seal(ORIGIN, SEALED)),
        Text("first"),
        ToolCall("c1", "f", '{"a":1}', item_id="toolu"),
        Text("then"),
        ToolCall("c2", "g", "", ToolKind.FUNCTION, "ns"),
        ToolCall("c3", "h", "free", ToolKind.CUSTOM),
    )
    results = said(
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
        said("assistant", Text("yes")),
        said("assistant", Refusal("no")),
        said("assistant", Text("x"), phase="commentary"),
    )
    assert [item["content"][0] for item in found] == [
        {"type": "output_text", "text": "yes", "annotations": []},
        {"type": "refusal", "refusal": "no"},
        {"type": "output_text", "text": "x", "annotations": []},
    ]


def test_a_phase_is_given_back() -> None:
    found, _ = items(said("assistant", Text("x"), Text("y"), phase="commentary"))
    assert found[0]["phase"] == "commentary"


@pytest.mark.parametrize(
    ("after", "kept"),
    [
        ([], False),
        ([USER], False),
        ([Message("assistant", (Text("so"),), "/a")], True),
        ([Message("assistant", (Text("so"), Text("yes")), "/a")], True),
        ([Message("assistant", (ToolCall("c", "f", "{}"),), "/a")], True),
        ([Message("assistant", (ToolCall("c", "f", "x", ToolKind.CUSTOM),), "/a")], True),
    ],
)
def test_reasoning_that_nothing_follows_is_left_out(after: list[Message], kept: bool) -> None:
    thought = said("assistant", Thought("hm", Seal(ORIGIN, SEALED), path="/p"))
    found, losses = items(USER, thought, *after)
    assert (REASONING_ITEM in found) is kept
    assert losses == ([] if kept else [(LossCode.REPAIRED, "/p")])


def test_two_reasoning_items_in_a_row_stay_when_something_follows() -> None:
    thought = said(
        "assistant",
        Thought("", Seal(ORIGIN, SEALED)),
        Thought("", Seal(ORIGIN, dict(SEALED, id="rs_2"))),
        Text("a"),
    )
    found, losses = items(thought)
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
    (ToolResult("c", (Media("image", "file_id", "f", path="/p/0"),)), "", [(LossCode.DROPPED, "/p/0")]),
]


@pytest.mark.parametrize(("result", "output", "losses"), OUTPUTS)
def test_tool_outputs(result: ToolResult, output: Any, losses: list[Any]) -> None:
    found, lost = items(said("user", result), protocol=MESSAGES)
    assert found == [{"type": "function_call_output", "call_id": "c", "output": output}]
    assert lost == losses


def test_names_and_marks_without_a_place_are_named() -> None:
    _, losses = items(
        said("user", Text("a"), name="bob"),
        said("assistant", ToolCall("c", "f", "{}", cache=CacheMark("/call/cache_control"))),
        tools=(FunctionTool("f", cache=CacheMark("/tools/0/cache_control")),),
    )
    assert losses == [
        (LossCode.DROPPED, "/messages/0/name"),
        (LossCode.DROPPED, "/call/cache_control"),
        (LossCode.DROPPED, "/tools/0/cache_control"),
    ]


def test_tools_are_flat_and_say_parameters_and_strict() -> None:
    body, losses = write(
        USER,
        tools=(
            FunctionTool("f", "d", {"type": "object"}, True),
            FunctionTool("g"),
            CustomTool("c", "free"),
            CustomTool("x", grammar=Grammar("regex", "a+")),
            HostedTool(MESSAGES, "web_search_20250305", {}, "/tools/4"),
        ),
    )
    assert body["tools"] == [
        {
            "type": "function",
            "name": "f",
            "description": "d",
            "parameters": {"type": "object"},
            "strict": True,
        },
        {
            "type": "function",
            "name": "g",
            "parameters": {"type": "object", "properties": {}},
            "strict": False,
        },
        {"type": "custom", "name": "c", "description": "free"},
        {"type": "custom", "name": "x", "format": {"type": "grammar", "syntax": "regex", "definition": "a+"}},
    ]
    assert losses == [(LossCode.UNKNOWN_KIND, "/tools/4")]


def test_no_tools_field_when_none_is_left() -> None:
    body, _ = write(USER, tools=(HostedTool(MESSAGES, "web_search_20250305", {}, "/tools/0"),))
    assert "tools" not in body


CHOICES: list[tuple[ToolChoice, Any]] = [
    (ToolChoice("auto"), "auto"),
    (ToolChoice("none"), "none"),
    (ToolChoice("required"), "required"),
    (ToolChoice("named", "f"), {"type": "function", "name": "f"}),
    (ToolChoice("named", "f", namespace="ns"), {"type": "function", "name": "f", "namespace": "ns"}),
    (ToolChoice("named", "c", ToolKind.CUSTOM), {"type": "custom", "name": "c"}),
    (
        ToolChoice("allowed", allowed=("f", "c"), required=True),
        {
            "type": "allowed_tools",
            "mode": "required",
            "tools": [{"type": "function", "name": "f"}, {"type": "custom", "name": "c"}],
        },
    ),
    (
        ToolChoice("allowed", allowed=("f",)),
        {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}]},
    ),
]


@pytest.mark.parametrize(("choice", "expected"), CHOICES)
def test_tool_choice(choice: ToolChoice, expected: Any) -> None:
    body, _ = write(
        USER, tools=(FunctionTool("f"), CustomTool("c")), tool_choice=choice, parallel_tool_calls=False
    )
    assert body["tool_choice"] == expected
    assert body["parallel_tool_calls"] is False


C, M = CHAT, MESSAGES
REASONING: list[tuple[str, ReasoningConfig, Any]] = [
    (C, ReasoningConfig(effort="low"), {"effort": "low", "summary": "auto"}),
    (C, ReasoningConfig(effort="none"), {"effort": "none"}),
    (C, ReasoningConfig(), None),
    (M, ReasoningConfig("disabled", "high"), {"effort": "none"}),
    (M, ReasoningConfig("adaptive"), {"effort": "high", "summary": "auto"}),
    (M, ReasoningConfig("adaptive", "medium", show="omitted"), {"effort": "medium"}),
    (M, ReasoningConfig("adaptive", "max", show="summarized"), {"effort": "max", "summary": "auto"}),
    (M, ReasoningConfig(effort="high"), {"effort": "high"}),
    (M, ReasoningConfig("enabled", "low", 30000), {"effort": "low", "summary": "auto"}),
    (M, ReasoningConfig("enabled", budget=1024), {"effort": "minimal", "summary": "auto"}),
    (M, ReasoningConfig("enabled", budget=4096), {"effort": "low", "summary": "auto"}),
    (M, ReasoningConfig("enabled", budget=12288), {"effort": "medium", "summary": "auto"}),
    (M, ReasoningConfig("enabled", budget=24576), {"effort": "high", "summary": "auto"}),
    (M, ReasoningConfig("enabled", budget=31999, show="omitted"), {"effort": "xhigh"}),
    (M, ReasoningConfig("enabled", budget=60000), {"effort": "max", "summary": "auto"}),
]


@pytest.mark.parametrize(("protocol", "config", "expected"), REASONING)
def test_reasoning(protocol: str, config: ReasoningConfig, expected: Any) -> None:
    body, _ = write(USER, protocol=protocol, reasoning=config)
    assert body.get("reasoning") == expected


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        (ResponseFormat(), {"type": "json_object"}),
        (
            ResponseFormat({"type": "object"}),
            {"type": "json_schema", "name": "response", "schema": {"type": "object"}},
        ),
        (
            ResponseFormat({"type": "object"}, "n", "d", True),
            {
                "type": "json_schema",
                "name": "n",
                "schema": {"type": "object"},
                "description": "d",
                "strict": True,
            },
        ),
    ],
)
def test_response_format(form: ResponseFormat, expected: Any) -> None:
    body, _ = write(USER, response_format=form)
    assert body["text"] == {"format": expected}


PARAMS: list[tuple[dict[str, Any], dict[str, Any], list[Any]]] = [
    (
        {"max_output_tokens": 9, "temperature": 0, "top_p": 1},
        {"max_output_tokens": 9, "temperature": 0, "top_p": 1},
        [],
    ),
    (
        {"metadata": {"a": "b"}, "user": "u", "safety_identifier": "s"},
        {"metadata": {"a": "b"}, "user": "u", "safety_identifier": "s"},
        [],
    ),
    ({"prompt_cache_key": "k"}, {"prompt_cache_key": "k"}, []),
    ({"service_tier": "flex"}, {"service_tier": "flex"}, []),
    ({"service_tier": "standard_only"}, {"service_tier": "default"}, []),
    ({"service_tier": "odd"}, {}, [(LossCode.DROPPED, "/service_tier")]),
    ({"verbosity": "low"}, {"text": {"verbosity": "low"}}, []),
    (
        {"logprobs": True, "top_logprobs": 3},
        {"include": ["message.output_text.logprobs"], "top_logprobs": 3},
        [],
    ),
    ({"logprobs": False}, {}, []),
    ({"n": 1}, {}, []),
    ({"modalities": ["text"]}, {}, []),
    ({"modalities": ["text", "audio"]}, {}, [(LossCode.DROPPED, "/modalities")]),
    ({"store": True}, {}, [(LossCode.DROPPED, "/store")]),
    ({"store": False}, {}, []),
    ({"seed": 1, "stop": ["x"]}, {}, [(LossCode.DROPPED, "/seed"), (LossCode.DROPPED, "/stop")]),
    (
        {"presence_penalty": 1, "frequency_penalty": 1, "logit_bias": {}, "top_k": 3},
        {},
        [
            (LossCode.DROPPED, "/presence_penalty"),
            (LossCode.DROPPED, "/frequency_penalty"),
            (LossCode.DROPPED, "/logit_bias"),
            (LossCode.DROPPED, "/top_k"),
        ],
    ),
]


@pytest.mark.parametrize(("params", "expected", "losses"), PARAMS)
def test_settings(params: Any, expected: dict[str, Any], losses: list[Any]) -> None:
    plain, _ = write(USER)
    assert write(USER, params=params) == ({**plain, **expected}, losses)


def test_several_answers_are_refused() -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        write(USER, params={"n": 2}, param_paths={"n": "/n"})
    assert (caught.value.status_hint, caught.value.path, caught.value.code) == (
        400,
        "/n",
        "unsupported_value",
    )


# Responses in, Responses out: nothing is lost.

RICH: dict[str, Any] = {
    "model": "m",
    "instructions": "be brief",
    "stream": True,
    "store": False,
    "background": False,
    "truncation": "disabled",
    "metadata": {},
    "include": ["reasoning.encrypted_content", "file_search_call.results", "message.output_text.logprobs"],
    "max_output_tokens": 9,
    "prompt_cache_key": "k",
    "client_metadata": {"session_id": "s"},
    "parallel_tool_calls": True,
    "reasoning": {"effort": "low", "summary": "detailed", "context": "all_turns"},
    "text": {
        "format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}, "odd": 1},
        "verbosity": "low",
        "odd": 2,
    },
    "tool_choice": {"type": "mcp", "server_label": "s"},
    "access_programs": {"cyber": "standard"},
    "tools": [
        {"type": "function", "name": "f", "parameters": None, "strict": True, "defer_loading": True},
        {
            "type": "namespace",
            "name": "ns",
            "description": "d",
            "odd": 1,
            "tools": [{"type": "function", "name": "g", "parameters": {}}, {"type": "custom", "name": "h"}],
        },
        {"type": "namespace", "name": "ns2", "description": "", "tools": [{"type": "custom", "name": "i"}]},
        {"type": "web_search", "external_web_access": True},
        {
            "type": "custom",
            "name": "c",
            "format": {"type": "grammar", "syntax": "lark", "definition": "start: X"},
        },
    ],
    "input": [
        {"role": "developer", "content": "dev", "type": "message"},
        {"type": "additional_tools", "role": "developer", "tools": [{"type": "custom", "name": "late"}]},
        {
            "type": "message",
            "role": "user",
            "id": "msg_0",
            "content": [
                {
                    "type": "input_text",
                    "text": "a",
                    "prompt_cache_breakpoint": {"mode": "explicit", "ttl": "30m"},
                    "odd": 1,
                },
                {"type": "input_image", "detail": "low", "image_url": "data:image/png;base64,QUJD"},
                {"type": "input_file", "file_data": "QUJD"},
                {"type": "input_file", "filename": "a.pdf", "file_url": "https://x/a.pdf"},
                {"type": "input_image", "detail": "auto", "file_id": "file_1"},
                {"type": "input_video", "url": "u"},
            ],
        },
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": None},
        {
            "type": "message",
            "role": "assistant",
            "id": "msg_1",
            "status": "completed",
            "phase": "commentary",
            "odd": 1,
            "content": [
                {
                    "type": "output_text",
                    "text": "b",
                    "annotations": [{"type": "file_path", "file_id": "f", "index": 0}],
                },
                {"type": "refusal", "refusal": "no"},
            ],
        },
        {
            "type": "function_call",
            "id": "fc_1",
            "call_id": "c1",
            "name": "g",
            "namespace": "ns",
            "arguments": '{"a": 1}',
            "status": "completed",
            "caller": {"type": "program", "caller_id": "p"},
        },
        {"type": "custom_tool_call", "id": "ctc_1", "call_id": "c2", "name": "c", "input": "x"},
        {
            "type": "function_call_output",
            "id": "o1",
            "call_id": "c1",
            "status": "completed",
            "name": "g",
            "output": [{"type": "input_text", "text": "one", "odd": 1}],
        },
        {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "one"}]},
        {"type": "custom_tool_call_output", "call_id": "c2", "output": [{"type": "input_video", "url": "u"}]},
        {"type": "item_reference", "id": "msg_9"},
        {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search"}},
        {
            "type": "additional_tools",
            "role": "developer",
            "tools": [{"type": "function", "name": "last", "parameters": {}}],
        },
    ],
}


def round_trip(body: dict[str, Any]) -> dict[str, Any]:
    ledger = Ledger()
    out = SPEC.write_request(SPEC.read_request(body, Sealer()), Target(), ledger)
    assert list(ledger) == []
    return out


def with_types(body: dict[str, Any]) -> dict[str, Any]:
    """Bare messages get their type, the one thing that is added."""
    return {**body, "input": [{"type": "message", **item} for item in body["input"]]}


def test_own_requests_come_back_whole() -> None:
    assert round_trip(RICH) == RICH


@pytest.mark.parametrize(
    "body",
    [
        {"model": "m", "input": "hi"},
        {"model": "m", "previous_response_id": "resp_1"},
        {"model": "m", "input": [], "conversation": {"id": "conv_1"}, "background": True, "store": True},
        {"model": "m", "input": "hi", "text": {"format": {"type": "json_object"}}},
        {"model": "m", "input": "hi", "instructions": ""},
        {"model": "m", "input": "hi", "tools": [{"type": "custom", "name": "c", "format": {"type": "text"}}]},
        {"model": "m", "input": "hi", "tools": [{"type": "function", "name": "f", "strict": None}]},
        {
            "model": "m",
            "input": "hi",
            "instructions": "x",
            "reasoning": {"summary": "auto"},
            "tool_choice": "auto",
        },
    ],
)
def test_small_own_requests_come_back_whole(body: dict[str, Any]) -> None:
    assert round_trip(body) == body


def test_bare_messages_get_their_type() -> None:
    body = {"model": "m", "input": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}
    assert round_trip(body) == with_types(body)


def test_reasoning_sealed_for_another_protocol_is_named() -> None:
    seal = Seal(MESSAGES, {"type": "thinking", "thinking": "t", "signature": "s"})
    wrapped = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": Sealer().wrap(seal)}
    ledger = Ledger()
    request = SPEC.read_request({"model": "m", "input": [wrapped]}, Sealer())
    assert SPEC.write_request(request, Target(), ledger)["input"] == []
    assert [(loss.code, loss.path) for loss in ledger] == [(LossCode.FOREIGN_SEAL, "/input/0")]


def test_a_tool_that_changed_its_kind_takes_nothing_from_its_old_form() -> None:
    custom = {"type": "custom", "name": "c", "format": {"type": "text"}}
    request = SPEC.read_request({"model": "m", "input": "hi", "tools": [custom]}, Sealer())
    changed = msgspec.structs.replace(request, tools=(FunctionTool("c", path="/tools/0"),))
    assert SPEC.write_request(changed, Target(), Ledger())["tools"] == [{"type": "function", "name": "c"}]
