"""What a body says beyond what the document and the events hold is kept beside them, or entered as a loss."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman._ir.assembly import Fold
from dragoman._ir.events import (
    ENDED,
    Annotation,
    BlockEnded,
    BlockKind,
    BlockStarted,
    Event,
    Seal,
    Started,
    Stopped,
    StopReason,
    TextDelta,
    Usage,
)
from dragoman._ir.losses import Ledger
from dragoman._ir.request import CacheMark, Media, Message, Request, Text, Thought, ToolResult
from dragoman._ir.signatures import Sealer
from dragoman._wire.json import encode
from dragoman._wire.sse import Frame
from dragoman.codec import Exchange, Target
from dragoman.protocols.openai_chat import SPEC

CHAT = "openai_chat"
EXCHANGE = Exchange(Request("other", "m", (), {}), "x1", 1, "alias")
POINT = {"mode": "explicit", "ttl": "30m"}


def read(**body: Any) -> Request:
    return SPEC.read_request({"model": "m", "messages": [], **body}, Sealer())


def tool(**fields: Any) -> dict[str, Any]:
    return {"tools": [{"type": "function", "function": {"name": "f"}, **fields}]}


def custom(form: Any) -> dict[str, Any]:
    return {"tools": [{"type": "custom", "custom": {"name": "f", "format": form}}]}


GRAMMAR = {"type": "grammar", "grammar": {"syntax": "lark", "definition": "d"}}
NAMED = {"type": "function", "function": {"name": "f"}}
ALLOWED = {"mode": "auto", "tools": [NAMED]}


@pytest.mark.parametrize(
    ("body", "extra"),
    [
        ({"max_tokens": 1, "max_completion_tokens": 2}, {"max_tokens": 1}),
        ({"tool_choice": NAMED}, None),
        ({"tool_choice": {**NAMED, "x": 1}}, {"tool_choice": {**NAMED, "x": 1}}),
        ({"tool_choice": {"type": "auto"}}, None),
        ({"tool_choice": {"type": "auto", "x": 1}}, {"tool_choice": {"type": "auto", "x": 1}}),
        ({"tool_choice": {"type": "allowed_tools", "allowed_tools": ALLOWED}}, None),
        (
            {"tool_choice": {"type": "allowed_tools", "allowed_tools": {"tools": ["f"]}}},
            {"tool_choice": {"type": "allowed_tools", "allowed_tools": {"tools": ["f"]}}},
        ),
        ({"tool_choice": "auto", "function_call": "none"}, {"function_call": "none"}),
        ({"function_call": {"name": "f"}}, None),
        ({"function_call": {"name": "f", "x": 1}}, {"function_call": {"name": "f", "x": 1}}),
        ({"reasoning": {"effort": "low", "x": 1}}, {"reasoning": {"x": 1}}),
        ({"reasoning": {"effort": "low"}, "reasoning_effort": "high"}, {"reasoning": {"effort": "low"}}),
        ({"reasoning": "deep"}, {"reasoning": "deep"}),
        ({"thinking": {"type": "enabled", "x": 1}}, {"thinking": {"x": 1}}),
        ({"thinking": True}, {"thinking": True}),
        ({"response_format": {"type": "text", "x": 1}}, {"response_format": {"type": "text", "x": 1}}),
        ({"response_format": {"type": "json_object", "x": 1}}, {"response_format": {"x": 1}}),
    ],
)
def test_settings_that_say_more(body: Any, extra: Any) -> None:
    assert read(**body).extra == extra


@pytest.mark.parametrize(
    ("body", "extra"),
    [
        (custom({"type": "text"}), None),
        (custom(GRAMMAR), None),
        (custom({**GRAMMAR, "x": 1}), {"custom": {"format": {**GRAMMAR, "x": 1}}}),
        (custom({"type": "odd"}), {"custom": {"format": {"type": "odd"}}}),
        (tool(x=1), {"x": 1}),
        (tool(cache_control={"type": "ephemeral", "ttl": "5m"}), None),
        (
            tool(cache_control={"type": "ephemeral", "ttl": "9h"}),
            {"cache_control": {"type": "ephemeral", "ttl": "9h"}},
        ),
        ({"functions": [{"name": "f", "x": 1}]}, {"x": 1}),
    ],
)
def test_tools_that_say_more(body: Any, extra: Any) -> None:
    [found] = read(**body).tools
    assert getattr(found, "extra", None) == extra


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


def test_a_switch_without_a_budget_turns_thinking_on() -> None:
    config = read(reasoning={"enabled": True}).reasoning
    assert config is not None
    assert (config.mode, config.budget) == ("adaptive", None)


def test_what_only_the_assistant_says_keeps_its_words_in_a_tool_message() -> None:
    content = [{"type": "refusal", "refusal": "No."}, {"type": "thinking", "thinking": ""}]
    request = read(messages=[{"role": "tool", "tool_call_id": "c", "content": content}])
    [result] = request.messages[0].parts
    assert isinstance(result, ToolResult)
    assert [(part.kind, part.native, part.text) for part in result.parts] == [  # type: ignore[union-attr]
        ("refusal", content[0], "No."),
        ("thinking", content[1], None),
    ]


def test_a_ciphertext_of_openai_needs_no_id() -> None:
    details = [{"type": "reasoning.encrypted", "data": "E", "format": "openai-responses-v1"}]
    request = read(messages=[{"role": "assistant", "content": None, "reasoning_details": details}])
    item = {"type": "reasoning", "summary": [], "encrypted_content": "E"}
    assert request.messages[0].parts == (
        Thought("", Seal("openai_responses", item), path="/messages/0/reasoning_details/0"),
    )


def test_text_before_a_signature_is_a_thought_of_its_own() -> None:
    details = [
        {"type": "reasoning.text", "text": "loose", "index": 0},
        {"type": "reasoning.encrypted", "data": "odd", "format": "odd", "index": 1},
        {
            "type": "reasoning.text",
            "text": "a",
            "signature": "s",
            "format": "anthropic-claude-v1",
            "index": 2,
            "x": 1,
        },
    ]
    request = read(messages=[{"role": "assistant", "content": "b", "reasoning_details": details}])
    at = "/messages/0/reasoning_details"
    block = {"type": "thinking", "thinking": "a", "signature": "s"}
    assert request.messages[0].parts[:3] == (
        Thought("loose", path=at),
        Thought("a", Seal("anthropic_messages", block), extra={"x": 1}, path=f"{at}/2"),
        Thought("", Seal(CHAT, {"reasoning_details": [details[1]]}), path=f"{at}/1"),
    )


def written(request: Request) -> list[tuple[str, str]]:
    ledger = Ledger()
    SPEC.write_request(request, Target(), ledger)
    return [(loss.code.value, loss.path) for loss in ledger]


def test_settings_without_a_place() -> None:
    file = Media("file", "base64", "YQ==", "application/pdf", "a.pdf", "high", path="/f")
    request = Request("other", "m", (Message("user", (file,), "/m"),), {}, params={"speed": "slow"})
    assert written(request) == [("dropped", "/f/detail"), ("dropped", "/speed")]


# --- answers


def entered(*chunks: Any) -> list[tuple[str, str]]:
    ledger = Ledger()
    reader = SPEC.stream_reader(EXCHANGE, ledger)
    for each in chunks:
        reader.read(Frame(b"", encode({"id": "c", "model": "m", **each})))
    reader.read(Frame(b"", b"[DONE]"))
    return [(loss.code.value, loss.path) for loss in ledger]


def chunk(delta: Any, **fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, **fields}]}


HELLO = chunk({"role": "assistant", "content": "a"})
CALL = {"index": 0, "id": "c", "function": {"name": "f", "arguments": ""}}


@pytest.mark.parametrize(
    ("chunks", "losses"),
    [
        ([HELLO, {**chunk({"content": "b"}), "x": 1}], [("unknown_field", "/x")]),
        ([HELLO, chunk({"content": "b"}, x=1)], [("unknown_field", "/choices/0/x")]),
        ([{**HELLO, "service_tier": "odd"}], [("dropped", "/service_tier")]),
        ([{**HELLO, "service_tier": ""}], []),
        ([HELLO, chunk({}, finish_reason="eos")], []),
        ([HELLO, chunk({}, finish_reason="bored")], [("altered", "/choices/0/finish_reason")]),
        ([HELLO, chunk({}, stop_reason="END")], [("dropped", "/choices/0/stop_reason")]),
        (
            [
                chunk({"tool_calls": [CALL]}),
                chunk({"tool_calls": [{"index": 0, "function": {"arguments": "{", "x": 1}}]}),
                chunk({"tool_calls": [{"index": 0, "y": 1, "function": {"arguments": "}"}}]}),
            ],
            [],  # they go with the seal of the call
        ),
        (
            [{**HELLO, "usage": {"prompt_tokens": 1, "x": 2, "prompt_tokens_details": {"x": "y", "z": 0}}}],
            [("unknown_field", "/usage/x"), ("unknown_field", "/usage/prompt_tokens_details/x")],
        ),
    ],
)
def test_chunks_that_say_more(chunks: Any, losses: Any) -> None:
    assert entered(*chunks) == losses


TEXT = (BlockStarted(0, BlockKind.TEXT, phase="commentary"), TextDelta(0, "a"))
CITED = Annotation(0, "other", {"type": "t", "url": "u", "at": [1], "words": "w"}, "u")
REFUSED = Stopped(StopReason.CONTENT_FILTER, explanation="why")


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize(
    ("events", "losses"),
    [
        (
            [Started("i", "m", service_tier="ultrafast"), *TEXT, BlockEnded(0), Stopped(StopReason.END)],
            {"/service_tier", "/choices/0/message/phase"},
        ),
        (
            [
                Started("i", "m", service_tier="flex"),
                BlockStarted(0, BlockKind.TEXT),
                TextDelta(0, "a"),
                CITED,
                BlockEnded(0),
                REFUSED,
            ],
            {"/choices/0/message/annotations", "/stop_details/explanation"},
        ),
        (
            [Started("i", "m"), Stopped(StopReason.END), Usage(1, 2, extra={"iterations": []})],
            {"/usage/iterations"},
        ),
    ],
)
def test_answers_that_say_more(events: list[Event], losses: set[str], whole: bool) -> None:
    ledger = Ledger()
    asked = Exchange(Request(CHAT, "m", (), {}), "x1", 1, "alias")
    if whole:
        fold = Fold()
        for event in (*events, ENDED):
            fold.send(event)
        SPEC.write_whole(fold.answer(), asked, ledger)
    else:
        writer = SPEC.stream_writer(asked, ledger)
        for event in (*events, ENDED):
            writer.send(event)
    assert {loss.path for loss in ledger} == losses


def test_a_citation_that_is_told_whole_costs_nothing() -> None:
    native = {"type": "url_citation", "url": "u", "title": "t", "start_index": 1, "end_index": 2}
    cited = Annotation(0, "openai_responses", native, "u", "t", 1, 2)
    ledger = Ledger()
    writer = SPEC.stream_writer(EXCHANGE, ledger)
    answer = (Started("i", "m"), BlockStarted(0, BlockKind.TEXT), TextDelta(0, "abc"), cited, BlockEnded(0))
    out = [writer.send(event) for event in (*answer, Stopped(StopReason.END), ENDED)]
    assert b'"end_index":2' in out[-1]
    assert len(ledger) == 0
