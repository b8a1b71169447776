"""Print the settings, make their JSON Schema, and change the configuration file, for `dragoman config` and `keys`.

The schema is made from the tables of keys, for editors that complete and check. It accepts more than the loader does,
because any string may contain a `${VARIABLE}`. `remove_client_key` is the one place where Dragoman writes the file.
"""

import codecs
import json
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dragoman_server.config.loader import LoadedConfig
from dragoman_server.config.problems import ValueOrigin, dotted, quote_value
from dragoman_server.config.toml_lines import TomlLines
from dragoman_server.settings import (
    ACCOUNT_KEYS,
    CLIENT_KEY_KEYS,
    MODEL_KEYS,
    PRICE_KEYS,
    RULE_KEYS,
    SERVER_KEYS,
    UPSTREAM_KEYS,
)
from dragoman_server.settings.fields import SettingKind, SettingSpec
from dragoman_server.settings.secret import Secret

_DEFAULT_ORIGIN = ValueOrigin("default")

_BOM = codecs.BOM_UTF8

Schema = dict[str, object]

_VARIABLE = r"\$\{"
_TEXT_SCHEMA: Schema = {"type": "string", "minLength": 1}


# Show.


@dataclass(frozen=True, slots=True)
class SettingRow:
    """One setting.

    key: its dotted path. value: as TOML would write it, with secrets masked. origin: where it came from.
    """

    key: str
    value: str
    origin: ValueOrigin


def setting_rows(loaded: LoadedConfig) -> Iterator[SettingRow]:
    """Yield all settings that have a value, in the order of the tables."""
    settings = loaded.settings
    for name in SERVER_KEYS:
        yield from _setting_rows(loaded, ("server", name), getattr(settings.server, name))
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
                yield from _setting_rows(loaded, (array, index, name), getattr(table, name))
    for alias, target in settings.models.items():
        yield from _setting_rows(loaded, ("models", alias), target)


def config_lines(loaded: LoadedConfig, *, with_origin: bool) -> Iterator[str]:
    """Yield `key = value` for each setting, followed by `# origin` if requested."""
    table = list(setting_rows(loaded))
    width = max(len(f"{row.key} = {row.value}") for row in table) if with_origin else 0
    for row in table:
        text = f"{row.key} = {row.value}"
        yield f"{text:<{width}}  # {row.origin}" if with_origin else text


def _setting_rows(loaded: LoadedConfig, path: tuple[str | int, ...], value: object) -> Iterator[SettingRow]:
    if isinstance(value, Mapping):
        for name, element in value.items():
            yield from _setting_rows(loaded, (*path, name), element)
    elif value is not None:
        key = dotted(path)
        origin = loaded.origins.get(key, _DEFAULT_ORIGIN)
        yield SettingRow(key, origin.raw or _toml_text(value), origin)


def _toml_text(value: object) -> str:
    if isinstance(value, Secret):
        return f'"{value}"'
    if isinstance(value, tuple):
        return "[" + ", ".join(map(_toml_text, value)) + "]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    return quote_value(value)


# JSON Schema.


def json_schema() -> Schema:
    """Return the JSON Schema of `dragoman.toml`."""
    upstream = _table_schema(UPSTREAM_KEYS)
    # Without `protocol`, the preferred one is the first of `protocols`.
    upstream["required"] = [
        name for name, key in UPSTREAM_KEYS.items() if key.required and name != "protocol"
    ]
    upstream["anyOf"] = [{"required": ["protocol"]}, {"required": ["protocols"]}]
    target = {"type": "string", "pattern": f"^[^/]+/.|{_VARIABLE}"}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Configuration of Dragoman",
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "server": _table_schema(SERVER_KEYS),
            "upstreams": {"type": "array", "items": upstream},
            "capabilities": {"type": "array", "items": _row_schema(MODEL_KEYS)},
            "client_keys": {"type": "array", "items": _row_schema(CLIENT_KEY_KEYS)},
            "prices": {"type": "array", "items": _row_schema(PRICE_KEYS)},
            "accounts": {"type": "array", "items": _row_schema(ACCOUNT_KEYS)},
            "rules": {"type": "array", "items": _row_schema(RULE_KEYS)},
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


def _row_schema(keys: Mapping[str, SettingSpec]) -> Schema:
    return {**_table_schema(keys), "required": [name for name, key in keys.items() if key.required]}


def _property_schema(key: SettingSpec) -> Schema:
    schema = {"description": key.help, **_SCHEMA_BY_KIND[key.kind](key)}
    if key.default is not None and key.default != ():
        schema["default"] = list(key.default) if isinstance(key.default, tuple) else key.default
    return schema


def _text_schema(key: SettingSpec) -> Schema:
    return _TEXT_SCHEMA


def _number_schema(key: SettingSpec) -> Schema:
    kind = "integer" if key.kind is SettingKind.INTEGER else "number"
    return {"type": kind, "minimum": key.low, "maximum": key.high}


def _choice_schema(key: SettingSpec) -> Schema:
    return {"type": "string", "anyOf": [{"enum": list(key.choices)}, {"pattern": _VARIABLE}]}


def _list_of_schema(item: Callable[[SettingSpec], Schema]) -> Callable[[SettingSpec], Schema]:
    return lambda key: {"type": "array", "items": item(key), "uniqueItems": True}


_SCHEMA_BY_KIND: dict[SettingKind, Callable[[SettingSpec], Schema]] = {
    SettingKind.TEXT: _text_schema,
    SettingKind.NAME: _text_schema,
    SettingKind.HOST: _text_schema,
    SettingKind.INTEGER: _number_schema,
    SettingKind.SECONDS: _number_schema,
    SettingKind.DOLLARS: _number_schema,
    SettingKind.SWITCH: lambda key: {"type": "boolean"},
    SettingKind.CHOICE: _choice_schema,
    SettingKind.CHOICES: _list_of_schema(_choice_schema),
    SettingKind.NAMES: _list_of_schema(_text_schema),
    SettingKind.STATUSES: _list_of_schema(lambda key: {"type": "integer", "minimum": 100, "maximum": 599}),
    SettingKind.HOSTS: _list_of_schema(_text_schema),
    SettingKind.ORIGINS: _list_of_schema(_text_schema),
    SettingKind.PATH: _text_schema,
    SettingKind.URL: _text_schema,
    SettingKind.PROXY: _text_schema,
    SettingKind.SECRET: _text_schema,
    SettingKind.HASH: _text_schema,
    SettingKind.HEADERS: lambda key: {"type": "object", "additionalProperties": _TEXT_SCHEMA},
}


# Change.


class ConfigEditError(Exception):
    """The file cannot be changed; the text has the reason and what to do by hand."""


def remove_client_key(path: Path, index: int) -> int:
    """Remove the `[[client_keys]]` table with this index from a file, and return the number of removed lines.

    Comments and order stay as they are. The new text is parsed, and compared with what it must mean, before it replaces
    the file.

    Raises ConfigEditError.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigEditError(f"cannot read {path}: {error.strerror}") from None
    mark = _BOM if data.startswith(_BOM) else b""
    text = data.removeprefix(mark).decode()
    # Only TOML's own line ends: strings and comments may contain what str.splitlines() takes for one.
    lines = text.split("\n")
    first, last = _key_lines(text, lines, index)
    shorter = "\n".join(lines[:first] + lines[last:])
    if _parse_toml(shorter) != _without_key(tomllib.loads(text), index):
        raise ConfigEditError(
            f"{path} is written in an unusual way: remove the key by hand, line {first + 1}"
        )
    _replace_file(path, mark + shorter.encode())
    return last - first


def _key_lines(text: str, lines: list[str], index: int) -> tuple[int, int]:
    """Return the first line of the table and the line after its last one, both counted from 0."""
    first = (TomlLines(text).line_of(("client_keys", index)) or 1) - 1
    last = first + 1
    while last < len(lines) and not lines[last].lstrip().startswith("["):
        last += 1
    # Blank lines and comments before the next header belong to that header.
    while last > first + 1 and (not lines[last - 1].strip() or lines[last - 1].lstrip().startswith("#")):
        last -= 1
    return first, last


def _without_key(document: dict[str, Any], index: int) -> dict[str, Any]:
    keys = list(document["client_keys"])
    del keys[index]
    rest = {name: value for name, value in document.items() if name != "client_keys"}
    return {**rest, "client_keys": keys} if keys else rest


def _parse_toml(text: str) -> dict[str, Any] | None:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return None


def _replace_file(path: Path, data: bytes) -> None:
    """Replace the file in one step and keep its mode: a half-written file would keep the gateway from starting."""
    path = path.resolve()
    try:
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            written = Path(file.name)
            try:
                file.write(data)
                file.flush()
                written.chmod(path.stat().st_mode)
                written.replace(path)
            finally:
                written.unlink(missing_ok=True)
    except OSError as error:
        raise ConfigEditError(f"cannot write {path}: {error.strerror}") from None
