"""A worker on trio by itself, inside the test's nursery: when it is ready, and the steps of its stop.

The command and its processes, on every backend, are in test_run.py. Here the clock is trio's own, which jumps when
all tasks wait, so that a drain of minutes takes no time.
"""

import logging
import signal
import socket
from collections.abc import Iterator

import pytest
import trio
import trio.testing
from msgspec.structs import replace
from starlette.types import ASGIApp, Receive, Scope, Send

from dragoman_server.serving.run import CLOSING_S, REPORT_S, SHUTDOWN_S, _Worker
from dragoman_server.serving.signals import SignalMeanings
from dragoman_server.settings import ServerSettings, Settings

pytestmark = pytest.mark.trio

DRAIN_S = 120.0
GET = b"GET %s HTTP/1.1\r\nhost: x\r\n\r\n"


class Application:
    """/hello responds at once, /stream begins a response and ends it after `length_s`."""

    def __init__(self, *, starts: bool = True, length_s: float = float("inf")) -> None:
        self.starts = starts
        self.length_s = length_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await receive()
            if not self.starts:
                await send({"type": "lifespan.startup.failed", "message": "no database"})
                return
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await send({"type": "lifespan.shutdown.complete"})
            return
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"begin", "more_body": True})
        if scope["path"] == "/stream":
            await trio.sleep(self.length_s)
        await send({"type": "http.response.body", "body": b"end"})


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        sock.setblocking(False)
        yield sock


class Running:
    """A worker in a nursery. ended: when its run() has returned."""

    def __init__(self, app: ASGIApp, listener: socket.socket) -> None:
        self.address = listener.getsockname()
        self.ready, self.ended = trio.Event(), trio.Event()
        settings = Settings(server=replace(ServerSettings(), backend="trio", drain_s=DRAIN_S))
        meanings = SignalMeanings((signal.SIGUSR1,))
        self.exits_within: list[float] = []
        self.worker = _Worker(settings, app, listener, self.ready.set, meanings, self.exits_within.append)

    async def run(self) -> None:
        await self.worker.run()
        self.ended.set()

    async def get(self, path: bytes, until: bytes = b"begin") -> trio.SocketStream:
        """Return a connection on which the response has come as far as `until`."""
        stream = await trio.open_tcp_stream(*self.address)
        await stream.send_all(GET % path)
        got = b""
        while until not in got:
            got += await stream.receive_some()
        return stream


async def started(app: ASGIApp, listener: socket.socket, nursery: trio.Nursery) -> Running:
    running = Running(app, listener)
    nursery.start_soon(running.run)
    await running.ready.wait()
    return running


async def remainder_of(stream: trio.SocketStream) -> bytes:
    return b"".join([part async for part in stream])


async def test_a_stop_waits_for_open_responses_and_accepts_no_request(
    nursery: trio.Nursery, listener: socket.socket, autojump_clock: trio.testing.MockClock
) -> None:
    running = await started(Application(length_s=100), listener, nursery)
    async with await running.get(b"/stream") as stream:
        signal.raise_signal(signal.SIGUSR1)
        await running.worker.stopping.wait()
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(OSError, match="all attempts to connect"):
            await trio.open_tcp_stream(*running.address)
        assert b"end" in await remainder_of(stream), "it came to its end"
    await running.ended.wait()
    assert 100 <= trio.current_time() < DRAIN_S


async def test_a_stop_logs_the_number_of_open_requests_when_it_changes(
    nursery: trio.Nursery,
    listener: socket.socket,
    autojump_clock: trio.testing.MockClock,  # as an argument: pytest-trio takes no clock from `usefixtures`
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "dragoman.server")
    running = await started(Application(length_s=100), listener, nursery)
    async with await running.get(b"/stream") as first:
        await trio.sleep(10)
        async with await running.get(b"/stream") as second:
            await trio.sleep(REPORT_S / 2)  # so that no response ends while the number is looked at
            signal.raise_signal(signal.SIGUSR1)
            await remainder_of(first)
            await remainder_of(second)
    await running.ended.wait()
    assert [record.getMessage() for record in caplog.records] == [
        "SIGUSR1: no new connections, and up to 120 s for open requests: 2; a second signal ends them",
        "open requests: 1",
    ]


@pytest.mark.promise("R2")
async def test_an_open_response_after_the_drain_is_cut(
    nursery: trio.Nursery, listener: socket.socket, autojump_clock: trio.testing.MockClock
) -> None:
    running = await started(Application(), listener, nursery)
    async with await running.get(b"/stream") as stream:
        signal.raise_signal(signal.SIGUSR1)
        assert not (await remainder_of(stream)).endswith(b"0\r\n\r\n"), (
            "no end that looks like a complete response"
        )
        assert trio.current_time() == pytest.approx(DRAIN_S)
    await running.ended.wait()


async def test_a_second_signal_cuts_at_once(
    nursery: trio.Nursery,
    listener: socket.socket,
    autojump_clock: trio.testing.MockClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "dragoman.server")
    running = await started(Application(), listener, nursery)
    async with await running.get(b"/stream") as stream:
        signal.raise_signal(signal.SIGUSR1)
        await running.worker.stopping.wait()
        signal.raise_signal(signal.SIGUSR1)
        await remainder_of(stream)
    await running.ended.wait()
    assert trio.current_time() < DRAIN_S
    assert running.exits_within == [DRAIN_S + CLOSING_S + SHUTDOWN_S, CLOSING_S]
    assert [record.getMessage() for record in caplog.records[1:]] == [
        "SIGUSR1 again: not waiting for open requests",
        "requests cancelled because they were still open: 1",
    ]
