"""Errors of the protocol, google.rpc.Status in JSON, read and written.

`status` gives the kind, unless the details say more: which key is wrong, or that a quota is one of a day. Compatible
servers send other shapes and proxies send HTML, so the message is looked for in its usual places, and reading never
raises.
"""

from __future__ import annotations

import re

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
from dragoman._wire.json import JSON, JSONObject, decode, encode, object_or_none, read_count, text_or_none
from dragoman.codec import ResponseContext
from dragoman.protocols.gemini.checks import objects

# HTTP status -> the names of google.rpc.Code that have it (googleapis, google/rpc/code.proto). Clients get the first:
# the SDKs make their exceptions of the number, Gemini CLI 0.61.0 reads the name.
_NAMES: dict[int, tuple[str, ...]] = {
    400: ("INVALID_ARGUMENT", "FAILED_PRECONDITION", "OUT_OF_RANGE"),
    401: ("UNAUTHENTICATED",),
    403: ("PERMISSION_DENIED",),
    404: ("NOT_FOUND",),
    405: ("UNIMPLEMENTED",),
    409: ("ABORTED", "ALREADY_EXISTS"),
    429: ("RESOURCE_EXHAUSTED",),
    499: ("CANCELLED",),
    500: ("INTERNAL", "UNKNOWN", "DATA_LOSS"),
    503: ("UNAVAILABLE",),
    504: ("DEADLINE_EXCEEDED",),
}
_STATUS_BY_NAME = {name: status for status, names in _NAMES.items() for name in names}
# Names that say less than the status: where there is a status, it gives the kind.
_GENERIC_NAMES = frozenset({"INVALID_ARGUMENT", "FAILED_PRECONDITION", "INTERNAL", "UNKNOWN"})
# Statuses that the vendor does not use -> the nearest one.
_STATUSES = {402: 429, 413: 400, 415: 400, 422: 400, 529: 503}
_OTHER_NAMES = {408: "DEADLINE_EXCEEDED", 501: "UNIMPLEMENTED", 502: "UNAVAILABLE"}
_TYPE = "type.googleapis.com/google.rpc."
# A quota of zero does not come back, and one of a day not soon: Gemini CLI 0.61.0 knows both by the same words.
_NO_QUOTA = r"\blimit: 0\b"
_DAY = "PerDay"
# A day's quota is reset at midnight in California, and RetryInfo is about the minute's.
_DAY_DELAY_S = 3600.0
_DURATION = r"([0-9]{1,9}(?:\.[0-9]{1,9})?)s"


def read_error(status: int, body: bytes) -> WireError:
    """Return the error of an HTTP error response. Never raises."""
    try:
        found = objects(decode(body))
    except RemoteProtocolError:
        found = []
    return parse_error(found[0] if found else {"message": readable_message(status, body)}, status)


def parse_error(body: JSONObject, status: int | None) -> WireError:
    """Return the error of a decoded body. status: None for an error in a stream."""
    error = body.get("error")
    if type(error) is not dict:
        error = body
    number = read_count(error, "code")
    if status is None and number is not None and 400 <= number < 600:
        status = number
    message = message_in(error) or f"the upstream reported an error{f' (status {status})' if status else ''}"
    message = message[:MAX_MESSAGE]
    name = text_or_none(error.get("status"))
    known = _STATUS_BY_NAME.get(name or "", status)
    if name in _GENERIC_NAMES and status is not None:
        known = status
    kind = kind_from_message(ErrorKind.SERVER if known is None else kind_of_status(known), message)
    details = objects(error.get("details"))
    reasons = [found for detail in details if (found := text_or_none(detail.get("reason")))]
    if "API_KEY_INVALID" in reasons:
        kind = ErrorKind.AUTHENTICATION  # with status 400
    elif kind is ErrorKind.RATE_LIMIT and re.search(_NO_QUOTA, message):
        kind = ErrorKind.BILLING
    quotas = [str(each.get("quotaId")) for detail in details for each in objects(detail.get("violations"))]
    durations = [re.fullmatch(_DURATION, str(detail.get("retryDelay"))) for detail in details]
    delays = [float(found[1]) for found in durations if found is not None]
    if any(_DAY in quota for quota in quotas):
        delays = [_DAY_DELAY_S]
    violation = next((each for detail in details for each in objects(detail.get("fieldViolations"))), {})
    return WireError(
        kind,
        message,
        status=status,
        code=reasons[0] if reasons else None,
        type=name,
        param=text_or_none(violation.get("field")),
        retry_after_s=delays[0] if delays else None,
    )


def is_native_error(body: bytes) -> bool:
    """Return True if a body has the form `{"error": {"code", "message", "status"}}`."""
    error = (object_or_none(body) or {}).get("error")
    return type(error) is dict and type(error.get("code")) is int and type(error.get("message")) is str


def error_object(error: WireError, request_id: str | None) -> JSON:
    """Return `{"error": {"code", "message", "status", "details"}}`, with `code` as the HTTP status."""
    status = error.status
    if status is None or not 400 <= status < 600 or kind_of_status(status) is not error.kind:
        status = STATUS_BY_KIND[error.kind]
    status = _STATUSES.get(status, status)
    name = _OTHER_NAMES.get(status) or _NAMES.get(status, _NAMES[400 if status < 500 else 500])[0]
    details: list[JSON] = []
    if error.kind is ErrorKind.AUTHENTICATION:
        details.append(
            {"@type": f"{_TYPE}ErrorInfo", "reason": "API_KEY_INVALID", "domain": "googleapis.com"}
        )
    delay, message = error.retry_after_s, error.message
    if error.kind is ErrorKind.BILLING or (delay is not None and delay >= _DAY_DELAY_S):
        quota = {"quotaId": f"Quota{_DAY}", "description": "used up: waiting does not help soon"}
        details.append({"@type": f"{_TYPE}QuotaFailure", "violations": [quota]})
    if delay is not None:
        duration = f"{round(delay, 3):.10g}s"  # it may have no exponent
        details.append({"@type": f"{_TYPE}RetryInfo", "retryDelay": duration})
        if delay < _DAY_DELAY_S and "retry in" not in message:  # where clients without the details find it
            message = f"{message.rstrip('.')}. Please retry in {duration}."
    if error.param is not None:
        violation = {"field": error.param, "description": error.message}
        details.append({"@type": f"{_TYPE}BadRequest", "fieldViolations": [violation]})
    if request_id is not None:
        details.append({"@type": f"{_TYPE}RequestInfo", "requestId": request_id})
    return {"error": {"code": status, "message": message, "status": name, "details": details}}


def write_error(error: WireError, request_id: str | None) -> tuple[int, bytes]:
    """Return status and body of an error response to a client of this protocol."""
    body = error_object(error, request_id)
    return body["error"]["code"], encode(body)


# Characters that end a line for google-genai before 3.0 and @google/genai before 2.4, which split the stream with them
# (tried on 2026-11-22), and their escapes.
_LINE_ENDS = ((b"\xe2\x80\xa8", b"\\u2028"), (b"\xe2\x80\xa9", b"\\u2029"), (b"\xc2\x85", b"\\u0085"))


def escaped(body: bytes) -> bytes:
    """Return JSON with those characters escaped."""
    if not body.isascii():
        for character, escape in _LINE_ENDS:
            body = body.replace(character, escape)
    return body


def error_frames(error: WireError, context: ResponseContext) -> bytes:
    """Return the error as the end of a stream. In a stream of events it has both of the forms that clients read.

    @google/genai before 2.32 takes the event for an empty chunk, from 3.0 on it skips the bare line; the other clients
    raise at the first (tried on 2026-11-23).
    """
    body = escaped(encode(error_object(error, context.id)))
    event = b"data: " + body + b"\r\n\r\n"
    framed = context.endpoint is not None and context.endpoint.framing.writer is not None
    return event if framed else event + body + b"\n\n"
