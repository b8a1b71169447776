"""A byte stream on trio: a non-blocking socket and trio's readiness calls; with TLS, trio's SSLStream.

It waits first and reads afterwards: tokens come slowly, so an attempt before the wait would in most cases be a wasted
system call.
"""

import contextlib
import math
import socket
import ssl
from collections.abc import Iterator
from typing import Any, cast

import trio

from dragoman_server.streams.byte_stream import Take

# The most bytes of one read: each step of a response's way to a slow client holds that much.
READ_SIZE = 64 * 1024


class TrioStream:
    """See `ByteStream`. It owns a connected socket that does not block."""

    __slots__ = ("_socket",)

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected

    @staticmethod
    async def open(
        connected: socket.socket, tls: ssl.SSLContext | None, server_hostname: str | None
    ) -> "TrioStream":
        """See open_byte_stream()."""
        if tls is None:
            return TrioStream(connected)
        stream = _TrioTlsStream(connected, tls, server_hostname)
        await stream.handshake()
        return stream

    async def receive(self, timeout: float | None) -> bytes:
        self._check_open()
        try:
            while True:
                with trio.move_on_after(math.inf if timeout is None else timeout) as scope:
                    await trio.lowlevel.wait_readable(self._socket)
                if scope.cancelled_caught:
                    raise TimeoutError("nothing was received in time")
                try:
                    return self._socket.recv(READ_SIZE)
                except BlockingIOError:  # a spurious wake-up
                    pass
        except trio.ClosedResourceError:
            raise ConnectionAbortedError("closed by the gateway") from None

    async def receive_each(self, take: Take, timeout: float | None) -> None:
        self._check_open()
        seconds = math.inf if timeout is None else timeout
        last = trio.current_time()
        try:
            # A new scope only when its time has come, because moving a deadline costs as much as a read.
            while trio.current_time() < last + seconds:
                with trio.CancelScope(deadline=last + seconds):
                    while True:
                        await trio.lowlevel.wait_readable(self._socket)
                        try:
                            data = self._socket.recv(READ_SIZE)
                        except BlockingIOError:  # a spurious wake-up
                            continue
                        last = trio.current_time()
                        if not data or not take(data):
                            return
        except trio.ClosedResourceError:
            raise ConnectionAbortedError("closed by the gateway") from None
        raise TimeoutError("nothing was received in time")

    def send_now(self, data: bytes) -> bytes | memoryview | None:
        self._check_open()
        try:
            sent = self._socket.send(data)
        except BlockingIOError:
            return data
        return None if sent == len(data) else memoryview(data)[sent:]

    async def send_all(self, data: bytes | memoryview, timeout: float | None) -> None:
        self._check_open()
        rest = memoryview(data)
        with _limits(timeout, "the peer did not read the data in time"):
            while rest:
                try:
                    rest = rest[self._socket.send(rest) :]
                except BlockingIOError:
                    await trio.lowlevel.wait_writable(self._socket)

    def _check_open(self) -> None:
        if self._socket.fileno() < 0:
            raise ConnectionAbortedError("closed by the gateway")

    def is_reusable(self) -> bool:
        try:
            self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    async def end(self, linger: float) -> None:
        with trio.move_on_after(linger), contextlib.suppress(OSError, trio.BusyResourceError):
            await self._send_end()
            # Whatever the peer still sends, encrypted or not.
            while await TrioStream.receive(self, None):
                pass
        self.abort()

    async def _send_end(self) -> None:
        self._socket.shutdown(socket.SHUT_WR)

    def abort(self) -> None:
        if self._socket.fileno() >= 0:
            trio.lowlevel.notify_closing(self._socket)
            self._socket.close()

    def alpn_protocol(self) -> str | None:
        return None


class _TrioTlsStream(TrioStream):
    """server_hostname: None on the server's side. Call handshake() first."""

    __slots__ = ("_context", "_tls")

    def __init__(self, connected: socket.socket, tls: ssl.SSLContext, server_hostname: str | None) -> None:
        super().__init__(connected)
        self._context = _Context(tls)
        # https_compatible, because most servers close the socket without close_notify.
        self._tls = trio.SSLStream(
            trio.SocketStream(trio.socket.from_stdlib_socket(connected)),
            cast(ssl.SSLContext, self._context),
            server_hostname=server_hostname,
            server_side=server_hostname is None,
            https_compatible=True,
        )

    async def handshake(self) -> None:
        with _limits(None):
            await self._tls.do_handshake()

    async def receive(self, timeout: float | None) -> bytes:
        with _limits(timeout, "nothing was received in time"):
            data = await self._tls.receive_some(READ_SIZE)
        return bytes(data)

    async def receive_each(self, take: Take, timeout: float | None) -> None:
        while (data := await self.receive(timeout)) and take(data):
            pass

    def send_now(self, data: bytes) -> bytes:
        return data

    async def send_all(self, data: bytes | memoryview, timeout: float | None) -> None:
        with _limits(timeout, "the peer did not read the data in time"):
            await self._tls.send_all(data)

    def is_reusable(self) -> bool:
        return not self._context.has_received() and super().is_reusable()

    async def _send_end(self) -> None:
        with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            await self._tls.unwrap()

    def alpn_protocol(self) -> str | None:
        name: str | None = self._tls.selected_alpn_protocol()
        return name


class _Context:
    """Makes the TLS object of one trio.SSLStream, which uses nothing else of a context, and knows what waits in it.

    A read returns one record. Records behind it wait here, where no look at the socket finds them.
    """

    def __init__(self, tls: ssl.SSLContext) -> None:
        self._tls = tls
        self._incoming: ssl.MemoryBIO
        self._object: ssl.SSLObject

    def wrap_bio(self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, **options: Any) -> ssl.SSLObject:
        self._incoming = incoming
        self._object = self._tls.wrap_bio(incoming, outgoing, **options)
        return self._object

    def has_received(self) -> bool:
        """True if there is something that nobody has read."""
        return bool(self._incoming.pending or self._object.pending())


@contextlib.contextmanager
def _limits(timeout: float | None, late: str = "") -> Iterator[None]:
    """Raise TimeoutError with the text `late`, and OSError for trio's exceptions, so that both event loops agree."""
    try:
        with trio.move_on_after(math.inf if timeout is None else timeout) as scope:
            yield
    except trio.BrokenResourceError as error:
        cause = error.__cause__  # an SSLError is an OSError too
        raise cause if isinstance(cause, OSError) else ConnectionResetError("the connection broke") from None
    except trio.ClosedResourceError:
        raise ConnectionAbortedError("closed by the gateway") from None
    if scope.cancelled_caught:
        raise TimeoutError(late)
