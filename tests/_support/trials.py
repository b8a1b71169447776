"""Assertions about time that hold on a machine which may stop any process for a second.

    for trial in trials():
        with trial:
            began = time.monotonic()
            ...
            assert time.monotonic() - began < 0.25

Noise only adds to a duration, so the smallest of a few measurements is the figure; and it can only spoil what has to
happen in time, never bring it about. What does not depend on time is asserted outside of the block.
"""

from collections.abc import Iterator
from types import TracebackType

import pytest

MAX_TRIALS = 5


class Trial:
    """One of several; all but the last may fail."""

    def __init__(self, *, is_last: bool) -> None:
        self._is_last = is_last
        self.has_passed = False

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> bool:
        self.has_passed = error is None
        return not self._is_last and isinstance(error, Exception | pytest.fail.Exception)


def trials() -> Iterator[Trial]:
    """Give some, until one passes. The last one's failure is the test's."""
    for number in range(1, MAX_TRIALS + 1):
        trial = Trial(is_last=number == MAX_TRIALS)
        yield trial
        if trial.has_passed:
            return
