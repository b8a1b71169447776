"""Several open blocks in, one open block at a time out.

In Messages and Responses one block is open at a time, and many clients keep a single current block. Chat streams may
fill parallel tool calls in turns (headroomlabs-ai/headroom#2890, read in November 2026). The first open block passes
immediately; events of the others wait, in order, until it ends. Nothing is reordered within a block, and blocks come
out in the order in which they started.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import msgspec

from dragoman._ir import events
from dragoman._ir.events import Event

_BLOCK_EVENTS = frozenset(
    (*events.DELTAS, events.SignatureDelta, events.Annotation, events.Logprobs, events.BlockEnded)
)


# What a waiting event counts besides its text: to write it takes as long as to read so many bytes of a response.
_EVENT_BYTES = 64


class Linearizer(msgspec.Struct):
    """Takes legal events, and returns legal events with at most one open block.

    The number of waiting events is bounded by the response, which the readers limit.

    Attributes:
        current: The open block.
        held_bytes: Of the waiting events, which one event may release.
    """

    current: int | None = None
    held_bytes: int = 0
    # Block -> its waiting events, in the order in which the blocks started. Opaque blocks and stops wait under negative
    # numbers, so that they keep their place. An OrderedDict finds its first entry without a search.
    _queue: OrderedDict[int, list[Event]] = msgspec.field(default_factory=OrderedDict)
    _waiting: int = 0  # the number of such entries so far

    def send(self, event: Event) -> Sequence[Event]:
        kind = type(event)
        if kind in _BLOCK_EVENTS:
            block: int = event.block  # type: ignore[union-attr]
            if block != self.current:
                return self._wait(block, event)
            if kind is events.BlockEnded:
                self.current = None
                return (event, *self._release())
            return (event,)  # as nearly all do
        if isinstance(event, events.BlockStarted):
            if self.current is None:
                self.current = event.block
                return (event,)
            return self._wait(event.block, event)
        if (
            kind is events.Opaque or kind is events.Stopped or kind is events.Compacted
        ) and self.current is not None:
            self._waiting += 1
            return self._wait(-self._waiting, event)
        # Nothing follows an error, so what waits then is never sent: the unfinished end of the response.
        return (event,)

    def _wait(self, place: int, event: Event) -> Sequence[Event]:
        self._queue.setdefault(place, []).append(event)
        self.held_bytes += _held_bytes(event)
        return ()

    def _release(self) -> list[Event]:
        """Return the waiting events that may go now: whole blocks, then the start of the next unfinished one."""
        out: list[Event] = []
        while self._queue:
            block, waiting = self._queue.popitem(last=False)
            out += waiting
            if block >= 0 and type(waiting[-1]) is not events.BlockEnded:
                self.current = block
                break
        self.held_bytes -= sum(map(_held_bytes, out))
        return out


def _held_bytes(event: Event) -> int:
    return _EVENT_BYTES + (len(event.text) if isinstance(event, events.DELTAS) else 0)
