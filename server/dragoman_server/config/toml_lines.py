"""Find the line of each key in a TOML text.

tomllib returns values without their places. This module walks the same text and records the line on which every key
path starts. Call it only with text that tomllib has accepted: then every token is well formed, and it is enough to
parse headers, dotted and quoted keys, strings of all four kinds, arrays, inline tables and comments.
"""

from collections.abc import Sequence

KeyPath = tuple[str | int, ...]

_SPACE = " \t"
_BLANK = " \t\r\n"
_ENDS_BARE_VALUE = ",]}#\r\n"
_ESCAPES = {"b": "\b", "t": "\t", "n": "\n", "f": "\f", "r": "\r", '"': '"', "\\": "\\", "e": "\x1b"}
_HEX_ESCAPES = {"u": 4, "U": 8, "x": 2}


class TomlLines:
    """The lines (from 1) of all key paths; array elements have their index in the path."""

    def __init__(self, text: str) -> None:
        self._lines = _Walk(text).run()

    def line_of(self, path: Sequence[str | int]) -> int | None:
        """Return the line of `path`, else of its nearest ancestor in the text, else None."""
        whole = tuple(path)
        for length in range(len(whole), 0, -1):
            line = self._lines.get(whole[:length])
            if line is not None:
                return line
        return None

    def __contains__(self, path: KeyPath) -> bool:
        return path in self._lines


class _Walk:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        # Lines are counted as the walk goes on, so that a long file costs one pass.
        self._line = 1
        self._counted_to = 0
        self._lines: dict[KeyPath, int] = {}
        # How many elements each array of tables has so far.
        self._tables: dict[KeyPath, int] = {}

    def run(self) -> dict[KeyPath, int]:
        prefix: KeyPath = ()
        while self._skip(_BLANK):
            if self._text.startswith("[[", self._at):
                prefix = self._header(2)
            elif self._text[self._at] == "[":
                prefix = self._header(1)
            else:
                self._pair(prefix)
        return self._lines

    def _skip(self, blanks: str) -> bool:
        """Skip blanks, and comments if line ends count as blanks. Return False at the end of the text."""
        text = self._text
        while self._at < len(text):
            char = text[self._at]
            if char in blanks:
                self._at += 1
            elif char == "#" and "\n" in blanks:
                end = text.find("\n", self._at)
                self._at = len(text) if end < 0 else end
            else:
                return True
        return False

    def _here(self) -> int:
        self._line += self._text.count("\n", self._counted_to, self._at)
        self._counted_to = self._at
        return self._line

    def _header(self, brackets: int) -> KeyPath:
        line = self._here()
        self._at += brackets
        keys = self._dotted_key()
        self._at += brackets
        path: KeyPath = ()
        for key in keys[:-1]:
            path = self._step(path, key, line)
        if brackets == 1:
            return self._step(path, keys[-1], line)
        array = (*path, keys[-1])
        index = self._tables.get(array, 0)
        self._tables[array] = index + 1
        self._lines.setdefault(array, line)
        self._lines[(*array, index)] = line
        return (*array, index)

    def _step(self, path: KeyPath, key: str, line: int) -> KeyPath:
        """Return the path of a key of a header. In an array of tables, that means the last element."""
        path = (*path, key)
        self._lines.setdefault(path, line)
        count = self._tables.get(path)
        return path if count is None else (*path, count - 1)

    def _pair(self, prefix: KeyPath) -> None:
        line = self._here()
        path = prefix
        for key in self._dotted_key():
            path = (*path, key)
            self._lines.setdefault(path, line)
        self._at += 1  # the equals sign
        self._skip(_SPACE)
        self._value(path)

    def _dotted_key(self) -> list[str]:
        keys = []
        while True:
            self._skip(_SPACE)
            keys.append(self._simple_key())
            self._skip(_SPACE)
            if self._text[self._at] != ".":
                return keys
            self._at += 1

    def _simple_key(self) -> str:
        if self._text[self._at] in "\"'":
            return self._string()
        start = self._at
        while self._text[self._at] not in "=.] \t":
            self._at += 1
        return self._text[start : self._at]

    def _value(self, path: KeyPath) -> None:
        char = self._text[self._at]
        if char in "\"'":
            self._string()
        elif char == "[":
            self._items(path, "]")
        elif char == "{":
            self._items(path, "}")
        else:
            while self._at < len(self._text) and self._text[self._at] not in _ENDS_BARE_VALUE:
                self._at += 1

    def _items(self, path: KeyPath, close: str) -> None:
        """Walk the elements of an array or the pairs of an inline table."""
        self._at += 1
        index = 0
        while True:
            self._skip(_BLANK + ",")
            if self._text[self._at] == close:
                self._at += 1
                return
            if close == "}":
                self._pair(path)
            else:
                self._lines[(*path, index)] = self._here()
                self._value((*path, index))
                index += 1

    def _string(self) -> str:
        text = self._text
        quote = text[self._at]
        literal = quote == "'"
        if text.startswith(quote * 3, self._at):
            self._multiline(quote * 3, literal)
            return ""  # it is never a key, so its value is not needed
        self._at += 1
        chars = []
        while (char := text[self._at]) != quote:
            self._at += 1
            chars.append(self._escape() if char == "\\" and not literal else char)
        self._at += 1
        return "".join(chars)

    def _escape(self) -> str:
        char = self._text[self._at]
        self._at += 1
        if char in _ESCAPES:
            return _ESCAPES[char]
        width = _HEX_ESCAPES[char]
        self._at += width
        return chr(int(self._text[self._at - width : self._at], 16))

    def _multiline(self, fence: str, literal: bool) -> None:
        self._at += 3
        while not self._text.startswith(fence, self._at):
            self._at += 2 if self._text[self._at] == "\\" and not literal else 1
        self._at += 3
        # "You can write a quotation mark, or two adjacent quotation marks, anywhere inside", also at the end
        # -- TOML 1.0.0, String
        while self._text.startswith(fence[0], self._at):
            self._at += 1
