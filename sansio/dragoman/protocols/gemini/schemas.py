"""The two dialects of schemas: JSON Schema, and a subset of OpenAPI 3.0 with types in capitals.

Requests have both: `parametersJsonSchema` and `responseJsonSchema`, or `parameters` and `responseSchema`, of whose
readers the whole request is refused at the first keyword that they do not know. What a schema loses is noted.
"""

from __future__ import annotations

from collections.abc import Callable

from dragoman._ir.losses import child
from dragoman._wire.json import JSON, JSONObject, encode_text

# Receives each change of a schema: its JSON Pointer and a sentence.
SchemaNote = Callable[[str, str], None]

_TYPES = frozenset(("string", "number", "integer", "boolean", "array", "object", "null"))
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_MAPS = ("properties", "$defs", "definitions", "patternProperties")
_SINGLE = ("items", "additionalProperties", "not")

# Fields of the vendor's Schema whose names are those of JSON Schema, in the other spelling (google-genai 3.4.0).
_SPELLINGS = {
    "any_of": "anyOf",
    "max_items": "maxItems",
    "max_length": "maxLength",
    "max_properties": "maxProperties",
    "min_items": "minItems",
    "min_length": "minLength",
    "min_properties": "minProperties",
    "prefix_items": "prefixItems",
    "property_ordering": "propertyOrdering",
    "additional_properties": "additionalProperties",
    "defs": "$defs",
    "ref": "$ref",
    "example": "examples",
}
_NUMERIC = frozenset(("maxItems", "maxLength", "maxProperties", "minItems", "minLength", "minProperties"))


def json_schema(schema: JSON, note: SchemaNote, path: str = "") -> JSON:
    """Return a schema of either dialect as JSON Schema, the same object if it is one already.

    Gemini CLI 0.61.0 writes types in capitals in `responseJsonSchema` too.
    """
    if type(schema) is not dict:
        return schema
    out: JSONObject = {}
    for key, value in schema.items():
        name = str(_SPELLINGS.get(key, key))
        if value is None:
            continue
        if name == "propertyOrdering":
            note(child(path, key), "the order of properties: JSON Schema has none")
        elif name == "nullable":
            pass  # below
        elif name == "type":
            out[name] = _lower(value)
        elif name == "examples" and key == "example":
            out[name] = [value]
        elif name in _NUMERIC and type(value) is str and value.isdecimal():
            out[name] = int(value)  # int64 in proto3 JSON
        else:
            out[name] = _inner(name, value, lambda each, at: json_schema(each, note, at), child(path, key))
    if schema.get("nullable") is True and type(out.get("type")) is str:
        out["type"] = [out["type"], "null"]
        if type(out.get("enum")) is list and None not in out["enum"]:
            out["enum"] = [*out["enum"], None]
    return schema if out == schema else out


def _lower(value: JSON) -> JSON:
    if type(value) is list:
        return [_lower(each) for each in value]
    lowered = value.lower() if type(value) is str else value
    return lowered if lowered in _TYPES else value


def _inner(name: str, value: JSON, convert: Callable[[JSON, str], JSON], path: str) -> JSON:
    """Return the value of a keyword with the schemas in it converted."""
    if name in _LISTS and type(value) is list:
        return [convert(each, f"{path}/{index}") for index, each in enumerate(value)]
    if name in _MAPS and type(value) is dict:
        return {key: convert(each, child(path, key)) for key, each in value.items()}
    return convert(value, path) if name in _SINGLE else value


# Keywords of `parameters` that every model accepts.
_KEYWORDS = frozenset(
    {
        "type",
        "format",
        "title",
        "description",
        "nullable",
        "default",
        "items",
        "minItems",
        "maxItems",
        "properties",
        "required",
        "minProperties",
        "maxProperties",
        "minimum",
        "maximum",
        "minLength",
        "maxLength",
        "pattern",
        "anyOf",
        "enum",
    }
)
_FORMATS = frozenset({"enum", "date-time", "int32", "int64", "float", "double"})


def openapi_schema(schema: JSON, note: SchemaNote) -> JSON:
    """Return a JSON Schema in the subset of OpenAPI. Keywords without a counterpart go into the description."""
    root = schema if type(schema) is dict else {}
    return _Reduction(root, note).reduce(schema, "", ())


class _Reduction:
    """Reduces one schema. References are replaced by what they refer to, and a cycle by any object."""

    def __init__(self, root: JSONObject, note: SchemaNote) -> None:
        self._root = root
        self._note = note

    def reduce(self, schema: JSON, path: str, seen: tuple[str, ...]) -> JSON:
        if type(schema) is not dict:
            if schema is not True:
                self._note(path, "the upstream's schemas have no false: sent as any value")
            return {}
        reference = schema.get("$ref")
        if type(reference) is str:
            target = self._target(reference)
            if reference in seen or type(target) is not dict:
                self._note(path, "a schema that contains itself was cut")
                return {"type": "OBJECT"}
            rest = {key: value for key, value in schema.items() if key != "$ref"}
            return self.reduce({**target, **rest}, path, (*seen, reference))
        out: JSONObject = {}
        described: list[str] = []
        for key, value in self._plain(schema, path).items():
            if key in ("$schema", "$id", "$defs", "definitions", "strict"):
                continue
            if key == "type":
                self._write_type(value, out)
            elif key in _KEYWORDS and self._fits(key, value):
                out[key] = _inner(key, value, lambda each, at: self.reduce(each, at, seen), child(path, key))
            elif not (key == "additionalProperties" and value is False):
                described.append(f"{key}: {encode_text(value)}")
                self._note(child(path, key), "added to the description: `parameters` has no such keyword")
        if described:
            before = out.get("description")
            keywords = f"({'; '.join(described)})"
            out["description"] = f"{before} {keywords}" if type(before) is str and before else keywords
        return out

    def _target(self, reference: str) -> JSON:
        if not reference.startswith("#"):
            return None
        found: JSON = self._root
        for step in reference[1:].split("/")[1:]:
            found = found.get(step.replace("~1", "/").replace("~0", "~")) if type(found) is dict else None
        return found

    def _plain(self, schema: JSONObject, path: str) -> JSONObject:
        """Return the schema with keywords that have an equivalent replaced by it."""
        out: JSONObject = {}
        for key, value in schema.items():
            if key == "const" and type(value) is str:
                out["enum"] = [value]
            elif key == "oneOf" and "anyOf" not in schema:
                out["anyOf"] = value
            elif key == "allOf" and type(value) is list and len(value) == 1 and type(value[0]) is dict:
                out = {**value[0], **out}
            elif key == "exclusiveMinimum" and type(value) is int and schema.get("type") == "integer":
                out["minimum"] = value + 1
            elif key == "exclusiveMaximum" and type(value) is int and schema.get("type") == "integer":
                out["maximum"] = value - 1
            else:
                out[key] = value
        return out

    @staticmethod
    def _fits(key: str, value: JSON) -> bool:
        if key == "enum":
            return type(value) is list and all(type(each) is str for each in value)
        return key != "format" or value in _FORMATS

    @staticmethod
    def _write_type(value: JSON, out: JSONObject) -> None:
        types = [each for each in (value if type(value) is list else [value]) if type(each) is str]
        others = [each.upper() for each in types if each != "null"]
        if len(others) == 1:
            out["type"] = others[0]
        elif others:
            out["anyOf"] = [{"type": each} for each in others]
        if len(others) < len(types):
            out.update({"nullable": True} if others else {"type": "NULL"})
