"""The admin routes: nothing without the key, no secret with it, and changes of accounts."""

# ruff: noqa: E501 -- the tables are read by row

import json
import logging
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import msgspec
import pytest
from gateway.fakes import FakeClient, FakeUpstreams, http_scope
from gateway.scripted import SECRET, chat_response, whole
from starlette.routing import BaseRoute, Route

from dragoman_server.accounts.stores.base import AccountStore
from dragoman_server.accounts.stores.memory import MemoryAccountStore
from dragoman_server.accounts.stores.operations import Change
from dragoman_server.app import Application, _routes
from dragoman_server.gateway import Gateway
from dragoman_server.http.admin.accounts import account_json
from dragoman_server.http.admin.app import admin_routes
from dragoman_server.http.auth import ADMIN_PATH, same_key
from dragoman_server.policy.error_actions import ErrorAction
from dragoman_server.policy.health import Health
from dragoman_server.settings import AccountSettings, ClientKey, ServerSettings, Settings, UpstreamSettings
from dragoman_server.settings.client_keys import hash_client_key
from dragoman_server.settings.secret import Secret

pytestmark = pytest.mark.anyio

ADMIN_KEY = "admin-canary-0123456789-0123456789-wq7zk"
CLIENT_KEY = "drk_canary-client"
SETTINGS = Settings(
    server=ServerSettings(secret=SECRET, admin_key=Secret(ADMIN_KEY)),
    upstreams=(
        UpstreamSettings(
            name="one",
            protocol="openai_chat",
            base_url="http://one.test/v1",
            api_key=Secret("sk-canary-0123456789-0123456789"),
            proxy=Secret("http://user:canary@proxy.test:3128"),
            headers={"x-team": Secret("canary-of-the-team")},
        ),
        UpstreamSettings(name="two", protocol="openai_chat", base_url="http://two.test/v1"),
    ),
    accounts=(
        AccountSettings(upstream="two", name="a", api_key=Secret("sk-canary-a-0123456789-0123456789")),
        AccountSettings(upstream="two", name="b", api_key=Secret("sk-canary-b-0123456789-0123456789")),
    ),
    client_keys=(ClientKey(name="red", hash=hash_client_key(CLIENT_KEY, SECRET)),),
)
OFF = Settings(
    server=ServerSettings(secret=SECRET), upstreams=SETTINGS.upstreams, client_keys=SETTINGS.client_keys
)


def app_of(settings: Settings = SETTINGS, store: AccountStore | None = None) -> Application:
    upstreams = FakeUpstreams(whole(chat_response({"content": "Hi"})))
    return Application(Gateway(settings, upstreams, accounts=store))


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


ADMIN = bearer(ADMIN_KEY)


async def call(
    app: Any, path: str, method: str = "GET", headers: dict[str, str] | None = None, **scope: Any
) -> FakeClient:
    client = FakeClient()
    await app(http_scope(path, method, headers, **scope), client.receive, client.send)
    assert client.finished
    return client


async def change(app: Any, account: str, name: str) -> Any:
    client = await call(app, f"/admin/accounts/{account}/{name}", "POST", ADMIN)
    assert client.status == 200, client.body
    return json.loads(client.body)


@pytest.mark.parametrize(
    "path", ["/admin/usage?key=ci&by=colour", "/admin/nothing?key=ci", "/metrics?key=ci"]
)
async def test_a_parameter_of_an_operator_chooses_no_protocol(
    path: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "dragoman.requests")
    path, _, query = path.partition("?")
    client = await call(app_of(), path, "GET", {"x-goog-api-key": "none"}, query_string=query.encode())
    assert sorted(client.error) == ["code", "message", "param", "type"]
    assert [record.dragoman["protocol"] for record in caplog.records] == ["admin"]  # type: ignore[attr-defined]


async def test_a_parameter_that_is_not_there_is_refused() -> None:
    for method, path in [*EXISTING, ("GET", "/admin/events")]:
        if method == "HEAD" or path.startswith(
            "/admin/explain"
        ):  # that has the parameters of a client's path
            continue
        for query in (b"colour=red", b"colour="):
            client = await call(app_of(), path, method, ADMIN, query_string=query)
            assert client.status == 400, path
            assert client.error["message"].startswith("unknown parameter 'colour'; there are "), path


# The gate.


def requests_to(routes: list[BaseRoute]) -> Iterator[tuple[str, str]]:
    for route in routes:
        assert isinstance(route, Route)
        for method in sorted(route.methods or ()):
            path = route.path.replace("{path:path}", "v1/messages").replace("{name}", "red")
            yield method, path.replace("{id:path}", "two/a").replace("{id}", "0" * 32)


async def no_reload() -> None:
    raise AssertionError("never called")


EXISTING = list(requests_to(admin_routes(Gateway(SETTINGS), no_reload)))
# Unknown paths need the key, too.
ELSEWHERE = [
    ("GET", "/admin"),
    ("GET", "/admin/"),
    ("GET", "/admin/nothing"),
    ("GET", "/admin/events"),
    ("DELETE", "/admin/accounts"),
    ("OPTIONS", "/admin/accounts"),
    ("POST", "/admin/accounts/two/a/delete"),
    ("POST", "/admin/accounts/no/such/enable"),
    ("GET", "/admin/../v1/models"),
]


def test_there_are_routes_to_try() -> None:
    assert ("GET", "/admin/accounts") in EXISTING
    assert len({path for _, path in EXISTING}) >= 16


WRONG_KEYS: list[dict[str, str]] = [
    {},
    bearer("admin-canary-wrong"),
    bearer(ADMIN_KEY + "x"),
    bearer(ADMIN_KEY[:-1]),
    bearer(""),
    bearer(CLIENT_KEY),
    {"x-api-key": CLIENT_KEY},
    {**ADMIN, "x-api-key": CLIENT_KEY},  # x-api-key counts where both are there
    {"authorization": f"Basic {ADMIN_KEY}"},
    {"cookie": f"admin_key={ADMIN_KEY}"},
    bearer(SECRET.reveal()),
    {"x-forwarded-for": "127.0.0.1"},
]


@pytest.mark.promise("S16")
async def test_every_path_needs_the_admin_key() -> None:
    for headers in WRONG_KEYS:
        for method, path in EXISTING + ELSEWHERE:
            store = MemoryAccountStore()
            await store.apply(Change("two/b", lambda health: health.after_disabling("canary")))
            client = await call(app_of(store=store), path, method, headers)
            assert client.status == 401, (headers, path)
            assert client.headers["www-authenticate"] == "Bearer", (headers, path)
            assert b"two/" not in client.body, (headers, path)
            assert "canary" not in str(client.messages), (headers, path)
            assert dict(store.health()) == {"two/b": Health(disabled="canary")}, (headers, path)


@pytest.mark.promise("S16")
@pytest.mark.parametrize(
    "headers", [{}, ADMIN, bearer(CLIENT_KEY), bearer("")], ids=["none", "admin", "client", "empty"]
)
async def test_without_an_admin_key_there_is_nothing(headers: dict[str, str]) -> None:
    for method, path in EXISTING + ELSEWHERE:
        client = await call(app_of(OFF), path, method, headers)
        assert client.status == 404
        assert method == "HEAD" or b"/admin needs server.admin_key" in client.body
        assert not [name for name in client.headers if name.startswith(("access-control", "www-"))]


OPEN = ServerSettings()
PAGES = ServerSettings(cors_origins=("loopback", "https://app.test"))
# Settings, headers and address of a request to a gateway without client keys, and the status.
LOOKS: list[tuple[ServerSettings, dict[str, str], str, int]] = [
    (OPEN, {}, "127.0.0.1", 200),
    (OPEN, {}, "::1", 200),
    (OPEN, {}, "::ffff:127.0.0.1", 200),
    (OPEN, {"host": "localhost:8080", "origin": "http://localhost:8080", "sec-fetch-site": "same-origin"}, "127.0.0.1", 200),
    (OPEN, {"sec-fetch-site": "none"}, "127.0.0.1", 200),
    (OPEN, bearer("any"), "127.0.0.1", 200),
    # Pages of others.
    (OPEN, {"host": "rebound.test"}, "127.0.0.1", 421),
    (OPEN, {"origin": "http://evil.test"}, "127.0.0.1", 403),
    (OPEN, {"origin": "null"}, "127.0.0.1", 403),
    (OPEN, {"origin": "http://127.0.0.1:3000"}, "127.0.0.1", 403),
    (OPEN, {"origin": "https://127.0.0.1:8080"}, "127.0.0.1", 403),
    (OPEN, {"sec-fetch-site": "cross-site"}, "127.0.0.1", 403),
    (OPEN, {"sec-fetch-site": "same-site"}, "127.0.0.1", 403),
    (PAGES, {"origin": "https://app.test"}, "127.0.0.1", 403),
    # Others, by themselves or through a proxy.
    (OPEN, {}, "192.0.2.7", 404),
    (OPEN, {}, "", 404),
    *[(OPEN, {name: "192.0.2.7"}, "127.0.0.1", 404) for name in ("forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-real-ip")],
    (ServerSettings(host="0.0.0.0"), {}, "127.0.0.1", 404),
    (ServerSettings(allowed_hosts=("gateway.test",)), {}, "127.0.0.1", 404),
    (ServerSettings(trusted_proxies=("127.0.0.1",)), {}, "127.0.0.1", 404),
    (ServerSettings(allow_public_without_keys=True), {}, "127.0.0.1", 404),
    (ServerSettings(admin_key=Secret(ADMIN_KEY)), {}, "127.0.0.1", 401),
]  # fmt: skip


@pytest.mark.promise("S16")
async def test_without_any_key_this_machine_may_look_and_no_other_and_no_page() -> None:
    for server, headers, address, status in LOOKS:
        app = app_of(Settings(server=server, upstreams=SETTINGS.upstreams))
        where = {"client": (address, 50000) if address else None}
        client = await call(app, "/admin/accounts", headers=headers, **where)
        assert client.status == status, (server, headers, address, client.body)
        assert (b"one/default" in client.body) is (status == 200)
        # The page comes without its reader's key, where there is one.
        page = await call(app, "/ui/", headers=headers, **where)
        assert page.status == (200 if server.admin_key else status), (server, headers, address, page.body)
        assert not [name for name in client.headers if name.startswith("access-control")]


@pytest.mark.promise("S16")
async def test_without_any_key_nothing_can_be_changed_and_there_are_no_metrics() -> None:
    for method, path in [*EXISTING, ("GET", "/metrics")]:
        store = MemoryAccountStore()
        app = app_of(Settings(upstreams=SETTINGS.upstreams, accounts=SETTINGS.accounts), store)
        async with app.lifespan():
            client = await call(app, path, method)
        looks = (method in ("GET", "HEAD") and path != "/metrics") or "/explain/" in path
        # There is no key or recording that a path could name.
        names = "/recordings" in path or path == "/admin/keys/red"
        # Nothing but a POST is explained at the path of a protocol.
        names = names or ("/explain/" in path and method != "POST")
        assert client.status == (200 if looks and not names else 404), (method, path)
        assert looks != (b" needs server." in client.body and b"server.record" not in client.body)
        assert not store.health()


@pytest.mark.parametrize("headers", [ADMIN, {"x-api-key": ADMIN_KEY}], ids=["bearer", "x-api-key"])
async def test_the_admin_key_opens_it(headers: dict[str, str]) -> None:
    client = await call(app_of(), "/admin/accounts", headers=headers)
    assert (client.status, client.headers["content-type"]) == (200, "application/json")
    assert client.headers["cache-control"] == "no-store"


@pytest.mark.promise("S16")
def test_nothing_for_clients_is_below_admin() -> None:
    paths = [
        route.path for route in _routes(Gateway(SETTINGS), lambda: (True, {})) if isinstance(route, Route)
    ]
    assert len(paths) > 10
    assert not [path for path in paths if path.startswith(ADMIN_PATH)]


COMPARED: list[tuple[str, str, bool]] = [
    ("k", "k", True),
    ("k", "kk", False),
    ("", "k", False),
    ("k\xe4", "k\xe4", True),
    ("\udcff", "k", False),
]


def test_keys_are_compared_whole() -> None:
    for one, other, same in COMPARED:
        assert same_key(one, Secret(other)) is same, (one, other)


# The list of accounts.


ACCOUNT = AccountSettings(upstream="two", name="a")
NOW = 1_795_262_400.0  # 2026-11-21T12:00:00Z
BASE = {
    "id": "two/a",
    "upstream": "two",
    "name": "a",
    "state": "ready",
    "cause": None,
    "cools_until": None,
    "consecutive_cooldowns": 0,
    "recent_failures": 0,
    "remaining": None,
    "last_used": None,
}


SHOWN: list[tuple[Health, dict[str, Any]]] = [
    (Health(), {}),
    (Health(last_used=NOW - 0.5), {"last_used": "2026-11-21T11:59:59.500Z"}),
    (Health(remaining=0.25, failures=(NOW,)), {"remaining": 0.25, "recent_failures": 1}),
    (Health(cooldown_until=NOW + 30, cause="429", consecutive_cooldowns=2), {"state": "cooling", "cause": "429", "cools_until": "2026-11-21T12:00:30.000Z", "consecutive_cooldowns": 2}),
    (
        Health(cooldown_until=NOW, cause="429", consecutive_cooldowns=1),
        {"consecutive_cooldowns": 1},
    ),  # its cooldown has ended
    (Health(disabled="401"), {"state": "disabled", "cause": "401"}),
    (Health(disabled="401", cooldown_until=NOW + 1, cause="429"), {"state": "disabled", "cause": "401", "cools_until": "2026-11-21T12:00:01.000Z"}),
    (Health(cooldown_until=1e300, cause="429"), {"state": "cooling", "cause": "429", "cools_until": "9999-12-31T23:59:59.000Z"}),
]  # fmt: skip


def test_an_account_in_json() -> None:
    for health, reported in SHOWN:
        assert msgspec.to_builtins(account_json(ACCOUNT, health, NOW)) == BASE | reported, health


# Changes.


CHANGES: list[tuple[ErrorAction, str, str]] = [
    (ErrorAction.COOL_DOWN, "enable", "cooling"),  # it is cooling down, and goes on
    (ErrorAction.COOL_DOWN, "reset", "ready"),
    (ErrorAction.COOL_DOWN, "disable", "disabled"),
    (ErrorAction.DISABLE, "enable", "ready"),
    (ErrorAction.DISABLE, "reset", "ready"),
    (ErrorAction.DISABLE, "disable", "disabled"),
]


async def test_changes_of_an_account_that_failed() -> None:
    for action, name, state in CHANGES:
        store = MemoryAccountStore()
        await store.apply(
            Change(
                "one/default",
                partial(Health.after_failure, action=action, cause="why", now=time.time(), retry_after=60.0),
            )
        )
        assert (await change(app_of(store=store), "one/default", name))["state"] == state, (action, name)


async def test_a_method_that_is_not_allowed_where_two_routes_share_a_path() -> None:
    client = await call(app_of(), "/admin/keys", "PUT", ADMIN)
    assert (client.status, client.headers["allow"]) == (405, "GET, HEAD, POST")


UNKNOWN_ACCOUNTS: list[str] = ["two/c", "two", "default", "one/default/x", "TWO/a"]


async def test_an_unknown_account() -> None:
    for id in UNKNOWN_ACCOUNTS:
        store = MemoryAccountStore()
        client = await call(app_of(store=store), f"/admin/accounts/{id}/disable", "POST", ADMIN)
        assert client.status == 404, id
        assert "there is no account" in client.error["message"], id
        assert not store.health(), id


async def test_the_log_names_the_change_and_no_key(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        await change(app_of(), "two/a", "disable")
        await call(app_of(), "/admin/accounts", headers=bearer("canary-wrong"))
    records = [each.__dict__["dragoman"] for each in caplog.records if each.name == "dragoman.requests"]
    found = [(each["method"], each["path"], each["status"]) for each in records]
    assert found == [("POST", "/admin/accounts/two/a/disable", 200), ("GET", "/admin/accounts", 401)]
    assert {each["client_address"] for each in records} == {"127.0.0.1"}
    assert "canary" not in str([each.__dict__ for each in caplog.records])
