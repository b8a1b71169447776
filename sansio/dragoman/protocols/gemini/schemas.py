"""The two dialects of schemas: JSON Schema, and the vendor's Schema, a subset of OpenAPI 3.0 with types in capitals.

Requests have both: `parametersJsonSchema` and `responseJsonSchema`, or `parameters` and `responseSchema`. Upstreams get
JSON Schema only, which has no unknown keywords: at the first one in `parameters` the whole request is refused
(CLIProxyAPI#97, read 2026-11-22).
"""

from __future__ import annotations

from collections.abc import Callable

from dragoman._ir.losses import child
from dragoman._wire.json import JSON, JSONObject
from dragoman.protocols.gemini.checks import camel_case

# Receives each change of a schema: its JSON Pointer and a sentence.
SchemaNote = Callable[[str, str], None]

_TYPES = frozenset(("string", "number", "integer", "boolean", "array", "object", "null"))
# Keywords with a list of schemas, with schemas by names, and with one.
_LISTS = frozenset(("anyOf", "oneOf", "allOf", "prefixItems"))
_MAPS = frozenset(("properties", "$defs", "definitions", "patternProperties"))
_SINGLE = frozenset(("items", "additionalProperties", "not"))
# Those that the vendor's Schema may spell with underscores.
_KNOWN = _LISTS | _MAPS | _SINGLE | {"propertyOrdering", "minItems", "maxItems", "minLength", "maxLength"}
_KNOWN |= {"minProperties", "maxProperties"}
# Fields of the vendor's Schema with another name (google-genai 3.4.0).
_NAMES = {"defs": "$defs", "ref": "$ref"}


def json_schema(schema: JSON, note: SchemaNote, path: str = "") -> JSON:
    """Return a schema of either dialect as JSON Schema. note: receives what it loses.

    Gemini CLI 0.61.0 writes types in capitals in `responseJsonSchema` too.
    """
    if type(schema) is not dict:
        return schema
    out: JSONObject = {}
    for key, value in schema.items():
        at = child(path, key)
        name = _NAMES.get(key) or (camel_case(key) if camel_case(key) in _KNOWN else key)
        if name == "propertyOrdering":
            note(at, "the order of properties: JSON Schema has none")
        elif name == "example":
            out["examples"] = [value]
        elif name == "type":
            out[name] = [_lower(each) for each in value] if type(value) is list else _lower(value)
        elif name.startswith(("min", "max")) and type(value) is str and value.isdecimal():
            out[name] = int(value)  # an int64 in proto3 JSON
        elif name in _LISTS and type(value) is list:
            out[name] = [json_schema(each, note, f"{at}/{index}") for index, each in enumerate(value)]
        elif name in _MAPS and type(value) is dict:
            out[name] = {each: json_schema(inner, note, child(at, each)) for each, inner in value.items()}
        elif name in _SINGLE:
            out[name] = json_schema(value, note, at)
        elif name != "nullable" and value is not None:
            out[name] = value
    if schema.get("nullable") is True and type(out.get("type")) is str:
        out["type"] = [out["type"], "null"]
        if type(out.get("enum")) is list and None not in out["enum"]:
            out["enum"] = [*out["enum"], None]
    return out


def _lower(name: JSON) -> JSON:
    lowered = name.lower() if type(name) is str else name
    return lowered if type(lowered) is str and lowered in _TYPES else name
