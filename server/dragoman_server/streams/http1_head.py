"""Heads of HTTP/1.1 that need no parser: both sides write their header lines without h11."""

import re
from collections.abc import Sequence, Set
from itertools import chain

import msgspec

Headers = Sequence[tuple[bytes, bytes]]

TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
# A header or trailer field that was received, without the LF at its end. h11 accepts control characters, too.
FIELD_LINE = TOKEN + rb":[\t -~\x80-\xff]*\r"
# All names and all values of a head, each with an LF behind it. One look at all costs a third less than one at each.
_NAMES = re.compile(rb"(?:%b\n)*+" % TOKEN)
# What h11 writes: no line end, and no blank at either end.
_VALUES = re.compile(rb"(?:(?:[^\0\s](?:[^\0\n\r\f\v]*[^\0\s])?)?\n)*+")


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


def plain_headers(headers: Headers, unusual: Set[bytes]) -> PlainHeaders | None:
    """Return the headers as they are written, None if h11 has to do that. unusual: names that it reads or moves."""
    count = len(headers)
    of_names, values = zip(*headers, strict=True) if headers else ((), ())
    all_names = b"\n".join([*of_names, b""]).lower()
    all_values = b"\n".join([*values, b""])
    names = all_names.split(b"\n")[:-1]
    if (
        not unusual.isdisjoint(names)
        or names.count(b"content-length") > 1
        or _NAMES.fullmatch(all_names) is None
        or _VALUES.fullmatch(all_values) is None
        or not len(names) == all_values.count(b"\n") == count
    ):
        return None
    length = values[names.index(b"content-length")] if b"content-length" in names else None
    return PlainHeaders(names, length, b"%b: %b\r\n" * count % tuple(chain.from_iterable(headers)))
