"""A response store in the memory of one process. Its responses are lost when the process ends."""

from collections.abc import AsyncIterator, Collection, Iterable
from contextlib import asynccontextmanager

import anyio
import anyio.lowlevel

from dragoman_server.off_loop import off_loop
from dragoman_server.responses.stores.base import ResponseStoreLimits, StoredItem, StoredResponse, find_items

# Items that are stored before other tasks run: some milliseconds.
_TURN_ITEMS = 1000


class MemoryResponseStore:
    """See ResponseStore. Never raises ResponseStoreError."""

    def __init__(self, limits: ResponseStoreLimits) -> None:
        self._limits = limits
        # In the order in which they were put.
        self._responses: dict[tuple[str, str], StoredResponse] = {}
        # Each item with the number of its places. An equal item of a later response is this very object.
        self._items: dict[tuple[str, StoredItem], tuple[StoredItem, int]] = {}
        self._named: dict[tuple[str, str], StoredItem] = {}
        self.bytes = 0

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        yield

    async def put(self, response: StoredResponse) -> bool:
        if await off_loop(response.size_without_items, lambda: response.size) > self._limits.max_bytes:
            return False
        owner = response.owner
        held: list[StoredItem] = []
        try:
            for item in (*response.input, *response.output):
                held.append(self._hold(owner, item))
                if not len(held) % _TURN_ITEMS:
                    await anyio.lowlevel.checkpoint()
        except BaseException:
            self._release(owner, held)
            raise
        self._drop((owner, response.id))
        start = len(response.input)
        self._responses[owner, response.id] = StoredResponse(
            response.id, owner, response.created, response.body, tuple(held[:start]), tuple(held[start:])
        )
        self.bytes += response.size_without_items
        self._expire(response.created)
        while self._responses and self.bytes > self._limits.max_bytes:
            self._drop(next(iter(self._responses)))
            await anyio.lowlevel.checkpoint()
        return True

    async def get(self, owner: str, id: str, now: int) -> StoredResponse | None:
        self._expire(now)
        return self._responses.get((owner, id))

    async def items(self, owner: str, ids: Collection[str], now: int, limit: int) -> dict[str, StoredItem]:
        self._expire(now)
        return find_items(ids, limit, lambda id: self._named.get((owner, id)))

    async def delete(self, owner: str, id: str) -> bool:
        return self._drop((owner, id))

    def _hold(self, owner: str, item: StoredItem) -> StoredItem:
        known, places = self._items.get((owner, item), (item, 0))
        if not places:
            self.bytes += item.size
        self._items[owner, item] = known, places + 1
        self._named[owner, item.id] = known
        return known

    def _expire(self, now: int) -> None:
        while self._responses:
            oldest = next(iter(self._responses))
            if self._responses[oldest].created >= now - self._limits.max_age_s:
                break
            self._drop(oldest)

    def _drop(self, key: tuple[str, str]) -> bool:
        response = self._responses.pop(key, None)
        if response is None:
            return False
        self.bytes -= response.size_without_items
        self._release(response.owner, (*response.input, *response.output))
        return True

    def _release(self, owner: str, items: Iterable[StoredItem]) -> None:
        for item in items:
            known, places = self._items[owner, item]
            if places > 1:
                self._items[owner, item] = known, places - 1
                continue
            del self._items[owner, item]
            self.bytes -= item.size
            if self._named.get((owner, item.id)) == item:
                del self._named[owner, item.id]
