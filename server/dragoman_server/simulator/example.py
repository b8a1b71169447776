"""Make a value that is valid for a JSON schema, always the same one.

Constants, enums, defaults and examples are used as they are; everything else is the smallest sensible value of its
type. Patterns are ignored.
"""

import json
import math
from collections.abc import Iterator, Mapping
from typing import TypeGuard, TypeVar

from dragoman.jsontext import JSON, JSONObject

# Schemas may refer to themselves. From this depth on, optional parts are left out.
_DEEP = 5
# At this depth it ends, valid or not: a schema whose required part is itself has no finite value.
_BOTTOM = 30
# A few lines of schema can require a value that fills all memory. So many values are made, a text or constant counting
# as one for each _UNIT characters; further ones are null.
_BUDGET = 4000
_UNIT = 64
# Bounds at or above this are ignored, because floats are exact only below it.
_LARGE = 2**53

_T = TypeVar("_T")

_FORMATS: Mapping[str, str] = {
    "date": "2026-01-31",
    "date-time": "2026-01-31T12:00:00Z",
    "duration": "PT1H",
    "email": "someone@example.com",
    "hostname": "example.com",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "time": "12:00:00Z",
    "uri": "https://example.com/",
    "uuid": "00000000-0000-4000-8000-000000000000",
}


def example_text(schema: JSON) -> str:
    """Return compact JSON text of an object for a tool's parameters. schema: None for a tool without any."""
    value = example(schema) if isinstance(schema, dict) else {}
    return json.dumps(value if isinstance(value, dict) else {}, ensure_ascii=False, separators=(",", ":"))


def example(schema: JSON) -> JSON:
    """Return a value for a decoded schema."""
    return _Maker(schema).value(schema, "value", 0)


class _Maker:
    """Makes one value. root: the schema in which local references are resolved."""

    __slots__ = ("_left", "_root")

    def __init__(self, root: JSON) -> None:
        self._root = root
        self._left = _BUDGET

    def value(self, schema: JSON, name: str, depth: int) -> JSON:
        self._left -= 1
        if depth > _BOTTOM or self._left <= 0:
            return None
        if not isinstance(schema, dict):
            return f"some {name}"
        for value in _offered_values(schema):
            self._left -= len(json.dumps(value)) // _UNIT
            return value
        if isinstance(schema.get("$ref"), str):
            return self.value(_resolved(schema["$ref"], self._root), name, depth + 1)
        if isinstance(schema.get("allOf"), list):
            return self.value(_merged(schema, self._root), name, depth + 1)
        for key in ("anyOf", "oneOf"):
            if isinstance(schema.get(key), list) and schema[key]:
                return self.value(_choice(schema[key], depth), name, depth + 1)
        kind = _kind(schema, depth)
        if kind == "object":
            return self._object(schema, depth)
        if kind == "array":
            return self._array(schema, name, depth)
        if kind in ("integer", "number"):
            return _number(schema, whole=kind == "integer")
        if kind == "boolean":
            return True
        return None if kind == "null" else self._string(schema, name)

    def _object(self, schema: JSONObject, depth: int) -> JSON:
        """Return the required properties; all of them if the schema does not list any."""
        properties = _of(dict, schema.get("properties"))
        required = schema.get("required")
        if not isinstance(required, list):
            required = list(properties) if depth < _DEEP else []
        names = [name for name in required if isinstance(name, str)]
        return {name: self.value(properties.get(name, {}), name, depth + 1) for name in names}

    def _array(self, schema: JSONObject, name: str, depth: int) -> JSON:
        least = max(_limit(schema, "minItems", 0), 0 if depth >= _DEEP else 1)
        wanted = min(least, _limit(schema, "maxItems", least))
        values = [self.value(each, name, depth + 1) for each in _of(list, schema.get("prefixItems"))]
        while len(values) < wanted and self._left > 0:
            values.append(self.value(schema.get("items"), name, depth + 1))
        return values

    def _string(self, schema: JSONObject, name: str) -> str:
        text = _FORMATS.get(str(schema.get("format")), f"some {name}")
        text = text.ljust(min(_limit(schema, "minLength", 0), self._left * _UNIT), ".")
        self._left -= len(text) // _UNIT
        return text[: _limit(schema, "maxLength", len(text))]


def _offered_values(schema: JSONObject) -> Iterator[JSON]:
    """Yield the values that the schema contains, best first."""
    yield from (schema[key] for key in ("const", "default") if key in schema)
    for key in ("enum", "examples"):
        if isinstance(schema.get(key), list):
            yield from schema[key][:1]


def _kind(schema: JSONObject, depth: int) -> str:
    kind = schema.get("type")
    if isinstance(kind, list):
        if depth >= _DEEP and "null" in kind:
            return "null"
        kind = next((each for each in kind if each != "null"), "null")
    if isinstance(kind, str):
        return kind
    if "properties" in schema:
        return "object"
    return "array" if "items" in schema else "string"


def _choice(alternatives: list[JSON], depth: int) -> JSON:
    """Return the first alternative that is not null; at depth null, if that is allowed."""
    nulls = [each for each in alternatives if isinstance(each, dict) and each.get("type") == "null"]
    if depth >= _DEEP and nulls:
        return nulls[0]
    return next((each for each in alternatives if each not in nulls), alternatives[0])


def _resolved(reference: str, root: JSON) -> JSON:
    """Return the schema at a local JSON pointer, or None, which allows any value."""
    found = root
    for step in reference.removeprefix("#").split("/")[1:]:
        step = step.replace("~1", "/").replace("~0", "~")
        found = found.get(step) if isinstance(found, dict) else None
    return found


def _merged(schema: JSONObject, root: JSON) -> JSONObject:
    """Merge allOf into one schema: later members win, `properties` and `required` are combined."""
    merged: JSONObject = {key: value for key, value in schema.items() if key != "allOf"}
    for each in schema["allOf"]:
        if isinstance(each, dict) and isinstance(each.get("$ref"), str):
            each = _resolved(each["$ref"], root)
        if not isinstance(each, dict):
            continue
        properties = {**_of(dict, merged.get("properties")), **_of(dict, each.get("properties"))}
        required = [*_of(list, merged.get("required")), *_of(list, each.get("required"))]
        merged = {**merged, **each, "properties": properties, "required": required}
    if not merged.get("properties"):
        merged.pop("properties", None)
    return merged


def _of(kind: type[_T], value: JSON) -> _T:
    """Return the value if it has that type, else an empty one, because clients send the schemas."""
    return value if isinstance(value, kind) else kind()


def _number(schema: JSONObject, *, whole: bool) -> JSON:
    value: float = 1
    step = schema.get("multipleOf")
    lowest, above = schema.get("minimum"), schema.get("exclusiveMinimum")
    highest, below = schema.get("maximum"), schema.get("exclusiveMaximum")
    if _is_number(highest) and value > highest:
        value = math.floor(highest) if whole else highest
    if _is_number(below) and value >= below:
        value = math.ceil(below) - 1
    if _is_number(lowest) and value < lowest:
        value = math.ceil(lowest) if whole else lowest
    if _is_number(above) and value <= above:
        value = math.floor(above) + 1
    if _is_number(step) and step > 0 and math.isfinite(value / step):
        value = math.ceil(value / step) * step
    return int(value) if whole else value


def _is_number(value: JSON) -> TypeGuard[float]:
    """True if it is a number to calculate with: those of JSON may be of any size."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _LARGE


def _limit(schema: JSONObject, key: str, otherwise: int) -> int:
    value = schema.get(key)
    return max(0, int(value)) if _is_number(value) else otherwise
