"""An account store in a SQLite file, which outlives the process and which several processes of one machine may share.

Each call is one transaction, which decides as the store in memory does. One thread makes them in order, and a caller
can stop waiting immediately: its call is dropped if it has not begun, and otherwise finished without it. A number of
SQLite changes when another process has written; then the view is read again, at the latest with the next call or after
REFRESH_S.
"""

import sqlite3
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from typing import TypeVar

import anyio
import msgspec

from dragoman_server.accounts.stores.base import AccountStoreError, Operation
from dragoman_server.accounts.stores.tables import CONVERSATION_S, MAX_CONVERSATIONS, Tables
from dragoman_server.platform.cancellation import Arguments
from dragoman_server.platform.off_loop import in_threads
from dragoman_server.platform.sqlite_file import SQLiteFile, SQLiteFileFormat, write_transaction
from dragoman_server.platform.task_group import BackgroundTaskGroup
from dragoman_server.policy.health import Health

_T = TypeVar("_T")

# Seconds between checks of the file for what other processes wrote.
REFRESH_S = 0.03

# Seconds for which a call waits for another process to finish its writing, which takes less than a millisecond.
_BUSY_S = 0.5

# Calls that wait for the thread. A disk that is slower than that would only get further behind.
_MAX_WAITING = 1000

_encode = msgspec.json.encode
_decode = msgspec.json.Decoder(Health).decode

FILE_FORMAT = SQLiteFileFormat(
    "account store",
    0x64726761,  # "drga"
    1,
    """
CREATE TABLE health (account TEXT PRIMARY KEY, data BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE rates (key TEXT PRIMARY KEY, filled REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE leases (
    account TEXT NOT NULL,
    lease TEXT NOT NULL,
    expires REAL NOT NULL,
    PRIMARY KEY (account, lease)
) WITHOUT ROWID;
CREATE INDEX leases_expires ON leases (expires);
CREATE TABLE conversations (key TEXT PRIMARY KEY, account TEXT NOT NULL, expires REAL NOT NULL) WITHOUT ROWID;
CREATE INDEX conversations_expires ON conversations (expires);
CREATE TABLE counters (key TEXT PRIMARY KEY, amount REAL NOT NULL, expires REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE total (conversations INTEGER NOT NULL);
INSERT INTO total VALUES (0);
CREATE TRIGGER conversation_added AFTER INSERT ON conversations BEGIN
    UPDATE total SET conversations = conversations + 1;
END;
CREATE TRIGGER conversation_dropped AFTER DELETE ON conversations BEGIN
    UPDATE total SET conversations = conversations - 1;
END;
""",
    "CREATE TABLE IF NOT EXISTS client_keys (name TEXT PRIMARY KEY, data TEXT NOT NULL) WITHOUT ROWID;",
)

_UPSERT_CONVERSATION = """
INSERT INTO conversations VALUES (?, ?, ?)
ON CONFLICT (key) DO UPDATE SET account = excluded.account, expires = excluded.expires
"""
_DELETE_OLDEST_CONVERSATIONS = """
DELETE FROM conversations WHERE key IN (
    SELECT key FROM conversations ORDER BY expires
    LIMIT (SELECT max(0, conversations - ?) FROM total)
)
"""


class SQLiteAccountStore(BackgroundTaskGroup, Tables):
    """See AccountStore.

    Args:
        path: the file, created if it is missing; its folder must exist.
    """

    def __init__(self, path: str, *, max_conversations: int = MAX_CONVERSATIONS) -> None:
        self._file = SQLiteFile(FILE_FORMAT, path, AccountStoreError)
        self._max_conversations = max_conversations
        self._view: Mapping[str, Health] = {}  # never changed, only replaced: the thread does that
        self._version = -1  # of the view's content
        self._changed: dict[str, Health] = {}  # what the transaction has written, for the view
        self._waiting = 0
        self._thread: Executor | None = None

    def health(self) -> Mapping[str, Health]:
        return self._view

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """See AccountStore. Raises AccountStoreError when the file cannot be used."""
        thread = self._thread = ThreadPoolExecutor(1, "dragoman-accounts")
        try:
            await self._in_thread(self._open)
            async with super().running():
                self.tasks.start_soon(self._refresh_often)
                yield
        finally:
            self._thread = None
            with anyio.CancelScope(shield=True):  # bounded: closing never waits
                await in_threads(thread, self._file.close)
            thread.shutdown(wait=False)

    async def apply(self, operation: Operation[_T]) -> _T:
        return await self._in_thread(self._transaction, operation)

    async def _in_thread(self, function: Callable[[*Arguments], _T], *arguments: *Arguments) -> _T:
        if self._thread is None:
            raise RuntimeError("the account store is used outside its running() block")
        if self._waiting >= _MAX_WAITING:
            raise AccountStoreError(f"{self._file.name}: {_MAX_WAITING} calls are waiting for it")
        self._waiting += 1
        try:
            with self._file.errors():
                return await in_threads(self._thread, function, *arguments)
        finally:
            self._waiting -= 1

    async def _refresh_often(self) -> None:
        while True:
            await anyio.sleep(REFRESH_S)
            with suppress(AccountStoreError):  # the next request gets it too, and reports it
                await self._in_thread(self._refresh)

    # What follows runs in the thread.

    def _open(self) -> None:
        self._file.open(_BUSY_S)
        self._refresh()

    def _refresh(self) -> None:
        """Read the view again if another process has written. Inside a transaction the view is then exact."""
        self._file.check_place()
        version = self._file.connection.execute("PRAGMA data_version").fetchone()[0]
        if version != self._version:
            rows = self._file.connection.execute("SELECT account, data FROM health")
            self._view = {account: _decode(data) for account, data in rows}
            self._version = version

    def _transaction(self, operation: Operation[_T]) -> _T:
        self._changed = {}
        with write_transaction(self._file.connection):
            self._refresh()
            result = operation.apply(self)
        if self._changed:
            self._view = {**self._view, **self._changed}
        return result

    def _execute(self, statement: str, *values: object) -> sqlite3.Cursor:
        return self._file.connection.execute(statement, values)

    def _number(self, query: str, *values: object) -> float:
        """Return the number that a query finds, 0 if it finds none."""
        row = self._execute(query, *values).fetchone()
        return 0.0 if row is None else float(row[0])

    def put_health(self, account: str, health: Health) -> None:
        self._execute("INSERT OR REPLACE INTO health VALUES (?, ?)", account, _encode(health))
        self._changed[account] = health

    def filled(self, rate: str) -> float:
        return self._number("SELECT filled FROM rates WHERE key = ?", rate)

    def put_filled(self, rate: str, filled: float) -> None:
        self._execute("INSERT OR REPLACE INTO rates VALUES (?, ?)", rate, filled)

    def leases(self, account: str, now: float) -> int:
        self._execute("DELETE FROM leases WHERE expires <= ?", now)
        return int(self._number("SELECT count(*) FROM leases WHERE account = ?", account))

    def put_lease(self, account: str, lease: str, expires: float) -> bool:
        is_new = not self.drop_lease(account, lease)
        self._execute("INSERT INTO leases VALUES (?, ?, ?)", account, lease, expires)
        return is_new

    def drop_lease(self, account: str, lease: str) -> bool:
        query = "DELETE FROM leases WHERE account = ? AND lease = ?"
        return self._execute(query, account, lease).rowcount > 0

    def account_of(self, conversation: str, now: float) -> str | None:
        query = "SELECT account FROM conversations WHERE key = ? AND expires > ?"
        row = self._execute(query, conversation, now).fetchone()
        return None if row is None else str(row[0])

    def put_conversation(
        self, conversation: str, account: str, now: float, keep_s: float = CONVERSATION_S
    ) -> None:
        self._execute("DELETE FROM conversations WHERE expires <= ?", now)
        self._execute(_UPSERT_CONVERSATION, conversation, account, now + keep_s)
        self._execute(_DELETE_OLDEST_CONVERSATIONS, self._max_conversations)

    def key_tables(self, name: str | None = None) -> dict[str, str]:
        return dict(self._execute("SELECT * FROM client_keys WHERE name = coalesce(?, name)", name))

    def put_key_table(self, name: str, table: str) -> None:
        self._execute("DELETE FROM client_keys WHERE name = ?", name)
        if table:
            self._execute("INSERT INTO client_keys VALUES (?, ?)", name, table)

    def total(self, counter: str, now: float) -> float:
        for table in ("counters", "leases"):
            self._execute(f"DELETE FROM {table} WHERE expires <= ?", now)
        return self._number("SELECT amount FROM counters WHERE key = ?", counter)

    def put_total(self, counter: str, amount: float, expires: float) -> None:
        self._execute("INSERT OR REPLACE INTO counters VALUES (?, ?, ?)", counter, amount, expires)
