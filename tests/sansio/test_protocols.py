"""Protocols are given by name or by spec, and their writers write texts together as one by one."""

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec

import pytest

from dragoman import Ledger, StopReason
from dragoman._ir.events import (
    ENDED,
    ArgumentsDelta,
    BlockEnded,
    BlockKind,
    BlockStarted,
    ReasoningDelta,
    ReasoningForm,
    Started,
    Stopped,
    TextDelta,
    ToolHead,
    ToolKind,
)
from dragoman._ir.fast_path import with_texts
from dragoman._ir.parameters import REFUSED_PARAMS
from dragoman._ir.request import Request
from dragoman.codec import ResponseContext, StreamWriter
from dragoman.document import REFUSABLE_MEMBERS
from dragoman.protocols import PROTOCOLS, UPSTREAMS, client_spec, upstream_spec


def test_a_name_is_accepted_in_place_of_its_spec() -> None:
    assert client_spec("simple_chat") is PROTOCOLS["simple_chat"]
    assert upstream_spec("openai_chat") is UPSTREAMS["openai_chat"]


def test_a_spec_need_not_be_in_the_table() -> None:
    toy = UPSTREAMS["openai_chat"]
    assert client_spec(toy) is upstream_spec(toy) is toy


def test_an_unknown_name() -> None:
    with pytest.raises(ValueError, match="unknown protocol 'chat': expected one of openai_chat, "):
        client_spec("chat")


def test_a_protocol_without_upstreams() -> None:
    with pytest.raises(ValueError, match="no upstream speaks simple_chat: expected one of openai_chat, "):
        upstream_spec("simple_chat")


def test_the_names_in_tables_of_settings_are_settings() -> None:
    """mypy does not check them, because the names are those that the shapes of requests have."""
    known = {*REFUSABLE_MEMBERS, *(name for spec in PROTOCOLS.values() for name in spec.settings)}
    tables = {
        f"{spec.name} {attribute}": table
        for spec in UPSTREAMS.values()
        for module in ("tables", "request_out", "request_settings")
        if find_spec(f"dragoman.protocols.{spec.name}.{module}") is not None
        for attribute, table in vars(import_module(f"dragoman.protocols.{spec.name}.{module}")).items()
        if attribute in ("CONVERTERS", "NO_OP_VALUES", "REJECTED_PARAMS", "SAMPLING_PARAMS")
    }
    tables["settings that are refused"] = REFUSED_PARAMS
    assert len(tables) >= 8
    for name, table in tables.items():
        assert known.issuperset(table), name


BLOCKS: list[tuple[BlockStarted, TextDelta | ReasoningDelta | ArgumentsDelta]] = [
    (BlockStarted(0, BlockKind.TEXT), TextDelta(0, "a")),
    (BlockStarted(0, BlockKind.REFUSAL), TextDelta(0, "a")),
    (BlockStarted(0, BlockKind.REASONING), ReasoningDelta(0, "a")),
    (BlockStarted(0, BlockKind.REASONING), ReasoningDelta(0, "a", 1, ReasoningForm.SUMMARY)),
    (BlockStarted(0, BlockKind.TOOL_CALL, tool=ToolHead("50%d_of_%b", "f")), ArgumentsDelta(0, "a")),
    (
        BlockStarted(0, BlockKind.TOOL_CALL, tool=ToolHead("call_1", "f", ToolKind.CUSTOM), item_id="%s"),
        ArgumentsDelta(0, "a"),
    ),
]


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(("start", "delta"), BLOCKS)
def test_texts_together_are_written_as_one_by_one(
    protocol: str, start: BlockStarted, delta: TextDelta | ReasoningDelta | ArgumentsDelta
) -> None:
    texts = ["b", '"\\\n', "é😀", " %d %b ", "\ud83d"]
    context = ResponseContext(Request(protocol, "m", (), stream=True), "100%", 0, "m")
    end = [BlockEnded(0), Stopped(StopReason.END), ENDED]

    def written(deltas: Callable[[StreamWriter], bytes]) -> bytes:
        writer = PROTOCOLS[protocol].stream_writer(context, Ledger())
        out = b"".join(map(writer.send, [Started("1", "m"), start, delta])) + deltas(writer)
        return out + b"".join(map(writer.send, end))

    one_by_one = written(lambda writer: b"".join(map(writer.send, with_texts(delta, texts))))
    assert written(lambda writer: writer.send_texts(delta, texts)) == one_by_one
    found = written(lambda writer: writer.send_texts(delta, texts[:1]) + writer.send_texts(delta, texts[1:]))
    assert found == one_by_one
