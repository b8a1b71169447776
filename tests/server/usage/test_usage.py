"""What requests have used: counted without a wait, written soon after, and read by the operator and by client keys."""

import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
import rows
from gateway.fakes import Script, call
from gateway.scripted import (
    CHAT,
    NOON,
    TOKENS,
    Clock,
    ScriptedGateway,
    chat_response,
    scripted,
    settings_with,
    whole,
)
from msgspec.structs import replace
from virtual_time import VIRTUAL_BACKENDS

from dragoman_server.gateway import Gateway
from dragoman_server.http.admin import usage as admin_usage
from dragoman_server.log import RequestRecord
from dragoman_server.platform.sqlite_file import SQLiteFile
from dragoman_server.settings import Price
from dragoman_server.settings.secret import Secret
from dragoman_server.telemetry.metrics import OTHER
from dragoman_server.usage import recorder
from dragoman_server.usage.recorder import WRITE_INTERVAL_S, UsageRecorder
from dragoman_server.usage.stores.base import (
    FIRST_BYTE_BOUNDS,
    KeyUse,
    UsageBatch,
    UsageCounts,
    UsageQuery,
    UsageStoreError,
)
from dragoman_server.usage.stores.sqlite import SQLiteUsageStore

pytestmark = [pytest.mark.anyio, pytest.mark.backends(*VIRTUAL_BACKENDS)]

ADMIN = "admin-canary-0123456789-0123456789-wq7zk"
HOUR = int(NOON // 3600)
ALL = UsageQuery(0, HOUR + 1000)
AGE_S = 100 * 3600


@pytest.fixture(autouse=True)
def readable_after_their_end(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    ended: list[SQLiteFile] = []
    close = SQLiteFile.close
    monkeypatch.setattr(SQLiteFile, "close", lambda file: ended.append(file))
    yield
    for file in ended:
        close(file)


class Store(SQLiteUsageStore):
    """In memory. writes: when each began. fails: with this; after that many seconds."""

    def __init__(self, fails: str = "", seconds: float = 0.0) -> None:
        super().__init__(None)
        self.writes: list[float] = []
        self.fails, self.seconds = fails, seconds

    async def add(self, batch: UsageBatch) -> None:
        self.writes.append(anyio.current_time())
        await anyio.sleep(self.seconds)
        if self.fails:
            raise UsageStoreError(self.fails)
        await super().add(batch)


def label(upstream: str | None, model: str | None) -> str:
    return "" if model is None else model if model in ("m", "n") else OTHER


def recording(store: Store) -> UsageRecorder:
    return UsageRecorder(store, label, AGE_S)


def record(**more: Any) -> RequestRecord:
    fields = {
        "upstream": "up",
        "upstream_model": "m",
        "account": "up/a",
        "status": 200,
        "outcome": "completed",
    }
    return RequestRecord("id", CHAT, "/", **{**fields, "input_tokens": 10, "output_tokens": 4, **more})


def histogram(*buckets: int) -> list[int]:
    return [buckets.count(place) for place in range(len(FIRST_BYTE_BOUNDS) + 1)]


# What requests add.
COUNTED: list[tuple[RequestRecord, dict[str, Any]]] = [
    (record(cost_usd=0.5), {"cost_usd": 0.5}),
    (record(), {"unpriced": 1}),
    (record(cost_usd=0.0), {}),
    (record(output_tokens=None), {"output_tokens": 0, "unpriced": 1}),
    (record(outcome="failed", status=502, output_tokens=None, input_tokens=None),
     {"errors": 1, "input_tokens": 0, "output_tokens": 0}),
    (record(outcome="refused", input_tokens=None), {"errors": 1, "input_tokens": 0, "unpriced": 1}),
    (record(outcome="client_left", cost_usd=1.0, first_byte_s=0.1), {"cost_usd": 1.0}),
    (record(cached_tokens=8, cache_write_tokens=1, reasoning_tokens=3, cost_usd=0.0),
     {"cached_tokens": 8, "cache_write_tokens": 1, "reasoning_tokens": 3}),
    (record(first_byte_s=0.05, cost_usd=0.0), {"first_byte": histogram(0)}),
    (record(first_byte_s=0.01, first_content_s=0.051, cost_usd=0.0), {"first_byte": histogram(1)}),
    (record(first_byte_s=601.0, cost_usd=0.0), {"first_byte": histogram(len(FIRST_BYTE_BOUNDS))}),
]  # fmt: skip


async def test_what_a_request_adds() -> None:
    for ended, more in COUNTED:
        usage = recording(Store())
        usage.count(ended, NOON)
        expected = UsageCounts(**{"requests": 1, "input_tokens": 10, "output_tokens": 4, **more})
        async with usage.running():
            assert await usage.read(ALL) == [((), expected)], ended


async def test_requests_are_added_up_and_written_once_in_a_while() -> None:
    store = Store()
    usage = recording(store)
    async with usage.running():
        for _ in range(100):
            usage.count(record(client_key="red", cost_usd=0.25), NOON)
        await anyio.sleep(10 * WRITE_INTERVAL_S)
        assert store.writes == [WRITE_INTERVAL_S], "and nothing while there is nothing to write"
        usage.count(record(client_key="red", output_tokens=0, cost_usd=0.0), NOON - 3600)
        usage.count(record(), NOON)
        assert await usage.key_uses(["red", "blue"]) == [KeyUse(101, 1410, 25.0, NOON), KeyUse()]
        rows = await usage.read(replace(ALL, by=("hour", "key")))
        assert [(values, counts.requests) for values, counts in rows] == [
            ((HOUR, "red"), 100), ((HOUR, ""), 1), ((HOUR - 1, "red"), 1)
        ]  # fmt: skip
        usage.count(record(), NOON + AGE_S)
        assert len(await usage.read(replace(ALL, by=("hour",)))) == 2, "what is too old is dropped"


async def test_the_last_of_it_is_written_at_the_end() -> None:
    unused, store = Store(), Store()
    async with recording(unused).running() as _:
        pass
    assert unused.writes == []
    usage = recording(store)
    async with usage.running():
        usage.count(record(client_key="red"), NOON)
    assert await store.key_uses(["red"]) == [KeyUse(1, 14, 0.0, NOON)]


@pytest.mark.parametrize("trouble", [{"fails": "the disk is full"}, {"seconds": 3600.0}])
async def test_a_store_that_does_not_work_delays_what_is_written(
    trouble: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    store = Store(**trouble)
    usage = recording(store)
    async with usage.running():
        for _ in range(3):
            usage.count(record(client_key="red"), NOON)
            await anyio.sleep(60)
        reason = trouble.get("fails", "no response in time")
        assert caplog.messages == [f"usage is not written, and tried again: {reason}"], "one line"
        store.fails, store.seconds = "", 0.0
        await anyio.sleep(10)
        assert caplog.messages[1:] == ["usage is written again"]
        assert await usage.key_uses(["red"]) == [KeyUse(3, 42, 0.0, NOON)], "each of them once"


async def test_what_no_store_can_write_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    class Strict(Store):
        async def add(self, batch: UsageBatch) -> None:
            if not self.writes:
                self.writes.append(0.0)
                raise OverflowError("Python int too large to convert to SQLite INTEGER")
            await super().add(batch)

    usage = recording(Strict())
    async with usage.running():
        for _ in range(2):
            usage.count(record(), NOON)
            await anyio.sleep(WRITE_INTERVAL_S + 1)
        assert [counts.requests for _, counts in await usage.read(ALL)] == [1]
    assert caplog.messages == ["usage could not be written, and is left out"]


async def test_a_batch_is_written_once_by_those_who_read_at_the_same_time() -> None:
    usage = recording(Store(seconds=1.0))
    usage.count(record(client_key="red"), NOON)
    async with usage.running():
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(usage.read, ALL)
        assert await usage.key_uses(["red"]) == [KeyUse(1, 14, 0.0, NOON)]


async def test_the_end_writes_what_came_after_a_failure_too() -> None:
    store = Store("the disk is full")
    usage = recording(store)
    async with usage.running():
        usage.count(record(client_key="red"), NOON)
        await anyio.sleep(WRITE_INTERVAL_S)
        await anyio.sleep(0.1)
        usage.count(record(client_key="red"), NOON)
        store.fails = ""
    assert await store.key_uses(["red"]) == [KeyUse(2, 28, 0.0, NOON)]


async def test_the_end_waits_only_so_long_for_the_store() -> None:
    usage = recording(Store(seconds=3600))
    with anyio.fail_after(11):
        async with usage.running():
            usage.count(record(), NOON)


async def test_a_read_has_a_deadline() -> None:
    class Slow(Store):
        async def read(self, query: UsageQuery) -> Any:
            await anyio.sleep(3600)

    with anyio.fail_after(6), pytest.raises(UsageStoreError, match="did not respond within 5 s"):
        await recording(Slow()).read(ALL)


async def test_a_store_that_cannot_be_opened_is_replaced_by_memory(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Store):
        @asynccontextmanager
        async def running(self) -> Any:
            raise UsageStoreError("the directory cannot be written")
            yield

    usage = recording(Broken())
    async with usage.running():
        usage.count(record(), NOON)
        assert [counts.requests for _, counts in await usage.read(ALL)] == [1]
    assert caplog.messages == [
        "usage is counted in memory only, and lost when the gateway ends: the directory cannot be written"
    ]


async def test_names_from_outside_make_no_more_rows_than_that(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "MAX_UNLISTED", 2)
    usage = recording(Store())
    usage.count(record(upstream_model="refused", status=404, outcome="failed"), NOON)
    for name in ("n", "half a pair \ud800", "own-1", "own-2", "own-3", "own-2", "x" * 201):
        usage.count(record(upstream_model=name), NOON)
    usage.count(record(upstream=None, upstream_model=None, account=None, outcome="refused"), NOON)
    async with usage.running():
        rows = await usage.read(replace(ALL, by=("model",)))
        assert [(values[0], counts.requests) for values, counts in rows] == [
            (OTHER, 4), ("own-2", 2), ("", 1), ("n", 1), ("own-1", 1)
        ]  # fmt: skip
        usage.count(record(upstream_model="own-3"), NOON + 3600)
        rows = await usage.read(replace(ALL, since=HOUR + 1, by=("model",)))
        assert [values for values, _ in rows] == [("own-3",)], "each hour has its own names"


async def test_rows_that_wait_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "MAX_WAITING", 2)
    usage = recording(Store())
    for key in ("a", "b", "c", "a"):
        usage.count(record(client_key=key), NOON)
    async with usage.running():
        assert [use.requests for use in await usage.key_uses(["a", "b", "c"])] == [2, 1, 0]


# Over HTTP.

PRICES = (Price(model="*", input=1_000_000, output=1_000_000),)  # a dollar for a token


async def admin(path: str, gateway: ScriptedGateway) -> tuple[int | None, Any]:
    client = await call(gateway.app, path, method="GET", headers={"x-api-key": ADMIN})
    return client.status, json.loads(client.body)


async def test_the_operator_sees_what_each_key_has_used() -> None:
    keys = {"red": {"budget": 100.25, "budget_period": "day"}, "blue": {"requests_per_minute": 1}}
    gateway = scripted(CHAT, keys=keys, prices=PRICES, clock=Clock(), admin_key=Secret(ADMIN))
    async with gateway.app.lifespan():
        assert (await gateway.request()).status == 200
        assert (await gateway.request(streams=True)).status == 200
        assert [(await gateway.request(key="blue")).status for _ in range(2)] == [200, 429]
        await gateway.call("/v1/models", {}, method="GET")
        await gateway.call("/v1/messages/count_tokens", {"model": "up/m", "messages": []})
        _, found = await admin("/admin/keys", gateway)
        status, usage = await admin("/admin/usage?by=key,model&since=1d&key=red", gateway)
    red, blue = found["keys"]
    assert red.pop("last_used") is not None
    assert red.pop("budget_starts_again") is not None
    assert red == {
        "name": "red",
        "source": "file",
        "group": None,
        "state": "active",
        "expires": None,
        "previous_expires": None,
        "requests": 2,
        "tokens": 2 * TOKENS,
        "cost_usd": 2 * TOKENS,
        "models": None,
        "requests_per_minute": None,
        "tokens_per_minute": None,
        "budget": 100.25,
        "budget_period": "day",
        "budget_spent": 2 * TOKENS,
        "budget_left": 100.25 - 2 * TOKENS,
    }
    assert (blue["requests"], blue["tokens"], blue["budget"]) == (1, TOKENS, None)
    assert (status, usage["by"], usage["truncated"]) == (200, ["key", "model"], False)
    (row,) = usage["rows"]
    assert usage["first_byte_bounds_s"] == list(FIRST_BYTE_BOUNDS)
    assert (row["key"], row["model"], row["requests"], row["cost_usd"]) == ("red", "m", 2, 2 * TOKENS)
    assert sum(row["first_byte"]) == 2
    assert usage["total"] == {name: value for name, value in row.items() if name not in ("key", "model")}


async def test_rows_beyond_the_limit_are_in_the_total() -> None:
    gateway = scripted(CHAT, admin_key=Secret(ADMIN))
    async with gateway.app.lifespan():
        for name in ("up/a", "up/b", "two/b"):
            assert (await gateway.request(model=name)).status == 200
        assert (await gateway.request(model="none")).status == 404
        _, usage = await admin("/admin/usage?by=upstream&limit=1", gateway)
        assert ([row["upstream"] for row in usage["rows"]], usage["truncated"]) == (["up"], True)
        assert [usage["total"][name] for name in ("requests", "errors", "cost_usd")] == [4, 1, None]
        _, usage = await admin("/admin/usage?by=account,day", gateway)
        assert [row["account"] for row in usage["rows"]] == ["up/default", "", "two/default"]
        assert {len(row["day"]) for row in usage["rows"]} == {len("2026-11-29")}
        _, usage = await admin("/admin/usage", gateway)
        assert (usage["rows"], usage["total"]["requests"]) == ([], 4)
        _, usage = await admin("/admin/usage?until=1h&since=3h", gateway)
        assert (usage["total"]["requests"], usage["total"]["cost_usd"]) == (0, 0)
        _, usage = await admin("/admin/usage?until=9999-12-31T23:30Z", gateway)
        assert usage["until"] == "9999-12-31T23:59:59Z"  # the next hour is in no calendar


def test_which_hours_a_question_is_of_and_what_is_wrong_with_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin_usage, "time", SimpleNamespace(time=lambda: NOON + 1))

    async def asked(lines: list[str]) -> list[str]:
        gateway = scripted(CHAT, admin_key=Secret(ADMIN))
        async with gateway.app.lifespan():
            status, found = await admin(f"/admin/usage{lines[0]}", gateway)
        if status == 200:
            return [f"{found['since']} to {found['until']}"]
        return [f"{status}, {found['error']['param']}: {found['error']['message']}"]

    rows.check(Path(__file__).with_name("questions.txt"), lambda lines: anyio.run(asked, lines))


async def test_a_store_that_does_not_respond_costs_the_answer_and_no_request() -> None:
    gateway = scripted(CHAT, keys={"red": {}}, admin_key=Secret(ADMIN))

    class Deaf(Store):
        async def read(self, query: UsageQuery) -> Any:
            raise UsageStoreError("secret host")

        async def key_uses(self, keys: Sequence[str]) -> Any:
            raise UsageStoreError("secret host")

    gateway.gateway.usage = recording(Deaf())
    async with gateway.app.lifespan():
        assert (await gateway.request()).status == 200
        found = [await admin(path, gateway) for path in ("/admin/usage", "/admin/keys")]
        own = await gateway.call("/v1/usage", method="GET")
    assert [status for status, _ in found] + [own.status] == [503] * 3
    assert "secret" not in f"{found}{own.body!r}"


async def test_a_client_key_sees_its_own_figures_and_no_others() -> None:
    keys = {
        "red": {
            "group": "team", "budget": 1000.0, "budget_period": "day", "tokens_per_minute": 9000, "models": ("up/*",)
        },
        "blue": {"group": "team"},
        "alone": {},
    }  # fmt: skip
    groups = {"team": {"budget": 9000.0, "budget_period": "total", "requests_per_minute": 99}}
    gateway = scripted(CHAT, keys=keys, groups=groups, prices=PRICES, clock=Clock(), admin_key=Secret(ADMIN))
    async with gateway.app.lifespan():
        for key in ("red", "red", "blue"):
            assert (await gateway.request(key=key)).status == 200
        red, blue, alone = [
            json.loads((await gateway.call("/v1/usage?key=blue", key=key, method="GET")).body) for key in keys
        ]
        _, listed = await admin("/admin/keys", gateway)
        _, by_group = await admin("/admin/usage?by=group", gateway)
        _, by_both = await admin("/admin/usage?by=group,key&limit=2", gateway)
        unknown = await gateway.call("/v1/usage", key="green", method="GET")
        by_day = await gateway.call("/v1/usage?by=day", method="GET")
        missing = await call(gateway.app, "/v1/usage", None, "GET", {})
    spent = 2.0 * TOKENS
    assert {
        name: red[name] for name in ("name", "models", "requests_per_minute", "tokens_per_minute", "total")
    } == {
        "name": "red",
        "models": ["up/*"],
        "requests_per_minute": None,
        "tokens_per_minute": 9000,
        "total": {"requests": 2, "tokens": 2 * TOKENS, "cost_usd": spent},
    }
    assert red["budget_starts_again"].endswith("T00:00:00Z")
    budget = {"budget": 1000.0, "budget_period": "day", "budget_spent": spent, "budget_left": 1000.0 - spent}
    assert red == {**red, **budget}
    assert red["group"] == blue["group"] == {
        "name": "team", "models": None, "requests_per_minute": 99, "tokens_per_minute": None,
        "budget": 9000.0, "budget_period": "total", "budget_spent": 3.0 * TOKENS,
        "budget_left": 9000.0 - 3.0 * TOKENS, "budget_starts_again": None,
    }  # fmt: skip
    found = [[each[name] for name in red["group"]] for each in listed["keys"]]
    assert found == [[each[name] for name in red["group"]] for each in (red, blue, alone)]
    assert listed["groups"] == [red["group"]]
    assert [(row["group"], row["requests"]) for row in by_group["rows"]] == [("team", 3)]
    assert [(row["group"], row["key"], row["requests"]) for row in by_both["rows"]] == [
        ("team", "red", 2), ("team", "blue", 1)
    ]  # fmt: skip
    assert alone["group"] is None
    for period in ("today", "last_7d", "last_30d"):
        assert (red[period]["requests"], blue[period]["requests"]) == (2, 1)
    assert (blue["name"], blue["budget"], "red" in json.dumps(blue)) == ("blue", None, False)
    assert (unknown.status, missing.status) == (401, 401)
    assert (by_day.status, by_day.error["message"]) == (400, "unknown parameter 'by'; there are key")


async def test_without_client_keys_nobody_has_figures_of_their_own() -> None:
    gateway = scripted(CHAT)
    async with gateway.app.lifespan():
        client = await gateway.call("/v1/usage", method="GET")
    assert client.status == 404
    assert "this gateway has no client keys" in client.error["message"]


async def test_a_reload_keeps_what_was_counted() -> None:
    gateway = scripted(CHAT, admin_key=Secret(ADMIN))
    async with gateway.app.lifespan():
        await gateway.request()
        await gateway.app.reload(replace(gateway.gateway.settings))
        await gateway.request()
        _, usage = await admin("/admin/usage", gateway)
    assert usage["total"]["requests"] == 2


async def test_an_application_in_code_writes_nothing_to_disk() -> None:
    store = Gateway(settings_with(CHAT)).usage._store
    assert isinstance(store, SQLiteUsageStore)
    assert store._file.name == "the usage store in memory"


async def test_the_tokens_of_a_response_of_a_model_without_a_price() -> None:
    """A figure that can be no count is left out: SQLite takes no integer of more than 64 bits."""
    usage = {
        "prompt_tokens": 20,
        "completion_tokens": 7,
        "prompt_tokens_details": {"cached_tokens": 2**64},
        "completion_tokens_details": {"reasoning_tokens": 4},
    }
    script: Script = whole(chat_response({"content": "Hi"}, usage=usage))
    gateway = scripted(CHAT, script, admin_key=Secret(ADMIN))
    async with gateway.app.lifespan():
        await gateway.request()
        _, found = await admin("/admin/usage", gateway)
    expected = {
        "input_tokens": 20,
        "output_tokens": 7,
        "cached_tokens": 0,
        "reasoning_tokens": 4,
        "unpriced": 1,
        "cost_usd": None,
    }
    assert found["total"] == {**found["total"], **expected}
