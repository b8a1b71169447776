"""Bodies of clients -> the request document."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman._errors import RemoteProtocolError
from dragoman._events import Seal
from dragoman._request import (
    CacheMark,
    FunctionTool,
    HostedTool,
    Media,
    Message,
    OpaquePart,
    ReasoningConfig,
    Request,
    ResponseFormat,
    Text,
    Thought,
    ToolCall,
    ToolChoice,
    ToolResult,
)
from dragoman._seal import PREFIX, Sealer
from dragoman.protocols.anthropic_messages import SPEC

NAME = "anthropic_messages"
HELLO = {"role": "user", "content": "Hello"}


def read(**fields: Any) -> Request:
    body = {"model": "claude-x", "max_tokens": 10, "messages": [HELLO], **fields}
    return SPEC.read_request({key: value for key, value in body.items() if value != "absent"}, Sealer(b"key"))


def blocks(*content: Any, role: str = "user") -> tuple[Any, ...]:
    """The parts of one message with this content."""
    return read(messages=[{"role": role, "content": list(content)}]).messages[0].parts


AT = "/messages/0/content/0"


def test_the_smallest_request() -> None:
    request = read()
    assert request.protocol == NAME
    assert request.model == "claude-x"
    assert request.messages == (Message("user", (Text("Hello", path="/messages/0/content"),), "/messages/0"),)
    assert request.params == {"max_output_tokens": 10}
    assert request.param_paths["max_output_tokens"] == "/max_tokens"
    assert (request.stream, request.include_usage, request.extra) == (False, True, None)


@pytest.mark.parametrize(
    ("system", "parts"),
    [
        ("Be brief.", (Text("Be brief.", path="/system"),)),
        (
            [
                {"type": "text", "text": "One."},
                {"type": "text", "text": "Two.", "cache_control": {"type": "ephemeral", "ttl": "1h"}},
            ],
            (
                Text("One.", path="/system/0"),
                Text("Two.", CacheMark("/system/1/cache_control", "long"), path="/system/1"),
            ),
        ),
    ],
)
def test_system_leads(system: Any, parts: tuple[Text, ...]) -> None:
    assert read(system=system).messages[0] == Message("system", parts, "/system")


@pytest.mark.parametrize("system", ["", [], None])
def test_an_empty_system_is_none(system: Any) -> None:
    assert [message.role for message in read(system=system).messages] == ["user"]


def test_system_messages_stay_in_place_and_turns_of_one_role_stay_apart() -> None:
    request = read(
        messages=[HELLO, HELLO, {"role": "system", "content": "Now.", "output_config": {"effort": "low"}}]
    )
    assert [message.role for message in request.messages] == ["user", "user", "system"]
    assert request.messages[2].extra == {"output_config": {"effort": "low"}}


BASE64 = {"type": "base64", "media_type": "image/png", "data": "iVBOR"}
THINKING = {"type": "thinking", "thinking": "hm", "signature": "sig"}
REDACTED = {"type": "redacted_thinking", "data": "xyz"}


@pytest.mark.parametrize(
    ("block", "part"),
    [
        ({"type": "text", "text": "a"}, Text("a", path=AT)),
        (
            {"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}, "citations": [], "new": 1},
            Text("a", CacheMark(f"{AT}/cache_control"), None, {"new": 1}, AT),
        ),
        ({"type": "text", "text": "a", "citations": [{"x": 1}]}, Text("a", citations=[{"x": 1}], path=AT)),
        (
            {"type": "text", "text": "a", "cache_control": {"type": "ephemeral", "ttl": "9h", "scope": "s"}},
            Text(
                "a",
                CacheMark(f"{AT}/cache_control"),
                extra={"cache_control": {"scope": "s", "ttl": "9h"}},
                path=AT,
            ),
        ),
        (
            {"type": "text", "text": "a", "cache_control": {"type": "ephemeral", "ttl": "5m"}},
            Text("a", CacheMark(f"{AT}/cache_control", "short"), path=AT),
        ),
        (
            {"type": "image", "source": BASE64},
            Media("image", "base64", "iVBOR", "image/png", path=AT),
        ),
        (
            {"type": "image", "source": {"type": "url", "url": "https://x/y.png", "odd": 1}, "new": 2},
            Media("image", "url", "https://x/y.png", extra={"new": 2, "source": {"odd": 1}}, path=AT),
        ),
        (
            {"type": "image", "source": {"type": "file", "file_id": "file_1"}},
            Media("image", "file_id", "file_1", path=AT),
        ),
        (
            {
                "type": "document",
                "source": {"type": "text", "media_type": "text/plain", "data": "d"},
                "title": "t",
                "context": "c",
                "citations": {"enabled": True},
            },
            Media(
                "file",
                "text",
                "d",
                "text/plain",
                filename="t",
                context="c",
                citations={"enabled": True},
                path=AT,
            ),
        ),
        (
            {"type": "tool_use", "id": "t1", "name": "f", "input": {"a": [1, "é"]}},
            ToolCall("t1", "f", '{"a":[1,"é"]}', path=AT),
        ),
        (
            {"type": "tool_use", "id": "t1", "name": "f", "input": None, "caller": {"type": "direct"}},
            ToolCall("t1", "f", "{}", path=AT),
        ),
        (
            {
                "type": "tool_use",
                "id": "t1",
                "name": "f",
                "input": {},
                "caller": {"type": "x"},
                "toolset_name": "s",
            },
            ToolCall("t1", "f", "{}", extra={"caller": {"type": "x"}, "toolset_name": "s"}, path=AT),
        ),
        ({"type": "tool_result", "tool_use_id": "t1"}, ToolResult("t1", (), path=AT)),
        (
            {"type": "tool_result", "tool_use_id": "t1", "content": "", "is_error": False},
            ToolResult("t1", (), is_error=False, path=AT),
        ),
        (
            {"type": "tool_result", "tool_use_id": "t1", "content": "ok", "is_error": True},
            ToolResult("t1", (Text("ok", path=f"{AT}/content"),), is_error=True, path=AT),
        ),
        (
            {
                "type": "tool_result",
                "tool_use_id": "t1",
                "content": [
                    {"type": "image", "source": BASE64},
                    {"type": "tool_reference", "tool_name": "Zap"},
                ],
            },
            ToolResult(
                "t1",
                (
                    Media("image", "base64", "iVBOR", "image/png", path=f"{AT}/content/0"),
                    OpaquePart(
                        NAME,
                        "tool_reference",
                        {"type": "tool_reference", "tool_name": "Zap"},
                        f"{AT}/content/1",
                        "The tool Zap can be called now.",
                    ),
                ),
                path=AT,
            ),
        ),
        (THINKING, Thought("hm", Seal(NAME, THINKING), path=AT)),
        (
            {**THINKING, "cache_control": {"type": "ephemeral"}},
            Thought("hm", Seal(NAME, THINKING), extra={"cache_control": {"type": "ephemeral"}}, path=AT),
        ),
        ({"type": "thinking", "thinking": "hm", "signature": ""}, Thought("hm", path=AT)),
        ({"type": "thinking", "thinking": "hm", "signature": PREFIX + "forged"}, Thought("hm", path=AT)),
        (REDACTED, Thought("", Seal(NAME, REDACTED), path=AT)),
    ],
)
def test_blocks(block: Any, part: Any) -> None:
    assert blocks(block) == (part,)


@pytest.mark.parametrize(
    ("block", "text"),
    [
        ({"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}, None),
        ({"type": "compaction", "content": "So far: all is well."}, "So far: all is well."),
        ({"type": "compaction", "content": None}, None),
        ({"type": "tool_reference"}, None),
        (
            {
                "type": "search_result",
                "title": "T",
                "source": "https://x",
                "content": [{"type": "text", "text": "One."}, {"type": "text", "text": "Two."}],
            },
            "T\n\nhttps://x\n\nOne.\n\nTwo.",
        ),
        ({"type": "document", "source": {"type": "content", "content": "Inline."}}, "Inline."),
        (
            {
                "type": "document",
                "title": "T",
                "source": {"type": "content", "content": [{"text": "Inline."}]},
            },
            "T\n\nInline.",
        ),
        ({"type": "image", "source": {"type": "base64", "data": None}}, None),
        ({"type": "image", "source": {"type": ["odd"]}}, None),
    ],
)
def test_a_block_without_a_form_of_its_own_is_kept_whole_with_its_words(block: Any, text: str | None) -> None:
    assert blocks(block) == (OpaquePart(NAME, block["type"], block, AT, text),)


@pytest.mark.parametrize("place", ["thinking", "redacted_thinking"])
def test_a_wrapped_seal_is_unwrapped(place: str) -> None:
    seal = Seal("openai_responses", {"type": "reasoning", "id": "rs_1", "encrypted_content": "e"}, "gpt")
    text = Sealer(b"key").wrap(seal)
    block = {"thinking": {"thinking": "hm", "signature": text}, "redacted_thinking": {"data": text}}[place]
    (part,) = blocks({"type": place, **block})
    assert part.seal == seal


TOOL = {"name": "f", "description": "d", "input_schema": {"type": "object"}, "strict": True}


@pytest.mark.parametrize(
    ("tool", "read_as"),
    [
        (TOOL, FunctionTool("f", "d", {"type": "object"}, True, path="/tools/0")),
        (
            {"type": "custom", "name": "f", "defer_loading": True, "cache_control": {"type": "ephemeral"}},
            FunctionTool(
                "f", cache=CacheMark("/tools/0/cache_control"), extra={"defer_loading": True}, path="/tools/0"
            ),
        ),
        (
            {"type": "web_search_20250305", "name": "web_search"},
            HostedTool(
                NAME, "web_search_20250305", {"type": "web_search_20250305", "name": "web_search"}, "/tools/0"
            ),
        ),
    ],
)
def test_tools(tool: Any, read_as: Any) -> None:
    assert read(tools=[tool]).tools == (read_as,)


@pytest.mark.parametrize(
    ("choice", "read_as", "parallel"),
    [
        (None, None, None),
        ({"type": "auto"}, ToolChoice("auto", path="/tool_choice"), None),
        (
            {"type": "any", "disable_parallel_tool_use": True},
            ToolChoice("required", path="/tool_choice"),
            False,
        ),
        ({"type": "none"}, ToolChoice("none", path="/tool_choice"), None),
        (
            {"type": "tool", "name": "f", "disable_parallel_tool_use": False},
            ToolChoice("named", "f", path="/tool_choice"),
            True,
        ),
    ],
)
def test_tool_choice(choice: Any, read_as: ToolChoice | None, parallel: bool | None) -> None:
    request = read(tool_choice=choice)
    assert (request.tool_choice, request.parallel_tool_calls) == (read_as, parallel)


@pytest.mark.parametrize(
    ("fields", "config"),
    [
        ({}, None),
        ({"output_config": {"effort": "high"}}, ReasoningConfig(effort="high", path="/output_config/effort")),
        (
            {"thinking": {"type": "adaptive", "display": "omitted"}, "output_config": {"effort": "max"}},
            ReasoningConfig("adaptive", "max", None, "omitted", path="/thinking"),
        ),
        (
            {"thinking": {"type": "enabled", "budget_tokens": 2048, "display": "updates"}},
            ReasoningConfig("enabled", None, 2048, extra={"display": "updates"}, path="/thinking"),
        ),
        ({"thinking": {"type": "disabled"}}, ReasoningConfig("disabled", path="/thinking")),
        (
            {"thinking": {"type": "between_tools"}},
            ReasoningConfig("disabled", extra={"type": "between_tools"}, path="/thinking"),
        ),
    ],
)
def test_reasoning(fields: Any, config: ReasoningConfig | None) -> None:
    assert read(**fields).reasoning == config


FORMAT = {"type": "json_schema", "schema": {"type": "object"}}


@pytest.mark.parametrize(
    ("fields", "read_as"),
    [
        (
            {"output_config": {"format": {**FORMAT, "odd": 1}}},
            ResponseFormat({"type": "object"}, extra={"odd": 1}, path="/output_config/format"),
        ),
        ({"output_format": FORMAT}, ResponseFormat({"type": "object"}, path="/output_format")),
    ],
)
def test_response_format(fields: Any, read_as: ResponseFormat) -> None:
    assert read(**fields).response_format == read_as


def test_settings() -> None:
    request = read(
        temperature=0,
        top_p=0.5,
        top_k=3,
        stop_sequences=["END"],
        service_tier="standard_only",
        metadata={"user_id": "u"},
        context_management={"edits": []},
        stream=True,
    )
    assert request.params == {
        "max_output_tokens": 10,
        "temperature": 0,
        "top_p": 0.5,
        "top_k": 3,
        "stop": ["END"],
        "service_tier": "default",
        "context_management": {"edits": []},
        "user": "u",
    }
    assert request.param_paths["user"] == "/metadata/user_id"
    assert request.stream is True


def test_unknown_fields_are_kept_where_they_stood() -> None:
    request = read(
        new=1,
        nothing=None,
        metadata={"odd": 2},
        tool_choice={"type": "auto", "odd": 3},
        output_config={"task_budget": {"total": 9}},
    )
    assert request.extra == {
        "new": 1,
        "metadata": {"odd": 2},
        "tool_choice": {"odd": 3},
        "output_config": {"task_budget": {"total": 9}},
    }


def message(content: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": content}]}


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"model": "absent"}, "model: Field required"),
        ({"model": 3}, "model: Input should be a valid string"),
        ({"max_tokens": "absent"}, "max_tokens: Field required"),
        ({"max_tokens": True}, "max_tokens: Input should be a valid integer"),
        ({"messages": "absent"}, "messages: Field required"),
        ({"messages": "hi"}, "messages: Input should be a valid list"),
        ({"messages": ["hi"]}, "messages.0: Input should be an object"),
        (
            {"messages": [{"role": ["tool"], "content": ""}]},
            "messages.0.role: Input should be 'user', 'assistant' or 'system'",
        ),
        ({"messages": [{"role": "user"}]}, "messages.0.content: Field required"),
        (message(7), "messages.0.content: Input should be a valid string or list"),
        (message(["x"]), "messages.0.content.0: Input should be an object"),
        (message([{"text": "x"}]), "messages.0.content.0.type: Field required"),
        (message([{"type": "text"}]), "messages.0.content.0.text: Field required"),
        (message([{"type": "image"}]), "messages.0.content.0.source: Field required"),
        (message([{"type": "image", "source": 1}]), "messages.0.content.0.source: Input should be an object"),
        (
            message([{"type": "tool_use", "id": "a", "name": "b", "input": []}]),
            "messages.0.content.0.input: Input should be a valid dictionary",
        ),
        (message([{"type": "tool_result"}]), "messages.0.content.0.tool_use_id: Field required"),
        ({"temperature": "hot"}, "temperature: Input should be a valid number"),
        ({"stop_sequences": ["a", 1]}, "stop_sequences.1: Input should be a valid string"),
        ({"metadata": "me"}, "metadata: Input should be an object"),
        ({"metadata": {"user_id": 1}}, "metadata.user_id: Input should be a valid string"),
        ({"tools": {"a": 1}}, "tools: Input should be a valid list"),
        ({"tools": ["f"]}, "tools.0: Input should be an object"),
        ({"tools": [{"input_schema": {}}]}, "tools.0.name: Field required"),
        ({"tool_choice": {"type": "tool"}}, "tool_choice.name: Field required"),
        (
            {"tool_choice": {"type": "required"}},
            "tool_choice.type: Input should be 'auto', 'any', 'tool' or 'none'",
        ),
        (
            {"thinking": {"type": "hard"}},
            "thinking.type: Input should be 'adaptive', 'enabled', 'disabled' or 'between_tools'",
        ),
        (
            {"output_config": {"format": {"type": "xml"}}},
            "output_config.format.type: Input should be 'json_schema'",
        ),
        ({"output_format": {"type": "json_schema"}}, "output_format.schema: Field required"),
    ],
)
def test_errors_name_the_place(fields: Any, error: str) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        read(**fields)
    assert caught.value.message == error
    assert caught.value.status_hint == 400
    assert caught.value.path == "/" + error.split(":")[0].replace(".", "/")
