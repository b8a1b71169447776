"""A response store in the memory of one process. Its responses are lost when the process ends."""

from collections import OrderedDict
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager

import anyio.lowlevel

from dragoman_server.platform.off_loop import off_loop
from dragoman_server.responses.stores.base import ResponseStoreLimits, StoredItem, StoredResponse, find_items

# Items that are stored or dropped before other tasks run: some milliseconds. A conversation may have a million.
_TURN_ITEMS = 1000


class MemoryResponseStore:
    """See ResponseStore. Never raises ResponseStoreError."""

    def __init__(self, limits: ResponseStoreLimits) -> None:
        self._limits = limits
        # In the order in which they were put. To find the first of a dict takes a walk over those deleted before it.
        self._responses: OrderedDict[tuple[str, str], StoredResponse] = OrderedDict()
        # Each item with the number of its places. An equal item of a later response is this very object.
        self._items: dict[tuple[str, StoredItem], tuple[StoredItem, int]] = {}
        self._named: dict[tuple[str, str], StoredItem] = {}
        self._steps = 0
        self.bytes = 0

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        yield

    async def put(self, response: StoredResponse) -> bool:
        if await off_loop(response.size_without_items, lambda: response.size) > self._limits.max_bytes:
            return False
        owner = response.owner
        held: list[StoredItem] = []
        for item in (*response.input, *response.output):
            held.append(self._hold(owner, item))
            await self._step()
        start = len(response.input)
        replaced = self._responses.pop((owner, response.id), None)
        self._responses[owner, response.id] = StoredResponse(
            response.id, owner, response.created, response.body, tuple(held[:start]), tuple(held[start:])
        )
        self.bytes += response.size_without_items
        await self._release(replaced)
        await self._expire(response.created)
        while self._responses and self.bytes > self._limits.max_bytes:
            await self._release(self._responses.popitem(last=False)[1])
        return True

    async def get(self, owner: str, id: str, now: int) -> StoredResponse | None:
        await self._expire(now)
        return self._responses.get((owner, id))

    async def items(self, owner: str, ids: Collection[str], now: int, limit: int) -> dict[str, StoredItem]:
        await self._expire(now)
        return find_items(ids, limit, lambda id: self._named.get((owner, id)))

    async def delete(self, owner: str, id: str) -> bool:
        return await self._release(self._responses.pop((owner, id), None))

    async def _step(self) -> None:
        """Let other tasks run now and then. It cannot be cancelled, so that no item is left without a response."""
        self._steps += 1
        if not self._steps % _TURN_ITEMS:
            await anyio.lowlevel.cancel_shielded_checkpoint()

    def _hold(self, owner: str, item: StoredItem) -> StoredItem:
        known, places = self._items.get((owner, item), (item, 0))
        if not places:
            self.bytes += item.size
        self._items[owner, item] = known, places + 1
        self._named[owner, item.id] = known
        return known

    async def _expire(self, now: int) -> None:
        while self._responses:
            oldest = self._responses[next(iter(self._responses))]
            if oldest.created >= now - self._limits.max_age_s:
                break
            await self._release(self._responses.pop((oldest.owner, oldest.id)))

    async def _release(self, response: StoredResponse | None) -> bool:
        """Let go of a response that was taken out. Return false for None."""
        if response is None:
            return False
        owner = response.owner
        self.bytes -= response.size_without_items
        for item in (*response.input, *response.output):
            await self._step()
            known, places = self._items[owner, item]
            if places > 1:
                self._items[owner, item] = known, places - 1
                continue
            del self._items[owner, item]
            self.bytes -= item.size
            if self._named.get((owner, item.id)) == item:
                del self._named[owner, item.id]
        return True
