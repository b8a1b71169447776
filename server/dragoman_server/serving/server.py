"""Accept connections and serve them, on all event loops alike. This replaces hypercorn's two `run.py`."""

import logging
import socket
import ssl
from collections.abc import Callable
from functools import lru_cache

import anyio
import anyio.abc

from dragoman_server.serving.connection import (
    FIRST_BYTES_S,
    Address,
    Connection,
    HTTPProtocol,
    WorkerContext,
    log_internal_error,
)
from dragoman_server.serving.file_limit import default_max_connections
from dragoman_server.serving.http1 import HTTP1
from dragoman_server.streams.byte_stream import ByteStream
from dragoman_server.streams.connect import EXHAUSTED, open_byte_stream

# The first bytes of an HTTP/2 client (RFC 9113, 3.4).
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

# Connections accepted before other tasks run again.
_BATCH = 64

# Seconds to wait after an error that the next accept() would repeat.
_PAUSE_S = 1.0

# Seconds without a shortage, of descriptors or within max_connections, after which the next one is logged again. One
# that lasts comes and goes with each connection that ends.
_SHORTAGE_S = 10.0

_log = logging.getLogger("dragoman.http")


async def serve_connections(
    worker: WorkerContext,
    listener: socket.socket,
    *,
    handshake_s: float,
    on_ready: Callable[[], None],
    stopping: anyio.Event,
) -> None:
    """Serve until `stopping` is set and all connections have ended. The caller bounds how long that may take."""
    server = _Server(worker, listener, handshake_s)
    async with anyio.create_task_group() as server.tasks:
        async with anyio.create_task_group() as accepting:
            accepting.start_soon(server.accept)
            on_ready()
            await stopping.wait()
            accepting.cancel_scope.cancel()
        listener.close()
        worker.terminated.set()
        for scope in tuple(server.handshakes):
            scope.cancel()
        for connection in tuple(worker.connections):
            server.tasks.start_soon(connection.stop)


class _Server:
    def __init__(self, worker: WorkerContext, listener: socket.socket, handshake_s: float) -> None:
        self._worker = worker
        self._listener = listener
        self._handshake_s = handshake_s
        self._default_max_connections = default_max_connections()
        self._count = 0
        self._one_ended = anyio.Event()
        self._logged_until: dict[str, float] = {}  # of each kind of shortage
        self.tasks: anyio.abc.TaskGroup
        self.handshakes: set[anyio.CancelScope] = set()

    @property
    def _max_connections(self) -> int:
        return self._worker.settings.max_connections or self._default_max_connections

    async def accept(self) -> None:
        while True:
            await anyio.wait_readable(self._listener)
            # A client is waiting now, so no connection is closed without need.
            if self._count >= self._max_connections:
                await self._make_room()
            for _ in range(min(_BATCH, self._max_connections - self._count)):
                try:
                    sock, _ = self._listener.accept()
                except BlockingIOError:
                    break
                except OSError as error:
                    if error.errno in EXHAUSTED:
                        # hypercorn 0.18 leaves this to asyncio, which writes a traceback for each try.
                        self._log_shortage("cannot accept connections for now: %s", error.strerror)
                        await self._end_idle_connection()
                    continue  # the client was gone before it was accepted
                sock.setblocking(False)
                self._count += 1
                self.tasks.start_soon(self._serve, sock, name="connection")

    async def _make_room(self) -> None:
        """Wait until fewer connections are open than the limit.

        The connection or handshake that has been idle longest is closed. If none is idle, clients wait in the
        listener's backlog instead of getting an error; another worker may accept them.
        """
        default = "" if self._worker.settings.max_connections else "; its default follows from ulimit -n"
        self._log_shortage("max_connections is reached: %d connections are open%s", self._count, default)
        while self._count >= self._max_connections:
            await self._end_idle_connection()

    def _log_shortage(self, text: str, *values: object) -> None:
        """Log it if it has not been noticed for a while."""
        now = self._worker.time()
        if now >= self._logged_until.get(text, 0.0):
            _log.warning(text, *values)
        self._logged_until[text] = now + _SHORTAGE_S

    async def _end_idle_connection(self) -> None:
        """End the connection or handshake that has been idle longest, if any, and wait for it, at most _PAUSE_S."""
        wait_s = _PAUSE_S
        if (idle := next(iter(self._worker.idle), None)) is not None:
            closable_at, close = self._worker.idle[idle]
            if (early_s := closable_at - self._worker.time()) > 0:
                wait_s = early_s
            else:
                del self._worker.idle[idle]
                close()
        self._one_ended = anyio.Event()
        with anyio.move_on_after(wait_s):
            await self._one_ended.wait()

    async def _serve(self, sock: socket.socket) -> None:
        try:
            client, server = _address(sock.getpeername()), _own_address(sock.getsockname())
            tls = self._worker.tls
            stream = await self._handshake(sock, tls)
        except OSError:
            # The client left before its address was known, or the handshake failed, which TLS reports to the client.
            sock.close()
        except Exception as error:
            log_internal_error(error)
            sock.close()
        else:
            if stream is not None:
                connection = Connection(
                    self._worker, stream, client, server, protocol_for, tls=tls is not None
                )
                await connection.run()
        finally:
            self._count -= 1
            self._one_ended.set()

    async def _handshake(self, sock: socket.socket, tls: ssl.SSLContext | None) -> ByteStream | None:
        """Return None if it took too long or the worker is being stopped."""
        if tls is None:
            return await open_byte_stream(sock)  # a turn of the event loop at most
        with anyio.move_on_after(self._handshake_s) as scope:
            self.handshakes.add(scope)
            self._worker.idle[scope] = self._worker.time() + FIRST_BYTES_S, scope.cancel
            try:
                return await open_byte_stream(sock, tls)
            finally:
                self.handshakes.discard(scope)
                self._worker.idle.pop(scope, None)
        return None


def protocol_for(connection: Connection, first: bytes) -> HTTPProtocol | None:
    """Return the protocol of a connection by its first bytes, None while more of them are needed."""
    if connection.stream.alpn_protocol() != "h2":
        if connection.tls or not connection.settings.http2:
            return HTTP1(connection)
        # Clear text: HTTP/2 with prior knowledge (RFC 9113, 3.3), as proxies use it to their backends.
        if not first.startswith(_PREFACE):
            return None if _PREFACE.startswith(first) else HTTP1(connection)
    # Its import takes as long as ten requests, and most servers have no such client. With TLS it is imported before.
    from dragoman_server.serving.http2 import HTTP2

    return HTTP2(connection)


def _address(name: object) -> Address | None:
    return (str(name[0]), int(name[1])) if isinstance(name, tuple) else None


_own_address = lru_cache(maxsize=64)(_address)  # of many connections
