"""A response store on a Valkey or Redis server, which many gateways share.

A response is a hash, each of its items another, which counts its places, and its events are a sorted set. What changes
several of them is a script on the server, so each change is whole. A server that evicts or expires keys by itself would
break the counts: nothing here has a time to live, and each write drops what has expired or exceeds the limits.

Needs the extra `dragoman[valkey]`.
"""

from collections.abc import Collection, Iterable
from contextlib import AbstractAsyncContextManager
from functools import cache
from typing import Any

import anyio

from dragoman_server.platform.off_loop import off_loop
from dragoman_server.responses.stores.base import (
    LOG_KEPT_S,
    MAX_LOG_BYTES,
    PAGE_BYTES,
    PUT_S,
    ROW_BYTES,
    EventPage,
    LogState,
    ResponseEvents,
    ResponseKey,
    ResponseStoreError,
    ResponseStoreLimits,
    ResponseTooLarge,
    StoredItem,
    StoredResponse,
    item_digest,
    page_of,
)
from dragoman_server.valkey.connection import ValkeyConnection

# Seconds for any call but put().
_CALL_S = 1.0

# Items of a response: a script with more would stop the server for longer than PUT_S, which waits for it.
_MAX_ITEMS = 20_000

# Responses that one write drops because of their age.
_MAX_EXPIRED = 100

# What each script begins with. The number in the prefix is the version of the data: what another version wrote is not
# read. A response is named by its owner and id, with a line end between, which ids do not have.
_SHARED = f"""
local P = 'dragoman:responses:1:'
local TOTAL, CREATED, LOGS = P .. 'total', P .. 'created', P .. 'logs'
local function number(value) return tonumber(value or '0') or 0 end
local function total() return number(redis.call('GET', TOTAL)) end
local function count(size)
  if size ~= 0 then redis.call('INCRBY', TOTAL, string.format('%.0f', size)) end
end
local function hash(name) return P .. 'r:' .. name end
local function events(name) return P .. 'e:' .. name end
local function item(owner, digest) return P .. 'i:' .. owner .. '\\n' .. digest end
local function by_id(owner, id) return P .. 'n:' .. owner .. '\\n' .. id end
local function owner_of(name) return string.match(name, '^(.*)\\n') end

local function hold(owner, first, last)
  local digests = {{}}
  for i = first, last, 3 do
    local id, digest, data = ARGV[i], ARGV[i + 1], ARGV[i + 2]
    local key = item(owner, digest)
    if redis.call('HINCRBY', key, 'places', 1) == 1 then
      local size = {ROW_BYTES} + #id + #data
      redis.call('HSET', key, 'id', id, 'data', data, 'size', size)
      count(size)
    end
    redis.call('ZADD', by_id(owner, id), redis.call('INCR', P .. 'sequence'), digest)
    digests[#digests + 1] = digest
  end
  return table.concat(digests, ' ')
end

local function release(owner, digests)
  for digest in string.gmatch(digests, '[^ ]+') do
    local key = item(owner, digest)
    if redis.call('HINCRBY', key, 'places', -1) <= 0 then
      local found = redis.call('HMGET', key, 'id', 'size')
      redis.call('DEL', key)
      redis.call('ZREM', by_id(owner, found[1]), digest)
      count(-found[2])
    end
  end
end

local function drop_log(name)
  count(-number(redis.call('HGET', hash(name), 'bytes')))
  redis.call('DEL', events(name))
  redis.call('HDEL', hash(name), 'lease', 'next', 'bytes')
  redis.call('ZREM', LOGS, name)
end

local function drop(name)
  local found = redis.call('HMGET', hash(name), 'size', 'input', 'output')
  redis.call('ZREM', CREATED, name)
  if not found[1] then return 0 end
  drop_log(name)
  release(owner_of(name), found[2])
  release(owner_of(name), found[3])
  count(-found[1])
  redis.call('DEL', hash(name))
  return 1
end

local function drop_oldest_events(name)
  local batch = redis.call('ZPOPMIN', events(name))[1]
  local size = {ROW_BYTES} + #batch - #string.match(batch, '^%d+ %d+ ')
  redis.call('HINCRBY', hash(name), 'bytes', -size)
  count(-size)
end

local function add(name, first, many, data, most)
  local following = number(redis.call('HGET', hash(name), 'next'))
  if first + many <= following then return true end
  if first ~= following then return false end
  local size = {ROW_BYTES} + #data
  redis.call('ZADD', events(name), first, string.format('%.0f %.0f ', first, many) .. data)
  redis.call('HSET', hash(name), 'next', string.format('%.0f', first + many))
  local bytes = redis.call('HINCRBY', hash(name), 'bytes', size)
  count(size)
  while bytes > most and redis.call('ZCARD', events(name)) > 1 do
    drop_oldest_events(name)
    bytes = number(redis.call('HGET', hash(name), 'bytes'))
  end
  return true
end

local function make_room(name, now, most)
  local skipped = 0
  while total() > most do
    local oldest = redis.call('ZRANGE', CREATED, skipped, skipped)[1]
    if not oldest then break end
    if oldest == name or number(redis.call('HGET', hash(oldest), 'lease')) > now then
      skipped = skipped + 1
    else
      drop(oldest)
    end
  end
  while total() > most and redis.call('ZCARD', events(name)) > 1 do drop_oldest_events(name) end
end

local function expire(before)
  local old = redis.call('ZRANGEBYSCORE', CREATED, '-inf', '(' .. before, 'LIMIT', 0, {_MAX_EXPIRED})
  for _, name in ipairs(old) do drop(name) end
end
"""

# Arguments: name, created, body, size, the limit, the oldest time, the lease or 0, the oldest log, the number of items
# of the input, and three for each item.
_PUT = """
local name, created, lease = ARGV[1], ARGV[2], ARGV[7]
local owner, first, many = owner_of(name), 10, tonumber(ARGV[9])
local input = hold(owner, first, first + 3 * many - 1)
local output = hold(owner, first + 3 * many, #ARGV)
drop(name)
expire(ARGV[6])
redis.call('HSET', hash(name), 'created', created, 'body', ARGV[3], 'size', ARGV[4], 'input', input, 'output', output)
if lease ~= '0' then
  redis.call('HSET', hash(name), 'lease', lease, 'next', 0, 'bytes', 0)
  for _, old in ipairs(redis.call('ZRANGEBYSCORE', LOGS, '-inf', '(' .. ARGV[8])) do drop_log(old) end
end
redis.call('ZADD', CREATED, created, name)
count(tonumber(ARGV[4]))
make_room(name, tonumber(created), tonumber(ARGV[5]))
return 1
"""

# Arguments: name, and the time before which responses have expired.
_GET = """
expire(ARGV[2])
local owner = owner_of(ARGV[1])
local found = redis.call('HMGET', hash(ARGV[1]), 'created', 'body', 'lease', 'input', 'output')
if not found[1] or tonumber(found[1]) < tonumber(ARGV[2]) then return false end
local items = {}
for i = 4, 5 do
  items[i - 3] = {}
  for digest in string.gmatch(found[i], '[^ ]+') do
    local stored = redis.call('HMGET', item(owner, digest), 'id', 'data')
    table.insert(items[i - 3], stored[1])
    table.insert(items[i - 3], stored[2])
  end
end
return {found[1], found[2], found[3] or '0', items[1], items[2]}
"""

# Arguments: owner, the time before which responses have expired, the limit of bytes, and the ids.
_ITEMS = """
expire(ARGV[2])
local found, left = {}, tonumber(ARGV[3])
for i = 4, #ARGV do
  if left < 0 then break end
  local digest = redis.call('ZRANGE', by_id(ARGV[1], ARGV[i]), -1, -1)[1]
  if digest then
    local data = redis.call('HGET', item(ARGV[1], digest), 'data')
    table.insert(found, ARGV[i])
    table.insert(found, data)
    left = left - #data
  end
end
return found
"""

_DELETE = "return drop(ARGV[1])"

# Arguments: name, the number of the first event, how many, their frames, the limit of a log, the time, the limit.
_APPEND = """
local name = ARGV[1]
if number(redis.call('HGET', hash(name), 'lease')) == 0 then return 0 end
if not add(name, tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4], tonumber(ARGV[5])) then return 0 end
make_room(name, tonumber(ARGV[6]), tonumber(ARGV[7]))
return 1
"""

# Arguments: as above, then the lease that it must have or 0, body, size, and three for each item of the output.
_CLOSE = """
local name, created = ARGV[1], ARGV[6]
local found = redis.call('HMGET', hash(name), 'lease', 'size', 'next')
local lease = number(found[1])
if lease == 0 or (ARGV[8] ~= '0' and lease ~= tonumber(ARGV[8])) then return 0 end
if ARGV[3] ~= '0' and tonumber(ARGV[2]) ~= number(found[3]) then return 0 end
add(name, tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4], tonumber(ARGV[5]))
local output = hold(owner_of(name), 11, #ARGV)
count(tonumber(ARGV[10]) - found[2])
redis.call('HSET', hash(name), 'lease', '0', 'created', created, 'body', ARGV[9], 'size', ARGV[10], 'output', output)
redis.call('ZADD', CREATED, created, name)
redis.call('ZADD', LOGS, created, name)
make_room(name, tonumber(created), tonumber(ARGV[7]))
return 1
"""

# Arguments: the lease or 0, and names. Returns a number for each: is its log open?
_OPEN_LOGS = """
local found = {}
for i = 2, #ARGV do
  local open = number(redis.call('HGET', hash(ARGV[i]), 'lease')) > 0
  if open and ARGV[1] ~= '0' then redis.call('HSET', hash(ARGV[i]), 'lease', ARGV[1]) end
  found[i - 1] = open and 1 or 0
end
return found
"""

# Arguments: name, the number of the first event that is wanted, the oldest time of an end, the bytes of a page.
_READ_EVENTS = """
local name = ARGV[1]
local log = redis.call('HMGET', hash(name), 'lease', 'next', 'created')
if not log[1] or (number(log[1]) == 0 and number(log[3]) < tonumber(ARGV[3])) then return false end
local oldest = redis.call('ZRANGE', events(name), 0, 0, 'WITHSCORES')
local start = redis.call('ZREVRANGEBYSCORE', events(name), ARGV[2], '-inf', 'LIMIT', 0, 1)
local rank = start[1] and redis.call('ZRANK', events(name), start[1]) or 0
local found, size = {log[1], oldest[2] or log[2], log[2]}, 0
while size < tonumber(ARGV[4]) do
  local batch = redis.call('ZRANGE', events(name), rank, rank)[1]
  if not batch then break end
  table.insert(found, batch)
  size = size + #batch
  rank = rank + 1
end
return found
"""


class ValkeyResponseStore:
    """See ResponseStore.

    Args:
        url: see ValkeyConnection. Raises ValueError.
    """

    def __init__(self, url: str, limits: ResponseStoreLimits) -> None:
        self._connection = ValkeyConnection(url, "the response store", ResponseStoreError)
        self._limits = limits

    def running(self) -> AbstractAsyncContextManager[None]:
        """See ResponseStore. Begins when the first attempt to connect has succeeded or failed."""
        return self._connection.running()

    async def put(self, response: StoredResponse) -> bool:
        return await self._put(response, PUT_S)

    async def open(self, response: StoredResponse) -> bool:
        return await self._put(response, _CALL_S)

    async def get(self, owner: str, id: str, now: int) -> StoredResponse | None:
        found = await self._call(_CALL_S, _GET, _name((owner, id)), self._oldest(now))
        if found is None:
            return None
        with self._connection.reading():
            created, body, lease, inputs, outputs = found
            items = [tuple(_stored_items(each)) for each in (inputs, outputs)]
            return StoredResponse(id, owner, int(created), body, items[0], items[1], float(lease))

    async def items(self, owner: str, ids: Collection[str], now: int, limit: int) -> dict[str, StoredItem]:
        found = await self._call(_CALL_S, _ITEMS, owner, self._oldest(now), limit, *ids)
        with self._connection.reading():
            return {item.id: item for item in _stored_items(found)}

    async def delete(self, owner: str, id: str) -> bool:
        return bool(await self._call(_CALL_S, _DELETE, _name((owner, id))))

    async def append(self, key: ResponseKey, events: ResponseEvents, now: int) -> bool:
        return bool(await self._call(_CALL_S, _APPEND, *self._added(key, events, now)))

    async def close(
        self, response: StoredResponse, events: ResponseEvents, lease: float | None = None
    ) -> bool:
        if await off_loop(response.size_without_items, self._is_too_large, response):
            raise ResponseTooLarge(f"response {response.id} is too large for the response store")
        items = await off_loop(response.size, _item_arguments, response.output)
        added = self._added(response.key, events, response.created)
        size = response.size_without_items
        return bool(await self._call(_CALL_S, _CLOSE, *added, repr(lease or 0), response.body, size, *items))

    async def open_logs(
        self, keys: Collection[ResponseKey], lease: float | None = None
    ) -> Collection[ResponseKey]:
        found = await self._call(_CALL_S, _OPEN_LOGS, repr(lease or 0), *map(_name, keys))
        with self._connection.reading():
            return [key for key, is_open in zip(keys, found, strict=True) if is_open]

    async def read_events(self, key: ResponseKey, after: int, now: int) -> EventPage | None:
        found = await self._call(_CALL_S, _READ_EVENTS, _name(key), after + 1, now - LOG_KEPT_S, PAGE_BYTES)
        if found is None:
            return None
        with self._connection.reading():
            lease, first, following, *batches = found
            return page_of(LogState(float(lease), int(first), int(following)), after, map(_batch, batches))

    async def _put(self, response: StoredResponse, seconds: float) -> bool:
        if await off_loop(response.size_without_items, self._is_too_large, response):
            return False
        items = await off_loop(response.size, _item_arguments, (*response.input, *response.output))
        await self._call(
            seconds,
            _PUT,
            _name(response.key),
            response.created,
            response.body,
            response.size_without_items,
            self._limits.max_bytes,
            self._oldest(response.created),
            repr(response.lease) if response.lease else 0,
            response.created - LOG_KEPT_S,
            len(response.input),
            *items,
        )
        return True

    def _is_too_large(self, response: StoredResponse) -> bool:
        too_many = len(response.input) + len(response.output) > _MAX_ITEMS
        return too_many or response.size > self._limits.max_bytes

    def _oldest(self, now: int) -> int:
        return now - self._limits.max_age_s

    def _added(self, key: ResponseKey, events: ResponseEvents, now: int) -> tuple[str | int | bytes, ...]:
        limits = MAX_LOG_BYTES, now, self._limits.max_bytes
        return (_name(key), events.first, events.count, events.data, *limits)

    async def _call(self, seconds: float, script: str, *arguments: str | int | bytes) -> Any:
        try:
            with anyio.fail_after(seconds):
                return await self._connection.evaluate(_whole(script), (), *arguments)
        except TimeoutError:
            raise ResponseStoreError(f"{self._connection.name}: no response within {seconds:g} s") from None


@cache
def _whole(script: str) -> str:
    return _SHARED + script


def _name(key: ResponseKey) -> str:
    return "\n".join(key)


def _item_arguments(items: Iterable[StoredItem]) -> list[str | bytes]:
    return [part for item in items for part in (item.id, item_digest(item).hex(), item.data)]


def _stored_items(parts: list[bytes]) -> Iterable[StoredItem]:
    return (StoredItem(id.decode(), data) for id, data in zip(parts[::2], parts[1::2], strict=True))


def _batch(stored: bytes) -> ResponseEvents:
    first, count, data = stored.split(b" ", 2)
    return ResponseEvents(int(first), int(count), data)
