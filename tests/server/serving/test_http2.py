"""HTTP/2 on one connection: frames in, frames out, with a scripted application, in virtual time."""

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from h2.errors import ErrorCodes
from h2.events import RequestReceived
from h2.exceptions import DenialOfServiceError, ProtocolError
from h2.settings import SettingCodes
from h2_client import (
    MAX_WINDOW,
    PREFACE,
    Headers,
    code_of,
    data,
    frames_of,
    goaway,
    headers,
    ping,
    raw,
    reset,
    settings,
    window,
)
from hpack import Decoder, Encoder
from hyperframe.frame import (
    DataFrame,
    Frame,
    GoAwayFrame,
    HeadersFrame,
    PingFrame,
    PriorityFrame,
    RstStreamFrame,
    WindowUpdateFrame,
)
from starlette.types import Message, Receive, Scope, Send
from virtual_time import VIRTUAL_BACKENDS

from dragoman_server.platform.cancellation import RestOfTask
from dragoman_server.serving import unsent
from dragoman_server.serving.connection import Connection, WorkerContext
from dragoman_server.serving.http2 import CONNECTION_BUFFER, HTTP2, MIN_STREAM_BUFFER, STREAM_BUFFER
from dragoman_server.serving.http2_connection import (
    CONNECTION_WINDOW,
    MAX_UNSENT,
    SMALL_DATA,
    STREAM_WINDOW,
    UPDATES_PER_DATA,
    HTTP2Connection,
)
from dragoman_server.serving.server import protocol_for
from dragoman_server.serving.tasks import AppTasks
from dragoman_server.settings import ServerSettings
from dragoman_server.streams.byte_stream import NOW

pytestmark = [pytest.mark.anyio, pytest.mark.backends(*VIRTUAL_BACKENDS)]

STREAMS = 128
POST = headers(method="POST")


App = Callable[[Scope, Receive, Send], Awaitable[None]]


class Client(Connection):
    """Both ends of one connection. frames: received since the last take(); closed: the server ends the connection."""

    def __init__(self, app: App, tasks: anyio.abc.TaskGroup) -> None:
        worker = WorkerContext(app, ServerSettings(), {})
        stream: Any = None  # write() and end() are replaced
        super().__init__(worker, stream, ("127.0.0.1", 1), ("127.0.0.1", 2), protocol_for, tls=False)
        self.tasks = tasks
        self.apps = AppTasks(tasks, worker.requests, worker.starts)
        self.frames: list[Frame] = []
        self.idle: bool | None = None
        self.closed = False
        self.waits_for: float | None = None
        self.can_write = anyio.Event()
        self.can_write.set()
        self.encoder, self.decoder = Encoder(), Decoder()
        self.contents: Counter[int] = Counter()  # bytes of each stream
        self._buffer = bytearray()
        self.protocol = HTTP2(self)

    async def write(self, data: bytes) -> None:
        await self.can_write.wait()
        self._buffer += data
        for frame in frames_of(self._buffer):
            self.frames.append(frame)
            if isinstance(frame, DataFrame):
                self.contents[frame.stream_id] += len(frame.data)

    def set_idle(self, idle: bool) -> None:
        self.idle = idle

    def end(self) -> None:
        self.closed = True

    def read_within(self, seconds: float | None) -> None:
        self.waits_for = seconds

    def request(self, stream_id: int, fields: Headers | None = None, *, end: bool = True) -> HeadersFrame:
        block = self.encoder.encode(headers() if fields is None else fields)
        return HeadersFrame(stream_id, data=block, flags=["END_HEADERS", *(["END_STREAM"] if end else [])])

    async def send(self, *frames: Frame | bytes) -> None:
        """Has them handled, and all that follows of it."""
        await self.protocol.data_received(
            b"".join(each if isinstance(each, bytes) else each.serialize() for each in frames)
        )
        await settle()

    def take(self, kind: type[Any]) -> list[Any]:
        """Return the frames of this kind that have come since the last call, and drop the others."""
        found = [frame for frame in self.frames if isinstance(frame, kind)]
        self.frames.clear()
        return found

    def resets(self) -> list[tuple[int, str]]:
        return [(frame.stream_id, code_of(frame)) for frame in self.take(RstStreamFrame)]


async def settle() -> None:
    """Let all tasks run until each waits for something that is not there yet."""
    for _ in range(50):
        await anyio.lowlevel.checkpoint()


@asynccontextmanager
async def serving(app: App, values: dict[int, int] | None = None) -> AsyncIterator[Client]:
    async with anyio.create_task_group() as tasks:
        client = Client(app, tasks)
        await client.send(PREFACE, settings(values))
        client.frames.clear()
        yield client
        await client.protocol.connection_lost()
        tasks.cancel_scope.cancel()


# Applications.


async def begin(send: Send, *fields: tuple[bytes, bytes]) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": list(fields)})


async def hello(scope: Scope, receive: Receive, send: Send) -> None:
    await begin(send)
    await send({"type": "http.response.body", "body": b"hello"})


class Endless:
    """Sends chunks for ever. bytes_sent: how many bytes send() has taken; left: streams whose client has left."""

    def __init__(self, size: int = 1000) -> None:
        self.size = size
        self.bytes_sent: Counter[str] = Counter()
        self.left: set[str] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        await begin(send)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._watch, path, receive, tasks.cancel_scope)
            while True:
                await send({"type": "http.response.body", "body": bytes(self.size), "more_body": True})
                self.bytes_sent[path] += self.size
                await anyio.lowlevel.checkpoint()

    async def _watch(self, path: str, receive: Receive, scope: anyio.CancelScope) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self.left.add(path)
        scope.cancel()


class Reader:
    """Reads one message of the body on demand. messages: what it got."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.reads = anyio.Semaphore(0)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        while True:
            await self.reads.acquire()
            self.messages.append(await receive())

    async def read(self, count: int = 1) -> None:
        for _ in range(count):
            self.reads.release()
        await settle()


async def forever(scope: Scope, receive: Receive, send: Send) -> None:
    await anyio.sleep_forever()


# Buffered parts of responses.


async def test_an_application_waits_when_the_buffer_is_full() -> None:
    app = Endless()
    async with serving(app, {4: 0}) as client:
        await client.send(client.request(1))
        await settle()
        assert STREAM_BUFFER - 2 * app.size < app.bytes_sent["/healthz"] <= STREAM_BUFFER
        # A second window allows it to send as much again.
        bytes_sent = app.bytes_sent["/healthz"]
        await client.send(window(1, 10_000))
        await settle()
        assert client.contents[1] == 10_000
        assert app.bytes_sent["/healthz"] - bytes_sent in range(9_000, 11_001)


async def test_stalled_streams_do_not_block_the_others() -> None:
    async with serving(Endless(MIN_STREAM_BUFFER), {4: 0}) as client:
        for number in range(STREAMS - 1):
            await client.send(client.request(2 * number + 1, headers(path=f"/{number}")))
        held = client.protocol._buffered
        assert CONNECTION_BUFFER <= held <= CONNECTION_BUFFER + STREAMS * MIN_STREAM_BUFFER + STREAM_BUFFER
        last = 2 * STREAMS - 1
        await client.send(client.request(last, headers(path="/last")), window(last, MAX_WINDOW))
        assert client.contents[last] == 65535
        for _ in range(50):
            await client.send(window(0, 65535))
        assert client.contents[last] > 20 * 65535
        assert sum(client.contents.values()) == client.contents[last]


async def test_streams_take_turns() -> None:
    async with serving(Endless(STREAM_BUFFER), {4: MAX_WINDOW}) as client:
        client.can_write = anyio.Event()
        await client.send(client.request(1), client.request(3), window(0, 10**6))
        client.can_write.set()
        await settle()
        frames = client.take(DataFrame)
        assert [frame.stream_id for frame in frames[2:10]] == [1, 3] * 4 or [3, 1] * 4
        assert max(len(frame.data) for frame in frames) <= 16384


@pytest.mark.promise("S10")
async def test_a_stream_that_is_not_read_is_cancelled_in_time() -> None:
    """Five minutes without a byte read, by default; the connection and its other streams stay."""
    app = Endless()
    async with serving(app, {4: 0}) as client:
        await client.send(client.request(1, headers(path="/a")), client.request(3, headers(path="/b")))
        await anyio.sleep(250)
        assert client.resets() == []
        await client.send(window(3, 1))
        await anyio.sleep(60)
        assert client.resets() == [(1, "CANCEL")]
        assert app.left == {"/a"}
        await anyio.sleep(230)
        assert client.resets() == []
        assert not client.closed


async def test_nothing_is_buffered_for_a_client_that_has_left() -> None:
    async with serving(Endless(), {4: 0}) as client:
        await client.send(client.request(1), client.request(3))
        streams = list(client.protocol._streams.values())
        await client.send(reset(1))
        assert client.protocol._buffered == STREAM_BUFFER // 1000 * 1000 + 768
        await client.protocol.connection_lost()
        assert (client.protocol._buffered, client.protocol._streams) == (0, {})
        assert [len(stream.buffer) for stream in streams] == [0, 0]
        assert client.protocol.h2.unsent == 0
        await settle()
        assert client.protocol.idle


# Buffered parts of requests.


@pytest.mark.promise("R9")
async def test_the_window_is_given_back_when_the_application_has_read() -> None:
    app = Reader()
    async with serving(app) as client:
        await client.send(client.request(1, POST, end=False), *(data(1, bytes(16384)) for _ in range(15)))
        assert client.take(WindowUpdateFrame) == []
        await app.read(8)
        found = [(frame.stream_id, frame.window_increment) for frame in client.take(WindowUpdateFrame)]
        assert found == [(1, STREAM_WINDOW // 2)]


async def test_more_than_the_window_is_an_error_of_the_connection() -> None:
    async with serving(forever) as client:
        await client.send(client.request(1, POST, end=False), *(data(1, bytes(16384)) for _ in range(16)))
        assert not client.closed
        await client.send(data(1, b"x"))
        await anyio.sleep(2)
        assert [code_of(frame) for frame in client.take(GoAwayFrame)] == ["FLOW_CONTROL_ERROR"]
        assert client.closed


async def test_unread_window_is_given_back_with_the_stream() -> None:
    async with serving(forever) as client:
        for stream_id in range(1, 21, 2):
            await client.send(
                client.request(stream_id, POST, end=False),
                *(data(stream_id, bytes(16384)) for _ in range(16)),
            )
            await client.send(reset(stream_id))
        assert not client.closed
        assert sum(frame.window_increment for frame in client.take(WindowUpdateFrame)) > CONNECTION_WINDOW


async def test_padding_and_data_of_unknown_streams_cost_no_window() -> None:
    async with serving(hello) as client:
        for stream_id in range(1, 101, 2):
            padded = raw(0, 0x8, stream_id, b"\xff" + bytes(16000))
            await client.send(
                client.request(stream_id, POST, end=False), padded, *[data(stream_id, bytes(16384))] * 3
            )
        assert {code for _, code in client.resets()} <= {"NO_ERROR", "STREAM_CLOSED"}
        assert not client.closed


# Responses.


async def test_an_early_response_resets_the_request_without_error() -> None:
    """RFC 9113, 8.1."""
    async with serving(hello) as client:
        await client.send(client.request(1, POST, end=False))
        assert [type(frame) for frame in client.frames] == [HeadersFrame, DataFrame, RstStreamFrame]
        assert client.resets() == [(1, "NO_ERROR")]


async def test_an_application_that_fails_is_a_500(caplog: pytest.LogCaptureFixture) -> None:
    async def fails(scope: Scope, receive: Receive, send: Send) -> None:
        raise ValueError("of ours")

    async with serving(fails) as client:
        await client.send(client.request(1))
        assert dict(client.decoder.decode(client.take(HeadersFrame)[0].data))[":status"] == "500"


@pytest.mark.promise("R3")
async def test_a_response_that_breaks_off_is_reset() -> None:
    async def breaks_off(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"a", "more_body": True})

    async with serving(breaks_off) as client:
        await client.send(client.request(1))
        assert client.contents[1] == 1
        assert client.resets() == [(1, "INTERNAL_ERROR")]
        assert client.idle
        assert not client.closed


async def test_pieces_go_past_send_while_there_is_room() -> None:
    taken: list[bool] = []

    async def writes(scope: Scope, receive: Receive, send: Send) -> None:
        write = scope["extensions"][NOW]["write"]
        taken.append(write(b"early"))
        await begin(send)
        for piece in (b"a", b"", b"bc", bytes(STREAM_BUFFER), bytes(STREAM_BUFFER - 3)):
            taken.append(write(piece))
        await send({"type": "http.response.body", "body": b"d"})
        taken.append(write(b"late"))

    async with serving(writes) as client:
        await client.send(client.request(1))
        assert taken == [False, True, True, True, False, True, False]
        frames = client.take(DataFrame)
        assert b"".join(frame.data for frame in frames) == b"abc" + bytes(STREAM_BUFFER - 3) + b"d"
        assert "END_STREAM" in frames[-1].flags
        # A response without a body.
        taken.clear()
        await client.send(client.request(3, headers(method="HEAD")))
        assert not any(taken)
        assert client.contents[3] == 0


async def test_headers_that_cannot_be_sent_reset_the_stream() -> None:
    async def bad(scope: Scope, receive: Receive, send: Send) -> None:
        await begin(send, (b"x-bad", b"a\r\nb"))
        await send({"type": "http.response.body", "body": b"hello"})

    async with serving(bad) as client:
        await client.send(client.request(1))
        assert [(type(frame), frame.stream_id) for frame in client.frames] == [(RstStreamFrame, 1)]
        assert client.resets() == [(1, "INTERNAL_ERROR")]


# Ends.


@pytest.mark.promise("R2")
async def test_a_stop_is_announced_and_open_streams_go_on() -> None:
    async with serving(Endless()) as client:
        await client.send(client.request(1), client.request(3, headers(path="/b")))
        client.frames.clear()
        await client.protocol.stop()
        await settle()
        expected = [("NO_ERROR", 3)]
        assert [(code_of(frame), frame.last_stream_id) for frame in client.take(GoAwayFrame)] == expected
        await client.send(client.request(5), window(0, 100), window(1, 100))
        assert client.resets() == [(5, "REFUSED_STREAM")]
        await client.send(reset(1))
        assert not client.closed
        await client.send(reset(3))
        assert client.closed


async def test_an_idle_connection_ends_with_a_goaway() -> None:
    async with serving(hello) as client:
        await client.protocol.timed_out()
        await settle()
        assert [code_of(frame) for frame in client.take(GoAwayFrame)] == ["NO_ERROR"]


async def test_a_client_that_sends_no_more_requests_gets_its_responses() -> None:
    async with serving(Endless()) as client:
        await client.send(client.request(1), goaway())
        assert not client.closed
        await client.send(reset(1))
        assert client.closed


async def test_a_client_that_goes_away_with_an_error_has_left() -> None:
    app = Endless()
    async with serving(app) as client:
        await client.send(client.request(1), goaway(ErrorCodes.INTERNAL_ERROR))
        assert app.left == {"/healthz"}
        assert client.closed


async def test_the_task_of_a_reset_request_ends_and_serves_no_other() -> None:
    """Its rest is cancelled (RestOfTask), also what other tasks do for it; what follows without waiting is done."""
    seen: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        now = scope["extensions"][NOW]
        with now["rest"]() as rest:
            assert not now["on_disconnect"](rest.cancel)
            if scope["path"] == "/waits":
                async with anyio.create_task_group() as tasks:
                    for _ in range(2):
                        tasks.start_soon(anyio.sleep_forever)
        seen.append(scope["path"])
        await hello(scope, receive, send)

    async with serving(app) as client:
        await client.send(client.request(1, headers(path="/waits")))
        assert seen == []
        await client.send(reset(1))
        assert seen == ["/waits"]
        await client.send(client.request(3, headers(path="/3")), client.request(5, headers(path="/5")))
        assert sorted(seen[1:]) == ["/3", "/5"]
        assert client.contents == {3: 5, 5: 5}


@pytest.mark.parametrize("is_cancelled", [True, False])
async def test_an_error_in_the_rest_of_a_task_is_raised(is_cancelled: bool) -> None:
    async def fail(rest: RestOfTask) -> None:
        if is_cancelled:
            rest.cancel()
        raise ValueError("a bug")

    async def work() -> None:
        with RestOfTask(handles[0]) as rest:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(anyio.sleep_forever)
                tasks.start_soon(fail, rest)

    handles: list[anyio.TaskHandle[None]] = []
    with pytest.RaisesGroup(pytest.RaisesGroup(ValueError)):
        async with anyio.create_task_group() as tasks:
            handles.append(tasks.start_soon(work))


async def test_a_reset_is_seen_while_a_write_waits() -> None:
    app = Endless()
    async with serving(app, {4: MAX_WINDOW}) as client:
        client.can_write = anyio.Event()
        await client.send(client.request(1))
        await client.send(reset(1))
        assert app.left == {"/healthz"}


async def test_the_last_frames_wait_a_second_for_a_client_that_does_not_read() -> None:
    async with serving(forever) as client:
        client.can_write = anyio.Event()
        await client.send(ping())
        await client.send(client.request(2))
        assert client.waits_for == 1
        assert not client.closed
        await client.protocol.timed_out()
        assert client.closed


async def test_the_oldest_of_large_bodies_is_reset(monkeypatch: pytest.MonkeyPatch) -> None:
    async def large(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"x" * 2 * unsent.LARGE_BYTES})

    monkeypatch.setattr(unsent, "MAX_UNSENT_BYTES", 3 * unsent.LARGE_BYTES)
    async with serving(large) as client:
        for stream_id in (1, 3):
            assert client.resets() == []
            await client.send(client.request(stream_id))
        assert client.resets() == [(1, "INTERNAL_ERROR")]
        await client.send(reset(3))  # which ends the wait of the application
        assert client.idle


async def test_requests_beyond_the_limit_are_refused() -> None:
    """Also those whose stream is gone, and whose application still works: RST_STREAM frees none by itself."""

    async def slow_to_leave(scope: Scope, receive: Receive, send: Send) -> None:
        with anyio.CancelScope(shield=True):
            await anyio.sleep(60)

    async with serving(slow_to_leave) as client:
        for stream_id in range(1, 2 * STREAMS, 2):
            await client.send(client.request(stream_id))
            await client.send(reset(stream_id))
        await client.send(client.request(301))
        assert client.resets() == [(301, "REFUSED_STREAM")]
        assert client.idle is False
        await anyio.sleep(61)
        assert client.idle
        await client.send(client.request(303))
        assert client.resets() == []


async def test_requests_that_come_together_are_all_served_when_a_task_waits() -> None:
    async with serving(hello) as client:
        await client.send(client.request(1))
        await anyio.sleep(1)
        await client.send(*[client.request(number) for number in (3, 5, 7)])
        await anyio.sleep(1)
        assert client.contents == {number: len(b"hello") for number in (1, 3, 5, 7)}


async def test_a_request_that_is_reset_in_the_same_read_is_never_begun() -> None:
    requested = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        requested.append(scope["path"])

    async with serving(app) as client:
        await client.send(client.request(1), reset(1), client.request(3, headers(path="/b")))
        assert requested == ["/b"]


# Counting. `now` is passed in, so these need no loop.


def counting() -> tuple[HTTP2Connection, Client]:
    connection = HTTP2Connection(STREAMS, 65536, 0.0)
    connection.receive(PREFACE + settings().serialize(), 0.0)
    connection.data_to_send()
    client = Client.__new__(Client)
    client.encoder = Encoder()
    return connection, client


def receive(connection: HTTP2Connection, now: float, *frames: Frame | bytes) -> None:
    connection.receive(
        b"".join(each if isinstance(each, bytes) else each.serialize() for each in frames), now
    )
    while connection.has_more:
        connection.receive(b"", now)
    connection.data_to_send()


@pytest.mark.promise("S3")
async def test_malformed_bytes_are_not_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """h2's errors name the value of a header that it does not take."""
    async with serving(hello) as client:
        await client.send(client.request(1, headers(("authorization", "Bearer canary "))))
        await client.send(client.request(3, POST, end=False))
        await client.send(client.request(3, [("authorization", "Bearer canary ")]))
        await client.send(client.request(2, headers(("authorization", "Bearer canary "))))
    assert "PROTOCOL_ERROR" in caplog.text
    assert "canary" not in caplog.text


@pytest.mark.promise("S11")
def test_normal_clients_stay_below_the_limits() -> None:
    """Minutes of a client with 128 streams: pings each second, half of the streams cancelled every three seconds."""
    connection, client = counting()
    next_id = 1
    for second in range(180):
        receive(connection, second, ping(), window(0, 1), settings() if second % 60 == 0 else b"")
        if second % 3 == 0:
            ids = range(next_id, next_id + STREAMS, 2)
            next_id += STREAMS
            receive(connection, second, *(client.request(stream_id) for stream_id in ids))
            receive(connection, second, *(reset(stream_id) for stream_id in ids))


@pytest.mark.promise("S11")
@pytest.mark.parametrize(
    ("frame", "burst", "per_second"),
    [
        (ping(), 1000, 100),
        (PriorityFrame(1), 1000, 100),
        (raw(0x16, 0, 0), 1000, 100),
        (window(0, 1), 1000, 100),
        (data(1), 1000, 100),
        (data(1, bytes(SMALL_DATA - 1)), 1000, 100),
        (settings({4: 65535}), 99, 10),
        (reset(1), 400, 50),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Frame) else None,
)
def test_more_than_a_rate_is_too_much(frame: Frame | bytes, burst: int, per_second: int) -> None:
    connection, client = counting()
    receive(connection, 0.0, client.request(1, POST, end=False))
    receive(connection, 0.0, *[frame] * burst)
    receive(connection, 2.0, *[frame] * (2 * per_second))
    with pytest.raises(DenialOfServiceError):
        receive(connection, 2.0, frame)
    sent = bytearray(connection.data_to_send())
    expected = ["ENHANCE_YOUR_CALM"]
    assert [code_of(each) for each in frames_of(sent) if isinstance(each, GoAwayFrame)] == expected


def test_small_messages_of_a_websocket_are_not_empty() -> None:
    connection, client = counting()
    receive(connection, 0.0, client.request(1, POST, end=False))
    connection.websockets.add(1)
    for _ in range(40):
        receive(connection, 0.0, *[data(1, b"x")] * 50)
    receive(connection, 0.0, *[data(1)] * 1000)
    with pytest.raises(DenialOfServiceError):
        receive(connection, 0.0, data(1))


def test_window_updates_for_sent_data_are_not_counted() -> None:
    connection, _ = counting()
    for _ in range(2000):
        connection.note_data_sent()
        receive(connection, 0.0, *[window(0, 1)] * UPDATES_PER_DATA)


def test_provoked_resets_are_counted() -> None:
    connection, client = counting()
    with pytest.raises(DenialOfServiceError):  # noqa: PT012
        for stream_id in range(1, 1000, 2):
            receive(connection, 0.0, client.request(stream_id, headers(path=None)))
    assert stream_id == 801


def test_responses_that_are_not_read_are_bounded() -> None:
    connection, _ = counting()
    with pytest.raises(DenialOfServiceError):  # noqa: PT012
        for second in range(10_000):
            for _ in range(100):
                connection.receive(ping().serialize(), second)
                assert connection.unsent <= MAX_UNSENT + 17


@pytest.mark.promise("S11")
def test_other_tasks_run_between_the_requests_of_a_read() -> None:
    """The smallest have ten bytes, and each costs as much as a larger one."""
    connection, client = counting()
    data = b"".join(client.request(2 * number + 1).serialize() for number in range(64))
    ids: list[int] = []
    while not ids or connection.has_more:
        requests = [event for event in connection.receive(data, 0.0) if isinstance(event, RequestReceived)]
        assert len(requests) <= 4
        ids += [event.stream_id for event in requests]
        data = b""
    assert ids == list(range(1, 128, 2))


@pytest.mark.promise("S11")
@pytest.mark.parametrize(
    ("frames", "error"),
    [
        ([b"\xff\xff\xff\0\0\0\0\0\1"], "FRAME_SIZE_ERROR"),
        ([b"\0\x40\1\1\0\0\0\0\1"], "FRAME_SIZE_ERROR"),
        ([raw(1, 0, 1, bytes(16384)), *[raw(9, 0, 1, bytes(16384))] * 4], "ENHANCE_YOUR_CALM"),
    ],
    ids=["a frame of 16 MiB", "a frame with a byte too many", "an incomplete list of headers"],
)
def test_what_is_too_large_is_refused_before_it_has_come(frames: list[bytes], error: str) -> None:
    connection, _ = counting()
    with pytest.raises(ProtocolError):
        receive(connection, 0.0, *frames)
    (found,) = frames_of(bytearray(connection.data_to_send()))
    assert isinstance(found, GoAwayFrame)
    assert code_of(found) == error


def test_unknown_settings_are_not_kept() -> None:
    """h2 has a queue for each of 65,536."""
    connection, _ = counting()
    receive(connection, 0.0, *(raw(4, 0, 0, number.to_bytes(2) + bytes(4)) for number in range(9, 99)))
    assert len(connection.remote_settings) <= len(SettingCodes)


def test_a_client_cannot_make_the_table_of_headers_large() -> None:
    connection, _ = counting()
    receive(connection, 0.0, settings({1: 2**32 - 1}))
    assert connection.encoder.header_table_size == 4096


def test_the_goaway_of_a_stop_is_followed_by_responses() -> None:
    connection, client = counting()
    connection.receive(client.request(1).serialize(), 0.0)
    connection.announce_end()
    connection.send_headers(1, [(":status", "200")])
    connection.send_data(1, b"x", end_stream=True)
    sent = bytearray(connection.data_to_send())
    assert [type(frame) for frame in frames_of(sent)] == [GoAwayFrame, HeadersFrame, DataFrame]


@pytest.mark.parametrize("end", [True, False], ids=["all of the request is there", "its body follows"])
def test_a_part_of_a_body_is_the_frame_of_h2_and_takes_as_much_of_the_windows(end: bool) -> None:
    sent = []
    for send in (HTTP2Connection.send_data, HTTP2Connection.send_part):
        connection, client = counting()
        receive(connection, 0.0, client.request(1, POST, end=end))
        connection.send_headers(1, [(":status", "200")])
        send(connection, 1, b"x" * 300)
        windows = connection.outbound_flow_control_window, connection.local_flow_control_window(1)
        connection.send_data(1, b"last", end_stream=True)
        sent.append((windows, connection.data_to_send(), connection.is_open(1)))
    assert sent[0] == sent[1]


def test_a_frame_before_the_settings_is_an_error() -> None:
    connection = HTTP2Connection(STREAMS, 65536, 0.0)
    connection.data_to_send()
    with pytest.raises(Exception, match="first frame"):
        connection.receive(PREFACE + PingFrame(0).serialize(), 0.0)
