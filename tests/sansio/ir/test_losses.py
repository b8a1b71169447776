"""The ledger: its losses, their paths, and the policies."""

import pytest

from dragoman._ir.losses import MAX_ENTRIES, Ledger, Loss, LossCode, LossPolicy, child
from dragoman._wire.exceptions import RequestRefused


def test_entries_in_order_without_repeats() -> None:
    ledger = Ledger()
    ledger.dropped("/b", "first")
    ledger.altered("/a", "second")
    ledger.dropped("/b", "said otherwise")
    ledger.add(LossCode.REPAIRED, "/b", "another code")
    assert list(ledger) == [
        Loss(LossCode.DROPPED, "/b", "first"),
        Loss(LossCode.ALTERED, "/a", "second"),
        Loss(LossCode.REPAIRED, "/b", "another code"),
    ]
    assert len(ledger) == 3


def test_unknown_fields() -> None:
    ledger = Ledger()
    ledger.unknown_fields("/messages/0", {"a": "secret", "b/c~d": {"deep": "secret"}})
    ledger.unknown_fields("/x", None)
    ledger.unknown_fields("/x", {})
    expected = [(LossCode.UNKNOWN_FIELD, "/messages/0/a"), (LossCode.UNKNOWN_FIELD, "/messages/0/b~1c~0d")]
    assert [(loss.code, loss.path) for loss in ledger] == expected
    assert "secret" not in repr(list(ledger))


def test_defined_fields_have_their_own_places() -> None:
    """Of an object that has a counterpart, only what is left is a loss, each member at its place."""
    ledger = Ledger()
    extra = {"a": 1, "b": {"a": 1, "b": {"e": 2}}, "c": {"a": 1}, "d": 1}
    ledger.unknown_fields("/m", extra, defined={"a": True, "b": False, "d": "why"})
    assert [(loss.code, loss.path) for loss in ledger] == [
        (LossCode.DROPPED, "/m/a"),
        (LossCode.DROPPED, "/m/b/a"),
        (LossCode.UNKNOWN_FIELD, "/m/b/b/e"),
        (LossCode.UNKNOWN_FIELD, "/m/c"),
        (LossCode.DROPPED, "/m/d"),
    ]
    assert [loss.detail for loss in ledger][-1] == "why"


def test_only_so_many_are_kept() -> None:
    ledger = Ledger()
    ledger.unknown_fields("", {f"k{number}": 1 for number in range(MAX_ENTRIES)})
    assert (len(list(ledger)), len(ledger), ledger.overflow) == (MAX_ENTRIES, MAX_ENTRIES, 0)
    ledger.dropped("/one", "more")
    ledger.dropped("/two", "more")
    ledger.unknown_fields("", {"k0": "known already"})
    assert (len(list(ledger)), len(ledger), ledger.overflow) == (MAX_ENTRIES, MAX_ENTRIES + 2, 2)


@pytest.mark.parametrize(
    ("path", "key", "pointer"),
    [("", "a", "/a"), ("/a", 3, "/a/3"), ("/a", "", "/a/"), ("/a", "~/~1", "/a/~0~1~01")],
)
def test_child(path: str, key: str | int, pointer: str) -> None:
    """RFC 6901, section 3."""
    assert child(path, key) == pointer


def test_record_never_refuses() -> None:
    ledger = Ledger()
    ledger.dropped("/a", "gone")
    ledger.enforce(LossPolicy.RECORD)


def test_refuse_allows_requests_without_losses() -> None:
    Ledger().enforce(LossPolicy.REFUSE)


@pytest.mark.parametrize(
    ("paths", "message"),
    [
        (["/tools/0/x"], "strict mode: /tools/0/x cannot be sent to the upstream: gone"),
        (["/a", "/b", "/c"], "strict mode: /a cannot be sent to the upstream: gone (and 2 more)"),
        ([""], "strict mode: the request cannot be sent to the upstream: gone"),
    ],
)
def test_refuse(paths: list[str], message: str) -> None:
    ledger = Ledger()
    for path in paths:
        ledger.dropped(path, "gone")
    with pytest.raises(RequestRefused) as caught:
        ledger.enforce(LossPolicy.REFUSE)
    error = caught.value
    assert (error.message, error.path, error.status) == (message, paths[0], 400)
    assert error.code == "lossy_translation"
