"""Find the line of each key in a TOML text.

tomllib returns values without their places. This module walks the same text and records the line on which every key
path starts. Call it only with text that tomllib has accepted: then every token is well formed, and it is enough to
distinguish headers, keys, strings of all four kinds, arrays, inline tables, comments, and all other values.
"""

import re
import tomllib
from bisect import bisect
from collections.abc import Iterator, Sequence

KeyPath = tuple[str | int, ...]

# What may follow a token; commas separate the elements of arrays and inline tables.
_BLANK = r"(?:[ \t\r\n,]++|#[^\n]*+)*+"
_STRING = r'"(?:[^"\\]++|\\.)*+"' + r"|'[^']*+'"
# "You can write a quotation mark, or two adjacent quotation marks, anywhere inside", also at the end
# -- TOML 1.0.0, String
# Before 3.11.5, Python matches too little where a possessive group repeats what can be matched in two ways
# -- https://github.com/python/cpython/issues/106052
_LONG_STRING = r'"""(?:[^"\\]++|\\.|""?(?!"))*"{3,5}' + r"|'''(?:[^']++|''?(?!'))*'{3,5}"
_NAME = rf"(?:[A-Za-z0-9_-]++|{_STRING})"
_KEY = rf"({_NAME}(?:[ \t]*\.[ \t]*{_NAME})*)[ \t]*"
_START = re.compile(_BLANK)
_HEADER = re.compile(rf"\[(\[?)[ \t]*{_KEY}\]\]?{_BLANK}")
_PAIR = re.compile(rf"{_KEY}=[ \t]*")
_BRACKET = re.compile(rf"[\[\]{{}}]{_BLANK}")
_VALUE = re.compile(rf"(?:{_LONG_STRING}|{_STRING}|[^,\]}}#\r\n]++){_BLANK}", re.DOTALL)


class TomlLines:
    """The lines (from 1) of all key paths; array elements have their index in the path."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._line_ends = [match.start() for match in re.finditer("\n", text)]
        self.lines: dict[KeyPath, int] = {}
        # The index of the last element so far of each array of tables.
        self._last: dict[KeyPath, int] = {}
        path: KeyPath = ()
        self._take(_START)
        while self._at < len(text):
            if text[self._at] == "[":
                path = self._header()
            else:
                self._pair(path)

    def line_of(self, path: KeyPath) -> int | None:
        """Return the line of `path`, else of its nearest ancestor in the text, else None."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path)

    def _header(self) -> KeyPath:
        line = self._here()
        array, key = self._take(_HEADER)
        names = tuple(_names(key))
        path: KeyPath = ()
        for depth, name in enumerate(names, 1):
            path = (*path, name)
            self.lines.setdefault(path, line)
            if array and depth == len(names):
                self._last[path] = self._last.get(path, -1) + 1
            if path in self._last:
                # In an array of tables, a header means the last element.
                path = (*path, self._last[path])
                self.lines.setdefault(path, line)
        return path

    def _pair(self, path: KeyPath) -> None:
        line = self._here()
        (key,) = self._take(_PAIR)
        for name in _names(key):
            path = (*path, name)
            self.lines.setdefault(path, line)
        self._value(path)

    def _value(self, path: KeyPath) -> None:
        opening = self._text[self._at]
        if opening not in "[{":
            self._take(_VALUE)
            return
        self._take(_BRACKET)
        index = 0
        while self._text[self._at] not in "]}":
            if opening == "{":
                self._pair(path)
            else:
                self.lines[*path, index] = self._here()
                self._value((*path, index))
                index += 1
        self._take(_BRACKET)

    def _take(self, token: re.Pattern[str]) -> Sequence[str]:
        """Skip a token, and return its groups."""
        match = token.match(self._text, self._at)
        assert match is not None, "tomllib has accepted the text"
        self._at = match.end()
        return match.groups()

    def _here(self) -> int:
        return bisect(self._line_ends, self._at) + 1


def _names(key: str) -> Iterator[str]:
    """Yield the parts of a dotted key."""
    for part in re.findall(_NAME, key):
        if "\\" in part:
            yield tomllib.loads(f"part = {part}")["part"]
        else:
            yield part[1:-1] if part[0] in "\"'" else part
