"""Filter headers in both directions by allowlists.

A header that is on no list is dropped. The lists of requests are `UpstreamSpec.forwarded_headers`; those of responses
are RESPONSE_HEADERS here, `UpstreamSpec.response_headers` and `rate_limit_headers`. A client's credentials are for the
gateway and never reach an upstream, nor does its Idempotency-Key: clients share accounts, and a server would take equal
keys of two of them, or all requests that become of one with several choices, for one request. An upstream's headers
about its connection and its cookies never reach a client. The upstream's key is added last, so that no other header can
replace it.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache

from dragoman import UPSTREAMS, Ledger
from dragoman.codec import ProtocolSpec, RateLimitHeaders, UpstreamSpec
from dragoman_server import __version__
from dragoman_server.platform.clock import utc_text
from dragoman_server.settings import UpstreamSettings
from dragoman_server.settings.secret import Secret
from dragoman_server.settings.upstreams import AUTO_VERSION, VERSION_HEADER

HeaderList = list[tuple[str, str]]

# The gateway identifies itself, and never as the client.
USER_AGENT = f"dragoman/{__version__}"

# Headers for all clients, whatever protocol the upstream speaks: when to retry, and the id to quote to support.
RESPONSE_HEADERS = frozenset({"retry-after", "retry-after-ms", "x-should-retry"})
REQUEST_ID_HEADERS = ("request-id", "x-request-id")

# For streams of protocols that begin with usage figures.
ESTIMATE_AT_START: HeaderList = [("dragoman-estimate", "input_tokens")]

# For every stream, in addition to its content type.
STREAM_HEADERS: HeaderList = [
    ("cache-control", "no-cache"),
    # Without this, nginx and similar proxies hold back a response until a buffer is full.
    ("x-accel-buffering", "no"),
]
JSON_HEADERS: HeaderList = [("content-type", "application/json")]

# For browsers that do not send the origin of a page: no page of another origin can load a response as an image or a
# script, and no browser guesses another content type.
BROWSER_HEADERS: HeaderList = [
    ("x-content-type-options", "nosniff"),
    ("cross-origin-resource-policy", "same-origin"),
]
# For what only the operator may read.
OPERATOR_HEADERS: HeaderList = [("cache-control", "no-store"), *BROWSER_HEADERS]

# Header lines have limits (8 KiB in common servers), and a ledger may have a thousand entries.
_LOSS_HEADER_BYTES = 1024

# Names of upstreams' headers that are kept. Some send sixty, always the same ones.
_MAX_KEPT_NAMES = 512

# The header for each value of the setting `auth` that names one.
_AUTH_HEADERS = {"bearer": "authorization", "x-api-key": "x-api-key", "api-key": "api-key"}


def encode_headers(headers: HeaderList) -> list[tuple[bytes, bytes]]:
    """Encode headers for ASGI. Values came through HTTP before, so latin-1 can encode them."""
    return [(name.encode("ascii"), value.encode("latin-1", "replace")) for name, value in headers]


def upstream_request_headers(
    upstream: UpstreamSettings,
    protocol: UpstreamSpec,
    client: ProtocolSpec | None,
    client_headers: Mapping[str, str],
    *,
    stream: bool,
    needed: Iterable[tuple[str, str]] = (),
) -> HeaderList:
    """Return the headers of a request to an upstream, without the key of an account: see with_key().

    client: the protocol of the client that sent `client_headers`; None for a request of the gateway itself.
    needed: headers that a translated body requires (TranslatedRequest.headers).
    """
    out: dict[str, str] = {
        "user-agent": USER_AGENT,
        "content-type": "application/json",
        "accept": protocol.framing.media_type if stream else "application/json",
    }
    if protocol.version_header is not None:
        name, default = protocol.version_header
        out[name] = default
    out.update(needed)
    if VERSION_HEADER in out and upstream.anthropic_version != AUTO_VERSION:
        out[VERSION_HEADER] = upstream.anthropic_version
    # Feature switches belong to their protocol: a beta header of one vendor is ignored or refused by another.
    if client is not None and client.name == protocol.name:
        allowed = protocol.forwarded_headers
        out.update({name: client_headers[name] for name in allowed if name in client_headers})
    for given, secret in upstream.headers.items():
        name, value = given.lower(), secret.reveal()
        # Both are lists of switches. A configured one does not turn the others off.
        out[name] = join_lists(out[name], value) if name in protocol.list_headers and name in out else value
    out["user-agent"] = USER_AGENT
    return list(out.items())


def with_key(
    headers: Sequence[tuple[str, str]],
    upstream: UpstreamSettings,
    protocol: UpstreamSpec,
    api_key: Secret,
    of_host: Sequence[str] = (),
) -> HeaderList:
    """Return the headers with the key of an account. No other header can replace it.

    of_host: the headers in which its host has keys, none for that of the protocol.
    """
    named = _AUTH_HEADERS.get(upstream.auth)
    names = of_host or (protocol.auth_header,) if named is None else (named,)
    key = api_key.reveal()
    authorized = [header for header in headers if header[0] not in names]
    for name in names:
        authorized.append((name, f"Bearer {key}" if name == "authorization" else key))
    return authorized


def join_lists(*lists: str) -> str:
    """Join the values of list headers, without repeats."""
    values = (value.strip() for text in lists for value in text.split(","))
    return ",".join(dict.fromkeys(filter(None, values)))


def media_type(headers: Iterable[tuple[str, str]]) -> str:
    """Return the media type of a body, in lower case and without its parameters, "" if it has none."""
    return dict(headers).get("content-type", "").partition(";")[0].strip().lower()


def client_response_headers(
    upstream_headers: Iterable[tuple[str, str]],
    protocol: UpstreamSpec,
    gateway_id: str,
    scrub: Callable[[list[str]], list[str]] = list,
) -> HeaderList:
    """Return the headers of an upstream's response that the client may see, with the ids of the request.

    protocol: the upstream's. gateway_id: see request_id_headers(). scrub: removes secrets from values.
    """
    is_visible = _visible(protocol.response_headers, protocol.rate_limit_headers)
    names: list[str] = []
    values: list[str] = []
    ids: list[str] = []
    for name, value in upstream_headers:
        visible = is_visible(name)
        if visible:
            names.append(name)
            values.append(value)
        elif visible is None and not ids:
            ids.append(value)
    if not (values or ids):
        return request_id_headers(gateway_id)
    texts = scrub(values + ids)
    headers = request_id_headers(gateway_id, texts.pop() if ids else None)
    return [*zip(names, texts), *headers] if names else headers  # noqa: B905


def retry_headers(wait: float) -> HeaderList:
    """Return the headers with the seconds after which a retry makes sense."""
    return [("retry-after", f"{math.ceil(wait)}"), ("retry-after-ms", f"{math.ceil(wait * 1000)}")]


def limit_headers(
    names: RateLimitHeaders | None, limit: str, per_minute: int, *, now: float, until: float
) -> HeaderList:
    """Return the rate limit headers of a limit of the gateway that is reached.

    names: the client's protocol's. limit: the unit in the vendors' word: requests or tokens.
    per_minute: the limit. now, until: seconds since the epoch; there is room again at `until`.
    """
    wait = max(0.0, until - now)
    headers = retry_headers(wait)
    if names is not None:
        reset = _RESETS[names.reset](now, now + wait)
        headers += [
            (names.header(limit, "limit"), f"{per_minute}"),
            (names.header(limit, "remaining"), "0"),
            (names.header(limit, "reset"), reset),
        ]
    return headers


def _duration(now: float, until: float) -> str:
    """Format a duration as OpenAI does: `12.5s`, `6m0s`."""
    minutes, seconds = divmod(math.ceil((until - now) * 1000) / 1000, 60)
    return (f"{minutes:.0f}m" if minutes else "") + f"{seconds:g}s"


def _moment(now: float, until: float) -> str:
    """Format the time at which a limit is replenished as Anthropic does, by RFC 3339."""
    return utc_text(math.ceil(until))


# By RateLimitHeaders.reset.
_RESETS: Mapping[str, Callable[[float, float], str]] = {"duration": _duration, "time": _moment}


def request_id_headers(gateway_id: str, upstream_id: str | None = None) -> HeaderList:
    """Return the id to quote to support, under both vendors' names: the upstream's, else ours; and always ours.

    gateway_id: the gateway's id of the request. upstream_id: None if the upstream has sent none.
    """
    request_id = gateway_id if upstream_id is None else upstream_id
    first, second = REQUEST_ID_HEADERS
    return [(first, request_id), (second, request_id), ("dragoman-request-id", gateway_id)]


def loss_header(of_request: Ledger, of_response: Ledger | None = None) -> HeaderList:
    """Return `dragoman-loss: N; code=path, ...`: the number of losses and, if there is room, their places.

    Paths are places in the client's body, or after `answer:` in the upstream's response.
    """
    if not of_request.entries and (of_response is None or not of_response.entries):
        return []
    entries = [f"{loss.code.value}={ascii(loss.path)[1:-1]}" for loss in of_request]
    entries += [f"{loss.code.value}=answer:{ascii(loss.path)[1:-1]}" for loss in of_response or ()]
    text = f"{len(of_request) + len(of_response or ())}"
    for number, entry in enumerate(entries):
        more = f"{', ' if number else '; '}{entry}"
        if len(text) + len(more) > _LOSS_HEADER_BYTES:
            text += ", ..."
            break
        text += more
    return [("dragoman-loss", text)]


def remaining_share(headers: Iterable[tuple[str, str]], protocol: UpstreamSpec) -> float | None:
    """Return the share of its rate limit that an account has left, 0 to 1, None if unknown; the smallest of several.

    protocol: the upstream's.
    """
    values = dict(headers)
    shares = []
    for limit, left in _limits(protocol.rate_limit_headers):
        if limit not in values or left not in values:
            continue  # as most of them
        try:
            maximum, remaining = float(values[limit]), float(values[left])
        except ValueError:
            continue
        if 0 < maximum < float("inf") and 0 <= remaining <= maximum:
            shares.append(remaining / maximum)
    return min(shares, default=None)


# Hosts that pass on another server's response send that server's headers, whatever protocol they speak.
@lru_cache
def _names(of_protocol: RateLimitHeaders | None) -> tuple[RateLimitHeaders, ...]:
    """Return the names of headers that an upstream may send, `of_protocol` being its protocol's own."""
    known = (spec.rate_limit_headers for spec in UPSTREAMS.values())
    return tuple(dict.fromkeys(names for names in (*known, of_protocol) if names is not None))


@lru_cache
def _visible(of_protocol: frozenset[str], limits: RateLimitHeaders | None) -> Callable[[str], bool | None]:
    """Return what tells by its name whether clients may see a header. It returns None for an id of the request."""
    known = (spec.response_headers for spec in UPSTREAMS.values())
    visible = RESPONSE_HEADERS.union(of_protocol, *known)
    prefixes = tuple(names.prefix for names in _names(limits))

    @lru_cache(maxsize=_MAX_KEPT_NAMES)
    def is_visible(name: str) -> bool | None:
        return name in visible or name.startswith(prefixes) or (None if name in REQUEST_ID_HEADERS else False)

    return is_visible


@lru_cache
def _limits(of_protocol: RateLimitHeaders | None) -> tuple[tuple[str, str], ...]:
    """Return pairs of header names: of a limit, and of what remains of it."""
    return tuple(
        (names.header(limit, "limit"), names.header(limit, "remaining"))
        for names in _names(of_protocol)
        for limit in names.limits
    )
