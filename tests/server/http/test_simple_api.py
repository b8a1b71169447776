"""The simple API over HTTP, in memory: three endpoints, their headers, their errors, heartbeats, the default model."""

import io
import json
import logging
from functools import partial
from typing import Any

import pytest
from gateway.fakes import FakeUpstream, OneResponse, Script, Sleep
from gateway.fakes import call as call_app
from oracle import CHAT, MESSAGES

from dragoman_server.app import Application, create_app
from dragoman_server.log import configure_logging
from dragoman_server.settings import ServerSettings, Settings, UpstreamSettings

pytestmark = pytest.mark.anyio

JSON, LINES, EVENTS = ENDPOINTS = ("/chat/json", "/chat/stream", "/chat/sse")
START = (
    b'data: {"id":"x","model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":"Hello"}}]}\n\n'
)
MORE = b'data: {"id":"x","model":"m","choices":[{"index":0,"delta":{"content":" you"}}]}\n\n'
END = b'data: {"id":"x","model":"m","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
WHOLE = json.dumps(
    {
        "id": "x",
        "object": "chat.completion",
        "created": 5,
        "model": "m",
        "choices": [
            {"index": 0, "message": {"role": "assistant", "content": "Hello you"}, "finish_reason": "stop"}
        ],
    }
).encode()
HI = [{"role": "user", "content": "Hello, world!"}]


def settings_of(protocol: str = CHAT, **server: Any) -> Settings:
    base = "http://127.0.0.1:9" if protocol == MESSAGES else "http://127.0.0.1:9/v1"
    names = ("up", "other")  # two, so that no name leads somewhere by itself
    upstreams = tuple(UpstreamSettings(name=name, protocol=protocol, base_url=base) for name in names)
    return Settings(server=ServerSettings(**server), upstreams=upstreams, models={"nick": "up/m"})


def app_of(script: Script, settings: Settings | None = None) -> tuple[Application, FakeUpstream]:
    upstreams = OneResponse(script)
    return create_app(settings or settings_of(), client=upstreams), upstreams.fake


call = partial(call_app, headers={"content-type": "application/json", "authorization": "Bearer your_api_key"})


def asking(**more: Any) -> dict[str, Any]:
    return {"model": "nick", "messages": HI, **more}


# --- responses -------------------------------------------------------------------------------------------------


async def test_a_whole_response() -> None:
    app, fake = app_of(Script([WHOLE]))
    client = await call(app, JSON, asking(temperature=0.7))
    assert (client.status, client.headers["content-type"]) == (200, "application/json")
    assert client.headers["content-length"] == str(len(client.body))
    value = json.loads(client.body)
    assert value.pop("id").startswith("cmpl-")
    assert type(value.pop("created")) is int
    assert value == {"model": "nick", "message": {"role": "assistant", "content": "Hello you"}, "done": True}
    assert fake.url == "http://127.0.0.1:9/v1/chat/completions"
    sent = json.loads(fake.content)
    assert (sent["model"], sent["messages"], sent["temperature"]) == ("m", HI, 0.7)
    assert "stream" not in sent


CHUNKS = [
    b'{"message":{"role":"assistant","content":"Hello"},"done":false,"index":0}',
    b'{"message":{"role":"assistant","content":" you"},"done":false,"index":1}',
]
DONE = b'{"message":{"role":"assistant","content":""},"done":true,"index":2}'
STREAMS = {
    LINES: b"".join(chunk + b"\n" for chunk in (*CHUNKS, DONE)),
    EVENTS: b"".join(b"data: " + chunk + b"\n\n" for chunk in (*CHUNKS, b"[DONE]")),
}


async def test_a_stream_of_lines() -> None:
    app, fake = app_of(Script([START, MORE, END]))
    client = await call(app, LINES, asking())
    assert client.body == STREAMS[LINES]
    assert json.loads(fake.content)["stream"] is True
    assert dict(fake.sent_headers)["accept"] == "text/event-stream"


# --- the default model -----------------------------------------------------------------------------------------


WITHOUT_MODEL: list[dict[str, Any]] = [{"messages": HI}, asking(model=None), asking(model="")]


@pytest.mark.parametrize("path", ENDPOINTS)
async def test_without_a_model_the_default_model_is_used(path: str) -> None:
    for body in WITHOUT_MODEL:
        app, fake = app_of(Script([START, MORE, END]), settings_of(default_model="nick"))
        client = await call(app, path, body)
        assert client.status == 200, (path, body)
        assert json.loads(fake.content)["model"] == "m", (path, body)
        if path == JSON:
            assert json.loads(client.body)["model"] == "nick", (path, body)


async def test_with_only_the_simulator_any_request_gets_a_response() -> None:
    app, _ = app_of(Script(), Settings())
    client = await call(app, JSON, {"messages": HI})
    assert json.loads(client.body)["model"] == "sim/echo"
    assert json.loads(client.body)["message"]["content"]


@pytest.fixture
def lines(logger: logging.Logger) -> io.StringIO:
    out = io.StringIO()
    configure_logging("info", "json", out)
    return out


# --- errors ----------------------------------------------------------------------------------------------------

REFUSED: list[tuple[dict[str, Any] | bytes, int, str]] = [
    (b"{", 400, "not valid JSON"),
    (b"[]", 400, "must be a JSON object"),
    (asking(model=5), 400, "model must be a string"),
    ({"model": "nick"}, 400, "messages must be an array of messages"),
    (asking(messages=[]), 400, "at least one message"),
    (asking(messages=[{"role": "tool", "content": "x"}]), 400, "messages[0].role must be one of"),
    (asking(temperature="hot"), 400, "temperature must be a number"),
    (asking(model="upp/m"), 404, 'did you mean "up/m"'),
]


@pytest.mark.parametrize("path", ENDPOINTS)
async def test_an_invalid_request_is_refused_with_its_reason(path: str) -> None:
    for body, status, message in REFUSED:
        app, fake = app_of(Script([WHOLE]))
        client = await call(app, path, body)
        assert client.status == status, body
        assert client.headers["content-type"] == "application/json", body
        assert list(json.loads(client.body)) == ["error"], body
        assert list(client.error) == ["message", "type", "code"], body
        assert message in client.error["message"], body
        assert fake.closed_at is None, "no upstream was called"


# --- heartbeats ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("path", "beat"), [(LINES, b" "), (EVENTS, b": keepalive\n\n")])
async def test_silence_is_filled(path: str, beat: bytes) -> None:
    app, _ = app_of(Script([START, Sleep(25), MORE, END], connect=[Sleep(15)]))
    client = await call(app, path, asking())
    beats = [when for when, message in client.messages if message.get("body") == beat]
    assert beats == [pytest.approx(10), pytest.approx(25), pytest.approx(35)]
    bodies = [message.get("body", b"") for _, message in client.messages]
    assert b"".join(body for body in bodies if body != beat) == STREAMS[path]
