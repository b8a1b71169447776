"""The errors of requests to upstreams. Their texts may be sent to clients."""

import enum
from typing import ClassVar

from dragoman import ErrorKind, WireError


class UpstreamTimeoutPhase(enum.Enum):
    """The wait that was too long."""

    POOL = "pool"
    CONNECT = "connect"
    WRITE = "write"
    READ = "read"


class UpstreamError(Exception):
    """A request has failed. `str()` of it may be sent to a client.

    Attributes:
        kind: The kind of the error for the client.
        sent: The request may have arrived.
        of_gateway: The gateway has run out of what the call needs, of connections, say: no upstream is to blame.
    """

    kind: ClassVar[ErrorKind]
    sent = True
    of_gateway = False


class ContentFailed(UpstreamError):
    """The body could not be sent as a whole, because of the client: nothing is wrong with the upstream.

    Attributes:
        error: For the client.
    """

    kind = ErrorKind.INVALID_REQUEST

    def __init__(self, error: WireError) -> None:
        super().__init__(error.message)
        self.error = error


class UpstreamUnreachable(UpstreamError):
    """No connection: name, address, TLS or proxy. The request was not sent."""

    kind = ErrorKind.UNREACHABLE
    sent = False


class GatewayExhausted(UpstreamUnreachable):
    """This machine has no descriptor, memory, thread, port or route for a connection."""

    of_gateway = True


class UpstreamTimeout(UpstreamError):
    """A wait was longer than its limit. In the phases POOL and CONNECT the request was not sent."""

    kind = ErrorKind.TIMEOUT

    def __init__(self, message: str, phase: UpstreamTimeoutPhase) -> None:
        super().__init__(message)
        self.phase = phase
        self.of_gateway = phase is UpstreamTimeoutPhase.POOL
        self.sent = phase not in (UpstreamTimeoutPhase.POOL, UpstreamTimeoutPhase.CONNECT)


class UpstreamBroken(UpstreamError):
    """The connection broke, ended inside the body, or the bytes are not HTTP or cannot be decoded."""

    kind = ErrorKind.UNREACHABLE


class UpstreamIdleClosed(UpstreamBroken):
    """The server closed a reused connection before the request arrived, so it may be sent once more.

    "A client ... SHOULD NOT automatically retry a request with a non-idempotent method unless it has some means
    to know that the request semantics are actually idempotent ... or some means to detect that the original
    request was never applied" -- RFC 9110, 9.2.2. This exception is that means.
    """

    sent = False


class UpstreamTooLarge(UpstreamError):
    """The body is larger than the caller's limit."""

    kind = ErrorKind.UNREADABLE


class UpstreamRequestInvalid(UpstreamError):
    """The URL or a header cannot be sent, because of the configuration or the client."""

    kind = ErrorKind.MISCONFIGURED
    sent = False
