"""A value that fits a JSON schema, the same one each time.

Strategy: constants, enums, defaults and examples are taken as they are; everything else is the smallest
sensible value of its type. Patterns are not looked at: making a text that matches any regular expression is
another trade.
"""

import json
import math
from collections.abc import Mapping
from typing import TypeGuard

from dragoman._json import JSON, JSONObject

# Schemas refer to themselves (a tree of nodes). From this depth on, what may be left out is left out.
_DEEP = 5
# And here it ends, fitting or not: a schema whose required part is itself has no finite value.
_BOTTOM = 30

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
    """Compact JSON text of an object for a tool's parameters; None stands for a tool without any."""
    value = example(schema) if isinstance(schema, dict) else {}
    return json.dumps(value if isinstance(value, dict) else {}, ensure_ascii=False, separators=(",", ":"))


def example(schema: JSON) -> JSON:
    """A value for a decoded schema."""
    return _value(schema, schema, "value", 0)


def _value(schema: JSON, root: JSON, name: str, depth: int) -> JSON:
    if not isinstance(schema, dict) or depth > _BOTTOM:
        return None if depth > _BOTTOM else f"some {name}"
    for key in ("const", "default"):
        if key in schema:
            return schema[key]
    for key in ("enum", "examples"):
        if isinstance(schema.get(key), list) and schema[key]:
            return schema[key][0]
    if isinstance(schema.get("$ref"), str):
        return _value(_resolved(schema["$ref"], root), root, name, depth + 1)
    if isinstance(schema.get("allOf"), list):
        return _value(_merged(schema, root), root, name, depth + 1)
    for key in ("anyOf", "oneOf"):
        if isinstance(schema.get(key), list) and schema[key]:
            return _value(_choice(schema[key], depth), root, name, depth + 1)
    kind = _kind(schema, depth)
    if kind == "object":
        return _object(schema, root, depth)
    if kind == "array":
        return _array(schema, root, name, depth)
    if kind in ("integer", "number"):
        return _number(schema, whole=kind == "integer")
    if kind == "boolean":
        return True
    return None if kind == "null" else _string(schema, name)


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
    """The first one that is not null; deep down null, where that is allowed."""
    nulls = [each for each in alternatives if isinstance(each, dict) and each.get("type") == "null"]
    if depth >= _DEEP and nulls:
        return nulls[0]
    return next((each for each in alternatives if each not in nulls), alternatives[0])


def _resolved(reference: str, root: JSON) -> JSON:
    """The schema at a local JSON pointer; anything goes where it leads nowhere."""
    found = root
    for step in reference.removeprefix("#").split("/")[1:]:
        step = step.replace("~1", "/").replace("~0", "~")
        found = found.get(step) if isinstance(found, dict) else None
    return found


def _merged(schema: JSONObject, root: JSON) -> JSONObject:
    """allOf as one schema: later members win, properties and required add up."""
    merged: JSONObject = {key: value for key, value in schema.items() if key != "allOf"}
    for each in schema["allOf"]:
        if isinstance(each, dict) and isinstance(each.get("$ref"), str):
            each = _resolved(each["$ref"], root)
        if not isinstance(each, dict):
            continue
        properties = {**(merged.get("properties") or {}), **(each.get("properties") or {})}
        required = [*(merged.get("required") or []), *(each.get("required") or [])]
        merged = {**merged, **each, "properties": properties, "required": required}
    if not merged.get("properties"):
        merged.pop("properties", None)
    return merged


def _object(schema: JSONObject, root: JSON, depth: int) -> JSON:
    """The required properties; all of them where the schema does not say which."""
    properties = schema.get("properties")
    properties = properties if isinstance(properties, dict) else {}
    required = schema.get("required")
    if not isinstance(required, list):
        required = list(properties) if depth < _DEEP else []
    names = [name for name in required if isinstance(name, str)]
    return {name: _value(properties.get(name, {}), root, name, depth + 1) for name in names}


def _array(schema: JSONObject, root: JSON, name: str, depth: int) -> JSON:
    least = _limit(schema, "minItems", 0)
    prefix = schema.get("prefixItems")
    values = [_value(each, root, name, depth + 1) for each in prefix] if isinstance(prefix, list) else []
    most = _limit(schema, "maxItems", 1000)
    wanted = min(max(least, 0 if depth >= _DEEP else 1), most, 1000)
    while len(values) < wanted:
        values.append(_value(schema.get("items"), root, name, depth + 1))
    return values


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
    if _is_number(step) and step > 0:
        value = math.ceil(value / step) * step
    return int(value) if whole else value


def _is_number(value: JSON) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _string(schema: JSONObject, name: str) -> str:
    text = _FORMATS.get(str(schema.get("format")), f"some {name}")
    text = text.ljust(min(_limit(schema, "minLength", 0), 10_000), ".")
    return text[: _limit(schema, "maxLength", len(text))]


def _limit(schema: JSONObject, key: str, otherwise: int) -> int:
    value = schema.get(key)
    return max(0, int(value)) if _is_number(value) and math.isfinite(value) else otherwise
