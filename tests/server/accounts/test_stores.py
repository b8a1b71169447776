"""The stores of accounts: free accounts and the health of each. Every test runs over all of them, on both backends.

The store in memory is the model: every call returns the same from the others, to the last bit.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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
    failure,
    kind_of,
    total,
)
from valkey_server import ValkeyServer, valkey_server
from virtual_time import REAL_BACKENDS

from dragoman_server.accounts.stores.base import (
    AccountStore,
    Candidate,
    NoRoom,
    Operation,
    Rate,
    Reservation,
)
from dragoman_server.accounts.stores.memory import _EXPIRED_AT_ONCE, MemoryAccountStore
from dragoman_server.accounts.stores.operations import (
    Add,
    BindIds,
    Change,
    FindAccount,
    ReadKeyTables,
    Release,
    Reserve,
    Spend,
    WriteKeyTable,
)
from dragoman_server.accounts.stores.resilient import ResilientStore
from dragoman_server.accounts.stores.tables import CONVERSATION_S, ID_S, LEASE_S
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


CANDIDATES_OF = {
    "a": Candidate("up/a"),
    "b": Candidate("up/b"),
    "one": Candidate("up/a", max_concurrent_requests=1),
    "three": Candidate("up/a", requests=Rate("up/a:requests", 3, 60.0)),
    "seven": Candidate("up/a", requests=Rate("seven", 7, 60.0)),
    "slow": Candidate("up/b", requests=Rate("up/b:requests", 1, 300.0)),
    "tokens": Candidate("up/a", tokens=Rate("up/a:tokens", 1000, 60.0)),
}
RATES = {"requests": Rate("key:requests", 2, 60.0), "words": Rate("key:tokens", 100, 60.0)}


def operation(word: str, rest: list[str]) -> Operation[Any]:
    """Return the operation of a line of stores.txt."""
    options = dict(each.split("=") for each in rest if "=" in each)
    names = [each for each in rest if "=" not in each]
    now = NOW + eval(options.get("at", "0"), {"LEASE": LEASE_S, "CONVERSATION": CONVERSATION_S, "ID": ID_S})
    account = f"up/{names[0]}" if names else ""
    lease = options.get("lease", "l")
    match word:
        case "reserve":
            candidates = [CANDIDATES_OF[name] for name in names]
            return Reserve(candidates, options.get("conversation"), lease, now)
        case "release":
            reservation = Reservation(CANDIDATES_OF[names[0]], lease)
            return Release(reservation, float(options.get("used", 0)), now)
        case "fail":
            after = float(options["after"]) if "after" in options else None
            return failure(account, ErrorAction(names[1]), now, after)
        case "disable":
            return Change(account, lambda health: health.after_disabling("by hand"))
        case "reset":
            return Change(account, Health.after_reset)
        case "success":
            remaining = None if names[1] == "None" else float(names[1])
            return Change(account, lambda health: health.after_success(remaining=remaining))
        case "spend":
            rates = [(RATES[name], float(options[name])) for name in RATES if name in options]
            return Spend(rates, now, at_once="later" not in names)
        case "add":
            ends = [rest[rest.index(name) + 1].partition("until=")[2] for name in names]
            counters = [
                (name, NOW + float(end) if end else None) for name, end in zip(names, ends, strict=True)
            ]
            within = float(options["within"]) if "within" in options else None
            return Add(counters, float(options["amount"]), now, within, options.get("lease", ""))
        case "key":
            return WriteKeyTable(
                names[0], options.get("before", ""), options.get("after", ""), options["version"]
            )
        case "keys":
            return ReadKeyTables(options.get("known", ""))
        case "bind":
            return BindIds(names[1:], account, now)
        case "find":
            return FindAccount(names, now)
    raise ValueError(word)


def shown(result: Any) -> str:
    match result:
        case Reservation(candidate):
            return candidate.account
        case NoRoom(until):
            return f"no room until {until - NOW:.6g}"
        case float():
            return f"{result - NOW if result > NOW / 2 else result:.6g}"
        case dict():
            return str(dict(sorted(result.items())))
        case list():
            return f"[{', '.join(shown(each) for each in result)}]"
    return str(result)


def health_of(store: AccountStore) -> str:
    found = [f"{account} {health}" for account, health in sorted(store.health().items())]
    return re.sub(r"4000\d{6}\.\d", lambda time: f"{float(time[0]) - NOW:g}", "; ".join(found)) or "nothing"


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_what_calls_return(kind: Kind, backend: str) -> None:
    async def carried_out(lines: list[str]) -> list[str]:
        if kind.server is not None:
            kind.server.command("FLUSHALL")
        (kind.folder / "accounts.db").unlink(missing_ok=True)
        store, out = kind(), []
        async with store.running():
            for word, *rest in (line.split() for line in lines):
                found = (
                    health_of(store) if word == "health" else shown(await store.apply(operation(word, rest)))
                )
                out.append(" ".join([word, *rest, "->", found]))
        return out

    rows.check(
        Path(__file__).with_name("stores.txt"), lambda lines: anyio.run(carried_out, lines, backend=backend)
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
