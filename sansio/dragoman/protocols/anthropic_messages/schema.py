"""A JSON Schema as structured output of this protocol takes it.

Strategy: one walk that gives a copy. "For 'object' type, 'additionalProperties' must be explicitly set to false",
and of the keywords only those of a table are known; what the others say goes into the description, where the
model reads it, and is reported. Nothing is checked: a schema that is none stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from dragoman._ir.losses import child
from dragoman._wire.json import JSON, JSONObject, encode_text

# Takes the place in the schema (a JSON Pointer) and a sentence.
Note = Callable[[str, str], None]

_KEPT = frozenset(
    {
        "$schema",
        "$ref",
        "$defs",
        "definitions",
        "type",
        "title",
        "description",
        "default",
        "enum",
        "const",
        "anyOf",
        "allOf",
        "properties",
        "required",
        "additionalProperties",
        "items",
    }
)

# Keywords that are known with some values only.
_FORMATS = frozenset(
    {"date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"}
)
# Lookaround and its like, word boundaries, back references, and large counts are not known in patterns.
_HARD_PATTERN = re.compile(r"\(\?|\\[bBpPk1-9]|\{\d{3,}|\{\d+,\d{3,}")
_SOMETIMES: dict[str, Callable[[JSON], bool]] = {
    "format": lambda value: value in _FORMATS,
    "minItems": lambda value: value in (0, 1),
    "pattern": lambda value: type(value) is str and _HARD_PATTERN.search(value) is None,
    "enum": lambda value: type(value) is list and not any(type(item) in (dict, list) for item in value),
}

_LISTS = ("anyOf", "allOf")
_MAPS = ("properties", "$defs", "definitions")


def fit_schema(schema: JSON, note: Note, path: str = "") -> JSON:
    """The schema as the upstream takes it. note: is told of every change."""
    if type(schema) is not dict:
        return schema
    out: JSONObject = {}
    told: list[str] = []
    for key, value in schema.items():
        if key in _SOMETIMES:
            known = _SOMETIMES[key](value)
        else:
            known = key in _KEPT
        if known:
            out[key] = value
        elif key == "oneOf" and "anyOf" not in schema:
            out["anyOf"] = value
            note(child(path, key), "sent as anyOf: the upstream's schemas have no oneOf")
        else:
            told.append(f"{key}: {encode_text(value)}")
            note(child(path, key), "told in the description: the upstream's schemas have no such keyword")
    if told:
        words = f"({'; '.join(told)})"
        given = out.get("description")
        out["description"] = f"{given} {words}" if type(given) is str and given else words
    _fit_inner(out, note, path)
    if _is_object(out):
        _close(out, note, path)
    return out


def _fit_inner(out: JSONObject, note: Note, path: str) -> None:
    if "items" in out:
        out["items"] = fit_schema(out["items"], note, f"{path}/items")
    for key in _LISTS:
        if type(out.get(key)) is list:
            out[key] = [
                fit_schema(item, note, f"{path}/{key}/{index}") for index, item in enumerate(out[key])
            ]
    for key in _MAPS:
        if type(out.get(key)) is dict:
            at = f"{path}/{key}"
            out[key] = {name: fit_schema(item, note, child(at, name)) for name, item in out[key].items()}


def _is_object(schema: JSONObject) -> bool:
    kind = schema.get("type")
    return (
        kind == "object" or (type(kind) is list and "object" in kind) or (not kind and "properties" in schema)
    )


def _close(out: JSONObject, note: Note, path: str) -> None:
    """Allow no other members."""
    if out.get("additionalProperties") is False:
        return
    at = f"{path}/additionalProperties" if "additionalProperties" in out else path
    out["additionalProperties"] = False
    note(at, "objects were closed (additionalProperties: false): the upstream demands it")
