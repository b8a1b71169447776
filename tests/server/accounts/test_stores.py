"""The stores of accounts: free accounts and the health of each. Every test runs over all of them, on both backends.

The store in memory is the model: every call returns the same from the others, to the last bit.
"""

from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
import rows
from account_stores import (
    CANDIDATES,
    KINDS,
    MAX_CONVERSATIONS,
    NOW,
    SERVER_KINDS,
    Calls,
    Kind,
    carried_out,
    kind_of,
    total,
)
from virtual_time import REAL_BACKENDS

from dragoman_server.accounts.stores.base import Candidate, Reservation
from dragoman_server.accounts.stores.memory import _EXPIRED_AT_ONCE, MemoryAccountStore
from dragoman_server.accounts.stores.operations import Add, Reserve
from dragoman_server.accounts.stores.resilient import ResilientStore

pytestmark = [pytest.mark.anyio, pytest.mark.backends(*REAL_BACKENDS)]


# Not under virtual time: to it, a thread or a server that works looks like a program that waits.


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Kind]:
    server = request.getfixturevalue("valkey") if request.param in SERVER_KINDS else None
    with kind_of(request.param, tmp_path, server) as made:
        yield made


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_what_calls_return(kind: Kind, backend: str) -> None:
    async def outputs(lines: list[str]) -> list[str]:
        if kind.server is not None:
            kind.server.command("FLUSHALL")
        (kind.folder / "accounts.db").unlink(missing_ok=True)
        store = kind()
        async with store.running():
            return [f"{line} -> {await carried_out(store, line)}" for line in lines]

    rows.check(
        Path(__file__).with_name("stores.txt"), lambda lines: anyio.run(outputs, lines, backend=backend)
    )


async def test_concurrent_requests_get_exactly_the_limit(kind: Kind) -> None:
    five, store = Candidate("up/a", max_concurrent_requests=5), kind()
    reserved: list[bool] = []

    async def request(number: int) -> None:
        found = await store.apply(Reserve([five], None, str(number), NOW))
        reserved.append(isinstance(found, Reservation))

    async with store.running(), anyio.create_task_group() as tasks:
        for number in range(20):
            tasks.start_soon(request, number)
    assert (reserved.count(True), len(reserved)) == (5, 20)


async def test_counters_that_expire_together_are_dropped_few_at_a_time_and_count_no_more() -> None:
    store = MemoryAccountStore()
    names = [f"budget {number:04}" for number in range(2 * _EXPIRED_AT_ONCE)]
    for name in names:
        await store.apply(Add([(name, NOW + 100)], 1.0, NOW))
    assert await store.apply(Add([(names[-1], NOW + 200)], 0.25, NOW + 100, 1.0)) == [0.0]
    found = len(store._counters)
    assert found == _EXPIRED_AT_ONCE, "of those that have expired half are left, and there is a new one"
    assert await total(store, names[-2], NOW + 100) == 0.0
    assert await total(store, names[-1], NOW + 100) == 0.25
    assert len(store._counters) == 1


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
