"""Errors of the Responses protocol, in HTTP bodies and inside of answers.

Strategy: one function classifies an error object, wherever it stood; what it cannot tell from code and type it
takes from the status, and a prompt that is too long also from its words. Bodies of other shapes still give a
readable message.
"""

from __future__ import annotations

from dragoman._wire.errors import STATUS_BY_KIND, ErrorKind, WireError, kind_from_message, kind_of_status
from dragoman._wire.exceptions import RemoteProtocolError
from dragoman._wire.json import JSON, JSONObject, decode, encode
from dragoman.protocols.openai_responses import tables

# Longer texts are dumps, not messages.
_MAX_MESSAGE = 2000

# Where a message stands in bodies of other shapes than ours.
_MESSAGE_FIELDS = ("message", "detail", "error", "msg", "title")


def read_error(status: int, body: bytes) -> WireError:
    """An upstream's error answer. Never raises."""
    try:
        value = decode(body)
    except RemoteProtocolError:
        return parse_error(_plain_text(status, body), status)
    return parse_error(value, status)


def is_native_error(body: bytes) -> bool:
    """Whether a body is an error as clients of this protocol read it: {"error": {"message": ...}}."""
    try:
        value = decode(body)
    except RemoteProtocolError:
        return False
    error = value.get("error") if type(value) is dict else None
    return type(error) is dict and type(error.get("message")) is str


def parse_error(value: JSON, status: int | None = None) -> WireError:
    """A fault from an error object, from what holds one under `error`, or from anything else."""
    holder: JSONObject = value if type(value) is dict else {}
    nested = holder.get("error")
    error: JSONObject = nested if type(nested) is dict else holder
    code = _text(error.get("code")) or _text(holder.get("code"))
    sort = _text(error.get("type"))
    if sort == "error":
        sort = None  # the type of the event, not of the error
    message = _message(error) or _message(holder) or (value if type(value) is str else "")
    if not message:
        message = (
            f"the upstream answered with status {status}"
            if status
            else "the upstream failed without a reason"
        )
    return WireError(
        _kind(code, sort, status, message),
        message[:_MAX_MESSAGE],
        status,
        code,
        sort,
        _text(error.get("param")),
    )


def _kind(code: str | None, sort: str | None, status: int | None, message: str) -> ErrorKind:
    kind = tables.KIND_BY_CODE.get(code or "")
    if code in tables.GENERIC_CODES and status is not None:
        kind = None
    if kind is None and code in tables.RESPONSE_ERROR_CODES:
        kind = ErrorKind.INVALID_REQUEST  # all that are left speak of the prompt or its images
    if kind is None and status is not None:
        kind = kind_of_status(status)
    if kind is None:
        kind = tables.KIND_BY_CODE.get(sort or "", ErrorKind.SERVER)
    if kind is ErrorKind.NOT_FOUND and status == 400:
        kind = (
            ErrorKind.INVALID_REQUEST
        )  # this server says so of an unknown model; the status stays what it was
    if kind is ErrorKind.RATE_LIMIT and "insufficient_quota" in (code, sort):
        return ErrorKind.BILLING
    return kind_from_message(kind, message)


def _message(error: JSONObject) -> str:
    for name in _MESSAGE_FIELDS:
        value = error.get(name)
        if type(value) is str and value:
            return value
        if type(value) is list and value:
            return encode(value).decode("utf-8")
    return ""


def _text(value: JSON) -> str | None:
    """Codes come as texts or numbers."""
    if type(value) is int:
        return str(value)
    return value if type(value) is str and value else None


def _plain_text(status: int, body: bytes) -> str:
    """A body that is no JSON: itself when it is a short text, else a plain sentence."""
    try:
        text = body.decode("utf-8").strip()
    except UnicodeDecodeError:
        text = ""
    if not text or text.startswith("<") or "\0" in text:
        return f"the upstream answered with status {status} and no readable message"
    return text


def error_object(error: WireError) -> JSONObject:
    """{message, type, param, code}: all four are required, the last two may be null."""
    sort, code = tables.ERRORS[error.kind]
    if error.code is not None and error.kind not in tables.FIXED_CODES:
        code = error.code
    return {"message": error.message, "type": sort, "param": error.param, "code": code}


def write_error(error: WireError, request_id: str | None) -> tuple[int, bytes]:
    """Status and body. The request id travels in a header in this protocol, not in the body."""
    status = error.status
    if status is None or not 400 <= status < 600:
        status = STATUS_BY_KIND[error.kind]
    return tables.STATUS_REPLACEMENTS.get(status, status), encode({"error": error_object(error)})


def response_error(error: WireError) -> JSONObject:
    """`response.error`: its code is from a closed list."""
    code = error.code
    if code not in tables.RESPONSE_ERROR_CODES:
        code = tables.RESPONSE_ERROR_BY_KIND.get(error.kind, tables.DEFAULT_RESPONSE_ERROR)
    return {"code": code, "message": error.message}


def error_event(wire_error: WireError, sequence_number: int) -> JSONObject:
    """The `error` event. The vendor's server nests the error, its SDK types it flat: clients get both."""
    error = error_object(wire_error)
    return {
        "type": "error",
        "sequence_number": sequence_number,
        "code": error["code"],
        "message": error["message"],
        "param": error["param"],
        "error": error,
    }
