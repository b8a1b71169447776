"""The other endpoints: what upstreams get, and who may send what, as rows of relayed.txt; what clients get, and what is
counted."""

# ruff: noqa: E501 -- the tables are read by row

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
import rows
from client_stream import FakeStream, connect
from gateway.fakes import App, FakeClient, FakeUpstreams, Script, Sleep, call, http_scope, key_of, websocket
from msgspec.structs import replace
from oracle import check_error
from virtual_time import REAL_BACKENDS, VIRTUAL_BACKENDS

from dragoman_server.app import create_app
from dragoman_server.http.explanation import explained
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


# Where requests go, with which name, and for whom.


def batch(*models: str) -> dict[str, Any]:
    return {"requests": [{"custom_id": "a", "params": {"model": model, "n": [1.50]}} for model in models]}


def keyed(**limits: Any) -> dict[str, Any]:
    key = ClientKey(name="red", hash=hash_client_key("drk_red", SECRET), **limits)
    return {"client_keys": (key,), "server": ServerSettings(secret=SECRET)}


BOTH = (upstream("up"), upstream("claude", "anthropic_messages", "http://claude.test"))
OTHER = upstream("other", "anthropic_messages", "http://other.test")
GOOGLE = upstream("goog", "gemini", "http://goog.test")
VERTEX = upstream("vertex", "gemini", "https://aiplatform.googleapis.com/v1/projects/p/locations/global")
OF_BATCHES = {
    "upstreams": (*BOTH, OTHER),
    "models": {**ALIASES, "opus": "claude/claude-opus-5", "x": "claude/x"},
}
WITH_GOOGLE = {"upstreams": (*BOTH, GOOGLE), "models": {**ALIASES, "g": "goog/real", "same": "goog/same"}}
RULE = {"/v1/moderations": ("up",), "/v1/images": ("up",), "/v1/batches": ("up",), "/v1/files": ("up",)}
MESSAGES = {"anthropic-version": "2023-06-01"}
KEY = {"authorization": "Bearer drk_red"}
PROTOCOLS = {
    "/v1/messages": "anthropic_messages",
    "/v1/cached": "gemini",
    "/v1/models": "gemini",
    "/v1beta": "gemini",
}


def sent(lines: list[str]) -> list[str]:
    """What the upstream gets of a request, or the error for the client, which `dragoman explain` has as well."""
    settings = eval(f"dict({lines[0][2:]})", globals()) if len(lines) > 1 else {}
    method, target, text = f"{lines[-1]} ".split(" ", 2)
    given = eval(text, globals()) if text.startswith(("batch(", "form(")) else text.rstrip().encode()
    body = json.dumps(given).encode() if isinstance(given, dict) else given
    headers = {"content-type": FORM if text.startswith("form(") else "application/json"}
    if target.startswith("/v1/messages"):
        headers |= MESSAGES

    async def ask() -> str:
        async with gateway(**settings) as (app, fake):
            client = await call(app, target, body, method, {**headers, **KEY})
            if "client_keys" in settings:
                assert (await call(app, target, body, method, headers)).status == 401
        if client.status == 200:
            [found] = fake.sent
            return f"{found.url} {found.content.decode()}".replace("\r\n", "⏎").rstrip()
        protocol = next((each for path, each in PROTOCOLS.items() if target.startswith(path)), "openai_chat")
        assert (fake.sent, check_error(protocol, client.status, client.body)) == ([], [])
        return f"{client.status}: {message(client)}"

    out = anyio.run(ask)
    if "client_keys" in settings and not out.startswith("404"):
        made = Settings(**{"models": ALIASES, "upstreams": UPSTREAMS, **settings})
        steps = explained(made, method, target, headers, body, made.client_keys[0]).steps
        refused = [f"{step.status}: {step.message}" for step in steps if isinstance(step, ExplainedRefusal)]
        assert refused == ([] if out.startswith("http") else [out])
    return [out]


def test_what_upstreams_get() -> None:
    rows.check(Path(__file__).with_name("relayed.txt"), sent)


@pytest.mark.parametrize(("model", "name"), [("up/e", "up"), ("both/e", "both")])
async def test_an_upstream_gets_the_headers_that_are_for_it(model: str, name: str) -> None:
    headers = {
        "content-type": "application/json",
        "accept": "audio/*",
        "cookie": "private",
        "openai-beta": "x=1",
    }
    async with gateway() as (app, fake):
        await call(app, "/v1/embeddings", {"model": model}, headers=headers)
    [found] = fake.sent
    assert found.headers.pop("user-agent").startswith("dragoman/")
    key = {"authorization": f"Bearer key-of-{name}-0123"}
    assert found.headers == {name: headers[name] for name in ("content-type", "accept", "openai-beta")} | key


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

USAGE: list[tuple[str, bytes | list[bytes], dict[str, Any]]] = [
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
    # What it costs.
    ("/v1/embeddings", b'{"usage":{"prompt_tokens":500,"total_tokens":500}}', {"input_tokens": 500, "output_tokens": 0, "cost_usd": 0.0005}),
    ("/v1/images/generations", b'{"usage":{"input_tokens":0,"output_tokens":3}}', {"input_tokens": 0, "output_tokens": 3, "cost_usd": 0.003}),
    ("/v1/rerank", b'{"usage":{"type":"duration","seconds":60}}', {"input_tokens": 0, "output_tokens": 0, "cost_usd": 0.006}),
    ("/v2/rerank", b'{"meta":{"billed_units":{"search_units":2}}}', {"input_tokens": 0, "output_tokens": 0, "cost_usd": 0.004}),
    # That of a stream is in one of its last events.
    ("/v1/completions", [b'data: {"usage":null}\n\n', b'data: {"usage":{"prompt_tokens":4,"completion_tokens":5}}\n\n', b"data: [DONE]\n\n"], {"input_tokens": 4, "output_tokens": 5}),
    # If somebody has to know, it is estimated by the request, which has 4000 bytes, and the text of a stream.
    ("/v1/audio/speech", b"{ID3", {"input_tokens": 1011, "output_tokens": 0, "cost_usd": 0.001011, "estimated": True}),
    ("/v1/completions", [b'data: {"choices":[{"text":"a"}]}\n\n' * 50, b"data: [DONE]\n\n"], {"input_tokens": 1010, "output_tokens": 51, "cost_usd": 0.05201, "estimated": True}),
]  # fmt: skip


@pytest.mark.parametrize(("path", "end", "expected"), USAGE)
async def test_usage_is_read_at_the_end_of_the_answer(
    path: str, end: bytes | list[bytes], expected: Any, record: Any
) -> None:
    streams = isinstance(end, list)
    text = b'{"text": "\\"usage\\":{\\"total_tokens\\":99}", "data": "' + b"A" * 100_000 + b'",'
    pieces = end if isinstance(end, list) else [text, end[1:9], end[9:]]
    media = "text/event-stream" if streams else "audio/mpeg" if "audio" in path else "application/json"
    price = Price(model="up/*", input=1.0, output=1000.0, seconds=100.0, search_units=2000.0)
    prices = (price,) if "cost_usd" in expected else ()
    async with gateway(Script(pieces, headers=[("content-type", media)]), prices=prices) as (app, _):
        await call(app, path, {"model": "up/m", "input": "x" * 4000, "stream": streams})
    line = record()
    counted = {"input_tokens", "output_tokens", "cost_usd", "estimated"} & line.keys()
    assert {name: line[name] for name in counted} == pytest.approx(expected)
    assert line["stream"] is streams


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


async def test_a_session_is_refused_before_its_websocket_opens() -> None:
    async with gateway() as (app, _), websocket(app, "/v1/realtime?model=m") as client:
        status, body = client.refused
    assert (status, "Realtime sessions" in body["error"]["message"]) == (404, True)


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
