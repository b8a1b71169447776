"""Whether a JSON Schema may be sent with `strict`.

Strategy: the server refuses a strict schema outside of its subset, so that `strict` for a schema that does not
qualify costs the whole request, and leaving it out costs a guarantee. One walk over the schemas within the schema
decides.
"""

from __future__ import annotations

from dragoman._json import JSON, JSONObject

# "Some type-specific keywords are not yet supported", and compositions other than anyOf.
_REFUSED = frozenset(
    {
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
        "propertyNames",
        "then",
        "unevaluatedItems",
        "unevaluatedProperties",
        "uniqueItems",
    }
)
# One of these says what a value is.
_KINDS = ("type", "anyOf", "$ref", "enum", "const")
_MAPS = ("properties", "$defs", "definitions")
_LISTS = ("anyOf", "prefixItems")


def is_strict(schema: JSON) -> bool:
    """Whether the server would take a schema as strict.

    "The root must be an object and not anyOf", "all fields must be required", "additionalProperties: false must
    always be set".
    """
    if type(schema) is not dict or schema.get("type") != "object" or "anyOf" in schema:
        return False
    left: list[JSON] = [schema]
    while left:
        each = left.pop()
        if type(each) is not dict or not _qualifies(each):
            return False
        for key in _MAPS:
            inner = each.get(key, {})
            if type(inner) is not dict:
                return False
            left += inner.values()
        for key in _LISTS:
            inner = each.get(key, [])
            if type(inner) is not list:
                return False
            left += inner
        if "items" in each:
            left.append(each["items"])
    return True


def _qualifies(schema: JSONObject) -> bool:
    """The rules for one schema, without those within it."""
    if not _REFUSED.isdisjoint(schema) or not any(key in schema for key in _KINDS):
        return False
    kind = schema.get("type")
    if kind != "object" and not (type(kind) is list and "object" in kind):
        return "properties" not in schema
    properties, required = schema.get("properties", {}), schema.get("required", [])
    if type(properties) is not dict or type(required) is not list:
        return False
    return schema.get("additionalProperties") is False and all(name in required for name in properties)
