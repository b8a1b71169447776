"""Checks that the readers share, and the spelling of members."""

from __future__ import annotations

from dragoman._ir.checks import Checks
from dragoman._wire.json import JSON, JSONObject, objects_in, text_or_none, wrong_type
from dragoman.protocols.gemini.shapes import MEMBERS

CHECKS = Checks(wrong_type)


def objects(value: JSON) -> list[JSONObject]:
    """Return the objects of a list, or the only one in its place: proto3 JSON accepts both."""
    return [value] if type(value) is dict else objects_in(value)


def enum_name(value: JSON, names: tuple[str, ...]) -> str | None:
    """Return the name of an enum's value, None if it has none. A server may send its number; names: by number."""
    if type(value) is int:
        return names[value] if 0 <= value < len(names) else str(value)
    return text_or_none(value)


# Members whose values have names of the client's own, and those that the reader of contents renames.
_FREE = frozenset(
    {
        *("args", "contents", "headers", "labels", "partMetadata", "response", "parameters"),
        *("parametersJsonSchema", "responseJsonSchema", "responseSchema", "functionCall", "functionResponse"),
    }
)


def rename(value: JSONObject) -> None:
    """Give the known members of an object their names in lowerCamelCase, in place, at each depth.

    "Parsers accept both the lowerCamelCase name [...] and the original proto field name." (protobuf.dev, ProtoJSON
    format, read 2026-11-28) google-genai 3.4.0 sends both, mixed.
    """
    if "_" in "".join(value):
        renamed = {MEMBERS.get(name, name): member for name, member in value.items()}
        value.clear()
        value.update(renamed)
    for name, member in value.items():
        kind = type(member)
        if kind is dict and name not in _FREE:
            rename(member)
        elif kind is list and name not in _FREE:
            for each in member:
                if type(each) is dict:  # a call for each text would cost as much as reading it
                    rename(each)
