"""The interface of usage stores, and what they store: a row for each hour, client key, upstream, account and model.

Rows are sums, so writing adds to them. They are bounded by age and by number; what each client key has used in all has
a separate row, which stays.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import msgspec

from dragoman_server.telemetry.metrics import BUCKETS

HOUR_S = 3600
DAY_HOURS = 24

# Upper bounds of the histogram of first bytes, in seconds, as the metrics have them. The last bucket has no bound.
FIRST_BYTE_BOUNDS = BUCKETS

# Rows of a store. The oldest hours are dropped first. A gateway with 20 keys, 10 models and one account for each has
# this many after five months in which every key uses every model every hour.
MAX_ROWS = 1_000_000

# The size of a row.
ROW_BYTES = 200

# Rows of an answer, some 500 bytes each.
MAX_GROUPS = 100_000


class UsageStoreError(Exception):
    """The store does not work, or would have to read too much. `str()` of it may name a host or a file."""


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
        by: What the rows are grouped by: keys of GROUPS.
        filters: The value of a label of the rows that count.
        limit: The largest number of groups, the newest and most used ones.
        group_of: The group that each client key is in now. Stores know keys only.
    """

    since: int
    until: int
    by: tuple[str, ...] = ()
    filters: Mapping[str, str] = {}
    limit: int = MAX_GROUPS
    group_of: Mapping[str, str] = {}


# What rows can be grouped by, each as SQL.
GROUPS = {
    "key": "key",
    "model": "model",
    "upstream": "upstream",
    "account": "account",
    "day": f"hour / {DAY_HOURS}",
    "hour": "hour",
    "group": "group_of(key)",
}
TIMES = ("day", "hour")
FILTERS = ("key", "model", "upstream", "account")

# The values of a group in the order of `by`, and its sums.
UsageGroup = tuple[tuple[str | int, ...], UsageCounts]


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
