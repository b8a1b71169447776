"""A string that does not show itself, and the mask that removes such strings from texts.

Not a subclass of str, on purpose: a subclass leaks through `"".join`, `%s` in C code and JSON encoders.
"""

import base64
import binascii
import hmac
import html
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from urllib.parse import parse_qsl, quote, unquote, urlsplit

MASK = "****"
# The last characters tell two keys apart. Of a short secret they would tell too much.
_SHOWN = 4
_LONG_ENOUGH_TO_SHOW = 24

# Shorter ones occur in unrelated texts ("ollama", "true"), and are easily guessed. Vendors' keys have 30 characters and
# more.
SHORTEST = 8

# Client keys. The gateway has only their hashes, but a client may send its key in the wrong place.
CLIENT_KEY_PREFIX = "drk_"
_CLIENT_KEY = re.compile(rf"{CLIENT_KEY_PREFIX}[A-Za-z0-9_-]{{20,}}")

# Authentication schemes: the word before the secret in a header's value.
_SCHEMES = frozenset({"apikey", "basic", "bearer", "key", "token"})

# How a text ends that was cut.
_CUT = "..."


class Secret:
    """Holds a secret string; `repr`, `str` and formatting give the mask, `reveal()` gives the value."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """The value itself: for the one place that sends it, never for a message."""
        return self._value

    def __str__(self) -> str:
        if len(self._value) < _LONG_ENOUGH_TO_SHOW:
            return MASK
        return MASK + self._value[-_SHOWN:]

    def __repr__(self) -> str:
        return f"Secret({str(self)!r})"

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)

    def __bool__(self) -> bool:
        return bool(self._value)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(self._value.encode(), other._value.encode())

    def __hash__(self) -> int:
        return hash((Secret, self._value))

    def __reduce__(self) -> tuple[type["Secret"], tuple[str]]:
        # Worker processes get their settings through a pipe of multiprocessing.
        return Secret, (self._value,)


def secrets_in(value: object) -> Iterator[Secret]:
    """All secrets that settings hold, in whichever field."""
    if isinstance(value, Secret):
        yield value
    elif isinstance(value, Mapping):
        yield from secrets_in(tuple(value.values()))
    elif isinstance(value, tuple):
        for each in value:
            yield from secrets_in(each)
    elif is_dataclass(value):
        for field in fields(value):
            yield from secrets_in(getattr(value, field.name))


class Mask:
    """A function from text to text that puts MASK in the place of each secret.

    It finds a secret as it is, and as servers and libraries write it: in a URL, in a JSON string, in HTML, in base64,
    as credentials. If a text was cut inside a secret, the rest of the secret is masked too.

    Args:
        secrets: what to mask. In a URL also its password and the values of its query, in a header's value also what
            follows the scheme.
        shown: texts that are not secret.
    """

    __slots__ = ("_forms", "_heads")

    def __init__(self, secrets: Iterable[str], shown: Collection[str] = ()) -> None:
        parts = {part for secret in secrets for part in _parts_of(secret)}
        forms = {form for part in parts if part not in shown for form in _forms_of(part)}
        # A secret may be a part of another one.
        self._forms = sorted((form for form in forms if len(form) >= SHORTEST), key=len, reverse=True)
        self._heads = tuple({form[:SHORTEST] for form in self._forms} | {CLIENT_KEY_PREFIX})

    def __repr__(self) -> str:
        return f"<Mask of {len(self._forms)} texts>"

    def may_change(self, text: str) -> bool:
        """A quick test. False for nearly all texts, which have nothing in them that a secret begins with."""
        return any(head in text for head in self._heads)

    def __call__(self, text: str) -> str:
        if not self.may_change(text):
            return text
        for form in self._forms:
            if form in text:
                text = text.replace(form, MASK)
        return self._without_rest(_CLIENT_KEY.sub(MASK, text))

    def _without_rest(self, text: str) -> str:
        end = text.removesuffix(_CUT)
        for form in self._forms:
            start = end.rfind(form[:SHORTEST], max(0, len(end) - len(form)))
            if start >= 0 and form.startswith(end[start:]):
                return end[:start] + MASK + text[len(end) :]
        return text


def _parts_of(secret: str) -> Iterator[str]:
    """The secret, and the parts of it that are secret by themselves."""
    yield secret
    scheme, _, rest = secret.partition(" ")
    if scheme.lower() in _SCHEMES:
        yield rest.strip()
    if scheme.lower() == "basic":
        try:
            yield from _credentials(base64.b64decode(rest).decode())
        except (binascii.Error, ValueError):
            return
    elif "://" in secret:
        yield from url_secrets(secret)


def url_secrets(url: str) -> Iterator[str]:
    """The secret parts of a URL: credentials, and the values of its query."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return
    if parts.password:
        yield parts.password
        yield from _credentials(f"{unquote(parts.username or '')}:{unquote(parts.password)}")
    for _, value in parse_qsl(parts.query):
        yield value


def _credentials(text: str) -> Iterator[str]:
    yield text
    yield text.partition(":")[2]


def _forms_of(secret: str) -> Iterator[str]:
    yield secret
    yield quote(secret, safe="")
    yield re.sub("%..", lambda match: match[0].lower(), quote(secret, safe=""))
    yield html.escape(secret)
    escaped = json.dumps(secret)[1:-1]
    yield escaped
    yield escaped.replace("/", "\\/")
    # Only whole groups of three bytes, which do not depend on what follows the secret.
    yield base64.b64encode(secret.encode())[: len(secret) // 3 * 4].decode()
