"""Compaction of a conversation for clients whose protocol has a form for it, on upstreams that have none.

An upstream of another protocol gets a request for a summary. Its text comes to the client's writer as one Compacted
event, and nothing else of the response does. The writer wraps the text as a signature, and the reader of a later
request puts it where the conversation was.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from dragoman._ir import events
from dragoman._ir.events import EVENTS, BlockKind, Event, StopReason, Usage
from dragoman._ir.request import Message, Request, Text
from dragoman._ir.tools import ToolChoice
from dragoman._transforms.pass_context import PassContext
from dragoman._wire.errors import ErrorKind, WireError

_INSTRUCTION = (
    "The conversation so far will be replaced by what you write now. Write a summary from which the work can go on "
    "without it: what the user wants, what was decided and why, what was done and what came of it, files, names, "
    "commands and figures that are still needed, and what is to be done next. Write only the summary; call no tool."
)


def request_summary(request: Request, context: PassContext) -> Request:
    """Return the request for a summary, if the client requests a compaction.

    The tools stay, though none may be called: they are at the beginning of the prompt, which the upstream has cached.
    """
    if context.rewritten or not request.compact:
        return request
    context.undo = msgspec.structs.replace(context.undo, compacts=True)
    ledger, instruction = context.ledger, Message("user", (Text(_INSTRUCTION),))
    choice, form = request.tool_choice, request.response_format
    if choice is not None and choice.mode not in ("auto", "none"):
        ledger.altered(choice.path, "no tool is called while the conversation is summarized")
    if form is not None:
        ledger.dropped(form.path, "the requested summary is plain text")
    return msgspec.structs.replace(
        request,
        messages=(*request.messages, instruction),
        tool_choice=ToolChoice("none") if request.tools else None,
        response_format=None,
        compact=False,
    )


class CompactionStage:
    """Turns the text of a response into one event, and drops everything else but its start, usage and end."""

    __slots__ = ("_parts", "_texts")

    needs_text = True  # see `_transforms.pipeline`
    kinds = EVENTS

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._texts: set[int] = set()

    def send(self, event: Event) -> Sequence[Event]:
        if isinstance(event, events.TextDelta):
            if event.block in self._texts:
                self._parts.append(event.text)
            return ()
        if isinstance(event, events.BlockStarted):
            if event.kind is BlockKind.TEXT and event.choice == 0:
                if self._texts:
                    self._parts.append("\n\n")
                self._texts.add(event.block)
            return ()
        if isinstance(event, events.Stopped):
            return self._stop(event)
        return (event,) if isinstance(event, (events.Started, Usage, events.Ended, events.Failed)) else ()

    def _stop(self, event: events.Stopped) -> Sequence[Event]:
        summary = "".join(self._parts).strip()
        if event.choice != 0:
            return ()
        if event.reason not in (StopReason.END, StopReason.STOP_SEQUENCE) or not summary:
            what = "stopped before the summary was complete" if summary else "wrote no summary"
            return (
                events.Failed(
                    WireError(ErrorKind.SERVER, f"the model {what} ({event.reason.value})", status=502)
                ),
            )
        return events.Compacted(summary), events.Stopped(StopReason.COMPACTION)
