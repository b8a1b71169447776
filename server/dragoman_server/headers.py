"""Which headers pass, in both directions: allowlists, as data.

Strategy: nothing passes that is not named here. What a client sends to authenticate itself is for the gateway
and never reaches an upstream; what an upstream says about its own connection and cookies never reaches a
client. The upstream's key is added last, so that no other header can stand in for it.
"""

from collections.abc import Iterable, Mapping

from . import __version__
from .settings import ANTHROPIC_MESSAGES, ANY_VERSION, UpstreamSettings

HeaderList = list[tuple[str, str]]

# Only honest identity: an upstream is told who calls.
USER_AGENT = f"dragoman/{__version__}"

# What a client may tell an upstream of its own protocol. Feature switches belong to their protocol: a beta
# header of one vendor is noise or an error for another.
REQUEST_HEADERS: Mapping[str, frozenset[str]] = {
    "anthropic_messages": frozenset(
        {"anthropic-beta", "anthropic-version", "anthropic-user-profile-id", "anthropic-workspace-id"}
    ),
    "openai_chat": frozenset({"openai-beta", "idempotency-key"}),
    "openai_responses": frozenset({"openai-beta", "idempotency-key", "x-codex-beta-features"}),
}

# What every client may be told: when to come back, what is left of its limits, and what to quote to support.
RESPONSE_HEADERS = frozenset(
    {
        "retry-after",
        "retry-after-ms",
        "x-should-retry",
        "openai-processing-ms",
        "anthropic-organization-id",
    }
)
RESPONSE_PREFIXES = ("x-ratelimit-", "anthropic-ratelimit-")
REQUEST_ID_HEADERS = ("request-id", "x-request-id")

# Streams of these protocols begin with a figure that only the end of an answer tells: it is an estimate.
ESTIMATES: Mapping[str, HeaderList] = {ANTHROPIC_MESSAGES: [("dragoman-estimate", "input_tokens")]}

# What goes with every stream, beside its content type.
STREAM_HEADERS: HeaderList = [
    ("cache-control", "no-cache"),
    # nginx and its kin hold back a proxied response until a buffer is full, unless told not to.
    ("x-accel-buffering", "no"),
]
JSON_HEADERS: HeaderList = [("content-type", "application/json")]

# A client of Messages that names no version is an old one: they sent none before there were two.
_OLDEST_VERSION = "2023-06-01"


def for_upstream(
    upstream: UpstreamSettings,
    protocol: str,
    client_protocol: str,
    client_headers: Mapping[str, str],
    *,
    stream: bool,
    needed: Iterable[tuple[str, str]] = (),
) -> HeaderList:
    """The headers of a request to an upstream, with its key.

    needed: what the body demands when it was translated (TranslatedRequest.headers).
    """
    out: dict[str, str] = {
        "user-agent": USER_AGENT,
        "content-type": "application/json",
        "accept": "text/event-stream" if stream else "application/json",
    }
    if protocol == ANTHROPIC_MESSAGES:
        out["anthropic-version"] = _OLDEST_VERSION
    out.update(needed)
    if protocol == ANTHROPIC_MESSAGES and upstream.anthropic_version != ANY_VERSION:
        out["anthropic-version"] = upstream.anthropic_version
    if protocol == client_protocol:
        allowed = REQUEST_HEADERS.get(protocol, frozenset())
        out.update({name: client_headers[name] for name in allowed if name in client_headers})
    own = {name.lower(): value.reveal() for name, value in upstream.headers.items()}
    if "anthropic-beta" in own and "anthropic-beta" in out:
        # Both are lists of switches. One that is configured does not turn the others off.
        own["anthropic-beta"] = _merged(out["anthropic-beta"], own["anthropic-beta"])
    out.update(own)
    if upstream.api_key:
        name, prefix = _key_header(upstream, protocol)
        out[name] = prefix + upstream.api_key.reveal()
    return list(out.items())


def _merged(*lists: str) -> str:
    """One header's value from the values of several, without repeats."""
    values = (value.strip() for each in lists for value in each.split(","))
    return ",".join(dict.fromkeys(filter(None, values)))


def _key_header(upstream: UpstreamSettings, protocol: str) -> tuple[str, str]:
    if upstream.auth == "x-api-key" or (upstream.auth == "auto" and protocol == ANTHROPIC_MESSAGES):
        return "x-api-key", ""
    return "authorization", "Bearer "


def for_client(upstream_headers: Iterable[tuple[str, str]]) -> HeaderList:
    """Those of an upstream's response headers that its answer's client may see, the request id aside."""
    return [
        (name, value)
        for name, value in upstream_headers
        if name in RESPONSE_HEADERS or name.startswith(RESPONSE_PREFIXES)
    ]


def request_ids(upstream_headers: Iterable[tuple[str, str]], own_id: str) -> HeaderList:
    """The id to quote to support, under both vendors' names: the upstream's, else ours; and always ours."""
    found = next((value for name, value in upstream_headers if name in REQUEST_ID_HEADERS), own_id)
    return [*((name, found) for name in REQUEST_ID_HEADERS), ("dragoman-request-id", own_id)]
