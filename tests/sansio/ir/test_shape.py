"""Shapes: the settings and types of requests, and the losses of responses, each at its own path."""

# ruff: noqa: E501 -- the tables are read by row

from typing import Any

import pytest

from dragoman._ir.checks import Checks
from dragoman._ir.losses import Ledger, LossCode
from dragoman._ir.shape import (
    ARRAY,
    BOOLEAN,
    INTEGER,
    NUMBER,
    OBJECT,
    RULED_OUT,
    STRING,
    ByType,
    Counters,
    DroppedUnless,
    JSONType,
    Setting,
    Shape,
    TakenIf,
    defined_members,
    extra_members,
    note_unread,
    read_members,
    response_shape,
    setting_paths,
)
from dragoman._wire.exceptions import RemoteProtocolError
from dragoman._wire.json import wrong_type

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
    "an array": ([{"a": 1}, {"x": 1}, {"a": 1, "y": 2}], [{"a": None}], [(UNKNOWN, "/r/1/x"), (UNKNOWN, "/r/2/y")]),
    "going nowhere, and saying nothing": ({"a": False, "b": [], "c": {"d": [0, ""], "e": None}}, dict.fromkeys("abc", "no such thing there"), []),
    "a string that says nothing": ({"a": "safe"}, {"a": DroppedUnless("why", frozenset({"safe"}))}, []),
    "strings of which one says something": ({"a": [{"b": "safe"}, {"b": "bad"}]}, {"a": DroppedUnless("why", frozenset({"safe"}))}, [(DROPPED, "/r/a")]),
    "counters": ({"a": 1, "b": 0, "c": [0, {"d": 0.0}], "x": 2, "y": [3]}, Counters({"a": None}), [(UNKNOWN, "/r/x"), (UNKNOWN, "/r/y")]),
    "no counters where some are expected": (7, Counters({}), []),
    "an array of reasons": ([1, None, 2], ["nowhere"], [(DROPPED, "/r/0"), (DROPPED, "/r/2")]),
    "no array where one is expected": ({"x": 1}, [{"a": None}], []),
    "no object where one is expected": ("text", {"a": None}, []),
    "an object by its type": ({"type": "text", "text": "a", "x": 1}, ByType({"text": {"type": None, "text": None}}), [(UNKNOWN, "/r/x")]),
    "a type that the table does not have": ({"type": "image", "x": 1}, ByType({"text": {}}), []),
    "a type that is no text": ({"type": 7, "x": 1}, ByType({"text": {}}), []),
    "no type": ({"x": 1}, ByType({"text": {}}), []),
    "no object with a type": (["x"], ByType({"text": {}}), []),
}  # fmt: skip


def test_walk(subtests: pytest.Subtests) -> None:
    for case, (value, shape, losses) in CASES.items():
        with subtests.test(case=case):
            ledger = Ledger()
            note_unread(value, response_shape(shape), "/r", ledger)
            assert [(loss.code, loss.path) for loss in ledger] == losses


def test_the_reason_of_a_loss_is_recorded() -> None:
    ledger = Ledger()
    note_unread({"a": 1, "x": 2}, response_shape({"a": "no such thing there"}), "", ledger)
    assert [loss.detail for loss in ledger] == ["no such thing there", "not a field of this protocol version"]


# The shape of a request.

BODY: dict[str, Shape] = {
    "model": STRING,
    "messages": None,
    "max_tokens": Setting("max_output_tokens", INTEGER),
    "max_completion_tokens": Setting("max_output_tokens", INTEGER),
    "temperature": Setting("temperature", NUMBER),
    "seed": Setting("seed"),
    "thread": Setting(None, STRING),
    "metadata": {"user_id": Setting("user", STRING), "padding": Setting(None)},
    "file_id": TakenIf({"file": (None, "")}),
    "file": None,
}

SETTINGS: dict[str, tuple[dict[str, Any], dict[str, Any], Any]] = {
    "nothing": ({"model": "m", "messages": [1]}, {}, None),
    "settings, in the order of the shape": ({"seed": [1], "temperature": 0.5}, {"temperature": 0.5, "seed": [1]}, None),
    "null is absent": ({"temperature": None, "x": None, "metadata": None, "thread": None}, {}, None),
    "the later one of two names": ({"max_completion_tokens": 2, "max_tokens": 1}, {"max_output_tokens": 2}, None),
    "a nested setting": ({"metadata": {"user_id": "u", "x": 1}}, {"user": "u"}, {"metadata": {"x": 1}}),
    "only of this protocol": ({"thread": "t", "metadata": {"padding": 0}}, {}, {"thread": "t", "metadata": {"padding": 0}}),
    "in place of another one": ({"file_id": "f", "file": ""}, {}, None),
    "next to the one in whose place it may stand": ({"file_id": "f", "file": "a"}, {}, {"file_id": "f"}),
    "empty next to it": ({"file_id": "", "file": "a"}, {}, None),
    "unknown": ({"x": {"y": None}, "z": False}, {}, {"x": {"y": None}, "z": False}),
    "several, in the order of the body": (
        {"x": 1, "metadata": {"padding": 0}, "z": 2, "thread": "t"},
        {},
        {"x": 1, "metadata": {"padding": 0}, "z": 2, "thread": "t"},
    ),
}  # fmt: skip


def test_settings_and_extra_members(subtests: pytest.Subtests) -> None:
    for case, (body, settings, extra) in SETTINGS.items():
        with subtests.test(case=case):
            read, left = read_members(body, BODY, wrong_type)
            assert list(read.items()) == list(settings.items())
            assert list(left.items()) == list((extra or {}).items())
            assert extra_members(body, BODY) == extra


def test_paths_and_names_of_a_shape() -> None:
    assert setting_paths(BODY) == {
        "max_output_tokens": "/max_completion_tokens",
        "temperature": "/temperature",
        "seed": "/seed",
        "user": "/metadata/user_id",
    }
    assert defined_members(BODY) == {
        "thread": True,
        "metadata": False,
        "padding": True,
        "file_id": RULED_OUT,
    }


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"model": 1}, "model must be a string, not a number"),
    ({"temperature": "1"}, "temperature must be a number, not a string"),
    ({"temperature": True}, "temperature must be a number, not a boolean"),
    ({"max_tokens": 1.5}, "max_tokens must be an integer, not a number"),
    ({"thread": {}}, "thread must be a string, not an object"),
    ({"metadata": []}, "metadata must be an object, not an array"),
    ({"metadata": {"user_id": 7}}, "metadata.user_id must be a string, not a number"),
]


def test_a_setting_of_a_wrong_type_is_an_error(subtests: pytest.Subtests) -> None:
    for body, message in WRONG:
        with subtests.test(body=body), pytest.raises(RemoteProtocolError) as info:
            read_members(body, BODY, wrong_type)
        assert str(info.value) == message


TYPES: list[tuple[JSONType, list[Any], list[Any]]] = [
    (STRING, ["", "a"], [1, [], {}, True]),
    (BOOLEAN, [True, False], [0, "true"]),
    (INTEGER, [0, -1], [True, 1.0, "1"]),
    (NUMBER, [0, 1.5], [False, "1"]),
    (ARRAY, [[], [1]], [{}, ""]),
    (OBJECT, [{}, {"a": 1}], [[], ""]),
]


def test_checked_members() -> None:
    checks = Checks(wrong_type)
    for wanted, right, wrong in TYPES:
        for value in right:
            assert checks.required({"a": value}, "a", "", wanted) is value
            assert checks.optional({"a": value}, "a", "", wanted) is value
        for value in wrong:
            for check in (checks.required, checks.optional):
                with pytest.raises(RemoteProtocolError, match=rf"^at\.a must be {wanted.name}, not "):
                    check({"a": value}, "a", "/at", wanted)
        for body in ({}, {"a": None}):
            assert checks.optional(body, "a", "", wanted) is None
            with pytest.raises(RemoteProtocolError, match=r"not null$"):
                checks.required(body, "a", "", wanted)


def test_checked_objects() -> None:
    checks = Checks(wrong_type)
    assert checks.object({}, "a", "") == {}
    assert checks.object({"a": {"b": 1}}, "a", "") == {"b": 1}
    assert checks.objects({"a": None}, "a", "") == []
    assert checks.objects({"a": [{}, {"b": 1}]}, "a", "") == [{}, {"b": 1}]
    with pytest.raises(RemoteProtocolError, match=r"^at\.a\[1\] must be an object, not a string$"):
        checks.objects({"a": [{}, "x"]}, "a", "/at")
