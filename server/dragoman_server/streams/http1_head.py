"""Heads of HTTP/1.1 that need no parser: both sides write their header lines without h11."""

from collections.abc import Sequence, Set

import msgspec

Headers = Sequence[tuple[bytes, bytes]]

TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
# A header or trailer field that was received, without the LF at its end. h11 accepts control characters, too.
FIELD_LINE = TOKEN + rb":[\t -~\x80-\xff]*\r"
# The characters of a name, in lower case. To delete them from all names of a head takes less than a pattern.
_NAME_CHARACTERS = b"!#$%&'*+.^_`|~-0123456789abcdefghijklmnopqrstuvwxyz"
# h11 writes values without these, without an LF, and without a blank at either end.
_NOT_IN_VALUES = b"\0\r\f\v"


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
    # Each with an LF behind it.
    all_names = b"\n".join([*of_names, b""]).lower()
    all_values = b"\n".join([*values, b""])
    names = all_names.split(b"\n")[:-1]
    if (
        not unusual.isdisjoint(names)
        or names.count(b"content-length") > 1
        or b"" in names
        or all_names.translate(None, _NAME_CHARACTERS) != b"\n" * count
        or len(all_values.translate(None, _NOT_IN_VALUES)) != len(all_values)
        or all_values.count(b"\n") != count
        or tuple(map(bytes.strip, values)) != values
    ):
        return None
    length = values[names.index(b"content-length")] if b"content-length" in names else None
    return PlainHeaders(names, length, b"\r\n".join([*map(b": ".join, headers), b""]))
