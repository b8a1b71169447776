"""A gateway goes on when its store of accounts is slow or dead, and sends it afterwards the changes that it has missed.

The store is a fake that responds, fails or hangs; time is virtual.
"""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from enum import Enum
from typing import Any

import anyio
import pytest
from account_stores import NOW, failure, total
from virtual_time import VIRTUAL_BACKENDS

from dragoman_server.accounts.stores.base import (
    AccountStore,
    AccountStoreError,
    Candidate,
    NoRoom,
    Operation,
    Rate,
    Reservation,
)
from dragoman_server.accounts.stores.memory import MemoryAccountStore
from dragoman_server.accounts.stores.operations import (
    Add,
    Change,
    ReadKeyTables,
    Release,
    Reserve,
    Spend,
    WriteKeyTable,
)
from dragoman_server.accounts.stores.resilient import DEADLINE_S, PROBE, ResilientStore
from dragoman_server.policy.error_actions import ErrorAction
from dragoman_server.policy.health import Health

pytestmark = [pytest.mark.anyio, pytest.mark.backends(*VIRTUAL_BACKENDS)]


class Behaviour(Enum):
    WORKS = "works"
    FAILS = "fails"
    HANGS = "hangs"
    DOES_IT_BUT_HANGS = "does it, but hangs"
    ANSWERS_PROBES = "responds to probes only"
    REFUSES_PROBES = "responds to all but probes"


class FakeStore(MemoryAccountStore):
    """calls: their names, probes left out. done: those of them that had an effect."""

    def __init__(self) -> None:
        super().__init__()
        self.behaviour = Behaviour.WORKS
        self.calls: list[str] = []
        self.probes = 0
        self.seconds = 0.0  # of a call that succeeds

    async def apply(self, operation: Operation[Any]) -> Any:
        is_probe = operation == PROBE
        if is_probe:
            self.probes += 1
        else:
            self.calls.append(described(operation))
        failing = {Behaviour.ANSWERS_PROBES: not is_probe, Behaviour.REFUSES_PROBES: is_probe}
        if self.behaviour is Behaviour.FAILS or failing.get(self.behaviour):
            raise AccountStoreError("out of order")
        if self.behaviour is Behaviour.HANGS:
            await anyio.sleep_forever()
        if self.seconds:
            await anyio.sleep(self.seconds)
        result = await super().apply(operation)
        if self.behaviour is Behaviour.DOES_IT_BUT_HANGS:
            await anyio.sleep_forever()
        return result


def described(operation: Operation[Any]) -> str:
    match operation:
        case Release(reservation, tokens):
            return f"release {reservation.lease} {tokens:g}"
        case Change(account, change):
            return f"{transition(change)} {account}"
        case Add(amount=amount):
            return f"add {amount:g}"
        case _:
            return type(operation).__name__


def transition(change: Callable[[Health], Health]) -> str:
    """Return which of Health's transitions a change is."""
    after = change(Health(disabled="before", failures=(NOW,)))
    if after.disabled not in ("before", None):
        return "disable"
    return "reset" if after.disabled is None else "failed" if after.failures else "succeeded"


A, B = Candidate("up/a"), Candidate("up/b")
ONE_AT_ONCE = Candidate("up/a", max_concurrent_requests=1)
TOKENS = Candidate("up/a", tokens=Rate("up/a:tokens", 1000, 60.0))
KEY = Rate("key", 2, 60.0)
BUDGET = [("budget", None), ("other", NOW + 9)]


@pytest.fixture
def store() -> FakeStore:
    return FakeStore()


@pytest.fixture
async def resilient(store: FakeStore) -> AsyncIterator[ResilientStore]:
    """It runs, and its first probe of the store has succeeded."""
    resilient = ResilientStore(store, MemoryAccountStore())
    async with resilient.running():
        await anyio.wait_all_tasks_blocked()
        yield resilient


async def reserve(
    store: AccountStore, *candidates: Candidate, lease: str = "l", now: float = NOW
) -> str | None:
    response = await store.apply(Reserve(candidates, None, lease, now))
    return response.candidate.account if isinstance(response, Reservation) else None


async def cool(store: AccountStore, account: str) -> None:
    await store.apply(failure(account, after=60.0))


async def fail(store: AccountStore, account: str) -> None:
    await store.apply(failure(account, ErrorAction.RETRY_LATER, repeatable=False))


async def reserve_until_open(resilient: ResilientStore) -> None:
    for _ in range(3):
        await reserve(resilient, A)
    assert resilient.is_open


async def settle() -> None:
    await anyio.sleep(1.0)


# The deadline and the breaker.


async def test_a_store_that_works_decides(store: FakeStore, resilient: ResilientStore) -> None:
    await store.apply(Change("up/a", lambda health: health.after_disabling("by another gateway")))
    assert await reserve(resilient, A, B) == "up/b"
    assert resilient.health() == store.health()
    assert (resilient.local_decisions, resilient.is_open) == (0, False)


CALLS: dict[str, Callable[[AccountStore], Awaitable[object]]] = {
    "reserve": lambda store: store.apply(Reserve([A], None, "l", NOW)),
    "release": lambda store: store.apply(Release(Reservation(ONE_AT_ONCE, "l"), 1.0, NOW)),
    "failed": lambda store: cool(store, "up/a"),
    "succeeded": lambda store: store.apply(
        Change("up/a", lambda health: health.after_success(remaining=0.5))
    ),
    "disable": lambda store: store.apply(Change("up/a", lambda health: health.after_disabling("why"))),
    "reset": lambda store: store.apply(Change("up/a", Health.after_reset)),
    "spend": lambda store: store.apply(Spend([(KEY, 1.0)], NOW, at_once=True)),
    "spend later": lambda store: store.apply(Spend([(KEY, 1.0)], NOW, at_once=False)),
    "add": lambda store: store.apply(Add([("budget", None)], 1.0, NOW)),
    "add within": lambda store: store.apply(Add([("budget", None)], 1.0, NOW, 5.0)),
    "total": lambda store: total(store, "budget", NOW),
}


LOCAL_DECISIONS = ("reserve", "spend", "add within")


@pytest.mark.parametrize("behaviour", [Behaviour.FAILS, Behaviour.HANGS])
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.promise("R11")
@pytest.mark.each_choice
async def test_no_call_fails_or_waits_longer_than_the_deadline(
    call: str, behaviour: Behaviour, store: FakeStore, resilient: ResilientStore
) -> None:
    model = MemoryAccountStore()
    store.behaviour = behaviour
    began = anyio.current_time()
    assert await CALLS[call](resilient) == await CALLS[call](model)
    assert anyio.current_time() - began <= DEADLINE_S + 1e-9
    assert dict(resilient.health()) == dict(model.health())
    assert resilient.local_decisions == (call in LOCAL_DECISIONS)


async def test_a_store_that_responds_to_others_meanwhile_works(
    store: FakeStore, resilient: ResilientStore
) -> None:
    """When hundreds of requests begin at once, the last of them are late because of the first."""
    store.seconds = 2 * DEADLINE_S
    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(reserve, resilient, A)
        await anyio.wait_all_tasks_blocked()
        store.seconds = 0.0
        await reserve(resilient, A)
    assert (resilient.local_decisions, resilient.is_open) == (5, False)


async def test_after_a_few_failures_no_request_waits(store: FakeStore, resilient: ResilientStore) -> None:
    store.behaviour = Behaviour.HANGS
    await reserve_until_open(resilient)
    requested, began = len(store.calls), anyio.current_time()
    for call in CALLS.values():
        await call(resilient)
    assert anyio.current_time() == began
    assert len(store.calls) == requested


async def test_single_failures_do_not_open_it(store: FakeStore, resilient: ResilientStore) -> None:
    for _ in range(10):
        store.behaviour = Behaviour.FAILS
        await reserve(resilient, A)
        store.behaviour = Behaviour.WORKS
        await reserve(resilient, A)
        assert not resilient.is_open
    assert resilient.local_decisions == 10


async def test_the_breaker_closes_without_a_waiting_request(
    store: FakeStore, resilient: ResilientStore
) -> None:
    store.behaviour = Behaviour.HANGS
    await reserve_until_open(resilient)
    await anyio.sleep(60)
    assert resilient.is_open
    assert 100 < store.probes < 300
    store.behaviour = Behaviour.WORKS
    await settle()
    assert not resilient.is_open
    decisions = resilient.local_decisions
    assert await reserve(resilient, A) == "up/a"
    assert resilient.local_decisions == decisions


async def test_a_store_that_fails_from_the_start_is_detected_before_the_first_request() -> None:
    store = FakeStore()
    resilient = ResilientStore(store, MemoryAccountStore())
    store.behaviour = Behaviour.HANGS
    async with resilient.running():
        await settle()
        assert resilient.is_open


async def test_the_log_has_a_line_for_each_change_and_none_for_requests(
    caplog: pytest.LogCaptureFixture, store: FakeStore, resilient: ResilientStore
) -> None:
    caplog.set_level(logging.INFO, "dragoman.accounts")
    for _ in range(2):
        store.behaviour = Behaviour.FAILS
        for _ in range(50):
            await reserve(resilient, A)
            await cool(resilient, "up/b")
        await settle()
        store.behaviour = Behaviour.WORKS
        await settle()
    fails = "the account store does not work; this gateway decides from its own memory: out of order"
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", fails),
        ("INFO", "the account store works again, after 50 local decisions in all"),
        ("WARNING", fails),
        ("INFO", "the account store works again, after 100 local decisions in all"),
    ]


async def test_a_store_that_works_for_moments_only_is_left_alone_for_longer(
    caplog: pytest.LogCaptureFixture, store: FakeStore, resilient: ResilientStore
) -> None:
    store.behaviour = Behaviour.ANSWERS_PROBES
    for _ in range(600):
        await reserve(resilient, A)
        await anyio.sleep(0.1)
    assert len(store.calls) < 50, "three for each time that it seemed to work"
    assert len(caplog.messages) < 18, "one each time"
    store.behaviour = Behaviour.WORKS
    await anyio.sleep(30)
    store.behaviour = Behaviour.FAILS
    await reserve_until_open(resilient)
    store.behaviour = Behaviour.WORKS
    await settle()
    assert not resilient.is_open, "long ago is forgotten"


async def test_a_store_that_takes_requests_but_not_what_it_has_missed_is_not_called(
    store: FakeStore, resilient: ResilientStore
) -> None:
    """Redis without memory accepts leases, because the script deletes some first. None was given back."""
    store.behaviour = Behaviour.FAILS
    for lease in map(str, range(20)):
        assert await reserve(resilient, ONE_AT_ONCE, lease=lease) == "up/a"
        store.behaviour = Behaviour.REFUSES_PROBES
        await resilient.apply(Release(Reservation(ONE_AT_ONCE, lease), 0.0, NOW))
        await anyio.sleep(0.1)
    assert resilient.is_open
    store.behaviour = Behaviour.WORKS
    await settle()
    assert not resilient.is_open
    assert store.leases("up/a", NOW) == 0


async def test_calls_that_were_under_way_do_not_hide_that(
    store: FakeStore, resilient: ResilientStore
) -> None:
    async def keep_busy() -> None:
        while True:
            await reserve(resilient, A)
            await anyio.sleep(0.001)

    store.seconds = 0.04
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(keep_busy)
        await anyio.sleep(0.02)
        store.behaviour = Behaviour.FAILS
        await cool(resilient, "up/b")
        store.behaviour = Behaviour.REFUSES_PROBES
        await settle()
        assert resilient.is_open
        tasks.cancel_scope.cancel()


async def test_a_hang_is_reported_as_a_hang(
    caplog: pytest.LogCaptureFixture, store: FakeStore, resilient: ResilientStore
) -> None:
    store.behaviour = Behaviour.HANGS
    await reserve_until_open(resilient)
    assert caplog.messages[-1].endswith("this gateway decides from its own memory: no response within 50 ms")


# Its own decisions.


async def test_local_decisions_start_from_the_last_known_state(
    store: FakeStore, resilient: ResilientStore
) -> None:
    two = Candidate("up/c", requests=Rate("two", 2, 60.0))
    assert await reserve(resilient, ONE_AT_ONCE, lease="held") == "up/a"
    assert await reserve(resilient, two) == "up/c"
    await resilient.apply(Reserve([B, A], "conversation", "l", NOW))
    await store.apply(Change("up/bad", lambda health: health.after_disabling("by another gateway")))
    assert await resilient.apply(Spend([(KEY, 1.0)], NOW, at_once=True)) == [0.0]
    await store.apply(Add([("budget", None)], 5.0, NOW))
    assert await total(resilient, "budget", NOW) == 5.0
    store.behaviour = Behaviour.FAILS
    await reserve_until_open(resilient)
    assert await reserve(resilient, Candidate("up/bad")) is None
    assert await reserve(resilient, ONE_AT_ONCE, lease="m") is None
    assert [await reserve(resilient, two) for _ in range(2)] == ["up/c", None]
    found = await resilient.apply(Reserve([A, B], "conversation", "l", NOW))
    assert found == Reservation(B, "l", is_stored=False)
    spent = [await resilient.apply(Spend([(KEY, 1.0)], NOW, at_once=True)) for _ in range(2)]
    assert spent == [[0.0], [NOW + 30]]
    await resilient.apply(Add([("budget", None)], 1.0, NOW))
    assert await total(resilient, "budget", NOW) == 6.0
    await resilient.apply(Release(Reservation(ONE_AT_ONCE, "held"), 0.0, NOW))
    assert await reserve(resilient, ONE_AT_ONCE, lease="m") == "up/a"


async def test_client_keys_are_in_the_store_alone(store: FakeStore, resilient: ResilientStore) -> None:
    write = WriteKeyTable("red", "", "{}", "1")
    assert await resilient.apply(write)
    assert resilient._local.key_tables() == {}
    store.behaviour = Behaviour.FAILS
    for operation in (write, ReadKeyTables("")) * 3:  # as often as the circuit breaker lets pass, and more
        with pytest.raises(AccountStoreError, match="out of order"):
            await resilient.apply(operation)
    store.behaviour = Behaviour.WORKS
    await settle()
    assert await resilient.apply(ReadKeyTables("")) == {"red": "{}", "": "1"}


async def test_accounts_take_turns_during_the_failure(store: FakeStore, resilient: ResilientStore) -> None:
    store.behaviour = Behaviour.FAILS
    for number in range(10):
        await reserve(resilient, A, now=NOW + number)
    assert resilient.health()["up/a"].last_used == NOW + 9
    await cool(resilient, "up/a")
    assert resilient.health()["up/a"] == Health(NOW + 60, "why", consecutive_cooldowns=1, last_used=NOW + 9)


# Missed changes.


async def test_changes_are_sent_in_order_after_recovery(store: FakeStore, resilient: ResilientStore) -> None:
    store.behaviour = Behaviour.FAILS
    await reserve_until_open(resilient)
    store.calls.clear()
    await resilient.apply(Change("up/a", lambda health: health.after_disabling("by hand")))
    await cool(resilient, "up/b")
    await resilient.apply(Change("up/a", Health.after_reset))
    await fail(resilient, "up/c")
    await resilient.apply(Add([("budget", None)], 1.5, NOW))
    expected = dict(resilient.health())
    store.behaviour = Behaviour.WORKS
    await settle()
    assert store.calls == ["disable up/a", "failed up/b", "reset up/a", "failed up/c", "add 1.5"]
    assert dict(resilient.health()) == dict(store.health())
    found = {account: store.health()[account] for account in ("up/b", "up/c")}
    assert found == {account: expected[account] for account in ("up/b", "up/c")}
    assert store.health()["up/a"].usable(NOW)
    assert await total(store, "budget", NOW) == 1.5


async def test_a_lost_change_is_sent_again_though_the_breaker_never_opened(
    store: FakeStore, resilient: ResilientStore
) -> None:
    store.behaviour = Behaviour.FAILS
    await cool(resilient, "up/a")
    assert resilient.health()["up/a"].cooldown_until == NOW + 60
    store.behaviour = Behaviour.WORKS
    await settle()
    assert store.health()["up/a"].cooldown_until == NOW + 60
    assert not resilient.is_open


async def test_a_change_during_the_replay_is_sent_after_it(
    store: FakeStore, resilient: ResilientStore
) -> None:
    store.behaviour = Behaviour.FAILS
    await resilient.apply(Change("up/a", lambda health: health.after_disabling("by hand")))
    store.behaviour = Behaviour.WORKS
    await resilient.apply(Change("up/a", Health.after_reset))
    assert resilient.health()["up/a"].disabled is None
    await settle()
    assert store.calls == ["disable up/a", "disable up/a", "reset up/a"]
    assert resilient.health() == {"up/a": Health()}


async def test_leases_are_given_back_however_much_the_store_has_missed(
    store: FakeStore, resilient: ResilientStore
) -> None:
    before = await resilient.apply(Reserve([ONE_AT_ONCE], None, "before", NOW))
    assert isinstance(before, Reservation)
    store.behaviour = Behaviour.FAILS
    await reserve_until_open(resilient)
    await resilient.apply(Release(before, 0.0, NOW))
    for number in range(1100):
        during = await resilient.apply(Reserve([ONE_AT_ONCE], None, str(number), NOW))
        assert isinstance(during, Reservation)
        await resilient.apply(Release(during, 0.0, NOW))
        await resilient.apply(Add([("budget", None)], 1.0, NOW))
    store.calls.clear()
    store.behaviour = Behaviour.WORKS
    await settle()
    assert store.leases("up/a", NOW) == 0
    assert store.calls.count("add 1") == len(store.calls) - 1 == 999, "the others never were in the store"


async def test_changes_of_another_gateway_during_the_failure_are_seen(
    store: FakeStore, resilient: ResilientStore
) -> None:
    store.behaviour = Behaviour.FAILS
    await cool(resilient, "up/a")
    await MemoryAccountStore.apply(
        store, Change("up/b", lambda health: health.after_disabling("by another gateway"))
    )
    assert resilient.health()["up/b"].disabled == "by another gateway"
    assert await reserve(resilient, A, B) is None


async def test_tokens_and_money_are_never_counted_twice(store: FakeStore, resilient: ResilientStore) -> None:
    store.behaviour = Behaviour.DOES_IT_BUT_HANGS
    await resilient.apply(Release(Reservation(TOKENS, "l"), 700.0, NOW))
    await resilient.apply(Add([("budget", None)], 1.5, NOW))
    store.behaviour = Behaviour.WORKS
    await settle()
    assert await total(store, "budget", NOW) == 1.5
    assert await store.apply(Spend([(TOKENS.tokens, 300.0)], NOW, at_once=True)) == [0.0]  # type: ignore[list-item]


async def test_unread_spending_is_counted_after_recovery(store: FakeStore, resilient: ResilientStore) -> None:
    store.behaviour = Behaviour.FAILS
    await reserve_until_open(resilient)
    await resilient.apply(Release(Reservation(TOKENS, "l"), 700.0, NOW))
    await resilient.apply(Spend([(KEY, 2.0)], NOW, at_once=False))
    await resilient.apply(Add([("budget", None)], 1.5, NOW))
    assert await resilient.apply(Add(BUDGET, 1.0, NOW, 2.0)) == [1.5, 0.0]
    assert await resilient.apply(Add(BUDGET, 1.0, NOW, 2.0)) == [2.5, 0.0], "which is too much"
    store.behaviour = Behaviour.WORKS
    await settle()
    assert await total(store, "budget", NOW) == 2.5
    assert await store.apply(Spend([(TOKENS.tokens, 301.0)], NOW, at_once=True)) > [NOW]  # type: ignore[list-item]
    assert await store.apply(Spend([(KEY, 1.0)], NOW, at_once=True)) > [NOW]


async def test_a_budget_is_checked_with_what_others_have_spent_when_the_store_fails_later(
    store: FakeStore, resilient: ResilientStore
) -> None:
    await store.apply(Add([("budget", None)], 1.5, NOW))
    await store.apply(Add([("other", NOW + 9)], 1.0, NOW))
    assert await resilient.apply(Add(BUDGET, 1.0, NOW, 3.0)) == [1.5, 1.0]
    store.behaviour = Behaviour.FAILS
    await reserve_until_open(resilient)
    assert await resilient.apply(Add(BUDGET, 1.0, NOW, 3.0)) == [2.5, 1.0], "which is too much"
    assert await resilient.apply(Add(BUDGET, 1.0, NOW + 9, 3.0)) == [2.5, 0.0]
    assert await total(resilient, "budget", NOW + 9) == 3.5
    await MemoryAccountStore.apply(store, Add([("budget", None)], 2.0, NOW))  # by another gateway
    store.behaviour = Behaviour.WORKS
    await settle()
    assert await total(store, "budget", NOW + 9) == 1.5 + 1.0 + 2.0 + 1.0, "what was refused is not sent"


async def test_a_budget_is_checked_with_what_the_store_has_missed(
    store: FakeStore, resilient: ResilientStore
) -> None:
    store.behaviour = Behaviour.FAILS
    await cool(resilient, "up/a")
    await resilient.apply(Add([("budget", None)], 1.5, NOW))  # after the cooldown, which has to be sent again
    store.behaviour = Behaviour.WORKS
    assert await resilient.apply(Add(BUDGET, 1.0, NOW, 1.0)) == [1.5, 0.0]
    await settle()
    assert await total(store, "budget", NOW) == 1.5


@pytest.mark.parametrize("behaviour", [Behaviour.FAILS, Behaviour.HANGS, Behaviour.DOES_IT_BUT_HANGS])
@pytest.mark.parametrize("fails_at_its_end", [False, True])
async def test_what_is_reserved_for_a_request_is_free_when_it_has_ended(
    behaviour: Behaviour, fails_at_its_end: bool, store: FakeStore, resilient: ResilientStore
) -> None:
    """Whether the store has done what it did not respond to, is not known."""
    counter, others = ("reserved", NOW + 900), [("other", None)]
    store.behaviour = behaviour
    assert await resilient.apply(Add([counter], 1.0, NOW, 1.0, "served")) == [0.0]
    assert await resilient.apply(Add([counter, *others], 1.0, NOW, 0.5, "refused")) == [1.0, 0.0]
    store.behaviour = Behaviour.WORKS
    await settle()
    assert await total(store, "reserved", NOW) == 1.0
    store.behaviour = behaviour if fails_at_its_end else Behaviour.WORKS
    await resilient.apply(Add([counter], -1.0, NOW, lease="served"))
    store.behaviour = Behaviour.WORKS
    await settle()
    assert (await total(store, "reserved", NOW), await total(resilient, "reserved", NOW)) == (0.0, 0.0)


async def test_failures_are_not_counted_twice_but_cooldowns_and_disabling_always_arrive(
    store: FakeStore, resilient: ResilientStore
) -> None:
    store.behaviour = Behaviour.DOES_IT_BUT_HANGS
    await fail(resilient, "up/a")
    await cool(resilient, "up/b")
    store.behaviour = Behaviour.WORKS
    await settle()
    assert store.health()["up/a"].failures == (NOW,)
    assert store.health()["up/b"] == Health(NOW + 60, "why", consecutive_cooldowns=1)


@pytest.mark.parametrize("call", ["spend", "spend later", "add", "add within"])
async def test_what_the_store_may_have_counted_is_not_sent_again(
    store: FakeStore, resilient: ResilientStore, call: str
) -> None:
    store.behaviour = Behaviour.DOES_IT_BUT_HANGS
    await CALLS[call](resilient)
    store.behaviour = Behaviour.WORKS
    await settle()
    assert len(store.calls) == 1


async def test_a_lease_of_unknown_outcome_is_given_back(store: FakeStore, resilient: ResilientStore) -> None:
    store.behaviour = Behaviour.DOES_IT_BUT_HANGS
    assert await reserve(resilient, ONE_AT_ONCE, lease="lost") == "up/a"
    assert await MemoryAccountStore.apply(store, Reserve([ONE_AT_ONCE], None, "x", NOW)) == NoRoom(NOW + 1.0)
    store.behaviour = Behaviour.WORKS
    await settle()
    assert "release lost 0" in store.calls
    assert await reserve(store, ONE_AT_ONCE, lease="x") == "up/a"


async def test_a_lease_of_a_request_that_left_meanwhile_is_given_back(
    store: FakeStore, resilient: ResilientStore
) -> None:
    store.behaviour = Behaviour.DOES_IT_BUT_HANGS
    with anyio.move_on_after(DEADLINE_S / 2) as left:
        await reserve(resilient, ONE_AT_ONCE, lease="lost")
    assert left.cancelled_caught
    store.behaviour = Behaviour.WORKS
    await settle()
    assert await reserve(resilient, ONE_AT_ONCE, lease="x") == "up/a"
    assert (resilient.local_decisions, resilient.is_open) == (0, False)


async def test_the_memory_has_the_same_use_as_a_store_that_works(
    store: FakeStore, resilient: ResilientStore
) -> None:
    other = Rate("other key", 2, 60.0)
    await reserve(resilient, ONE_AT_ONCE, lease="ended")
    await resilient.apply(Release(Reservation(ONE_AT_ONCE, "ended"), 0.0, NOW))
    spent = [await resilient.apply(Spend([(KEY, 1.0)], NOW, at_once=True)) for _ in range(3)]
    assert spent == [[0.0], [0.0], [NOW + 30]]
    assert await resilient.apply(Spend([(other, 3.0)], NOW, at_once=False)) == [NOW + 30]
    store.behaviour = Behaviour.FAILS
    await reserve_until_open(resilient)
    assert await reserve(resilient, ONE_AT_ONCE) == "up/a"
    assert await resilient.apply(Spend([(KEY, 1.0)], NOW + 30, at_once=True)) == [0.0], "one was refused"
    assert await resilient.apply(Spend([(other, 0.0)], NOW, at_once=True)) == [NOW + 30]


@pytest.mark.parametrize("seconds", [DEADLINE_S / 2, 1.0], ids=["cancelled", "too late"])
async def test_a_lease_whose_end_the_store_did_not_confirm_is_given_back(
    seconds: float, store: FakeStore, resilient: ResilientStore
) -> None:
    assert await reserve(resilient, ONE_AT_ONCE) == "up/a"
    store.behaviour = Behaviour.HANGS
    with anyio.move_on_after(seconds):
        await resilient.apply(Release(Reservation(ONE_AT_ONCE, "l"), 0.0, NOW))
    assert await reserve(resilient, ONE_AT_ONCE, lease="here") == "up/a"
    await resilient.apply(Release(Reservation(ONE_AT_ONCE, "here"), 0.0, NOW))
    store.behaviour = Behaviour.WORKS
    await settle()
    assert await reserve(store, ONE_AT_ONCE, lease="there") == "up/a"


async def test_a_change_that_always_fails_is_given_up() -> None:
    class Stubborn(FakeStore):
        async def apply(self, operation: Operation[Any]) -> Any:
            if not described(operation).startswith("disable"):
                return await super().apply(operation)
            self.calls.append(described(operation))
            raise AccountStoreError("no")

    store = Stubborn()
    resilient = ResilientStore(store, MemoryAccountStore())
    async with resilient.running():
        await anyio.wait_all_tasks_blocked()
        await resilient.apply(Change("up/a", lambda health: health.after_disabling("by hand")))
        await cool(resilient, "up/b")
        await anyio.sleep(5)
        assert store.calls == ["disable up/a"] * 3 + ["failed up/b"]
        assert not resilient.is_open


async def test_missed_changes_are_bounded_and_the_newest_are_kept(
    store: FakeStore, resilient: ResilientStore
) -> None:
    store.behaviour = Behaviour.FAILS
    await reserve_until_open(resilient)
    store.calls.clear()
    for number in range(1500):
        await cool(resilient, f"up/{number}")
    store.behaviour = Behaviour.WORKS
    await settle()
    assert store.calls == [f"failed up/{number}" for number in range(500, 1500)]


async def test_a_success_that_changes_nothing_is_not_sent(
    store: FakeStore, resilient: ResilientStore
) -> None:
    await resilient.apply(Change("up/a", lambda health: health.after_success(remaining=None)))
    await cool(resilient, "up/a")
    await resilient.apply(Change("up/a", lambda health: health.after_success(remaining=None)))
    await resilient.apply(Change("up/a", lambda health: health.after_success(remaining=None)))
    assert store.calls == ["failed up/a", "succeeded up/a"]
    await resilient.apply(Release(Reservation(A, "l"), 5.0, NOW))
    assert store.calls[-1] == "succeeded up/a", "there is no limit that it would count for"
