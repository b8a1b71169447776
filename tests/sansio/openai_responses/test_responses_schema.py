"""Which schemas may be sent as strict."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.protocols.openai_responses._schema import is_strict

TEXT = {"type": "string"}


def closed(properties: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": [*properties],
        "additionalProperties": False,
        **more,
    }


STRICT = [
    closed({}),
    {"type": "object", "additionalProperties": False},
    closed({"a": TEXT, "b": {"type": ["string", "null"]}}),
    closed({"a": closed({"b": TEXT})}),
    closed({"a": {"type": "array", "items": closed({"b": TEXT})}}),
    closed({"a": {"anyOf": [TEXT, closed({})]}}),
    closed({"a": {"$ref": "#/$defs/x"}}, **{"$defs": {"x": closed({"b": TEXT})}}),
    closed({"a": {"enum": ["x"]}, "b": {"const": 1}}),
]
NOT_STRICT = [
    None,
    [],
    {},
    TEXT,
    {"type": "object"},
    closed({"a": TEXT}, required=[]),
    closed({"a": TEXT}, required=["a", "b"]),
    closed({"a": TEXT}, required="a"),
    {**closed({}), "properties": []},
    closed({}, additionalProperties=True),
    closed({}, anyOf=[TEXT]),
    closed({"a": {}}),
    closed({"a": True}),
    closed({"a": {"type": "object"}}),
    closed({"a": {"type": ["object", "null"]}}),
    closed({"a": {"$ref": "#/x", "properties": {}}}),
    closed({"a": {"type": "array", "items": {"type": "object"}}}),
    closed({"a": {"type": "array", "items": [TEXT]}}),
    closed({"a": {"anyOf": [TEXT, {"type": "object"}]}}),
    closed({"a": {"anyOf": TEXT}}, **{"$defs": [1]}),
    closed({"a": {"anyOf": "x"}}),
    closed({"a": TEXT}, **{"$defs": {"x": {"type": "object"}}}),
    closed({"a": TEXT}, definitions={"x": {"type": "object"}}),
    closed({"a": {"type": "string", "allOf": []}}),
    closed({"a": {"oneOf": [TEXT]}}),
    closed({"a": {"type": "string", "default": "x"}}),
]


@pytest.mark.parametrize("schema", STRICT)
def test_schemas_that_may_be_strict(schema: Any) -> None:
    assert is_strict(schema)


@pytest.mark.parametrize("schema", NOT_STRICT)
def test_schemas_that_may_not(schema: Any) -> None:
    assert not is_strict(schema)
