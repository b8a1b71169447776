"""Make a value that is valid for a JSON schema, always the same one.

Constants, enums, defaults and examples are used as they are; everything else is the smallest sensible value of its
type. Patterns are ignored.
"""

import json
import math
from collections.abc import Mapping
from typing import TypeVar

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
    """Makes one value.

    Args:
        root: the schema in which local references are resolved.
    """

    __slots__ = ("_left", "_root")

    def __init__(self, root: JSON) -> None:
        self._root = root
        self._left = _BUDGET

    def value(self, schema: JSON, name: str, depth: int) -> JSON:
        self._left -= 1
        if depth > _BOTTOM or self._left <= 0:
            return None
        match schema:
            case {"const": value} | {"default": value} | {"enum": [value, *_]} | {"examples": [value, *_]}:
                self._left -= len(json.dumps(value)) // _UNIT
                return value
            case {"$ref": str(reference)}:
                return self.value(self._resolved(reference), name, depth + 1)
            case {"allOf": [*parts]}:
                return self.value(self._merged(schema, parts), name, depth + 1)
            case {"anyOf": [_, *_] as choices} | {"oneOf": [_, *_] as choices}:
                return self.value(_choice(choices, depth), name, depth + 1)
            case {"type": [_, *_] as kinds}:
                return self.value(_choice([{**schema, "type": kind} for kind in kinds], depth), name, depth)
            case dict():
                return self._typed(schema, name, depth)
        return f"some {name}"

    def _typed(self, schema: JSONObject, name: str, depth: int) -> JSON:
        kind = schema.get("type")
        if not isinstance(kind, str):
            kind = "object" if "properties" in schema else "array" if "items" in schema else "string"
        match kind:
            case "object":
                return self._object(schema, depth)
            case "array":
                return self._array(schema, name, depth)
            case "integer" | "number":
                return _number(schema, whole=kind == "integer")
            case "boolean":
                return True
            case "null":
                return None
        text = _FORMATS.get(str(schema.get("format")), f"some {name}")
        text = text.ljust(min(_length(schema, "minLength", 0), self._left * _UNIT), ".")
        self._left -= len(text) // _UNIT
        return text[: _length(schema, "maxLength", len(text))]

    def _object(self, schema: JSONObject, depth: int) -> JSON:
        """Return the required properties; all of them if the schema does not list any."""
        properties = _of(dict, schema.get("properties"))
        required = schema.get("required")
        if not isinstance(required, list):
            required = list(properties) if depth < _DEEP else []
        names = [name for name in required if isinstance(name, str)]
        return {name: self.value(properties.get(name, {}), name, depth + 1) for name in names}

    def _array(self, schema: JSONObject, name: str, depth: int) -> JSON:
        least = max(_length(schema, "minItems", 0), 0 if depth >= _DEEP else 1)
        wanted = min(least, _length(schema, "maxItems", least))
        values = [self.value(prefix, name, depth + 1) for prefix in _of(list, schema.get("prefixItems"))]
        while len(values) < wanted and self._left > 0:
            values.append(self.value(schema.get("items"), name, depth + 1))
        return values

    def _resolved(self, reference: str) -> JSON:
        """Return the schema at a local JSON pointer, or None, which allows any value."""
        found = self._root
        for step in reference.removeprefix("#").split("/")[1:]:
            step = step.replace("~1", "/").replace("~0", "~")
            found = found.get(step) if isinstance(found, dict) else None
        return found

    def _merged(self, schema: JSONObject, parts: list[JSON]) -> JSONObject:
        """Merge allOf into one schema: later members win, `properties` and `required` are combined."""
        merged: JSONObject = {key: value for key, value in schema.items() if key != "allOf"}
        for part in parts:
            if isinstance(part, dict) and isinstance(part.get("$ref"), str):
                part = self._resolved(part["$ref"])
            if isinstance(part, dict):
                properties = {**_of(dict, merged.get("properties")), **_of(dict, part.get("properties"))}
                required = [*_of(list, merged.get("required")), *_of(list, part.get("required"))]
                merged |= {**part, "properties": properties, "required": required}
        if not merged.get("properties"):
            merged.pop("properties", None)
        return merged


def _choice(choices: list[JSON], depth: int) -> JSON:
    """Return the first alternative that is not null; at depth null, if that is allowed."""
    nulls = [choice for choice in choices if isinstance(choice, dict) and choice.get("type") == "null"]
    if depth >= _DEEP and nulls:
        return nulls[0]
    return next((choice for choice in choices if choice not in nulls), choices[0])


def _number(schema: JSONObject, *, whole: bool) -> float:
    value: float = 1
    highest = _figure(schema, "maximum", math.inf)
    lowest = _figure(schema, "minimum", -math.inf)
    step = _figure(schema, "multipleOf", 0)
    if value > highest:
        value = math.floor(highest) if whole else highest
    if value >= (below := _figure(schema, "exclusiveMaximum", math.inf)):
        value = math.ceil(below) - 1
    if value < lowest:
        value = math.ceil(lowest) if whole else lowest
    if value <= (above := _figure(schema, "exclusiveMinimum", -math.inf)):
        value = math.floor(above) + 1
    if step > 0 and math.isfinite(value / step):
        value = math.ceil(value / step) * step
    return int(value) if whole else value


def _figure(schema: JSONObject, key: str, otherwise: float) -> float:
    value = schema.get(key)
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _LARGE:
        return value
    return otherwise


def _length(schema: JSONObject, key: str, otherwise: int) -> int:
    return max(0, int(_figure(schema, key, otherwise)))


def _of(kind: type[_T], value: JSON) -> _T:
    """Return the value if it has that type, else an empty one, because clients send the schemas."""
    return value if isinstance(value, kind) else kind()
