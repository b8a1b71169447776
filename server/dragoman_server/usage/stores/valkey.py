"""A usage store on a Valkey or Redis server, which many gateways share.

Each hour is a hash, which expires. A batch is one script, which the server runs once for each batch, so a batch whose
answer was lost can be sent again.

Needs the extra `dragoman[valkey]`.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager

import msgspec
from msgspec.structs import astuple

from dragoman_server.platform.off_loop import off_loop
from dragoman_server.usage.stores.base import (
    COLUMNS,
    HOUR_S,
    MAX_ROWS,
    KeyUse,
    UsageBatch,
    UsageCounts,
    UsageGroup,
    UsageLabels,
    UsageQuery,
    UsageStoreError,
)
from dragoman_server.usage.stores.sqlite import SQLiteUsageStore
from dragoman_server.valkey.connection import ValkeyConnection

# The number is the version of the data: what another version wrote is not read.
_PREFIX = "dragoman:usage:1:"
_HOURS = _PREFIX + "hours"

# The size of a field.
_FIELD_BYTES = 16

# Fields of an hour, of which a row has about ten. What comes beyond that is not counted.
_MAX_FIELDS = 200_000

# Seconds for which the server remembers a batch. A gateway sends it again for as long as it cannot reach the server.
_BATCH_S = 3600

_KEY_FIELDS = KeyUse.__struct_fields__

# Keys: the batch, the index of hours, the hours, the client keys. Amounts are added as texts with 17 digits, which a
# double needs, because Lua's own have 14.
_ADD = f"""
local batch = cjson.decode(ARGV[1])
if not redis.call('SET', KEYS[1], '1', 'NX', 'EX', {_BATCH_S}) then return 0 end
local function add(key, field, amount)
  redis.call('HINCRBYFLOAT', key, field, string.format('%.17g', amount))
end
for i, hour in ipairs(batch.hours) do
  redis.call('ZADD', KEYS[2], hour, hour)
  for _, row in ipairs(batch.rows[i]) do
    local labels, amounts = unpack(row)
    local known = redis.call('HEXISTS', KEYS[2 + i], labels .. ':requests') == 1
    if known or redis.call('HLEN', KEYS[2 + i]) < {_MAX_FIELDS} then
      for name, amount in pairs(amounts) do add(KEYS[2 + i], labels .. ':' .. name, amount) end
    end
  end
  redis.call('EXPIREAT', KEYS[2 + i], batch.ends[i])
end
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', '(' .. string.format('%d', batch.oldest))
for i, use in ipairs(batch.keys) do
  local key = KEYS[2 + #batch.hours + i]
  for name, amount in pairs(use) do
    if name ~= 'last_used' then
      add(key, name, amount)
    elseif amount > tonumber(redis.call('HGET', key, name) or '0') then
      redis.call('HSET', key, name, string.format('%.17g', amount))
    end
  end
end
return 1
"""


class ValkeyUsageStore:
    """See UsageStore.

    Args:
        url: see ValkeyConnection. Raises ValueError.
    """

    def __init__(self, url: str) -> None:
        self._connection = ValkeyConnection(url, "the usage store", UsageStoreError)

    def running(self) -> AbstractAsyncContextManager[None]:
        """See UsageStore. Begins when the first attempt to connect has succeeded or failed."""
        return self._connection.running()

    async def add(self, batch: UsageBatch) -> None:
        hours = sorted({labels.hour for labels in batch.rows})
        newest = hours[-1] if hours else batch.oldest
        keys = [f"{_PREFIX}batch:{batch.id}", _HOURS, *map(_hour_key, hours), *map(_use_key, batch.keys)]
        rows: dict[int, list[tuple[str, Mapping[str, float]]]] = {hour: [] for hour in hours}
        for labels, counts in batch.rows.items():
            amounts = {name: value for name, value in zip(COLUMNS, counts.values(), strict=True) if value}
            rows[labels.hour].append((msgspec.json.encode(astuple(labels)[1:]).decode(), amounts))
        argument = {
            "hours": hours,
            # An hour ends as long after the newest one as the oldest is before it.
            "ends": [(hour + newest - batch.oldest + 1) * HOUR_S for hour in hours],
            "rows": list(rows.values()),
            "keys": list(batch.keys.values()),
            "oldest": batch.oldest,
        }
        await self._connection.evaluate(_ADD, keys, msgspec.json.encode(argument))

    async def read(self, query: UsageQuery) -> list[UsageGroup]:
        # The server cannot add up by labels.
        found, count = SQLiteUsageStore(None, max_rows=MAX_ROWS), 0
        async with found.running():
            hours = await self._connection.request(b"ZRANGEBYSCORE", _HOURS, query.since, f"({query.until}")
            with self._connection.reading():
                for hour in map(int, hours):
                    fields = await self._connection.request(b"HGETALL", _hour_key(hour))
                    rows = await off_loop(len(fields) * _FIELD_BYTES, _rows, hour, fields)
                    count += len(rows)
                    if count > MAX_ROWS:  # of which the oldest would be dropped
                        raise UsageStoreError(f"there are more than {MAX_ROWS} rows: ask for less at once")
                    await found.add(UsageBatch("", rows, {}, 0))
            return await found.read(query)

    async def key_uses(self, keys: Sequence[str]) -> list[KeyUse]:
        found = [await self._connection.request(b"HMGET", _use_key(key), *_KEY_FIELDS) for key in keys]
        with self._connection.reading():
            return [KeyUse(*[float(amount or 0) for amount in amounts]) for amounts in found]


def _hour_key(hour: int) -> str:
    return f"{_PREFIX}hour:{hour}"


def _use_key(key: str) -> str:
    return f"{_PREFIX}use:{key}"


def _rows(hour: int, fields: Mapping[bytes, bytes]) -> dict[UsageLabels, UsageCounts]:
    """Return the rows of an hour."""
    amounts: dict[bytes, dict[str, float]] = {}
    for field, amount in fields.items():
        labels, _, name = field.rpartition(b":")
        amounts.setdefault(labels, {})[name.decode()] = float(amount)
    return {
        UsageLabels(hour, *msgspec.json.decode(labels, type=tuple[str, str, str, str])): (
            UsageCounts.of([found.get(name, 0) for name in COLUMNS])
        )
        for labels, found in amounts.items()
    }
