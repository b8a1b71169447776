"""An account store in a SQLite file, which outlives the process and which several processes of one machine may share.

Each call is one transaction, which decides as the store in memory does. One task hands the calls to one worker thread,
so that a caller can stop waiting at once: its call is dropped if it has not begun, and otherwise finished without it. A
number of SQLite changes when another process has written; then the view is read again, at the latest with the next call
or after REFRESH_S.
"""

import sqlite3
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

import anyio
import anyio.to_thread
import msgspec
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from dragoman_server.accounts.health import Health
from dragoman_server.accounts.stores.base import AccountStoreError, Operation
from dragoman_server.accounts.stores.tables import CONVERSATION_S, MAX_CONVERSATIONS, Tables
from dragoman_server.sqlite_file import SQLiteFile, SQLiteFileFormat, write_transaction

_T = TypeVar("_T")

# Seconds between checks of the file for what other processes wrote.
REFRESH_S = 0.03

# Seconds for which a call waits for another process to finish its writing, which takes less than a millisecond.
_BUSY_S = 0.5

# Calls that wait for the thread. A disk that is slower than that would only get further behind.
_MAX_WAITING = 1000
# The thread takes this many of them at a time.
_BATCH_SIZE = 50

_encode = msgspec.json.encode
_decode = msgspec.json.Decoder(Health).decode

_FILE_FORMAT = SQLiteFileFormat(
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


@dataclass(slots=True, eq=False)
class _ThreadCall:
    """A call for the thread. awaited: its caller still waits."""

    function: Callable[[], object]
    done: anyio.Event = field(default_factory=anyio.Event)
    awaited: bool = True
    result: Any = None
    error: Exception | None = None

    def run(self) -> None:
        if not self.awaited:
            return
        try:
            self.result = self.function()
        except Exception as error:
            self.error = error


class SQLiteAccountStore(Tables):
    """See AccountStore. path: the file, created if it is missing; its folder must exist."""

    def __init__(self, path: str, *, max_conversations: int = MAX_CONVERSATIONS) -> None:
        self._file = SQLiteFile(_FILE_FORMAT, path, AccountStoreError)
        self._max_conversations = max_conversations
        self._view: Mapping[str, Health] = {}  # never changed, only replaced: the thread does that
        self._version = -1  # of what is in the view
        self._changed: dict[str, Health] = {}  # what the transaction has written, for the view
        self._calls: MemoryObjectSendStream[_ThreadCall] | None = None
        # Not anyio's default limiter, so that no call waits for other users of threads.
        self._thread = anyio.CapacityLimiter(1)

    def health(self) -> Mapping[str, Health]:
        return self._view

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """See AccountStore. Raises AccountStoreError when the file cannot be used."""
        await self._in_thread(self._open)
        calls, received = anyio.create_memory_object_stream[_ThreadCall](_MAX_WAITING)
        try:
            async with calls, received, anyio.create_task_group() as tasks:
                tasks.start_soon(self._work, received)
                tasks.start_soon(self._refresh_often)
                self._calls = calls
                try:
                    yield
                finally:
                    tasks.cancel_scope.cancel()
        finally:
            self._calls = None
            with anyio.CancelScope(shield=True):  # bounded: closing never waits
                await self._in_thread(self._file.close)

    async def _in_thread(self, function: Callable[[], None]) -> None:
        with self._file.errors():
            await anyio.to_thread.run_sync(function, limiter=self._thread)

    async def apply(self, operation: Operation[_T]) -> _T:
        return await self._queue(lambda: self._transaction(operation))

    async def _queue(self, function: Callable[[], _T]) -> _T:
        if self._calls is None:
            raise RuntimeError("the account store is used outside its running() block")
        call = _ThreadCall(function)
        try:
            self._calls.send_nowait(call)
        except anyio.WouldBlock:
            message = f"{self._file.name}: {_MAX_WAITING} calls are waiting for it"
            raise AccountStoreError(message) from None
        try:
            await call.done.wait()
        finally:
            call.awaited = False
        if call.error is not None:
            with self._file.errors():
                raise call.error
        result: _T = call.result
        return result

    async def _work(self, received: MemoryObjectReceiveStream[_ThreadCall]) -> None:
        waiting = received.statistics
        try:
            async for call in received:
                batch = [call]
                while len(batch) < _BATCH_SIZE and waiting().current_buffer_used:
                    batch.append(received.receive_nowait())
                await anyio.to_thread.run_sync(_run_all, batch, limiter=self._thread)
                for each in batch:
                    each.done.set()
        finally:
            while waiting().current_buffer_used:
                call = received.receive_nowait()
                call.error = AccountStoreError(f"{self._file.name} is closed")
                call.done.set()

    async def _refresh_often(self) -> None:
        while True:
            await anyio.sleep(REFRESH_S)
            with suppress(AccountStoreError):  # the next request gets it too, and reports it
                await self._queue(self._refresh)

    # What follows runs in the thread.

    def _open(self) -> None:
        self._file.open(_BUSY_S)
        self._refresh()

    def _refresh(self) -> None:
        """Read the view again if another process has written. Inside a transaction the view is then exact."""
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

    def put_lease(self, account: str, lease: str, expires: float) -> None:
        self._execute("INSERT OR REPLACE INTO leases VALUES (?, ?, ?)", account, lease, expires)

    def drop_lease(self, account: str, lease: str) -> None:
        self._execute("DELETE FROM leases WHERE account = ? AND lease = ?", account, lease)

    def account_of(self, conversation: str, now: float) -> str | None:
        query = "SELECT account FROM conversations WHERE key = ? AND expires > ?"
        row = self._execute(query, conversation, now).fetchone()
        return None if row is None else str(row[0])

    def put_conversation(self, conversation: str, account: str, now: float) -> None:
        self._execute("DELETE FROM conversations WHERE expires <= ?", now)
        self._execute(_UPSERT_CONVERSATION, conversation, account, now + CONVERSATION_S)
        self._execute(_DELETE_OLDEST_CONVERSATIONS, self._max_conversations)

    def total(self, counter: str, now: float) -> float:
        self._execute("DELETE FROM counters WHERE expires <= ?", now)
        return self._number("SELECT amount FROM counters WHERE key = ?", counter)

    def put_total(self, counter: str, amount: float, expires: float) -> None:
        self._execute("INSERT OR REPLACE INTO counters VALUES (?, ?, ?)", counter, amount, expires)


def _run_all(batch: Sequence[_ThreadCall]) -> None:
    for call in batch:
        call.run()
