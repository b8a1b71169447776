"""A usage store in the memory of one process. Its rows are lost when the process ends."""

from collections import OrderedDict
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, nullcontext

from dragoman_server.platform.off_loop import off_loop
from dragoman_server.usage.stores.base import (
    ROW_BYTES,
    Grouping,
    KeyUse,
    UsageBatch,
    UsageCounts,
    UsageGroup,
    UsageLabels,
    UsageQuery,
)

# A row takes half a kilobyte here.
MAX_ROWS = 50_000


class MemoryUsageStore:
    """See UsageStore. It adds without an error."""

    def __init__(self) -> None:
        # In the order in which they were first counted, so nearly by hour.
        self._rows: OrderedDict[UsageLabels, UsageCounts] = OrderedDict()
        self._keys: dict[str, KeyUse] = {}
        self._oldest = 0

    def running(self) -> AbstractAsyncContextManager[None]:
        return nullcontext()

    async def add(self, batch: UsageBatch) -> None:
        rows = self._rows
        for labels, counts in batch.rows.items():
            known = rows.get(labels)
            rows[labels] = counts if known is None else known.plus(counts)  # a thread may read the known ones
        if batch.oldest > self._oldest:  # once an hour
            self._oldest = batch.oldest
            for labels in [each for each in rows if each.hour < batch.oldest]:
                del rows[labels]
        while len(rows) > MAX_ROWS:
            rows.popitem(last=False)
        for key, use in batch.keys.items():
            self._keys[key] = self._keys.get(key, KeyUse()).plus(use)

    async def read(self, query: UsageQuery) -> list[UsageGroup]:
        rows = list(self._rows.items())

        def grouped() -> list[UsageGroup]:
            grouping = Grouping(query)
            grouping.add(rows)
            return grouping.result()

        return await off_loop(len(rows) * ROW_BYTES, grouped)

    async def key_uses(self, keys: Sequence[str]) -> list[KeyUse]:
        return [self._keys.get(key, KeyUse()) for key in keys]
