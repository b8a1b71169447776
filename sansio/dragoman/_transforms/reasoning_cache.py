"""Reasoning for clients that do not send it back.

Most Chat clients drop fields that they do not support, so the reasoning of a turn that called tools is lost when the
results come. An embedder may cache it: cached_reasoning() returns it under the ids of the turn's calls, and a lookup
function is called for turns with these calls that come back without. The core itself has no memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import msgspec

from dragoman._ir.events import BlockStarted, Event, SignatureDelta
from dragoman._ir.native import changed
from dragoman._ir.request import Message, Reasoning, Request, ToolCall
from dragoman._transforms.pass_context import PassContext

CachedReasoning: TypeAlias = tuple[tuple[str, ...], tuple[Reasoning, ...]]


def restore_reasoning(request: Request, context: PassContext) -> Request:
    """Reattach cached reasoning to assistant turns that made tool calls and came back without it.

    Reasoning that readers wrapped for the client's own protocol (`reasoning_content`) does not count, because
    upstreams of another protocol cannot read it.
    """
    reasoning_lookup = context.reasoning_lookup
    if reasoning_lookup is None or not context.client.clients_drop_signatures:
        return request
    messages: list[Message] | None = None
    for number, message in enumerate(request.messages):
        if message.role != "assistant":
            continue
        calls = tuple([part.call_id for part in message.parts if type(part) is ToolCall])
        if not calls or any(
            type(part) is Reasoning
            and part.signature is not None
            and part.signature.origin != request.protocol
            for part in message.parts
        ):
            continue
        cached = reasoning_lookup(calls)
        if cached:
            found = [msgspec.structs.replace(part, path=message.path) for part in cached]
            rest = [part for part in message.parts if type(part) is not Reasoning]
            messages = messages or list(request.messages)
            messages[number] = changed(message, content=(*found, *rest))
    return request if messages is None else msgspec.structs.replace(request, messages=tuple(messages))


class ReasoningCacheStage(msgspec.Struct):
    """Collects the reasoning of the first choice. Takes events as the client gets them, and changes none."""

    _calls: list[str] = []
    _reasoning: list[Reasoning] = []
    _first: set[int] = set()

    needs_text = False  # see `_transforms.pipeline`
    kinds = frozenset({BlockStarted, SignatureDelta})

    def send(self, event: Event) -> Sequence[Event]:
        if isinstance(event, BlockStarted) and event.choice == 0:
            self._first.add(event.block)
            if event.tool is not None:
                self._calls.append(event.tool.call_id)
        elif isinstance(event, SignatureDelta) and event.block in self._first:
            self._reasoning.append(Reasoning("", event.signature))
        return (event,)

    def cached_reasoning(self) -> CachedReasoning | None:
        """Return call ids and reasoning, None if there is no reasoning or no call to find it by."""
        return (tuple(self._calls), tuple(self._reasoning)) if self._calls and self._reasoning else None
