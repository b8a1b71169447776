"""Cache marks of other protocols, written for a Responses upstream."""

from __future__ import annotations

from typing import Any

import pytest
from core.passes import fit_and_write

from dragoman._ir.losses import Ledger, LossCode
from dragoman._ir.request import Media, Message, Part, Request, Text, ToolCall, ToolResult
from dragoman._ir.tools import CacheMark
from dragoman.protocols.openai_responses import SPEC
from dragoman.protocols.openai_responses.capabilities import ResponsesCapabilities as Capabilities

DROPPED, ALTERED = LossCode.DROPPED, LossCode.ALTERED
EXPLICIT = {"mode": "explicit"}
TAKES = Capabilities(cache_marks="breakpoint")
Losses = list[tuple[LossCode, str]]


def write(*messages: Message, capabilities: Capabilities = TAKES) -> tuple[list[Any], Losses]:
    ledger = Ledger()
    request = Request("anthropic_messages", "m", messages)
    items: list[Any] = fit_and_write(SPEC, request, capabilities, ledger)["input"]
    return items, [(loss.code, loss.path) for loss in ledger]


def user(*parts: Part) -> Message:
    return Message("user", parts)


def assistant(*parts: Part) -> Message:
    return Message("assistant", parts)


def mark(name: str = "m", ttl: Any = None) -> CacheMark:
    return CacheMark(f"/{name}", ttl)


def marked(items: list[Any]) -> list[tuple[int, int, str | None]]:
    """Return the marks: item, part and ttl."""
    return [
        (number, index, part["prompt_cache_breakpoint"].get("ttl"))
        for number, item in enumerate(items)
        for index, part in enumerate(item.get("content") or item.get("output") or ())
        if type(part) is dict and "prompt_cache_breakpoint" in part
    ]


RESULT = ToolResult("c", (Text("a"),), cache=mark())
OUTPUT_TEXT = assistant(Text("so"))
CASES: list[tuple[tuple[Message, ...], list[Any], Losses]] = [
    ((user(Text("a", mark(ttl="short"))),), [(0, 0, "30m")], []),
    ((user(Text("a", mark(ttl="long")), Text("b")),), [(0, 0, "12h")], []),
    # `instructions` can have none.
    ((Message("system", (Text("a", mark()),)), user(Text("b"))), [(0, 0, None)], []),
    ((user(Media("image", "url", "u", cache=mark())),), [(0, 0, None)], []),
    ((user(Media("file", "url", "u", cache=mark())),), [(0, 0, None)], []),
    # A mark on a result is on its last part; a text becomes a part.
    ((user(RESULT),), [(0, 0, None)], []),
    ((user(ToolResult("c", (Text("a"), Text("b")), cache=mark())),), [(0, 1, None)], []),
    ((user(ToolResult("c", (Text("a", mark("t")), Text("b")))),), [(0, 0, None)], []),
    ((user(ToolResult("c", (), cache=mark())),), [(0, 0, None)], []),
    # Of two marks on one part the longer is kept.
    ((user(ToolResult("c", (Text("a", mark("t", "short")),), cache=mark(ttl="long"))),), [(0, 0, "12h")], []),
    ((user(ToolResult("c", (Text("a", mark("t", "long")),), cache=mark(ttl="short"))),), [(0, 0, "12h")], []),
    # A mark on anything else moves to the part before.
    (
        (user(Text("a"), Text("b")), assistant(ToolCall("c", "f", "{}", cache=mark()))),
        [(0, 1, None)],
        [(ALTERED, "/m")],
    ),
    ((user(Text("a")), assistant(Text("b", mark()))), [(0, 0, None)], [(ALTERED, "/m")]),
    (
        (user(Text("a")), OUTPUT_TEXT, assistant(Text("b"), ToolCall("c", "f", "{}", cache=mark()))),
        [(0, 0, None)],
        [(ALTERED, "/m")],
    ),
    (
        (
            assistant(ToolCall("c", "f", "{}")),
            user(ToolResult("c", (Text("a"),))),
            assistant(Text("b", mark())),
        ),
        [(1, 0, None)],
        [(ALTERED, "/m")],
    ),
    ((OUTPUT_TEXT, assistant(ToolCall("c", "f", "{}", cache=mark()))), [], [(DROPPED, "/m")]),
    # The last four are kept.
    (
        (user(*[Text("a", mark(str(number))) for number in range(6)]),),
        [(0, number, None) for number in range(2, 6)],
        [(DROPPED, "/0"), (DROPPED, "/1")],
    ),
]


@pytest.mark.parametrize(("messages", "places", "losses"), CASES)
def test_cache_marks_are_where_the_upstream_accepts_them(
    messages: tuple[Message, ...], places: list[Any], losses: Losses
) -> None:
    items, lost = write(*messages)
    assert (marked(items), lost) == (places, losses)


def test_the_text_of_a_marked_result_is_a_part() -> None:
    assert write(user(RESULT))[0] == [
        {
            "type": "function_call_output",
            "call_id": "c",
            "output": [{"type": "input_text", "text": "a", "prompt_cache_breakpoint": EXPLICIT}],
        }
    ]


@pytest.mark.parametrize(
    "message",
    [
        user(Text("a", mark())),
        user(RESULT),
        assistant(Text("a", mark())),
        assistant(ToolCall("c", "f", "{}", cache=mark())),
        user(Media("image", "url", "u", cache=mark())),
    ],
)
def test_an_upstream_without_cache_marks_gets_none(message: Message) -> None:
    items, losses = write(user(Text("first")), message, capabilities=Capabilities())
    assert (marked(items), losses) == ([], [(DROPPED, "/m")])
