"""A SQLite file that is ours, private, and shared with other processes.

Strategy: the file is marked with what made it, so a file of another program, another kind or another version is left
alone. A write-ahead log lets processes read while one of them writes. Only the user who runs the gateway may read it.
"""

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


class WrongFile(Exception):
    """The file was made by something else. `str()` of it names the file."""


@dataclass(frozen=True, slots=True)
class FileKind:
    """what: the file in words, for errors. application, version: how it is told apart from others. schema: SQL."""

    what: str
    application: int
    version: int
    schema: str


def open_file(kind: FileKind, path: str, busy_s: float) -> sqlite3.Connection:
    """A connection, for one thread at a time; the file is made when it is not there.

    busy_s: how long a call waits for another process to finish its writing. Raises WrongFile, sqlite3.Error, OSError.
    """
    # SQLite would make it readable for everybody whom the umask lets.
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    connection = sqlite3.connect(path, timeout=busy_s, isolation_level=None, check_same_thread=False)
    try:
        _use_write_ahead_log(kind, connection, path, busy_s)
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA secure_delete = ON")
        with writing(connection):
            if not _is_made(kind, connection, path):
                _make(kind, connection)
    except BaseException:
        connection.close()
        raise
    return connection


@contextmanager
def writing(connection: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    """A transaction that no other process writes beside."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield connection
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # some errors have ended it already
            connection.execute("ROLLBACK")
        raise


@contextmanager
def _reading(connection: sqlite3.Connection) -> Iterator[None]:
    """One state of the file for several reads, whatever another process does between them."""
    connection.execute("BEGIN")
    try:
        yield
    finally:
        connection.execute("ROLLBACK")


def _use_write_ahead_log(kind: FileKind, connection: sqlite3.Connection, path: str, busy_s: float) -> None:
    """Processes that start together are in each other's way here, and SQLite does not wait for this."""
    deadline = time.monotonic() + busy_s
    while True:
        try:
            with _reading(connection):
                _is_made(kind, connection, path)  # before anything is changed
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def _is_made(kind: FileKind, connection: sqlite3.Connection, path: str) -> bool:
    """Whether the tables are there; when not, the file is empty. Raises WrongFile."""
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if (application, version) == (kind.application, kind.version):
        return True
    if connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchone():
        what = "another version of Dragoman" if application == kind.application else "another program"
        raise WrongFile(f"the {kind.what} {path} was made by {what}; name another file")
    return False


def _make(kind: FileKind, connection: sqlite3.Connection) -> None:
    for statement in _statements(kind.schema):
        connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {kind.application}")
    connection.execute(f"PRAGMA user_version = {kind.version}")


def _statements(script: str) -> Iterator[str]:
    """One by one, for `executescript` would end the transaction."""
    statement = ""
    for line in script.splitlines():
        statement += line + "\n"
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
