"""The interface of response stores.

A stored response has the whole conversation that led to it, so that any of them can be deleted or evicted without
breaking later ones. The items of a conversation are the same from turn to turn, so a store holds and counts each of
them once, however many responses share it. An item of the model has its id in its response, and none in the input of
later ones, because it is sent without.

A response that is made in the background is stored when it begins, with a log of its events: any process that shares
the store can read them while it is made, and for a while after its end. Each change of an open log says what it was
before, so of two that close it, one is refused. The gateway that makes it renews a lease, so that others find out if
that gateway has died.

Only the owner of a response can see it. Times are arguments, in seconds since the epoch.
"""

import hashlib
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple, Protocol

import msgspec

# About the bytes that a store needs for each of its rows and for each place of an item in a response, besides the data.
# Without them a limit in bytes would be no limit for many small responses.
ROW_BYTES = 128
LINK_BYTES = 16

# Of the events of one response, with ROW_BYTES for each batch: some 60,000 of them. The oldest are dropped first.
MAX_LOG_BYTES = 16 * 2**20

# Seconds for which events are kept after the end, as long as OpenAI keeps them.
LOG_KEPT_S = 600

# Seconds for which the end of a response waits to be stored. After that the client gets it.
PUT_S = 0.25

# Bytes of events that are read at once.
PAGE_BYTES = 256 * 1024

# The owner and the id of a response.
ResponseKey = tuple[str, str]


class ResponseStoreError(Exception):
    """The store cannot be read or written. `str()` of it is for the log: it may name a file."""


class ResponseTooLarge(ResponseStoreError):
    """A response is larger than the limit of the store."""


# Not for the garbage collector, because a store holds a million, and a full collection would stop all requests for a
# second. Nothing in them can refer to them.
class StoredItem(msgspec.Struct, frozen=True, gc=False):
    """One item of a conversation.

    Attributes:
        data: Its JSON as the client or the model sent it, with or without the id.
    """

    id: str
    data: bytes

    @property
    def size(self) -> int:
        """The bytes that it takes in a store."""
        return ROW_BYTES + len(self.id) + len(self.data)


def item_digest(item: StoredItem) -> bytes:
    """Return a hash of an item: equal only for equal items."""
    return hashlib.blake2b(item.id.encode("ascii") + b"\n" + item.data, digest_size=16).digest()


class StoredResponse(msgspec.Struct, frozen=True, gc=False):
    """A response that has ended, or is being made in the background, with the whole input of the model.

    Attributes:
        owner: The name of the client key that may see it.
        created: When it was stored.
        body: The Response object as JSON, its `output` empty.
        input: The conversation before the response, from its start.
        output: The items of the response.
        lease: Until when the gateway that makes it counts as alive, 0 for a response that has ended.
    """

    id: str
    owner: str
    created: int
    body: bytes
    input: tuple[StoredItem, ...]
    output: tuple[StoredItem, ...]
    lease: float = 0.0

    @property
    def key(self) -> ResponseKey:
        return self.owner, self.id

    @property
    def size_without_items(self) -> int:
        """The bytes that it takes without its items."""
        return ROW_BYTES + len(self.id) + len(self.body) + LINK_BYTES * (len(self.input) + len(self.output))

    @property
    def size(self) -> int:
        """The bytes that it takes if no other response shares its items."""
        return self.size_without_items + sum(item.size for item in {*self.input, *self.output})


class ResponseEvents(msgspec.Struct, frozen=True, gc=False):
    """Events of a response that are written together.

    Attributes:
        first: The number of the first one.
        count: How many they are.
        data: Their frames as clients get them, each with a blank line at its end and none before.
    """

    first: int
    count: int
    data: bytes

    @classmethod
    def before(cls, number: int, frames: Sequence[bytes]) -> "ResponseEvents":
        """Return the last events before the one with a number."""
        return cls(number - len(frames), len(frames), b"".join(frames))

    @property
    def next(self) -> int:
        return self.first + self.count

    @property
    def size(self) -> int:
        """The bytes that it takes in a store."""
        return ROW_BYTES + len(self.data)

    def after(self, number: int) -> "ResponseEvents":
        """Return those with greater numbers."""
        skipped = number + 1 - self.first
        if skipped <= 0:
            return self
        if skipped >= self.count:
            return ResponseEvents(self.next, 0, b"")
        return ResponseEvents(number + 1, self.count - skipped, self.data.split(b"\n\n", skipped)[-1])


class LogState(msgspec.Struct, frozen=True, gc=False):
    """The log of a response.

    Attributes:
        lease: See StoredResponse.
        first: The number of the oldest event that is kept.
        next: The number that the next one will have.
    """

    lease: float
    first: int
    next: int


class EventPage(NamedTuple):
    """What is read of a log: events behind a number, about PAGE_BYTES of them."""

    log: LogState
    events: ResponseEvents


def page_of(log: LogState, after: int, batches: Iterable[ResponseEvents]) -> EventPage:
    """Return a page. batches: from the one that has the event behind `after` on."""
    events: list[ResponseEvents] = []
    size = 0
    for batch in batches:
        events.append(batch.after(after))
        size += batch.size
        if size >= PAGE_BYTES:
            break
    first = events[0].first if events else log.next
    data = b"".join([batch.data for batch in events])
    return EventPage(log, ResponseEvents(first, sum([batch.count for batch in events]), data))


class ResponseStoreLimits(msgspec.Struct, frozen=True):
    """The limits of a store, in bytes and in seconds. The oldest responses are dropped first."""

    max_bytes: int
    max_age_s: int


def find_items(
    ids: Iterable[str], limit: int, find: Callable[[str], StoredItem | None]
) -> dict[str, StoredItem]:
    """Return what a store's items() does. find: returns the item of an id."""
    found: dict[str, StoredItem] = {}
    for id in ids:
        if limit < 0:
            break
        item = find(id)
        if item is not None:
            found[id] = item
            limit -= len(item.data)
    return found


class ResponseStore(Protocol):
    """Stored responses by owner and id.

    All methods may raise ResponseStoreError.
    """

    def running(self) -> AbstractAsyncContextManager[None]:
        """Use the store inside of this block."""

    async def put(self, response: StoredResponse) -> bool:
        """Store a response, replacing one with the same owner and id. Return false if it is larger than the limit."""

    async def get(self, owner: str, id: str, now: int) -> StoredResponse | None:
        """Return a response, None if there is none or it has expired."""

    async def items(self, owner: str, ids: Collection[str], now: int, limit: int) -> dict[str, StoredItem]:
        """Return the items of these ids in any of the owner's responses, the latest one if there are several.

        Those behind the first that have more than `limit` bytes together are left out.
        """

    async def delete(self, owner: str, id: str) -> bool:
        """Delete a response. Return false if there was none."""

    async def open(self, response: StoredResponse) -> bool:
        """Store a response that begins, with an empty log and a lease. Return false if it is larger than the limit."""

    async def append(self, key: ResponseKey, events: ResponseEvents, now: int) -> bool:
        """Add events to an open log. Return false if it is closed or deleted, or other events came before.

        Nothing happens if these are there already. When the log is full, its oldest events are dropped.
        """

    async def close(
        self, response: StoredResponse, events: ResponseEvents, lease: float | None = None
    ) -> bool:
        """Add the last events to an open log, close it, and store how the response has ended. Its input is the same.

        lease: the one that the log must have. Return false if it is not open, or these are not its next events: another
        may have added some. Raise ResponseTooLarge. In both cases nothing has changed.
        """

    async def open_logs(
        self, keys: Collection[ResponseKey], lease: float | None = None
    ) -> Collection[ResponseKey]:
        """Return those of these responses whose log is open, and renew their lease. lease: None renews none."""

    async def read_events(self, key: ResponseKey, after: int, now: int) -> EventPage | None:
        """Return events with numbers above `after`, None if there is no log, or none any more."""
