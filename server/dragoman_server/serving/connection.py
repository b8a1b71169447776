"""One client connection: read and write bytes for HTTP1 or HTTP2 until either side ends it.

It replaces hypercorn's two `tcp_server.py`, on our `ByteStream`. An exception inside of a connection ends only that
one. All bytes for a client go through `Connection.write`.
"""

import logging
import math
import ssl
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeAlias

import anyio
import anyio.abc
import anyio.lowlevel
import msgspec
from anyio import TaskHandle
from starlette.types import ASGIApp, Message

from dragoman_server.platform.cancellation import return_if_cancelled
from dragoman_server.platform.changes import Flag, Lock
from dragoman_server.platform.clock import event_loop_clock
from dragoman_server.platform.start_queue import StartQueue
from dragoman_server.platform.timers import CallAt, Timer, event_loop_timers
from dragoman_server.serving.tasks import AppEvents, AppTasks, Request
from dragoman_server.serving.unsent import UnsentBodies
from dragoman_server.settings import ServerSettings
from dragoman_server.streams.byte_stream import ByteStream, Take
from dragoman_server.streams.http1_head import Headers

# Bytes passed to the stream in one call; the client must read them within `send_timeout_s`. A client that does not read
# costs as many bytes here (twice as many with TLS on asyncio, whose transport reports a full buffer one write late),
# in addition to the kernel's buffers, the protocol and the application.
WRITE_SIZE = 64 * 1024

# After we have closed our side, what the client still sends is read and dropped for this long: closing a socket with
# unread bytes sends a reset, and the client can lose the end of its response (RFC 9112, 9.6).
LINGER_S = 1.0
# The same for an idle connection.
IDLE_LINGER_S = 0.1

# A client that ends its side has left, and its request to an upstream is cancelled. It may as well wait for the
# response (RFC 9293, 3.6), so an application that does not ask whether the client is there has this long.
HALF_CLOSED_S = 1.0

# A new client sends its request, or its part of a handshake, within this time on most networks. Until then its
# connection is not closed for another one.
FIRST_BYTES_S = 0.25

# Longer than the pools of the SDKs keep an idle connection (5 to 60 s), so that the client closes it, not we: a
# request that is sent into a closing connection fails.
KEEP_ALIVE_S = 75.0

_log = logging.getLogger("dragoman.http")

Address = tuple[str, int]


class WorkerContext(msgspec.Struct):
    """The objects that the connections of one worker share.

    Attributes:
        app: Serves the requests.
        settings, tls: For connections that are accepted from now on; tls is None for plain TCP.
        state: The state of the application's lifespan.
        requests: All requests, which a stop cancels.
        starts: In which requests wait for their turn to begin.
        unsent: The large bodies that are being sent.
        terminated: The worker takes no new requests.
        time, call_at: The clock and the timers of the event loop.
        connections: All connections.
        idle: The connections and TLS handshakes without a request, which may be closed for a new connection, each with
            the time from which on, and the function that does it; the one that has been idle longest comes first.
    """

    app: ASGIApp
    settings: ServerSettings
    state: dict[str, Any]
    tls: ssl.SSLContext | None = None
    requests: set[Request] = msgspec.field(default_factory=set)
    starts: StartQueue = msgspec.field(default_factory=StartQueue)
    unsent: UnsentBodies = msgspec.field(default_factory=UnsentBodies)
    terminated: Flag = msgspec.field(default_factory=Flag)
    time: Callable[[], float] = msgspec.field(default_factory=event_loop_clock)
    call_at: CallAt = msgspec.field(default_factory=event_loop_timers)
    connections: "dict[Connection, None]" = msgspec.field(default_factory=dict)
    idle: dict[object, tuple[float, Callable[[], None]]] = msgspec.field(default_factory=dict)


class HTTPProtocol(Protocol):
    """HTTP1 or HTTP2, to its connection and to the streams of its requests."""

    @property
    def take(self) -> Take | None:
        """Do what data_received() does, without waiting. False: call that, with nothing, for the rest."""

    @property
    def is_behind(self) -> bool:
        """True if take() has returned false."""

    # Called by the connection.

    async def data_received(self, data: bytes) -> None: ...

    async def connection_lost(self) -> None: ...

    async def timed_out(self) -> None: ...

    async def stop(self) -> None: ...

    # Called by a stream.

    async def send_head(self, stream_id: int, status: int, headers: Headers) -> None: ...

    def send_data(self, stream_id: int, data: bytes, *, is_last: bool = False) -> Awaitable[None]: ...

    async def close_stream(self, stream_id: int) -> None: ...


# Returns the protocol of a connection by its first bytes, None while more of them are needed.
ProtocolFor: TypeAlias = "Callable[[Connection, bytes], HTTPProtocol | None]"


class Connection:
    """One connection.

    Attributes:
        client, server: The addresses of both ends.
        stream: Its bytes.
        request_events: What the application of the open request receives, over HTTP/1.
        tls: It is encrypted.
    """

    def __init__(
        self,
        worker: WorkerContext,
        stream: ByteStream,
        client: Address | None,
        server: Address | None,
        protocol_for: ProtocolFor,
        *,
        tls: bool,
    ) -> None:
        self.worker = worker
        self.settings = worker.settings
        self.client = client
        self.server = server
        self.tls = tls
        self.stream = stream
        self._protocol_for = protocol_for
        self._protocol: HTTPProtocol | None = None
        self.tasks: anyio.abc.TaskGroup
        self.apps: AppTasks
        # For reading. The timer's, the second one, may be earlier, which costs less than to move it.
        self._deadline = self._timer_at = math.inf
        self._timer: Timer | None = None
        self._ended = False  # nothing more is read
        self._closed = False  # nothing more is written
        self._linger_s = LINGER_S
        self._half_closed = False  # the client sends nothing more, and a request is open
        self.request_events: AppEvents | None = None  # of the open one of HTTP/1
        self._peer: TaskHandle[None] | None = None  # waits for the client's end
        self._peer_ended = False
        self._full: AppEvents | None = None  # those that have no room for more
        self._first = b""  # of the client, until its protocol is recognized
        self._writing = Lock()
        self._rest: bytes | memoryview | None = None  # of what write_now() was given

    # Called by the server.

    async def run(self) -> None:
        """Serve the client until either side ends the connection. Log internal errors, and raise none."""
        self.worker.connections[self] = None
        self.set_idle(True, self.worker.time() + FIRST_BYTES_S)
        try:
            async with anyio.create_task_group() as self.tasks:
                self.apps = AppTasks(self.tasks, self.worker.requests, self.worker.starts)
                self._protocol = self._protocol_for(self, b"")
                await self._read()
                await self._finish()
        except BaseExceptionGroup as group:
            # hypercorn 0.18 trio/run.py:98: one connection's exception ends them all, and the process.
            errors, other = group.split(Exception)
            if errors is not None:
                log_internal_error(errors)
            if other is not None:
                raise other from None
        finally:
            self._closed = True
            self._protocol = self.request_events = None  # reference cycles
            self.stream.abort()
            if self._timer is not None:
                self._timer.cancel()
            self.worker.idle.pop(self, None)
            del self.worker.connections[self]

    async def stop(self) -> None:
        """Take no new requests: end immediately if idle, else after the open ones. This raises nothing."""
        try:
            if self._protocol is None:
                self.end()
            else:
                await self._protocol.stop()
        except Exception as error:
            log_internal_error(error)
            self._break()

    # Called by the protocol.

    def end(self) -> None:
        """Stop reading, which ends the connection. Bytes that were written before still reach the client."""
        if self in self.worker.idle:
            del self.worker.idle[self]
            self._linger_s = IDLE_LINGER_S
        if not self._ended:
            self._ended = True
            self.stream.interrupt()

    def make_room(self) -> None:
        """End an idle connection for a new one, without waiting for its client."""
        self.end()
        self._linger_s = 0.0

    def read_within(self, seconds: float | None) -> None:
        """Set the deadline for reading to `seconds` from now; None removes it. The protocol's timed_out() follows it.

        set_idle(True) sets it to the time that a connection may be idle; set_idle(False) removes it.
        """
        self._deadline = math.inf if seconds is None else self.worker.time() + seconds
        if self._deadline < self._timer_at:
            if self._timer is not None:
                self._timer.cancel()
            self._set_timer()

    def _set_timer(self) -> None:
        # A cancel scope around the reads takes 0.7 KiB, and what it interrupts is at least as much work.
        self._timer, self._timer_at = self.worker.call_at(self._deadline, self._time_is_up), self._deadline

    def _time_is_up(self) -> None:
        self._timer, self._timer_at = None, math.inf
        if self._ended:
            return
        if self.worker.time() >= self._deadline:
            self.stream.interrupt()
        elif self._deadline < math.inf:  # it has moved
            self._set_timer()

    def set_idle(self, idle: bool, closable_at: float = 0.0) -> None:
        """Note that no request is open, or that one is. closable_at: see WorkerContext.idle."""
        if not idle:
            self.worker.idle.pop(self, None)
            self._deadline = math.inf
            return
        self.request_events = None
        if not self._ended:
            self.worker.idle[self] = closable_at, self.make_room
            # hypercorn 0.18 asyncio/tcp_server.py:73, trio/tcp_server.py:96: a task sleeps that long, and keeps the
            # socket although the client has left.
            self.read_within(KEEP_ALIVE_S)
            if self.worker.terminated.is_set:
                self.end()

    # Reading.

    async def _read(self) -> None:
        """Pass the client's bytes to the protocol until either side ends the connection."""
        while not self._ended:
            data, is_behind = b"", False
            try:
                if self._protocol is not None and (take := self._protocol.take) is not None:
                    await self.stream.receive_each(take, None)
                    is_behind = self._protocol.is_behind
                if not is_behind:
                    data = await self.stream.receive(None)
            except InterruptedError:
                await self._woken()
                continue
            except OSError:
                self.request_events = None
            if data or is_behind:
                await self._received(data)
                data = b""  # it would stay here until the client sends more
            elif self.request_events is not None:
                self._half_closed = self._ended = True
            else:
                self._break()  # frees the descriptor now, because the tasks may need a while to end

    async def put(self, events: AppEvents, event: Message) -> None:
        """Add an event that an application has no room for yet.

        Nothing is read meanwhile, so a client that leaves is noticed in another way.
        """
        if self._peer is None:
            self._peer = self.tasks.start_soon(return_if_cancelled, self._watch_peer, name="peer")
        self._full = events
        if self._peer_ended:
            await self._report_left()
        await events.put(event)
        self._full = None

    async def _watch_peer(self) -> None:
        await self.stream.peer_ended()
        self._peer_ended = True
        await self._report_left()

    async def _report_left(self) -> None:
        """End the connection of a client that has left, with what it has sent, if the application wants to know of it.

        Another one reads what waits first, and has the time of HALF_CLOSED_S for its response then.
        """
        if self._full is not None and self._full.note_left():
            self._break()
            if self._protocol is not None:
                await self._protocol.connection_lost()

    async def _woken(self) -> None:
        """React to the deadline, unless it has moved, or end() has woken the task."""
        if self._ended or self.worker.time() < self._deadline:
            return
        if self._protocol is None:
            self.end()
        else:
            self.read_within(None)
            await self._protocol.timed_out()

    async def _received(self, data: bytes) -> None:
        if self._protocol is None:
            data = self._first = self._first + data
            self._protocol = self._protocol_for(self, data)
            if self._protocol is None:
                return
            self._first = b""
        # Nothing is read meanwhile, so this must return soon: otherwise a client that leaves is not noticed.
        await self._protocol.data_received(data)

    async def _finish(self) -> None:
        self.apps.end()
        if self._peer is not None:
            self._peer.cancel()
        if self._protocol is not None:
            await self._protocol.connection_lost()
        if self._half_closed:
            responded = False
            with anyio.move_on_after(HALF_CLOSED_S):
                responded = self.request_events is None or await self.request_events.responded()
            if not responded:
                self._break()
        async with self._writing:  # after the writes that wait for their turn
            closed, self._closed = self._closed, True
        if not closed:
            await self.stream.end(self._linger_s)

    # Writing.

    def write_now(self, data: bytes, *, sends_rest: bool = True) -> bool:
        """Pass data to the client if that is possible without waiting. Return false if nothing was passed.

        What the kernel does not take of it follows by itself, before anything else, unless the caller sends _rest.
        """
        if self._closed or self._rest is not None or len(data) > WRITE_SIZE or self._writing.locked:
            return False
        try:
            rest = self.stream.send_now(data)
        except OSError:
            self._break()
            return True
        if rest is None:
            return True
        if rest is data:
            return False
        self._rest = rest
        if sends_rest:
            self.tasks.start_soon(self.write, b"")
        return True

    async def write(self, data: bytes, *more: bytes) -> None:
        """Pass all of it to the client. Once the connection is closed, the bytes are dropped."""
        rest: bytes | memoryview = data
        if more or not self.write_now(data, sends_rest=False):
            await anyio.lowlevel.checkpoint_if_cancelled()
        elif self._rest is None:
            return  # in most cases the kernel takes all of it immediately
        else:
            rest, self._rest = self._rest, None
        async with self._writing:
            await self._write_in_turn(rest, *more)

    async def _write_in_turn(self, *pieces: bytes | memoryview) -> None:
        if self._closed:
            # Let other tasks run, even if the application goes on writing.
            await anyio.lowlevel.checkpoint()
            return
        timeout = self.settings.send_timeout_s
        rest, self._rest = self._rest, None
        try:
            if rest is not None:
                await self.stream.send_all(rest, timeout)
            for data in pieces:
                for start in range(0, len(data) or 1, WRITE_SIZE):
                    if start:  # a client that reads fast does not hold the loop
                        await anyio.lowlevel.checkpoint()
                    await self.stream.send_all(data[start : start + WRITE_SIZE], timeout)
        except TimeoutError:
            _log.warning("a client read nothing for %g seconds; its requests are cancelled", timeout)
            self._break()
            self.tasks.cancel_scope.cancel()
        except OSError:
            self._break()
        except BaseException:
            # Cancelled after a part of the bytes: nothing may follow. hypercorn 0.18 trio/tcp_server.py:86 shields the
            # write instead, so that the request of a client which does not read never ends.
            self._break()
            raise

    def _break(self) -> None:
        self._closed = True
        self.stream.abort()
        self.end()


def log_internal_error(error: BaseException) -> None:
    """Log the type and place of an internal error that ended a connection. Its text may quote the client."""
    cause, trace = error, error.__traceback__
    while isinstance(cause, BaseExceptionGroup):
        cause = cause.exceptions[0]
        trace = cause.__traceback__ or trace
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = "?" if trace is None else f"{trace.tb_frame.f_globals.get('__name__')}:{trace.tb_lineno}"
    _log.error("a connection was ended by an internal error: %s in %s", type(cause).__name__, where)
    _log.debug("the traceback of this error", exc_info=error)
