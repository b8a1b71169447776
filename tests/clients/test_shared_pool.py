"""Two gateway processes that share the state of their accounts, and what happens when they cannot."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
from command.process import DEADLINE_S, Server
from edge import wait_until
from trials import MAX_TRIALS, trials
from valkey_server import ValkeyServer, valkey_server

# The state that the other gateway must have by then.
KNOWN_WITHIN_S = 0.1

RESPONSE = json.dumps(
    {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    }
).encode()
BUSY = b'{"error":{"message":"slow down","type":"rate_limit_error","code":"rate_limit_exceeded"}}'


class Provider(ThreadingHTTPServer):
    """Responds by key. busy: the keys that have a rate limit now. requests: their keys, with their times."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.busy: set[str] = set()
        self.requests: list[tuple[str, float]] = []

    def keys(self) -> list[str]:
        return [key for key, _ in self.requests]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Provider

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        key = self.headers["authorization"].removeprefix("Bearer ")
        self.server.requests.append((key, time.monotonic()))
        busy = key in self.server.busy
        body = BUSY if busy else RESPONSE
        self.send_response(429 if busy else 200)
        if busy:
            self.send_header("retry-after", "60")
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        pass


class Gateway(Server):
    COMMAND: ClassVar[tuple[str, ...]] = ("-m", "dragoman_server", "serve", "--port", "0")

    def request(self, number: int = 0) -> int:
        """Return the status of one small request to the upstream with this number."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE_S)
        try:
            body = json.dumps({"model": f"up{number}/m", "messages": [{"role": "user", "content": "Hi"}]})
            connection.request("POST", "/v1/chat/completions", body, {"content-type": "application/json"})
            response = connection.getresponse()
            response.read()
            return response.status
        finally:
            connection.close()


@pytest.fixture
def store() -> Iterator[ValkeyServer]:
    with valkey_server() as server:
        yield server


@pytest.fixture
def provider() -> Iterator[Provider]:
    server = Provider()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(params=["asyncio", "trio"])
def gateways(
    request: pytest.FixtureRequest, store: ValkeyServer, provider: Provider, tmp_path: Path
) -> Iterator[list[Gateway]]:
    file = tmp_path / "dragoman.toml"
    lines = ["[server]", "simulator = false", 'log_level = "warning"', 'account_store = "valkey"']
    lines += [f'account_store_url = "{store.url}"']
    for number in range(MAX_TRIALS):
        upstream = f"up{number}"
        lines += ["[[upstreams]]", f'name = "{upstream}"', 'protocol = "openai_chat"', "sticky = false"]
        lines += [f'base_url = "http://127.0.0.1:{provider.server_address[1]}/v1"']
        for name in ("one", "two"):
            lines += ["[[accounts]]", f'upstream = "{upstream}"']
            lines += [f'name = "{name}"', f'api_key = "{name}-{number}"']
    file.write_text("\n".join(lines) + "\n", "utf-8")
    with ExitStack() as stack:
        arguments = ("--config", str(file), "--backend", request.param)
        found = [stack.enter_context(Gateway(*arguments)) for _ in range(2)]
        for each in found:
            each.ready()
        yield found


def test_an_account_disabled_by_one_gateway_is_disabled_for_the_other(
    gateways: list[Gateway], provider: Provider
) -> None:
    first, second = gateways
    for number, trial in enumerate(trials()):
        busy, free = f"one-{number}", f"two-{number}"
        provider.busy.add(busy)
        provider.requests.clear()
        assert first.request(number) == 200
        assert provider.keys() == [busy, free], "the first account refused, the second responded"
        reported = provider.requests[0][1]
        time.sleep(max(0.0, reported + KNOWN_WITHIN_S - time.monotonic()))
        assert [second.request(number) for _ in range(6)] == [200] * 6
        with trial:
            assert provider.keys()[2:] == [free] * 6


def test_the_store_dies_under_load_and_no_request_fails(
    gateways: list[Gateway], provider: Provider, store: ValkeyServer
) -> None:
    over = threading.Event()

    def load(gateway: Gateway) -> list[int]:
        found = []
        while not over.is_set():
            found.append(gateway.request())
        return found

    def go_on(seconds: float) -> None:
        """At least so long, and for so many requests that each of the eight has begun one meanwhile."""
        requested = len(provider.requests)
        time.sleep(seconds)
        wait_until(lambda: len(provider.requests) > requested + 16)

    with ThreadPoolExecutor(8) as pool:
        runs = [pool.submit(load, gateway) for gateway in gateways * 4]
        try:
            go_on(0.8)
            store.kill()
            go_on(0.8)
            store.start()
            go_on(0.4)
            store.pause()
            go_on(0.4)
            store.resume()
            go_on(0.4)
        finally:
            over.set()
        statuses = [status for run in runs for status in run.result()]
    assert set(statuses) == {200}
    assert set(provider.keys()) == {"one-0", "two-0"}
