"""The APIs of clouds: how calls to each of them differ from their protocol's calls. The only table of that.

A cloud has one or more APIs at which it serves models. Most speak a protocol as it is, with another header for
the key or a token. Some have the model in the path and a version in the body, and one has its own framing. `hosts` does
what the rows say; what the models behind an API accept is in `providers`, as for any other host: a row
there with the same name, or with the name in `provider`.

Betas: litellm 1.109.1, anthropic_beta_headers_config.json. Everything else has its source in its row.
"""

import re
from collections.abc import Mapping
from functools import lru_cache, partial
from urllib.parse import urlsplit

import msgspec

from dragoman.codec import UpstreamSpec
from dragoman_server.settings import UpstreamSettings
from dragoman_server.settings.patterns import matches
from dragoman_server.settings.upstreams import AUTO_HOST

VERSION = "anthropic-version"
BETAS = "anthropic-beta"
EVENT_STREAM = "application/vnd.amazon.eventstream"
# The day on which nearly all sources about clouds were read.
LOOKED_UP = "2026-11-23"


class BodyChanges(msgspec.Struct, frozen=True):
    """How a body of an API differs from the body of its protocol.

    Attributes:
        without: Members that are not in it, because the path has them.
        versions: Values of the version's header -> the member `anthropic_version`. Others are sent as they are.
        from_headers: Headers that are members: name -> name. Lists of betas become arrays.
    """

    without: tuple[str, ...] = ()
    versions: Mapping[str, str] = msgspec.field(default_factory=dict)
    from_headers: Mapping[str, str] = msgspec.field(default_factory=dict)


class Route(msgspec.Struct, frozen=True):
    """Where an API has one path of a protocol.

    Attributes:
        end: A pattern of the end of the protocol's URL, without its query.
        path: Below the base URL: with `{model}`, and with the named groups of `end`.
        stream_path: The one for a stream, if that is another.
        models: The pattern of the names of the models that it is for.
        model: Its first group is what the path has of a model's name; the route is for models that it finds.
        body: None leaves the body as it is.
        event_stream: A stream comes as EVENT_STREAM.
        counts_in: The body is that of CountTokens, with the protocol's in it, and this member of the answer the count.
    """

    end: str
    path: str
    stream_path: str | None = None
    models: str = "*"
    model: str = "(?s)(.*)"
    body: BodyChanges | None = None
    event_stream: bool = False
    counts_in: str = ""


class CloudApi(msgspec.Struct, frozen=True):
    """One API of a cloud.

    Attributes:
        address: Host and path of base URLs that lead there, None if that shows nothing. The group `region` is the
            region to sign for.
        source: Where it is documented.
        date: When that was read.
        key_headers: Where a key is sent. In `authorization` it is a bearer token.
        provider: The row of `providers` with what it accepts, if that has another name.
        extra: The extra whose library finds credentials for an account without a key, "" where there must be one.
        scope: Of its tokens; of signatures the service.
        routes: The first one that fits is used. None fits: the path is the protocol's.
        base_ends: Paths at the end of base URLs that the routes have as well.
        betas: Column of the table of betas: those that pass, those that are dropped, and those with another name.
        unknown_betas: Betas that the column does not have are sent.
        refuses: Members of bodies that it is known to refuse.
        error_statuses: Types of errors -> the status that says what they mean, where another one comes.
        lists_models: It has the protocol's list of models.
    """

    address: re.Pattern[str] | None
    source: str
    key_headers: tuple[str, ...]
    provider: str = ""
    extra: str = ""
    scope: str = ""
    routes: tuple[Route, ...] = ()
    base_ends: tuple[str, ...] = ()
    betas: str = ""
    unknown_betas: bool = True
    refuses: tuple[str, ...] = ()
    error_statuses: Mapping[str, int] = msgspec.field(default_factory=dict)
    lists_models: bool = False
    date: str = LOOKED_UP

    def speaks(self, protocol: UpstreamSpec) -> bool:
        """True if the API has a protocol: its path is one of the routes, if there are any."""
        path = f"{protocol.base_path}{protocol.path_for('model', stream=False)}"
        return not self.routes or any(re.search(route.end, path) for route in self.routes)

    def route(self, url: str, model: str) -> Route | None:
        """Return where the API has a URL of a protocol, without its query, for a model; None if that stays as it is."""
        fitting = (each for each in self.routes if re.search(each.end, url) and matches(model, each.models))
        return next((each for each in fitting if re.fullmatch(each.model, model)), None)

    def beta(self, name: str) -> str | None:
        """Return the name by which the API has a beta, None if it does not have it."""
        if not self.betas:
            return name
        return BETAS_BY_API[self.betas].get(name, name if self.unknown_betas else None)


# Betas. The columns: y passes, - is dropped, > has the name below; a blank is unknown.
_RENAMED_BETA = "tool-search-tool-2025-10-19"
_BETA_COLUMNS = ("foundry", "vertex", "bedrock", "mantle")
_BETA_TABLE = """
advanced-tool-use-2025-11-20              y >>>
tool-search-tool-2025-10-19                 yyy
claude-code-20250219                      - --y
effort-2025-11-24                         y -yy
prompt-caching-scope-2026-01-05           y ---
per-turn-control-2026-07-01               y y-y
dangerous-tool-use-2026-09-03             y yyy
web-fetch-2025-09-10                      y ---
code-execution-2025-08-25                 y ---
web-search-2025-03-05                     y y-y
context-management-2025-06-27             y yyy
compact-2026-01-12                        - yyy
compact-2026-09-04                        y y
inline-tools-2026-09-15                     y
context-1m-2025-08-07                     y yyy
computer-use-2025-01-24                   y yyy
computer-use-2025-11-24                   y yyy
interleaved-thinking-2025-05-14           y y-y
structured-outputs-2025-11-13             y --y
fine-grained-tool-streaming-2025-05-14    - -yy
fast-mode-2026-02-01                      - ---
advisor-tool-2026-03-01                   - ---
files-api-2025-04-14                      y ---
skills-2025-10-02                         y ---
mcp-client-2025-04-04                     y ---
mcp-client-2025-11-20                     y ---
output-128k-2025-02-19                    - --y
token-efficient-tools-2025-02-19          - --y
mid-conversation-tool-changes-2026-07-01  y yy
thinking-binding-controls-2026-08-01      y yyy
thinking-display-updates-2026-08-18       y yyy
"""


def _beta_columns() -> dict[str, dict[str, str | None]]:
    columns: dict[str, dict[str, str | None]] = {name: {} for name in _BETA_COLUMNS}
    for line in _BETA_TABLE.strip().splitlines():
        beta, cells = line[:42].rstrip(), f"{line[42]}{line[44:]}"
        for column, cell in zip(columns.values(), cells, strict=False):
            if cell != " ":
                column[beta] = {"y": beta, ">": _RENAMED_BETA, "-": None}[cell]
    return columns


BETAS_BY_API: Mapping[str, Mapping[str, str | None]] = _beta_columns()

# AWS. Beginnings of regions -> the domains of Bedrock Runtime and of its other APIs (openai 3.54.0,
# providers/bedrock.py); "" is every other region.
AWS_PARTITIONS: Mapping[str, tuple[str, str]] = {
    "cn-": ("amazonaws.com.cn", "api.amazonwebservices.com.cn"),
    "eusc-": ("amazonaws.eu", "api.amazonwebservices.eu"),
    "us-iso-": ("c2s.ic.gov", "api.aws.ic.gov"),
    "us-isob-": ("sc2s.sgov.gov", "api.aws.scloud"),
    "eu-isoe-": ("cloud.adc-e.uk", "api.cloud-aws.adc-e.uk"),
    "us-isof-": ("csp.hci.ic.gov", "api.aws.hci.ic.gov"),
    "": ("amazonaws.com", "api.aws"),
}


def in_partition(url: str) -> str:
    """Return a URL of AWS with the domain of its region's partition."""
    (common, api) = AWS_PARTITIONS[""]
    found = re.fullmatch(rf"(https://[a-z-]+\.([a-z0-9-]+)\.)({re.escape(common)}|{re.escape(api)})", url)
    if found is None:
        return url
    row = next(row for prefix, row in AWS_PARTITIONS.items() if found[2].startswith(prefix))
    return found[1] + row[(common, api).index(found[3])]


def _aws_address(service: str) -> re.Pattern[str]:
    """Return the pattern of a service's addresses, those of private endpoints (vpce) included."""
    domains = {domain for row in AWS_PARTITIONS.values() for domain in row}
    ends = "|".join(sorted(map(re.escape, domains)))
    return re.compile(rf"(?:^|\.){service}\.(?P<region>[^./]+)\.(?:vpce\.)?(?:{ends})(?:/|$)")


# "the part before :" of the header x-amzn-errortype, and exceptions in a stream -> what they mean (botocore's service
# model). Errors of signatures quote what was signed, so they count as errors of the key, whose text clients do not get.
_AWS_ERRORS: Mapping[str, int] = {
    "ServiceQuotaExceededException": 429,  # it comes with 400, but is not the client's fault
    "ModelNotReadyException": 529,
    "ServiceUnavailableException": 529,
    "ExpiredTokenException": 401,
    "IncompleteSignatureException": 401,
    "InvalidSignatureException": 401,
    "MissingAuthenticationTokenException": 401,
    "UnrecognizedClientException": 401,
}
# Exceptions in a stream, whose status was 200.
AWS_STREAM_STATUSES: Mapping[str, int] = {
    "ValidationException": 400,
    "AccessDeniedException": 403,
    "ResourceNotFoundException": 404,
    "ModelTimeoutException": 408,
    "ThrottlingException": 429,
    "InternalServerException": 500,
    **_AWS_ERRORS,
}

_MESSAGES = r"/v1/messages$"
_COUNT = r"/v1/messages/count_tokens$"
_CHAT = r"/chat/completions$"
_RESPONSES = r"/responses(?P<rest>/[a-z_]+)?$"
# Not known to count their tokens.
_RESPONSES_UNCOUNTED = r"/responses(?P<rest>/(?!input_tokens)[a-z_]+)?$"
# The paths with the name of a deployment (openai 3.54.0, lib/azure.py).
_DEPLOYED = (
    r"/(?P<rest>(?:chat/)?completions|embeddings|audio/(?:transcriptions|translations|speech)"
    r"|images/(?:generations|edits))$"
)
_FILES = r"/(?P<rest>(?:files|batches)(?:/[^/]+)*)$"
_GENERATE = r"/v1(?:beta)?/models/(?P<model>[^/]+):(?P<verb>[A-Za-z]+)$"
_MODELS = r"/models$"

_OLD_VERSIONS = ("2023-01-01", "2023-06-01")
_VERTEX_BODY = BodyChanges(("model",), dict.fromkeys(_OLD_VERSIONS, "vertex-2023-10-16"))
_INVOKE_BODY = BodyChanges(
    ("model", "stream"),
    dict.fromkeys(_OLD_VERSIONS, "bedrock-2023-05-31"),
    {BETAS: "anthropic_beta", "anthropic-user-profile-id": "user_profile_id"},
)

# "The unique identifier or ARN of the foundation model" -- botocore, CountTokens. Names of profiles end with it:
# us.anthropic.claude-..., arn:aws:bedrock:...:inference-profile/us.anthropic.claude-...
_COUNT_TOKENS = Route(
    _COUNT,
    "/model/{model}/count-tokens",
    model=r"(?:.*[./])?(anthropic\.[^/]+)",
    body=_INVOKE_BODY,
    counts_in="inputTokens",
)

_BEARER = ("authorization",)
_azure = partial(CloudApi, extra="azure", scope="https://ai.azure.com/.default")
_google = partial(
    CloudApi, key_headers=_BEARER, extra="vertex", scope="https://www.googleapis.com/auth/cloud-platform"
)
_aws = partial(CloudApi, key_headers=_BEARER, extra="bedrock", error_statuses=_AWS_ERRORS)

# By the setting `host`. Where several addresses fit, the first one counts.
CLOUD_APIS: Mapping[str, CloudApi] = {
    "foundry": _azure(
        re.compile(r"\.services\.ai\.azure\.(?:com|us|cn)/anthropic"),
        "anthropic-python 2.12.0, lib/foundry.py",
        ("x-api-key", "api-key"),  # the second one "for backwards compatibility"
        betas="foundry",
    ),
    "azure": _azure(
        re.compile(r"\.(?:openai|services\.ai|cognitiveservices)\.azure\.(?:com|us|cn)(?:/|$)"),
        "learn.microsoft.com: api-version-lifecycle",
        ("api-key",),
    ),
    "azure-dated": _azure(
        None,
        "openai-python 3.54.0, lib/azure.py",
        ("api-key",),
        provider="azure",
        routes=(
            Route(_DEPLOYED, "/deployments/{model}/{rest}?api-version={api_version}"),
            Route(_RESPONSES, "/responses{rest}?api-version={api_version}"),
            Route(_FILES, "/{rest}?api-version={api_version}"),
        ),
        base_ends=("/v1",),
    ),
    "vertex": _google(
        re.compile(r"^(?:[a-z0-9-]+-)?aiplatform\.(?:(?:us|eu)\.rep\.)?googleapis\.com/"),
        "anthropic-python 2.12.0, lib/vertex; openai-python 3.54.0, providers/vertex.py",
        routes=(
            Route(
                _MESSAGES,
                "/publishers/anthropic/models/{model}:rawPredict",
                "/publishers/anthropic/models/{model}:streamRawPredict",
                body=_VERTEX_BODY,
            ),
            Route(
                _COUNT,
                "/publishers/anthropic/models/count-tokens:rawPredict",
                body=BodyChanges(versions=_VERTEX_BODY.versions),
            ),
            Route(_RESPONSES, "/publishers/openai/v1/responses{rest}"),
            Route(_CHAT, "/endpoints/openapi/chat/completions"),
            Route(_GENERATE, "/publishers/google/models/{model}:{verb}"),
        ),
        betas="vertex",
        unknown_betas=False,
    ),
    "claude-google": _google(
        re.compile(r"^claude\.googleapis\.com/"),
        "anthropic-python 2.12.0, lib/google_cloud",
        lists_models=True,
    ),
    "claude-aws": _aws(
        _aws_address("aws-external-anthropic"),
        "anthropic-python 2.12.0, lib/aws",
        scope="aws-external-anthropic",
        lists_models=True,
    ),
    "mantle": _aws(
        _aws_address("bedrock-mantle"),
        "anthropic-python 2.12.0, lib/bedrock/_mantle.py; openai-python 3.54.0, providers/bedrock.py",
        scope="bedrock-mantle",
        routes=(
            Route(_MESSAGES, "/anthropic/v1/messages"),
            Route(_COUNT, "/anthropic/v1/messages/count_tokens"),
            # "model `X` isn't supported on this route"
            *(
                Route(end, root + path, models=models)
                for end, path in ((_CHAT, "/chat/completions"), (_RESPONSES_UNCOUNTED, "/responses{rest}"))
                for models, root in (("openai.gpt-oss*", "/v1"), ("openai.gpt-*", "/openai/v1"), ("*", "/v1"))
            ),
            Route(_MODELS, "/v1/models"),
        ),
        base_ends=("/openai/v1", "/v1", "/anthropic"),
        betas="mantle",
        unknown_betas=False,
        lists_models=True,
    ),
    "bedrock": _aws(
        _aws_address("bedrock-runtime(?:-fips)?"),
        "docs.aws.amazon.com/bedrock: inference-messages-api; openai-python 3.54.0, providers/bedrock.py",
        scope="bedrock",
        routes=(
            Route(_MESSAGES, "/anthropic/v1/messages"),
            Route(_CHAT, "/openai/v1/chat/completions"),
            Route(_RESPONSES_UNCOUNTED, "/openai/v1/responses{rest}"),
            _COUNT_TOKENS,
        ),
        base_ends=("/openai/v1", "/v1", "/anthropic"),
        betas="bedrock",
        unknown_betas=False,
    ),
    "bedrock-invoke": _aws(
        None,
        "anthropic-python 2.12.0, lib/bedrock/_client.py; botocore 1.44.8, its service model",
        provider="bedrock",
        scope="bedrock",
        routes=(
            Route(
                _MESSAGES,
                "/model/{model}/invoke",
                "/model/{model}/invoke-with-response-stream",
                body=_INVOKE_BODY,
                event_stream=True,
            ),
            _COUNT_TOKENS,
        ),
        betas="bedrock",
        unknown_betas=False,
        # "Extra inputs are not permitted"
        refuses=("cache_control", "diagnostics", "fallbacks", "inference_geo", "service_tier", "speed"),
    ),
}


def cloud_api_of(upstream: UpstreamSettings) -> CloudApi | None:
    """Return the API of a cloud that an upstream is, None for a server that needs nothing of this."""
    return CLOUD_APIS.get(host_name(upstream))


def host_name(upstream: UpstreamSettings) -> str:
    """Return the name of the upstream's host: as the setting says, else by its base URL, "" for any other server."""
    return cloud_api_name_at(upstream.base_url) if upstream.host == AUTO_HOST else upstream.host


@lru_cache(maxsize=256)  # each request asks, and only the settings have such URLs
def cloud_api_name_at(base_url: str) -> str:
    """Return the name of the API to which a base URL leads by itself, "" if it leads to none."""
    try:
        parts = urlsplit(base_url)
        address = f"{(parts.hostname or '').lower()}{parts.path or '/'}"
    except ValueError:
        return ""
    return next((name for name, api in CLOUD_APIS.items() if api.address and api.address.search(address)), "")


@lru_cache(maxsize=256)
def region_at(api: str, base_url: str) -> str | None:
    """Return the region that a base URL has in its host."""
    address = CLOUD_APIS[api].address
    pattern = CLOUD_APIS["bedrock"].address if address is None else address
    found = pattern.search(f"{urlsplit(base_url).hostname or ''}/") if pattern is not None else None
    return None if found is None else found.groupdict().get("region")
