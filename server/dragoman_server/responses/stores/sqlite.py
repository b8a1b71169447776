"""A response store in a SQLite file, which outlives the process and which several processes may share.

The standard library's sqlite3 blocks, so it runs in a worker thread: one connection per process, used by one call at a
time. A write-ahead log lets processes read while one of them writes; a writer waits for another one for a limited time.
Triggers count bytes and drop items that no response uses, whichever process deletes a response.

The conversations are private: only the user who runs the gateway may read the file, and deleted data is overwritten.
"""

import sqlite3
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TypeVar

import anyio
from anyio.abc import TaskGroup

from dragoman_server.platform import sqlite_file
from dragoman_server.responses.stores.base import (
    LOG_KEPT_S,
    MAX_LOG_BYTES,
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
    find_items,
    item_digest,
    page_of,
)

_T = TypeVar("_T")

# Seconds for which a call waits for another process to finish its writing.
_BUSY_S = 2.0

FILE_FORMAT = sqlite_file.SQLiteFileFormat(
    "response store",
    0x6472676D,  # "drgm"
    1,
    f"""
CREATE TABLE responses (
    key INTEGER PRIMARY KEY,
    owner TEXT NOT NULL,
    id TEXT NOT NULL,
    created INTEGER NOT NULL,
    size INTEGER NOT NULL,
    body BLOB NOT NULL,
    UNIQUE (owner, id)
);
CREATE INDEX responses_created ON responses (created);
CREATE TABLE items (
    key INTEGER PRIMARY KEY,
    owner TEXT NOT NULL,
    id TEXT NOT NULL,
    digest BLOB NOT NULL,
    data BLOB NOT NULL,
    UNIQUE (owner, digest)
);
CREATE INDEX items_id ON items (owner, id);
CREATE TABLE links (
    response INTEGER NOT NULL,
    output INTEGER NOT NULL,
    place INTEGER NOT NULL,
    item INTEGER NOT NULL,
    PRIMARY KEY (response, output, place)
) WITHOUT ROWID;
CREATE INDEX links_item ON links (item);
CREATE TABLE total (bytes INTEGER NOT NULL);
INSERT INTO total VALUES (0);

CREATE TRIGGER response_added AFTER INSERT ON responses BEGIN
    UPDATE total SET bytes = bytes + new.size;
END;
CREATE TRIGGER response_dropped AFTER DELETE ON responses BEGIN
    UPDATE total SET bytes = bytes - old.size;
    DELETE FROM links WHERE response = old.key;
END;
CREATE TRIGGER link_dropped AFTER DELETE ON links BEGIN
    DELETE FROM items WHERE key = old.item AND NOT EXISTS (SELECT 1 FROM links WHERE item = old.item);
END;
CREATE TRIGGER item_added AFTER INSERT ON items BEGIN
    UPDATE total SET bytes = bytes + {ROW_BYTES} + length(new.id) + length(new.data);
END;
CREATE TRIGGER item_dropped AFTER DELETE ON items BEGIN
    UPDATE total SET bytes = bytes - {ROW_BYTES} - length(old.id) - length(old.data);
END;
""",
    # A lease is 0 in a log that is closed.
    f"""
CREATE TABLE IF NOT EXISTS logs (
    response INTEGER PRIMARY KEY,
    lease REAL NOT NULL,
    ended INTEGER NOT NULL DEFAULT 0,
    next INTEGER NOT NULL DEFAULT 0,
    bytes INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX IF NOT EXISTS logs_ended ON logs (ended);
CREATE TABLE IF NOT EXISTS events (
    key INTEGER PRIMARY KEY,
    response INTEGER NOT NULL,
    first INTEGER NOT NULL,
    count INTEGER NOT NULL,
    data BLOB NOT NULL,
    UNIQUE (response, first)
);
CREATE TRIGGER IF NOT EXISTS response_changed AFTER UPDATE OF size ON responses BEGIN
    UPDATE total SET bytes = bytes + new.size - old.size;
END;
CREATE TRIGGER IF NOT EXISTS response_with_log_dropped AFTER DELETE ON responses BEGIN
    DELETE FROM logs WHERE response = old.key;
END;
CREATE TRIGGER IF NOT EXISTS log_dropped AFTER DELETE ON logs BEGIN
    DELETE FROM events WHERE response = old.response;
END;
CREATE TRIGGER IF NOT EXISTS events_added AFTER INSERT ON events BEGIN
    UPDATE total SET bytes = bytes + {ROW_BYTES} + length(new.data);
    UPDATE logs SET bytes = bytes + {ROW_BYTES} + length(new.data), next = new.first + new.count
    WHERE response = new.response;
END;
CREATE TRIGGER IF NOT EXISTS events_dropped AFTER DELETE ON events BEGIN
    UPDATE total SET bytes = bytes - {ROW_BYTES} - length(old.data);
    UPDATE logs SET bytes = bytes - {ROW_BYTES} - length(old.data) WHERE response = old.response;
END;
""",
)

_TOTAL = "SELECT bytes FROM total"
# Except for the one that was just stored, whose size was checked before, and for those that are being made.
_DROP_OLDEST = """
DELETE FROM responses WHERE key = (
    SELECT key FROM responses LEFT JOIN logs ON logs.response = key
    WHERE key != ? AND coalesce(lease, 0) <= ? ORDER BY created, key LIMIT 1
)
"""
_DROP_OLDEST_EVENTS = """
DELETE FROM events WHERE key = (
    SELECT key FROM events WHERE response = ? AND first < (SELECT max(first) FROM events WHERE response = ?)
    ORDER BY first LIMIT 1
)
"""
_LOG = """
SELECT key, lease, ended, next, logs.bytes FROM responses JOIN logs ON logs.response = key WHERE owner = ? AND id = ?
"""
# From the batch that has a number on.
_EVENTS = """
SELECT first, count, data FROM events WHERE response = ? AND first >= (
    SELECT coalesce(max(first), 0) FROM events WHERE response = ? AND first <= ?
) ORDER BY first
"""
_ITEMS = """
SELECT items.id, items.data FROM links JOIN items ON items.key = links.item
WHERE links.response = ? AND links.output = ? ORDER BY links.place
"""


class SQLiteResponseStore:
    """See ResponseStore.

    Args:
        path: the file, created if it is missing; its folder must exist.
    """

    def __init__(self, path: str, limits: ResponseStoreLimits) -> None:
        self._file = sqlite_file.SQLiteFile(FILE_FORMAT, path, ResponseStoreError)
        self._limits = limits
        self._writing: TaskGroup | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """See ResponseStore. Raises ResponseStoreError when the file cannot be used."""
        async with self._file.running(_BUSY_S):
            writing = self._writing = await anyio.create_task_group().__aenter__()
            try:
                yield
            finally:
                self._writing = None
                await writing.__aexit__(None, None, None)  # bounded by TURN_S and _BUSY_S

    async def put(self, response: StoredResponse) -> bool:
        if self._is_too_large(response):
            return False

        async def write() -> Exception | None:
            try:
                await self._in_room(response.size, lambda: self._insert(response))
            except Exception as error:  # it is the caller's, and must not end the group
                return error
            return None

        if self._writing is None:
            raise RuntimeError("the response store is used outside its running() block")
        writing = self._writing.start_soon(write)
        with anyio.move_on_after(PUT_S):
            failure = await writing
            if failure is not None:
                raise failure
            return True
        raise ResponseStoreError(f"{self._file.name}: it was not written within {PUT_S:g} s")

    async def get(self, owner: str, id: str, now: int) -> StoredResponse | None:
        return await self._file.call(lambda: self._get(owner, id, now))

    async def items(self, owner: str, ids: Collection[str], now: int, limit: int) -> dict[str, StoredItem]:
        return await self._file.call(lambda: self._items(owner, ids, now, limit))

    async def delete(self, owner: str, id: str) -> bool:
        return await self._file.call(lambda: self._delete(owner, id))

    async def open(self, response: StoredResponse) -> bool:
        if self._is_too_large(response):
            return False
        await self._in_room(response.size, lambda: self._insert(response))
        return True

    async def append(self, key: ResponseKey, events: ResponseEvents, now: int) -> bool:
        return await self._in_room(events.size, lambda: self._append(key, events, now))

    async def close(
        self, response: StoredResponse, events: ResponseEvents, lease: float | None = None
    ) -> bool:
        if self._is_too_large(response):
            raise ResponseTooLarge(f"response {response.id} is too large for the response store")
        return await self._in_room(response.size, lambda: self._close(response, events, lease))

    async def open_logs(
        self, keys: Collection[ResponseKey], lease: float | None = None
    ) -> Collection[ResponseKey]:
        return await self._file.call(lambda: self._open_logs(keys, lease))

    async def read_events(self, key: ResponseKey, after: int, now: int) -> EventPage | None:
        return await self._file.call(lambda: self._read_events(key, after, now))

    def _is_too_large(self, response: StoredResponse) -> bool:
        return response.size > self._limits.max_bytes

    async def _in_room(self, size: int, write: Callable[[], _T]) -> _T:
        """Run what writes so many bytes in the thread. On a full disk, make room and try it again."""

        def try_again() -> _T:
            while True:
                try:
                    return write()
                except sqlite3.OperationalError as error:
                    if error.sqlite_errorcode != sqlite3.SQLITE_FULL or not self._drop_oldest(size):
                        raise

        return await self._file.call(try_again)

    # What follows runs in the thread.

    @contextmanager
    def _reading(self, now: int) -> Iterator[sqlite3.Connection]:
        """Open a transaction that reads one state of the file, without expired responses."""
        connection = self._file.connection
        oldest = (now - self._limits.max_age_s,)
        if connection.execute("SELECT 1 FROM responses WHERE created < ? LIMIT 1", oldest).fetchone():
            with sqlite_file.write_transaction(connection):
                connection.execute("DELETE FROM responses WHERE created < ?", oldest)
        with sqlite_file.read_transaction(connection):
            yield connection

    def _drop_oldest(self, size: int) -> bool:
        """Make room on a full disk. Return false if there was nothing to drop."""
        with sqlite_file.write_transaction(self._file.connection) as connection:
            left = connection.execute(_TOTAL).fetchone()[0] - size
            dropped = any_dropped = connection.execute(_DROP_OLDEST, (0, 0)).rowcount
            while dropped and connection.execute(_TOTAL).fetchone()[0] > left:
                dropped = connection.execute(_DROP_OLDEST, (0, 0)).rowcount
        return bool(any_dropped)

    def _make_room(self, connection: sqlite3.Connection, key: int, now: int) -> None:
        """Drop the oldest responses beyond the limit, but neither `key` nor one that is being made, then events."""
        dropped = 1
        while dropped and connection.execute(_TOTAL).fetchone()[0] > self._limits.max_bytes:
            dropped = (
                connection.execute(_DROP_OLDEST, (key, now)).rowcount
                or connection.execute(_DROP_OLDEST_EVENTS, (key, key)).rowcount
            )

    def _insert(self, response: StoredResponse) -> None:
        """Store a response, with a log if it has a lease."""
        owner = response.owner
        with sqlite_file.write_transaction(self._file.connection) as connection:
            connection.execute(
                "DELETE FROM responses WHERE created < ? OR (owner = ? AND id = ?)",
                (response.created - self._limits.max_age_s, owner, response.id),
            )
            key = connection.execute(
                "INSERT INTO responses (owner, id, created, size, body) VALUES (?, ?, ?, ?, ?)",
                (owner, response.id, response.created, response.size_without_items, response.body),
            ).lastrowid
            assert key is not None
            self._link(connection, key, owner, 0, response.input)
            self._link(connection, key, owner, 1, response.output)
            if response.lease:
                old = (response.created - LOG_KEPT_S,)
                connection.execute("DELETE FROM logs WHERE ended > 0 AND ended < ?", old)
                connection.execute("INSERT INTO logs (response, lease) VALUES (?, ?)", (key, response.lease))
            self._make_room(connection, key, response.created)

    def _link(
        self, connection: sqlite3.Connection, key: int, owner: str, output: int, items: tuple[StoredItem, ...]
    ) -> None:
        digests = [item_digest(item) for item in items]
        connection.executemany(
            "INSERT OR IGNORE INTO items (owner, id, digest, data) VALUES (?, ?, ?, ?)",
            [(owner, item.id, digest, item.data) for item, digest in zip(items, digests, strict=True)],
        )
        connection.executemany(
            "INSERT INTO links SELECT ?, ?, ?, key FROM items WHERE owner = ? AND digest = ?",
            [(key, output, place, owner, digest) for place, digest in enumerate(digests)],
        )

    def _get(self, owner: str, id: str, now: int) -> StoredResponse | None:
        with self._reading(now) as reading:
            found = reading.execute(
                "SELECT key, created, body, coalesce(lease, 0.0) FROM responses "
                "LEFT JOIN logs ON logs.response = key WHERE owner = ? AND id = ?",
                (owner, id),
            ).fetchone()
            if found is None:
                return None
            key, created, body, lease = found
            input_items, output_items = (
                tuple([StoredItem(*row) for row in reading.execute(_ITEMS, (key, part))]) for part in (0, 1)
            )
        return StoredResponse(id, owner, created, body, input_items, output_items, lease)

    def _items(self, owner: str, ids: Collection[str], now: int, limit: int) -> dict[str, StoredItem]:
        with self._reading(now) as reading:

            def find(id: str) -> StoredItem | None:
                found = reading.execute(
                    "SELECT id, data FROM items WHERE owner = ? AND id = ? ORDER BY key DESC LIMIT 1",
                    (owner, id),
                ).fetchone()
                return None if found is None else StoredItem(*found)

            return find_items(ids, limit, find)

    def _delete(self, owner: str, id: str) -> bool:
        with sqlite_file.write_transaction(self._file.connection) as connection:
            return (
                connection.execute("DELETE FROM responses WHERE owner = ? AND id = ?", (owner, id)).rowcount
                > 0
            )

    def _append(self, key: ResponseKey, events: ResponseEvents, now: int) -> bool:
        with sqlite_file.write_transaction(self._file.connection) as connection:
            log = connection.execute(_LOG, key).fetchone()
            if log is None or not log[1] or not self._add(connection, log, events):
                return False
            self._make_room(connection, log[0], now)
        return True

    def _add(
        self, connection: sqlite3.Connection, log: tuple[int, float, int, int, int], events: ResponseEvents
    ) -> bool:
        key, _, _, next_number, size = log
        if events.next <= next_number:
            return True
        if events.first != next_number:
            return False
        connection.execute(
            "INSERT INTO events (response, first, count, data) VALUES (?, ?, ?, ?)",
            (key, events.first, events.count, events.data),
        )
        size += events.size
        while size > MAX_LOG_BYTES and connection.execute(_DROP_OLDEST_EVENTS, (key, key)).rowcount:
            size = connection.execute("SELECT bytes FROM logs WHERE response = ?", (key,)).fetchone()[0]
        return True

    def _close(self, response: StoredResponse, events: ResponseEvents, lease: float | None) -> bool:
        with sqlite_file.write_transaction(self._file.connection) as connection:
            log = connection.execute(_LOG, response.key).fetchone()
            if log is None or not log[1] or log[1] != (lease or log[1]):
                return False
            if events.count and events.first != log[3]:
                return False
            self._add(connection, log, events)
            key = log[0]
            connection.execute(
                "UPDATE responses SET created = ?, size = ?, body = ? WHERE key = ?",
                (response.created, response.size_without_items, response.body, key),
            )
            self._link(connection, key, response.owner, 1, response.output)
            connection.execute(
                "UPDATE logs SET lease = 0, ended = ? WHERE response = ?", (response.created, key)
            )
            self._make_room(connection, key, response.created)
        return True

    def _open_logs(self, keys: Collection[ResponseKey], lease: float | None) -> set[ResponseKey]:
        connection = self._file.connection
        found = {key: connection.execute(_LOG, key).fetchone() for key in keys}
        opened = {key: log[0] for key, log in found.items() if log is not None and log[1]}
        if lease is not None and opened:
            with sqlite_file.write_transaction(connection):
                connection.executemany(
                    "UPDATE logs SET lease = ? WHERE response = ? AND lease > 0",
                    [(lease, key) for key in opened.values()],
                )
        return set(opened)

    def _read_events(self, key: ResponseKey, after: int, now: int) -> EventPage | None:
        with sqlite_file.read_transaction(self._file.connection):
            connection = self._file.connection
            found = connection.execute(_LOG, key).fetchone()
            if found is None or (not found[1] and found[2] < now - LOG_KEPT_S):
                return None
            response, lease, _, next_number, _ = found
            first = connection.execute(
                "SELECT coalesce(min(first), ?) FROM events WHERE response = ?", (next_number, response)
            ).fetchone()[0]
            rows = connection.execute(_EVENTS, (response, response, after + 1))
            return page_of(LogState(lease, first, next_number), after, (ResponseEvents(*row) for row in rows))
