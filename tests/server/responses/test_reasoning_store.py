"""The store of reasoning: its entries, their owners and ages, and the order in which they are dropped."""

import pytest

from dragoman.document import Reasoning
from dragoman.events import Signature
from dragoman_server.responses.reasoning import MAX_AGE_S, ReasoningStore

OTHER_KEYS: list[tuple[str, tuple[str, ...]]] = [
    ("blue", ("c1", "c2")),
    ("", ("c1", "c2")),
    ("red", ("c1",)),
    ("red", ("c2", "c1")),
    ("red", ("c1c2",)),
    ("red", ("c1", "c2", "")),
    ("redc1", ("c2",)),
    ("red", ()),
]


def entries(text: str = "Hm.", size: int = 0) -> tuple[Reasoning, ...]:
    native = {"type": "thinking", "thinking": text, "signature": "s" * size, "n": [1, 2.5, None, True]}
    return (
        Reasoning("", Signature(origin="anthropic_messages", model="m", native=native)),
        Reasoning("second"),
    )


@pytest.mark.parametrize("text", ["Hm.", "größe \u2028 𝄞", "\ud800"])
def test_stored_reasoning_is_found_unchanged(text: str) -> None:
    store = ReasoningStore(10_000)
    store.put("red", ("c1", "c2"), entries(text), now=0.0)
    assert store.get("red", ("c1", "c2"), now=1.0) == entries(text)


def test_an_entry_expires_after_an_hour_without_use() -> None:
    store = ReasoningStore(10_000)
    store.put("red", ("c1",), entries(), now=0.0)
    assert store.get("red", ("c1",), now=MAX_AGE_S - 1) is not None
    assert store.get("red", ("c1",), now=2 * MAX_AGE_S - 2) is not None
    assert store.get("red", ("c1",), now=3 * MAX_AGE_S - 2) is None
    assert (len(store), store.bytes) == (0, 0)


def test_the_least_recently_used_entry_is_dropped_first() -> None:
    store = ReasoningStore(10_000)
    for number in range(3):
        store.put("red", (f"c{number}",), entries(size=2500), now=float(number))
    store.get("red", ("c0",), now=5.0)
    store.put("red", ("c3",), entries(size=2500), now=6.0)
    found = [number for number in range(4) if store.get("red", (f"c{number}",), now=7.0)]
    assert found == [0, 2, 3]


def test_reasoning_larger_than_the_store_is_not_kept_and_evicts_nothing() -> None:
    store = ReasoningStore(5000)
    store.put("red", ("c1",), entries(), now=0.0)
    store.put("red", ("c2",), entries(size=6000), now=0.0)
    assert store.get("red", ("c1",), now=1.0) is not None
    assert store.get("red", ("c2",), now=1.0) is None


def test_stored_reasoning_is_not_in_the_repr() -> None:
    store = ReasoningStore(5000)
    store.put("red", ("c1",), entries("canary"), now=0.0)
    assert "canary" not in f"{store!r} {store._entries.keys()!r}"


def test_another_owner_or_other_calls_find_nothing() -> None:
    for owner, calls in OTHER_KEYS:
        store = ReasoningStore(10_000)
        store.put("red", ("c1", "c2"), entries(), now=0.0)
        assert store.get(owner, calls, now=1.0) is None, (owner, calls)
