"""Errors of Chat upstreams as faults, and faults in the form of Chat."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from openai.types.shared import ErrorObject

from dragoman._ir.errors import Fault, FaultKind
from dragoman.protocols.openai_chat import SPEC

K = FaultKind


def body(value: Any) -> bytes:
    return msgspec.json.encode(value)


@pytest.mark.parametrize(
    ("status", "sent", "expected"),
    [
        (
            400,
            body({"error": {"message": "m", "type": "invalid_request_error", "param": "n", "code": "unsupported"}}),
            Fault(K.INVALID_REQUEST, "m", 400, "unsupported", "invalid_request_error", "n"),
        ),
        (
            400,
            body({"error": {"message": "m", "type": "x", "param": None, "code": "context_length_exceeded"}}),
            Fault(K.CONTEXT_LENGTH, "m", 400, "context_length_exceeded", "x"),
        ),
        # Words alone.
        (
            400,
            body({"error": {"message": "This model's maximum context length is 5", "code": "invalid_request_error"}}),
            Fault(K.CONTEXT_LENGTH, "This model's maximum context length is 5", 400, "invalid_request_error"),
        ),
        (400, body({"error": {"message": "m", "type": "too_many_prompt_tokens", "code": 400}}),
         Fault(K.CONTEXT_LENGTH, "m", 400, None, "too_many_prompt_tokens")),
        (429, body({"error": {"message": "m", "code": "insufficient_quota"}}),
         Fault(K.BILLING, "m", 429, "insufficient_quota")),
        (400, body({"error": {"message": "Your credit balance is too low", "type": "invalid_request_error"}}),
         Fault(K.BILLING, "Your credit balance is too low", 400, None, "invalid_request_error")),
        (400, body([{"error": {"code": 400, "message": "API key not valid.", "status": "INVALID_ARGUMENT"}}]),
         Fault(K.AUTHENTICATION, "API key not valid.", 400)),
        (400, body({"error": {"message": "m", "code": "model_not_found"}}),
         Fault(K.NOT_FOUND, "m", 400, "model_not_found")),
        (401, body({"error": {"message": "m", "code": "401"}, "request_id": "r"}),
         Fault(K.AUTHENTICATION, "m", 401, request_id="r")),
        # OpenRouter puts its provider's words beside.
        (429, body({"error": {"code": 429, "message": "Provider returned error", "metadata": {"raw": "slow"}}}),
         Fault(K.RATE_LIMIT, "Provider returned error: slow", 429)),
        (400, body({"error": {"message": "m", "metadata": {"raw": 5}}}), Fault(K.INVALID_REQUEST, "m", 400)),
        # Other shapes.
        (401, body({"detail": "Invalid API Key"}), Fault(K.AUTHENTICATION, "Invalid API Key", 401)),
        (422, body({"detail": [{"loc": ["body"]}]}), Fault(K.UNPROCESSABLE, '[{"loc":["body"]}]', 422)),
        (400, body({"code": "invalid-argument", "error": "bad"}),
         Fault(K.INVALID_REQUEST, "bad", 400, "invalid-argument")),
        (400, body([{"error": {"message": "m"}}]), Fault(K.INVALID_REQUEST, "m", 400)),
        (500, body({"odd": 1}), Fault(K.SERVER, "the upstream reported an error (status 500)", 500)),
        (500, body("broken"), Fault(K.SERVER, "broken", 500)),
        (404, b"no such page", Fault(K.NOT_FOUND, "no such page", 404)),
        (413, b"prompt is too long", Fault(K.CONTEXT_LENGTH, "prompt is too long", 413)),
        (502, b"<html>bad gateway</html>",
         Fault(K.UNREACHABLE, "the upstream answered with status 502 and no readable message", 502)),
        (503, b"", Fault(K.OVERLOADED, "the upstream answered with status 503 and no readable message", 503)),
        (503, b"\xff\xfe", Fault(K.OVERLOADED, "the upstream answered with status 503 and no readable message", 503)),
        (500, body([]), Fault(K.SERVER, "[]", 500)),
    ],
)  # fmt: skip
def test_read(status: int, sent: bytes, expected: Fault) -> None:
    assert SPEC.read_fault(status, sent) == expected


@pytest.mark.promise("S18")
def test_long_messages_are_cut() -> None:
    assert len(SPEC.read_fault(500, b"x" * 9999).message) == 2000
    assert len(SPEC.read_fault(500, body({"error": {"message": "x" * 9999}})).message) == 2000


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        (body({"error": {"message": "m"}}), True),
        (body({"error": "m"}), False),
        (body({"error": {}}), False),
        (body([1]), False),
        (b"<html>", False),
    ],
)
def test_whether_clients_can_read_a_body(sent: bytes, expected: bool) -> None:
    assert SPEC.is_fault(sent) is expected


@pytest.mark.parametrize(
    ("fault", "status", "named", "code"),
    [
        (Fault(K.INVALID_REQUEST, "m"), 400, "invalid_request_error", None),
        (
            Fault(K.INVALID_REQUEST, "m", 422, "unsupported_value"),
            422,
            "invalid_request_error",
            "unsupported_value",
        ),
        (Fault(K.CONTEXT_LENGTH, "m", 413, "odd"), 413, "invalid_request_error", "context_length_exceeded"),
        (Fault(K.BILLING, "m", 402, "odd"), 429, "insufficient_quota", "insufficient_quota"),
        (Fault(K.BILLING, "m"), 429, "insufficient_quota", "insufficient_quota"),
        (Fault(K.OVERLOADED, "m", 529), 503, "server_error", "overloaded"),
        (Fault(K.RATE_LIMIT, "m", 200), 429, "rate_limit_error", "rate_limit_exceeded"),
        (Fault(K.TRUNCATED, "m"), 502, "server_error", "upstream_truncated"),
        (Fault(K.AUTHENTICATION, "m", 401), 401, "invalid_request_error", "invalid_api_key"),
    ],
)
def test_write(fault: Fault, status: int, named: str, code: str | None) -> None:
    got, sent = SPEC.write_fault(fault, "req_1")
    error = msgspec.json.decode(sent)["error"]
    assert got == status
    assert error == {"message": "m", "type": named, "param": fault.param, "code": code}
    ErrorObject.model_validate(error, strict=True)


@pytest.mark.parametrize("kind", list(FaultKind))
def test_every_kind_has_a_form_that_reads_back_as_an_error(kind: FaultKind) -> None:
    status, sent = SPEC.write_fault(Fault(kind, "m"), None)
    assert 400 <= status < 600
    assert SPEC.is_fault(sent)
