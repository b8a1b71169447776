"""Requests of other protocols, written for a Chat upstream: messages and their order."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from chat_requests import assistant, messages_of, text_part, user, write
from core.passes import fit_and_write

from dragoman._ir.events import ToolKind
from dragoman._ir.losses import Ledger
from dragoman._ir.request import (
    Media,
    Message,
    OpaquePart,
    Part,
    Reasoning,
    Request,
    Text,
    ToolCall,
    ToolResult,
)
from dragoman._ir.tools import CacheMark
from dragoman._wire.exceptions import RequestRefused
from dragoman.protocols.openai_chat import SPEC
from dragoman.protocols.openai_chat.capabilities import ChatCapabilities as Capabilities

CHAT = "openai_chat"


def result(call_id: str, *parts: Any, **fields: Any) -> ToolResult:
    return ToolResult(call_id, parts, path=f"/r/{call_id}", **fields)


IMAGE = Media("image", "base64", "QUJD", "image/png", path="/i")
IMAGE_PART = {"type": "image_url", "image_url": {"url": "data:image/png;base64,QUJD"}}


TEXTS = (
    Message("system", (Text("a"), Text("b"))),
    user(Text("hi"), Text("there")),
    assistant(Text("x"), Text("y")),
    assistant(Reasoning("", path="/h"), Text("z"), ToolCall("c", "f", "{}")),
    user(ToolResult("c", (Text("1"), Text("2"))), Text("and"), Text("now")),
    user(Text("?")),
)

CALLED = [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]


def test_texts_are_one_string_in_every_role() -> None:
    # "Failed to deserialize the JSON body: messages[7]: invalid type: sequence, expected a string"
    out, losses = messages_of(*TEXTS, user())
    assert out == [
        {"role": "system", "content": "a\n\nb"},
        {"role": "user", "content": "hi\n\nthere"},
        {"role": "assistant", "content": "x\n\ny\n\nz", "tool_calls": CALLED},
        {"role": "tool", "tool_call_id": "c", "content": "1\n\n2"},
        {"role": "user", "content": "and\n\nnow\n\n?"},
    ]
    assert losses == []


@pytest.mark.parametrize(
    "accepts", [{"text_content": "parts"}, {"cache_marks": "breakpoint"}, {"cache_marks": "cache_control"}]
)
def test_texts_stay_parts_where_the_upstream_accepts_them(accepts: dict[str, Any]) -> None:
    capabilities = Capabilities(**accepts)
    out, losses = messages_of(*TEXTS, capabilities=capabilities)
    parts = [[text_part(text) for text in texts] for texts in ("ab", ["hi", "there"], "xyz", "12")]
    assert [message["content"] for message in out[:4]] == parts
    assert out[4]["content"] == [text_part("and"), text_part("now"), text_part("?")]
    assert losses == []
    plain = [user(Text("hi")), assistant(Text("a"), Text("b")), user(Text("c")), user(Text("d"))]
    out, _ = messages_of(*plain, capabilities=capabilities)
    assert [message["content"] for message in out] == [
        "hi",
        [text_part("a"), text_part("b")],
        [text_part("c"), text_part("d")],
    ]


def test_an_empty_result_adds_no_part_to_the_text_behind_it() -> None:
    capabilities = Capabilities(cache_marks="breakpoint", turn_order="no_user_after_tool")
    result = ToolResult("c", (Text(""),))
    out, _ = messages_of(
        assistant(ToolCall("c", "f", "{}")), user(result, Text("and?")), capabilities=capabilities
    )
    assert out[-1] == {"role": "tool", "tool_call_id": "c", "content": "<user>\nand?\n</user>"}


def test_texts_with_an_image_stay_parts() -> None:
    out, losses = messages_of(user(Text("a"), IMAGE, Text("b")), user(Text("c")))
    assert out == [{"role": "user", "content": [text_part("a"), IMAGE_PART, text_part("b"), text_part("c")]}]
    assert losses == []


@pytest.mark.parametrize("param", ["previous_response_id", "conversation", "prompt", "background"])
def test_requests_that_need_a_store_are_refused(param: Any) -> None:
    with pytest.raises(RequestRefused) as caught:
        write(params={param: "x"}, param_paths={param: f"/{param}"})
    assert (caught.value.status, caught.value.path, caught.value.code) == (
        400,
        f"/{param}",
        "unsupported_value",
    )


def test_streams_always_request_usage() -> None:
    body, _ = write(stream=True, include_usage=False)
    assert (body["stream"], body["stream_options"]) == (True, {"include_usage": True})


# -- the order of turns -----------------------------------------------------------------------------------


RESULTS = (
    user(Text("go")),
    assistant(ToolCall("c", "f", "{}")),
    user(result("c", Text("r")), Text("note")),
    Message("system", (Text("rule"),), "/s"),
)

NO_USER = Capabilities(turn_order="no_user_after_tool")
ALTERNATE = Capabilities(turn_order="alternate")
INSIDE = "r\n\n<user>\nnote\n</user>\n\n<system>\nrule\n</system>"


def roles(out: list[Any]) -> list[str]:
    return [message["role"] for message in out]


def test_user_text_after_results_is_a_message() -> None:
    out, losses = messages_of(*RESULTS)
    assert roles(out) == ["user", "assistant", "tool", "user"]
    assert (out[2]["content"], out[3]["content"]) == ("r", "note\n\n<system>\nrule\n</system>")
    assert losses == [("altered", "/s/role")]


@pytest.mark.parametrize("capabilities", [NO_USER, ALTERNATE])
def test_user_text_is_merged_into_results_where_turns_alternate(
    capabilities: Capabilities,
) -> None:
    # "Unexpected role 'user' after role 'tool'"
    out, losses = messages_of(*RESULTS, assistant(Text("ok")), user(Text("more")), capabilities=capabilities)
    assert roles(out) == ["user", "assistant", "tool", "assistant", "user"]
    assert out[2]["content"] == INSIDE
    assert losses == [("altered", "/s/role"), ("altered", "/u"), ("altered", "/s")]


def test_an_image_after_results_gets_an_assistant_turn_before_it() -> None:
    out, losses = messages_of(
        *RESULTS[:2],
        user(result("c", Text("r"), IMAGE), Text("note")),
        user(Text("now")),
        capabilities=NO_USER,
    )
    assert roles(out) == ["user", "assistant", "tool", "assistant", "user"]
    assert out[2]["content"] == "r\n\n[image: see the next message]"
    assert out[3]["content"] == "I have the results."
    assert out[4]["content"] == [IMAGE_PART, text_part("note"), text_part("now")]
    assert losses == [("altered", "/i"), ("repaired", "/u")]


@pytest.mark.parametrize(
    ("capabilities", "before", "expected"),
    [
        (NO_USER, (), ["assistant", "user"]),
        (ALTERNATE, (), ["user", "assistant", "user"]),
        (ALTERNATE, (Message("system", (Text("s"),)),), ["system", "user", "assistant", "user"]),
        (ALTERNATE, (user(Text("hi")),), ["user", "assistant", "user"]),
    ],
)
def test_a_user_turn_is_first_where_turns_alternate(
    capabilities: Capabilities, before: tuple[Message, ...], expected: list[str]
) -> None:
    out, losses = messages_of(*before, assistant(Text("a")), user(Text("b")), capabilities=capabilities)
    assert roles(out) == expected
    added = len(expected) > len(before) + 2
    assert losses == ([("repaired", "/a")] if added else [])
    assert not added or out[-3] == {"role": "user", "content": "(The assistant speaks first.)"}


def test_i1_b4_results_follow_their_calls_then_their_images_then_user_text() -> None:
    out, losses = messages_of(
        assistant(Text("look"), ToolCall("c1", "f", "{}")),
        assistant(ToolCall("c2", "f", "")),
        user(Text("before"), result("c1", Text("a"), IMAGE)),
        user(result("c2", IMAGE)),
        user(Text("after")),
    )
    assert out == [
        {
            "role": "assistant",
            "content": "look",
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}},
                {"id": "c2", "type": "function", "function": {"name": "f", "arguments": "{}"}},
            ],
        },
        {
            "role": "tool",
            "tool_call_id": "c1",
            "content": "a\n\n[image: see the next message]",
        },
        {"role": "tool", "tool_call_id": "c2", "content": "[image: see the next message]"},
        {"role": "user", "content": [IMAGE_PART, IMAGE_PART, text_part("before"), text_part("after")]},
    ]
    assert losses == [("altered", "/i")]


def test_errors_of_tools_get_a_prefix() -> None:
    out, losses = messages_of(
        user(
            result("a", Text("gone"), is_error=True),
            result("b", is_error=True),
            result("c", Text("fine"), is_error=False),
            result("d"),
        )
    )
    assert [message["content"] for message in out] == ["Error: gone", "Error", "fine", ""]
    assert losses == [("altered", "/r/a/is_error"), ("altered", "/r/b/is_error")]


def test_results_without_a_text_form_are_losses() -> None:
    document = Media("file", "text", "words", "text/plain", path="/d")
    out, losses = messages_of(
        user(
            result(
                "a",
                OpaquePart("other", "tool_reference", {}, "/o"),
                document,
            )
        )
    )
    assert out == [{"role": "tool", "tool_call_id": "a", "content": "words"}]
    assert losses == [("unknown_kind", "/o")]


def results(*parts: Any) -> tuple[Message, Message]:
    return (
        assistant(ToolCall("c1", "f", "{}"), ToolCall("c2", "f", "{}")),
        Message("user", (ToolResult("c1", parts, path="/r"), ToolResult("c2", (Text("b"),)), Text("go on")), "/u"),
    )  # fmt: skip


def test_i1_images_stay_in_results_where_the_upstream_takes_them() -> None:
    file = Media("file", "base64", "QQ==", "application/pdf", "a.pdf", path="/f")
    out, losses = messages_of(*results(IMAGE, file), capabilities=Capabilities(tool_images=True))
    assert out[1]["content"] == [IMAGE_PART, {"type": "text", "text": "[file: see the next message]"}]
    assert [part["type"] for part in out[3]["content"]] == ["file", "text"]
    assert losses == [("altered", "/f")]


# -- system messages --------------------------------------------------------------------------------------


def test_system_text_keeps_its_position() -> None:
    late = (
        Message("system", (Text("a"),), "/0"),
        Message("developer", (Text("b"),), "/1"),
        user(Text("hi")),
        Message("developer", (Text("c"), IMAGE), "/3"),
        assistant(Text("ok")),
        Message("system", (Text("d"),), "/5"),
    )
    out, losses = messages_of(*late)
    # Servers that take no later system message take no second one either.
    assert out[0] == {"role": "system", "content": "a\n\nb"}
    assert roles(out[1:]) == ["user", "assistant", "user"]
    assert out[1]["content"] == [text_part("hi"), text_part("<system>\nc\n</system>"), IMAGE_PART]
    assert out[3]["content"] == "<system>\nd\n</system>"
    assert losses == [("altered", "/3/role"), ("altered", "/5/role")]
    out, losses = messages_of(*late, capabilities=Capabilities(mid_system=True, developer_role=True))
    assert [message["role"] for message in out] == [
        "system",
        "developer",
        "user",
        "developer",
        "assistant",
        "system",
    ]
    assert losses == []


def system(*parts: Part, **fields: Any) -> Message:
    return Message("system", parts, "/s", **fields)


MARKS = Capabilities(cache_marks="breakpoint")
POINT = {"mode": "explicit"}


def mark(n: int) -> CacheMark:
    return CacheMark(f"/mark/{n}")


@pytest.mark.parametrize(
    ("messages", "capabilities", "expected"),
    [
        ([system(Text("a")), system(Text("b"))], Capabilities(), ["a\n\nb"]),
        (
            [system(Text("a", mark(0))), system(Text("b"))],
            MARKS,
            [
                [
                    {"type": "text", "text": "a", "prompt_cache_breakpoint": POINT},
                    {"type": "text", "text": "b"},
                ]
            ],
        ),
        ([system(Text("a")), system(Text("b"))], Capabilities(mid_system=True), ["a", "b"]),
        ([system(Text("a"), name="x"), system(Text("b"))], Capabilities(), ["a", "b"]),
        ([system(Text("a")), system(Text("b"), name="x")], Capabilities(), ["a", "b"]),
        (
            [system(Text("a")), Message("developer", (Text("b"),))],
            Capabilities(developer_role=True),
            ["a\n\nb"],
        ),
    ],
)
def test_h13_system_messages_at_the_head_are_merged(
    messages: Any, capabilities: Capabilities, expected: Any
) -> None:
    out, _ = messages_of(*messages, capabilities=capabilities)
    assert [message["content"] for message in out] == expected


def test_a_developer_message_after_a_system_message_is_merged_into_it() -> None:
    # "invalid chat setting (2013)": some hosts of many models pass messages on unchanged.
    developer = Message("developer", (Text("b"),), "/messages/1")
    out, losses = messages_of(system(Text("a")), developer, capabilities=Capabilities(developer_role=True))
    assert out == [{"role": "system", "content": "a\n\nb"}]
    assert losses == [("altered", "/messages/1/role")]
    out, losses = messages_of(developer, system(Text("a")), capabilities=Capabilities(developer_role=True))
    assert out == [{"role": "developer", "content": "b\n\na"}]
    assert losses == [("altered", "/s/role")]


# -- shortcuts --------------------------------------------------------------------------------------------


def written(*messages: Message) -> tuple[Any, list[str]]:
    ledger = Ledger()
    body = fit_and_write(SPEC, Request("other", "m", messages), Capabilities(), ledger)
    for message in body["messages"]:
        message.pop("name", None)
    return body["messages"], [loss.path for loss in ledger]


MARK = CacheMark("/mark")


SHORTCUTS: list[tuple[Part, ...]] = [
    (Text("a"),),
    (Text(""),),
    (Text("a", cache=MARK),),
    (Text("a", citations=[{}]),),
    (Text("a"), Text("b")),
    (ToolCall("c", "f", ""),),
    (Text("a"), ToolCall("c", "f", "{}"), ToolCall("d", "f", "x", ToolKind.CUSTOM)),
    (ToolCall("c", "f", "{}"), Text("a")),
    (ToolCall("c", "f", "{}", cache=MARK),),
    (ToolResult("c", (Text("a"),)),),
    (ToolResult("c", (Text(""),)),),
    (ToolResult("c", ()),),
    (ToolResult("c", (Text("a"),), is_error=True),),
    (ToolResult("c", (Text("a"),), cache=MARK),),
    (ToolResult("c", (Text("a", cache=MARK),)),),
    (),
]


def test_the_shortcuts_write_the_same(subtests: pytest.Subtests) -> None:
    for role in ["user", "assistant"]:
        for parts in SHORTCUTS:
            with subtests.test(role=role, parts=parts):
                message = Message(role, parts, "/m")
                assert written(message) == written(msgspec.structs.replace(message, name="n"))


def test_several_messages_between_two_turns_use_the_shortcut() -> None:
    result = Message("user", (ToolResult("c", (Text("a"),)),), "/m")
    assistant = Message("user", (Text("b"),), "/n")
    assert written(assistant, result) == (
        [{"role": "tool", "tool_call_id": "c", "content": "a"}, {"role": "user", "content": "b"}],
        [],
    )
