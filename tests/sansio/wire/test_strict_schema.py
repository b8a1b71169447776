"""Which schemas OpenAI takes as strict."""

from __future__ import annotations

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


@pytest.mark.parametrize(
    "schema",
    [
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
    ],
)
def test_closed_schemas_qualify(schema: Any) -> None:
    assert is_strict(schema)


@pytest.mark.parametrize(
    "schema",
    [
        None,
        True,
        [],
        {},
        STRING,
        {"type": "object"},
        {**closed(a=STRING), "anyOf": [closed()]},
        {**closed(a=STRING), "required": []},
        pytest.param({**closed(a=STRING), "required": ["a", "b"]}, id="a required name that no property has"),
        {**closed(a=STRING), "additionalProperties": True},
        {**closed(a=STRING), "required": "a"},
        {**closed(), "properties": []},
        {**closed(), "$defs": []},
        closed(a={}),
        closed(a=True),
        pytest.param(closed(a={"enum": ["x"]}), id="an enum without a type"),
        closed(a={"const": 1}),
        closed(a={"properties": {}, "anyOf": [STRING]}),
        closed(a={"type": ["object", "null"]}),
        closed(a={"type": ["array", "null"]}),
        closed(a={"type": "array", "items": {"type": "object"}}),
        closed(a={"type": "array", "items": [STRING]}),
        pytest.param(closed(a={"type": "array", "prefixItems": [STRING]}), id="an array without items"),
        closed(a={"type": "array", "prefixItems": [{}], "items": STRING}),
        closed(a={"anyOf": [{"type": "object"}]}),
        closed(a={"anyOf": STRING}),
        closed(a={"oneOf": [STRING]}),
        closed(a={"allOf": [STRING]}),
        closed(a={**STRING, "default": "x"}),
        {**closed(), "$defs": {"x": {"type": "object"}}},
        {**closed(), "definitions": {"x": {"type": "object"}}},
    ],
)
def test_open_schemas_do_not(schema: Any) -> None:
    assert not is_strict(schema)
