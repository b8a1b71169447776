"""Members of a response that its reader does not take, found by one walk along a table.

A protocol lists the members of its responses once, as nested builtins that look like the JSON itself. The walk
compares: a member that is not in the table is unknown, one whose row is a reason is known and dropped; both are
recorded as losses at their own place. So a reader has no bookkeeping.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import msgspec

from dragoman._ir.losses import Ledger, LossCode, child
from dragoman._wire.json import JSON


class ByType(msgspec.Struct, frozen=True):
    """An object whose `type` selects its shape. The reader takes other types whole."""

    shapes: Mapping[str, Shape]


class Counters(msgspec.Struct, frozen=True):
    """An object of figures. One that is not in the table matters only if it is not zero."""

    shapes: Mapping[str, Shape]


class DroppedUnless(msgspec.Struct, frozen=True):
    """The reason for dropping a value, and the strings in it that mean nothing."""

    reason: str
    ignorable: frozenset[str]


# None: the reader takes the value, or no client of another protocol could use it: what repeats the request, padding,
# and the server's own bookkeeping (its ids, times, prices).
# A string: why it goes nowhere. It is a loss if the value has any content.
# A mapping: an object with these members. A list of one: an array of such values.
Shape: TypeAlias = str | DroppedUnless | ByType | Counters | Mapping[str, "Shape"] | list["Shape"] | None


def has_content(value: JSON, nothing: frozenset[str] = frozenset()) -> bool:
    """True if a value has more in it than null, false, zero, empty values and strings of `nothing`."""
    if type(value) is dict:
        return any(has_content(member, nothing) for member in value.values())
    if type(value) is list:
        return any(has_content(member, nothing) for member in value)
    return bool(value) and value not in nothing


def note_unread(
    value: JSON, shape: Shape, path: str, ledger: Ledger, inside: tuple[str | int, ...] = ()
) -> None:
    """Record what `value` has beyond its shape. It is at `inside` of what is at `path`. null is no loss.

    The path is built only for what is recorded, because nearly every frame has nothing to record.
    """
    kind = type(shape)
    if type(value) is dict and (kind is dict or kind is Counters):
        members: Mapping[str, Shape] = shape.shapes if kind is Counters else shape  # type: ignore[union-attr, assignment]
        for key, member in value.items():
            if member is None:
                continue
            if key in members:
                row = members[key]
                if row is not None:
                    note_unread(member, row, path, ledger, (*inside, key))
            elif kind is dict or has_content(member):
                place = _pointer(path, (*inside, key))
                ledger.add(LossCode.UNKNOWN_FIELD, place, "not a field of this protocol version")
    elif type(shape) is str:
        if has_content(value):
            ledger.dropped(_pointer(path, inside), shape)
    elif isinstance(shape, DroppedUnless):
        if has_content(value, shape.ignorable):
            ledger.dropped(_pointer(path, inside), shape.reason)
    elif type(shape) is list and type(value) is list:
        for index, item in enumerate(value):
            note_unread(item, shape[0], path, ledger, (*inside, index))
    elif isinstance(shape, ByType) and type(value) is dict:
        name = value.get("type")
        note_unread(value, shape.shapes.get(name) if type(name) is str else None, path, ledger, inside)


def _pointer(path: str, inside: tuple[str | int, ...]) -> str:
    for key in inside:
        path = child(path, key)
    return path
