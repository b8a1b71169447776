"""Write the parts of the documentation that follow from the code. Run `make docs` after a change of either.

In configuration.md, accounts.md and simulator.md a table stands between `<!-- table: NAME -->` and `<!-- end -->`, and
in promises.md the tests that hold a promise; everything else in these pages is written by hand. All of fidelity.md and
what-you-lose.md is made here, see the package `fidelity` beside this file; map.md is made by package_map.py.
"""

import ast
import functools
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from fidelity.page import page as fidelity_page
from fidelity.summary import summary

from dragoman_server.accounts.error_actions import ERROR_RULES, ErrorAction, ErrorRule
from dragoman_server.capabilities.model_families import MODEL_FAMILIES, ModelFamily
from dragoman_server.capabilities.providers import PROVIDERS, Provider
from dragoman_server.capabilities.relay_rewrites import RELAY_REWRITES
from dragoman_server.models.routes import VENDOR_MODELS
from dragoman_server.settings import (
    AccountSettings,
    CapabilitySettings,
    ClientKey,
    ModelCapabilitySettings,
    Price,
    RuleSettings,
    ServerSettings,
    UpstreamSettings,
    keys_of,
)
from dragoman_server.settings.fields import SettingKind, SettingSpec
from dragoman_server.simulator import MODELS

PAGES = [
    Path(__file__).with_name(name)
    for name in ("accounts.md", "configuration.md", "promises.md", "simulator.md")
]
FIDELITY = Path(__file__).with_name("fidelity.md")
SUMMARY = Path(__file__).with_name("what-you-lose.md")
TESTS = Path(__file__).parents[1] / "tests"
PROMISES = [*(f"R{number}" for number in range(1, 14)), *(f"S{number}" for number in range(1, 19))]
_TABLE = re.compile(r"(?<=<!-- table: )([^>]+?)( -->\n).*?(?=<!-- end -->)", re.DOTALL)


def page(text: str) -> str:
    """Return the page with its tables up to date. Raises KeyError for a table of an unknown name."""
    return _TABLE.sub(lambda match: f"{match[1]}{match[2]}\n{_TABLES[match[1]]()}\n", text)


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _own(keys: dict[str, SettingSpec]) -> str:
    """Return the table of the keys that are not capabilities."""
    return _keys(key for name, key in keys.items() if name not in keys_of(CapabilitySettings))


def _keys(keys: Iterable[SettingSpec]) -> str:
    rows = ((f"`{key.name}`", _values(key), _default(key), key.help) for key in keys)
    return _table(("key", "value", "default", "meaning"), rows)


def _values(key: SettingSpec) -> str:
    choices = ", ".join(f"`{choice}`" for choice in key.choices)
    match key.kind:
        case SettingKind.CHOICE:
            return choices
        case SettingKind.CHOICES:
            return f"list of {choices}"
        case SettingKind.INTEGER:
            return f"integer, {key.limits.ge} to {key.limits.le}"
        case SettingKind.SECONDS:
            return f"seconds, {key.limits.ge:g} to {key.limits.le:.0f}"
        case SettingKind.DOLLARS:
            return f"US dollars, {key.limits.ge:g} to {key.limits.le:.0f}"
        case _:
            return key.kind.label


def _default(key: SettingSpec) -> str:
    if key.required:
        return "required"
    if key.default is None or key.default == ():
        return ""
    if isinstance(key.default, bool):
        return f"`{str(key.default).lower()}`"
    if isinstance(key.default, tuple):
        return ", ".join(f"`{each}`" for each in key.default)
    return f"`{key.default}`"


def _providers() -> str:
    rows = (
        (
            f"`{provider.name}`",
            ", ".join(f"`{variable}`" for variable, _ in provider.keys),
            f"`{provider.base_url_variable}`",
            f"`{provider.base_url}`",
            ", ".join(_preferred_first(provider)),
        )
        for provider in PROVIDERS
    )
    return _table(
        ("upstream", "key", "other base URL", "base URL", "protocols, the preferred one first"), rows
    )


def _preferred_first(provider: Provider) -> list[str]:
    return [
        f"`{name}`" for name in sorted(provider.protocols, key=lambda name: (name != provider.protocol, name))
    ]


def _hosts() -> str:
    return _table(
        ("host", "settings", "source", "looked up"),
        (
            (
                ", ".join(f"`{host}`" for host in (provider.base_url.split("/")[2], *provider.hosts)),
                _settings(provider.capabilities),
                provider.source,
                provider.date,
            )
            for provider in PROVIDERS
        ),
    )


def _rewritten_relays() -> str:
    return _table(
        ("protocol", "at", "models", "because", "source", "looked up"),
        (
            (
                f"`{row.protocol}`",
                row.server if row.port is None else f"{row.server}, port {row.port}",
                ", ".join(f"`{pattern}`" for pattern in row.models),
                row.why,
                row.source,
                row.date,
            )
            for row in RELAY_REWRITES
        ),
    )


def _settings(takes: Mapping[str, object]) -> str:
    return ", ".join(f"`{name} = {_toml(value)}`" for name, value in takes.items() if value is not None)


def _toml(value: object) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(_toml, value))}]"
    return str(value).lower() if isinstance(value, bool) else f'"{value}"'


def _model_families() -> str:
    return _table(
        ("models", "settings", "source", "looked up"),
        ((_models_of(family), _row(family), family.source, family.date) for family in MODEL_FAMILIES),
    )


def _models_of(family: ModelFamily) -> str:
    return f"`{family.pattern}`" + (f" at `{family.provider}`" if family.provider else "")


def _row(family: ModelFamily) -> str:
    unset = [f"`{name}` unset" for name, value in family.capabilities.items() if value is None]
    return ", ".join(filter(None, [_settings(family.capabilities), *unset]))


def _families() -> str:
    by_upstream: dict[str, list[str]] = {}
    for family in VENDOR_MODELS:
        by_upstream.setdefault(family.upstream, []).append(f"`{family.pattern}`")
    rows = ((", ".join(patterns), f"`{name}`") for name, patterns in by_upstream.items())
    return _table(("names", "upstream"), rows)


def _error_actions() -> str:
    return _table(
        ("when", "action"), [*((_when(rule), f"`{rule.action.value}`") for rule in ERROR_RULES), _OTHERS]
    )


_OTHERS = ("everything else", f"`{ErrorAction.RETURN_TO_CLIENT.value}`")


def _when(rule: ErrorRule) -> str:
    """Return the conditions of a row in words."""
    kinds = sorted(kind.value.replace("_", " ") for kind in rule.kinds)
    words = (f'"{word}"' for word in rule.words)
    conditions = [
        f"the error is of the kind {_or(kinds)}" if kinds else "",
        f"the status is {_or(map(str, sorted(rule.statuses)))}" if rule.statuses else "",
        f"its code is {_or(sorted(rule.codes))}" if rule.codes else "",
        f"its message says {_or(words)}" if rule.words else "",
    ]
    return ", and ".join(filter(None, conditions))


def _or(words: Iterable[str]) -> str:
    *rest, last = words
    return f"{', '.join(rest)} or {last}" if rest else last


@functools.cache
def promised() -> dict[str, dict[str, list[str]]]:
    """Return by promise and module the tests with the marker; "" stands for a whole module."""
    found: dict[str, dict[str, list[str]]] = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        if "mark.promise(" not in (text := path.read_text("utf-8")):
            continue
        for node in ast.parse(text).body:
            module = path.relative_to(TESTS.parent).as_posix()
            for number in _marked(node):
                found.setdefault(number, {}).setdefault(module, []).append(getattr(node, "name", ""))
    return found


def _marked(node: ast.stmt) -> list[str]:
    """Return the promises that a test, a class of tests or `pytestmark` names."""
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            marks: list[ast.expr] = node.decorator_list
        case ast.Assign(targets=[ast.Name("pytestmark")], value=ast.List(elts=elements)):
            marks = elements
        case ast.Assign(targets=[ast.Name("pytestmark")], value=value):
            marks = [value]
        case _:
            marks = []
    calls = [
        each
        for each in marks
        if isinstance(each, ast.Call) and ast.unparse(each.func) == "pytest.mark.promise"
    ]
    return [ast.literal_eval(number) for call in calls for number in call.args]


def _tests_of(number: str) -> str:
    rows = promised().get(number, {}).items()
    return "".join(
        f"- `{module}`" + ("" if "" in names else ": " + ", ".join(f"`{name}`" for name in names)) + "\n"
        for module, names in rows
    )


def _simulated_models() -> str:
    rows = (
        (
            f"`{name}`",
            model.description,
            "" if model.setting is None else model.setting.meaning,
            "" if model.setting is None else f"{model.default:g}" if model.default else "no delay",
        )
        for name, model in MODELS.items()
    )
    return _table(("model", "what it does", "`@` number", "default"), rows)


_TABLES: dict[str, Callable[[], str]] = {
    **{number: functools.partial(_tests_of, number) for number in PROMISES},
    "server": lambda: _keys(keys_of(ServerSettings).values()),
    "upstreams": lambda: _own(keys_of(UpstreamSettings)),
    "capabilities": lambda: _keys(keys_of(CapabilitySettings).values()),
    "capability_rows": lambda: _own(keys_of(ModelCapabilitySettings)),
    "client_keys": lambda: _keys(keys_of(ClientKey).values()),
    "prices": lambda: _keys(keys_of(Price).values()),
    "accounts": lambda: _keys(keys_of(AccountSettings).values()),
    "rules": lambda: _keys(keys_of(RuleSettings).values()),
    "error_actions": _error_actions,
    "model_families": _model_families,
    "providers": _providers,
    "hosts": _hosts,
    "rewritten_relays": _rewritten_relays,
    "families": _families,
    "simulated_models": _simulated_models,
}

if __name__ == "__main__":
    for each in PAGES:
        each.write_text(page(each.read_text("utf-8")), "utf-8")
    FIDELITY.write_text(fidelity_page(), "utf-8")
    SUMMARY.write_text(summary(), "utf-8")
