"""The choice of the store of accounts, and the URL of its server."""

from contextlib import nullcontext
from pathlib import Path

import pytest
from valkey_server import valkey_server

from dragoman_server.accounts.stores.memory import MemoryAccountStore
from dragoman_server.accounts.stores.operations import Change
from dragoman_server.accounts.stores.resilient import ResilientStore
from dragoman_server.accounts.stores.valkey_url import ValkeyURL, parse_valkey_url
from dragoman_server.gateway import Gateway, make_account_store
from dragoman_server.settings import ServerSettings, Settings
from dragoman_server.settings.secret import Secret

URLS = {
    "valkey://host": ValkeyURL("host"),
    "valkey://:hunter2@host:1/2": ValkeyURL("host", 1, password=Secret("hunter2"), db=2),
    "VALKEYS://user:hunter%40%2F2@host": ValkeyURL(
        "host", tls=True, username="user", password=Secret("hunter@/2")
    ),
    "redis://[::1]:7/?db=5": ValkeyURL("::1", 7, db=5),
    "rediss://host/3": ValkeyURL("host", tls=True, db=3),
    " unix:///run/s?db=1\n": ValkeyURL(path="/run/s", db=1),
    "unix://user:hunter2@/run/s": ValkeyURL(path="/run/s", username="user", password=Secret("hunter2")),
}


def test_a_server_is_named_by_its_url() -> None:
    for url in URLS:
        assert parse_valkey_url(url) == URLS[url], url
        assert "hunter" not in repr(parse_valkey_url(url)), url


def test_the_log_names_the_place_of_the_store() -> None:
    urls = ("valkey://:hunter2@host/1", "unix:///run/s")
    assert [parse_valkey_url(url).where for url in urls] == ["host:6379", "/run/s"]


INVALID_URLS = [
    "",
    "hunter2",
    "http://:hunter2@host",
    "valkey://",
    "unix://",
    "valkey://:hunter2@host:port",
    "valkey://[hunter2",
    "valkey://host/hunter2",
    "valkey://host/-1",
    "valkey://host?password=hunter2",
    "valkey://host?hunter2",
]


def test_an_invalid_url_is_an_error_that_does_not_show_it() -> None:
    for url in INVALID_URLS:
        error = None
        try:
            parse_valkey_url(url)
        except ValueError as caught:
            error = caught
        assert error is not None, url
        assert "is not of the form valkey://host:port/db" in str(error), url
        assert "hunter2" not in str(error), url
        assert error.__suppress_context__, url


def test_a_gateway_keeps_its_accounts_in_memory_by_default() -> None:
    assert isinstance(Gateway(Settings()).accounts, MemoryAccountStore)


@pytest.mark.parametrize(
    ("store", "missing"), [("sqlite", "account_store_path"), ("valkey", "account_store_url")]
)
def test_a_store_needs_a_place(store: str, missing: str) -> None:
    with pytest.raises(ValueError, match=f"{missing} is needed"):
        make_account_store(ServerSettings(account_store=store))


def test_the_extra_may_be_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dragoman_server.platform.extras.find_spec", lambda name: None)
    server = ServerSettings(account_store="valkey", account_store_url=Secret("valkey://host"))
    with pytest.raises(ValueError, match=r"pip install .*\[valkey\]"):
        make_account_store(server)


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
@pytest.mark.parametrize("store", ["sqlite", "valkey"])
async def test_gateways_share_the_state_of_accounts(store: str, tmp_path: Path) -> None:
    with valkey_server() if store == "valkey" else nullcontext() as server:
        settings = Settings(
            server=ServerSettings(
                account_store=store,
                account_store_path=str(tmp_path / "accounts.db"),
                account_store_url=Secret("" if server is None else server.url),
            )
        )
        one, other = Gateway(settings), Gateway(settings)
        assert isinstance(one.accounts, ResilientStore)
        async with one.open():
            await one.accounts.apply(Change("up/a", lambda health: health.after_disabling("by hand")))
            async with other.open():
                assert other.accounts.health()["up/a"].disabled == "by hand"
