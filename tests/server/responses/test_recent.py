"""What a connection keeps of its newest responses: bounded by their number and by their bytes."""

import pytest

from dragoman_server.responses import recent
from dragoman_server.responses.recent import RecentResponses
from dragoman_server.responses.stores.base import StoredItem, StoredResponse


def response(id: str) -> StoredResponse:
    return StoredResponse(id, "", 0, b"{}", (), (StoredItem(f"item_{id}", b"{}"),))


def keep(kept: RecentResponses, id: str, size: int = 1) -> None:
    kept.keep(response(id), size, None, None)


def names(kept: RecentResponses) -> str:
    return "".join([id for id in "abcd" if kept.get(id)])


def test_the_oldest_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent, "MAX_RESPONSES", 3)
    monkeypatch.setattr(recent, "MAX_BYTES", 10)
    kept = RecentResponses()
    for id in "abca":
        keep(kept, id)
    assert names(kept) == "abc"
    keep(kept, "d")
    assert names(kept) == "acd"  # the newer a stays
    assert [each.id for each in kept.all()] == ["c", "a", "d"]
    keep(kept, "b", 9)
    assert names(kept) == "bd"
    keep(kept, "c", 11)
    assert names(kept) == ""
    keep(kept, "a", 10)
    assert names(kept) == "a"
