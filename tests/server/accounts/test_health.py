"""The health of one account: cooldowns that get longer, are never shortened, and end with a success."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman_server.policy.error_actions import ErrorAction
from dragoman_server.policy.health import Backoff, Health

FRESH = Health()
BACKOFF = Backoff(
    rate_limit_s=10.0,
    failure_s=4.0,
    max_s=30.0,
    max_failure_s=12.0,
    max_failures=3,
    window_s=60.0,
    jitter=0.5,
)


def after(health: Health, action: ErrorAction, now: float, **more: float) -> Health:
    return health.after_failure(action, "why", now, backoff=BACKOFF, **more)


def test_a_fresh_account_is_usable() -> None:
    assert FRESH.usable(0.0)


@pytest.mark.parametrize("action", [ErrorAction.RETURN_TO_CLIENT, ErrorAction.TRY_NEXT])
def test_errors_that_are_not_the_accounts_change_nothing(action: ErrorAction) -> None:
    assert after(FRESH, action, 5.0) is FRESH


def test_disabled_until_it_is_reset() -> None:
    health = after(FRESH, ErrorAction.DISABLE, 5.0)
    assert health.disabled == "why"
    assert not health.usable(1e12)
    assert health.after_reset() == FRESH


def test_a_reset_clears_all_but_the_last_use() -> None:
    health = Health(9.0, "why", None, (1.0,), 2, last_used=7.0, remaining=0.5)
    assert health.after_reset() == Health(last_used=7.0)


@pytest.mark.promise("R7")
def test_r7_a_rate_limit_cools_down_as_long_as_the_upstream_requires() -> None:
    health = after(FRESH, ErrorAction.COOL_DOWN, 100.0, retry_after=7.0)
    assert (health.cooldown_until, health.cause, health.consecutive_cooldowns) == (107.0, "why", 1)
    assert [health.usable(now) for now in (106.9, 107.0)] == [False, True]


@pytest.mark.promise("R7")
def test_r7_jitter_makes_it_longer_never_shorter() -> None:
    assert after(FRESH, ErrorAction.COOL_DOWN, 100.0, retry_after=8.0, random=0.5).cooldown_until == 110.0


# By the cooldowns before it: seconds after a rate limit, and after the third failure.
COOLDOWNS: list[tuple[int, float, float]] = [
    (0, 10.0, 4.0),
    (1, 20.0, 8.0),
    (2, 30.0, 12.0),
    (50, 30.0, 12.0),
    (10_000, 30.0, 12.0),
]


def test_a_cooldown_without_a_named_time_doubles() -> None:
    for consecutive_cooldowns, *seconds in COOLDOWNS:
        health = Health(consecutive_cooldowns=consecutive_cooldowns, failures=(99.0, 99.5))
        found = [after(health, each, 100.0) for each in (ErrorAction.COOL_DOWN, ErrorAction.RETRY_LATER)]
        assert [each.cooldown_until - 100.0 for each in found] == seconds, consecutive_cooldowns


@pytest.mark.promise("R7")
def test_a_later_error_never_shortens_a_cooldown() -> None:
    cooling = after(FRESH, ErrorAction.COOL_DOWN, 100.0, retry_after=20.0)
    assert after(cooling, ErrorAction.COOL_DOWN, 101.0, retry_after=3.0) is cooling
    longer = after(cooling, ErrorAction.COOL_DOWN, 101.0, retry_after=30.0)
    # Both were on their way at once: one strike.
    assert (longer.cooldown_until, longer.consecutive_cooldowns) == (131.0, 1)
    assert after(longer, ErrorAction.COOL_DOWN, 140.0, retry_after=1.0).consecutive_cooldowns == 2


def test_f8_many_failures_cause_a_cooldown_single_ones_do_not() -> None:
    health = after(FRESH, ErrorAction.RETRY_LATER, 10.0)
    assert (health.usable(10.0), health.failures) == (True, (10.0,))
    health = after(health, ErrorAction.RETRY_LATER, 20.0)
    assert health.usable(20.0)
    health = after(health, ErrorAction.RETRY_LATER, 30.0)
    assert (health.cooldown_until, health.failures, health.consecutive_cooldowns) == (34.0, (), 1)


def test_failures_expire() -> None:
    health = Health(failures=(10.0, 20.0))
    assert after(health, ErrorAction.RETRY_LATER, 75.0).failures == (20.0, 75.0)
    assert after(health, ErrorAction.RETRY_LATER, 81.0).failures == (81.0,)


def test_an_error_with_a_time_cools_down_at_once() -> None:
    assert after(FRESH, ErrorAction.RETRY_LATER, 10.0, retry_after=6.0).cooldown_until == 16.0


def test_a_success_resets_failures_but_no_cooldown() -> None:
    health = Health(50.0, "why", None, (1.0,), 3)
    assert health.after_success(remaining=0.5) == Health(50.0, "why", None, (), 0, remaining=0.5)
    assert FRESH.after_success() is FRESH


@given(
    st.lists(
        st.tuples(
            st.sampled_from(list(ErrorAction)),
            st.floats(0, 100),
            st.none() | st.floats(0, 1000),
            st.floats(0, 1),
        )
    )
)
def test_cooldowns_are_bounded_and_only_grow(
    steps: list[tuple[ErrorAction, float, float | None, float]],
) -> None:
    health, now = FRESH, 0.0
    for action, passed, retry_after, random in steps:
        now += passed
        before = health
        health = health.after_failure(
            action, "why", now, retry_after=retry_after, random=random, backoff=BACKOFF
        )
        assert health.cooldown_until >= before.cooldown_until
        longest = max(BACKOFF.max_s, retry_after or 0.0) * (1 + BACKOFF.jitter)
        assert health.cooldown_until <= max(before.cooldown_until, now + longest)
        if retry_after is not None and action is ErrorAction.COOL_DOWN:
            assert health.cooldown_until >= now + retry_after
        assert len(health.failures) < BACKOFF.max_failures
        assert (health.disabled is not None) == (before.disabled is not None or action is ErrorAction.DISABLE)
