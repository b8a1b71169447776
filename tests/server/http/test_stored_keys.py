"""Client keys that are made over HTTP: kept as hashes in the account store, followed by every process that shares it."""

# ruff: noqa: E501 -- the tables are read by row

import json
import logging
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from time import process_time
from typing import Any, NoReturn

import anyio
import pytest
import rows
from gateway.fakes import FakeUpstreams, Script, Sleep, call
from gateway.scripted import CHAT, PATHS, SECRET, WHOLE_RESPONSES, request_body, settings_with
from msgspec.structs import replace
from virtual_time import VIRTUAL_BACKENDS

from dragoman_server.accounts import stored_keys
from dragoman_server.accounts.stored_keys import REFRESH_S, StoredKeys
from dragoman_server.accounts.stores.base import AccountStoreError, Operation
from dragoman_server.accounts.stores.memory import MemoryAccountStore
from dragoman_server.accounts.stores.operations import ReadKeyTables, WriteKeyTable
from dragoman_server.app import Application
from dragoman_server.config.reload import ReloadResult
from dragoman_server.gateway import Gateway
from dragoman_server.settings import Price, Settings, UpstreamSettings
from dragoman_server.settings.secret import Secret
from dragoman_server.usage.stores.base import UsageStoreError
from dragoman_server.usage.stores.sqlite import SQLiteUsageStore

pytestmark = [pytest.mark.anyio, pytest.mark.backends(*VIRTUAL_BACKENDS)]

# A change is seen by then.
SOON = 2 * REFRESH_S

ADMIN_KEY = "admin-canary-0123456789-0123456789-wq7zk"
ADMIN = {"authorization": f"Bearer {ADMIN_KEY}"}


def settings_of(**more: Any) -> Settings:
    server: dict[str, Any] = {"stored_keys": True, "admin_key": Secret(ADMIN_KEY)}
    tables = {"keys": {"filed": {}}, "groups": {"team": {"models": ("up/*",)}}}
    return settings_with(CHAT, **{**tables, **server, **more})


class Store(MemoryAccountStore):
    """Fails on demand: the operations of a class, by an error."""

    fails: type[Operation[Any]] | None = None

    async def apply(self, operation: Operation[Any]) -> Any:
        if self.fails is not None and isinstance(operation, self.fails):
            raise AccountStoreError("no route to the store")
        return await super().apply(operation)


@asynccontextmanager
async def serving(store: MemoryAccountStore, settings: Settings | None = None) -> AsyncIterator[Application]:
    upstreams = FakeUpstreams(*[WHOLE_RESPONSES[CHAT]] * 99)
    app = Application(Gateway(settings or settings_of(), upstreams, accounts=store))
    async with app.lifespan():
        yield app


@asynccontextmanager
async def gateways(store: MemoryAccountStore) -> AsyncIterator[tuple[Application, Application]]:
    """Two that share a store."""
    async with serving(store) as one, serving(store) as other:
        yield one, other


async def admin(app: Application, method: str, path: str, body: Any = b"", status: int = 200) -> Any:
    client = await call(app, f"/admin/keys{path}", body, method, ADMIN)
    assert client.status == status, client.body
    return json.loads(client.body)


async def status_of(app: Application, key: str, model: str = "up/m") -> int | None:
    client = await call(app, PATHS[CHAT], request_body(CHAT, model), "POST", {"x-api-key": key})
    return client.status


async def test_the_life_of_a_key_over_two_gateways() -> None:
    store = MemoryAccountStore()
    async with gateways(store) as (one, other):

        async def statuses(key: str) -> list[int | None]:
            await anyio.sleep(SOON)
            return [await status_of(app, key) for app in (one, other)]

        made = await admin(one, "POST", "", {"name": "ci", "group": "team", "expires": "30d"}, 201)
        first = made.pop("key")
        expected = await admin(one, "GET", "/ci") | {"source": "store", "group": "team", "state": "active"}
        assert made == expected
        assert await statuses(first) == [200, 200]
        assert await status_of(other, first, "two/m") == 403, "the group has no such model"
        second = (await admin(other, "POST", "/ci/rotate", {"overlap": "1h"}))["key"]
        assert [await statuses(key) for key in (first, second)] == [[200, 200]] * 2
        assert (await admin(one, "POST", "/ci/disable"))["state"] == "disabled"
        assert await statuses(second) == [401, 401]
        assert (await admin(other, "POST", "/ci/enable"))["state"] == "active"
        third = (await admin(one, "POST", "/ci/rotate", {"overlap": "0", "expires": "never"}))["key"]
        assert [await statuses(key) for key in (first, second, third)] == [[401, 401]] * 2 + [[200, 200]]
        own = json.loads((await call(other, "/v1/usage", None, "GET", {"x-api-key": third})).body)
        assert (own["name"], own["group"]["models"], own["total"]["requests"]) == ("ci", ["up/*"], 4)
        listed = await admin(other, "GET", "")
        assert [key["requests"] for key in listed["keys"]] == [0, 4]
        expected = [("filed", "file"), ("ci", "store")]
        assert [(key["name"], key["source"]) for key in listed["keys"]] == expected
        assert [group["name"] for group in listed["groups"]] == ["team"]
        assert await admin(other, "DELETE", "/ci") == {"name": "ci", "state": "revoked"}
        assert await statuses(third) == [401, 401]
        assert await status_of(one, "drk_filed") == 200
        await admin(one, "GET", "/ci", status=404)
    assert set(store.key_tables()) == {""}


@pytest.mark.promise("S2")
async def test_keys_outlive_the_process_and_only_their_hashes_are_kept() -> None:
    store = MemoryAccountStore()
    async with serving(store) as app:
        key = (await admin(app, "POST", "", {"name": "ci", "models": ["up/*"], "budget": None}, 201))["key"]
    assert "drk_" not in str(store.key_tables())
    async with serving(store) as app:
        expected = [200] + [401] * 4
        assert [await status_of(app, each) for each in (key, key[:-1], key + "a", "drk_", "ci")] == expected
        assert await status_of(app, store.key_tables()["ci"]) == 401


@pytest.mark.promise("S2")
async def test_an_empty_store_opens_nothing(caplog: pytest.LogCaptureFixture) -> None:
    settings = replace(settings_of(), client_keys=())
    for store in (MemoryAccountStore(), broken := Store()):
        broken.fails = ReadKeyTables
        async with serving(store, settings) as app:
            client = await call(app, PATHS[CHAT], request_body(CHAT), "POST", {})
            assert client.status == 401, "no key was sent"
            assert await status_of(app, "drk_x") == (503 if store is broken else 401)
    store = MemoryAccountStore()
    async with serving(store, settings) as app:
        key = (await admin(app, "POST", "", {"name": "ci"}, 201))["key"]
        assert await status_of(app, key) == 200
        store._key_tables.clear()  # as of a server that has lost its memory
        await anyio.sleep(SOON)
        assert await status_of(app, key) == 401
    assert caplog.messages.count("the account store has no client key any more; it had 1") == 1
    assert [each for each in caplog.messages if "there is none, so every request is refused" in each]


async def test_a_store_that_fails_changes_nothing_and_the_known_keys_stay(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = Store()
    async with serving(store) as app:
        key = (await admin(app, "POST", "", {"name": "ci"}, 201))["key"]
        store.fails = WriteKeyTable
        error = (await admin(app, "DELETE", "/ci", status=503))["error"]
        assert "the account store does not respond; the change may not have been made" in error["message"]
        store.fails = ReadKeyTables
        await anyio.sleep(10 * REFRESH_S)
        assert await status_of(app, key) == 200
        lines = [each for each in caplog.messages if "changes of the client keys" in each]
        assert len(lines) == 1, "one line, not one for each look"
        store.fails = None
        await anyio.sleep(SOON)
        await admin(app, "DELETE", "/ci")
        assert await status_of(app, key) == 401


async def test_two_processes_that_change_one_key_do_it_one_after_the_other() -> None:
    class Slow(MemoryAccountStore):
        async def apply(self, operation: Operation[Any]) -> Any:
            await anyio.sleep(0.01)
            return await super().apply(operation)

    store, statuses, keys = Slow(), list[int | None](), list[str]()
    async with gateways(store) as apps:

        async def change(app: Application, path: str, body: Any) -> None:
            client = await call(app, f"/admin/keys{path}", body, "POST", ADMIN)
            statuses.append(client.status)
            keys.append(json.loads(client.body).get("key"))

        for path, body in (("", {"name": "ci"}), ("/ci/rotate", {"overlap": "0"})):
            async with anyio.create_task_group() as tasks:
                for app in apps:
                    tasks.start_soon(change, app, path, body)
        assert sorted(map(str, statuses)) == ["200", "200", "201", "409"]
        await anyio.sleep(SOON)
        valid = [key for key in filter(None, keys) if await status_of(apps[0], key) == 200]
        assert valid == keys[-1:]


async def test_a_key_has_a_budget_where_the_package_has_prices() -> None:
    settings = settings_of()
    hosted = UpstreamSettings.of(name="openai", protocol=CHAT, base_url="https://api.openai.com/v1")
    async with serving(
        MemoryAccountStore(), replace(settings, upstreams=(*settings.upstreams, hosted))
    ) as app:
        await admin(app, "POST", "", {"name": "ci", "budget": 5}, 201)


async def test_a_store_has_a_largest_number_of_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_keys, "MAX_STORED_KEYS", 1)
    async with serving(MemoryAccountStore()) as app:
        await admin(app, "POST", "", {"name": "a"}, 201)
        error = (await admin(app, "POST", "", {"name": "b"}, 409))["error"]
        assert "there are 1 client keys: revoke some first" in error["message"]
        await admin(app, "POST", "/a/rotate")


async def test_a_key_that_was_made_is_shown_whatever_the_stores_do_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def fail(self: SQLiteUsageStore, keys: Sequence[str]) -> NoReturn:
        raise UsageStoreError("no route to the store")

    monkeypatch.setattr(SQLiteUsageStore, "key_uses", fail)

    class FailsNext(Store):
        after: type[Operation[Any]] = Operation

        async def apply(self, operation: Operation[Any]) -> Any:
            result = await super().apply(operation)
            if isinstance(operation, WriteKeyTable):
                self.fails = self.after
            return result

    for FailsNext.after in (ReadKeyTables, Operation):
        store = FailsNext()
        async with serving(store) as app:
            made = await admin(app, "POST", "", {"name": "ci", "group": "team"}, 201)
            assert (made["name"], made["state"], made["group"]) == ("ci", "active", "team")
            store.fails = None
            await anyio.sleep(SOON)
            assert await status_of(app, made["key"]) == 200


async def test_a_group_that_a_reload_has_removed_closes_its_keys(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(MemoryAccountStore()) as app:
        key = (await admin(app, "POST", "", {"name": "ci", "group": "team"}, 201))["key"]
        await app.reload(settings_of(groups={}))
        client = await call(app, PATHS[CHAT], request_body(CHAT), "POST", {"x-api-key": key})
        assert client.status == 401
        assert "there is no group team, which the client key ci is in" in client.error["message"]
        assert (
            "group team: is not configured, so its client keys in the account store are refused: ci"
            in caplog.text
        )
        assert [each["state"] for each in (await admin(app, "GET", ""))["keys"]] == ["active", "no group"]
        for errors, subjects in (((), ["group team"]), (("wrong",), [])):

            async def reloaded(errors: tuple[str, ...] = errors) -> ReloadResult:
                return ReloadResult(errors)

            app.reloader = reloaded
            result = await app.reload_configuration()
            assert [each.partition(":")[0] for each in result.warnings] == subjects
        assert (await admin(app, "POST", "/ci/disable"))["state"] == "disabled"


async def test_a_key_of_the_configuration_comes_before_one_in_the_store(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving(MemoryAccountStore()) as app:
        key = (await admin(app, "POST", "", {"name": "ci"}, 201))["key"]
        await app.reload(settings_of(keys={"ci": {"disabled": True}}))
        assert await status_of(app, key) == 401
        assert [each for each in caplog.messages if "are also in the account store" in each]
        assert [each["source"] for each in (await admin(app, "GET", ""))["keys"]] == ["file"]
        error = (await admin(app, "DELETE", "/ci", status=409))["error"]
        assert "the client key ci is in the configuration: change it there" in error["message"]


async def test_a_table_that_cannot_be_read_is_no_key(caplog: pytest.LogCaptureFixture) -> None:
    store = MemoryAccountStore()
    for name, table in (
        ("a", "{"),
        ("b", "[]"),
        ("c", '{"name":"c"}'),
        ("d", '{"name":"d","hash":"0","new":1}'),
    ):
        await store.apply(WriteKeyTable(name, "", table, name))
    stored = StoredKeys(store)
    await stored.refresh()
    assert stored.is_known
    assert not stored.keys
    assert len([each for each in caplog.messages if "in the account store is refused" in each]) == 4


def test_bad_input_is_refused_with_its_place_and_changes_nothing() -> None:
    store = MemoryAccountStore()

    async def refused(lines: list[str]) -> list[str]:
        line = lines[0].replace("LONG", "a" * 1_000_000).replace("SLASHES", "/" * 60_000)
        method, path, body = f"{line} ".replace("⏎", "\n").split(" ", 2)
        async with serving(store) as app:
            if not store.key_tables():
                await admin(app, "POST", "", {"name": "made"}, 201)
            before = store.key_tables()
            begun = process_time()
            client = await call(app, path, body.strip().encode(), method, ADMIN)
            took_s = process_time() - begun
        assert (store.key_tables(), len(client.body) < 2000, took_s < 2) == (before, True, True)
        return [f"{client.status}: {client.error['message']}"]

    rows.check(Path(__file__).with_name("stored_keys.txt"), lambda lines: anyio.run(refused, lines))


async def test_without_the_setting_the_error_says_what_is_needed() -> None:
    async with serving(MemoryAccountStore(), settings_of(stored_keys=False)) as app:
        for method, path in (("POST", ""), ("POST", "/filed/disable"), ("DELETE", "/filed")):
            error = (await admin(app, method, path, {"name": "ci"}, 409))["error"]
            assert "set server.stored_keys = true, and account_store to sqlite or valkey" in error["message"]
        assert (await admin(app, "GET", "/filed"))["source"] == "file"


async def test_an_open_request_of_a_revoked_key_goes_on_to_its_end() -> None:
    store, script = MemoryAccountStore(), WHOLE_RESPONSES[CHAT]
    slow = Script([Sleep(30), *script.body], headers=script.headers)
    app = Application(Gateway(settings_of(), FakeUpstreams(slow), accounts=store))
    async with app.lifespan(), anyio.create_task_group() as tasks:
        key = (await admin(app, "POST", "", {"name": "ci"}, 201))["key"]
        found: list[int | None] = []

        async def request() -> None:
            found.append(await status_of(app, key))

        tasks.start_soon(request)
        await anyio.sleep(1)
        await admin(app, "DELETE", "/ci")
        assert await status_of(app, key) == 401
        await anyio.sleep(60)
        assert found == [200]


async def reloaded() -> ReloadResult:
    return ReloadResult(changes=("models: 1 -> 2",))


async def test_each_change_is_in_the_audit_log_and_no_key_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "audit.jsonl"
    prices = [Price(model="*", input=1, output=1)]
    settings = settings_of(audit_log=str(file), prices=prices)
    with caplog.at_level(logging.DEBUG):
        async with serving(MemoryAccountStore(), settings) as app:
            made = await admin(app, "POST", "", {"name": "ci", "group": "team", "budget": 5}, 201)
            rotated = await admin(app, "POST", "/ci/rotate", {})
            for method, path in (("POST", "/ci/disable"), ("POST", "/ci/enable"), ("DELETE", "/ci")):
                await admin(app, method, path)
            await admin(app, "DELETE", "/ci", status=404)
            for name in ("disable", "enable", "reset"):
                await call(app, f"/admin/accounts/up/default/{name}", {}, "POST", ADMIN)
            app.reloader = reloaded
            await call(app, "/admin/reload", {}, "POST", ADMIN)
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    changes = ("made", "rotated", "disabled", "enabled", "revoked")
    assert [(row["action"], row["name"]) for row in rows] == [
        *((f"key {done}", "ci") for done in changes),
        *((f"account {done}", "up/default") for done in ("disable", "enable", "reset")),
        ("reload", "configuration"),
    ]
    assert rows[-1]["changes"] == ["models: 1 -> 2"]
    assert {(row["by"], row["address"]) for row in rows} == {("admin key", "127.0.0.1")}
    assert (rows[0]["group"], rows[0]["budget"]) == ("team", 5.0)
    logged = [each.__dict__["dragoman"] for each in caplog.records if each.name == "dragoman.audit"]
    expected = [{**json.loads(json.dumps(row, default=str)), "time": None} for row in logged]
    assert [{**row, "time": None} for row in rows] == expected
    everything = file.read_text() + str([each.__dict__ for each in caplog.records])
    for secret in (made["key"], rotated["key"], ADMIN_KEY, SECRET.reveal(), "hash"):
        assert secret not in everything
    assert file.stat().st_mode & 0o777 == 0o600


async def test_a_full_disk_costs_the_line_and_not_the_change(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, write = tmp_path / "audit.jsonl", os.write
    async with serving(MemoryAccountStore(), settings_of(audit_log=str(file))) as app:
        for room, name in ((None, "ci"), (20, "lost"), (None, "last")):
            monkeypatch.setattr(os, "write", lambda to, data, room=room: write(to, data[:room]))
            await admin(app, "POST", "", {"name": name}, 201)
        assert [json.loads(line)["name"] for line in file.read_text().splitlines()] == ["ci", "last"]

        def write_with_another(to: int, data: bytes) -> int:
            count = write(to, data[:20])
            with file.open("ab") as other:
                other.write(b"of another process")
            return count

        monkeypatch.setattr(os, "write", write_with_another)
        await admin(app, "POST", "", {"name": "lost-too"}, 201)
    assert file.read_text().endswith("of another process")
    assert caplog.text.count("lacks a line: No space left on device") == 2
