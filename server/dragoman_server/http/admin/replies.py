"""What the responses to operators have in common."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from dragoman.jsontext import JSON, encode
from dragoman_server.gateway import Gateway
from dragoman_server.log import log_request
from dragoman_server.platform.clock import utc_time
from dragoman_server.telemetry.audit import audit_off_loop
from dragoman_server.wire.headers import JSON_HEADERS, OPERATOR_HEADERS


def respond(gateway: Gateway, request: Request, value: JSON, status: int = 200) -> Response:
    """Return a response with this value, and log it."""
    log_completed(gateway, request.scope, status)
    return Response(encode(value), status, headers=dict([*JSON_HEADERS, *OPERATOR_HEADERS]))


def log_completed(gateway: Gateway, scope: Scope, status: int = 200) -> None:
    """Log a request that gets, or has got, a response."""
    record = gateway.request_began(scope, "admin")
    record.status, record.outcome = status, "completed"
    log_request(record)


async def audit_request(
    gateway: Gateway, request: Request, action: str, name: str, **details: object
) -> None:
    """Record a change that a request with the admin key has made. See audit()."""
    address = gateway.request_began(request.scope, "admin").client_address
    await audit_off_loop(gateway.settings, action, name, by="admin key", address=address, **details)


def time_text(seconds: float) -> str:
    """Return a time in RFC 3339, in UTC. seconds: since the epoch."""
    return utc_time(seconds).isoformat(timespec="milliseconds").replace("+00:00", "Z")
