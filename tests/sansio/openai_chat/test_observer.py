"""The observer of a relayed stream: its usage, end and error."""

import msgspec

from dragoman._ir.request import Request
from dragoman._wire.errors import ErrorKind, WireError
from dragoman.codec import RelayObserver, ResponseContext
from dragoman.protocols.openai_chat import SPEC


def observer() -> RelayObserver:
    return SPEC.observer(ResponseContext(Request("openai_chat", "m", ()), "X1", 1, "m"))


def test_fail_returns_an_official_error_frame() -> None:
    frame = observer().fail(WireError(ErrorKind.TRUNCATED, "cut"))
    assert frame.startswith(b"data: ")
    assert frame.endswith(b"\n\n")
    assert msgspec.json.decode(frame[6:])["error"]["code"] == "upstream_truncated"
