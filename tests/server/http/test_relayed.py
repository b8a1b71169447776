"""The other endpoints: what upstreams get, what clients get, what is counted, and who may send what."""

# ruff: noqa: E501 -- the tables are read by row

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from client_stream import FakeStream, connect
from gateway.fakes import App, FakeClient, FakeUpstreams, Script, Sleep, call, http_scope, key_of
from msgspec.structs import replace
from oracle import check_error
from virtual_time import REAL_BACKENDS, VIRTUAL_BACKENDS

from dragoman_server.app import create_app
from dragoman_server.http.explanation import ClientCall, RequestExplainer
from dragoman_server.proxying import upload
from dragoman_server.proxying.explanation import ExplainedRefusal
from dragoman_server.proxying.upload import Upload
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


async def send(app: App, path: str, client: FakeClient, **headers: str) -> FakeClient:
    """Let a client send its request, and return it when that has ended, whole or not."""
    path, _, query = path.partition("?")
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    await app(http_scope(path, headers=named, query_string=query.encode()), client.receive, client.send)
    return client


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
        ("/v1/embed", "groq/e", "http://groq.test/openai/v1/embed", "e"),
        ("/v2/parse", "groq/e", "http://groq.test/openai/v2/parse", "e"),
        ("/v1/multimodalembeddings", "up/e", "http://up.test/v1/multimodalembeddings", "e"),
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
        assert (found.url, found.content) == (url + "?dimensions=3", body % sent.encode())
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
        ("/v1/moderations", {}, {"endpoints": {"/v1/moderations": ("groq",)}}, "http://groq.test/openai/v1/moderations"),
        # The default model of the only upstream that may have the path.
        ("/v1/images/generations", {}, {"upstreams": ONE}, "http://up.test/v1/images/generations"),
        # A rule makes the model optional, but a model comes first.
        ("/v1/embeddings", {}, {"endpoints": {"/v1/embeddings": ("groq",)}}, "http://groq.test/openai/v1/embeddings"),
        ("/v1/embeddings", {"model": "up/e"}, {"endpoints": {"/v1/embeddings": ("groq",)}}, "http://up.test/v1/embeddings"),
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
@pytest.mark.backends(*REAL_BACKENDS)
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
@pytest.mark.backends(*REAL_BACKENDS)
async def test_an_answer_that_is_cut_short_has_no_end(
    path: str, content_type: str, pieces: list[Any], record: Any
) -> None:
    async with gateway(Script(pieces, headers=[("content-type", content_type)])) as (app, fake):
        client = await send(app, path, FakeClient(b'{"model":"up/m"}'))
        assert (client.status, client.body) == (200, pieces[0])
        assert not client.finished
        assert fake.open_now == 0
    assert (record()["outcome"], record()["error_kind"]) in (
        ("failed", "unreachable"),
        ("failed", "truncated"),
    )


ERROR = b'{"error": {"message": "too long", "type": "invalid_request_error", "param": null, "code": "x"}}'


@pytest.mark.parametrize(
    ("script", "status", "text"),
    [
        (Script([ERROR], status=400, headers=JSON_TYPE), 400, "too long"),
        (Script([b'{"message": "invalid request: bad top_n"}'], status=422, headers=JSON_TYPE), 422, "bad top_n"),
        (Script([b"<html>"], status=404, headers=[("content-type", "text/html")]), 404, "base_url"),
        (Script([b"<html>"], headers=[("content-type", "text/html")]), 502, "base_url"),
        (Script(connect=[UpstreamUnreachable("cannot connect to http://up.test")]), 502, "cannot connect"),
        (Script([ERROR], status=401), 401, "refused its key"),
    ],
)  # fmt: skip
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
    ("/v1/rerank", b'{"usage":{"total_tokens":10000000001}}', {}),
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
    headers = [("content-type", "audio/mpeg")]
    async with gateway(Script([bytes(90_000)], headers=headers), prices=prices) as (app, _):
        await call(app, "/v1/audio/speech", b'{"model":"up/m","input":"%b"}' % (b"x" * 4000))
    assert (record()["input_tokens"], record()["output_tokens"], record()["estimated"]) == (1006, 0, True)


@pytest.mark.parametrize(
    ("path", "usage", "cost"),
    [
        ("/v1/embeddings", b'{"usage":{"prompt_tokens":500,"total_tokens":500}}', 0.0005),
        ("/v1/images/generations", b'{"usage":{"input_tokens":0,"output_tokens":3}}', 0.003),
        ("/v1/rerank", b'{"usage":{"type":"duration","seconds":60}}', 0.006),
        ("/v2/rerank", b'{"meta":{"billed_units":{"search_units":2}}}', 0.004),
    ],
)
async def test_what_it_costs(path: str, usage: bytes, cost: float, record: Any) -> None:
    prices = (Price(model="up/*", input=1.0, output=1000.0, seconds=100.0, search_units=2000.0),)
    async with gateway(Script([usage], headers=JSON_TYPE), prices=prices) as (app, _):
        await call(app, path, {"model": "up/m"})
    assert record()["cost_usd"] == pytest.approx(cost)


# Forms, and bodies that are sent while they arrive.

FORM = "multipart/form-data; boundary=b"
FILE = bytes(range(256)) * 4096  # 1 MiB


def form(model: bytes | None, *, first: bool = True, file: bytes = FILE, name: bytes = b"file") -> bytes:
    """A form with a file, and the model before or behind it."""
    parts = [b'Content-Disposition: form-data; name="%b"; filename="f"\r\n\r\n%b' % (name, file)]
    if model is not None:
        parts.insert(0 if first else 1, b'Content-Disposition: form-data; name="model"\r\n\r\n' + model)
    return b"--b\r\n" + b"\r\n--b\r\n".join(parts) + b"\r\n--b--\r\n"


def pieces(body: bytes, size: int = 50_000) -> list[bytes]:
    return [body[at : at + size] for at in range(0, len(body), size)]


@pytest.mark.parametrize("with_length", [True, False])
@pytest.mark.parametrize(
    ("path", "form_of", "headers", "held"),
    [
        ("/v1/audio/transcriptions", lambda model: form(model, file=b"ID3"), {}, True),
        ("/v1/audio/translations", lambda model: form(model, first=False, file=b"ID3"), {}, True),
        ("/v1/images/edits", form, {}, False),
        ("/v1/images/variations", lambda model: form(model, file=FILE * 3), {}, False),
        # Its model is behind more than is held in memory.
        ("/v1/audio/transcriptions", lambda model: form(model, first=False, file=FILE * 3), {}, False),
        ("/v1/audio/transcriptions", lambda model: form(model, first=False), {"dragoman_model": "emb"}, False),
        ("/v1/audio/transcriptions?model=emb&x=1", lambda model: form(model, first=False), {}, False),
    ],
)  # fmt: skip
@pytest.mark.backends(*REAL_BACKENDS)
async def test_a_form_is_sent_with_the_models_name_there(
    path: str, form_of: Callable[[bytes], bytes], headers: dict[str, str], held: bool, with_length: bool
) -> None:
    body, sent = form_of(b"emb"), form_of(b"text-embedding-3-small")
    if with_length:
        headers = {**headers, "content_length": str(len(body))}
    async with gateway() as (app, fake):
        client = await send(app, path, FakeClient(pieces(body)), content_type=FORM, **headers)
        assert client.status == 200, client.body
        [found] = fake.sent
        assert found.url == f"http://up.test{path.partition('?')[0]}{'?x=1' if 'x=1' in path else ''}"
        assert (found.headers["content-type"], found.content) == (FORM, sent)
        # Some servers refuse a body without a length (llama.cpp, older Azure).
        assert found.fake.length == (len(sent) if held or with_length else None)


@pytest.mark.parametrize(
    ("body", "headers", "expected"),
    [
        (form(None), {}, (400, "model is required")),
        (form(b"nowhere"), {}, (404, 'the model "nowhere" is not known here')),
        (form(b"emb")[:-9], {}, (400, "ends before its last boundary")),
        (form(b"emb", file=b"x")[:-9], {}, (400, "ends before its last boundary")),
        (form(b"emb", file=FILE[:300_000] + b"\r\n--b\r\nX: " + b"y" * 9000), {}, (400, "headers of a part")),
        (form(b"emb")[:-7] + b"\r\n" + form(b"up/other"), {}, (400, "two fields with the name model")),
        (form(b"emb"), {"dragoman_model": "up/other"}, (400, "the form has the model 'emb', and the request names 'up/other'")),
        (b"x" * 99, {"content_type": "multipart/form-data"}, (400, "no boundary")),
        (b'{"model":"emb"}', {"content_type": "application/json"}, (415, "multipart/form-data")),
        (b"", {"content_length": str(2**40)}, (413, "more than 27262976 bytes")),
        ([form(b"emb"), *[FILE] * 27], {}, (413, "more than 27262976 bytes")),
        ([form(None, file=FILE)[:-9], *[FILE] * 27], {}, (413, "more than 27262976 bytes")),
        ([form(b"emb")[:900_000], Sleep(31)], {}, (408, "stopped in the middle")),
        ([form(b"emb", first=False)[:900_000], Sleep(31)], {}, (408, "stopped in the middle")),
    ],
)  # fmt: skip
@pytest.mark.backends(*VIRTUAL_BACKENDS)
async def test_a_form_that_cannot_be_sent_whole_ends_the_call(
    body: Any, headers: Any, expected: Any, record: Any
) -> None:
    async with gateway() as (app, fake):
        client = FakeClient(body if isinstance(body, list) else pieces(body))
        await send(app, "/v1/audio/transcriptions", client, **{"content_type": FORM, **headers})
        assert (client.status, expected[1] in message(client)) == (expected[0], True), client.body
        assert (client.error["code"] == "request_too_large") == (client.status == 413)
        assert fake.open_now == 0
        # No response was read: the request was never complete.
        assert all(each.fake.reads == 0 for each in fake.sent)
    assert record()["outcome"] in ("refused", "failed")


@pytest.mark.backends(*REAL_BACKENDS)
async def test_what_was_sent_while_it_arrived_is_not_sent_again() -> None:
    accounts = (AccountSettings(upstream="up", name="a"), AccountSettings(upstream="up", name="b"))
    for file, attempts in ((FILE, 1), (b"x", 2)):
        async with gateway(LIMIT, Script([b"{}"], headers=JSON_TYPE), accounts=accounts) as (app, fake):
            path = "/v1/images/edits"
            await send(app, path, FakeClient(pieces(form(b"emb", file=file))), content_type=FORM)
            assert len(fake.sent) == attempts


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.backends(*VIRTUAL_BACKENDS)
async def test_a_client_that_leaves_while_it_sends_ends_the_call(first: bool, record: Any) -> None:
    async with gateway() as (app, fake):
        body = form(b"emb", first=first, file=FILE * 3)[:-100]
        client = FakeClient([*pieces(body), Sleep(1)], leaves_after=0)
        await send(app, "/v1/audio/transcriptions", client, content_type=FORM)
        assert client.messages == []
        assert [each.closed_at is not None for each in fake.sent] == [True] * first
    assert record()["outcome"] == "client_left"


@pytest.mark.parametrize(("limit", "status"), [(2 * len(FILE), 503), (4 * len(FILE), 200)])
@pytest.mark.backends(*REAL_BACKENDS)
async def test_files_of_forms_have_a_limit_together(
    limit: int, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upload, "MAX_SPOOLED_BYTES", limit)
    late = FakeClient(pieces(form(b"emb", first=False, file=FILE * 3)))
    async with gateway() as (app, _):
        assert (await send(app, "/v1/images/edits", late, content_type=FORM)).status == status
        assert ("no room" in late.body.decode()) is (status == 503)
        assert Upload.spooled == 0


# By id.

BOTH = (upstream("up"), upstream("claude", "anthropic_messages", "http://claude.test"))
TWO = tuple(
    AccountSettings(upstream=of, name=name, api_key=Secret(key_of(f"{of}/{name}")))
    for of in ("up", "claude")
    for name in ("a", "b")
)
FILES = {
    "/v1/files": ("up", "claude"),
    "/v1/batches": ("up",),
    "/v1/uploads": ("up",),
    "/v1/vector_stores": ("up",),
}
A_FILE = b'{"object":"file","id":"file-abc123","bytes":120}'
NOT_FOUND = Script(
    [b'{"error":{"message":"No such File object: file-abc123"}}'], status=404, headers=JSON_TYPE
)
MESSAGES = {"anthropic-version": "2023-06-01"}


def keyless(*upstreams_: UpstreamSettings) -> tuple[UpstreamSettings, ...]:
    return tuple(replace(each, api_key=None) for each in upstreams_)


BY_ID = {"upstreams": keyless(*BOTH), "accounts": TWO, "endpoints": FILES}


def answer(body: bytes, content_type: str = "application/json") -> Script:
    headers = [("content-type", content_type), ("content-length", str(len(body)))]
    return Script([body[:9], body[9:]], headers=headers)


@pytest.mark.backends(*VIRTUAL_BACKENDS)
async def test_an_id_leads_back_to_the_account_that_made_it() -> None:
    scripts = (
        Script([A_FILE, Sleep(5)], headers=JSON_TYPE),
        answer(b"the content", "text/plain"),
        answer(b'{"id":"batch_1234","object":"batch","output_file_id":"file-out789"}'),
        answer(b"{}"),
    )
    async with gateway(*scripts, **BY_ID) as (app, fake):
        made = await call(app, "/v1/files", b"--b--", headers={"content-type": FORM})
        assert (made.status, made.body) == (200, A_FILE)
        # The last byte comes when the id is stored.
        assert [(at, m["body"]) for at, m in made.messages[1:]] == [(0, A_FILE[:-1]), (5, A_FILE[-1:])]
        content = await call(app, "/v1/files/file-abc123/content", method="GET")
        assert (content.status, content.body) == (200, b"the content")
        # The batch reads the file, so it has to be with the same account, and so has what it writes.
        await call(app, "/v1/batches", {"input_file_id": "file-abc123", "endpoint": "/v1/embeddings"})
        for path, method in (
            ("/v1/batches/batch_1234", "GET"),
            ("/v1/batches/batch_1234/cancel", "POST"),
            ("/v1/files/file-out789", "GET"),
            ("/v1/files/file-abc123?x=1", "DELETE"),
        ):
            assert (await call(app, path, method=method)).status == 200
        assert {each.account for each in fake.sent} == {"up/a"}
        assert fake.sent[-1].url == "http://up.test/v1/files/file-abc123?x=1"
        # Without an id they take turns.
        await call(app, "/v1/files?limit=2", method="GET")
        assert fake.sent[-1].account == "up/b"


CHAT_WITH_FILE = {
    "model": "up/x",
    "messages": [{"role": "user", "content": [{"type": "file", "file": {"file_id": "file-abc123"}}]}],
}
FILE_OF_ANOTHER_KIND = {"model": "up/x", "input": [{"role": "user", "content": '"file-abc123" is a name'}]}


@pytest.mark.backends(*VIRTUAL_BACKENDS)
@pytest.mark.parametrize(
    ("path", "body", "accounts"),
    [
        ("/v1/chat/completions", CHAT_WITH_FILE, {"up/a"}),
        ("/v1/responses", {"model": "up/x", "input": "Hi", "tools": [{"type": "file_search", "vector_store_ids": ["file-abc123"]}]}, {"up/a"}),
        ("/v1/images/edits", {"model": "up/x", "images": [{"file_id": "file-abc123"}]}, {"up/a"}),
        ("/v1/fine_tuning/jobs", {"model": "x", "training_file": "file-abc123"}, {"up/a"}),
        # A text is no reference, and the accounts take turns.
        ("/v1/responses", FILE_OF_ANOTHER_KIND, {"up/a", "up/b"}),
    ],
)  # fmt: skip
async def test_what_refers_to_a_file_goes_to_the_account_that_has_it(
    path: str, body: Any, accounts: Any
) -> None:
    spoken = ("openai_responses", "openai_chat")
    upstreams = keyless(upstream("up", "openai_responses", protocols=spoken, sticky=False))
    endpoints = {"/v1/files": ("up",), "/v1/fine_tuning": ("up",)}
    settings: Any = {"upstreams": upstreams, "accounts": TWO[:2], "endpoints": endpoints}
    async with gateway(answer(A_FILE), answer(b"{}"), **settings) as (app, fake):
        await call(app, "/v1/files", b"--b--", headers={"content-type": FORM})
        for _ in range(3):
            await call(app, path, body)
        assert {each.account for each in fake.sent[1:]} == accounts


async def test_of_a_chain_the_upstream_that_has_the_file_is_asked() -> None:
    settings: Any = {"upstreams": keyless(*BOTH), "endpoints": {"/v1/files": ("up",)}}
    async with gateway(answer(A_FILE), answer(b"{}"), **settings) as (app, fake):
        await call(app, "/v1/files", b"--b--", headers={"content-type": FORM})
        await call(app, "/v1/chat/completions", {**CHAT_WITH_FILE, "model": "two"})
        assert {each.url.partition("/v1")[0] for each in fake.sent} == {"http://up.test"}


@pytest.mark.backends(*REAL_BACKENDS)
async def test_an_id_that_is_not_known_is_looked_for_at_every_account() -> None:
    async with gateway(NOT_FOUND, answer(A_FILE), **BY_ID) as (app, fake):
        for _ in range(2):
            client = await call(app, "/v1/files/file-abc123", method="GET")
            assert (client.status, client.body) == (200, A_FILE)
        assert [each.account for each in fake.sent] == ["up/a", "up/b", "up/b"]
    async with gateway(NOT_FOUND, **BY_ID) as (app, fake):
        client = await call(app, "/v1/files/file-abc123", method="GET")
        found = (client.status, message(client), len(fake.sent))
        assert found == (404, "No such File object: file-abc123", 2)
        # Neither account is worse for that.
        assert (await call(app, "/v1/files", method="GET")).status == 404


async def test_the_name_of_an_endpoint_is_no_id() -> None:
    """Clients may have it in metadata, which come back."""
    made = answer(b'{"id":"vs_12345","metadata":{"my_id":"vector_stores"}}')
    async with gateway(made, answer(b"{}"), **BY_ID) as (app, fake):
        await call(app, "/v1/vector_stores", {"metadata": {"my_id": "vector_stores"}})
        await call(app, "/v1/vector_stores", method="GET")
        assert [each.account for each in fake.sent] == ["up/a", "up/b"]


async def test_both_vendors_have_files_at_the_same_path() -> None:
    async with gateway(**BY_ID) as (app, fake):
        await call(app, "/v1/files", method="GET")
        await call(app, "/v1/files", method="GET", headers=MESSAGES)
        assert [each.url for each in fake.sent] == ["http://up.test/v1/files", "http://claude.test/v1/files"]
        assert fake.sent[1].headers["anthropic-version"] == "2023-06-01"


def batch(*models: str) -> dict[str, Any]:
    return {"requests": [{"custom_id": "a", "params": {"model": model, "n": [1.50]}} for model in models]}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (batch("claude/x", "opus"), batch("x", "claude-opus-5")),
        (batch("opus"), batch("claude-opus-5")),
        # The upstream gets the one that was checked, also if its name does not change.
        (b'{"requests":[],"requests":[{"custom_id":"a","params":{"model": "x","n": [1.50]}}]}', batch("x")),
        (batch("claude/x", "emb"), (404, 'the upstream "up" speaks no protocol that has /v1/messages/batches')),
        (batch("claude/x", "other/x"), (400, "have to lead to one upstream, and these lead to claude and other")),
        (batch("nowhere"), (404, "not known here")),
        (batch(), (404, "add to dragoman.toml, below [endpoints]")),
        ({"requests": [{"custom_id": "a"}]}, (400, "requests must be a list")),
        ({"requests": 1}, (400, "requests must be a list")),
        (batch(*map(str, range(101))), (400, "at most 100 models")),
        (batch("claude/x", ""), (400, "model is required")),
        # A server in Go would take them.
        ({"Requests": [], **batch("opus")}, (400, "requests is there twice")),
        ({"requests": [{"params": {"model": "opus"}, "PARAMS": {"model": "x"}}]}, (400, "params is there twice")),
        (b"[", (400, "JSON")),
    ],
)  # fmt: skip
async def test_the_requests_of_a_batch_lead_to_one_upstream(body: Any, expected: Any) -> None:
    other = upstream("other", "anthropic_messages", "http://other.test")
    models = {**ALIASES, "opus": "claude/claude-opus-5", "x": "claude/x"}
    async with gateway(upstreams=(*BOTH, other), models=models) as (app, fake):
        client = await call(app, "/v1/messages/batches", body, headers=MESSAGES)
        if isinstance(expected, dict):
            assert client.status == 200, client.body
            found = (fake.sent[0].url, fake.sent[0].body)
            assert found == ("http://claude.test/v1/messages/batches", expected)
            assert b'"params":{"model": ' in fake.sent[0].content  # the spaces are the client's
            assert fake.sent[0].content.count(b'"requests"') == 1
            return
        assert (client.status, expected[1] in message(client), fake.sent) == (expected[0], True, [])
        assert check_error("anthropic_messages", client.status, client.body) == []


async def test_the_batches_of_messages_need_no_rule() -> None:
    made = b'{"id":"msgbatch_0123","type":"message_batch"}'
    scripts = (answer(made), answer(b'{"custom_id":"a"}\n', "application/x-jsonl"))
    async with gateway(*scripts, upstreams=keyless(*BOTH, *UPSTREAMS[4:]), accounts=TWO) as (app, fake):
        await call(app, "/v1/messages/batches", batch("claude/x"), headers=MESSAGES)
        results = await call(
            app, "/v1/messages/batches/msgbatch_0123/results", method="GET", headers=MESSAGES
        )
        assert (results.status, results.body) == (200, b'{"custom_id":"a"}\n')
        assert [each.account for each in fake.sent] == ["claude/a", "claude/a"]
        unknown = await call(app, "/v1/messages/batches/msgbatch_9999", method="GET", headers=MESSAGES)
        assert (unknown.status, len(fake.sent)) == (404, 2)


@pytest.mark.parametrize("size", [1, 7, 5000])
@pytest.mark.parametrize(
    "url", [b'"https://api.anthropic.com/v1/messages/batches/msgbatch_0123/results"', b"null", b'"/relative"']
)
async def test_the_url_of_a_batchs_results_leads_back_here(url: bytes, size: int) -> None:
    """With an absolute one an SDK would send its client key to the vendor."""
    text = b'{"data":[' + b'{"id":"msgbatch_0123","results_url" : %b,"x":"https://a.test/"},' * 9 + b"{}]}"
    length = [("content-type", "application/json"), ("content-length", str(len(text % ((url,) * 9))))]
    script = Script(pieces(text % ((url,) * 9), size), headers=length)
    async with gateway(script, upstreams=BOTH) as (app, _):
        client = await call(app, "/v1/messages/batches", method="GET", headers=MESSAGES)
    assert client.body == text % ((url.replace(b"https://api.anthropic.com", b""),) * 9)
    assert (client.finished, "content-length" in client.headers) == (True, False)


GOOGLE = upstream("goog", "gemini", "http://goog.test")


@pytest.mark.parametrize("version", ["/v1beta", "/v1"])
@pytest.mark.parametrize(
    ("path", "body", "url", "sent"),
    [
        ("models/goog/e:embedContent", b'{"content":{}}', "models/e:embedContent", b'{"content":{}}'),
        ("models/g:embedContent", b'{"content":{},"model":"models/g"}', "models/real:embedContent", b'{"content":{},"model":"models/real"}'),
        ("models/g:batchEmbedContents", b'{"requests":[{"model":"models/g","n": 1.50}]}', "models/real:batchEmbedContents", b'{"requests":[{"model":"models/real","n":1.50}]}'),
        ("models/same:embedContent", b'{"content":{},"model":"models/other"}', "models/same:embedContent", b'{"content":{},"model":"models/same"}'),
        ("models/g:predict", b'{"instances":[{"prompt":"x"}]}', "models/real:predict", b'{"instances":[{"prompt":"x"}]}'),
        ("cachedContents", b'{"model":"models/g","ttl": "60s"}', "cachedContents", b'{"model":"models/real","ttl":"60s"}'),
        ("cachedContents", b'{"model":"models/goog/e"}', "cachedContents", b'{"model":"models/e"}'),
        ("cachedContents", b'{"model":"models/nowhere"}', "", b"not known here"),
        ("models/g:batchEmbedContents", b'{"requests":1}', "", b"requests must be a list"),
        ("models/emb:embedContent", b"{}", "", b"speaks no protocol that has"),
    ],
)  # fmt: skip
async def test_googles_embeddings_have_the_model_in_the_path(
    version: str, path: str, body: bytes, url: str, sent: bytes
) -> None:
    models = {**ALIASES, "g": "goog/real", "same": "goog/same"}
    async with gateway(upstreams=(*BOTH, GOOGLE), models=models) as (app, fake):
        client = await call(app, f"{version}/{path}?key=private", body)
        if not url:
            assert (client.status in (400, 404), sent in client.body, fake.sent) == (True, True, [])
            assert check_error("gemini", client.status, client.body) == []
            return
        assert (client.status, client.body) == (200, b"{}")
        assert (fake.sent[0].url, fake.sent[0].content) == (f"http://goog.test{version}/{url}", sent)


@pytest.mark.parametrize("version", ["/v1beta", "/v1"])
async def test_vertex_has_one_path_for_both_versions(version: str) -> None:
    base_url = "https://aiplatform.googleapis.com/v1/projects/p/locations/global"
    async with gateway(upstreams=(upstream("vertex", "gemini", base_url),)) as (app, fake):
        client = await call(app, f"{version}/models/vertex/imagen:predict", {"instances": []})
        assert client.status == 200, client.body
    assert fake.sent[0].url == f"{base_url}/publishers/google/models/imagen:predict"


@pytest.mark.parametrize("model", ["text-embedding-3-small", "e"])
@pytest.mark.parametrize("body", [b'{"input":"x"}', b'{"input":"x","model":"emb"}'])
async def test_a_path_of_azure_names_the_model(body: bytes, model: str) -> None:
    async with gateway(models={"emb": "up/text-embedding-3-small", "e": "up/e"}) as (app, fake):
        name = "emb" if model != "e" else "e"
        client = await call(app, f"/openai/deployments/{name}/embeddings?api-version=2024-10-21", body)
        assert client.status == 200, client.body
    assert json.loads(fake.sent[0].content) == {"model": model, "input": "x"}
    assert fake.sent[0].url.partition("?")[0] == "http://up.test/v1/embeddings"


@pytest.mark.parametrize("media", ["text/plain", "application/x-www-form-urlencoded", FORM])
async def test_what_was_read_as_json_is_sent_as_json(media: str) -> None:
    """Read as a form, the same bytes may name another model."""
    async with gateway() as (app, fake):
        body = b'{"model":"emb","input":"&model=other&"}'
        client = await call(app, "/v1/embeddings", body, headers={"content-type": media})
        assert (client.status, fake.sent[0].headers["content-type"]) == (200, "application/json")


async def test_a_cached_prompt_of_google_leads_back_to_its_account() -> None:
    made = answer(b'{"name":"cachedContents/abc123","model":"models/e"}')
    accounts = tuple(
        AccountSettings(upstream="goog", name=name, api_key=Secret(key_of(f"goog/{name}"))) for name in "ab"
    )
    async with gateway(made, answer(b"{}"), upstreams=keyless(*BOTH, GOOGLE), accounts=accounts) as (
        app,
        fake,
    ):
        await call(app, "/v1beta/cachedContents", {"model": "models/goog/e"})
        for method, body in (("GET", b""), ("PATCH", b'{"ttl":"9s"}'), ("GET", b""), ("DELETE", b"")):
            client = await call(app, "/v1beta/cachedContents/abc123?updateMask=ttl", body, method=method)
            assert (client.status, fake.sent[-1].content or b"") == (200, body)
        assert fake.sent[-1].url == "http://goog.test/v1beta/cachedContents/abc123?updateMask=ttl"
        assert {each.account for each in fake.sent} == {"goog/a"}
        client = await call(
            app, "/v1beta/files/abc:download?alt=media&key=private&%6Bey=private", method="GET"
        )
        found = (client.status, fake.sent[-1].url)
        assert found == (200, "http://goog.test/v1beta/files/abc:download?alt=media")


@pytest.mark.parametrize("size", [3, 3 * len(FILE)])
@pytest.mark.parametrize("named", [None, b"emb", b"ignored"])
async def test_a_form_at_a_path_of_azure_needs_no_model(named: bytes | None, size: int) -> None:
    file = FILE * 3
    body = form(named, first=False, file=file[:size])
    length = {"content_type": FORM, "content_length": str(len(body))}
    async with gateway() as (app, fake):
        path = "/openai/deployments/emb/audio/transcriptions?api-version=2024-10-21"
        client = await send(app, path, FakeClient(pieces(body)), **length)
        assert client.status == 200, client.body
    [found] = fake.sent
    sent = form(b"text-embedding-3-small", first=named is None, file=file[:size])
    assert (found.content, found.fake.length) == (sent, len(sent))
    assert found.url.partition("?")[0] == "http://up.test/v1/audio/transcriptions"


@pytest.mark.parametrize(
    ("path", "status"), [("/v1/messages/batches", 413), ("/v1beta/models/g:batchEmbedContents", 400)]
)
async def test_what_is_in_a_body_is_counted_before_it_is_decoded(path: str, status: int) -> None:
    body = b'{"requests":[' + b"{}," * 500_000 + b"{}]}"
    async with gateway(upstreams=(*BOTH, GOOGLE), models={**ALIASES, "g": "goog/real"}) as (app, fake):
        client = await call(app, path, body, headers=MESSAGES if "batches" in path else {})
    assert (client.status, b"values and names" in client.body, fake.sent) == (status, True, [])


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/v1/files/../models", 404),
        ("/v1/files/..", 404),
        ("/v1/files/.", 404),
        ("/v1/files/a/../../models", 404),
        ("/v1/files/file-1/content/x", 404),
        ("/v1/files/a?b", 200),  # a query
        ("/v1/files/a\r\nx: y", 404),
        ("/v1/files/a b", 404),
        ("/v1/files/a;b", 404),
        ("/v1/files/" + "a" * 257, 404),
        ("/v1/vector_stores/vs_1/files/file-1/content", 200),
        ("/v1/vector_stores", 200),
        ("/v1/vector_stores/", 404),
        ("/v1/vector_stores/../files", 404),
        ("/v1/vector_stores//files", 404),
        ("/v1/vector_stores/%2e%2e/files", 404),
        ("/v1/videos/video_1/content", 404),  # there is no rule
    ],
)
async def test_a_path_leads_nowhere_else(path: str, status: int) -> None:
    async with gateway(**BY_ID) as (app, fake):
        client = await call(app, path, method="GET")
        assert (client.status, len(fake.sent)) == (status, int(status == 200)), client.body


# Who may send what.


def keyed(**limits: Any) -> dict[str, Any]:
    key = ClientKey(name="red", hash=hash_client_key("drk_red", SECRET), **limits)
    return {"client_keys": (key,), "server": ServerSettings(secret=SECRET)}


RULE = {"/v1/moderations": ("up",), "/v1/images": ("up",), "/v1/batches": ("up",), "/v1/files": ("up",)}


@pytest.mark.parametrize(
    ("limits", "path", "body", "refusal"),
    [
        ({"models": ("emb",)}, "/v1/embeddings", {"model": "emb"}, ""),
        ({"models": ("emb",)}, "/v1/embeddings", {"model": "up/text-embedding-3-small"}, "may not use the model"),
        # Without a model it is enough that it may use one of the upstream's.
        ({}, "/v1/moderations", {}, ""),
        ({"models": ("emb",)}, "/v1/moderations", {}, ""),
        ({"models": ("e*",)}, "/v1/moderations", {}, ""),
        ({"models": ("up/*",)}, "/v1/moderations", {}, ""),
        ({"models": ("upper/*", "groq/*")}, "/v1/moderations", {}, "may use no model of the upstream 'up'"),
        ({"budget": 1.0}, "/v1/moderations", {}, ""),
        ({"budget": 1.0}, "/v1/images/generations", {}, "what this request costs is not known"),
        ({"budget": 1.0}, "/v1/embeddings", {"model": "emb"}, "has no price here"),
        ({"models": ("other",)}, "/v1/audio/transcriptions", form(b"emb"), "may not use the model"),
        ({"models": ("emb",)}, "/v1/audio/transcriptions", form(b"emb"), ""),
        ({"models": ("up/*",)}, "/v1/batches", {}, ""),
        ({"models": ("groq/*",)}, "/v1/batches", {}, "may use no model of the upstream 'up'"),
        ({"budget": 1.0}, "/v1/batches", {}, "what this request costs is not known"),
        ({"budget": 1.0}, "/v1/fine_tuning/jobs", {}, "what this request costs is not known"),
        ({"budget": 1.0}, "/v1/files", {}, ""),
        ({"budget": 1.0}, "/v1/messages/batches", batch("claude/x"), "what this request costs is not known"),
        ({"models": ("claude/x",)}, "/v1/messages/batches", batch("claude/x"), ""),
        ({"models": ("claude/x",)}, "/v1/messages/batches", batch("claude/x", "claude/y"), "may not use the model"),
        (
            {"models": ("claude/x",)},
            "/v1/messages/batches",
            {"requests": [{"custom_id": "a", "params": {"model": "claude/x", "fallbacks": [{"model": "y"}]}}]},
            "may not use the model 'y'",
        ),
    ],
)  # fmt: skip
async def test_a_keys_models_and_budget_apply(limits: Any, path: str, body: Any, refusal: str) -> None:
    async with gateway(endpoints=RULE, **keyed(**limits)) as (app, fake):
        headers = {"content-type": FORM if isinstance(body, bytes) else "application/json"}
        client = await call(app, path, body, headers={**headers, "authorization": "Bearer drk_red"})
        assert (client.status, len(fake.sent)) == ((403, 0) if refusal else (200, 1)), client.body
        assert refusal in (message(client) if refusal else "")
        assert (await call(app, path, body)).status == 401
    settings = Settings(upstreams=UPSTREAMS, models=ALIASES, endpoints=RULE, **keyed(**limits))
    sent = body if isinstance(body, bytes) else json.dumps(body).encode()
    explained = RequestExplainer(settings=settings, client_key=settings.client_keys[0]).explain(
        ClientCall("POST", path, "", headers, sent)
    )
    refused = [(step.status, step.message) for step in explained.steps if isinstance(step, ExplainedRefusal)]
    assert refused == ([(403, message(client))] if refusal else [])


@pytest.mark.parametrize(
    ("path", "status"), [("/v1/chat/completions/batch", 404), ("/v1/chat/completions/chatcmpl-1", 200)]
)
async def test_another_path_below_chat_completions_is_no_stored_chat(path: str, status: int) -> None:
    """With such a path of vLLM a key would use other models than its own, and no budget."""
    settings = keyed(models=("up/small",), budget=1.0)
    async with gateway(endpoints={"/v1/chat/completions": ("up",)}, **settings) as (app, fake):
        client = await call(app, path, {"model": "large"}, headers={"authorization": "Bearer drk_red"})
        assert (client.status, len(fake.sent)) == (status, int(status == 200)), client.body


@pytest.mark.parametrize(("method", "status"), [("GET", 200), ("DELETE", 200), ("PATCH", 403)])
async def test_a_cached_prompt_that_is_kept_longer_costs_more(method: str, status: int) -> None:
    async with gateway(upstreams=(*UPSTREAMS, GOOGLE), **keyed(budget=1.0)) as (app, _):
        headers = {"x-goog-api-key": "drk_red", "content-type": "application/json"}
        body = b'{"ttl":"9999999s"}' if method == "PATCH" else b""
        client = await call(app, "/v1beta/cachedContents/abc123", body, method=method, headers=headers)
        assert client.status == status, client.body


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/v1/realtime", "Realtime sessions are not served"),
        ("/v1/realtime/calls", "Realtime sessions are not served"),
        ("/v1/live/sessions", "Live sessions are not served"),
        ("/ws/google.ai.generativelanguage.v1beta.GenerativeService.BidiGenerateContent", "Live sessions are not"),
        ("/upload/v1beta/files?uploadType=resumable", "upload the file to Google"),
        ("/modelling", "there is nothing at this path"),
        ("/v1/realtimes", "there is nothing at this path"),
        ("/v1/chat/completions/chatcmpl-1", 'below [endpoints]: "/v1/chat/completions" = "up"'),
        ("/v1/chat/completions/chatcmpl-1/messages", 'below [endpoints]: "/v1/chat/completions" = "up"'),
    ],
)  # fmt: skip
async def test_what_is_not_served_is_said(path: str, said: str) -> None:
    async with gateway() as (app, fake):
        client = await call(app, path, method="GET")
        assert (client.status, said in message(client), fake.sent) == (404, True, []), client.body
        assert check_error("openai_chat", client.status, client.body) == []


async def test_a_session_is_refused_before_its_websocket_opens() -> None:
    peer = FakeClient()
    async with gateway() as (app, _):
        scope = {**http_scope("/v1/realtime", query_string=b"model=m"), "type": "websocket"}
        extensions: dict[str, Any] = {"websocket.http.response": {}}
        await app({**scope, "extensions": extensions}, peer.receive, peer.send)
    [head, body] = [each for _, each in peer.messages]
    assert (head["status"], "Realtime sessions" in body["body"].decode()) == (404, True)


@pytest.mark.parametrize("path", ["/v1/embeddings/x", "/v1/embeddings/", "/v3/rerank"])
async def test_there_is_nothing_at_other_paths(path: str) -> None:
    async with gateway() as (app, fake):
        assert (await call(app, path, json.dumps({"model": "emb"}).encode())).status == 404
        assert not fake.sent


@pytest.mark.backends(*VIRTUAL_BACKENDS)
async def test_a_body_with_a_broken_chunk_is_an_error_also_while_it_is_sent(record: Any) -> None:
    body = form(b"emb", file=FILE)
    head = (
        b"POST /v1/audio/transcriptions HTTP/1.1\r\nhost: localhost\r\ncontent-type: %b\r\n"
        b"transfer-encoding: chunked\r\n\r\n" % FORM.encode()
    )
    async with gateway() as (app, fake):
        stream = FakeStream([head, b"%x\r\n%b\r\n" % (len(body) - 9, body[:-9]), 1.0, b"no size\r\n"])
        await connect(app, stream).run()
        assert stream.sent.startswith(b"HTTP/1.1 400 ")
        assert b"the request's body cannot be read: " in stream.sent
        assert fake.open_now == 0
    assert record()["outcome"] in ("refused", "failed")
