"""Parts and assistant turns of requests from other protocols, written for a Chat upstream."""

from __future__ import annotations

from typing import Any

import pytest
from chat_requests import assistant, messages_of, text_part, user, wire_call

from dragoman._ir.events import Signature, ToolKind
from dragoman._ir.request import (
    Media,
    Message,
    OpaquePart,
    Part,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
)
from dragoman._ir.tools import CacheMark
from dragoman.protocols.openai_chat.capabilities import ChatCapabilities as Capabilities

CHAT = "openai_chat"


IMAGE = Media("image", "base64", "QUJD", "image/png", path="/i")
IMAGE_PART = {"type": "image_url", "image_url": {"url": "data:image/png;base64,QUJD"}}


CITES = [{"type": "page_location"}]


def call(call_id: str, arguments: str = "{}", **fields: Any) -> ToolCall:
    return ToolCall(call_id, "f", arguments, **fields)


def result_of(call_id: str) -> Message:
    return Message("user", (ToolResult(call_id, (Text("r"),)),), "/r")


# -- parts ------------------------------------------------------------------------------------------------


MEDIA: list[tuple[Media, Any, Any]] = [
    (
        Media("image", "url", "https://i", detail="high"),
        [{"type": "image_url", "image_url": {"url": "https://i", "detail": "high"}}],
        [],
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
        Media("file", "base64", "QQ==", "application/pdf", "a.pdf", "high", path="/d"),
        [
            {
                "type": "file",
                "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,QQ=="},
            }
        ],
        [("dropped", "/d/detail")],
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
]


def test_media(subtests: pytest.Subtests) -> None:
    for media, expected, losses in MEDIA:
        with subtests.test(media=media):
            out, found = messages_of(user(Text("see"), media))
            if all(part.keys() == {"type", "text"} for part in expected):
                assert out[0]["content"] == "\n\n".join(["see", *[part["text"] for part in expected]])
            else:
                assert out[0]["content"] == [text_part("see"), *expected]
            assert found == losses


def test_parts_without_a_counterpart_are_losses() -> None:
    out, losses = messages_of(
        user(Text("hi", citations=[1], path="/t"), Refusal("no", path="/f")),
        assistant(Reasoning("", path="/h")),
        user(Text("and?")),
    )
    assert out == [{"role": "user", "content": "hi\n\nand?"}]
    assert losses == [("altered", "/t"), ("dropped", "/f")]


def test_a_file_by_url_keeps_its_name() -> None:
    file = Media("file", "url", "https://d", filename="a.pdf", path="/f")
    [message], losses = messages_of(Message("user", (file,), "/u"))
    assert message["content"] == "[document: a.pdf, https://d]"
    assert losses == [("altered", "/f")]


@pytest.mark.parametrize(
    ("parts", "content"),
    [
        # Pieces that citations have split are one text.
        ((Text("The "), Text("sky", citations=CITES), Text(" is blue.")), "The sky is blue."),
        ((Text("It is "), Text("blue", citations=CITES), Text("ish.", CacheMark("/c"))), "It is blueish."),
        # The rendered text of another item is not part of it.
        ((Text("results", rendered=True), Text("Blue", citations=CITES)), "results\n\nBlue"),
        ((Text("Blue", citations=CITES), Text("results", rendered=True)), "Blue\n\nresults"),
        ((Text("a", citations=CITES), Reasoning("", path="/h"), Text("b")), "a\n\nb"),
    ],
)
def test_a_text_that_citations_split_is_joined(parts: tuple[Part, ...], content: str) -> None:
    [message], _ = messages_of(assistant(*parts))
    assert message["content"] == content


def test_texts_with_citations_of_two_messages_are_two_texts() -> None:
    [message], _ = messages_of(assistant(Text("a", citations=CITES)), assistant(Text("b", citations=CITES)))
    assert message["content"] == "a\n\nb"


def test_names_of_speakers_are_sent() -> None:
    message = Message("user", (Text("hi"),), "/u", name="ann")
    assert messages_of(message) == ([{"role": "user", "name": "ann", "content": "hi"}], [])


def test_messages_of_users_with_other_names_are_not_merged() -> None:
    out, _ = messages_of(Message("user", (Text("a"),), "/0", name="ann"), user(Text("b")), user(Text("c")))
    assert [(message.get("name"), message["content"]) for message in out] == [("ann", "a"), (None, "b\n\nc")]


# -- cache marks ------------------------------------------------------------------------------------------


def result(call_id: str, *parts: Any, **fields: Any) -> ToolResult:
    return ToolResult(call_id, parts, path=f"/r/{call_id}", **fields)


def test_cache_marks_have_the_form_of_the_upstream() -> None:
    conversation = (
        Message("system", (Text("s", CacheMark("/s/c", "long")),)),
        assistant(ToolCall("c", "f", "{}")),
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


MARKS = Capabilities(cache_marks="breakpoint")
POINT = {"mode": "explicit"}


def mark(n: int) -> CacheMark:
    return CacheMark(f"/mark/{n}")


def test_a_mark_on_a_call_moves_to_the_text_before_it() -> None:
    [message], losses = messages_of(assistant(Text("a"), call("c1", cache=mark(1))), capabilities=MARKS)
    assert message["content"] == [{"type": "text", "text": "a", "prompt_cache_breakpoint": POINT}]
    assert losses == [("altered", "/mark/1")]
    [message], losses = messages_of(assistant(call("c1", cache=mark(1))), capabilities=MARKS)
    assert message["content"] is None
    assert losses == [("dropped", "/mark/1")]


def test_two_marks_at_one_position_are_one() -> None:
    [message], losses = messages_of(
        assistant(Text("a", mark(0)), call("c1", cache=mark(1))), capabilities=MARKS
    )
    assert message["content"] == [{"type": "text", "text": "a", "prompt_cache_breakpoint": POINT}]
    assert losses == [("altered", "/mark/1")]


def test_the_last_four_marks_are_kept() -> None:
    texts = [Text(str(n), mark(n)) for n in range(6)]
    [message], losses = messages_of(Message("user", tuple(texts), "/u"), capabilities=MARKS)
    marked = [part["text"] for part in message["content"] if "prompt_cache_breakpoint" in part]
    assert marked == ["2", "3", "4", "5"]
    assert losses == [("dropped", "/mark/0"), ("dropped", "/mark/1")]


# -- assistant turns --------------------------------------------------------------------------------------


def test_an_assistant_turn_is_one_message() -> None:
    out, losses = messages_of(
        assistant(
            Reasoning("t1", Signature("other", {}), path="/t1"),
            ToolCall("c1", "p", "free", ToolKind.CUSTOM, cache=CacheMark("/c1/cache")),
        ),
        assistant(
            Reasoning("t2", Signature(CHAT, {"reasoning_content": "own", "role": "system"}), path="/t2")
        ),
        assistant(
            Text("late", path="/late"), Refusal("no"), OpaquePart("other", "server_tool_use", {}, "/s")
        ),
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
        ("foreign_signature", "/t1"),
    ]


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ((Refusal("no"),), {"content": None, "refusal": "no"}),
        ((ToolCall("c", "f", "{}"),), {"content": None}),
        ((Reasoning("t"),), {"content": "", "reasoning_content": "t"}),
    ],
)
def test_content_is_null_only_where_that_is_allowed(parts: Any, expected: Any) -> None:
    out, _ = messages_of(assistant(*parts))
    out[0].pop("tool_calls", None)
    assert out == [{"role": "assistant", **expected}]


def test_a_turn_without_content_is_not_sent() -> None:
    out, losses = messages_of(assistant(OpaquePart("other", "compaction", {}, "/c")), user(Text("hi")))
    assert out == [{"role": "user", "content": "hi"}]
    assert losses == [("unknown_kind", "/c")]


def test_an_earlier_refusal_is_a_member_of_its_message() -> None:
    [message], losses = messages_of(assistant(Text("a"), Refusal("no")))
    assert message == {"role": "assistant", "content": "a", "refusal": "no"}
    assert losses == []


# -- members that an upstream needs back ------------------------------------------------------------------


SIGNED = {"extra_content": {"google": {"thought_signature": "G1"}}}
EXTRA = {"extra_content": {"google": {"thought_signature": "M"}}}


def native(**native: Any) -> Reasoning:
    return Reasoning("", Signature(CHAT, native), path="/t")


@pytest.mark.parametrize("field", ["reasoning_content", None])
@pytest.mark.parametrize(
    ("parts", "calls", "losses"),
    [
        (
            [native(tool_calls_extra={"c1": SIGNED}), call("c1"), call("c2")],
            [wire_call("c1", **SIGNED), wire_call("c2")],
            [],
        ),
        # By id at any position; by position if the id has changed.
        (
            [call("c1"), call("c2"), native(tool_calls_extra={"c2": SIGNED})],
            [wire_call("c1"), wire_call("c2", **SIGNED)],
            [],
        ),
        (
            [call("c1"), native(tool_calls_extra={"old": SIGNED}), call("new")],
            [wire_call("c1"), wire_call("new", **SIGNED)],
            [],
        ),
        (
            [call("c1"), native(tool_calls_extra={"gone": SIGNED})],
            [wire_call("c1")],
            [("dropped", "/t")],
        ),
        # Members of the call itself are not overwritten.
        (
            [native(tool_calls_extra={"c1": {"id": "evil", "function": {"name": "evil", "x": 1}}}), call("c1")],
            [{**wire_call("c1"), "function": {"name": "f", "arguments": "{}", "x": 1}}],
            [],
        ),
        ([native(tool_calls_extra={"c1": 5}), call("c1")], [wire_call("c1")], []),
        ([native(tool_calls_extra=5), call("c1")], [wire_call("c1")], []),
    ],
)  # fmt: skip
def test_c14_unknown_members_go_back_onto_their_calls(
    parts: Any, calls: Any, losses: Any, field: Any
) -> None:
    [message], found = messages_of(assistant(*parts), capabilities=Capabilities(reasoning_field=field))
    assert message == {"role": "assistant", "content": None, "tool_calls": calls}
    assert found == losses


def test_c14_extra_content_goes_back_onto_its_message() -> None:
    more = {"extra_content": {"more": 1}}
    [message], losses = messages_of(
        assistant(native(**EXTRA), Text("a"), native(**more), native(extra_content=5))
    )
    assert message == {
        "role": "assistant",
        "content": "a",
        "extra_content": {**EXTRA["extra_content"], "more": 1},
    }
    assert losses == []
    [message], _ = messages_of(assistant(native(**EXTRA)))
    assert message == {"role": "assistant", "content": "", **EXTRA}


USER_TURN = Message("user", (Text("go"),), "/u")
WITH_REASONING = Message("assistant", (Reasoning("hm", path="/t"), call("c1")), "/a0")
WITHOUT = Message("assistant", (call("c2"),), "/a1")
LAST_TURN = Message("assistant", (Text("done"),), "/a2")

LOOP = (
    USER_TURN,
    WITHOUT,
    result_of("c2"),
    LAST_TURN,
    USER_TURN,
    WITH_REASONING,
    result_of("c1"),
    WITHOUT,
    result_of("c2"),
)

SIGNATURE = {"google": {"thought_signature": "skip_thought_signature_validator"}}


@pytest.mark.parametrize(
    ("capabilities", "reasoning", "lost"),
    [
        (Capabilities(), [None, None, "hm", None], []),
        # "The `reasoning_content` in the thinking mode must be passed back to the API."
        (Capabilities(reasoning_back="always"), [" ", " ", "hm", " "], ["/a1", "/a2"]),
        # Also of turns before the last user text: what the upstream has cached does not change.
        (Capabilities(reasoning_back="tool_loop"), [" ", None, "hm", " "], ["/a1"]),
        (Capabilities(reasoning_back="always", reasoning_field=None), [None] * 4, ["/t"]),
    ],
)
def test_required_reasoning_that_is_lost_is_a_blank(
    capabilities: Capabilities, reasoning: list[str | None], lost: list[str]
) -> None:
    out, losses = messages_of(*LOOP, capabilities=capabilities)
    turns = [message for message in out if message["role"] == "assistant"]
    assert [turn.get("reasoning_content") for turn in turns] == reasoning
    code = "dropped" if lost == ["/t"] else "repaired"
    assert losses == [(code, path) for path in lost]


def test_a_tool_loop_without_a_user_message() -> None:
    [message], losses = messages_of(WITHOUT, capabilities=Capabilities(reasoning_back="tool_loop"))
    assert message["reasoning_content"] == " "
    assert losses == [("repaired", "/a1")]


def test_the_first_call_of_a_turn_has_a_dummy_signature_where_one_is_required() -> None:
    # "Function call is missing a thought_signature in functionCall parts."
    capabilities = Capabilities(thought_signatures=True)
    [message, _], losses = messages_of(
        assistant(Text("a"), call("c1"), call("c2")), result_of("c1"), capabilities=capabilities
    )
    assert [each.get("extra_content") for each in message["tool_calls"]] == [SIGNATURE, None]
    assert losses == []
    assert "tool_calls" not in messages_of(assistant(Text("a")), capabilities=capabilities)[0][0]


def test_a_signature_of_the_upstream_is_not_replaced() -> None:
    native_signature = {"google": {"thought_signature": "c2ln"}}
    signature = Signature(CHAT, {"tool_calls_extra": {"c1": {"extra_content": native_signature}}})
    [message], _ = messages_of(
        assistant(Reasoning("", signature, path="/t"), call("c1"), call("c2")),
        capabilities=Capabilities(thought_signatures=True),
    )
    assert [each.get("extra_content") for each in message["tool_calls"]] == [native_signature, None]
