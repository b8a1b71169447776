"""What lives as long as the application: settings, the ways to upstreams, the stores."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager

from dragoman import PROTOCOLS
from dragoman.codec import ProtocolSpec, UpstreamSpec
from dragoman_server.accounts.balances import Balances
from dragoman_server.accounts.limits import ClientLimits
from dragoman_server.accounts.stores.base import AccountStore
from dragoman_server.accounts.stores.choice import make_account_store
from dragoman_server.keys import make_keyring
from dragoman_server.models.catalog import ModelCatalog
from dragoman_server.proxying.account_pool import AccountPool
from dragoman_server.responses.reasoning import ReasoningStore
from dragoman_server.responses.stores.base import ResponseStore, ResponseStoreLimits
from dragoman_server.responses.stores.memory import MemoryResponseStore
from dragoman_server.responses.stores.sqlite import SQLiteResponseStore
from dragoman_server.settings import (
    SIMULATOR,
    AccountSettings,
    ServerSettings,
    Settings,
    UpstreamSettings,
)
from dragoman_server.simulator import SimulatedUpstream
from dragoman_server.tool_grammar.check import grammar_checker
from dragoman_server.upstream.client import UpstreamClient
from dragoman_server.upstream.sender import UpstreamSender


class Gateway:
    """
    protocols: those that are served, by name. upstreams: those of them that upstreams speak.
    responses: where answers are kept, None for nowhere.
    keyring: who may come in.
    accounts: the health of upstream accounts, and all counters.
    balances: the money that accounts have left.
    pool: chooses among accounts.
    limits: what client keys may use.
    thoughts: reasoning for clients that do not send it back, None for none.
    catalog: the names of models.
    check_input: judges what models write for tools with a grammar, None where nobody does.
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
                    f"upstream {upstream.name} speaks {', '.join(unknown)}, which this gateway was not given"
                )
        self.client = client or UpstreamClient()
        self.simulator = SimulatedUpstream()
        self.catalog = ModelCatalog(settings, self.sender_for, self._usable_accounts, self.upstreams)
        self.responses = _response_store(settings.server)
        self.keyring = make_keyring(settings, protocols.values())
        self.accounts = accounts or make_account_store(settings.server)
        self.balances = Balances(settings, self.sender_for, self.upstreams)
        self.pool = AccountPool(settings, self.accounts, balances=self.balances)
        self.limits = ClientLimits(settings, self.accounts)
        kept = settings.server.reasoning_store_bytes
        self.reasoning_store = ReasoningStore(kept) if kept else None
        self.check_input = grammar_checker() if settings.server.check_grammars else None
        self.ready = False

    def sender_for(self, upstream: str) -> UpstreamSender:
        """Where requests to the upstream of this name go out."""
        return self.simulator if upstream == SIMULATOR else self.client

    def _usable_accounts(self, upstream: UpstreamSettings) -> list[AccountSettings]:
        """Those that may ask an upstream for its models."""
        health, now = self.accounts.health(), self.pool.clock()
        return [
            account
            for account in self.settings.accounts_of(upstream)
            if account.id not in health or health[account.id].usable(now)
        ]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """The time in which requests can be served: connections and stores are open in this block."""
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.client)
            if self.responses is not None:
                await stack.enter_async_context(self.responses)
            await stack.enter_async_context(self.accounts.running())
            await stack.enter_async_context(self.catalog.running())
            await stack.enter_async_context(self.balances.running())
            self.ready = True
            try:
                yield
            finally:
                self.ready = False


def _response_store(server: ServerSettings) -> ResponseStore | None:
    limits = ResponseStoreLimits(server.response_store_max_bytes, int(server.response_store_max_age_s))
    if server.response_store == "memory":
        return MemoryResponseStore(limits)
    if server.response_store == "sqlite":
        if server.response_store_path is None:
            raise ValueError("response_store_path is needed for the response store sqlite")
        return SQLiteResponseStore(server.response_store_path, limits)
    return None
