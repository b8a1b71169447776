"""Check values against a JSON Schema, and schemas against the subset that OpenAI accepts as strict.

Both walk over the schema. A schema comes with the request, so from outside: find_broken_keyword() counts its steps and
gives up beyond a bound, and runs no regular expression. A keyword that is not checked leaves the result open; only a
certain breach is reported. Other members are annotations: "A JSON Schema MAY contain properties which are not schema
keywords. Unknown keywords SHOULD be ignored." (JSON Schema draft-07, 4.3.1)
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Final

import msgspec

from dragoman._wire.exceptions import child
from dragoman._wire.json import JSON, JSONObject, encode

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


def referenced(root: JSON, reference: str) -> JSON:
    """Return the definition that a reference names, or None if it is an anchor or points outside this schema."""
    found = root
    for step in reference[2:].split("/"):
        found = found.get(step.replace("~1", "/").replace("~0", "~")) if type(found) is dict else None
    return found if reference.startswith("#/") and "%" not in reference else None


# Definitions take so many times the space of the whole schema, where they are in the place of their references.
_GROWTH = 4


def inline_references(schema: JSON, path: str, altered: Callable[[str, str], None]) -> JSON:
    """Return the schema at a path with definitions in the place of references, for servers that follow none.

    altered: is called with place and text for each reference that is replaced by any object.
    """
    text = encode(schema)
    if type(schema) is not dict or b'"$ref"' not in text:
        return schema
    around: set[str] = set()
    left = len(text) * _GROWTH

    def walk(part: JSON, at: str) -> JSON:
        nonlocal left
        if type(part) is list:
            return [walk(each, f"{at}/{index}") for index, each in enumerate(part)]
        if type(part) is not dict:
            return part
        reference = part.get("$ref")
        if type(reference) is not str:
            return {key: walk(value, child(at, key)) for key, value in part.items()}
        found = referenced(schema, reference) if left >= 0 else None
        left -= len(encode(found))
        if type(found) is not dict or reference in around or left < 0:
            altered(at, f"without what {reference} refers to, which is recursive or unknown")
            return {"type": "object"}
        around.add(reference)
        whole = walk({**found, **{key: value for key, value in part.items() if key != "$ref"}}, at)
        around.discard(reference)
        return whole

    return walk({key: value for key, value in schema.items() if key not in ("$defs", "definitions")}, path)


class _SchemaWalk:
    """Checks a value.

    matches() returns True for a match and False if that is undecided. The methods of keywords return True for a match,
    False for a breach and None if that is undecided.
    """

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
            return False  # no schema; one with its own base for the references in it
        self.spend(1 + len(schema))
        certain = True
        for name, rule in schema.items():
            keyword = _KEYWORDS.get(name)
            if keyword is None or (keyword.values and type(value) not in keyword.values):
                continue
            if keyword.check is None or (keyword.rules and type(rule) not in keyword.rules):
                certain = False
                continue
            holds = keyword.check(self, rule, value, schema)
            if holds is False:
                raise _Broken(name)
            certain = certain and holds is True
        return certain

    def _all(self, pairs: list[tuple[JSON, JSON]]) -> bool | None:
        """True if each schema matches its value. All are checked, because a breach after an open one is a breach."""
        certain = True
        for schema, value in pairs:
            certain = self.matches(schema, value) and certain
        return certain or None

    # Rules for any value.

    def types(self, rule: JSON, value: JSON, schema: JSONObject) -> bool | None:
        names = rule if type(rule) is list else [rule]
        self.spend(len(names))
        if not all(type(name) is str and name in _TYPES for name in names):
            return None
        return any(_TYPES[name](value) for name in names)

    def enum(self, rule: JSON, value: JSON, schema: JSONObject) -> bool | None:
        key = self._key(value)
        return any(self._key(each) == key for each in rule)

    def const(self, rule: JSON, value: JSON, schema: JSONObject) -> bool | None:
        return self._key(rule) == self._key(value)

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

    def reference(self, rule: JSON, value: JSON, schema: JSONObject) -> bool | None:
        self.spend(rule.count("/"))
        found = self._root if rule == "#" else referenced(self._root, rule)
        return self.matches(found, value) or None

    # Rules that combine schemas.

    def all_of(self, rule: JSON, value: JSON, schema: JSONObject) -> bool | None:
        return self._all([(each, value) for each in rule])

    def any_of(self, rule: JSON, value: JSON, schema: JSONObject) -> bool | None:
        certain, undecided = self._branches(rule, value)
        return True if certain else None if undecided else False

    def one_of(self, rule: JSON, value: JSON, schema: JSONObject) -> bool | None:
        certain, undecided = self._branches(rule, value)
        if certain > 1:
            return False
        return None if undecided else certain == 1

    def not_(self, rule: JSON, value: JSON, schema: JSONObject) -> bool | None:
        certain, undecided = self._branches([rule], value)
        return None if undecided else not certain

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

    # Rules for objects.

    def properties(self, rule: JSON, value: JSON, schema: JSONObject) -> bool | None:
        self.spend(len(value))
        return self._all([(rule[name], member) for name, member in value.items() if name in rule])

    def additional_properties(self, rule: JSON, value: JSON, schema: JSONObject) -> bool | None:
        named = schema.get("properties", {})
        if type(named) is not dict or "patternProperties" in schema:
            return rule is True or None
        self.spend(len(value))
        return self._remaining(rule, [member for name, member in value.items() if name not in named])

    def required(self, rule: JSON, value: JSON, schema: JSONObject) -> bool | None:
        self.spend(len(rule))
        return not any(type(name) is str and name not in value for name in rule)

    # Rules for arrays.

    def items(self, rule: JSON, value: JSON, schema: JSONObject) -> bool | None:
        before = schema.get("prefixItems", [])
        if type(rule) is list or type(before) is not list:
            return None  # prefixItems, in the form of drafts before 2020-12
        return self._remaining(rule, value[len(before) :])

    def prefix_items(self, rule: JSON, value: JSON, schema: JSONObject) -> bool | None:
        return self._all(list(zip(rule, value, strict=False)))

    def unique_items(self, rule: JSON, value: JSON, schema: JSONObject) -> bool | None:
        return rule is not True or len({self._key(item) for item in value}) == len(value)

    def _remaining(self, rule: JSON, values: list[JSON]) -> bool | None:
        """Check members or items that no other keyword has a schema for."""
        if values and rule is False:
            return False
        return self._all([(rule, value) for value in values])

    # Rules for numbers.

    def multiple_of(self, rule: JSON, value: JSON, schema: JSONObject) -> bool | None:
        if rule <= 0 or not _is_integer(value):
            return None  # quotients of fractions are not exact
        remainder: int = int(value) % rule
        return remainder == 0


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


class _Keyword(msgspec.Struct, frozen=True):
    """One keyword.

    Attributes:
        check: Checks a value, None if that is not done.
        rules: The types that the keyword itself may have, () for all. With another the result is open.
        values: The only types of values that it applies to, () for all.
    """

    check: Callable[[_SchemaWalk, JSON, JSON, JSONObject], bool | None] | None = None
    rules: tuple[type, ...] = ()
    values: tuple[type, ...] = ()


def _bound(values: tuple[type, ...], holds: Callable[[JSON, JSON], bool]) -> _Keyword:
    """Return a bound on the size of values, or on the number itself. holds: compares it with the bound."""
    if values is _NUMBERS:
        return _Keyword(lambda walk, rule, value, schema: holds(value, rule), _NUMBERS, values)
    return _Keyword(lambda walk, rule, value, schema: holds(len(value), rule), _NUMBERS, values)


_STRING, _LIST, _OBJECT = (str,), (list,), (dict,)
_KEYWORDS: Final[dict[str, _Keyword]] = {
    "$dynamicRef": _Keyword(),
    "$recursiveRef": _Keyword(),
    "$ref": _Keyword(_SchemaWalk.reference, _STRING),
    "additionalProperties": _Keyword(_SchemaWalk.additional_properties, values=_OBJECT),
    "allOf": _Keyword(_SchemaWalk.all_of, _LIST),
    "anyOf": _Keyword(_SchemaWalk.any_of, _LIST),
    "const": _Keyword(_SchemaWalk.const),
    "contains": _Keyword(values=_LIST),
    "dependencies": _Keyword(values=_OBJECT),
    "dependentRequired": _Keyword(values=_OBJECT),
    "dependentSchemas": _Keyword(values=_OBJECT),
    "enum": _Keyword(_SchemaWalk.enum, _LIST),
    "exclusiveMaximum": _bound(_NUMBERS, operator.lt),
    "exclusiveMinimum": _bound(_NUMBERS, operator.gt),
    "if": _Keyword(),
    "items": _Keyword(_SchemaWalk.items, values=_LIST),
    "maxItems": _bound(_LIST, operator.le),
    "maxLength": _bound(_STRING, operator.le),
    "maxProperties": _bound(_OBJECT, operator.le),
    "maximum": _bound(_NUMBERS, operator.le),
    "minItems": _bound(_LIST, operator.ge),
    "minLength": _bound(_STRING, operator.ge),
    "minProperties": _bound(_OBJECT, operator.ge),
    "minimum": _bound(_NUMBERS, operator.ge),
    "multipleOf": _Keyword(_SchemaWalk.multiple_of, (int,), _NUMBERS),
    "not": _Keyword(_SchemaWalk.not_),
    "oneOf": _Keyword(_SchemaWalk.one_of, _LIST),
    "pattern": _Keyword(values=_STRING),
    "patternProperties": _Keyword(values=_OBJECT),
    "prefixItems": _Keyword(_SchemaWalk.prefix_items, _LIST, _LIST),
    "properties": _Keyword(_SchemaWalk.properties, _OBJECT, _OBJECT),
    "propertyNames": _Keyword(values=_OBJECT),
    "required": _Keyword(_SchemaWalk.required, _LIST, _OBJECT),
    "type": _Keyword(_SchemaWalk.types),
    "unevaluatedItems": _Keyword(values=_LIST),
    "unevaluatedProperties": _Keyword(values=_OBJECT),
    "uniqueItems": _Keyword(_SchemaWalk.unique_items, values=_LIST),
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
# A schema must have a type, also next to `enum` and `const`, unless it refers to other schemas.
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
    if lacks_items(schema):
        return False
    if "object" not in _kinds(schema):
        return "properties" not in schema
    properties, required = schema.get("properties", {}), schema.get("required", [])
    if type(properties) is not dict or type(required) is not list:
        return False
    # "'required' is required to be supplied and to be an array including every key in properties"
    # (ash-project/ash_ai#155), "Extra required key 'recipe' supplied" (dotnet/extensions#6302, both read 2026-11-22).
    names = {name for name in required if type(name) is str}
    return schema.get("additionalProperties") is False and properties.keys() == names


def lacks_items(schema: JSONObject) -> bool:
    """True for a schema of arrays that does not say of what.

    "array schema missing items" (sigoden/aichat#1049, read 2026-11-22)
    """
    return "array" in _kinds(schema) and "items" not in schema


def _kinds(schema: JSONObject) -> list[JSON]:
    kind = schema.get("type")
    return kind if type(kind) is list else [kind]
