"""Errors in the form of the simple API: status, object, and both forms of a stream."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dragoman._wire.errors import ErrorKind, WireError
from dragoman.protocols.simple_chat import SPEC

K = ErrorKind


def written(wire_error: WireError) -> tuple[int, dict[str, Any]]:
    status, body = SPEC.write_error(wire_error, "req_1")
    value = json.loads(body)
    assert list(value) == ["error"]
    assert list(value["error"]) == ["message", "type", "code"]
    error: dict[str, Any] = value["error"]
    return status, error


ERRORS: list[tuple[WireError, int, str, str]] = [
    (WireError(K.INVALID_REQUEST, "m"), 400, "invalid_request_error", "invalid_request"),
    (WireError(K.AUTHENTICATION, "m", 401), 401, "authentication_error", "invalid_api_key"),
    (
        WireError(K.NOT_FOUND, "m", 404, code="model_not_found"),
        404,
        "not_found_error",
        "model_not_found",
    ),
    (WireError(K.RATE_LIMIT, "m", 429), 429, "rate_limit_error", "rate_limit_exceeded"),
    (WireError(K.OVERLOADED, "m", 529), 503, "overloaded_error", "overloaded"),
    (WireError(K.TRUNCATED, "m"), 502, "server_error", "upstream_truncated"),
    # The sender's own code does not replace codes that clients act on.
    (
        WireError(K.CONTEXT_LENGTH, "m", 400, code="too_many_prompt_tokens"),
        400,
        "invalid_request_error",
        "context_length_exceeded",
    ),
    (WireError(K.BILLING, "m", 402, code="no_money"), 402, "billing_error", "insufficient_quota"),
    # An error inside of a 200 response, before anything was sent.
    (WireError(K.SERVER, "m", 200), 500, "server_error", "internal_error"),
]


def test_status_type_and_code(subtests: pytest.Subtests) -> None:
    for error, status, kind, code in ERRORS:
        with subtests.test(status=status, kind=kind):
            assert written(error) == (status, {"message": "m", "type": kind, "code": code})


def test_every_kind_has_a_code_and_a_status(subtests: pytest.Subtests) -> None:
    for kind in ErrorKind:
        with subtests.test(kind=kind):
            status, error = written(WireError(kind, "m"))
            assert 400 <= status < 600
            assert all(type(value) is str and value for value in error.values())


@pytest.mark.parametrize(
    ("message", "param", "reported"),
    [
        ("bad value", "temperature", "bad value (temperature)"),
        ("temperature is bad", "temperature", "temperature is bad"),
        ("bad value", None, "bad value"),
    ],
)
def test_the_path_is_in_the_message(message: str, param: str | None, reported: str) -> None:
    assert written(WireError(K.INVALID_REQUEST, message, 400, param=param))[1]["message"] == reported
