"""The body of a response that is passed on where it arrives: the same bytes, ends and errors as receive() gives.

Real sockets. A reader first passes what `receive_each` gives to its `take`, then goes on with receive().
"""

from collections.abc import Callable
from contextlib import aclosing

import anyio
import pytest
from http_certificate import Certificate
from http_server import TIMEOUT_S, Peer, Script, ScriptedServer
from transport_requests import request_to
from trials import MAX_TRIALS, trials
from virtual_time import REAL_BACKENDS, UVLOOP

from dragoman_server.upstream.errors import UpstreamBroken, UpstreamTimeout
from dragoman_server.upstream.transport import Http1Transport, ResponseBody

pytestmark = [pytest.mark.anyio, pytest.mark.backends(*REAL_BACKENDS, UVLOOP)]

CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
FIRST = CHUNKED + b"1\r\n0\r\n"


def one_by_one(*parts: bytes, head: bytes = FIRST, pause_s: float = 0.01) -> Script:
    """Respond with the head and the first byte, then with the parts, each in its own read."""

    async def script(peer: Peer) -> None:
        await peer.respond(head)
        for part in parts:
            await anyio.sleep(pause_s)
            await peer.send(part)
        await peer.until_closed()

    return script


class Reader:
    """Reads a body. taken: the pieces that came by receive_each(); received: the others."""

    def __init__(
        self, transport: Http1Transport, *, until: Callable[[bytes], bool] = lambda data: False
    ) -> None:
        self.taken: list[bytes] = []
        self.received: list[bytes] = []
        self.busy: list[int] = []  # connections, whenever something was taken
        self._transport = transport
        self._until = until

    def take(self, data: bytes) -> bool:
        self.taken.append(data)
        self.busy.append(self._transport.pool.busy)
        return not self._until(data)

    async def begin(self, server: ScriptedServer, **timeouts: float) -> ResponseBody:
        limits = {"connect": TIMEOUT_S, "read": TIMEOUT_S, "write": TIMEOUT_S} | timeouts
        *_, body = await self._transport.send(request_to(server.url, **limits))
        self.received.append(await body.receive())
        return body

    async def read(self, server: ScriptedServer, **timeouts: float) -> bytes:
        body = await self.begin(server, **timeouts)
        while self.received[-1]:
            await body.receive_each(self.take)
            self.received.append(await body.receive())
        return b"".join(self.taken)


BODIES: dict[str, tuple[Script, bytes]] = {
    "chunks": (one_by_one(b"1\r\n1\r\n", b"2\r\n23\r\n", b"0\r\n\r\n"), b"123"),
    "cut chunks": (one_by_one(b"5\r", b"\n12", b"345", b"\r\n0\r\n", b"\r\n"), b"12345"),
    "several in a read": (one_by_one(b"1\r\n1\r\n1\r\n2\r\n", b"1\r\n3\r\n0\r\n\r\n"), b"123"),
    "a length": (one_by_one(b"12", b"3", head=b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n0"), b"123"),
}


@pytest.mark.parametrize(("script", "taken"), BODIES.values(), ids=BODIES)
async def test_everything_is_taken_and_the_connection_serves_the_next_request(
    script: Script, taken: bytes
) -> None:
    async with ScriptedServer(script) as server, aclosing(Http1Transport()) as transport:
        reader = Reader(transport)
        assert await reader.read(server) == taken
        assert reader.received == [b"0", b""]
        # Not before the reader is back: another request would share the connection with it.
        assert set(reader.busy) == {1}
        assert (transport.pool.busy, transport.pool.idle) == (0, 1)


async def test_what_is_not_taken_waits_for_receive() -> None:
    script = one_by_one(*(b"1\r\n%d\r\n" % number for number in range(1, 6)), b"0\r\n\r\n")
    async with ScriptedServer(script) as server, aclosing(Http1Transport()) as transport:
        reader = Reader(transport, until=lambda data: data in (b"1", b"4"))
        body = await reader.begin(server)
        await body.receive_each(reader.take)
        assert reader.taken == [b"1"]
        await anyio.sleep(0.1)
        assert reader.taken == [b"1"]
        rest = b""
        while data := await body.receive():
            rest += data
        assert rest == b"2345"


async def test_a_large_read_is_left_to_receive_which_lets_other_tasks_run() -> None:
    large = b"x" * 100_000
    script = one_by_one(b"1\r\n1\r\n", b"%x\r\n%b\r\n" % (len(large), large), b"1\r\n2\r\n0\r\n\r\n")
    async with ScriptedServer(script) as server, aclosing(Http1Transport()) as transport:
        reader = Reader(transport)
        await reader.read(server)
        # In whatever portions the kernel gave it, nothing is lost or out of order.
        assert sum(map(len, reader.taken)) + sum(map(len, reader.received)) == len(large) + 3
        assert reader.taken[0] == b"1"
        assert max(map(len, reader.taken)) <= 16 * 1024


async def test_silence_is_limited_from_read_to_read() -> None:
    script = one_by_one(*[b"1\r\n%d\r\n" % (number % 10) for number in range(12)], pause_s=0.05)
    async with ScriptedServer(*[script] * MAX_TRIALS) as server, aclosing(Http1Transport()) as transport:
        for trial in trials():
            with trial:
                reader = Reader(transport)
                with pytest.raises(UpstreamTimeout, match=r"sent nothing for 0\.3 s inside the body"):
                    await reader.read(server, read=0.3)
                assert len(reader.taken) == 12
        assert transport.pool.busy == 0


ERRORS: dict[str, tuple[bytes | None, type[Exception]]] = {
    "a bad chunk": (b"1\r\n1\r\nzz\r\n", UpstreamBroken),
    "an early end": (b"", UpstreamBroken),
    "a reset": (None, UpstreamBroken),
}


@pytest.mark.parametrize(("part", "error"), ERRORS.values(), ids=ERRORS)
async def test_an_error_is_that_of_receive(part: bytes | None, error: type[Exception]) -> None:
    async def script(peer: Peer) -> None:
        await peer.respond(FIRST)
        await anyio.sleep(0.05)
        if part is None:
            await peer.reset()
        elif part:
            await peer.send(part)
            await peer.until_closed()
        else:
            await peer.stream.aclose()

    async with ScriptedServer(script) as server, aclosing(Http1Transport()) as transport:
        with pytest.raises(error):
            await Reader(transport).read(server)
        assert transport.pool.busy == transport.pool.idle == 0


async def test_an_error_of_the_taker_reaches_the_reader() -> None:
    def fail(data: bytes) -> bool:
        raise ZeroDivisionError("the taker's own")

    async with ScriptedServer(one_by_one(b"1\r\n1\r\n")) as server, aclosing(Http1Transport()) as transport:
        with pytest.raises(ZeroDivisionError):
            await Reader(transport, until=fail).read(server)
        assert transport.pool.busy == transport.pool.idle == 0


async def test_nothing_is_taken_after_a_cancellation() -> None:
    def cancel(data: bytes) -> bool:
        scope.cancel()
        return False

    script = one_by_one(*[b"1\r\n1\r\n"] * 40)
    async with ScriptedServer(script) as server, aclosing(Http1Transport()) as transport:
        reader = Reader(transport, until=cancel)
        body = await reader.begin(server)
        with anyio.CancelScope() as scope:
            await body.receive_each(reader.take)
        assert scope.cancelled_caught
        taken = len(reader.taken)
        await anyio.sleep(0.1)
        assert len(reader.taken) == taken
        assert transport.pool.busy == transport.pool.idle == 0


async def test_over_tls(certificate: Certificate) -> None:
    script = one_by_one(b"1\r\n1\r\n", b"2\r\n23\r\n", b"0\r\n\r\n")
    async with (
        ScriptedServer(script, tls=certificate.server()) as server,
        aclosing(Http1Transport(tls=certificate.client())) as transport,
    ):
        reader = Reader(transport)
        assert await reader.read(server) == b"123"
        assert reader.received == [b"0", b""]
