"""A client that leaves stops the upstream's work within a quarter of a second, whenever it leaves.

The simulator, a process of its own, says when it saw the abort: nothing of the gateway is asked.
"""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from cl_processes import Gateway, Pair, Simulator
from cl_sdk import Sdk, async_clients, body_of, read_events
from oracle import CHAT, MESSAGES, RESPONSES

pytestmark = pytest.mark.process

ABORT_S = 0.25

# Shorter than the gateway's silence before the first heartbeat: nothing of an answer is out then.
PATIENCE_S = 0.1


@pytest.fixture
def sync(gateway: Gateway, sdk_of: Any) -> Any:
    return sdk_of("sync", gateway.url)


def test_in_the_middle_of_a_stream(pair: Pair, sync: Sdk, simulator: Simulator) -> None:
    before = simulator.settled()
    body = body_of(pair.client, pair.model("pause@30"), "Hello")
    stream = sync.create(pair.client, body, stream=True)
    for event in stream:
        if "stood" in str(event.to_dict()):
            break
    stream.close()
    simulator.wait_for("aborted", before["aborted"] + 1, within_s=ABORT_S)


@pytest.mark.parametrize("stream", [True, False], ids=["before the first token", "in a whole request"])
def test_while_nothing_has_come(pair: Pair, sync: Sdk, simulator: Simulator, stream: bool) -> None:
    before = simulator.settled()
    body = body_of(pair.client, pair.model("silent@30"), "Hello")
    with pytest.raises(Exception, match="timed out") as raised:
        sync.create(pair.client, body, stream=stream, timeout=PATIENCE_S)
    assert type(raised.value).__name__ == "APITimeoutError"
    simulator.wait_for("aborted", before["aborted"] + 1, within_s=ABORT_S)
    assert simulator.stats()["opened"] == before["opened"] + 1


def test_after_some_heartbeats(pair: Pair, sync: Sdk, simulator: Simulator) -> None:
    before = simulator.settled()
    # The head of the response comes with the first heartbeat.
    stream = sync.create(pair.client, body_of(pair.client, pair.model("silent@30"), "Hello"), stream=True)
    stream.close()
    simulator.wait_for("aborted", before["aborted"] + 1, within_s=ABORT_S)


@pytest.mark.parametrize("protocol", [CHAT, MESSAGES, RESPONSES])
def test_a_cancelled_task(gateway: Gateway, simulator: Simulator, protocol: str) -> None:
    """The async clients leave when their task is cancelled, in the middle of many streams."""
    before = simulator.settled()

    async def main() -> None:
        one, other = async_clients(gateway.url)
        client = other if protocol == MESSAGES else one
        body = body_of(protocol, "chat/pause@30", "Hello")
        into: list[list[Any]] = [[] for _ in range(10)]
        async with one, other, anyio.create_task_group() as tasks:
            for each in into:
                tasks.start_soon(read_events, client, protocol, body, each)
            with anyio.fail_after(20):
                while not all("stood" in str(each) for each in into):
                    await anyio.sleep(0.01)
            tasks.cancel_scope.cancel()

    anyio.run(main)
    simulator.wait_for("aborted", before["aborted"] + 10, within_s=ABORT_S)


def test_a_client_that_stays_aborts_nothing(pair: Pair, sync: Sdk, simulator: Simulator) -> None:
    before = simulator.settled()
    body = body_of(pair.client, pair.model("echo"), "Hello")
    sync.create(pair.client, body)
    sync.events(pair.client, body, [])
    after = simulator.settled()
    assert after["opened"] == before["opened"] + 2
    assert after["aborted"] == before["aborted"]
