"""A client that leaves stops the upstream's work within a quarter of a second, whenever it leaves.

The simulator, a separate process, reports when it saw the abort; the gateway reports nothing.
"""

from functools import partial

import anyio
import pytest
from anyio import to_thread
from oracle import MESSAGES
from sdk_clients.processes import Gateway, Pair, Simulator, each_way_and_backend
from sdk_clients.sdk import Sdk, async_clients, body_of, resource
from trials import trials

pytestmark = pytest.mark.process

ABORT_S = 0.25


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
def test_after_some_heartbeats(pair: Pair, sdk: Sdk, simulator: Simulator) -> None:
    for trial in trials():
        before = simulator.settled()
        # The head of the response comes with the first heartbeat.
        stream = sdk.create(pair.client, body_of(pair.client, pair.model("silent@30"), "Hello"), stream=True)
        with trial:
            stream.close()
            simulator.wait_for("aborted", before["aborted"] + 1, within_s=ABORT_S)


def test_a_client_that_stays_aborts_nothing(pair: Pair, sdk: Sdk, simulator: Simulator) -> None:
    before = simulator.settled()
    body = body_of(pair.client, pair.model("echo"), "Hello")
    sdk.create(pair.client, body)
    sdk.events(pair.client, body, [])
    after = simulator.settled()
    assert (after["opened"], after["aborted"]) == (before["opened"] + 2, before["aborted"])
