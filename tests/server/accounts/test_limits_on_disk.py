"""Limits and accounts in a file: counts and changes outlive the gateway, and two gateways share them.

In real time, because the store has a thread; the wall clock of the limits stands still.
"""

import json
from pathlib import Path

import pytest
from gateway.fakes import FakeClient, http_scope
from gateway.scripted import CHAT, Clock, scripted
from virtual_time import REAL_BACKENDS

from dragoman_server.accounts.stores.sqlite import SQLiteAccountStore
from dragoman_server.settings import Price
from dragoman_server.settings.secret import Secret

pytestmark = [pytest.mark.anyio, pytest.mark.backends(*REAL_BACKENDS)]

# A response of the scripts is 3 tokens in and 4 out: a dollar.
PRICES = (Price(model="*", input=100_000.0, output=175_000.0),)


async def statuses(file: Path, limits: dict[str, object], clock: Clock, count: int) -> list[int | None]:
    """Return the statuses of one gateway from its start to its end."""
    store = SQLiteAccountStore(str(file))
    gateway = scripted(CHAT, keys={"red": limits}, prices=PRICES, store=store, clock=clock)
    async with gateway.app.lifespan():
        return [(await gateway.request()).status for _ in range(count)]


@pytest.mark.parametrize(
    ("limits", "later", "first", "second"),
    [
        ({"budget": 3.0}, 0, [200, 200], [200, 429]),
        ({"budget": 3.0}, 10 * 86_400, [200, 200], [200, 200]),  # December
        ({"budget": 3.0, "budget_period": "total"}, 10 * 86_400, [200, 200], [200, 429]),
        ({"requests_per_minute": 3}, 0, [200, 200], [200, 429]),
        ({"tokens_per_minute": 7}, 0, [200, 200], [429, 429]),
    ],
)
async def test_spending_outlives_the_gateway(
    limits: dict[str, object], later: float, first: list[int], second: list[int], tmp_path: Path
) -> None:
    clock, file = Clock(), tmp_path / "accounts.db"
    assert await statuses(file, limits, clock, 2) == first
    clock.now += later
    assert await statuses(file, limits, clock, 2) == second


async def test_two_gateways_spend_one_budget(tmp_path: Path) -> None:
    clock, file = Clock(), str(tmp_path / "accounts.db")
    one, other = (
        scripted(
            CHAT, keys={"red": {"budget": 2.0}}, prices=PRICES, store=SQLiteAccountStore(file), clock=clock
        )
        for _ in range(2)
    )
    async with one.app.lifespan(), other.app.lifespan():
        assert [(await each.request()).status for each in (one, other, one, other)] == [200, 200, 429, 429]


async def test_changes_of_the_operator_outlive_the_gateway(tmp_path: Path) -> None:
    file, admin = str(tmp_path / "accounts.db"), "admin-0123456789-0123456789-0123456789"
    found = []
    for method, path in (
        ("POST", "/admin/accounts/up/default/disable"),
        ("GET", "/admin/accounts"),
        ("POST", "/admin/accounts/up/default/enable"),
        ("GET", "/admin/accounts"),
    ):
        gateway = scripted(CHAT, keys={"red": {}}, store=SQLiteAccountStore(file), admin_key=Secret(admin))
        client = FakeClient()
        async with gateway.app.lifespan():
            await gateway.app(http_scope(path, method, {"x-api-key": admin}), client.receive, client.send)
        assert client.status == 200
        response = json.loads(client.body)
        account = response["accounts"][0] if "accounts" in response else response
        found.append((account["id"], account["state"]))
    assert found == [("up/default", state) for state in ("disabled", "disabled", "ready", "ready")]
