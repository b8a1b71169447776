"""Header lines of HTTP/1.1 that need no parser: both sides write them without h11."""

import re
from collections.abc import Iterable

# Both accept less than h11: no control characters.
TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
# A header or trailer field, without the LF at its end.
FIELD_LINE = TOKEN + rb":[\t -~\x80-\xff]*\r"
_NAME = re.compile(TOKEN)
_VALUE = re.compile(rb"(?:[!-~\x80-\xff](?:[\t -~\x80-\xff]*[!-~\x80-\xff])?)?")


def are_plain(names: Iterable[bytes], values: Iterable[bytes]) -> bool:
    """True if these are names and values of headers, without blanks around them."""
    return all(map(_NAME.fullmatch, names)) and all(map(_VALUE.fullmatch, values))
