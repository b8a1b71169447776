"""A byte stream on trio: a non-blocking socket and trio's readiness calls; with TLS, the same with an SSLObject.

It waits first and reads afterwards: tokens come slowly, so an attempt before the wait would in most cases be a wasted
system call. For receive_each() no task waits (`trio_readers`), and a write waits only for the rest.
"""

import contextlib
import math
import socket
import ssl
from collections.abc import Awaitable, Callable
from typing import TypeVar, cast

import trio

from dragoman_server.platform.changes import Lock, TrioFuture
from dragoman_server.platform.clock import event_loop_clock
from dragoman_server.platform.timers import Timer, event_loop_timers
from dragoman_server.streams.byte_stream import Take
from dragoman_server.streams.peer_end import reset_when_closed, wait_for_peer_end
from dragoman_server.streams.trio_readers import TrioReaders, readers_of_loop

# The most bytes of one read: each step of a response's way to a slow client holds that much.
READ_SIZE = 64 * 1024

Result = TypeVar("Result")


class _Reader(TrioFuture):
    """A call of receive_each()."""

    __slots__ = ("_stream",)

    def __init__(self, stream: "TrioStream") -> None:
        super().__init__()
        self._stream = stream

    def cancelled(self, raise_cancel: object) -> trio.lowlevel.Abort:
        self._stream._stop_reading()
        super().cancelled(raise_cancel)
        return trio.lowlevel.Abort.SUCCEEDED


class TrioStream:
    """See `ByteStream`. It owns a connected socket that does not block."""

    __slots__ = (
        *("_call_at", "_deadline", "_interrupted", "_is_late", "_reader", "_readers", "_socket"),
        *("_take", "_take_timeout", "_time", "_timer", "_timer_at"),
    )

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._time, self._call_at = event_loop_clock(), event_loop_timers()
        self._deadline = math.inf  # of the current wait
        self._timer: Timer | None = None  # which checks it
        self._timer_at = math.inf
        self._is_late = self._interrupted = False
        self._reader: _Reader | None = None  # the task in receive_each()
        self._readers: TrioReaders | None = None  # what reads for it
        self._take: Take = bool  # which stands for none: nothing of a call stays
        self._take_timeout: float | None = None

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
        self._wait_within(timeout)
        try:
            while True:
                await trio.lowlevel.wait_readable(self._socket)
                try:
                    return self._socket.recv(READ_SIZE)
                except BlockingIOError:  # a spurious wake-up
                    pass
        except trio.ClosedResourceError:
            raise self._why_woken() from None
        finally:
            self._deadline = math.inf

    def receive_each(self, take: Take, timeout: float | None) -> Awaitable[None]:
        self._check_open()
        if self._reader is not None:
            raise RuntimeError("another task is reading this stream")
        self._wait_within(timeout)
        self._take, self._take_timeout = take, timeout
        self._reader, self._readers = reader, readers = _Reader(self), readers_of_loop()
        if readers is None:
            return self._read_alone(reader)
        readers.add(self._socket.fileno(), self._read_now)
        return reader

    async def _read_alone(self, reader: _Reader) -> None:
        try:
            while not reader.done():
                with contextlib.suppress(trio.ClosedResourceError):  # it has ended
                    await trio.lowlevel.wait_readable(self._socket)
                self._read_now()
        finally:
            self._stop_reading()
        await reader

    def _read_now(self) -> None:
        """Read what has arrived for receive_each()."""
        if self._reader is None:  # it has ended
            return
        try:
            data = self._socket.recv(READ_SIZE)
        except BlockingIOError:  # a spurious wake-up
            return
        except OSError as error:
            self._end_reading(error)
            return
        if self._take_timeout is not None:
            self._deadline = self._time() + self._take_timeout  # the timer moves by itself
        try:
            if data and self._take(data):
                return
        except BaseException as error:
            self._end_reading(error)
        else:
            self._end_reading(None)

    def _end_reading(self, error: BaseException | None) -> None:
        """Wake the task in receive_each(), if there is one."""
        reader = self._stop_reading()
        if reader is None or reader.done():
            return
        if error is None:
            reader.set_result(None)
        else:
            reader.set_exception(error)

    def _stop_reading(self) -> _Reader | None:
        """Read no more, before the socket may be closed: another one gets its descriptor then."""
        reader, self._reader = self._reader, None
        if reader is not None:
            self._take, self._deadline = bool, math.inf
            if self._readers is not None:
                self._readers.remove(self._socket.fileno())
        return reader

    def _wait_within(self, timeout: float | None) -> None:
        """Set the deadline of a wait that begins now."""
        if self._interrupted:
            raise self._why_woken()
        self._is_late = False
        if timeout is not None:
            self._deadline = self._time() + timeout
            if self._deadline < self._timer_at:
                self._set_timer()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = self._deadline
        self._timer = self._call_at(self._deadline, self._check_deadline)

    def _check_deadline(self) -> None:
        """End the wait if it lasts too long."""
        self._timer, self._timer_at = None, math.inf
        if self._time() < self._deadline:
            if self._deadline < math.inf:  # it has moved
                self._set_timer()
        elif self._socket.fileno() >= 0:
            self._is_late = True
            self._end_reading(self._why_woken())
            trio.lowlevel.notify_closing(self._socket)  # which wakes all that wait for it

    def _why_woken(self) -> OSError:
        interrupted, self._interrupted = self._interrupted, False
        if interrupted:
            return InterruptedError()
        if self._is_late:
            return TimeoutError("nothing was received in time")
        return ConnectionAbortedError("closed by the gateway")

    def interrupt(self) -> None:
        if self._reader is None:
            self._interrupted = True
        else:
            self._end_reading(InterruptedError())
            if self._readers is not None:  # which need not be woken
                return
        if self._socket.fileno() >= 0:
            trio.lowlevel.notify_closing(self._socket)

    async def peer_ended(self) -> None:
        await wait_for_peer_end(self._socket)

    def send_now(self, data: bytes | memoryview) -> bytes | memoryview | None:
        try:
            sent = self._socket.send(data)
        except BlockingIOError:
            return data
        except OSError:
            self._check_open()
            raise
        return None if sent == len(data) else memoryview(data)[sent:]

    async def send_all(self, data: bytes | memoryview, timeout: float | None) -> None:
        rest = TrioStream.send_now(self, data)  # in most cases that is all, and needs no deadline
        if rest is None:
            return
        with trio.move_on_after(math.inf if timeout is None else timeout) as scope:
            while rest:
                try:
                    rest = rest[self._socket.send(rest) :]
                except BlockingIOError:
                    try:
                        await trio.lowlevel.wait_writable(self._socket)
                    except trio.ClosedResourceError:  # or it is a reader that is late
                        self._check_open()
        if scope.cancelled_caught:
            raise TimeoutError("the peer did not read the data in time")

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
        self._interrupted = False
        with trio.move_on_after(linger), contextlib.suppress(OSError, trio.BusyResourceError):
            await self._send_end()
            # Whatever the peer still sends, encrypted or not.
            while await TrioStream.receive(self, None):
                pass
        self.abort()

    async def _send_end(self) -> None:
        self._socket.shutdown(socket.SHUT_WR)

    def drop_unsent(self) -> None:
        reset_when_closed(self._socket)

    def abort(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._reader is not None:
            self._is_late = self._interrupted = False
            self._end_reading(self._why_woken())
        if self._socket.fileno() >= 0:
            trio.lowlevel.notify_closing(self._socket)
            self._socket.close()

    def alpn_protocol(self) -> str | None:
        return None


class _TrioTlsStream(TrioStream):
    """server_hostname: None on the server's side. Call handshake() first.

    trio.SSLStream reads nothing more once a write of it was cancelled or has failed, and then a server has often sent
    its refusal of the request.
    """

    __slots__ = ("_cut", "_incoming", "_outgoing", "_sending", "_tls", "_unreadable", "_unsent")

    def __init__(self, connected: socket.socket, tls: ssl.SSLContext, server_hostname: str | None) -> None:
        super().__init__(connected)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = tls.wrap_bio(
            self._incoming,
            self._outgoing,
            server_hostname=server_hostname,
            server_side=server_hostname is None,
        )
        self._sending = Lock()
        self._unsent: bytes | memoryview = b""  # of what send_now() was given, as records
        self._cut = False  # inside of a record that was sent: nothing can follow it
        self._unreadable: ssl.SSLError | None = None  # what is behind the records that were read

    async def handshake(self) -> None:
        await self._read_until_done(self._tls.do_handshake)

    async def receive(self, timeout: float | None) -> bytes:
        self._check_open()
        try:
            return await self._read_until_done(self._read_records, timeout=timeout)
        except ssl.SSLEOFError:  # most servers close the socket without close_notify
            return b""

    def _read_records(self) -> bytes:
        """Return the content of all records that are there: a peer may send one for each byte."""
        if self._unreadable is not None:
            raise self._unreadable
        data = self._tls.read(READ_SIZE)
        if not data or not self._incoming.pending:
            return data
        parts, room = [data], READ_SIZE - len(data)
        try:
            while room > 0 and self._incoming.pending and (data := self._tls.read(room)):
                parts.append(data)
                room -= len(data)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:  # OpenSSL says it once, and then that the stream has ended
            self._unreadable = error.with_traceback(None)
        return b"".join(parts)

    async def receive_each(self, take: Take, timeout: float | None) -> None:
        def take_content(content: bytes) -> bool:
            if timeout is not None:
                self._deadline = self._time() + timeout
            return take(content) and self._reader is not None  # which may be cancelled now

        def take_records(data: bytes) -> bool:
            self._incoming.write(data)
            goes_on = self._pass_content(take_content)
            if self._outgoing.pending:  # an answer of the TLS object
                self.send_now(b"")
            return goes_on

        self._check_open()
        if self._pass_content(take):
            reading = super().receive_each(take_records, timeout)
            self._take_timeout = None  # a part of a record does not move the deadline
            await reading

    def _pass_content(self, take: Take) -> bool:
        """Pass on the content of all records that are there. Return false at the end, or when `take` does."""
        while True:
            try:
                content = self._read_records()
            except ssl.SSLWantReadError:
                return True
            if not (content and take(content)):
                return False

    def send_now(self, data: bytes | memoryview) -> bytes | memoryview | None:
        if self._cut or self._unsent or self._sending.locked:
            return data
        self._cut = True
        rest = super().send_now(self._records_of(data))
        self._cut, self._unsent = False, rest or b""
        return None if rest is None else b""

    async def send_all(self, data: bytes | memoryview, timeout: float | None) -> None:
        self._check_open()
        limit = math.inf if timeout is None else timeout
        for start in range(0, len(data) or 1, READ_SIZE):
            with trio.move_on_after(limit) as scope:  # also while a reader answers the peer
                async with self._sending:
                    if self._cut:
                        raise BrokenPipeError("an earlier write was cut short")
                    await self._send_outgoing(data[start : start + READ_SIZE])
            if scope.cancelled_caught:
                raise TimeoutError("the peer did not read the data in time")

    def _records_of(self, data: bytes | memoryview) -> bytes:
        """Return what is to be sent for it, and what the TLS object wants to send before that."""
        rest = memoryview(data)
        while rest:
            rest = rest[self._tls.write(rest) :]
        return self._outgoing.read()

    async def _read_until_done(
        self, function: Callable[[], Result], *, timeout: float | None = None
    ) -> Result:
        """Call a function of the TLS object until it needs no more bytes of the peer."""
        deadline = math.inf if timeout is None else self._time() + timeout
        while True:
            result, unsent, is_done = None, self._outgoing.pending, True
            try:
                result = function()
            except ssl.SSLWantReadError:
                is_done = False
            # What was there before follows with the next write: a reader must not wait for a peer that does not read.
            if self._outgoing.pending > unsent:
                with trio.CancelScope(deadline=deadline) as scope:  # also while a writer has its turn
                    async with self._sending:
                        if not self._cut:
                            await self._send_outgoing(b"")
                if scope.cancelled_caught:
                    raise TimeoutError("nothing was received in time")
            if is_done:
                return cast(Result, result)
            left = None if timeout is None else deadline - self._time()
            if data := await TrioStream.receive(self, left):
                self._incoming.write(data)
            else:
                self._incoming.write_eof()

    async def _send_outgoing(self, data: bytes | memoryview) -> None:
        """Send the rest of earlier records, and those of `data`. Call it with the lock."""
        self._cut = True
        if self._unsent:
            unsent, self._unsent = self._unsent, b""
            await super().send_all(unsent, None)
        await super().send_all(self._records_of(data), None)
        self._cut = False

    def is_reusable(self) -> bool:
        # Records that wait here, no look at the socket finds.
        return not (self._incoming.pending or self._tls.pending()) and super().is_reusable()

    async def _send_end(self) -> None:
        with contextlib.suppress(OSError):
            await self._read_until_done(self._tls.unwrap)

    def alpn_protocol(self) -> str | None:
        return self._tls.selected_alpn_protocol()
