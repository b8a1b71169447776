"""Usage stores of every kind: sums by hour, what is read of them, and their bounds."""

import random
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from gateway.fakes import other_turns
from msgspec import structs
from valkey_server import ValkeyServer
from virtual_time import REAL_BACKENDS

from dragoman_server.platform.sqlite_file import write_transaction
from dragoman_server.usage.stores.base import (
    COLUMNS,
    DAY_HOURS,
    GROUPS,
    TIMES,
    KeyUse,
    UsageBatch,
    UsageCounts,
    UsageGroup,
    UsageLabels,
    UsageQuery,
    UsageStore,
    UsageStoreError,
)
from dragoman_server.usage.stores.sqlite import SQLiteUsageStore
from dragoman_server.usage.stores.valkey import ValkeyUsageStore

# Threads and servers, so not under virtual time.
pytestmark = [pytest.mark.anyio, pytest.mark.backends(*REAL_BACKENDS)]

# A server drops what has expired by its own clock.
NOW = int(time.time() // 3600)

Make = Callable[[], UsageStore]


@pytest.fixture(params=["memory", "sqlite", "valkey"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    """Makes stores that share their data, if they can."""
    if request.param == "valkey":
        valkey: ValkeyServer = request.getfixturevalue("valkey")
        assert valkey.command("FLUSHALL") == b"+OK\r\n"
        return lambda: ValkeyUsageStore(valkey.url)
    if request.param == "sqlite":
        return lambda: SQLiteUsageStore(str(tmp_path / "new" / "usage.sqlite"))
    return lambda: SQLiteUsageStore(None)


@pytest.fixture
async def store(make: Make) -> AsyncIterator[UsageStore]:
    made = make()
    async with made.running():
        yield made


def counts(requests: int = 1, cost_usd: float = 0.0, **more: int) -> UsageCounts:
    return UsageCounts(requests=requests, cost_usd=cost_usd, **more)


_ids = iter(range(10**6))


def batch(
    rows: dict[UsageLabels, UsageCounts], oldest: int = NOW - 1000, keys: dict[str, KeyUse] | None = None
) -> UsageBatch:
    return UsageBatch(f"batch {next(_ids)}", rows, keys or {}, oldest)


ALL = UsageQuery(0, NOW + 10)
ODD = UsageLabels(NOW - 1, "k:1", 'up"/', "up/ä", "m:requests\\n语")


def added_up(added: list[tuple[UsageLabels, UsageCounts]], query: UsageQuery) -> list[UsageGroup]:
    """What a query finds in rows."""
    found: dict[tuple[str | int, ...], list[float]] = {}
    for labels, more in added:
        day, group = labels.hour // DAY_HOURS, query.group_of.get(labels.key, "")
        row = {**structs.asdict(labels), "day": day, "group": group}
        if query.since <= labels.hour < query.until and query.filters.items() <= row.items():
            values = tuple(row[name] for name in query.by)
            sums = found.get(values, [0] * len(COLUMNS))
            found[values] = [sum(pair) for pair in zip(sums, more.values(), strict=True)]

    def order(group: UsageGroup) -> tuple[object, ...]:
        row = dict(zip(query.by, group[0], strict=True))
        newest = [-int(row[name]) for name in query.by if name in TIMES]
        return newest, -group[1].requests, [row[name] for name in query.by if name not in TIMES]

    groups = [(values, UsageCounts.of(sums)) for values, sums in found.items()]
    return sorted(groups, key=order)[: query.limit]


async def test_all_stores_add_up_what_a_query_asks_for(store: UsageStore) -> None:
    added, dice = list[tuple[UsageLabels, UsageCounts]](), random.Random(5)
    assert await store.read(ALL) == []
    for _ in range(12):
        rows = {
            UsageLabels(NOW - dice.randrange(60), *(dice.choice(["", "a", "b/c", "語"]) for _ in range(4))): (
                UsageCounts.of([dice.choice([0, 1, 10**12, 0.25]) for _ in COLUMNS])
            )
            for _ in range(20)
        }
        for each in (batch(rows), batch({ODD: counts(3, 0.1 + 0.2, output_tokens=7)})):
            added += each.rows.items()
            await store.add(each)
    groups = {"a": "team", "語": "team", "k:1": "k"}
    queries = [
        UsageQuery(0, NOW + 1, by, group_of=groups)
        for by in [(name,) for name in GROUPS] + [("day", "key"), ("key", "hour"), ("group", "day")]
    ]
    queries += [structs.replace(ALL, by=tuple(GROUPS), limit=limit) for limit in (1, 7, 1000)]
    queries += [structs.replace(ALL, since=NOW - 30, until=NOW - 5, by=("hour",))]
    queries += [
        structs.replace(ALL, filters={name: value}) for name, value in [*structs.asdict(ODD).items()][1:]
    ]
    queries += [structs.replace(ALL, filters={"key": "a", "model": ""}, by=("model", "upstream")), ALL]
    for query in queries:
        found, expected = await store.read(query), added_up(added, query)
        for (_, counted), (_, wanted) in zip(found, expected, strict=True):
            # Sums of dollars in another order differ in the last digits.
            assert counted.cost_usd == pytest.approx(wanted.cost_usd)
            counted.cost_usd = wanted.cost_usd
        assert found == expected, query


async def test_what_keys_have_used_stays_when_rows_are_dropped(store: UsageStore) -> None:
    row = {UsageLabels(NOW - 100, "a", "", "", ""): counts()}
    await store.add(batch(row, keys={"a": KeyUse(1, 30, 0.5, 100.25), "b": KeyUse(1, 0, 0, 7)}))
    await store.add(batch(row, keys={"a": KeyUse(2, 1, 0.25, 50)}))
    assert [use.requests for _, use in await store.read(ALL)] == [2]
    await store.add(batch({UsageLabels(NOW, "c", "", "", ""): counts()}, oldest=NOW - 99))
    assert await store.read(structs.replace(ALL, by=("key",))) == [(("c",), counts())]
    found = await store.key_uses(["b", "none", "a"])
    assert found == [KeyUse(1, 0, 0, 7), KeyUse(), KeyUse(3, 31, 0.75, 100.25)]
    assert await store.key_uses([]) == []


async def test_stores_that_share_their_data_add_up(make: Make) -> None:
    one, other = make(), make()
    if isinstance(one, SQLiteUsageStore) and one._folder is None:
        return
    row = UsageLabels(NOW, "a", "", "", "")
    async with one.running(), other.running():

        async def write(store: UsageStore) -> None:
            for _ in range(25):
                await store.add(batch({row: counts(1, 0.5)}, keys={"a": KeyUse(1)}))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(write, one)
            tasks.start_soon(write, other)
        for store in (one, other):
            assert await store.read(ALL) == [((), counts(50, 25.0))]
            assert await store.key_uses(["a"]) == [KeyUse(50)]


@pytest.mark.parametrize("in_memory", [False, True])
async def test_the_oldest_hours_go_first_when_there_are_too_many_rows(
    tmp_path: Path, in_memory: bool
) -> None:
    store = SQLiteUsageStore(None if in_memory else str(tmp_path / "u"), max_rows=4)
    by_hour = structs.replace(ALL, by=("hour",))
    async with store.running():
        for hour in range(6):
            oldest = NOW + hour - 1000
            await store.add(batch({UsageLabels(NOW + hour, "", "", "", ""): counts()}, oldest=oldest))
        assert [hour for (hour,), _ in await store.read(by_hour)] == [NOW + 5, NOW + 4, NOW + 3, NOW + 2]
        # Also within one hour.
        for model in "abcdef":
            await store.add(batch({UsageLabels(NOW + 6, "", "", "", model): counts()}, oldest=oldest))
        assert sum(found.requests for _, found in await store.read(by_hour)) <= 2 * 4


async def test_others_run_while_many_rows_in_memory_are_added_up() -> None:
    store = SQLiteUsageStore(None)
    rows = {UsageLabels(NOW, "k", "u", "u/a", f"m{number}"): counts() for number in range(5000)}
    async with store.running(), other_turns() as turns:
        await anyio.lowlevel.checkpoint()
        for call in (
            store.add(UsageBatch("many", rows, {}, 0)),
            store.read(UsageQuery(0, NOW + 1, ("model",))),
        ):
            before = turns()
            groups = await call
            assert turns() - before > 10
    assert groups is not None
    assert len(groups) == 5000


async def test_a_server_counts_a_batch_once_and_bounds_an_hour(
    valkey: ValkeyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert valkey.command("FLUSHALL") == b"+OK\r\n"
    store = ValkeyUsageStore(valkey.url)
    async with store.running():
        one = batch({UsageLabels(NOW, "a", "", "", ""): counts(1, output_tokens=5)}, keys={"a": KeyUse(1)})
        for _ in range(2):
            await store.add(one)
        assert await store.read(ALL) == [((), counts(1, output_tokens=5))]
        assert await store.key_uses(["a"]) == [KeyUse(1)]
        ttl = await store._connection.request(b"TTL", f"dragoman:usage:1:hour:{NOW}")
        assert 999 * 3600 < ttl <= 1001 * 3600
        monkeypatch.setattr("dragoman_server.usage.stores.valkey._ADD", _add_with(fields=2))
        rows = {UsageLabels(NOW, "b", "", "", ""): counts(), UsageLabels(NOW, "a", "", "", ""): counts()}
        await store.add(batch(rows))
        assert await store.read(structs.replace(ALL, by=("key",))) == [(("a",), counts(2, output_tokens=5))]


def _add_with(fields: int) -> str:
    from dragoman_server.usage.stores import valkey

    return valkey._ADD.replace(f"< {valkey._MAX_FIELDS}", f"< {fields}")


async def test_a_server_that_has_too_many_rows_for_a_query_says_so(
    valkey: ValkeyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert valkey.command("FLUSHALL") == b"+OK\r\n"
    store = ValkeyUsageStore(valkey.url)
    rows = [structs.replace(ODD, hour=NOW - 1 - hours) for hours in range(3)]
    async with store.running():
        await store.add(batch({row: counts() for row in rows}))
        monkeypatch.setattr("dragoman_server.usage.stores.valkey.MAX_ROWS", 2)
        assert (await store.read(UsageQuery(NOW - 2, NOW)))[0][1].requests == 2
        with pytest.raises(UsageStoreError, match="more than 2 rows: ask for less at once"):
            await store.read(ALL)


async def test_a_server_that_is_not_there(tmp_path: Path) -> None:
    store = ValkeyUsageStore(f"unix://{tmp_path}/none")
    async with store.running():
        for call in (store.add(batch({})), store.read(ALL), store.key_uses(["a"])):
            with pytest.raises(UsageStoreError, match=r"the usage store .*none: "):
                await call
    with pytest.raises(ValueError, match="is not of the form"):
        ValkeyUsageStore("http://host")


async def test_a_file_that_another_process_writes_for_too_long(tmp_path: Path) -> None:
    path = str(tmp_path / "usage")
    one, other = SQLiteUsageStore(path), SQLiteUsageStore(path)
    async with one.running(), other.running():
        with write_transaction(one._file.connection), pytest.raises(UsageStoreError, match="locked"):
            await other.add(batch({ODD: counts()}))
        assert await other.read(ALL) == []
        await other.add(batch({ODD: counts()}))
        assert await one.read(ALL) == [((), counts())]


async def test_a_file_that_is_moved_or_replaced_is_an_error_until_it_is_back(tmp_path: Path) -> None:
    path, away = tmp_path / "usage", tmp_path / "away"
    store = SQLiteUsageStore(str(path))
    async with store.running():
        path.rename(away)
        for error in ("No such file", "another file has taken its place"):
            with pytest.raises(UsageStoreError, match=error):
                await store.add(batch({ODD: counts()}))
            path.touch()
        away.replace(path)
        await store.add(batch({ODD: counts()}))


async def test_a_full_disk(tmp_path: Path) -> None:
    store = SQLiteUsageStore(str(tmp_path / "usage"))
    row = {ODD: counts()}
    async with store.running():
        await store.add(batch(row, keys={"a": KeyUse(1)}))
        (pages,) = store._file.connection.execute("PRAGMA page_count").fetchone()
        store._file.connection.execute(f"PRAGMA max_page_count = {pages}")
        rows = {UsageLabels(NOW, "b", "", "", f"model {number}"): counts() for number in range(1000)}
        with pytest.raises(UsageStoreError, match="full"):
            await store.add(batch({**row, **rows}, keys={"a": KeyUse(1)}))
        assert await store.read(ALL) == [((), counts())], "all of a batch, or nothing"
        assert await store.key_uses(["a"]) == [KeyUse(1)]
        store._file.connection.execute("PRAGMA max_page_count = 10000")
        await store.add(batch(rows))
        assert [found.requests for _, found in await store.read(ALL)] == [1001]
