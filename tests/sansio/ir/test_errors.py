"""Errors without a protocol: kinds, statuses and the words for a full context."""

import pytest

from dragoman._ir.errors import (
    KIND_BY_STATUS,
    STATUS_BY_KIND,
    Fault,
    FaultKind,
    kind_by_words,
    kind_of_status,
    masked,
    masked_document,
    unreadable,
)
from dragoman._wire.exceptions import RemoteProtocolError


def test_every_kind_has_a_status_of_an_error() -> None:
    assert set(STATUS_BY_KIND) == set(FaultKind)
    assert all(400 <= status < 600 for status in STATUS_BY_KIND.values())


@pytest.mark.parametrize(("status", "kind"), KIND_BY_STATUS.items())
def test_known_status(status: int, kind: FaultKind) -> None:
    assert kind_of_status(status) is kind


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (418, FaultKind.INVALID_REQUEST),
        (499 - 1, FaultKind.INVALID_REQUEST),
        (501, FaultKind.SERVER),
        (599, FaultKind.SERVER),
        (302, FaultKind.SERVER),
        (200, FaultKind.SERVER),
    ],
)
def test_any_other_status(status: int, kind: FaultKind) -> None:
    assert kind_of_status(status) is kind


@pytest.mark.parametrize(
    ("kind", "text", "meant"),
    [
        (
            FaultKind.INVALID_REQUEST,
            "This model's maximum context length is 8192 tokens",
            FaultKind.CONTEXT_LENGTH,
        ),
        (FaultKind.TOO_LARGE, "prompt is too long: 210000 tokens > 200000 maximum", FaultKind.CONTEXT_LENGTH),
        (
            FaultKind.UNPROCESSABLE,
            "Your input exceeds the Context Window of this model",
            FaultKind.CONTEXT_LENGTH,
        ),
        (FaultKind.INVALID_REQUEST, "context_length_exceeded", FaultKind.CONTEXT_LENGTH),
        (FaultKind.RATE_LIMIT, "the context window of this minute is used up", FaultKind.RATE_LIMIT),
        (FaultKind.INVALID_REQUEST, "Your credit balance is too low to access the API", FaultKind.BILLING),
        (FaultKind.SERVER, "credit balance is too low", FaultKind.BILLING),
        (FaultKind.INVALID_REQUEST, "API key not valid. Pass a valid one.", FaultKind.AUTHENTICATION),
        (FaultKind.INVALID_REQUEST, "Incorrect API key provided: xa***1", FaultKind.AUTHENTICATION),
        (FaultKind.RATE_LIMIT, "API key not valid for this many requests", FaultKind.RATE_LIMIT),
        (FaultKind.INVALID_REQUEST, "the model is too long in the tooth", FaultKind.INVALID_REQUEST),
        (FaultKind.SERVER, "", FaultKind.SERVER),
    ],
)
def test_the_words_of_an_error_may_say_more(kind: FaultKind, text: str, meant: FaultKind) -> None:
    assert kind_by_words(kind, text) is meant


def test_what_cannot_be_read() -> None:
    fault = unreadable(RemoteProtocolError("it has no choices"))
    assert fault == Fault(FaultKind.UNREADABLE, "the upstream's answer cannot be read: it has no choices")
    assert STATUS_BY_KIND[fault.kind] == 502


def hide(text: str) -> str:
    return text.replace("secret", "****")


def test_what_a_fault_says_can_be_masked_in_every_text() -> None:
    fault = Fault(FaultKind.SERVER, "a secret", 500, "secret", "secret", "secret", "secret")
    assert masked(fault, hide) == Fault(FaultKind.SERVER, "a ****", 500, "****", "****", "****", "****")
    assert masked(fault, None) is fault
    clean = Fault(FaultKind.SERVER, "nothing")
    assert masked(clean, hide) is clean


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
    assert masked_document(data, hide) == shown
    assert masked_document(data, None) is data
