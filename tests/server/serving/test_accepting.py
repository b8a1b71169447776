"""Accepting in this process, on real sockets: handshakes, and connections beyond the limit."""

import errno
import socket
import ssl
import struct
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import anyio
import anyio.abc
import pytest
from http_certificate import Certificate
from starlette.types import Receive, Scope, Send
from virtual_time import REAL_BACKENDS, UVLOOP

from dragoman_server.serving import server as server_module
from dragoman_server.serving.connection import WorkerContext
from dragoman_server.serving.server import serve_connections
from dragoman_server.settings import ServerSettings
from dragoman_server.streams.connect import open_byte_stream

pytestmark = [pytest.mark.anyio, pytest.mark.backends(*REAL_BACKENDS, UVLOOP)]

GET = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n"


async def hello(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"5")]})
    await send({"type": "http.response.body", "body": b"hello"})


class Listener:
    """A listening socket whose first accepts fail, but for those with the error 0."""

    def __init__(self, sock: socket.socket, *errors: int) -> None:
        self._socket = sock
        self._errors = list(errors)

    def accept(self) -> Any:
        if self._errors and (number := self._errors.pop(0)):
            raise OSError(number, errno.errorcode[number])
        return self._socket.accept()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._socket, name)


@asynccontextmanager
async def serving(
    *errors: int, tls: ssl.SSLContext | None = None, handshake_s: float = 10, max_connections: int = 0
) -> AsyncIterator[tuple[str, int]]:
    worker = WorkerContext(hello, ServerSettings(max_connections=max_connections), {}, tls)
    stopping, ready = anyio.Event(), anyio.Event()
    with socket.create_server(("127.0.0.1", 0)) as sock:
        sock.setblocking(False)
        listener: Any = Listener(sock, *errors) if errors else sock
        with anyio.fail_after(50):
            async with anyio.create_task_group() as tasks:

                async def serve() -> None:
                    await serve_connections(
                        worker, listener, handshake_s=handshake_s, on_ready=ready.set, stopping=stopping
                    )

                tasks.start_soon(serve)
                await ready.wait()
                yield sock.getsockname()
                stopping.set()
        assert not worker.connections


async def get(address: tuple[str, int], tls: ssl.SSLContext | None = None) -> bytes:
    async with await anyio.connect_tcp(*address, ssl_context=tls, tls_standard_compatible=False) as stream:
        await stream.send(GET)
        got = b""
        while b"hello" not in got:
            got += await stream.receive()
        return got


@pytest.mark.promise("S10")
async def test_a_handshake_has_its_time(certificate: Certificate) -> None:
    async with (
        serving(tls=certificate.server(), handshake_s=0.1) as address,
        await anyio.connect_tcp(*address) as silent,
    ):
        with pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
            await silent.receive()


async def test_a_stop_does_not_wait_for_a_handshake(certificate: Certificate) -> None:
    with anyio.fail_after(30):
        async with serving(tls=certificate.server(), handshake_s=60) as address:
            silent = await anyio.connect_tcp(*address)
            await anyio.wait_all_tasks_blocked()
        await silent.aclose()


async def test_at_the_limit_no_connection_is_closed_before_another_one_comes() -> None:
    async with serving(max_connections=2) as address:
        clients = [await anyio.connect_tcp(*address) for _ in range(2)]
        for client in [*clients, *clients]:
            await client.send(GET)
            assert (await client.receive()).startswith(b"HTTP/1.1 200")
        for client in clients:
            await client.aclose()


@pytest.mark.promise("S10")
async def test_a_new_connection_is_not_closed_for_another_one_before_its_request_can_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("dragoman_server.serving.connection.FIRST_BYTES_S", 1.5)  # on a slow machine too
    async with (
        serving(max_connections=1) as address,
        await anyio.connect_tcp(*address) as first,
        await anyio.connect_tcp(*address) as second,
    ):
        await second.send(GET)
        await anyio.sleep(0.05)  # the network's
        await first.send(GET)
        for client in (first, second):
            assert (await client.receive()).startswith(b"HTTP/1.1 200")


@pytest.mark.promise("S10")
@pytest.mark.parametrize("with_tls", [False, True])
async def test_clients_that_only_connect_block_no_other(certificate: Certificate, with_tls: bool) -> None:
    server, client = (certificate.server(), certificate.client()) if with_tls else (None, None)
    async with AsyncExitStack() as stack:
        address = await stack.enter_async_context(serving(tls=server, handshake_s=60, max_connections=2))
        for _ in range(12):  # they send nothing, and do not close when the server does
            await stack.enter_async_context(await anyio.connect_tcp(*address))
        with anyio.fail_after(30):  # half of the time that a handshake may take
            assert (await get(address, client)).endswith(b"hello")


@pytest.mark.promise("S10", "S12")
async def test_an_error_of_accept_is_one_line_and_a_pause(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(server_module, "_PAUSE_S", 0.05)
    async with serving(errno.ECONNABORTED, errno.EMFILE, errno.ENFILE) as address:
        started = anyio.current_time()
        assert (await get(address)).endswith(b"hello")
        assert anyio.current_time() - started >= 0.1
    assert [each.message for each in caplog.records] == ["cannot accept connections for now: EMFILE"]


@pytest.mark.promise("S10", "S12")
@pytest.mark.parametrize(
    ("quiet_s", "lines"), [(10.0, 1), (0.0, 2)], ids=["comes and goes", "comes back later"]
)
async def test_a_shortage_is_one_line_until_it_has_been_over_for_a_while(
    quiet_s: float, lines: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(server_module, "_PAUSE_S", 0.01)
    monkeypatch.setattr(server_module, "_SHORTAGE_S", quiet_s)
    async with serving(errno.EMFILE, 0, errno.EAGAIN, errno.EMFILE) as address:
        for _ in range(2):
            assert (await get(address)).endswith(b"hello")
    assert len(caplog.records) == lines


@pytest.mark.promise("R2")
async def test_the_end_of_a_connection_that_the_client_has_just_reset_raises_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname())
        accepted, _ = listener.accept()
    accepted.setblocking(False)
    stream = await open_byte_stream(accepted)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()
    await stream.end(5)  # before the loop has seen it
