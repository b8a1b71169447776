"""Faults in the form of the simple API: status, object, and both forms of a stream."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dragoman._ir.errors import Fault, FaultKind
from dragoman.protocols.simple_chat import SPEC

K = FaultKind


def written(fault: Fault) -> tuple[int, dict[str, Any]]:
    status, body = SPEC.write_fault(fault, "req_1")
    value = json.loads(body)
    assert list(value) == ["error"]
    assert list(value["error"]) == ["message", "type", "code"]
    error: dict[str, Any] = value["error"]
    return status, error


@pytest.mark.parametrize(
    ("fault", "status", "kind", "code"),
    [
        (Fault(K.INVALID_REQUEST, "m"), 400, "invalid_request_error", "invalid_request"),
        (Fault(K.AUTHENTICATION, "m", 401), 401, "authentication_error", "invalid_api_key"),
        (
            Fault(K.NOT_FOUND, "m", 404, code="model_not_found"),
            404,
            "not_found_error",
            "model_not_found",
        ),
        (Fault(K.RATE_LIMIT, "m", 429), 429, "rate_limit_error", "rate_limit_exceeded"),
        (Fault(K.OVERLOADED, "m", 529), 503, "overloaded_error", "overloaded"),
        (Fault(K.TRUNCATED, "m"), 502, "server_error", "upstream_truncated"),
        # Codes that clients act on are the same whoever the sender is.
        (
            Fault(K.CONTEXT_LENGTH, "m", 400, code="too_many_prompt_tokens"),
            400,
            "invalid_request_error",
            "context_length_exceeded",
        ),
        (Fault(K.BILLING, "m", 402, code="no_money"), 402, "billing_error", "insufficient_quota"),
        # An error inside of a 200 answer, told before anything was sent.
        (Fault(K.SERVER, "m", 200), 500, "server_error", "internal_error"),
    ],
)
def test_status_type_and_code(fault: Fault, status: int, kind: str, code: str) -> None:
    assert written(fault) == (status, {"message": "m", "type": kind, "code": code})


@pytest.mark.parametrize("kind", FaultKind)
def test_every_kind_has_words_and_a_status(kind: FaultKind) -> None:
    status, error = written(Fault(kind, "m"))
    assert 400 <= status < 600
    assert all(type(value) is str and value for value in error.values())


@pytest.mark.parametrize(
    ("message", "param", "told"),
    [
        ("bad value", "temperature", "bad value (temperature)"),
        ("temperature is bad", "temperature", "temperature is bad"),
        ("bad value", None, "bad value"),
    ],
)
def test_the_place_at_fault_is_in_the_message(message: str, param: str | None, told: str) -> None:
    assert written(Fault(K.INVALID_REQUEST, message, 400, param=param))[1]["message"] == told
