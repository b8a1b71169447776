"""A client of HTTP/1.1 that reads nothing of its response: its cost, its effect on others, and its timeout."""

import select
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
from command.process import DEADLINE_S
from edge import (
    BACKENDS,
    CHAT_PATH,
    LOOPS,
    STREAM_HEAD,
    Conversation,
    EdgeGateway,
    Running,
    Stopwatch,
    Upstream,
    chat,
    chunk,
    post,
    read_response,
    wait_until,
)
from trials import trials

pytestmark = pytest.mark.process

# send_timeout_s in the tests, less than its default.
STALL_S = 0.75
DEFAULT_S = 25.0
BIG_CHUNK = chunk("x" * 60_000)
# Far above what all buffers on the way hold: the kernel's of two connections, ours.
MUCH = 64 * 2**20


class Flood:
    """An upstream that sends as much as it can, up to MUCH. sent: bytes so far."""

    def __init__(self) -> None:
        self.sent = 0
        self._conversation: Conversation | None = None

    def __call__(self, conversation: Conversation) -> None:
        if conversation.read() is None:
            return
        self._conversation = conversation
        conversation.send(STREAM_HEAD)
        conversation.socket.settimeout(DEADLINE_S)
        # The reader notes that the gateway closes, while this thread writes.
        reader = threading.Thread(target=conversation.until_closed, daemon=True)
        reader.start()
        with suppress(OSError):
            while self.sent < MUCH:
                conversation.send(BIG_CHUNK)
                self.sent += len(BIG_CHUNK)
        reader.join()

    def wait_until_paused(self, gateway: EdgeGateway) -> int:
        """Return the bytes that were read when a gateway that could read more has read nothing for a while."""
        before = -1

        def is_paused() -> bool:
            nonlocal before
            last, before = before, self.sent
            time.sleep(0.15)
            return 0 < last == self.sent and (not self._has_room or self._has_ended) and gateway.sleeps

        wait_until(is_paused)
        return self.sent

    @property
    def _has_ended(self) -> bool:
        return self._conversation is not None and self._conversation.closed_at is not None

    @property
    def _has_room(self) -> bool:
        """True if the kernel would accept more for the gateway."""
        if self._conversation is None:
            return False
        try:
            return bool(select.select([], [self._conversation.socket], [], 0)[1])
        except (OSError, ValueError):  # the script's thread has closed it
            return False


@contextmanager
def stalled(gateway: EdgeGateway, room: int = 4096) -> Iterator[socket.socket]:
    """A client that has requested a stream and reads none of it. room: the size of its buffer."""
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room)
        client.settimeout(DEADLINE_S)
        client.connect(("127.0.0.1", gateway.port))
        client.sendall(post(CHAT_PATH, chat()))
        yield client


@pytest.fixture(scope="module", params=BACKENDS)
def running(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One process for all tests of a backend; the last one stops it."""
    server = f"send_timeout_s = {STALL_S}\ndrain_s = 0.2"
    directory = tmp_path_factory.mktemp("not_reading")
    with (
        Upstream() as upstream,
        EdgeGateway(directory, upstream, backend=request.param, server=server).ready() as gateway,
    ):
        yield Running(upstream, gateway)


@pytest.mark.promise("R9", "R10", "S10")
def test_it_pauses_its_upstream_and_is_disconnected_after_the_limit(running: Running) -> None:
    upstream, gateway = running
    flood = upstream.script = Flood()
    resident = gateway.resident_bytes
    started = time.monotonic()
    with stalled(gateway):
        assert flood.wait_until_paused(gateway) < MUCH / 4, "the upstream was paused"
        assert gateway.resident_bytes - resident < 12 * 2**20
        # No other request waits for it.
        with gateway.connect() as other:
            watch = Stopwatch(gateway)
            other.sendall(b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
            assert read_response(other).startswith(b"HTTP/1.1 200")
            assert watch.worked() < 0.5
        upstream.wait_closed(upstream.conversations[-1])
        assert STALL_S <= time.monotonic() - started < DEFAULT_S
    wait_until(
        lambda: any(
            f"a client read nothing for {STALL_S} seconds" in each["message"] for each in gateway.log()
        )
    )
    assert not [line for line in gateway.output if "Traceback" in line]


@pytest.mark.promise("R9", "R10")
@pytest.mark.parametrize("backend", LOOPS)
def test_many_such_clients_cost_less_than_a_megabyte_each(tmp_path: Path, backend: str) -> None:
    flood = Flood()
    with (
        Upstream(flood) as upstream,
        EdgeGateway(tmp_path, upstream, backend=backend).ready() as gateway,
        ExitStack() as clients,
    ):
        clients.enter_context(stalled(gateway))
        flood.wait_until_paused(gateway)
        resident = gateway.resident_bytes
        for _ in range(10):
            clients.enter_context(stalled(gateway))
        upstream.wait_for(11)
        flood.wait_until_paused(gateway)
        assert gateway.resident_bytes - resident < 10 * 2**20
        clients.close()
        for conversation in upstream.conversations:
            upstream.wait_closed(conversation)


@pytest.mark.promise("R10")
def test_a_slow_client_gets_all_of_it(running: Running) -> None:
    def some(conversation: Conversation) -> None:
        if conversation.read() is not None:
            conversation.send(
                STREAM_HEAD + BIG_CHUNK * 120 + chunk(finish_reason="stop") + b"data: [DONE]\n\n"
            )

    running.upstream.script = some
    for trial in trials():
        with trial, stalled(running.gateway, 64 * 1024) as client:
            got = b""
            # Twice the limit.
            until = time.monotonic() + 2 * STALL_S
            while time.monotonic() < until:
                time.sleep(0.1)
                got += client.recv(64 * 1024)
            while not got.endswith(b"0\r\n\r\n"):
                more = client.recv(65536)
                assert more, f"cut after {len(got)} bytes"
                got += more
            assert b"[DONE]" in got


@pytest.mark.promise("R2", "R10")
def test_the_process_still_stops_in_time(running: Running) -> None:
    upstream, gateway = running
    flood = upstream.script = Flood()
    with stalled(gateway):
        flood.wait_until_paused(gateway)
        gateway.signal(signal.SIGTERM)
        assert gateway.wait() == 0
        # A step of the stop that reached its time limit is logged.
        assert not [line for line in gateway.output if "exiting without them" in line]
