"""Costs that do not grow: of an event, a message and a request, whatever there is besides. `make growth` measures more.

Calls of functions are counted at two sizes, so that the machine does not matter. A failure means that something is
walked for each event, message or request: look it up instead, or walk it once.
"""

import pytest
from growth import DIMENSIONS
from growth.cost import Dimension, measure

# asyncio has its timers in a heap, and rebuilds it with a few calls for each when half of them are cancelled. With 200
# connections that is once in the requests that are counted here, 49 calls for each. A walk would cost hundreds.
SHARE_MORE, CALLS_MORE = 0.03, 4


@pytest.mark.each_choice
@pytest.mark.parametrize("dimension", DIMENSIONS, ids=str)
def test_calls_do_not_grow(dimension: Dimension) -> None:
    _, few, *_, many = dimension.sizes
    small, large = (measure(dimension, size, rounds=0).calls for size in (few, many))
    assert large <= small * (1 + SHARE_MORE) + CALLS_MORE, f"{few}: {small:.1f} calls; {many}: {large:.1f}"
