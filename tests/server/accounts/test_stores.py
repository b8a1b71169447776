"""The stores of accounts: free accounts and the health of each. Every test runs over all of them, on both backends.

The store in memory is the model: every call returns the same from the others, to the last bit.
"""

import math
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import anyio
import pytest
from account_stores import (
    BACKOFF,
    CANDIDATES,
    KINDS,
    MAX_CONVERSATIONS,
    NOW,
    SERVER_KINDS,
    Calls,
    Kind,
    kind_of,
    total,
)
from valkey_server import ValkeyServer, valkey_server
from virtual_time import REAL_BACKENDS

from dragoman_server.accounts.stores.base import AccountStore, Candidate, KeyUse, NoRoom, Rate, Reservation
from dragoman_server.accounts.stores.memory import _EXPIRED_AT_ONCE, MemoryAccountStore
from dragoman_server.accounts.stores.operations import Add, Change, KeyUses, Release, Reserve, Spend
from dragoman_server.accounts.stores.resilient import ResilientStore
from dragoman_server.accounts.stores.tables import CONVERSATION_S, LEASE_RETRY_S, LEASE_S
from dragoman_server.policy.error_actions import ErrorAction
from dragoman_server.policy.health import Health

pytestmark = [pytest.mark.anyio, pytest.mark.backends(*REAL_BACKENDS)]


# Not under virtual time: to it, a thread or a server that works looks like a program that waits.


@pytest.fixture(scope="module")
def server() -> Iterator[ValkeyServer]:
    with valkey_server() as running:
        yield running


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Kind]:
    server = request.getfixturevalue("server") if request.param in SERVER_KINDS else None
    with kind_of(request.param, tmp_path, server) as made:
        yield made


@pytest.fixture
async def store(kind: Kind) -> AsyncIterator[AccountStore]:
    store = kind()
    async with store.running():
        yield store


A, B = Candidate("up/a"), Candidate("up/b")
ONE_AT_ONCE = Candidate("up/a", max_concurrent_requests=1)
THREE_A_MINUTE = Candidate("up/a", requests=Rate("up/a:requests", 3, 60.0))
TOKENS = Candidate("up/a", tokens=Rate("up/a:tokens", 1000, 60.0))


async def reserve(
    store: AccountStore,
    *candidates: Candidate,
    now: float = NOW,
    conversation: str | None = None,
    lease: str = "l",
) -> str | float:
    """Return the account, or the time of the next free one in seconds after NOW."""
    response = await store.apply(Reserve(candidates, conversation, lease, now))
    return response.candidate.account if isinstance(response, Reservation) else response.until - NOW


async def fail(
    store: AccountStore, account: str, action: ErrorAction, now: float = NOW, after: float | None = None
) -> None:
    await store.apply(
        Change(
            account,
            lambda health: health.after_failure(
                action, "why", now, retry_after=after, random=0.0, backoff=BACKOFF
            ),
        )
    )


# Limits of accounts.


async def test_the_first_free_account_is_taken_and_its_use_is_noted(store: AccountStore) -> None:
    assert store.health() == {}
    assert await store.apply(Reserve([B, A], None, "lease", NOW)) == Reservation(B, "lease")
    assert store.health() == {"up/b": Health(last_used=NOW)}


async def test_no_account_to_choose_from(store: AccountStore) -> None:
    assert await store.apply(Reserve([], None, "lease", NOW)) == NoRoom(math.inf)


async def test_as_many_requests_as_the_rate_allows_and_then_steadily(store: AccountStore) -> None:
    assert [await reserve(store, THREE_A_MINUTE) for _ in range(4)] == ["up/a", "up/a", "up/a", 20.0]
    assert await reserve(store, THREE_A_MINUTE, now=NOW + 19.9) == 20.0
    assert await reserve(store, THREE_A_MINUTE, now=NOW + 20.0) == "up/a"
    assert await reserve(store, THREE_A_MINUTE, now=NOW + 20.0) == 40.0


async def test_a_burst_is_whole_though_sevenths_are_not_exact(store: AccountStore) -> None:
    seven = Candidate("up/a", requests=Rate("seven", 7, 60.0))
    assert [await reserve(store, seven, now=NOW + 0.3) for _ in range(7)] == ["up/a"] * 7
    assert await reserve(store, seven, now=NOW + 0.3) == pytest.approx(0.3 + 60 / 7)


async def test_accounts_at_their_limit_are_passed_over(store: AccountStore) -> None:
    responses = [await reserve(store, THREE_A_MINUTE, ONE_AT_ONCE, B) for _ in range(5)]
    assert responses == ["up/a", "up/a", "up/a", "up/a", "up/b"]


async def test_without_a_free_account_the_time_of_the_first_is_reported(store: AccountStore) -> None:
    slow = Candidate("up/b", requests=Rate("up/b:requests", 1, 300.0))
    for _ in range(4):
        await reserve(store, THREE_A_MINUTE, slow)
    assert await reserve(store, slow, THREE_A_MINUTE) == 20.0


async def test_tokens_are_a_debt_that_is_paid_off(store: AccountStore) -> None:
    assert await reserve(store, TOKENS) == "up/a"
    await store.apply(Release(Reservation(TOKENS, "l"), 2500.0, NOW))
    assert await reserve(store, TOKENS) == 90.0
    assert await reserve(store, TOKENS, now=NOW + 89.0) == 90.0
    assert await reserve(store, TOKENS, now=NOW + 90.0) == "up/a"


async def test_the_limit_of_concurrent_requests(store: AccountStore) -> None:
    assert await reserve(store, ONE_AT_ONCE, lease="first") == "up/a"
    assert await reserve(store, ONE_AT_ONCE, lease="second") == LEASE_RETRY_S
    await store.apply(Release(Reservation(ONE_AT_ONCE, "another"), 0.0, NOW))
    assert await reserve(store, ONE_AT_ONCE, lease="second") == LEASE_RETRY_S
    await store.apply(Release(Reservation(ONE_AT_ONCE, "first"), 0.0, NOW))
    assert await reserve(store, ONE_AT_ONCE, lease="second") == "up/a"


async def test_a_lease_that_is_never_given_back_expires(store: AccountStore) -> None:
    assert await reserve(store, ONE_AT_ONCE, lease="of a gateway that died") == "up/a"
    assert isinstance(await reserve(store, ONE_AT_ONCE, lease="x", now=NOW + LEASE_S - 1), float)
    assert await reserve(store, ONE_AT_ONCE, lease="x", now=NOW + LEASE_S) == "up/a"


async def test_concurrent_requests_get_exactly_the_limit(store: AccountStore) -> None:
    five = Candidate("up/a", max_concurrent_requests=5)
    responses: list[str | float] = []

    async def request(number: int) -> None:
        responses.append(await reserve(store, five, lease=str(number)))

    async with anyio.create_task_group() as tasks:
        for number in range(20):
            tasks.start_soon(request, number)
    assert sorted(responses, key=str) == [LEASE_RETRY_S] * 15 + ["up/a"] * 5


# Conversations.


async def test_a_conversation_stays_with_its_account(store: AccountStore) -> None:
    assert await reserve(store, A, B, conversation="c") == "up/a"
    assert await reserve(store, B, A, conversation="c") == "up/a"
    assert await reserve(store, B, A, conversation="d") == "up/b"
    assert await reserve(store, B, A) == "up/b"


async def test_a_conversation_moves_from_a_full_account_and_stays_there(store: AccountStore) -> None:
    assert await reserve(store, ONE_AT_ONCE, B, conversation="c") == "up/a"
    assert await reserve(store, ONE_AT_ONCE, B, conversation="c") == "up/b"
    await store.apply(Release(Reservation(ONE_AT_ONCE, "l"), 0.0, NOW))
    assert await reserve(store, ONE_AT_ONCE, B, conversation="c") == "up/b"
    assert await reserve(store, ONE_AT_ONCE, conversation="c", lease="m") == "up/a", "it is not among them"


async def test_a_conversation_expires_after_its_last_request(store: AccountStore) -> None:
    await reserve(store, A, B, conversation="c")
    await reserve(store, B, A, conversation="c", now=NOW + CONVERSATION_S - 1)
    assert await reserve(store, B, A, conversation="c", now=NOW + 2 * CONVERSATION_S - 2) == "up/a"
    assert await reserve(store, B, A, conversation="c", now=NOW + 3 * CONVERSATION_S - 2) == "up/b"


async def test_of_too_many_conversations_the_least_recent_is_dropped(store: AccountStore) -> None:
    for number in range(MAX_CONVERSATIONS):
        await reserve(store, A, conversation=str(number), now=NOW + number)
    await reserve(store, A, conversation="0", now=NOW + 10)
    await reserve(store, A, conversation="another", now=NOW + 11)
    stayed = {}
    for number in range(MAX_CONVERSATIONS):
        # Those that are still there first: each one that is not makes another one go.
        order = [0, 2, 3, 4, 1][number]
        stayed[order] = await reserve(store, B, A, conversation=str(order), now=NOW + 12 + number)
    assert stayed == {0: "up/a", 2: "up/a", 3: "up/a", 4: "up/a", 1: "up/b"}


# Health.


async def test_a_cooling_account_is_not_taken_until_then(store: AccountStore) -> None:
    await fail(store, "up/a", ErrorAction.COOL_DOWN, after=30.0)
    assert store.health()["up/a"] == Health(cooldown_until=NOW + 30, cause="why", consecutive_cooldowns=1)
    assert await reserve(store, A) == 30.0
    assert await reserve(store, A, B) == "up/b"
    assert await reserve(store, A, now=NOW + 30) == "up/a"


async def test_a_disabled_account_is_not_taken_until_it_is_reset(store: AccountStore) -> None:
    await store.apply(Change("up/a", lambda health: health.after_disabling("by hand")))
    await fail(store, "up/b", ErrorAction.DISABLE)
    health = store.health()
    assert (health["up/a"].disabled, health["up/b"].disabled) == ("by hand", "why")
    assert await reserve(store, A, B) == math.inf
    await store.apply(Change("up/a", Health.after_reset))
    assert store.health()["up/a"] == Health()
    assert await reserve(store, B, A) == "up/a"


async def test_a_success_is_a_change_only_after_a_failure_or_with_another_share(store: AccountStore) -> None:
    await store.apply(Change("up/a", lambda health: health.after_success(remaining=None)))
    assert store.health() == {}
    await fail(store, "up/a", ErrorAction.RETRY_LATER)
    assert store.health()["up/a"].failures == (NOW,)
    await store.apply(Change("up/a", lambda health: health.after_success(remaining=0.504)))
    assert store.health()["up/a"] == Health(remaining=0.5)
    before = store.health()["up/a"]
    await store.apply(Change("up/a", lambda health: health.after_success(remaining=0.501)))
    assert store.health()["up/a"] == before


async def test_a_use_and_a_change_do_not_undo_each_other(store: AccountStore) -> None:
    await reserve(store, A)
    await fail(store, "up/a", ErrorAction.COOL_DOWN, after=5.0)
    await reserve(store, A, now=NOW + 5)
    expected = Health(cooldown_until=NOW + 5, cause="why", consecutive_cooldowns=1, last_used=NOW + 5)
    assert store.health()["up/a"] == expected


# Rates and counters.

KEY_REQUESTS, KEY_TOKENS = Rate("key:requests", 2, 60.0), Rate("key:tokens", 100, 60.0)


async def test_a_spending_at_once_is_all_or_nothing(store: AccountStore) -> None:
    both = [(KEY_REQUESTS, 1.0), (KEY_TOKENS, 60.0)]
    assert await store.apply(Spend(both, NOW, at_once=True)) == 0.0
    assert await store.apply(Spend(both, NOW, at_once=True)) == NOW + 12.0
    # Nothing was counted that time.
    assert await store.apply(Spend([(KEY_REQUESTS, 1.0)], NOW, at_once=True)) == 0.0
    assert await store.apply(Spend([(KEY_REQUESTS, 1.0)], NOW, at_once=True)) == NOW + 30.0
    assert await store.apply(Spend([], NOW, at_once=True)) == 0.0


async def test_more_than_ever_fits_needs_a_full_rate_and_becomes_a_debt(store: AccountStore) -> None:
    assert await store.apply(Spend([(KEY_TOKENS, 1.0)], NOW, at_once=True)) == 0.0
    assert await store.apply(Spend([(KEY_TOKENS, 150.0)], NOW, at_once=True)) == pytest.approx(NOW + 0.6)
    assert await store.apply(Spend([(KEY_TOKENS, 150.0)], NOW + 0.6, at_once=True)) == 0.0
    assert await store.apply(Spend([(KEY_TOKENS, 0.0)], NOW + 0.6, at_once=True)) == pytest.approx(NOW + 30.6)


async def test_usage_is_counted_afterwards_in_any_case(store: AccountStore) -> None:
    assert await store.apply(Spend([(KEY_TOKENS, 90.0)], NOW, at_once=False)) == 0.0
    assert (
        await store.apply(Spend([(KEY_TOKENS, 90.0), (KEY_REQUESTS, 1.0)], NOW, at_once=False)) == NOW + 48.0
    )
    assert await store.apply(Spend([(KEY_TOKENS, 1.0)], NOW + 48.0, at_once=True)) == pytest.approx(
        NOW + 48.6
    )


async def test_counters_add_up_and_expire(store: AccountStore) -> None:
    assert await total(store, "budget", NOW) == 0.0
    for _ in range(3):
        await store.apply(Add([("budget", NOW + 100)], 0.1, NOW))
    await store.apply(Add([("for ever", None)], 7.0, NOW))
    assert await total(store, "budget", NOW + 99) == 0.1 + 0.1 + 0.1
    assert await total(store, "budget", NOW + 100) == 0.0
    assert await total(store, "for ever", NOW + 1e9) == 7.0


async def test_counters_that_expire_together_are_dropped_few_at_a_time_and_count_no_more() -> None:
    store = MemoryAccountStore()
    names = [f"budget {number:04}" for number in range(2 * _EXPIRED_AT_ONCE)]
    for name in names:
        await store.apply(Add([(name, NOW + 100)], 1.0, NOW))
    assert await store.apply(Add([(names[-1], NOW + 200)], 0.25, NOW + 100, 1.0)) == [0.0]
    assert len(store._counters) == _EXPIRED_AT_ONCE, (
        "of those that have expired half are left, and there is a new one"
    )
    assert await total(store, names[-2], NOW + 100) == 0.0
    assert await total(store, names[-1], NOW + 100) == 0.25
    assert len(store._counters) == 1


async def test_an_amount_is_added_as_long_as_the_sum_is_within_the_limit(store: AccountStore) -> None:
    for before in (0.0, 0.75, 1.5):
        assert await store.apply(Add([("budget", NOW + 100)], 0.75, NOW, 1.0)) == [before]
    assert await total(store, "budget", NOW) == 1.5
    assert await store.apply(Add([("budget", NOW + 200)], 0.75, NOW + 100, 1.0)) == [0.0], "it has expired"
    assert await total(store, "budget", NOW + 199) == 0.75


async def test_a_limit_may_be_for_the_sum_of_several_counters(store: AccountStore) -> None:
    counters = [("reserved", NOW + 100), ("before", NOW + 50), ("spent", None)]
    await store.apply(Add([("before", NOW + 50)], 1.0, NOW))
    await store.apply(Add([("spent", None)], 2.0, NOW))
    assert await store.apply(Add(counters, 1.0, NOW, 3.0)) == [0.0, 1.0, 2.0]
    assert await store.apply(Add(counters, 1.0, NOW, 3.0)) == [1.0, 1.0, 2.0], "nothing is added any more"
    assert await store.apply(Add(counters, 0.0, NOW + 50)) == [1.0, 0.0, 2.0]
    assert await store.apply(Add(counters, 1.0, NOW + 50, 3.0)) == [1.0, 0.0, 2.0]
    assert await store.apply(Add(counters, 0.0, NOW + 100)) == [0.0, 0.0, 2.0]


async def test_the_use_of_a_client_key_is_added_up_and_the_last_one_is_kept(store: AccountStore) -> None:
    assert await store.apply(KeyUses(["red", "blue"])) == [KeyUse(), KeyUse()]
    await store.apply(KeyUses(["red"], KeyUse(2.0, 30.0, 0.25, NOW + 5)))
    await store.apply(KeyUses(["red"], KeyUse(1.0, 0.0, 0.125, NOW)))
    await store.apply(KeyUses(["blue"], KeyUse(1.0, 7.0, 0.0, NOW + 9)))
    assert await store.apply(KeyUses(["blue", "red"])) == [
        KeyUse(1.0, 7.0, 0.0, NOW + 9),
        KeyUse(3.0, 30.0, 0.375, NOW + 5),
    ]
    assert await store.apply(KeyUses([])) == []


# All of it at once.


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.each_choice
async def test_every_call_gives_the_same_result_as_the_model(kind: Kind, seed: int) -> None:
    model = MemoryAccountStore(max_conversations=MAX_CONVERSATIONS)
    store, calls = kind(), Calls(seed)
    taken: set[str] = set()
    async with store.running():
        for _ in range(250):
            text, call = calls.next()
            expected = await call(model)
            calls.record(expected)
            if isinstance(expected, Reservation):
                taken.add(expected.candidate.account)
            assert await call(store) == expected, text
            assert store.health() == model.health(), text
    assert taken == {each.account for each in CANDIDATES}, "the calls are of no use"
    assert not isinstance(store, ResilientStore) or store.local_decisions == 0, "the server was not called"
