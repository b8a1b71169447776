"""The upstream client: responses, errors without secrets, proxies and limits."""

import errno
import gzip
import ssl
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import httpx2
import pytest
from core.toy_framing import LENGTHS, LengthReader, LengthWriter, in_lengths
from gateway.fakes import other_turns
from http_certificate import Certificate, make_certificate
from http_server import Peer, Script, ScriptedServer, answering
from virtual_time import REAL_BACKENDS

from dragoman.codec import SSE, Framing
from dragoman.sse import Frame
from dragoman_server.hosts import UpstreamCall
from dragoman_server.platform.off_loop import INLINE_BYTES
from dragoman_server.upstream.client import UpstreamClient, UpstreamResponse
from dragoman_server.upstream.content_coding import MAX_PORTION
from dragoman_server.upstream.errors import (
    GatewayExhausted,
    UpstreamBroken,
    UpstreamError,
    UpstreamRequestInvalid,
    UpstreamTimeout,
    UpstreamTooLarge,
    UpstreamUnreachable,
)
from dragoman_server.upstream.pool import PoolLimits
from dragoman_server.upstream.transport import Http1Transport, UpstreamTimeouts

pytestmark = [pytest.mark.anyio, pytest.mark.backends(*REAL_BACKENDS)]
one_backend = pytest.mark.backends(REAL_BACKENDS[0])  # no task group, stream or clock is under test

OK = b"HTTP/1.1 200 OK\r\n"
HELLO = OK + b"content-length: 5\r\n\r\nhello"
KEY = "sk-secret"


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


async def get(client: UpstreamClient, url: str, **options: object) -> bytes:
    async with client.open(UpstreamCall("GET", url), **options) as response:  # type: ignore[arg-type]
        return await response.read_all(1000)


# Responses.


@one_backend
async def test_a_response() -> None:
    data = b"HTTP/1.1 429 Slow\r\nX-Id: 7\r\nset-cookie: a\r\nSet-Cookie: b\r\ncontent-length: 2\r\n\r\nno"
    async with ScriptedServer(answering(data)) as server, UpstreamClient() as client:
        headers = [("Authorization", KEY)]
        async with client.open(UpstreamCall("POST", server.url + "v1?q=1", headers, b"{}")) as response:
            assert response.status == 429
            expected = [("x-id", "7"), ("set-cookie", "a"), ("set-cookie", "b"), ("content-length", "2")]
            assert response.headers == expected
            assert await response.receive() == b"no"
            assert await response.receive() == b""
        assert repr(response) == f"<UpstreamResponse 429 from http://127.0.0.1:{server.port}>"


@one_backend
async def test_g13_the_bytes_that_the_server_gets() -> None:
    headers = [
        ("Authorization", f"Bearer {KEY}"),
        ("x-name", "caf\xe9"),
        ("Content-Type", "application/json"),
        ("Accept-Encoding", "br"),
        ("Connection", "close"),
        ("content-length", "999"),
        ("Transfer-Encoding", "chunked"),
        ("host", "elsewhere.example"),
        ("Upgrade", "h2c"),
    ]
    async with ScriptedServer(answering(HELLO)) as server, UpstreamClient() as client:
        async with client.open(UpstreamCall("POST", server.url + "v1/x?y=z", headers, b"{}")):
            pass
        assert server.peers[0].requests[0].decode("latin-1").split("\r\n") == [
            "POST /v1/x?y=z HTTP/1.1",
            f"Host: 127.0.0.1:{server.port}",
            f"Authorization: Bearer {KEY}",
            "x-name: caf\xe9",
            "Content-Type: application/json",
            "accept-encoding: identity",
            "Content-Length: 2",
            "",
            "{}",
        ]


@asynccontextmanager
async def opened(script: Script, **options: Any) -> AsyncIterator[UpstreamResponse]:
    async with (
        ScriptedServer(script) as server,
        UpstreamClient() as client,
        client.open(UpstreamCall("GET", server.url, **options)) as response,
    ):
        yield response


@one_backend
async def test_g11_a_compressed_body_is_decoded_and_its_headers_dropped() -> None:
    body = gzip.compress(b"hello" * 100)
    head = OK + b"Content-Encoding: gzip\r\nx: y\r\nContent-Length: %d\r\n\r\n" % len(body)
    async with opened(answering(head, body)) as response:
        assert response.headers == [("x", "y")]
        assert await response.read_all(500) == b"hello" * 100


@pytest.mark.promise("S8")
async def test_other_tasks_run_while_a_read_is_decompressed() -> None:
    body = gzip.compress(bytes(64 * MAX_PORTION))
    head = OK + b"content-encoding: gzip\r\ncontent-length: %d\r\n\r\n" % len(body)
    async with opened(answering(head, body)) as response:
        await response.receive()  # all of it has come
        async with other_turns() as turns:
            assert await response.read_all(64 * MAX_PORTION) == bytes(63 * MAX_PORTION)
    assert turns() > 32


@one_backend
@pytest.mark.promise("S8")
async def test_a_small_body_that_decompresses_to_much_stops_at_the_limit() -> None:
    body = gzip.compress(b"\0" * 50_000_000)
    head = OK + b"content-encoding: gzip\r\ncontent-length: %d\r\n\r\n" % len(body)
    async with opened(answering(head, body)) as response:
        with pytest.raises(UpstreamTooLarge):
            await response.read_all(1_000_000)


@one_backend
@pytest.mark.parametrize(
    ("coding", "body", "message"),
    [
        (b"br", b"hello", "content-encoding 'br' is not supported"),
        (b"gzip", b"hello", "the body is not valid gzip"),
        (b"gzip", gzip.compress(b"hello", mtime=0)[:-1], "the gzip body is cut off"),
    ],
)
async def test_a_body_that_cannot_be_decoded_is_broken(coding: bytes, body: bytes, message: str) -> None:
    head = OK + b"content-encoding: %b\r\ncontent-length: %d\r\n\r\n" % (coding, len(body))
    async with ScriptedServer(answering(head, body)) as server, UpstreamClient() as client:
        with pytest.raises(UpstreamBroken, match=message):
            await get(client, server.url)
        assert isinstance(client._direct, Http1Transport)
        assert client._direct.pool.busy == 0


@pytest.mark.parametrize(
    ("framing", "media_type"),
    [(LENGTHS, LENGTHS.media_type), (SSE, LENGTHS.media_type), (LENGTHS, "application/json")],
)
@pytest.mark.parametrize("compressed", [True, False])
async def test_a_stream_in_the_framing_of_the_call_becomes_server_sent_events(
    framing: Framing, media_type: str, compressed: bool
) -> None:
    events = b"event: a\ndata: 1\n\n", b"data: 2\n\ndata: 3\n\n"
    stream = in_lengths(b"".join(events))
    body = gzip.compress(stream) if compressed else stream
    head = OK + b"Content-Type: %b; x=y\r\nContent-Length: %d\r\n" % (media_type.encode(), len(body))
    head += b"Content-Encoding: gzip\r\n\r\n" if compressed else b"\r\n"
    begun = anyio.Event()

    async def script(peer: Peer) -> None:
        await peer.respond(head, *[body[at : at + 1] for at in range(len(body) - 15)])
        await begun.wait()
        await peer.send(body[-15:])

    async with opened(script, framing=framing) as response:
        decoded = framing is LENGTHS and media_type == LENGTHS.media_type
        expected = "text/event-stream" if decoded else f"{media_type}; x=y"
        assert dict(response.headers)["content-type"] == expected
        received, each = await response.receive(), list[bytes]()
        begun.set()
        await response.receive_each(lambda data: not each.append(data))
        assert not (decoded and each)
        received += b"".join(each) + await response.read_all(1000)
        assert received == (b"".join(events) if decoded else stream)
        assert await response.receive() == b""


async def test_a_large_frame_is_completed_in_a_thread() -> None:
    threads = list[int]()

    class Reader(LengthReader):
        def receive_data(self, data: bytes) -> Iterator[Frame]:
            threads.append(threading.get_ident())
            return super().receive_data(data)

    framing = Framing(LENGTHS.media_type, Reader)
    stream = in_lengths(b"data: 1\n\n") + LengthWriter().send(Frame(b"", bytes(INLINE_BYTES)))
    head = OK + b"Content-Type: %b\r\nContent-Length: %d\r\n\r\n" % (framing.media_type.encode(), len(stream))
    async with opened(answering(head, stream), framing=framing) as response:
        assert len(await response.read_all(2 * INLINE_BYTES)) > INLINE_BYTES
    assert threads[0] == threading.get_ident()
    assert threading.get_ident() not in threads[-2:-1]


# Errors.


async def failure_of(
    client: UpstreamClient, url: str, content: bytes | None = None, **options: object
) -> UpstreamError:
    call = UpstreamCall("POST", url, [("authorization", KEY)], content)
    with pytest.raises(UpstreamError) as caught:
        async with client.open(call, **options) as response:  # type: ignore[arg-type]
            await response.read_all(1000)
    error = caught.value
    assert KEY not in str(error)
    assert error.__cause__ is None
    return error


@one_backend
@pytest.mark.parametrize(
    ("url", "headers"),
    [
        ("ftp://up.example/", []),
        ("/relative", []),
        ("http://up.example:port/", []),
        ("http://up.example:99999999/", []),
        ("http://up.example/", [("x-name", "\u20ac" + KEY)]),
        ("http://up.example/", [("x-n\u20acme", KEY)]),
    ],
)
async def test_a_request_that_cannot_be_sent(url: str, headers: list[tuple[str, str]]) -> None:
    async with UpstreamClient() as client:
        with pytest.raises(UpstreamRequestInvalid) as caught:
            client.open(UpstreamCall("GET", url, headers))
    assert KEY not in str(caught.value)


@one_backend
async def test_it_is_used_inside_its_block_only() -> None:
    client = UpstreamClient()
    with pytest.raises(RuntimeError, match="not open"):
        await get(client, "http://up.example/")


# Other transports.


def mocked(handler: Callable[[httpx2.Request], httpx2.Response]) -> UpstreamClient:
    return UpstreamClient(transport=httpx2.MockTransport(handler))


class Parts(httpx2.AsyncByteStream):
    def __init__(self, *parts: bytes | Exception) -> None:
        self.parts = parts
        self.closed = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for part in self.parts:
            if isinstance(part, Exception):
                raise part
            yield part

    async def aclose(self) -> None:
        self.closed = True


@one_backend
async def test_any_httpx2_transport_can_replace_ours() -> None:
    stream = Parts(b"he", b"", b"llo")
    async with mocked(lambda _: httpx2.Response(200, stream=stream)) as client:
        async with client.open(UpstreamCall("GET", "http://up.example/")) as response:
            assert await response.receive() == b"he"
            assert await response.receive() == b"llo"
            assert await response.receive() == b""
        assert stream.closed


def led_to(error: httpx2.ConnectError, *before: Exception) -> httpx2.ConnectError:
    """Return an error as httpx2 raises it if all attempts to connect have failed."""
    error.__cause__ = OSError("all attempts failed")
    error.__cause__.__context__ = ExceptionGroup("all attempts failed", before)
    return error


OTHERS = {
    "descriptors": (
        led_to(httpx2.ConnectError(KEY), OSError(errno.ECONNREFUSED, ""), OSError(errno.EMFILE, "")),
        GatewayExhausted,
        "cannot connect to http://up.example",
    ),
    "a family without a route": (
        led_to(httpx2.ConnectError(KEY), OSError(errno.ECONNREFUSED, ""), OSError(errno.ENETUNREACH, "")),
        UpstreamUnreachable,
        "cannot connect to http://up.example",
    ),
    "connect": (httpx2.ConnectError(KEY), UpstreamUnreachable, "cannot connect to http://up.example"),
    "proxy": (httpx2.ProxyError(KEY), UpstreamUnreachable, "the proxy did not connect to http://up.example"),
    "local": (httpx2.LocalProtocolError(KEY), UpstreamRequestInvalid, "cannot be written as HTTP"),
    "remote": (httpx2.RemoteProtocolError(KEY), UpstreamBroken, "the connection broke"),
    "read": (httpx2.ReadError(KEY), UpstreamBroken, "the connection broke"),
    "write": (httpx2.WriteError(KEY), UpstreamBroken, "the connection broke"),
    "pool timeout": (httpx2.PoolTimeout(KEY), UpstreamTimeout, "http://up.example: pool timeout"),
    "connect timeout": (httpx2.ConnectTimeout(KEY), UpstreamTimeout, "http://up.example: connect timeout"),
    "write timeout": (httpx2.WriteTimeout(KEY), UpstreamTimeout, "http://up.example: write timeout"),
    "read timeout": (httpx2.ReadTimeout(KEY), UpstreamTimeout, "http://up.example: read timeout"),
}


@one_backend
async def test_errors_of_other_transports_are_reported_without_their_text() -> None:
    def refuse(request: httpx2.Request) -> httpx2.Response:
        raise OTHERS[request.url.path.removeprefix("/")][0]

    for name, (_, expected, message) in OTHERS.items():
        async with mocked(refuse) as client:
            error = await failure_of(client, f"http://up.example/{name}")
        assert type(error) is expected, name
        assert message in str(error), name
        assert not isinstance(error, UpstreamTimeout) or name == f"{error.phase.value} timeout"


@one_backend
async def test_an_error_inside_the_body_of_another_transport() -> None:
    stream = Parts(b"he", httpx2.ReadError(KEY))
    async with mocked(lambda _: httpx2.Response(200, stream=stream)) as client:
        assert isinstance(await failure_of(client, "http://up.example/"), UpstreamBroken)
    assert stream.closed


@one_backend
@pytest.mark.parametrize("expects_proxies", [False, True])
async def test_a_server_that_wants_a_client_certificate_gets_the_one_in_the_file(
    expects_proxies: bool, certificate: Certificate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = certificate.server()
    wanted.load_verify_locations(certificate.cert)
    wanted.verify_mode = ssl.CERT_REQUIRED
    other, file = make_certificate(tmp_path), tmp_path / "client.pem"
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate.cert))
    file.write_text(other.cert.read_text() + other.key.read_text())
    client = UpstreamClient(expects_tls=False, expects_proxies=expects_proxies, certfile=str(file))
    async with ScriptedServer(answering(HELLO), tls=wanted) as server, client:
        assert isinstance(await failure_of(client, server.url), UpstreamError)
        file.write_text(certificate.cert.read_text() + certificate.key.read_text())
        client.load_certificate()
        assert await get(client, server.url) == b"hello"


# Proxies, HTTP/2, Unix sockets: httpx2's own transport.


async def proxied(server: ScriptedServer, client: UpstreamClient, **options: object) -> list[bytes]:
    """Return the request lines that `server` has seen after a request to a host that does not exist."""
    async with client:
        assert await get(client, "http://up.invalid/v1", **options) == b"hello"
    return [request.split(b"\r\n")[0] for peer in server.peers for request in peer.requests]


@one_backend
@pytest.mark.parametrize("name", ["HTTP_PROXY", "ALL_PROXY", "http_proxy"])
async def test_a_proxy_of_the_environment(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with ScriptedServer(answering(HELLO)) as server:
        monkeypatch.setenv(name.lower(), f"127.0.0.1:{server.port}")
        lines = await proxied(server, UpstreamClient())
    assert lines == [b"GET http://up.invalid/v1 HTTP/1.1"]


@one_backend
@pytest.mark.parametrize("proxy", ["http://127.0.0.1:1", "socks5://127.0.0.1:1"])
async def test_a_proxy_that_is_not_there_is_named_as_the_cause(proxy: str) -> None:
    async with UpstreamClient() as client:
        error = await failure_of(client, "http://up.invalid/v1", proxy=proxy)
    assert str(error) == "cannot connect to http://up.invalid by its proxy"


@one_backend
@pytest.mark.parametrize("no_proxy", ["127.0.0.1", "example.com, 127.0.0.1", "*"])
async def test_no_proxy_is_obeyed(no_proxy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://proxy.invalid:3128")
    monkeypatch.setenv("no_proxy", no_proxy)
    async with ScriptedServer(answering(HELLO)) as server, UpstreamClient() as client:
        assert await get(client, server.url) == b"hello"
        assert server.peers[0].requests[0].startswith(b"GET / HTTP/1.1")


async def test_a_socks_proxy() -> None:
    """RFC 1928: greeting and method, the connect request and its reply, then the bytes of the connection."""
    requests_received = []

    async def script(peer: Peer) -> None:
        assert await peer.stream.receive() == b"\x05\x01\x00"
        await peer.stream.send(b"\x05\x00")
        requests_received.append(await peer.stream.receive())
        await peer.stream.send(b"\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00")
        await peer.respond(HELLO)

    async with ScriptedServer(script) as server:
        proxy = server.url.replace("http:", "socks5:").rstrip("/")
        async with UpstreamClient() as client:
            assert await get(client, "http://up.example/v1", proxy=proxy) == b"hello"
    assert requests_received == [b"\x05\x01\x00\x03\x0aup.example\x00\x50"]


# What a proxy does with the first bytes of a connection.
async def _hangs(peer: Peer) -> None:
    await peer.until_closed()


async def _drips(peer: Peer) -> None:
    await peer.respond(OK)
    while True:
        await peer.send(b"x: y\r\n")
        await anyio.sleep(0.01)


async def _is_none(peer: Peer) -> None:
    await peer.stream.receive()
    await peer.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")


async def _wants_a_password(peer: Peer) -> None:
    await peer.request()
    await peer.send(b"HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n")


async def _leaves(peer: Peer) -> None:
    await peer.stream.receive()


async def _is_cut(peer: Peer) -> None:
    await peer.stream.receive()
    await peer.send(OK)


REFUSED = (UpstreamUnreachable, "the proxy did not connect to https://up.example")
BROKEN = (UpstreamUnreachable, "cannot connect to https://up.example by its proxy")
LATE = (UpstreamTimeout, "https://up.example: connect timeout")
PROXIES = [
    ("http", _hangs, LATE),
    ("http", _drips, LATE),
    ("http", _is_none, (UpstreamUnreachable, f"{REFUSED[1]} (400)")),
    ("http", _wants_a_password, (UpstreamUnreachable, f"{REFUSED[1]} (407)")),
    ("http", _leaves, BROKEN),
    ("http", _is_cut, BROKEN),
    ("socks5", _hangs, LATE),
    ("socks5", _is_none, REFUSED),
]


async def test_a_proxy_that_does_not_connect_has_the_time_for_that() -> None:
    for scheme, script, expected in PROXIES:
        async with ScriptedServer(script) as server, UpstreamClient() as client:
            proxy = server.url.replace("http:", f"{scheme}:").rstrip("/")
            with anyio.fail_after(20):
                error = await failure_of(
                    client, "https://up.example/", proxy=proxy, timeouts=UpstreamTimeouts(connect_s=0.1)
                )
        assert (type(error), str(error)) == expected, (scheme, script)


async def _connects_and_hangs(peer: Peer) -> None:
    await peer.respond(OK + b"\r\n")
    await peer.until_closed()


async def test_a_failed_connection_by_a_proxy_leaves_room_for_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("dragoman_server.upstream.client.PoolLimits", partial(PoolLimits, connections=1))
    async with ScriptedServer(*[_connects_and_hangs] * 2) as server, UpstreamClient() as client:
        for _ in range(2):
            timeouts = UpstreamTimeouts(connect_s=0.1, pool_s=0.1)
            error = await failure_of(client, "https://up.example/", proxy=server.url, timeouts=timeouts)
            assert str(error) == "https://up.example: connect timeout"


async def test_a_response_by_a_proxy_may_take_longer_than_to_connect() -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await anyio.sleep(0.3)
        await peer.send(HELLO)

    async with ScriptedServer(script) as server, UpstreamClient() as client:
        timeouts = UpstreamTimeouts(connect_s=0.2)
        assert await get(client, "http://up.example/", proxy=server.url, timeouts=timeouts) == b"hello"


@one_backend
async def test_interim_responses_by_a_proxy_restart_the_time_of_a_read() -> None:
    async def thinks(peer: Peer) -> None:
        await peer.request()
        for _ in range(4):
            await anyio.sleep(0.4)
            await peer.send(b"HTTP/1.1 102 Processing\r\n\r\n")
        await peer.send(HELLO)

    async with ScriptedServer(thinks) as server, UpstreamClient() as client:
        timeouts = UpstreamTimeouts(read_s=1.2)
        assert await get(client, "http://up.example/", proxy=server.url, timeouts=timeouts) == b"hello"


async def test_the_whole_head_of_a_response_by_a_proxy_has_a_bounded_time() -> None:
    async with ScriptedServer(_drips) as server, UpstreamClient() as client:
        with anyio.fail_after(20):
            timeouts = UpstreamTimeouts(read_s=0.1)
            error = await failure_of(client, "http://up.example/", proxy=server.url, timeouts=timeouts)
    assert str(error) == "http://up.example: read timeout"


class Traced(httpx2.AsyncBaseTransport):
    """Connects and sends as httpcore2 does over HTTP/2, behind a transport of somebody else."""

    def __init__(self, *, connects: bool) -> None:
        self.connects = connects
        self.closed = anyio.Event()

    async def aclose(self) -> None:
        self.closed.set()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        trace = request.extensions["trace"]
        await trace("connection.connect_tcp.started", {})
        await trace("connection.connect_tcp.complete", {"return_value": self})
        if self.connects:
            await trace(
                "http2.send_request_headers.started", {"request": httpx2.Request("POST", request.url)}
            )
        await anyio.sleep(0.1)
        return httpx2.Response(200, stream=Parts(b"hello"))


@one_backend
async def test_a_connection_of_another_transport_has_its_time() -> None:
    timeouts = UpstreamTimeouts(connect_s=0.01)
    ready, late = Traced(connects=True), Traced(connects=False)
    async with UpstreamClient(transport=ready) as client:
        assert await get(client, "http://up.example/", timeouts=timeouts) == b"hello"
        assert not ready.closed.is_set()
    async with UpstreamClient(transport=late) as client:
        error = await failure_of(client, "http://up.example/", timeouts=timeouts)
        assert str(error) == "http://up.example: connect timeout"
        assert late.closed.is_set()


@one_backend
async def test_a_socks_proxy_needs_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "socksio", None)
    async with UpstreamClient() as client:
        with pytest.raises(UpstreamUnreachable, match="needs the extra socks"):
            await get(client, "http://up.example/v1", proxy="socks5://127.0.0.1:1")


@one_backend
@pytest.mark.parametrize("proxy", [f"gopher://me:{KEY}@127.0.0.1:1", f"http://me:{KEY}/@127.0.0.1:1"])
async def test_a_proxy_that_cannot_be_used(proxy: str) -> None:
    async with UpstreamClient() as client:
        error = await failure_of(client, "http://up.invalid/", proxy=proxy)
    assert isinstance(error, UpstreamUnreachable)
    assert str(error) == "http://up.invalid: the proxy's URL cannot be used"


@one_backend
async def test_the_trust_store_is_read_at_the_start_where_tls_is_expected() -> None:
    async with UpstreamClient() as client:
        assert client._tls is not None
    async with UpstreamClient(expects_tls=False) as client:
        assert client._tls is None


class ProxyTransport(httpx2.AsyncBaseTransport):
    closed = False

    async def aclose(self) -> None:
        self.closed = True


@one_backend
async def test_connections_that_nothing_needs_are_closed() -> None:
    async with UpstreamClient() as client:
        old, kept = ProxyTransport(), ProxyTransport()
        client._proxied = {"http://old:1": old, "http://kept:1": kept}
        await client.keep_only(["http://up.test/v1", "no url"], {"http://kept:1"})
        assert (old.closed, kept.closed) == (True, False)
        assert list(client._proxied) == ["http://kept:1"]
