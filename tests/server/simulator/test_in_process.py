"""The simulator in process: times, silence, cuts and clean-up, in virtual time on both backends."""

import json
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager

import anyio
import pytest
from oracle import check_models
from simulator_requests import CHAT, MESSAGES, PROTOCOL_NAMES, Body, encoded, request_body, requested_path

from dragoman_server.hosts import UpstreamCall
from dragoman_server.simulator import SimulatedResponse, SimulatedUpstream
from dragoman_server.simulator.upstream import READ_BYTES
from dragoman_server.upstream.errors import UpstreamBroken, UpstreamTimeout, UpstreamTooLarge
from dragoman_server.upstream.transport import UpstreamTimeouts

pytestmark = pytest.mark.anyio

BASE = "http://simulator.invalid"


async def timed(response: SimulatedResponse) -> list[tuple[float, bytes]]:
    """Return the reads of a body, each with the seconds since the head."""
    begun = anyio.current_time()
    reads = []
    while data := await response.receive():
        reads.append((round(anyio.current_time() - begun, 3), data))
    return reads


def opened(
    upstream: SimulatedUpstream, body: Body, protocol: str = CHAT, read_s: float | None = None
) -> AbstractAsyncContextManager[SimulatedResponse]:
    timeouts = UpstreamTimeouts(read_s=read_s)
    return upstream.open(
        UpstreamCall("POST", BASE + requested_path(protocol, body), [], encoded(body)), timeouts=timeouts
    )


@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
async def test_an_unpaced_response_comes_in_one_read(protocol: str) -> None:
    upstream = SimulatedUpstream()
    async with opened(upstream, request_body(protocol, "echo", "a b c", stream=True), protocol) as response:
        assert response.status == 200
        assert ("content-type", "text/event-stream; charset=utf-8") in response.headers
        reads = await timed(response)
    assert [time for time, _ in reads] == [0]
    assert await response.receive() == b""


async def test_a_read_has_a_size() -> None:
    async with opened(SimulatedUpstream(), request_body(CHAT, "long", stream=True)) as response:
        sizes = [len(data) for _, data in await timed(response)]
    assert len(sizes) > 1
    assert all(READ_BYTES <= size < READ_BYTES + 4096 for size in sizes[:-1])


@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
@pytest.mark.parametrize(("model", "gap"), [("slow", 0.25), ("slow@50", 0.02), ("echo@2", 0.5)])
@pytest.mark.each_choice
async def test_a_paced_response_comes_event_by_event(protocol: str, model: str, gap: float) -> None:
    text = " ".join(["word"] * 20)
    async with opened(
        SimulatedUpstream(), request_body(protocol, model, text, stream=True), protocol
    ) as response:
        times = [time for time, _ in await timed(response)]
    if times[0] == 0:  # the head of the message needs no token
        del times[0]
    assert times == pytest.approx([gap * number for number in range(1, 21)], abs=0.002)


async def test_a_reader_that_was_late_gets_all_that_is_due_at_once() -> None:
    async with opened(SimulatedUpstream(), request_body(CHAT, "slow", stream=True)) as response:
        await anyio.sleep(2.6)
        data = await response.receive()
    assert data.count(b'"content"') >= 10
    assert b"[DONE]" not in data


SILENCES: list[tuple[str, float, float]] = [
    ("silent", 0, 60),
    ("silent@5", 0, 5),
    ("pause", 0, 60),
    ("pause@7", 0, 7),
]


@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
@pytest.mark.parametrize(("model", "before", "length"), SILENCES)
@pytest.mark.each_choice
async def test_a_silent_model_is_silent(protocol: str, model: str, before: float, length: float) -> None:
    async with opened(SimulatedUpstream(), request_body(protocol, model, stream=True), protocol) as response:
        times = [time for time, _ in await timed(response)]
    assert times == ([length] if model.startswith("silent") else [before, length])


@pytest.mark.parametrize(("model", "delay"), [("slow", 5), ("silent@5", 5), ("pause@7", 7), ("echo", 0)])
async def test_a_whole_response_comes_after_all_waits(model: str, delay: float) -> None:
    begun = anyio.current_time()
    async with opened(SimulatedUpstream(), request_body(CHAT, model)) as response:
        assert anyio.current_time() - begun == pytest.approx(delay)
        body = await response.read_all(10_000)
    assert anyio.current_time() - begun == pytest.approx(delay)
    assert json.loads(body)["choices"][0]["finish_reason"] == "stop"
    assert ("content-length", str(len(body))) in response.headers


@pytest.mark.parametrize("model", ["silent@30", "pause@30"])
@pytest.mark.parametrize("stream", [True, False])
async def test_silence_has_a_limit(model: str, stream: bool) -> None:
    begun = anyio.current_time()
    with pytest.raises(UpstreamTimeout):
        async with opened(
            SimulatedUpstream(), request_body(CHAT, model, stream=stream), read_s=10
        ) as response:
            await timed(response)
    assert anyio.current_time() - begun == pytest.approx(10)


@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
@pytest.mark.parametrize("stream", [True, False])
async def test_a_cut_breaks_after_what_was_sent(protocol: str, stream: bool) -> None:
    upstream = SimulatedUpstream()
    async with opened(upstream, request_body(protocol, "cut", stream=stream), protocol) as response:
        assert await response.receive()
        with pytest.raises(UpstreamBroken):
            await response.receive()
    assert (upstream.opened, upstream.closed, upstream.aborted) == (1, 1, 0)


async def test_a_body_can_be_limited() -> None:
    async with opened(SimulatedUpstream(), request_body(CHAT, "long")) as response:
        with pytest.raises(UpstreamTooLarge):
            await response.read_all(100)


async def leave_early(response: SimulatedResponse) -> None:
    await response.receive()


async def read_on(response: SimulatedResponse) -> None:
    await timed(response)


@pytest.mark.parametrize(("use", "aborted"), [(leave_early, 1), (read_on, 0)])
async def test_requests_are_counted(
    use: Callable[[SimulatedResponse], Awaitable[None]], aborted: int
) -> None:
    upstream = SimulatedUpstream()
    async with opened(upstream, request_body(CHAT, "slow", stream=True)) as response:
        assert (upstream.opened, upstream.closed, upstream.aborted) == (1, 0, 0)
        await use(response)
    assert (upstream.opened, upstream.closed, upstream.aborted) == (1, 1, aborted)


@pytest.mark.parametrize("stream", [True, False])
async def test_a_cancelled_request_ends_at_once_and_is_counted(stream: bool) -> None:
    upstream = SimulatedUpstream()
    with anyio.move_on_after(3):
        async with opened(upstream, request_body(CHAT, "silent", stream=stream)) as response:
            await response.receive()
    assert anyio.current_time() == pytest.approx(3, abs=0.01)
    assert (upstream.opened, upstream.closed, upstream.aborted) == (1, 1, 1)


REQUESTED_PATHS: list[tuple[str, str, list[tuple[str, str]], int]] = [
    ("POST", "/v1/chat/completions?x=1", [], 200),
    ("POST", "/prefix/chat/completions", [], 200),
    ("GET", "/v1/models", [], 200),
    ("GET", "/v1/chat/completions", [], 405),
    ("POST", "/v1/embeddings", [], 404),
]


async def test_method_and_path_select_the_response() -> None:
    for method, url, headers, status in REQUESTED_PATHS:
        content = encoded(request_body(CHAT, "echo")) if method == "POST" else None
        call = UpstreamCall(method, BASE + url, headers, content)
        async with SimulatedUpstream().open(call) as response:
            assert response.status == status, (method, url)
            assert json.loads(await response.read_all(100_000)), (method, url)


@pytest.mark.parametrize(
    ("model", "ends"), [("echo", b"]"), ("error-mid", b"]"), ("cut-end", b"}"), ("error-429", b"]")]
)
async def test_a_stream_has_the_framing_of_its_endpoint(model: str, ends: bytes) -> None:
    content = encoded({"contents": [{"parts": [{"text": "a b c"}]}]})
    bodies, url = [], f"{BASE}/v1/models/{model}:streamGenerateContent"
    for query in ("?alt=sse", ""):
        async with SimulatedUpstream().open(UpstreamCall("POST", url + query, content=content)) as response:
            bodies.append(await response.read_all(100_000))
    assert ("content-type", "application/json") in response.headers
    assert bodies[1].endswith(ends)
    chunks = [line.removeprefix(b"data: ") for line in bodies[0].split(b"\r\n") if line.startswith(b"data: ")]
    chunks = chunks or [bodies[0]]  # an error
    assert bodies[1].removesuffix(b"]") == b"[" + b",\r\n".join(chunks)


@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
async def test_models_are_listed_in_the_clients_form(protocol: str) -> None:
    headers = [("Anthropic-Version", "2023-06-01")] if protocol == MESSAGES else []
    async with SimulatedUpstream().open(UpstreamCall("GET", f"{BASE}/v1/models", headers)) as response:
        assert check_models(protocol, await response.read_all(100_000)) == []
