"""The search for secrets in outputs of tests finds them: see _support/canaries.py and conftest.py."""

import logging
import sqlite3
from contextlib import closing
from pathlib import Path

import anyio
import canaries
import pytest
from command.process import Server
from gateway.fakes import FakeClient

from dragoman_server.settings.secret import Secret

CANARY = Secret("canary-of-the-search")


def found() -> set[str]:
    """Where."""
    return {each.partition(":")[0] for each in canaries.found()}


@pytest.mark.promise("S3")
def test_a_record_of_the_log_is_searched() -> None:
    logging.getLogger("dragoman.x").warning("no: %s", CANARY)
    assert found() == set()
    logging.getLogger("dragoman.x").warning("no: %s", CANARY.reveal())
    assert found() == {"log"}
    logging.getLogger("dragoman.x").warning("no", extra={"dragoman": {"error": CANARY.reveal()}})
    assert found() == {"log"}
    logging.getLogger("x").error("no", exc_info=ValueError(CANARY.reveal()))
    assert found() == {"log"}


@pytest.mark.promise("S3")
def test_what_a_client_gets_is_searched() -> None:
    canary = CANARY.reveal().encode()

    async def send() -> None:
        client = FakeClient()
        await client.send({"type": "http.response.start", "status": 200, "headers": [(b"x", canary)]})
        assert found() == {"headers"}
        await client.send({"type": "http.response.body", "body": b"{" + canary})
        assert found() == {"body"}

    anyio.run(send)


@pytest.mark.promise("S3")
def test_files_of_stores_are_searched(tmp_path: Path) -> None:
    (tmp_path / "dragoman.toml").write_text(CANARY.reveal())
    canaries.look_at_stores(tmp_path)
    assert found() == set()
    with closing(sqlite3.connect(tmp_path / "store")) as store:
        store.execute("create table a (b)")
        store.execute("insert into a values (?)", (CANARY.reveal(),))
        store.commit()
    canaries.look_at_stores(tmp_path)
    assert found() == {"store"}
    (tmp_path / "store").unlink()


@pytest.mark.promise("S3")
def test_the_output_of_a_process_is_searched(tmp_path: Path) -> None:
    """For secrets in its environment and its file."""

    class Leaky(Server):
        COMMAND = (
            "-c",
            "import os, sys; print(os.environ['KEY'], open(sys.argv[1]).read(), file=sys.stderr)",
        )

    file = tmp_path / "x.toml"
    file.write_text('key = "file-canary"')
    with Leaky(str(file), env={"KEY": "variable-canary"}) as process:
        process.wait()
    assert sorted(canaries.found()) == ["output: file-canary", "output: variable-canary"]


@pytest.mark.promise("S3")
def test_a_text_without_a_secret_is_unchanged() -> None:
    Secret("an ordinary value")
    Secret("secret")
    canaries.look("x", "an ordinary value, secret")
    assert found() == set()
