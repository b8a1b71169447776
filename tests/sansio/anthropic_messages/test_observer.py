"""The observer of a relayed stream."""

from dragoman._ir.request import Request
from dragoman._wire.errors import ErrorKind, WireError
from dragoman.codec import ResponseContext
from dragoman.protocols.anthropic_messages import SPEC

CONTEXT = ResponseContext(Request("anthropic_messages", "m", ()), "x", 1, "m")


def test_fail_returns_an_error_event() -> None:
    data = SPEC.observer(CONTEXT).fail(WireError(ErrorKind.TRUNCATED, "cut"))
    assert data == (
        b'event: error\ndata: {"type":"error","error":{"type":"api_error","message":"cut"},"request_id":"x"}\n\n'
    )
