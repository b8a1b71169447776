"""A day in virtual time. `make soak-day` lets one pass with twelve times as many requests."""

import pytest
from day import HOURS, HOURS_OF_BUDGET, MAX_LEFT_AN_HOUR, Day
from virtual_time import VIRTUAL_BACKENDS, backend


@pytest.mark.promise("R9")
@pytest.mark.parametrize("loop", VIRTUAL_BACKENDS)
def test_a_day(loop: str) -> None:
    day = Day(every_s=120.0)
    day.run(*backend(loop))
    statuses = [{name: set(day.statuses[name, hour]) for name in ("red", "blue")} for hour in range(HOURS)]
    # Noon to noon: a day's budget begins at the start and in the middle, and ends in the hour before it is used up.
    spent = [*range(HOURS_OF_BUDGET, HOURS // 2), *range(HOURS // 2 + HOURS_OF_BUDGET, HOURS)]
    ending = {HOURS_OF_BUDGET - 1, HOURS // 2 + HOURS_OF_BUDGET - 1}
    for hour in range(HOURS):
        assert statuses[hour]["blue"] == {200, 0}
        if hour not in ending:
            assert statuses[hour]["red"] == ({402, 429} if hour in spent else {200, 0})
    # One request an hour finds out about the limit; when that has passed, the account is used again.
    assert day.upstream["a", 429] == HOURS
    assert day.upstream["a", 200] > HOURS
    counted = [day.statuses["red", hour] + day.statuses["blue", hour] for hour in range(HOURS)]
    assert [day.usage[hour] for hour in sorted(day.usage)] == [found[200] + found[0] for found in counted]
    assert day.left_an_hour < MAX_LEFT_AN_HOUR
