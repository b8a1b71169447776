"""Open a SQLite file of the gateway: private, and shared with other processes.

The file has a mark of its kind and version, so a file of another program, kind or version is never changed. A
write-ahead log lets processes read while one of them writes. Only the user who runs the gateway may read the file.
"""

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


class WrongFile(Exception):
    """The file was made by another program or version. `str()` of it names the file."""


@dataclass(frozen=True, slots=True)
class SQLiteFileFormat:
    """The kind of a file.

    what: its name for errors. application, version: the marks in the file. schema: SQL that makes the tables.
    """

    what: str
    application: int
    version: int
    schema: str


def open_sqlite_file(file_format: SQLiteFileFormat, path: str, busy_s: float) -> sqlite3.Connection:
    """Return a connection, for one thread at a time. Makes the file if it is missing.

    busy_s: how long a call waits for another process to finish its writing. Raises WrongFile, sqlite3.Error, OSError.
    """
    # SQLite would make it readable for all users whom the umask allows.
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    connection = sqlite3.connect(path, timeout=busy_s, isolation_level=None, check_same_thread=False)
    try:
        _use_write_ahead_log(file_format, connection, path, busy_s)
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA secure_delete = ON")
        with write_transaction(connection):
            if not _is_made(file_format, connection, path):
                _make(file_format, connection)
    except BaseException:
        connection.close()
        raise
    return connection


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


def _use_write_ahead_log(
    file_format: SQLiteFileFormat, connection: sqlite3.Connection, path: str, busy_s: float
) -> None:
    """Switch the log on. It retries, because processes that start together block each other, without a wait."""
    deadline = time.monotonic() + busy_s
    while True:
        try:
            with read_transaction(connection):
                _is_made(file_format, connection, path)  # before anything is changed
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def _is_made(file_format: SQLiteFileFormat, connection: sqlite3.Connection, path: str) -> bool:
    """True if the tables exist, false for an empty file. Raises WrongFile for any other."""
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if (application, version) == (file_format.application, file_format.version):
        return True
    if connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchone():
        what = "another version of Dragoman" if application == file_format.application else "another program"
        raise WrongFile(f"the {file_format.what} {path} was made by {what}; name another file")
    return False


def _make(file_format: SQLiteFileFormat, connection: sqlite3.Connection) -> None:
    for statement in _statements(file_format.schema):
        connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {file_format.application}")
    connection.execute(f"PRAGMA user_version = {file_format.version}")


def _statements(script: str) -> Iterator[str]:
    """Return the statements one by one, because `executescript` would end the transaction."""
    statement = ""
    for line in script.splitlines():
        statement += line + "\n"
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
