"""Load a TOML file, the environment and the command line into frozen settings.

The strongest source wins: command line, environment, file, default. A wrong value is an error even if a stronger source
hides it. All problems are collected and reported together, each with its file, line and key. Loading reads the file and
the files that it names, and nothing else. Single values are read by `sources`; this module has the list of tables, and
checks what must fit together.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec import structs
from msgspec.structs import replace

from dragoman import PROTOCOLS
from dragoman.codec import ProtocolSpec, UpstreamSpec
from dragoman_server.accounts.prices import Prices
from dragoman_server.capabilities.cloud_apis import CLOUD_APIS, cloud_api_name_at
from dragoman_server.capabilities.providers import (
    PROVIDERS,
    address_of,
    discover_providers,
    host_capabilities,
    protocols_at,
)
from dragoman_server.config.route_tables import RouteTables
from dragoman_server.config.sources import Rows
from dragoman_server.config.toml_lines import KeyPath
from dragoman_server.platform.extras import missing_extra
from dragoman_server.settings import (
    ARRAYS,
    SIMULATOR,
    ServerSettings,
    Settings,
    UpstreamSettings,
    capability_settings,
    settings_of,
)
from dragoman_server.settings.checks import client_problems, server_problems
from dragoman_server.settings.fields import SettingSpec
from dragoman_server.settings.patterns import WILDCARD, targets_of
from dragoman_server.settings.problems import (
    COMMAND_LINE,
    ENVIRONMENT,
    CheckFinding,
    ValueOrigin,
    dotted,
    nearest,
    quote_value,
)
from dragoman_server.settings.secret import Secret
from dragoman_server.settings.server import ENV_PREFIX, KEY_VARIABLE
from dragoman_server.settings.upstreams import AUTO_HOST
from dragoman_server.settings.values import is_loopback, missing_socks, proxies_of, repeated_version
from dragoman_server.valkey.url import parse_valkey_url

# Read from the working directory if no file is named; it may be missing.
DEFAULT_FILE = "dragoman.toml"
CONFIG_VARIABLE = ENV_PREFIX + "CONFIG"

_TABLES = (
    "server",
    "upstreams",
    "models",
    "endpoints",
    "capabilities",
    "groups",
    "client_keys",
    "aws_keys",
    "prices",
    "accounts",
    "rules",
)

# Table, the key whose values must differ, the text if they do not, and the key in whose equal values they must.
_UNIQUE = (
    ("prices", "model", "has a price already", "above_tokens"),
    ("groups", "name", "is already the name of another group", ""),
    ("client_keys", "name", "is already the name of another key", ""),
    ("aws_keys", "access_key_id", "is already the id of another key", ""),
    ("accounts", "name", "is already an account of this upstream", "upstream"),
)

# Settings that may name a Valkey server.
_STORES = ("response_store", "account_store", "usage_store")

_NEEDED_BY_STORES = tuple(
    (store, kind, f"{store}_{by}")
    for store in _STORES
    for kind, by in (("sqlite", "path"), ("valkey", "url"))
)

# Settings of the server that need another one: with any value, or with this one.
_NEEDED = (
    ("certfile", None, "keyfile"),
    ("keyfile", None, "certfile"),
    *_NEEDED_BY_STORES,
)


class LoadedConfig(msgspec.Struct, frozen=True):
    """Settings and where they came from.

    Attributes:
        path: The file's path, None without one.
        keys_file: The file that `dragoman keys` writes, next to the configuration file: dragoman.client_keys.toml.
    """

    settings: Settings
    path: str | None
    keys_file: Path
    warnings: tuple[CheckFinding, ...] = ()

    def origin(self, *path: str | int) -> ValueOrigin:
        """Return where the value of a key came from, or where it would be written."""
        return self.settings.origins.get(dotted(path)) or ValueOrigin(
            self.path or DEFAULT_FILE, where=dotted(path)
        )


def load(
    *,
    environ: Mapping[str, str],
    path: str | None = None,
    flags: Mapping[str, str] = MappingProxyType({}),
    protocols: Mapping[str, ProtocolSpec] = PROTOCOLS,
    keys_file: Path | None = None,
) -> LoadedConfig:
    """Read the configuration. Raises ConfigError.

    environ: the environment variables.
    path: of the file; without it DRAGOMAN_CONFIG counts, then `dragoman.toml` in the working directory if there is one.
    flags: the text of server settings on the command line, by the name of the setting.
    protocols: upstreams may speak those that have an upstream half; `create_app` must get the same.
    keys_file: of client keys, if not the one of the configuration file.
    """
    specs = {name: spec for name, spec in protocols.items() if isinstance(spec, UpstreamSpec)}
    named = path or environ.get(CONFIG_VARIABLE) or None
    file = named or (DEFAULT_FILE if Path(DEFAULT_FILE).is_file() else None)
    base = Path(file or DEFAULT_FILE)
    keys_file = keys_file or base.parent / f"{base.stem}.client_keys.toml"
    loader = _Loader(file or DEFAULT_FILE, environ, flags=flags, specs=specs)
    if file is not None:
        loader.read(Path(file))
    if os.path.isfile(keys_file):
        loader.read_apart("client_keys", keys_file)
    loaded = LoadedConfig(loader.settings(), file, keys_file)
    return replace(loaded, warnings=(*loader.warnings, *_warnings(loaded, environ, specs)))


def _warnings(
    loaded: LoadedConfig, environ: Mapping[str, str], specs: Mapping[str, UpstreamSpec]
) -> Iterator[CheckFinding]:
    settings = loaded.settings
    for name, value in proxies_of(environ):
        if (missing := missing_socks(value)) is not None:
            text, _, fix = missing.partition(": ")
            yield CheckFinding.warning("proxy", name, text, fix)
    yield from _unknown_variables(loaded, environ)
    if not is_loopback(settings.server.host) and not settings.needs_keys:
        text = (
            f"{settings.server.host} is reachable from other machines, and there are no client keys: whoever can "
            "connect can use your upstreams"
        )
        yield CheckFinding.warning("public", "server.host", text, "make a key with `dragoman keys add NAME`")
    if "*" in settings.server.cors_origins and not settings.needs_keys:
        text = (
            "any web page that is opened in a browser on this machine can use your upstreams, because there are no "
            "client keys"
        )
        fix = "write the origins of your pages, or make a key with `dragoman keys add NAME`"
        yield CheckFinding.warning("public", "server.cors_origins", text, fix)
    for store, kind, needed in _NEEDED_BY_STORES:
        # With another store it waits for a change back.
        if getattr(settings.server, store) == "memory" and getattr(settings.server, needed) is not None:
            place = loaded.origin("server", needed).changed_at
            fix = f'write {store} = "{kind}", or remove it: {place}'
            yield CheckFinding.warning("store", f"server.{needed}", f"has no effect: {store} is memory", fix)
    yield from _lost_prefixes(settings)
    for index, upstream in enumerate(settings.upstreams):
        path = specs[upstream.protocol].path
        if version := repeated_version(upstream.base_url, path):
            place, url = loaded.origin("upstreams", index, "base_url").changed_at, f"...{version}{path}"
            text = f"the base URL for {upstream.protocol} is written without {version}; requests would go to {url}"
            fix = f"remove {version} from base_url: {place}"
            yield CheckFinding.warning("base_url", f"upstream {upstream.name}", text, fix)


def _lost_prefixes(settings: Settings) -> Iterator[CheckFinding]:
    """Find patterns such as "claude-*" = "openrouter/anthropic/*", which requests anthropic/opus-5."""
    for name, chain in settings.models.items():
        before, wildcard, _ = name.partition(WILDCARD)
        prefix = before.rpartition("/")[2]
        for target in targets_of(chain):
            fixed, substituted, rest = target.partition(WILDCARD)
            if wildcard and prefix and substituted and fixed.endswith("/"):
                yield CheckFinding.warning(
                    "models",
                    dotted(("models", name)),
                    f'{quote_value(target)} loses "{prefix}", because * stands for the text behind it',
                    f"write {quote_value(fixed + prefix + substituted + rest)}",
                )


def _unknown_variables(loaded: LoadedConfig, environ: Mapping[str, str]) -> Iterator[CheckFinding]:
    of_server = settings_of(ServerSettings)
    valid = {ENV_PREFIX + name.upper() for name in of_server} | {CONFIG_VARIABLE, KEY_VARIABLE}
    # Values of the file may refer to any variable.
    referenced = {name for origin in loaded.settings.origins.values() for name in origin.references}
    for name in sorted(environ):
        if name.upper().startswith(ENV_PREFIX) and name not in valid and name not in referenced:
            # The prefix alone would make all of them similar.
            found = nearest(name[len(ENV_PREFIX) :], [each.removeprefix(ENV_PREFIX) for each in valid])
            fix = f"write {ENV_PREFIX}{found}, or unset {name}" if found else f"unset {name}"
            yield CheckFinding.warning("environment", name, "is not a variable of Dragoman", fix)


class _Loader(RouteTables, kw_only=True):
    """Reads the tables one after the other, because some refer to others.

    Attributes:
        specs: The protocols that upstreams may speak.
    """

    flags: Mapping[str, str]
    specs: Mapping[str, UpstreamSpec]
    warnings: list[CheckFinding] = msgspec.field(default_factory=list)
    capabilities: Mapping[str, SettingSpec] = msgspec.field(default_factory=dict)
    upstream_keys: Mapping[str, SettingSpec] = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        self.capabilities = capability_settings(self.specs.values())
        keys, choices = settings_of(UpstreamSettings), tuple(self.specs)
        spoken = {name: structs.replace(keys[name], choices=choices) for name in ("protocol", "protocols")}
        self.upstream_keys = {**keys, **spoken, **self.capabilities}

    def settings(self) -> Settings:
        self.report_unknown_keys((), self.document, _TABLES)
        server = self._server()
        upstreams = list(
            self._upstreams(server) if "upstreams" in self.document else self._discovered_upstreams(server)
        )
        if server.offers_simulator:
            self.names.setdefault(SIMULATOR, ())
        elif not upstreams and not self.problems:
            variables = ", ".join(variable for provider in PROVIDERS for variable, _ in provider.keys)
            text = f"is off, and there is no upstream: add [[upstreams]] to a file or set one of {variables}"
            self.add_problem(("server", "simulator"), text)
        models, endpoints = self.models(), self.endpoints()
        rows = {
            name: self.rows(name, cls, self.capabilities)
            for name, cls in ARRAYS.items()
            if name != "upstreams"
        }
        spoken = {upstream.name: upstream.protocols for upstream in upstreams}
        for path, row in rows["capabilities"]:
            self._check_capabilities(path, row.capabilities, spoken.get(row.upstream, ()))
        for path, row in (*rows["capabilities"], *rows["accounts"], *rows["rules"]):
            if row.upstream is not None and row.upstream not in self.names:
                self.add_problem((*path, "upstream"), f"names no upstream{self.names_hint(row.upstream)}")
        for name, key, text, within in _UNIQUE:
            self._check_unique(rows[name], key, text, within)
        with_prices = bool(self.document.get("prices") or Prices((), upstreams))
        for path, text in client_problems(
            rows["groups"], rows["client_keys"], rows["aws_keys"], server, with_prices=with_prices
        ):
            self.add_problem(path, text)
        with_keys = {upstream.name for upstream in upstreams if upstream.api_key is not None}
        for path, account in rows["accounts"]:
            if account.upstream in with_keys:
                text = f"upstream {account.upstream} has an api_key as well: make that an account"
                self.add_problem(path, text)
        for path, rule in rows["rules"]:
            if not (rule.statuses or rule.codes or rule.words):
                self.add_problem(path, "has no condition: add statuses, codes or words")
        # Wrong rows are a separate problem, and an empty list of keys counts as none.
        has_keys = bool(self.document.get("client_keys"))
        limited = any(
            row.has_limits for name in ("groups", "client_keys", "accounts") for _, row in rows[name]
        )
        for name, text in server_problems(server, has_keys=has_keys, has_limits=limited):
            self.add_problem(("server", name), text)
        self.raise_problems()
        arrays: dict[str, Any] = {name: tuple(row for _, row in found) for name, found in rows.items()}
        settings = Settings(
            server=server,
            upstreams=tuple(upstreams),
            models=models,
            endpoints=endpoints,
            proxies=tuple(Secret(value) for _, value in proxies_of(self.environ)),
            origins=self.origins,
            **arrays,
        )
        self._check_default_model(settings)
        self.raise_problems()
        return settings

    def _server(self) -> ServerSettings:
        keys = settings_of(ServerSettings)
        table = self.table(("server",), self.document.get("server", {}))
        values = self.section(("server",), table, keys)
        configured = set(table)
        for name, key in keys.items():
            variable, flag = ENV_PREFIX + name.upper(), "--" + name.replace("_", "-")
            # Compose files and shells set empty variables that mean none.
            for source, where, text in (
                (ENVIRONMENT, variable, self.environ.get(variable) or None),
                (COMMAND_LINE, flag, self.flags.get(name)),
            ):
                if text is not None:
                    configured.add(name)
                    self.check_text(values, key, ("server",), text, ValueOrigin(source, where=where))
        for name, value, needed in _NEEDED:
            if name in values and value in (None, values[name]) and needed not in configured:
                self.add_problem(("server", name), f"needs {needed} as well")
        server = ServerSettings(**values)
        for name, extra, needs in (
            *((name, "valkey", getattr(server, name) == "valkey") for name in _STORES),
            ("metrics_key", "metrics", server.metrics_key is not None),
            ("otel", "otel", server.otel),
        ):
            if needs and (missing := missing_extra(extra)) is not None:
                self.add_problem(("server", name), missing)
        for name in [f"{store}_url" for store in _STORES]:
            try:
                if (url := getattr(server, name)) is not None:
                    parse_valkey_url(url.reveal())
            except ValueError as error:
                self.add_problem(("server", name), str(error))
        return server

    # Upstreams.

    def _upstreams(self, server: ServerSettings) -> Iterator[UpstreamSettings]:
        for path, table in self.array_of_tables("upstreams"):
            problems_before = len(self.problems)
            values = self.section(path, table, self.upstream_keys)
            if "protocol" not in table and values.get("protocols"):
                values["protocol"] = values["protocols"][0]
            self.report_missing(path, {**table, **values}, self.upstream_keys)
            self._check_upstream(path, values, server)
            if len(self.problems) == problems_before:
                yield _upstream(values)

    def _check_upstream(self, path: KeyPath, values: Mapping[str, Any], server: ServerSettings) -> None:
        """Check what depends on more than one key."""
        protocol, name = values.get("protocol"), values.get("name")
        protocols = values.get("protocols", (protocol,) if protocol else ())
        self._check_capabilities(path, values, protocols)
        host = values.get("host", AUTO_HOST)
        api = CLOUD_APIS.get(cloud_api_name_at(values.get("base_url", "")) if host == AUTO_HOST else host)
        for each in protocols if api is not None else ():
            if api is not None and not api.speaks(self.specs[each]):
                self.add_problem((*path, "host"), f"is a cloud that does not speak {each}")
        if protocol and protocol not in protocols:
            text = f"does not list {quote_value(protocol)}, the preferred protocol"
            self.add_problem((*path, "protocols"), text)
        if "base_url" in values and _is_this_gateway(values["base_url"], server):
            self.add_problem((*path, "base_url"), "points at this gateway itself")
        if name == SIMULATOR:
            text = f"{quote_value(name)} is the built-in simulator; choose another name"
            self.add_problem((*path, "name"), text)
        elif name in self.names:
            line = self.lines.line_of(self.names[name])
            text = f"{quote_value(name)} is already the name of the upstream in line {line}"
            self.add_problem((*path, "name"), text)
        elif name is not None:
            self.names[name] = (*path, "name")

    def _discovered_upstreams(self, server: ServerSettings) -> Iterator[UpstreamSettings]:
        index = 0
        for provider, key_variable, auth in discover_providers(self.environ):
            name, url_variable = provider.name, provider.base_url_variable
            url = self.environ.get(url_variable) or None
            if url and _is_this_gateway(url, server):
                # ANTHROPIC_BASE_URL points Claude Code at the gateway, which must not send requests to itself.
                text = f"points at this gateway itself, so {key_variable} does not make an upstream {name}"
                fix = f"unset {url_variable} where the gateway is started"
                self.warnings.append(CheckFinding.warning("environment", url_variable, text, fix))
                continue
            path, problems_before = ("upstreams", index), len(self.problems)
            by_key = ValueOrigin(ENVIRONMENT, where=key_variable)
            by_url = ValueOrigin(ENVIRONMENT, where=url_variable) if url else by_key
            url = provider.base_url_in(self.environ) or provider.base_url
            protocols = protocols_at(provider, url)
            values: dict[str, Any] = {
                "name": name,
                "protocol": protocols[0],
                "protocols": tuple(sorted(protocols)),
                "auth": auth,
            }
            if provider.headers:
                values["headers"] = {header: Secret(self.environ[by]) for header, by in provider.headers}
            self.origins |= {dotted((*path, name)): by_key for name in values}
            self.check_text(values, self.upstream_keys["base_url"], path, url, by_url)
            self.check_text(values, self.upstream_keys["api_key"], path, self.environ[key_variable], by_key)
            if len(self.problems) == problems_before:
                self.names[name] = ()
                index += 1
                values["variables"] = {
                    "api_key": key_variable,
                    "base_url": url_variable,
                    **dict(provider.headers),
                }
                yield _upstream(values)

    # The other tables.

    def _check_capabilities(self, path: KeyPath, names: Iterable[str], protocols: Sequence[str]) -> None:
        """Record the capabilities that none of the protocols has. No protocols: they are unknown."""
        own = capability_settings([self.specs[protocol] for protocol in protocols])
        for name in names if protocols else ():
            if name in self.capabilities and name not in own:
                text = f"is no capability of {' and '.join(protocols)}, which has {', '.join(own)}"
                self.add_problem((*path, name), text)

    def _check_default_model(self, settings: Settings) -> None:
        if settings.server.default_model is None:
            return
        # The router takes a while to import, and most configurations have no default model.
        from dragoman_server.models.routes import UnknownModel, resolve

        route = resolve(settings, None, settings.server.default_model)
        if isinstance(route, UnknownModel):
            hint = "" if route.suggestion is None else f"; did you mean {quote_value(route.suggestion)}?"
            text = f'is routed to no upstream: write a name of [models], or "upstream/model"{hint}'
            self.add_problem(("server", "default_model"), text)

    def _check_unique(self, rows: Rows[Any], key: str, text: str, within: str) -> None:
        """Record values of a key that occur twice, or twice with the same value of the key `within`."""
        seen: set[tuple[str, str]] = set()
        for path, row in rows:
            value = getattr(row, key), getattr(row, within, "")
            if value in seen:
                self.add_problem((*path, key), f"{quote_value(value[0])} {text}")
            seen.add(value)


def _upstream(values: dict[str, Any]) -> UpstreamSettings:
    # Capabilities are resolved for each model, see capabilities/resolve.py.
    host = host_capabilities(values["base_url"], values["protocol"], values.get("host", AUTO_HOST))
    known = {name: value for name, value in host.items() if name in settings_of(UpstreamSettings)}
    if values.get("models"):
        known.pop("default_model", None)  # the user's list comes first
    return UpstreamSettings.of(**{**known, **values})


def _is_this_gateway(url: str, server: ServerSettings) -> bool:
    """True if `url` leads to the address that the server binds."""
    host, port = address_of(url)
    # A gateway that is bound to all addresses is reachable by the loopback ones too.
    ours = server.host in ("0.0.0.0", "::") or is_loopback(server.host)
    return port == server.port and (host == server.host or (ours and is_loopback(host)))
