"""The events of the feed, the ring that keeps the latest ones, and which of them a reader gets."""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate, chain, count
from operator import attrgetter
from typing import NamedTuple, TypeAlias

import msgspec

from dragoman.errors import mask_value
from dragoman.jsontext import JSONObject, encode_lines
from dragoman_server.settings.secret import Mask

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
WORKER_EVENTS = JOINED, LEFT = "worker.joined", "worker.left"
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


# The request, client key, model and upstream of an event, see FeedEvent.
EventLabels: TypeAlias = tuple[str, str, str, str]


class EndedRequest(msgspec.Struct, frozen=True, gc=False):
    """What is kept of a request that has ended, also while nobody reads. line: the members of its line in the log."""

    at: float
    line: JSONObject

    @property
    def labels(self) -> EventLabels:
        line = self.line
        model = line.get("model", "")[:MAX_LABEL_LENGTH]
        return line["id"], line.get("client_key", ""), model, line.get("upstream", "")

    @property
    def data(self) -> JSONObject:
        data = {"request": self.line["id"], "at": self.at, "losses": [], **self.line}
        del data["id"]
        return data


class FeedEvent(msgspec.Struct, array_like=True, gc=False):
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

    def choose(self, events: list[FeedEvent]) -> list[FeedEvent]:
        """Return those of some events that the reader gets."""
        types = self.type or _OTHER_EVENTS
        events = [event for event in events if event.type in types]
        for name in self.__struct_fields__[1:]:
            if values := getattr(self, name):
                events = [event for event in events if getattr(event, name) in values]
        return events


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
    """The latest events of one process, within limits of count and bytes.

    Attributes:
        waiting: The last events, each with its type and its data, until encode() is called. To add one, append it.
    """

    def __init__(self, max_events: int = MAX_KEPT_EVENTS, max_bytes: int = MAX_KEPT_BYTES) -> None:
        self.waiting: list[tuple[str, EventLabels, JSONObject]] = []
        self._max_events, self._max_bytes = max_events, max_bytes
        self._events: list[FeedEvent] = []
        self._size = 0
        self._next = 1

    @property
    def kept(self) -> KeptEvents:
        return KeptEvents(self._next - len(self._events), self._next - 1 + len(self.waiting))

    def encode(self, mask: Mask) -> None:
        """Encode what waits: together, because most of what this takes is taken once for all. mask: removes secrets."""
        waiting, self.waiting = self.waiting, []
        datas: list[JSONObject] = [data for _, _, data in waiting]
        if mask.may_change_values(chain.from_iterable([data.values() for data in datas])):
            datas = [mask_value(data, mask) for data in datas]
        text = encode_lines(datas).decode()
        events = self._events
        for number, (kind, labels, _), line in zip(
            count(self._next), waiting, text.split("\n"), strict=False
        ):
            events.append(FeedEvent(number, kind, *labels, line))
        self._next += len(waiting)
        dropped = max(0, len(events) - self._max_events)
        size = self._size + len(text) - len(waiting) - sum(map(len, map(_data, events[:dropped])))
        while size > self._max_bytes:
            size -= len(events[dropped].data)
            dropped += 1
        del events[:dropped]
        self._size = size

    def clear(self) -> None:
        """Remove all events, none of which waits.

        A number is left out, so that a reader that comes back finds that some are missing.
        """
        self._events.clear()
        self._size = 0
        self._next += 1

    def after(self, seen: int, wanted: EventFilter) -> EventBatch:
        """Return what follows the event of this number, not all of it if that is much."""
        first = self.kept.first
        start = max(seen + 1, first)
        events = self._events[start - first : start - first + MAX_BATCH_EVENTS]
        last = start - 1 + len(events)
        chosen = wanted.choose(events)
        fit = bisect_right(list(accumulate(map(len, map(_data, chosen)))), MAX_BATCH_BYTES) + 1
        if fit < len(chosen):
            chosen = chosen[:fit]
            last = chosen[-1].number
        return EventBatch(start - seen - 1, last, chosen)


_data = attrgetter("data")
