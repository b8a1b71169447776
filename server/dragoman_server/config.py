"""From a TOML file, the environment and the command line to frozen settings.

The strongest source wins: command line, environment, file, default. A wrong value is an error even where
a stronger source hides it. All faults are collected and reported at once, each with its file, line and
key. Loading reads the file, the files it names, and nothing else: no network, no code.
"""

import ipaddress
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar, cast
from urllib.parse import urlsplit

from . import _values
from ._interpolate import InterpolationError, expand
from ._problems import COMMAND_LINE, ENVIRONMENT, ConfigError, KeyPath, Origin, Problem, by_place, dotted
from ._providers import PROVIDERS, Found, discover, takes
from ._secret import MASK, Secret
from ._suggest import did_you_mean
from ._toml_lines import TomlLines
from ._values import BadValue, show, type_name
from .settings import (
    ANTHROPIC_MESSAGES,
    ENV_PREFIX,
    OPENAI_CHAT,
    SERVER_KEYS,
    SIMULATOR,
    SIMULATOR_UPSTREAM,
    UPSTREAM_KEYS,
    UPSTREAM_PROTOCOLS,
    Key,
    Kind,
    ServerSettings,
    Settings,
    UpstreamSettings,
)

__all__ = [
    "ANTHROPIC_MESSAGES",
    "CONFIG_VARIABLE",
    "DEFAULT_FILE",
    "MASK",
    "OPENAI_CHAT",
    "SIMULATOR",
    "SIMULATOR_UPSTREAM",
    "UPSTREAM_PROTOCOLS",
    "ConfigError",
    "Loaded",
    "Origin",
    "Problem",
    "Secret",
    "ServerSettings",
    "Settings",
    "UpstreamSettings",
    "is_loopback",
    "load",
]

CONFIG_VARIABLE = ENV_PREFIX + "CONFIG"
# Read from the working directory when no file is named; its absence is no error.
DEFAULT_FILE = "dragoman.toml"
# A thousand upstreams fit in. A larger file is the wrong file.
MAX_FILE_BYTES = 1024 * 1024

_TABLES = ("server", "upstreams", "models")
_SYNTAX_LINE = re.compile(r" \(at line (\d+), column (\d+)\)$")

_DEFAULTS = ServerSettings()


@dataclass(frozen=True, slots=True)
class Loaded:
    """Settings with their history. A key without an entry in `origins` has its default value."""

    settings: Settings
    path: str | None
    origins: Mapping[str, Origin]
    warnings: tuple[str, ...]


def load(
    *, environ: Mapping[str, str], path: str | None = None, flags: Mapping[str, str] = MappingProxyType({})
) -> Loaded:
    """Read the configuration. Raises ConfigError.

    `path` is the `--config` flag; without it DRAGOMAN_CONFIG counts, then `dragoman.toml` in the working
    directory if there is one. `flags` maps names of server settings to their text on the command line.
    """
    named = path or environ.get(CONFIG_VARIABLE) or None
    file = named or (DEFAULT_FILE if Path(DEFAULT_FILE).is_file() else None)
    loader = _Loader(file, environ, flags)
    if file is not None:
        loader.read(Path(file))
    settings = loader.settings()
    warnings = tuple(_warnings(settings, loader.warnings))
    return Loaded(settings, file, MappingProxyType(loader.origins), warnings)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a socket bound to `host`."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _warnings(settings: Settings, collected: list[str]) -> Iterator[str]:
    yield from collected
    if not is_loopback(settings.server.host):
        yield (
            f"server.host: {settings.server.host} is reachable from other machines, and there are no client "
            "keys: whoever can connect can use your upstreams"
        )
    for upstream in settings.upstreams:
        if upstream.protocol == ANTHROPIC_MESSAGES and urlsplit(upstream.base_url).path.endswith("/v1"):
            yield (
                f"upstream {upstream.name}: the base URL of a Messages upstream is written without /v1, "
                "requests would go to .../v1/v1/messages"
            )


@dataclass(slots=True)
class _Loader:
    file: str | None
    environ: Mapping[str, str]
    flags: Mapping[str, str]
    origins: dict[str, Origin] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    document: dict[str, object] = field(default_factory=dict)
    # The upstreams' names, and where the file gives them.
    names: dict[str, KeyPath] = field(default_factory=dict)
    lines: TomlLines = field(default_factory=lambda: TomlLines(""))

    # Reading the file.

    def read(self, path: Path) -> None:
        try:
            with path.open("rb") as file:
                data = file.read(MAX_FILE_BYTES + 1)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            self._file_problem(None, f"cannot read the configuration: {reason}")
            return
        if len(data) > MAX_FILE_BYTES:
            self._file_problem(None, f"is larger than {MAX_FILE_BYTES} bytes")
            return
        try:
            # "A TOML file must be a valid UTF-8 document"; editors of one system put a byte order mark first.
            text = data.decode("utf-8-sig")
            self.document = tomllib.loads(text)
        except UnicodeDecodeError as error:
            self._file_problem(data.count(b"\n", 0, error.start) + 1, "is not UTF-8 text")
        except tomllib.TOMLDecodeError as error:
            self._syntax_problem(str(error), text)
        except (ValueError, RecursionError):
            self._file_problem(None, "has a number or a nesting that is too large")
        else:
            self.lines = TomlLines(text)

    def _syntax_problem(self, message: str, text: str) -> None:
        place = _SYNTAX_LINE.search(message)
        if place is None:
            line = text.rstrip().count("\n") + 1
            message = message.removesuffix(" (at end of document)") + " at the end of the file"
        else:
            line = int(place[1])
            message = f"{message[: place.start()]} (column {place[2]})"
        self._file_problem(line, f"not valid TOML: {message}")

    def _file_problem(self, line: int | None, text: str) -> None:
        self.problems.append(Problem(self.file or DEFAULT_FILE, line, "", text))

    def _problem(self, path: KeyPath, text: str) -> None:
        line = self.lines.line_of(path)
        self.problems.append(Problem(self.file or DEFAULT_FILE, line, dotted(path), text))

    # From the document to settings.

    def settings(self) -> Settings:
        self._unknown_keys((), self.document, _TABLES)
        server = self._server()
        upstreams = self._upstreams(server) if "upstreams" in self.document else self._found_upstreams(server)
        if server.get("simulator", True):
            self.names.setdefault(SIMULATOR, ())
        elif not upstreams and not self.problems:
            self._no_upstreams()
        models = self._models()
        if self.problems:
            raise ConfigError(sorted(self.problems, key=by_place))
        return Settings(server=_make(ServerSettings, server), upstreams=tuple(upstreams), models=models)

    def _unknown_keys(self, path: KeyPath, table: Mapping[str, object], valid: Sequence[str]) -> None:
        for name in table:
            if name not in valid:
                hint = did_you_mean(name, valid) or "; valid are " + ", ".join(valid)
                self._problem((*path, name), f"unknown key{hint}")

    def _table(self, path: KeyPath, value: object) -> dict[str, object]:
        if isinstance(value, dict):
            return value
        self._problem(path, f"expected a table, found {type_name(value)}")
        return {}

    def _server(self) -> dict[str, object]:
        table = self._table(("server",), self.document.get("server", {}))
        values = self._section(("server",), table, SERVER_KEYS)
        given = set(table)
        for name, key in SERVER_KEYS.items():
            variable, flag = ENV_PREFIX + name.upper(), "--" + name.replace("_", "-")
            # Compose files and shells set empty variables where they mean none.
            if self.environ.get(variable):
                given.add(name)
                self._from_text(values, key, self.environ[variable], ENVIRONMENT, variable)
            if name in self.flags:
                given.add(name)
                self._from_text(values, key, self.flags[name], COMMAND_LINE, flag)
        for name, other in (("certfile", "keyfile"), ("keyfile", "certfile")):
            if name in values and other not in given:
                self._origin_problem(("server", name), f"needs {other} as well")
        return values

    def _origin_problem(self, path: KeyPath, text: str) -> None:
        """A fault of a setting that may have come from any source."""
        origin = self.origins[dotted(path)]
        self.problems.append(Problem(origin.source, origin.line, origin.where or dotted(path), text))

    def _from_text(self, values: dict[str, object], key: Key, text: str, source: str, where: str) -> None:
        if self._check_text(values, key, text, source, where):
            self.origins[dotted(("server", key.name))] = Origin(source, where=where)

    def _check_text(self, values: dict[str, object], key: Key, text: str, source: str, where: str) -> bool:
        try:
            value = _values.parse_text(key, text)
            values[key.name] = _values.check(key, value, value)
        except BadValue as error:
            self.problems.append(Problem(source, None, where, str(error)))
            return False
        return True

    def _section(
        self, path: KeyPath, table: Mapping[str, object], keys: Mapping[str, Key]
    ) -> dict[str, object]:
        """The checked values of the keys that the table has; each fault becomes a problem."""
        self._unknown_keys(path, table, tuple(keys))
        values: dict[str, object] = {}
        for name, key in keys.items():
            if name not in table:
                continue
            if key.kind is Kind.HEADERS:
                values[name] = self._headers((*path, name), table[name])
            else:
                self._value(values, key, (*path, name), table[name])
        return values

    def _value(self, values: dict[str, object], key: Key, path: KeyPath, raw: object) -> None:
        faults = len(self.problems)
        references: list[str] = []
        value = self._expand(path, raw, references)
        if len(self.problems) > faults:
            return
        try:
            checked = _values.check(key, value, raw)
        except BadValue as error:
            self._problem((*path, *error.at), str(error))
            return
        if key.kind is Kind.PATH:
            # A path in a file means what it means to a reader of that file.
            checked = str(self._directory() / Path(str(checked)).expanduser())
        values[key.name] = checked
        # Part of a URL may be private, so an expanded one is shown as it was written.
        shown = show(raw) if key.kind is Kind.URL and references else None
        self._came_from_file(path, references, shown)

    def _came_from_file(
        self,
        path: KeyPath,
        references: Sequence[str],
        raw: str | None = None,
        shown_as: KeyPath | None = None,
    ) -> None:
        source, line = self.file or DEFAULT_FILE, self.lines.line_of(path)
        origin = Origin(source, line, references=tuple(references), raw=raw)
        self.origins[dotted(shown_as or path)] = origin

    def _directory(self) -> Path:
        return Path(self.file).parent if self.file is not None else Path()

    def _expand(self, path: KeyPath, value: object, references: list[str]) -> object:
        """Interpolate all strings in a value; a reference that fails becomes a problem at its own place."""
        if isinstance(value, list):
            return [self._expand((*path, i), element, references) for i, element in enumerate(value)]
        if not isinstance(value, str) or "$" not in value:
            return value
        try:
            expanded = expand(value, self.environ, self._directory())
        except InterpolationError as error:
            self._problem(path, str(error))
            return value
        references.extend(expanded.references)
        return expanded.value

    def _headers(self, path: KeyPath, value: object) -> dict[str, Secret]:
        headers: dict[str, Secret] = {}
        for name, raw in self._table(path, value).items():
            faults, references = len(self.problems), list[str]()
            text = self._expand((*path, name), raw, references)
            if len(self.problems) > faults:
                continue
            try:
                lowered = _values.header_name(name)
                if lowered in headers:
                    raise BadValue("stands here twice: names of headers ignore case")
                headers[lowered] = _values.header_value(text)
            except BadValue as error:
                self._problem((*path, name), str(error))
            else:
                self._came_from_file((*path, name), references, shown_as=(*path, lowered))
        return headers

    # Upstreams.

    def _upstream_tables(self) -> list[tuple[KeyPath, dict[str, object]]]:
        value = self.document["upstreams"]
        if not isinstance(value, list):
            hint = "write [[upstreams]] with two brackets, and the name as a key"
            self._problem(("upstreams",), f"expected an array of tables, found {type_name(value)}; {hint}")
            return []
        paths: list[KeyPath] = [("upstreams", index) for index in range(len(value))]
        # What is no table is a fault already; looking for its keys would only add more.
        tables = [(path, self._table(path, table)) for path, table in zip(paths, value, strict=True)]
        return [(path, table) for (path, table), raw in zip(tables, value, strict=True) if table is raw]

    def _upstreams(self, server: Mapping[str, object]) -> list[UpstreamSettings]:
        upstreams = []
        for path, table in self._upstream_tables():
            faults = len(self.problems)
            values = self._section(path, table, UPSTREAM_KEYS)
            if "protocol" not in table and isinstance(values.get("protocols"), tuple):
                values["protocol"] = cast(tuple[str, ...], values["protocols"])[0]
            for name in ("name", "protocol", "base_url"):
                if name not in table and name not in values:
                    self._problem((*path, name), "missing")
            self._check_upstream(path, values, server)
            if len(self.problems) == faults:
                upstreams.append(_upstream(values))
        return upstreams

    def _check_upstream(
        self, path: KeyPath, values: Mapping[str, object], server: Mapping[str, object]
    ) -> None:
        """What one key alone does not tell."""
        protocol, protocols = values.get("protocol"), values.get("protocols")
        if protocol and isinstance(protocols, tuple) and protocol not in protocols:
            self._problem((*path, "protocols"), f"does not list {show(protocol)}, the preferred protocol")
        if "base_url" in values and _is_us(str(values["base_url"]), server):
            self._problem((*path, "base_url"), "points at this gateway itself")
        if "name" not in values:
            return
        name = str(values["name"])
        if name == SIMULATOR:
            self._problem((*path, "name"), f"{show(name)} is the built-in simulator; choose another name")
        elif name in self.names:
            line = self.lines.line_of(self.names[name])
            self._problem((*path, "name"), f"{show(name)} is already the name of the upstream in line {line}")
        else:
            self.names[name] = (*path, "name")

    def _found_upstreams(self, server: Mapping[str, object]) -> list[UpstreamSettings]:
        upstreams: list[UpstreamSettings] = []
        for found in discover(self.environ):
            if found.base_url_variable and _is_us(found.base_url, server):
                # ANTHROPIC_BASE_URL is what points Claude Code at us. A gateway must not call itself.
                self.warnings.append(
                    f"{found.base_url_variable} points at this gateway itself, so {found.key_variable} "
                    f"makes no upstream {found.provider.name}"
                )
            else:
                self._found_upstream(found, upstreams)
        return upstreams

    def _found_upstream(self, found: Found, upstreams: list[UpstreamSettings]) -> None:
        values: dict[str, object] = {
            "name": found.provider.name,
            "protocol": found.protocol,
            "protocols": found.protocols,
            "auth": found.auth,
        }
        url_variable = found.base_url_variable or found.key_variable
        texts = {
            "base_url": (url_variable, found.base_url),
            "api_key": (found.key_variable, self.environ[found.key_variable]),
        }
        faults = len(self.problems)
        for name, (variable, text) in texts.items():
            self._check_text(values, UPSTREAM_KEYS[name], text, ENVIRONMENT, variable)
        if len(self.problems) > faults:
            return
        for name in values:
            variable, _ = texts.get(name, (found.key_variable, ""))
            self.origins[dotted(("upstreams", len(upstreams), name))] = Origin(ENVIRONMENT, where=variable)
        self.names[found.provider.name] = ()
        upstreams.append(_upstream(values))

    def _no_upstreams(self) -> None:
        variables = ", ".join(variable for provider in PROVIDERS for variable, _ in provider.keys)
        text = f"is off, and there is no upstream: add [[upstreams]] to a file or set one of {variables}"
        self._origin_problem(("server", "simulator"), text)

    # Models.

    def _models(self) -> dict[str, str]:
        models: dict[str, str] = {}
        for alias, raw in self._table(("models",), self.document.get("models", {})).items():
            path = ("models", alias)
            faults, references = len(self.problems), list[str]()
            target = self._expand(path, raw, references)
            text = _target_fault(target, raw, self.names)
            if text is not None and len(self.problems) == faults:
                self._problem(path, text)
            elif text is None:
                models[alias] = str(target)
                self._came_from_file(path, references)
        return models


def _target_fault(target: object, raw: object, names: Mapping[str, KeyPath]) -> str | None:
    if isinstance(target, dict):
        return "expected a string, found a table; write names with dots in quotes"
    if not isinstance(target, str):
        return f"expected a string, found {type_name(target)}"
    upstream, slash, model = target.partition("/")
    if not slash or not upstream or not model:
        return f'{show(raw)} is not of the form "upstream/model"'
    if upstream not in names:
        hint = did_you_mean(upstream, names) or "; there are " + (", ".join(sorted(names)) or "none")
        return f"unknown upstream {show(str(raw).partition('/')[0])}{hint}"
    return None


def _upstream(values: dict[str, object]) -> UpstreamSettings:
    return _make(UpstreamSettings, {**takes(str(values["base_url"])), **values})


def _is_us(url: str, server: Mapping[str, object]) -> bool:
    """Whether `url` leads to the address that `server`, a table of checked values, binds."""
    bound, bound_port = (server.get(name, getattr(_DEFAULTS, name)) for name in ("host", "port"))
    try:
        parts = urlsplit(url)
        port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    except ValueError:
        return False
    host = parts.hostname or ""
    # Bound to all addresses, we are also behind the loopback ones.
    ours = bound in ("0.0.0.0", "::") or is_loopback(str(bound))
    return port == bound_port and (host == bound or (ours and is_loopback(host)))


_Class = TypeVar("_Class", ServerSettings, UpstreamSettings)


def _make(cls: type[_Class], values: Mapping[str, object]) -> _Class:
    """The one place where checked values of any type go into a typed class."""
    return cls(**cast(dict[str, Any], values))
