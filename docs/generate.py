"""Writes the tables of configuration.md from the tables in the code. Run it after a setting has changed.

A table stands between `<!-- table: NAME -->` and `<!-- end -->`; everything else in the page is written by hand.
"""

import re
from collections.abc import Callable, Iterable
from pathlib import Path

from dragoman_server._providers import PROVIDERS, Provider
from dragoman_server.routes import FAMILIES
from dragoman_server.settings import SERVER_KEYS, UPSTREAM_KEYS, Key, Kind

PAGE = Path(__file__).with_name("configuration.md")
_TABLE = re.compile(r"(?<=<!-- table: )(\w+)( -->\n).*?(?=<!-- end -->)", re.DOTALL)


def page(text: str) -> str:
    """The page with its tables as they must be."""
    return _TABLE.sub(lambda match: f"{match[1]}{match[2]}\n{_TABLES[match[1]]()}\n", text)


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _keys(keys: Iterable[Key]) -> str:
    rows = ((f"`{key.name}`", _values(key), _default(key), key.help) for key in keys)
    return _table(("key", "value", "default", "meaning"), rows)


def _values(key: Key) -> str:
    choices = ", ".join(f"`{choice}`" for choice in key.choices)
    match key.kind:
        case Kind.CHOICE:
            return choices
        case Kind.CHOICES:
            return f"list of {choices}"
        case Kind.INTEGER:
            return f"integer, {key.low:.0f} to {key.high:.0f}"
        case Kind.SECONDS:
            return f"seconds, {key.low:g} to {key.high:.0f}"
        case _:
            return key.kind.value


def _default(key: Key) -> str:
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
        ("host", "settings"),
        (
            (
                f"`{provider.base_url.split('/')[2]}`",
                ", ".join(f"`{name} = {_toml(value)}`" for name, value in provider.takes.items()),
            )
            for provider in PROVIDERS
            if provider.takes
        ),
    )


def _toml(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else f'"{value}"'


def _families() -> str:
    by_upstream: dict[str, list[str]] = {}
    for family in FAMILIES:
        by_upstream.setdefault(family.upstream, []).append(f"`{family.pattern}`")
    rows = ((", ".join(patterns), f"`{name}`") for name, patterns in by_upstream.items())
    return _table(("names", "upstream"), rows)


_TABLES: dict[str, Callable[[], str]] = {
    "server": lambda: _keys(SERVER_KEYS.values()),
    "upstreams": lambda: _keys(UPSTREAM_KEYS.values()),
    "providers": _providers,
    "hosts": _hosts,
    "families": _families,
}

if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text("utf-8")), "utf-8")
