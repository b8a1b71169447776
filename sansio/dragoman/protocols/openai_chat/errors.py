"""Read errors from bodies and from streams, and write them.

The official object is {error: {message, type, param, code}}. Compatible servers send the message as a plain string or
under `detail` or `message`, numbers as codes, or HTML. The message is looked for in all these places, the kind follows
from code, status and message, and reading never raises.
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
from dragoman._wire.sse import encode_frame

# Error codes and types that are more exact than the status, as we have seen them from OpenAI and compatible servers.
KIND_BY_CODE: dict[str, ErrorKind] = {
    "context_length_exceeded": ErrorKind.CONTEXT_LENGTH,
    "too_many_prompt_tokens": ErrorKind.CONTEXT_LENGTH,
    "insufficient_quota": ErrorKind.BILLING,
    "billing_error": ErrorKind.BILLING,
    "invalid_api_key": ErrorKind.AUTHENTICATION,
    "model_not_found": ErrorKind.NOT_FOUND,
    "rate_limit_exceeded": ErrorKind.RATE_LIMIT,
    "overloaded": ErrorKind.OVERLOADED,
    "server_is_overloaded": ErrorKind.OVERLOADED,
}
# Used where there is no status: inside a stream.
KIND_BY_TYPE: dict[str, ErrorKind] = {
    "invalid_request_error": ErrorKind.INVALID_REQUEST,
    "authentication_error": ErrorKind.AUTHENTICATION,
    "permission_error": ErrorKind.PERMISSION,
    "not_found_error": ErrorKind.NOT_FOUND,
    "rate_limit_error": ErrorKind.RATE_LIMIT,
    "requests": ErrorKind.RATE_LIMIT,
    "tokens": ErrorKind.RATE_LIMIT,
    "overloaded_error": ErrorKind.OVERLOADED,
    "timeout_error": ErrorKind.TIMEOUT,
}

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
# Kinds whose code clients act on. It is never replaced by the upstream's own.
FIXED_CODES = frozenset({ErrorKind.CONTEXT_LENGTH, ErrorKind.BILLING})

# Statuses that OpenAI does not use: we have seen its code insufficient_quota with 429, and overload with 503.
STATUS_REPLACEMENTS = {402: 429, 529: 503}

# Longer error texts are pages or dumps, not messages.
MAX_MESSAGE = 2000


def read_error(status: int, body: bytes) -> WireError:
    """Read the body of an HTTP error response. Never raises."""
    try:
        value = decode(body)
    except RemoteProtocolError:
        value = None
    if type(value) is list and value:
        value = value[0]  # Google's servers send a list of one (paws#103, read 2026-11-22)
    if type(value) is dict:
        return parse_error(value, status)
    text = readable_message(status, value.encode("utf-8", "replace") if type(value) is str else body)
    return WireError(_classify(None, None, text, status), text[:MAX_MESSAGE], status=status)


def parse_error(body: JSONObject, status: int | None) -> WireError:
    """Read a decoded error body. `status` is None inside a stream."""
    found = body.get("error")
    error: JSONObject = found if type(found) is dict else body
    message = _message_of(error) or f"the upstream reported an error{f' (status {status})' if status else ''}"
    metadata = error.get("metadata")
    raw = metadata.get("raw") if type(metadata) is dict else None
    if type(raw) is str and raw:
        message = f"{message}: {raw}"  # OpenRouter: its provider's body (crush#279, read 2026-11-22)
    written = error.get("failed_generation")
    if type(written) is str and written:
        message = f"{message} The model wrote: {written}"  # Groq: a call that does not fit its tool
    error_type, code = _code_text(error.get("type")), error.get("code")
    if status is None and type(code) is int and 400 <= code < 600:
        status = code
    text_code = _code_text(code)
    return WireError(
        _classify(text_code, error_type, message, status),
        message[:MAX_MESSAGE],
        status=status,
        code=text_code,
        type=error_type,
        param=_code_text(error.get("param")),
        request_id=_code_text(body.get("request_id")),
    )


def has_error(chunk: JSONObject) -> bool:
    """True if a chunk of a stream, or a whole body, is or holds an error."""
    if chunk.get("error"):
        return True
    # Mistral: {object: error, message, type, code} or {detail} (php-mistral#76, read 2026-11-22). We have seen the
    # first from vLLM, too, and the second from FastAPI.
    return chunk.get("object") == "error" or ("detail" in chunk and "choices" not in chunk)


def is_native_error(body: bytes) -> bool:
    """True if a body is the official error object."""
    error = (object_or_none(body) or {}).get("error")
    return type(error) is dict and type(error.get("message")) is str


def write_error(error: WireError, request_id: str | None) -> tuple[int, bytes]:
    """Return status and body for the client. The request id has a header of its own."""
    status = error.status
    if status is None or status < 400:
        status = STATUS_BY_KIND[error.kind]
    return STATUS_REPLACEMENTS.get(status, status), encode({"error": error_object(error)})


def error_object(error: WireError) -> JSONObject:
    """Return the official error object."""
    error_type, code = ERRORS[error.kind]
    if error.code is not None and error.kind not in FIXED_CODES:
        code = error.code
    return {"message": error.message, "type": error_type, "param": error.param, "code": code}


def error_frame(error: WireError) -> bytes:
    """Return the frame that ends a stream with an error. No [DONE] follows, because the response is not complete."""
    return encode_frame(encode({"error": error_object(error)}))


def _classify(code: str | None, error_type: str | None, message: str, status: int | None) -> ErrorKind:
    kind = KIND_BY_CODE.get(code or "") or KIND_BY_CODE.get(error_type or "")
    if kind is None:
        if status is not None:
            kind = kind_of_status(status)
        else:
            kind = KIND_BY_TYPE.get(error_type or "", ErrorKind.SERVER)
    return kind_from_message(kind, message)


def _code_text(value: JSON) -> str | None:
    """Return a code, type or id as text. Codes that are numbers only repeat the status."""
    return value if type(value) is str and value and not value.isdigit() else None


# Where servers put the message, in the order in which it is looked for.
_MESSAGE_KEYS = ("message", "error", "detail", "msg")


def _message_of(error: JSONObject) -> str:
    for key in _MESSAGE_KEYS:
        value = error.get(key)
        if type(value) is str and value:
            return value
        if type(value) in (dict, list) and value:
            return encode(value).decode("utf-8", "replace")
    return ""
