"""Bodies of clients -> the request document."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman._ir.events import Signature
from dragoman._ir.losses import Ledger
from dragoman._ir.request import (
    CacheMark,
    Citation,
    Media,
    Message,
    OpaquePart,
    Reasoning,
    ReasoningConfig,
    Request,
    ResponseFormat,
    Text,
    ToolCall,
    ToolResult,
)
from dragoman._ir.signatures import WRAPPED_PREFIX, Signer
from dragoman._wire.exceptions import RemoteProtocolError
from dragoman.codec import Capabilities
from dragoman.protocols.anthropic_messages import SPEC

NAME = "anthropic_messages"
HELLO = {"role": "user", "content": "Hello"}


def read(**fields: Any) -> Request:
    body = {"model": "claude-x", "max_tokens": 10, "messages": [HELLO], **fields}
    return SPEC.read_request({key: value for key, value in body.items() if value != "absent"}, Signer(b"key"))


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


LINE = "x-anthropic-billing-header: cc_version=2.1.329.01c; cc_entrypoint=cli; cch=36ee5;"


def header(block: Any, path: str = "/system/0") -> OpaquePart:
    return OpaquePart(NAME, "billing header", block, path, "")


@pytest.mark.parametrize(
    ("system", "parts"),
    [
        (
            [
                {"type": "text", "text": LINE, "cache_control": {"type": "ephemeral"}},
                {"type": "text", "text": "Be brief."},
            ],
            (
                header({"type": "text", "text": LINE, "cache_control": {"type": "ephemeral"}}),
                Text("Be brief.", path="/system/1"),
            ),
        ),
        (LINE, (header({"type": "text", "text": LINE}, "/system"),)),
        (
            f"{LINE}\n\nBe brief.",
            (header({"type": "text", "text": LINE}, "/system"), Text("Be brief.", path="/system")),
        ),
        (f"Say {LINE}", (Text(f"Say {LINE}", path="/system"),)),
    ],
)
def test_the_billing_header_is_no_system_text(system: Any, parts: tuple[Any, ...]) -> None:
    request = read(system=system)
    assert request.messages[0] == Message("system", parts, "/system")
    printed = SPEC.write_request(request, Capabilities(), Ledger())["system"]
    texts = [block["text"] for block in (printed if isinstance(printed, list) else [{"text": printed}])]
    assert "".join(texts).replace("\n", "") == "".join(
        [system] if isinstance(system, str) else [block["text"] for block in system]
    ).replace("\n", "")


@pytest.mark.parametrize("system", ["", [], None])
def test_an_empty_system_is_none(system: Any) -> None:
    assert [message.role for message in read(system=system).messages] == ["user"]


def test_system_messages_stay_in_place_and_turns_of_one_role_stay_apart() -> None:
    request = read(
        messages=[HELLO, HELLO, {"role": "system", "content": "Now.", "output_config": {"effort": "low"}}]
    )
    assert [message.role for message in request.messages] == ["user", "user", "system"]
    assert request.reasoning == ReasoningConfig(effort="low", path="/messages/2/output_config/effort")


BASE64 = {"type": "base64", "media_type": "image/png", "data": "iVBOR"}
THINKING = {"type": "thinking", "thinking": "hm", "signature": "sig"}
REDACTED = {"type": "redacted_thinking", "data": "xyz"}


CITATIONS = [
    {"type": "web_search_result_location", "url": "https://x", "title": "T", "cited_text": "c"},
    {"type": "search_result_location", "source": "https://y", "title": None},
    {"type": "search_result_location", "source": "the attic", "title": "B"},
    {"type": "page_location", "document_title": "D"},
    "odd",
]


@pytest.mark.parametrize(
    ("block", "part"),
    [
        ({"type": "text", "text": "a"}, Text("a", path=AT)),
        (
            {"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}, "citations": [], "new": 1},
            Text("a", CacheMark(f"{AT}/cache_control"), None, {"new": 1}, AT),
        ),
        ({"type": "text", "text": "a", "citations": [{"x": 1}]}, Text("a", citations=[{"x": 1}], path=AT)),
        ({"type": "text", "text": "a", "citations": {"x": 1}}, Text("a", citations={"x": 1}, path=AT)),
        (
            {"type": "text", "text": "a", "citations": CITATIONS},
            Text(
                "a",
                citations=CITATIONS,
                path=AT,
                sources=(Citation("https://x", "T"), Citation("https://y")),
            ),
        ),
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
        (THINKING, Reasoning("hm", Signature(NAME, THINKING), path=AT)),
        (
            {**THINKING, "cache_control": {"type": "ephemeral"}},
            Reasoning(
                "hm", Signature(NAME, THINKING), extra={"cache_control": {"type": "ephemeral"}}, path=AT
            ),
        ),
        ({"type": "thinking", "thinking": "hm", "signature": ""}, Reasoning("hm", path=AT)),
        (
            {"type": "thinking", "thinking": "hm", "signature": WRAPPED_PREFIX + "forged"},
            Reasoning("hm", path=AT, forged=True),
        ),
        (REDACTED, Reasoning("", Signature(NAME, REDACTED), path=AT)),
    ],
)
def test_blocks(block: Any, part: Any) -> None:
    assert blocks(block) == (part,)


@pytest.mark.parametrize("place", ["thinking", "redacted_thinking"])
def test_a_wrapped_seal_is_unwrapped(place: str) -> None:
    seal = Signature("openai_responses", {"type": "reasoning", "id": "rs_1", "encrypted_content": "e"}, "gpt")
    text = Signer(b"key").wrap(seal)
    block = {"thinking": {"thinking": "hm", "signature": text}, "redacted_thinking": {"data": text}}[place]
    (part,) = blocks({"type": place, **block})
    assert part.seal == seal


FORMAT = {"type": "json_schema", "schema": {"type": "object"}}


@pytest.mark.parametrize(
    ("fields", "read_as"),
    [
        (
            {"output_config": {"format": {**FORMAT, "odd": 1}}},
            ResponseFormat({"type": "object"}, strict=True, extra={"odd": 1}, path="/output_config/format"),
        ),
        ({"output_format": FORMAT}, ResponseFormat({"type": "object"}, strict=True, path="/output_format")),
        (
            {"output_config": {"format": FORMAT}, "output_format": FORMAT},
            ResponseFormat({"type": "object"}, strict=True, path="/output_config/format"),
        ),
        ({"output_config": {}}, None),
    ],
)
def test_response_format(fields: Any, read_as: ResponseFormat | None) -> None:
    request = read(**fields)
    assert request.response_format == read_as
    assert request.extra == ({"output_format": FORMAT} if len(fields) == 2 else None)


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
        ({"messages": [{"role": "system"}]}, "messages.0.content: Field required"),
        (
            {"messages": [{"role": "system", "output_config": 1}]},
            "messages.0.output_config: Input should be an object",
        ),
        (
            {"messages": [{"role": "system", "output_config": {"effort": 1}}]},
            "messages.0.output_config.effort: Input should be a valid string",
        ),
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
    assert caught.value.status == 400
    assert caught.value.path == "/" + error.split(":")[0].replace(".", "/")
