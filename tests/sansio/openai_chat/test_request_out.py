"""Shortcuts that write the same messages as the general way."""

from typing import Any

import msgspec
import pytest
from core.passes import fit_and_write

from dragoman._ir.events import ToolKind
from dragoman._ir.losses import Ledger
from dragoman._ir.request import Message, Part, Request, Text, ToolCall, ToolResult
from dragoman._ir.tools import CacheMark
from dragoman.protocols.openai_chat import SPEC
from dragoman.protocols.openai_chat.capabilities import ChatCapabilities as Capabilities


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
