"""Checks of a response against the request: violations are recorded at its end, and nothing is held back or changed."""

from typing import Any

import pytest
from core.events import start_of

from dragoman._ir.events import BlockEnded, BlockKind, Event, Stopped, StopReason, TextDelta
from dragoman._ir.losses import Ledger
from dragoman._ir.request import ResponseFormat
from dragoman._transforms.response_checks import MAX_TEXT, OutputCheckStage

SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
FORM = ResponseFormat(SCHEMA, strict=True)
END = Stopped(StopReason.END)


def text(*texts: str, block: int = 0, choice: int = 0) -> list[Event]:
    deltas = [TextDelta(block, text) for text in texts]
    return [start_of(BlockKind.TEXT, block, choice), *deltas, BlockEnded(block)]


def reported(events: list[Event], form: Any = None, choice: Any = None) -> list[str]:
    ledger = Ledger()
    stage = OutputCheckStage(form, choice, ledger)
    assert stage.needs_text is (form is not None)
    assert [tuple(stage.send(event)) for event in events] == [(event,) for event in events]
    return [f"{loss.code.value} {loss.path}: {loss.detail}" for loss in ledger]


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
