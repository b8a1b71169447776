"""Errors without a protocol: kinds, statuses and the messages about a full context."""

import pytest

from dragoman._wire.errors import (
    KIND_BY_STATUS,
    STATUS_BY_KIND,
    ErrorKind,
    WireError,
    kind_from_message,
    kind_of_status,
    unreadable_error,
)
from dragoman._wire.exceptions import RemoteProtocolError
from dragoman._wire.masking import mask_document, mask_error


def test_every_kind_has_a_status_of_an_error() -> None:
    assert set(STATUS_BY_KIND) == set(ErrorKind)
    assert all(400 <= status < 600 for status in STATUS_BY_KIND.values())


def test_known_status(subtests: pytest.Subtests) -> None:
    for status, kind in KIND_BY_STATUS.items():
        with subtests.test(status=status, kind=kind):
            assert kind_of_status(status) is kind


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (418, ErrorKind.INVALID_REQUEST),
        (499 - 1, ErrorKind.INVALID_REQUEST),
        (501, ErrorKind.SERVER),
        (599, ErrorKind.SERVER),
        (302, ErrorKind.SERVER),
        (200, ErrorKind.SERVER),
    ],
)
def test_any_other_status(status: int, kind: ErrorKind) -> None:
    assert kind_of_status(status) is kind


ERROR_MESSAGES: list[tuple[ErrorKind, str, ErrorKind]] = [
    (ErrorKind.INVALID_REQUEST, "This model's maximum context length is 8192 tokens", ErrorKind.CONTEXT_LENGTH),
    (ErrorKind.TOO_LARGE, "prompt is too long: 210000 tokens > 200000 maximum", ErrorKind.CONTEXT_LENGTH),
    (ErrorKind.INVALID_REQUEST, "too many tokens: size limit exceeded by 25836 tokens", ErrorKind.CONTEXT_LENGTH),
    (ErrorKind.RATE_LIMIT, "too many tokens: size limit", ErrorKind.RATE_LIMIT),
    (ErrorKind.UNPROCESSABLE, "Your input exceeds the Context Window of this model", ErrorKind.CONTEXT_LENGTH),
    (ErrorKind.INVALID_REQUEST, "context_length_exceeded", ErrorKind.CONTEXT_LENGTH),
    (ErrorKind.RATE_LIMIT, "the context window of this minute is used up", ErrorKind.RATE_LIMIT),
    (ErrorKind.INVALID_REQUEST, "Your credit balance is too low to access the API", ErrorKind.BILLING),
    (ErrorKind.SERVER, "credit balance is too low", ErrorKind.BILLING),
    (ErrorKind.INVALID_REQUEST, "API key not valid. Pass a valid one.", ErrorKind.AUTHENTICATION),
    (ErrorKind.INVALID_REQUEST, "Incorrect API key provided: xa***1", ErrorKind.AUTHENTICATION),
    (ErrorKind.RATE_LIMIT, "API key not valid for this many requests", ErrorKind.RATE_LIMIT),
    (ErrorKind.INVALID_REQUEST, "the prompt is longer than the maximum model length of 4096", ErrorKind.CONTEXT_LENGTH),
    (ErrorKind.INVALID_REQUEST, "input length and `max_tokens` exceed context limit: 9 > 8", ErrorKind.CONTEXT_LENGTH),
    (ErrorKind.INVALID_REQUEST, "Range of input length should be [1, 98304]", ErrorKind.CONTEXT_LENGTH),
    (ErrorKind.INVALID_REQUEST, "Your request exceeded model token limit: 262144", ErrorKind.CONTEXT_LENGTH),
    (ErrorKind.INVALID_REQUEST, "tokens in request more than max tokens allowed", ErrorKind.CONTEXT_LENGTH),
    (ErrorKind.INVALID_REQUEST, "max_tokens: 9 is more than max tokens allowed", ErrorKind.INVALID_REQUEST),
    (ErrorKind.TOO_LARGE, "Please reduce the length of the messages or completion.", ErrorKind.CONTEXT_LENGTH),
    (ErrorKind.SERVER, "Context size has been exceeded.", ErrorKind.CONTEXT_LENGTH),
    (ErrorKind.SERVER, "image input is not supported - hint: if this is unexpected", ErrorKind.INVALID_REQUEST),
    (ErrorKind.INVALID_REQUEST, "max_tokens exceeds the limit of 8192", ErrorKind.INVALID_REQUEST),
    (ErrorKind.INVALID_REQUEST, "the model is too long in the tooth", ErrorKind.INVALID_REQUEST),
    (ErrorKind.SERVER, "", ErrorKind.SERVER),
]  # fmt: skip


def test_the_message_of_an_error_may_refine_its_kind(subtests: pytest.Subtests) -> None:
    for kind, text, upstream_meaning in ERROR_MESSAGES:
        with subtests.test(kind=kind, text=text):
            assert kind_from_message(kind, text) is upstream_meaning


def test_what_cannot_be_read() -> None:
    error = unreadable_error(RemoteProtocolError("it has no choices"))
    expected = WireError(ErrorKind.UNREADABLE, "the upstream's response cannot be read: it has no choices")
    assert error == expected
    assert STATUS_BY_KIND[error.kind] == 502


def hide(text: str) -> str:
    return text.replace("secret", "****")


def test_an_error_can_be_masked_in_every_text() -> None:
    error = WireError(ErrorKind.SERVER, "a secret", 500, "secret", "secret", "secret", "secret")
    found = mask_error(error, hide)
    assert found == WireError(ErrorKind.SERVER, "a ****", 500, "****", "****", "****", "****")
    assert mask_error(error, None) is error
    clean = WireError(ErrorKind.SERVER, "nothing")
    assert mask_error(clean, hide) is clean


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (b'{ "a": ["a secret", 1, null, true, 1.50] }', b'{"a":["a ****",1,null,true,1.5]}'),
        (b'{"secret":{"b":"\\u0073ecret"}}', b'{"****":{"b":"****"}}'),
        (b'{ "a" : 1.50 }', b'{ "a" : 1.50 }'),
        (b"a secret \xff", b"a **** \xff"),
        (b"\xff", b"\xff"),
        (b'"' + b"[" * 100_000 + b"secret", b'"' + b"[" * 100_000 + b"****"),
        (b"[" * 100_000 + b"secret", b"[" * 100_000 + b"****"),
    ],
)
def test_a_document_is_masked_as_it_reads(data: bytes, shown: bytes) -> None:
    assert mask_document(data, hide) == shown
    assert mask_document(data, None) is data
