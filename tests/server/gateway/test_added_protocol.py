"""A protocol that an application adds to the gateway at run time: no module of the product names it."""

# ruff: noqa: E501 -- the tables are read by row

import json
from typing import Any

import pytest
from core.toy_protocol import HEARTBEAT, context_of, events_of, stream_of, toy
from gateway.fakes import FakeUpstream, OneResponse, Script, Sleep, call

from dragoman import PROTOCOLS, StopReason
from dragoman._ir.events import ENDED
from dragoman.codec import UpstreamSpec
from dragoman.events import BlockEnded, BlockKind, BlockStarted, Failed, Started, Stopped, TextDelta
from dragoman_server.app import Application, create_app
from dragoman_server.settings import Settings, UpstreamSettings

pytestmark = pytest.mark.anyio

CHAT = "openai_chat"
PROTOCOL_NAMES = {**PROTOCOLS, "toy": toy()}
CHAT_STREAM = (
    b'data: {"id":"x","model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":"Hello"}}]}\n\n'
    b'data: {"id":"x","model":"m","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
)
TOY_STREAM = stream_of(
    [Started("t1", "m"), BlockStarted(0, BlockKind.TEXT), TextDelta(0, "Hello"), BlockEnded(0), Stopped(StopReason.END), ENDED]
)  # fmt: skip


def app_of(upstream: str, *steps: Any, **script: Any) -> tuple[Application, FakeUpstream]:
    """Return a gateway whose upstream `up` has this protocol."""
    upstreams = OneResponse(Script(list(steps), **script))
    base = UpstreamSettings(name="up", protocol=upstream, base_url="http://127.0.0.1:9/v1")
    return create_app(Settings(upstreams=(base,)), client=upstreams, protocols=PROTOCOL_NAMES), upstreams.fake


def asking(**more: Any) -> dict[str, Any]:
    parts = [{"t": "text", "text": "Hi"}]
    return {"model": "up/m", "messages": [{"role": "user", "parts": parts}], **more}


async def test_whole() -> None:
    app, fake = app_of(CHAT, CHAT_STREAM)
    client = await call(app, "/v1/toy", asking())
    assert client.status == 200
    assert [block["block"]["text"] for block in json.loads(client.body)["blocks"]] == ["Hello"]
    assert json.loads(fake.content)["messages"] == [{"role": "user", "content": "Hi"}]


async def test_streamed() -> None:
    app, fake = app_of(CHAT, Sleep(15), CHAT_STREAM)
    client = await call(app, "/v1/toy", asking(stream=True))
    assert client.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert client.messages[1][1]["body"] == HEARTBEAT
    reported = events_of(client.body)
    assert [event.text for event in reported if isinstance(event, TextDelta)] == ["Hello"]
    assert reported[-1] == ENDED
    assert json.loads(fake.content)["stream"] is True


async def test_errors() -> None:
    app, fake = app_of(CHAT, b'{"error":{"message":"busy"}}', status=503)
    client = await call(app, "/v1/toy", asking())
    assert client.status == 503
    oops = json.loads(client.body)["oops"]
    assert (oops["kind"], oops["message"]) == ("overloaded", "busy")

    client = await call(app, "/v1/toy", {"messages": []})
    assert client.status == 400
    assert json.loads(client.body)["oops"]["param"] == "model"
    client = await call(app, "/v1/toy/elsewhere", {})
    assert client.status == 404
    assert "POST /v1/toy" in json.loads(client.body)["oops"]["message"]

    app, fake = app_of(CHAT, CHAT_STREAM[:110])
    client = await call(app, "/v1/toy", asking(stream=True))
    assert isinstance(events_of(client.body)[-1], Failed)
    assert fake.closed_at is not None


@pytest.mark.parametrize("stream", [True, False])
async def test_an_upstream_of_the_protocol_is_relayed(stream: bool) -> None:
    body = (
        TOY_STREAM
        if stream
        else b'{"started":{"id":"t","model":"m"}, "blocks": [], "stops": [{"reason":"end"}]}'
    )
    app, fake = app_of("toy", body)
    assert (await call(app, "/v1/toy", asking(stream=stream))).body == body
    assert fake.url == "http://127.0.0.1:9/v1/toy"


async def test_clients_of_other_protocols_reach_it() -> None:
    app, fake = app_of("toy", TOY_STREAM)
    messages = [{"role": "user", "content": "Hi"}]
    client = await call(app, "/v1/chat/completions", {"model": "up/m", "messages": messages})
    assert json.loads(client.body)["choices"][0]["message"]["content"] == "Hello"
    assert json.loads(fake.content)["messages"][0]["parts"] == [{"t": "text", "text": "Hi"}]


async def test_a_gateway_without_the_protocol_does_not_serve_it() -> None:
    client = await call(create_app(Settings()), "/v1/toy", asking())
    assert client.status == 404


def test_the_protocol_is_one_object_outside_the_registry() -> None:
    assert isinstance(PROTOCOL_NAMES["toy"], UpstreamSpec)
    assert "toy" not in PROTOCOLS
    assert context_of().endpoint is None
