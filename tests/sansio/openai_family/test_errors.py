"""Errors of OpenAI's protocols are read from any body, and written in the official form."""

from __future__ import annotations

from typing import Any, get_args

import msgspec
import pytest
from openai.types.responses import ResponseError
from openai.types.shared import ErrorObject

from dragoman._wire.errors import ErrorKind, WireError
from dragoman.protocols import UPSTREAMS
from dragoman.protocols._openai.errors import RESPONSE_ERROR_CODES
from dragoman.protocols.openai_chat import SPEC

K = ErrorKind


def body(value: Any) -> bytes:
    return msgspec.json.encode(value)


READ_ERRORS: list[tuple[int, bytes, WireError]] = [
    (
        400,
        body({"error": {"message": "m", "type": "invalid_request_error", "param": "n", "code": "unsupported"}}),
        WireError(K.INVALID_REQUEST, "m", 400, "unsupported", "invalid_request_error", "n"),
    ),
    (
        400,
        body({"error": {"message": "m", "type": "x", "param": None, "code": "context_length_exceeded"}}),
        WireError(K.CONTEXT_LENGTH, "m", 400, "context_length_exceeded", "x"),
    ),
    # Only the message shows the kind.
    (
        400,
        body({"error": {"message": "This model's maximum context length is 5", "code": "invalid_request_error"}}),
        WireError(K.CONTEXT_LENGTH, "This model's maximum context length is 5", 400, "invalid_request_error"),
    ),
    (400, body({"error": {"message": "m", "type": "too_many_prompt_tokens", "code": 400}}),
     WireError(K.CONTEXT_LENGTH, "m", 400, None, "too_many_prompt_tokens")),
    (429, body({"error": {"message": "m", "code": "insufficient_quota"}}),
     WireError(K.BILLING, "m", 429, "insufficient_quota")),
    (400, body({"error": {"message": "Your credit balance is too low", "type": "invalid_request_error"}}),
     WireError(K.BILLING, "Your credit balance is too low", 400, None, "invalid_request_error")),
    (400, body([{"error": {"code": 400, "message": "API key not valid.", "status": "INVALID_ARGUMENT"}}]),
     WireError(K.AUTHENTICATION, "API key not valid.", 400)),
    (400, body({"error": {"message": "m", "code": "model_not_found"}}),
     WireError(K.INVALID_REQUEST, "m", 400, "model_not_found")),
    (404, body({"error": {"message": "m", "code": "model_not_found"}}),
     WireError(K.NOT_FOUND, "m", 404, "model_not_found")),
    (401, body({"error": {"message": "m", "code": "401"}, "request_id": "r"}),
     WireError(K.AUTHENTICATION, "m", 401, request_id="r")),
    # DeepSeek's code is its type, one for all statuses.
    (401, body({"error": {"message": "m", "type": "authentication_error", "code": "invalid_request_error"}}),
     WireError(K.AUTHENTICATION, "m", 401, "invalid_request_error", "authentication_error")),
    (402, body({"error": {"message": "m", "type": "unknown_error", "code": "invalid_request_error"}}),
     WireError(K.BILLING, "m", 402, "invalid_request_error", "unknown_error")),
    # A name is more exact than the status, and whether it is the code or the type does not matter.
    (400, body({"error": {"message": "m", "code": "billing_hard_limit_reached"}}),
     WireError(K.BILLING, "m", 400, "billing_hard_limit_reached")),
    (429, body({"error": {"message": "m", "type": "insufficient_quota", "code": None}}),
     WireError(K.BILLING, "m", 429, None, "insufficient_quota")),
    (429, body({"error": {"message": "m", "type": "tokens", "code": "rate_limit_exceeded"}}),
     WireError(K.RATE_LIMIT, "m", 429, "rate_limit_exceeded", "tokens")),
    (503, body({"error": {"message": "m", "code": "slow_down"}}), WireError(K.OVERLOADED, "m", 503, "slow_down")),
    (500, body({"error": {"message": "m", "type": "overloaded_error"}}),
     WireError(K.OVERLOADED, "m", 500, None, "overloaded_error")),
    (400, body({"error": {"message": "m", "code": "request_too_large"}}),
     WireError(K.TOO_LARGE, "m", 400, "request_too_large")),
    (400, body({"error": {"message": "m", "code": "image_too_large"}}),
     WireError(K.INVALID_REQUEST, "m", 400, "image_too_large")),
    # but for names that say less than it
    (503, body({"error": {"message": "m", "type": "server_error"}}),
     WireError(K.OVERLOADED, "m", 503, None, "server_error")),
    (400, body({"error": {"message": "m", "type": "tokens"}}),
     WireError(K.INVALID_REQUEST, "m", 400, None, "tokens")),
    # A number is a name too, unless it is a status.
    (429, body({"error": {"message": "m", "code": "1113"}}), WireError(K.RATE_LIMIT, "m", 429, "1113")),
    (500, body({"error": {"message": "", "code": 3}}),
     WireError(K.SERVER, "the upstream reported an error (status 500)", 500, "3")),
    # The message may be outside of the object.
    (400, body({"error": {"code": "c"}, "message": "m"}), WireError(K.INVALID_REQUEST, "m", 400, "c")),
    # OpenRouter adds the message of its provider.
    (429, body({"error": {"code": 429, "message": "Provider returned error", "metadata": {"raw": "slow"}}}),
     WireError(K.RATE_LIMIT, "Provider returned error: slow", 429)),
    (400, body({"error": {"message": "m", "metadata": {"raw": 5}}}), WireError(K.INVALID_REQUEST, "m", 400)),
    # Groq shows what the model wrote.
    (400, body({"error": {"message": "No.", "code": "tool_use_failed", "failed_generation": '{"a": '}}),
     WireError(K.INVALID_REQUEST, 'No. The model wrote: {"a": ', 400, "tool_use_failed")),
    # Other shapes.
    (401, body({"detail": "Invalid API Key"}), WireError(K.AUTHENTICATION, "Invalid API Key", 401)),
    (422, body({"detail": [{"loc": ["body"]}]}), WireError(K.UNPROCESSABLE, '[{"loc":["body"]}]', 422)),
    (400, body({"code": "invalid-argument", "error": "bad"}),
     WireError(K.INVALID_REQUEST, "bad", 400, "invalid-argument")),
    (400, body([{"error": {"message": "m"}}]), WireError(K.INVALID_REQUEST, "m", 400)),
    (500, body({"odd": 1}), WireError(K.SERVER, "the upstream reported an error (status 500)", 500)),
    (500, body("broken"), WireError(K.SERVER, "broken", 500)),
    (404, b"no such page", WireError(K.NOT_FOUND, "no such page", 404)),
    (413, b"prompt is too long", WireError(K.CONTEXT_LENGTH, "prompt is too long", 413)),
    (502, b"<html>bad gateway</html>",
     WireError(K.UNREACHABLE, "the upstream returned status 502 and no readable message", 502)),
    (503, b"", WireError(K.OVERLOADED, "the upstream returned status 503 and no readable message", 503)),
    (503, b"\xff\xfe",
     WireError(K.OVERLOADED, "the upstream returned status 503 and no readable message", 503)),
    (500, body([]), WireError(K.SERVER, "the upstream reported an error (status 500)", 500)),
    (500, body([1]), WireError(K.SERVER, "[1]", 500)),
]  # fmt: skip


def test_both_protocols_have_the_same_errors() -> None:
    chat, responses = UPSTREAMS["openai_chat"], UPSTREAMS["openai_responses"]
    for name in ("read_error", "write_error", "is_native_error"):
        assert getattr(chat, name) is getattr(responses, name)


def test_read_error(subtests: pytest.Subtests) -> None:
    for status, sent, expected in READ_ERRORS:
        with subtests.test(status=status, sent=sent):
            assert SPEC.read_error(status, sent) == expected


@pytest.mark.promise("S18")
def test_long_messages_are_cut() -> None:
    assert len(SPEC.read_error(500, b"x" * 9999).message) == 2000
    assert len(SPEC.read_error(500, body({"error": {"message": "x" * 9999}})).message) == 2000


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
def test_which_bodies_are_the_official_error_object(sent: bytes, expected: bool) -> None:
    assert SPEC.is_native_error(sent) is expected


WRITTEN_ERRORS: list[tuple[WireError, int, str, str | None]] = [
    (WireError(K.INVALID_REQUEST, "m"), 400, "invalid_request_error", None),
    (
        WireError(K.INVALID_REQUEST, "m", 422, "unsupported_value"),
        422,
        "invalid_request_error",
        "unsupported_value",
    ),
    (
        WireError(K.CONTEXT_LENGTH, "m", 413, "odd"),
        413,
        "invalid_request_error",
        "context_length_exceeded",
    ),
    (WireError(K.BILLING, "m", 402, "odd"), 429, "insufficient_quota", "insufficient_quota"),
    (WireError(K.BILLING, "m"), 429, "insufficient_quota", "insufficient_quota"),
    (WireError(K.OVERLOADED, "m", 529), 503, "server_error", "overloaded"),
    (WireError(K.RATE_LIMIT, "m", 200), 429, "rate_limit_error", "rate_limit_exceeded"),
    # Codes that clients act on are never the sender's.
    (WireError(K.RATE_LIMIT, "m", 429, "1302"), 429, "rate_limit_error", "rate_limit_exceeded"),
    (WireError(K.SERVER, "m", 600), 500, "server_error", None),
    (WireError(K.TRUNCATED, "m"), 502, "server_error", "upstream_truncated"),
    (WireError(K.AUTHENTICATION, "m", 401), 401, "invalid_request_error", "invalid_api_key"),
]


def test_write_error(subtests: pytest.Subtests) -> None:
    for wire_error, status, named, code in WRITTEN_ERRORS:
        with subtests.test(status=status, named=named):
            got, sent = SPEC.write_error(wire_error, "req_1")
            error = msgspec.json.decode(sent)["error"]
            assert got == status
            assert error == {"message": "m", "type": named, "param": wire_error.param, "code": code}
            ErrorObject.model_validate(error, strict=True)


def test_every_kind_is_written_as_an_official_error_object(subtests: pytest.Subtests) -> None:
    for kind in list(ErrorKind):
        with subtests.test(kind=kind):
            status, sent = SPEC.write_error(WireError(kind, "m"), None)
            assert 400 <= status < 600
            assert SPEC.is_native_error(sent)


def test_the_list_of_codes_is_the_vendors() -> None:
    assert frozenset(get_args(ResponseError.model_fields["code"].annotation)) == RESPONSE_ERROR_CODES
