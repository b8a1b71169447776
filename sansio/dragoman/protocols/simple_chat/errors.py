"""Faults -> errors of the simple API.

Strategy: one error object, in three places: alone under `error` in a body, the same as the last line of a stream
of lines, and bare as the data of an `error` event. Its three members are always there.
"""

from __future__ import annotations

from dragoman._ir.errors import STATUS_BY_KIND, Fault
from dragoman._wire.json import JSONObject, encode
from dragoman._wire.sse import frame
from dragoman.protocols.simple_chat.tables import ERRORS, FIXED_CODES, STATUSES

# Ends a stream of server-sent events, a good one and a broken one alike.
DONE = frame(b"[DONE]")


def error_object(fault: Fault) -> JSONObject:
    """`{"message": ..., "type": ..., "code": ...}`."""
    kind, code = ERRORS[fault.kind]
    if fault.code is not None and fault.kind not in FIXED_CODES:
        code = fault.code
    message = fault.message
    if fault.param is not None and fault.param not in message:
        message = f"{message} ({fault.param})"  # there is no member for the place at fault
    return {"message": message, "type": kind, "code": code}


def write_fault(fault: Fault, request_id: str | None) -> tuple[int, bytes]:
    """Status and body for the client. The request id travels in a header of its own."""
    status = fault.status
    if status is None or status < 400:
        status = STATUS_BY_KIND[fault.kind]
    return STATUSES.get(status, status), encode({"error": error_object(fault)})


def error_line(fault: Fault) -> bytes:
    """The error as the last line of a stream of lines."""
    return encode({"error": error_object(fault), "done": True}) + b"\n"


def error_event(fault: Fault) -> bytes:
    """The error as the last events of a stream of server-sent events."""
    return frame(encode(error_object(fault)), b"error") + DONE
