"""Checks that the readers share, and the names of members in both of the spellings that clients send."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from dragoman._ir.checks import Checks
from dragoman._wire.json import JSON, JSONObject, wrong_type

CHECKS = Checks(wrong_type)

# The members of an object with objects or arrays of objects in them; None for any other member. A list of one: an array
# of such objects, or a single one of them.
Names: TypeAlias = "Mapping[str, Names | list[Names] | None]"


def string_or_none(value: JSON) -> str | None:
    """Return a string that is not empty, None for any other value."""
    return value if type(value) is str and value else None


def objects(value: JSON) -> list[JSONObject]:
    """Return the objects of a list, or the only one in its place: proto3 JSON accepts both."""
    if type(value) is dict:
        return [value]
    return [each for each in value if type(each) is dict] if type(value) is list else []


def rename(value: JSON, names: Any) -> None:
    """Give members their names in lowerCamelCase, in place.

    "Parsers accept both the lowerCamelCase name [...] and the original proto field name." (protobuf.dev, ProtoJSON
    format, read 2026-11-28) google-genai 3.4.0 sends both, mixed. Only known members are renamed, so that arguments,
    results and schemas stay as they are.
    """
    if type(names) is list:
        for each in value if type(value) is list else (value,):
            rename(each, names[0])
        return
    if type(value) is not dict:
        return
    if any("_" in name for name in value):
        renamed = {_known(name, names): member for name, member in value.items()}
        value.clear()
        value.update(renamed)
    for name, member in value.items():
        inner = names.get(name)
        if inner is not None:
            rename(member, inner)


def _known(name: str, names: Mapping[str, object]) -> str:
    if "_" not in name:
        return name
    first, *rest = name.strip("_").split("_")  # `_responseJsonSchema` of older SDKs
    camel = first + "".join([part[:1].upper() + part[1:] for part in rest])
    return camel if camel in names else name
