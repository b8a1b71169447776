"""Bodies that clients send, and what is read from them."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman._ir.events import Signature, ToolKind
from dragoman._ir.request import (
    CacheMark,
    CustomTool,
    FunctionTool,
    Grammar,
    HostedTool,
    Media,
    Message,
    OpaquePart,
    Reasoning,
    ReasoningConfig,
    Refusal,
    Request,
    ResponseFormat,
    Text,
    ToolCall,
    ToolChoice,
    ToolRef,
    ToolResult,
)
from dragoman._ir.signatures import Signer
from dragoman._wire.exceptions import RemoteProtocolError
from dragoman.protocols.openai_chat import SPEC

CHAT = "openai_chat"


def read(signer: Signer = Signer(), **body: Any) -> Request:
    return SPEC.read_request({"model": "m", "messages": [], **body}, signer)


def parts(message: dict[str, Any], signer: Signer = Signer()) -> tuple[Any, ...]:
    [found] = read(signer, messages=[message]).messages
    return found.parts


def content(part: Any) -> Any:
    [found] = parts({"role": "user", "content": [part]})
    return found


def test_plain_messages_keep_their_roles_places_and_texts() -> None:
    roles = ("system", "developer", "user", "assistant")
    request = read(messages=[{"role": role, "content": f"I am {role}"} for role in roles])
    assert request.messages == tuple(
        Message(role, (Text(f"I am {role}", path=f"/messages/{n}/content"),), f"/messages/{n}")  # type: ignore[arg-type]
        for n, role in enumerate(roles)
    )
    assert (request.protocol, request.model, request.stream, request.include_usage) == (
        CHAT,
        "m",
        False,
        False,
    )


def test_names_and_unknown_fields_of_a_message_are_kept_and_null_is_absent() -> None:
    [message] = read(messages=[{"role": "user", "content": None, "name": "Ann", "x": 1, "y": None}]).messages
    assert message == Message("user", (), "/messages/0", name="Ann", extra={"x": 1})


PATH = "/messages/0/content/0"


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ({"type": "text", "text": "hi"}, Text("hi", path=PATH)),
        ({"type": "text", "text": "hi", "x": 1}, Text("hi", extra={"x": 1}, path=PATH)),
        (
            {"type": "text", "text": "hi", "prompt_cache_breakpoint": {"mode": "explicit", "ttl": "12h"}},
            Text("hi", CacheMark(f"{PATH}/prompt_cache_breakpoint", "long"), path=PATH),
        ),
        (
            {"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}},
            Text("hi", CacheMark(f"{PATH}/cache_control"), path=PATH),
        ),
        (
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,QUJD", "detail": "low"}},
            Media("image", "base64", "QUJD", "image/png", detail="low", path=PATH),
        ),
        (
            {"type": "image_url", "image_url": {"url": "https://a/b.png", "z": 2}, "y": 1},
            Media("image", "url", "https://a/b.png", extra={"y": 1, "image_url": {"z": 2}}, path=PATH),
        ),
        # A plain string as image_url, and a data URI that is not base64.
        ({"type": "image_url", "image_url": "https://a/b"}, Media("image", "url", "https://a/b", path=PATH)),
        ({"type": "image_url", "image_url": "data:,x"}, Media("image", "url", "data:,x", path=PATH)),
        (
            {"type": "input_audio", "input_audio": {"data": "QUJD", "format": "wav"}},
            Media("audio", "base64", "QUJD", "audio/wav", path=PATH),
        ),
        (
            {"type": "input_audio", "input_audio": {"data": "QUJD"}},
            Media("audio", "base64", "QUJD", path=PATH),
        ),
        (
            {"type": "file", "file": {"file_data": "data:application/pdf;base64,QUJD", "filename": "a.pdf"}},
            Media("file", "base64", "QUJD", "application/pdf", "a.pdf", path=PATH),
        ),
        # Bare base64: only the name tells what it is.
        (
            {"type": "file", "file": {"file_data": "QUJD", "filename": "A.PDF"}},
            Media("file", "base64", "QUJD", "application/pdf", "A.PDF", path=PATH),
        ),
        ({"type": "file", "file": {"file_data": "QUJD"}}, Media("file", "base64", "QUJD", path=PATH)),
        (
            {"type": "file", "file": {"file_data": "https://a/b"}},
            Media("file", "url", "https://a/b", path=PATH),
        ),
        ({"type": "file", "file": {"file_id": "file-1"}}, Media("file", "file_id", "file-1", path=PATH)),
        ({"type": "refusal", "refusal": "no"}, Refusal("no", path=PATH)),
        (
            {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
            Reasoning(
                "hm",
                Signature(
                    CHAT, {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]}
                ),
                path=PATH,
            ),
        ),
        ({"type": "video_url", "v": 1}, OpaquePart(CHAT, "video_url", {"type": "video_url", "v": 1}, PATH)),
        ({"type": 5}, OpaquePart(CHAT, "5", {"type": 5}, PATH)),
    ],
)
def test_content_parts(part: Any, expected: Any) -> None:
    assert content(part) == expected


def test_a_cache_mark_on_a_message_stands_on_its_last_part() -> None:
    mark = {"type": "ephemeral", "ttl": "5m"}
    [text] = parts({"role": "user", "content": "hi", "cache_control": mark})
    assert text == Text("hi", CacheMark("/messages/0/cache_control", "short"), path="/messages/0/content")
    [result] = parts({"role": "tool", "tool_call_id": "c", "content": "42", "cache_control": mark})
    assert result.cache == CacheMark("/messages/0/cache_control", "short")
    [message] = read(messages=[{"role": "assistant", "content": None, "cache_control": mark}]).messages
    assert message.extra == {"cache_control": mark}


def test_assistant_turns_with_calls_refusals_and_sound() -> None:
    calls = [
        {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a":1}', "z": 1}, "y": 2},
        {"id": "c2", "type": "custom", "custom": {"name": "patch", "input": "*** Begin"}},
        {"id": "c3", "function": {"name": "g"}},
        {"id": "c4", "function": {"name": "h", "arguments": {"b": 2}}, "cache_control": {}},
    ]
    message = {
        "role": "assistant",
        "content": "ok",
        "refusal": "no",
        "audio": {"id": "a"},
        "tool_calls": calls,
    }
    at = "/messages/0/tool_calls"
    assert parts(message) == (
        Text("ok", path="/messages/0/content"),
        Refusal("no", path="/messages/0/refusal"),
        OpaquePart(CHAT, "audio", {"id": "a"}, "/messages/0/audio"),
        ToolCall("c1", "f", '{"a":1}', extra={"y": 2, "function": {"z": 1}}, path=f"{at}/0"),
        ToolCall("c2", "patch", "*** Begin", ToolKind.CUSTOM, path=f"{at}/1"),
        ToolCall("c3", "g", "", path=f"{at}/2"),
        ToolCall("c4", "h", '{"b":2}', cache=CacheMark(f"{at}/3/cache_control"), path=f"{at}/3"),
    )


def test_tool_results_know_the_kind_of_their_call() -> None:
    request = read(
        messages=[
            {"role": "assistant", "tool_calls": [{"id": "c2", "custom": {"name": "p", "input": ""}}]},
            {"role": "tool", "tool_call_id": "c2", "content": "done", "name": "p", "x": 1},
            {
                "role": "tool",
                "tool_call_id": "c1",
                "content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": "https://i"}],
            },
        ]
    )
    first, second = request.messages[1:]
    done = Text("done", path="/messages/1/content")
    assert first == Message(
        "user",
        (ToolResult("c2", (done,), ToolKind.CUSTOM, extra={"x": 1}, path="/messages/1"),),
        "/messages/1",
        name="p",
    )
    [result] = second.parts
    assert isinstance(result, ToolResult)
    assert result.kind is ToolKind.FUNCTION
    assert [type(part) for part in result.parts] == [Text, Media]


def test_legacy_functions_become_tools_calls_and_results_with_ids_of_their_place() -> None:
    request = read(
        functions=[{"name": "f", "parameters": {}}],
        function_call={"name": "f"},
        messages=[
            {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
            {"role": "function", "name": "f", "content": "1"},
            {"role": "function", "name": "f", "content": "2"},
        ],
    )
    assert request.tools == (FunctionTool("f", parameters={}, path="/functions/0"),)
    assert request.tool_choice == ToolChoice("named", "f", path="/function_call")
    assert request.parallel_tool_calls is False
    assert [part.call_id for message in request.messages for part in message.parts] == [  # type: ignore[union-attr]
        "call_0_f",
        "call_0_f",
        "call_2_f",
    ]
    assert read(functions=[{"name": "f"}], function_call="none").tool_choice == ToolChoice(
        "none", path="/function_call"
    )


def test_tools() -> None:
    request = read(
        tools=[
            {
                "type": "function",
                "function": {"name": "f", "description": "d", "parameters": {"a": 1}, "strict": True},
            },
            {"function": {"name": "g", "z": 1}, "y": 2, "cache_control": {"type": "ephemeral", "ttl": "1h"}},
            {"type": "custom", "custom": {"name": "p", "description": "d", "z": 1}},
            {
                "type": "custom",
                "custom": {
                    "name": "q",
                    "format": {"type": "grammar", "grammar": {"syntax": "lark", "definition": "start: A"}},
                },
            },
            {"type": "web_search", "x": 1},
        ]
    )
    assert request.tools == (
        FunctionTool("f", "d", {"a": 1}, True, path="/tools/0"),
        FunctionTool(
            "g",
            cache=CacheMark("/tools/1/cache_control", "long"),
            extra={"y": 2, "function": {"z": 1}},
            path="/tools/1",
        ),
        CustomTool("p", "d", extra={"custom": {"z": 1}}, path="/tools/2"),
        CustomTool("q", grammar=Grammar("lark", "start: A"), path="/tools/3"),
        HostedTool(CHAT, "web_search", {"type": "web_search", "x": 1}, "/tools/4"),
    )
    assert request.parallel_tool_calls is None


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (None, None),
        ("auto", ToolChoice("auto", path="/tool_choice")),
        ("none", ToolChoice("none", path="/tool_choice")),
        ("required", ToolChoice("required", path="/tool_choice")),
        ({"type": "any"}, ToolChoice("required", path="/tool_choice")),
        ({"type": "function", "function": {"name": "f"}}, ToolChoice("named", "f", path="/tool_choice")),
        (
            {"type": "custom", "custom": {"name": "p"}},
            ToolChoice("named", "p", ToolKind.CUSTOM, path="/tool_choice"),
        ),
        (
            {
                "type": "allowed_tools",
                "allowed_tools": {
                    "mode": "required",
                    "tools": [{"type": "function", "function": {"name": "f"}}],
                },
            },
            ToolChoice("allowed", allowed=(ToolRef("f"),), required=True, path="/tool_choice"),
        ),
        (
            {"type": "allowed_tools", "allowed_tools": {"mode": "auto"}},
            ToolChoice("allowed", path="/tool_choice"),
        ),
    ],
)
def test_tool_choice(choice: Any, expected: Any) -> None:
    assert read(tool_choice=choice).tool_choice == expected


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({}, None),
        ({"reasoning_effort": "none"}, ReasoningConfig(effort="none", path="/reasoning_effort")),
        (
            {"reasoning": {"effort": "low"}},
            ReasoningConfig(effort="low", path="/reasoning", effort_path="/reasoning/effort"),
        ),
        (
            {"reasoning": {"max_tokens": 2000, "exclude": True}, "reasoning_effort": "high"},
            ReasoningConfig(
                "enabled", "high", 2000, "omitted", path="/reasoning", effort_path="/reasoning_effort"
            ),
        ),
        (
            {"reasoning": {"enabled": True, "exclude": False}},
            ReasoningConfig("adaptive", display="summarized", path="/reasoning"),
        ),
        (
            {"reasoning": {"enabled": False, "max_tokens": 9}},
            ReasoningConfig("disabled", None, 9, path="/reasoning"),
        ),
        # Switches of open servers and of their templates.
        ({"enable_thinking": True}, ReasoningConfig("adaptive", path="/enable_thinking")),
        ({"enable_thinking": False}, ReasoningConfig("disabled", path="/enable_thinking")),
        (
            {"enable_thinking": True, "thinking_budget": 4000},
            ReasoningConfig("enabled", None, 4000, path="/thinking_budget"),
        ),
        (
            {"chat_template_kwargs": {"enable_thinking": False}},
            ReasoningConfig("disabled", path="/chat_template_kwargs"),
        ),
        (
            {"chat_template_kwargs": {"thinking": True}},
            ReasoningConfig("adaptive", path="/chat_template_kwargs"),
        ),
        ({"include_reasoning": False}, ReasoningConfig(display="omitted", path="/include_reasoning")),
        ({"include_reasoning": True}, ReasoningConfig(display="summarized", path="/include_reasoning")),
        ({"reasoning": {"enabled": False}}, ReasoningConfig("disabled", path="/reasoning")),
        ({"thinking": {"type": "disabled"}}, ReasoningConfig("disabled", path="/thinking")),
        (
            {"thinking": {"type": "enabled", "budget_tokens": 5}},
            ReasoningConfig("enabled", None, 5, path="/thinking"),
        ),
        ({"thinking": {"type": "odd"}}, None),
        ({"thinking": True}, None),
        ({"reasoning_effort": None, "reasoning": {}}, None),
    ],
)
def test_reasoning(body: Any, expected: Any) -> None:
    assert read(**body).reasoning == expected


@pytest.mark.parametrize(
    ("value", "expected", "extra"),
    [
        ({"type": "text"}, None, None),
        ({"type": "json_object"}, ResponseFormat(path="/response_format"), None),
        (
            {"type": "json_schema", "json_schema": {"name": "n", "schema": {"a": 1}, "strict": True, "z": 1}},
            ResponseFormat({"a": 1}, "n", None, True, {"z": 1}, "/response_format/json_schema"),
            None,
        ),
        (
            {"type": "json_schema", "json_schema": {"name": "n", "description": "d"}},
            ResponseFormat({}, "n", "d", path="/response_format/json_schema"),
            None,
        ),
        ({"type": "regex", "pattern": "a"}, None, {"response_format": {"type": "regex", "pattern": "a"}}),
    ],
)
def test_response_format(value: Any, expected: Any, extra: Any) -> None:
    request = read(response_format=value)
    assert (request.response_format, request.extra) == (expected, extra)


def test_settings_have_neutral_names_and_remember_their_places() -> None:
    request = read(temperature=0, max_tokens=5, stop="x", top_k=None, mystery=1, seed=7)
    assert request.params == {"temperature": 0, "max_output_tokens": 5, "stop": "x", "seed": 7}
    assert request.param_paths["max_output_tokens"] == "/max_tokens"
    assert request.extra == {"mystery": 1}
    both = read(max_tokens=5, max_completion_tokens=6)
    assert both.params["max_output_tokens"] == 6
    assert both.param_paths["max_output_tokens"] == "/max_completion_tokens"


@pytest.mark.parametrize(
    ("options", "include_usage", "extra"),
    [
        (None, False, None),
        ({}, False, None),
        ({"include_usage": True}, True, None),
        (
            {"include_usage": False, "include_obfuscation": True},
            False,
            {"stream_options": {"include_obfuscation": True}},
        ),
    ],
)
def test_stream_options(options: Any, include_usage: bool, extra: Any) -> None:
    request = read(stream=True, stream_options=options)
    assert (request.stream, request.include_usage, request.extra) == (True, include_usage, extra)


# -- earlier reasoning -------------------------------------------------------------------------------------

AT = "/messages/0"
WRAPPED_M = Signer().wrap(Signature("anthropic_messages", {"type": "thinking"}, "claude"))


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (
            {"reasoning_content": "hm"},
            [Reasoning("hm", Signature(CHAT, {"reasoning_content": "hm"}), path=f"{AT}/reasoning_content")],
        ),
        (
            {"reasoning": "hm", "reasoning_content": ""},
            [Reasoning("hm", Signature(CHAT, {"reasoning": "hm"}), path=f"{AT}/reasoning")],
        ),
        # Unsigned entries are Chat's own.
        (
            {"reasoning_details": [{"type": "reasoning.text", "text": "hm", "index": 0}, 5]},
            [
                Reasoning(
                    "hm",
                    Signature(
                        CHAT, {"reasoning_details": [{"type": "reasoning.text", "text": "hm", "index": 0}, 5]}
                    ),
                    path=f"{AT}/reasoning_details",
                )
            ],
        ),
        # A wrapped seal: the text stands beside it.
        (
            {
                "reasoning_content": "hm",
                "reasoning_details": [{"type": "reasoning.encrypted", "data": WRAPPED_M, "index": 0}],
            },
            [
                Reasoning(
                    "hm",
                    Signature("anthropic_messages", {"type": "thinking"}, "claude"),
                    path=f"{AT}/reasoning_details/0/data",
                )
            ],
        ),
        # One that looks like ours and is not.
        (
            {"reasoning_details": [{"type": "reasoning.encrypted", "data": "drg1.forged", "index": 0}]},
            [Reasoning("", None, path=f"{AT}/reasoning_details/0/data", forged=True)],
        ),
        # Real signatures of OpenRouter, in the pieces of a stream.
        (
            {
                "reasoning": "ab",
                "reasoning_details": [
                    {"type": "reasoning.text", "text": "a", "format": "anthropic-claude-v1", "index": 0},
                    {"type": "reasoning.text", "text": "b", "format": "anthropic-claude-v1", "index": 0},
                    {"type": "reasoning.text", "signature": "S", "format": "anthropic-claude-v1", "index": 0},
                    {"type": "reasoning.encrypted", "data": "R", "format": "anthropic-claude-v1", "index": 1},
                ],
            },
            [
                Reasoning(
                    "ab",
                    Signature("anthropic_messages", {"type": "thinking", "thinking": "ab", "signature": "S"}),
                    path=f"{AT}/reasoning_details/0",
                ),
                Reasoning(
                    "",
                    Signature("anthropic_messages", {"type": "redacted_thinking", "data": "R"}),
                    path=f"{AT}/reasoning_details/1",
                ),
            ],
        ),
        (
            {
                "reasoning_details": [
                    {
                        "type": "reasoning.summary",
                        "summary": "s",
                        "format": "openai-responses-v1",
                        "index": 0,
                    },
                    {
                        "type": "reasoning.encrypted",
                        "data": "E",
                        "id": "rs_1",
                        "format": "openai-responses-v1",
                        "index": 0,
                    },
                    {
                        "type": "reasoning.encrypted",
                        "data": "F",
                        "id": "rs_2",
                        "format": "openai-responses-v1",
                        "index": 0,
                    },
                    {"type": "reasoning.text", "text": "tail", "index": 1},
                ]
            },
            [
                Reasoning(
                    "s",
                    Signature(
                        "openai_responses",
                        {
                            "type": "reasoning",
                            "id": "rs_1",
                            "summary": [{"type": "summary_text", "text": "s"}],
                            "encrypted_content": "E",
                        },
                    ),
                    path=f"{AT}/reasoning_details/1",
                ),
                Reasoning(
                    "",
                    Signature(
                        "openai_responses",
                        {"type": "reasoning", "id": "rs_2", "summary": [], "encrypted_content": "F"},
                    ),
                    path=f"{AT}/reasoning_details/2",
                ),
                Reasoning("tail", path=f"{AT}/reasoning_details"),
            ],
        ),
        # LiteLLM's blocks.
        (
            {
                "thinking_blocks": [
                    {"type": "thinking", "thinking": "x", "signature": "S"},
                    {"type": "thinking", "thinking": "y", "signature": "T"},
                    {"type": "redacted_thinking", "data": "R"},
                ]
            },
            [
                Reasoning(
                    "x",
                    Signature("anthropic_messages", {"type": "thinking", "thinking": "x", "signature": "S"}),
                    path=f"{AT}/thinking_blocks/0",
                ),
                Reasoning(
                    "y",
                    Signature("anthropic_messages", {"type": "thinking", "thinking": "y", "signature": "T"}),
                    path=f"{AT}/thinking_blocks/1",
                ),
                Reasoning(
                    "",
                    Signature("anthropic_messages", {"type": "redacted_thinking", "data": "R"}),
                    path=f"{AT}/thinking_blocks/2",
                ),
            ],
        ),
        # Carriers of others that only their own server reads.
        (
            {
                "reasoning_details": [
                    {"type": "reasoning.encrypted", "data": "G", "format": "google-gemini-v1"}
                ]
            },
            [
                Reasoning(
                    "",
                    Signature(
                        CHAT,
                        {
                            "reasoning_details": [
                                {"type": "reasoning.encrypted", "data": "G", "format": "google-gemini-v1"}
                            ]
                        },
                    ),
                    path=f"{AT}/reasoning_details",
                )
            ],
        ),
        # Unsigned blocks.
        (
            {"thinking_blocks": [{"type": "thinking", "thinking": "x"}], "reasoning_details": "odd"},
            [
                Reasoning(
                    "x",
                    Signature(
                        CHAT,
                        {
                            "reasoning_details": "odd",
                            "thinking_blocks": [{"type": "thinking", "thinking": "x"}],
                        },
                    ),
                    path=f"{AT}/reasoning_details",
                )
            ],
        ),
    ],
)
def test_earlier_reasoning(fields: Any, expected: Any) -> None:
    assert parts({"role": "assistant", "content": None, **fields}) == tuple(expected)


def test_a_seal_without_its_mac_is_forged() -> None:
    entry = {"type": "reasoning.text", "text": "hm", "signature": WRAPPED_M}
    [thought] = parts({"role": "assistant", "reasoning_details": [entry]}, Signer(b"secret"))
    assert thought == Reasoning("hm", None, path=f"{AT}/reasoning_details/0/signature", forged=True)


# -- bodies that cannot be read ----------------------------------------------------------------------------

USER = {"role": "user"}


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"model": None}, "/model"),
        ({"model": ""}, "/model"),
        ({"messages": "hi"}, "/messages"),
        ({"messages": ["hi"]}, "/messages/0"),
        ({"messages": [{"role": "wizard", "content": "x"}]}, "/messages/0/role"),
        ({"messages": [{"role": ["user"], "content": [], "x": 1}]}, "/messages/0/role"),
        ({"messages": [{**USER, "content": 5}]}, "/messages/0/content"),
        ({"messages": [{**USER, "content": ["x"]}]}, "/messages/0/content/0"),
        ({"messages": [{**USER, "content": [{"type": "text"}]}]}, "/messages/0/content/0/text"),
        ({"messages": [{**USER, "content": [{"type": "image_url"}]}]}, "/messages/0/content/0/image_url"),
        ({"messages": [{**USER, "content": [{"type": "input_audio"}]}]}, "/messages/0/content/0/input_audio"),
        ({"messages": [{**USER, "content": [{"type": "file"}]}]}, "/messages/0/content/0/file"),
        (
            {"messages": [{**USER, "content": [{"type": "file", "file": {}}]}]},
            "/messages/0/content/0/file/file_id",
        ),
        ({"messages": [{"role": "assistant", "tool_calls": {}}]}, "/messages/0/tool_calls"),
        ({"messages": [{"role": "assistant", "tool_calls": [1]}]}, "/messages/0/tool_calls/0"),
        (
            {"messages": [{"role": "assistant", "tool_calls": [{"id": "c"}]}]},
            "/messages/0/tool_calls/0/function",
        ),
        ({"messages": [{"role": "assistant", "function_call": "f"}]}, "/messages/0/function_call"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "/messages/0/tool_call_id"),
        ({"messages": [{"role": "function", "content": "x"}]}, "/messages/0/name"),
        ({"tools": {}}, "/tools"),
        ({"tools": [1]}, "/tools/0"),
        ({"tools": [{"type": "function"}]}, "/tools/0/function"),
        ({"tools": [{"type": "custom"}]}, "/tools/0/custom"),
        ({"tool_choice": "maybe"}, "/tool_choice"),
        ({"tool_choice": {"type": "function"}}, "/tool_choice"),
        ({"tool_choice": 5}, "/tool_choice"),
        (
            {"tool_choice": {"type": "allowed_tools", "allowed_tools": {"tools": 1}}},
            "/tool_choice/allowed_tools/tools",
        ),
        (
            {"tools": [{"type": "function", "function": {"name": "f", "description": 1}}]},
            "/tools/0/function/description",
        ),
        (
            {"tools": [{"type": "custom", "custom": {"name": "f", "description": [1]}}]},
            "/tools/0/custom/description",
        ),
        ({"functions": [{"name": "f", "description": {}}]}, "/functions/0/description"),
        ({"response_format": "json"}, "/response_format"),
        ({"response_format": {"type": "json_schema"}}, "/response_format/json_schema"),
        ({"stream_options": 5}, "/stream_options"),
    ],
)
def test_wrong_types_of_vital_members_are_refused_with_their_place(body: Any, path: str) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        read(**body)
    assert (caught.value.path, caught.value.status) == (path, 400)
    assert caught.value.code in {"invalid_type", "invalid_value"}


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"reasoning_effort": {}}, "/reasoning_effort"),
        ({"reasoning": {"effort": ["high"]}}, "/reasoning/effort"),
        ({"reasoning": {"max_tokens": "many"}}, "/reasoning/max_tokens"),
        ({"thinking": {"type": "enabled", "budget_tokens": "many"}}, "/thinking/budget_tokens"),
    ],
)
def test_reasoning_settings_of_a_wrong_type(body: dict[str, Any], path: str) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        read(**body)
    assert caught.value.path == path


def test_a_reference_to_a_tool_of_no_type_names_nothing() -> None:
    choice = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [{"type": {}}]}}
    request = read(tool_choice=choice)
    assert request.extra == {"tool_choice": choice}
