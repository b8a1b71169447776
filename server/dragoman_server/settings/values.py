"""Check one value against its key: its type and limits with msgspec, then the form that its kind has.

Errors quote only `raw`, the text before interpolation, so they contain nothing from a variable or a file.
"""

import ipaddress
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, date, datetime
from itertools import chain
from typing import Any
from urllib.parse import SplitResult, urlsplit

import msgspec

from dragoman import UPSTREAMS
from dragoman.codec import MODEL_IN_PATH, UpstreamSpec
from dragoman_server.platform.extras import missing_extra
from dragoman_server.settings.fields import SettingKind, SettingSpec
from dragoman_server.settings.problems import did_you_mean, quote_value, type_name
from dragoman_server.settings.secret import Secret
from dragoman_server.settings.server import LOOPBACK_ORIGINS
from dragoman_server.settings.upstreams import VERSION_HEADER

NAME = r"[A-Za-z0-9][A-Za-z0-9._-]*"
_HOST = r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?"
_HOST_PATTERN = r"[a-z0-9._*-]+"
# A token (RFC 9110, 5.6.2).
_TOKEN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
# RFC 9110, 5.5: visible characters, with spaces and tabs between them; obs-text is left out on purpose.
_FIELD_VALUE = r"[\x21-\x7e]([\x20-\x7e\t]*[\x21-\x7e])?"
_VISIBLE = r"[\x21-\x7e]+"
_DATE = r"\d{4}-\d\d-\d\d"
_NO_URL = "{} is not a URL: it has spaces, control characters or characters outside ASCII"

# The form of a text by its kind, and the error for others, in which {} is the text as it was written.
_FORMS: dict[SettingKind, tuple[str, str]] = {
    SettingKind.TEXT: (_FIELD_VALUE, "{} has characters that are not allowed in a header"),
    SettingKind.NAME: (
        NAME,
        "{} is not a valid name: use letters, digits, dots, dashes and underscores",
    ),
    SettingKind.PATH: (r"[^\0]+", "{} is not a file name"),
    SettingKind.SECRET: (
        _VISIBLE,
        "has spaces, line ends or characters outside ASCII, which a key cannot have",
    ),
    SettingKind.HASH: (
        r"[0-9a-f]{64}",
        "is not the hash of a key: write what `dragoman keys add` printed",
    ),
    SettingKind.HEADERS: (_FIELD_VALUE, "has line ends or other characters that are not allowed in a header"),
    # urlsplit drops tabs and line ends without an error, so they are checked first.
    SettingKind.ORIGINS: (_VISIBLE, _NO_URL),
    SettingKind.URL: (_VISIBLE, _NO_URL),
    SettingKind.PROXY: (_VISIBLE, _NO_URL),
}


# Headers that cannot be set, by their names in lower case.
_OWN_HEADERS = (
    # They frame or route a message: only the HTTP client sets them.
    (
        "connection|content-length|expect|host|keep-alive|proxy-connection|te|trailer|transfer-encoding|upgrade",
        "this header belongs to the connection and cannot be set",
    ),
    # Clients identify themselves by these, vendors' SDKs by x-stainless. The gateway sends its own.
    (
        "originator|user-agent|x-app|x-stainless-.*",
        "this header identifies the sender, and the gateway sends its own",
    ),
    # The translation depends on it.
    (VERSION_HEADER, "this header has its own setting: anthropic_version"),
)

_SWITCHES = {"true": True, "yes": True, "on": True, "1": True}
_SWITCHES |= {"false": False, "no": False, "off": False, "0": False}

# A version of an API, as vendors have it in their paths: /v1, /v1beta.
API_VERSION = r"/v1[a-z0-9]*"


def repeated_version(base_url: str, path: str) -> str:
    """Return the version at the end of a base URL; "" without one, or if the path behind it begins with none."""
    found = re.search(f"{API_VERSION}$", urlsplit(base_url).path)
    return found.group() if found is not None and re.match(f"{API_VERSION}/", path) else ""


def endpoints_of(spec: UpstreamSpec) -> list[str]:
    """Return where a protocol is requested, behind the version of its API."""
    paths = [spec.path, *filter(None, [spec.stream_path])]
    return [re.sub(f"^{API_VERSION}", "", path.partition("?")[0]) for path in paths]


def without_endpoint(url: str, endpoint: str) -> str:
    """Return a URL without an endpoint at its end. endpoint: see endpoints_of()."""
    pattern = re.escape(endpoint).replace(re.escape(MODEL_IN_PATH), ".+")
    return re.sub(f"{pattern}/*$", "", url)


# People paste these from a vendor's API reference, although base_url is an SDK's base URL.
_ENDPOINTS = (*chain.from_iterable(map(endpoints_of, UPSTREAMS.values())), "/completions")


class InvalidValue(Exception):
    """The value is wrong. The text contains no secret. `at` is its place in what was checked."""

    def __init__(self, text: str, *at: int | str) -> None:
        super().__init__(text)
        self.at = at


def check_value(key: SettingSpec, value: object, raw: object) -> object:
    """Return the value for the settings. raw: the value before interpolation. Raises InvalidValue."""
    if not key.many:
        return _check_one(key, value, raw)
    if not isinstance(value, list) or not isinstance(raw, list):
        elements = "integers" if key.kind is SettingKind.STATUSES else "strings"
        raise InvalidValue(f"expected an array of {elements}, found {type_name(value)}")
    found: list[object] = []
    for index, (element, raw_element) in enumerate(zip(value, raw, strict=True)):
        try:
            found.append(_check_one(key, element, raw_element))
        except InvalidValue as error:
            raise InvalidValue(str(error), index) from None
        if key.kind is not SettingKind.STATUSES and found[-1] in found[:-1]:
            raise InvalidValue(f"{quote_value(raw_element)} is listed twice", index)
    return tuple(found)


def _check_one(key: SettingSpec, value: object, raw: object) -> object:
    try:
        if key.kind is SettingKind.TIME:
            value = _start_of_day(value)
        checked = msgspec.convert(value, key.type)
        if checked == "":
            raise InvalidValue("is empty")
        if key.choices and checked not in key.choices:
            raise InvalidValue(_choice_problem(key, str(raw)))
        form = _FORMS.get(key.kind)
        if form and not re.fullmatch(form[0], checked):
            raise InvalidValue(form[1])
        least = key.limits.min_length
        if least and len(checked) < least:
            raise InvalidValue(
                f"is too short: at least {least} characters are required, as from `openssl rand -hex 32`"
            )
        return _CHECKS[key.kind](checked) if key.kind in _CHECKS else checked
    except msgspec.ValidationError:
        problem = _type_problem(key, value)
    except InvalidValue as error:
        problem = str(error)
    # The URL of a proxy is never quoted, because it may contain credentials.
    raise InvalidValue(
        problem.replace("{}", "this value" if key.kind is SettingKind.PROXY else quote_value(raw))
    )


def _type_problem(key: SettingSpec, value: object) -> str:
    """Return the reason why msgspec refuses a value."""
    kind, limits = key.kind, key.limits
    if kind is SettingKind.STATUSES:
        return "{} is not an HTTP status"
    if limits.ge is None or type(value) not in (int, kind.base):
        return f"expected {kind.expected}, found {type_name(value)}"
    if kind is SettingKind.INTEGER:
        return f"{{}} is out of range: from {limits.ge} to {limits.le}"
    return f"{{}} is out of range: from {limits.ge:g} to {limits.le:g} {kind.label}"


def _choice_problem(key: SettingSpec, raw: str) -> str:
    # A suggestion quotes nothing of the value.
    hint = did_you_mean(raw, key.choices) or "; valid values are " + ", ".join(map(quote_value, key.choices))
    return f"unknown {key.name.removesuffix('s')} {{}}{hint}"


def parse_text(key: SettingSpec, text: str) -> object:
    """Parse a text of the environment or the command line into the value that TOML would have. Raises InvalidValue."""
    if key.many:
        return [part.strip() for part in text.split(",") if part.strip()]
    try:
        if key.kind is SettingKind.SWITCH:
            return _SWITCHES[text.strip().lower()]
        return key.kind.base(text) if key.kind.base in (int, float) else text
    except (ValueError, KeyError):
        raise InvalidValue(f"expected {key.kind.expected}, found {quote_value(text)}") from None


def _host(text: str) -> str:
    text = text.removeprefix("[").removesuffix("]")
    if not re.fullmatch(_HOST, text) and not is_address(text):
        raise InvalidValue("{} is neither a host name nor an IP address")
    return text


def _allowed_host(text: str) -> str:
    text = text.lower().removeprefix("[").removesuffix("]")
    if not re.fullmatch(_HOST_PATTERN, text) and not is_address(text):
        raise InvalidValue('{} is not a host name: write it without scheme and port, such as "*.example.com"')
    return text


def is_address(text: str) -> bool:
    """True for an IP address."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """True if only this machine can reach a socket that is bound to `host`."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
    # Before 3.13, Python did not count ::ffff:127.0.0.1 as a loopback address.
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


def _origin(text: str) -> str:
    # The Fetch standard compares origins as strings: scheme, host and port, without a slash at the end.
    if text in ("*", "null", LOOPBACK_ORIGINS):
        return text
    if _split(text).path or any(sign in text for sign in "?#@"):
        raise InvalidValue(
            '{} is not an origin: write "https://host" or "https://host:port", '
            f'"{LOOPBACK_ORIGINS}" for the pages of this machine, or "*" for any'
        )
    return text.lower()


def _network(text: str) -> str:
    try:
        return str(ipaddress.ip_network(text, strict=False))
    except ValueError:
        raise InvalidValue(
            '{} is neither an IP address nor a network: write one such as "127.0.0.1" or "10.0.0.0/8"'
        ) from None


def _split(text: str) -> SplitResult:
    if "://" not in text:
        raise InvalidValue('{} has no scheme: write "http://..." or "https://..."')
    try:
        url = urlsplit(text)
        port = url.port
    except ValueError:
        # The exception's own text quotes parts of the URL, which may come from a secret.
        raise InvalidValue("{} is not a URL: its host or port is malformed") from None
    if not url.hostname:
        raise InvalidValue("{} has no host")
    if port == 0:
        raise InvalidValue("{} has port 0")
    return url


def _url(text: str) -> str:
    url = _split(text)
    if "@" in url.netloc:
        raise InvalidValue("{} has credentials in it: put them into api_key or headers")
    if url.scheme not in ("http", "https"):
        raise InvalidValue('{} has an unknown scheme; valid schemes are "http" and "https"')
    if "?" in text or "#" in text:
        raise InvalidValue("{} has a query or a fragment: a base URL ends with its path")
    for endpoint in _ENDPOINTS:
        if without_endpoint(url.path, endpoint) != url.path:
            shown = endpoint.replace(MODEL_IN_PATH, "...")
            raise InvalidValue(f'{{}} is an endpoint, not a base URL: leave "{shown}" out')
    return text.rstrip("/")


def _proxy(text: str) -> Secret:
    if _split(text).scheme not in ("http", "https", "socks5", "socks5h"):
        raise InvalidValue('has an unknown scheme; valid schemes are "http", "https", "socks5", "socks5h"')
    if (missing := missing_socks(text)) is not None:
        raise InvalidValue(missing)
    return Secret(text)


def proxies_of(environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the variables by which HTTP clients take a proxy, each with its URL."""
    for name, value in environ.items():
        if name.lower() in ("http_proxy", "https_proxy", "all_proxy") and value:
            yield name, value


def missing_socks(url: str) -> str | None:
    """Return what to do if `url` is a SOCKS proxy's, and the extra for them is not installed; else None."""
    missing = missing_extra("socks") if url.lower().startswith("socks") else None
    return None if missing is None else f"a SOCKS proxy {missing}"


def _start_of_day(value: object) -> object:
    """Return the time at which a date begins, in UTC; anything else as it is."""
    if isinstance(value, str) and re.fullmatch(_DATE, value):
        return f"{value}T00:00:00Z"
    if isinstance(value, date) and not isinstance(value, datetime):
        return datetime(value.year, value.month, value.day, tzinfo=UTC)
    return value


def _time(value: datetime) -> datetime:
    if value.tzinfo is None:
        raise InvalidValue("{} has no offset from UTC: write a date, or a time such as 2026-12-31T18:00:00Z")
    return value.astimezone(UTC)


_CHECKS: dict[SettingKind, Callable[[Any], object]] = {
    SettingKind.HOST: _host,
    SettingKind.HOSTS: _allowed_host,
    SettingKind.ORIGINS: _origin,
    SettingKind.NETWORKS: _network,
    SettingKind.URL: _url,
    SettingKind.PROXY: _proxy,
    SettingKind.TIME: _time,
    SettingKind.SECRET: Secret,
    SettingKind.HEADERS: Secret,  # any header may carry a key
}


def header_name(name: str) -> str:
    """Return the name in lower case. Raises InvalidValue."""
    if not re.fullmatch(_TOKEN, name):
        raise InvalidValue("is not a header name")
    for pattern, problem in _OWN_HEADERS:
        if re.fullmatch(pattern, name.lower()):
            raise InvalidValue(problem)
    return name.lower()
