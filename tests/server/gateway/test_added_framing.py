"""A framing that no protocol has: named by a spec, a host or an endpoint, it is all that the gateway needs."""

import json
from pathlib import Path
from typing import Any

import httpx2
import pytest
from core.toy_framing import LENGTHS, frames_in, in_lengths
from core.toy_protocol import stream_of, toy
from failures.responses import Text, frames
from failures.responses import stream as stream_of_upstream
from gateway.fakes import call
from gateway.mocked import mocked
from msgspec import structs
from translation import client_request
from transport_requests import Pieces
from virtual_time import REAL_BACKENDS

from dragoman import PROTOCOLS, UPSTREAMS
from dragoman.codec import MODEL_IN_PATH, Endpoint, Framing, UpstreamSpec
from dragoman.events import (
    BlockEnded,
    BlockKind,
    BlockStarted,
    Ended,
    Started,
    Stopped,
    StopReason,
    TextDelta,
)
from dragoman.sse import SSEParser
from dragoman_server.hosts import HOSTS, Host
from dragoman_server.recordings.document import Recording, joined, load
from dragoman_server.recordings.replay import first_difference, replay
from dragoman_server.settings import ServerSettings, Settings, UpstreamSettings

pytestmark = pytest.mark.anyio

TOY = toy(framing=LENGTHS, endpoints=(Endpoint("/v1/toy", framing=LENGTHS, media_type=LENGTHS.media_type),))
SAID = [
    Started("t", "m"),
    BlockStarted(0, BlockKind.TEXT),
    TextDelta(0, "Hello"),
    BlockEnded(0),
    Stopped(StopReason.END),
    Ended(),
]
STREAM = stream_of(SAID)
PARTS = [{"t": "text", "text": "Hi"}]
TOY_REQUEST = {"model": "up/m", "stream": True, "messages": [{"role": "user", "parts": PARTS}]}


def path_of(spec: UpstreamSpec) -> str:
    """Return the path and query of requests for a stream."""
    endpoint = next(endpoint for endpoint in spec.endpoints if endpoint.streams != "never")
    path = endpoint.path.replace(MODEL_IN_PATH, "up/m")
    return f"{path}?{endpoint.query}" if endpoint.query else path


REQUESTS: dict[str, dict[str, Any]] = {
    **{
        path_of(spec): {**client_request(name, "", None, stream=True), "model": "up/m"}
        for name, spec in UPSTREAMS.items()
    },
    "/v1/toy": TOY_REQUEST,
}


async def responses(
    protocol: str,
    body: bytes,
    size: int = 10_000,
    *,
    requests: dict[str, dict[str, Any]] = REQUESTS,
    spec: UpstreamSpec = TOY,
    record: str | None = None,
    **upstream: Any,
) -> dict[str, bytes]:
    """Return what clients get at each path if the upstream sends this in pieces of this size."""
    protocols = {**PROTOCOLS, "toy": spec}
    media_type = LENGTHS.media_type if upstream else spec.framing.media_type

    def respond(request: httpx2.Request) -> httpx2.Response:
        streams = json.loads(request.content).get("stream", False)
        if protocol == "toy":
            assert request.headers["accept"] == (media_type if streams else "application/json")
        headers = {"content-type": f"{media_type.upper()}; v=1"}
        return httpx2.Response(200, stream=Pieces(body, size), headers=headers)

    up = UpstreamSettings(name="up", protocol=protocol, base_url="http://127.0.0.1:9/v1", **upstream)
    settings = Settings(server=ServerSettings(record=record), upstreams=(up,))
    got = {}
    async with mocked(settings, respond, protocols=protocols) as app:
        for path, request in requests.items():
            response = await call(app, path, request)
            assert response.status == 200, response.body
            got[path] = response.body
    return got


def texts(path: str, body: bytes) -> int:
    """Return how many frames of a client's stream have the text in them."""
    found = frames_in(body) if path == "/v1/toy" else SSEParser().receive_data(body)
    return sum(b'"Hello"' in frame.data for frame in found)


@pytest.mark.parametrize("size", [1, 5, 10_000])
async def test_all_clients_read_a_server_with_the_framing_of_its_spec(size: int) -> None:
    got = await responses("toy", in_lengths(STREAM), size)
    assert all(texts(path, body) for path, body in got.items())
    assert got["/v1/toy"] == in_lengths(STREAM)  # relayed


@pytest.mark.parametrize("protocol", UPSTREAMS)
async def test_a_host_may_frame_a_protocol_in_its_own_way(
    protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(HOSTS, "toy", Host(lambda call, upstream: structs.replace(call, framing=LENGTHS)))
    stream = b"".join(frames(stream_of_upstream(protocol, Text("Hello"))))
    for size in (1, 10_000):
        got = await responses(protocol, in_lengths(stream), size, host="toy")
        assert all(texts(path, body) for path, body in got.items())


def recordings(folder: Path) -> list[Recording]:
    return [load(path) for path in sorted(folder.iterdir())]


@pytest.mark.backends(*REAL_BACKENDS)  # a thread writes the files
async def test_what_is_recorded_are_events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So texts can be found in it, and it can be replayed without the framing."""
    monkeypatch.setitem(HOSTS, "toy", Host(lambda call, upstream: structs.replace(call, framing=LENGTHS)))
    stream = b"".join(frames(stream_of_upstream("openai_chat", Text("Hello"))))
    await responses("openai_chat", in_lengths(stream), 5, host="toy", record=str(tmp_path))
    recorded = {each.request.path: each for each in recordings(tmp_path)}
    for path in [path_of(spec).partition("?")[0] for spec in UPSTREAMS.values()]:
        assert joined(recorded[path].attempts[0].pieces) == stream
        assert first_difference(recorded[path], replay(recorded[path])) is None


async def test_a_client_may_choose_the_framing_in_its_query() -> None:
    spec = toy(
        endpoints=(
            Endpoint("/v1/toy", query="as=events"),
            Endpoint("/v1/toy", framing=LENGTHS, media_type=LENGTHS.media_type),
        )
    )
    paths = ("/v1/toy", "/v1/toy?as=events", "/v1/toy?as=events2", "/v1/toy?x=1&as=events")
    got = await responses("toy", STREAM, requests=dict.fromkeys(paths, TOY_REQUEST), spec=spec)
    assert [got[path] == STREAM for path in paths] == [False, True, False, True]
    assert [got[path] == in_lengths(STREAM) for path in paths] == [True, False, True, False]


async def test_a_whole_response_has_no_framing() -> None:
    """Also where streams have the content type of whole responses."""
    spec = toy(framing=Framing("application/json", LENGTHS.reader))
    body = b'{"started":{"id":"t","model":"m"},"blocks":[],"stops":[{"reason":"end"}]}'
    whole = {"/v1/toy": {**TOY_REQUEST, "stream": False}}
    assert await responses("toy", body, requests=whole, spec=spec) == {"/v1/toy": body}


@pytest.mark.parametrize(
    ("rest", "message"),
    [(b"\0\0\0\x01?", "a message without a name"), (b"\0\0\x01\0cut", "ended without being complete")],
)
async def test_what_is_cut_or_broken_is_no_success(rest: bytes, message: str) -> None:
    begun = stream_of(SAID[:3])
    got = await responses("toy", in_lengths(begun) + rest, requests={"/v1/toy": TOY_REQUEST})
    *before, failed = frames_in(got["/v1/toy"])
    assert before == SSEParser().receive_data(begun)
    assert message in json.loads(failed.data)["error"]["message"]
