"""What serves requests by one configuration: settings, the ways to upstreams, the stores.

A reload makes another `Gateway` for the requests that begin from then on. Connections and stores pass from one to the
next, and so does the knowledge about upstreams that stay.
"""

import math
import os
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager

from starlette.types import Scope

from dragoman import PROTOCOLS
from dragoman.codec import ProtocolSpec, UpstreamSpec
from dragoman_server.accounts.balances import Balances
from dragoman_server.accounts.budget_alerts import BudgetAlerts
from dragoman_server.accounts.key_findings import key_findings
from dragoman_server.accounts.limits import ClientLimits
from dragoman_server.accounts.stored_keys import StoredKeys, all_keys
from dragoman_server.accounts.stores.base import AccountStore
from dragoman_server.accounts.stores.memory import MemoryAccountStore
from dragoman_server.accounts.stores.resilient import ResilientStore
from dragoman_server.capabilities.resolve import capabilities_for
from dragoman_server.log import RequestRecord, log_request
from dragoman_server.models.catalog import ModelCatalog
from dragoman_server.platform.extras import missing_extra
from dragoman_server.proxying.account_pool import AccountPool, proxy_id
from dragoman_server.proxying.client_request import SCOPE_PATH
from dragoman_server.proxying.refused_members import RefusedMembers
from dragoman_server.proxying.tool_grammar import grammar_checker
from dragoman_server.responses.background import BackgroundResponses
from dragoman_server.responses.reasoning import ReasoningStore
from dragoman_server.responses.service import StoredResponseService
from dragoman_server.responses.stores.base import ResponseStore, ResponseStoreLimits
from dragoman_server.responses.stores.memory import MemoryResponseStore
from dragoman_server.settings import SIMULATOR, AccountSettings, ServerSettings, Settings, UpstreamSettings
from dragoman_server.settings.secret import Secret
from dragoman_server.simulator import SimulatedUpstream
from dragoman_server.telemetry.metrics import MAX_LABEL_SETS
from dragoman_server.telemetry.requests import Telemetry
from dragoman_server.upstream.client import UpstreamClient, origin_of
from dragoman_server.upstream.sender import UpstreamSender
from dragoman_server.usage.recorder import UsageRecorder
from dragoman_server.usage.stores.base import UsageStore
from dragoman_server.usage.stores.sqlite import SQLiteUsageStore
from dragoman_server.wire.client_address import ClientAddresses


class Gateway:
    """The objects that requests share. None is replaced while a request uses it.

    Raises ValueError if the settings cannot be used.

    Args:
        client, protocols, accounts: made by this class if they are not passed.
        previous: the gateway before a reload, whose connections and stores this one uses.

    Attributes:
        settings: As loaded.
        protocols: The served ones, by name.
        upstreams: The specs of the protocols that upstreams speak.
        client: Sends requests to upstreams.
        simulator: Takes its place for the built-in models.
        responses: Stores responses.
        background: Makes responses in the background.
        accounts: The health of upstream accounts, and all counters.
        balances: The money that accounts have left.
        pool: Chooses among accounts.
        limits: The limits of client keys.
        budget_alerts: Says when a budget is nearly spent.
        stored_keys: The client keys in the account store, None where there are none.
        usage: What requests have used.
        reasoning_store: Reasoning for clients that do not send it back, None where nothing is stored.
        refused_members: What upstreams have refused by name.
        catalog: The names of models.
        telemetry: The metrics, the traces and the feed of events.
        input_checker: Makes what checks a response's calls of tools with a grammar, None where nothing is checked.
    """

    def __init__(
        self,
        settings: Settings,
        client: UpstreamClient | None = None,
        protocols: Mapping[str, ProtocolSpec] = PROTOCOLS,
        accounts: AccountStore | None = None,
        *,
        previous: "Gateway | None" = None,
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
        self.catalog = ModelCatalog(settings, self.sender_for, self._usable_accounts, self.upstreams)
        self.balances = Balances(settings, self.sender_for, self.upstreams)
        if previous is None:
            self.client = client or UpstreamClient(
                expects_tls=_expects_tls(settings),
                expects_proxies=bool(_proxies(settings)),
                certfile=settings.server.upstream_certfile,
            )
            self.simulator = SimulatedUpstream()
            writer = next(filter(None, (each.stored_responses for each in PROTOCOLS.values())))
            self.responses = StoredResponseService(_response_store(settings.server), writer)
            self.background = BackgroundResponses(self.responses)
            self.accounts = accounts or make_account_store(settings.server)
            max_bytes = settings.server.reasoning_store_bytes
            self.reasoning_store = ReasoningStore(max_bytes) if max_bytes else None
            self.budget_alerts = BudgetAlerts(self.accounts, self.client)
            self.stored_keys = StoredKeys(self.accounts) if settings.server.stored_keys else None
            self.refused_members = RefusedMembers()
            self.telemetry = Telemetry(settings, self.catalog.listed)
            max_age_s = settings.server.usage_max_age_s
            self.usage = UsageRecorder(
                make_usage_store(settings.server), self.telemetry.known.label, max_age_s
            )
        else:
            self.client, self.simulator = previous.client, previous.simulator
            self.client.load_certificate()
            self.responses, self.background = previous.responses, previous.background
            self.accounts = previous.accounts
            self.reasoning_store, self.usage = previous.reasoning_store, previous.usage
            self.refused_members, self.stored_keys = previous.refused_members, previous.stored_keys
            self.budget_alerts = previous.budget_alerts
            self.catalog.take_over(previous.catalog)
            self.telemetry = previous.telemetry
            self.balances.take_over(previous.balances)
        self.pool = AccountPool(settings, self.accounts, balances=self.balances)
        self.limits = ClientLimits(settings, self.accounts, alerts=self.budget_alerts)
        self._client_addresses = ClientAddresses(settings.server.trusted_proxies)
        self.input_checker = grammar_checker() if settings.server.check_grammars else None

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

    def request_began(self, scope: Scope, protocol: str) -> RequestRecord:
        """Return the record of a request. Call request_ended() with it."""
        return RequestRecord(
            id=os.urandom(16).hex(),
            protocol=protocol,
            method=scope.get("method"),  # a WebSocket has none
            path=scope.get(SCOPE_PATH, scope["path"]),
            client_address=self._client_addresses.address_of(scope),
        )

    def request_ended(self, record: RequestRecord) -> None:
        """Write a request's line, and count it. Its record is complete."""
        self.telemetry.count(record, log_request(record))

    async def scrape(self) -> Callable[[str], tuple[bytes, str]] | None:
        """Return what makes the text of /metrics, None where that is off. See Metrics.exposition()."""
        metrics = self.telemetry.metrics
        if metrics is None:
            return None
        accounts = [account.id for account in self.settings.all_accounts()]
        store = self.accounts
        works = not (isinstance(store, ResilientStore) and store.is_open)
        holders = [*self.settings.groups, *all_keys(self.settings, self.stored_keys)]
        with_budget = [holder for holder in holders if holder.budget][:MAX_LABEL_SETS]
        spent = await self.limits.spent(with_budget)
        budgets = {
            (holder.kind, holder.name): amount / holder.budget
            for holder, amount in zip(with_budget, spent, strict=True)
            if amount is not None and holder.budget
        }
        metrics.set_states(accounts, store.health(), self.pool.clock(), store_up=works, budgets=budgets)
        return metrics.exposition

    def key_warnings(self) -> list[str]:
        """Return what has requests with client keys refused although the configuration is correct, a line each."""
        stored = self.stored_keys
        keys = [*self.settings.client_keys, *(stored.keys.values() if stored else ())]
        found = key_findings(self.settings, keys, all_known=stored is None or stored.is_known)
        return [str(finding) for finding in found]

    def unusable_upstreams(self) -> dict[str, str]:
        """Return the upstreams that no request can be sent to now, each with the reason."""
        health, now = self.accounts.health(), self.pool.clock()
        found = {}
        for upstream in self.settings.upstreams:
            available_at = math.inf
            for account in self.settings.accounts_of(upstream):
                states = [health[id] for id in (account.id, proxy_id(account, upstream)) if id in health]
                if all(state.disabled is None for state in states):
                    available_at = min(
                        available_at, max((state.cooldown_until for state in states), default=0.0)
                    )
            if available_at == math.inf:
                found[upstream.name] = "every account is disabled"
            elif available_at > now:
                seconds = math.ceil(available_at - now)
                found[upstream.name] = (
                    f"every account is cooling down or disabled; the first is available in {seconds} s"
                )
        return found

    async def close_unused_connections(self, others: Iterable["Gateway"]) -> None:
        """Close connections that neither this gateway nor the others need."""
        upstreams, proxies = set[str](), set[str]()
        for gateway in (self, *others):
            settings = gateway.settings
            upstreams |= {upstream.base_url for upstream in settings.upstreams}
            proxies |= {proxy.reveal() for proxy in _proxies(settings)}
        await self.client.keep_only(upstreams, proxies)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Connections and stores are open inside of this block, for this gateway and those that follow it."""
        for upstream in self.settings.upstreams:
            for protocol in upstream.protocols:  # what the first request would wait for
                capabilities_for(self.settings, upstream, "", self.upstreams[protocol])
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.telemetry.running())
            await stack.enter_async_context(self.client)
            await stack.enter_async_context(self.client.running())
            if self.responses.store is not None:
                await stack.enter_async_context(self.responses.store.running())
            await stack.enter_async_context(self.accounts.running())
            await stack.enter_async_context(self.usage.running())
            await stack.enter_async_context(self.budget_alerts.running())
            if self.stored_keys is not None:
                await stack.enter_async_context(self.stored_keys.running())
            if self.responses.store is not None:
                await stack.enter_async_context(self.background.running())
            yield

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Serve requests inside of this block, which is inside of open()."""
        self.telemetry.configure(self.settings, self.catalog.listed)
        async with self.catalog.running(), self.balances.running():
            yield


def _expects_tls(settings: Settings) -> bool:
    """True if an upstream is reached over TLS."""
    return any(origin_of(upstream.base_url)[0].startswith("https:") for upstream in settings.upstreams)


def _proxies(settings: Settings) -> list[Secret]:
    """Return the configured proxies by which upstreams are reached."""
    proxies = [upstream.proxy for upstream in settings.upstreams] + [each.proxy for each in settings.accounts]
    return [proxy for proxy in proxies if proxy is not None]


def _place_of(server: ServerSettings, store: str) -> str | None:
    """Return the file or the URL that the settings name for a store, None for one that needs neither.

    Raises ValueError if a setting or an extra is missing.
    """
    kind, what = getattr(server, store), store.replace("_", " ")
    setting = {"sqlite": f"{store}_path", "valkey": f"{store}_url"}.get(kind)
    if setting is None:
        return None
    place: str | Secret | None = getattr(server, setting)
    if place is None:
        raise ValueError(f"{setting} is needed for the {what} {kind}")
    if kind == "valkey" and (missing := missing_extra("valkey")) is not None:
        raise ValueError(f"the {what} valkey {missing}")
    return place.reveal() if isinstance(place, Secret) else place


# Each store is imported where it is configured, because it loads a database's client.


def make_account_store(server: ServerSettings) -> AccountStore:
    """Return the store that the settings name. It never raises and never waits for long. Raises as _place_of()."""
    place = _place_of(server, "account_store")
    if place is None:
        return MemoryAccountStore()
    if server.account_store == "sqlite":
        from dragoman_server.accounts.stores.sqlite import SQLiteAccountStore

        return ResilientStore(SQLiteAccountStore(place), MemoryAccountStore())
    from dragoman_server.accounts.stores.valkey import ValkeyAccountStore

    return ResilientStore(ValkeyAccountStore(place), MemoryAccountStore())


def make_usage_store(server: ServerSettings) -> UsageStore:
    """Return the store that the settings name. Raises as _place_of()."""
    place = _place_of(server, "usage_store")
    if place is not None and server.usage_store == "valkey":
        from dragoman_server.usage.stores.valkey import ValkeyUsageStore

        return ValkeyUsageStore(place)
    return SQLiteUsageStore(place)


def _response_store(server: ServerSettings) -> ResponseStore | None:
    limits = ResponseStoreLimits(server.response_store_max_bytes, int(server.response_store_max_age_s))
    place = _place_of(server, "response_store")
    if place is None:
        return MemoryResponseStore(limits) if server.response_store == "memory" else None
    if server.response_store == "sqlite":
        from dragoman_server.responses.stores.sqlite import SQLiteResponseStore

        return SQLiteResponseStore(place, limits)
    from dragoman_server.responses.stores.valkey import ValkeyResponseStore

    return ValkeyResponseStore(place, limits)
