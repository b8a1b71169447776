"""What an answer says beyond what its reader takes: found by one walk along a table.

Strategy: a protocol writes down the members of its answers once, as nested builtins that look like the JSON
itself. The walk compares: a member that is not in the table is unknown, one whose row is a reason is known and
goes nowhere; both are entered in the ledger under their own place. So a reader stays free of bookkeeping.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import msgspec

from dragoman._ir.losses import Ledger, LossCode, child
from dragoman._wire.json import JSON


class ByType(msgspec.Struct, frozen=True):
    """An object whose `type` says which shape it has. Other types are taken whole by the reader."""

    shapes: Mapping[str, Shape]


class Counters(msgspec.Struct, frozen=True):
    """An object of figures. One that is not in the table says nothing as long as it counts nothing."""

    shapes: Mapping[str, Shape]


class Unless(msgspec.Struct, frozen=True):
    """Why a value goes nowhere, and the strings in it that say nothing."""

    reason: str
    nothing: frozenset[str]


# None: the reader takes the value, or no client of another protocol could use it: what repeats the request, padding,
# and the server's own bookkeeping (its ids, times, prices).
# A string: why it goes nowhere. It is a loss when the value says anything.
# A mapping: an object with these members. A list of one: an array of such values.
Shape: TypeAlias = str | Unless | ByType | Counters | Mapping[str, "Shape"] | list["Shape"] | None


def says(value: JSON, nothing: frozenset[str] = frozenset()) -> bool:
    """Whether there is anything in a value but null, false, zero, what is empty, and strings of `nothing`."""
    if type(value) is dict:
        return any(says(member, nothing) for member in value.values())
    if type(value) is list:
        return any(says(member, nothing) for member in value)
    return bool(value) and value not in nothing


def note_unread(value: JSON, shape: Shape, path: str, ledger: Ledger) -> None:
    """Enter what `value`, which stands at `path`, says beyond its shape. null says nothing."""
    if shape is None or value is None:
        return
    if type(shape) is str:
        if says(value):
            ledger.dropped(path, shape)
    elif isinstance(shape, Unless):
        if says(value, shape.nothing):
            ledger.dropped(path, shape.reason)
    elif type(shape) is list:
        if type(value) is list:
            for index, item in enumerate(value):
                note_unread(item, shape[0], child(path, index), ledger)
    elif type(value) is dict:
        if isinstance(shape, ByType):
            kind = value.get("type")
            note_unread(value, shape.shapes.get(kind) if type(kind) is str else None, path, ledger)
            return
        counts = isinstance(shape, Counters)
        members = shape.shapes if isinstance(shape, Counters) else shape
        assert isinstance(members, Mapping)  # what is left of the six
        for key, member in value.items():
            if key in members:
                note_unread(member, members[key], child(path, key), ledger)
            elif member is not None and (not counts or says(member)):
                ledger.add(LossCode.UNKNOWN_FIELD, child(path, key), "not a field of this protocol version")
