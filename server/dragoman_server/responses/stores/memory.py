"""A response store in the memory of one process. Its responses are lost when the process ends."""

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Collection
from contextlib import AbstractAsyncContextManager, nullcontext
from itertools import islice, takewhile

import anyio.lowlevel
import msgspec

from dragoman_server.platform.off_loop import off_loop
from dragoman_server.responses.stores.base import (
    LOG_KEPT_S,
    MAX_LOG_BYTES,
    EventPage,
    LogState,
    ResponseEvents,
    ResponseKey,
    ResponseStoreLimits,
    ResponseTooLarge,
    StoredItem,
    StoredResponse,
    find_items,
    page_of,
)

# Items that are stored or dropped before other tasks run: some milliseconds. A conversation may have a million.
_TURN_ITEMS = 1000


class _Log(msgspec.Struct):
    """The log of a response.

    Attributes:
        lease: 0 for one that is closed.
        open: Nothing has begun to close it.
        ended: When it was closed.
    """

    lease: float
    open: bool = True
    ended: int = 0
    next: int = 0
    bytes: int = 0
    batches: list[ResponseEvents] = msgspec.field(default_factory=list)


class MemoryResponseStore:
    """See ResponseStore. Never raises ResponseStoreError."""

    def __init__(self, limits: ResponseStoreLimits) -> None:
        self._limits = limits
        # In the order in which they were put. To find the first of a dict takes a walk over those deleted before it.
        self._responses: OrderedDict[ResponseKey, StoredResponse] = OrderedDict()
        self._logs: dict[ResponseKey, _Log] = {}
        # Each item with the number of its places. An equal item of a later response is this very object.
        self._items: dict[tuple[str, StoredItem], tuple[StoredItem, int]] = {}
        self._named: dict[tuple[str, str], StoredItem] = {}
        self._steps = 0
        self.bytes = 0

    def running(self) -> AbstractAsyncContextManager[None]:
        return nullcontext()

    async def put(self, response: StoredResponse) -> bool:
        if await off_loop(response.size_without_items, lambda: response.size) > self._limits.max_bytes:
            return False
        owner = response.owner
        held: list[StoredItem] = []
        for item in (*response.input, *response.output):
            held.append(self._hold(owner, item))
            await self._step()
        start = len(response.input)
        replaced = self._responses.pop(response.key, None)
        self._responses[response.key] = StoredResponse(
            response.id, owner, response.created, response.body, tuple(held[:start]), tuple(held[start:])
        )
        self.bytes += response.size_without_items
        await self._release(replaced)
        await self._expire(response.created)
        await self._make_room(response.key, response.created)
        return True

    async def get(self, owner: str, id: str, now: int) -> StoredResponse | None:
        await self._expire(now)
        found, log = self._responses.get((owner, id)), self._logs.get((owner, id))
        if found is not None and log is not None and log.lease:
            return msgspec.structs.replace(found, lease=log.lease)
        return found

    async def items(self, owner: str, ids: Collection[str], now: int, limit: int) -> dict[str, StoredItem]:
        await self._expire(now)
        return find_items(ids, limit, lambda id: self._named.get((owner, id)))

    async def delete(self, owner: str, id: str) -> bool:
        return await self._release(self._responses.pop((owner, id), None))

    async def open(self, response: StoredResponse) -> bool:
        closed = ((key, log) for key, log in self._logs.items() if not log.lease)
        for key, log in list(takewhile(lambda each: _is_old(each[1], response.created), closed)):
            self.bytes -= log.bytes
            del self._logs[key]
        self._logs[response.key] = _Log(response.lease)
        if await self.put(response):
            return True
        del self._logs[response.key]
        return False

    async def append(self, key: ResponseKey, events: ResponseEvents, now: int) -> bool:
        log = self._logs.get(key)
        if log is None or not log.open or events.next > log.next != events.first:
            return False
        self._add(log, events)
        await self._make_room(key, now)
        return True

    async def close(
        self, response: StoredResponse, events: ResponseEvents, lease: float | None = None
    ) -> bool:
        if await off_loop(response.size_without_items, lambda: response.size) > self._limits.max_bytes:
            raise ResponseTooLarge(f"response {response.id} is too large for the response store")
        log = self._logs.get(response.key)
        if log is None or not log.open or log.lease != (lease or log.lease):
            return False
        if events.count and events.first != log.next:
            return False
        log.open = False
        await self.put(response)
        self._add(log, events)
        log.lease, log.ended = 0.0, response.created
        return True

    async def open_logs(
        self, keys: Collection[ResponseKey], lease: float | None = None
    ) -> Collection[ResponseKey]:
        logs = {key: log for key in keys if (log := self._logs.get(key)) is not None and log.open}
        for log in logs.values():
            log.lease = lease or log.lease
        return logs.keys()

    async def read_events(self, key: ResponseKey, after: int, now: int) -> EventPage | None:
        log = self._logs.get(key)
        if log is None or _is_old(log, now):
            return None
        first = log.batches[0].first if log.batches else log.next
        start = bisect_right(log.batches, after + 1, key=lambda batch: batch.next)
        return page_of(LogState(log.lease, first, log.next), after, islice(log.batches, start, None))

    def _add(self, log: _Log, events: ResponseEvents) -> None:
        if events.next <= log.next:
            return
        log.next = events.next
        log.batches.append(events)
        log.bytes += events.size
        self.bytes += events.size
        while log.bytes > MAX_LOG_BYTES and len(log.batches) > 1:
            self._drop_events(log)

    def _drop_events(self, log: _Log) -> None:
        size = log.batches.pop(0).size
        log.bytes -= size
        self.bytes -= size

    async def _make_room(self, key: ResponseKey, now: int) -> None:
        """Drop the oldest responses beyond the limit, but none that is being made, then the oldest events of `key`."""
        while self.bytes > self._limits.max_bytes:
            oldest = next(
                (each for each in self._responses if each != key and not self._is_made(each, now)), None
            )
            log = self._logs.get(key)
            if oldest is not None:
                await self._release(self._responses.pop(oldest))
            elif log is not None and len(log.batches) > 1:
                self._drop_events(log)
            else:
                return

    def _is_made(self, key: ResponseKey, now: int) -> bool:
        log = self._logs.get(key)
        return log is not None and log.lease > now

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
        if response.key not in self._responses and (log := self._logs.pop(response.key, None)) is not None:
            self.bytes -= log.bytes
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


def _is_old(log: _Log, now: int) -> bool:
    return not log.lease and log.ended < now - LOG_KEPT_S
