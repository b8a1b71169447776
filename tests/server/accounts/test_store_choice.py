"""The choice of the store of accounts, and the URL of its server."""

import json
from contextlib import nullcontext
from pathlib import Path

import pytest
import rows
from valkey_server import valkey_server

from dragoman_server.accounts.stores.memory import MemoryAccountStore
from dragoman_server.accounts.stores.operations import Change
from dragoman_server.accounts.stores.resilient import ResilientStore
from dragoman_server.gateway import Gateway, make_account_store
from dragoman_server.settings import ServerSettings, Settings
from dragoman_server.settings.secret import Secret
from dragoman_server.valkey.url import parse_valkey_url


def place(lines: list[str]) -> list[str]:
    url = json.loads(lines[0])
    try:
        found = parse_valkey_url(url)
    except ValueError as error:
        return [f"error: {error}"] if error.__suppress_context__ else ["the URL is shown"]
    password = found.password and found.password.reveal()
    return [
        f"{found.where}, TLS {found.tls}, database {found.db}, user {found.username}, password {password}"
    ]


def test_a_server_is_named_by_its_url() -> None:
    """An invalid one is not shown."""
    rows.check(Path(__file__).with_name("urls.txt"), place)
    assert "hunter2" not in repr(parse_valkey_url("valkey://:hunter2@host"))


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
