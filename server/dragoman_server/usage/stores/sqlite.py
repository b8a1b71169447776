"""A usage store in a SQLite file, which outlives the process and which several processes may share; or in memory.

A batch is one transaction. Rows are bounded by age and by number once an hour, in the transaction of the first batch,
and when as many have come as there may be.
"""

import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from msgspec.structs import astuple

from dragoman_server.platform.sqlite_file import SQLiteFile, SQLiteFileFormat, write_transaction
from dragoman_server.usage.stores.base import (
    COLUMNS,
    GROUPS,
    MAX_ROWS,
    ROW_BYTES,
    TIMES,
    KeyUse,
    UsageBatch,
    UsageCounts,
    UsageGroup,
    UsageQuery,
    UsageStoreError,
)

# Seconds for which a call waits for another process to finish its writing.
_BUSY_S = 2.0

# The largest number in memory.
MAX_ROWS_IN_MEMORY = 50_000

_LABELS = ("hour", "key", "upstream", "account", "model")
_KEY_FIELDS = KeyUse.__struct_fields__

FILE_FORMAT = SQLiteFileFormat(
    "usage store",
    0x64726775,  # "drgu"
    1,
    f"""
CREATE TABLE usage (
    hour INTEGER NOT NULL,
    {", ".join(f"{name} TEXT NOT NULL" for name in _LABELS[1:])},
    {", ".join(f"{name} {'REAL' if name == 'cost_usd' else 'INTEGER'} NOT NULL" for name in COLUMNS)},
    PRIMARY KEY ({", ".join(_LABELS)})
) WITHOUT ROWID;
CREATE TABLE keys (
    key TEXT PRIMARY KEY,
    {", ".join(f"{name} REAL NOT NULL" for name in _KEY_FIELDS)}
) WITHOUT ROWID;
""",
)

_ADD = f"""
INSERT INTO usage VALUES ({", ".join("?" * (len(_LABELS) + len(COLUMNS)))})
ON CONFLICT DO UPDATE SET {", ".join(f"{name} = {name} + excluded.{name}" for name in COLUMNS)}
"""
_ADD_KEY = f"""
INSERT INTO keys VALUES ({", ".join("?" * (1 + len(_KEY_FIELDS)))})
ON CONFLICT DO UPDATE SET
    {", ".join(f"{name} = {name} + excluded.{name}" for name in _KEY_FIELDS[:-1])},
    last_used = max(last_used, excluded.last_used)
"""
_DROP_OLDEST = f"""
DELETE FROM usage WHERE ({", ".join(_LABELS)}) IN (
    SELECT {", ".join(_LABELS)} FROM usage ORDER BY hour DESC LIMIT -1 OFFSET ?
)
"""


class SQLiteUsageStore:
    """See UsageStore.

    Args:
        path: the file, created with its folder if it is missing. None for memory, which this process alone has.
    """

    def __init__(self, path: str | None, *, max_rows: int | None = None) -> None:
        self._file = SQLiteFile(FILE_FORMAT, path, UsageStoreError)
        self._folder = None if path is None else os.path.dirname(path) or "."
        self._max_rows = max_rows or (MAX_ROWS_IN_MEMORY if path is None else MAX_ROWS)
        self._bounded = 0  # the oldest hour that was kept
        self._rows_since = 0

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """See UsageStore. Raises UsageStoreError when the file cannot be used."""
        if (folder := self._folder) is not None:
            await self._file.call(lambda: os.makedirs(folder, mode=0o700, exist_ok=True))
        async with self._file.running(_BUSY_S):
            yield

    async def add(self, batch: UsageBatch) -> None:
        await self._file.call(lambda: self._add(batch), len(batch.rows) * ROW_BYTES)

    async def read(self, query: UsageQuery) -> list[UsageGroup]:
        return await self._file.call(lambda: self._read(query))

    async def key_uses(self, keys: Sequence[str]) -> list[KeyUse]:
        return await self._file.call(lambda: [self._key_use(key) for key in keys])

    # What follows runs in the thread.

    def _add(self, batch: UsageBatch) -> None:
        with write_transaction(self._file.connection) as connection:
            connection.executemany(
                _ADD, [(*astuple(labels), *counts.values()) for labels, counts in batch.rows.items()]
            )
            connection.executemany(
                _ADD_KEY,
                [(key, *[getattr(use, name) for name in _KEY_FIELDS]) for key, use in batch.keys.items()],
            )
            self._rows_since += len(batch.rows)
            if batch.oldest > self._bounded or self._rows_since >= self._max_rows:
                connection.execute("DELETE FROM usage WHERE hour < ?", (batch.oldest,))
                connection.execute(_DROP_OLDEST, (self._max_rows,))
                self._rows_since = 0
        self._bounded = max(self._bounded, batch.oldest)

    def _read(self, query: UsageQuery) -> list[UsageGroup]:
        self._file.connection.create_function(
            "group_of", 1, lambda key: query.group_of.get(key, ""), deterministic=True
        )
        groups = [GROUPS[name] for name in query.by]
        where = ["hour >= ?", "hour < ?", *[f"{name} = ?" for name in query.filters]]
        times = [f"{GROUPS[name]} DESC" for name in query.by if name in TIMES]
        names = [GROUPS[name] for name in query.by if name not in TIMES]
        sums = [f"sum({name})" for name in COLUMNS]
        statement = f"SELECT {', '.join([*groups, *sums])} FROM usage WHERE {' AND '.join(where)}"
        if groups:
            statement += f" GROUP BY {', '.join(groups)}"
        statement += f" ORDER BY {', '.join([*times, 'sum(requests) DESC', *names])} LIMIT ?"
        values = (query.since, query.until, *query.filters.values(), query.limit)
        rows = self._file.connection.execute(statement, values).fetchall()
        count = len(groups)
        # Without groups there is one row, of nothing if no row counts.
        return [(row[:count], UsageCounts.of(row[count:])) for row in rows if row[count] is not None]

    def _key_use(self, key: str) -> KeyUse:
        fields = ", ".join(_KEY_FIELDS)
        row = self._file.connection.execute(f"SELECT {fields} FROM keys WHERE key = ?", (key,)).fetchone()
        return KeyUse() if row is None else KeyUse(*row)
