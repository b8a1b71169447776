"""Ways to cut bytes into chunks or text into parts, and how the Hypothesis tests of the core are run."""

from collections.abc import Iterator
from typing import TypeVar

from hypothesis import settings
from hypothesis import strategies as st

T = TypeVar("T", bytes, str)

# No deadline: these tests also run on busy machines and under coverage. Derandomised, so that the coverage of
# a module does not depend on luck; the fuzzers are the place for luck.
PROPERTY = settings(deadline=None, derandomize=True, database=None, max_examples=80)


def one_by_one(data: T) -> list[T]:
    return [data[at : at + 1] for at in range(len(data))]


def two_parts(data: T) -> Iterator[list[T]]:
    """Cut in two at every place, the ends included."""
    for at in range(len(data) + 1):
        yield [data[:at], data[at:]]


def all_ways(data: T) -> Iterator[list[T]]:
    """Whole, one by one, and cut in two at every place."""
    yield [data]
    yield one_by_one(data)
    yield from two_parts(data)


def cut_at(data: T, places: list[int]) -> list[T]:
    """Cut at these places; a place beyond the end cuts nothing."""
    ends = sorted({place for place in places if place < len(data)})
    return [data[a:b] for a, b in zip([0, *ends], [*ends, len(data)], strict=True)]


# Where to cut something short.
places = st.lists(st.integers(min_value=0, max_value=80), max_size=8)
