"""GET /v1/models through the application: both forms, pages, permissions, and the vendors' types."""

import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anthropic.types
import openai.types
import pytest
from gateway.fakes import FakeClient, Script, call
from gateway.scripted import ListingUpstreams, anthropic_list, openai_list
from oracle import check_error, check_models

from dragoman.jsontext import encode
from dragoman_server.accounts.stores.operations import Change
from dragoman_server.app import Application, create_app
from dragoman_server.gateway import Gateway
from dragoman_server.http.models import openai_model
from dragoman_server.models.catalog import CatalogEntry
from dragoman_server.models.info import ModelInfo
from dragoman_server.policy.error_actions import ErrorAction
from dragoman_server.settings import AccountSettings, ClientKey, ServerSettings, Settings, UpstreamSettings
from dragoman_server.settings.client_keys import hash_client_key
from dragoman_server.settings.secret import Secret

pytestmark = pytest.mark.anyio

CHAT, MESSAGES = "openai_chat", "anthropic_messages"
HEADERS = {CHAT: {}, MESSAGES: {"anthropic-version": "2023-06-01"}}
KEY = "sk-upstream-canary-0123456789"
SECRET = Secret("s" * 40)

CLAUDE = {
    "id": "claude-x",
    "display_name": "Claude X",
    "created_at": "2026-02-03T00:00:00Z",
    "lifecycle": "active",
    "max_input_tokens": 200_000,
    "max_tokens": 64_000,
    "line": "opus",
    "deprecated_at": None,
    "retires_at": None,
    "capabilities": {"batch": {"supported": True}},
}
OLD = {
    "id": "claude-old",
    "display_name": "Claude Old",
    "lifecycle": "deprecated",
    "created_at": "2024-02-03T00:00:00Z",
}
GONE = {
    "id": "claude-gone",
    "display_name": "Claude Gone",
    "lifecycle": "retired",
    "created_at": "2023-02-03T00:00:00Z",
}
QWEN = {"id": "q", "created": 1_770_076_800, "max_model_len": 8192, "shutdown_date": "2027-01-02"}
SCRIPTS = {
    "http://anthropic.test/v1/models": anthropic_list(CLAUDE, OLD, GONE),
    "http://local.test/v1/models": openai_list(QWEN),
}
LISTED = ["fast", "claude-x", "anthropic/claude-x", "claude-old", "anthropic/claude-old", "local/q"]


def settings_of(*keys: ClientKey, accounts: tuple[AccountSettings, ...] = (), **server: Any) -> Settings:
    more_scripts = None if accounts else Secret(KEY)
    return Settings(
        server=ServerSettings(**{"simulator": False, "secret": SECRET, **server}),
        upstreams=(
            UpstreamSettings(
                name="anthropic", protocol=MESSAGES, base_url="http://anthropic.test", api_key=more_scripts
            ),
            UpstreamSettings(name="local", protocol=CHAT, base_url="http://local.test/v1"),
        ),
        models={"fast": "local/q", "gpt-*": "local/q"},
        client_keys=keys,
        accounts=accounts,
    )


@asynccontextmanager
async def running(settings: Settings | None = None, **scripts: Script) -> AsyncIterator[Application]:
    """scripts: by the upstream's name, instead of the usual ones."""
    more_scripts = {f"http://{name}.test/v1/models": script for name, script in scripts.items()}
    upstreams = ListingUpstreams({url: [script] for url, script in {**SCRIPTS, **more_scripts}.items()})
    app = create_app(settings or settings_of(), client=upstreams)
    async with app.lifespan():
        yield app


async def get(
    app: Application, path: str, protocol: str = CHAT, headers: dict[str, str] | None = None, **scope: Any
) -> FakeClient:
    return await call(app, path, method="GET", headers={**HEADERS[protocol], **(headers or {})}, **scope)


async def body(app: Application, path: str, protocol: str = CHAT, **more: Any) -> dict[str, Any]:
    client = await get(app, path, protocol, **more)
    assert client.status == 200, client.body
    assert client.headers["content-type"] == "application/json"
    found: dict[str, Any] = json.loads(client.body)
    return found


def ids(page: dict[str, Any]) -> list[str]:
    return [entry["id"] for entry in page["data"]]


# The forms.


@pytest.mark.parametrize("protocol", HEADERS)
async def test_all_names_in_the_clients_form(protocol: str) -> None:
    # The vendor's types need every capability or none.
    plain = anthropic_list({**CLAUDE, "capabilities": None}, OLD, GONE)
    async with running(anthropic=plain) as app:
        client = await get(app, "/v1/models", protocol)
        assert check_models(protocol, client.body) == []
        assert ids(json.loads(client.body)) == LISTED


async def test_a_model_in_the_form_of_openai() -> None:
    async with running() as app:
        page = await body(app, "/v1/models")
        assert page.keys() == {"object", "data"}
        found = {entry["id"]: entry for entry in page["data"]}
    assert found["anthropic/claude-x"] == {
        "id": "anthropic/claude-x",
        "object": "model",
        "created": 1_770_076_800,
        "owned_by": "anthropic",
        "name": "Claude X (anthropic)",
        "context_length": 200_000,
        "max_input_tokens": 200_000,
        "max_completion_tokens": 64_000,
        "max_output_tokens": 64_000,
    }
    assert found["claude-x"] == {**found["anthropic/claude-x"], "id": "claude-x", "name": "Claude X"}
    assert found["fast"] == {
        "id": "fast",
        "object": "model",
        "created": 1_770_076_800,
        "owned_by": "local",
        "context_length": 8192,
        "max_input_tokens": 8192,
        "shutdown_date": "2027-01-02",
    }
    for entry in found.values():
        openai.types.Model.model_validate(entry, strict=True)


@pytest.mark.parametrize(
    ("model", "paths"),
    [
        ("text-embedding-3-small", ["/v1/embeddings"]),
        ("Qwen3-Reranker-8B", ["/v1/rerank"]),
        ("gpt-4o-mini-tts", ["/v1/audio/speech"]),
        ("whisper-1", ["/v1/audio/transcriptions", "/v1/audio/translations"]),
        ("gpt-image-1", ["/v1/images/generations", "/v1/images/edits", "/v1/images/variations"]),
        ("omni-moderation-latest", ["/v1/moderations"]),
        ("gpt-5", None),
    ],
)
def test_the_endpoints_of_models_that_do_not_chat(model: str, paths: list[str] | None) -> None:
    entry = CatalogEntry("alias", "Alias", "up", ModelInfo(model))
    assert json.loads(encode(openai_model(entry))).get("supported_endpoints") == paths


async def test_a_model_in_the_form_of_anthropic() -> None:
    async with running() as app:
        page = await body(app, "/v1/models", MESSAGES)
        found = {entry["id"]: entry for entry in page["data"]}
    assert (page["first_id"], page["last_id"], page["has_more"]) == (LISTED[0], LISTED[-1], False)
    assert found["claude-x"] == {"type": "model", **CLAUDE}
    expected = {"type": "model", **CLAUDE, "id": "anthropic/claude-x", "display_name": "Claude X (anthropic)"}
    assert found["anthropic/claude-x"] == expected
    assert found["fast"] == {
        "type": "model",
        "id": "fast",
        "display_name": "fast",
        "created_at": "2026-02-03T00:00:00Z",
        # "null while the model is active"
        "lifecycle": "deprecated",
        "max_input_tokens": 8192,
        "max_tokens": None,
        "line": None,
        "deprecated_at": None,
        "retires_at": "2027-01-02T00:00:00Z",
        "capabilities": None,
    }
    assert found["claude-old"]["lifecycle"] == "deprecated"
    for name in ("fast", "local/q", "claude-old"):
        anthropic.types.ModelInfo.model_validate(found[name])


@pytest.mark.parametrize(
    ("form", "names", "other"),
    [
        ("full", ["fast", "anthropic/claude-x", "anthropic/claude-old", "local/q"], "claude-x"),
        ("plain", ["fast", "claude-x", "claude-old", "local/q"], "anthropic/claude-x"),
    ],
)
async def test_unlisted_names_are_found_too(form: str, names: list[str], other: str) -> None:
    async with running(settings_of(model_names=form)) as app:
        assert ids(await body(app, "/v1/models", MESSAGES)) == names
        assert (await body(app, f"/v1/models/{other}"))["id"] == other


UNKNOWN_MODELS: list[str] = [
    "none",
    "gpt-*",
    "gpt-5",
    "up",
    "local/",
    "Fast",
    "local/none",
    "/fast",
    "fast/",
    "x" * 500,
]


@pytest.mark.parametrize("protocol", HEADERS)
async def test_an_unknown_model(protocol: str) -> None:
    for name in UNKNOWN_MODELS:
        async with running() as app:
            client = await get(app, f"/v1/models/{name}", protocol)
        assert client.status == 404, name
        assert check_error(protocol, 404, client.body) == [], name
        error = client.error
        assert name[:100] in error["message"], name
        assert len(error["message"]) < 200, name
        if protocol == CHAT:
            assert (error["code"], error["param"]) == ("model_not_found", "model"), name
        else:
            assert error["type"] == "not_found_error", name


@pytest.mark.parametrize("protocol", HEADERS)
async def test_nothing_to_list(protocol: str) -> None:
    async with running(Settings(server=ServerSettings(simulator=False))) as app:
        client = await get(app, "/v1/models", protocol)
        assert check_models(protocol, client.body) == []
        assert json.loads(client.body)["data"] == []


# Anthropic's pages.


PAGES: list[tuple[str, list[str], bool]] = [
    ("", LISTED, False),
    ("limit=1000", LISTED, False),
    ("limit=6", LISTED, False),
    ("limit=5", LISTED[:5], True),
    ("after_id=fast", LISTED[1:], False),
    ("after_id=local/q", [], False),
    ("after_id=claude-x&limit=2", LISTED[2:4], True),
    ("before_id=local/q", LISTED[:5], False),
    ("before_id=local/q&limit=2", LISTED[3:5], True),
    ("before_id=claude-old&limit=2", LISTED[1:3], True),
    ("before_id=claude-old&limit=3", LISTED[:3], False),
    ("before_id=fast&limit=3", [], False),
    ("limit=2&limit=1", LISTED[:1], True),
    ("unknown=1&limit=", LISTED, False),
]


async def test_a_page_of_the_list_for_anthropic_clients() -> None:
    for query, names, more in PAGES:
        async with running() as app:
            page = await body(app, f"/v1/models?{query}", MESSAGES)
            # OpenAI's list has no pages, and its clients send no such query.
            assert ids(await body(app, f"/v1/models?{query}")) == LISTED, query
        assert (ids(page), page["has_more"]) == (names, more), query
        assert page["first_id"] == (names[0] if names else None), query
        assert page["last_id"] == (names[-1] if names else None), query


INVALID_PAGES: list[tuple[str, str]] = [
    ("limit=0", "limit must be an integer from 1 to 1000"),
    ("limit=1001", "limit must be"),
    ("limit=-1", "limit must be"),
    ("limit=many", "limit must be"),
    ("limit=1e2", "limit must be"),
    ("limit=%D9%A1", "limit must be"),
    ("limit=" + "9" * 5000, "limit must be"),
    ("after_id=nobody", "after_id must be an id of this list, and 'nobody' is not one"),
    ("before_id=nobody", "before_id must be an id of this list"),
    ("after_id=claude-gone", "after_id must be"),
    ("after_id=fast&before_id=fast", "before_id must be omitted if after_id is sent"),
    ("&".join(f"a{number}=1" for number in range(101)), "more than 100 parameters"),
]


async def test_an_invalid_page_is_refused() -> None:
    for query, message in INVALID_PAGES:
        async with running() as app:
            client = await get(app, f"/v1/models?{query}", MESSAGES)
        assert client.status == 400, query
        assert check_error(MESSAGES, 400, client.body) == [], query
        assert message in client.error["message"], query


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("lifecycle=retired", ["claude-gone", "anthropic/claude-gone"]),
        ("lifecycle[]=active", ["claude-x", "anthropic/claude-x"]),
        ("lifecycle[]=active&lifecycle[]=retired&limit=3", ["claude-x", "anthropic/claude-x", "claude-gone"]),
        ("lifecycle=none", []),
    ],
)
async def test_models_of_a_stage_of_their_life(query: str, names: list[str]) -> None:
    async with running() as app:
        assert ids(await body(app, f"/v1/models?{query}", MESSAGES)) == names


# Permissions.


VISIBLE: list[tuple[tuple[str, ...], list[str]]] = [
    ((), LISTED),
    (("*",), LISTED),
    (("fast",), ["fast"]),
    (("claude-*",), ["claude-x", "claude-old"]),
    (("local/*", "anthropic/claude-x"), ["anthropic/claude-x", "local/q"]),
    (("gpt-5",), []),
]


@pytest.mark.parametrize("protocol", HEADERS)
async def test_a_client_key_lists_only_the_models_that_it_may_use(protocol: str) -> None:
    for models, names in VISIBLE:
        key = ClientKey(name="red", hash=hash_client_key("drk_red", SECRET), models=models)
        headers = {"x-api-key": "drk_red"}
        async with running(settings_of(key)) as app:
            assert ids(await body(app, "/v1/models", protocol, headers=headers)) == names, models
            for name in LISTED:
                client = await get(app, f"/v1/models/{name}", protocol, headers)
                assert client.status == (200 if name in names else 404), models
            assert (await get(app, "/v1/models", protocol)).status == 401, models


# The upstreams' keys.


async def test_no_upstream_key_is_seen(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    failing = Script([json.dumps({"error": {"message": f"the key {KEY} is wrong"}}).encode()], status=401)
    async with running(anthropic=failing) as app:
        client = await get(app, "/v1/models")
    assert ids(json.loads(client.body)) == ["fast", "local/q"]
    seen = repr(client.messages) + caplog.text + repr([record.__dict__ for record in caplog.records])
    assert "status 401" in seen
    assert KEY not in seen


async def test_a_disabled_account_requests_no_list() -> None:
    accounts = tuple(
        AccountSettings(upstream="anthropic", name=name, api_key=Secret(f"sk-{name}-0123456789"))
        for name in ("one", "two", "three")
    )
    upstreams = ListingUpstreams({url: [script] for url, script in SCRIPTS.items()})
    gateway = Gateway(settings_of(accounts=accounts), upstreams)
    async with gateway.running():
        await gateway.accounts.apply(
            Change("anthropic/one", lambda health: health.after_disabling("no money left"))
        )
        now = gateway.pool.clock()
        await gateway.accounts.apply(
            Change(
                "anthropic/two",
                lambda health: health.after_failure(
                    ErrorAction.COOL_DOWN, "slow", now, retry_after=60, random=0
                ),
            )
        )
        assert "claude-x" in await gateway.catalog.entries()
    (request,) = [each for each in upstreams.sent if "anthropic" in each.url]
    assert request.headers["x-api-key"] == "sk-three-0123456789"


async def test_a_page_has_only_models_that_the_key_may_use() -> None:
    key = ClientKey(name="red", hash=hash_client_key("drk_red", SECRET), models=("claude-*", "fast"))
    async with running(settings_of(key)) as app:
        headers = {"authorization": "Bearer drk_red"}
        page = await body(app, "/v1/models?limit=2", MESSAGES, headers=headers)
        assert (ids(page), page["has_more"]) == (["fast", "claude-x"], True)
        client = await get(app, "/v1/models?after_id=local/q", MESSAGES, headers)
        assert client.status == 400
