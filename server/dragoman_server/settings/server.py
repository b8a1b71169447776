"""Settings of the gateway: the table `[server]`, and the whole."""

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Annotated, Any, TypeVar

from msgspec import Meta, Struct, field
from msgspec.structs import force_setattr, replace

from dragoman_server.policy.attempts import MAX_ATTEMPTS
from dragoman_server.settings.capabilities import ModelCapabilitySettings
from dragoman_server.settings.clients import AwsKey, ClientKey, Group
from dragoman_server.settings.fields import (
    DAY_S,
    RESTART,
    FilePath,
    Seconds,
    SettingKind,
    Wait,
)
from dragoman_server.settings.patterns import WILDCARD, PatternTable
from dragoman_server.settings.prices import Price
from dragoman_server.settings.problems import ValueOrigin
from dragoman_server.settings.secret import Mask, Secret, secrets_in, url_secrets
from dragoman_server.settings.upstreams import (
    LOSS_POLICIES,
    SIMULATOR,
    SIMULATOR_UPSTREAM,
    AccountSettings,
    RuleSettings,
    UpstreamSettings,
)

ENV_PREFIX = "DRAGOMAN_"
# A client's key, for `dragoman run` and for clients that take the name of a variable; the gateway does not read it.
KEY_VARIABLE = ENV_PREFIX + "KEY"

# For `cors_origins`: http and https, of localhost and loopback addresses, on any port.
LOOPBACK_ORIGINS = "loopback"

# How models of upstreams are listed: see `model_names`.
FULL, PLAIN, BOTH = MODEL_NAMES = ("full", "plain", "both")
# The core reads no larger document. The default, too: twice the 32 MB that Anthropic accepts
# (platform.claude.com/docs/en/api/errors, read 2026-11-22), for requests of other vendors. It may be so large because
# things are counted, see `dragoman._wire.limits`, and large bodies are handled off the loop.
MAX_BODY_BYTES = 64 * 2**20


Timeout = Annotated[Seconds, Meta(ge=0.1, le=DAY_S)]


# What a reload does not take away altogether, because a half-written file has none either.
REMOVABLE = ("client_keys", "upstreams")


class ServerSettings(Struct, frozen=True, kw_only=True):
    """The `[server]` table. Times are seconds, sizes are bytes.

    A new setting is a new field and nothing else (see the package); `make docs` puts it into the pages.
    """

    host: Annotated[str, SettingKind.HOST, RESTART, "address to bind"] = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65_535), RESTART, "port to bind; 0 chooses a free one"] = 8080
    backend: Annotated[str, ("asyncio", "uvloop", "trio"), RESTART, "event loop"] = "asyncio"
    workers: Annotated[int, Meta(ge=1, le=256), RESTART, "number of worker processes"] = 1
    certfile: Annotated[FilePath | None, "TLS certificate chain, PEM"] = None
    keyfile: Annotated[FilePath | None, "TLS private key, PEM"] = None
    upstream_certfile: Annotated[
        FilePath | None,
        RESTART,
        "client certificate with its chain and key, PEM, for upstreams that ask for one; a reload reads the file again",
    ] = None
    http2: Annotated[
        bool, "offer HTTP/2 in the TLS handshake, and accept it with prior knowledge without TLS"
    ] = True
    websocket: Annotated[
        bool, "serve Responses over WebSockets as well; false: refuse them (426), and clients go on over HTTP"
    ] = True
    max_connections: Annotated[
        int,
        Meta(ge=0, le=1_000_000),
        "maximum client connections per process; 0: half of its limit of open files, at most 10000",
    ] = 0
    send_timeout_s: Annotated[
        Timeout, "how long a client may read nothing of its response before its request is cancelled"
    ] = 300.0
    keepalive_s: Annotated[Wait, "silence after which a stream gets a heartbeat; 0: never"] = 10.0
    allowed_hosts: Annotated[
        tuple[str, ...],
        SettingKind.HOSTS,
        "hosts that requests may name, besides loopback names; * matches any text; empty with client keys: all",
    ] = ()
    cors_origins: Annotated[
        tuple[str, ...],
        SettingKind.ORIGINS,
        "origins of web pages that may use the gateway; loopback: pages of this machine, on any port",
    ] = (LOOPBACK_ORIGINS,)
    trusted_proxies: Annotated[
        tuple[str, ...],
        SettingKind.NETWORKS,
        "addresses and networks of proxies in front of the gateway, whose X-Forwarded-For has the client's address "
        "for the log",
    ] = ()
    max_body_bytes: Annotated[int, Meta(ge=1024, le=MAX_BODY_BYTES), "largest request body"] = MAX_BODY_BYTES
    header_timeout_s: Annotated[
        Timeout, "longest time from the first byte of a request to the end of its headers, before a 408"
    ] = 30.0
    body_timeout_s: Annotated[Timeout, "longest silence within a request body, before a 408"] = 30.0
    drain_delay_s: Annotated[
        Wait,
        "how long to keep serving after a stop signal while /readyz already reports draining, so that load balancers"
        " can react",
    ] = 0.0
    reload_may_remove: Annotated[
        tuple[str, ...],
        REMOVABLE,
        "what a reload may remove altogether; without this, a file that has lost all client keys or all upstreams is"
        " refused",
    ] = ()
    drain_s: Annotated[
        Seconds, Meta(ge=0, le=DAY_S), "time that open requests have to finish at shutdown"
    ] = 30.0
    loss_policy: Annotated[str, LOSS_POLICIES, "what to do when a translation loses something"] = "record"
    default_max_tokens: Annotated[
        int, Meta(ge=1, le=10_000_000), "max_tokens for Messages upstreams when the client sends none"
    ] = 32_000
    default_model: Annotated[
        str | None, "model of requests that name none (the simple API), as clients would write it"
    ] = None
    model_names: Annotated[
        str,
        MODEL_NAMES,
        "names that GET /v1/models lists; full: upstream/model; plain: the model's own name if that is routed "
        "to it, else the full one",
    ] = BOTH
    model_list_ttl_s: Annotated[
        Seconds, Meta(ge=1, le=30 * DAY_S), "age at which an upstream's list of models is fetched again"
    ] = 300.0
    record: Annotated[
        FilePath | None, "folder in which each request is recorded, both sides with all texts; unset: none is"
    ] = None
    record_texts: Annotated[bool, "record texts; off: an x for each letter"] = True
    record_max_files: Annotated[
        int, Meta(ge=1, le=1_000_000), "number of recordings that are kept, the newest"
    ] = 1000
    record_max_age_s: Annotated[
        Seconds, Meta(ge=1, le=3650 * DAY_S), "age at which recordings are removed"
    ] = 7 * DAY_S
    response_store: Annotated[
        str,
        ("off", "memory", "sqlite", "valkey"),
        RESTART,
        "where responses to Responses clients are stored, for previous_response_id and background",
    ] = "off"
    response_store_path: Annotated[
        FilePath | None, RESTART, "file of the response store sqlite, created if missing"
    ] = None
    response_store_url: Annotated[
        Secret | None, RESTART, "server of the response store valkey, as account_store_url"
    ] = None
    response_store_max_bytes: Annotated[
        int,
        Meta(ge=2**20, le=2**40),
        RESTART,
        "largest size of the response store; the oldest responses are deleted first",
    ] = 256 * 2**20
    # As long as OpenAI stores them.
    response_store_max_age_s: Annotated[
        Seconds, Meta(ge=1, le=10 * 365 * DAY_S), RESTART, "how long a response stays in the response store"
    ] = 30.0 * DAY_S
    background_timeout_s: Annotated[
        Timeout, "how long a response in the background may take, with a client or without one"
    ] = 3600.0
    max_background_responses: Annotated[
        int,
        Meta(ge=1, le=100_000),
        "responses that a process makes in the background at once; further requests get a 429",
    ] = 100
    account_store: Annotated[
        str,
        ("memory", "sqlite", "valkey"),
        RESTART,
        "where account health, limits and budgets are stored: in the process, on this machine, for all gateways",
    ] = "memory"
    account_store_path: Annotated[
        FilePath | None, RESTART, "file of the account store sqlite, created if missing"
    ] = None
    account_store_url: Annotated[
        Secret | None,
        RESTART,
        "server of the account store valkey: valkey://user:password@host:port/db, valkeys:// with TLS, unix:///path",
    ] = None
    stored_keys: Annotated[
        bool,
        RESTART,
        "also accept client keys that are made over HTTP and kept in the account store; every request then needs a key,"
        " even while there is none",
    ] = False
    usage_store: Annotated[
        str | None,
        ("memory", "sqlite", "valkey"),
        RESTART,
        "where what was used is stored: in the process, on this machine, for all gateways; unset: the commands have a"
        " file in the user's state directory, an application in code has memory",
    ] = None
    usage_store_path: Annotated[
        FilePath | None, RESTART, "file of the usage store sqlite, created if missing"
    ] = None
    usage_store_url: Annotated[
        Secret | None, RESTART, "server of the usage store valkey, as account_store_url"
    ] = None
    # A year and a month, so that a month can be compared with the same one a year ago.
    usage_max_age_s: Annotated[
        Seconds, Meta(ge=DAY_S, le=10 * 365 * DAY_S), RESTART, "how long usage is stored by hour"
    ] = 400.0 * DAY_S
    max_attempts: Annotated[
        int,
        Meta(ge=1, le=100),
        "how many times one request is sent, with one account after another, until one succeeds",
    ] = MAX_ATTEMPTS
    account_wait_s: Annotated[
        Wait, "how long a request waits for an account when all of them are cooling down"
    ] = 0.0
    secret: Annotated[
        Secret | None,
        Meta(min_length=32),
        "signs wrapped reasoning and hashes client keys; at least 32 characters, the same on every gateway",
    ] = None
    admin_key: Annotated[
        Secret | None,
        Meta(min_length=32),
        "the key for /admin, which shows and changes accounts, shows requests and keys and reloads; at least 32"
        " characters; unset: /admin is off, or only shows, to this machine, where no keys are needed at all",
    ] = None
    audit_log: Annotated[
        FilePath | None,
        "file to which each change of keys, accounts and the configuration is appended as a line of JSON; unset: only"
        " the log has them",
    ] = None
    budget_webhook: Annotated[
        Secret | None,
        "URL that gets a POST with JSON when a client key or a group has spent 80 % and 100 % of its budget; it may"
        " contain a token",
    ] = None
    metrics_key: Annotated[
        Secret | None,
        Meta(min_length=32),
        "a key only for /metrics, besides the admin key; at least 32 characters; needs dragoman[metrics]",
    ] = None
    otel: Annotated[
        bool, RESTART, "report to OpenTelemetry, as the OTEL_* variables say; needs dragoman[otel]"
    ] = False
    allow_public_without_keys: Annotated[
        bool,
        "start on a public address without client keys; anybody who can connect may then use all upstreams",
    ] = False
    check_grammars: Annotated[
        bool,
        "check what models write for free-text tools against the tool's grammar where the upstream does not; "
        "needs dragoman[grammar]",
    ] = True
    reasoning_store_bytes: Annotated[
        int,
        Meta(ge=0, le=2**34),
        RESTART,
        "memory for the reasoning of Chat clients that do not send it back; 0 stores none",
    ] = 64 * 2**20
    simulator: Annotated[
        bool | None,
        "offer the built-in simulator as upstream sim; unset: yes, but listed only if there is no other upstream",
    ] = None
    log_level: Annotated[str, ("debug", "info", "warning", "error"), "least severe level that is logged"] = (
        "info"
    )
    log_format: Annotated[
        str, ("auto", "text", "json"), "form of log lines; auto: text on a terminal, else json"
    ] = "auto"

    @property
    def offers_simulator(self) -> bool:
        return self.simulator is not False

    @property
    def tls(self) -> bool:
        return self.certfile is not None and self.keyfile is not None


# Clients choose model names, so there may be any number of them, and of any length. Vendors' names have up to a hundred
# characters, names of files with weights a few more.
_MAX_RESOLVED = 2048
_MAX_RESOLVED_NAME = 256

Value = TypeVar("Value")


class ResolvedNames(dict[tuple[str, ...], Any]):
    """What the settings say about names that requests have had so far. The first part of a key says of what it is."""

    def keep(self, key: tuple[str, ...], value: Value) -> Value:
        """Keep a result, if its names are not long, and return it."""
        if max(map(len, key)) <= _MAX_RESOLVED_NAME:
            if len(self) >= _MAX_RESOLVED:
                self.clear()
            self[key] = value
        return value


class Settings(Struct, frozen=True, kw_only=True, dict=True):
    """Everything that is configured, checked. Raises ValueError for a client key of an unknown group.

    Attributes:
        models: Each name that clients send -> the `upstream/model` that it means, or several, best first.
        endpoints: Each path that is relayed although no model is named there, with all below it -> its upstreams,
            of which the first is used that speaks the client's protocol.
        proxies: The environment's, because their URLs may contain credentials to mask.
        origins: The origins by dotted key; a key without an entry has its default value.
        previous_mask: That of the settings before, whose secrets open requests still use.
    """

    server: ServerSettings = field(default_factory=ServerSettings)
    upstreams: tuple[UpstreamSettings, ...] = ()
    models: Mapping[str, str | tuple[str, ...]] = field(default_factory=dict)
    endpoints: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    capabilities: tuple[ModelCapabilitySettings, ...] = ()
    groups: tuple[Group, ...] = ()
    client_keys: tuple[ClientKey, ...] = ()
    aws_keys: tuple[AwsKey, ...] = ()
    prices: tuple[Price, ...] = ()
    accounts: tuple[AccountSettings, ...] = ()
    rules: tuple[RuleSettings, ...] = ()
    proxies: tuple[Secret, ...] = ()
    origins: Mapping[str, ValueOrigin] = field(default_factory=dict)
    previous_mask: Mask | None = None

    def __post_init__(self) -> None:
        keys = tuple(key.in_group_of(self.groups_by_name) for key in self.client_keys)
        force_setattr(self, "client_keys", keys)

    @property
    def needs_keys(self) -> bool:
        """True if a client needs a key."""
        return bool(self.client_keys) or self.server.stored_keys

    # Lookups that requests make, so that none of them walks the settings.

    @cached_property
    def resolved(self) -> ResolvedNames:
        """What was found for names so far."""
        return ResolvedNames()

    @cached_property
    def groups_by_name(self) -> Mapping[str, Group]:
        return {group.name: group for group in self.groups}

    @cached_property
    def upstream_of_model(self) -> Mapping[str, str]:
        """The first upstream that lists a model in the settings, by the model."""
        return {model: each.name for each in reversed(self.upstreams) for model in each.models}

    @cached_property
    def aliases(self) -> PatternTable[tuple[str, str | tuple[str, ...]]]:
        """The patterns of `models` with their targets."""
        return PatternTable([(name, (name, to)) for name, to in self.models.items() if WILDCARD in name])

    @cached_property
    def _upstreams(self) -> Mapping[str, UpstreamSettings]:
        return {upstream.name: upstream for upstream in reversed(self.upstreams)}

    @cached_property
    def _accounts(self) -> Mapping[str, tuple[AccountSettings, ...]]:
        found: dict[str, list[AccountSettings]] = {}
        for account in self.accounts:
            found.setdefault(account.upstream, []).append(account)
        defaults = {each.name: (each.default_account,) for each in (*self.upstreams, SIMULATOR_UPSTREAM)}
        return {**defaults, **{name: tuple(accounts) for name, accounts in found.items()}}

    @cached_property
    def mask(self) -> Mask:
        """The mask of all secrets in these settings."""
        values = [secret.reveal() for secret in secrets_in(self)]
        # Settings that are made in code may have credentials in a base URL.
        values += [part for upstream in self.upstreams for part in url_secrets(upstream.base_url)]
        # The key of a server that needs none is often set to the server's name.
        public = {upstream.name for upstream in self.upstreams} | {each.name for each in self.accounts}
        mask = Mask(values, public)
        return mask if self.previous_mask is None else mask.joined(self.previous_mask)

    def masking_also(self, previous: "Settings") -> "Settings":
        """Return these settings. Their mask also has the secrets of previous ones, which open requests still use."""
        return replace(self, previous_mask=previous.mask)

    def upstream(self, name: str) -> UpstreamSettings | None:
        """Return the upstream of this name; for `sim` the description of the simulator, if that is offered."""
        if name in self._upstreams:
            return self._upstreams[name]
        return SIMULATOR_UPSTREAM if name == SIMULATOR and self.server.offers_simulator else None

    @property
    def lists_simulator(self) -> bool:
        """True if the simulator is listed for users: it was switched on, or there is no other upstream."""
        wanted = self.server.simulator
        return not self.upstreams if wanted is None else wanted

    def accounts_of(self, upstream: UpstreamSettings) -> tuple[AccountSettings, ...]:
        """Return the accounts of an upstream: at least one."""
        return self._accounts.get(upstream.name) or (upstream.default_account,)

    def all_accounts(self) -> Iterator[AccountSettings]:
        """Yield the accounts of all upstreams."""
        for upstream in self.upstreams:
            yield from self.accounts_of(upstream)


# The arrays of tables of a file, in the order in which they are shown.
ARRAYS: dict[str, type[Any]] = {
    "upstreams": UpstreamSettings,
    "capabilities": ModelCapabilitySettings,
    "groups": Group,
    "client_keys": ClientKey,
    "aws_keys": AwsKey,
    "prices": Price,
    "accounts": AccountSettings,
    "rules": RuleSettings,
}
