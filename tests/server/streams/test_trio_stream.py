"""The byte stream on trio by itself: sockets of one process, and trio's own clock, which jumps when all tasks wait.

What both event loops' streams have in common is tested through the transport (test_transport*.py).
"""

import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from http_certificate import make_certificate

from dragoman_server.platform.timers import event_loop_timers
from dragoman_server.streams import trio_stream
from dragoman_server.streams.connect import _connect
from dragoman_server.streams.trio_readers import readers_of_loop
from dragoman_server.streams.trio_stream import TrioStream

pytestmark = pytest.mark.trio

# More than the buffers of a pair of sockets hold.
MEGABYTES = b"x" * 8_000_000


@pytest.fixture
async def pair() -> AsyncIterator[tuple[TrioStream, socket.socket]]:
    """A stream and the socket of its peer, neither of which blocks."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        theirs.setblocking(False)
        yield TrioStream(ours), theirs


Pair = tuple[TrioStream, socket.socket]


async def test_silence_lasts_until_the_timeout(pair: Pair, autojump_clock: trio.testing.MockClock) -> None:
    stream, peer = pair
    with pytest.raises(TimeoutError):
        await stream.receive(30)
    assert trio.current_time() == 30
    peer.send(b"late")
    assert await stream.receive(30) == b"late", "the stream can still be read"
    assert trio.current_time() == 30


@pytest.fixture(params=["for all tasks", "each task"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """How receive_each() reads: as it does where there is epoll, and elsewhere."""
    if request.param == "each task":
        monkeypatch.setattr(trio_stream, "readers_of_loop", lambda: None)


async def receive_each(stream: TrioStream, take: Callable[[bytes], bool]) -> None:
    await stream.receive_each(take, None)


def takes(taken: list[bytes], more: Callable[[], bool] = lambda: True) -> Callable[[bytes], bool]:
    def take(data: bytes) -> bool:
        taken.append(data)
        return more()

    return take


@pytest.mark.usefixtures("way")
async def test_bytes_are_taken_as_they_come(pair: Pair, nursery: trio.Nursery) -> None:
    stream, peer = pair
    taken: list[bytes] = []
    nursery.start_soon(receive_each, stream, takes(taken, lambda: taken[-1] != b"last"))
    for data in (b"a", b"b", b"last", b"for receive()"):
        await trio.testing.wait_all_tasks_blocked(0.01)
        peer.send(data)
    await trio.testing.wait_all_tasks_blocked(0.01)
    assert taken == [b"a", b"b", b"last"]
    assert await stream.receive(None) == b"for receive()"
    peer.close()
    await stream.receive_each(takes(taken), None)
    assert len(taken) == 3


@pytest.mark.usefixtures("way")
async def test_a_reader_that_is_cancelled_takes_nothing(pair: Pair) -> None:
    stream, peer = pair
    taken: list[bytes] = []
    async with trio.open_nursery() as tasks:
        tasks.start_soon(receive_each, stream, takes(taken))
        await trio.testing.wait_all_tasks_blocked()
        peer.send(b"x")
        tasks.cancel_scope.cancel()
    assert taken == []
    assert await stream.receive(None) == b"x"


@pytest.mark.usefixtures("way")
async def test_a_reader_that_is_cancelled_is_forgotten_before_its_socket_is_closed(pair: Pair) -> None:
    stream, _ = pair
    async with trio.open_nursery() as tasks:
        tasks.start_soon(receive_each, stream, takes([]))
        await trio.testing.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
        stream.abort()  # before the task knows
    readers = readers_of_loop()
    assert readers is None or readers._reads == {}


@pytest.mark.usefixtures("way")
async def test_what_a_reader_raises_is_raised(pair: Pair) -> None:
    stream, peer = pair

    def fail() -> bool:
        raise ValueError("a bug")

    peer.send(b"x")
    with pytest.raises(ValueError, match="a bug"):
        await stream.receive_each(takes([], fail), None)
    peer.send(b"y")
    assert await stream.receive(None) == b"y"


@pytest.mark.usefixtures("way")
async def test_a_reader_may_close_any_stream(pair: Pair, nursery: trio.Nursery) -> None:
    stream, peer = pair
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    other, ended, taken = TrioStream(ours), list[str](), list[bytes]()

    def close() -> bool:
        stream.abort()
        other.abort()
        return True

    async def read(each: TrioStream) -> None:
        with pytest.raises(ConnectionAbortedError):
            await each.receive_each(takes(taken, close), None)
        ended.append("aborted")

    with theirs:
        for each in (stream, other):
            nursery.start_soon(read, each)
        await trio.testing.wait_all_tasks_blocked()
        peer.send(b"x")
        theirs.send(b"x")
        await trio.testing.wait_all_tasks_blocked(0.01)
    assert (taken, ended) == ([b"x"], ["aborted"] * 2)


async def test_without_the_epoll_of_trio_each_task_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as another_trio:
        another_trio.setattr(trio.lowlevel, "current_task", object)
        assert readers_of_loop() is None
    assert readers_of_loop() is None, "the answer is kept"


async def test_an_error_of_the_readers_ends_the_event_loop() -> None:
    async def read() -> None:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            readers = readers_of_loop()
            assert readers is not None
            readers.add(ours.fileno(), lambda: [][0])
            theirs.send(b"x")
            await trio.sleep_forever()

    with pytest.raises(trio.TrioInternalError):
        await trio.to_thread.run_sync(trio.run, read)


@pytest.mark.usefixtures("way")
async def test_each_wait_has_its_own_deadline(
    pair: Pair, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    stream, peer = pair

    async def send() -> None:
        for _ in range(3):
            await trio.sleep(20)
            peer.send(b"x")

    nursery.start_soon(send)
    assert await stream.receive(30) == b"x"
    taken: list[float] = []
    with pytest.raises(TimeoutError):
        await stream.receive_each(lambda data: not taken.append(trio.current_time()), 30)
    assert (taken, trio.current_time()) == ([40, 60], 90)
    with pytest.raises(TimeoutError):
        await stream.receive(5)
    assert trio.current_time() == 95, "an earlier deadline than any before"


async def test_a_reader_that_is_late_leaves_the_writer_alone(
    pair: Pair, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    stream, peer = pair
    nursery.start_soon(stream.send_all, MEGABYTES, None)
    with pytest.raises(TimeoutError):
        await stream.receive(5)
    got = 0
    while got < len(MEGABYTES):
        await trio.sleep(1)
        got += len(peer.recv(1_000_000))


async def test_a_stream_that_is_closed_leaves_no_timer(pair: Pair) -> None:
    stream, peer = pair
    peer.send(b"x")
    await stream.receive(600)
    stream.abort()
    assert [timer.call for _, _, timer in event_loop_timers().__self__._heap] == [None]


async def test_a_cancelled_wait_reads_nothing(pair: Pair, nursery: trio.Nursery) -> None:
    stream, peer = pair
    nursery.start_soon(stream.receive, None)
    await trio.testing.wait_all_tasks_blocked()
    nursery.cancel_scope.cancel()
    peer.send(b"x")
    with trio.CancelScope(shield=True):
        assert await stream.receive(1) == b"x"


async def test_a_peer_that_does_not_read_delays_no_longer_than_the_timeout(
    pair: Pair, autojump_clock: trio.testing.MockClock
) -> None:
    stream, _ = pair
    with pytest.raises(TimeoutError):
        await stream.send_all(MEGABYTES, 20)
    assert trio.current_time() == 20


async def test_a_peer_that_reads_slowly_gets_everything(
    pair: Pair, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    stream, peer = pair
    nursery.start_soon(stream.send_all, MEGABYTES, None)
    got = 0
    while got < len(MEGABYTES):
        await trio.sleep(1)
        got += len(peer.recv(1_000_000))
    assert got == len(MEGABYTES)


@pytest.mark.parametrize("wait", ["receive", "send"])
async def test_closing_wakes_waiting_tasks(pair: Pair, nursery: trio.Nursery, wait: str) -> None:
    stream, _ = pair
    reported = trio.Event()

    async def waiting() -> None:
        with pytest.raises(ConnectionAbortedError):
            await (stream.receive(None) if wait == "receive" else stream.send_all(MEGABYTES, None))
        reported.set()

    nursery.start_soon(waiting)
    await trio.testing.wait_all_tasks_blocked()
    stream.abort()
    stream.abort()
    with trio.fail_after(30):
        await reported.wait()
    with pytest.raises(ConnectionAbortedError):
        await stream.receive(1)
    with pytest.raises(ConnectionAbortedError):
        await stream.send_all(b"x", 1)


async def test_only_an_open_and_silent_stream_can_be_used_again(pair: Pair) -> None:
    stream, peer = pair
    assert stream.is_reusable()
    peer.send(b"x")
    assert not stream.is_reusable(), "an unrequested response"
    await stream.receive(None)
    assert stream.is_reusable()
    peer.close()
    assert not stream.is_reusable()
    stream.abort()
    assert not stream.is_reusable()


async def test_a_failed_connection_has_its_reason() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        (await _connect(socket.AF_INET, "127.0.0.1", port)).close()
    with pytest.raises(ConnectionRefusedError):
        await _connect(socket.AF_INET, "127.0.0.1", port)
    # This is no host's address, so the system call itself fails, and there is nothing to wait for.
    with pytest.raises(OSError, match=r"unreachable|not supported"):  # on Linux, on macOS
        await _connect(socket.AF_INET, "224.0.0.1", port)


async def test_a_connection_is_waited_for(autojump_clock: trio.testing.MockClock) -> None:
    with ExitStack() as stack:
        full = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=1))
        for _ in range(4):  # more than wait to be accepted; Linux ignores the next one
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(full.getsockname())
        with trio.move_on_after(20) as scope:
            await _connect(socket.AF_INET, *full.getsockname())
        assert scope.cancelled_caught


@pytest.mark.usefixtures("way")
async def test_a_reader_of_each_way_is_interrupted(
    pair: Pair, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    stream, peer = pair
    nursery.start_soon(interrupt_soon, stream)
    with trio.fail_after(2), pytest.raises(InterruptedError):
        await stream.receive_each(takes([]), None)
    peer.send(b"x")
    assert await stream.receive(None) == b"x"


async def interrupt_soon(stream: TrioStream) -> None:
    await trio.sleep(1)
    stream.interrupt()


TlsPair = tuple[TrioStream, "trio.SSLStream[trio.SocketStream]"]


@pytest.fixture
async def tls_pair(tmp_path: Path) -> AsyncIterator[TlsPair]:
    """A stream with TLS, and its peer."""
    certificate = make_certificate(tmp_path)
    ours, theirs = trio.socket.socketpair()
    peer = trio.SSLStream(
        trio.SocketStream(theirs), certificate.server(), server_side=True, https_compatible=True
    )
    raw = socket.socket(fileno=ours.detach())
    raw.setblocking(False)
    async with trio.open_nursery() as tasks:
        tasks.start_soon(peer.do_handshake)
        stream = await TrioStream.open(raw, certificate.client(), "127.0.0.1")
    yield stream, peer
    stream.abort()
    await trio.aclose_forcefully(peer)


async def test_tls_has_the_same_errors(
    tls_pair: TlsPair, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    stream, peer = tls_pair
    await stream.send_all(b"hello", 1)
    assert await peer.receive_some() == b"hello"
    await peer.send_all(b"ok")
    assert await stream.receive(1) == b"ok"
    assert stream.is_reusable()
    begun = trio.current_time()
    with pytest.raises(TimeoutError):
        await stream.receive(30)
    assert trio.current_time() == begun + 30
    nursery.start_soon(interrupt_soon, stream)
    with pytest.raises(InterruptedError):
        await stream.receive(30)
    assert trio.current_time() == begun + 31
    await peer.transport_stream.aclose()
    assert await stream.receive(1) == b"", "most servers send no close_notify"
    stream.abort()
    with pytest.raises(ConnectionError):
        await stream.receive(1)
    with pytest.raises(ConnectionError):
        await stream.send_all(b"x", 1)
    assert not stream.is_reusable()


@pytest.mark.usefixtures("way")
async def test_the_content_of_records_is_taken_as_they_come(tls_pair: TlsPair, nursery: trio.Nursery) -> None:
    stream, peer = tls_pair
    taken: list[bytes] = []
    nursery.start_soon(receive_each, stream, takes(taken, lambda: taken[-1] != b"last"))
    for data in (b"a", b"b", b"last", b"for receive()"):
        await peer.send_all(data)
        await trio.testing.wait_all_tasks_blocked(0.01)
    assert taken == [b"a", b"b", b"last"]
    assert await stream.receive(1) == b"for receive()"
    await peer.aclose()
    await stream.receive_each(takes(taken), None)
    assert len(taken) == 3
    assert await stream.receive(1) == b""


@pytest.mark.usefixtures("way")
async def test_a_record_that_never_ends_is_late(
    tls_pair: TlsPair, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    stream, peer = tls_pair

    async def send() -> None:
        await trio.sleep(20)
        await peer.send_all(b"x")
        for part in (b"\x17\x03\x03\x01\x00", b"part"):
            await trio.sleep(20)
            await peer.transport_stream.send_all(part)

    nursery.start_soon(send)
    taken: list[float] = []
    with pytest.raises(TimeoutError):
        await stream.receive_each(lambda data: not taken.append(trio.current_time()), 30)
    assert (taken, trio.current_time()) == ([20], 50)
    with pytest.raises(TimeoutError):
        await stream.receive(30)
    assert trio.current_time() == 80


async def test_records_are_sent_in_order_whether_or_not_that_waits(
    tls_pair: TlsPair, nursery: trio.Nursery
) -> None:
    stream, peer = tls_pair
    assert stream.send_now(b"first") is None
    assert stream.send_now(MEGABYTES) == b""
    assert stream.send_now(b"last") == b"last", "the rest comes before it"
    nursery.start_soon(stream.send_all, b"last", None)
    read = bytearray()
    while not read.endswith(b"last"):
        read += await peer.receive_some()
    assert read == b"first" + MEGABYTES + b"last"


async def test_a_write_waits_for_another_within_its_time_and_fails_if_that_is_cut(
    tls_pair: TlsPair, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    stream, _ = tls_pair
    assert stream.send_now(MEGABYTES) == b""
    ended: list[str] = []

    async def write() -> None:
        with pytest.raises(BrokenPipeError, match="an earlier write was cut short"):
            await stream.send_all(b"last", None)
        ended.append("second")

    async with trio.open_nursery() as first:
        first.start_soon(stream.send_all, b"", None)
        await trio.testing.wait_all_tasks_blocked()
        with trio.fail_after(60), pytest.raises(TimeoutError):
            await stream.send_all(b"late", 30)
        nursery.start_soon(write)
        await trio.testing.wait_all_tasks_blocked()
        assert ended == []
        first.cancel_scope.cancel()
    await trio.testing.wait_all_tasks_blocked()
    assert ended == ["second"]


def answer_key_update(stream: Any) -> bytes:
    stream._outgoing.write(b"answer")
    raise ssl.SSLWantReadError


async def test_a_read_that_must_answer_waits_no_longer_for_the_writer(
    tls_pair: TlsPair,
    nursery: trio.Nursery,
    autojump_clock: trio.testing.MockClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stream, _ = tls_pair
    assert stream.send_now(MEGABYTES) == b""
    nursery.start_soon(stream.send_all, b"", None)
    await trio.testing.wait_all_tasks_blocked()
    monkeypatch.setattr(type(stream), "_read_records", answer_key_update)
    started = trio.current_time()
    with trio.fail_after(60), pytest.raises(TimeoutError):
        await stream.receive(30)
    assert trio.current_time() == started + 30
    nursery.cancel_scope.cancel()


async def answered(tls_pair: TlsPair, *records: bytes, behind: bytes = b"") -> TrioStream:
    """Return a stream with TLS, to which its peer has sent these records. behind: sent without TLS."""
    stream, peer = tls_pair
    for record in records:
        await peer.send_all(record)
    await peer.transport_stream.send_all(behind)
    return stream


async def test_records_that_nobody_has_read_make_a_stream_unusable(
    tls_pair: TlsPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They came in one read of the socket, so no look at it finds them: they would answer the next request."""
    monkeypatch.setattr(trio_stream, "READ_SIZE", 16 * 1024)
    stream = await answered(tls_pair, b"x" * (16 * 1024), b"x")
    assert len(await stream.receive(1)) == 16 * 1024
    assert TrioStream.is_reusable(stream)
    assert not stream.is_reusable()
    assert await stream.receive(1) == b"x"
    assert stream.is_reusable()


async def test_small_records_are_read_together(tls_pair: TlsPair) -> None:
    """So a peer that sends a record for each byte does not hold the loop."""
    stream = await answered(tls_pair, *[b"x"] * 100)
    assert len(await stream.receive(1)) == 100


async def test_what_is_no_record_is_an_error_and_no_end(tls_pair: TlsPair) -> None:
    stream = await answered(tls_pair, b"x", b"x", behind=b"HTTP/1.1 400 Bad Request")
    assert await stream.receive(1) == b"xx"
    with pytest.raises(ssl.SSLError, match="WRONG_VERSION_NUMBER"):
        await stream.receive(1)
