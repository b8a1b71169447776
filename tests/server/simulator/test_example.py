"""Values made from JSON schemas."""

import json
from pathlib import Path
from typing import Any

import pytest
import rows
from hypothesis import given
from hypothesis import strategies as st

from dragoman_server.simulator.example import example, example_text


def test_an_example_fits_its_schema() -> None:
    rows.check(
        Path(__file__).with_name("examples.txt"), lambda lines: [json.dumps(example(json.loads(lines[0])))]
    )


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
