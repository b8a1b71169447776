"""The events of the feed, the ring that keeps the latest ones, and which of them a reader gets."""

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

# Bytes that client and upstream send. It is not made, and not sent, unless a reader asks for this type.
WIRE_EVENT = "request.wire"

# Those of requests, in the order in which they come.
REQUEST_EVENTS = (
    "request.begun",
    "request.planned",
    "request.attempt",
    "request.attempt_failed",
    "request.first_byte",
    "request.progress",
    "request.ended",
    WIRE_EVENT,
)
# Those of workers.
WORKER_EVENTS = ("worker.joined", "worker.left")
EVENT_TYPES = (*REQUEST_EVENTS, *WORKER_EVENTS)
_OTHER_EVENTS = frozenset(EVENT_TYPES) - {WIRE_EVENT}

# What one process keeps for its readers: at 500 bytes an event, some 500 requests.
MAX_KEPT_EVENTS = 4096
MAX_KEPT_BYTES = 4 * 1024 * 1024

# Characters of the name of a model by which events are filtered.
MAX_LABEL_LENGTH = 500

# What a reader takes at once, so that a long way back does not hold the event loop.
MAX_BATCH_EVENTS = 256
MAX_BATCH_BYTES = 256 * 1024


class FeedEvent(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One event.

    Attributes:
        number: Its place among the events of its process, from 1 on.
        request, client_key, model, upstream: Its request's, as far as known by then, else ""; for filters.
        data: A JSON object.
    """

    number: int
    type: str
    request: str
    client_key: str
    model: str
    upstream: str
    data: str


class EventFilter(msgspec.Struct, frozen=True):
    """Which events a reader gets: for each field that is not empty, those with one of its values."""

    type: frozenset[str] = frozenset()
    request: frozenset[str] = frozenset()
    client_key: frozenset[str] = frozenset()
    model: frozenset[str] = frozenset()
    upstream: frozenset[str] = frozenset()

    @property
    def wants_wire(self) -> bool:
        return WIRE_EVENT in self.type

    def conditions(self) -> list[tuple[str, frozenset[str]]]:
        """Return fields of events, each with the values of which an event has to have one."""
        values = [(name, getattr(self, name)) for name in self.__struct_fields__]
        return [("type", self.type or _OTHER_EVENTS), *(each for each in values[1:] if each[1])]


class KeptEvents(NamedTuple):
    """Which events a process has: their first and last number; the last is one less than the first if it has none."""

    first: int
    last: int


class EventBatch(msgspec.Struct, frozen=True, array_like=True):
    """The next events for a reader.

    Attributes:
        lost: How many were dropped before these, because the reader was slow.
        last: The number of the last one that was looked at. The filter may have left it out.
    """

    lost: int
    last: int
    events: Sequence[FeedEvent]


class EventRing:
    """The latest events of one process, within limits of count and bytes."""

    def __init__(self, max_events: int = MAX_KEPT_EVENTS, max_bytes: int = MAX_KEPT_BYTES) -> None:
        self._max_events, self._max_bytes = max_events, max_bytes
        self._events: deque[FeedEvent] = deque()
        self._size = 0
        self._next = 1

    @property
    def kept(self) -> KeptEvents:
        return KeptEvents(self._next - len(self._events), self._next - 1)

    def add(self, kind: str, labels: tuple[str, str, str, str], data: str) -> None:
        """Add an event. kind: its type. labels: of its request, see FeedEvent."""
        self._events.append(FeedEvent(self._next, kind, *labels, data))
        self._next += 1
        self._size += len(data)
        while len(self._events) > self._max_events or self._size > self._max_bytes:
            self._size -= len(self._events.popleft().data)

    def clear(self) -> None:
        """Remove all events. A number is left out, so that a reader that comes back finds that some are missing."""
        self._events.clear()
        self._size = 0
        self._next += 1

    def after(self, seen: int, wanted: EventFilter) -> EventBatch:
        """Return what follows the event of this number, not all of it if that is much."""
        first = self.kept.first
        start = max(seen + 1, first)
        chosen: list[FeedEvent] = []
        size = looked_at = 0
        conditions = wanted.conditions()
        # By index, because most readers are near the end, which an iterator would have to walk to.
        for index in range(start - first, min(start - first + MAX_BATCH_EVENTS, len(self._events))):
            event = self._events[index]
            looked_at += 1
            for name, values in conditions:
                if getattr(event, name) not in values:
                    break
            else:
                chosen.append(event)
                size += len(event.data)
                if size > MAX_BATCH_BYTES:
                    break
        return EventBatch(start - seen - 1, start - 1 + looked_at, chosen)
