"""The errors of requests to upstreams. Their texts may be sent to clients."""

import enum
from typing import ClassVar

__all__ = [
    "UpstreamBroken",
    "UpstreamError",
    "UpstreamErrorKind",
    "UpstreamIdleClosed",
    "UpstreamRequestInvalid",
    "UpstreamTimeout",
    "UpstreamTimeoutPhase",
    "UpstreamTooLarge",
    "UpstreamUnreachable",
]


class UpstreamErrorKind(enum.Enum):
    """The meaning of a failure for the next attempt."""

    UNREACHABLE = "unreachable"  # nothing was sent: another upstream can be tried
    TIMEOUT = "timeout"
    BROKEN = "broken"  # the connection or its bytes failed; the request may have been processed
    TOO_LARGE = "too_large"
    INVALID_REQUEST = "invalid_request"  # it would fail at every upstream


class UpstreamTimeoutPhase(enum.Enum):
    """The wait that was too long."""

    POOL = "pool"
    CONNECT = "connect"
    WRITE = "write"
    READ = "read"


class UpstreamError(Exception):
    """A request has failed. `str()` of it may be sent to a client."""

    kind: ClassVar[UpstreamErrorKind]


class UpstreamUnreachable(UpstreamError):
    """No connection: name, address, TLS or proxy. The request was not sent."""

    kind = UpstreamErrorKind.UNREACHABLE


class UpstreamTimeout(UpstreamError):
    """A wait was longer than its limit. In the phases POOL and CONNECT the request was not sent."""

    kind = UpstreamErrorKind.TIMEOUT

    def __init__(self, message: str, phase: UpstreamTimeoutPhase) -> None:
        super().__init__(message)
        self.phase = phase


class UpstreamBroken(UpstreamError):
    """The connection broke, ended inside the body, or the bytes are not HTTP or cannot be decoded."""

    kind = UpstreamErrorKind.BROKEN


class UpstreamIdleClosed(UpstreamBroken):
    """The server closed an idle connection before the request arrived, so it may be sent once more."""


class UpstreamTooLarge(UpstreamError):
    """The body is larger than the caller's limit."""

    kind = UpstreamErrorKind.TOO_LARGE


class UpstreamRequestInvalid(UpstreamError):
    """The URL or a header cannot be sent, because of the configuration or the client."""

    kind = UpstreamErrorKind.INVALID_REQUEST
