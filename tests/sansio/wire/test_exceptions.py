"""Who broke the protocol, and how a place in a document is named."""

import pytest

from dragoman._wire.exceptions import (
    LocalProtocolError,
    ProtocolError,
    RemoteProtocolError,
    dotted,
)


@pytest.mark.parametrize(
    ("pointer", "name"),
    [
        ("", ""),
        ("/model", "model"),
        ("/messages/3/role", "messages[3].role"),
        ("/messages/3/content/0/text", "messages[3].content[0].text"),
        ("/a/0/1", "a[0][1]"),
        ("/0", "[0]"),
        ("/a~1b/c~0d", "a/b.c~d"),
        ("/a~01", "a~1"),
    ],
)
def test_dotted(pointer: str, name: str) -> None:
    assert dotted(pointer) == name


def test_remote_error() -> None:
    error = RemoteProtocolError("n must be 1", status_hint=422, path="/n", code="unsupported_value")
    assert str(error) == error.message == "n must be 1"
    assert (error.status_hint, error.path, error.code, error.param) == (422, "/n", "unsupported_value", "n")


def test_remote_error_with_nothing_known() -> None:
    error = RemoteProtocolError("no")
    assert (error.status_hint, error.path, error.code, error.param) == (400, "", None, None)


def test_both_are_protocol_errors() -> None:
    assert issubclass(RemoteProtocolError, ProtocolError)
    assert issubclass(LocalProtocolError, ProtocolError)
    assert not issubclass(LocalProtocolError, RemoteProtocolError)
