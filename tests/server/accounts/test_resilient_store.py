"""A gateway goes on when its store of accounts is slow or dead, and sends it afterwards the changes that it has missed:
rows of resilient.txt.

The store is a fake that responds, fails or hangs; time is virtual.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from enum import Enum
from itertools import groupby
from pathlib import Path
from typing import Any

import anyio
import pytest
import rows
from account_stores import NOW, carried_out
from virtual_time import VIRTUAL_BACKENDS, backend

from dragoman_server.accounts.stores.base import AccountStoreError, Operation
from dragoman_server.accounts.stores.memory import MemoryAccountStore
from dragoman_server.accounts.stores.operations import Add, Change, Release
from dragoman_server.accounts.stores.resilient import DEADLINE_S, PROBE, ResilientStore
from dragoman_server.policy.health import Health

pytestmark = [pytest.mark.anyio, pytest.mark.backends(*VIRTUAL_BACKENDS)]


class Behaviour(Enum):
    WORKS = "works"
    FAILS = "fails"
    HANGS = "hangs"
    DOES_IT_BUT_HANGS = "does it, but hangs"
    ANSWERS_PROBES = "responds to probes only"
    REFUSES_PROBES = "responds to all but probes"
    REFUSES_DISABLING = "disables no account"


class FakeStore:
    """tables: what it holds. calls: their names, probes left out."""

    def __init__(self) -> None:
        self.tables = MemoryAccountStore()
        self.health = self.tables.health
        self.running = self.tables.running
        self.behaviour = Behaviour.WORKS
        self.calls: list[str] = []
        self.probes = 0
        self.seconds = 0.0  # of a call that succeeds

    async def apply(self, operation: Operation[Any]) -> Any:
        is_probe, name = operation == PROBE, described(operation)
        if is_probe:
            self.probes += 1
        else:
            self.calls.append(name)
        failing = {
            Behaviour.FAILS: True,
            Behaviour.ANSWERS_PROBES: not is_probe,
            Behaviour.REFUSES_PROBES: is_probe,
            Behaviour.REFUSES_DISABLING: name.startswith("disable"),
        }
        if failing.get(self.behaviour):
            raise AccountStoreError("out of order")
        if self.behaviour is Behaviour.HANGS:
            await anyio.sleep_forever()
        if self.seconds:
            await anyio.sleep(self.seconds)
        result = await self.tables.apply(operation)
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


@asynccontextmanager
async def serving(store: FakeStore) -> AsyncIterator[ResilientStore]:
    """It runs, and its first probe of the store has ended."""
    resilient = ResilientStore(store, MemoryAccountStore())
    async with resilient.running():
        await anyio.wait_all_tasks_blocked()
        yield resilient


class Script:
    """Carries out lines of resilient.txt."""

    def __init__(self, log: pytest.LogCaptureFixture) -> None:
        self._log = log
        self._store = FakeStore()

    async def run(self, lines: list[str]) -> list[str]:
        if lines[0].startswith("start "):
            self._store.behaviour = Behaviour(lines.pop(0).removeprefix("start "))
        async with serving(self._store) as resilient:
            return [f"{line}{await self._output(resilient, line)}" for line in lines]

    async def _output(self, resilient: ResilientStore, line: str) -> str:
        """What comes out of a line, and besides: the time it took, the store's calls, and lines of the log."""
        self._log.clear()
        store, began = self._store, anyio.current_time()
        calls, probes, decisions = len(store.calls), store.probes, resilient.local_decisions
        word, _, rest = line.partition(" ")
        if word == "store":
            store.behaviour = Behaviour(rest)
            return ""
        if word == "there":
            return f" -> {await carried_out(store.tables, rest)}"
        if word == "wait":
            await anyio.sleep(float(rest))
            found = [f"{'open' if resilient.is_open else 'closed'}, {store.probes - probes} probes"]
        else:
            found = [await self._carried_out(resilient, line)]
            passed = anyio.current_time() - began
            found += [f"after {passed:g} s"] * bool(passed)
        decided = resilient.local_decisions - decisions
        found += [f"{decided} decided here"] * bool(decided)
        called = [(name, len([*each])) for name, each in groupby(store.calls[calls:])]
        if called:
            found.append("store: " + ", ".join(f"{n} * {name}" if n > 1 else name for name, n in called))
        return " -> " + "; ".join([*found, *self._log.messages])

    async def _carried_out(self, resilient: ResilientStore, line: str) -> str:
        word, _, rest = line.partition(" ")
        if word == "leaving":
            with anyio.move_on_after(DEADLINE_S / 2):
                await carried_out(resilient, rest)
            return "left"
        times, _, repeated = line.rpartition(" * ")
        try:
            found = [await carried_out(resilient, repeated) for _ in range(int(times or 1))]
        except AccountStoreError as error:
            return f"error: {error}"
        return " ".join(dict.fromkeys(found))


@pytest.mark.promise("R11")
@pytest.mark.parametrize("loop", VIRTUAL_BACKENDS)
def test_what_calls_return_and_the_store_gets(loop: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "dragoman.accounts")
    name, options = backend(loop)
    rows.check(
        Path(__file__).with_name("resilient.txt"),
        lambda lines: anyio.run(Script(caplog).run, lines, backend=name, backend_options=options),
    )


# What takes loops or several tasks.


@pytest.fixture
def store() -> FakeStore:
    return FakeStore()


@pytest.fixture
async def resilient(store: FakeStore) -> AsyncIterator[ResilientStore]:
    async with serving(store) as resilient:
        yield resilient


async def open_breaker(store: FakeStore, resilient: ResilientStore) -> None:
    store.behaviour = Behaviour.FAILS
    for _ in range(3):
        await carried_out(resilient, "reserve a")
    assert resilient.is_open
    store.calls.clear()


async def recover(store: FakeStore) -> None:
    store.behaviour = Behaviour.WORKS
    await anyio.sleep(1.0)


async def test_a_store_that_responds_to_others_meanwhile_works(
    store: FakeStore, resilient: ResilientStore
) -> None:
    """When hundreds of requests begin at once, the last of them are late because of the first."""
    store.seconds = 2 * DEADLINE_S
    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(carried_out, resilient, "reserve a")
        await anyio.wait_all_tasks_blocked()
        store.seconds = 0.0
        await carried_out(resilient, "reserve a")
    assert (resilient.local_decisions, resilient.is_open) == (5, False)


async def test_single_failures_do_not_open_it(store: FakeStore, resilient: ResilientStore) -> None:
    for _ in range(10):
        for store.behaviour in (Behaviour.FAILS, Behaviour.WORKS):
            await carried_out(resilient, "reserve a")
        assert not resilient.is_open
    assert resilient.local_decisions == 10


async def test_a_store_that_works_for_moments_only_is_left_alone_for_longer(
    caplog: pytest.LogCaptureFixture, store: FakeStore, resilient: ResilientStore
) -> None:
    store.behaviour = Behaviour.ANSWERS_PROBES
    for _ in range(600):
        await carried_out(resilient, "reserve a")
        await anyio.sleep(0.1)
    assert len(store.calls) < 50, "three for each time that it seemed to work"
    assert len(caplog.messages) < 18, "one each time"
    store.behaviour = Behaviour.WORKS
    await anyio.sleep(30)
    await open_breaker(store, resilient)
    await recover(store)
    assert not resilient.is_open, "long ago is forgotten"


async def test_a_store_that_takes_requests_but_not_what_it_has_missed_is_not_called(
    store: FakeStore, resilient: ResilientStore
) -> None:
    """Redis without memory accepts leases, because the script deletes some first. None was given back."""
    store.behaviour = Behaviour.FAILS
    for lease in range(20):
        assert (await carried_out(resilient, f"reserve one lease={lease}")).startswith("up/a")
        store.behaviour = Behaviour.REFUSES_PROBES
        await carried_out(resilient, f"release one lease={lease}")
        await anyio.sleep(0.1)
    assert resilient.is_open
    await recover(store)
    assert not resilient.is_open
    assert store.tables.leases("up/a", NOW) == 0


async def test_calls_that_were_under_way_do_not_hide_that(
    store: FakeStore, resilient: ResilientStore
) -> None:
    async def keep_busy() -> None:
        while True:
            await carried_out(resilient, "reserve a")
            await anyio.sleep(0.001)

    store.seconds = 0.04
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(keep_busy)
        await anyio.sleep(0.02)
        store.behaviour = Behaviour.FAILS
        await carried_out(resilient, "fail b cool_down after=60")
        store.behaviour = Behaviour.REFUSES_PROBES
        await anyio.sleep(1.0)
        assert resilient.is_open
        tasks.cancel_scope.cancel()


async def test_missed_changes_are_bounded_and_leases_are_given_back_all_the_same(
    store: FakeStore, resilient: ResilientStore
) -> None:
    await carried_out(resilient, "reserve one lease=before")
    await open_breaker(store, resilient)
    await carried_out(resilient, "release one lease=before")
    for number in range(1500):
        await carried_out(resilient, "reserve one lease=during")
        await carried_out(resilient, "release one unstored lease=during")
        await carried_out(resilient, f"add budget amount={number}")
    await recover(store)
    assert store.tables.leases("up/a", NOW) == 0
    assert store.calls.count("release before 0") == 1
    added = [each for each in store.calls if each != "release before 0"]
    assert added == [f"add {number}" for number in range(501, 1500)], "the newest, and no other lease"
