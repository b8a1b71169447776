"""The JSON Schema of the configuration file, made from the tables of keys, for editors that complete and check.

It is laxer than the loader where a schema cannot know better: any string may hold a `${VARIABLE}`.
"""

from collections.abc import Callable, Mapping

from dragoman_server.settings import (
    ACCOUNT_KEYS,
    CLIENT_KEY_KEYS,
    MODEL_KEYS,
    PRICE_KEYS,
    RULE_KEYS,
    SERVER_KEYS,
    UPSTREAM_KEYS,
)
from dragoman_server.settings.fields import Key, Kind

Schema = dict[str, object]

_REFERENCE = r"\$\{"
_TEXT: Schema = {"type": "string", "minLength": 1}


def json_schema() -> Schema:
    """The schema of `dragoman.toml`."""
    upstream = _table(UPSTREAM_KEYS)
    # The preferred protocol is the first of `protocols` where it is not named.
    upstream["required"] = [
        name for name, key in UPSTREAM_KEYS.items() if key.required and name != "protocol"
    ]
    upstream["anyOf"] = [{"required": ["protocol"]}, {"required": ["protocols"]}]
    target = {"type": "string", "pattern": f"^[^/]+/.|{_REFERENCE}"}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Configuration of Dragoman",
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "server": _table(SERVER_KEYS),
            "upstreams": {"type": "array", "items": upstream},
            "capabilities": {"type": "array", "items": _rows(MODEL_KEYS)},
            "client_keys": {"type": "array", "items": _rows(CLIENT_KEY_KEYS)},
            "prices": {"type": "array", "items": _rows(PRICE_KEYS)},
            "accounts": {"type": "array", "items": _rows(ACCOUNT_KEYS)},
            "rules": {"type": "array", "items": _rows(RULE_KEYS)},
            "models": {
                "type": "object",
                "description": "names that clients send, * for any text, and the upstream/model that they mean",
                "additionalProperties": {
                    "anyOf": [target, {"type": "array", "items": target, "minItems": 1}]
                },
            },
        },
    }


def _table(keys: Mapping[str, Key]) -> Schema:
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": {name: _property(key) for name, key in keys.items()},
    }


def _rows(keys: Mapping[str, Key]) -> Schema:
    return {**_table(keys), "required": [name for name, key in keys.items() if key.required]}


def _property(key: Key) -> Schema:
    schema = {"description": key.help, **_KINDS[key.kind](key)}
    if key.default is not None and key.default != ():
        schema["default"] = list(key.default) if isinstance(key.default, tuple) else key.default
    return schema


def _text(key: Key) -> Schema:
    return _TEXT


def _number(key: Key) -> Schema:
    kind = "integer" if key.kind is Kind.INTEGER else "number"
    return {"type": kind, "minimum": key.low, "maximum": key.high}


def _choice(key: Key) -> Schema:
    return {"type": "string", "anyOf": [{"enum": list(key.choices)}, {"pattern": _REFERENCE}]}


def _list_of(item: Callable[[Key], Schema]) -> Callable[[Key], Schema]:
    return lambda key: {"type": "array", "items": item(key), "uniqueItems": True}


_KINDS: dict[Kind, Callable[[Key], Schema]] = {
    Kind.TEXT: _text,
    Kind.NAME: _text,
    Kind.HOST: _text,
    Kind.INTEGER: _number,
    Kind.SECONDS: _number,
    Kind.DOLLARS: _number,
    Kind.SWITCH: lambda key: {"type": "boolean"},
    Kind.CHOICE: _choice,
    Kind.CHOICES: _list_of(_choice),
    Kind.NAMES: _list_of(_text),
    Kind.STATUSES: _list_of(lambda key: {"type": "integer", "minimum": 100, "maximum": 599}),
    Kind.HOSTS: _list_of(_text),
    Kind.ORIGINS: _list_of(_text),
    Kind.PATH: _text,
    Kind.URL: _text,
    Kind.PROXY: _text,
    Kind.SECRET: _text,
    Kind.HASH: _text,
    Kind.HEADERS: lambda key: {"type": "object", "additionalProperties": _TEXT},
}
