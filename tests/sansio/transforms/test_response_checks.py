"""Checks of a response against the request: violations are recorded at its end, and nothing is held back or changed."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from core.events import STARTED, start_of
from core.passes import pass_context

from dragoman._ir.events import (
    BlockEnded,
    BlockKind,
    BlockStarted,
    Event,
    ReasoningDelta,
    Stopped,
    StopReason,
    TextDelta,
    ToolHead,
)
from dragoman._ir.losses import Ledger
from dragoman._ir.request import Request, ResponseFormat
from dragoman._ir.tools import FunctionTool, HostedTool, Tool, ToolChoice
from dragoman._transforms.response_checks import MAX_TEXT, OutputCheckStage, find_unenforced
from dragoman.codec import Capabilities

SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
FORM = ResponseFormat(SCHEMA, strict=True)
ANY_OBJECT = ResponseFormat()
REQUIRED, NAMED = ToolChoice("required"), ToolChoice("named", "look")
END = Stopped(StopReason.END)


def text(*texts: str, block: int = 0, choice: int = 0) -> list[Event]:
    deltas = [TextDelta(block, text) for text in texts]
    return [start_of(BlockKind.TEXT, block, choice), *deltas, BlockEnded(block)]


def call(name: str, block: int = 9, choice: int = 0) -> list[Event]:
    head = ToolHead(f"call_{block}", name)
    return [BlockStarted(block, BlockKind.TOOL_CALL, choice, head), BlockEnded(block)]


def reported(events: list[Event], form: Any = None, choice: Any = None) -> list[str]:
    ledger = Ledger()
    stage = OutputCheckStage(form, choice, ledger)
    assert stage.needs_text is (form is not None)
    assert [tuple(stage.send(event)) for event in events] == [(event,) for event in events]
    return [f"{loss.code.value} {loss.path}: {loss.detail}" for loss in ledger]


NO_JSON = "breach /content: the response is not the JSON that was requested"
NO_MATCH = "breach /content: the response does not match the requested schema"
REASONING_TEXT: list[Event] = [start_of(BlockKind.REASONING), ReasoningDelta(0, "{}"), BlockEnded(0)]
REFUSED: list[Event] = [start_of(BlockKind.REFUSAL), TextDelta(0, "No."), BlockEnded(0)]


SCHEMAS: list[tuple[list[Event], Any, list[str]]] = [
    ([*text('{"ci', 'ty": "Oslo"}'), END], FORM, []),
    ([*text("The city is Oslo."), END], FORM, [NO_JSON]),
    ([*text('```json\n{"city": "Oslo"}\n```'), END], FORM, [NO_JSON]),
    ([*text('{"town": "Oslo"}'), END], FORM, [f"{NO_MATCH} (required)"]),
    ([*text('{"city": 7}'), END], FORM, [f"{NO_MATCH} (type)"]),
    ([*text("{}"), END], ANY_OBJECT, []),
    ([*text("[]"), END], ANY_OBJECT, [f"{NO_MATCH} (type)"]),
    ([*text("\ud83d"), END], FORM, [NO_JSON]),
    ([*REASONING_TEXT, END], FORM, [NO_JSON]),
    ([END], FORM, [NO_JSON]),
    # Cut into blocks by citations, or behind a comment.
    ([*text('{"city": '), *text('"Oslo"}', block=1), END], FORM, []),
    ([*text("I look."), *text('{"city": "Oslo"}', block=1), END], FORM, []),
    ([*text("I look."), *text('{"city": 7}', block=1), END], FORM, [f"{NO_MATCH} (type)"]),
    # Not the response yet, or no response.
    ([*text("I look."), *call("look"), Stopped(StopReason.TOOL_USE)], FORM, []),
    ([*text('{"city": '), Stopped(StopReason.MAX_TOKENS)], FORM, []),
    ([*text("I look."), *text('{"city": ', block=1), Stopped(StopReason.MAX_TOKENS)], FORM, []),
    ([*REASONING_TEXT, Stopped(StopReason.MAX_TOKENS)], FORM, []),
    ([*text(" "), Stopped(StopReason.MAX_TOKENS)], FORM, []),
    # Cut, but it had left the required order before.
    ([*text("\nThe city", " is"), Stopped(StopReason.MAX_TOKENS)], FORM, [NO_JSON]),
    ([*text('```json\n{"ci'), Stopped(StopReason.CONTEXT_WINDOW)], FORM, [NO_JSON]),
    ([*text("No."), Stopped(StopReason.CONTENT_FILTER)], FORM, []),
    ([*text("{"), Stopped(StopReason.STOP_SEQUENCE)], FORM, []),
    ([*REFUSED, END], FORM, []),
    # Of several responses, each has a stage of its own.
    ([*text("no", choice=1), Stopped(StopReason.END, choice=1)], FORM, []),
    ([*text("no", choice=1), *text('{"city": "Oslo"}', block=1), END], FORM, []),
    ([*text("no"), END], None, []),
]


def test_schemas(subtests: pytest.Subtests) -> None:
    for events, form, losses in SCHEMAS:
        with subtests.test(events=events):
            assert reported([STARTED, *events], form) == losses


@pytest.mark.parametrize(
    ("form", "texts", "why"),
    [
        (ResponseFormat({"pattern": "^a"}), ['"a"'], "the schema has keywords that are not checked"),
        (FORM, ["x" * MAX_TEXT, "x", "x"], f"it has more than {MAX_TEXT} characters"),
    ],
)
def test_what_cannot_be_checked_is_unchecked(form: ResponseFormat, texts: list[str], why: str) -> None:
    path = "unchecked /content: not checked against the requested schema"
    assert reported([*text(*texts), END], form) == [f"{path}: {why}"]


NO_CALL = "breach /tool_calls: a tool call was required, and the model made none"
OTHER = "breach /tool_calls: the model called another tool than the required one"


TOOL_CHOICES: list[tuple[list[Event], ToolChoice, list[str]]] = [
    ([*call("look"), END], REQUIRED, []),
    ([*text("Hm."), END], REQUIRED, [NO_CALL]),
    ([END], NAMED, [NO_CALL]),
    ([*call("look"), Stopped(StopReason.TOOL_USE)], NAMED, []),
    ([*call("hear"), Stopped(StopReason.TOOL_USE)], NAMED, [OTHER]),
    ([*call("hear"), *call("look", 10), Stopped(StopReason.TOOL_USE)], NAMED, []),
    ([*call("look", choice=1), END], REQUIRED, [NO_CALL]),
    # Cut: after text no call was allowed; without text there might have been one.
    ([*text("Hm."), Stopped(StopReason.MAX_TOKENS)], REQUIRED, [NO_CALL]),
    ([*REASONING_TEXT, Stopped(StopReason.MAX_TOKENS)], REQUIRED, []),
    ([*call("hear"), Stopped(StopReason.MAX_TOKENS)], NAMED, []),
    ([*text("No."), Stopped(StopReason.CONTENT_FILTER)], REQUIRED, []),
    ([*REFUSED, END], REQUIRED, []),
    # A tool that a function replaced, under any name.
    ([*call("shell"), END], ToolChoice("named", hosted="shell"), []),
    ([*text("Hm."), END], ToolChoice("named", hosted="shell"), [NO_CALL]),
]


def test_tool_choices(subtests: pytest.Subtests) -> None:
    for events, choice, losses in TOOL_CHOICES:
        with subtests.test(events=events):
            assert reported([STARTED, *events], None, choice) == losses


def requested(form: Any = None, choice: Any = None, *tools: Tool) -> Request:
    return Request("p", "m", (), {}, tools=tools, response_format=form, tool_choice=choice)


ENFORCES = Capabilities(enforces=frozenset({"schema", "tool_choice"}))
ALLOWED = ToolChoice("allowed", required=True)
LOOSE = ResponseFormat(SCHEMA)
OPEN = ResponseFormat({"type": "object"}, strict=True)
LOOK, SEARCH = FunctionTool("look"), HostedTool("web_search", "p", {})
SEARCHED = ToolChoice("named", hosted="web_search")


@pytest.mark.parametrize(
    ("request_", "sent", "capabilities", "checks"),
    [
        (requested(), requested(), Capabilities(), (None, None)),
        (requested(FORM, REQUIRED), requested(FORM, REQUIRED), Capabilities(), (FORM, REQUIRED)),
        (
            msgspec.structs.replace(requested(FORM, REQUIRED), compact=True),
            requested(),
            Capabilities(),
            (None, None),
        ),
        (requested(choice=NAMED), requested(choice=NAMED), Capabilities(), (None, NAMED)),
        (requested(choice=ALLOWED), requested(choice=ALLOWED), Capabilities(), (None, ALLOWED)),
        (
            requested(choice=ToolChoice("auto")),
            requested(choice=ToolChoice("auto")),
            Capabilities(),
            (None, None),
        ),
        (
            requested(choice=ToolChoice("allowed")),
            requested(choice=ToolChoice("allowed")),
            Capabilities(),
            (None, None),
        ),
        (requested(FORM, REQUIRED), requested(FORM, REQUIRED), ENFORCES, (None, None)),
        # Only strict schemas are kept to, and those that can be strict; any other JSON may be anything.
        (requested(LOOSE), requested(LOOSE), ENFORCES, (LOOSE, None)),
        (requested(OPEN), requested(OPEN), ENFORCES, (OPEN, None)),
        (requested(ANY_OBJECT), requested(ANY_OBJECT), ENFORCES, (ANY_OBJECT, None)),
        # A tool of the provider's own may be the one that is called.
        (requested(choice=REQUIRED), requested(None, REQUIRED, LOOK), Capabilities(), (None, REQUIRED)),
        (requested(choice=REQUIRED), requested(None, REQUIRED, LOOK, SEARCH), Capabilities(), (None, None)),
        (requested(choice=SEARCHED), requested(None, SEARCHED, LOOK, SEARCH), Capabilities(), (None, None)),
        (requested(choice=NAMED), requested(None, NAMED, LOOK, SEARCH), Capabilities(), (None, NAMED)),
        # The upstream did not get the requirement.
        (requested(FORM, REQUIRED), requested(), ENFORCES, (FORM, REQUIRED)),
        (requested(choice=REQUIRED), requested(choice=ToolChoice("auto")), ENFORCES, (None, REQUIRED)),
    ],
)
def test_checks_of_the_upstream_are_not_repeated(
    request_: Request, sent: Request, capabilities: Capabilities, checks: Any
) -> None:
    context = pass_context(request_, capabilities=capabilities)
    assert find_unenforced(sent, context) is sent
    assert (context.undo.unenforced_format, context.undo.unenforced_choice) == checks
