"""The balances of accounts: when they are requested, how upstreams report them, and which account is next by them."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import anyio
import pytest
from gateway.fakes import FakeUpstreams, Script, Sleep, account_of, call
from gateway.scripted import chat_response, whole
from virtual_time import VIRTUAL_BACKENDS

from dragoman_server.accounts.balances import REFRESH_INTERVAL_S
from dragoman_server.app import Application, create_app
from dragoman_server.settings import AccountSettings, Settings, UpstreamSettings
from dragoman_server.settings.secret import Secret
from dragoman_server.upstream.errors import UpstreamUnreachable

pytestmark = [pytest.mark.anyio, pytest.mark.backends(*VIRTUAL_BACKENDS)]

DEEPSEEK = ("https://api.deepseek.com/v1", "https://api.deepseek.com/user/balance")
OPENROUTER = ("https://openrouter.ai/api/v1", "https://openrouter.ai/api/v1/key")


class Upstream(FakeUpstreams):
    """Reports the balance of each key, and responds to every request."""

    def __init__(self, balances: Mapping[str, Script]) -> None:
        super().__init__()
        self._balances = balances

    def script_for(self, url: str, headers: Mapping[str, str], content: bytes) -> Script:
        if content:
            return whole(chat_response({"role": "assistant", "content": "Hi"}))
        return self._balances[account_of(headers)]

    @property
    def used(self) -> list[str]:
        """The accounts of the requests of clients."""
        return [sent.account for sent in self.sent if sent.content]

    @property
    def requests(self) -> list[tuple[str, str]]:
        """Address and account of each request for a balance."""
        return [(sent.url, sent.account) for sent in self.sent if not sent.content]


@dataclass
class Running:
    app: Application
    upstream: Upstream

    async def call(self, times: int = 1) -> str:
        """Return the keys that so many requests went out with."""
        before = len(self.upstream.used)
        for _ in range(times):
            body = {"model": "up/m", "messages": [{"role": "user", "content": "Hello"}]}
            assert (await call(self.app, "/v1/chat/completions", body)).status == 200
            await anyio.sleep(1)  # the balance requested meanwhile has arrived
        return "".join(self.upstream.used[before:])


@asynccontextmanager
async def running(base_url: str, balances: Mapping[str, Script], **more: Any) -> AsyncIterator[Running]:
    settings = {"selection": "most_remaining", "sticky": False, **more}
    upstream = UpstreamSettings(name="up", protocol="openai_chat", base_url=base_url, **settings)
    accounts = tuple(AccountSettings(upstream="up", name=key, api_key=Secret(key)) for key in balances)
    client = Upstream(balances)
    app = create_app(Settings(upstreams=(upstream,), accounts=accounts), client=client)
    async with app.lifespan():
        yield Running(app, client)


def deepseek(amount: str, currency: str = "CNY") -> Any:
    return {
        "currency": currency,
        "total_balance": amount,
        "granted_balance": "0",
        "topped_up_balance": amount,
    }


def balance(*infos: Any) -> Script:
    return whole({"is_available": True, "balance_infos": list(infos)})


def key(left: float | None) -> Script:
    return whole({"data": {"label": "k", "limit": left and 100, "limit_remaining": left, "usage": 1}})


REPORTED = [
    (DEEPSEEK, {"a": balance(deepseek("5.00")), "b": balance(deepseek("110.00"))}, "b"),
    # In dollars, where it has several currencies.
    (DEEPSEEK, {"a": balance(deepseek("900"), deepseek("1", "USD")), "b": balance(deepseek("2", "USD"))}, "b"),
    (OPENROUTER, {"a": key(0.5), "b": key(74.5)}, "b"),
    (OPENROUTER, {"a": key(0.5), "b": key(-0.1)}, "a"),
    # A key without a limit, and one without a usable balance, count like the richest.
    (OPENROUTER, {"a": key(0.5), "b": key(74.5), "c": key(None)}, "bc"),
    (OPENROUTER, {"a": key(0.5), "b": key(74.5), "c": whole({"error": {}}, 401)}, "bc"),
    (OPENROUTER, {"a": key(0.5), "b": key(74.5), "c": whole({"data": {"limit_remaining": "NaN"}})}, "bc"),
    (OPENROUTER, {"a": key(0.5), "b": key(74.5), "c": Script([b"<html>"])}, "bc"),
    (OPENROUTER, {"a": key(0.5), "b": key(74.5), "c": Script(connect=[UpstreamUnreachable("no")])}, "bc"),
]  # fmt: skip


@pytest.mark.parametrize(("host", "balances", "richest"), REPORTED)
@pytest.mark.each_choice
async def test_the_account_with_the_most_money_is_next(
    host: tuple[str, str], balances: dict[str, Script], richest: str
) -> None:
    async with running(host[0], balances) as it:
        await it.call()  # of which nothing was known
        assert set(await it.call(4)) == set(richest)
        assert it.upstream.requests == [(host[1], name) for name in balances]


async def test_no_request_waits_and_the_balance_is_requested_again_in_time() -> None:
    slow = {"a": key(1), "b": Script(key(2).body, connect=[Sleep(20)])}
    async with running(OPENROUTER[0], slow) as it:
        begun = anyio.current_time()
        await it.call()
        assert anyio.current_time() - begun == pytest.approx(1)
        await anyio.sleep_until(begun + REFRESH_INTERVAL_S - 1)
        await it.call()
        assert len(it.upstream.requests) == 2
        await anyio.sleep_until(begun + REFRESH_INTERVAL_S)
        await it.call()
        assert len(it.upstream.requests) == 4


@pytest.mark.parametrize(
    ("base_url", "accounts", "more"),
    [
        (OPENROUTER[0], "ab", {"selection": "weighted"}),
        (OPENROUTER[0], "a", {}),
        ("http://127.0.0.1:9000/v1", "ab", {}),
    ],
)
async def test_no_balance_is_requested_that_decides_nothing(
    base_url: str, accounts: str, more: dict[str, Any]
) -> None:
    async with running(base_url, dict.fromkeys(accounts, key(1)), **more) as it:
        await it.call(2)
        assert it.upstream.requests == []
