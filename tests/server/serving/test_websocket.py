"""A WebSocket on one connection, over HTTP/1.1 and HTTP/2, with a scripted client and application, in virtual time."""

import zlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest
from client_stream import FakeStream, connect
from h2_client import data, reset, window
from starlette.types import Message, Receive, Scope, Send
from virtual_time import VIRTUAL_BACKENDS
from websocket_client import COMPRESSED, FIN, KEY, OVER, Answer, OverHTTP1, OverHTTP2, close, frame

from dragoman_server.serving.connection import KEEP_ALIVE_S
from dragoman_server.serving.websocket import (
    CLOSE_S,
    MAX_EARLY,
    MAX_PONGS,
    MAX_UNANSWERED,
    PING_S,
)
from dragoman_server.serving.websocket_frames import BINARY, CLOSE, MAX_FRAME, PING, PONG, TEXT
from dragoman_server.settings import ServerSettings
from dragoman_server.streams.byte_stream import DRAINING, NOW, UTF8

pytestmark = [pytest.mark.anyio, pytest.mark.backends(*VIRTUAL_BACKENDS)]

Over = OverHTTP1 | OverHTTP2
HELLO = (FIN | TEXT, b"hello")
DEFLATE = {"sec-websocket-extensions": "permessage-deflate; client_max_window_bits"}


@pytest.fixture(params=OVER)
def over(request: pytest.FixtureRequest) -> Over:
    return OVER[request.param]


@dataclass
class App:
    """Accepts, and sends back what it receives until the client has left.

    Attributes:
        script: runs instead, after the accept if `accepts`.
        left: when the client was known to have left, and its code and reason.
        raised: what a message sent after that has raised.
    """

    script: Callable[[Receive, Send], Awaitable[None]] | None = None
    accepts: bool = True
    utf8: bool = False
    scope: Scope = field(default_factory=dict)
    received: list[str | bytes] = field(default_factory=list)
    left: tuple[float, int, str] | None = None
    raised: Exception | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope = scope

        async def get() -> Message:
            message = await receive()
            if message["type"] == "websocket.receive":
                self.received.append(message["bytes"] if message["text"] is None else message["text"])
            elif message["type"] == "websocket.disconnect" and self.left is None:
                self.left = (anyio.current_time(), message["code"], message["reason"])
            return message

        assert await get() == {"type": "websocket.connect"}
        if self.accepts:
            await send({"type": "websocket.accept", "utf8": self.utf8})
        if self.script is not None:
            await self.script(get, send)
        while self.left is None:
            message = await get()
            try:
                await send({**message, "type": "websocket.send"})
            except OSError as error:
                self.raised = error


async def serve(
    app: Any, over: Over, *incoming: bytes | float, opening: bytes | None = None, **options: Any
) -> tuple[Answer, float]:
    """Return what was sent, and when the connection has ended, for HTTP/2 when it has become idle."""
    settings = options.pop("settings", None)
    stream = FakeStream([over.opening() if opening is None else opening, *incoming], **options)
    await connect(app, stream, settings).run()
    assert stream.aborted_at is not None
    idle = KEEP_ALIVE_S if stream.ended_at and isinstance(over, OverHTTP2) else 0
    return over.answer(stream.sent), stream.aborted_at - idle


async def test_messages_of_both_kinds(over: Over) -> None:
    app = App()
    sent = over.frames(frame(PING, b"p"), frame(TEXT, b"hello")), 0.5, over.frames(frame(BINARY, b"\xff"))
    answer, ended = await serve(app, over, *sent, 0.5, over.frames(close(1000)))
    expected = (101, None) if isinstance(over, OverHTTP1) else (200, None)
    assert (answer.status, answer.headers.get("sec-websocket-extensions")) == expected
    expected = [(FIN | PONG, b"p"), HELLO, (FIN | BINARY, b"\xff"), (FIN | CLOSE, b"\3\xe8")]
    assert answer.frames == expected
    assert (app.received, app.left) == (["hello", b"\xff"], (1, 1000, ""))
    assert isinstance(app.raised, OSError)
    assert (ended, answer.ended) == (1, "" if isinstance(over, OverHTTP1) else "end")
    expected = {"type": "websocket", "scheme": "ws", "path": "/ws", "subprotocols": []}
    assert {key: app.scope[key] for key in ("type", "scheme", "path", "subprotocols")} == expected
    of_http1 = {NOW} if isinstance(over, OverHTTP1) else set()
    assert app.scope["extensions"].keys() == {"websocket.http.response", DRAINING, UTF8, *of_http1}


async def test_more_small_messages_than_a_rate(over: Over) -> None:
    app, hello = App(), over.frames(frame(TEXT, b"hello"))
    incoming = [each for _ in range(1200) for each in (hello, 0.0)]
    answer, _ = await serve(app, over, *incoming, over.frames(close(1000)))
    assert app.received == ["hello"] * 1200
    assert answer.frames[-1] == (FIN | CLOSE, b"\3\xe8")


async def test_texts_are_utf8_for_an_application_that_says_so(over: Over) -> None:
    app = App(utf8=True)
    sent = (
        over.frames(frame(TEXT, "é".encode()), frame(BINARY, b"\xff")),
        1.0,
        over.frames(frame(TEXT, b"\xff")),
    )
    answer, _ = await serve(app, over, *sent, 1.0)
    assert app.received == ["é".encode(), b"\xff"]
    assert answer.frames[:2] == [(FIN | TEXT, "é".encode()), (FIN | BINARY, b"\xff")]
    assert app.left[1] == 1007


async def test_deflated_messages_are_accepted_and_none_is_sent(over: Over) -> None:
    compressed = bytes.fromhex("f248cdc9c90700")  # RFC 7692, 7.2.3.1
    sent = over.frames(frame(COMPRESSED | TEXT, compressed))
    answer, _ = await serve(App(), over, sent, 1.0, over.frames(close(1000)), opening=over.opening(DEFLATE))
    expected = "permessage-deflate; server_no_context_takeover; client_no_context_takeover"
    assert answer.headers["sec-websocket-extensions"] == expected
    assert answer.frames[0] == (FIN | TEXT, b"Hello")


# How it ends.

LIMITED = ServerSettings(max_body_bytes=1024)
ENDS: dict[str, tuple[bytes, int, str, bytes]] = {
    # What the client sends, the code and the reason for the application, what is sent back.
    "a close": (close(4001, b"bye"), 4001, "bye", b"\x0f\xa1bye"),
    "a close without a code": (close(), 1005, "", b""),
    "a close, and more": (close(1000) + frame(PING) + frame(TEXT, b"x") + b"\xff", 1000, "", b"\3\xe8"),
    "not masked": (frame(TEXT, mask=None), 1002, "a frame is not masked", b"\3\xeaa frame is not masked"),
    "not UTF-8": (frame(TEXT, b"\xff"), 1007, "a text is not UTF-8", b"\3\xefa text is not UTF-8"),
    "too big": (
        frame(TEXT, bytes(1025)),
        1009,
        "a message has more than 1024 bytes",
        b"\3\xf1a message has more than 1024 bytes",
    ),
    "a flood": (frame(PONG) * 1001, 1008, "too many control frames", b"\3\xf0too many control frames"),
}


@pytest.mark.promise("R9")
@pytest.mark.parametrize("name", ENDS)
async def test_the_application_knows_at_once_how_the_client_has_left(name: str, over: Over) -> None:
    sent, code, reason, answered = ENDS[name]
    app = App()
    incoming = over.frames(frame(TEXT, b"hello")), 1.0, over.frames(sent)
    answer, ended = await serve(app, over, *incoming, settings=LIMITED)
    assert app.left == (1, code, reason)
    assert app.raised is not None
    assert answer.frames == [HELLO, (FIN | CLOSE, answered)]
    assert ended == 1


@pytest.mark.promise("R9")
@pytest.mark.parametrize(
    ("name", "how"),
    [
        *((name, how) for name in OVER for how in ("leaves", "resets")),
        ("h2", "END_STREAM"),
        ("h2", "RST_STREAM"),
    ],
)
async def test_a_client_that_leaves_without_a_close(name: str, how: str) -> None:
    app, over = App(), OVER[name]
    frames = {"END_STREAM": data(1, end=True), "RST_STREAM": reset(1)}
    last = [frames[how].serialize()] if how in frames else []
    options = {} if last else {how: True}
    answer, _ = await serve(app, over, over.frames(frame(TEXT, b"hello")), 1.0, *last, **options)
    assert app.left == (1, 1006, "")
    assert app.raised is not None
    assert (answer.frames, answer.ended) == ([HELLO], {"END_STREAM": "end"}.get(how, ""))


@pytest.mark.parametrize("answers", [True, False])
async def test_the_application_closes(answers: bool, over: Over) -> None:
    """The client's Close is waited for, and messages that come before it are dropped."""

    async def closes(receive: Receive, send: Send) -> None:
        await send({"type": "websocket.close", "code": 4000, "reason": "done"})
        with pytest.raises(OSError, match="closed"):
            await send({"type": "websocket.send", "text": "more"})

    app = App(closes)
    last = [1.0, over.frames(frame(TEXT, b"x"), close(4002))] if answers else []
    answer, ended = await serve(app, over, *last)
    assert answer.frames == [(FIN | CLOSE, b"\x0f\xa0done")]
    assert (app.received, app.left) == ([], (1, 4002, "") if answers else (CLOSE_S, 1006, ""))
    assert ended == (1 if answers else CLOSE_S)


@pytest.mark.parametrize("fails", [False, True])
async def test_an_application_that_ends_without_a_close(fails: bool, over: Over) -> None:
    async def ends(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        if fails:
            raise ValueError("a bug")

    answer, ended = await serve(ends, over)
    assert answer.frames == [(FIN | CLOSE, b"\3\xf3")]
    assert ended == CLOSE_S


@pytest.mark.promise("R2")
@pytest.mark.parametrize("closes", [True, False])
async def test_a_stop(closes: bool, over: Over) -> None:
    """The application is told, and closes; else its WebSocket is closed when the stop cancels it."""

    async def waits(receive: Receive, send: Send) -> None:
        await app.scope["extensions"][DRAINING].wait()
        if closes:
            await send({"type": "websocket.close", "code": 1012})
        else:
            await anyio.sleep_forever()

    app = App(waits)
    stream = FakeStream([over.opening()])
    connection = connect(app, stream)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(connection.run)
        await anyio.sleep(5)
        connection.worker.terminated.set()
        await connection.stop()
        await anyio.sleep(5)
        for scope in tuple(connection.worker.requests):
            scope.cancel()
    assert over.answer(stream.sent).frames == [(FIN | CLOSE, b"\3\xf4")]
    assert stream.ended_at == CLOSE_S + (5 if closes else 10)  # and not when it is idle


# Silence.


async def test_h14_pings_keep_a_connection_that_is_idle(over: Over) -> None:
    """It is not one of those that make room for others, and its time has no end."""
    app, pong = App(), over.frames(frame(PONG))
    stream = FakeStream([over.opening(), *[PING_S + 1, pong] * 10, over.frames(close(1000))])
    connection = connect(app, stream)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(connection.run)
        await anyio.sleep(100)
        assert not connection.worker.idle
    assert over.answer(stream.sent).frames == [(FIN | PING, b"")] * 10 + [(FIN | CLOSE, b"\3\xe8")]
    assert app.left == (10 * (PING_S + 1), 1000, "")


async def test_a_client_that_answers_no_ping_is_gone(over: Over) -> None:
    app = App()
    answer, ended = await serve(app, over, over.frames(frame(TEXT, b"hello")))
    gone = PING_S * (1 + MAX_UNANSWERED)
    assert answer.frames == [HELLO] + [(FIN | PING, b"")] * MAX_UNANSWERED
    assert app.left == (gone, 1006, "")
    assert ended == gone


async def test_a_ping_is_answered_although_the_application_reads_nothing(over: Over) -> None:
    """Each is, as long as the client reads: else the last of them has to be (RFC 6455, 5.5.3)."""

    async def sleeps(receive: Receive, send: Send) -> None:
        await anyio.sleep(10)

    app = App(sleeps)
    pings = over.frames(*(frame(PING, b"%0125d" % number) for number in range(20)))
    answer, _ = await serve(
        app, over, over.frames(frame(TEXT, b"x")), 1.0, pings, 1.0, over.frames(close(1000))
    )
    numbers = [int(payload) for first, payload in answer.frames if first == FIN | PONG]
    assert numbers[-1] == 19
    assert len(numbers) <= MAX_PONGS // 127 + 1
    assert (app.received, app.left) == (["x"], (10, 1000, ""))


# Limits.


@pytest.mark.promise("S10")
@pytest.mark.parametrize(("size", "count"), [(1, 65), (100_000, 4)])
async def test_messages_that_nobody_reads_end_the_connection(size: int, count: int, over: Over) -> None:
    """Messages are counted, and so are their bytes."""

    async def sleeps(receive: Receive, send: Send) -> None:
        await anyio.sleep(10)

    app = App(sleeps)
    sent = over.frames(*(frame(TEXT, b"x" * size) for _ in range(count - 1)))
    answer, _ = await serve(
        app, over, sent, 1.0, over.frames(frame(TEXT, b"x")), 5.0, over.frames(close(1000))
    )
    assert answer.frames[-1][1][:2] == (1013).to_bytes(2)
    assert len(app.received) in (count - 2, count - 1)
    assert app.left[1] == 1013


async def test_an_application_that_receives_gets_all_that_come_at_once(over: Over) -> None:
    app = App()
    await serve(
        app, over, over.frames(*(frame(TEXT, b"%d" % each) for each in range(300))), over.frames(close())
    )
    assert app.received == [str(each) for each in range(300)]


@pytest.mark.parametrize("whole", [True, False])
async def test_what_comes_before_the_accept(whole: bool, over: Over) -> None:
    async def accepts(receive: Receive, send: Send) -> None:
        await anyio.sleep(1)
        await send({"type": "websocket.accept"})

    app = App(accepts, accepts=False)
    early = frame(TEXT, b"hello"), frame(TEXT, b"wor"), frame(TEXT, b"ld")
    sent = over.frames(*early) if whole else over.frames(*early)[:-2]
    rest = over.frames(*early)[len(sent) :]
    answer, _ = await serve(app, over, sent, 2.0, *([rest] if rest else []), over.frames(close(1000)))
    assert app.received == ["hello", "wor", "ld"]
    assert answer.frames[0] == HELLO


@pytest.mark.promise("S10")
async def test_too_much_before_the_accept_is_refused(over: Over, caplog: pytest.LogCaptureFixture) -> None:
    async def accepts(receive: Receive, send: Send) -> None:
        await anyio.sleep(1)
        await send({"type": "websocket.accept"})

    app = App(accepts, accepts=False)
    answer, _ = await serve(app, over, opening=over.opening() + over.frames(bytes(2 * MAX_EARLY)))
    assert (answer.status, answer.body) == (400, b"too much was sent before the handshake was answered\n")
    assert app.left is None  # the accept raised an OSError first
    assert not caplog.records


@pytest.mark.promise("S7")
async def test_a_long_message_is_sent_in_frames(over: Over) -> None:
    async def sends(receive: Receive, send: Send) -> None:
        async with anyio.create_task_group() as tasks:
            for char in "ab":
                tasks.start_soon(send, {"type": "websocket.send", "text": char * (MAX_FRAME + 1)})

    windows = [window(0, 2**24).serialize() + window(1, 2**24).serialize()] * isinstance(over, OverHTTP2)
    answer, _ = await serve(App(sends), over, *windows, 1.0, over.frames(close(1000)))
    frames = [(first, payload[:1], len(payload)) for first, payload in answer.frames if first & 0xF < CLOSE]
    assert [each for each in frames if each[1] == b"a"] == [(TEXT, b"a", MAX_FRAME), (FIN, b"a", 1)]
    assert [each[1] for each in frames] in ([b"a", b"a", b"b", b"b"], [b"b", b"b", b"a", b"a"])


async def test_a_close_does_not_wait_for_the_end_of_a_long_message() -> None:
    """The client closes while it does not read, and then reads."""

    async def sends(receive: Receive, send: Send) -> None:
        with pytest.raises(OSError, match="closed"):
            await send({"type": "websocket.send", "bytes": bytes(3 * MAX_FRAME)})

    app, over = App(sends), OVER["h2"]
    windows = window(0, 2**24).serialize() + window(1, 2**24).serialize()
    answer, _ = await serve(app, over, 1.0, over.frames(frame(PING), close(1000)), 1.0, windows)
    sizes = [(first, len(payload)) for first, payload in answer.frames]
    assert sizes == [(BINARY, MAX_FRAME), (FIN | PONG, 0), (FIN | CLOSE, 2)]
    assert app.left == (2, 1000, "")


async def test_other_tasks_run_while_a_message_is_inflated(over: Over) -> None:
    app, turns = App(), 0
    compressor = zlib.compressobj(wbits=-15)
    message = compressor.compress(bytes(2**23)) + compressor.flush(zlib.Z_SYNC_FLUSH)
    # The first pieces give the application the time to accept, because none passes while a task is busy.
    pieces = [*[over.frames(frame(PONG))] * 50, over.frames(frame(COMPRESSED | BINARY, message))]
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(connect(app, FakeStream([over.opening(DEFLATE), *pieces])).run)
        while not app.received:
            await anyio.lowlevel.checkpoint()
            turns += bool(app.scope)
        tasks.cancel_scope.cancel()
    assert app.received == [bytes(2**23)]
    assert turns > 50 + 2**23 // (64 * 1024)


async def test_an_application_that_does_not_catch_what_send_raises(
    over: Over, caplog: pytest.LogCaptureFixture
) -> None:
    async def sends(receive: Receive, send: Send) -> None:
        while True:
            await send({"type": "websocket.send", "text": "x"})
            await anyio.sleep(1)

    await serve(App(sends), over, 5.5, leaves=True)
    assert not caplog.records


async def test_nothing_follows_half_a_frame(over: Over) -> None:
    """The application is cancelled in the middle of a message to a client that does not read."""

    async def sends(receive: Receive, send: Send) -> None:
        with anyio.move_on_after(5):
            await send({"type": "websocket.send", "bytes": bytes(2**20)})
        await send({"type": "websocket.send", "text": "no"})

    app = App(sends)
    answer, ended = await serve(app, over, room=2000 if isinstance(over, OverHTTP1) else 2**20)
    assert set(answer.body[10:]) == {0}
    assert answer.ended == ("" if isinstance(over, OverHTTP1) else "reset")
    assert ended == 5


async def test_messages_that_are_sent_without_waiting() -> None:
    """Every second time a task has to wait. Behind it follow pongs as well."""
    found: list[bool] = []

    async def sends(receive: Receive, send: Send) -> None:
        send_now = app.scope["extensions"][NOW]["send"]
        found.append(send_now([b"x", b"y" * 200]))
        found.append(send_now([b"not now"]))
        await anyio.sleep(1)  # until a ping has come
        await send({"type": "websocket.close"})
        found.append(send_now([b"closed"]))

    app, over = App(sends), OVER["http/1.1"]
    answer, _ = await serve(app, over, 0.5, over.frames(frame(PING, b"p")))
    assert found == [True, False, False]
    texts = [(FIN | TEXT, b"x"), (FIN | TEXT, b"y" * 200)]
    assert answer.frames == [*texts, (FIN | PONG, b"p"), (FIN | CLOSE, b"\3\xe8")]


# Instead of a WebSocket.


async def refuses(scope: Scope, receive: Receive, send: Send) -> None:
    await receive()
    headers = [(b"content-type", b"text/plain")]
    await send({"type": "websocket.http.response.start", "status": 401, "headers": headers})
    await send({"type": "websocket.http.response.body", "body": b"who ", "more_body": True})
    await send({"type": "websocket.http.response.body", "body": b"are you?"})


async def closes_first(scope: Scope, receive: Receive, send: Send) -> None:
    await receive()
    await send({"type": "websocket.close", "code": 1008})


async def accepts_badly(scope: Scope, receive: Receive, send: Send) -> None:
    await receive()
    await send({"type": "websocket.accept", "subprotocol": "not offered"})


async def ends_first(scope: Scope, receive: Receive, send: Send) -> None:
    await receive()


@pytest.mark.parametrize(
    ("app", "status", "body"),
    [
        (refuses, 401, b"who are you?"),
        (closes_first, 403, b""),
        (ends_first, 500, b""),
        (accepts_badly, 500, b""),
    ],
)
async def test_a_response_instead(app: Any, status: int, body: bytes, over: Over) -> None:
    """Over HTTP/1.1 the connection ends with it: what follows may be frames."""
    answer, ended = await serve(app, over, over.frames(frame(TEXT, b"x")))
    if isinstance(over, OverHTTP1):
        assert answer.headers["connection"] == "close"
        if body:
            answer = answer._replace(body=b"".join(answer.body.split(b"\r\n")[1::2]))
    assert (answer.status, answer.body, ended) == (status, body, 0)


async def test_an_accept_that_cannot_be_written() -> None:
    async def accepts(receive: Receive, send: Send) -> None:
        await send({"type": "websocket.accept", "headers": [(b"x-a", b"b\nc: d")]})

    answer, ended = await serve(App(accepts, accepts=False), OVER["http/1.1"])
    assert (answer.status, ended) == (500, 0)


UPGRADES: dict[str, tuple[dict[str, str], int]] = {
    "as browsers have it": ({"connection": "keep-alive, Upgrade", "upgrade": "WebSocket"}, 101),
    "several protocols": ({"upgrade": "h2c, websocket"}, 101),
    "no body, said": ({"content-length": "0"}, 101),
    "another protocol": ({"upgrade": "h2c"}, 200),
    "a proxy has removed the option": ({"connection": "keep-alive"}, 400),
    "no key": ({"sec-websocket-key": ""}, 400),
    "a short key": ({"sec-websocket-key": "AAAA"}, 400),
    "a key that is not base64": ({"sec-websocket-key": "!" + KEY[1:]}, 400),
    "a key that is not ASCII": ({"sec-websocket-key": "é" + KEY}, 400),
    "a body": ({"content-length": "5"}, 400),
    "chunks": ({"transfer-encoding": "chunked"}, 400),
    "no version": ({"sec-websocket-version": ""}, 426),
    "another version": ({"sec-websocket-version": "8"}, 426),
}


@pytest.mark.parametrize("name", UPGRADES)
async def test_an_upgrade(name: str) -> None:
    fields, status = UPGRADES[name]
    over = OVER["http/1.1"]

    async def either(scope: Scope, receive: Receive, send: Send) -> None:
        await (App()(scope, receive, send) if scope["type"] == "websocket" else hello(send))

    answer, _ = await serve(either, over, 1.0, over.frames(close(1000)), opening=over.opening(fields))
    assert answer.status == status
    expected = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" if status == 101 else None
    assert answer.headers.get("sec-websocket-accept") == expected
    assert answer.headers.get("sec-websocket-version") == ("13" if status == 426 else None)


async def hello(send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"5")]})
    await send({"type": "http.response.body", "body": b"hello"})


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({}, 200),
        ({"sec-websocket-version": "8"}, 426),
        ({":protocol": "connect-udp"}, 501),
    ],
)
async def test_an_extended_connect(fields: dict[str, str], status: int) -> None:
    over = OVER["h2"]
    answer, _ = await serve(App(), over, 1.0, over.frames(close(1000)), opening=over.opening(fields))
    expected = (status, "13" if status == 426 else None)
    assert (answer.status, answer.headers.get("sec-websocket-version")) == expected


NO_CONTEXT = "permessage-deflate; server_no_context_takeover; client_no_context_takeover"


@pytest.mark.parametrize(
    ("offers", "accepted"),
    [
        ("permessage-deflate", NO_CONTEXT),
        ("x-webkit-deflate-frame, Permessage-Deflate; client_no_context_takeover", NO_CONTEXT),
        (
            "permessage-deflate; server_max_window_bits=8; client_max_window_bits=9",
            NO_CONTEXT + "; server_max_window_bits=8",
        ),
        ('permessage-deflate; client_max_window_bits="15"', NO_CONTEXT),
        # RFC 7692, 7.1: what has to be declined.
        ("permessage-deflate; server_max_window_bits", None),
        ("permessage-deflate; server_max_window_bits=16, permessage-deflate", NO_CONTEXT),
        ("permessage-deflate; client_max_window_bits=7", None),
        ("permessage-deflate; client_max_window_bits=x", None),
        ("permessage-deflate; client_max_window_bits; client_max_window_bits", None),
        ("permessage-deflate; client_no_context_takeover=1", None),
        ("permessage-deflate; unknown", None),
        ("permessage-bzip2", None),
    ],
)
async def test_offers_of_extensions(offers: str, accepted: str | None) -> None:
    over = OVER["http/1.1"]
    opening = over.opening({"sec-websocket-extensions": offers})
    answer, _ = await serve(App(), over, over.frames(close(1000)), opening=opening)
    assert answer.headers.get("sec-websocket-extensions") == accepted


async def test_a_subprotocol(over: Over) -> None:
    async def accepts(receive: Receive, send: Send) -> None:
        chosen = app.scope["subprotocols"][-1]
        await send({"type": "websocket.accept", "subprotocol": chosen, "headers": [(b"x-a", b"b")]})

    app = App(accepts, accepts=False)
    opening = over.opening({"sec-websocket-protocol": "one, two"})
    answer, _ = await serve(app, over, over.frames(close(1000)), opening=opening)
    assert app.scope["subprotocols"] == ["one", "two"]
    assert (answer.headers["sec-websocket-protocol"], answer.headers["x-a"]) == ("two", "b")
