"""Connections at the edge: one client cannot disturb the others, and all its resources are freed."""

import contextlib
import resource
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from command.process import DEADLINE_S
from edge import (
    CHAT_PATH,
    EdgeGateway,
    Gateways,
    Stopwatch,
    Upstream,
    chat,
    post,
    read_response,
    reset_at_close,
    wait_until,
    waits,
)

pytestmark = pytest.mark.process

GET = b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    with Upstream(waits) as upstream:
        yield upstream


def serving(gateway: EdgeGateway) -> bool:
    with gateway.connect() as client:
        client.sendall(GET)
        return read_response(client).startswith(b"HTTP/1.1 200")


def begin_stream(gateway: EdgeGateway) -> socket.socket:
    """Return a connection on which a response has begun and goes on."""
    client = gateway.connect()
    client.sendall(post(CHAT_PATH, chat()))
    got = b""
    while b"Hello" not in got:
        more = client.recv(65536)
        assert more, got
        got += more
    return client


def reset(client: socket.socket) -> None:
    reset_at_close(client)
    client.close()


# Resources of a client that has left.


@pytest.mark.promise("R9", "S10")
@pytest.mark.parametrize("leave", [socket.socket.close, reset])
def test_a_connection_that_the_client_closed_costs_no_descriptor(
    gateways: Gateways, backend: str, leave: Callable[[socket.socket], None]
) -> None:
    with gateways.lend(backend) as (_, gateway):
        assert serving(gateway)
        wait_until(lambda: not connections(gateway))
        before = gateway.descriptors
        for _ in range(200):
            client = gateway.connect()
            client.sendall(GET)
            read_response(client)
            leave(client)
        wait_until(lambda: gateway.descriptors <= before)


def connections(gateway: EdgeGateway) -> int:
    """Return the gateway's ends of TCP connections that are not in LISTEN or TIME_WAIT."""
    port = f":{gateway.port:04X}"
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return len([row for row in rows if row[1].endswith(port) and row[3] not in ("0A", "06")])


# The number of connections.


@pytest.mark.promise("S10")
def test_at_the_limit_idle_connections_make_room_and_others_are_waited_for(
    tmp_path: Path, upstream: Upstream, backend: str
) -> None:
    server = "max_connections = 3"
    with EdgeGateway(tmp_path, upstream, backend=backend, server=server).ready() as gateway:
        idle = gateway.connect()
        begun = [begin_stream(gateway) for _ in range(2)]
        begun.append(begin_stream(gateway))
        assert idle.recv(1) == b"", "the idle one was closed for the third"
        waiting = gateway.connect()
        waiting.sendall(GET)
        waiting.settimeout(0.2)
        with pytest.raises(TimeoutError):
            waiting.recv(1)
        begun.pop().close()
        waiting.settimeout(DEADLINE_S)
        assert read_response(waiting).startswith(b"HTTP/1.1 200")
        for client in (idle, waiting, *begun):
            client.close()
        gateway.wait_for_line("max_connections")
        assert len([each for each in gateway.log() if "max_connections" in each["message"]]) == 1


@pytest.mark.promise("S10", "S12")
def test_without_descriptors_it_pauses_and_logs_that_once(gateways: Gateways, backend: str) -> None:
    with gateways.lend(backend, waits) as (_, gateway):
        assert serving(gateway)
        wait_until(lambda: not connections(gateway))
        with contextlib.ExitStack() as stack:
            streaming = stack.enter_context(begin_stream(gateway))
            before = resource.prlimit(gateway.pid, resource.RLIMIT_NOFILE)
            stack.callback(resource.prlimit, gateway.pid, resource.RLIMIT_NOFILE, before)
            limits = (gateway.descriptors + 1, before[1])
            resource.prlimit(gateway.pid, resource.RLIMIT_NOFILE, limits)
            # Each has a request that waits for its body, so that none is idle.
            clients = [stack.enter_context(gateway.connect()) for _ in range(8)]
            for client in clients:
                client.sendall(b"POST /v1/messages HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 9\r\n\r\n")
            gateway.wait_for_line("cannot accept connections for now")
            watch = Stopwatch(gateway)
            time.sleep(0.3)
            assert watch.worked() < 0.1, "it tries again and again"
            for client in clients:
                client.close()
            assert serving(gateway)
            streaming.settimeout(0.05)
            with contextlib.suppress(TimeoutError):
                assert streaming.recv(65536), "the open stream was cut"
        assert len([each for each in gateway.log() if "cannot accept" in each["message"]]) == 1


@pytest.mark.promise("S8")
def test_a_log_that_nobody_reads_holds_no_request(tmp_path: Path, backend: str) -> None:
    with Upstream() as upstream, EdgeGateway(tmp_path, upstream, backend=backend) as gateway:
        gateway.ready().stop_reading()
        for _ in range(3):  # each has a line
            with gateway.connect() as client:
                client.sendall(post(CHAT_PATH, chat(), {"connection": "close"}))
                assert b"[DONE]" in read_response(client)
