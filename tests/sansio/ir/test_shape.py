"""The walk along a table of members: members that are not read are losses at their own path."""

from typing import Any

import pytest

from dragoman._ir.losses import Ledger, LossCode
from dragoman._ir.shape import ByType, Counters, DroppedUnless, Shape, note_unread

UNKNOWN, DROPPED = LossCode.UNKNOWN_FIELD, LossCode.DROPPED

CASES: dict[str, tuple[Any, Shape, list[tuple[LossCode, str]]]] = {
    "taken whole": ({"a": [1]}, None, []),
    "all members known": ({"a": 1, "b": {"c": 2}}, {"a": None, "b": {"c": None}}, []),
    "fewer members": ({}, {"a": None}, []),
    "an unknown member": ({"a": 1, "x": 2}, {"a": None}, [(UNKNOWN, "/r/x")]),
    "an unknown member deep down": ({"a": {"b": {"x": 0}}}, {"a": {"b": {}}}, [(UNKNOWN, "/r/a/b/x")]),
    "a name with a slash": ({"x/y~": 1}, {}, [(UNKNOWN, "/r/x~1y~0")]),
    "null says nothing": ({"x": None, "y": None}, {"y": "nowhere to go"}, []),
    "null as a whole": (None, {"a": None}, []),
    "false and zero say something": ({"x": False, "y": 0}, {}, [(UNKNOWN, "/r/x"), (UNKNOWN, "/r/y")]),
    "known and going nowhere": ({"a": {"b": 1}}, {"a": "no such thing there"}, [(DROPPED, "/r/a")]),
    "an array": (
        [{"a": 1}, {"x": 1}, {"a": 1, "y": 2}],
        [{"a": None}],
        [(UNKNOWN, "/r/1/x"), (UNKNOWN, "/r/2/y")],
    ),
    "going nowhere, and saying nothing": (
        {"a": False, "b": [], "c": {"d": [0, ""], "e": None}},
        dict.fromkeys("abc", "no such thing there"),
        [],
    ),
    "a string that says nothing": ({"a": "safe"}, {"a": DroppedUnless("why", frozenset({"safe"}))}, []),
    "strings of which one says something": (
        {"a": [{"b": "safe"}, {"b": "bad"}]},
        {"a": DroppedUnless("why", frozenset({"safe"}))},
        [(DROPPED, "/r/a")],
    ),
    "counters": (
        {"a": 1, "b": 0, "c": [0, {"d": 0.0}], "x": 2, "y": [3]},
        Counters({"a": None}),
        [(UNKNOWN, "/r/x"), (UNKNOWN, "/r/y")],
    ),
    "no counters where some are expected": (7, Counters({}), []),
    "an array of reasons": ([1, None, 2], ["nowhere"], [(DROPPED, "/r/0"), (DROPPED, "/r/2")]),
    "no array where one is expected": ({"x": 1}, [{"a": None}], []),
    "no object where one is expected": ("text", {"a": None}, []),
    "an object by its type": (
        {"type": "text", "text": "a", "x": 1},
        ByType({"text": {"type": None, "text": None}}),
        [(UNKNOWN, "/r/x")],
    ),
    "a type that the table does not have": ({"type": "image", "x": 1}, ByType({"text": {}}), []),
    "a type that is no text": ({"type": 7, "x": 1}, ByType({"text": {}}), []),
    "no type": ({"x": 1}, ByType({"text": {}}), []),
    "no object with a type": (["x"], ByType({"text": {}}), []),
}


def test_walk(subtests: pytest.Subtests) -> None:
    for case, (value, shape, losses) in CASES.items():
        with subtests.test(case=case):
            ledger = Ledger()
            note_unread(value, shape, "/r", ledger)
            assert [(loss.code, loss.path) for loss in ledger] == losses


def test_the_reason_of_a_loss_is_recorded() -> None:
    ledger = Ledger()
    note_unread({"a": 1, "x": 2}, {"a": "no such thing there"}, "", ledger)
    assert [loss.detail for loss in ledger] == ["no such thing there", "not a field of this protocol version"]
