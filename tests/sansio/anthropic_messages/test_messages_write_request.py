"""The request document -> bodies for an upstream."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import msgspec
import pytest

from dragoman._ir.events import Signature, ToolKind
from dragoman._ir.losses import Ledger
from dragoman._ir.request import (
    CacheMark,
    FunctionTool,
    Media,
    Message,
    OpaquePart,
    Part,
    Reasoning,
    Refusal,
    Request,
    Text,
    ToolCall,
    ToolResult,
)
from dragoman._ir.signatures import Signer
from dragoman._wire.exceptions import RemoteProtocolError
from dragoman._wire.json import decode, encode
from dragoman.codec import Capabilities
from dragoman.protocols.anthropic_messages import SPEC

NAME = "anthropic_messages"
USER = Message("user", (Text("Hi"),), "/m/0")
TOOL = FunctionTool("f", "d", {"type": "object", "properties": {}}, path="/tools/0")


def write(
    *messages: Message, capabilities: Capabilities = Capabilities(), protocol: str = "other", **fields: Any
) -> tuple[Any, Any]:
    """The body, and the ledger as a list of (code, path)."""
    ledger = Ledger()
    request = Request(protocol, "m", messages or (USER,), {}, **fields)
    body = decode(encode(SPEC.write_request(request, capabilities, ledger)))
    return body, [(loss.code.value, loss.path) for loss in ledger]


def turns(
    *messages: Message, capabilities: Capabilities = Capabilities(), protocol: str = "other"
) -> tuple[Any, Any]:
    body, losses = write(*messages, capabilities=capabilities, protocol=protocol)
    return body["messages"], losses


def user(*parts: Part, path: str = "/u") -> Message:
    return Message("user", parts, path)


def assistant(*parts: Part) -> Message:
    return Message("assistant", parts, "/a")


def call(call_id: str, text: str = "{}") -> ToolCall:
    return ToolCall(call_id, "f", text, path=f"/{call_id}")


def result(call_id: str, *parts: Any) -> ToolResult:
    return ToolResult(call_id, parts or (Text("ok"),), path=f"/r/{call_id}")


def use(call_id: str, given: Any = None) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": "f", "input": given or {}}


def answer(call_id: str) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": "ok"}


def test_the_smallest_request() -> None:
    assert write() == (
        {"model": "m", "max_tokens": 32000, "messages": [{"role": "user", "content": "Hi"}]},
        [],
    )


SYSTEM = Message("system", (Text("One."),), "/s/0")
DEVELOPER = Message("developer", (Text("Two.", CacheMark("/c", "long")),), "/s/1")


def test_leading_system_messages_keep_their_blocks_and_marks() -> None:
    body, losses = write(SYSTEM, DEVELOPER, USER)
    assert body["system"] == [
        {"type": "text", "text": "One."},
        {"type": "text", "text": "Two.", "cache_control": {"type": "ephemeral", "ttl": "1h"}},
    ]
    assert losses == []


def test_one_plain_system_text_is_a_string() -> None:
    assert write(SYSTEM, USER)[0]["system"] == "One."


def test_a_system_message_takes_text_alone() -> None:
    odd = Message(
        "system",
        (Text(" "), Refusal("no", path="/p"), OpaquePart("x", "odd", {}, "/o"), Text("One.")),
        "/s",
        name="bob",
    )
    body, losses = write(odd, USER)
    assert body["system"] == "One."
    assert losses == [("dropped", "/s/name"), ("repaired", ""), ("dropped", "/p"), ("unknown_kind", "/o")]


def test_system_alone_becomes_the_question() -> None:
    body, losses = write(SYSTEM, DEVELOPER, capabilities=Capabilities(mid_system=True))
    assert body["system"] == "One."
    assert [turn["role"] for turn in body["messages"]] == ["user"]
    assert body["messages"][0]["content"][0]["text"] == "<system>\nTwo.\n</system>"
    assert losses == [("altered", "/s/1")]


@pytest.mark.parametrize(
    ("mid_system", "written", "losses"),
    [
        (
            False,
            [
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": "Hi"},
                        {"type": "text", "text": "<system>\nOne.\n</system>"},
                        {"type": "text", "text": "Hi"},
                    ],
                }
            ],
            [("altered", "/s/0"), ("altered", "/e"), ("repaired", "/e/0")],
        ),
        (
            True,
            [
                {"role": "user", "content": "Hi"},
                {"role": "system", "content": "One."},
                {"role": "user", "content": "Hi"},
            ],
            [("repaired", "/e/0")],
        ),
    ],
)
def test_a_system_message_in_mid_conversation(mid_system: bool, written: Any, losses: Any) -> None:
    empty = Message("system", (Text(" ", path="/e/0"),), "/e")
    assert turns(USER, SYSTEM, empty, USER, capabilities=Capabilities(mid_system=mid_system)) == (
        written,
        losses,
    )


@pytest.mark.parametrize(
    ("messages", "written", "losses"),
    [
        pytest.param(
            [user(Text("a")), user(Text("b")), assistant(Text("c")), assistant(Text("d"))],
            [
                {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
                {
                    "role": "assistant",
                    "content": [{"type": "text", "text": "c"}, {"type": "text", "text": "d"}],
                },
            ],
            [],
            id="roles alternate",
        ),
        pytest.param(
            [
                user(Text("a"), Text("", path="/x")),
                assistant(Text(" \n", path="/y")),
                assistant(Refusal("", path="/z")),
                user(Text("b")),
            ],
            [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}],
            [("repaired", "/x"), ("repaired", "/y"), ("altered", "/z")],
            id="B14 texts of blanks and their messages are left out",
        ),
        pytest.param(
            [
                USER,
                assistant(Text("x"), call("1"), call("2")),
                user(result("1")),
                user(result("2")),
                user(Text("y")),
            ],
            [
                {"role": "user", "content": "Hi"},
                {"role": "assistant", "content": [{"type": "text", "text": "x"}, use("1"), use("2")]},
                {"role": "user", "content": [answer("1"), answer("2"), {"type": "text", "text": "y"}]},
            ],
            [],
            id="B3 all results in one turn",
        ),
        pytest.param(
            [assistant(Text("first"))],
            [{"role": "assistant", "content": "first"}],
            [],
            id="the assistant may begin",
        ),
        pytest.param(
            [
                USER,
                assistant(
                    Reasoning("foreign", Signature("openai_responses", {}), path="/t/0"),
                    Reasoning("unsigned", path="/t/1"),
                    Reasoning(
                        "own",
                        Signature(NAME, {"type": "thinking", "thinking": "own", "signature": "s"}),
                        path="/t/2",
                    ),
                    Refusal("no", path="/t/3"),
                    Media("image", "url", "https://x", path="/t/4"),
                    ToolResult("9", (), path="/t/5"),
                    OpaquePart("x", "odd", {}, "/t/6"),
                ),
            ],
            [
                {"role": "user", "content": "Hi"},
                {
                    "role": "assistant",
                    "content": [
                        {"type": "thinking", "thinking": "own", "signature": "s"},
                        {"type": "text", "text": "no"},
                    ],
                },
            ],
            [
                ("foreign_seal", "/t/0"),
                ("dropped", "/t/1"),
                ("altered", "/t/3"),
                ("dropped", "/t/4"),
                ("dropped", "/t/5"),
                ("unknown_kind", "/t/6"),
            ],
            id="assistant blocks",
        ),
        pytest.param(
            [
                Message("user", (Text("a"),), "/n", name="bob"),
                Message("assistant", (Text("b"),), "/p", phase="x"),
            ],
            [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}],
            [("dropped", "/n/name"), ("dropped", "/p/phase")],
            id="names and phases",
        ),
        pytest.param(
            [user(Text("a", CacheMark("/c", "short"), citations=[1], extra={"odd": 1}, path="/x"))],
            [
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": "a", "cache_control": {"type": "ephemeral", "ttl": "5m"}},
                    ],
                }
            ],
            [("altered", "/x")],
            id="marks",
        ),
    ],
)
def test_turns(messages: list[Message], written: Any, losses: Any) -> None:
    assert turns(*messages) == (written, losses)


@pytest.mark.parametrize(
    ("text", "given", "losses"),
    [
        ('{"b": 1.50, "a": 2}', b'{"b": 1.50, "a": 2}', []),
        ("", b"{}", []),
        (" ", b"{}", []),
        ("{oops", b'{"_raw":"{oops"}', [("altered", "/1")]),
        ("[1]", b'{"_raw":"[1]"}', [("altered", "/1")]),
    ],
)
def test_tool_input_is_the_text_that_the_model_wrote(text: str, given: bytes, losses: Any) -> None:
    ledger = Ledger()
    request = Request("other", "m", (USER, assistant(call("1", text)), user(result("1"))), {})
    raw = encode(SPEC.write_request(request, Capabilities(), ledger))
    assert b'"input":' + given + b"}" in raw
    assert [(loss.code.value, loss.path) for loss in ledger] == losses


PDF = b64encode(b"%PDF-1.7").decode()
NOTE = b64encode("Grüße".encode()).decode()


@pytest.mark.parametrize(
    ("part", "block", "losses"),
    [
        (
            Media("image", "base64", "AAAA", "image/JPG", detail="high", path="/i"),
            {"type": "image", "source": {"type": "base64", "media_type": "image/jpeg", "data": "AAAA"}},
            [("altered", "/i")],
        ),
        (
            Media("image", "base64", "iVBORw0KGgoAAA", detail="auto"),
            {
                "type": "image",
                "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgoAAA"},
            },
            [],
        ),
        (
            Media("image", "url", "data:image/gif;base64,R0lGOD"),
            {"type": "image", "source": {"type": "base64", "media_type": "image/gif", "data": "R0lGOD"}},
            [],
        ),
        (
            Media("image", "url", "https://x/y.png", cache=CacheMark("/c")),
            {
                "type": "image",
                "source": {"type": "url", "url": "https://x/y.png"},
                "cache_control": {"type": "ephemeral"},
            },
            [],
        ),
        (
            Media("file", "base64", PDF, filename="a.pdf"),
            {
                "type": "document",
                "source": {"type": "base64", "media_type": "application/pdf", "data": PDF},
                "title": "a.pdf",
            },
            [],
        ),
        (
            Media("file", "base64", f"data:application/pdf;base64,{PDF}"),
            {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": PDF}},
            [],
        ),
        (
            Media("file", "base64", NOTE, "text/plain", context="c", citations={"enabled": True}),
            {
                "type": "document",
                "source": {"type": "text", "media_type": "text/plain", "data": "Grüße"},
                "context": "c",
                "citations": {"enabled": True},
            },
            [],
        ),
        (
            Media("file", "base64", NOTE, "text/csv", path="/f"),
            {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "Grüße"}},
            [("altered", "/f")],
        ),
        (
            Media("file", "text", "plain"),
            {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "plain"}},
            [],
        ),
        (
            Media("file", "url", "https://x/y.pdf"),
            {"type": "document", "source": {"type": "url", "url": "https://x/y.pdf"}},
            [],
        ),
    ],
)
def test_media(part: Media, block: Any, losses: Any) -> None:
    assert turns(user(part)) == ([{"role": "user", "content": [block]}], losses)


@pytest.mark.parametrize(
    ("part", "words"),
    [
        (Media("audio", "base64", "AAAA", path="/x"), "takes no audio"),
        (Media("image", "file_id", "file_1", path="/x"), "a file id is known only to the vendor"),
        (Media("image", "url", "ftp://x", path="/x"), "must begin with https"),
        (
            Media("image", "url", "data:image/png,AAAA", path="/x"),
            "must have the form data:<type>;base64,<data>",
        ),
        (Media("image", "base64", "AAAA", "image/bmp", path="/x"), "image/bmp is not one of"),
        (Media("image", "base64", "AAAA", path="/x"), r"\(none\) is not one of"),
        (Media("file", "base64", "AAAA", "application/zip", path="/x"), "neither PDF nor text"),
        (Media("file", "base64", "AAA", "text/plain", path="/x"), "not base64 of UTF-8 text"),
    ],
)
def test_media_that_the_api_would_refuse(part: Media, words: str) -> None:
    with pytest.raises(RemoteProtocolError, match=words) as caught:
        turns(user(part))
    assert (caught.value.status, caught.value.path, caught.value.code) == (
        400,
        "/x",
        "unsupported_value",
    )


def test_tool_results() -> None:
    image = Media("image", "url", "https://x/y.png")
    messages = [
        USER,
        assistant(call("1"), call("2")),
        user(
            ToolResult("1", (Text("see"), image), is_error=True, cache=CacheMark("/c"), path="/r/1"),
            ToolResult("2", (), path="/r/2"),
        ),
    ]
    assert turns(*messages)[0][2]["content"] == [
        {
            "type": "tool_result",
            "tool_use_id": "1",
            "content": [
                {"type": "text", "text": "see"},
                {"type": "image", "source": {"type": "url", "url": "https://x/y.png"}},
            ],
            "is_error": True,
            "cache_control": {"type": "ephemeral"},
        },
        {"type": "tool_result", "tool_use_id": "2"},
    ]


# --- there and back

MARK = {"type": "ephemeral", "ttl": "1h", "scope": "global"}
OWN: dict[str, Any] = {
    "model": "m",
    "max_tokens": 100,
    "system": [{"type": "text", "text": "One."}, {"type": "text", "text": "Two.", "cache_control": MARK}],
    "messages": [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "a", "citations": [{"type": "x"}], "new": 1},
                {
                    "type": "image",
                    "source": {"type": "file", "file_id": "f", "odd": 1},
                    "transformations": {"a": 1},
                },
                {"type": "search_result", "title": "t", "source": "s", "content": []},
            ],
        },
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "sig"},
                {"type": "redacted_thinking", "data": "d"},
                {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"q": 1}},
                {"type": "text", "text": "b"},
                {"type": "image", "source": {"type": "url", "url": "https://x"}},
                {
                    "type": "tool_use",
                    "id": "t1",
                    "name": "f",
                    "input": {"z": 1, "a": [True]},
                    "caller": {"type": "code_execution_20260120", "tool_id": "s1"},
                    "cache_control": {"type": "ephemeral"},
                },
            ],
            "odd": "assistant",
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "t1",
                    "content": [{"type": "tool_reference", "tool_name": "x"}],
                    "is_error": False,
                    "toolset_name": "ts",
                }
            ],
            "odd": "user",
        },
        {
            "role": "system",
            "content": [
                {"type": "text", "text": "Now.", "cache_control": {"type": "ephemeral", "ttl": "5m"}}
            ],
            "output_config": {"effort": "low"},
        },
        {"role": "assistant", "content": "prefill"},
    ],
    "tools": [
        {"name": "f", "description": "d", "input_schema": {"anyOf": []}, "defer_loading": True},
        {"type": "web_search_20250305", "name": "web_search", "max_uses": 3},
    ],
    "tool_choice": {"type": "auto", "disable_parallel_tool_use": True, "odd": 1},
    "thinking": {"type": "enabled", "budget_tokens": 2048, "display": "omitted", "block_binding": {"a": 1}},
    "output_config": {
        "effort": "high",
        "format": {"type": "json_schema", "schema": {"type": "object"}, "odd": 1},
        "task_budget": {"total": 1},
    },
    "metadata": {"user_id": "u", "odd": 1},
    "stop_sequences": ["END"],
    "service_tier": "standard_only",
    "speed": "fast",
    "container": "c",
    "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
    "mcp_servers": [{"type": "url", "name": "n", "url": "https://x"}],
    "inference_geo": "eu",
    "cache_control": {"type": "ephemeral"},
    "diagnostics": {"previous_message_id": "m1"},
    "compaction": {"type": "summarize", "instructions": "Short."},
    "thread": {"type": "continue", "previous_message_id": "m0"},
    "stream": True,
    "nothing": None,
}


def round_trip(
    body: dict[str, Any], capabilities: Capabilities = Capabilities(mid_system=True)
) -> tuple[Any, Ledger]:
    ledger = Ledger()
    request = SPEC.read_request(body, Signer())
    return decode(encode(SPEC.write_request(request, capabilities, ledger))), ledger


def test_own_requests_come_back_whole() -> None:
    body, ledger = round_trip(OWN)
    assert body == OWN
    assert len(ledger) == 0


def test_own_efforts_in_mid_conversation_come_back() -> None:
    body = {
        "model": "m",
        "max_tokens": 1,
        "messages": [
            {"role": "user", "content": "a"},
            {"role": "system", "content": "Now.", "output_config": {"effort": "low"}},
            {"role": "user", "content": " "},
            {"role": "system", "output_config": {"effort": "max", "odd": 1}},
            {"role": "system", "content": "So."},
        ],
        "output_config": {"effort": "high"},
    }
    written, ledger = round_trip(body)
    assert written == body
    assert len(ledger) == 0


def test_own_sampling_settings_for_a_model_that_takes_none() -> None:
    body = {"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": "a"}], "temperature": 1}
    written, ledger = round_trip(body, Capabilities(sampling=False))
    assert "temperature" not in written
    assert [loss.path for loss in ledger] == ["/temperature"]


def test_own_effort_alone_comes_back() -> None:
    body = {
        "model": "m",
        "max_tokens": 1,
        "messages": [{"role": "user", "content": "a"}],
        "output_config": {"effort": "low"},
    }
    assert round_trip(body)[0] == body


@pytest.mark.parametrize("thinking", [{"type": "adaptive"}, {"type": "disabled"}, {"type": "between_tools"}])
def test_own_thinking_comes_back(thinking: Any) -> None:
    body = {
        "model": "m",
        "max_tokens": 1,
        "messages": [{"role": "user", "content": "a"}],
        "thinking": thinking,
    }
    assert round_trip(body)[0] == body


def test_own_oddities() -> None:
    body: dict[str, Any] = {
        "model": "m",
        "max_tokens": 1,
        "messages": [
            {"role": "system", "content": "First.", "odd": 1},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "gone", "content": "kept"}]},
            {
                "role": "assistant",
                "content": [{"type": "thinking", "thinking": "t", "signature": "s", "cache_control": MARK}],
            },
            {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "f", "input": {}}]},
        ],
    }
    written, ledger = round_trip(body)
    assert "system" not in written
    assert written["messages"] == [
        {"role": "system", "content": "First.", "odd": 1},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "gone", "content": "kept"}]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "t", "signature": "s"},
                {"type": "tool_use", "id": "t1", "name": "f", "input": {}},
            ],
        },
    ]
    assert [loss.path for loss in ledger] == ["/messages/2/content/0/cache_control"]


def test_nothing_is_asked() -> None:
    body = {"model": "m", "max_tokens": 1, "system": "Be brief.", "messages": []}
    assert round_trip(body)[0] == body


def test_a_custom_call_is_written_as_any_other() -> None:
    custom = msgspec.structs.replace(call("1", '{"input": "x"}'), kind=ToolKind.CUSTOM)
    assert turns(USER, assistant(custom), user(result("1")))[0][1]["content"] == [use("1", {"input": "x"})]
