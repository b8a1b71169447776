"""The two dialects of schemas: JSON Schema, and the vendor's Schema, a subset of OpenAPI 3.0 with types in capitals.

Requests have both: `parametersJsonSchema` and `responseJsonSchema`, or `parameters` and `responseSchema`. Upstreams get
JSON Schema, which has no unknown keywords: at the first one in `parameters` the whole request is refused
(CLIProxyAPI#97, read 2026-11-22). Those that do not know it get the subset (`schema_dialect`).
"""

from __future__ import annotations

from functools import lru_cache

from dragoman._ir.losses import Ledger, Loss, LossCode, child
from dragoman._ir.shape import pointer
from dragoman._wire.json import JSON, JSONObject, decode, encode, encode_text, objects_in, read_number
from dragoman._wire.json_schema import inline_references
from dragoman.protocols.gemini.shapes import by_snake_case

_TYPES = {name: name for name in ("string", "number", "integer", "boolean", "array", "object", "null")}
# Keywords that are converted: into one schema, a list of them, schemas by names, a number, which may be a text.
_FORMS = {
    **dict.fromkeys(("items", "additionalProperties", "not"), "schema"),
    **dict.fromkeys(("anyOf", "oneOf", "allOf", "prefixItems"), "list"),
    **dict.fromkeys(("properties", "$defs", "definitions", "patternProperties"), "map"),
    **dict.fromkeys(("minItems", "maxItems", "minLength", "maxLength", "minimum", "maximum"), "number"),
    **dict.fromkeys(("minProperties", "maxProperties"), "number"),
    **{name: name for name in ("type", "nullable", "example", "propertyOrdering")},
}
# Each with its name in JSON Schema, by all names that it may have (google-genai 3.4.0).
_KEYWORDS = {
    key: (name, _FORMS.get(name, ""))
    for key, name in {
        **by_snake_case(_FORMS),
        **{name: name for name in _FORMS},
        "defs": "$defs",
        "ref": "$ref",
    }.items()
}


# A place in a schema.
_Place = tuple[str | int, ...]
# In bytes. A longer schema is converted in each request.
_KEPT = 4096


def json_schema(schema: JSON, path: str, repairs: list[Loss]) -> JSON:
    """Return the schema at a path, of either dialect, as JSON Schema. repairs: collects what it loses.

    Gemini CLI 0.61.0 writes types in capitals in `responseJsonSchema` too.
    """
    text = encode(schema)
    converted, lost = (_converted if len(text) <= _KEPT else _converted.__wrapped__)(text)
    for place in lost:
        detail = "the order of properties: JSON Schema has none"
        repairs.append(Loss(LossCode.ALTERED, pointer(path, place), detail))
    return schema if converted == text else decode(converted)


@lru_cache(maxsize=256)  # clients send the same tools with each request
def _converted(schema: bytes) -> tuple[bytes, tuple[_Place, ...]]:
    """Return a schema as JSON Schema, and the places of what it loses."""
    lost: list[_Place] = []
    return encode(_as_json_schema(decode(schema), lost, ())), tuple(lost)


def _as_json_schema(schema: JSON, lost: list[_Place], inside: _Place) -> JSON:
    if type(schema) is not dict:
        return schema
    out: JSONObject = {}
    for key, value in schema.items():
        if value is None:
            continue
        name, form = _KEYWORDS.get(key, (key, ""))
        if form == "type":
            out[name] = [_lower(each) for each in value] if type(value) is list else _lower(value)
        elif form == "map" and type(value) is dict:
            out[name] = {
                each: _as_json_schema(inner, lost, (*inside, key, each)) for each, inner in value.items()
            }
        elif form == "list" and type(value) is list:
            out[name] = [_as_json_schema(each, lost, (*inside, key, at)) for at, each in enumerate(value)]
        elif form == "schema":
            out[name] = _as_json_schema(value, lost, (*inside, key))
        elif form == "number":
            out[name] = read_number(value)  # an int64 in proto3 JSON
        elif form == "example":
            out["examples"] = [value]
        elif form == "propertyOrdering":
            lost.append((*inside, key))
        elif form != "nullable":
            out[name] = value
    if schema.get("nullable") is True and type(out.get("type")) is str:
        out["type"] = [out["type"], "null"]
        if type(out.get("enum")) is list and None not in out["enum"]:
            out["enum"] = [*out["enum"], None]
    return out


def _lower(name: JSON) -> JSON:
    return _TYPES.get(name.lower(), name) if type(name) is str else name


# The fields of the vendor's Schema that every server knows (google-genai 3.4.0), but for those that are converted.
_FIELDS = {"title", "description", "default", "required", "pattern", "nullable", "example"}
_FIELDS |= {name for name, form in _FORMS.items() if form == "number"}
_FORMATS = frozenset(("float", "double", "int32", "int64", "enum", "date-time"))
# Keywords that no model needs.
_SILENT = frozenset(("$schema", "$id", "$defs", "definitions", "$comment", "examples"))
_CLOSED = ("additionalProperties", bool)


def openapi_schema(schema: JSON, path: str, ledger: Ledger) -> JSONObject:
    """Return the JSON Schema at a path in the vendor's dialect."""
    return _convert(inline_references(schema, path, ledger.altered), path, ledger)


def _convert(schema: JSON, path: str, ledger: Ledger) -> JSONObject:
    """Return a schema without references in the vendor's dialect."""
    if type(schema) is not dict:
        return {}
    whole = schema.get("allOf")
    if type(whole) is list and len(whole) == 1 and type(whole[0]) is dict:
        rest = {key: value for key, value in schema.items() if key != "allOf"}
        return _convert({**whole[0], **rest}, path, ledger)
    out: JSONObject = {}
    lost: JSONObject = {}
    for key, value in schema.items():
        at = child(path, key)
        if key in ("anyOf", "oneOf"):
            kinds = [each for each in objects_in(value) if each.get("type") != "null"]
            out["nullable"] = len(kinds) < len(objects_in(value)) or out.get("nullable", False)
            out["anyOf"] = [_convert(each, f"{at}/{index}", ledger) for index, each in enumerate(kinds)]
        elif key == "properties" and type(value) is dict and value:
            out[key] = {name: _convert(inner, child(at, name), ledger) for name, inner in value.items()}
        elif key == "items" and type(value) is dict:
            out[key] = _convert(value, at, ledger)
        elif key == "type":
            _put_types(value if type(value) is list else [value], out)
        elif key in ("enum", "const") and (choices := _texts(value)):
            out["enum"] = choices
            out.setdefault("type", "STRING")
        elif key in _FIELDS or (key == "format" and type(value) is str and value in _FORMATS):
            out[key] = value
        elif key not in _SILENT and value not in ({}, []) and (key, type(value)) != _CLOSED:
            lost[key] = value
            ledger.altered(at, "only in the description: the upstream's schemas have no such keyword")
    if out.get("nullable") is False:
        del out["nullable"]
    if lost:
        text = f"JSON Schema: {encode_text(lost)}"
        known = out.get("description")
        out["description"] = f"{known}\n{text}" if known else text
    return out


def _texts(value: JSON) -> list[str]:
    """Return the values of an enum, or the only one, without null; none if they are not texts."""
    choices = [each for each in (value if type(value) is list else [value]) if each is not None]
    return choices if all(type(each) is str for each in choices) else []


def _put_types(types: list[JSON], out: JSONObject) -> None:
    names = [name.upper() for name in types if type(name) is str and name != "null"]
    if len(names) < len(types):
        out["nullable"] = True
    if len(names) == 1:
        out["type"] = names[0]
    elif names:
        out["anyOf"] = [{"type": name} for name in names]
