"""GET /v1/models: both forms, and the vendors' types; which models are listed, as rows of models.txt."""

import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anthropic.types
import anyio
import openai.types
import pytest
import rows
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


@pytest.mark.parametrize("protocol", HEADERS)
async def test_nothing_to_list(protocol: str) -> None:
    async with running(Settings(server=ServerSettings(simulator=False))) as app:
        client = await get(app, "/v1/models", protocol)
        assert check_models(protocol, client.body) == []
        assert json.loads(client.body)["data"] == []


# Names, pages, and the models that a key may use.


async def listed(settings: Settings, target: str, protocol: str) -> str:
    """The names of a list, which has more behind them if it ends so; the name of one model; or the error."""
    headers = {"x-api-key": "drk_red"}
    async with running(settings) as app:
        client = await get(app, target, protocol, headers)
        found = json.loads(client.body)
        if client.status != 200:
            assert check_error(protocol, client.status or 0, client.body) == []
            error = found["error"]
            words = [str(client.status), error.get("code") or error["type"], error.get("param") or ""]
            return " ".join(filter(None, words)) + f": {error['message']}"
        if "data" not in found:
            return str(found["id"])
        names = ids(found)
        if protocol == MESSAGES:
            ends = (names[0], names[-1]) if names else (None, None)
            assert (found["first_id"], found["last_id"]) == ends
        if settings.client_keys and target == "/v1/models":
            assert (await get(app, target, protocol)).status == 401
            for name in LISTED:
                status = (await get(app, f"{target}/{name}", protocol, headers)).status
                assert status == (200 if name in names else 404), name
    return " ".join([*names, *["and more"] * found.get("has_more", False)]) or "nothing"


def test_what_is_listed() -> None:
    """The models of a key, or a setting; the target; the protocol, if it is not both."""

    def output_of(lines: list[str]) -> list[str]:
        settings = settings_of()
        if lines[0].startswith("key"):
            models = tuple(lines[0].split()[1:])
            settings = settings_of(
                ClientKey(name="red", hash=hash_client_key("drk_red", SECRET), models=models)
            )
        elif lines[0].startswith("model_names "):
            settings = settings_of(model_names=lines[0].split()[1])
        target, _, only = lines[-1].replace("NINES", "9" * 5000).partition(" ")
        protocols = [{"chat": CHAT, "messages": MESSAGES}[only]] if only else [CHAT, MESSAGES]
        found = [anyio.run(listed, settings, target, protocol) for protocol in protocols]
        return found[:1] if found[0] == found[-1] else found

    rows.check(Path(__file__).with_name("models.txt"), output_of)


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
