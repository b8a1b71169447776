"""Checks of what the client requires of a response: JSON of a schema, a tool call.

What the upstream is not known to enforce is noted in Undo, and a stage checks it. The stage holds nothing back and
changes nothing: at the end it records a breach. A response that was refused, or ended by a stop sequence, is not
checked, and one that was cut off only by its beginning.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from dragoman._ir import events
from dragoman._ir.events import EVENTS, TRUNCATING_STOP_REASONS, BlockKind, Event, StopReason, ToolHead
from dragoman._ir.losses import Ledger, LossCode
from dragoman._ir.request import Request, ResponseFormat
from dragoman._ir.tools import HostedTool, ToolChoice
from dragoman._transforms.pass_context import PassContext
from dragoman._wire.exceptions import RemoteProtocolError
from dragoman._wire.json import JSON, decode
from dragoman._wire.json_schema import SchemaUndecided, find_broken_keyword, is_strict

# In characters. Longer responses are not checked.
MAX_TEXT = 256 * 1024

_ANY_OBJECT: JSON = {"type": "object"}
_NOT_JSON = "the response is not the JSON that was requested"

# Only the beginning of a response that was cut off is checked: text where a tool call or JSON was required.
_JSON_STARTS = frozenset('{["-0123456789tfn')


def find_unenforced(request: Request, context: PassContext) -> Request:
    """Note the client's response format and tool choice for a check of the response, unless the upstream enforces them.

    request: as it is sent.
    """
    received, enforces = context.received, context.capabilities.enforces
    if received.compact:
        return request  # the response is a summary
    form, choice = received.response_format, received.tool_choice
    if form is not None and "schema" in enforces and _is_enforced(request.response_format):
        form = None
    sent = request.tool_choice
    if choice is not None and not choice.requires_call:
        choice = None
    if sent is not None and sent.requires_call and "tool_choice" in enforces:
        choice = None
    if choice is not None and choice.name is None and any(type(tool) is HostedTool for tool in request.tools):
        choice = None  # a call of the provider's own tools counts too, and not all are reported
    if form is not None or choice is not None:
        context.undo = msgspec.structs.replace(context.undo, unenforced_format=form, unenforced_choice=choice)
    return request


def _is_enforced(form: ResponseFormat | None) -> bool:
    """True if a server that enforces strict schemas enforces this one."""
    return form is not None and form.strict is True and is_strict(form.schema)


class OutputCheckStage:
    """Checks the first choice of a response. All events pass unchanged.

    form, choice: from find_unenforced().
    """

    __slots__ = ("_calls", "_choice", "_form", "_ledger", "_refused", "_size", "_texts", "needs_text")

    kinds = EVENTS

    def __init__(self, form: ResponseFormat | None, choice: ToolChoice | None, ledger: Ledger) -> None:
        self.needs_text = form is not None  # see `_transforms.pipeline`
        self._form = form
        self._choice = choice
        self._ledger = ledger
        self._texts: dict[int, list[str]] = {}
        self._size = 0
        self._calls: list[ToolHead] = []
        self._refused = False

    def send(self, event: Event) -> Sequence[Event]:
        if isinstance(event, events.TextDelta):
            if event.block in self._texts and self._size <= MAX_TEXT:
                self._size += len(event.text)
                self._texts[event.block].append(event.text)
        elif isinstance(event, events.BlockStarted):
            if event.choice == 0:
                self._start(event)
        elif isinstance(event, events.Stopped) and event.choice == 0:
            self._check(event.reason)
        return (event,)

    def _start(self, event: events.BlockStarted) -> None:
        if event.tool is not None:
            self._calls.append(event.tool)
        elif event.kind is BlockKind.TEXT:
            self._texts[event.block] = []
        elif event.kind is BlockKind.REFUSAL:
            self._refused = True

    def _check(self, reason: StopReason) -> None:
        cut = reason in TRUNCATING_STOP_REASONS
        if self._refused or not (cut or reason in (StopReason.END, StopReason.TOOL_USE)):
            return
        if cut and (self._calls or not self._texts):
            return  # the call or text was unfinished
        if self._choice is not None:
            self._check_calls(self._choice)
        if self._form is None or self._calls:
            return
        if not cut:
            self._check_text(self._form)
            return
        start = "".join([*self._texts.values()][-1]).lstrip()[:1]
        if start and start not in _JSON_STARTS:
            self._breach("/content", _NOT_JSON)

    def _check_calls(self, choice: ToolChoice) -> None:
        if not self._calls:
            self._breach("/tool_calls", "a tool call was required, and the model made none")
        elif choice.name is not None and all(call.name != choice.name for call in self._calls):
            self._breach("/tool_calls", "the model called another tool than the required one")

    def _check_text(self, form: ResponseFormat) -> None:
        texts = ["".join(pieces) for pieces in self._texts.values()]
        schema = _ANY_OBJECT if form.schema is None else form.schema
        try:
            if self._size > MAX_TEXT:
                raise SchemaUndecided(f"it has more than {MAX_TEXT} characters")
            reason = _reason("".join(texts), schema)
            if reason is not None and len(texts) > 1:
                reason = _reason(texts[-1], schema)  # some models comment before the JSON
        except SchemaUndecided as error:
            self._ledger.add(
                LossCode.UNCHECKED, "/content", f"not checked against the requested schema: {error}"
            )
            return
        if reason is not None:
            self._breach("/content", reason)

    def _breach(self, path: str, detail: str) -> None:
        self._ledger.add(LossCode.BREACH, path, detail)


def _reason(text: str, schema: JSON) -> str | None:
    """Return why a text does not have the required format, None if it does. Raises SchemaUndecided."""
    try:
        value = decode(text.encode("utf-8", "surrogatepass"))
    except RemoteProtocolError:
        return _NOT_JSON
    keyword = find_broken_keyword(schema, value)
    return None if keyword is None else f"the response does not match the requested schema ({keyword})"
