"""Whether OpenAI takes a JSON Schema as strict, for tools and for structured output alike.

Strategy: a strict schema outside of the server's subset costs the whole request ("Invalid schema for ..."), and
leaving `strict` out costs a guarantee. One walk over the schemas within the schema decides.
"""

from __future__ import annotations

from dragoman._wire.json import JSON, JSONObject

# "'default' is not permitted": keywords outside of the subset, and compositions other than anyOf.
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
# "schema must have a 'type' key", for `enum` and `const` as well, unless it refers to others.
_KINDS = ("type", "anyOf", "$ref")
_MAPS = ("properties", "$defs", "definitions")
# The second is taken, and not kept to.
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
    kinds = kind if type(kind) is list else [kind]
    if "array" in kinds and "items" not in schema:
        return False  # "array schema missing items"
    if "object" not in kinds:
        return "properties" not in schema
    properties, required = schema.get("properties", {}), schema.get("required", [])
    if type(properties) is not dict or type(required) is not list:
        return False
    # "'required' is required to be ... an array including every key in properties. Extra required key supplied."
    names = {name for name in required if type(name) is str}
    return schema.get("additionalProperties") is False and properties.keys() == names
