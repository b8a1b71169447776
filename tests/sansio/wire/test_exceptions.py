"""Who broke the protocol, and how a place in a document is named."""

import pytest

from dragoman._wire.errors import ErrorKind, WireError
from dragoman._wire.exceptions import (
    LocalProtocolError,
    ProtocolError,
    RemoteProtocolError,
    RequestRefused,
    dotted_path,
)

DOTTED: list[tuple[str, str]] = [
    ("", ""),
    ("/model", "model"),
    ("/messages/3/role", "messages[3].role"),
    ("/messages/3/content/0/text", "messages[3].content[0].text"),
    ("/a/0/1", "a[0][1]"),
    ("/0", "[0]"),
    ("/a~1b/c~0d", "a/b.c~d"),
    ("/a~01", "a~1"),
]


def test_dotted(subtests: pytest.Subtests) -> None:
    for pointer, name in DOTTED:
        with subtests.test(pointer=pointer, name=name):
            assert dotted_path(pointer) == name


def test_remote_error() -> None:
    error = RemoteProtocolError("n must be 1", status=422, path="/n", code="unsupported_value")
    assert str(error) == error.message == "n must be 1"
    assert (error.status, error.path, error.code, error.param) == (422, "/n", "unsupported_value", "n")


def test_remote_error_with_nothing_known() -> None:
    error = RemoteProtocolError("no")
    assert (error.status, error.path, error.code, error.param) == (400, "", None, None)


def test_a_refused_request_breaks_no_protocol() -> None:
    assert not issubclass(RequestRefused, ProtocolError)


def test_both_are_protocol_errors() -> None:
    assert issubclass(RemoteProtocolError, ProtocolError)
    assert issubclass(LocalProtocolError, ProtocolError)
    assert not issubclass(LocalProtocolError, RemoteProtocolError)


@pytest.mark.parametrize("exception", [RemoteProtocolError, RequestRefused])
def test_an_exception_as_a_wire_error(exception: type[RemoteProtocolError] | type[RequestRefused]) -> None:
    error = exception("no", status=413, path="/messages/3", code="too_long")
    found = error.as_wire_error()
    assert found == WireError(ErrorKind.TOO_LARGE, "no", status=413, code="too_long", param="messages[3]")
