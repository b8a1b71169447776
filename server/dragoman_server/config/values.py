"""Check one value against its key, with one function for each kind of setting.

Each function takes the value and `raw`, the text before interpolation, and returns the value for the settings or raises
InvalidValue. Messages quote only `raw`, so they contain nothing from a variable or a file.
"""

import ipaddress
import re
from collections.abc import Callable
from urllib.parse import SplitResult, urlsplit

from dragoman import UPSTREAMS
from dragoman_server.config.problems import did_you_mean, quote_value, type_name
from dragoman_server.settings import LOOPBACK_ORIGINS, VERSION_HEADER
from dragoman_server.settings.fields import SettingKind, SettingSpec
from dragoman_server.settings.secret import Secret

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
_HOST_PATTERN = re.compile(r"[a-z0-9._*-]+")
# A token (RFC 9110, 5.6.2).
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
# RFC 9110, 5.5: visible characters, with spaces and tabs between them; obs-text is left out on purpose.
_FIELD_VALUE = re.compile(r"[\x21-\x7e]([\x20-\x7e\t]*[\x21-\x7e])?")
_HASH = re.compile(r"[0-9a-f]{64}")
_VISIBLE = re.compile(r"[\x21-\x7e]+")

# These frame or route a message: only the HTTP client sets them.
_FRAMING_HEADERS = frozenset(
    {
        "connection",
        "content-length",
        "expect",
        "host",
        "keep-alive",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)

# Headers by which clients identify themselves. The gateway sends its own.
_IDENTITY_HEADERS = frozenset({"originator", "user-agent", "x-app"})
_IDENTITY_PREFIX = "x-stainless-"  # of the vendors' SDKs

# The translation depends on them, so they are settings.
_OWN_SETTINGS = {VERSION_HEADER: "anthropic_version"}

_SWITCHES = {"true": True, "yes": True, "on": True, "1": True}
_SWITCHES |= {"false": False, "no": False, "off": False, "0": False}

_PROXY_SCHEMES = ("http", "https", "socks5", "socks5h")

# People paste these from a vendor's API reference, although base_url is an SDK's base URL.
_ENDPOINTS = (*(spec.path.removeprefix("/v1") for spec in UPSTREAMS.values()), "/completions")


class InvalidValue(Exception):
    """The value is wrong. The text contains no secret. `at` is the index of the wrong element, if it is a list."""

    def __init__(self, text: str, *at: int) -> None:
        super().__init__(text)
        self.at = at


def check_value(key: SettingSpec, value: object, raw: object) -> object:
    """Return the value for the settings. raw: the value before interpolation. Raises InvalidValue."""
    return _CHECKS[key.kind](key, value, raw)


def parse_text(key: SettingSpec, text: str) -> object:
    """Parse a text of the environment or the command line into the value that TOML would have. Raises InvalidValue."""
    if key.kind in _LISTS:
        return [part.strip() for part in text.split(",") if part.strip()]
    parse, what = _TEXT_PARSERS.get(key.kind, (str, ""))
    try:
        return parse(text)
    except (ValueError, KeyError):
        raise InvalidValue(f"expected {what}, found {quote_value(text)}") from None


_LISTS = frozenset({SettingKind.NAMES, SettingKind.CHOICES, SettingKind.HOSTS, SettingKind.ORIGINS})
_TEXT_PARSERS: dict[SettingKind, tuple[Callable[[str], object], str]] = {
    SettingKind.INTEGER: (int, "an integer"),
    SettingKind.SECONDS: (float, "a number of seconds"),
    SettingKind.SWITCH: (lambda text: _SWITCHES[text.strip().lower()], "true or false"),
}


def _string(value: object) -> str:
    if not isinstance(value, str):
        raise InvalidValue(f"expected a string, found {type_name(value)}")
    if not value:
        raise InvalidValue("is empty")
    return value


def _text(key: SettingSpec, value: object, raw: object) -> str:
    text = _string(value)
    if not _FIELD_VALUE.fullmatch(text):
        raise InvalidValue(f"{quote_value(raw)} has characters that are not allowed in a header")
    return text


def _name(key: SettingSpec, value: object, raw: object) -> str:
    text = _string(value)
    if not _NAME.fullmatch(text):
        raise InvalidValue(
            f"{quote_value(raw)} is not a valid name: use letters, digits, dots, dashes and underscores"
        )
    return text


def _host(key: SettingSpec, value: object, raw: object) -> str:
    text = _string(value).removeprefix("[").removesuffix("]")
    if not _HOST.fullmatch(text) and not _is_address(text):
        raise InvalidValue(f"{quote_value(raw)} is neither a host name nor an IP address")
    return text


def _is_address(text: str) -> bool:
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


def _integer(key: SettingSpec, value: object, raw: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidValue(f"expected an integer, found {type_name(value)}")
    if not key.low <= value <= key.high:
        raise InvalidValue(f"{quote_value(raw)} is out of range: from {key.low:.0f} to {key.high:.0f}")
    return value


def _seconds(key: SettingSpec, value: object, raw: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidValue(f"expected a number of seconds, found {type_name(value)}")
    # Not-a-number compares false with everything, so the test is that the value is inside.
    if not key.low <= value <= key.high:
        raise InvalidValue(f"{quote_value(raw)} is out of range: from {key.low:g} to {key.high:g} seconds")
    return float(value)


def _dollars(key: SettingSpec, value: object, raw: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidValue(f"expected a number of US dollars, found {type_name(value)}")
    if not key.low <= value <= key.high:  # not-a-number is outside as well
        raise InvalidValue(f"{quote_value(raw)} is out of range: from {key.low:g} to {key.high:g} US dollars")
    return float(value)


def _switch(key: SettingSpec, value: object, raw: object) -> bool:
    if not isinstance(value, bool):
        raise InvalidValue(f"expected true or false, found {type_name(value)}")
    return value


def _choice(key: SettingSpec, value: object, raw: object) -> str:
    text = _string(value)
    if text not in key.choices:
        noun = key.name.removesuffix("s")
        # A suggestion quotes nothing of the value, but only a plain text is worth comparing.
        hint = did_you_mean(raw, key.choices) if isinstance(raw, str) else ""
        hint = hint or "; valid values are " + ", ".join(quote_value(choice) for choice in key.choices)
        raise InvalidValue(f"unknown {noun} {quote_value(raw)}{hint}")
    return text


def _statuses(key: SettingSpec, value: object, raw: object) -> tuple[int, ...]:
    if not isinstance(value, list):
        raise InvalidValue(f"expected an array of integers, found {type_name(value)}")
    for index, each in enumerate(value):
        if isinstance(each, bool) or not isinstance(each, int) or not 100 <= each <= 599:
            raise InvalidValue(f"{quote_value(each)} is not an HTTP status", index)
    return tuple(value)


def _each(
    check_one: Callable[[SettingSpec, object, object], str],
) -> Callable[[SettingSpec, object, object], tuple[str, ...]]:
    def check_all(key: SettingSpec, value: object, raw: object) -> tuple[str, ...]:
        if not isinstance(value, list) or not isinstance(raw, list):
            raise InvalidValue(f"expected an array of strings, found {type_name(value)}")
        found: list[str] = []
        for index, (element, raw_element) in enumerate(zip(value, raw, strict=True)):
            try:
                found.append(check_one(key, element, raw_element))
            except InvalidValue as error:
                raise InvalidValue(str(error), index) from None
            if found[-1] in found[:-1]:
                raise InvalidValue(f"{quote_value(raw_element)} is listed twice", index)
        return tuple(found)

    return check_all


def _model(key: SettingSpec, value: object, raw: object) -> str:
    return _string(value)


def _allowed_host(key: SettingSpec, value: object, raw: object) -> str:
    text = _string(value).lower().removeprefix("[").removesuffix("]")
    if not _HOST_PATTERN.fullmatch(text) and not _is_address(text):
        raise InvalidValue(
            f'{quote_value(raw)} is not a host name: write it without scheme and port, such as "*.example.com"'
        )
    return text


def _origin(key: SettingSpec, value: object, raw: object) -> str:
    # The Fetch standard compares origins as strings: scheme, host and port, without a slash at the end.
    text = _string(value)
    if text in ("*", "null", LOOPBACK_ORIGINS):
        return text
    url = _split(text, quote_value(raw))
    if url.path or "?" in text or "#" in text or "@" in text:
        raise InvalidValue(
            f'{quote_value(raw)} is not an origin: write "https://host" or "https://host:port", '
            f'"{LOOPBACK_ORIGINS}" for the pages of this machine, or "*" for any'
        )
    return text.lower()


def _path(key: SettingSpec, value: object, raw: object) -> str:
    text = _string(value)
    if "\0" in text:
        raise InvalidValue(f"{quote_value(raw)} is not a file name")
    return text


def _split(text: str, quoted: str) -> SplitResult:
    # urlsplit drops tabs and line ends without an error, so they are checked first.
    if not _VISIBLE.fullmatch(text):
        raise InvalidValue(
            f"{quoted} is not a URL: it has spaces, control characters or characters outside ASCII"
        )
    if "://" not in text:
        raise InvalidValue(f'{quoted} has no scheme: write "http://..." or "https://..."')
    try:
        url = urlsplit(text)
        port = url.port
    except ValueError:
        # The exception's own text quotes parts of the URL, which may come from a secret.
        raise InvalidValue(f"{quoted} is not a URL: its host or port is malformed") from None
    if not url.hostname:
        raise InvalidValue(f"{quoted} has no host")
    if port == 0:
        raise InvalidValue(f"{quoted} has port 0")
    return url


def _url(key: SettingSpec, value: object, raw: object) -> str:
    text = _string(value)
    url = _split(text, quote_value(raw))
    if "@" in url.netloc:
        raise InvalidValue(f"{quote_value(raw)} has credentials in it: put them into api_key or headers")
    if url.scheme not in ("http", "https"):
        raise InvalidValue(f'{quote_value(raw)} has an unknown scheme; valid schemes are "http" and "https"')
    if "?" in text or "#" in text:
        raise InvalidValue(f"{quote_value(raw)} has a query or a fragment: a base URL ends with its path")
    for endpoint in _ENDPOINTS:
        if url.path.rstrip("/").endswith(endpoint):
            raise InvalidValue(f'{quote_value(raw)} is an endpoint, not a base URL: leave "{endpoint}" out')
    return text.rstrip("/")


def _proxy(key: SettingSpec, value: object, raw: object) -> Secret:
    text = _string(value)
    if _split(text, "this value").scheme not in _PROXY_SCHEMES:
        raise InvalidValue(
            "has an unknown scheme; valid schemes are " + ", ".join(quote_value(s) for s in _PROXY_SCHEMES)
        )
    return Secret(text)


def _secret(key: SettingSpec, value: object, raw: object) -> Secret:
    text = _string(value)
    if not _VISIBLE.fullmatch(text):
        raise InvalidValue("has spaces, line ends or characters outside ASCII, which a key cannot have")
    if len(text) < key.low:
        raise InvalidValue(
            f"is too short: at least {key.low:.0f} characters are required, as from `openssl rand -hex 32`"
        )
    return Secret(text)


def _hash(key: SettingSpec, value: object, raw: object) -> str:
    text = _string(value)
    if not _HASH.fullmatch(text):
        raise InvalidValue("is not the hash of a key: write what `dragoman keys add` printed")
    return text


def header_name(name: str) -> str:
    """Return the name in lower case. Raises InvalidValue."""
    if not _TOKEN.fullmatch(name):
        raise InvalidValue("is not a header name")
    if name.lower() in _FRAMING_HEADERS:
        raise InvalidValue("this header belongs to the connection and cannot be set")
    if name.lower() in _IDENTITY_HEADERS or name.lower().startswith(_IDENTITY_PREFIX):
        raise InvalidValue("this header identifies the sender, and the gateway sends its own")
    if name.lower() in _OWN_SETTINGS:
        raise InvalidValue(f"this header has a setting of its own: {_OWN_SETTINGS[name.lower()]}")
    return name.lower()


def header_value(value: object) -> Secret:
    """Return the value as a secret, because any header may carry a key. Raises InvalidValue."""
    text = _string(value)
    if not _FIELD_VALUE.fullmatch(text):
        raise InvalidValue("has line ends or other characters that are not allowed in a header")
    return Secret(text)


# HEADERS is not here: ConfigSources.headers() checks each line of the table separately.
_CHECKS: dict[SettingKind, Callable[[SettingSpec, object, object], object]] = {
    SettingKind.TEXT: _text,
    SettingKind.NAME: _name,
    SettingKind.HOST: _host,
    SettingKind.INTEGER: _integer,
    SettingKind.SECONDS: _seconds,
    SettingKind.DOLLARS: _dollars,
    SettingKind.SWITCH: _switch,
    SettingKind.CHOICE: _choice,
    SettingKind.CHOICES: _each(_choice),
    SettingKind.NAMES: _each(_model),
    SettingKind.STATUSES: _statuses,
    SettingKind.HOSTS: _each(_allowed_host),
    SettingKind.ORIGINS: _each(_origin),
    SettingKind.PATH: _path,
    SettingKind.URL: _url,
    SettingKind.PROXY: _proxy,
    SettingKind.SECRET: _secret,
    SettingKind.HASH: _hash,
}
