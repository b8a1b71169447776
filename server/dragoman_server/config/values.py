"""Check one value against its key: a table with one function for each kind.

A function gets the value and `raw`, what the user wrote before interpolation. It returns what goes into
the settings or raises BadValue. Messages quote `raw` alone, so nothing that came out of a variable or a
file can get into one.
"""

import ipaddress
import re
from collections.abc import Callable
from urllib.parse import SplitResult, urlsplit

from dragoman import UPSTREAMS
from dragoman_server.config.suggest import did_you_mean
from dragoman_server.settings import LOOPBACK_ORIGINS, VERSION_HEADER
from dragoman_server.settings.fields import Key, Kind
from dragoman_server.settings.secret import Secret

_SHOWN_LENGTH = 80

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
_HOST_PATTERN = re.compile(r"[a-z0-9._*-]+")
# RFC 9110 5.6.2: token.
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
# RFC 9110 5.5: visible characters, with spaces and tabs between them; obs-text is left out on purpose.
_FIELD_VALUE = re.compile(r"[\x21-\x7e]([\x20-\x7e\t]*[\x21-\x7e])?")
_CREDENTIALS = re.compile(r"//[^@]*@")
# Some vendors take the key there.
_QUERY = re.compile(r"(//[^?#]*[?#]).+", re.DOTALL)
_HASH = re.compile(r"[0-9a-f]{64}")
_VISIBLE = re.compile(r"[\x21-\x7e]+")

# These say how a message is framed or where it goes: the HTTP client alone sets them.
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

# By these, clients say who they are. The gateway is none of them, and says what it is itself.
_IDENTITY_HEADERS = frozenset({"originator", "user-agent", "x-app"})
_IDENTITY_PREFIX = "x-stainless-"  # what the vendors' SDKs say of themselves

# The translation must know what they say.
_OWN_SETTINGS = {VERSION_HEADER: "anthropic_version"}

_SWITCHES = {"true": True, "yes": True, "on": True, "1": True}
_SWITCHES |= {"false": False, "no": False, "off": False, "0": False}

_PROXY_SCHEMES = ("http", "https", "socks5", "socks5h")

# What people paste from a vendor's API reference, where an SDK's base URL was asked for.
_ENDPOINTS = (*(spec.path.removeprefix("/v1") for spec in UPSTREAMS.values()), "/completions")


class BadValue(Exception):
    """What is wrong with a value; the text has no secret in it. `at` leads to the faulty element."""

    def __init__(self, text: str, *at: int) -> None:
        super().__init__(text)
        self.at = at


def show(value: object) -> str:
    """How a message quotes what the user wrote. Credentials and queries of URLs are left out."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        visible = _QUERY.sub(r"\1****", _CREDENTIALS.sub("//****@", value))
        visible = "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in visible)
        return f'"{visible}"' if len(visible) <= _SHOWN_LENGTH else f'"{visible[:_SHOWN_LENGTH]}..."'
    try:
        return str(value)
    except ValueError:  # CPython refuses to print integers of more than 4300 digits
        return "this integer"


# In this order: a TOML boolean is an int for Python.
_TYPE_NAMES = (
    (bool, "a boolean"),
    (str, "a string"),
    (int, "an integer"),
    (float, "a float"),
    (list, "an array"),
    (dict, "a table"),
)


def type_name(value: object) -> str:
    """The TOML name of a value's type."""
    return next((name for kind, name in _TYPE_NAMES if isinstance(value, kind)), "a date or time")


def check(key: Key, value: object, raw: object) -> object:
    """The value as the settings hold it; `raw` is the value before interpolation. Raises BadValue."""
    return _CHECKS[key.kind](key, value, raw)


def parse_text(key: Key, text: str) -> object:
    """What TOML would have given for `text`, for the environment and the command line. Raises BadValue."""
    if key.kind in _LISTS:
        return [part.strip() for part in text.split(",") if part.strip()]
    parse, what = _TEXT_PARSERS.get(key.kind, (str, ""))
    try:
        return parse(text)
    except (ValueError, KeyError):
        raise BadValue(f"expected {what}, found {show(text)}") from None


_LISTS = frozenset({Kind.NAMES, Kind.CHOICES, Kind.HOSTS, Kind.ORIGINS})
_TEXT_PARSERS: dict[Kind, tuple[Callable[[str], object], str]] = {
    Kind.INTEGER: (int, "an integer"),
    Kind.SECONDS: (float, "a number of seconds"),
    Kind.SWITCH: (lambda text: _SWITCHES[text.strip().lower()], "true or false"),
}


def _string(value: object) -> str:
    if not isinstance(value, str):
        raise BadValue(f"expected a string, found {type_name(value)}")
    if not value:
        raise BadValue("is empty")
    return value


def _text(key: Key, value: object, raw: object) -> str:
    text = _string(value)
    if not _FIELD_VALUE.fullmatch(text):
        raise BadValue(f"{show(raw)} has characters that no header may have")
    return text


def _name(key: Key, value: object, raw: object) -> str:
    text = _string(value)
    if not _NAME.fullmatch(text):
        raise BadValue(f"{show(raw)} is no name: use letters, digits, dots, dashes and underscores")
    return text


def _host(key: Key, value: object, raw: object) -> str:
    text = _string(value).removeprefix("[").removesuffix("]")
    if not _HOST.fullmatch(text) and not _is_address(text):
        raise BadValue(f"{show(raw)} is neither a host name nor an IP address")
    return text


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _integer(key: Key, value: object, raw: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadValue(f"expected an integer, found {type_name(value)}")
    if not key.low <= value <= key.high:
        raise BadValue(f"{show(raw)} is out of range: from {key.low:.0f} to {key.high:.0f}")
    return value


def _seconds(key: Key, value: object, raw: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadValue(f"expected a number of seconds, found {type_name(value)}")
    # Not-a-number compares false with everything, so the test is that it lies inside.
    if not key.low <= value <= key.high:
        raise BadValue(f"{show(raw)} is out of range: from {key.low:g} to {key.high:g} seconds")
    return float(value)


def _dollars(key: Key, value: object, raw: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadValue(f"expected a number of US dollars, found {type_name(value)}")
    if not key.low <= value <= key.high:  # not-a-number is outside as well
        raise BadValue(f"{show(raw)} is out of range: from {key.low:g} to {key.high:g} US dollars")
    return float(value)


def _switch(key: Key, value: object, raw: object) -> bool:
    if not isinstance(value, bool):
        raise BadValue(f"expected true or false, found {type_name(value)}")
    return value


def _choice(key: Key, value: object, raw: object) -> str:
    text = _string(value)
    if text not in key.choices:
        noun = key.name.removesuffix("s")
        # A suggestion quotes nothing of the value, but only a value written as such is worth comparing.
        hint = did_you_mean(raw, key.choices) if isinstance(raw, str) else ""
        hint = hint or "; valid are " + ", ".join(show(choice) for choice in key.choices)
        raise BadValue(f"unknown {noun} {show(raw)}{hint}")
    return text


def _statuses(key: Key, value: object, raw: object) -> tuple[int, ...]:
    if not isinstance(value, list):
        raise BadValue(f"expected an array of integers, found {type_name(value)}")
    for index, each in enumerate(value):
        if isinstance(each, bool) or not isinstance(each, int) or not 100 <= each <= 599:
            raise BadValue(f"{show(each)} is no HTTP status", index)
    return tuple(value)


def _each(
    check_one: Callable[[Key, object, object], str],
) -> Callable[[Key, object, object], tuple[str, ...]]:
    def check_all(key: Key, value: object, raw: object) -> tuple[str, ...]:
        if not isinstance(value, list) or not isinstance(raw, list):
            raise BadValue(f"expected an array of strings, found {type_name(value)}")
        found: list[str] = []
        for index, (element, raw_element) in enumerate(zip(value, raw, strict=True)):
            try:
                found.append(check_one(key, element, raw_element))
            except BadValue as error:
                raise BadValue(str(error), index) from None
            if found[-1] in found[:-1]:
                raise BadValue(f"{show(raw_element)} stands here twice", index)
        return tuple(found)

    return check_all


def _model(key: Key, value: object, raw: object) -> str:
    return _string(value)


def _allowed_host(key: Key, value: object, raw: object) -> str:
    text = _string(value).lower().removeprefix("[").removesuffix("]")
    if not _HOST_PATTERN.fullmatch(text) and not _is_address(text):
        raise BadValue(
            f'{show(raw)} is no host name: write it without scheme and port, such as "*.example.com"'
        )
    return text


def _origin(key: Key, value: object, raw: object) -> str:
    # The Fetch standard compares origins as strings: scheme, host and port, and no slash at the end.
    text = _string(value)
    if text in ("*", "null", LOOPBACK_ORIGINS):
        return text
    url = _split(text, show(raw))
    if url.path or "?" in text or "#" in text or "@" in text:
        raise BadValue(
            f'{show(raw)} is no origin: write "https://host" or "https://host:port", '
            f'"{LOOPBACK_ORIGINS}" for the pages of this machine, or "*" for any'
        )
    return text.lower()


def _path(key: Key, value: object, raw: object) -> str:
    text = _string(value)
    if "\0" in text:
        raise BadValue(f"{show(raw)} is no file name")
    return text


def _split(text: str, shown: str) -> SplitResult:
    # urlsplit drops tabs and line ends in silence, so they are looked for first.
    if not _VISIBLE.fullmatch(text):
        raise BadValue(f"{shown} is no URL: it has spaces, control characters or characters outside ASCII")
    if "://" not in text:
        raise BadValue(f'{shown} has no scheme: write "http://..." or "https://..."')
    try:
        url = urlsplit(text)
        port = url.port
    except ValueError:
        # The exception's own text quotes parts of the URL, which may come from a secret.
        raise BadValue(f"{shown} is no URL: its host or port is malformed") from None
    if not url.hostname:
        raise BadValue(f"{shown} names no host")
    if port == 0:
        raise BadValue(f"{shown} has port 0")
    return url


def _url(key: Key, value: object, raw: object) -> str:
    text = _string(value)
    url = _split(text, show(raw))
    if "@" in url.netloc:
        raise BadValue(f"{show(raw)} has credentials in it: put them into api_key or headers")
    if url.scheme not in ("http", "https"):
        raise BadValue(f'{show(raw)} has an unknown scheme; valid are "http" and "https"')
    if "?" in text or "#" in text:
        raise BadValue(f"{show(raw)} has a query or a fragment: a base URL ends with its path")
    for endpoint in _ENDPOINTS:
        if url.path.rstrip("/").endswith(endpoint):
            raise BadValue(f'{show(raw)} is an endpoint, not a base URL: leave "{endpoint}" out')
    return text.rstrip("/")


def _proxy(key: Key, value: object, raw: object) -> Secret:
    text = _string(value)
    if _split(text, "this value").scheme not in _PROXY_SCHEMES:
        raise BadValue("has an unknown scheme; valid are " + ", ".join(show(s) for s in _PROXY_SCHEMES))
    return Secret(text)


def _secret(key: Key, value: object, raw: object) -> Secret:
    text = _string(value)
    if not _VISIBLE.fullmatch(text):
        raise BadValue("has spaces, line ends or characters outside ASCII, which no key has")
    if len(text) < key.low:
        raise BadValue(f"is too short: {key.low:.0f} characters at least, as from `openssl rand -hex 32`")
    return Secret(text)


def _hash(key: Key, value: object, raw: object) -> str:
    text = _string(value)
    if not _HASH.fullmatch(text):
        raise BadValue("is no hash of a key: write what `dragoman keys add` printed")
    return text


def header_name(name: str) -> str:
    """The name in lower case. Raises BadValue."""
    if not _TOKEN.fullmatch(name):
        raise BadValue("is no header name")
    if name.lower() in _FRAMING_HEADERS:
        raise BadValue("this header belongs to the connection and cannot be set")
    if name.lower() in _IDENTITY_HEADERS or name.lower().startswith(_IDENTITY_PREFIX):
        raise BadValue(
            "this header says who calls, which the gateway says itself: it stands for no other client"
        )
    if name.lower() in _OWN_SETTINGS:
        raise BadValue(f"this header has a setting of its own: {_OWN_SETTINGS[name.lower()]}")
    return name.lower()


def header_value(value: object) -> Secret:
    """Any header may carry a key, so all are secrets. Raises BadValue."""
    text = _string(value)
    if not _FIELD_VALUE.fullmatch(text):
        raise BadValue("has line ends or other characters that no header may have")
    return Secret(text)


# Tables of headers are not here: config.py takes them apart, so that each line has its own fault.
_CHECKS: dict[Kind, Callable[[Key, object, object], object]] = {
    Kind.TEXT: _text,
    Kind.NAME: _name,
    Kind.HOST: _host,
    Kind.INTEGER: _integer,
    Kind.SECONDS: _seconds,
    Kind.DOLLARS: _dollars,
    Kind.SWITCH: _switch,
    Kind.CHOICE: _choice,
    Kind.CHOICES: _each(_choice),
    Kind.NAMES: _each(_model),
    Kind.STATUSES: _statuses,
    Kind.HOSTS: _each(_allowed_host),
    Kind.ORIGINS: _each(_origin),
    Kind.PATH: _path,
    Kind.URL: _url,
    Kind.PROXY: _proxy,
    Kind.SECRET: _secret,
    Kind.HASH: _hash,
}
