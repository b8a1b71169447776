"""Costs that do not grow: of an event, a message and a request, whatever there is besides. `make growth` measures more.
And the core's time for an input, which grows no more than the input, whatever there is much of in it.

Calls of functions are counted at two sizes, so that the machine does not matter. A failure means that something is
walked for each event, message or request: look it up instead, or walk it once.
"""

import random
import time

import pytest
from fuzz import SECONDS
from growth import DIMENSIONS, shapes
from growth.cost import Dimension, measure

# asyncio has its timers in a heap, and rebuilds it with a few calls for each when half of them are cancelled. With 200
# connections that is once in the requests that are counted here, 49 calls for each. A walk would cost hundreds.
SHARE_MORE, CALLS_MORE = 0.03, 4


@pytest.mark.each_choice
@pytest.mark.parametrize("dimension", DIMENSIONS, ids=str)
def test_calls_do_not_grow(dimension: Dimension) -> None:
    _, few, *_, many, _ = dimension.sizes
    small, large = (measure(dimension, size, rounds=0).calls for size in (few, many))
    assert large <= small * (1 + SHARE_MORE) + CALLS_MORE, f"{few}: {small:.1f} calls; {many}: {large:.1f}"


# Of some 56,000 that `make fuzz` draws from, so that it takes less than a minute.
SHAPES = 30


@pytest.mark.fuzz
@pytest.mark.promise("S7")
def test_time_is_linear_in_the_input() -> None:
    """What is superlinear is looked up by a scan, or joined or copied again for each element."""
    deadline = time.monotonic() + SECONDS
    drawn = random.sample(shapes.cases(), len(shapes.cases())) if SECONDS else shapes.sample(SHAPES)
    problems = []
    for case in drawn:
        if SECONDS and time.monotonic() > deadline:
            break
        if SECONDS or shapes.may_grow(case):
            problems.append(shapes.problem(case))
    assert not any(problems), "\n".join(filter(None, problems))
