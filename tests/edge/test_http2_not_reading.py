"""Clients of HTTP/2 that do not read what they requested.

They cost a bounded number of bytes, delay only their own upstream, and are disconnected in time.
"""

import json
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from command.process import DEADLINE_S
from edge import CHAT_PATH, LOOPS, STREAM_HEAD, Conversation, EdgeGateway, Upstream, chat, chunk
from h2_client import MAX_WINDOW, Peer, code_of, data, headers, is_end, over_tls, window
from http_certificate import Certificate
from hyperframe.frame import Frame, RstStreamFrame
from trials import trials

pytestmark = [pytest.mark.process, pytest.mark.promise("R9", "R10", "S10")]

POST = headers(method="POST", path=CHAT_PATH)
CHAT = json.dumps(chat()).encode()
MIB = 1024 * 1024

# send_timeout_s in the tests, less than its default.
STALL_S = 0.6
DEFAULT_S = 25.0

# The time until the upstream of an ended request is closed.
LEAVING_S = 0.25

# What the sockets on both sides hold, and the gateway's buffer towards its upstream (256 KiB): the kernel lets a
# connection on the loopback have some 6 MiB.
MAX_ON_THE_WAY = 14 * MIB


class Fast:
    """A script that sends as fast as it can. sent: bytes of each conversation."""

    def __init__(self) -> None:
        self.sent: dict[Conversation, int] = {}

    def __call__(self, conversation: Conversation) -> None:
        if conversation.read() is None:
            return
        self.sent[conversation] = 0
        block = chunk("a" * 4000) * 8
        try:
            conversation.send(STREAM_HEAD)
            while True:
                conversation.send(block)
                self.sent[conversation] += len(block)
        except OSError:
            conversation.closed_at = time.monotonic()


@pytest.fixture(scope="module")
def fast() -> Fast:
    return Fast()


@pytest.fixture(scope="module")
def upstream(fast: Fast) -> Iterator[Upstream]:
    with Upstream(fast) as upstream:
        yield upstream


@pytest.fixture(scope="module", params=LOOPS)
def gateway(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, upstream: Upstream, tls: str
) -> Iterator[EdgeGateway]:
    server = f"send_timeout_s = {STALL_S}\ndrain_s = 1\n{tls}"
    directory = tmp_path_factory.mktemp("not_reading")
    with EdgeGateway(directory, upstream, backend=request.param, server=server).ready() as gateway:
        yield gateway


def connect(gateway: EdgeGateway, certificate: Certificate, receive_buffer: int | None = None) -> Peer:
    plain = socket.socket()
    if receive_buffer is not None:
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    plain.settimeout(DEADLINE_S)
    plain.connect(("127.0.0.1", gateway.port))
    return Peer(over_tls(plain, certificate.client()))


def request_frames(peer: Peer, stream_id: int) -> list[Frame]:
    return [peer.request(stream_id, POST, end=False), data(stream_id, CHAT, end=True)]


def test_a_closed_window_pauses_only_its_upstream(
    gateway: EdgeGateway, upstream: Upstream, fast: Fast, certificate: Certificate
) -> None:
    for trial in trials():
        begun = len(upstream.with_request)
        with trial, connect(gateway, certificate) as peer:
            peer.begin({4: 0})
            requested_at = time.monotonic()
            peer.send(window(0, MAX_WINDOW - 65535), *request_frames(peer, 1))
            stalled = upstream.wait_for(begun + 1)
            peer.send(*request_frames(peer, 3), window(3, MAX_WINDOW))
            moving = upstream.wait_for(begun + 2)
            # The other stream of the connection goes on meanwhile, and after the first was reset.
            ended = None
            while ended is None or len(peer.contents[3]) < 4 * MIB:
                frame = peer.receive()
                assert frame is not None
                assert not is_end(frame, 3)
                if is_end(frame, 1):
                    assert isinstance(frame, RstStreamFrame)
                    assert code_of(frame) == "CANCEL"
                    ended = time.monotonic()
                    peer.contents[3].clear()
            assert STALL_S <= ended - requested_at < DEFAULT_S
            assert 1 not in peer.contents
            closed = upstream.wait_closed(stalled)
            assert fast.sent[stalled] < MAX_ON_THE_WAY
            assert moving.closed_at is None
            assert closed - ended < LEAVING_S
        upstream.wait_closed(moving)


def test_twenty_clients_that_do_not_read_cost_little(
    gateway: EdgeGateway, upstream: Upstream, fast: Fast, certificate: Certificate
) -> None:
    """Ten keep the usual windows, which are soon closed; ten open them wide, so that the socket holds all back."""
    begun = len(upstream.with_request)
    before = maximum = gateway.resident_bytes
    with ExitStack() as stack:
        for number in range(20):
            peer = stack.enter_context(connect(gateway, certificate, receive_buffer=65536))
            peer.begin({4: MAX_WINDOW} if number % 2 else None)
            peer.send(*request_frames(peer, 1), window(0, MAX_WINDOW - 65535))
        upstream.wait_for(begun + 20)
        until = time.monotonic() + STALL_S
        while time.monotonic() < until:
            maximum = max(maximum, gateway.resident_bytes)
            time.sleep(0.02)
        print(
            f"{gateway.backend}: {before / MIB:.0f} MiB before, {maximum / MIB:.0f} with 20 that do not read"
        )
        assert maximum - before < 64 * MIB
        for conversation in [each for each in upstream.conversations if each.requests][begun : begun + 20]:
            upstream.wait_closed(conversation, within_s=DEFAULT_S)
            assert fast.sent[conversation] < MAX_ON_THE_WAY
