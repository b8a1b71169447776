"""Write errors of the simple API.

There is one error object, in three places: under `error` in a body, the same in the last line of a stream of lines, and
as the data of an `error` event. It always has its three members.
"""

from __future__ import annotations

from dragoman._wire.errors import STATUS_BY_KIND, ErrorKind, WireError
from dragoman._wire.json import JSONObject, encode
from dragoman._wire.sse import encode_frame

# kind -> (type, code) of the error object. The sender's own code replaces the table's.
ERRORS: dict[ErrorKind, tuple[str, str]] = {
    ErrorKind.INVALID_REQUEST: ("invalid_request_error", "invalid_request"),
    ErrorKind.CONTEXT_LENGTH: ("invalid_request_error", "context_length_exceeded"),
    ErrorKind.AUTHENTICATION: ("authentication_error", "invalid_api_key"),
    ErrorKind.BILLING: ("billing_error", "insufficient_quota"),
    ErrorKind.PERMISSION: ("permission_error", "permission_denied"),
    ErrorKind.NOT_FOUND: ("not_found_error", "not_found"),
    ErrorKind.METHOD: ("invalid_request_error", "method_not_allowed"),
    ErrorKind.TIMEOUT: ("timeout_error", "timeout"),
    ErrorKind.CONFLICT: ("conflict_error", "conflict"),
    ErrorKind.TOO_LARGE: ("invalid_request_error", "request_too_large"),
    ErrorKind.UNPROCESSABLE: ("invalid_request_error", "unprocessable"),
    ErrorKind.MEDIA_TYPE: ("invalid_request_error", "unsupported_media_type"),
    ErrorKind.RATE_LIMIT: ("rate_limit_error", "rate_limit_exceeded"),
    ErrorKind.OVERLOADED: ("overloaded_error", "overloaded"),
    ErrorKind.SERVER: ("server_error", "internal_error"),
    ErrorKind.UNREACHABLE: ("server_error", "upstream_unreachable"),
    ErrorKind.TRUNCATED: ("server_error", "upstream_truncated"),
    ErrorKind.UNREADABLE: ("server_error", "upstream_unreadable"),
    ErrorKind.MISCONFIGURED: ("server_error", "misconfigured"),
    ErrorKind.CANCELLED: ("server_error", "cancelled"),
}
# Kinds whose code clients act on, so the sender's own code must not replace it.
FIXED_CODES = frozenset({ErrorKind.CONTEXT_LENGTH, ErrorKind.BILLING})

# Statuses of some vendors, and the registered ones that are sent in their place.
STATUS_REPLACEMENTS = {529: 503}

# The end of a stream of server-sent events, complete or failed.
DONE = encode_frame(b"[DONE]")


def error_object(error: WireError) -> JSONObject:
    """Return `{"message": ..., "type": ..., "code": ...}`."""
    kind, code = ERRORS[error.kind]
    if error.code is not None and error.kind not in FIXED_CODES:
        code = error.code
    message = error.message
    if error.param is not None and error.param not in message:
        message = f"{message} ({error.param})"  # there is no member for the place
    return {"message": message, "type": kind, "code": code}


def write_error(error: WireError, request_id: str | None) -> tuple[int, bytes]:
    """Return status and body for the client. The request id has its own header."""
    status = error.status
    if status is None or status <= 400:  # some vendors send 400 for a wrong key or a spent credit
        status = STATUS_BY_KIND[error.kind]
    return STATUS_REPLACEMENTS.get(status, status), encode({"error": error_object(error)})


def error_frames(error: WireError, *, lines: bool) -> bytes:
    """Return the last frames of a stream that failed. lines: its frames become lines, which have no event's name."""
    if lines:
        return encode_frame(encode({"error": error_object(error), "done": True}))
    return encode_frame(encode(error_object(error)), b"error") + DONE
