"""The ring of the latest events, and filters: what a reader gets, and what it has lost."""

from dragoman_server.feed.events import MAX_BATCH_BYTES, MAX_BATCH_EVENTS, EventBatch, EventFilter, EventRing
from dragoman_server.settings.secret import Mask

ALL = EventFilter()


def filled(count: int, ring: EventRing | None = None, text: str = "") -> EventRing:
    ring = ring or EventRing()
    for number in range(count):
        ring.waiting.append(("request.begun", (f"r{number % 2}", "red", "m", "up"), {"a": text}))
    ring.encode(Mask(()))
    return ring


def numbers(batch: EventBatch) -> tuple[int, list[int], int]:
    return batch.lost, [event.number for event in batch.events], batch.last


def test_a_reader_gets_what_follows_and_how_many_it_has_lost() -> None:
    assert numbers(EventRing().after(0, ALL)) == (0, [], 0)
    ring = filled(5, EventRing(max_events=3))
    assert ring.kept == (3, 5)
    cases = {
        0: (2, [3, 4, 5], 5),
        1: (1, [3, 4, 5], 5),
        2: (0, [3, 4, 5], 5),
        4: (0, [5], 5),
        5: (0, [], 5),
    }
    assert {seen: numbers(ring.after(seen, ALL)) for seen in cases} == cases
    ring.clear()
    # It cannot be known what would have been kept meanwhile, so something is missing.
    assert numbers(ring.after(5, ALL)) == (1, [], 6)
    assert numbers(filled(1, ring).after(6, ALL)) == (0, [7], 7)


def test_bytes_are_bounded_as_well() -> None:
    ring = filled(10, EventRing(max_bytes=55), "0123456789")  # 18 bytes each
    assert ring.kept == (8, 10)
    ring.clear()
    assert filled(4, ring, "0123456789").kept == (13, 15), "all bytes were counted out"
    assert filled(1, ring, "0123456789" * 6).kept == (17, 16), "one that is larger than all is not kept"


def test_a_batch_is_bounded_and_the_next_one_goes_on() -> None:
    ring = filled(MAX_BATCH_EVENTS + 2)
    first = ring.after(0, ALL)
    assert (len(first.events), first.last) == (MAX_BATCH_EVENTS, MAX_BATCH_EVENTS)
    assert numbers(ring.after(first.last, ALL))[1] == [MAX_BATCH_EVENTS + 1, MAX_BATCH_EVENTS + 2]
    large = filled(5, text="x" * (MAX_BATCH_BYTES // 2 - 8))
    assert numbers(large.after(0, ALL)) == (0, [1, 2, 3], 3)


def test_a_filter_needs_one_value_of_each_field_and_goes_on_behind_what_it_leaves_out() -> None:
    ring = filled(4)
    cases = {
        EventFilter(request=frozenset({"r1"})): [2, 4],
        EventFilter(request=frozenset({"r0", "r1"})): [1, 2, 3, 4],
        EventFilter(request=frozenset({"r0"}), client_key=frozenset({"blue"})): [],
        EventFilter(type=frozenset({"request.ended"})): [],
        EventFilter(type=frozenset({"request.begun"}), model=frozenset({"m"}), upstream=frozenset({"up"})): [
            *(1, 2, 3, 4)
        ],
    }
    for wanted, found in cases.items():
        assert numbers(ring.after(0, wanted)) == (0, found, 4)
