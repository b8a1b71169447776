"""Errors in Responses: the one of a failed response, and the event. Error bodies have the form of the family."""

from __future__ import annotations

from dragoman._wire.errors import ErrorKind, WireError
from dragoman._wire.json import JSONObject
from dragoman.protocols._openai.errors import RESPONSE_ERROR_CODES, error_object

# Replacements of codes outside of the list. A prompt that is too long becomes `invalid_prompt`: the list has no
# `context_length_exceeded` (that one goes into the `error` event), and with its other codes Codex 0.169.0 sends the
# same prompt again (observed in November 2026).
RESPONSE_ERROR_BY_KIND: dict[ErrorKind, str] = {
    ErrorKind.CONTEXT_LENGTH: "invalid_prompt",
    ErrorKind.INVALID_REQUEST: "invalid_prompt",
    ErrorKind.TOO_LARGE: "invalid_prompt",
    ErrorKind.UNPROCESSABLE: "invalid_prompt",
    ErrorKind.RATE_LIMIT: "rate_limit_exceeded",
    ErrorKind.BILLING: "rate_limit_exceeded",
}
DEFAULT_RESPONSE_ERROR = "server_error"


def response_error(error: WireError) -> JSONObject:
    """Return `response.error`, whose code is from a closed list."""
    code = error.code
    if code not in RESPONSE_ERROR_CODES:
        code = RESPONSE_ERROR_BY_KIND.get(error.kind, DEFAULT_RESPONSE_ERROR)
    return {"code": code, "message": error.message}


def error_event(error: WireError, sequence_number: int) -> JSONObject:
    """Return the `error` event, both flat as in openai-python 3.54.0 and nested as the vendor's server sends it."""
    nested = error_object(error)
    return {
        "type": "error",
        "sequence_number": sequence_number,
        "code": nested["code"],
        "message": nested["message"],
        "param": nested["param"],
        "error": nested,
    }


def has_error(response: JSONObject) -> bool:
    """True if a response has an error, and not just the empty value of each of its members."""
    error = response.get("error")
    return any(error.values()) if type(error) is dict else bool(error)
