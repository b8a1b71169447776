"""Errors that cross the wire, in a form that belongs to no protocol.

The reader of the protocol that an error came in classifies it once, into a kind with a fixed meaning; the writer of
the client's protocol has a table from kinds to its own types, codes and statuses.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

import msgspec


class ErrorKind(Enum):
    """The classes of errors that a client must distinguish."""

    INVALID_REQUEST = "invalid_request"
    CONTEXT_LENGTH = "context_length"  # the prompt does not fit: agents compact and try again
    AUTHENTICATION = "authentication"
    BILLING = "billing"  # quota or money used up: waiting does not help
    PERMISSION = "permission"
    NOT_FOUND = "not_found"
    METHOD = "method"
    TIMEOUT = "timeout"
    CONFLICT = "conflict"
    TOO_LARGE = "too_large"
    UNPROCESSABLE = "unprocessable"
    MEDIA_TYPE = "media_type"
    RATE_LIMIT = "rate_limit"
    OVERLOADED = "overloaded"
    SERVER = "server"
    UNREACHABLE = "unreachable"  # the gateway could not reach the upstream
    TRUNCATED = "truncated"  # the upstream's response ended before its end event
    UNREADABLE = "unreadable"  # what the upstream sent is no response of its protocol
    MISCONFIGURED = "misconfigured"  # the gateway's operator has to act: waiting does not help
    CANCELLED = "cancelled"


class WireError(msgspec.Struct, frozen=True):
    """One error, as it is sent to a client or was received from an upstream.

    Attributes:
        kind: What went wrong.
        message: The sender's text where it sent one.
        status: The HTTP status that it came with; None inside a stream, or if the gateway itself found the error.
        code: The sender's machine-readable name, or None.
        type: The sender's name of the class of error, or None.
        param: The parameter that the error is about, in dotted form, e.g. `messages[3].content`, or None.
        request_id: The sender's id of the request, or None.
        retry_after_s: The seconds for which the sender accepts no such request, if the error itself says so.
    """

    kind: ErrorKind
    message: str
    status: int | None = None
    code: str | None = None
    type: str | None = None
    param: str | None = None
    request_id: str | None = None
    retry_after_s: float | None = None


# The plain meaning of each HTTP status. Protocols refine it by their own types and codes.
KIND_BY_STATUS: dict[int, ErrorKind] = {
    400: ErrorKind.INVALID_REQUEST,
    401: ErrorKind.AUTHENTICATION,
    402: ErrorKind.BILLING,
    403: ErrorKind.PERMISSION,
    404: ErrorKind.NOT_FOUND,
    405: ErrorKind.METHOD,
    407: ErrorKind.MISCONFIGURED,  # a proxy refuses the credentials that it was sent
    408: ErrorKind.TIMEOUT,
    409: ErrorKind.CONFLICT,
    413: ErrorKind.TOO_LARGE,
    415: ErrorKind.MEDIA_TYPE,
    422: ErrorKind.UNPROCESSABLE,
    429: ErrorKind.RATE_LIMIT,
    499: ErrorKind.CANCELLED,
    500: ErrorKind.SERVER,
    502: ErrorKind.UNREACHABLE,
    503: ErrorKind.OVERLOADED,
    504: ErrorKind.TIMEOUT,
    529: ErrorKind.OVERLOADED,
}

# In characters. A longer text is a page or a dump, not a message.
MAX_MESSAGE = 2000

# Members with the message in the errors of official and compatible servers, in the order in which it is looked for.
_MESSAGE_KEYS = ("message", "error", "detail", "msg", "title")

# The status for a kind when the error came without one.
STATUS_BY_KIND: dict[ErrorKind, int] = {
    **{kind: status for status, kind in KIND_BY_STATUS.items()},
    ErrorKind.CONTEXT_LENGTH: 400,
    ErrorKind.OVERLOADED: 503,
    ErrorKind.MISCONFIGURED: 503,
    ErrorKind.TRUNCATED: 502,
    ErrorKind.UNREADABLE: 502,
}

# Parts of messages, in lower case, by which servers report what they have no code for: the kinds that they refine
# (None: all of them), and the kind that they mean.
_MESSAGE_PARTS: tuple[tuple[tuple[str, ...], frozenset[ErrorKind] | None, ErrorKind], ...] = (
    (
        (
            "context length",
            "context window",
            "context_length",
            "prompt is too long",
            "prompt too long",
            "input is too long",
            "maximum context",
            "too_many_prompt_tokens",
            "length of all messages is too long",
            "input token count",  # Google: ... "exceeds the maximum number of tokens allowed" (recorded)
            # What agents look for, by the host that says it (read in November 2026; Cohere's is recorded).
            "context size",  # llama.cpp: "exceeds the available context size" (measured)
            "maximum prompt length",  # xAI
            "prompt token count",  # GitHub: ... "exceeds the limit of"
            "exceeded model token limit",  # Kimi
            "maximum model length",  # vLLM
            "too many tokens: size limit",  # Cohere
            "range of input length should be",  # DashScope
            "exceed context limit",  # Anthropic, of the prompt and max_tokens together
            "reduce the length of the messages",  # Groq
            "maximum allowed input length",
            "tokens in request more than max tokens allowed",  # Z.AI
        ),
        frozenset({ErrorKind.INVALID_REQUEST, ErrorKind.TOO_LARGE, ErrorKind.UNPROCESSABLE}),
        ErrorKind.CONTEXT_LENGTH,
    ),
    # llama.cpp sends 500 where its cache is full, and for media that the model does not take (measured).
    (("context size has been exceeded",), frozenset({ErrorKind.SERVER}), ErrorKind.CONTEXT_LENGTH),
    (
        ("image input is not supported", "audio input is not supported"),
        frozenset({ErrorKind.SERVER}),
        ErrorKind.INVALID_REQUEST,
    ),
    # Anthropic sends 400 when the credit is used up (anthropics/claude-code#66314, read 2026-11-22).
    (("credit balance is too low",), None, ErrorKind.BILLING),
    # Google and xAI send 400 for an unknown key (recorded; for xAI also openai/codex#1352, read 2026-11-22).
    (
        ("api key not valid", "api_key_invalid", "incorrect api key provided"),
        frozenset({ErrorKind.INVALID_REQUEST}),
        ErrorKind.AUTHENTICATION,
    ),
)


def kind_of_status(status: int) -> ErrorKind:
    """Return the kind for any status: unknown 4xx are errors of the request, everything else of the server."""
    kind = KIND_BY_STATUS.get(status)
    if kind is None:
        kind = ErrorKind.INVALID_REQUEST if 400 <= status < 500 else ErrorKind.SERVER
    return kind


def kind_from_message(kind: ErrorKind, message: str) -> ErrorKind:
    """Refine the kind that follows from status, type and code by the text of the message."""
    lowered = message.lower()
    for parts, kinds, meant in _MESSAGE_PARTS:
        if (kinds is None or kind in kinds) and any(part in lowered for part in parts):
            return meant
    return kind


def message_in(error: Mapping[str, object]) -> str:
    """Return the message of a decoded error object, "" if it has none. Servers have it under several names."""
    for key in _MESSAGE_KEYS:
        value = error.get(key)
        if type(value) is str and value:
            return value
        if type(value) in (dict, list) and value:
            import json  # takes longer to load than a protocol does, and few errors need it

            return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return ""


def readable_message(status: int, body: bytes) -> str:
    """Return the body of an error response as a message, unless it is empty, markup or binary."""
    text = body.decode("utf-8", "replace").strip()
    if not text or text.startswith("<") or "\ufffd" in text or "\0" in text:
        return f"the upstream returned status {status} and no readable message"
    return text


def unreadable_error(reason: object) -> WireError:
    """Make the error for a response that cannot be read. reason: the rest of the sentence."""
    return WireError(ErrorKind.UNREADABLE, f"the upstream's response cannot be read: {reason}")
