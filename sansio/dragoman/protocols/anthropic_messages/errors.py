"""Error bodies of the protocol, read and written.

The `type` of an error gives its kind, unless it is generic and the status says more. Compatible servers send other
shapes and proxies send HTML, so the message is looked for in its usual places, and reading never raises.
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
from dragoman._wire.json import JSONObject, encode, object_or_none
from dragoman._wire.sse import encode_frame
from dragoman.protocols.anthropic_messages.checks import string_or_none

KIND_BY_TYPE: dict[str, ErrorKind] = {
    "invalid_request_error": ErrorKind.INVALID_REQUEST,
    "authentication_error": ErrorKind.AUTHENTICATION,
    "billing_error": ErrorKind.BILLING,
    "permission_error": ErrorKind.PERMISSION,
    "not_found_error": ErrorKind.NOT_FOUND,
    "timeout_error": ErrorKind.TIMEOUT,
    "conflict_error": ErrorKind.CONFLICT,
    "memory_path_conflict_error": ErrorKind.CONFLICT,
    "memory_precondition_failed_error": ErrorKind.CONFLICT,
    "request_too_large": ErrorKind.TOO_LARGE,
    "rate_limit_error": ErrorKind.RATE_LIMIT,
    "overloaded_error": ErrorKind.OVERLOADED,
    "api_error": ErrorKind.SERVER,
}

# By these words agents notice that a prompt is too long.
TOO_LONG = "prompt is too long"

# Types that say less than the status: where there is a status, it gives the kind.
GENERIC_TYPES = frozenset({"invalid_request_error", "api_error"})

# `error.details.error_code` where it says more than the type: the budget is used up, so waiting does not help.
KIND_BY_CODE: dict[str, ErrorKind] = {
    "contract_spend_limit_reached": ErrorKind.BILLING,
    "enforced_spend_limit_reached": ErrorKind.BILLING,
}

# Values of `error.details.error_code` (anthropic 2.12.0, types/shared/error_details.py).
DETAIL_CODES = frozenset(
    {
        *KIND_BY_CODE,
        "available_tools_limit_exceeded",
        "claude_code_version_too_old",
        "compaction_block_ambiguous",
        "compaction_block_misplaced",
        "compaction_content_mismatch",
        "compaction_incomplete_turn",
        "compaction_nothing_to_summarize",
        "compaction_signature_invalid",
        "compaction_tool_changes_mismatch",
        "compaction_too_many_tool_references",
        "compaction_unavailable",
        "file_expired",
        "ramp_limit_exceeded",
        "request_body_too_large_after_decoding",
        "sandbox_egress_restricted",
        "thread_already_continued",
        "thread_continue_in_flight",
        "thread_fingerprint_mismatch",
        "thread_not_found",
        "thread_unsupported_request",
        "tool_name_conflict",
        "tool_reference_unresolved",
    }
)

# Kind -> type. Some kinds have none.
TYPES: dict[ErrorKind, str] = {
    ErrorKind.CONTEXT_LENGTH: "invalid_request_error",
    ErrorKind.METHOD: "invalid_request_error",
    ErrorKind.UNPROCESSABLE: "invalid_request_error",
    ErrorKind.MEDIA_TYPE: "invalid_request_error",
    ErrorKind.UNREACHABLE: "api_error",
    ErrorKind.TRUNCATED: "api_error",
    ErrorKind.UNREADABLE: "api_error",
    # Not "overloaded_error": Claude Code 2.1.329 retries that, whatever the status and headers are.
    ErrorKind.MISCONFIGURED: "api_error",
    ErrorKind.CANCELLED: "api_error",
    **{kind: name for name, kind in reversed(KIND_BY_TYPE.items())},  # of several the first one
}
STATUSES = {**STATUS_BY_KIND, ErrorKind.OVERLOADED: 529}

# Statuses of the protocol (anthropic 2.12.0, _exceptions.py), except for 503, because overload is 529.
KNOWN_STATUSES = frozenset(
    {400, 401, 402, 403, 404, 405, 408, 409, 412, 413, 415, 422, 429, 431, 499, 500, 501, 504, 529}
)


def read_error(status: int, body: bytes) -> WireError:
    """Return the error of an HTTP error response. Never raises."""
    value = object_or_none(body)
    return parse_error({"message": readable_message(status, body)} if value is None else value, status)


def parse_error(body: JSONObject, status: int | None) -> WireError:
    """Return the error of a decoded body. status: None for an error event of a stream."""
    error = body.get("error")
    if type(error) is not dict:
        error = body
    message = message_in(error) or f"the upstream reported an error{f' (status {status})' if status else ''}"
    error_type = string_or_none(error.get("type"))
    kind = None if error_type is None else KIND_BY_TYPE.get(error_type)
    if kind is None or (error_type in GENERIC_TYPES and status is not None):
        kind = ErrorKind.SERVER if status is None else kind_of_status(status)
    details = error.get("details")
    code = string_or_none(details.get("error_code") if type(details) is dict else error.get("code"))
    if code is not None:
        kind = KIND_BY_CODE.get(code, kind)
    return WireError(
        kind_from_message(kind, message),
        message[:MAX_MESSAGE],
        status=status,
        code=code,
        type=error_type,
        param=string_or_none(error.get("param")),
        request_id=string_or_none(body.get("request_id")),
    )


def is_native_error(body: bytes) -> bool:
    """Return True if a body has the form `{"type": "error", "error": {"type", "message"}}`."""
    value = object_or_none(body) or {}
    error = value.get("error") if value.get("type") == "error" else None
    return type(error) is dict and type(error.get("type")) is str and type(error.get("message")) is str


def error_body(wire_error: WireError, request_id: str | None) -> bytes:
    """Return `{"type": "error", "error": {"type", "message"}, "request_id"}`, with `details` for a known code.

    Agents compact the conversation when the message has TOO_LONG in it.
    """
    message = wire_error.message
    if wire_error.kind is ErrorKind.CONTEXT_LENGTH and TOO_LONG not in message:
        message = f"{TOO_LONG}: {message}"
    error: JSONObject = {"type": TYPES[wire_error.kind], "message": message}
    if wire_error.code in DETAIL_CODES:
        error["details"] = {"error_code": wire_error.code}
    return encode({"type": "error", "error": error, "request_id": request_id})


def error_frame(error: WireError, request_id: str) -> bytes:
    """Return the error as the last event of a stream."""
    return encode_frame(error_body(error, request_id), b"error")


def write_error(error: WireError, request_id: str | None) -> tuple[int, bytes]:
    """Return status and body of an error response to a client of this protocol."""
    status = STATUSES[error.kind]
    # The upstream's status stays if it has the same kind, because it is more exact.
    if error.status in KNOWN_STATUSES and kind_of_status(error.status) is error.kind:
        status = error.status
    return status, error_body(error, request_id)
