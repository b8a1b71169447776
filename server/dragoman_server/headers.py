"""Which headers pass, in both directions: allowlists, as data.

Strategy: nothing passes that is not named here. What a client sends to authenticate itself is for the gateway
and never reaches an upstream; what an upstream says about its own connection and cookies never reaches a
client. The upstream's key is added last, so that no other header can stand in for it.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from functools import lru_cache

from dragoman import UPSTREAMS
from dragoman.codec import ProtocolSpec, RateLimitHeaders, UpstreamSpec
from dragoman_server import __version__
from dragoman_server.settings import (
    ANY_VERSION,
    VERSION_HEADER,
    UpstreamSettings,
)
from dragoman_server.settings.secret import Secret

HeaderList = list[tuple[str, str]]

# Only honest identity: an upstream is told who calls.
USER_AGENT = f"dragoman/{__version__}"

# What every client may be told: when to come back, what is left of its limits, and what to quote to support.
RESPONSE_HEADERS = frozenset(
    {
        "retry-after",
        "retry-after-ms",
        "x-should-retry",
        "openai-processing-ms",
    }
)
REQUEST_ID_HEADERS = ("request-id", "x-request-id")

# What goes with streams of protocols that begin with figures of usage.
ESTIMATE_AT_START: HeaderList = [("dragoman-estimate", "input_tokens")]

# What goes with every stream, beside its content type.
STREAM_HEADERS: HeaderList = [
    ("cache-control", "no-cache"),
    # nginx and its kin hold back a proxied response until a buffer is full, unless told not to.
    ("x-accel-buffering", "no"),
]
JSON_HEADERS: HeaderList = [("content-type", "application/json")]

# For browsers that do not report which page a request comes from: no page of another origin can load a whole answer as
# an image or a script, and no browser guesses another content type.
BROWSER_HEADERS: HeaderList = [
    ("x-content-type-options", "nosniff"),
    ("cross-origin-resource-policy", "same-origin"),
]

# The header for each value of the setting `auth` that names one.
_AUTH_HEADERS = {"bearer": "authorization", "x-api-key": "x-api-key"}


def encode_headers(headers: HeaderList) -> list[tuple[bytes, bytes]]:
    """Encode headers as ASGI has them. Values came through HTTP before, so latin-1 can hold them."""
    return [(name.encode("ascii"), value.encode("latin-1", "replace")) for name, value in headers]


def for_upstream(
    upstream: UpstreamSettings,
    protocol: UpstreamSpec,
    client: ProtocolSpec | None,
    client_headers: Mapping[str, str],
    *,
    stream: bool,
    needed: Iterable[tuple[str, str]] = (),
    api_key: Secret | None = None,
) -> HeaderList:
    """Return the headers of a request to an upstream, with an account's key.

    client: the protocol of the client who sends `client_headers`; None where the gateway itself asks.
    needed: what the body demands when it was translated (TranslatedRequest.headers).
    """
    out: dict[str, str] = {
        "user-agent": USER_AGENT,
        "content-type": "application/json",
        "accept": "text/event-stream" if stream else "application/json",
    }
    if protocol.version_header is not None:
        name, default = protocol.version_header
        out[name] = default
    out.update(needed)
    if VERSION_HEADER in out and upstream.anthropic_version != ANY_VERSION:
        out[VERSION_HEADER] = upstream.anthropic_version
    # Feature switches belong to their protocol: a beta header of one vendor is noise or an error for another.
    if client is not None and client.name == protocol.name:
        allowed = protocol.forwarded_headers
        out.update({name: client_headers[name] for name in allowed if name in client_headers})
    own = {name.lower(): value.reveal() for name, value in upstream.headers.items()}
    for name in protocol.list_headers & own.keys() & out.keys():
        # Both are lists of switches. One that is configured does not turn the others off.
        own[name] = _merged(out[name], own[name])
    out.update(own)
    out["user-agent"] = USER_AGENT
    return with_key(list(out.items()), upstream, protocol, api_key)


def with_key(
    headers: Iterable[tuple[str, str]],
    upstream: UpstreamSettings,
    protocol: UpstreamSpec,
    api_key: Secret | None,
) -> HeaderList:
    """The headers with the key of another account."""
    if api_key is None:
        return list(headers)
    name = _AUTH_HEADERS.get(upstream.auth, protocol.auth_header)
    prefix = "Bearer " if name == "authorization" else ""
    return [*((other, value) for other, value in headers if other != name), (name, prefix + api_key.reveal())]


def _merged(*lists: str) -> str:
    """One header's value from the values of several, without repeats."""
    values = (value.strip() for each in lists for value in each.split(","))
    return ",".join(dict.fromkeys(filter(None, values)))


def for_client(upstream_headers: Iterable[tuple[str, str]], protocol: ProtocolSpec) -> HeaderList:
    """Return those of an upstream's response headers that its answer's client may see, the request id aside.

    protocol: the upstream's.
    """
    prefixes = _prefixes(protocol.rate_limit_headers)
    return [
        (name, value)
        for name, value in upstream_headers
        if name in RESPONSE_HEADERS or name.startswith(prefixes)
    ]


def limit_headers(
    names: RateLimitHeaders | None, limit: str, most: int, *, now: float, until: float
) -> HeaderList:
    """Return what a client reads of a limit of ours that is used up.

    names: those of the client's protocol.

    limit: what is counted, in the vendors' word: requests or tokens. most: so many a minute. now, until: seconds since
    the epoch; there is room again at `until`.
    """
    wait = max(0.0, until - now)
    headers = [("retry-after", f"{math.ceil(wait)}"), ("retry-after-ms", f"{math.ceil(wait * 1000)}")]
    if names is not None:
        reset = _RESETS[names.reset](now, now + wait)
        headers += [
            (names.header(limit, "limit"), f"{most}"),
            (names.header(limit, "remaining"), "0"),
            (names.header(limit, "reset"), reset),
        ]
    return headers


def _duration(now: float, until: float) -> str:
    """As OpenAI writes it: `12.5s`, `6m0s`."""
    minutes, seconds = divmod(math.ceil((until - now) * 1000) / 1000, 60)
    return (f"{minutes:.0f}m" if minutes else "") + f"{seconds:g}s"


def _moment(now: float, until: float) -> str:
    """ "The time when the limit will be fully replenished, in RFC 3339 format." """
    return f"{datetime.fromtimestamp(math.ceil(until), UTC):%Y-%m-%dT%H:%M:%SZ}"


# By RateLimitHeaders.reset.
_RESETS: Mapping[str, Callable[[float, float], str]] = {"duration": _duration, "time": _moment}


def request_ids(upstream_headers: Iterable[tuple[str, str]], own_id: str) -> HeaderList:
    """The id to quote to support, under both vendors' names: the upstream's, else ours; and always ours."""
    found = next((value for name, value in upstream_headers if name in REQUEST_ID_HEADERS), own_id)
    return [*((name, found) for name in REQUEST_ID_HEADERS), ("dragoman-request-id", own_id)]


def remaining_of(headers: Iterable[tuple[str, str]], protocol: ProtocolSpec) -> float | None:
    """Return the share of its rate limit that an account has left, from 0 to 1; of several limits the nearest one.

    protocol: the upstream's.
    """
    found = dict(headers)
    shares = []
    for limit, left in _limits(protocol.rate_limit_headers):
        try:
            most, rest = float(found[limit]), float(found[left])
        except (KeyError, ValueError):
            continue
        if 0 < most < float("inf") and 0 <= rest <= most:
            shares.append(rest / most)
    return min(shares, default=None)


# Hosts that pass on what another server answered send that one's headers, whatever protocol they speak.
@lru_cache
def _names(own: RateLimitHeaders | None) -> tuple[RateLimitHeaders, ...]:
    """Return the names of headers that an upstream may send, `own` being those of its protocol."""
    known = (spec.rate_limit_headers for spec in UPSTREAMS.values())
    return tuple(dict.fromkeys(each for each in (*known, own) if each is not None))


@lru_cache
def _prefixes(own: RateLimitHeaders | None) -> tuple[str, ...]:
    return tuple(names.prefix for names in _names(own))


@lru_cache
def _limits(own: RateLimitHeaders | None) -> tuple[tuple[str, str], ...]:
    """Return pairs of names: the limit, and what is left of it."""
    return tuple(
        (names.header(limit, "limit"), names.header(limit, "remaining"))
        for names in _names(own)
        for limit in names.limits
    )
