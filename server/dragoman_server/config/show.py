"""The settings in force, as `dragoman config show` prints them and the gateway's page shows them: secrets masked."""

import json
from collections.abc import Iterator, Mapping
from datetime import datetime

import msgspec

from dragoman_server.config.toml_lines import KeyPath
from dragoman_server.platform.clock import utc_text
from dragoman_server.settings import ARRAYS, Settings, settings_of
from dragoman_server.settings.capabilities import CapabilitySettings
from dragoman_server.settings.problems import ValueOrigin, dotted, quote_value
from dragoman_server.settings.secret import Secret

_DEFAULT_ORIGIN = ValueOrigin("default")


class SettingInForce(msgspec.Struct, frozen=True):
    """A setting by its dotted key, with its value in TOML and where that came from. Secrets are masked."""

    key: str
    value: str
    origin: str


def shown_settings(settings: Settings) -> Iterator[SettingInForce]:
    """Yield each setting that has a value."""
    tables: dict[str, object] = {"server": _table(settings.server)}
    tables |= {name: list(map(_table, getattr(settings, name))) for name in ARRAYS}
    for path, value in _leaves((), tables | {"models": settings.models, "endpoints": settings.endpoints}):
        key = dotted(path)
        origin = settings.origins.get(key, _DEFAULT_ORIGIN)
        yield SettingInForce(key, origin.raw or toml_text(value), str(origin))


def _table(row: object) -> dict[str, object]:
    values = {name: getattr(row, name) for name in settings_of(type(row))}
    return {**values, **row.capabilities} if isinstance(row, CapabilitySettings) else values


def _leaves(path: KeyPath, value: object) -> Iterator[tuple[KeyPath, object]]:
    """Yield the values in tables and arrays of tables, each with its path. The arrays of settings are tuples."""
    if isinstance(value, Mapping):
        for name, element in value.items():
            yield from _leaves((*path, name), element)
    elif isinstance(value, list):
        for index, element in enumerate(value):
            yield from _leaves((*path, index), element)
    elif value is not None:
        yield path, value


def toml_text(value: object) -> str:
    """Return a value as TOML. Secrets are masked."""
    if isinstance(value, Secret):
        return f'"{value}"'
    if isinstance(value, tuple):
        return "[" + ", ".join(map(toml_text, value)) + "]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, datetime):
        return utc_text(value)
    return quote_value(value)
