"""Repair of a history of tool calls and results that the upstream would refuse.

All three vendors refuse a conversation in which calls and results do not pair. So one pass ensures that every call id
is used once, that the results of a turn's calls follow it directly, and that each call has one. Nearly every history
needs no repair, and one walk finds that out; only the others are rebuilt. Each repair is recorded as a loss.

The errors (read 2026-11-22): "tool_use ids were found without tool_result blocks immediately after"
(OpenHands/OpenHands#7512); "messages with role 'tool' must be a response to a preceding message with 'tool_calls'"
(ogx-ai/ogx#6367); "No tool output found for function call" (router-for-me/CLIProxyAPI#2368).
"""

from __future__ import annotations

import msgspec

from dragoman._ir.losses import Ledger, LossCode
from dragoman._ir.request import Message, Part, Request, Text, ToolCall, ToolResult
from dragoman._transforms.pass_context import PassContext

_MISSING = "No result: the conversation went on before the tool had answered."
_CONTINUE = "Continue your last message from exactly where it ends, without repeating any of it."


def repair_history(request: Request, context: PassContext) -> Request:
    """Return the request with a history that every upstream accepts, unchanged if it has one."""
    messages = request.messages
    if _is_valid(messages):
        return request
    return msgspec.structs.replace(request, messages=_HistoryRepair(context.ledger).repair(messages))


def end_with_user(request: Request, context: PassContext) -> Request:
    """Append a user turn if the upstream refuses a conversation that ends with an assistant turn.

    "This model does not support assistant message prefill. The conversation must end with a user message."
    (vercel/ai#12296, read 2026-11-22)
    """
    messages = request.messages
    if context.capabilities.prefill or not messages or messages[-1].role != "assistant":
        return request
    path = messages[-1].path
    context.ledger.altered(
        path, "a user message requests the rest: the model does not continue an assistant message"
    )
    last = Message("user", (Text(_CONTINUE, path=path),), path)
    return msgspec.structs.replace(request, messages=(*messages, last))


def _is_valid(messages: tuple[Message, ...]) -> bool:
    """True if the history needs no repair."""
    seen: set[str] = set()
    waiting: set[str] = set()  # calls without a result yet
    answering = False  # the first result has come
    for message in messages:
        if len(message.parts) == 1 and type(message.parts[0]) is Text and not waiting:
            if not message.parts[0].text:
                return False
            continue  # as most are
        assistant = message.role == "assistant"
        if not message.parts or (waiting and (answering if assistant else message.role != "user")):
            return False
        for part in message.parts:
            kind = type(part)
            if kind is ToolResult:
                if assistant or part.call_id not in waiting:  # type: ignore[union-attr]
                    return False
                waiting.remove(part.call_id)  # type: ignore[union-attr]
                answering = bool(waiting)
            elif kind is ToolCall and assistant:
                if part.call_id in seen:  # type: ignore[union-attr]
                    return False
                seen.add(part.call_id)  # type: ignore[union-attr]
                waiting.add(part.call_id)  # type: ignore[union-attr]
            elif (waiting and not assistant) or (kind is Text and not part.text):  # type: ignore[union-attr]
                return False
    return not waiting


class _AssistantTurn(msgspec.Struct):
    """An assistant turn, of one or several messages, and the results that belong after it.

    Attributes:
        calls: Its calls.
        results: By the id of their call.
        at: How many messages of the new history come before its results.
        open: Nothing but results has come after it.
    """

    calls: list[ToolCall] = []
    results: dict[str, ToolResult] = {}
    at: int = 0
    open: bool = True


class _HistoryRepair:
    """Rebuilds one history."""

    __slots__ = ("_ledger", "_out", "_seen", "_turns", "_unanswered")

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._out: list[Message] = []
        self._turns: list[_AssistantTurn] = []
        self._seen: set[str] = set()
        # The client's call id -> calls without a result yet, oldest first: the turn and the id in the new history.
        self._unanswered: dict[str, list[tuple[_AssistantTurn, str]]] = {}

    def repair(self, messages: tuple[Message, ...]) -> tuple[Message, ...]:
        """Return a history in which all calls and results pair. Call it once."""
        turn: _AssistantTurn | None = None  # the assistant's turn that continues
        for message in messages:
            if message.role != "assistant":
                turn = None
            elif turn is None:
                turn = _AssistantTurn()
                self._turns.append(turn)
            self._append(message, turn)
            if turn is not None:
                turn.at = len(self._out)
        return tuple(self._with_results())

    def _append(self, message: Message, turn: _AssistantTurn | None) -> None:
        """Append a message that stays in its place."""
        parts: list[Part] = []
        for part in message.parts:
            if isinstance(part, ToolResult):
                if not self._attach(part):
                    parts += self._orphan(part, message)
                continue
            if isinstance(part, Text) and not part.text:
                self._note(part.path, "an empty text part was left out: the upstream refuses it")
                continue
            if turn is None:
                if self._turns:
                    self._turns[-1].open = False
            elif isinstance(part, ToolCall):
                part = self._distinct(part)
                turn.calls.append(part)
            parts.append(part)
        if parts:
            changed = len(parts) != len(message.parts) or any(
                new is not old for new, old in zip(parts, message.parts, strict=True)
            )
            self._out.append(msgspec.structs.replace(message, parts=tuple(parts)) if changed else message)
            return
        self._ledger.unknown_fields(message.path, message.extra)  # nothing is left that they could stay with
        if not message.parts:
            self._note(message.path, "an empty message was left out: the upstream refuses it")

    def _distinct(self, call: ToolCall) -> ToolCall:
        """Return the call with an id that no earlier call has."""
        distinct = call.call_id
        number = 1
        while distinct in self._seen:
            number += 1
            distinct = f"{call.call_id}_{number}"
        self._seen.add(distinct)
        self._unanswered.setdefault(call.call_id, []).append((self._turns[-1], distinct))
        if distinct == call.call_id:
            return call
        self._note(call.path, "an earlier call has the same id: this one got another")
        return msgspec.structs.replace(call, call_id=distinct)

    def _attach(self, result: ToolResult) -> bool:
        """Add a result to the oldest call with its id in the newest turn that waits for it. False without one."""
        unanswered = self._unanswered.get(result.call_id)
        if not unanswered:
            return False
        newest = unanswered[-1][0]
        at = next(index for index, (turn, _) in enumerate(unanswered) if turn is newest)
        turn, call_id = unanswered.pop(at)
        if turn is not self._turns[-1] or not turn.open:
            self._note(result.path, "the result was moved to the place after its call")
        if call_id != result.call_id:
            result = msgspec.structs.replace(result, call_id=call_id)
        turn.results[call_id] = result
        return True

    def _orphan(self, result: ToolResult, message: Message) -> list[Part]:
        """Return a result without a call as text, marked so that the model can distinguish it from the user's."""
        if message.role != "user":
            self._note(result.path, "left out: a result is not allowed here")
            return []
        self._note(result.path, "sent as text: no call with that id is waiting for a result")
        if self._turns:
            self._turns[-1].open = False
        parts: list[Part] = []
        for part in result.parts:
            if not isinstance(part, Text):
                parts.append(part)
            elif part.text:
                marked = f"<tool_result>\n{part.text}\n</tool_result>"
                parts.append(msgspec.structs.replace(part, text=marked))
        return parts

    def _with_results(self) -> list[Message]:
        """Return the new history, with the results of each assistant turn after it."""
        out: list[Message] = []
        done = 0
        for turn in self._turns:
            out += self._out[done : turn.at]
            done = turn.at
            if turn.calls:
                results = tuple(
                    [turn.results.get(call.call_id) or self._missing_result(call) for call in turn.calls]
                )
                out.append(Message("user", results, results[0].path))
        return out + self._out[done:]

    def _missing_result(self, call: ToolCall) -> ToolResult:
        self._note(call.path, "the call has no result: a placeholder was added")
        text = Text(_MISSING, path=call.path)
        return ToolResult(call.call_id, (text,), call.kind, is_error=True, path=call.path, hosted=call.hosted)

    def _note(self, path: str, detail: str) -> None:
        self._ledger.add(LossCode.REPAIRED, path, detail)
