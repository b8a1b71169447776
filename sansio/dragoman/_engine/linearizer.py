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


class Linearizer(msgspec.Struct):
    """Takes legal events, and returns legal events with at most one open block.

    The number of waiting events is bounded by the response, which the readers limit.
    """

    current: int | None = None  # the open block
    # Block -> its waiting events, in the order in which the blocks started. Opaque blocks and stops wait under negative
    # numbers, so that they keep their place. An OrderedDict finds its first entry without a search.
    _queue: OrderedDict[int, list[Event]] = msgspec.field(default_factory=OrderedDict)
    _waiting: int = 0  # the number of such entries so far

    def send(self, event: Event) -> Sequence[Event]:
        kind = type(event)
        if kind in _BLOCK_EVENTS:
            block: int = event.block  # type: ignore[union-attr]
            if block != self.current:
                self._queue[block].append(event)
                return ()
            if kind is events.BlockEnded:
                self.current = None
                return (event, *self._release())
            return (event,)  # as nearly all do
        if isinstance(event, events.BlockStarted):
            if self.current is None:
                self.current = event.block
                return (event,)
            self._queue[event.block] = [event]
            return ()
        if (
            kind is events.Opaque or kind is events.Stopped or kind is events.Compacted
        ) and self.current is not None:
            self._waiting += 1
            self._queue[-self._waiting] = [event]
            return ()
        # Nothing follows an error, so what waits then is never sent: the unfinished end of the response.
        return (event,)

    def _release(self) -> list[Event]:
        """Return the waiting events that may go now: whole blocks, then the start of the next unfinished one."""
        out: list[Event] = []
        while self._queue:
            block, waiting = self._queue.popitem(last=False)
            out += waiting
            if block >= 0 and type(waiting[-1]) is not events.BlockEnded:
                self.current = block
                break
        return out
