"""Errors without a protocol: kinds, statuses and the words for a full context."""

import pytest

from dragoman._fault import (
    KIND_BY_STATUS,
    STATUS_BY_KIND,
    FaultKind,
    kind_of_status,
    says_context_length,
)


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
    ("text", "full"),
    [
        ("This model's maximum context length is 8192 tokens", True),
        ("prompt is too long: 210000 tokens > 200000 maximum", True),
        ("Your input exceeds the Context Window of this model", True),
        ("context_length_exceeded", True),
        ("the model is too long in the tooth", False),
        ("", False),
    ],
)
def test_says_context_length(text: str, full: bool) -> None:
    assert says_context_length(text) is full
