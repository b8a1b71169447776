"""One client connection on a scripted byte stream, in virtual time, on both kinds of event loop."""

import math
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest
from client_stream import FakeStream, connect
from gateway.fakes import other_turns
from msgspec.structs import replace
from starlette.types import Receive, Scope, Send
from virtual_time import VIRTUAL_BACKENDS

from dragoman_server.serving import connection as connection_module
from dragoman_server.serving import server as server_module
from dragoman_server.serving import unsent
from dragoman_server.serving.connection import KEEP_ALIVE_S, Connection
from dragoman_server.serving.http1 import HTTP1
from dragoman_server.serving.server import protocol_for
from dragoman_server.serving.tasks import AppEvents
from dragoman_server.settings import ServerSettings
from dragoman_server.streams.byte_stream import NOW

pytestmark = [pytest.mark.anyio, pytest.mark.backends(*VIRTUAL_BACKENDS)]

GET = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\n"


async def hello(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"5")]})
    await send({"type": "http.response.body", "body": b"hello"})


@dataclass
class Floods:
    """Sends without an end. cancelled: when it was, if so."""

    cancelled: list[float] = field(default_factory=list)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        try:
            while True:
                await send({"type": "http.response.body", "body": b"x" * 1000, "more_body": True})
        except anyio.get_cancelled_exc_class():
            self.cancelled.append(anyio.current_time())
            raise


# The end of a connection.


async def test_an_idle_connection_is_ended_after_its_time() -> None:
    stream = FakeStream([GET])
    await connect(hello, stream).run()
    assert stream.sent.endswith(b"hello")
    assert stream.ended_at == 75


@pytest.mark.promise("R9")
async def test_a_client_that_has_left_is_dropped_at_once() -> None:
    stream = FakeStream([GET], leaves=True)
    connection = connect(hello, stream)
    await connection.run()
    assert stream.aborted_at == 0
    assert anyio.current_time() == 0
    assert not connection.worker.connections
    assert not connection.worker.idle


@pytest.mark.promise("R9")
@pytest.mark.parametrize(("takes", "ends_at", "told_at"), [(0, 9, 9), (1, 1, 5.5)])
async def test_a_client_that_leaves_while_its_body_waits_is_dropped_at_once(
    takes: int, ends_at: float, told_at: float
) -> None:
    told = []

    async def takes_few(scope: Scope, receive: Receive, send: Send) -> None:
        await anyio.sleep(0.5)
        for _ in range(takes):
            await receive()
        left = anyio.Event()
        scope["extensions"][NOW]["on_disconnect"](left.set)
        await left.wait()
        told.append(anyio.current_time())

    # The queue of the application is full at the second and at the last part.
    head = b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 900000\r\n\r\n"
    stream = FakeStream([head + bytes(300_000), b"x", 5.0, bytes(300_000), b"x"], peer_ends_at=ends_at)
    await connect(takes_few, stream).run()
    assert (told, stream.aborted_at) == ([told_at], told_at)


async def test_a_client_that_ends_its_side_while_its_body_waits_gets_what_comes_soon() -> None:
    async def reads_later(scope: Scope, receive: Receive, send: Send) -> None:
        await anyio.sleep(2)
        while (await receive())["more_body"]:
            pass
        await anyio.sleep(0.9)
        await hello(scope, receive, send)

    head = b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 300001\r\n\r\n"
    stream = FakeStream([head + bytes(300_000), b"x"], leaves=True, peer_ends_at=1)
    await connect(reads_later, stream).run()
    assert stream.sent.endswith(b"hello")
    assert stream.aborted_at == 2.9


@pytest.mark.promise("R9")
async def test_the_socket_is_closed_although_the_application_still_works() -> None:
    async def tidies(scope: Scope, receive: Receive, send: Send) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        await anyio.sleep(20)

    stream = FakeStream([GET], leaves=True)
    await connect(tidies, stream).run()
    assert stream.aborted_at == 0
    assert anyio.current_time() == 20


@pytest.mark.parametrize(
    ("seconds", "resets", "responds", "closed_at"),
    [(0.0, False, True, 0.0), (0.9, False, True, 0.9), (5.0, False, False, 1.0), (0.9, True, False, 0.0)],
)
async def test_a_client_that_ends_its_side_gets_what_comes_soon(
    seconds: float, resets: bool, responds: bool, closed_at: float
) -> None:
    async def works(scope: Scope, receive: Receive, send: Send) -> None:
        await anyio.sleep(seconds)
        await hello(scope, receive, send)

    stream = FakeStream([GET], leaves=not resets, resets=resets)
    await connect(works, stream).run()
    assert stream.sent.endswith(b"hello") == responds
    assert (stream.ended_at is not None) == responds
    assert stream.aborted_at == closed_at


async def test_a_stop_ends_an_idle_connection_at_once_and_a_busy_one_after_its_response() -> None:
    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        await anyio.sleep(10)
        await hello(scope, receive, send)

    idle, busy = FakeStream([]), FakeStream([GET])
    first = connect(slow, idle)
    second = Connection(first.worker, busy, None, None, protocol_for, tls=False)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(first.run)
        tasks.start_soon(second.run)
        await anyio.sleep(5)
        first.worker.terminated.set()
        for each in tuple(first.worker.connections):
            await each.stop()
    assert (idle.ended_at, busy.ended_at) == (5, 10)
    assert busy.sent.endswith(b"hello")


# Errors.


class NoException(BaseException):
    """Not the error of one connection."""


def failing(error: BaseException) -> Callable[..., Awaitable[None]]:
    async def data_received(self: Any, data: bytes) -> None:
        raise error

    return data_received


@pytest.mark.promise("R2", "S11", "S12")
@pytest.mark.parametrize(
    "error", [KeyError(3), OSError("no"), ExceptionGroup("two", [ValueError("a\nb"), KeyError(1)])]
)
async def test_whatever_a_protocol_raises_ends_its_connection_and_is_one_line(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    monkeypatch.setattr(HTTP1, "data_received", failing(error))
    stream = FakeStream([GET])
    await connect(hello, stream).run()
    assert stream.aborted_at == 0
    (line,) = caplog.records
    assert "a connection was ended by an internal error" in line.message
    assert "test_connection:" in line.message
    assert line.exc_info is None


async def test_a_base_exception_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HTTP1, "data_received", failing(NoException()))
    with pytest.RaisesGroup(NoException, flatten_subgroups=True):
        await connect(hello, FakeStream([GET])).run()


async def test_an_application_that_fails_is_a_500_and_no_end_of_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def fails(scope: Scope, receive: Receive, send: Send) -> None:
        raise ValueError("a bug")

    stream = FakeStream([GET, GET])
    await connect(fails, stream).run()
    assert stream.sent.startswith(b"HTTP/1.1 500")
    assert [each.message for each in caplog.records] == ["the application failed"]


# The protocol of a connection.


OPENINGS: list[tuple[list[bytes], bool, bytes]] = [
    ([b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"], True, b"\0"),
    ([b"PR", b"I * HTTP/2.0\r\n\r\n", b"SM\r\n\r\n"], True, b"\0"),
    ([b"P", POST[1:], b"123456789"], True, b"HTTP/1.1 200"),
    ([GET[:-2] + b"connection: upgrade\r\nupgrade: h2c\r\nhttp2-settings:\r\n\r\n"], True, b"HTTP/1.1 200"),
    ([b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"], False, b"HTTP/1.1 "),
]  # fmt: skip


async def test_http2_in_clear_text_begins_with_its_preface() -> None:
    for first, http2, response in OPENINGS:
        stream = FakeStream(list(first))
        await connect(hello, stream, replace(ServerSettings(), http2=http2)).run()
        assert stream.sent.startswith(response), first


async def test_with_tls_it_is_what_was_agreed_upon() -> None:
    stream = FakeStream([], alpn="h2")
    await connect(hello, stream).run()
    assert stream.sent[3] == 4, "the server's SETTINGS, which wait for nothing"


# Writing.


@pytest.mark.promise("R10", "S10")
async def test_a_client_that_reads_nothing_for_five_minutes_is_disconnected(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stream, app = FakeStream([GET], room=5000), Floods()
    await connect(app, stream).run()
    assert app.cancelled == [300]
    assert stream.aborted_at == 300
    (line,) = caplog.records
    assert line.message == "a client read nothing for 300 seconds; its requests are cancelled"


@pytest.mark.promise("R3")
@pytest.mark.all_combinations
@pytest.mark.parametrize("after_s", [2, 0], ids=["in its middle", "before it began"])
async def test_nothing_follows_a_write_that_was_cancelled(after_s: int) -> None:
    async def gives_up(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        with anyio.move_on_after(after_s):
            await send({"type": "http.response.body", "body": b"x" * 5000, "more_body": True})
        stream.room = math.inf
        await send({"type": "http.response.body", "body": b"more"})

    stream = FakeStream([GET], room=1000)
    await connect(gives_up, stream).run()
    assert stream.sent.endswith(b"xxx")
    assert stream.aborted_at == after_s


@pytest.mark.parametrize("length", [b"", b"200000"])
async def test_a_large_part_of_a_body_is_written_in_slices(length: bytes) -> None:
    """Other tasks run between them, however fast the client reads."""
    body = bytes(range(250)) * 800

    async def sends_it(scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"content-length", length)] if length else []
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    writes: list[tuple[int, int]] = []

    class FastClient(FakeStream):
        async def send_all(self, data: bytes, timeout: float | None) -> None:
            writes.append((len(data), turns()))
            self.sent += data

    stream = FastClient([GET], leaves=True)
    async with other_turns() as turns:
        await connect(sends_it, stream).run()
    sent = body if length else b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    assert bytes(stream.sent).partition(b"\r\n\r\n")[2] == sent
    slices = [turn for size, turn in writes if size > 1000]
    assert max(writes)[0] == connection_module.WRITE_SIZE
    assert slices[-1] - slices[0] >= len(slices) - 2


async def test_a_connection_is_idle_from_its_last_response_on() -> None:
    stream = FakeStream([GET, 60.0, GET, 70.0, GET])
    await connect(hello, stream).run()
    assert stream.sent.count(b"hello") == 3
    assert stream.ended_at == 60 + 70 + KEEP_ALIVE_S


async def test_the_deadline_of_reading_is_the_protocols(monkeypatch: pytest.MonkeyPatch) -> None:
    timed_out: list[float] = []

    class Patient:
        is_behind = False

        def __init__(self, connection: Connection) -> None:
            self.connection = connection

        def take(self, data: bytes) -> bool:
            raise AssertionError("nothing more comes")

        async def data_received(self, data: bytes) -> None:
            self.connection.set_idle(False)
            self.connection.read_within(7)

        async def connection_lost(self) -> None: ...

        async def timed_out(self) -> None:
            timed_out.append(anyio.current_time())
            await self.connection.write(b"too late")
            self.connection.end()

    monkeypatch.setattr(server_module, "HTTP1", Patient)
    stream = FakeStream([GET])
    await connect(hello, stream).run()
    assert timed_out == [7]
    assert stream.sent == b"too late"


# Bodies.


async def test_of_large_bodies_that_nobody_reads_the_oldest_is_cut_off(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def large(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"x" * unsent.LARGE_BYTES})

    monkeypatch.setattr(unsent, "MAX_UNSENT_BYTES", 2 * unsent.LARGE_BYTES)
    streams = [FakeStream([number, GET], room=1000) for number in range(4)]
    worker = connect(large, streams[0], ServerSettings(send_timeout_s=60)).worker
    async with anyio.create_task_group() as tasks:
        for stream in streams:
            tasks.start_soon(Connection(worker, stream, None, None, protocol_for, tls=False).run)
    assert [stream.aborted_at for stream in streams] == [2, 3, 62, 63]
    assert caplog.text.count("the oldest of these is cut off") == 2


@pytest.mark.parametrize(
    ("framing", "reads", "messages"),
    [
        (b"content-length: 100000", [b"x" * 60_000, b"x" * 40_000], [60_000, 40_000]),
        (b"content-length: 100000", [b"x" * 60_000, b"x" * 40_000 + GET], [60_000, 40_000]),
        # Only chunks can be so many in one read that other tasks have to run in between.
        (b"transfer-encoding: chunked", [b"4\r\nxxxx\r\n" * 4000, b"0\r\n\r\n"], [7281, 7283, 1436, 0]),
    ],
)
async def test_a_read_of_a_body_is_one_message_but_for_chunks(
    framing: bytes, reads: list[bytes], messages: list[int]
) -> None:
    received: list[int] = []

    async def reads_all(scope: Scope, receive: Receive, send: Send) -> None:
        more = scope["method"] == "POST"
        while more:
            message = await receive()
            received.append(len(message["body"]))
            more = message["more_body"]
        await hello(scope, receive, send)

    stream = FakeStream([b"POST / HTTP/1.1\r\nhost: a\r\n%b\r\n\r\n" % framing, *reads])
    await connect(reads_all, stream).run()
    assert received == messages
    assert stream.sent.count(b"hello") == 1 + reads[-1].count(GET)


async def refuses(scope: Scope, receive: Receive, send: Send) -> None:
    """By the head, so before it reads the body; it notices that the client leaves."""
    await hello(scope, receive, send)
    await receive()


async def echoes(scope: Scope, receive: Receive, send: Send) -> None:
    while (await receive())["more_body"]:
        pass
    await hello(scope, receive, send)
    while (await receive())["type"] != "http.disconnect":
        pass


async def watches(scope: Scope, receive: Receive, send: Send) -> None:
    """For a client that leaves, before it responds."""
    await receive()
    with anyio.move_on_after(1):
        await receive()
    await hello(scope, receive, send)


async def begins(scope: Scope, receive: Receive, send: Send) -> None:
    """Its response, before it reads the body."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"5")]})
    await send({"type": "http.response.body", "body": b"he", "more_body": True})
    await receive()
    await send({"type": "http.response.body", "body": b"llo"})


EXPECTS = POST.replace(b"\r\n\r\n", b"\r\nexpect: 100-continue\r\n\r\n")


@pytest.mark.parametrize(
    ("app", "reads", "statuses", "closes"),
    [
        (refuses, [EXPECTS], [200], True),
        (echoes, [EXPECTS, 1.0, b"1234", 1.0, b"56789"], [100, 200], False),
        (echoes, [EXPECTS + b"123456789", 1.0, GET], [200, 200], False),  # the client has not waited
        (watches, [EXPECTS + b"123456789"], [200], False),
        (begins, [EXPECTS, 1.0, b"123456789"], [200], True),
        (echoes, [EXPECTS.replace(b"1.1", b"1.0"), 1.0, b"123456789"], [200], True),  # it knows no 100
        (echoes, [EXPECTS, 1.0, b"123456789" + EXPECTS, 1.0, b"123456789"], [100, 200, 100, 200], False),
    ],
)
async def test_a_client_is_told_to_continue_when_the_application_wants_its_body(
    app: Callable[..., Awaitable[None]], reads: list[bytes | float], statuses: list[int], closes: bool
) -> None:
    stream = FakeStream(reads)
    await connect(app, stream).run()
    assert [int(line) for line in re.findall(rb"HTTP/1.1 (\d+) ", stream.sent)] == statuses
    assert (b"connection: close" in stream.sent.lower()) == closes
    assert stream.sent.endswith(b"hello")


# The queue of an application.


def body(data: bytes) -> Any:
    return {"type": "http.request", "body": data, "more_body": True}


async def test_a_body_waits_for_the_application_but_its_end_does_not() -> None:
    events = AppEvents()
    with anyio.move_on_after(1) as scope:
        for _ in range(100):
            await events.put(body(b"x" * 64 * 1024))
    assert scope.cancelled_caught
    await events.put({"type": "http.disconnect"})
    got = [await events.get() for _ in range(7)]
    assert [each["type"] for each in got] == ["http.request"] * 5 + ["http.disconnect"] * 2


async def test_an_application_is_called_once_when_its_client_leaves() -> None:
    calls: list[str] = []
    events, later = AppEvents(), AppEvents()
    assert not events.on_disconnect(lambda: calls.append("left"))
    events.offer(body(b"x"))
    assert not events.left
    for _ in range(2):
        events.offer({"type": "http.disconnect"})
    assert (calls, events.left) == (["left"], True)
    assert events.on_disconnect(lambda: calls.append("again"))
    assert calls == ["left", "again"]
    later.on_disconnect(lambda: calls.append("not any more"))
    later.on_disconnect(None)
    later.offer({"type": "http.disconnect"})
    assert (calls, later.left) == (["left", "again"], False)
    complete = AppEvents()
    complete.on_disconnect(lambda: calls.append("complete"))
    complete.end({"type": "http.disconnect"}, has_left=False)
    assert (calls, complete.get_now()) == (["left", "again"], {"type": "http.disconnect"})


async def test_what_is_called_when_a_client_leaves_ends_no_connection(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fails() -> None:
        raise ValueError("a bug")

    events = AppEvents()
    events.on_disconnect(fails)
    assert events.offer({"type": "http.disconnect"})
    assert events.left
    assert [line.getMessage() for line in caplog.records] == ["the application failed"]


async def test_nothing_waits_for_an_application_that_has_ended() -> None:
    events = AppEvents()
    async with anyio.create_task_group() as tasks:
        for _ in range(10):
            tasks.start_soon(events.put, body(b"x" * 100_000))
        await anyio.sleep(1)
        events.close()
    await events.put(body(b"x" * 1_000_000))
