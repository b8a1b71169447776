"""Errors of the Responses protocol: bodies read, classified and written."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest
from openai.types.responses import ResponseError
from oracle.types import check_error_body

from dragoman._wire.errors import STATUS_BY_KIND, ErrorKind, WireError
from dragoman._wire.json import encode
from dragoman.protocols.openai_responses import SPEC
from dragoman.protocols.openai_responses.errors import (
    ERRORS,
    RESPONSE_ERROR_CODES,
    error_object,
    response_error,
)

ORIGIN = "openai_responses"
K = ErrorKind


def error(
    code: str | None = None, sort: str = "invalid_request_error", message: str = "m", **more: Any
) -> bytes:
    return encode({"error": {"message": message, "type": sort, "param": None, "code": code, **more}})


BODIES: list[tuple[int, bytes, WireError]] = [
    (
        400,
        error("unsupported_value", param="input"),
        WireError(K.INVALID_REQUEST, "m", 400, "unsupported_value", "invalid_request_error", "input"),
    ),
    (
        400,
        error("model_not_found"),
        WireError(K.INVALID_REQUEST, "m", 400, "model_not_found", "invalid_request_error"),
    ),
    (
        404,
        error("model_not_found"),
        WireError(K.NOT_FOUND, "m", 404, "model_not_found", "invalid_request_error"),
    ),
    (
        401,
        error("invalid_api_key"),
        WireError(K.AUTHENTICATION, "m", 401, "invalid_api_key", "invalid_request_error"),
    ),
    (
        400,
        error("context_length_exceeded"),
        WireError(K.CONTEXT_LENGTH, "m", 400, "context_length_exceeded", "invalid_request_error"),
    ),
    (
        400,
        error(None, message="Your input exceeds the context window of this model."),
        WireError(
            K.CONTEXT_LENGTH,
            "Your input exceeds the context window of this model.",
            400,
            None,
            "invalid_request_error",
        ),
    ),
    (
        400,
        error(None, message="Your credit balance is too low"),
        WireError(K.BILLING, "Your credit balance is too low", 400, None, "invalid_request_error"),
    ),
    (
        413,
        error(None, message="prompt is too long"),
        WireError(K.CONTEXT_LENGTH, "prompt is too long", 413, None, "invalid_request_error"),
    ),
    (
        429,
        error("rate_limit_exceeded", "tokens"),
        WireError(K.RATE_LIMIT, "m", 429, "rate_limit_exceeded", "tokens"),
    ),
    (
        429,
        error("insufficient_quota", "insufficient_quota"),
        WireError(K.BILLING, "m", 429, "insufficient_quota", "insufficient_quota"),
    ),
    # DeepSeek's code is its type.
    (
        401,
        error("invalid_request_error", "authentication_error"),
        WireError(K.AUTHENTICATION, "m", 401, "invalid_request_error", "authentication_error"),
    ),
    (
        402,
        error("invalid_request_error", "unknown_error"),
        WireError(K.BILLING, "m", 402, "invalid_request_error", "unknown_error"),
    ),
    (429, error(None, "insufficient_quota"), WireError(K.BILLING, "m", 429, None, "insufficient_quota")),
    (
        400,
        error("image_too_large"),
        WireError(K.INVALID_REQUEST, "m", 400, "image_too_large", "invalid_request_error"),
    ),
    (500, error(None, "server_error"), WireError(K.SERVER, "m", 500, None, "server_error")),
    (529, error(None, "overloaded_error"), WireError(K.OVERLOADED, "m", 529, None, "overloaded_error")),
    (
        400,
        b'{"code":"invalid-argument","error":"no such key"}',
        WireError(K.INVALID_REQUEST, "no such key", 400, "invalid-argument"),
    ),
    (422, b'{"detail":[{"loc":["body"]}]}', WireError(K.UNPROCESSABLE, '[{"loc":["body"]}]', 422)),
    (401, b'{"detail":"Unauthorized"}', WireError(K.AUTHENTICATION, "Unauthorized", 401)),
    (
        500,
        b'{"error":{"message":"","code":3}}',
        WireError(K.SERVER, "the upstream returned status 500", 500, "3"),
    ),
    (404, b'"not here"', WireError(K.NOT_FOUND, "not here", 404)),
    (
        502,
        b"<html>Bad gateway</html>",
        WireError(K.UNREACHABLE, "the upstream returned status 502 and no readable message", 502),
    ),
    (
        500,
        b"\xff\xfe",
        WireError(K.SERVER, "the upstream returned status 500 and no readable message", 500),
    ),
    (503, b"upstream is busy\n", WireError(K.OVERLOADED, "upstream is busy", 503)),
    (500, b"", WireError(K.SERVER, "the upstream returned status 500 and no readable message", 500)),
    (500, b"x" * 3000, WireError(K.SERVER, "x" * 2000, 500)),
]


@pytest.mark.promise("S18")
def test_error_bodies_of_all_shapes(subtests: pytest.Subtests) -> None:
    for status, body, error in BODIES:
        with subtests.test(status=status, body=body):
            assert SPEC.read_error(status, body) == error


@pytest.mark.parametrize(
    ("body", "is_one"),
    [
        (error(), True),
        (b'{"error":"x"}', False),
        (b'{"error":{}}', False),
        (b"[]", False),
        (b"<html>", False),
    ],
)
def test_native_errors(body: bytes, is_one: bool) -> None:
    assert SPEC.is_native_error(body) is is_one


def test_every_kind_has_a_body_and_a_legal_code(subtests: pytest.Subtests) -> None:
    for kind in ErrorKind:
        with subtests.test(kind=kind):
            error = WireError(kind, "m")
            status, body = SPEC.write_error(error, "req_1")
            assert check_error_body(ORIGIN, body) == []
            assert status == {402: 429}.get(STATUS_BY_KIND[kind], STATUS_BY_KIND[kind])
            sort, code = ERRORS[kind]
            assert json.loads(body)["error"] == {"message": "m", "type": sort, "param": None, "code": code}
            ResponseError.model_validate(response_error(error))


def test_the_list_of_codes_is_the_vendors() -> None:
    assert frozenset(get_args(ResponseError.model_fields["code"].annotation)) == RESPONSE_ERROR_CODES


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (WireError(K.OVERLOADED, "m", 529), 503),
        (WireError(K.BILLING, "m", 402), 429),
        (WireError(K.TIMEOUT, "m", 408), 408),
        (WireError(K.SERVER, "m", 200), 500),
    ],
)
def test_statuses(error: WireError, status: int) -> None:
    assert SPEC.write_error(error, None)[0] == status


def test_a_senders_code_is_kept_unless_clients_act_on_the_tables() -> None:
    assert error_object(WireError(K.INVALID_REQUEST, "m", code="odd", param="input"))["code"] == "odd"
    assert error_object(WireError(K.CONTEXT_LENGTH, "m", code="odd"))["code"] == "context_length_exceeded"
    assert (
        response_error(WireError(K.INVALID_REQUEST, "m", code="image_too_large"))["code"] == "image_too_large"
    )
    # Not in the closed list, and only this member of it makes agents give up at once.
    assert (
        response_error(WireError(K.CONTEXT_LENGTH, "m", code="context_length_exceeded"))["code"]
        == "invalid_prompt"
    )
