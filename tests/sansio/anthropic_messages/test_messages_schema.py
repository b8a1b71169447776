"""Structured output: schemas as the upstream takes them, and JSON without a schema."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman._ir.losses import Ledger
from dragoman._ir.request import Message, ReasoningConfig, Request, ResponseFormat, Text
from dragoman._wire.json import decode, encode
from dragoman.codec import Capabilities
from dragoman.protocols.anthropic_messages import SPEC
from dragoman.protocols.anthropic_messages.tools import fit_schema

SYSTEM = Message("system", (Text("One."),), "/s/0")
USER = Message("user", (Text("Hi"),), "/m/0")


def fitted(schema: Any) -> tuple[Any, list[str]]:
    """The schema, and the places of its changes."""
    notes: list[str] = []
    return fit_schema(schema, lambda place, detail: notes.append(place)), notes


CLOSED = {"type": "object", "additionalProperties": False}


@pytest.mark.parametrize(
    ("schema", "written", "places"),
    [
        pytest.param({"type": "object"}, CLOSED, [""], id="I15 an object is closed"),
        (CLOSED, CLOSED, []),
        ({"type": "object", "additionalProperties": True}, CLOSED, ["/additionalProperties"]),
        (
            {"type": "object", "additionalProperties": {"type": "string"}},
            CLOSED,
            ["/additionalProperties"],
        ),
        ({"type": ["object", "null"]}, {"type": ["object", "null"], "additionalProperties": False}, [""]),
        ({"properties": {}}, {"properties": {}, "additionalProperties": False}, [""]),
        (
            {**CLOSED, "properties": {"a": {"type": "object"}}},
            {**CLOSED, "properties": {"a": CLOSED}},
            ["/properties/a"],
        ),
        ({"$defs": {"a/b": {"type": "object"}}}, {"$defs": {"a/b": CLOSED}}, ["/$defs/a~1b"]),
        ({"definitions": {"a": {"type": "object"}}}, {"definitions": {"a": CLOSED}}, ["/definitions/a"]),
        ({"items": {"type": "object"}}, {"items": CLOSED}, ["/items"]),
        (
            {"anyOf": [{"type": "null"}, {"type": "object"}]},
            {"anyOf": [{"type": "null"}, CLOSED]},
            ["/anyOf/1"],
        ),
        ({"allOf": [{"type": "object"}]}, {"allOf": [CLOSED]}, ["/allOf/0"]),
        ({"oneOf": [{"type": "object"}]}, {"anyOf": [CLOSED]}, ["/oneOf", "/anyOf/0"]),
        (
            {"oneOf": [], "anyOf": []},
            {"anyOf": [], "description": "(oneOf: [])"},
            ["/oneOf"],
        ),
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
        (
            {"not": {"type": "null"}, "description": 7},
            {"description": '(not: {"type":"null"})'},
            ["/not"],
        ),
        (
            {"$schema": "s", "$ref": "#/$defs/a", "title": "t", "default": 1, "const": 1, "required": []},
            {"$schema": "s", "$ref": "#/$defs/a", "title": "t", "default": 1, "const": 1, "required": []},
            [],
        ),
        ({"properties": 7, "anyOf": 7}, {"properties": 7, "anyOf": 7, "additionalProperties": False}, [""]),
        (True, True, []),
    ],
)
def test_schemas(schema: Any, written: Any, places: list[str]) -> None:
    assert fitted(schema) == (written, places)


def test_a_schema_that_fits_is_not_changed() -> None:
    schema, _ = fitted({"type": "object", "properties": {"a": {"oneOf": [{"minimum": 1}]}}})
    assert fitted(schema) == (schema, [])


def write(*messages: Message, **fields: Any) -> tuple[Any, Any]:
    ledger = Ledger()
    request = Request("other", "m", messages or (USER,), {}, **fields)
    body = decode(encode(SPEC.write_request(request, Capabilities(), ledger)))
    return body, [(loss.code.value, loss.path) for loss in ledger]


def test_the_losses_of_a_schema_name_their_places() -> None:
    schema = {**CLOSED, "properties": {"a": {"type": "string", "minLength": 2}}}
    form = ResponseFormat(schema, "name", "words", False, path="/rf")
    body, losses = write(response_format=form, reasoning=ReasoningConfig(effort="low"))
    assert body["output_config"] == {
        "effort": "low",
        "format": {
            "type": "json_schema",
            "schema": {
                **CLOSED,
                "properties": {"a": {"type": "string", "description": "(minLength: 2)"}},
                "title": "name",
                "description": "words",
            },
        },
    }
    assert losses == [("altered", "/rf/strict"), ("altered", "/rf/schema/properties/a/minLength")]


@pytest.mark.parametrize(
    ("schema", "written", "losses"),
    [
        (
            {"type": "string", "title": "mine", "description": "so"},
            {"type": "string", "title": "mine", "description": "so"},
            [("dropped", "/response_format/name"), ("dropped", "/response_format/description")],
        ),
        (True, True, []),
    ],
)
def test_name_and_description_where_the_schema_has_its_own(schema: Any, written: Any, losses: Any) -> None:
    body, entered = write(response_format=ResponseFormat(schema, "name", "words", True))
    assert body["output_config"]["format"]["schema"] == written
    assert entered == losses


def test_any_json_object_is_asked_for_in_words() -> None:
    body, losses = write(SYSTEM, USER, response_format=ResponseFormat())
    assert [block["text"] for block in body["system"]] == [
        "One.",
        "Answer with one JSON object and nothing else.",
    ]
    assert losses == [("altered", "/response_format")]
