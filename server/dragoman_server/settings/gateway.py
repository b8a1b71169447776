"""What can be set: frozen dataclasses whose annotations are the one table of all keys.

Each field carries a `SettingSpec`: its kind, its range, its help text. The TOML reader, the environment
(`DRAGOMAN_` and the field's name), the command line and `dragoman config show` are all made from these
tables, so a new setting is one new field. Where values come from is config.py's matter; this module reads
nothing.
"""

from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from typing import Annotated, Any, get_origin, get_type_hints

from dragoman import UPSTREAMS, Capabilities
from dragoman._ir.effort import EFFORTS
from dragoman.codec import UpstreamSpec
from dragoman_server.accounts.error_actions import ErrorAction
from dragoman_server.accounts.policy import MAX_ATTEMPTS, Selection
from dragoman_server.settings.capabilities import CapabilitySettings, ModelCapabilitySettings
from dragoman_server.settings.fields import SettingKind, SettingSpec
from dragoman_server.settings.fields import choice as _choice
from dragoman_server.settings.fields import dollars as _dollars
from dragoman_server.settings.fields import integer as _integer
from dragoman_server.settings.fields import seconds as _seconds
from dragoman_server.settings.secret import Mask, Secret, secrets_in, url_secrets

# The protocols that an upstream may speak, by the names that the core's registry gives them.
UPSTREAM_PROTOCOLS = tuple(UPSTREAMS)

ENV_PREFIX = "DRAGOMAN_"

# For `cors_origins`: http and https, of localhost and loopback addresses, on any port.
LOOPBACK_ORIGINS = "loopback"

LOSS_POLICIES = ("record", "refuse")
BUDGET_PERIODS = ("day", "month", "total")
RESPONSE_STORES = ("off", "memory", "sqlite")
ACCOUNT_STORES = ("memory", "sqlite", "valkey")
# How models of upstreams are listed: see `model_names`.
FULL, PLAIN, BOTH = MODEL_NAMES = ("full", "plain", "both")
_DAY = 86_400
# The core reads no larger document.
MAX_BODY_BYTES = 64 * 2**20

# The header that `anthropic_version` is about.
VERSION_HEADER = "anthropic-version"
# For `anthropic_version`: the newest, unless a request needs what only the older has.
AUTO_VERSION = "auto"
NEWEST_VERSION = "2026-10-21"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """The `[server]` table. Times are seconds, sizes are bytes."""

    host: Annotated[str, SettingSpec(SettingKind.HOST, "address to bind")] = "127.0.0.1"
    port: Annotated[int, _integer("port to bind; 0 takes a free one", 0, 65_535)] = 8080
    backend: Annotated[str, _choice("event loop", "asyncio", "uvloop", "trio")] = "asyncio"
    workers: Annotated[int, _integer("number of worker processes", 1, 256)] = 1
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
        _integer(
            "most client connections per process; 0: half of the files that it may open, at most 10000",
            0,
            1_000_000,
        ),
    ] = 0
    send_timeout_s: Annotated[
        float,
        _seconds(
            "how long a client may read nothing of its response before its request is cancelled",
            0.1,
            _DAY,
        ),
    ] = 300.0
    keepalive_s: Annotated[
        float, _seconds("silence after which a stream gets a heartbeat; 0: never", 0, 3600)
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
    max_body_bytes: Annotated[int, _integer("largest request body", 1024, MAX_BODY_BYTES)] = MAX_BODY_BYTES
    header_timeout_s: Annotated[
        float,
        _seconds(
            "longest time from the first byte of a request to the end of its headers; after it 408", 0.1, _DAY
        ),
    ] = 30.0
    body_timeout_s: Annotated[
        float, _seconds("longest silence within a request body; after it 408", 0.1, _DAY)
    ] = 30.0
    drain_s: Annotated[float, _seconds("time that open requests have to finish at shutdown", 0, _DAY)] = 30.0
    loss_policy: Annotated[str, _choice("what to do when a translation loses something", *LOSS_POLICIES)] = (
        "record"
    )
    default_max_tokens: Annotated[
        int, _integer("max_tokens for Messages upstreams when the client sends none", 1, 10_000_000)
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
        _choice(
            "names that GET /v1/models lists; full: upstream/model; plain: the model's own name where that leads to "
            "it, else the full one",
            *MODEL_NAMES,
        ),
    ] = BOTH
    model_list_ttl_s: Annotated[
        float, _seconds("age at which an upstream's list of models is fetched again", 1, 30 * _DAY)
    ] = 300.0
    response_store: Annotated[
        str,
        _choice("where responses to Responses clients are kept, for previous_response_id", *RESPONSE_STORES),
    ] = "off"
    response_store_path: Annotated[
        str | None,
        SettingSpec(SettingKind.PATH, "file of the response store sqlite, created if missing"),
    ] = None
    response_store_max_bytes: Annotated[
        int,
        _integer("largest size of the response store; the oldest responses are deleted first", 2**20, 2**40),
    ] = 256 * 2**20
    # As long as OpenAI keeps them.
    response_store_max_age_s: Annotated[
        float, _seconds("how long a response is kept in the response store", 1, 10 * 365 * _DAY)
    ] = 30.0 * _DAY
    account_store: Annotated[
        str,
        _choice(
            "where account health, limits and budgets are kept: in the process, on this machine, for all gateways",
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
        _integer(
            "how often one request is sent, with one account after the other, until one succeeds", 1, 100
        ),
    ] = MAX_ATTEMPTS
    account_wait_s: Annotated[
        float, _seconds("how long a request waits for an account when all of them are cooling down", 0, 3600)
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
            "start on a public address without client keys; everybody who can connect may then use all upstreams",
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
        _integer("memory for the reasoning of Chat clients that do not send it back; 0 keeps none", 0, 2**34),
    ] = 64 * 2**20
    simulator: Annotated[
        bool | None,
        SettingSpec(
            SettingKind.SWITCH,
            "offer the built-in simulator as upstream sim; unset: yes, but listed only if there is no other upstream",
        ),
    ] = None
    log_level: Annotated[
        str, _choice("least severe level that is logged", "debug", "info", "warning", "error")
    ] = "info"
    log_format: Annotated[
        str, _choice("form of log lines; auto: text on a terminal, else json", "auto", "text", "json")
    ] = "auto"

    @property
    def offers_simulator(self) -> bool:
        return self.simulator is not False

    @property
    def tls(self) -> bool:
        return self.certfile is not None and self.keyfile is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamSettings(CapabilitySettings):
    """One `[[upstreams]]` table, with what is said of all the upstream's models.

    `protocols` are all that the upstream speaks natively: a client of one of these is relayed in its own.
    Clients of other protocols are translated to `protocol`.
    """

    name: Annotated[str, SettingSpec(SettingKind.NAME, "its name, before the slash in upstream/model")]
    protocol: Annotated[
        str, _choice("the preferred protocol; may be left out if protocols is set", *UPSTREAM_PROTOCOLS)
    ]
    base_url: Annotated[
        str,
        SettingSpec(
            SettingKind.URL,
            "base URL as the vendor's own SDK takes it: with /v1 for OpenAI's protocols, without for Anthropic's",
        ),
    ]
    # Empty means: the preferred one alone. The loader always fills it in, and so does __post_init__.
    protocols: Annotated[
        tuple[str, ...],
        SettingSpec(SettingKind.CHOICES, "all protocols that it speaks", choices=UPSTREAM_PROTOCOLS),
    ] = ()
    api_key: Annotated[
        Secret | None, SettingSpec(SettingKind.SECRET, "the key, best as ${VARIABLE} or ${file:PATH}")
    ] = None
    auth: Annotated[
        str,
        _choice(
            "how the key is sent; auto: x-api-key for Messages, else bearer", "auto", "bearer", "x-api-key"
        ),
    ] = "auto"
    headers: Annotated[
        Mapping[str, Secret], SettingSpec(SettingKind.HEADERS, "extra headers for every request")
    ] = field(default_factory=dict)
    proxy: Annotated[
        Secret | None, SettingSpec(SettingKind.PROXY, "http, https or socks5 URL; may contain credentials")
    ] = None
    models: Annotated[
        tuple[str, ...], SettingSpec(SettingKind.NAMES, "model names that lead to this upstream")
    ] = ()
    default_model: Annotated[
        str | None,
        SettingSpec(
            SettingKind.TEXT,
            "its model for claude-*, gpt-* and codex-* names that it lacks; unset: its only model, if it has just one",
        ),
    ] = None
    model_list: Annotated[
        bool, SettingSpec(SettingKind.SWITCH, "fetch the upstream's list of models, for GET /v1/models")
    ] = True
    anthropic_version: Annotated[
        str,
        SettingSpec(
            SettingKind.TEXT,
            "anthropic-version of translated requests; auto: 2026-10-21, or 2023-06-01 where sampling settings need it",
        ),
    ] = AUTO_VERSION
    # What it does for clients of its own protocol, which are relayed.
    stores_responses: Annotated[
        bool,
        SettingSpec(
            SettingKind.SWITCH,
            "stores responses itself, for previous_response_id; else the gateway's store does",
        ),
    ] = False
    counts_tokens: Annotated[
        bool,
        SettingSpec(
            SettingKind.SWITCH, "has an endpoint that counts input tokens; else the gateway estimates them"
        ),
    ] = False
    loss_policy: Annotated[str | None, _choice("overrides the server's", *LOSS_POLICIES)] = None
    selection: Annotated[
        str, _choice("how the next account is chosen", *(each.value for each in Selection))
    ] = Selection.LEAST_RECENTLY_USED.value
    sticky: Annotated[
        bool,
        SettingSpec(
            SettingKind.SWITCH,
            "keep a conversation with one account, because of prompt caches and signed reasoning",
        ),
    ] = True
    hedge_s: Annotated[
        float,
        _seconds(
            "silence after which a second account gets the request too, and the first response counts; 0: never",
            0,
            3600,
        ),
    ] = 0.0
    connect_s: Annotated[float, _seconds("longest time to connect", 0.001, 3600)] = 10.0
    # Reasoning models think for minutes before the first byte; both vendors' SDKs wait 600 s as well.
    read_s: Annotated[float, _seconds("longest silence of the upstream", 0.001, _DAY)] = 600.0
    write_s: Annotated[float, _seconds("longest stall while sending", 0.001, _DAY)] = 60.0
    pool_s: Annotated[float, _seconds("longest wait for a free connection", 0.001, 3600)] = 30.0
    # What the environment says of an upstream that no table describes: by setting, the variable.
    variables: Mapping[str, str] = field(default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        if not self.protocols:
            object.__setattr__(self, "protocols", (self.protocol,))

    def base_url_for(self, protocol: str, specs: Mapping[str, UpstreamSpec] = UPSTREAMS) -> str:
        """Return the base URL as `protocol`'s own SDK takes it, without a slash at the end.

        OpenAI's SDK appends `/chat/completions` to a URL with `/v1`, Anthropic's appends `/v1/messages` to
        one without. An upstream that speaks both has one `base_url`, written for its preferred protocol.
        """
        base, written, wanted = self.base_url.rstrip("/"), specs[self.protocol], specs[protocol]
        if written.base_path == wanted.base_path:
            return base
        return base.removesuffix(written.base_path) + wanted.base_path


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientKey:
    """One `[[client_keys]]` table. The key itself is known to its owner alone."""

    name: Annotated[str, SettingSpec(SettingKind.NAME, "name of the key's owner in the log")]
    hash: Annotated[str, SettingSpec(SettingKind.HASH, "hash of the key, as `dragoman keys add` prints it")]
    loss_policy: Annotated[
        str | None, _choice("overrides the upstream's and the server's", *LOSS_POLICIES)
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
    requests_per_minute: Annotated[int | None, _integer("largest number of requests a minute", 1, 10**6)] = (
        None
    )
    tokens_per_minute: Annotated[
        int | None, _integer("largest number of tokens a minute, of requests and responses", 1, 10**10)
    ] = None
    budget: Annotated[
        float | None, _dollars("most that it may spend in a budget_period, by the [[prices]]", 10**9)
    ] = None
    budget_period: Annotated[
        str, _choice("when the budget starts again, in UTC; total: never", *BUDGET_PERIODS)
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
    input: Annotated[float, _dollars("price of a million input tokens", 10**6)]
    output: Annotated[float, _dollars("price of a million output tokens", 10**6)]
    cached_input: Annotated[
        float | None, _dollars("price of a million input tokens from a prompt cache; unset: as input", 10**6)
    ] = None
    cache_write: Annotated[
        float | None,
        _dollars("price of a million input tokens written to a prompt cache; unset: as input", 10**6),
    ] = None


# The account of an upstream without `[[accounts]]`.
DEFAULT_ACCOUNT = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountSettings:
    """One `[[accounts]]` table. An upstream without any has one, `default`, with its own api_key and proxy."""

    upstream: Annotated[str, SettingSpec(SettingKind.NAME, "upstream that the account belongs to")]
    name: Annotated[
        str,
        SettingSpec(SettingKind.NAME, "its name in the log and below /admin, after the upstream's"),
    ]
    api_key: Annotated[
        Secret | None, SettingSpec(SettingKind.SECRET, "the key, best as ${VARIABLE} or ${file:PATH}")
    ] = None
    proxy: Annotated[Secret | None, SettingSpec(SettingKind.PROXY, "overrides the upstream's")] = None
    weight: Annotated[int, _integer("its share with selection = weighted", 1, 1000)] = 1
    requests_per_minute: Annotated[int | None, _integer("largest number of requests a minute", 1, 10**6)] = (
        None
    )
    tokens_per_minute: Annotated[int | None, _integer("largest number of tokens a minute", 1, 10**10)] = None
    max_concurrent_requests: Annotated[
        int | None, _integer("largest number of requests at the same time", 1, 10**6)
    ] = None

    @property
    def id(self) -> str:
        """Its name among all accounts."""
        return f"{self.upstream}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleSettings:
    """One `[[rules]]` table: what a failure means. All its conditions must hold; the first rule that fits counts."""

    action: Annotated[
        str,
        _choice(
            "return_to_client: no other attempt; the others try the next account, and cool_down also leaves this one "
            "alone for a while, disable takes it out of use, retry_later cools it down if this happens often",
            *(each.value for each in ErrorAction),
        ),
    ]
    upstream: Annotated[
        str | None, SettingSpec(SettingKind.NAME, "upstream that the rule is about; unset: all")
    ] = None
    statuses: Annotated[tuple[int, ...], SettingSpec(SettingKind.STATUSES, "HTTP statuses of the error")] = ()
    codes: Annotated[tuple[str, ...], SettingSpec(SettingKind.NAMES, "`code` or `type` of the error")] = ()
    words: Annotated[
        tuple[str, ...],
        SettingSpec(SettingKind.NAMES, "texts of which one is in the error's message, in any case"),
    ] = ()


SIMULATOR = "sim"
# What the built-in upstream looks like to the router. It is no HTTP server: nothing connects to this URL. What is
# said here is what nobody says of a host that nobody knows.
SIMULATOR_UPSTREAM = UpstreamSettings(
    name=SIMULATOR,
    protocol=UPSTREAM_PROTOCOLS[0],
    protocols=UPSTREAM_PROTOCOLS,
    base_url="http://simulator.invalid/v1",
    max_tokens_field="max_completion_tokens",
    efforts=EFFORTS,
    refuses=(),
    unwraps_signatures=True,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All that is configured, checked.

    models: the name that clients send, and the `upstream/model` that it means, or several, best first.

    proxies: those of the environment, because their URLs may contain credentials to mask.
    targets: what `_targets` has worked out so far, by upstream, model and protocol.
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
        """Masks all secrets in a text."""
        if self._mask is None:
            values = [secret.reveal() for secret in secrets_in(self)]
            # Settings that are made in code may have credentials in a base URL.
            values += [part for upstream in self.upstreams for part in url_secrets(upstream.base_url)]
            # A server that needs no key is often given its own name as one.
            shown = {each.name for each in self.upstreams} | {each.name for each in self.accounts}
            object.__setattr__(self, "_mask", Mask(values, shown))
        assert self._mask is not None
        return self._mask

    def upstream(self, name: str) -> UpstreamSettings | None:
        """The upstream called `name`; for `sim` a description of the simulator, if that is on."""
        for upstream in self.upstreams:
            if upstream.name == name:
                return upstream
        return SIMULATOR_UPSTREAM if name == SIMULATOR and self.server.offers_simulator else None

    @property
    def lists_simulator(self) -> bool:
        """Whether people are shown the simulator: it was asked for, or there is nothing else."""
        asked = self.server.simulator
        return not self.upstreams if asked is None else asked

    def accounts_of(self, upstream: UpstreamSettings) -> tuple[AccountSettings, ...]:
        """The accounts of an upstream, of which there is at least one."""
        own = tuple(account for account in self.accounts if account.upstream == upstream.name)
        return own or (
            AccountSettings(upstream=upstream.name, name=DEFAULT_ACCOUNT, api_key=upstream.api_key),
        )


def keys_of(cls: type[Any]) -> dict[str, SettingSpec]:
    """The table of keys of a settings class, in order. A field that is no `Annotated` is nobody's to set."""
    hints: dict[str, Any] = get_type_hints(cls, include_extras=True)
    keys = {}
    for each in fields(cls):
        if get_origin(hints[each.name]) is not Annotated:
            continue
        key: SettingSpec = hints[each.name].__metadata__[0]
        made = each.default is MISSING  # by a factory: it is empty
        default = key.default if made or each.default is None else each.default
        required = made and each.default_factory is MISSING
        keys[each.name] = replace(key, name=each.name, default=default, required=required)
    return keys


def _own_first(cls: type[CapabilitySettings]) -> dict[str, SettingSpec]:
    """dataclasses put what is inherited first, but people look for the name first."""
    keys = keys_of(cls)
    return {**{name: key for name, key in keys.items() if name not in CAPABILITY_KEYS}, **CAPABILITY_KEYS}


def upstream_keys(protocols: Iterable[str]) -> dict[str, SettingSpec]:
    """Return UPSTREAM_KEYS with these protocols to choose from."""
    choices = tuple(protocols)
    named = {name: replace(UPSTREAM_KEYS[name], choices=choices) for name in ("protocol", "protocols")}
    return {**UPSTREAM_KEYS, **named}


SERVER_KEYS = keys_of(ServerSettings)
CAPABILITY_KEYS = keys_of(CapabilitySettings)
MODEL_KEYS = _own_first(ModelCapabilitySettings)
UPSTREAM_KEYS = _own_first(UpstreamSettings)
CLIENT_KEY_KEYS = keys_of(ClientKey)
PRICE_KEYS = keys_of(Price)
ACCOUNT_KEYS = keys_of(AccountSettings)
RULE_KEYS = keys_of(RuleSettings)
