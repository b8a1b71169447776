"""Shapes of JSON objects, written as text and checked against values.

A line is an object or a union. `Usage: input_tokens int, cached? int, tier "standard" "batch"?, sum~ int` is an object
with four members: the first must be there; the second may be absent or null, as its name ends in `?`; the third must be
there and may be null, as its type does; the fourth must be there, but clients read objects without it, as its name ends
in `~`. A type is `int`, `num`, `str`, `bool`, `obj`, `any`, a list `[T]`, quoted
values, or another object's name, and alternatives are separated by ` | `. `...` allows members that are not listed.
`Part = Text | Image` is a union; the member `type` decides.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

import msgspec

from dragoman._ir.losses import child
from dragoman._wire.json import JSON, JSONObject, kind_of

_LITERAL = re.compile(r'"([^"]*)"')
_MEMBER = re.compile(r"(\w+)([?~]?) (.+)")

# Each takes a value.
_SCALARS: dict[str, Callable[[JSON], bool]] = {
    "int": lambda value: type(value) is int,
    "num": lambda value: type(value) in (int, float),
    "str": lambda value: type(value) is str,
    "bool": lambda value: type(value) is bool,
    "obj": lambda value: type(value) is dict,
    "any": lambda value: True,
}


class Mismatch(msgspec.Struct, frozen=True):
    """A value that does not match its shape.

    Attributes:
        kind: `required`, `nullable` (absent, and should be null), `type`, `tolerated` (either, in a member that clients
            do not need), `value`, `unknown-member`, `unknown-type`.
        pointer: JSON Pointer to the value, or to where it is missing.
        detail: A sentence.
    """

    kind: str
    pointer: str
    detail: str


class _Type(msgspec.Struct, frozen=True):
    null: bool
    scalars: tuple[str, ...] = ()
    literals: tuple[str, ...] = ()
    items: _Type | None = None
    names: tuple[str, ...] = ()


class _Member(msgspec.Struct, frozen=True):
    required: bool
    tolerated: bool
    type: _Type


class _Object(msgspec.Struct, frozen=True):
    members: dict[str, _Member]
    open: bool

    @property
    def tags(self) -> tuple[str, ...]:
        """The values of `type` by which a union has this object, none if it has any."""
        member = self.members.get("type")
        return () if member is None else member.type.literals


class Shapes:
    """The shapes of a protocol. Args: text: see the module."""

    def __init__(self, text: str) -> None:
        self._objects: dict[str, _Object] = {}
        self._unions: dict[str, tuple[str, ...]] = {}
        for line in filter(None, map(str.strip, text.splitlines())):
            if " = " in line:
                name, _, members = line.partition(" = ")
                self._unions[name] = tuple(members.split(" | "))
            else:
                name, _, members = line.partition(":")
                self._objects[name] = _parse_object(members)

    def tags_of(self, union: str) -> Mapping[str, str]:
        """Return the objects of a union by the value of their `type`."""
        return {tag: name for name in self._unions[union] for tag in self._objects[name].tags}

    def members_of(self, name: str) -> Mapping[str, tuple[bool, bool]]:
        """Return the members of an object: whether each must be there, and whether it may be null."""
        members = self._objects[name].members
        return {key: (member.required, member.type.null) for key, member in members.items()}

    def check(self, name: str, value: JSON, pointer: str = "") -> Iterator[Mismatch]:
        """Yield in what a value differs from an object or a union."""
        yield from self._check(_Type(null=False, names=(name,)), value, pointer)

    def _check(self, expected: _Type, value: JSON, pointer: str) -> Iterator[Mismatch]:
        if value is None and expected.null:
            return
        if any(_SCALARS[each](value) for each in expected.scalars):
            return
        if type(value) is str and expected.literals:
            if value not in expected.literals:
                yield Mismatch(
                    "value", pointer, f"{value[:40]!a} is not one of {', '.join(expected.literals)}"
                )
        elif type(value) is list and expected.items is not None:
            for number, entry in enumerate(value):
                yield from self._check(expected.items, entry, child(pointer, number))
        elif type(value) is dict and expected.names:
            yield from self._check_one_of(expected.names, value, pointer)
        else:
            yield Mismatch("type", pointer, f"{kind_of(value)}, expected {_describe(expected)}")

    def _check_one_of(self, names: tuple[str, ...], value: JSONObject, pointer: str) -> Iterator[Mismatch]:
        candidates = [each for name in names for each in self._unions.get(name, (name,))]
        if len(candidates) == 1:
            yield from self._check_object(self._objects[candidates[0]], value, pointer)
            return
        tag = value.get("type")
        for each in candidates:
            shape = self._objects[each]
            if not shape.tags or tag in shape.tags:
                yield from self._check_object(shape, value, pointer)
                return
        if type(tag) is str:
            yield Mismatch("unknown-type", child(pointer, "type"), f"unknown type {tag[:60]!a}")
        else:
            yield Mismatch("required", child(pointer, "type"), "an object without a type")

    def _check_object(self, shape: _Object, value: JSONObject, pointer: str) -> Iterator[Mismatch]:
        for name, member in shape.members.items():
            place = child(pointer, name)
            if name in value:
                if value[name] is not None or member.required:
                    for each in self._check(member.type, value[name], place):
                        own = member.tolerated and each.kind == "type" and each.pointer == place
                        yield msgspec.structs.replace(each, kind="tolerated") if own else each
            elif member.required and member.type.null:
                yield Mismatch("nullable", place, f"{name} is absent; where there is no value it is null")
            elif member.required:
                yield Mismatch("tolerated" if member.tolerated else "required", place, f"{name} is absent")
        if not shape.open:
            for name in value.keys() - shape.members.keys():
                yield Mismatch("unknown-member", child(pointer, name), f"{name[:60]!a} is not a member here")


def _parse_object(text: str) -> _Object:
    parts = text.split(", ") if text.strip() else []
    members = {}
    for part in parts:
        if (match := _MEMBER.fullmatch(part.strip())) is not None:
            members[match[1]] = _Member(match[2] != "?", match[2] == "~", _parse_type(match[3]))
    return _Object(members, open=bool(parts) and parts[-1].strip() == "...")


def _parse_type(text: str) -> _Type:
    null = text.endswith("?")
    text = text.removesuffix("?")
    alternatives = [each for each in text.split(" | ") if not each.startswith(('"', "["))]
    lists = [each for each in text.split(" | ") if each.startswith("[")]
    return _Type(
        null=null,
        scalars=tuple(each for each in alternatives if each in _SCALARS),
        literals=tuple(_LITERAL.findall(text)),
        items=_parse_type(lists[0][1:-1]) if lists else None,
        names=tuple(each for each in alternatives if each not in _SCALARS),
    )


def _describe(expected: _Type) -> str:
    forms = [*expected.scalars, *(["list"] if expected.items is not None else [])]
    forms += ["one of its values"] if expected.literals else []
    forms += ["obj"] if expected.names else []
    words = {
        "int": "an integer",
        "num": "a number",
        "str": "a string",
        "bool": "true or false",
        "obj": "an object",
    }
    return " or ".join([words.get(each, f"a {each}" if each == "list" else each) for each in forms])
