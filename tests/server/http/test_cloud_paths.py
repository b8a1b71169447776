"""The paths of clouds: what an upstream gets of a request, and what its client gets, as rows of cloud_paths.txt."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import anyio
import httpx2
import rows
from gateway.fakes import call, http_scope
from gateway.mocked import mocked

from dragoman import UPSTREAMS
from dragoman._wire.sse import encode_frame
from dragoman.codec import AwsMessageReader
from dragoman_server.http.cloud_paths import enter
from dragoman_server.settings import Settings, UpstreamSettings

ROWS = Path(__file__).with_name("cloud_paths.txt")
OF_BODIES = ("anthropic-version", "anthropic-beta", "anthropic-user-profile-id")
OF_CLOUDS = ("content-type", "x-amzn-errortype", "x-amzn-requestid")
MESSAGE: Any = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "usage": {}}
TEXT = {"type": "text", "text": "Hi"}
EVENTS = [
    {"type": "message_start", "message": {**MESSAGE, "content": []}},
    {"type": "ping"},
    {"type": "content_block_start", "index": 0, "content_block": TEXT},
    {"type": "content_block_stop", "index": 0},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 1}},
    {"type": "message_stop"},
]
# By the name of the model.
BROKEN = {
    "busy": {"type": "error", "error": {"type": "overloaded_error", "message": "Busy"}},
    "denied": {"type": "error", "error": {"type": "permission_error", "message": "Not you"}},
}
REFUSED = {"type": "error", "error": {"type": "rate_limit_error", "message": "Slow down"}}
WHOLE: dict[str, Any] = {
    "/v1/messages": {**MESSAGE, "content": [TEXT], "stop_reason": "end_turn"},
    "/v1/messages/count_tokens": {"input_tokens": 7},
    "/v1/chat/completions": {
        "choices": [{"index": 0, "message": {"content": "Hi"}, "finish_reason": "stop"}]
    },
    "/v1/responses": {"object": "response", "output": [], "status": "completed"},
}


def stream(events: list[Any]) -> bytes:
    return b"".join(encode_frame(json.dumps(each).encode(), each["type"].encode()) for each in events)


def respond(request: httpx2.Request) -> httpx2.Response:
    body = json.loads(request.content)
    if body.get("model") == "refused":
        return httpx2.Response(429, json=REFUSED)
    if body.get("stream"):
        broken = BROKEN.get(body["model"])
        events = EVENTS if broken is None else [*EVENTS[:3], broken]
        return httpx2.Response(200, content=stream(events), headers={"content-type": "text/event-stream"})
    candidates = [{"content": {"parts": []}}]
    return httpx2.Response(200, json=WHOLE.get(request.url.path, {"candidates": candidates}))


def shown(body: bytes, media_type: str) -> Iterator[str]:
    if media_type != "application/vnd.amazon.eventstream":
        yield re.sub('(this gateway serves).*(?=")', r"\1 ...", body.decode()).strip().replace("\n\n", "\n")
        return
    for message in AwsMessageReader().receive_data(body):
        yield f"{json.dumps(message.headers)} {message.payload.decode()}"


def asked(
    path: str, body: bytes, headers: dict[str, str] | None = None, **scope: Any
) -> tuple[Any, list[Any]]:
    """Return the client, and what the upstream got."""
    requests: list[httpx2.Request] = []
    upstream = UpstreamSettings(
        name="up",
        protocol="anthropic_messages",
        protocols=tuple(UPSTREAMS),
        base_url="http://up.test",
        counts_tokens=True,
    )

    async def ask() -> Any:
        settings = Settings(upstreams=(upstream,), models={"*": "up/*"})
        async with mocked(settings, lambda request: requests.append(request) or respond(request)) as app:
            return await call(app, path, body, headers=headers, **scope)

    return anyio.run(ask), requests


def received(lines: list[str]) -> list[str]:
    path, _, query = unquote(lines[0]).partition("?")
    headers, end = json.JSONDecoder().raw_decode(lines[1])
    client, requests = asked(f"{path}?{query}", lines[1][end:].encode(), headers)
    out = []
    for request in requests:
        of_bodies = [f"{name}: {request.headers[name]}" for name in OF_BODIES if name in request.headers]
        out += [request.url.raw_path.decode(), *of_bodies, request.content.decode()]
    of_clouds = [f"{name}: {client.headers[name]}" for name in OF_CLOUDS if name in client.headers]
    of_clouds = [re.sub("[0-9a-f]{32}", "ID", each) for each in of_clouds]
    return [*out, f"-> {client.status}", *of_clouds, *shown(client.body, client.headers["content-type"])]


def test_what_comes_at_the_paths_of_clouds() -> None:
    rows.check(ROWS, received)


def test_below_a_mount() -> None:
    path = "/gate/model/anthropic.claude-x/invoke"
    client, [request] = asked(path, b'{"max_tokens": 9, "messages": []}', root_path="/gate")
    assert (client.status, json.loads(request.content)["model"]) == (200, "anthropic.claude-x")
    _, scope, _ = enter(http_scope(path, root_path="/gate"), client.send)
    assert scope["path"] == "/gate/v1/messages"


def test_forms_keep_their_bytes() -> None:
    """The deployment in the path is the model of whatever reads them."""
    headers = {"content-type": "multipart/form-data; boundary=b"}
    _, [request] = asked("/openai/deployments/d/chat/completions", b'{"messages": []}', headers)
    assert request.content == b'{"model":"d","messages": []}'


def test_a_header_that_comes_in_the_body_has_a_limit() -> None:
    for count, status in ((4096, 200), (4097, 400)):
        body = {"anthropic_beta": ["a"] * count, "max_tokens": 9, "messages": []}
        client, _ = asked("/model/anthropic.claude-x/invoke", json.dumps(body).encode())
        assert client.status == status
