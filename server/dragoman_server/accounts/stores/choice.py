"""Which store of accounts the settings ask for."""

from dragoman_server.accounts.stores.base import AccountStore
from dragoman_server.accounts.stores.memory import MemoryAccounts
from dragoman_server.accounts.stores.resilient import Careful
from dragoman_server.config.valkey_url import EXTRA_IS_MISSING, valkey_available
from dragoman_server.settings import ServerSettings


def account_store_of(server: ServerSettings) -> AccountStore:
    """The store, which never raises and never waits for long. ValueError when something is missing for it."""
    if server.account_store == "sqlite":
        from dragoman_server.accounts.stores.sqlite import SQLiteAccounts

        if server.account_store_path is None:
            raise ValueError("account_store_path is needed for the account store sqlite")
        return Careful(SQLiteAccounts(server.account_store_path), MemoryAccounts())
    if server.account_store == "valkey":
        if server.account_store_url is None:
            raise ValueError("account_store_url is needed for the account store valkey")
        if not valkey_available():
            raise ValueError(f"the account store valkey {EXTRA_IS_MISSING}")
        from dragoman_server.accounts.stores.valkey import ValkeyAccounts

        return Careful(ValkeyAccounts(server.account_store_url.reveal()), MemoryAccounts())
    return MemoryAccounts()
