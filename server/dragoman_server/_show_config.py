"""The resolved settings as lines of text, for `dragoman config show`."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ._problems import dotted
from ._secret import Secret
from ._values import show
from .config import Loaded, Origin
from .settings import (
    ACCOUNT_KEYS,
    CLIENT_KEY_KEYS,
    MODEL_KEYS,
    PRICE_KEYS,
    RULE_KEYS,
    SERVER_KEYS,
    UPSTREAM_KEYS,
)

_DEFAULT = Origin("default")


@dataclass(frozen=True, slots=True)
class Row:
    """One setting: its key, its value as TOML would write it (secrets masked), and where it came from."""

    key: str
    value: str
    origin: Origin


def rows(loaded: Loaded) -> Iterator[Row]:
    """All settings in the order of the tables. Settings that have no value are left out."""
    settings = loaded.settings
    for name in SERVER_KEYS:
        yield from _rows(loaded, ("server", name), getattr(settings.server, name))
    for index, upstream in enumerate(settings.upstreams):
        for name in UPSTREAM_KEYS:
            yield from _rows(loaded, ("upstreams", index, name), getattr(upstream, name))
    for index, row in enumerate(settings.capabilities):
        for name in MODEL_KEYS:
            yield from _rows(loaded, ("capabilities", index, name), getattr(row, name))
    for index, client_key in enumerate(settings.client_keys):
        for name in CLIENT_KEY_KEYS:
            yield from _rows(loaded, ("client_keys", index, name), getattr(client_key, name))
    for index, price in enumerate(settings.prices):
        for name in PRICE_KEYS:
            yield from _rows(loaded, ("prices", index, name), getattr(price, name))
    for index, account in enumerate(settings.accounts):
        for name in ACCOUNT_KEYS:
            yield from _rows(loaded, ("accounts", index, name), getattr(account, name))
    for index, rule in enumerate(settings.rules):
        for name in RULE_KEYS:
            yield from _rows(loaded, ("rules", index, name), getattr(rule, name))
    for alias, target in settings.models.items():
        yield from _rows(loaded, ("models", alias), target)


def lines(loaded: Loaded, *, with_origin: bool) -> Iterator[str]:
    """`key = value`, with `# origin` behind it if asked for."""
    table = list(rows(loaded))
    width = max(len(f"{row.key} = {row.value}") for row in table) if with_origin else 0
    for row in table:
        text = f"{row.key} = {row.value}"
        yield f"{text:<{width}}  # {row.origin}" if with_origin else text


def _rows(loaded: Loaded, path: tuple[str | int, ...], value: object) -> Iterator[Row]:
    if isinstance(value, Mapping):
        for name, element in value.items():
            yield from _rows(loaded, (*path, name), element)
    elif value is not None:
        key = dotted(path)
        origin = loaded.origins.get(key, _DEFAULT)
        yield Row(key, origin.raw or _text(value), origin)


def _text(value: object) -> str:
    if isinstance(value, Secret):
        return f'"{value}"'
    if isinstance(value, tuple):
        return "[" + ", ".join(map(_text, value)) + "]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    return show(value)
