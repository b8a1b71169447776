"""Print the settings, and make the JSON Schema of the configuration file.

The schema is made from the classes of the settings, for editors that complete and check. It accepts more than the
loader does, because any string may contain a `${VARIABLE}`.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from dragoman import UPSTREAMS
from dragoman_server.config.loader import LoadedConfig
from dragoman_server.config.show import shown_settings
from dragoman_server.settings import (
    ARRAYS,
    ServerSettings,
    UpstreamSettings,
    capability_settings,
    settings_of,
)
from dragoman_server.settings.capabilities import CapabilitySettings
from dragoman_server.settings.fields import SettingKind, SettingSpec

Schema = dict[str, object]

_VARIABLE = r"\$\{"


# Show.


def config_lines(loaded: LoadedConfig, *, with_origin: bool) -> Iterator[str]:
    """Yield `key = value` for each setting that has a value, followed by `# origin` if requested."""
    rows = [(f"{each.key} = {each.value}", each.origin) for each in shown_settings(loaded.settings)]
    width = max(len(text) for text, _ in rows)
    for text, origin in rows:
        yield f"{text:<{width}}  # {origin}" if with_origin else text


# JSON Schema.


def json_schema() -> Schema:
    """Return the JSON Schema of `dragoman.toml`."""
    target = {"type": "string", "pattern": f"^[^/]+/.|{_VARIABLE}"}
    name = {"type": "string", "minLength": 1}
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
            "endpoints": {
                "type": "object",
                "description": "paths at which requests name no model, with all below them, and their upstreams",
                "propertyNames": {"pattern": "^/"},
                "additionalProperties": {"anyOf": [name, {"type": "array", "items": name, "minItems": 1}]},
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
