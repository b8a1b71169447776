"""Settings of upstreams and their accounts: the tables `[[upstreams]]`, `[[accounts]]` and `[[rules]]`."""

from collections.abc import Mapping
from typing import Annotated

from msgspec import Meta, Struct, field
from msgspec.structs import force_setattr

from dragoman import UPSTREAMS
from dragoman.codec import UpstreamSpec
from dragoman.document import EFFORTS
from dragoman_server.policy.attempts import Selection
from dragoman_server.policy.error_actions import ErrorAction
from dragoman_server.settings.capabilities import CapabilitySettings
from dragoman_server.settings.fields import DAY_S, Name, Proxy, Seconds, SettingKind, Wait
from dragoman_server.settings.secret import Secret

# The names of the protocols that upstreams may speak, as in the core's registry.
UPSTREAM_PROTOCOLS = tuple(UPSTREAMS)

LOSS_POLICIES = ("record", "refuse")

# The header that `anthropic_version` is about.
VERSION_HEADER = "anthropic-version"
# For `anthropic_version`: the newest, unless a request needs parameters that only the older one has.
AUTO_VERSION = "auto"
NEWEST_VERSION = "2026-10-21"

# Values of `host`: by the base URL, a server that needs nothing, and the rows of `capabilities.cloud_apis`.
AUTO_HOST = "auto"
PLAIN_HOST = "plain"
HOST_NAMES = (
    AUTO_HOST,
    PLAIN_HOST,
    *("foundry", "azure", "azure-dated", "vertex", "claude-google", "claude-aws", "mantle", "bedrock"),
    "bedrock-invoke",
)

# The account of an upstream without `[[accounts]]`.
DEFAULT_ACCOUNT = "default"


IDENTITY = (
    "whose credentials a cloud gets without api_key: an AWS profile, a file of Google credentials, or the client id of"
    " an Azure managed identity; unset: those that the vendor's library finds"
)


class UpstreamSettings(CapabilitySettings, frozen=True, kw_only=True):
    """One `[[upstreams]]` table, with the capabilities of all its models.

    Clients of one of the `protocols` are relayed. Requests of other clients are translated to `protocol`.
    """

    name: Annotated[Name, "its name, before the slash in upstream/model"]
    protocol: Annotated[
        str, UPSTREAM_PROTOCOLS, "the preferred protocol; may be left out if protocols is set"
    ]
    base_url: Annotated[
        str,
        SettingKind.URL,
        "base URL as the vendor's own SDK expects it: with /v1 for OpenAI's protocols, without for Anthropic's",
    ]
    # Empty means only the preferred one; __post_init__ fills it in.
    protocols: Annotated[tuple[str, ...], UPSTREAM_PROTOCOLS, "all protocols that it speaks"] = ()
    api_key: Annotated[Secret | None, "the key, best as ${VARIABLE} or ${file:PATH}"] = None
    auth: Annotated[
        str,
        ("auto", "bearer", "x-api-key", "api-key"),
        "how the key is sent; auto: in the header of its host, or else of the protocol",
    ] = "auto"
    host: Annotated[
        str,
        HOST_NAMES,
        "the API of a cloud that it is; auto: by the base URL; plain: none, whatever the base URL",
    ] = AUTO_HOST
    identity: Annotated[str | None, IDENTITY] = None
    region: Annotated[str | None, "AWS region to sign for, where the base URL does not have it"] = None
    token_scope: Annotated[str | None, "scope of tokens, where another one than the host's is needed"] = None
    api_version: Annotated[str, "api-version of azure-dated"] = "2024-10-21"
    headers: Annotated[Mapping[str, Secret], "extra headers for every request"] = field(default_factory=dict)
    proxy: Annotated[Proxy | None, "http, https or socks5 URL; may contain credentials"] = None
    models: Annotated[tuple[str, ...], "names of models that are routed to this upstream"] = ()
    default_model: Annotated[
        str | None,
        "the model to use for claude-*, gpt-* and codex-* names that it does not have; unset: its only model, if it has"
        " just one",
    ] = None
    model_list: Annotated[bool, "fetch the upstream's list of models, for GET /v1/models"] = True
    anthropic_version: Annotated[
        str,
        "anthropic-version of translated requests; auto: 2026-10-21, or 2023-06-01 where sampling settings need it",
    ] = AUTO_VERSION
    # Only for clients of the upstream's protocols, which are relayed.
    stores_responses: Annotated[
        bool, "stores responses itself, for previous_response_id; else the gateway's store does"
    ] = False
    counts_tokens: Annotated[
        bool, "has an endpoint that counts input tokens; else the gateway estimates them"
    ] = False
    loss_policy: Annotated[str | None, LOSS_POLICIES, "overrides the server's"] = None
    selection: Annotated[
        str, tuple(selection.value for selection in Selection), "how the next account is chosen"
    ] = Selection.LEAST_RECENTLY_USED.value
    sticky: Annotated[
        bool, "keep a conversation with one account, because of prompt caches and signed reasoning"
    ] = True
    hedge_s: Annotated[
        Wait,
        "time without a response after which the request is also sent with a second account, and the first response"
        " wins; 0: never",
    ] = 0.0
    connect_s: Annotated[Seconds, Meta(ge=0.001, le=3600), "longest time to connect"] = 10.0
    # Models may reason for minutes before the first byte; both vendors' SDKs wait 600 s as well.
    read_s: Annotated[Seconds, Meta(ge=0.001, le=DAY_S), "longest silence of the upstream"] = 600.0
    write_s: Annotated[Seconds, Meta(ge=0.001, le=DAY_S), "longest stall while sending"] = 60.0
    pool_s: Annotated[Seconds, Meta(ge=0.001, le=3600), "longest wait for a free connection"] = 30.0
    # If the upstream comes from the environment: for each setting, the variable.
    variables: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.protocols:
            force_setattr(self, "protocols", (self.protocol,))

    @property
    def default_account(self) -> "AccountSettings":
        """Its account where it has no `[[accounts]]`."""
        return AccountSettings(
            upstream=self.name, name=DEFAULT_ACCOUNT, api_key=self.api_key, identity=self.identity
        )

    def base_url_for(self, protocol: str, specs: Mapping[str, UpstreamSpec] = UPSTREAMS) -> str:
        """Return the base URL as `protocol`'s own SDK takes it, without a slash at the end.

        OpenAI's SDK appends `/chat/completions` to a URL with `/v1`, Anthropic's appends `/v1/messages` to
        one without. An upstream that speaks both has one `base_url`, written for its preferred protocol.
        """
        base, written, wanted = self.base_url.rstrip("/"), specs[self.protocol], specs[protocol]
        if written.base_path == wanted.base_path:
            return base
        return base.removesuffix(written.base_path) + wanted.base_path


Rate = Annotated[int, Meta(ge=1, le=10**6)]
TokenRate = Annotated[int, Meta(ge=1, le=10**10)]


class AccountSettings(Struct, frozen=True, kw_only=True):
    """One `[[accounts]]` table. An upstream without any has one, `default`, with its own api_key and proxy."""

    upstream: Annotated[Name, "upstream that the account belongs to"]
    name: Annotated[Name, "its name in the log and below /admin, after the upstream's"]
    api_key: Annotated[Secret | None, "the key, best as ${VARIABLE} or ${file:PATH}"] = None
    identity: Annotated[str | None, IDENTITY] = None
    proxy: Annotated[Proxy | None, "overrides the upstream's"] = None
    weight: Annotated[int, Meta(ge=1, le=1000), "its share with selection = weighted"] = 1
    requests_per_minute: Annotated[Rate | None, "largest number of requests a minute"] = None
    tokens_per_minute: Annotated[TokenRate | None, "largest number of tokens a minute"] = None
    max_concurrent_requests: Annotated[Rate | None, "largest number of requests at the same time"] = None

    @property
    def id(self) -> str:
        """The name that is unique among all accounts."""
        return f"{self.upstream}/{self.name}"

    @property
    def has_limits(self) -> bool:
        """True if something has to be counted for it."""
        limits = (self.requests_per_minute, self.tokens_per_minute, self.max_concurrent_requests)
        return any(limit is not None for limit in limits)


class RuleSettings(Struct, frozen=True, kw_only=True):
    """One `[[rules]]` table: what to do after an error.

    All its conditions must hold; the first rule that fits is used.
    """

    action: Annotated[
        str,
        tuple(action.value for action in ErrorAction),
        "return_to_client: no other attempt; the others try the next account, and cool_down also lets this one "
        "cool down, disable disables it, retry_later lets it cool down if such errors are frequent",
    ]
    upstream: Annotated[Name | None, "upstream that the rule applies to; unset: all"] = None
    statuses: Annotated[tuple[int, ...], "HTTP statuses of the error"] = ()
    codes: Annotated[tuple[str, ...], "`code` or `type` of the error"] = ()
    words: Annotated[
        tuple[str, ...], "texts of which one must be in the error's message; case is ignored"
    ] = ()


SIMULATOR = "sim"
# The built-in upstream, as routing needs it. Nothing connects to this URL. The capabilities are the defaults of an
# unknown host.
SIMULATOR_UPSTREAM = UpstreamSettings(
    name=SIMULATOR,
    protocol=UPSTREAM_PROTOCOLS[0],
    protocols=UPSTREAM_PROTOCOLS,
    base_url="http://simulator.invalid/v1",
    capabilities={
        "max_tokens_field": "max_completion_tokens",
        "efforts": EFFORTS,
        "refuses": (),
        "unwraps_signatures": True,
    },
)
