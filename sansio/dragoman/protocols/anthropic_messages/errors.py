"""Errors: bodies to faults and faults to bodies.

Strategy: the `type` of the error names the kind; where it says no more than "bad request" or "broken", the
status says it better. Upstreams that only resemble the vendor's answer with other shapes, and proxies with
HTML: the words are looked for where they usually stand, and nothing here raises.
"""

from __future__ import annotations

from dragoman._wire.errors import ErrorKind, WireError, kind_from_message, kind_of_status
from dragoman._wire.exceptions import RemoteProtocolError
from dragoman._wire.json import JSON, JSONObject, decode, encode
from dragoman._wire.sse import encode_frame
from dragoman.protocols.anthropic_messages.tables import (
    DETAIL_CODES,
    ERRORS,
    GENERIC_TYPES,
    KIND_BY_CODE,
    KIND_BY_TYPE,
    KNOWN_STATUSES,
)

# Longer error texts are pages or dumps, not messages.
MAX_MESSAGE = 2000

# Where other servers put the words, in the order in which they are looked for.
_MESSAGE_KEYS = ("message", "error", "detail", "msg")


def read_error(status: int, body: bytes) -> WireError:
    """The fault of an HTTP error answer. Never raises."""
    try:
        value = decode(body)
    except RemoteProtocolError:
        value = None
    if type(value) is dict:
        return parse_error(value, status)
    text = body.decode("utf-8", "replace").strip()
    # Markup and binary are no words for people.
    if not text or text.startswith("<") or "\ufffd" in text or "\0" in text:
        text = f"the upstream answered with status {status} and no readable message"
    return WireError(kind_from_message(kind_of_status(status), text), text[:MAX_MESSAGE], status=status)


def parse_error(body: JSONObject, status: int | None) -> WireError:
    """The fault of a decoded error body. `status` is None inside a stream."""
    error = body.get("error")
    if type(error) is not dict:
        error = body
    message = _words(error) or f"the upstream reported an error{f' (status {status})' if status else ''}"
    named = error.get("type")
    kind = KIND_BY_TYPE.get(named) if type(named) is str else None
    if kind is None or (named in GENERIC_TYPES and status is not None):
        kind = ErrorKind.SERVER if status is None else kind_of_status(status)
    details = error.get("details")
    code = _text(details.get("error_code") if type(details) is dict else error.get("code"))
    if code is not None:
        kind = KIND_BY_CODE.get(code, kind)
    return WireError(
        kind_from_message(kind, message),
        message[:MAX_MESSAGE],
        status=status,
        code=code,
        type=_text(named),
        param=_text(error.get("param")),
        request_id=_text(body.get("request_id")),
    )


def _words(error: JSONObject) -> str:
    for key in _MESSAGE_KEYS:
        value = error.get(key)
        if type(value) is str and value:
            return value
        if type(value) in (dict, list) and value:
            return encode(value).decode("utf-8", "replace")
    return ""


def _text(value: JSON) -> str | None:
    return value if type(value) is str else None


def is_native_error(body: bytes) -> bool:
    """Whether an error body has the form `{"type": "error", "error": {"type", "message"}}`."""
    try:
        value = decode(body)
    except RemoteProtocolError:
        return False
    if type(value) is not dict or value.get("type") != "error":
        return False
    error = value.get("error")
    return type(error) is dict and type(error.get("type")) is str and type(error.get("message")) is str


def error_body(wire_error: WireError, request_id: str | None) -> bytes:
    """`{"type": "error", "error": {"type", "message"}, "request_id"}`, with `details` for a code of this protocol."""
    message = wire_error.message
    if wire_error.kind is ErrorKind.CONTEXT_LENGTH and "prompt is too long" not in message:
        # Agents look for these words to know that they have to compact the conversation.
        message = f"prompt is too long: {message}"
    error: JSONObject = {"type": ERRORS[wire_error.kind][0], "message": message}
    if wire_error.code in DETAIL_CODES:
        error["details"] = {"error_code": wire_error.code}
    return encode({"type": "error", "error": error, "request_id": request_id})


def error_frame(error: WireError, request_id: str) -> bytes:
    """The same as the last event of a stream."""
    return encode_frame(error_body(error, request_id), b"error")


def write_error(error: WireError, request_id: str | None) -> tuple[int, bytes]:
    """Status and body of an error answer to a client of this protocol."""
    status = ERRORS[error.kind][1]
    # The status that it came with says more than the kind, where it means the same.
    if error.status in KNOWN_STATUSES and kind_of_status(error.status) is error.kind:
        status = error.status
    return status, error_body(error, request_id)
