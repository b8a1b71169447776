"""Errors within Responses: `response.error` and the `error` event."""

import pytest
from openai.types.responses import ResponseError, ResponseErrorEvent

from dragoman._wire.errors import ErrorKind, WireError
from dragoman.protocols.openai_responses.errors import error_event, response_error

K = ErrorKind


def test_every_kind_has_a_legal_code(subtests: pytest.Subtests) -> None:
    for kind in ErrorKind:
        with subtests.test(kind=kind):
            ResponseError.model_validate(response_error(WireError(kind, "m")))


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (WireError(K.INVALID_REQUEST, "m", code="image_too_large"), "image_too_large"),
        # Not in the closed list, and only this member of it makes agents give up at once.
        (WireError(K.CONTEXT_LENGTH, "m", code="context_length_exceeded"), "invalid_prompt"),
        (WireError(K.BILLING, "m", code="insufficient_quota"), "rate_limit_exceeded"),
        (WireError(K.OVERLOADED, "m", code="overloaded"), "server_error"),
    ],
)
def test_the_code_of_a_failed_response_is_from_the_closed_list(error: WireError, code: str) -> None:
    assert response_error(error) == {"code": code, "message": "m"}


def test_the_event_is_flat_and_nested() -> None:
    event = error_event(WireError(K.CONTEXT_LENGTH, "m", code="odd", param="input"), 7)
    flat = {"code": "context_length_exceeded", "message": "m", "param": "input"}
    assert event == {
        "type": "error",
        "sequence_number": 7,
        **flat,
        "error": {**flat, "type": "invalid_request_error"},
    }
    ResponseErrorEvent.model_validate(event)
