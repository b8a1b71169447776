"""A byte stream on asyncio or uvloop: the loop's protocol callbacks, a bounded buffer, one future.

The socket stays readable and is paused only if the consumer falls behind, so a read costs one callback and one wake-up.
Timeouts cost nothing while data flows: instead of one timer for each read, one timer for the stream checks the deadline
of the current wait when it fires.
"""

import asyncio
import contextlib
import math
import socket
import ssl
from collections.abc import Awaitable
from copy import copy
from typing import cast

import anyio

from dragoman_server.platform.clock import event_loop_clock
from dragoman_server.platform.timers import Timer, event_loop_timers
from dragoman_server.streams.byte_stream import Take
from dragoman_server.streams.peer_end import reset_when_closed, wait_for_peer_end

# Bytes that may wait for a slow consumer before the socket is paused; then the kernel's window fills up. One read of
# the loop comes on top, of 256 KiB at most.
HIGH_WATER = 64 * 1024
# The most bytes that receive() returns: each step of a response's way to a slow client holds that much.
READ_SIZE = 64 * 1024
# Bytes passed to the loop in one write.
WRITE_SIZE = 128 * 1024


class AsyncioStream(asyncio.Protocol):
    """See `ByteStream`."""

    __slots__ = (
        *("_buffer", "_buffered", "_call_at", "_deadline", "_eof", "_error", "_interrupted", "_loop"),
        *("_lost", "_may_half_close", "_paused", "_reader", "_socket", "_take", "_take_timeout"),
        *("_time", "_timer", "_timer_at", "_transport", "_writable"),
    )

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._loop = asyncio.get_running_loop()
        self._time, self._call_at = event_loop_clock(), event_loop_timers()
        self._transport: asyncio.Transport  # from connection_made() on, before open() returns
        self._buffer: list[bytes] = []
        self._buffered = 0
        self._paused = False
        self._eof = False
        self._lost = False
        self._error: Exception | None = None
        self._reader: asyncio.Future[None] | None = None
        self._interrupted = False  # the next reader is
        self._take: Take | None = None
        self._take_timeout: float | None = None
        self._deadline = math.inf
        self._timer: Timer | None = None
        self._timer_at = 0.0
        self._writable: asyncio.Event | None = None  # only while the loop's buffer is full
        self._may_half_close = False  # the peer's end does not end the transport

    @classmethod
    async def open(
        cls, connected: socket.socket, tls: ssl.SSLContext | None, server_hostname: str | None
    ) -> "AsyncioStream":
        """See open_byte_stream()."""
        loop, stream = asyncio.get_running_loop(), cls(connected)
        stream._may_half_close = tls is None and server_hostname is None
        # On uvloop with TLS, connect_accepted_socket() does not return the stream itself.
        if tls is None or server_hostname is None:
            await loop.connect_accepted_socket(lambda: stream, connected, ssl=tls)
        else:
            await loop.create_connection(
                lambda: stream, sock=connected, ssl=tls, server_hostname=server_hostname
            )
        return stream

    async def receive(self, timeout: float | None) -> bytes:
        # A few calls take everything that is buffered, and the next one waits, so no checkpoint is needed.
        if not self._buffer:
            if not self._eof:
                await self._wait(timeout)
            if not self._buffer:
                if isinstance(self._error, OSError):
                    # A copy, because the traceback of the raised exception refers to all callers, and so to this
                    # stream.
                    raise copy(self._error)
                if self._error is not None:
                    raise ConnectionResetError(f"the connection broke: {self._error}")
                return b""
        data = self._buffer[0] if len(self._buffer) == 1 else b"".join(self._buffer)
        self._buffer.clear()
        if self._buffered > READ_SIZE:
            self._buffer.append(data[READ_SIZE:])
            self._buffered -= READ_SIZE
            return data[:READ_SIZE]
        self._buffered = 0
        if self._paused:
            self._paused = False
            if not self._lost:
                self._open_transport().resume_reading()
        return data

    def receive_each(self, take: Take, timeout: float | None) -> Awaitable[None]:
        # The future itself: a coroutine around it takes a quarter of a KiB, in each open stream twice.
        if self._buffer or self._eof:  # for receive()
            at_once: asyncio.Future[None] = asyncio.Future(loop=self._loop)
            at_once.set_result(None)
            return at_once
        return self._wait(timeout, take)

    def interrupt(self) -> None:
        self._interrupted = self._reader is None or self._reader.done()
        self._wake(InterruptedError())

    async def peer_ended(self) -> None:
        await wait_for_peer_end(self._socket)

    def send_now(self, data: bytes) -> bytes | None:
        if self._lost:
            raise BrokenPipeError("the connection is closed")
        self._transport.write(data)  # which drops them if it is closing
        return None if self._writable is None else b""

    async def send_all(self, data: bytes | memoryview, timeout: float | None) -> None:
        # In pieces, because TLS on asyncio passes all of one write to the socket's buffer, however large, and reports a
        # full buffer only at the write after it.
        rest = memoryview(data)
        while rest or self._writable is not None:
            if rest:
                if len(data) > READ_SIZE:
                    await self._read_first()
                self._open_transport().write(rest[:WRITE_SIZE])
                rest = rest[WRITE_SIZE:]
            if self._writable is not None:
                with anyio.fail_after(timeout):
                    await self._writable.wait()
        if self._lost:
            raise BrokenPipeError("the connection was closed while sending")

    async def _read_first(self) -> None:
        """Let the loop read what has arrived, as the refusal of a request: a write that fails drops it."""
        try:
            self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return
        for _ in range(2):  # in one turn of the loop, tasks come before what it reads
            await asyncio.sleep(0)

    def is_reusable(self) -> bool:
        return not (self._eof or self._buffer)

    async def end(self, linger: float) -> None:
        self._interrupted = False
        with anyio.move_on_after(linger), contextlib.suppress(OSError):
            transport = self._open_transport()
            if transport.can_write_eof():
                transport.write_eof()  # fails if the peer has reset the connection and the loop has not noticed
            else:
                transport.close()  # TLS: sends written bytes and close_notify, then waits for the peer's close_notify
            while await self.receive(None):
                pass
        self.abort()

    def drop_unsent(self) -> None:
        reset_when_closed(self._socket)

    def abort(self) -> None:
        # A transport that is lost may raise: CPython 3.11.7 selector_events.py:891, after an EOF during a write.
        if not self._lost:
            self._transport.abort()
            # A reader in another task must not take this for the end of the body.
            self._error = ConnectionAbortedError("closed by the gateway")
        self._eof, self._take = True, None

    def alpn_protocol(self) -> str | None:
        tls = self._transport.get_extra_info("ssl_object")  # also if the peer has left meanwhile
        return None if tls is None else cast("ssl.SSLObject", tls).selected_alpn_protocol()

    # Called by the loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        # A write is complete when the kernel has all of it, so that a write timeout is one of the peer. Not zero:
        # asyncio's TLS transport then pauses with nothing left to send, and never resumes.
        self._transport.set_write_buffer_limits(high=1)

    def data_received(self, data: bytes) -> None:
        take, reader = self._take, self._reader
        # A reader that is cancelled takes nothing any more.
        if take is not None and reader is not None and not reader.done():
            if self._take_timeout is not None:
                self._deadline = self._time() + self._take_timeout
            try:
                if take(data):
                    return
            except BaseException as error:
                self._wake(error)
            self._wake()
            return
        self._buffer.append(data)
        self._buffered += len(data)
        if self._buffered > HIGH_WATER and not self._paused:
            self._transport.pause_reading()
            self._paused = True
        self._wake()

    def eof_received(self) -> bool:
        self._eof = True
        self._wake()
        return self._may_half_close  # false: the transport closes itself

    def connection_lost(self, exc: Exception | None) -> None:
        self._eof = self._lost = True
        if exc is not None and self._error is None:
            self._error = exc.with_traceback(None)  # whose frames may have this stream: a reference cycle
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.resume_writing()
        self._wake()

    def pause_writing(self) -> None:
        self._writable = asyncio.Event()

    def resume_writing(self) -> None:
        if self._writable is not None:
            self._writable.set()
            self._writable = None

    # Waiting.

    def _wait(self, timeout: float | None, take: Take | None = None) -> asyncio.Future[None]:
        """Return the future that _wake() ends, to be awaited immediately. take: gets what arrives until then."""
        if self._reader is not None and not self._reader.done():
            raise RuntimeError("another task is reading this stream")
        interrupted, self._interrupted = self._interrupted, False
        if interrupted:
            raise InterruptedError
        self._deadline = math.inf if timeout is None else self._time() + timeout
        if timeout is not None and (self._timer is None or self._deadline < self._timer_at):
            self._arm()
        self._take, self._take_timeout = take, timeout
        self._reader = asyncio.Future(loop=self._loop)
        return self._reader

    def _wake(self, error: BaseException | None = None) -> None:
        # The stream must not keep it: the traceback of its exception refers to the stream.
        reader, self._reader, self._take = self._reader, None, None
        if reader is None or reader.done():
            return
        if error is None:
            reader.set_result(None)
        else:
            reader.set_exception(error)

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_at = self._call_at(self._deadline, self._check_deadline), self._deadline

    def _check_deadline(self) -> None:
        self._timer = None
        if self._reader is None or self._reader.done() or self._deadline == math.inf:
            return  # no task waits; the next wait arms the timer again
        if self._time() < self._deadline:
            self._arm()
        else:
            self._wake(TimeoutError("nothing was received in time"))

    def _open_transport(self) -> asyncio.Transport:
        if self._lost or self._transport.is_closing():
            raise BrokenPipeError("the connection is closed")
        return self._transport
