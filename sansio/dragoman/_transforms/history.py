"""Repair of a history of tool calls and results that the upstream would refuse.

All vendors refuse a conversation in which calls and results do not pair. So one pass ensures that every call id
is used once, that the results of a turn's calls follow it directly, and that each call has one. Nearly every history
needs no repair, which `find_contents` says; only the others are rebuilt. Each repair is recorded as a loss.

The errors (read 2026-11-22): "tool_use ids were found without tool_result blocks immediately after"
(OpenHands/OpenHands#7512); "messages with role 'tool' must be a response to a preceding message with 'tool_calls'"
(ogx-ai/ogx#6367); "No tool output found for function call" (router-for-me/CLIProxyAPI#2368).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from operator import is_

import msgspec

from dragoman._ir.losses import Ledger
from dragoman._ir.native import changed, unknown_members
from dragoman._ir.request import Message, OpaquePart, Part, Request, Text, ToolCall, ToolResult
from dragoman._transforms.pass_context import UNPAIRED, PassContext

_SYSTEM = ("system", "developer")
_MISSING = "No result: the conversation went on before the tool had answered."
_FIRST = "(The assistant speaks first.)"
_CONTINUE = "Continue your last message from exactly where it ends, without repeating any of it."


def repair_history(request: Request, context: PassContext) -> Request:
    """Return the request with a history that every upstream accepts, unchanged if it has one."""
    if UNPAIRED not in context.contents.subjects:
        return request
    messages = _HistoryRepair(context.ledger, request.defined).repair(request.messages)
    return msgspec.structs.replace(request, messages=messages)


def add_user_turns(request: Request, context: PassContext) -> Request:
    """Add a user turn where the upstream refuses a conversation that begins or ends with an assistant turn.

    "Please ensure that function call turn comes immediately after a user turn or after a function response turn."
    (google-gemini/gemini-cli#11814, read 2026-11-22) "This model does not support assistant message prefill. The
    conversation must end with a user message." (vercel/ai#12296, read 2026-11-22)
    """
    messages, capabilities = request.messages, context.capabilities
    if messages and capabilities.requires_user_first:
        first = next((number for number, each in enumerate(messages) if each.role not in _SYSTEM), 0)
        if messages[first].role == "assistant" and _has_turns(messages):
            path = messages[first].path
            context.ledger.repaired(path, "the upstream requires a user message first: one was inserted")
            messages = (*messages[:first], _user_turn(_FIRST, path), *messages[first:])
    last = messages[-1] if messages else None
    if not capabilities.prefill and last and last.role == "assistant" and not _is_prefix(last, context):
        if not _has_turns(messages):
            return request
        path = last.path
        context.ledger.altered(
            path, "a user message requests the rest: the model does not continue an assistant message"
        )
        messages = (*messages, _user_turn(_CONTINUE, path))
    return request if messages is request.messages else msgspec.structs.replace(request, messages=messages)


def _has_turns(messages: Sequence[Message]) -> bool:
    """False if no message has anything that another protocol has."""
    return any(type(part) is not OpaquePart for each in messages for part in each.parts)


def _is_prefix(message: Message, context: PassContext) -> bool:
    """True for a message that its sender marks as one to continue, with which a conversation may always end.

    "Assistant message with prefix True must be last message" (mistral-common, read 2026-11-30)
    """
    marked = context.upstream.prefix_member if context.rewritten else None
    return marked is not None and (message.native or message.before or {}).get(marked) is True


def _user_turn(text: str, path: str) -> Message:
    return Message("user", (Text(text, path=path),), path)


class _HistoryRepair(msgspec.Struct):
    """Rebuilds one history, turn by turn.

    What happens to a turn depends on nothing behind the next one, because the upstream has cached it: it got the turn,
    with a placeholder for each result that was missing, before the model wrote the next one.
    """

    _ledger: Ledger
    _defined: Mapping[str, bool | str]
    _out: list[Message] = []
    _seen: set[str] = set()
    _numbers: dict[str, int] = {}  # the client's call id -> the number that its last repetition got
    # In the assistant's turn: the client's call id -> calls without a result yet, oldest first.
    _waiting: dict[str, deque[ToolCall]] = {}
    _turn_is_over: bool = False  # another role has written since
    # Written since: messages of the turn's results, and all others.
    _answers: list[Message] = []
    _rest: list[Message] = []

    def repair(self, messages: tuple[Message, ...]) -> tuple[Message, ...]:
        """Return a history in which all calls and results pair. Call it once."""
        for message in messages:
            if message.role != "assistant":
                self._turn_is_over = True
            elif self._turn_is_over:
                self._finish_turn()
            self._add(message)
        self._finish_turn()
        return tuple(self._out)

    def _add(self, message: Message) -> None:
        assistant = message.role == "assistant"
        if message.plain_text:
            (self._out if assistant else self._rest).append(message)
            return
        answers: list[Part] = []
        rest: list[Part] = []
        for part in message.content:
            if isinstance(part, ToolResult):
                answer = None if assistant else self._answer(part, is_late=bool(rest or self._rest))
                if answer is None:
                    rest += self._orphan(part, message)
                else:
                    answers.append(answer)
            elif isinstance(part, Text) and not part.text:
                self._note(part.path, "an empty text part was left out: servers refuse it")
            elif isinstance(part, ToolCall) and assistant:
                rest.append(self._call(part))
            else:
                rest.append(part)
        is_first = message.role == "user" and not (self._answers or self._rest)
        if answers and rest and is_first and not any(self._waiting.values()):
            ordered = [*answers, *rest]
            if [part.path for part in ordered] == [part.path for part in message.content]:
                # All results of its turn, and then what else the user sends, as in a history that needs no repair.
                self._answers.append(_with_parts(message, ordered))
                return
        is_of_answers = bool(answers) and not rest and message.role == "user"
        if answers:
            of = message if is_of_answers else Message("user", (), answers[0].path)
            self._answers.append(_with_parts(of, answers))
        if rest:
            (self._out if assistant else self._rest).append(_with_parts(message, rest))
        elif not is_of_answers:
            # Nothing is left that they could stay with.
            self._ledger.unknown_fields(message.path, unknown_members(message), self._defined)
            if not message.content:
                self._note(message.path, "an empty message was left out: servers refuse it")

    def _call(self, call: ToolCall) -> ToolCall:
        """Return the call with an id that no earlier call has."""
        client_id = distinct = call.call_id
        if distinct in self._seen:
            number = self._numbers.get(client_id, 1)
            while distinct in self._seen:
                number += 1
                distinct = f"{client_id}_{number}"
            self._numbers[client_id] = number
            self._note(call.path, "an earlier call has the same id: this one got another")
            call = changed(call, call_id=distinct)
        self._seen.add(distinct)
        self._waiting.setdefault(client_id, deque()).append(call)
        return call

    def _answer(self, result: ToolResult, *, is_late: bool) -> ToolResult | None:
        """Return a result with the id of the turn's call that it answers, None if none waits for it."""
        calls = self._waiting.get(result.call_id)
        if not calls:
            return None
        if is_late:
            self._note(result.path, "the result was moved to the place after its call")
        call_id = calls.popleft().call_id
        return result if call_id == result.call_id else changed(result, call_id=call_id)

    def _orphan(self, result: ToolResult, message: Message) -> list[Part]:
        """Return a result without a call as text, marked so that the model can distinguish it from the user's."""
        if message.role != "user":
            self._note(result.path, "left out: a result is not allowed here")
            return []
        self._note(result.path, "sent as text: no call with that id is waiting for a result")
        parts: list[Part] = []
        for part in result.parts:
            if not isinstance(part, Text):
                parts.append(part)
            elif part.text:
                marked = f"<tool_result>\n{part.text}\n</tool_result>"
                parts.append(changed(part, text=marked))
        return parts

    def _finish_turn(self) -> None:
        """Append what came after the assistant's turn: results, placeholders for those that are missing, the rest."""
        self._out += self._answers
        missing = [self._missing_result(call) for calls in self._waiting.values() for call in calls]
        if missing:
            self._out.append(Message("user", tuple(missing), missing[0].path))
        self._out += self._rest
        self._answers, self._rest = [], []
        self._waiting.clear()
        self._turn_is_over = False

    def _missing_result(self, call: ToolCall) -> ToolResult:
        self._note(call.path, "the call has no result: a placeholder was added")
        text = Text(_MISSING, path=call.path)
        return ToolResult(call.call_id, (text,), call.kind, is_error=True, path=call.path, hosted=call.hosted)

    def _note(self, path: str, detail: str) -> None:
        self._ledger.repaired(path, detail)


def _with_parts(message: Message, parts: Sequence[Part]) -> Message:
    """Return the message with these parts, itself if it has them."""
    if len(parts) == len(message.content) and all(map(is_, parts, message.content)):
        return message
    return changed(message, content=tuple(parts))
