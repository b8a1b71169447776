"""What client keys have used: counted without a wait, and written to the account store soon after."""

import json
import logging
from typing import Any

import anyio
import pytest
from gateway.fakes import FakeClient, http_scope
from gateway.scripted import CHAT, NOON, TOKENS, Clock, scripted
from virtual_time import VIRTUAL_BACKENDS

from dragoman_server.accounts.key_usage import WRITE_INTERVAL_S, KeyUsage
from dragoman_server.accounts.stores.base import AccountStoreError, KeyUse, Operation
from dragoman_server.accounts.stores.memory import MemoryAccountStore
from dragoman_server.accounts.stores.operations import KeyUses
from dragoman_server.settings import Price
from dragoman_server.settings.secret import Secret

pytestmark = [pytest.mark.anyio, pytest.mark.backends(*VIRTUAL_BACKENDS)]

ADMIN = "admin-canary-0123456789-0123456789-wq7zk"


class SlowStore(MemoryAccountStore):
    """writes: when each began."""

    def __init__(self, seconds: float = 0.0) -> None:
        super().__init__()
        self.writes: list[float] = []
        self._seconds = seconds

    async def apply(self, operation: Operation[Any]) -> Any:
        if operation.is_write():
            self.writes.append(anyio.current_time())
            await anyio.sleep(self._seconds)
        return await super().apply(operation)


class BrokenStore(MemoryAccountStore):
    async def apply(self, operation: Operation[Any]) -> Any:
        raise AccountStoreError("the disk is full")


async def test_requests_are_added_up_and_written_once_in_a_while() -> None:
    store = SlowStore()
    usage = KeyUsage(store)
    async with usage.running():
        for _ in range(100):
            usage.count("red", 7, 0.25, NOON)
        await anyio.sleep(10 * WRITE_INTERVAL_S)
        assert store.writes == [WRITE_INTERVAL_S], "and nothing while there is nothing to write"
        usage.count("red", 1, 0.0, NOON - 5)
        assert await usage.totals(["red", "blue"]) == [KeyUse(101.0, 701.0, 25.0, NOON), KeyUse()]


async def test_the_last_of_it_is_written_at_the_end() -> None:
    store = MemoryAccountStore()
    usage = KeyUsage(store)
    async with usage.running():
        usage.count("red", 7, 0.0, NOON)
    assert await store.apply(KeyUses(["red"])) == [KeyUse(1.0, 7.0, 0.0, NOON)]


async def test_a_store_that_hangs_or_fails_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    for store in (SlowStore(3600), BrokenStore()):
        usage = KeyUsage(store)
        with anyio.fail_after(30):
            async with usage.running():
                usage.count("red", 7, 0.0, NOON)
                await anyio.sleep(10)
    assert await usage.totals(["red"]) is None
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 2
    assert "what a client key has used is not counted: the disk is full" in caplog.messages


async def test_the_operator_sees_what_each_key_has_used() -> None:
    prices = [Price(model="*", input=1_000_000, output=1_000_000)]  # a dollar for a token
    keys = {"red": {"budget": 100.0, "budget_period": "day"}, "blue": {"requests_per_minute": 1}}
    gateway = scripted(CHAT, keys=keys, prices=prices, clock=Clock(), admin_key=Secret(ADMIN))
    async with gateway.app.lifespan():
        assert (await gateway.request()).status == 200
        assert (await gateway.request(streams=True)).status == 200
        assert [(await gateway.request(key="blue")).status for _ in range(2)] == [200, 429]
        await gateway.call("/v1/models", {}, method="GET")
        client = FakeClient()
        scope = http_scope("/admin/keys", "GET", {"x-api-key": ADMIN})
        await gateway.app(scope, client.receive, client.send)
    red, blue = json.loads(client.body)["keys"]
    assert red.pop("last_used") is not None
    assert red == {
        "name": "red",
        "group": None,
        "source": "file",
        "state": "active",
        "expires": None,
        "previous_expires": None,
        "requests": 2,
        "tokens": 2 * TOKENS,
        "cost_usd": 2 * TOKENS,
        "models": [],
        "requests_per_minute": None,
        "tokens_per_minute": None,
        "budget": 100.0,
        "budget_period": "day",
        "budget_spent": 2 * TOKENS,
    }
    assert (blue["requests"], blue["tokens"], blue["budget"]) == (1, TOKENS, None)
