"""Load a TOML file, the environment and the command line into frozen settings.

The strongest source wins: command line, environment, file, default. A wrong value is an error even if a stronger source
hides it. All problems are collected and reported at once, each with its file, line and key. Loading reads the file and
the files that it names, and nothing else. Single values are read by `sources`; this module has the list of tables, and
checks what must fit together.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar, cast
from urllib.parse import urlsplit

from dragoman import PROTOCOLS
from dragoman.codec import ProtocolSpec, UpstreamSpec
from dragoman_server.capabilities.providers import (
    PROVIDERS,
    DiscoveredProvider,
    discover_providers,
    host_capabilities,
)
from dragoman_server.config.model_aliases import check_default_model, read_model_aliases
from dragoman_server.config.problems import (
    COMMAND_LINE,
    ENVIRONMENT,
    ConfigError,
    ValueOrigin,
    did_you_mean,
    dotted,
    quote_value,
)
from dragoman_server.config.sources import DEFAULT_FILE, ConfigSources
from dragoman_server.config.toml_lines import KeyPath
from dragoman_server.config.valkey_url import VALKEY_EXTRA_MISSING, parse_valkey_url, valkey_available
from dragoman_server.config.values import is_loopback
from dragoman_server.keys import hash_client_key
from dragoman_server.settings import (
    ACCOUNT_KEYS,
    CAPABILITY_KEYS,
    CLIENT_KEY_KEYS,
    ENV_PREFIX,
    MODEL_KEYS,
    PRICE_KEYS,
    RULE_KEYS,
    SERVER_KEYS,
    SIMULATOR,
    AccountSettings,
    ClientKey,
    Price,
    RuleSettings,
    ServerSettings,
    Settings,
    UpstreamSettings,
    upstream_keys,
)
from dragoman_server.settings.capabilities import ModelCapabilitySettings
from dragoman_server.settings.fields import SettingSpec
from dragoman_server.settings.secret import Secret

__all__ = [
    "CONFIG_VARIABLE",
    "DEFAULT_FILE",
    "ConfigError",
    "LoadedConfig",
    "load",
]

CONFIG_VARIABLE = ENV_PREFIX + "CONFIG"

_TABLES = ("server", "upstreams", "models", "capabilities", "client_keys", "prices", "accounts", "rules")

_DEFAULTS = ServerSettings()

# The variables by which requests to upstreams take a proxy.
_PROXY_VARIABLES = ("http_proxy", "https_proxy", "all_proxy")
SOCKS_EXTRA_MISSING = "a SOCKS proxy needs an extra: install dragoman[socks]"


@dataclass(frozen=True, slots=True)
class LoadedConfig:
    """Settings and where they came from.

    path: of the file, None without one. origins: by dotted key; a key without an entry has its default value.
    warnings: one line each.
    """

    settings: Settings
    path: str | None
    origins: Mapping[str, ValueOrigin]
    warnings: tuple[str, ...]


def load(
    *,
    environ: Mapping[str, str],
    path: str | None = None,
    flags: Mapping[str, str] = MappingProxyType({}),
    protocols: Mapping[str, ProtocolSpec] = PROTOCOLS,
) -> LoadedConfig:
    """Read the configuration. Raises ConfigError.

    environ: the environment variables.
    path: of the file; without it DRAGOMAN_CONFIG counts, then `dragoman.toml` in the working directory if there is one.
    flags: the text of server settings on the command line, by the name of the setting.
    protocols: upstreams may speak those that have an upstream half; `create_app` must get the same.
    """
    specs = {name: spec for name, spec in protocols.items() if isinstance(spec, UpstreamSpec)}
    named = path or environ.get(CONFIG_VARIABLE) or None
    file = named or (DEFAULT_FILE if Path(DEFAULT_FILE).is_file() else None)
    sources = ConfigSources(file, environ)
    if file is not None:
        sources.read(Path(file))
    loader = _Loader(sources, flags, upstream_keys(specs))
    settings = loader.settings()
    warnings = tuple(_warnings(settings, loader.warnings, environ, specs))
    return LoadedConfig(settings, file, MappingProxyType(sources.origins), warnings)


def is_socks(url: str) -> bool:
    """True if `url` is that of a SOCKS proxy."""
    return url.lower().startswith("socks")


def socks_available() -> bool:
    """True if the extra is installed."""
    return find_spec("socksio") is not None


def _warnings(
    settings: Settings,
    collected: list[str],
    environ: Mapping[str, str],
    specs: Mapping[str, UpstreamSpec],
) -> Iterator[str]:
    yield from collected
    for name, value in environ.items():
        if name.lower() in _PROXY_VARIABLES and is_socks(value) and not socks_available():
            yield f"{name}: {SOCKS_EXTRA_MISSING}"
    if not is_loopback(settings.server.host) and not settings.client_keys:
        yield (
            f"server.host: {settings.server.host} is reachable from other machines, and there are no client "
            "keys: whoever can connect can use your upstreams"
        )
    if "*" in settings.server.cors_origins and not settings.client_keys:
        yield (
            "server.cors_origins: any web page that is opened in a browser on this machine can use your upstreams, "
            "because there are no client keys"
        )
    for upstream in settings.upstreams:
        path = specs[upstream.protocol].path
        if path.startswith("/v1/") and urlsplit(upstream.base_url).path.endswith("/v1"):
            yield (
                f"upstream {upstream.name}: the base URL for {upstream.protocol} is written without /v1; "
                f"requests would go to .../v1{path}"
            )


@dataclass(slots=True)
class _Loader:
    sources: ConfigSources
    flags: Mapping[str, str]
    upstream_keys: Mapping[str, SettingSpec]
    warnings: list[str] = field(default_factory=list)
    # The names of all upstreams, and where the file has them.
    names: dict[str, KeyPath] = field(default_factory=dict)

    def settings(self) -> Settings:
        self.sources.report_unknown_keys((), self.sources.document, _TABLES)
        server = self._server()
        upstreams = (
            self._upstreams(server)
            if "upstreams" in self.sources.document
            else self._discovered_upstreams(server)
        )
        if server.get("simulator", True):
            self.names.setdefault(SIMULATOR, ())
        elif not upstreams and not self.sources.problems:
            self._no_upstreams()
        models = read_model_aliases(self.sources, self.names)
        capabilities = self._capabilities()
        prices = self._prices()
        client_keys = self._client_keys(server, prices)
        accounts = self._accounts(upstreams)
        rules = self._rules()
        self._check_public(server, client_keys)
        self.sources.raise_problems()
        settings = Settings(
            server=_make(ServerSettings, server),
            upstreams=tuple(upstreams),
            models=models,
            capabilities=tuple(capabilities),
            client_keys=tuple(client_keys),
            prices=tuple(prices),
            accounts=tuple(accounts),
            rules=tuple(rules),
            proxies=tuple(
                Secret(value)
                for name, value in self.sources.environ.items()
                if name.lower() in _PROXY_VARIABLES and value
            ),
        )
        if settings.server.default_model is not None:
            check_default_model(self.sources, settings, settings.server.default_model)
            self.sources.raise_problems()
        return settings

    def _server(self) -> dict[str, object]:
        table = self.sources.table(("server",), self.sources.document.get("server", {}))
        values = self.sources.section(("server",), table, SERVER_KEYS)
        configured = set(table)
        for name, key in SERVER_KEYS.items():
            variable, flag = ENV_PREFIX + name.upper(), "--" + name.replace("_", "-")
            # Compose files and shells set empty variables that mean none.
            if self.sources.environ.get(variable):
                configured.add(name)
                self._from_text(values, key, self.sources.environ[variable], ENVIRONMENT, variable)
            if name in self.flags:
                configured.add(name)
                self._from_text(values, key, self.flags[name], COMMAND_LINE, flag)
        for name, other in (("certfile", "keyfile"), ("keyfile", "certfile")):
            if name in values and other not in configured:
                self.sources.add_origin_problem(("server", name), f"needs {other} as well")
        self._check_response_store(values, configured)
        self._check_account_store(values, configured)
        return values

    def _check_response_store(self, values: Mapping[str, object], configured: Collection[str]) -> None:
        store = values.get("response_store")
        if store == "sqlite" and "response_store_path" not in configured:
            self.sources.add_origin_problem(("server", "response_store"), "needs response_store_path as well")
        if store == "memory" and cast(int, values.get("workers", 1)) > 1:
            text = "exists in one process only, and there are several workers: use sqlite"
            self.sources.add_origin_problem(("server", "response_store"), text)

    def _check_account_store(self, values: Mapping[str, object], configured: Collection[str]) -> None:
        store = values.get("account_store")
        needed = {"sqlite": "account_store_path", "valkey": "account_store_url"}.get(str(store))
        if needed is not None and needed not in configured:
            self.sources.add_origin_problem(("server", "account_store"), f"needs {needed} as well")
        if store == "valkey" and not valkey_available():
            self.sources.add_origin_problem(("server", "account_store"), VALKEY_EXTRA_MISSING)
        url = values.get("account_store_url")
        if isinstance(url, Secret):
            try:
                parse_valkey_url(url.reveal())
            except ValueError as error:
                self.sources.add_origin_problem(("server", "account_store_url"), str(error))

    def _from_text(
        self, values: dict[str, object], key: SettingSpec, text: str, source: str, where: str
    ) -> None:
        if self.sources.check_text(values, key, text, source, where):
            self.sources.origins[dotted(("server", key.name))] = ValueOrigin(source, where=where)

    # Upstreams.

    def _upstreams(self, server: Mapping[str, object]) -> list[UpstreamSettings]:
        upstreams = []
        for path, table in self.sources.array_of_tables("upstreams"):
            problems_before = len(self.sources.problems)
            values = self.sources.section(path, table, self.upstream_keys)
            if "protocol" not in table and isinstance(values.get("protocols"), tuple):
                values["protocol"] = cast(tuple[str, ...], values["protocols"])[0]
            for name in ("name", "protocol", "base_url"):
                if name not in table and name not in values:
                    self.sources.add_problem((*path, name), "missing")
            self._check_upstream(path, values, server)
            self._check_proxy(path, values)
            if len(self.sources.problems) == problems_before:
                upstreams.append(_upstream(values))
        return upstreams

    def _check_upstream(
        self, path: KeyPath, values: Mapping[str, object], server: Mapping[str, object]
    ) -> None:
        """Check what depends on more than one key."""
        protocol, protocols = values.get("protocol"), values.get("protocols")
        if protocol and isinstance(protocols, tuple) and protocol not in protocols:
            self.sources.add_problem(
                (*path, "protocols"), f"does not list {quote_value(protocol)}, the preferred protocol"
            )
        if "base_url" in values and _is_this_gateway(str(values["base_url"]), server):
            self.sources.add_problem((*path, "base_url"), "points at this gateway itself")
        if "name" not in values:
            return
        name = str(values["name"])
        if name == SIMULATOR:
            self.sources.add_problem(
                (*path, "name"), f"{quote_value(name)} is the built-in simulator; choose another name"
            )
        elif name in self.names:
            line = self.sources.lines.line_of(self.names[name])
            self.sources.add_problem(
                (*path, "name"), f"{quote_value(name)} is already the name of the upstream in line {line}"
            )
        else:
            self.names[name] = (*path, "name")

    def _check_proxy(self, path: KeyPath, values: Mapping[str, object]) -> None:
        proxy = values.get("proxy")
        if isinstance(proxy, Secret) and is_socks(proxy.reveal()) and not socks_available():
            self.sources.add_problem((*path, "proxy"), SOCKS_EXTRA_MISSING)

    def _discovered_upstreams(self, server: Mapping[str, object]) -> list[UpstreamSettings]:
        upstreams: list[UpstreamSettings] = []
        for found in discover_providers(self.sources.environ):
            if found.base_url_variable and _is_this_gateway(found.base_url, server):
                # ANTHROPIC_BASE_URL points Claude Code at the gateway, which must not send requests to itself.
                self.warnings.append(
                    f"{found.base_url_variable} points at this gateway itself, so {found.key_variable} "
                    f"does not make an upstream {found.provider.name}"
                )
            else:
                self._discovered_upstream(found, upstreams)
        return upstreams

    def _discovered_upstream(self, found: DiscoveredProvider, upstreams: list[UpstreamSettings]) -> None:
        values: dict[str, object] = {
            "name": found.provider.name,
            "protocol": found.protocol,
            "protocols": found.protocols,
            "auth": found.auth,
        }
        url_variable = found.base_url_variable or found.key_variable
        texts = {
            "base_url": (url_variable, found.base_url),
            "api_key": (found.key_variable, self.sources.environ[found.key_variable]),
        }
        problems_before = len(self.sources.problems)
        for name, (variable, text) in texts.items():
            self.sources.check_text(values, self.upstream_keys[name], text, ENVIRONMENT, variable)
        if len(self.sources.problems) > problems_before:
            return
        for name in values:
            variable, _ = texts.get(name, (found.key_variable, ""))
            self.sources.origins[dotted(("upstreams", len(upstreams), name))] = ValueOrigin(
                ENVIRONMENT, where=variable
            )
        self.names[found.provider.name] = ()
        values["variables"] = {
            "api_key": found.key_variable,
            "base_url": found.provider.base_url_variable,
        }
        upstreams.append(_upstream(values))

    def _no_upstreams(self) -> None:
        variables = ", ".join(variable for provider in PROVIDERS for variable, _ in provider.keys)
        text = f"is off, and there is no upstream: add [[upstreams]] to a file or set one of {variables}"
        self.sources.add_origin_problem(("server", "simulator"), text)

    # The other tables.

    def _capabilities(self) -> list[ModelCapabilitySettings]:
        rows = []
        for path, values in self.sources.rows("capabilities", MODEL_KEYS):
            row = _make(ModelCapabilitySettings, values)
            rows.append(row)
            self._check_upstream_name(path, row.upstream)
        return rows

    def _prices(self) -> list[Price]:
        found: dict[str, Price] = {}
        for path, values in self.sources.rows("prices", PRICE_KEYS):
            price = _make(Price, values)
            if price.model in found:
                self.sources.add_problem((*path, "model"), f"{quote_value(price.model)} has a price already")
            found[price.model] = price
        return list(found.values())

    def _client_keys(self, server: Mapping[str, object], prices: Sequence[Price]) -> list[ClientKey]:
        found: dict[str, ClientKey] = {}
        for path, values in self.sources.rows("client_keys", CLIENT_KEY_KEYS):
            key = _make(ClientKey, values)
            if key.name in found:
                self.sources.add_problem(
                    (*path, "name"), f"{quote_value(key.name)} is already the name of another key"
                )
            found[key.name] = key
            if key.budget is not None and not (prices or self.sources.document.get("prices")):
                text = "needs [[prices]]: without a price, a key with a budget may use no model"
                self.sources.add_problem((*path, "budget"), text)
        if found and "secret" not in server:
            self.sources.add_problem(("client_keys",), "need server.secret: their hashes are keyed with it")
        self._check_admin_key(server, found.values())
        return list(found.values())

    def _check_admin_key(self, server: Mapping[str, object], client_keys: Iterable[ClientKey]) -> None:
        admin, secret = server.get("admin_key"), server.get("secret")
        if not isinstance(admin, Secret) or not isinstance(secret, Secret):
            return
        if admin == secret:
            self.sources.add_origin_problem(
                ("server", "admin_key"), "is server.secret: it must be a key of its own"
            )
        elif hash_client_key(admin.reveal(), secret) in {key.hash for key in client_keys}:
            self.sources.add_origin_problem(
                ("server", "admin_key"), "is a client key: it must be a key of its own"
            )

    def _accounts(self, upstreams: Sequence[UpstreamSettings]) -> list[AccountSettings]:
        found: dict[str, AccountSettings] = {}
        with_keys = {upstream.name for upstream in upstreams if upstream.api_key is not None}
        for path, values in self.sources.rows("accounts", ACCOUNT_KEYS):
            account = _make(AccountSettings, values)
            self._check_upstream_name(path, account.upstream)
            self._check_proxy(path, values)
            if account.id in found:
                self.sources.add_problem(
                    (*path, "name"), f"{quote_value(account.name)} is already an account of this upstream"
                )
            elif account.upstream in with_keys:
                self.sources.add_problem(
                    path, f"upstream {account.upstream} has an api_key as well: make that an account"
                )
            found[account.id] = account
        return list(found.values())

    def _rules(self) -> list[RuleSettings]:
        rules = []
        for path, values in self.sources.rows("rules", RULE_KEYS):
            rule = _make(RuleSettings, values)
            self._check_upstream_name(path, rule.upstream)
            if not (rule.statuses or rule.codes or rule.words):
                self.sources.add_problem(path, "has no condition: add statuses, codes or words")
            rules.append(rule)
        return rules

    def _check_upstream_name(self, path: KeyPath, name: str | None) -> None:
        if name is not None and name not in self.names:
            known = ", ".join(sorted(self.names))
            hint = did_you_mean(name, self.names) or f"; there are {known}"
            self.sources.add_problem((*path, "upstream"), f"names no upstream{hint}")

    def _check_public(self, server: Mapping[str, object], client_keys: Sequence[ClientKey]) -> None:
        host = str(server.get("host", _DEFAULTS.host))
        # Wrong keys are a separate problem; an empty list of keys counts as none.
        if is_loopback(host) or client_keys or self.sources.document.get("client_keys"):
            return
        if not server.get("allow_public_without_keys", False):
            text = (
                f"{host} can be reached from other machines, and there are no client keys, so whoever can connect "
                "could use your upstreams: make a key with `dragoman keys add`, or set "
                "allow_public_without_keys = true if something else controls who can connect"
            )
            self.sources.add_origin_problem(("server", "host"), text)


def _upstream(values: dict[str, object]) -> UpstreamSettings:
    # Capabilities are resolved for each model, see capabilities/resolve.py.
    host = host_capabilities(str(values["base_url"]), str(values["protocol"]))
    known = {name: value for name, value in host.items() if name not in CAPABILITY_KEYS}
    if values.get("models"):
        known.pop("default_model", None)  # the user's list comes first
    return _make(UpstreamSettings, {**known, **values})


def _is_this_gateway(url: str, server: Mapping[str, object]) -> bool:
    """True if `url` leads to the address that `server`, a table of checked values, binds."""
    bound, bound_port = (server.get(name, getattr(_DEFAULTS, name)) for name in ("host", "port"))
    try:
        parts = urlsplit(url)
        port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    except ValueError:
        return False
    host = parts.hostname or ""
    # A gateway that is bound to all addresses is reachable by the loopback ones too.
    ours = bound in ("0.0.0.0", "::") or is_loopback(str(bound))
    return port == bound_port and (host == bound or (ours and is_loopback(host)))


_Class = TypeVar(
    "_Class",
    ServerSettings,
    UpstreamSettings,
    ModelCapabilitySettings,
    ClientKey,
    Price,
    AccountSettings,
    RuleSettings,
)


def _make(cls: type[_Class], values: Mapping[str, object]) -> _Class:
    """Make a settings object from checked values: the one place without static types."""
    return cls(**cast(dict[str, Any], values))
