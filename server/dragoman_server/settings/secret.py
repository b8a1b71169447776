"""A string that `repr` and `str` do not reveal, and the mask that removes such strings from texts.

`Secret` is not a subclass of str, because a subclass leaks through `"".join`, `%s` in C code and JSON encoders.
"""

import base64
import binascii
import hmac
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from string import ascii_lowercase, ascii_uppercase
from urllib.parse import parse_qsl, unquote, urlsplit

from msgspec import Struct
from msgspec.structs import astuple

from dragoman.jsontext import JSON

MASK = "****"
# The last characters distinguish two keys. They would reveal too much of a short secret.
_VISIBLE_CHARACTERS = 4
_MIN_LENGTH_TO_SHOW = 24

# Shorter ones occur in unrelated texts ("ollama", "true"), and are easily guessed. Vendors' keys have 30 characters and
# more.
MIN_SECRET_LENGTH = 8

# The gateway has only the hashes of client keys, but a client may send its key in the wrong place.
CLIENT_KEY_PREFIX = "drk_"
_CLIENT_KEY = rf"{CLIENT_KEY_PREFIX}[A-Za-z0-9_-]{{20,}}"

# Authentication schemes: the word before the secret in a header's value.
_SCHEMES = frozenset({"apikey", "basic", "bearer", "key", "token"})


class Secret:
    """A secret string: `repr`, `str` and formatting return the mask, reveal() returns the value."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """Return the value: only for the place that sends it, never for a message."""
        return self._value

    def __str__(self) -> str:
        if len(self._value) < _MIN_LENGTH_TO_SHOW:
            return MASK
        return MASK + self._value[-_VISIBLE_CHARACTERS:]

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


def secrets_in(value: object) -> Iterator[Secret]:
    """Yield all secrets in settings, in whichever field."""
    if isinstance(value, Secret):
        yield value
    elif isinstance(value, Mapping):
        yield from secrets_in(tuple(value.values()))
    elif isinstance(value, tuple):
        for element in value:
            yield from secrets_in(element)
    elif isinstance(value, Struct):
        yield from secrets_in(astuple(value))


class Mask:
    """A function from text to text that replaces each secret by MASK.

    It finds a secret however its letters are written: in upper or lower case; escaped for a URL, for HTML or for JSON,
    once or several times; in base64, whatever is encoded next to it. If a text was cut inside of a secret, the rest of
    the secret is masked too.

    Args:
        secrets: what to mask. For a URL also its password and the values of its query, for a header's value also what
            follows the scheme.
        public: texts that are not secret.
    """

    __slots__ = ("_forms", "_heads")

    def __init__(self, secrets: Iterable[str], public: Collection[str] = ()) -> None:
        parts = {part for secret in secrets for part in _parts_of(secret)}
        forms = {
            form
            for part in parts
            if len(part) >= MIN_SECRET_LENGTH and part not in public
            for form in _forms_of(part)
        }
        # A secret may be a part of another one.
        self._forms = sorted(
            (form for form in forms if len(form) >= MIN_SECRET_LENGTH), key=len, reverse=True
        )
        self._heads = frozenset(form[:MIN_SECRET_LENGTH] for form in self._forms)

    def joined(self, other: "Mask") -> "Mask":
        """Return the mask of all secrets of both."""
        mask = Mask(())
        mask._forms = sorted({*self._forms, *other._forms}, key=len, reverse=True)
        mask._heads = self._heads | other._heads
        return mask

    def __repr__(self) -> str:
        return f"<Mask of {len(self._forms)} texts>"

    def may_change(self, text: str) -> bool:
        """Return False, quickly, for texts that contain no beginning of a secret: nearly all of them."""
        return self._may_change(_read(text))

    def may_change_values(self, values: Iterable[JSON]) -> bool:
        """Return what may_change() does for values that are encoded as JSON. It looks at each string once.

        Other values than those of JSON are strings there.
        """
        texts = [value for value in values if value and type(value) not in _NO_TEXT]
        try:
            return self.may_change("\n".join(set(texts)))
        except TypeError:  # not all are strings
            return self.may_change("\n".join(_strings_in(texts, set())))

    def __call__(self, text: str) -> str:
        masked, done = [], 0
        for start, end in self.spans(text):
            masked += [text[done:start], MASK]
            done = end
        return "".join([*masked, text[done:]]) if masked else text

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Return the start and end of each secret in a text, in its order; those that overlap as one."""
        if len(text) < MIN_SECRET_LENGTH:
            return []
        read = _read(text)
        if not self._may_change(read):
            return []
        found = self._found(read)
        places = _places(text, sorted({place for span in found for place in span}))
        spans: list[tuple[int, int]] = []
        client_keys = [key.span() for key in re.finditer(_CLIENT_KEY, text)]
        for start, end in sorted([*((places[first], places[last]) for first, last in found), *client_keys]):
            if spans and start < spans[-1][1]:
                spans[-1] = spans[-1][0], max(spans[-1][1], end)
            else:
                spans.append((start, end))
        return spans

    def _may_change(self, read: str) -> bool:
        if CLIENT_KEY_PREFIX in read:
            return True
        if min(len(read), 256) < len(self._heads):  # hundreds of accounts
            return not self._heads.isdisjoint(
                [read[start : start + MIN_SECRET_LENGTH] for start in range(len(read))]
            )
        for head in self._heads:  # noqa: SIM110 -- a generator costs more than the search
            if head in read:
                return True
        return False

    def _found(self, read: str) -> list[tuple[int, int]]:
        """Return the start and end of each secret, in any order; they may overlap."""
        spans = []
        ends = {cut.start() for pattern in _CUTS if (cut := pattern.search(read))}
        for form in self._forms:
            start = read.find(form)
            while start >= 0:
                spans.append((start, start + len(form)))
                start = read.find(form, start + len(form))
            for end in ends:
                start = read.rfind(form[:MIN_SECRET_LENGTH], max(0, end - len(form)), end)
                if start >= 0 and form.startswith(read[start:end]):
                    spans.append((start, end))
        return spans


# Escaped letters: %73 and %2573; \u0073 and \\u0073, \/ and \"; &#115; and &#x73;, &amp;.
_WRITTEN = r"""(?x)
    %(?:25)*([0-9a-fA-F]{2}) | \\+u([0-9a-fA-F]{4}) | \\+(["/\\]) | &\#[xX]([0-9a-fA-F]{1,6}); | &\#([0-9]{1,7});
    | &(amp|lt|gt|quot|apos);"""
_BASES = (16, 16, 0, 16, 10, 0)  # of the groups; 0: no number
_NAMED = {"amp": "&", "lt": "<", "gt": ">", "quot": '"', "apos": "'"}
_SMALL = str.maketrans(ascii_uppercase, ascii_lowercase)

# The end of a text that was cut, and of one that was cut inside of an escaped letter.
# Only the first of many backslashes begins a letter, or the time would grow with the square of their number.
_CUTS = (
    re.compile(r"(?:\.\.\.|…)?\Z"),
    re.compile(r"(?:%|(?<!\\)\\+u?|&\#?x?)\w{0,7}(?:\.\.\.|…)?\Z"),
)


def _strings_in(values: Iterable[JSON], found: set[str]) -> set[str]:
    """Add all strings in values, names of members included."""
    for value in values:
        kind = type(value)
        if kind is str:
            found.add(value)
        elif kind is list:
            _strings_in(value, found)
        elif kind is dict:
            _strings_in(value, found)
            _strings_in(value.values(), found)
        elif kind not in _NO_TEXT:
            found.add(str(value))
    return found


_NO_TEXT = frozenset({int, float, bool, type(None)})


def _read(text: str) -> str:
    """Return the text without escapes, in lower case."""
    if "%" in text or "\\" in text or "&" in text:
        text = re.sub(_WRITTEN, _letter, text)
    return text.lower() if text.isascii() else text.translate(_SMALL)


def _places(text: str, read: Iterable[int]) -> dict[int, int]:
    """Return the places in `text` of places in what _read() returns, given in their order."""
    places = {}
    all_written = re.finditer(_WRITTEN, text)
    written, shift = next(all_written, None), 0
    for place in read:
        while written is not None and written.start() < place + shift:
            shift += len(written[0]) - 1
            written = next(all_written, None)
        places[place] = place + shift
    return places


def _letter(found: re.Match[str]) -> str:
    number = found.lastindex or 1
    written, base = found[number], _BASES[number - 1]
    if not base:
        return _NAMED.get(written, written)
    code = int(written, base)
    return chr(code) if code <= sys.maxunicode else MASK[0]


def _parts_of(secret: str) -> Iterator[str]:
    """Yield the secret, and the parts of it that are secret by themselves."""
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
    """Yield the secret parts of a URL: its credentials, and the values of its query."""
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
    """Yield the forms in which a secret may be in a text that _read() has returned."""
    yield _read(secret)
    data = secret.encode()
    yield _read(data.decode("latin-1"))  # in a URL each byte is escaped
    for before in range(3):
        # Only the part of the base64 that does not depend on the bytes next to it: whole groups of three bytes.
        coded = base64.b64encode(b"\0" * before + data).decode()
        coded = coded[(before * 8 + 5) // 6 : (before + len(data)) // 3 * 4]
        yield coded.translate(_SMALL)
        yield coded.translate(_SMALL | {ord("+"): "-", ord("/"): "_"})
