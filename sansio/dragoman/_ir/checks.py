"""Checked access to the members of a request's objects.

A protocol has one `Checks`, with the words of its vendor for a member that is missing or of a wrong type.
"""

from __future__ import annotations

from dragoman._ir.shape import ARRAY, OBJECT, JSONType, WrongType
from dragoman._wire.json import JSON, JSONObject


class Checks:
    """Checks of a protocol's requests. Each raises the error of `wrong_type` for a value that is not as expected.

    path: a JSON Pointer to the object that has the member.
    """

    __slots__ = ("wrong_type",)

    def __init__(self, wrong_type: WrongType) -> None:
        self.wrong_type = wrong_type

    def required(self, value: JSONObject, name: str, path: str, wanted: JSONType) -> JSON:
        """Return a member that must be there."""
        member = value.get(name)
        if type(member) in wanted.types:
            return member
        raise self.wrong_type(f"{path}/{name}", wanted.name, member)

    def optional(self, value: JSONObject, name: str, path: str, wanted: JSONType) -> JSON:
        """Return a member, None if it is absent or null."""
        member = value.get(name)
        if member is None or type(member) in wanted.types:
            return member
        raise self.wrong_type(f"{path}/{name}", wanted.name, member)

    def object(self, value: JSONObject, name: str, path: str) -> JSONObject:
        """Return an object, {} if it is absent or null."""
        return self.optional(value, name, path, OBJECT) or {}

    def objects(self, value: JSONObject, name: str, path: str) -> list[JSONObject]:
        """Return a list of objects, [] if it is absent or null."""
        members = self.optional(value, name, path, ARRAY) or []
        for index, member in enumerate(members):
            if type(member) is not dict:
                raise self.wrong_type(f"{path}/{name}/{index}", OBJECT.name, member)
        return members
