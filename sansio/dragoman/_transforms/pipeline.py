"""The passes over a request and the stages of its response, in their order.

Each pass changes one thing of the request, and notes in Undo what the response has to undo. Each stage undoes one thing
that a pass did, or does one thing that the client's protocol needs: it takes an event and returns any number. Only the
stages that a response needs are built; nearly all need no stage over text, so deltas bypass the pipeline.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import compress
from operator import attrgetter
from typing import Protocol

from dragoman._ir.events import EVENTS, BlockStarted, Event, ReasoningDelta, TextDelta
from dragoman._ir.losses import Ledger
from dragoman._ir.request import Media, OpaquePart, Reasoning, Request, ToolCall
from dragoman._transforms.cache_key import add_cache_key
from dragoman._transforms.compaction import CompactionStage, request_summary
from dragoman._transforms.content import fit_cache_marks, fit_media
from dragoman._transforms.extensions import strip_extensions
from dragoman._transforms.history import add_user_turns, repair_history
from dragoman._transforms.json_output import CodeFenceStage, JsonToolStage, fit_format
from dragoman._transforms.message_members import fit_message_members
from dragoman._transforms.pass_context import (
    MARKS,
    SPEAKERS,
    UNPAIRED,
    UNREAD,
    Pass,
    PassContext,
    Subject,
    find_contents,
)
from dragoman._transforms.reasoning_cache import ReasoningCacheStage, restore_reasoning
from dragoman._transforms.response_checks import OutputCheckStage, find_unenforced
from dragoman._transforms.signatures import SignatureStage, drop_foreign_signatures
from dragoman._transforms.stop_sequences import StopSequenceStage
from dragoman._transforms.tool_calls import ToolCallStage
from dragoman._transforms.tools import fit_tools
from dragoman._transforms.unsupported import drop_unsupported, fit_tool_settings
from dragoman.codec import Capabilities, CheckInput, ProtocolSpec, ResponseContext


def _never(capabilities: Capabilities) -> bool:
    return False


# First the passes over what no other protocol has, then those over the history, on which later passes rely, then those
# that fit the request to the upstream, and last the one that prepares the checks of the response. Each with the
# subjects without which a request has nothing for it, and whether an upstream needs it for any request.
PASSES: tuple[tuple[Pass, tuple[Subject, ...], Callable[[Capabilities], bool]], ...] = (
    (
        strip_extensions,
        (OpaquePart, UNREAD, "extra", "namespaces", "reasoning", "repairs", "response_format", "tools"),
        _never,
    ),
    (restore_reasoning, (ToolCall,), _never),
    (fit_message_members, (SPEAKERS,), _never),
    (request_summary, ("compact",), _never),
    (repair_history, (UNPAIRED,), _never),
    (add_user_turns, (), lambda capabilities: capabilities.requires_user_first or not capabilities.prefill),
    (drop_foreign_signatures, (Reasoning,), _never),
    (fit_format, ("response_format",), _never),
    (fit_media, (Media,), _never),
    (fit_cache_marks, (MARKS, "prompt_cache_options", "tools"), _never),
    (
        fit_tool_settings,
        ("response_format", "tool_choice", "tools"),
        lambda capabilities: "parallel_tool_calls" in capabilities.refuses,
    ),
    (add_cache_key, (), lambda capabilities: capabilities.cache_keys),
    (fit_tools, (ToolCall, "tool_choice", "tools"), _never),
    (drop_unsupported, ("params",), _never),
    (find_unenforced, ("response_format", "tool_choice"), _never),
)
# From this pass on none changes what a later one looks for in the messages: media, marks, calls and ids.
_SETTLED = [row[0] for row in PASSES].index(drop_foreign_signatures)
# The numbers of the passes that are about each subject.
_BY_SUBJECT: dict[Subject, set[int]] = {}
for _number, _row in enumerate(PASSES):
    for _subject in _row[1]:
        _BY_SUBJECT.setdefault(_subject, set()).add(_number)
_FIELDS = tuple([name for name in Request.__struct_fields__ if name in _BY_SUBJECT])
_values = attrgetter(*_FIELDS)
# So many kinds of requests are remembered, each with its passes: requests are much alike. A kind takes 200 bytes, and a
# server has a translator for each model that its clients have named.
_KEPT = 64


class Passes:
    """The passes over requests of one client protocol for one upstream."""

    __slots__ = ("_always", "_by_subject", "_known")

    def __init__(self, client: ProtocolSpec, capabilities: Capabilities) -> None:
        self._always = frozenset(
            [number for number, (_, _, is_needed) in enumerate(PASSES) if is_needed(capabilities)]
        )
        # strip_extensions, the first one, refuses settings of conversations that a server has.
        states: dict[Subject, set[int]] = {
            param: {0, *_BY_SUBJECT.get(param, ())} for param in client.server_state_params
        }
        self._by_subject = {**_BY_SUBJECT, **states}
        self._known: dict[tuple[object, ...], tuple[int, ...]] = {}

    def apply(self, request: Request, context: PassContext) -> Request:
        """Return the request after all passes that have something to do."""
        waiting = list(self._needed(request, context))
        while waiting:
            number = waiting.pop()
            passed = PASSES[number][0](request, context)
            if passed is request:
                continue
            if passed.messages is not request.messages and number < _SETTLED:
                context.contents = find_contents(passed.messages)
            request = passed
            waiting = sorted(
                {*waiting, *[each for each in self._needed(request, context) if each > number]}, reverse=True
            )
        return request

    def _needed(self, request: Request, context: PassContext) -> tuple[int, ...]:
        """Return the numbers of the passes for what is in a request, the last one first."""
        # Maybe in more than one order: to sort them out takes longer.
        found = (*compress(_FIELDS, _values(request)), *context.contents.subjects, *request.params)
        known = self._known.get(found)
        if known is None:
            passes = [self._by_subject.get(subject, ()) for subject in found]
            known = tuple(sorted(self._always.union(*passes), reverse=True))
            if len(self._known) < _KEPT:
                self._known[found] = known
        return known


class Stage(Protocol):
    """One stage.

    Attributes:
        needs_text: It needs TextDelta and ReasoningDelta. They bypass a pipeline of stages that do not.
        kinds: The types of events that it takes. Others pass it unchanged.
    """

    needs_text: bool

    @property
    def kinds(self) -> Collection[type]: ...

    def send(self, event: Event) -> Sequence[Event]:
        """Return the events that take the place of a legal event."""


# Of the stages that any response may have: before the first call, which has the only arguments and the only end of a
# block that they need, and from there on.
_USUAL_KINDS = SignatureStage.kinds | ReasoningCacheStage.kinds
_KINDS_WITH_CALLS = _USUAL_KINDS | ToolCallStage.kinds
_WITHOUT_TEXTS = EVENTS - {TextDelta, ReasoningDelta}


class Pipeline:
    """The stages that one response needs.

    Attributes:
        needs_text: A stage needs TextDelta and ReasoningDelta. If none does, `calls` is the only stage that changes an
            ArgumentsDelta.
        kinds: The types of events that a stage needs now. The others need not be sent.
        calls: The stage of tool calls.
        reasoning_cache: The stage that collects reasoning for the cache, or None.
    """

    __slots__ = ("_stages", "calls", "kinds", "needs_text", "reasoning_cache")

    def __init__(
        self,
        client: ProtocolSpec,
        context: ResponseContext,
        ledger: Ledger,
        check_input: CheckInput | None = None,
    ) -> None:
        undo = context.undo
        self.calls = ToolCallStage(undo, client.tool_limits, context.id, ledger, check_input)
        self.reasoning_cache = ReasoningCacheStage() if client.clients_drop_signatures else None
        stages: list[Stage] = [SignatureStage(client, context.upstream_model, ledger), self.calls]
        if undo.json_tool is not None:
            stages.append(JsonToolStage(undo.json_tool, ledger))
        if undo.strip_code_fence:
            stages.append(CodeFenceStage())
        if undo.stop_sequences:
            single_choice = context.request.params.get("n") in (None, 1)
            stages.append(StopSequenceStage(undo.stop_sequences, single_choice=single_choice))
        if undo.unenforced_format is not None or undo.unenforced_choice is not None:
            stages.append(OutputCheckStage(undo.unenforced_format, undo.unenforced_choice, ledger))
        if undo.compacts:
            stages.append(CompactionStage())
        self.needs_text, self.kinds = False, _USUAL_KINDS
        for stage in stages[2:]:  # nearly always none
            self.needs_text = self.needs_text or stage.needs_text
            self.kinds = EVENTS if self.needs_text else _WITHOUT_TEXTS
        if self.reasoning_cache is not None:
            stages.append(self.reasoning_cache)
        self._stages: Sequence[Stage] = stages

    def send(self, event: Event) -> Sequence[Event]:
        events: Sequence[Event] = (event,)
        if self.kinds is _USUAL_KINDS and type(event) is BlockStarted:
            if event.tool is not None:
                self.kinds = _KINDS_WITH_CALLS
            elif event.phase is None and self.reasoning_cache is None:
                return events  # as nearly always
        for stage in self._stages:
            if len(events) == 1:
                if type(events[0]) in stage.kinds:
                    events = stage.send(events[0])
            else:
                events = [out for each in events for out in stage.send(each)]
        return events
