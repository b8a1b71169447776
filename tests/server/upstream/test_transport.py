"""The transport against scripted servers on real sockets: bodies, reuse, retry, limits, timeouts."""

import asyncio
import errno
import socket
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import cast

import anyio
import pytest
from http_server import TIMEOUT_S, DeafServer, Peer, Script, ScriptedServer, answering
from transport_requests import read, request_to
from trials import MAX_TRIALS, trials
from virtual_time import REAL_BACKENDS, VIRTUAL_BACKENDS

from dragoman_server.gateway import Gateway
from dragoman_server.platform.cancellation import return_if_cancelled
from dragoman_server.settings import Settings
from dragoman_server.streams.byte_stream import ByteStream
from dragoman_server.streams.connect import connect
from dragoman_server.upstream.errors import (
    UpstreamBroken,
    UpstreamError,
    UpstreamIdleClosed,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from dragoman_server.upstream.pool import ConnectionPool, Origin
from dragoman_server.upstream.transport import Http1Request, Http1Transport, PoolLimits

pytestmark = [pytest.mark.anyio, pytest.mark.backends(*REAL_BACKENDS)]

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"transfer-encoding: chunked\r\n\r\n"
HELLO = OK + b"content-length: 5\r\n\r\nhello"
TIMEOUTS = {"connect": TIMEOUT_S, "read": TIMEOUT_S, "write": TIMEOUT_S, "pool": TIMEOUT_S}
KEY = "sk-secret"


def post(
    server: ScriptedServer | DeafServer,
    content: bytes = b"{}",
    *,
    method: str = "POST",
    **timeouts: float | None,
) -> Http1Request:
    key = ("authorization", KEY)
    return request_to(server.url, content, method=method, headers=[key], **TIMEOUTS | timeouts)


async def fetch(transport: Http1Transport, request: Http1Request) -> bytes:
    *_, body = await transport.send(request)
    return b"".join(await read(body))


def counts(transport: Http1Transport) -> tuple[int, int]:
    return transport.pool.busy, transport.pool.idle


async def gone(peer: Peer) -> None:
    with anyio.fail_after(TIMEOUT_S):
        await peer.gone.wait()


def says_hello_at(
    moment: anyio.Event, then: Callable[[Peer], Awaitable[object]] = Peer.until_closed
) -> Script:
    async def script(peer: Peer) -> None:
        await peer.respond(OK + b"content-length: 5\r\n\r\n")
        await moment.wait()
        await peer.send(b"hello")
        await then(peer)

    return script


# Bodies.

REPLIES = {
    "length": (HELLO, b"hello", (0, 1)),
    "chunked": (CHUNKED + b"2\r\nhe\r\n3;x=y\r\nllo\r\n0\r\nx: y\r\n\r\n", b"hello", (0, 1)),
    "empty": (OK + b"content-length: 0\r\n\r\n", b"", (0, 1)),
    "chunked and empty": (CHUNKED + b"0\r\n\r\n", b"", (0, 1)),
    "connection: close": (OK + b"connection: close\r\ncontent-length: 5\r\n\r\nhello", b"hello", (0, 0)),
    "interim responses": (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 X\r\na: b\r\n\r\n" + HELLO, b"hello", (0, 1)),
}  # fmt: skip


@pytest.mark.parametrize(("data", "body", "after"), REPLIES.values(), ids=REPLIES)
async def test_a_body_arrives_however_the_server_cuts_it(
    data: bytes, body: bytes, after: tuple[int, int]
) -> None:
    cuts = [[data], [data[i : i + 1] for i in range(len(data))]]
    for chunks in cuts:
        async with ScriptedServer(answering(*chunks)) as server, aclosing(Http1Transport()) as transport:
            assert await fetch(transport, post(server)) == body
            assert counts(transport) == after


@pytest.mark.promise("S5")
@pytest.mark.parametrize("size", [5, 32 * 1024])  # which one turn of the reader takes
async def test_bytes_after_a_body_are_no_response_to_the_next_request(size: int) -> None:
    forged = b"HTTP/1.1 500 forged\r\ncontent-length: 0\r\n\r\n"
    first = OK + b"content-length: %d\r\n\r\n" % size + b"x" * size
    sent = anyio.Event()

    async def later(peer: Peer) -> None:
        await peer.respond(HELLO)
        await peer.send(forged)
        sent.set()
        await peer.until_closed()

    scripts = (answering(first + forged), later, answering(HELLO))
    async with ScriptedServer(*scripts) as server, aclosing(Http1Transport()) as transport:
        assert await fetch(transport, post(server)) == b"x" * size
        assert counts(transport) == (0, 0)
        assert await fetch(transport, post(server)) == b"hello"
        await sent.wait()
        await anyio.wait_all_tasks_blocked()
        assert await fetch(transport, post(server)) == b"hello"
        assert [len(peer.requests) for peer in server.peers] == [1, 1, 1]


@pytest.mark.parametrize(
    ("method", "head"),
    [
        ("HEAD", OK + b"content-length: 5\r\n\r\n"),
        ("GET", b"HTTP/1.1 304 Not Modified\r\ncontent-length: 5\r\n\r\n"),
        ("POST", b"HTTP/1.1 204 No Content\r\n\r\n"),
    ],
)
async def test_a_response_without_body_frees_its_connection_at_once(method: str, head: bytes) -> None:
    async with ScriptedServer(answering(head, times=2)) as server, aclosing(Http1Transport()) as transport:
        for _ in range(2):
            *_, body = await transport.send(post(server, method=method))
            assert counts(transport) == (0, 1)
            assert await body.receive() == b""
        assert len(server.peers) == 1


async def test_a_large_read_is_returned_in_parts_and_other_tasks_run_in_between() -> None:
    """256 KiB of empty events, or of chunks of one byte, are 30 ms of work."""
    content = b"data:\n\n" * 37_000
    turns = others = 0

    async def count_turns() -> None:
        nonlocal others
        while True:
            await anyio.lowlevel.checkpoint()
            others += 1

    async with (
        ScriptedServer(answering(OK + b"content-length: %d\r\n\r\n" % len(content) + content)) as server,
        aclosing(Http1Transport()) as transport,
        anyio.create_task_group() as tasks,
    ):
        *_, body = await transport.send(post(server))
        await anyio.sleep(0.05)  # all of it is in the buffers
        tasks.start_soon(count_turns)
        received = []
        while data := await body.receive():
            received.append(data)
            turns += 1
        tasks.cancel_scope.cancel()
        assert counts(transport) == (0, 1)
    assert b"".join(received) == content
    assert max(map(len, received)) <= 32 * 1024
    assert others >= turns // 2


@pytest.mark.promise("R10")
async def test_a_slow_reader_stops_the_server() -> None:
    sent = 0
    blocked = anyio.Event()

    async def script(peer: Peer) -> None:
        nonlocal sent
        await peer.respond(OK + b"\r\n")
        while True:
            with anyio.move_on_after(0.2) as scope:
                await peer.send(b"x" * 65536)
            if scope.cancelled_caught:
                break
            sent += 65536
        blocked.set()
        await peer.stream.aclose()

    async with ScriptedServer(script) as server, aclosing(Http1Transport()) as transport:
        *_, body = await transport.send(post(server))
        with anyio.fail_after(TIMEOUT_S):
            await blocked.wait()
        # The kernel's two socket buffers and our own bounded one: far from all that a server can send.
        assert sent < 16 * 1024 * 1024
        received = 0
        while data := await body.receive():
            received += len(data)
        assert received >= sent


# Failures.

CUTS = {
    "inside a length": (OK + b"content-length: 9\r\n\r\nhello", "ended after 5 of 9 body bytes"),
    "inside a chunk": (CHUNKED + b"9\r\nhello", "ended without the last chunk"),
    "between chunks": (CHUNKED + b"5\r\nhello\r\n", "ended without the last chunk"),
    "before the last CRLF": (CHUNKED + b"5\r\nhello\r\n0\r\n", "ended without the last chunk"),
    "bad chunk": (CHUNKED + b"5\r\nhello\r\nxyz\r\n", "a chunk-size line is not hex"),
}


@pytest.mark.parametrize(("data", "message"), CUTS.values(), ids=CUTS)
async def test_a_broken_body_returns_its_good_bytes_and_then_an_error(data: bytes, message: str) -> None:
    async def script(peer: Peer) -> None:
        await peer.respond(data)

    async with ScriptedServer(script) as server, aclosing(Http1Transport()) as transport:
        *_, body = await transport.send(post(server))
        assert await body.receive() == b"hello"
        with pytest.raises(UpstreamBroken, match=message):
            await body.receive()
        assert counts(transport) == (0, 0)


HEADS = {
    "nothing": (b"", "closed the connection without a response"),
    "half a head": (OK + b"x-key: " + KEY.encode(), "closed the connection inside the response head"),
    "not HTTP": (KEY.encode() + b"\r\n\r\n", "illegal status line"),
    "length and chunked": (
        OK + b"content-length: 5\r\ntransfer-encoding: chunked\r\n\r\nhello",
        "both content-length and transfer-encoding",
    ),
}


@pytest.mark.parametrize(("data", "message"), HEADS.values(), ids=HEADS)
async def test_a_bad_head_is_an_error_that_shows_no_key(data: bytes, message: str) -> None:
    async def script(peer: Peer) -> None:
        await peer.respond(data)

    async with ScriptedServer(script) as server, aclosing(Http1Transport()) as transport:
        with pytest.raises(UpstreamBroken, match=message) as caught:
            await transport.send(post(server))
        assert KEY not in str(caught.value)
        assert f"127.0.0.1:{server.port}" in str(caught.value)
        assert counts(transport) == (0, 0)
        assert len(server.peers) == 1


RESETS = {
    "before the head": (b"", "no response"),
    "in the head": (OK, "reading the response head failed"),
    "in the body": (OK + b"\r\nx", "reading the body failed"),
}


@pytest.mark.parametrize(("data", "message"), RESETS.values(), ids=RESETS)
async def test_a_reset_is_never_taken_for_an_end(data: bytes, message: str) -> None:
    read = anyio.Event()

    async def script(peer: Peer) -> None:
        await peer.respond(data)
        if data.endswith(b"x"):
            await read.wait()
        else:
            await anyio.wait_all_tasks_blocked()
        await peer.reset()

    async def request(transport: Http1Transport, server: ScriptedServer) -> None:
        *_, body = await transport.send(post(server))
        assert await body.receive() == b"x"
        read.set()
        await body.receive()

    async with ScriptedServer(script) as server, aclosing(Http1Transport()) as transport:
        with pytest.raises(UpstreamBroken, match=f"{message}.*: Connection reset by peer"):
            await request(transport, server)
        assert counts(transport) == (0, 0)


def refusing(*chunks: bytes) -> Script:
    """A script: respond to the first bytes of a request, and read no more of it."""

    async def script(peer: Peer) -> None:
        await peer.stream.receive()
        await peer.send(*chunks)
        await anyio.sleep_forever()

    return script


REFUSAL = b"HTTP/1.1 413 Too Large\r\ncontent-length: 2\r\n\r\nno"
LARGE = b"q" * 20_000_000


@pytest.mark.parametrize("chunks", [[REFUSAL], [b"HTTP/1.1 100 Continue\r\n\r\n" + REFUSAL[:9], REFUSAL[9:]]])
async def test_a_refusal_ends_the_sending_of_its_request(chunks: list[bytes]) -> None:
    async with ScriptedServer(refusing(*chunks)) as server, aclosing(Http1Transport()) as transport:
        status, _, body = await transport.send(post(server, LARGE))
        assert status == 413
        assert await body.receive() == b"no"
        assert counts(transport) == (0, 0)


@pytest.mark.parametrize("early", [b"HTTP/1.1 100 Continue\r\n\r\n", HELLO, HELLO[:9]])
async def test_what_is_no_refusal_does_not_end_it(early: bytes) -> None:
    complete = anyio.Event()

    async def script(peer: Peer) -> None:
        await peer.send(early)
        await peer.request()
        complete.set()
        await peer.send(HELLO[9:] if early == HELLO[:9] else HELLO if early != HELLO else b"")
        await peer.until_closed()

    async with ScriptedServer(script) as server, aclosing(Http1Transport()) as transport:
        assert await fetch(transport, post(server, LARGE)) == b"hello"
        assert counts(transport) == (0, int(early != HELLO))
        with anyio.fail_after(TIMEOUT_S):
            await complete.wait()


async def test_a_broken_head_ends_it_too() -> None:
    async with (
        ScriptedServer(refusing(b"nonsense\r\n\r\n")) as server,
        aclosing(Http1Transport()) as transport,
    ):
        with (
            anyio.fail_after(TIMEOUT_S / 2),  # before the time for sending is over
            pytest.raises(UpstreamBroken, match="is not HTTP"),
        ):
            await transport.send(post(server, LARGE))
        assert counts(transport) == (0, 0)


async def test_an_end_of_the_server_in_the_middle_of_a_request() -> None:
    async def script(peer: Peer) -> None:
        await peer.stream.receive()
        await peer.stream.send_eof()  # type: ignore[attr-defined]
        await peer.until_closed()

    async with ScriptedServer(script) as server, aclosing(Http1Transport()) as transport:
        with pytest.raises(UpstreamError):
            await transport.send(post(server, b"q" * 20_000_000))
        assert counts(transport) == (0, 0)


async def test_connection_refused() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/"
        async with aclosing(Http1Transport()) as transport:
            match = r"cannot connect to http://127.*: Connection refused"
            with pytest.raises(UpstreamUnreachable, match=match) as refused:
                await transport.send(request_to(url))
            assert not refused.value.of_gateway
            assert counts(transport) == (0, 0)


@pytest.mark.parametrize(
    ("number", "text"),
    [(errno.EMFILE, "Too many open files"), (errno.EADDRNOTAVAIL, "Cannot assign requested address")],
)
async def test_without_a_descriptor_or_a_port_the_gateway_is_the_cause(
    number: int, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def exhausted(host: str, port: int) -> socket.socket:
        raise OSError(number, "")

    monkeypatch.setattr("dragoman_server.upstream.transport.connect", exhausted)
    async with aclosing(Http1Transport()) as transport:
        with pytest.raises(UpstreamUnreachable, match=text) as failed:
            await transport.send(request_to("http://127.0.0.1/"))
        assert failed.value.of_gateway
        assert counts(transport) == (0, 0)


# Reuse.


async def test_small_writes_are_sent_at_once_and_silence_is_probed() -> None:
    async with ScriptedServer(answering(HELLO)) as server:
        with await connect("127.0.0.1", server.port) as sock:
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) != 0


async def test_a_connection_that_the_server_closed_while_idle_is_not_used() -> None:
    closed = anyio.Event()

    async def once(peer: Peer) -> None:
        await peer.respond(HELLO)
        await peer.stream.aclose()
        closed.set()

    async with ScriptedServer(once, answering(HELLO)) as server, aclosing(Http1Transport()) as transport:
        await fetch(transport, post(server))
        await closed.wait()
        await anyio.wait_all_tasks_blocked()
        assert await fetch(transport, post(server)) == b"hello"
        assert [len(peer.requests) for peer in server.peers] == [1, 1]


def closes_on_second_request(data: bytes, after: float = 0.0, *, resets: bool = False) -> Script:
    """Without `after` it is the race that no look at the socket can win: the server closes as the request comes."""

    async def script(peer: Peer) -> None:
        await peer.respond(HELLO)
        await peer.request()
        await anyio.sleep(after)
        await peer.send(data)
        if resets:
            await peer.reset()

    return script


@pytest.mark.promise("R6")
@pytest.mark.parametrize("resets", [False, True])
async def test_a_request_lost_on_an_idle_connection_is_an_error_of_its_own(resets: bool) -> None:
    scripts = (closes_on_second_request(b"", resets=resets), answering(HELLO))
    async with ScriptedServer(*scripts) as server, aclosing(Http1Transport()) as transport:
        await fetch(transport, post(server))
        with pytest.raises(UpstreamIdleClosed, match=f"{server.port}: the idle connection was closed"):
            await fetch(transport, post(server, b"again"))
        assert [len(peer.requests) for peer in server.peers] == [2]
        assert counts(transport) == (0, 0)
        assert await fetch(transport, post(server, b"again")) == b"hello"


async def test_the_other_idle_connections_to_that_server_are_not_tried() -> None:
    both = anyio.Event()

    script = says_hello_at(both, Peer.request)
    async with (
        ScriptedServer(script, script) as server,
        ScriptedServer(answering(HELLO)) as other,
        aclosing(Http1Transport()) as transport,
    ):
        await fetch(transport, post(other))
        bodies = [(await transport.send(post(server)))[2] for _ in range(2)]
        both.set()
        assert [await body.receive() for body in bodies] == [b"hello", b"hello"]
        assert counts(transport) == (0, 3)
        with pytest.raises(UpstreamIdleClosed):
            await fetch(transport, post(server))
        assert counts(transport) == (0, 1)


async def test_connections_in_use_when_an_idle_one_was_lost_are_not_used_again() -> None:
    """Else the request that is sent again could meet one of them, which may be closed as well."""
    end = anyio.Event()

    slow = says_hello_at(end, Peer.request)
    scripts = (slow, closes_on_second_request(b""))
    async with ScriptedServer(*scripts) as server, aclosing(Http1Transport()) as transport:
        *_, other = await transport.send(post(server))
        await fetch(transport, post(server))
        with pytest.raises(UpstreamIdleClosed):
            await fetch(transport, post(server, b"again"))
        end.set()
        assert await other.receive() == b"hello"
        assert counts(transport) == (0, 0)


async def test_a_connection_that_ends_after_a_silence_is_no_race() -> None:
    scripts = (closes_on_second_request(b"", after=0.7),)
    async with ScriptedServer(*scripts) as server, aclosing(Http1Transport()) as transport:
        await fetch(transport, post(server))
        with pytest.raises(UpstreamBroken, match="without a response") as caught:
            await fetch(transport, post(server, b"again"))
        assert not isinstance(caught.value, UpstreamIdleClosed)
        assert len(server.peers) == 1


async def test_a_request_is_not_sent_again_after_the_first_byte_of_a_response() -> None:
    scripts = (closes_on_second_request(b"H"), answering(HELLO))
    async with ScriptedServer(*scripts) as server, aclosing(Http1Transport()) as transport:
        await fetch(transport, post(server))
        with pytest.raises(UpstreamBroken, match="inside the response head"):
            await fetch(transport, post(server))
        assert len(server.peers) == 1


# The pool.


async def test_the_limit_holds_and_the_next_request_gets_the_freed_connection() -> None:
    order: list[str] = []
    async with (
        ScriptedServer(answering(HELLO, times=3)) as server,
        aclosing(Http1Transport(limits=PoolLimits(connections=1))) as transport,
        anyio.create_task_group() as tasks,
    ):
        lease = await transport.pool.lease(("http", "other", 1, "other"), None)  # type: ignore[arg-type]

        async def request(name: str) -> None:
            assert await fetch(transport, post(server)) == b"hello"
            order.append(name)

        tasks.start_soon(request, "first")
        await anyio.wait_all_tasks_blocked()
        tasks.start_soon(request, "second")
        await anyio.wait_all_tasks_blocked()
        assert (order, len(server.peers)) == ([], 0)
        lease.release(keep=False)
    assert order == ["first", "second"]
    assert len(server.peers) == 1


async def test_waiting_for_a_connection_has_a_limit() -> None:
    async with (
        ScriptedServer(answering(OK + b"content-length: 9\r\n\r\n")) as server,
        aclosing(Http1Transport(limits=PoolLimits(connections=1))) as transport,
    ):
        *_, body = await transport.send(post(server))
        with pytest.raises(UpstreamTimeout, match=r"no free connection within 0\.02 s"):
            await transport.send(post(server, pool=0.02))
        assert counts(transport) == (1, 0)
        await body.aclose()
        assert counts(transport) == (0, 0)


async def test_a_slot_goes_to_who_waits_also_if_the_first_one_was_cancelled() -> None:
    pool, origin = ConnectionPool(PoolLimits(connections=1)), Origin("http", "a.example", 80)
    last, leases = await pool.lease(origin, None), list[str]()

    async def wait(name: str) -> None:
        lease = await pool.lease(origin, None)
        leases.append(name)
        lease.release(keep=False)

    async with anyio.create_task_group() as tasks:
        for name in ("left", "cancelled", "next"):
            handle = tasks.start_soon(return_if_cancelled, wait, name)
            await anyio.wait_all_tasks_blocked()
            if name == "left":
                handle.cancel()
            elif name == "cancelled":
                cancelled = handle
        last.release(keep=False)  # for the second one, which trio does not cancel any more
        cancelled.cancel()
    assert leases in (["next"], ["cancelled", "next"])
    assert (pool.busy, pool.idle, len(pool._waiting)) == (0, 0, 0)


@pytest.mark.backends("real-asyncio")
async def test_a_slot_that_comes_with_a_cancellation_of_asyncio_goes_back() -> None:
    """A scope of AnyIO does not cancel a task that goes on anyway, and an application's own `Task.cancel()` does."""
    pool, origin = ConnectionPool(PoolLimits(connections=1)), Origin("http", "a.example", 80)
    last = await pool.lease(origin, None)
    waiting = asyncio.create_task(pool.lease(origin, None))
    await anyio.wait_all_tasks_blocked()
    last.release(keep=False)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert (pool.busy, len(pool._waiting)) == (0, 0)


async def test_an_idle_connection_makes_room_for_another_origin() -> None:
    async with (
        ScriptedServer(answering(HELLO)) as one,
        ScriptedServer(answering(HELLO)) as other,
        aclosing(Http1Transport(limits=PoolLimits(connections=1))) as transport,
    ):
        await fetch(transport, post(one))
        assert counts(transport) == (0, 1)
        await fetch(transport, post(other))
        assert counts(transport) == (0, 1)
        await gone(one.peers[0])


async def test_no_more_idle_connections_than_allowed() -> None:
    limits = PoolLimits(idle_connections=1)
    both_requested = anyio.Event()

    script = says_hello_at(both_requested)
    async with ScriptedServer(script, script) as server, aclosing(Http1Transport(limits=limits)) as transport:
        *_, one = await transport.send(post(server))
        *_, other = await transport.send(post(server))
        assert counts(transport) == (2, 0)
        both_requested.set()
        assert [await one.receive(), await other.receive()] == [b"hello", b"hello"]
        assert counts(transport) == (0, 1)
        await gone(server.peers[0])
        assert not server.peers[1].gone.is_set()


class Connection:
    """A stream that notes in `closed` when it was closed."""

    def __init__(self, name: str, closed: dict[str, float]) -> None:
        self.name, self._closed = name, closed

    def is_reusable(self) -> bool:
        return True

    def abort(self) -> None:
        self._closed[self.name] = anyio.current_time()


@pytest.mark.backends(*VIRTUAL_BACKENDS)
@pytest.mark.parametrize(
    ("uses", "closed_at"),
    [
        pytest.param(
            {5: "a1", 10: "b1", 20: "a2", 100: "c1"}, {"b1": 40, "a1": 50, "c1": 130}, id="no request comes"
        ),
        # In the end it may lead to an address that its name has no longer.
        pytest.param(
            {at: f"a{at}" for at in range(0, 330, 15)}, {"a0": 300, "a300": 345}, id="requests come for ever"
        ),
        pytest.param(
            {**{at: f"a{at}" for at in range(0, 300, 15)}, 310: "a310"},
            {"a0": 310, "a310": 340},
            id="it becomes old while it is idle",
        ),
    ],
)
async def test_an_idle_connection_is_closed_when_its_time_is_over(
    uses: dict[int, str], closed_at: dict[str, float]
) -> None:
    closed: dict[str, float] = {}
    gateway = Gateway(Settings())
    async with gateway.open():
        transport = gateway.client._direct
        assert isinstance(transport, Http1Transport)
        for at, name in uses.items():
            await anyio.sleep_until(at)
            lease = await transport.pool.lease(Origin("http", name[0], 80), None)
            lease.stream = lease.reuse() or cast(ByteStream, Connection(name, closed))
            lease.release(keep=True)
        await anyio.sleep(100)
    assert closed == closed_at


async def test_closing_the_transport_closes_idle_connections_now_and_busy_ones_when_they_end() -> None:
    finish = anyio.Event()

    slow = says_hello_at(finish)
    async with ScriptedServer(slow, answering(HELLO)) as server:
        transport = Http1Transport()
        *_, body = await transport.send(post(server))
        await fetch(transport, post(server))
        await transport.aclose()
        await gone(server.peers[1])
        finish.set()
        assert await body.receive() == b"hello"
        await gone(server.peers[0])
        assert counts(transport) == (0, 0)
        with pytest.raises(RuntimeError, match="closed"):
            await transport.send(post(server))


# Timeouts.


async def test_a_head_that_trickles_is_bounded_as_a_whole() -> None:
    async def script(peer: Peer) -> None:
        await peer.respond(OK)
        while True:
            await peer.send(b"x: y\r\n")
            await anyio.sleep(0.01)

    async with ScriptedServer(script) as server, aclosing(Http1Transport()) as transport:
        with anyio.fail_after(TIMEOUT_S), pytest.raises(UpstreamTimeout):
            await transport.send(post(server, read=0.1))
        await gone(server.peers[0])


async def test_a_stalled_body() -> None:
    async with (
        ScriptedServer(*[answering(CHUNKED + b"1\r\nx\r\n")] * MAX_TRIALS) as server,
        aclosing(Http1Transport()) as transport,
    ):
        for trial in trials():
            with trial:
                *_, body = await transport.send(post(server, read=0.05))
                assert await body.receive() == b"x"
                with pytest.raises(UpstreamTimeout, match=r"sent nothing for 0\.05 s inside the body"):
                    await body.receive()
        assert counts(transport) == (0, 0)
        await gone(server.peers[-1])


async def test_a_server_that_does_not_read_the_request() -> None:
    with DeafServer() as server:
        async with aclosing(Http1Transport()) as transport:
            with pytest.raises(UpstreamTimeout, match=r"did not read the request within 0\.05 s"):
                await transport.send(post(server, b"q" * 50_000_000, write=0.05))
            assert counts(transport) == (0, 0)
