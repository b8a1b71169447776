"""Errors: bodies and in-band objects to faults, and faults to bodies.

Strategy: the official object is {error: {message, type, param, code}}; compatible servers send its message
as a plain string, under `detail` or `message`, numbers as codes, or HTML. The words are looked for where they
usually stand, the kind follows from code, status and words, and nothing here raises.
"""

from __future__ import annotations

from dragoman._wire.errors import STATUS_BY_KIND, ErrorKind, WireError, kind_from_message, kind_of_status
from dragoman._wire.exceptions import RemoteProtocolError
from dragoman._wire.json import JSON, JSONObject, decode, encode
from dragoman._wire.sse import encode_frame
from dragoman.protocols.openai_chat.tables import (
    ERRORS,
    FIXED_CODES,
    KIND_BY_CODE,
    KIND_BY_TYPE,
    STATUS_REPLACEMENTS,
)

# Longer error texts are pages or dumps, not messages.
MAX_MESSAGE = 2000


def read_error(status: int, body: bytes) -> WireError:
    """The fault of an HTTP error answer. Never raises."""
    try:
        value = decode(body)
    except RemoteProtocolError:
        value = None
    if type(value) is list and value:
        value = value[0]  # Google's servers send a list of one
    if type(value) is dict:
        return parse_error(value, status)
    text = value if type(value) is str else body.decode("utf-8", "replace").strip()
    # Markup and binary are no words for people.
    if not text or text.startswith("<") or "\ufffd" in text or "\0" in text:
        text = f"the upstream answered with status {status} and no readable message"
    return WireError(_kind(None, None, text, status), text[:MAX_MESSAGE], status=status)


def parse_error(body: JSONObject, status: int | None) -> WireError:
    """The fault of a decoded error body. `status` is None inside a stream."""
    found = body.get("error")
    error: JSONObject = found if type(found) is dict else body
    message = _words(error) or f"the upstream reported an error{f' (status {status})' if status else ''}"
    metadata = error.get("metadata")
    raw = metadata.get("raw") if type(metadata) is dict else None
    if type(raw) is str and raw:
        message = f"{message}: {raw}"  # OpenRouter: what its provider said
    named, code = _name(error.get("type")), error.get("code")
    if status is None and type(code) is int and 400 <= code < 600:
        status = code
    name = _name(code)
    return WireError(
        _kind(name, named, message, status),
        message[:MAX_MESSAGE],
        status=status,
        code=name,
        type=named,
        param=_name(error.get("param")),
        request_id=_name(body.get("request_id")),
    )


def has_error(chunk: JSONObject) -> bool:
    """Whether a chunk of a stream (or a whole body) is or holds an error."""
    if chunk.get("error"):
        return True
    # vLLM: {object: error, message, type, code}; Mistral and FastAPI: {detail}.
    return chunk.get("object") == "error" or ("detail" in chunk and "choices" not in chunk)


def is_native_error(body: bytes) -> bool:
    """Whether a body is the error object as clients read it."""
    try:
        value = decode(body)
    except RemoteProtocolError:
        return False
    error = value.get("error") if type(value) is dict else None
    return type(error) is dict and type(error.get("message")) is str


def write_error(error: WireError, request_id: str | None) -> tuple[int, bytes]:
    """Status and body for the client. The request id travels in a header of its own."""
    status = error.status
    if status is None or status < 400:
        status = STATUS_BY_KIND[error.kind]
    return STATUS_REPLACEMENTS.get(status, status), encode({"error": error_object(error)})


def error_object(error: WireError) -> JSONObject:
    named, code = ERRORS[error.kind]
    if error.code is not None and error.kind not in FIXED_CODES:
        code = error.code
    return {"message": error.message, "type": named, "param": error.param, "code": code}


def error_frame(error: WireError) -> bytes:
    """The error inside a stream. No [DONE] follows: that would say that the answer is whole."""
    return encode_frame(encode({"error": error_object(error)}))


def _kind(code: str | None, named: str | None, message: str, status: int | None) -> ErrorKind:
    kind = KIND_BY_CODE.get(code or "") or KIND_BY_CODE.get(named or "")
    if kind is None:
        if status is not None:
            kind = kind_of_status(status)
        else:
            kind = KIND_BY_TYPE.get(named or "", ErrorKind.SERVER)
    return kind_from_message(kind, message)


def _name(value: JSON) -> str | None:
    """A code, type or id as text. Numbers as codes only repeat the status."""
    return value if type(value) is str and value and not value.isdigit() else None


# Where servers put the words, in the order in which they are looked for.
_MESSAGE_KEYS = ("message", "error", "detail", "msg")


def _words(error: JSONObject) -> str:
    for key in _MESSAGE_KEYS:
        value = error.get(key)
        if type(value) is str and value:
            return value
        if type(value) in (dict, list) and value:
            return encode(value).decode("utf-8", "replace")
    return ""
