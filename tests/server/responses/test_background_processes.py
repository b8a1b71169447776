"""Responses in the background at real gateways that share a store: one is killed, and each cancels the other's."""

import json
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from command.process import DEADLINE_S, GatewayProcess
from sdk_clients.processes import Simulator

from dragoman_server.responses.background import LEASE_S

pytestmark = pytest.mark.process

RESPONSES = 50
DRAIN_S = 3.0
PATH = "/v1/responses"


class Gateway(GatewayProcess):
    def call(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        response, text = self.request(method, path, body)
        assert response.status == 200, text
        found: dict[str, Any] = json.loads(text)
        return found

    def begin(self, words: int) -> str:
        """Begin a response that takes a second for ten words."""
        text = "word " * words
        body = {"model": "up/echo@10", "input": text, "background": True, "stream": words % 2 == 0}
        if not body["stream"]:
            return str(self.call("POST", PATH, body)["id"])
        with self.connect() as client:  # which leaves as soon as it has the id
            sent = json.dumps(body).encode()
            head = f"POST {PATH} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: {len(sent)}\r\n\r\n"
            client.sendall(head.encode() + sent)
            received = b""
            while b'"id":"resp_' not in received:
                received += client.recv(65536)
            return "resp_" + received.partition(b'"id":"resp_')[2].partition(b'"')[0].decode()


@pytest.fixture(scope="module")
def simulator() -> Iterator[Simulator]:
    with Simulator() as simulator:
        yield simulator.ready()


@pytest.fixture(params=["sqlite", "valkey"])
def gateways(request: pytest.FixtureRequest, tmp_path: Path, simulator: Simulator) -> Iterator[list[Gateway]]:
    """Two gateways with one store."""
    file = tmp_path / "dragoman.toml"
    if request.param == "valkey":
        line = f'response_store_url = "{request.getfixturevalue("valkey").url}"'
    else:
        line = f'response_store_path = "{tmp_path / "responses.db"}"'
    file.write_text(f"""
[server]
log_format = "json"
drain_s = {DRAIN_S}
response_store = "{request.param}"
{line}
[[upstreams]]
name = "up"
protocol = "openai_chat"
base_url = "http://127.0.0.1:{simulator.port}/v1"
""")
    with ExitStack() as stack:
        yield [stack.enter_context(Gateway("--config", str(file))).ready() for _ in range(2)]


def test_a_gateway_is_killed_while_it_makes_responses(gateways: list[Gateway], simulator: Simulator) -> None:
    killed, other = gateways
    before = simulator.stats()["opened"]
    with ThreadPoolExecutor(8) as threads:
        ids = list(threads.map(lambda number: gateways[number % 4 // 3].begin(5 + number), range(RESPONSES)))
    time.sleep(1)
    killed.signal(signal.SIGKILL)
    killed.wait()
    assert len(set(ids)) == RESPONSES
    deadline = time.monotonic() + LEASE_S + DEADLINE_S
    found: dict[str, dict[str, Any]] = {}
    while len(found) < RESPONSES:
        assert time.monotonic() < deadline
        for id in [id for id in ids if id not in found]:
            response = other.call("GET", f"{PATH}/{id}")
            if response["status"] != "in_progress":
                found[id] = response
        time.sleep(0.1)
    for number, id in enumerate(ids):
        response = found[id]
        if response["status"] == "completed":
            [item] = response["output"]
            assert item["content"][0]["text"].split() == ["word"] * (5 + number)
        else:
            assert response["status"] == "failed"
            assert "has ended before the response was complete" in response["error"]["message"]
            assert number % 4 < 3
    failed = sum(response["status"] == "failed" for response in found.values())
    assert 5 < failed < RESPONSES - 5
    # None was sent again.
    assert simulator.settled()["opened"] - before == RESPONSES


def test_a_stop_waits_and_then_fails_what_is_made(gateways: list[Gateway], simulator: Simulator) -> None:
    stopped, other = gateways
    ids = [stopped.begin(words) for words in (10, 300, 301)]
    begun = time.monotonic()
    stopped.signal(signal.SIGTERM)
    assert stopped.wait() == 0
    assert DRAIN_S - 0.5 < time.monotonic() - begun < LEASE_S - 2
    found = [other.call("GET", f"{PATH}/{id}") for id in ids]
    assert [response["status"] for response in found] == ["completed", "failed", "failed"]
    assert "the gateway is stopping" in found[1]["error"]["message"]
    outcomes = [json.loads(line).get("outcome") for line in stopped.output if '"background"' in line]
    assert sorted(outcomes) == ["cancelled", "cancelled", "completed"]
    simulator.settled()


def test_a_second_stop_waits_for_nothing(gateways: list[Gateway], simulator: Simulator) -> None:
    stopped, other = gateways
    id = stopped.begin(300)
    begun = time.monotonic()
    stopped.signal(signal.SIGTERM)
    stopped.wait_for_line("SIGTERM")
    stopped.signal(signal.SIGTERM)
    stopped.wait()
    assert time.monotonic() - begun < DRAIN_S - 1
    assert other.call("GET", f"{PATH}/{id}")["status"] == "failed"
    simulator.settled()


def test_any_gateway_cancels_within_a_quarter_of_a_second(
    gateways: list[Gateway], simulator: Simulator
) -> None:
    one, two = gateways
    took = []
    for words in (200, 201):
        id = one.begin(words)
        time.sleep(0.3)
        aborted = simulator.stats()["aborted"]
        begun = time.monotonic()
        assert two.call("POST", f"{PATH}/{id}/cancel")["status"] == "cancelled"
        simulator.wait_for("aborted", aborted + 1)
        took.append(time.monotonic() - begun)
        assert one.call("POST", f"{PATH}/{id}/cancel")["status"] == "cancelled"
    assert min(took) < 0.25, took
