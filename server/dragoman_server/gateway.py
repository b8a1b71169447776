"""Objects that live as long as the application: settings, the ways to upstreams, the stores."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager

from dragoman import PROTOCOLS
from dragoman.codec import ProtocolSpec, UpstreamSpec
from dragoman_server.accounts.balances import Balances
from dragoman_server.accounts.limits import ClientLimits
from dragoman_server.accounts.stores.base import AccountStore
from dragoman_server.accounts.stores.memory import MemoryAccountStore
from dragoman_server.accounts.stores.resilient import ResilientStore
from dragoman_server.client_address import ClientAddresses
from dragoman_server.extras import missing_extra
from dragoman_server.log import RequestRecord, log_request
from dragoman_server.models.catalog import ModelCatalog
from dragoman_server.proxying.account_pool import AccountPool
from dragoman_server.responses.reasoning import ReasoningStore
from dragoman_server.responses.service import StoredResponseService
from dragoman_server.responses.stores.base import ResponseStore, ResponseStoreLimits
from dragoman_server.responses.stores.memory import MemoryResponseStore
from dragoman_server.settings import (
    SIMULATOR,
    AccountSettings,
    ServerSettings,
    Settings,
    UpstreamSettings,
)
from dragoman_server.simulator import SimulatedUpstream
from dragoman_server.telemetry.requests import Telemetry
from dragoman_server.tool_grammar import grammar_checker
from dragoman_server.upstream.client import UpstreamClient, origin_of
from dragoman_server.upstream.sender import UpstreamSender


class Gateway:
    """The application's long-lived objects.

    settings: as loaded.
    protocols: those that are served, by name.
    upstreams: those of the protocols that upstreams speak.
    client: sends requests to upstreams.
    simulator: takes its place for the built-in models.
    responses: stores responses.
    accounts: the health of upstream accounts, and all counters.
    balances: the money that accounts have left.
    pool: chooses among accounts.
    limits: of client keys.
    reasoning_store: reasoning for clients that do not send it back, None where nothing is stored.
    catalog: the names of models.
    client_addresses: finds where requests come from.
    telemetry: the metrics and the traces.
    check_input: checks what models write for tools with a grammar, None where nothing is checked.
    ready: true while requests can be served.
    """

    def __init__(
        self,
        settings: Settings,
        client: UpstreamClient | None = None,
        protocols: Mapping[str, ProtocolSpec] = PROTOCOLS,
        accounts: AccountStore | None = None,
    ) -> None:
        self.settings = settings
        self.protocols = protocols
        self.upstreams = {name: spec for name, spec in protocols.items() if isinstance(spec, UpstreamSpec)}
        for upstream in settings.upstreams:
            unknown = [name for name in upstream.protocols if name not in self.upstreams]
            if unknown:
                raise ValueError(
                    f"upstream {upstream.name} speaks {', '.join(unknown)}, which is not among this gateway's protocols"
                )
        self.client = client or UpstreamClient(
            expects_tls=_expects_tls(settings), expects_proxies=_expects_proxies(settings)
        )
        self.simulator = SimulatedUpstream()
        self.catalog = ModelCatalog(settings, self.sender_for, self._usable_accounts, self.upstreams)
        self.responses = StoredResponseService(_response_store(settings.server))
        self.accounts = accounts or make_account_store(settings.server)
        self.balances = Balances(settings, self.sender_for, self.upstreams)
        self.pool = AccountPool(settings, self.accounts, balances=self.balances)
        self.limits = ClientLimits(settings, self.accounts)
        self.client_addresses = ClientAddresses(settings.server.trusted_proxies)
        self.telemetry = Telemetry(settings, self.catalog.listed)
        max_bytes = settings.server.reasoning_store_bytes
        self.reasoning_store = ReasoningStore(max_bytes) if max_bytes else None
        self.check_input = grammar_checker() if settings.server.check_grammars else None
        self.ready = False

    def sender_for(self, upstream: str) -> UpstreamSender:
        """Return what sends requests to the upstream of this name."""
        return self.simulator if upstream == SIMULATOR else self.client

    def _usable_accounts(self, upstream: UpstreamSettings) -> list[AccountSettings]:
        """Return the accounts with which the models of an upstream can be listed."""
        health, now = self.accounts.health(), self.pool.clock()
        return [
            account
            for account in self.settings.accounts_of(upstream)
            if account.id not in health or health[account.id].usable(now)
        ]

    def request_ended(self, record: RequestRecord) -> None:
        """Write a request's line, and count it. Its record is complete."""
        log_request(record)
        self.telemetry.count(record)

    def scrape(self) -> Callable[[str], tuple[bytes, str]] | None:
        """Return what makes the text of /metrics, None where that is off. See Metrics.exposition()."""
        metrics = self.telemetry.metrics
        if metrics is None:
            return None
        accounts = [
            account.id
            for upstream in self.settings.upstreams
            for account in self.settings.accounts_of(upstream)
        ]
        store = self.accounts
        works = not (isinstance(store, ResilientStore) and store.is_open)
        metrics.set_states(accounts, store.health(), self.pool.clock(), store_up=works)
        return metrics.exposition

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Serve requests inside of this block: connections and stores are open."""
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.telemetry.running())
            await stack.enter_async_context(self.client)
            if self.responses.store is not None:
                await stack.enter_async_context(self.responses.store.running())
            await stack.enter_async_context(self.accounts.running())
            await stack.enter_async_context(self.catalog.running())
            await stack.enter_async_context(self.balances.running())
            self.ready = True
            try:
                yield
            finally:
                self.ready = False


def _expects_tls(settings: Settings) -> bool:
    """True if an upstream is reached over TLS."""
    return any(origin_of(upstream.base_url)[0].startswith("https:") for upstream in settings.upstreams)


def _expects_proxies(settings: Settings) -> bool:
    """True if an upstream is reached by a proxy."""
    proxies = [upstream.proxy for upstream in settings.upstreams] + [each.proxy for each in settings.accounts]
    return any(proxy is not None for proxy in proxies)


def make_account_store(server: ServerSettings) -> AccountStore:
    """Return the store that the settings name. It never raises and never waits for long.

    Raises ValueError if a setting or an extra is missing.
    """
    # Each store is imported where it is configured, because it loads a database's client.
    if server.account_store == "sqlite":
        from dragoman_server.accounts.stores.sqlite import SQLiteAccountStore

        if server.account_store_path is None:
            raise ValueError("account_store_path is needed for the account store sqlite")
        return ResilientStore(SQLiteAccountStore(server.account_store_path), MemoryAccountStore())
    if server.account_store == "valkey":
        if server.account_store_url is None:
            raise ValueError("account_store_url is needed for the account store valkey")
        if (missing := missing_extra("valkey")) is not None:
            raise ValueError(f"the account store valkey {missing}")
        from dragoman_server.accounts.stores.valkey import ValkeyAccountStore

        return ResilientStore(ValkeyAccountStore(server.account_store_url.reveal()), MemoryAccountStore())
    return MemoryAccountStore()


def _response_store(server: ServerSettings) -> ResponseStore | None:
    limits = ResponseStoreLimits(server.response_store_max_bytes, int(server.response_store_max_age_s))
    if server.response_store == "memory":
        return MemoryResponseStore(limits)
    if server.response_store == "sqlite":
        if server.response_store_path is None:
            raise ValueError("response_store_path is needed for the response store sqlite")
        from dragoman_server.responses.stores.sqlite import SQLiteResponseStore

        return SQLiteResponseStore(server.response_store_path, limits)
    return None
