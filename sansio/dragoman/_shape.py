"""What an answer says beyond what its reader takes: found by one walk along a table.

Strategy: a protocol writes down the members of its answers once, as nested builtins that look like the JSON
itself. The walk compares: a member that is not in the table is unknown, one whose row is a reason is known and
goes nowhere; both are entered in the ledger under their own place. So a reader stays free of bookkeeping.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import msgspec

from ._json import JSON
from ._loss import Ledger, LossCode, child


class ByType(msgspec.Struct, frozen=True):
    """An object whose `type` says which shape it has. Other types are taken whole by the reader."""

    shapes: Mapping[str, Shape]


# None: the reader takes the value, or it says nothing by itself. A string: why it goes nowhere.
# A mapping: an object with these members. A list of one: an array of such values.
Shape: TypeAlias = str | ByType | Mapping[str, "Shape"] | list["Shape"] | None


def note_unread(value: JSON, shape: Shape, path: str, ledger: Ledger) -> None:
    """Enter what `value`, which stands at `path`, says beyond its shape. null says nothing."""
    if shape is None or value is None:
        return
    if type(shape) is str:
        ledger.dropped(path, shape)
    elif type(shape) is list:
        if type(value) is list:
            for index, item in enumerate(value):
                note_unread(item, shape[0], child(path, index), ledger)
    elif type(value) is dict:
        if isinstance(shape, ByType):
            kind = value.get("type")
            note_unread(value, shape.shapes.get(kind) if type(kind) is str else None, path, ledger)
            return
        assert isinstance(shape, Mapping)  # what is left of the four
        for key, member in value.items():
            if key in shape:
                note_unread(member, shape[key], child(path, key), ledger)
            elif member is not None:
                ledger.add(LossCode.UNKNOWN_FIELD, child(path, key), "not a field of this protocol version")
