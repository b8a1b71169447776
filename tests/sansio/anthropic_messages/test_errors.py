"""Error bodies, read and written."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman._wire.errors import ErrorKind, WireError
from dragoman._wire.json import decode, encode
from dragoman.protocols.anthropic_messages import SPEC

CREDIT = "Your credit balance is too low to access the Anthropic API."


def body(kind: str, message: str = "words", **fields: Any) -> bytes:
    return encode(
        {"type": "error", "error": {"type": kind, "message": message, **fields}, "request_id": "req_1"}
    )


READ_ERRORS: list[tuple[int, bytes, ErrorKind, str]] = [
    (400, body("invalid_request_error"), ErrorKind.INVALID_REQUEST, "words"),
    (401, body("authentication_error"), ErrorKind.AUTHENTICATION, "words"),
    (402, body("billing_error"), ErrorKind.BILLING, "words"),
    (403, body("permission_error"), ErrorKind.PERMISSION, "words"),
    (404, body("not_found_error"), ErrorKind.NOT_FOUND, "words"),
    (409, body("conflict_error"), ErrorKind.CONFLICT, "words"),
    (412, body("memory_precondition_failed_error"), ErrorKind.CONFLICT, "words"),
    (413, body("request_too_large"), ErrorKind.TOO_LARGE, "words"),
    (422, body("invalid_request_error"), ErrorKind.UNPROCESSABLE, "words"),
    (429, body("rate_limit_error"), ErrorKind.RATE_LIMIT, "words"),
    (500, body("api_error"), ErrorKind.SERVER, "words"),
    (502, body("api_error"), ErrorKind.UNREACHABLE, "words"),
    (504, body("timeout_error"), ErrorKind.TIMEOUT, "words"),
    (529, body("overloaded_error"), ErrorKind.OVERLOADED, "words"),
    (400, body("odd_error"), ErrorKind.INVALID_REQUEST, "words"),
    (
        400,
        body("invalid_request_error", "prompt is too long: 3 tokens > 2 maximum"),
        ErrorKind.CONTEXT_LENGTH,
        "prompt is too long: 3 tokens > 2 maximum",
    ),
    (400, body("invalid_request_error", CREDIT), ErrorKind.BILLING, CREDIT),
    (
        400,
        body("invalid_request_error", "API key not valid."),
        ErrorKind.AUTHENTICATION,
        "API key not valid.",
    ),
    (
        429,
        body("rate_limit_error", details={"error_code": "enforced_spend_limit_reached"}),
        ErrorKind.BILLING,
        "words",
    ),
    (401, b'{"detail":"Invalid API Key"}', ErrorKind.AUTHENTICATION, "Invalid API Key"),
    (422, b'{"detail":[{"msg":"bad"}]}', ErrorKind.UNPROCESSABLE, '[{"msg":"bad"}]'),
    (400, b'{"code":"x","error":"Incorrect"}', ErrorKind.INVALID_REQUEST, "Incorrect"),
    (500, b'{"error":{"message":""}}', ErrorKind.SERVER, "the upstream reported an error (status 500)"),
    (503, b"upstream connect error", ErrorKind.OVERLOADED, "upstream connect error"),
    (400, b"maximum context length is 5", ErrorKind.CONTEXT_LENGTH, "maximum context length is 5"),
    (
        502,
        b"<html>",
        ErrorKind.UNREACHABLE,
        "the upstream returned status 502 and no readable message",
    ),
    (500, b"\xff\x00", ErrorKind.SERVER, "the upstream returned status 500 and no readable message"),
    (500, b"", ErrorKind.SERVER, "the upstream returned status 500 and no readable message"),
    (500, b"[1]", ErrorKind.SERVER, "[1]"),
    (500, b"x" * 5000, ErrorKind.SERVER, "x" * 2000),
]


@pytest.mark.promise("S18")
def test_read_error(subtests: pytest.Subtests) -> None:
    for status, data, kind, message in READ_ERRORS:
        with subtests.test(status=status, data=data):
            error = SPEC.read_error(status, data)
            assert (error.kind, error.message, error.status) == (kind, message, status)


def test_read_error_keeps_code_param_and_request_id() -> None:
    data = body("invalid_request_error", code="c", param="p")
    assert SPEC.read_error(400, data) == WireError(
        ErrorKind.INVALID_REQUEST, "words", 400, "c", "invalid_request_error", "p", "req_1"
    )


WRITTEN_ERRORS: list[tuple[WireError, int, str, str]] = [
    (WireError(ErrorKind.INVALID_REQUEST, "m"), 400, "invalid_request_error", "m"),
    (WireError(ErrorKind.CONTEXT_LENGTH, "m"), 400, "invalid_request_error", "prompt is too long: m"),
    (
        WireError(ErrorKind.CONTEXT_LENGTH, "The prompt is too long."),
        400,
        "invalid_request_error",
        "The prompt is too long.",
    ),
    (WireError(ErrorKind.AUTHENTICATION, "m"), 401, "authentication_error", "m"),
    (WireError(ErrorKind.BILLING, "m", 429), 402, "billing_error", "m"),
    (WireError(ErrorKind.METHOD, "m"), 405, "invalid_request_error", "m"),
    (WireError(ErrorKind.TIMEOUT, "m"), 504, "timeout_error", "m"),
    (WireError(ErrorKind.TIMEOUT, "m", 408), 408, "timeout_error", "m"),
    (WireError(ErrorKind.TOO_LARGE, "m"), 413, "request_too_large", "m"),
    (WireError(ErrorKind.RATE_LIMIT, "m", 429), 429, "rate_limit_error", "m"),
    (WireError(ErrorKind.OVERLOADED, "m", 503), 529, "overloaded_error", "m"),
    (WireError(ErrorKind.OVERLOADED, "m", 529), 529, "overloaded_error", "m"),
    (WireError(ErrorKind.SERVER, "m", 501), 501, "api_error", "m"),
    (WireError(ErrorKind.UNREACHABLE, "m"), 502, "api_error", "m"),
    (WireError(ErrorKind.TRUNCATED, "m"), 502, "api_error", "m"),
    (WireError(ErrorKind.UNREADABLE, "m"), 502, "api_error", "m"),
    (WireError(ErrorKind.MISCONFIGURED, "m"), 503, "api_error", "m"),
]


def test_write_error(subtests: pytest.Subtests) -> None:
    for error, status, kind, message in WRITTEN_ERRORS:
        with subtests.test(status=status, kind=kind):
            written, data = SPEC.write_error(error, "req_2")
            assert written == status
            assert decode(data) == {
                "type": "error",
                "error": {"type": kind, "message": message},
                "request_id": "req_2",
            }
            assert SPEC.is_native_error(data)


@pytest.mark.parametrize(
    ("code", "details"),
    [
        ("thread_unsupported_request", {"error_code": "thread_unsupported_request"}),
        ("enforced_spend_limit_reached", {"error_code": "enforced_spend_limit_reached"}),
        ("unsupported_value", None),  # of another protocol
        (None, None),
    ],
)
def test_codes_of_the_protocol_are_written_as_details(code: str | None, details: object) -> None:
    _, data = SPEC.write_error(WireError(ErrorKind.INVALID_REQUEST, "m", 400, code), None)
    assert decode(data)["error"].get("details") == details
    assert SPEC.read_error(400, data).code == (code if details else None)


def test_every_kind_has_a_type() -> None:
    for kind in ErrorKind:
        status, data = SPEC.write_error(WireError(kind, "m"), None)
        assert status >= 400
        assert decode(data)["request_id"] is None


@pytest.mark.parametrize(
    "data",
    [b"{", b"[]", b'{"type":"x"}', b'{"type":"error"}', b'{"type":"error","error":{"type":"a","message":1}}'],
)
def test_bodies_that_are_no_native_error(data: bytes) -> None:
    assert not SPEC.is_native_error(data)
