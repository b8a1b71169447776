"""The attempts of one request: which account is next, when to wait, when to give up."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman._wire.errors import ErrorKind, WireError
from dragoman._wire.exceptions import LocalProtocolError
from dragoman_server.policy.attempts import (
    Account,
    Attempts,
    AttemptState,
    GiveUp,
    Offer,
    Selection,
    UpstreamAccounts,
    Wait,
    order,
)
from dragoman_server.policy.error_actions import ErrorAction, ErrorRule
from dragoman_server.policy.health import Health

BUSY = WireError(ErrorKind.RATE_LIMIT, "busy", status=429)
WRONG = WireError(ErrorKind.INVALID_REQUEST, "wrong", status=400)
DOWN = WireError(ErrorKind.SERVER, "down", status=500)


def upstream(
    *ids: str, rules: tuple[ErrorRule, ...] = (), selection: Selection = Selection.LEAST_RECENTLY_USED
) -> UpstreamAccounts:
    return UpstreamAccounts(tuple(Account(each) for each in ids), selection, rules)


class Try(NamedTuple):
    upstream_index: int
    account: str


class Driven(Attempts):
    """Keeps the account that was taken last."""

    last = ""


def fail(attempts: Driven, error: WireError = DOWN) -> ErrorAction:
    """Fail the newest attempt."""
    return attempts.failed(attempts.last, error)


def take(
    attempts: Driven, health: Mapping[str, Health] = {}, now: float = 0.0, random: float = 0.0
) -> Try | Wait | GiveUp:
    """Return the next step; of an offer the first account is taken."""
    step = attempts.next(health, now, random)
    if not isinstance(step, Offer):
        return step
    attempts.accepted(step.accounts[0])
    attempts.last = step.accounts[0]
    return Try(step.upstream_index, step.accounts[0])


def trying(*accounts: str, **more: Any) -> Driven:
    """Return the attempts of a request whose first account is being tried."""
    attempts = Driven([upstream(*accounts)], **more)
    take(attempts)
    return attempts


def hedging(*accounts: str) -> Driven:
    """Return the same, with another account that is offered as a hedge."""
    attempts = trying(*accounts)
    attempts.hedge({}, 0.0)
    return attempts


def test_r6_each_account_once_in_the_order_of_the_chain() -> None:
    attempts = Driven([upstream("a", "b"), upstream("c")])
    steps: list[Try | Wait | GiveUp] = []
    for _ in range(3):
        steps.append(take(attempts))
        assert fail(attempts) is ErrorAction.RETRY_LATER
    assert steps == [Try(0, "a"), Try(0, "b"), Try(1, "c")]
    assert attempts.next({}, 0.0) == GiveUp(DOWN, None)
    assert (attempts.state, attempts.made) == (AttemptState.DONE, 3)


def test_an_account_of_two_upstreams_is_two() -> None:
    """The chain may name one account with two models, and may use both."""
    attempts = Driven([upstream("a"), upstream("a")])
    assert take(attempts, {}, 0.0) == Try(0, "a")
    fail(attempts)
    assert take(attempts, {}, 0.0) == Try(1, "a")


def test_f10_an_error_of_the_request_is_returned_at_once() -> None:
    attempts = trying("a", "b")
    assert fail(attempts, WRONG) is ErrorAction.RETURN_TO_CLIENT
    assert attempts.next({}, 0.0) == GiveUp(WRONG, None)


def test_an_upstreams_own_rules_count() -> None:
    rule = ErrorRule(ErrorAction.TRY_NEXT, statuses=frozenset({400}), words=("wrong",))
    attempts = Driven([upstream("a", "b", rules=(rule,))])
    take(attempts)
    assert fail(attempts, WRONG) is ErrorAction.TRY_NEXT
    assert take(attempts, {}, 0.0) == Try(0, "b")


def test_r6_the_limit_of_attempts() -> None:
    attempts = Driven([upstream("a", "b", "c")], max_attempts=2)
    for _ in range(2):
        take(attempts)
        fail(attempts)
    assert attempts.next({}, 0.0) == GiveUp(DOWN, None)


@pytest.mark.promise("R6")
def test_a_resend_counts_among_the_attempts() -> None:
    attempts = trying("a", "b", "c", max_attempts=3)
    assert attempts.resend("a")
    fail(attempts)
    assert take(attempts) == Try(0, "b")
    assert attempts.made == 3
    assert not attempts.resend("b")
    fail(attempts)
    assert attempts.next({}, 0.0) == GiveUp(DOWN, None)


def test_only_an_account_under_way_is_tried_again() -> None:
    attempts = Driven([upstream("a", "b")])
    with pytest.raises(LocalProtocolError, match="choosing, not trying"):
        attempts.resend("a")
    take(attempts)
    with pytest.raises(LocalProtocolError, match="not being tried"):
        attempts.resend("b")
    attempts.committed()
    assert not attempts.resend("a")  # another one had the client


def test_no_account_is_tried_again_after_an_error_for_the_client() -> None:
    attempts = hedging("a", "b")
    attempts.accepted("b")
    attempts.failed("a", WRONG)
    assert not attempts.resend("b")


def test_r6_cooling_and_disabled_accounts_are_passed_over() -> None:
    health = {"a": Health(disabled="401"), "b": Health(cooldown_until=5.0)}
    attempts = Driven([upstream("a", "b", "c")])
    assert take(attempts, health, 4.0) == Try(0, "c")
    fail(attempts, BUSY)
    assert take(attempts, health, 5.0) == Try(0, "b")


def test_f3_the_soonest_recovery_is_reported() -> None:
    health = {
        "a": Health(cooldown_until=50.0),
        "b": Health(cooldown_until=20.0),
        "c": Health(20.0, disabled="402"),
    }
    assert Driven([upstream("a"), upstream("b", "c")]).next(health, 1.0) == GiveUp(None, 20.0)


EMPTY = WireError(ErrorKind.BILLING, "empty", status=402)


REPORTED: list[tuple[list[WireError], WireError]] = [
    ([BUSY, EMPTY], BUSY),
    ([EMPTY, BUSY], BUSY),
    ([BUSY, DOWN], DOWN),
    ([EMPTY, EMPTY], EMPTY),
    ([BUSY, EMPTY, WRONG], WRONG),
]


def test_f4_a_passing_error_is_reported_before_a_lasting_one() -> None:
    for errors, reported in REPORTED:
        attempts = Driven([upstream("a", "b", "c")], max_attempts=len(errors))
        for error in errors:
            take(attempts)
            fail(attempts, error)
        assert attempts.next({}, 0.0) == GiveUp(reported, None), errors


def test_f10_an_error_of_the_request_has_no_retry_after() -> None:
    attempts = trying("a", "b")
    fail(attempts, WRONG)
    assert attempts.next({"b": Health(cooldown_until=9.0)}, 0.0) == GiveUp(WRONG, None)


def test_f3_tried_accounts_count_too() -> None:
    attempts = Driven([upstream("a", "b")])
    take(attempts, {"b": Health(cooldown_until=90.0)})
    fail(attempts, BUSY)
    health = {"a": Health(cooldown_until=7.0), "b": Health(cooldown_until=90.0)}
    assert attempts.next(health, 0.0) == GiveUp(BUSY, 7.0)


def test_waiting_for_an_account_that_comes_back_soon() -> None:
    health = {"a": Health(cooldown_until=5.0), "b": Health(cooldown_until=8.0)}
    attempts = Driven([upstream("a", "b")], max_wait=6.0)
    assert attempts.next(health, 0.0) == Wait(5.0)
    assert take(attempts, health, 5.0) == Try(0, "a")
    fail(attempts, BUSY)
    # Patience is for the whole request, and it began at 0.
    assert attempts.next(health | {"a": Health(cooldown_until=99.0)}, 5.0) == GiveUp(BUSY, 8.0)


def test_an_account_that_was_tried_is_not_waited_for() -> None:
    attempts = trying("a", max_wait=60.0)
    fail(attempts, BUSY)
    assert attempts.next({"a": Health(cooldown_until=1.0)}, 0.0) == GiveUp(BUSY, 1.0)


def test_no_account_at_all() -> None:
    assert Driven([]).next({}, 0.0) == GiveUp(None, None)


@pytest.mark.promise("R5")
def test_r5_after_content_there_is_no_other_attempt() -> None:
    attempts = trying("a", "b")
    attempts.committed()
    assert attempts.state is AttemptState.DONE
    for call in (
        lambda: attempts.next({}, 0.0),
        lambda: fail(attempts),
        attempts.committed,
        lambda: attempts.hedge({}, 0.0),
    ):
        with pytest.raises(LocalProtocolError, match="are done"):
            call()


def test_only_one_attempt_at_a_time() -> None:
    attempts = Driven([upstream("a", "b")])
    with pytest.raises(LocalProtocolError, match="choosing, not trying"):
        attempts.failed("a", DOWN)
    with pytest.raises(LocalProtocolError, match="choosing, not offered"):
        attempts.accepted("a")
    with pytest.raises(LocalProtocolError, match="choosing, not offered"):
        attempts.declined(1.0)
    take(attempts)
    with pytest.raises(LocalProtocolError, match="trying, not choosing"):
        attempts.next({}, 0.0)


def test_only_what_was_offered_is_taken() -> None:
    attempts = Driven([upstream("a", "b")])
    assert attempts.next({"b": Health(disabled="401")}, 0.0) == Offer(0, ("a",))
    with pytest.raises(LocalProtocolError, match="not offered"):
        attempts.accepted("b")


def test_any_of_the_offered_may_be_taken() -> None:
    attempts = Driven([upstream("a", "b", "c")])
    assert attempts.next({}, 0.0) == Offer(0, ("a", "b", "c"))
    attempts.accepted("b")
    attempts.failed("b", DOWN)
    assert attempts.next({}, 0.0) == Offer(0, ("a", "c"))


def test_accounts_at_their_limit_are_passed_over_for_a_time() -> None:
    attempts = Driven([upstream("a", "b"), upstream("c")], max_wait=9.0)
    attempts.next({}, 0.0)
    attempts.declined(4.0)
    assert attempts.made == 0
    assert attempts.next({}, 0.0) == Offer(1, ("c",))
    attempts.declined(3.0)
    assert attempts.next({}, 0.0) == Wait(3.0)
    assert attempts.next({}, 3.0) == Offer(1, ("c",))
    attempts.declined(99.0)
    assert attempts.next({}, 3.0) == Wait(4.0)
    assert attempts.next({}, 4.0) == Offer(0, ("a", "b"))


def test_never_is_no_time_to_come_back() -> None:
    attempts = Driven([upstream("a")], max_wait=9.0)
    attempts.next({}, 0.0)
    attempts.declined(math.inf)
    assert attempts.next({}, 0.0) == GiveUp(None, None)


def test_a_hedge_is_another_account_beside_the_first() -> None:
    attempts = Driven([upstream("a"), upstream("a", "b")])
    take(attempts)
    assert attempts.hedge({}, 0.0) == Offer(1, ("b",))
    attempts.accepted("b")
    assert (attempts.state, attempts.made) == (AttemptState.TRYING, 2)
    assert attempts.hedge({}, 0.0) is None
    assert attempts.failed("b", DOWN) is ErrorAction.RETRY_LATER
    assert attempts.state is AttemptState.TRYING
    attempts.failed("a", BUSY)
    assert attempts.next({}, 0.0) == Offer(1, ("a",))


def test_a_hedge_without_a_free_account_leaves_the_first_running() -> None:
    attempts = hedging("a", "b")
    attempts.declined(5.0)
    assert attempts.state is AttemptState.TRYING
    attempts.committed()


def test_an_offered_hedge_stays_valid_when_the_first_one_fails() -> None:
    attempts = hedging("a", "b")
    attempts.failed("a", DOWN)
    assert attempts.state is AttemptState.OFFERED
    attempts.accepted("b")
    assert attempts.state is AttemptState.TRYING


def test_a_hedge_without_a_free_account_after_the_first_one_failed() -> None:
    attempts = hedging("a", "b")
    attempts.failed("a", DOWN)
    attempts.declined(5.0)
    assert attempts.next({}, 0.0) == GiveUp(DOWN, 5.0)


def test_an_offered_hedge_is_void_after_an_error_for_the_client() -> None:
    attempts = hedging("a", "b")
    attempts.failed("a", WRONG)
    assert attempts.state is AttemptState.CHOOSING
    with pytest.raises(LocalProtocolError, match="choosing, not offered"):
        attempts.accepted("b")
    assert attempts.next({}, 0.0) == GiveUp(WRONG, None)


def test_an_offered_hedge_is_void_after_content_was_sent() -> None:
    attempts = hedging("a", "b")
    attempts.committed()
    with pytest.raises(LocalProtocolError, match="done, not offered"):
        attempts.accepted("b")


def test_a_dropped_attempt_changes_nothing_of_its_account() -> None:
    attempts = hedging("a", "b")
    attempts.accepted("b")
    attempts.failed("a", WRONG)
    assert attempts.state is AttemptState.TRYING
    attempts.cancelled("b")
    assert attempts.next({}, 0.0) == GiveUp(WRONG, None)
    with pytest.raises(LocalProtocolError, match="are done"):
        attempts.cancelled("b")


def test_no_attempt_is_dropped_or_fails_before_a_first_one_runs() -> None:
    attempts = Driven([upstream("a", "b")])
    attempts.next({}, 0.0)
    for call in (lambda: attempts.failed("a", DOWN), lambda: attempts.cancelled("a"), attempts.committed):
        with pytest.raises(LocalProtocolError, match="offered, not trying"):
            call()


def test_a_hedge_counts_among_the_attempts() -> None:
    attempts = trying("a", "b", max_attempts=1)
    assert attempts.hedge({}, 0.0) is None


def test_an_error_for_the_client_ends_both() -> None:
    attempts = hedging("a", "b", "c")
    attempts.accepted("b")
    attempts.failed("a", WRONG)
    attempts.failed("b", DOWN)
    assert attempts.next({}, 0.0) == GiveUp(WRONG, None)


def test_r5_no_account_is_free() -> None:
    attempts = Driven([upstream("a")])
    attempts.next({}, 0.0)
    attempts.declined(4.0)
    assert attempts.next({}, 0.0) == GiveUp(None, 4.0)


# Which one of several


def used(**at: float) -> dict[str, Health]:
    return {name: Health(last_used=when) for name, when in at.items()}


def left(**shares: float) -> dict[str, Health]:
    return {name: Health(remaining=share) for name, share in shares.items()}


SELECTIONS: list[tuple[Selection, dict[str, Health], float, str]] = [
    (Selection.LEAST_RECENTLY_USED, {}, 0.9, "abc"),
    (Selection.LEAST_RECENTLY_USED, used(a=3.0, b=1.0, c=2.0), 0.9, "bca"),
    (Selection.LEAST_RECENTLY_USED, used(a=3.0, b=1.0), 0.0, "cba"),
    (Selection.WEIGHTED, {}, 0.0, "abc"),
    (Selection.WEIGHTED, {}, 0.24, "abc"),
    (Selection.WEIGHTED, used(a=1.0), 0.26, "bca"),
    (Selection.WEIGHTED, {}, 0.74, "bac"),
    (Selection.WEIGHTED, {}, 0.76, "cab"),
    (Selection.WEIGHTED, {}, 1.0, "cab"),
    (Selection.MOST_REMAINING, left(a=0.2, b=0.9, c=0.5), 0.0, "bca"),
    (Selection.MOST_REMAINING, left(a=0.9), 0.0, "bca"),
    (Selection.MOST_REMAINING, left(a=0.5) | used(b=9.0, c=8.0), 0.0, "cba"),
]


def test_selection() -> None:
    for selection, health, random, offered in SELECTIONS:
        accounts = [Account("a"), Account("b", 2.0), Account("c")]
        assert "".join(order(accounts, health, selection, random)) == offered, (selection, health, random)


def test_weights_are_kept_over_many_draws() -> None:
    accounts = [Account("a", 1.0), Account("b", 3.0)]
    draws = [number / 1000 for number in range(1000)]
    chosen = [order(accounts, {}, Selection.WEIGHTED, random)[0] for random in draws]
    assert chosen.count("b") == 750


# Properties

IDS = ["a", "b", "c", "d", "e"]
ERRORS = [BUSY, WRONG, DOWN, WireError(ErrorKind.BILLING, "empty", status=402)]


@pytest.mark.promise("R6")
@given(
    st.lists(st.lists(st.sampled_from(IDS), max_size=4, unique=True), max_size=3),
    st.dictionaries(
        st.sampled_from(IDS), st.builds(Health, st.floats(0, 50), disabled=st.none() | st.just("401"))
    ),
    st.lists(
        st.tuples(st.sampled_from(ERRORS), st.floats(0, 20), st.floats(0, 0.999), st.booleans()),
        min_size=30,
        max_size=30,
    ),
    st.integers(0, 12),
    st.floats(0, 100),
    st.sampled_from(list(Selection)),
)
def test_r6_properties_of_random_attempts(
    chain: list[list[str]],
    health: dict[str, Health],
    outcomes: list[tuple[WireError, float, float, bool]],
    max_attempts: int,
    max_wait: float,
    selection: Selection,
) -> None:
    """At most so many attempts, each account once but for a resend, none that is cooling or disabled, and it
    always ends.
    """
    attempts = Driven(
        [upstream(*ids, selection=selection) for ids in chain], max_attempts=max_attempts, max_wait=max_wait
    )
    tried: list[Try] = []
    resent = 0
    now = begun = 0.0
    for error, passed, random, lost in outcomes:
        step = take(attempts, health, now, random)
        if isinstance(step, GiveUp):
            assert (step.error is None) is (not tried)
            assert step.retry_at is None or step.retry_at > now
            return
        if isinstance(step, Wait):
            assert step.until > now
            if not tried:
                assert step.until <= begun + max_wait
            now = step.until
            continue
        assert step not in tried
        assert step.account in chain[step.upstream_index]
        assert health.get(step.account, Health()).usable(now)
        tried.append(step)
        if lost:
            resent += attempts.resend(step.account)
        assert len(tried) + resent == attempts.made <= max_attempts
        now += passed
        action = attempts.failed(step.account, error)
        health = health | {step.account: health.get(step.account, Health()).after_failure(action, "why", now)}
    raise AssertionError("it never ends")
