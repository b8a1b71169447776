"""The simple API from outside: its three endpoints by an ordinary HTTP client, over every upstream protocol."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
import pytest
from oracle import (
    SIMPLE_EVENTS,
    SIMPLE_LINES,
    Stop,
    check_error,
    check_stream,
    check_whole,
    meaning_of_client_stream,
)
from oracle.meaning import Kind
from sdk_clients.processes import ALIAS, KEEPALIVE_S, UPSTREAMS, Gateway, Simulator, each_backend
from trials import trials

pytestmark = pytest.mark.process

JSON, LINES, EVENTS = ENDPOINTS = ("/chat/json", "/chat/stream", "/chat/sse")
FORMS = {LINES: SIMPLE_LINES, EVENTS: SIMPLE_EVENTS}
TYPES = {LINES: "application/json", EVENTS: "text/event-stream"}
TEXT = "It was a \u201csmall\u201d day.\nAnd then \U0001f600?"
ABORT_S = 0.25
# A silence of three and a half heartbeat intervals.
SILENCE_S = KEEPALIVE_S * 3.5


@pytest.fixture(params=UPSTREAMS.values())
def upstream(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def asking(model: str | None, text: str = TEXT, **more: Any) -> dict[str, Any]:
    body = {
        "messages": [{"role": "system", "content": "Be kind."}, {"role": "user", "content": text}],
        **more,
    }
    return body if model is None else {"model": model, **body}


def post(gateway: Gateway, path: str, body: Any) -> httpx2.Response:
    return httpx2.post(gateway.url + path, json=body, timeout=60)


@contextmanager
def stream(gateway: Gateway, path: str, body: Any) -> Iterator[httpx2.Response]:
    with (
        httpx2.Client(timeout=60) as client,
        client.stream("POST", gateway.url + path, json=body) as response,
    ):
        yield response


def test_a_whole_response(gateway: Gateway, upstream: str) -> None:
    response = post(gateway, JSON, asking(f"{upstream}/echo", temperature=0.7))
    assert (response.status_code, response.headers["content-type"]) == (200, "application/json")
    assert check_whole(SIMPLE_LINES, response.content) == []
    assert response.json()["message"]["content"] == TEXT
    assert response.json()["model"] == f"{upstream}/echo"


@pytest.mark.parametrize("path", [LINES, EVENTS])
def test_a_stream(gateway: Gateway, upstream: str, path: str) -> None:
    with stream(gateway, path, asking(f"{upstream}/echo")) as response:
        body = response.read()
        assert response.status_code == 200
        assert response.headers["content-type"] == TYPES[path]
        assert response.headers["transfer-encoding"] == "chunked"
        assert response.headers["cache-control"] == "no-cache"
        assert "connection" not in response.headers, "it persists (RFC 9112, 9.3)"
    assert check_stream(FORMS[path], body) == []
    received = meaning_of_client_stream(FORMS[path], body)
    assert (received.text(Kind.TEXT), received.stop) == (TEXT, Stop.END)


@pytest.mark.parametrize("path", ENDPOINTS)
def test_without_a_model(gateway: Gateway, path: str) -> None:
    response = post(gateway, path, asking(None, "Hello"))
    assert response.status_code == 200
    assert b"Hello" in response.content
    if path == JSON:
        assert response.json()["model"] == ALIAS


# Beats depend on the endpoint and on whether the response has begun; each upstream protocol is met once.
@pytest.mark.parametrize(
    ("path", "upstream", "model"),
    [
        (LINES, "chat", "silent"),
        (LINES, "messages", "pause"),
        (EVENTS, "responses", "silent"),
        (EVENTS, "chat", "pause"),
    ],
)
@each_backend
def test_heartbeats_fill_silence(gateway: Gateway, path: str, upstream: str, model: str) -> None:
    body = asking(f"{upstream}/{model}@{SILENCE_S:g}")
    for trial in trials():
        with stream(gateway, path, body) as response:
            sent = b"".join(response.iter_raw())
        assert check_stream(FORMS[path], sent) == []
        received = meaning_of_client_stream(FORMS[path], sent)
        assert (len(received.text(Kind.TEXT).split()), received.stop) == (20, Stop.END)
        beats = [line for line in sent.splitlines() if line.startswith(b"  " if path == LINES else b":")]
        with trial:
            assert beats


@pytest.mark.parametrize("model", ["cut", "cut-end", "error-mid"])
@pytest.mark.parametrize("path", [LINES, EVENTS])
def test_a_stream_that_breaks_off_ends_in_an_error(
    gateway: Gateway, upstream: str, path: str, model: str
) -> None:
    response = post(gateway, path, asking(f"{upstream}/{model}"))
    assert response.status_code == 200
    assert check_stream(FORMS[path], response.content) == []
    received = meaning_of_client_stream(FORMS[path], response.content)
    assert received.stop is Stop.ERROR
    assert received.text(Kind.TEXT)
    assert received.failure is not None
    assert received.failure.message


def test_a_whole_response_that_breaks_off_is_an_http_error(gateway: Gateway, upstream: str) -> None:
    response = post(gateway, JSON, asking(f"{upstream}/cut"))
    assert response.status_code == 502
    assert check_error(SIMPLE_LINES, 502, response.content) == []


@pytest.mark.parametrize("path", ENDPOINTS)
def test_errors_of_the_upstream(gateway: Gateway, upstream: str, path: str) -> None:
    for model, status, code in (
        ("error-401", 401, "invalid_api_key"),
        ("error-429", 429, "rate_limit_exceeded"),
        ("error-context", 400, "context_length_exceeded"),
        ("error-529", 503, "overloaded"),
    ):
        response = post(gateway, path, asking(f"{upstream}/{model}"))
        assert response.status_code == status
        assert check_error(SIMPLE_LINES, status, response.content) == []
        assert response.json()["error"]["code"] == code


@each_backend
@pytest.mark.parametrize("path", [LINES, EVENTS])
def test_chunks_come_as_they_are_made_and_a_client_that_leaves_stops_the_upstream(
    gateway: Gateway, upstream: str, simulator: Simulator, path: str
) -> None:
    def is_open() -> bool:
        """Return True if the upstream has not ended its response."""
        counts = simulator.stats()
        return counts["opened"] > counts["closed"]

    for trial in trials():
        before = simulator.settled()
        with stream(gateway, path, asking(f"{upstream}/pause@30")) as response:
            next(line for line in response.iter_lines() if "stood" in line and is_open())
        with trial:
            simulator.wait_for("aborted", before["aborted"] + 1, within_s=ABORT_S)


@each_backend
def test_a_client_that_leaves_before_a_whole_response_stops_the_upstream(
    gateway: Gateway, upstream: str, simulator: Simulator
) -> None:
    for trial in trials():
        before = simulator.settled()
        with pytest.raises(httpx2.ReadTimeout):
            httpx2.post(gateway.url + JSON, json=asking(f"{upstream}/silent@30"), timeout=0.2)
        with trial:
            simulator.wait_for("aborted", before["aborted"] + 1, within_s=ABORT_S)


def test_left_out_reasoning_is_in_the_header(gateway: Gateway, upstream: str) -> None:
    response = post(gateway, JSON, asking(f"{upstream}/reasoning", "Hello"))
    assert response.status_code == 200
    assert response.json()["message"]["content"]
    assert "/reasoning" in response.headers["dragoman-loss"]


def test_each_line_is_plain_json(gateway: Gateway) -> None:
    with stream(gateway, LINES, asking("chat/echo", "a b c")) as response:
        values = [json.loads(line) for line in response.iter_lines()]
    assert [value["index"] for value in values] == list(range(len(values)))
    assert [value["done"] for value in values] == [False] * (len(values) - 1) + [True]
