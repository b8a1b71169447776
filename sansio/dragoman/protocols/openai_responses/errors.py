"""Errors of the Responses protocol, in HTTP bodies and in responses.

One function classifies an error object wherever it stands: by its code and type, else by the status, and a prompt that
is too long also by its message. Bodies of other shapes still give a readable message.
"""

from __future__ import annotations

from dragoman._wire.errors import (
    STATUS_BY_KIND,
    ErrorKind,
    WireError,
    kind_from_message,
    kind_of_status,
    readable_message,
)
from dragoman._wire.exceptions import RemoteProtocolError
from dragoman._wire.json import JSON, JSONObject, decode, encode, object_or_none
from dragoman.protocols.openai_responses.checks import object_or_empty

# Codes and types that are more precise than the status, in bodies and in streams.
KIND_BY_CODE: dict[str, ErrorKind] = {
    "authentication_error": ErrorKind.AUTHENTICATION,
    "billing_hard_limit_reached": ErrorKind.BILLING,
    "context_length_exceeded": ErrorKind.CONTEXT_LENGTH,
    "insufficient_quota": ErrorKind.BILLING,
    "invalid_api_key": ErrorKind.AUTHENTICATION,
    "invalid_prompt": ErrorKind.INVALID_REQUEST,
    "invalid_request_error": ErrorKind.INVALID_REQUEST,
    "model_not_found": ErrorKind.NOT_FOUND,
    "overloaded": ErrorKind.OVERLOADED,
    "overloaded_error": ErrorKind.OVERLOADED,
    "permission_error": ErrorKind.PERMISSION,
    "rate_limit_error": ErrorKind.RATE_LIMIT,
    "rate_limit_exceeded": ErrorKind.RATE_LIMIT,
    "request_too_large": ErrorKind.TOO_LARGE,
    "server_error": ErrorKind.SERVER,
    "server_is_overloaded": ErrorKind.OVERLOADED,
    "slow_down": ErrorKind.OVERLOADED,
    "vector_store_timeout": ErrorKind.TIMEOUT,
}
# Codes that only repeat the type: a status is more precise. DeepSeek sends one code for all statuses (recorded by
# crmne/ruby_llm, spec/fixtures/vcr_cassettes).
GENERIC_CODES = frozenset(("invalid_request_error",))

# kind -> (type, code) of the error object.
ERRORS: dict[ErrorKind, tuple[str, str | None]] = {
    ErrorKind.INVALID_REQUEST: ("invalid_request_error", None),
    ErrorKind.CONTEXT_LENGTH: ("invalid_request_error", "context_length_exceeded"),
    ErrorKind.AUTHENTICATION: ("invalid_request_error", "invalid_api_key"),
    ErrorKind.BILLING: ("insufficient_quota", "insufficient_quota"),
    ErrorKind.PERMISSION: ("permission_error", None),
    ErrorKind.NOT_FOUND: ("invalid_request_error", "model_not_found"),
    ErrorKind.METHOD: ("invalid_request_error", None),
    ErrorKind.TIMEOUT: ("server_error", None),
    ErrorKind.CONFLICT: ("conflict", None),
    ErrorKind.TOO_LARGE: ("invalid_request_error", "request_too_large"),
    ErrorKind.UNPROCESSABLE: ("invalid_request_error", None),
    ErrorKind.MEDIA_TYPE: ("invalid_request_error", None),
    ErrorKind.RATE_LIMIT: ("rate_limit_error", "rate_limit_exceeded"),
    ErrorKind.OVERLOADED: ("server_error", "overloaded"),
    ErrorKind.SERVER: ("server_error", None),
    ErrorKind.UNREACHABLE: ("server_error", None),
    ErrorKind.TRUNCATED: ("server_error", None),
    ErrorKind.UNREADABLE: ("server_error", None),
    ErrorKind.MISCONFIGURED: ("server_error", None),
    ErrorKind.CANCELLED: ("server_error", None),
}
# Kinds whose code clients act on, so the sender's own code must not replace it.
FIXED_CODES = frozenset((ErrorKind.CONTEXT_LENGTH, ErrorKind.BILLING, ErrorKind.RATE_LIMIT))

# `response.error.code` is a closed list (openai-python 3.52.0, `ResponseError`).
RESPONSE_ERROR_CODES = frozenset(
    (
        "server_error",
        "rate_limit_exceeded",
        "invalid_prompt",
        "data_residency_mismatch",
        "bio_policy",
        "misalignment_policy_violation",
        "vector_store_timeout",
        "invalid_image",
        "invalid_image_format",
        "invalid_base64_image",
        "invalid_image_url",
        "image_too_large",
        "image_too_small",
        "image_parse_error",
        "image_content_policy_violation",
        "invalid_image_mode",
        "image_file_too_large",
        "unsupported_image_media_type",
        "empty_image_file",
        "failed_to_download_image",
        "image_file_not_found",
    )
)
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

# Statuses of other vendors, and those that are sent instead.
STATUS_REPLACEMENTS = {402: 429, 529: 503}


# Longer texts are dumps, not messages.
_MAX_MESSAGE = 2000

# Members with the message, in bodies of other shapes too.
_MESSAGE_FIELDS = ("message", "detail", "error", "msg", "title")


def read_error(status: int, body: bytes) -> WireError:
    """Read an upstream's error response. Never raises."""
    try:
        value = decode(body)
    except RemoteProtocolError:
        return parse_error(readable_message(status, body), status)
    return parse_error(value, status)


def is_native_error(body: bytes) -> bool:
    """True if a body is an error as clients of this protocol read it: {"error": {"message": ...}}."""
    error = (object_or_none(body) or {}).get("error")
    return type(error) is dict and type(error.get("message")) is str


def parse_error(value: JSON, status: int | None = None) -> WireError:
    """Return the error in a decoded error object, in an object that has one under `error`, or in any other value."""
    holder = object_or_empty(value)
    nested = holder.get("error")
    error: JSONObject = nested if type(nested) is dict else holder
    code = _code_text(error.get("code")) or _code_text(holder.get("code"))
    error_type = _code_text(error.get("type"))
    if error_type == "error":
        error_type = None  # the type of the event, not of the error
    message = _message_of(error) or _message_of(holder) or (value if type(value) is str else "")
    if not message:
        message = (
            f"the upstream returned status {status}" if status else "the upstream failed without a reason"
        )
    return WireError(
        _classify(code, error_type, status, message),
        message[:_MAX_MESSAGE],
        status,
        code,
        error_type,
        _code_text(error.get("param")),
    )


def _classify(code: str | None, error_type: str | None, status: int | None, message: str) -> ErrorKind:
    kind = KIND_BY_CODE.get(code or "")
    if code in GENERIC_CODES and status is not None:
        kind = None
    if kind is None and code in RESPONSE_ERROR_CODES:
        kind = ErrorKind.INVALID_REQUEST  # all others are about the prompt or its images
    if kind is None and status is not None:
        kind = kind_of_status(status)
    if kind is None:
        kind = KIND_BY_CODE.get(error_type or "", ErrorKind.SERVER)
    if kind is ErrorKind.NOT_FOUND and status == 400:
        kind = ErrorKind.INVALID_REQUEST  # sent with an unknown model; the status stays 400
    if kind is ErrorKind.RATE_LIMIT and "insufficient_quota" in (code, error_type):
        return ErrorKind.BILLING
    return kind_from_message(kind, message)


def _message_of(error: JSONObject) -> str:
    for name in _MESSAGE_FIELDS:
        value = error.get(name)
        if type(value) is str and value:
            return value
        if type(value) is list and value:
            return encode(value).decode("utf-8")
    return ""


def _code_text(value: JSON) -> str | None:
    """Return a code as text. Some servers send numbers."""
    if type(value) is int:
        return str(value)
    return value if type(value) is str and value else None


def error_object(error: WireError) -> JSONObject:
    """Return the four members of openai-python's `ErrorObject` (3.54.0), of which `param` and `code` may be null."""
    error_type, code = ERRORS[error.kind]
    if error.code is not None and error.kind not in FIXED_CODES:
        code = error.code
    return {"message": error.message, "type": error_type, "param": error.param, "code": code}


def write_error(error: WireError, request_id: str | None) -> tuple[int, bytes]:
    """Return status and body. The request id is in a header in this protocol, not in the body."""
    status = error.status
    if status is None or not 400 <= status < 600:
        status = STATUS_BY_KIND[error.kind]
    return STATUS_REPLACEMENTS.get(status, status), encode({"error": error_object(error)})


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
