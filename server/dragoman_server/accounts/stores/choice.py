"""Which store of accounts the settings ask for."""

from dragoman_server.accounts.stores.base import AccountStore
from dragoman_server.accounts.stores.memory import MemoryAccountStore
from dragoman_server.accounts.stores.resilient import ResilientStore
from dragoman_server.config.valkey_url import VALKEY_EXTRA_MISSING, valkey_available
from dragoman_server.settings import ServerSettings


def make_account_store(server: ServerSettings) -> AccountStore:
    """The store, which never raises and never waits for long. ValueError when something is missing for it."""
    if server.account_store == "sqlite":
        from dragoman_server.accounts.stores.sqlite import SQLiteAccountStore

        if server.account_store_path is None:
            raise ValueError("account_store_path is needed for the account store sqlite")
        return ResilientStore(SQLiteAccountStore(server.account_store_path), MemoryAccountStore())
    if server.account_store == "valkey":
        if server.account_store_url is None:
            raise ValueError("account_store_url is needed for the account store valkey")
        if not valkey_available():
            raise ValueError(f"the account store valkey {VALKEY_EXTRA_MISSING}")
        from dragoman_server.accounts.stores.valkey import ValkeyAccountStore

        return ResilientStore(ValkeyAccountStore(server.account_store_url.reveal()), MemoryAccountStore())
    return MemoryAccountStore()
