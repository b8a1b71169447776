"""A byte stream on trio: a non-blocking socket and trio's readiness calls; with TLS, trio's SSLStream.

It waits first and reads afterwards: tokens come slowly, so an attempt before the wait would in most cases be a wasted
system call.
"""

import contextlib
import errno
import math
import os
import socket
import ssl

import trio

from dragoman_server.streams.byte_stream import SocketLike

# The most bytes of one read: each step of a response's way to a slow client holds that much.
READ_SIZE = 64 * 1024


class TrioStream:
    """See `ByteStream`."""

    __slots__ = ("_closed", "_socket")

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._closed = False

    @classmethod
    async def connect(cls, family: socket.AddressFamily, address: str, port: int) -> "TrioStream":
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            await trio.lowlevel.checkpoint()
            failure = sock.connect_ex((address, port))
            if failure in (errno.EINPROGRESS, errno.EWOULDBLOCK):
                await trio.lowlevel.wait_writable(sock)
                failure = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if failure:
                raise OSError(failure, os.strerror(failure))
        except BaseException:
            sock.close()
            raise
        return cls(sock)

    @classmethod
    async def accept(
        cls, accepted: socket.socket, tls: ssl.SSLContext | None
    ) -> "TrioStream | TrioTlsStream":
        """Wrap an accepted socket. Raises OSError when the handshake fails."""
        if tls is None:
            return cls(accepted)
        stream = TrioTlsStream(accepted, tls)
        try:
            await stream.handshake()
        except BaseException:
            stream.abort()
            raise
        return stream

    async def start_tls(self, tls: ssl.SSLContext, server_hostname: str) -> "TrioTlsStream":
        stream = TrioTlsStream(self._socket, tls, server_hostname)
        await stream.handshake()
        return stream

    async def receive(self, timeout: float | None) -> bytes:
        self._check_open()
        try:
            if timeout is None:
                await trio.lowlevel.wait_readable(self._socket)
            else:
                with trio.move_on_after(timeout) as scope:
                    await trio.lowlevel.wait_readable(self._socket)
                if scope.cancelled_caught:
                    raise TimeoutError("nothing was received in time")
            while True:
                try:
                    return self._socket.recv(READ_SIZE)
                except BlockingIOError:  # a spurious wake-up
                    await trio.lowlevel.wait_readable(self._socket)
        except trio.ClosedResourceError:
            raise ConnectionAbortedError("closed by the gateway") from None

    def send_now(self, data: bytes) -> bytes | memoryview | None:
        self._check_open()
        try:
            sent = self._socket.send(data)
        except BlockingIOError:
            return data
        return None if sent == len(data) else memoryview(data)[sent:]

    async def send_all(self, data: bytes | memoryview, timeout: float | None) -> None:
        self._check_open()
        with trio.move_on_after(timeout if timeout is not None else math.inf) as scope:
            await self._send_all(memoryview(data))
        if scope.cancelled_caught:
            raise TimeoutError("the peer did not read the data in time")

    async def _send_all(self, rest: memoryview) -> None:
        try:
            while rest:
                try:
                    rest = rest[self._socket.send(rest) :]
                except BlockingIOError:
                    await trio.lowlevel.wait_writable(self._socket)
        except trio.ClosedResourceError:
            raise ConnectionAbortedError("closed by the gateway") from None

    def _check_open(self) -> None:
        if self._closed:
            raise ConnectionAbortedError("closed by the gateway")

    def is_reusable(self) -> bool:
        return not self._closed and is_silent(self._socket)

    async def end(self, linger: float) -> None:
        with trio.move_on_after(linger), contextlib.suppress(OSError):
            self._check_open()
            self._socket.shutdown(socket.SHUT_WR)
            while await self.receive(None):
                pass
        self.abort()

    def abort(self) -> None:
        if not self._closed:
            self._closed = True
            trio.lowlevel.notify_closing(self._socket)
            self._socket.close()

    def alpn_protocol(self) -> str | None:
        return None

    def raw_socket(self) -> SocketLike:
        return self._socket


class TrioTlsStream:
    """See `ByteStream`. It owns a connected socket; call handshake() first.

    server_hostname: None on the server's side.
    """

    __slots__ = ("_socket", "_tls", "_wrapped")

    def __init__(
        self, connected: socket.socket, tls: ssl.SSLContext, server_hostname: str | None = None
    ) -> None:
        self._socket = connected
        self._wrapped = trio.socket.from_stdlib_socket(connected)
        # https_compatible, because most servers close the socket without close_notify.
        self._tls = trio.SSLStream(
            trio.SocketStream(self._wrapped),
            tls,
            server_hostname=server_hostname,
            server_side=server_hostname is None,
            https_compatible=True,
        )

    async def handshake(self) -> None:
        try:
            await self._tls.do_handshake()
        except trio.BrokenResourceError as error:
            raise _reason(error) from None

    async def receive(self, timeout: float | None) -> bytes:
        try:
            with trio.move_on_after(timeout if timeout is not None else math.inf):
                return bytes(await self._tls.receive_some(READ_SIZE))
        except trio.BrokenResourceError as error:
            raise _reason(error) from None
        except trio.ClosedResourceError:
            raise ConnectionAbortedError("closed by the gateway") from None
        raise TimeoutError("nothing was received in time")

    def send_now(self, data: bytes) -> bytes:
        return data

    async def send_all(self, data: bytes | memoryview, timeout: float | None) -> None:
        try:
            with trio.move_on_after(timeout if timeout is not None else math.inf):
                await self._tls.send_all(data)
                return
        except trio.BrokenResourceError as error:
            raise _reason(error) from None
        except trio.ClosedResourceError:
            raise ConnectionAbortedError("closed by the gateway") from None
        raise TimeoutError("the peer did not read the data in time")

    def is_reusable(self) -> bool:
        return self._socket.fileno() >= 0 and is_silent(self._socket)

    async def end(self, linger: float) -> None:
        # Send close_notify; then read the peer's, or whatever it still sends, encrypted or not.
        with trio.move_on_after(linger), contextlib.suppress(OSError, trio.BusyResourceError):
            with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                await self._tls.unwrap()
            while await self._wrapped.recv(READ_SIZE):
                pass
        self.abort()

    def alpn_protocol(self) -> str | None:
        name: str | None = self._tls.selected_alpn_protocol()
        return name

    def abort(self) -> None:
        self._wrapped.close()

    def raw_socket(self) -> SocketLike:
        return self._socket


def is_silent(sock: socket.socket) -> bool:
    """True if an idle socket has received neither data nor the end."""
    try:
        sock.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _reason(error: trio.BrokenResourceError) -> OSError:
    """Return the OSError (SSLError is one) that trio has wrapped, so that both event loops raise the same."""
    cause = error.__cause__
    return cause if isinstance(cause, OSError) else ConnectionResetError("the connection broke")
