"""The interface of usage stores, and what they store: a row for each hour, client key, upstream, account and model.

Rows are sums, so writing adds to them. They are bounded by age and by number; what each client key has used in all has
a separate row, which stays.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import msgspec

from dragoman_server.telemetry.metrics import BUCKETS

HOUR_S = 3600
DAY_HOURS = 24

# Upper bounds of the histogram of first bytes, in seconds, as the metrics have them. The last bucket has no bound.
FIRST_BYTE_BOUNDS = BUCKETS

# Rows of a store, some 200 bytes each. The oldest hours are dropped first. A gateway with 20 keys, 10 models and one
# account for each has this many after five months in which every key uses every model every hour.
MAX_ROWS = 1_000_000

# What a row counts for off_loop(): to add it up takes as long as to read so many bytes of a request.
ROW_BYTES = 64

# Rows of an answer that a store makes in memory, some 500 bytes each.
MAX_GROUPS = 100_000


class UsageStoreError(Exception):
    """The store does not work, or would have to return too much. `str()` of it may name a host or a file."""


class UsageLabels(msgspec.Struct, frozen=True):
    """What a row is about, "" for none. hour: since the epoch. account: its id, `upstream/account`."""

    hour: int
    key: str
    upstream: str
    account: str
    model: str


class UsageCounts(msgspec.Struct):
    """What the requests of a row have used.

    Attributes:
        errors: Requests that failed or were refused.
        unpriced: Requests that used tokens, and whose model has no price: `cost_usd` is without them.
        first_byte: Completed requests by the time to their first byte of content: see FIRST_BYTE_BOUNDS.
    """

    requests: int = 0
    errors: int = 0
    unpriced: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    cost_usd: float = 0.0
    first_byte: list[int] = msgspec.field(default_factory=lambda: [0] * (len(FIRST_BYTE_BOUNDS) + 1))

    def add(self, more: "UsageCounts") -> None:
        for name in SUMS:
            setattr(self, name, getattr(self, name) + getattr(more, name))
        self.first_byte = [sum(pair) for pair in zip(self.first_byte, more.first_byte, strict=True)]

    def plus(self, more: "UsageCounts") -> "UsageCounts":
        """Return the sums, and leave both as they are."""
        both = UsageCounts.of(self.values())
        both.add(more)
        return both

    def values(self) -> list[float]:
        """Return all numbers, in the order of COLUMNS."""
        return [*[getattr(self, name) for name in SUMS], *self.first_byte]

    @classmethod
    def of(cls, values: Sequence[float]) -> "UsageCounts":
        """Return the counts with these numbers, in the order of COLUMNS."""
        counts = cls(first_byte=[int(value) for value in values[len(SUMS) :]])
        for name, value in zip(SUMS, values, strict=False):
            setattr(counts, name, value if name == "cost_usd" else int(value))
        return counts


SUMS = UsageCounts.__struct_fields__[:-1]
COLUMNS = (*SUMS, *[f"first_byte_{number}" for number in range(len(FIRST_BYTE_BOUNDS) + 1)])


class KeyUse(msgspec.Struct, frozen=True):
    """What the requests of a client key have used since it was first counted.

    Attributes:
        last_used: Seconds since the epoch, 0 for a key that was never used.
    """

    requests: float = 0
    tokens: float = 0
    cost_usd: float = 0.0
    last_used: float = 0.0

    def plus(self, more: "KeyUse") -> "KeyUse":
        """Add the sums, and keep the later `last_used`."""
        return KeyUse(
            self.requests + more.requests,
            self.tokens + more.tokens,
            self.cost_usd + more.cost_usd,
            max(self.last_used, more.last_used),
        )


class UsageBatch(msgspec.Struct, frozen=True):
    """What is written at once.

    Attributes:
        id: Of this batch, because it is sent again after an error that does not tell if it was written.
        keys: The same by client key.
        oldest: Rows of hours before this one are dropped.
    """

    id: str
    rows: Mapping[UsageLabels, UsageCounts]
    keys: Mapping[str, KeyUse]
    oldest: int


class UsageQuery(msgspec.Struct, frozen=True):
    """What is read.

    Attributes:
        since, until: Hours since the epoch; `until` is not included.
        by: What the rows are grouped by: keys of GROUPS, for a store.
        filters: The value of a label of the rows that count.
        limit: The largest number of groups, the newest and most used ones.
    """

    since: int
    until: int
    by: tuple[str, ...] = ()
    filters: Mapping[str, str] = {}
    limit: int = MAX_GROUPS


# What rows can be grouped by: SQL, and the same in Python.
GROUPS: Mapping[str, tuple[str, Callable[[UsageLabels], str | int]]] = {
    "key": ("key", lambda labels: labels.key),
    "model": ("model", lambda labels: labels.model),
    "upstream": ("upstream", lambda labels: labels.upstream),
    "account": ("account", lambda labels: labels.account),
    "day": (f"hour / {DAY_HOURS}", lambda labels: labels.hour // DAY_HOURS),
    "hour": ("hour", lambda labels: labels.hour),
}
TIMES = ("day", "hour")
FILTERS = ("key", "model", "upstream", "account")

# The values of a group in the order of `by`, and its sums.
UsageGroup = tuple[tuple[str | int, ...], UsageCounts]


class Grouping:
    """Add up rows by a query, in memory."""

    def __init__(self, query: UsageQuery) -> None:
        self._query = query
        self._found: dict[tuple[str | int, ...], UsageCounts] = {}

    def add(self, rows: Iterable[tuple[UsageLabels, UsageCounts]]) -> None:
        """Count rows. Raises UsageStoreError if there are more groups than an answer may have."""
        query = self._query
        filters = list(query.filters.items())
        readers = [GROUPS[name][1] for name in query.by]
        for labels, counts in rows:
            if query.since <= labels.hour < query.until and all(
                getattr(labels, name) == value for name, value in filters
            ):
                self.add_group(tuple([read(labels) for read in readers]), counts)

    def add_group(self, group: tuple[str | int, ...], counts: UsageCounts) -> None:
        """Count rows that belong to one group. Raises UsageStoreError."""
        if group not in self._found:
            if len(self._found) >= MAX_GROUPS:
                raise UsageStoreError(f"there are more than {MAX_GROUPS} groups: ask for less at once")
            self._found[group] = UsageCounts()
        self._found[group].add(counts)

    @property
    def size(self) -> int:
        """The number of groups so far."""
        return len(self._found)

    def result(self) -> list[UsageGroup]:
        """Return the newest and most used groups."""
        by = self._query.by
        times = [place for place, name in enumerate(by) if name in TIMES]
        names = [place for place, name in enumerate(by) if name not in TIMES]

        def order(group: UsageGroup) -> tuple[object, ...]:
            values, counts = group
            newest = [-int(values[place]) for place in times]
            return (newest, -counts.requests, [values[place] for place in names])

        return sorted(self._found.items(), key=order)[: self._query.limit]


class UsageStore(Protocol):
    """Usage by hour, and by client key in all.

    All methods may raise UsageStoreError.
    """

    def running(self) -> AbstractAsyncContextManager[None]:
        """Use the store inside of this block."""

    async def add(self, batch: UsageBatch) -> None:
        """Add a batch, whole or not at all."""

    async def read(self, query: UsageQuery) -> list[UsageGroup]:
        """Return the groups of a query, the newest first, then those with most requests."""

    async def key_uses(self, keys: Sequence[str]) -> list[KeyUse]:
        """Return what each of these keys has used in all."""
