"""The application as a server drives it: routes, errors in the right protocol, CORS, secrets, log lines."""

import io
import json
import logging
from collections.abc import AsyncIterator, MutableMapping
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx2
import pytest
from failures.responses import Text
from failures.whole import whole
from gateway.fakes import (
    FakeClient,
    FakeUpstream,
    FakeWebSocketClient,
    OneResponse,
    Script,
    Sleep,
    call,
    http_scope,
    websocket,
)
from gateway.scripted import (
    CHAT,
    HELLO,
    MESSAGES,
    PATHS,
    PROTOCOL_NAMES,
    RESPONSES,
    STOP,
    USAGE,
    request_body,
)
from laws.clients import path_of
from oracle import GEMINI, check_error
from oracle import samples as s
from starlette.applications import Starlette
from starlette.routing import Mount

from dragoman_server import app as app_module
from dragoman_server.app import Application, create_app
from dragoman_server.gateway import Gateway
from dragoman_server.hosts import UpstreamCall
from dragoman_server.http.errors import endpoint_names
from dragoman_server.http.relayed import relayed_routes
from dragoman_server.log import configure_logging
from dragoman_server.settings import ServerSettings, Settings, UpstreamSettings
from dragoman_server.settings.secret import Secret

pytestmark = pytest.mark.anyio

ANTHROPIC = {"anthropic-version": "2023-06-01"}


class BrokenUpstreams(OneResponse):
    """A bug: it raises no UpstreamError."""

    def open(self, call: UpstreamCall, **way: Any) -> Any:
        raise ZeroDivisionError("a bug")


def settings_of(protocol: str = CHAT, **server: Any) -> Settings:
    base_url = "http://127.0.0.1:9/v1"
    upstream = UpstreamSettings(name="up", protocol=protocol, base_url=base_url, api_key=Secret(UPSTREAM_KEY))
    other = UpstreamSettings(name="other", protocol=CHAT, base_url="http://127.0.0.1:9/v1", models=("one",))
    return Settings(server=ServerSettings(**server), upstreams=(upstream, other))


UPSTREAM_KEY = "sk-upstream-canary-0123456789-wq7zk"


def app_of(*steps: Any, settings: Settings | None = None, **script: Any) -> tuple[Application, FakeUpstream]:
    upstreams = OneResponse(Script(list(steps), **script))
    return create_app(settings or settings_of(), client=upstreams), upstreams.fake


def asking(protocol: str, **more: Any) -> bytes:
    return json.dumps({**request_body(protocol), **more}).encode()


def check_refusal(protocol: str, client: FakeClient, status: int, request: object = None) -> None:
    assert client.status == status, request
    assert check_error(protocol, status, client.body) == [], request
    assert client.headers["content-type"] == "application/json", request
    assert client.headers["content-length"] == str(len(client.body)), request
    request_id = client.headers["dragoman-request-id"]
    assert client.headers["request-id"] == client.headers["x-request-id"] == request_id, request


# Log lines.


@pytest.fixture
def lines(logger: logging.Logger) -> "LogLines":
    """All lines, as they are at the test's end; look at them with `read`."""
    out = LogLines()
    configure_logging("info", "json", out.stream)
    return out


class LogLines:
    def __init__(self) -> None:
        self.stream = io.StringIO()

    def read(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.stream.getvalue().splitlines()]

    def one(self) -> dict[str, Any]:
        (line,) = self.read()
        return line


# Errors in the protocol of the path.

DEEP = b'{"model": "up/m", "input": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
BAD_BODIES: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "not valid JSON"),
    "not JSON": (b"{", "not valid JSON"),
    "not UTF-8": (b'{"model": "\xff"}', "not UTF-8"),
    "an array": (b"[]", "must be a JSON object, not an array"),
    "a string": (b'"x"', "must be a JSON object, not a string"),
    "null": (b"null", "must be a JSON object, not null"),
    "NaN": (b'{"model": NaN}', "not valid JSON"),
    "a number for the model": (b'{"model": 5}', "model must be a string, not a number"),
    "no model": (b"{}", "model is required"),
    "an empty model": (b'{"model": ""}', "model is required"),
    "a string for stream": (b'{"model": "up/m", "stream": "yes"}', "stream must be a boolean, not a string"),
    "100k deep": (DEEP, "nested too deep"),
}


@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
@pytest.mark.parametrize("name", BAD_BODIES)
@pytest.mark.each_choice
async def test_a_bad_body(protocol: str, name: str, lines: LogLines) -> None:
    body, message = BAD_BODIES[name]
    app, fake = app_of(settings=settings_of(CHAT if protocol != CHAT else MESSAGES))
    client = await call(app, PATHS[protocol], body)
    check_refusal(protocol, client, 400)
    assert message in client.error["message"]
    assert fake.closed_at is None, "no upstream was called"
    assert lines.one()["outcome"] == "refused"


async def test_a_header_that_is_repeated_counts_whole() -> None:
    app, _ = app_of()
    scope = http_scope(PATHS[CHAT])
    scope["headers"] += [(b"content-encoding", b"identity"), (b"content-encoding", b"br")]
    client = FakeClient(asking(CHAT))
    await app(scope, client.receive, client.send)
    assert (client.status, client.headers["accept-encoding"]) == (415, "gzip, deflate, zstd")


ELSEWHERE: list[tuple[str, str, dict[str, str], str]] = [
    ("GET", "/nowhere", {}, CHAT),
    ("POST", "/v1", {}, CHAT),
    ("POST", "/v1/messages/none", {}, MESSAGES),
    ("GET", "/v1/responses/resp_1/none", {}, RESPONSES),
    ("GET", "/v1/responses/resp_1/none", ANTHROPIC, RESPONSES),
    ("POST", "/v1/chat/completions/", ANTHROPIC, CHAT),
    ("POST", "/v1/messages/", {}, MESSAGES),
    ("POST", "/v1/messagesx", {}, CHAT),
    ("GET", "/v1/models/none", ANTHROPIC, MESSAGES),
    ("GET", "/v1/models/none", {}, CHAT),
    ("GET", "/v1beta/tunedModels", {}, GEMINI),
    ("POST", "/v1beta/models/m:predictLongRunning", {}, GEMINI),
]


@pytest.mark.parametrize(("method", "path", "headers", "protocol"), ELSEWHERE)
@pytest.mark.each_choice
async def test_a_path_without_an_endpoint(
    method: str, path: str, headers: dict[str, str], protocol: str, lines: LogLines
) -> None:
    app, _ = app_of()
    client = await call(app, path, method=method, headers=headers)
    check_refusal(protocol, client, 404)
    expected = "'none' is not listed" if path.endswith("models/none") else "POST /v1/messages"
    # Where paths begin like this one, only those are named.
    assert (expected in client.error["message"]) is (protocol != GEMINI)
    assert (":countTokens" in client.error["message"]) is (expected == "POST /v1/messages")
    line = lines.one()
    assert (line["outcome"], line["status"], line["path"]) == ("refused", 404, path)
    assert line["id"] == client.headers["request-id"]
    if protocol == CHAT and "models" not in path:
        assert client.error["code"] == "unknown_url"


WRONG_PATHS: list[tuple[str, str, str]] = [
    ("/chat/completions", "/chat/completions", "/v1"),
    ("/v1/v1/chat/completions", "/v1/chat/completions", ""),
    ("/api/v1/chat/completions", "/chat/completions", "/v1"),
    ("/openai/chat/completions", "/chat/completions", "/v1"),
    ("/responses", "/responses", "/v1"),
    ("/responses/compact", "/responses", "/v1"),
    ("/messages", "/messages", "/v1"),
    ("/messages/count_tokens", "/messages", "/v1"),
    ("/v1/v1/messages", "/v1/messages", ""),
    ("/anthropic/v1/v1/messages", "/v1/messages", ""),
    ("/models", "/models", "/v1"),
    ("/v1/v1/models", "/v1/models", ""),
    ("/v1/chat/json", "/chat/json", ""),
]


@pytest.mark.parametrize("headers", [{}, ANTHROPIC], ids=["plain", "anthropic"])
async def test_a_request_with_a_wrong_base_url_gets_the_right_one(headers: dict[str, str]) -> None:
    for path, path_end, base in WRONG_PATHS:
        app, _ = app_of(settings=settings_of(allowed_hosts=("gate.test",)))
        client = await call(app, path, headers={"host": "gate.test:8080", **headers})
        protocol = MESSAGES if headers else CHAT
        check_refusal(protocol, client, 404, path)
        assert client.error["message"] == (
            f"there is nothing at this path; the base URL for a client that adds {path_end} is http://gate.test:8080{base}"
        ), path


SERVED = [
    "POST /v1/chat/completions",
    "POST /v1/messages",
    "POST /v1/responses",
    *(
        f"POST /{version}/{{model}}:{verb}"
        for version in ("v1beta", "v1", "v1alpha", "v1beta1")
        for verb in ("generateContent", "streamGenerateContent")
    ),
    "POST /chat/json",
    "POST /chat/stream",
    "POST /chat/sse",
    "POST /v1/messages/count_tokens",
    "POST /v1/responses/input_tokens",
    *(f"POST /{version}/{{model}}:countTokens" for version in ("v1beta", "v1", "v1alpha", "v1beta1")),
    "POST /v1/responses/compact",
    "GET /v1/responses/{id}/input_items",
    "POST /v1/responses/{id}/cancel",
    "DELETE and GET /v1/responses/{id}",
    *endpoint_names(relayed_routes(Gateway(Settings()))),
    "GET /v1/models",
    "GET /v1/models/{model}",
    *(
        f"GET /{version}/models{one}"
        for version in ("v1beta", "v1alpha", "v1beta1", "v1/publishers/google", "v1beta1/publishers/google")
        for one in ("", "/{model}")
    ),
    "GET /v1/usage",
    "GET /healthz",
    "GET /readyz",
    "GET /api/hello",
    "GET /",
    "GET /openapi.json",
    "GET /docs",
]


METHODS: list[tuple[str, str, str, set[str]]] = [
    ("PUT", "/v1/chat/completions", CHAT, {"GET", "HEAD", "POST"}),
    ("GET", "/v1/messages", MESSAGES, {"POST"}),
    ("DELETE", "/v1/responses", RESPONSES, {"POST"}),
    ("POST", "/v1/models", CHAT, {"GET", "HEAD"}),
    ("PUT", "/healthz", CHAT, {"GET", "HEAD"}),
    ("PUT", "/v1/responses/resp_1", RESPONSES, {"DELETE", "GET", "HEAD"}),
]


async def test_a_method_that_is_not_allowed() -> None:
    for method, path, protocol, allowed in METHODS:
        app, _ = app_of()
        client = await call(app, path, method=method)
        check_refusal(protocol, client, 405, (method, path))
        assert set(client.headers["allow"].split(", ")) == allowed, (method, path)
        assert client.error["message"].startswith(f"{method} is not allowed here; allowed: "), (method, path)


@pytest.mark.parametrize(("query", "begins"), [("", b"[{"), ("?alt=json", b"[{"), ("?alt=sse", b'{"error"')])
async def test_an_error_is_in_the_array_that_a_stream_would_have_been(query: str, begins: bytes) -> None:
    for body, status in ({}, 400), ({"contents": [{"parts": [{"text": "Hi"}]}]}, 503):
        app, _ = app_of(b"{}", status=503)
        client = await call(app, f"/v1/models/up/m:streamGenerateContent{query}", body)
        assert client.status == status, client.body
        assert client.body.startswith(begins)
        assert int(client.headers["content-length"]) == len(client.body)


@pytest.mark.parametrize(
    ("request_", "forms"),
    [
        ("streamGenerateContent?alt=foo", "sse or json"),
        ("streamGenerateContent?alt=", "sse or json"),
        ("streamGenerateContent?key=alt=sse&%24alt=media", "sse or json"),
        ("generateContent?alt=sse", "json"),
        ("countTokens?alt=media", "json"),
    ],
)
async def test_a_form_of_the_response_that_does_not_exist_is_refused(request_: str, forms: str) -> None:
    app, _ = app_of(b"{}")
    client = await call(app, f"/v1/models/up/m:{request_}", {"contents": []})
    check_refusal(GEMINI, client, 400)
    assert client.error["message"] == f"alt must be {forms}"


# Bugs of our own.


@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
async def test_an_internal_error_is_reported_without_its_text(protocol: str, lines: LogLines) -> None:
    app = create_app(settings_of(), client=BrokenUpstreams(Script()))
    client = await call(app, PATHS[protocol], asking(protocol, stream=True))
    check_refusal(protocol, client, 500)
    assert b"bug" not in client.body
    trace, line = lines.read()
    assert "ZeroDivisionError: a bug" in trace["exception"]
    assert client.headers["request-id"] in trace["message"]
    assert (line["outcome"], line["status"], line["error"]) == ("failed", 500, "internal error")


async def test_a_stream_that_a_bug_ends_is_cut(lines: LogLines) -> None:
    """The server must get the exception, or it would end the body as if it were complete."""
    app, _ = app_of(HELLO, Sleep(1), "no bytes")
    client = FakeClient(asking(CHAT, stream=True))
    with pytest.raises(ExceptionGroup):
        await app(http_scope(PATHS[CHAT]), client.receive, client.send)
    assert client.status == 200
    assert b"Hello" in client.body
    assert not client.finished
    assert [line.get("outcome") for line in lines.read()] == [None, "failed"]


@pytest.mark.parametrize(("headers", "protocol"), [(ANTHROPIC, MESSAGES), ({}, CHAT)])
async def test_a_bug_outside_of_the_endpoints(
    headers: dict[str, str], protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(app_module, "_json", broken)
    app, _ = app_of(settings=settings_of(cors_origins=("https://a.example",)))
    client = FakeClient()
    with pytest.raises(ZeroDivisionError):  # for the server's log
        await app(
            http_scope("/", "GET", {**headers, "origin": "https://a.example"}),
            client.receive,
            client.send,
        )
    check_refusal(protocol, client, 500)
    assert client.headers["access-control-allow-origin"] == "https://a.example"


class Gone(FakeClient):
    """A client that left, on a server whose `send` raises from the message of this number on."""

    def __init__(self, body: bytes, after: int) -> None:
        super().__init__(body)
        self.after = after

    async def send(self, message: MutableMapping[str, Any]) -> None:
        if len(self.messages) >= self.after:
            raise OSError("the client has gone")
        await super().send(message)


@pytest.mark.parametrize("after", [0, 1])
@pytest.mark.parametrize("body", [asking(CHAT, stream=True), asking(CHAT), b"{"])
async def test_a_client_that_send_does_not_reach(body: bytes, after: int, lines: LogLines) -> None:
    app, fake = app_of(HELLO, STOP, USAGE)
    client = Gone(body, after)
    await app(http_scope(PATHS[CHAT]), client.receive, client.send)
    assert fake.open_count == 0
    assert lines.one()["outcome"] == "client_left"


async def test_an_error_response_has_a_deadline() -> None:
    app = create_app(settings_of(), client=BrokenUpstreams(Script()))
    client = FakeClient(asking(CHAT), pace=3600)
    await app(http_scope(PATHS[CHAT]), client.receive, client.send)
    assert anyio.current_time() == pytest.approx(5, abs=0.1)


# Log lines of requests.


async def test_the_log_line_of_a_response(lines: LogLines) -> None:
    app, _ = app_of(HELLO, Sleep(2), STOP, USAGE)
    client = await call(app, PATHS[MESSAGES], asking(MESSAGES, stream=True, container="c"))
    line = lines.one()
    assert line.pop("time")
    assert line == {
        "level": "info",
        "logger": "dragoman.requests",
        "message": "request",
        "id": client.headers["dragoman-request-id"],
        "protocol": MESSAGES,
        "method": "POST",
        "path": "/v1/messages",
        "client_address": "127.0.0.1",
        "model": "up/m",
        "upstream": "up",
        "upstream_protocol": CHAT,
        "upstream_model": "m",
        "account": "up/default",
        "attempts": 1,
        "stream": True,
        "status": 200,
        "upstream_status": 200,
        "outcome": "completed",
        "first_byte_s": 0.0,
        "duration_s": 2.0,
        "input_tokens": 3,
        "output_tokens": 4,
        "losses": ["dropped /container"],
    }


async def test_the_line_of_a_client_that_sends_slowly(lines: LogLines) -> None:
    app, _ = app_of(Sleep(2), HELLO, STOP, USAGE)
    body = asking(MESSAGES, stream=True)
    client = FakeClient([body[:9], Sleep(7), body[9:]])
    await app(http_scope(PATHS[MESSAGES]), client.receive, client.send)
    line = lines.one()
    assert [line[each] for each in ("planned_s", "first_byte_s", "duration_s")] == [7, 2, 9]


@pytest.mark.parametrize("complete", [True, False])
async def test_the_line_of_a_client_that_left(complete: bool, lines: LogLines) -> None:
    app, fake = app_of(Sleep(100))
    client = FakeClient(asking(CHAT), leaves_after=3)
    if not complete:
        client._body.clear()
    await app(http_scope(PATHS[CHAT]), client.receive, client.send)
    line = lines.one()
    assert (line["level"], line["outcome"], line["duration_s"]) == ("info", "client_left", 3.0)
    assert client.messages == []
    assert fake.open_count == 0


async def test_the_address_in_a_line_is_that_of_the_client_before_a_trusted_proxy(lines: LogLines) -> None:
    app, _ = app_of(HELLO, STOP, USAGE, settings=settings_of(trusted_proxies=("127.0.0.1",)))
    for path in (PATHS[CHAT], "/nowhere"):
        await call(app, path, asking(CHAT), headers={"x-forwarded-for": "192.0.2.7"})
    assert [line["client_address"] for line in lines.read()] == ["192.0.2.7"] * 2


async def test_the_line_of_a_request_that_the_server_cancels(lines: LogLines) -> None:
    app, fake = app_of(Sleep(100))
    client = FakeClient(asking(CHAT))
    with anyio.move_on_after(2):
        await app(http_scope(PATHS[CHAT]), client.receive, client.send)
    line = lines.one()
    assert (line["outcome"], line["duration_s"], line["status"]) == ("cancelled", 2.0, 503)
    assert client.status == 503
    assert "send the request again" in client.error["message"]
    assert fake.open_count == 0


OPTIONS_PATHS: dict[str, set[str]] = {
    **{path: {"POST"} for path in PATHS.values()},
    "/v1/chat/completions": {"GET", "HEAD", "POST"},
    "/v1/models": {"GET", "HEAD"},
    "/v1/responses/resp_1": {"GET", "HEAD", "DELETE"},
    "/v1/responses/compact": {"POST"},
    "/": {"GET", "HEAD"},
    "/nothing": set(),
}


async def test_options_without_a_preflight_is_empty() -> None:
    for path, methods in OPTIONS_PATHS.items():
        app, _ = app_of()
        client = await call(app, path, method="OPTIONS")
        assert (client.status, client.body, client.headers["content-length"]) == (200, b"", "0"), path
        assert set(client.headers["allow"].split(", ")) == {*methods, "OPTIONS"}, path


# Relays: requests and responses are the same, byte for byte.

# Unlike our writers: blanks, escapes, numbers, a name twice, an unknown one.
ODD = (
    b'\r\n{ "zz_unknown" : {"b":1.00,"a":[ ]} ,"zz_unknown":-0.0, "model" :\t"up/m", "user": "\\u0068\\u00e9 \\/",'
    b'"max_tokens":1e2, "stream":STREAM,"input":"Hi","messages" : [ {"content": "Hi" ,"role":"user"}]} \n'
)
ODD_STREAMS = {
    protocol: s.render(protocol, payloads())
    .replace(b'":', b'" :  ')
    .replace(b"\n\n", b"\nid: 7\n: ok\n\n", 1)
    for protocol, payloads in (
        (CHAT, s.chat),
        (MESSAGES, s.messages),
        (RESPONSES, s.responses),
        (GEMINI, s.gemini),
    )
}
DECLARED = {
    "user-agent",
    "content-type",
    "accept",
    "authorization",
    "x-api-key",
    "x-goog-api-key",
    "anthropic-version",
}


@pytest.mark.promise("R12")
@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
@pytest.mark.parametrize("stream", [True, False])
async def test_a_relay_is_the_same_byte_for_byte(protocol: str, stream: bool) -> None:
    body = ODD.replace(b"STREAM", str(stream).lower().encode())
    response = json.dumps(whole(protocol, Text("H\u00e9llo")), indent=3).encode()
    if stream:
        response = ODD_STREAMS[protocol]
    # In chunks that respect nothing.
    chunks = [response[at : at + 7] for at in range(0, len(response), 7)]
    app, fake = app_of(*chunks, settings=settings_of(protocol))
    client = await call(app, path_of(protocol, "up/m", stream=stream), body, headers=CLIENT_SECRETS)
    assert client.status == 200
    # Gemini's servers take the model of the path, and get the same one in the body.
    assert fake.content == body.replace(b'"up/m"', b'"models/m"' if protocol == GEMINI else b'"m"')
    assert {name for name, _ in fake.sent_headers} <= DECLARED
    assert client.body == response


CLIENT_SECRETS = {
    "authorization": "Bearer client-canary-1",
    "x-api-key": "client-canary-2",
    "cookie": "session=client-canary-3",
    "proxy-authorization": "Basic client-canary-4",
    "api-key": "client-canary-5",
    "x-goog-api-key": "client-canary-6",
    "openai-organization": "client-canary-7",
    "openai-project": "client-canary-8",
    "x-forwarded-for": "client-canary-9",
}


# Health.


async def test_the_root_names_the_gateway() -> None:
    app, _ = app_of()
    client = await call(app, "/", method="GET")
    assert client.status == 200
    body = json.loads(client.body)
    assert (body["name"], body["endpoints"]) == ("dragoman", SERVED)
    assert (await call(app, "/", method="HEAD")).status == 200


# Inside another application.


async def test_mounted_in_another_application() -> None:
    gateway = create_app(Settings())  # with its own client

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with gateway.lifespan():
            yield

    outer = Starlette(routes=[Mount("/llm", gateway)], lifespan=lifespan)
    transport = httpx2.ASGITransport(outer)
    async with (
        outer.router.lifespan_context(outer),
        httpx2.AsyncClient(transport=transport, base_url="http://localhost") as http,
    ):
        response = await http.post("/llm/v1/messages", json={**request_body(MESSAGES), "model": "sim/echo"})
        assert response.json()["content"][0]["text"] == "Hi"
        assert (await http.get("/llm/readyz")).status_code == 200
        wrong = await http.get("/llm/v1/messages")
        assert check_error(MESSAGES, wrong.status_code, wrong.content) == []
        assert wrong.status_code == 405
        missing = await http.get("/llm/v1/messages/none")
        assert check_error(MESSAGES, missing.status_code, missing.content) == []
        assert missing.status_code == 404


# WebSocket.


@pytest.mark.parametrize(("path", "protocol"), [("/v1/responses", RESPONSES), ("/v1/messages", MESSAGES)])
async def test_a_websocket_is_refused_with_426_which_is_no_error(
    path: str, protocol: str, lines: LogLines
) -> None:
    app, _ = app_of(settings=Settings(server=ServerSettings(websocket=False)))
    async with websocket(app, path) as client:
        start, body = [message for _, message in client.messages]
    assert (start["type"], start["status"]) == ("websocket.http.response.start", 426)
    assert (body["type"], body["more_body"]) == ("websocket.http.response.body", False)
    assert check_error(protocol, 426, body["body"]) == []
    assert dict(start["headers"])[b"content-length"] == str(len(body["body"])).encode()
    line = lines.one()
    assert (line["status"], line["outcome"]) == (426, "websocket_refused")
    assert {"error", "error_kind"}.isdisjoint(line)


async def test_a_websocket_on_a_server_without_http_responses_to_it() -> None:
    app, _ = app_of()
    client = FakeWebSocketClient()
    scope = {**http_scope("/v1/messages"), "type": "websocket", "scheme": "ws", "subprotocols": []}
    await app(scope, client.receive, client.send)
    assert client.messages == [(0, {"type": "websocket.close", "code": 1008})]
