"""Whether a JSON Schema may be sent as strict.

The vendor's rule: "additionalProperties must be set to false for each object, all fields in properties must be
marked as required, the root level must be an object and must not use anyOf", and some keywords of composition are not
supported at all. A schema that breaks it is refused with a 400 when it is sent as strict.
"""

from __future__ import annotations

from ..._json import JSON, JSONObject

_REFUSED = frozenset(
    (
        "allOf",
        "contains",
        "default",
        "dependentRequired",
        "dependentSchemas",
        "else",
        "if",
        "maxContains",
        "maxProperties",
        "minContains",
        "minProperties",
        "not",
        "oneOf",
        "patternProperties",
        "prefixItems",
        "propertyNames",
        "then",
        "unevaluatedItems",
        "unevaluatedProperties",
        "uniqueItems",
    )
)
# A schema without one of these allows any value, which strict output cannot.
_SAYS_WHAT = ("type", "anyOf", "$ref", "enum", "const")
_MAPS = ("properties", "$defs", "definitions")


def is_strict(schema: JSON) -> bool:
    """Whether every object of the schema is closed and requires all its properties, and nothing else is in the way."""
    if type(schema) is not dict or schema.get("type") != "object" or "anyOf" in schema:
        return False
    left: list[JSON] = [schema]
    while left:
        each = left.pop()
        if type(each) is not dict or not _fits(each):
            return False
        left += _inner(each)
    return True


def _fits(schema: JSONObject) -> bool:
    if not _REFUSED.isdisjoint(schema) or not any(word in schema for word in _SAYS_WHAT):
        return False
    kind = schema.get("type")
    if kind != "object" and not (type(kind) is list and "object" in kind) and "properties" not in schema:
        return True
    properties, required = schema.get("properties", {}), schema.get("required", [])
    return (
        schema.get("additionalProperties") is False
        and type(properties) is dict
        and type(required) is list
        and properties.keys() == {name for name in required if type(name) is str}
    )


def _inner(schema: JSONObject) -> list[JSON]:
    """The schemas in a schema."""
    inner: list[JSON] = [schema["items"]] if "items" in schema else []
    choices = schema.get("anyOf", [])
    inner += choices if type(choices) is list else [choices]
    for name in _MAPS:
        members = schema.get(name, {})
        inner += members.values() if type(members) is dict else [members]
    return inner
