"""The simulator over HTTP: its ASGI application, driven as a server drives it."""

import json
import re
from collections.abc import MutableMapping
from typing import Any

import anyio
import pytest
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

Message = MutableMapping[str, Any]


class Server:
    """One request as a server would carry it. `leaves_s`: when the client goes, None for never."""

    def __init__(
        self,
        path: str,
        body: bytes = b"",
        *,
        method: str = "POST",
        headers: list[tuple[bytes, bytes]] | None = None,
        leaves_s: float | None = None,
        complete: bool = True,
    ) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body = b""
        self.complete = False
        self._leaves_s = leaves_s
        half = len(body) // 2
        self._inbox: list[Message] = [
            {"type": "http.request", "body": body[:half], "more_body": True},
            {"type": "http.request", "body": body[half:], "more_body": not complete},
        ]
        self._scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path.partition("?")[0],
            "raw_path": path.partition("?")[0].encode(),
            "query_string": path.partition("?")[2].encode(),
            "root_path": "",
            "headers": headers or [],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 2),
        }

    async def run(self, application: ASGIApp | None = None) -> "Server":
        await (application or create_simulator_app())(self._scope, self._receive, self._send)
        return self

    async def _receive(self) -> Message:
        if self._inbox:
            return self._inbox.pop(0)
        await (anyio.sleep_forever() if self._leaves_s is None else anyio.sleep(self._leaves_s))
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {name.decode(): value.decode() for name, value in message["headers"]}
        else:
            assert not self.complete
            self.body += message.get("body", b"")
            self.complete = not message.get("more_body", False)


def requested(protocol: str, body: Body, prefix: str = "/v1", **options: Any) -> Server:
    path = re.sub("^/v1(beta)?", prefix, requested_path(protocol, body))
    return Server(path, encoded(body), **options)


@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
@pytest.mark.parametrize("prefix", ["/v1", ""])
async def test_every_protocol_is_served(protocol: str, prefix: str) -> None:
    streamed = await requested(protocol, request_body(protocol, "echo", stream=True), prefix).run()
    assert streamed.complete
    assert streamed.headers["content-type"].startswith("text/event-stream")
    assert check_stream(protocol, streamed.body, include_usage=True) == []
    whole = await requested(protocol, request_body(protocol, "echo"), prefix).run()
    assert whole.complete
    assert check_whole(protocol, whole.body) == []
    assert whole.headers["content-length"] == str(len(whole.body))


@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
async def test_errors_keep_their_status_and_headers(protocol: str) -> None:
    served = await requested(protocol, request_body(protocol, "error-429@3")).run()
    assert (served.status, served.headers["retry-after"]) == (429, "3")
    assert check_error(protocol, 429, served.body) == []


@pytest.mark.parametrize("stream", [True, False])
async def test_a_cut_leaves_the_response_unfinished(stream: bool) -> None:
    served = await requested(CHAT, request_body(CHAT, "cut", stream=stream)).run()
    assert served.status == 200
    assert served.body
    assert not served.complete


async def test_an_end_that_is_missing_is_a_proper_end_of_the_body() -> None:
    served = await requested(CHAT, request_body(CHAT, "cut-end", stream=True)).run()
    assert served.complete
    assert b"[DONE]" not in served.body


@pytest.mark.parametrize(("model", "stream"), [("silent", True), ("silent", False), ("slow", True)])
async def test_a_client_that_leaves_ends_the_script(model: str, stream: bool) -> None:
    begun = anyio.current_time()
    served = await requested(CHAT, request_body(CHAT, model, stream=stream), leaves_s=2.1).run()
    assert anyio.current_time() - begun == pytest.approx(2.1)
    assert not served.complete


async def test_a_client_that_leaves_inside_its_request_is_dropped() -> None:
    served = await requested(CHAT, request_body(CHAT, "echo"), complete=False, leaves_s=1).run()
    assert served.status == 0


@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
async def test_a_body_has_a_limit(protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (app, wire_json):
        monkeypatch.setattr(module, "MAX_DOCUMENT_BYTES", 10)
    served = await requested(protocol, request_body(protocol, "echo")).run()
    assert served.status == 413
    # Gemini has no 413.
    assert check_error(protocol, 400 if protocol == GEMINI else 413, served.body) == []


async def test_the_requests_are_counted_by_how_they_went() -> None:
    application = create_simulator_app()

    async def counts() -> tuple[int, int, int]:
        served = await Server("/stats", method="GET").run(application)
        assert served.headers["content-type"] == "application/json"
        found = json.loads(served.body)
        return found["opened"], found["closed"], found["aborted"]

    def request(model: str, **options: Any) -> Server:
        return requested(CHAT, request_body(CHAT, model, stream=True), **options)

    assert await counts() == (0, 0, 0)
    for model in ("echo", "error-500", "cut", "cut-end"):
        await request(model).run(application)
    assert await counts() == (4, 4, 0)
    await request("silent", leaves_s=1).run(application)
    assert await counts() == (5, 5, 1)
    await request("echo", complete=False, leaves_s=1).run(application)
    assert await counts() == (6, 6, 2)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(request("silent").run, application)
        await anyio.sleep(1)
        assert await counts() == (7, 6, 2)
        # The server itself stops.
        tasks.cancel_scope.cancel()
    assert await counts() == (7, 7, 3)


async def test_a_conversation_is_summed_up() -> None:
    served = await Server("/v1/responses/compact", encoded({"model": "echo", "input": "Build a ship"})).run()
    assert (served.status, json.loads(served.body)["object"]) == (200, "response.compaction")


@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
async def test_models_are_listed(protocol: str) -> None:
    headers = [(b"anthropic-version", b"2023-06-01")] if protocol == MESSAGES else []
    served = await Server("/v1/models", method="GET", headers=headers).run()
    assert check_models(protocol, served.body) == []
    assert [entry["id"] for entry in json.loads(served.body)["data"]] == list(MODELS)


@pytest.mark.parametrize(
    ("method", "path", "status"), [("GET", "/nowhere", 404), ("GET", "/v1/messages", 405)]
)
async def test_other_paths_are_not_found(method: str, path: str, status: int) -> None:
    served = await Server(path, method=method).run()
    assert served.status == status
    assert path in json.loads(served.body)["error"]["message"]
