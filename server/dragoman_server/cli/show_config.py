"""The resolved settings as lines of text, for `dragoman config show`."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from dragoman_server.config.loader import LoadedConfig, ValueOrigin
from dragoman_server.config.problems import dotted, quote_value
from dragoman_server.settings import (
    ACCOUNT_KEYS,
    CLIENT_KEY_KEYS,
    MODEL_KEYS,
    PRICE_KEYS,
    RULE_KEYS,
    SERVER_KEYS,
    UPSTREAM_KEYS,
)
from dragoman_server.settings.fields import SettingSpec
from dragoman_server.settings.secret import Secret

_DEFAULT = ValueOrigin("default")


@dataclass(frozen=True, slots=True)
class SettingRow:
    """One setting: its key, its value as TOML would write it (secrets masked), and where it came from."""

    key: str
    value: str
    origin: ValueOrigin


def rows(loaded: LoadedConfig) -> Iterator[SettingRow]:
    """All settings in the order of the tables. Settings that have no value are left out."""
    settings = loaded.settings
    for name in SERVER_KEYS:
        yield from _rows(loaded, ("server", name), getattr(settings.server, name))
    arrays: tuple[tuple[str, Sequence[object], Mapping[str, SettingSpec]], ...] = (
        ("upstreams", settings.upstreams, UPSTREAM_KEYS),
        ("capabilities", settings.capabilities, MODEL_KEYS),
        ("client_keys", settings.client_keys, CLIENT_KEY_KEYS),
        ("prices", settings.prices, PRICE_KEYS),
        ("accounts", settings.accounts, ACCOUNT_KEYS),
        ("rules", settings.rules, RULE_KEYS),
    )
    for array, tables, keys in arrays:
        for index, table in enumerate(tables):
            for name in keys:
                yield from _rows(loaded, (array, index, name), getattr(table, name))
    for alias, target in settings.models.items():
        yield from _rows(loaded, ("models", alias), target)


def lines(loaded: LoadedConfig, *, with_origin: bool) -> Iterator[str]:
    """`key = value`, with `# origin` behind it if asked for."""
    table = list(rows(loaded))
    width = max(len(f"{row.key} = {row.value}") for row in table) if with_origin else 0
    for row in table:
        text = f"{row.key} = {row.value}"
        yield f"{text:<{width}}  # {row.origin}" if with_origin else text


def _rows(loaded: LoadedConfig, path: tuple[str | int, ...], value: object) -> Iterator[SettingRow]:
    if isinstance(value, Mapping):
        for name, element in value.items():
            yield from _rows(loaded, (*path, name), element)
    elif value is not None:
        key = dotted(path)
        origin = loaded.origins.get(key, _DEFAULT)
        yield SettingRow(key, origin.raw or _text(value), origin)


def _text(value: object) -> str:
    if isinstance(value, Secret):
        return f'"{value}"'
    if isinstance(value, tuple):
        return "[" + ", ".join(map(_text, value)) + "]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    return quote_value(value)
