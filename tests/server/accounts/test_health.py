"""One account's health: rests that get longer, are never cut short, and end with a success."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman_server.accounts.error_actions import Verdict
from dragoman_server.accounts.health import Health, Rest

FRESH = Health()
REST = Rest(limit_s=10.0, trouble_s=4.0, most_s=30.0, troubles=3, window_s=60.0, jitter=0.5)


def after(health: Health, verdict: Verdict, now: float, **more: float) -> Health:
    return health.after_failure(verdict, "why", now, rest=REST, **more)


def test_a_fresh_account_is_usable() -> None:
    assert FRESH.usable(0.0)


@pytest.mark.parametrize("verdict", [Verdict.ANSWER, Verdict.NEXT])
def test_what_is_not_the_accounts_fault_changes_nothing(verdict: Verdict) -> None:
    assert after(FRESH, verdict, 5.0) is FRESH


def test_disabled_until_somebody_resets_it() -> None:
    health = after(FRESH, Verdict.DISABLE, 5.0)
    assert health.disabled == "why"
    assert not health.usable(1e12)
    assert health.after_reset() == FRESH


def test_a_reset_forgets_all_but_the_last_use() -> None:
    health = Health(9.0, "why", None, (1.0,), 2, used=7.0, remaining=0.5)
    assert health.after_reset() == Health(used=7.0)


@pytest.mark.promise("R7")
def test_r7_a_rate_limit_rests_as_long_as_the_upstream_says() -> None:
    health = after(FRESH, Verdict.COOL, 100.0, after=7.0)
    assert (health.cools_until, health.cause, health.strikes) == (107.0, "why", 1)
    assert [health.usable(now) for now in (106.9, 107.0)] == [False, True]


@pytest.mark.promise("R7")
def test_r7_chance_makes_it_longer_never_shorter() -> None:
    assert after(FRESH, Verdict.COOL, 100.0, after=8.0, draw=0.5).cools_until == 110.0


@pytest.mark.parametrize(
    ("strikes", "seconds"), [(0, 10.0), (1, 20.0), (2, 30.0), (50, 30.0), (10_000, 30.0)]
)
def test_without_a_time_it_doubles(strikes: int, seconds: float) -> None:
    assert after(Health(strikes=strikes), Verdict.COOL, 100.0).cools_until == 100.0 + seconds


@pytest.mark.promise("R7")
def test_a_later_report_never_cuts_a_rest_short() -> None:
    resting = after(FRESH, Verdict.COOL, 100.0, after=20.0)
    assert after(resting, Verdict.COOL, 101.0, after=3.0) is resting
    longer = after(resting, Verdict.COOL, 101.0, after=30.0)
    # Both were on their way at once: one strike.
    assert (longer.cools_until, longer.strikes) == (131.0, 1)
    assert after(longer, Verdict.COOL, 140.0, after=1.0).strikes == 2


def test_f8_single_troubles_are_borne_many_are_not() -> None:
    health = after(FRESH, Verdict.TROUBLE, 10.0)
    assert (health.usable(10.0), health.troubles) == (True, (10.0,))
    health = after(health, Verdict.TROUBLE, 20.0)
    assert health.usable(20.0)
    health = after(health, Verdict.TROUBLE, 30.0)
    assert (health.cools_until, health.troubles, health.strikes) == (34.0, (), 1)


def test_troubles_are_forgotten_in_time() -> None:
    health = Health(troubles=(10.0, 20.0))
    assert after(health, Verdict.TROUBLE, 75.0).troubles == (20.0, 75.0)
    assert after(health, Verdict.TROUBLE, 81.0).troubles == (81.0,)


def test_a_trouble_with_a_time_rests_at_once() -> None:
    assert after(FRESH, Verdict.TROUBLE, 10.0, after=6.0).cools_until == 16.0


def test_a_success_ends_the_strikes_but_no_rest() -> None:
    health = Health(50.0, "why", None, (1.0,), 3)
    assert health.after_success(remaining=0.5) == Health(50.0, "why", None, (), 0, remaining=0.5)
    assert FRESH.after_success() is FRESH


@given(
    st.lists(
        st.tuples(
            st.sampled_from(list(Verdict)),
            st.floats(0, 100),
            st.none() | st.floats(0, 1000),
            st.floats(0, 1),
        )
    )
)
def test_whatever_happens_rests_are_bounded_and_only_grow(
    steps: list[tuple[Verdict, float, float | None, float]],
) -> None:
    health, now = FRESH, 0.0
    for verdict, passed, wanted, draw in steps:
        now += passed
        before = health
        health = health.after_failure(verdict, "why", now, after=wanted, draw=draw, rest=REST)
        assert health.cools_until >= before.cools_until
        longest = max(REST.most_s, wanted or 0.0) * (1 + REST.jitter)
        assert health.cools_until <= max(before.cools_until, now + longest)
        if wanted is not None and verdict is Verdict.COOL:
            assert health.cools_until >= now + wanted
        assert len(health.troubles) < REST.troubles
        assert (health.disabled is not None) == (before.disabled is not None or verdict is Verdict.DISABLE)
