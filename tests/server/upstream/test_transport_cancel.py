"""Cancelled or closed at any point, the transport closes its socket at once and keeps no slot of the pool."""

import errno
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import aclosing

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest
from http_server import TIMEOUT_S, DeafServer, Peer, ScriptedServer, answering, read_to_the_end
from transport_requests import read, request_to
from virtual_time import REAL_BACKENDS, UVLOOP, VIRTUAL_BACKENDS

from dragoman_server.streams.connect import (
    ATTEMPT_DELAY_S,
    _alternate_families,
    connect,
    is_of_machine,
    open_byte_stream,
)
from dragoman_server.upstream.errors import UpstreamBroken, UpstreamTimeout
from dragoman_server.upstream.transport import Http1Request, Http1Transport, PoolLimits

pytestmark = [pytest.mark.anyio, pytest.mark.backends(*REAL_BACKENDS, UVLOOP)]

OK = b"HTTP/1.1 200 OK\r\n"
CHUNK = OK + b"transfer-encoding: chunked\r\n\r\n1\r\nx\r\n"


@pytest.fixture
def deaf_port() -> Iterator[int]:
    """A port whose queue of connections is full, so that one more is neither accepted nor refused."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        waiting = []
        try:
            for _ in range(4):
                client = socket.socket()
                client.setblocking(False)
                client.connect_ex(listener.getsockname())
                waiting.append(client)
            yield listener.getsockname()[1]
        finally:
            for client in waiting:
                client.close()


def is_clean(transport: Http1Transport) -> bool:
    pool = transport.pool
    return (pool.busy, pool.idle, len(pool._waiting)) == (0, 0, 0)


async def cancel_when_blocked(
    transport: Http1Transport,
    request: Http1Request,
    reached: Callable[[], Awaitable[object]] = anyio.lowlevel.checkpoint,
) -> None:
    """Start a request, wait until it hangs at the place in question, cancel it."""
    finished = False

    async def run() -> None:
        nonlocal finished
        *_, body = await transport.send(request)
        await read(body)
        finished = True

    with anyio.fail_after(TIMEOUT_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            await reached()
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
    assert not finished


async def gone(peer: Peer) -> None:
    with anyio.fail_after(TIMEOUT_S):
        await peer.gone.wait()


async def silent(peer: Peer) -> None:
    await peer.request()
    await peer.until_closed()


async def test_no_byte_that_arrives_with_the_cancel_is_passed_on() -> None:
    taken, first = list[bytes](), anyio.Event()

    def take(data: bytes) -> bool:
        taken.append(data)
        first.set()
        return True

    ours, theirs = socket.socketpair()
    with theirs:
        ours.setblocking(False)
        stream = await open_byte_stream(ours)

        async def receive() -> None:
            await stream.receive_each(take, None)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(receive)
            await anyio.wait_all_tasks_blocked()
            theirs.send(b"before")
            with anyio.fail_after(TIMEOUT_S):
                await first.wait()
            theirs.send(b"after")
            tasks.cancel_scope.cancel()
        stream.abort()
        await anyio.lowlevel.checkpoint()
    assert taken == [b"before"]


async def test_cancelled_while_it_waits_for_a_slot() -> None:
    limits = PoolLimits(connections=1)
    async with ScriptedServer(silent) as server, aclosing(Http1Transport(limits=limits)) as transport:
        lease = await transport.pool.lease(("http", "other", 1, "other"), None)  # type: ignore[arg-type]
        await cancel_when_blocked(transport, request_to(server.url))
        lease.release(keep=False)
        assert is_clean(transport)
        assert server.peers == []


async def test_cancelled_while_it_connects(deaf_port: int) -> None:
    async with aclosing(Http1Transport()) as transport:
        await cancel_when_blocked(transport, request_to(f"http://127.0.0.1:{deaf_port}/"))
        assert is_clean(transport)


async def test_connecting_has_a_limit(deaf_port: int) -> None:
    async with aclosing(Http1Transport()) as transport:
        with pytest.raises(UpstreamTimeout, match=r"no response within 0\.05 s"):
            await transport.send(request_to(f"http://127.0.0.1:{deaf_port}/", connect=0.05))
        assert is_clean(transport)


@pytest.mark.parametrize(
    "start",
    [b"", b"HTTP/1.1 100 Continue\r\n\r\n", OK + b"x: y\r\n", CHUNK],
    ids=["silence", "100", "head", "body"],
)
async def test_cancelled_in_the_response(start: bytes) -> None:
    sent = anyio.Event()

    async def script(peer: Peer) -> None:
        await peer.respond(start)
        sent.set()
        await peer.until_closed()

    async with ScriptedServer(script) as server, aclosing(Http1Transport()) as transport:
        await cancel_when_blocked(transport, request_to(server.url), sent.wait)
        assert is_clean(transport)
        await gone(server.peers[0])


async def test_closed_in_the_middle_of_a_body() -> None:
    async with ScriptedServer(answering(CHUNK)) as server, aclosing(Http1Transport()) as transport:
        *_, body = await transport.send(request_to(server.url))
        assert await body.receive() == b"x"
        assert not server.peers[0].gone.is_set()
        await body.aclose()
        assert is_clean(transport)
        await gone(server.peers[0])
        await body.aclose()
        assert is_clean(transport)
        with pytest.raises(UpstreamBroken):
            await body.receive()


# Racing addresses.


V4, V6 = socket.AddressFamily.AF_INET, socket.AddressFamily.AF_INET6


def test_families_take_turns_and_the_resolvers_first_choice_stays_first() -> None:
    addresses = [(V6, "::1"), (V6, "::2"), (V4, "1.1.1.1"), (V6, "::3"), (V6, "::1"), (V4, "2.2.2.2")]
    found = _alternate_families(addresses)
    assert found == [(V6, "::1"), (V4, "1.1.1.1"), (V6, "::2"), (V4, "2.2.2.2"), (V6, "::3")]


Attempt = Callable[[socket.AddressFamily], Awaitable[socket.socket]]


@pytest.fixture
def two_addresses(monkeypatch: pytest.MonkeyPatch) -> Callable[[Attempt], None]:
    """Makes `connect` try two addresses by this function."""

    known = [(V6, "::1"), (V4, "1.1.1.1")]

    async def resolve(host: str) -> list[tuple[socket.AddressFamily, str]]:
        return known

    def try_by(attempt: Attempt) -> None:
        monkeypatch.setattr("dragoman_server.streams.connect._connect", lambda family, *_: attempt(family))

    monkeypatch.setattr("dragoman_server.streams.connect.resolve", resolve)
    return try_by


@pytest.mark.backends(*VIRTUAL_BACKENDS)
async def test_an_address_that_hangs_does_not_delay_the_next(
    two_addresses: Callable[[Attempt], None],
) -> None:
    sock = socket.socket()
    tried = []

    async def attempt(family: socket.AddressFamily) -> socket.socket:
        tried.append(family)
        if family is V6:
            await anyio.sleep_forever()
        return sock

    two_addresses(attempt)
    with sock:
        assert await connect("up.example", 80) is sock
        assert anyio.current_time() == ATTEMPT_DELAY_S
        assert tried == [V6, V4]
        assert sock.fileno() >= 0
        assert await connect("up.example", 80) is sock, "the next connection begins with the one that works"
        assert anyio.current_time() == ATTEMPT_DELAY_S
        assert tried == [V6, V4, V4]


@pytest.mark.backends(*VIRTUAL_BACKENDS)
async def test_after_an_address_that_fails_the_next_is_tried_at_once(
    two_addresses: Callable[[Attempt], None],
) -> None:
    async def attempt(family: socket.AddressFamily) -> socket.socket:
        raise ConnectionRefusedError(111, family.name)

    two_addresses(attempt)
    with pytest.raises(ConnectionRefusedError, match="AF_INET6"):
        await connect("up.example", 80)
    assert anyio.current_time() == 0


@pytest.mark.backends(*VIRTUAL_BACKENDS)
@pytest.mark.parametrize(
    ("of_6", "of_4", "named"),
    [
        # IPv6 is switched off, and the host is down: the host is to blame.
        (errno.EADDRNOTAVAIL, errno.ECONNREFUSED, errno.ECONNREFUSED),
        (errno.ENETUNREACH, errno.ENETUNREACH, errno.ENETUNREACH),
        # It could have been the address that works.
        (errno.ECONNREFUSED, errno.EMFILE, errno.EMFILE),
    ],
)
async def test_the_error_of_several_addresses(
    of_6: int, of_4: int, named: int, two_addresses: Callable[[Attempt], None]
) -> None:
    async def attempt(family: socket.AddressFamily) -> socket.socket:
        raise OSError(of_6 if family is V6 else of_4, "")

    two_addresses(attempt)
    with pytest.raises(OSError) as failed:  # noqa: PT011 - its number is what is compared
        await connect("up.example", 80)
    assert failed.value.errno == named
    assert is_of_machine(failed.value) == (named != errno.ECONNREFUSED)


@pytest.mark.backends(*VIRTUAL_BACKENDS)
async def test_a_second_winner_is_closed(two_addresses: Callable[[Attempt], None]) -> None:
    socks: list[socket.socket] = []
    go = anyio.Event()

    async def attempt(family: socket.AddressFamily) -> socket.socket:
        if family is V6:
            with anyio.CancelScope(shield=True):
                await go.wait()
        else:
            go.set()
        socks.append(socket.socket())
        return socks[-1]

    two_addresses(attempt)
    with await connect("up.example", 80) as winner:
        assert winner is socks[0]
        assert [sock.fileno() >= 0 for sock in socks] == [True, False]


async def test_cancelled_while_it_sends() -> None:
    with DeafServer() as server:
        connections = []

        async def sending() -> None:
            connections.append(await anyio.to_thread.run_sync(server.accept))

        async with aclosing(Http1Transport()) as transport:
            await cancel_when_blocked(transport, request_to(server.url, b"q" * 50_000_000), sending)
            assert is_clean(transport)
            # The server learns that although it has not read what came before.
            with pytest.raises(ConnectionResetError):
                await anyio.to_thread.run_sync(read_to_the_end, connections[0])
