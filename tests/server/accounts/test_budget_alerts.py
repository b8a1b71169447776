"""Alerts when a budget is nearly spent: the webhook, once for each threshold and period over all processes."""

import json
import logging
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Any

import anyio
import pytest
from gateway.fakes import FakeUpstreams, Script, Sleep
from gateway.scripted import CHAT, NOON, WHOLE_RESPONSES, Clock, ScriptedGateway, scripted, whole
from virtual_time import VIRTUAL_BACKENDS

from dragoman_server.accounts.budget_alerts import (
    _MAX_SENDING,
    CLAIM_S,
    PAUSES_S,
    TRY_S,
    BudgetAlerts,
    BudgetUse,
)
from dragoman_server.accounts.stores.base import AccountStoreError, Operation
from dragoman_server.accounts.stores.memory import MemoryAccountStore
from dragoman_server.accounts.stores.operations import Add
from dragoman_server.settings import ClientKey, Group, Price
from dragoman_server.settings.secret import Secret

pytestmark = [pytest.mark.anyio, pytest.mark.backends(*VIRTUAL_BACKENDS)]

HOOK = Secret("https://hooks.test/canary-0123456789")
# A response is 3 tokens in and 4 out: a dollar.
PRICES = (Price(model="up/*", input=100_000.0, output=175_000.0),)
OK = whole({"ok": True})


class Hook(FakeUpstreams):
    """Upstreams, and a webhook with its own responses."""

    def __init__(self, *replies: Script) -> None:
        super().__init__(WHOLE_RESPONSES[CHAT])
        self._hook = FakeUpstreams(*replies)

    def script_for(self, url: str, headers: Mapping[str, str], content: bytes) -> Script | None:
        if url == HOOK.reveal():
            return self._hook.script_for(url, headers, content)
        return super().script_for(url, headers, content)

    @property
    def got(self) -> list[dict[str, Any]]:
        return [json.loads(each.content) for each in self.sent if each.url == HOOK.reveal()]


async def test_each_threshold_is_sent_once_over_all_gateways_and_again_in_the_next_period() -> None:
    store, clock = MemoryAccountStore(), Clock()
    group = {"team": {"budget": 5.0, "budget_period": "day"}}
    keys: dict[str, Any] = {"red": {"group": "team"}, "blue": {"group": "team", "budget": 1000.0}}

    def gateway() -> ScriptedGateway:
        return scripted(
            CHAT, keys=keys, groups=group, prices=PRICES, store=store, clock=clock, budget_webhook=HOOK
        )

    one, other = gateway(), gateway()
    async with AsyncExitStack() as stack:
        for each in (one, other):
            await stack.enter_async_context(each.app.lifespan())

        async def requests(count: int) -> list[dict[str, Any]]:
            for number in range(count):
                assert (await (one, other)[number % 2].request(key=("red", "blue")[number % 2])).status == 200
            await anyio.sleep(1)
            sent = [*one.sent, *other.sent]
            return [json.loads(each.content) for each in sent if each.url == HOOK.reveal()]

        assert await requests(3) == []
        first = await requests(1)
        assert first == [
            {
                "text": "the group team has spent 80 % of its budget: 4 of 5 US dollars; it starts again at "
                "2026-11-22T00:00:00Z",
                "event": "budget_used",
                "holder": "group",
                "name": "team",
                "threshold_percent": 80,
                "spent_usd": 4.0,
                "budget_usd": 5.0,
                "budget_period": "day",
                "ends": "2026-11-22T00:00:00Z",
                "time": "2026-11-21T12:00:00Z",
            }
        ]
        second = await requests(1)
        assert sorted(each["threshold_percent"] for each in second) == [80, 100]
        clock.now += 86_400
        assert len(await requests(5)) == 4


async def alerts_of(
    hook: FakeUpstreams, percents: list[float], store: MemoryAccountStore | None = None
) -> None:
    """Note these shares of a budget of 100 dollars."""
    alerts = BudgetAlerts(store or MemoryAccountStore(), hook)
    key = ClientKey(name="red", hash="", budget=100.0, budget_period="total")
    async with alerts.running():
        for percent in percents:
            alerts.note(BudgetUse(key, ("budget:red:total", None), percent), HOOK, NOON)
            await anyio.sleep(sum(PAUSES_S) + 5 * TRY_S)


THRESHOLDS: list[tuple[list[float], list[int]]] = [
    ([79.9], []),
    ([80.0], [80]),
    ([99.9], [80]),
    ([100.0], [100]),  # 80 is not sent after it
    ([85.0, 86.0, 99.0, 100.0, 250.0], [80, 100]),
    ([150.0, 90.0], [100]),  # a request that was counted earlier ends later
]


async def test_the_thresholds() -> None:
    for percents, sent in THRESHOLDS:
        hook = Hook(OK)
        await alerts_of(hook, percents)
        assert [each["threshold_percent"] for each in hook.got] == sent, percents


async def test_a_message_that_fails_is_sent_again_a_few_times_and_a_redirect_is_not_followed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    moved = Script([b""], status=302, headers=[("location", "http://169.254.169.254/")])
    hook = Hook(whole({}, 500), Script([Sleep(3600)]), moved, OK)
    await alerts_of(hook, [80.0])
    assert len(hook.got) == 4
    assert {each.url for each in hook.sent} == {HOOK.reveal()}
    assert len({json.dumps(each) for each in hook.got}) == 1
    begun = [each.at - hook.sent[0].at for each in hook.sent]
    pauses = [PAUSES_S[0], PAUSES_S[0] + TRY_S + PAUSES_S[1], sum(PAUSES_S) + TRY_S]
    assert begun[1:] == pytest.approx(pauses, abs=0.1)
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
    hook = Hook(whole({}, 500))
    await alerts_of(hook, [80.0])
    assert len(hook.got) == 1 + len(PAUSES_S)
    assert "the webhook of budgets got no message after 4 tries: it returned status 500" in caplog.messages
    assert "canary" not in caplog.text


async def test_a_webhook_that_does_not_respond_holds_a_bounded_number_of_messages() -> None:
    hook = Hook(Script([Sleep(3600)]))
    alerts = BudgetAlerts(MemoryAccountStore(), hook)
    async with alerts.running():
        for number in range(_MAX_SENDING + 5):
            group = Group(name=f"g{number}", budget=1.0)
            alerts.note(BudgetUse(group, (f"budget:{number}", None), 1.0), HOOK, NOON)
        await anyio.sleep(TRY_S / 2)
        assert len(hook.sent) == _MAX_SENDING


async def test_a_store_that_fails_delays_an_alert_to_the_next_request() -> None:
    class Broken(MemoryAccountStore):
        broken = True

        async def apply(self, operation: Operation[Any]) -> Any:
            if self.broken and isinstance(operation, Add):
                self.broken = False
                raise AccountStoreError("no route to the store")
            return await super().apply(operation)

    hook = Hook(OK)
    await alerts_of(hook, [80.0], Broken())
    assert hook.got == []
    hook = Hook(OK)
    await alerts_of(hook, [80.0, 81.0], Broken())
    assert [each["spent_usd"] for each in hook.got] == [81.0]


async def test_a_process_that_is_killed_while_it_sends_leaves_the_message_to_another() -> None:
    store = MemoryAccountStore()
    silent, hook = Hook(Script([Sleep(3600)])), Hook(OK)
    key = ClientKey(name="red", hash="", budget=100.0, budget_period="total")
    killed, other, started = (BudgetAlerts(store, each) for each in (silent, hook, hook))

    def note(alerts: BudgetAlerts, later: float) -> None:
        alerts.note(BudgetUse(key, ("budget:red:total", None), 90.0), HOOK, NOON + later)

    async with other.running(), started.running():
        async with killed.running():
            note(killed, 0.0)
            await anyio.sleep(1)
        for alerts, later, sent in (
            (other, 1.0, 0),
            (other, CLAIM_S - 1, 0),
            (other, CLAIM_S, 1),
            (started, 3 * CLAIM_S, 1),
        ):
            note(alerts, later)
            await anyio.sleep(1)
            assert len(hook.got) == sent, later
    assert len(silent.got) == 1


async def test_a_raised_budget_has_its_own_thresholds() -> None:
    hook, store = Hook(OK), MemoryAccountStore()
    alerts = BudgetAlerts(store, hook)
    async with alerts.running():
        for budget in (100.0, 100.0, 110.0, 200.0):
            group = Group(name="team", budget=budget, budget_period="total")
            alerts.note(BudgetUse(group, ("budget:group:team:total", None), 90.0), HOOK, NOON)
            await anyio.sleep(1)
    assert [each["budget_usd"] for each in hook.got] == [100.0, 110.0]
