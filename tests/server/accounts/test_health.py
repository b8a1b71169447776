"""The health of one account: cooldowns get longer, are never shortened, and end with a success: rows of health.txt."""

from pathlib import Path

import pytest
import rows
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


def step(health: Health, line: str) -> Health:
    word, *rest = line.split()
    if word == "reset":
        return health.after_reset()
    if word == "success":
        return health.after_success(remaining=float(rest[0]) if rest else None)
    more = {name: float(value) for name, value in (each.split("=") for each in rest[1:])}
    return health.after_failure(ErrorAction(word), "why", float(rest[0]), backoff=BACKOFF, **more)


def output_of(lines: list[str]) -> list[str]:
    health, out = eval(lines[0], {"Health": Health}), list[str]()
    for line in lines[1:]:
        if line.startswith("usable"):
            found = str(health.usable(float(line.split()[1])))
        else:
            before, health = health, step(health, line)
            found = "the same" if health is before else str(health)
        out.append(f"{line} -> {found}")
    return out


@pytest.mark.promise("R7")
def test_what_becomes_of_the_health_of_an_account() -> None:
    rows.check(Path(__file__).with_name("health.txt"), output_of)


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
