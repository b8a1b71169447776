"""A summary is requested by an instruction, and the response is the one event that a compaction client expects."""

import pytest
from core.events import ERROR, STARTED, start_of
from core.passes import pass_context
from msgspec.structs import replace

from dragoman._ir.event_order import EventOrderChecker
from dragoman._ir.events import (
    ENDED,
    ArgumentsDelta,
    BlockEnded,
    BlockKind,
    Compacted,
    Event,
    Failed,
    Opaque,
    ReasoningDelta,
    Stopped,
    StopReason,
    TextDelta,
    Usage,
)
from dragoman._ir.losses import Ledger, LossCode
from dragoman._ir.request import Message, Request, ResponseFormat, Text
from dragoman._ir.tools import FunctionTool, Namespace, ToolChoice
from dragoman._transforms.compaction import CompactionStage, request_summary
from dragoman._wire.errors import ErrorKind

HI = Message("user", (Text("hi"),))


REQUEST = Request(
    "toy",
    "m",
    (HI,),
    tools=(FunctionTool("look"),),
    namespaces=(Namespace("n"),),
    parallel_tool_calls=False,
    params={"temperature": 0},
    compact=True,
)


def test_the_request() -> None:
    ledger = Ledger()
    out = request_summary(REQUEST, pass_context(REQUEST, ledger))
    first, instruction = out.messages
    assert (first, instruction.role) == (HI, "user")
    assert isinstance(instruction.parts[0], Text)
    assert "summary" in instruction.parts[0].text
    # Everything before the conversation is unchanged, because of the upstream's prompt cache.
    assert (out.tools, out.namespaces) == (REQUEST.tools, REQUEST.namespaces)
    assert (out.tool_choice, out.parallel_tool_calls) == (ToolChoice("none"), False)
    assert (out.params, out.compact) == ({"temperature": 0}, False)
    assert list(ledger) == []


def test_a_request_without_tools_has_no_choice_of_them() -> None:
    assert request_summary(replace(REQUEST, tools=()), pass_context(REQUEST)).tool_choice is None


@pytest.mark.parametrize(
    ("choice", "losses"),
    [
        (ToolChoice("auto", path="/c"), []),
        (ToolChoice("none", path="/c"), []),
        (ToolChoice("required", path="/c"), [(LossCode.ALTERED, "/c")]),
        (ToolChoice("named", "look"), [(LossCode.ALTERED, "/tool_choice")]),
    ],
)
def test_no_tool_is_called(choice: ToolChoice, losses: list[tuple[LossCode, str]]) -> None:
    ledger = Ledger()
    request = replace(REQUEST, tool_choice=choice)
    assert request_summary(request, pass_context(request, ledger)).tool_choice == ToolChoice("none")
    assert [(loss.code, loss.path) for loss in ledger] == losses


@pytest.mark.parametrize(
    ("form", "reported"),
    [(ResponseFormat({}, path="/text/format"), "/text/format"), (ResponseFormat({}), "/response_format")],
)
def test_a_summary_has_no_schema(form: ResponseFormat, reported: str) -> None:
    ledger = Ledger()
    request = replace(REQUEST, response_format=form)
    out = request_summary(request, pass_context(request, ledger))
    assert out.response_format is None
    assert [(loss.code, loss.path) for loss in ledger] == [(LossCode.DROPPED, reported)]


TEXT = [start_of(BlockKind.TEXT), TextDelta(0, "so "), TextDelta(0, "far\n"), BlockEnded(0)]
REASONING_TEXT = [start_of(BlockKind.REASONING, 1), ReasoningDelta(1, "hm"), BlockEnded(1)]
CALL = [start_of(BlockKind.TOOL_CALL, 2), ArgumentsDelta(2, "{}"), BlockEnded(2)]
OTHER = [start_of(BlockKind.TEXT, 3, 1), TextDelta(3, "x"), BlockEnded(3), Stopped(StopReason.END, choice=1)]
MORE = [start_of(BlockKind.TEXT, 4), TextDelta(4, "and on"), BlockEnded(4)]
END = Stopped(StopReason.END)
DONE = Stopped(StopReason.COMPACTION)
USED = Usage(1, 2)


def staged(events: list[Event]) -> list[Event]:
    stage = CompactionStage()
    checker = EventOrderChecker()
    out = [each for event in events for each in stage.send(event)]
    for event in out:
        checker.check(event)
    return out


@pytest.mark.parametrize(
    ("events", "summary"),
    [
        ([*TEXT], "so far"),
        ([*REASONING_TEXT, *TEXT, *CALL, Opaque("o", "k", {})], "so far"),
        ([*OTHER, *TEXT], "so far"),
        ([*TEXT, *MORE], "so far\n\n\nand on"),
    ],
)
def test_the_text_is_the_summary(events: list[Event], summary: str) -> None:
    assert staged([STARTED, *events, USED, END, ENDED]) == [STARTED, USED, Compacted(summary), DONE, ENDED]


@pytest.mark.parametrize(
    ("events", "message"),
    [
        ([END], "the model wrote no summary (end)"),
        ([*CALL, Stopped(StopReason.TOOL_USE)], "the model wrote no summary (tool_use)"),
        (
            [*TEXT, Stopped(StopReason.MAX_TOKENS)],
            "the model stopped before the summary was complete (max_tokens)",
        ),
    ],
)
def test_half_a_summary_is_dropped(events: list[Event], message: str) -> None:
    out = staged([STARTED, *events])
    assert out[0] == STARTED
    assert isinstance(out[1], Failed)
    assert (out[1].error.kind, out[1].error.message, out[1].error.status) == (ErrorKind.SERVER, message, 502)


def test_a_failure_passes_unchanged() -> None:
    assert staged([STARTED, *TEXT[:2], Failed(ERROR)]) == [STARTED, Failed(ERROR)]
