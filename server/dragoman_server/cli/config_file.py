"""Print the settings, and make the JSON Schema of the configuration file.

The schema is made from the classes of the settings, for editors that complete and check. It accepts more than the
loader does, because any string may contain a `${VARIABLE}`.
"""

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from dragoman import UPSTREAMS
from dragoman_server.config.loader import LoadedConfig
from dragoman_server.config.toml_lines import KeyPath
from dragoman_server.settings import (
    ARRAYS,
    ServerSettings,
    UpstreamSettings,
    capability_settings,
    settings_of,
)
from dragoman_server.settings.capabilities import CapabilitySettings
from dragoman_server.settings.fields import SettingKind, SettingSpec
from dragoman_server.settings.problems import ValueOrigin, dotted, quote_value
from dragoman_server.settings.secret import Secret

_DEFAULT_ORIGIN = ValueOrigin("default")

Schema = dict[str, object]

_VARIABLE = r"\$\{"


# Show.


def config_lines(loaded: LoadedConfig, *, with_origin: bool) -> Iterator[str]:
    """Yield `key = value` for each setting that has a value, followed by `# origin` if requested."""
    settings = loaded.settings
    tables: dict[str, object] = {"server": _table(settings.server)}
    tables |= {name: list(map(_table, getattr(settings, name))) for name in ARRAYS}
    rows = []
    for path, value in _leaves((), tables | {"models": settings.models}):
        key = dotted(path)
        origin = loaded.origins.get(key, _DEFAULT_ORIGIN)
        rows.append((f"{key} = {origin.raw or toml_text(value)}", origin))
    width = max(len(text) for text, _ in rows)
    for text, origin in rows:
        yield f"{text:<{width}}  # {origin}" if with_origin else text


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
        return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return quote_value(value)


# JSON Schema.


def json_schema() -> Schema:
    """Return the JSON Schema of `dragoman.toml`."""
    target = {"type": "string", "pattern": f"^[^/]+/.|{_VARIABLE}"}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Configuration of Dragoman",
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "server": _table_schema(settings_of(ServerSettings)),
            **{name: {"type": "array", "items": _row_schema(cls)} for name, cls in ARRAYS.items()},
            "models": {
                "type": "object",
                "description": "names that clients send, * for any text, and the upstream/model that they mean",
                "additionalProperties": {
                    "anyOf": [target, {"type": "array", "items": target, "minItems": 1}]
                },
            },
        },
    }


def _table_schema(keys: Mapping[str, SettingSpec]) -> Schema:
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": {name: _property_schema(key) for name, key in keys.items()},
    }


def _row_schema(cls: type[Any]) -> Schema:
    keys = settings_of(cls)
    required = [name for name, key in keys.items() if key.required]
    if issubclass(cls, CapabilitySettings):
        keys = keys | capability_settings(UPSTREAMS.values())
    schema = {**_table_schema(keys), "required": required}
    if cls is UpstreamSettings:
        # Without `protocol`, the preferred one is the first of `protocols`.
        required.remove("protocol")
        schema["anyOf"] = [{"required": ["protocol"]}, {"required": ["protocols"]}]
    return schema


def _property_schema(key: SettingSpec) -> Schema:
    schema: Schema = msgspec.json.schema(key.type)
    if key.type is str:
        schema["minLength"] = 1
    if key.choices:
        schema = {"type": "string", "anyOf": [{"enum": list(key.choices)}, {"pattern": _VARIABLE}]}
    if key.many:
        schema = {"type": "array", "items": schema, "uniqueItems": True}
    if key.kind is SettingKind.HEADERS:
        schema = {"type": "object", "additionalProperties": schema}
    schema = {"description": key.help, **schema}
    if key.default is not None and key.default != ():
        schema["default"] = list(key.default) if isinstance(key.default, tuple) else key.default
    return schema
