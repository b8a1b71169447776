"""What the SQLite files of all stores have in common: who may read them, and what they are no file of."""

import os
import sqlite3
import stat
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import pytest

from dragoman_server.accounts.stores.memory import MemoryAccountStore
from dragoman_server.accounts.stores.resilient import ResilientStore
from dragoman_server.accounts.stores.sqlite import SQLiteAccountStore
from dragoman_server.responses.stores.base import ResponseStoreLimits
from dragoman_server.responses.stores.sqlite import SQLiteResponseStore
from dragoman_server.usage.stores.sqlite import SQLiteUsageStore

STORES: dict[str, Callable[[str], Any]] = {
    "accounts": lambda path: ResilientStore(SQLiteAccountStore(path), MemoryAccountStore()),
    "responses": lambda path: SQLiteResponseStore(path, ResponseStoreLimits(1_000_000, 3600)),
    "usage": SQLiteUsageStore,
}
each_store = pytest.mark.parametrize("name", STORES)


def use(name: str, path: Path, look: Callable[[], None] = lambda: None) -> None:
    async def run() -> None:
        async with STORES[name](str(path)).running():
            look()

    anyio.run(run)


def refuses(name: str, path: Path, message: str) -> None:
    """Check that a store does not use the file, and leaves it as it is."""
    before, what = path.read_bytes(), name.removesuffix("s")
    with pytest.raises(Exception, match=f"the {what} store {path}.*{message}") as caught:
        use(name, path)
    assert type(caught.value).__name__ == f"{what.title()}StoreError"
    assert path.read_bytes() == before


@each_store
def test_only_the_user_may_read_the_file(name: str, tmp_path: Path) -> None:
    def look() -> None:
        assert len(list(tmp_path.iterdir())) == 3, "the database, its log and the log's index"
        assert {stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()} == {0o600}

    before = os.umask(0)
    try:
        use(name, tmp_path / "store.db", look)
    finally:
        os.umask(before)


@each_store
def test_a_file_of_another_program_or_version_is_refused(name: str, tmp_path: Path) -> None:
    for statement, maker in (
        ("CREATE TABLE users (name)", "another program"),
        ("PRAGMA user_version = 99", "another version of Dragoman"),
    ):
        path = tmp_path / f"{maker}.db"
        if "version" in maker:
            use(name, path)
        with closing(sqlite3.connect(path)) as connection:
            connection.execute(statement)
        refuses(name, path, f"was made by {maker}")


@each_store
def test_what_is_no_database_is_refused(name: str, tmp_path: Path) -> None:
    letter = tmp_path / "letter"
    letter.write_text("this is a letter, not a database\n" * 100)
    refuses(name, letter, "file is not a database")
    with pytest.raises(Exception, match=r"Not a directory|File exists"):
        use(name, letter / "store.db")


@each_store
def test_a_file_that_another_process_has_locked_cannot_be_opened(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"dragoman_server.{name}.stores.sqlite._BUSY_S", 0.05)
    with closing(sqlite3.connect(tmp_path / "store.db", isolation_level=None)) as holder:
        holder.execute("BEGIN EXCLUSIVE")
        refuses(name, tmp_path / "store.db", "locked")
