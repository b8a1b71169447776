"""The transport over TLS, with a certificate made for the session."""

import socket
import ssl
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from pathlib import Path

import anyio
import anyio.lowlevel
import httpx2
import pytest
from http_certificate import Certificate
from http_server import TIMEOUT_S, Peer, ScriptedServer, answering
from transport_requests import request_to
from virtual_time import REAL_BACKENDS, UVLOOP

from dragoman_server.streams.connect import connect, open_byte_stream
from dragoman_server.upstream.errors import (
    UpstreamBroken,
    UpstreamIdleClosed,
    UpstreamUnreachable,
)
from dragoman_server.upstream.transport import (
    Http1Request,
    Http1Transport,
    ResponseBody,
    trusting_context,
)

pytestmark = [pytest.mark.anyio, pytest.mark.backends(*REAL_BACKENDS, UVLOOP)]
one_backend = pytest.mark.backends(REAL_BACKENDS[0])  # no task group, stream or clock is under test

OK = b"HTTP/1.1 200 OK\r\n"
HELLO = OK + b"content-length: 5\r\n\r\nhello"
CHUNK = OK + b"transfer-encoding: chunked\r\n\r\n1\r\nx\r\n"


def get(server: ScriptedServer, *, content: bytes = b"", **timeouts: float) -> Http1Request:
    limits = {"connect": TIMEOUT_S, "read": TIMEOUT_S, "write": TIMEOUT_S} | timeouts
    return request_to(server.url, content, **limits)


async def opened(transport: Http1Transport, request: Http1Request) -> ResponseBody:
    *_, body = await transport.send(request)
    return body


async def test_requests_and_reuse(certificate: Certificate) -> None:
    alpn = certificate.server()
    alpn.set_alpn_protocols(["h2", "http/1.1"])
    chosen: list[str | None] = []

    async def script(peer: Peer) -> None:
        chosen.append(peer.stream.extra(anyio.streams.tls.TLSAttribute.alpn_protocol))
        await answering(HELLO, times=2)(peer)

    async with (
        ScriptedServer(script, tls=alpn) as server,
        aclosing(Http1Transport(tls=certificate.client())) as transport,
    ):
        for _ in range(2):
            body = await opened(transport, get(server))
            assert await body.receive() == b"hello"
            assert await body.receive() == b""
        assert len(server.peers) == 1
        assert chosen == ["http/1.1"]
        assert (transport.pool.busy, transport.pool.idle) == (0, 1)


@pytest.mark.all_combinations
@pytest.mark.parametrize("tls", [False, True])
async def test_a_connection_is_used_again_after_a_prompt_of_an_agent(
    certificate: Certificate, tls: bool
) -> None:
    """The response to what the kernel takes immediately does not come before the request is sent."""
    script = answering(HELLO, times=3)
    async with (
        ScriptedServer(script, tls=certificate.server() if tls else None) as server,
        aclosing(Http1Transport(tls=certificate.client())) as transport,
    ):
        for content in (b"{}", b"q" * 100_000, b"q" * 100_000):
            body = await opened(transport, get(server, content=content))
            assert await body.receive() == b"hello"
        assert [request.count(b"q") for request in server.peers[0].requests][1:] == [100_000, 100_000]


REFUSAL = b"HTTP/1.1 413 Too Large\r\ncontent-length: 2\r\n\r\n"
LARGE = b"q" * 20_000_000


async def test_a_refusal_ends_the_sending_of_its_request(certificate: Certificate) -> None:
    noticed = anyio.Event()

    async def refuses(peer: Peer) -> None:
        await peer.stream.receive()
        await peer.send(REFUSAL)
        await noticed.wait()
        await peer.send(b"no")
        await anyio.sleep_forever()

    async with (
        ScriptedServer(refuses, tls=certificate.server()) as server,
        aclosing(Http1Transport(tls=certificate.client())) as transport,
    ):
        status, _, body = await transport.send(get(server, content=LARGE))
        noticed.set()
        assert (status, await body.receive()) == (413, b"no")
        assert (transport.pool.busy, transport.pool.idle) == (0, 0)


@pytest.mark.all_combinations
@pytest.mark.parametrize("tls", [False, True])
async def test_a_refusal_is_read_after_a_write_has_failed(certificate: Certificate, tls: bool) -> None:
    """The server closes with a reset, because it has not read all, and the event loop does not know of it yet."""
    sent = threading.Event()

    def refuse() -> None:
        connection, _ = listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with certificate.server().wrap_socket(connection, server_side=True) if tls else connection as peer:
            peer.recv(1)
            assert sent.wait(TIMEOUT_S)
            peer.sendall(REFUSAL)

    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor() as threads:
        refused = threads.submit(refuse)
        connected = await connect(*listener.getsockname())
        stream = await open_byte_stream(connected, certificate.client() if tls else None, "127.0.0.1")
        for _ in range(2):
            await stream.send_all(b"POST", TIMEOUT_S)
        sent.set()
        refused.result(TIMEOUT_S)  # holds the loop
        with pytest.raises(OSError, match=r".+"):
            await stream.send_all(LARGE, TIMEOUT_S)
        assert await stream.receive(TIMEOUT_S) == REFUSAL
        with pytest.raises(OSError, match=r".+"):
            await stream.send_all(LARGE, TIMEOUT_S)
        stream.abort()
        await anyio.lowlevel.cancel_shielded_checkpoint()


@one_backend
@pytest.mark.parametrize("variable", ["", "SSL_CERT_FILE", "SSL_CERT_DIR"])
async def test_the_trust_is_that_of_httpx2(
    certificate: Certificate, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    monkeypatch.delenv("SSL_CERT_DIR", raising=False)
    if variable:
        path = certificate.cert if variable == "SSL_CERT_FILE" else certificate.cert.parent
        monkeypatch.setenv(variable, str(path))
    ours, theirs = trusting_context(), httpx2.create_ssl_context()
    assert ours.cert_store_stats() == theirs.cert_store_stats()
    assert ours.get_ca_certs(binary_form=True) == theirs.get_ca_certs(binary_form=True)
    for setting in ("verify_mode", "check_hostname", "verify_flags", "options", "minimum_version"):
        assert getattr(ours, setting) == getattr(theirs, setting), setting


def test_the_trust_needs_no_other_event_loop() -> None:
    """httpx2 would import trio, which takes longer than reading the certificates."""
    script = (
        "import sys; from dragoman_server.upstream.transport import trusting_context; trusting_context();"
        "print([name for name in ('trio', 'httpcore2') if name in sys.modules])"
    )
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    if Path(ssl.get_default_verify_paths().openssl_cafile).is_file():
        assert loaded.strip() == "[]"


async def test_a_server_without_tls() -> None:
    async def plain(peer: Peer) -> None:
        await peer.stream.receive()
        await peer.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    async with ScriptedServer(plain) as server, aclosing(Http1Transport()) as transport:
        request = request_to(f"https://127.0.0.1:{server.port}/")
        match = "cannot connect to https://"
        with anyio.fail_after(TIMEOUT_S), pytest.raises(UpstreamUnreachable, match=match):
            await transport.send(request)
        assert transport.pool.busy == 0


async def test_an_end_inside_the_body(certificate: Certificate) -> None:
    async def script(peer: Peer) -> None:
        await peer.respond(CHUNK)

    async with (
        ScriptedServer(script, tls=certificate.server()) as server,
        aclosing(Http1Transport(tls=certificate.client())) as transport,
    ):
        body = await opened(transport, get(server))
        assert await body.receive() == b"x"
        with pytest.raises(UpstreamBroken, match="ended without the last chunk"):
            await body.receive()


async def test_a_connection_that_the_server_closed_while_idle(certificate: Certificate) -> None:
    closed = anyio.Event()

    async def once(peer: Peer) -> None:
        await peer.respond(HELLO)
        await peer.stream.aclose()
        closed.set()

    async with (
        ScriptedServer(once, answering(HELLO), tls=certificate.server()) as server,
        aclosing(Http1Transport(tls=certificate.client())) as transport,
    ):
        body = await opened(transport, get(server))
        assert await body.receive() == b"hello"
        await closed.wait()
        await anyio.wait_all_tasks_blocked()
        try:
            body = await opened(transport, get(server))
        except UpstreamIdleClosed:
            # uvloop reports the end one turn later: then it is the race after which a request may be repeated.
            body = await opened(transport, get(server))
        assert await body.receive() == b"hello"
        assert len(server.peers) == 2


async def test_an_untrusted_certificate(certificate: Certificate) -> None:
    async with (
        ScriptedServer(answering(HELLO), tls=certificate.server()) as server,
        aclosing(Http1Transport(tls=ssl.create_default_context())) as transport,
    ):
        with pytest.raises(UpstreamUnreachable, match="certificate verify failed"):
            await opened(transport, get(server))
        assert (transport.pool.busy, transport.pool.idle) == (0, 0)
