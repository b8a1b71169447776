"""Settings of the gateway and its clients: the tables `[server]`, `[[client_keys]]` and `[[prices]]`, and the whole."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from dragoman import Capabilities
from dragoman_server.accounts.policy import MAX_ATTEMPTS
from dragoman_server.settings.capabilities import ModelCapabilitySettings
from dragoman_server.settings.fields import (
    DAY_S,
    SettingKind,
    SettingSpec,
    choice,
    dollars,
    integer,
    keys_of,
    seconds,
)
from dragoman_server.settings.secret import Mask, Secret, secrets_in, url_secrets
from dragoman_server.settings.upstreams import (
    DEFAULT_ACCOUNT,
    LOSS_POLICIES,
    SIMULATOR,
    SIMULATOR_UPSTREAM,
    AccountSettings,
    RuleSettings,
    UpstreamSettings,
)

ENV_PREFIX = "DRAGOMAN_"

# For `cors_origins`: http and https, of localhost and loopback addresses, on any port.
LOOPBACK_ORIGINS = "loopback"

BUDGET_PERIODS = ("day", "month", "total")
RESPONSE_STORES = ("off", "memory", "sqlite")
ACCOUNT_STORES = ("memory", "sqlite", "valkey")
# How models of upstreams are listed: see `model_names`.
FULL, PLAIN, BOTH = MODEL_NAMES = ("full", "plain", "both")
# The core reads no larger document.
MAX_BODY_BYTES = 64 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """The `[server]` table. Times are seconds, sizes are bytes."""

    host: Annotated[str, SettingSpec(SettingKind.HOST, "address to bind")] = "127.0.0.1"
    port: Annotated[int, integer("port to bind; 0 chooses a free one", 0, 65_535)] = 8080
    backend: Annotated[str, choice("event loop", "asyncio", "uvloop", "trio")] = "asyncio"
    workers: Annotated[int, integer("number of worker processes", 1, 256)] = 1
    certfile: Annotated[str | None, SettingSpec(SettingKind.PATH, "TLS certificate chain, PEM")] = None
    keyfile: Annotated[str | None, SettingSpec(SettingKind.PATH, "TLS private key, PEM")] = None
    http2: Annotated[
        bool,
        SettingSpec(
            SettingKind.SWITCH,
            "offer HTTP/2 in the TLS handshake, and accept it with prior knowledge without TLS",
        ),
    ] = True
    max_connections: Annotated[
        int,
        integer(
            "largest number of client connections per process; 0: half of the files that it may open, at most 10000",
            0,
            1_000_000,
        ),
    ] = 0
    send_timeout_s: Annotated[
        float,
        seconds(
            "how long a client may read nothing of its response before its request is cancelled",
            0.1,
            DAY_S,
        ),
    ] = 300.0
    keepalive_s: Annotated[
        float, seconds("silence after which a stream gets a heartbeat; 0: never", 0, 3600)
    ] = 10.0
    allowed_hosts: Annotated[
        tuple[str, ...],
        SettingSpec(
            SettingKind.HOSTS,
            "hosts that requests may name, besides loopback names; * matches any text; empty with client keys: all",
        ),
    ] = ()
    cors_origins: Annotated[
        tuple[str, ...],
        SettingSpec(
            SettingKind.ORIGINS,
            "origins of web pages that may use the gateway; loopback: pages of this machine, on any port",
        ),
    ] = (LOOPBACK_ORIGINS,)
    max_body_bytes: Annotated[int, integer("largest request body", 1024, MAX_BODY_BYTES)] = MAX_BODY_BYTES
    header_timeout_s: Annotated[
        float,
        seconds(
            "longest time from the first byte of a request to the end of its headers, before a 408",
            0.1,
            DAY_S,
        ),
    ] = 30.0
    body_timeout_s: Annotated[
        float, seconds("longest silence within a request body, before a 408", 0.1, DAY_S)
    ] = 30.0
    drain_s: Annotated[float, seconds("time that open requests have to finish at shutdown", 0, DAY_S)] = 30.0
    loss_policy: Annotated[str, choice("what to do when a translation loses something", *LOSS_POLICIES)] = (
        "record"
    )
    default_max_tokens: Annotated[
        int, integer("max_tokens for Messages upstreams when the client sends none", 1, 10_000_000)
    ] = 32_000
    default_model: Annotated[
        str | None,
        SettingSpec(
            SettingKind.TEXT,
            "model of requests that name none (the simple API), as clients would write it",
        ),
    ] = None
    model_names: Annotated[
        str,
        choice(
            "names that GET /v1/models lists; full: upstream/model; plain: the model's own name if that is routed "
            "to it, else the full one",
            *MODEL_NAMES,
        ),
    ] = BOTH
    model_list_ttl_s: Annotated[
        float, seconds("age at which an upstream's list of models is fetched again", 1, 30 * DAY_S)
    ] = 300.0
    response_store: Annotated[
        str,
        choice("where responses to Responses clients are stored, for previous_response_id", *RESPONSE_STORES),
    ] = "off"
    response_store_path: Annotated[
        str | None,
        SettingSpec(SettingKind.PATH, "file of the response store sqlite, created if missing"),
    ] = None
    response_store_max_bytes: Annotated[
        int,
        integer("largest size of the response store; the oldest responses are deleted first", 2**20, 2**40),
    ] = 256 * 2**20
    # As long as OpenAI stores them.
    response_store_max_age_s: Annotated[
        float, seconds("how long a response stays in the response store", 1, 10 * 365 * DAY_S)
    ] = 30.0 * DAY_S
    account_store: Annotated[
        str,
        choice(
            "where account health, limits and budgets are stored: in the process, on this machine, for all gateways",
            *ACCOUNT_STORES,
        ),
    ] = "memory"
    account_store_path: Annotated[
        str | None,
        SettingSpec(SettingKind.PATH, "file of the account store sqlite, created if missing"),
    ] = None
    account_store_url: Annotated[
        Secret | None,
        SettingSpec(
            SettingKind.SECRET,
            "server of the account store valkey: valkey://user:password@host:port/db, valkeys:// with TLS, unix:///path",
        ),
    ] = None
    max_attempts: Annotated[
        int,
        integer(
            "how many times one request is sent, with one account after another, until one succeeds", 1, 100
        ),
    ] = MAX_ATTEMPTS
    account_wait_s: Annotated[
        float, seconds("how long a request waits for an account when all of them are cooling down", 0, 3600)
    ] = 0.0
    secret: Annotated[
        Secret | None,
        SettingSpec(
            SettingKind.SECRET,
            "signs wrapped reasoning and hashes client keys; at least 32 characters, the same on every gateway",
            low=32,
        ),
    ] = None
    admin_key: Annotated[
        Secret | None,
        SettingSpec(
            SettingKind.SECRET,
            "the key for /admin, which shows and changes accounts; at least 32 characters; unset: /admin is off",
            low=32,
        ),
    ] = None
    allow_public_without_keys: Annotated[
        bool,
        SettingSpec(
            SettingKind.SWITCH,
            "start on a public address without client keys; anybody who can connect may then use all upstreams",
        ),
    ] = False
    check_grammars: Annotated[
        bool,
        SettingSpec(
            SettingKind.SWITCH,
            "check what models write for free-text tools against the tool's grammar where the upstream does not; "
            "needs dragoman[grammar]",
        ),
    ] = True
    reasoning_store_bytes: Annotated[
        int,
        integer("memory for the reasoning of Chat clients that do not send it back; 0 stores none", 0, 2**34),
    ] = 64 * 2**20
    simulator: Annotated[
        bool | None,
        SettingSpec(
            SettingKind.SWITCH,
            "offer the built-in simulator as upstream sim; unset: yes, but listed only if there is no other upstream",
        ),
    ] = None
    log_level: Annotated[
        str, choice("least severe level that is logged", "debug", "info", "warning", "error")
    ] = "info"
    log_format: Annotated[
        str, choice("form of log lines; auto: text on a terminal, else json", "auto", "text", "json")
    ] = "auto"

    @property
    def offers_simulator(self) -> bool:
        return self.simulator is not False

    @property
    def tls(self) -> bool:
        return self.certfile is not None and self.keyfile is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientKey:
    """One `[[client_keys]]` table. It has only the hash of the key."""

    name: Annotated[str, SettingSpec(SettingKind.NAME, "name of the key's owner in the log")]
    hash: Annotated[str, SettingSpec(SettingKind.HASH, "hash of the key, as `dragoman keys add` prints it")]
    loss_policy: Annotated[
        str | None, choice("overrides the upstream's and the server's", *LOSS_POLICIES)
    ] = None
    may_loosen: Annotated[
        bool,
        SettingSpec(
            SettingKind.SWITCH, "may send dragoman-loss-policy: record even where losses are refused"
        ),
    ] = False
    models: Annotated[
        tuple[str, ...],
        SettingSpec(
            SettingKind.NAMES,
            "models that it may use, by the names that clients send; * matches any text; unset: all",
        ),
    ] = ()
    requests_per_minute: Annotated[int | None, integer("largest number of requests a minute", 1, 10**6)] = (
        None
    )
    tokens_per_minute: Annotated[
        int | None, integer("largest number of tokens a minute, of requests and responses", 1, 10**10)
    ] = None
    budget: Annotated[
        float | None, dollars("most that it may spend in a budget_period, by the [[prices]]", 10**9)
    ] = None
    budget_period: Annotated[
        str, choice("when the budget starts again, in UTC; total: never", *BUDGET_PERIODS)
    ] = "month"


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """One `[[prices]]` table: US dollars for a million tokens."""

    model: Annotated[
        str,
        SettingSpec(
            SettingKind.TEXT,
            "name that clients send, `upstream/model`, or the upstream's own name; * matches any text",
        ),
    ]
    input: Annotated[float, dollars("price of a million input tokens", 10**6)]
    output: Annotated[float, dollars("price of a million output tokens", 10**6)]
    cached_input: Annotated[
        float | None, dollars("price of a million input tokens from a prompt cache; unset: as input", 10**6)
    ] = None
    cache_write: Annotated[
        float | None,
        dollars("price of a million input tokens written to a prompt cache; unset: as input", 10**6),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything that is configured, checked.

    models: for each name that clients send, the `upstream/model` that it means, or several, best first.
    proxies: those of the environment, because their URLs may contain credentials to mask.
    resolved_capabilities: what `capabilities.resolve` has returned so far, by upstream, model and protocol.
    """

    server: ServerSettings = field(default_factory=ServerSettings)
    upstreams: tuple[UpstreamSettings, ...] = ()
    models: Mapping[str, str | tuple[str, ...]] = field(default_factory=dict)
    capabilities: tuple[ModelCapabilitySettings, ...] = ()
    client_keys: tuple[ClientKey, ...] = ()
    prices: tuple[Price, ...] = ()
    accounts: tuple[AccountSettings, ...] = ()
    rules: tuple[RuleSettings, ...] = ()
    proxies: tuple[Secret, ...] = ()
    resolved_capabilities: dict[tuple[str, str, str], Capabilities] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    _mask: Mask | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def mask(self) -> Mask:
        """The mask of all secrets in these settings."""
        if self._mask is None:
            values = [secret.reveal() for secret in secrets_in(self)]
            # Settings that are made in code may have credentials in a base URL.
            values += [part for upstream in self.upstreams for part in url_secrets(upstream.base_url)]
            # The key of a server that needs none is often set to the server's name.
            public = {each.name for each in self.upstreams} | {each.name for each in self.accounts}
            object.__setattr__(self, "_mask", Mask(values, public))
        assert self._mask is not None
        return self._mask

    def upstream(self, name: str) -> UpstreamSettings | None:
        """Return the upstream of this name; for `sim` the description of the simulator, if that is offered."""
        for upstream in self.upstreams:
            if upstream.name == name:
                return upstream
        return SIMULATOR_UPSTREAM if name == SIMULATOR and self.server.offers_simulator else None

    @property
    def lists_simulator(self) -> bool:
        """True if the simulator is listed for users: it was switched on, or there is no other upstream."""
        wanted = self.server.simulator
        return not self.upstreams if wanted is None else wanted

    def accounts_of(self, upstream: UpstreamSettings) -> tuple[AccountSettings, ...]:
        """Return the accounts of an upstream: at least one."""
        configured = tuple(account for account in self.accounts if account.upstream == upstream.name)
        return configured or (
            AccountSettings(upstream=upstream.name, name=DEFAULT_ACCOUNT, api_key=upstream.api_key),
        )


SERVER_KEYS = keys_of(ServerSettings)
CLIENT_KEY_KEYS = keys_of(ClientKey)
PRICE_KEYS = keys_of(Price)
