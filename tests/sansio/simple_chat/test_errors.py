"""Errors in the form of the simple API: status, object, and both forms of a stream."""

import json
from typing import Any

import pytest

from dragoman._wire.errors import ErrorKind, WireError
from dragoman.protocols.simple_chat import SPEC


def written(wire_error: WireError) -> tuple[int, dict[str, Any]]:
    status, body = SPEC.write_error(wire_error, "req_1")
    value = json.loads(body)
    assert list(value) == ["error"]
    assert list(value["error"]) == ["message", "type", "code"]
    error: dict[str, Any] = value["error"]
    return status, error


def test_every_kind_has_a_code_and_a_status(subtests: pytest.Subtests) -> None:
    for kind in ErrorKind:
        with subtests.test(kind=kind):
            status, error = written(WireError(kind, "m"))
            assert 400 <= status < 600
            assert all(type(value) is str and value for value in error.values())
