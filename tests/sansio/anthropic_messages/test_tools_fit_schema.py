"""JSON Schemas as structured output takes them."""

from typing import Any

import pytest

from dragoman.protocols.anthropic_messages.tools import fit_schema


def fit(schema: Any) -> tuple[Any, list[str]]:
    """The schema, and the places of its changes."""
    changed: list[str] = []
    return fit_schema(schema, lambda place, detail: changed.append(place)), changed


CLOSED = {"type": "object", "additionalProperties": False}


SCHEMAS: list[tuple[Any, Any, list[str]]] = [
    # I15 an object is closed
    ({"type": "object"}, CLOSED, [""]),
    (CLOSED, CLOSED, []),
    ({"type": "object", "additionalProperties": True}, CLOSED, ["/additionalProperties"]),
    ({"type": "object", "additionalProperties": {"type": "string"}}, CLOSED, ["/additionalProperties"]),
    ({"type": ["object", "null"]}, {"type": ["object", "null"], "additionalProperties": False}, [""]),
    ({"properties": {}}, {"properties": {}, "additionalProperties": False}, [""]),
    ({**CLOSED, "properties": {"a": {"type": "object"}}}, {**CLOSED, "properties": {"a": CLOSED}}, ["/properties/a"]),
    ({"$defs": {"a/b": {"type": "object"}}}, {"$defs": {"a/b": CLOSED}}, ["/$defs/a~1b"]),
    ({"definitions": {"a": {"type": "object"}}}, {"definitions": {"a": CLOSED}}, ["/definitions/a"]),
    ({"items": {"type": "object"}}, {"items": CLOSED}, ["/items"]),
    ({"anyOf": [{"type": "null"}, {"type": "object"}]}, {"anyOf": [{"type": "null"}, CLOSED]}, ["/anyOf/1"]),
    ({"allOf": [{"type": "object"}]}, {"allOf": [CLOSED]}, ["/allOf/0"]),
    ({"oneOf": [{"type": "object"}]}, {"anyOf": [CLOSED]}, ["/oneOf", "/anyOf/0"]),
    ({"oneOf": [], "anyOf": []}, {"anyOf": [], "description": "(oneOf: [])"}, ["/oneOf"]),
    (
        {"type": "string", "minLength": 2, "maxLength": 9, "description": "A name."},
        {"type": "string", "description": "A name. (minLength: 2; maxLength: 9)"},
        ["/minLength", "/maxLength"],
    ),
    (
        {"type": "integer", "minimum": 1, "exclusiveMaximum": 9, "multipleOf": 2},
        {"type": "integer", "description": "(minimum: 1; exclusiveMaximum: 9; multipleOf: 2)"},
        ["/minimum", "/exclusiveMaximum", "/multipleOf"],
    ),
    ({"type": "array", "minItems": 1}, {"type": "array", "minItems": 1}, []),
    (
        {"type": "array", "minItems": 2, "maxItems": 3, "uniqueItems": True},
        {"type": "array", "description": "(minItems: 2; maxItems: 3; uniqueItems: true)"},
        ["/minItems", "/maxItems", "/uniqueItems"],
    ),
    ({"format": "date"}, {"format": "date"}, []),
    ({"format": "iri"}, {"description": '(format: "iri")'}, ["/format"]),
    ({"pattern": "^[a-z]+$"}, {"pattern": "^[a-z]+$"}, []),
    ({"pattern": "^(?!x)"}, {"description": '(pattern: "^(?!x)")'}, ["/pattern"]),
    ({"pattern": 7}, {"description": "(pattern: 7)"}, ["/pattern"]),
    ({"enum": [1, "a", None]}, {"enum": [1, "a", None]}, []),
    ({"enum": [{"a": 1}]}, {"description": '(enum: [{"a":1}])'}, ["/enum"]),
    ({"not": {"type": "null"}, "description": 7}, {"description": '(not: {"type":"null"})'}, ["/not"]),
    (
        {"$schema": "s", "$ref": "#/$defs/a", "title": "t", "default": 1, "const": 1, "required": []},
        {"$schema": "s", "$ref": "#/$defs/a", "title": "t", "default": 1, "const": 1, "required": []},
        [],
    ),
    ({"properties": 7, "anyOf": 7}, {"properties": 7, "anyOf": 7, "additionalProperties": False}, [""]),
    (True, True, []),
]  # fmt: skip


def test_schemas(subtests: pytest.Subtests) -> None:
    for schema, written, places in SCHEMAS:
        with subtests.test(schema=schema):
            assert fit(schema) == (written, places)


def test_a_schema_that_fits_is_not_changed() -> None:
    schema, _ = fit({"type": "object", "properties": {"a": {"oneOf": [{"minimum": 1}]}}})
    assert fit(schema) == (schema, [])
