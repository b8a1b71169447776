"""Make the tables in pages that are written by hand.

In the pages of PAGES a table stands between `<!-- table: NAME -->` and `<!-- end -->`; in promises.md it is the tests
that hold a promise.
"""

import ast
import functools
import re
from collections.abc import Callable, Mapping
from pathlib import Path

import public_names

from dragoman import UPSTREAMS, Capabilities
from dragoman._wire.limits import LIMITS
from dragoman.lint import RULES
from dragoman_server.capabilities.cloud_apis import BETAS_BY_API, CLOUD_APIS
from dragoman_server.capabilities.local_servers import LOCAL_SERVERS
from dragoman_server.capabilities.model_families import MODEL_FAMILIES
from dragoman_server.capabilities.providers import PROVIDERS, address_of
from dragoman_server.http.cloud_paths import CLOUD_PATHS, PLACES
from dragoman_server.policy.error_actions import ERROR_RULES, ErrorAction, ErrorRule
from dragoman_server.relayed.table import BELOW, FORM, JSON, TABLE
from dragoman_server.settings import ARRAYS, ServerSettings, capability_settings, settings_of
from dragoman_server.settings.fields import AppliedBy, SettingSpec
from dragoman_server.simulator import MODELS
from dragoman_server.telemetry.metrics import METRICS
from dragoman_server.telemetry.semconv import INSTRUMENTS

_DOCS = Path(__file__).parents[1]
PAGES = [
    _DOCS / name
    for name in (
        "accounts.md",
        "api.md",
        "clouds.md",
        "configuration.md",
        "endpoints.md",
        "lint-rules.md",
        "metrics.md",
        "promises.md",
        "security.md",
        "simulator.md",
    )
]
TESTS = _DOCS.parent / "tests"
PROMISES = [*(f"R{number}" for number in range(1, 15)), *(f"S{number}" for number in range(1, 19))]
_KEY_COLUMNS = ("value", "default", "meaning")
_TABLE = re.compile(r"(?<=<!-- table: )([^>]+?)( -->\n).*?(?=<!-- end -->)", re.DOTALL)


def page(text: str) -> str:
    """Return the page with its tables up to date. Raises KeyError for a table of an unknown name."""
    return _TABLE.sub(lambda match: f"{match[1]}{match[2]}\n{_TABLES[str(match[1])]()}\n", text)


def _table(*rows: tuple[str, ...]) -> str:
    head, *body = rows
    return "".join(f"| {' | '.join(line)} |\n" for line in (head, ["---"] * len(head), *body))


def _code(*texts: str) -> str:
    return ", ".join(f"`{text}`" for text in texts)


def _keys(settings: type) -> str:
    """Return the table of the keys of a table in the configuration."""
    return _table(
        ("key", *_KEY_COLUMNS), *[(_code(name), *_key(key)) for name, key in settings_of(settings).items()]
    )


def _capabilities() -> str:
    """Return the table of the capabilities, the common ones first."""
    rows = []
    for name, key in capability_settings(UPSTREAMS.values()).items():
        having = [spec.name for spec in UPSTREAMS.values() if name in spec.capabilities.__struct_fields__]
        protocols = "all" if name in Capabilities.__struct_fields__ else _code(*having)
        rows.append((_code(name), protocols, _values(key), _defaults(name, having), _meaning(key)))
    return _table(("key", "protocols", *_KEY_COLUMNS), *rows)


def _defaults(name: str, protocols: list[str]) -> str:
    """Return the default of a capability, or that of each protocol if they have several."""
    found = {each: _default(capability_settings([UPSTREAMS[each]])[name]) for each in protocols}
    if len(set(found.values())) == 1:
        return next(iter(found.values()))
    return ", ".join(f"{default} ({_code(each)})" for each, default in found.items())


def _key(key: SettingSpec) -> tuple[str, str, str]:
    return _values(key), _default(key), _meaning(key)


def _meaning(key: SettingSpec) -> str:
    return f"{key.help}; **needs a restart**" if key.applied_by is AppliedBy.RESTART else key.help


def _values(key: SettingSpec) -> str:
    if key.choices:
        return f"list of {_code(*key.choices)}" if key.many else _code(*key.choices)
    bounded = key.limits.le is not None
    return f"{key.kind.label}, {key.limits.ge} to {key.limits.le}" if bounded else key.kind.label


def _default(key: SettingSpec) -> str:
    if key.required:
        return "required"
    if key.default is None:
        return ""
    values = key.default if isinstance(key.default, tuple) else (key.default,)
    return _code(*(str(value).lower() if isinstance(value, bool) else str(value) for value in values))


def _providers() -> str:
    rows = [
        (
            _code(each.name),
            _code(*(variable for variable, _ in each.keys)),
            _code(each.base_url_variable),
            _code(each.base_url),
            _code(*each.protocols),
        )
        for each in PROVIDERS
        if each.keys  # else the environment makes no upstream of it
    ]
    head = ("upstream", "key", "other base URL", "base URL", "protocols, the preferred one first")
    return _table(head, *rows)


def _cloud_apis() -> str:
    protocols = {each.name: each.protocols for each in PROVIDERS}
    rows = [
        (
            _code(name),
            _code(*(each for each in protocols[api.provider or name] if api.speaks(UPSTREAMS[each]))),
            _code(*api.key_headers),
            f"[`{api.extra}`](dependencies.md)",
            "any" if api.unknown_betas else "known ones",
            _code(*api.refuses) if api.refuses else "",
        )
        for name, api in CLOUD_APIS.items()
    ]
    head = ("`host`", "protocols", "header of a key", "extra for other credentials", "betas", "left out")
    return _table(head, *rows)


def _cloud_paths() -> str:
    shown = {name: f"{{{name}}}" for name in PLACES} | {
        "project": "/v1/projects/{project}/locations/{location}"
    }
    rows = [
        (each.cloud, _code(each.path.format(**shown)), _code(each.leads_to))
        for each in CLOUD_PATHS
        if each.cloud
    ]
    return _table(("client of", "path", "is served as"), *rows)


def _betas() -> str:
    betas = dict.fromkeys(beta for known in BETAS_BY_API.values() for beta in known)
    head = ("beta", *(_code(api) for api in BETAS_BY_API))
    return _table(head, *[(_code(beta), *(_beta(beta, api) for api in BETAS_BY_API)) for beta in betas])


def _beta(beta: str, api: str) -> str:
    known = BETAS_BY_API[api]
    name = known.get(beta)
    return "" if beta not in known else "no" if name is None else "yes" if name == beta else f"as `{name}`"


def _endpoints() -> str:
    rows: dict[tuple[str, ...], str] = {}
    for row in TABLE:
        names = " or ".join([f"{_VENDORS[name]}'s" for name in row.vendors])
        size = f"{row.max_bytes // 2**20} MiB" if row.max_bytes else "`max_body_bytes`"
        takes = "form or JSON" if row.requests == (FORM, JSON) else "form" if FORM in row.requests else "JSON"
        bodies = (takes, size) if "POST" in row.methods else ("", "")
        paths = _code(*[path.replace(BELOW, "...") for path in row.paths])
        key = (f"{', '.join(row.methods)} {paths}", row.does, row.model.value, *bodies)
        rows[key] = f"{rows[key]} or {names}" if key in rows else names
    lines = [(*key, names) for key, names in rows.items()]
    return _table(("path", "what", "the model is in", "body", "at most", "upstreams of"), *lines)


_VENDORS = {"openai": "OpenAI", "anthropic": "Anthropic", "google": "Google"}


def _hosts() -> str:
    rows = []
    for each in PROVIDERS:
        hosts = _code(each.base_url.removeprefix("https://").split("/")[0], *each.hosts)
        rows.append((hosts, ", ".join(_settings(each.capabilities)), each.source, each.date))
        for protocol, capabilities in each.by_protocol.items():
            where = f"{hosts} in {_code(protocol)}"
            rows.append((where, ", ".join(_settings(capabilities)), each.source, each.date))
    for server in LOCAL_SERVERS:
        where = f"port {address_of(server.base_url)[1]} of a private network ({server.title})"
        for protocol, capabilities in server.by_protocol.items() or [("", {})]:
            name = f"{where} in {_code(protocol)}" if protocol else where
            rows.append((name, ", ".join(_settings(capabilities)), server.source, server.date))
    return _table(("host", "settings", "source", "looked up"), *rows)


def _model_families() -> str:
    rows = []
    for each in MODEL_FAMILIES:
        models = _code(*each.patterns) + (f" at {_code(*each.providers)}" if each.providers else "")
        models += f" in {_code(each.protocol)}" if each.protocol else ""
        unset = [f"`{name}` unset" for name, value in each.capabilities.items() if value is None]
        rows.append((models, ", ".join([*_settings(each.capabilities), *unset]), each.source, each.date))
    return _table(("models", "settings", "source", "looked up"), *rows)


def _settings(capabilities: Mapping[str, object]) -> list[str]:
    return [f"`{name} = {_toml(value)}`" for name, value in capabilities.items() if value is not None]


def _toml(value: object) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(_toml, value))}]"
    return str(value).lower() if isinstance(value, bool) else f'"{value}"'


def _families() -> str:
    rows = [(_code(*provider.models), _code(provider.name)) for provider in PROVIDERS if provider.models]
    return _table(("names", "upstream"), *rows)


def _error_actions() -> str:
    rows = [(_when(rule), _code(rule.action.value)) for rule in ERROR_RULES]
    return _table(("when", "action"), *rows, ("everything else", _code(ErrorAction.RETURN_TO_CLIENT.value)))


def _when(rule: ErrorRule) -> str:
    """Return the conditions of a row in words."""
    conditions = {
        "the error is of the kind": sorted(kind.value.replace("_", " ") for kind in rule.kinds),
        "the status is": [str(status) for status in sorted(rule.statuses)],
        "its code is": sorted(rule.codes),
        "its message says": [f'"{word}"' for word in rule.words],
    }
    return ", and ".join(f"{what} {_or(*values)}" for what, values in conditions.items() if values)


def _or(*words: str) -> str:
    *rest, last = words
    return f"{', '.join(rest)} or {last}" if rest else last


def _simulated_models() -> str:
    rows = [
        (
            _code(name),
            model.description,
            model.setting.meaning if model.setting else "",
            (f"{model.default:g}" if model.default else "no delay") if model.setting else "",
        )
        for name, model in MODELS.items()
    ]
    return _table(("model", "what it does", "`@` number", "default"), *rows)


def _metrics() -> str:
    rows = [(_code(each.name), each.kind.value, _code(*each.labels), each.help) for each in METRICS]
    return _table(("metric", "type", "labels", "meaning"), *rows)


def _histograms() -> str:
    return _table(
        ("histogram", "unit", "meaning"),
        *[(_code(each.name), _code(each.unit), each.help) for each in INSTRUMENTS],
    )


@functools.cache
def promised() -> dict[str, dict[str, list[str]]]:
    """Return by promise and module the tests with the marker; "" stands for a whole module."""
    found: dict[str, dict[str, list[str]]] = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        if "mark.promise(" not in (text := path.read_text("utf-8")):
            continue
        for node in ast.parse(text).body:
            module = path.relative_to(TESTS.parent).as_posix()
            for call in ast.walk(node):
                if isinstance(call, ast.Call) and ast.unparse(call.func) == "pytest.mark.promise":
                    for number in map(ast.literal_eval, call.args):
                        found.setdefault(number, {}).setdefault(module, []).append(getattr(node, "name", ""))
    return found


def _tests_of(number: str) -> str:
    rows = promised().get(number, {}).items()
    return "".join(f"- `{module}`{'' if '' in names else f': {_code(*names)}'}\n" for module, names in rows)


def _lint_rules() -> str:
    rows = [
        (_code(rule.id), rule.severity.value, rule.fix, f"[source]({rule.source})") for rule in RULES.values()
    ]
    return _table(("rule", "severity", "what to do", "where it stands"), *rows)


def _names(module: str) -> str:
    rows = [(_code(name), public_names.summary(module, name)) for name in public_names.names(module)]
    return _table(("name", "what it is"), *rows)


def _limits() -> str:
    rows = [(limit.things, f"{limit.most:,}", limit.where, limit.reason) for limit in LIMITS]
    return _table(("things", "at most", "in", "why"), *rows)


_TABLES: dict[str, Callable[[], str]] = {
    **{number: functools.partial(_tests_of, number) for number in PROMISES},
    **{name: functools.partial(_keys, settings) for name, settings in ARRAYS.items()},
    **{f"names of {each}": functools.partial(_names, each) for each in public_names.MODULES},
    "server": functools.partial(_keys, ServerSettings),
    "all_capabilities": _capabilities,
    "error_actions": _error_actions,
    "model_families": _model_families,
    "providers": _providers,
    "cloud_paths": _cloud_paths,
    "cloud_apis": _cloud_apis,
    "betas": _betas,
    "hosts": _hosts,
    "families": _families,
    "endpoints": _endpoints,
    "lint_rules": _lint_rules,
    "simulated_models": _simulated_models,
    "metrics": _metrics,
    "histograms": _histograms,
    "limits": _limits,
}
