"""Change the `[[client_keys]]` tables of a configuration file.

Comments and order stay as they are. The new text is parsed, and compared with what it must mean, before it replaces the
file in one step.
"""

import codecs
import re
import tomllib
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from dragoman_server.cli.config_file import toml_text
from dragoman_server.cli.config_writer import ConfigEditError, replace_file
from dragoman_server.config.toml_lines import TomlLines

_TABLE = "client_keys"

# A line with a value that has no line end in it: the text before the value, the value, and the text behind it.
_PAIR = re.compile(r"""(\s*[^=]+=\s*)("[^"]*"|'[^']*'|[^\s#"']+)(\s*(?:\#.*)?)""")


class ClientKeyTables:
    """The tables of one file. Each method writes it. Raises ConfigEditError. check: see replace_file()."""

    def __init__(self, path: Path, check: Callable[[Path], None]) -> None:
        self._path = path
        self._check = check
        try:
            data = path.read_bytes()
        except OSError as error:
            raise ConfigEditError(f"cannot read {path}: {error.strerror}") from None
        self._mark = codecs.BOM_UTF8 if data.startswith(codecs.BOM_UTF8) else b""
        self._text = data.removeprefix(self._mark).decode()
        self._meant = tomllib.loads(self._text)
        # Only TOML's own line ends: strings and comments may contain what str.splitlines() takes for one.
        self._lines = self._text.split("\n")

    def add(self, values: Mapping[str, object]) -> None:
        """Add a table at the end of the file."""
        end = "\r\n" if "\r\n" in self._text else "\n"
        lines = [f"[[{_TABLE}]]", *(f"{name} = {toml_text(value)}" for name, value in values.items())]
        before = self._text.rstrip()
        text = before + (end * 2 if before else "") + end.join(lines) + end
        self._meant.setdefault(_TABLE, []).append(dict(tomllib.loads("\n".join(lines[1:]))))
        self._write(text, "add the table by hand: dragoman keys add without --write prints it")

    def change(self, index: int, values: Mapping[str, object]) -> None:
        """Change values of the table with this index. None removes one."""
        first, last = self._lines_of(index)
        known = TomlLines(self._text)
        lines, table = list(self._lines), self._meant[_TABLE][index]
        new: list[str] = []
        for name, value in values.items():
            line = known.line_of((_TABLE, index, name)) if name in table else None
            if value is None:
                if line is not None:
                    del table[name]
                    lines[line - 1] = "\0"
                continue
            table[name] = tomllib.loads(f"value = {toml_text(value)}")["value"]
            if line is None:
                new.append(f"{name} = {toml_text(value)}")
            elif pair := _PAIR.fullmatch(lines[line - 1]):
                lines[line - 1] = f"{pair[1]}{toml_text(value)}{pair[3]}"
        above = lines[last - 1]
        indent = above[: len(above) - len(above.lstrip())] if above.strip("\0") else ""
        carriage = "\r" if self._lines[first].endswith("\r") else ""
        lines[last:last] = [f"{indent}{each}{carriage}" for each in new]
        text = "\n".join(line for line in lines if line != "\0")
        self._write(text, f"change the key by hand, line {first + 1}")

    def remove(self, index: int) -> int:
        """Remove the table with this index, and return the number of removed lines."""
        first, last = self._lines_of(index)
        del self._meant[_TABLE][index]
        if not self._meant[_TABLE]:
            del self._meant[_TABLE]
        text = "\n".join(self._lines[:first] + self._lines[last:])
        self._write(text, f"remove the key by hand, line {first + 1}")
        return last - first

    def _lines_of(self, index: int) -> tuple[int, int]:
        """Return the first line of a table and the line after its last one, both counted from 0."""
        lines = self._lines
        first = (TomlLines(self._text).line_of((_TABLE, index)) or 1) - 1
        last = first + 1
        while last < len(lines) and not lines[last].lstrip().startswith("["):
            last += 1
        # Blank lines and comments before the next header belong to that header.
        while last > first + 1 and (not lines[last - 1].strip() or lines[last - 1].lstrip().startswith("#")):
            last -= 1
        return first, last

    def _write(self, text: str, by_hand: str) -> None:
        found: dict[str, Any] = {}
        with suppress(tomllib.TOMLDecodeError):
            found = tomllib.loads(text)
        if found != self._meant:
            raise ConfigEditError(f"{self._path} is written in an unusual way: {by_hand}")
        replace_file(self._path, self._mark + text.encode(), self._path.stat().st_mode, self._check)
