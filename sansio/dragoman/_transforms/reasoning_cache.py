"""Reasoning for clients that do not give it back.

Strategy: most Chat clients drop what they do not know, so the reasoning of a turn that called tools is lost when
its results come. Whoever embeds the core may keep it: `keepsake` is what to keep of an answer, under the ids of
its calls, and a function that finds it again is asked when a turn with these calls comes back without. The core
itself remembers nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import msgspec

from dragoman._ir.events import BlockStarted, Event, SealDelta
from dragoman._ir.request import Message, Request, Thought, ToolCall

# Call ids of a turn, as the client knows them -> the thoughts that were kept for them.
Recall: TypeAlias = Callable[[tuple[str, ...]], Sequence[Thought] | None]
Keepsake: TypeAlias = tuple[tuple[str, ...], tuple[Thought, ...]]


def recall_thoughts(request: Request, recall: Recall) -> Request:
    """The request with thoughts where turns with calls have none that another protocol's upstream can read.

    Readers seal what the client's own protocol says plainly (`reasoning_content`) for its own upstreams.
    """
    messages: list[Message] | None = None
    for number, message in enumerate(request.messages):
        if message.role != "assistant":
            continue
        calls = tuple([part.call_id for part in message.parts if type(part) is ToolCall])
        if not calls or any(
            type(part) is Thought and part.seal is not None and part.seal.origin != request.protocol
            for part in message.parts
        ):
            continue
        thoughts = recall(calls)
        if thoughts:
            found = [msgspec.structs.replace(thought, path=message.path) for thought in thoughts]
            rest = [part for part in message.parts if type(part) is not Thought]
            messages = messages or list(request.messages)
            messages[number] = msgspec.structs.replace(message, parts=(*found, *rest))
    return request if messages is None else msgspec.structs.replace(request, messages=tuple(messages))


class Keeper:
    """Notes what of an answer is to be kept, of its first choice. Feed it with what the client is told."""

    __slots__ = ("_calls", "_first", "_thoughts")

    text = False  # see `_transforms.pipeline`

    def __init__(self) -> None:
        self._calls: list[str] = []
        self._thoughts: list[Thought] = []
        self._first: set[int] = set()

    def send(self, event: Event) -> Sequence[Event]:
        if isinstance(event, BlockStarted) and event.choice == 0:
            self._first.add(event.block)
            if event.tool is not None:
                self._calls.append(event.tool.call_id)
        elif isinstance(event, SealDelta) and event.block in self._first:
            self._thoughts.append(Thought("", event.seal))
        return (event,)

    def keepsake(self) -> Keepsake | None:
        """Call ids and thoughts, None when there is nothing to keep, or nothing to find it by."""
        return (tuple(self._calls), tuple(self._thoughts)) if self._calls and self._thoughts else None
