"""Read errors of OpenAI's protocols from bodies and from streams, and write them.

The official object is {error: {message, type, param, code}}. Compatible servers send the message as a plain string or
under `detail` or `message`, numbers as codes, or HTML. The kind follows from code and type, else from the status, and
is refined by the message. Reading never raises.
"""

from __future__ import annotations

from dragoman._wire.errors import (
    MAX_MESSAGE,
    STATUS_BY_KIND,
    ErrorKind,
    WireError,
    kind_from_message,
    kind_of_status,
    message_in,
    readable_message,
)
from dragoman._wire.exceptions import RemoteProtocolError
from dragoman._wire.json import JSON, JSONObject, decode, encode, object_or_empty, object_or_none

# `response.error.code` is a closed list (openai-python 3.52.0, `ResponseError`).
RESPONSE_ERROR_CODES = frozenset(
    {
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
    }
)

# Codes and types of errors, as OpenAI and compatible servers send them: servers use the same names for both.
KIND_BY_NAME: dict[str, ErrorKind] = {
    **dict.fromkeys(
        RESPONSE_ERROR_CODES, ErrorKind.INVALID_REQUEST
    ),  # but for three, about the prompt or its images
    "authentication_error": ErrorKind.AUTHENTICATION,
    "billing_error": ErrorKind.BILLING,
    "billing_hard_limit_reached": ErrorKind.BILLING,
    "context_length_exceeded": ErrorKind.CONTEXT_LENGTH,
    "insufficient_quota": ErrorKind.BILLING,
    "invalid_api_key": ErrorKind.AUTHENTICATION,
    "invalid_request_error": ErrorKind.INVALID_REQUEST,
    "model_not_found": ErrorKind.NOT_FOUND,
    "not_found_error": ErrorKind.NOT_FOUND,
    "overloaded": ErrorKind.OVERLOADED,
    "overloaded_error": ErrorKind.OVERLOADED,
    "permission_error": ErrorKind.PERMISSION,
    "rate_limit_error": ErrorKind.RATE_LIMIT,
    "rate_limit_exceeded": ErrorKind.RATE_LIMIT,
    "request_too_large": ErrorKind.TOO_LARGE,
    "requests": ErrorKind.RATE_LIMIT,
    "server_error": ErrorKind.SERVER,
    "server_is_overloaded": ErrorKind.OVERLOADED,
    "slow_down": ErrorKind.OVERLOADED,
    "timeout_error": ErrorKind.TIMEOUT,
    "tokens": ErrorKind.RATE_LIMIT,
    "too_many_prompt_tokens": ErrorKind.CONTEXT_LENGTH,
    "vector_store_timeout": ErrorKind.TIMEOUT,
}
# Names that say less than a status. DeepSeek sends one code for all statuses (recorded by crmne/ruby_llm,
# spec/fixtures/vcr_cassettes); "requests" and "tokens" name what a limit counts.
GENERIC_NAMES = frozenset({"invalid_request_error", "requests", "server_error", "tokens"})

# kind -> (type, code) of the error object.
ERRORS: dict[ErrorKind, tuple[str, str | None]] = {
    ErrorKind.INVALID_REQUEST: ("invalid_request_error", None),
    ErrorKind.CONTEXT_LENGTH: ("invalid_request_error", "context_length_exceeded"),
    ErrorKind.AUTHENTICATION: ("invalid_request_error", "invalid_api_key"),
    ErrorKind.BILLING: ("insufficient_quota", "insufficient_quota"),
    ErrorKind.PERMISSION: ("permission_error", None),
    ErrorKind.NOT_FOUND: ("invalid_request_error", "model_not_found"),
    ErrorKind.METHOD: ("invalid_request_error", "method_not_supported"),
    ErrorKind.TIMEOUT: ("server_error", "timeout"),
    ErrorKind.CONFLICT: ("conflict", None),
    ErrorKind.TOO_LARGE: ("invalid_request_error", "request_too_large"),
    ErrorKind.UNPROCESSABLE: ("invalid_request_error", None),
    ErrorKind.MEDIA_TYPE: ("invalid_request_error", "unsupported_media_type"),
    ErrorKind.RATE_LIMIT: ("rate_limit_error", "rate_limit_exceeded"),
    ErrorKind.OVERLOADED: ("server_error", "overloaded"),
    ErrorKind.SERVER: ("server_error", None),
    ErrorKind.UNREACHABLE: ("server_error", "upstream_unreachable"),
    ErrorKind.TRUNCATED: ("server_error", "upstream_truncated"),
    ErrorKind.UNREADABLE: ("server_error", "upstream_unreadable"),
    ErrorKind.MISCONFIGURED: ("server_error", "misconfigured"),
    ErrorKind.CANCELLED: ("server_error", "cancelled"),
}
# Kinds whose code clients act on, so the sender's own code must not replace it.
FIXED_CODES = frozenset(
    {ErrorKind.AUTHENTICATION, ErrorKind.BILLING, ErrorKind.CONTEXT_LENGTH, ErrorKind.RATE_LIMIT}
)

# Statuses that OpenAI does not use: we have seen its code insufficient_quota with 429, and overload with 503.
STATUS_REPLACEMENTS = {402: 429, 529: 503}


def read_error(status: int, body: bytes) -> WireError:
    """Read the body of an HTTP error response. Never raises."""
    try:
        value = decode(body)
    except RemoteProtocolError:
        value = readable_message(status, body)
    return parse_error(value, status)


def parse_error(value: JSON, status: int | None = None) -> WireError:
    """Return the error in a decoded error object, in an object that has one under `error`, or in any other value.

    `status` is None inside a stream.
    """
    if type(value) is list and value and type(value[0]) is dict:
        value = value[0]  # Google's servers send a list of one (paws#103, read 2026-11-22)
    body: JSONObject = value if type(value) is dict else {"message": value}
    found = body.get("error")
    error: JSONObject = found if type(found) is dict else body
    if status is None:
        status = next(filter(None, [_status_in(error.get(name)) for name in _STATUS_MEMBERS]), None)
    message = _message_of(error, body) or (
        f"the upstream reported an error{f' (status {status})' if status else ''}"
    )
    code = _name(error.get("code")) or _name(body.get("code"))
    error_type = _name(error.get("type"))
    if error_type == "error":
        error_type = None  # the type of the event, not of the error
    return WireError(
        kind_from_message(_kind_of((code, error_type), status), message),
        message[:MAX_MESSAGE],
        status=status,
        code=code,
        type=error_type,
        param=_name(error.get("param")),
        request_id=_name(body.get("request_id")),
    )


def _kind_of(names: tuple[str | None, ...], status: int | None) -> ErrorKind:
    known = [name for name in names if name in KIND_BY_NAME]
    exact = [name for name in known if name not in GENERIC_NAMES]
    if exact:
        kind = KIND_BY_NAME[exact[0]]
        # OpenAI's Responses send this status for an unknown model (recorded); for clients it stays that status.
        return ErrorKind.INVALID_REQUEST if kind is ErrorKind.NOT_FOUND and status == 400 else kind
    if status is not None:
        return kind_of_status(status)
    return KIND_BY_NAME[known[0]] if known else ErrorKind.SERVER


def _message_of(error: JSONObject, body: JSONObject) -> str:
    message = message_in(error) or message_in({**body, "error": None})
    raw = object_or_empty(error.get("metadata")).get("raw")
    if type(raw) is str and raw:
        message = f"{message}: {raw}"  # OpenRouter: its provider's body (crush#279, read 2026-11-22)
    written = error.get("failed_generation")
    if type(written) is str and written:
        message = f"{message} The model wrote: {written}"  # Groq: a call that does not fit its tool
    return message


# Where servers put the status of an error into its object: MiniMax uses the second (modelscope#1691, read in November
# 2026), NVIDIA's the third.
_STATUS_MEMBERS = ("code", "http_code", "status")


def _status_in(value: JSON) -> int | None:
    """Return the status of an error that a member says, as a number or as text; None for anything else."""
    number = int(value) if type(value) is str and len(value) == 3 and value.isdecimal() else value
    return number if type(number) is int and 400 <= number < 600 else None


def _name(value: JSON) -> str | None:
    """Return a code, type or id as text. Numbers that are statuses only repeat what the response says."""
    if _status_in(value) is not None:
        return None
    return str(value) if type(value) is int else value if type(value) is str and value else None


def is_native_error(body: bytes) -> bool:
    """True if a body is the official error object."""
    error = (object_or_none(body) or {}).get("error")
    return type(error) is dict and type(error.get("message")) is str


def error_object(error: WireError) -> JSONObject:
    """Return the four members of openai-python's `ErrorObject` (3.54.0), of which `param` and `code` may be null."""
    error_type, code = ERRORS[error.kind]
    if error.code is not None and error.kind not in FIXED_CODES:
        code = error.code
    return {"message": error.message, "type": error_type, "param": error.param, "code": code}


def write_error(error: WireError, request_id: str | None) -> tuple[int, bytes]:
    """Return status and body for the client. The request id has its own header."""
    status = error.status
    # SDKs make their exceptions of the status, and some vendors send 400 for a wrong key or a spent credit.
    if status is None or not 400 < status < 600:
        status = STATUS_BY_KIND[error.kind]
    return STATUS_REPLACEMENTS.get(status, status), encode({"error": error_object(error)})
