"""Requests of other protocols, printed for a Chat upstream; and Chat's own, printed again."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import pytest

from dragoman._ir.events import Signature, ToolKind
from dragoman._ir.losses import Ledger, LossCode
from dragoman._ir.request import (
    CacheMark,
    CustomTool,
    FunctionTool,
    Grammar,
    HostedTool,
    Media,
    Message,
    OpaquePart,
    Part,
    Reasoning,
    Refusal,
    Request,
    Text,
    ToolCall,
    ToolChoice,
    ToolRef,
    ToolResult,
)
from dragoman._ir.signatures import Signer
from dragoman._wire.exceptions import RemoteProtocolError
from dragoman.codec import Capabilities
from dragoman.protocols.openai_chat import SPEC

CHAT = "openai_chat"
CLOSED = {"type": "object", "properties": {}, "additionalProperties": False}
F = FunctionTool("f", parameters={"type": "object"}, path="/tools/0")


def write(
    *messages: Message, capabilities: Capabilities = Capabilities(), **fields: Any
) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    """The body for a request of another protocol, and the losses as (code, path)."""
    request = Request("other", "m", messages, {}, **fields)
    ledger = Ledger()
    body = SPEC.write_request(request, capabilities, ledger)
    return body, [(loss.code.value, loss.path) for loss in ledger]


def messages_of(
    *messages: Message, capabilities: Capabilities = Capabilities()
) -> tuple[list[Any], list[tuple[str, str]]]:
    body, losses = write(*messages, capabilities=capabilities)
    return body["messages"], losses


def user(*parts: Part) -> Message:
    return Message("user", parts, "/u")


def said(*parts: Part) -> Message:
    return Message("assistant", parts, "/a")


def result(call_id: str, *parts: Any, **fields: Any) -> ToolResult:
    return ToolResult(call_id, parts, path=f"/r/{call_id}", **fields)


IMAGE = Media("image", "base64", "QUJD", "image/png", path="/i")
IMAGE_PART = {"type": "image_url", "image_url": {"url": "data:image/png;base64,QUJD"}}


def text_part(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


TEXTS = (
    Message("system", (Text("a"), Text("b"))),
    user(Text("hi"), Text("there")),
    said(Text("x"), Text("y")),
    said(Reasoning("", path="/h"), Text("z"), ToolCall("c", "f", "{}")),
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


def test_texts_keep_their_boundaries_where_the_upstream_takes_parts() -> None:
    out, losses = messages_of(*TEXTS, capabilities=Capabilities(text_content="parts"))
    parts = [[text_part(text) for text in texts] for texts in ("ab", ["hi", "there"], "xyz", "12")]
    assert [message["content"] for message in out[:4]] == parts
    assert out[4]["content"] == [text_part("and"), text_part("now"), text_part("?")]
    assert losses == []


def test_texts_with_an_image_stay_parts() -> None:
    out, losses = messages_of(user(Text("a"), IMAGE, Text("b")), user(Text("c")))
    assert out == [{"role": "user", "content": [text_part("a"), IMAGE_PART, text_part("b"), text_part("c")]}]
    assert losses == []


CITES = [{"type": "page_location"}]


@pytest.mark.parametrize(
    ("parts", "content"),
    [
        # what citations cut is one text
        ((Text("The "), Text("sky", citations=CITES), Text(" is blue.")), "The sky is blue."),
        ((Text("It is "), Text("blue", citations=CITES), Text("ish.", CacheMark("/c"))), "It is blueish."),
        # the words of what else stood there are not part of it
        ((Text("results", rendered=True), Text("Blue", citations=CITES)), "results\n\nBlue"),
        ((Text("Blue", citations=CITES), Text("results", rendered=True)), "Blue\n\nresults"),
        ((Text("a", citations=CITES), Reasoning("", path="/h"), Text("b")), "a\n\nb"),
    ],
)
def test_a_text_that_citations_cut_is_put_together_again(parts: tuple[Part, ...], content: str) -> None:
    [message], _ = messages_of(said(*parts))
    assert message["content"] == content


def test_texts_with_citations_of_two_messages_are_two_texts() -> None:
    [message], _ = messages_of(said(Text("a", citations=CITES)), said(Text("b", citations=CITES)))
    assert message["content"] == "a\n\nb"


# -- the order of turns ------------------------------------------------------------------------------------

RESULTS = (
    user(Text("go")),
    said(ToolCall("c", "f", "{}")),
    user(result("c", Text("r")), Text("note")),
    Message("system", (Text("rule"),), "/s"),
)
NO_USER = Capabilities(turn_order="no_user_after_tool")
ALTERNATE = Capabilities(turn_order="alternate")
INSIDE = "r\n\n<user>\nnote\n</user>\n\n<system>\nrule\n</system>"


def roles(out: list[Any]) -> list[str]:
    return [message["role"] for message in out]


def test_the_user_speaks_after_results_where_the_upstream_takes_it() -> None:
    out, losses = messages_of(*RESULTS)
    assert roles(out) == ["user", "assistant", "tool", "user"]
    assert (out[2]["content"], out[3]["content"]) == ("r", "note\n\n<system>\nrule\n</system>")
    assert losses == [("altered", "/s/role")]


@pytest.mark.parametrize("capabilities", [NO_USER, ALTERNATE])
def test_what_the_user_says_after_results_becomes_part_of_them(capabilities: Capabilities) -> None:
    # "Unexpected role 'user' after role 'tool'"
    out, losses = messages_of(*RESULTS, said(Text("ok")), user(Text("more")), capabilities=capabilities)
    assert roles(out) == ["user", "assistant", "tool", "assistant", "user"]
    assert out[2]["content"] == INSIDE
    assert losses == [("altered", "/s/role"), ("altered", "/u"), ("altered", "/s")]


def test_an_image_after_results_has_a_turn_before_it() -> None:
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
def test_the_user_speaks_first_where_turns_alternate(
    capabilities: Capabilities, before: tuple[Message, ...], expected: list[str]
) -> None:
    out, losses = messages_of(*before, said(Text("a")), user(Text("b")), capabilities=capabilities)
    assert roles(out) == expected
    added = len(expected) > len(before) + 2
    assert losses == ([("repaired", "/a")] if added else [])
    assert not added or out[-3] == {"role": "user", "content": "(The assistant speaks first.)"}


def test_results_come_right_after_the_calls_then_their_images_then_what_the_user_says() -> None:
    out, losses = messages_of(
        said(Text("look"), ToolCall("c1", "f", "{}")),
        said(ToolCall("c2", "f", "")),
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


def test_errors_of_tools_are_told_by_a_prefix() -> None:
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


def test_results_without_a_text_form_leave_a_loss() -> None:
    document = Media("file", "text", "words", "text/plain", path="/d")
    out, losses = messages_of(
        user(
            result(
                "a",
                OpaquePart("other", "tool_reference", {}, "/o"),
                Media("image", "file_id", "file-1", path="/i"),
                document,
            )
        )
    )
    assert out == [{"role": "tool", "tool_call_id": "a", "content": "words"}]
    assert losses == [("unknown_kind", "/o"), ("dropped", "/i")]


@pytest.mark.parametrize(
    ("media", "expected", "losses"),
    [
        (
            Media("image", "url", "https://i", detail="high"),
            [{"type": "image_url", "image_url": {"url": "https://i", "detail": "high"}}],
            [],
        ),
        (
            Media("image", "file_id", "f-1", path="/i", cache=CacheMark("/i/c")),
            [],
            [("dropped", "/i"), ("dropped", "/i/c")],
        ),
        (
            Media("file", "base64", "QQ==", "application/pdf", path="/d"),
            [
                {
                    "type": "file",
                    "file": {"filename": "document.pdf", "file_data": "data:application/pdf;base64,QQ=="},
                }
            ],
            [],
        ),
        (
            Media("file", "base64", "QQ==", None, path="/d"),
            [{"type": "file", "file": {"filename": "document", "file_data": "QQ=="}}],
            [],
        ),
        (
            Media(
                "file",
                "base64",
                "QQ==",
                "text/csv",
                "a.csv",
                context="c",
                citations={"enabled": True},
                path="/d",
            ),
            [
                text_part("c"),
                {"type": "file", "file": {"filename": "a.csv", "file_data": "data:text/csv;base64,QQ=="}},
            ],
            [("altered", "/d/context"), ("dropped", "/d/citations")],
        ),
        (
            Media("file", "file_id", "f-1", path="/d"),
            [{"type": "file", "file": {"file_id": "f-1"}}],
            [("altered", "/d")],
        ),
        (
            Media("file", "url", "https://d", path="/d"),
            [text_part("[document: https://d]")],
            [("altered", "/d")],
        ),
        (Media("file", "text", "words", path="/d"), [text_part("words")], []),
        (
            Media("file", "text", "words", filename="T", path="/d"),
            [text_part("T\n\nwords")],
            [("altered", "/d/title")],
        ),
        (
            Media("audio", "base64", "QQ==", "audio/wav"),
            [{"type": "input_audio", "input_audio": {"data": "QQ==", "format": "wav"}}],
            [],
        ),
    ],
)
def test_media(media: Media, expected: Any, losses: Any) -> None:
    out, found = messages_of(user(Text("see"), media))
    if all(part.keys() == {"type", "text"} for part in expected):
        assert out[0]["content"] == "\n\n".join(["see", *[part["text"] for part in expected]])
    else:
        assert out[0]["content"] == [text_part("see"), *expected]
    assert found == losses


def test_parts_without_a_place_are_losses() -> None:
    out, losses = messages_of(
        user(Text("hi", citations=[1], path="/t"), Refusal("no", path="/f")),
        said(Reasoning("", path="/h")),
        user(Text("and?")),
        Message("assistant", (Text("x"),), "/p", phase="commentary"),
    )
    assert out == [
        {"role": "user", "content": "hi\n\nand?"},
        {"role": "assistant", "content": "x"},
    ]
    assert losses == [("altered", "/t"), ("dropped", "/f"), ("dropped", "/p/phase")]


def test_a_turn_of_which_nothing_is_left_is_left_out() -> None:
    out, losses = messages_of(said(OpaquePart("other", "compaction", {}, "/c")), user(Text("hi")))
    assert out == [{"role": "user", "content": "hi"}]
    assert losses == [("unknown_kind", "/c")]


def test_system_text_keeps_its_place() -> None:
    late = (
        Message("system", (Text("a"),), "/0"),
        Message("developer", (Text("b"),), "/1"),
        user(Text("hi")),
        Message("developer", (Text("c"), IMAGE), "/3"),
        said(Text("ok")),
        Message("system", (Text("d"),), "/5"),
    )
    out, losses = messages_of(*late)
    # Servers that take no system message later on take no second one either.
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


def test_assistant_turns_are_one_message_in_chats_own_order() -> None:
    out, losses = messages_of(
        said(
            Reasoning("t1", Signature("other", {}), path="/t1"),
            ToolCall("c1", "p", "free", ToolKind.CUSTOM, cache=CacheMark("/c1/cache")),
        ),
        said(Reasoning("t2", Signature(CHAT, {"reasoning_content": "own", "role": "system"}), path="/t2")),
        said(Text("late", path="/late"), Refusal("no"), OpaquePart("other", "server_tool_use", {}, "/s")),
    )
    assert out == [
        {
            "role": "assistant",
            "content": "late",
            "refusal": "no",
            "tool_calls": [{"id": "c1", "type": "custom", "custom": {"name": "p", "input": "free"}}],
            "reasoning_content": "own\n\nt1",
        }
    ]
    assert losses == [
        ("dropped", "/c1/cache"),
        ("altered", "/late"),
        ("unknown_kind", "/s"),
        ("foreign_seal", "/t1"),
    ]


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ((Refusal("no"),), {"content": None, "refusal": "no"}),
        ((ToolCall("c", "f", "{}"),), {"content": None}),
        ((Reasoning("t"),), {"content": "", "reasoning_content": "t"}),
    ],
)
def test_content_is_null_only_where_it_may_be(parts: Any, expected: Any) -> None:
    out, _ = messages_of(said(*parts))
    out[0].pop("tool_calls", None)
    assert out == [{"role": "assistant", **expected}]


THINKING = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}], "closed": True}


def test_own_seals_go_back_as_they_came() -> None:
    one = {"reasoning": "a", "reasoning_details": [{"type": "reasoning.text", "text": "a", "index": 0}]}
    two = {"reasoning": "b", "reasoning_details": [{"type": "reasoning.text", "signature": "S", "index": 0}]}
    out, losses = messages_of(
        said(Reasoning("a", Signature(CHAT, one)), Reasoning("b", Signature(CHAT, two)), Text("x")),
        user(Text("go on")),
        said(Reasoning("hm", Signature(CHAT, {"content": [THINKING, text_part("forged")]})), Text("y")),
    )
    assert out[0] == {
        "role": "assistant",
        "content": "x",
        "reasoning": "a\n\nb",
        "reasoning_details": [{"type": "reasoning.text", "text": "a", "index": 0, "signature": "S"}],
    }
    assert out[2] == {"role": "assistant", "content": [THINKING, text_part("y")]}
    assert losses == []


def test_an_upstream_that_takes_no_reasoning_gets_none() -> None:
    out, losses = messages_of(
        said(
            Reasoning("a", Signature(CHAT, {"reasoning": "a"}), path="/a"),
            Reasoning("b", Signature("other", 1), path="/b"),
            Reasoning("", path="/c"),
            Text("x"),
        ),
        capabilities=Capabilities(reasoning_field=None),
    )
    assert out == [{"role": "assistant", "content": "x"}]
    assert losses == [("dropped", "/a"), ("foreign_seal", "/b"), ("dropped", "/b")]


def test_cache_marks_become_breakpoints_where_the_upstream_knows_them() -> None:
    conversation = (
        Message("system", (Text("s", CacheMark("/s/c", "long")),)),
        said(ToolCall("c", "f", "{}")),
        user(result("c", Text("r"), cache=CacheMark("/r/c", "short")), result("d", cache=CacheMark("/d/c"))),
    )
    out, losses = messages_of(*conversation)
    assert out[0] == {"role": "system", "content": "s"}
    assert losses == [("dropped", "/s/c"), ("dropped", "/r/c"), ("dropped", "/d/c")]
    out, losses = messages_of(*conversation, capabilities=Capabilities(cache_marks="breakpoint"))
    assert out[0]["content"] == [
        {"type": "text", "text": "s", "prompt_cache_breakpoint": {"mode": "explicit", "ttl": "12h"}}
    ]
    assert out[2]["content"][0]["prompt_cache_breakpoint"] == {"mode": "explicit", "ttl": "30m"}
    assert losses == [("dropped", "/d/c")]
    out, losses = messages_of(*conversation, capabilities=Capabilities(cache_marks="cache_control"))
    assert out[0]["content"] == [
        {"type": "text", "text": "s", "cache_control": {"type": "ephemeral", "ttl": "1h"}}
    ]
    assert out[2]["content"][0]["cache_control"] == {"type": "ephemeral", "ttl": "5m"}
    assert losses == [("dropped", "/d/c")]


def test_names_of_speakers_go_where_the_upstream_takes_them() -> None:
    message = Message("user", (Text("hi"),), "/u", name="ann")
    assert messages_of(message) == ([{"role": "user", "name": "ann", "content": "hi"}], [])
    capabilities = Capabilities(refuses=frozenset({"message_name"}))
    assert messages_of(message, capabilities=capabilities) == (
        [{"role": "user", "content": "hi"}],
        [("dropped", "/u/name")],
    )


def test_users_with_names_of_their_own_are_told_apart() -> None:
    out, _ = messages_of(Message("user", (Text("a"),), "/0", name="ann"), user(Text("b")), user(Text("c")))
    assert [(message.get("name"), message["content"]) for message in out] == [("ann", "a"), (None, "b\n\nc")]


def test_defaults_of_tools_are_left_out() -> None:
    # "400 for parallel_tool_calls"; "Thinking mode does not support this tool_choice"
    body, losses = write(tools=(F,), tool_choice=ToolChoice("auto"), parallel_tool_calls=True)
    assert body.keys() == {"model", "messages", "tools"}
    assert losses == []
    body, _ = write(tools=(F,), tool_choice=ToolChoice("none"), parallel_tool_calls=False)
    assert (body["tool_choice"], body["parallel_tool_calls"]) == ("none", False)


# -- tools -------------------------------------------------------------------------------------------------


def test_tools() -> None:
    body, losses = write(
        tools=(
            FunctionTool("f", "d", CLOSED, True, cache=CacheMark("/tools/0/cache_control")),
            FunctionTool("g"),
            CustomTool("p", "d"),
            CustomTool("q", grammar=Grammar("regex", "a+")),
            HostedTool("other", "web_search_20250305", {}, "/tools/4"),
        ),
        tool_choice=ToolChoice(
            "allowed", allowed=(ToolRef("f"), ToolRef("p", kind=ToolKind.CUSTOM)), required=True
        ),
        parallel_tool_calls=False,
    )
    assert body["tools"] == [
        {
            "type": "function",
            "function": {"name": "f", "description": "d", "parameters": CLOSED, "strict": True},
        },
        {"type": "function", "function": {"name": "g", "parameters": {"type": "object", "properties": {}}}},
        {"type": "custom", "custom": {"name": "p", "description": "d"}},
        {
            "type": "custom",
            "custom": {
                "name": "q",
                "format": {"type": "grammar", "grammar": {"definition": "a+", "syntax": "regex"}},
            },
        },
    ]
    assert body["tool_choice"] == {
        "type": "allowed_tools",
        "allowed_tools": {
            "mode": "required",
            "tools": [
                {"type": "function", "function": {"name": "f"}},
                {"type": "custom", "custom": {"name": "p"}},
            ],
        },
    }
    assert body["parallel_tool_calls"] is False
    assert losses == [("dropped", "/tools/0/cache_control"), ("unknown_kind", "/tools/4")]


@pytest.mark.parametrize(("description", "expected"), [("Does it.", "Does it.\n\n"), (None, "")])
def test_examples_of_input_go_into_the_description(description: Any, expected: str) -> None:
    tool = FunctionTool("f", description, {}, path="/tools/0", examples=[{"a": 1}, {"b": "x"}])
    body, losses = write(tools=(tool,))
    told = body["tools"][0]["function"]["description"]
    assert told == expected + 'Examples of its input:\n{"a":1}\n{"b":"x"}'
    assert losses == [("altered", "/tools/0/input_examples")]


@pytest.mark.parametrize(
    ("deferred", "losses"), [(True, [("altered", "/tools/0/defer_loading")]), (False, [])]
)
def test_deferred_tools_are_sent_at_once(deferred: bool, losses: Any) -> None:
    body, found = write(tools=(FunctionTool("f", None, {}, path="/tools/0", deferred=deferred),))
    assert [tool["function"]["name"] for tool in body["tools"]] == ["f"]
    assert found == losses


@pytest.mark.parametrize(
    ("strict", "parameters", "expected", "losses"),
    [
        (True, CLOSED, True, []),
        (True, {"type": "object"}, False, [("altered", "/tools/0/strict")]),
        (False, CLOSED, False, []),
        (None, CLOSED, None, []),
    ],
)
def test_tools_are_strict_where_the_server_takes_them_so(
    strict: Any, parameters: Any, expected: Any, losses: Any
) -> None:
    body, found = write(tools=(FunctionTool("f", None, parameters, strict, path="/tools/0"),))
    assert body["tools"][0]["function"].get("strict") == expected
    assert found == losses


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (ToolChoice("none"), "none"),
        (ToolChoice("required"), "required"),
        (ToolChoice("named", "f"), {"type": "function", "function": {"name": "f"}}),
        (ToolChoice("named", "p", ToolKind.CUSTOM), {"type": "custom", "custom": {"name": "p"}}),
        (ToolChoice("allowed"), {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": []}}),
    ],
)
def test_tool_choice(choice: ToolChoice, expected: Any) -> None:
    assert write(tools=(F,), tool_choice=choice)[0]["tool_choice"] == expected


@pytest.mark.parametrize(("mode", "losses"), [("auto", []), ("required", [("dropped", "/tool_choice")])])
def test_no_choice_without_tools(mode: Any, losses: Any) -> None:
    body, found = write(tool_choice=ToolChoice(mode, path="/tool_choice"), parallel_tool_calls=True)
    assert body == {"model": "m", "messages": []}
    assert found == losses


# -- settings ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("params", "expected", "losses"),
    [
        ({"temperature": 0, "top_k": 5, "seed": 1}, {"temperature": 0, "top_k": 5, "seed": 1}, []),
        ({"max_output_tokens": 9}, {"max_completion_tokens": 9}, []),
        ({"stop": "a"}, {"stop": "a"}, []),
        ({"user": "u" * 64}, {"user": "u" * 64}, []),
        # Claude Code's names device, account and session; the others' limit is 64
        ({"user": "u" * 65}, {"user": sha256(b"u" * 65).hexdigest()}, [("altered", "/user")]),
        ({"safety_identifier": "u" * 128}, {"safety_identifier": "u" * 128}, []),
        (
            {"safety_identifier": "u" * 129},
            {"safety_identifier": sha256(b"u" * 129).hexdigest()},
            [("altered", "/safety_identifier")],
        ),
        ({"metadata": {"user_id": "u"}}, {"metadata": {"user_id": "u"}}, []),
        ({"metadata": {"k": "v"}}, {"metadata": {"k": "v"}}, []),
        ({"service_tier": "flex"}, {"service_tier": "flex"}, []),
        ({"service_tier": "standard_only"}, {"service_tier": "default"}, [("altered", "/service_tier")]),
        ({"service_tier": "odd"}, {}, [("dropped", "/service_tier")]),
        ({"speed": "fast"}, {"service_tier": "fast"}, []),
        ({"speed": "standard"}, {}, []),
        ({"speed": "fast", "service_tier": "auto"}, {"service_tier": "fast"}, [("dropped", "/service_tier")]),
        ({"service_tier": "auto", "speed": "fast"}, {"service_tier": "fast"}, [("dropped", "/service_tier")]),
        ({"prompt_cache_options": {"mode": "implicit"}}, {}, [("dropped", "/prompt_cache_options")]),
        ({"top_logprobs": 2}, {"top_logprobs": 2, "logprobs": True}, []),
        (
            {"include": ["message.output_text.logprobs", "reasoning.encrypted_content", "x"]},
            {"logprobs": True},
            [("dropped", "/include/2")],
        ),
        ({"include": "x"}, {}, []),
        ({"background": False}, {}, []),
        ({"truncation": "auto"}, {}, [("dropped", "/truncation")]),
    ],
)
def test_settings(params: Any, expected: Any, losses: Any) -> None:
    body, found = write(params=params)
    assert body == {"model": "m", "messages": [], **expected}
    assert found == losses


def test_the_name_of_the_limit_is_the_targets() -> None:
    body, _ = write(params={"max_output_tokens": 9}, capabilities=Capabilities(max_tokens_field="max_tokens"))
    assert body["max_tokens"] == 9


@pytest.mark.parametrize("param", ["previous_response_id", "conversation", "prompt", "background"])
def test_what_needs_a_store_is_refused(param: Any) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        write(params={param: "x"}, param_paths={param: f"/{param}"})
    assert (caught.value.status, caught.value.path, caught.value.code) == (
        400,
        f"/{param}",
        "unsupported_value",
    )


def test_streams_always_ask_for_usage() -> None:
    body, _ = write(stream=True, include_usage=False)
    assert (body["stream"], body["stream_options"]) == (True, {"include_usage": True})


# -- Chat's own requests -----------------------------------------------------------------------------------

OWN = Capabilities(developer_role=True, max_tokens_field="max_completion_tokens")
MARK = {"type": "ephemeral", "ttl": "1h"}
BARE_MARK = {"type": "ephemeral"}

OWN_MESSAGES: list[dict[str, Any]] = [
    {"role": "system", "content": "s"},
    {"role": "developer", "content": [text_part("d"), {"type": "text", "text": "e", "x": 1}]},
    {"role": "user", "content": "hi", "name": "Ann", "x": 1},
    {"role": "user", "content": ""},
    {"role": "assistant", "content": "one", "annotations": [1]},
    {"role": "assistant", "content": [text_part("a"), {"type": "refusal", "refusal": "b", "x": 1}]},
    {"role": "assistant", "content": None, "refusal": "no", "audio": {"id": "a1"}},
    {
        "role": "assistant",
        "content": "x",
        "reasoning_content": "hm",
        "reasoning_details": [{"type": "reasoning.text", "text": "hm", "index": 0, "odd": 1}],
        "tool_calls": [
            {
                "id": "c1",
                "type": "function",
                "function": {"name": "f", "arguments": "{}"},
                "extra_content": {"google": {"thought_signature": "G"}},
                "cache_control": MARK,
            },
            {"id": "c2", "type": "custom", "custom": {"name": "p", "input": "raw"}},
        ],
    },
    {
        "role": "tool",
        "tool_call_id": "c1",
        "content": [text_part("r"), IMAGE_PART],
        "cache_control": MARK,
        "x": 1,
    },
    {"role": "tool", "tool_call_id": "c2", "content": "done", "name": "p"},
    {"role": "system", "content": "in between", "cache_control": BARE_MARK},
    {
        "role": "user",
        "content": [
            {**text_part("marked"), "cache_control": BARE_MARK},
            {**text_part("too"), "prompt_cache_breakpoint": {"mode": "explicit"}},
            {"type": "image_url", "image_url": {"url": "https://i", "detail": "low", "z": 1}, "y": 1},
            {"type": "input_audio", "input_audio": {"data": "QQ==", "format": "mp3"}},
            {"type": "file", "file": {"file_id": "file-1"}},
            {"type": "file", "file": {"file_data": "https://d"}},
            {"type": "file", "file": {"file_data": "data:application/pdf;base64,QQ=="}},
            {"type": "video_url", "video_url": {"url": "https://v"}},
        ],
    },
    # Signatures of another vendor, as OpenRouter wants them back.
    {
        "role": "assistant",
        "content": "y",
        "reasoning": "hm",
        "reasoning_details": [
            {
                "type": "reasoning.text",
                "text": "hm",
                "signature": "S",
                "format": "anthropic-claude-v1",
                "index": 0,
            }
        ],
    },
    {"role": "assistant", "content": [THINKING, text_part("z")]},
]

OWN_BODY: dict[str, Any] = {
    "model": "m",
    "messages": OWN_MESSAGES,
    "stream": True,
    "stream_options": {"include_usage": True, "include_obfuscation": False},
    "tools": [
        {"type": "function", "function": {"name": "f", "z": 1}, "cache_control": MARK},
        {"type": "custom", "custom": {"name": "p", "z": 1}},
        {
            "type": "custom",
            "custom": {
                "name": "q",
                "format": {"type": "grammar", "grammar": {"definition": "a+", "syntax": "regex"}},
            },
        },
        {"type": "function", "function": {"name": "g", "parameters": {}, "strict": True}},
        {"type": "web_search", "x": 1},
    ],
    "tool_choice": "auto",
    "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"a": 1}, "z": 1}},
    "reasoning_effort": "low",
    "reasoning": {"effort": "low"},
    "max_completion_tokens": 5,
    "stop": ["a", "b", "c", "d", "e"],
    "service_tier": "on_demand",
    "mystery": {"deep": [1]},
}


def own(
    body: dict[str, Any], signer: Signer = Signer(), capabilities: Capabilities = OWN
) -> tuple[dict[str, Any], list[Any]]:
    ledger = Ledger()
    return SPEC.write_request(SPEC.read_request(body, signer), capabilities, ledger), list(ledger)


def test_a_chat_request_read_and_written_is_itself() -> None:
    body, losses = own(OWN_BODY)
    assert body["messages"] == OWN_MESSAGES
    assert body == OWN_BODY
    assert losses == []


@pytest.mark.parametrize(
    "fields",
    [
        {"stream": True},
        {"stream": True, "stream_options": {"include_obfuscation": False}},
        {"max_tokens": 5},
        {"max_completion_tokens": 5},
    ],
)
def test_nothing_is_asked_for_that_the_client_did_not_ask_for(fields: dict[str, Any]) -> None:
    body = {"model": "m", "messages": OWN_MESSAGES, **fields}
    assert own(body) == (body, [])


def test_where_developer_is_not_known_its_purpose_is_that_of_system() -> None:
    body, losses = own({"model": "m", "messages": OWN_MESSAGES[1:2]}, capabilities=Capabilities())
    assert (body["messages"][0]["role"], losses) == ("system", [])


def test_wrapped_seals_are_opened_on_the_way_to_a_chat_upstream() -> None:
    signer = Signer()
    native = {"reasoning": "hm", "reasoning_details": [{"type": "reasoning.encrypted", "data": "G"}]}

    def message(seal: Signature) -> dict[str, Any]:
        entry = {
            "type": "reasoning.encrypted",
            "data": signer.wrap(seal),
            "format": "dragoman-v1",
            "index": 0,
        }
        return {"role": "assistant", "content": "x", "reasoning_content": "hm", "reasoning_details": [entry]}

    body, losses = own(
        {
            "model": "m",
            "messages": [message(Signature(CHAT, native)), message(Signature("anthropic_messages", {}))],
        },
        signer,
    )
    assert body["messages"] == [
        {"role": "assistant", "content": "x", "reasoning_content": "hm", **native},
        {"role": "assistant", "content": "x", "reasoning_content": "hm"},
    ]
    assert [(loss.code, loss.path) for loss in losses] == [
        (LossCode.FOREIGN_SEAL, "/messages/1/reasoning_details/0/data")
    ]


def test_a_forged_seal_leaves_the_text() -> None:
    entry = {"type": "reasoning.encrypted", "data": "drg1.x"}
    message = {"role": "assistant", "content": "x", "reasoning": "hm", "reasoning_details": [entry]}
    body, losses = own({"model": "m", "messages": [message]})
    assert body["messages"] == [{"role": "assistant", "content": "x", "reasoning": "hm"}]
    assert losses == []


def test_empty_requests_stay_empty() -> None:
    body, losses = own(
        {"model": "m", "messages": [], "tools": [{"type": "function", "function": {"name": "f"}}]}
    )
    assert body["tools"] == [{"type": "function", "function": {"name": "f"}}]
    assert losses == []
