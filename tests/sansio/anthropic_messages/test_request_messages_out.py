"""Messages of other protocols, written as turns."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from core.passes import fit_and_write

from dragoman._ir.events import Signature, ToolKind
from dragoman._ir.losses import Ledger
from dragoman._ir.request import (
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
from dragoman._ir.tools import CacheMark
from dragoman._wire.json import decode, encode
from dragoman.protocols.anthropic_messages import SPEC
from dragoman.protocols.anthropic_messages.capabilities import MessagesCapabilities as Capabilities

NAME = "anthropic_messages"
USER = Message("user", (Text("Hi"),), "/m/0")


def write(
    *messages: Message, capabilities: Capabilities = Capabilities(), protocol: str = "other"
) -> tuple[Any, Any]:
    """Return the body, and the ledger as a list of (code, path)."""
    ledger = Ledger()
    body = decode(encode(fit_and_write(SPEC, Request(protocol, "m", messages), capabilities, ledger)))
    return body, [(loss.code.value, loss.path) for loss in ledger]


def turns(
    *messages: Message, capabilities: Capabilities = Capabilities(), protocol: str = "other"
) -> tuple[Any, Any]:
    body, losses = write(*messages, capabilities=capabilities, protocol=protocol)
    return body["messages"], losses


def text_block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def user(*parts: Part, path: str = "/u") -> Message:
    return Message("user", parts, path)


def assistant(*parts: Part) -> Message:
    return Message("assistant", parts, "/a")


def call(call_id: str, text: str = "{}") -> ToolCall:
    return ToolCall(call_id, "f", text, path=f"/{call_id}")


def result(call_id: str, *parts: Any) -> ToolResult:
    return ToolResult(call_id, parts or (Text("ok"),), path=f"/r/{call_id}")


def use(call_id: str, written: Any = None) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": "f", "input": written or {}}


def tool_result(call_id: str) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": "ok"}


SYSTEM = Message("system", (Text("One."),), "/s/0")
DEVELOPER = Message("developer", (Text("Two.", CacheMark("/c", "long")),), "/s/1")


def test_system_messages_have_only_text() -> None:
    odd = Message(
        "system",
        (Text(" "), Refusal("no", path="/p"), OpaquePart("x", "odd", {}, "/o"), Text("One.")),
        "/s",
    )
    body, losses = write(odd, USER)
    assert body["system"] == "One."
    assert losses == [("repaired", ""), ("dropped", "/p"), ("unknown_kind", "/o")]


def test_a_system_message_without_others_becomes_a_user_turn() -> None:
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
                assistant(Text("A")),
                assistant(Text("\n\n", path="/x")),
                assistant(Text("B"), Text(" "), call("1"), Text(" ", path="/y")),
                user(result("1"), Text("\n", path="/z")),
            ],
            [
                {"role": "user", "content": "Hi"},
                {
                    "role": "assistant",
                    "content": [{"type": "text", "text": "A\n\n"}, {"type": "text", "text": "B "}, use("1")],
                },
                {
                    "role": "user",
                    "content": [{"type": "tool_result", "tool_use_id": "1", "content": "ok"}],
                },
            ],
            [("repaired", "/y"), ("repaired", "/z")],
            id="blanks between texts stay, with the text before them",
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
                {
                    "role": "user",
                    "content": [tool_result("1"), tool_result("2"), {"type": "text", "text": "y"}],
                },
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
                        "native",
                        Signature(NAME, {"type": "thinking", "thinking": "native", "signature": "s"}),
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
                        {"type": "thinking", "thinking": "native", "signature": "s"},
                        {"type": "text", "text": "no"},
                    ],
                },
            ],
            [
                ("foreign_signature", "/t/0"),
                ("dropped", "/t/1"),
                ("altered", "/t/3"),
                ("dropped", "/t/4"),
                ("dropped", "/t/5"),
                ("unknown_kind", "/t/6"),
            ],
            id="assistant blocks",
        ),
        pytest.param(
            [user(Text("a", CacheMark("/c", "short"), citations=[1], native={"odd": 1}, path="/x"))],
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
    ("text", "written", "losses"),
    [
        ('{"b": 1.50, "a": 2}', b'{"b": 1.50, "a": 2}', []),
        ("", b"{}", []),
        (" ", b"{}", []),
        ("{oops", b'{"_raw":"{oops"}', [("altered", "/1")]),
        ("[1]", b'{"_raw":"[1]"}', [("altered", "/1")]),
    ],
)
def test_tool_input_has_the_characters_of_the_model(text: str, written: bytes, losses: Any) -> None:
    ledger = Ledger()
    request = Request("other", "m", (USER, assistant(call("1", text)), user(result("1"))))
    raw = encode(fit_and_write(SPEC, request, Capabilities(), ledger))
    assert b'"input":' + written + b"}" in raw
    assert [(loss.code.value, loss.path) for loss in ledger] == losses


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


def test_a_call_of_a_custom_tool() -> None:
    custom = msgspec.structs.replace(call("1", '{"input": "x"}'), kind=ToolKind.CUSTOM)
    assert turns(USER, assistant(custom), user(result("1")))[0][1]["content"] == [use("1", {"input": "x"})]


def after_call(protocol: str, *parts: Part) -> Any:
    """The after_call for a call and a message of these parts."""
    call = Message("assistant", (ToolCall("c", "f", "{}"),), "/a")
    request = Request(protocol, "m", (call, Message("user", parts, "/u")))
    return decode(encode(fit_and_write(SPEC, request, Capabilities(), Ledger())))["messages"][1:]


@pytest.mark.parametrize("inner", [(Text("a"),), (Text(" "),), (Text("a"), Text("b")), (Text(""),), ()])
def test_the_shortcut_for_results_writes_the_same_as_the_general_way(inner: Any) -> None:
    result = ToolResult("c", inner)
    [short], [long] = (
        after_call("other", result),
        after_call("other", msgspec.structs.replace(result, is_error=False)),
    )
    assert long["content"] == [{**short["content"][0], "is_error": False}]


def test_results_in_a_request_of_this_protocol() -> None:
    result = ToolResult("c", (Text("a"),))
    assert after_call("other", result) == after_call("anthropic_messages", result)


def test_a_call_in_a_user_message_of_this_protocol() -> None:
    assert after_call("anthropic_messages", ToolCall("d", "f", "{}")) == [
        {"role": "user", "content": [{"type": "tool_use", "id": "d", "name": "f", "input": {}}]}
    ]


def write_system(mid_system: bool, protocol: str, *parts: Any) -> tuple[Any, list[tuple[str, str]]]:
    hello = Message("user", (Text("Hi"),), "/m")
    ledger = Ledger()
    request = Request(protocol, "m", (hello, Message("system", parts, "/s")))
    body = decode(encode(fit_and_write(SPEC, request, Capabilities(mid_system=mid_system), ledger)))
    return body["messages"][-1], [(loss.code.value, loss.path) for loss in ledger]


ADDED = OpaquePart(
    NAME,
    "tool_addition",
    {"type": "tool_addition", "tool": {"type": "tool_reference", "name": "Zap"}},
    "/z",
    "The tool Zap can be called now.",
)


def test_a_change_of_tools_in_a_system_message() -> None:
    turn, losses = write_system(True, NAME, Text("Now."), ADDED)
    assert turn == {"role": "system", "content": [text_block("Now."), ADDED.native]}
    assert losses == []


def test_a_change_of_tools_as_text_for_a_model_without_system_messages() -> None:
    without_text = OpaquePart(NAME, "odd", {"type": "odd"}, "/o")
    turn, losses = write_system(False, NAME, ADDED, without_text)
    expected = "<system>\nThe tool Zap can be called now.\n</system>"
    assert turn["content"] == [text_block("Hi"), text_block(expected)]
    assert losses == [("altered", "/s"), ("dropped", "/o")]


def test_an_opaque_part_without_text_is_left_out() -> None:
    without_text = OpaquePart("other", "odd", {"type": "odd"}, "/o")
    assert write_system(False, "other", without_text)[1] == [("altered", "/s"), ("dropped", "/o")]
    for_the_server = OpaquePart("other", "k", {}, "/o", text="")
    assert write_system(False, "other", for_the_server)[1] == [("altered", "/s"), ("repaired", "/o")]
    turn, losses = write_system(True, "other", without_text)
    assert (turn, losses) == ({"role": "user", "content": "Hi"}, [("unknown_kind", "/o")])
