"""Faults -> errors of the simple API.

Strategy: one error object, in three places: alone under `error` in a body, the same as the last line of a stream
of lines, and bare as the data of an `error` event. Its three members are always there.
"""

from __future__ import annotations

from dragoman._wire.errors import STATUS_BY_KIND, WireError
from dragoman._wire.json import JSONObject, encode
from dragoman._wire.sse import encode_frame
from dragoman.protocols.simple_chat.tables import ERRORS, FIXED_CODES, STATUS_REPLACEMENTS

# Ends a stream of server-sent events, a good one and a broken one alike.
DONE = encode_frame(b"[DONE]")


def error_object(error: WireError) -> JSONObject:
    """`{"message": ..., "type": ..., "code": ...}`."""
    kind, code = ERRORS[error.kind]
    if error.code is not None and error.kind not in FIXED_CODES:
        code = error.code
    message = error.message
    if error.param is not None and error.param not in message:
        message = f"{message} ({error.param})"  # there is no member for the place at fault
    return {"message": message, "type": kind, "code": code}


def write_error(error: WireError, request_id: str | None) -> tuple[int, bytes]:
    """Status and body for the client. The request id travels in a header of its own."""
    status = error.status
    if status is None or status < 400:
        status = STATUS_BY_KIND[error.kind]
    return STATUS_REPLACEMENTS.get(status, status), encode({"error": error_object(error)})


def error_line(error: WireError) -> bytes:
    """The error as the last line of a stream of lines."""
    return encode({"error": error_object(error), "done": True}) + b"\n"


def error_frame(error: WireError) -> bytes:
    """The error as the last events of a stream of server-sent events."""
    return encode_frame(encode(error_object(error)), b"error") + DONE
