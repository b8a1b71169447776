"""The stores of responses keep responses, share equal items, and drop what is too old or too much.

Tests of all stores and tests of concurrency run on both backends.
"""

import gc
import importlib
import re
import sqlite3
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path

import anyio
import anyio.lowlevel
import msgspec
import pytest
import rows
from valkey_server import ValkeyServer, valkey_server
from virtual_time import REAL_BACKENDS

from dragoman_server.responses.stores import base
from dragoman_server.responses.stores import sqlite as sqlite_store
from dragoman_server.responses.stores import valkey as valkey_store
from dragoman_server.responses.stores.base import (
    LOG_KEPT_S,
    ResponseEvents,
    ResponseStore,
    ResponseStoreError,
    ResponseStoreLimits,
    ResponseTooLarge,
    StoredItem,
    StoredResponse,
)
from dragoman_server.responses.stores.memory import MemoryResponseStore
from dragoman_server.responses.stores.sqlite import SQLiteResponseStore
from dragoman_server.responses.stores.valkey import ValkeyResponseStore

pytestmark = [pytest.mark.anyio, pytest.mark.backends(*REAL_BACKENDS)]
one_backend = pytest.mark.backends(REAL_BACKENDS[0])  # no task group, stream or clock is under test

NOW = 1_800_000_000
LIMITS = ResponseStoreLimits(max_bytes=1_000_000, max_age_s=3600)


class Kind:
    """Makes stores of one kind. Those with a file have the same one."""

    def __init__(self, name: str, folder: Path, server: ValkeyServer | None = None) -> None:
        self.name = name
        self.server = server
        self.path = folder / "responses.db"

    @asynccontextmanager
    async def __call__(self, limits: ResponseStoreLimits = LIMITS) -> AsyncIterator[ResponseStore]:
        store: ResponseStore
        match self.name:
            case "memory":
                store = MemoryResponseStore(limits)
            case "sqlite":
                store = SQLiteResponseStore(str(self.path), limits)
            case _:
                store = ValkeyResponseStore(self.server.url, limits)
        async with store.running():
            yield store

    def clear(self) -> None:
        """Forget what earlier stores have left."""
        if self.server is not None:
            self.server.command("FLUSHALL")
        for file in self.path.parent.glob("responses.db*"):
            file.unlink()


@pytest.fixture(params=["memory", "sqlite", "valkey"])
def kind(request: pytest.FixtureRequest, tmp_path: Path) -> Kind:
    server = request.getfixturevalue("valkey") if request.param == "valkey" else None
    kind = Kind(request.param, tmp_path, server)
    kind.clear()
    return kind


@pytest.fixture
async def store(kind: Kind) -> AsyncIterator[ResponseStore]:
    async with kind() as store:
        yield store


@pytest.fixture
def sqlite(tmp_path: Path) -> Kind:
    return Kind("sqlite", tmp_path)


def item(id: str, text: str = "text") -> StoredItem:
    return StoredItem(id, b'{"text":"%b"}' % text.encode())


async def item_of(store: ResponseStore, owner: str, id: str, now: int) -> StoredItem | None:
    return (await store.items(owner, [id], now, LIMITS.max_bytes)).get(id)


PUT_S = sqlite_store.PUT_S


@pytest.fixture(autouse=True)
def short_timeouts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine may be busy: where the deadline is not what is tested, it is a long one."""
    for store in (sqlite_store, valkey_store):
        monkeypatch.setattr(store, "PUT_S", 60.0)


def response(
    id: str = "resp_1",
    *,
    owner: str = "",
    created: int = NOW,
    body: bytes = b"{}",
    input_items: tuple[StoredItem, ...] = (item("msg_1"),),
    output_items: tuple[StoredItem, ...] = (item("msg_2"),),
) -> StoredResponse:
    return StoredResponse(id, owner, created, body, input_items, output_items)


# Logs of events.

KEY = ("", "resp_1")
LEASE = NOW + 15.0


def events(first: int, *texts: str) -> ResponseEvents:
    return ResponseEvents(first, len(texts), b"".join([b"data: %b\n\n" % text.encode() for text in texts]))


NO_EVENTS = events(0)


def opened(id: str = "resp_1", created: int = NOW) -> StoredResponse:
    return msgspec.structs.replace(response(id, created=created, output_items=()), lease=LEASE)


async def texts_after(store: ResponseStore, number: int, now: int = NOW, id: str = "resp_1") -> str:
    """The state of the log, and the events behind a number."""
    page = await store.read_events(("", id), number, now)
    if page is None:
        return "none"
    log, found = page
    assert found.first == max(number + 1, log.first) or not found.count
    texts = found.data.decode().replace("data: ", "").replace("\n\n", " ")
    assert len(texts.split()) == found.count
    return f"{'open' if log.lease else 'closed'} {log.first}-{log.next}: {texts}".rstrip()


# Operations as lines of text.


def long(text: str) -> str:
    """`x*9` is xxxxxxxxx."""
    letter, _, count = text.partition("*")
    return letter * int(count or 1)


def shown(response: StoredResponse) -> str:
    items = [
        [f"{each.id}:{each.data[9:-2].decode()}" for each in group]
        for group in (response.input, response.output)
    ]
    leases = [f"lease={response.lease - NOW:g}"] * bool(response.lease)
    of = f"{response.owner or 'nobody'}'s {response.id} of {response.created - NOW}"
    return " ".join([of, response.body.decode(), *items[0], ">", *items[1], *leases])


async def carried_out(store: ResponseStore, line: str) -> str:
    """Carry out a line of stores.txt, and return what comes out."""
    word, id, *rest = line.split()
    options = dict(each.split("=") for each in rest if "=" in each)
    names = [each for each in rest if "=" not in each]
    owner, leases = options.get("owner", ""), [NOW + float(options["lease"])] if "lease" in options else []
    now = NOW + eval(options.get("at", "0"), {"AGE": LIMITS.max_age_s, "KEPT": LOG_KEPT_S})
    first, *texts = options.get("events", "0").split(",")
    groups = [
        [item(*map(long, each.split(":"))) for each in group.split()] for group in " ".join(names).split(">")
    ]
    body = long(options.get("body", "{}")).encode()
    made = StoredResponse(id, owner, now, body, *map(tuple, (*groups, ())[:2]), *leases * (word == "open"))
    match word:
        case "put":
            return str(await store.put(made))
        case "get":
            stored = await store.get(owner, id, now)
            return "none" if stored is None else shown(stored)
        case "item":
            found = await item_of(store, owner, id, now)
            return "none" if found is None else found.data.decode()
        case "delete":
            return str(await store.delete(owner, id))
        case "open":
            return str(await store.open(made))
        case "append":
            return str(await store.append(made.key, events(int(first), *texts), now))
        case "close":
            return str(await store.close(made, events(int(first), *texts), *leases))
        case "renew":
            renewed = await store.open_logs([(owner, each) for each in (id, *names)], *leases)
            return " ".join(sorted(each for _, each in renewed)) or "none"
    assert word == "log"
    return await texts_after(store, int(names[0]), now, id)


@pytest.mark.parametrize("loop", ["asyncio", "trio"])
def test_what_calls_return(kind: Kind, loop: str) -> None:
    async def outputs(lines: list[str]) -> list[str]:
        kind.clear()
        limits = LIMITS
        if lines[0].startswith("limit "):
            limits = ResponseStoreLimits(int(lines.pop(0).removeprefix("limit ")), LIMITS.max_age_s)
        async with kind(limits) as store:
            found = [f"{line} -> {await carried_out(store, line)}" for line in lines]
        return [re.sub(r"(.)\1{99,}", lambda long: f"{long[1]}*{len(long[0])}", each) for each in found]

    rows.check(Path(__file__).with_name("stores.txt"), lambda lines: anyio.run(outputs, lines, backend=loop))


async def test_a_log_is_read_page_by_page(store: ResponseStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "PAGE_BYTES", 300)
    await store.open(opened())
    for number in range(10):
        await store.append(KEY, events(number, f"{number}" * 10), NOW)
    for after, count in ((-1, 3), (2, 3), (8, 1), (9, 0)):
        page = await store.read_events(KEY, after, NOW)
        assert (page.events.first, page.events.count, page.log.next) == (after + 1, count, 10)


@one_backend
async def test_a_server_is_left_with_nothing(valkey: ValkeyServer) -> None:
    valkey.command("FLUSHALL")
    store = ValkeyResponseStore(valkey.url, LIMITS)
    async with store.running():
        for number in range(3):
            await store.put(response(f"resp_{number}", input_items=(item("shared"), item(f"m{number}"))))
        await store.open(opened("resp_3"))
        await store.append(("", "resp_3"), events(0, "a", "b"), NOW)
        await store.close(response("resp_3"), events(2, "c"))
        await store.open(opened("resp_4"))
        await store.append(("", "resp_4"), events(0, "a", "b"), NOW)
        for number in range(5):
            await store.delete("", f"resp_{number}")
    assert valkey.command("GET", "dragoman:responses:1:total") == b"$1\r\n0\r\n"
    assert valkey.command("DBSIZE") == b":2\r\n", "that, and the number of the last item"


@one_backend
async def test_a_server_drops_what_is_old_step_by_step(
    valkey: ValkeyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A script must not stop it for long. What has expired is not found meanwhile."""
    valkey.command("FLUSHALL")
    store = ValkeyResponseStore(valkey.url, LIMITS)
    async with store.running():
        for number in range(101):
            await store.put(response(f"resp_{number}", created=NOW + number))
        late = NOW + 200 + LIMITS.max_age_s
        assert await store.get("", "resp_100", late) is None
        assert valkey.command("ZCARD", "dragoman:responses:1:created") == b":1\r\n"
        assert await store.get("", "resp_100", late) is None
        assert valkey.command("DBSIZE") == b":2\r\n"


@one_backend
@pytest.mark.promise("R11")
async def test_a_server_that_does_not_respond_delays_a_response_by_a_quarter_of_a_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with valkey_server() as server:
        store = ValkeyResponseStore(server.url, LIMITS)
        async with store.running():
            assert await store.put(response())
            monkeypatch.setattr(valkey_store, "PUT_S", PUT_S)
            server.pause()
            begun = anyio.current_time()
            with pytest.raises(ResponseStoreError, match=r"no response within 0\.25 s"):
                await store.put(response("resp_2"))
            assert anyio.current_time() - begun < 2.0
            server.resume()
            assert await store.get("", "resp_1", NOW) == response()


async def test_the_oldest_events_go_when_a_log_is_full(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module(f"dragoman_server.responses.stores.{kind.name}")
    monkeypatch.setattr(module, "MAX_LOG_BYTES", 500)
    async with kind() as store:
        await store.open(opened())
        for number in range(10):
            assert await store.append(KEY, events(number, f"{number}"), NOW)
        assert await texts_after(store, 8) == "open 7-10: 9"
        assert await store.append(KEY, events(10, "x" * 1000), NOW)
        assert await texts_after(store, 9) == f"open 10-11: {'x' * 1000}"


async def test_what_is_made_stays_when_there_is_too_much(kind: Kind) -> None:
    """Others go before it. When it fills the store alone, its oldest events go."""
    async with kind(ResponseStoreLimits(max_bytes=100_000, max_age_s=3600)) as store:
        await store.open(opened(created=NOW - 10))
        await store.put(response("resp_2", created=NOW - 5))
        for id in ("resp_3", "resp_4"):
            await store.put(response(id, body=bytes(90_000)))
        assert await store.open_logs([KEY])
        assert await store.get("", "resp_3", NOW) is None
        for number in range(5):
            assert await store.append(KEY, events(number, "x" * 30_000), NOW)
        assert await store.get("", "resp_2", NOW) is None
        assert await store.get("", "resp_4", NOW) is None
        assert (await store.read_events(KEY, 4, NOW)).log.first in (2, 3)
        with pytest.raises(ResponseTooLarge):
            await store.close(response(body=bytes(100_001)), NO_EVENTS)
        assert not await store.open(msgspec.structs.replace(opened("resp_6"), body=bytes(100_001)))
        # That of a gateway which has died goes as any other.
        await store.put(response("resp_5", created=int(LEASE) + 1, body=bytes(90_000)))
        assert await texts_after(store, -1) == "none"


# The file.


@one_backend
async def test_a_file_without_logs_gets_them(sqlite: Kind) -> None:
    """Earlier releases made such files."""
    async with sqlite() as store:
        await store.put(response())
        assert isinstance(store, SQLiteResponseStore)
        for name in ("response_changed", "response_with_log_dropped"):
            store._file.connection.execute(f"DROP TRIGGER {name}")
        for name in ("events", "logs"):
            store._file.connection.execute(f"DROP TABLE {name}")
    async with sqlite() as store:
        assert await store.get("", "resp_1", NOW) == response()
        await store.open(opened("resp_2"))
        await store.append(("", "resp_2"), events(0, "a", "b"), NOW)
        await store.close(response("resp_2"), events(2, "c"))
        for id in ("resp_1", "resp_2"):
            await store.delete("", id)
        assert isinstance(store, SQLiteResponseStore)
        assert store._file.connection.execute("SELECT bytes FROM total").fetchone() == (0,)


_PROCESS = """
import sys, anyio
from dragoman_server.responses.stores.base import ResponseStoreLimits, StoredItem, StoredResponse
from dragoman_server.responses.stores.sqlite import SQLiteResponseStore

async def main(path, name):
    store = SQLiteResponseStore(path, ResponseStoreLimits(10_000_000, 3600))
    async with store.running():
        for number in range(30):
            items = (StoredItem("shared", b"x" * 1000), StoredItem(f"{name}{number}", b"{}"))
            await store.put(StoredResponse(f"{name}_{number}", "", 1800000000, b"{}", items, ()))
            assert await store.get("", f"{name}_{number}", 1800000000)

anyio.run(main, *sys.argv[1:])
"""


def run_processes(path: Path, names: list[str]) -> list[tuple[int, bytes]]:
    """Exit code and errors of processes that run side by side."""
    command = [sys.executable, "-W", "error", "-c", _PROCESS, str(path)]
    processes = [subprocess.Popen([*command, name], stderr=subprocess.PIPE) for name in names]
    errors = [process.communicate()[1] for process in processes]
    return [(process.returncode, text) for process, text in zip(processes, errors, strict=True)]


@one_backend
async def test_processes_that_start_and_write_at_once(sqlite: Kind) -> None:
    names = ["a", "b", "c"]
    assert await anyio.to_thread.run_sync(run_processes, sqlite.path, names) == [(0, b"")] * 3
    async with sqlite() as store:
        for name in names:
            for number in range(30):
                assert await store.get("", f"{name}_{number}", NOW) is not None


@one_backend
async def test_deleted_content_is_not_left_in_the_file(sqlite: Kind) -> None:
    secret = "a word that must not stay"
    async with sqlite() as store:
        await store.put(response(input_items=(item("msg_1", secret),)))
        await store.delete("", "resp_1")
    assert secret.encode() not in sqlite.path.read_bytes()


@contextmanager
def locked(sqlite: Kind) -> Iterator[None]:
    """Hold the file meanwhile, as another process does."""
    with closing(sqlite3.connect(sqlite.path, isolation_level=None)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        yield


@one_backend
async def test_a_file_that_another_process_has_locked(sqlite: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dragoman_server.responses.stores.sqlite._BUSY_S", 0.05)
    async with sqlite() as store:
        await store.put(response())
        with locked(sqlite):
            with pytest.raises(ResponseStoreError, match="locked"):
                await store.put(response("resp_2"))
            assert await store.get("", "resp_1", NOW) == response(), "readers do not wait"
        assert await store.put(response("resp_2"))


async def test_others_run_while_a_call_waits_for_the_file(
    sqlite: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dragoman_server.responses.stores.sqlite._BUSY_S", 60)
    done = []
    async with sqlite() as store, anyio.create_task_group() as tasks:

        async def put() -> None:
            done.append(await store.put(response()))

        with locked(sqlite):
            tasks.start_soon(put)
            for _ in range(5):
                await anyio.sleep(0.01)
            assert done == []
    assert done == [True]


async def test_a_call_waits_for_those_before_it_for_a_bounded_time(
    sqlite: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dragoman_server.responses.stores.sqlite._BUSY_S", 60)
    async with sqlite() as store:
        async with anyio.create_task_group() as tasks:
            with locked(sqlite):
                tasks.start_soon(store.put, response())
                await anyio.sleep(0.01)
                monkeypatch.setattr("dragoman_server.platform.sqlite_file.TURN_S", 0.05)
                with pytest.raises(ResponseStoreError, match=r"the calls before this one took 0\.05 s"):
                    await store.get("", "resp_1", NOW)
        assert await store.get("", "resp_1", NOW) == response()


@one_backend
async def test_it_works_only_inside_its_block(sqlite: Kind) -> None:
    with pytest.raises(RuntimeError, match="outside"):
        await SQLiteResponseStore(str(sqlite.path), LIMITS).get("", "resp_1", NOW)


@pytest.mark.promise("R11")
async def test_a_locked_file_delays_a_response_by_a_quarter_of_a_second(
    sqlite: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_store, "PUT_S", PUT_S)
    async with sqlite() as store:
        begun = anyio.current_time()
        with locked(sqlite), pytest.raises(ResponseStoreError, match=r"not written within 0\.25 s"):
            await store.put(response())
        assert anyio.current_time() - begun < 2.0
    async with sqlite() as store:
        assert await store.get("", "resp_1", NOW) == response(), "the writing went on"


@one_backend
@pytest.mark.promise("R11")
async def test_on_a_full_disk_the_oldest_go(sqlite: Kind) -> None:
    async with sqlite() as store:
        assert isinstance(store, SQLiteResponseStore)
        large = bytes(100_000)
        for number in range(8):
            await store.put(response(f"resp_{number}", body=large))
        pages = store._file.connection.execute("PRAGMA page_count").fetchone()[0]
        store._file.connection.execute(f"PRAGMA max_page_count = {pages + 10}")
        for number in range(8, 12):
            assert await store.put(response(f"resp_{number}", body=large))
        there = [number for number in range(12) if await store.get("", f"resp_{number}", NOW) is not None]
        assert (there[-4:], there) == ([8, 9, 10, 11], list(range(there[0], 12)))
        store._file.connection.execute("DELETE FROM responses")
        with pytest.raises(ResponseStoreError, match="full"):
            await store.put(response("resp_large", body=bytes(950_000)))


async def test_a_large_response_lets_others_run_and_is_stored_and_dropped_whole() -> None:
    items = tuple([item(f"msg_{number}") for number in range(2500)])
    store = MemoryResponseStore(LIMITS)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(store.put, response(input_items=items))
        while not store.bytes:
            await anyio.lowlevel.checkpoint()
        assert await store.get("", "resp_1", NOW) is None
        tasks.cancel_scope.cancel()
    assert (await store.get("", "resp_1", NOW)).input == items
    stored = store.bytes
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(store.get, "", "resp_1", NOW + LIMITS.max_age_s + 1)
        while store.bytes == stored:
            await anyio.lowlevel.checkpoint()
        assert await store.get("", "resp_1", NOW) is None
        assert 0 < store.bytes < stored
        tasks.cancel_scope.cancel()
    assert store.bytes == 0
    assert await item_of(store, "", "msg_1", NOW) is None


@one_backend
@pytest.mark.no_cover
async def test_many_responses_expire_in_linear_time() -> None:
    """To drop one takes less than to store it. A walk over those that have gone before it takes much longer."""
    store = MemoryResponseStore(ResponseStoreLimits(max_bytes=10**9, max_age_s=3600))
    before, begun = len(gc.get_objects()), time.thread_time()
    for number in range(100_000):
        await store.put(response(f"resp_{number}"))
    stored = time.thread_time()
    gc.collect()
    assert len(gc.get_objects()) < before + 1000, (
        "a full collection walks over them, and nothing runs meanwhile"
    )
    collected = time.thread_time()  # which takes longer the more a test run has in memory
    assert await store.get("", "resp_1", NOW + 3601) is None
    assert store.bytes == 0
    assert time.thread_time() - collected < 2 * (stored - begun)


@one_backend
async def test_memory_is_freed_to_the_last_byte() -> None:
    store = MemoryResponseStore(LIMITS)
    for number in range(3):
        await store.put(response(f"resp_{number}", input_items=(item("shared"), item(f"m{number}"))))
    for number in range(3):
        await store.delete("", f"resp_{number}")
    await store.open(opened())
    await store.append(KEY, events(0, "a", "b"), NOW)
    await store.close(response(), events(2, "c"))
    await store.delete("", "resp_1")
    await store.open(opened())
    await store.close(response(), events(0, "c"))
    await store.open(opened("resp_2", NOW + LOG_KEPT_S + 1))  # which drops logs that are too old
    for number in range(1, 3):
        await store.delete("", f"resp_{number}")
    assert (store.bytes, store._items, store._named, store._logs) == (0, {}, {}, {})
