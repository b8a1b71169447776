"""Read the tables of a TOML file and single texts, and check them value by value.

The caller passes the keys. Each value is interpolated and checked against its key, and its origin is recorded; a
fault becomes a ConfigProblem with its place. `raise_problems` raises all of them together.
"""

import re
import tomllib
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

import msgspec
from msgspec.structs import replace

from dragoman_server.config.interpolate import expand
from dragoman_server.config.toml_lines import KeyPath, TomlLines
from dragoman_server.settings import ARRAYS, ServerSettings
from dragoman_server.settings.capabilities import CapabilitySettings
from dragoman_server.settings.fields import SettingKind, SettingSpec, settings_of
from dragoman_server.settings.problems import (
    ConfigError,
    ConfigProblem,
    ValueOrigin,
    did_you_mean,
    dotted,
    quote_value,
    type_name,
)
from dragoman_server.settings.values import InvalidValue, check_value, header_name, parse_text

# A thousand upstreams fit in. A larger file is the wrong file.
MAX_FILE_BYTES = 1024 * 1024

_SYNTAX_PLACE = re.compile(r" \(at line (\d+), column (\d+)\)$")
# What tomllib says of a text without quotes, with typographic ones, and of True.
_UNQUOTED = "Invalid value", "Expected newline or end of document after a statement"
_UNQUOTED_HINT = '; write texts in "quotes", and true and false in lower case'

_Row = TypeVar("_Row")
Rows = list[tuple[KeyPath, _Row]]


class ConfigSources(msgspec.Struct):
    """One file, which may be absent, and the environment that its values may refer to.

    Attributes:
        apart: The tables that have their own file next to it: its path, and the line of each key there.
        origins: Where each value came from, by dotted key.
        problems: The faults so far.
        document: The parsed file.
        lines: The line of each key in it.
    """

    file: str
    environ: Mapping[str, str]
    origins: dict[str, ValueOrigin] = msgspec.field(default_factory=dict)
    problems: list[ConfigProblem] = msgspec.field(default_factory=list)
    document: dict[str, object] = msgspec.field(default_factory=dict)
    lines: TomlLines = msgspec.field(default_factory=lambda: TomlLines(""))
    apart: dict[str, tuple[str, TomlLines]] = msgspec.field(default_factory=dict)

    # The file.

    def read(self, path: Path) -> None:
        self.document, self.lines = self._parsed(path)

    def read_apart(self, name: str, path: Path) -> None:
        """Read an array of tables from its own file, in which nothing else may be."""
        document, lines = self._parsed(path)
        for key in document.keys() - {name}:
            origin = ValueOrigin(str(path), lines.line_of((key,)), key)
            self.problems.append(ConfigProblem(origin, f"unknown key; this file has only {name}"))
        if name in self.document:
            self.add_problem((name,), f"{path} has them as well: they must be in one of both files")
        self.apart[name] = str(path), lines
        self.document[name] = document.get(name, [])

    def _parsed(self, path: Path) -> tuple[dict[str, object], TomlLines]:
        """Return the document in a file and the line of each key, nothing if that is impossible."""
        nothing: tuple[dict[str, object], TomlLines] = {}, TomlLines("")

        def problem(line: int | None, text: str) -> None:
            self.problems.append(ConfigProblem(ValueOrigin(str(path), line), text))

        try:
            with path.open("rb") as file:
                data = file.read(MAX_FILE_BYTES + 1)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            problem(None, f"cannot read the configuration: {reason}")
            return nothing
        if len(data) > MAX_FILE_BYTES:
            problem(None, f"is larger than {MAX_FILE_BYTES} bytes")
            return nothing
        try:
            # "A TOML file must be a valid UTF-8 encoded Unicode document" -- TOML 1.0.0. Some editors begin it with a
            # byte order mark.
            text = data.decode("utf-8-sig")
            return tomllib.loads(text), TomlLines(text)
        except UnicodeDecodeError as error:
            problem(data.count(b"\n", 0, error.start) + 1, "is not UTF-8 text")
        except tomllib.TOMLDecodeError as error:
            line, message = text.rstrip().count("\n") + 1, str(error)
            message = message.removesuffix(" (at end of document)") + " at the end of the file"
            if place := _SYNTAX_PLACE.search(str(error)):
                message = str(error)[: place.start()]
                hint = _UNQUOTED_HINT if message.startswith(_UNQUOTED) else ""
                line, message = int(place[1]), f"{message} (column {place[2]}){hint}"
            problem(line, f"not valid TOML: {message}")
        except (ValueError, RecursionError):
            problem(None, "has a number that is too large, or is nested too deeply")
        return nothing

    # Problems and origins.

    def add_problem(self, path: KeyPath, text: str) -> None:
        """Record a problem at the origin of a value, or where the file has it, if it has none."""
        origin = self.origins.get(dotted(path)) or self._file_origin(path)
        self.problems.append(ConfigProblem(origin, text))

    def raise_problems(self) -> None:
        if self.problems:
            raise ConfigError(self.problems)

    def record_file_origin(self, path: KeyPath, references: Sequence[str], raw: str | None = None) -> None:
        self.origins[dotted(path)] = replace(self._file_origin(path), references=tuple(references), raw=raw)

    def _file_origin(self, path: KeyPath) -> ValueOrigin:
        file, lines = self.apart.get(str(path[0]), (self.file, self.lines))
        return ValueOrigin(file, lines.line_of(path), dotted(path))

    # Tables.

    def report_unknown_keys(self, path: KeyPath, table: Mapping[str, object], valid: Sequence[str]) -> None:
        for name in table:
            if name not in valid:
                hint = _elsewhere(path, name) or did_you_mean(name, valid)
                self.add_problem(
                    (*path, name), f"unknown key{hint or '; valid keys are ' + ', '.join(valid)}"
                )

    def table(self, path: KeyPath, value: object) -> dict[str, object]:
        if isinstance(value, dict):
            return value
        self.add_problem(path, f"expected a table, found {type_name(value)}")
        return {}

    def array_of_tables(self, name: str) -> list[tuple[KeyPath, dict[str, object]]]:
        value = self.document.get(name, [])
        if not isinstance(value, list):
            hint = f"write [[{name}]] with two brackets, and the name as a key"
            self.add_problem((name,), f"expected an array of tables, found {type_name(value)}; {hint}")
            return []
        # An element that is not a table is a problem already; its missing keys would only add more.
        tables = [((name, index), self.table((name, index), element)) for index, element in enumerate(value)]
        return [(path, table) for (path, table), raw in zip(tables, value, strict=True) if table is raw]

    def rows(self, name: str, cls: type[_Row], capabilities: Mapping[str, SettingSpec]) -> Rows[_Row]:
        """Return those tables of an array that have no problems, as settings."""
        rows: Rows[_Row] = []
        keys, make = settings_of(cls), cast(Callable[..., _Row], cls)
        if issubclass(cls, CapabilitySettings):
            keys, make = {**keys, **capabilities}, cls.of
        for path, table in self.array_of_tables(name):
            problems_before = len(self.problems)
            values = self.section(path, table, keys)
            self.report_missing(path, table, keys)
            if len(self.problems) == problems_before:
                rows.append((path, make(**values)))
        return rows

    def report_missing(
        self, path: KeyPath, present: Collection[str], keys: Mapping[str, SettingSpec]
    ) -> None:
        for name, key in keys.items():
            if key.required and name not in present:
                hint = ": `dragoman keys add` makes one" if key.kind is SettingKind.HASH else ""
                self.add_problem((*path, name), f"missing{hint}")

    # Values.

    def section(
        self, path: KeyPath, table: Mapping[str, object], keys: Mapping[str, SettingSpec]
    ) -> dict[str, Any]:
        """Return the checked values of the keys that the table has, and record the others as problems."""
        self.report_unknown_keys(path, table, tuple(keys))
        values = {}
        for name, key in keys.items():
            if name in table:
                read = self._headers if key.kind is SettingKind.HEADERS else self._value
                values[name] = read(key, (*path, name), table[name])
        return {name: value for name, value in values.items() if value is not None}

    def _headers(self, key: SettingSpec, path: KeyPath, raw: object) -> dict[str, object]:
        table = self.table(path, raw)
        spelled: dict[str, str] = {}
        for name in table:
            try:
                lowered = header_name(name)
                if lowered in spelled:
                    raise InvalidValue("is set twice: header names ignore case")
                spelled[lowered] = name
            except InvalidValue as error:
                self.add_problem((*path, name), str(error))
        headers: dict[str, object] = {}
        for lowered, name in spelled.items():
            value = self._value(key, (*path, name), table[name])
            if value is not None:
                headers[lowered] = value
                self.origins[dotted((*path, lowered))] = self.origins.pop(dotted((*path, name)))
        return headers

    def _value(self, key: SettingSpec, path: KeyPath, raw: object) -> object:
        """Return the checked value, or None if something is wrong with it."""
        problems_before, references = len(self.problems), list[str]()
        value = self.expand(path, raw, references)
        if len(self.problems) > problems_before:
            return None
        try:
            checked = check_value(key, value, raw)
        except InvalidValue as error:
            self.add_problem((*path, *error.at), str(error))
            return None
        if key.kind is SettingKind.PATH:
            # Relative paths start at the directory of the file.
            checked = str(Path(self.file).parent / Path(str(checked)).expanduser())
        # Part of a URL may be private, so an expanded one is printed as it was written.
        written = quote_value(raw) if key.kind is SettingKind.URL and references else None
        self.record_file_origin(path, references, written)
        return checked

    def check_text(
        self, values: dict[str, Any], key: SettingSpec, path: KeyPath, text: str, origin: ValueOrigin
    ) -> None:
        """Check a text that is not from the file, and put its value into `values` of the table `path`."""
        try:
            value = parse_text(key, text)
            values[key.name] = check_value(key, value, value)
            self.origins[dotted((*path, key.name))] = origin
        except InvalidValue as error:
            self.problems.append(ConfigProblem(origin, str(error)))

    def expand(self, path: KeyPath, value: object, references: list[str]) -> object:
        """Interpolate all strings in a value; a reference that fails becomes a problem with its place."""
        if isinstance(value, list):
            return [self.expand((*path, i), element, references) for i, element in enumerate(value)]
        if not isinstance(value, str) or "$" not in value:
            return value
        before = len(references)
        try:
            return expand(value, self.environ, Path(self.file).parent, references)
        except InvalidValue as error:
            origin = replace(self._file_origin(path), references=tuple(references[before:]))
            self.problems.append(ConfigProblem(origin, str(error)))
            return value


def _elsewhere(path: KeyPath, name: str) -> str:
    """Return where an unknown key of a table belongs, "" if no other table has it."""
    if path and name in ARRAYS:
        return f"; it is a table of the file: write [[{name}]]"
    if not path and name in settings_of(ServerSettings):
        return "; write it below [server]"
    return ""
