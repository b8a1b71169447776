"""Errors that cross the wire, in a form that belongs to no protocol.

Strategy: an error is classified once, by the reader of the protocol that it came in, into a kind with a fixed
meaning; the writer of the client's protocol has a table from kinds to its own types, codes and statuses. The
message, the status and what a client's retry logic reads travel beside it.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TypeAlias

import msgspec

from dragoman._wire.exceptions import RemoteProtocolError
from dragoman._wire.json import JSON, decode, encode

# Returns a text without what its reader may not see.
Mask: TypeAlias = Callable[[str], str]


class FaultKind(Enum):
    """What went wrong, as far as a client must tell cases apart."""

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
    TRUNCATED = "truncated"  # the upstream's answer ended before its end event
    UNREADABLE = "unreadable"  # what the upstream sent is no answer of its protocol
    MISCONFIGURED = (
        "misconfigured"  # the gateway's operator has to set something right: waiting does not help
    )
    CANCELLED = "cancelled"


class Fault(msgspec.Struct, frozen=True):
    """One error.

    kind: the class of the error.
    message: the upstream's own words where there are any.
    status: the HTTP status that it came with, None when it came inside a stream or from the gateway itself.
    code, type, param: as the sender named them, None when it did not.
    request_id: the sender's id of the request.
    """

    kind: FaultKind
    message: str
    status: int | None = None
    code: str | None = None
    type: str | None = None
    param: str | None = None
    request_id: str | None = None


# The plain meaning of each HTTP status. Protocols refine it by their own types and codes.
KIND_BY_STATUS: dict[int, FaultKind] = {
    400: FaultKind.INVALID_REQUEST,
    401: FaultKind.AUTHENTICATION,
    402: FaultKind.BILLING,
    403: FaultKind.PERMISSION,
    404: FaultKind.NOT_FOUND,
    405: FaultKind.METHOD,
    407: FaultKind.MISCONFIGURED,  # a proxy refuses the credentials that it was sent
    408: FaultKind.TIMEOUT,
    409: FaultKind.CONFLICT,
    413: FaultKind.TOO_LARGE,
    415: FaultKind.MEDIA_TYPE,
    422: FaultKind.UNPROCESSABLE,
    429: FaultKind.RATE_LIMIT,
    499: FaultKind.CANCELLED,
    500: FaultKind.SERVER,
    502: FaultKind.UNREACHABLE,
    503: FaultKind.OVERLOADED,
    504: FaultKind.TIMEOUT,
    529: FaultKind.OVERLOADED,
}

# The status for a kind when the error did not come with one of its own.
STATUS_BY_KIND: dict[FaultKind, int] = {
    FaultKind.INVALID_REQUEST: 400,
    FaultKind.CONTEXT_LENGTH: 400,
    FaultKind.AUTHENTICATION: 401,
    FaultKind.BILLING: 402,
    FaultKind.PERMISSION: 403,
    FaultKind.NOT_FOUND: 404,
    FaultKind.METHOD: 405,
    FaultKind.TIMEOUT: 504,
    FaultKind.CONFLICT: 409,
    FaultKind.TOO_LARGE: 413,
    FaultKind.UNPROCESSABLE: 422,
    FaultKind.MEDIA_TYPE: 415,
    FaultKind.RATE_LIMIT: 429,
    FaultKind.OVERLOADED: 503,
    FaultKind.SERVER: 500,
    FaultKind.UNREACHABLE: 502,
    FaultKind.TRUNCATED: 502,
    FaultKind.UNREADABLE: 502,
    FaultKind.MISCONFIGURED: 503,
    FaultKind.CANCELLED: 499,
}

# Words by which servers say what they have no code for, in lower case: the kinds that they refine (None: all of them),
# and the kind that they mean.
_WORDS: tuple[tuple[tuple[str, ...], frozenset[FaultKind] | None, FaultKind], ...] = (
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
        ),
        frozenset({FaultKind.INVALID_REQUEST, FaultKind.TOO_LARGE, FaultKind.UNPROCESSABLE}),
        FaultKind.CONTEXT_LENGTH,
    ),
    # Messages says 400 when the money is gone.
    (("credit balance is too low",), None, FaultKind.BILLING),
    # Google and xAI say 400 for a key that they do not know.
    (
        ("api key not valid", "api_key_invalid", "incorrect api key provided"),
        frozenset({FaultKind.INVALID_REQUEST}),
        FaultKind.AUTHENTICATION,
    ),
)


def kind_of_status(status: int) -> FaultKind:
    """The kind for any status: unknown 4xx are the request's fault, everything else the server's."""
    kind = KIND_BY_STATUS.get(status)
    if kind is None:
        kind = FaultKind.INVALID_REQUEST if 400 <= status < 500 else FaultKind.SERVER
    return kind


def kind_by_words(kind: FaultKind, message: str) -> FaultKind:
    """The kind of an error, where its message says more than status, type and code do. kind: what those say."""
    lowered = message.lower()
    for words, kinds, meant in _WORDS:
        if (kinds is None or kind in kinds) and any(each in lowered for each in words):
            return meant
    return kind


def masked(fault: Fault, mask: Mask | None) -> Fault:
    """Apply the mask to all texts of a fault, because a peer may repeat a secret in any of them."""
    if mask is None:
        return fault
    texts = {name: text for name in _TEXTS if (text := getattr(fault, name)) is not None}
    shown = {name: mask(text) for name, text in texts.items()}
    return fault if shown == texts else msgspec.structs.replace(fault, **shown)


_TEXTS = ("message", "code", "type", "param", "request_id")


def masked_document(data: bytes, mask: Mask | None) -> bytes:
    """Apply the mask to an error document, JSON or not. Returns the same bytes if it changes nothing.

    Strings of JSON are decoded first, because any character may be written as an escape.
    """
    if mask is None:
        return data
    try:
        value = decode(data)
        shown = masked_value(value, mask)
    except (RemoteProtocolError, RecursionError):
        return mask(data.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")
    return data if shown == value else encode(shown)


def masked_value(value: JSON, mask: Mask) -> JSON:
    """Apply the mask to all strings of a JSON value, names of members included."""
    if type(value) is str:
        return mask(value)
    if type(value) is list:
        return [masked_value(each, mask) for each in value]
    if type(value) is dict:
        return {mask(name): masked_value(each, mask) for name, each in value.items()}
    return value


def unreadable(reason: object) -> Fault:
    """What the upstream sent cannot be read as an answer. reason: the rest of the sentence."""
    return Fault(FaultKind.UNREADABLE, f"the upstream's answer cannot be read: {reason}")
