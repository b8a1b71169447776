"""Validation of values by a JSON Schema: a table of keywords, undecided cases, and the bounds."""

from typing import Any

import pytest

from dragoman._wire.json_schema import SchemaUndecided, find_broken_keyword, inline_references

OPEN = "open"
TREE = {
    "type": "object",
    "properties": {"value": {"type": "integer"}, "next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}},
    "required": ["value", "next"],
    "additionalProperties": False,
}
CITY = {"$defs": {"a/b": {"type": "string"}}, "properties": {"city": {"$ref": "#/$defs/a~1b"}}}
PATTERN = {"pattern": "^(a+)+$"}

# schema, value, the keyword that it breaks (None: none, OPEN: that cannot be decided)
CASES: list[tuple[Any, Any, str | None]] = [
    (True, 1, None),
    (False, 1, "false"),
    ({}, {"a": [None]}, None),
    ({"title": "T", "description": "d", "format": "date", "$schema": "s", "x": 1}, "no date", None),
    ("no schema", 1, OPEN),
    # type
    ({"type": "string"}, "a", None),
    ({"type": "string"}, 1, "type"),
    ({"type": ["string", "null"]}, None, None),
    ({"type": ["string", "null"]}, 0, "type"),
    ({"type": "integer"}, 1.0, None),
    ({"type": "integer"}, 1.5, "type"),
    ({"type": "integer"}, True, "type"),
    ({"type": "number"}, False, "type"),
    ({"type": "number"}, 1.5, None),
    ({"type": "boolean"}, False, None),
    ({"type": "boolean"}, 0, "type"),
    ({"type": "array"}, [], None),
    ({"type": "object"}, [], "type"),
    ({"type": "odd"}, [], OPEN),
    # enum, const
    ({"enum": ["a", None, {"b": [1]}]}, {"b": [1.0]}, None),
    ({"enum": ["a", 1]}, True, "enum"),
    ({"enum": "a"}, "a", OPEN),
    ({"const": [False]}, [False], None),
    ({"const": [False]}, [0], "const"),
    # objects
    (TREE, {"value": 1, "next": {"value": 2, "next": None}}, None),
    (TREE, {"value": 1, "next": {"value": "2", "next": None}}, "anyOf"),
    (TREE, {"value": 1}, "required"),
    (TREE, {"value": 1, "next": None, "more": 1}, "additionalProperties"),
    ({"properties": {"a": {"type": "string"}}}, {"b": 1}, None),
    ({"properties": {"a": {"type": "string"}}}, ["a"], None),
    ({"properties": []}, {"a": 1}, OPEN),
    ({"required": ["a"]}, "no object", None),
    ({"required": "a"}, {}, OPEN),
    ({"additionalProperties": {"type": "string"}}, {"a": "b"}, None),
    ({"additionalProperties": {"type": "string"}}, {"a": 1}, "type"),
    ({"additionalProperties": False}, [1], None),
    ({"additionalProperties": False, "patternProperties": {"^x": True}}, {"x": 1}, OPEN),
    ({"additionalProperties": False, "properties": 1}, {}, OPEN),
    ({"minProperties": 1}, {}, "minProperties"),
    ({"maxProperties": 1}, {"a": 1}, None),
    ({"maxProperties": 1}, {"a": 1, "b": 2}, "maxProperties"),
    # arrays
    ({"items": {"type": "string"}}, ["a", "b"], None),
    ({"items": {"type": "string"}}, ["a", 1], "type"),
    ({"items": False}, "no array", None),
    ({"items": [{"type": "string"}]}, [1], OPEN),
    ({"prefixItems": [{"type": "string"}], "items": False}, ["a"], None),
    ({"prefixItems": [{"type": "string"}], "items": False}, ["a", "b"], "items"),
    ({"prefixItems": [{"type": "string"}]}, [1], "type"),
    ({"prefixItems": 1}, [1], OPEN),
    ({"prefixItems": 1}, "no array", None),
    ({"minItems": 1}, [], "minItems"),
    ({"maxItems": 1}, [1, 2], "maxItems"),
    ({"uniqueItems": True}, [1, True, "1"], None),
    ({"uniqueItems": True}, [{"a": 1}, {"a": 1.0}], "uniqueItems"),
    ({"uniqueItems": False}, [1, 1], None),
    # strings and numbers
    ({"minLength": 2}, "é", "minLength"),
    ({"maxLength": 1}, "ab", "maxLength"),
    ({"maxLength": 1}, ["a", "b"], None),
    ({"minimum": 1}, 1, None),
    ({"minimum": 1}, 0.5, "minimum"),
    ({"maximum": 1}, 2, "maximum"),
    ({"exclusiveMinimum": 1}, 1, "exclusiveMinimum"),
    ({"exclusiveMaximum": 1}, 1, "exclusiveMaximum"),
    ({"minimum": 0, "exclusiveMinimum": True}, 0, OPEN),  # as draft 4 has it
    ({"minimum": 1}, "a", None),
    ({"multipleOf": 3}, 9, None),
    ({"multipleOf": 3}, 10.0, "multipleOf"),
    ({"multipleOf": 0.1}, 0.3, OPEN),
    ({"multipleOf": 3}, 1.5, OPEN),
    ({"multipleOf": 0}, 3, OPEN),
    ({"multipleOf": 3}, "a", None),
    # of schemas
    ({"allOf": [{"type": "string"}, {"minLength": 2}]}, "a", "minLength"),
    ({"allOf": 1}, "a", OPEN),
    ({"anyOf": [{"type": "string"}, {"type": "null"}]}, None, None),
    ({"anyOf": [{"type": "string"}, {"type": "null"}]}, 1, "anyOf"),
    ({"anyOf": [PATTERN, {"type": "string"}]}, "a", None),
    ({"anyOf": [PATTERN, {"type": "null"}]}, "a", OPEN),
    ({"anyOf": 1}, 1, OPEN),
    ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, 1.5, None),
    ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, 1, "oneOf"),
    ({"oneOf": [{"type": "integer"}]}, "a", "oneOf"),
    ({"oneOf": [PATTERN, {"type": "string"}]}, "a", OPEN),
    ({"oneOf": 1}, 1, OPEN),
    ({"not": {"type": "string"}}, 1, None),
    ({"not": {"type": "string"}}, "a", "not"),
    ({"not": PATTERN}, "a", OPEN),
    # references
    (CITY, {"city": "Oslo"}, None),
    (CITY, {"city": 1}, "type"),
    ({"$ref": "#/$defs/none"}, 1, OPEN),
    ({"$ref": "#/$defs/a%20b", "$defs": {"a%20b": {"type": "string"}}}, 1, OPEN),
    ({"$ref": "x/$defs/a", "$defs": {"a": {"type": "string"}}}, 1, OPEN),
    ({"$ref": "https://example.com/schema"}, 1, OPEN),
    ({"properties": {"a": {"$id": "https://example.com/", "type": "string"}}}, {"a": 1}, OPEN),
    ({"$id": "https://example.com/", "type": "string"}, 1, "type"),
    # An undecided keyword is ignored for values of other types, and hides no violation elsewhere.
    (PATTERN, "a" * 60 + "!", OPEN),
    (PATTERN, 1, None),
    ({"if": {"type": "string"}, "then": False}, "a", OPEN),
    ({"properties": {"a": PATTERN, "b": {"type": "string"}}}, {"a": "a", "b": 1}, "type"),
    ({"items": {"anyOf": [PATTERN, {"type": "null"}]}, "maxItems": 1}, ["a", "b"], "maxItems"),
]


def test_keywords(subtests: pytest.Subtests) -> None:
    for schema, value, keyword in CASES:
        with subtests.test(schema=schema):
            if keyword is OPEN:
                with pytest.raises(SchemaUndecided, match="keywords that are not checked"):
                    find_broken_keyword(schema, value)
            else:
                assert find_broken_keyword(schema, value) == keyword


def doubled(times: int) -> Any:
    """Return a schema that checks the same value 2 ** times."""
    names = {
        f"a{n}": {"allOf": [{"$ref": f"#/$defs/a{n - 1}"}] * 2} if n else {"type": "object"}
        for n in range(times + 1)
    }
    return {"$defs": names, "$ref": f"#/$defs/a{times}"}


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


BOUNDS: list[tuple[Any, Any, str | None]] = [
    (doubled(40), {}, "too long"),
    ({"items": {"enum": list(range(1000))}}, [-1.5] * 1000, None),  # the first one settles it
    ({"items": {"enum": [*range(1000), -1]}}, [-1] * 1000, "too long"),
    ({"items": {"required": ["a"] * 1000}}, [{"a": 1}] * 1000, "too long"),
    ({"items": {f"x{n}": n for n in range(1000)}}, [1] * 1000, "too long"),
    ({"items": {"$ref": "#" + "/a" * 1000}}, [1] * 1000, "too long"),
    ({"$ref": "#"}, {}, "nested too deep"),
    ({"items": {"$ref": "#"}}, nested(100_000), "nested too deep"),
    ({"const": nested(100_000)}, 1, "nested too deep"),
]


def test_bounds(subtests: pytest.Subtests) -> None:
    for schema, value, why in BOUNDS:
        with subtests.test(schema=schema):
            if why is None:
                assert find_broken_keyword(schema, value) == "enum"
            else:
                with pytest.raises(SchemaUndecided, match=why):
                    find_broken_keyword(schema, value)


# Schemas without references.

REF_A: Any = {"$ref": "#/$defs/a"}
A: Any = {"type": "string"}
INLINED: list[tuple[Any, Any, list[str]]] = [
    ({"anyOf": [REF_A, REF_A], "$defs": {"a": A}}, {"anyOf": [A, A]}, []),
    ({"not": {**REF_A, "title": "A"}, "$defs": {"a": A}}, {"not": {**A, "title": "A"}}, []),
    # A property may be called so.
    ({"properties": {"$ref": REF_A, "$defs": A}, "$defs": {"a": A}}, {"properties": {"$ref": A, "$defs": A}}, []),
    ({"items": REF_A, "$defs": {"a": {"items": REF_A}}}, {"items": {"items": {"type": "object"}}}, ["/x/items/items"]),
    ({"items": {"$ref": "https://a"}}, {"items": {"type": "object"}}, ["/x/items"]),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "expected", "places"), INLINED)
def test_definitions_in_the_place_of_references(schema: Any, expected: Any, places: list[str]) -> None:
    altered: list[str] = []
    assert inline_references(schema, "/x", lambda place, _: altered.append(place)) == expected
    assert altered == places


def test_definitions_have_a_limit_together() -> None:
    """Four times the schema: the next one that is larger than what is left is replaced."""
    long = {"description": "x" * 1000}
    schema: Any = {"anyOf": [REF_A] * 9, "$defs": {"a": long}}
    altered: list[str] = []
    found: Any = inline_references(schema, "", lambda place, _: altered.append(place))
    assert [found["anyOf"].count(each) for each in (long, {"type": "object"})] == [4, 5]
    assert altered == [f"/anyOf/{index}" for index in range(4, 9)]


def test_a_schema_without_references_stays_what_it_is() -> None:
    for schema in (TREE["properties"]["value"], A, None, True):  # type: ignore[index]
        assert inline_references(schema, "", lambda place, text: None) is schema
