"""A response store in a SQLite file, which outlives the process and which several processes may share.

The standard library's sqlite3 blocks, so it runs in a worker thread: one connection per process, used by one call at a
time. A write-ahead log lets processes read while one of them writes; a writer waits for another one for a limited time.
Triggers count bytes and drop items that no response uses, whichever process deletes a response.

The conversations are private: only the user who runs the gateway may read the file, and deleted data is overwritten.
"""

import hashlib
import sqlite3
from collections.abc import AsyncIterator, Collection, Iterator
from contextlib import asynccontextmanager, contextmanager

import anyio
from anyio.abc import TaskGroup

from dragoman_server.platform import sqlite_file
from dragoman_server.responses.stores.base import (
    ROW_BYTES,
    ResponseStoreError,
    ResponseStoreLimits,
    StoredItem,
    StoredResponse,
    find_items,
)

# Seconds for which a call waits for another process to finish its writing.
_BUSY_S = 2.0

# Seconds for which the end of a response waits to be stored. After that the client gets it, and the writing continues.
_PUT_S = 0.25

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
)

_TOTAL = "SELECT bytes FROM total"
# Except for the one that was just stored, whose size was checked before.
_DROP_OLDEST = """
DELETE FROM responses WHERE key = (SELECT key FROM responses WHERE key != ? ORDER BY created, key LIMIT 1)
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
        self._one_call = anyio.CapacityLimiter(1)
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
        if response.size > self._limits.max_bytes:
            return False
        failures: list[Exception] = []
        written = anyio.Event()

        async def write() -> None:
            try:
                await self._file.call(lambda: self._put(response))
            except Exception as error:  # it is the caller's, and must not end the group
                failures.append(error)
            finally:
                written.set()

        if self._writing is None:
            raise RuntimeError("the response store is used outside its running() block")
        self._writing.start_soon(write)
        with anyio.move_on_after(_PUT_S):
            await written.wait()
        if not written.is_set():
            raise ResponseStoreError(f"{self._file.name}: it was not written within {_PUT_S:g} s")
        if failures:
            raise failures[0]
        return True

    async def get(self, owner: str, id: str, now: int) -> StoredResponse | None:
        return await self._file.call(lambda: self._get(owner, id, now))

    async def items(self, owner: str, ids: Collection[str], now: int, limit: int) -> dict[str, StoredItem]:
        return await self._file.call(lambda: self._items(owner, ids, now, limit))

    async def delete(self, owner: str, id: str) -> bool:
        return await self._file.call(lambda: self._delete(owner, id))

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

    def _put(self, response: StoredResponse) -> None:
        while True:
            try:
                return self._insert(response)
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode != sqlite3.SQLITE_FULL or not self._drop_oldest(response.size):
                    raise

    def _drop_oldest(self, size: int) -> bool:
        """Make room on a full disk. Return false if there was nothing to drop."""
        with sqlite_file.write_transaction(self._file.connection) as connection:
            left = connection.execute(_TOTAL).fetchone()[0] - size
            dropped = any_dropped = connection.execute(_DROP_OLDEST, (0,)).rowcount
            while dropped and connection.execute(_TOTAL).fetchone()[0] > left:
                dropped = connection.execute(_DROP_OLDEST, (0,)).rowcount
        return bool(any_dropped)

    def _insert(self, response: StoredResponse) -> None:
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
            for output, items in enumerate((response.input, response.output)):
                digests = [_digest(item) for item in items]
                connection.executemany(
                    "INSERT OR IGNORE INTO items (owner, id, digest, data) VALUES (?, ?, ?, ?)",
                    [
                        (owner, item.id, digest, item.data)
                        for item, digest in zip(items, digests, strict=True)
                    ],
                )
                connection.executemany(
                    "INSERT INTO links SELECT ?, ?, ?, key FROM items WHERE owner = ? AND digest = ?",
                    [(key, output, place, owner, digest) for place, digest in enumerate(digests)],
                )
            dropped = 1
            while dropped and connection.execute(_TOTAL).fetchone()[0] > self._limits.max_bytes:
                dropped = connection.execute(_DROP_OLDEST, (key,)).rowcount

    def _get(self, owner: str, id: str, now: int) -> StoredResponse | None:
        with self._reading(now) as reading:
            found = reading.execute(
                "SELECT key, created, body FROM responses WHERE owner = ? AND id = ?", (owner, id)
            ).fetchone()
            if found is None:
                return None
            key, created, body = found
            input_items, output_items = (
                tuple([StoredItem(*row) for row in reading.execute(_ITEMS, (key, part))]) for part in (0, 1)
            )
        return StoredResponse(id, owner, created, body, input_items, output_items)

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


def _digest(item: StoredItem) -> bytes:
    """Return a hash of an item: equal only for equal items."""
    return hashlib.blake2b(item.id.encode("ascii") + b"\n" + item.data, digest_size=16).digest()
