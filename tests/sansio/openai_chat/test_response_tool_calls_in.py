"""Tool calls of a response, from the fragments of all kinds of servers; and unknown members of calls."""

from __future__ import annotations

from typing import Any

import pytest
from chat_client import call as call_block
from chat_client import text as text_block
from chat_requests import wire_call
from chat_upstream import (
    CHAT,
    DONE,
    TEXT,
    call,
    calls,
    chunk,
    content,
    delta,
    fragment,
    started,
    stream_of,
)

from dragoman._ir.event_order import EventOrderChecker
from dragoman._ir.events import (
    ENDED,
    ArgumentsDelta,
    BlockEnded,
    BlockKind,
    BlockStarted,
    Event,
    Signature,
    SignatureDelta,
    Stopped,
    TextDelta,
    ToolHead,
    ToolKind,
)
from dragoman._ir.losses import Ledger
from dragoman._ir.request import Request
from dragoman._wire.json import encode
from dragoman._wire.sse import Frame
from dragoman.codec import ResponseContext
from dragoman.protocols.openai_chat import SPEC
from dragoman.protocols.openai_chat.response_tool_calls_in import StreamedCall

ADD = [call(0, "c1", "add"), ArgumentsDelta(0, '{"a":1}')]
MUL = [call(1, "c2", "mul"), ArgumentsDelta(1, '{"b":2}')]
ENDS = [BlockEnded(0), BlockEnded(1)]


@pytest.mark.parametrize(
    ("deltas", "expected"),
    [
        # A3, A7: as OpenAI sends it.
        ([{"role": "assistant", "content": None, **calls({**fragment(0, "c1", "add", ""), "type": "function"})},
          calls(fragment(0, arguments='{"a"')), calls(fragment(0, arguments="")), calls(fragment(0, arguments=":1}")),
          calls(fragment(1, "c2", "mul", "")), calls(fragment(1, arguments='{"b":2}'))],
         [call(0, "c1", "add"), ArgumentsDelta(0, '{"a"'), ArgumentsDelta(0, ":1}"), BlockEnded(0), *MUL,
          BlockEnded(1)]),
        # A1: fragments that interleave.
        ([calls(fragment(0, "c1", "add", ""), fragment(1, "c2", "mul", "")), calls(fragment(1, arguments='{"b":2}')),
          calls(fragment(0, arguments='{"a":1}'))],
         [ADD[0], MUL[0], MUL[1], ADD[1], *ENDS]),
        # A13, A14: whole calls: without index; with one index for all; all indexes 0 and without ids; id as a number.
        ([calls(fragment(None, "c1", "add", '{"a":1}'), fragment(None, "c2", "mul", '{"b":2}'))],
         [*ADD, BlockEnded(0), *MUL, BlockEnded(1)]),
        ([calls(fragment(0, "c1", "add", '{"a":1}')), calls(fragment(0, "c2", "mul", '{"b":2}'))],
         [*ADD, BlockEnded(0), *MUL, BlockEnded(1)]),
        ([calls(fragment(0, None, "add", '{"a":1}')), calls(fragment(0, None, "mul", '{"b":2}'))],
         [call(0, "call_X1_0", "add"), ADD[1], BlockEnded(0), call(1, "call_X1_1", "mul"), MUL[1], BlockEnded(1)]),
        ([calls(fragment(None, None, "add", {"a": 1})), calls(fragment(None, None, "add", '{"b":2}'))],
         [call(0, "call_X1_0", "add"), ADD[1], BlockEnded(0), call(1, "call_X1_1", "add"), MUL[1], BlockEnded(1)]),
        ([calls(fragment(0, 17, "add"))], [call(0, "17", "add"), BlockEnded(0)]),
        # Without index: continued by id, or by nothing at all.
        ([calls(fragment(None, "c1", "add", '{"a"')), calls(fragment(None, "c1", None, ":")),
          calls(fragment(arguments="1}"))],
         [ADD[0], ArgumentsDelta(0, '{"a"'), ArgumentsDelta(0, ":"), ArgumentsDelta(0, "1}"), BlockEnded(0)]),
        # Ids and names repeated; a new id in each fragment.
        ([calls(fragment(0, "c1", "add", '{"a"')), calls(fragment(0, "c1", "add", ":1")),
          calls(fragment(0, "zz", None, "}"))],
         [ADD[0], ArgumentsDelta(0, '{"a"'), ArgumentsDelta(0, ":1"), ArgumentsDelta(0, "}"), BlockEnded(0)]),
        # A new id without a name, once the call is complete: the name comes later.
        ([calls(fragment(0, "c1", "add", '{"a":1}')), calls(fragment(0, "c2")),
          calls(fragment(0, None, "mul", '{"b":2}'))],
         [*ADD, BlockEnded(0), *MUL, BlockEnded(1)]),
        # The name after the id and the arguments.
        ([calls(fragment(0, "c1")), calls(fragment(0, arguments='{"a"')), calls(fragment(0, "", "add", ":1}"))],
         [*ADD, BlockEnded(0)]),
        # A10: an empty text beside a call is no text.
        ([{"content": "", **calls(fragment(0, "c1", "add", '{"a":1}'))},
          {"content": None, **calls(fragment(1, "c2", "mul", '{"b":2}'))}],
         [*ADD, BlockEnded(0), *MUL, BlockEnded(1)]),
        # Nothing, blanks and repetition after the end.
        ([calls(fragment(0)), calls(fragment(0, "c1", "add", '{"a":1}')), calls(fragment(1, "c2", "mul", '{"b":2}')),
          calls(fragment(0, arguments=" \n")), calls(fragment(0, arguments='{"a":1}'))],
         [*ADD, BlockEnded(0), *MUL, BlockEnded(1)]),
        ([calls({"index": 0})], []),
        # Text between calls: a complete call ends before it, an incomplete one continues after it.
        ([calls(fragment(0, "c1", "add", '{"a":1}')), {"content": "\n"}, calls(fragment(1, "c2", "mul", '{"b":2}'))],
         [*ADD, BlockEnded(0), started(1, TEXT), TextDelta(1, "\n"), BlockEnded(1), call(2, "c2", "mul"),
          ArgumentsDelta(2, '{"b":2}'), BlockEnded(2)]),
        ([calls(fragment(0, "c1", "add", '{"a"')), {"content": "x"}, calls(fragment(0, arguments=":1}"))],
         [ADD[0], ArgumentsDelta(0, '{"a"'), started(1, TEXT), TextDelta(1, "x"), BlockEnded(1),
          ArgumentsDelta(0, ":1}"), BlockEnded(0)]),
        # Custom tools and the legacy form.
        ([calls({"index": 0, "id": "c1", "type": "custom", "custom": {"name": "p", "input": "*** "}}),
          calls({"index": 0, "custom": {"input": "Begin"}})],
         [call(0, "c1", "p", ToolKind.CUSTOM), ArgumentsDelta(0, "*** "), ArgumentsDelta(0, "Begin"), BlockEnded(0)]),
        ([{"content": "x"}, {"function_call": {"name": "f", "arguments": ""}},
          {"function_call": {"arguments": "{}"}}],
         [started(0, TEXT), TextDelta(0, "x"), BlockEnded(0), call(1, "call_X1_0", "f"), ArgumentsDelta(1, "{}"),
          BlockEnded(1)]),
        # No arguments at all.
        ([calls(fragment(0, "c1", "add"))], [ADD[0], BlockEnded(0)]),
        ([calls()], []),
    ],
)  # fmt: skip
def test_tool_calls(deltas: list[dict[str, Any]], expected: list[Event]) -> None:
    assert content(stream_of(*deltas)) == expected


@pytest.mark.parametrize(
    ("finish", "arguments", "complete"),
    [
        ("tool_calls", '{"a":1}', True),
        ("length", '{"a":1}', True),
        ("length", '{"a"', False),
        ("content_filter", '{"a"', False),
        ("tool_calls", '{"a"', True),
    ],
)
def test_a12_a_call_that_was_cut_off_is_not_complete(finish: str, arguments: str, complete: bool) -> None:
    stream = chunk(delta(**calls(fragment(0, "c1", "add", arguments)))) + chunk(delta(finish=finish)) + DONE
    assert content(stream)[-1] == BlockEnded(0, complete)


# -- members that the upstream needs back -----------------------------------------------------------------


SIGNED = {"extra_content": {"google": {"thought_signature": "G1"}}}
CONTEXT = ResponseContext(Request("other", "m", ()), "X1", 1, "alias")


def read_deltas(*deltas: Any, whole: bool = False) -> list[Event]:
    """Return the events of a response, checked for their order."""
    ledger = Ledger()
    if whole:
        body = {
            "id": "c",
            "model": "gem",
            "choices": [{"index": 0, "message": deltas[0], "finish_reason": "stop"}],
        }
        out = list(SPEC.read_whole(body, CONTEXT, ledger))
    else:
        reader = SPEC.stream_reader(CONTEXT, ledger)
        out = []
        choices = [
            *[{"index": 0, "delta": delta} for delta in deltas],
            {"delta": {}, "finish_reason": "stop"},
        ]
        for choice in choices:
            frame = {"id": "c", "model": "gem", "choices": [choice]}
            out += reader.read(Frame(b"", encode(frame)))
        out += reader.read(Frame(b"", b"[DONE]"))
    checker = EventOrderChecker()
    for event in out:
        checker.check(event)
    assert len(ledger) == 0
    return out


def signature_block(block: int, **native: Any) -> list[Event]:
    return [
        BlockStarted(block, BlockKind.REASONING),
        SignatureDelta(block, Signature(CHAT, native, "gem")),
        BlockEnded(block),
    ]


def call_signature(block: int, extra: Any, call_id: str = "c1") -> list[Event]:
    return signature_block(block, tool_calls_extra={call_id: extra})


def inner(events: list[Event]) -> list[Event]:
    return [event for event in events[1:] if not isinstance(event, Stopped) and event is not ENDED]


CUSTOM = {"id": "c1", "type": "custom", "custom": {"name": "p", "input": "x", "odd": 1}}


@pytest.mark.parametrize(
    ("deltas", "expected"),
    [
        # With the call, as Google sends it.
        (
            [{"tool_calls": [{"index": 0, **wire_call("c1"), **SIGNED}]}],
            [*call_signature(0, SIGNED), *call_block(1, "c1", "f", "{}")],
        ),
        # Of parallel calls the first one has it.
        (
            [{"tool_calls": [{"index": 0, **wire_call("c1"), **SIGNED}, {"index": 1, **wire_call("c2")}]}],
            [*call_signature(0, SIGNED), *call_block(1, "c1", "f", "{}"), *call_block(2, "c2", "f", "{}")],
        ),
        # Before the call's name, and later; a repetition is not emitted again.
        (
            [
                {"tool_calls": [{"index": 0, "id": "c1", "odd": 1}]},
                {"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": "{", "within": 2}}]},
                {"tool_calls": [{"index": 0, "function": {"arguments": "}"}, "odd": 1, "late": 3, "no": None}]},
            ],
            [
                *call_signature(0, {"odd": 1, "function": {"within": 2}}),
                BlockStarted(1, BlockKind.TOOL_CALL, tool=ToolHead("c1", "f")),
                ArgumentsDelta(1, "{"),
                ArgumentsDelta(1, "}"),
                BlockEnded(1),
                *call_signature(2, {"late": 3}),
            ],
        ),
        # After the call was complete.
        (
            [
                {"tool_calls": [{"index": 0, **wire_call("c1")}]},
                {"tool_calls": [{"index": 1, **wire_call("c2")}]},
                {"tool_calls": [{"index": 0, **SIGNED}]},
            ],
            [
                *call_block(0, "c1", "f", "{}"),
                *call_block(1, "c2", "f", "{}")[:2],
                *call_signature(2, SIGNED),
                BlockEnded(1),
            ],
        ),
        (
            [{"tool_calls": [{"index": 0, **CUSTOM}]}],
            [
                *call_signature(0, {"custom": {"odd": 1}}),
                BlockStarted(1, BlockKind.TOOL_CALL, tool=ToolHead("c1", "p", ToolKind.CUSTOM)),
                ArgumentsDelta(1, "x"),
                BlockEnded(1),
            ],
        ),
        # The legacy form.
        (
            [{"function_call": {"name": "f", "arguments": "{}", "odd": 1}}],
            [*call_signature(0, {"function": {"odd": 1}}, "call_X1_0"), *call_block(1, "call_X1_0", "f", "{}")],
        ),
    ],
)  # fmt: skip
def test_c14_unknown_members_of_a_call_become_a_signature(deltas: Any, expected: Any) -> None:
    assert inner(read_deltas(*deltas)) == expected


EXTRA = {"extra_content": {"google": {"thought_signature": "M"}}}


@pytest.mark.parametrize(
    ("deltas", "expected"),
    [
        ([{"content": "a", **EXTRA}], [*signature_block(0, **EXTRA), *text_block(1, "a")]),
        ([{"content": "a"}, {"content": "", **EXTRA}], [*text_block(0, "a"), *signature_block(1, **EXTRA)]),
        (
            [{"content": "a"}, EXTRA, {"tool_calls": [{"index": 0, **wire_call("c1")}]}],
            [*text_block(0, "a"), *signature_block(1, **EXTRA), *call_block(2, "c1", "f", "{}")],
        ),
        (
            [EXTRA, {"extra_content": {"more": 1}}, {"extra_content": "odd"}],
            signature_block(0, extra_content={**EXTRA["extra_content"], "more": 1}),
        ),
    ],
)
def test_c14_extra_content_of_a_message_becomes_a_signature(deltas: Any, expected: Any) -> None:
    assert inner(read_deltas(*deltas)) == expected


def test_c14_a_whole_response_has_the_same_signatures() -> None:
    message = {"content": "a", "tool_calls": [{**wire_call("c1"), **SIGNED}], **EXTRA}
    assert inner(read_deltas(message, whole=True)) == [
        *signature_block(0, **EXTRA),
        *text_block(1, "a"),
        *call_signature(2, SIGNED),
        *call_block(3, "c1", "f", "{}"),
    ]


def test_the_input_of_a_custom_tool_may_always_go_on() -> None:
    for kind, is_complete in ((ToolKind.FUNCTION, True), (ToolKind.CUSTOM, False)):
        made = StreamedCall(kind, 0)
        made.pieces.append("{}")
        assert made.is_complete() is is_complete
