"""The attempts of one request: which account is next, when to wait, when to give up."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import rows
from hypothesis import given
from hypothesis import strategies as st

from dragoman._wire.errors import ErrorKind, WireError
from dragoman._wire.exceptions import LocalProtocolError
from dragoman_server.policy.attempts import (
    Account,
    Attempts,
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
ERRORS = {
    "busy": BUSY,
    "wrong": WRONG,
    "down": DOWN,
    "empty": WireError(ErrorKind.BILLING, "empty", status=402),
}
TRY_WRONG_AGAIN = ErrorRule(ErrorAction.TRY_NEXT, statuses=frozenset({400}), words=("wrong",))


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


class Script:
    """Carries out the lines of attempts.txt."""

    def __init__(self) -> None:
        self.attempts = Driven([])
        self.health: dict[str, Health] = {}
        self.now = 0.0

    def chain(self, *words: str) -> None:
        limits: dict[str, Any] = {
            name: float(value) for name, _, value in (w.partition("=") for w in words) if value
        }
        rules = (TRY_WRONG_AGAIN,) * ("rule" in words)
        accounts = [word for word in words if "=" not in word and word != "rule"]
        chain = [part.split() for part in " ".join(accounts).split("/") if part.strip()]
        self.attempts = Driven([upstream(*ids, rules=rules) for ids in chain], **limits)

    def set_health(self, account: str, *words: str) -> None:
        cooldown = next((float(word[9:]) for word in words if word.startswith("cooldown=")), 0.0)
        disabled = "401" if "disabled" in words else None
        self.health[account] = Health(cooldown, disabled=disabled, failing="failing" in words)

    def set_now(self, now: str) -> None:
        self.now = float(now)

    def run(self, word: str, *rest: str) -> str:
        """Return what a step returns, and the state after it."""
        attempts = self.attempts
        steps: dict[str, Callable[..., Any]] = {
            "take": lambda: take(attempts, self.health, self.now),
            "next": lambda: attempts.next(self.health, self.now),
            "fail": lambda error="down": attempts.failed(attempts.last, ERRORS[error]),
            "failed": lambda account, error="down": attempts.failed(account, ERRORS[error]),
            "resend": attempts.resend,
            "hedge": lambda: attempts.hedge(self.health, self.now),
            "accept": attempts.accepted,
            "decline": lambda until: attempts.declined(float(until)),
            "commit": attempts.committed,
            "cancel": attempts.cancelled,
        }
        try:
            found = steps[word](*rest)
        except LocalProtocolError as error:
            found = f"error: {error}"
        return f"{' '.join([word, *rest])}: {shown(found)} [{attempts.state.value}, {attempts.made} made]"


def shown(found: Any) -> str:
    match found:
        case Try(upstream_index, account):
            return f"try {account} of upstream {upstream_index}"
        case Offer(upstream_index, accounts):
            return f"offer {' '.join(accounts)} of upstream {upstream_index}"
        case Wait(until):
            return f"wait until {until:g}"
        case GiveUp(error, retry_at, failing):
            what = ", all of them failing" if failing else ""
            return f"give up: {error and error.message}, retry at {retry_at}{what}"
        case ErrorAction():
            return found.value
        case _:
            return str(found)


@pytest.mark.promise("R5", "R6")
def test_the_attempts_of_a_request() -> None:
    def output_of(lines: list[str]) -> list[str]:
        script, out = Script(), []
        settings = {"chain": script.chain, "health": script.set_health, "now": script.set_now}
        for word, *rest in (line.split() for line in lines):
            if word in settings:
                settings[word](*rest)
            else:
                out.append(script.run(word, *rest))
        return out

    rows.check(Path(__file__).with_name("attempts.txt"), output_of)


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


@pytest.mark.promise("R6")
@given(
    st.lists(st.lists(st.sampled_from(IDS), max_size=4, unique=True), max_size=3),
    st.dictionaries(
        st.sampled_from(IDS), st.builds(Health, st.floats(0, 50), disabled=st.none() | st.just("401"))
    ),
    st.lists(
        st.tuples(
            st.sampled_from(list(ERRORS.values())), st.floats(0, 20), st.floats(0, 0.999), st.booleans()
        ),
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
