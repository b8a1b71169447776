"""What can be set: frozen dataclasses whose annotations are the one table of all keys.

Each field carries a `Key`: its kind, its range, its help text. The TOML reader, the environment
(`DRAGOMAN_` and the field's name), the command line and `dragoman config show` are all made from these
tables, so a new setting is one new field. Where values come from is config.py's matter; this module reads
nothing.
"""

from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from typing import Annotated, Any, get_origin, get_type_hints

from dragoman import UPSTREAMS, Target
from dragoman._ir.effort import EFFORTS
from dragoman.codec import UpstreamSpec
from dragoman_server.accounts.error_actions import Verdict
from dragoman_server.accounts.policy import MAX_ATTEMPTS, Selection
from dragoman_server.settings.capabilities import Capabilities, ModelCapabilities
from dragoman_server.settings.fields import Key, Kind
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
ANY_VERSION = "auto"
NEWEST_VERSION = "2026-10-21"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """The `[server]` table. Times are seconds, sizes are bytes."""

    host: Annotated[str, Key(Kind.HOST, "address to bind")] = "127.0.0.1"
    port: Annotated[int, _integer("port to bind; 0 takes a free one", 0, 65_535)] = 8080
    backend: Annotated[str, _choice("event loop", "asyncio", "uvloop", "trio")] = "asyncio"
    workers: Annotated[int, _integer("number of processes", 1, 256)] = 1
    certfile: Annotated[str | None, Key(Kind.PATH, "TLS certificate chain, PEM")] = None
    keyfile: Annotated[str | None, Key(Kind.PATH, "TLS private key, PEM")] = None
    http2: Annotated[
        bool,
        Key(Kind.SWITCH, "offer HTTP/2 in the TLS handshake, and accept it with prior knowledge without TLS"),
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
            "time for which a client may read nothing of its answer before its request is cancelled",
            0.1,
            _DAY,
        ),
    ] = 300.0
    keepalive_s: Annotated[
        float, _seconds("silence before a stream gets a heartbeat; 0 sends none", 0, 3600)
    ] = 10.0
    allowed_hosts: Annotated[
        tuple[str, ...],
        Key(
            Kind.HOSTS,
            "hosts that requests may name, beside loopback ones; * matches any text; empty with client keys: all",
        ),
    ] = ()
    cors_origins: Annotated[
        tuple[str, ...],
        Key(
            Kind.ORIGINS,
            "origins of web pages that may use the gateway; loopback: those of this machine, on any port",
        ),
    ] = (LOOPBACK_ORIGINS,)
    max_body_bytes: Annotated[int, _integer("largest request body", 1024, MAX_BODY_BYTES)] = MAX_BODY_BYTES
    header_timeout_s: Annotated[
        float,
        _seconds("time from the first byte of a request to the end of its headers, else 408", 0.1, _DAY),
    ] = 30.0
    body_timeout_s: Annotated[
        float, _seconds("silence within a request body before it is refused with 408", 0.1, _DAY)
    ] = 30.0
    drain_s: Annotated[float, _seconds("time that open requests get at shutdown", 0, _DAY)] = 30.0
    loss_policy: Annotated[str, _choice("what to do when a translation loses something", *LOSS_POLICIES)] = (
        "record"
    )
    default_max_tokens: Annotated[
        int, _integer("max_tokens for Messages upstreams when the client gave none", 1, 10_000_000)
    ] = 32_000
    default_model: Annotated[
        str | None,
        Key(
            Kind.TEXT,
            "the model of requests that may leave it out (the simple API): a name as clients send it",
        ),
    ] = None
    model_names: Annotated[
        str,
        _choice(
            "what GET /v1/models lists: full is upstream/model; plain is the model's own name where that leads there, "
            "else the full one",
            *MODEL_NAMES,
        ),
    ] = BOTH
    model_list_ttl_s: Annotated[
        float, _seconds("age at which an upstream's list of models is asked for again", 1, 30 * _DAY)
    ] = 300.0
    response_store: Annotated[
        str,
        _choice("where answers to Responses clients are kept, for previous_response_id", *RESPONSE_STORES),
    ] = "off"
    response_store_path: Annotated[
        str | None, Key(Kind.PATH, "the file of the response store sqlite; it is made when it is not there")
    ] = None
    response_store_max_bytes: Annotated[
        int, _integer("what the response store holds at most; the oldest go first", 2**20, 2**40)
    ] = 256 * 2**20
    # As long as OpenAI keeps them.
    response_store_max_age_s: Annotated[
        float, _seconds("how long an answer is kept in the response store", 1, 10 * 365 * _DAY)
    ] = 30.0 * _DAY
    account_store: Annotated[
        str,
        _choice(
            "where health of accounts, limits and budgets are kept: in the process, on the machine, for all gateways",
            *ACCOUNT_STORES,
        ),
    ] = "memory"
    account_store_path: Annotated[
        str | None, Key(Kind.PATH, "the file of the account store sqlite; it is made when it is not there")
    ] = None
    account_store_url: Annotated[
        Secret | None,
        Key(
            Kind.SECRET,
            "the server of the account store valkey: valkey://user:password@host:port/db, valkeys:// with TLS, unix:///path",
        ),
    ] = None
    max_attempts: Annotated[
        int,
        _integer("accounts that one request is sent with, one after the other, until one answers", 1, 100),
    ] = MAX_ATTEMPTS
    patience_s: Annotated[
        float, _seconds("time that a request waits for an account when all of them rest", 0, 3600)
    ] = 0.0
    secret: Annotated[
        Secret | None,
        Key(
            Kind.SECRET,
            "signs sealed reasoning and hashes client keys; at least 32 characters, the same on every gateway",
            low=32,
        ),
    ] = None
    admin_key: Annotated[
        Secret | None,
        Key(
            Kind.SECRET,
            "who sends it may see and change the accounts below /admin; at least 32 characters; unset: nobody may",
            low=32,
        ),
    ] = None
    allow_public_without_keys: Annotated[
        bool,
        Key(
            Kind.SWITCH, "start on a public address without client keys: whoever connects may use everything"
        ),
    ] = False
    check_grammars: Annotated[
        bool,
        Key(
            Kind.SWITCH,
            "check what the model writes for free-text tools with a grammar that the upstream cannot enforce; "
            "needs dragoman[grammar]",
        ),
    ] = True
    reasoning_store_bytes: Annotated[
        int,
        _integer("reasoning kept for Chat clients that do not send it back; 0 keeps none", 0, 2**34),
    ] = 64 * 2**20
    simulator: Annotated[
        bool | None,
        Key(
            Kind.SWITCH,
            "offer the built-in simulator as upstream sim; unset: it is offered, and listed while there is no other",
        ),
    ] = None
    log_level: Annotated[str, _choice("least severe log line", "debug", "info", "warning", "error")] = "info"
    log_format: Annotated[str, _choice("auto: text on a terminal, else json", "auto", "text", "json")] = (
        "auto"
    )

    @property
    def offers_simulator(self) -> bool:
        return self.simulator is not False

    @property
    def tls(self) -> bool:
        return self.certfile is not None and self.keyfile is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamSettings(Capabilities):
    """One `[[upstreams]]` table, with what is said of all the upstream's models.

    `protocols` are all that the upstream speaks natively: a client of one of these is relayed in its own.
    Clients of other protocols are translated to `protocol`.
    """

    name: Annotated[str, Key(Kind.NAME, "the name before the slash in upstream/model")]
    protocol: Annotated[
        str, _choice("the preferred protocol; may be left out beside protocols", *UPSTREAM_PROTOCOLS)
    ]
    base_url: Annotated[
        str, Key(Kind.URL, "what the vendor's own SDK takes: with /v1 for OpenAI's, without for Anthropic's")
    ]
    # Empty means: the preferred one alone. The loader always fills it in, and so does __post_init__.
    protocols: Annotated[
        tuple[str, ...], Key(Kind.CHOICES, "all protocols spoken natively", choices=UPSTREAM_PROTOCOLS)
    ] = ()
    api_key: Annotated[Secret | None, Key(Kind.SECRET, "the key, best as ${VARIABLE} or ${file:PATH}")] = None
    auth: Annotated[
        str,
        _choice(
            "how the key is sent; auto: x-api-key for Messages, else bearer", "auto", "bearer", "x-api-key"
        ),
    ] = "auto"
    headers: Annotated[Mapping[str, Secret], Key(Kind.HEADERS, "extra headers of every request")] = field(
        default_factory=dict
    )
    proxy: Annotated[Secret | None, Key(Kind.PROXY, "http, https or socks5 URL; may hold credentials")] = None
    models: Annotated[tuple[str, ...], Key(Kind.NAMES, "model names this upstream answers to")] = ()
    default_model: Annotated[
        str | None,
        Key(
            Kind.TEXT,
            "its model for claude-*, gpt-* and codex-* that it does not have; unset: its only model, where it has one",
        ),
    ] = None
    model_list: Annotated[
        bool, Key(Kind.SWITCH, "ask the upstream which models it has, for GET /v1/models")
    ] = True
    anthropic_version: Annotated[
        str,
        Key(
            Kind.TEXT,
            "anthropic-version of translated requests; auto: 2026-10-21, or 2023-06-01 where sampling settings need it",
        ),
    ] = ANY_VERSION
    # What it does for clients of its own protocol, which are relayed.
    stores_responses: Annotated[
        bool,
        Key(Kind.SWITCH, "keeps answers itself, for previous_response_id; else the gateway's store does"),
    ] = False
    counts_tokens: Annotated[
        bool, Key(Kind.SWITCH, "has an endpoint that counts input tokens; else the gateway estimates them")
    ] = False
    loss_policy: Annotated[str | None, _choice("instead of the server's", *LOSS_POLICIES)] = None
    selection: Annotated[
        str, _choice("which of the accounts is next", *(each.value for each in Selection))
    ] = Selection.LEAST_RECENTLY_USED.value
    sticky: Annotated[
        bool,
        Key(
            Kind.SWITCH,
            "a conversation stays with its account, for the sake of prompt caches and sealed reasoning",
        ),
    ] = True
    hedge_s: Annotated[
        float,
        _seconds(
            "silence after which a second account is asked too, and the first answer counts; 0: never",
            0,
            3600,
        ),
    ] = 0.0
    connect_s: Annotated[float, _seconds("time to connect", 0.001, 3600)] = 10.0
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

    name: Annotated[str, Key(Kind.NAME, "what the log calls the key's owner")]
    hash: Annotated[str, Key(Kind.HASH, "what `dragoman keys add` printed for it")]
    loss_policy: Annotated[
        str | None, _choice("instead of the upstream's and the server's", *LOSS_POLICIES)
    ] = None
    may_loosen: Annotated[
        bool, Key(Kind.SWITCH, "dragoman-loss-policy: record counts, even where losses are refused otherwise")
    ] = False
    models: Annotated[
        tuple[str, ...],
        Key(Kind.NAMES, "models that it may use, by the names that clients send, * for any text; unset: all"),
    ] = ()
    requests_per_minute: Annotated[int | None, _integer("requests that it may send, steadily", 1, 10**6)] = (
        None
    )
    tokens_per_minute: Annotated[
        int | None, _integer("tokens, of requests and answers, that it may use, steadily", 1, 10**10)
    ] = None
    budget: Annotated[
        float | None, _dollars("what it may spend in a budget_period, by the [[prices]]", 10**9)
    ] = None
    budget_period: Annotated[
        str, _choice("when a budget starts again, in UTC; total: never", *BUDGET_PERIODS)
    ] = "month"


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """One `[[prices]]` table: US dollars for a million tokens."""

    model: Annotated[
        str,
        Key(
            Kind.TEXT,
            "a name that clients send, `upstream/model`, or the upstream's own name; * for any text",
        ),
    ]
    input: Annotated[float, _dollars("a million input tokens", 10**6)]
    output: Annotated[float, _dollars("a million output tokens", 10**6)]
    cached_input: Annotated[
        float | None, _dollars("a million input tokens from a prompt cache; unset: as input", 10**6)
    ] = None
    cache_write: Annotated[
        float | None, _dollars("a million input tokens written to a prompt cache; unset: as input", 10**6)
    ] = None


# The account of an upstream without `[[accounts]]`.
DEFAULT_ACCOUNT = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountSettings:
    """One `[[accounts]]` table. An upstream without any has one, `default`, with its own api_key and proxy."""

    upstream: Annotated[str, Key(Kind.NAME, "whose account it is")]
    name: Annotated[
        str, Key(Kind.NAME, "what the log and the admin pages call it, behind the upstream's name")
    ]
    api_key: Annotated[Secret | None, Key(Kind.SECRET, "the key, best as ${VARIABLE} or ${file:PATH}")] = None
    proxy: Annotated[Secret | None, Key(Kind.PROXY, "instead of the upstream's")] = None
    weight: Annotated[int, _integer("its share under the selection weighted", 1, 1000)] = 1
    requests_per_minute: Annotated[int | None, _integer("requests that it may send, steadily", 1, 10**6)] = (
        None
    )
    tokens_per_minute: Annotated[int | None, _integer("tokens that it may use, steadily", 1, 10**10)] = None
    most_at_once: Annotated[int | None, _integer("requests at the same time", 1, 10**6)] = None

    @property
    def id(self) -> str:
        """Its name among all accounts."""
        return f"{self.upstream}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleSettings:
    """One `[[rules]]` table: what a failure means. All its conditions must hold; the first rule that fits counts."""

    verdict: Annotated[
        str,
        _choice(
            "answer: tell the client; next: try another account; cool: and let this one rest; "
            "disable: and take it out of use; trouble: and rest when it happens often",
            *(each.value for each in Verdict),
        ),
    ]
    upstream: Annotated[str | None, Key(Kind.NAME, "the upstream that it is about; unset: all")] = None
    statuses: Annotated[tuple[int, ...], Key(Kind.STATUSES, "HTTP statuses")] = ()
    codes: Annotated[tuple[str, ...], Key(Kind.NAMES, "`code` or `type` of the error")] = ()
    words: Annotated[tuple[str, ...], Key(Kind.NAMES, "any of them in its message, in whatever case")] = ()


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
    opens_seals=True,
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
    capabilities: tuple[ModelCapabilities, ...] = ()
    client_keys: tuple[ClientKey, ...] = ()
    prices: tuple[Price, ...] = ()
    accounts: tuple[AccountSettings, ...] = ()
    rules: tuple[RuleSettings, ...] = ()
    proxies: tuple[Secret, ...] = ()
    targets: dict[tuple[str, str, str], Target] = field(
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


def keys_of(cls: type[Any]) -> dict[str, Key]:
    """The table of keys of a settings class, in order. A field that is no `Annotated` is nobody's to set."""
    hints: dict[str, Any] = get_type_hints(cls, include_extras=True)
    keys = {}
    for each in fields(cls):
        if get_origin(hints[each.name]) is not Annotated:
            continue
        key: Key = hints[each.name].__metadata__[0]
        made = each.default is MISSING  # by a factory: it is empty
        default = key.default if made or each.default is None else each.default
        required = made and each.default_factory is MISSING
        keys[each.name] = replace(key, name=each.name, default=default, required=required)
    return keys


def _own_first(cls: type[Capabilities]) -> dict[str, Key]:
    """dataclasses put what is inherited first, but people look for the name first."""
    keys = keys_of(cls)
    return {**{name: key for name, key in keys.items() if name not in CAPABILITY_KEYS}, **CAPABILITY_KEYS}


def upstream_keys(protocols: Iterable[str]) -> dict[str, Key]:
    """Return UPSTREAM_KEYS with these protocols to choose from."""
    choices = tuple(protocols)
    named = {name: replace(UPSTREAM_KEYS[name], choices=choices) for name in ("protocol", "protocols")}
    return {**UPSTREAM_KEYS, **named}


SERVER_KEYS = keys_of(ServerSettings)
CAPABILITY_KEYS = keys_of(Capabilities)
MODEL_KEYS = _own_first(ModelCapabilities)
UPSTREAM_KEYS = _own_first(UpstreamSettings)
CLIENT_KEY_KEYS = keys_of(ClientKey)
PRICE_KEYS = keys_of(Price)
ACCOUNT_KEYS = keys_of(AccountSettings)
RULE_KEYS = keys_of(RuleSettings)
