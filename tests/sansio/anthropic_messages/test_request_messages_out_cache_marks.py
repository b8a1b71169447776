"""Cache marks of other protocols, written for an upstream."""

from __future__ import annotations

from typing import Any

import pytest
from core.passes import fit_and_write

from dragoman._ir.losses import Ledger
from dragoman._ir.request import Media, Message, Request, Text, ToolCall, ToolResult
from dragoman._ir.tools import CacheMark, FunctionTool
from dragoman._wire.json import decode, encode
from dragoman.protocols.anthropic_messages import SPEC
from dragoman.protocols.anthropic_messages.capabilities import MessagesCapabilities as Capabilities

Ttl = Any
SHORT = {"type": "ephemeral", "ttl": "5m"}
LONG = {"type": "ephemeral", "ttl": "1h"}
MARK = {"type": "ephemeral"}


def marked(number: int, ttl: Ttl = None) -> Text:
    return Text(f"text {number}", CacheMark(f"/{number}", ttl))


def marks_of(value: Any) -> list[Any]:
    """The marks in a body, in the order of the prompt."""
    if isinstance(value, list):
        return [mark for item in value for mark in marks_of(item)]
    if not isinstance(value, dict):
        return []
    inner = [mark for key in ("tools", "system", "messages", "content") for mark in marks_of(value.get(key))]
    return inner + ([value["cache_control"]] if "cache_control" in value else [])


def write(*messages: Message, **fields: Any) -> tuple[list[Any], list[tuple[str, str]]]:
    ledger = Ledger()
    body = fit_and_write(SPEC, Request("other", "m", messages, **fields), Capabilities(), ledger)
    return marks_of(decode(encode(body))), [(loss.code.value, loss.path) for loss in ledger]


def user(*parts: Any) -> Message:
    return Message("user", parts, "/m")


@pytest.mark.parametrize(
    ("ttls", "written", "losses"),
    [
        ([None], [MARK], []),
        (["long", "long", "short", None], [LONG, LONG, SHORT, MARK], []),
        ([None] * 5, [MARK] * 4, [("dropped", "/0")]),
        (
            ["long", "short", "short", None, "short", None],
            [SHORT, MARK, SHORT, MARK],
            [
                ("dropped", "/0"),
                ("dropped", "/1"),
            ],
        ),
        (["short", "long"], [SHORT, SHORT], [("altered", "/1")]),
        ([None, "long"], [MARK, SHORT], [("altered", "/1")]),
    ],
)
def test_the_last_four_marks_stay_and_longer_ones_come_first(
    ttls: list[Ttl], written: Any, losses: Any
) -> None:
    texts = [marked(number, ttl) for number, ttl in enumerate(ttls)]
    assert write(user(*texts)) == (written, losses)


@pytest.mark.parametrize(
    ("ttl", "top", "count", "written", "losses"),
    [
        (None, None, 4, [MARK] * 3 + [MARK], [("dropped", "/0")]),
        ("long", "12h", 1, [LONG, LONG], []),
        ("short", "12h", 1, [SHORT, SHORT], [("altered", "/prompt_cache_options/ttl")]),
        ("short", "30m", 1, [SHORT, SHORT], []),
    ],
)
def test_the_mark_at_the_top_level_counts(ttl: Ttl, top: Any, count: int, written: Any, losses: Any) -> None:
    texts = [marked(number, ttl) for number in range(count)]
    options = {"mode": "implicit"} if top is None else {"mode": "implicit", "ttl": top}
    assert write(user(*texts), params={"prompt_cache_options": options}) == (written, losses)


def test_marks_count_in_the_order_of_the_prompt() -> None:
    def mark(name: str) -> CacheMark:
        return CacheMark(f"/{name}")

    messages = (
        Message("system", (Text("s", mark("system")),), "/s"),
        user(Text("t", mark("text")), Media("image", "url", "https://x", cache=mark("image"))),
        Message("assistant", (ToolCall("1", "f", "{}", cache=mark("call")),), "/a"),
        user(ToolResult("1", (Text("r", mark("inner")),), cache=mark("result"))),
    )
    written, losses = write(*messages, tools=(FunctionTool("f", cache=mark("tool")),))
    assert len(written) == 4
    assert losses == [("dropped", "/tool"), ("dropped", "/system"), ("dropped", "/text")]


def test_a_blank_text_with_a_mark_is_left_out_and_not_joined() -> None:
    blank = Text(" ", CacheMark("/1/cache_control"), path="/1")
    assert write(user(Text("a"), blank)) == ([], [("repaired", "/1")])
