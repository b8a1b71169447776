"""A client that leaves stops the upstream's work within a quarter of a second, whenever it leaves.

The simulator, a separate process, reports when it saw the abort; the gateway reports nothing.
"""

from functools import partial
from typing import Any

import anyio
import pytest
from anyio import to_thread
from command.process import DEADLINE_S
from oracle import CHAT, MESSAGES, RESPONSES
from sdk_clients.processes import Gateway, Pair, Simulator, each_backend, each_way_and_backend
from sdk_clients.sdk import Sdk, async_clients, body_of, read_events, resource
from trials import trials

pytestmark = pytest.mark.process

ABORT_S = 0.25

# Long enough for a machine that does little else to get the request through both processes.
TIMEOUT_S = 0.2


class Watched(list[Any]):
    """Events of a stream. has_text: the response has begun."""

    def __init__(self) -> None:
        super().__init__()
        self.has_text = anyio.Event()

    def append(self, event: Any) -> None:
        super().append(event)
        if "stood" in str(event.to_dict()):
            self.has_text.set()


@each_way_and_backend
def test_in_the_middle_of_a_stream(pair: Pair, sdk: Sdk, simulator: Simulator) -> None:
    for trial in trials():
        before = simulator.settled()
        body = body_of(pair.client, pair.model("pause@30"), "Hello")
        stream = sdk.create(pair.client, body, stream=True)
        for event in stream:
            if "stood" in str(event.to_dict()):
                break
        with trial:
            stream.close()
            simulator.wait_for("aborted", before["aborted"] + 1, within_s=ABORT_S)


@each_way_and_backend
def test_while_nothing_has_come(pair: Pair, gateway: Gateway, simulator: Simulator) -> None:
    body = body_of(pair.client, pair.model("silent@30"), "Hello")

    async def main() -> None:
        one, other = async_clients(gateway.url)
        create = resource(other if pair.client == MESSAGES else one, pair.client).create
        async with one, other, anyio.create_task_group() as tasks:
            tasks.start_soon(partial(create, **body, stream=True))
            # The request has come to the upstream, and that is all.
            await to_thread.run_sync(simulator.wait_for, "opened", before["opened"] + 1)
            tasks.cancel_scope.cancel()

    for trial in trials():
        before = simulator.settled()
        anyio.run(main)
        with trial:
            simulator.wait_for("aborted", before["aborted"] + 1, within_s=ABORT_S)


@each_way_and_backend
def test_after_the_clients_timeout(pair: Pair, sdk: Sdk, simulator: Simulator) -> None:
    """A whole response has no heartbeats, so the SDK's own timeout ends it."""
    for trial in trials():
        before = simulator.settled()
        body = body_of(pair.client, pair.model("silent@30"), "Hello")
        with pytest.raises(Exception, match="timed out") as raised:
            sdk.create(pair.client, body, timeout=TIMEOUT_S)
        assert type(raised.value).__name__ == "APITimeoutError"
        with trial:
            simulator.wait_for("aborted", before["aborted"] + 1, within_s=ABORT_S)


@each_way_and_backend
def test_after_some_heartbeats(pair: Pair, sdk: Sdk, simulator: Simulator) -> None:
    for trial in trials():
        before = simulator.settled()
        # The head of the response comes with the first heartbeat.
        stream = sdk.create(pair.client, body_of(pair.client, pair.model("silent@30"), "Hello"), stream=True)
        with trial:
            stream.close()
            simulator.wait_for("aborted", before["aborted"] + 1, within_s=ABORT_S)


@each_backend
@pytest.mark.parametrize("protocol", [CHAT, MESSAGES, RESPONSES])
def test_a_cancelled_task(gateway: Gateway, simulator: Simulator, protocol: str) -> None:
    """The async clients leave when their task is cancelled, in the middle of many streams."""

    async def main() -> None:
        one, other = async_clients(gateway.url)
        client = other if protocol == MESSAGES else one
        body = body_of(protocol, "chat/pause@30", "Hello")
        into = [Watched() for _ in range(10)]
        async with one, other, anyio.create_task_group() as tasks:
            for each in into:
                tasks.start_soon(read_events, client, protocol, body, each)
            with anyio.fail_after(DEADLINE_S):
                for each in into:
                    await each.has_text.wait()
            tasks.cancel_scope.cancel()

    for trial in trials():
        before = simulator.settled()
        anyio.run(main)
        with trial:
            simulator.wait_for("aborted", before["aborted"] + 10, within_s=ABORT_S)


def test_a_client_that_stays_aborts_nothing(pair: Pair, sdk: Sdk, simulator: Simulator) -> None:
    before = simulator.settled()
    body = body_of(pair.client, pair.model("echo"), "Hello")
    sdk.create(pair.client, body)
    sdk.events(pair.client, body, [])
    after = simulator.settled()
    assert (after["opened"], after["aborted"]) == (before["opened"] + 2, before["aborted"])
