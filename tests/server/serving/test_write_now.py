"""Pieces of a chunked response go past ASGI to the connection, and are the same bytes. Time is virtual."""

import re
from dataclasses import dataclass, field

import anyio
import pytest
from client_stream import FakeStream, connect
from starlette.types import Receive, Scope, Send
from virtual_time import VIRTUAL_BACKENDS

from dragoman_server.settings import ServerSettings
from dragoman_server.streams.byte_stream import NOW

pytestmark = [pytest.mark.anyio, pytest.mark.backends(*VIRTUAL_BACKENDS)]

PIECES = [b"x" * size for size in (1, 0, 9, 16, 300, 70_000, 5)]


@dataclass
class Streams:
    """Sends the pieces, those between the first and the last one past `send` where that works, if `direct`.

    taken: what the direct way has taken of them. early, late: what it said before the head and behind the end.
    """

    direct: bool
    status: int = 200
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    taken: list[bool] = field(default_factory=list)
    early: bool | None = None
    late: bool | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        offered = scope["extensions"].get(NOW)
        write = offered["write"] if self.direct and offered else lambda data: False
        self.early = write(b"early")
        await send({"type": "http.response.start", "status": self.status, "headers": self.headers})
        await send({"type": "http.response.body", "body": b"first", "more_body": True})
        for piece in PIECES:
            self.taken.append(write(piece))
            if not self.taken[-1]:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await anyio.sleep(0.001)
        await send({"type": "http.response.body", "body": b"last"})
        self.late = write(b"late")


async def response_of(app: Streams, request: bytes, stream: FakeStream | None = None) -> bytes:
    stream = stream or FakeStream([request])
    with anyio.move_on_after(1000):
        await connect(app, stream).run()
    return re.sub(rb"date: [^\r]*\r\n", b"", stream.sent)


def head(line: str, *fields: str) -> bytes:
    return "\r\n".join([line, "host: a", "connection: close", *fields, "", ""]).encode()


async def test_the_direct_way_is_taken_and_gives_the_bytes_of_the_slow_one() -> None:
    direct, slow = Streams(direct=True), Streams(direct=False)
    request = head("GET / HTTP/1.1")
    assert await response_of(direct, request) == await response_of(slow, request)
    assert not any(slow.taken)
    # All but the piece that is too long for one write, and those that wait behind bytes that are not sent yet.
    assert sum(direct.taken) >= len(PIECES) // 2
    assert not direct.taken[5]
    assert (direct.early, direct.late) == (False, False)


WITHOUT: list[tuple[bytes, Streams]] = [
    (head("GET / HTTP/1.0"), Streams(direct=True)),
    (head("HEAD / HTTP/1.1"), Streams(direct=True)),
    (head("GET / HTTP/1.1"), Streams(direct=True, status=204)),
    (head("GET / HTTP/1.1"), Streams(direct=True, headers=[(b"Content-Length", b"%d" % (sum(map(len, PIECES)) + 9))])),
]  # fmt: skip


async def test_a_body_that_is_not_chunked_goes_the_slow_way() -> None:
    for request, app in WITHOUT:
        app.taken.clear()
        sent = await response_of(app, request)
        assert app.taken == [False] * len(PIECES), request
        assert b"x" not in sent.partition(b"\r\n\r\n")[2] or b"transfer-encoding" not in sent.lower(), request


async def test_what_the_kernel_does_not_take_follows_before_anything_else() -> None:
    class Halves(FakeStream):
        """The kernel takes half of what is to be sent without waiting."""

        def send_now(self, data: bytes) -> bytes | None:
            half = -(-len(data) // 2)
            self.sent += data[:half]
            return data[half:] or None

        async def send_all(self, data: bytes, timeout: float | None) -> None:
            await anyio.lowlevel.checkpoint()
            self.sent += data

    request = head("GET / HTTP/1.1")
    direct = Streams(direct=True)
    sent = await response_of(direct, request, Halves([request]))
    assert any(direct.taken)
    assert sent == await response_of(Streams(direct=False), request)


async def test_what_the_kernel_does_not_take_needs_no_later_piece() -> None:
    class Ends(Streams):
        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"first", "more_body": True})
            self.taken.append(scope["extensions"][NOW]["write"](b"only"))
            await anyio.sleep(10)
            received.append(stream.sent)

    class Nothing(FakeStream):
        """The kernel takes one byte without waiting."""

        def send_now(self, data: bytes) -> bytes | None:
            self.sent += data[:1]
            return data[1:]

        async def send_all(self, data: bytes, timeout: float | None) -> None:
            await anyio.lowlevel.checkpoint()
            self.sent += data

    received: list[bytes] = []
    request = head("GET / HTTP/1.1")
    stream, app = Nothing([request]), Ends(direct=True)
    await response_of(app, request, stream)
    assert app.taken == [True]
    assert received[0].endswith(b"4\r\nonly\r\n")


async def test_a_client_that_does_not_read_is_given_up() -> None:
    class Endless(Streams):
        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"first", "more_body": True})
            write = scope["extensions"][NOW]["write"]
            while True:
                self.taken.append(write(b"x" * 1000))
                if not self.taken[-1]:
                    await send({"type": "http.response.body", "body": b"y" * 1000, "more_body": True})
                await anyio.sleep(0.001)

    stream = FakeStream([head("GET / HTTP/1.1")], room=10_500)
    app = Endless(direct=True)
    begun = anyio.current_time()
    await connect(app, stream, ServerSettings(send_timeout_s=7)).run()
    assert anyio.current_time() - begun == pytest.approx(7, abs=0.5)
    assert any(app.taken)
    assert len(app.taken) < 30
