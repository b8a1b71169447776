"""Check values against a JSON Schema, and schemas against the subset that OpenAI accepts as strict.

Both walk over the schema. A schema comes with the request, so from outside: find_broken_keyword() counts its steps and
gives up beyond a bound, and runs no regular expression. A keyword that is not checked leaves the result open; only a
certain breach is reported. Other members are annotations: "A JSON Schema MAY contain properties which are not schema
keywords. Unknown keywords SHOULD be ignored." (JSON Schema draft-07, 4.3.1)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from dragoman._wire.json import JSON, JSONObject

# A step is less than a microsecond. A schema of a response's size takes some thousands.
MAX_STEPS = 100_000

_NUMBERS = (int, float)


class SchemaUndecided(Exception):
    """The check of a value has no result. The message has the reason, and quotes nothing."""


class _Broken(Exception):
    """The value breaks this keyword of the schema."""


def find_broken_keyword(schema: JSON, value: JSON) -> str | None:
    """Return the keyword of the schema that a value breaks, None if it matches. Raises SchemaUndecided."""
    try:
        certain = _SchemaWalk(schema).matches(schema, value)
    except _Broken as broken:
        return str(broken)
    except RecursionError:
        raise SchemaUndecided("schema and response are nested too deep") from None
    if not certain:
        raise SchemaUndecided("the schema has keywords that are not checked")
    return None


class _SchemaWalk:
    """Checks a value. matches() and the methods of keywords return True for a match, False if that is undecided."""

    __slots__ = ("_root", "_steps")

    def __init__(self, root: JSON) -> None:
        self._root = root
        self._steps = 0

    def spend(self, steps: int) -> None:
        self._steps += steps
        if self._steps > MAX_STEPS:
            raise SchemaUndecided("the check would take too long")

    def matches(self, schema: JSON, value: JSON) -> bool:
        if schema is True:
            return True
        if schema is False:
            raise _Broken("false")
        if type(schema) is not dict or ("$id" in schema and schema is not self._root):
            return False  # no schema; one with a base of its own for the references in it
        self.spend(1 + len(schema))
        certain = True
        for keyword, rule in schema.items():
            check = _KEYWORD_CHECKS.get(keyword)
            if check is not None:
                certain = check(self, rule, value, schema) and certain
            elif keyword in _UNCHECKED:
                kind = _UNCHECKED[keyword]
                certain = certain and kind is not None and type(value) is not kind
        return certain

    def _all(self, pairs: list[tuple[JSON, JSON]]) -> bool:
        """True if each schema matches its value. All are checked, because a breach after an open one is a breach."""
        certain = True
        for schema, value in pairs:
            certain = self.matches(schema, value) and certain
        return certain

    # Of any value.

    def types(self, rule: JSON, value: JSON, schema: JSONObject) -> bool:
        names = rule if type(rule) is list else [rule]
        self.spend(len(names))
        if not all(type(name) is str and name in _TYPES for name in names):
            return False
        if not any(_TYPES[name](value) for name in names):
            raise _Broken("type")
        return True

    def enum(self, rule: JSON, value: JSON, schema: JSONObject) -> bool:
        if type(rule) is not list:
            return False
        key = self._key(value)
        if not any(self._key(each) == key for each in rule):
            raise _Broken("enum")
        return True

    def const(self, rule: JSON, value: JSON, schema: JSONObject) -> bool:
        if self._key(rule) != self._key(value):
            raise _Broken("const")
        return True

    def _key(self, value: JSON) -> object:
        """Return a key that is equal for equal values: 1 and 1.0, but not 1 and true."""
        self.spend(1)
        if type(value) is bool:
            return "bool", value
        if type(value) is list:
            return "list", *[self._key(item) for item in value]
        if type(value) is dict:
            return "dict", frozenset([(name, self._key(member)) for name, member in value.items()])
        found: object = value
        return found

    def reference(self, rule: JSON, value: JSON, schema: JSONObject) -> bool:
        if rule == "#":
            return self.matches(self._root, value)
        if type(rule) is not str or not rule.startswith("#/") or "%" in rule:
            return False  # in another document, or by the name of an anchor
        found = self._root
        for step in rule[2:].split("/"):
            self.spend(1)
            name = step.replace("~1", "/").replace("~0", "~")
            if type(found) is not dict or name not in found:
                return False
            found = found[name]
        return self.matches(found, value)

    # Of schemas.

    def all_of(self, rule: JSON, value: JSON, schema: JSONObject) -> bool:
        return type(rule) is list and self._all([(each, value) for each in rule])

    def any_of(self, rule: JSON, value: JSON, schema: JSONObject) -> bool:
        if type(rule) is not list:
            return False
        certain, undecided = self._branches(rule, value)
        if not (certain or undecided):
            raise _Broken("anyOf")
        return certain > 0

    def one_of(self, rule: JSON, value: JSON, schema: JSONObject) -> bool:
        if type(rule) is not list:
            return False
        certain, undecided = self._branches(rule, value)
        if certain > 1 or not (certain or undecided):
            raise _Broken("oneOf")
        return not undecided

    def not_(self, rule: JSON, value: JSON, schema: JSONObject) -> bool:
        certain, undecided = self._branches([rule], value)
        if certain:
            raise _Broken("not")
        return not undecided

    def _branches(self, schemas: list[JSON], value: JSON) -> tuple[int, int]:
        """Return how many of the schemas match, and for how many that is open."""
        certain = undecided = 0
        for schema in schemas:
            try:
                matched = self.matches(schema, value)
            except _Broken:
                continue
            certain, undecided = certain + matched, undecided + (not matched)
        return certain, undecided

    # Of objects.

    def properties(self, rule: JSON, value: JSON, schema: JSONObject) -> bool:
        if type(value) is not dict or type(rule) is not dict:
            return type(value) is not dict
        self.spend(len(value))
        return self._all([(rule[name], member) for name, member in value.items() if name in rule])

    def additional_properties(self, rule: JSON, value: JSON, schema: JSONObject) -> bool:
        if type(value) is not dict:
            return True
        named = schema.get("properties", {})
        if type(named) is not dict or "patternProperties" in schema:
            return rule is True
        self.spend(len(value))
        remaining = [member for name, member in value.items() if name not in named]
        if remaining and rule is False:
            raise _Broken("additionalProperties")
        return self._all([(rule, member) for member in remaining])

    def required(self, rule: JSON, value: JSON, schema: JSONObject) -> bool:
        if type(value) is not dict or type(rule) is not list:
            return type(value) is not dict
        self.spend(len(rule))
        if any(type(name) is str and name not in value for name in rule):
            raise _Broken("required")
        return True

    # Of arrays.

    def items(self, rule: JSON, value: JSON, schema: JSONObject) -> bool:
        if type(value) is not list:
            return True
        before = schema.get("prefixItems", [])
        if type(rule) is list or type(before) is not list:
            return False  # prefixItems, in the form of drafts before 2020-12
        remaining = value[len(before) :]
        if remaining and rule is False:
            raise _Broken("items")
        return self._all([(rule, item) for item in remaining])

    def prefix_items(self, rule: JSON, value: JSON, schema: JSONObject) -> bool:
        if type(value) is not list or type(rule) is not list:
            return type(value) is not list
        return self._all(list(zip(rule, value, strict=False)))

    def unique_items(self, rule: JSON, value: JSON, schema: JSONObject) -> bool:
        if type(value) is list and rule is True and len({self._key(item) for item in value}) < len(value):
            raise _Broken("uniqueItems")
        return True

    # Of numbers.

    def multiple_of(self, rule: JSON, value: JSON, schema: JSONObject) -> bool:
        if type(value) not in _NUMBERS:
            return True
        if type(rule) is not int or rule <= 0 or not _is_integer(value):
            return False  # quotients of fractions are not exact
        if int(value) % rule:
            raise _Broken("multipleOf")
        return True


def _is_integer(value: JSON) -> bool:
    return type(value) is int or (type(value) is float and value.is_integer())


_TYPES: Final[dict[str, Callable[[JSON], bool]]] = {
    "array": lambda value: type(value) is list,
    "boolean": lambda value: type(value) is bool,
    "integer": _is_integer,
    "null": lambda value: value is None,
    "number": lambda value: type(value) in _NUMBERS,
    "object": lambda value: type(value) is dict,
    "string": lambda value: type(value) is str,
}

_Check = Callable[[_SchemaWalk, JSON, JSON, JSONObject], bool]


def _bound(
    keyword: str, kinds: tuple[type, ...], holds: Callable[[JSON, JSON], bool], size: bool = True
) -> _Check:
    """Return the check of a bound on a value's size, or on the number itself."""

    def check(walk: _SchemaWalk, rule: JSON, value: JSON, schema: JSONObject) -> bool:
        if type(value) not in kinds:
            return True
        if type(rule) not in _NUMBERS:
            return False
        if not holds(len(value) if size else value, rule):
            raise _Broken(keyword)
        return True

    return check


_STRING, _LIST, _OBJECT = (str,), (list,), (dict,)
_KEYWORD_CHECKS: Final[dict[str, _Check]] = {
    "$ref": _SchemaWalk.reference,
    "additionalProperties": _SchemaWalk.additional_properties,
    "allOf": _SchemaWalk.all_of,
    "anyOf": _SchemaWalk.any_of,
    "const": _SchemaWalk.const,
    "enum": _SchemaWalk.enum,
    "exclusiveMaximum": _bound("exclusiveMaximum", _NUMBERS, lambda have, most: have < most, size=False),
    "exclusiveMinimum": _bound("exclusiveMinimum", _NUMBERS, lambda have, least: have > least, size=False),
    "items": _SchemaWalk.items,
    "maxItems": _bound("maxItems", _LIST, lambda have, most: have <= most),
    "maxLength": _bound("maxLength", _STRING, lambda have, most: have <= most),
    "maxProperties": _bound("maxProperties", _OBJECT, lambda have, most: have <= most),
    "maximum": _bound("maximum", _NUMBERS, lambda have, most: have <= most, size=False),
    "minItems": _bound("minItems", _LIST, lambda have, least: have >= least),
    "minLength": _bound("minLength", _STRING, lambda have, least: have >= least),
    "minProperties": _bound("minProperties", _OBJECT, lambda have, least: have >= least),
    "minimum": _bound("minimum", _NUMBERS, lambda have, least: have >= least, size=False),
    "multipleOf": _SchemaWalk.multiple_of,
    "not": _SchemaWalk.not_,
    "oneOf": _SchemaWalk.one_of,
    "prefixItems": _SchemaWalk.prefix_items,
    "properties": _SchemaWalk.properties,
    "required": _SchemaWalk.required,
    "type": _SchemaWalk.types,
    "uniqueItems": _SchemaWalk.unique_items,
}
# Keywords that are not checked, and the only type of value that they apply to, None for any.
_UNCHECKED: Final[dict[str, type | None]] = {
    "$dynamicRef": None,
    "$recursiveRef": None,
    "contains": list,
    "dependencies": dict,
    "dependentRequired": dict,
    "dependentSchemas": dict,
    "if": None,
    "pattern": str,
    "patternProperties": dict,
    "propertyNames": dict,
    "unevaluatedItems": list,
    "unevaluatedProperties": dict,
}


# OpenAI's strict subset

# "'default' is not permitted" (567-labs/instructor#1074, read 2026-11-22): keywords outside of the subset, and
# compositions other than anyOf.
_NOT_STRICT = frozenset(
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
# A schema must have a type, also beside `enum` and `const`, unless it refers to other schemas.
_TYPE_KEYS = ("type", "anyOf", "$ref")
_STRICT_MAPS = ("properties", "$defs", "definitions")
# The second is accepted, but not enforced.
_STRICT_LISTS = ("anyOf", "prefixItems")


def is_strict(schema: JSON) -> bool:
    """True if OpenAI accepts a schema as strict, for tools and for structured output alike.

    A strict schema outside of its subset costs the whole request, and leaving `strict` out costs a guarantee. The root
    must be an object and not `anyOf`, all properties must be required, and `additionalProperties` must be false
    (developers.openai.com/api/docs/guides/structured-outputs, read 2026-11-22).
    """
    if type(schema) is not dict or schema.get("type") != "object" or "anyOf" in schema:
        return False
    remaining: list[JSON] = [schema]
    while remaining:
        each = remaining.pop()
        if type(each) is not dict or not _qualifies(each):
            return False
        for key in _STRICT_MAPS:
            inner = each.get(key, {})
            if type(inner) is not dict:
                return False
            remaining += inner.values()
        for key in _STRICT_LISTS:
            inner = each.get(key, [])
            if type(inner) is not list:
                return False
            remaining += inner
        if "items" in each:
            remaining.append(each["items"])
    return True


def _qualifies(schema: JSONObject) -> bool:
    """Check the rules for one schema, without the schemas in it."""
    if not _NOT_STRICT.isdisjoint(schema) or not any(key in schema for key in _TYPE_KEYS):
        return False
    kind = schema.get("type")
    kinds = kind if type(kind) is list else [kind]
    if "array" in kinds and "items" not in schema:
        return False  # "array schema missing items" (sigoden/aichat#1049, read 2026-11-22)
    if "object" not in kinds:
        return "properties" not in schema
    properties, required = schema.get("properties", {}), schema.get("required", [])
    if type(properties) is not dict or type(required) is not list:
        return False
    # "'required' is required to be supplied and to be an array including every key in properties"
    # (ash-project/ash_ai#155), "Extra required key 'recipe' supplied" (dotnet/extensions#6302, both read 2026-11-22).
    names = {name for name in required if type(name) is str}
    return schema.get("additionalProperties") is False and properties.keys() == names
