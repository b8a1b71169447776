"""Content blocks of a request, read into parts."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dragoman._ir.events import Signature
from dragoman._ir.request import Citation, Media, OpaquePart, Reasoning, Request, Text, ToolCall, ToolResult
from dragoman._ir.signatures import WRAPPED_PREFIX, Signer
from dragoman._ir.tools import CacheMark
from dragoman._wire.exceptions import RemoteProtocolError
from dragoman.protocols.anthropic_messages import SPEC

NAME = "anthropic_messages"
AT = "/messages/0/content/0"
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
SIGNER = Signer(b"key")


def read(*messages: Any, **fields: Any) -> Request:
    return SPEC.read_request({"model": "m", "max_tokens": 9, "messages": list(messages), **fields}, SIGNER)


def parts(*content: Any, role: str = "user") -> tuple[Any, ...]:
    """Return the parts of a message with this content."""
    return read({"role": role, "content": list(content)}).messages[0].parts


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
        # Clients send OpenAI's form as well. It can mean nothing but an image.
        (
            {
                "type": "image_url",
                "image_url": {"url": "https://x/y.png", "detail": "low"},
                "cache_control": {"type": "ephemeral"},
            },
            Media(
                "image",
                "url",
                "https://x/y.png",
                detail="low",
                cache=CacheMark(f"{AT}/cache_control"),
                path=AT,
            ),
        ),
        (
            {"type": "image_url", "image_url": "data:image/png;base64,iVBOR"},
            Media("image", "url", "data:image/png;base64,iVBOR", path=AT),
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
    assert parts(block) == (part,)


@pytest.mark.parametrize("kind", ["thinking", "redacted_thinking"])
def test_a_wrapped_signature_is_unwrapped(kind: str) -> None:
    signature = Signature(
        "openai_responses", {"type": "reasoning", "id": "rs_1", "encrypted_content": "e"}, "gpt"
    )
    text = SIGNER.wrap(signature)
    block = {"thinking": {"thinking": "hm", "signature": text}, "redacted_thinking": {"data": text}}[kind]
    (part,) = parts({"type": kind, **block})
    assert part.signature == signature


def test_unsigned_thinking_keeps_its_extra_fields() -> None:
    mark = {"type": "ephemeral"}
    [part] = parts({"type": "thinking", "thinking": "a", "x": 1, "cache_control": mark})
    assert part == Reasoning("a", None, extra={"cache_control": mark, "x": 1}, path="/messages/0/content/0")


@pytest.mark.parametrize("image", [None, [], {}, {"url": 1}])
def test_an_image_without_a_url_is_refused(image: Any) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        parts({"type": "image_url", "image_url": image})
    assert caught.value.path.startswith(f"{AT}/image_url")


def test_a_cache_mark_of_an_unknown_type() -> None:
    [part] = parts({"type": "text", "text": "a", "cache_control": {"type": "odd"}})
    assert part.extra == {"cache_control": {"type": "odd"}}


ODD = {"x_odd": 1}
USE = {"type": "tool_use", "id": "c", "name": "f", "input": {"a": 1}}
RESULT = {"type": "tool_result", "tool_use_id": "c", "content": "a"}


SHORTCUTS: list[Any] = [
    {"type": "text", "text": "a"},
    USE,
    {**USE, "input": {}},
    RESULT,
    {**RESULT, "content": ""},
    {**RESULT, "content": []},
    {**RESULT, "content": [{"type": "text", "text": "a"}]},
    {**RESULT, "is_error": True},
]


def test_shortcuts_read_the_same_as_the_general_way(subtests: pytest.Subtests) -> None:
    for common in SHORTCUTS:
        with subtests.test(common=common):
            [short], [long] = parts(common), parts({**common, **ODD})
            assert short.extra is None
            assert long.extra == ODD
            assert short == msgspec.structs.replace(long, extra=None)


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({**USE, "id": 1}, "id"),
        ({**USE, "name": None}, "name"),
        ({**USE, "input": "x"}, "input"),
        ({**RESULT, "tool_use_id": 1}, "tool_use_id"),
        ({"type": 1}, "type"),
    ],
)
def test_shortcuts_report_the_same_errors(wrong: Any, field: str) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        parts(wrong)
    assert caught.value.path == f"/messages/0/content/0/{field}"


def test_a_search_of_the_vendor_is_an_opaque_part() -> None:
    use = {"type": "server_tool_use", "id": "srvtoolu_01", "name": "web_search", "input": {}}
    [part] = parts(use, role="assistant")
    assert isinstance(part, OpaquePart)


WRAPPED = SIGNER.wrap(Signature("dragoman", {"summary": "All is well."}))
SUMMARY = {"type": "compaction", "content": "All is well.", "encrypted_content": WRAPPED}
SUMMARY_TEXT = "Summary of the conversation so far:\nAll is well."


def roles(*messages: Any, **fields: Any) -> list[tuple[str, list[str]]]:
    read_messages = read(*messages, **fields).messages
    return [(message.role, [part.text for part in message.parts]) for message in read_messages]  # type: ignore[union-attr, misc]


HELLO = {"role": "user", "content": "Hello"}


@pytest.mark.parametrize(
    ("messages", "read_as"),
    [
        (
            [HELLO, {"role": "assistant", "content": [SUMMARY]}, HELLO],
            [("user", [SUMMARY_TEXT]), ("user", ["Hello"])],
        ),
        (
            [
                HELLO,
                {
                    "role": "assistant",
                    "content": [{"type": "text", "text": "a"}, SUMMARY, {"type": "text", "text": "b"}],
                },
            ],
            [("user", [SUMMARY_TEXT]), ("assistant", ["b"])],
        ),
        (
            [{"role": "assistant", "content": [SUMMARY]}, HELLO, {"role": "assistant", "content": [SUMMARY]}],
            [("user", [SUMMARY_TEXT])],
        ),
        (
            [
                HELLO,
                {"role": "assistant", "content": [{**SUMMARY, "encrypted_content": WRAPPED + "x"}]},
            ],
            [("user", ["Hello"]), ("assistant", ["All is well."])],
        ),
    ],
)
def test_a_summary_replaces_everything_before_it(messages: Any, read_as: Any) -> None:
    assert roles(*messages, system="Be brief.") == [("system", ["Be brief."]), *read_as]


def test_a_summary_keeps_its_cache_mark() -> None:
    block = {**SUMMARY, "cache_control": {"type": "ephemeral"}}
    [part] = parts(block, role="assistant")
    assert part.cache is not None
