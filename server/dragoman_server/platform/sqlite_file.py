"""Open a SQLite file of the gateway: private, and shared with other processes; or a database in memory.

The file has a mark of its kind and version, so a file of another program, kind or version is never changed. A
write-ahead log lets processes read while one of them writes. Only the user who runs the gateway may read the file.
"""

import os
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TypeVar

import anyio
import anyio.to_thread
import msgspec

from dragoman_server.platform.off_loop import INLINE_BYTES

_T = TypeVar("_T")

# Seconds for which a call waits for this process's earlier calls. A slower disk would only get further behind.
TURN_S = 5.0


class SQLiteFileFormat(msgspec.Struct, frozen=True):
    """The kind of a file.

    Attributes:
        what: Its name for errors.
        application, version: The marks in the file.
        schema: SQL that makes the tables.
        additions: SQL for each start: tables that files of this version did not have at first. It changes nothing where
            they are there.
    """

    what: str
    application: int
    version: int
    schema: str
    additions: str = ""

    def maker(self, application: int) -> str:
        """Return, for people, who has made a file that is not of this kind and version. application: its mark."""
        return "another version of Dragoman" if application == self.application else "another program"

    def other_maker(self, path: str) -> str | None:
        """Return who else has made a file, None if nobody has. Raises OSError.

        It reads the file's header (sqlite.org/fileformat.html, 1.3, read 2026-11-29): to open the file makes others.
        """
        with open(path, "rb") as file:
            head = file.read(72)
        version, application = int.from_bytes(head[60:64]), int.from_bytes(head[68:])
        if (application, version) == (self.application, self.version):
            return None
        # The marks of a file whose maker was killed are in the log.
        is_new = not head or (application == 0 and os.path.exists(f"{path}-wal"))
        return None if is_new else self.maker(application)


class _WrongFile(Exception):
    """The file was made by another program or version. `str()` of it names the file."""


class SQLiteFile:
    """A file and the connection to it, for one thread at a time.

    Args:
        path: None for a database in memory, which ends with the connection.
        error: raised if something is wrong with the file.

    Attributes:
        name: The kind and the path, for errors.
    """

    def __init__(self, file_format: SQLiteFileFormat, path: str | None, error: type[Exception]) -> None:
        self.name = f"the {file_format.what} {path or 'in memory'}"
        self._format = file_format
        self._path = path
        self._error = error
        self._connection: sqlite3.Connection | None = None
        self._opened: tuple[int, int] | None = None  # see _place()
        self._one_call = anyio.CapacityLimiter(1)
        self._one_thread = anyio.CapacityLimiter(1)

    @asynccontextmanager
    async def running(self, busy_s: float) -> AsyncIterator[None]:
        """Use the file inside of this block, by call(). Raises the file's error if it cannot be opened."""
        await self.call(lambda: self.open(busy_s))
        try:
            yield
        finally:
            self._opened = None
            with anyio.CancelScope(shield=True):  # bounded by TURN_S, and by busy_s of the calls
                await self.call(self.close)

    async def call(self, function: Callable[[], _T], size: int = 0) -> _T:
        """Run a function in a thread, or in place if all that it may look at is little and in memory.

        A cancelled caller waits for its end, because it uses the connection.

        size: of its input, in bytes.
        """
        with self.errors(), anyio.move_on_after(TURN_S):
            async with self._one_call:
                if self._path is None and size + self._bytes() <= INLINE_BYTES:
                    return function()
                return await anyio.to_thread.run_sync(self._call, function, limiter=self._one_thread)
        raise self._error(f"{self.name}: the calls before this one took {TURN_S:g} s")

    def _call(self, function: Callable[[], _T]) -> _T:
        self.check_place()
        return function()

    def check_place(self) -> None:
        """Raise OSError if the file is no longer at its path. What is written would be lost.

        Use it inside of errors().
        """
        if self._opened is not None and self._opened != self._place():
            raise OSError("another file has taken its place; restart the gateway to use that")

    def _place(self) -> tuple[int, int] | None:
        """Return the device and the inode of the file that is at the path, None if it is in memory."""
        found = os.stat(self._path) if self._path is not None else None
        return None if found is None else (found.st_dev, found.st_ino)

    def _bytes(self) -> int:
        """Return the size of the database, 0 while it is not open."""
        query = "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size"
        return 0 if self._connection is None else int(self._connection.execute(query).fetchone()[0])

    @property
    def connection(self) -> sqlite3.Connection:
        """The connection. RuntimeError if the file is not open."""
        if self._connection is None:
            raise RuntimeError(f"the {self._format.what} is used outside its running() block")
        return self._connection

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Raise the file's own error instead of errors of SQLite and of the system."""
        try:
            yield
        except _WrongFile as error:
            raise self._error(str(error)) from error
        except (sqlite3.Error, OSError) as error:
            raise self._error(f"{self.name}: {error}") from error

    def open(self, busy_s: float) -> None:
        """Open the file. Make it if it is missing.

        busy_s: how long a call waits for another process to finish its writing. Use it inside of errors().
        """
        if self._path is not None:
            # SQLite would make it readable for all users whom the umask allows.
            os.close(os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600))
        connection = sqlite3.connect(
            self._path or ":memory:", timeout=busy_s, isolation_level=None, check_same_thread=False
        )
        try:
            self._use_write_ahead_log(connection, busy_s)
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute("PRAGMA secure_delete = ON")
            with write_transaction(connection):
                if not self._is_made(connection):
                    for statement in _statements(self._format.schema):
                        connection.execute(statement)
                    connection.execute(f"PRAGMA application_id = {self._format.application}")
                    connection.execute(f"PRAGMA user_version = {self._format.version}")
                for statement in _statements(self._format.additions):
                    connection.execute(statement)
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        self._opened = self._place()

    def close(self) -> None:
        """Close the file, if it is open."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _use_write_ahead_log(self, connection: sqlite3.Connection, busy_s: float) -> None:
        """Switch the log on. It retries, because processes that start together block each other, without a wait."""
        deadline = time.monotonic() + busy_s
        while True:
            try:
                with read_transaction(connection):
                    self._is_made(connection)  # before anything is changed
                connection.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)

    def _is_made(self, connection: sqlite3.Connection) -> bool:
        """True if the tables exist, false for an empty file. Raises _WrongFile for any other."""
        application = connection.execute("PRAGMA application_id").fetchone()[0]
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if (application, version) == (self._format.application, self._format.version):
            return True
        if connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchone():
            raise _WrongFile(f"{self.name} was made by {self._format.maker(application)}; name another file")
        return False


@contextmanager
def write_transaction(connection: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    """Open a transaction during which no other process writes."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield connection
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # some errors have ended it already
            connection.execute("ROLLBACK")
        raise


@contextmanager
def read_transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Open a transaction in which all reads see one state of the file."""
    connection.execute("BEGIN")
    try:
        yield
    finally:
        connection.execute("ROLLBACK")


def _statements(script: str) -> Iterator[str]:
    """Return the statements one by one, because `executescript` would end the transaction."""
    statement = ""
    for line in script.splitlines():
        statement += line + "\n"
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
