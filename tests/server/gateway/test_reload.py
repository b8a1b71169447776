"""A reload in the application: the next request has the new configuration, and open ones keep theirs."""

import json
import logging
from typing import Any

import anyio
import pytest
from gateway.fakes import FakeClient, FakeUpstreams, Script, Sleep, call, http_scope
from gateway.scripted import CHAT, SECRET, chat_response, chunk, whole
from msgspec.structs import replace
from virtual_time import VIRTUAL_BACKENDS

from dragoman_server.accounts.stores.operations import Change
from dragoman_server.app import Application, create_app
from dragoman_server.config.reload import ReloadResult
from dragoman_server.policy.health import Health
from dragoman_server.proxying.account_pool import proxy_id
from dragoman_server.settings import AccountSettings, ClientKey, ServerSettings, Settings, UpstreamSettings
from dragoman_server.settings.client_keys import hash_client_key
from dragoman_server.settings.secret import Secret

pytestmark = [pytest.mark.anyio, pytest.mark.backends(*VIRTUAL_BACKENDS)]

ADMIN = "admin-canary-0123456789-0123456789-wq7zk"
WHOLE = whole(chat_response({"content": "Hello"}))
# One second to its content, and one more to its end.
SLOW = Script(
    [
        Sleep(1),
        f"data: {json.dumps(chunk({'role': 'assistant', 'content': 'Hello'}))}\n\n".encode(),
        Sleep(1),
        f"data: {json.dumps(chunk({}, 'stop'))}\n\ndata: [DONE]\n\n".encode(),
    ],
    headers=[("content-type", "text/event-stream")],
)


def settings_of(host: str = "one", *, keys: tuple[ClientKey, ...] = (), **server: Any) -> Settings:
    return Settings(
        server=ServerSettings(**{"secret": SECRET, "admin_key": Secret(ADMIN), **server}),
        upstreams=(
            UpstreamSettings(name="up", protocol=CHAT, base_url=f"http://{host}.test/v1", model_list=False),
        ),
        client_keys=keys,
    )


def key_of(name: str) -> ClientKey:
    return ClientKey(name=name, hash=hash_client_key(f"drk_{name}", SECRET))


def body_of(*, streams: bool = False) -> bytes:
    message = {"role": "user", "content": "Hi"}
    return json.dumps({"model": "up/m", "messages": [message], "stream": streams}).encode()


async def chat(app: Application, key: str | None = None, *, streams: bool = False) -> FakeClient:
    headers = {} if key is None else {"x-api-key": f"drk_{key}"}
    return await call(app, "/v1/chat/completions", body_of(streams=streams), headers=headers)


async def admin(app: Application, path: str, method: str = "GET") -> FakeClient:
    return await call(app, f"/admin/{path}", b"", method, {"authorization": f"Bearer {ADMIN}"})


async def test_an_open_stream_ends_with_the_configuration_that_it_began_with() -> None:
    upstreams = FakeUpstreams(SLOW, WHOLE)
    app = create_app(settings_of("one", keys=(key_of("red"),)), client=upstreams)
    client = FakeClient(body_of(streams=True))
    scope = http_scope("/v1/chat/completions", headers={"x-api-key": "drk_red"})
    async with app.lifespan(), anyio.create_task_group() as tasks:
        tasks.start_soon(app, scope, client.receive, client.send)
        await anyio.sleep(1.5)
        await app.reload(settings_of("two", keys=(key_of("blue"),)))
        assert (await chat(app, "red")).status == 401
        assert (await chat(app, "blue")).status == 200
        assert upstreams.kept is None, "the old upstream is still used"
        await anyio.sleep(1)
        assert client.body.endswith(b"data: [DONE]\n\n")
        assert upstreams.kept == ({"http://two.test/v1"}, set())
    assert [sent.url.split("/")[2] for sent in upstreams.sent] == ["one.test", "two.test"]


async def test_settings_that_cannot_be_used_change_nothing() -> None:
    upstreams = FakeUpstreams(WHOLE)
    app = create_app(settings_of(keys=(key_of("red"),)), client=upstreams)
    async with app.lifespan():
        with pytest.raises(ValueError, match=r"client keys need server\.secret"):
            await app.reload(settings_of("two", keys=(key_of("red"),), secret=None))
        assert (await chat(app, "red")).status == 200
    assert upstreams.sent[0].url.startswith("http://one.test")


async def test_what_is_known_about_accounts_stays() -> None:
    accounts = tuple(AccountSettings(upstream="up", name=name) for name in ("a", "b"))
    settings = replace(settings_of(), accounts=accounts)
    app = create_app(settings, client=FakeUpstreams(WHOLE))
    async with app.lifespan():
        await admin(app, "accounts/up/a/disable", "POST")
        await app.reload(replace(settings, accounts=accounts[:1]))
        (account,) = json.loads((await admin(app, "accounts")).body)["accounts"]
        assert account["state"] == "disabled"
        assert (await chat(app)).status == 503
        await app.reload(settings)
        assert (await chat(app)).status == 200, "by the other one"


async def test_lists_of_models_are_fetched_again_only_for_upstreams_that_changed() -> None:
    models = whole({"object": "list", "data": [{"id": "m1", "object": "model"}]})
    listed = replace(settings_of().upstreams[0], model_list=True)
    other = replace(listed, name="other", base_url="http://other.test/v1")
    settings = replace(settings_of(), upstreams=(listed, other))
    upstreams = FakeUpstreams(models)
    app = create_app(settings, client=upstreams)
    async with app.lifespan():
        await call(app, "/v1/models", b"", "GET")
        base_url = "http://moved.test/v1"
        await app.reload(replace(settings, upstreams=(listed, replace(other, base_url=base_url))))
        found = json.loads((await call(app, "/v1/models", b"", "GET")).body)["data"]
    assert {"up/m1", "other/m1"} <= {model["id"] for model in found}
    fetched = [sent.url.split("/")[2] for sent in upstreams.sent]
    assert (set(fetched[:2]), fetched[2:]) == ({"one.test", "other.test"}, ["moved.test"])


# POST /admin/reload.


async def test_the_operator_reloads_and_gets_the_result() -> None:
    app = create_app(settings_of(), client=FakeUpstreams(WHOLE))

    async def reload() -> ReloadResult:
        await app.reload(settings_of("two"))
        changes = ("upstreams: 1 -> 2 (with two)",)
        return ReloadResult(warnings=("mind this",), needs_restart=("server.port",), changes=changes)

    app.reloader = reload
    async with app.lifespan():
        client = await admin(app, "reload", "POST")
    assert client.status == 200
    assert json.loads(client.body) == {
        "status": "reloaded",
        "errors": [],
        "warnings": ["mind this"],
        "needs_restart": ["server.port"],
        "changes": ["upstreams: 1 -> 2 (with two)"],
    }


async def test_a_refused_configuration_is_a_422_with_its_errors() -> None:
    app = create_app(settings_of(), client=FakeUpstreams(WHOLE))

    async def reload() -> ReloadResult:
        return ReloadResult(errors=("dragoman.toml:3: server.prot: unknown key",))

    app.reloader = reload
    async with app.lifespan():
        client = await admin(app, "reload", "POST")
    assert client.status == 422
    assert json.loads(client.body)["errors"] == ["dragoman.toml:3: server.prot: unknown key"]


async def test_an_application_that_was_made_in_code_has_nothing_to_load() -> None:
    app = create_app(settings_of(), client=FakeUpstreams(WHOLE))
    async with app.lifespan():
        client = await admin(app, "reload", "POST")
    assert client.status == 404
    assert "made without a configuration that could be loaded again" in client.body.decode()


# /readyz.


async def ready(app: Application) -> tuple[int | None, Any]:
    client = await call(app, "/readyz", b"", "GET")
    return client.status, json.loads(client.body)


async def test_it_is_ready_from_its_start_to_its_stop() -> None:
    app = create_app(settings_of(), client=FakeUpstreams(WHOLE))
    assert await ready(app) == (503, {"status": "not ready"})
    async with app.lifespan():
        assert await ready(app) == (200, {"status": "ready"})
        app.draining = True
        assert await ready(app) == (503, {"status": "draining"})
        assert (await call(app, "/healthz", b"", "GET")).status == 200
        assert (await chat(app)).status == 200


async def test_it_is_not_ready_without_any_usable_account() -> None:
    spare = UpstreamSettings(name="spare", protocol=CHAT, base_url="http://spare.test/v1")
    client = FakeUpstreams(WHOLE)
    app = create_app(replace(settings_of(), upstreams=(*settings_of().upstreams, spare)), client=client)
    gateway = app._served.gateway
    gateway.pool.clock = lambda: 1000.0
    async with app.lifespan():
        await gateway.accounts.apply(Change("up/default", lambda health: health.after_disabling("by hand")))
        assert await ready(app) == (200, {"status": "ready"}), "the other upstream works"
        await gateway.accounts.apply(Change("spare/default", lambda health: Health(cooldown_until=1011.5)))
        assert await ready(app) == (
            503,
            {
                "status": "not ready",
                "upstreams": {
                    "up": "every account is disabled",
                    "spare": "every account is cooling down or disabled; the first is available in 12 s",
                },
            },
        )
        gateway.pool.clock = lambda: 1012.0
        assert await ready(app) == (200, {"status": "ready"})


async def test_a_proxy_that_cools_down_makes_its_accounts_unusable(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    settings = settings_of()
    behind = replace(settings.upstreams[0], proxy=Secret("http://user:canary-of-proxy@proxy.test:3128"))
    app = create_app(replace(settings, upstreams=(behind,)), client=FakeUpstreams(WHOLE))
    gateway = app._served.gateway
    async with app.lifespan():
        (account,) = gateway.settings.accounts_of(behind)
        until = gateway.pool.clock() + 60
        await gateway.accounts.apply(
            Change(proxy_id(account, behind), lambda health: Health(cooldown_until=until))
        )
        status, state = await ready(app)
    assert (status, list(state["upstreams"])) == (503, ["up"])
