"""What can be set: frozen dataclasses whose annotations are the one table of all keys.

Each field carries a `Key`: its kind, its range, its help text. The TOML reader, the environment
(`DRAGOMAN_` and the field's name), the command line and `dragoman config show` are all made from these
tables, so a new setting is one new field. Where values come from is config.py's matter; this module reads
nothing.
"""

import enum
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from typing import Annotated, Any, get_type_hints

from ._secret import Secret

OPENAI_CHAT = "openai_chat"
ANTHROPIC_MESSAGES = "anthropic_messages"
OPENAI_RESPONSES = "openai_responses"
# The protocols that an upstream may speak, by the names that the core's registry gives them.
UPSTREAM_PROTOCOLS = (OPENAI_CHAT, ANTHROPIC_MESSAGES, OPENAI_RESPONSES)

ENV_PREFIX = "DRAGOMAN_"


class Kind(enum.Enum):
    """How a value is written and checked. Outside TOML, lists are comma-separated."""

    TEXT = "text"
    NAME = "name"
    HOST = "host"
    INTEGER = "integer"
    SECONDS = "seconds"
    SWITCH = "true or false"
    CHOICE = "choice"
    CHOICES = "list of choices"
    NAMES = "list of names"
    ORIGINS = "list of origins"
    PATH = "path"
    URL = "url"
    PROXY = "proxy url"
    SECRET = "secret"
    HEADERS = "table of headers"


@dataclass(frozen=True, slots=True)
class Key:
    """One setting's kind and limits; `low` and `high` are inclusive.

    `name`, `default` (None: no value) and `required` are filled in from the field.
    """

    kind: Kind
    help: str
    low: float = 0
    high: float = 0
    choices: tuple[str, ...] = ()
    name: str = ""
    default: object = None
    required: bool = False


def _integer(help_: str, low: int, high: int) -> Key:
    return Key(Kind.INTEGER, help_, low, high)


def _seconds(help_: str, low: float, high: float) -> Key:
    return Key(Kind.SECONDS, help_, low, high)


def _choice(help_: str, *choices: str) -> Key:
    return Key(Kind.CHOICE, help_, choices=choices)


LOSS_POLICIES = ("record", "refuse")
# For `reasoning_field`: earlier reasoning is not sent back at all.
NO_REASONING_FIELD = "none"
_DAY = 86_400
# The core reads no larger document.
MAX_BODY_BYTES = 64 * 2**20

# From this API version on, temperature, top_p and top_k are unknown fields, which are refused.
_NO_SAMPLING_SINCE = "2026-10-21"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """The `[server]` table. Times are seconds, sizes are bytes."""

    host: Annotated[str, Key(Kind.HOST, "address to bind")] = "127.0.0.1"
    port: Annotated[int, _integer("port to bind; 0 takes a free one", 0, 65_535)] = 8080
    backend: Annotated[str, _choice("event loop", "asyncio", "uvloop", "trio")] = "asyncio"
    workers: Annotated[int, _integer("number of processes", 1, 256)] = 1
    certfile: Annotated[str | None, Key(Kind.PATH, "TLS certificate chain, PEM")] = None
    keyfile: Annotated[str | None, Key(Kind.PATH, "TLS private key, PEM")] = None
    http2: Annotated[bool, Key(Kind.SWITCH, "offer HTTP/2 in the TLS handshake")] = True
    keepalive_s: Annotated[
        float, _seconds("silence before a stream gets a heartbeat; 0 sends none", 0, 3600)
    ] = 10.0
    cors_origins: Annotated[tuple[str, ...], Key(Kind.ORIGINS, "origins that browsers may call from")] = (
        "*",
    )
    max_body_bytes: Annotated[int, _integer("largest request body", 1024, MAX_BODY_BYTES)] = MAX_BODY_BYTES
    drain_s: Annotated[float, _seconds("time that open requests get at shutdown", 0, _DAY)] = 30.0
    loss_policy: Annotated[str, _choice("what to do when a translation loses something", *LOSS_POLICIES)] = (
        "record"
    )
    default_max_tokens: Annotated[
        int, _integer("max_tokens for Messages upstreams when the client gave none", 1, 10_000_000)
    ] = 32_000
    simulator: Annotated[bool, Key(Kind.SWITCH, "offer the built-in simulator as upstream sim")] = True
    log_level: Annotated[str, _choice("least severe log line", "debug", "info", "warning", "error")] = "info"
    log_format: Annotated[str, _choice("auto: text on a terminal, else json", "auto", "text", "json")] = (
        "auto"
    )

    @property
    def tls(self) -> bool:
        return self.certfile is not None and self.keyfile is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamSettings:
    """One `[[upstreams]]` table.

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
    anthropic_version: Annotated[
        str, Key(Kind.TEXT, "anthropic-version header; a Messages client's own wins, for it is relayed")
    ] = "2023-06-01"
    # What the upstream takes beyond its protocol. Clients that are relayed say themselves what they want, so
    # these count for translated requests alone. Defaults for well-known hosts are in _providers.py.
    max_tokens: Annotated[
        int | None, _integer("instead of the server's default_max_tokens", 1, 10_000_000)
    ] = None
    max_tokens_field: Annotated[
        str, _choice("the name of the limit in Chat Completions", "max_completion_tokens", "max_tokens")
    ] = "max_completion_tokens"
    reasoning_field: Annotated[
        str,
        _choice(
            "where Chat Completions takes earlier reasoning back",
            "reasoning_content",
            "reasoning",
            NO_REASONING_FIELD,
        ),
    ] = "reasoning_content"
    custom_tools: Annotated[
        bool | None,
        Key(Kind.SWITCH, "takes free-text tools; else they go as functions; unset: only in Responses"),
    ] = None
    developer_role: Annotated[
        bool, Key(Kind.SWITCH, "Chat Completions knows the role developer; else it goes as system")
    ] = False
    mid_system: Annotated[
        bool, Key(Kind.SWITCH, "takes system messages after the first turn; else they go as marked user text")
    ] = False
    cache_marks: Annotated[
        bool, Key(Kind.SWITCH, "Chat Completions or Responses knows prompt_cache_breakpoint on content parts")
    ] = False
    sampling: Annotated[
        bool | None,
        Key(
            Kind.SWITCH,
            "Messages takes temperature, top_p and top_k; unset: with an anthropic_version before 2026-10-21",
        ),
    ] = None
    thinking: Annotated[
        str, _choice("how the models of Messages take thinking: by effort or by budget", "adaptive", "budget")
    ] = "adaptive"
    loss_policy: Annotated[str | None, _choice("instead of the server's", *LOSS_POLICIES)] = None
    connect_s: Annotated[float, _seconds("time to connect", 0.001, 3600)] = 10.0
    # Reasoning models think for minutes before the first byte; both vendors' SDKs wait 600 s as well.
    read_s: Annotated[float, _seconds("longest silence of the upstream", 0.001, _DAY)] = 600.0
    write_s: Annotated[float, _seconds("longest stall while sending", 0.001, _DAY)] = 60.0
    pool_s: Annotated[float, _seconds("longest wait for a free connection", 0.001, 3600)] = 30.0

    def __post_init__(self) -> None:
        if not self.protocols:
            object.__setattr__(self, "protocols", (self.protocol,))

    @property
    def takes_sampling(self) -> bool:
        """Whether a Messages upstream takes sampling settings, said or derived from the API version."""
        if self.sampling is not None:
            return self.sampling
        # Clouds put their own name before the date, as in bedrock-2023-05-31.
        return self.anthropic_version[-len(_NO_SAMPLING_SINCE) :] < _NO_SAMPLING_SINCE

    def base_url_for(self, protocol: str) -> str:
        """The base URL in the convention of `protocol`'s own SDK, without a slash at the end.

        OpenAI's SDK appends `/chat/completions` to a URL with `/v1`, Anthropic's appends `/v1/messages` to
        one without. An upstream that speaks both has one `base_url`, written for its preferred protocol.
        """
        base = self.base_url.rstrip("/")
        if protocol == ANTHROPIC_MESSAGES:
            return base if self.protocol == ANTHROPIC_MESSAGES else base.removesuffix("/v1")
        return base + "/v1" if self.protocol == ANTHROPIC_MESSAGES else base


SIMULATOR = "sim"
# What the built-in upstream looks like to the router. It is no HTTP server: nothing connects to this URL.
SIMULATOR_UPSTREAM = UpstreamSettings(
    name=SIMULATOR, protocol=OPENAI_CHAT, protocols=UPSTREAM_PROTOCOLS, base_url="http://simulator.invalid/v1"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All that is configured, checked. `models` maps the name that clients send to `upstream/model`."""

    server: ServerSettings = field(default_factory=ServerSettings)
    upstreams: tuple[UpstreamSettings, ...] = ()
    models: Mapping[str, str] = field(default_factory=dict)

    def upstream(self, name: str) -> UpstreamSettings | None:
        """The upstream called `name`; for `sim` a description of the simulator, if that is on."""
        for upstream in self.upstreams:
            if upstream.name == name:
                return upstream
        return SIMULATOR_UPSTREAM if name == SIMULATOR and self.server.simulator else None


def keys_of(cls: type[ServerSettings] | type[UpstreamSettings]) -> dict[str, Key]:
    """The table of keys of a settings class, in order."""
    hints: dict[str, Any] = get_type_hints(cls, include_extras=True)
    keys = {}
    for each in fields(cls):
        made = each.default is MISSING  # by a factory: it is empty
        keys[each.name] = replace(
            hints[each.name].__metadata__[0],
            name=each.name,
            default=None if made else each.default,
            required=made and each.default_factory is MISSING,
        )
    return keys


SERVER_KEYS = keys_of(ServerSettings)
UPSTREAM_KEYS = keys_of(UpstreamSettings)
