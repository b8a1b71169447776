"""Bounds of what a JSON Schema may cost. What the schemas say is in the text files beside this."""

from typing import Any

import pytest

from dragoman._wire.json_schema import SchemaUndecided, find_broken_keyword, inline_references


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


def test_definitions_have_a_limit_together() -> None:
    """Four times the schema: the next one that is larger than what is left is replaced."""
    long = {"description": "x" * 1000}
    schema: Any = {"anyOf": [REF_A] * 9, "$defs": {"a": long}}
    altered: list[str] = []
    found: Any = inline_references(schema, "", lambda place, _: altered.append(place))
    assert [found["anyOf"].count(each) for each in (long, {"type": "object"})] == [4, 5]
    assert altered == [f"/anyOf/{index}" for index in range(4, 9)]


def test_a_schema_without_references_stays_what_it_is() -> None:
    for schema in ({"type": "integer"}, A, None, True):
        assert inline_references(schema, "", lambda place, text: None) is schema
