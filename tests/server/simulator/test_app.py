"""The simulator over HTTP: its ASGI application, driven as a server drives it."""

import json
import re
from typing import Any

import anyio
import pytest
from gateway.fakes import FakeClient, Sleep, http_scope
from oracle import check_error, check_models, check_stream, check_whole
from simulator_requests import (
    CHAT,
    GEMINI,
    MESSAGES,
    PROTOCOL_NAMES,
    Body,
    encoded,
    request_body,
    requested_path,
)
from starlette.types import ASGIApp

from dragoman._wire import json as wire_json
from dragoman_server.simulator import MODELS, app, create_simulator_app

pytestmark = pytest.mark.anyio


async def served(
    path: str,
    *body: bytes | Sleep,
    application: ASGIApp | None = None,
    leaves_at: float | None = None,
    **more: Any,
) -> FakeClient:
    """A client that has sent these pieces, and got what there was until it left. more: of its scope."""
    client = FakeClient(body or b"", leaves_at)
    await (application or create_simulator_app())(http_scope(path, **more), client.receive, client.send)
    return client


async def requested(
    protocol: str, body: Body, prefix: str = "/v1", *, complete: bool = True, **more: Any
) -> FakeClient:
    path, data = re.sub("^/v1(beta)?", prefix, requested_path(protocol, body)), encoded(body)
    if not complete:
        more["leaves_at"] = 0
    return await served(path, data[:9], data[9:] if complete else Sleep(1), **more)


@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
@pytest.mark.parametrize("prefix", ["/v1", ""])
async def test_every_protocol_is_served(protocol: str, prefix: str) -> None:
    streamed = await requested(protocol, request_body(protocol, "echo", stream=True), prefix)
    assert streamed.finished
    assert streamed.headers["content-type"].startswith("text/event-stream")
    assert check_stream(protocol, streamed.body, include_usage=True) == []
    whole = await requested(protocol, request_body(protocol, "echo"), prefix)
    assert whole.finished
    assert check_whole(protocol, whole.body) == []
    assert whole.headers["content-length"] == str(len(whole.body))


@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
async def test_errors_keep_their_status_and_headers(protocol: str) -> None:
    response = await requested(protocol, request_body(protocol, "error-429@3"))
    assert (response.status, response.headers["retry-after"]) == (429, "3")
    assert check_error(protocol, 429, response.body) == []


@pytest.mark.parametrize("stream", [True, False])
async def test_a_cut_leaves_the_response_unfinished(stream: bool) -> None:
    response = await requested(CHAT, request_body(CHAT, "cut", stream=stream))
    assert response.status == 200
    assert response.body
    assert not response.finished


async def test_an_end_that_is_missing_is_a_proper_end_of_the_body() -> None:
    response = await requested(CHAT, request_body(CHAT, "cut-end", stream=True))
    assert response.finished
    assert b"[DONE]" not in response.body


@pytest.mark.parametrize(("model", "stream"), [("silent", True), ("silent", False), ("slow", True)])
async def test_a_client_that_leaves_ends_the_script(model: str, stream: bool) -> None:
    begun = anyio.current_time()
    response = await requested(CHAT, request_body(CHAT, model, stream=stream), leaves_at=2.1)
    assert anyio.current_time() - begun == pytest.approx(2.1)
    assert not response.finished


async def test_a_client_that_leaves_inside_its_request_is_dropped() -> None:
    response = await requested(CHAT, request_body(CHAT, "echo"), complete=False)
    assert response.messages == []


@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
async def test_a_body_has_a_limit(protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (app, wire_json):
        monkeypatch.setattr(module, "MAX_DOCUMENT_BYTES", 10)
    response = await requested(protocol, request_body(protocol, "echo"))
    assert response.status == 413
    # Gemini has no 413.
    assert check_error(protocol, 400 if protocol == GEMINI else 413, response.body) == []


async def test_the_requests_are_counted_by_how_they_went() -> None:
    application = create_simulator_app()

    async def counts() -> tuple[int, int, int]:
        response = await served("/stats", method="GET", application=application)
        assert response.headers["content-type"] == "application/json"
        found = json.loads(response.body)
        return found["opened"], found["closed"], found["aborted"]

    async def request(model: str, **more: Any) -> None:
        await requested(CHAT, request_body(CHAT, model, stream=True), application=application, **more)

    assert await counts() == (0, 0, 0)
    for model in ("echo", "error-500", "cut", "cut-end"):
        await request(model)
    assert await counts() == (4, 4, 0)
    await request("silent", leaves_at=1)
    assert await counts() == (5, 5, 1)
    await request("echo", complete=False)
    assert await counts() == (6, 6, 2)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(request, "silent")
        await anyio.sleep(1)
        assert await counts() == (7, 6, 2)
        # The server itself stops.
        tasks.cancel_scope.cancel()
    assert await counts() == (7, 7, 3)


async def test_a_conversation_is_summed_up() -> None:
    response = await served("/v1/responses/compact", encoded({"model": "echo", "input": "Build a ship"}))
    assert (response.status, json.loads(response.body)["object"]) == (200, "response.compaction")


@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
async def test_models_are_listed(protocol: str) -> None:
    headers = {"anthropic-version": "2023-06-01"} if protocol == MESSAGES else {}
    response = await served("/v1/models", method="GET", headers=headers)
    assert check_models(protocol, response.body) == []
    assert [entry["id"] for entry in json.loads(response.body)["data"]] == list(MODELS)


@pytest.mark.parametrize(
    ("method", "path", "status"), [("GET", "/nowhere", 404), ("GET", "/v1/messages", 405)]
)
async def test_other_paths_are_not_found(method: str, path: str, status: int) -> None:
    response = await served(path, method=method)
    assert response.status == status
    assert path in json.loads(response.body)["error"]["message"]
