"""WebSockets on real sockets, with an application that sends back what it receives (websocket_echo.py)."""

import json
import signal
import socket
from collections.abc import Iterator
from itertools import count

import pytest
from edge import RESPONSES_PATH, Gateways, Stopwatch, waits
from h2_client import Headers, Peer, data, headers, reset
from hyperframe.frame import DataFrame, HeadersFrame
from trials import trials
from websocket_client import FIN, OVER, close, frame, frames_in
from websocket_echo import Echo

from dragoman_server.serving.websocket_frames import CLOSE, TEXT

pytestmark = pytest.mark.process

HTTP1 = OVER["http/1.1"]
CREATE = frame(TEXT, json.dumps({"type": "response.create", "model": "up/m", "input": "Hi"}).encode())


@pytest.fixture
def echo(backend: str) -> Iterator[Echo]:
    with Echo(backend, "3") as server:
        yield server.ready()


def connect(path: str = "/") -> Headers:
    return headers(("sec-websocket-version", "13"), method="CONNECT", path=path, protocol="websocket")


def opened(echo: Echo, path: str = "/") -> socket.socket:
    client = echo.connect()
    client.sendall(HTTP1.opening(path=path))
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        head += client.recv(1)
    assert head.startswith(b"HTTP/1.1 101")
    return client


def reset_by_tcp(client: socket.socket) -> None:
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    client.close()


@pytest.mark.promise("R9")
def test_the_application_learns_how_a_client_has_left(echo: Echo) -> None:
    client = opened(echo)
    client.sendall(close(4000))
    assert echo.read_to_end(client) == b"\x88\2" + (4000).to_bytes(2)
    echo.wait_for_line("left 4000")
    opened(echo).close()
    echo.wait_for_line("left 1006")
    reset_by_tcp(opened(echo))
    echo.wait_for_line("left 1006")
    reset_by_tcp(opened(echo, "/deaf"))
    echo.wait_for_line("raised OSError")


def test_http2(echo: Echo) -> None:
    """Streams of one connection: one is reset, and another one goes on."""
    with Peer(echo.connect()) as peer:
        peer.begin()
        for stream in (1, 3):
            peer.send(peer.request(stream, connect(), end=False))
            peer.until(lambda each: isinstance(each, HeadersFrame))
        peer.send(reset(1))
        echo.wait_for_line("left 1006")
        peer.send(data(3, frame(TEXT, b"hello")))
        peer.until(lambda each: isinstance(each, DataFrame))
        peer.send(data(3, close(1000)))
        assert peer.status_of(3) == "200"
        assert list(frames_in(bytes(peer.contents[3]))) == [(FIN | TEXT, b"hello"), (FIN | CLOSE, b"\3\xe8")]
        echo.wait_for_line("left 1000")
        peer.send(peer.request(5))
        assert peer.status_of(5) == "200"


@pytest.mark.promise("R1")
def test_responses_over_http2(gateways: Gateways, backend: str) -> None:
    """One in a stream of the connection, and then one whose client resets the stream."""
    with gateways.lend(backend) as (upstream, gateway), Peer(gateway.connect()) as peer:
        peer.begin()
        peer.send(peer.request(1, connect(RESPONSES_PATH), end=False), data(1, CREATE))
        peer.until(lambda each: isinstance(each, DataFrame) and b'"response.completed"' in each.data)
        assert peer.responses[1][":status"] == "200"
        events = [json.loads(payload) for _, payload in frames_in(bytes(peer.contents[1]))]
        assert [event["sequence_number"] for event in events] == list(range(len(events)))
        assert events[-1]["response"]["output"][0]["content"][0]["text"] == "Hello"
        for stream, trial in zip(count(3, 2), trials()):
            upstream.restart(waits)
            peer.send(peer.request(stream, connect(RESPONSES_PATH), end=False), data(stream, CREATE))
            conversation = upstream.wait_for(1)
            with trial:
                watch = Stopwatch(gateway)
                peer.send(reset(stream))
                assert watch.seconds(upstream.wait_closed(conversation)) < 0.25


def test_an_open_websocket_is_a_connection_that_is_not_idle(echo: Echo) -> None:
    """With three connections allowed, an idle one makes room, and WebSockets stay."""
    with opened(echo) as first, opened(echo) as second, echo.connect() as idle, echo.connect() as new:
        new.sendall(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
        assert new.recv(12) == b"HTTP/1.1 200"
        assert idle.recv(1) == b""
        for client in (first, second):
            client.sendall(frame(TEXT, b"hello"))
            assert client.recv(7, socket.MSG_WAITALL) == b"\x81\5hello"


@pytest.mark.promise("R2")
@pytest.mark.parametrize("path", ["/", "/deaf"])
def test_a_stop_closes_with_1012(echo: Echo, path: str) -> None:
    """The application does at once, or the server after drain_s."""
    client = opened(echo, path)
    echo.signal(signal.SIGTERM)
    *_, last = frames_in(echo.read_to_end(client))
    assert last == (FIN | CLOSE, (1012).to_bytes(2))
    assert echo.wait() == 0
