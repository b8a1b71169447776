"""Many streams at once, slow and silent ones, and an alias."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import anyio
import httpx2
import pytest
from command.process import DEADLINE_S
from laws.clients import endpoint_of
from oracle import CHAT, MESSAGES, RESPONSES, Kind, Stop
from sdk_clients.processes import ALIAS, KEEPALIVE_S, PAIRS, SDK_PROTOCOLS, Gateway, Pair
from sdk_clients.sdk import Sdk, Way, async_clients, body_of, fold, read_events, send
from trials import trials

pytestmark = pytest.mark.process

HEARTBEATS = {CHAT: b":", MESSAGES: b"event: ping", RESPONSES: b":"}


def read_all(gateway: Gateway, jobs: list[tuple[str, Any]], within_s: float) -> list[Any]:
    """Return the responses to all requests, read at the same time. jobs: protocol and body of each."""

    async def main() -> list[list[Any]]:
        one, other = async_clients(gateway.url)
        into: list[list[Any]] = [[] for _ in jobs]
        async with one, other:
            with anyio.fail_after(within_s):
                async with anyio.create_task_group() as tasks:
                    for (protocol, body), events in zip(jobs, into, strict=True):
                        client = other if protocol == MESSAGES else one
                        tasks.start_soon(read_events, client, protocol, body, events)
        return into

    results = zip(jobs, anyio.run(main), strict=True)
    return [fold(protocol, [event.to_dict() for event in events]) for (protocol, _), events in results]


@pytest.mark.parametrize("backend", ["asyncio", "trio", "uvloop"])
def test_a_hundred_streams_at_once(gateway: Gateway) -> None:
    """Each has its own text, at a pace that keeps all of them open together; some are silent for some heartbeats."""
    silent = [
        (pair.client, body_of(pair.client, pair.model(model), "Hello"))
        for pair in PAIRS
        for model in ("silent@0.7", "pause@0.7")
    ]
    pairs = [PAIRS[number % len(PAIRS)] for number in range(100 - len(silent))]
    texts = [
        f"stream {number} " + " ".join(f"w{number}.{i}" for i in range(10)) for number in range(len(pairs))
    ]
    jobs = [
        (pair.client, body_of(pair.client, pair.model("echo@12"), text))
        for pair, text in zip(pairs, texts, strict=True)
    ]
    responses = read_all(gateway, [*jobs, *silent], within_s=DEADLINE_S)
    found = [response.meaning.text(Kind.TEXT) for response in responses]
    assert found[: len(texts)] == texts
    (text,) = set(found[len(texts) :])
    assert len(text.split()) == 20
    assert {response.meaning.stop for response in responses} == {Stop.END}


# A silence of three and a half heartbeat intervals.
SILENT = f"silent@{KEEPALIVE_S * 3.5:g}"


def test_the_stream_helpers_ignore_heartbeats(sdk: Sdk) -> None:
    def word_count_of(pair: Pair) -> int:
        body = body_of(pair.client, pair.model(SILENT), "Hello")
        return len(send(sdk, pair.client, Way.HELPER, body).meaning.text(Kind.TEXT).split())

    with ThreadPoolExecutor(len(PAIRS)) as pool:
        assert list(pool.map(word_count_of, PAIRS)) == [20] * len(PAIRS)


def test_there_are_heartbeats(gateway: Gateway) -> None:
    """A check of the tests before. All heartbeats are before the first content."""

    def count(pair: Pair) -> int:
        body = body_of(pair.client, pair.model(SILENT), "Hello") | {"stream": True}
        response = httpx2.post(
            gateway.url + endpoint_of(pair.client).path, json=body, trust_env=False, timeout=DEADLINE_S
        )
        silence = response.content.partition(b"stood")[0]
        return sum(line.startswith(HEARTBEATS[pair.client]) for line in silence.split(b"\n"))

    for trial in trials():
        with ThreadPoolExecutor(len(PAIRS)) as pool:
            counts = dict(zip(PAIRS, pool.map(count, PAIRS), strict=True))
        # Three where both clocks are exact. A busy machine makes the silence longer or the first wait late.
        with trial:
            assert {pair: n for pair, n in counts.items() if not 2 <= n <= 8} == {}


@pytest.mark.parametrize("protocol", SDK_PROTOCOLS)
def test_an_alias_works_like_the_model(sdk: Sdk, protocol: str) -> None:
    response = send(sdk, protocol, Way.EVENTS, body_of(protocol, ALIAS, "Hello there"))
    assert response.meaning.text(Kind.TEXT) == "Hello there"
