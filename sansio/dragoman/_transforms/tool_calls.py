"""Tool calls on their way to the client: names mapped back, free text unwrapped, ids distinct.

One stage for every pair of protocols, which needs only the Undo of the request. The client gets what it would have got
from an upstream of the same protocol. Names and ids that are too long are shortened in `tool_names_and_ids`.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from dragoman._ir.events import ArgumentsDelta, BlockEnded, BlockStarted, Event, ToolHead, ToolKind
from dragoman._ir.losses import Ledger, LossCode, child
from dragoman._ir.tools import Grammar
from dragoman._ir.undo import Undo
from dragoman._transforms.freeform import InputUnwrapper, InputWrapper
from dragoman._transforms.tool_names_and_ids import fit_name
from dragoman.codec import CheckInput, ToolLimits, Unchecked


class _OpenToolCall(msgspec.Struct):
    """An open tool call.

    Attributes:
        head: As the client gets it.
        converter: Changes its argument text, None for no change.
        grammar: Its input's grammar, if nothing has enforced it. Then `input` is that input so far.
        empty: No argument text has come yet, or only blanks.
    """

    head: ToolHead
    converter: InputUnwrapper | InputWrapper | None
    grammar: Grammar | None
    input: list[str] = []
    empty: bool = True


class ToolCallStage(msgspec.Struct):
    """Changes the tool calls of one response back. Other events pass unchanged.

    _undo: the changes of the request's passes.
    _limits: the limits of the client's protocol for tools.
    _response_id: the response's unique id.
    _check: checks the input of custom tools with a grammar that the upstream could not enforce. Without it such an
        input is recorded as unchecked.
    """

    _undo: Undo
    _limits: ToolLimits
    _response_id: str
    _ledger: Ledger
    _check: CheckInput | None = None
    _ids: dict[str, None] = {}  # of this response; an empty set takes 150 bytes more
    _numbers: dict[str, int] = {}  # the upstream's id -> the next number for a call that repeats it
    _calls: dict[int, _OpenToolCall] = {}

    needs_text = False  # see `_transforms.pipeline`
    kinds = frozenset({ArgumentsDelta, BlockStarted, BlockEnded})

    def send(self, event: Event) -> Sequence[Event]:
        if type(event) is ArgumentsDelta:
            filled = self.fill(event.block, [event.text])
            return (
                (event,) if filled == [event.text] else [ArgumentsDelta(event.block, each) for each in filled]
            )
        if type(event) is BlockStarted and event.tool is not None:
            return (self._start(event, event.tool),)
        if type(event) is BlockEnded and event.block in self._calls:
            return self._end(event)
        return (event,)

    def _start(self, event: BlockStarted, head: ToolHead) -> BlockStarted:
        name, namespace, kind = head.name, head.namespace, head.kind
        converter: InputUnwrapper | InputWrapper | None = None
        grammar: Grammar | None = None
        hosted: str | None = None
        origin = self._undo.origins.get(name)
        if origin is not None:
            if origin.wrapped and kind is ToolKind.FUNCTION:
                converter = InputUnwrapper()
                grammar = origin.grammar
            name, namespace, kind, hosted = origin.name, origin.namespace, origin.kind, origin.hosted
        if kind is ToolKind.CUSTOM and not self._limits.custom:
            # A call of a tool that the client did not offer and has no form for: a function with one string holds it.
            converter, kind = InputWrapper(), ToolKind.FUNCTION
        if namespace is not None and not self._limits.namespaces:
            name, namespace = fit_name(name, namespace, self._limits), None
        head = ToolHead(self._distinct(head.call_id), name, kind, namespace, head.item_id, hosted)
        self._calls[event.block] = _OpenToolCall(head, converter, grammar)
        return msgspec.structs.replace(event, tool=head)

    def _distinct(self, call_id: str) -> str:
        """Return an id that is unique in this conversation.

        Some servers number the calls of each turn from zero (NVIDIA-NeMo/Switchyard#502, read in November 2026), or
        send two calls with one id. Clients pair results with calls only by id, so an id that this conversation has used
        gets a suffix of this response.
        """
        distinct, used = call_id, self._undo.used_ids
        if distinct in self._ids or distinct in used:
            number = self._numbers.get(call_id, 0)
            while distinct in self._ids or distinct in used:
                distinct = f"{call_id}_{self._response_id[:8]}{number or ''}"
                number += 1
            self._numbers[call_id] = number
        self._ids[distinct] = None
        return distinct

    def fill(self, block: int, texts: list[str]) -> list[str]:
        """Return what the client gets for argument texts of an open call, perhaps nothing."""
        call = self._calls[block]
        if call.converter is None:
            if call.empty:
                call.empty = not any(map(str.strip, texts))
            return texts
        filled = [text for text in map(call.converter.feed, texts) if text]
        if call.grammar is not None and self._check is not None:
            call.input += filled
        return filled

    def _end(self, event: BlockEnded) -> Sequence[Event]:
        call = self._calls.pop(event.block)
        if isinstance(call.converter, InputWrapper) and not event.complete:
            return (event,)  # cut off: it must not look complete
        if call.converter is not None:
            rest = call.converter.finish()
            if call.grammar is not None and event.complete:
                self._check_grammar(call, call.grammar, rest)
            if not call.converter.exact and event.complete:
                self._ledger.altered(
                    child("/tool_calls", call.head.call_id) + "/input",
                    "the model did not wrap the tool's input as requested; its text was passed on unchanged",
                )
            return (ArgumentsDelta(event.block, rest), event) if rest else (event,)
        if call.empty and event.complete and call.head.kind is ToolKind.FUNCTION:
            # A tool without parameters: the sum of the deltas must still be a JSON object.
            return ArgumentsDelta(event.block, "{}"), event
        return (event,)

    def _check_grammar(self, call: _OpenToolCall, grammar: Grammar, rest: str) -> None:
        """Record the fault of an input that the client gets as the model wrote it."""
        path = child("/tool_calls", call.head.call_id) + "/input"
        what = f"the tool's {grammar.syntax} grammar"
        try:
            if self._check is None:
                raise Unchecked("no check is configured")
            reason = self._check(grammar, "".join([*call.input, rest]))
        except Unchecked as error:
            self._ledger.add(LossCode.UNCHECKED, path, f"not checked against {what}: {error}")
            return
        if reason is not None:
            self._ledger.add(LossCode.BREACH, path, f"it does not match {what}: {reason}")
