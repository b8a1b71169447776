"""Requests that clients send, and the documents that are read from them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dragoman._ir.events import (
    Signature,
    ToolKind,
)
from dragoman._ir.request import (
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
from dragoman._ir.signatures import Signer
from dragoman._ir.tools import CacheMark, FunctionTool, ToolChoice
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


def test_plain_messages_keep_their_roles_paths_and_texts() -> None:
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


CONTENT_PARTS: list[tuple[Any, Any]] = [
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
    # Plain base64: the media type follows from the name.
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
]


def test_content_parts(subtests: pytest.Subtests) -> None:
    for part, expected in CONTENT_PARTS:
        with subtests.test(part=part):
            assert content(part) == expected


def test_a_cache_mark_on_a_message_is_one_on_its_last_part() -> None:
    mark = {"type": "ephemeral", "ttl": "5m"}
    [text] = parts({"role": "user", "content": "hi", "cache_control": mark})
    assert text == Text("hi", CacheMark("/messages/0/cache_control", "short"), path="/messages/0/content")
    [result] = parts({"role": "tool", "tool_call_id": "c", "content": "42", "cache_control": mark})
    assert result.cache == CacheMark("/messages/0/cache_control", "short")
    [message] = read(messages=[{"role": "assistant", "content": None, "cache_control": mark}]).messages
    assert message.extra == {"cache_control": mark}


def test_assistant_turns_with_calls_refusals_and_audio() -> None:
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


CALL_OF_A_STREAM_HELPER = {
    "id": "c1",
    "function": {"arguments": '{"a":1}', "name": "f", "parsed_arguments": {"a": 1}},
    "type": "function",
    "index": 0,
    "provider_specific_fields": None,
}


def test_what_sdks_add_to_messages_that_clients_send_back_is_no_unknown_field() -> None:
    # As `client.chat.completions.stream()` and `parse()` (openai-python 3.54.0) and `litellm.completion()` leave them.
    message = {
        "content": "Hi",
        "refusal": None,
        "role": "assistant",
        "annotations": None,
        "audio": None,
        "function_call": None,
        "tool_calls": [CALL_OF_A_STREAM_HELPER],
        "parsed": {"a": 1},
        "provider_specific_fields": {"refusal": None},
    }
    [found] = read(messages=[message]).messages
    assert found.extra is None
    assert found.parts == (
        Text("Hi", path="/messages/0/content"),
        ToolCall("c1", "f", '{"a":1}', path="/messages/0/tool_calls/0"),
    )


def test_tool_results_have_the_kind_of_their_call() -> None:
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


def test_legacy_functions_become_tools_calls_and_results_with_ids() -> None:
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


def test_settings_have_neutral_names_and_paths() -> None:
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


POINT = {"mode": "explicit", "ttl": "30m"}


def test_of_two_cache_marks_the_official_one_counts() -> None:
    part = {
        "type": "text",
        "text": "a",
        "prompt_cache_breakpoint": POINT,
        "cache_control": {"type": "ephemeral"},
    }
    request = read(messages=[{"role": "user", "content": [part]}])
    at = "/messages/0/content/0"
    [found] = request.messages[0].parts
    mark = CacheMark(f"{at}/prompt_cache_breakpoint", "short")
    assert found == Text("a", mark, None, {"cache_control": {"type": "ephemeral"}}, at)


def test_refusals_and_reasoning_in_a_tool_message_keep_their_texts() -> None:
    content = [{"type": "refusal", "refusal": "No."}, {"type": "thinking", "thinking": ""}]
    request = read(messages=[{"role": "tool", "tool_call_id": "c", "content": content}])
    [result] = request.messages[0].parts
    assert isinstance(result, ToolResult)
    assert [(part.kind, part.native, part.text) for part in result.parts] == [  # type: ignore[union-attr]
        ("refusal", content[0], "No."),
        ("thinking", content[1], None),
    ]


def test_the_name_of_a_function_message_is_that_of_its_call() -> None:
    messages = [
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
        {"role": "function", "name": "g", "content": "5"},
        {"role": "function", "name": "f", "content": "4"},
    ]
    request = SPEC.read_request({"model": "m", "messages": messages}, Signer())
    results = [message.parts[0] for message in request.messages]
    assert [part.call_id for part in results] == ["call_0_f", "call_1_g", "call_0_f"]  # type: ignore[union-attr]
    assert [message.name for message in request.messages] == [None, None, None]


@pytest.mark.parametrize("more", [{}, {"reasoning_content": "so"}])
def test_empty_content_beside_calls_is_no_text(more: dict[str, Any]) -> None:
    """Clients of the AI SDK send it in each turn, and nothing has to be repaired."""
    body = {
        "model": "m",
        "messages": [
            {"role": "user", "content": "Hi"},
            {**TURN, "content": "", **more},
            {"role": "assistant", "content": ""},
        ],
    }
    _, turn, empty = SPEC.read_request(body, Signer()).messages
    assert not [part for part in turn.parts if isinstance(part, Text)]
    assert [part for part in empty.parts if isinstance(part, Text)] == [Text("", path="/messages/2/content")]


# -- shortcuts --------------------------------------------------------------------------------------------


ODD = {"x_odd": 1}
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
TURN = {"role": "assistant", "content": "so", "tool_calls": [CALL]}


def read_messages(*messages: Any) -> tuple[Message, ...]:
    return SPEC.read_request({"model": "m", "messages": [*messages]}, Signer()).messages


def bare(part: Any) -> Any:
    """Return a message or part without its extra members."""
    inner = {"parts": tuple(map(bare, part.parts))} if hasattr(part, "parts") else {}
    return msgspec.structs.replace(part, extra=None, **inner)


# Common shapes, and each with a member more, so that the general code reads it.
SHORTCUTS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    *[
        (each, {**each, **ODD})
        for each in (
            {"role": "system", "content": "a"},
            {"role": "user", "content": ""},
            {"role": "assistant", "content": "a"},
            TURN,
            {**TURN, "content": None},
            {**TURN, "content": [{"type": "text", "text": "a"}]},
            {**TURN, "tool_calls": []},
            {"role": "tool", "tool_call_id": "c", "content": "a"},
        )
    ],
    (TURN, {**TURN, "tool_calls": [{**CALL, **ODD}]}),
    (TURN, {**TURN, "tool_calls": [{**CALL, "function": {**CALL["function"], **ODD}}]}),  # type: ignore[dict-item]
]


def test_the_shortcuts_read_the_same(subtests: pytest.Subtests) -> None:
    for common, odd in SHORTCUTS:
        with subtests.test(common=common):
            short, long = read_messages(common), read_messages(odd)
            assert short != long
            assert short == tuple(map(bare, long))


def test_results_of_custom_calls_have_their_kind_in_the_shortcut() -> None:
    custom = {"id": "c", "type": "custom", "custom": {"name": "f", "input": "x"}}
    messages = ({**TURN, "tool_calls": [custom]}, {"role": "tool", "tool_call_id": "c", "content": "a"})
    turn, result = read_messages(*messages)
    assert [part.kind for part in (turn.parts[1], result.parts[0])] == [ToolKind.CUSTOM] * 2  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("call", "path"),
    [
        ({**CALL, "id": 1}, "/messages/0/tool_calls/0/id"),
        ({**CALL, "function": {"name": None, "arguments": ""}}, "/messages/0/tool_calls/0/function/name"),
    ],
)
def test_wrong_types_in_the_shortcuts_are_refused_with_their_path(call: Any, path: str) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        read_messages({**TURN, "tool_calls": [call]})
    assert caught.value.path == path


def test_paths_beyond_those_made_once() -> None:
    messages = read_messages(*[{"role": "user", "content": "a"}] * 600)
    assert [message.path for message in messages] == [f"/messages/{n}" for n in range(600)]


# -- requests that cannot be read -------------------------------------------------------------------------


USER = {"role": "user"}


WRONG_TYPES: list[tuple[Any, str]] = [
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
]


def test_wrong_types_of_required_members_are_refused_with_their_path(subtests: pytest.Subtests) -> None:
    for body, path in WRONG_TYPES:
        with subtests.test(path=path):
            with pytest.raises(RemoteProtocolError) as caught:
                read(**body)
            assert (caught.value.path, caught.value.status) == (path, 400)
            assert caught.value.code in {"invalid_type", "invalid_value"}
