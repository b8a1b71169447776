"""Requests with the key and the proxy of an account, and the timeouts of its upstream."""

from typing import Any, cast

import pytest

from dragoman import UPSTREAMS
from dragoman_server.hosts import UpstreamCall
from dragoman_server.settings import AccountSettings, UpstreamSettings
from dragoman_server.settings.secret import Secret
from dragoman_server.upstream.account_request import account_request
from dragoman_server.upstream.transport import UpstreamTimeouts

pytestmark = pytest.mark.anyio

URL = "http://127.0.0.1:9/v1/chat/completions"


class Opened:
    """A sender that only records what it is called with."""

    call: UpstreamCall
    way: dict[str, Any]

    def open(self, call: UpstreamCall, **way: Any) -> Any:
        self.call, self.way = call, way


async def opened(account: AccountSettings, **upstream: Any) -> Opened:
    base_url = "http://127.0.0.1:9/v1"
    settings = UpstreamSettings(name="up", protocol="openai_chat", base_url=base_url, **upstream)
    sender = Opened()
    headers = [("accept", "application/json"), ("authorization", "of a setting")]
    call = UpstreamCall("POST", URL, headers, b"{}")
    await account_request(cast("Any", sender), settings, UPSTREAMS["openai_chat"], account, call)
    return sender


async def test_the_key_of_the_account_replaces_a_header_of_the_settings() -> None:
    keyless = AccountSettings(upstream="up", name="a")
    with_key = AccountSettings(upstream="up", name="a", api_key=Secret("k"))
    found = (await opened(keyless)).call.headers
    assert found == [("accept", "application/json"), ("authorization", "of a setting")]
    found = (await opened(with_key)).call.headers
    assert found == [("accept", "application/json"), ("authorization", "Bearer k")]


async def test_the_timeouts_are_the_upstreams() -> None:
    account = AccountSettings(upstream="up", name="a")
    sender = await opened(account, connect_s=1.0, read_s=2.0, write_s=3.0, pool_s=4.0)
    assert sender.way["timeouts"] == UpstreamTimeouts(connect_s=1.0, read_s=2.0, write_s=3.0, pool_s=4.0)


async def test_the_proxy_of_the_account_comes_before_that_of_the_upstream() -> None:
    account = AccountSettings(upstream="up", name="a")
    proxied = AccountSettings(upstream="up", name="a", proxy=Secret("http://a:1"))
    assert (await opened(account)).way["proxy"] is None
    assert (await opened(account, proxy=Secret("http://u:1"))).way["proxy"] == "http://u:1"
    assert (await opened(proxied, proxy=Secret("http://u:1"))).way["proxy"] == "http://a:1"
