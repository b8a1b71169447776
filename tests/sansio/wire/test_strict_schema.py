"""Which schemas OpenAI takes as strict."""

from typing import Any

import pytest

from dragoman._wire.json_schema import is_strict

STRING = {"type": "string"}


def closed(**properties: Any) -> dict[str, Any]:
    """An object as strict schemas have them."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


CLOSED_SCHEMAS: list[Any] = [
    closed(),
    closed(a=STRING, b={"type": ["string", "null"]}, c={"type": "integer", "enum": [1, 2]}),
    closed(a=closed(b={"type": "array", "items": closed(c=STRING), "minItems": 1})),
    closed(a={"anyOf": [STRING, closed(b=STRING)]}),
    closed(a={"type": "array", "prefixItems": [STRING], "items": STRING}),
    {**closed(a={"$ref": "#/$defs/x"}), "$defs": {"x": closed(y=STRING)}},
    {**closed(a={"$ref": "#/definitions/x"}), "definitions": {"x": STRING}},
    # What a property is called is no keyword.
    closed(**{"not": STRING, "default": STRING, "anyOf": STRING}),
    {"type": "object", "additionalProperties": False},
]


def test_closed_schemas_qualify(subtests: pytest.Subtests) -> None:
    for schema in CLOSED_SCHEMAS:
        with subtests.test(schema=schema):
            assert is_strict(schema)


OPEN_SCHEMAS: list[Any] = [
    None,
    True,
    [],
    {},
    STRING,
    {"type": "object"},
    {**closed(a=STRING), "anyOf": [closed()]},
    {**closed(a=STRING), "required": []},
    # a required name that no property has
    {**closed(a=STRING), "required": ["a", "b"]},
    {**closed(a=STRING), "additionalProperties": True},
    {**closed(a=STRING), "required": "a"},
    {**closed(), "properties": []},
    {**closed(), "$defs": []},
    closed(a={}),
    closed(a=True),
    # an enum without a type
    closed(a={"enum": ["x"]}),
    closed(a={"const": 1}),
    closed(a={"properties": {}, "anyOf": [STRING]}),
    closed(a={"type": ["object", "null"]}),
    closed(a={"type": ["array", "null"]}),
    closed(a={"type": "array", "items": {"type": "object"}}),
    closed(a={"type": "array", "items": [STRING]}),
    # an array without items
    closed(a={"type": "array", "prefixItems": [STRING]}),
    closed(a={"type": "array", "prefixItems": [{}], "items": STRING}),
    closed(a={"anyOf": [{"type": "object"}]}),
    closed(a={"anyOf": STRING}),
    closed(a={"oneOf": [STRING]}),
    closed(a={"allOf": [STRING]}),
    closed(a={**STRING, "default": "x"}),
    {**closed(), "$defs": {"x": {"type": "object"}}},
    {**closed(), "definitions": {"x": {"type": "object"}}},
]


def test_open_schemas_do_not(subtests: pytest.Subtests) -> None:
    for schema in OPEN_SCHEMAS:
        with subtests.test(schema=schema):
            assert not is_strict(schema)
