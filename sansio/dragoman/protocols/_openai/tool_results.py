"""Failures of tools: OpenAI's protocols have no field for them, so words say it."""

from __future__ import annotations

from collections.abc import MutableSequence

from dragoman._ir.losses import Ledger
from dragoman._ir.request import ToolResult
from dragoman._wire.json import JSON

_ERROR = "Error: "


def mark_error(result: ToolResult, content: MutableSequence[JSON], kind: str, ledger: Ledger) -> None:
    """Begin the content of a result that is an error with that word, unless its text does already.

    kind: the type of a part with text.
    """
    ledger.altered(result.path, 'its failure was sent as the text "Error: " before the output')
    first = content[0] if content else {}
    if first.get("type") != kind:
        content.insert(0, {"type": kind, "text": "Error"})
    elif not first["text"].startswith(_ERROR):
        first["text"] = _ERROR + first["text"]
