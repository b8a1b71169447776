"""Ends of HTTP/2: the client leaves, the worker is stopped, and requests that are refused while they still come."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator

import pytest
from edge import (
    BACKENDS,
    CHAT_PATH,
    STREAM_HEAD,
    Conversation,
    EdgeGateway,
    Gateways,
    Running,
    Stopwatch,
    Upstream,
    chat,
    chunk,
    post,
    read_response,
    reset_at_close,
    wait_until,
)
from h2.errors import ErrorCodes
from h2_client import Peer, answered, code_of, data, goaway, headers, reset
from hyperframe.frame import ContinuationFrame, DataFrame, GoAwayFrame, HeadersFrame, RstStreamFrame
from trials import trials

pytestmark = pytest.mark.process

POST = headers(method="POST", path=CHAT_PATH)
GET = b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"
LEAVING_S = 0.25


def body(**more: object) -> bytes:
    return post("", chat(**more)).partition(b"\r\n\r\n")[2]


def send_request(peer: Peer, stream_id: int, **more: object) -> None:
    peer.send(peer.request(stream_id, POST, end=False), data(stream_id, body(**more), end=True))


# Behaviour of the upstream, by the name in the request.


def sends_nothing(conversation: Conversation) -> None:
    conversation.until_closed()


def begins(conversation: Conversation) -> None:
    conversation.send(STREAM_HEAD + chunk("Hello"))
    conversation.until_closed()


def floods(conversation: Conversation) -> None:
    try:
        conversation.send(STREAM_HEAD)
        while True:
            conversation.send(chunk("a" * 4000))
    except OSError:
        conversation.closed_at = time.monotonic()


PHASES = {each.__name__: each for each in (sends_nothing, begins, floods)}


def play(conversation: Conversation) -> None:
    request = conversation.read()
    if request is not None:
        next(phase for name, phase in PHASES.items() if name.encode() in request)(conversation)


@pytest.fixture(scope="module", params=BACKENDS)
def running(request: pytest.FixtureRequest, gateways: Gateways) -> Iterator[Running]:
    with gateways.lend(request.param, play) as running:
        yield running


@pytest.fixture
def gateway(running: Running) -> EdgeGateway:
    return running.gateway


@pytest.fixture
def upstream(running: Running) -> Upstream:
    return running.upstream


def send_reset(peer: Peer) -> None:
    peer.send(reset(1))


def send_goaway(peer: Peer) -> None:
    peer.send(goaway(ErrorCodes.CANCEL))


def send_fin(peer: Peer) -> None:
    peer.socket.shutdown(socket.SHUT_WR)


def break_off(peer: Peer) -> None:
    reset_at_close(peer.socket)
    peer.socket.close()


@pytest.mark.promise("R1")
@pytest.mark.parametrize("leave", [send_reset, send_goaway, send_fin, break_off])
@pytest.mark.parametrize("phase", PHASES)
def test_a_client_that_leaves_closes_its_upstream(
    gateway: EdgeGateway, upstream: Upstream, phase: str, leave: Callable[[Peer], None]
) -> None:
    for trial in trials():
        begun = len(upstream.with_request)
        with trial, Peer(gateway.connect()) as peer:
            peer.begin()
            send_request(peer, 1, user=phase)
            conversation = upstream.wait_for(begun + 1)
            if phase != "sends_nothing":
                peer.until(lambda frame: isinstance(frame, DataFrame))
            if phase == "floods":
                time.sleep(0.05)  # both windows are closed by now
            watch = Stopwatch(gateway)
            leave(peer)
            assert watch.seconds(upstream.wait_closed(conversation)) < LEAVING_S


@pytest.mark.promise("R1", "R10")
def test_a_cancelled_stream_does_not_affect_the_others(gateway: EdgeGateway, upstream: Upstream) -> None:
    for trial in trials():
        begun = len(upstream.with_request)
        with Peer(gateway.connect()) as peer:
            peer.begin()
            for stream_id in (1, 3):
                send_request(peer, stream_id, user="begins")
                peer.until(lambda frame, it=stream_id: isinstance(frame, DataFrame) and frame.stream_id == it)
            first, second = (upstream.wait_for(begun + count) for count in (1, 2))
            with trial:
                watch = Stopwatch(gateway)
                peer.send(reset(1))
                assert watch.seconds(upstream.wait_closed(first)) < LEAVING_S
            assert answered(peer.settle(), RstStreamFrame | GoAwayFrame) == []
            assert second.closed_at is None


@pytest.mark.promise("R2", "S11")
@pytest.mark.parametrize(
    ("status", "fields"),
    [
        ("404", headers(method="POST", path="/nowhere")),
        ("405", headers(method="POST")),
        ("413", [*POST, ("content-length", str(10**12))]),
    ],
    ids=["404", "405", "413"],
)
def test_data_after_a_refusal_is_harmless(
    gateway: EdgeGateway, upstream: Upstream, status: str, fields: list[tuple[str, str]]
) -> None:
    """A client that uploads while it is refused sends some. It got the whole refusal, and its stream is reset."""
    begun = len(upstream.with_request)
    with Peer(gateway.connect()) as peer, gateway.connect() as bystander:
        bystander.sendall(GET[:20])
        peer.begin()
        send_request(peer, 1, user="begins")
        peer.until(lambda frame: isinstance(frame, DataFrame))
        for stream_id in range(3, 43, 2):
            peer.send(peer.request(stream_id, fields, end=False))
            frames = peer.until(
                lambda frame, it=stream_id: isinstance(frame, RstStreamFrame) and frame.stream_id == it
            )
            assert peer.responses[stream_id][":status"] == status
            assert [code_of(frames[-1]), "END_STREAM" in frames[-2].flags] == ["NO_ERROR", True]
            # Twenty times 256 KiB: more than the connection's window, if it were not given back.
            peer.send(*(data(stream_id, bytes(16384)) for _ in range(16)))
            peer.settle()
        assert upstream.wait_for(begun + 1).closed_at is None
        bystander.sendall(GET[20:])
        assert read_response(bystander).startswith(b"HTTP/1.1 200")


@pytest.mark.promise("S7")
@pytest.mark.parametrize(
    ("status", "fields"),
    [
        ("431", [*POST, ("x-large", "a" * 65536)]),
        ("431", [*POST, *((f"x-{number}", "a") for number in range(100))]),
        ("414", headers(method="POST", path=CHAT_PATH + "?" + "a" * 8192)),
    ],
    ids=["headers", "header_lines", "path"],
)
def test_a_head_that_is_too_large_is_refused_in_the_form_of_its_protocol(
    gateway: EdgeGateway, status: str, fields: list[tuple[str, str]]
) -> None:
    before = len(refused(gateway))
    with Peer(gateway.connect()) as peer:
        peer.begin()
        whole = peer.encoder.encode(fields)
        first, *continuations = (whole[start : start + 16384] for start in range(0, len(whole), 16384))
        peer.send(
            HeadersFrame(1, data=first, flags=["END_STREAM", *([] if continuations else ["END_HEADERS"])])
        )
        for number, part in enumerate(continuations, 1):
            peer.send(
                ContinuationFrame(1, data=part, flags=["END_HEADERS"] if number == len(continuations) else [])
            )
        assert peer.status_of(1) == status
        assert json.loads(peer.contents[1])["error"]["message"]
        peer.settle()
    wait_until(lambda: len(refused(gateway)) > before)
    assert refused(gateway)[before:] == [int(status)]


def refused(gateway: EdgeGateway) -> list[int]:
    """Return the statuses of the refusals that the log has."""
    return [line["status"] for line in gateway.log() if line.get("outcome") == "refused"]
