"""The other endpoints: what upstreams get, what clients get, what is counted, and who may send what."""

# ruff: noqa: E501 -- the tables are read by row

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from gateway.fakes import App, FakeClient, FakeUpstreams, Script, call
from oracle import check_error

from dragoman_server.app import create_app
from dragoman_server.settings import (
    AccountSettings,
    ClientKey,
    Price,
    ServerSettings,
    Settings,
    UpstreamSettings,
)
from dragoman_server.settings.client_keys import hash_client_key
from dragoman_server.settings.secret import Secret
from dragoman_server.upstream.errors import (
    UpstreamBroken,
    UpstreamTimeout,
    UpstreamTimeoutPhase,
    UpstreamUnreachable,
)

pytestmark = pytest.mark.anyio

JSON_TYPE = [("content-type", "application/json")]
SECRET = Secret("a-secret-of-some-length-0123456789")


def upstream(name: str, protocol: str = "openai_chat", base_url: str = "", **more: Any) -> UpstreamSettings:
    base_url = base_url or f"http://{name}.test/v1"
    return UpstreamSettings.of(
        name=name,
        protocol=protocol,
        base_url=base_url,
        model_list=False,
        api_key=Secret(f"key-of-{name}-0123"),
        **more,
    )


UPSTREAMS = (
    upstream("up"),
    upstream("groq", base_url="http://groq.test/openai/v1"),
    upstream("google", base_url="http://google.test/v1beta/openai"),
    upstream("claude", "anthropic_messages", "http://claude.test"),
    upstream(
        "both", "anthropic_messages", "http://both.test", protocols=("anthropic_messages", "openai_responses")
    ),
)
ALIASES = {"emb": "up/text-embedding-3-small", "two": ("claude/x", "up/y")}


@asynccontextmanager
async def gateway(
    *scripts: Script, upstreams: tuple[UpstreamSettings, ...] = UPSTREAMS, **settings: Any
) -> AsyncIterator[tuple[App, FakeUpstreams]]:
    fake = FakeUpstreams(*(scripts or (Script([b"{}"], headers=JSON_TYPE),)))
    settings = {"models": ALIASES, "upstreams": upstreams, **settings}
    app = create_app(Settings(**settings), client=fake)
    async with app.lifespan():
        yield app, fake


def message(client: FakeClient) -> str:
    text: str = client.error["message"]
    return text


# Where requests go, and with which name.


@pytest.mark.parametrize(
    ("path", "model", "url", "sent"),
    [
        ("/v1/embeddings", "emb", "http://up.test/v1/embeddings", "text-embedding-3-small"),
        ("/v1/embeddings", "up/e", "http://up.test/v1/embeddings", "e"),
        ("/v1/embeddings", "groq/e", "http://groq.test/openai/v1/embeddings", "e"),
        ("/v1/embeddings", "google/e", "http://google.test/v1beta/openai/embeddings", "e"),
        ("/v1/embeddings", "both/e", "http://both.test/v1/embeddings", "e"),
        # What cannot have it is passed over.
        ("/v1/embeddings", "two", "http://up.test/v1/embeddings", "y"),
        ("/v1/completions", "up/c", "http://up.test/v1/completions", "c"),
        ("/v1/fim/completions", "up/c", "http://up.test/v1/fim/completions", "c"),
        ("/v1/moderations", "up/m", "http://up.test/v1/moderations", "m"),
        ("/v1/decisions", "up/gpt-6-luna", "http://up.test/v1/decisions", "gpt-6-luna"),
        ("/v1/images/generations", "up/i", "http://up.test/v1/images/generations", "i"),
        ("/v1/audio/speech", "up/s", "http://up.test/v1/audio/speech", "s"),
        ("/v1/ocr", "up/o", "http://up.test/v1/ocr", "o"),
        ("/v2/embed", "up/e", "http://up.test/v2/embed", "e"),
        *(
            (path, "up/r", f"http://up.test{path}", "r")
            for path in (
                "/v1/rerank",
                "/v2/rerank",
                "/rerank",
                "/score",
                "/v1/score",
                "/classify",
                "/pooling",
                "/tokenize",
                "/v1/detokenize",
            )
        ),
    ],
)
async def test_a_request_goes_where_its_model_leads_and_nothing_else_of_it_changes(
    path: str, model: str, url: str, sent: str
) -> None:
    async with gateway() as (app, fake):
        body = b'{"unknown":1.50, "model" : "%b","text":"\\u00e9"}'
        headers = {
            "content-type": "application/json",
            "accept": "audio/*",
            "cookie": "private",
            "openai-beta": "x=1",
        }
        client = await call(app, path + "?dimensions=3", body % model.encode(), headers=headers)
        assert client.status == 200, client.body
        [found] = fake.sent
        assert found.url == url + "?dimensions=3"
        assert found.content == body % sent.encode()
        name = url.partition("//")[2].partition(".")[0]
        assert found.headers.pop("user-agent").startswith("dragoman/")
        assert found.headers == {
            "content-type": "application/json",
            "accept": "audio/*",
            "openai-beta": "x=1",
            "authorization": f"Bearer key-of-{name}-0123",
        }


ONE = (upstream("up"), upstream("claude", "anthropic_messages", "http://claude.test"))


@pytest.mark.parametrize(
    ("path", "body", "settings", "expected"),
    [
        ("/v1/embeddings", {}, {}, (400, "model is required")),
        ("/v1/embeddings", {"model": 1}, {}, (400, "model must be a string")),
        ("/v1/embeddings", {"model": "sim/echo"}, {}, (404, 'the upstream "sim" has no /v1/embeddings')),
        ("/v1/embeddings", {"model": "claude/x"}, {}, (404, 'the upstream "claude" speaks no protocol that has /v1/embeddings: it needs openai_chat')),
        ("/v1/embeddings", {"model": "nowhere"}, {}, (404, 'the model "nowhere" is not known here')),
        ("/v1/moderations", {}, {}, (404, 'add to dragoman.toml, below [endpoints]: "/v1/moderations" = "up"')),
        ("/v1/moderations", {}, {"endpoints": {"/v1/moderations": "groq"}}, "http://groq.test/openai/v1/moderations"),
        # The default model of the only upstream that may have the path.
        ("/v1/images/generations", {}, {"upstreams": ONE}, "http://up.test/v1/images/generations"),
        # A rule makes the model optional, but a model comes first.
        ("/v1/embeddings", {}, {"endpoints": {"/v1/embeddings": "groq"}}, "http://groq.test/openai/v1/embeddings"),
        ("/v1/embeddings", {"model": "up/e"}, {"endpoints": {"/v1/embeddings": "groq"}}, "http://up.test/v1/embeddings"),
    ],
)  # fmt: skip
async def test_without_a_model_a_rule_decides(path: str, body: Any, settings: Any, expected: Any) -> None:
    async with gateway(**settings) as (app, fake):
        client = await call(app, path, body)
        if isinstance(expected, str):
            assert (client.status, [each.url for each in fake.sent]) == (200, [expected])
            return
        assert (client.status, fake.sent) == (expected[0], [])
        assert expected[1] in message(client)
        assert check_error("openai_chat", client.status, client.body) == []


# What clients get.


@pytest.mark.parametrize(
    ("path", "content_type", "pieces"),
    [
        ("/v1/embeddings", "application/json", [b'{"data":[{"embedding":"', b"A" * 300_000, b'"}]}']),
        ("/v1/audio/speech", "audio/mpeg", [b"\xff\xfb\x90\x00", bytes(range(256)) * 999]),
        ("/v1/audio/speech", "text/event-stream", [b'data: {"type":"speech.audio.delta"}\n\n', b'data: {"type":"speech.audio.done"}\n\n']),
        ("/v1/completions", "text/event-stream; charset=utf-8", [b"data: {}\r\n", b"\r\ndata: [DONE]\r\n\r\n"]),
        ("/v1/images/generations", "text/event-stream", [b"event: image_generation.completed\n", b"data: {}\n\n"]),
        ("/v1/rerank", "application/json", [b" [1.50, 2]\n"]),
        ("/v1/rerank", "application/json", []),
    ],
)  # fmt: skip
async def test_an_answer_is_relayed_byte_for_byte(path: str, content_type: str, pieces: list[bytes]) -> None:
    length = str(sum(map(len, pieces)))
    headers = [
        ("content-type", content_type),
        ("content-length", length),
        ("set-cookie", "private"),
        ("server", "theirs"),
        ("x-request-id", "req_theirs"),
        ("x-ratelimit-remaining-requests", "9"),
    ]
    async with gateway(Script(pieces, status=201, headers=headers)) as (app, _):
        client = await call(app, path, {"model": "up/m"})
        assert (client.status, client.body) == (201, b"".join(pieces))
        assert client.finished
        kept = {name: value for name, value in client.headers.items() if name in dict(headers)}
        wanted = ("content-type", "content-length", "x-request-id", "x-ratelimit-remaining-requests")
        assert kept == {name: value for name, value in headers if name in wanted}
        assert client.headers["content-security-policy"] == "sandbox"


CUT = UpstreamBroken("http://up.test closed the connection inside of the body")


@pytest.mark.parametrize(
    ("path", "content_type", "pieces"),
    [
        ("/v1/embeddings", "application/json", [b'{"data":[', CUT]),
        ("/v1/audio/speech", "audio/mpeg", [b"ID3", CUT]),
        ("/v1/completions", "text/event-stream", [b"data: {}\n\n", CUT]),
        # The connection ended as it does after a complete one.
        ("/v1/completions", "text/event-stream", [b"data: {}\n\n"]),
        ("/v1/images/generations", "text/event-stream", [b"event: image_generation.partial_image\n\n"]),
    ],
)
async def test_an_answer_that_is_cut_short_has_no_end(
    path: str, content_type: str, pieces: list[Any], record: Any
) -> None:
    async with gateway(Script(pieces, headers=[("content-type", content_type)])) as (app, fake):
        client = FakeClient(b'{"model":"up/m"}')
        await app(http_request(path), client.receive, client.send)
        assert (client.status, client.body) == (200, pieces[0])
        assert not client.finished
        assert fake.open_now == 0
    assert (record()["outcome"], record()["error_kind"]) in (
        ("failed", "unreachable"),
        ("failed", "truncated"),
    )


def http_request(path: str) -> dict[str, Any]:
    from gateway.fakes import http_scope

    return http_scope(path, headers={"content-type": "application/json"})


ERROR = b'{"error": {"message": "too long", "type": "invalid_request_error", "param": null, "code": "x"}}'


@pytest.mark.parametrize(
    ("script", "status", "text"),
    [
        (Script([ERROR], status=400, headers=JSON_TYPE), 400, "too long"),
        (
            Script([b'{"message": "invalid request: bad top_n"}'], status=422, headers=JSON_TYPE),
            422,
            "bad top_n",
        ),
        (Script([b"<html>"], status=404, headers=[("content-type", "text/html")]), 404, "base_url"),
        (Script([b"<html>"], headers=[("content-type", "text/html")]), 502, "base_url"),
        (Script(connect=[UpstreamUnreachable("cannot connect to http://up.test")]), 502, "cannot connect"),
        (Script([ERROR], status=401), 401, "refused its key"),
    ],
)
async def test_errors_have_the_clients_form(script: Script, status: int, text: str) -> None:
    async with gateway(script) as (app, _):
        client = await call(app, "/v1/rerank", {"model": "up/m"})
        assert (client.status, text in message(client)) == (status, True), client.body
        assert check_error("openai_chat", client.status, client.body) == []


# What is sent again.

SILENT = UpstreamTimeout("http://up.test sent no response head within 1 s", UpstreamTimeoutPhase.READ)
NOT_SENT = UpstreamTimeout("cannot connect to http://up.test", UpstreamTimeoutPhase.CONNECT)
LIMIT = Script([b'{"error": {"message": "slow down"}}'], status=429, headers=JSON_TYPE)


@pytest.mark.parametrize(
    ("path", "first", "attempts"),
    [
        ("/v1/embeddings", Script(connect=[SILENT]), 2),
        ("/v1/embeddings", Script(connect=[NOT_SENT]), 2),
        ("/v1/embeddings", LIMIT, 2),
        # It may be made, and costs money.
        ("/v1/images/generations", Script(connect=[SILENT]), 1),
        ("/v1/audio/speech", Script(connect=[SILENT]), 1),
        ("/v1/audio/speech", Script(connect=[UpstreamBroken("closed without a response")]), 1),
        ("/v1/images/generations", Script(connect=[NOT_SENT]), 2),
        ("/v1/images/generations", LIMIT, 2),
        ("/v1/images/generations", Script([ERROR], status=400), 1),
    ],
)
async def test_what_may_have_cost_money_is_not_sent_again(path: str, first: Script, attempts: int) -> None:
    accounts = (AccountSettings(upstream="up", name="a"), AccountSettings(upstream="up", name="b"))
    async with gateway(first, Script([b"{}"], headers=JSON_TYPE), accounts=accounts) as (app, fake):
        client = await call(app, path, {"model": "up/m"})
        assert len(fake.sent) == attempts
        assert (client.status == 200) is (attempts == 2)


# What is counted.

USAGE: list[tuple[str, bytes, dict[str, Any]]] = [
    ("/v1/embeddings", b'{"usage":{"prompt_tokens":8,"total_tokens":8}}', {"input_tokens": 8, "output_tokens": 0}),
    ("/v1/embeddings", b'{"usage":{"total_tokens":7}}', {"input_tokens": 7, "output_tokens": 0}),
    ("/v1/images/generations", b'{"usage" : {"input_tokens":3,"output_tokens":4000}}', {"input_tokens": 3, "output_tokens": 4000}),
    ("/v1/completions", b'{"usage":{"prompt_tokens":1,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":1}}}', {"input_tokens": 1, "output_tokens": 2}),
    ("/v2/rerank", b'{"meta":{"api_version":{},"billed_units":{"search_units":2}}}', {"input_tokens": 0, "output_tokens": 0}),
    ("/v2/embed", b'{"meta":{"billed_units":{"input_tokens":5}}}', {"input_tokens": 5, "output_tokens": 0}),
    ("/v1/rerank", b"{}", {}),
    ("/v1/rerank", b'{"usage":null}', {}),
    ("/v1/rerank", b'{"usage":{"total_tokens":1e400}}', {}),
    ("/v1/rerank", b'{"usage":{"total_tokens":' + b"[" * 4000, {}),
]  # fmt: skip


@pytest.mark.parametrize(("path", "end", "expected"), USAGE)
async def test_usage_is_read_at_the_end_of_the_answer(
    path: str, end: bytes, expected: Any, record: Any
) -> None:
    text = b'{"text": "\\"usage\\":{\\"total_tokens\\":99}", "data": "' + b"A" * 100_000 + b'",'
    async with gateway(Script([text, end[1:9], end[9:]], headers=JSON_TYPE)) as (app, _):
        await call(app, path, {"model": "up/m"})
    found = {name: value for name, value in record().items() if name.endswith("_tokens")}
    assert found == expected
    assert record()["stream"] is False


async def test_the_usage_of_a_stream_is_in_one_of_its_last_events(record: Any) -> None:
    events = [
        b'data: {"usage":null}\n\n',
        b'data: {"usage":{"prompt_tokens":4,"completion_tokens":5}}\n\n',
        b"data: [DONE]\n\n",
    ]
    async with gateway(Script(events, headers=[("content-type", "text/event-stream")])) as (app, _):
        await call(app, "/v1/completions", {"model": "up/m", "stream": True})
    assert (record()["input_tokens"], record()["output_tokens"], record()["stream"]) == (4, 5, True)


async def test_an_answer_without_usage_is_estimated_by_its_request(record: Any) -> None:
    prices = (Price(model="up/*", input=1.0, output=1000.0),)
    async with gateway(Script([bytes(90_000)], headers=[("content-type", "audio/mpeg")]), prices=prices) as (
        app,
        _,
    ):
        await call(app, "/v1/audio/speech", b'{"model":"up/m","input":"%b"}' % (b"x" * 4000))
    assert (record()["input_tokens"], record()["output_tokens"], record()["estimated"]) == (1006, 0, True)


# Who may send what.


def keyed(**limits: Any) -> dict[str, Any]:
    key = ClientKey(name="red", hash=hash_client_key("drk_red", SECRET), **limits)
    return {"client_keys": (key,), "server": ServerSettings(secret=SECRET)}


RULE = {"/v1/moderations": "up", "/v1/images": "up"}


@pytest.mark.parametrize(
    ("limits", "path", "body", "refusal"),
    [
        ({"models": ("emb",)}, "/v1/embeddings", {"model": "emb"}, ""),
        (
            {"models": ("emb",)},
            "/v1/embeddings",
            {"model": "up/text-embedding-3-small"},
            "may not use the model",
        ),
        # Without a model it is enough that it may use one of the upstream's.
        ({}, "/v1/moderations", {}, ""),
        ({"models": ("emb",)}, "/v1/moderations", {}, ""),
        ({"models": ("e*",)}, "/v1/moderations", {}, ""),
        ({"models": ("up/*",)}, "/v1/moderations", {}, ""),
        ({"models": ("upper/*", "groq/*")}, "/v1/moderations", {}, "may use no model of the upstream 'up'"),
        ({"budget": 1.0}, "/v1/moderations", {}, ""),
        ({"budget": 1.0}, "/v1/images/generations", {}, "what this request costs is not known"),
        ({"budget": 1.0}, "/v1/embeddings", {"model": "emb"}, "has no price here"),
    ],
)
async def test_a_keys_models_and_budget_apply(limits: Any, path: str, body: Any, refusal: str) -> None:
    async with gateway(endpoints=RULE, **keyed(**limits)) as (app, fake):
        client = await call(app, path, body, headers={"authorization": "Bearer drk_red"})
        assert (client.status, len(fake.sent)) == ((403, 0) if refusal else (200, 1)), client.body
        assert refusal in (message(client) if refusal else "")
        assert (await call(app, path, body)).status == 401


@pytest.mark.parametrize("path", ["/v1/embeddings/x", "/v1/embeddings/", "/v3/rerank"])
async def test_there_is_nothing_at_other_paths(path: str) -> None:
    async with gateway() as (app, fake):
        assert (await call(app, path, json.dumps({"model": "emb"}).encode())).status == 404
        assert not fake.sent
