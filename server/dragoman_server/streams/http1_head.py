"""Heads of HTTP/1.1 that need no parser: both sides write their header lines without h11. Values of headers by name."""

from collections.abc import Sequence
from functools import lru_cache

import msgspec

Headers = Sequence[tuple[bytes, bytes]]

# Possessive repeats, because what follows them cannot be in them: to remember where to go back takes a fifth longer.
TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]++"
# A header or trailer field that was received, without the LF at its end. h11 accepts control characters, too.
FIELD_LINE = TOKEN + rb":[\t -~\x80-\xff]*+\r"
# The characters of a name, in lower case. To delete them from all names of a head takes less than a pattern.
_NAME_CHARACTERS = b"!#$%&'*+.^_`|~-0123456789abcdefghijklmnopqrstuvwxyz"
# h11 writes values without these, and without a blank at either end.
_NOT_IN_VALUES = b"\0\n\r\f\v"


def joined(headers: Headers) -> dict[bytes, bytes]:
    """Return the values by name. Lines of the same name are one list (RFC 9110, 5.3)."""
    fields = dict(headers)
    if len(fields) < len(headers):
        several: dict[bytes, list[bytes]] = {}
        for name, value in headers:
            several.setdefault(name, []).append(value)
        fields = {name: b", ".join(values) for name, values in several.items()}
    return fields


class PlainHeaders(msgspec.Struct, frozen=True):
    """Headers that h11 would write as they are.

    Attributes:
        names: Their names, in lower case.
        length: The value of content-length, None without one.
        lines: All of them as bytes.
    """

    names: list[bytes]
    length: bytes | None
    lines: bytes


def plain_headers(headers: Headers, unusual: frozenset[bytes]) -> PlainHeaders | None:
    """Return the headers as they are written, None if h11 has to do that. unusual: names that it reads or moves."""
    # Without strict, which takes 2,000 instructions: each header is a pair.
    of_names, values = zip(*headers) if headers else ((), ())  # noqa: B905
    written = _written_names(of_names, unusual)
    joined = b"".join(values)
    if (
        written is None
        or len(joined.translate(None, _NOT_IN_VALUES)) != len(joined)
        or tuple(map(bytes.strip, values)) != values
    ):
        return None
    names, place, lines = written
    return PlainHeaders(names, None if place is None else values[place], lines % values)


# The server and the pool of connections write a few sets of names, again and again.
@lru_cache(maxsize=64)
def _written_names(
    of_names: tuple[bytes, ...], unusual: frozenset[bytes]
) -> tuple[list[bytes], int | None, bytes] | None:
    """Return names in lower case, the place of content-length, and the lines without values; None for unusual ones."""
    names = b"\n".join([*of_names, b""]).lower().split(b"\n")[:-1]
    if (
        not unusual.isdisjoint(names)
        or names.count(b"content-length") > 1
        or len(names) != len(of_names)
        or b"" in names
        or b"".join(names).translate(None, _NAME_CHARACTERS)
    ):
        return None
    place = names.index(b"content-length") if b"content-length" in names else None
    return names, place, b"".join([name.replace(b"%", b"%%") + b": %b\r\n" for name in of_names])
