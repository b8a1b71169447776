"""Values made from JSON schemas."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman_server.simulator.example import example, example_text

CASES: list[tuple[str, Any, Any]] = [
    ("constant", {"const": 7, "enum": [1]}, 7),
    ("default", {"type": "string", "default": "d"}, "d"),
    ("first of enum", {"enum": ["b", "a"]}, "b"),
    ("first example", {"type": "integer", "examples": [41]}, 41),
    ("string", {"type": "string"}, "some value"),
    ("date", {"type": "string", "format": "date"}, "2026-01-31"),
    ("unknown format", {"type": "string", "format": "x"}, "some value"),
    ("short string", {"type": "string", "maxLength": 3}, "som"),
    ("long string", {"type": "string", "minLength": 12}, "some value.."),
    ("boolean", {"type": "boolean"}, True),
    ("null", {"type": "null"}, None),
    ("nullable", {"type": ["null", "integer"]}, 1),
    ("integer", {"type": "integer"}, 1),
    ("at least", {"type": "integer", "minimum": 2.5}, 3),
    ("more than", {"type": "integer", "exclusiveMinimum": 4}, 5),
    ("at most", {"type": "number", "maximum": 0.25}, 0.25),
    ("less than", {"type": "integer", "exclusiveMaximum": 1}, 0),
    ("multiple", {"type": "integer", "minimum": 8, "multipleOf": 5}, 10),
    ("array", {"type": "array", "items": {"type": "integer"}}, [1]),
    ("array of three", {"items": {"type": "boolean"}, "minItems": 3}, [True, True, True]),
    ("tuple", {"type": "array", "prefixItems": [{"const": 1}, {"const": 2}]}, [1, 2]),
    ("empty array", {"type": "array", "maxItems": 0}, []),
    ("required properties", {"properties": {"a": {"type": "integer"}, "b": {}}, "required": ["a"]}, {"a": 1}),
    ("all properties where none is named", {"properties": {"a": {"type": "string"}}}, {"a": "some a"}),
    ("no property", {"type": "object", "properties": {"a": {}}, "required": []}, {}),
    ("required but not described", {"type": "object", "required": ["x"]}, {"x": "some x"}),
    ("first alternative", {"anyOf": [{"type": "null"}, {"type": "integer"}]}, 1),
    ("only null", {"oneOf": [{"type": "null"}]}, None),
    (
        "all of",
        {
            "$defs": {"base": {"type": "object", "properties": {"a": {"const": 1}}, "required": ["a"]}},
            "allOf": [{"$ref": "#/$defs/base"}, {"properties": {"b": {"const": 2}}, "required": ["b"]}],
        },
        {"a": 1, "b": 2},
    ),
    ("all of plain types", {"allOf": [{"type": "integer"}, {"minimum": 3}]}, 3),
    ("reference", {"$ref": "#/$defs/a~1b", "$defs": {"a/b": {"const": "found"}}}, "found"),
    ("reference to nothing", {"$ref": "#/$defs/none"}, "some value"),
    ("anything", True, "some value"),
]  # fmt: skip


def test_an_example_fits_its_schema() -> None:
    for name, schema, value in CASES:
        made = example(schema)
        assert made == value, name
        assert type(made) is type(value), name


def test_a_schema_that_refers_to_itself_gives_a_finite_value() -> None:
    node = {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]},
            "children": {"type": "array", "items": {"$ref": "#"}},
            "sibling": {"type": ["object", "null"], "properties": {}},
        },
        "required": ["name", "next", "children", "sibling"],
    }
    text = example_text(node)
    assert json.loads(text)["next"]["name"] == "some name"
    assert len(text) < 10_000


def test_a_schema_whose_required_part_is_itself_ends() -> None:
    assert example_text({"type": "object", "properties": {"self": {"$ref": "#"}}, "required": ["self"]})


@pytest.mark.parametrize("schema", [None, {"type": "array", "items": {}}, {}])
def test_tool_arguments_are_always_an_object(schema: Any) -> None:
    assert example_text(schema) == "{}"


GREEDY: list[tuple[str, Any]] = [
    ("two of itself", {"properties": {"a": {"$ref": "#"}, "b": {"$ref": "#"}}, "required": ["a", "b"]}),
    ("arrays in arrays", {"items": {"items": {"items": {}, "minItems": 999}, "minItems": 999}, "minItems": 999}),
    ("a long text", {"type": "string", "minLength": 10**12}),
    ("many long texts", {"items": {"type": "string", "minLength": 10**5}, "minItems": 10**9}),
    ("many constants", {"items": {"const": "x" * 10**5}, "minItems": 10**9}),
    ("tiny steps", {"type": "number", "multipleOf": 5e-324}),
    ("bounds beyond floats", {"type": "integer", "minimum": 10**400, "maximum": -(10**400)}),
]  # fmt: skip


def test_an_example_has_a_bounded_size() -> None:
    for name, schema in GREEDY:
        assert len(json.dumps(example(schema))) < 1_000_000, name


NAMES = st.sampled_from(
    [
        "type",
        "properties",
        "required",
        "items",
        "allOf",
        "anyOf",
        "oneOf",
        "$ref",
        "$defs",
        "enum",
        "const",
        "minItems",
        "maxItems",
        "minLength",
        "maxLength",
        "minimum",
        "maximum",
        "multipleOf",
        "exclusiveMinimum",
        "exclusiveMaximum",
        "prefixItems",
        "format",
    ]
)
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 10**6),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(["#", "#/$defs", "object", "array", "string", "integer", "number", "null", "boolean", "date"]),
)  # fmt: skip
SCHEMAS = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=5),
    max_leaves=25,
)


@given(SCHEMAS)
def test_every_schema_has_an_example(schema: Any) -> None:
    json.dumps(example(schema))
